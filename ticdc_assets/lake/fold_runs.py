"""Folds as work that is shared out: row groups of files to folded rows, for one mirror or for many.

In: for each mirror where its changes and the rows before them are (`Rows`), and the functions from
these to effects. Out: for each a `Folded`: its rows as a mirror has them, or as a MERGE needs them,
the changes that did not fit, and counts.

The parts are row groups of files, the step makes effects of them, the bucket is a hash of the key,
and each bucket is folded for itself (`folding`). Few rows are tables in this process and stay here;
many are read from files and written to files, so what a worker holds at a time is bounded
(`_ROWS_PER_BUCKET`, `_READ_AHEAD`, `_HELD_BYTES`), whatever the number of changes and of mirrors.
What a part has of a key is thinned before it goes to the key's bucket, so a key that changes all
the time does not fill the worker that folds it. All mirrors that are new are one job, which reads
the change log once.

Why running it again is safe: see `files`; a folder of `scratch` is of nobody but this run.
"""

import atexit
import math
import shutil
import tempfile
import time
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from pathlib import Path
from threading import Lock
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from ticdc_assets.lake.bag_effects import of_no_change
from ticdc_assets.lake.effects import effect_schema
from ticdc_assets.lake.executing import Executor
from ticdc_assets.lake.files import FileWriter, WrittenFile, read_bounded_as, texts_of
from ticdc_assets.lake.folding import (
    FoldCounts,
    FoldedRows,
    KnownColumns,
    fold_effects,
    joined_counts,
    never_sent,
    thinned,
    with_origins,
)
from ticdc_assets.lake.mirror_rows import ArrowMap, MirrorLayout, put_rows
from ticdc_assets.lake.paths import LakePaths
from ticdc_assets.schemas import TableSchema

_ROWS_PER_BUCKET = 100_000
"""Changes that are folded at a time, about: keys are spread over buckets by their hash."""

_BYTES_PER_BUCKET = 256 << 20
"""Bytes of their images, about."""

_READ_ROWS = 10_000
"""Rows that a worker converts at a time."""

_READ_AHEAD = 100_000
"""Rows of the change log that wait in a worker until there are enough of their mirror."""

_HELD_BYTES = 64 << 20
"""Bytes of a bucket's effects from which on they are thinned while more come."""


# Rows -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows that steps read: a table in this process, or row groups of Parquet files.

    Attributes:
        schema: their columns; in files these may go by other names (`stored`).
        table: the rows, if they are in this process.
        groups: path and numbers of row groups, if they are in files.
        stored: names of the columns in the files, in order.
        large: which of these may have large values.
        condition: which of the rows in the files are meant, by the names of `schema`; all if None.
        count: how many rows, about.
        size: their bytes, about; 0 if nobody knows.
    """

    schema: pa.Schema
    table: pa.Table | None = None
    groups: tuple[tuple[str, tuple[int, ...]], ...] = ()
    stored: tuple[str, ...] = ()
    large: tuple[str, ...] = ()
    condition: ds.Expression | None = None
    count: int
    size: int = 0

    @classmethod
    def here(cls, table: pa.Table) -> "Rows":
        """Return rows that are in this process."""
        return cls(schema=table.schema, table=table, count=table.num_rows, size=table.nbytes)

    @classmethod
    def of_files(
        cls, paths: Sequence[Path], schema: pa.Schema, stored: Sequence[str] | None = None
    ) -> "Rows":
        """Return the rows of whole files."""
        footers = [(str(path), pq.read_metadata(path)) for path in paths]
        names = tuple(schema.names if stored is None else stored)
        return cls(
            schema=schema,
            groups=tuple((path, tuple(range(item.num_row_groups))) for path, item in footers),
            stored=names,
            large=texts_of(schema, names),
            count=sum(footer.num_rows for _, footer in footers),
        )

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches of bounded size."""
        for part in self.parts():
            yield from part.read()

    def parts(self) -> "list[RowPart]":
        """Return the parts that steps read."""
        if self.table is not None:
            return [RowPart(table=self.table)]
        return [
            RowPart(
                path=path,
                groups=numbers,
                schema=self.schema,
                stored=self.stored,
                large=self.large,
                condition=self.condition,
            )
            for path, numbers in self.groups
        ]


