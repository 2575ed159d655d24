"""Column lineage between a changefeed's assets, for their definitions.

In: a changefeed's asset keys and, for a mirror, its columns. Out: Dagster's column lineage. Nothing
is read; a test compares the names with the tables' columns. Events do not repeat it: of a table of
30 columns it is 13 kB, and more than all else that an event says.

An image is one column of the change log and many columns of a mirror, so every column of a mirror
comes from `after`, or from `before` for deletes and partial images. The schema registry defines the
types of values.
"""

from collections.abc import Iterable, Mapping

import dagster as dg

from ticdc_assets.log.cuts import MirrorCut
from ticdc_assets.orchestration.partitions import FeedNames
from ticdc_assets.orchestration.table_schemas import CHANGE_LOG, QUARANTINE, SCHEMA_REGISTRY
from ticdc_assets.rows.mirror_rows import MirrorLayout

COLUMN_LINEAGE = "dagster/column_lineage"
"""The key by which Dagster knows it."""

_LANDED = ("topic", "partition", "offset", "landed_at", "landed_day")
_FROM_CHANGE_LOG: Mapping[str, tuple[str, ...]] = {
    "database": ("schema", "database"),
    "table": ("schema", "table"),
    "sql": ("sql",),
    "commit_ts": ("commit_ts",),
    "valid_from": ("commit_ts",),
    "valid_to": ("commit_ts",),
    "topic": ("topic",),
    "partition": ("partition",),
    "offset": ("offset",),
    "index": ("index",),
    "source": ("kind",),
}


def change_log_lineage(names: FeedNames) -> dg.MetadataValue:
    """Return where the columns of `change_log` come from."""
    return _decoded(names, CHANGE_LOG)


def quarantine_lineage(names: FeedNames) -> dg.MetadataValue:
    """Return where the columns of `quarantine` come from."""
    return _decoded(names, QUARANTINE)


def schema_registry_lineage(names: FeedNames) -> dg.MetadataValue:
    """Return where the columns of `schema_registry` come from."""
    log = names.asset("change_log")
    return _drawn(
        {
            column: _of(log, _FROM_CHANGE_LOG.get(column, ("schema", "pre_schema", "shape")))
            for column in SCHEMA_REGISTRY
        }
    )


def mirror_lineage(names: FeedNames, mirror: MirrorCut) -> dg.MetadataValue:
    """Return where the columns of a mirror come from."""
    log, registry = names.asset("change_log"), names.asset("schema_registry")
    schema = mirror.table_schema
    layout = MirrorLayout(schema=schema)
    images = [*_of(log, ("after", "before")), *_of(registry, ("columns",))]
    deps = {column.name: images for column in schema.columns if column.name not in mirror.hidden}
    deps[layout.commit_ts] = _of(log, ("commit_ts",))
    deps[layout.rescued] = images
    return _drawn(deps)


def _decoded(names: FeedNames, columns: Iterable[str]) -> dg.MetadataValue:
    raw = names.asset("raw_messages")
    return _drawn(
        {
            column: _of(raw, (column,) if column in _LANDED else ("key", "value"))
            for column in columns
            if column not in ("batch", "quarantined_at", "redriven_at", "closed_by")
        }
    )


def _drawn(deps: Mapping[str, list[dg.TableColumnDep]]) -> dg.MetadataValue:
    return dg.MetadataValue.column_lineage(dg.TableColumnLineage(deps_by_column=deps))


def _of(key: dg.AssetKey, columns: Iterable[str]) -> list[dg.TableColumnDep]:
    return [dg.TableColumnDep(asset_key=key, column_name=column) for column in columns]
