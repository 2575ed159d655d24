"""Going on behind a gap: where landing continues, and which mirrors say that they may lack changes.

Over captures, which are small: nothing here starts Spark.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ticdc_assets.base.errors import LandingGapError, NotFoundError, SourceUnavailableError
from ticdc_assets.config import CaptureSource, KafkaSource
from ticdc_assets.config.topics import TopicPattern
from ticdc_assets.delta.control import read_table
from ticdc_assets.delta.lake import Lake
from ticdc_assets.demo.simulator.changefeed import StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.log import landing, sources
from ticdc_assets.log.accepted_gaps import AcceptedGap, gap_caveats, read_accepted
from ticdc_assets.log.landing_files import LandingBatch, columns_of, write_columns
from ticdc_assets.log.positions import Position, read_position
from ticdc_assets.log.sources import accept, compare, see_source
from ticdc_assets.mirrors.standing import Outcome
from ticdc_assets.observe.openmetrics import Figures, openmetrics_text
from ticdc_assets.observe.status_reading import read_status
from ticdc_assets.reading.as_of import AsOf
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.source.kafka.administration import Administration, OffsetRange
from ticdc_assets.spark.session import LazySession
from ticdc_assets_tests.demo.simulator.builders import plain_upstream
from ticdc_assets_tests.demo.simulator.topics_changefeed import TopicsChangefeed
from ticdc_assets_tests.lake.feeds import Feed, truth_rows

Wanted = Mapping[tuple[str, int], tuple[int, int]]

ORDERS, CUSTOMERS = ("shop", "orders"), ("shop", "customers")


class Shop:
    """An upstream of two tables, its changefeed, and a lake that reads what is written."""

    def __init__(self, folder: Path, topic: str = "shop", partitions: int = 1) -> None:
        self.upstream = plain_upstream(ORDERS, CUSTOMERS)
        kind = TopicsChangefeed if "{" in topic else StandInChangefeed
        self.changefeed = kind(self.upstream, topic, partitions=partitions)
        self.feed = Feed.of(LazySession(), folder)
        self._next = 0

    def synced(self, *names: tuple[str, str]) -> list[CaptureRecord]:
        """Insert a row into each table, sync, and return the records."""
        records = self.insert(*names)
        self.feed.write(records)
        self.feed.sync()
        return records

    def insert(self, *names: tuple[str, str]) -> list[CaptureRecord]:
        """Insert a row into each table and return the records, watermarks included."""
        for name in names:
            self._next += 1
            with self.upstream.transaction() as transaction:
                transaction.insert(name, {"id": str(self._next), "v": f"row {self._next}"})
        return list(self.changefeed.tick())

    @property
    def capture(self) -> Path:
        assert isinstance(self.feed.changefeed.source, CaptureSource)
        return self.feed.changefeed.source.path

    def replace_capture(self, records: Iterable[CaptureRecord]) -> None:
        """Let the source have these records and no others."""
        self.capture.unlink()
        self.feed.write(records)

    def accept(self, topic: str = "shop", partition: int = 0) -> AcceptedGap:
        return accept(self.feed.lake, topic, partition)

    def caveats(self) -> dict[str, list[str]]:
        """Return the caveats of each table that speak of lost records."""
        return {
            mirror.table: [caveat for caveat in mirror.caveats if "gone before" in caveat]
            for mirror in self.feed.cut.mirrors
        }

    def marked(self) -> dict[str, int]:
        """Return how many of these caveats each table has."""
        return {table: len(caveats) for table, caveats in self.caveats().items()}

    def landed(self) -> list[tuple[int, int]]:
        table = read_table(self.feed.paths.raw_messages)
        assert table is not None
        return sorted(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))


@pytest.mark.thorough
def test_expired_records_are_accepted_and_mark_the_mirrors_until_they_begin_empty(
    tmp_path: Path,
) -> None:
    shop = Shop(tmp_path)
    feed = shop.feed
    first = shop.synced(ORDERS, CUSTOMERS)
    before = feed.cut.tso
    lost = shop.insert(ORDERS)
    later = shop.insert(CUSTOMERS)
    shop.replace_capture(later)
    position, gap_end = first[-1].offset + 1, later[0].offset
    for _ in range(2):
        with pytest.raises(LandingGapError, match="ticdc-assets accept-gap feed shop 0") as caught:
            feed.land()
        assert (caught.value.landed, caught.value.available) == (position, gap_end)
    status = read_status(feed.lake, datetime.now(UTC), source=see_source(feed.lake))
    assert [(item["landed"], item["available"]) for item in status.as_json()["gaps"]] == [
        (position, gap_end)
    ]
    assert 'ticdc_landing_gaps{changefeed="feed"} 1.0' in openmetrics_text(
        Figures(statuses=[status], source_up={})
    )

    gap = shop.accept()
    assert (gap.from_offset, gap.to_offset, gap.offset_base) == (position, gap_end, 0)
    assert (gap.after_ts, gap.until_ts) == (before, None)
    assert "@" in gap.accepted_by
    assert len(lost) == gap_end - position
    with pytest.raises(NotFoundError, match="there is no gap in topic 'shop' partition 0"):
        shop.accept()
    assert read_accepted(feed.paths) == (gap,)
    # Nothing of the gap is at or below the newest cut, so that cut lacks nothing.
    assert feed.sync().outcome is Outcome.PUBLISHED
    expected = [
        f"changes may be missing: offsets {position} to {gap_end - 1} of topic 'shop' partition 0 "
        f"were gone before they landed, since {before}"
    ]
    assert shop.caveats() == {"orders": expected, "customers": expected}
    assert shop.landed() == [(0, item.offset) for item in (*first, *later)]
    assert feed.rows() != truth_rows(shop.changefeed.truth())

    # As of a TSO below the gap nothing is missing, above it something may be.
    for tso, warned in ((before, False), (feed.cut.tso, True)):
        moment = AsOf(feed.lake, tso)
        for mirror in moment.plan.mirrors:
            assert any("gone before" in item for item in moment.rows(mirror).warnings) is warned

    # TRUNCATE ends it for its table; a new table never had it.
    shop.upstream.truncate_table(ORDERS)
    shop.upstream.create_table(
        ("shop", "new"), (column("id", "int", nullable=False),), primary_key=("id",)
    )
    shop.synced(ORDERS)
    assert shop.caveats() == {"orders": [], "customers": expected, "new": []}
    (kept,) = read_accepted(feed.paths)
    assert kept.until_ts is not None
    assert kept.until_ts > before
    status = read_status(feed.lake, datetime.now(UTC))
    assert [item["number"] for item in status.as_json()["accepted_gaps"]] == [1]
    told = openmetrics_text(Figures(statuses=[status], source_up={}))
    assert 'ticdc_accepted_gaps{changefeed="feed",partition="0",topic="shop"} 1.0' in told


def test_a_truncate_that_comes_with_what_is_behind_the_gap_ends_it_at_once(
    tmp_path: Path,
) -> None:
    shop = Shop(tmp_path)
    shop.synced(ORDERS, CUSTOMERS)
    shop.insert(ORDERS)
    shop.upstream.truncate_table(ORDERS)
    shop.replace_capture(shop.insert(ORDERS))
    shop.accept()
    shop.feed.sync()
    assert shop.marked() == {"orders": 0, "customers": 1}


def test_a_truncate_that_came_before_the_gap_or_was_lost_in_it_ends_nothing(
    tmp_path: Path,
) -> None:
    """It came whole, and rows after it may have been lost; or it came in the other partition."""
    shop = Shop(tmp_path, partitions=2)
    shop.synced(ORDERS, CUSTOMERS)
    shop.upstream.truncate_table(ORDERS)
    records = shop.insert(ORDERS)
    truncates = {item.partition: item for item in records if b'"TRUNCATE"' in (item.value or b"")}
    assert set(truncates) == {0, 1}
    last = max(item.offset for item in records if item.partition == 1)
    # All of partition 0; of partition 1 the last watermark alone.
    shop.replace_capture(item for item in records if item.partition == 0 or item.offset == last)
    shop.accept(partition=1)
    shop.feed.sync()
    assert shop.marked() == {"orders": 1, "customers": 1}


@pytest.mark.thorough
def test_a_topic_that_was_made_again_goes_on_with_offsets_of_its_own(tmp_path: Path) -> None:
    shop = Shop(tmp_path, partitions=2)
    feed = shop.feed
    first = shop.synced(ORDERS, CUSTOMERS, ORDERS)
    ends = dict(read_position(feed.paths).next_offsets)
    # The new topic begins at 0 in each partition; here it has fewer records than were landed.
    later = shop.insert(ORDERS)
    starts = {number: min(i.offset for i in later if i.partition == number) for number in (0, 1)}

    def renumbered(records: Iterable[CaptureRecord]) -> list[CaptureRecord]:
        return [replace(item, offset=item.offset - starts[item.partition]) for item in records]

    anew = renumbered(later)
    shop.replace_capture(anew)
    with pytest.raises(LandingGapError, match="created again or truncated"):
        feed.land()
    shop.accept(partition=0)
    with pytest.raises(LandingGapError, match="partition 1"):
        feed.land()
    gap = shop.accept(partition=1)
    assert (gap.from_offset, gap.to_offset) == (ends["shop", 1], ends["shop", 1])
    assert gap.offset_base == ends["shop", 1]
    feed.sync()
    landed = shop.landed()
    assert len(landed) == len(set(landed)) == len(first) + len(anew)
    assert feed.rows() == truth_rows(shop.changefeed.truth()), "nothing was lost here"
    assert all(shop.caveats().values()), "which nobody can know"
    # It goes on like any other topic, and what is nothing new is not landed again.
    assert feed.land().records == 0
    more = shop.insert(CUSTOMERS)
    feed.write(renumbered(more))
    assert feed.land().records == len(more)
    feed.sync()
    assert feed.rows() == truth_rows(shop.changefeed.truth())
    # Records that expire in it are a gap again, in the offsets of the lake.
    lost = shop.insert(CUSTOMERS)
    shop.replace_capture(renumbered(shop.insert(CUSTOMERS)))
    position = read_position(feed.paths).next_offsets["shop", 0]
    with pytest.raises(LandingGapError) as caught:
        feed.land()
    assert caught.value.landed == position
    count = sum(item.partition == 0 for item in lost)
    assert caught.value.available == position + count


def test_a_topic_with_another_id(tmp_path: Path) -> None:
    """Whether the new one has fewer records than were landed or more."""
    shop = Shop(tmp_path)
    feed = shop.feed
    places = (("shop", 0), ("shop", 1))
    position = Position(batch=1, next_offsets=dict.fromkeys(places, 10), topic_ids={"shop": "a"})
    ranges = {place: OffsetRange(earliest=2, end=50) for place in places}
    gaps = compare(feed.lake, position, ranges, {"shop": "b"}).gaps
    found = [(gap.partition, gap.to_offset, gap.offset_base) for gap in gaps]
    assert found == [(0, 10, 8), (1, 10, 8)]
    assert "its id was a and is b" in str(gaps[0].error)
    # One accepted, the other not; and what was accepted is not accepted for a third topic.
    accepted = replace(position, bases={places[0]: 8}, accepted_ids={places[0]: "b"})
    for topic_id, left in (("b", [1]), ("c", [0, 1])):
        gaps = compare(feed.lake, accepted, ranges, {"shop": topic_id}).gaps
        assert [gap.partition for gap in gaps] == left


def test_a_partition_that_came_since_the_newest_landing_begins_at_its_first_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had before the first look at it may have expired: Kafka's partitions begin at 0."""
    ranges: dict[tuple[str, int], OffsetRange] = {}

    class Listed(Administration):
        def __init__(self, source: KafkaSource) -> None:
            """Connect to nothing."""

        def listed(self, source: KafkaSource) -> Any:
            return dict(ranges), {topic: f"id of {topic}" for topic, _ in ranges}

    def fetched(_: object, __: object, wanted: Wanted, batch: LandingBatch) -> Any:
        records = [
            filler(place, offset, b"x")
            for place, (start, end) in wanted.items()
            for offset in range(start, end)
        ]
        return write_columns([columns_of(records)], wanted, batch)

    monkeypatch.setattr(landing, "Administration", Listed)
    monkeypatch.setattr(sources, "Administration", Listed)
    monkeypatch.setattr(landing, "fetch_into_files", fetched)
    shop = Shop(tmp_path)

    def lake(*topics: str) -> Lake:
        patterns = tuple(name for name in topics if set("{*").intersection(name))
        source = KafkaSource(
            bootstrap_servers="127.0.0.1:1",
            topics=tuple(name for name in topics if name not in patterns),
            patterns=tuple(map(TopicPattern, patterns)),
        )
        own = shop.feed.lake
        return replace(own, changefeed=replace(own.changefeed, source=source))

    def land(*topics: str) -> int:
        return landing.land(lake(*topics)).records

    def refused(*topics: str) -> tuple[str, int, int, int]:
        with pytest.raises(LandingGapError, match="expired before they were landed") as caught:
            land(*topics)
        error = caught.value
        return error.topic, error.partition, error.landed, error.available

    # Nobody knows what was before the first landing.
    ranges["cdc_a", 0] = OffsetRange(earliest=5, end=10)
    assert land("cdc_{table}", "later") == 5
    # Topics of a pattern or a name that the landing before had already, and another partition.
    new = {("cdc_a", 1): "more", ("cdc_b", 0): "by a pattern", ("later", 0): "by its name"}
    for topic, number in new:
        ranges[topic, number] = OffsetRange(earliest=50, end=60)
        assert refused("cdc_{table}", "later") == (topic, number, 0, 50), new[topic, number]
        ranges[topic, number] = OffsetRange(earliest=0, end=60)
        assert land("cdc_{table}", "later") == 60
    # A topic that is added to the configuration may be an old one.
    ranges["old", 0] = OffsetRange(earliest=50, end=60)
    assert land("cdc_{table}", "later", "ol*") == 10
    ranges["older", 0] = OffsetRange(earliest=50, end=60)
    assert refused("cdc_{table}", "later", "ol*") == ("older", 0, 0, 50)
    # A loss that is accepted is behind.
    gap = accept(lake("cdc_{table}", "later", "ol*"), "older", 0)
    assert (gap.from_offset, gap.to_offset, gap.offset_base) == (0, 50, 0)
    assert land("cdc_{table}", "later", "ol*") == 10


