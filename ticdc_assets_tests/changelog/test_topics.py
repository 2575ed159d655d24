"""Topics of a changefeed with many: which of them count, and that no cut comes before its rows."""

from collections.abc import Mapping, Sequence

import pytest

from ticdc_assets.changelog.progress import (
    SILENCE_MS,
    GlobalWatermark,
    PartitionProgress,
    TopicFacts,
    TopicState,
    global_watermark,
)
from ticdc_assets.changelog.topics import TopicRows, TopicTables, topic_tables
from ticdc_assets.demo.simulator.changefeed import FeedOptions
from ticdc_assets.model.events import Bootstrap, DdlEvent, Event, RowChange, Watermark
from ticdc_assets.model.schemas import RowShape, SentColumn
from ticdc_assets.model.tso import MAX_TSO, from_physical_ms
from ticdc_assets.registry.catalog import SeenShape, complete
from ticdc_assets.registry.history import Coordinates, SchemaHistory
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets.wire.record import Record
from ticdc_assets_tests.demo.simulator.storm import storm
from ticdc_assets_tests.demo.simulator.topics_changefeed import TopicsChangefeed
from ticdc_assets_tests.events import ddl_event

A, B, DEFAULT = "cdc_shop_a", "cdc_shop_b", "default"


def ddl(sql: str, commit_ts: int, *, table: str = "a") -> DdlEvent:
    return ddl_event(commit_ts, sql, ddl_type="QUERY", database="shop", table=table)


ROW = RowShape(columns=(SentColumn("id", "int"),))


def found_in(history: SchemaHistory, rows: Sequence[TopicRows]) -> Mapping[str, TopicTables]:
    """Return the tables of each topic by the DDL and rows of a format without schemas."""
    shapes = [
        SeenShape(database=item.database, table=item.table, shape=ROW, min_ts=item.min_ts)
        for item in rows
        if item.database is not None and item.table is not None and item.max_ts
    ]
    return topic_tables(complete(history, shapes, "UTC"), rows)


def history_of(*ddls: tuple[DdlEvent, str]) -> SchemaHistory:
    history = SchemaHistory()
    for number, (event, topic) in enumerate(ddls):
        history.add_ddl(event, Coordinates(topic=topic, partition=0, offset=number, index=0))
    return history


def rows(topic: str, table: str, max_ts: int, database: str = "shop") -> TopicRows:
    return TopicRows(topic=topic, database=database, table=table, min_ts=1, max_ts=max_ts)


def bootstraps(topic: str, table: str) -> TopicRows:
    return TopicRows(topic=topic, database="shop", table=table, min_ts=0, max_ts=0)


def test_a_dropped_table_retires_its_topic_at_that_ddl() -> None:
    history = history_of((ddl("drop table shop.a", 20), A))
    found = found_in(history, [rows(A, "a", 19), rows(B, "b", 19)])
    assert (found[A].tables, found[A].retired_ts) == (0, 20)
    assert (found[B].tables, found[B].retired_ts) == (1, None)


def test_a_topic_lives_while_one_of_its_tables_does() -> None:
    history = history_of((ddl("DROP TABLE `shop`.`A`", 20, table="A"), A))
    found = found_in(history, [rows(A, "a", 19), rows(A, "c", 5)])
    assert (found[A].tables, found[A].retired_ts) == (1, None)


@pytest.mark.parametrize(
    "sql", ["rename table shop.a to shop.b", "alter table shop.a rename to shop.b"]
)
def test_a_rename_retires_the_topic_of_the_old_name(sql: str) -> None:
    # Formats without schema name the table as it is after the rename.
    history = history_of((ddl(sql, 20, table="b"), A))
    found = found_in(history, [rows(A, "a", 19)])
    assert found[A].retired_ts == 20
    # Back again: the DDL goes to the other topic, and the name has its old one.
    history = history_of(
        (ddl(sql, 20, table="b"), A), (ddl("rename table b to a", 30, table="a"), B)
    )
    found = found_in(history, [rows(A, "a", 19), rows(B, "b", 25)])
    assert found[A].retired_ts is None
    assert found[B].retired_ts == 30


@pytest.mark.parametrize("is_read", [True, False])
def test_bootstraps_that_go_on_in_the_topic_of_the_old_name_do_not_keep_it(
    *, is_read: bool
) -> None:
    history = history_of((ddl("rename table shop.a to shop.b", 20, table="b"), A))
    groups = [rows(A, "a", 19), bootstraps(A, "a"), bootstraps(A, "b")]
    found = found_in(history, [*groups, rows(B, "b", 25)] if is_read else groups)
    assert found[A].retired_ts == 20


def test_a_table_with_bootstraps_alone_keeps_its_topic() -> None:
    found = found_in(SchemaHistory(), [bootstraps(A, "a"), bootstraps(B, "a"), rows(B, "b", 9)])
    assert [found[topic].retired_ts for topic in (A, B)] == [None, None]


