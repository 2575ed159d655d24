"""Casts to text and binary types, ENUM, SET, JSON and VECTOR, in strict and in lenient modes.

In a lenient SQL mode texts are shortened to the length of the column, characters that its charset
lacks become question marks (and then TiDB cuts no more), an ENUM without the label is index 0 and a
SET without one of the labels is empty (pingcap/tidb `convertToString`, `ProduceStrWithSpecifiedTp`,
`convertToMysqlEnum` and `convertToMysqlSet` in pkg/types/datum.go). Nothing is forced into JSON and
VECTOR: the DDL fails in every SQL mode.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ticdc_assets.base.errors import ImageError
from ticdc_assets.model.mysql_types import (
    TEXT_LIMITS,
    Kind,
    base_type,
    declared_length,
    is_char,
    kind_of,
)
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.model.values import json_texts, shapes
from ticdc_assets.model.values.datum import (
    Datum,
    TextCast,
    refusal,
    refuse,
    refusing,
    through_datum,
)
from ticdc_assets.model.values.floats import to_float32
from ticdc_assets.model.values.physical import binary_bytes
from ticdc_assets.model.values.widening import text_length

_CODECS: Final = {"ascii": "ascii", "gbk": "gbk", "gb18030": "gb18030"}
_THREE_BYTE_CHARSETS: Final = frozenset({"utf8", "utf8mb3"})
_CANONICAL_INDEX = re.compile(r"0|[1-9][0-9]{0,19}")


@dataclass(frozen=True, slots=True)
class TextRules:
    """Which texts a charset has.

    Attributes:
        codec: Python's name of the encoding whose characters they are.
        highest: the last character that the charset has.
    """

    codec: str
    highest: str

    def holds(self, text: str) -> bool:
        """Return whether the charset has all characters of `text`."""
        if text and max(text) > self.highest:
            return False
        try:
            text.encode(self.codec)
        except UnicodeEncodeError:
            return False
        return True


def text_rules(column: ColumnSchema) -> TextRules:
    """Return which texts a text column can hold, of any length."""
    charset = column.charset.lower()
    highest = "\uffff" if charset in _THREE_BYTE_CHARSETS else "\U0010ffff"
    return TextRules(_CODECS.get(charset, "utf-8"), highest)


def to_text(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Compile the cast from `old` to `new`, which is a text type."""
    expected = f"text in {new.charset}"
    show, rules = _shown(old, new, expected), text_rules(new)
    length = text_length(new)
    limited_by_bytes = base_type(new) in TEXT_LIMITS
    strip = is_char(new)

    def convert(text: str) -> str:
        value = show(text)
        if not rules.holds(value):
            refuse(new, expected, text)
        if limited_by_bytes:
            if len(value.encode()) > length:
                refuse(new, f"at most {length} bytes", text)
        elif length and len(value) > length:
            if value[length:].strip(" \t\r\n"):
                refuse(new, f"at most {length} characters", text)
            value = value[:length]
        return value.rstrip(" ") if strip else value

    return convert


def printed(old: ColumnSchema) -> TextCast:
    """Return how TiDB prints a value of `old` as text; ValueError for bytes that are not text."""
    match kind_of(old):
        case Kind.BINARY:
            return lambda text: binary_bytes(text, old).decode()
        case Kind.JSON:
            return shapes.spaced_json
        case Kind.ENUM | Kind.SET if not old.elements:
            return _unknown_label
        case _:
            return str


def _unknown_label(text: str) -> str:
    raise ValueError(f"the label of number {text} is not known")


def _shown(old: ColumnSchema, new: ColumnSchema, expected: str) -> TextCast:
    """Return what `printed` does, with the error of a cast to `new`."""
    show = printed(old)

    def shown(text: str) -> str:
        try:
            return show(text)
        except (ValueError, ImageError):
            refuse(new, expected, text)

    return shown


def raw_bytes(old: ColumnSchema, new: ColumnSchema, expected: str) -> Callable[[str], bytes]:
    """Return the function that gives the bytes of a value of `old` under `new`."""
    if kind_of(old) is not Kind.BINARY:
        show = _shown(old, new, expected)
        return lambda text: show(text).encode()

    def raw(text: str) -> bytes:
        try:
            return binary_bytes(text, old)
        except ImageError:
            refuse(new, expected, text)

    return raw


