"""The checks, judged on values; that Dagster records them is tested end to end."""

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from ticdc_assets.config import Changefeed, CheckLimits
from ticdc_assets.log.cuts import Cut
from ticdc_assets.log.faults import Faults
from ticdc_assets.model.schemas import ColumnSchema, IndexSchema, TableSchema, schema_to_json
from ticdc_assets.observe.judging import judge, judge_table
from ticdc_assets.observe.status import Ending, Status, TopicStatus
from ticdc_assets.observe.table_status import table_statuses
from ticdc_assets.observe.verdicts import Check, Level
from ticdc_assets.orchestration.changefeeds import all_definitions
from ticdc_assets.orchestration.verdicts import (
    CheckVerdict,
    check_verdict,
    judge_keys,
    judge_source,
    quarantine_verdict,
)
from ticdc_assets.repair.comparing import RowCounts, RowDifference, RowFinding
from ticdc_assets.repair.diffing import DiffedTable, SourceDifference
from ticdc_assets.repair.verifying import KeyCounts, RepeatedKeys
from ticdc_assets_tests.orchestration.small_shop import SmallShop
from ticdc_assets_tests.statuses import NOW_MS, ago, at, changefeed, cut, held, mirror, status

FEED = changefeed(Path("/nowhere"), lag_warn_seconds=60, lag_error_seconds=600)


def said(check: Check, feed: Changefeed, seen: Status) -> CheckVerdict:
    """Return what a check says of a status by the limits of a changefeed."""
    return check_verdict(check, replace(seen, verdicts=judge(feed, seen)))


def judge_lag(feed: Changefeed, seen: Status) -> CheckVerdict:
    return said(Check.REPLICATION_LAG, feed, seen)


def judge_watermark(feed: Changefeed, seen: Status) -> CheckVerdict:
    return said(Check.WATERMARK_PROGRESS, feed, seen)


def judge_conflicts(conflicts: list[dict[str, Any]]) -> CheckVerdict:
    return said(Check.SCHEMA_CONFLICTS, FEED, status(conflicts=tuple(conflicts)))


def judge_mirrors(made: Cut) -> CheckVerdict:
    seen = replace(status(), cut=made, tables=table_statuses(made, [], NOW_MS))
    return said(Check.MIRRORS_COMPLETE, FEED, seen)


# Lag --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds_ago", "level"),
    [
        (-6, Level.WARN),  # the upstream's clock is ahead by more than clocks are
        (-5, Level.OK),
        (0, Level.OK),
        (59.999, Level.OK),
        (60, Level.WARN),
        (599.999, Level.WARN),
        (600, Level.FAIL),
        (1e6, Level.FAIL),
    ],
)
def test_lag_by_the_limits(seconds_ago: float, level: Level) -> None:
    verdict = judge_lag(FEED, status(seconds_ago, seconds_ago))
    assert verdict.level == level
    assert verdict.metadata["lag_seconds"] == pytest.approx(max(0, seconds_ago), abs=0.001)


def test_a_clock_that_is_ahead_is_named_and_a_small_lead_is_no_negative_lag() -> None:
    assert judge_lag(FEED, status(-3, -3)).sentence == (
        "The mirrors are 0.0 s behind now: source to Kafka 0.0 s, Kafka to raw_messages 0.0 s, "
        "raw_messages to mirrors 0.0 s."
    )
    description = judge_lag(FEED, status(-90, -90)).sentence
    assert description.startswith("The newest cut is 90.0 s in the future")
    assert "NTP" in description


def test_no_cut_warns_and_says_which_partition_is_missing() -> None:
    verdict = judge_lag(FEED, status(None, None, waiting=(("shop", 2), ("shop", 3))))
    assert verdict.level is Level.WARN
    assert "no watermark has arrived from shop/2, shop/3" in verdict.sentence
    assert "nothing has landed" in judge_lag(FEED, status(None, None)).sentence
    held_back = judge_lag(FEED, status(None, 10)).sentence
    assert "the global watermark is 2026-11-21 11:59:50 UTC (TSO " in held_back


