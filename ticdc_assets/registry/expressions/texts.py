"""Texts and JSON documents of expressions.

In: terms. Out: terms of texts, each with the collation by which it compares, where that is certain,
and of the values of documents at paths without wildcards. Letters that change their number with
their case are refused.
"""

import hashlib
import re
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter, methodcaller
from typing import Any, Final, TypeAlias, cast

from ticdc_assets.base.errors import shorten
from ticdc_assets.model.values import shapes
from ticdc_assets.model.values.json_texts import read_json, write_json
from ticdc_assets.registry.evolution import CanonicalRow
from ticdc_assets.registry.expressions.terms import (
    MANY,
    Function,
    Functions,
    Integer,
    JsonTerm,
    Moment,
    MomentTerm,
    NullLiteral,
    Number,
    NumberTerm,
    Term,
    TextTerm,
    all_of,
    constant,
    function,
    integer_of,
    integer_result,
    is_constant,
    literal_integer,
    literal_text,
    literal_value,
    mapped,
    refused,
)

DEFAULT_COLLATION: Final = "utf8mb4_bin"
BINARY_COLLATIONS: Final = frozenset(
    {"utf8mb4_bin", "utf8_bin", "utf8mb3_bin", "ascii_bin", "latin1_bin", "utf8mb4_0900_bin"}
)
"""Collations by which the order of texts is certain, but for trailing spaces."""


def number_text(value: Number, scale: int) -> str:
    """Return an exact number as TiDB prints it."""
    digits = str(abs(int(value * 10**scale))).zfill(scale + 1)
    text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    return f"-{text}" if value < 0 else text


def moment_text(value: Moment, digits: int | None) -> str:
    """Return a date, or a date and time with so many digits of a second, as TiDB prints it."""
    text = f"{value.year:04}-{value.month:02}-{value.day:02}"
    if digits is None:
        return text
    text += f" {value.hour:02}:{value.minute:02}:{value.second:02}"
    return f"{text}.{value.microsecond:06}"[: 20 + digits] if digits else text


def text_term(term: Term, what: str) -> TextTerm:
    """Return TiDB's text of a term where a text is needed."""
    match term:
        case TextTerm():
            return term
        case NullLiteral():
            return TextTerm(term.evaluate)
        case NumberTerm(repeats=False):
            scale = term.scale
            if scale is None:
                raise refused(f"{what} of such a number")
            return TextTerm(mapped(term.evaluate, lambda value: number_text(value, scale)))
        case MomentTerm():
            digits = term.digits
            return TextTerm(mapped(term.evaluate, lambda value: moment_text(value, digits)))
        case JsonTerm():
            return TextTerm(mapped(term.evaluate, shapes.spaced_json))
        case _:
            raise refused(f"{what} of such a value")


def collation_of(terms: Sequence[Term]) -> str:
    """Return the collation of several texts together, "" if it is uncertain."""
    collations = {
        term.collation for term in terms if isinstance(term, TextTerm) and term.literal is None
    }
    if not collations:
        return DEFAULT_COLLATION if all(map(is_constant, terms)) else ""
    return collations.pop() if len(collations) == 1 else ""


_Text: TypeAlias = Callable[[CanonicalRow], str | None]


def text_value(term: Term, what: str) -> _Text:
    """Return the function of a term's text; PartitionError if it is uncertain."""
    return text_term(term, what).evaluate


def _text(evaluate: _Text, terms: Sequence[Term]) -> TextTerm:
    return TextTerm(evaluate, collation_of(terms))


def _text_of_any_collation(evaluate: _Text, _: Sequence[Term]) -> TextTerm:
    return TextTerm(evaluate)


def _text_by_bytes(evaluate: _Text, _: Sequence[Term]) -> TextTerm:
    return TextTerm(evaluate, DEFAULT_COLLATION)


def _place(evaluate: Integer, terms: Sequence[Term]) -> NumberTerm:
    if collation_of(terms) not in BINARY_COLLATIONS:
        raise refused("a place in a text by its collation")
    return NumberTerm(evaluate)


def _concat(name: str, arguments: Sequence[Term]) -> Term:
    texts = [text_value(argument, name) for argument in arguments]
    return _text(all_of(texts, lambda *values: "".join(values)), arguments)


