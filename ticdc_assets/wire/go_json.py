"""JSON text as TiCDC's Go code writes it, read strictly.

In: the value of a Kafka record. Out: plain Python values (`dict`, `list`, `str`, `int`, `bool`,
None, `OtherNumber`), or a `WireError` that names the byte.

Reading accepts exactly RFC 8259 in UTF-8 and refuses what other parsers accept: a byte order mark,
bytes that are not UTF-8, lone surrogates (Go would replace them by U+FFFD, which changes a value
silently), NaN and Infinity, trailing bytes, nesting deeper than `MAX_DEPTH`, and more than
`MAX_VALUES` values. Of several members of one name the last wins, as a whole. A number that is not
a 64-bit integer (fraction, exponent, too many digits) becomes an `OtherNumber`, never a float: it
is accepted in fields that nobody reads, and refused by the readers of others. No text is converted
to a large integer, so the cost stays linear.

Not handled here: what the fields mean (`simple.message`), and which are required.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from ticdc_assets.base.errors import WireError, shorten
from ticdc_assets.model.values import shapes
from ticdc_assets.wire.codes import MAX_DEPTH
from ticdc_assets.wire.record import content_of, text_of

MAX_VALUES: Final = 1_000_000
"""Most nested values that are read: each takes many times its bytes.

A row of as many columns as TiDB lets a table have needs a hundredth.
"""

LEAST_BYTES_OF_TOO_MANY: Final = 2 * MAX_VALUES
"""A message with more values has more bytes than this."""

_WHITESPACE: Final = " \t\n\r"
_BYTE_ORDER_MARK: Final = "\ufeff"
_MIN_INTEGER: Final = -(2**63)
_MAX_INTEGER: Final = 2**64 - 1
_LONGEST_INTEGER: Final = len(str(_MIN_INTEGER))

_CONSTANT: Final = re.compile("NaN|-?Infinity")
_STRING_OR_MARK: Final = re.compile(rf"{shapes.STRING.pattern}|[\[{{,]", re.DOTALL)

_HIGH: Final = r"\\u[dD][89abAB][0-9a-fA-F]{2}"
_LOW: Final = r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE: Final = re.compile(rf"(?:{_HIGH}{_LOW})|(?P<lone>{_HIGH}|{_LOW})|\\.", re.DOTALL)
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")

_SIMPLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_LONGEST_SIMPLE: Final = 128
"""Twice the longest name of TiDB; longer keys are cut, so that errors stay short."""


@dataclass(frozen=True, slots=True)
class OtherNumber:
    """A JSON number that is not a 64-bit integer, kept as its text.

    Attributes:
        text: the number as written.
    """

    text: str

    def __repr__(self) -> str:
        return self.text


def parse(value: bytes | None, *, as_sent: bool = False) -> Any:
    """Return the JSON value of `value`.

    With `as_sent` every number is an `OtherNumber`, so that -0 is not lost.

    Raises:
        WireError: `value` is null, empty, blank or not strict JSON; the position is a byte.
    """
    text = _text(value)
    # Before the recursive parser sees them, and creates values.
    _check_values(text)
    if shapes.is_too_deep(text, MAX_DEPTH):
        expected = f"at most {MAX_DEPTH} nested arrays and objects"
        raise WireError("too_deep", "byte 0", expected, "more")
    start = _skip_whitespace(text, 0)
    try:
        parsed, end = (_DECODER_AS_SENT if as_sent else _DECODER).raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise _invalid(text, error.pos, error.msg) from None
    except _ConstantError:
        # The parser does not say where; with the strings blanked only the constant can match.
        blanked = shapes.STRING.sub(lambda string: " " * len(string[0]), text)
        match = _CONSTANT.search(blanked)
        raise _invalid(text, match.start() if match else 0, "no JSON number") from None
    end = _skip_whitespace(text, end)
    if end != len(text):
        raise WireError(
            "trailing_bytes", _byte(text, end), "the end of the value", _excerpt(text, end)
        )
    _check_surrogates(text)
    return parsed


def member(position: str, name: str) -> str:
    """Return the JSON path of member `name` of the object at `position`."""
    if len(name) <= _LONGEST_SIMPLE and _SIMPLE_NAME.match(name) is not None:
        return f"{position}.{name}"
    return f"{position}[{json.dumps(name[:80], ensure_ascii=False)}]"


def _text(value: bytes | None) -> str:
    content = content_of(value, "a JSON object")
    text = text_of(content, 0)
    if text.startswith(_BYTE_ORDER_MARK):
        raise WireError("byte_order_mark", "byte 0", "a JSON object", "U+FEFF")
    if not text.strip(_WHITESPACE):
        raise WireError("blank_value", "byte 0", "a JSON object", f"{len(content)} blank bytes")
    return text


def _skip_whitespace(text: str, start: int) -> int:
    while start < len(text) and text[start] in _WHITESPACE:
        start += 1
    return start


def _check_values(text: str) -> None:
    """Refuse more values than memory is meant for."""
    if sum(map(text.count, "[{,")) <= MAX_VALUES:
        return
    marks = 0
    for match in _STRING_OR_MARK.finditer(text):
        marks += text[match.start()] != '"'
        if marks > MAX_VALUES:
            raise WireError("too_many_values", "byte 0", f"at most {MAX_VALUES} values", "more")


def _check_surrogates(text: str) -> None:
    if _SURROGATE.search(text) is None:
        return
    for match in _ESCAPE.finditer(text):
        if match["lone"] is not None:
            raise WireError(
                "lone_surrogate",
                _byte(text, match.start()),
                "a pair of surrogates",
                shorten(match["lone"]),
            )


def _invalid(text: str, index: int, cause: str) -> WireError:
    got = f"{_excerpt(text, index)} ({cause[:1].lower()}{cause[1:]})"
    return WireError("invalid_json", _byte(text, index), "strict JSON", got)


def _byte(text: str, index: int) -> str:
    return f"byte {len(text[:index].encode())}"


def _excerpt(text: str, index: int) -> str:
    return shorten(text[index : index + 20]) if index < len(text) else "the end"


def _integer(text: str) -> int | OtherNumber:
    if len(text) > _LONGEST_INTEGER:
        return OtherNumber(text)
    number = int(text)
    return number if _MIN_INTEGER <= number <= _MAX_INTEGER else OtherNumber(text)


class _ConstantError(Exception):
    """The text has NaN, Infinity or -Infinity."""


def _constant(text: str) -> None:
    raise _ConstantError(text)


_DECODER: Final = json.JSONDecoder(
    parse_int=_integer, parse_float=OtherNumber, parse_constant=_constant
)
_DECODER_AS_SENT: Final = json.JSONDecoder(
    parse_int=OtherNumber, parse_float=OtherNumber, parse_constant=_constant
)
