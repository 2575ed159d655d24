"""What CREATE TABLE and ALTER TABLE make of a schema, case by case as TiDB does it."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.model.schemas import (
    ColumnSchema,
    IndexSchema,
    TableSchema,
    schema_from_json,
    schema_to_json,
)
from ticdc_assets.registry.ddl.reader import parse_ddl
from ticdc_assets.registry.inference.columns import DATABASE_DEFAULTS, Defaults, defaults_after
from ticdc_assets.registry.inference.schemas import Inferred, schema_after
from ticdc_assets_tests.cases import cases, grouped

SHANGHAI = "Asia/Shanghai"
GBK = Defaults("gbk", "gbk_chinese_ci")


def create(sql: str, defaults: Defaults = DATABASE_DEFAULTS, timezone: str = SHANGHAI) -> Inferred:
    new = TableSchema(database="d", table="t", table_id=7, version=100, columns=(), indexes=())
    return schema_after(parse_ddl(sql), new, defaults=defaults, timezone=timezone)


def table(sql: str, defaults: Defaults = DATABASE_DEFAULTS) -> TableSchema:
    made = create(f"create table t ({sql})", defaults)
    assert made.notes == ()
    return made.schema


def column(sql: str, defaults: Defaults = DATABASE_DEFAULTS) -> ColumnSchema:
    """Return the one column that `c sql` defines."""
    (made,) = table(f"c {sql}", defaults).columns
    return made


def alter(
    schema: TableSchema, sql: str, defaults: Defaults = DATABASE_DEFAULTS
) -> tuple[TableSchema, tuple[str, ...]]:
    text = sql if " on t" in sql else f"alter table t {sql}"
    made = schema_after(parse_ddl(text), schema, defaults=defaults, timezone=SHANGHAI)
    assert schema_from_json(schema_to_json(made.schema), "$") == made.schema
    return made.schema, made.notes


def names(schema: TableSchema) -> list[str]:
    return [column.name for column in schema.columns]


def indexes(schema: TableSchema) -> str:
    """Return the indexes as `i(b); unique u(a, b); key PRIMARY(a)`."""
    return "; ".join(
        f"{'key ' if index.primary else 'unique ' if index.unique else ''}"
        f"{index.name}({', '.join(index.columns)})"
        for index in schema.indexes
    )


# ------------------------------------------------------------------------------- column types


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("tinyint", {"length": 4}),
        ("bool", {"mysql_type": "tinyint", "length": 1}),
        ("tinyint unsigned", {"mysql_type": "tinyint", "length": 3, "unsigned": True}),
        ("smallint", {"length": 6}),
        ("smallint zerofill", {"length": 5, "unsigned": True, "zerofill": True}),
        ("mediumint", {"length": 9}),
        ("mediumint unsigned", {"length": 8, "unsigned": True}),
        ("integer", {"mysql_type": "int", "length": 11}),
        ("int4 unsigned", {"mysql_type": "int", "length": 10, "unsigned": True}),
        ("int(5) unsigned", {"length": 5, "unsigned": True}),
        ("bigint unsigned", {"length": 20, "unsigned": True}),
        ("serial", {"mysql_type": "bigint", "length": 20, "unsigned": True, "nullable": False}),
        ("int auto_increment", {"length": 11, "nullable": False}),
        ("decimal", {"length": 10, "decimal": 0}),
        ("numeric(8)", {"mysql_type": "decimal", "length": 8}),
        ("dec(0)", {"mysql_type": "decimal", "length": 10}),
        ("fixed(12,3) unsigned", {"mysql_type": "decimal", "length": 12, "decimal": 3}),
        ("float", {"length": 12}),
        ("float(24)", {"mysql_type": "float", "length": 12}),
        ("float(25)", {"mysql_type": "double", "length": 22}),
        ("float(7,4)", {"length": 7, "decimal": 4}),
        ("real", {"mysql_type": "double", "length": 22}),
        ("double precision(9,2)", {"mysql_type": "double", "length": 9, "decimal": 2}),
        ("bit", {"length": 1, "unsigned": True}),
        ("bit(17)", {"length": 17, "unsigned": True}),
        ("year", {"length": 4, "unsigned": True, "zerofill": True}),
        ("year(4) not null", {"unsigned": True, "zerofill": True, "default": "0000"}),
        ("date", {"length": 10}),
        ("datetime", {"length": 19, "decimal": 0}),
        ("timestamp(6)", {"length": 26, "decimal": 6}),
        ("time(2)", {"length": 13, "decimal": 2}),
        ("json", {"length": 2**32 - 1, "charset": "binary"}),
        ("vector", {"length": -1, "charset": "binary"}),
        ("vector(3)", {"length": 3}),
        ("char", {"length": 1, "charset": "utf8mb4", "collation": "utf8mb4_bin"}),
        ("varchar(0)", {"length": 0}),
        ("national varchar(9)", {"mysql_type": "varchar", "length": 9}),
        ("varbinary(9)", {"length": 9, "charset": "binary", "collation": "binary"}),
        ("long", {"mysql_type": "mediumtext", "length": 2**24 - 1}),
        ("text(63)", {"mysql_type": "tinytext", "length": 255}),
        ("text(64)", {"mysql_type": "text", "length": 65535}),
        ("text(255) charset latin1", {"mysql_type": "tinytext", "collation": "latin1_bin"}),
        ("text(16384)", {"mysql_type": "mediumtext", "length": 2**24 - 1}),
        ("text(99999999)", {"mysql_type": "longtext", "length": 2**32 - 1}),
        ("text collate binary", {"mysql_type": "blob", "charset": "binary"}),
        ("text(300) charset binary", {"mysql_type": "blob", "collation": "binary"}),
        ("blob(70000)", {"mysql_type": "mediumblob", "length": 2**24 - 1}),
        ("blob(256)", {"mysql_type": "blob", "length": 65535, "charset": "binary"}),
        ("varchar(9) charset binary", {"mysql_type": "varbinary", "collation": "binary"}),
        ("tinytext charset binary", {"mysql_type": "tinyblob", "length": 255}),
        ("varchar(9) charset gbk", {"charset": "gbk", "collation": "gbk_chinese_ci"}),
        ("varchar(9) charset ascii", {"charset": "ascii", "collation": "ascii_bin"}),
        ("varchar(9) charset utf8mb3", {"charset": "utf8", "collation": "utf8_bin"}),
        ("char(9) collate utf8mb3_general_ci", {"charset": "utf8", "collation": "utf8_general_ci"}),
        ("char(9) collate utf8mb4_unicode_ci", {"collation": "utf8mb4_unicode_ci"}),
        ("varchar(9) binary", {"charset": "utf8mb4", "collation": "utf8mb4_bin"}),
        ("enum('a','ää')", {"elements": ("a", "ää"), "length": 4, "charset": "utf8mb4"}),
        ("set('a','bb') charset latin1", {"elements": ("a", "bb"), "length": 4}),
        ("enum('a') charset binary", {"mysql_type": "enum", "charset": "binary"}),
        ("int as (1 + 1) stored", {"mysql_type": "int", "default": None}),
        *(
            (words, {"mysql_type": mysql_type})
            for mysql_type, spellings in {
                "tinyint": "int1, boolean, tinyint(1)",
                "smallint": "int2",
                "mediumint": "middleint, int3",
                "int": "int, INTEGER(7), int4 signed",
                "bigint": "int8, int8 unsigned",
                "double": "float8, double",
                "char": "char(20), nchar(20), national character(2)",
                "varchar": """
                    varchar(9); character varying(20); varcharacter(20); nvarchar(20);
                    national char varying(20); nchar varchar(3); char varying(2)
                """,
                "binary": "binary",
                "tinytext": "tinytext",
                "tinyblob": "text(99) byte",
                "mediumtext": "long char varying, long varchar",
                "mediumblob": "long varbinary, long byte",
                "longblob": "longblob",
                "vector": "vector<float>(3)",
            }.items()
            for words in re.split(r"[,;]\s*", spellings.strip())
        ),
        ("bit(64)", {"length": 64}),
    ],
)
def test_column_types(sql: str, expected: dict[str, object]) -> None:
    made = column(sql)
    assert {name: getattr(made, name) for name in expected} == expected


def test_text_has_the_charset_of_column_table_or_database_in_this_order() -> None:
    sql = "create table t (a char(1), b char(1) charset ascii, c enum('x'), d blob, e text(255))"
    charsets = [
        (create(sql + options, GBK).schema, charset)
        for options, charset in [
            ("", "gbk"),
            (" charset latin1", "latin1"),
            (" collate = latin1_swedish_ci", "latin1"),
        ]
    ]
    for schema, charset in charsets:
        assert [c.charset for c in schema.columns] == [charset, "ascii", charset, "binary", charset]
    assert charsets[2][0].columns[0].collation == "latin1_swedish_ci"
    # TEXT(n) is as large as n characters of the charset that it has in the end.
    assert [schema.columns[4].mysql_type for schema, _ in charsets] == [
        "text",
        "tinytext",
        "tinytext",
    ]
    binary = create(sql, Defaults("binary", "binary")).schema
    assert [c.mysql_type for c in binary.columns] == ["binary", "char", "enum", "blob", "tinyblob"]


@pytest.mark.parametrize(
    "options", ["collate=binary collate latin1_bin", "charset binary charset latin1"]
)
def test_of_several_charsets_of_a_table_the_last_counts(options: str) -> None:
    schema = create(f"create table t (a char(3), b text(300)) {options}").schema
    assert [(c.mysql_type, c.collation) for c in schema.columns] == [
        ("char", "latin1_bin"),
        ("text", "latin1_bin"),
    ]


def test_defaults_of_databases_and_tables() -> None:
    assert defaults_after(parse_ddl("create database d"), DATABASE_DEFAULTS) == DATABASE_DEFAULTS
    latin1 = defaults_after(parse_ddl("create database d charset latin1"), DATABASE_DEFAULTS)
    assert latin1 == Defaults("latin1", "latin1_bin")
    altered = defaults_after(parse_ddl("alter database d collate utf8mb4_general_ci"), latin1)
    assert altered == Defaults("utf8mb4", "utf8mb4_general_ci")
    assert defaults_after(parse_ddl("create table t (a int) charset gbk"), latin1) == GBK
    assert defaults_after(parse_ddl("create table t (a int)"), latin1) == latin1
    assert defaults_after(parse_ddl("alter table t charset gbk, add b int"), latin1) == GBK
    converted = parse_ddl("alter table t convert to charset utf8 collate utf8_general_ci")
    assert defaults_after(converted, latin1) == Defaults("utf8", "utf8_general_ci")
    apart = parse_ddl("alter table t collate utf8_general_ci, add b int, charset utf8")
    assert defaults_after(apart, latin1) == Defaults("utf8", "utf8_general_ci")
    both = parse_ddl("alter table t convert to charset gbk, default charset = utf8")
    assert defaults_after(both, latin1) == GBK
    by_default = parse_ddl("alter table t convert to character set default")
    assert defaults_after(by_default, latin1) == latin1


# ----------------------------------------------------------------------------------- defaults


DEFAULTS = [
    *(
        (f"{kind} default {text}", made)
        for kind, text, made in grouped("""