def test_the_lag_says_where_most_of_it_is_and_what_to_do() -> None:
    ours = judge_lag(FEED, status(700, 10)).sentence
    assert "11.7 min behind now (limit 10.0 min): source to Kafka 10.0 s, Kafka" in ours
    assert "Most of it has landed and is not applied yet. Check the syncs of shop" in ours
    undecoded = judge_lag(FEED, status(700, 10, landed_batch=5)).sentence
    assert "not applied yet, 2 landed batches are not decoded" in undecoded
    kafka = judge_lag(FEED, status(700, 690, waiting_since=650)).sentence
    assert (
        "source to Kafka 40.0 s, Kafka to raw_messages 10.8 min, raw_messages to mirrors" in kafka
    )
    assert "records wait to be landed. Check whether anything syncs" in kafka
    theirs = judge_lag(FEED, status(700, 700)).sentence
    assert "before Kafka: the newest landed watermark (from shop/1) is old" in theirs
    silent = judge_lag(FEED, status(700, None, waiting=(("shop", 4),))).sentence
    assert "no watermark has arrived from shop/4" in silent


def test_the_worst_table_is_named_where_it_is_worse_than_the_cut() -> None:
    behind = status(10, 10, cut_changes={"held": (held(300),)})
    verdict = judge_lag(FEED, behind)
    assert verdict.level is Level.OK
    assert (
        "The worst table, crm.visits, is complete only up to 10.0 min ago (4 held, no mirror yet)."
        in (verdict.sentence)
    )
    assert verdict.metadata["worst_table_lag_seconds"] == 600.0
    assert "worst" not in judge_lag(FEED, status(10, 10)).sentence


# The watermark ----------------------------------------------------------------------------------


def times(newest_ago: float | None, first_watermark_ago: float | None = 1e5) -> dict[str, Any]:
    newest = None if newest_ago is None else at(newest_ago)
    first = None if first_watermark_ago is None else at(first_watermark_ago)
    return {"oldest_change": newest, "newest_change": newest, "first_watermark": first}


@pytest.mark.parametrize(
    ("beyond", "level"),
    [(-10, Level.OK), (0, Level.OK), (299.999, Level.OK), (300, Level.WARN), (900, Level.FAIL)],
)
def test_a_watermark_that_rows_run_away_from(beyond: float, level: Level) -> None:
    verdict = judge_watermark(FEED, status(1000, 1000, **times(1000 - beyond)))
    assert verdict.level == level
    assert verdict.metadata["rows_beyond_seconds"] == max(0.0, beyond)
    assert ("The slowest partition is shop/1." in verdict.sentence) is (level is not Level.OK)


def test_the_limits_are_those_of_the_changefeed() -> None:
    feed = replace(FEED, checks=CheckLimits(stuck_warn_seconds=5, stuck_error_seconds=6))
    assert judge_watermark(feed, status(10, 10, **times(6))).level is Level.OK
    assert judge_watermark(feed, status(10, 10, **times(5))).level is Level.WARN
    assert judge_watermark(feed, status(10, 10, **times(4))).level is Level.FAIL


def test_a_watermark_that_never_came_is_measured_from_the_first_change() -> None:
    waiting = (("shop", 0), ("shop", 3))
    changes = {"oldest_change": at(2000), "newest_change": at(1000), "first_watermark": None}
    seen = status(None, None, waiting=waiting, **changes)
    verdict = judge_watermark(FEED, seen)
    assert verdict.level is Level.FAIL
    assert "No watermark has arrived from shop (partitions 0, 3)." in verdict.sentence
    young = replace(seen, oldest_change=at(9), newest_change=at(1))
    assert judge_watermark(FEED, young).level is Level.OK
    assert "no watermark has arrived from shop/0" in judge_watermark(FEED, young).sentence


def test_a_watermark_that_moves_while_nothing_comes() -> None:
    limit = FEED.checks.quiet_warn_seconds
    assert limit is not None
    started = status(10, 10, **times(1e6, 100))
    assert judge_watermark(FEED, started).level is Level.OK, "nobody knows of the time before"
    quiet = status(10, 10, **times(10 + limit, 1e6))
    verdict = judge_watermark(FEED, quiet)
    assert verdict.level is Level.WARN
    assert "no row and no DDL arrived for 24.0 h" in verdict.sentence
    assert judge_watermark(FEED, replace(quiet, **times(9 + limit, 1e6))).level is Level.OK
    never = status(10, 10, **times(None, 10 + limit))
    assert judge_watermark(FEED, never).level is Level.WARN
    endless = replace(FEED, checks=CheckLimits(quiet_warn_seconds=None))
    assert judge_watermark(endless, quiet).level is Level.OK


