"""What rows say of their table: schemas from row shapes.

In: a `RowShape`, and the schema in force if there is one. Out: whether the row fits it (`fits`),
and the schema that the row proves (`schema_of_shape`, `merged`). Pure functions that never raise.
This law makes adding rows repeatable: `fits(merged(schema, shape), shape)`.

A row proves of its columns that they are there, their base types and signedness; with flags (Open
Protocol, Craft) also their nullability and the handle key; spelled types (Canal-JSON) also sizes
and labels. Facts that a row does not have stay as they are known, or unknown, which is never a
guess and loses nothing:

    what is not said              how the schema has it           what values become
    sign of an integer                decimal -1                  numbers of either range
    precision and scale of DECIMAL    length 0                    text as sent
    fraction of the time types        length 0, decimal -1        text as sent
    labels of ENUM and SET            no elements                 the index, the bit mask as text
    bits of BIT                       length 0                    up to 64 bits
    character set                     charset "" (text is UTF-8 whatever it is)
    other lengths, defaults, indexes  length 0, no default, no index

A column that the schema has and a row lacks proves nothing: virtual generated columns are never in
rows, and an image may be cut.

The base type and the handle key of a column with flags are current, but the flags may be of an
earlier type or empty (`wire.open.reference`). So flags of 0, apart from the handle key, say nothing
of a type. Flags decide whether a column is UNSIGNED, and whether it holds text or bytes, only where
no DDL or export did, which give a column its length and its character set. `respelling` reads
values that were sent under other flags.

Source of flags and spelled types: `initColumnsFlag` in cdc/model/schema_storage.go and
`GetMySQLType` in pkg/sink/codec/utils of pingcap/tiflow, `FieldType.CompactStr` of pingcap/tidb
pkg/parser/types.
"""

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Final

from ticdc_assets.model.mysql_types import (
    CLOCK_LENGTHS,
    INTEGER_BITS,
    Kind,
    base_type,
    bit_width,
    decimal_size,
    declared_length,
    fractional_digits,
    is_unsigned,
    kind_of,
    lacks_sign,
    lacks_size,
)
from ticdc_assets.model.schemas import (
    ColumnFlag,
    ColumnSchema,
    IndexSchema,
    RowShape,
    SentColumn,
    TableSchema,
    unfit_for_keys,
)
from ticdc_assets.registry.inference.columns import (
    BINARY,
    BINARY_TWINS,
    FIXED_LENGTHS,
    HIDDEN_COLUMNS,
    LABELLED_TYPES,
    ROW_ID,
    TEXT_TYPES,
    clock_length,
    finished_indexes,
    free_index_name,
    labels_length,
)

# ------------------------------------------------------------------------------ rows to schemas


def schema_of_shape(
    shape: RowShape, *, database: str, table: str, table_id: int, version: int
) -> TableSchema:
    """Return the schema of a table from a row of `shape` alone."""
    nothing = replace(NO_TABLE, database=database, table=table, table_id=table_id)
    return merged(nothing, shape, version=version)


NO_TABLE: Final = TableSchema(database="", table="", table_id=0, version=0, columns=(), indexes=())


def fits(schema: TableSchema, shape: RowShape) -> bool:
    """Return whether a row of `shape` can be a row of a table with `schema`.

    All columns sent are there by their exact names, with the same base type and signedness and,
    where they were sent, sizes and labels; and the key is the row's.
    """
    columns = {column.name: column for column in schema.columns}
    sized = _is_sized(shape)
    for sent in shape.columns:
        present = columns.get(sent.name)
        if present is None or present.virtual or not _agrees(present, sent, sized=sized):
            return False
    handle = _handle_key(shape)
    if (
        handle is not None
        and handle != set(schema.handle_key)
        and not _is_of_no_key(handle, schema.own_indexes, schema.columns)
    ):
        return False
    primary = _primary_key(shape)
    return primary is None or set(primary) == set(_primary_columns(schema.own_indexes))


