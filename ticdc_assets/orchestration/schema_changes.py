"""Changed schemas as observations on the assets of mirrors.

In: the schema versions that a sync registered. Out: one observation for each, which says what
changed. Nothing is written. Dagster keeps its records forever, so defaults are shown without their
values; `schema_registry` has them.
"""

from collections.abc import Collection, Iterator

import dagster as dg

from ticdc_assets.model.tso import to_datetime
from ticdc_assets.observe.overview import schemas_of
from ticdc_assets.orchestration.partitions import FeedNames
from ticdc_assets.registry.differences import Difference, DifferenceKind
from ticdc_assets.registry.history import SchemaKey
from ticdc_assets.storage.lake_paths import LakePaths

_CHANGES = 6
"""How many changes of one version are listed."""


def schema_changes(
    paths: LakePaths, names: FeedNames, new: Collection[SchemaKey]
) -> Iterator[dg.AssetObservation]:
    """Yield an observation on a mirror's asset for each schema version, oldest first.

    The first version of a table changes nothing, and has none.

    Args:
        paths: the tables of the changefeed.
        names: the changefeed's names.
        new: the schema versions.
    """
    found = [
        (version, table)
        for table in schemas_of(paths, {key[:2] for key in new}, most=len(new))
        for version in table.versions
        if not version.is_first and (table.database, table.table, version.version) in new
    ]
    for version, table in sorted(found, key=lambda item: item[0].valid_from):
        changes = _said_changes(version.changes)
        yield dg.AssetObservation(
            asset_key=names.mirror(table.database, table.table),
            description=f"schema changed: {changes}",
            metadata={
                "schema_changes": changes,
                "schema_version": str(version.version),
                "schema_valid_from": dg.MetadataValue.timestamp(to_datetime(version.valid_from)),
                "columns": version.columns,
                "source": version.source,
            },
        )


def _said_changes(changes: tuple[Difference, ...]) -> str:
    """Return what changed in a schema, in words and without values."""
    words = [_said(change) for change in changes[:_CHANGES]]
    if len(changes) > _CHANGES:
        words.append(f"and {len(changes) - _CHANGES} more")
    return "; ".join(words) or "nothing that is shown"


def _said(change: Difference) -> str:
    match change.kind:
        case DifferenceKind.ADDED:
            return f"{change.name} added ({change.after})"
        case DifferenceKind.DROPPED:
            return f"{change.name} dropped"
        case DifferenceKind.RENAMED:
            return f"{change.before} renamed to {change.name}"
        case DifferenceKind.DEFAULT:
            return f"{change.name}: another default"
        case DifferenceKind.KEY:
            return f"key {change.before or 'none'} -> {change.after or 'none'}"
        case DifferenceKind.INDEX:
            return f"index {change.name} changed"
        case DifferenceKind.TYPE | DifferenceKind.NULLABLE:
            return f"{change.name}: {change.before} -> {change.after}"
