"""A watermark far in the future, by the command line: it does not count, its cuts are undone."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ticdc_assets.config import Writer
from ticdc_assets.delta.lock import writer_lock
from ticdc_assets.demo.simulator.changefeed import StandInChangefeed
from ticdc_assets.demo.simulator.clock import TsoClock, wall_clock_ms
from ticdc_assets.demo.simulator.encoders import encode
from ticdc_assets.model.events import Watermark
from ticdc_assets.model.tso import MAX_TSO, from_physical_ms
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.wire import WireFormat
from ticdc_assets_tests.commands import Commands
from ticdc_assets_tests.demo.simulator.builders import churn, plain_upstream, write_capture
from ticdc_assets_tests.lake.feeds import truth_rows

PARTITIONS = 2


class Shop:
    """A changefeed over a capture, and commands on it."""

    def __init__(self, folder: Path) -> None:
        self.commands = Commands(folder)
        self.capture = folder / "capture.jsonl"
        self.upstream = plain_upstream(("d", "t"), rows=5, clock=TsoClock(now_ms=wall_clock_ms))
        self.changefeed = StandInChangefeed(self.upstream, "d", partitions=PARTITIONS)
        self.commands.add_capture("shop", self.capture)

    def write(self, *marks: int) -> None:
        """Write what is new, and watermarks into all partitions after it."""
        write_capture(self.capture, [*self.changefeed.tick(), *self._marks(*marks)])

    def _marks(self, *marks: int) -> list[CaptureRecord]:
        return [
            self.changefeed.inject(place, key=record.key, value=record.value)
            for watermark_ts in marks
            for record in encode(
                WireFormat.SIMPLE_JSON, [Watermark(watermark_ts=watermark_ts, build_ts_ms=1)]
            )
            for place in range(PARTITIONS)
        ]

    def status(self) -> dict[str, Any]:
        (status,) = json.loads(self.commands.done("status", "shop", "--json"))
        return status


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.mark.dagster
def test_a_watermark_far_in_the_future_does_not_count(shop: Shop) -> None:
    shop.write(MAX_TSO, from_physical_ms(wall_clock_ms() + 2 * 3_600_000))
    assert "quarantined 4 records" in shop.commands.done("sync", "shop")
    status = shop.status()
    assert status["watermark"] == shop.changefeed.watermark_ts
    assert 0 <= status["lag_seconds"] < 300
    assert status["ahead_seconds"] == 0
    quarantined = shop.commands.done("quarantine", "shop")
    assert quarantined.count("ts_ahead") == 4
    assert shop.commands.rows("shop") == truth_rows(shop.changefeed.truth())
    # One that is ahead within the limit counts, and no lag is below zero.
    near = from_physical_ms(wall_clock_ms() + 1_800_000)
    shop.write(near)
    shop.commands.done("sync", "shop")
    status = shop.status()
    assert (status["watermark"], status["lag_seconds"]) == (near, 0)
    assert 1_000 < status["ahead_seconds"] <= 1_800
    assert "ahead of this machine's clock by" in shop.commands.done("status", "shop")
    assert "-" not in shop.commands.done("tables", "shop").partition("lag")[2].partition("s ")[0]
    assert json.loads(shop.commands.done("tables", "shop", "--json"))[0]["lag_seconds"] == 0


@pytest.mark.spark
def test_a_cut_that_was_wrong_is_gone_back_behind(shop: Shop, spark: SparkSession) -> None:
    shop.write()
    shop.commands.done("sync", "shop")
    right, then = shop.changefeed.watermark_ts, truth_rows(shop.changefeed.truth())
    churn(shop.upstream, steps=4, seed=1)
    shop.commands.set("shop", max_ahead_seconds=10**12)
    shop.write(MAX_TSO)
    shop.commands.done("sync", "shop")
    assert shop.status()["watermark"] == MAX_TSO
    assert shop.status()["lag_seconds"] == 0
    churn(shop.upstream, steps=4, seed=2)
    shop.write()
    shop.commands.set("shop", max_ahead_seconds=3600)
    with writer_lock(shop.commands.paths("shop"), Writer()):
        busy = shop.commands.program("rewind", "shop", "--to", right)
    assert busy.returncode == 1
    assert busy.stderr.splitlines() == [busy.stderr.strip()]
    assert "is running" in busy.stderr
    said = shop.commands.done("rewind", "shop", "--to", right)
    assert f"{PARTITIONS} events too far ahead were moved to quarantine" in said
    assert re.search(rf"shop: cut 3 is cut 1 again, at .* \(TSO {right}\)", said)
    assert "cut 3 is cut 1 again: rewound at" in shop.commands.done("status", "shop")
    assert shop.commands.rows("shop") == shop.commands.rows("shop", "--as-of", right) == then
    shop.commands.done("sync", "shop")
    assert shop.status()["watermark"] == shop.changefeed.watermark_ts
    assert shop.commands.rows("shop") == truth_rows(shop.changefeed.truth())
    assert shop.commands.rows("shop", "--as-of", right) == then
    shop.commands.done("verify", "shop")
    above = shop.commands.refused("rewind", "shop", "--to", MAX_TSO)
    assert "its newest cut 4 is below that" in above
