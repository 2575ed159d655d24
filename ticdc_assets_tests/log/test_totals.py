"""The totals of a batch: the same wherever they are made."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ticdc_assets.log.change_files import totals_in_files
from ticdc_assets.log.change_statistics import read_groups, read_statistics
from ticdc_assets.log.decoding import decode_new
from ticdc_assets.log.landing import land
from ticdc_assets.log.totals import GROUP_KEY
from ticdc_assets.spark import executing
from ticdc_assets_tests.lake.feeds import LandingClock
from ticdc_assets_tests.orchestration.small_shop import ODD, ORDERS, SmallShop

pytestmark = pytest.mark.spark


def by_group(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(groups, key=lambda row: repr([row[name] for name in GROUP_KEY]))


def test_totals_are_the_same_whatever_they_are_made_of(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = SmallShop(tmp_path)
    shop.create_tables()
    shop.insert(ORDERS, 3)
    shop.send()
    shop.insert(ODD, 2)
    shop.send()
    land(shop.lake)
    decode_new(shop.lake)
    groups = read_groups(shop.paths).to_pylist()
    (batch,) = {row["last_batch"] for row in groups}

    here = totals_in_files(spark, shop.paths.change_log, batches=(batch, batch))

    told = here.groups.to_pylist()
    assert sum(row["rows"] for row in told if row["kind"] == "row") == 5
    assert here.watermarks.num_rows == sum(r["rows"] for r in told if r["kind"] == "watermark") > 2
    assert by_group(told) == by_group(groups)
    monkeypatch.setattr(executing, "INLINE_ROWS", -1)
    in_spark = totals_in_files(spark, shop.paths.change_log, batches=(batch, batch))
    assert by_group(in_spark.groups.to_pylist()) == by_group(told)
    assert in_spark.watermarks.sort_by("offset") == here.watermarks.sort_by("offset")


def test_days_have_totals_of_their_own_and_count_together(
    tmp_path: Path, spark: SparkSession, clock: type[LandingClock]
) -> None:
    days = [datetime(2026, 1, day, 12, tzinfo=UTC) for day in (1, 2)]
    shop = SmallShop(tmp_path)
    shop.create_tables()
    for day, rows in zip(days, (3, 4), strict=True):
        clock.at = day
        shop.insert(ORDERS, rows)
        shop.send()
        land(shop.lake)
        decode_new(shop.lake)

    groups = read_groups(shop.paths).to_pylist()
    of_days = {at.date(): [row for row in groups if row["landed_day"] == at.date()] for at in days}
    rows = {
        day: sum(row["rows"] for row in found if row["kind"] == "row")
        for day, found in of_days.items()
    }
    assert rows == {days[0].date(): 3, days[1].date(): 4}
    told = read_statistics(shop.paths)
    (together,) = told.row_groups
    assert together.rows == 7
    marks = [row for row in groups if row["kind"] == "watermark"]
    assert {row["landed_day"] for row in marks} == of_days.keys()
    for (topic, partition), progress in told.progress().items():
        own = [row for row in marks if (row["topic"], row["partition"]) == (topic, partition)]
        assert progress.watermark_ts == max(row["max_ts"] for row in own)
