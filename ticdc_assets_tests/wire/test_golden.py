"""Decoders and encoders of all formats against messages of TiCDC's real encoders, and their truth.

The Simple protocol says all that the truth says of schemas. The other formats say of a row how each
of its columns was sent, and nothing else. What an option of an encoder leaves out is in
`sent_images`.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ticdc_assets.demo.simulator.encoders import craft, encode, open_protocol
from ticdc_assets.demo.simulator.shapes import shape_of
from ticdc_assets.model.events import Bootstrap, DdlEvent, Event, Op, RowChange, Watermark
from ticdc_assets.model.mysql_types import fractional_digits
from ticdc_assets.model.schemas import ColumnFlag, ColumnSchema, IndexSchema, TableSchema
from ticdc_assets.model.tso import from_physical_ms, physical_ms
from ticdc_assets.wire import WireFormat
from ticdc_assets.wire.compression import decompressed
from ticdc_assets.wire.record import Record
from ticdc_assets_tests.golden import NEW_SCENARIOS, Scenario
from ticdc_assets_tests.wire import golden
from ticdc_assets_tests.wire.comparing import Outcome, assert_equal

SIMPLE = (WireFormat.SIMPLE_JSON, WireFormat.SIMPLE_AVRO)
AVRO, OPEN = WireFormat.SIMPLE_AVRO, WireFormat.OPEN_PROTOCOL
CANAL, CRAFT = WireFormat.CANAL_JSON, WireFormat.CRAFT

REASONS = {
    "zero bytes": ("invalid_json", "unknown_branch", "empty_value", "unsupported_version"),
    "bit flip": (
        *("invalid_json invalid_utf8", "invalid_length"),
        *("invalid_json missing_field", "unknown_term"),
    ),
    "other protocol": (
        *("missing_field", "unknown_branch", "length_beyond_end", "unsupported_version"),
    ),
    "deep nesting": ("too_deep", "unknown_branch", "length_beyond_end", "unsupported_version"),
    "absurd length": ("invalid_utf8", "invalid_utf8", "length_beyond_end", "sizes_differ"),
    "half key": (
        *("invalid_json trailing_bytes", "unknown_branch"),
        *("length_beyond_end", "unsupported_version"),
    ),
    "truncated value": (
        *("invalid_json", "invalid_length truncated", "length_beyond_end", "truncated"),
    ),
    "json array": ("wrong_type", "unknown_branch", "truncated", "unsupported_version"),
    "trailing garbage": ("trailing_bytes", "trailing_bytes", "trailing_bytes", "out_of_range"),
    "empty value": ("empty_value",) * 4,
    "null value": ("null_value",) * 4,
    "random bytes": ("invalid_utf8", "unknown_branch", "length_beyond_end", "unsupported_version"),
}
"""Why damaged records are refused, by what was done to them: in JSON, Simple Avro, Open, Craft."""

COLUMN_OF_REASONS = {WireFormat.SIMPLE_JSON: 0, CANAL: 0, AVRO: 1, OPEN: 2, CRAFT: 3}

STILL_VALID: Mapping[tuple[str, int, int], str] = {
    ("craft/corrupt", 3, 91): "one bit of a text: the format has no checksum",
    ("simple-avro/corrupt", 0, 30): "a bit of a column's name was flipped; it is a name still",
}
"""Damaged records that are still messages, by (folder, partition, offset), and why."""

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

ONLY_CHANGED = ("open-updated", "canal-json-updated", "canal-json-compat")
"""Variants in which the image before an update has only what changed."""

BATCH_SIZES = {"batch1": 1, "batch200": 200}
"""How many rows a message may have, by the option; 16 without one."""

LENGTH_TELLS_DIGITS = ("datetime", "timestamp", "time")
"""Types whose digits of fractional seconds Simple says in JSON and not in Avro, where the display
length tells them as well (golden/QUIRKS.md B7)."""

each_folder = pytest.mark.parametrize("folder", golden.FOLDERS)


@cache
def decoded(folder: str) -> list[tuple[golden.Place, Record, Outcome]]:
    """Return each record before compression, its place, and what both decoders say about it."""
    of = golden.scenario(folder)
    records = [
        decompressed(of.wire_format, Record(key=item.key, value=item.value), of.compression)
        for item in of.records
    ]
    places = [(item.partition, item.offset) for item in of.records]
    return list(zip(places, records, assert_equal(records, of.wire_format), strict=True))


def events_of(folder: str) -> list[tuple[golden.Place, Event]]:
    """Return the events of a folder, and the places of their records."""
    return [
        (place, event)
        for place, _, outcome in decoded(folder)
        if isinstance(outcome, list)
        for event in outcome
    ]


# What a record means ------------------------------------------------------------------------------


@golden.needs_golden
@each_folder
@pytest.mark.thorough
def test_every_record_means_what_the_truth_says(folder: str) -> None:
    """Every event is there, none besides, and damaged records are refused for the right reason."""
    of = golden.scenario(folder)
    truth, damaged = golden.events(folder), golden.damaged(folder)
    refused = set[golden.Place]()
    reasons: dict[str, set[str]] = {}
    counts, most = Counter[str](), 0
    for place, _, outcome in decoded(folder):
        if isinstance(outcome, tuple):
            refused.add(place)
            reasons.setdefault(damaged[place], set()).add(outcome[0])
            continue
        if place in damaged:
            assert (folder, *place) in STILL_VALID
            continue
        lines = truth.pop(place)
        assert [line["index"] for line in lines] == list(range(len(outcome)))
        most = max(most, len(outcome))
        for event, line in zip(outcome, lines, strict=True):
            check(event, line, of)
            if isinstance(event, RowChange):
                counts["rows"] += 1
                counts["cut"] += event.handle_key_only
                counts["checked"] += event.checksum is not None
    assert truth == {}
    still_valid = {(partition, offset) for name, partition, offset in STILL_VALID if name == folder}
    assert refused == damaged.keys() - still_valid
    number = COLUMN_OF_REASONS[of.wire_format]
    assert reasons == {
        damage: set(words[number].split()) for damage, words in REASONS.items() if damaged
    }
    assert counts["rows"] > 0
    assert (counts["cut"] > 0) is of.option.startswith(("claim-check", "handle-key-only"))
    assert (counts["checked"] > 0) is (of.option == "checksum")
    assert most <= (BATCH_SIZES.get(of.option, 16) if of.wire_format in (OPEN, CRAFT) else 1)


KINDS = {"row": RowChange, "ddl": DdlEvent, "bootstrap": Bootstrap, "watermark": Watermark}


def check(event: Any, line: Mapping[str, Any], of: Scenario) -> None:
    """Assert that an event is what a line of the truth says, as its format says it."""
    assert type(event) is KINDS[line["type"]]
    has_build_time = of.wire_format in (*SIMPLE, CANAL)
    assert (event.build_ts_ms > 0) if has_build_time else event.build_ts_ms is None
    is_plain = of.variant == "canal-json-plain"
    if isinstance(event, Bootstrap):
        assert comparable(event.schema) == wanted_schema(line["schema"], of)
        return
    exact = line["commit_ts"]
    if isinstance(event, Watermark):
        assert not is_plain
        assert event.watermark_ts == exact
        return
    assert event.es_only is is_plain
    assert event.commit_ts == (from_physical_ms(physical_ms(exact)) if is_plain else exact)
    (check_ddl if isinstance(event, DdlEvent) else check_row)(event, line, of)


def check_ddl(event: Any, line: Mapping[str, Any], of: Scenario) -> None:
    assert event.ddl_type == DDL_TYPES.get(line["ddl_type"], "ALTER")
    assert event.sql == line["sql"]
    if of.wire_format in SIMPLE:
        # Only a message with a schema names its table.
        named = line["schema"] or line["pre_schema"] or {"database": "", "table": ""}
        for name in ("schema", "pre_schema"):
            assert comparable(getattr(event, name)) == wanted_schema(line[name], of)
    else:
        named = line
        assert (event.schema, event.pre_schema) == (None, None)
        assert event.action_code == (None if of.wire_format is CANAL else line["ddl_type_id"])
    assert (event.database, event.table) == (named["database"], named["table"])


def check_row(event: Any, line: Mapping[str, Any], of: Scenario) -> None:
    """Assert that a row has the images that were sent, and what its format says of columns."""
    before, after = sent_images(line, of, handle_key_only=event.handle_key_only)
    assert event.op.value == ("insert" if before is None else line["op"])
    assert (event.database, event.table) == (line["database"], line["table"])
    for image, sent_image in ((event.before, before), (event.after, after)):
        assert (image is None) is (sent_image is None)
        assert {name: value is None for name, value in (image or {}).items()} == {
            column["name"]: column["value"] is None for column in sent_image or ()
        }
    assert (event.claim_check_location is not None) is (
        event.handle_key_only and of.claim_check is not None
    )
    if of.wire_format in SIMPLE:
        assert (event.table_id, event.schema_version) == (line["table_id"], line["schema_version"])
        return
    assert (event.schema_version, event.checksum) == (None, None)
    assert event.table_id in (None, line["table_id"])
    if of.wire_format is OPEN:
        assert (event.table_id is not None) is line["table"].startswith("part_")
    else:
        assert event.row_id == 0
    shape = event.shape
    assert shape.partial is (event.handle_key_only or event.op is Op.DELETE)
    sent = {column["name"]: column for column in [*(before or ()), *(after or ())]}
    present = [column["name"] for column in (before if after is None else after)]
    names = [column.name for column in shape.columns]
    if of.wire_format is CANAL:
        assert event.table_id is None
        assert names == present
        assert {column.flags for column in shape.columns} <= {None}
        assert set(shape.primary_key) == {name for name in present if sent[name].get("pk")}
        for column in shape.columns:
            base = column.mysql_type.split("(")[0].split(" ")[0]
            assert base == sent[column.name]["mysql_type"]
            assert "(" not in column.mysql_type or of.variant == "canal-json-compat"
        return
    assert {column.name: column.mysql_type for column in shape.columns} == {
        name: column["mysql_type"] for name, column in sent.items()
    }
    # Open Protocol has columns by name, Craft in the order of the table.
    first = list(event.before if event.after is None else event.after)
    assert names[: len(first)] == (present if of.wire_format is CRAFT else first)
    for flag, word in ((ColumnFlag.HANDLE_KEY, "handle"), (ColumnFlag.PRIMARY_KEY, "pk")):
        assert flagged(event, flag) == {name for name, column in sent.items() if column.get(word)}
    assert shape.primary_key is None


def flagged(event: RowChange, flag: ColumnFlag) -> set[str]:
    """Return the names of the columns of a row that have a flag."""
    assert event.shape is not None
    return {
        column.name
        for column in event.shape.columns
        if column.flags is not None and flag in column.flags
    }


def sent_images(line: Mapping[str, Any], of: Scenario, *, handle_key_only: bool) -> tuple[Any, Any]:
    """Return the columns of both images that the changefeed's options let through."""
    before, after, op = line["before"], line["after"], line["op"]
    cut_deletes = of.variant == "open-updated" or (
        # Simple does not know the option.
        of.option == "delete-only-handle-key" and of.wire_format not in SIMPLE
    )
    if handle_key_only or (op == "delete" and cut_deletes):
        before, after = (
            columns and [column for column in columns if column.get("handle")]
            for columns in (before, after)
        )
    if op == "update" and of.option == "no-old-value":
        before = None
    if op == "update" and of.variant in ONLY_CHANGED:
        now = {column["name"]: column["value"] for column in after}
        before = [column for column in before if column["value"] != now[column["name"]]]
        if of.wire_format is OPEN:
            before = before or None
    return before, after


