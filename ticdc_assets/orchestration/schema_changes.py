"""Changed schemas as observations on the assets of mirrors.

In: the schema versions that a sync registered. Out: one observation for each, which says what
changed. Nothing is written. Dagster keeps its records forever, so defaults are shown without their
values; `schema_registry` has them.
"""

from collections.abc import Collection, Iterator

import dagster as dg

from ticdc_assets.model.tso import to_datetime
from ticdc_assets.observe.overview import schemas_of
from ticdc_assets.observe.wording import listed
from ticdc_assets.orchestration.partitions import FeedNames
from ticdc_assets.registry.history import SchemaKey
from ticdc_assets.storage.lake_paths import LakePaths


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
        changes = listed((change.text for change in version.changes), "; ")
        changes = changes or "nothing that is shown"
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
