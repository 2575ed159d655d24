"""Distributed folds: from row groups of files to folded rows, for one mirror or many.

In: for each mirror, the location of its changes and earlier rows (`Rows`), and the functions from
these to operations. Out: for each mirror, a `Folded`: its rows, the changes that do not fit, and
counts.

The parts are row groups of files, the step makes operations from them, the bucket is a hash of the
key, and each bucket is folded separately (`folding`). Few rows stay in this process; many are read
from files and written to files, so the memory of a worker is limited (`_READ_AHEAD`,
`_HELD_BYTES`). Operations are thinned before they go to the bucket of their key, so a key that
changes all the time does not fill its worker. One job folds all mirrors and reads the log once.

Why running it again is safe: see `files`; a folder of `scratch` belongs to one run.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ticdc_assets.delta.files import FileLayout
from ticdc_assets.delta.row_schema import filled_batch
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.rows.bag_operations import of_no_change
from ticdc_assets.rows.folding import (
    FoldCounts,
    KnownColumns,
    fold_operations,
    joined_counts,
    never_sent,
    thinned,
    with_origins,
)
from ticdc_assets.rows.mirror_rows import ArrowMap, MirrorLayout, put_rows
from ticdc_assets.rows.row_operations import operation_schema
from ticdc_assets.rows.rows_of_work import (
    READ_ROWS,
    Rows,
    Sort,
    buckets_for,
    by_name,
    in_buckets,
    kept,
    reduced,
)
from ticdc_assets.spark.executing import Executor
from ticdc_assets.storage.paths import AnyPath

_READ_AHEAD = 100_000
"""Rows of the change log that wait in a worker for more rows of their mirror."""

_HELD_BYTES = 64 << 20
"""Bytes of a bucket's operations above which they are thinned while more come."""


# Folds ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Output:
    """The wanted output of a fold.

    Attributes:
        folder: the folder for files of rows; None to have all in this process.
        faults: the folder for files of faults.
        layout: how these files are written if they are a table's own; None for numbered columns.
        with_keys: whether the keys of changed rows are wanted (`ChangedKeys`).
    """

    folder: AnyPath | None = None
    faults: AnyPath | None = None
    layout: FileLayout | None = None
    with_keys: bool = False


@dataclass(frozen=True, kw_only=True)
class ChangedKeys:
    """The keys of changed rows, each once.

    Attributes:
        rows: by the names of the mirror, the columns of the key (all columns, if the table has
            none) and the rescued data.
        flags: for each key the commit ts of its last change, and whether an existing row keeps
            everything but its mark (`keeps`); such a key is not among the put rows. Without a key,
            for each row, how many more copies there are (`net`). Both have the lowest such number
            on the way (`least`): below 0 if a delete came first.
    """

    rows: pa.Table
    flags: pa.Table


@dataclass(frozen=True, kw_only=True)
class MirrorFold:
    """The fold of one mirror.

    Attributes:
        schema: the mirror's schema.
        names: (database, table) that its changes may cite.
        condition: which of the rows that cite them are its changes; None for all, if it is alone.
        convert: the function from changes to operations.
        before: the rows that changes are folded over, with the functions from them to operations.
        ddl_stamps: as in `folding.thinned`.
        watched: keys of operations whose newest whole change is wanted.
        output: the wanted output.
        rows: about how many changes there are.
        size: about how many bytes they have.
    """

    schema: TableSchema
    names: frozenset[tuple[str, str]] = frozenset()
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
    def operations(self) -> pa.Schema:
        """Schema of its operations."""
        operations = operation_schema(self.schema)
        return operations if self.keyed else with_origins(operations)

    def thinned(self, operations: Iterable[pa.RecordBatch]) -> pa.Table:
        """Return the operations that count (`folding.thinned`)."""
        table = pa.Table.from_batches(operations)
        return thinned(table, keyed=self.keyed, ddl_stamps=self.ddl_stamps)

    def buckets(self, workers: int) -> int:
        """Return the number of buckets for its keys, with so many workers."""
        rows = self.rows + sum(rows.count for rows, _ in self.before)
        size = self.size + sum(rows.size for rows, _ in self.before)
        return buckets_for(rows, size, workers)


