"""Texts of values as the numbers that the encoders write.

In: the text of a number, as `events.PhysicalValue` has it. Out: the number; or a `ValueError` for a
text that is none, or none of the range.
"""

import math
import re
from typing import Final

from ticdc_assets.base.errors import shorten
from ticdc_assets.model.values.floats import to_float32
from ticdc_assets.model.values.shapes import NUMBER

_INTEGER: Final = re.compile(r"-?[0-9]{1,20}", re.ASCII)


def integer(text: str, low: int, high: int) -> int:
    """Return the integer, from `low` to `high`, that `text` is."""
    if _INTEGER.fullmatch(text) is None or not low <= int(text) <= high:
        raise ValueError(f"no integer from {low} to {high}: {shorten(text)}")
    return int(text)


def double(text: str) -> float:
    """Return the finite number of 64 bits that `text` is."""
    if NUMBER.fullmatch(text) is None or not math.isfinite(float(text)):
        raise ValueError(f"no number of 64 bits: {shorten(text)}")
    return float(text)


def single(text: str) -> float:
    """Return the finite number of 32 bits next to the one that `text` is."""
    number = to_float32(double(text))
    if not math.isfinite(number):
        raise ValueError(f"no number of 32 bits: {shorten(text)}")
    return number
