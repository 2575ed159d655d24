"""Lines of events that no golden message shows: what is held, what is refused, what is kept."""

import gc
import itertools
import tracemalloc
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from ticdc_assets.demo.simulator.encoders import encode
from ticdc_assets.model.events import Event, RowChange, Watermark
from ticdc_assets.model.schemas import ColumnFlag, RowShape, SentColumn
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.source.event_lines import CaptureFormat, event_lines
from ticdc_assets.wire import WireFormat
from ticdc_assets.wire.record import Record
from ticdc_assets_tests.events import ddl_event, row_event

Line = dict[str, Any]

SHAPE = RowShape(
    columns=(
        SentColumn("id", "int", ColumnFlag.BINARY | ColumnFlag.HANDLE_KEY | ColumnFlag.PRIMARY_KEY),
        SentColumn("e", "enum", ColumnFlag.NULLABLE),
        SentColumn("b", "bit", ColumnFlag.BINARY | ColumnFlag.NULLABLE | ColumnFlag.UNSIGNED),
    )
)


CREATE = ddl_event(
    10, "create table t (id int primary key, e enum('x','y'), b bit(4))", action_code=3
)


def insert(ts: int, *, key: str = "1", e: str | None = "1", b: str | None = None) -> RowChange:
    return row_event(ts, after={"id": key, "e": e, "b": b}, shape=SHAPE)


def captured(records: Iterable[Record], first: int = 0) -> Iterator[CaptureRecord]:
    for offset, record in enumerate(records, first):
        yield CaptureRecord(
            topic="t",
            partition=0,
            offset=offset,
            timestamp_ms=-1,
            key=record.key,
            value=record.value,
        )


def lines(*events: Event, wire_format: WireFormat = WireFormat.OPEN_PROTOCOL) -> list[Line]:
    """Return the lines of events that are sent one by one."""
    records = [record for event in events for record in encode(wire_format, [event])]
    return list(event_lines(captured(records), CaptureFormat(wire_format=wire_format)))


FIRST: Line = {"topic": "t", "partition": 0, "offset": 0, "index": 0}
FIRST |= {"database": "d", "table": "t", "schema_version": None}
ROW: Line = {"op": "insert", "commit_ts": 11}


def test_lines_have_every_field() -> None:
    ddl, row = lines(CREATE, insert(11))
    assert ddl == FIRST | {"type": "ddl", "ddl_type": "CREATE", "commit_ts": 10, "sql": CREATE.sql}
    after = {"id": "1", "e": "x", "b": None}
    assert row == FIRST | ROW | {"offset": 1, "type": "row", "before": None, "after": after}


def test_labels_come_with_the_ddl() -> None:
    none, held, _, known = lines(insert(10, e=None), insert(11, e="2"), CREATE, insert(11, e="2"))
    assert held["held"] is True
    assert held["after"] == {"id": "1", "e": "2", "b": None}
    for line, label in ((none, None), (known, "y")):
        assert "held" not in line
        assert line["after"]["e"] == label


@pytest.mark.parametrize("values", [{"e": "3"}, {"b": "16"}])
def test_what_only_another_schema_can_read_is_held(values: dict[str, str]) -> None:
    """Three labels, or five bits: the DDL that made them is in a partition not yet read."""
    _, line = lines(CREATE, insert(21, **values))
    assert line["type"] == "row"
    assert line["held"] is True
    assert line["after"] == {"id": "1", "e": "1", "b": None} | values
    sql = "alter table t modify e enum('x','y','z'), modify b bit(5)"
    change = ddl_event(20, sql, action_code=12)
    *_, line = lines(CREATE, change, insert(21, **values))
    assert "held" not in line


def test_what_no_schema_can_read_is_an_error() -> None:
    spelled = RowShape(columns=(SentColumn("id", "int"),), primary_key=("id",))
    row = replace(insert(11), build_ts_ms=1, shape=spelled, after={"id": "x" * 300})
    (line,) = lines(row, wire_format=WireFormat.CANAL_JSON)
    assert line.pop("got") == repr("x" * 300)[:79] + "…"
    fault = {"reason": "invalid_integer", "position": "after.id", "expected": "integer"}
    assert line == FIRST | ROW | fault | {"type": "error"}


def test_rows_of_one_moment_that_contradict_each_other_are_read_or_held() -> None:
    other = RowShape(columns=(*SHAPE.columns[:2], SentColumn("b", "blob", ColumnFlag.BINARY)))
    rows = [insert(11, b="3"), replace(insert(11, b="AAE="), shape=other)] * 3
    shown = lines(*rows)
    assert len(shown) == 6
    assert all(line["type"] == "row" for line in shown)


def test_a_watermark_and_damage_have_their_lines() -> None:
    (good,) = encode(WireFormat.CRAFT, [Watermark(watermark_ts=9, build_ts_ms=None)])
    bad = Record(key=None, value=b"{}")
    capture_format = CaptureFormat(wire_format=WireFormat.CRAFT)
    first, second = event_lines(captured([bad, good]), capture_format)
    assert {name: first[name] for name in ("offset", "index", "type", "reason", "position")} == {
        "offset": 0,
        "index": 0,
        "type": "error",
        "reason": "unsupported_version",
        "position": "byte 0",
    }
    assert (second["offset"], second["type"], second["commit_ts"]) == (1, "watermark", 9)


# Streaming --------------------------------------------------------------------------------------


def endless() -> Iterator[Record]:
    """A DDL, then rows without end, each with another key."""
    yield from encode(WireFormat.OPEN_PROTOCOL, [CREATE])
    for number in itertools.count():
        yield from encode(
            WireFormat.OPEN_PROTOCOL, [insert(11 + number, key=str(number), e="2", b="1")]
        )


def test_no_record_is_read_before_its_line_is_wanted() -> None:
    read = 0

    def counted() -> Iterator[CaptureRecord]:
        nonlocal read
        for record in captured(endless()):
            read += 1
            yield record

    shown = event_lines(counted(), CaptureFormat(wire_format=WireFormat.OPEN_PROTOCOL))
    for wanted in range(1, 6):
        next(shown)
        assert read == wanted


@pytest.mark.thorough
def test_memory_does_not_grow_with_the_capture() -> None:
    shown = event_lines(
        captured(endless()), CaptureFormat(wire_format=WireFormat.OPEN_PROTOCOL, timezone="UTC")
    )

    def after(count: int) -> int:
        for _ in itertools.islice(shown, count):
            pass
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        early = after(200)
        late = after(1500)
    finally:
        tracemalloc.stop()
    # Kept rows would be some hundred bytes each.
    assert late - early < 50_000
