"""Columns for the tests of values, written as in SQL: `column("decimal(10,2) unsigned")`."""

import re
from dataclasses import replace
from typing import Any

from ticdc_assets.model.schemas import ColumnSchema

_SQL = re.compile(r"([a-z]+)(?:\(([^)]*)\))?((?: unsigned)?)")
_LENGTHS = {
    "tinyint": 4,
    "smallint": 6,
    "mediumint": 9,
    "int": 11,
    "bigint": 20,
    "bit": 1,
    "year": 4,
    "decimal": 10,
    "float": 12,
    "double": 22,
    "date": 10,
    "datetime": 19,
    "timestamp": 19,
    "time": 10,
    "json": 2**32 - 1,
    "tinytext": 255,
    "text": 65535,
    "mediumtext": 2**24 - 1,
    "longtext": 2**32 - 1,
    "tinyblob": 255,
    "blob": 65535,
    "mediumblob": 2**24 - 1,
    "longblob": 2**32 - 1,
}
_FRACTIONED = ("datetime", "timestamp", "time")
_TEXT = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set")


def column(sql: str, **changes: Any) -> ColumnSchema:
    """Return the column as TiCDC would send it; `changes` are fields set afterwards."""
    found = _SQL.fullmatch(sql)
    assert found is not None, sql
    name, size, unsigned = found[1], found[2] or "", bool(found[3])
    length, decimal, elements = _LENGTHS.get(name, 0), 0, ()
    if name in ("enum", "set"):
        elements = tuple(size.split(","))
    elif size:
        numbers = [int(number) for number in size.split(",")]
        if name in _FRACTIONED:
            decimal = numbers[0]
            length += decimal + 1 if decimal else 0
        else:
            length = numbers[0]
            decimal = numbers[1] if len(numbers) > 1 and name == "decimal" else 0
    made = ColumnSchema(
        name="c",
        mysql_type=name,
        charset="utf8mb4" if name in _TEXT else "binary",
        collation="utf8mb4_bin" if name in _TEXT else "binary",
        length=length,
        decimal=decimal,
        elements=elements,
        unsigned=unsigned or name == "bit",
    )
    return replace(made, **changes)