int: -7 = -7 | +007 = 7 | 1.5 = 1.5 | -2.5 = -2.5 | '12.4' = 12.4 | true = 1 | 0x10 = 16 |
    b'101' = 5 | 1e3 = 1000 | x'00ff' = 255 | 'abc' = abc
bigint unsigned: 18446744073709551615 = 18446744073709551615 |
    0xffffffffffffffff = 18446744073709551615
decimal(20,4): 1.5 = 1.5 | 0.00 = 0.00 | '-1.50' = -1.50 | .5 = 0.5 | 007.10 = 7.10 | 1e2 = 100
float: 1.10 = 1.10
float(7,2): 1.129 = 1.129
double: '1e21' = 1e21 | 0x10 = 16
year: 24 = 24 | '2024' = 2024
year not null: 2024 = 2024
date: '2024-1-9' = 2024-1-9 | 20240131 = 2024-01-31 | (current_date) = CURRENT_DATE |
    'soon' = soon
datetime: '2024-01-31' = 2024-01-31 | 0 = 0000-00-00 00:00:00 |
    '0000-00-00 00:00:00' = 0000-00-00 00:00:00 | now() = CURRENT_TIMESTAMP
datetime(6): localtimestamp(6) = CURRENT_TIMESTAMP
timestamp: current_timestamp on update current_timestamp = CURRENT_TIMESTAMP |
    (now()) = CURRENT_TIMESTAMP | '2024-03-11 08:51:01' = 2024-03-11 00:51:01 |
    '0000-00-00 00:00:00' = 0000-00-00 00:00:00 | 20240311085101 = 2024-03-11 00:51:01