def test_what_is_not_there_at_all_cannot_be_accepted(tmp_path: Path) -> None:
    shop = Shop(tmp_path, partitions=2)
    records = shop.synced(ORDERS)
    shop.replace_capture([item for item in records if item.partition == 0])
    with pytest.raises(LandingGapError, match="with at least 2 partitions") as caught:
        shop.accept(partition=1)
    assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(NotFoundError, match="no topic 'elsewhere' with a partition 3"):
        shop.accept("elsewhere", 3)
    assert read_accepted(shop.feed.paths) == ()


@pytest.mark.parametrize(
    ("topics", "there", "said"),
    [
        (("other",), "other", "source.kafka.topics no longer names this topic"),
        (("other", "shop"), "other", "the right DESCRIBE on it if it is there; else create topic"),
        (("shop",), "shop", "create topic 'shop' with at least 2 partitions"),
    ],
)
def test_why_a_landed_partition_is_missing(
    tmp_path: Path, topics: tuple[str, ...], there: str, said: str
) -> None:
    source = KafkaSource(bootstrap_servers="127.0.0.1:1", topics=topics)
    lake = Shop(tmp_path).feed.lake
    lake = replace(lake, changefeed=replace(lake.changefeed, source=source))
    position = Position(batch=1, next_offsets={("shop", 1): 10}, topic_ids={})
    ranges = {(there, 0): OffsetRange(earliest=0, end=0)}
    (gap,) = compare(lake, position, ranges, {}).gaps
    assert gap.to_offset is None
    assert said in str(gap.error)


