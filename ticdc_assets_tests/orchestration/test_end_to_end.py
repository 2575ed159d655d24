"""Real runs over a small capture: Dagster's own records of them, and what callers get back."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterRunStatus

from ticdc_assets.base.errors import ConfigError, LandingGapError, SourceUnavailableError
from ticdc_assets.log.cuts import read_cuts
from ticdc_assets.mirrors.standing import Outcome
from ticdc_assets.orchestration.instance import open_instance
from ticdc_assets.orchestration.metadata import utc_now
from ticdc_assets.orchestration.run import run_redrive, run_sync
from ticdc_assets.orchestration.sensors import tick
from ticdc_assets.orchestration.steps import steps_of
from ticdc_assets_tests.orchestration.small_shop import (
    ODD,
    ORDERS,
    SmallShop,
    materializations,
    recorded,
    skipped,
    values,
)

pytestmark = pytest.mark.dagster

APPLY = dg.AssetKey(["shop", "apply_changes"])


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> SmallShop:
    return SmallShop(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def instance(shop: SmallShop) -> Iterator[dg.DagsterInstance]:
    """The instance that a user of that lake has; the tests of this module go on from each other."""
    with open_instance(shop.settings) as instance:
        yield instance


def asked(shop: SmallShop, instance: dg.DagsterInstance) -> dg.SensorResult:
    """Return what the sensor would do now."""
    with dg.build_sensor_context(instance=instance) as context:
        return tick(context, steps_of(shop.settings, shop.changefeed), utc_now())


def test_a_sync_is_a_run_with_everything_in_it(
    shop: SmallShop, instance: dg.DagsterInstance
) -> None:
    shop.create_tables()
    shop.insert(ORDERS, 5)
    shop.insert(ODD, 2)
    sent = shop.send()
    assert asked(shop, instance).run_requests

    report = run_sync(shop.settings, "shop", instance=instance)

    assert (report.landing.records, report.landing.backlog) == (sent, 0)
    assert report.decoding.changes["row"] == 7
    assert report.applying.outcome is Outcome.PUBLISHED
    assert {check.check_name: check.passed for check in report.checks} == {
        "replication_lag": True,
        "watermark_progress": True,
        "held_rows": True,
        "schema_conflicts": True,
        "quarantine_growth": True,
        "mirrors_complete": True,
        "changes_accounted": True,
        "lake_readable": True,
        "row_checksums": True,
    }
    run = recorded(instance, report.run_id)
    assert run.status is DagsterRunStatus.SUCCESS
    assert run.job_name == "shop_sync"
    assert run.tags["ticdc/changefeed"] == "shop"

    made = {
        table: values(*materializations(instance, shop.names.mirror(*table)))
        for table in (ORDERS, ODD)
    }
    orders, odd = made[ORDERS], made[ODD]
    assert (odd["database"], odd["table"], odd["rows"]) == (*ODD, 2)
    cut = read_cuts(shop.paths)[-1]
    mirror = cut.mirror(*ORDERS)
    assert mirror is not None
    assert orders["rows"] == orders["dagster/row_count"] == orders["changes"] == 5
    assert (orders["mode"], orders["applied_ts"]) == ("fold", str(cut.tso))
    assert (orders["held"], orders["quarantined"], orders["caveats"]) == (0, 0, "none")
    assert orders["path"] == str(mirror.path(shop.paths))
    assert 0 <= orders["lag_seconds"] < 600
    columns = {column.name: column for column in orders["dagster/column_schema"].columns}
    assert columns["price"].type == "decimal(10,2)"
    assert columns["placed"].description == "datetime(3) upstream; from change_log.after"
    assert columns["id"].description == "int upstream; part of the key; from change_log.after"
    assert columns["id"].constraints.unique
    assert not columns["id"].constraints.nullable

    registered = materializations(instance, dg.AssetKey(["shop", "schema_registry"]))
    assert [values(event)["schema_versions"] for event in registered] == [2]
    (applied,) = map(values, materializations(instance, APPLY))
    assert (applied["outcome"], applied["reason"]) == ("published", report.applying.reason)
    assert (applied["rows"], applied["held"], applied["quarantined"]) == (7, 0, 0)
    landed = materializations(instance, dg.AssetKey(["shop", "raw_messages"]))[-1].metadata
    assert landed["records"].value == sent
    offsets = landed["offsets"]
    assert [record.data["backlog"] for record in offsets.records] == [0, 0]
    assert sum(record.data["end"] for record in offsets.records) == sent


def test_the_same_sync_again_changes_nothing(shop: SmallShop, instance: dg.DagsterInstance) -> None:
    cuts = read_cuts(shop.paths)
    mirrors = materializations(instance, shop.names.mirror(*ORDERS))
    assert skipped(asked(shop, instance)).startswith("nothing to do: landed ")

    report = run_sync(shop.settings, "shop", instance=instance)

    assert report.landing.records == 0
    assert report.applying.outcome is Outcome.UNCHANGED
    assert read_cuts(shop.paths) == cuts
    assert len(materializations(instance, shop.names.mirror(*ORDERS))) == len(mirrors)
    last = values(materializations(instance, APPLY)[-1])
    assert (last["outcome"], last["reason"]) == ("unchanged", report.applying.reason)


def test_only_what_changed_is_reported(shop: SmallShop, instance: dg.DagsterInstance) -> None:
    before = len(materializations(instance, shop.names.mirror(*ORDERS)))
    shop.insert(ORDERS, 3)

    report = shop.sync(instance)

    (newest,) = materializations(instance, shop.names.mirror(*ORDERS))[before:]
    assert values(newest)["rows"] == 8
    assert len(materializations(instance, shop.names.mirror(*ODD))) == 1
    assert report.applying.cut is not None
    behind = run_sync(
        shop.settings, "shop", until=report.applying.cut.tso - 1, instance=instance
    ).applying
    assert behind.outcome is Outcome.AHEAD
    assert values(materializations(instance, APPLY)[-1])["outcome"] == "ahead"


def test_quarantine_grows_once_and_a_redrive_says_what_stays(
    shop: SmallShop, instance: dg.DagsterInstance
) -> None:
    shop.send_damage()

    grown = shop.sync(instance)
    checks = {check.check_name: check for check in grown.checks}
    assert grown.decoding.quarantined == 1
    assert not checks["quarantine_growth"].passed
    assert checks["quarantine_growth"].severity.value == "WARN"
    assert "1 new in quarantine" in str(checks["quarantine_growth"].description)
    assert not checks["mirrors_complete"].passed

    redriven = run_redrive(shop.settings, "shop", instance=instance)
    assert recorded(instance, redriven.run_id).job_name == "shop_redrive"
    assert (redriven.redriving.records, redriven.redriving.still_quarantined) == (1, 1)
    checks = {check.check_name: check for check in redriven.checks}
    assert "keys_unique" not in checks
    assert checks["quarantine_growth"].passed
    assert "1 older one is still open" in str(checks["quarantine_growth"].description)
    log = values(materializations(instance, dg.AssetKey(["shop", "decode_messages"]))[-1])
    assert (log["redriven"], log["redriven_still_quarantined"]) == (1, 1)


def test_errors_of_a_step_come_out_as_they_are(
    shop: SmallShop, instance: dg.DagsterInstance
) -> None:
    with pytest.raises(ConfigError, match="until: expected a TSO"):
        run_sync(shop.settings, "shop", until=-1, instance=instance)

    away = shop.capture.with_suffix(".away")
    shop.capture.rename(away)
    with pytest.raises(SourceUnavailableError, match="cannot be read"):
        run_sync(shop.settings, "shop", instance=instance)
    lines = away.read_bytes().splitlines(keepends=True)
    shop.capture.write_bytes(b"".join(lines[: len(lines) // 2]))
    with pytest.raises(LandingGapError, match="the source ends before it"):
        run_sync(shop.settings, "shop", instance=instance)
    failed = instance.get_runs(limit=1)[0]
    assert failed.status is DagsterRunStatus.FAILURE
    (failure,) = [
        event.dagster_event
        for event in instance.all_logs(failed.run_id)
        if event.dagster_event is not None and event.dagster_event.is_step_failure
    ]
    data = failure.step_failure_data
    assert data.user_failure_data is not None
    assert "the source ends before it" in (data.user_failure_data.description or "")
    assert data.user_failure_data.metadata["error"].value == "LandingGapError"

    # The sensor sees the same, and asks for no run that would fail with it.
    assert (data.user_failure_data.description or "?") in skipped(asked(shop, instance))
    away.replace(shop.capture)


def test_an_instance_that_knows_nothing_learns_of_all_mirrors(
    shop: SmallShop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with open_instance(shop.settings) as new:
        report = run_sync(shop.settings, "shop", instance=new)
        assert report.applying.outcome is Outcome.UNCHANGED
        assert len(materializations(new, shop.names.mirror(*ORDERS))) == 1