def merged(schema: TableSchema, shape: RowShape, *, version: int) -> TableSchema:
    """Return `schema` with what a row of `shape` proves: columns, types and key.

    New columns follow the column sent before them.
    """
    columns = list(schema.columns)
    indexes = list(schema.own_indexes)
    sized = _is_sized(shape)
    sent_names = {sent.name for sent in shape.columns}
    places = {column.name: number for number, column in enumerate(columns)}
    free = {column.name.lower(): column.name for column in columns if column.name not in sent_names}
    renamed: dict[str, str] = {}
    after: dict[str | None, list[ColumnSchema]] = {}
    previous: str | None = None
    done: set[str] = set()
    for sent in shape.columns:
        if sent.name in done:
            continue
        done.add(sent.name)
        old = sent.name if sent.name in places else free.pop(sent.name.lower(), None)
        if old is None:
            after.setdefault(previous, []).append(_new_column(sent, sized=sized))
        else:
            if old != sent.name:
                renamed[old] = sent.name
            number = places[old]
            columns[number] = _corrected(columns[number], sent, sized=sized)
            previous = sent.name
    if after:
        grown = after.get(None, [])
        for column in columns:
            grown.append(column)
            grown.extend(after.get(column.name, ()))
        columns = grown
    if renamed:
        indexes = [
            replace(index, columns=tuple(renamed.get(name, name) for name in index.columns))
            for index in indexes
        ]
    columns, indexes = _with_key(columns, indexes, shape)
    indexes = finished_indexes(indexes, columns)
    return replace(schema, version=version, columns=tuple(columns), indexes=indexes)


def _is_sized(shape: RowShape) -> bool:
    """Return whether the types are spelled with sizes, so that a type without one is plain."""
    return any(column.flags is None and "(" in column.mysql_type for column in shape.columns)


def _handle_key(shape: RowShape) -> set[str] | None:
    """Return the columns of the handle key, or None where the row does not have it."""
    flags = {column.name: column.flags for column in shape.columns}
    if not flags or None in flags.values():
        return None
    marked = {name for name, flag in flags.items() if flag and flag & ColumnFlag.HANDLE_KEY}
    # Numbers and times have at least the flag BINARY.
    unsaid = any(map(_says_nothing, shape.columns))
    return None if unsaid and not marked else marked


def _is_of_no_key(
    handle: Collection[str], indexes: Iterable[IndexSchema], columns: Iterable[ColumnSchema]
) -> bool:
    """Return whether marked columns are those of a key that identifies no row.

    The new TiCDC chooses a key with virtual columns too (`initIndexColumns` in
    pkg/common/table_info_helper.go of pingcap/ticdc), though rows have only its other columns. Each
    TiCDC chooses a key that holds for the rows of its WHERE alone.
    """
    by_name = {column.name: column for column in columns}
    for index in indexes:
        members = [by_name[name] for name in index.columns if name in by_name]
        sent = {column.name for column in members if not column.virtual}
        if (
            index.unique
            and (index.partial or len(sent) < len(members))
            and sent == set(handle)
            and not any(column.nullable for column in members)
        ):
            return True
    return False


def _says_nothing(sent: SentColumn) -> bool:
    """Return whether a column has flags that say nothing of its type (so of NOT NULL text)."""
    return sent.flags is not None and not sent.flags & ~ColumnFlag.HANDLE_KEY


def _primary_columns(indexes: Iterable[IndexSchema]) -> tuple[str, ...]:
    return next((index.columns for index in indexes if index.primary and index.columns), ())


def _primary_key(shape: RowShape) -> tuple[str, ...] | None:
    """Return the columns of the primary key, or None where the row does not have it."""
    if shape.primary_key is None:
        return None
    sent = {column.name for column in shape.columns}
    return tuple(dict.fromkeys(name for name in shape.primary_key if name in sent))


# ------------------------------------------------------------------------------ one column of a row