def test_a_gap_that_is_accepted_with_nothing_behind_it(tmp_path: Path) -> None:
    """As many records are there as were landed, less one: the next one comes later."""
    shop = Shop(tmp_path)
    feed = shop.feed
    first = shop.synced(ORDERS)
    shop.replace_capture(first[:1])
    with pytest.raises(LandingGapError):
        feed.land()
    shop.accept()
    # The one record that is there is landed once more, behind all others: it is a replay.
    assert feed.land().records == 1
    assert feed.sync().outcome is Outcome.UNCHANGED
    assert feed.rows() == truth_rows(shop.changefeed.truth())


def test_a_capture_that_loses_its_end_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while another program copies it in place: the offsets were listed before."""
    shop = Shop(tmp_path)
    records = shop.insert(ORDERS)
    shop.feed.write(records)

    def listed(source: CaptureSource) -> Any:
        ranges = sources.capture_ranges(source)
        shop.capture.write_bytes(shop.capture.read_bytes()[:-10])
        return ranges

    monkeypatch.setattr(landing, "capture_ranges", listed)
    with pytest.raises(SourceUnavailableError, match="lost its end while it was read"):
        shop.feed.land()
    monkeypatch.undo()
    shop.replace_capture(records)
    assert shop.feed.land().records == len(records)


# Which mirrors -----------------------------------------------------------------------------------


def test_tables_of_other_topics_are_spared_where_a_topic_has_tables_of_its_own(
    tmp_path: Path,
) -> None:
    shop = Shop(tmp_path, "cdc_{schema}_{table}")
    feed = shop.feed
    shop.synced(ORDERS, CUSTOMERS)
    later = shop.insert(ORDERS, CUSTOMERS, ORDERS)
    topic = "cdc_shop_orders"
    skipped = next(item.offset for item in later if item.topic == topic)
    # The first record of that topic is gone; the file has the rest of it and of all others.
    shop.replace_capture([item for item in later if (item.topic, item.offset) != (topic, skipped)])
    for place, landed in read_position(feed.paths).next_offsets.items():
        if not any((item.topic, item.partition) == place for item in later):
            # The default topic rests; its records are still there.
            feed.write([filler(place, landed - 1)])
    shop.accept(topic)
    feed.sync()
    assert shop.marked() == {"orders": 1, "customers": 0}


def filler(place: tuple[str, int], offset: int, value: bytes | None = None) -> CaptureRecord:
    return CaptureRecord(
        topic=place[0], partition=place[1], offset=offset, timestamp_ms=1, key=None, value=value
    )


@pytest.mark.parametrize(
    ("rows", "marked"),
    [
        # Only the default topic tells of databases; anything may have been in it.
        ([("ddl", "x", "shop", ""), ("row", "o", *ORDERS), ("row", "c", *CUSTOMERS)], {0, 1}),
        ([("row", "x", *ORDERS), ("row", "c", *CUSTOMERS)], {0}),
        # Never seen at all: it may have been in this topic.
        ([("row", "x", *ORDERS)], {0, 1}),
        ([("watermark", "x", None, None)], {0, 1}),
        ([("row", "x", "SHOP", "Orders"), ("bootstrap", "x", *CUSTOMERS)], {0, 1}),
    ],
)
@pytest.mark.thorough
def test_which_tables_a_lost_record_may_be_of(
    rows: list[tuple[Any, ...]], marked: set[int], tmp_path: Path
) -> None:
    shop = Shop(tmp_path)
    feed = shop.feed
    shop.synced(ORDERS, CUSTOMERS)
    mirrors = AsOf(feed.lake, feed.cut.tso).plan.mirrors
    by_name = {mirror.name: mirror for mirror in mirrors}
    gap = AcceptedGap(
        number=1,
        accepted_at=datetime.now(UTC),
        accepted_by="me@here",
        topic="x",
        partition=0,
        topic_id=None,
        from_offset=5,
        to_offset=9,
        offset_base=0,
        cause="expired",
        after_ts=0,
        until_ts=feed.cut.tso + 1,
    )
    titles: tuple[str, ...] = ("kind", "topic", "database", "table")
    groups: list[dict[str, Any]] = [
        {"partition": 0, **dict(zip(titles, row, strict=True))} for row in rows
    ]
    found = gap_caveats(feed.paths, [gap], mirrors, groups, feed.cut.tso)
    names = [ORDERS, CUSTOMERS]
    assert {names.index(name) for name in names if by_name[name].mirror_id in found} == marked
    # A table that was created above the watermark behind the gap lacks nothing; where the partition
    # gets DDL, that of the table has to have come behind the gap.
    floor = min(mirror.floor_ts for mirror in mirrors)
    assert floor > 0
    for until_ts, spared in ((floor - 1, rows[0][0] != "ddl"), (floor, False)):
        ended = replace(gap, until_ts=until_ts)
        found = gap_caveats(feed.paths, [ended], mirrors, groups, feed.cut.tso)
        lowest = next(mirror for mirror in mirrors if mirror.floor_ts == floor)
        if names.index(lowest.name) in marked:
            assert (lowest.mirror_id not in found) is spared
