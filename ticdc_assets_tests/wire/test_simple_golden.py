"""The decoders and the encoder against messages of TiCDC's real encoder, and their truth."""

from typing import Any

import pytest

from ticdc_assets.demo.simulator.encoders import encode
from ticdc_assets.model.events import Bootstrap, DdlEvent, Event, Image, RowChange, Watermark
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.wire import WireFormat
from ticdc_assets.wire.record import Record
from ticdc_assets_tests.wire import golden
from ticdc_assets_tests.wire.golden_truth import KINDS, compare_with_truth, decoded

pytestmark = golden.needs_golden

FOLDERS = golden.SIMPLE_JSON + golden.SIMPLE_JSON_OPTIONS

REASONS = {
    "zero bytes": {"invalid_json"},
    "bit flip": {"invalid_json", "invalid_utf8"},
    "other protocol": {"missing_field"},
    "deep nesting": {"too_deep"},
    "absurd length": {"invalid_utf8"},
    "half key": {"invalid_json", "trailing_bytes"},
    "truncated value": {"invalid_json"},
    "json array": {"wrong_type"},
    "trailing garbage": {"trailing_bytes"},
    "empty value": {"empty_value"},
    "null value": {"null_value"},
    "random bytes": {"invalid_utf8"},
}
"""Why the damaged records are refused."""

DDL_TYPES = {
    "create table": "CREATE",
    "rename table": "RENAME",
    "rename tables": "RENAME",
    "add index": "CINDEX",
    "add primary key": "CINDEX",
    "drop index": "DINDEX",
    "drop primary key": "DINDEX",
    "drop table": "ERASE",
    "truncate table": "TRUNCATE",
    "create schema": "QUERY",
    "drop schema": "QUERY",
    "modify schema charset and collate": "QUERY",
    "create view": "QUERY",
    "drop view": "QUERY",
    "exchange partition": "QUERY",
    "recover table": "QUERY",
    "alter table ttl": "QUERY",
}
"""TiDB's name of a DDL and the word of the protocol; all others are ALTER."""


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.thorough
def test_every_record_means_what_the_truth_says(folder: str) -> None:
    def check(event: Event, line: dict[str, Any], _folder: str) -> None:
        cut = isinstance(event, RowChange) and event.handle_key_only
        assert meaning(event) == wanted_meaning(line, handle_key_only=cut)

    counts = compare_with_truth(folder, dict.fromkeys(KINDS.values(), check), REASONS)
    assert counts.most == 1
    assert (counts.cut > 0) is ("claim-check" in folder or "handle-key-only" in folder)


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_message_is_written_again_byte_for_byte(folder: str) -> None:
    written = 0
    for record, _, outcome in decoded(folder):
        if isinstance(outcome, list):
            (again,) = encode(WireFormat.SIMPLE_JSON, outcome)
            assert again == Record(key=None, value=record.value)
            written += 1
    assert written == len(decoded(folder)) - len(golden.damaged(folder))
    assert written > 0


def meaning(event: Event) -> dict[str, Any]:
    """Return of `event` what the truth also knows."""
    match event:
        case RowChange():
            return {
                "type": "row",
                "op": event.op.value,
                "commit_ts": event.commit_ts,
                "database": event.database,
                "table": event.table,
                "table_id": event.table_id,
                "schema_version": event.schema_version,
                "before": nulls(event.before),
                "after": nulls(event.after),
            }
        case DdlEvent():
            assert event.build_ts_ms > 0
            return {
                "type": "ddl",
                "commit_ts": event.commit_ts,
                "sql": event.sql,
                "ddl_type": event.ddl_type,
                "database": event.database,
                "table": event.table,
                "schema": structure(event.schema),
                "pre_schema": structure(event.pre_schema),
            }
        case Bootstrap():
            return {"type": "bootstrap", "schema": structure(event.schema)}
        case Watermark():
            return {"type": "watermark", "commit_ts": event.watermark_ts}


def nulls(image: Image | None) -> dict[str, bool] | None:
    """Return for each column whether it is NULL."""
    return None if image is None else {name: value is None for name, value in image.items()}


def structure(schema: TableSchema | None) -> dict[str, Any] | None:
    if schema is None:
        return None
    return {
        "names": (schema.database, schema.table, schema.table_id, schema.version),
        "columns": [
            {
                "name": column.name,
                "type": column.mysql_type,
                "nullable": column.nullable,
                "default": column.default,
                "charset": column.charset,
                "collation": column.collation,
                "length": column.length,
                "decimal": column.decimal,
                "unsigned": column.unsigned,
                "zerofill": column.zerofill,
                "elements": column.elements,
            }
            for column in schema.columns
        ],
        "indexes": [
            (index.name, index.unique, index.primary, index.columns) for index in schema.indexes
        ],
    }


def wanted_meaning(line: dict[str, Any], *, handle_key_only: bool) -> dict[str, Any]:
    """Return the same of a line of the truth, which always has the whole images."""
    wanted = {name: line[name] for name in ("type", "op", "commit_ts", "sql") if name in line}
    if line["type"] == "row":
        for name in ("database", "table", "table_id", "schema_version"):
            wanted[name] = line[name]
        for name in ("before", "after"):
            wanted[name] = wanted_nulls(line[name], handle_key_only=handle_key_only)
    if line["type"] == "ddl":
        wanted["ddl_type"] = DDL_TYPES.get(line["ddl_type"], "ALTER")
        # Only a message with a schema names its table.
        named = line["schema"] or line["pre_schema"]
        wanted["database"] = named["database"] if named else ""
        wanted["table"] = named["table"] if named else ""
        wanted["pre_schema"] = wanted_structure(line["pre_schema"])
    if line["type"] in ("ddl", "bootstrap"):
        wanted["schema"] = wanted_structure(line["schema"])
    return wanted


def wanted_nulls(
    columns: list[dict[str, Any]] | None, *, handle_key_only: bool = False
) -> dict[str, bool] | None:
    if columns is None:
        return None
    return {
        column["name"]: column["value"] is None
        for column in columns
        if column.get("handle") or not handle_key_only
    }


def wanted_structure(schema: dict[str, Any] | None) -> dict[str, Any] | None:
    if schema is None:
        return None
    indexes = [
        (index["name"], index["unique"], index["primary"], tuple(index["columns"]))
        for index in schema["indexes"] or []
    ]
    if schema["pk"] and not any(primary for _, _, primary, _ in indexes):
        # A clustered integer key is no index in TiDB; the protocol makes one of it.
        indexes.append(("primary", True, True, tuple(schema["pk"])))
    return {
        "names": (schema["database"], schema["table"], schema["table_id"], schema["version"]),
        "columns": [wanted_column(column) for column in schema["columns"]],
        "indexes": indexes,
    }


def wanted_column(column: dict[str, Any]) -> dict[str, Any]:
    word, default = column["mysqlType"], column["default"]
    return {
        "name": column["name"],
        "type": word,
        "nullable": column["nullable"],
        # The default of a BIT is sent as a number.
        "default": int(default) if word == "bit" and default is not None else default,
        "charset": column["charset"],
        "collation": column["collate"],
        "length": column["length"],
        # TiCDC does not send it for these: it says -1 mostly.
        "decimal": 0 if word in ("float", "double") else column["decimal"],
        "unsigned": column["unsigned"],
        "zerofill": column["zerofill"],
        "elements": tuple(column.get("elements") or ()),
    }
