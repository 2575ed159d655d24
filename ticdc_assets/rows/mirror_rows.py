"""Rows of a mirror: from change log rows and older mirror rows to typed columns, and back to text.

In: Arrow batches of change log rows, or of a mirror's rows. Out: Arrow batches with one row per
operation (put, delete or error), whose columns are typed as the mirror's. The work is Python over
Arrow batches inside Spark's workers; the references are `changelog.resolve` and `values`.

A value that a typed column cannot hold (such as a zero date) is NULL there, and its exact text is
in the rescued data under the column's name. The empty name, which no column can have, has the
commit ts of a change that was sent with only its handle key (`PARTIAL`): from then on the row's
other columns are unknown.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ticdc_assets.base.errors import ImageError, InputError
from ticdc_assets.base.loops import loops_pay
from ticdc_assets.changelog.carrying import CarriedRow, RowCarrier, part_carrier
from ticdc_assets.changelog.plan import HandoverPart, MirrorPlan
from ticdc_assets.changelog.resolve import (
    PUT_RANK,
    REMOVED_RANK,
    RowResolver,
    SentImages,
    rank_of,
)
from ticdc_assets.delta.row_schema import filled_batch
from ticdc_assets.model.events import Op
from ticdc_assets.model.mysql_types import Kind, arrow_type, kind_of
from ticdc_assets.model.schemas import ColumnSchema, RowShape, TableSchema
from ticdc_assets.model.values import key_text, text_of, typed_array
from ticdc_assets.registry.evolution import CanonicalRow, Casts, Origin
from ticdc_assets.rows.row_operations import (
    RESCUED_TYPE,
    SEQUENCE_FIELDS,
    SEQUENCE_TYPE,
    operation_schema,
)
from ticdc_assets.spark.frames import sql_type_name
from ticdc_assets.wire.rows import image_from_json, shape_from_text

if TYPE_CHECKING:
    from ticdc_assets.rows.column_operations import ColumnOperations

ArrowMap: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_EXACT_KINDS = frozenset({Kind.INTEGER, Kind.BIT, Kind.YEAR, Kind.TEXT, Kind.BINARY, Kind.SET})
"""Kinds whose typed column holds every value, so that the rescued data has no entry of them."""

COLUMN_ROWS = 100
"""Rows from which on converting a batch by columns is faster."""

RESCUED_NAME = "_rescued_data"
"""Name of the map column with the exact text of what typed columns cannot hold (`free_name`)."""

PARTIAL = ""
"""Key in the rescued data of a row whose newest change was sent as its handle key alone."""


@dataclass(frozen=True, kw_only=True)
class MirrorLayout:
    """The columns of a mirror's Delta table.

    The upstream columns come first, by their own names; then two of this package, whose names get
    underscores at their end until they collide with no upstream name.
    """

    schema: TableSchema

    @cached_property
    def commit_ts(self) -> str:
        """Name of the added column with the commit ts of the row's last change."""
        return free_name("_ticdc_commit_ts", self.schema)

    @cached_property
    def rescued(self) -> str:
        """Name of the added map column with the exact text of what typed columns cannot hold."""
        return free_name(RESCUED_NAME, self.schema)

    @property
    def names(self) -> list[str]:
        """All column names, in order."""
        return [*(column.name for column in self.schema.columns), self.commit_ts, self.rescued]

    @cached_property
    def arrow(self) -> pa.Schema:
        """Arrow schema of the table."""
        return pa.schema(
            [
                *((column.name, arrow_type(column)) for column in self.schema.columns),
                (self.commit_ts, pa.int64()),
                (self.rescued, RESCUED_TYPE),
            ]
        )


def free_name(name: str, schema: TableSchema) -> str:
    """Return the added column name `name`, with underscores at its end until no column has it."""
    taken = {column.name.lower() for column in schema.columns}
    while name in taken:
        name += "_"
    return name


def may_be_rescued(column: ColumnSchema) -> bool:
    """Return whether values of a column may be in the rescued data.

    Then the texts there distinguish rows too: two rows are the same if their typed keys and the
    rescued texts of their key columns are equal.
    """
    return kind_of(column) not in _EXACT_KINDS


