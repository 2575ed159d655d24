"""Columns, indexes, defaults and literals, as CREATE and ALTER statements write them.

In: a `Cursor` at a definition. Out: `ColumnDefinition` and the indexes that its attributes create;
`IndexDefinition`, or the `AlterChange` that adds it; `DefaultValue` (a literal, or an expression as
its text), numbers and names; None where there is none. Foreign keys and checks are read to their
end and give no index: they do not concern a mirror's rows. Words that are not understood are noted
on the cursor's tokens; the words around them still count. Type words become those of the Simple
protocol, so that a definition and a schema that TiCDC sent can be compared; an unknown type is kept
as it is written.

Not here: what only the server's settings decide. A TIMESTAMP without NULL is nullable (TiDB's
explicit_defaults_for_timestamp), a REAL is a double (REAL_AS_FLOAT is not transmitted), and NCHAR
has the table's charset as in TiDB.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from ticdc_assets.model.mysql_types import KINDS, SYNONYMS
from ticdc_assets.registry.ddl.statement import (
    AlterChange,
    ChangeKind,
    ColumnDefinition,
    DefaultForm,
    DefaultValue,
    GeneratedKind,
    IndexDefinition,
)
from ticdc_assets.registry.ddl.tokens import BITS, HEX, NUMBER, WORD, Cursor


def take_numbers(cursor: Cursor) -> list[int]:
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


def _decoded(literal: DefaultValue) -> str | None:
    digits = literal.value or ""
    if literal.form is DefaultForm.BITS:
        digits = f"{int(digits or '0', 2):x}"
        digits = digits.zfill(len(digits) + len(digits) % 2)
    try:
        return bytes.fromhex(digits).decode()
    except UnicodeDecodeError:
        return None


def take_default(cursor: Cursor) -> DefaultValue | None:
    """Take what follows DEFAULT or SET DEFAULT."""
    start = cursor.at
    constant = _take_constant(cursor)
    if constant is not None:
        return constant
    group = cursor.take_group()
    if group is None:
        if not _take_call(cursor):
            return None
        return DefaultValue(DefaultForm.EXPRESSION, cursor.text(start))
    while True:
        start = group.at
        # A constant in parentheses is that constant.
        constant = _take_constant(group)
        if constant is not None and group.done:
            return constant
        inner = group.take_group() if constant is None else None
        if inner is None or not group.done:
            group.at = start
            return DefaultValue(DefaultForm.EXPRESSION, group.text())
        group = inner


def _take_constant(cursor: Cursor) -> DefaultValue | None:
    if cursor.take("NULL"):
        return DefaultValue(DefaultForm.NULL)
    return take_literal(cursor)


def take_literal(cursor: Cursor) -> DefaultValue | None:
    """Take a string, a number, or bytes as hexadecimal or binary digits."""
    start = cursor.at
    form, value = DefaultForm.STRING, None
    if cursor.word() in ("DATE", "TIME", "TIMESTAMP") and cursor.is_string(1):
        cursor.at += 1
    introduced = cursor.kind() == WORD and cursor.raw().startswith("_")
    if introduced and cursor.kind(1) in (HEX, BITS):
        cursor.at += 1
    kind = cursor.kind()
    if kind == HEX:
        digits = cursor.raw()[2:].removesuffix("'").lower()
        form, value = DefaultForm.HEX, digits.zfill(len(digits) + len(digits) % 2)
        cursor.at += 1
    elif kind == BITS:
        form, value = DefaultForm.BITS, cursor.raw()[2:].removesuffix("'")
        cursor.at += 1
    elif word := cursor.take_any(("TRUE", "FALSE")):
        form, value = DefaultForm.NUMBER, str(int(word == "TRUE"))
    elif (sign := cursor.is_char("-") or cursor.is_char("+")) or kind == NUMBER:
        negative = cursor.is_char("-")
        if not sign or cursor.kind(1) == NUMBER:
            cursor.at += int(sign)
            form, value = DefaultForm.NUMBER, ("-" if negative else "") + cursor.raw()
            cursor.at += 1
    else:
        value = cursor.take_string()
    if value is None:
        cursor.at = start
        return None
    return DefaultValue(form, value)


def _take_call(cursor: Cursor) -> bool:
    """Take `CURRENT_TIMESTAMP`, `now(6)`, `NEXT VALUE FOR s` or any other call."""
    if cursor.take("NEXT", "VALUE", "FOR"):
        return cursor.take_table_name() is not None
    if not cursor.word():
        return False
    cursor.at += 1
    cursor.take_group()
    return True


def take_charset_words(cursor: Cursor) -> bool:
    """Take `CHARACTER SET` in one of its spellings."""
    return cursor.take("CHARACTER", "SET") or cursor.take("CHAR", "SET") or cursor.take("CHARSET")


def take_charset_name(cursor: Cursor) -> str | None:
    """Take `[=] name` of a character set or collation, in lower case."""
    cursor.take_char("=")
    name = cursor.take_string() if cursor.is_string() else cursor.take_name()
    return None if name is None else name.lower()


def _take_check(cursor: Cursor) -> bool:
    if cursor.take_group() is None:
        return False
    if not cursor.take("NOT", "ENFORCED"):
        cursor.take("ENFORCED")
    return True


def _take_references(cursor: Cursor) -> bool:
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

INDEX_WORDS: Final = frozenset(
    ("INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "COLUMNAR", "HYBRID")
)


def is_index(cursor: Cursor) -> bool:
    """Whether an index or constraint definition, not a column, comes next."""
    word = cursor.word()
    if word in ("VECTOR", "COLUMNAR", "HYBRID"):
        # These are not reserved words: `vector` alone is a column's name.
        return cursor.word(1) in ("INDEX", "KEY")
    return word in INDEX_WORDS or word in ("PRIMARY", "CONSTRAINT", "FOREIGN", "CHECK")


def take_index(cursor: Cursor) -> AlterChange | None:
    """Take an index or constraint; return the change that adds it, if it is an index."""
    symbol: str | None = None
    if cursor.take("CONSTRAINT") and cursor.word() not in _CONSTRAINED:
        symbol = cursor.take_name()
    if cursor.take("CHECK"):
        if _take_check(cursor):
            return AlterChange(kind=ChangeKind.OTHER, name=symbol)
        cursor.missing()
        return None
    if cursor.take("FOREIGN", "KEY"):
        conditional = take_if_exists(cursor)
        name = cursor.take_name()
        if cursor.take_group() is None or not (
            cursor.take("REFERENCES") and _take_references(cursor)
        ):
            cursor.missing()
            return None
        return AlterChange(kind=ChangeKind.OTHER, name=symbol or name, conditional=conditional)
    word = "PRIMARY" if cursor.take("PRIMARY", "KEY") else cursor.take_any(INDEX_WORDS)
    if not word:
        cursor.missing()
        return None
    if word not in ("PRIMARY", "INDEX", "KEY"):
        cursor.take_any(("INDEX", "KEY"))
    conditional = take_if_exists(cursor)
    name = take_index_name(cursor)
    # A primary key has no name. In MySQL the name of the index would count.
    name = None if word == "PRIMARY" else symbol if symbol is not None else name
    index = take_index_body(cursor, name, word)
    if index is None:
        return None
    return AlterChange(kind=ChangeKind.ADD_INDEX, name=name, index=index, conditional=conditional)


_CONSTRAINED: Final = ("CHECK", "FOREIGN", "PRIMARY", "UNIQUE")


def take_if_exists(cursor: Cursor) -> bool:
    """Take `IF EXISTS` or `IF NOT EXISTS`."""
    return cursor.take("IF", "EXISTS") or cursor.take("IF", "NOT", "EXISTS")


def take_index_name(cursor: Cursor) -> str | None:
    """Take an index name, if there is one before the parentheses, and USING after it."""
    # USING may come without a name; TYPE may not, so a first `type` is the name.
    name = None if cursor.word() == "USING" else cursor.take_name()
    if cursor.word() in ("USING", "TYPE") and cursor.is_name(1):
        cursor.at += 2
    return name


def take_index_body(cursor: Cursor, name: str | None, first: str) -> IndexDefinition | None:
    """Take the parts and options of an index, which the word `first` began."""
    group = cursor.take_group()
    if group is None:
        cursor.missing()
        return None
    parts: list[str | None] = []
    while not group.done:
        part = _take_part(group)
        if not part or (not group.take_char(",") and not group.done):
            group.expect_done()
        parts += part
    if not parts:
        group.missing()
        return None
    clustered: bool | None = None
    condition: str | None = None
    while word := cursor.take_any(_INDEX_OPTIONS):
        if word in ("CLUSTERED", "NONCLUSTERED"):
            clustered = word == "CLUSTERED"
        elif word == "WHERE":
            start = cursor.at
            cursor.skip_item()
            condition = cursor.text(start)
        elif word == "WITH":
            cursor.take("PARSER")
            cursor.take_name()
        elif word not in _WORDS_ALONE:
            cursor.take_char("=")
            if cursor.take_string() is None:
                cursor.skip_token()
    return IndexDefinition(
        name=name,
        parts=tuple(parts),
        unique=first in ("PRIMARY", "UNIQUE"),
        primary=first == "PRIMARY",
        clustered=clustered,
        condition=condition,
    )


_WORDS_ALONE: Final = ("ADD_COLUMNAR_REPLICA_ON_DEMAND", "GLOBAL", "INVISIBLE", "LOCAL", "VISIBLE")
_OPTION_LIST: Final = """
CLUSTERED COMMENT ENGINE_ATTRIBUTE KEY_BLOCK_SIZE NONCLUSTERED PARAMETER PRE_SPLIT_REGIONS
SECONDARY_ENGINE_ATTRIBUTE TYPE USING WHERE WITH
"""
_INDEX_OPTIONS: Final = frozenset((*_WORDS_ALONE, *_OPTION_LIST.split()))


def _take_part(cursor: Cursor) -> tuple[str | None] | tuple[()]:
    """Take one part of an index: its column, None for an expression; () if there is none."""
    column: str | None = None
    if cursor.take_group() is None:
        column = cursor.take_column_name()
        if column is None:
            return ()
        take_numbers(cursor)
    cursor.take_any(("ASC", "DESC"))
    return (column,)


_Fields: TypeAlias = dict[str, Any]
"""_Fields of a `ColumnDefinition` while its text is read."""


def take_column(cursor: Cursor) -> ColumnDefinition | None:
    """Take `name type attribute...`; None, with a note, if no name or type comes next."""
    name = cursor.take_column_name()
    if name is None:
        cursor.missing()
        return None
    return take_column_definition(cursor, name)


def take_column_definition(cursor: Cursor, name: str) -> ColumnDefinition | None:
    """Take `type attribute...` of the column called `name`, the type as it is written."""
    fields = _take_type(cursor)
    if fields is None:
        cursor.missing()
        return None
    while (word := cursor.word()) and (attribute := _ATTRIBUTES.get(word)) is not None:
        start = cursor.at
        cursor.at += 1
        if not attribute(cursor, fields):
            cursor.at = start
            break
    if "charset" not in fields and "collation" in fields:
        fields["charset"] = fields["collation"].partition("_")[0]
    return ColumnDefinition(name=name, **fields)


def own_indexes(column: ColumnDefinition) -> Iterator[IndexDefinition]:
    """Yield the indexes that the attributes of a column create."""
    parts, clustered = (column.name,), column.clustered
    if column.primary_key:
        yield IndexDefinition(None, parts, unique=True, primary=True, clustered=clustered)
    if column.unique:
        yield IndexDefinition(None, parts, unique=True)


_Attribute = Callable[[Cursor, _Fields], bool]
"""Takes what follows an attribute's word and sets fields; False if it does not fit."""


