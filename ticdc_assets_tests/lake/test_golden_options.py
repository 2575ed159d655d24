"""Mirrors under the options of TiCDC's encoders: large messages, compression, checksums."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ticdc_assets.config import ClaimCheck
from ticdc_assets.defs.checks import judge_checksums
from ticdc_assets.lake import folding, mirrors
from ticdc_assets.lake.checksums import Agreement, compare_new, read_checksums
from ticdc_assets.lake.decoding import read_groups
from ticdc_assets.lake.mirror_rows import PARTIAL
from ticdc_assets.lake.quarantine import read_quarantine
from ticdc_assets.lake.redriving import redrive
from ticdc_assets.lake.schema_tables import read_history
from ticdc_assets_tests.changelog.test_fold_golden import (
    folded,
    keys_of,
    keys_of_cut_rows,
    other_rows,
)
from ticdc_assets_tests.golden import Rows, Scenario, assert_same_rows
from ticdc_assets_tests.lake.feeds import Feed

pytestmark = pytest.mark.spark


def feed_of(
    spark: SparkSession, folder: Path, scenario: Scenario, claim_check: ClaimCheck | None = None
) -> Feed:
    return Feed.of(
        spark,
        folder,
        capture=scenario.capture,
        timezone=scenario.timezone,
        wire_format=scenario.wire_format,
        compression=scenario.compression,
        claim_check=claim_check or scenario.claim_check,
    )


@pytest.mark.parametrize("option", ["open-lz4", "simple-avro-claim-check-raw", "craft-batch200"])
def test_the_mirrors_equal_the_truth(
    option: str, spark: SparkSession, tmp_path: Path, golden_dir: Callable[..., Path]
) -> None:
    scenario = Scenario(golden_dir("options", option))
    feed = feed_of(spark, tmp_path, scenario)
    feed.sync()
    assert_same_rows(feed.rows(), scenario.state(), variant=scenario.variant)
    assert not read_quarantine(feed.paths)


@pytest.mark.parametrize("size", ["small", "large"])
def test_a_row_cut_to_its_key_keeps_what_is_known_and_is_marked(
    size: str,
    spark: SparkSession,
    tmp_path: Path,
    golden_dir: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if size == "large":
        monkeypatch.setattr(folding, "LOCAL_ROWS", -1)
        monkeypatch.setattr(mirrors, "SMALL_MIRROR_ROWS", 0)
    scenario = Scenario(golden_dir("options", "canal-json-handle-key-only"))
    feed = feed_of(spark, tmp_path, scenario)
    pieces = 4
    for _ in range(pieces):
        feed.sync(max_records=len(scenario.records) // pieces + 1)
    modes = {mirror.mode for mirror in feed.cut.mirrors}
    assert size == "small" or "merge" in modes
    events = scenario.events
    cut, found, wanted = keys_of_cut_rows(scenario, events), feed.rows(), scenario.state()
    assert keys_of(scenario, found) == keys_of(scenario, wanted)
    assert_same_rows(
        other_rows(scenario, found, cut),
        other_rows(scenario, wanted, cut),
        variant=scenario.variant,
    )
    reference = folded(events, scenario.end, scenario.timezone)
    assert nulls_left_out(found) == nulls_left_out(reference)
    for name, keys in cut.items():
        mirror = feed.cut.mirror(*name)
        assert mirror is not None
        assert any("handle key alone" in mark for mark in mirror.marks)
        rows = feed.read(*name).toArrow().to_pylist()
        marked = [row for row in rows if PARTIAL in dict(row["_ticdc_extra"] or ())]
        assert 0 < len(marked) <= len(keys)
        assert all(int(dict(row["_ticdc_extra"])[PARTIAL]) > 0 for row in marked)


def nulls_left_out(rows: Rows) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return rows without NULLs: a column nobody sent is NULL in a mirror, absent in the fold."""
    return {
        name: sorted(
            (
                {column: value for column, value in json.loads(text).items() if value is not None}
                for text in texts
            ),
            key=repr,
        )
        for name, texts in rows.items()
        if texts
    }


def test_large_rows_whose_file_is_missing_are_quarantined_and_redriven(
    spark: SparkSession, tmp_path: Path, golden_dir: Callable[..., Path]
) -> None:
    scenario = Scenario(golden_dir("options", "open-claim-check"))
    storage = tmp_path / "storage"
    storage.mkdir()
    feed = feed_of(spark, tmp_path, scenario, ClaimCheck(location=str(storage), raw_value=False))
    feed.sync()
    waiting = read_quarantine(feed.paths)
    assert {row["reason"] for row in waiting} == {"claim_check_missing"}
    assert feed.cut.quarantined == len(waiting) > 0
    for file in (scenario.folder / "claim-check").iterdir():
        (storage / file.name).write_bytes(file.read_bytes())
    done = redrive(spark, feed.paths, feed.changefeed)
    assert (done.decoded, done.still_quarantined) == (len(waiting), 0)
    feed.sync()
    assert feed.cut.quarantined == 0
    assert_same_rows(feed.rows(), scenario.state(), variant=scenario.variant)


@pytest.mark.parametrize("variant", ["simple-json", "simple-avro"])
def test_checksums_agree_and_a_damaged_one_is_found(
    variant: str, spark: SparkSession, tmp_path: Path, golden_dir: Callable[..., Path]
) -> None:
    scenario = Scenario(golden_dir("options", f"{variant}-checksum"))
    feed = feed_of(spark, tmp_path, scenario)

    def compare() -> None:
        compare_new(
            spark,
            feed.paths,
            feed.changefeed,
            groups=read_groups(feed.paths),
            history=read_history(feed.paths),
        )

    half = len(scenario.records) // 2
    for _ in range(2):
        feed.sync(max_records=half + 1)
        compare()
    checksums = read_checksums(feed.paths)
    assert checksums.counts[Agreement.AGREES] == read_groups(feed.paths).checksums > 0
    assert sum(checksums.counts.values()) == checksums.counts[Agreement.AGREES]
    assert judge_checksums(checksums).passed
    compare()
    assert read_checksums(feed.paths) == checksums
