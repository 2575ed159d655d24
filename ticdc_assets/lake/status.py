"""How far a changefeed is, and what keeps it: read once, for checks, sensors, pages and metrics.

In: the small tables that steer the pipeline, and the source's offsets where the caller has just
looked at them. Out: one `Status`, plain values. No Spark session is started and nothing is written,
so reading again is safe and gives what the tables say then.

The lag of the mirrors is now less the physical time of the newest cut's TSO. It is split so that
the parts add up to it exactly, to the millisecond:

raw -> mirror
    from the cut to the watermark that has landed and is decoded. Where landed batches are not
    decoded yet nobody knows the watermarks in them; then it is up to Kafka's timestamp of the
    newest landed record.
Kafka -> raw
    while records wait in the source: from Kafka's timestamp of the last record landed of a
    partition that waits (the oldest of these) until now, as far as that is not counted already.
    If nothing waits it is 0.
source -> Kafka
    the rest: TiCDC, its sink, and the way to the broker.

What it cannot tell: upstream's clock made the TSO, TiCDC's machine (or the broker) the record's
timestamp, and this machine says what now is. Clocks that differ move seconds from one part to
another, never the sum of them. Where the source was not looked at, what waits is what the newest
landing left, so time that newer records spend in Kafka counts as source -> Kafka. A partition that
gets no watermark counts there as well: its `watermark_progress` says more.

A table is behind as far as the cut, unless row changes of it are held or in quarantine: then it is
complete only up to the first of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

import pyarrow.dataset as ds

from ticdc_assets.changelog.progress import GlobalWatermark, PartitionProgress
from ticdc_assets.config import Changefeed
from ticdc_assets.lake.accepted_gaps import AcceptedGap, read_accepted
from ticdc_assets.lake.checksums import Checksums, read_checksums
from ticdc_assets.lake.control import commit_metadata, read_rows, read_table
from ticdc_assets.lake.cuts import Cut, FailedMirror, HeldRows, newest_cut
from ticdc_assets.lake.decoding import ChangeGroups, decoded_position, read_groups
from ticdc_assets.lake.paths import LakePaths
from ticdc_assets.lake.positions import PartitionOffsets, newest_landing, partitions_of
from ticdc_assets.lake.sources import Gap
from ticdc_assets.lake.watermark import read_watermark
from ticdc_assets.tso import physical_ms, to_datetime


class LagPart(StrEnum):
    """A part of the way from a commit upstream to the mirrors."""

    SOURCE_TO_KAFKA = "source_to_kafka"
    KAFKA_TO_RAW = "kafka_to_raw"
    RAW_TO_MIRROR = "raw_to_mirror"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far the mirrors are behind now, in milliseconds; the parts add up to the total.

    Attributes:
        total_ms: now less the physical time of the newest cut; 0 if the cut is ahead of now.
        parts: milliseconds of each part.
        ahead_ms: by how much the cut is ahead of this machine's clock, 0 if it is not.
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
        """The part that is the largest; of equal ones that nearest to the mirrors."""
        return max(reversed(LagPart), key=lambda part: self.parts[part])

    def part_seconds(self, part: LagPart) -> float:
        """Return one part in seconds."""
        return self.parts[part] / 1000


def split_lag(now_ms: int, cut_ms: int, *, landed_ms: int, waiting_since_ms: int | None) -> Lag:
    """Return the lag of a cut and its parts, whatever the clocks say.

    Args:
        now_ms: now.
        cut_ms: physical time of the cut.
        landed_ms: physical time up to which everything has landed.
        waiting_since_ms: Kafka's timestamp of the last record landed where records wait; None if
            none wait.
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


