"""Canal-JSON: decoders and encoder against messages of TiCDC's real encoder, and their truth."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from ticdc_assets.demo.simulator.encoders import encode
from ticdc_assets.model.events import DdlEvent, Op, RowChange, Watermark
from ticdc_assets.model.tso import from_physical_ms, physical_ms
from ticdc_assets.wire import WireFormat
from ticdc_assets_tests.wire import golden
from ticdc_assets_tests.wire.comparing import assert_equal
from ticdc_assets_tests.wire.golden_truth import compare_with_truth, decoded, sent_columns
from ticdc_assets_tests.wire.test_simple_golden import DDL_TYPES, REASONS, nulls, wanted_nulls

pytestmark = golden.needs_golden

COMPRESSIONS = ("options/canal-json-lz4", "options/canal-json-snappy")
CUT = (
    "options/canal-json-claim-check",
    "options/canal-json-claim-check-raw",
    "options/canal-json-handle-key-only",
)
"""Folders with rows that were too large and have only their handle key."""
FOLDERS = (
    *(
        f"canal-json/{scenario}"
        for scenario in ("types", "shop", "shop-replay", "shop-ddlwm", "corrupt")
    ),
    *(
        f"canal-json-{variant}/{scenario}"
        for variant in ("compat", "updated", "plain")
        for scenario in ("types", "shop")
    ),
    *CUT,
    "options/canal-json-delete-only-handle-key",
    "options/canal-json-force-replicate",
    *COMPRESSIONS,
)


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.thorough
def test_every_record_means_what_the_truth_says(folder: str) -> None:
    counts = compare_with_truth(folder, CHECKS, REASONS)
    assert counts.most == 1
    assert (counts.cut > 0) is (folder in CUT)


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.thorough
def test_every_message_is_written_again_byte_for_byte(folder: str) -> None:
    """But for the order inside `mysqlType`, which is random in Go."""
    written = 0
    for _, record, outcome in decoded(folder):
        if isinstance(outcome, list):
            (again,) = encode(WireFormat.CANAL_JSON, outcome)
            assert again.key is None
            assert types_apart(again.value) == types_apart(record.value)
            written += 1
    assert written == len(decoded(folder)) - len(golden.damaged(folder))
    assert written > 0


def types_apart(value: bytes | None) -> tuple[str, dict[str, str]]:
    """Return the text of a message without the object `mysqlType`, and that object."""
    before, name, after = (value or b"").decode().partition(',"mysqlType":{')
    if not name:
        return before, {}
    # Nothing but a member of the message looks so: values are text, and quotes in them escaped.
    types, end = json.JSONDecoder().raw_decode("{" + after)
    return before + name + after[end - 1 :], types


@pytest.mark.parametrize("folder", COMPRESSIONS)
def test_compressed_messages_are_refused_where_none_are_expected(folder: str) -> None:
    values = [record.value for record in golden.messages(folder)]
    outcomes = assert_equal(values, WireFormat.CANAL_JSON)
    assert {outcome[0] for outcome in outcomes} == {"invalid_utf8"}


def test_updates_with_fewer_old_columns_and_with_old_nulls_are_among_them() -> None:
    less = null = 0
    for _, _, outcome in decoded("canal-json-updated/shop"):
        (event,) = outcome
        if isinstance(event, RowChange) and event.op is Op.UPDATE:
            assert event.before is not None
            assert event.after is not None
            less += len(event.before) < len(event.after)
            null += None in event.before.values()
    assert less > 0
    assert null > 0


def check_commit_ts(commit_ts: int, wanted: int, *, es_only: bool, folder: str) -> None:
    assert es_only is ("plain" in folder)
    assert commit_ts == (from_physical_ms(physical_ms(wanted)) if es_only else wanted)


def check_watermark(event: Any, wanted: Mapping[str, Any], folder: str) -> None:
    assert "plain" not in folder
    assert event.watermark_ts == wanted["commit_ts"]
    assert event.build_ts_ms > 0


def check_ddl(event: Any, wanted: Mapping[str, Any], folder: str) -> None:
    check_commit_ts(event.commit_ts, wanted["commit_ts"], es_only=event.es_only, folder=folder)
    assert event.build_ts_ms > 0
    assert event.ddl_type == DDL_TYPES.get(wanted["ddl_type"], "ALTER")
    assert event.sql == wanted["sql"]
    assert (event.database, event.table) == (wanted["database"], wanted["table"])
    assert (event.schema, event.pre_schema, event.action_code) == (None, None, None)


def check_row(event: Any, wanted: Mapping[str, Any], folder: str) -> None:
    check_commit_ts(event.commit_ts, wanted["commit_ts"], es_only=event.es_only, folder=folder)
    assert event.build_ts_ms > 0
    assert event.op.value == wanted["op"]
    assert (event.database, event.table) == (wanted["database"], wanted["table"])
    assert (event.table_id, event.schema_version, event.checksum) == (None, None, None)
    assert event.row_id == 0
    assert (event.claim_check_location is not None) is (
        event.handle_key_only and "claim-check" in folder
    )
    only_key = event.handle_key_only or (
        event.op is Op.DELETE and folder.endswith("delete-only-handle-key")
    )
    before, after = (sent_columns(wanted[name], only_key=only_key) for name in ("before", "after"))
    present = before if after is None else after
    kinds = {column["name"]: column["mysql_type"] for column in present}
    if after is not None and before is not None and ("compat" in folder or "updated" in folder):
        # Only what changed is sent, NULL included.
        now = {column["name"]: column["value"] for column in after}
        before = [column for column in before if column["value"] != now[column["name"]]]
    assert nulls(event.before) == wanted_nulls(before)
    assert nulls(event.after) == wanted_nulls(after)
    shape = event.shape
    assert [column.name for column in shape.columns] == list(kinds)
    assert {column.flags for column in shape.columns} <= {None}
    for column in shape.columns:
        base = column.mysql_type.split("(")[0].split(" ")[0]
        assert base == kinds[column.name]
        typed = "(" in column.mysql_type
        assert typed is False or "compat" in folder
    assert set(shape.primary_key) == {column["name"] for column in present if column.get("pk")}
    assert shape.partial is (event.handle_key_only or event.op is Op.DELETE)


CHECKS = {RowChange: check_row, DdlEvent: check_ddl, Watermark: check_watermark}
