"""How far a changefeed is: the parts of the lag on values, and all of it over a small real lake."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from ticdc_assets.log.cuts import require_cut
from ticdc_assets.log.faults import Faults
from ticdc_assets.log.positions import PartitionOffsets, known_partitions
from ticdc_assets.log.sources import see_source
from ticdc_assets.model import tso
from ticdc_assets.observe.lag import LagPart, split_lag, waiting_since
from ticdc_assets.observe.status_reading import read_status
from ticdc_assets.observe.table_status import table_statuses
from ticdc_assets.repair.verifying import count_keys
from ticdc_assets_tests.lake.feeds import Feed
from ticdc_assets_tests.orchestration.small_shop import ODD, ORDERS, SmallShop
from ticdc_assets_tests.statuses import NOW, NOW_MS, at, cut, held, mirror, offsets

# Times --------------------------------------------------------------------------------------------

MOMENTS = st.integers(0, 2**44)


@given(now=MOMENTS, cut_ms=MOMENTS, landed=MOMENTS, waiting=st.none() | MOMENTS)
def test_the_parts_add_up_whatever_the_clocks_say(
    now: int, cut_ms: int, landed: int, waiting: int | None
) -> None:
    lag = split_lag(now, cut_ms, landed_ms=landed, waiting_since_ms=waiting)
    assert sum(lag.parts.values()) == lag.total_ms == max(0, now - cut_ms)
    assert lag.ahead_ms == max(0, cut_ms - now)
    assert set(lag.parts) == set(LagPart)
    assert min(lag.parts.values()) >= 0
    assert lag.parts[lag.largest] == max(lag.parts.values())


@pytest.mark.parametrize(
    ("landed", "waiting", "parts"),
    [
        # All is applied and nothing waits: what is missing has not come to Kafka.
        (0, None, (100, 0, 0)),
        (60, None, (40, 0, 60)),
        (60, 70, (10, 30, 60)),
        (0, 0, (0, 100, 0)),
        # Clocks: a watermark or a record later than now, a record older than what was applied.
        (150, 70, (0, 0, 100)),
        (60, 150, (40, 0, 60)),
        (60, -500, (0, 40, 60)),
        (-50, None, (100, 0, 0)),
    ],
)
def test_each_part(landed: int, waiting: int | None, parts: tuple[int, int, int]) -> None:
    base = 1_000_000
    lag = split_lag(
        base + 100,
        base,
        landed_ms=base + landed,
        waiting_since_ms=None if waiting is None else base + waiting,
    )
    assert tuple(lag.parts[part] for part in LagPart) == parts


def waits(partition: int, backlog: int, newest_ms: int | None) -> PartitionOffsets:
    return offsets(partition, 10 + backlog, 10, newest_ms=newest_ms)


def test_since_when_records_wait() -> None:
    landed_at = datetime.fromtimestamp(5, UTC)
    assert waiting_since([], landed_at) is None
    assert waiting_since([waits(0, 0, 1000)], landed_at) is None
    # Of the partitions that wait the one that was landed least far; the others do not count.
    places = [waits(0, 0, 100), waits(1, 3, 2000), waits(2, 1, 3000)]
    assert waiting_since(places, landed_at) == 2000
    assert waiting_since([waits(0, 1, None), waits(1, 1, 6000)], landed_at) == 5000
    assert waiting_since([waits(0, 1, None)], None) is None


# Tables -------------------------------------------------------------------------------------------


def test_a_table_is_behind_as_the_cut_or_since_its_first_missing_change() -> None:
    orders = mirror("orders", mirror_id="1")
    users = mirror("users", mirror_id="2", held=3)
    wrong = mirror("wrong", mirror_id="3", quarantined=1)
    seen = cut(
        10,
        mirrors=(orders, users, wrong),
        held=(
            held(100, "users", mirror_id="2", min_ts=at(130)),
            held(90, "old_name", mirror_id="2", min_ts=at(120)),
            held(30, "visits", min_ts=at(40)),
        ),
    )
    faults = [
        Faults(
            stage="apply", reason="x", since=NOW, database="shop", table="wrong", first_ts=at(ago)
        )
        for ago in (70, 60)
    ]
    # Of a record that could not be decoded nobody knows the table.
    faults.append(Faults(stage="decode", reason="x", since=NOW))
    found = table_statuses(seen, faults, NOW_MS)
    assert [(item.table, item.lag_ms, item.is_complete) for item in found] == [
        ("users", 130_000, False),
        ("wrong", 70_000, False),
        ("visits", 40_000, False),
        ("orders", 10_000, True),
    ]
    assert (found[0].held_since, found[2].has_mirror) == (NOW - timedelta(seconds=100), False)
    assert table_statuses(None, faults, NOW_MS) == ()


def test_a_row_that_is_held_is_never_ahead_of_the_cut() -> None:
    seen = cut(10, held=(held(1, mirror_id="1", min_ts=at(5)),))
    assert [item.lag_ms for item in table_statuses(seen, [], NOW_MS)] == [10_000]


# A lake -------------------------------------------------------------------------------------------


def test_an_empty_lake_has_a_status(tmp_path: Path) -> None:
    shop = SmallShop(tmp_path)
    found = read_status(shop.lake, NOW)
    assert (found.cut, found.lag, found.tables, found.topics) == (None, None, (), ())
    assert (found.backlog, found.newest_record_ms, found.source_seen_at) == (0, None, None)
    assert not shop.paths.base.exists()


@pytest.mark.spark
def test_the_status_of_a_small_lake(spark: SparkSession, tmp_path: Path) -> None:
    shop = SmallShop(tmp_path)
    feed = Feed(spark, shop.changefeed, shop.paths.root)
    shop.create_tables()
    shop.insert(ORDERS, 3)
    shop.insert(ODD, 1)
    shop.send()
    feed.sync()
    now = datetime.now(UTC)

    # Everything is applied, and nothing waits.
    found = read_status(shop.lake, now)
    assert found.cut is not None
    assert found.lag is not None
    assert found.watermark.watermark_ts == found.cut.tso
    assert found.lag.parts[LagPart.SOURCE_TO_KAFKA] == found.lag.total_ms >= 0
    assert found.lag.total_ms == round(found.at.timestamp() * 1000) - tso.physical_ms(found.cut.tso)
    assert [(item.topic, item.state, item.partitions) for item in found.topics] == [
        ("shop", "live", 2)
    ]
    assert {(item.database, item.table): item.rows for item in found.tables} == {ORDERS: 3, ODD: 1}
    assert (found.landed_batch, found.decoded_batch, found.log_batch) == (1, 1, 1)
    assert found.log_rows["row"] == 4
    first = known_partitions(shop.paths)
    assert found.newest_record_ms == max(item.newest_ms or 0 for item in first) > 0

    # Landed and not decoded: the time of the landed records stands for their watermarks.
    shop.insert(ORDERS, 1)
    shop.send()
    feed.land()
    landed = read_status(shop.lake, now)
    assert landed.lag is not None
    assert (landed.landed_batch, landed.decoded_batch) == (2, 1)
    newest = landed.newest_record_ms
    assert newest is not None
    cut_ms = tso.physical_ms(found.cut.tso)
    assert landed.lag.parts[LagPart.RAW_TO_MIRROR] == min(
        max(0, newest - cut_ms), landed.lag.total_ms
    )
    # A landing that finds nothing keeps the times.
    feed.land()
    assert known_partitions(shop.paths) == landed.partitions

    # Waiting in the source, an hour later: seen by whoever looks.
    feed.sync()
    shop.insert(ORDERS, 1)
    shop.send()
    later = datetime.now(UTC) + timedelta(hours=1)
    source = see_source(shop.lake)
    unseen = read_status(shop.lake, later)
    seen = read_status(shop.lake, later, source=source)
    assert unseen.lag is not None
    assert seen.lag is not None
    assert (unseen.backlog, unseen.lag.largest) == (0, LagPart.SOURCE_TO_KAFKA)
    assert (seen.backlog > 0, seen.lag.largest) == (True, LagPart.KAFKA_TO_RAW)
    assert seen.lag.total_ms == unseen.lag.total_ms
    assert seen.source_seen_at == later

    # Keys: each is once, until a file is appended behind the pipeline's back.
    published = require_cut(shop.paths)
    counts = count_keys(shop.lake.using(spark), published)
    assert (counts.mirrors, counts.without_key, counts.repeated) == (2, 0, ())
    orders = published.mirror(*ORDERS)
    assert orders is not None
    path = str(orders.path(shop.paths))
    twice = spark.read.format("delta").load(path).orderBy("id").limit(1)
    twice.write.format("delta").mode("append").save(path)
    newer = replace(orders, version=orders.version + 1)
    spoilt = replace(
        published,
        mirrors=tuple(newer if item == orders else item for item in published.mirrors),
    )
    (repeated,) = count_keys(shop.lake.using(spark), spoilt).repeated
    assert (repeated.database, repeated.table, repeated.keys) == (*ORDERS, 1)
    assert [(dict(key), rows) for key, rows in repeated.examples] == [({"id": "1"}, 2)]
