"""The figures of a changefeed and of its tables, and what each of them is called.

Everybody who tells how a changefeed is prints a `Status`: `status`, `tables`, `metrics`, the
report, the sensor and the asset checks. What is good, late or wrong is said by `judging`, once, and
kept in `Status.verdicts`. So no two of them tell different figures, or different verdicts, of one
state of the lake. Plain values: nothing is read here (`status_reading` does) and neither Spark nor
Dagster is needed.

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

A table is behind as far as the cut, unless row changes of it are held or in quarantine, or it could
not be made: then it is complete only up to the first of these.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any

from ticdc_assets.changelog.progress import GlobalWatermark, PartitionProgress
from ticdc_assets.config import TableFilter
from ticdc_assets.lake.accepted_gaps import AcceptedGap
from ticdc_assets.lake.cuts import Cut, FailedMirror, HeldRows
from ticdc_assets.lake.positions import PartitionOffsets
from ticdc_assets.tso import physical_ms, to_datetime

if TYPE_CHECKING:
    # It looks at sources by way of Spark's types.
    from ticdc_assets.lake.sources import Gap


# Verdicts ---------------------------------------------------------------------------------------


class Level(IntEnum):
    """How bad it is."""

    OK = 0
    WARN = 1
    FAIL = 2

    @property
    def word(self) -> str:
        """The level as it is printed."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is to be said of some figures.

    Attributes:
        level: how bad it is.
        sentence: what is seen, and what to do about it if anything.
    """

    level: Level = Level.OK
    sentence: str

    def as_json(self) -> dict[str, str]:
        """Return it as values that JSON has."""
        return {"level": self.level.word, "sentence": self.sentence}


class Check(StrEnum):
    """What is judged of a changefeed; the asset checks of Dagster have these names."""

    REPLICATION_LAG = "replication_lag"
    WATERMARK_PROGRESS = "watermark_progress"
    HELD_ROWS = "held_rows"
    MIRRORS_COMPLETE = "mirrors_complete"
    QUARANTINE_GROWTH = "quarantine_growth"
    CHANGES_ACCOUNTED = "changes_accounted"
    ROW_CHECKSUMS = "row_checksums"
    SCHEMA_CONFLICTS = "schema_conflicts"


# Lag --------------------------------------------------------------------------------------------


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


def waiting_since(partitions: Iterable[PartitionOffsets], landed_at: datetime | None) -> int | None:
    """Return since when records wait in the source, by Kafka's timestamps; None if none wait.

    Of a partition that waits it is the time of its last landed record. Where that is not known it
    is the time of the last landing, and the partition waits at least since then.
    """
    waiting = [item for item in partitions if item.backlog]
    fallback = None if landed_at is None else round(landed_at.timestamp() * 1000)
    times = [item.newest_ms if item.newest_ms is not None else fallback for item in waiting]
    return min((time for time in times if time is not None), default=None)


# Topics and tables -----------------------------------------------------------------------------

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
class Faults:
    """Open rows of the quarantine that came together and are alike.

    Attributes:
        stage: `decode` or `apply`.
        reason: what is wrong, a stable word.
        since: when they were put into quarantine.
        database: database of their table; None if it is not known.
        table: their table; None if it is not known.
        first_ts: lowest commit ts of them; None if it is not known.
        rows: how many they are.
    """

    stage: str
    reason: str
    since: datetime
    database: str | None = None
    table: str | None = None
    first_ts: int | None = None
    rows: int = 1


def is_mirrored_fault(row: Mapping[str, Any], tables: TableFilter | None) -> bool:
    """Return whether a row of the quarantine counts for a changefeed that mirrors some tables.

    Row changes of other tables do not: there is no mirror that lacks them. Records that could not
    be decoded are of no table yet.
    """
    return (
        tables is None or row["stage"] != "apply" or tables.includes(row["database"], row["table"])
    )


class TableState(StrEnum):
    """How a table is, in a word."""

    COMPLETE = "complete"
    MARKED = "marked"
    INCOMPLETE = "incomplete"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """One upstream table.

    Attributes:
        database: its database at the cut.
        table: its name at the cut.
        mirror_id: stable id of its mirror; None of a table that is known from held rows only.
        has_mirror: False if no cut has made a mirror of it yet.
        rows: rows of the mirror.
        complete_ms: upstream time up to which it has every change, in epoch milliseconds.
        lag_ms: now less that; 0 if that is ahead of now.
        held: row changes that wait for their schema.
        held_since: when the first of them landed.
        quarantined: row changes that did not fit.
        marks: reasons why the mirror may differ from its table.
        failed: why the newest cut could not make the mirror; None if it could.
        lenient_casts: values that did not fit when their column was modified, and were cast.
        last_change_ts: highest commit ts of a row change that landed; None if it is not known.
    """

    database: str
    table: str
    mirror_id: str | None = None
    has_mirror: bool = True
    rows: int = 0
    complete_ms: int
    lag_ms: int
    held: int
    held_since: datetime | None
    quarantined: int = 0
    marks: tuple[str, ...] = ()
    failed: FailedMirror | None = None
    lenient_casts: int = 0
    last_change_ts: int | None = None

    @property
    def lag_seconds(self) -> float:
        """The lag in seconds."""
        return self.lag_ms / 1000

    @property
    def is_complete(self) -> bool:
        """Whether it has every change up to the cut."""
        return not self.held and not self.quarantined and self.failed is None

    @property
    def lacking(self) -> tuple[str, ...]:
        """What it lacks of the changes up to the cut, as people are told."""
        found = [self.failed.sentence] if self.failed is not None else []
        found += [f"{self.held:,} held"] if self.held else []
        found += [f"{self.quarantined:,} quarantined"] if self.quarantined else []
        found += [] if self.has_mirror or self.failed is not None else ["no mirror yet"]
        return tuple(found)

    @property
    def state(self) -> TableState:
        """How it is; the worst that can be said."""
        if self.failed is not None:
            return TableState.FAILED
        if not self.is_complete:
            return TableState.INCOMPLETE
        return TableState.MARKED if self.marks else TableState.COMPLETE

    @property
    def verdict(self) -> Verdict:
        """What is to be said of it; a late cut is judged once, and not for each table."""
        reasons = ", ".join((*self.lacking, *self.marks))
        return Verdict(
            level=_STATE_LEVELS[self.state],
            sentence=f"{self.state}: {reasons}" if reasons else str(self.state),
        )

    def as_json(self) -> dict[str, Any]:
        """Return it as values that JSON has."""
        return {
            "database": self.database,
            "table": self.table,
            "has_mirror": self.has_mirror,
            "rows": self.rows,
            "lag_seconds": self.lag_seconds,
            "complete": self.is_complete,
            "held": self.held,
            "held_since": _iso(self.held_since),
            "quarantined": self.quarantined,
            "marks": list(self.marks),
            "failed": None if self.failed is None else self.failed.as_json(),
            "lenient_casts": self.lenient_casts,
            "verdict": self.verdict.as_json(),
        }


_STATE_LEVELS = {
    TableState.COMPLETE: Level.OK,
    TableState.MARKED: Level.WARN,
    TableState.INCOMPLETE: Level.WARN,
    TableState.FAILED: Level.FAIL,
}


def table_statuses(
    cut: Cut | None,
    faults: Iterable[Faults],
    now_ms: int,
    *,
    last_changes: Mapping[tuple[str, str], int] | None = None,
) -> tuple[TableStatus, ...]:
    """Return every table and how far it is behind, the furthest first.

    Args:
        cut: the newest cut.
        faults: what is open in the quarantine; what has a table counts.
        now_ms: now, in epoch milliseconds.
        last_changes: highest commit ts of a row change by (database, table), where it is known.
    """
    if cut is None:
        return ()
    faulty: dict[tuple[str | None, str | None], int] = {}
    for item in faults:
        if item.first_ts is not None:
            name = (item.database, item.table)
            faulty[name] = min(faulty.get(name, item.first_ts), item.first_ts)
    held: dict[object, list[HeldRows]] = {}
    for rows in cut.held:
        held.setdefault(rows.mirror_id or (rows.database, rows.table), []).append(rows)
    failed = {item.mirror_id: item for item in cut.failed}
    cut_ms, last = physical_ms(cut.tso), last_changes or {}

    def status(name: tuple[str, str], key: object, *missing_ms: int, **known: Any) -> TableStatus:
        """Return a table that lacks changes since some moments, and since its first held row."""
        waiting = held.pop(key, [])
        complete = min(cut_ms, *missing_ms, *(physical_ms(item.min_ts) for item in waiting))
        return TableStatus(
            database=name[0],
            table=name[1],
            mirror_id=key if isinstance(key, str) else None,
            complete_ms=complete,
            lag_ms=max(0, now_ms - complete),
            held_since=min((item.since for item in waiting), default=None),
            last_change_ts=last.get(name),
            **dict[str, Any](held=sum(item.rows for item in waiting)) | known,
        )

    tables: list[TableStatus] = []
    for mirror in cut.mirrors:
        name = (mirror.database, mirror.table)
        failure = failed.pop(mirror.mirror_id, None)
        missing = [faulty.get(name) if mirror.quarantined else None]
        missing.append(None if failure is None else failure.tso)
        tables.append(
            status(
                name,
                mirror.mirror_id,
                cut_ms,
                *(physical_ms(tso) for tso in missing if tso is not None),
                rows=mirror.rows,
                held=mirror.held,
                quarantined=mirror.quarantined,
                marks=tuple(mirror.marks),
                failed=failure,
                lenient_casts=mirror.casts.total(),
            )
        )
    for failure in failed.values():
        since_ms = round(failure.since.timestamp() * 1000)
        name = (failure.database, failure.table)
        tables.append(status(name, failure.mirror_id, since_ms, has_mirror=False, failed=failure))
    for key, (first, *_) in list(held.items()):
        name = (first.database, first.table)
        tables.append(status(name, key, cut_ms, has_mirror=False))
    return tuple(sorted(tables, key=lambda item: (-item.lag_ms, item.database, item.table)))


class Agreement(StrEnum):
    """What comparing the checksums of one row says."""

    AGREES = "agrees"
    DISAGREES = "disagrees"
    UNKNOWN = "unknown"
    """Nothing can be said: the row is cut, its version is not known, or it was split."""
    WAITING = "waiting"
    """The row's schema has not arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checksums:
    """All row checksums so far.

    Attributes:
        counts: rows by agreement.
        examples: where the first rows are that disagree.
    """

    counts: Mapping[Agreement, int]
    examples: tuple[dict[str, Any], ...]