def comparable(schema: TableSchema | None) -> TableSchema | None:
    """Return a schema without what the truth does not know: whether indexes may be NULL."""
    indexes = schema and tuple(replace(index, nullable=False) for index in schema.indexes)
    return schema and replace(schema, indexes=indexes)


def wanted_schema(schema: Mapping[str, Any] | None, of: Scenario) -> TableSchema | None:
    """Return the schema that the Simple protocol sends of one of the truth."""
    if schema is None:
        return None
    indexes = [
        (index["name"], index["unique"], index["primary"], tuple(index["columns"]))
        for index in schema["indexes"] or []
    ]
    if schema["pk"] and not any(primary for _, _, primary, _ in indexes):
        # A clustered integer key is no index in TiDB; the protocol makes one of it.
        indexes.append(("primary", True, True, tuple(schema["pk"])))
    return TableSchema(
        database=schema["database"],
        table=schema["table"],
        table_id=schema["table_id"],
        version=schema["version"],
        columns=tuple(wanted_column(column, of) for column in schema["columns"]),
        indexes=tuple(
            IndexSchema(name=name, unique=unique, primary=primary, nullable=False, columns=columns)
            for name, unique, primary, columns in indexes
        ),
    )


def wanted_column(column: Mapping[str, Any], of: Scenario) -> ColumnSchema:
    word, default = column["mysqlType"], column["default"]
    # TiCDC does not send it for FLOAT and DOUBLE: it says -1 mostly.
    is_lost = word in ("float", "double") or (
        of.wire_format is AVRO and word in LENGTH_TELLS_DIGITS
    )
    return ColumnSchema(
        name=column["name"],
        mysql_type=word,
        nullable=column["nullable"],
        # The default of a BIT is sent as a number.
        default=int(default) if word == "bit" and default is not None else default,
        charset=column["charset"],
        collation=column["collate"],
        length=column["length"],
        decimal=0 if is_lost else column["decimal"],
        unsigned=column["unsigned"],
        zerofill=column["zerofill"],
        elements=tuple(column.get("elements") or ()),
    )