def _says(**said: Any) -> _Attribute:
    """Return the attribute that is one word and sets these fields."""

    def attribute(cursor: Cursor, fields: _Fields) -> bool:
        del cursor
        fields.update(said)
        return True

    return attribute


def _skips(take: Callable[[Cursor], object]) -> _Attribute:
    """Return the attribute whose words do not concern the column's values."""
    return lambda cursor, _: bool(take(cursor))


def _taken(field: str, take: Callable[[Cursor], object]) -> _Attribute:
    """Return the attribute after whose word the value of `field` is taken."""

    def attribute(cursor: Cursor, fields: _Fields) -> bool:
        value = take(cursor)
        if value is not None:
            fields[field] = value
        return value is not None

    return attribute


def _after(words: str, attribute: _Attribute) -> _Attribute:
    """Return the attribute that goes on with these words, and then like another."""
    return lambda cursor, fields: cursor.take(*words.split()) and attribute(cursor, fields)


_charset = _taken("charset", take_charset_name)


def _key(cursor: Cursor, fields: _Fields) -> bool:
    word = cursor.take_any(("CLUSTERED", "NONCLUSTERED"))
    cursor.take_any(("GLOBAL", "LOCAL"))
    clustered = word == "CLUSTERED" if word else None
    fields.update(primary_key=True, clustered=clustered, nullable=False)
    return True


