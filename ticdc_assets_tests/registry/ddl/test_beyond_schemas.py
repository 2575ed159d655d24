"""What the text of a DDL says beyond its schemas, told without reading the text where it can be."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from ticdc_assets.model.events import DdlEvent
from ticdc_assets.registry.ddl.reader import parse_ddl
from ticdc_assets.registry.ddl.statement import DdlAction, DdlStatement, GeneratedKind
from ticdc_assets.registry.history import Coordinates, RegisteredDdl
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets_tests.examples import examples
from ticdc_assets_tests.text_tables import created, ddl
from ticdc_assets_tests.wire import golden

OUTLINE = DdlStatement(action=DdlAction.CREATE_TABLE)


def registered(event: DdlEvent) -> RegisteredDdl:
    return RegisteredDdl(
        event=event,
        coordinates=Coordinates(topic="t", partition=0, offset=0, index=0),
        copies=frozenset(),
    )


def beyond_schemas(ddl: RegisteredDdl) -> DdlStatement:
    return ddl.statements_beyond_schemas[0]


def of_text(sql: str) -> RegisteredDdl:
    table = created("create table t1 (a int primary key)")
    return registered(ddl(WireFormat.SIMPLE_JSON, sql, ts=20, after=table))


def require_nothing_beyond(sql: str) -> None:
    """Check that a text says nothing that decides what its table holds, but for its schema."""
    statement = parse_ddl(sql)
    virtual = [
        column for column in statement.defined_columns if column.generated is GeneratedKind.VIRTUAL
    ]
    assert statement.action is DdlAction.CREATE_TABLE
    # The rows of a query come as changes.
    partial = [index for index in statement.indexes if index.condition is not None]
    told = (statement.like, statement.partitioning, virtual, partial)
    assert not any(told)
    assert not statement.changes
    assert not statement.renames


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE t1 (a int primary key)",
        "create table if not exists `d`.`t1` (a int, `basis` int comment 'x', key (a))",
        "  create\ntable t1 (likes int, partition_of int, asset int)",
        "CREATE TABLE t1 (a int /*T![clustered_index] primary key */) comment='sent'",
    ],
)
def test_a_table_that_its_schema_tells_is_not_read_through(sql: str) -> None:
    assert beyond_schemas(of_text(sql)) == OUTLINE
    require_nothing_beyond(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE t1 LIKE t0",
        "CREATE TABLE t1(LIKE t0)",
        "CREATE TABLE t1 (a int) PARTITION BY HASH (a) PARTITIONS 4",
        "CREATE TABLE t1 (a int) /*!50100PARTITION BY HASH (a) PARTITIONS 4 */",
        "CREATE TABLE t1 (a int) /*T! partition by hash (a) partitions 4 */",
        "CREATE TABLE t1 (a int, b int AS(a + 1))",
        "CREATE TABLE t1 (a int, b int generated always as (a + 1) virtual)",
        "CREATE TABLE t1 (a int, b int /*!50706AS (a + 1) */)",
        "CREATE TABLE t1 (a int, unique u(a) WHERE a > 1)",
        "CREATE TABLE t1 AS SELECT 1 AS a",
        "CREATE VIEW t1 AS SELECT 1",
        "CREATE TEMPORARY TABLE t1 (a int)",
        "/* first */ CREATE TABLE t1 (a int)",
        "CREATE OR REPLACE TABLE t1 (a int)",
        "CREATE TABLES t1 (a int)",
        "",
    ],
)
def test_a_text_that_may_say_more_is_read(sql: str) -> None:
    assert beyond_schemas(of_text(sql)) == parse_ddl(sql)


def test_a_table_without_a_schema_is_read_from_its_text() -> None:
    sql = "CREATE TABLE t1 (a int)"
    event = ddl(WireFormat.CANAL_JSON, sql, ts=20, after=created(sql))
    assert beyond_schemas(registered(event)) == parse_ddl(sql)


def test_a_change_of_a_table_is_read() -> None:
    before = created("create table t1 (a int)")
    after = created("create table t1 (a int, b int)")
    event = ddl(
        WireFormat.SIMPLE_JSON, "ALTER TABLE t1 ADD b int", ts=20, before=before, after=after
    )
    assert beyond_schemas(registered(event)) == parse_ddl(event.sql)


_COLUMNS = st.sampled_from(
    ("b int", "likes int comment 'likes (x'", "c int default '1' -- so\n", "key (a)", "$as int")
) | st.sampled_from(
    (
        *("b int as (a + 1)", "b int AS(a + 1) stored", "b int /*!50706as (a + 1) */ virtual"),
        *("b int generated always as (a + 1)", "b int comment 'like'", "`as` int"),
        *("unique u(a) where a > 1", "key (a)where(a is null)"),
    )
)
_OPTIONS = st.sampled_from(
    ("", " comment 'partitioned'", "comment='sent'", " /*T![ttl] ttl = a + interval 1 day */")
) | st.sampled_from(
    (
        *(
            " partition by hash (a) partitions 4",
            "PARTITION BY key (a)",
            "/*T!partition by key () */",
        ),
        *(" /*!50100partition by hash (a) */", " as select 1 as a", " comment 'as'"),
    )
)
_BLANKS = st.sampled_from(("", " ", "\n", "/* so */", " -- likely\n", " # by\n"))


def test_nothing_that_matters_is_passed_over() -> None:
    passed_over: list[bool] = []
    columns = st.lists(st.tuples(_BLANKS, _COLUMNS).map("".join), max_size=2)
    defined = columns.map(lambda more: ",".join(["(a int", *more]))
    table = st.tuples(_BLANKS, defined, _BLANKS, st.just(")"), _BLANKS, _OPTIONS)
    like = st.tuples(_BLANKS, st.sampled_from((" like t0", "(like t0)", "(LIKE`t0`)")))

    @examples(300)
    @given((table | table | like).map("".join))
    def nothing_is_passed_over(rest: str) -> None:
        sql = "create table t1" + rest
        assert parse_ddl(sql).unparsed is None
        passed_over.append(beyond_schemas(of_text(sql)) == OUTLINE)
        if passed_over[-1]:
            require_nothing_beyond(sql)

    nothing_is_passed_over()
    # The test means something only if both kinds of text come up.
    assert len(passed_over) / 20 < sum(passed_over) < len(passed_over) * 0.95


@golden.needs_golden
def test_golden_tables_say_nothing_beyond_their_schemas_where_they_are_not_read() -> None:
    outlined = 0
    for folder in ("simple-json/types", "simple-json/shop"):
        for record in golden.records(folder):
            for event in decode(WireFormat.SIMPLE_JSON, record):
                if isinstance(event, DdlEvent) and beyond_schemas(registered(event)) == OUTLINE:
                    require_nothing_beyond(event.sql)
                    outlined += 1
    assert outlined
