"""Decode the records of whole landing days again, and compare them with the change log.

In: landing days (UTC), their records in `raw_messages`, and the rows of these in `change_log` and
`quarantine`. Out: nothing if they are equal. If they differ, because the decoder was fixed or rows
were lost, changed or added, the differing rows are replaced, in one commit per day; the quarantine
of the day's records is updated and the totals are computed again. If DDL or bootstraps differ, the
next registering makes the schema registry again; and the next apply folds every table whose row
changes differ. The commit records both (`regrouping.Correction`), and so do the totals
(`ChangeStatistics.repairs`), so it does not matter which program runs next.

`redecoded_days` compares and corrects one day. `redecode_ahead` does so only for records with
events whose timestamp is too far ahead (`ahead`).

Why running it again is safe: a corrected day is equal, so it is not changed. If a run is killed
after the commit, the next decoding finishes it (`decode_new`). Refused events are in quarantine
before their rows are removed; accepted ones are closed there last, if necessary by the next
decoding of the day.

Not handled: days from which `retention` may have removed records or rows are refused, because they
cannot be compared completely. A row whose landing day was changed is missing on one day and stays
on the other until that day is decoded again too.
"""

# pyarrow has no type information, so what comes from it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportAttributeAccessIssue=false

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_assets.config import Changefeed
from ticdc_assets.engine.executing import executor
from ticdc_assets.engine.paths import LakePaths
from ticdc_assets.engine.session import Session
from ticdc_assets.errors import NotFoundError
from ticdc_assets.pipeline.ahead import is_ahead, limit_ms
from ticdc_assets.pipeline.change_files import (
    Coordinates,
    Records,
    coordinates_of,
    parts_of,
    rows_in,
)
from ticdc_assets.pipeline.change_statistics import read_statistics
from ticdc_assets.pipeline.decoding import Decoding, decode_new
from ticdc_assets.pipeline.truncation_points import read_raw_truncation_point, read_truncation_point
from ticdc_assets.services.redecoded_days import LandingDay, RedecodedDay
from ticdc_assets.storage.paths import AnyPath
from ticdc_assets.tso import LOGICAL_BITS
from ticdc_assets.wire.rows import COORDINATES


@dataclass(frozen=True, slots=True, kw_only=True)
class Redecoding:
    """What one re-decoding did.

    Attributes:
        days: each day, in order.
        decoding: what was decoded before it, because it had landed or a run was killed.
    """

    days: tuple[RedecodedDay, ...]
    decoding: Decoding

    @property
    def equal(self) -> bool:
        """Whether nothing was changed on any day."""
        return all(item.equal for item in self.days)


def redecode(
    spark: Session, paths: LakePaths, changefeed: Changefeed, days: Collection[date]
) -> Redecoding:
    """Decode the landed records of `days` again and correct what differs.

    The caller holds the writer lock.

    Raises:
        NotFoundError: records or rows of a day were truncated, or its records are gone.
    """
    _require_kept(paths, days)
    truncation_point = read_truncation_point(paths)
    decoding = decode_new(spark, paths, changefeed)
    return Redecoding(
        days=tuple(
            LandingDay(spark, paths, changefeed, day, truncation_point).redecode()
            for day in sorted(set(days))
        ),
        decoding=decoding,
    )


def redecode_ahead(
    spark: Session, paths: LakePaths, changefeed: Changefeed
) -> tuple[RedecodedDay, ...]:
    """Move what is too far ahead out of the change log into quarantine.

    It may be there because an older version or a higher limit let it in. Records above what
    retention truncated are whole, and what is too far ahead is above it, so no day is refused. The
    caller holds the writer lock, and everything that landed is decoded.

    Returns:
        What was done, for each landing day that has such records.
    """
    limit = changefeed.max_ahead_seconds
    if not any(
        row["max_ts"] is not None and is_ahead(row["max_ts"], row["first_landed_at"], limit)
        for row in read_statistics(paths).rows
    ):
        return ()
    # Kafka's timestamp may still speak for some of them.
    records = _ahead(spark, paths, limit)
    truncation_point = read_truncation_point(paths)
    return tuple(
        LandingDay(
            spark, paths, changefeed, day, truncation_point, only=Records(frozenset(places))
        ).redecode()
        for day, places in sorted(records.items())
    )


def _ahead(spark: Session, paths: LakePaths, limit: float) -> dict[date, set[Coordinates]]:
    """Return the records with events that are ahead of the moment they landed, by landing day."""
    chosen = _Ahead(limit_ms(limit))

    def found(some: Iterable[tuple[AnyPath, int]]) -> Iterator[tuple[date, Coordinates]]:
        for piece in some:
            for rows in rows_in(piece, chosen, [*COORDINATES, "commit_ts", "landed_at"]):
                days = rows.column("landed_at").cast(pa.date32()).to_pylist()
                yield from zip(days, coordinates_of(rows), strict=True)

    parts = parts_of(paths.change_log, chosen)
    runs_on = executor(spark, paths.change_log, "finding clocks", rows=parts.rows, size=0)
    told = runs_on.run(found, parts.pieces, tasks=runs_on.workers)
    records: defaultdict[date, set[Coordinates]] = defaultdict(set)
    for day, place in told:
        records[day].add(place)
    return dict(records)


@dataclass(frozen=True, slots=True)
class _Ahead:
    """Rows whose timestamp is so many milliseconds ahead of the moment that they landed."""

    most_ms: int

    def may_be_in(self, bounds: Mapping[str, Any]) -> bool:
        """Return whether a file may have some."""
        newest, landed_at = bounds.get("max.commit_ts"), bounds.get("min.landed_at")
        return newest is None or landed_at is None or self._is_ahead(newest, landed_at)

    def _is_ahead(self, newest: int, landed_at: datetime) -> bool:
        return is_ahead(newest, landed_at, self.most_ms / 1000)

    def of(self, rows: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """Return those among some rows."""
        at_ms = pc.shift_right(rows.column("commit_ts"), LOGICAL_BITS)
        landed_ms = rows.column("landed_at").cast(pa.timestamp("ms", tz="UTC"), safe=False)
        latest_ms = pc.add(landed_ms.cast(pa.int64()), self.most_ms)
        return [rows.filter(pc.greater(at_ms, latest_ms))]


def first_whole_day(paths: LakePaths) -> date:
    """Return the first landing day of which nothing was truncated; needs no Spark."""
    cuts = [
        item.cut
        for item in (read_truncation_point(paths), read_raw_truncation_point(paths))
        if item.cut
    ]
    # What a base is made of had landed when it was published.
    published = (cut.published_at.astimezone(UTC).date() for cut in cuts)
    return max((day + timedelta(days=1) for day in published), default=date.min)


def _require_kept(paths: LakePaths, days: Collection[date]) -> None:
    first = first_whole_day(paths)
    if days and min(days) < first:
        raise NotFoundError(
            f"{min(days)} of changefeed {paths.changefeed!r} cannot be decoded again: retention "
            f"removed records or rows that landed before {first}; that is the first day that can be"
        )
