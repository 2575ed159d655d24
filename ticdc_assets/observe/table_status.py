"""The progress of each table of a changefeed, and the changes it lacks.

In: the newest cut, and the open rows of the quarantine. Out: a `TableStatus` for each table, the
furthest behind first. Values only: nothing is read here, so the same cut and faults give the same.

A table is as far behind as the cut, unless row changes of it are held, in quarantine or not
accounted for, or its mirror could not be made: then it is complete only up to the first of these.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from ticdc_assets.changelog.plan import lacks_rows
from ticdc_assets.log.cuts import Cut, FailedMirror, HeldRows
from ticdc_assets.log.faults import Faults
from ticdc_assets.model.tso import physical_ms
from ticdc_assets.observe.verdicts import Level, Verdict
from ticdc_assets.observe.wording import iso


class TableState(StrEnum):
    """The state of a table, in a word."""

    COMPLETE = "complete"
    CAVEATS = "with caveats"
    INCOMPLETE = "incomplete"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """One upstream table, by its name at the cut.

    Attributes:
        mirror_id: stable id of its mirror; None for a table known only from rows.
        has_mirror: False if no cut has made a mirror of it yet.
        rows: rows of the mirror.
        complete_ms: upstream time up to which it has every change, in epoch milliseconds.
        lag_ms: now minus `complete_ms`; 0 if that is ahead of now.
        held: row changes that wait for their schema.
        held_since: when the first of them landed.
        quarantined: row changes that did not fit.
        unaccounted: row changes that are in no mirror, neither held nor in quarantine.
        caveats: reasons why the mirror may differ from its table.
        failed: why the newest cut could not make the mirror; None if it could.
        lenient_casts: values that did not fit when their column was modified, and were cast.
        last_change_ts: highest commit ts of a landed row change; None if unknown.
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
    unaccounted: int = 0
    caveats: tuple[str, ...] = ()
    failed: FailedMirror | None = None
    lenient_casts: int = 0
    last_change_ts: int | None = None

    @property
    def lag_seconds(self) -> float:
        """The lag in seconds."""
        return self.lag_ms / 1000

    @property
    def is_complete(self) -> bool:
        """Whether it has every row and every change up to the cut."""
        has_all = self.failed is None and not lacks_rows(self.caveats)
        return has_all and not (self.held or self.quarantined or self.unaccounted)

    @property
    def lacking(self) -> tuple[str, ...]:
        """The changes up to the cut that it lacks, in words."""
        reasons = [self.failed.sentence] if self.failed is not None else []
        reasons += [f"{self.held:,} held"] if self.held else []
        reasons += [f"{self.quarantined:,} quarantined"] if self.quarantined else []
        reasons += [f"{self.unaccounted:,} not accounted for"] if self.unaccounted else []
        reasons += [] if self.has_mirror or self.failed is not None else ["no mirror yet"]
        return tuple(reasons)

    @property
    def state(self) -> TableState:
        """Its state; the worst that applies."""
        if self.failed is not None or self.unaccounted:
            return TableState.FAILED
        if not self.is_complete:
            return TableState.INCOMPLETE
        return TableState.CAVEATS if self.caveats else TableState.COMPLETE

    @property
    def verdict(self) -> Verdict:
        """Its verdict; a late cut is judged once, not for each table."""
        return Verdict(_STATE_LEVELS[self.state], self._said(self.caveats))

    @property
    def brief(self) -> str:
        """Its state without the caveats, for lists that name each caveat once."""
        return self._said(())

    def _said(self, caveats: Iterable[str]) -> str:
        reasons = ", ".join((*self.lacking, *caveats))
        return f"{self.state}: {reasons}" if reasons else str(self.state)

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "database": self.database,
            "table": self.table,
            "has_mirror": self.has_mirror,
            "rows": self.rows,
            "lag_seconds": self.lag_seconds,
            "complete": self.is_complete,
            "held": self.held,
            "held_since": iso(self.held_since),
            "quarantined": self.quarantined,
            "unaccounted": self.unaccounted,
            "caveats": list(self.caveats),
            "failed": None if self.failed is None else self.failed.as_json(),
            "lenient_casts": self.lenient_casts,
            "verdict": self.verdict.as_json(),
        }


_STATE_LEVELS = {
    TableState.COMPLETE: Level.OK,
    TableState.CAVEATS: Level.WARN,
    TableState.INCOMPLETE: Level.WARN,
    TableState.FAILED: Level.FAIL,
}


def by_caveat(tables: Iterable[TableStatus]) -> dict[str, list[TableStatus]]:
    """Return each caveat once, with the tables that have it."""
    by_name: dict[str, list[TableStatus]] = {}
    for table in tables:
        for caveat in table.caveats:
            by_name.setdefault(caveat, []).append(table)
    return by_name


def table_statuses(
    cut: Cut | None,
    faults: Iterable[Faults],
    now_ms: int,
    *,
    last_changes: Mapping[tuple[str, str], int] | None = None,
) -> tuple[TableStatus, ...]:
    """Return every table and how far it is behind at `now_ms`, epoch milliseconds; furthest first.

    Of the open rows of the quarantine, those with a table count. `last_changes` has the highest
    commit ts of a row change by (database, table), if known.
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
    lost = {(item.database, item.table): item for item in cut.unaccounted}
    failed = {item.mirror_id: item for item in cut.failed}
    cut_ms, last = physical_ms(cut.tso), last_changes or {}

    def status(name: tuple[str, str], key: object, *missing_ms: int, **fields: Any) -> TableStatus:
        """Return a table that lacks changes since some moments, and since its first held row."""
        mirror_rows, untaken = held.pop(key, []), held.pop(name, [])
        waiting, account = [*mirror_rows, *untaken], lost.pop(name, None)
        first = [item.min_ts for item in waiting]
        first += [] if account is None or account.first_ts is None else [account.first_ts]
        complete = min(cut_ms, *missing_ms, *map(physical_ms, first))
        return TableStatus(
            database=name[0],
            table=name[1],
            mirror_id=key if isinstance(key, str) else None,
            complete_ms=complete,
            lag_ms=max(0, now_ms - complete),
            held_since=min((item.since for item in waiting), default=None),
            last_change_ts=last.get(name),
            held=fields.pop("held", sum(item.rows for item in mirror_rows))
            + sum(item.rows for item in untaken),
            unaccounted=0 if account is None else account.unaccounted,
            **fields,
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
                caveats=tuple(mirror.caveats),
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
    tables += [status(name, name, cut_ms, has_mirror=False) for name in list(lost)]
    return tuple(sorted(tables, key=lambda item: (-item.lag_ms, item.database, item.table)))
