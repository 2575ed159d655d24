"""Compare the records of one landing day, decoded again, with their rows in the change log.

In: row groups of files of `raw_messages` and `change_log`, and the function from records to rows.
Out: a `Comparing`: the places whose rows differ, the records that are refused now, and the faults
in quarantine that are none any more. Nothing is committed.

Each row goes to the bucket of its record as its place, a digest of its content, and a few columns;
so a record is looked at as a whole, and images do not travel. The amount of work decides where that
runs (`executing`). Places that differ stay in this process if that is all done here, else they are
in files. New faults are in files of the quarantine.

Why running it again is safe: no commit names the files (`engine.files`).
"""

# pyarrow has no type information, so what comes from it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportAttributeAccessIssue=false

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from hashlib import blake2b
from itertools import groupby
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ticdc_assets.engine.executing import Executor, executor
from ticdc_assets.engine.files import FileWriter, WrittenFile
from ticdc_assets.engine.paths import LakePaths
from ticdc_assets.engine.session import Session
from ticdc_assets.events import SNAPSHOT_DDL
from ticdc_assets.pipeline.ahead import TS_AHEAD
from ticdc_assets.pipeline.change_files import (
    CHANGE_LOG_SCHEMA,
    RECORD_COLUMNS,
    Coordinates,
    Decode,
    Everything,
    OfDay,
    Parts,
    Records,
    Selection,
    by_record,
    changes_in,
    parts_of,
    rows_in,
)
from ticdc_assets.pipeline.quarantine import (
    FAULT_SCHEMA,
    Place,
    decode_faults,
    place_of,
    table_of_places,
)
from ticdc_assets.pipeline.schema_tables import SCHEMA_KINDS
from ticdc_assets.rows.rows_of_work import KeptRows, buckets_for, kept, kept_rows
from ticdc_assets.storage.paths import AnyPath
from ticdc_assets.wire.rows import COORDINATES, ERROR, PLACE, PLACE_SCHEMA, ROW, SNAPSHOT, WATERMARK

_CONTENT = tuple(
    name for name in CHANGE_LOG_SCHEMA.names if name not in (*PLACE, "batch", "landed_day")
)
_ERROR = ("error_reason", "error_position", "error_expected", "error_got")
_DIGEST_BYTES = 16


class Side(StrEnum):
    """Where a row is from."""

    RECORD = "record"
    CHANGE_LOG = "change_log"


_Key = TypeVar("_Key")

Piece: TypeAlias = tuple[Side, tuple[AnyPath, int]]
"""A row group of `raw_messages` or of the change log."""


@dataclass(frozen=True, kw_only=True)
class Day:
    """The row groups of a landing day.

    Attributes:
        raw: those of landed records.
        log: those of the change log.
        only: the records that count; all of the day if None.
    """

    raw: Parts
    log: Parts
    only: Records | None

    @property
    def pieces(self) -> list[Piece]:
        """All of them."""
        return [
            *((Side.RECORD, piece) for piece in self.raw.pieces),
            *((Side.CHANGE_LOG, piece) for piece in self.log.pieces),
        ]

    @property
    def chosen(self) -> Selection:
        """Which of the landed records count."""
        return self.only or Everything()

    @property
    def rows(self) -> int:
        """Rows in all of them."""
        return self.raw.rows + self.log.rows

    def tasks(self, workers: int) -> int:
        """Return among how many tasks they are shared out."""
        found = [parts.tasks(workers) for parts in (self.raw, self.log)]
        return 1 if 1 in found else sum(found)

    def executor(self, spark: Session, paths: LakePaths) -> Executor:
        """Return what runs steps over all of them."""
        size = self.raw.size + self.log.size
        return executor(spark, paths.change_log, "comparing a day", rows=self.rows, size=size)


def day_of(paths: LakePaths, day: date, only: Records | None) -> Day:
    """Return the row groups of a landing day."""
    raw, log = (parts_of(table, OfDay(day)) for table in (paths.raw_messages, paths.change_log))
    return Day(raw=raw, log=log, only=only)


@dataclass(frozen=True, kw_only=True)
class OpenFaults:
    """The open faults in quarantine.

    Attributes:
        decode: places of records that could not be decoded, by record.
        apply: places of row changes that do not fit.
    """

    decode: Mapping[Coordinates, frozenset[Place]]
    apply: frozenset[Place]

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]]) -> "OpenFaults":
        """Return the faults of rows of the quarantine."""
        places: dict[str, set[Place]] = {"decode": set(), "apply": set()}
        for row in rows:
            places[row["stage"]].add(place_of(row))
        decode: defaultdict[Coordinates, set[Place]] = defaultdict(set)
        for place in places["decode"]:
            decode[place[:-1]].add(place)
        return cls(
            decode={record: frozenset(own) for record, own in decode.items()},
            apply=frozenset(places["apply"]),
        )