@dataclass(frozen=True, kw_only=True)
class Folded:
    """The result of a fold.

    Attributes:
        counts: the counts of the fold.
        missing: as in `folding.FoldedRows`.
        newest: commit ts of the last whole change that fits, for the watched keys that have one.
        rows: the rows after the fold.
        faults: the changes that did not fit (`FAULT_COLUMNS`).
        before: the columns of the rows that the changes were folded over.
        keys: the keys of changed rows, if they are wanted.
    """

    counts: FoldCounts
    missing: frozenset[tuple[str, ...]]
    newest: Mapping[str, int]
    rows: Rows
    faults: Rows
    before: KnownColumns = field(default_factory=KnownColumns)
    keys: ChangedKeys | None = None

    @property
    def never_sent(self) -> frozenset[str]:
        """The columns that every image of the put rows lacked."""
        return never_sent(self.missing)


FAULT_COLUMNS = (
    *("key", "sequence", "is_delete", "is_partial"),
    *("reason", "position", "expected", "got"),
)
"""Columns of operations that are kept of a change that did not fit."""


def fault_schema(schema: TableSchema) -> pa.Schema:
    """Return the Arrow schema of the changes that did not fit."""
    operations = operation_schema(schema)
    return pa.schema([operations.field(name) for name in FAULT_COLUMNS])


def run_folds(executor: Executor, log: Rows, mirrors: Sequence[MirrorFold]) -> list[Folded]:
    """Fold the changes of mirrors, all in `log`, over the rows before them.

    The executor runs the folds in this process if an output has no folder.
    """
    # The buckets of all mirrors are numbered consecutively: `firsts` says where those of each
    # begin.
    buckets = [mirror.buckets(executor.workers) for mirror in mirrors]
    *firsts, total = accumulate(buckets, initial=0)

    def put(number: int, operations: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        for rows in mirrors[number].thinned([operations]).combine_chunks().to_batches():
            is_one = buckets[number] == 1
            for bucket, share in [(0, rows)] if is_one else in_buckets(rows, buckets[number]):
                yield firsts[number] + bucket, share

    def of_changes(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
        for number, rows in _divided(batches, mirrors):
            for operations in mirrors[number].convert(rows):
                yield from put(number, operations)

    def of_earlier(number: int, convert: ArrowMap) -> Sort:
        def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
            for operations in convert(batches):
                earlier = operations if mirrors[number].keyed else of_no_change(operations)
                yield from put(number, earlier)

        return rows

    def fold(bucket: int, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, Folded]]:
        number = bisect_right(firsts, bucket) - 1
        yield number, _folded(mirrors[number], batches)

    sources: list[tuple[Rows, Sort]] = [(log, of_changes)] if mirrors else []
    for number, mirror in enumerate(mirrors):
        sources += ((rows, of_earlier(number, convert)) for rows, convert in mirror.before)
    folds = reduced(executor, sources, fold, buckets=total)
    parts: list[list[Folded]] = [[] for _ in mirrors]
    for number, part in folds:
        parts[number].append(part)
    return [
        _joined(mirror_parts) if mirror_parts else _folded(mirror, ())
        for mirror, mirror_parts in zip(mirrors, parts, strict=True)
    ]


def _divided(
    batches: Iterable[pa.RecordBatch], mirrors: Sequence[MirrorFold]
) -> Iterator[tuple[int, list[pa.RecordBatch]]]:
    """Yield the changes of each mirror, some thousands at a time, with the mirror's number."""
    held: list[list[pa.Table]] = [[] for _ in mirrors]
    counts = [0] * len(mirrors)
    sizes = [0] * len(mirrors)
    citing: dict[tuple[str, str], list[int]] = {}
    for number, mirror in enumerate(mirrors):
        for name in mirror.names:
            citing.setdefault(name, []).append(number)

    def taken(number: int) -> tuple[int, list[pa.RecordBatch]]:
        table = pa.concat_tables(held[number]).combine_chunks()
        held[number], counts[number], sizes[number] = [], 0, 0
        return number, table.to_batches()

    def shares(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.Table]]:
        if mirrors[0].condition is None:
            yield 0, pa.Table.from_batches([batch])
            return
        for name, rows in by_name(batch):
            for number in citing.get(name, ()):
                yield number, pa.Table.from_batches([rows]).filter(mirrors[number].condition)

    for batch in batches:
        for number, changes in shares(batch):
            if changes.num_rows:
                held[number].append(changes)
                counts[number] += changes.num_rows
                sizes[number] += changes.nbytes
                if counts[number] >= READ_ROWS or sizes[number] >= _HELD_BYTES:
                    yield taken(number)
        if sum(counts) >= _READ_AHEAD or sum(sizes) >= 2 * _HELD_BYTES:
            yield from (taken(number) for number, count in enumerate(counts) if count)
    yield from (taken(number) for number, count in enumerate(counts) if count)


