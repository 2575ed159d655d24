"""Metadata for Dagster: descriptions of columns, tables in events, and the figures of each step.

Nothing is read here except clocks. The schemas of the pipeline's tables are where they are written;
the sentences about their columns are here, and a test compares both. TSOs are texts because they
exceed the integers that a browser represents exactly; each comes with its time.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

import dagster as dg
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from ticdc_assets.base.names import joined_name
from ticdc_assets.log.change_files import CHANGE_LOG_SCHEMA
from ticdc_assets.log.cuts import Cut, MirrorCut, Mode
from ticdc_assets.log.landing_files import RAW_SCHEMA
from ticdc_assets.log.positions import PartitionOffsets
from ticdc_assets.log.quarantine import FAULT_SCHEMA
from ticdc_assets.log.schema_tables import REGISTRY_SCHEMA
from ticdc_assets.log.seed_landing import SNAPSHOT_SCHEMA
from ticdc_assets.mirrors.standing import Applying, Outcome
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.model.tso import lag_seconds, to_datetime
from ticdc_assets.observe.status import ACCOUNT_COUNTS
from ticdc_assets.observe.wording import listed, shortened
from ticdc_assets.registry.differences import declared_type
from ticdc_assets.repair.redecoding import RedecodedDay
from ticdc_assets.repair.seeding import Seeding
from ticdc_assets.rows.mirror_rows import MirrorLayout, spark_type_name
from ticdc_assets.spark.compute import Ran
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import AnyPath

_PLACE = {
    "topic": "Kafka topic of the record.",
    "partition": "Kafka partition of the record.",
    "offset": "Offset of the record in its partition.",
}

RAW_MESSAGES: Mapping[str, str] = {
    "batch": "Number of the landing that appended the record; each is one Delta commit.",
    "landed_at": "When it was landed; the same for a whole batch.",
    **_PLACE,
    "timestamp_ms": "Kafka's timestamp in epoch milliseconds; orders nothing.",
    "key": "Key, verbatim bytes.",
    "value": "Value, verbatim bytes; null for a Kafka tombstone.",
    "headers": "Kafka headers; TiCDC sends none.",
    "landed_day": "UTC day of `landed_at`; the table is partitioned by it.",
}

SNAPSHOT_ROWS: Mapping[str, str] = {
    "batch": "Number of the seed that landed the row; each is one Delta commit.",
    "landed_at": "When it was landed; the same for a whole seed.",
    "database": "Database of the table.",
    "table": "Name of the table.",
    "tso": "TSO of the export.",
    "file": "File of the export, relative to its folder.",
    "line": "Line of the file where the row begins; for a Parquet file, the number of the row.",
    "index": "Position of the row among rows that begin on the same line, from 0.",
    "format": "csv, sql or parquet.",
    "columns": "Column names in the file, as JSON text; null if it has none.",
    "problem": "Why the file could not be read from its line on; null for a row.",
    "row": "The row, verbatim bytes.",
}

CHANGE_LOG: Mapping[str, str] = {
    "batch": "Number of the decoding that appended the row; each is one Delta commit.",
    "landed_at": "When the record was landed.",
    "landed_day": "UTC day of `landed_at`; the table is partitioned by it.",
    **_PLACE,
    "index": "Position of the event in its record, from 0.",
    "kind": "row, ddl, bootstrap or watermark; snapshot for a row of an export.",
    "op": "insert, update or delete, for rows; snapshot for rows of exports.",
    "commit_ts": "TSO at which the upstream transaction committed; the watermark's for watermarks.",
    "build_ts_ms": "Wall clock in epoch milliseconds when TiCDC encoded it; orders nothing.",
    "database": "Database of the table at `commit_ts`.",
    "table": "Name of the table at `commit_ts`.",
    "table_id": "Table id as sent; for a partitioned table, the id of the physical partition.",
    "schema_version": "Schema version of the images; null if none is sent.",
    "before": "Image before the change as JSON text, values as sent.",
    "after": "Image after the change as JSON text, values as sent.",
    "handle_key_only": "True if the images were cut to the handle key.",
    "claim_check_location": "Where TiCDC stored the whole message, if it was too large.",
    "checksum": "Row checksums as sent, as JSON text.",
    "shape": "Shape of the row (its columns), as JSON text, if it cites no schema version.",
    "es_only": "True if no commit ts was sent: then `commit_ts` is `es`, shifted to a TSO.",
    "ddl_type": "Type of a DDL, in the Simple protocol's words.",
    "sql": "Text of a DDL.",
    "schema": "Schema of a bootstrap or after a DDL, as JSON text.",
    "pre_schema": "Schema before a DDL, as JSON text.",
}

QUARANTINE: Mapping[str, str] = {
    "stage": "decode: the bytes are not a message. apply: the row does not fit its schema.",
    **_PLACE,
    "index": "Position of the event in its record, from 0.",
    "reason": "The kind of fault, as a stable word to group by.",
    "position": "Where in the record: a JSON path, a byte offset or a column.",
    "expected": "What would have been accepted.",
    "got": "What was found, shortened.",
    "database": "Database of the row, for stage apply and rows of exports.",
    "table": "Table of the row, for stage apply and rows of exports.",
    "commit_ts": "Commit ts of the row, for stage apply.",
    "batch": "Newest batch of the change log when it was refused.",
    "quarantined_at": "When it was refused.",
    "redriven_at": "When it was closed; null while it is open.",
    "closed_by": "`redrive`, `later change`, `given up` or `removed`; null while it is open.",
}

SCHEMA_REGISTRY: Mapping[str, str] = {
    "database": "Database.",
    "table": "Table.",
    "schema_version": "TSO that names this version; row changes cite it.",
    "table_id": "Logical table id.",
    "columns": "Columns, in the order sent.",
    "indexes": "Indexes, in the order sent.",
    "key": "Columns of the handle key; empty if equal rows cannot be distinguished.",
    "source": (
        "Its source: a bootstrap, or the schema after or before a DDL. If messages carry no "
        "schemas: inferred from a DDL's text or from rows."
    ),
    "sql": "Text of the DDL.",
    "commit_ts": "Commit ts of the DDL.",
    "valid_from": "TSO from which the version is valid.",
    "valid_to": "TSO up to which it is valid; null while it is.",
    **_PLACE,
    "index": "Position of the event in its record, from 0.",
    "schema": "The whole schema as JSON text.",
}


TABLES: Mapping[str, tuple[pa.Schema, Mapping[str, str]]] = {
    "raw_messages": (RAW_SCHEMA, RAW_MESSAGES),
    "snapshot_rows": (SNAPSHOT_SCHEMA, SNAPSHOT_ROWS),
    "change_log": (CHANGE_LOG_SCHEMA, CHANGE_LOG),
    "quarantine": (FAULT_SCHEMA, QUARANTINE),
    "schema_registry": (REGISTRY_SCHEMA, SCHEMA_REGISTRY),
}
"""The columns of the pipeline's tables, and what each means."""


