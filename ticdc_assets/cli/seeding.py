"""Commands that seed from an export (`seed`), and compare mirrors: `diff` and `verify`."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ticdc_assets.base.names import counted, joined_name, table_named
from ticdc_assets.cli.base import lake_of, main
from ticdc_assets.cli.completing import changefeed_argument, table_arguments
from ticdc_assets.cli.printing import (
    print_json,
    print_row_differences,
    print_table,
    shown_text,
)
from ticdc_assets.config import load_settings
from ticdc_assets.model.tso import MAX_TSO, OLDEST_TSO, time_with_tso
from ticdc_assets.observe.wording import listed, visible
from ticdc_assets.source.exports.dialect import DUMPLING_OPTION, OUTPUT_DIALECTS, dialect_of

if TYPE_CHECKING:
    from ticdc_assets.repair.diffing import SourceDifference
    from ticdc_assets.repair.verifying import Verification


_Command = TypeVar("_Command", bound=Callable[..., None])


def _checked_tso(
    _context: click.Context, _parameter: click.Parameter, tso: int | None
) -> int | None:
    if tso is not None and not OLDEST_TSO <= tso <= MAX_TSO:
        raise click.BadParameter(f"expected a TSO, of the year 2000 or later, got {tso}")
    return tso


_OPTIONS = (
    click.option(
        "--table",
        "tables",
        metavar="DATABASE.TABLE",
        multiple=True,
        help="Only this table; may be given more than once.",
    ),
    click.option(
        "--tso",
        type=int,
        callback=_checked_tso,
        help="TSO of the export, if the export does not contain it.",
    ),
    click.option(
        "--timezone",
        help="Time zone of the session that exported it, for TIMESTAMPs; by default the "
        "changefeed's. Dumpling: --params time_zone=...",
    ),
    click.option("--csv-separator", help="Text between fields of CSV files; default: a comma."),
    click.option("--csv-delimiter", help="Quotes around text in CSV files; default: double quote."),
    click.option("--csv-null-value", help="NULL in CSV files; default: \\N."),
    click.option("--csv-line-terminator", help="End of a row of CSV files; default: \\r\\n."),
    click.option("--no-header", is_flag=True, help="CSV files do not begin with column names."),
    click.option(
        "--escape-backslash/--no-escape-backslash",
        default=True,
        help="Whether backslashes are escapes in the files; default: yes.",
    ),
    click.option(
        "--csv-output-dialect",
        type=click.Choice([name for name in OUTPUT_DIALECTS if name]),
        help="The warehouse that CSV files were written for; it decides how bytes are written.",
    ),
)


def _of_export(command: _Command) -> _Command:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _configured(
    folder: str,
    tables: Sequence[str],
    tso: int | None,
    timezone: str | None,
    csv: Mapping[str, str | bool | None],
) -> dict[str, Any]:
    options = {
        name.replace("_", "-"): str(value).lower() if isinstance(value, bool) else value
        for name, value in csv.items()
        if value is not None and value is not False
    }
    if not csv["escape_backslash"]:
        options["escape-backslash"] = "false"
    return {
        "folder": folder,
        "tables": list(tables),
        "csv": options,
        **({} if tso is None else {"tso": tso}),
        **({} if timezone is None else {"timezone": timezone}),
    }


@main.command()
@changefeed_argument()
@click.argument("folder")
@_of_export
def seed(
    changefeed: str,
    folder: str,
    tables: tuple[str, ...],
    tso: int | None,
    timezone: str | None,
    **csv: str | bool | None,
) -> None:
    """Start tables of CHANGEFEED with the rows of an export in FOLDER, written by Dumpling.

    The rows are at the TSO of the export. Changes at or below it are not applied to these tables
    again; changes above it are, in order. Run it before the first sync, between syncs, or again for
    one table. Text that is not a row goes to quarantine with file and line.

    A stored generated column that the files do not have is worked out from its expression. Where
    that is not possible it is unknown, and the mirror says so; export with Dumpling's
    --include-generated-columns stored. The exit code is 1 if a table was not seeded, or if no row
    of its files could be read.

    FOLDER is a folder, or a URI that Arrow's file systems reach. The CSV options are Dumpling's:
    give the same values as to Dumpling.
    """
    from ticdc_assets.source.exports.folder import read_export

    settings = load_settings()
    settings.changefeed(changefeed)
    read_export(folder, tso=tso)  # a wrong one is an error before there is a run
    from ticdc_assets.orchestration.run import run_seed

    for name in tables:
        table_named(name)
    report = run_seed(settings, changefeed, _configured(folder, tables, tso, timezone, csv))
    seeding = report.seeding
    for item in seeding.tables:
        name = visible(joined_name(item.database, item.table))
        state = counted(item.rows, "row") if item.is_new else "already seeded, nothing changed"
        refused = f", {item.quarantined} in quarantine" if item.quarantined else ""
        click.echo(f"{changefeed}: {name}: {state}{refused}")
        if item.unknown:
            click.echo(
                f"{changefeed}: {name}: not known: {', '.join(map(visible, item.unknown))}: the "
                f"files have no value, and none can be worked out; export with Dumpling's "
                f"{DUMPLING_OPTION}"
            )
    for (database, table), reason in sorted(seeding.refused.items()):
        name = visible(joined_name(database, table))
        click.echo(f"{changefeed}: {name}: not seeded: {reason}")
    for kind, count in sorted(seeding.skipped.items()):
        click.echo(f"{changefeed}: skipped {counted(count, 'file')}: {kind}")
    if seeding.unterminated:
        findings = [
            f"{visible(path)} does not end with a line terminator" for path in seeding.unterminated
        ]
        click.echo(
            f"{changefeed}: {listed(findings)}: "
            "if a file was cut there, its last value is too short"
        )
    if seeding.excluded:
        click.echo(
            f"{changefeed}: `tables` leaves out {counted(seeding.excluded, 'table')} of the export"
        )
    click.echo(
        f"{changefeed}: {counted(seeding.rows, 'row')} of {counted(len(seeding.tables), 'table')} "
        f"seeded at {time_with_tso(seeding.tso)}"
    )
    click.echo(f"{changefeed}: {report.applying.outcome}: {report.applying.reason}")
    unread = [item for item in seeding.tables if item.has_none]
    for item in unread:
        name = visible(joined_name(item.database, item.table))
        click.echo(
            f"{changefeed}: {name}: no row could be read: {item.fault}; "
            "give the CSV options as they were given to Dumpling (ticdc-assets seed --help), or "
            f"see: ticdc-assets quarantine {changefeed}"
        )
    failed = len(seeding.refused) + len(unread)
    if failed:
        count = counted(failed, "table was", "tables were")
        raise click.ClickException(f"{count} not seeded")


@main.command()
@changefeed_argument()
@click.argument("folder")
@_of_export
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def diff(
    changefeed: str,
    folder: str,
    tables: tuple[str, ...],
    tso: int | None,
    timezone: str | None,
    *,
    as_json: bool,
    **csv: str | bool | None,
) -> None:
    """Compare the mirrors of CHANGEFEED with an export in FOLDER, at the TSO of the export.

    It prints that they are equal, or the keys and columns that differ, with both values, and the
    columns that it could not compare because one side does not know them. It does
    not change the changefeed's tables, and syncs may run meanwhile. The exit code is 1 if anything
    differs. The options are those of `seed`.
    """
    from ticdc_assets.log.cuts import require_cut
    from ticdc_assets.repair.diffing import diff as compared

    lake = lake_of(load_settings(), changefeed)
    require_cut(lake.paths)
    config = _configured(folder, tables, tso, timezone, csv)
    difference = compared(
        lake,
        folder,
        tables=[table_named(name) for name in tables],
        tso=tso,
        dialect=dialect_of(config["csv"]),
        timezone=timezone,
    )
    if as_json:
        print_json(difference.as_json())
    else:
        _print_difference(difference)
    if not difference.equal:
        raise click.ClickException(difference.summary)


def _print_difference(difference: "SourceDifference") -> None:
    print_table(
        f"{difference.changefeed}: mirrors and the export at {time_with_tso(difference.tso)}",
        ("database", "table", "rows", "exported", "result"),
        (
            (
                *(item.database, item.table),
                *("-" if count is None else str(count) for count in (item.rows, item.exported)),
                "; ".join([item.sentence, *item.warnings]),
            )
            for item in difference.tables
        ),
    )
    for item in difference.tables:
        name = visible(joined_name(item.database, item.table))
        print_row_differences(name, item.counts.total, item.examples, other="exported")
    if difference.excluded:
        left_out = counted(difference.excluded, "table")
        click.echo(f"{difference.changefeed}: `tables` leaves out {left_out} of the export")
    if difference.equal:
        click.echo(f"{difference.changefeed}: {difference.summary}")


@main.command()
@changefeed_argument()
@table_arguments(required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def verify(changefeed: str, database: str | None, table: str | None, *, as_json: bool) -> None:
    """Rebuild the mirrors of CHANGEFEED from the landed records, and compare.

    It rebuilds all mirrors of the newest cut, or the mirror of one table, in a separate folder,
    which is removed at the end. It does not change the changefeed's tables, and syncs may run
    meanwhile. Differing rows are shown with their values. The exit code is 1 if anything differs.
    """
    from ticdc_assets.log.cuts import require_cut
    from ticdc_assets.repair.verifying import verify as verified

    if database is not None and table is None:
        raise click.UsageError("give a table with its database, or neither")
    lake = lake_of(load_settings(), changefeed)
    require_cut(lake.paths)
    wanted = None if database is None or table is None else (database, table)
    verification = verified(lake, table=wanted)
    if as_json:
        print_json(verification.as_json())
    else:
        _print_verification(verification)
    if not verification.equal:
        raise click.ClickException(verification.summary)


def _print_verification(verification: "Verification") -> None:
    rows: list[tuple[str, ...]] = []
    for item in verification.mirrors:
        sides = (item.mirror, item.rebuilt)
        hashes = dict.fromkeys(side.content_hash for side in sides if side is not None)
        counts = ("-" if side is None else str(side.rows) for side in sides)
        findings = "; ".join(item.findings())
        rows.append((item.database, item.table, *counts, ", rebuilt ".join(hashes), findings))
    print_table(
        f"{verification.changefeed}: cut {verification.cut} at {verification.moment}",
        ("database", "table", "rows", "rebuilt", "content hash", "result"),
        rows,
    )
    for item in verification.mirrors:
        name = joined_name(item.database, item.table)
        print_row_differences(name, item.counts.total, item.examples, other="rebuilt")
        print_row_differences(
            f"history of {name}",
            item.history_counts.total,
            item.history_examples,
            other="rebuilt",
        )
    for text in (*verification.differences, *verification.notes()):
        click.echo(f"{verification.changefeed}: {shown_text(text)}")
    if verification.equal:
        click.echo(f"{verification.changefeed}: {verification.summary}")
