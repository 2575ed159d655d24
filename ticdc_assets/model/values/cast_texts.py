"""Casts to text and binary types, ENUM, SET, JSON and VECTOR, in strict and in lenient modes.

In a lenient SQL mode texts are shortened to the length of the column, characters that its charset
lacks become question marks (and then TiDB cuts no more), an ENUM without the label is index 0 and a
SET without one of the labels is empty (pingcap/tidb `convertToString`, `ProduceStrWithSpecifiedTp`,
`convertToMysqlEnum` and `convertToMysqlSet` in pkg/types/datum.go). Nothing is forced into JSON and
VECTOR: the DDL fails in every SQL mode.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Final

from ticdc_assets.base.errors import ImageError
from ticdc_assets.model.mysql_types import (
    TEXT_LIMITS,
    Kind,
    base_type,
    declared_length,
    is_char,
    kind_of,
    text_length,
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

_EXPECTED: Final = "a value that TiDB can cut to the column"
_CODECS: Final = {"ascii": "ascii", "gbk": "gbk", "gb18030": "gb18030"}
_THREE_BYTE_CHARSETS: Final = frozenset({"utf8", "utf8mb3"})
_CANONICAL_INDEX = re.compile(r"0|[1-9][0-9]{0,19}")


def _holds(column: ColumnSchema) -> Callable[[str], bool]:
    """Return whether the charset of a text column has all characters of a text."""
    charset = column.charset.lower()
    codec = _CODECS.get(charset, "utf-8")
    highest = "\uffff" if charset in _THREE_BYTE_CHARSETS else "\U0010ffff"

    def holds(text: str) -> bool:
        if text and max(text) > highest:
            return False
        try:
            text.encode(codec)
        except UnicodeEncodeError:
            return False
        return True

    return holds


def to_text(old: ColumnSchema, new: ColumnSchema, lenient: bool) -> TextCast:
    """Compile the cast from `old` to `new`, which is a text type."""
    if lenient and new.charset.lower() in _CONVERTED_ONLY_WHOLE:
        return refusal(old, new)
    kind, holds, length = kind_of(old), _holds(new), text_length(new)
    limited_by_bytes = base_type(new) in TEXT_LIMITS
    expected = _EXPECTED if lenient else f"text in {new.charset}"
    show = _shown(old, new, expected)

    def exact(text: str) -> str:
        value = show(text)
        if not holds(value):
            refuse(new, expected, text)
        if limited_by_bytes:
            if len(value.encode()) > length:
                refuse(new, f"at most {length} bytes", text)
        elif length and len(value) > length:
            if value[length:].strip(" \t\r\n"):
                refuse(new, f"at most {length} characters", text)
            value = value[:length]
        return value

    def cut(text: str) -> str:
        if kind is Kind.BINARY:
            value, is_damaged = _decoded(raw_of(text), new)
        else:
            value = show(text)
            is_damaged = not holds(value)
        if is_damaged and kind is Kind.TEXT:
            return "".join(char if holds(char) else "?" for char in value)
        if is_damaged and kind is not Kind.BINARY:
            refuse(new, expected, text)
        if is_damaged:
            return value
        if limited_by_bytes:
            return value.encode()[:length].decode(errors="ignore")
        return value[:length] if length else value

    raw_of = _raw_bytes(old, new, expected)
    convert = cut if lenient else exact
    return (lambda text: convert(text).rstrip(" ")) if is_char(new) else convert


_CONVERTED_ONLY_WHOLE: Final = frozenset({"gbk", "gb18030"})
"""Charsets into which TiDB converts no column of another charset."""


def _decoded(raw: bytes, new: ColumnSchema) -> tuple[str, bool]:
    """Return the text before the first invalid byte, and whether there is such a byte."""
    codec, holds = _CODECS.get(new.charset.lower(), "utf-8"), _holds(new)
    try:
        value, is_damaged = raw.decode(codec), False
    except UnicodeDecodeError as error:
        value, is_damaged = raw[: error.start].decode(codec), True
    end = next((place for place, char in enumerate(value) if not holds(char)), None)
    return (value, is_damaged) if end is None else (value[:end], True)


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


def _raw_bytes(old: ColumnSchema, new: ColumnSchema, expected: str) -> Callable[[str], bytes]:
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


def to_binary(old: ColumnSchema, new: ColumnSchema, lenient: bool) -> TextCast:
    """Compile the cast from `old` to `new`, which is a binary type."""
    length = declared_length(new)
    padded = length if is_char(new) else 0
    if old.charset.lower() in _CONVERTED_ONLY_WHOLE or (lenient and not length):
        return refusal(old, new)
    raw_of = _raw_bytes(old, new, _EXPECTED if lenient else "bytes")

    def convert(text: str) -> str:
        raw = raw_of(text)
        if length and len(raw) > length:
            if not lenient:
                refuse(new, f"at most {length} bytes", text)
            raw = raw[:length]
        return "0x" + raw.ljust(padded, b"\0").hex()

    return convert


def to_labels(old: ColumnSchema, new: ColumnSchema, lenient: bool) -> TextCast:
    """Compile the cast from `old` to `new`, which is ENUM or SET."""
    if lenient:
        return _lenient_labels(old, new)
    is_set = kind_of(new) is Kind.SET
    of_number = partial(_joined if is_set else _nth, new)
    if kind_of(old) is Kind.INTEGER:
        expected = "bit mask of labels" if is_set else "index of a label"
        return through_datum(old, new, expected=expected, make=of_number)
    expected = "labels" if is_set else "a label"
    find = _label_finder(new)
    from_enum = not is_set and kind_of(old) is Kind.ENUM and "" not in old.elements
    show = _shown(old, new, expected)

    def found(name: str) -> str | None:
        if not is_set:
            return find(name)
        labels = {find(item) for item in name.split(",")} if name else set[str | None]()
        if None in labels:
            return None
        return ",".join(label for label in new.elements if label in labels)

    def convert(text: str) -> str:
        if from_enum and text == "":
            return ""
        name = show(text)
        value = found(name)
        if value is None and _CANONICAL_INDEX.fullmatch(name):
            value = of_number(int(name))
        if value is None:
            refuse(new, expected, text)
        return value

    return convert


def _nth(column: ColumnSchema, datum: Datum) -> str | None:
    if not isinstance(datum, int) or not 1 <= datum <= len(column.elements):
        return None
    return column.elements[datum - 1]


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


def _joined(column: ColumnSchema, datum: Datum) -> str | None:
    if not isinstance(datum, int) or not 0 <= datum < 2 ** len(column.elements):
        return None
    return ",".join(label for bit, label in enumerate(column.elements) if datum >> bit & 1)


def _refuses(new: ColumnSchema) -> TextCast:
    return refusing(new, f"{kind_of(new).name} (TiDB refuses anything else in every SQL mode)")


def to_json(old: ColumnSchema, new: ColumnSchema, lenient: bool) -> TextCast:
    """Compile the cast from `old` to `new`, which is JSON."""
    if lenient:
        return _refuses(new)
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


def to_vector(_old: ColumnSchema, new: ColumnSchema, lenient: bool) -> TextCast:
    """Compile the cast from a VECTOR to `new`, a VECTOR of other dimensions."""
    if lenient:
        return _refuses(new)
    dimensions = declared_length(new)

    def convert(text: str) -> str:
        if (text.count(",") + 1 if text != "[]" else 0) != dimensions:
            refuse(new, f"{dimensions} dimensions", text)
        return text

    return convert


_GO_NUMBER = re.compile(r"0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO]?[0-7_]+|[1-9][0-9_]*")


def _lenient_labels(old: ColumnSchema, new: ColumnSchema) -> TextCast:
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