def definition_metadata(table: str) -> dict[str, Any]:
    """Return what an asset's definition says of one of `TABLES`: its columns."""
    schema, descriptions = TABLES[table]
    columns = [
        dg.TableColumn(
            name=field.name,
            type=field.dataType.simpleString(),
            description=descriptions[field.name],
            constraints=dg.TableColumnConstraints(nullable=field.nullable),
        )
        for field in from_arrow_schema(schema).fields
    ]
    return {"dagster/column_schema": dg.TableSchema(columns=columns)}


def mirror_columns(mirror: MirrorCut) -> dg.TableSchema:
    """Return the columns of a mirror: types here and upstream, key and nullability."""
    schema = mirror.table_schema
    layout = MirrorLayout(schema=schema)
    unique = schema.handle_key if len(schema.handle_key) == 1 else ()
    upstream = [
        dg.TableColumn(
            name=column.name,
            type=spark_type_name(column),
            description=_upstream_type(column, key=column.name in schema.handle_key),
            constraints=dg.TableColumnConstraints(
                nullable=column.nullable, unique=column.name in unique
            ),
        )
        for column in schema.columns
        if column.name not in mirror.hidden
    ]
    ours = [
        dg.TableColumn(
            name=layout.commit_ts,
            type="bigint",
            description="Commit ts of the row's last change; from change_log.commit_ts.",
        ),
        dg.TableColumn(
            name=layout.rescued,
            type="map<string,string>",
            description="Exact text of values that no typed column can hold, by column; from "
            "change_log.after.",
        ),
    ]
    return dg.TableSchema(columns=[*upstream, *ours])