timestamp(2): '2024-03-11 08:51:01.5' = 2024-03-11 00:51:01.50
time: 100 = 100
time(3): '-01:02:03.456' = -01:02:03.456
varchar(99): 1.50 = 1.50 | 0x6162 = ab | b'01100001' = a | (uuid()) = uuid() |
    current_timestamp = current_timestamp
varchar(99) charset gbk: 0xd6d0 = 中
varbinary(9): 'vb' = vb | x'' = ''
binary(4): 'vb' = vb | _UTF8MB4'ab' = ab
decimal(9,2): x'10' = 16
enum('a','b'): 0x62 = b | 2 = b
enum('a','B'): 'B' = B
enum('a','b') collate utf8mb4_general_ci: 'B' = B
set('a','b','c'): 'c,a' = c,a | 5 = a,c
text: ('x') = x
json: (json_object('a', (1))) = json_object('a', (1))
bigint: (next value for s) = next value for s
enum('a'): 'z' = z
""")
    ),
    ("int", None),
    ("int default null", None),
    ("bit(8) default b'101'", 5),
    ("bit(8) default 5", 5),
    ("bit(8) default 0x0A", 10),
    ("bit(8) default '1'", 49),
    ("bit(64) default 18446744073709551615", 2**64 - 1),
    # Shanghai's clocks skipped midnight to one o'clock on this day.
    ("timestamp default '1988-04-17 02:30:00'", "1988-04-16 18:00:00"),
    ("char(5) default 'a '", "a "),
    ("varchar(99) default 'dé🚀''f\\n'", "dé🚀'f\n"),
    ("varchar(99) default ''", ""),
    ("binary(4) default 0x00ff", b"\0\xff"),
    ("binary(4) default x'4100'", "A\0"),
    ("binary(3) default b'0111111111'", b"\x01\xff"),
    ("binary(3) default _binary x'ff41'", b"\xffA"),
    ("binary(3) default (X'FF')", b"\xff"),
    ("char(3) charset binary default 0xff", b"\xff"),
    ("varbinary(9) default x'41ff'", b"A\xff"),
    ("varbinary(9) default 0xff00", b"\xff\0"),
    ("varbinary(9) default 0xefbfbd", b"\xef\xbf\xbd"),
    ("varchar(9) charset binary default x'ff'", b"\xff"),
    ("blob default (x'80')", b"\x80"),
    ("bit(9) default 0x01ff", 511),
    ("set('a','b','c') default ''", ""),
    # No value of the type.
    ("bit(8) default 'too long for any'", None),
]


@pytest.mark.parametrize(("sql", "expected"), DEFAULTS)
def test_defaults(sql: str, expected: str | int | bytes | None) -> None:
    assert column(sql).default == expected


def test_a_zone_that_is_none_counts_as_utc() -> None:
    sql = "create table t (c timestamp default '2024-03-11 08:51:01')"
    assert create(sql, timezone="Nowhere").schema.columns[0].default == "2024-03-11 08:51:01"


def test_huge_numbers_are_left_alone() -> None:
    digits = "9" * 5000
    for sql in ("int", "double", "bit(8)", "decimal(5,2)", "datetime", "varchar(9)", "enum('a')"):
        for literal in (digits, f"0.{digits}", "1e999999", f"'{digits}'", f"b'{'1' * 5000}'"):
            column(f"{sql} default {literal}")


# -------------------------------------------------------------------------------- CREATE TABLE


@pytest.mark.parametrize(
    ("sql", "expected"),
    cases("""
