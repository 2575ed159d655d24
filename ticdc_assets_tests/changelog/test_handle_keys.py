"""By which columns a table's rows are told apart: TiCDC's choice, in every format.

The tables are written as CREATE TABLE. Messages say of them what TiCDC says: the Simple protocol
its schema, with the first NOT NULL unique key listed again as `primary`; others text and flags.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from ticdc_assets.model.events import Bootstrap
from ticdc_assets.model.schemas import (
    ColumnFlag,
    IndexSchema,
    RowShape,
    SentColumn,
    TableSchema,
    schema_from_text,
    schema_to_text,
)
from ticdc_assets.wire import WireFormat
from ticdc_assets_tests.changelog.lives import only_table
from ticdc_assets_tests.events import row_event
from ticdc_assets_tests.reference.fold import FoldedTable
from ticdc_assets_tests.text_tables import T1, Told, created, ddl, row

every_format = pytest.mark.parametrize("wire_format", WireFormat)


def values(table: FoldedTable, *names: str) -> list[tuple[str | None, ...]]:
    return sorted(tuple(item.get(name) for name in names) for item in table.listed())


@every_format
def test_no_key_is_over_a_virtual_column(wire_format: WireFormat) -> None:
    told = Told(wire_format, T1)
    told.row({"a": "1", "c": "5"})
    told.row({"a": "1", "c": "6"})
    told.row({"a": "9", "c": "5"}, {"a": "1", "c": "5"})
    told.row(None, {"a": "1", "c": "6"})
    table = only_table(told.events)
    assert table.plan.schema.handle_key == ("c",)
    assert table.plan.generated == {"b"}
    assert table.quarantined == []
    assert values(table, "a", "c") == [("9", "5")]


KEYS: Sequence[tuple[str, tuple[str, ...]]] = (
    # The fewest columns, of those the first; NULL and virtual ones do not count.
    ("a int not null, b int not null, unique u1(a, b), unique u2(b)", ("b",)),
    ("a int not null, b int not null, unique u1(b), unique u2(a)", ("b",)),
    ("a int, b int not null, unique u1(a), unique u2(b)", ("b",)),
    ("a int not null, b int as (a) stored not null, unique u1(b), unique u2(a)", ("b",)),
    ("a int not null, b int as (a) virtual not null, unique u1(b)", ()),
    (
        "a int not null, b int as (a) virtual not null, c int not null, unique u1(a, b), "
        "unique u2(a, c)",
        ("a", "c"),
    ),
    # GENERATED ALWAYS AS without a word is virtual; a prefix of a column stands for the column.
    ("a int not null, b int generated always as (a) not null, unique u1(b), unique u2(a)", ("a",)),
    ("a varchar(20) not null, b int not null, unique u1(a(3)), unique u2(b, a)", ("a",)),
    ("a int not null, b int not null, unique u1(a) invisible, unique u2(b)", ("a",)),
    # A primary key wins, clustered or not.
    ("a int not null, b int, unique u1(a), primary key (b)", ("b",)),
    ("a int not null, b varchar(9), unique u1(a), primary key (b, a) nonclustered", ("b", "a")),
)


@pytest.mark.parametrize(("columns", "key"), KEYS)
@every_format
def test_the_key_is_ticdcs(wire_format: WireFormat, columns: str, key: tuple[str, ...]) -> None:
    told = Told(wire_format, f"create table t1 ({columns})")
    told.row({column.name: "1" for column in told.schema.columns if not column.virtual})
    table = only_table(told.events)
    assert table.plan.schema.handle_key == key
    assert table.quarantined == []
    assert len(table.listed()) == 1


@pytest.mark.parametrize(
    ("keys", "marked", "key"),
    [
        ("unique u1(v)", "", ()),
        ("unique u1(a, v)", "a", ()),
        ("unique u1(v), unique u2(a, b)", "", ("a", "b")),
        ("unique u1(v, a), unique u2(a, b, c)", "a", ("a", "b", "c")),
    ],
)
def test_the_new_ticdc_marks_the_rest_of_a_key_over_a_virtual_column(
    keys: str, marked: str, key: tuple[str, ...]
) -> None:
    """In Open Protocol. The marked columns alone do not identify a row."""
    sql = "create table t1 (a int not null, b int not null, c int not null, "
    sql += f"v int as (b) virtual not null, {keys})"
    shape = RowShape(
        columns=tuple(
            SentColumn(
                name, "int", ColumnFlag.BINARY | ColumnFlag.HANDLE_KEY * (name in marked.split())
            )
            for name in ("a", "b", "c")
        )
    )
    rows = ({"a": "1", "b": "2", "c": "5"}, {"a": "1", "b": "3", "c": "6"})
    table = only_table(
        [
            ddl(WireFormat.OPEN_PROTOCOL, sql, ts=10, after=created(sql)),
            row_event(20, after=rows[0], table="t1", shape=shape),
            row_event(21, after=rows[1], table="t1", shape=shape),
            row_event(22, before=rows[0], after=rows[0] | {"c": "7"}, table="t1", shape=shape),
        ]
    )
    assert table.plan.schema.handle_key == key
    assert values(table, "a", "b", "c") == [("1", "2", "7"), ("1", "3", "6")]
    assert (table.quarantined, table.plan.caveats) == ([], ())


@every_format
def test_ddl_changes_which_columns_are_virtual_and_the_key(wire_format: WireFormat) -> None:
    told = Told(wire_format, T1)
    told.row({"a": "1", "c": "5"})
    told.alter("alter table t1 rename column b to bb")
    told.alter("alter table t1 drop index idx2, add unique index idx3(c, a), modify a int not null")
    told.row({"a": "2", "c": "5"})
    table = only_table(told.events)
    assert table.plan.schema.handle_key == ("c", "a")
    assert table.plan.generated == {"bb"}
    assert values(table, "a", "c") == [("1", "5"), ("2", "5")]
    told.alter("alter table t1 drop index idx1, drop column bb, add bb int not null default 3")
    told.alter("alter table t1 add unique (bb)")
    table = only_table(told.events)
    assert table.plan.schema.handle_key == ("bb",)
    assert table.plan.generated == frozenset()


def as_ticdc_has_it(schema: TableSchema) -> TableSchema:
    """Return a schema with the keys that TiCDC sees: it does not look at WHERE."""
    return replace(schema, indexes=tuple(replace(item, partial=False) for item in schema.indexes))


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ("unique u(a) where b = 1", ()),
        ("unique (a) where b = 1", ()),
        ("unique u(a) where b = 1, unique v(a, c)", ("a", "c")),
        ("unique v(a, c), unique u(a) where b = 1", ("a", "c")),
    ],
)
@every_format
def test_no_key_is_over_some_rows_only(
    wire_format: WireFormat, keys: str, key: tuple[str, ...]
) -> None:
    """TiCDC uses it all the same. Rows that it does not cover may be equal in its columns."""
    sql = f"create table t1 (a int not null, b int, c int not null, {keys})"
    told = Told(wire_format, sql, seen=as_ticdc_has_it)
    other = {"a": "1", "b": "2", "c": "6"}
    told.row({"a": "1", "b": "1", "c": "5"})
    told.row(other)
    told.row(other | {"b": "3"}, other)
    table = only_table(told.events)
    assert table.plan.schema.handle_key == key
    assert values(table, "a", "b", "c") == [("1", "1", "5"), ("1", "3", "6")]
    assert (table.quarantined, table.plan.caveats) == ([], ())
    assert schema_from_text(schema_to_text(told.schema)) == told.schema


@every_format
def test_ddl_changes_which_indexes_are_over_some_rows_only(wire_format: WireFormat) -> None:
    sql = "create table t1 (a int not null, c int not null, unique v(a, c))"
    told = Told(wire_format, sql, seen=as_ticdc_has_it)
    for text, key in (
        ("create unique index u on t1 (a) where c > 1", ("a", "c")),
        ("alter table t1 rename index u to w, add column d int", ("a", "c")),
        ("alter table t1 drop index w, add unique index u(a)", ("a",)),
    ):
        told.alter(text)
        told.row({column.name: "1" for column in told.schema.columns})
        assert only_table(told.events).plan.schema.handle_key == key


def test_a_hidden_column_of_an_expression_is_no_key() -> None:
    sql = "create table t1 (a int not null, c int not null, unique e((a + 1)), unique u(a, c))"
    made = created(sql)
    hidden = replace(made.columns[0], name="_V$_e_0")
    schema = replace(
        made,
        columns=(*made.columns, hidden),
        indexes=(
            IndexSchema(
                name="e", unique=True, primary=False, nullable=False, columns=(hidden.name,)
            ),
            made.indexes[1],
            IndexSchema(
                name="primary", unique=True, primary=True, nullable=False, columns=("a", "c")
            ),
        ),
    )
    table = only_table(
        [
            # No text tells of it: the table was there before the changefeed.
            Bootstrap(build_ts_ms=None, schema=schema),
            row(WireFormat.SIMPLE_JSON, schema, ts=20, after={"a": "1", "c": "5"}),
        ]
    )
    assert table.plan.schema.handle_key == ("a", "c")
    assert table.plan.generated == {"_V$_e_0"}
    assert table.quarantined == []


def primary(schema: TableSchema, *columns: str) -> TableSchema:
    index = IndexSchema(name="primary", unique=True, primary=True, nullable=False, columns=columns)
    return replace(schema, indexes=(*schema.indexes, index))


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ("a varchar(9) not null, b int not null", ("a",)),
        ("a varchar(9) not null, b int not null", ("a", "b")),
        ("a varchar(9) not null, b int not null", ("b",)),
        ("a datetime not null, b int not null, unique u(b)", ("a", "b")),
        # Nullable, so it is no stand-in for it.
        ("a varchar(9), b int not null, unique u(a)", ("a",)),
        # The stand-in is for the first; the second over these columns is another one's equal.
        ("a int not null, b int not null, unique u(a), unique v(b)", ("b",)),
    ],
)
def test_an_index_called_primary_is_the_primary_key(columns: str, key: tuple[str, ...]) -> None:
    schema = primary(created(f"create table t1 ({columns})"), *key)
    assert schema.own_indexes == schema.indexes
    assert schema.handle_key == key


@pytest.mark.parametrize(
    ("columns", "stands_for", "key"),
    [
        ("a varchar(9) not null, unique u(a)", ("a",), ("a",)),
        ("a int not null, b int not null, unique u(a, b), unique v(b)", ("a", "b"), ("b",)),
        ("a int, b int as (a) not null, c int not null, unique u(b), unique v(c)", ("b",), ("c",)),
        ("a int, b int as (a) not null, unique u(b)", ("b",), ()),
    ],
)
def test_a_stand_in_is_not(columns: str, stands_for: tuple[str, ...], key: tuple[str, ...]) -> None:
    schema = created(f"create table t1 ({columns})")
    sent = primary(schema, *stands_for)
    assert sent.own_indexes == schema.indexes
    assert sent.handle_key == schema.handle_key == key
