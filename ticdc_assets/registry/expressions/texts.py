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
from typing import Any, Final, cast

from ticdc_assets.base.errors import shorten
from ticdc_assets.model.values import shapes
from ticdc_assets.model.values.json_texts import read_json, write_json
from ticdc_assets.registry.evolution import CanonicalRow
from ticdc_assets.registry.expressions.terms import (
    MANY,
    Build,
    Evaluate,
    Functions,
    JsonTerm,
    Moment,
    MomentTerm,
    NullLiteral,
    Number,
    NumberTerm,
    Term,
    TextTerm,
    all_of,
    both_of,
    exact,
    is_constant,
    literal_integer,
    literal_text,
    mapped,
    number_of,
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


def _function(kinds: str, change: Callable[..., str]) -> Build:
    """Return a function that gives a text (`change` of its values): NULL if an argument is.

    Of `kinds` each letter says what an argument is: `T` a text that decides the collation, `t`
    another text, `n` a whole number, `l` the literal of one. The last is that of all further
    arguments.
    """

    def value_of(kind: str, argument: Term, name: str) -> Evaluate:
        if kind in "Tt":
            return text_term(argument, name).evaluate
        if kind == "l":
            literal_integer(argument, name)
        number = number_of(argument, name)
        if number.fractional:
            raise refused(f"{name} with a fraction")
        return number.evaluate

    def build(name: str, arguments: Sequence[Term]) -> Term:
        kinds_of = kinds.ljust(len(arguments), kinds[-1])
        pairs = list(zip(kinds_of, arguments, strict=False))
        values = [value_of(kind, argument, name) for kind, argument in pairs]
        deciding = [argument for kind, argument in pairs if kind == "T"]
        return TextTerm(all_of(values, change), collation_of(deciding))

    return build


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


def _counted(count: Callable[[str], int]) -> Build:
    def build(name: str, arguments: Sequence[Term]) -> Term:
        return exact(mapped(text_term(arguments[0], name).evaluate, count), 0)

    return build


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


def _located(name: str, arguments: Sequence[Term]) -> Term:
    text, piece = arguments if name == "INSTR" else (arguments[1], arguments[0])
    if collation_of(arguments) not in BINARY_COLLATIONS:
        raise refused(f"{name} of texts by their collation")
    both = text_term(text, name).evaluate, text_term(piece, name).evaluate
    return exact(both_of(*both, lambda whole, part: whole.find(part) + 1), 0)


def _substring_index(text: str, between: str, count: int) -> str:
    if not between or not count:
        return ""
    pieces = text.split(between)
    return between.join(pieces[:count] if count > 0 else pieces[count:])


def _hexadecimal(name: str, arguments: Sequence[Term]) -> Term:
    if isinstance(arguments[0], NumberTerm):
        number = number_of(arguments[0], name)
        if number.fractional:
            raise refused("HEX of a fraction")
        return TextTerm(mapped(number.evaluate, lambda value: f"{int(value) % 2**64:X}"))
    text_of = text_term(arguments[0], name).evaluate
    return TextTerm(mapped(text_of, lambda text: text.encode().hex().upper()))


def _digest(name: str) -> Build:
    def digest(text: str) -> str:
        return hashlib.new(name, text.encode(), usedforsecurity=False).hexdigest()

    return lambda what, arguments: TextTerm(
        mapped(text_term(arguments[0], what).evaluate, digest), ""
    )


def _sha2(name: str, arguments: Sequence[Term]) -> Term:
    bits = literal_integer(arguments[1], name) or 256
    if bits not in (224, 256, 384, 512):
        raise refused(f"SHA2 of {bits} bits")
    return _digest(f"sha{bits}")(name, arguments[:1])


TEXT_FUNCTIONS: Final[Functions] = {
    "CONCAT": (1, MANY, _function("T", lambda *texts: "".join(texts))),
    "CONCAT_WS": (2, MANY, _concat_ws),
    "UPPER": (1, 1, _function("T", _cased(str.upper))),
    "UCASE": (1, 1, _function("T", _cased(str.upper))),
    "LOWER": (1, 1, _function("T", _cased(str.lower))),
    "LCASE": (1, 1, _function("T", _cased(str.lower))),
    "TRIM": (1, 1, _function("T", methodcaller("strip", " "))),
    "LTRIM": (1, 1, _function("T", methodcaller("lstrip", " "))),
    "RTRIM": (1, 1, _function("T", methodcaller("rstrip", " "))),
    "REVERSE": (1, 1, _function("T", itemgetter(slice(None, None, -1)))),
    "REPLACE": (3, 3, _function("T", _replaced)),
    "LENGTH": (1, 1, _counted(lambda text: len(text.encode()))),
    "OCTET_LENGTH": (1, 1, _counted(lambda text: len(text.encode()))),
    "CHAR_LENGTH": (1, 1, _counted(len)),
    "CHARACTER_LENGTH": (1, 1, _counted(len)),
    "CRC32": (1, 1, _counted(lambda text: zlib.crc32(text.encode()))),
    "SUBSTRING": (2, 3, _function("Tn", _substring)),
    "SUBSTR": (2, 3, _function("Tn", _substring)),
    "MID": (3, 3, _function("Tn", _substring)),
    "LEFT": (2, 2, _function("Tn", _left)),
    "RIGHT": (2, 2, _function("Tn", _right)),
    "LPAD": (3, 3, _function("Tnt", partial(_padded, left=True))),
    "RPAD": (3, 3, _function("Tnt", partial(_padded, left=False))),
    "SUBSTRING_INDEX": (3, 3, _function("Ttl", _substring_index)),
    "INSTR": (2, 2, _located),
    "LOCATE": (2, 2, _located),
    "HEX": (1, 1, _hexadecimal),
    "MD5": (1, 1, _digest("md5")),
    "SHA": (1, 1, _digest("sha1")),
    "SHA1": (1, 1, _digest("sha1")),
    "SHA2": (2, 2, _sha2),
}
"""Functions of texts."""


_PATH: Final = re.compile(
    r'\s*(?:\.\s*(?:([A-Za-z_$][A-Za-z0-9_$]*)|"([^"\\]*)")|\[\s*([0-9]+)\s*\])'
)


def _path_of(term: Term, what: str) -> tuple[str | int, ...]:
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
    return tuple(steps)


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


def _json_term(term: Term, what: str) -> JsonTerm:
    if isinstance(term, JsonTerm):
        return term
    if isinstance(term, TextTerm) and term.literal is None:
        # Text that is not JSON is an error in TiDB, and no such row was stored.
        return JsonTerm(mapped(term.evaluate, lambda text: write_json(_read(text))))
    raise refused(f"{what} of what is no JSON")


def json_extract(name: str, arguments: Sequence[Term]) -> Term:
    """Return the term of `JSON_EXTRACT(document, path)`: NULL where the path leads nowhere."""
    document = _json_term(arguments[0], name).evaluate
    steps = _path_of(arguments[1], name)

    def extract(text: str) -> str | None:
        value = _read(text)
        for step in steps:
            value = _step(value, step)
            if value is _NOTHING:
                return None
        return write_json(value)

    return JsonTerm(mapped(document, extract))


def json_unquote(name: str, arguments: Sequence[Term]) -> Term:
    """Return the term of `JSON_UNQUOTE(value)`: a JSON text as it is, other JSON as printed."""
    if not isinstance(arguments[0], JsonTerm):
        raise refused(f"{name} of what is no JSON")

    def unquote(text: str) -> str:
        value = _read(text)
        return value if isinstance(value, str) else shapes.spaced_json(text)

    return TextTerm(mapped(arguments[0].evaluate, unquote), DEFAULT_COLLATION)


def _json_length(name: str, arguments: Sequence[Term]) -> Term:
    document = _json_term(arguments[0], name).evaluate

    def length(text: str) -> int:
        value = _read(text)
        return len(cast("list[Any]", value)) if isinstance(value, dict | list) else 1

    return exact(mapped(document, length), 0)


JSON_FUNCTIONS: Final[Functions] = {
    "JSON_EXTRACT": (2, 2, json_extract),
    "JSON_UNQUOTE": (1, 1, json_unquote),
    "JSON_LENGTH": (1, 1, _json_length),
}
"""Functions of JSON."""