_Name: TypeAlias = tuple[str | None, str | None]


@dataclass(kw_only=True)
class Comparing:
    """What comparing came to, of the records of a bucket or of all.

    Attributes:
        records: records that were decoded again.
        changes: whether the change log has rows of the day that are of no export.
        parts: places whose rows are to be replaced, as the buckets left them (`kept`).
        folder: where these are files; None if they are here.
        counts: places that differ: `replaced` where the change log has other rows, `restored` where
            it lacks rows, `removed` where it has rows that no record gives.
        removed_faults: faults of applying at the last.
        tables: lowest commit ts of differing rows by (database, table), by (None, None) of
            watermarks.
        schemas: whether DDL or bootstraps differ.
        batches: batches of the change log that differing rows are of.
        landed_batches: landed batches that rows in their place are of.
        first_batches: the lowest batch of the change log by the moment its rows were landed at.
        landings: the landed batches, with that moment.
        refused: records that are refused now and keep their rows: by database, table and reason.
        faults: files of new faults, relative to the folder of the quarantine.
        quarantined: faults in these.
        released: faults of decoding that are none any more.
    """

    records: int = 0
    changes: bool = False
    parts: list[WrittenFile | pa.Table | None] = field(
        default_factory=list[WrittenFile | pa.Table | None]
    )
    folder: AnyPath | None = None
    counts: Counter[str] = field(default_factory=Counter[str])
    removed_faults: set[Place] = field(default_factory=set[Place])
    tables: dict[_Name, int] = field(default_factory=dict[_Name, int])
    schemas: bool = False
    batches: set[int] = field(default_factory=set[int])
    landed_batches: set[int] = field(default_factory=set[int])
    first_batches: dict[datetime, int] = field(default_factory=dict[datetime, int])
    landings: set[tuple[int, datetime]] = field(default_factory=set[tuple[int, datetime]])
    refused: Counter[tuple[str | None, str | None, str]] = field(
        default_factory=Counter[tuple[str | None, str | None, str]]
    )
    faults: list[WrittenFile] = field(default_factory=list[WrittenFile])
    quarantined: int = 0
    released: set[Place] = field(default_factory=set[Place])

    @property
    def places(self) -> KeptRows:
        """The places whose rows are to be replaced (`PLACE_SCHEMA`)."""
        return kept_rows(self.parts, PLACE_SCHEMA, PLACE, self.folder)

    def add(self, other: "Comparing") -> None:
        """Add what the records of another bucket came to."""
        self.records += other.records
        self.changes |= other.changes
        self.parts += other.parts
        self.counts += other.counts
        self.removed_faults |= other.removed_faults
        _lower(self.tables, other.tables)
        self.schemas |= other.schemas
        self.batches |= other.batches
        self.landed_batches |= other.landed_batches
        _lower(self.first_batches, other.first_batches)
        self.landings |= other.landings
        self.refused += other.refused
        self.faults += other.faults
        self.quarantined += other.quarantined
        self.released |= other.released


def _lower(numbers: dict[_Key, int], others: Mapping[_Key, int]) -> None:
    """Keep the lower number of each key."""
    for key, number in others.items():
        numbers[key] = min(number, numbers.get(key, number))


def compare(
    spark: Session,
    paths: LakePaths,
    day: Day,
    decode: Decode,
    *,
    known: OpenFaults,
    batch: int,
    folder: Callable[[], AnyPath],
) -> Comparing:
    """Compare the records of a day with their rows.

    Args:
        spark: the session, which is asked for nothing if they are few.
        paths: tables of the changefeed.
        day: the day.
        decode: the function from records to rows, whose batch is the landed one.
        known: the open faults.
        batch: batch of the change log that new faults are of.
        folder: gives a folder for places, if they may be many.
    """
    runs_on = day.executor(spark, paths)
    buckets = buckets_for(day.rows, 0, runs_on.workers)
    into = None if runs_on.holds else folder()
    writing = _Writing(batch=batch, paths=paths, places=into)
    only, chosen = day.only, day.chosen

    def told(some: Iterable[Piece]) -> Iterator[tuple[int, pa.RecordBatch]]:
        for side, piece in some:
            if side is Side.RECORD:
                found = decode(rows_in(piece, chosen, RECORD_COLUMNS))
            else:
                found = changes_in(piece)
            for rows in found:
                yield from by_record(_told(rows, side), buckets)

    def compared(_bucket: int, batches: Iterator[pa.RecordBatch]) -> Iterator[Comparing]:
        rows = pa.Table.from_batches(list(batches))
        yield _compared(rows, known, writing, only)

    tasks = day.tasks(runs_on.workers)
    found = runs_on.reduce(told, day.pieces, compared, tasks=tasks, buckets=buckets)
    every = Comparing(folder=into)
    for own in found:
        every.add(own)
    return every


