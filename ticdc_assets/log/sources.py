"""Compare a source with its landed records: waiting records, and gaps.

In: a changefeed, its position, and the source's offsets. Out: `SourceState`: every partition with
its landed offsets, and the gaps at which landing stops. No Spark is needed.

There is a gap if the next record to land no longer exists: it expired, or its topic was created
again (its id changed, or it ends before the landed offsets). The next record of a partition that
was created since the newest landing is its first one (`_begun`). `accept` lets landing continue
after a gap. Offsets here are those of the lake: for a recreated topic they continue after the old
ones (`accepted_gaps`).

Not handled: a topic or partition that does not exist has no offset at which landing could continue.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ticdc_assets.base.errors import LandingGapError, NotFoundError
from ticdc_assets.base.names import counted, user_at_host
from ticdc_assets.changelog.progress import PartitionProgress, TopicState
from ticdc_assets.config import CaptureSource, Changefeed, KafkaSource, StartKind
from ticdc_assets.config.topics import is_named
from ticdc_assets.delta.lake import Lake
from ticdc_assets.log.accepted_gaps import AcceptedGap, append_accepted
from ticdc_assets.log.change_statistics import read_statistics
from ticdc_assets.log.positions import (
    PartitionOffsets,
    Position,
    TopicPartition,
    known_partitions,
    read_position,
)
from ticdc_assets.log.watermark import read_watermark
from ticdc_assets.source.capture import CaptureReader
from ticdc_assets.source.kafka.administration import Administration, OffsetRange

Ranges = Mapping[TopicPartition, OffsetRange]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A partition whose next record to land is gone.

    Attributes:
        available: first offset that the source has, or its end if that is lower.
        cause: one clause that says what happened.
        to_offset: offset at which landing can continue; None if it cannot.
        offset_base: what landing adds to the source's offsets from there on.
        topic_id: id of the topic now; None if there is none.
        remedy: how to continue if landing cannot.
    """

    changefeed: str
    topic: str
    partition: int
    landed: int
    available: int
    cause: str
    to_offset: int | None
    offset_base: int
    topic_id: str | None
    remedy: str = ""

    @property
    def error(self) -> LandingGapError:
        """The error that landing stops with."""
        return LandingGapError(
            self.topic, self.partition, self.landed, self.available, self.cause, self.fix
        )

    @property
    def fix(self) -> str:
        """How to continue."""
        if self.to_offset is None:
            return self.remedy
        return (
            f"`ticdc-assets accept-gap {self.changefeed} {self.topic} {self.partition}` continues "
            "after it and marks the mirrors that may lack changes"
        )

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "landed": self.landed,
            "available": self.available,
            "reason": str(self.error),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """A source compared with its landed records.

    Its partitions are by topic and number; `gone` are those of completely landed topics that were
    deleted, in their last known state.
    """

    partitions: tuple[PartitionOffsets, ...]
    gaps: tuple[Gap, ...] = ()
    gone: frozenset[TopicPartition] = frozenset()

    @property
    def present(self) -> tuple[PartitionOffsets, ...]:
        """The partitions that the source has now."""
        return tuple(item for item in self.partitions if item.place not in self.gone)


def see_source(lake: Lake) -> SourceState:
    """Compare a source with its landed records; SourceUnavailableError if it cannot be read now."""
    position = read_position(lake.paths)
    match lake.changefeed.source:
        case KafkaSource() as source:
            ranges, ids = Administration(source).listed(source)
            return compare(lake, position, begins(source, ranges, position), ids)
        case CaptureSource() as source:
            return compare(lake, position, capture_ranges(source), {})


def begins(source: KafkaSource, ranges: Ranges, position: Position) -> Ranges:
    """Return `ranges`; before the first landing they start where landing should begin."""
    if position.batch or source.start.kind is StartKind.EARLIEST:
        return ranges
    at_ms = source.start.timestamp_ms
    starts = {} if at_ms is None else Administration(source).offsets_at(ranges, at_ms)
    # Kafka has no offset if every record is older, and "latest" begins at the end.
    return {
        place: OffsetRange(
            earliest=starts[place] if starts.get(place, -1) >= 0 else offsets.end, end=offsets.end
        )
        for place, offsets in ranges.items()
    }


