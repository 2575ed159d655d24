"""Rebuilding: make the mirrors of a cut again, only from the landed records, in a side place.

In: a published cut and `raw_messages`. Out: a side place, which is a separate lake below the
changefeed's folder: its change log is decoded again from the records of the cut, its schemas are
registered again, and one cut at the same TSO is made there. The code is the same as for mirrors;
only the place differs. The changefeed's other tables are not read, except to find the records that
were left out of the cut (see below).

The records are those landed up to the batch of the cut; later records are in no cut. A record that
was in quarantine at the cut is left out here too, even if it can be decoded now; it is counted,
because it waits for a redrive. A record that was redriven before the cut is decoded like any other.
A record that was decoded then and is refused now (for example, its claim-check file is gone) is
named.

If `raw_messages` was truncated (`retention`), the rebuild starts from the mirrors of the kept base
cut, and from the schemas and rows known there. It proves the changes above the base's TSO: row
changes at or below it are in the base. It does not prove tables with row changes that landed after
the base was made and are not above it, nor tables whose rows the base lacks because the
configuration left them out.

Why running it again is safe: only the side place is written, and no writer's lock is held; records,
change log and mirrors are read at versions that syncs do not change. Only one rebuild at a time
runs on a changefeed (`lock.side_lock`); each removes the files of killed ones. A side place has a
new name each time, because Spark caches tables by their path.

One job decodes all landed batches as one batch of the side's change log, so memory does not grow
with their number. The rows keep the number of the batch they were landed in, so schemas are
registered in their original order. For a single mirror, the images of other tables are left out of
the side's change log.
"""

# pyarrow has no type information, so what comes from it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import SparkSession

from ticdc_assets.changelog.plan import MirrorPlan
from ticdc_assets.config import Changefeed, TableChoice, Writer
from ticdc_assets.engine.appending import BY_LANDING_DAY, append_files
from ticdc_assets.engine.control import latest_version, read_rows, read_table
from ticdc_assets.engine.files import open_parquet
from ticdc_assets.engine.lock import side_lock
from ticdc_assets.engine.paths import LakePaths
from ticdc_assets.engine.queries import asked
from ticdc_assets.errors import NotFoundError
from ticdc_assets.events import SNAPSHOT_DDL
from ticdc_assets.pipeline.change_files import (
    CHANGE_LOG_SCHEMA,
    Batches,
    DecodedFiles,
    Landed,
    decode_into_files,
)
from ticdc_assets.pipeline.change_statistics import (
    add_statistics_below,
    read_groups,
    write_statistics_at_once,
)
from ticdc_assets.pipeline.cuts import Cut, newest_cut
from ticdc_assets.pipeline.decoding import accepted_clocks, landed_up_to, record_decoder
from ticdc_assets.pipeline.mirrors import apply_changes
from ticdc_assets.pipeline.quarantine import FAULT_SCHEMA, Place, places_in
from ticdc_assets.pipeline.schema_tables import read_history, register_new, write_history
from ticdc_assets.pipeline.seed_decoding import decoded_files
from ticdc_assets.pipeline.seeds import APPLICATION
from ticdc_assets.pipeline.totals import Totals
from ticdc_assets.pipeline.truncation_points import (
    TruncationPoint,
    is_told_below,
    read_raw_truncation_point,
)
from ticdc_assets.pipeline.validity import Knowledge
from ticdc_assets.progress import tell
from ticdc_assets.registry.history import SchemaHistory
from ticdc_assets.rows.mirror_rows import IMAGES
from ticdc_assets.storage.paths import AnyPath, remove_tree
from ticdc_assets.wire.rows import COORDINATES, DDL, ERROR, PLACE, ROW

