"""The statements of a storm: each kind of DDL on some table for which its outcome is certain.

In: the storm's upstream and dice. Out: one statement run, or `Impossible` where there is nothing
that this kind could be done to. What a statement does to rows is the upstream's affair.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Final, TypeAlias

from ticdc_assets.base.errors import CastError
from ticdc_assets.demo.simulator.alterations import (
    AddColumn,
    AlterAction,
    DropColumn,
    ModifyColumn,
    RenameColumn,
    SetDefault,
)
from ticdc_assets.demo.simulator.columns import column, type_sql
from ticdc_assets.demo.simulator.stored_table import Row, StoredTable, TableName
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.model.values import cast_of
from ticdc_assets.registry.inference.columns import CURRENT_TIMESTAMP
from ticdc_assets_tests.demo.simulator.key_changes import AddPrimaryKey, DropPrimaryKey
from ticdc_assets_tests.demo.simulator.partition_changes import (
    AddPartitions,
    DropPartitions,
    PartitionBy,
    PartitionChange,
    RemovePartitioning,
    ReorganizePartitions,
    ResizeHash,
    TruncatePartitions,
    hash_partitions,
)
from ticdc_assets_tests.demo.simulator.partitions import (
    LISTS,
    RANGES,
    Method,
    Partition,
    Partitioning,
    some_value,
)
from ticdc_assets_tests.demo.simulator.storm_state import StormState
from ticdc_assets_tests.demo.simulator.storm_tables import DEFAULTS, NARROWER, OTHER_KINDS, WIDER

Statement: TypeAlias = Callable[[StormState], None]
STATEMENTS: Final[dict[str, Statement]] = {}
"""How each kind is run, by its name."""
WEIGHTS: Final[dict[str, int]] = {}
"""How often each kind is tried."""


class Impossible(Exception):
    """There is nothing that a statement could be done to."""


def require(is_possible: object) -> None:
    """Go on if a statement is possible."""
    if not is_possible:
        raise Impossible


def some_table(
    state: StormState, wanted: Callable[[StoredTable], bool] = lambda _: True
) -> TableName:
    """Return some table that is as wanted, if there is one."""
    name = state.table(wanted)
    if name is None:
        raise Impossible
    return name


def statement(kind: str, *, weight: int = 4) -> Callable[[Statement], Statement]:
    """Let a function be how a kind of DDL is run, tried so often."""

    def add(run: Statement) -> Statement:
        STATEMENTS[kind], WEIGHTS[kind] = run, weight
        return run

    return add


# Tables


@statement("create table", weight=12)
def create_table(state: StormState) -> None:
    require(state.has_room())
    state.create_table()


@statement("create table like")
def create_like(state: StormState) -> None:
    source = some_table(state)
    require(state.has_room())
    state.upstream.create_table_like(state.free_name(), source)


@statement("drop table", weight=3)
def drop_table(state: StormState) -> None:
    name = some_table(state)
    require(len(state.upstream.tables) >= 3)
    state.upstream.drop_table(name)


@statement("truncate table")
def truncate_table(state: StormState) -> None:
    name = some_table(state)
    state.upstream.truncate_table(name)


@statement("rename table")
def rename_table(state: StormState) -> None:
    name = some_table(state)
    state.upstream.rename_table(name, state.free_name())


@statement("rename tables")
def rename_tables(state: StormState) -> None:
    """Rename two or three tables in one statement; one may take a name that another leaves."""
    upstream, rng = state.upstream, state.rng
    require(len(upstream.tables) >= 2)
    names = rng.sample(upstream.tables, min(len(upstream.tables), rng.randint(2, 3)))
    renames: list[tuple[TableName, TableName]] = [(names[0], state.free_name())]
    for left, name in pairwise(names):
        target = left if rng.random() < 0.5 else (left[0], f"t{state.number()}")
        renames.append((name, target))
    upstream.rename_tables(renames)


@statement("swap tables")
def swap_tables(state: StormState) -> None:
    upstream = state.upstream
    require(len(upstream.tables) >= 2)
    one, other = state.rng.sample(upstream.tables, 2)
    aside = state.free_name()
    renames = [(one, aside), (other, one), (aside, other)]
    if state.rng.random() < 0.5:
        upstream.rename_tables(renames)
    else:
        for name, new_name in renames:
            upstream.rename_table(name, new_name)


@statement("recover table")
def recover_table(state: StormState) -> None:
    upstream = state.upstream
    names = [n for n in upstream.recoverable if n not in upstream.tables + upstream.views]
    require(names and state.has_room())
    upstream.recover_table(state.rng.choice(names))


def _flashback(state: StormState, *, truncated: bool) -> None:
    upstream = state.upstream
    names = [n for n in upstream.recoverable if upstream.was_truncated(n) == truncated]
    require(names and state.has_room())
    name = state.rng.choice(names)
    upstream.recover_table(name, to=state.free_name(name[0])[1])


statement("flashback table to")(partial(_flashback, truncated=False))
statement("flashback a truncated table to")(partial(_flashback, truncated=True))


# Columns and keys

_CLOCKS: Final = ("datetime", "datetime(3)", "datetime(6)", "timestamp", "timestamp(6)")
_NUMERIC: Final = frozenset({"smallint", "mediumint", "int", "bigint", "decimal"})


def _add(state: StormState, *, now: bool) -> None:
    rng = state.rng
    name = some_table(state, lambda table: len(table.schema.columns) < 12)
    table = state.upstream.stored(name)
    new = state.free_column(table)
    schema = state.random_column(new)
    if now:
        sql_type, nullable = rng.choice(_CLOCKS), rng.random() < 0.5
        schema = column(new, sql_type, nullable=nullable, default=CURRENT_TIMESTAMP)
    after = rng.choice(table.schema.columns).name
    place = rng.choice(({}, {}, {"first": True}, {"after": after}))
    _alter(state, name, [AddColumn(column=schema, **place)])


statement("add column", weight=8)(partial(_add, now=False))
statement("add column default current_timestamp")(partial(_add, now=True))


@statement("drop column", weight=6)
def drop_column(state: StormState) -> None:
    name = some_table(state, lambda table: len(state.plain_columns(table)) > 0)
    gone = state.rng.choice(state.plain_columns(state.upstream.stored(name)))
    require(len(state.upstream.schema(name).columns) >= 2)
    _alter(state, name, [DropColumn(name=gone.name)])


@statement("rename column")
def rename_column(state: StormState) -> None:
    name = some_table(state)
    table = state.upstream.stored(name)
    decides = table.partitioning.column if table.partitioning is not None else None
    names = [c.name for c in table.schema.columns if c.name != decides]
    require(names)
    old = state.rng.choice(names)
    _alter(state, name, [RenameColumn(name=old, new_name=state.free_column(table))])


def _retyped(
    state: StormState, table: StoredTable, types: Mapping[str, Sequence[str]]
) -> ModifyColumn | None:
    """Return a MODIFY or CHANGE of some column to a type that `types` has for its own."""
    rng = state.rng
    columns = [c for c in state.plain_columns(table) if c.mysql_type in types]
    rng.shuffle(columns)
    for old in columns:
        sign = " unsigned" if old.unsigned else ""
        for sql_type in rng.sample(types[old.mysql_type], len(types[old.mysql_type])):
            numeric = sql_type.split("(")[0] in _NUMERIC
            new = column(
                old.name if rng.random() < 0.7 else state.free_column(table),
                sql_type + (sign if numeric else ""),
                nullable=old.nullable or rng.random() < 0.3,
            )
            if old.charset not in ("binary", "utf8mb4") and new.charset == "utf8mb4":
                new = replace(new, charset=old.charset, collation=old.collation)
            if _survives(table, old, new, state.upstream.timezone):
                return ModifyColumn(name=old.name, column=new)
    return None


def _survives(table: StoredTable, old: ColumnSchema, new: ColumnSchema, timezone: str) -> bool:
    if type_sql(old) == type_sql(new):
        return False
    cast = cast_of(old, new, timezone)
    try:
        values = [cast(row[old.name]) for row in table.rows.values()]
    except CastError:
        return False
    return new.nullable or None not in values


def _retype(state: StormState, types: Mapping[str, Sequence[str]]) -> None:
    name = some_table(
        state, lambda table: any(c.mysql_type in types for c in state.plain_columns(table))
    )
    action = _retyped(state, state.upstream.stored(name), types)
    if action is None:
        raise Impossible
    _alter(state, name, [action])


statement("widen column")(partial(_retype, types=WIDER))
statement("narrow column")(partial(_retype, types=NARROWER))
statement("change the kind of a column")(partial(_retype, types=OTHER_KINDS))


@statement("set default")
def set_default(state: StormState) -> None:
    name = some_table(state, lambda table: len(state.plain_columns(table)) > 0)
    chosen = state.rng.choice(state.plain_columns(state.upstream.stored(name)))
    default = DEFAULTS.get(type_sql(chosen)) if state.rng.random() < 0.7 else None
    _alter(state, name, [SetDefault(name=chosen.name, default=default)])


@statement("several changes")
def several(state: StormState) -> None:
    name = some_table(state, lambda table: len(state.plain_columns(table)) > 1)
    table = state.upstream.stored(name)
    gone, renamed = state.rng.sample(state.plain_columns(table), 2)
    widened = _retyped(state, table, WIDER)
    fresh = f"c{state.number()}"
    actions: list[AlterAction] = [AddColumn(column=state.random_column(f"c{state.number()}"))]
    if len(table.schema.columns) > 2:
        actions.append(DropColumn(name=gone.name))
    if widened is not None and widened.name not in (gone.name, renamed.name):
        same_name = replace(widened.column, name=widened.name)
        actions.append(ModifyColumn(name=widened.name, column=same_name))
    actions.append(RenameColumn(name=renamed.name, new_name=fresh))
    state.rng.shuffle(actions)
    _alter(state, name, actions)


def _alter(state: StormState, name: TableName, actions: Sequence[AlterAction]) -> None:
    state.share_ts()
    state.upstream.alter_table(name, *actions)


@statement("add index")
def add_index(state: StormState) -> None:
    name = some_table(state, lambda table: len(table.secondary) < 3)
    table = state.upstream.stored(name)
    columns = [
        c
        for c in state.plain_columns(table)
        if c.mysql_type in ("int", "bigint", "date", "decimal", "datetime")
    ]
    require(columns)
    chosen = state.rng.choice(columns)
    unique = (
        table.partitioning is None
        and chosen.mysql_type in ("int", "bigint")
        and chosen.nullable
        and _is_distinct(table, [chosen.name])
    )
    state.upstream.create_index(name, f"ix {state.number()}", columns=(chosen.name,), unique=unique)


@statement("drop index")
def drop_index(state: StormState) -> None:
    name = some_table(state, lambda table: len(table.secondary) > 0)
    table = state.upstream.stored(name)
    chosen = state.rng.choice(table.secondary)
    require(state.keyless or _has_other_key(table, chosen.name))
    state.upstream.drop_index(name, chosen.name)


def _has_other_key(table: StoredTable, index: str | None, *, primary: bool = True) -> bool:
    """Tell whether a table still has a key without an index, or without its primary key."""
    nullable = {c.name for c in table.schema.columns if c.nullable}
    return (primary and bool(table.primary_key)) or any(
        i.unique and i.name != index and nullable.isdisjoint(i.columns) for i in table.secondary
    )


def _is_distinct(table: StoredTable, columns: Sequence[str]) -> bool:
    """Tell whether no two rows share the values of columns; NULL is never shared."""
    keys = [tuple(row[name] for name in columns) for row in table.rows.values()]
    whole = [key for key in keys if None not in key]
    return len(set(whole)) == len(whole)


_KEY_TYPES: Final = frozenset({"int", "bigint", "varchar", "char", "date", "smallint", "decimal"})


@statement("add primary key")
def add_primary_key(state: StormState) -> None:
    def is_wanted(table: StoredTable) -> bool:
        # Where tables without a key are not sent, one with its first would begin in the middle.
        return not table.primary_key and (state.keyless or bool(table.schema.handle_key))

    name = some_table(state, is_wanted)
    table = state.upstream.stored(name)
    columns = [c.name for c in table.schema.columns if c.mysql_type in _KEY_TYPES]
    size = min(len(columns), state.rng.randint(1, 3))
    chosen = state.rng.sample(columns, size)
    if table.partitioning is not None and table.partitioning.column not in chosen:
        chosen.append(table.partitioning.column)
    whole = all(row[part] is not None for row in table.rows.values() for part in chosen)
    require(chosen and whole and _is_distinct(table, chosen))
    _alter(state, name, [AddPrimaryKey(columns=tuple(chosen))])


@statement("drop primary key")
def drop_primary_key(state: StormState) -> None:
    def is_wanted(table: StoredTable) -> bool:
        has_other = state.keyless or _has_other_key(table, None, primary=False)
        return bool(table.primary_key) and not table.clustered and has_other

    _alter(state, some_table(state, is_wanted), [DropPrimaryKey()])


# Databases and what is no table


@statement("create database", weight=2)
def create_database(state: StormState) -> None:
    require(len(state.upstream.databases) <= 3)
    name = f"rain {state.rng.randrange(3)}"
    require(name not in state.upstream.databases)
    state.upstream.create_database(name, charset=state.rng.choice(("", "utf8mb4", "latin1")))


@statement("alter database", weight=1)
def alter_database(state: StormState) -> None:
    database = state.rng.choice(sorted(state.upstream.databases))
    state.upstream.alter_database(database, charset=state.rng.choice(("utf8mb4", "latin1")))


@statement("drop database", weight=1)
def drop_database(state: StormState) -> None:
    names = sorted(state.upstream.databases)
    require(len(names) >= 3)
    state.upstream.drop_database(state.rng.choice(names[1:]))


@statement("create or drop a view", weight=2)
def view(state: StormState) -> None:
    upstream = state.upstream
    if upstream.views and state.rng.random() < 0.5:
        upstream.drop_view(state.rng.choice(upstream.views))
    else:
        source = some_table(state)
        upstream.create_view(state.free_name(), source)


@statement("create sequence", weight=1)
def sequence(state: StormState) -> None:
    state.upstream.unsent()


@statement("a statement not known", weight=1)
def unheard_of(state: StormState) -> None:
    name = some_table(state)
    clause = state.rng.choice(("FROBNICATE `v` HARD", "FROBNICATE WITH (deep = 'yes, really')"))
    state.upstream.unheard_of(name, clause)


# Partitions


def _divided(state: StormState, *methods: Method) -> tuple[TableName, Partitioning]:
    """Return some table that is divided by one of some methods, or by any, and how it is."""
    wanted = methods or tuple(Method)
    name = some_table(
        state, lambda table: table.partitioning is not None and table.partitioning.method in wanted
    )
    found = state.upstream.stored(name).partitioning
    assert found is not None
    return name, found


def _change(state: StormState, name: TableName, change: PartitionChange) -> None:
    state.share_ts()
    state.upstream.alter_partitions(name, change)


_LIST_VALUES: Final[Mapping[Method, tuple[str | None, ...]]] = {
    Method.LIST: ("4", "5", "-9", "100"),
    Method.LIST_COLUMNS: ("as", "back\\slash", "Eu", "ö", "🚀"),
}


def _fresh_partition(state: StormState, by: Partitioning) -> Partition | None:
    """Return one more partition behind the others, or None where none has a place there."""
    name = f"q{state.number()}"
    if by.method in LISTS:
        listed = {value for part in by.partitions for value in part.values}
        free = [value for value in _LIST_VALUES[by.method] if value not in listed]
        return Partition(name=name, values=tuple(free[:2])) if free else None
    last = by.partitions[-1].below
    if last is None:
        return None
    if isinstance(last, int):
        step = 2 if by.method is Method.RANGE_YEAR else 10
        open_end = state.rng.random() < 0.2
        return Partition(name=name, below=None if open_end else last + step)
    return Partition(name=name, below=f"{int(last[:4]) + 2:04d}-01-01")


@statement("add partition")
def add_partition(state: StormState) -> None:
    name, by = _divided(state, *RANGES, *LISTS)
    part = _fresh_partition(state, by)
    if part is None:
        raise Impossible
    _change(state, name, AddPartitions(partitions=(part,)))


def _some_partitions(state: StormState, by: Partitioning, *, most: int) -> tuple[str, ...]:
    count = state.rng.randint(1, max(1, min(2, most)))
    return tuple(part.name for part in state.rng.sample(by.partitions, count))


@statement("drop partition", weight=6)
def drop_partition(state: StormState) -> None:
    name, by = _divided(state, *RANGES, *LISTS)
    require(len(by.partitions) >= 2)
    names = _some_partitions(state, by, most=len(by.partitions) - 1)
    _change(state, name, DropPartitions(names=names))


@statement("truncate partition", weight=6)
def truncate_partition(state: StormState) -> None:
    name, by = _divided(state)
    names = _some_partitions(state, by, most=len(by.partitions))
    state.share_ts()
    change = TruncatePartitions(names=() if state.rng.random() < 0.15 else names)
    state.upstream.alter_partitions(name, change)


@statement("reorganize partition")
def reorganize(state: StormState) -> None:
    """Make two neighbours one, or divide one in two."""
    name, by = _divided(state, *RANGES, *LISTS)
    number = state.rng.randrange(len(by.partitions))
    part = by.partitions[number]
    one, two = (f"r{state.number()}" for _ in range(2))
    names: tuple[str, ...] = (part.name,)
    if number + 1 < len(by.partitions) and state.rng.random() < 0.5:
        last = by.partitions[number + 1]
        names = (part.name, last.name)
        into = [Partition(name=one, below=last.below, values=part.values + last.values)]
    elif by.method in LISTS and len(part.values) > 1:
        into = [
            Partition(name=one, values=part.values[:1]),
            Partition(name=part.name, values=part.values[1:]),
        ]
    else:
        below = by.partitions[number - 1].below if number else None
        middle = _between(below, part.below)
        if by.method in LISTS or middle is None:
            raise Impossible
        into = [Partition(name=one, below=middle), Partition(name=two, below=part.below)]
    _change(state, name, ReorganizePartitions(names=names, into=tuple(into)))


def _between(low: int | str | None, high: int | str | None) -> int | str | None:
    """Return a bound between two, where there is one."""
    if isinstance(low, str) or isinstance(high, str):
        first = int(low[:4]) if isinstance(low, str) else None
        last = int(high[:4]) if isinstance(high, str) else None
        middle = _between(first, last)
        return None if middle is None else f"{middle:04d}-01-01"
    if low is None and high is None:
        return None
    middle = high - 1 if low is None and high is not None else (low or 0) + 1
    return None if high is not None and middle >= high else middle


@statement("coalesce or add hash partitions")
def resize_hash(state: StormState) -> None:
    name, by = _divided(state, Method.HASH)
    count = state.rng.choice([n for n in range(1, 6) if n != len(by.partitions)])
    _change(state, name, ResizeHash(count=count))


@statement("exchange partition", weight=8)
def exchange(state: StormState) -> None:
    """Exchange a partition with a table like it, made for this or left from another time."""
    upstream, rng = state.upstream, state.rng
    name, by = _divided(state)
    number = rng.randrange(len(by.partitions))
    other = _alone_like(state, name, by, number)
    if other is None:
        other = state.free_name()
        upstream.create_table_like(other, name)
        upstream.alter_partitions(other, RemovePartitioning())
    table = upstream.stored(other)
    decides = next(c for c in table.schema.columns if c.name == by.column)
    with upstream.transaction() as transaction:
        for _ in range(rng.randrange(5)):
            value = some_value(rng, by, number)
            if value is not None or decides.nullable:
                state.insert(transaction, other, **{by.column: value})
    state.share_ts()
    upstream.exchange_partition(name, by.partitions[number].name, other)


def _alone_like(
    state: StormState, name: TableName, by: Partitioning, number: int
) -> TableName | None:
    """Return a table like a divided one all of whose rows are of one of its partitions."""
    like = state.upstream.stored(name)

    def is_wanted(table: StoredTable) -> bool:
        return (
            table.partitioning is None
            and table.schema.columns == like.schema.columns
            and (table.primary_key, table.clustered) == (like.primary_key, like.clustered)
            and table.secondary == like.secondary
            and all(_is_of(by, row, number) for row in table.rows.values())
        )

    return state.table(is_wanted)


def _is_of(by: Partitioning, row: Row, number: int) -> bool:
    return by.place(row[by.column]) == number


@statement("partition by")
def partition_by(state: StormState) -> None:
    name = some_table(state, lambda table: len(_possible_deciders(table)) > 0)
    decides = state.rng.choice(_possible_deciders(state.upstream.stored(name)))
    by = Partitioning(method=Method.HASH, column=decides, partitions=hash_partitions(2))
    if state.rng.random() < 0.5:
        parts = (Partition(name="low", below=15), Partition(name="HIGH", below=None))
        by = Partitioning(method=Method.RANGE, column=decides, partitions=parts)
    _change(state, name, PartitionBy(partitioning=by))


def _possible_deciders(table: StoredTable) -> list[str]:
    """Return the integer columns that are in every unique key."""
    keys = [key for key in (table.primary_key, *_unique(table)) if key]
    return [
        c.name
        for c in table.schema.columns
        if c.mysql_type in ("int", "bigint")
        and not c.unsigned
        and all(c.name in key for key in keys)
    ]


def _unique(table: StoredTable) -> list[tuple[str, ...]]:
    return [i.columns for i in table.secondary if i.unique]


@statement("remove partitioning")
def remove_partitioning(state: StormState) -> None:
    name, _ = _divided(state)
    _change(state, name, RemovePartitioning())
