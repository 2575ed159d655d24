"""Craft: decoders and encoder against messages of TiCDC's real encoder, and their truth."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from ticdc_assets.demo.simulator.encoders.column_types import type_code
from ticdc_assets.demo.simulator.encoders.craft import encode
from ticdc_assets.model.events import DdlEvent, Image, Op, RowChange, Watermark
from ticdc_assets.model.schemas import ColumnFlag
from ticdc_assets.wire.craft_layout import read_group, read_message
from ticdc_assets_tests.wire import golden
from ticdc_assets_tests.wire.golden_truth import compare_with_truth, decoded, sent_columns
from ticdc_assets_tests.wire.test_simple_golden import DDL_TYPES, nulls, wanted_nulls

pytestmark = golden.needs_golden

DELETE_CUT = "options/craft-delete-only-handle-key"
BATCH_SIZES = {"options/craft-batch1": 1, "options/craft-batch200": 200}
FOLDERS = (
    *(
        f"craft/{scenario}"
        for scenario in ("types", "shop", "shop-replay", "shop-ddlwm", "corrupt")
    ),
    *BATCH_SIZES,
    DELETE_CUT,
    "options/craft-force-replicate",
)

REASONS = {
    "zero bytes": {"unsupported_version"},
    "bit flip": {"unknown_term"},
    "other protocol": {"unsupported_version"},
    "deep nesting": {"unsupported_version"},
    "absurd length": {"sizes_differ"},
    "half key": {"unsupported_version"},
    "truncated value": {"truncated"},
    "json array": {"unsupported_version"},
    "trailing garbage": {"out_of_range"},
    "empty value": {"empty_value"},
    "null value": {"null_value"},
    "random bytes": {"unsupported_version"},
}
"""Why the damaged records are refused."""

IDENTICAL = {
    "craft/types": (45, 52),
    "craft/shop": (1739, 1995),
    "craft/shop-replay": (1947, 2215),
    "craft/shop-ddlwm": (2093, 2352),
    "craft/corrupt": (1722, 1971),
    "options/craft-batch1": (131, 131),
    "options/craft-batch200": (88, 88),
    "options/craft-delete-only-handle-key": (88, 88),
    "options/craft-force-replicate": (93, 93),
}
"""How many messages our encoder writes exactly as TiCDC did, of how many."""

FLOAT = type_code("float")
NUMBERS = {1, 2, 3, 4, 5, 8, 9, 13, 16, 247, 248}
"""Type codes of values that are numbers on the wire."""


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.thorough
def test_every_record_means_what_the_truth_says(folder: str) -> None:
    counts = compare_with_truth(folder, CHECKS, REASONS)
    assert counts.most <= BATCH_SIZES.get(folder, 16)
    assert counts.cut == 0


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.thorough
def test_every_message_is_written_again_byte_for_byte(folder: str) -> None:
    """But for bytes of FLOAT values that the next number of the message has overwritten."""
    truth = golden.events(folder)
    damaged = golden.damaged(folder)
    identical = written = 0
    for record, _, outcome in decoded(folder):
        place = (record.partition, record.offset)
        if isinstance(outcome, tuple) or place in damaged:
            continue
        events = [
            with_true_floats(event, line) if isinstance(event, RowChange) else event
            for event, line in zip(outcome, truth[place], strict=True)
        ]
        (again,) = encode(events, max_batch_size=BATCH_SIZES.get(folder, 16))
        assert again.key is None
        value, other = record.value or b"", again.value or b""
        assert len(value) == len(other)
        differing = {
            number: byte
            for number, (byte, ours) in enumerate(zip(value, other, strict=True))
            if byte != ours
        }
        assert not differing or differing.items() <= damaged_by_ticdc(value).items()
        identical += not differing
        written += 1
    assert (identical, written) == IDENTICAL[folder]


def with_true_floats(row: RowChange, line: Mapping[str, Any]) -> RowChange:
    """Return `row` with the FLOAT values that its table had."""

    def image(sent: Image | None, columns: list[dict[str, Any]] | None) -> Image | None:
        if sent is None or columns is None:
            return None
        floats = {
            column["name"]: column["value"]
            for column in columns
            if column["mysql_type"] == "float" and column["name"] in sent
        }
        return {**sent, **floats}

    return replace(
        row, before=image(row.before, line["before"]), after=image(row.after, line["after"])
    )


def damaged_by_ticdc(value: bytes) -> dict[int, int]:
    """Return the bytes of FLOAT values in `value` that the next number overwrites, by place.

    TiCDC reserves four of the eight bytes of a FLOAT; numbers get their bytes one after the other,
    texts elsewhere.
    """
    message = read_message(value)
    written: list[tuple[int, int, bytes]] = []
    for body in message.bodies:
        position = body.position
        for size in body.sizes:
            group = read_group(value, position, size, message.terms)
            columns = zip(group.types, group.starts, group.values, strict=True)
            written += [column for column in columns if column[0] in NUMBERS and column[2]]
            position += size
    return {
        start + 4 + place: byte
        for (code, start, _), (_, _, following) in pairwise(written)
        if code == FLOAT
        for place, byte in enumerate(following[:4])
    }


def check_watermark(event: Any, wanted: Mapping[str, Any], _folder: str) -> None:
    assert wanted["type"] == "watermark"
    assert (event.watermark_ts, event.build_ts_ms) == (wanted["commit_ts"], None)


def check_ddl(event: Any, wanted: Mapping[str, Any], _folder: str) -> None:
    assert wanted["type"] == "ddl"
    assert (event.commit_ts, event.build_ts_ms) == (wanted["commit_ts"], None)
    assert event.ddl_type == DDL_TYPES.get(wanted["ddl_type"], "ALTER")
    assert event.action_code == wanted["ddl_type_id"]
    assert event.sql == wanted["sql"]
    assert (event.database, event.table) == (wanted["database"], wanted["table"])
    assert (event.schema, event.pre_schema) == (None, None)


def check_row(event: Any, wanted: Mapping[str, Any], folder: str) -> None:
    assert wanted["type"] == "row"
    assert (event.commit_ts, event.build_ts_ms) == (wanted["commit_ts"], None)
    assert event.op.value == wanted["op"]
    assert (event.database, event.table) == (wanted["database"], wanted["table"])
    assert event.table_id in (None, wanted["table_id"])
    assert (event.schema_version, event.checksum, event.row_id) == (None, None, 0)
    only_key = event.op is Op.DELETE and folder == DELETE_CUT
    before, after = (sent_columns(wanted[name], only_key=only_key) for name in ("before", "after"))
    present = before if after is None else after
    assert nulls(event.before) == wanted_nulls(before)
    assert nulls(event.after) == wanted_nulls(after)
    shape = event.shape
    assert [(column.name, column.mysql_type) for column in shape.columns] == [
        (column["name"], column["mysql_type"]) for column in present
    ]
    for flag, word in ((ColumnFlag.HANDLE_KEY, "handle"), (ColumnFlag.PRIMARY_KEY, "pk")):
        assert [flag in column.flags for column in shape.columns] == [
            column.get(word, False) for column in present
        ]
    assert shape.primary_key is None
    assert shape.partial is (event.op is Op.DELETE)


CHECKS = {RowChange: check_row, DdlEvent: check_ddl, Watermark: check_watermark}
