"""Decode landed records, from files to files.

In: row groups of files that hold landed records (`landed_parts`), and the function from records to
decoded rows. Out: files in the folders of `change_log` and `quarantine` that no commit names yet,
and the totals of the rows. A row group is a part of the work (`executing`).

A task holds the decoded rows of one row group (`_GROUP_BYTES`) and one piece of records being
decoded (`decode_pieces`).

Why running it again is safe: see `files`.
"""

# pyarrow has no type information, so what comes from it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportAttributeAccessIssue=false

import pickle
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession

from ticdc_assets.engine.appending import BOUNDED
from ticdc_assets.engine.cluster import require_cluster
from ticdc_assets.engine.control import is_portable, open_table
from ticdc_assets.engine.executing import executor
from ticdc_assets.engine.files import FileWriter, WrittenFile, read_bounded, read_footer
from ticdc_assets.engine.session import functions
from ticdc_assets.pipeline.quarantine import FAULT_SCHEMA, decode_faults
from ticdc_assets.pipeline.totals import IMAGES, TOTALS_COLUMNS, Totals, joined_totals, totals_of
from ticdc_assets.storage.paths import AnyPath, remove_tree
from ticdc_assets.wire.rows import CHANGE_SCHEMA, ERROR

Decode: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""From batches of records to decoded rows."""

DECODED_SCHEMA = pa.schema(
    [
        ("batch", pa.int64()),
        ("landed_at", pa.timestamp("us", tz="UTC")),
        ("landed_day", pa.date32()),
        *CHANGE_SCHEMA,
    ]
)
"""Decoded rows: `change_log` with the error columns that only quarantined records have."""

CHANGE_LOG_SCHEMA = pa.schema(
    [field for field in DECODED_SCHEMA if not field.name.startswith("error_")]
)
"""`change_log`: one row a change, DDL, bootstrap or watermark."""

RECORD_COLUMNS = (
    *("batch", "landed_at", "topic", "partition", "offset"),
    *("timestamp_ms", "key", "value"),
)
"""What decoding reads of a landed record."""

_FILE_COLUMNS = [name for name in CHANGE_LOG_SCHEMA.names if name != "landed_day"]

_PAYLOAD = frozenset({"key", "value", "row"})
_READ_RECORDS = 5_000
_READ_ROWS = 10_000
_GROUP_BYTES = 32 << 20
_TASK_BYTES = 256 << 20
_GROUP_BATCHES = 40

_LARGE_RECORD = 64 << 10
"""Mean bytes of a row group's records from which on one task decodes a batch alone.

Compression may make 255 times as much of them, and decoding that takes some times its bytes: not in
each worker at a time.
"""

_DISTINCT = ("before", "after", "offset", "sql", "schema", "pre_schema", "claim_check_location")
"""Columns whose values hardly ever repeat."""


# Parts ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Row groups that may hold the rows of a batch.

    Attributes:
        pieces: path of a file, and number of a row group in it.
        rows: rows in them.
        size: their bytes before compression.
        largest: mean bytes of a row, in the row group where that is greatest.
    """

    pieces: Sequence[tuple[AnyPath, int]]
    rows: int
    size: int
    largest: int


