"""Table schemas and row shapes as values, and the one JSON form in which they travel.

In: the `tableSchema` object of the Simple protocol (docs/formats/simple.md), parsed JSON. Out:
frozen `TableSchema` values, and back. The same JSON form is what `change_log` and `schema_registry`
store for every format, so a schema is parsed by this module and by no other. A `RowShape` is the
little that a row of the other formats says of its columns; its JSON form is this package's.

Reading is strict about what gives a schema its meaning (names, types, key) and silent about fields
it does not know, so that a newer TiCDC may add some.
"""

import json
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntFlag
from functools import lru_cache, partial
from typing import Any, Final, cast

import orjson

from ticdc_assets.base.errors import WireError, shorten
from ticdc_assets.model.json_fields import (
    optional,
    read_array,
    read_boolean,
    read_names,
    read_natural,
    read_object,
    read_text,
    required,
)

NO_TABLE_ID: Final = -1
"""A table id that means none: TiCDC sends it for the name in the middle of a cyclic RENAME."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSchema:
    """One column of a table.

    Attributes:
        name: column name, as written upstream.
        mysql_type: base type in lower case without length, e.g. `varchar`, `bigint`, `enum`.
        charset: character set; `binary` for everything that is not text.
        collation: collation name.
        length: declared or display length, bits of BIT, dimensions of VECTOR; 0 if unknown.
        decimal: scale of DECIMAL, fractional seconds of the time types; 0 if none, -1 with a length
            of 0 where no message says the fraction of a time type or whether an integer is
            unsigned.
        elements: labels of ENUM and SET, in order; () where no message has them.
        unsigned: True for UNSIGNED.
        zerofill: True for ZEROFILL.
        nullable: whether the column may be NULL.
        default: default as sent: text, an integer (BIT), bytes (of a binary column, that are not
            UTF-8), or None (no default, or NULL).
        virtual: True for a virtual generated column: no row has it, and TiCDC uses no key over it.
            No message says so; DDL text does (`registry.inference.column_facts`).
    """

    name: str
    mysql_type: str
    charset: str = ""
    collation: str = ""
    length: int = 0
    decimal: int = 0
    elements: tuple[str, ...] = ()
    unsigned: bool = False
    zerofill: bool = False
    nullable: bool = True
    default: str | int | bytes | None = None
    virtual: bool = False

    @property
    def default_text(self) -> str | None:
        """The default as people read it, None for none: bytes that are not text as `0x` and hex."""
        if isinstance(self.default, bytes):
            return f"0x{self.default.hex()}"
        return None if self.default is None else str(self.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSchema:
    """One index: its name, kind and columns in key order.

    `partial`: it covers the rows of a WHERE alone, so a unique one identifies no row. No message
    says so, and TiCDC uses such a key; DDL text does (`registry.inference.column_facts`).
    """

    name: str
    unique: bool
    primary: bool
    nullable: bool
    columns: tuple[str, ...]
    partial: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """The structure of one table at one schema version.

    Attributes:
        database: database the table is in.
        table: table name.
        table_id: logical table id upstream; `NO_TABLE_ID` or 0 where a message has none (`has_id`).
        version: schema version, a TSO (TiDB's UpdateTS). RENAME and TRUNCATE keep it.
        columns: columns in the order sent (column-id order in the Simple protocol).
        indexes: indexes in the order sent.
    """

    database: str
    table: str
    table_id: int
    version: int
    columns: tuple[ColumnSchema, ...]
    indexes: tuple[IndexSchema, ...]

    @property
    def name(self) -> tuple[str, str]:
        """(database, table)."""
        return (self.database, self.table)

    @property
    def has_id(self) -> bool:
        """Whether the table id is one.

        TiCDC v8.5.4 and v8.5.5 send 0 with partition DDL (`buildDDLEventCommonWithTableID` in
        logservice/schemastore/persist_storage_ddl_handlers.go of pingcap/ticdc).
        """
        return self.table_id > 0

    @property
    def own_indexes(self) -> tuple[IndexSchema, ...]:
        """The indexes that the table has.

        In the Simple protocol a table without a primary key has one more: its first NOT NULL unique
        key, listed again as the index `primary`, even if that key is over virtual generated
        columns. A clustered integer primary key, which is the row id and none of TiDB's indexes, is
        listed under that name too. A unique key over that same integer column changes nothing: both
        are the same key.
        """
        return tuple(index for index in self.indexes if not self._is_stand_in(index))

    def _is_stand_in(self, index: IndexSchema) -> bool:
        if not index.primary or index.name != "primary":
            return False
        column = self.column(index.columns[0]) if len(index.columns) == 1 else None
        if (
            column is not None
            and column.mysql_type in _INTEGER_TYPES
            and not column.virtual
            and not any(other.partial and other.columns == index.columns for other in self.indexes)
        ):
            return False
        nullable = {column.name for column in self.columns if column.nullable}
        for other in self.indexes:
            # As `GetPrimaryKey` in pkg/meta/model of pingcap/tidb: a column of an expression does
            # not count, a virtual one of the table's own does.
            if (
                other.unique
                and not other.primary
                and other.columns
                and nullable.isdisjoint(other.columns)
                and not any(is_of_expression(other, name) for name in other.columns)
            ):
                return other.columns == index.columns
        return False

    @property
    def identity(self) -> tuple[str, ...]:
        """Columns that identify a row: the handle key, or all columns without one."""
        return self.handle_key or tuple(column.name for column in self.columns)

    @property
    def handle_key(self) -> tuple[str, ...]:
        """Columns that identify a row: the primary key, else a NOT NULL unique key, else ().

        Of several unique keys it is the one with the fewest columns, the first of those, as in
        TiCDC (`findHandleIndex` in cdc/model/schema_storage.go of pingcap/tiflow). One over a
        virtual generated column or over some rows only is none. Nullability is judged by the
        columns: the `nullable` that TiCDC sends with an index is wrong from the second encoding on
        (golden/QUIRKS.md B11).
        """
        indexes = self.own_indexes
        for index in indexes:
            if index.primary and index.columns:
                return index.columns
        unfit = unfit_for_keys(self.columns)
        keys = [
            index.columns
            for index in indexes
            if index.unique
            and not index.partial
            and index.columns
            and unfit.isdisjoint(index.columns)
        ]
        return min(keys, key=len, default=())

    def column(self, name: str) -> ColumnSchema | None:
        """Return the column called `name`, or None."""
        return next((column for column in self.columns if column.name == name), None)


_INTEGER_TYPES = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})


def unfit_for_keys(columns: Iterable[ColumnSchema]) -> set[str]:
    """Return the names of the columns whose unique keys TiCDC does not use to identify rows."""
    return {column.name for column in columns if column.nullable or column.virtual}


def is_of_expression(index: IndexSchema, name: str) -> bool:
    """Return whether the column `name` of `index` is the hidden column of an expression.

    Its name is the index's and its place there (`_V$_idx_0`), and it is virtual.
    """
    prefix = f"_v$_{index.name}_".lower()
    folded = name.lower()
    return folded.startswith(prefix) and folded[len(prefix) :].isdecimal()


class ColumnFlag(IntFlag):
    """What TiCDC says of a column in one number (Open Protocol and Craft)."""

    BINARY = 1
    HANDLE_KEY = 2
    GENERATED = 4
    PRIMARY_KEY = 8
    UNIQUE_KEY = 16
    MULTIPLE_KEY = 32
    NULLABLE = 64
    UNSIGNED = 128


@dataclass(frozen=True, slots=True)
class SentColumn:
    """One column as a row describes it.

    Attributes:
        name: column name.
        mysql_type: type in lower case: the base type, or the spelled type where it is sent
            (`decimal(20,6)`, `int unsigned`). Of text and bytes it is the one whose values are
            spelled as this row's are (`varchar` for text, `varbinary` for base64): the type of the
            flags, unless a value contradicts them.
        flags: the flags as sent, None where the format has none (Canal-JSON).
    """

    name: str
    mysql_type: str
    flags: ColumnFlag | None = None


@dataclass(frozen=True, slots=True)
class RowShape:
    """What a row says of its table.

    Attributes:
        columns: the columns that were sent, in their order in the message.
        primary_key: the primary key's columns where they are named (Canal-JSON), () if it has none,
            None if the format does not name them.
        partial: True if the table may have more columns: the image was cut to the handle key, or is
            that of a DELETE, which may be cut.
        damaged: True if the image before lacks columns that changed, since the encoder wrote them
            without their names (Open Protocol with only-output-updated-columns).
        raw: True if the text of a value is its bytes (Craft); else bytes are text as Go quotes them
            (Open Protocol). It is the same for all rows of a changefeed.
    """

    columns: tuple[SentColumn, ...]
    primary_key: tuple[str, ...] | None = None
    partial: bool = False
    damaged: bool = False
    raw: bool = field(default=False, compare=False)


def check_names(names: Iterable[str], position: str) -> None:
    """Refuse columns that no table of TiDB and no mirror can have together.

    TiDB and Delta compare column names in lower case. This checks messages, not what is stored.

    Raises:
        WireError: a name is empty, or two differ by their case alone.
    """
    spellings: dict[str, str] = {}
    for name in names:
        if not name:
            raise WireError("empty_text", position, "column names that are not empty", "''")
        other = spellings.setdefault(name.lower(), name)
        if other != name:
            raise WireError(
                "duplicate_column",
                position,
                "column names that differ by more than their case",
                f"{shorten(other)} and {shorten(name)}",
            )


def sent_shape(
    columns: tuple[SentColumn, ...],
    position: str,
    *,
    primary_key: tuple[str, ...] | None = None,
    partial: bool = False,
    damaged: bool = False,
    raw: bool = False,
) -> RowShape:
    """Return the shape of a row that a message holds.

    Raises:
        WireError: no table can have such columns.
    """
    check_names((column.name for column in columns), position)
    return RowShape(
        columns=columns, primary_key=primary_key, partial=partial, damaged=damaged, raw=raw
    )


def sent_schema(value: Any, position: str) -> TableSchema:
    """Read the JSON object of a schema that a message holds.

    Raises:
        WireError: it is not a schema (`schema_from_json`), or no table can have such columns.
    """
    schema = schema_from_json(value, position)
    check_names((column.name for column in schema.columns), f"{position}.columns")
    return schema


def shape_to_json(shape: RowShape) -> dict[str, Any]:
    """Return the JSON object of `shape`, for `shape_from_json`."""
    return {
        "columns": [
            [column.name, column.mysql_type, None if column.flags is None else int(column.flags)]
            for column in shape.columns
        ],
        "key": None if shape.primary_key is None else list(shape.primary_key),
        "partial": shape.partial,
        # Written only where True: the shapes of older lakes have no such field.
        **({"damaged": True} if shape.damaged else {}),
        **({"raw": True} if shape.raw else {}),
    }


def shape_from_json(value: Any) -> RowShape:
    """Return the shape of a JSON object of `shape_to_json`."""
    return RowShape(
        columns=tuple(
            SentColumn(name, mysql_type, None if flags is None else ColumnFlag(flags))
            for name, mysql_type, flags in value["columns"]
        ),
        primary_key=None if value["key"] is None else tuple(value["key"]),
        partial=value["partial"],
        damaged=value.get("damaged", False),
        raw=value.get("raw", False),
    )


def schema_from_json(value: Any, position: str) -> TableSchema:
    """Read the JSON object of a table schema, which is at a path in its message.

    Raises:
        WireError: the object lacks a required field or a field has the wrong type.
    """
    fields = read_object(value, position)
    columns = tuple(
        _column(item, f"{position}.columns", number)
        for number, item in enumerate(required(fields, "columns", read_array, position))
    )
    names = [column.name for column in columns]
    # A set: a hostile message may have as many names as it has bytes, in its indexes too.
    distinct = set(names)
    if len(distinct) != len(names):
        raise WireError("duplicate_column", f"{position}.columns", "distinct names", shorten(names))
    indexes = tuple(
        _index_from_json(item, f"{position}.indexes[{number}]")
        for number, item in enumerate(optional(fields, "indexes", read_array, position) or ())
    )
    for number, index in enumerate(indexes):
        for name in index.columns:
            if name not in distinct:
                raise WireError(
                    "unknown_column",
                    f"{position}.indexes[{number}].columns",
                    "a column of the table",
                    shorten(name),
                )
    return TableSchema(
        database=required(fields, "schema", read_text, position),
        table=required(fields, "table", read_text, position),
        table_id=required(fields, "tableID", _read_size, position),
        version=required(fields, "version", read_natural, position),
        columns=columns,
        indexes=indexes,
    )


@lru_cache(maxsize=16_384)
def schema_from_text(text: str) -> TableSchema:
    """Return the schema of a text that `schema_to_text` made.

    One text is in several tables (the DDL of the schema, the registry, each cut), which every step
    of a sync reads; so the newest schemas are cached.

    Raises:
        WireError: it is not a schema (`schema_from_json`).
        ValueError: it is not JSON.
    """
    return schema_from_json(json.loads(text), "$")


def schema_to_text(schema: TableSchema) -> str:
    """Return the text in which `schema` is stored."""
    return json.dumps(schema_to_json(schema), ensure_ascii=False, separators=(",", ":"))


def schema_to_json(schema: TableSchema) -> dict[str, Any]:
    """Return the JSON object of `schema`, fields in TiCDC's order."""
    return {
        "schema": schema.database,
        "table": schema.table,
        "tableID": schema.table_id,
        "version": schema.version,
        "columns": [_column_to_json(column) for column in schema.columns],
        "indexes": [
            {
                "name": index.name,
                "unique": index.unique,
                "primary": index.primary,
                "nullable": index.nullable,
                "columns": list(index.columns),
                # This package's own field; TiCDC has none.
                **({"partial": True} if index.partial else {}),
            }
            for index in schema.indexes
        ],
    }


def _column(value: Any, position: str, number: int) -> ColumnSchema:
    """Return a column; equal columns are one object, as thousands of tables have many of them."""
    with suppress(WireError, orjson.JSONEncodeError):
        text = orjson.dumps(value, option=orjson.OPT_PASSTHROUGH_DATACLASS)
        if len(text) <= _KEPT_CHARACTERS:
            return _known_column(text)
    return _column_from_json(value, f"{position}[{number}]")


_KEPT_CHARACTERS = 1_024
"""Most characters of texts of columns that are cached, so that all take at most some MiB."""


@lru_cache(maxsize=16_384)
def _known_column(text: bytes) -> ColumnSchema:
    return _column_from_json(orjson.loads(text), "")


def _column_from_json(value: Any, position: str) -> ColumnSchema:
    fields = read_object(value, position)
    data_type = required(fields, "dataType", read_object, position)
    place = f"{position}.dataType"
    return ColumnSchema(
        name=required(fields, "name", read_text, position),
        mysql_type=required(data_type, "mysqlType", read_text, place).lower(),
        charset=optional(data_type, "charset", read_text, place) or "",
        collation=optional(data_type, "collate", read_text, place) or "",
        length=optional(data_type, "length", _read_size, place) or 0,
        decimal=optional(data_type, "decimal", _read_size, place) or 0,
        elements=optional(data_type, "elements", read_names, place) or (),
        unsigned=optional(data_type, "unsigned", read_boolean, place) or False,
        zerofill=optional(data_type, "zerofill", read_boolean, place) or False,
        nullable=optional(fields, "nullable", read_boolean, position) is not False,
        default=_default_from_json(fields.get("default"), f"{position}.default"),
        virtual=optional(fields, "virtual", read_boolean, position) or False,
    )


_read_size = partial(read_natural, minimum=-1)


def _default_from_json(value: Any, position: str) -> str | int | bytes | None:
    if isinstance(value, dict):
        # This package's own form; TiCDC writes no object.
        members = cast("dict[str, Any]", value)
        text = members.get(_BASE64) if len(members) == 1 else None
        with suppress(ValueError, TypeError):
            return a2b_base64(cast(str, text), strict_mode=True)
    if isinstance(value, bool) or not isinstance(value, str | int | None):
        raise WireError("wrong_type", position, "text or null", shorten(value))
    return value


def default_to_json(default: str | int | bytes | None) -> Any:
    """Return the JSON value of the `default` of a column, for `schema_from_json`."""
    if isinstance(default, bytes):
        return {_BASE64: b2a_base64(default, newline=False).decode()}
    return default


_BASE64 = "base64"


def _column_to_json(column: ColumnSchema) -> dict[str, Any]:
    data_type: dict[str, Any] = {
        "mysqlType": column.mysql_type,
        "charset": column.charset,
        "collate": column.collation,
        "length": column.length,
    }
    others = {
        "decimal": column.decimal,
        "elements": list(column.elements),
        "unsigned": column.unsigned,
        "zerofill": column.zerofill,
    }
    data_type |= {name: value for name, value in others.items() if value}
    fields = {
        "name": column.name,
        "dataType": data_type,
        "nullable": column.nullable,
        "default": default_to_json(column.default),
    }
    # This package's own field; TiCDC has none.
    return fields | {"virtual": True} if column.virtual else fields


def _index_from_json(value: Any, position: str) -> IndexSchema:
    fields = read_object(value, position)
    flags = {
        name: optional(fields, name, read_boolean, position) or False
        for name in ("unique", "primary", "nullable", "partial")
    }
    return IndexSchema(
        name=required(fields, "name", read_text, position),
        columns=required(fields, "columns", read_names, position),
        **flags,
    )
