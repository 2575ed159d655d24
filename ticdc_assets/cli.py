"""The command line `ticdc-assets`.

In: words and the environment (`TICDC_CHANGEFEEDS`, `TICDC_LAKE`, `DAGSTER_HOME`). Out: text for
people on standard output, or JSON and nothing else there where a command says so; progress and
errors go to standard error. A command that changes tables does so through the Dagster job or under
the same writer's lock, so running it again is as safe as running the job again.

Exit codes: 0 done, 1 an error that is told in one sentence, 2 wrong usage.
"""

import functools
import json
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from ticdc_assets.errors import ConfigError, TicdcError
from ticdc_assets.lake.paths import LakePaths
from ticdc_assets.tso import cut_of, to_datetime

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ticdc_assets.lake.as_of import TableRows
    from ticdc_assets.lake.verifying import Verification, VerifiedMirror

# Spark, Delta and Dagster are imported by the commands that need them: `--help` and errors in the
# configuration should not cost seconds.

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _plain_errors(command: _Command) -> _Command:
    """Turn the package's errors into one sentence and exit code 1."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except TicdcError as error:
            raise click.ClickException(str(error)) from error
        except OSError as error:
            # A folder that cannot be written to, a full disk. Without a file it is something else.
            if error.filename is None:
                raise
            raise click.ClickException(f"{error.filename}: {error.strerror}") from error

    return run  # pyright: ignore[reportReturnType]  # wraps keeps the signature


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ticdc-assets")
def main() -> None:
    """TiCDC changefeeds in Kafka, as consistent Delta Lake mirrors.

    Changefeeds are configured in the file named by TICDC_CHANGEFEEDS (default changefeeds.yaml),
    tables are below the folder named by TICDC_LAKE (default .lake).
    """


def _feed(settings: Settings, name: str) -> tuple[Changefeed, LakePaths]:
    return settings.changefeed(name), LakePaths(root=settings.lake, changefeed=name)


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
@_plain_errors
def sync(changefeed: str | None, until: str | None, max_records: int | None) -> None:
    """Land, decode, register and apply what is there, once, as a run of the Dagster job.

    Without CHANGEFEED all of them, one after the other. The mirrors are cut at exactly
    min(TSO, global watermark). Where they are beyond TSO already, nothing is changed. A changefeed
    without commit ts (Canal-JSON without the TiDB extension) is cut at all that landed, or a TIME.
    """
    settings = load_settings()
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


def _sync_one(settings: Settings, name: str, until: str | None, max_records: int | None) -> None:
    from ticdc_assets.lake.cuts import newest_cut

    _, paths = _feed(settings, name)
    cut = newest_cut(paths)
    if until is not None:
        # A wrong word is told before anything is landed.
        wanted = cut_of(until, es_only=cut is not None and cut.es_only)
        if cut is not None and cut.tso > wanted:
            click.echo(
                f"{name}: the mirrors are at {cut.moment}, beyond {until}; nothing was changed"
            )
            return
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
    incomplete = [f"{item.database}.{item.table}" for item in cut.mirrors if item.incomplete]
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


# Looking ----------------------------------------------------------------------------------------


@main.command()
@click.argument("changefeed")
@click.option("--json", "as_json", is_flag=True, help="One JSON array on standard output.")
@_plain_errors
def tables(changefeed: str, as_json: bool) -> None:
    """List the mirrors of CHANGEFEED at the newest cut."""
    from ticdc_assets.lake.reading import list_mirrors

    _, paths = _feed(load_settings(), changefeed)
    mirrors = list_mirrors(paths)
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
                    }
                    for item in mirrors
                ],
                ensure_ascii=False,
            )
        )
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
        state = [f"incomplete: {', '.join(state)}"] if state else ["complete"]
        listing.add_row(
            *map(_shown, (item.database, item.table, ", ".join(item.key) or "none")),
            str(item.rows),
            f"{item.lag_seconds:.1f} s",
            _shown("; ".join([*state, *item.marks])),
        )
    _print(listing)


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
    from ticdc_assets.lake.session import get_spark

    mirror = require_mirror(paths, *name)
    versions = [item.described() for item in row_versions(get_spark(), paths, feed, mirror, key)]
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
    from ticdc_assets.lake.cuts import require_cut
    from ticdc_assets.lake.history_reading import deleted_lines, require_history
    from ticdc_assets.lake.session import get_spark

    mirror = require_history(paths, *name)
    tso = None if as_of is None else cut_of(as_of, es_only=require_cut(paths).es_only)
    if limit is None and output == "table":
        limit = 20
    lines = deleted_lines(get_spark(), paths, feed, mirror, as_of=tso, limit=limit)
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

    from ticdc_assets.lake.cuts import require_cut
    from ticdc_assets.lake.session import get_spark
    from ticdc_assets.lake.views import query as opened
    from ticdc_assets.lake.views import text_rows

    settings = load_settings()
    _, paths = _feed(settings, changefeed)
    tso = None if as_of is None else cut_of(as_of, es_only=require_cut(paths).es_only)
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
    from ticdc_assets.lake.cuts import require_cut
    from ticdc_assets.lake.reading import published_table, require_mirror
    from ticdc_assets.lake.session import get_spark

    if as_of is None:
        return published_table(get_spark(), paths, require_mirror(paths, database, table))
    tso = cut_of(as_of, es_only=require_cut(paths).es_only)
    found = AsOf(get_spark(), paths, feed, tso).table(database, table)
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
    from ticdc_assets.lake.cuts import require_cut
    from ticdc_assets.lake.reading import iterate_rows, published_table
    from ticdc_assets.lake.session import get_spark

    feed, paths = _feed(load_settings(), changefeed)
    cut = require_cut(paths)
    tables: Iterable[TableRows]
    if as_of is None:
        tables = (published_table(get_spark(), paths, mirror) for mirror in cut.mirrors)
    else:
        moment = AsOf(get_spark(), paths, feed, cut_of(as_of, es_only=cut.es_only))
        tables = map(moment.rows, moment.plan.mirrors)
    for database, table, row in iterate_rows(tables, feed.timezone):
        name = json.dumps({"database": database, "table": table}, ensure_ascii=False)
        _print_json(f'{name[:-1]}, "row": {row}}}')


@main.command()
@click.argument("changefeed")
@click.option("--json", "as_json", is_flag=True, help="One JSON array on standard output.")
@_plain_errors
def quarantine(changefeed: str, as_json: bool) -> None:
    """List what is quarantined and not re-driven yet: where, why, expected and got."""
    from ticdc_assets.lake.quarantine import read_quarantine

    _, paths = _feed(load_settings(), changefeed)
    rows = read_quarantine(paths)
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

    return Text("".join(_visible(char) for char in text))


# Formatting characters that letters and emoji are joined by.
_JOINERS = frozenset("\u200c\u200d")
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def _visible(char: str) -> str:
    """Return a character, or its escape if a terminal would obey it or show nothing."""
    if char in _JOINERS or unicodedata.category(char) not in _HIDDEN:
        return char
    return char.encode("unicode_escape").decode("ascii")


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
    """Check JDK, Python, jars, configuration, brokers and lake, and say what to do."""
    from ticdc_assets.preflight import run_checks

    checks = run_checks(progress=_note)
    for check in checks:
        click.echo(f"{'ok  ' if check.ok else 'FAIL'}  {check.sentence()}")
    failed = sum(not check.ok for check in checks)
    if failed:
        raise click.ClickException(f"{failed} of {len(checks)} checks failed")
    click.echo(f"all {len(checks)} checks passed")


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