def test_a_source_without_watermarks_and_an_empty_one_pass() -> None:
    assert judge_watermark(FEED, status(1e6, None, es_only=True)).level is Level.OK
    assert judge_watermark(FEED, status(None, None, **times(None, None))).level is Level.OK


def test_many_topics_are_shown_slowest_first() -> None:
    topics = tuple(
        TopicStatus(topic=f"t{n}", state="live", partitions=1, backlog=0, watermark_ts=at(n))
        for n in range(30)
    )
    shown: Any = judge_watermark(FEED, status(0, 0, topics=topics)).metadata["topics"]
    assert [record.data["topic"] for record in shown.records][:2] == ["t29", "t28"]
    assert len(shown.records) == 20


# Held rows --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "level"),
    [(0, Level.OK), (599, Level.OK), (600, Level.WARN), (3599, Level.WARN), (3600, Level.FAIL)],
)
def test_held_rows_by_their_age(seconds: float, level: Level) -> None:
    rows = (held(1, "new"), held(seconds))
    verdict = said(Check.HELD_ROWS, FEED, status(10, 10, cut_changes={"held": rows}))
    assert verdict.level == level
    assert verdict.metadata["held"] == 8
    waits = "wait for a table of this name, or schema version 7, for "
    assert f"crm.visits (4 rows {waits}" in verdict.sentence
    assert ("send-bootstrap-interval-in-sec" in verdict.sentence) is (level is not Level.OK)


def test_nothing_held_passes() -> None:
    assert said(Check.HELD_ROWS, FEED, status(None, None)).level is Level.OK
    nothing = said(Check.HELD_ROWS, FEED, status(5, 5))
    assert nothing.sentence == "No row waits for its schema or for its table."


# Schemas ----------------------------------------------------------------------------------------


def claim(*columns: ColumnSchema) -> str:
    key = IndexSchema(name="primary", unique=True, primary=True, nullable=False, columns=("id",))
    schema = TableSchema(
        database="shop", table="orders", table_id=1, version=7, columns=columns, indexes=(key,)
    )
    return json.dumps(schema_to_json(schema))


def conflict(claimed: str | None, **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "database": "shop",
        "table": "orders",
        "schema_version": 7,
        "registered_source": "DDL tableSchema",
        "registered": claim(ID, PRICE),
        "claimed_source": "BOOTSTRAP",
        "claimed": claimed,
        "topic": "shop",
        "partition": 1,
        "offset": 9,
        "index": 0,
    }
    return values | changes


ID = ColumnSchema(name="id", mysql_type="bigint", nullable=False)
PRICE = ColumnSchema(name="price", mysql_type="int", nullable=False)


def test_conflicts_tell_both_claims() -> None:
    assert judge_conflicts([]).level is Level.OK
    wide = replace(PRICE, mysql_type="decimal", length=10, decimal=2)
    verdict = judge_conflicts([conflict(claim(ID, wide))])
    assert verdict.level is Level.WARN
    assert (
        "shop.orders at version 7, DDL tableSchema -> BOOTSTRAP: price: int -> decimal(10,2)"
    ) in verdict.sentence
    assert verdict.metadata["conflicts"] == 1
    missing = judge_conflicts([conflict(claim(ID))]).sentence
    assert "BOOTSTRAP: price dropped" in missing
    assert "BOOTSTRAP: no schema" in judge_conflicts([conflict(None)]).sentence
    many = judge_conflicts([conflict(claim(ID), offset=n) for n in range(23)])
    assert "and 3 more" in many.sentence


# Keys -------------------------------------------------------------------------------------------


def test_keys_that_are_there_twice_are_named() -> None:
    counts = KeyCounts(cut=3, tso=at(0), mirrors=2, without_key=1, rows=7, repeated=())
    assert judge_keys(None).level is Level.OK
    assert judge_keys(counts).sentence == (
        "Every mirror has each key once: 7 rows of 2 mirrors; 1 without a key cannot be checked."
    )
    examples = ({"id": "1", "region": None}, 2), ({"id": "2", "region": "n"}, 3)
    repeated = RepeatedKeys(database="shop", table="orders", keys=6, examples=examples)
    verdict = judge_keys(replace(counts, repeated=(repeated,)))
    assert verdict.level is Level.FAIL
    assert (
        "shop.orders: (id=1, region=NULL) 2 times, (id=2, region=n) 3 times and 4 more."
    ) in verdict.sentence
    assert verdict.metadata["repeated_keys"] == 6


# Quarantine -------------------------------------------------------------------------------------