def _concat_ws(name: str, arguments: Sequence[Term]) -> Term:
    separator, *texts = (text_term(argument, name).evaluate for argument in arguments)

    def evaluate(row: CanonicalRow) -> str | None:
        between = separator(row)
        if between is None:
            return None
        return between.join(value for text in texts if (value := text(row)) is not None)

    return TextTerm(evaluate, collation_of(arguments))


def _cased(change: Callable[[str], str]) -> Callable[[str], str]:
    """Return a text in another case, for letters whose other case is one letter."""

    def cased(text: str) -> str:
        if text.isascii():
            return change(text)
        changed = [change(char) for char in text]
        if any(len(char) != 1 for char in changed):
            raise refused("the case of some letters")
        return "".join(changed)

    return cased


def _replaced(text: str, old: str, new: str) -> str:
    return text.replace(old, new) if old else text


def _left(text: str, count: int) -> str:
    return text[: max(count, 0)]


def _right(text: str, count: int) -> str:
    return text[-count:] if count > 0 else ""


def _substring(text: str, begin: int, length: int | None = None) -> str:
    if begin < 0:
        begin += len(text)
    else:
        begin -= 1
    if not 0 <= begin < len(text) or (length is not None and length <= 0):
        return ""
    return text[begin:] if length is None else text[begin : begin + length]


def _padded(text: str, count: int, fill: str, *, left: bool) -> str:
    if not 0 <= count <= 1 << 16:
        raise refused("a text of such a length")
    if count <= len(text):
        return text[:count]
    if not fill:
        raise refused("a text that is filled up with an empty one")
    more = (fill * (count - len(text)))[: count - len(text)]
    return more + text if left else text + more


def _substring_index(text: str, between: str, count: int) -> str:
    if not between or not count:
        return ""
    pieces = text.split(between)
    return between.join(pieces[:count] if count > 0 else pieces[count:])


def _hexadecimal(name: str, arguments: Sequence[Term]) -> Term:
    is_number = isinstance(arguments[0], NumberTerm)
    return (_HEX_OF_NUMBER if is_number else _HEX_OF_TEXT).build(name, arguments)


_HEX_OF_NUMBER: Final = function(
    _text_of_any_collation, lambda value: f"{value % 2**64:X}", integer_of
)
_HEX_OF_TEXT: Final = function(
    _text_of_any_collation, lambda text: text.encode().hex().upper(), text_value
)


def _digest(text: str, bits: int) -> str:
    name = {128: "md5", 160: "sha1"}.get(bits, f"sha{bits}")
    return hashlib.new(name, text.encode(), usedforsecurity=False).hexdigest()


def _sha2_bits(term: Term, what: str) -> Integer:
    bits = literal_integer(term, what) or 256
    if bits not in (224, 256, 384, 512):
        raise refused(f"{what} of {bits} bits")
    return constant(bits)


_upper: Final = function(_text, _cased(str.upper), text_value)
_lower: Final = function(_text, _cased(str.lower), text_value)
_length: Final = function(integer_result, lambda text: len(text.encode()), text_value)
_char_length: Final = function(integer_result, len, text_value)
_sub: Final = function(_text, _substring, text_value, integer_of, integer_of, optional=1)
_sha1: Final = function(_text_of_any_collation, partial(_digest, bits=160), text_value)