def spark_type_name(column: ColumnSchema) -> str:
    """Return the Spark SQL name of a column's type in its mirror."""
    return sql_type_name(arrow_type(column))


def put_rows(folded: pa.Table, layout: MirrorLayout) -> pa.Table:
    """Return the rows of folded operations, as their mirror has them.

    Args:
        folded: operations with `copies`, as `folding.FoldedRows` describes them.
        layout: the mirror's layout.
    """
    puts = folded.filter(ds.field("reason").is_null() & (ds.field("copies") > 0)).combine_chunks()
    if not layout.schema.handle_key:
        copies = puts["copies"].to_numpy()
        puts = puts.take(pa.array(np.repeat(np.arange(len(copies)), copies))).combine_chunks()
    columns = [puts[f"c{number}"] for number in range(len(layout.schema.columns))]
    if not puts.num_rows:
        return layout.arrow.empty_table()
    stamps = puts["sequence"].chunk(0).field("commit_ts")
    return pa.table([*columns, stamps, puts["rescued"]], schema=layout.arrow)


def marked(rows: pa.Table, rescued: str, marks: Sequence[str | None]) -> pa.Table:
    """Return rows, those that are known in part with their mark.

    Args:
        rows: the rows.
        rescued: name of their column of rescued data.
        marks: for each row the commit ts since which it is known in part; None if it is known.
    """
    if not any(marks):
        return rows
    number = rows.schema.get_field_index(rescued)
    entries = [
        pairs
        if mark is None
        else [*(item for item in pairs or () if item[0] != PARTIAL), (PARTIAL, mark)]
        for pairs, mark in zip(rows.column(number).to_pylist(), marks, strict=True)
    ]
    return rows.set_column(number, rows.schema.field(number), pa.array(entries, RESCUED_TYPE))


_Operation: TypeAlias = dict[str, Any]
"""An operation as `operation_batch` takes it."""

_EMPTY: _Operation = {"is_delete": False, "is_partial": False, "values": {}}


IMAGES = ("before", "after")
"""Columns with the images of a row change."""

CHANGE_COLUMNS = (
    "topic",
    "partition",
    "offset",
    "index",
    "op",
    "commit_ts",
    "schema_version",
    "before",
    "after",
    "handle_key_only",
    "es_only",
)
"""Columns of the change log that `change_operations` needs for any plan."""

SHAPE = "shape"
"""The column that it also needs if the plan says so (`MirrorPlan.reads_shapes`)."""


@lru_cache(maxsize=4096)
def _row_shape(text: str | None) -> RowShape | None:
    """Return the shape of a row whose column `shape` has `text`; equal texts give one object."""
    return None if text is None else shape_from_text(text)


def sent_images(row: Mapping[str, Any]) -> SentImages:
    """Return what a row of the change log has sent, as resolvers take it.

    Raises:
        InputError: an image is damaged.
    """
    before, after = row["before"], row["after"]
    return SentImages(
        commit_ts=row["commit_ts"],
        before=None if before is None else image_from_json(before),
        after=None if after is None else image_from_json(after),
        partial=bool(row["handle_key_only"]),
        shape=_row_shape(row.get(SHAPE)),
    )


def light(plan: MirrorPlan) -> MirrorPlan:
    """Return the plan without its past: no worker needs that, and it may be large."""
    return replace(plan, parts=(), earlier=None)


