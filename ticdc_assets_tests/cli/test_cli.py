"""The command line: what it prints, where, and how it refuses."""

import csv
import errno
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pytest
from click.testing import CliRunner

from ticdc_assets.changelog.plan import LACKS_EARLIER
from ticdc_assets.cli import main
from ticdc_assets.cli.base import in_sentences
from ticdc_assets.cli.syncing import _cut_lines as cut_lines
from ticdc_assets.config import Settings, Writer
from ticdc_assets.delta.appending import write_table
from ticdc_assets.delta.lock import writer_lock
from ticdc_assets.delta.opening import latest_version
from ticdc_assets.demo.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.doctor.checks import check_lease
from ticdc_assets.log import damage, decoding
from ticdc_assets.log.cuts import FailedMirror, publish, require_cut
from ticdc_assets.model.events import RowChange
from ticdc_assets.model.tso import from_datetime, time_with_tso, to_datetime
from ticdc_assets.model.values.shapes import compact_json
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import names_in
from ticdc_assets.wire import WireFormat
from ticdc_assets.wire.compression import Compression
from ticdc_assets_tests.commands import Commands, files, without_progress
from ticdc_assets_tests.demo.simulator.builders import (
    PLAIN_COLUMNS,
    churn,
    plain_upstream,
    write_capture,
)
from ticdc_assets_tests.demo.simulator.compressing import CompressingChangefeed
from ticdc_assets_tests.fresh import printed
from ticdc_assets_tests.golden import Scenario, assert_same_rows
from ticdc_assets_tests.lake.feeds import truth_rows
from ticdc_assets_tests.statuses import cut, held, mirror, publish_with_tables


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


# Help and refusals, without Spark ---------------------------------------------------------------


@pytest.mark.parametrize("flag", ["--help", "-h"])
@pytest.mark.parametrize("command", ["", *sorted(main.commands)])
def test_every_command_has_help(command: str, flag: str) -> None:
    result = CliRunner().invoke(main, [*command.split(), flag])
    assert result.exit_code == 0
    usage, _, text = result.stdout.partition("\n\n")
    assert usage.startswith(f"Usage: main {command}".strip())
    assert text.partition("\n\n")[0].strip().endswith((".", ":"))


@pytest.mark.parametrize("command", sorted(main.commands))
def test_every_option_has_help(command: str) -> None:
    options = [item for item in main.commands[command].params if isinstance(item, click.Option)]
    assert [item.name for item in options if not item.help] == []


HEAVY = {"pyspark", "py4j", "delta", "deltalake", "dagster", "plotly", "rich", "numba"}

IMPORTED_BY = """
import sys
from click.testing import CliRunner
from ticdc_assets.cli import main
for words in (["--help"], ["sync", "--help"], ["status", "no_such_changefeed"]):
    CliRunner().invoke(main, words)
print(*(name for name in sys.modules if name.partition(".")[0] == name))
"""


def test_help_and_refusals_import_nothing_heavy() -> None:
    imported = set(printed(IMPORTED_BY).split())
    assert "click" in imported
    assert not imported & HEAVY


