"""The command `verify`: compare mirrors with a rebuild from the landed records."""

from typing import TYPE_CHECKING

import click

from ticdc_assets.base.names import joined_name
from ticdc_assets.cli.base import lake_of, main
from ticdc_assets.cli.completing import changefeed_argument, table_arguments
from ticdc_assets.cli.printing import (
    print_json,
    print_row_differences,
    print_table,
    shown_text,
)
from ticdc_assets.config import load_settings

if TYPE_CHECKING:
    from ticdc_assets.repair.verifying import Verification


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