a int -> none /
a int primary key, b int -> key primary(a) / a
a int primary key nonclustered -> key PRIMARY(a) / a
a varchar(9) primary key -> key PRIMARY(a) / a
a int, b int, key (b), primary key (b, a) -> b(b); key PRIMARY(b, a) / b a
a int primary key, b int unique, unique (b), index i (b, a) -> unique b(b); i(b, a); unique b_2(b);
    key primary(a) / a
a int, constraint s unique u (a) -> unique s(a) /
a int, b int, key (t.b), primary key (d.t.a) -> b(b); key primary(a) / a
a int, unique u (a) -> unique u(a) /
a int not null, unique u (a) -> unique u(a) / a
A int not null, unique u (a) -> unique u(A) / A
a int not null, b int not null, unique x (a, b), unique y (b), unique z (a) -> unique x(a, b);
    unique y(b); unique z(a) / b
a int not null, unique u ((a + 1)) -> u() /
a int not null, unique ((a + 1), a) -> expression_index(a) /
a int not null, unique u (a) where a > 5 -> unique u(a) /
a varchar(99) not null, unique u (a(5)) -> unique u(a) / a
`PRIMARY` int, key (`PRIMARY`) -> PRIMARY_2(PRIMARY) /
a int, fulltext f (a), constraint k foreign key (a) references p (a) -> f(a) /
"""),
)
def test_indexes_of_create_table(sql: str, expected: str) -> None:
    """The indexes, and the key by which rows are known."""
    schema = table(sql)
    found = f"{indexes(schema) or 'none'} / {' '.join(schema.handle_key)}"
    assert found.rstrip() == expected
    for name in schema.handle_key:
        made = schema.column(name)
        assert made is not None
        assert not made.nullable
    for index in schema.indexes:
        nullable = [made.nullable for made in schema.columns if made.name in index.columns]
        assert index.nullable is any(nullable)


def test_what_cannot_be_understood_is_noted() -> None:
    made = create("create table t (a int, A int, key k (nope), b frob(9) quux)")
    assert names(made.schema) == ["a", "b"]
    assert indexes(made.schema) == ""
    assert len(made.notes) == 3
    assert "nope" in made.notes[1]
    assert "frob" in made.notes[2]
    assert create("create table t select 1").notes == (
        "columns that come from a query are not known",
    )


# --------------------------------------------------------------------------------- ALTER TABLE

T = "a int primary key, b varchar(20), c int not null, key ib (b), unique uc (c, b)"


@pytest.mark.parametrize(
    ("sql", "expected"),
    cases("""
