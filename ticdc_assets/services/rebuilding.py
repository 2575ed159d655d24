"""Rebuilding: the mirrors of a cut once more, from the landed records alone, in a side place.

In: a published cut and `raw_messages`. Out: a side place, which is a lake of its own below the
changefeed's folder: its change log is decoded anew from the records that the cut was made from,
its schemas are registered anew, and one cut at the same TSO is made there. It is the code that
makes mirrors; only the place is another one. What the changefeed's other tables hold is not looked
at, but for which records were left out of the cut (see below).

Which records: those landed up to the batch of the cut. What was landed later is in no cut. A record
that was in quarantine at the cut is left out here too, even if it can be decoded by now; it is
counted, for it waits to be re-driven. One that was re-driven before the cut is decoded like any
other. One that was decoded then and is refused now (its claim-check file is gone, say) is named.

Where `raw_messages` was truncated (`retention`), the rebuild starts from the mirrors of the base
cut that was kept, and from what was known of schemas and rows there; it proves what came after.

Why running it again is safe: nothing outside of the side place is written and no writer's lock is
held; records, change log and mirrors are read at versions that syncs leave alone. One rebuild at a
time works on a changefeed (`lock.side_lock`); each takes away what a killed one left behind. A side
place has a new name each time, because Spark remembers tables by their path.

All landed batches are decoded by one job, however many there are, as one batch of the side's change
log: memory does not grow with them. The rows keep the number of the batch they were landed in, so
schemas are registered in the order in which they came. If one mirror is asked for, the images of
other tables are left out of the side's change log.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import pyarrow.dataset as ds
from pyspark.sql import DataFrame, Observation, SparkSession

from ticdc_assets.changelog.plan import MirrorPlan
from ticdc_assets.config import Changefeed, TableChoice
from ticdc_assets.engine.appending import append_files
from ticdc_assets.engine.control import latest_version, read_rows
from ticdc_assets.engine.lock import side_lock
from ticdc_assets.engine.paths import LakePaths
from ticdc_assets.engine.session import functions
from ticdc_assets.engine.spark_commits import SparkCommit
from ticdc_assets.errors import NotFoundError
from ticdc_assets.events import SNAPSHOT_DDL
from ticdc_assets.pipeline.change_files import CHANGE_LOG_SCHEMA
from ticdc_assets.pipeline.change_statistics import add_groups_below, group_at_once, read_groups
from ticdc_assets.pipeline.cuts import Cut, newest_cut
from ticdc_assets.pipeline.decoding import decoded, landed_up_to, with_clocks
from ticdc_assets.pipeline.mirrors import apply_changes
from ticdc_assets.pipeline.schema_tables import read_history, register_new, write_history
from ticdc_assets.pipeline.seed_decoding import decoded_files
from ticdc_assets.pipeline.seeds import APPLICATION
from ticdc_assets.pipeline.truncation_points import TruncationPoint, read_raw_truncation_point
from ticdc_assets.pipeline.validity import Knowledge
from ticdc_assets.registry.history import SchemaHistory
from ticdc_assets.wire.rows import DDL

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
    """

    paths: LakePaths
    cut: Cut | None
    reason: str
    records: int
    proof_from: int | None
    refused: tuple[RefusedRecords, ...]
    decodable: int


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
        NotFoundError: it is not told any more which records the cut was made from.
    """
    with side_lock(paths):
        remove_side_places(paths)
        try:
            yield _Rebuild(spark, paths, changefeed, cut, table).make()
        finally:
            remove_side_places(paths)


def remove_side_places(paths: LakePaths) -> None:
    """Remove what is in side places; the caller holds their lock."""
    _remove(paths.side_places)


def _remove(place: Path) -> None:
    """Remove the folder of side places; of a link only the link."""
    if place.is_symlink():
        place.unlink()
    elif place.exists():
        shutil.rmtree(place)


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
        version = latest_version(self._paths.raw_messages)
        if landed is None or version is None:
            raise NotFoundError(
                f"it is not told any more which landed records cut {self._cut.number} of "
                f"changefeed {self._paths.changefeed!r} was made from: the history of "
                f"{self._paths.change_log} does not reach back to batch {self._cut.batch}"
            )
        F = functions(self._spark)
        raw = (
            self._spark.read.format("delta")
            .option("versionAsOf", version)
            .load(str(self._paths.raw_messages))
            .where(F.col("batch") <= landed)
        )
        names = None if self._table is None else self._names_of(self._paths, self._table)
        while True:
            side = self._paths.side_place(uuid4().hex)
            counts = self._decode(raw, side, landed, names)
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
        return Rebuilding(
            paths=side,
            cut=newest_cut(side),
            reason=applying.reason,
            records=counts["records"],
            proof_from=self._truncation_point.tso
            if self._truncation_point.cut is not None
            else None,
            refused=self._refused(side) if counts["errors"] else (),
            decodable=counts["decodable"],
        )

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
        add_groups_below(side, read_groups(self._paths), truncation_point.tso)

    # Decoding ---------------------------------------------------------------------------------

    def _decode(
        self, raw: DataFrame, side: LakePaths, landed: int, names: frozenset[TableName] | None
    ) -> dict[str, int]:
        """Write the side's change log and its totals; return what was counted."""
        F = functions(raw.sparkSession)
        seen, kept = Observation(), Observation()
        raw = with_clocks(self._spark, self._paths, raw)
        rows = decoded(
            raw.observe(seen, F.count("*").alias("records")), self._changefeed, batch=None
        )
        rows = self._without_quarantined(rows).observe(
            kept,
            F.count_if("left_out").alias("decodable"),
            F.count_if(~F.col("left_out") & (F.col("kind") == "error")).alias("errors"),
        )
        rows = rows.where(~F.col("left_out")).drop("left_out")
        if names is not None:
            rows = _with_images_of(rows, names)
        own = SparkCommit(self._spark, side.change_log, {"batch": landed, "landed": landed})
        own.writer(rows).mode("append").save(str(side.change_log))
        own.made()
        self._decode_seeds(side, landed, names)
        log = self._spark.read.format("delta").load(str(side.change_log))
        group_at_once(log.where(F.col("kind") != "error"), side, landed)
        return {**seen.get, **kept.get}

    def _decode_seeds(
        self, side: LakePaths, landed: int, names: frozenset[TableName] | None
    ) -> None:
        """Append the rows of exports that the cut was made from to the side's change log."""
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
                self._spark,
                side.change_log,
                found.changes,
                CHANGE_LOG_SCHEMA,
                app_id=APPLICATION,
                version=number,
                metadata={"batch": landed, "landed": landed},
            )

    def _without_quarantined(self, rows: DataFrame) -> DataFrame:
        """Mark as `left_out` what the cut left out: what it had in quarantine.

        Of a record of several rows some may be in quarantine and others in the change log. What is
        refused again is left out without a mark.
        """
        F = functions(self._spark)
        if latest_version(self._paths.quarantine) is None:
            return rows.withColumn("left_out", F.lit(False))
        record = ["topic", "partition", "offset"]
        event = [*record, "index"]
        faults = (
            self._table_of(self._paths.quarantine)
            .where((F.col("stage") == "decode") & (F.col("batch") <= self._cut.batch))
            .select(*event, "redriven_at")
            .distinct()
        )
        if faults.isEmpty():
            return rows.withColumn("left_out", F.lit(False))
        log = self._log_of_cut().select(*event)
        later = self._table_of(self._paths.change_log).select(*event)
        # One that was re-driven and is nowhere in the change log was truncated there since.
        waiting = (
            faults.join(log, event, "left_anti")
            .join(later.withColumn("is_later", F.lit(True)).distinct(), event, "left")
            .where(F.col("redriven_at").isNull() | F.col("is_later"))
            .select(*record)
            .distinct()
        )
        there = log.join(F.broadcast(waiting), record, "left_semi")
        waiting = waiting.withColumn("waits", F.lit(True))
        there = there.distinct().withColumn("is_there", F.lit(True))
        marked = rows.join(F.broadcast(waiting), record, "left").join(
            F.broadcast(there), event, "left"
        )
        waits = F.coalesce("waits", F.lit(False))
        left_out = waits & F.coalesce(~F.col("is_there"), F.lit(True))
        return (
            marked.where(~(waits & (F.col("kind") == "error")))
            .withColumn("left_out", left_out)
            .select(*rows.columns, "left_out")
        )

    def _refused(self, side: LakePaths) -> tuple[RefusedRecords, ...]:
        """Return the records that only the changefeed's own change log has, by table and reason.

        Those that have left it for the quarantine since the cut are told there.
        """
        F = functions(self._spark)
        record = ["topic", "partition", "offset"]
        errors = (
            self._table_of(side.change_log)
            .where(F.col("kind") == "error")
            .groupBy(*record)
            .agg(F.min("error_reason").alias("reason"))
        )
        log = self._log_of_cut().select(*record, "database", "table").distinct()
        log = log.withColumn("is_there", F.lit(True))
        found = errors.join(log, record, "left")
        if latest_version(self._paths.quarantine) is not None:
            waiting = (
                self._table_of(self._paths.quarantine)
                .where((F.col("stage") == "decode") & F.col("redriven_at").isNull())
                .select(*record)
                .distinct()
                .withColumn("waits", F.lit(True))
            )
            found = found.join(waiting, record, "left").where("is_there or waits is null")
        found = (
            found.groupBy("database", "table", "reason")
            .agg(F.count("*").alias("records"))
            .collect()
        )
        refused = [RefusedRecords(**row.asDict()) for row in found]
        return tuple(
            sorted(refused, key=lambda item: (item.database or "", item.table or "", item.reason))
        )

    def _log_of_cut(self) -> DataFrame:
        F = functions(self._spark)
        return self._table_of(self._paths.change_log).where(F.col("batch") <= self._cut.batch)

    def _table_of(self, path: Path) -> DataFrame:
        return self._spark.read.format("delta").load(str(path))


def _names(mirror: MirrorPlan) -> set[TableName]:
    """Return the names that its rows were sent under, those of rows it was handed over too."""
    names = {(binding.database, binding.table) for binding in mirror.bindings}
    return names.union(
        *(_names(part.plan) for part in (mirror.handover.parts if mirror.handover else ()))
    )


def _with_images_of(rows: DataFrame, names: frozenset[TableName]) -> DataFrame:
    """Leave out the images of row changes of other tables: the totals need none."""
    F = functions(rows.sparkSession)
    named = F.lit(False)
    for database, table in sorted(names):
        named |= (F.col("database") == F.lit(database)) & (F.col("table") == F.lit(table))
    wanted = (F.col("kind") != "row") | F.coalesce(named, F.lit(False))
    return rows.withColumns({name: F.when(wanted, F.col(name)) for name in ("before", "after")})