NEW_TOPIC = "new"
"""State of a topic that the source has and no landing has looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStatus:
    """One topic of the source.

    Attributes:
        topic: the topic.
        state: what it is to the global watermark (`TopicState`), or NEW_TOPIC.
        partitions: how many partitions it has.
        backlog: records that wait in it.
        watermark_ts: lowest watermark of its partitions; None while one has none.
        waiting: partitions without any watermark that hold back the global one.
        tables: tables of it that exist; None if no message has told of one.
    """

    topic: str
    state: str
    partitions: int
    backlog: int
    watermark_ts: int | None
    waiting: tuple[int, ...]
    tables: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """One upstream table.

    Attributes:
        database: its database at the cut.
        table: its name at the cut.
        has_mirror: False if it is known from held rows only.
        rows: rows of the mirror.
        complete_ms: upstream time up to which it has every change.
        lag_ms: now less that; 0 if that is ahead of now.
        held: row changes that wait for their schema.
        held_since: when the first of them landed.
        quarantined: row changes that did not fit.
        marks: reasons why the mirror may differ from its table.
        failed: why the newest cut could not make the mirror; None if it could.
        lenient_casts: values that did not fit when their column was modified, and were cast.
    """

    database: str
    table: str
    has_mirror: bool
    rows: int
    complete_ms: int
    lag_ms: int
    held: int
    held_since: datetime | None
    quarantined: int
    marks: tuple[str, ...]
    failed: FailedMirror | None = None
    lenient_casts: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether it has every change up to the cut."""
        return not self.held and not self.quarantined and self.failed is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTimes:
    """What the change log has, in TSOs; each None where there is nothing of it.

    Attributes:
        oldest: lowest commit ts of a row or DDL.
        newest: highest commit ts of a row or DDL.
        first_watermark: lowest watermark of any partition.
    """

    oldest: int | None
    newest: int | None
    first_watermark: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How far a changefeed is.

    Attributes:
        changefeed: its name.
        at: when it was read.
        cut: the newest cut, None before the first.
        watermark: the global watermark.
        es_only: whether the messages have no commit ts and no watermarks.
        progress: how far the watermark of each partition is.
        times: what the change log has in time.
        partitions: the source's partitions, and how far each is landed.
        source_seen_at: when the source was looked at; None if never.
        landed_at: when something landed last; None if nothing has.
        landed_batch: newest batch landed.
        decoded_batch: landed batch up to which everything is decoded.
        log_batch: newest batch of the change log.
        log_rows: rows of the change log by kind, as far as it is kept.
        steps_back: watermarks that stepped back.
        topics: the topics, by name.
        tables: the tables, the one that is furthest behind first.
        lag: how far the mirrors are behind; None before the first cut.
        quarantined: open rows of the quarantine by stage.
        conflicts: rows of `schema_conflicts`.
        checksums: row checksums compared.
        gaps: where records are gone that were not landed, if the source was looked at.
        accepted_gaps: the gaps that were accepted.
    """

    changefeed: str
    at: datetime
    cut: Cut | None
    watermark: GlobalWatermark
    es_only: bool
    progress: Mapping[tuple[str, int], PartitionProgress]
    times: ChangeTimes
    partitions: tuple[PartitionOffsets, ...]
    source_seen_at: datetime | None
    landed_at: datetime | None
    landed_batch: int
    decoded_batch: int
    log_batch: int
    log_rows: Mapping[str, int]
    steps_back: int
    topics: tuple[TopicStatus, ...]
    tables: tuple[TableStatus, ...]
    lag: Lag | None
    quarantined: Mapping[str, int]
    conflicts: tuple[dict[str, Any], ...]
    checksums: Checksums
    gaps: tuple[Gap, ...] = ()
    accepted_gaps: tuple[AcceptedGap, ...] = ()

    @property
    def backlog(self) -> int:
        """Records that wait in the source, as it was seen."""
        return sum(item.backlog for item in self.partitions)

    @property
    def newest_record_ms(self) -> int | None:
        """Kafka's timestamp of the newest landed record; None if it is not known."""
        return max((item.newest_ms for item in self.partitions if item.newest_ms), default=None)

    @property
    def held(self) -> tuple[HeldRows, ...]:
        """Row changes at or below the cut that wait for their schema."""
        return self.cut.held if self.cut else ()

    @property
    def held_rows(self) -> int:
        """How many these are."""
        return sum(item.rows for item in self.held)

    @property
    def now_ms(self) -> int:
        """When it was read, in epoch milliseconds."""
        return round(self.at.timestamp() * 1000)

    def as_json(self) -> dict[str, Any]:
        """Return it as values that JSON has; TSOs are whole numbers."""
        lag, cut = self.lag, self.cut
        return {
            "changefeed": self.changefeed,
            "at": self.at.isoformat(timespec="milliseconds"),
            "cut": None
            if cut is None
            else {
                "number": cut.number,
                "tso": cut.tso,
                "time": _iso(to_datetime(cut.tso)),
                "published_at": _iso(cut.published_at),
                "consistent": not cut.es_only,
                "mirrors": len(cut.mirrors),
                "rewind": None if cut.rewind is None else cut.rewind.as_json(),
            },
            "watermark": self.watermark.watermark_ts,
            "slowest_partition": _place_text(self.watermark.slowest),
            "waiting_partitions": [_place_text(place) for place in self.watermark.waiting],
            "lag_seconds": None if lag is None else lag.seconds,
            "ahead_seconds": None if lag is None else lag.ahead_seconds,
            "lag_parts_seconds": None
            if lag is None
            else {str(part): lag.part_seconds(part) for part in LagPart},
            "source_seen_at": _iso(self.source_seen_at),
            "landed_at": _iso(self.landed_at),
            "newest_record_ms": self.newest_record_ms,
            "backlog": self.backlog,
            "batches": {
                "landed": self.landed_batch,
                "decoded": self.decoded_batch,
                "change_log": self.log_batch,
                "applied": cut.batch if cut else 0,
            },
            "gaps": [item.as_json() for item in self.gaps],
            "accepted_gaps": [item.as_json() for item in self.accepted_gaps],
            "held": self.held_rows,
            "failed_mirrors": 0 if cut is None else len(cut.failed),
            "accounts": []
            if cut is None
            else [{**asdict(item), "examples": list(item.examples)} for item in cut.accounts],
            "quarantined": dict(self.quarantined),
            "schema_conflicts": len(self.conflicts),
            "checksums": {str(key): count for key, count in self.checksums.counts.items()},
            "topics": [
                {
                    "topic": item.topic,
                    "state": item.state,
                    "partitions": item.partitions,
                    "backlog": item.backlog,
                    "watermark": item.watermark_ts,
                    "waiting_partitions": list(item.waiting),
                    "tables": item.tables,
                }
                for item in self.topics
            ],
            "tables": [
                {
                    "database": item.database,
                    "table": item.table,
                    "has_mirror": item.has_mirror,
                    "rows": item.rows,
                    "lag_seconds": item.lag_ms / 1000,
                    "complete": item.is_complete,
                    "held": item.held,
                    "held_since": _iso(item.held_since),
                    "quarantined": item.quarantined,
                    "marks": list(item.marks),
                    "failed": None if item.failed is None else item.failed.as_json(),
                    "lenient_casts": item.lenient_casts,
                }
                for item in self.tables
            ],
        }


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="milliseconds")