# Rows -------------------------------------------------------------------------------------------


def _told(rows: pa.RecordBatch, side: Side) -> pa.RecordBatch:
    """Return what is told of rows: place, digest, and what decides what becomes of them."""
    if side is Side.CHANGE_LOG:
        # Rows of exports came from no record.
        is_exported = pc.or_(
            pc.equal(rows.column("kind"), SNAPSHOT),
            pc.fill_null(pc.equal(rows.column("ddl_type"), SNAPSHOT_DDL), False),
        )
        rows = rows.filter(pc.invert(is_exported))
    is_error = pc.equal(rows.column("kind"), ERROR)
    there = set(rows.schema.names)
    return pa.RecordBatch.from_arrays(
        [
            *(rows.column(name) for name in _COPIED),
            pa.repeat(side is Side.RECORD, rows.num_rows),
            pc.if_else(is_error, pa.scalar(None, pa.binary()), _digests(rows)),
            *(
                rows.column(name) if name in there else pa.nulls(rows.num_rows, pa.string())
                for name in _ERROR
            ),
        ],
        names=[*_COPIED, "now", "digest", *_ERROR],
    )


_COPIED = (*PLACE, "kind", "database", "table", "commit_ts", "batch", "landed_at")


def _digests(rows: pa.RecordBatch) -> "pa.Array[Any]":
    """Return a digest of the content of each row."""
    texts = {name: _text(rows.column(name)) for name in _CONTENT}
    # Lengths first, so no two rows have the same bytes.
    lengths = [
        pc.fill_null(pc.binary_length(text).cast(pa.string()), "-") for text in texts.values()
    ]
    short = [text for name, text in texts.items() if name not in _LONG]
    heads = pc.binary_join_element_wise(
        *lengths, *short, ",", null_handling="replace", null_replacement=""
    )
    hashes = [blake2b(head or b"", digest_size=_DIGEST_BYTES) for head in _bytes_of(heads)]
    for name in _LONG:
        for found, text in zip(hashes, _bytes_of(texts[name]), strict=True):
            if text is not None:
                found.update(text)
    return pa.array([found.digest() for found in hashes], pa.binary())


_LONG = ("before", "after", "sql", "schema", "pre_schema")
"""Columns of which Arrow could not join all that a row may have."""


def _text(column: "pa.Array[Any]") -> "pa.Array[Any]":
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int64())
    return column.cast(pa.string())


def _bytes_of(texts: "pa.Array[Any]") -> list[bytes | None]:
    return texts.cast(pa.binary()).to_pylist()


# A bucket ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Writing:
    """Where a bucket writes: faults of a batch, and places, which stay here if None."""

    batch: int
    paths: LakePaths
    places: AnyPath | None


_Row: TypeAlias = dict[str, Any]


def _compared(
    rows: pa.Table, known: OpenFaults, writing: _Writing, only: Records | None
) -> Comparing:
    """Return what became of the records of a bucket."""
    now, there = (rows.filter(pc.equal(rows["now"], is_now)) for is_now in (True, False))
    records = now.group_by(list(COORDINATES)).aggregate([])
    bucket = Comparing(
        records=records.num_rows,
        changes=there.num_rows > 0,
        landings={
            (row["batch"], row["landed_at"])
            for row in now.group_by(["batch", "landed_at"]).aggregate([]).to_pylist()
        },
        first_batches={
            row["landed_at"]: row["batch_min"]
            for row in there.group_by("landed_at").aggregate([("batch", "min")]).to_pylist()
        },
    )
    if only is not None:
        rows = rows.join(records, list(COORDINATES), join_type="left semi", use_threads=False)
    bucket.released |= _released(now, known)
    places: list[Place] = []
    faults: list[_Row] = []
    for own in _records_to_see(rows):
        differing, new = _seen(own, known, bucket)
        places += differing
        faults += new
    bucket.parts.append(kept(table_of_places(places), writing.places))
    if faults:
        # Their own columns alone: they are of no schema of the change log.
        schema = pa.schema([rows.schema.field(name) for name in (*_COPIED, *_ERROR)])
        found = decode_faults(pa.Table.from_pylist(faults, schema=schema), writing.batch)
        writer = FileWriter(writing.paths.quarantine, FAULT_SCHEMA)
        writer.write(found)
        bucket.faults.append(writer.close())
        bucket.quarantined = found.num_rows
    return bucket


