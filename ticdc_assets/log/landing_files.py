"""Records as files of `raw_messages`: ranges of a topic's offsets, or records of a capture.

In: ranges of offsets, or records. Out: files in the folder of `raw_messages` that no commit names
yet (so running it again is safe), and the times of the last records of ranges. One client fetches
all ranges of a task (`executing`), into one file; a capture is read into one. Each offset of a
range is fetched once, and a range that cannot be read to its end is an error.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import add
from typing import Any, TypeAlias

import pyarrow as pa

from ticdc_assets.base.errors import SourceUnavailableError
from ticdc_assets.config import CaptureSource, KafkaSource
from ticdc_assets.delta.appending import BOUNDED, DISTINCT
from ticdc_assets.delta.files import GROUP_BYTES, FileLayout, WrittenFile, gathered, write_rows
from ticdc_assets.delta.row_schema import filled, typed
from ticdc_assets.source.capture import CaptureReader, CaptureRecord
from ticdc_assets.source.kafka.administration import OffsetRange
from ticdc_assets.source.kafka.records import fetch
from ticdc_assets.spark.executing import Executor
from ticdc_assets.storage.paths import AnyPath

_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])

RECORD_SCHEMA = pa.schema(
    [
        *typed(str, "topic"),
        ("partition", pa.int32()),
        *typed(int, "offset", "timestamp_ms"),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.field("element", _HEADER))),
    ]
)
"""A record as Kafka has it."""

RAW_SCHEMA = pa.schema(
    [
        ("batch", pa.int64()),
        ("landed_at", pa.timestamp("us", tz="UTC")),
        *RECORD_SCHEMA,
        ("landed_day", pa.date32()),
    ]
)
"""`raw_messages`: one row for each Kafka record."""

_FILE_SCHEMA = RAW_SCHEMA.remove(RAW_SCHEMA.get_field_index("landed_day"))

_OFFSETS_PER_FILE = 500_000
_ROWS_PER_GROUP = 50_000
_READ_RECORDS = 5_000

_PLACE = [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]

Columns: TypeAlias = Sequence[Any]
"""Columns of records."""

Ranges: TypeAlias = Mapping[tuple[str, int], tuple[int, int]]
"""The first offset of each (topic, partition), and the one after the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingBatch:
    """The batch of records that are landed together into the folder `raw`.

    `bases` is what is added to the source's offsets of a (topic, partition), if anything is.
    """

    raw: AnyPath
    number: int
    landed_at: datetime
    bases: Mapping[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])

    def sent(self, ranges: Ranges) -> dict[tuple[str, int], OffsetRange]:
        """Return ranges in the source's own offsets."""
        bases = ((place, self.bases.get(place, 0)) for place in ranges)
        return {
            place: OffsetRange(earliest=ranges[place][0] - base, end=ranges[place][1] - base)
            for place, base in bases
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedFiles:
    """Files of fetched records, and the time in ms of the last record of each partition, if any."""

    files: Sequence[WrittenFile]
    newest: Mapping[tuple[str, int], int]


def fetch_into_files(
    executor: Executor, source: KafkaSource, ranges: Ranges, batch: LandingBatch
) -> LandedFiles:
    """Fetch ranges of offsets, those of the lake, into files.

    Raises:
        SourceUnavailableError: the broker stopped answering, or records of a range are gone.
        ClusterError: workers do not share the lake, or cannot work.
    """

    def fetched(some: Iterable[Ranges]) -> Iterator[LandedFiles]:
        for part in some:
            yield write_columns(map(_columns, fetch(source, batch.sent(part))), part, batch)

    offsets = sum(end - start for start, end in ranges.values())
    parts = _shared_out(ranges, max(executor.workers, math.ceil(offsets / _OFFSETS_PER_FILE)))
    outputs = executor.run(fetched, parts, tasks=len(parts))
    return LandedFiles(
        files=[file for part in outputs for file in part.files],
        newest={
            place: ms
            for part, result in zip(parts, outputs, strict=True)
            for place, ms in result.newest.items()
            if part[place][1] == ranges[place][1]
        },
    )


def _shared_out(ranges: Ranges, parts: int) -> list[Ranges]:
    """Cut ranges into a number of parts with about as many offsets each."""
    share = math.ceil(sum(end - start for start, end in ranges.values()) / parts)
    pieces: list[dict[tuple[str, int], tuple[int, int]]] = [{}]
    left = share
    for place, (start, end) in sorted(ranges.items()):
        while start < end:
            if not left:
                pieces.append({})
                left = share
            stop = min(end, start + left)
            pieces[-1][place] = (start, stop)
            left -= stop - start
            start = stop
    return [*pieces]


def _columns(messages: Sequence[Any]) -> Columns:
    """Return messages of the client as columns."""
    sent = [message.headers() for message in messages]
    headers = [
        [{"key": key, "value": value} for key, value in pairs] if pairs else None
        for pairs in (sent if any(sent) else ())
    ]
    return [
        [message.topic() for message in messages],
        [message.partition() for message in messages],
        [message.offset() for message in messages],
        [message.timestamp()[1] for message in messages],
        [message.key() for message in messages],
        [message.value() for message in messages],
        headers or None,
    ]


def read_into_file(source: CaptureSource, ranges: Ranges, batch: LandingBatch) -> LandedFiles:
    """Read ranges of a capture, by the offsets of the lake, into a file.

    Raises:
        SourceUnavailableError: the capture cannot be read, or lost its end.
        CaptureError: it is malformed.
    """
    wanted = batch.sent(ranges)
    newest: dict[tuple[str, int], int] = {}

    def is_wanted(topic: str, partition: int, offset: int) -> bool:
        newest[topic, partition] = offset
        span = wanted.get((topic, partition))
        return span is not None and span.earliest <= offset < span.end

    def columns() -> Iterator[Columns]:
        with CaptureReader(source.path, wanted=is_wanted) as reader:
            held: list[CaptureRecord] = []
            size = 0
            for record in reader:
                held.append(record)
                size += len(record.key or b"") + len(record.value or b"")
                if size >= GROUP_BYTES or len(held) >= _READ_RECORDS:
                    yield columns_of(held)
                    held, size = [], 0
            if held:
                yield columns_of(held)
        # Its ranges were read before. The last offset of a limited range may have no record.
        if any(newest.get(place, -1) < span.end - 1 for place, span in wanted.items()):
            raise SourceUnavailableError(
                f"capture {source.path} lost its end while it was read",
                "replace it by a rename, not in place; the next sync reads it again",
            )

    return write_columns(columns(), ranges, batch)


def columns_of(records: Sequence[CaptureRecord]) -> Columns:
    """Return records of a capture as columns."""
    names = [name for name in RECORD_SCHEMA.names if name != "headers"]
    return [*([getattr(record, name) for record in records] for name in names), None]


def write_columns(parts: Iterable[Columns], ranges: Ranges, batch: LandingBatch) -> LandedFiles:
    """Write records of ranges into a file.

    Their columns are in the order of `RECORD_SCHEMA`; None for headers if there are none.
    """
    newest: dict[tuple[str, int], int] = {}

    def tables() -> Iterator[pa.Table]:
        for topics, partitions, offsets, times, *others in parts:
            places = list(zip(topics, partitions, strict=True))
            if any(batch.bases.values()):
                shifts = (batch.bases.get(place, 0) for place in places)
                offsets = [*map(add, offsets, shifts)]
            newest.update(
                (place, time)
                for place, offset, time in zip(places, offsets, times, strict=True)
                if offset == ranges[place][1] - 1
            )
            columns = zip(RECORD_SCHEMA, (topics, partitions, offsets, times, *others), strict=True)
            arrays = {
                field.name: None if values is None else pa.array(values, field.type)
                for field, values in columns
            }
            yield filled(RECORD_SCHEMA, len(offsets), arrays)

    def placed() -> Iterator[pa.Table]:
        for group in gathered(tables(), rows=_ROWS_PER_GROUP, size=GROUP_BYTES):
            # Partitions take turns; readers skip by their bounds.
            group = group.sort_by(_PLACE)
            values = {name: group[name] for name in RECORD_SCHEMA.names}
            values |= {"batch": batch.number, "landed_at": batch.landed_at}
            yield filled(_FILE_SCHEMA, group.num_rows, values)

    layout = FileLayout(
        schema=_FILE_SCHEMA,
        bounded=BOUNDED,
        distinct=DISTINCT,
        partition={"landed_day": batch.landed_at.date().isoformat()},
    )
    files = write_rows(batch.raw, layout, placed(), group_rows=_ROWS_PER_GROUP)
    return LandedFiles(files=files, newest=newest)
