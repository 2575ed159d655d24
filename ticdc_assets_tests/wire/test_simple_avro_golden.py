"""Simple Avro against messages of TiCDC's real encoder, and their truth."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from ticdc_assets.demo.simulator.encoders import encode
from ticdc_assets.model.events import (
    Bootstrap,
    DdlEvent,
    Event,
    Image,
    PhysicalValue,
    RowChange,
)
from ticdc_assets.model.mysql_types import fractional_digits
from ticdc_assets.model.schemas import ColumnFlag, ColumnSchema, RowShape, SentColumn, TableSchema
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets.wire.record import Record
from ticdc_assets_tests.wire import golden
from ticdc_assets_tests.wire.golden_truth import KINDS, STILL_VALID, compare_with_truth, decoded
from ticdc_assets_tests.wire.test_simple_golden import meaning, wanted_meaning

pytestmark = golden.needs_golden

SCENARIOS = ("types", "shop", "shop-replay", "shop-ddlwm", "shop-middle", "corrupt")
OPTIONS = (
    "checksum",
    "claim-check",
    "claim-check-raw",
    "delete-only-handle-key",
    "force-replicate",
    "handle-key-only",
)
FOLDERS = tuple(f"simple-avro/{name}" for name in SCENARIOS) + tuple(
    f"options/simple-avro-{name}" for name in OPTIONS
)

REASONS = {
    "zero bytes": {"unknown_branch"},
    "bit flip": {"invalid_length"},
    "other protocol": {"unknown_branch"},
    "deep nesting": {"unknown_branch"},
    "absurd length": {"invalid_utf8"},
    "half key": {"unknown_branch"},
    "truncated value": {"invalid_length", "truncated"},
    "json array": {"unknown_branch"},
    "trailing garbage": {"trailing_bytes"},
    "empty value": {"empty_value"},
    "null value": {"null_value"},
    "random bytes": {"unknown_branch"},
}
"""Why the damaged records are refused."""

LOST: Mapping[str, str] = {
    "datetime": "decimal",
    "timestamp": "decimal",
    "time": "decimal",
}
"""What the schema of a type says in JSON and not in Avro: the digits of fractional seconds, which
the display length tells as well (golden/QUIRKS.md B7)."""


def events_of(folder: str) -> list[tuple[golden.Message, Event]]:
    return [
        (record, event)
        for record, _, outcome in decoded(folder)
        if isinstance(outcome, list)
        for event in outcome
    ]


def schemas_of(event: Event) -> list[TableSchema]:
    match event:
        case DdlEvent():
            return [schema for schema in (event.schema, event.pre_schema) if schema is not None]
        case Bootstrap():
            return [event.schema]
        case _:
            return []


@cache
def schemas(folder: str) -> dict[tuple[str, str, int], TableSchema]:
    """Return the schemas of a folder, by what a row cites."""
    return {
        (schema.database, schema.table, schema.version): schema
        for _, event in events_of(folder)
        for schema in schemas_of(event)
    }


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.thorough
def test_every_record_means_what_the_truth_says(folder: str) -> None:
    def check(event: Event, line: dict[str, Any], _folder: str) -> None:
        cut = isinstance(event, RowChange) and event.handle_key_only
        assert meaning(event) == as_sent(wanted_meaning(line, handle_key_only=cut))

    counts = compare_with_truth(folder, dict.fromkeys(KINDS.values(), check), REASONS)
    assert counts.most == 1
    assert (counts.cut > 0) is ("claim-check" in folder or "handle-key-only" in folder)
    assert (counts.checked > 0) is ("checksum" in folder)


def as_sent(wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the truth without what Avro loses."""
    for name in ("schema", "pre_schema"):
        for column in (wanted.get(name) or {"columns": ()})["columns"]:
            if column["type"] in LOST:
                column[LOST[column["type"]]] = 0
    return wanted


@pytest.mark.parametrize("folder", ["simple-avro/types", "simple-avro/shop"])
def test_digits_of_fractional_seconds_are_known_from_the_length(folder: str) -> None:
    seen = Counter[int]()
    truth = golden.events(folder)
    for record, event in events_of(folder):
        (line,) = truth[record.partition, record.offset]
        for name in ("schema", "pre_schema"):
            ours: TableSchema | None = getattr(event, name, None)
            for wanted in line[name]["columns"] if ours is not None else ():
                column = ours and ours.column(wanted["name"])
                assert column is not None
                if column.mysql_type in LOST:
                    assert fractional_digits(column) == wanted["decimal"]
                    seen[wanted["decimal"]] += 1
    assert seen.keys() >= {0, 3, 6}


@pytest.mark.parametrize("scenario", ["types", "shop"])
def test_rows_are_those_of_json_but_for_the_sign_of_bit_64(scenario: str) -> None:
    """Both folders come from the same changes of the same upstream."""

    def rows(wire_format: WireFormat) -> list[RowChange]:
        return [
            row
            for message in golden.messages(f"{wire_format.value}/{scenario}")
            for row in decode(wire_format, Record(key=message.key, value=message.value))
            if isinstance(row, RowChange)
        ]

    def compared(rows: list[RowChange]) -> Counter[str]:
        return Counter(
            repr((row.commit_ts, row.table, row.op, _unsigned(row.before), _unsigned(row.after)))
            for row in rows
        )

    found = rows(WireFormat.SIMPLE_AVRO)
    assert found
    assert compared(found) == compared(rows(WireFormat.SIMPLE_JSON))
    if scenario == "types":
        bits = [row.after["c_bit64"] for row in found if row.after is not None]
        assert any(isinstance(value, str) and value.startswith("-") for value in bits)


def _unsigned(image: Image | None) -> list[tuple[str, PhysicalValue]]:
    """Return an image in the order of names, its 64-bit column without a sign."""
    return [
        (name, str(int(value) % 2**64) if name == "c_bit64" and isinstance(value, str) else value)
        for name, value in sorted((image or {}).items())
    ]


def shape_of(schema: TableSchema) -> RowShape:
    """Return what the other formats would say of a row of `schema`."""
    return RowShape(
        columns=tuple(
            SentColumn(column.name, column.mysql_type, flags_of(column))
            for column in schema.columns
        )
    )


def flags_of(column: ColumnSchema) -> ColumnFlag:
    binary = ColumnFlag.BINARY if column.charset == "binary" else ColumnFlag(0)
    return binary | (ColumnFlag.UNSIGNED if column.unsigned else ColumnFlag(0))


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.thorough
def test_every_message_is_written_again_byte_for_byte(folder: str) -> None:
    """With the columns in the order in which the message has them: TiCDC's own is random."""
    without_schema = 0
    written = 0
    for record, event in events_of(folder):
        if (folder, record.partition, record.offset) in STILL_VALID:
            continue
        if isinstance(event, RowChange):
            place = (event.database, event.table, event.schema_version or 0)
            schema = schemas(folder).get(place)
            if schema is None:
                without_schema += 1
                continue
            event = replace(event, shape=shape_of(schema))
        assert encode(WireFormat.SIMPLE_AVRO, [event]) == [Record(key=None, value=record.value)]
        written += 1
    assert written + without_schema == len(decoded(folder)) - len(golden.damaged(folder))
    assert without_schema == 0