def _unique(cursor: Cursor, fields: _Fields) -> bool:
    cursor.take_any(("KEY", "INDEX"))
    cursor.take_any(("GLOBAL", "LOCAL"))
    fields["unique"] = True
    return True


def _as(cursor: Cursor, fields: _Fields) -> bool:
    group = cursor.take_group()
    if group is None:
        return False
    fields["expression"] = group.text()
    # Without a word it is virtual; the word that follows may say otherwise.
    fields.setdefault("generated", GeneratedKind.VIRTUAL)
    return True


def _generated_kind(kind: GeneratedKind) -> _Attribute:
    def attribute(cursor: Cursor, fields: _Fields) -> bool:
        del cursor
        if "generated" not in fields:
            return False
        fields["generated"] = kind
        return True

    return attribute


def _take_value(cursor: Cursor) -> bool:
    cursor.take_char("=")
    return cursor.take_string() is not None or cursor.take_integer() is not None


def _constraint(cursor: Cursor, fields: _Fields) -> bool:
    if cursor.word() not in _CONSTRAINT_WORDS:
        cursor.take_name()
    word = cursor.take_any(_CONSTRAINT_WORDS)
    return bool(word) and _ATTRIBUTES[word](cursor, fields)


_CONSTRAINT_WORDS: Final = ("CHECK", "PRIMARY", "KEY", "UNIQUE", "REFERENCES", "NOT", "NULL")

