"""The command line `ticdc-assets`.

In: words and the environment (`TICDC_CHANGEFEEDS`, `TICDC_LAKE`, `DAGSTER_HOME`). Out: text for
people on standard output, or JSON and nothing else there where a command says so; progress and
errors go to standard error. A command that changes tables does so through the Dagster job or under
the same writer's lock, so running it again is as safe as running the job again.

Exit codes: 0 done, 1 an error that is told in one sentence, 2 wrong usage.
"""

import functools
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ticdc_assets.config import (
    WIRE_FORMATS,
    CaptureSource,
    Changefeed,
    KafkaSource,
    Settings,
    load_settings,
)
from ticdc_assets.errors import ConfigError, LakeDamagedError, TicdcError
from ticdc_assets.isolation import RUST_PANIC
from ticdc_assets.lake.paths import LakePaths
from ticdc_assets.machine import refusal
from ticdc_assets.report.texts import visible
from ticdc_assets.tso import cut_of, to_datetime

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ticdc_assets.lake.as_of import TableRows
    from ticdc_assets.lake.overview import FeedOverview
    from ticdc_assets.lake.status import Status
    from ticdc_assets.lake.verifying import Verification, VerifiedMirror

# Spark, Delta and Dagster are imported by the commands that need them: `--help` and errors in the
# configuration should not cost seconds.

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _plain_errors(command: _Command) -> _Command:
    """Turn the package's errors and the machine's refusals into one sentence and exit code 1."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            with _damage_told():
                return command(*args, **kwargs)
        except TicdcError as error:
            raise click.ClickException(str(error)) from error
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            sentence = _refusal(error)
            if sentence is None and isinstance(error, OSError) and error.filename is not None:
                sentence = f"{error.filename}: {error.strerror}"
            if sentence is None:
                raise
            raise click.ClickException(sentence) from error
        except BaseException as error:
            # Rust code that meets a full disk may panic, and that is no Exception.
            sentence = _refusal(error) if type(error).__name__ == RUST_PANIC else None
            if sentence is None:
                raise
            raise click.ClickException(sentence) from error

    return run  # pyright: ignore[reportReturnType]  # wraps keeps the signature


def _refusal(error: BaseException) -> str | None:
    """Return what the machine refused, in one sentence, or None if it is about something else."""
    folders = [Path(tempfile.gettempdir())]
    try:
        settings = load_settings()
    except TicdcError:
        return refusal(error, folders)
    home = os.environ.get("DAGSTER_HOME")
    folders += [settings.lake, *([Path(home)] if home else [])]
    return refusal(error, folders)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ticdc-assets")
def main() -> None:
    """TiCDC changefeeds in Kafka, as consistent Delta Lake mirrors.

    Changefeeds are configured in the file named by TICDC_CHANGEFEEDS (default changefeeds.yaml),
    tables are below the folder named by TICDC_LAKE (default .lake).
    """


_USED = "ticdc_assets.cli.used"
"""Where a command keeps whose tables it works on, for when one of them is broken."""


def _feed(settings: Settings, name: str) -> tuple[Changefeed, LakePaths]:
    paths = LakePaths(root=settings.lake, changefeed=name)
    click.get_current_context().meta.setdefault(_USED, []).append(paths)
    return settings.changefeed(name), paths


@contextmanager
def _damage_told() -> Iterator[None]:
    """Say which table is broken where a command failed because one is."""
    try:
        yield
    except Exception:
        # Only now, because it costs time to import.
        from ticdc_assets.lake.damage import damage_told

        with damage_told(*click.get_current_context().meta.get(_USED, ())):
            raise


def _end_with(failures: Iterable[object]) -> None:
    """End the command with what is wrong, a sentence each, if anything is."""
    found = list(failures)
    if found:
        raise click.ClickException("\n".join(map(str, found)))


def _note(text: str) -> None:
    click.echo(text, err=True)


def _note_count(count: int) -> None:
    click.echo(f"{count} records so far", err=True)


def _checked_moment(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> str | None:
    """Refuse what is neither a TSO nor a time as wrong usage, before anything is done."""
    if text is not None:
        try:
            cut_of(text, es_only=False)
        except ConfigError as error:
            raise click.BadParameter(str(error)) from error
    return text


_AS_OF_HELP = "As it was at this TSO, or time in ISO 8601 (UTC), at or below the newest cut."


_FOREVER_SECONDS = 10 * 365 * 86_400.0


# Syncing ----------------------------------------------------------------------------------------


@main.command()
@click.argument("changefeed", required=False)
@click.option(
    "--until",
    metavar="TSO|TIME",
    callback=_checked_moment,
    help="Do not cut beyond this TSO, or time in ISO 8601 (UTC).",
)
@click.option("--max-records", type=click.IntRange(min=1), help="Land at most so many records.")
@click.option("--follow", is_flag=True, help="Go on syncing what arrives, until Ctrl-C.")
@click.option(
    "--seconds", type=click.FloatRange(min=0), help="With --follow: end after so many seconds."
)
@_plain_errors
def sync(
    changefeed: str | None,
    until: str | None,
    max_records: int | None,
    follow: bool,
    seconds: float | None,
) -> None:
    """Land, decode, register and apply what is there, once, as a run of the Dagster job.

    With --follow it syncs again whenever the source has more; a sync that is under way is finished
    before it ends. It ends too when another run of the changefeed wants to write.

    Without CHANGEFEED all of them, one after the other. The mirrors are cut at exactly
    min(TSO, global watermark). Where they are beyond TSO already, nothing is changed. A changefeed
    without commit ts (Canal-JSON without the TiDB extension) is cut at all that landed, or a TIME.
    """
    settings = load_settings()
    if seconds is not None and not follow:
        raise click.UsageError("--seconds says how long to --follow; give both")
    if follow:
        if changefeed is None:
            raise click.UsageError("--follow needs the CHANGEFEED to follow")
        if until is not None or max_records is not None:
            raise click.UsageError("--follow syncs all there is; leave out --until, --max-records")
        _follow(settings, changefeed, seconds)
        return
    if changefeed is not None:
        _sync_one(settings, changefeed, until, max_records)
        return
    failed: list[str] = []
    for feed in settings.changefeeds:
        try:
            _sync_one(settings, feed.name, until, max_records)
        except TicdcError as error:
            # One whose broker is down does not keep the others from going on.
            _note(f"{feed.name}: {error}")
            failed.append(feed.name)
    if failed:
        raise click.ClickException(f"could not sync {', '.join(failed)}; the reasons stand above")


def _follow(settings: Settings, name: str, seconds: float | None) -> None:
    settings.changefeed(name)
    from ticdc_assets.defs.run import run_follow

    run_follow(
        settings,
        name,
        seconds=_FOREVER_SECONDS if seconds is None else seconds,
        say=lambda text: click.echo(f"{name}: {text}"),
    )


def _sync_one(settings: Settings, name: str, until: str | None, max_records: int | None) -> None:
    from ticdc_assets.kafka import reach
    from ticdc_assets.lake.cuts import newest_cut

    feed, paths = _feed(settings, name)
    cut = newest_cut(paths)
    if until is not None:
        # A wrong word is told before anything is landed.
        wanted = cut_of(until, es_only=cut is not None and cut.es_only)
        if cut is not None and cut.tso > wanted:
            click.echo(
                f"{name}: the mirrors are at {cut.moment}, beyond {until}; nothing was changed"
            )
            return
    if isinstance(feed.source, KafkaSource):
        # A wrong password or a dead broker is told before Dagster is there, and makes no run.
        reach(feed.source)
    from ticdc_assets.defs.run import run_sync

    for line in _summary(name, run_sync(settings, name, until=until, max_records=max_records)):
        click.echo(line)


def _summary(name: str, report: Any) -> Iterable[str]:
    """Yield the lines that tell what a sync did."""
    landing, decoding, applying = report.landing, report.decoding, report.applying
    changes = ", ".join(f"{count} {kind}" for kind, count in sorted(decoding.changes.items()))
    yield f"{name}: landed {landing.records} records, {landing.backlog} wait in the source"
    yield f"{name}: decoded {changes or 'nothing'}; quarantined {decoding.quarantined} records"
    yield f"{name}: {applying.outcome}: {applying.reason}"
    for check in report.checks:
        if not check.passed:
            yield f"{name}: check {check.name}: {check.severity}: {check.description}"
    cut = applying.cut
    if cut is None:
        return
    held = sum(item.rows for item in cut.held)
    if held:
        since = min(item.since for item in cut.held)
        yield f"{name}: {held} rows are held for their schema, since {since:%Y-%m-%d %H:%M:%S} UTC"
    if cut.replays or cut.late:
        yield f"{name}: {cut.replays} replayed rows ignored, {cut.late} late rows folded in"
    if cut.unplaced:
        yield f"{name}: {cut.unplaced} rows landed below what is kept and were not applied"
    unknown = sum(item.unknown_deletes for item in cut.mirrors)
    if unknown:
        yield f"{name}: {unknown} deletes of rows that were not there, so far"
    if cut.steps_back:
        yield f"{name}: {cut.steps_back} watermarks stepped back and were ignored, so far"
    for text in applying.repaired:
        yield f"{name}: made again: {text}"
    for failure in cut.failed:
        yield f"{name}: failed: {failure.sentence}"
    for account in cut.unaccounted:
        yield f"{name}: not accounted for: {account.sentence}"
    incomplete = [
        f"{item.database}.{item.table}"
        for item in cut.mirrors
        if item.incomplete and not item.failed
    ]
    if incomplete:
        yield f"{name}: incomplete mirrors: {', '.join(incomplete)}"


@main.command()
@click.argument("changefeed")
@_plain_errors
def redrive(changefeed: str) -> None:
    """Decode and apply the quarantined records of CHANGEFEED again, after a fix."""
    from ticdc_assets.defs.run import run_redrive

    report = run_redrive(load_settings(), changefeed)
    redriving = report.redriving
    click.echo(
        f"{changefeed}: {redriving.records} quarantined records tried again, "
        f"{redriving.decoded} decoded now, {redriving.still_quarantined} still refused"
    )
    click.echo(f"{changefeed}: {report.applying.outcome}: {report.applying.reason}")


@main.command()
@click.argument("changefeed")
@click.option(
    "--to",
    "moment",
    metavar="TSO|TIME",
    callback=_checked_moment,
    help="Go back to the newest kept cut at or below this TSO, or time in ISO 8601 (UTC).",
)
@click.option("--cut", "number", type=click.IntRange(min=1), help="Go back to the cut of a number.")
@_plain_errors
def rewind(changefeed: str, moment: str | None, number: int | None) -> None:
    """Make an older cut of CHANGEFEED the newest one again; syncs go on from there.

    It is for cuts that were wrong: a watermark far in the future was believed, say. What is further
    ahead than `max_ahead_seconds` allows leaves the change log for the quarantine first, so that it
    counts no more. The cuts in between are void: no reader uses them.
    """
    if (moment is None) == (number is None):
        raise click.UsageError("say which cut to go back to: --to TSO, or --cut NUMBER")
    from ticdc_assets.lake.cuts import require_cut
    from ticdc_assets.lake.lock import writer_lock
    from ticdc_assets.lake.rewinding import rewind as rewound
    from ticdc_assets.lake.session import LazySession

    feed, paths = _feed(load_settings(), changefeed)
    with writer_lock(paths):
        es_only = require_cut(paths).es_only
        done = rewound(
            LazySession(),
            paths,
            feed,
            by=_caller(),
            tso=None if moment is None else cut_of(moment, es_only=es_only),
            number=number,
        )
    click.echo(
        f"{changefeed}: {done.quarantined} events that are too far ahead were moved to quarantine"
    )
    if done.cut is done.before:
        click.echo(
            f"{changefeed}: cut {done.older.number} at {done.older.moment} is the newest one; "
            "nothing was rewound"
        )
        return
    click.echo(
        f"{changefeed}: cut {done.cut.number} is cut {done.older.number} again, at "
        f"{done.older.moment}; the cuts since, up to {done.before.number} at "
        f"{done.before.moment}, are void"
    )
    click.echo(f"{changefeed}: run `ticdc-assets sync {changefeed}` if no sensor does")


def _caller() -> str:
    """Return who runs this, as far as the system tells."""
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "?"
    return f"{user}@{socket.gethostname()}"


_DAY = click.DateTime(formats=["%Y-%m-%d"])


@main.command()
@click.argument("changefeed")
@click.option("--day", "days", type=_DAY, multiple=True, help="Landing day (UTC) to decode again.")
@click.option("--from", "first", type=_DAY, help="The first of several days; goes with --to.")
@click.option("--to", "last", type=_DAY, help="The last of them.")
@click.option(
    "--table",
    "tables",
    metavar="DATABASE.TABLE",
    multiple=True,
    help="Table to fold again from the change log.",
)
@_plain_errors
def backfill(
    changefeed: str,
    days: Sequence[datetime],
    first: datetime | None,
    last: datetime | None,
    tables: Sequence[str],
) -> None:
    """Decode landing days of CHANGEFEED again, or fold tables again, while syncs go on.

    A day's records are decoded once more and compared with the change log. Where nothing differs
    nothing is written; what differs is put right, and the next sync folds the tables it is of. A
    table is folded again from the whole change log, at the newest cut.
    """
    if (first is None) != (last is None):
        raise click.UsageError("--from and --to go together")
    if bool(tables) == bool(days or first):
        raise click.UsageError("name days (--day, or --from and --to) or tables (--table)")
    from ticdc_assets.defs.backfills import backfill_days, backfill_tables, days_between

    settings = load_settings()
    if tables:
        report = backfill_tables(settings, changefeed, tables)
        for item in report.mirrors:
            click.echo(
                f"{changefeed}: {_shown(item.database)}.{_shown(item.table)}: folded again, "
                f"{item.rows} rows at {report.cut.moment}"
            )
        return
    wanted = {day.date() for day in days}
    if first is not None and last is not None:
        wanted.update(days_between(first.date(), last.date()))
    done = backfill_days(settings, changefeed, wanted)
    for day in done.days:
        click.echo(f"{changefeed}: {day.sentence()}")
    if any(day.batch is not None for day in done.days):
        click.echo(f"{changefeed}: run `ticdc-assets sync {changefeed}` if no sensor does")


@main.command()
@click.argument("changefeed")
@_plain_errors
def rebuild(changefeed: str) -> None:
    """Make everything of CHANGEFEED again from its landed records.

    For when tables are damaged that `backfill --table` does not repair. All tables but the landed
    records are set aside in a folder, and a sync makes them again. Until it ends there are no
    mirrors to read. Older cuts are gone then; a moment is read from the change log.
    """
    from ticdc_assets.defs.run import run_sync
    from ticdc_assets.lake.setting_aside import set_aside

    settings = load_settings()
    _, paths = _feed(settings, changefeed)
    folder = set_aside(paths)
    _note(f"{changefeed}: the tables are set aside in {folder}; remove it when all is well")
    for line in _summary(changefeed, run_sync(settings, changefeed)):
        click.echo(line)


@main.command()
@click.argument("changefeed")
@click.option("--dry-run", is_flag=True, help="Only count what would be removed.")
@_plain_errors
def maintain(changefeed: str, *, dry_run: bool) -> None:
    """Remove what CHANGEFEED no longer needs to keep; compact and vacuum its tables.

    What is kept how long stands under `retention` in the configuration. No row of a mirror changes,
    and every cut that is kept stays readable.
    """
    settings = load_settings()
    feed, paths = _feed(settings, changefeed)
    if dry_run:
        from ticdc_assets.lake.lock import writer_lock
        from ticdc_assets.lake.maintenance import maintain as maintained
        from ticdc_assets.lake.session import get_spark

        with writer_lock(paths):
            done = maintained(get_spark(), paths, feed, dry_run=True)
        retaining = done.retaining
        click.echo(
            f"{changefeed}: would remove {retaining.changes} rows of change_log, "
            f"{retaining.records} records of raw_messages and {retaining.cuts} cuts"
        )
    else:
        from ticdc_assets.defs.run import run_maintenance

        done = run_maintenance(settings, changefeed)
    for line in done.lines():
        click.echo(f"{changefeed}: {line}")


@main.command("accept-gap")
@click.argument("changefeed")
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@_plain_errors
def accept_gap(changefeed: str, topic: str, partition: int) -> None:
    """Let landing of CHANGEFEED go on behind the gap in PARTITION of TOPIC.

    The records of the gap are lost. Who accepted it, when, and its offsets are kept in the lake,
    and the mirrors that may lack changes are marked until their table is created or truncated
    again. The next sync lands from the first record that is there.
    """
    from ticdc_assets.lake.lock import writer_lock
    from ticdc_assets.lake.sources import accept, see_source

    feed, paths = _feed(load_settings(), changefeed)
    with writer_lock(paths):
        gap = accept(paths, feed, topic, partition)
        left = see_source(paths, feed).gaps
    click.echo(f"{changefeed}: accepted the loss of {_shown(gap.sentence)}")
    click.echo(
        f"{changefeed}: run `ticdc-assets sync {changefeed}` if no sensor does: it lands from "
        f"offset {gap.to_offset} on, and marks the mirrors that may lack changes"
    )
    for other in left:
        click.echo(f"{changefeed}: another {_shown(str(other.error))}")


# Looking ----------------------------------------------------------------------------------------


_WORST_TABLES = 10


@main.command()
@click.argument("changefeed", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON array on standard output.")
@_plain_errors
def status(changefeed: str | None, *, as_json: bool) -> None:
    """Show how far CHANGEFEED is, where it is behind, and its worst tables.

    Without CHANGEFEED all of them. Spark is not started. The source is asked how many records wait;
    where it does not answer, the figure is that of the newest landing, and the exit code is 1. So
    it is where landing is stopped by a gap.
    """
    damages: list[LakeDamagedError] = []
    found = list(_statuses(changefeed, damages))
    if as_json:
        listed = [{**item.as_json(), "source_error": error} for item, error in found]
        _print_json(json.dumps(listed, ensure_ascii=False))
    else:
        for item, error in found:
            _print_status(item, error)
    unseen = [item.changefeed for item, error in found if error is not None]
    stopped = [item.changefeed for item, _ in found if item.gaps]
    failures: list[object] = list(damages)
    if unseen:
        failures.append(f"the source of {', '.join(unseen)} could not be looked at")
    if stopped:
        failures.append(f"landing of {', '.join(stopped)} is stopped by a gap")
    _end_with(failures)


@main.command()
@click.argument("changefeed", required=False)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to this file at once, for a textfile collector; it is never seen half written.",
)
@_plain_errors
def metrics(changefeed: str | None, output: Path | None) -> None:
    """Print the figures of CHANGEFEED, or of all, as OpenMetrics text."""
    from ticdc_assets.lake.openmetrics import openmetrics_text

    damages: list[LakeDamagedError] = []
    found = list(_statuses(changefeed, damages))
    broken = {error.changefeed for error in damages}
    text = openmetrics_text(
        [item for item, _ in found],
        source_up={item.changefeed: error is None for item, error in found},
        readable=dict.fromkeys(broken, False)
        | {item.changefeed: item.changefeed not in broken for item, _ in found},
    )
    if output is None:
        click.echo(text, nl=False)
    else:
        _write_at_once(output, text)
    _end_with(damages)


def _write_at_once(path: Path, text: str) -> None:
    """Put a file in place whole; who reads it meanwhile sees the one before."""
    import tempfile

    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
    ) as file:
        new = Path(file.name)
        try:
            file.write(text)
            file.flush()
            # Made for its owner alone; a collector is somebody else.
            new.chmod(0o644)
            new.replace(path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise


def _statuses(
    changefeed: str | None, damages: list[LakeDamagedError]
) -> "Iterable[tuple[Status, str | None]]":
    """Yield the status of each changefeed, and why its source could not be looked at.

    What is broken is added to `damages`; a changefeed whose status it takes is left out.
    """
    from datetime import UTC, datetime

    from ticdc_assets.lake.damage import damage_told, damaged_mirrors
    from ticdc_assets.lake.sources import see_source
    from ticdc_assets.lake.status import read_status

    settings = load_settings()
    feeds = settings.changefeeds if changefeed is None else (settings.changefeed(changefeed),)
    for feed in feeds:
        paths = LakePaths(root=settings.lake, changefeed=feed.name)
        sight, failure = None, None
        try:
            with damage_told(paths):
                try:
                    sight = see_source(paths, feed)
                except LakeDamagedError:
                    raise
                except TicdcError as error:
                    failure = str(error)
                status = read_status(
                    paths,
                    feed,
                    datetime.now(UTC),
                    source=None if sight is None else sight.present,
                    gaps=() if sight is None else sight.gaps,
                )
        except LakeDamagedError as error:
            damages.append(error)
            continue
        damages += damaged_mirrors(paths, status.cut).values()
        yield status, failure


def _print_status(item: "Status", source_error: str | None) -> None:
    from rich.table import Table

    from ticdc_assets.lake.status import LagPart

    name, lag = item.changefeed, item.lag
    if item.cut is None or lag is None:
        click.echo(f"{name}: no published cut yet")
    else:
        parts = ", ".join(
            f"{str(part).replace('_', ' ')} {lag.part_seconds(part):.1f} s" for part in LagPart
        )
        behind = f"{lag.seconds:.1f} s behind ({parts})"
        if lag.ahead_ms:
            behind = f"ahead of this machine's clock by {lag.ahead_seconds:.1f} s"
        click.echo(
            f"{name}: {behind}; cut {item.cut.number} at "
            f"{item.cut.moment} ({to_datetime(item.cut.tso):%Y-%m-%d %H:%M:%S} UTC)"
        )
    if item.cut is not None and item.cut.rewind is not None:
        rewound = item.cut.rewind
        click.echo(
            f"{name}: cut {item.cut.number} is cut {rewound.number} again: rewound at "
            f"{item.cut.published_at:%Y-%m-%d %H:%M:%S} UTC from cut {rewound.from_number} at "
            f"{rewound.from_tso} by {_shown(rewound.by)}"
        )
    watermark = item.watermark.watermark_ts
    at = "none yet"
    if watermark is not None:
        at = f"{watermark} ({to_datetime(watermark):%Y-%m-%d %H:%M:%S} UTC)"
    click.echo(f"{name}: watermark {at}; {item.backlog} records wait in the source")
    if source_error is not None:
        click.echo(f"{name}: the source could not be looked at: {_shown(source_error)}")
    for gap in item.gaps:
        click.echo(f"{name}: {_shown(str(gap.error))}")
    for accepted in item.accepted_gaps:
        click.echo(f"{name}: accepted gap: {_shown(accepted.sentence)}")
    quarantined = ", ".join(f"{count} at {stage}" for stage, count in item.quarantined.items())
    click.echo(
        f"{name}: {item.held_rows} rows held, quarantined {quarantined}, {len(item.conflicts)} "
        "schema conflicts"
    )
    if item.topics:
        topics = Table(title=_shown(f"{name}: topics"))
        numbers = {"partitions", "tables", "waiting records"}
        for title in ("topic", "state", "partitions", "tables", "waiting records", "watermark"):
            topics.add_column(title, justify="right" if title in numbers else "left")
        for topic in item.topics:
            topics.add_row(
                _shown(topic.topic),
                topic.state,
                str(topic.partitions),
                "?" if topic.tables is None else str(topic.tables),
                str(topic.backlog),
                "none"
                if topic.watermark_ts is None
                else f"{to_datetime(topic.watermark_ts):%Y-%m-%d %H:%M:%S} UTC",
            )
        _print(topics)
    if item.tables:
        worst = Table(
            title=_shown(f"{name}: tables, the worst first"),
            caption=f"{len(item.tables)} tables in all",
        )
        for title in ("database", "table", "rows", "lag", "state"):
            worst.add_column(title, justify="right" if title in {"rows", "lag"} else "left")
        for table in item.tables[:_WORST_TABLES]:
            state = [f"{table.held} held"] if table.held else []
            state += [f"{table.quarantined} quarantined"] if table.quarantined else []
            state += [f"failed: {table.failed.sentence}"] if table.failed is not None else []
            state = [f"incomplete: {', '.join(state)}"] if state else ["complete"]
            worst.add_row(
                _shown(table.database),
                _shown(table.table),
                str(table.rows) if table.has_mirror else "no mirror",
                f"{table.lag_ms / 1000:.1f} s",
                _shown("; ".join([*state, *table.marks])),
            )
        _print(worst)


@main.command()
@click.argument("changefeed")
@click.option("--json", "as_json", is_flag=True, help="One JSON array on standard output.")
@_plain_errors
def tables(changefeed: str, as_json: bool) -> None:
    """List the mirrors of CHANGEFEED at the newest cut."""
    from ticdc_assets.lake.reading import list_mirrors

    _, paths = _feed(load_settings(), changefeed)
    mirrors = list_mirrors(paths)
    damages = [item.damaged for item in mirrors if item.damaged is not None]
    if as_json:
        _print_json(
            json.dumps(
                [
                    {
                        "database": item.database,
                        "table": item.table,
                        "key": item.key,
                        "columns": [
                            {
                                "name": column.name,
                                "mysql_type": column.mysql_type,
                                "type": column.type,
                            }
                            for column in item.columns
                        ],
                        "rows": item.rows,
                        "applied_ts": item.applied_ts,
                        "moment": item.moment,
                        "lag_seconds": item.lag_seconds,
                        "path": str(item.path),
                        "version": item.version,
                        "held": item.held,
                        "quarantined": item.quarantined,
                        "incomplete": item.incomplete,
                        "marks": item.marks,
                        "failed": None if item.failed is None else item.failed.as_json(),
                        "damaged": None if item.damaged is None else str(item.damaged),
                        "lenient_casts": item.lenient_casts,
                    }
                    for item in mirrors
                ],
                ensure_ascii=False,
            )
        )
        _end_with(damages)
        return
    if not mirrors:
        click.echo(f"{changefeed}: no published cut yet")
        return
    from rich.table import Table

    cut = mirrors[0]
    at = f"{to_datetime(cut.applied_ts):%Y-%m-%d %H:%M:%S.%f} UTC"
    listing = Table(title=f"{changefeed} at {cut.moment} ({at})")
    for title in ("database", "table", "key", "rows", "lag", "state"):
        listing.add_column(title, justify="right" if title in {"rows", "lag"} else "left")
    for item in mirrors:
        state = [f"{item.held} held"] if item.held else []
        state += [f"{item.quarantined} quarantined"] if item.quarantined else []
        state += [f"failed: {item.failed.sentence}"] if item.failed is not None else []
        state += [f"damaged: {item.damaged.finding}"] if item.damaged is not None else []
        state = [f"incomplete: {', '.join(state)}"] if state else ["complete"]
        listing.add_row(
            *map(_shown, (item.database, item.table, ", ".join(item.key) or "none")),
            str(item.rows),
            f"{item.lag_seconds:.1f} s",
            _shown("; ".join([*state, *item.marks])),
        )
    _print(listing)
    _end_with(damages)


@main.command()
@click.argument("changefeed")
@click.argument("database")
@click.argument("table")
@click.option(
    "--format", "output", type=click.Choice(["table", "jsonl"]), default="table", show_default=True
)
@click.option("--limit", type=click.IntRange(min=0), help="Show at most so many rows.")
@click.option("--as-of", metavar="TSO|TIME", callback=_checked_moment, help=_AS_OF_HELP)
@click.option("--deleted", is_flag=True, help="Deleted rows too; needs the table's history.")
@click.option(
    "--history",
    "key",
    metavar="KEY",
    help="All versions of one row: `1`, or `1,x` (`id=1,name=x`) for a key of several columns.",
)
@_plain_errors
def show(
    changefeed: str,
    database: str,
    table: str,
    *,
    output: str,
    limit: int | None,
    as_of: str | None,
    deleted: bool,
    key: str | None,
) -> None:
    """Show the rows of one mirror, each value as the source prints it.

    Timestamps are in the changefeed's time zone. With --format jsonl one JSON object a row.
    """
    from ticdc_assets.lake.reading import iterate_rows

    feed, paths = _feed(load_settings(), changefeed)
    if key is not None:
        if deleted or as_of is not None or limit is not None:
            raise click.UsageError("--history shows all versions of a row; it goes alone")
        _show_versions(feed, paths, (database, table), key, output=output)
        return
    if deleted:
        _show_deleted(feed, paths, (database, table), as_of, limit=limit, output=output)
        return
    found = _table_at(feed, paths, database, table, as_of)
    if limit is None and output == "table":
        limit = 20
    rows = iterate_rows([found], feed.timezone, limit=limit)
    if output == "jsonl":
        for _, _, row in rows:
            _print_json(row)
        return
    columns = [column.name for column in found.schema.columns if column.name not in found.hidden]
    _print_rows(f"{database}.{table}", columns, [json.loads(row) for _, _, row in rows], found.rows)


def _show_versions(
    feed: Changefeed, paths: LakePaths, name: tuple[str, str], key: str, *, output: str
) -> None:
    """Show every version of one row, oldest first."""
    from ticdc_assets.lake.history_reading import row_versions
    from ticdc_assets.lake.reading import require_mirror
    from ticdc_assets.lake.session import LazySession

    mirror = require_mirror(paths, *name)
    versions = [item.described() for item in row_versions(LazySession(), paths, feed, mirror, key)]
    if output == "jsonl":
        for version in versions:
            _print_json(json.dumps(version, ensure_ascii=False))
        return
    if not versions:
        click.echo(f"no row of {name[0]}.{name[1]} has or had the key {key}", err=True)
        return
    own = ("op", "valid_from", "valid_from_time", "valid_to", "valid_to_time", "ended_by")
    # A column of the table may have the name of one of ours.
    titles = {f"({place})": place for place in own}
    rows = [
        {
            **{
                title: None if version[place] is None else str(version[place])
                for title, place in titles.items()
            },
            **version["row"],
        }
        for version in versions
    ]
    columns = [*titles, *versions[0]["row"]]
    _print_rows(f"{'.'.join(name)}: {key}", columns, rows, len(rows))


def _show_deleted(
    feed: Changefeed,
    paths: LakePaths,
    name: tuple[str, str],
    as_of: str | None,
    *,
    limit: int | None,
    output: str,
) -> None:
    """Show the newest version of every row that a table ever had."""
    from ticdc_assets.lake.cuts import tso_as_of
    from ticdc_assets.lake.history_reading import deleted_lines, require_history
    from ticdc_assets.lake.session import LazySession

    mirror = require_history(paths, *name)
    tso = None if as_of is None else tso_as_of(paths, as_of)
    if limit is None and output == "table":
        limit = 20
    lines = deleted_lines(LazySession(), paths, feed, mirror, as_of=tso, limit=limit)
    if output == "jsonl":
        for line in lines:
            _print_json(line)
        return
    rows = [json.loads(line) for line in lines]
    columns = list(rows[0]) if rows else []
    _print_rows(f"{'.'.join(name)}, deleted rows too", columns, rows, len(rows))


@main.command()
@click.argument("changefeed")
@click.argument("query")
@click.option(
    "--format",
    "output",
    type=click.Choice(["table", "jsonl", "csv"]),
    default="table",
    show_default=True,
)
@click.option("--as-of", metavar="TSO|TIME", callback=_checked_moment, help=_AS_OF_HELP)
@_plain_errors
def sql(changefeed: str, query: str, *, output: str, as_of: str | None) -> None:
    """Run one SQL QUERY over the mirrors of CHANGEFEED, as `database.table`, and print its rows.

    All tables are read at one cut. Where a history is kept, `table__history` has all versions of
    the rows and `table__with_deleted` the deleted ones too. Nothing is changed: what is no query is
    refused. Values are as Spark prints them, binary as 0x and hex.
    """
    import csv
    import io
    from itertools import chain

    from ticdc_assets.lake.cuts import tso_as_of
    from ticdc_assets.lake.session import get_spark
    from ticdc_assets.lake.views import query as opened
    from ticdc_assets.lake.views import text_rows

    settings = load_settings()
    _, paths = _feed(settings, changefeed)
    tso = None if as_of is None else tso_as_of(paths, as_of)
    with opened(get_spark(), settings, changefeed, query, as_of=tso) as frame:
        names, rows = list(frame.columns), text_rows(frame)
        match output:
            case "jsonl":
                for row in rows:
                    fields = ", ".join(
                        f"{json.dumps(name, ensure_ascii=False)}: "
                        f"{json.dumps(value, ensure_ascii=False)}"
                        for name, value in zip(names, row, strict=True)
                    )
                    _print_json(f"{{{fields}}}")
            case "csv":
                line = io.StringIO()
                for row in chain([names], rows):
                    csv.writer(line, lineterminator="\n").writerow(row)
                    click.echo(line.getvalue(), nl=False)
                    line.seek(0)
                    line.truncate()
            case _:
                titled = [f"{number} {name}" for number, name in enumerate(names, 1)]
                titles = names if len(set(names)) == len(names) else titled
                listed = [dict(zip(titles, row, strict=True)) for row in rows]
                _print_rows(changefeed, titles, listed, len(listed))


def _table_at(
    feed: Changefeed, paths: LakePaths, database: str, table: str, as_of: str | None
) -> "TableRows":
    from ticdc_assets.lake.as_of import AsOf
    from ticdc_assets.lake.cuts import tso_as_of
    from ticdc_assets.lake.reading import published_table, require_mirror
    from ticdc_assets.lake.session import LazySession

    if as_of is None:
        return published_table(LazySession(), paths, require_mirror(paths, database, table))
    found = AsOf(LazySession(), paths, feed, tso_as_of(paths, as_of)).table(database, table)
    for warning in found.warnings:
        _note(f"{database}.{table}: {warning}")
    return found


@main.command()
@click.argument("changefeed")
@click.option("--as-of", metavar="TSO|TIME", callback=_checked_moment, help=_AS_OF_HELP)
@_plain_errors
def dump(changefeed: str, as_of: str | None) -> None:
    """Write every row of every mirror as {"database", "table", "row"} lines in canonical text."""
    from ticdc_assets.lake.as_of import AsOf
    from ticdc_assets.lake.cuts import require_cut, tso_as_of
    from ticdc_assets.lake.damage import damage_told
    from ticdc_assets.lake.reading import iterate_rows, published_table
    from ticdc_assets.lake.session import LazySession

    feed, paths = _feed(load_settings(), changefeed)
    cut = require_cut(paths)
    tables: Iterable[TableRows]
    if as_of is None:
        tables = (published_table(LazySession(), paths, mirror) for mirror in cut.mirrors)
    else:
        moment = AsOf(LazySession(), paths, feed, tso_as_of(paths, as_of))
        tables = map(moment.rows, moment.plan.mirrors)
    damages: list[LakeDamagedError] = []
    for item in tables:
        try:
            with damage_told(paths):
                for database, table, row in iterate_rows([item], feed.timezone):
                    name = json.dumps({"database": database, "table": table}, ensure_ascii=False)
                    _print_json(f'{name[:-1]}, "row": {row}}}')
        except LakeDamagedError as error:
            # The tables that are whole are written all the same.
            damages.append(error)
    _end_with(damages)


@main.command()
@click.argument("changefeed")
@click.option("--json", "as_json", is_flag=True, help="One JSON array on standard output.")
@_plain_errors
def quarantine(changefeed: str, as_json: bool) -> None:
    """List what is quarantined and not re-driven yet: where, why, expected and got."""
    from ticdc_assets.lake.quarantine import read_quarantine

    feed, paths = _feed(load_settings(), changefeed)
    rows = read_quarantine(paths, tables=feed.tables)
    names = ("topic", "partition", "offset", "index", "reason", "position", "expected", "got")
    if as_json:
        listed = [
            {name: row[name] for name in (*names, "stage", "database", "table", "commit_ts")}
            for row in rows
        ]
        _print_json(json.dumps(listed, ensure_ascii=False))
        return
    if not rows:
        click.echo(f"{changefeed}: nothing is quarantined")
        return
    from rich.table import Table

    listing = Table(title=f"{changefeed}: {len(rows)} quarantined")
    for title in names:
        listing.add_column(title, overflow="fold")
    for row in rows:
        listing.add_row(*(_shown(str(row[name])) for name in names))
    _print(listing)


@main.command()
@click.argument("changefeeds", metavar="[CHANGEFEED]...", nargs=-1)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default="report.html",
    show_default=True,
    help="Where to write the page; one that is there is replaced.",
)
@click.option(
    "--days",
    type=click.FloatRange(min=0, min_open=True, max=3650),
    default=7,
    show_default=True,
    help="How far back the plots go.",
)
@_plain_errors
def report(changefeeds: tuple[str, ...], output: Path, days: float) -> None:
    """Write one HTML page about the changefeeds to look at in a browser: all, or those named.

    Lag, throughput and what waits over time, tables, DDL, schemas, quarantine, partitions and cuts.
    The page has everything in it and asks nothing of any network. Neither Spark nor Kafka is needed
    to make it.
    """
    settings = load_settings()
    names = list(dict.fromkeys(changefeeds)) or [feed.name for feed in settings.changefeeds]
    feeds = [_feed(settings, name) for name in names]
    if not feeds:
        raise ConfigError(f"{settings.path} has no changefeed to report on")
    from ticdc_assets.lake.damage import damage_told
    from ticdc_assets.lake.overview import read_overview
    from ticdc_assets.report.headlines import headlines, verdict
    from ticdc_assets.report.page import page, write_page

    overviews: list[FeedOverview] = []
    damages: list[LakeDamagedError] = []
    for feed, paths in feeds:
        try:
            with damage_told(paths):
                overviews.append(read_overview(feed, paths, days=days))
        except LakeDamagedError as error:
            damages.append(error)
    if not overviews:
        _end_with(damages)
    write_page(output, page(overviews))
    for overview in overviews:
        found = headlines(overview)
        told = ", ".join(f"{item.label.lower()} {item.value}" for item in found)
        click.echo(f"{overview.changefeed.name}: {verdict(found).word}: {told}")
    click.echo(f"written to {output.absolute()}")
    _end_with(damages)


@main.command()
@click.argument("changefeed")
@click.argument("database", required=False)
@click.argument("table", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@_plain_errors
def verify(changefeed: str, database: str | None, table: str | None, *, as_json: bool) -> None:
    """Rebuild the mirrors of CHANGEFEED from the landed records, and compare.

    All mirrors of the newest cut, or that of one table. They are rebuilt in a side place, which is
    removed at the end; the changefeed's tables stay as they are, and syncs may go on meanwhile.
    Differing rows are shown with their values. The exit code is 1 if anything differs.
    """
    from ticdc_assets.lake.cuts import require_cut
    from ticdc_assets.lake.session import get_spark
    from ticdc_assets.lake.verifying import verify as verified

    if database is not None and table is None:
        raise click.UsageError("give a table with its database, or neither")
    feed, paths = _feed(load_settings(), changefeed)
    require_cut(paths)  # before Spark is started
    wanted = None if database is None or table is None else (database, table)
    found = verified(get_spark(), paths, feed, table=wanted)
    if as_json:
        _print_json(json.dumps(found.as_json(), ensure_ascii=False))
    else:
        _print_verification(found)
    if not found.equal:
        raise click.ClickException(found.summary)


def _print_verification(found: "Verification") -> None:
    from rich.table import Table

    listing = Table(title=f"{found.changefeed}: cut {found.cut} at {found.moment}")
    for title in ("database", "table", "rows", "rebuilt", "content hash", "result"):
        listing.add_column(title, justify="right" if title in {"rows", "rebuilt"} else "left")
    for item in found.mirrors:
        sides = (item.mirror, item.rebuilt)
        hashes = dict.fromkeys(side.content_hash for side in sides if side is not None)
        listing.add_row(
            *map(_shown, (item.database, item.table)),
            *("-" if side is None else str(side.rows) for side in sides),
            ", rebuilt ".join(hashes),
            _shown("; ".join(item.findings())),
        )
    _print(listing)
    for item in found.mirrors:
        if item.examples:
            _print_differences(item)
    for text in (*found.differences, *found.notes()):
        click.echo(f"{found.changefeed}: {_shown(text)}")
    if found.equal:
        click.echo(f"{found.changefeed}: {found.summary}")


def _print_differences(mirror: "VerifiedMirror") -> None:
    """Print rows that differ, with both values of each column that does."""
    from rich.table import Table

    total = mirror.counts.total
    shown = f"{len(mirror.examples)} of {total} rows that differ"
    listing = Table(title=_shown(f"{mirror.database}.{mirror.table}: {shown}"))
    for title in ("row", "key", "column", "mirror", "rebuilt"):
        listing.add_column(title, overflow="fold")
    for row in mirror.examples:
        key = ", ".join(
            f"{name}={'NULL' if value is None else value}" for name, value in row.key.items()
        )
        copies = "" if row.copies == 1 else f", {row.copies} times"
        first = (_shown(f"{row.finding}{copies}"), _shown(key))
        if not row.columns:
            listing.add_row(*first, "", "", "")
        for item in row.columns:
            listing.add_row(*first, _shown(item.name), _cell(item.mirror), _cell(item.rebuilt))
            first = ("", "")
    _print(listing)


# JSON leaves these as they are, and many readers end a line at them.
_LINE_ENDS = str.maketrans({"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def _print_json(text: str) -> None:
    """Print JSON as one line for every reader; the characters can only be inside of texts."""
    click.echo(text.translate(_LINE_ENDS))


def _print_rows(
    title: str, columns: Sequence[str], rows: Sequence[Mapping[str, str | None]], total: int
) -> None:
    """Print rows as a table, or one below the other where the columns do not fit side by side."""
    from rich.rule import Rule
    from rich.table import Table

    caption = f"{total} rows in all"
    console = _console()
    listing = Table(title=_shown(title), caption=caption)
    width = 1
    for name in columns:
        cells = [_shown(name), *(_cell(row[name]) for row in rows)]
        # Narrower than this, a column of long values is a stack of crumbs.
        least = min(_LEAST_WIDTH, max(cell.cell_len for cell in cells))
        listing.add_column(cells[0], overflow="fold", min_width=least)
        width += least + 3
    for row in rows:
        listing.add_row(*(_cell(row[name]) for name in columns))
    if width <= console.width:
        console.print(listing)
        return
    console.print(_shown(title), style="table.title")
    for number, row in enumerate(rows, 1):
        record = Table.grid(padding=(0, 2))
        record.add_column(justify="right", overflow="fold", style="bold", max_width=40)
        record.add_column(overflow="fold")
        for name in columns:
            record.add_row(_shown(name), _cell(row[name]))
        console.print(Rule(f"row {number}", align="left", characters="-"))
        console.print(record)
    console.print(caption, style="table.caption")


_LEAST_WIDTH = 12


def _cell(value: str | None) -> "Text":
    from rich.text import Text

    return Text("NULL", style="dim") if value is None else _shown(value)


def _shown(text: str) -> "Text":
    """Return text from messages safe for a terminal: no markup in it, control characters shown."""
    from rich.text import Text

    return Text(visible(text))


def _console() -> "Console":
    from rich.console import Console

    # Neither `:smile:` nor numbers in values are for rich to make something of.
    return Console(width=None if sys.stdout.isatty() else 160, emoji=False, highlight=False)


def _print(listing: "Table") -> None:
    _console().print(listing)


# Captures ---------------------------------------------------------------------------------------


def _kafka_source(feed: Changefeed) -> KafkaSource:
    if not isinstance(feed.source, KafkaSource):
        raise ConfigError(
            f"changefeed {feed.name!r} has a capture as its source; this command needs Kafka"
        )
    return feed.source


@main.command()
@click.argument("changefeed")
@click.argument("capture", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--limit", type=click.IntRange(min=1), help="Record at most so many records.")
@_plain_errors
def record(changefeed: str, capture: Path, limit: int | None) -> None:
    """Record the topics of CHANGEFEED into the file CAPTURE (gzip if its name ends in .gz).

    A capture that exists is continued.
    """
    from ticdc_assets.transfer import record_topic

    feed, _ = _feed(load_settings(), changefeed)
    done = record_topic(_kafka_source(feed), capture, limit=limit, progress=_note_count)
    more = "" if done.complete else "; there are more"
    click.echo(f"recorded {done.records} records of {changefeed} into {capture}{more}")


@main.command()
@click.argument("capture", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("changefeed")
@click.option("--limit", type=click.IntRange(min=1), help="Play at most so many records.")
@_plain_errors
def play(capture: Path, changefeed: str, limit: int | None) -> None:
    """Play the file CAPTURE into the Kafka cluster of CHANGEFEED.

    Topics, partitions, keys, timestamps and order are kept; a topic that is missing is made.
    """
    from ticdc_assets.transfer import play_capture

    feed, _ = _feed(load_settings(), changefeed)
    done = play_capture(
        CaptureSource(path=capture.resolve()),
        _kafka_source(feed),
        limit=limit,
        progress=_note_count,
    )
    topics = ", ".join(f"{topic} ({count} partitions)" for topic, count in done.partitions.items())
    more = "" if done.complete else "; there are more"
    click.echo(f"played {done.records} records of {capture} into {topics or 'nothing'}{more}")


@main.command()
@click.argument("capture", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--format", "wire_format", type=click.Choice(WIRE_FORMATS), required=True, help="Its format."
)
@click.option(
    "--compression",
    type=click.Choice(["none", "lz4", "snappy"]),
    default="none",
    show_default=True,
    help="How the values were compressed; messages carry no mark of it.",
)
@click.option("--claim-check", metavar="URI", help="Where rows too large for a message were put.")
@click.option("--raw-value", is_flag=True, help="Claim checks hold the bare value.")
@click.option("--timezone", help="Show TIMESTAMPs in this zone; as they were sent if not set.")
@_plain_errors
def decode(
    capture: Path,
    *,
    wire_format: str,
    compression: str,
    claim_check: str | None,
    raw_value: bool,
    timezone: str | None,
) -> None:
    """Print the events in the file CAPTURE as JSON lines, at least one for every offset.

    Values are canonical text as far as the schemas seen up to there tell; a row whose schema was
    not seen yet has "held": true and its values as sent. What is no message is a line of type
    "error" with the reason and the position.
    """
    from ticdc_assets.capture import read_capture
    from ticdc_assets.claim_check import ClaimCheckStore
    from ticdc_assets.config import ClaimCheck
    from ticdc_assets.event_lines import CaptureFormat, event_lines
    from ticdc_assets.values.zones import changefeed_zone
    from ticdc_assets.wire import WireFormat
    from ticdc_assets.wire.compression import Compression, supports

    if timezone is not None:
        changefeed_zone(timezone)
    how = (WireFormat(wire_format), Compression(compression))
    if not supports(*how):
        raise click.UsageError(f"TiCDC does not compress {wire_format}")
    store = None
    if claim_check is not None:
        location = claim_check if "://" in claim_check else str(Path(claim_check).absolute())
        store = ClaimCheckStore(ClaimCheck(location=location, raw_value=raw_value), *how)
    elif raw_value:
        raise click.UsageError("--raw-value says what is in --claim-check, which is not given")
    capture_format = CaptureFormat(
        wire_format=how[0], compression=how[1], timezone=timezone, store=store
    )
    with read_capture(capture) as records:
        for line in event_lines(records, capture_format):
            _print_json(json.dumps(line, ensure_ascii=False))
        if records.incomplete_tail:
            _note(f"{capture} ends in the middle of a line, which is left out")


# The machine ------------------------------------------------------------------------------------


@main.command()
@_plain_errors
def doctor() -> None:
    """Check JDK, Python, jars, configuration, lake, brokers and topics, and say what to type.

    A line that begins with `warn` is advice: syncs run all the same. With a `FAIL` the exit code
    is 1.
    """
    from ticdc_assets.doctor import run_checks

    checks = run_checks(progress=_note)
    for check in checks:
        level = "ok  " if check.ok else "FAIL" if check.vital else "warn"
        click.echo(f"{level}  {check.sentence()}")
    failed = sum(not check.ok and check.vital for check in checks)
    if failed:
        raise click.ClickException(f"{failed} of {len(checks)} checks failed")
    warned = sum(not check.ok for check in checks)
    passed = f"{len(checks) - warned} of {len(checks)} checks passed, {warned} to look at"
    click.echo(passed if warned else f"all {len(checks)} checks passed")


@main.command()
@click.option("--directory", type=click.Path(file_okay=False, path_type=Path), default=".demo")
@click.option(
    "--format",
    "wire_format",
    type=click.Choice(WIRE_FORMATS),
    default=WIRE_FORMATS[0],
    show_default=True,
    help="How the changefeed's messages are written.",
)
@click.option("--transactions", type=click.IntRange(min=1), default=600, show_default=True)
@click.option("--seconds", type=click.IntRange(min=1), default=25, show_default=True)
@_plain_errors
def demo(directory: Path, wire_format: str, transactions: int, seconds: int) -> None:
    """Run everything once: a broker, a shop's changefeed, the assets, and compare with the truth.

    Everything is kept in one folder, which is emptied first.
    """
    from ticdc_assets.demo import run_demo
    from ticdc_assets.wire import WireFormat

    same = run_demo(
        directory.resolve(),
        wire_format=WireFormat(wire_format),
        transactions=transactions,
        seconds=seconds,
        note=_note,
    )
    if not same:
        raise click.ClickException("a mirror differs from the simulator's truth")


@main.command()
@click.option("--port", type=click.IntRange(1, 65535), default=3000, show_default=True)
@click.option(
    "--demo",
    "demo_directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Open the instance of the demo in this folder, with its broker.",
)
@_plain_errors
def ui(port: int, demo_directory: Path | None) -> None:
    """Open the Dagster UI on 127.0.0.1, with its daemon, until it is interrupted."""
    from ticdc_assets.defs.run import serve_ui

    if demo_directory is None:
        serve_ui(load_settings(), port)
        return
    from ticdc_assets.demo import demo_broker, use_demo

    settings = use_demo(demo_directory.resolve())
    with demo_broker(demo_directory.resolve(), note=_note):
        serve_ui(settings, port)


if __name__ == "__main__":
    main()
