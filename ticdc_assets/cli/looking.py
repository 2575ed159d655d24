"""Commands that show the state of changefeeds: `status`, `metrics`, `tables`, `report`, `alerts`.

They read only small tables, do not start Spark and do not write to the lake.
"""

import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ticdc_assets.base.errors import ConfigError, LakeDamagedError, PrerequisiteError, TicdcError
from ticdc_assets.base.names import counted
from ticdc_assets.cli.base import FiniteRange, end_with, lake_of, main, note
from ticdc_assets.cli.completing import changefeed_argument, changefeeds_argument, table_arguments
from ticdc_assets.cli.printing import in_total, print_json, print_table, shown_text
from ticdc_assets.cli.waiting import end_progress_lines
from ticdc_assets.config import load_settings
from ticdc_assets.model.tso import time_with_tso, to_datetime
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import AnyPath, write_at_once

if TYPE_CHECKING:
    from ticdc_assets.delta.lease import LeaseState
    from ticdc_assets.observe.openmetrics import Figures
    from ticdc_assets.observe.overview import FeedOverview
    from ticdc_assets.observe.status import Status


_WORST_TABLES = 10


@main.command()
@changefeed_argument(required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON array on standard output.")
def status(changefeed: str | None, *, as_json: bool) -> None:
    """Show how far CHANGEFEED is, where it is behind, and its worst tables.

    Without CHANGEFEED, show all of them. Spark is not started. The number of waiting records comes
    from the source. If the source does not answer, the number is that of the newest landing, and
    the exit code is 1 unless the changefeed is finished. The exit code is also 1 if a gap has
    stopped landing.
    """
    damages: list[LakeDamagedError] = []
    statuses = list(_statuses(changefeed, damages))
    lake, listed = load_settings().lake, list[dict[str, object]]()
    unseen, stopped = list[str](), list[str]()
    for item, error in statuses:
        lease = _lease(lake, item.changefeed, damages)
        if as_json:
            more = {"source_error": error, "lease": _lease_json(lease)}
            listed.append(item.as_json() | more)
        else:
            _print_status(item, error)
            if lease is not None and lease.is_held:
                click.echo(f"{item.changefeed}: written by {shown_text(str(lease))}")
        # A source that has ended, and of which all is applied, has nothing more to say.
        unseen += [item.changefeed] if error is not None and item.ending is None else []
        stopped += [item.changefeed] if item.gaps else []
    if as_json:
        print_json(listed)
    failures: list[object] = list(damages)
    failures += [f"the source of {', '.join(unseen)} could not be read"] if unseen else []
    failures += [f"a gap has stopped landing of {', '.join(stopped)}"] if stopped else []
    end_with(failures)


@main.command()
@changefeed_argument(required=False)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Replace this file atomically, for a textfile collector.",
)
@click.option(
    "--listen",
    metavar="[HOST:]PORT",
    help="Serve them over HTTP until Ctrl-C, for Prometheus; HOST is 127.0.0.1 by default.",
)
def metrics(changefeed: str | None, output: Path | None, listen: str | None) -> None:
    """Print the figures of CHANGEFEED, or of all, as OpenMetrics text."""
    from ticdc_assets.observe.openmetrics import openmetrics_text, serve_figures

    if listen is not None:
        if output is not None:
            raise click.UsageError("--output and --listen exclude each other")
        end_progress_lines()
        host, _, number = listen.rpartition(":")
        host, port = host or "127.0.0.1", int(number) if number.isdecimal() else 0
        if not 0 < port < 65536:
            wrong = f"expected a port, or HOST:PORT, got {listen!r}"
            raise click.BadParameter(wrong, param_hint="--listen")
        settings = load_settings()
        if changefeed is not None:
            settings.changefeed(changefeed)  # a wrong name is an error now, not at each request
        try:
            with serve_figures(lambda: _figures(changefeed)[0], host, port) as url:
                note(f"serving {url} until Ctrl-C")
                with suppress(KeyboardInterrupt):
                    threading.Event().wait()
        except OSError as error:
            raise PrerequisiteError(f"{host}:{port}: {error.strerror or error}") from error
        return
    figures, damages = _figures(changefeed)
    text = openmetrics_text(figures)
    if output is None:
        click.echo(text, nl=False)
    else:
        _require_folder_of(output)
        write_at_once(output, text)
    end_with(damages)


