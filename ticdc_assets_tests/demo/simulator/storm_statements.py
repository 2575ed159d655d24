"""The statements of a storm: each kind of DDL on some table for which its outcome is certain.

In: the storm's upstream and dice. Out: one statement run, or False where there is nothing that this
kind could be done to. What a statement does to rows is the upstream's affair.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from ticdc_assets.demo.simulator.alterations import (
    AddColumn,
    AddPrimaryKey,
    AlterAction,
    DropColumn,
    DropPrimaryKey,
    ModifyColumn,
    RenameColumn,
    SetDefault,
)
from ticdc_assets.demo.simulator.columns import (
    CURRENT_TIMESTAMP,
    column,
    fits,
    modified_value,
    type_sql,
)
from ticdc_assets.demo.simulator.partitions import LISTS, Method, Partition, Partitioning
from ticdc_assets.demo.simulator.stored_table import Row, StoredTable, TableName
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets_tests.demo.simulator.partition_changes import (
    AddPartitions,
    DropPartitions,
    PartitionBy,
    RemovePartitioning,
    ReorganizePartitions,
    ResizeHash,
    TruncatePartitions,
    hash_partitions,
)
from ticdc_assets_tests.demo.simulator.some_values import RANGES, some_value
from ticdc_assets_tests.demo.simulator.storm_state import StormDdl, StormState
from ticdc_assets_tests.demo.simulator.storm_tables import DEFAULTS, NARROWER, OTHER_KINDS, WIDER

# Tables and databases


def _create_table(state: StormState) -> bool:
    if not state.has_room():
        return False
    state.create_table()
    return True


def _create_like(state: StormState) -> bool:
    source = state.table()
    if source is None or not state.has_room():
        return False
    state.upstream.create_table_like(state.free_name(), source)
    return True


def _drop_table(state: StormState) -> bool:
    name = state.table()
    if name is None or len(state.upstream.tables) < 3:
        return False
    state.upstream.drop_table(name)
    return True


def _truncate_table(state: StormState) -> bool:
    name = state.table()
    if name is None:
        return False
    state.upstream.truncate_table(name)
    return True


def _rename_table(state: StormState) -> bool:
    name = state.table()
    if name is None:
        return False
    state.upstream.rename_table(name, state.free_name())
    return True


def _rename_tables(state: StormState) -> bool:
    """Rename two or three tables in one statement; one may take a name that another leaves."""
    upstream, rng = state.upstream, state.rng
    if len(upstream.tables) < 2:
        return False
    names = rng.sample(upstream.tables, min(len(upstream.tables), rng.randint(2, 3)))
    renames: list[tuple[TableName, TableName]] = [(names[0], state.free_name())]
    for left, name in pairwise(names):
        target = left if rng.random() < 0.5 else (left[0], f"t{state.number()}")
        renames.append((name, target))
    upstream.rename_tables(renames)
    return True


def _swap_tables(state: StormState) -> bool:
    upstream = state.upstream
    if len(upstream.tables) < 2:
        return False
    one, other = state.rng.sample(upstream.tables, 2)
    aside = state.free_name()
    renames = [(one, aside), (other, one), (aside, other)]
    if state.rng.random() < 0.5:
        upstream.rename_tables(renames)
    else:
        for name, new_name in renames:
            upstream.rename_table(name, new_name)
    return True


def _recover_table(state: StormState) -> bool:
    upstream = state.upstream
    names = [n for n in upstream.recoverable if n not in upstream.tables + upstream.views]
    if not names or not state.has_room():
        return False
    upstream.recover_table(state.rng.choice(names))
    return True


def _flashback(state: StormState, *, truncated: bool) -> bool:
    upstream = state.upstream
    names = [n for n in upstream.recoverable if upstream.was_truncated(n) == truncated]
    if not names or not state.has_room():
        return False
    name = state.rng.choice(names)
    upstream.recover_table(name, to=state.free_name(name[0])[1])
    return True


def _flashback_table(state: StormState) -> bool:
    return _flashback(state, truncated=False)


def _flashback_truncated(state: StormState) -> bool:
    return _flashback(state, truncated=True)


def _create_database(state: StormState) -> bool:
    if len(state.upstream.databases) > 3:
        return False
    name = f"rain {state.rng.randrange(3)}"
    if name in state.upstream.databases:
        return False
    state.upstream.create_database(name, charset=state.rng.choice(("", "utf8mb4", "latin1")))
    return True


def _alter_database(state: StormState) -> bool:
    database = state.rng.choice(sorted(state.upstream.databases))
    state.upstream.alter_database(database, charset=state.rng.choice(("utf8mb4", "latin1")))
    return True


def _drop_database(state: StormState) -> bool:
    names = sorted(state.upstream.databases)
    if len(names) < 3:
        return False
    state.upstream.drop_database(state.rng.choice(names[1:]))
    return True


def _view(state: StormState) -> bool:
    upstream = state.upstream
    if upstream.views and state.rng.random() < 0.5:
        upstream.drop_view(state.rng.choice(upstream.views))
        return True
    source = state.table()
    if source is None:
        return False
    upstream.create_view(state.free_name(), source)
    return True


def _sequence(state: StormState) -> bool:
    state.upstream.unsent()
    return True


def _unheard_of(state: StormState) -> bool:
    name = state.table()
    if name is None:
        return False
    clause = state.rng.choice(("FROBNICATE `v` HARD", "FROBNICATE WITH (deep = 'yes, really')"))
    state.upstream.unheard_of(name, clause)
    return True


# Columns and keys

_CLOCKS: Final = ("datetime", "datetime(3)", "datetime(6)", "timestamp", "timestamp(6)")
_SIGNED: Final = frozenset({"smallint", "mediumint", "int", "bigint", "decimal"})


def _added(state: StormState, table: StoredTable, *, now: bool = False) -> AddColumn:
    rng = state.rng
    name = state.free_column(table)
    schema = state.random_column(name)
    if now:
        sql_type = rng.choice(
            ("datetime", "datetime(3)", "datetime(6)", "timestamp", "timestamp(6)")
        )
        schema = column(name, sql_type, nullable=rng.random() < 0.5, default=CURRENT_TIMESTAMP)
    after = rng.choice(table.schema.columns).name
    return AddColumn(column=schema, **rng.choice(({}, {}, {"first": True}, {"after": after})))


def _add_column(state: StormState) -> bool:
    name = state.table(lambda table: len(table.schema.columns) < 12)
    return name is not None and _alter(state, name, [_added(state, state.upstream.stored(name))])


def _add_column_now(state: StormState) -> bool:
    name = state.table(lambda table: len(table.schema.columns) < 12)
    return name is not None and _alter(
        state, name, [_added(state, state.upstream.stored(name), now=True)]
    )


def _drop_column(state: StormState) -> bool:
    name = state.table(lambda table: len(state.plain_columns(table)) > 0)
    if name is None:
        return False
    gone = state.rng.choice(state.plain_columns(state.upstream.stored(name)))
    if len(state.upstream.schema(name).columns) < 2:
        return False
    return _alter(state, name, [DropColumn(name=gone.name)])


def _rename_column(state: StormState) -> bool:
    name = state.table()
    if name is None:
        return False
    table = state.upstream.stored(name)
    decides = table.partitioning.column if table.partitioning is not None else None
    names = [c.name for c in table.schema.columns if c.name != decides]
    if not names:
        return False
    old = state.rng.choice(names)
    return _alter(state, name, [RenameColumn(name=old, new_name=state.free_column(table))])


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
            numeric = sql_type.split("(")[0] in (
                "smallint",
                "mediumint",
                "int",
                "bigint",
                "decimal",
            )
            new = column(
                old.name if rng.random() < 0.7 else state.free_column(table),
                sql_type + (sign if numeric else ""),
                nullable=old.nullable or rng.random() < 0.3,
            )
            if old.charset not in ("binary", "utf8mb4") and new.charset == "utf8mb4":
                new = replace(new, charset=old.charset, collation=old.collation)
            if _survives(table, old, new):
                return ModifyColumn(name=old.name, column=new)
    return None


def _survives(table: StoredTable, old: ColumnSchema, new: ColumnSchema) -> bool:
    if type_sql(old) == type_sql(new):
        return False
    try:
        values = [modified_value(row[old.name], old, new) for row in table.rows.values()]
    except ValueError:
        return False
    return all(fits(value, new) for value in values)


def _retype(state: StormState, types: Mapping[str, Sequence[str]]) -> bool:
    name = state.table(lambda table: any(c.mysql_type in types for c in state.plain_columns(table)))
    if name is None:
        return False
    action = _retyped(state, state.upstream.stored(name), types)
    return action is not None and _alter(state, name, [action])


def _widen(state: StormState) -> bool:
    return _retype(state, WIDER)


def _narrow(state: StormState) -> bool:
    return _retype(state, NARROWER)


def _change_kind(state: StormState) -> bool:
    return _retype(state, OTHER_KINDS)


def _set_default(state: StormState) -> bool:
    name = state.table(lambda table: len(state.plain_columns(table)) > 0)
    if name is None:
        return False
    chosen = state.rng.choice(state.plain_columns(state.upstream.stored(name)))
    default = DEFAULTS.get(type_sql(chosen)) if state.rng.random() < 0.7 else None
    return _alter(state, name, [SetDefault(name=chosen.name, default=default)])


def _several(state: StormState) -> bool:
    name = state.table(lambda table: len(state.plain_columns(table)) > 1)
    if name is None:
        return False
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
    return _alter(state, name, actions)


def _alter(state: StormState, name: TableName, actions: Sequence[AlterAction]) -> bool:
    state.share_ts()
    state.upstream.alter_table(name, *actions)
    return True


def _add_index(state: StormState) -> bool:
    name = state.table(lambda table: len(table.secondary) < 3)
    if name is None:
        return False
    table = state.upstream.stored(name)
    columns = [
        c
        for c in state.plain_columns(table)
        if c.mysql_type in ("int", "bigint", "date", "decimal", "datetime")
    ]
    if not columns:
        return False
    chosen = state.rng.choice(columns)
    unique = (
        table.partitioning is None
        and chosen.mysql_type in ("int", "bigint")
        and chosen.nullable
        and _is_distinct(table, [chosen.name])
    )
    state.upstream.create_index(name, f"ix {state.number()}", columns=(chosen.name,), unique=unique)
    return True


def _drop_index(state: StormState) -> bool:
    name = state.table(lambda table: len(table.secondary) > 0)
    if name is None:
        return False
    table = state.upstream.stored(name)
    chosen = state.rng.choice(table.secondary)
    if not state.keyless and not _has_other_key(table, chosen.name):
        return False
    state.upstream.drop_index(name, chosen.name)
    return True


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


def _add_primary_key(state: StormState) -> bool:
    def is_wanted(table: StoredTable) -> bool:
        # Where tables without a key are not sent, one with its first would begin in the middle.
        return not table.primary_key and (state.keyless or bool(table.schema.handle_key))

    name = state.table(is_wanted)
    if name is None:
        return False
    table = state.upstream.stored(name)
    columns = [c.name for c in table.schema.columns if c.mysql_type in _KEY_TYPES]
    size = min(len(columns), state.rng.randint(1, 3))
    chosen = state.rng.sample(columns, size)
    if table.partitioning is not None and table.partitioning.column not in chosen:
        chosen.append(table.partitioning.column)
    whole = all(row[part] is not None for row in table.rows.values() for part in chosen)
    if not chosen or not whole or not _is_distinct(table, chosen):
        return False
    return _alter(state, name, [AddPrimaryKey(columns=tuple(chosen))])


def _drop_primary_key(state: StormState) -> bool:
    def is_wanted(table: StoredTable) -> bool:
        has_other = state.keyless or _has_other_key(table, None, primary=False)
        return bool(table.primary_key) and not table.clustered and has_other

    name = state.table(is_wanted)
    return name is not None and _alter(state, name, [DropPrimaryKey()])


# Partitions


def _divided(state: StormState, *methods: Method) -> tuple[TableName, Partitioning] | None:
    wanted = methods or tuple(Method)
    name = state.table(
        lambda table: table.partitioning is not None and table.partitioning.method in wanted
    )
    if name is None:
        return None
    found = state.upstream.stored(name).partitioning
    return None if found is None else (name, found)


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


def _add_partition(state: StormState) -> bool:
    found = _divided(state, *RANGES, *LISTS)
    part = _fresh_partition(state, found[1]) if found else None
    if found is None or part is None:
        return False
    state.share_ts()
    state.upstream.alter_partitions(found[0], AddPartitions(partitions=(part,)))
    return True


def _some_partitions(state: StormState, by: Partitioning, *, most: int) -> tuple[str, ...]:
    count = state.rng.randint(1, max(1, min(2, most)))
    return tuple(part.name for part in state.rng.sample(by.partitions, count))


def _drop_partition(state: StormState) -> bool:
    found = _divided(state, *RANGES, *LISTS)
    if found is None or len(found[1].partitions) < 2:
        return False
    names = _some_partitions(state, found[1], most=len(found[1].partitions) - 1)
    state.share_ts()
    state.upstream.alter_partitions(found[0], DropPartitions(names=names))
    return True


def _truncate_partition(state: StormState) -> bool:
    found = _divided(state)
    if found is None:
        return False
    names = _some_partitions(state, found[1], most=len(found[1].partitions))
    state.share_ts()
    change = TruncatePartitions(names=() if state.rng.random() < 0.15 else names)
    state.upstream.alter_partitions(found[0], change)
    return True


def _reorganize(state: StormState) -> bool:
    """Make two neighbours one, or divide one in two."""
    found = _divided(state, *RANGES, *LISTS)
    if found is None:
        return False
    name, by = found
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
            return False
        into = [Partition(name=one, below=middle), Partition(name=two, below=part.below)]
    state.share_ts()
    state.upstream.alter_partitions(name, ReorganizePartitions(names=names, into=tuple(into)))
    return True


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


def _resize_hash(state: StormState) -> bool:
    found = _divided(state, Method.HASH)
    if found is None:
        return False
    count = state.rng.choice([n for n in range(1, 6) if n != len(found[1].partitions)])
    state.share_ts()
    state.upstream.alter_partitions(found[0], ResizeHash(count=count))
    return True


def _exchange(state: StormState) -> bool:
    """Exchange a partition with a table like it, made for this or left from another time."""
    upstream, rng = state.upstream, state.rng
    found = _divided(state)
    if found is None:
        return False
    name, by = found
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
    return True


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


def _partition_by(state: StormState) -> bool:
    name = state.table(lambda table: len(_possible_deciders(table)) > 0)
    if name is None:
        return False
    decides = state.rng.choice(_possible_deciders(state.upstream.stored(name)))
    by = Partitioning(method=Method.HASH, column=decides, partitions=hash_partitions(2))
    if state.rng.random() < 0.5:
        parts = (Partition(name="low", below=15), Partition(name="HIGH", below=None))
        by = Partitioning(method=Method.RANGE, column=decides, partitions=parts)
    state.share_ts()
    state.upstream.alter_partitions(name, PartitionBy(partitioning=by))
    return True


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


def _remove_partitioning(state: StormState) -> bool:
    found = _divided(state)
    if found is None:
        return False
    state.share_ts()
    state.upstream.alter_partitions(found[0], RemovePartitioning())
    return True


STATEMENTS: Final[Mapping[StormDdl, Callable[[StormState], bool]]] = {
    StormDdl.CREATE_TABLE: _create_table,
    StormDdl.CREATE_LIKE: _create_like,
    StormDdl.DROP_TABLE: _drop_table,
    StormDdl.TRUNCATE_TABLE: _truncate_table,
    StormDdl.RENAME_TABLE: _rename_table,
    StormDdl.RENAME_TABLES: _rename_tables,
    StormDdl.SWAP_TABLES: _swap_tables,
    StormDdl.RECOVER_TABLE: _recover_table,
    StormDdl.FLASHBACK_TABLE: _flashback_table,
    StormDdl.FLASHBACK_TRUNCATED: _flashback_truncated,
    StormDdl.ADD_COLUMN: _add_column,
    StormDdl.ADD_COLUMN_NOW: _add_column_now,
    StormDdl.DROP_COLUMN: _drop_column,
    StormDdl.RENAME_COLUMN: _rename_column,
    StormDdl.WIDEN_COLUMN: _widen,
    StormDdl.NARROW_COLUMN: _narrow,
    StormDdl.CHANGE_KIND: _change_kind,
    StormDdl.SET_DEFAULT: _set_default,
    StormDdl.SEVERAL_CHANGES: _several,
    StormDdl.ADD_INDEX: _add_index,
    StormDdl.DROP_INDEX: _drop_index,
    StormDdl.ADD_PRIMARY_KEY: _add_primary_key,
    StormDdl.DROP_PRIMARY_KEY: _drop_primary_key,
    StormDdl.CREATE_DATABASE: _create_database,
    StormDdl.ALTER_DATABASE: _alter_database,
    StormDdl.DROP_DATABASE: _drop_database,
    StormDdl.VIEW: _view,
    StormDdl.SEQUENCE: _sequence,
    StormDdl.UNHEARD_OF: _unheard_of,
    StormDdl.ADD_PARTITION: _add_partition,
    StormDdl.DROP_PARTITION: _drop_partition,
    StormDdl.TRUNCATE_PARTITION: _truncate_partition,
    StormDdl.REORGANIZE_PARTITION: _reorganize,
    StormDdl.RESIZE_HASH: _resize_hash,
    StormDdl.EXCHANGE_PARTITION: _exchange,
    StormDdl.PARTITION_BY: _partition_by,
    StormDdl.REMOVE_PARTITIONING: _remove_partitioning,
}
"""How each kind is run."""

WEIGHTS: Final[Mapping[StormDdl, int]] = {
    StormDdl.CREATE_TABLE: 12,
    StormDdl.ADD_COLUMN: 8,
    StormDdl.DROP_COLUMN: 6,
    StormDdl.DROP_TABLE: 3,
    StormDdl.DROP_DATABASE: 1,
    StormDdl.CREATE_DATABASE: 2,
    StormDdl.ALTER_DATABASE: 1,
    StormDdl.SEQUENCE: 1,
    StormDdl.UNHEARD_OF: 1,
    StormDdl.VIEW: 2,
    StormDdl.DROP_PARTITION: 6,
    StormDdl.TRUNCATE_PARTITION: 6,
    StormDdl.EXCHANGE_PARTITION: 8,
}
"""How often each kind is tried, where it is not 4."""
