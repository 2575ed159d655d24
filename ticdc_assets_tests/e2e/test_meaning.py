"""What TiDB did, worked out from messages that say it in an unusual way, by one sync.

In three formats: a table whose first unique key is over a virtual column, two tables that were
swapped and whose events come last to first, a table with two columns that differ by their case
alone, and a FLOAT. What cannot be is refused by itself; all else is there.
"""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ticdc_assets.demo.simulator.encoders import encode
from ticdc_assets.model.events import Event, Watermark
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.wire import WireFormat
from ticdc_assets.wire.record import Record
from ticdc_assets_tests.commands import Commands
from ticdc_assets_tests.demo.simulator.builders import write_capture
from ticdc_assets_tests.text_tables import T1, created, ddl, row

FORMATS = (WireFormat.SIMPLE_JSON, WireFormat.OPEN_PROTOCOL, WireFormat.CRAFT)

pytestmark = [pytest.mark.spark, pytest.mark.dagster]

TS = 400 << 18


def at(number: int) -> int:
    return TS + (number << 18)


def events(wire_format: WireFormat) -> Iterator[Event]:
    t1 = created(T1, version=at(1))
    yield ddl(wire_format, T1, ts=at(1), after=t1)
    yield row(wire_format, t1, ts=at(2), after={"a": "1", "c": "5"})
    yield row(wire_format, t1, ts=at(3), after={"a": "1", "c": "6"})
    yield row(wire_format, t1, ts=at(4), before={"a": "1", "c": "5"}, after={"a": "9", "c": "5"})

    sql = "create table {} (id int primary key, w float)"
    one = created(sql.format("one"), version=at(11), table="one", table_id=11)
    two = created(sql.format("two"), version=at(12), table="two", table_id=12)
    for number, table in enumerate((one, two), 11):
        yield ddl(wire_format, sql.format(table.table), ts=at(number), after=table)
        after = {"id": str(number), "w": "1.5"}
        yield row(wire_format, table, ts=at(number + 2), after=after)
    steps = [(one, "tmp"), (two, "one"), (replace(one, table="tmp"), "two")]
    for before, name in reversed(steps):
        text = f"RENAME TABLE `d`.`{before.table}` TO `d`.`{name}`"
        yield ddl(wire_format, text, ts=at(20), after=replace(before, table=name), before=before)

    # A table that cannot be.
    bad = created("create table bad (id int primary key, x int)", version=at(30), table="bad")
    columns = (bad.columns[0], replace(bad.columns[1], name="ID"))
    bad = replace(bad, columns=columns, table_id=30)
    if wire_format is WireFormat.SIMPLE_JSON:
        yield ddl(wire_format, "create table bad (id int)", ts=at(30), after=bad)
    yield row(wire_format, bad, ts=at(31), after={"id": "1", "ID": "2"})
    yield Watermark(watermark_ts=at(100), build_ts_ms=5)


def records(wire_format: WireFormat) -> Iterator[CaptureRecord]:
    for offset, event in enumerate(events(wire_format)):
        (record,) = encode(wire_format, [event])
        if wire_format is WireFormat.OPEN_PROTOCOL and isinstance(event, Watermark):
            # The protocol says that it has no value.
            record = Record(key=record.key, value=None)
        yield CaptureRecord(
            topic="t",
            partition=0,
            offset=offset,
            timestamp_ms=at(0) >> 18,
            key=record.key,
            value=record.value,
        )


@pytest.fixture(scope="module")
def synced(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    folder = tmp_path_factory.mktemp("meaning")
    commands = Commands(folder)
    names = [wire_format.value.replace("-", "_") for wire_format in FORMATS]
    for name, wire_format in zip(names, FORMATS, strict=True):
        write_capture(folder / f"{name}.jsonl", records(wire_format))
        commands.add_capture(name, f"{name}.jsonl", format=wire_format.value)
    said = commands.done("sync")
    for name in names:
        assert f"{name}: published" in said, said
    return commands


@pytest.mark.parametrize("wire_format", FORMATS)
def test_all_that_can_be_is_there(synced: Commands, wire_format: WireFormat) -> None:
    feed = wire_format.value.replace("-", "_")
    rows = {
        name[1]: sorted((json.loads(text) for text in found), key=str)
        for name, found in synced.rows(feed).items()
    }
    held = {"bad"} & rows.keys()
    assert {name: found for name, found in rows.items() if name not in held} == {
        "t1": [{"a": "1", "c": "6"}, {"a": "9", "c": "5"}],
        "one": [{"id": "12", "w": rows["one"][0]["w"]}],
        "two": [{"id": "11", "w": rows["two"][0]["w"]}],
    }
    mirrors = {item["table"]: item for item in synced.mirrors(feed)}
    assert mirrors["t1"]["key"] == ["c"]
    assert not any("FLOAT" in str(mirrors["t1"][field]) for field in mirrors["t1"])
    marked = [name for name, item in mirrors.items() if "`w`" in str(item)]
    assert sorted(marked) == (["one", "two"] if wire_format is WireFormat.CRAFT else [])


@pytest.mark.parametrize("wire_format", FORMATS)
def test_what_cannot_be_is_refused_with_its_reason(
    synced: Commands, wire_format: WireFormat
) -> None:
    found = synced.done("quarantine", wire_format.value.replace("-", "_"), "--json")
    (refused,) = json.loads(found)
    assert "duplicate_column" in str(refused)
    assert "differ by more than their case" in str(refused)
