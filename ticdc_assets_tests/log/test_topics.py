"""Many topics in a lake: tables that go and come, and what the source shows of them."""

import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ticdc_assets.base.errors import LandingGapError
from ticdc_assets.changelog.progress import SILENCE_MS, TopicProgress, TopicState
from ticdc_assets.config import KafkaSource, StartKind, StartPosition
from ticdc_assets.config.topics import TopicPattern
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.log import landing
from ticdc_assets.log.decoding import decode_new
from ticdc_assets.log.positions import known_partitions, read_position
from ticdc_assets.log.schema_tables import register_new
from ticdc_assets.log.watermark import read_watermark
from ticdc_assets.mirrors.applying import apply_changes
from ticdc_assets.mirrors.standing import Outcome
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.source.kafka.records import produce
from ticdc_assets.wire import WireFormat
from ticdc_assets_tests.brokers import OwnBroker
from ticdc_assets_tests.demo.simulator.builders import fill
from ticdc_assets_tests.demo.simulator.topics_changefeed import TopicsChangefeed
from ticdc_assets_tests.lake.feeds import Feed, truth_rows
from ticdc_assets_tests.lake.killing import before, killed

pytestmark = pytest.mark.spark

A, B, C = ("shop", "a"), ("shop", "b"), ("shop", "c")


class Shop:
    """An upstream of small tables, and its changefeed into a topic for each."""

    def __init__(self, wire_format: WireFormat, prefix: str = "cdc") -> None:
        self.prefix = prefix
        self.upstream = Upstream()
        self.upstream.create_database("shop")
        self.changefeed = TopicsChangefeed(
            self.upstream,
            f"{prefix}_{{schema}}_{{table}}",
            partitions=2,
            wire_format=wire_format,
            default_topic=f"{prefix}_default",
        )

    def create(self, *names: tuple[str, str]) -> None:
        """Create tables and write rows into them."""
        for name in names:
            columns = (column("id", "bigint", nullable=False), column("v", "varchar(20)"))
            self.upstream.create_table(name, columns, primary_key=("id",))
        self.write(*names)

    def write(self, *names: tuple[str, str]) -> None:
        for number, name in enumerate(names):
            fill(self.upstream, name, rows=4, seed=len(self.upstream.history) + number)

    def records(self) -> list[CaptureRecord]:
        return list(self.changefeed.tick())

    def topic(self, name: tuple[str, str]) -> str:
        return f"{self.prefix}_{'_'.join(name)}"


def states(feed: Feed) -> dict[str, TopicState]:
    return {topic.topic: topic.state for topic in read_watermark(feed.lake).topics}


def topic_of(feed: Feed, name: str) -> TopicProgress:
    (topic,) = (item for item in read_watermark(feed.lake).topics if item.topic == name)
    return topic


def assert_at_truth(feed: Feed, shop: Shop) -> None:
    assert feed.cut.tso == shop.changefeed.watermark_ts
    assert feed.rows() == truth_rows(shop.changefeed.truth())


