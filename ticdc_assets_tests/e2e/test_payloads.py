"""Payloads stay in the lake: no log line, event, metadata or error text of a sync has one.

Every word that stands for a payload is looked for in all that a run leaves outside of the lake:
what the program and its JVM write, the log lines and events of the run with their metadata, and
every file of the Dagster instance. The lake has them: else the test would look for nothing.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest
from dagster import serialize_value

from ticdc_assets.base.errors import TicdcError
from ticdc_assets.demo.simulator.alterations import AddColumn, ModifyColumn
from ticdc_assets.demo.simulator.changefeed import StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.source.capture import CaptureReader, CaptureRecord
from ticdc_assets.wire import WireFormat
from ticdc_assets_tests.commands import Commands
from ticdc_assets_tests.demo.simulator.builders import write_capture

VALUE, KEY, WRONG, CORRUPT, CUT_SHORT, KAFKA_KEY = PAYLOADS = tuple(
    f"pAyLoAd{name}" for name in ("Value", "Key", "Wrong", "Corrupt", "CutShort", "KafkaKey")
)
DDL, UNKNOWN_DDL = STATEMENTS = ("dDlTeXtComment", "dDlTeXtUnknown")

ITEMS = ("shop", "items")


def records(wire_format: WireFormat) -> Iterator[CaptureRecord]:
    """A table's life with payloads wherever they can stand, some of them damaged."""
    upstream = Upstream()
    upstream.create_database("shop")
    plain = (column("id", "varchar(60)", nullable=False), column("n", "bigint"))
    upstream.create_table(ITEMS, (*plain, column("note", "varchar(80)")), primary_key=("id",))
    with upstream.transaction() as transaction:
        for number, note in enumerate((VALUE, "plain", "plainer")):
            transaction.insert(
                ITEMS, {"id": f"{KEY}{number}", "n": str(700000 + number), "note": note}
            )
    upstream.alter_table(
        ITEMS,
        AddColumn(column=column("added", "varchar(80)")),
    )
    with upstream.transaction() as transaction:
        transaction.update(ITEMS, (f"{KEY}0",), changes={"note": f"{VALUE} again"})
    upstream.alter_table(
        ITEMS,
        ModifyColumn(name="note", column=column("note", "varchar(81)")),
    )
    feed = StandInChangefeed(upstream, "items", partitions=1, wire_format=wire_format)
    number = 0
    for record in feed.tick():
        value = record.value
        if value is not None and b"700001" in value:
            # A row whose number is none: refused when it is decoded or applied.
            value = value.replace(b"700001", WRONG.encode())
        if value is not None:
            value = re.sub(rb"ADD COLUMN [^\"]*", rf"\g<0> COMMENT '{DDL}'".encode(), value)
            value = re.sub(
                rb"MODIFY COLUMN [^\"]*", f"FROBNICATE '{UNKNOWN_DDL}' WITH (1".encode(), value
            )
        yield replace(record, offset=number, value=value, key=record.key)
        number += 1
    last = replace(record, key=KAFKA_KEY.encode())
    yield replace(last, offset=number, value=f"no message {CORRUPT}".encode())
    yield replace(last, offset=number + 1, value=f'{{"version":1,"data":{{"{CUT_SHORT}'.encode())
    yield replace(last, offset=number + 2)


FORMATS = (WireFormat.SIMPLE_JSON, WireFormat.OPEN_PROTOCOL)


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_nothing_but_the_lake_has_a_payload(java: None, tmp_path: Path) -> None:
    commands = Commands(tmp_path)
    for number, wire_format in enumerate(FORMATS):
        write_capture(tmp_path / f"{number}.jsonl", records(wire_format))
        commands.add_capture(
            f"feed_{number}",
            f"{number}.jsonl",
            format=wire_format.value,
            # The one place with values, on purpose.
            dagster={"sample_rows": 0},
        )
    done = commands.program("sync", seconds=600)
    assert done.returncode == 0, done.stderr
    for number in range(len(FORMATS)):
        assert f"feed_{number}: published" in done.stdout
        assert f"feed_{number}: check quarantine_growth" in done.stdout

    assert all(item["rows"] for item in commands.mirrors("feed_0"))
    quarantined = commands.done("quarantine", "feed_0", "--json")
    assert all(word in quarantined for word in (WRONG, CORRUPT[:9], CUT_SHORT)), quarantined

    written = {"standard output": done.stdout, "standard error": done.stderr}
    home = tmp_path / "dagster_home"
    with dg.DagsterInstance.from_config(str(home)) as instance:
        runs = instance.get_runs()
        assert len(runs) == len(FORMATS)
        for run in runs:
            for entry in instance.all_logs(run.run_id):
                written[f"log of {run.job_name}"] = (
                    written.get(f"log of {run.job_name}", "")
                    + serialize_value(entry)
                    + entry.message
                )
    for path in home.rglob("*"):
        if path.is_file():
            written[str(path.relative_to(home))] = path.read_bytes().decode("latin-1")
    leaks = sorted(
        (word, place)
        for place, text in written.items()
        for word in (*PAYLOADS, *STATEMENTS)
        if word in text
    )
    assert not leaks


def test_an_unreadable_capture_says_where_and_not_what(tmp_path: Path) -> None:
    path = tmp_path / "damaged.jsonl"
    lines = (
        f'{{"topic":"items","value":"{VALUE}',
        f'{{"topic":"t","partition":0,"value":"{KEY}"}}',
    )
    for line in lines:
        path.write_text(f"{line}\n")
        with pytest.raises(TicdcError) as caught:
            list(CaptureReader(path))
        told = f"{caught.value} {caught.value.args}"
        assert "line 1" in told
        assert not [word for word in PAYLOADS if word in told]
