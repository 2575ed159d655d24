"""Both decoders over the same values, compared to the last reason and position."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any
from unittest import mock

import pyarrow as pa

from ticdc_assets.base.errors import WireError
from ticdc_assets.model.events import Bootstrap, DdlEvent, Event, Op, RowChange, Watermark
from ticdc_assets.model.schemas import schema_from_json
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets.wire import batch as batch_module
from ticdc_assets.wire.batch import decode_batch
from ticdc_assets.wire.record import Record
from ticdc_assets.wire.rows import (
    CHANGE_SCHEMA,
    checksum_from_json,
    image_from_json,
    shape_from_text,
)

Outcome = list[Event] | tuple[str, str, str, str]
Input = Record | bytes | None
"""A record, or the value of one without a key."""

FIRST_OFFSET = 1000
"""The offset of the first record of a batch."""

_REASON = re.compile(r"[a-z][a-z0-9_]*\Z")
_POSITION = re.compile(r"\$|(?:key )?byte \d+\Z")
_MOST_TEXT, _MOST_POSITION = 200, 1000


def record_of(value: Input) -> Record:
    """Return `value` as a record."""
    return value if isinstance(value, Record) else Record(key=None, value=value)


def batch_of(values: Sequence[Input]) -> pa.RecordBatch:
    """Return a batch with one record for each value."""
    count = len(values)
    records = [record_of(value) for value in values]
    return pa.RecordBatch.from_pydict(
        {
            "topic": ["topic"] * count,
            "partition": [3] * count,
            "offset": list(range(FIRST_OFFSET, FIRST_OFFSET + count)),
            "key": [record.key for record in records],
            "value": [record.value for record in records],
        },
        schema=pa.schema(
            [
                ("topic", pa.string()),
                ("partition", pa.int32()),
                ("offset", pa.int64()),
                ("key", pa.binary()),
                ("value", pa.binary()),
            ]
        ),
    )


def decoded(value: Input, wire_format: WireFormat = WireFormat.SIMPLE_JSON) -> Outcome:
    """Return what the reference decoder says: the events, or the parts of its error."""
    try:
        return decode(wire_format, record_of(value))
    except WireError as error:
        parts = (error.reason, error.position, error.expected, error.got)
    assert wrong_error(parts) is None, parts
    return parts


def wrong_error(parts: Sequence[Any]) -> str | None:
    """Return what is wrong with the parts of a `WireError`, None if nothing is."""
    if not all(type(part) is str for part in parts):
        return "an error whose parts are no texts"
    reason, position, expected, got = parts
    if _REASON.match(reason) is None:
        return "an error whose reason is no slug"
    if _POSITION.match(position) is None or len(position) > _MOST_POSITION:
        return "an error whose position is none"
    if not 0 < len(expected) <= _MOST_TEXT or not 0 < len(got) <= _MOST_TEXT:
        return "an error whose texts are empty or too long"
    try:
        "".join(parts).encode()
    except UnicodeEncodeError:
        return "an error whose texts cannot be stored"
    return None


def batch_decoded(
    values: Sequence[Input], wire_format: WireFormat = WireFormat.SIMPLE_JSON
) -> list[Outcome]:
    """Return what the batch decoder says about each value, the same with loops and without."""
    records = batch_of(values)
    with mock.patch.object(batch_module, "loops_pay", return_value=False):
        few = decode_batch(wire_format, records)
    batch = decode_batch(wire_format, records)
    few.validate(full=True)
    for one, other in zip(few.to_pylist(), batch.to_pylist(), strict=True):
        assert one == other, values[one["offset"] - FIRST_OFFSET]
    outcomes = outcomes_of(batch, len(values))
    assert all(outcomes)
    return outcomes


def outcomes_of(batch: pa.RecordBatch, count: int) -> list[Outcome]:
    """Return what decoded rows say of each record of `batch_of` so many; none is out of place."""
    batch.validate(full=True)
    assert batch.schema == CHANGE_SCHEMA
    outcomes: list[Outcome] = [[] for _ in range(count)]
    for row in batch.to_pylist():
        assert (row["topic"], row["partition"]) == ("topic", 3), row
        number = row["offset"] - FIRST_OFFSET
        events = outcomes[number]
        assert isinstance(events, list), row
        assert row["index"] == len(events), row
        if row["kind"] == "error":
            assert not events, row
            outcomes[number] = (
                row["error_reason"],
                row["error_position"],
                row["error_expected"],
                row["error_got"],
            )
        else:
            events.append(event_of(row))
    return outcomes


def assert_equal(
    values: Sequence[Input], wire_format: WireFormat = WireFormat.SIMPLE_JSON
) -> list[Outcome]:
    """Assert that both decoders say the same about `values`, and return it."""
    outcomes = [decoded(value, wire_format) for value in values]
    fast_outcomes = batch_decoded(values, wire_format)
    for value, fast, slow in zip(values, fast_outcomes, outcomes, strict=True):
        assert fast == as_stored(slow), value
    return outcomes


def only(outcome: Outcome) -> Any:
    """Return the one event of an outcome."""
    assert isinstance(outcome, list), outcome
    (event,) = outcome
    return event


def assert_refused(
    cases: Iterable[tuple[Input, str, str]], wire_format: WireFormat = WireFormat.SIMPLE_JSON
) -> None:
    """Assert that both decoders refuse each value for a reason at a position."""
    values, reasons, positions = zip(*cases, strict=True)
    outcomes = assert_equal(values, wire_format)
    for value, *why, outcome in zip(values, reasons, positions, outcomes, strict=True):
        assert outcome[:2] == (*why,), repr(value)[:300]


def as_stored(outcome: Outcome) -> Outcome:
    """Return `outcome` without what only an encoder needs, which no column keeps."""
    if isinstance(outcome, tuple):
        return outcome
    return [
        replace(event, row_id=0)
        if isinstance(event, RowChange)
        else replace(event, action_code=None)
        if isinstance(event, DdlEvent)
        else event
        for event in outcome
    ]


def event_of(row: Mapping[str, Any]) -> Event:
    """Return the event that a row of a batch of changes stands for."""
    return _EVENTS[row["kind"]](row)


def _columns_of(event: type[Event], row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a row that are attributes of a type of event."""
    return {field.name: row[field.name] for field in fields(event) if field.name in row}


