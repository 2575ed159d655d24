"""Commands about exports of the upstream: `seed`."""

import click

from ticdc_assets.cli.base import main, plain_errors
from ticdc_assets.config import load_settings
from ticdc_assets.exports.dialect import OUTPUT_DIALECTS


@main.command()
@click.argument("changefeed")
@click.argument("folder")
@click.option(
    "--table",
    "tables",
    metavar="DATABASE.TABLE",
    multiple=True,
    help="Seed this table only; may be given more than once.",
)
@click.option(
    "--tso", type=click.IntRange(min=1), help="TSO of the export, where it does not say its own."
)
@click.option(
    "--timezone",
    help="Time zone of the session that exported it, for TIMESTAMPs; the changefeed's if not "
    "given. Dumpling: --params time_zone=...",
)
@click.option("--csv-separator", help="What stands between fields of CSV files; a comma.")
@click.option("--csv-delimiter", help="What stands around text in CSV files; a double quote.")
@click.option("--csv-null-value", help="What stands for NULL in CSV files; \\N.")
@click.option("--csv-line-terminator", help="What ends a row of CSV files; \\r\\n.")
@click.option("--no-header", is_flag=True, help="CSV files do not begin with names of columns.")
@click.option(
    "--escape-backslash/--no-escape-backslash",
    default=True,
    help="Whether backslashes escape in the files; they do.",
)
@click.option(
    "--csv-output-dialect",
    type=click.Choice([name for name in OUTPUT_DIALECTS if name]),
    help="The warehouse that CSV files were written for, which tells how bytes are written.",
)
@plain_errors
def seed(
    changefeed: str,
    folder: str,
    tables: tuple[str, ...],
    tso: int | None,
    timezone: str | None,
    **csv: str | bool | None,
) -> None:
    """Let tables of CHANGEFEED begin with the rows of an export in FOLDER, written by Dumpling.

    The rows stand at the TSO of the export. Changes at or below it are not applied to these tables
    again, those above it are, in order. It may be run before the first sync, between syncs, and
    again for one table. What is no row goes to quarantine with file and line.

    FOLDER is a folder, or a URI that Arrow's file systems reach. The options about CSV are
    Dumpling's: give those that Dumpling was given.
    """
    from ticdc_assets.defs.run import run_seed

    options = {
        name.replace("_", "-"): str(value).lower() if isinstance(value, bool) else value
        for name, value in csv.items()
        if value is not None and value is not False
    }
    if not csv["escape_backslash"]:
        options["escape-backslash"] = "false"
    config = {
        "folder": folder,
        "tables": list(tables),
        "csv": options,
        **({} if tso is None else {"tso": tso}),
        **({} if timezone is None else {"timezone": timezone}),
    }
    report = run_seed(load_settings(), changefeed, config)
    seeding = report.seeding
    for item in seeding.tables:
        name = f"{item.database}.{item.table}"
        state = f"{item.rows} rows" if item.is_new else "seeded before, nothing changed"
        refused = f", {item.quarantined} in quarantine" if item.quarantined else ""
        click.echo(f"{changefeed}: {name}: {state}{refused}")
    for (database, table), reason in sorted(seeding.refused.items()):
        click.echo(f"{changefeed}: {database}.{table}: not seeded: {reason}")
    for kind, count in sorted(seeding.skipped.items()):
        click.echo(f"{changefeed}: skipped {count} files: {kind}")
    if seeding.excluded:
        click.echo(
            f"{changefeed}: {seeding.excluded} tables of the export are left out by `tables`"
        )
    click.echo(
        f"{changefeed}: {seeding.rows} rows of {len(seeding.tables)} tables stand at TSO "
        f"{seeding.tso}"
    )
    click.echo(f"{changefeed}: {report.applying.outcome}: {report.applying.reason}")
    if seeding.refused:
        raise click.ClickException(f"{len(seeding.refused)} tables were not seeded")