TableName = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRecords:
    """Records that were decoded once and are refused now.

    Attributes:
        database: database of their row changes; None where they had none.
        table: table of their row changes.
        reason: why they are refused.
        records: how many.
    """

    database: str | None
    table: str | None
    reason: str
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilding:
    """What a rebuild made.

    Attributes:
        paths: the side place.
        cut: the cut made there; None if none could be made.
        reason: how the apply ended, in one clause.
        records: landed records that were decoded.
        proof_from: TSO of the base cut that the rebuild starts from; None if from nothing.
        refused: records that were decoded once and are refused now.
        decodable: events of records that are in quarantine and can be decoded by now.
        unproven: tables whose rows the rebuild cannot tell, each with the reason, in one clause.
    """

    paths: LakePaths
    cut: Cut | None
    reason: str
    records: int
    proof_from: int | None
    refused: tuple[RefusedRecords, ...]
    decodable: int
    unproven: Mapping[TableName, str]


@contextmanager
def rebuilt(
    spark: SparkSession,
    paths: LakePaths,
    changefeed: Changefeed,
    cut: Cut,
    *,
    table: TableName | None = None,
) -> Iterator[Rebuilding]:
    """Rebuild the mirrors of `cut`; the side place is there while the context is open.

    Args:
        spark: the session.
        paths: tables of the changefeed.
        changefeed: its configuration.
        cut: the cut to be made again.
        table: (database, table) of the one mirror that is wanted; all if None.

    Raises:
        BusyError: another rebuild of the changefeed is at work.
        NotFoundError: it is no longer known from which records the cut was made.
    """
    with side_places(paths, changefeed.writer):
        yield _Rebuild(spark, paths, changefeed, cut, table).make()


@contextmanager
def side_places(paths: LakePaths, writer: Writer) -> Iterator[None]:
    """Hold the lock on side places; what is in them is removed before and after.

    Raises:
        BusyError: somebody else holds it.
    """
    with side_lock(paths, writer):
        _remove(paths.side_places)
        try:
            yield
        finally:
            _remove(paths.side_places)


def _remove(place: AnyPath) -> None:
    """Remove the folder of side places; of a link only the link."""
    if place.is_symlink():
        place.unlink()
    else:
        remove_tree(place)


def _columns_of(path: AnyPath, columns: list[str]) -> pa.Table:
    with open_parquet(path) as file:
        return file.read(columns=columns)