def _figures(changefeed: str | None) -> "tuple[Figures, list[LakeDamagedError]]":
    from ticdc_assets.observe.openmetrics import Figures

    damages: list[LakeDamagedError] = []
    statuses = list(_statuses(changefeed, damages))
    broken = {error.changefeed for error in damages}
    figures = Figures(
        statuses=[item for item, _ in statuses],
        source_up={item.changefeed: error is None for item, error in statuses},
        readable=dict.fromkeys(broken, False)
        | {item.changefeed: item.changefeed not in broken for item, _ in statuses},
    )
    return figures, damages


@main.command()
@changefeed_argument()
def alerts(changefeed: str) -> None:
    """Send a test message to each receiver of CHANGEFEED's alerts."""
    from ticdc_assets.observe.alerting import Message, deliver
    from ticdc_assets.observe.verdicts import Level

    feed = load_settings().changefeed(changefeed)
    if not feed.alerts.to:
        raise ConfigError(f"{changefeed} has no alerts: its entry needs `alerts: {{to: [...]}}`")
    message = Message(
        level=Level.OK,
        title=f"{changefeed}: a test",
        body="You get messages when checks do not pass and when runs fail.",
        changes=0,
    )
    failures: list[TicdcError] = []
    for target in feed.alerts.to:
        try:
            deliver(message, target)
            click.echo(f"{target} accepted the message")
        except TicdcError as error:
            failures.append(error)
    end_with(failures)


def _require_folder_of(output: Path) -> None:
    if not output.absolute().parent.is_dir():
        raise ConfigError(
            f"{output.absolute().parent} is not a folder; make it, or change --output"
        )


def _statuses(
    changefeed: str | None, damages: list[LakeDamagedError]
) -> "Iterable[tuple[Status, str | None]]":
    """Yield the status of each changefeed, and why its source could not be read.

    Damaged tables are added to `damages`; a changefeed whose status needs one of them is left out.
    """
    settings = load_settings()
    feeds = settings.changefeeds if changefeed is None else (settings.changefeed(changefeed),)
    from ticdc_assets.delta.lake import Lake
    from ticdc_assets.observe.status_reading import see_status

    for feed in feeds:
        lake = Lake.open(settings.lake, feed)
        try:
            status, failure = see_status(lake, datetime.now(UTC))
        except LakeDamagedError as error:
            damages.append(error)
            continue
        yield status, None if failure is None else str(failure)


def _lease(lake: AnyPath, changefeed: str, damages: list[LakeDamagedError]) -> "LeaseState | None":
    """Return who writes to a changefeed, if a lease says so; None without a lease."""
    from ticdc_assets.delta.lease import read_lease

    try:
        return read_lease(LakePaths(root=lake, changefeed=changefeed).lease)
    except LakeDamagedError as error:
        damages.append(error)
        return None


def _lease_json(lease: "LeaseState | None") -> dict[str, object] | None:
    if lease is None:
        return None
    return {
        "number": lease.number,
        "is_held": lease.is_held,
        "host": lease.holder.host,
        "process": lease.holder.process,
        "command": lease.holder.command,
        "taken_at": lease.taken_at.isoformat(),
        "renewed_at": lease.renewed_at.isoformat(),
        "until": lease.until.isoformat() if lease.is_held else None,
    }


