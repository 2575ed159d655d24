"""From a real broker to mirrors: all of it, and what brokers do to those who read from them."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from ticdc_assets.demo.simulator.changefeed import FeedOptions
from ticdc_assets.demo.simulator.run import run_simulator
from ticdc_assets.log.positions import known_partitions
from ticdc_assets.source.capture import CaptureReader, CaptureRecord
from ticdc_assets_tests.brokers import OwnBroker
from ticdc_assets_tests.e2e.topics import FEED, TopicFeed, WrittenFeed, retopiced
from ticdc_assets_tests.golden import Scenario, assert_same_rows
from ticdc_assets_tests.lake.feeds import truth_rows

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@pytest.fixture
def feed(broker: OwnBroker, topic: str, tmp_path: Path) -> WrittenFeed:
    return WrittenFeed.made(broker, topic, tmp_path)


@pytest.mark.parametrize(
    ("name", "pieces"),
    # By day the shop goes through the broker where programs are killed.
    [("types", 3), pytest.param("shop", 2, marks=pytest.mark.slow)],
)
def test_golden_messages_through_the_broker(
    name: str,
    pieces: int,
    broker: OwnBroker,
    topic: str,
    tmp_path: Path,
    golden_dir: Callable[..., Path],
) -> None:
    scenario = Scenario(golden_dir("simple-json", name))
    count = len(scenario.records)
    feed = TopicFeed.of(broker, topic, tmp_path, timezone=scenario.timezone)
    capture = retopiced(scenario.records, topic, tmp_path / "golden.jsonl.gz")
    told = feed.commands.done("play", capture, FEED)
    assert f"played {count:,} records" in told

    size = count // pieces + 1
    for number in range(1, pieces + 1):
        landed = min(size, count - (number - 1) * size)
        told = feed.sync("--max-records", size)
        waiting = max(0, count - number * size)
        assert f"landed {landed:,} records, {waiting:,} wait in the source" in told
    assert feed.cut_ts == scenario.meta["final_ts"]
    assert_same_rows(feed.rows, scenario.state())
    assert sorted(feed.landed()) == sorted(
        (record.partition, record.offset) for record in scenario.records
    )

    # Each partition knows the time of its last landed record.
    known = known_partitions(feed.commands.paths(FEED))
    assert {item.partition: item.newest_ms for item in known} == {
        record.partition: record.timestamp_ms for record in scenario.records
    }

    recorded = tmp_path / "recorded.jsonl.gz"
    told = feed.commands.done("record", FEED, recorded)
    assert f"recorded {count:,} records" in told
    with CaptureReader(recorded) as records:
        assert by_partition(records) == by_partition(scenario.records)
    # What is recorded already is not recorded again.
    assert "recorded 0 records" in feed.commands.done("record", FEED, recorded)


def by_partition(
    records: Iterable[CaptureRecord],
) -> dict[int, list[tuple[int, int, bytes | None, bytes | None]]]:
    """Return what a topic keeps of records: everything but the order between partitions."""
    split: dict[int, list[tuple[int, int, bytes | None, bytes | None]]] = defaultdict(list)
    for record in records:
        split[record.partition].append(
            (record.offset, record.timestamp_ms, record.key, record.value)
        )
    return dict(split)


def test_a_workload_that_goes_on_while_we_sync(
    broker: OwnBroker, topic: str, tmp_path: Path
) -> None:
    feed = TopicFeed.of(broker, topic, tmp_path)
    simulator = run_simulator(
        feed.source,
        partitions=3,
        seed=7,
        max_transactions=60,
        max_seconds=20,
        transactions_per_second=12,
        feed=FeedOptions(ddl_watermarks=True),
    )
    simulator.start()
    syncs = 0
    while not simulator.finished:
        feed.sync()
        syncs += 1
    simulator.join(60)
    feed.sync()
    assert syncs > 0
    assert feed.cut_ts == simulator.changefeed.watermark_ts
    assert feed.rows == truth_rows(simulator.changefeed.truth())
    landed = feed.landed()
    assert len(landed) == len(set(landed)) == simulator.records


# What brokers do --------------------------------------------------------------------------------


def test_records_that_expired_after_they_landed(feed: WrittenFeed) -> None:
    feed.go_on()
    feed.sync()
    feed.broker.delete_records(feed.topic, dict(feed.changefeed.next_offsets))
    feed.sync()
    feed.go_on()
    feed.sync()
    assert feed.rows == feed.truth


def test_a_topic_deleted_and_made_again(feed: WrittenFeed) -> None:
    """It has more records than were landed by now."""
    feed.go_on()
    feed.sync()
    feed.broker.delete_topic(feed.topic)
    assert f"has no topic '{feed.topic}'; check source.kafka.topics" in feed.refused()
    feed.broker.create_topic(feed.topic, 2)
    for _ in range(2):
        feed.go_on(60)
    sentence = feed.refused()
    assert f"topic '{feed.topic}' partition 0" in sentence
    assert "the topic was deleted and created again" in sentence


def test_a_partition_added_later(feed: WrittenFeed) -> None:
    feed.go_on()
    feed.sync()
    cut, truth = feed.cut_ts, feed.truth
    feed.broker.add_partitions(feed.topic, 3)
    feed.go_on()
    told = feed.sync()
    assert f"waiting: no watermark yet from {feed.topic}/2" in told
    assert feed.cut_ts == cut
    assert feed.rows == truth
    feed.changefeed.partitions = 3
    feed.go_on()
    told = feed.sync()
    assert "published: " in told
    assert feed.cut_ts == feed.changefeed.watermark_ts
    assert feed.rows == feed.truth


def test_an_empty_topic(feed: WrittenFeed) -> None:
    for _ in range(2):
        told = feed.sync()
        assert "landed 0 records, 0 wait in the source" in told
        assert f"waiting: no watermark yet from {feed.topic}/0, {feed.topic}/1" in told
    assert feed.cut_ts is None
    feed.go_on()
    feed.sync()
    assert feed.rows == feed.truth


def test_a_broker_that_is_down_for_a_while(feed: WrittenFeed) -> None:
    feed.go_on()
    feed.sync()
    feed.go_on()
    feed.broker.stop()
    try:
        sentence = feed.refused()
    finally:
        feed.broker.restart()
    assert f"the Kafka broker {feed.broker.bootstrap_servers} cannot be reached: " in sentence
    assert "source.kafka.bootstrap_servers" in sentence
    feed.sync()
    assert feed.rows == feed.truth