def _place_text(place: tuple[str, int] | None) -> str | None:
    return None if place is None else f"{place[0]}/{place[1]}"


# Reading ----------------------------------------------------------------------------------------


def read_status(
    paths: LakePaths,
    changefeed: Changefeed,
    now: datetime,
    *,
    source: Sequence[PartitionOffsets] | None = None,
    gaps: Sequence[Gap] = (),
    watermark: GlobalWatermark | None = None,
) -> Status:
    """Return how far a changefeed is; needs no Spark.

    Args:
        paths: its tables.
        changefeed: its configuration.
        now: the time to measure lags at.
        source: the source's partitions as they were seen at `now`; if None, what waits is what the
            newest landing left.
        gaps: the gaps that were seen with it.
        watermark: the global watermark, if the caller has just read it.
    """
    cut = newest_cut(paths)
    groups = read_groups(paths)
    landing = newest_landing(paths)
    known = () if landing is None else partitions_of(landing)
    partitions = known if source is None else _with_times(source, known)
    landed_at = landing["landed_at"] if landing else None
    progress = groups.progress()
    if watermark is None:
        watermark = read_watermark(paths, groups=groups, cut=cut)
    quarantine = _open_quarantine(paths)
    landed_batch = commit_metadata(paths.raw_messages).get("batch", 0)
    decoded_batch = decoded_position(paths)[1]
    now_ms = round(now.timestamp() * 1000)
    lag = None
    if cut is not None:
        lag = split_lag(
            now_ms,
            physical_ms(cut.tso),
            landed_ms=_landed_ms(
                cut, watermark, groups, known if landed_batch > decoded_batch else ()
            ),
            waiting_since_ms=waiting_since(partitions, landed_at),
        )
    return Status(
        changefeed=changefeed.name,
        at=now,
        cut=cut,
        watermark=watermark,
        es_only=groups.es_only,
        progress=progress,
        times=ChangeTimes(
            oldest=groups.oldest_change,
            newest=groups.newest_change,
            first_watermark=min(
                (row["min_ts"] for row in groups.rows if row["kind"] == "watermark"), default=None
            ),
        ),
        partitions=tuple(partitions),
        source_seen_at=landed_at if source is None else now,
        landed_at=landed_at,
        landed_batch=landed_batch,
        decoded_batch=decoded_batch,
        log_batch=groups.batch,
        log_rows=_log_rows(groups),
        steps_back=sum(item.steps_back for item in progress.values()),
        topics=_topics(partitions, watermark),
        tables=table_lags(cut, quarantine, now_ms),
        lag=lag,
        quarantined=_stages(quarantine),
        conflicts=tuple(read_rows(paths.schema_conflicts)),
        checksums=read_checksums(paths),
        gaps=tuple(gaps),
        accepted_gaps=read_accepted(paths),
    )


