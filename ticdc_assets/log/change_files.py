"""Decode landed records, from files to files.

In: landed records in files (`rows_of`), and the function from records to decoded rows. Out: files
in the folders of `change_log` and `quarantine` that no commit names yet, so running it again is
safe, and the totals of the rows. A row group is a part of the work (`executing`). A task holds the
decoded rows of one row group (`GROUP_BYTES`) and one piece of records being decoded
(`decode_pieces`).
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import reduce
from operator import or_
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ticdc_assets.delta.appending import BOUNDED, DISTINCT
from ticdc_assets.delta.control import bounds_in
from ticdc_assets.delta.delta_files import file_of
from ticdc_assets.delta.delta_protocol import Action, partition_of
from ticdc_assets.delta.files import (
    GROUP_BYTES,
    FileLayout,
    FileWriter,
    WrittenFile,
    gathered,
)
from ticdc_assets.delta.opening import open_table
from ticdc_assets.log.quarantine import FAULT_SCHEMA, decode_faults
from ticdc_assets.log.totals import TOTALS_COLUMNS, Totals, joined_totals, totals_of
from ticdc_assets.rows.mirror_rows import IMAGES
from ticdc_assets.rows.rows_of_work import Rows
from ticdc_assets.spark.driver import Session
from ticdc_assets.spark.executing import executor
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import AnyPath
from ticdc_assets.wire.rows import CHANGE_SCHEMA, COORDINATES, ERROR

Decode: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""From batches of records to decoded rows."""

Coordinates: TypeAlias = tuple[str, int, int]
"""Topic, partition and offset of a record."""

DECODED_SCHEMA = pa.schema(
    [
        ("batch", pa.int64()),
        ("landed_at", pa.timestamp("us", tz="UTC")),
        ("landed_day", pa.date32()),
        *CHANGE_SCHEMA,
    ]
)
"""Decoded rows: `change_log` plus the error columns of quarantined records."""

CHANGE_LOG_SCHEMA = pa.schema(
    [field for field in DECODED_SCHEMA if not field.name.startswith("error_")]
)
"""`change_log`: one row for each change, DDL, bootstrap or watermark."""

RECORD_COLUMNS = (
    *("batch", "landed_at", "topic", "partition", "offset"),
    *("timestamp_ms", "key", "value"),
)
"""The columns of a landed record that decoding reads."""

FILE_COLUMNS = [name for name in CHANGE_LOG_SCHEMA.names if name != "landed_day"]
"""The columns in files of the change log; the day is in no file."""

_PAYLOAD = frozenset({"key", "value", "row", *IMAGES})
_READ_ROWS = 5_000
_TASK_BYTES = 256 << 20
_GROUP_ROWS = 200_000

_LARGE_RECORD = 64 << 10
"""If a row group's records have more mean bytes, only one task at a time decodes them.

Decompression may make 255 times as many bytes, and decoding needs a multiple of those: too much for
each worker at a time.
"""


# Rows in files ----------------------------------------------------------------------------------


def coordinates_of(rows: pa.RecordBatch) -> Iterator[Coordinates]:
    """Yield the coordinates of each row's record."""
    return zip(*(rows.column(name).to_pylist() for name in COORDINATES), strict=True)


def rows_of(
    table: AnyPath,
    columns: Sequence[str],
    *,
    batches: tuple[int, int] | None = None,
    records: Collection[Coordinates] = (),
    day: date | None = None,
) -> Rows:
    """Return rows of a table for a step, each row group of a file as a part.

    The table is `raw_messages`, `snapshot_rows` or `change_log`. The columns have the batch or the
    coordinates if rows are chosen by the first and the last batch, or by their records. The landing
    day is of UTC.
    """
    opened = open_table(table)
    if opened is None or not opened.files:
        return Rows(schema=pa.schema([]), count=0)
    files, condition = opened.files, None
    if day is not None:
        files = [item for item in files if partition_of(item).get("landed_day") == str(day)]
    if batches is not None:
        files, condition = _within(files, "batch", *batches)
    if records:
        offsets = [offset for _, _, offset in records]
        files, _ = _within(files, "offset", min(offsets), max(offsets))
        condition = _of_records(records)
    paths = [file_of(table, item) for item in files]
    schema = pa.schema([opened.schema.field(name) for name in columns])
    rows = Rows.of_files(paths, schema, by_group=True)
    return replace(rows, large=tuple(_PAYLOAD.intersection(columns)), condition=condition)


def _within(
    files: Sequence[Action], name: str, first: int, last: int
) -> tuple[Sequence[Action], ds.Expression | None]:
    """Return the files that may have rows with numbers from the first to the last, by their `add`.

    Also returned is the condition on their rows; None if all of their rows meet it.
    """
    matches: list[Action] = []
    inside = True
    for item in files:
        low, high = bounds_in(item.get("stats"), name)
        if (low is None or low <= last) and (high is None or high >= first):
            matches.append(item)
            inside &= low is not None and low >= first and high is not None and high <= last
    field = ds.field(name)
    return matches, None if inside else (field >= first) & (field <= last)


def _of_records(records: Iterable[Coordinates]) -> ds.Expression:
    """Return the condition for rows of records."""
    offsets: dict[tuple[str, int], list[int]] = {}
    for topic, partition, offset in records:
        offsets.setdefault((topic, partition), []).append(offset)
    topic, partition, offset = map(ds.field, COORDINATES)
    conditions = (
        (topic == place[0]) & (partition == place[1]) & offset.isin(numbers)
        for place, numbers in offsets.items()
    )
    return reduce(or_, conditions)