_ATTRIBUTES: Final[dict[str, _Attribute]] = {
    "UNSIGNED": _says(unsigned=True),
    "SIGNED": _says(),
    "ZEROFILL": _says(unsigned=True, zerofill=True),
    **dict.fromkeys(("CHARACTER", "CHAR"), _after("SET", _charset)),
    "CHARSET": _charset,
    "COLLATE": _taken("collation", take_charset_name),
    "ASCII": _says(charset="latin1"),
    "UNICODE": _says(charset="ucs2"),
    # TiDB before 6.2 ignored the word.
    "BYTE": _says(charset="binary"),
    "BINARY": _says(binary_collation=True),
    "NOT": _after("NULL", _says(nullable=False)),
    "NULL": _says(),
    "DEFAULT": _taken("default", take_default),
    "ON": _skips(lambda cursor: cursor.take("UPDATE") and _take_call(cursor)),
    "AUTO_INCREMENT": _says(auto_increment=True),
    "AUTO_RANDOM": _skips(lambda cursor: cursor.take_group() or True),
    "PRIMARY": _after("KEY", _key),
    "KEY": _key,
    "UNIQUE": _unique,
    "COMMENT": _skips(_take_value),
    "GENERATED": _after("ALWAYS AS", _as),
    "AS": _as,
    "VIRTUAL": _generated_kind(GeneratedKind.VIRTUAL),
    "STORED": _generated_kind(GeneratedKind.STORED),
    "SERIAL": _after("DEFAULT VALUE", _says(auto_increment=True, unique=True, nullable=False)),
    "COLUMN_FORMAT": _skips(lambda cursor: cursor.take_any(("FIXED", "DYNAMIC", "DEFAULT"))),
    "STORAGE": _skips(lambda cursor: cursor.take_any(("DISK", "MEMORY", "DEFAULT"))),
    **dict.fromkeys(("ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE"), _skips(_take_value)),
    "VISIBLE": _says(),
    "INVISIBLE": _says(),
    "REFERENCES": _skips(_take_references),
    "CONSTRAINT": _constraint,
    "CHECK": _skips(_take_check),
}


