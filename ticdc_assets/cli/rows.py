"""Commands that print rows of mirrors: `show`, `sql` and `dump`."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import click
import orjson

from ticdc_assets.base.errors import LakeDamagedError, NotFoundError, TicdcError
from ticdc_assets.base.names import counted, joined_name
from ticdc_assets.cli.base import (
    AS_OF_HELP,
    checked_moment,
    end_with,
    lake_of,
    main,
    note,
)
from ticdc_assets.cli.completing import changefeed_argument, table_arguments
from ticdc_assets.cli.printing import in_total, print_json, print_line, print_rows
from ticdc_assets.config import load_settings

if TYPE_CHECKING:
    from ticdc_assets.delta.lake import Lake
    from ticdc_assets.log.cuts import Cut
    from ticdc_assets.model.schemas import TableSchema
    from ticdc_assets.reading.as_of import TableRows

_FORMAT = click.option(
    "--format",
    "output",
    type=click.Choice(["table", "jsonl", "csv"]),
    default="table",
    show_default=True,
    help="How the rows are printed.",
)


@main.command()
@changefeed_argument()
@table_arguments()
@_FORMAT
@click.option(
    "--limit",
    type=click.IntRange(0, 1_000_000_000),
    help="Show at most this many rows; as a table, 20.",
)
@click.option("--as-of", metavar="TSO|TIME", callback=checked_moment, help=AS_OF_HELP)
@click.option("--deleted", is_flag=True, help="Show deleted rows too; needs the table's history.")
@click.option(
    "--history",
    "key",
    metavar="KEY",
    help="Show all versions of the row with this key: `1`, or `1,x` (`id=1,name=x`).",
)
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
    """Show the rows of one mirror in key order, each value as the source prints it.

    JSON has blanks after commas and colons, which `dump` leaves out. Timestamps are in the
    changefeed's time zone. --format jsonl prints one JSON object per row; --format csv prints NULL
    as a backslash and N, like Dumpling.
    """
    from ticdc_assets.reading.mirrors import iterate_rows, table_at

    lake = lake_of(load_settings(), changefeed)
    if key is not None:
        if deleted or as_of is not None or limit is not None:
            raise click.UsageError("--history excludes --deleted, --as-of and --limit")
        _show_versions(lake, (database, table), key, output=output)
        return
    if deleted:
        _show_deleted(lake, (database, table), as_of, limit=limit, output=output)
        return
    rows, notes = table_at(lake, database, table, as_of)
    for text in notes:
        note(text)
    if limit is None and output == "table":
        limit = 20
    texts = (
        row
        for _, _, row in iterate_rows([rows], lake.changefeed.timezone, limit=limit, by_key=True)
    )
    columns = [column.name for column in rows.schema.columns if column.name not in rows.hidden]
    listed = _print_texts(texts, columns, rows.schema, output)
    if listed is not None:
        print_rows(joined_name(database, table), columns, listed, in_total(rows.rows, "row"))


def _print_texts(
    texts: Iterable[str], columns: Sequence[str], schema: "TableSchema", output: str
) -> list[dict[str, Any]] | None:
    """Print rows of JSON as lines of JSON or as CSV; return the rows of a table."""
    if output == "jsonl":
        for text in texts:
            print_line(orjson.dumps(_printed(orjson.loads(text), schema)).decode())
        return None
    rows = (_printed(json.loads(text), schema) for text in texts)
    if output == "csv":
        _print_csv(columns, rows)
        return None
    return list(rows)


def _printed(row: dict[str, Any], schema: "TableSchema") -> dict[str, Any]:
    from ticdc_assets.model.values.physical import printers

    for name, printed in printers(schema.columns).items():
        if row.get(name) is not None:
            row[name] = printed(row[name])
    return row


def _print_csv(columns: Sequence[str], rows: Iterable[Mapping[str, str | None]]) -> None:
    """Print rows as CSV with a header; NULL is written as by Dumpling, without quotes."""
    click.echo(",".join(map(_csv_field, columns)))
    for row in rows:
        click.echo(",".join(_csv_field(row[name]) for name in columns))


def _csv_field(text: str | None) -> str:
    if text is None:
        return r"\N"
    if text == r"\N" or any(mark in text for mark in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text


def _show_versions(lake: "Lake", name: tuple[str, str], key: str, *, output: str) -> None:
    from ticdc_assets.log.cuts import require_cut
    from ticdc_assets.reading.histories import row_versions
    from ticdc_assets.reading.mirrors import require_mirror

    cut = require_cut(lake.paths)
    versions = row_versions(lake, cut, name, key)
    _note_lacking(cut, name)
    schema = require_mirror(cut, *name).table_schema
    for version in versions:
        version["row"] = _printed(version["row"], schema)
    if output == "jsonl":
        for version in versions:
            print_json(version)
        return
    if not versions:
        click.echo(f"{joined_name(*name)} never had a row with the key {key}", err=True)
        return
    places = ("op", "valid_from", "valid_from_time", "valid_to", "valid_to_time", "ended_by")
    # A column of the table may have the same name as one of these.
    titles = {f"({place})": place for place in places}
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
    if output == "csv":
        _print_csv(columns, rows)
        return
    print_rows(f"{joined_name(*name)}: {key}", columns, rows, in_total(len(rows), "version"))


def _note_lacking(cut: "Cut", name: tuple[str, str]) -> None:
    """Say why a history may lack rows: it has those that its mirror had."""
    from ticdc_assets.changelog.plan import lacks_rows

    mirror = cut.mirror(*name)
    for caveat in mirror.caveats if mirror is not None else ():
        if lacks_rows([caveat]):
            note(f"{joined_name(*name)}: {caveat}")


def _show_deleted(
    lake: "Lake",
    name: tuple[str, str],
    as_of: str | None,
    *,
    limit: int | None,
    output: str,
) -> None:
    """Show the newest version of every row that a table ever had."""
    from ticdc_assets.log.cuts import require_cut, tso_as_of
    from ticdc_assets.reading.embedded import deleted_lines
    from ticdc_assets.reading.mirrors import require_mirror
    from ticdc_assets.rows.history_layout import HistoryLayout

    cut = require_cut(lake.paths)
    mirror = require_mirror(cut, *name)
    schema, layout = mirror.table_schema, HistoryLayout(schema=mirror.table_schema)
    tso = None if as_of is None else tso_as_of(lake.paths, as_of)
    _note_lacking(cut, name)
    if limit is None and output == "table":
        limit = 20
    # One more than is shown says whether there are more.
    lines = deleted_lines(lake, cut, name, as_of=tso, limit=None if limit is None else limit + 1)
    columns = [item.name for item in schema.columns if item.name not in mirror.hidden]
    columns += [layout.deleted_at, layout.ended_by]
    rows = _print_texts(islice(lines, limit), columns, schema, output)
    if rows is None:
        return
    caption = in_total(len(rows), "row")
    if next(lines, None) is not None:
        caption = f"{counted(len(rows), 'row')} of more; --limit N shows N rows"
    print_rows(f"{joined_name(*name)}, deleted rows too", columns, rows, caption)


@main.command()
@changefeed_argument()
@click.argument("query")
@_FORMAT
@click.option("--as-of", metavar="TSO|TIME", callback=checked_moment, help=AS_OF_HELP)
@click.option(
    "--engine",
    type=click.Choice(["duckdb", "spark"]),
    default="duckdb",
    show_default=True,
    help="The engine that runs the query; each has its own SQL dialect.",
)
def sql(changefeed: str, query: str, *, output: str, as_of: str | None, engine: str) -> None:
    """Run one SQL QUERY over the mirrors of CHANGEFEED, as `database.table`, and print its rows.

    All tables are read at one cut. If a history is kept, `table__history` has all versions of the
    rows, and `table__with_deleted` also has deleted rows. Statements other than queries are
    refused. Values are printed by the engine, timestamps in UTC, binary as 0x and hex.
    """
    from ticdc_assets.log.cuts import tso_as_of

    lake = lake_of(load_settings(), changefeed)
    tso = None if as_of is None else tso_as_of(lake.paths, as_of)
    if engine == "spark":
        from ticdc_assets.reading.views import query as answered
        from ticdc_assets.spark.session import get_spark

        lake = lake.using(get_spark())
    else:
        from ticdc_assets.reading.embedded import query as answered

    with answered(lake, query, as_of=tso) as result:
        for text in result.notes:
            note(text)
        _print_result(changefeed, result.columns, result.rows, output)


def _print_result(
    changefeed: str, names: Sequence[str], rows: Iterable[Sequence[str | None]], output: str
) -> None:
    match output:
        case "jsonl":
            for row in rows:
                fields = ", ".join(
                    f"{json.dumps(name, ensure_ascii=False)}: "
                    f"{json.dumps(value, ensure_ascii=False)}"
                    for name, value in zip(names, row, strict=True)
                )
                print_line(f"{{{fields}}}")
        case "csv":
            line = io.StringIO()
            for row in chain([names], rows):
                csv.writer(line, lineterminator="\n").writerow(row)
                click.echo(line.getvalue(), nl=False)
                line.seek(0)
                line.truncate()
        case _:
            titled = [f"{number} {name}" for number, name in enumerate(names, 1)]
            titles = list(names) if len(set(names)) == len(names) else titled
            listed = [dict(zip(titles, row, strict=True)) for row in rows]
            print_rows(changefeed, titles, listed, in_total(len(listed), "row"))


@main.command()
@changefeed_argument()
@click.option("--as-of", metavar="TSO|TIME", callback=checked_moment, help=AS_OF_HELP)
def dump(changefeed: str, as_of: str | None) -> None:
    """Write every row of every mirror as {"database", "table", "row"} lines in canonical text."""
    from ticdc_assets.log.cuts import require_cut, tso_as_of
    from ticdc_assets.log.damage import damage_told
    from ticdc_assets.reading.as_of import AsOf
    from ticdc_assets.reading.mirrors import iterate_rows, published_table

    lake = lake_of(load_settings(), changefeed)
    cut = require_cut(lake.paths)
    reads: list[Callable[[], TableRows]]
    if as_of is None:
        reads = [partial(published_table, lake, mirror) for mirror in cut.mirrors]
        for failure in cut.failed:
            note(failure.sentence)
    else:
        moment = AsOf(lake, tso_as_of(lake.paths, as_of))
        reads = [partial(moment.table, *name) for name in moment.names]
    unread: list[TicdcError] = []
    for read in reads:
        try:
            with damage_told(lake.paths):
                rows = read()
                for text in rows.notes:
                    note(text)
                for database, table, row in iterate_rows([rows], lake.changefeed.timezone):
                    name = json.dumps({"database": database, "table": table}, ensure_ascii=False)
                    print_line(f'{name[:-1]}, "row": {row}}}')
        except (LakeDamagedError, NotFoundError) as error:
            # The other tables are still written.
            unread.append(error)
    end_with(unread)