TEXT_FUNCTIONS: Final[Functions] = {
    "CONCAT": Function(1, MANY, _concat),
    "CONCAT_WS": Function(2, MANY, _concat_ws),
    **dict.fromkeys(("UPPER", "UCASE"), _upper),
    **dict.fromkeys(("LOWER", "LCASE"), _lower),
    "TRIM": function(_text, methodcaller("strip", " "), text_value),
    "LTRIM": function(_text, methodcaller("lstrip", " "), text_value),
    "RTRIM": function(_text, methodcaller("rstrip", " "), text_value),
    "REVERSE": function(_text, itemgetter(slice(None, None, -1)), text_value),
    "REPLACE": function(_text, _replaced, text_value, text_value, text_value),
    **dict.fromkeys(("LENGTH", "OCTET_LENGTH"), _length),
    **dict.fromkeys(("CHAR_LENGTH", "CHARACTER_LENGTH"), _char_length),
    "CRC32": function(integer_result, lambda text: zlib.crc32(text.encode()), text_value),
    **dict.fromkeys(("SUBSTRING", "SUBSTR"), _sub),
    "MID": function(_text, _substring, text_value, integer_of, integer_of),
    "LEFT": function(_text, _left, text_value, integer_of),
    "RIGHT": function(_text, _right, text_value, integer_of),
    "LPAD": function(_text, partial(_padded, left=True), text_value, integer_of, text_value),
    "RPAD": function(_text, partial(_padded, left=False), text_value, integer_of, text_value),
    "SUBSTRING_INDEX": function(_text, _substring_index, text_value, text_value, literal_value),
    "INSTR": function(_place, lambda text, piece: text.find(piece) + 1, text_value, text_value),
    "LOCATE": function(_place, lambda piece, text: text.find(piece) + 1, text_value, text_value),
    "HEX": Function(1, 1, _hexadecimal),
    "MD5": function(_text_of_any_collation, partial(_digest, bits=128), text_value),
    **dict.fromkeys(("SHA", "SHA1"), _sha1),
    "SHA2": function(_text_of_any_collation, _digest, text_value, _sha2_bits),
}
"""Functions of texts."""


_PATH: Final = re.compile(
    r'\s*(?:\.\s*(?:([A-Za-z_$][A-Za-z0-9_$]*)|"([^"\\]*)")|\[\s*([0-9]+)\s*\])'
)


def _path(term: Term, what: str) -> Callable[[CanonicalRow], Sequence[str | int] | None]:
    """Return the steps of a path without wildcards, as `$.a[1]."b c"`."""
    text = literal_text(term, what).strip()
    if not text.startswith("$"):
        raise refused(f"{what} with such a path")
    at = 1
    steps: list[str | int] = []
    while at < len(text):
        piece = _PATH.match(text, at)
        if piece is None:
            raise refused(f"{what} with the path {shorten(text)}")
        at = piece.end()
        name = piece[1] if piece[1] is not None else piece[2]
        steps.append(name if name is not None else int(piece[3]))
    return constant(steps)


_NOTHING: Final = object()


def _step(value: Any, step: str | int) -> Any:
    if isinstance(step, str):
        members = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        return members.get(step, _NOTHING)
    # A value that is not an array counts as an array of itself.
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    return items[step] if step < len(items) else _NOTHING


def _read(text: str) -> Any:
    try:
        return read_json(text)
    except ValueError:
        raise refused("such JSON") from None


def _document(term: Term, what: str) -> _Text:
    """Return the function of a JSON document's text."""
    # Text that is not JSON is an error in TiDB, and no such row was stored.
    if isinstance(term, JsonTerm) or (isinstance(term, TextTerm) and term.literal is None):
        return term.evaluate
    raise refused(f"{what} of what is no JSON")


def _json(evaluate: _Text, _: Sequence[Term]) -> JsonTerm:
    return JsonTerm(evaluate)


def _extracted(document: str, steps: Sequence[str | int]) -> str | None:
    value = _read(document)
    for step in steps:
        value = _step(value, step)
        if value is _NOTHING:
            return None
    return write_json(value)


def _length_of(document: str) -> int:
    value = _read(document)
    return len(cast("list[Any]", value)) if isinstance(value, dict | list) else 1


def _json_only(term: Term, what: str) -> _Text:
    if not isinstance(term, JsonTerm):
        raise refused(f"{what} of what is no JSON")
    return term.evaluate


def _unquoted(document: str) -> str:
    """Return a JSON text as it is, and other JSON as it is printed."""
    value = _read(document)
    return value if isinstance(value, str) else shapes.spaced_json(document)


JSON_FUNCTIONS: Final[Functions] = {
    # NULL where the path leads nowhere.
    "JSON_EXTRACT": function(_json, _extracted, _document, _path),
    "JSON_UNQUOTE": function(_text_by_bytes, _unquoted, _json_only),
    "JSON_LENGTH": function(integer_result, _length_of, _document),
}
"""Functions of JSON."""
