"""A virtual column that is added later is hidden, however the mirror was made."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from ticdc_assets.demo.simulator.encoders import encode
from ticdc_assets.model.events import Event, Watermark
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.repair.verifying import verify
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.spark.session import LazySession
from ticdc_assets.wire import WireFormat
from ticdc_assets_tests.golden import comparable
from ticdc_assets_tests.lake.feeds import Feed
from ticdc_assets_tests.text_tables import altered, created, ddl, row

START = 460_000_000_000_000_000
CREATE = "create table t1 (a int primary key, c int)"


def write(feed: Feed, wire_format: WireFormat, events: Iterable[Event], at: int) -> int:
    """Append events as records; return the next offset."""
    for event in events:
        for record in encode(wire_format, [event]):
            feed.write(
                [
                    CaptureRecord(
                        topic="t",
                        partition=0,
                        offset=at,
                        timestamp_ms=0,
                        key=record.key,
                        value=record.value,
                    )
                ]
            )
            at += 1
    return at


@pytest.mark.parametrize(
    "sql",
    [
        "alter table t1 add column v int as (a + 1) virtual",
        "alter table t1 add column v int as (a + 1) virtual not null",
    ],
)
@pytest.mark.parametrize("wire_format", [WireFormat.SIMPLE_JSON, WireFormat.CANAL_JSON])
def test_an_added_one_is_hidden(wire_format: WireFormat, sql: str, tmp_path: Path) -> None:
    feed = Feed.of(LazySession(), tmp_path, wire_format=wire_format)
    one = created(CREATE, version=START + 10)
    two = altered(one, sql, version=START + 30)
    offset = 0

    def sync(events: Iterable[Event], until: int) -> None:
        nonlocal offset
        end = Watermark(watermark_ts=START + until, build_ts_ms=5)
        offset = write(feed, wire_format, [*events, end], offset)
        feed.sync()

    def put(schema: TableSchema, ts: int, key: str) -> Event:
        return row(wire_format, schema, ts=START + ts, after={"a": key, "c": "5"})

    first = ddl(wire_format, CREATE, ts=START + 10, after=one)
    sync([first, put(one, 15, "1"), put(one, 16, "2")], 20)
    assert feed.mirror("d", "t1").hidden == []
    sync([ddl(wire_format, sql, ts=START + 30, after=two, before=one)], 40)
    assert feed.mirror("d", "t1").hidden == ["v"]
    sync([put(two, 45, "3")], 50)
    assert feed.mirror("d", "t1").hidden == ["v"]
    assert verify(feed.lake).equal
    feed.sync(refold=[("d", "t1")])
    assert feed.mirror("d", "t1").hidden == ["v"]
    expected = Counter(comparable({"a": key, "c": "5"}) for key in "123")
    assert feed.rows() == {("d", "t1"): expected}
