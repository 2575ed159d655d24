"""Schemas while a capture is read: as far as was read, whatever the order of its partitions."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.demo.simulator.shapes import shape_of
from ticdc_assets.model.events import SNAPSHOT_DDL, DdlEvent
from ticdc_assets.model.schemas import ColumnFlag, RowShape, SentColumn, TableSchema
from ticdc_assets.registry.catalog import Catalog, GrowingCatalog, SeenShape
from ticdc_assets.registry.history import Coordinates, SchemaHistory
from ticdc_assets.registry.inference.row_shapes import fits
from ticdc_assets_tests.events import ddl_event
from ticdc_assets_tests.text_tables import created

NAME = ("d", "t")
INT = ("int", ColumnFlag.BINARY | ColumnFlag.NULLABLE)
KEY = ("int", ColumnFlag.BINARY | ColumnFlag.HANDLE_KEY | ColumnFlag.PRIMARY_KEY)
ENUM = ("enum", ColumnFlag.NULLABLE)


def shape(*, partial: bool = False, **columns: tuple[str, ColumnFlag]) -> RowShape:
    sent = tuple(SentColumn(name, kind, flags) for name, (kind, flags) in columns.items())
    return RowShape(columns=sent, partial=partial)


def ddl(ts: int, sql: str, *, word: str = "ALTER", table: str = "t") -> DdlEvent:
    return ddl_event(ts, sql, ddl_type=word, table=table)


CREATE = ddl(10, "create table t (id int primary key, e enum('a','b'))", word="CREATE")


@dataclass
class Reader:
    """A catalog with events given as they are read."""

    catalog: GrowingCatalog
    read: int = 0

    def ddl(self, event: DdlEvent, partition: int = 0) -> None:
        self.read += 1
        place = Coordinates(topic="t", partition=partition, offset=self.read, index=0)
        self.catalog.add_ddl(event, place)

    def schema(self, ts: int, of: RowShape) -> TableSchema:
        found = self.catalog.schema_of(*NAME, shape=of, commit_ts=ts)
        assert fits(found, of)
        return found

    def labels(self, ts: int, of: RowShape) -> tuple[str, ...]:
        column = self.schema(ts, of).column("e")
        assert column is not None
        return column.elements


@pytest.fixture
def reader() -> Reader:
    return Reader(GrowingCatalog("UTC"))


ROW = shape(id=KEY, e=ENUM)
WIDER = shape(id=KEY, e=ENUM, x=INT)


def test_copies_of_a_ddl_change_nothing(reader: Reader) -> None:
    reader.ddl(CREATE, partition=2)
    before = reader.schema(11, ROW)
    for partition in (0, 1, 3):
        reader.ddl(CREATE, partition=partition)
    assert reader.schema(11, ROW) is before


def test_rows_may_cite_their_table_in_another_case(reader: Reader) -> None:
    reader.ddl(CREATE)
    assert reader.catalog.schema_of("D", "T", shape=ROW, commit_ts=11) is reader.schema(11, ROW)


def test_rows_prove_a_column_whose_ddl_is_missing(reader: Reader) -> None:
    reader.ddl(CREATE)
    assert reader.schema(31, WIDER).column("x")
    assert reader.labels(31, WIDER) == ("a", "b")
    assert reader.schema(11, ROW).column("x") is None
    # A row of the new columns that was committed before the one that proved them.
    assert reader.schema(25, WIDER).column("x")
    assert reader.schema(24, ROW).column("x") is None


def test_complete_gives_partial_rows_the_schema_of_the_rows_after_them() -> None:
    history = SchemaHistory()
    history.add_ddl(CREATE, Coordinates(topic="t", partition=0, offset=0, index=0))
    deleted = shape(id=KEY, x=INT, partial=True)
    seen = [
        SeenShape(database="d", table="t", shape=of, min_ts=ts)
        for of, ts in ((ROW, 11), (deleted, 25), (WIDER, 31))
    ]
    catalog = Catalog("UTC")
    completed = catalog.walk(history, seen)
    for of, ts in ((ROW, 11), (ROW, 24), (deleted, 25), (WIDER, 31)):
        schema = catalog.in_force(*NAME, ts)
        assert schema is not None
        assert fits(schema, of)
    assert completed.observed(*NAME, 25) == catalog.in_force(*NAME, 31)


def test_ddl_of_a_table_without_a_create_counts(reader: Reader) -> None:
    reader.schema(11, shape(id=KEY))
    reader.ddl(ddl(20, "alter table t add column e enum('a','b')"))
    assert reader.labels(21, ROW) == ("a", "b")


def test_rows_in_any_order_do_not_walk_all_ddl_again(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A capture that begins in the middle: walking anew for each of them would take for ever."""
    walks = 0
    walk = Catalog.walk

    def counted(self: Catalog, *arguments: Any) -> SchemaHistory:
        nonlocal walks
        walks += 1
        return walk(self, *arguments)

    monkeypatch.setattr(Catalog, "walk", counted)
    reader.ddl(CREATE)
    for number in range(50):
        assert reader.catalog.schema_of("d", f"t{number}", shape=ROW, commit_ts=100 - number)
        assert reader.catalog.schema_of("d", f"t{number}", shape=WIDER, commit_ts=99 - number)
    assert walks == 0
    reader.ddl(ddl(60, "alter table t0 add column y int", table="t0"))
    reader.catalog.schema_of("d", "t0", shape=ROW, commit_ts=100)
    assert walks == 1


