"""Watermarks per (topic, partition), and the global watermark.

In: watermarks in the order of their offsets, and the newest landing's facts about each topic. Out:
for each partition the highest watermark and how often one stepped back; the lowest of these over
all partitions that count, up to which changes may be applied. A watermark that steps back is
counted and otherwise ignored (TiCDC restarts from an older checkpoint), so the same watermarks
again change only that count.

Not every topic counts. TiCDC sends watermarks only to the topics of tables that exist, so a topic
whose tables are all gone, or that never had a record, would hold back all others for ever. Such a
topic is left out where it is *settled*: it was landed to an end that was listed after the ends of
all other topics. A watermark says that everything at or below it had been acknowledged by Kafka in
every topic before it was sent; so a topic that has nothing left when listed after that has nothing
at or below it. Leaving topics out therefore affects speed, never correctness: a topic that comes
back, or counted as retired too early, only brings newer changes.

By the same proof a topic is left out that is *silent*: its tables exist, but it gets no watermarks
any more. The new TiCDC may lose sight of a table whose name was another's. Of the names that one
statement gives and takes (`RENAME TABLE a TO b, c TO a`) it adds the new ones first and then drops
the old ones, and it reads the statements between two watermarks in any order (`GetAllTableNames` in
pkg/common/event/table_schema_store.go of pingcap/ticdc). Until it restarts, the topic of such a
table has rows and DDL alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeAlias

from ticdc_assets.model.tso import physical_ms

SILENCE_MS: Final = 60_000
"""TiCDC sends a watermark to all topics at once: one that lacks it for so long gets none."""

TopicPartition: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProgress:
    """How far a partition is: its highest watermark, 0 if none, and how often one stepped back."""

    watermark_ts: int = 0
    steps_back: int = 0

    def advance(self, watermark_ts: int) -> "PartitionProgress":
        """Return the progress after one more watermark."""
        return PartitionProgress(
            watermark_ts=max(self.watermark_ts, watermark_ts),
            steps_back=self.steps_back + (watermark_ts < self.watermark_ts),
        )


class TopicState(StrEnum):
    """The role of a topic for the global watermark."""

    LIVE = "live"
    """Every partition has a watermark; it counts."""
    WAITING = "waiting"
    """It has records, and a partition without a watermark: nothing can be applied until then."""
    RETIRED = "retired"
    """None of its tables exists any more; it comes back with the next one."""
    EMPTY = "empty"
    """It never had a record, or is not there yet; it joins at its first one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """The facts about one topic besides its watermarks.

    Attributes:
        partitions: its partitions; none if it is not there (yet, or any more).
        empty: whether it never had a record.
        settled: whether it had nothing left to land when it was listed after all others.
        tables: tables of it that exist; None if it only had watermarks.
        retired_ts: commit ts of the DDL after which none of its tables exists, None if one does.
    """

    topic: str
    partitions: tuple[int, ...]
    empty: bool = False
    settled: bool = False
    tables: int | None = None
    retired_ts: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicProgress:
    """One topic and how far it is.

    Attributes:
        state: its role for the global watermark.
        counts: whether it holds the global watermark.
        watermark_ts: lowest watermark of its partitions; None while one has none.
        waiting: partitions without any watermark.
        tables: tables of it that exist; None if it only had watermarks.
        retired_ts: commit ts of the DDL after which none of its tables exists, None if one does.
    """

    topic: str
    state: TopicState
    counts: bool
    partitions: int
    watermark_ts: int | None
    slowest: TopicPartition | None
    waiting: tuple[TopicPartition, ...]
    tables: int | None = None
    retired_ts: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalWatermark:
    """The lowest watermark of the partitions that count, or why there is none.

    Attributes:
        watermark_ts: how far changes may be applied; None while it is not known. Never below the
            published TSO.
        waiting: partitions that count and have no watermark, in order.
        slowest: the partition that holds the minimum; None without one.
    """

    watermark_ts: int | None
    waiting: tuple[TopicPartition, ...]
    slowest: TopicPartition | None
    topics: tuple[TopicProgress, ...] = ()

    def topics_in(self, state: TopicState) -> tuple[TopicProgress, ...]:
        """Return the topics in a state."""
        return tuple(topic for topic in self.topics if topic.state is state)


def global_watermark(
    progress: Mapping[TopicPartition, PartitionProgress],
    topics: Iterable[TopicFacts],
    *,
    published_ts: int = 0,
    lists_anew: bool = False,
) -> GlobalWatermark:
    """Return the minimum watermark over the partitions of every topic that counts.

    It is never below `published_ts`, the TSO of the newest cut (0 before the first). `lists_anew`
    says whether each landing lists what the topics have, as with Kafka. The topics of a capture may
    have been recorded one after the other, which proves nothing.
    """
    partitions: dict[str, set[int]] = {}
    for topic, number in progress:
        partitions.setdefault(topic, set()).add(number)
    ordered = sorted(topics, key=lambda item: item.topic)
    judged = [_judged(progress, facts, partitions.get(facts.topic, set())) for facts in ordered]
    if lists_anew:
        newest_ts = max((topic.watermark_ts or 0 for topic in judged), default=0)
        judged = [
            replace(topic, counts=False)
            if facts.settled and _is_silent(topic, newest_ts)
            else topic
            for topic, facts in zip(judged, ordered, strict=True)
        ]
    counting = [topic for topic in judged if topic.counts]
    if not counting:
        # All are at rest. One of them, the default topic, may still get watermarks.
        with_watermark = [topic for topic in judged if topic.watermark_ts]
        counting = sorted(with_watermark, key=lambda topic: topic.watermark_ts or 0)[-1:]
    waiting = tuple(place for topic in counting or judged for place in topic.waiting)
    slowest = None
    watermark_ts = published_ts or None
    if counting and not waiting:
        places = (topic.slowest for topic in counting if topic.slowest is not None)
        slowest = min(places, key=lambda place: (progress[place].watermark_ts, place))
        watermark_ts = max(progress[slowest].watermark_ts, published_ts)
    return GlobalWatermark(
        watermark_ts=watermark_ts, waiting=waiting, slowest=slowest, topics=tuple(judged)
    )


def _is_silent(topic: TopicProgress, newest_ts: int) -> bool:
    """Return whether a live topic has long lacked the watermarks that another has."""
    silent_ms = physical_ms(newest_ts) - physical_ms(topic.watermark_ts or 0)
    return topic.state is TopicState.LIVE and silent_ms >= SILENCE_MS


def _judged(
    progress: Mapping[TopicPartition, PartitionProgress], facts: TopicFacts, numbers: Iterable[int]
) -> TopicProgress:
    places = [(facts.topic, number) for number in sorted({*facts.partitions, *numbers})]
    waiting = tuple(
        place for place in places if not progress.get(place, PartitionProgress()).watermark_ts
    )
    slowest = None
    if places and not waiting:
        slowest = min(places, key=lambda place: (progress[place].watermark_ts, place))
    if facts.empty:
        state = TopicState.EMPTY
    elif facts.retired_ts is not None:
        state = TopicState.RETIRED
    else:
        state = TopicState.WAITING if waiting else TopicState.LIVE
    resting = state in (TopicState.EMPTY, TopicState.RETIRED)
    return TopicProgress(
        topic=facts.topic,
        state=state,
        counts=bool(places) and not (resting and facts.settled),
        partitions=len(places),
        watermark_ts=None if slowest is None else progress[slowest].watermark_ts,
        slowest=slowest,
        waiting=waiting,
        tables=facts.tables,
        retired_ts=facts.retired_ts,
    )
