"""The totals of a batch: made here for few rows, by Spark for many; both say the same."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ticdc_assets.lake import decoding
from ticdc_assets.lake.decoding import decode_new, read_groups
from ticdc_assets.lake.landing import land
from ticdc_assets.lake.totals import GROUP_KEY
from ticdc_assets_tests.defs.small_shop import ODD, ORDERS, SmallShop

pytestmark = pytest.mark.spark


def by_group(groups: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    assert groups is not None
    return sorted(groups, key=lambda row: repr([row[name] for name in GROUP_KEY]))


def test_totals_made_here_are_those_of_spark(
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
    (batch,) = {row["last_batch"] for row in read_groups(shop.paths).rows}

    here = decoding._totals_here(shop.paths, batch)

    assert by_group(here) == by_group(decoding._totals_in_spark(spark, shop.paths, batch))
    assert here is not None
    assert sum(row["rows"] for row in here if row["kind"] == "row") == 5
    assert max(len(row["watermarks"]) for row in here) > 1
    monkeypatch.setattr(decoding, "_LOCAL_ROWS", 4)
    assert decoding._totals_here(shop.paths, batch) is None