@dataclass(frozen=True, slots=True)
class Batches:
    """Numbers of batches, from the first to the last."""

    first: int
    last: int

    @classmethod
    def one(cls, batch: int) -> "Batches":
        """Return one number."""
        return cls(batch, batch)

    def may_be(self, least: int, greatest: int) -> bool:
        """Return whether some may be between two numbers, both included."""
        return least <= self.last and greatest >= self.first

    def of(self, rows: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """Return the rows that are of these: all or none, but where files were joined."""
        bounds = pc.min_max(rows.column("batch")).as_py()
        if bounds["min"] is None or not self.may_be(bounds["min"], bounds["max"]):
            return []
        if bounds["min"] >= self.first and bounds["max"] <= self.last:
            return [rows]
        number = ds.field("batch")
        chosen = (number >= self.first) & (number <= self.last)
        return pa.Table.from_batches([rows]).filter(chosen).to_batches()


@contextmanager
def parts_of(spark: SparkSession, table: AnyPath, batches: Batches) -> Iterator[Parts]:
    """Yield the row groups of a table that may hold rows of batches.

    The files of a table that somebody gave newer features of Delta do not tell which of their rows
    are there. Its rows are copied by Spark, for as long as the context is open.

    Args:
        spark: the session, which is asked for nothing if the table is portable.
        table: `raw_messages` or `change_log`.
        batches: their numbers.
    """
    opened = open_table(table)
    if opened is None:
        yield _parts([])
        return
    if is_portable(opened):
        files: list[AnyPath] = []
        for action in pa.table(opened.get_add_actions(flatten=True)).to_pylist():
            least, greatest = action.get("min.batch"), action.get("max.batch")
            if (
                least is None
                or greatest is None
                or (least <= batches.last and greatest >= batches.first)
            ):
                files.append(table / action["path"])
        yield _parts(files)
        return
    copy = table.parent / f".copy-{uuid.uuid4().hex}"
    try:
        F = functions(spark)
        number = F.col("batch").between(batches.first, batches.last)
        rows = spark.read.format("delta").load(str(table)).where(number)
        rows.write.parquet(str(copy))
        yield _parts(sorted(copy.glob("*.parquet")))
    finally:
        remove_tree(copy, quietly=True)


def _parts(files: Sequence[AnyPath]) -> Parts:
    pieces: list[tuple[AnyPath, int]] = []
    rows = size = largest = 0
    for path in files:
        footer = read_footer(path)
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            pieces.append((path, number))
            rows += group.num_rows
            size += group.total_byte_size
            largest = max(largest, group.total_byte_size // max(1, group.num_rows))
    return Parts(pieces=pieces, rows=rows, size=size, largest=largest)


# Decoding ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedFiles:
    """What became of records.

    Attributes:
        changes: files of the change log, relative to its folder.
        faults: files of the quarantine, relative to its folder.
        errors: records that could not be decoded.
        totals: of the rows in the files of the change log.
        records: records that were read.
        left_out: rows that were left out (`Choose`).
    """

    changes: Sequence[WrittenFile]
    faults: Sequence[WrittenFile]
    errors: int
    totals: list[Totals]
    records: int = 0
    left_out: int = 0


Choose: TypeAlias = Callable[[pa.RecordBatch], tuple[pa.RecordBatch, int]]
"""From decoded rows to those that are wanted, and how many of the others are to be counted."""


def decode_into_files(
    spark: SparkSession,
    raw: AnyPath,
    landed: Batches,
    decode: Decode,
    *,
    batch: int,
    log: AnyPath,
    quarantine: AnyPath,
    columns: Sequence[str] = RECORD_COLUMNS,
    choose: Choose | None = None,
) -> DecodedFiles:
    """Decode landed batches into files.

    Args:
        spark: the session, which is asked for nothing if they are small.
        raw: folder of `raw_messages`, or of `snapshot_rows`.
        landed: numbers of the landed batches.
        decode: the function from records to rows.
        batch: number of the batch of the change log that the rows become.
        log: folder of `change_log`.
        quarantine: folder of `quarantine`.
        columns: what decoding reads of the landed batches.
        choose: which rows are written; all if None.
    """

    def decoded(some: Iterable[tuple[AnyPath, int]]) -> Iterator[DecodedFiles]:
        counts = Counter[str]()

        def records() -> Iterator[pa.RecordBatch]:
            for piece in some:
                for found in _records(*piece, landed, columns):
                    counts["records"] += found.num_rows
                    yield found

        def chosen(rows: pa.RecordBatch) -> pa.RecordBatch:
            if choose is None:
                return rows
            wanted, left_out = choose(rows)
            counts["left_out"] += left_out
            return wanted

        written = _written(map(chosen, decode(records())), log, quarantine, batch)
        yield replace(written, records=counts["records"], left_out=counts["left_out"])

    with parts_of(spark, raw, landed) as parts:
        runs_on = executor(spark, log, rows=parts.rows, size=parts.size)
        # Each task writes a file.
        tasks = max(runs_on.workers, parts.size // _TASK_BYTES)
        if parts.largest >= _LARGE_RECORD:
            tasks = 1
        return joined_files(runs_on.run(decoded, parts.pieces, tasks=tasks))


def write_rows(
    rows: Iterable[pa.RecordBatch], *, batch: int, log: AnyPath, quarantine: AnyPath
) -> DecodedFiles:
    """Write decoded rows that are in this process into files; else as above."""
    return _written(rows, log, quarantine, batch)


def write_frame(rows: DataFrame, *, batch: int, log: AnyPath, quarantine: AnyPath) -> DecodedFiles:
    """Write decoded rows that Spark has into files; else as above."""
    require_cluster(rows.sparkSession, log)

    def written(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoded = (
            part.cast(DECODED_SCHEMA).to_batches()
            for part in (pa.Table.from_batches([item]) for item in batches)
        )
        found = _written((item for some in decoded for item in some), log, quarantine, batch)
        yield pa.record_batch([[pickle.dumps(found)]], names=["found"])

    told = rows.select(*DECODED_SCHEMA.names).mapInArrow(written, "found binary").collect()
    return joined_files([pickle.loads(row["found"]) for row in told])


def joined_files(parts: Sequence[DecodedFiles]) -> DecodedFiles:
    """Return what became of the records of all parts."""
    return DecodedFiles(
        changes=[file for part in parts for file in part.changes],
        faults=[file for part in parts for file in part.faults],
        errors=sum(part.errors for part in parts),
        totals=joined_totals(group for part in parts for group in part.totals),
        records=sum(part.records for part in parts),
        left_out=sum(part.left_out for part in parts),
    )


def _records(
    path: AnyPath, row_group: int, landed: Batches, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    large = _PAYLOAD.intersection(columns)
    for records in read_bounded(path, row_group, columns=columns, large=large, most=_READ_RECORDS):
        yield from landed.of(records)


def _written(
    rows: Iterable[pa.RecordBatch], log: AnyPath, quarantine: AnyPath, batch: int
) -> DecodedFiles:
    """Write decoded rows, those of each landing day into a file, and the errors into another."""
    writers: dict[date, FileWriter] = {}
    faulty: FileWriter | None = None
    totals: list[Totals] = []
    errors = 0
    for group in _groups(rows):
        is_error = pc.equal(group["kind"], ERROR)
        bad = pc.sum(is_error).as_py() or 0
        errors += bad
        if bad:
            faulty = faulty or FileWriter(quarantine, FAULT_SCHEMA)
            faulty.write(decode_faults(group.filter(is_error), batch))
        # Rows may be large, so they are copied only where it has to be.
        changes = group.filter(pc.invert(is_error)) if bad else group
        totals += totals_of(changes)
        days = changes["landed_day"].unique().to_pylist()
        for day in days:
            own = changes if len(days) == 1 else changes.filter(ds.field("landed_day") == day)
            own = own.select(_FILE_COLUMNS)
            if day not in writers:
                partition = {"landed_day": day.isoformat()}
                writers[day] = FileWriter(
                    log, own.schema, partition=partition, bounded=BOUNDED, distinct=_DISTINCT
                )
            writers[day].write(own)
            del own
        # What a loop names lives on while the next is made.
        is_large = group.nbytes >= _GROUP_BYTES
        del group, changes
        if is_large:
            # Arrow keeps what it has got for the next rows, but Python takes its part of those.
            pa.default_memory_pool().release_unused()
    return DecodedFiles(
        changes=[writer.close() for writer in writers.values()],
        faults=[] if faulty is None else [faulty.close()],
        errors=errors,
        totals=joined_totals(totals),
    )


def _groups(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield rows in tables of bounded size."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in rows:
        held.append(batch)
        size += batch.nbytes
        if size >= _GROUP_BYTES or len(held) >= _GROUP_BATCHES:
            del batch
            group, held, size = held, [], 0
            yield pa.Table.from_batches(group)
            del group
    if held:
        yield pa.Table.from_batches(held)


# Totals -----------------------------------------------------------------------------------------

_COUNTED = [name for name in TOTALS_COLUMNS if name != "landed_day"]
"""The columns in files that totals are made of; the day is in none of them."""


def totals_in_files(spark: SparkSession, log: AnyPath, batch: int) -> list[Totals]:
    """Return the totals of a batch of the change log."""

    def counted(some: Iterable[tuple[AnyPath, int]]) -> Iterator[list[Totals]]:
        for path, row_group in some:
            for rows in read_bounded(
                path, row_group, columns=_COUNTED, large=IMAGES, most=_READ_ROWS
            ):
                for own in Batches.one(batch).of(rows):
                    yield totals_of(_with_day(own))

    with parts_of(spark, log, Batches.one(batch)) as parts:
        runs_on = executor(spark, log, rows=parts.rows, size=0)
        found = runs_on.run(counted, parts.pieces, tasks=runs_on.workers)
    return joined_totals(group for groups in found for group in groups)


def totals_of_frame(rows: DataFrame) -> list[Totals]:
    """Return the totals of rows of the change log that Spark has, without watermarks."""

    def counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        groups: list[Totals] = []
        for batch in batches:
            found = totals_of(_with_day(batch))
            groups = joined_totals([*groups, *(group | {"watermarks": []} for group in found)])
        yield pa.record_batch([[pickle.dumps(groups)]], names=["found"])

    told: list[Any] = rows.select(*_COUNTED).mapInArrow(counted, "found binary").collect()
    return joined_totals(group for row in told for group in pickle.loads(row["found"]))


def _with_day(rows: pa.RecordBatch) -> pa.Table:
    day = rows.column("landed_at").cast(pa.date32())
    return pa.Table.from_batches([rows]).append_column("landed_day", day)
