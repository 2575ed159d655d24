"""A bank whose total never changes: it is there at every cut and at any TSO, while syncs go on."""

import json
import random
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ticdc_assets.demo.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.reading.as_of import AsOf, TableRows
from ticdc_assets.reading.mirrors import iterate_rows, published_table
from ticdc_assets_tests.demo.simulator.bank import BALANCE, TABLES, Bank
from ticdc_assets_tests.lake.feeds import Feed

pytestmark = pytest.mark.spark

PIECES = 3


def total(feed: Feed, tables: Iterable[TableRows]) -> Decimal:
    """Return the sum over all tables; all of them are there."""
    found = list(tables)
    assert {(item.database, item.table) for item in found} == set(TABLES)
    return sum(
        (
            Decimal(json.loads(text)[BALANCE])
            for _, _, text in iterate_rows(found, feed.changefeed.timezone)
        ),
        Decimal(0),
    )


def total_as_of(feed: Feed, tso: int) -> Decimal:
    moment = AsOf(feed.lake, tso)
    return total(feed, (moment.rows(mirror) for mirror in moment.plan.mirrors))


def total_now(feed: Feed) -> Decimal:
    return total(feed, (published_table(feed.lake, mirror) for mirror in feed.cut.mirrors))


@pytest.mark.parametrize("moments", [6, pytest.param(200, marks=pytest.mark.slow)])
def test_the_total_is_there_at_every_cut_and_any_tso(
    moments: int, spark: SparkSession, tmp_path: Path
) -> None:
    rng = random.Random(moments)
    upstream = Upstream()
    bank = Bank(upstream, seed=11)
    changefeed = StandInChangefeed(
        upstream, "bank", partitions=3, options=FeedOptions(rows_per_flush=10), seed=11
    )
    feed = Feed.of(spark, tmp_path)
    bank.open()
    feed.follow(changefeed)
    with ThreadPoolExecutor(max_workers=1) as beside:
        for _ in range(PIECES):
            for _ in range(25):
                bank.transfer()
            published = feed.cut.tso
            feed.write(changefeed.tick())
            syncing = beside.submit(feed.sync)
            # While the sync goes on, what was published before it is read.
            during = rng.randrange(bank.opened_ts, published + 1)
            assert total_as_of(feed, during) == bank.total, during
            assert total_now(feed) == bank.total
            syncing.result()
            assert feed.cut.tso > published
    assert total_now(feed) == bank.total
    for at in [rng.randrange(bank.opened_ts, feed.cut.tso + 1) for _ in range(moments - PIECES)]:
        assert total_as_of(feed, at) == bank.total, at
