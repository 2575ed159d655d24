"""Rows that a table took over from itself and that its new key refuses, until they are gone."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ticdc_assets.demo.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.log.quarantine import read_quarantine
from ticdc_assets_tests.demo.simulator.key_changes import AddPrimaryKey
from ticdc_assets_tests.demo.simulator.odd_upstream import OddUpstream
from ticdc_assets_tests.lake.feeds import Feed, truth_rows

pytestmark = pytest.mark.spark

TABLES = (("d", "a"), ("d", "b"))


def test_each_row_without_the_new_key_is_a_fault_until_its_delete_comes(
    spark: SparkSession, tmp_path: Path
) -> None:
    upstream = OddUpstream()
    upstream.create_database("d")
    for table in TABLES:
        upstream.create_table(table, (column("v", "int"),))
    with upstream.transaction() as transaction:
        places = [transaction.insert(table, {"v": None}) for table in TABLES]
    changefeed = StandInChangefeed(
        upstream, "t", options=FeedOptions(force_replicate=True), partitions=1
    )
    feed = Feed.of(spark, tmp_path)
    feed.follow(changefeed)
    for table, place in zip(TABLES, places, strict=True):
        with upstream.transaction() as transaction:
            transaction.delete(table, place)
    records = list(changefeed.tick())
    late = [record for record in records if b'"DELETE"' in (record.value or b"")]
    feed.write(record for record in records if record not in late)
    for table in TABLES:
        upstream.alter_table(table, AddPrimaryKey(columns=("v",)))
    feed.follow(changefeed)
    assert {(row["database"], row["table"]) for row in read_quarantine(feed.paths)} == {*TABLES}
    for number, record in enumerate(late):
        feed.write([replace(record, offset=changefeed.next_offsets[0] + number)])
        feed.sync()
        assert len(read_quarantine(feed.paths)) == 1 - number
    assert feed.rows() == truth_rows(changefeed.truth())
