"""The position of landing: offsets of the source and landed offsets, read without Spark.

`landing` writes them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ticdc_assets.delta.control import commit_metadata, newest_row
from ticdc_assets.log.accepted_gaps import read_accepted
from ticdc_assets.storage.lake_paths import LakePaths

TopicPartition: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """One partition of the source and its landed offset.

    Attributes:
        earliest: first offset the source still has.
        end: offset after the last one the source has.
        landed: next offset to land.
        settled: whether everything was landed that it had when it was listed after all others.
        newest_ms: Kafka's timestamp of the record before `landed`; None if unknown.
    """

    topic: str
    partition: int
    earliest: int
    end: int
    landed: int
    settled: bool = False
    newest_ms: int | None = None

    @property
    def place(self) -> TopicPartition:
        """Its topic and number."""
        return (self.topic, self.partition)

    @property
    def backlog(self) -> int:
        """How many offsets the source has that are not landed."""
        return max(0, self.end - max(self.landed, self.earliest))


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The landed position.

    Attributes:
        batch: number of the newest landed batch.
        next_offsets: the next offset to land of each partition, after accepted gaps.
        named: the names and patterns of topics when the newest batch was landed; empty for
            captures.
        bases: what landing adds to the source's offsets of a partition whose topic was created
            again; see `accepted_gaps`.
        accepted_ids: for each partition with an accepted gap, its topic's id then.
    """

    batch: int
    next_offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]
    named: tuple[str, ...] = ()
    bases: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    accepted_ids: Mapping[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])


def read_position(paths: LakePaths) -> Position:
    """Return the position; needs no Spark.

    It comes from the newest commit of `raw_messages`, moved on over the gaps accepted since.
    """
    metadata = commit_metadata(paths.raw_messages)
    next_offsets: dict[TopicPartition, int] = {
        (topic, partition): offset for topic, partition, offset in metadata.get("next", [])
    }
    bases: dict[TopicPartition, int] = {}
    accepted_ids: dict[TopicPartition, str] = {}
    for gap in read_accepted(paths):
        place = (gap.topic, gap.partition)
        next_offsets[place] = max(next_offsets.get(place, 0), gap.to_offset)
        bases[place] = gap.offset_base
        if gap.topic_id is not None:
            accepted_ids[place] = gap.topic_id
    return Position(
        batch=metadata.get("batch", 0),
        next_offsets=next_offsets,
        topic_ids=metadata.get("topic_ids", {}),
        named=tuple(metadata.get("named", [])),
        bases=bases,
        accepted_ids=accepted_ids,
    )


def landed_batch(paths: LakePaths) -> int:
    """Return the newest landed batch; 0 if there is none; needs no Spark."""
    return commit_metadata(paths.raw_messages).get("batch", 0)


def names_topics(paths: LakePaths) -> bool:
    """Return whether topics were landed by name, from a broker that lists them; needs no Spark."""
    return bool(commit_metadata(paths.raw_messages).get("named"))


def decoded_position(paths: LakePaths) -> tuple[int, int]:
    """Return (newest batch of the change log, landed batch it came from); needs no Spark."""
    metadata = commit_metadata(paths.change_log)
    return metadata.get("batch", 0), metadata.get("landed", 0)


def known_partitions(paths: LakePaths) -> tuple[PartitionOffsets, ...]:
    """Return the partitions of the source from the newest landing; needs no Spark."""
    row = newest_landing(paths)
    return () if row is None else partitions_of(row)


def newest_landing(paths: LakePaths) -> dict[str, Any] | None:
    """Return the newest row of `landings`, or None; needs no Spark."""
    return newest_row(paths.landings)


def partitions_of(row: Mapping[str, Any]) -> tuple[PartitionOffsets, ...]:
    """Return the partitions in a row of `landings`."""
    return tuple(PartitionOffsets(**item) for item in row["partitions"])
