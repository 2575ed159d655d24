"""Regular rows of a binary format as columns, made of what was read of a part of the batch.

In: a batch of records, and a function that reads the regular ones of some records next to each
other: how many rows each has, and the columns of these rows as arrays of numbers, of few texts, and
of images. Out: the regular rows of the batch as Arrow columns. Records with an image that is no
UTF-8 turn out not to be regular when the images are put together, and are left out then.

A batch is read in parts of at most `_PART_BYTES`, so that what is kept beside the bytes stays
bounded; a longer message is never regular. The parts do not show in the result.
"""

# pyarrow has no type information, so what comes from it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from ticdc_assets.wire.byte_columns import Buffer, Flags, Ints, Octets, buffer_of
from ticdc_assets.wire.image_columns import Images, image_column
from ticdc_assets.wire.rows import CHANGE_SCHEMA, ROW, RegularRows

_PART_BYTES: Final = 1 << 22


@dataclass(frozen=True, slots=True)
class Part:
    """The values of records next to each other.

    Attributes:
        buffer: their bytes.
        starts: where each value starts.
        ends: where it ends; at its start for null, and for one that is too long.
    """

    buffer: Buffer
    starts: Ints
    ends: Ints


@dataclass(frozen=True, slots=True)
class Words:
    """A column of texts of which there are few.

    Attributes:
        codes: the number of each text, -1 for none.
        texts: the texts by number.
    """

    codes: Ints
    texts: Sequence[str]


@dataclass(frozen=True, slots=True)
class Numbers:
    """A column of numbers or flags.

    Attributes:
        values: the values.
        missing: where there is none; None for nowhere.
    """

    values: np.ndarray[Any, Any]
    missing: Flags | None = None


@dataclass(frozen=True, slots=True)
class ImageColumn:
    """A column of images.

    Attributes:
        images: the images.
        numbers: the number of each row's image, -1 for none.
    """

    images: Images
    numbers: Ints


RegularColumn: TypeAlias = Words | Numbers | ImageColumn


@dataclass(frozen=True, slots=True)
class PartRows:
    """The regular rows of a part.

    Attributes:
        counts: how many rows each record has; 0 for one that is not regular.
        columns: the columns of these rows, without coordinates and without those that are null.
    """

    counts: Ints
    columns: Mapping[str, RegularColumn]

    def keep(self, counts: Ints, rows: Flags) -> "PartRows":
        """Return some of the rows, of which the records have `counts`."""
        columns: dict[str, RegularColumn] = {}
        for name, column in self.columns.items():
            match column:
                case Words():
                    columns[name] = Words(column.codes[rows], column.texts)
                case Numbers():
                    missing = None if column.missing is None else column.missing[rows]
                    columns[name] = Numbers(column.values[rows], missing)
                case ImageColumn():
                    columns[name] = ImageColumn(column.images, column.numbers[rows])
        return PartRows(counts, columns)


def every_row(length: int) -> dict[str, RegularColumn]:
    """Return the columns that say the same of all row changes."""
    zeros = np.zeros(length, np.int64)
    no = np.zeros(length, np.bool_)
    return {
        "index": Numbers(zeros),
        "kind": Words(zeros, (ROW,)),
        "handle_key_only": Numbers(no),
        "es_only": Numbers(no),
    }


def decode_parts(batch: pa.RecordBatch, read: Callable[[Part], PartRows]) -> RegularRows | None:
    """Return the regular rows of the records of `batch`, None if there are none.

    Args:
        batch: records with a column `value`.
        read: reads the regular ones of a part.
    """
    sources: list[Ints] = []
    parts: list[dict[str, pa.Array[Any]]] = []
    for first, part in parts_of(batch.column("value")):
        rows = read(part)
        columns, wrong = _columns(rows)
        if len(wrong):
            owners = np.repeat(np.arange(len(rows.counts)), rows.counts)
            counts = rows.counts.copy()
            counts[owners[wrong]] = 0
            rows = rows.keep(counts, counts[owners] != 0)
            columns, _ = _columns(rows)
        if not rows.counts.any():
            continue
        sources.append(first + np.repeat(np.arange(len(rows.counts)), rows.counts))
        parts.append(columns)
    return rows_of_parts(sources, parts)


def rows_of_parts(
    sources: Sequence[Ints], parts: "Sequence[Mapping[str, pa.Array[Any]]]"
) -> RegularRows | None:
    """Return the rows of all parts, None if there are no parts.

    Args:
        sources: of each part for each row the number of its record in the batch.
        parts: of each part the columns of its rows.
    """
    if not parts:
        return None
    return RegularRows(
        sources=np.concatenate(sources),
        columns=parts[0]
        if len(parts) == 1
        else {name: pa.concat_arrays([part[name] for part in parts]) for name in parts[0]},
    )


def parts_of(column: "pa.Array[Any]") -> Iterator[tuple[int, Part]]:
    """Yield the values of a binary column in parts, each with the number of its first record."""
    octets, offsets, ends = _places(column)
    count, first = len(ends), 0
    while first < count:
        last = int(np.searchsorted(offsets, offsets[first] + _PART_BYTES, side="right")) - 1
        last = min(max(last, first + 1), count)
        low, high = int(offsets[first]), int(offsets[last])
        starts, stops = offsets[first:last] - low, ends[first:last] - low
        if high - low > _PART_BYTES:
            high, stops = low, starts
        yield first, Part(buffer_of(octets[low:high]), starts, stops)
        first = last


def part_of(column: "pa.Array[Any]") -> Part:
    """Return all values of a binary column as one part, however long they are."""
    octets, offsets, ends = _places(column)
    low, high = int(offsets[0]), int(offsets[-1])
    return Part(buffer_of(octets[low:high]), offsets[:-1] - low, ends - low)


def _places(column: "pa.Array[Any]") -> tuple[Octets, Ints, Ints]:
    """Return the bytes of a binary column, where its values start, and end if they are no null.

    Behind the start of the last value stands its end.
    """
    column = column.cast(pa.large_binary())
    count = len(column)
    _, raw_offsets, content = column.buffers()
    if not count or raw_offsets is None:
        return np.empty(0, np.uint8), np.zeros(1, np.int64), np.empty(0, np.int64)
    offsets = np.frombuffer(raw_offsets, np.int64, count=column.offset + count + 1)[column.offset :]
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    ends = np.where(valid, offsets[1:], offsets[:-1])
    return np.frombuffer(content or b"", np.uint8), offsets, ends


def _columns(rows: PartRows) -> "tuple[dict[str, pa.Array[Any]], Ints]":
    """Return the columns, and the numbers of the rows with an image that is no UTF-8."""
    columns: dict[str, pa.Array[Any]] = {}
    wrong = np.empty(0, np.int64)
    for name, column in rows.columns.items():
        match column:
            case Words(codes, texts):
                chosen = pa.array(codes, pa.int64(), mask=codes < 0)
                columns[name] = pa.array(texts, pa.string()).take(chosen)
            case Numbers(values, missing):
                columns[name] = pa.array(values, CHANGE_SCHEMA.field(name).type, mask=missing)
            case ImageColumn(images, numbers):
                columns[name], found = image_column(images, numbers)
                wrong = np.concatenate((wrong, found))
    return columns, wrong
