"""Mirrors of what TiCDC's real encoders sent equal what SELECT gave, however they are synced."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ticdc_assets.delta.control import read_rows
from ticdc_assets.log.quarantine import read_quarantine
from ticdc_assets.mirrors.standing import Outcome
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets_tests.golden import (
    FORMATS,
    LOST_BY_THE_FORMAT,
    THREE_OF_THE_SHOP,
    TYPES_OF_THE_SHOP,
    Rows,
    Scenario,
    assert_same_rows,
    folded,
    rows_last_changed_here,
)
from ticdc_assets_tests.lake.feeds import rows_of_tables, treat_as_large
from ticdc_assets_tests.lake.golden_lakes import GoldenLakes, feed_of, synced_in_steps

pytestmark = pytest.mark.spark


READ_AS_OF = {("simple-json", "types"), ("open", "shop"), ("canal-json", "shop")}
"""Where the earlier states are asked for again, after everything was applied."""


@pytest.mark.parametrize(
    ("variant", "name", "size"),
    [
        # The plain-Python fold meets all scenarios; these meet what the lake does besides.
        ("simple-json", "shop", "small"),
        ("simple-json", "types", "small"),
        *(
            (variant, "shop", "types small")
            for variant in ("simple-avro", "open", "canal-json", "canal-json-plain", "craft")
        ),
        ("canal-json", "shop-ddlwm", "types small"),
        ("simple-json", "types", "large"),
        ("open-updated", "shop", "three large"),
        *(
            pytest.param(variant, "shop", "small", marks=pytest.mark.slow)
            for variant in FORMATS
            if variant != "simple-json"
        ),
        *(
            pytest.param(variant, "shop-ddlwm", "small", marks=pytest.mark.slow)
            for variant in ("simple-json", "canal-json")
        ),
        *(
            pytest.param(variant, "shop", "large", marks=pytest.mark.slow)
            for variant in ("simple-json", "open-updated", "canal-json-plain")
        ),
    ],
)
def test_at_every_watermark_with_a_known_state(
    variant: str,
    name: str,
    size: str,
    golden_lakes: GoldenLakes,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables = {"three": THREE_OF_THE_SHOP, "types": TYPES_OF_THE_SHOP}.get(size.split()[0], ())
    plain = variant == "canal-json-plain"
    is_large = size.endswith("large")
    if not is_large:
        steps = golden_lakes.in_steps(variant, name, tables)
    else:
        treat_as_large(monkeypatch)
        scenario = golden_lakes.scenario(variant, name)
        steps = synced_in_steps(feed_of(spark, tmp_path, scenario, tables), scenario)
    scenario, feed = steps.scenario, steps.feed

    def state(at: int | None = None) -> Rows:
        rows = scenario.state(at)
        return rows_of_tables(rows, tables) if tables else rows

    earlier = [] if plain else scenario.earlier
    assert list(steps.rows) == list(dict.fromkeys([*earlier, scenario.end]))
    for at in earlier:
        assert_same_rows(steps.rows[at], state(at), variant=variant)
    assert feed.cut.tso == scenario.end
    assert_same_rows(steps.rows[scenario.end], state(), variant=variant)
    # Without commit ts there is one cut.
    assert ("change" in steps.modes) is not plain
    for at in scenario.earlier if (variant, name) in READ_AS_OF else []:
        assert_same_rows(feed.rows_as_of(at), state(at), variant=variant)
    again = feed.sync()
    assert again.outcome is Outcome.UNCHANGED
    lost, _ = LOST_BY_THE_FORMAT.get(variant, ({}, ""))
    for mirror in feed.cut.mirrors:
        columns = ", ".join(
            f"`{column}`" for column in lost.get((mirror.database, mirror.table), ())
        )
        known = ["no commit ts"] if plain else [f"FLOAT column(s) {columns}:"] if columns else []
        assert len(mirror.caveats) == len(known), mirror.caveats
        assert all(text in caveat for text, caveat in zip(known, mirror.caveats, strict=True))


def test_replays_in_pieces(
    spark: SparkSession, tmp_path: Path, golden_dir: Callable[..., Path]
) -> None:
    scenario = Scenario(golden_dir("simple-json", "shop-replay"))
    feed = feed_of(spark, tmp_path, scenario)
    for _ in range(7):
        feed.sync(max_records=len(scenario.records) // 7 + 1)
    assert feed.cut.tso == scenario.meta["final_ts"]
    assert_same_rows(feed.rows(), scenario.state())
    assert feed.cut.steps_back > 0


def test_from_the_middle(
    spark: SparkSession, tmp_path: Path, golden_dir: Callable[..., Path]
) -> None:
    scenario = Scenario(golden_dir("simple-json", "shop-middle"))
    feed = feed_of(spark, tmp_path, scenario)
    for _ in range(5):
        feed.sync(max_records=len(scenario.records) // 5 + 1)
    assert_same_rows(feed.rows(), rows_last_changed_here(scenario))
    assert not feed.cut.held
    assert sum(mirror.unknown_deletes for mirror in feed.cut.mirrors) > 0


def renumbered(records: list[CaptureRecord]) -> list[CaptureRecord]:
    """Return the records in this order, with offsets that fit it."""
    offsets = defaultdict[int, Iterator[int]](count)
    return [replace(record, offset=next(offsets[record.partition])) for record in records]


def test_corrupt_records_are_quarantined_and_nothing_else_is(
    spark: SparkSession, tmp_path: Path, golden_dir: Callable[..., Path]
) -> None:
    scenario = Scenario(golden_dir("simple-json", "corrupt"))
    feed = feed_of(spark, tmp_path, scenario)
    feed.sync()
    damaged = json.loads((scenario.folder / "damaged.json").read_text(encoding="utf-8"))
    wanted = {(item["partition"], item["offset"]) for item in damaged}
    rows = read_quarantine(feed.paths)
    # None of the bit flips of this set leaves a valid message.
    assert {(row["partition"], row["offset"]) for row in rows if row["stage"] == "decode"} == wanted
    assert all(row["reason"] and row["position"] and row["expected"] for row in rows)
    events = scenario.events
    assert feed.rows() == folded(events, feed.cut.tso, scenario.timezone)
    assert feed.cut.quarantined == len(wanted)
    landed = read_rows(feed.paths.change_groups)
    assert sum(row["rows"] for row in landed if row["kind"] == "row") == 1974