# Any order --------------------------------------------------------------------------------------

ALTERS = (
    "alter table t add column x{n} int",
    "alter table t drop column x{n}",
    "alter table t modify e enum('n{n}','b','a')",
    "alter table t add index i{n} (e)",
)


@st.composite
def streams(draw: st.DrawFn) -> list[DdlEvent | int]:
    """DDL and, as commit ts, rows between them, in the order of time."""
    events: list[DdlEvent | int] = [CREATE]
    added: list[int] = []
    for number in range(draw(st.integers(1, 5))):
        sql = draw(st.sampled_from(ALTERS))
        if "drop" in sql and not added:
            sql = ALTERS[0]
        n = added.pop() if "drop" in sql else number
        if "add column" in sql:
            added.append(n)
        ts = 20 + 10 * number
        events += [ts - offset for offset in draw(st.sets(st.integers(0, 8), max_size=3))]
        events.append(ddl(ts, sql.format(n=n)))
    return [*events, 90, 91]


def truth(events: list[DdlEvent | int]) -> Catalog:
    history = SchemaHistory()
    for number, event in enumerate(events):
        if isinstance(event, DdlEvent):
            place = Coordinates(topic="t", partition=0, offset=number, index=0)
            history.add_ddl(event, place)
    catalog = Catalog("UTC")
    catalog.walk(history, [])
    return catalog


@pytest.mark.parametrize(
    ("options", "kind"), [("DEFAULT CHARSET=binary", "varbinary"), ("", "varchar")]
)
def test_columns_added_to_an_exported_table_have_its_charset(options: str, kind: str) -> None:
    text = f"CREATE TABLE `t` (`id` int NOT NULL, PRIMARY KEY (`id`)) {options}"
    schema = created(text, version=20, table="t")
    exported = replace(ddl(20, text, word=SNAPSHOT_DDL), schema=schema)
    catalog = truth([exported, ddl(30, "alter table t add column x varchar(9)")])
    added = catalog.in_force(*NAME, 31)
    assert added is not None
    (column,) = (item for item in added.columns if item.name == "x")
    assert column.mysql_type == kind


def columns(schema: TableSchema | None) -> object:
    assert schema is not None
    return (schema.columns, schema.handle_key)


@given(streams())
def test_in_the_order_of_time_it_is_what_all_messages_tell(events: list[DdlEvent | int]) -> None:
    whole, reader = truth(events), Reader(GrowingCatalog("UTC"))
    for event in events:
        if isinstance(event, DdlEvent):
            reader.ddl(event)
            continue
        wanted = whole.in_force(*NAME, event)
        assert wanted is not None
        assert columns(reader.schema(event, shape_of(wanted))) == columns(wanted)


@given(streams(), st.data())
def test_in_any_order_a_row_fits_and_at_the_end_all_is_known(
    events: list[DdlEvent | int], data: st.DataObject
) -> None:
    whole, reader = truth(events), Reader(GrowingCatalog("UTC"))
    rows = {
        ts: columns_of(whole, ts, partial=data.draw(st.booleans()))
        for ts in events
        if isinstance(ts, int)
    }
    for event in data.draw(st.permutations(events)):
        if isinstance(event, DdlEvent):
            reader.ddl(event)
        else:
            reader.schema(event, rows[event])
    for ts, of in rows.items():
        schema, wanted = reader.schema(ts, of), whole.in_force(*NAME, ts)
        assert wanted is not None
        for sent in of.columns:
            assert schema.column(sent.name) == wanted.column(sent.name)


def columns_of(whole: Catalog, ts: int, *, partial: bool) -> RowShape:
    wanted = whole.in_force(*NAME, ts)
    assert wanted is not None
    return replace(shape_of(wanted), partial=partial)
