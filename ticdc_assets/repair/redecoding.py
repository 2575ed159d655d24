"""Decode the records of whole landing days again, and replace their rows in the change log.

In: landing days (UTC) and their records in `raw_messages`. Out: nothing if the day's rows are
equal, by sums of their hashes for each kind and table. If some differ, because the decoder was
fixed or rows were lost, changed or added, the day's partition of `change_log` is replaced in one
commit: the rows of the kinds and tables that differ are those decoded now, all others stay. Events
that are refused now enter the quarantine, events that can be decoded now leave it, and the totals
of the day are computed again. Then what was made from the differing rows is made again: the schema
registry, the mirrors, the row checksums, and a cut at the same TSO.

Rows that stay keep their batch. Rows decoded now belong to the day's first batch, so no cut counts
them as late: its `Correction` says that older cuts are made from others. A row whose record was in
quarantine is new, and belongs to the commit's batch.

A record that was decoded before and is refused now would lose its rows: the day stays as it is, and
the error names the records, unless losses are accepted. An event whose timestamp is too far ahead
(`ahead`) is not a loss: only the limit refuses it, so a redrive can bring it back.

Why running it again is safe: a corrected day is equal, so it is not changed. Refused events are in
quarantine before their rows are removed; accepted ones are closed there last. The commit and the
totals name what differs, because nothing else does so for good. If a run is killed after the
commit, the next decoding finishes the day (`decode_new`), and the next apply folds its tables.

Not handled: days from which `retention` may have removed records or rows are refused. A row whose
landing day was changed is missing on one day and stays on the other until that day is decoded too.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, date, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ticdc_assets.base.errors import LossError, NotFoundError
from ticdc_assets.base.names import counted
from ticdc_assets.base.progress import tell
from ticdc_assets.delta.appending import BY_LANDING_DAY, append_files
from ticdc_assets.delta.control import read_table
from ticdc_assets.delta.lake import Lake
from ticdc_assets.delta.opening import latest_version
from ticdc_assets.delta.queries import asking
from ticdc_assets.log.ahead import TS_AHEAD, is_ahead, limit_ms
from ticdc_assets.log.change_files import (
    CHANGE_LOG_SCHEMA,
    FILE_COLUMNS,
    RECORD_COLUMNS,
    Choose,
    Decode,
    DecodedFiles,
    decode_into_files,
    rows_of,
    tasks_for,
    with_day,
)
from ticdc_assets.log.change_statistics import Correction, read_statistics, replace_day
from ticdc_assets.log.checksums import compare_new
from ticdc_assets.log.cuts import newest_cut
from ticdc_assets.log.decoding import Decoding, accepted_clocks, decode_new, record_decoder
from ticdc_assets.log.positions import decoded_position
from ticdc_assets.log.quarantine import (
    CLOSED_BY,
    FAULT_SCHEMA,
    Closing,
    Place,
    append_faults,
    close_rows,
    place_of,
    places_in,
    places_in_log,
    read_quarantine,
)
from ticdc_assets.log.schema_tables import SCHEMA_KINDS, register_new
from ticdc_assets.mirrors.applying import apply_changes
from ticdc_assets.mirrors.standing import Applying
from ticdc_assets.mirrors.truncation_points import read_raw_truncation_point, read_truncation_point
from ticdc_assets.model.events import SNAPSHOT_DDL
from ticdc_assets.model.tso import LOGICAL_BITS
from ticdc_assets.repair.making import errors_in, refused_records
from ticdc_assets.rows.rows_of_work import Rows
from ticdc_assets.spark.executing import executor
from ticdc_assets.spark.scratch import WRITING, Scratch
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import AnyPath
from ticdc_assets.wire.rows import COORDINATES, ERROR, ROW, SNAPSHOT


@dataclass(frozen=True, slots=True, kw_only=True)
class RedecodedDay:
    """The result of decoding one landing day again.

    Attributes:
        day: the day (UTC).
        records: its landed records.
        before: rows of the change log that came from them, before.
        rows: these rows afterwards.
        quarantined: faults that entered the quarantine.
        released: quarantined faults that no longer occur.
        tables: (database, table) of row changes that differed.
        schemas: whether DDL or bootstraps differed.
        batch: the correction's batch in the change log; None if nothing was written there.
        losses: the accepted losses, a clause each.
    """

    day: date
    records: int
    before: int = 0
    rows: int = 0
    quarantined: int = 0
    released: int = 0
    tables: tuple[tuple[str, str], ...] = ()
    schemas: bool = False
    batch: int | None = None
    losses: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether nothing was changed."""
        return self.batch is None and not self.quarantined and not self.released

    def sentence(self) -> str:
        """Return the result in a sentence for people."""
        if self.equal:
            said = f"{self.day}: {counted(self.records, 'record')} decoded again, nothing differs"
        else:
            said = (
                f"{self.day}: {counted(self.records, 'record')} decoded again: "
                f"{counted(self.rows, 'row')} in place of "
                f"{self.before}; {counted(self.quarantined, 'fault')} came into quarantine, "
                f"{self.released} left it"
            )
        if self.tables:
            said += f"; rows of {counted(len(self.tables), 'table')} differed"
        if self.schemas:
            said += "; schemas differed"
        return "; ".join([said, *(f"lost: {item}" for item in self.losses)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Redecoding:
    """The result of one re-decoding.

    With the decoding before it, of waiting records or of a killed run; and the apply that folded
    the tables that differed, None if there was nothing to fold.
    """

    days: tuple[RedecodedDay, ...]
    decoding: Decoding
    applying: Applying | None

    @property
    def equal(self) -> bool:
        """Whether nothing was changed on any day."""
        return all(item.equal for item in self.days)


def redecode(lake: Lake, days: Collection[date], *, accept_losses: bool = False) -> Redecoding:
    """Decode the landed records of `days` again, replace what differs, and fold its tables again.

    The caller holds the writer lock.

    Args:
        lake: the changefeed's lake.
        days: the days.
        accept_losses: whether to remove rows whose record is refused now.

    Raises:
        NotFoundError: records or rows of a day were truncated, or its records are gone.
        LossError: a decoded record is refused now; that day and later ones are unchanged.
    """
    _require_kept(lake.paths, days)
    decoding = decode_new(lake)
    redecoded = _redecoded(lake, set(days), accept_losses=accept_losses)
    return Redecoding(days=redecoded, decoding=decoding, applying=_folded(lake))


def _folded(lake: Lake) -> Applying | None:
    """Make again what was made from rows that were corrected since the newest cut."""
    cut, statistics = newest_cut(lake.paths), read_statistics(lake.paths)
    if cut is None or not any(item.batch > cut.batch for item in statistics.corrections):
        return None
    register_new(lake)
    applying = apply_changes(lake, until=cut.tso)
    compare_new(lake, statistics=statistics)
    return applying


def redecode_ahead(lake: Lake) -> tuple[RedecodedDay, ...]:
    """Move events that are too far ahead from the change log into quarantine.

    An older version or a higher limit may have accepted them. No day is refused: the records of a
    truncated day are complete, and these events are above the truncation. The caller holds the
    writer lock, and everything that landed is decoded.

    Returns:
        The result for each landing day with such records.
    """
    limit = lake.changefeed.max_ahead_seconds
    if not any(
        row["max_ts"] is not None and is_ahead(row["max_ts"], row["first_landed_at"], limit)
        for row in read_statistics(lake.paths).rows
    ):
        return ()
    # Kafka's timestamp may still justify some of them.
    ahead = read_table(lake.paths.change_log, _is_ahead(limit_ms(limit)), columns=["landed_day"])
    days = [] if ahead is None else ahead["landed_day"].unique().to_pylist()
    return _redecoded(lake, days)


def _redecoded(
    lake: Lake, days: Iterable[date], *, accept_losses: bool = False
) -> tuple[RedecodedDay, ...]:
    with closing(Scratch(lake.paths, WRITING)) as scratch:
        return tuple(
            _Day(lake, day, scratch.folder()).redecode(accept_losses=accept_losses)
            for day in sorted(days)
        )


def first_whole_day(paths: LakePaths) -> date:
    """Return the first landing day without truncated rows; needs no Spark."""
    cuts = [
        item.cut
        for item in (read_truncation_point(paths), read_raw_truncation_point(paths))
        if item.cut
    ]
    # A base's rows had landed when it was published.
    published = (cut.published_at.astimezone(UTC).date() for cut in cuts)
    return max((day + timedelta(days=1) for day in published), default=date.min)


def _require_kept(paths: LakePaths, days: Collection[date]) -> None:
    first = first_whole_day(paths)
    if days and min(days) < first:
        raise NotFoundError(
            f"{min(days)} of changefeed {paths.changefeed!r} cannot be decoded again: retention "
            f"removed records or rows that landed before {first}; that is the first day that can be"
        )


def _is_ahead(most_ms: int) -> ds.Expression:
    """Return the condition for rows of the change log that are this far ahead of their landing."""
    at_ms = pc.shift_right(ds.field("commit_ts"), LOGICAL_BITS)
    landed_ms = ds.field("landed_at").cast(pa.timestamp("ms", tz="UTC"), safe=False)
    return at_ms > landed_ms.cast(pa.int64()) + most_ms


# One day ----------------------------------------------------------------------------------------


class _Day:
    def __init__(self, lake: Lake, day: date, folder: AnyPath) -> None:
        self._lake = lake
        self._day = day
        self._side = LakePaths(root=folder, changefeed=lake.paths.changefeed)
        # Those that were given up are in quarantine too: if they are refused again, that is nothing
        # new.
        self._faults = {
            place_of(row): row["redriven_at"] is None
            for row in read_quarantine(lake.paths, open_only=False)
            if row["stage"] == "decode"
            and (row["redriven_at"] is None or row[CLOSED_BY] == Closing.GIVEN_UP)
        }

    def redecode(self, *, accept_losses: bool) -> RedecodedDay:
        tell(f"decoding the records landed on {self._day} again")
        paths = self._lake.paths
        if latest_version(paths.raw_messages) is None:
            return RedecodedDay(day=self._day, records=0)
        there = rows_of(paths.change_log, FILE_COLUMNS, day=self._day)
        before = self._sums(there)
        batch = decoded_position(paths)[0] + 1
        # Rows of records in quarantine are of the new batch.
        first = min((item["first"] for item in before), default=batch)
        clocks = accepted_clocks(paths)
        day_files = decode_into_files(
            self._lake.spark,
            rows_of(paths.raw_messages, RECORD_COLUMNS, day=self._day),
            record_decoder(self._lake.changefeed, first, clocks=clocks),
            batch=batch - 1,
            into=self._side,
            choose=_unlike(frozenset(self._faults), batch),
        )
        if before and not day_files.records:
            raise NotFoundError(
                f"change_log of changefeed {paths.changefeed!r} has rows that landed on "
                f"{self._day}, but raw_messages has no record of that day: nothing was changed"
            )
        losses = self._losses(day_files)
        if losses and not accept_losses:
            raise LossError(
                f"{self._day} was not decoded again, because it would lose rows: "
                f"{'; '.join(losses)}. Nothing was changed; this does it nevertheless: "
                f"ticdc-assets backfill {paths.changefeed} --day {self._day} --accept-losses"
            )
        files = [self._side.change_log / file.path for file in day_files.changes]
        decoded = Rows.of_files(files, _FILE_SCHEMA)
        after = self._sums(decoded)
        kept_ts = read_truncation_point(paths).tso
        corrections = [
            Correction(**item, batch=batch, kept_ts=kept_ts) for item in _differing(before, after)
        ]
        # This comes first: otherwise the rows that a killed run removed would be nowhere.
        faults = [self._side.quarantine / file.path for file in day_files.faults]
        append_faults(paths, Rows.of_files(faults, FAULT_SCHEMA).tables(), app_id="redecode")
        if corrections:
            self._replace(there, decoded, corrections, batch)
        return RedecodedDay(
            day=self._day,
            records=day_files.records,
            before=sum(item["rows"] for item in before),
            rows=sum(item["rows"] for item in after),
            quarantined=day_files.errors,
            released=self._close(),
            tables=tuple(
                (item.database, item.table)
                for item in corrections
                if item.kind == ROW and item.database is not None and item.table is not None
            ),
            schemas=any(item.kind in SCHEMA_KINDS for item in corrections),
            batch=batch if corrections else None,
            losses=losses,
        )

    def _sums(self, rows: Rows) -> list[dict[str, Any]]:
        """Return parts of the sums over rows that came from records, by kind and table."""

        def summed(some: Iterable[Rows]) -> Iterator[dict[str, Any]]:
            with asking() as engine:
                for part in some:
                    for batch in part.read():
                        sent = batch.filter(pc.invert(_is_exported(batch)))
                        engine.register("changes", pa.Table.from_batches([sent]))
                        yield from engine.sql(_SUMS).to_arrow_table().to_pylist()

        log = self._lake.paths.change_log
        runs_on = executor(
            self._lake.spark, log, "comparing a day", rows=rows.count, size=rows.size
        )
        return runs_on.run(summed, rows.parts(), tasks=tasks_for(rows, runs_on.workers))

    def _losses(self, files: DecodedFiles) -> tuple[str, ...]:
        errors = errors_in(self._side, files).filter(ds.field("reason") != TS_AHEAD)
        log = read_table(
            self._lake.paths.change_log,
            (ds.field("landed_day") == self._day)
            & ds.field("offset").isin(errors["offset"].unique()),
            columns=[*COORDINATES, "database", "table"],
        )
        if log is None or not errors.num_rows:
            return ()
        # A record without rows has nothing to lose.
        return tuple(item.clause for item in refused_records(errors, log, waiting=errors))

    def _replace(
        self, there: Rows, decoded: Rows, corrections: Collection[Correction], batch: int
    ) -> None:
        """Replace the rows that differ, in one commit of the day's partition."""
        paths = self._lake.paths
        differing = frozenset((item.kind, item.database, item.table) for item in corrections)
        files = [
            file
            for rows, differ in ((there, False), (decoded, True))
            for file in decode_into_files(
                self._lake.spark, rows, _of_groups(differing, differ), batch=batch, into=paths
            ).changes
        ]
        append_files(
            paths.change_log,
            files,
            CHANGE_LOG_SCHEMA,
            app_id="decode",
            version=batch,
            metadata={
                "batch": batch,
                "landed": decoded_position(paths)[1],
                "redecode": self._day.isoformat(),
                "corrections": [asdict(item) for item in corrections],
            },
            layout=BY_LANDING_DAY,
            replaces={"landed_day": self._day.isoformat()},
        )
        replace_day(self._lake)

    def _close(self) -> int:
        """Close faults that no longer occur; return how many faults of decoding these are."""
        paths = self._lake.paths
        applied = {
            place_of(row)
            for row in read_quarantine(paths)
            if row["stage"] == "apply" and row["partition"] >= 0
        }
        gone = applied - places_in_log(paths, applied)
        close_rows(paths, "apply", gone, Closing.REMOVED)
        waiting = {place for place, is_open in self._faults.items() if is_open}
        released = waiting & places_in_log(paths, waiting, ds.field("landed_day") == self._day)
        close_rows(paths, "decode", released, Closing.REDRIVE)
        return len(released)


_SUMS = """
    SELECT
        kind, "database", "table",
        count(*) AS rows,
        sum(hash(*COLUMNS(* EXCLUDE (batch))))::HUGEINT AS hashes,
        coalesce(min(commit_ts), 0) AS min_ts,
        min(batch) AS first,
        max(batch) AS last,
    FROM changes GROUP BY ALL
"""
"""Sums over rows, by kind and table: they depend neither on the order of rows nor on the batch."""


def _differing(
    before: Iterable[dict[str, Any]], after: Iterable[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yield the kinds and tables whose rows differ, with the fields of a `Correction`."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for sign, sums in ((-1, before), (1, after)):
        for item in sums:
            key = tuple(item[name] for name in _GROUP)
            signed = {name: sign * int(item[name]) for name in ("rows", "hashes")}
            groups.setdefault(key, []).append(item | signed)
    for key, items in groups.items():
        if any(sum(item[name] for item in items) for name in ("rows", "hashes")):
            yield dict(zip(_GROUP, key, strict=True)) | {
                "min_ts": min(item["min_ts"] for item in items),
                "first": min(item["first"] for item in items),
                "last": max(item["last"] for item in items),
            }


_GROUP = ("kind", "database", "table")

_FILE_SCHEMA = pa.schema([CHANGE_LOG_SCHEMA.field(name) for name in FILE_COLUMNS])


def _of_groups(groups: Collection[tuple[Any, ...]], wanted: bool) -> Decode:
    """Return the function to the rows of some kinds and tables, or to all others.

    Rows of exports are never of these: no record has them.
    """

    def chosen(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in batches:
            keys = zip(*(rows.column(name).to_pylist() for name in _GROUP), strict=True)
            is_of = pa.array([key in groups for key in keys], pa.bool_())
            is_of = pc.and_not(is_of, _is_exported(rows))
            subset = rows.filter(is_of if wanted else pc.invert(is_of))
            yield from with_day(subset).to_batches()

    return chosen


def _is_exported(rows: pa.RecordBatch) -> "pa.Array[bool]":
    return pc.or_(
        pc.equal(rows.column("kind"), SNAPSHOT),
        pc.fill_null(pc.equal(rows.column("ddl_type"), SNAPSHOT_DDL), False),
    )


def _unlike(known_faults: Collection[Place], batch: int) -> Choose:
    """Choose the rows that are not in quarantine; rows of a record there are of a new batch."""
    records = frozenset(place[:-1] for place in known_faults)

    def choose(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        if not known_faults:
            return rows, 0
        places = places_in(rows)
        is_new = pa.array([place[:-1] in records for place in places], pa.bool_())
        column = rows.schema.get_field_index("batch")
        numbers = pc.if_else(is_new, pa.scalar(batch, pa.int64()), rows.column("batch"))
        is_known = pa.array([place in known_faults for place in places], pa.bool_())
        is_known = pc.and_(is_known, pc.equal(rows.column("kind"), ERROR))
        return rows.set_column(column, "batch", numbers).filter(pc.invert(is_known)), 0

    return choose