_NUMBERS: Final = re.compile(r"[0-9]{1,10}")
_LABEL: Final = re.compile(r"'((?:[^']|'')*+)'")
_ESCAPED: Final = re.compile(r"''|\\0|\\n|\\r")
_MEANINGS: Final = {"''": "'", r"\0": "\0", r"\n": "\n", r"\r": "\r"}
_ESCAPES: Final = str.maketrans({"'": "''", "\0": r"\0", "\n": r"\n", "\r": r"\r"})


def _proven(sent: SentColumn, *, sized: bool) -> ColumnSchema:
    spelled = ColumnSchema(name=sent.name, mysql_type=sent.mysql_type)
    mysql_type = base_type(spelled)
    arguments, words = _pieces(sent.mysql_type)
    flags = sent.flags
    if flags and flags & ColumnFlag.BINARY:
        # Values that are written as text may be in a column of bytes.
        mysql_type = BINARY_TWINS.get(mysql_type, mysql_type)
    zerofill = mysql_type == "year" or "zerofill" in words
    column = ColumnSchema(
        name=sent.name,
        mysql_type=mysql_type,
        charset="" if mysql_type in TEXT_TYPES else BINARY,
        collation="" if mysql_type in TEXT_TYPES else BINARY,
        length=FIXED_LENGTHS.get(mysql_type, 0),
        unsigned=(
            mysql_type in ("bit", "year")
            or zerofill
            or "unsigned" in words
            or bool(flags and flags & ColumnFlag.UNSIGNED)
        ),
        zerofill=zerofill,
        nullable=flags is None or _says_nothing(sent) or bool(flags & ColumnFlag.NULLABLE),
    )
    if mysql_type in INTEGER_BITS and _says_nothing(sent):
        return replace(column, decimal=-1)
    if mysql_type in LABELLED_TYPES and arguments:
        labels = tuple(
            _ESCAPED.sub(lambda match: _MEANINGS[match[0]], label)
            for label in _LABEL.findall(arguments)
        )
        return replace(column, elements=labels, length=labels_length(mysql_type, labels))
    numbers = [int(number) for number in _NUMBERS.findall(arguments or "")[:2]]
    if mysql_type in CLOCK_LENGTHS:
        if not sized and not numbers:
            return replace(column, decimal=-1)
        digits = min(numbers[0], 6) if numbers else 0
        return replace(column, length=clock_length(mysql_type, digits), decimal=digits)
    if not numbers or mysql_type in FIXED_LENGTHS:
        return column
    scale = numbers[1] if len(numbers) > 1 and mysql_type in _SCALED else 0
    return replace(column, length=numbers[0], decimal=scale)


def _new_column(sent: SentColumn, *, sized: bool) -> ColumnSchema:
    """Return the column of a table if `sent` is its first description."""
    column = _proven(sent, sized=sized)
    hidden = HIDDEN_COLUMNS.get(sent.name)
    return column if hidden is None or not _agrees(hidden, sent, sized=sized) else hidden


_SCALED: Final = frozenset({"decimal", "float", "double"})


def _pieces(spelled: str) -> tuple[str | None, list[str]]:
    """Return what is between the outer parentheses of a spelled type, and the words around them."""
    start, end = spelled.find("("), spelled.rfind(")")
    if not 0 <= start < end:
        return None, spelled.lower().split()
    return spelled[start + 1 : end], f"{spelled[:start]} {spelled[end + 1 :]}".lower().split()


def _spelled_labels(labels: Iterable[str]) -> str:
    # TiDB does not escape backslashes, so two labels may be spelled the same.
    return ",".join(f"'{label.translate(_ESCAPES)}'" for label in labels)


def stored_type(column: ColumnSchema) -> str:
    """Return the base type under which TiDB stores the column; text in charset binary is bytes."""
    mysql_type = base_type(column)
    if kind_of(column) is Kind.BINARY:
        return BINARY_TWINS.get(mysql_type, mysql_type)
    return "date" if mysql_type == "newdate" else mysql_type


_SIGNED_KINDS: Final = frozenset({Kind.INTEGER, Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE})