@dataclass(frozen=True, kw_only=True)
class RowPart:
    """Some rows, and which source of which mirror they are of; of the change log if of none."""

    table: pa.Table | None = None
    path: str = ""
    groups: tuple[int, ...] = ()
    schema: pa.Schema | None = None
    stored: tuple[str, ...] = ()
    large: tuple[str, ...] = ()
    condition: ds.Expression | None = None
    mirror: int | None = None
    source: int = 0

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches of bounded size."""
        if self.table is not None:
            yield from self.table.to_batches(max_chunksize=_READ_ROWS)
            return
        assert self.schema is not None
        for number in self.groups:
            yield from read_bounded_as(
                Path(self.path),
                number,
                self.schema,
                self.stored,
                self.condition,
                large=self.large,
                most=_READ_ROWS,
            )


class Scratch:
    """A folder for files of one run, beside the changefeed's tables.

    Who only reads a lake may not be allowed to write to it, and gets one of the system's.

    Args:
        paths: tables of the changefeed.
        prefix: how the folder's name begins: `WRITING` or `READING`.
    """

    def __init__(self, paths: LakePaths, prefix: str) -> None:
        self._paths = paths
        self._prefix = prefix
        self._lock = Lock()
        self._root: Path | None = None

    def folder(self) -> Path:
        """Return a new folder."""
        with self._lock:
            if self._root is None:
                self._root = self._made()
                atexit.register(self.close)
            folder = self._root / uuid.uuid4().hex
        folder.mkdir()
        return folder

    def _made(self) -> Path:
        root = self._paths.base / f"{self._prefix}{uuid.uuid4().hex}"
        try:
            root.mkdir()
        except OSError:
            return Path(tempfile.mkdtemp(prefix="ticdc-assets-"))
        return root

    def close(self) -> None:
        """Remove the folders; there may be new ones afterwards."""
        with self._lock:
            root, self._root = self._root, None
        if root is not None:
            atexit.unregister(self.close)
            shutil.rmtree(root, ignore_errors=True)


WRITING = ".scratch-"
"""Folders of the one writer of a lake."""

READING = ".reading-"
"""Folders of those who read it meanwhile."""

_FORGOTTEN_SECONDS = 86_400


def remove_forgotten(paths: LakePaths) -> None:
    """Remove folders that killed runs left; the one writer of a lake does so as it begins."""
    for folder in paths.base.glob(f"{WRITING}*"):
        shutil.rmtree(folder, ignore_errors=True)
    for folder in paths.base.glob(f"{READING}*"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > _FORGOTTEN_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)


# Folds ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Output:
    """What is to come of a fold.

    Attributes:
        folder: where files of rows come; None to have all in this process.
        faults: where files of faults come.
        is_table: whether the folder is the mirror's own, and columns have its names in the files;
            else they are numbered.
        for_merge: whether the rows are the source of a MERGE (`merge_schema`), not a mirror's.
    """

    folder: Path | None = None
    faults: Path | None = None
    is_table: bool = False
    for_merge: bool = False


@dataclass(frozen=True, kw_only=True)
class MirrorFold:
    """What is folded for one mirror.

    Attributes:
        schema: the mirror's schema.
        condition: which rows of the change log are its changes; None for all that are given.
        convert: the function from changes to effects.
        before: the rows that changes are folded over, with the functions from them to effects.
        ddl_stamps: as of `folding.thinned`.
        watched: keys of effects whose newest whole change is asked for.
        output: what is to come of it.
        rows: how many changes there are, about.
        size: their bytes, about.
    """

    schema: TableSchema
    condition: ds.Expression | None
    convert: ArrowMap
    before: Sequence[tuple[Rows, ArrowMap]] = ()
    ddl_stamps: Sequence[int] = ()
    watched: frozenset[str] = frozenset()
    output: Output
    rows: int
    size: int = 0

    @property
    def keyed(self) -> bool:
        """Whether the table has a key."""
        return bool(self.schema.handle_key)

    @property
    def effects(self) -> pa.Schema:
        """Schema of its effects."""
        return (
            effect_schema(self.schema) if self.keyed else with_origins(effect_schema(self.schema))
        )

    def buckets(self, workers: int) -> int:
        """Return among how many buckets its keys are spread, with so many workers."""
        rows = self.rows + sum(rows.count for rows, _ in self.before)
        size = self.size + sum(rows.size for rows, _ in self.before)
        return buckets_for(rows, size, workers)


def buckets_for(rows: int, size: int, workers: int) -> int:
    """Return among how many buckets so many rows and bytes are spread, with so many workers."""
    if workers == 1:
        return 1
    most = min(_ROWS_PER_BUCKET, math.ceil(rows / workers)) or 1
    return max(1, math.ceil(rows / most), math.ceil(size / _BYTES_PER_BUCKET))


@dataclass(frozen=True, kw_only=True)
class FoldedTable:
    """Rows that a fold left: in this process, or in files.

    Attributes:
        schema: their columns, by their names.
        stored: names of the columns in the files.
        table: the rows, if they are in this process.
        folder: where the files are.
        files: the files, relative to the folder.
    """

    schema: pa.Schema
    stored: tuple[str, ...]
    table: pa.Table | None = None
    folder: Path | None = None
    files: tuple[WrittenFile, ...] = ()

    @property
    def paths(self) -> list[Path]:
        """Paths of the files."""
        return [] if self.folder is None else [self.folder / file.path for file in self.files]

    def rows(self) -> Rows:
        """Return the rows for another step."""
        if self.table is not None:
            return Rows.here(self.table)
        return Rows.of_files(self.paths, self.schema, self.stored)

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows, a file at a time."""
        if self.table is not None:
            yield self.table
        for path in self.paths:
            # A file alone, not a part of a table whose partitions its path tells.
            with pq.ParquetFile(path) as file:
                found = file.read(columns=list(self.stored))
            yield found.rename_columns(self.schema.names).cast(self.schema)

    def read(self) -> pa.Table:
        """Read the rows into this process."""
        return pa.concat_tables([self.schema.empty_table(), *self.tables()])

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the rows in Spark."""
        if self.table is not None or not self.files:
            return frame_of(spark, self.read())
        stored = pa.schema(
            [item.with_name(name) for item, name in zip(self.schema, self.stored, strict=True)]
        )
        # Spark takes no name with a blank in it from a file, but every name of a column.
        read = spark.read.schema(from_arrow_schema(stored, prefer_timestamp_ntz=True))
        return read.parquet(*map(str, self.paths)).toDF(*self.schema.names)


@dataclass(frozen=True, kw_only=True)
class Folded:
    """What came of a fold.

    Attributes:
        schema: of the mirror.
        counts: in numbers.
        never_sent: columns that every image of the put rows lacked.
        newest: commit ts of the last whole change that fits, of the watched keys that have one.
        rows: the rows that are there afterwards, or the source of a MERGE.
        faults: the changes that did not fit (`FAULT_COLUMNS`).
        before: what is known of the columns of the rows that the changes were folded over.
        pieces: the rows, some at a time, if their values are too large to be held; then `rows` has
            none.
    """

    schema: TableSchema
    counts: FoldCounts
    never_sent: frozenset[str]
    newest: Mapping[str, int]
    rows: FoldedTable
    faults: FoldedTable
    before: KnownColumns = field(default_factory=KnownColumns)
    pieces: Callable[[], Iterator[pa.Table]] | None = None


@dataclass(frozen=True, kw_only=True)
class _Part:
    mirror: int
    counts: FoldCounts
    missing: frozenset[tuple[str, ...]]
    newest: Mapping[str, int]
    rows: WrittenFile | pa.Table | None
    faults: WrittenFile | pa.Table | None


FAULT_COLUMNS = (
    *("key", "sequence", "is_delete", "is_new", "is_partial"),
    *("reason", "position", "expected", "got"),
)
"""Columns of effects that are left of a change that did not fit."""


def fault_schema(schema: TableSchema) -> pa.Schema:
    """Return the Arrow schema of the changes that did not fit."""
    effects = effect_schema(schema)
    return pa.schema([effects.field(name) for name in FAULT_COLUMNS])


def merge_schema(schema: TableSchema) -> pa.Schema:
    """Return the Arrow schema of a MERGE's source: `deleted`, `keeps`, and `s0`, `s1`, ...

    These are the columns of the mirror, in its order. `keeps` says that a row that is there stays
    as it is but for the mark.
    """
    layout = MirrorLayout(schema=schema).arrow
    return pa.schema(
        [
            ("deleted", pa.bool_()),
            ("keeps", pa.bool_()),
            *((f"s{number}", item.type) for number, item in enumerate(layout)),
        ]
    )


def run_folds(executor: Executor, log: Rows, mirrors: Sequence[MirrorFold]) -> list[Folded]:
    """Fold the changes of mirrors over the rows before them.

    Args:
        executor: runs it; in this process if an output has no folder.
        log: where all changes are.
        mirrors: what is to be folded.
    """
    # The buckets of all mirrors are numbered through: `firsts` says where those of each begin.
    buckets = [mirror.buckets(executor.workers) for mirror in mirrors]
    *firsts, total = accumulate(buckets, initial=0)

    def effects_of(some: Iterable[RowPart]) -> Iterator[tuple[int, pa.RecordBatch]]:
        parts = list(some)
        changes = (batch for part in parts if part.mirror is None for batch in part.read())
        found = (
            (number, effects)
            for number, rows in _divided(changes, mirrors)
            for effects in mirrors[number].convert(rows)
        )
        for number, effects in found:
            for bucket, rows in _sorted_out(effects, mirrors[number], buckets[number]):
                yield firsts[number] + bucket, rows
        for part in parts:
            if part.mirror is None:
                continue
            mirror = mirrors[part.mirror]
            _, convert = mirror.before[part.source]
            for effects in convert(part.read()):
                own = effects if mirror.keyed else of_no_change(effects)
                for bucket, rows in _sorted_out(own, mirror, buckets[part.mirror]):
                    yield firsts[part.mirror] + bucket, rows

    def fold(bucket: int, batches: Iterator[pa.RecordBatch]) -> Iterator[_Part]:
        number = bisect_right(firsts, bucket) - 1
        mirror = mirrors[number]
        effects = _gathered(batches, mirror)
        yield _part(number, mirror, fold_effects(effects, keyed=mirror.keyed))

    parts = log.parts() if mirrors else []
    for number, mirror in enumerate(mirrors):
        for source, (rows, _) in enumerate(mirror.before):
            parts += (replace(part, mirror=number, source=source) for part in rows.parts())
    tasks = max(total, executor.workers)
    found = executor.reduce(effects_of, parts, fold, tasks=tasks, buckets=total)
    return [
        _joined(mirror, [part for part in found if part.mirror == number])
        for number, mirror in enumerate(mirrors)
    ]


def _divided(
    batches: Iterable[pa.RecordBatch], mirrors: Sequence[MirrorFold]
) -> Iterator[tuple[int, list[pa.RecordBatch]]]:
    """Yield the changes of each mirror, some thousands at a time, with the mirror's number."""
    held: list[list[pa.Table]] = [[] for _ in mirrors]
    counts = [0] * len(mirrors)
    sizes = [0] * len(mirrors)

    def taken(number: int) -> tuple[int, list[pa.RecordBatch]]:
        table = pa.concat_tables(held[number]).combine_chunks()
        held[number], counts[number], sizes[number] = [], 0, 0
        return number, table.to_batches()

    for batch in batches:
        rows = pa.Table.from_batches([batch])
        for number, mirror in enumerate(mirrors):
            one = len(mirrors) == 1 or mirror.condition is None
            own = rows if one else rows.filter(mirror.condition)
            if own.num_rows:
                held[number].append(own)
                counts[number] += own.num_rows
                sizes[number] += own.nbytes
                if counts[number] >= _READ_ROWS or sizes[number] >= _HELD_BYTES:
                    yield taken(number)
        if sum(counts) >= _READ_AHEAD or sum(sizes) >= 2 * _HELD_BYTES:
            yield from (taken(number) for number, count in enumerate(counts) if count)
    yield from (taken(number) for number, count in enumerate(counts) if count)


