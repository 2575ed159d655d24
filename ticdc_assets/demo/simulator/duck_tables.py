"""A table of the stand-in upstream as a table of DuckDB, and DuckDB's values as TiDB stores them.

In: columns and rows in canonical text. Out: a table in memory with the same columns in the same
order, its rows as texts again, and the canonical text that a column stores of such a text, or why
it stores none (as in a strict SQL mode). Nothing here is written outside the connection.

A column has the DuckDB type in which arithmetic and comparisons mean the same as in TiDB, wide
enough for results that the column itself refuses. Types that DuckDB does not have (TIME beyond a
day, SET, VECTOR, DECIMAL of more than 38 digits) are texts there. A zero date is NULL there: an
unchanged cell keeps its value, since only cells that a statement changed are read back.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeAlias, cast

import duckdb

from ticdc_assets.demo.simulator.columns import (
    BINARY_TYPES,
    INTEGER_TYPES,
    default_value,
    fits,
    text_literal,
    text_with_digits,
    text_with_scale,
    type_sql,
)
from ticdc_assets.demo.simulator.stored_table import Row, TableName
from ticdc_assets.model.schemas import ColumnSchema

Cells: TypeAlias = tuple[str | None, ...]
"""The values of a row as texts, in the order of the table."""

_WIDEST_DECIMAL: Final = 38
_TIME: Final = re.compile(r"(-?\d{1,3}):([0-5]\d):([0-5]\d(?:\.\d{1,6})?)")


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
    """Create a table with rows; their `rowid` counts from 0 in the order of `rows`.

    Args:
        engine: where.
        name: database and table.
        columns: columns in the order of the table.
        rows: rows in canonical text.
        timezone: zone in which TIMESTAMPs are written.
        now: the moment of the statement, for defaults that are this moment.
    """
    definitions: list[str] = []
    for column in columns:
        default = default_value(column, timezone, at=now)
        clause = "" if default is None else f" DEFAULT {_from_text(text_literal(default), column)}"
        definitions.append(f"{_quoted(column.name)} {_duck_type(column)}{clause}")
    engine.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(name[0])}")
    engine.execute(f"CREATE TABLE {path_in_engine(name)} ({', '.join(definitions)})")
    known = list(rows)
    cells = [[row[column.name] for row in known] for column in columns]
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
    found = engine.execute(f"SELECT rowid, {texts} FROM {path_in_engine(name)} ORDER BY rowid")
    return {int(row[0]): tuple(row[1:]) for row in found.fetchall()}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _duck_type(column: ColumnSchema) -> str:
    base = column.mysql_type
    if base in INTEGER_TYPES or base in ("bit", "year"):
        return "HUGEINT"
    if base == "decimal" and column.length <= _WIDEST_DECIMAL:
        return f"DECIMAL({_WIDEST_DECIMAL}, {column.decimal})"
    if base in BINARY_TYPES:
        return "BLOB"
    return _TYPES.get(base, "VARCHAR")


_TYPES: Final[Mapping[str, str]] = {
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


# What a column stores -----------------------------------------------------------------------------


def stored_text(text: str | None, column: ColumnSchema) -> str | None:
    """Return what a column stores of DuckDB's text of a value, in canonical text.

    Raises:
        ValueError: it stores no such value, by its type or its size.
    """
    if text is None:
        return None
    store = _STORED.get(column.mysql_type)
    try:
        stored = text if store is None else store(text, column)
    except (ValueError, InvalidOperation, OverflowError):
        stored = None
    if stored is None or not fits(stored, column):
        raise ValueError(f"{text!r} is no value of {column.name!r} {type_sql(column)}")
    return stored


def _stored_float(text: str, column: ColumnSchema) -> str | None:
    number = Decimal(text)
    if not number.is_finite() or (column.unsigned and number < 0):
        return None
    return f"{number.normalize():f}" if number else "0"


def _stored_bit(text: str, column: ColumnSchema) -> str | None:
    return text if 0 <= int(text) < 2**column.length else None


def _stored_year(text: str, _: ColumnSchema) -> str | None:
    return text if int(text) == 0 or 1901 <= int(text) <= 2155 else None


def _stored_decimal(text: str, column: ColumnSchema) -> str | None:
    number = Decimal(text)
    return None if column.unsigned and number < 0 else text_with_scale(number, column.decimal)


def _stored_bytes(text: str, column: ColumnSchema) -> str:
    return text.ljust(2 + 2 * column.length, "0") if column.mysql_type == "binary" else text


def _stored_set(text: str, column: ColumnSchema) -> str | None:
    labels = {label for label in text.split(",") if label}
    if not labels <= set(column.elements):
        return None
    return ",".join(label for label in column.elements if label in labels)


def _stored_time(text: str, column: ColumnSchema) -> str | None:
    match = _TIME.fullmatch(text)
    if match is None or abs(int(match[1])) > 838:
        return None
    hours = match[1].lstrip("-").zfill(2)
    sign = "-" * match[1].startswith("-")
    return text_with_digits(f"{sign}{hours}:{match[2]}:{match[3]}", column.decimal)


def _stored_json(text: str, _: ColumnSchema) -> str:
    return json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _stored_vector(text: str, column: ColumnSchema) -> str | None:
    elements: Any = json.loads(text, parse_float=Decimal, parse_int=Decimal)
    if not isinstance(elements, list):
        return None
    items = cast("list[Any]", elements)
    if not all(isinstance(item, Decimal) for item in items) or column.length not in (0, len(items)):
        return None
    return f"[{','.join(f'{item:f}' for item in items)}]"


def _stored_moment(text: str, column: ColumnSchema) -> str:
    return text_with_digits(text, column.decimal)


_STORED: Final[Mapping[str, Callable[[str, ColumnSchema], str | None]]] = {
    **dict.fromkeys(BINARY_TYPES, _stored_bytes),
    **dict.fromkeys(("float", "double"), _stored_float),
    **dict.fromkeys(("datetime", "timestamp"), _stored_moment),
    "decimal": _stored_decimal,
    "bit": _stored_bit,
    "year": _stored_year,
    "set": _stored_set,
    "time": _stored_time,
    "json": _stored_json,
    "vector": _stored_vector,
}
