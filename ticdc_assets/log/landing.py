"""Landing: copy Kafka records verbatim into `raw_messages`, each exactly once.

In: a Kafka topic's offset ranges, or a capture file. Out: an append to `raw_messages`, and a row in
`landings` with the state of the source.

Why running it again is safe: the commit that appends a batch carries the next offset to land of
every partition and the batch's number (as transaction identifier and as metadata). That commit
alone stores the position; no consumer group is used. A run killed before it has changed nothing,
and a batch whose number the table has seen is skipped.

Clients fetch ranges of offsets into files that the commit names (`landing_files`). Their option
`isolation.level` decides which records they see; by default these include records of open or
aborted transactions.

If records are gone before they were landed (offsets expired, a topic was created again, a capture
lost its end), landing stops with `LandingGapError`. Nothing is skipped until the gap is accepted
(`accepted_gaps`). A topic may be deleted once all of its tables are gone and its records landed.

The ends of all partitions are requested twice. A partition without new records the second time is
*settled*: no record at or below any watermark of this landing is left in it (see
`changelog.progress`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime

import pyarrow as pa

from ticdc_assets.base.names import counted
from ticdc_assets.base.progress import tell
from ticdc_assets.config import KafkaSource, StartKind
from ticdc_assets.config.sources import Source
from ticdc_assets.delta.appending import BY_LANDING_DAY, append_files, write_table
from ticdc_assets.delta.control import commit_metadata, partition_days
from ticdc_assets.delta.files import WrittenFile
from ticdc_assets.delta.lake import Lake
from ticdc_assets.delta.row_schema import fields_of, typed
from ticdc_assets.log.damage import require_in_step
from ticdc_assets.log.landing_files import (
    RAW_SCHEMA,
    LandingBatch,
    fetch_into_files,
    read_into_file,
)
from ticdc_assets.log.positions import (
    PartitionOffsets,
    Position,
    TopicPartition,
    known_partitions,
    read_position,
)
from ticdc_assets.log.sources import begins, capture_ranges, compare, shifted
from ticdc_assets.source.kafka.administration import Administration
from ticdc_assets.spark.cluster import require_before_landing
from ticdc_assets.spark.executing import executor
from ticdc_assets.storage.lake_paths import LakePaths


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """The result of one landing: the newest batch (0 if none), and the source after it."""

    batch: int
    records: int
    partitions: tuple[PartitionOffsets, ...]

    @property
    def backlog(self) -> int:
        """Offsets that wait in the source."""
        return sum(partition.backlog for partition in self.partitions)


def land(lake: Lake, *, max_records: int | None = None) -> Landing:
    """Land the source's new records, at most `max_records`.

    Raises:
        LandingGapError: records are gone that were not landed yet.
        ClusterError: Spark runs on a cluster whose workers cannot do the work.
        SourceUnavailableError: the source cannot be read now.
        LakeDamagedError: a table lost its end, and with it the position.
    """
    require_in_step(lake.paths)
    position = read_position(lake.paths)
    source, ids = lake.changefeed.source, dict[str, str]()
    if isinstance(source, KafkaSource):
        administration = Administration(source)
        listed, ids = administration.listed(source)
        # Read after all of `listed`, so it may have topics that were created in between.
        later = administration.listed(source)[0]
        ranges = begins(source, listed, position)
    else:
        ranges = later = capture_ranges(source)
    later = shifted(later, position)
    state = compare(lake, position, ranges, ids)
    for gap in state.gaps:
        raise gap.error
    landed, newest = _land(lake, source, position, state.present, ids, max_records)
    after = read_position(lake.paths)
    # A landing that was killed before it was logged leaves no times: then none are known.
    earlier_times = {
        item.place: item.newest_ms
        for item in known_partitions(lake.paths)
        if item.newest_ms is not None and after.next_offsets.get(item.place) == item.landed
    }
    newest = earlier_times | newest

    def at_end(item: PartitionOffsets) -> PartitionOffsets:
        end = after.next_offsets.get(item.place, item.landed)
        settled = item.place in later and end >= later[item.place].end
        return replace(item, landed=end, newest_ms=newest.get(item.place), settled=settled)

    places = {item.place for item in state.partitions}
    # Topics that were created while the others were listed have no landed records yet.
    created = (
        PartitionOffsets(
            topic=place[0],
            partition=place[1],
            earliest=offsets.earliest,
            end=offsets.end,
            landed=offsets.earliest,
        )
        for place, offsets in sorted(later.items())
        if place not in places
    )
    result = Landing(
        batch=after.batch,
        records=landed,
        partitions=tuple(
            item if item.place in state.gone else at_end(item)
            for item in (*state.partitions, *created)
        ),
    )
    _log_landing(lake.paths, result)
    return result


def landed_days(paths: LakePaths) -> list[date]:
    """Return the days (UTC) that have landed records, in order; needs no Spark."""
    return partition_days(paths.raw_messages, "landed_day")


def _land(
    lake: Lake,
    source: Source,
    position: Position,
    partitions: Sequence[PartitionOffsets],
    ids: Mapping[str, str],
    max_records: int | None,
) -> tuple[int, dict[TopicPartition, int]]:
    """Land ranges of offsets; return how many, and the time of the last record of each."""
    ranges = share_out({item.place: (item.landed, item.end) for item in partitions}, max_records)
    ranges = {place: (start, end) for place, (start, end) in ranges.items() if end > start}
    next_offsets = dict(position.next_offsets)
    next_offsets.update({place: end for place, (_, end) in ranges.items()})
    for item in partitions:
        next_offsets.setdefault(item.place, item.landed)
    named = source.named if isinstance(source, KafkaSource) else []
    batch = LandingBatch(
        raw=lake.paths.raw_messages,
        number=position.batch + 1,
        landed_at=datetime.now(UTC),
        bases=position.bases,
    )
    if not ranges:
        if (
            position.batch == 0
            and isinstance(source, KafkaSource)
            and source.start.kind is not StartKind.EARLIEST
        ):
            # The offset where landing begins depends on the present: it is stored, or it would
            # move.
            _append(batch, [], next_offsets, ids, named)
        return 0, {}
    require_before_landing(lake.spark, lake.paths.raw_messages)
    # The id of a deleted topic stays known: a topic that is created again has another one.
    topic_ids = {**position.topic_ids, **ids}
    offsets = sum(end - start for start, end in ranges.values())
    tell(f"landing {counted(offsets, 'record')} of {counted(len(ranges), 'partition')}")
    if isinstance(source, KafkaSource):
        runs_on = executor(lake.spark, lake.paths.raw_messages, "landing", rows=offsets, size=0)
        landing = fetch_into_files(runs_on, source, ranges, batch)
    else:
        landing = read_into_file(source, ranges, batch)
        # Unlike the offsets of a topic, many of these may have no record.
        offsets = sum(file.rows for file in landing.files)
    _append(batch, landing.files, next_offsets, topic_ids, named)
    # Kafka reports -1 if there is no time.
    return offsets, {place: time for place, time in landing.newest.items() if time > 0}


def share_out(
    ranges: Mapping[TopicPartition, tuple[int, int]], limit: int | None
) -> dict[TopicPartition, tuple[int, int]]:
    """Shorten offset ranges to at most `limit` offsets in all, shared by their sizes."""
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


# Writing ----------------------------------------------------------------------------------------


def _append(
    batch: LandingBatch,
    files: Sequence[WrittenFile],
    next_offsets: Mapping[TopicPartition, int],
    ids: Mapping[str, str],
    named: Sequence[str],
) -> None:
    """Commit files as a batch, with the next offset of every partition."""
    append_files(
        batch.raw,
        files,
        RAW_SCHEMA,
        app_id="land",
        version=batch.number,
        metadata={
            "batch": batch.number,
            "next": [[*place, offset] for place, offset in sorted(next_offsets.items())],
            "topic_ids": dict(ids),
            "named": list(named),
        },
        layout=BY_LANDING_DAY,
    )


_LANDINGS_SCHEMA = pa.schema(
    [
        *typed(int, "number"),
        *typed(datetime, "landed_at"),
        *typed(int, "batch", "records"),
        ("partitions", pa.list_(pa.struct(fields_of(PartitionOffsets, partition=pa.int32())))),
    ]
)


def _log_landing(paths: LakePaths, landing: Landing) -> None:
    """Append to `landings`, unless the newest row is the same."""
    if known_partitions(paths) == landing.partitions:
        return
    number = commit_metadata(paths.landings).get("number", 0) + 1
    row = {
        "number": number,
        "landed_at": datetime.now(UTC),
        "batch": landing.batch,
        "records": landing.records,
        "partitions": [asdict(item) for item in landing.partitions],
    }
    rows = pa.Table.from_pylist([row], _LANDINGS_SCHEMA)
    write_table(paths.landings, rows, overwrite=False, metadata={"number": number})