@golden.needs_golden
@pytest.mark.parametrize("folder", ["simple-avro/types", "simple-avro/shop"])
def test_digits_of_fractional_seconds_are_known_from_the_length(folder: str) -> None:
    seen = Counter[int]()
    truth = golden.events(folder)
    for place, event in events_of(folder):
        (line,) = truth[place]
        for name in ("schema", "pre_schema"):
            ours: TableSchema | None = getattr(event, name, None)
            for wanted in line[name]["columns"] if ours is not None else ():
                column = ours and ours.column(wanted["name"])
                assert column is not None
                if column.mysql_type in LENGTH_TELLS_DIGITS:
                    assert fractional_digits(column) == wanted["decimal"]
                    seen[wanted["decimal"]] += 1
    assert seen.keys() >= {0, 3, 6}


# What is written again ----------------------------------------------------------------------------


@golden.needs_golden
@each_folder
@pytest.mark.thorough
def test_every_message_is_written_again_byte_for_byte(folder: str) -> None:
    """But for what is random in TiCDC, and for FLOAT values of Craft."""
    of, damaged = golden.scenario(folder), golden.damaged(folder)
    schemas: golden.Schemas = {}
    if of.wire_format is AVRO:
        schemas = golden.schemas_of(event for _, event in events_of(folder))
    written = 0
    for place, record, events in decoded(folder):
        if place in damaged:
            continue
        assert isinstance(events, list)
        if of.wire_format is CRAFT and has_floats(events):
            continue
        written += 1
        match of.wire_format:
            case WireFormat.OPEN_PROTOCOL:
                assert open_protocol.encode(events, max_batch_size=len(events)) == [record]
            case WireFormat.CRAFT:
                most = BATCH_SIZES.get(of.option, 16)
                assert craft.encode(events, max_batch_size=most) == [replace(record, key=None)]
            case WireFormat.CANAL_JSON:
                (again,) = encode(of.wire_format, events)
                assert again.key is None
                assert types_apart(again.value) == types_apart(record.value)
            case _:
                shaped = [with_shape(event, schemas) if schemas else event for event in events]
                wanted = [Record(key=None, value=record.value)]
                assert encode(of.wire_format, shaped) == wanted
    assert written > 0


