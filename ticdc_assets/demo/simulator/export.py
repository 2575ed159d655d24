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
    """Export all tables as they are now into a new folder, as `csv` or `sql`; return the TSO."""
    tso = upstream.clock.next()
    folder.mkdir(parents=True)
    for database in sorted({name[0] for name in upstream.tables}):
        sql = f"CREATE DATABASE {quoted(database)};\n"
        (folder / f"{_file_name(database)}-schema-create.sql").write_text(SETTINGS + sql)
    for name in upstream.tables:
        table = upstream.stored(name)
        stem = f"{_file_name(name[0])}.{_file_name(name[1])}"
        sql = _create_sql(table, upstream.timezone)
        (folder / f"{stem}-schema.sql").write_text(SETTINGS + sql, encoding="utf-8")
        rows = list(table.rows.values())
        for number, begin in enumerate(range(0, len(rows), _ROWS_PER_FILE)):
            parts = _rows(table, rows[begin : begin + _ROWS_PER_FILE], is_sql=file_type == "sql")
            (folder / f"{stem}.{number:09d}.{file_type}").write_bytes(b"".join(parts))
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


def _rows(
    table: StoredTable, rows: Iterable[Mapping[str, str | None]], *, is_sql: bool
) -> Iterator[bytes]:
    """Yield the parts of a file of rows; columns that are generated are left out."""
    columns = [column for column in table.columns if not column.virtual]
    fields = [(column.name, _field(column, is_sql=is_sql)) for column in columns]
    null = b"NULL" if is_sql else rb"\N"
    lines = [
        b",".join(null if (value := row[name]) is None else field(value) for name, field in fields)
        for row in rows
    ]
    if not is_sql:
        names = (_escaped(column.name.encode(), _ESCAPES_CSV) for column in columns)
        header = b",".join(b'"' + name + b'"' for name in names)
        yield b"".join(line + b"\r\n" for line in (header, *lines))
        return
    listed = names_sql(column.name for column in columns).replace(", ", ",")
    head = f"INSERT INTO {quoted(table.schema.table)} ({listed}) VALUES\n".encode()
    yield SETTINGS.encode()
    for begin in range(0, len(lines), _ROWS_PER_STATEMENT):
        some = lines[begin : begin + _ROWS_PER_STATEMENT]
        yield head + b",\n".join(b"(" + line + b")" for line in some) + b";\n"


def _field(column: ColumnSchema, *, is_sql: bool) -> Callable[[str], bytes]:
    kind = kind_of(column)
    if kind in _NUMBERS:
        return str.encode
    raw = _raw(column) if kind in _BYTES else str.encode
    if is_sql and kind in _BYTES:
        return lambda text: f"x'{raw(text).hex()}'".encode()
    quote, escapes = (b"'", _ESCAPES_SQL) if is_sql else (b'"', _ESCAPES_CSV)
    return lambda text: quote + _escaped(raw(text), escapes) + quote


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
