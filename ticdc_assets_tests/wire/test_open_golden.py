"""Open Protocol: decoders and encoder against messages of TiCDC's real encoder, and their truth."""

from collections.abc import Mapping
from typing import Any

import pytest

from ticdc_assets.demo.simulator.encoders.open_protocol import encode
from ticdc_assets.model.events import DdlEvent, Op, RowChange, Watermark
from ticdc_assets.model.schemas import ColumnFlag
from ticdc_assets.wire.open_protocol import map_values
from ticdc_assets.wire.record import Record
from ticdc_assets_tests.wire import golden
from ticdc_assets_tests.wire.golden_truth import compare_with_truth, decoded, sent_columns
from ticdc_assets_tests.wire.test_simple_golden import DDL_TYPES, nulls, wanted_nulls

pytestmark = golden.needs_golden

CUT = ("options/open-claim-check", "options/open-handle-key-only")
"""Folders with rows that were too large and have only their handle key."""

FOLDERS = (
    *(f"open/{scenario}" for scenario in ("types", "shop", "shop-replay", "shop-ddlwm", "corrupt")),
    *(f"open-updated/{scenario}" for scenario in ("types", "shop")),
    *CUT,
    "options/open-batch1",
    "options/open-delete-only-handle-key",
    "options/open-force-replicate",
    "options/open-no-old-value",
    "options/open-lz4",
    "options/open-snappy",
)
MAX_BATCHES = dict.fromkeys(FOLDERS, 16) | {"options/open-batch1": 1}

REASONS = {
    "absurd length": {"length_beyond_end"},
    "bit flip": {"invalid_json", "missing_field"},
    "deep nesting": {"length_beyond_end"},
    "empty value": {"empty_value"},
    "half key": {"length_beyond_end"},
    "json array": {"truncated"},
    "null value": {"null_value"},
    "other protocol": {"length_beyond_end"},
    "random bytes": {"length_beyond_end"},
    "trailing garbage": {"trailing_bytes"},
    "truncated value": {"length_beyond_end"},
    "zero bytes": {"empty_value"},
}
"""Why the damaged records are refused; none of them is still a message."""


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.thorough
def test_every_record_means_what_the_truth_says(folder: str) -> None:
    counts = compare_with_truth(folder, CHECKS, REASONS)
    assert counts.most <= MAX_BATCHES[folder]
    assert (counts.cut > 0) is (folder in CUT)


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.thorough
def test_every_message_is_written_again_byte_for_byte(folder: str) -> None:
    written = 0
    for _, record, outcome in decoded(folder):
        if isinstance(outcome, list):
            assert encode(outcome, max_batch_size=len(outcome)) == [record]
            written += 1
    assert written == len(decoded(folder)) - len(golden.damaged(folder))
    assert written > 0


@pytest.mark.parametrize("folder", ["open/types", "open/shop"])
def test_values_are_found_and_framed_again(folder: str) -> None:
    changed = 0
    for message, record, outcome in decoded(folder):
        assert record == Record(key=message.key, value=message.value)
        assert isinstance(outcome, list)
        seen: list[tuple[bytes, str]] = []

        def note(value: bytes, position: str, seen: list[tuple[bytes, str]] = seen) -> bytes:
            seen.append((value, position))
            return value[:1]

        shortened = map_values(record, note)
        assert map_values(record, lambda value, _: value) == record
        assert shortened.key == record.key
        assert shortened.value == b"".join(
            bytes(8) if isinstance(event, Watermark) else bytes(7) + b"\x01{" for event in outcome
        )
        for value, position in seen:
            start = int(position.removeprefix("byte "))
            assert (record.value or b"")[start : start + len(value)] == value
        changed += len(seen)
    assert changed > 0


def test_the_kinds_of_rows_there_are() -> None:
    """The variants differ in what images have, and the golden messages have all of it."""
    less = keyless = partitioned = numbered = 0
    for _, _, outcome in decoded("open-updated/shop"):
        for event in outcome:
            if isinstance(event, RowChange):
                partitioned += event.table_id is not None
                numbered += event.row_id != 0
                if event.op is Op.UPDATE:
                    assert event.before is not None
                    assert event.after is not None
                    less += len(event.before) < len(event.after)
                    keyless += not any(name in event.before for name in handle_key(event))
    assert less > 0
    assert keyless > 0
    assert partitioned > 0
    assert numbered > 0


def handle_key(event: RowChange) -> set[str]:
    """Return the names of the columns that have the flag of the handle key."""
    assert event.shape is not None
    return {
        column.name
        for column in event.shape.columns
        if column.flags is not None and ColumnFlag.HANDLE_KEY in column.flags
    }


def check_watermark(event: Any, wanted: Mapping[str, Any], _folder: str) -> None:
    assert event == Watermark(watermark_ts=wanted["commit_ts"], build_ts_ms=None)


def check_ddl(event: Any, wanted: Mapping[str, Any], _folder: str) -> None:
    assert event == DdlEvent(
        ddl_type=DDL_TYPES.get(wanted["ddl_type"], "ALTER"),
        commit_ts=wanted["commit_ts"],
        build_ts_ms=None,
        sql=wanted["sql"],
        database=wanted["database"],
        table=wanted["table"],
        schema=None,
        pre_schema=None,
        action_code=wanted["ddl_type_id"],
    )


def check_row(event: Any, wanted: Mapping[str, Any], folder: str) -> None:
    before, after = sent_images(wanted, folder, handle_key_only=event.handle_key_only)
    assert event.op.value == ("insert" if before is None else wanted["op"])
    assert event.commit_ts == wanted["commit_ts"]
    assert (event.database, event.table) == (wanted["database"], wanted["table"])
    assert event.table_id in (None, wanted["table_id"])
    assert (event.table_id is not None) is wanted["table"].startswith("part_")
    assert (event.build_ts_ms, event.schema_version, event.checksum) == (None, None, None)
    assert (event.claim_check_location is not None) is (
        event.handle_key_only and "claim-check" in folder
    )
    columns = {column["name"]: column for column in [*(before or []), *(after or [])]}
    kinds = {name: column["mysql_type"] for name, column in columns.items()}
    assert nulls(event.before) == wanted_nulls(before)
    assert nulls(event.after) == wanted_nulls(after)
    assert {column.name: column.mysql_type for column in event.shape.columns} == kinds
    first = event.before if event.after is None else event.after
    assert [column.name for column in event.shape.columns][: len(first)] == list(first)
    assert handle_key(event) == {name for name, column in columns.items() if column.get("handle")}
    assert {
        column.name for column in event.shape.columns if ColumnFlag.PRIMARY_KEY in column.flags
    } == {name for name, column in columns.items() if column.get("pk")}
    assert event.shape.primary_key is None
    assert event.shape.partial is (event.handle_key_only or event.op is Op.DELETE)


CHECKS = {RowChange: check_row, DdlEvent: check_ddl, Watermark: check_watermark}


def sent_images(
    wanted: Mapping[str, Any], folder: str, *, handle_key_only: bool
) -> tuple[Any, Any]:
    """Return the columns of both images that the changefeed's options let through."""
    before: Any = wanted["before"]
    after: Any = wanted["after"]
    cut_deletes = "open-updated" in folder or "delete-only" in folder
    if handle_key_only or (wanted["op"] == "delete" and cut_deletes):
        before, after = sent_columns(before), sent_columns(after)
    if wanted["op"] == "update" and "no-old" in folder:
        before = None
    if wanted["op"] == "update" and "open-updated" in folder:
        now = {column["name"]: column["value"] for column in after}
        before = [column for column in before if column["value"] != now[column["name"]]] or None
    return before, after