def _print_status(item: "Status", source_error: str | None) -> None:
    from ticdc_assets.observe.wording import duration, lag_text

    name, cut, lag = item.changefeed, item.cut, item.lag
    lines = ["no published cut yet"]
    if cut is not None and lag is not None:
        behind = f"{duration(lag.seconds)} behind ({lag.text})"
        if lag.ahead_ms:
            behind = f"ahead of this machine's clock by {duration(lag.ahead_seconds)}"
        if item.ending is not None:
            behind = item.ending.text
        lines = [f"{behind}; cut {cut.number} at {cut.moment}"]
    if cut is not None and cut.rewind is not None:
        lines.append(
            f"cut {cut.number} is cut {cut.rewind.number} again: rewound at "
            f"{cut.published_at:%Y-%m-%d %H:%M:%S} UTC from cut {cut.rewind.from_number} at "
            f"{time_with_tso(cut.rewind.from_tso)} by {cut.rewind.by}"
        )
    watermark = item.watermark.watermark_ts
    at = "no watermark yet" if watermark is None else f"watermark {time_with_tso(watermark)}"
    if source_error is None:
        at += f"; {counted(item.backlog, 'record waits', 'records wait')} in the source"
    lines.append(at)
    if source_error is not None:
        lines.append(f"the source could not be read: {source_error}")
    lines += [str(gap.error) for gap in item.gaps]
    lines += [reason.sentence for reason in item.untruncated]
    lines += [f"accepted gap: {accepted.sentence}" for accepted in item.accepted_gaps]
    quarantined = ", ".join(f"{count} at {stage}" for stage, count in item.quarantined.items())
    lines.append(
        f"{counted(item.held_rows, 'row')} held, quarantined {quarantined}, "
        f"{counted(len(item.conflicts), 'schema conflict')}"
    )
    lines += [
        f"{verdict.level.word}: {check}: {verdict.sentence}"
        for check, verdict in item.verdicts.items()
        if verdict.level
    ]
    for line in lines:
        click.echo(f"{name}: {shown_text(line)}")
    if item.topics:
        print_table(
            f"{name}: topics",
            ("topic", "state", "partitions", "tables", "waiting records", "watermark"),
            (
                (
                    topic.topic,
                    topic.state,
                    str(topic.partitions),
                    "?" if topic.tables is None else str(topic.tables),
                    str(topic.backlog),
                    "none"
                    if topic.watermark_ts is None
                    else f"{to_datetime(topic.watermark_ts):%Y-%m-%d %H:%M:%S} UTC",
                )
                for topic in item.topics
            ),
        )
    if item.tables:
        print_table(
            f"{name}: tables, worst first",
            ("database", "table", "rows", "lag", "state"),
            (
                (
                    table.database,
                    table.table,
                    str(table.rows) if table.has_mirror else "no mirror",
                    lag_text(table.lag_seconds, is_finished=item.ending is not None),
                    table.brief,
                )
                for table in item.tables[:_WORST_TABLES]
            ),
            in_total(len(item.tables), "table"),
        )


@main.command()
@changefeed_argument()
@click.option("--json", "as_json", is_flag=True, help="One JSON array on standard output.")
def tables(changefeed: str, as_json: bool) -> None:
    """List the mirrors of CHANGEFEED at the newest cut, and tables known from rows only."""
    from ticdc_assets.observe.status_reading import read_status
    from ticdc_assets.observe.wording import lag_text
    from ticdc_assets.reading.mirrors import list_mirrors

    lake = lake_of(load_settings(), changefeed)
    status = read_status(lake, datetime.now(UTC))
    mirrors = list_mirrors(lake.paths, status)
    if as_json:
        print_json(
            [
                {
                    **item.status.as_json(),
                    "key": item.key,
                    "columns": item.columns,
                    "applied_ts": item.applied_ts,
                    "moment": item.moment,
                    "path": None if item.path is None else str(item.path),
                    "version": item.version,
                    "incomplete": item.incomplete,
                }
                for item in mirrors
            ]
        )
        return
    if not mirrors:
        click.echo(f"{changefeed}: no published cut yet")
        return
    # A failed mirror is at an older cut.
    cut = max(mirrors, key=lambda item: item.applied_ts)
    print_table(
        f"{changefeed} at {cut.moment}",
        ("database", "table", "key", "rows", "lag", "state"),
        (
            (
                *(item.database, item.table, ", ".join(item.key) or "none"),
                str(item.rows) if item.status.has_mirror else "no mirror",
                lag_text(item.status.lag_seconds, is_finished=status.ending is not None),
                item.status.verdict.sentence,
            )
            for item in mirrors
        ),
    )


