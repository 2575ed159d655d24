"""The lag of the mirrors, as the exact sum of its parts, to the millisecond.

In: times in epoch milliseconds. Out: a `Lag`. Pure. The lag is now minus the physical time of the
newest cut's TSO. Its parts:

raw_messages -> mirrors
    from the cut to the landed and decoded watermark. If landed batches are not decoded yet, their
    watermarks are unknown; then up to Kafka's timestamp of the newest landed record.
Kafka -> raw_messages
    while records wait in the source: from Kafka's timestamp of the last landed record of a waiting
    partition (the oldest of these) until now, without time that is already counted.
source -> Kafka
    the rest: TiCDC, its sink, and the way to the broker.

Limits: the TSO comes from the upstream's clock, the record's timestamp from TiCDC's machine (or the
broker), and now from this machine's clock. If the clocks differ, seconds move between the parts;
the sum stays the same. Without the source's current offsets, the backlog is that of the newest
landing, so time that newer records spend in Kafka counts as source -> Kafka, like a partition
without watermarks.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from ticdc_assets.log.positions import PartitionOffsets
from ticdc_assets.observe.wording import duration


class LagPart(StrEnum):
    """A part of the way from a commit upstream to the mirrors."""

    SOURCE_TO_KAFKA = "source_to_kafka"
    KAFKA_TO_RAW = "kafka_to_raw"
    RAW_TO_MIRROR = "raw_to_mirror"


_WORDS = {
    LagPart.SOURCE_TO_KAFKA: "source to Kafka",
    LagPart.KAFKA_TO_RAW: "Kafka to raw_messages",
    LagPart.RAW_TO_MIRROR: "raw_messages to mirrors",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far the mirrors are behind now, in milliseconds; the parts add up to the total.

    If the cut is ahead of this machine's clock, the total is 0 and `ahead_ms` says by how much.
    """

    total_ms: int
    parts: Mapping[LagPart, int]
    ahead_ms: int = 0

    @property
    def seconds(self) -> float:
        """The total in seconds."""
        return self.total_ms / 1000

    @property
    def ahead_seconds(self) -> float:
        """By how much the cut is ahead of this machine's clock, in seconds."""
        return self.ahead_ms / 1000

    @property
    def largest(self) -> LagPart:
        """The largest part; of equal ones the one nearest to the mirrors."""
        return max(reversed(LagPart), key=lambda part: self.parts[part])

    @property
    def text(self) -> str:
        """The parts in words."""
        return ", ".join(f"{_WORDS[part]} {duration(self.part_seconds(part))}" for part in LagPart)

    def part_seconds(self, part: LagPart) -> float:
        """Return one part in seconds."""
        return self.parts[part] / 1000


def split_lag(now_ms: int, cut_ms: int, *, landed_ms: int, waiting_since_ms: int | None) -> Lag:
    """Return the lag of a cut and its parts, even if clocks differ.

    Everything has landed up to the physical time `landed_ms`; `waiting_since` says since when
    records wait.
    """
    total = max(now_ms - cut_ms, 0)
    raw_to_mirror = min(max(landed_ms - cut_ms, 0), total)
    waited = 0 if waiting_since_ms is None else max(now_ms - waiting_since_ms, 0)
    kafka_to_raw = min(waited, total - raw_to_mirror)
    return Lag(
        total_ms=total,
        parts={
            LagPart.SOURCE_TO_KAFKA: total - raw_to_mirror - kafka_to_raw,
            LagPart.KAFKA_TO_RAW: kafka_to_raw,
            LagPart.RAW_TO_MIRROR: raw_to_mirror,
        },
        ahead_ms=max(cut_ms - now_ms, 0),
    )


def waiting_since(partitions: Iterable[PartitionOffsets], landed_at: datetime | None) -> int | None:
    """Return since when records wait in the source, by Kafka's timestamps; None if none wait.

    For a waiting partition it is the time of its last landed record. If that is unknown, it is the
    time of the last landing: the partition waits at least since then.
    """
    waiting = [item for item in partitions if item.backlog]
    fallback = None if landed_at is None else round(landed_at.timestamp() * 1000)
    times = [item.newest_ms if item.newest_ms is not None else fallback for item in waiting]
    return min((time for time in times if time is not None), default=None)