_Facts = Callable[[ColumnSchema], object]

_FACTS: Final[dict[Kind, _Facts]] = {
    Kind.DECIMAL: decimal_size,
    **dict.fromkeys((Kind.DATETIME, Kind.TIMESTAMP, Kind.TIME), fractional_digits),
    Kind.BIT: bit_width,
    Kind.VECTOR: declared_length,
}
"""The sizes that decide what values are."""


def _agrees(column: ColumnSchema, sent: SentColumn, *, sized: bool) -> bool:
    proven = _proven(sent, sized=sized)
    if stored_type(column) != stored_type(proven):
        return sent.flags is not None and _holds(column, proven)
    kind = kind_of(proven)
    if kind in _SIGNED_KINDS and not _agrees_on_sign(column, sent, proven):
        return False
    if lacks_size(proven):
        return True
    if lacks_size(column):
        return False
    if kind in (Kind.ENUM, Kind.SET):
        return column.elements == proven.elements or (
            _spelled_labels(column.elements) == _pieces(sent.mysql_type)[0]
        )
    facts = _FACTS.get(kind)
    if facts is None or (kind in _SIZED_BY_LENGTH and declared_length(proven) == 0):
        return True
    return facts(column) == facts(proven)


def _holds(column: ColumnSchema, proven: ColumnSchema) -> bool:
    """Return whether `column`, a twin of `proven`, holds text or bytes whatever the flags say.

    Bytes can hold text, so flags do not turn known bytes into text. Text has a character set if a
    DDL or an export described it.
    """
    stored, said = stored_type(column), stored_type(proven)
    if BINARY_TWINS.get(said) == stored:
        return True
    return BINARY_TWINS.get(stored) == said and bool(column.charset)


def _agrees_on_sign(column: ColumnSchema, sent: SentColumn, proven: ColumnSchema) -> bool:
    if _says_nothing(sent) or (sent.flags is not None and column.length > 0):
        return True
    return is_unsigned(column) == is_unsigned(proven) and not lacks_sign(column)


_KEY_FLAGS: Final = ColumnFlag.PRIMARY_KEY | ColumnFlag.UNIQUE_KEY | ColumnFlag.MULTIPLE_KEY

_SIZED_BY_LENGTH: Final = frozenset({Kind.BIT, Kind.VECTOR})


def _corrected(column: ColumnSchema, sent: SentColumn, *, sized: bool) -> ColumnSchema:
    nullable = column.nullable
    if sent.flags is not None and not _says_nothing(sent):
        nullable = bool(sent.flags & ColumnFlag.NULLABLE)
    if _agrees(column, sent, sized=sized):
        return replace(column, name=sent.name, nullable=nullable, virtual=False)
    proven = replace(_proven(sent, sized=sized), nullable=nullable)
    if kind_of(column) is kind_of(proven):
        proven = replace(proven, default=column.default)
    if proven.mysql_type in TEXT_TYPES and column.mysql_type in TEXT_TYPES:
        proven = replace(proven, charset=column.charset, collation=column.collation)
        # A known charset must not turn values that were sent as text into bytes.
        if stored_type(proven) != proven.mysql_type:
            proven = replace(proven, charset="", collation="")
    if stored_type(column) == stored_type(proven) and lacks_size(proven):
        return replace(
            proven, length=column.length, decimal=column.decimal, elements=column.elements
        )
    return proven


# ----------------------------------------------------------------------------------------- keys