def _upstream_type(column: ColumnSchema, *, key: bool) -> str:
    """Return what a column is upstream, and what it is made from here.

    Dagster's web server draws no lineage of columns, so it is said.
    """
    said = f"{declared_type(column)} upstream{'; part of the key' if key else ''}"
    return f"{said}; from change_log.after"


# Tables in metadata -----------------------------------------------------------------------------


def table_of(columns: str, rows: Iterable[object]) -> dg.TableMetadataValue:
    """Return rows as a table in an event's metadata, with `columns` as in `table, rows`.

    A row is a tuple, or an object with an attribute for each column; lists are shown as texts.
    """
    names = columns.split(", ")

    def record(row: object) -> dg.TableRecord:
        values = row if isinstance(row, tuple) else [getattr(row, name) for name in names]
        return dg.TableRecord(
            {
                name: ", ".join(value) if isinstance(value, list | tuple) else value
                for name, value in zip(names, values, strict=True)
            }
        )

    records = list(map(record, rows))
    # Dagster infers types from the first row.
    schema = None if records else dg.TableSchema(columns=[dg.TableColumn(it) for it in names])
    return dg.MetadataValue.table(records, schema)


def table_metadata(name: str, columns: str, rows: Sequence[object]) -> dict[str, Any]:
    """Return rows as metadata with a table under `name`, as `table_of` takes them; {} of none."""
    return {name: table_of(columns, rows)} if rows else {}


Metadata: TypeAlias = dict[str, Any]
"""Metadata for Dagster: plain texts, numbers and truth values, and Dagster's values."""

LOOKED_AT_BATCH = "change_log_batch"
"""Name of the newest batch of the change log that an apply looked at; the sensor reads it."""


def tso_metadata(name: str, tso: int | None) -> Metadata:
    """Return `name` with a TSO and, under `<name>_time`, the time of its physical part."""
    if tso is None:
        return {name: "none yet"}
    return {name: str(tso), f"{name}_time": dg.MetadataValue.timestamp(to_datetime(tso))}


def offsets_metadata(partitions: Iterable[PartitionOffsets]) -> dg.MetadataValue:
    """Return the offsets of each partition as a table."""
    return table_of("topic, partition, earliest, end, landed, backlog", partitions)


def rate_metadata(count: int, seconds: float) -> Metadata:
    """Return how long a step took, and its items per second if it had any."""
    metadata: Metadata = {"seconds": round(seconds, 3)}
    if count and seconds > 0:
        metadata["per_second"] = round(count / seconds, 1)
    return metadata


def ran_metadata(ran: Ran) -> Metadata:
    """Return where the work of a step ran; nothing if it had no work."""
    return {"ran": ran.sentence} if ran.sentence else {}


def path_metadata(path: AnyPath) -> Metadata:
    """Return where a table is."""
    return {"path": dg.MetadataValue.path(str(path))}


