"""What a row of a table says of its columns, as TiCDC's encoders write it.

In: a table's schema. Out: the `RowShape` that its rows have in the formats without schemas. It is
the reverse of `inference.row_shapes`, which reads such shapes. Equal schemas give equal shapes.
"""

from collections.abc import Iterable

from ticdc_assets.model.mysql_types import Kind, base_type, is_unsigned, kind_of
from ticdc_assets.model.schemas import ColumnFlag, ColumnSchema, RowShape, SentColumn, TableSchema
from ticdc_assets.registry.inference.columns import BINARY, TEXT_TYPES
from ticdc_assets.registry.inference.row_shapes import spelled_type, stored_type


def shape_of(schema: TableSchema) -> RowShape:
    """Return the shape that rows have in Open Protocol and Craft: base types and flags."""
    flags = _column_flags(schema)
    return RowShape(
        columns=tuple(
            SentColumn(column.name, stored_type(column), flags[column.name])
            for column in schema.columns
        )
    )


def canal_shape_of(schema: TableSchema, *, full_types: bool = False) -> RowShape:
    """Return the shape that rows have in Canal-JSON: spelled types and the primary key.

    Args:
        schema: the table.
        full_types: whether types have sizes and labels (content-compatible); of a type whose size
            is not known only the base type is there.
    """
    primary = {name for index in schema.own_indexes if index.primary for name in index.columns}
    return RowShape(
        columns=tuple(
            SentColumn(column.name, spelled_type(column, full=full_types))
            for column in schema.columns
        ),
        primary_key=tuple(column.name for column in schema.columns if column.name in primary),
    )


def _column_flags(schema: TableSchema) -> dict[str, ColumnFlag]:
    flags = {column.name: _own_flags(column) for column in schema.columns}

    def mark(names: Iterable[str], flag: ColumnFlag) -> None:
        for name in names:
            if name in flags:
                flags[name] |= flag

    mark(schema.handle_key, ColumnFlag.HANDLE_KEY)
    for index in schema.own_indexes:
        if index.primary:
            mark(index.columns, ColumnFlag.PRIMARY_KEY)
        elif index.unique:
            mark(index.columns, ColumnFlag.UNIQUE_KEY)
        if len(index.columns) > 1 or not index.unique:
            mark(index.columns, ColumnFlag.MULTIPLE_KEY)
    return flags


def _own_flags(column: ColumnSchema) -> ColumnFlag:
    flags = ColumnFlag(0)
    is_text = base_type(column) in TEXT_TYPES and column.charset.lower() != BINARY
    if not is_text and (kind_of(column) is not Kind.UNKNOWN or column.charset == BINARY):
        flags |= ColumnFlag.BINARY
    if column.nullable:
        flags |= ColumnFlag.NULLABLE
    if is_unsigned(column) or kind_of(column) in (Kind.BIT, Kind.YEAR):
        flags |= ColumnFlag.UNSIGNED
    return flags
