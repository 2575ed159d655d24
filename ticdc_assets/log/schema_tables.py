"""The schema registry as tables: every schema version, every DDL, every conflict.

In: DDL and bootstrap rows of the change log that are not registered yet. Out: `schema_registry`
(one row per (database, table, version)), `ddl_history` (one row per DDL, however many copies
arrived) and `schema_conflicts` (messages that describe a version differently; the registered schema
stays).

Why running it again is safe: adding to a `SchemaHistory` is idempotent, and the tables are
overwritten. `schema_registry` comes last, and its commit names the last batch that is registered.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from ticdc_assets.changelog.plan import seen_shapes
from ticdc_assets.delta.appending import write_table
from ticdc_assets.delta.control import commit_metadata, dataset_of, read_rows
from ticdc_assets.delta.damage import reading
from ticdc_assets.delta.lake import Lake
from ticdc_assets.delta.opening import kept, open_table
from ticdc_assets.delta.row_schema import typed
from ticdc_assets.log.change_statistics import ChangeStatistics, read_statistics
from ticdc_assets.model.events import DdlEvent
from ticdc_assets.model.schemas import TableSchema, schema_from_text, schema_to_text
from ticdc_assets.registry.catalog import complete
from ticdc_assets.registry.ddl.statement import DdlAction, DdlKind
from ticdc_assets.registry.history import (
    INFERRED_SOURCES,
    Coordinates,
    RegisteredDdl,
    SchemaConflict,
    SchemaHistory,
    SchemaKey,
    SchemaSource,
    SchemaVersion,
)
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.wire.rows import PLACE, PLACE_SCHEMA

_COLUMN_FIELDS = [
    *typed(str, "name", "mysql_type"),
    *typed(bool, "unsigned"),
    *typed(int, "length", "decimal"),
    *typed(str, "charset", "collation"),
    pa.field("elements", pa.list_(pa.string())),
    *typed(bool, "nullable"),
    *typed(str, "default"),
]
_INDEX_FIELDS = [
    *typed(str, "name"),
    *typed(bool, "unique", "primary"),
    pa.field("columns", pa.list_(pa.string())),
]

REGISTRY_SCHEMA = pa.schema(
    [
        *typed(str, "database", "table"),
        *typed(int, "schema_version", "table_id"),
        ("columns", pa.list_(pa.struct(_COLUMN_FIELDS))),
        ("indexes", pa.list_(pa.struct(_INDEX_FIELDS))),
        ("key", pa.list_(pa.string())),
        *typed(str, "source", "sql"),
        *typed(int, "commit_ts", "valid_from", "valid_to"),
        *PLACE_SCHEMA,
        *typed(str, "schema"),
    ]
)
"""`schema_registry`; `valid_from` and `valid_to` are TSO, the latter null for current versions."""

DDL_SCHEMA = pa.schema(
    [
        *typed(int, "commit_ts"),
        *typed(str, "ddl_type", "action", "sql", "database", "table"),
        *typed(int, "build_ts_ms"),
        *PLACE_SCHEMA,
        ("copies", pa.list_(pa.struct([PLACE_SCHEMA.field(name) for name in PLACE[:2]]))),
        *typed(str, "schema", "pre_schema", "not_understood"),
        *typed(bool, "es_only"),
    ]
)

CONFLICT_SCHEMA = pa.schema(
    [
        *typed(str, "database", "table"),
        *typed(int, "schema_version"),
        *typed(str, "registered_source", "registered", "claimed_source", "claimed", "claimed_sql"),
        *typed(int, "claimed_commit_ts"),
        *typed(str, "registered_sql"),
        *typed(int, "registered_commit_ts"),
        *PLACE_SCHEMA,
    ]
)

SCHEMA_KINDS = frozenset({"ddl", "bootstrap"})
_OF_DDL = frozenset({SchemaSource.DDL, SchemaSource.TEXT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Registering:
    """The result of one registering, up to a batch; the counts are of all that is registered.

    `new` has the schema versions that are new, if anything was registered before.
    """

    batch: int
    changed: bool
    new: frozenset[SchemaKey]
    schema_versions: int
    ddls: int
    conflicts: int


def register_new(lake: Lake) -> Registering:
    """Register the schemas and DDL of every batch that is not registered yet.

    After DDL or bootstraps were corrected, all of them are registered again. If messages carry no
    schemas, schemas from DDL text and rows are registered as inferred. It needs no Spark.
    """
    statistics = read_statistics(lake.paths)
    done = commit_metadata(lake.paths.schema_registry).get("batch", 0)
    corrections = [
        item for item in statistics.corrections if item.kind in SCHEMA_KINDS and item.batch > done
    ]
    changed = is_anew = bool(corrections)
    if is_anew or statistics.newest_batch(SCHEMA_KINDS) > done:
        history = read_history(lake.paths)
        if is_anew:
            history, done = up_to(history, max(item.kept_ts for item in corrections)), 0
        if statistics.newest_batch(SCHEMA_KINDS) > done:
            changed |= _add_new(lake.paths, history, done, statistics.batch)
        shapes = seen_shapes(statistics.row_groups)
        completed = complete(history, shapes, lake.changefeed.timezone)
    else:
        history = _sent_history(lake.paths)
        completed = completed_history(lake.paths, statistics, lake.changefeed.timezone)
    if completed is not history:
        # New rows alone may prove a schema, and a late row may change its consequences.
        rows = read_rows(lake.paths.schema_registry, columns=["source", "schema"])
        changed |= {(row["source"], row["schema"]) for row in rows} != {
            (str(version.source), _schema_text(version.schema)) for version in completed.versions
        }
    keys = ["database", "table", "schema_version"]
    rows = read_rows(lake.paths.schema_registry, columns=keys) if changed else []
    before = frozenset((row["database"], row["table"], row["schema_version"]) for row in rows)
    if changed or statistics.newest_batch(SCHEMA_KINDS) > done:
        write_history(lake.paths, history, completed, statistics.batch)
    return Registering(
        batch=max(done, statistics.batch),
        changed=changed,
        new=frozenset(version.key for version in completed.versions if before) - before,
        schema_versions=len(completed.versions),
        ddls=len(history.ddls),
        conflicts=len(history.conflicts),
    )


def up_to(history: SchemaHistory, tso: int) -> SchemaHistory:
    """Return the schemas, DDL and conflicts at or below a TSO.

    If the change log was truncated there, it may lack what they were read from: bootstraps, and in
    a generation that was made again from its base, DDL too.
    """
    past = SchemaHistory()
    past.restore(
        versions=(item for item in history.versions if item.schema.version <= tso),
        ddls=(item for item in history.ddls if item.event.commit_ts <= tso),
        conflicts=(item for item in history.conflicts if item.claimed.schema.version <= tso),
    )
    return past


def _add_new(paths: LakePaths, history: SchemaHistory, done: int, newest: int) -> bool:
    """Add the DDL and bootstraps of the batches in (done, newest]; return whether any was new."""
    log = open_table(paths.change_log)
    if log is None:
        return False
    condition = (
        (ds.field("batch") > done)
        & (ds.field("batch") <= newest)
        & ds.field("kind").isin(sorted(SCHEMA_KINDS))
    )
    ddls: list[dict[str, Any]] = []
    # They repeat every two minutes for each table and partition: only the first copy counts.
    bootstraps: dict[str | None, dict[str, Any]] = {}
    with reading(paths.change_log):
        batches = dataset_of(log, paths.change_log).to_batches(
            columns=list(_READ_COLUMNS), filter=condition, batch_size=1024
        )
        for batch in batches:
            for row in batch.to_pylist():
                if row["kind"] == "ddl":
                    ddls.append(row)
                    continue
                first = bootstraps.get(row["schema"], row)
                bootstraps[row["schema"]] = min(first, row, key=_order)
    changed = False
    # In batch order: the first of two claims stays, however many batches are registered at a time.
    for row in sorted((*ddls, *bootstraps.values()), key=_order):
        if row["kind"] == "ddl":
            changed |= history.add_ddl(_event_of(row), _place_of(row))
        elif (schema := _schema(row["schema"])) is not None:
            changed |= history.add_bootstrap(schema, _place_of(row))
    return changed


_READ_COLUMNS = (
    *("kind", "batch", *PLACE, "schema", "pre_schema", "sql", "ddl_type"),
    *("commit_ts", "build_ts_ms", "database", "table", "es_only"),
)


def _order(row: dict[str, Any]) -> tuple[int, str, int, int, int]:
    return (row["batch"], row["topic"], row["partition"], row["offset"], row["index"])


def _schema(text: str | None) -> TableSchema | None:
    return None if text is None else schema_from_text(text)


def _schema_text(schema: TableSchema | None) -> str | None:
    return None if schema is None else schema_to_text(schema)


def read_history(paths: LakePaths) -> SchemaHistory:
    """Return the history as sent, without inferred schemas; needs no Spark."""
    history = SchemaHistory()
    versions = map(_version_of, read_rows(paths.schema_registry, columns=_VERSION_COLUMNS))
    history.restore(
        versions=(version for version in versions if version.source not in INFERRED_SOURCES),
        ddls=read_ddls(paths),
        conflicts=(_conflict_of(row) for row in read_rows(paths.schema_conflicts)),
    )
    return history


def completed_history(
    paths: LakePaths, statistics: ChangeStatistics, timezone: str
) -> SchemaHistory:
    """Return the history, completed with what its messages lack; needs no Spark.

    The time zone of the changefeed is an IANA name.
    """
    return kept(
        paths.schema_registry,
        f"completed by batch {statistics.batch}",
        lambda: complete(_sent_history(paths), seen_shapes(statistics.row_groups), timezone),
    )


def _sent_history(paths: LakePaths) -> SchemaHistory:
    """Return the history as sent, which no caller changes."""
    return kept(paths.schema_registry, "history as sent", lambda: read_history(paths))


_VERSION_COLUMNS = ["schema", "source", "sql", "commit_ts", *PLACE]
"""The columns of `schema_registry` that define a version; the others are for people."""


def read_ddls(paths: LakePaths) -> Sequence[RegisteredDdl]:
    """Return every DDL, in the order of the table; needs no Spark."""
    return kept(paths.ddl_history, "DDL", lambda: tuple(map(_ddl_of, read_rows(paths.ddl_history))))


def write_history(
    paths: LakePaths, history: SchemaHistory, completed: SchemaHistory, batch: int
) -> None:
    """Write the DDL and conflicts of a history as sent, and the versions of the completed one.

    `batch` is the newest batch of the change log in them.
    """
    for path, rows, schema in (
        (paths.ddl_history, map(_ddl_row, history.ddls), DDL_SCHEMA),
        (paths.schema_conflicts, map(_conflict_row, history.conflicts), CONFLICT_SCHEMA),
        (paths.schema_registry, _version_rows(completed), REGISTRY_SCHEMA),
    ):
        table = pa.Table.from_pylist(list(rows), schema)
        write_table(path, table, overwrite=True, metadata={"batch": batch})


def _place(coordinates: Coordinates) -> dict[str, Any]:
    return {name: getattr(coordinates, name) for name in PLACE}


def _place_of(row: dict[str, Any]) -> Coordinates:
    return Coordinates(**{name: row[name] for name in PLACE})


def _version_rows(history: SchemaHistory) -> list[dict[str, Any]]:
    versions = history.versions
    starts = {
        version.key: version.commit_ts
        if version.source in _OF_DDL and version.commit_ts is not None
        else version.schema.version
        for version in versions
    }
    ends = _name_ends(history)
    rows: list[dict[str, Any]] = []
    for number, version in enumerate(versions):
        schema = version.schema
        start = starts[version.key]
        following = versions[number + 1] if number + 1 < len(versions) else None
        candidates = [end for end in ends.get((schema.database, schema.table), []) if end > start]
        if following is not None and following.key[:2] == version.key[:2]:
            candidates.append(starts[following.key])
        rows.append(
            {
                "database": schema.database,
                "table": schema.table,
                "schema_version": schema.version,
                "table_id": schema.table_id,
                "columns": [
                    {item.name: getattr(column, item.name) for item in _COLUMN_FIELDS}
                    | {"default": column.default_text}
                    for column in schema.columns
                ],
                "indexes": [
                    {item.name: getattr(index, item.name) for item in _INDEX_FIELDS}
                    for index in schema.indexes
                ],
                "key": list(schema.handle_key),
                "source": str(version.source),
                "sql": version.sql,
                "commit_ts": version.commit_ts,
                "valid_from": start,
                "valid_to": min(candidates, default=None),
                **_place(version.coordinates),
                "schema": _schema_text(schema),
            }
        )
    return rows


def _name_ends(history: SchemaHistory) -> dict[tuple[str, str], list[int]]:
    """Return the commit ts at which a (database, table) ended: dropped or renamed away."""
    ends: dict[tuple[str, str], list[int]] = {}
    names = {(version.schema.database, version.schema.table) for version in history.versions}
    for ddl in history.ddls:
        before, after = ddl.event.pre_schema, ddl.event.schema
        statement = ddl.statement
        if statement.action is DdlAction.DROP_DATABASE and statement.database is not None:
            database = statement.database.lower()
            for name in names:
                if name[0].lower() == database:
                    ends.setdefault(name, []).append(ddl.event.commit_ts)
        elif before is not None and (
            ddl.kind is DdlKind.DROP
            or (
                after is not None
                and (before.database, before.table) != (after.database, after.table)
            )
        ):
            ends.setdefault((before.database, before.table), []).append(ddl.event.commit_ts)
    return ends


def _version_of(row: dict[str, Any], schema: str = "schema", prefix: str = "") -> SchemaVersion:
    """Return a version from the column of its schema and the prefix of its other columns."""
    return SchemaVersion(
        schema=schema_from_text(row[schema]),
        source=SchemaSource(row[f"{prefix}source"]),
        sql=row[f"{prefix}sql"],
        commit_ts=row[f"{prefix}commit_ts"],
        coordinates=_place_of(row),
    )


def _ddl_row(ddl: RegisteredDdl) -> dict[str, Any]:
    event = ddl.event
    return {
        "commit_ts": event.commit_ts,
        "ddl_type": event.ddl_type,
        "action": str(ddl.statement.action),
        "sql": event.sql,
        "database": event.database,
        "table": event.table,
        "build_ts_ms": event.build_ts_ms,
        **_place(ddl.coordinates),
        "copies": [
            {"topic": topic, "partition": partition} for topic, partition in sorted(ddl.copies)
        ],
        "schema": _schema_text(event.schema),
        "pre_schema": _schema_text(event.pre_schema),
        "not_understood": ddl.statement.unparsed,
        "es_only": event.es_only,
    }


def _ddl_of(row: dict[str, Any]) -> RegisteredDdl:
    return RegisteredDdl(
        event=_event_of(row),
        coordinates=_place_of(row),
        copies=frozenset((copy["topic"], copy["partition"]) for copy in row["copies"]),
    )


def _event_of(row: dict[str, Any]) -> DdlEvent:
    return DdlEvent(
        ddl_type=row["ddl_type"],
        commit_ts=row["commit_ts"],
        build_ts_ms=row["build_ts_ms"],
        sql=row["sql"],
        database=row["database"] or "",
        table=row["table"] or "",
        schema=_schema(row["schema"]),
        pre_schema=_schema(row["pre_schema"]),
        es_only=bool(row["es_only"]),
    )


def _conflict_row(conflict: SchemaConflict) -> dict[str, Any]:
    database, table, version = conflict.claimed.key
    return {
        "database": database,
        "table": table,
        "schema_version": version,
        "registered_source": str(conflict.registered.source),
        "registered": _schema_text(conflict.registered.schema),
        "claimed_source": str(conflict.claimed.source),
        "claimed": _schema_text(conflict.claimed.schema),
        "claimed_sql": conflict.claimed.sql,
        "claimed_commit_ts": conflict.claimed.commit_ts,
        "registered_sql": conflict.registered.sql,
        "registered_commit_ts": conflict.registered.commit_ts,
        **_place(conflict.claimed.coordinates),
    }


def _conflict_of(row: dict[str, Any]) -> SchemaConflict:
    return SchemaConflict(
        registered=_version_of(row, "registered", "registered_"),
        claimed=_version_of(row, "claimed", "claimed_"),
    )