def to_binary(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Compile the cast from `old` to `new`, which is a binary type."""
    length = declared_length(new)
    padded = length if is_char(new) else 0
    if old.charset.lower() in ("gbk", "gb18030"):
        return refusal(old, new)
    raw_of = raw_bytes(old, new, "bytes")

    def convert(text: str) -> str:
        raw = raw_of(text)
        if length and len(raw) > length:
            refuse(new, f"at most {length} bytes", text)
        return "0x" + raw.ljust(padded, b"\0").hex()

    return convert


def to_enum(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Compile the cast from `old` to `new`, which is ENUM."""
    if kind_of(old) is Kind.INTEGER:
        return through_datum(
            old, new, expected="index of a label", make=lambda datum: _nth(new.elements, datum)
        )
    find = _label_finder(new)
    from_enum = kind_of(old) is Kind.ENUM and "" not in old.elements
    show = _shown(old, new, "a label")

    def convert(text: str) -> str:
        if from_enum and text == "":
            return ""
        name = show(text)
        label = find(name)
        if label is None and _CANONICAL_INDEX.fullmatch(name):
            label = _nth(new.elements, int(name))
        if label is None:
            refuse(new, "a label", text)
        return label

    return convert


def _nth(elements: Sequence[str], datum: Datum) -> str | None:
    return elements[datum - 1] if isinstance(datum, int) and 1 <= datum <= len(elements) else None


def _label_finder(column: ColumnSchema) -> Callable[[str], str | None]:
    """Return the search for a label as the collation compares, as far as it can be known.

    All collations but the `_0900_` ones ignore trailing spaces; `_ci` ones ignore case.
    """
    collation = column.collation.lower()
    elements = column.elements

    def folded(label: str) -> str:
        if "_0900_" not in collation and collation != "binary":
            label = label.rstrip(" ")
        return label.lower() if collation.endswith("_ci") else label

    def find(name: str) -> str | None:
        if name in elements:
            return name
        return next((label for label in elements if folded(label) == folded(name)), None)

    return find


def to_set(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Compile the cast from `old` to `new`, which is SET."""
    if kind_of(old) is Kind.INTEGER:
        return through_datum(
            old, new, expected="bit mask of labels", make=lambda datum: _joined(new, datum)
        )
    find = _label_finder(new)
    show = _shown(old, new, "labels")

    def convert(text: str) -> str:
        name = show(text)
        labels = {find(item) for item in name.split(",")} if name else set[str | None]()
        if None not in labels:
            return ",".join(label for label in new.elements if label in labels)
        value = None
        if _CANONICAL_INDEX.fullmatch(name):
            value = _joined(new, int(name))
        if value is None:
            refuse(new, "labels", text)
        return value

    return convert


def _joined(column: ColumnSchema, datum: Datum) -> str | None:
    if not isinstance(datum, int) or not 0 <= datum < 2 ** len(column.elements):
        return None
    return ",".join(label for bit, label in enumerate(column.elements) if datum >> bit & 1)


def to_json(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Compile the cast from `old` to `new`, which is JSON."""
    make = _JSON_MAKERS[kind_of(old)]
    show = printed(old)

    def convert(text: str) -> str:
        try:
            return make(show(text))
        except (ValueError, ArithmeticError, ImageError):
            refuse(new, "JSON", text)

    return convert


def _quoted_moment(text: str) -> str:
    return f'"{shapes.pad_fraction(text, 6) if ":" in text else text}"'


_JSON_MAKERS: dict[Kind, Callable[[str], str]] = {
    **dict.fromkeys((Kind.INTEGER, Kind.YEAR), str),
    **dict.fromkeys((Kind.DECIMAL, Kind.DOUBLE), lambda text: json_texts.write_json(float(text))),
    Kind.FLOAT: lambda text: json_texts.write_json(to_float32(float(text))),
    **dict.fromkeys((Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP, Kind.TIME), _quoted_moment),
    **dict.fromkeys((Kind.TEXT, Kind.BINARY, Kind.ENUM, Kind.SET), json_texts.stored_json),
}


def to_vector(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Compile the cast from a VECTOR to `new`, a VECTOR of other dimensions."""
    del old
    dimensions = declared_length(new)

    def convert(text: str) -> str:
        if (text.count(",") + 1 if text != "[]" else 0) != dimensions:
            refuse(new, f"{dimensions} dimensions", text)
        return text

    return convert


# ------------------------------------------------------------------------------- lenient SQL modes

_EXPECTED: Final = "a value that TiDB can cut to the column"


def lenient_text(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Compile the lenient cast to `new`, which is a text type."""
    kind, rules = kind_of(old), text_rules(new)
    show = printed(old)
    length = text_length(new)
    limited_by_bytes = base_type(new) in TEXT_LIMITS
    strip = is_char(new)
    if new.charset.lower() in _CONVERTED_ONLY_WHOLE:
        return refusal(old, new)

    def convert(text: str) -> str:
        try:
            if kind is Kind.BINARY:
                value, is_damaged = _decoded(binary_bytes(text, old), rules)
            else:
                value = show(text)
                is_damaged = not rules.holds(value)
        except (ValueError, ImageError):
            refuse(new, _EXPECTED, text)
        if is_damaged and kind is Kind.TEXT:
            value = "".join(char if rules.holds(char) else "?" for char in value)
        elif is_damaged and kind is not Kind.BINARY:
            refuse(new, _EXPECTED, text)
        if not is_damaged and limited_by_bytes:
            value = value.encode()[:length].decode(errors="ignore")
        elif not is_damaged and length:
            value = value[:length]
        return value.rstrip(" ") if strip else value

    return convert


_CONVERTED_ONLY_WHOLE: Final = frozenset({"gbk", "gb18030"})
"""Charsets into which TiDB converts no column of another charset."""


def _decoded(raw: bytes, rules: TextRules) -> tuple[str, bool]:
    """Return the text before the first invalid byte, and whether there is such a byte."""
    try:
        value = raw.decode(rules.codec)
        is_damaged = False
    except UnicodeDecodeError as error:
        value, is_damaged = raw[: error.start].decode(rules.codec), True
    end = next((place for place, char in enumerate(value) if not rules.holds(char)), None)
    return (value, is_damaged) if end is None else (value[:end], True)


def lenient_binary(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Compile the lenient cast to `new`, which is a binary type."""
    length = declared_length(new)
    if old.charset.lower() in _CONVERTED_ONLY_WHOLE or not length:
        return refusal(old, new)
    raw_of = raw_bytes(old, new, _EXPECTED)

    def convert(text: str) -> str:
        raw = raw_of(text)
        # A value that does not fit is longer than the column, so nothing is padded.
        return "0x" + raw[:length].hex()

    return convert


_GO_NUMBER = re.compile(r"0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO]?[0-7_]+|[1-9][0-9_]*")


def lenient_labels(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Compile the lenient cast to `new`, which is ENUM or SET."""
    kind = kind_of(old)
    if kind in (Kind.ENUM, Kind.SET) and not old.elements:
        return refusal(old, new)
    collation = new.collation.lower()
    is_exact = collation == "binary" or collation.endswith("_bin")
    folded = {label.casefold() for label in new.elements}
    is_ascii = all(label.isascii() for label in new.elements)

    def may_be_label(name: str) -> bool:
        """Whether TiDB may find a label or an index in `name`, though the exact cast did not."""
        # Go reads more spellings of indexes, such as 0x1.
        if _GO_NUMBER.fullmatch(name) and not (name.isdigit() and name[0] != "0"):
            return True
        items = name.split(",") if kind_of(new) is Kind.SET else [name]
        return not is_exact and any(
            item.casefold() in folded or not (is_ascii and item.isascii()) for item in items
        )

    def convert(text: str) -> str:
        try:
            name = binary_bytes(text, old).decode() if kind is Kind.BINARY else text
        except (ValueError, ImageError):
            return ""  # bytes that are not text are no label
        if may_be_label(name):
            refuse(new, _EXPECTED, text)
        return ""

    return convert


def refuses(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Compile the cast to `new`, JSON or VECTOR: it fails in every SQL mode."""
    del old
    return refusing(new, f"{kind_of(new).name} (TiDB refuses anything else in every SQL mode)")
