"""Assets of tables that are gone, and schemas that changed."""

import dagster as dg
import pytest

from ticdc_assets.delta.control import read_rows
from ticdc_assets.model.tso import from_datetime
from ticdc_assets.orchestration.mirror_assets import MirrorAssets, tick
from ticdc_assets.orchestration.reporting import schema_changes
from ticdc_assets.orchestration.steps import ChangefeedSteps
from ticdc_assets.registry.history import SchemaKey
from ticdc_assets_tests.observe.report.small_lake import published, write_schemas, write_versions
from ticdc_assets_tests.statuses import NOW, ago


def ticked(steps: ChangefeedSteps, instance: dg.DagsterInstance) -> dg.SensorResult:
    return tick(dg.build_sensor_context(instance=instance), MirrorAssets.of(steps), NOW)


def test_assets_of_tables_that_are_gone_are_wiped(
    steps: ChangefeedSteps, instance: dg.DagsterInstance
) -> None:
    names = steps.names
    dropped, stays = names.mirror("shop", "gone"), names.mirror("shop", "a")
    others = (names.history("shop", "gone"), names.asset("apply_changes"))
    for key in (dropped, stays, *others):
        instance.report_runless_asset_event(dg.AssetMaterialization(key))
    ticked(steps, instance)
    assert instance.has_asset_key(dropped), "without a cut nobody knows what is gone"
    published(steps.paths, ("shop", "a"))
    result = ticked(steps, instance)
    assert "1 table in the newest cut, 2 assets of dropped tables wiped" in str(result.skip_reason)
    assert not instance.has_asset_key(dropped)
    assert not instance.has_asset_key(others[0])
    assert instance.has_asset_key(stays)
    assert instance.has_asset_key(others[1])


def test_a_changed_schema_is_reported_with_what_changed(steps: ChangefeedSteps) -> None:
    write_schemas(steps.paths, "shop", "orders")
    (event,) = schema_changes(steps.paths, steps.names, versions_of(steps))
    assert event.asset_key == steps.names.mirror("shop", "orders")
    assert event.description is not None
    assert "a renamed to b" in event.description
    assert "<b>c</b> added (varchar(10))" in event.description


@pytest.mark.parametrize(("count", "versions"), [(101, 1), (1, 25)])
def test_however_many_schemas_changed_each_is_reported(
    steps: ChangefeedSteps, count: int, versions: int
) -> None:
    tables = [("shop", f"t{number:03}") for number in range(count)]
    moments = [ago(1000), *(ago(100 - number) for number in range(versions))]
    write_versions(steps.paths, dict.fromkeys(tables, moments))
    old, new = from_datetime(ago(1000)), versions_of(steps)
    found = schema_changes(steps.paths, steps.names, {key for key in new if key[2] != old})
    shown = [(str(item.metadata["schema_version"].value), item.asset_key) for item in found]
    assert len(set(shown)) == len(shown) == count * versions
    assert [version for version, _ in shown] == sorted(version for version, _ in shown)


def versions_of(steps: ChangefeedSteps) -> set[SchemaKey]:
    rows = read_rows(steps.paths.schema_registry)
    return {(row["database"], row["table"], row["schema_version"]) for row in rows}
