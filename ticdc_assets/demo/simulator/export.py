r"""The stand-in upstream exported, as Dumpling exports a TiDB: files of its tables at one TSO.

In: an `Upstream`, and a folder that is not there yet. Out: the folder with `metadata`, a file for
each database and table with its CREATE, and files of rows as CSV or INSERT statements, written by
Dumpling's rules and defaults: text in quotes with backslashes that escape, `\N` or NULL, bytes as
they are or as `x'..'`, TIMESTAMPs in the zone of the upstream. An export of the same upstream is
the same but for its TSO.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

from ticdc_assets.demo.simulator.columns import as_shown, column_sql, names_sql, quoted
from ticdc_assets.demo.simulator.stored_table import StoredTable
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.model.mysql_types import Kind, kind_of
from ticdc_assets.model.schemas import ColumnSchema

_NUMBERS = frozenset({Kind.INTEGER, Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE})
_BYTES = frozenset({Kind.BINARY, Kind.BIT})
_ROWS_PER_FILE = 10_000
_ROWS_PER_STATEMENT = 500

_ESCAPES_CSV = {0: b"\\0", 10: b"\\n", 13: b"\\r", 92: b"\\\\", 34: b'\\"'}
_ESCAPES_SQL = {**_ESCAPES_CSV, 39: b"\\'", 26: b"\\Z"}


def export_upstream(
    upstream: Upstream,
    folder: Path,
    *,
    file_type: str = "csv",
) -> int:
    """Export all tables as they are now; return the TSO.

    Args:
        upstream: the upstream.
        folder: where the files come; it is made.
        file_type: `csv` or `sql`.
    """
    tso = upstream.clock.next()
    folder.mkdir(parents=True)
    for database in sorted({name[0] for name in upstream.tables}):
        sql = f"CREATE DATABASE {quoted(database)};\n"
        (folder / f"{_file_name(database)}-schema-create.sql").write_text(SETTINGS + sql)
    write = {"csv": _csv_rows, "sql": _sql_rows}[file_type]
    for name in upstream.tables:
        table = upstream.stored(name)
        stem = f"{_file_name(name[0])}.{_file_name(name[1])}"
        sql = _create_sql(table, upstream.timezone)
        (folder / f"{stem}-schema.sql").write_text(SETTINGS + sql, encoding="utf-8")
        rows = list(table.rows.values())
        for number, begin in enumerate(range(0, len(rows), _ROWS_PER_FILE)):
            content = b"".join(write(table, rows[begin : begin + _ROWS_PER_FILE]))
            (folder / f"{stem}.{number:09d}.{file_type}").write_bytes(content)
    finish(folder, tso)
    return tso


def finish(folder: Path, tso: int) -> None:
    """Write what an export ends with: `metadata`, which has its TSO."""
    (folder / "metadata").write_text(
        "Started dump at: 2024-01-01 00:00:00\nSHOW MASTER STATUS:\n"
        f"\tLog: tidb-binlog\n\tPos: {tso}\n\tGTID:\n\nFinished dump at: 2024-01-01 00:00:01\n"
    )


SETTINGS = "/*!40014 SET FOREIGN_KEY_CHECKS=0*/;\n/*!40101 SET NAMES binary*/;\n"
"""What files of statements begin with."""


def _file_name(name: str) -> str:
    """Return a name as Dumpling writes it in names of files: with unusual characters as %XX."""
    return quote(name, safe=" ,;!@#$^&()[]{}=+'`~-_").replace("%2E", ".").replace(".", "%2E")


def _create_sql(table: StoredTable, timezone: str) -> str:
    parts = [as_shown(column_sql(column, timezone)) for column in table.columns]
    if table.primary_key:
        kind = "CLUSTERED" if table.clustered else "NONCLUSTERED"
        key = names_sql(table.primary_key)
        parts.append(f"PRIMARY KEY ({key}) /*T![clustered_index] {kind} */")
    for index in table.secondary:
        kind = "UNIQUE KEY" if index.unique else "KEY"
        parts.append(f"{kind} {quoted(index.name)} ({names_sql(index.columns)})")
    sql = f"CREATE TABLE {quoted(table.schema.table)} (\n  " + ",\n  ".join(parts) + "\n)"
    sql += " ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"
    if table.partitioning is not None:
        sql += f"\n{as_shown(table.partitioning.sql())}"
    return sql + ";\n"


def _columns(table: StoredTable) -> list[ColumnSchema]:
    """Return the columns whose values are exported: not those that are generated."""
    return [column for column in table.columns if not column.virtual]


def _csv_rows(table: StoredTable, rows: Iterable[Mapping[str, str | None]]) -> Iterator[bytes]:
    columns = _columns(table)
    fields = [(column.name, _csv_field(column)) for column in columns]
    yield b",".join(
        b'"' + _escaped(column.name.encode(), _ESCAPES_CSV) + b'"' for column in columns
    )
    yield b"\r\n"
    for row in rows:
        yield b",".join(
            b"\\N" if (value := row[name]) is None else field(value) for name, field in fields
        )
        yield b"\r\n"


def _csv_field(column: ColumnSchema) -> Callable[[str], bytes]:
    kind = kind_of(column)
    if kind in _NUMBERS:
        return lambda text: text.encode()
    raw = _raw(column) if kind in _BYTES else str.encode
    return lambda text: b'"' + _escaped(raw(text), _ESCAPES_CSV) + b'"'


def _sql_rows(table: StoredTable, rows: list[Mapping[str, str | None]]) -> Iterator[bytes]:
    columns = _columns(table)
    fields = [(column.name, _sql_field(column)) for column in columns]
    names = names_sql(column.name for column in columns).replace(", ", ",")
    head = f"INSERT INTO {quoted(table.schema.table)} ({names}) VALUES\n".encode()
    yield SETTINGS.encode()
    for begin in range(0, len(rows), _ROWS_PER_STATEMENT):
        yield head
        some = rows[begin : begin + _ROWS_PER_STATEMENT]
        texts = [
            b",".join(
                b"NULL" if (value := row[name]) is None else field(value) for name, field in fields
            )
            for row in some
        ]
        yield b",\n".join(b"(" + text + b")" for text in texts)
        yield b";\n"


def _sql_field(column: ColumnSchema) -> Callable[[str], bytes]:
    kind = kind_of(column)
    if kind in _NUMBERS:
        return lambda text: text.encode()
    if kind in _BYTES:
        raw = _raw(column)
        return lambda text: f"x'{raw(text).hex()}'".encode()
    return lambda text: b"'" + _escaped(text.encode(), _ESCAPES_SQL) + b"'"


def _raw(column: ColumnSchema) -> Callable[[str], bytes]:
    """Return the function from canonical text to the bytes of a BIT or binary column."""
    if kind_of(column) is Kind.BINARY:
        return lambda text: bytes.fromhex(text.removeprefix("0x"))
    size = (max(1, column.length) + 7) // 8
    return lambda text: int(text).to_bytes(size)


def _escaped(content: bytes, escapes: Mapping[int, bytes]) -> bytes:
    if not any(byte in content for byte in escapes):
        return content
    return b"".join(escapes.get(byte, bytes([byte])) for byte in content)
