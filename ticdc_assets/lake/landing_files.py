"""Ranges of a topic's offsets, fetched and written by Spark's Python workers.

In: ranges of offsets. Out: files in the folder of `raw_messages` that no commit names yet, and the
times of the last records. Spark shares out the ranges and sees no record: its own source takes each
record through the JVM's rows into a sort by landing day, for several times what fetching costs.

Why running it again is safe: see `files`. Each offset of a range is asked for once, and a range
that cannot be read to its end is an error.

Not handled: records with headers, and clients that are told how to see transactions; they are
Spark's.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from ticdc_assets.capture import CaptureRecord
from ticdc_assets.config import KafkaSource
from ticdc_assets.errors import SourceUnavailableError
from ticdc_assets.kafka import OffsetRange, fetch_each
from ticdc_assets.lake.files import FileWriter, WrittenFile
from ticdc_assets.lake.small_batches import BOUNDED
from ticdc_assets.lake.spark_commits import require_shared

_OFFSETS_PER_FILE = 500_000
_ROWS_PER_GROUP = 50_000
_GROUP_BYTES = 32 << 20
_CLIENT_BYTES = 16 << 20

_PLAIN = ("offset", "key", "value")
"""Columns whose values hardly ever repeat."""

_Range = tuple[str, int, int, int]
"""Topic, partition, first offset, and the one behind the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedFiles:
    """What was fetched.

    Attributes:
        files: files of `raw_messages`, relative to its folder.
        newest: time in ms of the last record of each (topic, partition), where there is one.
    """

    files: Sequence[WrittenFile]
    newest: Mapping[tuple[str, int], int]


def land_into_files(
    spark: SparkSession,
    source: KafkaSource,
    ranges: Mapping[tuple[str, int], tuple[int, int]],
    raw: Path,
    schema: pa.Schema,
    *,
    batch: int,
    landed_at: datetime,
    bases: Mapping[tuple[str, int], int],
) -> LandedFiles | None:
    """Fetch ranges of offsets into files; None if there are records with headers among them.

    Args:
        spark: the session.
        source: the cluster.
        ranges: what to fetch of each (topic, partition).
        raw: folder of `raw_messages`.
        schema: its columns.
        batch: number of the batch.
        landed_at: when it was landed.
        bases: what is added to the cluster's offsets of each (topic, partition); `ranges` have it.

    Raises:
        SourceUnavailableError: the broker stopped answering, or records of a range are gone.
        CommitError: workers do not share the lake's folder.
    """
    require_shared(spark, raw)
    offsets = sum(end - start for start, end in ranges.values())
    step = min(_OFFSETS_PER_FILE, math.ceil(offsets / spark.sparkContext.defaultParallelism))
    pieces: list[_Range] = [
        (topic, partition, first, min(end, first + step))
        for (topic, partition), (start, end) in sorted(ranges.items())
        for first in range(start, end, step)
    ]

    def fetched(some: Iterable[_Range]) -> Iterator[_Part | SourceUnavailableError | None]:
        for piece in some:
            try:
                yield _written(source, piece, raw, schema, batch, landed_at, bases[piece[:2]])
            except SourceUnavailableError as error:
                # An exception would come out of Spark as one of its own.
                yield error

    found: list[_Part | SourceUnavailableError | None] = (
        spark.sparkContext.parallelize(pieces, len(pieces)).mapPartitions(fetched).collect()
    )
    newest: dict[tuple[str, int], int] = {}
    files: list[WrittenFile] = []
    for (topic, partition, _, end), part in zip(pieces, found, strict=True):
        if isinstance(part, SourceUnavailableError):
            raise part
        if part is None:
            return None
        files += part.files
        if part.newest is not None and end == ranges[topic, partition][1]:
            newest[topic, partition] = part.newest
    return LandedFiles(files=files, newest=newest)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    files: Sequence[WrittenFile]
    newest: int | None


def _written(
    source: KafkaSource,
    piece: _Range,
    raw: Path,
    schema: pa.Schema,
    batch: int,
    landed_at: datetime,
    base: int,
) -> _Part | None:
    """Fetch a range and write it; None if a record has headers."""
    topic, partition, start, end = piece
    wanted = {(topic, partition): OffsetRange(earliest=start - base, end=end - base)}
    writer: FileWriter | None = None
    newest: int | None = None
    schema = schema.remove(schema.get_field_index("landed_day"))
    for records in _groups(fetch_each(source, wanted, max_bytes=_CLIENT_BYTES)):
        if records is None:
            return None
        if writer is None:
            day = {"landed_day": landed_at.date().isoformat()}
            writer = FileWriter(raw, schema, partition=day, bounded=BOUNDED, plain=_PLAIN)
        size = len(records)
        columns = {
            "batch": [batch] * size,
            "landed_at": [landed_at] * size,
            "topic": [topic] * size,
            "partition": [partition] * size,
            "offset": [record.offset + base for record in records],
            "timestamp_ms": [record.timestamp_ms for record in records],
            "key": [record.key for record in records],
            "value": [record.value for record in records],
            "headers": [None] * size,
        }
        writer.write(pa.table([columns[field.name] for field in schema], schema=schema))
        if records[-1].offset + base == end - 1:
            newest = records[-1].timestamp_ms
    return _Part(files=[] if writer is None else [writer.close()], newest=newest)


def _groups(
    records: Iterable[CaptureRecord | None],
) -> Iterator[list[CaptureRecord] | None]:
    """Yield records in lists of bounded size; None behind which nothing comes."""
    held: list[CaptureRecord] = []
    size = 0
    for record in records:
        if record is None:
            yield None
            return
        held.append(record)
        size += len(record.key or b"") + len(record.value or b"")
        if len(held) >= _ROWS_PER_GROUP or size >= _GROUP_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held
