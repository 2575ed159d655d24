"""A table of the stand-in upstream as a table of DuckDB, and DuckDB's values as TiDB stores them.

In: columns and rows in canonical text. Out: a table in memory with the same columns in the same
order, its rows as texts again, and the canonical text that a column stores of such a text, or why
it stores none: the rules of MODIFY COLUMN in a strict SQL mode (`model.values.casts`). Nothing here
is written outside the connection.

A column has the DuckDB type in which arithmetic and comparisons mean the same as in TiDB, wide
enough for results that the column itself refuses. Types that DuckDB does not have (TIME beyond a
day, SET, VECTOR, DECIMAL of more than 38 digits) are texts there. A zero date is NULL there: an
unchanged cell keeps its value, since only cells that a statement changed are read back.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeAlias

import duckdb

from ticdc_assets.base.errors import InputError
from ticdc_assets.demo.simulator.columns import (
    BINARY_TYPES,
    INTEGER_TYPES,
    default_value,
    text_literal,
    type_sql,
)
from ticdc_assets.demo.simulator.columns import column as column_of
from ticdc_assets.demo.simulator.stored_table import Row, TableName
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.model.values import canonical_of, cast_of

Cells: TypeAlias = tuple[str | None, ...]
"""The values of a row as texts, in the order of the table."""

_WIDEST_DECIMAL: Final = 38


def open_engine() -> duckdb.DuckDBPyConnection:
    """Return a DuckDB in memory whose statements reach neither files nor a network."""
    return duckdb.connect(
        ":memory:",
        config={
            "enable_external_access": "false",
            "autoinstall_known_extensions": "false",
            "memory_limit": "500MB",
            # The order of rows is that of their insertion.
            "threads": "1",
        },
    )


def path_in_engine(name: TableName) -> str:
    """Return a table's name as a statement of DuckDB has it."""
    return f"{_quoted(name[0])}.{_quoted(name[1])}"


def load(
    engine: duckdb.DuckDBPyConnection,
    name: TableName,
    columns: Sequence[ColumnSchema],
    rows: Iterable[Row],
    *,
    timezone: str,
    now: datetime,
) -> None:
    """Create a table with rows in canonical text; their `rowid` counts from 0 in their order.

    TIMESTAMPs are written in `timezone`; `now` is the value of defaults that are this moment.
    """
    definitions: list[str] = []
    for column in columns:
        default = default_value(column, timezone, at=now)
        clause = "" if default is None else f" DEFAULT {_from_text(text_literal(default), column)}"
        definitions.append(f"{_quoted(column.name)} {_duck_type(column)}{clause}")
    engine.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(name[0])}")
    engine.execute(f"CREATE TABLE {path_in_engine(name)} ({', '.join(definitions)})")
    listed = list(rows)
    cells = [[row[column.name] for row in listed] for column in columns]
    numbers = range(len(columns))
    values = ", ".join(_from_text(f"c{number}", columns[number]) for number in numbers)
    texts = ", ".join(f"unnest(CAST(? AS VARCHAR[])) AS c{number}" for number in numbers)
    engine.execute(
        f"INSERT INTO {path_in_engine(name)} SELECT {values} FROM (SELECT {texts})", cells
    )


def read(
    engine: duckdb.DuckDBPyConnection, name: TableName, columns: Sequence[ColumnSchema]
) -> dict[int, Cells]:
    """Return a table's rows by their `rowid`, in its order."""
    texts = ", ".join(_as_text(_quoted(column.name), column) for column in columns)
    result = engine.execute(f"SELECT rowid, {texts} FROM {path_in_engine(name)} ORDER BY rowid")
    return {int(row[0]): tuple(row[1:]) for row in result.fetchall()}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _duck_type(column: ColumnSchema) -> str:
    if column.mysql_type == "decimal" and column.length <= _WIDEST_DECIMAL:
        return f"DECIMAL({_WIDEST_DECIMAL}, {column.decimal})"
    return _TYPES.get(column.mysql_type, "VARCHAR")


_TYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys((*INTEGER_TYPES, "bit", "year"), "HUGEINT"),
    **dict.fromkeys(BINARY_TYPES, "BLOB"),
    "float": "FLOAT",
    "double": "DOUBLE",
    "date": "DATE",
    "datetime": "TIMESTAMP",
    "timestamp": "TIMESTAMP",
    "json": "JSON",
}


def _from_text(text: str, column: ColumnSchema) -> str:
    """Return the expression of a value, from the expression of its canonical text."""
    kind = _duck_type(column)
    if kind == "BLOB":
        return f"unhex(substr({text}, 3))"
    if kind in ("DATE", "TIMESTAMP"):
        return f"TRY_CAST({text} AS {kind})"
    return f"CAST({text} AS {kind})"


def _as_text(value: str, column: ColumnSchema) -> str:
    kind = _duck_type(column)
    if kind == "BLOB":
        return f"'0x' || lower(hex({value}))"
    if kind == "TIMESTAMP":
        return f"strftime({value}, '%Y-%m-%d %H:%M:%S.%f')"
    return f"CAST({value} AS VARCHAR)"


def stored_text(text: str | None, column: ColumnSchema, timezone: str) -> str | None:
    """Return what a column stores of DuckDB's text of a value, from `read`, in canonical text.

    Raises:
        ValueError: it stores no such value, by its type or its size.
    """
    if text is None:
        return None
    refusal = ValueError(f"{text!r} is no value of {column.name!r} {type_sql(column)}")
    try:
        if column.mysql_type != "vector":
            source = _SOURCES.get(_duck_type(column), _TEXT)
            return cast_of(source, column, timezone)(text)
        # TiDB changes no other column to a vector.
        vector = canonical_of(column, timezone)(text)
    except (InputError, ArithmeticError):
        raise refusal from None
    if vector is None or column.length not in (0, len(json.loads(vector))):
        raise refusal
    return vector


_TEXT: Final = column_of("value", "longtext")
_SOURCES: Final = {
    "HUGEINT": column_of("value", "decimal(65,0)"),
    "BLOB": column_of("value", "longblob"),
}
"""The column that DuckDB's texts could come from, by the type that DuckDB has; else `_TEXT`."""
