"""Check that every key is in a mirror only once: a wrong MERGE would show here first.

In: the mirrors of a cut, at the versions that it names. Out: for each mirror with a handle key and
repeated keys, the number of such keys and some of them. Tables are only read, so running it again
is safe; syncs may run meanwhile, because the versions stay.

Keys are compared by their typed columns, and by the exact text of values that fit no typed column.
Text keys that differ only by case are equal upstream under most collations and count as two here.
Tables without a key may repeat rows, and are not checked.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from pyspark.sql import Column

from ticdc_assets.base.errors import InputError
from ticdc_assets.base.isolation import Failure, Failures
from ticdc_assets.base.names import joined_name
from ticdc_assets.delta.lake import Lake
from ticdc_assets.log.cuts import Cut, MirrorCut
from ticdc_assets.mirrors.versions import mirror_in_spark
from ticdc_assets.model.schemas import ColumnSchema, TableSchema
from ticdc_assets.model.values.typed import text_of
from ticdc_assets.rows.mirror_rows import MirrorLayout
from ticdc_assets.spark.frames import quoted
from ticdc_assets.spark.session import functions

MAX_KEYS = 5
"""How many repeated keys of each table are returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedKey:
    """A repeated key: column name to canonical text, and the number of rows with it."""

    key: Mapping[str, str | None]
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedKeys:
    """A mirror with repeated keys: how many, and the first of them."""

    database: str
    table: str
    keys: int
    examples: tuple[RepeatedKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCounts:
    """The result of checking all mirrors of a cut.

    Attributes:
        cut: number of the cut.
        tso: its TSO.
        mirrors: mirrors with a key, which were checked.
        without_key: mirrors without one.
        rows: checked rows.
        repeated: the mirrors with repeated keys.
    """

    cut: int
    tso: int
    mirrors: int
    without_key: int
    rows: int
    repeated: tuple[RepeatedKeys, ...]


def count_keys(lake: Lake, cut: Cut) -> KeyCounts:
    """Find repeated keys in the mirrors of `cut`.

    Raises:
        UnfinishedError: some mirrors cannot be read; the text has the others' result too.
    """
    keyed = [(item, item.table_schema) for item in cut.mirrors if item.table_schema.handle_key]
    repeated: list[RepeatedKeys] = []
    failures = Failures(f"looking for repeated keys in cut {cut.number}")
    for mirror, schema in keyed:
        # One row has one key, and an empty table none.
        if mirror.rows < 2:
            continue
        name = joined_name(mirror.database, mirror.table)
        found = failures.attempted(partial(_repeated, lake, mirror, schema), name)
        keys, examples = (0, ()) if isinstance(found, Failure) else found
        if keys:
            repeated.append(
                RepeatedKeys(
                    database=mirror.database, table=mirror.table, keys=keys, examples=examples
                )
            )
    if failures.reasons:
        for item in repeated:
            failures.add(joined_name(item.database, item.table), f"{item.keys} keys are not unique")
        failures.require_none()
    return KeyCounts(
        cut=cut.number,
        tso=cut.tso,
        mirrors=len(keyed),
        without_key=len(cut.mirrors) - len(keyed),
        rows=sum(item.rows for item, _ in keyed),
        repeated=tuple(repeated),
    )


def _repeated(
    lake: Lake, mirror: MirrorCut, schema: TableSchema
) -> tuple[int, tuple[RepeatedKey, ...]]:
    rows = mirror_in_spark(lake, mirror)
    F = functions(lake.spark)
    layout = MirrorLayout(schema=schema)
    # This package's columns: key columns may have any name.
    columns: list[Column] = []
    for number, name in enumerate(schema.handle_key):
        columns.append(F.col(quoted(name)).alias(f"c{number}"))
        beside = F.lit(None).cast("string")
        if layout.rescued in rows.columns:
            beside = F.col(quoted(layout.rescued))[name]
        columns.append(beside.alias(f"x{number}"))
    names = [f"{kind}{number}" for number in range(len(schema.handle_key)) for kind in "cx"]
    found = (
        rows.select(*columns)
        .groupBy(*names)
        .agg(F.count("*").alias("copies"))
        .where(F.col("copies") > 1)
    )
    first = found.orderBy(*names).limit(MAX_KEYS).toArrow().to_pylist()
    if not first:
        return 0, ()
    examples = tuple(
        RepeatedKey(
            key={
                name: _text(
                    schema.column(name),
                    row[f"c{number}"],
                    row[f"x{number}"],
                    lake.changefeed.timezone,
                )
                for number, name in enumerate(schema.handle_key)
            },
            rows=row["copies"],
        )
        for row in first
    )
    return len(first) if len(first) < MAX_KEYS else found.count(), examples


def _text(
    column: ColumnSchema | None, value: object, beside: str | None, timezone: str
) -> str | None:
    """Return a key's value as canonical text; as Python shows it if it has none."""
    if beside is not None or value is None:
        return beside
    if column is None:
        return str(value)
    try:
        return text_of(column, timezone)(value)
    except (InputError, ValueError, ArithmeticError):
        return str(value)
