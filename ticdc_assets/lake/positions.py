"""Where landing stands: offsets of the source beside what is landed, as the newest landing had it.

Plain values and the reading of them without Spark, for everybody who only looks: sensors, checks,
the global watermark. `landing` writes what is read here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow.dataset as ds

from ticdc_assets.lake.control import commit_metadata, read_rows
from ticdc_assets.lake.paths import LakePaths

TopicPartition: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """One partition of the source and how far it is landed.

    Attributes:
        topic: topic.
        partition: partition.
        earliest: first offset the source still has.
        end: offset after the last one the source has.
        landed: next offset to land.
        settled: whether all was landed that it had when it was listed after all other partitions.
        newest_ms: Kafka's timestamp of the record before `landed`; None if it is not known.
    """

    topic: str
    partition: int
    earliest: int
    end: int
    landed: int
    settled: bool = False
    newest_ms: int | None = None

    @property
    def backlog(self) -> int:
        """Offsets the source has and we have not."""
        return max(0, self.end - max(self.landed, self.earliest))


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


def known_partitions(paths: LakePaths) -> tuple[PartitionOffsets, ...]:
    """Return the partitions of the source as the newest landing saw them; needs no Spark."""
    row = newest_landing(paths)
    return () if row is None else partitions_of(row)


def newest_landing(paths: LakePaths) -> dict[str, Any] | None:
    """Return the newest row of `landings`, or None; needs no Spark."""
    number = commit_metadata(paths.landings).get("number")
    if number is None:
        return None
    (row,) = read_rows(paths.landings, ds.field("number") == number)
    return row


def partitions_of(row: Mapping[str, Any]) -> tuple[PartitionOffsets, ...]:
    """Return the partitions in a row of `landings`."""
    return tuple(
        # Lakes that are older do not say whether a partition was settled.
        PartitionOffsets(**item | {"settled": bool(item.get("settled"))})
        for item in row["partitions"]
    )
