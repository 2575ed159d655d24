"""Column lineage of a changefeed's tables, for the definitions of their assets.

In: a changefeed's asset keys. Out: Dagster's column lineage. Nothing is read; a test compares the
names with the tables' columns.

A mirror has none: each of its columns comes from the images of `change_log`, Dagster's own web
server draws no column lineage, and that of 2,000 tables is most of what a location loads. The
descriptions of a mirror's columns say it (`table_schemas`).
"""

from collections.abc import Iterable, Mapping

import dagster as dg

from ticdc_assets.orchestration.partitions import FeedNames
from ticdc_assets.orchestration.table_schemas import CHANGE_LOG, QUARANTINE, SCHEMA_REGISTRY

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
