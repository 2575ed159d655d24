"""Landing: copy Kafka records verbatim into `raw_messages`, each exactly once.

In: a Kafka topic's offset ranges, or a capture file. Out: an append to `raw_messages`
(topic, partition, offset, timestamp_ms, key, value, headers, batch, landed_at, landed_day), and a
row in `landings` that says what the source had.

Why running it again is safe: the commit that appends a batch carries the next offset to land of
every partition and the batch's number (as Delta transaction identifier and as metadata). That
commit is the only memory of position; no consumer group is used. A run killed before the commit
has changed nothing, one killed after it is continued behind it, and a batch whose number the table
has seen is skipped by Delta.

Records that are gone before they were landed stop landing with `LandingGapError`: offsets that
expired, a topic that was deleted and made again, a capture that lost its end. Nothing is skipped.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ticdc_assets.capture import CaptureRecord, read_capture
from ticdc_assets.config import CaptureSource, Changefeed, KafkaSource
from ticdc_assets.errors import LandingGapError
from ticdc_assets.kafka import end_offsets, spark_options, topic_ids
from ticdc_assets.lake.control import commit_metadata, read_rows, write_table
from ticdc_assets.lake.paths import LakePaths

TopicPartition: TypeAlias = tuple[str, int]

RAW_SCHEMA = T.StructType(
    [
        T.StructField("batch", T.LongType(), False),
        T.StructField("landed_at", T.TimestampType(), False),
        T.StructField("topic", T.StringType(), False),
        T.StructField("partition", T.IntegerType(), False),
        T.StructField("offset", T.LongType(), False),
        T.StructField("timestamp_ms", T.LongType(), True),
        T.StructField("key", T.BinaryType(), True),
        T.StructField("value", T.BinaryType(), True),
        T.StructField(
            "headers",
            T.ArrayType(
                T.StructType(
                    [
                        T.StructField("key", T.StringType()),
                        T.StructField("value", T.BinaryType()),
                    ]
                )
            ),
            True,
        ),
        T.StructField("landed_day", T.DateType(), False),
    ]
)
"""`raw_messages`: one row a Kafka record."""

_CHUNK_RECORDS = 50_000
_CHUNK_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """One partition of the source and how far it is landed.

    Attributes:
        topic: topic.
        partition: partition.
        earliest: first offset the source still has.
        end: offset after the last one the source has.
        landed: next offset to land.
    """

    topic: str
    partition: int
    earliest: int
    end: int
    landed: int

    @property
    def backlog(self) -> int:
        """Offsets the source has and we have not."""
        return max(0, self.end - max(self.landed, self.earliest))


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """What one landing did.

    Attributes:
        batch: number of the newest batch landed ever; 0 if none.
        records: records landed by this call.
        partitions: every partition of the source, as after the call.
    """

    batch: int
    records: int
    partitions: tuple[PartitionOffsets, ...]

    @property
    def backlog(self) -> int:
        """Offsets that wait in the source."""
        return sum(partition.backlog for partition in self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The landed position: batch number and, per partition, the next offset to land."""

    batch: int
    next_offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]


def read_position(paths: LakePaths) -> Position:
    """Return the position from the newest commit of `raw_messages`; needs no Spark."""
    metadata = commit_metadata(paths.raw_messages)
    return Position(
        batch=metadata.get("batch", 0),
        next_offsets={
            (topic, partition): offset for topic, partition, offset in metadata.get("next", [])
        },
        topic_ids=metadata.get("topic_ids", {}),
    )


def source_offsets(changefeed: Changefeed, position: Position) -> tuple[PartitionOffsets, ...]:
    """Return what the source has beside what is landed; needs no Spark."""
    match changefeed.source:
        case KafkaSource() as source:
            ranges = {
                place: (offsets.earliest, offsets.end)
                for place, offsets in end_offsets(source).items()
            }
        case CaptureSource() as source:
            ranges = _capture_ranges(source)
    return tuple(
        PartitionOffsets(
            topic=topic,
            partition=partition,
            earliest=earliest,
            end=end,
            landed=position.next_offsets.get((topic, partition), earliest),
        )
        for (topic, partition), (earliest, end) in sorted(ranges.items())
    )


def land(
    spark: SparkSession,
    paths: LakePaths,
    changefeed: Changefeed,
    *,
    max_records: int | None = None,
) -> Landing:
    """Land what the source has, at most `max_records` records.

    Raises:
        LandingGapError: records are gone that were not landed yet.
        SourceUnavailableError: the source cannot be read now.
    """
    position = read_position(paths)
    partitions = source_offsets(changefeed, position)
    ids = topic_ids(changefeed.source) if isinstance(changefeed.source, KafkaSource) else {}
    _check_gaps(partitions, position, ids)
    match changefeed.source:
        case KafkaSource() as source:
            landed = _land_topic(spark, paths, source, position, partitions, ids, max_records)
        case CaptureSource() as source:
            landed = _land_capture(spark, paths, source, position, partitions, max_records)
    after = read_position(paths)
    result = Landing(
        batch=after.batch,
        records=landed,
        partitions=tuple(
            PartitionOffsets(
                topic=item.topic,
                partition=item.partition,
                earliest=item.earliest,
                end=item.end,
                landed=after.next_offsets.get((item.topic, item.partition), item.earliest),
            )
            for item in partitions
        ),
    )
    _log_landing(paths, result)
    return result


