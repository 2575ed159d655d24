"""Changes into large mirrors without a key: the rows are found, and no others."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ticdc_assets.demo.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.mirrors import mirror_making
from ticdc_assets.mirrors.mirror_making import Mode
from ticdc_assets_tests.lake.feeds import Feed, truth_rows

pytestmark = pytest.mark.spark


def test_a_bag_is_changed_by_row_however_many_changes_it_ever_had(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies of a row are counted, and deletes of rows that are not there are told."""
    upstream = Upstream()
    upstream.create_database("d")
    columns = column("a", "int"), column("d", "date"), column("v", "vector(2)")
    upstream.create_table(("d", "bag"), columns)
    with upstream.transaction() as transaction:
        for number in range(60):
            day = "0000-00-00" if number % 7 == 0 else None
            vector = f"[{number % 3},0.5]" if number % 4 else None
            transaction.insert(("d", "bag"), {"a": str(number % 5), "d": day, "v": vector})
    options = FeedOptions(force_replicate=True)
    changefeed = StandInChangefeed(upstream, "d", partitions=1, options=options)
    feed = Feed.of(spark, tmp_path)
    feed.follow(changefeed)
    monkeypatch.setattr(mirror_making, "INLINE_ROWS", 20)
    for mode, count in ((Mode.CHANGE, 3), (Mode.CHANGE, 9), (Mode.REWRITE, 30)):
        with upstream.transaction() as transaction:
            for row in list(upstream.rows(("d", "bag")))[:count]:
                transaction.delete(("d", "bag"), row)
            transaction.insert(("d", "bag"), {"a": "1", "d": None, "v": "[1,0.5]"})
        feed.follow(changefeed)
        assert not feed.cut.failed
        (mirror,) = feed.cut.mirrors
        assert (mirror.mode, mirror.unknown_deletes) == (mode, 0)
        assert feed.rows() == truth_rows(changefeed.truth())
        assert mirror.rows == len(upstream.rows(("d", "bag")))