def fault(seconds_ago: float, reason: str = "invalid_json") -> Faults:
    return Faults(stage="decode", reason=reason, since=ago(seconds_ago))


def test_what_was_never_looked_at_is_new() -> None:
    verdict = quarantine_verdict("shop", [], None)
    assert verdict.level is Level.OK
    assert verdict.sentence == "Nothing new in quarantine, and nothing is open."
    verdict = quarantine_verdict("shop", [fault(5), fault(4), fault(4, "wrong_type")], None)
    assert verdict.level is Level.WARN
    assert verdict.sentence.startswith(
        "3 new in quarantine (invalid_json 2, wrong_type 1); open in total: 3."
    )


def test_what_was_seen_is_open_and_not_new() -> None:
    rows = [fault(5), fault(4)]
    seen = datetime.fromisoformat(quarantine_verdict("shop", rows, None).metadata["seen_until"])
    verdict = quarantine_verdict("shop", rows, seen)
    assert verdict.level is Level.OK
    assert verdict.sentence == "Nothing new in quarantine; 2 older ones are still open."
    more = quarantine_verdict("shop", [*rows, fault(3)], seen)
    assert (more.level is Level.OK, more.metadata["new"], more.metadata["open"]) == (False, 1, 3)
    # What comes while as much is redriven is new all the same, and an empty quarantine forgets
    # nothing.
    assert quarantine_verdict("shop", [fault(1)], ago(2)).level is not Level.OK
    emptied = quarantine_verdict("shop", [], ago(2))
    assert emptied.metadata["seen_until"] == ago(2).isoformat()
    # A key without a value, and a table without a row, say nothing.
    assert quarantine_verdict("shop", [], None).metadata == {"open": 0, "new": 0}


def test_a_table_that_lacks_changes_at_the_end_is_measured_from_it() -> None:
    made = cut(3600, mirrors=(mirror(held=1),))
    (table,) = table_statuses(made, [], NOW_MS - 3_600_000)
    seen = replace(status(), cut=made, ending=Ending(tso=at(3600), has_rest=False))
    verdict = judge_table(FEED, seen, table)
    assert verdict.level is Level.WARN
    assert verdict.sentence == "The table is complete up to 0.0 s before the end: 1 held."


# Completeness -----------------------------------------------------------------------------------


def test_every_shortcoming_is_named() -> None:
    mirrors = (mirror("a", held=2, quarantined=1), mirror("b", caveats=["no_key"]), mirror("c"))
    verdict = judge_mirrors(cut(mirrors=mirrors, held=(held(50),), quarantined=9))
    assert verdict.level is Level.WARN
    assert (
        "shop.a (2 held, 1 quarantined), crm.visits (4 held, no mirror yet), no_key (shop.b), "
        "9 records that could not be decoded"
    ) in verdict.sentence
    mirrors = tuple(mirror(f"t{number:02d}", held=1) for number in range(25))
    assert "shop.t19 (1 held) and 5 more" in judge_mirrors(cut(mirrors=mirrors)).sentence


# In Dagster -------------------------------------------------------------------------------------


def test_checks_run_alone_on_an_empty_lake_and_start_no_spark(
    shop: SmallShop, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a check asked for Spark")

    monkeypatch.setattr("ticdc_assets.spark.session.get_spark", refuse)
    definitions = all_definitions(shop.settings)
    job = dg.define_asset_job("checks", selection=dg.AssetSelection.all_asset_checks()).resolve(
        asset_graph=definitions.resolve_asset_graph()
    )
    result = job.execute_in_process(instance=instance)
    passed = dict.fromkeys(Check, True) | {Check.REPLICATION_LAG: False}
    others = ("lake_readable", "keys_unique", "mirror_equals_rebuild", "snapshot_complete")
    found = {item.check_name: item.passed for item in result.get_asset_check_evaluations()}
    assert found == passed | dict.fromkeys(others, True)


def test_a_row_without_a_value_in_its_key_is_told_with_null() -> None:
    found = RowDifference(finding=RowFinding.MISSING, key={"id": None, "name": "None"})
    counts = RowCounts(missing=1)
    table = DiffedTable(
        database="shop", table="t", rows=0, exported=1, counts=counts, examples=(found,)
    )
    verdict = judge_source(SourceDifference(changefeed="shop", tso=1, tables=(table,), excluded=0))
    rows: Any = verdict.metadata["rows"]
    assert [row.data["key"] for row in rows.records] == ["id=NULL, name=None"]