def types_apart(value: bytes | None) -> tuple[str, dict[str, str]]:
    """Return the text of a message of Canal-JSON without `mysqlType`, and that object.

    The order inside it is random in Go.
    """
    before, name, after = (value or b"").decode().partition(',"mysqlType":{')
    if not name:
        return before, {}
    # Nothing but a member of the message looks so: values are text, and quotes in them escaped.
    types, end = json.JSONDecoder().raw_decode("{" + after)
    return before + name + after[end - 1 :], types


def with_shape(event: Event, schemas: golden.Schemas) -> Event:
    """Return an event of Simple Avro with the types by which its values are written."""
    if not isinstance(event, RowChange):
        return event
    schema = schemas[event.database, event.table, event.schema_version]
    return replace(event, shape=shape_of(schema))


def has_floats(events: Sequence[Event]) -> bool:
    """Return whether rows have FLOAT values, parts of which TiCDC's Craft encoder overwrites."""
    return any(
        column.mysql_type == "float"
        for event in events
        if isinstance(event, RowChange) and event.shape is not None
        for column in event.shape.columns
    )


# The dialect of pingcap/ticdc ---------------------------------------------------------------------


@pytest.mark.parametrize(("variant", "name"), NEW_SCENARIOS)
@pytest.mark.thorough
def test_every_record_means_what_the_truth_says_in_the_new_dialect(
    variant: str, name: str, golden_new_dir: Callable[..., Path]
) -> None:
    of = Scenario(golden_new_dir(variant, name))
    wanted: dict[golden.Place, list[object]] = {}
    for line in of.truth:
        # send-all-bootstrap-at-start, in a format that has no bootstraps.
        is_bare = line["type"] == "ddl" and not line["commit_ts"]
        kind = "bootstrap" if is_bare else line["type"]
        said = (kind, *(line[name] for name in COMPARED[kind]))
        wanted.setdefault((line["partition"], line["offset"]), []).append(said)
    records = [Record(key=item.key, value=item.value) for item in of.records]
    for item, outcome in zip(of.records, assert_equal(records, of.wire_format), strict=True):
        assert isinstance(outcome, list), outcome
        assert [meant(event) for event in outcome] == wanted[item.partition, item.offset]


COMPARED = {
    "row": ("op", "commit_ts", "database", "table"),
    "ddl": ("commit_ts", "sql"),
    "watermark": ("commit_ts",),
    "bootstrap": (),
}
"""What is compared of each kind of event in the new dialect."""


def meant(event: Event) -> tuple[object, ...]:
    """Return the kind of an event, and what is compared of it."""
    if isinstance(event, Watermark):
        return ("watermark", event.watermark_ts)
    (kind,) = (kind for kind, of_kind in KINDS.items() if type(event) is of_kind)
    return (kind, *(getattr(event, name) for name in COMPARED[kind]))