def known_partitions(paths: LakePaths) -> tuple[PartitionOffsets, ...]:
    """Return the partitions of the source as the newest landing saw them; needs no Spark."""
    number = commit_metadata(paths.landings).get("number")
    if number is None:
        return ()
    (row,) = read_rows(paths.landings, ds.field("number") == number)
    return tuple(PartitionOffsets(**item) for item in row["partitions"])


def _check_gaps(
    partitions: tuple[PartitionOffsets, ...], position: Position, ids: Mapping[str, str]
) -> None:
    seen = {(item.topic, item.partition) for item in partitions}
    for (topic, partition), landed in sorted(position.next_offsets.items()):
        if (topic, partition) not in seen:
            raise LandingGapError(
                topic, partition, landed, 0, "the source no longer has this partition"
            )
    for item in partitions:
        landed = position.next_offsets.get((item.topic, item.partition))
        if landed is None:
            continue
        known, now = position.topic_ids.get(item.topic), ids.get(item.topic)
        if known and now and known != now:
            raise LandingGapError(
                item.topic,
                item.partition,
                landed,
                item.earliest,
                f"the topic was deleted and made again: its id was {known} and is {now}",
            )
        if item.end < landed:
            raise LandingGapError(
                item.topic,
                item.partition,
                landed,
                item.end,
                "the source ends before it: it was made again or cut off",
            )
        if item.earliest > landed:
            raise LandingGapError(
                item.topic,
                item.partition,
                landed,
                item.earliest,
                "the records between expired before they were landed",
            )


# Kafka ------------------------------------------------------------------------------------------


def _land_topic(
    spark: SparkSession,
    paths: LakePaths,
    source: KafkaSource,
    position: Position,
    partitions: tuple[PartitionOffsets, ...],
    ids: Mapping[str, str],
    max_records: int | None,
) -> int:
    ranges = share_out(
        {(item.topic, item.partition): (item.landed, item.end) for item in partitions},
        max_records,
    )
    ranges = {place: (start, end) for place, (start, end) in ranges.items() if end > start}
    if not ranges:
        return 0
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for (topic, partition), (start, end) in ranges.items():
        starts.setdefault(topic, {})[str(partition)] = start
        ends.setdefault(topic, {})[str(partition)] = end
    records = (
        spark.read.format("kafka")
        .options(**spark_options(source))
        .option(
            "assign", json.dumps({topic: [int(p) for p in per] for topic, per in starts.items()})
        )
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .option("failOnDataLoss", "true")
        .option("includeHeaders", "true")
        .load()
        .select(
            "topic",
            "partition",
            "offset",
            F.unix_millis("timestamp").alias("timestamp_ms"),
            "key",
            "value",
            "headers",
        )
    )
    next_offsets = dict(position.next_offsets)
    next_offsets.update({place: end for place, (_, end) in ranges.items()})
    for item in partitions:
        next_offsets.setdefault((item.topic, item.partition), item.landed)
    _append(spark, paths, records, position.batch + 1, next_offsets, ids)
    return sum(end - start for start, end in ranges.values())