def redecoding_metadata(day: RedecodedDay, paths: LakePaths) -> Metadata:
    """Return what decoding one landing day again did."""
    return {
        "result": day.sentence(),
        "records": day.records,
        "rows_before": day.before,
        "rows": day.rows,
        "losses": "; ".join(day.losses) or "none",
        "quarantined": day.quarantined,
        "left_quarantine": day.released,
        "schemas_differ": day.schemas,
        "tables_folded": table_of("database, table", day.tables),
        **path_metadata(paths.change_log),
    }


def seeding_metadata(seeding: Seeding, paths: LakePaths) -> Metadata:
    """Return the metadata of a seeding."""
    refused = {joined_name(*name): reason for name, reason in sorted(seeding.refused.items())}
    return {
        "dagster/uri": dg.MetadataValue.path(str(paths.snapshot_rows)),
        **tso_metadata("tso", seeding.tso),
        "tables": len(seeding.tables),
        "seeded_rows": seeding.rows,
        "seeds": table_of("database, table, seed, rows, quarantined", seeding.tables),
        "quarantined": sum(item.quarantined for item in seeding.tables),
        "excluded_tables": seeding.excluded,
        "refused_tables": refused or "none",
        "skipped_files": dict(seeding.skipped) or "none",
        "unterminated_files": listed(seeding.unterminated) or "none",
    }


def applying_metadata(applying: Applying, batch: int, now: datetime) -> Metadata:
    """Return the result of an apply up to `batch` of the change log."""
    metadata: Metadata = {
        "outcome": str(applying.outcome),
        "reason": applying.reason,
        LOOKED_AT_BATCH: batch,
        **tso_metadata("watermark", applying.watermark.watermark_ts),
    }
    if applying.watermark.slowest is not None:
        metadata["slowest_partition"] = "{}/{}".format(*applying.watermark.slowest)
    if applying.watermark.waiting:
        waiting = ("{}/{}".format(*place) for place in applying.watermark.waiting)
        metadata["partitions_without_watermark"] = ", ".join(waiting)
    if applying.cut is not None:
        metadata |= _cut_metadata(applying.cut, now)
    return metadata


def applied_counts(applying: Applying) -> dict[str, int]:
    """Return counts of what an apply did; an earlier one has reported those of an older cut."""
    if applying.cut is None:
        return {}
    is_new = applying.outcome is Outcome.PUBLISHED
    return {
        "replays": applying.cut.replays if is_new else 0,
        "late": applying.cut.late if is_new else 0,
    }


def time_text(tso: int | None) -> str:
    """Return the time of a TSO to the millisecond; "" for None."""
    return "" if tso is None else to_datetime(tso).isoformat(timespec="milliseconds")


def _cut_metadata(cut: Cut, now: datetime) -> Metadata:
    accounts = sorted(cut.accounts, key=lambda item: not item.unaccounted)[:_TABLES_LISTED]
    mirrors = _most_important(cut)
    totals = Metadata()
    if len(accounts) < len(cut.accounts):
        totals["accounts_total"] = table_of(
            ", ".join(ACCOUNT_COUNTS),
            [tuple(sum(getattr(it, name) for it in cut.accounts) for name in ACCOUNT_COUNTS)],
        )
        totals["accounts_not_listed"] = len(cut.accounts) - len(accounts)
    if len(mirrors) < len(cut.mirrors):
        totals["mirrors_not_listed"] = len(cut.mirrors) - len(mirrors)
    return totals | {
        **tso_metadata("applied_ts", cut.tso),
        "lag_seconds": lag_seconds(cut.tso, now),
        "cut": cut.number,
        "rows": sum(item.rows for item in cut.mirrors),
        "failed_mirrors": len(cut.failed),
        "accounts": table_of(
            ", ".join(("database", "table", *ACCOUNT_COUNTS)),
            accounts,
        ),
        "held": sum(item.rows for item in cut.held),
        "quarantined": cut.quarantined + sum(item.quarantined for item in cut.mirrors),
        "watermark_steps_back": cut.steps_back,
        "ddl_without_effect": _counts(cut.ignored),
        "mirrors": table_of(
            "database, table, mode, changes, rows, held, quarantined, caveats",
            mirrors,
        ),
    }


