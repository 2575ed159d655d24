"""Deletion vectors: the deleted rows of a data file in a Delta version.

In: a commit's description of a file's deletion vector. Out: for any range of the file's rows, the
remaining rows. A MERGE or a DELETE marks rows this way instead of rewriting the file.

A vector is a compressed bitmap of row positions (Roaring, 64 bits, portable form) after a magic
number. It is in the commit itself, or in a file of many vectors, each between its size and its
checksum.

Why reading again is safe: nothing is written, and a vector never changes; later versions replace
it.

Source: "Deletion Vectors" and "Deletion Vector Format" in Delta's PROTOCOL.md.
"""

# numpy's and pyroaring's types are unknown to the checker.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import struct
import zlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ticdc_assets.storage.paths import AnyPath

_PORTABLE = 1_681_511_377
"""The number before a bitmap in Roaring's portable form."""


class DeletionVectorError(ValueError):
    """A deletion vector cannot be read; the text is the clause that says how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionVector:
    """Where the deletion vector of a data file is.

    Attributes:
        size: bytes of the bitmap, with the number before it.
        cardinality: how many rows are gone.
        path: the file; None if `data` has the bitmap.
        offset: where in the file it begins, at its size.
        data: the bitmap, if it stands in the commit.
    """

    size: int
    cardinality: int
    path: AnyPath | None = None
    offset: int = 0
    data: bytes = b""

    def kept(self, first: int, rows: int) -> npt.NDArray[np.bool_] | None:
        """Return which of `rows` rows from number `first` of the file on are left; None if all are.

        Raises:
            DeletionVectorError: the vector is damaged.
            OSError: its file cannot be read.
        """
        deleted = _read(self)
        begin, end = deleted.rank(first - 1) if first else 0, deleted.rank(first + rows - 1)
        if begin == end:
            return None
        left = np.ones(rows, np.bool_)
        left[np.fromiter(deleted[begin:end], np.int64, end - begin) - first] = False
        return left


@lru_cache(maxsize=16)
def _read(vector: DeletionVector) -> BitMap64:
    data = vector.data if vector.path is None else _in_file(vector, vector.path)
    if len(data) < vector.size:
        raise DeletionVectorError(f"{len(data)} bytes where {vector.size} were written")
    if data[:4] != struct.pack("<I", _PORTABLE):
        raise DeletionVectorError("not a bitmap in the portable form")
    try:
        found = BitMap64.deserialize(data[4 : vector.size])
    except ValueError:
        raise DeletionVectorError("not a bitmap") from None
    if len(found) != vector.cardinality:
        raise DeletionVectorError(f"{len(found)} rows where {vector.cardinality} were deleted")
    return found


def _in_file(vector: DeletionVector, path: AnyPath) -> bytes:
    with path.open("rb") as file:
        file.seek(vector.offset)
        size = file.read(4)
        data = file.read(vector.size)
        checksum = file.read(4)
    if size != struct.pack(">I", vector.size):
        raise DeletionVectorError(f"no vector of {vector.size} bytes at byte {vector.offset}")
    if checksum != struct.pack(">I", zlib.crc32(data)):
        raise DeletionVectorError(f"another checksum than was written, at byte {vector.offset}")
    return data