@pytest.mark.parametrize(
    "arguments",
    [
        ["nope"],
        ["tables"],
        ["show", "f", "d"],
        ["show", "f", "d", "t", "--format", "xml"],
        ["show", "f", "d", "t", "--limit", "-1"],
        ["show", "f", "d", "t", "--as-of", "then"],
        ["dump", "f", "--as-of", "1.5"],
        ["sync", "f", "--until", "soon"],
        ["sync", "f", "--until", "-1"],
        ["sync", "f", "--until", str(2**63)],
        ["sync", "f", "--max-records", "0"],
        ["sync", "f", "g"],
        ["play", "there-is-no-such-file", "f"],
        ["ui", "--port", "0"],
        ["tables", "f", "--yaml"],
        ["accept-gap", "f"],
        ["accept-gap", "f", "t", "one"],
        ["accept-loss", "f", "t", "0", "-1"],
        ["verify"],
        ["maintain"],
        ["maintain", "f", "now"],
        ["verify", "f", "d"],
        ["report", "--days", "0"],
        ["report", "--days", "nan"],
        ["sync", "f", "--follow", "--seconds", "nan"],
        ["sync", "f", "--follow", "--seconds", "inf"],
        ["show", "f", "d", "t", "--limit", str(2**64)],
        ["seed", "f", ".", "--tso", "1732690000"],
        ["diff", "f", ".", "--tso", str(2**63)],
        ["backfill", "f"],
        ["backfill", "f", "--day", "2026-11-20", "--table", "d.t"],
        ["backfill", "f", "--from", "2026-11-20"],
        ["backfill", "f", "--from", "2026-11-20", "--to", "2026-11-21", "--table", "d.t"],
        ["backfill", "f", "--day", "yesterday"],
        ["backfill", "f", "--table", "d.t", "--accept-losses"],
        ["report", "--output", "."],
    ],
)
def test_wrong_usage_is_code_2(commands: Commands, arguments: list[str]) -> None:
    commands.add_capture("f", "capture.jsonl")
    result = commands.run(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.splitlines()[-1].startswith("Error: ")


OF_ONE_CHANGEFEED = [
    ["sync", "shop"],
    ["redrive", "shop"],
    ["tables", "shop"],
    ["tables", "shop", "--json"],
    ["status", "shop"],
    ["metrics", "shop"],
    ["metrics", "shop", "--listen", "65535"],
    ["show", "shop", "d", "t"],
    ["dump", "shop"],
    ["quarantine", "shop"],
    ["verify", "shop"],
    ["verify", "shop", "d", "t", "--json"],
    ["record", "shop", "file"],
    ["report", "shop"],
    ["accept-gap", "shop", "topic", "0"],
    ["accept-loss", "shop", "topic", "0", "1"],
]


@pytest.mark.parametrize("arguments", OF_ONE_CHANGEFEED, ids=" ".join)
def test_a_missing_configuration(commands: Commands, arguments: list[str]) -> None:
    sentence = commands.refused(*arguments)
    assert "changefeeds.yaml does not exist" in sentence
    assert "TICDC_CHANGEFEEDS" in sentence


@pytest.mark.parametrize("arguments", OF_ONE_CHANGEFEED, ids=" ".join)
def test_an_unknown_changefeed(commands: Commands, arguments: list[str]) -> None:
    commands.add_capture("shops", "capture.jsonl")
    sentence = commands.refused(*arguments)
    assert "no changefeed 'shop'" in sentence
    assert "did you mean 'shops'" in sentence
    assert not (commands.folder / "lake").exists()


@pytest.mark.parametrize(
    "arguments", [["show", "f", "d", "t"], ["dump", "f"], ["verify", "f"]], ids=" ".join
)
def test_before_the_first_cut(commands: Commands, arguments: list[str]) -> None:
    commands.add_capture("f", "capture.jsonl")
    sentence = commands.refused(*arguments)
    assert "'f' has no published cut yet" in sentence
    assert "ticdc-assets sync f" in sentence


def test_lists_before_the_first_cut(commands: Commands) -> None:
    commands.add_capture("f", "capture.jsonl")
    assert commands.done("tables", "f") == "f: no published cut yet\n"
    assert commands.done("tables", "f", "--json") == "[]\n"
    assert commands.done("quarantine", "f") == "f: nothing is quarantined\n"
    assert commands.done("quarantine", "f", "--json") == "[]\n"


def test_a_reader_that_has_gone_is_no_fault_of_the_lake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`dump | head`: the tables are not examined, and a store is not called away."""
    paths = LakePaths(root=tmp_path, changefeed="f")
    monkeypatch.setattr(damage, "find_damage", lambda _: pytest.fail("the lake was examined"))

    for lake in ("lake", "s3://bucket/lake"):
        monkeypatch.setenv("TICDC_LAKE", lake)
        with click.Context(main) as context:
            context.meta["ticdc_assets.cli.used"] = [paths]
            with pytest.raises(BrokenPipeError), in_sentences(), damage.damage_told(paths):
                raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def test_text_that_the_output_cannot_have_is_a_sentence(commands: Commands) -> None:
    commands.add_capture("f", "capture.jsonl")
    published = cut(10, mirrors=(), held=(held(60, "\u8868"),))
    publish_with_tables(commands.paths("f"), published)
    runner = CliRunner(charset="latin-1")
    result = runner.invoke(main, ["tables", "f", "--json"], env=commands.env)
    assert result.exit_code == 1
    assert "Error: the output is in latin-1, which does not have all" in result.stderr
    assert result.stderr.rstrip().endswith("set PYTHONIOENCODING=utf-8")


def test_long_lists_of_tables_are_cut(commands: Commands) -> None:
    commands.add_capture("f", "capture.jsonl")
    caveats = [f"{LACKS_EARLIER} 2026-11-21 may be missing: seed it"]
    mirrors = [mirror(f"t{number}", mirror_id=f"{number}", caveats=caveats) for number in range(30)]
    unknown = tuple(held(60, f"n{number}") for number in range(30))
    published = cut(10, mirrors=tuple(mirrors), held=unknown)
    publish_with_tables(commands.paths("f"), published, with_mirrors=False)
    sentence = commands.refused("show", "f", "shop", "orders")
    assert "no mirror of database 'shop', table 'orders'" in sentence
    assert "shop.t19 and 10 more" in sentence
    (*_, line) = cut_lines("f", published)
    assert line.startswith("f: incomplete mirrors: ")
    assert line.endswith("shop.t19 and 10 more")


def test_the_status_tells_who_writes_under_a_lease(commands: Commands) -> None:
    commands.add_capture("g", "other.jsonl", writer={"lease": "60 seconds"})
    (commands.folder / "other.jsonl").touch()
    publish_with_tables(commands.paths("g"), cut(10, tso=from_datetime(datetime.now(UTC))))
    (told,) = json.loads(commands.done("status", "g", "--json"))
    assert told["lease"] is None
    with writer_lock(commands.paths("g"), Writer(lease=timedelta(seconds=60))):
        (told,) = json.loads(commands.done("status", "g", "--json"))
        held = commands.done("status", "g")
    assert (told["lease"]["number"], told["lease"]["is_held"]) == (1, True)
    assert told["lease"]["process"] == os.getpid()
    writes = rf"^g: written by .*, process {os.getpid()} \(.*has had lease 1 since"
    assert re.search(writes, held, re.MULTILINE)
    (told,) = json.loads(commands.done("status", "g", "--json"))
    assert (told["lease"]["is_held"], told["lease"]["until"]) == (False, None)
    assert "written by" not in commands.done("status", "g")
    (check,) = check_lease(commands.paths("g"), Writer())
    assert check.ok
    assert check.found.startswith("nobody has the lease; ")
    assert check_lease(commands.paths("none"), Writer()) == []


@pytest.mark.dagster
def test_a_source_that_has_ended_and_is_gone_is_no_failure(
    commands: Commands, scenario: Scenario
) -> None:
    shutil.copy(scenario.capture, commands.folder / "capture.jsonl")
    commands.add_capture("f", "capture.jsonl")
    commands.done("sync", "f")
    (commands.folder / "capture.jsonl").unlink()
    status = commands.run("status", "f")
    assert (status.exit_code, without_progress(status.stderr)) == (0, [])
    assert "f: finished at " in status.stdout
    assert "f: the source could not be read: " in status.stdout


def test_the_status_tells_of_every_changefeed(commands: Commands) -> None:
    commands.add_capture("f", "capture.jsonl")
    commands.add_capture("g", "other.jsonl", ended=False)
    (commands.folder / "other.jsonl").touch()
    published = cut(10, tso=from_datetime(datetime.now(UTC)), held=(held(60, ORDERS[1]),))
    publish_with_tables(commands.paths("g"), published)
    result = commands.run("status")
    assert result.exit_code == 1
    assert "Error: the source of f could not be read\n" in result.stderr
    text = result.stdout
    assert "f: no published cut yet\n" in text
    assert "f: no watermark yet\nf: the source could not be read: " in text
    assert "s behind (source to Kafka " in text
    assert "g: 4 rows held, quarantined 0 at decode, 0 at apply, 0 schema conflicts\n" in text
    assert "orders \\u2028 `now` :smile:" in text
    assert "incomplete: 4 held" in text
    first, second = json.loads(commands.run("status", "--json").stdout)
    assert commands.run("status", "g").exit_code == 0
    assert (first["cut"], first["lag_seconds"], first["tables"]) == (None, None, [])
    assert "capture.jsonl" in first["source_error"]
    assert second["source_error"] is None
    assert second["cut"]["tso"] == published.tso
    assert second["lag_seconds"] == pytest.approx(sum(second["lag_parts_seconds"].values()))
    assert [(item["table"], item["complete"]) for item in second["tables"]] == [
        (ORDERS[1], False),
        ("orders", True),
    ]


def test_metrics_are_written_at_once(commands: Commands) -> None:
    commands.add_capture("f", "capture.jsonl")
    publish_with_tables(commands.paths("f"), cut(10))
    text = commands.done("metrics", "f")
    assert 'ticdc_source_up{changefeed="f"} 0.0\n' in text
    assert text.endswith("# EOF\n")
    path = commands.folder / "ticdc.prom"
    path.write_text("what was there")
    assert commands.done("metrics", "--output", path) == ""
    assert path.read_text().endswith("# EOF\n")
    assert path.stat().st_mode & 0o777 == 0o644
    assert not list(commands.folder.glob(".ticdc.prom*")), "nothing half written stays"
    missing = commands.folder / "none" / "ticdc.prom"
    assert str(missing.parent) in commands.refused("metrics", "f", "--output", missing)


def test_the_ui_starts_in_spite_of_a_wrong_entry(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands.add_capture("good", "capture.jsonl")
    commands.add_capture("bad", "other.jsonl", format="simpel")
    served: list[str] = []

    def serve(settings: Settings, *_: object) -> int:
        served.extend(feed.name for feed in settings.changefeeds)
        return 0

    monkeypatch.setattr("ticdc_assets.orchestration.ui.serve_ui", serve)
    result = commands.run("ui")
    assert (result.exit_code, served) == (0, ["good"])
    assert "changefeeds[1].format: expected one of" in result.stderr


def test_captures_are_not_recorded_from(commands: Commands) -> None:
    commands.add_capture("f", "capture.jsonl")
    (commands.folder / "capture.jsonl").touch()
    assert "needs Kafka" in commands.refused("record", "f", "copy.jsonl")
    assert "needs Kafka" in commands.refused("play", commands.folder / "capture.jsonl", "f")


def test_a_folder_without_a_demo(commands: Commands) -> None:
    sentence = commands.refused("ui", "--demo", commands.folder / "nothing")
    assert "there is no demo in" in sentence
    assert "make demo" in sentence


def test_a_demo_in_craft_is_of_the_old_dialect(commands: Commands) -> None:
    options = ("--format", "craft", "--dialect", "ticdc")
    sentence = commands.refused("demo", "--directory", commands.folder / "demo", *options)
    assert "Craft is not a format of the dialect ticdc: choose the dialect tiflow" in sentence
    assert not (commands.folder / "demo").exists()


def test_a_demo_keeps_off_a_folder_that_is_not_its_own(commands: Commands) -> None:
    (commands.folder / "thesis.txt").write_text("years of work")
    sentence = commands.refused("demo", "--directory", commands.folder)
    assert "was not made by the demo" in sentence
    assert (commands.folder / "thesis.txt").read_text() == "years of work"


@pytest.mark.thorough
def test_short_programs_that_read_tables_end_well(tmp_path: Path) -> None:
    """Arrow's threads must not hold Python objects when the interpreter ends: it aborts then."""
    write_table(tmp_path / "t", pa.table({"n": [1]}), overwrite=False, metadata={})
    code = (
        "from pathlib import Path; from ticdc_assets.delta.control import read_rows, ds;"
        f"read_rows(Path({str(tmp_path / 't')!r}), ds.field('n') == 1)"
    )
    running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(4)]
    assert [process.wait(60) for process in running] == [0] * 4


