"""The three checks, judged on values; that Dagster records them is tested end to end."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from ticdc_assets import tso
from ticdc_assets.changelog.progress import GlobalWatermark
from ticdc_assets.config import CaptureSource, Changefeed
from ticdc_assets.defs.changefeeds import all_definitions
from ticdc_assets.defs.checks import judge_lag, judge_mirrors, judge_quarantine
from ticdc_assets.lake.cuts import Cut, HeldRows, MirrorCut
from ticdc_assets_tests.defs.small_shop import SmallShop

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
FEED = Changefeed(
    name="shop",
    wire_format="simple-json",
    timezone="UTC",
    source=CaptureSource(path=Path("/nowhere")),
    lag_warn_seconds=60,
    lag_error_seconds=600,
)


def at(seconds_ago: float) -> int:
    return tso.from_datetime(NOW - timedelta(seconds=seconds_ago))


def watermark(seconds_ago: float | None, *, waiting: tuple[tuple[str, int], ...] = ()) -> Any:
    return GlobalWatermark(
        watermark_ts=None if seconds_ago is None else at(seconds_ago),
        waiting=waiting,
        slowest=None if seconds_ago is None else ("shop", 1),
    )


def mirror(table: str = "orders", **changes: Any) -> MirrorCut:
    values: dict[str, Any] = {
        "mirror_id": "1",
        "database": "shop",
        "table": table,
        "table_id": 1,
        "version": 0,
        "rows": 3,
        "hidden": [],
        "schema": "{}",
        "floor_ts": 0,
        "digest": "",
        "held": 0,
        "quarantined": 0,
        "marks": [],
        "mode": "carried",
        "changes": 0,
        "unknown_deletes": 0,
    }
    return MirrorCut(**values | changes)


def cut(seconds_ago: float = 0, **changes: Any) -> Cut:
    values: dict[str, Any] = {
        "number": 1,
        "tso": at(seconds_ago),
        "published_at": NOW,
        "batch": 1,
        "mirrors": (mirror(),),
        "held": (),
        "quarantined": 0,
        "replays": 0,
        "late": 0,
        "steps_back": 0,
        "ignored": {},
    }
    return Cut(**values | changes)


# Lag --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds_ago", "level"),
    [
        (-6, "warn"),  # the upstream's clock is ahead by more than clocks are
        (-5, "passed"),
        (0, "passed"),
        (59.999, "passed"),
        (60, "warn"),
        (599.999, "warn"),
        (600, "error"),
        (1e6, "error"),
    ],
)
def test_lag_by_the_limits(seconds_ago: float, level: str) -> None:
    verdict = judge_lag(FEED, cut(seconds_ago), watermark(seconds_ago), NOW)
    assert verdict.level == level
    assert verdict.metadata["lag_seconds"].value == pytest.approx(seconds_ago, abs=0.001)


def test_a_small_lead_of_the_clock_is_no_negative_lag() -> None:
    assert judge_lag(FEED, cut(-3), watermark(-3), NOW).description == (
        "The mirrors are 0.0 s behind now."
    )


def test_a_clock_that_is_ahead_is_named() -> None:
    description = judge_lag(FEED, cut(-90), watermark(-90), NOW).description
    assert description.startswith("The newest cut is 90.0 s in the future")
    assert "NTP" in description


def test_no_cut_warns_and_says_which_partition_is_missing() -> None:
    verdict = judge_lag(FEED, None, watermark(None, waiting=(("shop", 2), ("shop", 3))), NOW)
    assert verdict.level == "warn"
    assert "no watermark has come from shop/2, shop/3" in verdict.description
    assert "nothing has landed" in judge_lag(FEED, None, watermark(None), NOW).description


def test_the_lag_says_whose_it_is() -> None:
    ours = judge_lag(FEED, cut(700), watermark(10), NOW).description
    assert "11.7 min behind now (limit 10.0 min)" in ours
    assert "A watermark 11.5 min newer has landed and was not applied" in ours
    theirs = judge_lag(FEED, cut(700), watermark(700), NOW).description
    assert "The newest landed watermark (from shop/1) is 11.7 min old itself" in theirs
    silent = judge_lag(FEED, cut(700), watermark(None, waiting=(("shop", 4),)), NOW).description
    assert "no watermark has come from shop/4" in silent


# Quarantine -------------------------------------------------------------------------------------


def fault(seconds_ago: float, reason: str = "invalid_json") -> dict[str, Any]:
    return {
        "stage": "decode",
        "reason": reason,
        "quarantined_at": NOW - timedelta(seconds=seconds_ago),
    }


def test_an_empty_quarantine_passes() -> None:
    verdict = judge_quarantine("shop", [], None)
    assert verdict.passed
    assert verdict.description == "Nothing new in quarantine, and nothing is open."


def test_what_was_never_looked_at_is_new() -> None:
    verdict = judge_quarantine("shop", [fault(5), fault(4), fault(4, "wrong_type")], None)
    assert verdict.level == "warn"
    assert verdict.description.startswith(
        "3 came into quarantine (invalid_json 2, wrong_type 1); 3 are open in all."
    )


def test_what_was_seen_is_open_and_not_new() -> None:
    rows = [fault(5), fault(4)]
    seen = datetime.fromisoformat(judge_quarantine("shop", rows, None).metadata["seen_until"].value)
    verdict = judge_quarantine("shop", rows, seen)
    assert verdict.passed
    assert verdict.description == "Nothing new in quarantine; 2 from before are still open."
    more = judge_quarantine("shop", [*rows, fault(3)], seen)
    assert (more.passed, more.metadata["new"].value, more.metadata["open"].value) == (False, 1, 3)


def test_what_comes_while_as_much_is_redriven_is_new_all_the_same() -> None:
    verdict = judge_quarantine("shop", [fault(1)], NOW - timedelta(seconds=2))
    assert not verdict.passed


def test_an_emptied_quarantine_keeps_what_it_has_seen() -> None:
    seen = NOW - timedelta(seconds=2)
    assert judge_quarantine("shop", [], seen).metadata["seen_until"].value == seen.isoformat()


# Completeness -----------------------------------------------------------------------------------


def test_complete_mirrors_pass() -> None:
    assert judge_mirrors("shop", cut()).passed
    assert judge_mirrors("shop", None).passed


def test_every_shortcoming_is_named() -> None:
    held = HeldRows(
        database="crm",
        table="visits",
        schema_version=7,
        mirror_id=None,
        rows=4,
        min_ts=at(100),
        since=NOW,
    )
    verdict = judge_mirrors(
        "shop",
        cut(
            mirrors=(
                mirror("a", held=2, quarantined=1),
                mirror("b", marks=["no_key"]),
                mirror("c"),
            ),
            held=(held,),
            quarantined=9,
        ),
    )
    assert verdict.level == "warn"
    assert (
        "shop.a (2 held, 1 quarantined), shop.b (no_key), crm.visits (4 held, no mirror yet), "
        "9 records that could not be decoded"
    ) in verdict.description


def test_many_shortcomings_are_counted() -> None:
    mirrors = tuple(mirror(f"t{number:02d}", held=1) for number in range(25))
    assert "shop.t19 (1 held) and 5 more" in judge_mirrors("shop", cut(mirrors=mirrors)).description


# In Dagster -------------------------------------------------------------------------------------


def test_checks_run_alone_on_an_empty_lake_and_start_no_spark(
    shop: SmallShop, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a check asked for Spark")

    monkeypatch.setattr("ticdc_assets.defs.resources.get_spark", refuse)
    definitions = all_definitions(shop.settings)
    job = dg.define_asset_job("checks", selection=dg.AssetSelection.all_asset_checks()).resolve(
        asset_graph=definitions.resolve_asset_graph()
    )
    result = job.execute_in_process(instance=instance)
    assert {item.check_name: item.passed for item in result.get_asset_check_evaluations()} == {
        "replication_lag": False,
        "quarantine_growth": True,
        "mirrors_complete": True,
        "row_checksums": True,
        "mirror_equals_rebuild": True,
    }
