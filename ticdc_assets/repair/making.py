"""Making a generation: the tables of a cut again, only from landed records.

In: a published cut, `raw_messages` and rows of exports. Out: an unpublished generation
(`storage.lake_paths`): its change log is decoded again from the records landed up to the batch of
the cut, its schemas are registered again, and one cut at the same TSO is made there, by the same
code as the published one. `verify` compares the two and drops the new one; `rebuild` publishes it.
Other tables of the changefeed are read only for what is known of the records (`KnownRecords`). A
generation to replace may be broken: then these facts are unknown, and the worst is assumed.

A record that was in quarantine at the cut is left out here too, even if it can be decoded now; it
is counted as waiting for a redrive. A record that was decoded then, or redriven before the cut, and
is refused now (for example, its claim-check file is gone) is named.

If `raw_messages` was truncated (`retention`), the new generation starts from the mirrors of the
kept base cut, and from the schemas and rows known there. It proves the changes above the base's
TSO, but not tables with row changes or exports that landed after the base was made and are not
above it, nor tables whose rows the base lacks because the configuration left them out.

Why running it again is safe: only the new generation is written; records, change log and mirrors
are read at versions that syncs do not change. Only one at a time is made for a changefeed
(`lock.side_lock`); each removes the files of killed ones.

One job decodes all landed batches as one batch of the new change log, so memory does not grow with
their number. The rows keep the number of their landed batch, so schemas are registered in their
original order.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ticdc_assets.base.errors import LakeDamagedError, NotFoundError
from ticdc_assets.base.machine import require_space
from ticdc_assets.base.names import counted, joined_name
from ticdc_assets.base.progress import tell
from ticdc_assets.changelog.plan import Plan, SeededTable, TableName
from ticdc_assets.delta.appending import BY_LANDING_DAY, append_files
from ticdc_assets.delta.control import read_table
from ticdc_assets.delta.damage import require_answer
from ticdc_assets.delta.fencing import require_lease
from ticdc_assets.delta.files import WrittenFile, open_parquet
from ticdc_assets.delta.lake import Lake, paths_of
from ticdc_assets.delta.opening import latest_version
from ticdc_assets.delta.queries import asking
from ticdc_assets.log.change_files import (
    CHANGE_LOG_SCHEMA,
    RECORD_COLUMNS,
    Choose,
    DecodedFiles,
    decode_into_files,
    rows_of,
)
from ticdc_assets.log.change_statistics import (
    add_statistics_below,
    add_to_statistics,
    read_groups,
    read_statistics,
)
from ticdc_assets.log.checksums import compare_new
from ticdc_assets.log.cuts import Cut, newest_cut, read_heads
from ticdc_assets.log.decoding import (
    Clocks,
    accepted_clocks,
    append_changes,
    record_decoder,
)
from ticdc_assets.log.positions import landed_batch, read_position
from ticdc_assets.log.quarantine import (
    CLOSED_BY,
    FAULT_SCHEMA,
    Closing,
    Place,
    append_fault_files,
    append_faults,
    place_of,
    places_in,
)
from ticdc_assets.log.schema_tables import read_history, register_new, up_to, write_history
from ticdc_assets.log.seed_decoding import close_former, decoded_files
from ticdc_assets.log.seeds import APPLICATION, read_seeds
from ticdc_assets.log.totals import Totals, joined_totals
from ticdc_assets.mirrors.applying import apply_changes
from ticdc_assets.mirrors.truncation_points import (
    TruncationPoint,
    has_caveat_below,
    properties_of,
    read_raw_truncation_point,
)
from ticdc_assets.mirrors.validity import Knowledge
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import names_in, remove_tree
from ticdc_assets.wire.rows import COORDINATES, ERROR, PLACE, ROW, SNAPSHOT

_Value = TypeVar("_Value")


# Known records -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRecords:
    """Records that were decoded before and are refused now.

    `examples` are `topic/partition/offset`. Records without row changes have no table.
    """

    database: str | None
    table: str | None
    reason: str
    records: int
    examples: tuple[str, ...] = ()

    @property
    def clause(self) -> str:
        """The clause for messages."""
        of = "" if self.table is None else f" of {joined_name(self.database or '', self.table)}"
        verb = "is" if self.records == 1 else "are"
        return (
            f"{counted(self.records, 'record')}{of} {verb} refused now ({self.reason}), such "
            f"as {', '.join(self.examples)}"
        )


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Records that the cut has only partly, or not at all.

    Args:
        records: their coordinates.
        kept: places of their rows that are in it; None if unknown: then the rows that can be
            decoded.
    """

    records: frozenset[Place] = frozenset()
    kept: frozenset[Place] | None = frozenset()

    def has(self, row: Mapping[str, Any]) -> bool:
        """Return whether the row at a place is left out."""
        place = place_of(row)
        return place[:-1] in self.records and (self.kept is None or place not in self.kept)

    def takes(self, place: Place, is_error: bool) -> bool:
        """Return whether a decoded row at a place is written again."""
        return place[:-1] not in self.records or (
            not is_error and (self.kept is None or place in self.kept)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRecords:
    """The known facts about the records of a cut.

    The tables of a generation that will be replaced `may_be_broken`.
    """

    paths: LakePaths
    cut: Cut
    may_be_broken: bool

    def if_whole(self, read: Callable[[], _Value], otherwise: _Value) -> _Value:
        """Return what `read` returns of the published generation; `otherwise` if that is broken."""
        try:
            return read()
        except LakeDamagedError:
            if not self.may_be_broken:
                raise
            return otherwise

    def left_out(self) -> LeftOut:
        """Return the records that the cut left out: those that it had in quarantine.

        A record may have some rows in quarantine and others in the change log. Records that are
        refused again are left out without being counted.
        """
        faults = self.if_whole(self._faults, _NO_FAULTS)
        faults = faults.filter(ds.field("batch") <= self.cut.batch)
        if not faults.num_rows:
            return LeftOut()
        log: Any = self.if_whole(lambda: self._log_at(faults, [*PLACE, "batch"]), None)
        if log is None:
            still_open = places_in(faults.filter(_IS_LEFT_OUT))
            return LeftOut(records=frozenset(place[:-1] for place in still_open), kept=None)
        there = frozenset(places_in(log.filter(ds.field("batch") <= self.cut.batch)))
        # One that was re-driven and is nowhere in the change log was truncated there since.
        closed = set(places_in(faults.filter(~_IS_LEFT_OUT)))
        still_open = places_in(faults.filter(_IS_LEFT_OUT))
        gone = closed.difference(places_in(log), still_open)
        waiting = set(places_in(faults)) - there - gone
        return LeftOut(records=frozenset(place[:-1] for place in waiting), kept=there)

    def quarantine(self, left_out: LeftOut, batch: int) -> list[dict[str, Any]]:
        """Return the quarantine of decoding at the cut.

        It has no rows of exports: these are decoded again, with their faults.
        """
        faults: Any = self.if_whole(lambda: read_table(self.paths.quarantine), None)
        if faults is None:
            return []
        topics = {topic for topic, _ in read_position(self.paths).next_offsets}
        rows: list[dict[str, Any]] = []
        for row in faults.filter(ds.field("stage") == "decode").to_pylist():
            if row["batch"] <= self.cut.batch and row["topic"] in topics:
                rows.append(row | {"batch": batch})
                if left_out.has(row) and row[CLOSED_BY] != Closing.GIVEN_UP:
                    # Maybe re-driven since the cut: here that is still to come.
                    rows[-1] |= {"redriven_at": None, CLOSED_BY: None}
        return rows

    def refused(self, side: LakePaths, files: DecodedFiles) -> tuple[RefusedRecords, ...]:
        """Return the records that only the changefeed's own change log has, by table and reason.

        This includes records that left it for the quarantine since the cut.
        """
        errors = errors_in(side, files)
        columns = [*COORDINATES, "batch", "database", "table"]
        log: Any = self.if_whole(lambda: self._log_at(errors, columns), None)
        if log is None:
            # Whether they were decoded before is unknown: all of them count.
            nothing = FAULT_SCHEMA.empty_table()
            return refused_records(errors, log=nothing, waiting=nothing)
        log = log.filter(ds.field("batch") <= self.cut.batch)
        faults: Any = self.if_whole(self._faults, None)
        # For a record without an entry, its decoded rows count.
        waiting = errors if faults is None else faults.filter(_IS_LEFT_OUT)
        return refused_records(errors, log, waiting)

    def _faults(self) -> pa.Table:
        # The table's reader cannot compare texts in a file that delta-rs merged.
        faults = read_table(self.paths.quarantine, columns=_NO_FAULTS.column_names)
        if faults is None:
            return _NO_FAULTS
        return faults.filter(ds.field("stage") == "decode")

    def _log_at(self, records: pa.Table, columns: list[str]) -> pa.Table:
        rows = read_table(
            self.paths.change_log,
            ds.field("offset").isin(records["offset"].unique()),
            columns=columns,
        )
        assert rows is not None
        return rows


def errors_in(paths: LakePaths, files: DecodedFiles) -> pa.Table:
    """Return the coordinates and reasons of the records that a decoding refused."""
    columns = [*COORDINATES, "reason"]
    tables = [pa.schema([FAULT_SCHEMA.field(name) for name in columns]).empty_table()]
    for item in files.faults:
        with open_parquet(paths.quarantine / item.path) as file:
            tables.append(file.read(columns=columns).cast(tables[0].schema))
    return pa.concat_tables(tables)


def refused_records(
    errors: pa.Table, log: pa.Table, waiting: pa.Table
) -> tuple[RefusedRecords, ...]:
    """Return refused records that were decoded before, by table and reason.

    `errors` and `log` have the coordinates of both; records in `waiting` count only if they have
    rows in `log`.
    """
    with asking() as engine:
        for name, table in (("errors", errors), ("log", log), ("waiting", waiting)):
            engine.register(name, table)
        rows = engine.sql(_REFUSED).to_arrow_table()
    return tuple(
        RefusedRecords(**row | {"examples": tuple(row["examples"])}) for row in rows.to_pylist()
    )


_NO_FAULTS = pa.schema(
    [FAULT_SCHEMA.field(name) for name in ("stage", "batch", "redriven_at", CLOSED_BY, *PLACE)]
).empty_table()

_IS_LEFT_OUT = ds.field("redriven_at").is_null() | (
    ds.field(CLOSED_BY).cast(pa.string()) == str(Closing.GIVEN_UP)
)
"""Faults whose records are in no cut: a record that was given up is left out as an open one is."""

_REFUSED = """
    WITH refused AS (
        SELECT topic, "partition", "offset", min(reason) AS reason FROM errors GROUP BY ALL
    ), decoded AS (
        SELECT DISTINCT topic, "partition", "offset", "database", "table", true AS is_there FROM log
    ), quarantined AS (
        SELECT DISTINCT topic, "partition", "offset", true AS waits FROM waiting
    )
    SELECT
        "database", "table", reason, count(*) AS records,
        list(topic || '/' || "partition" || '/' || "offset" ORDER BY topic, "partition", "offset")
            [:3] AS examples
    FROM refused
    LEFT JOIN decoded USING (topic, "partition", "offset")
    LEFT JOIN quarantined USING (topic, "partition", "offset")
    WHERE is_there OR waits IS NULL
    GROUP BY "database", "table", reason
    ORDER BY coalesce("database", ''), coalesce("table", ''), reason
"""


# Generations -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A new generation.

    Attributes:
        paths: its tables.
        cut: its cut; None if none could be made.
        reason: the apply's outcome, in one clause.
        records: landed records that were decoded.
        proof_from: TSO of the base cut that it starts from; None if it starts empty.
        refused: records that were decoded before and are refused now.
        decodable: events of quarantined records that can be decoded now.
        unproven: tables whose rows it cannot rebuild, each with the reason, and when it can.
    """

    paths: LakePaths
    cut: Cut | None
    reason: str
    records: int
    proof_from: int | None
    refused: tuple[RefusedRecords, ...]
    decodable: int
    unproven: Mapping[TableName, str]


def require_own(side: LakePaths, failures: Collection[str]) -> None:
    """Check that failures concern single mirrors, and neither the store nor the machine.

    Raises:
        StoreUnavailableError: the lake's store does not answer.
        PrerequisiteError: the disk has no space left.
    """
    if failures:
        # Libraries have their own errors for a store that does not answer.
        require_answer(side.base)
        folder = side.root if isinstance(side.root, Path) else Path(tempfile.gettempdir())
        require_space(folder, failures)


@contextmanager
def place_apart(lake: Lake, *, to_stay: bool = False) -> Iterator[LakePaths]:
    """Hold the lock on unpublished generations, and yield a new one.

    It is removed at the end, unless it is published by then. What killed runs left of others is
    removed before.

    Args:
        lake: the changefeed's lake.
        to_stay: whether it may be published; then the caller holds the writer lock.

    Raises:
        BusyError: another process holds it.
    """
    place = lake.paths.beside()
    with lake.making(None if to_stay else place.generation_folder):
        remove_unpublished(lake.paths)
        try:
            yield place
        finally:
            remove_unpublished(lake.paths)


def remove_unpublished(paths: LakePaths) -> None:
    """Remove the generations that no kept cut names; the caller holds the lock on them."""
    staying = {cut.generation for cut in read_heads(paths)}
    staying.add(paths_of(paths.root, paths.changefeed).generation)
    for name in names_in(paths.generations):
        if name not in staying:
            place = paths.generations / name
            require_lease(place)
            remove_tree(place)


@dataclass
class Making:
    """Makes one generation.

    If it may be published (`to_stay`), all tables are made, not only the mirrors.
    """

    lake: Lake
    cut: Cut
    place: LakePaths
    table: TableName | None = None
    to_stay: bool = False
    _left_out: LeftOut = field(default_factory=LeftOut, init=False)
    _point: TruncationPoint = field(default_factory=TruncationPoint, init=False)
    _late_seeds: set[int] = field(default_factory=set[int], init=False)

    @cached_property
    def _known(self) -> KnownRecords:
        return KnownRecords(paths=self.lake.paths, cut=self.cut, may_be_broken=self.to_stay)

    def make(self) -> Made:
        """Decode, register and apply."""
        self._point = read_raw_truncation_point(self.lake.paths)
        side, landed = self.lake.at(self.place), self._landed()
        while True:
            self._left_out = self._known.left_out()
            files = self._decode(landed)
            if not self._is_truncated_meanwhile():
                break
            remove_tree(self.place.generation_folder)
        if self._point.cut is not None:
            # The new generation takes over what is known up to the truncation point.
            history = up_to(read_history(self.lake.paths), self._point.tso)
            write_history(self.place, history, history, batch=0)
            add_statistics_below(self.place, read_groups(self.lake.paths), self._point.tso)
        register_new(side)
        as_then = replace(self.lake.changefeed, tables=self.cut.table_filter)
        applying = apply_changes(
            replace(side, changefeed=as_then),
            until=self.cut.tso,
            only=self.table,
            complete_ts=self.cut.tso,
        )
        if self.to_stay:
            compare_new(side, statistics=read_statistics(self.place))
        cut = newest_cut(self.place)
        require_own(self.place, [item.reason for item in cut.failed] if cut else [])
        return Made(
            paths=self.place,
            cut=cut,
            reason=applying.reason,
            records=files.records,
            proof_from=self._point.tso or None,
            refused=(
                *(self._known.refused(self.place, files) if files.errors else ()),
                *self._lost_exports(),
            ),
            decodable=files.left_out,
            unproven=self._unproven(cut),
        )

    def _landed(self) -> int:
        """Return the landed batch up to which the cut was made."""
        if latest_version(self.lake.paths.raw_messages) is None:
            raise NotFoundError(
                f"cut {self.cut.number} of changefeed {self.lake.paths.changefeed!r} cannot be "
                "made again: there are no landed records"
            )
        # If it does not say so, the records landed since count too: most of them are above it.
        return landed_batch(self.lake.paths) if self.cut.landed is None else self.cut.landed

    def _is_truncated_meanwhile(self) -> bool:
        """Return whether retention, which no lock excludes, removed records; read its base.

        Raises:
            NotFoundError: the base is above the cut.
        """
        before, self._point = self._point, read_raw_truncation_point(self.lake.paths)
        if self._point.number > self.cut.number:
            raise NotFoundError(
                f"the landed records that cut {self.cut.number} of changefeed "
                f"{self.lake.paths.changefeed!r} was made from were removed meanwhile"
            )
        return self._point != before

    # Decoding ---------------------------------------------------------------------------------

    def _decode(self, landed: int) -> DecodedFiles:
        """Write the new change log and its totals; return the result of decoding."""
        tell(f"decoding {counted(landed, 'landed batch', 'landed batches')} again")
        side = self.place
        if self._point.cut is not None:
            # The new change log begins at the base.
            begins = {**BY_LANDING_DAY.configuration, **properties_of(self._point)}
            layout = replace(BY_LANDING_DAY, configuration=begins)
            append_files(side.change_log, [], CHANGE_LOG_SCHEMA, layout=layout)
        clocks: Clocks = self._known.if_whole(lambda: accepted_clocks(self.lake.paths), {})
        files = decode_into_files(
            self.lake.spark,
            rows_of(self.lake.paths.raw_messages, RECORD_COLUMNS, batches=(1, landed)),
            record_decoder(self.lake.changefeed, None, clocks=clocks),
            batch=landed,
            into=side,
            choose=_choice(self._left_out, self._point),
        )
        append_changes(side, files, batch=landed, landed=landed)
        if self.to_stay:
            append_fault_files(side, files.faults, app_id="decode", version=landed)
            if rows := self._known.quarantine(self._left_out, landed):
                faults = pa.Table.from_pylist(rows, schema=FAULT_SCHEMA)
                append_faults(side, [faults], app_id="rebuild")
        exported = self._decode_seeds(landed)
        add_to_statistics(self.lake.at(side), landed, joined_totals([files.totals, *exported]))
        return files

    def _decode_seeds(self, landed: int) -> list[Totals]:
        """Append the exported rows that the cut was made from to the new change log."""
        totals: list[Totals] = []
        all_seeds = read_seeds(self.lake.paths)
        newest = max((item.seed for item in all_seeds), default=0)
        if self.cut.seed is not None:
            # Numbers of seeds that are lost are given again.
            newest = min(newest, self.cut.seed)
        base = self._point.cut
        above = self._point.tso
        seeds = {item.seed: item.tso for item in all_seeds if item.seed <= newest}
        if base is not None and base.seed is not None:
            # Seeds that came after the base, at or below its TSO, cannot be placed.
            self._late_seeds = {
                seed for seed, tso in seeds.items() if seed > base.seed and tso <= above
            }

        def append(number: int, files: Sequence[WrittenFile]) -> None:
            append_files(
                self.place.change_log,
                files,
                CHANGE_LOG_SCHEMA,
                app_id=APPLICATION,
                version=number,
                metadata={"batch": landed, "landed": landed},
            )

        for number in sorted(seed for seed, tso in seeds.items() if tso > above):
            seed_files = decoded_files(self.lake, number, batch=landed, into=self.place)
            append(number, seed_files.changes)
            totals.append(seed_files.totals)
            if self.to_stay:
                append_fault_files(
                    self.place, seed_files.faults, app_id=APPLICATION, version=number
                )
                close_former(self.place, number)
        if newest:
            # The base has the rows of the others: no sync may decode them again.
            append(newest, [])
        return totals

    def _lost_exports(self) -> Iterator[RefusedRecords]:
        """Yield the exports that the published change log has, and whose rows are lost."""
        seeds = {(*item.name, item.seed) for item in read_seeds(self.lake.paths)}
        counts = Counter[SeededTable]()
        for row in self._known.if_whole(lambda: read_statistics(self.lake.paths).rows, ()):
            if row["kind"] == SNAPSHOT and row["max_ts"] > self._point.tso:
                counts[row["database"], row["table"], row["partition"]] += row["rows"]
        for (database, table, seed), count in sorted(counts.items()):
            if (database, table, seed) not in seeds:
                yield RefusedRecords(
                    database=database,
                    table=table,
                    reason="the rows of its export are no longer kept",
                    records=count,
                    examples=(f"seed {seed}",),
                )

    @cached_property
    def _plan(self) -> Plan:
        return Knowledge.of(self.place, self.lake.changefeed.timezone).plan(self.cut.tso)

    def _unproven(self, cut: Cut | None) -> dict[TableName, str]:
        """Return the tables whose rows cannot be rebuilt, each with the reason."""
        # A delete found no row, for example because the insert is in quarantine. If a later DDL
        # makes rows equal, it may find one: a fold of all changes compares them as after the DDL.
        bags = {
            (item.database, item.table)
            for item in self.cut.mirrors
            if item.unknown_deletes and not item.table_schema.handle_key
        }
        unproven = {
            mirror.name: "it has no key, deletes of it found no row, and a later DDL may have made "
            "other rows equal to theirs; it can when those rows are known"
            for mirror in (self._plan.mirrors if bags else ())
            if mirror.name in bags
            and any(step.changes_rows for source in mirror.sources() for step in source.steps)
        }
        # The mirrors' change log may have rows whose records are gone.
        unproven |= {
            (item.database, item.table): "records that it was made from are gone, and the base cut "
            f"lacks their rows{_UNTIL_LATER_BASE}"
            for item in (cut.mirrors if cut is not None else ())
            if has_caveat_below(item.caveats)
        }
        return unproven | self._late_below()

    def _late_below(self) -> dict[TableName, str]:
        """Return the tables with rows that landed after the base and are not above it.

        The change log may still place them, but here replays among them are unknown.
        """
        below = None
        if self._point.cut is not None:
            below = read_table(
                self.place.change_log,
                (ds.field("kind") == ROW) & (ds.field("commit_ts") <= self._point.tso),
                columns=["database", "table", "commit_ts"],
            )
        if below is None or not (below.num_rows or self._late_seeds):
            return {}
        rows = below.group_by(below.column_names).aggregate([]).to_pylist()
        late: dict[TableName, str] = {}
        for mirror in self._plan.mirrors:
            seeds = {item.exported.seed for item in mirror.sources() if item.exported is not None}
            if any(mirror.takes((row["database"], row["table"]), row["commit_ts"]) for row in rows):
                what = "row changes of it landed late"
            elif not self._late_seeds.isdisjoint(seeds):
                what = "an export of it was seeded late"
            else:
                continue
            late[mirror.name] = f"{what}, below the base cut{_UNTIL_LATER_BASE}"
        return late


_UNTIL_LATER_BASE = "; it can when retention takes a later base cut"


def _choice(left_out: LeftOut, base: TruncationPoint) -> Choose:
    """Choose the decoded rows to write; those left out that are no errors are counted."""
    tso, batch = base.tso, base.batch

    def choose(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        count = 0
        if left_out.records:
            is_error = pc.equal(rows.column("kind"), ERROR).to_pylist()
            taken = [left_out.takes(*item) for item in zip(places_in(rows), is_error, strict=True)]
            count = sum(not ok and not bad for ok, bad in zip(taken, is_error, strict=True))
            rows = rows.filter(pa.array(taken, pa.bool_()))
        if tso:
            # Row changes that the base has; it does not have those that landed later.
            is_below = pc.and_(
                pc.equal(rows.column("kind"), ROW),
                pc.and_(
                    pc.less_equal(rows.column("commit_ts"), tso),
                    pc.less_equal(rows.column("batch"), batch),
                ),
            )
            rows = rows.filter(pc.invert(pc.fill_null(is_below, False)))
        return rows, count

    return choose
