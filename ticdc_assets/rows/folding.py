"""Fold operations: the last operation of each key or, without a key, the count of each row.

An operation with a value that does not fit (it has a `reason`) is ignored if the row changes again;
otherwise it is kept, for the quarantine, together with the last operation that fits.

A put with only the key (`is_partial`) loses to any other operation: it adds a row if there is none,
and marks an existing row (`mirror_rows.PARTIAL`).

In: operations (`row_operations.operation_schema`) as Arrow tables. Out: `FoldedRows`, one row per
key with the data for writing a mirror, and counts. `fold_runs` distributes it: `thinned` removes
operations that cannot affect the result. Folding is pure and writes nothing.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_assets.changelog.resolve import standing_casts
from ticdc_assets.rows.mirror_rows import marked
from ticdc_assets.rows.row_operations import SEQUENCE_FIELDS

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldCounts:
    """The counts of a fold.

    Attributes:
        copies: rows after it, copies counted.
        changed: keys that a change touched.
        unknown_deletes: keys whose first operation is a delete (bags: deletes of no row).
        errors: changes that did not fit.
        lost: rows of the older mirror that a schema step could not carry over.
        puts: put rows.
        casts: values that did not fit when their column was modified, of rows that existed then, by
            column and commit ts of the DDL. Counts of a part of a bag may be below 0.
    """

    copies: int = 0
    changed: int = 0
    unknown_deletes: int = 0
    errors: int = 0
    lost: int = 0
    puts: int = 0
    casts: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedRows:
    """Folded operations.

    Attributes:
        rows: one row a key: the columns of an operation, `copies`, and `keeps_row`, which says
            whether an existing row keeps everything but its mark. Also `least` and, without a key,
            `net`, as `fold_runs.ChangedKeys` has them.
        counts: the counts of the fold.
        missing: the columns that images of put rows lacked, each list of names once; an empty list
            for images that lacked none.
    """

    rows: pa.Table
    counts: FoldCounts
    missing: frozenset[tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownColumns:
    """The columns that rows have shown.

    Attributes:
        hidden: columns that no row ever had.
        columns: all columns, if there was any row.
    """

    hidden: frozenset[str] = frozenset()
    columns: frozenset[str] = frozenset()


def fold_operations(operations: pa.Table, *, keyed: bool) -> FoldedRows:
    """Fold operations on a table: all operations of each key.

    Args:
        operations: the operations.
        keyed: whether the table has a key; without one operations have `with_origins`.
    """
    return _fold_keys(operations) if keyed else _fold_bag(operations)


def never_sent(missing: Collection[tuple[str, ...]]) -> frozenset[str]:
    """Return the columns that every image of the put rows lacked, from `FoldedRows.missing`."""
    return frozenset.intersection(*map(frozenset[str], missing)) if missing else frozenset()


# With a key -------------------------------------------------------------------------------------


def _fold_keys(operations: pa.Table) -> FoldedRows:
    """Fold operations on a table with a key.

    The last whole put or delete that fits is the row. Without one, or after a delete, the first put
    of the key alone begins it. A later put of the key alone is its mark.
    """
    operations = operations.combine_chunks()
    size = operations.num_rows
    if not size:
        rows = _with_columns(operations, copies=[], keeps_row=[], least=[])
        return FoldedRows(rows=rows, counts=FoldCounts(), missing=frozenset())
    codes = _codes(operations)
    order = _order(operations, codes)
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    ends = np.append(starts[1:], size) - 1
    group = np.repeat(np.arange(len(starts)), ends - starts + 1)
    numbers = np.arange(size)
    sequence = operations.column("sequence").chunk(0)
    ranks, stamps = (sequence.field(name).to_numpy()[order] for name in ("rank", "commit_ts"))
    fits = operations.column("reason").is_null().to_numpy()[order]
    partial = fits & operations.column("is_partial").to_numpy()[order]
    is_delete = operations.column("is_delete").to_numpy()[order]

    def first_of(flags: Flags) -> Numbers:
        return np.minimum.reduceat(np.where(flags, numbers, size), starts)

    def last_of(flags: Flags) -> Numbers:
        return np.maximum.reduceat(np.where(flags, numbers, -1), starts)

    first, whole = first_of(fits), last_of(fits & ~partial)
    begin = first_of(partial & (numbers > whole[group]))
    last = np.where(((whole < 0) | is_delete[whole]) & (begin < size), begin, whole)
    mark = last_of(partial & (numbers > last[group]))
    changed = np.logical_or.reduceat(fits & (ranks >= 0), starts)
    has_fit = first < size
    first, whole, last, mark, changed = (
        item[has_fit] for item in (first, whole, last, mark, changed)
    )
    was_delete, is_gone = is_delete[first], is_delete[last]
    put = changed & ~is_gone
    bad = ends[~fits[ends]]
    none = np.zeros(len(bad), np.bool_)
    rows = _with_columns(
        operations.take(pa.array(order[np.append(last, bad)])),
        copies=np.append(~is_gone, none),
        keeps_row=np.append(whole < 0, none),
        least=-np.append(was_delete, none).astype(np.int64),
    )
    if (mark >= 0).any():
        marks = [None if place < 0 else str(stamps[place]) for place in mark.tolist()]
        rows = marked(rows, "rescued", [*marks, *([None] * len(bad))])
    counts = FoldCounts(
        copies=int(np.count_nonzero(~is_gone)),
        changed=int(np.count_nonzero(changed)),
        unknown_deletes=int(np.count_nonzero(was_delete)),
        errors=int(np.count_nonzero(ranks[bad] >= 0)),
        lost=int(np.count_nonzero(ranks[bad] < 0)),
        puts=int(np.count_nonzero(put)),
    )
    # A cast counts if the row existed at its DDL: if no change of the key came between them.
    places = np.flatnonzero(operations.column("casts").is_valid().to_numpy()[order])
    casts = operations.column("casts").take(pa.array(order[places])).to_pylist()
    for place, entries in zip(places.tolist(), casts, strict=True):
        next_ts = int(stamps[place + 1]) if place < ends[group[place]] else None
        pairs = tuple((item["column"], item["ddl_ts"]) for item in entries)
        counts.casts.update(standing_casts(pairs, next_ts))
    return FoldedRows(rows=rows, counts=counts, missing=_lacking(operations, order[last[put]]))


_ADDED = {"copies": pa.int32(), "keeps_row": pa.bool_(), "least": pa.int64(), "net": pa.int64()}
"""The columns that folding adds to operations."""


def _with_columns(rows: pa.Table, **values: npt.NDArray[Any] | Sequence[int]) -> pa.Table:
    """Return folded operations with their added columns."""
    for name, column in values.items():
        rows = rows.append_column(name, pa.array(column).cast(_ADDED[name]))
    return rows


def in_order(operations: pa.Table) -> Numbers:
    """Return the places of operations by key, within each key in the order of sequence.

    The table has one chunk and at least one row.
    """
    return _order(operations, _codes(operations))


def _codes(operations: pa.Table) -> Numbers:
    """Return a number for each operation, the same for operations of one key."""
    return operations.column("key").chunk(0).dictionary_encode().indices.to_numpy().astype(np.int64)


def _order(operations: pa.Table, codes: Numbers) -> Numbers:
    """Return the places of operations by key, within each key in the order of sequence."""
    sequence = operations.column("sequence").chunk(0)
    levels = [codes]
    for name in SEQUENCE_FIELDS:
        level = sequence.field(name)
        if name == "topic":
            encoded = level.dictionary_encode()
            names = encoded.dictionary.to_pylist()
            place = np.empty(len(names), np.int64)
            place[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
            level = place[encoded.indices.to_numpy()]
        else:
            level = level.to_numpy()
        if level.size and (level != level[0]).any():
            levels.append(level)
    return np.lexsort(levels[::-1])


def _lacking(operations: pa.Table, puts: Numbers) -> frozenset[tuple[str, ...]]:
    """Return the columns that images of puts lacked (`FoldedRows.missing`)."""
    missing = operations.column("missing").chunk(0).take(pa.array(puts))
    lists = set(map(tuple, missing.drop_null().to_pylist()))
    return frozenset(lists | {()} if missing.null_count else lists)


# Without a key ----------------------------------------------------------------------------------


def with_origins(operations: pa.Schema) -> pa.Schema:
    """Return the Arrow schema of operations on a table without a key.

    Without a key a replay looks like a second identical row, with one difference: a watermark at or
    above its commit ts came before it in its partition, and promised that no new change of this
    commit ts would follow. So an operation has the identity of its change (`identity`, a digest of
    all but its place; null without a change), and the offset of its record (`covered`) if there was
    such a watermark, else -1.
    """
    return pa.schema([*operations, ("identity", pa.binary(16)), ("covered", pa.int64())])


def without_replays(operations: pa.Table) -> pa.Table:
    """Leave out the operations of changes that were sent again, and the columns for them.

    A change after a watermark that covers it was sent again, or came late, against the promise: of
    equal ones the first counts, if none came in time. All operations of a change must be here.
    """
    covered = operations.column("covered")
    if pc.any(pc.greater_equal(covered, 0)).as_py():
        first = operations.group_by("identity").aggregate([("covered", "min")])
        places = pc.index_in(operations.column("identity"), value_set=first.column("identity"))
        is_replay = pc.greater(covered, first.column("covered_min").take(places))
        operations = operations.filter(pc.invert(is_replay))
    return operations.drop_columns(["identity", "covered"])


def _fold_bag(operations: pa.Table) -> FoldedRows:
    """Fold operations on a table without a key: count each row; report a delete of no row."""
    operations = without_replays(operations).combine_chunks()
    size = operations.num_rows
    if not size:
        nothing = _fold_keys(operations)
        return replace(nothing, rows=_with_columns(nothing.rows, net=[]))
    codes = _codes(operations)
    order = _order(operations, codes)
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    ends = np.append(starts[1:], size) - 1
    is_delete = operations.column("is_delete").to_numpy()
    # How many copies there would be if a delete of no row took one; the lowest such number is how
    # many deletes took none.
    running = np.cumsum(np.where(is_delete[order], -1, 1))
    running -= np.repeat(np.append(0, running[ends[:-1]]), ends - starts + 1)
    least = np.minimum.reduceat(running, starts)
    unknown = np.maximum(0, -least)
    net = running[ends]
    copies = net + unknown
    last = order[ends]
    faulty = operations.column("reason").is_valid().to_numpy()[last]
    # A value that no longer fits does not matter if its row is gone again.
    stays = ~faulty | (copies > 0)
    in_group = np.repeat(stays, ends - starts + 1)
    ranks = operations.column("sequence").chunk(0).field("rank").to_numpy()
    changed = np.maximum.reduceat(ranks[order], starts) >= 0
    own_rank = ranks[last]
    fits = ~faulty
    put = fits & changed & ~is_delete[last]
    casts: Counter[tuple[str, int]] = Counter()
    for entries in (
        operations.column("casts").take(pa.array(order[in_group])).drop_null().to_pylist()
    ):
        for item in entries:
            casts[item["column"], item["ddl_ts"]] += item["rows"]
    rows = _with_columns(
        operations.take(pa.array(last[stays])),
        copies=copies[stays],
        keeps_row=np.zeros(np.count_nonzero(stays), np.bool_),
        least=least[stays],
        net=net[stays],
    )
    return FoldedRows(
        rows=rows,
        counts=FoldCounts(
            copies=int(copies[fits].sum()),
            changed=int(np.count_nonzero(fits & changed)),
            unknown_deletes=int(unknown[fits].sum()),
            errors=int(np.count_nonzero(stays & faulty & (own_rank >= 0))),
            lost=int(np.count_nonzero(stays & faulty & (own_rank < 0))),
            puts=int(np.count_nonzero(put)),
            casts=casts,
        ),
        missing=_lacking(operations, last[put]),
    )


# Sharing out ------------------------------------------------------------------------------------


def thinned(operations: pa.Table, *, keyed: bool, ddl_stamps: Sequence[int] = ()) -> pa.Table:
    """Leave out operations that do not affect the fold of these and any other operations.

    The first operation of a key says whether the row existed, its last whole one is the row, its
    last fault is in quarantine. All partial ones stay: the first after a delete, which may be in
    another part, begins the row, the last is the mark. A value that a DDL cast counts if its row
    existed then, so the last operation before each such DDL stays too. Every operation on a row
    without a key counts, but the values of one of them serve for all.

    Args:
        operations: operations on one table, in any order.
        keyed: whether the table has a key.
        ddl_stamps: commit ts of the DDL that may cast values as in a lenient SQL mode, ascending.
    """
    operations = operations.combine_chunks()
    size = operations.num_rows
    if not size:
        return operations
    keys = operations.column("key").chunk(0).dictionary_encode()
    if len(keys.dictionary) == size:
        return operations
    codes = keys.indices.to_numpy().astype(np.int64)
    order = _order(operations, codes)
    group = codes[order]
    if not keyed:
        # A replay may still be left out, so it must not represent an operation that is not a
        # replay.
        valued = operations.column("covered").to_numpy()[order] >= 0
        numbers = np.flatnonzero(~valued)
        key_codes = group[numbers]
        valued[numbers[np.append(key_codes[1:] != key_codes[:-1], True)[: len(numbers)]]] = True
        return _without_values(operations, order, valued)
    sequence = operations.column("sequence").chunk(0)
    begins = np.diff(group, prepend=-1) != 0
    if ddl_stamps:
        stamps = sequence.field("commit_ts").to_numpy()[order]
        begins |= np.diff(np.searchsorted(np.array(ddl_stamps), stamps), prepend=-1) != 0
    starts = np.flatnonzero(begins)
    fits = operations.column("reason").is_null().to_numpy()[order]
    partial = operations.column("is_partial").to_numpy()[order]
    ranks = sequence.field("rank").to_numpy()[order]
    stays = begins.copy()
    stays[np.append(starts[1:], size) - 1] = True
    valued = np.zeros(size, np.bool_)
    numbers = np.arange(size)

    def last_of(flags: Flags) -> Numbers:
        lasts = np.maximum.reduceat(np.where(flags, numbers, -1), starts)
        return lasts[lasts >= 0]

    valued[last_of(fits & ~partial)] = True
    valued |= fits & partial
    stays[last_of(~fits)] = True
    stays[last_of(fits & (ranks >= 0))] = True
    first_fit = np.minimum.reduceat(np.where(fits, numbers, size), starts)
    stays[first_fit[first_fit < size]] = True
    stays |= valued
    return _without_values(operations, order[stays], valued[stays])


def _without_values(operations: pa.Table, places: Numbers, valued: Flags) -> pa.Table:
    """Return the operations at `places`, with values where `valued`."""
    if valued.all():
        return operations.take(pa.array(places))
    taken = pa.array(places)
    with_values = pa.array(places, mask=~valued)
    # The typed columns have numbers; the names of the others are known.
    return pa.table(
        [
            operations.column(name).take(taken if name in _PLACING else with_values)
            for name in operations.column_names
        ],
        schema=operations.schema,
    )


_PLACING = frozenset(
    {"key", "sequence", "is_delete", "is_partial", "casts", "identity", "covered"}
    | {"reason", "position", "expected", "got"}
)
"""Columns of an operation that count even where its values do not."""


def joined_counts(counts: Iterable[FoldCounts]) -> FoldCounts:
    """Return the counts of folds without a common key, all parts of one."""
    parts, casts = [*counts], Counter[tuple[str, int]]()
    for part in parts:
        casts.update(part.casts)
    names = [item.name for item in fields(FoldCounts) if item.name != "casts"]
    numbers = {name: sum(getattr(part, name) for part in parts) for name in names}
    # Deletes of a bag subtract what their rows counted.
    return FoldCounts(**numbers, casts=+casts)
