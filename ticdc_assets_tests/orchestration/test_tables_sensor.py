"""The sensor about tables: assets of tables that are gone, and schemas that changed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from ticdc_assets.delta.control import read_table
from ticdc_assets.model.tso import from_datetime
from ticdc_assets.observe import overview
from ticdc_assets.orchestration import tables_sensor
from ticdc_assets.orchestration.mirror_assets import MirrorAssets
from ticdc_assets.orchestration.schema_metadata import schema_metadata
from ticdc_assets.orchestration.sensors import cursor_text, read_cursor
from ticdc_assets.orchestration.steps import ChangefeedSteps
from ticdc_assets.orchestration.tables_sensor import TablesCursor, tick
from ticdc_assets_tests.observe.report.small_lake import (
    NOW,
    ago,
    published,
    write_schemas,
    write_versions,
)


def ticked(
    steps: ChangefeedSteps, instance: dg.DagsterInstance, cursor: str | None = None
) -> dg.SensorResult:
    context = dg.build_sensor_context(instance=instance, cursor=cursor)
    return tick(context, MirrorAssets.of(steps), NOW)


def observations(result: dg.SensorResult) -> list[dg.AssetObservation]:
    return [event for event in result.asset_events if isinstance(event, dg.AssetObservation)]


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


def test_a_schema_that_changed_is_told_once(
    steps: ChangefeedSteps, instance: dg.DagsterInstance
) -> None:
    write_schemas(steps.paths, "shop", "orders")
    published(steps.paths, ("shop", "orders"))
    first = ticked(steps, instance)
    assert not observations(first), "what is older than the instance is no news"
    before = TablesCursor(told_ts=from_datetime(ago(250)), versions=1)
    (event,) = observations(ticked(steps, instance, cursor_text(before)))
    assert event.asset_key == steps.names.mirror("shop", "orders")
    assert event.description is not None
    assert "a renamed to b" in event.description
    assert "<b>c</b> added (varchar(10))" in event.description
    again = ticked(steps, instance, first.cursor)
    assert not observations(again)
    assert "0 new, 0 of them" in str(again.skip_reason)


def changed(
    steps: ChangefeedSteps, tables: Mapping[tuple[str, str], Sequence[datetime]]
) -> TablesCursor:
    """Write tables with an old version and new ones; return a cursor that knows the old."""
    published(steps.paths, *tables)
    write_versions(steps.paths, {name: [ago(1000), *moments] for name, moments in tables.items()})
    return TablesCursor(told_ts=from_datetime(ago(500)), versions=len(tables))


def changed_tables(steps: ChangefeedSteps, count: int, versions: int = 1) -> TablesCursor:
    """Write `count` tables with an old version and so many new ones."""
    return changed(
        steps,
        {
            ("shop", f"t{number:03}"): [ago(100 - number / 10 - n / 1000) for n in range(versions)]
            for number in range(count)
        },
    )


@pytest.mark.parametrize(("count", "versions"), [(101, 1), (1, 25)])
def test_however_many_schemas_changed_each_is_told(
    steps: ChangefeedSteps, instance: dg.DagsterInstance, count: int, versions: int
) -> None:
    before = changed_tables(steps, count, versions)
    result = ticked(steps, instance, cursor_text(before))
    told = [event.metadata["schema_version"].value for event in observations(result)]
    assert len(set(told)) == len(told) == count * versions
    new, total = count * versions, count * (versions + 1)
    words = f"{total} schema versions, {new} new, {new} of them of known tables, 0 late"
    assert words in str(result.skip_reason)
    late = ticked(steps, instance, cursor_text(replace(before, versions=count - 1)))
    assert "1 late" in str(late.skip_reason)
    again = ticked(steps, instance, result.cursor)
    assert not observations(again)
    assert "0 new, 0 of them of known tables, 0 late" in str(again.skip_reason)


def test_a_tick_reads_the_schemas_that_it_tells_and_those_before_them(
    steps: ChangefeedSteps, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables_sensor, "_SCHEMAS", 3)
    texts: list[int] = []

    def reading(*given: Any, columns: list[str], **named: Any) -> pa.Table | None:
        found = read_table(*given, columns=columns, **named)
        if "schema" in columns:
            texts.append(0 if found is None else found.num_rows)
        return found

    monkeypatch.setattr(overview, "read_table", reading)
    # Both tables have a version from 7 s ago on, which are told together.
    seconds = {"a": (9, 8, 7, 4, 3), "b": (7, 2)}
    cursor: str | None = cursor_text(
        changed(steps, {("shop", name): list(map(ago, found)) for name, found in seconds.items()})
    )
    names = {str(from_datetime(ago(second))): second for second in range(10)}
    told: list[list[tuple[str, int]]] = []
    for _ in range(3):
        result = ticked(steps, instance, cursor)
        versions = [
            (item.asset_key.path[-1], item.metadata["schema_version"])
            for item in observations(result)
        ]
        told.append([(table, names[str(version.value)]) for table, version in versions])
        assert " 0 late" in str(result.skip_reason)
        cursor = result.cursor
    a, b = "a", "b"
    assert told == [[(a, 9), (a, 8), (a, 7), (b, 7)], [(a, 4), (a, 3), (b, 2)], []]
    assert texts == [6, 5]


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"told_ts": "1", "versions": 2}', "{}"])
def test_any_cursor_is_read(text: str | None) -> None:
    assert read_cursor(text, TablesCursor) == TablesCursor()


def test_schema_history_and_ddl_are_tables_without_values(steps: ChangefeedSteps) -> None:
    write_schemas(steps.paths, "shop", "orders")
    metadata = schema_metadata(steps.paths)
    history, timeline = metadata["schema_history"], metadata["ddl_timeline"]
    assert isinstance(history, dg.TableMetadataValue)
    assert isinstance(timeline, dg.TableMetadataValue)
    newest, oldest = (record.data for record in history.records)
    assert "a renamed to b" in str(newest["changes"])
    assert oldest["changes"] == "first known"
    assert {record.data["understood"] for record in timeline.records} == {True, False}
    assert schema_metadata(steps.paths) == metadata