def _folded(mirror: MirrorFold, batches: Iterable[pa.RecordBatch]) -> Folded:
    """Fold the operations of a bucket, and keep or write what is left of them."""
    held: list[pa.RecordBatch] = []
    size, most = 0, _HELD_BYTES
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size > most:
            table = mirror.thinned(held)
            held, size = table.to_batches(), table.nbytes
            most = max(_HELD_BYTES, 2 * size)
    folded = fold_operations(pa.Table.from_batches(held, mirror.operations), keyed=mirror.keyed)
    output, puts, newest = mirror.output, folded.rows, dict[str, int]()
    if output.with_keys:
        # Without a key, the copies of a row are known once the existing ones have been counted.
        puts = puts.filter(~ds.field("keeps_row")) if mirror.keyed else puts.slice(0, 0)
    if mirror.watched:
        whole = ds.field("reason").is_null() & ~ds.field("keeps_row")
        watched = folded.rows.filter(ds.field("key").isin(list(mirror.watched)) & whole)
        stamps = pc.struct_field(watched["sequence"], "commit_ts")
        newest.update(zip(watched["key"].to_pylist(), stamps.to_pylist(), strict=True))
    faults = folded.rows.filter(ds.field("reason").is_valid()).select(list(FAULT_COLUMNS))
    return Folded(
        counts=folded.counts,
        missing=folded.missing,
        newest=newest,
        rows=kept(put_rows(puts, MirrorLayout(schema=mirror.schema)), output.folder, output.layout),
        faults=kept(faults, output.faults),
        keys=_changed_keys(folded.rows, mirror.schema) if output.with_keys else None,
    )


def _changed_keys(folded: pa.Table, schema: TableSchema) -> ChangedKeys:
    """Return the keys of folded operations that fit."""
    fits = folded.filter(ds.field("reason").is_null()).combine_chunks()
    names = [column.name for column in schema.columns]
    wanted = schema.identity
    rows = pa.table(
        [*(fits[f"c{names.index(name)}"] for name in wanted), fits["rescued"]],
        names=[*wanted, MirrorLayout(schema=schema).rescued],
    )
    sources = {"keeps": "keeps_row"} if schema.handle_key else {"net": "net"}
    flags = pa.table(
        {name: fits[source] for name, source in (sources | {"least": "least"}).items()}
    )
    stamps = pc.struct_field(fits["sequence"], "commit_ts")
    return ChangedKeys(rows=rows, flags=flags.append_column("commit_ts", stamps))


def _joined(parts: Sequence[Folded]) -> Folded:
    """Return the result of a fold from those of its buckets, at least one."""
    keys = [part.keys for part in parts if part.keys is not None]
    return Folded(
        counts=joined_counts(part.counts for part in parts),
        missing=frozenset(chain.from_iterable(part.missing for part in parts)),
        newest={key: ts for part in parts for key, ts in part.newest.items()},
        rows=Rows.joined([part.rows for part in parts]),
        faults=Rows.joined([part.faults for part in parts]),
        keys=ChangedKeys(
            rows=pa.concat_tables(item.rows for item in keys).combine_chunks(),
            flags=pa.concat_tables(item.flags for item in keys).combine_chunks(),
        )
        if keys
        else None,
    )


def faults_as_operations(schema: TableSchema) -> ArrowMap:
    """Return the function from changes that did not fit to operations on another table."""
    target = operation_schema(schema)

    def convert(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = {name: batch.column(name) for name in FAULT_COLUMNS}
            yield filled_batch(target, batch.num_rows, columns)

    return convert
