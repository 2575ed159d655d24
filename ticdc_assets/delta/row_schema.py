"""The columns of a table: from the dataclass of its rows, by their types, or with values.

A field becomes a column of the same name, a sequence a list, a dataclass in it a struct. These
names and types are the format of existing tables: a new field needs a value for older rows, and no
field is renamed.
"""

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from types import NoneType, UnionType
from typing import Any, cast, get_args, get_origin, get_type_hints

import pyarrow as pa

_TYPES = {
    int: pa.int64(),
    str: pa.string(),
    bool: pa.bool_(),
    datetime: pa.timestamp("us", tz="UTC"),
}


def typed(kind: type, *names: str) -> "list[pa.Field[Any]]":
    """Return columns of one type."""
    return [pa.field(name, _TYPES[kind]) for name in names]


def filled(schema: pa.Schema, size: int, values: Mapping[str, Any]) -> pa.Table:
    """Return a table of so many rows with the columns of a schema.

    A value that is no array is that of all rows; a column without a value is NULL.
    """
    return pa.table(_columns(schema, size, values), schema=schema)


def filled_batch(schema: pa.Schema, size: int, values: Mapping[str, Any]) -> pa.RecordBatch:
    """Return the same as a batch."""
    return pa.RecordBatch.from_arrays(_columns(schema, size, values), schema=schema)


def _columns(schema: pa.Schema, size: int, values: Mapping[str, Any]) -> list[Any]:
    columns: list[Any] = []
    for item in schema:
        value = values.get(item.name)
        if value is None:
            columns.append(pa.nulls(size, item.type))
        elif isinstance(value, pa.Array | pa.ChunkedArray):
            columns.append(value.cast(item.type))
        else:
            columns.append(pa.repeat(pa.scalar(value, item.type), size))
    return columns


def fields_of(row: type, **stored: pa.DataType) -> "list[pa.Field[Any]]":
    """Return the columns of a table; `stored` has the types of those that differ from their field.

    A field's type without a column type is a TypeError.
    """
    hints = get_type_hints(row)
    return [
        pa.field(item.name, stored.get(item.name) or _type_of(hints[item.name]))
        for item in fields(row)
    ]


def _type_of(hint: Any) -> pa.DataType:
    if hint in _TYPES:
        return _TYPES[hint]
    # A value that may be absent is null, and `tuple[T, ...]` has any number of values.
    inner = [item for item in get_args(hint) if item not in (NoneType, Ellipsis)]
    if isinstance(hint, UnionType) and len(inner) == 1:
        return _type_of(inner[0])
    if get_origin(hint) in (list, tuple) and len(inner) == 1:
        return pa.list_(_type_of(inner[0]))
    return pa.struct(fields_of(cast("type", hint)))
