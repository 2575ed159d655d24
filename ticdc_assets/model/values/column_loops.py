"""What compiled loops over one column share: forms of texts, and digits.

In: bytes, and for each row where its text begins and ends and its form (`values.columns`). Out:
numbers, or only whether the text is exact: canonical already, and held exactly by the typed column.
Of any other text a loop only says that it is not exact; `values.canonical` and `values.typed` know
what it means. The loops are in `number_loops`, `moment_loops` and `text_loops`.

They take a `Column`, and set `out`, and `exact`: whether a row is absent, NULL, or exact.

Only the bytes from `begins[row]` to `ends[row]` count; the caller keeps these inside the bytes,
with `vector_loops.PADDING` more after them. All arrays are contiguous; places are int32, forms
uint8, flags bool.
"""

# numba hides the types of what it compiles.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportArgumentType=false

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ticdc_assets.base.compiled import compiled

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]


class Column(NamedTuple):
    """Where the texts of one column are.

    Attributes:
        data: the bytes.
        begins: for each row where its text begins.
        ends: where it ends.
        forms: the form of its text: `ABSENT`, `NULL`, `TEXT`, `ESCAPED` (text with escapes as in
            JSON) or `ZONED` (the text of a timestamp in a zone that counts as the changefeed's).
    """

    data: Bytes
    begins: Places
    ends: Places
    forms: Bytes


ABSENT: Final = 0
NULL: Final = 1
TEXT: Final = 2
ESCAPED: Final = 3
ZONED: Final = 4

MINUS, POINT, ZERO, NINE = 45, 46, 48, 57


@compiled
def digits_at(data: Bytes, place: int, count: int) -> int:
    """Return the number that `count` digits make, -1 if they are not digits."""
    number = 0
    for at in range(place, place + count):
        if data[at] < ZERO or data[at] > NINE:
            return -1
        number = number * 10 + (data[at] - ZERO)
    return number