def _records_to_see(rows: pa.Table) -> Iterator[list[_Row]]:
    """Yield the rows of each record that has an error, or rows that differ."""
    signs = pc.if_else(rows["now"], 1, -1)
    is_error = pc.equal(rows["kind"], ERROR)
    sums = (
        rows.append_column("sign", pc.if_else(is_error, 0, signs))
        .append_column("errors", is_error.cast(pa.int64()))
        .group_by([*PLACE, "digest"], use_threads=False)
        .aggregate([("sign", "sum"), ("errors", "sum")])
    )
    to_see = sums.filter((ds.field("sign_sum") != 0) | (ds.field("errors_sum") > 0))
    if not to_see.num_rows:
        return
    records = to_see.group_by(list(COORDINATES)).aggregate([])
    own = rows.join(records, list(COORDINATES), join_type="left semi", use_threads=False)
    ordered = own.sort_by([(name, "ascending") for name in PLACE]).to_pylist()
    for _, found in groupby(ordered, key=_record_of):
        yield list(found)


def _record_of(row: _Row) -> Coordinates:
    return place_of(row)[:-1]


def _seen(
    rows: Sequence[_Row], known: OpenFaults, bucket: Comparing
) -> tuple[list[Place], list[_Row]]:
    """Return the places of a record that differ, and its new faults; count the rest.

    Of a record that is refused now, the rows stay. But an event whose timestamp is too far ahead
    goes to quarantine.
    """
    errors = [row for row in rows if row["kind"] == ERROR]
    ahead = {place_of(row) for row in errors if row["error_reason"] == TS_AHEAD}
    differing: list[Place] = []
    keeping: set[tuple[str | None, str | None]] = set()
    keeps_rows = False
    for place, own in groupby(rows, key=place_of):
        at_place = [row for row in own if row["kind"] != ERROR]
        now, there = ([row for row in at_place if row["now"] is side] for side in (True, False))
        if _digests_of(now) == _digests_of(there):
            continue
        if errors and not now and place not in ahead:
            keeps_rows = True
            keeping |= {(row["database"], row["table"]) for row in there}
            continue
        differing.append(place)
        _count(place, now, there, known, bucket)
    if errors:
        reason = min(row["error_reason"] for row in errors)
        bucket.refused.update((*table, reason) for table in keeping)
    new = [
        row
        for row in errors
        if (not keeps_rows or row["error_reason"] == TS_AHEAD)
        and place_of(row) not in known.decode.get(_record_of(row), ())
    ]
    return differing, new


def _digests_of(rows: Iterable[_Row]) -> list[bytes]:
    return sorted(row["digest"] for row in rows)


def _count(
    place: Place,
    now: Sequence[_Row],
    there: Sequence[_Row],
    known: OpenFaults,
    bucket: Comparing,
) -> None:
    """Count a place that differs."""
    bucket.counts["replaced" if now and there else "restored" if now else "removed"] += 1
    if not now and place in known.apply:
        bucket.removed_faults.add(place)
    bucket.landed_batches |= {row["batch"] for row in now}
    bucket.batches |= {row["batch"] for row in there}
    for row in (*now, *there):
        if row["kind"] in SCHEMA_KINDS:
            bucket.schemas = True
        elif row["kind"] in (ROW, WATERMARK):
            is_row = row["kind"] == ROW
            table = (row["database"], row["table"]) if is_row else (None, None)
            _lower(bucket.tables, {table: row["commit_ts"]})


def _released(now: pa.Table, known: OpenFaults) -> set[Place]:
    """Return the known faults of records that are no errors now."""
    if not known.decode:
        return set()
    offsets = pa.array(sorted({record[-1] for record in known.decode}), now["offset"].type)
    near = now.filter(pc.is_in(now["offset"], value_set=offsets))
    rows = near.select([*PLACE, "kind"]).to_pylist()
    errors = {place_of(row) for row in rows if row["kind"] == ERROR}
    return {
        place
        for record in {_record_of(row) for row in rows}
        for place in known.decode.get(record, ())
        if place not in errors
    }