def tasks_for(rows: Rows, workers: int) -> int:
    """Return how many tasks share some rows; each writes a file."""
    return 1 if rows.largest >= _LARGE_RECORD else max(workers, rows.size // _TASK_BYTES)


# Decoding ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedFiles:
    """The result of decoding.

    Attributes:
        errors: records that could not be decoded.
        totals: of the rows in the files of the change log.
        records: number of records read.
        left_out: rows that were left out (`Choose`).
    """

    changes: Sequence[WrittenFile]
    faults: Sequence[WrittenFile]
    errors: int
    totals: Totals
    records: int = 0
    left_out: int = 0


Choose: TypeAlias = Callable[[pa.RecordBatch], tuple[pa.RecordBatch, int]]
"""From decoded rows to the wanted ones, and how many of the others count."""


def decode_into_files(
    spark: Session,
    records: Rows,
    decode: Decode,
    *,
    batch: int,
    into: LakePaths,
    choose: Choose | None = None,
) -> DecodedFiles:
    """Decode landed records into files of a batch of the change log, in Spark if they are many.

    The records are rows of `raw_messages` or `snapshot_rows` (`rows_of`). The files are for the
    change log and the quarantine of `into`. All rows are written if none are to be chosen.
    """

    def decoded(some: Iterable[Rows]) -> Iterator[DecodedFiles]:
        counts = Counter[str]()

        def read() -> Iterator[pa.RecordBatch]:
            for part in some:
                for rows in part.read(_READ_ROWS):
                    counts["records"] += rows.num_rows
                    yield rows

        def chosen(rows: pa.RecordBatch) -> pa.RecordBatch:
            if choose is None:
                return rows
            wanted, left_out = choose(rows)
            counts["left_out"] += left_out
            return wanted

        written = write_rows(map(chosen, decode(read())), batch=batch, into=into)
        yield replace(written, records=counts["records"], left_out=counts["left_out"])

    runs_on = executor(spark, into.change_log, "decoding", rows=records.count, size=records.size)
    tasks = tasks_for(records, runs_on.workers)
    return joined_files(runs_on.run(decoded, records.parts(), tasks=tasks))


def joined_files(parts: Sequence[DecodedFiles]) -> DecodedFiles:
    """Return the joined result of all parts."""
    return DecodedFiles(
        changes=[file for part in parts for file in part.changes],
        faults=[file for part in parts for file in part.faults],
        errors=sum(part.errors for part in parts),
        totals=joined_totals(part.totals for part in parts),
        records=sum(part.records for part in parts),
        left_out=sum(part.left_out for part in parts),
    )


def write_rows(rows: Iterable[pa.RecordBatch], *, batch: int, into: LakePaths) -> DecodedFiles:
    """Write decoded rows, one file for each landing day, and the errors into another file."""
    writers: dict[date, FileWriter] = {}
    faulty: FileWriter | None = None
    totals: list[Totals] = []
    errors = 0
    # A generator would keep its newest rows alive.
    tables = map(pa.table, rows)
    for group in gathered(tables, rows=_GROUP_ROWS, size=GROUP_BYTES):
        is_error = pc.equal(group["kind"], ERROR)
        bad = pc.sum(is_error).as_py() or 0
        errors += bad
        if bad:
            faulty = faulty or FileLayout(schema=FAULT_SCHEMA).writer(into.quarantine)
            faulty.write(decode_faults(group.filter(is_error), batch))
        # Rows may be large, so they are copied only if necessary.
        changes = group.filter(pc.invert(is_error)) if bad else group
        totals.append(totals_of(changes))
        days = changes["landed_day"].unique().to_pylist()
        for day in days:
            day_rows = changes if len(days) == 1 else changes.filter(ds.field("landed_day") == day)
            day_rows = day_rows.select(FILE_COLUMNS)
            if day not in writers:
                partition = {"landed_day": day.isoformat()}
                layout = FileLayout(
                    schema=day_rows.schema, bounded=BOUNDED, distinct=DISTINCT, partition=partition
                )
                writers[day] = layout.writer(into.change_log)
            writers[day].write(day_rows)
            del day_rows
        # A loop's variables keep their rows alive while the next ones are made.
        is_large = group.nbytes >= GROUP_BYTES
        del group, changes
        if is_large:
            # Arrow reuses its memory for the next rows, but Python's part adds up.
            pa.default_memory_pool().release_unused()
    return DecodedFiles(
        changes=[writer.close() for writer in writers.values()],
        faults=[] if faulty is None else [faulty.close()],
        errors=errors,
        totals=joined_totals(totals),
    )


# Totals -----------------------------------------------------------------------------------------

COUNTED = [name for name in TOTALS_COLUMNS if name != "landed_day"]
"""The columns in files that totals need."""


def totals_in_files(
    spark: Session,
    log: AnyPath,
    *,
    batches: tuple[int, int] | None = None,
    day: date | None = None,
) -> Totals:
    """Return the totals of rows of a change log; the arguments are those of `rows_of`."""

    def counted(some: Iterable[Rows]) -> Iterator[Totals]:
        for part in some:
            for rows in part.read(_READ_ROWS):
                yield totals_of(with_day(rows))

    rows = rows_of(log, COUNTED, batches=batches, day=day)
    runs_on = executor(spark, log, "counting changes", rows=rows.count, size=0)
    return joined_totals(runs_on.run(counted, rows.parts(), tasks=runs_on.workers))


def with_day(rows: pa.RecordBatch | pa.Table) -> pa.Table:
    """Return rows of the change log with their landing day, which is in no file."""
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    return table.append_column("landed_day", table["landed_at"].cast(pa.date32()))