# The events of a capture ------------------------------------------------------------------------

ORDERS = ("shop", "orders \u2028 `now` :smile:")


class Order:
    """A changefeed of one table of orders, whose one row becomes paid."""

    def __init__(self, wire_format: WireFormat, compression: Compression = Compression.NONE):
        upstream = Upstream(timezone="Asia/Tokyo")
        upstream.create_database("shop")
        columns = column("id", "int", nullable=False), column("state", "enum('new','paid')")
        more = column("at", "timestamp"), column("proof", "blob")
        upstream.create_table(ORDERS, (*columns, *more), primary_key=("id",))
        how = {"wire_format": wire_format, "compression": compression}
        self.feed = CompressingChangefeed(upstream, "orders", partitions=1, **how)
        with upstream.transaction() as transaction:
            transaction.insert(ORDERS, PAID | {"state": "new"})
        with upstream.transaction() as transaction:
            transaction.update(ORDERS, ("1",), changes={"state": "paid"})
        self.records = list(self.feed.tick())


PAID = {"id": "1", "state": "paid", "at": "2024-02-29 08:00:00", "proof": "0x" + "ff00" * 400}


def shown(
    commands: Commands, *arguments: object, capture: Path | None = None
) -> list[dict[str, Any]]:
    """Return the lines that `decode` prints of a capture, if none is given of capture.jsonl."""
    told = commands.done("decode", capture or commands.folder / "capture.jsonl", *arguments)
    assert told.endswith("\n")
    return [json.loads(line) for line in told.splitlines()]