def test_names_that_are_swapped_stay() -> None:
    sql = "rename table shop.a to shop.x, shop.b to shop.a, shop.x to shop.b"
    events = [(ddl(sql, 20, table=name), topic) for name, topic in (("b", A), ("a", B))]
    found = found_in(history_of(*events), [rows(A, "a", 9), rows(B, "b", 9)])
    assert [found[topic].retired_ts for topic in (A, B)] == [None, None]


def test_a_dropped_database_retires_the_topics_of_its_tables() -> None:
    history = history_of(
        (ddl("create database shop", 5, table=""), DEFAULT),
        (ddl("drop database `Shop`", 20, table=""), DEFAULT),
    )
    found = found_in(history, [rows(A, "a", 9), rows(B, "b", 9, database="other")])
    assert found[A].retired_ts == 20
    assert found[B].retired_ts is None
    # The default topic had no table of its own and gets no watermarks beside those of tables.
    assert (found[DEFAULT].tables, found[DEFAULT].retired_ts) == (0, 20)


def test_a_topic_of_bootstraps_without_a_name_is_a_default_topic() -> None:
    nameless = TopicRows(topic=DEFAULT, database=None, table=None, min_ts=0, max_ts=0)
    found = found_in(SchemaHistory(), [nameless, rows(A, "a", 19)])
    assert (found[DEFAULT].tables, found[DEFAULT].retired_ts) == (0, 0)
    assert (found[A].tables, found[A].retired_ts) == (1, None)
    created = history_of((ddl("create table shop.a (id int primary key)", 5), DEFAULT))
    found = found_in(created, [nameless])
    assert (found[DEFAULT].tables, found[DEFAULT].retired_ts) == (1, None)


def test_a_table_that_is_made_again_brings_its_topic_back() -> None:
    drop, create = ddl("drop table a", 20), ddl("create table a (id int)", 30)
    assert found_in(history_of((drop, A)), [rows(A, "a", 9)])[A].retired_ts == 20
    again = found_in(history_of((drop, A), (create, A)), [rows(A, "a", 9)])
    assert again[A].retired_ts is None
    # Rows alone tell too, where the DDL is not known.
    assert found_in(history_of((drop, A)), [rows(A, "a", 31)])[A].retired_ts is None


def test_truncate_and_alter_end_nothing() -> None:
    history = history_of(
        (ddl("truncate table a", 20), A), (ddl("alter table a add column c int", 30), A)
    )
    assert found_in(history, [rows(A, "a", 9)])[A].retired_ts is None


def test_a_view_is_no_table() -> None:
    history = history_of((ddl("create view v as select 1", 20, table="v"), "cdc_shop_v"))
    assert found_in(history, [])["cdc_shop_v"].tables == 0


# Which topics count ------------------------------------------------------------------------------


def facts(topic: str, **known: object) -> TopicFacts:
    return TopicFacts(topic=topic, partitions=(0,), **known)  # pyright: ignore[reportArgumentType]


def progress(**watermarks: int) -> dict[tuple[str, int], PartitionProgress]:
    return {(topic, 0): PartitionProgress(watermark_ts=ts) for topic, ts in watermarks.items()}


def test_a_retired_topic_counts_until_it_is_settled() -> None:
    at = progress(a=20, b=90)
    held = global_watermark(at, [facts("a", retired_ts=20), facts("b", tables=1)])
    assert held.watermark_ts == 20
    free = global_watermark(at, [facts("a", retired_ts=20, settled=True), facts("b", tables=1)])
    assert (free.watermark_ts, free.slowest) == (90, ("b", 0))
    assert [topic.state for topic in free.topics] == [TopicState.RETIRED, TopicState.LIVE]


def test_a_silent_topic_counts_until_it_is_settled() -> None:
    """The new TiCDC may send no watermarks to the topic of a table that exists."""
    newest = from_physical_ms(SILENCE_MS + 20)

    def watermark(at: int, *, lists_anew: bool = True, **known: object) -> int | None:
        topics = [facts("a", tables=1, **known), facts("b", tables=1)]
        found = global_watermark(progress(a=at, b=newest), topics, lists_anew=lists_anew)
        assert [topic.state for topic in found.topics] == [TopicState.LIVE, TopicState.LIVE]
        return found.watermark_ts

    silent, late = from_physical_ms(20), from_physical_ms(21)
    assert watermark(silent, settled=True) == newest
    assert watermark(silent) == silent
    assert watermark(late, settled=True) == late
    # Topics of a capture may have been recorded one after the other.
    assert watermark(silent, settled=True, lists_anew=False) == silent


def test_a_topic_joins_at_its_first_record() -> None:
    at = progress(a=90)
    topics = [facts("a", tables=1), facts("b", empty=True, settled=True)]
    assert global_watermark(at, topics).watermark_ts == 90
    # Its records wait in the source: nobody knows yet what they are.
    waits = global_watermark(at, [facts("a", tables=1), facts("b")], published_ts=80)
    assert (waits.watermark_ts, waits.waiting) == (80, (("b", 0),))
    assert waits.topics_in(TopicState.WAITING)[0].topic == "b"