def _with_key(
    columns: list[ColumnSchema], indexes: list[IndexSchema], shape: RowShape
) -> tuple[list[ColumnSchema], list[IndexSchema]]:
    """Return the columns and indexes of a table with the key of a row, as far as it shows."""
    # A table has one primary key; a schema that names two means the first.
    primary = next((index for index in indexes if index.primary and index.columns), None)
    indexes = [index for index in indexes if not index.primary or index is primary]
    # A row has the names of its primary key, or flags.
    named = _primary_key(shape)
    if named is not None:
        return _required(columns, named), _with_primary_key(indexes, named)
    handle = _handle_key(shape)
    if handle is None or _is_of_no_key(handle, indexes, columns):
        return columns, indexes
    marked = [column for column in shape.columns if column.name in handle]
    names = tuple(dict.fromkeys(column.name for column in marked))
    columns = _required(columns, names)
    of_no_kind = not any((column.flags or 0) & _KEY_FLAGS for column in marked)
    table = replace(NO_TABLE, columns=tuple(columns), indexes=tuple(indexes))
    if marked and of_no_kind and set(table.handle_key) == handle:
        return columns, indexes
    flags = [column.flags or 0 for column in marked]
    is_primary = bool(flags) and all(flag & ColumnFlag.PRIMARY_KEY for flag in flags)
    indexes = _with_primary_key(indexes, names if is_primary else ())
    if is_primary:
        return columns, indexes
    if names and all(not index.unique or set(index.columns) != handle for index in indexes):
        # Under the name that TiDB would give it.
        name = free_index_name(names[0], {index.name.lower() for index in indexes})
        indexes.append(_index(name, names, primary=False))
    # TiCDC takes the unique key with the fewest columns, and of equally short ones the first, so a
    # shorter one cannot count.
    unfit = unfit_for_keys(columns)
    chosen: list[IndexSchema] = []
    others: list[IndexSchema] = []
    for index in indexes:
        if index.unique and index.columns and set(index.columns) == handle:
            chosen.append(index)
        elif (
            index.unique
            and unfit.isdisjoint(index.columns)
            and (not handle or len(index.columns) < len(handle))
        ):
            others.append(replace(index, unique=False))
        else:
            others.append(index)
    return columns, chosen + others


def _required(columns: list[ColumnSchema], names: Collection[str]) -> list[ColumnSchema]:
    return [
        replace(column, nullable=False) if column.name in names and column.nullable else column
        for column in columns
    ]


def _with_primary_key(indexes: list[IndexSchema], names: tuple[str, ...]) -> list[IndexSchema]:
    """Return the indexes with the primary key over these columns, () for none."""
    if set(names) == set(_primary_columns(indexes)):
        return indexes
    others = [index for index in indexes if not index.primary]
    return [*others, _index(ROW_ID, names, primary=True)] if names else others


def _index(name: str, columns: tuple[str, ...], *, primary: bool) -> IndexSchema:
    return IndexSchema(name=name, unique=True, primary=primary, nullable=False, columns=columns)


# ------------------------------------------------------------------------------ schemas to rows


def spelled_type(column: ColumnSchema, *, full: bool) -> str:
    """Return the type of `column` as Canal-JSON spells it, `full` with sizes and labels."""
    text = stored_type(column)
    if full:
        text += _spelled_arguments(column)
    kind = kind_of(column)
    if is_unsigned(column) and kind not in (Kind.BIT, Kind.YEAR):
        text += " unsigned"
    if column.zerofill and kind is not Kind.YEAR:
        text += " zerofill"
    return text


def _spelled_arguments(column: ColumnSchema) -> str:
    if lacks_size(column):
        return ""
    match kind_of(column):
        case Kind.ENUM | Kind.SET:
            return f"({_spelled_labels(column.elements)})"
        case Kind.DECIMAL:
            return f"({column.length},{max(column.decimal, 0)})"
        case Kind.FLOAT | Kind.DOUBLE:
            return f"({column.length},{column.decimal})" if column.decimal > 0 else ""
        case Kind.DATETIME | Kind.TIMESTAMP | Kind.TIME:
            digits = fractional_digits(column)
            return f"({digits})" if digits else ""
        case Kind.INTEGER | Kind.BIT | Kind.YEAR | Kind.VECTOR | Kind.TEXT | Kind.BINARY:
            sized = column.length > 0 and not base_type(column).endswith(("text", "blob"))
            return f"({column.length})" if sized else ""
        case Kind.DATE | Kind.JSON | Kind.UNKNOWN:
            return ""
