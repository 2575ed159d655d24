"""Columns for Dagster: their descriptions, in the pipeline's tables and in mirrors.

The tables' schemas are where they are written; the sentences about their columns are here. A test
compares both, so it finds a new column without a description.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dagster as dg
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from ticdc_assets.log.change_files import CHANGE_LOG_SCHEMA
from ticdc_assets.log.cuts import MirrorCut
from ticdc_assets.log.landing_files import RAW_SCHEMA
from ticdc_assets.log.quarantine import FAULT_SCHEMA
from ticdc_assets.log.schema_tables import REGISTRY_SCHEMA
from ticdc_assets.log.seed_landing import SNAPSHOT_SCHEMA
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.registry.differences import declared_type
from ticdc_assets.rows.mirror_rows import MirrorLayout, spark_type_name

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
    """Return rows as a table in an event's metadata, with `columns` as in `table string, rows int`.

    A row is a tuple, or an object with an attribute for each column; lists are shown as texts.
    """
    schema = [
        dg.TableColumn(name=name, type=kind)
        for name, kind in (column.split() for column in columns.split(","))
    ]
    names = [column.name for column in schema]

    def record(row: object) -> dg.TableRecord:
        values = row if isinstance(row, tuple) else [getattr(row, name) for name in names]
        return dg.TableRecord(
            {
                name: ", ".join(value) if isinstance(value, list | tuple) else value
                for name, value in zip(names, values, strict=True)
            }
        )

    return dg.MetadataValue.table(
        records=list(map(record, rows)), schema=dg.TableSchema(columns=schema)
    )


def table_metadata(name: str, columns: str, rows: Sequence[object]) -> dict[str, Any]:
    """Return rows as metadata with a table under `name`, as `table_of` takes them; {} of none."""
    return {name: table_of(columns, rows)} if rows else {}
