"""Operations on a table without a key: the change of each operation, and whether it is a replay.

In: changes of the change log, the function from them to operations, and the watermarks of the log.
Out: operations with the columns that identify a replay (`folding.with_origins`). It is a function
over batches, so it runs in this process and in Spark's workers. It handles operations on mirrors
and on histories in the same way.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_assets.rows.folding import with_origins
from ticdc_assets.rows.mirror_rows import ArrowMap
from ticdc_assets.wire.rows import PLACE, image_from_json

Numbers = npt.NDArray[np.int64]

_IDENTITY = ("commit_ts", "op", "before", "after")
"""The columns that a change of one table has in common with its replay.

That may be in another partition, and under the name in another case (`Lineage.take_spellings`). Its
images may have the columns in another order: Avro has none, and the new TiCDC another than the old.
"""

_sorted_bytes = msgspec.json.Encoder(order="sorted").encode


@dataclass(frozen=True, slots=True)
class Watermarks:
    """The watermarks of partitions.

    Attributes:
        by_partition: of each topic and partition the offsets of its watermarks, ascending, and the
            highest watermark up to each.
    """

    by_partition: Mapping[tuple[str, int], tuple[Numbers, Numbers]]

    def covering(self, changes: pa.RecordBatch) -> Numbers:
        """Return the offset of each change that a watermark at or above its ts precedes, else -1.

        The watermark promised that no new change of this commit ts would come after it.
        """
        offsets, stamps = (np.asarray(changes.column(name)) for name in ("offset", "commit_ts"))
        covered = np.full(len(offsets), -1, np.int64)
        topics = changes.column("topic").dictionary_encode()
        codes = np.asarray(changes.column("partition")).astype(np.int64)
        codes += np.asarray(topics.indices).astype(np.int64) << 32
        for code in np.unique(codes).tolist():
            place = topics.dictionary[code >> 32].as_py(), code & 0xFFFFFFFF
            if place in self.by_partition:
                sent_at, highest = self.by_partition[place]
                rows = np.flatnonzero(codes == code)
                ends = np.searchsorted(sent_at, offsets[rows])
                is_covered = (ends > 0) & (highest[ends - 1] >= stamps[rows])
                covered[rows[is_covered]] = offsets[rows[is_covered]]
        return covered


def watermarks_of(batches: Iterable[pa.RecordBatch]) -> Watermarks:
    """Return the watermarks of all partitions.

    Args:
        batches: watermarks: topic, partition, offset and commit ts, in any order.
    """
    watermarks = list(batches)
    by_partition: dict[tuple[str, int], tuple[Numbers, Numbers]] = {}
    if not watermarks:
        return Watermarks(by_partition)
    rows = pa.Table.from_batches(watermarks).sort_by("offset")
    for place in rows.group_by(["topic", "partition"]).aggregate([]).to_pylist():
        topic, partition = place["topic"], place["partition"]
        in_partition = rows.filter(
            (pc.field("topic") == topic) & (pc.field("partition") == partition)
        )
        highest = np.maximum.accumulate(in_partition["commit_ts"].to_numpy())
        by_partition[topic, partition] = in_partition["offset"].to_numpy(), highest
    return Watermarks(by_partition)


def bag_operations(convert: ArrowMap, watermarks: Watermarks) -> ArrowMap:
    """Return the function from changes to operations with the identity of their change.

    Args:
        convert: the function to operations.
        watermarks: the watermarks of the changes' partitions.
    """

    def converted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # By place: the identity of a change, and its offset if a watermark covers it.
        origins: dict[tuple[object, ...], tuple[bytes, int]] = {}

        def noted() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                said = zip(*(batch.column(name).to_pylist() for name in _IDENTITY), strict=True)
                covered = watermarks.covering(batch).tolist()
                origins.clear()
                for place, row, offset in zip(_places(batch.column), said, covered, strict=True):
                    origins[place] = _identity(*row), offset
                yield batch

        for operations in convert(noted()):
            # A change that a history cannot read is only at its own place.
            pairs = [origins[place] for place in _places(operations.column("sequence").field)]
            yield _with(operations, [item for item, _ in pairs], [item for _, item in pairs])

    return converted


def of_no_change(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return operations of earlier rows, which belong to no change and are no replays."""
    return _with(batch, [None] * batch.num_rows, [-1] * batch.num_rows)


def _with(
    operations: pa.RecordBatch, identities: list[bytes | None], covered: list[int]
) -> pa.RecordBatch:
    columns = [pa.array(identities, pa.binary(16)), pa.array(covered, pa.int64())]
    return pa.RecordBatch.from_arrays(
        [*operations.columns, *columns], schema=with_origins(operations.schema)
    )


def _places(column: Callable[[str], pa.Array]) -> Iterator[tuple[object, ...]]:
    """Return the places of changes or operations, by the function that returns a column."""
    return zip(*(column(name).to_pylist() for name in PLACE), strict=True)


def _identity(
    commit_ts: int, operation: str, before_text: str | None, after_text: str | None
) -> bytes:
    before, after = (image_from_json(text or "{}") for text in (before_text, after_text))
    # An unchanged column may have been left out of one of two copies.
    said = _sorted_bytes([commit_ts, operation, after, after | before])
    return blake2b(said, digest_size=16).digest()
