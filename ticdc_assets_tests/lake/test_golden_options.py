"""Mirrors under the options of TiCDC's encoders: large messages, compression, checksums."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ticdc_assets.delta.control import read_rows
from ticdc_assets.delta.log_reading import commit_actions
from ticdc_assets.demo.simulator.encoders import encode
from ticdc_assets.log import checksums
from ticdc_assets.log.agreement import Agreement, Checksums
from ticdc_assets.log.change_statistics import read_statistics
from ticdc_assets.log.checksums import compare_new, read_checksums
from ticdc_assets.log.quarantine import read_quarantine
from ticdc_assets.model.events import Op, RowChange
from ticdc_assets.observe.status_reading import read_status
from ticdc_assets.observe.verdicts import Check, Level, Verdict
from ticdc_assets.rows.mirror_rows import PARTIAL
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets.wire.record import Record
from ticdc_assets_tests.changelog.test_fold_golden import assert_same_but_for_cut_rows
from ticdc_assets_tests.delta.libraries import opened
from ticdc_assets_tests.golden import Rows, Scenario, assert_same_rows, folded
from ticdc_assets_tests.lake.feeds import Feed
from ticdc_assets_tests.lake.golden_lakes import feed_of
from ticdc_assets_tests.lake.test_golden_mirrors import renumbered

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("option", ["open-lz4", "simple-avro-claim-check-raw", "craft-batch200"])
def test_the_mirrors_equal_the_truth(
    option: str, spark: SparkSession, tmp_path: Path, golden_dir: Callable[..., Path]
) -> None:
    scenario = Scenario(golden_dir("options", option))
    feed = feed_of(spark, tmp_path, scenario)
    feed.sync()
    assert_same_rows(feed.rows(), scenario.state(), variant=scenario.variant)
    assert not read_quarantine(feed.paths)


@pytest.mark.usefixtures("any_size")
def test_a_row_cut_to_its_key_keeps_what_is_known_and_is_marked(
    spark: SparkSession, tmp_path: Path, golden_dir: Callable[..., Path]
) -> None:
    scenario = Scenario(golden_dir("options", "canal-json-handle-key-only"))
    feed = feed_of(spark, tmp_path, scenario)
    pieces = 4
    for _ in range(pieces):
        feed.sync(max_records=len(scenario.records) // pieces + 1)
    modes = {mirror.mode for mirror in feed.cut.mirrors}
    assert "change" in modes
    found = feed.rows()
    cut = assert_same_but_for_cut_rows(scenario, found)
    reference = folded(scenario.events, scenario.end, scenario.timezone)
    assert nulls_left_out(found) == nulls_left_out(reference)
    for name, keys in cut.items():
        mirror = feed.mirror(*name)
        assert any("handle key alone" in caveat for caveat in mirror.caveats)
        rows = feed.read(*name).toArrow().to_pylist()
        marked = [row for row in rows if PARTIAL in dict(row["_rescued_data"] or ())]
        assert 0 < len(marked) <= len(keys)
        assert all(int(dict(row["_rescued_data"])[PARTIAL]) > 0 for row in marked)


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


def said(feed: Feed) -> Verdict:
    """Return what is said of the checksums now."""
    now = datetime.now(UTC)
    return read_status(feed.lake, now).verdicts[Check.ROW_CHECKSUMS]


def compare(feed: Feed) -> Checksums:
    compare_new(feed.lake, statistics=read_statistics(feed.paths))
    return read_checksums(feed.paths)


def test_checksums_agree_however_the_rows_come(
    spark: SparkSession, tmp_path: Path, golden_dir: Callable[..., Path]
) -> None:
    scenario = Scenario(golden_dir("options", "simple-avro-checksum"))
    feed = feed_of(spark, tmp_path, scenario)
    for _ in range(2):
        feed.sync(max_records=len(scenario.records) // 2 + 1)
        found = compare(feed)
    assert found.counts[Agreement.AGREES] == read_statistics(feed.paths).checksums > 0
    assert sum(found.counts.values()) == found.counts[Agreement.AGREES]
    assert said(feed).level is Level.OK
    assert compare(feed) == found
    # Batches that are new are added to what is there, and to its sums.
    rows = read_rows(feed.paths.checksums)
    assert len(rows) == 2
    assert sum(row["agrees"] for row in rows) == found.counts[Agreement.AGREES]
    added = commit_actions(feed.paths.checksums, opened(feed.paths.checksums).version())
    assert not any("remove" in action for action in added)


def test_a_row_that_is_not_what_its_checksum_says_is_found(
    spark: SparkSession,
    tmp_path: Path,
    golden_dir: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Schemas come last, so that all rows wait at first; one row has another value."""
    scenario = Scenario(golden_dir("options", "simple-json-checksum"))
    records = list(scenario.records)
    number, change = next(
        (number, event)
        for number, record in enumerate(records)
        for event in decode(WireFormat.SIMPLE_JSON, Record(key=None, value=record.value))
        if isinstance(event, RowChange) and event.op is Op.INSERT and event.checksum is not None
    )
    assert change.after is not None
    name = next(name for name, value in change.after.items() if value == str(value))
    changed = replace(change, after={**change.after, name: "7" + str(change.after[name])})
    (written,) = encode(WireFormat.SIMPLE_JSON, [changed])
    records[number] = replace(records[number], value=written.value)
    schemas = [record for record in records if b'"tableSchema"' in (record.value or b"")]
    rows = [record for record in records if record not in schemas]
    feed = Feed.of(spark, tmp_path, timezone=scenario.timezone)
    records = renumbered([*rows, *schemas])
    spans: list[tuple[int, int]] = []
    counted = checksums._compared

    def spied(*args: Any) -> dict[int, dict[str, Any]]:
        spans.append(args[2])
        return counted(*args)

    monkeypatch.setattr(checksums, "_compared", spied)
    half = len(rows) // 2
    for some in (records[:half], records[half : len(rows)]):
        feed.write(some)
        feed.sync()
        waiting = compare(feed)
    # Rows that wait are not compared again before there is a new schema.
    assert spans == [(1, 1), (2, 2)]
    assert waiting.counts[Agreement.WAITING] == read_statistics(feed.paths).checksums > 0
    assert said(feed).level is Level.OK
    feed.write(records[len(rows) :])
    feed.sync()
    found = compare(feed)
    assert spans[2:] == [(1, 3)]
    assert found.counts[Agreement.DISAGREES] == len(found.examples) == 1
    assert found.counts[Agreement.WAITING] == 0
    assert found.examples[0]["commit_ts"] == change.commit_ts
    assert said(feed).level is Level.FAIL
    assert "1 do not" in said(feed).sentence
