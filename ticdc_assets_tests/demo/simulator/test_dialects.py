"""What the new TiCDC sends otherwise than the old one, message by message."""

import base64
import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ticdc_assets.base.errors import ConfigError
from ticdc_assets.demo.simulator.alterations import AddColumn
from ticdc_assets.demo.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.encoders import open_protocol, simple_avro, simple_json
from ticdc_assets.demo.simulator.message_forms import Dialect, MessageOptions, dialect_of
from ticdc_assets.demo.simulator.stored_table import TableName
from ticdc_assets.model.events import Bootstrap, DdlEvent, Event, RowChange
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets.wire.record import Record
from ticdc_assets_tests.demo.simulator.faulty import FaultyChangefeed, parts
from ticdc_assets_tests.demo.simulator.odd_upstream import OddUpstream
from ticdc_assets_tests.demo.simulator.partitions import Method, Partition, Partitioning
from ticdc_assets_tests.demo.simulator.variants import PLAIN, Variant

A, B, P = ("d", "a"), ("d", "b"), ("e", "p")
COLUMNS = (column("id", "int", nullable=False), column("v", "varchar(20)"), column("b", "bit(4)"))
BY_ID = Partitioning(
    method=Method.RANGE,
    column="id",
    partitions=(Partition(name="p0", below=10), Partition(name="p1", below=None)),
)


def started() -> OddUpstream:
    upstream = OddUpstream()
    for database in "de":
        upstream.create_database(database)
    upstream.create_table(A, COLUMNS, primary_key=("id",))
    upstream.create_table(B, COLUMNS, primary_key=("id",))
    upstream.create_table(P, COLUMNS, primary_key=("id",), partitioning=BY_ID)
    for number, name in enumerate((A, B, P), start=1):
        put(upstream, name, number)
    return upstream


def put(upstream: OddUpstream, name: TableName, number: int, **values: str | None) -> None:
    with upstream.transaction() as transaction:
        transaction.insert(name, {"id": str(number), "v": "<&>", "b": "9", **values})


def records(upstream: OddUpstream, wire_format: WireFormat, **options: Any) -> list[CaptureRecord]:
    feed = FeedOptions(messages=MessageOptions(dialect=Dialect.TICDC, **options))
    return list(
        StandInChangefeed(upstream, "t", partitions=1, wire_format=wire_format, options=feed).tick()
    )


