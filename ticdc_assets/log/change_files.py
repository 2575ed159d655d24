"""Decode landed records, from files to files.

In: row groups of files with landed records (`landed_parts`), and the function from records to
decoded rows. Out: files in the folders of `change_log` and `quarantine` that no commit names yet,
and the totals of the rows. A row group is a part of the work (`executing`).

A task holds the decoded rows of one row group (`_GROUP_BYTES`) and one piece of records being
decoded (`decode_pieces`).

Why running it again is safe: see `files`.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ticdc_assets.delta.appending import BOUNDED, DISTINCT
from ticdc_assets.delta.control import open_table
from ticdc_assets.delta.files import (
    FileWriter,
    WrittenFile,
    read_bounded,
    read_bounded_as,
    read_footer,
)
from ticdc_assets.log.quarantine import FAULT_SCHEMA, decode_faults
from ticdc_assets.log.totals import TOTALS_COLUMNS, Totals, joined_totals, totals_of
from ticdc_assets.rows.mirror_rows import IMAGES
from ticdc_assets.spark.executing import executor
from ticdc_assets.spark.session import Session
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import AnyPath
from ticdc_assets.wire.batch import read_alone
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

_FILE_COLUMNS = [name for name in CHANGE_LOG_SCHEMA.names if name != "landed_day"]

_PAYLOAD = frozenset({"key", "value", "row", *IMAGES})
_READ_ROWS = 5_000
_GROUP_BYTES = 32 << 20
_TASK_BYTES = 256 << 20
_GROUP_BATCHES = 40

_LARGE_RECORD = 64 << 10
"""If a row group's records have more mean bytes, only one task at a time decodes them.