def rows(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if line["type"] == "row"]


def test_decode_shows_every_record(commands: Commands) -> None:
    wire_format = WireFormat.CRAFT
    order = Order(wire_format)
    damage = order.feed.inject(0, key=None, value=b"\xff damage")
    write_capture(commands.folder / "capture.jsonl", [*order.records, damage])
    *lines, last = shown(commands, "--format", wire_format)
    assert {line["offset"] for line in [*lines, last]} == set(range(len(order.records) + 1))
    inserted, updated = rows(lines)
    assert [line["op"] for line in (inserted, updated)] == ["insert", "update"]
    assert inserted["before"] is None
    assert inserted["after"] == updated["before"] == PAID | {"state": "new"}
    assert updated["after"] == PAID
    for line in (inserted, updated):
        assert (line["database"], line["table"]) == ORDERS
        assert "held" not in line
    sql = [line["sql"].upper().split()[:2] for line in lines if line["type"] == "ddl"]
    assert sql == [["CREATE", "DATABASE"], ["CREATE", "TABLE"]]
    watermarks = [line["commit_ts"] for line in lines if line["type"] == "watermark"]
    assert watermarks[-1] >= updated["commit_ts"]
    assert (last["type"], last["offset"]) == ("error", damage.offset)
    assert last["reason"]
    assert last["position"]


def test_decode_shows_timestamps_in_a_zone(commands: Commands) -> None:
    write_capture(commands.folder / "capture.jsonl", Order(WireFormat.SIMPLE_JSON).records)
    lines = shown(commands, "--format", "simple-json", "--timezone", "UTC")
    assert rows(lines)[0]["after"]["at"] == "2024-02-28 23:00:00"


@pytest.mark.parametrize("compression", ["lz4", "snappy"])
def test_decode_undoes_compression(commands: Commands, compression: str) -> None:
    order = Order(WireFormat.CANAL_JSON, Compression(compression))
    write_capture(commands.folder / "capture.jsonl", order.records)
    lines = shown(commands, "--format", "canal-json", "--compression", compression)
    assert rows(lines)[1]["after"] == PAID
    assert {line["type"] for line in shown(commands, "--format", "canal-json")} == {"error"}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("open-claim-check", ("open-protocol",)),
        ("simple-avro-claim-check-raw", ("simple-avro", "--raw-value")),
    ],
)
def test_decode_completes_large_rows(
    commands: Commands,
    golden_dir: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    settings: tuple[str, ...],
) -> None:
    scenario = Scenario(golden_dir("options", name))
    folder = scenario.folder / "claim-check"
    count = sum(isinstance(event, RowChange) for _, event in scenario.events)
    monkeypatch.chdir(scenario.folder)
    for place in (folder, folder.as_uri(), "claim-check"):
        options = ("--format", *settings, "--claim-check", place)
        lines = rows(shown(commands, *options, capture=scenario.capture))
        assert len(lines) == count
        assert not any("claim_check_location" in line for line in lines)


def test_decode_of_a_capture_that_ends_in_the_middle_of_a_line(commands: Commands) -> None:
    capture = commands.folder / "capture.jsonl"
    write_capture(capture, Order(WireFormat.OPEN_PROTOCOL).records)
    whole = shown(commands, "--format", "open-protocol")
    capture.write_bytes(capture.read_bytes()[:-20])
    result = commands.run("decode", capture, "--format", "open-protocol")
    assert result.exit_code == 0
    assert [json.loads(line) for line in result.stdout.splitlines()] == whole[:-1]
    assert result.stderr == f"{capture} ends in the middle of a line; that line is left out\n"