class _Rebuild:
    """One rebuild."""

    def __init__(
        self,
        spark: SparkSession,
        paths: LakePaths,
        changefeed: Changefeed,
        cut: Cut,
        table: TableName | None,
    ) -> None:
        self._spark = spark
        self._paths = paths
        self._changefeed = changefeed
        self._cut = cut
        self._table = table
        self._truncation_point = read_raw_truncation_point(paths)

    def make(self) -> Rebuilding:
        """Decode, register and apply in a new side place."""
        landed = landed_up_to(self._paths, self._cut.batch)
        if landed is None or latest_version(self._paths.raw_messages) is None:
            raise NotFoundError(
                f"it is no longer known from which landed records cut {self._cut.number} of "
                f"changefeed {self._paths.changefeed!r} was made from: the history of "
                f"{self._paths.change_log} does not reach back to batch {self._cut.batch}"
            )
        names = None if self._table is None else self._names_of(self._paths, self._table)
        while True:
            side = self._paths.side_place(uuid4().hex)
            found = self._decode(side, landed, names)
            if self._is_truncated_meanwhile():
                _remove(side.base)
                continue
            self._take_over(side)
            register_new(side, self._changefeed)
            if names is None or self._table is None:
                break
            # The registry made anew may know the table by names that the old one did not.
            missing = self._names_of(side, self._table) - names
            if not missing:
                break
            names |= missing
            _remove(side.base)
        # Histories are made from the same changes; it is the mirrors that are compared.
        applying = apply_changes(
            self._spark,
            side,
            replace(
                self._changefeed,
                history=TableChoice(),
                soft_delete=TableChoice(),
                # Of the tables that the cut has, whatever the configuration says by now.
                tables=self._cut.table_filter,
            ),
            until=self._cut.tso,
            only=self._table,
            truncation_point=self._side_truncation_point(),
            complete_ts=self._cut.tso,
        )
        made = newest_cut(side)
        return Rebuilding(
            paths=side,
            cut=made,
            reason=applying.reason,
            records=found.records,
            proof_from=self._truncation_point.tso
            if self._truncation_point.cut is not None
            else None,
            refused=self._refused(side, found) if found.errors else (),
            decodable=found.left_out,
            unproven=self._unproven(side, made),
        )

    def _is_truncated_meanwhile(self) -> bool:
        """Return whether retention, which no lock keeps away, removed records; look at its base.

        Raises:
            NotFoundError: that is above the cut.
        """
        before, self._truncation_point = (
            self._truncation_point,
            read_raw_truncation_point(self._paths),
        )
        if self._truncation_point.number > self._cut.number:
            raise NotFoundError(
                f"the landed records that cut {self._cut.number} of changefeed "
                f"{self._paths.changefeed!r} was made from were removed meanwhile"
            )
        return self._truncation_point != before

    def _names_of(self, paths: LakePaths, table: TableName) -> frozenset[TableName]:
        """Return the names that rows of a table of the cut were ever sent under."""
        plan = Knowledge.of(paths, self._changefeed.timezone).plan(self._cut.tso)
        mirrors = [mirror for mirror in plan.mirrors if mirror.name == table]
        return frozenset({table}.union(*map(_names, mirrors)))

    # What was truncated -------------------------------------------------------------------------

    def _side_truncation_point(self) -> TruncationPoint:
        """Return where the landed records were truncated, in the batches of the side place."""
        if self._truncation_point.cut is None:
            return self._truncation_point
        landed = landed_up_to(self._paths, self._truncation_point.batch)
        return replace(self._truncation_point, batch=landed or 0, paths=self._paths)

    def _take_over(self, side: LakePaths) -> None:
        """Give the side place what is known of schemas and rows up to the truncation point."""
        truncation_point = self._truncation_point
        if truncation_point.cut is None:
            return
        known, kept = read_history(self._paths), SchemaHistory()
        kept.restore(
            versions=(
                item for item in known.versions if item.schema.version <= truncation_point.tso
            ),
            ddls=(item for item in known.ddls if item.event.commit_ts <= truncation_point.tso),
            conflicts=known.conflicts,
        )
        write_history(side, kept, kept, batch=0)
        add_statistics_below(side, read_groups(self._paths), truncation_point.tso)

    # Decoding ---------------------------------------------------------------------------------

    def _decode(
        self, side: LakePaths, landed: int, names: frozenset[TableName] | None
    ) -> DecodedFiles:
        """Write the side's change log and its totals; return what became of the records."""
        tell(f"decoding {landed} landed batches again")
        found = decode_into_files(
            self._spark,
            Landed(table=self._paths.raw_messages, chosen=Batches(1, landed)),
            record_decoder(self._changefeed, None, clocks=accepted_clocks(self._paths)),
            batch=landed,
            into=side,
            choose=_Choice(self._left_out(), self._side_truncation_point(), names),
        )
        append_files(
            side.change_log,
            found.changes,
            CHANGE_LOG_SCHEMA,
            app_id="decode",
            version=landed,
            metadata={"batch": landed, "landed": landed},
            layout=BY_LANDING_DAY,
        )
        exported = self._decode_seeds(side, landed, names)
        write_statistics_at_once([*found.totals, *exported], side, landed)
        return found

    def _decode_seeds(
        self, side: LakePaths, landed: int, names: frozenset[TableName] | None
    ) -> list[Totals]:
        """Append the rows of exports that the cut was made from to the side's change log."""
        totals: list[Totals] = []
        told = read_rows(
            self._paths.change_log,
            # Conditions are on columns whose bounds files tell: on others delta-rs finds nothing.
            (ds.field("kind") == DDL)
            & (ds.field("batch") <= self._cut.batch)
            # What is at or below it is in the base.
            & (ds.field("commit_ts") > self._truncation_point.tso),
        )
        numbers = {row["partition"] for row in told if row["ddl_type"] == SNAPSHOT_DDL}
        for number in sorted(numbers):
            found = decoded_files(
                self._spark, self._paths, number, batch=landed, into=side, names=names
            )
            append_files(
                side.change_log,
                found.changes,
                CHANGE_LOG_SCHEMA,
                app_id=APPLICATION,
                version=number,
                metadata={"batch": landed, "landed": landed},
            )
            totals += found.totals
        return totals

    def _left_out(self) -> "_LeftOut":
        """Return what the cut left out: what it had in quarantine.

        Of a record of several rows some may be in quarantine and others in the change log. What is
        refused again is left out without being counted.
        """
        faults = self._faults().filter(ds.field("batch") <= self._cut.batch)
        if not faults.num_rows:
            return _LeftOut()
        log = self._log_at(faults, [*PLACE, "batch"])
        there = frozenset(places_in(log.filter(ds.field("batch") <= self._cut.batch)))
        # One that was re-driven and is nowhere in the change log was truncated there since.
        closed = set(places_in(faults.filter(ds.field("redriven_at").is_valid())))
        still_open = places_in(faults.filter(ds.field("redriven_at").is_null()))
        gone = closed.difference(places_in(log), still_open)
        waiting = set(places_in(faults)) - there - gone
        return _LeftOut(
            records=frozenset(place[:-1] for place in waiting),
            kept=there,
        )

    def _refused(self, side: LakePaths, found: DecodedFiles) -> tuple[RefusedRecords, ...]:
        """Return the records that only the changefeed's own change log has, by table and reason.

        Those that have left it for the quarantine since the cut are told there.
        """
        errors = pa.concat_tables(
            _columns_of(side.quarantine / file.path, [*COORDINATES, "reason"])
            for file in found.faults
        )
        log = self._log_at(errors, [*COORDINATES, "batch", "database", "table"])
        log = log.filter(ds.field("batch") <= self._cut.batch)
        waiting = self._faults().filter(ds.field("redriven_at").is_null())
        rows = asked(_REFUSED, errors=errors, log=log, waiting=waiting)
        return tuple(RefusedRecords(**row) for row in rows.to_pylist())

    def _unproven(self, side: LakePaths, cut: Cut | None) -> dict[TableName, str]:
        """Return the tables whose rows cannot be told, each with the reason."""
        # The change log of the mirrors may have what is gone from the records.
        lacking = {
            (item.database, item.table): "records that it was made from are gone, and the base cut "
            "lacks their rows"
            for item in (cut.mirrors if cut is not None else ())
            if is_told_below(item.caveats)
        }
        late = dict.fromkeys(
            self._late_below(side), "row changes of it landed late, below the base cut"
        )
        return lacking | late

    def _late_below(self, side: LakePaths) -> list[TableName]:
        """Return the tables with row changes that landed after the base and are not above it.

        The change log may place them yet, and here nothing says which are replays.
        """
        point = self._truncation_point
        if point.cut is None:
            return []
        below = read_table(
            side.change_log,
            (ds.field("kind") == ROW) & (ds.field("commit_ts") <= point.tso),
            columns=["database", "table", "commit_ts"],
        )
        rows = [] if below is None else below.group_by(below.column_names).aggregate([]).to_pylist()
        plan = Knowledge.of(side, self._changefeed.timezone).plan(self._cut.tso) if rows else None
        return [
            mirror.name
            for mirror in (() if plan is None else plan.mirrors)
            if any(mirror.takes((row["database"], row["table"]), row["commit_ts"]) for row in rows)
        ]

    def _faults(self) -> pa.Table:
        """Return the faults of decoding, open or not."""
        columns = ["stage", "batch", "redriven_at", *PLACE]
        # Of a file that delta-rs merged the table's reader compares no texts.
        found = read_table(self._paths.quarantine, columns=columns)
        if found is None:
            return pa.schema([FAULT_SCHEMA.field(name) for name in columns]).empty_table()
        return found.filter(ds.field("stage") == "decode")

    def _log_at(self, records: pa.Table, columns: list[str]) -> pa.Table:
        """Return columns of the change log of rows that may be of some of these records."""
        found = read_table(
            self._paths.change_log,
            ds.field("offset").isin(records["offset"].unique()),
            columns=columns,
        )
        assert found is not None
        return found