def _image(text: str | None) -> Any:
    return None if text is None else image_from_json(text)


def _schema(text: str | None) -> Any:
    return None if text is None else schema_from_json(json.loads(text), "$")


def _row(row: Mapping[str, Any]) -> Event:
    checksum = row["checksum"]
    read = {
        "op": Op(row["op"]),
        "before": _image(row["before"]),
        "after": _image(row["after"]),
        "checksum": None if checksum is None else checksum_from_json(checksum),
        "shape": None if row["shape"] is None else shape_from_text(row["shape"]),
    }
    return RowChange(**_columns_of(RowChange, row) | read)


def _ddl(row: Mapping[str, Any]) -> Event:
    schema, pre_schema = _schema(row["schema"]), _schema(row["pre_schema"])
    named = schema or pre_schema
    assert row["table_id"] == (named and named.table_id)
    assert row["schema_version"] == (schema and schema.version)
    return DdlEvent(**_columns_of(DdlEvent, row) | {"schema": schema, "pre_schema": pre_schema})


def _bootstrap(row: Mapping[str, Any]) -> Event:
    schema = _schema(row["schema"])
    assert row["commit_ts"] is None
    if schema is None:
        cited = ("database", "table", "table_id", "schema_version")
        assert all(row[name] is None for name in cited)
        return Bootstrap(build_ts_ms=row["build_ts_ms"], schema=None)
    assert (row["database"], row["table"]) == (schema.database, schema.table)
    assert (row["table_id"], row["schema_version"]) == (schema.table_id, schema.version)
    return Bootstrap(build_ts_ms=row["build_ts_ms"], schema=schema)


def _watermark(row: Mapping[str, Any]) -> Event:
    return Watermark(watermark_ts=row["commit_ts"], build_ts_ms=row["build_ts_ms"])


_EVENTS = {"row": _row, "ddl": _ddl, "bootstrap": _bootstrap, "watermark": _watermark}