@pytest.mark.parametrize("wire_format", [WireFormat.SIMPLE_JSON, WireFormat.CANAL_JSON])
def test_topics_retire_with_their_tables_and_come_back_with_the_next(
    wire_format: WireFormat, spark: Any, tmp_path: Path
) -> None:
    shop = Shop(wire_format)
    feed = Feed.of(spark, tmp_path, wire_format=wire_format)
    live, ended = TopicState.LIVE, TopicState.RETIRED
    shop.create(A, B)
    feed.write(shop.records())
    feed.sync()
    assert_at_truth(feed, shop)
    # The default topic had the DDL of the database, and gets no watermarks since there are tables.
    assert states(feed) == {"cdc_default": ended, "cdc_shop_a": live, "cdc_shop_b": live}
    dropped_ts = shop.upstream.drop_table(A)
    shop.write(B)
    feed.write(shop.records())
    feed.sync()
    assert_at_truth(feed, shop)
    retired = topic_of(feed, "cdc_shop_a")
    assert (retired.state, retired.retired_ts) == (ended, dropped_ts)
    assert retired.watermark_ts is not None
    assert retired.watermark_ts < feed.cut.tso
    # One moves to a topic of its own, one is made again in the silent topic.
    shop.upstream.rename_table(B, C)
    shop.create(A)
    shop.write(C)
    records = shop.records()
    for piece in (records[: len(records) // 2], records[len(records) // 2 :]):
        before = feed.cut.tso
        feed.write(piece)
        feed.sync()
        assert feed.cut.tso >= before
    assert_at_truth(feed, shop)
    after = {"cdc_shop_a": live, "cdc_shop_b": ended, "cdc_shop_c": live}
    assert states(feed) == {"cdc_default": ended} | after


def test_a_silent_topic_of_a_table_that_is_there_holds_the_watermark(
    spark: Any, tmp_path: Path
) -> None:
    shop = Shop(WireFormat.SIMPLE_JSON)
    feed = Feed.of(spark, tmp_path)
    shop.create(A, B)
    feed.write(shop.records())
    feed.sync()
    before = feed.cut.tso
    shop.write(B)
    feed.write(record for record in shop.records() if record.topic != shop.topic(A))
    assert feed.sync().outcome is not Outcome.PUBLISHED
    assert feed.cut.tso == before
    slowest = read_watermark(feed.lake).slowest
    assert slowest is not None
    assert slowest[0] == shop.topic(A)


def begun_topic_behind_watermarks(spark: Any, folder: Path) -> tuple[Shop, Feed, int]:
    """Return a synced feed whose capture goes on with a second topic's first records.

    The third item is how many watermarks of the first topic there are.
    """
    shop = Shop(WireFormat.SIMPLE_JSON)
    feed = Feed.of(spark, folder, partitions={shop.topic(B): 2})
    shop.create(A)
    feed.write(shop.records())
    feed.sync()
    shop.create(B)
    records = shop.records()
    offsets = read_position(feed.paths).next_offsets
    marks = {
        place: replace(item, offset=offsets[place])
        for item in records
        if (place := (item.topic, item.partition))[0] == shop.topic(A)
    }
    feed.write([item for item in records if item.topic == shop.topic(B)] + [*marks.values()])
    return shop, feed, len(marks)


@pytest.mark.parametrize("is_killed", [True, False])
def test_watermarks_of_one_topic_alone_move_no_watermark(
    is_killed: bool, spark: Any, tmp_path: Path
) -> None:
    """Either the landing was killed before its log, by which the other topic is still empty; or
    that topic has landed since, and is not decoded.
    """
    shop, feed, count = begun_topic_behind_watermarks(spark, tmp_path)
    last = feed.cut
    with killed(before(landing, "_log_landing")) if is_killed else nullcontext():
        feed.land(max_records=count)
    decode_new(feed.lake)
    register_new(feed.lake)
    if not is_killed:
        feed.land()
    apply_changes(feed.lake)
    assert feed.cut.tso == last.tso
    feed.sync()
    assert feed.cut.late == 0
    assert_at_truth(feed, shop)


# A broker ----------------------------------------------------------------------------------------


class BrokerShop:
    """The same through a broker, read by a pattern."""

    def __init__(self, broker: OwnBroker, spark: Any, folder: Path, **source: Any) -> None:
        prefix = f"t{os.urandom(4).hex()}"
        self.broker = broker
        self.shop = Shop(WireFormat.SIMPLE_JSON, prefix)
        self.source = KafkaSource(
            bootstrap_servers=broker.bootstrap_servers,
            topics=(),
            patterns=(TopicPattern(f"{prefix}_{{schema}}_{{table}}"), TopicPattern(f"{prefix}_d*")),
            **source,
        )
        capture = Feed.of(spark, folder)
        changefeed = replace(capture.changefeed, source=self.source)
        self.feed = replace(capture, changefeed=changefeed)
        self._made: set[str] = set()

    def send(self, *, silent: str = "") -> None:
        """Send all that is there, but no watermark to a silent topic."""
        records = [
            record
            for record in self.shop.records()
            if record.topic != silent or b"WATERMARK" not in (record.value or b"")
        ]
        for topic in sorted({record.topic for record in records} - self._made):
            self.broker.create_topic(topic, 2)
            self._made.add(topic)
        produce(self.broker.source(), records)

    def advance(self, *tables: tuple[str, str], silent: str = "") -> None:
        """Let tables change, send it, sync, and require the truth."""
        self.shop.write(*tables)
        self.send(silent=silent)
        self.feed.sync()
        assert_at_truth(self.feed, self.shop)


@pytest.mark.kafka
def test_topics_appear_retire_and_are_deleted_at_the_broker(
    broker: OwnBroker, spark: Any, tmp_path: Path
) -> None:
    it = BrokerShop(broker, spark, tmp_path)
    shop, feed = it.shop, it.feed
    shop.create(A, B)
    it.advance(A, B)
    shop.upstream.drop_table(A)
    shop.create(C)
    it.advance(B, C)
    assert states(feed)[shop.topic(A)] is TopicState.RETIRED
    # Nobody sends to it any more: whoever cleans up may delete it.
    broker.delete_topic(shop.topic(A))
    it.advance(B, C)
    assert states(feed)[shop.topic(A)] is TopicState.RETIRED
    assert {item.topic for item in known_partitions(feed.paths)} == shop.changefeed.topics
    # A topic whose table is there is another matter.
    broker.delete_topic(shop.topic(C))
    with pytest.raises(LandingGapError, match="no longer has"):
        feed.sync()


@pytest.mark.kafka
def test_an_empty_topic_does_not_hold_the_others(
    broker: OwnBroker, spark: Any, tmp_path: Path
) -> None:
    it = BrokerShop(broker, spark, tmp_path)
    shop, feed = it.shop, it.feed
    broker.create_topic(shop.topic(C), 2)
    shop.create(B)
    it.advance(B)
    assert states(feed)[shop.topic(C)] is TopicState.EMPTY


@pytest.mark.kafka
def test_a_topic_without_watermarks_does_not_hold_the_others(
    broker: OwnBroker, spark: Any, tmp_path: Path
) -> None:
    """The new TiCDC may send none to a table whose name was another's, until it restarts."""
    it = BrokerShop(broker, spark, tmp_path)
    shop, feed = it.shop, it.feed
    shop.create(A, B)
    it.send()
    feed.sync()
    for _ in range(SILENCE_MS // 20):
        shop.upstream.clock.step()
    it.advance(A, B, silent=shop.topic(A))
    assert states(feed)[shop.topic(A)] is TopicState.LIVE
    assert not topic_of(feed, shop.topic(A)).counts
    it.advance(A, B)
    assert all(item.counts for item in read_watermark(feed.lake).topics if item.tables)


@pytest.mark.kafka
@pytest.mark.parametrize("kind", [StartKind.LATEST, StartKind.TIMESTAMP])
def test_landing_begins_where_it_is_told_to(
    kind: StartKind, broker: OwnBroker, spark: Any, tmp_path: Path
) -> None:
    it = BrokerShop(broker, spark, tmp_path)
    shop = it.shop
    shop.create(B)
    it.send()
    newest = max(record.timestamp_ms for record in shop.records())
    start = StartPosition(kind, newest + 1 if kind is StartKind.TIMESTAMP else None)
    changefeed = replace(it.feed.changefeed, source=replace(it.source, start=start))
    feed = replace(it.feed, changefeed=changefeed)
    first = feed.land()
    assert first.records == 0
    assert first.backlog == 0
    begins = read_position(feed.paths).next_offsets
    assert sum(begins.values()) > 0
    # Where it began is kept: what comes now is landed, whatever "latest" would mean later.
    shop.write(B)
    it.send()
    second = feed.land()
    assert second.records == sum(item.end for item in second.partitions) - sum(begins.values())
    assert second.records > 0
