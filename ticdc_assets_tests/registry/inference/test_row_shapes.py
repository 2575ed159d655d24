"""What a row's shape proves of its table, and which shape a table's rows have."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.demo.simulator.shapes import canal_shape_of, shape_of
from ticdc_assets.model.mysql_types import lacks_size
from ticdc_assets.model.schemas import (
    ColumnFlag,
    ColumnSchema,
    IndexSchema,
    RowShape,
    SentColumn,
    TableSchema,
    schema_from_json,
    schema_to_json,
)
from ticdc_assets.registry.inference.row_shapes import fits, merged, schema_of_shape, spelled_type
from ticdc_assets_tests.text_tables import created

BINARY = ColumnFlag.BINARY
NULLABLE = ColumnFlag.NULLABLE
HANDLE = ColumnFlag.HANDLE_KEY
PRIMARY = ColumnFlag.PRIMARY_KEY
UNIQUE = ColumnFlag.UNIQUE_KEY
MULTIPLE = ColumnFlag.MULTIPLE_KEY
UNSIGNED = ColumnFlag.UNSIGNED


def table(sql: str) -> TableSchema:
    return created(f"create table t ({sql})", version=100, table="t")


def of(shape: RowShape) -> TableSchema:
    return schema_of_shape(shape, database="d", table="t", table_id=7, version=5)


def flagged(*columns: tuple[str, str, int], partial: bool = False) -> RowShape:
    return RowShape(
        columns=tuple(SentColumn(name, kind, ColumnFlag(flags)) for name, kind, flags in columns),
        partial=partial,
    )


def spelled(*columns: tuple[str, str], key: tuple[str, ...] | None = ()) -> RowShape:
    return RowShape(
        columns=tuple(SentColumn(name, kind) for name, kind in columns), primary_key=key
    )


def described(schema: TableSchema) -> list[str]:
    return [
        f"{'key' if index.primary else 'unique' if index.unique else 'index'} "
        f"{index.name}({', '.join(index.columns)})"
        for index in schema.indexes
    ]


# ----------------------------------------------------------------------- columns of a row alone


@pytest.mark.parametrize(
    ("mysql_type", "flags", "expected"),
    [
        ("int", BINARY | NULLABLE, {"charset": "binary", "nullable": True, "length": 0}),
        ("int", BINARY | UNSIGNED, {"unsigned": True, "nullable": False}),
        ("bit", BINARY | UNSIGNED, {"unsigned": True, "length": 0}),
        ("year", BINARY | UNSIGNED, {"unsigned": True, "zerofill": True, "length": 4}),
        ("decimal", BINARY, {"length": 0, "decimal": 0}),
        ("datetime", BINARY, {"length": 0, "decimal": -1}),
        ("time", BINARY, {"length": 0, "decimal": -1}),
        ("date", BINARY, {"length": 10, "decimal": 0}),
        ("varchar", 0, {"charset": "", "length": 0}),
        ("longtext", 0, {"charset": "", "length": 2**32 - 1}),
        ("varbinary", BINARY, {"charset": "binary"}),
        ("enum", 0, {"elements": (), "length": 0}),
        ("vector", BINARY, {"length": 0}),
        ("null", 0, {"mysql_type": "null"}),
    ],
)
def test_columns_of_base_types_and_flags(
    mysql_type: str, flags: int, expected: dict[str, object]
) -> None:
    (made,) = of(flagged(("c", mysql_type, flags))).columns
    assert {name: getattr(made, name) for name in expected} == expected
    sizeless = ("decimal", "datetime", "time", "enum")
    assert lacks_size(made) is (mysql_type in sizeless)


@pytest.mark.parametrize(
    ("mysql_type", "expected"),
    [
        ("decimal", {"mysql_type": "decimal", "length": 0}),
        ("decimal(20,6) unsigned", {"length": 20, "decimal": 6, "unsigned": True}),
        ("int(10) unsigned zerofill", {"mysql_type": "int", "length": 10, "zerofill": True}),
        ("double(9,3)", {"mysql_type": "double", "length": 9, "decimal": 3}),
        ("timestamp(3)", {"length": 23, "decimal": 3}),
        ("bit(17)", {"length": 17}),
        ("varchar(40)", {"length": 40, "charset": ""}),
        ("vector(3)", {"length": 3}),
        ("year(4)", {"length": 4, "zerofill": True}),
        ("text", {"length": 65535}),
        ("enum('a','it''s',')(','Ü','a\\nb')", {"elements": ("a", "it's", ")(", "Ü", "a\nb")}),
        ("set('unsigned')", {"elements": ("unsigned",), "unsigned": False}),
        ("frob(3) unsigned", {"mysql_type": "frob unsigned", "unsigned": True}),
    ],
)  # fmt: skip
def test_columns_of_spelled_types(mysql_type: str, expected: dict[str, object]) -> None:
    (made,) = of(spelled(("c", mysql_type))).columns
    assert {name: getattr(made, name) for name in expected if name != "mysql_type"} == {
        name: value for name, value in expected.items() if name != "mysql_type"
    }
    assert made.mysql_type == str(expected.get("mysql_type", made.mysql_type)).split()[0]


def test_where_sizes_are_sent_a_type_without_one_has_none() -> None:
    sizes = of(spelled(("a", "int(11)"), ("b", "datetime"), ("c", "time")))
    assert [column.decimal for column in sizes.columns] == [0, 0, 0]
    assert [column.length for column in sizes.columns] == [11, 19, 10]
    plain = of(spelled(("a", "int"), ("b", "datetime")))
    assert plain.columns[1].decimal == -1


# -------------------------------------------------------------------------------- keys of a row


@pytest.mark.parametrize(
    ("shape", "expected", "key"),
    [
        (flagged(("a", "int", BINARY | HANDLE | PRIMARY)), ["key primary(a)"], ("a",)),
        (flagged(("a", "char", HANDLE | PRIMARY)), ["key PRIMARY(a)"], ("a",)),
        (
            flagged(
                ("a", "int", BINARY | HANDLE | PRIMARY | MULTIPLE),
                ("b", "int", BINARY | HANDLE | PRIMARY | MULTIPLE),
                ("c", "int", BINARY | UNIQUE | NULLABLE),
            ),
            ["key PRIMARY(a, b)"],
            ("a", "b"),
        ),
        (
            flagged(
                ("a", "varchar", HANDLE | UNIQUE | MULTIPLE),
                ("b", "varchar", HANDLE | UNIQUE | MULTIPLE),
            ),
            ["unique a(a, b)"],
            ("a", "b"),
        ),
        (
            flagged(("primary", "char", HANDLE | UNIQUE)),
            ["unique primary_2(primary)"],
            ("primary",),
        ),
        (flagged(("a", "int", NULLABLE), ("b", "int", MULTIPLE)), [], ()),
        # Contradictions: what the handle key says wins.
        (flagged(("a", "int", HANDLE | UNIQUE | NULLABLE)), ["unique a(a)"], ("a",)),
        (flagged(("a", "int", UNIQUE), ("b", "int", 0)), [], ()),
        (spelled(("a", "int"), ("b", "char"), key=("b", "a")), ["key PRIMARY(b, a)"], ("b", "a")),
        (spelled(("a", "bigint"), key=("a",)), ["key primary(a)"], ("a",)),
        (spelled(("a", "int"), key=()), [], ()),
        (spelled(("a", "int"), key=("gone",)), [], ()),
        (spelled(("a", "int"), key=None), [], ()),
    ],
)  # fmt: skip
def test_keys_of_a_row_alone(shape: RowShape, expected: list[str], key: tuple[str, ...]) -> None:
    schema = of(shape)
    assert described(schema) == expected
    assert schema.handle_key == key
    assert all(not column.nullable for column in schema.columns if column.name in key)
    assert fits(schema, shape)


# -------------------------------------------------------------------------------- fits and merged

TABLE = table(
    "id bigint primary key, v varchar(20) charset gbk, n decimal(10,2) unsigned default 1.5,"
    " at datetime(3), e enum('a','b'), s set('x','y'), b bit(5), f vector(2), z blob,"
    " unique uv (v)"
)


@pytest.mark.parametrize("full", [False, True])
def test_the_rows_of_a_table_fit_it(full: bool) -> None:
    for shape in (shape_of(TABLE), canal_shape_of(TABLE, full_types=full)):
        assert fits(TABLE, shape)
        assert merged(TABLE, shape, version=100) == TABLE
        part = replace(shape, columns=shape.columns[:2], partial=True)
        assert fits(TABLE, part)
        assert merged(TABLE, part, version=100) == TABLE
    assert fits(TABLE, RowShape(columns=()))


@pytest.mark.parametrize(
    ("name", "mysql_type", "expected"),
    [
        ("id", "int", {"mysql_type": "int", "length": 0}),
        ("id", "bigint unsigned", {"unsigned": True}),
        ("v", "varbinary", {"mysql_type": "varbinary", "charset": "binary"}),
        ("v", "longtext", {"mysql_type": "longtext", "charset": "gbk"}),
        ("v", "char(20)", {"mysql_type": "char", "length": 20, "charset": "gbk"}),
        ("n", "decimal", {"unsigned": False, "length": 10, "decimal": 2, "default": "1.5"}),
        ("n", "decimal(12,2) unsigned", {"length": 12, "decimal": 2, "default": "1.5"}),
        ("n", "double unsigned", {"mysql_type": "double", "default": None}),
        ("at", "timestamp", {"mysql_type": "timestamp", "decimal": -1, "length": 0}),
        ("at", "datetime(6)", {"decimal": 6, "length": 26}),
        ("e", "enum('a','b','c')", {"elements": ("a", "b", "c")}),
        ("s", "set('y','x')", {"elements": ("y", "x")}),
        ("b", "bit(6)", {"length": 6}),
        ("f", "vector(3)", {"length": 3}),
        ("new", "json", {"mysql_type": "json", "nullable": True}),
        ("Z", "blob", {"mysql_type": "blob"}),
    ],
)
def test_what_a_row_contradicts_is_corrected(
    name: str, mysql_type: str, expected: dict[str, object]
) -> None:
    shape = spelled((name, mysql_type), key=None)
    assert not fits(TABLE, shape)
    schema = merged(TABLE, shape, version=200)
    assert fits(schema, shape)
    assert schema.version == 200
    made = schema.column(name)
    assert made is not None
    assert {field: getattr(made, field) for field in expected} == expected
    others = {column.name for column in TABLE.columns} - {name, name.lower()}
    assert all(schema.column(other) == TABLE.column(other) for other in others)
    assert {column.name for column in schema.columns} == others | {name}
    assert schema.handle_key == ("id",)


def test_a_renamed_column_keeps_its_place_in_indexes() -> None:
    schema = merged(TABLE, spelled(("V", "varchar"), key=None), version=1)
    assert described(schema) == ["unique uv(V)", "key primary(id)"]


def test_new_columns_stand_after_the_one_sent_before_them() -> None:
    before = table("b int, c int, d int")
    shape = spelled(("a", "int"), ("b", "int"), ("x", "int"), ("y", "int"), ("d", "int"), key=None)
    schema = merged(before, shape, version=1)
    assert [column.name for column in schema.columns] == ["a", "b", "x", "y", "c", "d"]


def test_columns_that_tidb_adds_itself_have_their_types() -> None:
    made = of(
        flagged(
            ("id", "int", HANDLE | PRIMARY),
            ("_tidb_softdelete_time", "timestamp", NULLABLE | BINARY),
            ("_tidb_origin_ts", "bigint", NULLABLE | BINARY | UNSIGNED),
            ("at", "timestamp", NULLABLE | BINARY),
        )
    )
    assert [(item.name, item.decimal, item.unsigned) for item in made.columns] == [
        ("id", 0, False),
        ("_tidb_softdelete_time", 6, False),
        ("_tidb_origin_ts", 0, True),
        ("at", -1, False),
    ]
    # A user's column of this name is of the type that rows have.
    other = of(flagged(("_tidb_softdelete_time", "int", NULLABLE)))
    assert other.columns[0].mysql_type == "int"


def test_what_a_row_does_not_say_is_kept() -> None:
    shape = replace(shape_of(TABLE), partial=True)
    wider = RowShape(columns=(*shape.columns, SentColumn("new", "int", BINARY | NULLABLE)))
    schema = merged(TABLE, wider, version=100)
    assert schema.columns[:-1] == TABLE.columns
    assert schema.indexes == TABLE.indexes


def test_sizes_and_labels_come_to_a_table_that_lacked_them() -> None:
    plain = of(canal_shape_of(TABLE))
    full = canal_shape_of(TABLE, full_types=True)
    assert not fits(plain, full)
    schema = merged(plain, full, version=6)
    for column in schema.columns:
        known = TABLE.column(column.name)
        assert known is not None
        assert not lacks_size(column)
        assert (column.elements, column.decimal) == (known.elements, known.decimal)


@pytest.mark.parametrize(
    ("sql", "shape", "expected"),
    [
        (
            "a int primary key, b int not null",
            flagged(("a", "int", BINARY), ("b", "int", BINARY | HANDLE | PRIMARY)),
            ["key primary(b)"],
        ),
        (
            "a int not null, b int not null, unique x (a), unique y (b)",
            flagged(("a", "int", BINARY | UNIQUE), ("b", "int", BINARY | UNIQUE | HANDLE)),
            ["unique y(b)", "unique x(a)"],
        ),
        (
            "a int not null, b int not null, c int, unique x (a), unique y (b, c)",
            flagged(
                ("b", "int", BINARY | UNIQUE | HANDLE | MULTIPLE),
                ("c", "int", BINARY | UNIQUE | HANDLE | MULTIPLE),
            ),
            ["unique y(b, c)", "index x(a)"],
        ),
        ("a int primary key", flagged(("a", "int", BINARY | NULLABLE)), []),
        ("a int, b int, primary key (a, b)", spelled(("a", "int"), ("b", "int")), []),
        (
            "a int, b int, primary key (a, b)",
            spelled(("a", "int"), ("b", "int"), key=("b",)),
            ["key primary(b)"],
        ),
    ],
)
def test_the_key_is_the_one_that_rows_tell(sql: str, shape: RowShape, expected: list[str]) -> None:
    before = table(sql)
    assert not fits(before, shape)
    schema = merged(before, shape, version=200)
    assert described(schema) == expected
    assert fits(schema, shape)


def test_a_key_outlives_the_type_of_its_column() -> None:
    schema = merged(table("a int primary key"), spelled(("a", "char"), key=None), version=1)
    assert described(schema) == ["key PRIMARY(a)"]
    assert schema.handle_key == ("a",)


def test_nullability_follows_the_flags() -> None:
    schema = merged(table("a int, b int"), flagged(("a", "int", BINARY)), version=1)
    assert [column.nullable for column in schema.columns] == [False, True]


# -------------------------------------------------------------------------------- shapes of tables


def test_flags_of_columns() -> None:
    schema = table(
        "a bigint unsigned not null, b varchar(9), c varbinary(9), d enum('x') not null, e json,"
        " f bit(3), g int not null, h text, i int, j char(3) charset binary,"
        " primary key (a, g) nonclustered, unique ub (b), unique ubd (b, d), key ki (i),"
        " key kh (h(3))"
    )
    shape = shape_of(schema)
    assert {column.name: (column.mysql_type, column.flags) for column in shape.columns} == {
        "a": ("bigint", BINARY | HANDLE | PRIMARY | MULTIPLE | UNSIGNED),
        "b": ("varchar", UNIQUE | MULTIPLE | NULLABLE),
        "c": ("varbinary", BINARY | NULLABLE),
        "d": ("enum", UNIQUE | MULTIPLE),
        "e": ("json", BINARY | NULLABLE),
        "f": ("bit", BINARY | NULLABLE | UNSIGNED),
        "g": ("int", BINARY | HANDLE | PRIMARY | MULTIPLE),
        "h": ("text", MULTIPLE | NULLABLE),
        "i": ("int", BINARY | MULTIPLE | NULLABLE),
        "j": ("binary", BINARY | NULLABLE),
    }
    assert shape.primary_key is None


@pytest.mark.parametrize(
    ("sql", "plain", "full"),
    [
        ("int", "int", "int(11)"),
        ("tinyint(1)", "tinyint", "tinyint(1)"),
        ("int(7) zerofill", "int unsigned zerofill", "int(7) unsigned zerofill"),
        ("float(9,2)", "float", "float(9,2)"),
        ("double unsigned", "double unsigned", "double unsigned"),
        ("decimal(9)", "decimal", "decimal(9,0)"),
        ("bit(3)", "bit", "bit(3)"),
        ("year", "year", "year(4)"),
        ("datetime(3)", "datetime", "datetime(3)"),
        ("time", "time", "time"),
        ("text", "text", "text"),
        ("varchar(9) charset binary", "varbinary", "varbinary(9)"),
        ("enum('it''s','a\\\\b')", "enum", "enum('it''s','a\\b')"),
        ("set('a\\nb')", "set", "set('a\\nb')"),
        ("vector", "vector", "vector"),
        ("json", "json", "json"),
    ],
)
def test_spelled_types(sql: str, plain: str, full: str) -> None:
    (column,) = table(f"c {sql}").columns
    assert spelled_type(column, full=False) == plain
    assert spelled_type(column, full=True) == full


def test_a_size_that_is_not_known_is_not_spelled() -> None:
    for column in of(canal_shape_of(TABLE)).columns:
        assert "(" not in spelled_type(column, full=True)


# ------------------------------------------------------------------------------------------ laws

BASE_TYPES = st.sampled_from(
    [
        "int", "bigint unsigned", "INT(11) UNSIGNED", "decimal", "decimal(10,2)", "decimal(3,9)",
        "varchar", "varchar(20)", "varbinary", "text", "blob", "char", "binary", "enum",
        "enum('a','b')", "enum('a', 'b')", "enum(a)", "set", "set('x')", "bit", "bit(9)", "bit(99)",
        "datetime", "datetime(3)", "datetime(9)", "time", "timestamp(6)", "date", "newdate", "year",
        "json", "vector", "vector(3)", "float", "double(9,3)", "frob", "", "()", ")(", "int((",
        "null",
    ]
)  # fmt: skip
NAMES = st.sampled_from(["a", "b", "A", "B", "primary", "ö'`\"; x", ""])
FLAGS = st.integers(0, 255).map(ColumnFlag)
SHAPES = st.one_of(
    st.builds(
        RowShape,
        columns=st.lists(st.builds(SentColumn, NAMES, BASE_TYPES, FLAGS), max_size=5).map(tuple),
        partial=st.booleans(),
    ),
    st.builds(
        RowShape,
        columns=st.lists(st.builds(SentColumn, NAMES, BASE_TYPES), max_size=5).map(tuple),
        primary_key=st.none() | st.lists(NAMES, max_size=3).map(tuple),
        partial=st.booleans(),
    ),
)


def distinct(shape: RowShape) -> RowShape:
    """Return `shape` with each name once, as decoders give it."""
    columns = {column.name: column for column in shape.columns}
    return replace(shape, columns=tuple(columns.values()))


COLUMNS = st.lists(
    st.builds(
        ColumnSchema,
        name=NAMES,
        mysql_type=BASE_TYPES.map(lambda text: text.partition("(")[0].lower()),
        charset=st.sampled_from(["", "utf8mb4", "binary"]),
        length=st.integers(-1, 30),
        decimal=st.integers(-1, 7),
        elements=st.sampled_from([(), ("a",), ("a", "b")]),
        unsigned=st.booleans(),
        nullable=st.booleans(),
    ),
    max_size=4,
    unique_by=lambda column: column.name,
).map(tuple)


@st.composite
def schemas(draw: st.DrawFn) -> TableSchema:
    columns = draw(COLUMNS)
    names = [column.name for column in columns]
    indexes = st.builds(
        IndexSchema,
        name=st.sampled_from(["primary", "PRIMARY", "i", "a"]),
        unique=st.booleans(),
        primary=st.booleans(),
        nullable=st.booleans(),
        columns=st.lists(st.sampled_from(names or ["-"]), unique=True, max_size=2).map(tuple),
    )
    return TableSchema(
        database="d",
        table="t",
        table_id=1,
        version=1,
        columns=columns,
        indexes=tuple(draw(st.lists(indexes, max_size=3))) if names else (),
    )


@given(schemas(), SHAPES.map(distinct))
def test_what_a_row_proved_it_fits(schema: TableSchema, shape: RowShape) -> None:
    made = merged(schema, shape, version=2)
    assert fits(made, shape)
    again = merged(made, shape, version=2)
    assert again == made
    assert schema_from_json(schema_to_json(made), "$") == made
    sent = {column.name for column in shape.columns}
    kept = {column.name for column in schema.columns}
    assert sent <= {column.name for column in made.columns} <= sent | kept
    if fits(schema, shape):
        assert [replace(column, nullable=True) for column in made.columns] == [
            replace(column, nullable=True) for column in schema.columns
        ]


@given(schemas())
def test_a_tables_own_rows_fit_it(schema: TableSchema) -> None:
    for shape in (shape_of(schema), canal_shape_of(schema)):
        made = merged(schema, shape, version=2)
        assert fits(made, shape)
    alone = of(shape_of(schema))
    assert set(alone.handle_key) == set(schema.handle_key)


@given(SHAPES)
def test_any_shape_has_a_schema_and_a_shape(shape: RowShape) -> None:
    schema = of(shape)
    fits(schema, shape)
    assert schema_from_json(schema_to_json(schema), "$") == schema
    canal_shape_of(schema, full_types=True)
    shape_of(schema)