ACCOUNT_COUNTS = (
    *("read", "applied", "waiting", "held", "quarantined", "excluded", "superseded"),
    "unaccounted",
)
"""What is counted of the row changes that a cut is the first to have (`ChangeAccount`)."""


# Changefeeds ------------------------------------------------------------------------------------


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
        faults: what is open in the quarantine, of tables that are mirrored or not known.
        conflicts: rows of `schema_conflicts`.
        checksums: row checksums compared.
        gaps: where records are gone that were not landed, if the source was looked at.
        accepted_gaps: the gaps that were accepted.
        verdicts: what is to be said of all this, by the limits of the changefeed.
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
    faults: tuple[Faults, ...]
    conflicts: tuple[dict[str, Any], ...]
    checksums: Checksums
    gaps: "tuple[Gap, ...]" = ()
    accepted_gaps: tuple[AcceptedGap, ...] = ()
    verdicts: Mapping[Check, Verdict] = field(default_factory=dict[Check, Verdict])

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
        """Row changes at or below the cut that wait for their schema, the oldest first."""
        return tuple(
            sorted(
                self.cut.held if self.cut else (),
                key=lambda item: (item.since, item.database, item.table, item.schema_version),
            )
        )

    @property
    def held_rows(self) -> int:
        """How many these are."""
        return sum(item.rows for item in self.held)

    @property
    def held_seconds(self) -> float:
        """How long the oldest of these have waited; 0 if none wait."""
        return self.age_seconds(self.held[0].since) if self.held else 0.0

    def age_seconds(self, since: datetime) -> float:
        """Return how long ago a moment was when this was read; 0 if it is later."""
        return max(0.0, (self.at - since).total_seconds())

    @property
    def slowest(self) -> str | None:
        """The partition that holds the global watermark, `topic/partition`; None without one."""
        return _place_text(self.watermark.slowest)

    @property
    def beyond_seconds(self) -> float:
        """How far the newest change is beyond the watermark, or the first change without one."""
        newest, base = self.times.newest, self.watermark.watermark_ts
        if base is None:
            base = self.cut.tso if self.cut else self.times.oldest
        if newest is None or base is None:
            return 0.0
        return max(0, physical_ms(newest) - physical_ms(base)) / 1000

    @property
    def quiet_seconds(self) -> float | None:
        """For how long of upstream time only watermarks came; None without a watermark."""
        watermark = self.watermark.watermark_ts
        known = [ts for ts in (self.times.newest, self.times.first_watermark) if ts is not None]
        if watermark is None or not known:
            return None
        return max(0, physical_ms(watermark) - physical_ms(max(known))) / 1000

    @property
    def quarantined(self) -> Mapping[str, int]:
        """Open rows of the quarantine by stage, of tables that are mirrored or not known."""
        counts = Counter({"decode": 0, "apply": 0})
        for item in self.faults:
            counts[item.stage] += item.rows
        return counts

    @property
    def failed(self) -> tuple[FailedMirror, ...]:
        """Mirrors that the newest cut could not make."""
        return self.cut.failed if self.cut else ()

    @property
    def waiting(self) -> int:
        """Row changes that wait because their mirror could not be made."""
        return sum(item.waiting for item in self.failed)

    @property
    def incomplete(self) -> int:
        """Tables that lack changes at or below the cut."""
        return sum(not item.is_complete for item in self.tables)

    @property
    def accounts(self) -> Mapping[str, int]:
        """What became of the row changes that the newest cut is the first to have."""
        accounts = self.cut.accounts if self.cut else ()
        return {name: sum(getattr(item, name) for item in accounts) for name in ACCOUNT_COUNTS}

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
            "slowest_partition": self.slowest,
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
            "incomplete_tables": self.incomplete,
            "failed_mirrors": len(self.failed),
            "failed_since": _iso(min((item.since for item in self.failed), default=None)),
            "waiting": self.waiting,
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
            "tables": [item.as_json() for item in self.tables],
            "verdicts": {str(check): item.as_json() for check, item in self.verdicts.items()},
        }


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="milliseconds")


def _place_text(place: tuple[str, int] | None) -> str | None:
    return None if place is None else f"{place[0]}/{place[1]}"