# ------------------------------------------------------------------------------------------- types


_TYPES: Final = {**{name: name for name in KINDS}, **SYNONYMS}
_MOST_WORDS: Final = max(len(name.split()) for name in _TYPES)


def _take_type(cursor: Cursor) -> _Fields | None:
    """Take a type and return the fields that it sets; None if no word comes next."""
    first = cursor.word()
    if not first:
        return None
    words = [cursor.word(ahead).lower() for ahead in range(_MOST_WORDS)]
    names = (" ".join(words[:count]) for count in range(_MOST_WORDS, 0, -1))
    name = next((name for name in names if name in _TYPES), None)
    if name is None:
        start = cursor.at
        cursor.at += 1
        cursor.take_group()
        cursor.tokens.note(
            cursor.tokens.starts[start], cursor.tokens.ends[max(start, cursor.at - 1)]
        )
        return {"mysql_type": words[0]}
    cursor.at += len(name.split())
    mysql_type = _TYPES[name]
    if mysql_type == "vector" and cursor.is_char("<"):
        # VECTOR<FLOAT>(3): the element type can only be FLOAT so far.
        for _ in range(3):
            cursor.skip_token()
    fields: _Fields = {"mysql_type": mysql_type}
    if name == "serial":
        fields.update(unsigned=True, auto_increment=True, unique=True, nullable=False)
    elif name in ("bool", "boolean"):
        fields["length"] = 1
    _take_size(cursor, fields)
    return fields


def _take_size(cursor: Cursor, fields: _Fields) -> None:
    mysql_type = fields["mysql_type"]
    if mysql_type in ("enum", "set"):
        _take_labels(cursor, fields)
        return
    numbers = take_numbers(cursor)
    match mysql_type:
        case "decimal" | "float" | "double" if len(numbers) > 1:
            fields.update(length=numbers[0], decimal=numbers[1])
        case "float" | "double":
            if numbers and numbers[0] > 24:
                fields["mysql_type"] = "double"
        case "datetime" | "timestamp" | "time" if numbers:
            fields["decimal"] = numbers[0]
        case _ if numbers:
            fields["length"] = numbers[0]
        case _:
            pass


def _take_labels(cursor: Cursor, fields: _Fields) -> None:
    group = cursor.take_group()
    if group is None:
        cursor.missing()
        return
    labels: list[str] = []
    while not group.done:
        start = group.at
        label = group.take_string()
        if label is None and group.kind() in (HEX, BITS):
            literal = take_literal(group)
            label = None if literal is None else _decoded(literal)
        if label is None or (not group.take_char(",") and not group.done):
            group.at = start
            group.expect_done()
            break
        # Both servers cut trailing blanks off labels.
        labels.append(label.rstrip(" "))
    fields["elements"] = tuple(labels)