def share_out(
    ranges: Mapping[TopicPartition, tuple[int, int]], limit: int | None
) -> dict[TopicPartition, tuple[int, int]]:
    """Cut offset ranges to at most `limit` offsets in all, shared by what each has to offer."""
    if limit is None or sum(end - start for start, end in ranges.values()) <= limit:
        return dict(ranges)
    result: dict[TopicPartition, tuple[int, int]] = {}
    left = limit
    # Shortest first: what a short partition leaves over goes to the longer ones.
    order = sorted(ranges.items(), key=lambda item: (item[1][1] - item[1][0], item[0]))
    for number, (place, (start, end)) in enumerate(order):
        others = len(order) - number
        share = min(end - start, -(-left // others))
        result[place] = (start, start + share)
        left -= share
    return result


# Captures ---------------------------------------------------------------------------------------


def _capture_ranges(source: CaptureSource) -> dict[TopicPartition, tuple[int, int]]:
    """Return (first offset, offset after the last) of each partition of the whole file."""
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    with read_capture(source.path) as records:
        for record in records:
            place = (record.topic, record.partition)
            first, end = ranges.get(place, (record.offset, record.offset + 1))
            ranges[place] = (min(first, record.offset), max(end, record.offset + 1))
    for topic, count in source.partitions.items():
        for partition in range(count):
            ranges.setdefault((topic, partition), (0, 0))
    return ranges


def _land_capture(
    spark: SparkSession,
    paths: LakePaths,
    source: CaptureSource,
    position: Position,
    partitions: tuple[PartitionOffsets, ...],
    max_records: int | None,
) -> int:
    """Land a capture in chunks of bounded size, each a batch of its own."""
    next_offsets = dict(position.next_offsets)
    for item in partitions:
        next_offsets.setdefault((item.topic, item.partition), item.landed)
    batch = position.batch
    landed = 0
    for chunk in _chunks(source, next_offsets, max_records):
        batch += 1
        landed += len(chunk)
        rows = pa.table(
            {
                "topic": pa.array([record.topic for record in chunk], pa.string()),
                "partition": pa.array([record.partition for record in chunk], pa.int32()),
                "offset": pa.array([record.offset for record in chunk], pa.int64()),
                "timestamp_ms": pa.array([record.timestamp_ms for record in chunk], pa.int64()),
                "key": pa.array([record.key for record in chunk], pa.binary()),
                "value": pa.array([record.value for record in chunk], pa.binary()),
            }
        )
        records = spark.createDataFrame(rows).withColumn(
            "headers", F.lit(None).cast(RAW_SCHEMA["headers"].dataType)
        )
        _append(spark, paths, records, batch, next_offsets, {})
    return landed


def _chunks(
    source: CaptureSource, next_offsets: dict[TopicPartition, int], max_records: int | None
) -> Iterator[list[CaptureRecord]]:
    """Yield the records not landed yet; `next_offsets` is moved on before each chunk is yielded."""
    chunk: list[CaptureRecord] = []
    size = taken = 0
    with read_capture(source.path) as records:
        for record in records:
            if max_records is not None and taken >= max_records:
                break
            place = (record.topic, record.partition)
            if record.offset < next_offsets.get(place, 0):
                continue
            next_offsets[place] = record.offset + 1
            chunk.append(record)
            taken += 1
            size += len(record.key or b"") + len(record.value or b"")
            if len(chunk) >= _CHUNK_RECORDS or size >= _CHUNK_BYTES:
                yield chunk
                chunk, size = [], 0
    if chunk:
        yield chunk


# Writing ----------------------------------------------------------------------------------------


def _append(
    spark: SparkSession,
    paths: LakePaths,
    records: DataFrame,
    batch: int,
    next_offsets: Mapping[TopicPartition, int],
    ids: Mapping[str, str],
) -> None:
    landed_at = datetime.now(UTC)
    rows = records.select(
        F.lit(batch).cast("long").alias("batch"),
        F.lit(landed_at).alias("landed_at"),
        "topic",
        "partition",
        "offset",
        "timestamp_ms",
        "key",
        "value",
        "headers",
        F.lit(landed_at.date()).alias("landed_day"),
    )
    metadata: dict[str, Any] = {
        "batch": batch,
        "next": [
            [topic, partition, offset]
            for (topic, partition), offset in sorted(next_offsets.items())
        ],
        "topic_ids": dict(ids),
    }
    (
        rows.write.format("delta")
        .mode("append")
        .partitionBy("landed_day")
        .option("delta.logRetentionDuration", "interval 3650 days")
        .option("txnAppId", "land")
        .option("txnVersion", batch)
        .option("userMetadata", json.dumps(metadata))
        .save(str(paths.raw_messages))
    )


_LANDINGS_SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("landed_at", pa.timestamp("us", tz="UTC")),
        ("batch", pa.int64()),
        ("records", pa.int64()),
        (
            "partitions",
            pa.list_(
                pa.struct(
                    [
                        ("topic", pa.string()),
                        ("partition", pa.int32()),
                        ("earliest", pa.int64()),
                        ("end", pa.int64()),
                        ("landed", pa.int64()),
                    ]
                )
            ),
        ),
    ]
)


def _log_landing(paths: LakePaths, landing: Landing) -> None:
    """Append to `landings`, unless the newest row says the same already."""
    if known_partitions(paths) == landing.partitions:
        return
    number = commit_metadata(paths.landings).get("number", 0) + 1
    row = {
        "number": number,
        "landed_at": datetime.now(UTC),
        "batch": landing.batch,
        "records": landing.records,
        "partitions": [
            {
                "topic": item.topic,
                "partition": item.partition,
                "earliest": item.earliest,
                "end": item.end,
                "landed": item.landed,
            }
            for item in landing.partitions
        ],
    }
    write_table(
        paths.landings,
        pa.Table.from_pylist([row], schema=_LANDINGS_SCHEMA),
        overwrite=False,
        metadata={"number": number},
    )