def faulty(upstream: OddUpstream, **faults: bool) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the keys and values of Open Protocol with faults, and only updated old values."""
    options = FeedOptions(messages=MessageOptions(only_updated_columns=True))
    changefeed = FaultyChangefeed(
        upstream, "t", partitions=1, wire_format=WireFormat.OPEN_PROTOCOL, options=options, **faults
    )
    return (part for record in changefeed.tick() for part in texts(record))


def events(sent: Iterable[CaptureRecord], wire_format: WireFormat) -> list[Event]:
    return [event for _, event in Variant(wire_format).events(sent)]


def texts(record: CaptureRecord) -> list[tuple[dict[str, Any], str]]:
    """Return the keys and the text of the values of a record of Open Protocol."""
    pairs = parts(Record(key=record.key, value=record.value))
    return [(json.loads(key), value.decode()) for key, value in pairs]


def test_craft_is_of_the_old_one_alone() -> None:
    assert dialect_of(WireFormat.CRAFT, None) is Dialect.TIFLOW
    assert {dialect_of(each, None) for each in WireFormat if each is not WireFormat.CRAFT} == {
        Dialect.TICDC
    }
    with pytest.raises(ConfigError, match=r"Craft.*choose the dialect tiflow"):
        records(started(), WireFormat.CRAFT)


@pytest.mark.parametrize("wire_format", [f for f in WireFormat if f is not WireFormat.CRAFT])
def test_renames_of_one_statement(wire_format: WireFormat) -> None:
    upstream, aside = started(), ("d", "aside")
    upstream.rename_tables([(A, aside), (B, A), (aside, B)])
    upstream.rename_table(P, ("e", "q"))
    sent = [
        e for e in events(records(upstream, wire_format), wire_format) if isinstance(e, DdlEvent)
    ]
    *several, single = [event for event in sent if "RENAME" in event.sql]
    assert [event.sql for event in several] == [
        "RENAME TABLE `d`.`a` TO `d`.`aside`;",
        "RENAME TABLE `d`.`b` TO `d`.`a`;",
        "RENAME TABLE `d`.`aside` TO `d`.`b`;",
    ]
    assert single.sql == "RENAME TABLE `e`.`p` TO `e`.`q`"
    assert all(event.pre_schema is None for event in sent)
    if PLAIN[wire_format].sends_schemas:
        ids = [event.schema.table_id for event in several if event.schema is not None]
        one, other = upstream.schema(B).table_id, upstream.schema(A).table_id
        assert ids == [-1, other, one]


@pytest.mark.parametrize("wire_format", [f for f in WireFormat if f is not WireFormat.CRAFT])
def test_an_exchange(wire_format: WireFormat) -> None:
    upstream = started()
    upstream.exchange_partition(P, "p0", A)
    put(upstream, A, 7)
    upstream.alter_table(A, AddColumn(column=column("w", "int"), first=True))
    put(upstream, A, 8)
    sent = events(records(upstream, wire_format), wire_format)
    (ddl,) = [e for e in sent if isinstance(e, DdlEvent) and "EXCHANGE" in e.sql]
    assert ddl.sql == "ALTER TABLE `e`.`p` EXCHANGE PARTITION `p0` WITH TABLE `d`.`a`"
    if not PLAIN[wire_format].sends_schemas:
        assert (ddl.database, ddl.table) == A
        assert ddl.ddl_type == ("QUERY" if ddl.action_code is None else ddl.ddl_type)
        return
    assert ddl.ddl_type == "ALTER"
    assert ddl.schema is not None
    assert ddl.pre_schema is not None
    # The partitioned table, under the database of the other one.
    assert (ddl.schema.database, ddl.schema.table) == ("d", "p")
    assert ddl.schema.table_id == upstream.schema(P).table_id
    assert (ddl.pre_schema.database, ddl.pre_schema.table) == A
    first, second = [
        e for e in sent if isinstance(e, RowChange) and (e.after or {}).get("id") in ("7", "8")
    ]
    assert (first.table_id, first.schema_version) == (
        upstream.schema(A).table_id,
        upstream.schema(P).version,
    )
    assert second.schema_version == upstream.schema(A).version
    told = sent[: sent.index(first)]
    assert (A, first.table_id, first.schema_version) in [
        ((s.database, s.table), s.table_id, s.version)
        for s in (e.schema for e in told if isinstance(e, Bootstrap))
        if s is not None
    ]
    altered = next(e for e in sent if isinstance(e, DdlEvent) and "ADD COLUMN" in e.sql)
    assert altered.schema is not None
    assert [c.name for c in altered.schema.columns] == ["w", "id", "v", "b"]


def test_a_partitioned_table_has_one_bootstrap() -> None:
    upstream = started()
    put(upstream, P, 70)
    sent = events(records(upstream, WireFormat.SIMPLE_JSON), WireFormat.SIMPLE_JSON)
    told = Counter(e.schema.table for e in sent if isinstance(e, Bootstrap) and e.schema)
    assert told == {"a": 1, "b": 1, "p": 1}


def test_bits_are_text_in_avro() -> None:
    upstream = started()
    (first, *_) = [
        record.value or b""
        for record in records(upstream, WireFormat.SIMPLE_AVRO)
        if isinstance(events([record], WireFormat.SIMPLE_AVRO)[0], RowChange)
    ]
    # Branch 4 is string, 1 would be long; both are zigzag numbers.
    assert b"\x02b\x08\x029" in first


def test_creates_of_a_batch() -> None:
    words = {
        (event.ddl_type, event.action_code)
        for wire_format in (WireFormat.SIMPLE_JSON, WireFormat.CANAL_JSON, WireFormat.OPEN_PROTOCOL)
        for event in events(records(started(), wire_format, batched_creates=True), wire_format)
        if isinstance(event, DdlEvent) and event.sql.startswith("CREATE TABLE")
    }
    assert {word for word, code in words if code is None} == {"QUERY"}
    assert {code for _, code in words} == {None, 60}


def test_open_protocol_keeps_order_and_escapes_nothing() -> None:
    upstream = started()
    upstream.alter_table(P, AddColumn(column=column("w", "int"), first=True))
    put(upstream, P, 3000)
    sent = [
        part for record in records(upstream, WireFormat.OPEN_PROTOCOL) for part in texts(record)
    ]
    rows = [(key, value) for key, value in sent if key["t"] == 1]
    key, value = rows[-1]
    assert list(key) == ["ts", "scm", "tbl", "t", "ptn"]
    assert list(json.loads(value)["u"]) == ["w", "id", "v", "b"]
    assert '"v":"<&>"' in value
    assert next(key for key, _ in sent)["tbl"] == ""


def test_flags_that_are_of_the_first_row() -> None:
    upstream = started()
    for name in (A, P):
        upstream.alter_table(name, AddColumn(column=column("u", "bigint unsigned")))
        put(upstream, name, 5, u=str(2**64 - 1))

    def flags(*, stale_flags: bool) -> dict[str, dict[str, int]]:
        return {
            key["tbl"]: {name: item["f"] for name, item in json.loads(value)["u"].items()}
            for key, value in faulty(upstream, stale_flags=stale_flags)
            if key["t"] == 1
        }

    true = flags(stale_flags=False)
    assert true["a"]["u"] == true["p"]["u"] == 193
    stale = flags(stale_flags=True)
    assert (stale["a"]["u"], stale["p"]["u"], stale["p"]["id"]) == (193, 0, 11)


def test_old_values_that_are_damaged() -> None:
    upstream = started()
    for changes in ({"v": None, "b": "1"}, {"v": ""}, {"v": "x"}):
        with upstream.transaction() as transaction:
            transaction.update(A, ("1",), changes=changes)
    assert [
        value.partition('"p":')[2]
        for key, value in faulty(upstream, damaged_old_values=True)
        if key["t"] == 1 and '"p":' in value
    ] == [
        '{"t":15,"f":64,"v":"<&>","b":{"t":16,"f":193,"v":9}}}',
        '{"v":{"t":15,"f":64,"v":null}}}',
        '{"v":{"t":15,"f":64,"v":null}}}',
    ]


def test_inserts_of_split_updates_come_last() -> None:
    upstream = OddUpstream()
    upstream.create_database("d")
    upstream.create_table(A, COLUMNS[:2], primary_key=("id",), clustered=False)
    for number in (1, 2):
        with upstream.transaction() as transaction:
            transaction.insert(A, {"id": str(number), "v": "x"})
    with upstream.transaction() as transaction:
        transaction.update(A, ("1",), changes={"id": "9"})
        transaction.insert(A, {"id": "5", "v": "y"})
        transaction.update(A, ("2",), changes={"v": "z"})
    sent = events(records(upstream, WireFormat.SIMPLE_JSON), WireFormat.SIMPLE_JSON)
    rows = [
        (e.op.value, (e.after or e.before or {})["id"]) for e in sent if isinstance(e, RowChange)
    ]
    assert rows[-4:] == [("delete", "1"), ("insert", "5"), ("update", "2"), ("insert", "9")]


@pytest.mark.parametrize("scenario", ["types", "shop"])
@pytest.mark.parametrize(
    ("folder", "wire_format", "encode"),
    [
        ("open", WireFormat.OPEN_PROTOCOL, lambda e: open_protocol.encode(e, ticdc=True)),
        ("simple-json", WireFormat.SIMPLE_JSON, simple_json.encode),
        ("simple-avro", WireFormat.SIMPLE_AVRO, lambda e: simple_avro.encode(e, ticdc=True)),
    ],
)
def test_golden_bytes_are_written_again(
    golden_new_dir: Callable[..., Path],
    folder: str,
    wire_format: WireFormat,
    encode: Callable[[list[Event]], list[Record]],
    scenario: str,
) -> None:
    count = 0
    with gzip.open(golden_new_dir(folder, scenario) / "messages.jsonl.gz", "rt") as lines:
        for line in map(json.loads, lines):
            key, value = (
                None if line[part] is None else base64.b64decode(line[part])
                for part in ("key", "value")
            )
            events = decode(wire_format, Record(key=key, value=value))
            # A row of Simple Avro does not say of what types its columns are.
            if wire_format is WireFormat.SIMPLE_AVRO and isinstance(events[0], RowChange):
                continue
            assert encode(events) == [Record(key=key, value=value)]
            count += 1
    assert count > 30
