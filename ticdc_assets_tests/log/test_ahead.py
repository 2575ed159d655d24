"""Time stamps ahead of both clocks are errors; all else is as it was sent."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ticdc_assets.config import CaptureSource, Changefeed
from ticdc_assets.demo.simulator.encoders import encode
from ticdc_assets.log import decoding
from ticdc_assets.log.ahead import BELIEVED_MS, TS_AHEAD
from ticdc_assets.model.events import DdlEvent, Event, Op, RowChange, Watermark
from ticdc_assets.model.schemas import ColumnFlag, RowShape, SentColumn
from ticdc_assets.model.tso import MAX_TSO, from_physical_ms
from ticdc_assets.wire import WireFormat
from ticdc_assets.wire.column_types import OTHER_DDL
from ticdc_assets.wire.record import Record

LANDED = datetime(2026, 11, 22, 12, tzinfo=UTC)
LANDED_MS = round(LANDED.timestamp() * 1000)
HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS
SHAPE = RowShape(
    columns=(SentColumn("id", "int", ColumnFlag.HANDLE_KEY | ColumnFlag.PRIMARY_KEY),),
    primary_key=("id",),
)
FURTHEST_MS = MAX_TSO >> 18


def row(ts: int, wire_format: WireFormat) -> RowChange:
    is_simple = wire_format in (WireFormat.SIMPLE_JSON, WireFormat.SIMPLE_AVRO)
    return RowChange(
        op=Op.INSERT,
        commit_ts=ts,
        build_ts_ms=LANDED_MS,
        database="d",
        table="t",
        table_id=7 if is_simple else None,
        schema_version=9 if is_simple else None,
        before=None,
        after={"id": "1"},
        shape=None if wire_format is WireFormat.SIMPLE_JSON else SHAPE,
    )


def ddl(ts: int) -> DdlEvent:
    return DdlEvent(
        ddl_type=OTHER_DDL,
        commit_ts=ts,
        build_ts_ms=LANDED_MS,
        sql="CREATE DATABASE d",
        database="d",
        table="",
        schema=None,
        pre_schema=None,
        action_code=1,
    )


def decoded(
    wire_format: WireFormat,
    records: Sequence[Record],
    timestamps: Sequence[int | None],
    *,
    clock: datetime | None = None,
    limit_seconds: float = 3600,
) -> list[dict[str, Any]]:
    """Return the rows of records that landed at `LANDED`."""
    changefeed = Changefeed(
        name="feed",
        wire_format=wire_format,
        timezone="UTC",
        source=CaptureSource(path=Path("none")),
        max_ahead_seconds=limit_seconds,
    )
    count = len(records)
    columns: dict[str, Any] = {
        "batch": pa.array([3] * count, pa.int64()),
        "landed_at": pa.array([LANDED] * count, pa.timestamp("us", tz="UTC")),
        "topic": pa.array(["t"] * count),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
        "timestamp_ms": pa.array(timestamps, pa.int64()),
        "key": pa.array([item.key for item in records], pa.binary()),
        "value": pa.array([item.value for item in records], pa.binary()),
    }
    batch = pa.RecordBatch.from_pydict(columns)
    found = list(decoding.record_decoder(changefeed, None, now=clock)([batch]))
    assert all(item.schema == decoding.DECODED_SCHEMA for item in found)
    return pa.Table.from_batches(found, decoding.DECODED_SCHEMA).to_pylist()


@pytest.mark.parametrize("wire_format", list(WireFormat))
@pytest.mark.parametrize("far", [MAX_TSO, from_physical_ms(LANDED_MS + 2 * HOUR_MS)])
@pytest.mark.thorough
def test_what_is_too_far_ahead_is_an_error_in_its_place(wire_format: WireFormat, far: int) -> None:
    near = from_physical_ms(LANDED_MS + HOUR_MS, 5)
    stamps = (near, far)
    events: list[Event] = [
        *(row(ts, wire_format) for ts in stamps),
        *(ddl(ts) for ts in stamps),
        *(Watermark(watermark_ts=ts, build_ts_ms=LANDED_MS) for ts in stamps),
    ]
    records = [record for event in events for record in encode(wire_format, [event])]
    stamped = [LANDED_MS] * len(records)
    rows = decoded(wire_format, records, stamped)
    kept = [(item["kind"], item["commit_ts"]) for item in rows if item["kind"] != "error"]
    assert kept == [("row", near), ("ddl", near), ("watermark", near)]
    refused = [item for item in rows if item["kind"] == "error"]
    assert [item["error_position"] for item in refused] == ["commit_ts"] * 2 + ["watermark_ts"]
    for item in refused:
        assert item["error_reason"] == TS_AHEAD
        assert item["error_expected"] == "at most 3600 s ahead of 2026-11-22 12:00:00 UTC"
        assert item["error_got"].startswith(f"{far}, which is ")
        assert (item["batch"], item["landed_at"], item["index"]) == (3, LANDED, 0)
        told = {"batch", "landed_at", "landed_day", "topic", "partition", "offset", "index", "kind"}
        told |= {"error_reason", "error_position", "error_expected", "error_got"}
        assert {name for name, value in item.items() if value is not None} == told
    # With a limit that is beyond them nothing is refused, nor by a clock that has passed them.
    accepting: list[dict[str, Any]] = [{"limit_seconds": 1e18}]
    if far != MAX_TSO:
        accepting.append({"clock": datetime.fromtimestamp((LANDED_MS + HOUR_MS) / 1000, UTC)})
    for options in accepting:
        again = decoded(wire_format, records, stamped, **options)
        assert all(item["kind"] != "error" for item in again)


def test_of_a_message_of_several_rows_only_those_ahead_are_refused() -> None:
    open_protocol = WireFormat.OPEN_PROTOCOL
    stamps = [1, from_physical_ms(LANDED_MS), MAX_TSO, from_physical_ms(LANDED_MS, 1)]
    (record,) = encode(open_protocol, [row(ts, open_protocol) for ts in stamps])
    rows = decoded(open_protocol, [record], [LANDED_MS])
    assert [item["kind"] for item in rows] == ["row", "row", "error", "row"]
    assert [item["index"] for item in rows] == [0, 1, 2, 3]


def test_without_commit_ts_it_is_es() -> None:
    value = (
        b'{"id":0,"database":"d","table":"t","pkNames":["id"],"isDdl":false,"type":"INSERT",'
        b'"es":%d,"ts":1,"sql":"","sqlType":{"id":4},"mysqlType":{"id":"int"},"old":null,'
        b'"data":[{"id":"1"}]}'
    )
    near, far = LANDED_MS + HOUR_MS, LANDED_MS + HOUR_MS + 1
    rows = decoded(
        WireFormat.CANAL_JSON,
        [Record(key=None, value=value % es) for es in (near, far)],
        [LANDED_MS] * 2,
    )
    assert [item["kind"] for item in rows] == ["row", "error"]
    assert rows[1]["error_position"] == "es"
    assert rows[1]["error_got"] == f"{far}, which is 2026-11-22 13:00:00 UTC"


@pytest.mark.parametrize(
    ("timestamp", "ahead_ms", "refused"),
    [
        # A replayed capture: old stamps of both kinds, or none of Kafka's.
        (LANDED_MS - 3 * YEAR_MS, -3 * YEAR_MS, False),
        (-1, -3 * YEAR_MS, False),
        (0, -3 * YEAR_MS, False),
        (22, -3 * YEAR_MS, False),
        (None, -3 * YEAR_MS, False),
        # The producer's clock is wrong.
        (LANDED_MS - YEAR_MS, 0, False),
        (0, HOUR_MS, False),
        (0, HOUR_MS + 1, True),
        (None, HOUR_MS + 1, True),
        # Ours is.
        (LANDED_MS + 2 * HOUR_MS, 3 * HOUR_MS, False),
        (LANDED_MS + 2 * HOUR_MS, 3 * HOUR_MS + 1, True),
        (LANDED_MS + YEAR_MS, YEAR_MS, False),
        # No time that Kafka's timestamp could be.
        (LANDED_MS + BELIEVED_MS + 1, BELIEVED_MS, True),
        (FURTHEST_MS, FURTHEST_MS - LANDED_MS, True),
        (2**63 - 1, FURTHEST_MS - LANDED_MS, True),
    ],
)
def test_both_clocks_are_asked(timestamp: int | None, ahead_ms: int, refused: bool) -> None:
    simple = WireFormat.SIMPLE_JSON
    mark = Watermark(watermark_ts=from_physical_ms(LANDED_MS + ahead_ms), build_ts_ms=LANDED_MS)
    (found,) = decoded(simple, encode(simple, [mark]), [timestamp])
    assert (found["kind"] == "error") is refused
