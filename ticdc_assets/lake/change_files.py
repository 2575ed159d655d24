"""A landed batch decoded by Spark's Python workers, from files to files.

In: the files of `raw_messages` that may hold the batch, and the function from records to decoded
rows. Out: files in the folder of `change_log` that no commit names yet, their totals, and how many
records could not be decoded.

Spark shares out row groups of files and sees no row: records do not pass from Parquet to the JVM's
rows, to Arrow's, to Python, and back the same way, which costs several times what decoding does.
What a worker holds is one row group's worth of decoded rows (`_GROUP_BYTES`), and what is decoded
at a time (`decode_pieces`).

Why running it again is safe: see `files`. Records that could not be decoded are counted and left
out; who needs them decodes the batch again (`errors_in_files`).
"""

# pyarrow has no type information, so what comes from it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportAttributeAccessIssue=false

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from ticdc_assets.lake.files import FileWriter, WrittenFile
from ticdc_assets.lake.small_batches import BOUNDED, read_records
from ticdc_assets.lake.spark_commits import require_shared
from ticdc_assets.lake.totals import Totals, joined_totals, totals_of
from ticdc_assets.wire.rows import CHANGE_SCHEMA, COORDINATES, ERROR

Decode: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""From batches of records to decoded rows."""

_READ_RECORDS = 5_000
_GROUP_BYTES = 32 << 20
_TASK_BYTES = 256 << 20
_GROUP_BATCHES = 40

_LARGE_RECORD = 64 << 10
"""Mean bytes of a row group's records from which on one worker decodes a batch alone.

Compression may make 255 times as much of them, and decoding that takes some times its bytes: not in
each worker at a time.
"""

_PLAIN = ("before", "after", "offset", "sql", "schema", "pre_schema", "claim_check_location")
"""Columns whose values hardly ever repeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedFiles:
    """What became of a batch.

    Attributes:
        files: files of the change log, relative to its folder.
        errors: records that could not be decoded.
        totals: of the rows in the files.
    """

    files: Sequence[WrittenFile]
    errors: int
    totals: list[Totals]


def decode_into_files(
    spark: SparkSession,
    raw: Path,
    files: Sequence[str],
    batch: int,
    decode: Decode,
    *,
    log: Path,
    columns: Sequence[str],
) -> DecodedFiles:
    """Decode a landed batch into files.

    Args:
        spark: the session.
        raw: folder of `raw_messages`.
        files: its files that may hold records of the batch.
        batch: number of the landed batch.
        decode: the function from records to rows.
        log: folder of `change_log`.
        columns: its columns, `landed_day` among them, by which it is partitioned.
    """
    require_shared(spark, log)
    pieces, tasks = _shared(spark, raw, files)

    def decoded(some: Iterable[tuple[str, int]]) -> Iterator[DecodedFiles]:
        records = (found for piece in some for found in _records(*piece, batch))
        yield _written(decode(records), log, columns)

    found: list[DecodedFiles] = (
        spark.sparkContext.parallelize(pieces, tasks).mapPartitions(decoded).collect()
    )
    return DecodedFiles(
        files=[file for part in found for file in part.files],
        errors=sum(part.errors for part in found),
        totals=joined_totals(group for part in found for group in part.totals),
    )


def errors_in_files(
    spark: SparkSession, raw: Path, files: Sequence[str], batch: int, decode: Decode
) -> DataFrame:
    """Return the rows of the records of a landed batch that cannot be decoded; else as above.

    Only these rows leave the workers.
    """
    pieces, tasks = _shared(spark, raw, files)

    def found(some: Iterable[tuple[str, int]]) -> Iterator[tuple[Any, ...]]:
        records = (found for piece in some for found in _records(*piece, batch))
        for rows in decode(records):
            bad = pa.Table.from_batches([rows]).select(_ERROR_FIELDS.names)
            for row in bad.filter(ds.field("kind") == ERROR).to_pylist():
                yield tuple(row.values())

    return spark.createDataFrame(
        spark.sparkContext.parallelize(pieces, tasks).mapPartitions(found),
        from_arrow_schema(_ERROR_FIELDS),
        verifySchema=False,
    )


_ERROR_FIELDS = pa.schema(
    [
        field
        for field in CHANGE_SCHEMA
        if field.name in (*COORDINATES, "index", "kind") or field.name.startswith("error_")
    ]
)


def _shared(
    spark: SparkSession, raw: Path, files: Sequence[str]
) -> tuple[list[tuple[str, int]], int]:
    """Return the row groups of files, and among how many tasks they are shared out."""
    pieces: list[tuple[str, int]] = []
    size = largest = 0
    for name in files:
        footer = pq.read_metadata(raw / name)
        groups = range(footer.num_row_groups)
        pieces += ((str(raw / name), group) for group in groups)
        for group in map(footer.row_group, groups):
            size += group.total_byte_size
            largest = max(largest, group.total_byte_size // max(1, group.num_rows))
    if largest >= _LARGE_RECORD:
        return pieces, 1
    # Each task writes a file.
    least = spark.sparkContext.defaultParallelism
    return pieces, max(1, min(len(pieces), max(least, size // _TASK_BYTES)))


def _records(path: str, row_group: int, batch: int) -> Iterator[pa.RecordBatch]:
    for records in read_records(Path(path), row_group, most=_READ_RECORDS):
        yield from _of_batch(records, batch)


def _of_batch(records: pa.RecordBatch, batch: int) -> Iterable[pa.RecordBatch]:
    """Return the records that are of a landed batch: all or none, but where files were joined."""
    numbers = records.column("batch").unique().to_pylist()
    if numbers == [batch]:
        return [records]
    if batch not in numbers:
        return []
    return pa.Table.from_batches([records]).filter(ds.field("batch") == batch).to_batches()


def _written(rows: Iterable[pa.RecordBatch], log: Path, columns: Sequence[str]) -> DecodedFiles:
    """Write decoded rows, those of each landing day into a file."""
    names = [name for name in columns if name != "landed_day"]
    writers: dict[date, FileWriter] = {}
    totals: list[Totals] = []
    errors = 0
    for group in _groups(rows):
        bad = pc.sum(pc.equal(group["kind"], ERROR)).as_py() or 0
        errors += bad
        # Rows may be large, so they are copied only where it has to be.
        changes = group.filter(ds.field("kind") != ERROR) if bad else group
        totals += totals_of(changes)
        days = changes["landed_day"].unique().to_pylist()
        for day in days:
            own = changes if len(days) == 1 else changes.filter(ds.field("landed_day") == day)
            own = own.select(names)
            if day not in writers:
                partition = {"landed_day": day.isoformat()}
                writers[day] = FileWriter(
                    log, own.schema, partition=partition, bounded=BOUNDED, plain=_PLAIN
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
        files=[writer.close() for writer in writers.values()],
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
