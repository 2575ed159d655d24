"""Decode one landing day again, compare it with the change log, and correct differences.

In: all or some records of a day in `raw_messages`, and their rows in `change_log` and `quarantine`.
Out: a `RedecodedDay`. Rows that differ are replaced in one commit, the quarantine of the records is
updated, and the totals are computed again; nothing is written for equal rows.

A replaced or restored row belongs to the batch in which its record was first decoded, as if it had
been correct from the start. A row whose record was in quarantine is new, and belongs to the
commit's batch, like a redriven row. The commit always has a new number, by which the next sync sees
it.

A record that was decoded before and is refused now keeps its rows and is counted by reason, because
its claim-check file may be gone, and the rows could not be restored. But an event whose timestamp
is too far ahead (`ahead`) is moved from the change log to quarantine: only the limit refuses it, so
a redrive can bring it back.

Why running it again is safe: a corrected day is equal, so it is not changed. Refused events are in
quarantine before their rows are removed; accepted ones are closed there last, if necessary by the
next decoding of the day. The commit names all its changes, so after a killed run the next decoding
finishes them.
"""

from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import date
from functools import reduce
from operator import or_

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession

from ticdc_assets.config import Changefeed
from ticdc_assets.engine.control import latest_version
from ticdc_assets.engine.frames import frame_of
from ticdc_assets.engine.paths import LakePaths
from ticdc_assets.engine.session import functions
from ticdc_assets.engine.spark_commits import SparkCommit
from ticdc_assets.errors import NotFoundError
from ticdc_assets.events import SNAPSHOT_DDL
from ticdc_assets.pipeline.ahead import TS_AHEAD
from ticdc_assets.pipeline.change_files import CHANGE_LOG_SCHEMA
from ticdc_assets.pipeline.change_statistics import Correction, regroup
from ticdc_assets.pipeline.decoding import accepted_clocks
from ticdc_assets.pipeline.positions import decoded_position
from ticdc_assets.pipeline.quarantine import (
    FAULT_SCHEMA,
    Closing,
    append_fault_files,
    close_rows,
    places_in,
    read_quarantine,
)
from ticdc_assets.pipeline.schema_tables import SCHEMA_KINDS
from ticdc_assets.pipeline.truncation_points import TruncationPoint
from ticdc_assets.progress import tell
from ticdc_assets.services.decoded_frames import decoded, write_frame
from ticdc_assets.services.rebuilding import RefusedRecords
from ticdc_assets.wire.rows import COORDINATES, PLACE, SNAPSHOT