@main.command()
@changefeed_argument()
@table_arguments()
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def path(changefeed: str, database: str, table: str, *, as_json: bool) -> None:
    """Print the folder of a table's mirror, and the Delta version that the newest cut names.

    Folder and version are on one line, separated by a tab. Read that version: a newer one may
    belong to a cut that is not published yet.
    """
    from ticdc_assets.reading.mirrors import locate_mirror

    mirror = locate_mirror(changefeed, database, table)
    if as_json:
        print_json({**asdict(mirror), "path": str(mirror.path)})
    else:
        click.echo(f"{mirror.path}\t{mirror.version}")


@main.command()
@changefeed_argument()
@click.option("--json", "as_json", is_flag=True, help="One JSON array on standard output.")
def quarantine(changefeed: str, as_json: bool) -> None:
    """List the open records in quarantine: position, reason, expected and got."""
    from ticdc_assets.log.quarantine import read_quarantine

    lake = lake_of(load_settings(), changefeed)
    rows = read_quarantine(lake.paths, tables=lake.changefeed.tables)
    names = ("topic", "partition", "offset", "index", "reason", "position", "expected", "got")
    if as_json:
        listed = [
            {name: row[name] for name in (*names, "stage", "database", "table", "commit_ts")}
            for row in rows
        ]
        print_json(listed)
        return
    if not rows:
        click.echo(f"{changefeed}: nothing is quarantined")
        return
    shown = ([str(row[name]) for name in names] for row in rows)
    print_table(f"{changefeed}: {len(rows)} quarantined", names, shown)


@main.command()
@changefeeds_argument()
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default="report.html",
    show_default=True,
    help="Where to write the page; an existing file is replaced.",
)
@click.option(
    "--days",
    type=FiniteRange(min=0, min_open=True, max=3650),
    default=7,
    show_default=True,
    help="How far back the plots go.",
)
def report(changefeeds: tuple[str, ...], output: Path, days: float) -> None:
    """Write one HTML page about all changefeeds, or the named ones, for a browser.

    It shows lag, throughput and backlog over time, tables, DDL, schemas, quarantine, partitions and
    cuts. The page is self-contained and loads nothing from a network. Writing it needs neither
    Spark nor Kafka.
    """
    _require_folder_of(output)
    settings = load_settings()
    names = list(dict.fromkeys(changefeeds)) or [feed.name for feed in settings.changefeeds]
    lakes = [lake_of(settings, name) for name in names]
    if not lakes:
        raise ConfigError(f"{settings.path} has no changefeed to report on")
    from ticdc_assets.observe.overview import read_overview
    from ticdc_assets.observe.report.page import headlines, page

    overviews: list[FeedOverview] = []
    damages: list[LakeDamagedError] = []
    for lake in lakes:
        try:
            overviews.append(read_overview(lake, days=days))
        except LakeDamagedError as error:
            damages.append(error)
    if not overviews:
        end_with(damages)
    write_at_once(output, page(overviews))
    for overview in overviews:
        items = headlines(overview)
        shown = "; ".join(f"{item.label.lower()}: {item.value}" for item in items)
        click.echo(f"{overview.changefeed.name}: {overview.status.level.word}: {shown}")
    click.echo(f"written to {output.absolute()}")
    end_with(damages)
