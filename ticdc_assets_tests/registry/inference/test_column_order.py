"""Columns that the Simple protocol sends in the order of their making, in that of upstream."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from ticdc_assets.model.events import SNAPSHOT_DDL
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.registry.history import Coordinates, SchemaHistory
from ticdc_assets.registry.inference.column_facts import ColumnFacts
from ticdc_assets.wire import WireFormat
from ticdc_assets_tests.examples import examples
from ticdc_assets_tests.golden import Scenario
from ticdc_assets_tests.reference.fold import fold
from ticdc_assets_tests.text_tables import altered, created, ddl


def names(schema: TableSchema) -> list[str]:
    return [column.name for column in schema.columns]


@dataclass
class Altered:
    """A table, its DDL, and what TiCDC sends of them: columns in the order of their making."""

    schema: TableSchema = field(
        default_factory=lambda: created("create table t1 (a int primary key, b int, c int)")
    )
    made: list[str] = field(default_factory=lambda: ["a", "b", "c"])
    history: SchemaHistory = field(default_factory=SchemaHistory)
    ts: int = 10
    offset: int = 0

    def sent(self) -> TableSchema:
        order = [name.lower() for name in self.made]
        columns = sorted(self.schema.columns, key=lambda item: order.index(item.name.lower()))
        return replace(self.schema, columns=tuple(columns))

    def run(self, sql: str, *, made: list[str] | None = None) -> None:
        before = self.sent()
        self.ts += 10
        self.schema = altered(self.schema, sql, version=self.ts)
        self.made = self.made if made is None else made
        self.add(sql, before)

    def add(self, sql: str, before: TableSchema | None) -> None:
        event = ddl(WireFormat.SIMPLE_JSON, sql, ts=self.ts, after=self.sent(), before=before)
        self.offset += 1
        place = Coordinates(topic="t", partition=0, offset=self.offset, index=0)
        self.history.add_ddl(event, place)

    def found(self) -> list[str]:
        return names(ColumnFacts(self.history).ordered(self.sent()))


@pytest.mark.parametrize(
    ("sql", "made", "wanted"),
    [
        ("add column d int after a", "abcd", "adbc"),
        ("add column d int first", "abcd", "dabc"),
        ("add column d int", "abcd", "abcd"),
        ("add column d int after a, add column e int after d", "abcde", "adebc"),
        ("add column (d int, e int)", "abcde", "abcde"),
        ("modify column c int first", "abc", "cab"),
        ("change column c d int after a", "abd", "adb"),
        ("change column A d int", "dbc", "dbc"),
        ("drop column b", "ac", "ac"),
        ("add column d int after B, drop column c", "abd", "abd"),
        ("add column if not exists c int first", "abc", "abc"),
    ],
)
def test_what_one_statement_does(sql: str, made: str, wanted: str) -> None:
    table = Altered()
    table.add("create table t1 (a int primary key, b int, c int)", None)
    table.run(f"alter table t1 {sql}", made=list(made))
    assert (names(table.schema), table.found()) == (list(wanted), list(wanted))


@examples(120)
@given(data=st.data())
def test_any_alterations(data: st.DataObject) -> None:
    table = Altered()
    if data.draw(st.booleans(), label="created in sight"):
        table.add("create table t1 (a int primary key, b int, c int)", None)
    for number in range(data.draw(st.integers(1, 6))):
        here = names(table.schema)
        place = data.draw(
            st.sampled_from(["", "first", *(f"after {name}" for name in here)]), label="place"
        )
        column = data.draw(st.sampled_from(here))
        made, new = list(table.made), f"n{number}"
        match data.draw(st.sampled_from(["add", "modify", "change", "rename", "drop"])):
            case "modify" if place != f"after {column}":
                sql = f"modify column {column} int {place}"
            case "change" if place != f"after {column}":
                sql = f"change column {column} {new} int {place}"
                made[made.index(column)] = new
            case "rename":
                sql = f"rename column {column} to {new}"
                made[made.index(column)] = new
            case "drop" if len(here) > 1 and column != here[0]:
                sql = f"drop column {column}"
                made.remove(column)
            case _:
                sql = f"add column {new} int {place}"
                made.append(new)
        table.run(f"alter table t1 {sql}", made=made)
        assert table.found() == names(table.schema), sql


def test_an_export_tells_the_order_of_what_was_altered_before() -> None:
    table = Altered()
    table.schema = altered(table.schema, "alter table t1 add column d int after a", version=20)
    table.made, table.ts = list("abcd"), 20
    text = "create table t1 (a int primary key, d int, b int, c int)"
    event = ddl(WireFormat.SIMPLE_JSON, text, ts=20, after=table.schema)
    # An export's schema has its columns as its CREATE TABLE has them.
    event = replace(event, ddl_type=SNAPSHOT_DDL, schema=table.schema)
    place = Coordinates(topic="export", partition=0, offset=0, index=0)
    table.history.add_ddl(event, place)
    assert table.found() == list("adbc")
    table.run("alter table t1 add column e int after d", made=list("abcde"))
    assert table.found() == list("adebc")


def test_a_table_that_nothing_tells_of_stays_as_it_was_sent() -> None:
    table = Altered()
    assert table.found() == list("abc")


def test_another_table_of_the_same_name_begins_anew() -> None:
    table = Altered()
    table.run("alter table t1 add column d int first", made=list("abcd"))
    assert table.found() == list("dabc")
    table.ts += 10
    text = "create table t1 (d int primary key, a int)"
    table.schema, table.made = created(text, version=table.ts, table_id=9), list("da")
    table.add(text, None)
    assert table.found() == list("da")


@pytest.mark.parametrize("variant", ["simple-json", "simple-avro"])
def test_mirrors_of_all_formats_have_their_columns_in_one_order(
    variant: str, golden_dir: Callable[..., Path]
) -> None:
    def orders(variant: str) -> dict[tuple[str, str], list[str]]:
        scenario = Scenario(golden_dir(variant, "shop"))
        _, tables = fold(scenario.events, scenario.end, scenario.timezone)
        return {
            name: [column for column in names(table.plan.schema) if column not in generated]
            for name, table in tables.items()
            for generated in (table.plan.generated,)
        }

    found = orders(variant)
    assert found == orders("open")
    assert found["shop", "customers"].index("phone") == found["shop", "customers"].index("name") + 1