_CONTENT = tuple(name for name in CHANGE_LOG_SCHEMA.names if name not in (*PLACE, "batch"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RedecodedDay:
    """What decoding one landing day again did.

    Attributes:
        day: the day (UTC).
        records: landed records of it.
        replaced: rows of the change log that differed.
        restored: rows that the change log lacked.
        removed: rows that the change log had too many.
        refused: records that keep their rows although they are refused now.
        quarantined: faults that came into quarantine.
        released: faults in quarantine that are none any more.
        tables: (database, table) that the next apply folds again.
        schemas: whether DDL or bootstraps differed.
        batch: batch of the change log that says so; None if nothing was written there.
    """

    day: date
    records: int
    replaced: int = 0
    restored: int = 0
    removed: int = 0
    refused: tuple[RefusedRecords, ...] = ()
    quarantined: int = 0
    released: int = 0
    tables: tuple[tuple[str, str], ...] = ()
    schemas: bool = False
    batch: int | None = None

    @property
    def equal(self) -> bool:
        """Whether nothing was changed."""
        return self.batch is None and not self.quarantined and not self.released

    def sentence(self) -> str:
        """Return what was done, for people."""
        if self.equal:
            said = f"{self.day}: {self.records} records decoded again, nothing differs"
        else:
            said = (
                f"{self.day}: {self.records} records decoded again: {self.replaced} rows replaced, "
                f"{self.restored} restored, {self.removed} removed; {self.quarantined} faults came "
                f"into quarantine, {self.released} left it"
            )
        if self.tables:
            said += f"; {len(self.tables)} tables are folded again by the next sync"
        if self.schemas:
            said += "; it makes the schema registry again"
        kept = sum(item.records for item in self.refused)
        if kept:
            reasons = ", ".join(sorted({item.reason for item in self.refused}))
            said += f"; {kept} records are refused now ({reasons}) and keep their rows"
        return said


class LandingDay:
    """One landing day, to be decoded again.

    Args:
        spark: the session.
        paths: tables of the changefeed.
        changefeed: its configuration.
        day: the day (UTC).
        truncation_point: up to where the change log was truncated.
        only: coordinates of the records that count; all of the day if None.
    """

    def __init__(
        self,
        spark: SparkSession,
        paths: LakePaths,
        changefeed: Changefeed,
        day: date,
        truncation_point: TruncationPoint,
        *,
        only: DataFrame | None = None,
    ) -> None:
        self._spark = spark
        self._only = only
        self._paths = paths
        self._changefeed = changefeed
        self._day = day
        self._truncation_point = truncation_point

    def redecode(self) -> RedecodedDay:
        """Compare and correct the day."""
        tell(f"decoding the records landed on {self._day} again")
        if latest_version(self._paths.raw_messages) is None:
            return RedecodedDay(day=self._day, records=0)
        records = self._raw().count()
        if not records:
            if self._only is not None:
                return RedecodedDay(day=self._day, records=0)
            if latest_version(self._paths.change_log) is not None and not self._log().isEmpty():
                raise NotFoundError(
                    f"change_log of changefeed {self._paths.changefeed!r} has rows that landed on "
                    f"{self._day}, but raw_messages has no record of that day: nothing was changed"
                )
            return RedecodedDay(day=self._day, records=0)
        F = functions(self._spark)
        with ExitStack() as stack:
            found = _persisted(stack, self._compared())
            (told,) = found.agg(
                F.count_if("differs").alias("differ"),
                F.count_if(F.col("refused") > 0).alias("refused"),
            ).collect()
            faults = self._faults("decode")
            quarantined, done, refused = 0, _Corrected(), tuple[RefusedRecords, ...]()
            errors, differing = None, found.where("differs")
            if told["refused"]:
                records_refused = found.where("refused > 0").select(*COORDINATES).distinct()
                errors = _persisted(stack, records_refused)
                kept = _persisted(stack, self._kept(found, errors))
                differing = differing.join(kept.select(*PLACE), [*PLACE], "left_anti")
                # First: what a killed run took out of the change log would be nowhere.
                quarantined = self._quarantine(errors, kept, faults)
                refused = self._refused(kept, errors)
            if told["differ"]:
                differing = _persisted(stack, differing)
                self._close_removed(differing)
                done = self._correct(differing, faults)
            released = self._release(errors, faults)
        return RedecodedDay(
            day=self._day,
            records=records,
            replaced=done.replaced,
            restored=done.restored,
            removed=done.removed,
            tables=done.tables,
            schemas=done.schemas,
            batch=done.batch,
            refused=refused,
            quarantined=quarantined,
            released=released,
        )

    def _raw(self) -> DataFrame:
        F = functions(self._spark)
        raw = self._spark.read.format("delta").load(str(self._paths.raw_messages))
        raw = raw.where(F.col("landed_day") == F.lit(self._day))
        return raw if self._only is None else raw.join(self._only, [*COORDINATES], "left_semi")

    def _log(self) -> DataFrame:
        F = functions(self._spark)
        log = self._spark.read.format("delta").load(str(self._paths.change_log))
        # Rows of exports came from no record.
        is_exported = (F.col("kind") == SNAPSHOT) | (F.col("ddl_type") == SNAPSHOT_DDL)
        return log.where(
            (F.col("landed_day") == F.lit(self._day)) & ~F.coalesce(is_exported, F.lit(False))
        )

    def _decoded(self, raw: DataFrame) -> DataFrame:
        """Return the rows of records; `batch` is the landed batch."""
        clocks = accepted_clocks(self._paths)
        return decoded(raw, self._changefeed, batch=None, clocks=clocks)

    # Comparing --------------------------------------------------------------------------------

    def _compared(self) -> DataFrame:
        """Return the places of events that differ, or that are refused now.

        One row a place: what is there `now` and what the change log has `there`, by digest and
        what else is told of it; the images themselves are compared by their digest alone.
        """
        F = functions(self._spark)
        now = self._decoded(self._raw())
        is_error = F.col("kind") == "error"
        stands_ahead = is_error & (F.col("error_reason") == TS_AHEAD)
        there = self._log()
        if self._only is not None:
            there = there.join(self._raw().select(*COORDINATES), [*COORDINATES], "left_semi")
        both = now.select(
            *PLACE,
            F.when(~is_error, _told(self._spark)).alias("now"),
            F.lit(None).alias("there"),
            is_error.cast("int").alias("refused"),
            stands_ahead.alias("ahead"),
        ).unionByName(
            there.select(
                *PLACE,
                F.lit(None).alias("now"),
                _told(self._spark).alias("there"),
                F.lit(0).alias("refused"),
                F.lit(False).alias("ahead"),
            )
        )
        return (
            both.groupBy(*PLACE)
            .agg(
                F.sort_array(F.collect_list("now")).alias("now"),
                F.sort_array(F.collect_list("there")).alias("there"),
                F.sum("refused").alias("refused"),
                F.max("ahead").alias("ahead"),
            )
            .withColumn("differs", F.col("now.digest") != F.col("there.digest"))
            .where(F.col("differs") | (F.col("refused") > 0))
        )

    def _kept(self, found: DataFrame, errors: DataFrame) -> DataFrame:
        """Return the places whose rows stay because their record is refused now."""
        return found.where("size(now) = 0 and size(there) > 0 and not ahead").join(
            errors, [*COORDINATES], "left_semi"
        )

    def _refused(self, kept: DataFrame, errors: DataFrame) -> tuple[RefusedRecords, ...]:
        if kept.isEmpty():
            return ()
        F = functions(self._spark)
        reasons = (
            self._errors(errors).groupBy(*COORDINATES).agg(F.min("error_reason").alias("reason"))
        )
        found = (
            kept.select(*COORDINATES, F.explode("there").alias("row"))
            .select(*COORDINATES, "row.database", "row.table")
            .distinct()
            .join(reasons, [*COORDINATES])
            .groupBy("database", "table", "reason")
            .agg(F.count("*").alias("records"))
            .collect()
        )
        return tuple(
            sorted(
                (RefusedRecords(**row.asDict()) for row in found),
                key=lambda item: (item.database or "", item.table or "", item.reason),
            )
        )

    def _errors(self, records: DataFrame) -> DataFrame:
        """Return the errors of refused records, once more with what is wrong."""
        F = functions(self._spark)
        rows = self._decoded(self._raw().join(records, [*COORDINATES], "left_semi"))
        return rows.where(F.col("kind") == "error")

    # Correcting -------------------------------------------------------------------------------

    def _correct(self, differing: DataFrame, faults: DataFrame | None) -> "_Corrected":
        """Replace the rows at differing places, in one commit; `faults` were open before."""
        F = functions(self._spark)
        ranges = (
            differing.groupBy("topic", "partition")
            .agg(F.min("offset").alias("first"), F.max("offset").alias("last"))
            .orderBy("topic", "partition")
            .collect()
        )
        if not ranges:
            return _Corrected()
        counts = differing.agg(
            F.count_if(F.size("there") == 0).alias("restored"),
            F.count_if(F.size("now") == 0).alias("removed"),
            F.count("*").alias("places"),
        ).collect()[0]
        version = latest_version(self._paths.change_log)
        assert version is not None
        batch, landed = decoded_position(self._paths)
        batch += 1
        batches = self._batches().persist()
        tables, schemas = self._tables(differing)
        correction = Correction(
            tables=tables,
            batches=self._touched(differing, batches),
            schemas=schemas,
            truncated_ts=self._truncation_point.tso,
            before=version,
        )
        within = reduce(
            or_,
            (
                (F.col("topic") == F.lit(row["topic"]))
                & (F.col("partition") == row["partition"])
                & F.col("offset").between(row["first"], row["last"])
                for row in ranges
            ),
        )
        places = differing.select(*PLACE)
        rows = self._with_batch(self._decoded(self._raw().where(within)), batches, batch, faults)
        rows = rows.where(F.col("kind") != "error").join(places, [*PLACE], "left_semi")
        stay = self._log().where(within).join(places, [*PLACE], "left_anti")
        where = " or ".join(
            f"(topic = {_text(row['topic'])} and partition = {row['partition']} "
            f"and offset between {row['first']} and {row['last']})"
            for row in ranges
        )
        metadata = {"batch": batch, "landed": landed, "redecode": asdict(correction)}
        corrected = rows.select(*CHANGE_LOG_SCHEMA.names).unionByName(
            stay.select(*CHANGE_LOG_SCHEMA.names)
        )
        own = SparkCommit(self._spark, self._paths.change_log, metadata)
        (
            own.writer(corrected)
            .mode("overwrite")
            .option("replaceWhere", f"landed_day = date'{self._day}' and ({where})")
            .option("txnAppId", "decode")
            .option("txnVersion", batch)
            .save(str(self._paths.change_log))
        )
        own.find()
        batches.unpersist()
        regroup(self._spark, self._paths)
        return _Corrected(
            replaced=counts["places"] - counts["restored"] - counts["removed"],
            restored=counts["restored"],
            removed=counts["removed"],
            tables=tuple(
                (database, table)
                for database, table, _ in tables
                if database is not None and table is not None
            ),
            schemas=schemas,
            batch=batch,
        )

    def _tables(
        self, differing: DataFrame
    ) -> tuple[tuple[tuple[str | None, str | None, int], ...], bool]:
        """Return the tables whose row changes differ from which commit ts on, and whether DDL do.

        Watermarks stand for the tables without a key, as (None, None, commit ts).
        """
        F = functions(self._spark)
        told = differing.select(F.explode(F.concat("now", "there")).alias("row")).select("row.*")
        found = told.groupBy(
            "kind",
            F.when(F.col("kind") == "row", F.col("database")).alias("database"),
            F.when(F.col("kind") == "row", F.col("table")).alias("table"),
        ).agg(F.min("commit_ts").alias("min_ts"))
        rows = found.orderBy("kind", "database", "table").collect()
        tables = tuple(
            (row["database"], row["table"], row["min_ts"])
            for row in rows
            if row["kind"] in ("row", "watermark")
        )
        return tables, any(row["kind"] in SCHEMA_KINDS for row in rows)

    def _batches(self) -> DataFrame:
        """Return the batch of the change log that each landed batch of the day was decoded in.

        Re-driven rows are of a later one, so the lowest one that rows of it are of is it. Of one
        that has no rows, the distance to the landed batch is that of the next one below.
        """
        F = functions(self._spark)
        known = self._log().groupBy("landed_at").agg(F.min("batch").alias("known"))
        landed = self._raw().groupBy("batch", "landed_at").agg(F.count("*").alias("records"))
        rows = landed.join(known, "landed_at", "left").orderBy("batch").collect()
        distance = 0
        found: list[tuple[int, int]] = []
        for row in rows:
            if row["known"] is not None and row["known"] >= row["batch"]:
                distance = row["known"] - row["batch"]
            found.append((row["batch"], row["batch"] + distance))
        return self._spark.createDataFrame(found, "landed_batch long, log_batch long")

    def _with_batch(
        self, rows: DataFrame, batches: DataFrame, batch: int, faults: DataFrame | None
    ) -> DataFrame:
        """Return decoded rows with their batch of the change log in place of the landed one."""
        F = functions(self._spark)
        rows = rows.withColumnRenamed("batch", "landed_batch").join(
            F.broadcast(batches), "landed_batch"
        )
        if faults is None:
            return rows.withColumn("batch", F.col("log_batch"))
        waiting = faults.select(*COORDINATES).distinct().withColumn("waited", F.lit(True))
        return rows.join(F.broadcast(waiting), [*COORDINATES], "left").withColumn(
            "batch",
            F.when(F.col("waited"), F.lit(batch).cast("long")).otherwise(F.col("log_batch")),
        )

    def _touched(self, differing: DataFrame, batches: DataFrame) -> tuple[int, int] | None:
        """Return the first and the last batch that rows at differing places had or get."""
        F = functions(self._spark)
        had = differing.select(F.explode("there.batch").alias("batch"))
        gets = (
            differing.select(F.explode("now.batch").alias("landed_batch"))
            .join(F.broadcast(batches), "landed_batch")
            .select(F.col("log_batch").alias("batch"))
        )
        row = had.unionByName(gets).agg(F.min("batch"), F.max("batch")).collect()[0]
        return None if row[0] is None else (row[0], row[1])

    # Quarantine -------------------------------------------------------------------------------

    def _close_removed(self, differing: DataFrame) -> None:
        """Close the faults of applying at places whose rows go."""
        faults = self._faults("apply")
        if faults is not None:
            gone = differing.where("size(now) = 0").select(*PLACE)
            found = faults.join(gone, [*PLACE], "left_semi").toArrow()
            close_rows(self._paths, "apply", places_in(found), Closing.REMOVED)

    def _faults(self, stage: str) -> DataFrame | None:
        """Return the places of the open faults of a stage, None if there are none."""
        rows = [row for row in read_quarantine(self._paths) if row["stage"] == stage]
        if not rows:
            return None
        schema = pa.schema([FAULT_SCHEMA.field(name) for name in PLACE])
        faults = pa.Table.from_pylist(rows, schema=schema)
        return frame_of(self._spark, faults.group_by(list(PLACE)).aggregate([]))

    def _quarantine(self, errors: DataFrame, kept: DataFrame, faults: DataFrame | None) -> int:
        """Quarantine what is refused now and was not among `faults`; return how much that is."""
        F = functions(self._spark)
        keeps = kept.select(*COORDINATES).distinct().withColumn("keeps", F.lit(True))
        new = (
            self._errors(errors)
            .join(keeps, [*COORDINATES], "left")
            .where(F.col("keeps").isNull() | (F.col("error_reason") == TS_AHEAD))
        )
        if faults is not None:
            new = new.join(faults, [*PLACE], "left_anti")
        new = new.persist()
        try:
            quarantined = new.count()
            if quarantined:
                batch = decoded_position(self._paths)[0]
                append_fault_files(
                    self._spark,
                    self._paths,
                    write_frame(new, batch=batch, into=self._paths).faults,
                    app_id="redecode",
                    # Only has to grow: what is open already is left out.
                    version=(latest_version(self._paths.quarantine) or 0) + 1,
                )
        finally:
            new.unpersist()
        return quarantined

    def _release(self, errors: DataFrame | None, faults: DataFrame | None) -> int:
        """Close those of `faults` that are none any more; return how many.

        Args:
            errors: the records that are refused now; None if none is.
            faults: the faults that were open before.
        """
        if faults is None:
            return 0
        fixed = faults.join(self._raw().select(*COORDINATES), [*COORDINATES], "left_semi")
        if errors is not None:
            refused = self._errors(errors).select(*PLACE)
            fixed = fixed.join(refused, [*PLACE], "left_anti")
        places = places_in(fixed.toArrow())
        close_rows(self._paths, "decode", places, Closing.REDRIVE)
        return len(places)


def _persisted(stack: ExitStack, frame: DataFrame) -> DataFrame:
    """Return a frame that is computed once, and kept until `stack` is closed."""
    frame = frame.persist()
    stack.callback(frame.unpersist)
    return frame


@dataclass(frozen=True, slots=True, kw_only=True)
class _Corrected:
    """What was corrected in the change log."""

    replaced: int = 0
    restored: int = 0
    removed: int = 0
    tables: tuple[tuple[str, str], ...] = ()
    schemas: bool = False
    batch: int | None = None


def _told(spark: SparkSession) -> Column:
    """Return what is told of a row, its digest first."""
    F = functions(spark)
    content = F.struct(
        *(
            F.unix_micros("landed_at").alias("landed_at") if name == "landed_at" else F.col(name)
            for name in _CONTENT
        )
    )
    return F.struct(
        F.sha2(F.to_json(content), 256).alias("digest"),
        "kind",
        "database",
        "table",
        "commit_ts",
        "batch",
    )


def _text(value: str) -> str:
    """Return a literal of SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
