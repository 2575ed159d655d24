"""Storms through the whole lake, in pieces: mirrors and any TSO are the truth, format by format."""

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ticdc_assets.capture import CaptureRecord
from ticdc_assets.simulator.changefeed import FeedOptions
from ticdc_assets.simulator.storm import storm
from ticdc_assets.simulator.upstream import CommittedTransaction
from ticdc_assets.wire import WireFormat
from ticdc_assets_tests.changelog.test_storm import ZONE
from ticdc_assets_tests.lake.feeds import Feed, truth_rows
from ticdc_assets_tests.simulator.variants import Variant

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize(
    ("seed", "wire_format", "keyless"),
    [
        (1, WireFormat.SIMPLE_JSON, False),
        (2, WireFormat.SIMPLE_AVRO, True),
        (3, WireFormat.OPEN_PROTOCOL, False),
        (4, WireFormat.CANAL_JSON, True),
        (5, WireFormat.CRAFT, False),
    ],
)
def test_a_storm_in_pieces_ends_as_the_truth(
    seed: int, wire_format: WireFormat, *, keyless: bool, spark: SparkSession, tmp_path: Path
) -> None:
    weather = storm(seed, steps=60, keyless=keyless, timezone=ZONE)
    options = FeedOptions(force_replicate=keyless)
    changefeed = Variant(wire_format).changefeed(weather.upstream, options, seed=seed)
    feed = Feed.of(spark, tmp_path, timezone=ZONE, wire_format=wire_format)
    records: list[CaptureRecord] = list(changefeed.tick())
    size = len(records) // 3 + 1
    for start in range(0, len(records), size):
        feed.write(records[start : start + size])
        feed.sync()
    assert feed.cut.tso == changefeed.watermark_ts
    assert feed.rows() == truth_rows(changefeed.truth())
    stamps = [c.commit_ts for c in weather.upstream.history if isinstance(c, CommittedTransaction)]
    for at in random.Random(seed).sample(stamps, 2):
        assert feed.rows_as_of(at) == truth_rows(changefeed.truth(at)), at
