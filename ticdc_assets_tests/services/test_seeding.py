"""Seeding from exports: mirrors equal the truth, whatever the changefeed begins with."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ticdc_assets.services.seeding import seed
from ticdc_assets.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.simulator.export import export_upstream
from ticdc_assets.simulator.shop import ShopWorkload
from ticdc_assets.simulator.upstream import Upstream
from ticdc_assets.wire import WireFormat
from ticdc_assets_tests.lake.feeds import Feed, truth_rows

TIMEZONE = "Asia/Tokyo"

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("wire_format", WireFormat, ids=str)
@pytest.mark.parametrize("begin", ["from the export on", "before the export"])
def test_a_shop_seeded_in_its_middle(
    spark: SparkSession, tmp_path: Path, wire_format: WireFormat, begin: str
) -> None:
    upstream = Upstream(timezone=TIMEZONE)
    workload = ShopWorkload(upstream, 3)
    cuts: list[int] = []
    at = 0
    for number in range(4):
        for _ in workload.steps(25):
            pass
        cuts.append(upstream.clock.next())
        if number == 1:
            file_type = "csv" if begin == "before the export" else "sql"
            at = export_upstream(upstream, tmp_path / "export", file_type=file_type)
    first_ts = at if begin == "from the export on" else cuts[0]
    changefeed = StandInChangefeed(
        upstream, "topic", wire_format=wire_format, options=FeedOptions(first_ts=first_ts)
    )
    feed = Feed.of(spark, tmp_path, timezone=TIMEZONE, wire_format=wire_format)
    feed.write(changefeed.tick())
    found = seed(spark, feed.paths, feed.changefeed, str(tmp_path / "export"))
    assert found.tso == at
    assert found.refused == {}
    assert sum(item.quarantined for item in found.tables) == 0
    for cut in (at, cuts[2], cuts[3]):
        feed.sync(until=cut)
        assert feed.rows() == truth_rows(changefeed.truth(cut))
        # Craft's encoders damage some values, which is said of the tables that have such columns.
        if wire_format is not WireFormat.CRAFT:
            assert [list(item.marks) for item in feed.cut.mirrors if item.marks] == []
    for cut in (at, cuts[2]):
        assert feed.rows_as_of(cut) == truth_rows(changefeed.truth(cut))
