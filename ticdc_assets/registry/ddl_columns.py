"""Column and index definitions, as CREATE TABLE and ALTER TABLE write them.

In: a `Cursor` that stands on a definition. Out: `ColumnDefinition`, `IndexDefinition`, or None
where there is none. What is not understood is noted on the cursor's tokens; the words around it
still count. Type words become those of the Simple protocol, so that a definition and a schema
that TiCDC sent can be compared.

Not here: what only the server's settings decide. A REAL is a double (REAL_AS_FLOAT is not
transmitted), NCHAR has the table's charset as in TiDB, and a TIMESTAMP without NULL is nullable
(TiDB's explicit_defaults_for_timestamp).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from ticdc_assets.registry.ddl_statement import (
    NO_DEFAULT,
    ColumnDefinition,
    DefaultKind,
    DefaultValue,
    GeneratedKind,
    IndexDefinition,
    IndexKind,
    IndexPart,
    LiteralForm,
)
from ticdc_assets.registry.ddl_tokens import BITS, HEX, NUMBER, WORD, Cursor

_CHARSET_OF_TIDB: Final = "utf8mb4"
_MAX_BYTES_OF_CHARACTER: Final = {
    "utf8mb4": 4,
    "gb18030": 4,
    "utf32": 4,
    "utf16": 4,
    "utf8": 3,
    "utf8mb3": 3,
    "gbk": 2,
    "ucs2": 2,
    "latin1": 1,
    "ascii": 1,
    "binary": 1,
}
_BINARY_TWIN: Final = {
    "char": "binary",
    "varchar": "varbinary",
    "tinytext": "tinyblob",
    "text": "blob",
    "mediumtext": "mediumblob",
    "longtext": "longblob",
}
_TEXT_BY_CAPACITY: Final = ((255, "tiny"), (65535, ""), (16777215, "medium"))


class _Numbers(StrEnum):
    """What the parentheses after a type word hold."""

    NOTHING = "nothing"
    LENGTH = "length"
    FRACTION = "fraction"
    DECIMAL = "decimal"
    FLOAT = "float"
    LABELS = "labels"


@dataclass(frozen=True, slots=True, kw_only=True)
class _TypeRule:
    mysql_type: str
    numbers: _Numbers = _Numbers.NOTHING
    length: int | None = None


def _rules() -> dict[str, _TypeRule]:
    rules: dict[str, _TypeRule] = {}

    def add(words: str, mysql_type: str, numbers: _Numbers, length: int | None = None) -> None:
        rule = _TypeRule(mysql_type=mysql_type, numbers=numbers, length=length)
        rules.update(dict.fromkeys(words.split(), rule))

    add("TINYINT INT1", "tinyint", _Numbers.LENGTH)
    add("BOOL BOOLEAN", "tinyint", _Numbers.NOTHING, 1)
    add("SMALLINT INT2", "smallint", _Numbers.LENGTH)
    add("MEDIUMINT MIDDLEINT INT3", "mediumint", _Numbers.LENGTH)
    add("INT INTEGER INT4", "int", _Numbers.LENGTH)
    add("BIGINT INT8 SERIAL", "bigint", _Numbers.LENGTH)
    add("DECIMAL NUMERIC DEC FIXED", "decimal", _Numbers.DECIMAL)
    add("FLOAT FLOAT4", "float", _Numbers.FLOAT)
    add("DOUBLE FLOAT8 REAL", "double", _Numbers.FLOAT)
    add("BIT", "bit", _Numbers.LENGTH, 1)
    add("DATE", "date", _Numbers.NOTHING)
    add("DATETIME", "datetime", _Numbers.FRACTION)
    add("TIMESTAMP", "timestamp", _Numbers.FRACTION)
    add("TIME", "time", _Numbers.FRACTION)
    add("YEAR SQL_TSI_YEAR", "year", _Numbers.LENGTH)
    add("CHAR CHARACTER NCHAR", "char", _Numbers.LENGTH, 1)
    add("VARCHAR VARCHARACTER NVARCHAR VARYING", "varchar", _Numbers.LENGTH)
    add("BINARY", "binary", _Numbers.LENGTH, 1)
    add("VARBINARY", "varbinary", _Numbers.LENGTH)
    add("TINYTEXT", "tinytext", _Numbers.LENGTH)
    add("TEXT", "text", _Numbers.LENGTH)
    add("MEDIUMTEXT LONG", "mediumtext", _Numbers.LENGTH)
    add("LONGTEXT", "longtext", _Numbers.LENGTH)
    add("TINYBLOB", "tinyblob", _Numbers.LENGTH)
    add("BLOB", "blob", _Numbers.LENGTH)
    add("MEDIUMBLOB", "mediumblob", _Numbers.LENGTH)
    add("LONGBLOB", "longblob", _Numbers.LENGTH)
    add("ENUM", "enum", _Numbers.LABELS)
    add("SET", "set", _Numbers.LABELS)
    add("JSON", "json", _Numbers.NOTHING)
    add("VECTOR", "vector", _Numbers.LENGTH)
    geometries = "GEOMETRY POINT LINESTRING POLYGON MULTIPOINT MULTILINESTRING MULTIPOLYGON"
    for word in (*geometries.split(), "GEOMETRYCOLLECTION", "GEOMCOLLECTION"):
        add(word, word.lower(), _Numbers.NOTHING)
    return rules


_TYPES: Final = _rules()

# Types of several words, longest first, by their first word: the words and the rule they mean.
_LONG_TYPES: Final[dict[str, tuple[tuple[tuple[str, ...], str], ...]]] = {
    "DOUBLE": ((("DOUBLE", "PRECISION"), "DOUBLE"),),
    "CHAR": ((("CHAR", "VARYING"), "VARCHAR"),),
    "CHARACTER": ((("CHARACTER", "VARYING"), "VARCHAR"),),
    "NCHAR": (
        (("NCHAR", "VARYING"), "VARCHAR"),
        (("NCHAR", "VARCHAR"), "VARCHAR"),
        (("NCHAR", "VARCHARACTER"), "VARCHAR"),
    ),
    "NATIONAL": (
        (("NATIONAL", "CHAR", "VARYING"), "VARCHAR"),
        (("NATIONAL", "CHARACTER", "VARYING"), "VARCHAR"),
        (("NATIONAL", "VARCHAR"), "VARCHAR"),
        (("NATIONAL", "VARCHARACTER"), "VARCHAR"),
        (("NATIONAL", "CHAR"), "CHAR"),
        (("NATIONAL", "CHARACTER"), "CHAR"),
    ),
    "LONG": (
        (("LONG", "VARBINARY"), "MEDIUMBLOB"),
        (("LONG", "CHAR", "VARYING"), "MEDIUMTEXT"),
        (("LONG", "CHARACTER", "VARYING"), "MEDIUMTEXT"),
        (("LONG", "VARCHAR"), "MEDIUMTEXT"),
        (("LONG", "VARCHARACTER"), "MEDIUMTEXT"),
    ),
}


@dataclass(slots=True)
class _Column:
    """A column while its attributes are read."""

    mysql_type: str = ""
    length: int | None = None
    decimal: int | None = None
    unsigned: bool = False
    zerofill: bool = False
    charset: str | None = None
    collation: str | None = None
    binary_collation: bool = False
    elements: tuple[str, ...] = ()
    nullable: bool = True
    default: DefaultValue = NO_DEFAULT
    on_update: str | None = None
    auto_increment: bool = False
    auto_random: bool = False
    primary_key: bool = False
    unique: bool = False
    comment: str | None = None
    generated: GeneratedKind | None = None
    generated_expression: str | None = None
    clustered: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnClause:
    """A column definition and the index that its own attributes make, if any."""

    column: ColumnDefinition
    indexes: tuple[IndexDefinition, ...]


def take_column(cursor: Cursor) -> ColumnClause | None:
    """Take `name type attribute...`; None, with a note, if no name or type stands here."""
    name = cursor.take_column_name()
    if name is None:
        cursor.missing()
        return None
    return take_column_definition(cursor, name)


def take_column_definition(cursor: Cursor, name: str) -> ColumnClause | None:
    """Take `type attribute...` of the column called `name`, the type as it is written."""
    column = _Column()
    if not _take_type(cursor, column):
        cursor.missing()
        return None
    while (word := cursor.word()) and (attribute := _ATTRIBUTES.get(word)) is not None:
        start = cursor.at
        cursor.at += 1
        if not attribute(cursor, column):
            cursor.at = start
            break
    if column.charset is None and column.collation is not None:
        column.charset = column.collation.partition("_")[0]
    definition = ColumnDefinition(
        name=name,
        mysql_type=column.mysql_type,
        length=column.length,
        decimal=column.decimal,
        unsigned=column.unsigned,
        zerofill=column.zerofill,
        charset=column.charset,
        collation=column.collation,
        binary_collation=column.binary_collation,
        elements=column.elements,
        nullable=column.nullable,
        default=column.default,
        on_update=column.on_update,
        auto_increment=column.auto_increment,
        auto_random=column.auto_random,
        primary_key=column.primary_key,
        unique=column.unique,
        comment=column.comment,
        generated=column.generated,
        generated_expression=column.generated_expression,
    )
    indexes: list[IndexDefinition] = []
    part = (IndexPart(column=name),)
    if column.primary_key:
        indexes.append(
            IndexDefinition(
                name=None, kind=IndexKind.PRIMARY, parts=part, clustered=column.clustered
            )
        )
    if column.unique:
        indexes.append(IndexDefinition(name=None, kind=IndexKind.UNIQUE, parts=part))
    return ColumnClause(column=definition, indexes=tuple(indexes))


def with_charset(column: ColumnDefinition, table_charset: str | None) -> ColumnDefinition:
    """Return `column` with the type its character set makes of it, as the server stores it.

    Text in charset `binary` is bytes, and TEXT(n) is the smallest text that holds n characters.
    Where neither the column nor the table names a charset it is TiDB's, utf8mb4.
    """
    charset = column.charset or table_charset or _CHARSET_OF_TIDB
    mysql_type, length, text_length = column.mysql_type, column.length, column.text_length
    if mysql_type in ("text", "blob") and length is not None:
        text_length = length
        width = 1 if mysql_type == "blob" else _MAX_BYTES_OF_CHARACTER.get(charset, 1)
        size = next((size for most, size in _TEXT_BY_CAPACITY if length * width <= most), "long")
        mysql_type, length = size + mysql_type, None
    if charset == "binary":
        mysql_type = _BINARY_TWIN.get(mysql_type, mysql_type)
    if (mysql_type, length) == (column.mysql_type, column.length):
        return column
    return replace(column, mysql_type=mysql_type, length=length, text_length=text_length)


def _take_type(cursor: Cursor, column: _Column) -> bool:
    first = cursor.word()
    if not first:
        return False
    for words, meaning in _LONG_TYPES.get(first, ()):
        if cursor.take(*words):
            rule = _TYPES[meaning]
            break
    else:
        found = _TYPES.get(first)
        if found is None:
            start = cursor.at
            cursor.at += 1
            cursor.take_group()
            cursor.tokens.note(
                cursor.tokens.starts[start], cursor.tokens.ends[max(start, cursor.at - 1)]
            )
            column.mysql_type = first.lower()
            return True
        cursor.at += 1
        rule = found
    if first == "VECTOR" and cursor.is_char("<"):
        # VECTOR<FLOAT>(3): the element type can only be FLOAT so far.
        for _ in range(3):
            cursor.skip_token()
    if first == "SERIAL":
        column.unsigned = column.auto_increment = column.unique = True
        column.nullable = False
    column.mysql_type = rule.mysql_type
    column.length = rule.length
    _NUMBERS[rule.numbers](cursor, column)
    return True


def _take_numbers(cursor: Cursor) -> list[int]:
    """Take `(n)` or `(n, m)`."""
    group = cursor.take_group()
    numbers: list[int] = []
    while group is not None and not group.done:
        number = group.take_integer()
        if number is None or (not group.take_char(",") and not group.done):
            group.expect_done()
            break
        numbers.append(number)
    return numbers


def _no_numbers(cursor: Cursor, column: _Column) -> None:
    del cursor, column


def _length(cursor: Cursor, column: _Column) -> None:
    numbers = _take_numbers(cursor)
    if numbers:
        column.length = numbers[0]


def _fraction(cursor: Cursor, column: _Column) -> None:
    numbers = _take_numbers(cursor)
    if numbers:
        column.decimal = numbers[0]


def _decimal(cursor: Cursor, column: _Column) -> None:
    numbers = _take_numbers(cursor)
    column.length = numbers[0] if numbers else 10
    column.decimal = numbers[1] if len(numbers) > 1 else 0


def _float(cursor: Cursor, column: _Column) -> None:
    numbers = _take_numbers(cursor)
    if len(numbers) > 1:
        column.length, column.decimal = numbers[0], numbers[1]
    elif numbers and numbers[0] > 24:
        column.mysql_type = "double"


def _labels(cursor: Cursor, column: _Column) -> None:
    group = cursor.take_group()
    if group is None:
        cursor.missing()
        return
    labels: list[str] = []
    while not group.done:
        start = group.at
        label = group.take_string()
        if label is None and group.kind() in (HEX, BITS):
            literal = _take_literal(group)
            label = None if literal is None else _decoded(literal)
        if label is None or (not group.take_char(",") and not group.done):
            group.at = start
            group.expect_done()
            break
        # Both servers cut trailing blanks off labels.
        labels.append(label.rstrip(" "))
    column.elements = tuple(labels)


_NUMBERS: Final[dict[_Numbers, Callable[[Cursor, _Column], None]]] = {
    _Numbers.NOTHING: _no_numbers,
    _Numbers.LENGTH: _length,
    _Numbers.FRACTION: _fraction,
    _Numbers.DECIMAL: _decimal,
    _Numbers.FLOAT: _float,
    _Numbers.LABELS: _labels,
}


def _decoded(literal: DefaultValue) -> str | None:
    """Return the text that a hexadecimal or bit literal spells in UTF-8."""
    digits = literal.value or ""
    if literal.form is LiteralForm.BITS:
        digits = f"{int(digits or '0', 2):x}"
        digits = digits.zfill(len(digits) + len(digits) % 2)
    try:
        return bytes.fromhex(digits).decode()
    except UnicodeDecodeError:
        return None


def take_default(cursor: Cursor) -> DefaultValue | None:
    """Take what stands after DEFAULT or SET DEFAULT."""
    start = cursor.at
    constant = _take_constant(cursor)
    if constant is not None:
        return constant
    group = cursor.take_group()
    if group is None and not _take_call(cursor):
        return None
    text = cursor.text(start)
    while group is not None and not group.done:
        # A constant in parentheses is that constant.
        constant = _take_constant(group)
        if constant is not None and group.done:
            return replace(constant, text=text)
        inner = group.take_group()
        group = inner if group.done else None
    return DefaultValue(kind=DefaultKind.EXPRESSION, text=text)


def _take_constant(cursor: Cursor) -> DefaultValue | None:
    start = cursor.at
    if cursor.take("NULL"):
        return DefaultValue(kind=DefaultKind.NULL, text=cursor.text(start))
    return _take_literal(cursor)


def _take_literal(cursor: Cursor) -> DefaultValue | None:
    start = cursor.at
    form, value = LiteralForm.STRING, None
    if cursor.word() in ("DATE", "TIME", "TIMESTAMP") and cursor.is_string(1):
        cursor.at += 1
    introduced = cursor.kind() == WORD and cursor.raw().startswith("_")
    if introduced and cursor.kind(1) in (HEX, BITS):
        cursor.at += 1
    kind = cursor.kind()
    if kind == HEX:
        digits = cursor.raw()[2:].removesuffix("'").lower()
        form, value = LiteralForm.HEX, digits.zfill(len(digits) + len(digits) % 2)
        cursor.at += 1
    elif kind == BITS:
        form, value = LiteralForm.BITS, cursor.raw()[2:].removesuffix("'")
        cursor.at += 1
    elif word := cursor.take_any(("TRUE", "FALSE")):
        form, value = LiteralForm.NUMBER, str(int(word == "TRUE"))
    elif (sign := cursor.is_char("-") or cursor.is_char("+")) or kind == NUMBER:
        negative = cursor.is_char("-")
        if not sign or cursor.kind(1) == NUMBER:
            cursor.at += int(sign)
            form, value = LiteralForm.NUMBER, ("-" if negative else "") + cursor.raw()
            cursor.at += 1
    else:
        value = cursor.take_string()
    if value is None:
        cursor.at = start
        return None
    return DefaultValue(kind=DefaultKind.LITERAL, text=cursor.text(start), form=form, value=value)


def _take_call(cursor: Cursor) -> bool:
    """Take `CURRENT_TIMESTAMP`, `now(6)`, `NEXT VALUE FOR s` or any other call."""
    if cursor.take("NEXT", "VALUE", "FOR"):
        return cursor.take_table_name() is not None
    if not cursor.word():
        return False
    cursor.at += 1
    cursor.take_group()
    return True


_Attribute = Callable[[Cursor, _Column], bool]


def _set_unsigned(cursor: Cursor, column: _Column) -> bool:
    del cursor
    column.unsigned = True
    return True


def _set_signed(cursor: Cursor, column: _Column) -> bool:
    del cursor, column
    return True


def _set_zerofill(cursor: Cursor, column: _Column) -> bool:
    del cursor
    column.unsigned = column.zerofill = True
    return True


def take_charset_name(cursor: Cursor) -> str | None:
    """Take `[=] name` of a character set or collation, in lower case."""
    cursor.take_char("=")
    name = cursor.take_string() if cursor.is_string() else cursor.take_name()
    return None if name is None else name.lower()


def _set_charset(cursor: Cursor, column: _Column) -> bool:
    column.charset = take_charset_name(cursor)
    return column.charset is not None


def _set_character_set(cursor: Cursor, column: _Column) -> bool:
    return cursor.take("SET") and _set_charset(cursor, column)


def _set_collation(cursor: Cursor, column: _Column) -> bool:
    column.collation = take_charset_name(cursor)
    return column.collation is not None


def _fixed_charset(charset: str) -> _Attribute:
    def attribute(cursor: Cursor, column: _Column) -> bool:
        del cursor
        column.charset = charset
        return True

    return attribute


def _set_binary(cursor: Cursor, column: _Column) -> bool:
    del cursor
    column.binary_collation = True
    return True


def _set_not(cursor: Cursor, column: _Column) -> bool:
    if not cursor.take("NULL"):
        return False
    column.nullable = False
    return True


def _set_null(cursor: Cursor, column: _Column) -> bool:
    del cursor, column
    return True


def _set_default(cursor: Cursor, column: _Column) -> bool:
    default = take_default(cursor)
    if default is None:
        return False
    column.default = default
    return True


def _set_on(cursor: Cursor, column: _Column) -> bool:
    if not cursor.take("UPDATE"):
        return False
    start = cursor.at
    if not _take_call(cursor):
        return False
    column.on_update = cursor.text(start)
    return True


def _set_auto_increment(cursor: Cursor, column: _Column) -> bool:
    del cursor
    column.auto_increment = True
    return True


def _set_auto_random(cursor: Cursor, column: _Column) -> bool:
    cursor.take_group()
    column.auto_random = True
    return True


def _set_primary(cursor: Cursor, column: _Column) -> bool:
    return cursor.take("KEY") and _set_key(cursor, column)


def _set_key(cursor: Cursor, column: _Column) -> bool:
    word = cursor.take_any(("CLUSTERED", "NONCLUSTERED"))
    column.clustered = word == "CLUSTERED" if word else None
    cursor.take_any(("GLOBAL", "LOCAL"))
    column.primary_key = True
    column.nullable = False
    return True


def _set_unique(cursor: Cursor, column: _Column) -> bool:
    cursor.take_any(("KEY", "INDEX"))
    cursor.take_any(("GLOBAL", "LOCAL"))
    column.unique = True
    return True


def _set_comment(cursor: Cursor, column: _Column) -> bool:
    cursor.take_char("=")
    column.comment = cursor.take_string()
    return column.comment is not None


def _set_generated(cursor: Cursor, column: _Column) -> bool:
    return cursor.take("ALWAYS", "AS") and _set_as(cursor, column)


def _set_as(cursor: Cursor, column: _Column) -> bool:
    group = cursor.take_group()
    if group is None:
        return False
    column.generated_expression = group.text()
    # Without a word it is virtual; the word that follows may say otherwise.
    column.generated = column.generated or GeneratedKind.VIRTUAL
    return True


def _generated_kind(kind: GeneratedKind) -> _Attribute:
    def attribute(cursor: Cursor, column: _Column) -> bool:
        del cursor
        if column.generated is None:
            return False
        column.generated = kind
        return True

    return attribute


def _set_serial(cursor: Cursor, column: _Column) -> bool:
    if not cursor.take("DEFAULT", "VALUE"):
        return False
    column.auto_increment = column.unique = True
    column.nullable = False
    return True


def _skip_word(cursor: Cursor, column: _Column) -> bool:
    del column
    return bool(cursor.take_any(("FIXED", "DYNAMIC", "DEFAULT", "DISK", "MEMORY")))


def _skip_value(cursor: Cursor, column: _Column) -> bool:
    del column
    cursor.take_char("=")
    return cursor.take_string() is not None or cursor.take_integer() is not None


def _skip_nothing(cursor: Cursor, column: _Column) -> bool:
    del cursor, column
    return True


def _skip_references(cursor: Cursor, column: _Column) -> bool:
    del column
    return take_references(cursor)


def _skip_constraint(cursor: Cursor, column: _Column) -> bool:
    if cursor.word() not in _CONSTRAINT_WORDS:
        cursor.take_name()
    word = cursor.take_any(_CONSTRAINT_WORDS)
    return bool(word) and _ATTRIBUTES[word](cursor, column)


def _skip_check(cursor: Cursor, column: _Column) -> bool:
    del column
    if cursor.take_group() is None:
        return False
    take_enforced(cursor)
    return True


_CONSTRAINT_WORDS: Final = ("CHECK", "PRIMARY", "KEY", "UNIQUE", "REFERENCES", "NOT", "NULL")

_ATTRIBUTES: Final[dict[str, _Attribute]] = {
    "UNSIGNED": _set_unsigned,
    "SIGNED": _set_signed,
    "ZEROFILL": _set_zerofill,
    "CHARACTER": _set_character_set,
    "CHAR": _set_character_set,
    "CHARSET": _set_charset,
    "COLLATE": _set_collation,
    "ASCII": _fixed_charset("latin1"),
    "UNICODE": _fixed_charset("ucs2"),
    # MySQL makes bytes of CHAR BYTE; TiDB, which is what TiCDC reads, ignores the word.
    "BYTE": _skip_nothing,
    "BINARY": _set_binary,
    "NOT": _set_not,
    "NULL": _set_null,
    "DEFAULT": _set_default,
    "ON": _set_on,
    "AUTO_INCREMENT": _set_auto_increment,
    "AUTO_RANDOM": _set_auto_random,
    "PRIMARY": _set_primary,
    "KEY": _set_key,
    "UNIQUE": _set_unique,
    "COMMENT": _set_comment,
    "GENERATED": _set_generated,
    "AS": _set_as,
    "VIRTUAL": _generated_kind(GeneratedKind.VIRTUAL),
    "STORED": _generated_kind(GeneratedKind.STORED),
    "PERSISTENT": _generated_kind(GeneratedKind.STORED),
    "SERIAL": _set_serial,
    "COLUMN_FORMAT": _skip_word,
    "STORAGE": _skip_word,
    "ENGINE_ATTRIBUTE": _skip_value,
    "SECONDARY_ENGINE_ATTRIBUTE": _skip_value,
    "SRID": _skip_value,
    "VISIBLE": _skip_nothing,
    "INVISIBLE": _skip_nothing,
    "REFERENCES": _skip_references,
    "CONSTRAINT": _skip_constraint,
    "CHECK": _skip_check,
}


def take_enforced(cursor: Cursor) -> bool:
    """Take `[NOT] ENFORCED`."""
    return cursor.take("NOT", "ENFORCED") or cursor.take("ENFORCED")


def take_references(cursor: Cursor) -> bool:
    """Take what stands after REFERENCES: the table, its columns and the actions."""
    if cursor.take_table_name() is None:
        return False
    cursor.take_group()
    if cursor.take("MATCH"):
        cursor.take_any(("FULL", "PARTIAL", "SIMPLE"))
    while cursor.take("ON", "DELETE") or (
        # ON UPDATE CURRENT_TIMESTAMP belongs to the column again.
        cursor.word(2) in _REFERENCE_ACTIONS and cursor.take("ON", "UPDATE")
    ):
        if not cursor.take_any(_REFERENCE_ACTIONS):
            return False
        cursor.take_any(("NULL", "DEFAULT", "ACTION"))
    return True


_REFERENCE_ACTIONS: Final = ("RESTRICT", "CASCADE", "SET", "NO")

_INDEX_KINDS: Final = {
    "INDEX": IndexKind.PLAIN,
    "KEY": IndexKind.PLAIN,
    "UNIQUE": IndexKind.UNIQUE,
    "FULLTEXT": IndexKind.FULLTEXT,
    "SPATIAL": IndexKind.SPATIAL,
    "VECTOR": IndexKind.VECTOR,
    "COLUMNAR": IndexKind.COLUMNAR,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexClause:
    """An index or another constraint: `index` is None for foreign keys and checks."""

    name: str | None
    index: IndexDefinition | None
    conditional: bool


def stands_index(cursor: Cursor) -> bool:
    """Whether an index or constraint definition, not a column, stands here."""
    word = cursor.word()
    if word in ("VECTOR", "COLUMNAR"):
        # No reserved words: `vector` alone is a column's name.
        return cursor.word(1) in ("INDEX", "KEY")
    return word in _INDEX_KINDS or word in ("PRIMARY", "CONSTRAINT", "FOREIGN", "CHECK")


def take_index(cursor: Cursor) -> IndexClause | None:
    """Take an index or constraint definition of CREATE TABLE or ALTER TABLE ... ADD."""
    symbol: str | None = None
    if cursor.take("CONSTRAINT") and cursor.word() not in _CONSTRAINED:
        symbol = cursor.take_name()
    if cursor.take("CHECK"):
        if cursor.take_group() is None:
            cursor.missing()
            return None
        take_enforced(cursor)
        return IndexClause(name=symbol, index=None, conditional=False)
    if cursor.take("FOREIGN", "KEY"):
        conditional = take_if_exists(cursor)
        name = cursor.take_name()
        if cursor.take_group() is None or not (
            cursor.take("REFERENCES") and take_references(cursor)
        ):
            cursor.missing()
            return None
        return IndexClause(name=symbol or name, index=None, conditional=conditional)
    if cursor.take("PRIMARY", "KEY"):
        kind = IndexKind.PRIMARY
    elif word := cursor.take_any(_INDEX_KINDS):
        kind = _INDEX_KINDS[word]
        if word not in ("INDEX", "KEY"):
            cursor.take_any(("INDEX", "KEY"))
    else:
        cursor.missing()
        return None
    conditional = take_if_exists(cursor)
    name = take_index_name(cursor)
    if kind is IndexKind.PRIMARY:
        name = None
    elif name is None:
        name = symbol
    index = take_index_body(cursor, name, kind)
    return None if index is None else IndexClause(name=name, index=index, conditional=conditional)


_CONSTRAINED: Final = ("CHECK", "FOREIGN", "PRIMARY", "UNIQUE")


def take_if_exists(cursor: Cursor) -> bool:
    """Take `IF EXISTS` or `IF NOT EXISTS`."""
    return cursor.take("IF", "EXISTS") or cursor.take("IF", "NOT", "EXISTS")


def take_index_name(cursor: Cursor) -> str | None:
    """Take an index name, if there is one before the parentheses, and USING after it."""
    # USING can stand without a name; TYPE cannot, so a first `type` is the name.
    name = None if cursor.word() == "USING" else cursor.take_name()
    if cursor.word() in ("USING", "TYPE") and cursor.is_name(1):
        cursor.at += 2
    return name


def take_index_body(cursor: Cursor, name: str | None, kind: IndexKind) -> IndexDefinition | None:
    """Take the parts and options of an index."""
    group = cursor.take_group()
    if group is None:
        cursor.missing()
        return None
    parts: list[IndexPart] = []
    while not group.done:
        part = _take_part(group)
        if part is None or (not group.take_char(",") and not group.done):
            group.expect_done()
        if part is not None:
            parts.append(part)
    if not parts:
        group.missing()
        return None
    clustered: bool | None = None
    visible = True
    condition: str | None = None
    while word := cursor.take_any(_INDEX_OPTIONS):
        if word in ("CLUSTERED", "NONCLUSTERED"):
            clustered = word == "CLUSTERED"
        elif word in ("VISIBLE", "INVISIBLE"):
            visible = word == "VISIBLE"
        elif word == "WHERE":
            start = cursor.at
            cursor.skip_item()
            condition = cursor.text(start)
        elif word == "WITH":
            cursor.take("PARSER")
            cursor.take_name()
        elif word not in ("GLOBAL", "LOCAL", "ADD_COLUMNAR_REPLICA_ON_DEMAND"):
            cursor.take_char("=")
            cursor.skip_token()
    return IndexDefinition(
        name=name,
        kind=kind,
        parts=tuple(parts),
        clustered=clustered,
        visible=visible,
        condition=condition,
    )


_INDEX_OPTIONS: Final = frozenset(
    (
        "ADD_COLUMNAR_REPLICA_ON_DEMAND",
        "CLUSTERED",
        "COMMENT",
        "ENGINE_ATTRIBUTE",
        "GLOBAL",
        "INVISIBLE",
        "KEY_BLOCK_SIZE",
        "LOCAL",
        "NONCLUSTERED",
        "PRE_SPLIT_REGIONS",
        "SECONDARY_ENGINE_ATTRIBUTE",
        "TYPE",
        "USING",
        "VISIBLE",
        "WHERE",
        "WITH",
    )
)


def _take_part(cursor: Cursor) -> IndexPart | None:
    length: int | None = None
    column: str | None = None
    expression: str | None = None
    inside = cursor.take_group()
    if inside is not None:
        expression = inside.text()
    else:
        column = cursor.take_name()
        if column is None:
            return None
        numbers = _take_numbers(cursor)
        length = numbers[0] if numbers else None
    order = cursor.take_any(("ASC", "DESC"))
    return IndexPart(
        column=column, length=length, expression=expression, descending=order == "DESC"
    )