add d int -> a b c d
add column d int first -> d a b c
add d int after A -> a d b c
add (d int, e int), add f int after a -> a f b c d e
add d int after a, add e int after d -> a d e b c
drop column B -> a c
drop b, add b int first -> b a c
modify c int first -> c a b
modify B bigint -> a B c
change b bb text after c -> a c bb
rename column b to z -> a z c
rename column b to B -> a B c
rename column b to z, add b int after c -> a z c b
add if not exists b int -> a b c
drop column if exists zz -> a b c
modify column if exists zz int -> a b c
comment = 'x', add d int, algorithm = instant -> a b c d
rename to other -> a b c
"""),
)
def test_columns_after_alter_table(sql: str, expected: str) -> None:
    schema, notes = alter(table(T), sql)
    assert names(schema) == expected.split()
    assert notes == ()


@pytest.mark.parametrize(
    ("sql", "expected"),
    cases("""
drop b -> unique uc(c); key primary(a)
drop b, drop index ib -> unique uc(c); key primary(a)
rename column b to z -> ib(z); unique uc(c, z); key primary(a)
add index (b) -> ib(b); unique uc(c, b); b(b); key primary(a)
add key (b), add key (b) -> ib(b); unique uc(c, b); b(b); b_2(b); key primary(a)
drop index ib -> unique uc(c, b); key primary(a)
drop key IB, add unique ib (c) -> unique uc(c, b); unique ib(c); key primary(a)
add unique ib (c), drop key ib -> unique uc(c, b); unique ib(c); key primary(a)
rename index ib to x -> x(b); unique uc(c, b); key primary(a)
drop primary key -> ib(b); unique uc(c, b)
drop primary key, add primary key (c, a) -> ib(b); unique uc(c, b); key PRIMARY(c, a)
drop index if exists nope, alter index ib invisible -> ib(b); unique uc(c, b); key primary(a)
add index if not exists ib (c) -> ib(b); unique uc(c, b); key primary(a)
create unique index x on t (b desc, c) -> ib(b); unique uc(c, b); unique x(b, c); key primary(a)
create index x on t ((b)) -> ib(b); unique uc(c, b); x(); key primary(a)
drop index uc on t -> ib(b); key primary(a)
drop index `primary` on t -> ib(b); unique uc(c, b)
add constraint fk foreign key (b) references p (b) -> ib(b); unique uc(c, b); key primary(a)
"""),
)
def test_indexes_after_alter_table(sql: str, expected: str) -> None:
    schema, notes = alter(table(T), sql)
    assert indexes(schema) == expected
    assert notes == ()


def test_a_primary_key_makes_its_columns_not_null() -> None:
    schema, _ = alter(table("a int, b int"), "add primary key (b)")
    assert [made.nullable for made in schema.columns] == [True, False]
    schema, _ = alter(schema, "modify b bigint")
    assert [made.nullable for made in schema.columns] == [True, False]
    schema, _ = alter(schema, "drop primary key")
    assert [made.nullable for made in schema.columns] == [True, False]
    schema, _ = alter(schema, "modify b bigint null")
    assert [made.nullable for made in schema.columns] == [True, True]


def test_a_primary_key_outlives_the_type_of_its_column() -> None:
    schema, _ = alter(table("a int primary key, b int, key (b)"), "modify a char(9)")
    assert indexes(schema) == "b(b); key PRIMARY(a)"
    assert schema.handle_key == ("a",)


def test_defaults_of_columns_that_are_there() -> None:
    schema, notes = alter(
        table("a timestamp, b bit(4), c int default 4, d varchar(9) default 'x'"),
        "alter a set default '2024-03-11 08:51:01', alter column b set default b'11',"
        " alter c drop default, alter d set default null",
    )
    assert [made.default for made in schema.columns] == ["2024-03-11 00:51:01", 3, None, None]
    assert notes == ()


def test_convert_to_another_charset() -> None:
    before = table("a int, b varchar(5), c enum('x'), d blob, e text charset ascii")
    schema, _ = alter(before, "convert to character set latin1")
    assert [made.charset for made in schema.columns] == [
        "binary",
        "latin1",
        "latin1",
        "binary",
        "latin1",
    ]
    schema, _ = alter(before, "convert to charset default", GBK)
    assert schema.columns[1].collation == "gbk_chinese_ci"
    schema, _ = alter(before, "convert to charset utf8mb4 collate utf8mb4_general_ci")
    assert schema.columns[4].collation == "utf8mb4_general_ci"
    schema, _ = alter(before, "default charset = latin1")
    assert schema == before


def test_added_text_has_the_tables_charset() -> None:
    schema, _ = alter(table("a int"), "add b text, modify a char(3)", GBK)
    assert [made.charset for made in schema.columns] == ["gbk", "gbk"]


@pytest.mark.parametrize(
    "sql",
    [
        "drop column nope",
        "modify nope int",
        "change nope c int",
        "rename column nope to x",
        "rename column b to c",
        "alter nope set default 1",
        "alter nope drop default",
        "drop index nope",
        "rename index nope to x",
        "add index (nope)",
        "add primary key ((a + 1))",
        "modify b varchar(20) after nope",
        "modify b varchar(20) after b",
        "frobnicate b",
    ],
)
def test_a_change_that_does_not_fit_is_skipped_and_noted(sql: str) -> None:
    before = table(T)
    schema, notes = alter(before, sql)
    assert schema == before
    assert len(notes) == 1


def test_what_should_not_have_been_there_gives_way() -> None:
    schema, notes = alter(table(T), "add b int first, add unique ib (a)")
    assert names(schema) == ["b", "a", "c"]
    assert schema.columns[0].mysql_type == "int"
    assert indexes(schema) == "unique uc(c, b); unique ib(a); key primary(a)"
    assert len(notes) == 2


def sent_index(name: str, *columns: str, primary: bool = False) -> IndexSchema:
    return IndexSchema(name=name, unique=True, primary=primary, nullable=False, columns=columns)


def test_the_stand_in_for_a_primary_key_is_no_index() -> None:
    bare = table("a varchar(9) not null, b int not null, unique uab (a, b), unique ub (b)")
    # TiCDC lists the first NOT NULL unique key again, but works with the shortest.
    sent = replace(bare, indexes=(*bare.indexes, sent_index("primary", "a", "b", primary=True)))
    assert sent.own_indexes == bare.indexes
    assert sent.handle_key == bare.handle_key == ("b",)
    schema, _ = alter(sent, "drop index ub")
    assert indexes(schema) == "unique uab(a, b)"
    text = replace(bare, indexes=(sent_index("u", "a"), sent_index("primary", "a", primary=True)))
    assert text.own_indexes == text.indexes[:1]
    row_id = replace(bare, indexes=(sent_index("u", "b"), sent_index("primary", "b", primary=True)))
    assert row_id.own_indexes == row_id.indexes


# ------------------------------------------------------------------------------------ any text

WORDS = """
    add drop modify change rename column index key primary unique to after first a b c d int text
    varchar(9) enum('x') not null default 1 'x' ( ) , convert charset latin1 set alter on update
    current_timestamp as (a+1) stored if exists serial bit(3) 0xff `` ´ ;
"""


@given(
    st.lists(st.sampled_from(WORDS.split()), max_size=14),
    st.sampled_from(["alter table t", "create table t (a"]),
)
def test_no_text_raises_and_every_schema_is_one(words: list[str], start: str) -> None:
    sql = " ".join([start, *words])
    for schema in (create(sql).schema, schema_after(parse_ddl(sql), table(T)).schema):
        assert schema_from_json(schema_to_json(schema), "$") == schema
        assert len({made.name.lower() for made in schema.columns}) == len(schema.columns)


@pytest.mark.parametrize(
    ("piece", "count"),
    [
        ("add c{n} int", 5000),
        ("add key (a)", 2000),
        ("modify c{n} int first", 2000),
        ("drop nope", 2000),
        ("convert to charset gbk", 2000),
    ],
)
def test_a_hostile_statement_is_bounded(piece: str, count: int) -> None:
    sql = "alter table t " + ",".join(piece.format(n=number) for number in range(count))
    before = table(T + "".join(f", c{number} int" for number in range(1000)))
    made = schema_after(parse_ddl(sql), before)
    assert len(made.schema.columns) <= 4096
    assert len(made.schema.indexes) <= 512
    assert len(made.notes) <= 100