def test_the_global_watermark_is_never_below_what_was_published() -> None:
    back = global_watermark(progress(a=90, b=40), [facts("a"), facts("b")], published_ts=70)
    assert back.watermark_ts == 70


def test_a_topic_alone_counts_whatever_its_tables() -> None:
    topics = [facts("a", retired_ts=20, settled=True), facts("b", retired_ts=30, settled=True)]
    assert global_watermark(progress(a=95, b=30), topics).watermark_ts == 95
    nothing = global_watermark({}, [facts("a", empty=True, settled=True)])
    assert (nothing.watermark_ts, nothing.waiting) == (None, (("a", 0),))
    assert global_watermark({}, []).watermark_ts is None


# A whole changefeed ------------------------------------------------------------------------------


class Landed:
    """What is known after some records, in the order in which they came."""

    def __init__(self, wire_format: WireFormat, partitions: int) -> None:
        self._format = wire_format
        self._partitions = partitions
        self._history = SchemaHistory()
        self._progress: dict[tuple[str, int], PartitionProgress] = {}
        self._rows: dict[tuple[str, str, str], tuple[int, int]] = {}
        self._shapes: dict[tuple[str, str, RowShape], int] = {}
        self.topics: set[str] = set()

    def take(self, record: CaptureRecord) -> list[Event]:
        """Take a record in and return its events."""
        topic, partition = record.topic, record.partition
        self.topics.add(topic)
        events = list(decode(self._format, Record(key=record.key, value=record.value)))
        for index, event in enumerate(events):
            match event:
                case Watermark():
                    before = self._progress.get((topic, partition), PartitionProgress())
                    after = before.advance(event.watermark_ts)
                    self._progress[topic, partition] = after
                case DdlEvent():
                    place = Coordinates(
                        topic=topic, partition=partition, offset=record.offset, index=index
                    )
                    self._history.add_ddl(event, place)
                case Bootstrap(schema=None):
                    pass
                case Bootstrap(schema=schema) if schema is not None:
                    key = (topic, schema.database, schema.table)
                    self._rows.setdefault(key, (MAX_TSO, 0))
                case RowChange():
                    key = (topic, event.database, event.table)
                    oldest, newest = self._rows.get(key, (MAX_TSO, 0))
                    span = (min(oldest, event.commit_ts), max(newest, event.commit_ts))
                    self._rows[key] = span
                    if event.shape is not None:
                        seen = (event.database, event.table, event.shape)
                        self._shapes[seen] = min(event.commit_ts, self._shapes.get(seen, MAX_TSO))
        return events

    def watermark(self, published_ts: int) -> GlobalWatermark:
        """Return the global watermark if everything that came so far is landed."""
        rows = [
            TopicRows(topic=topic, database=database, table=table, min_ts=oldest, max_ts=newest)
            for (topic, database, table), (oldest, newest) in self._rows.items()
        ]
        shapes = [
            SeenShape(database=database, table=table, shape=shape, min_ts=ts)
            for (database, table, shape), ts in self._shapes.items()
        ]
        tables = topic_tables(complete(self._history, shapes, "UTC"), rows)
        topics = [
            TopicFacts(
                topic=topic,
                partitions=tuple(range(self._partitions)),
                settled=True,
                tables=tables[topic].tables if topic in tables else None,
                retired_ts=tables[topic].retired_ts if topic in tables else None,
            )
            for topic in self.topics
        ]
        return global_watermark(self._progress, topics, published_ts=published_ts)


@pytest.mark.parametrize("wire_format", WireFormat)
@pytest.mark.parametrize("seed", [1, 2, 6])
@pytest.mark.thorough
def test_nothing_comes_below_the_watermark_and_no_silent_topic_holds_it(
    wire_format: WireFormat, seed: int
) -> None:
    changefeed = TopicsChangefeed(
        storm(seed, steps=100).upstream,
        "cdc_{schema}_{table}",
        partitions=2,
        wire_format=wire_format,
        options=FeedOptions(rows_per_flush=10, ddl_watermarks=seed == 2),
        seed=seed,
    )
    landed, reached, moves = Landed(wire_format, 2), 0, 0
    for number, record in enumerate(changefeed.tick()):
        for event in landed.take(record):
            if isinstance(event, RowChange):
                assert event.commit_ts > reached
            elif isinstance(event, DdlEvent):
                assert event.commit_ts >= reached
        if number % 7 == 0:
            watermark_ts = landed.watermark(reached).watermark_ts or 0
            moves += watermark_ts > reached
            reached = watermark_ts
    last = landed.watermark(reached)
    assert last.watermark_ts == changefeed.watermark_ts
    retired = {topic.topic for topic in last.topics_in(TopicState.RETIRED)}
    assert retired == landed.topics - set(changefeed.active_topics)
    assert retired
    assert moves > 20