def change_operations(plan: MirrorPlan, timezone: str) -> ArrowMap:
    """Return the function from change log batches to operations on the mirror of `plan`."""
    plan = light(plan)

    def convert(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        resolver = RowResolver(plan, timezone)
        target = operation_schema(plan.schema)
        keys = plan.schema.handle_key
        columns: ColumnOperations | None = None
        for batch in batches:
            if batch.num_rows >= COLUMN_ROWS and loops_pay(batch.num_rows):
                # Loading the compiled loops takes a moment.
                from ticdc_assets.rows import column_operations as by_column

                columns = columns or by_column.ColumnOperations(resolver, plan.schema, timezone)
                operations, batch = columns.operations(batch)
                yield from operations
                if operations and not batch.num_rows:
                    continue
            rows = [item for row in batch.to_pylist() for item in _resolved(resolver, keys, row)]
            yield operation_batch(rows, target, plan.schema, timezone)

    return convert


def _resolved(
    resolver: RowResolver, key_columns: tuple[str, ...], row: dict[str, Any]
) -> Iterator[_Operation]:
    """Yield the operations of one row of the change log."""
    place = row_place(row)
    try:
        changes = resolver.resolve(Op(row["op"]), row["schema_version"], **sent_images(row))
    except InputError as error:
        key = f"!{row['topic']}/{row['partition']}/{row['offset']}/{row['index']}"
        sequence = {**place, "rank": PUT_RANK}
        yield {**_EMPTY, "key": key, "sequence": sequence, **_fault_of(error)}
        return
    for change in changes:
        if change.removed is not None and not key_columns:
            continue  # the row, and who deleted it before, are gone
        is_delete, values, casts = change.is_delete, change.values, change.casts
        if is_delete and key_columns:
            values, casts = {name: values[name] for name in key_columns}, ()
        rank = rank_of(is_delete=is_delete, es_only=bool(row["es_only"]))
        yield {
            "key": "=" + change.key,
            "sequence": {**place, "rank": rank},
            "is_delete": is_delete,
            "is_partial": change.partial,
            "missing": list(change.missing) or None,
            "casts": _counted(casts, is_delete=is_delete),
            "values": values,
            "partial_ts": str(row["commit_ts"]) if change.partial else None,
            **_fault_of(change.fault),
        }
        if change.removed is not None and not is_delete:
            # Partition DDL ends the row.
            yield {
                **_EMPTY,
                "key": "=" + change.key,
                "sequence": {**place, "rank": REMOVED_RANK},
                "is_delete": True,
                "values": {name: values[name] for name in key_columns},
            }


def row_place(row: Mapping[str, Any]) -> dict[str, object]:
    """Return where in the order of changes a row of the change log is, but for its rank."""
    return {name: row[name] for name in SEQUENCE_FIELDS if name != "rank"}


NOWHERE: dict[str, object] = {
    "commit_ts": 0,
    "rank": -1,
    "topic": "",
    "partition": -1,
    "offset": -1,
    "index": -1,
}
"""Sequence of a row that comes from no change."""


def nowhere(stamps: "pa.Array[Any]") -> "pa.Array[Any]":
    """Return the sequences of rows that come from no change, with these commit ts."""
    values = NOWHERE | {"commit_ts": stamps}
    return filled_batch(pa.schema(SEQUENCE_TYPE), len(stamps), values).to_struct_array()


def _counted(casts: Casts, *, is_delete: bool = False) -> list[tuple[str, int, int]] | None:
    return [(name, ddl_ts, -1 if is_delete else 1) for name, ddl_ts in casts] or None


def _fault_of(error: InputError | None) -> dict[str, str]:
    """Return the columns of an operation that say why its values do not fit."""
    if error is None:
        return {}
    return {name: getattr(error, name) for name in ("reason", "position", "expected", "got")}


def operation_batch(
    operations: Sequence[Mapping[str, Any]], target: pa.Schema, table: TableSchema, timezone: str
) -> pa.RecordBatch:
    """Return operations as a batch with typed columns.

    Args:
        operations: columns of the target by their names; the table's as canonical text in `values`;
            `partial_ts` if the row is known in part, since that commit ts; in `lost` the columns
            whose text is rescued, whether it fits or not.
        target: the schema of the operations; it has the table's columns as `c0`, `c1`, ...
        table: the schema of the table.
        timezone: the changefeed's time zone (IANA name).
    """
    marks = [operation.get("partial_ts") for operation in operations]
    rescued: list[list[tuple[str, str]]] = [
        [] if mark is None else [(PARTIAL, mark)] for mark in marks
    ]
    lost = [(number, item["lost"]) for number, item in enumerate(operations) if item.get("lost")]
    arrays: dict[str, pa.Array] = {}
    for place, column in enumerate(table.columns):
        name = column.name
        texts: list[str | None] = [operation["values"].get(name) for operation in operations]
        for number, names in lost:
            text = texts[number]
            if text is not None and name in names:
                rescued[number].append((name, text))
                texts[number] = None
        arrays[f"c{place}"], unfit = typed_array(column, timezone, texts)
        if unfit is not None:
            for number, (text, is_unfit) in enumerate(zip(texts, unfit, strict=True)):
                if is_unfit and text is not None:
                    rescued[number].append((name, text))
    arrays["rescued"] = pa.array([entries or None for entries in rescued], RESCUED_TYPE)
    for field in target:
        if field.name not in arrays:
            values = [operation.get(field.name) for operation in operations]
            arrays[field.name] = pa.array(values, field.type)
    return pa.RecordBatch.from_arrays([arrays[name] for name in target.names], schema=target)


_Carry: TypeAlias = Callable[[CanonicalRow, int], CarriedRow | None]
"""From a row and its commit ts to the row under the schema at the cut, None if it is gone."""

_Keep: TypeAlias = Callable[[pa.RecordBatch], tuple[pa.RecordBatch, pa.RecordBatch]]
"""From rows to the puts of those whose values stay, and the other rows."""


def mirror_operations(
    base: TableSchema, plan: MirrorPlan, timezone: str, since_ts: int, *, error_rank: int = -1
) -> ArrowMap:
    """Return the function from rows of a mirror as a cut has it to puts under `plan`'s schema.

    A value that a step cannot carry over gives an error row without topic. If no later change
    replaces the row, the caller folds the mirror again from the change log, where the change of the
    value can be quarantined.

    Args:
        base: schema of the mirror at that cut.
        plan: its plan now.
        timezone: the changefeed's time zone (IANA name).
        since_ts: TSO of that cut.
        error_rank: rank of an error row; below 0 if the caller can fold again.
    """
    plan = light(plan)

    def make() -> tuple[_Carry, _Keep | None]:
        carrier = RowCarrier(base, plan, timezone, since_ts=since_ts)
        return carrier.carry, _kept_operations(base, plan.schema, carrier, timezone)

    return _row_operations(base, make, plan, timezone, error_rank)


def part_operations(part: HandoverPart, plan: MirrorPlan, timezone: str) -> ArrowMap:
    """Return the function from rows that are handed over to puts under `plan`'s schema.

    A row that does not fit gives an error row without topic: its change is no longer known.
    """
    plan = light(plan)
    part = replace(part, plan=light(part.plan))

    def make() -> tuple[_Carry, None]:
        carry = part_carrier(part, plan, timezone)
        return lambda row, _: carry(row), None

    return _row_operations(part.plan.schema, make, plan, timezone, 0)


def _row_operations(
    base: TableSchema,
    make: Callable[[], tuple[_Carry, _Keep | None]],
    plan: MirrorPlan,
    timezone: str,
    error_rank: int,
) -> ArrowMap:
    layout = MirrorLayout(schema=base)

    def convert(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        carry, keep = make()
        resolver = RowResolver(plan, timezone)
        target = operation_schema(plan.schema)
        for batch in batches:
            if keep is not None:
                puts, batch = keep(batch)
                yield puts
                if puts.num_rows and not batch.num_rows:
                    continue
            operations: list[_Operation] = []
            stamps = batch.column(layout.commit_ts).to_pylist()
            rescued = batch.column(layout.rescued).to_pylist()
            for number, row in enumerate(canonical_rows(batch, layout, timezone)):
                sequence = NOWHERE | {"commit_ts": stamps[number]}
                casts: Casts = ()
                try:
                    carried = carry(row, stamps[number])
                    if carried is None or carried.removed is not None:
                        continue
                    key = f"={resolver.key_of(carried)}"
                    values, error, casts = carried.row, carried.fault, carried.casts
                except ImageError as raised:
                    # Of two equal rows each counts, in any batch or part.
                    row_key = key_text([row.get(name) for name in base.handle_key or row])
                    key, values, error = f"!{number}{row_key}", CanonicalRow(), raised
                if error is not None:
                    sequence["rank"] = error_rank
                operations.append(
                    {
                        **_EMPTY,
                        "key": key,
                        "sequence": sequence,
                        "casts": _counted(casts),
                        "values": values,
                        "partial_ts": dict(rescued[number] or ()).get(PARTIAL),
                        **_fault_of(error),
                    }
                )
            yield operation_batch(operations, target, plan.schema, timezone)

    return convert


def sources_of(
    origins: Mapping[str, Origin] | None,
    columns: Sequence[ColumnSchema],
    schema: TableSchema,
    timezone: str,
) -> "list[int | pa.Array[Any]] | None":
    """Return for each column of a mirror the earlier column that it comes from, by number.

    Or an array of one value, which all rows have. None if the typed values do not show all.

    Args:
        origins: where the columns come from (`UpgradePath.origins`); None if that is not all.
        columns: the earlier columns.
        schema: the mirror's schema.
        timezone: the changefeed's time zone (IANA name).
    """
    if origins is None:
        return None
    numbers = {column.name: number for number, column in enumerate(columns)}
    sources: list[int | pa.Array[Any]] = []
    for column in schema.columns:
        name, value = origins[column.name]
        if name is None:
            array, unfit = typed_array(column, timezone, [value])
            if unfit is not None or column.name in schema.handle_key:
                return None
            sources.append(array)
            continue
        number = numbers.get(name)
        if number is None:
            return None
        types = (arrow_type(columns[number]), arrow_type(column))
        if types[0] != types[1] and not all(map(_is_number, types)):
            return None
        sources.append(number)
    return sources


def repeated(value: "pa.Array[Any]", count: int) -> "pa.Array[Any]":
    """Return the one value of an array so many times; `pa.repeat` fails for nested types."""
    return value.take(pa.array(np.zeros(count, np.int64)))


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_decimal(kind)


def _kept_operations(
    base: TableSchema, schema: TableSchema, carrier: RowCarrier, timezone: str
) -> _Keep | None:
    """Return the function for rows whose values stay; None if every row has to be carried."""
    origins = carrier.origins()
    sources = sources_of(origins, base.columns, schema, timezone)
    if origins is None or sources is None:
        return None
    layout, target = MirrorLayout(schema=base), operation_schema(schema)
    above = carrier.kept_above()
    names = [column.name for column in schema.columns]
    key = [names.index(name) for name in schema.identity]
    columns = [schema.columns[number] for number in key]

    def operations(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        stamps = batch.column(layout.commit_ts)
        stays = pc.and_(batch.column(layout.rescued).is_null(), pc.greater(stamps, above))
        for name in schema.handle_key:
            stays = pc.and_(stays, batch.column(origins[name][0]).is_valid())
        rows = batch.filter(stays)
        count = rows.num_rows
        arrays: dict[str, pa.Array[Any]] = {
            f"c{number}": rows.column(source).cast(target.field(f"c{number}").type)
            if isinstance(source, int)
            else repeated(source, count)
            for number, source in enumerate(sources)
        }
        texts = [
            canonical_texts(arrays[f"c{number}"], schema.columns[number], timezone)
            for number in key
        ]
        keys = ["=" + key_text(values, columns) for values in zip(*texts, strict=True)]
        values = arrays | {
            "key": pa.array(keys, pa.string()),
            "sequence": nowhere(rows.column(layout.commit_ts)),
            "is_delete": False,
            "is_partial": False,
        }
        return filled_batch(target, count, values), batch.filter(pc.invert(stays))

    return operations


def canonical_texts(
    values: "pa.Array[Any]", column: ColumnSchema, timezone: str
) -> list[str | None]:
    """Return the values of a column as canonical text."""
    render = text_of(column, timezone)
    return [None if value is None else render(value) for value in values.to_pylist()]


def canonical_rows(
    batch: pa.RecordBatch, layout: MirrorLayout, timezone: str
) -> Iterator[CanonicalRow]:
    """Yield the rows of a mirror's batch as canonical text."""
    texts = {
        column.name: canonical_texts(batch.column(column.name), column, timezone)
        for column in layout.schema.columns
    }
    for number, rescued in enumerate(batch.column(layout.rescued).to_pylist()):
        row: CanonicalRow = {name: column[number] for name, column in texts.items()}
        if rescued:
            row.update((name, text) for name, text in rescued if name != PARTIAL)
        yield row