def _sorted_out(
    effects: pa.RecordBatch, mirror: MirrorFold, buckets: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield what is needed of effects, with the bucket that their keys belong to."""
    table = pa.Table.from_batches([effects])
    table = thinned(table, keyed=mirror.keyed, ddl_stamps=mirror.ddl_stamps)
    for rows in table.combine_chunks().to_batches():
        if buckets == 1:
            yield 0, rows
            continue
        yield from in_buckets(rows, buckets)


def in_buckets(effects: pa.RecordBatch, buckets: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield effects with the bucket that their keys belong to."""
    keys = effects.column("key").to_pylist()
    hashes: Iterable[int] = (crc32(key.encode()) for key in keys)
    if "identity" in effects.schema.names:
        # A change whose row cannot be told is told by what it is.
        identities = effects.column("identity").to_pylist()
        hashes = (
            crc32(own if key.startswith("!") and own is not None else key.encode())
            for key, own in zip(keys, identities, strict=True)
        )
    places = np.fromiter(hashes, np.int64, len(keys)) % buckets
    ordered = effects.take(pa.array(np.argsort(places, kind="stable")))
    ends = np.cumsum(np.bincount(places, minlength=buckets)).tolist()
    for bucket, (begin, end) in enumerate(pairwise([0, *ends])):
        if end > begin:
            yield bucket, ordered.slice(begin, end - begin)


def _gathered(batches: Iterator[pa.RecordBatch], mirror: MirrorFold) -> pa.Table:
    """Return the effects of a bucket, thinned each time that there are many more."""
    held: list[pa.RecordBatch] = []
    size, most = 0, _HELD_BYTES
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size > most:
            table = thinned(
                pa.Table.from_batches(held), keyed=mirror.keyed, ddl_stamps=mirror.ddl_stamps
            )
            held, size = table.to_batches(), table.nbytes
            most = max(_HELD_BYTES, 2 * size)
    return pa.Table.from_batches(held, mirror.effects)


def _part(number: int, mirror: MirrorFold, folded: FoldedRows) -> _Part:
    """Keep or write what is left of a bucket."""
    output = mirror.output
    rows = _output_rows(folded.rows, mirror)
    faults = folded.rows.filter(ds.field("reason").is_valid()).select(list(FAULT_COLUMNS))
    return _Part(
        mirror=number,
        counts=folded.counts,
        missing=folded.missing,
        newest=_newest(folded.rows, mirror.watched),
        rows=kept(rows, output.folder, numbered=not output.is_table),
        faults=kept(faults, output.faults, numbered=False),
    )


def _output_rows(folded: pa.Table, mirror: MirrorFold) -> pa.Table:
    layout = MirrorLayout(schema=mirror.schema)
    if not mirror.output.for_merge:
        return put_rows(folded, layout)
    fits = folded.filter(ds.field("reason").is_null()).combine_chunks()
    target = merge_schema(mirror.schema)
    if not fits.num_rows:
        return target.empty_table()
    places = [f"c{number}" for number in range(len(layout.schema.columns))]
    stamps = fits["sequence"].chunk(0).field("commit_ts")
    columns = [fits["is_delete"], fits["keeps_row"], *(fits[place] for place in places)]
    return pa.table([*columns, stamps, fits["extra"]], schema=target)


def kept(
    rows: pa.Table, folder: Path | None, *, numbered: bool = False
) -> WrittenFile | pa.Table | None:
    """Return rows as they are, or the file that they were written to; None of none."""
    if folder is None:
        return rows
    if not rows.num_rows:
        return None
    if numbered:
        rows = rows.rename_columns(_numbers(rows.schema))
    writer = FileWriter(folder, rows.schema)
    writer.write(rows)
    return writer.close()


def _numbers(schema: pa.Schema) -> list[str]:
    return [f"c{number}" for number in range(len(schema))]


def _newest(folded: pa.Table, watched: frozenset[str]) -> dict[str, int]:
    if not watched:
        return {}
    found = folded.filter(
        ds.field("key").isin(list(watched)) & ds.field("reason").is_null() & ~ds.field("keeps_row")
    )
    rows = found.select(["key", "sequence"]).to_pylist()
    return {row["key"]: row["sequence"]["commit_ts"] for row in rows}


def _joined(mirror: MirrorFold, parts: Sequence[_Part]) -> Folded:
    output = mirror.output
    schema = mirror.schema
    target = merge_schema(schema) if output.for_merge else MirrorLayout(schema=schema).arrow
    counts = joined_counts(part.counts for part in parts)
    missing = frozenset[tuple[str, ...]]().union(*(part.missing for part in parts))
    stored = target.names if output.is_table else _numbers(target)
    faults = fault_schema(schema)
    return Folded(
        schema=schema,
        counts=counts,
        never_sent=never_sent(counts, missing),
        newest={key: ts for part in parts for key, ts in part.newest.items()},
        rows=folded_table([part.rows for part in parts], target, stored, output.folder),
        faults=folded_table([part.faults for part in parts], faults, faults.names, output.faults),
    )


def folded_table(
    found: Sequence[WrittenFile | pa.Table | None],
    schema: pa.Schema,
    stored: Sequence[str],
    folder: Path | None,
) -> FoldedTable:
    """Return what is left of all buckets as one table (`kept`)."""
    files = tuple(item for item in found if isinstance(item, WrittenFile))
    tables = [item for item in found if isinstance(item, pa.Table)]
    is_here = folder is None or bool(tables)
    return FoldedTable(
        schema=schema,
        stored=tuple(stored),
        table=pa.concat_tables([schema.empty_table(), *tables]) if is_here else None,
        folder=folder,
        files=files,
    )


def fold_of_pieces(
    schema: TableSchema,
    folded: FoldedRows,
    pieces: Callable[[], Iterator[pa.Table]],
    watched: frozenset[str],
) -> Folded:
    """Return a folding of values that are too large to be held."""
    layout = MirrorLayout(schema=schema)
    faults = folded.rows.filter(ds.field("reason").is_valid()).select(list(FAULT_COLUMNS))
    return Folded(
        schema=schema,
        counts=folded.counts,
        never_sent=never_sent(folded.counts, folded.missing),
        newest=_newest(folded.rows, watched),
        rows=folded_table([], layout.arrow, layout.names, None),
        faults=folded_table([faults], fault_schema(schema), faults.column_names, None),
        pieces=lambda: (put_rows(rows, layout) for rows in pieces()),
    )


def frame_of(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Return rows that are here as a DataFrame."""
    schema = from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
    if not rows.num_rows:
        return spark.createDataFrame([], schema=schema)
    # Of a table in more than one chunk Spark takes the first of each slice that it makes.
    return spark.createDataFrame(rows.combine_chunks(), schema=schema)


def faults_as_effects(schema: TableSchema) -> ArrowMap:
    """Return the function from changes that did not fit elsewhere to effects on another table."""
    target = effect_schema(schema)

    def convert(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_arrays(
                [
                    batch.column(item.name)
                    if item.name in FAULT_COLUMNS
                    else pa.nulls(batch.num_rows, item.type)
                    for item in target
                ],
                schema=target,
            )

    return convert