def waiting_since(partitions: Iterable[PartitionOffsets], landed_at: datetime | None) -> int | None:
    """Return since when records wait in the source, by Kafka's timestamps; None if none wait.

    Of a partition that waits it is the time of its last landed record. Where that is not known it
    is the time of the last landing, and the partition waits at least since then.
    """
    waiting = [item for item in partitions if item.backlog]
    fallback = None if landed_at is None else round(landed_at.timestamp() * 1000)
    times = [item.newest_ms if item.newest_ms is not None else fallback for item in waiting]
    return min((time for time in times if time is not None), default=None)


def table_lags(
    cut: Cut | None, quarantine: Iterable[Mapping[str, Any]], now_ms: int
) -> tuple[TableStatus, ...]:
    """Return every table and how far it is behind, the furthest first.

    Args:
        cut: the newest cut.
        quarantine: open rows of the quarantine; those with a table count.
        now_ms: now.
    """
    if cut is None:
        return ()
    cut_ms = physical_ms(cut.tso)
    faults: dict[tuple[str, str], int] = {}
    for row in quarantine:
        if row["database"] is not None and row["commit_ts"] is not None:
            name = (row["database"], row["table"])
            faults[name] = min(faults.get(name, row["commit_ts"]), row["commit_ts"])
    held: dict[object, list[HeldRows]] = {}
    for item in cut.held:
        held.setdefault(item.mirror_id or (item.database, item.table), []).append(item)
    failed = {item.mirror_id: item for item in cut.failed}
    tables: list[TableStatus] = []
    for mirror in cut.mirrors:
        waiting = held.pop(mirror.mirror_id, [])
        missing = [item.min_ts for item in waiting]
        fault = faults.get((mirror.database, mirror.table))
        if mirror.quarantined and fault is not None:
            missing.append(fault)
        failure = failed.pop(mirror.mirror_id, None)
        if failure is not None and failure.tso is not None:
            missing.append(failure.tso)
        complete = min([cut_ms, *(physical_ms(ts) for ts in missing)])
        tables.append(
            TableStatus(
                database=mirror.database,
                table=mirror.table,
                has_mirror=True,
                rows=mirror.rows,
                complete_ms=complete,
                lag_ms=max(0, now_ms - complete),
                held=mirror.held,
                held_since=min((item.since for item in waiting), default=None),
                quarantined=mirror.quarantined,
                marks=tuple(mirror.marks),
                failed=failure,
                lenient_casts=mirror.casts.total(),
            )
        )
    for failure in failed.values():
        waiting = held.pop(failure.mirror_id, [])
        complete = min(cut_ms, round(failure.since.timestamp() * 1000))
        tables.append(
            TableStatus(
                database=failure.database,
                table=failure.table,
                has_mirror=False,
                rows=0,
                complete_ms=complete,
                lag_ms=max(0, now_ms - complete),
                held=sum(item.rows for item in waiting),
                held_since=min((item.since for item in waiting), default=None),
                quarantined=0,
                marks=(),
                failed=failure,
            )
        )
    for waiting in held.values():
        complete = min(cut_ms, *(physical_ms(item.min_ts) for item in waiting))
        tables.append(
            TableStatus(
                database=waiting[0].database,
                table=waiting[0].table,
                has_mirror=False,
                rows=0,
                complete_ms=complete,
                lag_ms=max(0, now_ms - complete),
                held=sum(item.rows for item in waiting),
                held_since=min(item.since for item in waiting),
                quarantined=0,
                marks=(),
            )
        )
    return tuple(sorted(tables, key=lambda item: (-item.lag_ms, item.database, item.table)))