def shifted(ranges: Ranges, position: Position) -> Ranges:
    """Return offsets of the source as offsets of the lake."""
    bases = ((place, position.bases.get(place, 0)) for place in ranges)
    return {
        place: OffsetRange(earliest=ranges[place].earliest + base, end=ranges[place].end + base)
        for place, base in bases
    }


def compare(lake: Lake, position: Position, ranges: Ranges, ids: Mapping[str, str]) -> SourceState:
    """Compare a source's own offsets, and the ids of its topics, with the landed records."""
    begun = _begun(lake.changefeed, position, ranges)
    partitions = [
        PartitionOffsets(
            topic=topic,
            partition=partition,
            earliest=offsets.earliest,
            end=offsets.end,
            landed=begun.get((topic, partition), offsets.earliest),
        )
        for (topic, partition), offsets in sorted(shifted(ranges, position).items())
    ]
    deleted = _deleted(lake, {item.topic for item in partitions}, position)
    partitions = sorted((*partitions, *deleted), key=lambda item: item.place)
    return SourceState(
        partitions=tuple(partitions),
        gaps=tuple(_gaps(lake.changefeed, partitions, position, begun, ids)),
        gone=frozenset(item.place for item in deleted),
    )


def _begun(
    changefeed: Changefeed, position: Position, places: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the next offset to land of each new partition of landed or named topics.

    A partition that was created since the newest landing begins at 0, as in all of Kafka. It is
    that new if its topic was landed from or already named: otherwise it would have been listed. A
    topic that was named later begins with its remaining records. A capture's begin shows nothing.
    """
    begun = dict(position.next_offsets)
    if position.batch and isinstance(changefeed.source, KafkaSource):
        topics = {topic for topic, _ in position.next_offsets}
        for topic, partition in places:
            if topic in topics or is_named(topic, position.named):
                begun.setdefault((topic, partition), 0)
    return begun


def capture_ranges(source: CaptureSource) -> dict[TopicPartition, OffsetRange]:
    """Return the offsets of each partition of a whole capture; it is read again if it changed."""
    empty = OffsetRange(earliest=0, end=0)
    listed = {(topic, number) for topic, n in source.partitions.items() for number in range(n)}
    return {**dict.fromkeys(sorted(listed), empty), **_looked_into(source.path).ranges}


def ends_within_a_record(source: CaptureSource) -> bool:
    """Return whether a capture is still written to, or was cut: its end is no end of a record."""
    return _looked_into(source.path).incomplete_tail


class _Capture(NamedTuple):
    ranges: Ranges
    incomplete_tail: bool


def _looked_into(path: Path) -> _Capture:
    try:
        stat = path.stat()
    except OSError:
        return _read.__wrapped__(path)  # its error explains the problem
    return _read(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=16)
def _read(path: Path, *_unchanged: int) -> _Capture:
    ranges: dict[TopicPartition, tuple[int, int]] = {}

    def seen(topic: str, partition: int, offset: int) -> bool:
        first, end = ranges.get((topic, partition), (offset, offset))
        if offset >= end:
            ranges[topic, partition] = (first, offset + 1)
        elif offset < first:
            ranges[topic, partition] = (offset, end)
        return False

    with CaptureReader(path, wanted=seen) as records:
        for _ in records:
            pass
    return _Capture(
        {place: OffsetRange(earliest=first, end=end) for place, (first, end) in ranges.items()},
        records.incomplete_tail,
    )


def _deleted(lake: Lake, there: Collection[str], position: Position) -> list[PartitionOffsets]:
    """Return the partitions of completely landed topics that are no longer there.

    None of the topic's tables exists any more, and all of it was landed at the last check: TiCDC
    sends nothing to such a topic.
    """
    missing = {topic for topic, _ in position.next_offsets if topic not in there}
    if not missing:
        return []
    retired = {item.topic for item in read_watermark(lake).topics_in(TopicState.RETIRED)}
    partitions = [item for item in known_partitions(lake.paths) if item.topic in missing & retired]
    unsettled = {item.topic for item in partitions if not item.settled}
    return [item for item in partitions if item.topic not in unsettled]


# Gaps -------------------------------------------------------------------------------------------


def _gaps(
    changefeed: Changefeed,
    partitions: Iterable[PartitionOffsets],
    position: Position,
    begun: Mapping[TopicPartition, int],
    ids: Mapping[str, str],
) -> list[Gap]:
    """Return the gaps, with those of missing partitions first."""
    items = {item.place: item for item in partitions}
    topics = {item.topic for item in partitions}
    missing = sorted(position.next_offsets.keys() - items.keys())
    gaps: list[Gap] = []
    for place in (*missing, *items):
        topic, partition = place
        item, landed, base = items.get(place), begun.get(place), position.bases.get(place, 0)
        if landed is None:
            continue
        to_offset, remedy, now = None, "", ids.get(topic)
        # A partition that did not exist has no landed records under another id.
        old_id = position.topic_ids.get(topic) if place in position.next_offsets else now
        if now is not None and position.accepted_ids.get(place) == now:
            old_id = now
        # All records of the new topic are landed, after those of the old one.
        new_base = base if item is None else landed - (item.earliest - base)
        if item is None:
            available = 0
            cause, remedy = _missing(changefeed, topic, partition, is_there=topic in topics)
        elif old_id and now and old_id != now:
            cause = f"the topic was deleted and created again: its id was {old_id} and is {now}"
            available, to_offset, base = item.earliest, landed, new_base
        elif item.end < landed:
            cause = "the source ends before it: it was created again or truncated"
            available, to_offset, base = item.end, landed, new_base
        elif item.earliest > landed:
            cause = "the records between expired before they were landed"
            available = to_offset = item.earliest
        else:
            continue
        gaps.append(
            Gap(
                changefeed=changefeed.name,
                topic=topic,
                partition=partition,
                landed=landed,
                available=available,
                cause=cause,
                to_offset=to_offset,
                offset_base=base,
                topic_id=now,
                remedy=remedy,
            )
        )
    return gaps


def _missing(
    changefeed: Changefeed, topic: str, partition: int, *, is_there: bool
) -> tuple[str, str]:
    """Return why a landed partition is not listed, and how to continue."""
    source = changefeed.source
    if isinstance(source, KafkaSource) and not source.takes(topic):
        cause = "source.kafka.topics no longer names this topic"
        return cause, "name it there again: its records may be of any table"
    create = (
        f"create topic {topic!r} with at least {counted(partition + 1, 'partition')} "
        "(TiCDC does when the changefeed starts, with auto-create-topic), then accept the loss"
    )
    if isinstance(source, KafkaSource) and not is_there:
        # Brokers list no topic that the client may not describe.
        cause = "the source no longer has this topic, or this client may no longer see it"
        return cause, f"give the client the right DESCRIBE on it if it is there; else {create}"
    return "the source no longer has this partition", create


def accept(lake: Lake, topic: str, partition: int) -> AcceptedGap:
    """Accept the gap of a partition, so that landing continues after it.

    The caller holds the changefeed's writer lock.

    Raises:
        NotFoundError: there is no gap.
        LandingGapError: the source has nothing after it.
        SourceUnavailableError: the source cannot be read now.
    """
    state = see_source(lake)
    place = (topic, partition)
    gap = next((item for item in state.gaps if (item.topic, item.partition) == place), None)
    if gap is None:
        seen = next((item for item in state.partitions if item.place == place), None)
        if seen is None:
            name = lake.changefeed.name
            raise NotFoundError(
                f"changefeed {name!r} has no topic {topic!r} with a partition {partition}"
            )
        raise NotFoundError(
            f"there is no gap in topic {topic!r} partition {partition}: the next offset to land is "
            f"{seen.landed}, and the source has {seen.earliest} to {seen.end}"
        )
    if gap.to_offset is None:
        raise gap.error
    statistics = read_statistics(lake.paths)
    after_ts = statistics.progress().get(place, PartitionProgress()).watermark_ts
    if statistics.es_only:
        rows = (row for row in statistics.rows if (row["topic"], row["partition"]) == place)
        after_ts = max((row["max_ts"] or 0 for row in rows), default=0)
    return append_accepted(
        lake.paths,
        AcceptedGap(
            number=0,
            accepted_at=datetime.now(UTC),
            accepted_by=user_at_host(),
            topic=topic,
            partition=partition,
            topic_id=gap.topic_id,
            from_offset=gap.landed,
            to_offset=gap.to_offset,
            offset_base=gap.offset_base,
            cause=gap.cause,
            after_ts=after_ts,
        ),
    )
