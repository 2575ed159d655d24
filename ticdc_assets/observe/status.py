"""The figures of a changefeed and of its tables, with their names.

All outputs about a changefeed print a `Status`: `status`, `tables`, `metrics`, the report, the
sensor and the asset checks. `judging` makes the verdicts once, in `Status.verdicts`. So all outputs
show the same figures and the same verdicts for one state of the lake. Values only: nothing is read
here (`status_reading` does that), and neither Spark nor Dagster is needed.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ticdc_assets.changelog.progress import GlobalWatermark, PartitionProgress
from ticdc_assets.log.accepted_gaps import AcceptedGap
from ticdc_assets.log.agreement import Checksums
from ticdc_assets.log.cuts import Cut, FailedMirror, HeldRows
from ticdc_assets.log.faults import Faults
from ticdc_assets.log.positions import PartitionOffsets
from ticdc_assets.model.tso import physical_ms, to_datetime
from ticdc_assets.observe.lag import Lag, LagPart
from ticdc_assets.observe.table_status import TableStatus
from ticdc_assets.observe.verdicts import Check, Level, Verdict
from ticdc_assets.observe.wording import iso

if TYPE_CHECKING:
    # That module imports Spark's types.
    from ticdc_assets.log.sources import Gap
    from ticdc_assets.mirrors.truncation_points import KeptTable


NEW_TOPIC = "new"
"""State of a topic in the source that no landing has read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStatus:
    """One topic of the source.

    Attributes:
        state: its effect on the global watermark (`TopicState`), or NEW_TOPIC.
        partitions: how many partitions it has.
        backlog: records that wait in it.
        watermark_ts: lowest watermark of its partitions; None while one has none.
        waiting: partitions without any watermark that hold back the global one.
        tables: its existing tables; None if no message has named one.
    """

    topic: str
    state: str
    partitions: int
    backlog: int
    watermark_ts: int | None = None
    waiting: tuple[int, ...] = ()
    tables: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        names = {"watermark_ts": "watermark", "waiting": "waiting_partitions"}
        return {names.get(name, name): value for name, value in asdict(self).items()}


