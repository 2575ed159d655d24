"""The sensor that tells of tables: those that came and went, and schemas that changed.

In: the newest cut and the schema registry, by their small tables; no Spark. Out: the dynamic
partitions of `mirrors` as the newest cut has them, one observation on `mirrors` for each schema
that changed since the last tick that told, and a reason in numbers why there was nothing to tell.

A sync makes partitions too, for what it reports; this makes them where nobody reported: a lake that
was synced from another instance, or by a run that was killed in between. The cursor keeps up to
which TSO schemas were told, and how many there were: a version that came late, at or below it, is
counted. Losing the cursor tells what is shown once more, and loses nothing.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import dagster as dg

from ticdc_assets.defs.partitions import partition_of
from ticdc_assets.defs.schema_metadata import said_changes
from ticdc_assets.defs.steps import ChangefeedSteps
from ticdc_assets.errors import LakeDamagedError
from ticdc_assets.observe.overview import SchemaFigures, VersionFigures, newest_schemas
from ticdc_assets.pipeline.cuts import newest_cut
from ticdc_assets.pipeline.damage import damage_told
from ticdc_assets.tso import to_datetime

INTERVAL_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesCursor:
    """The state of the sensor.

    Attributes:
        told_ts: schemas that hold from at or below it were told; 0 before the first tick.
        versions: schema versions there were.
    """

    told_ts: int = 0
    versions: int = 0

    @classmethod
    def from_text(cls, text: str | None) -> "TablesCursor":
        """Read a cursor; anything that is none counts as an empty one."""
        try:
            values: Any = json.loads(text or "{}")
        except json.JSONDecodeError:
            return cls()
        told, versions = (
            values.get(name) if isinstance(values, dict) else None
            for name in ("told_ts", "versions")
        )
        if type(told) is not int or type(versions) is not int:
            return cls()
        return cls(told_ts=told, versions=versions)

    def to_text(self) -> str:
        """Return the cursor as JSON."""
        return json.dumps(asdict(self))


def tables_sensor(steps: ChangefeedSteps) -> dg.SensorDefinition:
    """Return the sensor of one changefeed that tells of its tables."""

    @dg.sensor(
        name=steps.names.tables_sensor,
        asset_selection=dg.AssetSelection.assets(steps.names.asset("mirrors")),
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "Makes a partition of mirrors for each table of the newest cut, removes those of "
            "tables that are gone, and reports on mirrors what changed in which schema. It asks "
            "for no run."
        ),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        try:
            with damage_told(steps.paths):
                return tick(context, steps)
        except LakeDamagedError as error:
            return dg.SensorResult(skip_reason=str(error), cursor=context.cursor)

    return sensor


def tick(context: dg.SensorEvaluationContext, steps: ChangefeedSteps) -> dg.SensorResult:
    """Evaluate the sensor once."""
    cursor = TablesCursor.from_text(context.cursor)
    cut = newest_cut(steps.paths)
    name = steps.names.tables.name
    assert name is not None
    wanted = {partition_of(item.database, item.table) for item in cut.mirrors} if cut else set()
    there = set(context.instance.get_dynamic_partitions(name))
    # Without a cut nothing is known of tables, least of all that they are gone.
    gone = sorted(there - wanted) if cut else []
    new = sorted(wanted - there)
    requests: list[Any] = []
    if new:
        requests.append(steps.names.tables.build_add_request(new))
    if gone:
        requests.append(steps.names.tables.build_delete_request(gone))
    schemas, _ = newest_schemas(steps.paths)
    versions = sum(item.total for item in schemas)
    changed = list(_changed(schemas, cursor.told_ts))
    # The first tick of an instance has no news: all of it is older than the instance.
    told = changed if cursor.told_ts else []
    late = max(0, versions - cursor.versions - len(changed)) if cursor.told_ts else 0
    newest = max((version.valid_from for _, version in changed), default=0)
    after = TablesCursor(told_ts=max(cursor.told_ts, newest), versions=versions)
    drifts = [item for item in told if not item[1].is_first]
    said = (
        f"{len(wanted)} tables in the newest cut, {len(new)} new, {len(gone)} gone; {versions} "
        f"schema versions, {len(told)} new, {len(drifts)} of them of tables that were known, "
        f"{late} late"
    )
    if told or new or gone:
        context.log.info("%s", said)
    return dg.SensorResult(
        # A result without runs is a skipped tick, whatever else it brings.
        skip_reason=said,
        cursor=after.to_text(),
        dynamic_partitions_requests=requests,
        asset_events=[
            _observation(steps, table, version)
            for table, version in drifts
            if partition_of(table.database, table.table) in wanted
        ],
    )


def _changed(
    schemas: Iterable[SchemaFigures], told_ts: int
) -> Iterable[tuple[SchemaFigures, VersionFigures]]:
    """Yield the versions that hold from later on, oldest first."""
    found = [
        (table, version)
        for table in schemas
        for version in table.versions
        if version.valid_from > told_ts
    ]
    return sorted(found, key=lambda item: item[1].valid_from)


def _observation(
    steps: ChangefeedSteps, table: SchemaFigures, version: VersionFigures
) -> dg.AssetObservation:
    changes = said_changes(version.changes)
    return dg.AssetObservation(
        asset_key=steps.names.asset("mirrors"),
        partition=partition_of(table.database, table.table),
        description=f"schema changed: {changes}",
        metadata={
            "schema_changes": dg.MetadataValue.text(changes),
            "schema_version": dg.MetadataValue.text(str(version.version)),
            "schema_valid_from": dg.MetadataValue.timestamp(to_datetime(version.valid_from)),
            "columns": dg.MetadataValue.int(version.columns),
            "source": dg.MetadataValue.text(version.source),
        },
    )