def _landed_ms(
    cut: Cut,
    watermark: GlobalWatermark,
    groups: ChangeGroups,
    undecoded: Sequence[PartitionOffsets],
) -> int:
    """Return the physical time up to which everything has landed."""
    landed_ts = groups.newest_change if groups.es_only else watermark.watermark_ts
    times = [physical_ms(cut.tso if landed_ts is None else landed_ts)]
    times += [item.newest_ms for item in undecoded if item.newest_ms is not None]
    return max(times)


def _with_times(
    source: Iterable[PartitionOffsets], known: Iterable[PartitionOffsets]
) -> tuple[PartitionOffsets, ...]:
    """Return partitions as the source has them, with the times that the newest landing knows."""
    times = {(item.topic, item.partition, item.landed): item.newest_ms for item in known}
    return tuple(
        replace(item, newest_ms=times.get((item.topic, item.partition, item.landed)))
        for item in source
    )


_FAULT_COLUMNS = ["stage", "database", "table", "commit_ts"]


def _open_quarantine(paths: LakePaths) -> list[dict[str, Any]]:
    found = read_table(paths.quarantine, ds.field("redriven_at").is_null(), columns=_FAULT_COLUMNS)
    return [] if found is None else found.to_pylist()


def _stages(quarantine: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    counts = {"decode": 0, "apply": 0}
    for row in quarantine:
        counts[row["stage"]] = counts.get(row["stage"], 0) + 1
    return counts


def _log_rows(groups: ChangeGroups) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in groups.rows:
        counts[row["kind"]] = counts.get(row["kind"], 0) + row["rows"]
    return dict(sorted(counts.items()))


def _topics(
    partitions: Iterable[PartitionOffsets], watermark: GlobalWatermark
) -> tuple[TopicStatus, ...]:
    backlogs: dict[str, int] = {}
    counts: dict[str, int] = {}
    for item in partitions:
        backlogs[item.topic] = backlogs.get(item.topic, 0) + item.backlog
        counts[item.topic] = counts.get(item.topic, 0) + 1
    topics = {
        item.topic: TopicStatus(
            topic=item.topic,
            state=str(item.state),
            partitions=max(item.partitions, counts.get(item.topic, 0)),
            backlog=backlogs.get(item.topic, 0),
            watermark_ts=item.watermark_ts,
            waiting=tuple(partition for _, partition in item.waiting) if item.counts else (),
            tables=item.tables,
        )
        for item in watermark.topics
    }
    for topic in counts.keys() - topics.keys():
        topics[topic] = TopicStatus(
            topic=topic,
            state=NEW_TOPIC,
            partitions=counts[topic],
            backlog=backlogs[topic],
            watermark_ts=None,
            waiting=(),
        )
    return tuple(topics[topic] for topic in sorted(topics))