ACCOUNT_COUNTS = (
    *("read", "applied", "waiting", "held", "quarantined", "excluded", "superseded"),
    "unaccounted",
)
"""The counts of the new row changes of a cut (`ChangeAccount`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The end of a changefeed whose source has ended and whose changes are applied.

    Attributes:
        tso: the last cut.
        has_rest: whether changes have landed above the last watermark, so that no cut has them.
    """

    tso: int
    has_rest: bool

    @property
    def at(self) -> datetime:
        """The physical time of the last cut."""
        return to_datetime(self.tso)

    @property
    def text(self) -> str:
        """The end in words."""
        return f"finished at {self.at:%Y-%m-%d %H:%M:%S} UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status of a changefeed.

    Attributes:
        at: when it was read.
        cut: the newest cut; None before the first.
        watermark: the global watermark.
        es_only: whether the messages have no commit ts and no watermarks.
        progress: the watermark of each partition.
        oldest_change: lowest commit ts of a row or DDL in the change log; None without any.
        newest_change: the highest.
        first_watermark: lowest watermark of any partition in the change log; None without any.
        partitions: the source's partitions, with their landed offsets.
        source_seen_at: when the source was checked; None if never.
        landed_at: when something landed last; None if nothing has.
        landed_batch: newest batch landed.
        decoded_batch: landed batch up to which everything is decoded.
        log_batch: newest batch of the change log.
        log_rows: rows of the change log by kind, without removed rows.
        steps_back: watermarks that stepped back.
        tables: the tables, the one that lags most first.
        lag: how far the mirrors are behind; None before the first cut. A finished changefeed's lag,
            and its tables', is measured at its end, not now.
        faults: the open rows of the quarantine, of mirrored or unknown tables.
        conflicts: rows of `schema_conflicts`.
        checksums: row checksums compared.
        gaps: where records are gone that were not landed, if the source was checked.
        accepted_gaps: the gaps that were accepted.
        untruncated: the tables that retention does not truncate, because they lack changes.
        ending: where it finished; None while more may come or be applied.
        verdicts: the verdicts, by the limits of the changefeed.
    """

    changefeed: str
    at: datetime
    cut: Cut | None
    watermark: GlobalWatermark
    es_only: bool
    progress: Mapping[tuple[str, int], PartitionProgress]
    oldest_change: int | None
    newest_change: int | None
    first_watermark: int | None
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
    untruncated: "tuple[KeptTable, ...]" = ()
    ending: Ending | None = None
    verdicts: Mapping[Check, Verdict] = field(default_factory=dict[Check, Verdict])

    @property
    def backlog(self) -> int:
        """Records that wait in the source, when it was last read."""
        return sum(item.backlog for item in self.partitions)

    @property
    def newest_record_ms(self) -> int | None:
        """Kafka's timestamp of the newest landed record; None if unknown."""
        return max((item.newest_ms for item in self.partitions if item.newest_ms), default=None)

    @property
    def held(self) -> tuple[HeldRows, ...]:
        """Row changes at or below the cut that wait for their schema, the oldest first."""
        held = self.cut.held if self.cut else ()
        return tuple(sorted(held, key=lambda item: (item.since, item.order)))

    @property
    def held_rows(self) -> int:
        """The number of these row changes."""
        return sum(item.rows for item in self.held)

    @property
    def held_seconds(self) -> float:
        """How long the oldest of these have waited; 0 if none wait."""
        return self.age_seconds(self.held[0].since) if self.held else 0.0

    def age_seconds(self, since: datetime) -> float:
        """Return how long before this status a moment was; 0 if it is later."""
        return max(0.0, (self.at - since).total_seconds())

    @property
    def slowest(self) -> str | None:
        """The partition that holds the global watermark, `topic/partition`; None without one."""
        return _place_text(self.watermark.slowest)

    @property
    def beyond_seconds(self) -> float:
        """How far the newest change is beyond the watermark, or the first change without one."""
        newest, base = self.newest_change, self.watermark.watermark_ts
        if base is None:
            base = self.cut.tso if self.cut else self.oldest_change
        if newest is None or base is None:
            return 0.0
        return max(0, physical_ms(newest) - physical_ms(base)) / 1000

    @property
    def quiet_seconds(self) -> float | None:
        """How much upstream time passed with watermarks only; None without a watermark."""
        watermark = self.watermark.watermark_ts
        moments = [ts for ts in (self.newest_change, self.first_watermark) if ts is not None]
        if watermark is None or not moments:
            return None
        return max(0, physical_ms(watermark) - physical_ms(max(moments))) / 1000

    @property
    def quarantined(self) -> Mapping[str, int]:
        """Open rows of the quarantine by stage, of mirrored or unknown tables."""
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
    def level(self) -> Level:
        """The worst level of its verdicts."""
        return max(item.level for item in self.verdicts.values())

    @property
    def accounts(self) -> Mapping[str, int]:
        """The accounts of the new row changes in the newest cut."""
        accounts = self.cut.accounts if self.cut else ()
        return {name: sum(getattr(item, name) for item in accounts) for name in ACCOUNT_COUNTS}

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values; TSOs are integers."""
        lag, cut = self.lag, self.cut
        return {
            "changefeed": self.changefeed,
            "at": self.at.isoformat(timespec="milliseconds"),
            "cut": None
            if cut is None
            else {
                "number": cut.number,
                "tso": cut.tso,
                "time": iso(to_datetime(cut.tso)),
                "published_at": iso(cut.published_at),
                "consistent": not cut.es_only,
                "mirrors": len(cut.mirrors),
                "rewind": None if cut.rewind is None else cut.rewind.as_json(),
            },
            "finished_at": None if self.ending is None else iso(self.ending.at),
            "watermark": self.watermark.watermark_ts,
            "slowest_partition": self.slowest,
            "waiting_partitions": [_place_text(place) for place in self.watermark.waiting],
            "lag_seconds": None if lag is None else lag.seconds,
            "ahead_seconds": None if lag is None else lag.ahead_seconds,
            "lag_parts_seconds": None
            if lag is None
            else {str(part): lag.part_seconds(part) for part in LagPart},
            "source_seen_at": iso(self.source_seen_at),
            "landed_at": iso(self.landed_at),
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
            "untruncated": [item.as_json() for item in self.untruncated],
            "held": self.held_rows,
            "incomplete_tables": self.incomplete,
            "failed_mirrors": len(self.failed),
            "failed_since": iso(min((item.since for item in self.failed), default=None)),
            "waiting": self.waiting,
            "accounts": []
            if cut is None
            else [{**asdict(item), "examples": list(item.examples)} for item in cut.accounts],
            "quarantined": dict(self.quarantined),
            "schema_conflicts": len(self.conflicts),
            "checksums": {str(key): count for key, count in self.checksums.counts.items()},
            "topics": [item.as_json() for item in self.topics],
            "tables": [item.as_json() for item in self.tables],
            "verdicts": {str(check): item.as_json() for check, item in self.verdicts.items()},
        }


def _place_text(place: tuple[str, int] | None) -> str | None:
    return None if place is None else f"{place[0]}/{place[1]}"
