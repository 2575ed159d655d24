"""Watermarks per (topic, partition), and the global watermark.

In: watermarks in the order of their offsets. Out: for each partition the highest watermark seen
and how often one stepped back; over all partitions the lowest of them, which is as far as changes
may be applied. A watermark that steps back is counted and otherwise ignored (TiCDC restarts from
an older checkpoint), so feeding the same watermarks again changes nothing but that count.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

TopicPartition: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProgress:
    """How far one partition is.

    Attributes:
        watermark_ts: highest watermark seen; 0 if none yet.
        steps_back: watermarks lower than one seen before them.
        watermarks: watermarks seen in all.
    """

    watermark_ts: int = 0
    steps_back: int = 0
    watermarks: int = 0

    def advance(self, watermark_ts: int) -> "PartitionProgress":
        """Return the progress after one more watermark."""
        return PartitionProgress(
            watermark_ts=max(self.watermark_ts, watermark_ts),
            steps_back=self.steps_back + (watermark_ts < self.watermark_ts),
            watermarks=self.watermarks + 1,
        )


def advance_all(
    progress: Mapping[TopicPartition, PartitionProgress],
    watermarks: Iterable[tuple[TopicPartition, int]],
) -> dict[TopicPartition, PartitionProgress]:
    """Return `progress` after `watermarks`, which come in offset order within each partition."""
    result = dict(progress)
    for place, watermark_ts in watermarks:
        result[place] = result.get(place, PartitionProgress()).advance(watermark_ts)
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalWatermark:
    """The lowest partition watermark, or why there is none.

    Attributes:
        watermark_ts: minimum over all partitions; None while a partition has none.
        waiting: partitions without any watermark, in order.
        slowest: the partition that holds the minimum; None without one.
    """

    watermark_ts: int | None
    waiting: tuple[TopicPartition, ...]
    slowest: TopicPartition | None


def global_watermark(
    progress: Mapping[TopicPartition, PartitionProgress], partitions: Iterable[TopicPartition]
) -> GlobalWatermark:
    """Return the minimum watermark over `partitions` and every partition that ever had one."""
    places = sorted(set(partitions) | set(progress))
    waiting = tuple(
        place for place in places if not progress.get(place, PartitionProgress()).watermark_ts
    )
    if waiting or not places:
        return GlobalWatermark(watermark_ts=None, waiting=waiting, slowest=None)
    slowest = min(places, key=lambda place: (progress[place].watermark_ts, place))
    return GlobalWatermark(watermark_ts=progress[slowest].watermark_ts, waiting=(), slowest=slowest)
