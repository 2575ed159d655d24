"""Images of the change log read a column at a time: where the value of each column is.

In: Arrow columns of images (`rows.image_from_json`), and the names of a table's columns. Out:
`Images`: for each column the `values.columns.Places` of its values, and which images are exact. An
image that is not exact has no places; `rows.image_from_json` reads any.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring as quoted
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ticdc_assets.model.values.column_loops import ABSENT, NULL, Column
from ticdc_assets.model.values.columns import Flags, Places
from ticdc_assets.model.values.vector_loops import PADDING
from ticdc_assets.wire import image_loops as loops
from ticdc_assets.wire.tape.texts import texts_of

MOST_BYTES: Final = 1 << 30
"""Bytes of images that are read at once, so that places in them fit int32."""


@dataclass(frozen=True, slots=True, eq=False)
class Images:
    """Images of one table.

    Attributes:
        texts: where they are.
        begins: of each column and image where the value begins.
        ends: where it ends.
        forms: its form.
        counts: how many columns each image has, `image_loops.INEXACT` if it is not exact.
    """

    texts: loops.Texts
    begins: npt.NDArray[np.int32]
    ends: npt.NDArray[np.int32]
    forms: npt.NDArray[np.uint8]
    counts: npt.NDArray[np.int32]

    @property
    def exact(self) -> Flags:
        """Which images are exact."""
        return self.counts != loops.INEXACT

    def filled(self, images: npt.NDArray[np.int64], others: npt.NDArray[np.int64]) -> None:
        """Take the columns that images lack from other images."""
        lacks = self.forms[:, images] == ABSENT
        for places in (self.begins, self.ends, self.forms):
            places[:, images] = np.where(lacks, places[:, others], places[:, images])

    def column(self, number: int) -> Places:
        """Return the places of a column's values."""
        data, _, _ = self.texts
        column = Column(data, self.begins[number], self.ends[number], self.forms[number])

        def texts() -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8], Flags]:
            size = int(np.where(column.forms > NULL, column.ends - column.begins, 0).sum())
            count = len(column.forms)
            offsets, exact = np.empty(count + 1, np.int32), np.empty(count, np.bool_)
            content = np.empty(size + PADDING, np.uint8)
            loops.texts(column, offsets, content, exact)
            return offsets, content, exact

        return Places(column=column, texts=texts)

    def keys(self, columns: Sequence[int], images: npt.NDArray[np.int64]) -> "pa.Array[Any]":
        """Return `=` and the JSON array of some columns' texts for some images.

        The texts have no escapes there.
        """
        chosen = np.array(columns, np.int64)
        begins, ends = self.begins[chosen], self.ends[chosen]
        sizes = (ends - begins).sum(axis=0, dtype=np.int64)[images]
        size = int(sizes.sum()) + 3 * (len(columns) + 1) * len(images)
        content = np.empty(size + PADDING, np.uint8)
        offsets = np.empty(len(images) + 1, np.int32)
        loops.keys(self.texts.data, begins, ends, images.astype(np.int32), offsets, content)
        return pa.StringArray.from_buffers(
            len(images), pa.py_buffer(offsets), pa.py_buffer(content)
        )


class ImageReader:
    """Reads images of one table.

    Args:
        names: its columns.
        zones: locations of timestamps that count as the changefeed's zone.
    """

    def __init__(self, names: Sequence[str], zones: Iterable[str]) -> None:
        self._count = len(names)
        # As JSON texts: a name in another spelling does not match, nor does one with an escape.
        names_as_bytes, offsets = _joined([quoted(name)[1:-1] for name in names])
        followers = np.arange(len(offsets), dtype=np.int32)
        self._names = loops.Names(names_as_bytes, offsets, followers, *_joined(sorted(zones)))

    def read(self, columns: "Sequence[pa.Array[Any]]") -> Images | None:
        """Return the images of some columns of strings, one column after the other.

        Nulls are left out. None if the texts are more than `MOST_BYTES`.
        """
        parts = [_bytes_of(column) for column in columns]
        sizes = [len(content) for content, _, _ in parts]
        if sum(sizes) > MOST_BYTES:
            return None
        before = np.cumsum([0, *sizes], dtype=np.int32)
        starts = np.concatenate(
            [part + at for (_, part, _), at in zip(parts, before, strict=False)]
        )
        stops = np.concatenate([part + at for (_, _, part), at in zip(parts, before, strict=False)])
        shape = (self._count, len(starts))
        # The size of absent texts counts too.
        data = np.concatenate([*(content for content, _, _ in parts), np.zeros(PADDING, np.uint8)])
        texts = loops.Texts(data, starts, stops)
        members = loops.Members(
            begins=np.zeros(shape, np.int32),
            ends=np.zeros(shape, np.int32),
            forms=np.zeros(shape, np.uint8),
            counts=np.empty(len(starts), np.int32),
        )
        loops.find_members(texts, self._names, members)
        return Images(texts, *members)


def _joined(texts: Sequence[str]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)]).astype(np.int32)
    return np.frombuffer(bytearray(b"".join([*encoded, bytes(PADDING)])), np.uint8), offsets


def _bytes_of(
    column: "pa.Array[Any]",
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return the bytes of a column of strings, and where the present strings begin and end."""
    octets, starts, ends = texts_of(column, lambda octets: octets)
    there = column.is_valid().to_numpy(zero_copy_only=False)
    return octets, starts[there].astype(np.int32), ends[there].astype(np.int32)
