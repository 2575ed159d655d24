"""The schema history and the DDL of a changefeed as tables in an event's metadata.

In: the schema registry and the DDL history. Out: two tables for people in the UI: schema changes by
table and time, and each DDL at its time. Nothing is written; results for the same versions of both
tables are reused.

Dagster keeps its records forever, so DDL is shown without its strings and defaults without their
values; the whole text is in `ddl_history`.
"""

import dagster as dg

from ticdc_assets.delta.control import latest_version
from ticdc_assets.model.tso import to_datetime
from ticdc_assets.observe.overview import newest_ddls, newest_schemas
from ticdc_assets.orchestration.metadata import Metadata
from ticdc_assets.orchestration.table_schemas import table_of
from ticdc_assets.registry.ddl_tokens import shown_sql
from ticdc_assets.registry.differences import Difference, DifferenceKind
from ticdc_assets.storage.lake_paths import LakePaths

_VERSIONS = 25
_DDLS = 25
_CHANGES = 6

_CACHED: dict[LakePaths, tuple[tuple[int | None, int | None], Metadata]] = {}
"""What was shown last of a changefeed, by the versions of the tables that it is from."""


def schema_metadata(paths: LakePaths) -> Metadata:
    """Return the newest schema versions and DDL of a changefeed as tables."""
    versions = (latest_version(paths.schema_registry), latest_version(paths.ddl_history))
    cached = _CACHED.get(paths)
    if cached is None or cached[0] != versions:
        tables: Metadata = {"schema_history": _history(paths), "ddl_timeline": _timeline(paths)}
        cached = (versions, tables)
        _CACHED[paths] = cached
    return dict(cached[1])


def _history(paths: LakePaths) -> dg.TableMetadataValue:
    tables, _ = newest_schemas(paths)
    versions = sorted(
        ((version, table) for table in tables for version in table.versions),
        key=lambda item: (-item[0].valid_from, item[1].database, item[1].table),
    )
    return table_of(
        "valid_from string, database string, table string, changes string, "
        "columns int, source string, schema_version string",
        [
            (
                _time(version.valid_from),
                table.database,
                table.table,
                "first known" if version.is_first else said_changes(version.changes),
                version.columns,
                version.source,
                str(version.version),
            )
            for version, table in versions[:_VERSIONS]
        ],
    )


def _timeline(paths: LakePaths) -> dg.TableMetadataValue:
    ddls, _, _ = newest_ddls(paths)
    return table_of(
        "time string, database string, table string, action string, "
        "sql string, understood bool, commit_ts string",
        [
            (
                _time(ddl.commit_ts),
                ddl.database,
                ddl.table,
                ddl.action,
                shown_sql(ddl.sql, 160),
                ddl.not_understood is None,
                str(ddl.commit_ts),
            )
            for ddl in ddls[:_DDLS]
        ],
    )


def said_changes(changes: tuple[Difference, ...]) -> str:
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


def _time(tso: int) -> str:
    return f"{to_datetime(tso):%Y-%m-%d %H:%M:%S} UTC"
