"""Histories: what the lake keeps is what the plain-Python reference says, in pieces or at once."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ticdc_assets.changelog.history_fold import RowVersion, fold_history
from ticdc_assets.config import TableChoice
from ticdc_assets.lake import history, history_rows
from ticdc_assets.lake.cuts import MirrorCut
from ticdc_assets.lake.history import history_rows as read_rows
from ticdc_assets.lake.history_rows import HistoryLayout
from ticdc_assets.lake.mirror_rows import MirrorLayout, canonical_rows
from ticdc_assets_tests.golden import Rows, Scenario, comparable
from ticdc_assets_tests.lake.feeds import Feed

pytestmark = pytest.mark.spark


def with_history(feed: Feed, *patterns: str) -> Feed:
    return replace(feed, changefeed=replace(feed.changefeed, history=TableChoice(patterns)))


def kept(feed: Feed, mirror: MirrorCut) -> Counter[str]:
    """Return the versions in a history as comparable texts."""
    schema = mirror.table_schema
    layout = HistoryLayout(schema=schema)
    table = read_rows(feed.spark, feed.paths, mirror).toArrow().combine_chunks()
    assert table.num_rows == mirror.history_rows
    own = table.select([layout.valid_from, layout.valid_to, layout.op, layout.ended_by]).to_pylist()
    found: Counter[str] = Counter()
    rows = (
        row
        for batch in table.to_batches()
        for row in canonical_rows(batch, MirrorLayout(schema=schema), feed.changefeed.timezone)
    )
    for row, values in zip(rows, own, strict=True):
        text = comparable({name: row[name] for name in row if name not in mirror.hidden})
        found[json.dumps([text, *values.values()])] += 1
    return found


def wanted(versions: list[RowVersion], mirror: MirrorCut) -> Counter[str]:
    """Return the versions of the reference as comparable texts."""
    columns = [column.name for column in mirror.table_schema.columns]
    shown = [name for name in columns if name not in mirror.hidden]
    found: Counter[str] = Counter()
    for item in versions:
        text = comparable({name: item.row.get(name) for name in shown})
        found[json.dumps([text, item.valid_from, item.valid_to, item.op, item.ended_by])] += 1
    return found


def assert_as_the_reference(feed: Feed, scenario: Scenario) -> None:
    reference = fold_history(scenario.events, feed.cut.tso, scenario.timezone)
    assert {(item.database, item.table) for item in feed.cut.mirrors} == set(reference)
    for mirror in feed.cut.mirrors:
        name = (mirror.database, mirror.table)
        found, versions = kept(feed, mirror), wanted(reference[name], mirror)
        assert found == versions, (
            f"{name}: {sum((versions - found).values())} missing, first "
            f"{next(iter(versions - found), None)}; {sum((found - versions).values())} too many, "
            f"first {next(iter(found - versions), None)}"
        )


def rows_at(feed: Feed, tso: int | None) -> Rows:
    """Return what the histories say of a cut; of the newest one without a TSO."""
    rows: Rows = {}
    for mirror in feed.cut.mirrors:
        found: Counter[str] = Counter()
        for text, count in kept(feed, mirror).items():
            row, valid_from, valid_to, _, _ = json.loads(text)
            if valid_to is None if tso is None else (valid_from <= tso < (valid_to or tso + 1)):
                found[row] += count
        if found:
            rows[mirror.database, mirror.table] = found
    return rows


@pytest.mark.parametrize(("variant", "cuts"), [("simple-json", 3)])
def test_a_history_kept_in_pieces_is_what_the_reference_says(
    variant: str,
    cuts: int,
    spark: SparkSession,
    tmp_path: Path,
    golden_dir: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also by a MERGE, which small histories are spared."""
    monkeypatch.setattr(history, "SMALL_HISTORY_ROWS", 20)
    scenario = Scenario(golden_dir(variant, "shop"))
    feed = with_history(
        Feed.of(
            spark,
            tmp_path,
            capture=scenario.capture,
            timezone=scenario.timezone,
            wire_format=scenario.wire_format,
        ),
        "*.*",
    )
    size = len(scenario.records) // cuts + 1
    for _ in range(cuts):
        feed.sync(max_records=size)
    assert_as_the_reference(feed, scenario)
    assert rows_at(feed, None) == feed.rows()