def _most_important(cut: Cut) -> list[MirrorCut]:
    """Return the mirrors of a cut; if they are too many to list, the most important.

    Incomplete mirrors come first, then the changed ones. A carried mirror was listed before.
    """
    if len(cut.mirrors) <= _TABLES_LISTED:
        return list(cut.mirrors)
    important = [item for item in cut.mirrors if item.incomplete or item.mode != Mode.CARRIED]
    return sorted(important, key=lambda item: not item.incomplete)[:_TABLES_LISTED]


def together_metadata(changed: Sequence[MirrorCut], cut: Cut) -> Metadata:
    """Return the tables that changed, where one asset represents all."""
    names = [joined_name(item.database, item.table) for item in changed]
    listed = names[:_NAMES_LISTED]
    return {
        "tables": len(names),
        "changes": sum(item.changes for item in changed),
        "rows": sum(item.rows for item in changed),
        "modes": _counts(Counter(item.mode for item in changed)),
        **tso_metadata("applied_ts", cut.tso),
        "cut": cut.number,
        "names": ", ".join(listed),
        "names_not_listed": len(names) - len(listed),
    }


_NAMES_LISTED, _TABLES_LISTED = 1_000, 100
"""How many names of tables an event lists, and how many tables one on `apply_changes`."""


def mirror_metadata(mirror: MirrorCut, cut: Cut, paths: LakePaths, now: datetime) -> Metadata:
    """Return one mirror at a cut."""
    return {
        "database": mirror.database,
        "table": mirror.table,
        "rows": mirror.rows,
        "mode": str(mirror.mode),
        **tso_metadata("applied_ts", cut.tso),
        "lag_seconds": lag_seconds(cut.tso, now),
        "held": mirror.held,
        "quarantined": mirror.quarantined,
        "unknown_deletes": mirror.unknown_deletes,
        "lenient_casts": mirror.casts.total(),
        "caveats": ", ".join(mirror.caveats) or "none",
        "key": ", ".join(mirror.table_schema.handle_key) or "none",
        "cut": cut.number,
        "delta_version": mirror.version,
        **path_metadata(mirror.path(paths)),
        "dagster/row_count": mirror.rows,
        "dagster/column_schema": mirror_columns(mirror),
    }


_LONGEST_VALUE = 60
"""Characters of a value that a sample of rows shows."""


def sample_metadata(rows: Sequence[Mapping[str, str | None]]) -> Metadata:
    """Return some rows of a mirror as a table, {} of none."""
    if not rows:
        return {}
    records = [dg.TableRecord({name: _shown(value) for name, value in row.items()}) for row in rows]
    return {"sample": dg.MetadataValue.table(records)}


def _shown(value: str | None) -> str:
    return "NULL" if value is None else shortened(value, _LONGEST_VALUE)


def history_metadata(mirror: MirrorCut, cut: Cut, paths: LakePaths) -> Metadata:
    """Return the history of one mirror at a cut."""
    versions = mirror.history_rows or 0
    return {
        "database": mirror.database,
        "table": mirror.table,
        "versions": versions,
        "current": mirror.rows,
        "unread": mirror.history_unread or 0,
        **tso_metadata("applied_ts", cut.tso),
        "cut": cut.number,
        "delta_version": mirror.history_version or 0,
        **path_metadata(mirror.history_path(paths)),
        "dagster/row_count": versions,
    }


def changed_mirrors(applying: Applying) -> list[MirrorCut]:
    """Return the mirrors that an apply changed: none unless it published a cut."""
    if applying.outcome is not Outcome.PUBLISHED or applying.cut is None:
        return []
    return [item for item in applying.cut.mirrors if item.mode != Mode.CARRIED and not item.failed]


def utc_now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


def _counts(counts: Mapping[str, int]) -> dict[str, int] | str:
    return dict(sorted(counts.items())) or "none"
