"""The shapes of canonical texts: patterns and text-level normalisation, no schema.

A pattern here accepts exactly what TiDB prints, in ASCII digits only (`int`, `float` and
`fromisoformat` accept much more: underscores, spaces, other scripts' digits, week dates). None
needs more than linear time on any text.
"""

import json
import re
from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate
from typing import Any

import orjson

INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?")
SHORTEST = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]*[1-9])?")
PLAIN_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")
DECIMAL = re.compile(r"([+-]?)(?=\.?[0-9])0*+([0-9]*)(?:\.([0-9]*))?")

_DATE = r"[0-9]{4}-(?:0[0-9]|1[0-2])-(?:[0-2][0-9]|3[01])"
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
_SPAN = r"-?(?:[0-9]{2}|[1-7][0-9]{2}|8[0-2][0-9]|83[0-8]):[0-5][0-9]:[0-5][0-9]"

DATE = re.compile(_DATE)


@lru_cache(maxsize=512)
def decimal_pattern(precision: int, scale: int) -> re.Pattern[str]:
    """Return the pattern of DECIMAL(precision, scale) in canonical text."""
    whole = precision - scale
    head = f"(?:0|[1-9][0-9]{{0,{whole - 1}}})" if whole > 0 else "0"
    return re.compile(rf"-?{head}\.[0-9]{{{scale}}}" if scale else rf"-?{head}")


@lru_cache(maxsize=8)
def datetime_pattern(digits: int | None) -> re.Pattern[str]:
    """Return the pattern of DATETIME with `digits` fractional digits; None for any number."""
    return re.compile(f"{_DATE} {_CLOCK}{_fraction(digits)}")


@lru_cache(maxsize=8)
def time_pattern(digits: int | None) -> re.Pattern[str]:
    """Return the pattern of TIME with `digits` fractional digits; None for any number."""
    return re.compile(f"{_SPAN}{_fraction(digits)}")


def _fraction(digits: int | None) -> str:
    if digits is None:
        return r"(?:\.[0-9]{1,6})?"
    return rf"\.[0-9]{{{digits}}}" if digits else ""


def pad_fraction(text: str, digits: int) -> str:
    """Return `text` with zeros appended until its fraction has `digits` digits."""
    point = text.rfind(".")
    if point < 0:
        return f"{text}.{'0' * digits}" if digits else text
    return text.ljust(point + 1 + digits, "0")


_STRING_OR_SPACE = re.compile(r'("(?:[^"\\]|\\.)*+")|[ \t\n\r]+')
_STRING_OR_SEPARATOR = re.compile(r'("(?:[^"\\]|\\.)*+")|([,:])')


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _keep_text(text: str) -> str:
    return text


_STRICT_JSON: Callable[[str], Any] = json.JSONDecoder(
    parse_constant=_refuse_constant, parse_float=_keep_text, parse_int=_keep_text
).decode


def is_json(text: str) -> bool:
    """Return whether `text` is one JSON document."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        # orjson refuses a few texts that are JSON (an escaped half of a surrogate pair).
        try:
            _STRICT_JSON(text)
        except (ValueError, RecursionError):
            return False
    return True


MAX_JSON_DEPTH = 1024
"""Most nested arrays and objects that are read; TiDB stores 100 at most."""

STRING = re.compile(r'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
"""A string of JSON. One without its end has the rest of the text, where a parser stops too."""
_DEEPER = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_OTHER_BYTES = bytes({*range(256)} - {*_DEEPER})


def is_too_deep(text: str, most: int = MAX_JSON_DEPTH) -> bool:
    """Return whether `text` has more nested arrays and objects, even if it is otherwise invalid.

    Up to the first error of a parser both agree on what is inside a string, so no parser goes
    deeper than this counts.
    """
    if text.count("[") + text.count("{") <= most:
        return False
    brackets = STRING.sub("", text).encode(errors="replace").translate(None, _OTHER_BYTES)
    return max(accumulate(map(_DEEPER.__getitem__, brackets)), default=0) > most


def compact_json(text: str) -> str:
    """Return the JSON `text` without whitespace outside strings, as Go's `json.Compact`."""
    if " " not in text and "\n" not in text and "\t" not in text and "\r" not in text:
        return text
    return _STRING_OR_SPACE.sub(r"\1", text)


def spaced_json(text: str) -> str:
    """Return compact JSON as TiDB prints it: one space after each comma and colon."""
    return _STRING_OR_SEPARATOR.sub(lambda match: match[1] or match[2] + " ", text)


def is_encodable(text: str) -> bool:
    """Return whether `text` can be written as UTF-8 (no half of a surrogate pair)."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
