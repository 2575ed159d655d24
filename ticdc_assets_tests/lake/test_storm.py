"""Storms through the whole lake, in pieces: mirrors at each cut and any TSO are the truth.

That holds also while a sync goes on.
"""

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ticdc_assets.demo.simulator.changefeed import FeedOptions
from ticdc_assets.demo.simulator.commits import CommittedTransaction
from ticdc_assets.log.cuts import Cut
from ticdc_assets.reading.mirrors import published_table
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.wire import WireFormat
from ticdc_assets_tests.changelog.test_storm import ZONE
from ticdc_assets_tests.demo.simulator.storm import storm
from ticdc_assets_tests.demo.simulator.variants import OLD, PLAIN
from ticdc_assets_tests.lake.feeds import Feed, treat_as_large, truth_rows

pytestmark = pytest.mark.spark

OF_TIFLOW = (2, 5, 6, 7)
"""Seeds of storms that the old TiCDC sends."""


@pytest.mark.parametrize(
    ("seed", "wire_format", "keyless", "size"),
    [
        pytest.param(1, WireFormat.SIMPLE_JSON, False, "small", marks=pytest.mark.slow),
        pytest.param(2, WireFormat.SIMPLE_AVRO, True, "small", marks=pytest.mark.slow),
        pytest.param(3, WireFormat.OPEN_PROTOCOL, False, "small", marks=pytest.mark.slow),
        (4, WireFormat.CANAL_JSON, True, "small"),
        pytest.param(5, WireFormat.CRAFT, False, "small", marks=pytest.mark.slow),
        pytest.param(6, WireFormat.SIMPLE_JSON, True, "large", marks=pytest.mark.slow),
        pytest.param(7, WireFormat.OPEN_PROTOCOL, False, "large", marks=pytest.mark.slow),
    ],
)
def test_a_storm_in_pieces_is_the_truth_at_every_cut(
    seed: int,
    wire_format: WireFormat,
    size: str,
    *,
    keyless: bool,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if size == "large":
        treat_as_large(monkeypatch)
    state = storm(seed, steps=60, keyless=keyless, timezone=ZONE)
    options = FeedOptions(force_replicate=keyless, ddl_watermarks=True)
    variant = OLD[wire_format] if seed in OF_TIFLOW else PLAIN[wire_format]
    changefeed = variant.changefeed(state.upstream, options, seed=seed)
    feed = Feed.of(spark, tmp_path, timezone=ZONE, wire_format=wire_format)
    records: list[CaptureRecord] = list(changefeed.tick())
    piece = len(records) // 3 + 1
    stamps = [c.commit_ts for c in state.upstream.history if isinstance(c, CommittedTransaction)]
    rng, before = random.Random(seed), None

    def assert_published(cut: Cut) -> None:
        rows = feed.rows_of(published_table(feed.lake, mirror) for mirror in cut.mirrors)
        assert rows == truth_rows(changefeed.truth(cut.tso))
        at = rng.randrange(stamps[0], cut.tso + 1)
        assert feed.rows_as_of(at) == truth_rows(changefeed.truth(at)), at

    with ThreadPoolExecutor(max_workers=1) as beside:
        for start in range(0, len(records), piece):
            feed.write(records[start : start + piece])
            syncing = beside.submit(feed.sync)
            if before is not None:
                assert_published(before)
            before = syncing.result().cut
    assert feed.cut.tso == changefeed.watermark_ts
    assert_published(feed.cut)
    for at in rng.sample(stamps, 2):
        assert feed.rows_as_of(at) == truth_rows(changefeed.truth(at)), at