def test_decode_prints_before_it_reads_on(commands: Commands) -> None:
    """What comes before a line that is no record is out when that line is met."""
    capture = commands.folder / "capture.jsonl"
    records = Order(WireFormat.CRAFT).records
    write_capture(capture, records)
    whole = shown(commands, "--format", "craft")
    with capture.open("a", encoding="utf-8") as file:
        file.write("no record\n")
    result = commands.run("decode", capture, "--format", "craft")
    assert result.exit_code == 1
    assert [json.loads(line) for line in result.stdout.splitlines()] == whole
    (sentence,) = result.stderr.splitlines()
    assert sentence.startswith(f"Error: capture {capture}, line {len(records) + 1}: ")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--format", "debezium"],
        ["--format", "simple-json", "--compression", "zip"],
        ["--format", "craft", "--compression", "lz4"],
        ["--format", "simple-json", "--raw-value"],
    ],
)
def test_decode_refuses_settings_that_mean_nothing(
    commands: Commands, arguments: list[str]
) -> None:
    (commands.folder / "capture.jsonl").touch()
    result = commands.run("decode", commands.folder / "capture.jsonl", *arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "\nError: " in result.stderr


def test_decode_refuses_an_unknown_zone_or_place(commands: Commands) -> None:
    capture = commands.folder / "capture.jsonl"
    capture.touch()
    settings = ("decode", capture, "--format", "simple-json")
    assert "Mars" in commands.refused(*settings, "--timezone", "Mars/Olympus")
    sentence = commands.refused(*settings, "--claim-check", "gopher://me:secret@there/folder")
    assert "gopher" in sentence
    assert "secret" not in sentence


# The golden types -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scenario(golden_dir: Callable[..., Path]) -> Scenario:
    return Scenario(golden_dir("simple-json", "types"))


@pytest.fixture(scope="module")
def types(scenario: Scenario, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Commands:
    """The golden types, synced in pieces: below, at and above watermarks, and less than all."""
    commands = Commands(tmp_path_factory.mktemp("types"))
    commands.add_capture("types", scenario.capture, scenario.timezone)
    first, second = scenario.earlier
    final = scenario.meta["final_ts"]
    told = commands.done("sync", "types", "--max-records", "10")
    assert "types: landed 10 records, 84 wait in the source" in told

    told = commands.done("sync", "types", "--until", first)
    assert "types: landed 84 records, 0 wait in the source" in told
    assert f" (TSO {first}): " in told
    assert_same_rows(commands.rows("types"), scenario.state(first))

    # Exactly there, although no watermark has that TSO.
    told = commands.done("sync", "types", "--until", second - 1)
    assert "types: landed 0 records" in told
    assert {item["applied_ts"] for item in commands.mirrors("types")} == {second - 1}
    commands.done("sync", "types", "--until", second)
    assert_same_rows(commands.rows("types"), scenario.state(second))

    told = commands.done("sync", "types", "--until", final + 1000)
    assert f" (TSO {final}): " in told
    return commands


@pytest.mark.spark
def test_a_second_sync_changes_nothing(types: Commands) -> None:
    def versions() -> list[int | None]:
        paths = types.paths("types")
        tables = (paths.cuts, paths.raw_messages, paths.change_log, paths.quarantine)
        mirrors = sorted(path for path in paths.row_folders[0].iterdir())
        return [latest_version(path) for path in (*tables, *mirrors)]

    before = versions()
    told = types.done("sync", "types")
    assert "types: landed 0 records, 0 wait in the source" in told
    assert "types: decoded nothing; quarantined 0 records" in told
    assert "types: unchanged: " in told
    assert "nothing new was landed" in told
    assert versions() == before


@pytest.mark.spark
def test_until_below_the_mirrors_touches_no_file(types: Commands, scenario: Scenario) -> None:
    final, before = scenario.meta["final_ts"], files(types.folder)
    for until in (scenario.earlier[0], 0):
        told = types.done("sync", "types", "--until", until)
        assert told == (
            f"types: the mirrors are at {time_with_tso(final)}, after {time_with_tso(until)}; "
            "nothing was changed\n"
        )
    assert files(types.folder) == before


@pytest.mark.spark
def test_tables_as_json_is_one_array_and_nothing_else(types: Commands, scenario: Scenario) -> None:
    done = types.program("tables", "types", "--json")
    assert done.returncode == 0, done.stderr
    (listed,) = json.loads(done.stdout)
    assert len(done.stdout.splitlines()) == 1
    (truth,) = scenario.meta["tables"]
    assert (listed["database"], listed["table"]) == (truth["database"], truth["table"])
    assert listed["key"] == truth["key"]
    assert listed["rows"] == sum(scenario.state()[truth["database"], truth["table"]].values())
    assert listed["applied_ts"] == scenario.meta["final_ts"]
    # The golden clock is ahead of ours: the lag is a number, and that is all that can be said.
    assert isinstance(listed["lag_seconds"], float)
    assert Path(listed["path"], "_delta_log").is_dir()
    assert (listed["held"], listed["quarantined"]) == (0, 0)
    row = json.loads(next(iter(scenario.state()[truth["database"], truth["table"]])))
    assert {item["name"] for item in listed["columns"]} == set(row)
    assert all(set(item) == {"name", "mysql_type", "type"} for item in listed["columns"])
    spark_types = {item["name"]: item["type"] for item in listed["columns"]}
    assert spark_types["c_lu"] == "decimal(20,0)"


@pytest.mark.spark
def test_dump_as_of_an_earlier_tso_and_time(types: Commands, scenario: Scenario) -> None:
    at, end, now = scenario.earlier[0], scenario.end, types.rows("types")
    assert types.rows("types", "--as-of", at) == scenario.state(at) != now
    assert types.rows("types", "--as-of", end) == now == scenario.state()
    shown = types.done("show", "types", "kinds", "types", "--format", "jsonl", "--as-of", at)
    assert len(shown.splitlines()) == scenario.state(at)["kinds", "types"].total()
    moment = to_datetime(at).isoformat()
    assert "the newest cut is at" in types.refused("dump", "types", "--as-of", end + 1)
    assert "the oldest change is at" in types.refused("dump", "types", "--as-of", "2001-01-01")
    assert types.done("dump", "types", "--as-of", moment)


@pytest.mark.spark
def test_one_query_and_nothing_but_its_rows(types: Commands, scenario: Scenario) -> None:
    text = "SELECT count(*) AS n, NULL AS `a b` FROM kinds.types"
    rows = scenario.state()["kinds", "types"].total()
    told = types.done("sql", "types", text, "--format", "jsonl")
    assert [json.loads(line) for line in told.splitlines()] == [{"n": str(rows), "a b": None}]
    at = scenario.earlier[0]
    told = types.done("sql", "types", text, "--format", "csv", "--as-of", at)
    assert told == f"n,a b\n{scenario.state(at)['kinds', 'types'].total()},\n"
    assert "not a query" in types.refused("sql", "types", "DROP TABLE kinds.types")


@pytest.mark.spark
def test_the_versions_of_one_row_are_worked_out_where_none_are_kept(types: Commands) -> None:
    told = types.done("show", "types", "kinds", "types", "--history", "1", "--format", "jsonl")
    (version,) = map(json.loads, told.splitlines())
    assert (version["op"], version["valid_to"], version["row"]["id"]) == ("insert", None, "1")
    assert "insert" in types.done("show", "types", "kinds", "types", "--history", "id=1")
    gone = types.run("show", "types", "kinds", "types", "--history", "12345678")
    assert (gone.exit_code, gone.stdout) == (0, "")
    assert "is kept" in types.refused("show", "types", "kinds", "types", "--deleted")
    both = types.run("show", "types", "kinds", "types", "--history", "1", "--deleted")
    assert both.exit_code == 2


@pytest.mark.spark
def test_show_as_lines_is_canonical_text_but_for_json(types: Commands, scenario: Scenario) -> None:
    (truth,) = scenario.meta["tables"]
    name = (truth["database"], truth["table"])
    told = types.done("show", "types", *name, "--format", "jsonl")
    wanted = dict(scenario.state()[name])
    assert any('": ' in (json.loads(line)["c_js"] or "") for line in told.splitlines())
    for line in told.splitlines():
        row = json.loads(line)
        same = {column: "0" if value == "-0" else value for column, value in row.items()}
        if same["c_js"] is not None:
            same["c_js"] = compact_json(same["c_js"])
        wanted[json.dumps(same, sort_keys=True, ensure_ascii=False)] -= 1
    assert not any(wanted.values())
    shown = list(map(json.loads, told.splitlines()))
    assert len(shown) > 1
    assert shown == sorted(shown, key=lambda row: int(row["id"]))
    text = types.done("show", "types", *name, "--format", "csv")
    listed = csv.DictReader(io.StringIO(text, newline=""))
    nulls = {r"\N": None}
    assert [{column: nulls.get(v, v) for column, v in row.items()} for row in listed] == shown
    told = types.done("show", "types", *name, "--format", "jsonl", "--limit", 2)
    assert len(told.splitlines()) == 2
    assert types.done("show", "types", *name, "--format", "jsonl", "--limit", 0) == ""


@pytest.mark.spark
def test_rows_of_many_columns_are_shown_one_below_the_other(
    types: Commands, scenario: Scenario
) -> None:
    (truth,) = scenario.meta["tables"]
    told = types.done("show", "types", truth["database"], truth["table"], "--limit", 1)
    (listed,) = types.mirrors("types")
    shown = [line.split()[0] for line in told.splitlines() if line.strip()]
    assert [name for name in shown if name.startswith("c_")] == [
        item["name"] for item in listed["columns"] if item["name"].startswith("c_")
    ]
    assert "row 1" in told
    assert "row 2" not in told
    assert f"{listed['rows']} rows in total" in told


@pytest.mark.spark
def test_verify_tells_what_is_equal(types: Commands, scenario: Scenario) -> None:
    before = types.mirrors("types")
    told = types.done("verify", "types")
    assert "types: 1 of 1 mirror of cut " in told
    assert f" (TSO {scenario.end}) equals its rebuild from " in told
    (line,) = types.done("verify", "types", "kinds", "types", "--json").splitlines()
    found = json.loads(line)
    assert (found["equal"], found["tso"], found["proof_from"]) == (True, scenario.end, None)
    (mirror,) = found["mirrors"]
    assert mirror["mirror"] == mirror["rebuilt"]
    assert mirror["mirror"]["rows"] == before[0]["rows"]
    assert names_in(types.paths("types").generations) == ["1"]
    sentence = types.refused("verify", "types", "kinds", "typos")
    assert "no mirror of database 'kinds', table 'typos'" in sentence


@pytest.mark.spark
def test_verify_shows_what_differs_and_ends_with_1(
    types: Commands, tmp_path: Path, spark: Any
) -> None:
    from delta.tables import DeltaTable

    shutil.copytree(types.folder, tmp_path / "copy")
    copy = Commands(tmp_path / "copy")
    cut = require_cut(copy.paths("types"))
    (mirror,) = cut.mirrors
    path = mirror.path(copy.paths("types"))
    DeltaTable.forPath(spark, str(path)).update("id = 1", {"c_i": "424242"})
    version = latest_version(path)
    assert version is not None
    changed = replace(mirror, version=version)
    publish(copy.paths("types"), replace(cut, number=cut.number + 1, mirrors=(changed,)))
    result = copy.run("verify", "types")
    assert result.exit_code == 1
    (line,) = [line for line in result.stdout.splitlines() if "424242" in line]
    assert [cell.strip() for cell in line.split("│")[1:5]] == ["changed", "id=1", "c_i", "424242"]
    assert "rows: 1 changed" in result.stdout
    assert "Error: 1 of 1 mirror of cut " in result.stderr.splitlines()[-1]
    result = copy.run("verify", "types", "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    (row,) = found["mirrors"][0]["examples"]
    assert (found["equal"], row["finding"], row["key"]) == (False, "changed", {"id": "1"})
    assert [(item["name"], item["mirror"]) for item in row["columns"]] == [("c_i", "424242")]


# Odd values, faults and their mending -----------------------------------------------------------

ODD = ("shop", "a [b]`c`[/b] :smile:\n")


@pytest.mark.spark
def test_odd_names_and_values_are_shown_as_text(commands: Commands, spark: Any) -> None:
    upstream = Upstream(timezone="Asia/Shanghai")
    upstream.create_database("shop")
    upstream.create_table(
        ODD,
        (column("id", "int", nullable=False), column("[red]x", "text"), column("at", "timestamp")),
        primary_key=("id",),
    )
    values = [
        "[bold]not bold[/bold] :smile:",
        "\x1b[31mred\x1b[0m\r\n\ttab \x00\u202e",
        "ü 😀 👩\u200d👩\u200d👧 中文 \u2028",
        "",
        None,
    ]
    for number, value in enumerate(values):
        with upstream.transaction() as transaction:
            at = "2024-02-29 08:00:00"
            transaction.insert(ODD, {"id": str(number), "[red]x": value, "at": at})
    changefeed = StandInChangefeed(upstream, "t", partitions=1)
    write_capture(commands.folder / "capture.jsonl", changefeed.tick())
    commands.add_capture("odd", "capture.jsonl", "Asia/Shanghai")
    commands.done("sync", "odd")
    assert commands.rows("odd") == truth_rows(changefeed.truth())
    (line, *_) = commands.done("show", "odd", *ODD, "--format", "jsonl").splitlines()
    assert json.loads(line)["at"] == "2024-02-29 08:00:00"

    told = commands.done("show", "odd", *ODD)
    assert "\x1b" not in told
    for text in (
        "shop.a [b]`c`[/b] :smile:",
        "[red]x",
        "[bold]not bold[/bold] :smile:",
        "\\x1b[31mred\\x1b[0m\\r\\n\\ttab \\x00\\u202e",
        "ü 😀 👩\u200d👩\u200d👧 中文 \\u2028",
        "NULL",
        "2024-02-29 08:00:00",
        "5 rows in total",
    ):
        assert text in told, told
    assert "a [b]`c`[/b] :smile:" in commands.done("tables", "odd")
    assert commands.refused("show", "odd", "shop", "none").endswith(":smile:\\n")


@pytest.mark.spark
def test_show_says_why_rows_may_be_missing(commands: Commands, spark: Any) -> None:
    upstream = plain_upstream(("d", "t"), rows=4)
    first_ts = upstream.clock.next()
    churn(upstream, steps=2, seed=2)
    upstream.create_table(("d", "new"), PLAIN_COLUMNS, primary_key=("id",))
    changefeed = StandInChangefeed(
        upstream, "t", partitions=1, options=FeedOptions(first_ts=first_ts)
    )
    write_capture(commands.folder / "capture.jsonl", changefeed.tick())
    commands.add_capture("f", "capture.jsonl", soft_delete=["*.*"])
    commands.done("sync", "f")
    (line,) = without_progress(commands.run("show", "f", "d.t").stderr)
    assert line.startswith(f"d.t: {LACKS_EARLIER}")
    assert without_progress(commands.run("show", "f", "d.new").stderr) == []
    made = require_cut(commands.paths("f"))
    (mirror, *_) = made.mirrors
    failed = FailedMirror(
        mirror_id=mirror.mirror_id,
        database="d",
        table="new",
        table_id=mirror.table_id,
        reason="no luck",
        since=datetime.now(UTC),
        tso=made.tso,
        waiting=2,
    )
    publish(commands.paths("f"), replace(made, number=made.number + 1, failed=(failed,)))
    (line,) = without_progress(commands.run("show", "f", "d.new").stderr)
    assert line == failed.sentence
    header = "id,v,_ticdc_deleted_at,_ticdc_ended_by\n"
    assert commands.done("show", "f", "d.new", "--deleted", "--format", "csv") == header


@pytest.mark.spark
def test_what_a_fault_kept_out_takes_its_place_when_it_is_mended(
    commands: Commands, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = ("shop", "orders")
    upstream = plain_upstream(name)
    for changes in (
        [("insert", "1", "a"), ("insert", "2", "a"), ("insert", "3", "a")],
        # What the fault keeps out: an update, a delete and an insert ...
        [("update", "1", "unlucky"), ("delete", "2", ""), ("insert", "4", "unlucky")],
        # ... and what comes after two of them.
        [("update", "1", "b"), ("insert", "2", "b")],
    ):
        for op, key, state in changes:
            with upstream.transaction() as transaction:
                match op:
                    case "insert":
                        transaction.insert(name, {"id": key, "v": state})
                    case "update":
                        transaction.update(name, (key,), changes={"v": state})
                    case _:
                        transaction.delete(name, (key,))
    # One partition and flushes of one row: the order of the log is the order of the commits.
    changefeed = StandInChangefeed(
        upstream, "t", partitions=1, options=FeedOptions(rows_per_flush=1)
    )
    write_capture(commands.folder / "capture.jsonl", changefeed.tick())
    commands.add_capture("f", "capture.jsonl")
    decode = decoding.decode_pieces

    def faulty(
        wire_format: WireFormat, records: pa.RecordBatch, *, compression: Compression
    ) -> Any:
        def is_hit(value: bytes | None) -> bool:
            text = value or b""
            return (b'"data":{"id":' in text and b"unlucky" in text) or b'"DELETE"' in text

        values = [b"{" if is_hit(value) else value for value in records["value"].to_pylist()]
        place = records.schema.get_field_index("value")
        return decode(
            wire_format,
            records.set_column(place, "value", pa.array(values, pa.binary())),
            compression=compression,
        )

    with monkeypatch.context() as patch:
        patch.setattr(decoding, "decode_pieces", faulty)
        told = commands.done("sync", "f")
    hit = json.loads(commands.done("quarantine", "f", "--json"))
    # The update that follows carries "unlucky" as its old value.
    assert len(hit) == 4
    assert "quarantined 4 records" in told
    fields = {"topic", "partition", "offset", "index", "reason", "position", "expected", "got"}
    for row in hit:
        assert fields <= set(row)
        assert (row["topic"], row["partition"], row["index"]) == ("t", 0, 0)
        assert row["reason"]
        assert row["expected"]
    listing = commands.done("quarantine", "f")
    assert hit[0]["reason"] in listing
    assert "f: 4 quarantined" in listing
    assert commands.rows("f") != truth_rows(changefeed.truth())
    cut = require_cut(commands.paths("f"))
    assert cut.tso == changefeed.watermark_ts

    told = commands.done("redrive", "f")
    assert "f: tried 4 quarantined records again: 4 decoded, 0 still refused" in told
    assert commands.rows("f") == truth_rows(changefeed.truth())
    assert json.loads(commands.done("quarantine", "f", "--json")) == []
    assert commands.done("quarantine", "f") == "f: nothing is quarantined\n"
    told = commands.done("redrive", "f")
    assert told == "f: nothing is quarantined\n"
    told = commands.done("sync", "f")
    assert "f: unchanged: " in told


@pytest.mark.spark
def test_one_changefeed_that_fails_does_not_keep_the_others(commands: Commands, spark: Any) -> None:
    upstream = Upstream()
    upstream.create_database("d")
    changefeed = StandInChangefeed(upstream, "t", partitions=1)
    write_capture(commands.folder / "capture.jsonl", changefeed.tick())
    commands.add_capture("broken", "there-is-no-such-file.jsonl")
    commands.add_capture("blocked", "capture.jsonl")
    commands.add_capture("whole", "capture.jsonl")
    blocked = commands.paths("blocked").base
    Path(blocked).parent.mkdir(parents=True, exist_ok=True)
    Path(blocked).touch()
    result = commands.run("sync")
    assert result.exit_code == 1
    assert "whole: published: cut 1" in result.stdout
    # A slow machine also gets lines of progress.
    told = [line for line in result.stderr.splitlines() if not re.match(r"[0-9]+ s: ", line)]
    assert told[-1] == "Error: could not sync broken, blocked; see the reasons above"
    assert told[-2].startswith("blocked: ")
    assert str(blocked) in told[-2]
    assert "there-is-no-such-file.jsonl" in told[-3]
    assert len(told) == 3


# The demo ---------------------------------------------------------------------------------------


def test_commands_find_the_demo_and_its_changefeed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    missing = CliRunner().invoke(main, ["--demo", "tables"])
    assert missing.exit_code == 1
    assert "there is no demo in" in missing.output
    (tmp_path / ".demo").mkdir()
    feed = {"name": "shop", "format": "craft", "timezone": "UTC", "source": {"capture": "none"}}
    text = json.dumps({"changefeeds": [feed]})
    (tmp_path / ".demo" / "changefeeds.yaml").write_text(text, encoding="utf-8")
    for arguments in (["tables"], ["tables", "shop"]):
        told = CliRunner().invoke(main, ["--demo", *arguments])
        assert told.output == "shop: no published cut yet\n"
    for arguments in (["shop", "orders"], ["shop", "orders", "--limit", "1"]):
        shown = CliRunner().invoke(main, ["--demo", "show", *arguments])
        assert shown.exit_code == 1
        assert "shop" in shown.output
    few = CliRunner().invoke(main, ["--demo", "show", "orders"])
    assert few.exit_code == 2
    assert "Missing argument" in few.output


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("verify", ("shop", None, None)),
        ("verify shop", ("shop", None, None)),
        ("verify shop orders", ("shop", "shop", "orders")),
        ("verify --json crm contacts", ("shop", "crm", "contacts")),
        ("verify shop crm contacts", ("shop", "crm", "contacts")),
        ("verify crm.contacts", ("shop", "crm", "contacts")),
        ("verify shop crm.contacts", ("shop", "crm", "contacts")),
        ("show crm.contacts", ("shop", "crm", "contacts")),
        ("show shop crm.contacts", ("shop", "crm", "contacts")),
        ("show shop shop.orders", ("shop", "shop", "orders")),
        ("show crm contacts", ("shop", "crm", "contacts")),
        ("show shop crm contacts", ("shop", "crm", "contacts")),
        ("play {file}", ("{file}", "shop")),
        ("play --limit 3 {file}", ("{file}", "shop")),
        ("play {file} shop", ("{file}", "shop")),
        ("record {file}", ("shop", "{file}")),
        ("accept-gap topic 0", ("shop", "topic", 0)),
        ("sync --follow", ("shop",)),
        ("sync", ("shop",)),
        ("sync other", ("other",)),
        ("report", ((),)),
        ("verify orders", ("orders", None, None)),
    ],
)
def test_the_demos_changefeed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, given: tuple[object, ...]
) -> None:
    file = str(tmp_path / "file")
    Path(file).touch()
    (tmp_path / ".demo").mkdir()
    (tmp_path / ".demo" / "changefeeds.yaml").touch()
    monkeypatch.chdir(tmp_path)
    name, *args = words.format(file=file).split()
    command = main.commands[name]
    root = click.Context(main)
    root.params["demo"] = True
    context = command.make_context(name, args, parent=root)
    arguments = [item.name for item in command.params if isinstance(item, click.Argument)]
    found = tuple(context.params[str(item)] for item in arguments)
    assert tuple(str(item) if isinstance(item, Path) else item for item in found) == tuple(
        file if item == "{file}" else item for item in given
    )


@pytest.mark.parametrize("words", ["upstream", "decode --format craft", "show orders", "play"])
def test_the_demos_changefeed_stands_for_no_other_argument(words: str) -> None:
    name, *args = words.split()
    root = click.Context(main)
    root.params["demo"] = True
    with pytest.raises(click.MissingParameter):
        main.commands[name].make_context(name, args, parent=root)