Decompression may make 255 times as many bytes, and decoding needs a multiple of those: too much for
each worker at a time.
"""


# Parts ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Row groups that may hold the rows of a batch.

    Attributes:
        pieces: path of a file, and number of a row group in it.
        rows: rows in them.
        size: their bytes before compression.
        largest: the greatest mean bytes of a row among the row groups.
    """

    pieces: Sequence[tuple[AnyPath, int]]
    rows: int
    size: int
    largest: int

    def tasks(self, workers: int) -> int:
        """Return how many tasks share the parts; each writes a file."""
        return 1 if self.largest >= _LARGE_RECORD else max(workers, self.size // _TASK_BYTES)


class Selection(Protocol):
    """A choice of a table's rows."""

    def may_be_in(self, bounds: Mapping[str, Any]) -> bool:
        """Return whether a file may have chosen rows.

        Args:
            bounds: the file's bounds in the log: `min.column` and `max.column`, where known.
        """
        ...

    def of(self, rows: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """Return the chosen rows among some."""
        ...


@dataclass(frozen=True, slots=True)
class Batches:
    """A choice of batches, from the first to the last number."""

    first: int
    last: int

    @classmethod
    def one(cls, batch: int) -> "Batches":
        """Return the rows of one batch."""
        return cls(batch, batch)

    def may_be_in(self, bounds: Mapping[str, Any]) -> bool:
        """Return whether a file may have chosen rows."""
        least, greatest = bounds.get("min.batch"), bounds.get("max.batch")
        return least is None or greatest is None or self.may_be(least, greatest)

    def may_be(self, least: int, greatest: int) -> bool:
        """Return whether a chosen batch may be between two numbers, both included."""
        return least <= self.last and greatest >= self.first

    def of(self, rows: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """Return the chosen rows among some: all or none, unless files were joined."""
        bounds = pc.min_max(rows.column("batch")).as_py()
        if bounds["min"] is None or not self.may_be(bounds["min"], bounds["max"]):
            return []
        if bounds["min"] >= self.first and bounds["max"] <= self.last:
            return [rows]
        number = ds.field("batch")
        chosen = (number >= self.first) & (number <= self.last)
        return pa.Table.from_batches([rows]).filter(chosen).to_batches()


@dataclass(frozen=True, slots=True)
class OfDay:
    """A choice of the rows of a partition, by landing day (UTC)."""

    day: date

    def may_be_in(self, bounds: Mapping[str, Any]) -> bool:
        """Return whether a file may have chosen rows: a file has rows of one day."""
        return bounds["partition.landed_day"] == self.day

    def of(self, rows: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """Return the chosen rows of a file that may have some."""
        return [rows]


def coordinates_of(rows: pa.RecordBatch) -> Iterator[Coordinates]:
    """Yield the coordinates of each row's record."""
    return zip(*(rows.column(name).to_pylist() for name in COORDINATES), strict=True)


@dataclass(frozen=True)
class Records:
    """The landed records at some coordinates.

    Attributes:
        places: topic, partition and offset of each; at least one.
    """

    places: frozenset[Coordinates]

    @cached_property
    def _offsets(self) -> Mapping[tuple[str, int], Sequence[int]]:
        found: dict[tuple[str, int], list[int]] = {}
        for topic, partition, offset in sorted(self.places):
            found.setdefault((topic, partition), []).append(offset)
        return found

    @cached_property
    def _all_offsets(self) -> pa.Array:
        return pa.array({place[-1] for place in self.places}, pa.int64())

    def may_be_in(self, bounds: Mapping[str, Any]) -> bool:
        """Return whether a file may have chosen rows."""
        names = [f"{end}.{name}" for name in COORDINATES for end in ("min", "max")]
        found: list[Any] = [bounds.get(name) for name in names]
        if None in found:
            return True
        first_topic, last_topic, first_partition, last_partition, first, last = found
        return any(
            first_topic <= topic <= last_topic
            and first_partition <= partition <= last_partition
            and bisect_left(offsets, first) < bisect_right(offsets, last)
            for (topic, partition), offsets in self._offsets.items()
        )

    def of(self, rows: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """Return the chosen rows among some."""
        near = rows.filter(pc.is_in(rows.column("offset"), value_set=self._all_offsets))
        is_chosen = [place in self.places for place in coordinates_of(near)]
        found = near.filter(pa.array(is_chosen, pa.bool_()))
        return [found] if found.num_rows else []


def parts_of(table: AnyPath, chosen: Selection) -> Parts:
    """Return the row groups of a table that may hold chosen rows.

    Args:
        table: `raw_messages` or `change_log`.
        chosen: the rows.
    """
    opened = open_table(table)
    if opened is None:
        return parts_in([])
    actions = pa.table(opened.get_add_actions(flatten=True)).to_pylist()
    return parts_in([table / item["path"] for item in actions if chosen.may_be_in(item)])


def parts_in(files: Sequence[AnyPath]) -> Parts:
    """Return the row groups of files."""
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
    """The result of decoding.

    Attributes:
        changes: files of the change log, relative to its folder.
        faults: files of the quarantine, relative to its folder.
        errors: records that could not be decoded.
        totals: of the rows in the files of the change log.
        records: number of records read.
        alone: records of large batches that were decoded one by one (`read_alone`).
        left_out: rows that were left out (`Choose`).
    """

    changes: Sequence[WrittenFile]
    faults: Sequence[WrittenFile]
    errors: int
    totals: list[Totals]
    records: int = 0
    alone: int = 0
    left_out: int = 0


Choose: TypeAlias = Callable[[pa.RecordBatch], tuple[pa.RecordBatch, int]]
"""From decoded rows to the wanted ones, and how many of the others count."""


def decode_into_files(
    spark: Session,
    table: AnyPath,
    records: Selection,
    decode: Decode,
    *,
    batch: int,
    into: LakePaths,
    choose: Choose | None = None,
    columns: Sequence[str] = RECORD_COLUMNS,
) -> DecodedFiles:
    """Decode landed records into files.

    Args:
        spark: the session, which is not used if they are few.
        table: the table with the records: `raw_messages` or `snapshot_rows`.
        records: the choice of its rows.
        decode: the function from records to rows.
        batch: number of the rows' batch in the change log.
        into: the changefeed's tables that the files are for (`change_log` and `quarantine`).
        choose: which rows are written; all if None.
        columns: the columns of the table that decoding reads.
    """

    def decoded(some: Iterable[tuple[AnyPath, int]]) -> Iterator[DecodedFiles]:
        counts = Counter[str]()
        read_alone()

        def read() -> Iterator[pa.RecordBatch]:
            for piece in some:
                for found in rows_in(piece, records, columns):
                    counts["records"] += found.num_rows
                    yield found

        def chosen(rows: pa.RecordBatch) -> pa.RecordBatch:
            if choose is None:
                return rows
            wanted, left_out = choose(rows)
            counts["left_out"] += left_out
            return wanted

        written = write_rows(map(chosen, decode(read())), batch=batch, into=into)
        yield replace(
            written, records=counts["records"], alone=read_alone(), left_out=counts["left_out"]
        )

    parts = parts_of(table, records)
    runs_on = executor(spark, into.change_log, "decoding", rows=parts.rows, size=parts.size)
    return joined_files(runs_on.run(decoded, parts.pieces, tasks=parts.tasks(runs_on.workers)))


def joined_files(parts: Sequence[DecodedFiles]) -> DecodedFiles:
    """Return the joined result of all parts."""
    return DecodedFiles(
        changes=[file for part in parts for file in part.changes],
        faults=[file for part in parts for file in part.faults],
        errors=sum(part.errors for part in parts),
        totals=joined_totals(group for part in parts for group in part.totals),
        records=sum(part.records for part in parts),
        alone=sum(part.alone for part in parts),
        left_out=sum(part.left_out for part in parts),
    )


def rows_in(
    piece: tuple[AnyPath, int], chosen: Selection, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the chosen rows of a piece (`Parts`), in batches of bounded size."""
    path, row_group = piece
    large = _PAYLOAD.intersection(columns)
    for rows in read_bounded(path, row_group, columns=columns, large=large, most=_READ_ROWS):
        yield from chosen.of(rows)


def changes_in(piece: tuple[AnyPath, int]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a piece of the change log, with all of its columns but the landing day.

    A file that Spark wrote has other types.
    """
    path, row_group = piece
    schema = pa.schema([CHANGE_LOG_SCHEMA.field(name) for name in _FILE_COLUMNS])
    return read_bounded_as(
        path, row_group, schema, _FILE_COLUMNS, None, large=_PAYLOAD, most=_READ_ROWS
    )


def write_rows(rows: Iterable[pa.RecordBatch], *, batch: int, into: LakePaths) -> DecodedFiles:
    """Write decoded rows, one file for each landing day, and the errors into another file."""
    writers: dict[date, FileWriter] = {}
    faulty: FileWriter | None = None
    totals: list[Totals] = []
    errors = 0
    for group in _groups(rows):
        is_error = pc.equal(group["kind"], ERROR)
        bad = pc.sum(is_error).as_py() or 0
        errors += bad
        if bad:
            faulty = faulty or FileWriter(into.quarantine, FAULT_SCHEMA)
            faulty.write(decode_faults(group.filter(is_error), batch))
        # Rows may be large, so they are copied only if necessary.
        changes = group.filter(pc.invert(is_error)) if bad else group
        totals += totals_of(changes)
        days = changes["landed_day"].unique().to_pylist()
        for day in days:
            own = changes if len(days) == 1 else changes.filter(ds.field("landed_day") == day)
            own = own.select(_FILE_COLUMNS)
            if day not in writers:
                partition = {"landed_day": day.isoformat()}
                writers[day] = FileWriter(
                    into.change_log,
                    own.schema,
                    partition=partition,
                    bounded=BOUNDED,
                    distinct=DISTINCT,
                )
            writers[day].write(own)
            del own
        # A loop's variables keep their rows alive while the next ones are made.
        is_large = group.nbytes >= _GROUP_BYTES
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

COUNTED = [name for name in TOTALS_COLUMNS if name != "landed_day"]
"""The columns in files that totals need; the day is in no file."""


def totals_in_files(spark: Session, log: AnyPath, chosen: Selection) -> list[Totals]:
    """Return the totals of rows of a change log.

    Args:
        spark: the session, which is not used if they are few.
        log: the change log.
        chosen: the rows.
    """

    def counted(some: Iterable[tuple[AnyPath, int]]) -> Iterator[list[Totals]]:
        for piece in some:
            for rows in rows_in(piece, chosen, COUNTED):
                yield totals_of(with_day(rows))

    parts = parts_of(log, chosen)
    runs_on = executor(spark, log, "counting changes", rows=parts.rows, size=0)
    found = runs_on.run(counted, parts.pieces, tasks=runs_on.workers)
    return joined_totals(group for groups in found for group in groups)


def with_day(rows: pa.RecordBatch | pa.Table) -> pa.Table:
    """Return rows of the change log with their landing day, which is in no file."""
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    return table.append_column("landed_day", table["landed_at"].cast(pa.date32()))
