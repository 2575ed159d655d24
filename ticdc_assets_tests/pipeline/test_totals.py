"""The totals of a batch: the same wherever they are made."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ticdc_assets.engine import executing
from ticdc_assets.pipeline.change_files import Batches, Everything, totals_in_files
from ticdc_assets.pipeline.change_statistics import read_statistics
from ticdc_assets.pipeline.decoding import decode_new
from ticdc_assets.pipeline.landing import land
from ticdc_assets.pipeline.totals import GROUP_KEY
from ticdc_assets_tests.defs.small_shop import ODD, ORDERS, SmallShop

pytestmark = pytest.mark.spark


def by_group(groups: list[dict[str, Any]], *without: str) -> list[dict[str, Any]]:
    kept = [{name: row[name] for name in row if name not in without} for row in groups]
    return sorted(kept, key=lambda row: repr([row[name] for name in GROUP_KEY]))


def test_totals_are_the_same_whatever_they_are_made_of(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = SmallShop(tmp_path)
    shop.create_tables()
    shop.insert(ORDERS, 3)
    shop.send()
    shop.insert(ODD, 2)
    shop.send()
    land(spark, shop.paths, shop.changefeed)
    decode_new(spark, shop.paths, shop.changefeed)
    statistics = read_statistics(shop.paths).rows
    (batch,) = {row["last_batch"] for row in statistics}

    here = totals_in_files(spark, shop.paths.change_log, Batches.one(batch))

    assert sum(row["rows"] for row in here if row["kind"] == "row") == 5
    assert max(len(row["watermarks"]) for row in here) > 1
    told = by_group(here, "watermarks", "landed_day")
    assert told == by_group([*statistics], "steps_back")
    every = totals_in_files(spark, shop.paths.change_log, Everything(), watermarks=False)
    assert by_group(every, "watermarks", "landed_day") == told
    assert not any(row["watermarks"] for row in every)
    monkeypatch.setattr(executing, "INLINE_ROWS", -1)
    assert by_group(totals_in_files(spark, shop.paths.change_log, Batches.one(batch))) == by_group(
        here
    )