@dataclass(frozen=True, slots=True)
class _LeftOut:
    """Records of which only some rows are in the cut, or none.

    Args:
        records: their coordinates.
        kept: places of those of their rows that are in it.
    """

    records: frozenset[Place] = frozenset()
    kept: frozenset[Place] = frozenset()


@dataclass(frozen=True, slots=True)
class _Choice:
    """Chooses the decoded rows that a rebuild takes; images only those of the tables `names`."""

    left_out: _LeftOut
    base: TruncationPoint
    names: frozenset[TableName] | None

    def __call__(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        """Return the rows that are taken, and how many of the others are no errors."""
        count = 0
        if self.left_out.records:
            is_error = pc.equal(rows.column("kind"), ERROR).to_pylist()
            places = places_in(rows)
            waits = [place[:-1] in self.left_out.records for place in places]
            taken = [
                not waiting or (not bad and place in self.left_out.kept)
                for place, waiting, bad in zip(places, waits, is_error, strict=True)
            ]
            count = sum(
                not is_taken and not bad for is_taken, bad in zip(taken, is_error, strict=True)
            )
            rows = rows.filter(pa.array(taken, pa.bool_()))
        if self.base.cut is not None:
            rows = rows.filter(pc.invert(self._in_base(rows)))
        return (rows if self.names is None else self._with_images(rows, self.names)), count

    def _in_base(self, rows: pa.RecordBatch) -> pa.Array:
        """Return which rows are row changes that the base has."""
        is_below = pc.and_(
            pc.equal(rows.column("kind"), ROW),
            pc.and_(
                pc.less_equal(rows.column("commit_ts"), self.base.tso),
                # What landed later is in no base.
                pc.less_equal(rows.column("batch"), self.base.batch),
            ),
        )
        return pc.fill_null(is_below, False)

    def _with_images(self, rows: pa.RecordBatch, names: frozenset[TableName]) -> pa.RecordBatch:
        """Leave out the images of row changes of other tables: the totals need none."""
        columns = (rows.column(name).to_pylist() for name in ("kind", "database", "table"))
        wanted = pa.array(
            [
                kind != "row" or (database, table) in names
                for kind, database, table in zip(*columns, strict=True)
            ],
            pa.bool_(),
        )
        for name in IMAGES:
            place, field = rows.schema.get_field_index(name), rows.schema.field(name)
            image = pc.if_else(wanted, rows.column(name), pa.scalar(None, field.type))
            rows = rows.set_column(place, field, image)
        return rows


_REFUSED = """
    WITH refused AS (
        SELECT topic, "partition", "offset", min(reason) AS reason FROM errors GROUP BY ALL
    ), told AS (
        SELECT DISTINCT topic, "partition", "offset", "database", "table", true AS is_there FROM log
    ), quarantined AS (
        SELECT DISTINCT topic, "partition", "offset", true AS waits FROM waiting
    )
    SELECT "database", "table", reason, count(*) AS records
    FROM refused
    LEFT JOIN told USING (topic, "partition", "offset")
    LEFT JOIN quarantined USING (topic, "partition", "offset")
    WHERE is_there OR waits IS NULL
    GROUP BY "database", "table", reason
    ORDER BY coalesce("database", ''), coalesce("table", ''), reason
"""


def _names(mirror: MirrorPlan) -> set[TableName]:
    """Return the names that its rows were sent under, those of rows it was handed over too."""
    return {
        (binding.database, binding.table) for plan in mirror.sources() for binding in plan.bindings
    }
