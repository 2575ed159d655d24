"""The README is true: each of its blocks is run here, and one that is not known fails.

A block of shell is a list of commands, one a line. Each line stands in `COMMANDS` with the way it
is tried; a line that is added to the README and not here is a failure, and so is one that is gone.
A Python block is run in the README's order, and what it prints is compared with the block of text
behind it.
"""

import contextlib
import io
import itertools
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from click.testing import CliRunner
from deltalake import DeltaTable

from ticdc_assets.cli import main
from ticdc_assets.config import CaptureSource, KafkaSource, parse_changefeeds
from ticdc_assets.demo.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.export import export_upstream
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.orchestration.component import read_attributes
from ticdc_assets.source.capture import CaptureRecord, read_capture
from ticdc_assets_tests.brokers import OwnBroker
from ticdc_assets_tests.demo.simulator.builders import write_capture

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMANDS = {
    "make setup": "make",
    "make demo": "make",
    ".venv/bin/ticdc-assets --demo upstream "
    "\"INSERT INTO crm.contacts (handle, bio) VALUES ('you', 'new here')\"": "demo",
    ".venv/bin/ticdc-assets --demo show crm contacts": "demo",
    "make ui": "make",
    "make help": "make",
    "make test-fast": "make",
    "make test": "make",
    "make lint": "make",
    "make type": "make",
    "make docs": "make",
    "make bench": "make",
    "ticdc-assets doctor": "lake",
    "ticdc-assets seed mine export --timezone UTC": "lake",
    "ticdc-assets diff mine export --timezone UTC": "lake",
    "ticdc-assets sync mine": "lake",
    "ticdc-assets status mine": "lake",
    "ticdc-assets status mine --json": "lake",
    "ticdc-assets metrics mine": "lake",
    "ticdc-assets tables mine": "lake",
    "ticdc-assets tables mine --json": "lake",
    "ticdc-assets show mine shop orders": "lake",
    "ticdc-assets show mine shop orders --format jsonl --limit 5": "lake",
    "ticdc-assets dump mine": "lake",
    "ticdc-assets path mine shop orders": "lake",
    "ticdc-assets quarantine mine": "lake",
    "ticdc-assets redrive mine": "lake",
    "ticdc-assets backfill mine --table shop.orders": "lake",
    "ticdc-assets rewind mine --cut 1": "lake",
    'ticdc-assets sql mine "SELECT count(*) FROM shop.orders" --format csv': "lake",
    "ticdc-assets show mine shop orders --history 1": "lake",
    "ticdc-assets verify mine": "lake",
    "ticdc-assets verify mine shop orders --json": "lake",
    "ticdc-assets report": "lake",
    "ticdc-assets report mine --output mine.html --days 30": "lake",
    "ticdc-assets decode topic.jsonl.gz --format simple-json": "capture",
    "ticdc-assets record mine topic.jsonl.gz": "kafka",
    "ticdc-assets play topic.jsonl.gz mine": "kafka",
}
"""Every command of the README: by make's own dry run, on a capture, on a lake, on a broker, or on
the live demo (`e2e/test_demo.py` does that)."""

ORDERS = [
    {"id": "1", "state": "paid", "total": "12.50"},
    {"id": "2", "state": "new", "total": "0.99"},
    {"id": "4", "state": "new", "total": None},
]


@dataclass(frozen=True)
class Block:
    """A fenced block of a document."""

    language: str
    text: str
    line: int


@pytest.fixture(scope="module")
def blocks(root: Path) -> list[Block]:
    return blocks_of(text_of(root))


def text_of(root: Path) -> str:
    """The README, and the pages that it leads to."""
    pages = (root / "docs" / name for name in ("reference.md", "reading.md"))
    paths = (root / "README.md", *pages)
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def blocks_of(text: str) -> list[Block]:
    """The fenced blocks of a document."""
    found = [
        Block(match[1], match[2], text.count("\n", 0, match.start()) + 1)
        for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    ]
    assert text.count("```") == 2 * len(found)
    return found


def commands(blocks: list[Block]) -> list[str]:
    return [line for block in blocks if block.language == "sh" for line in block.text.splitlines()]


def printed(block: Block, names: dict[str, object] | None = None) -> str:
    """What a Python block prints; what it names is in `names` afterwards."""
    output = io.StringIO()
    code = compile(block.text, f"README.md:{block.line}", "exec")
    names = {} if names is None else names
    names["__name__"] = "readme"
    with contextlib.redirect_stdout(output):
        exec(code, names)
    return output.getvalue()


def python_blocks(blocks: list[Block]) -> list[tuple[Block, Block]]:
    """Each Python block with the block that shows what it prints."""
    return [
        (block, after) for block, after in itertools.pairwise(blocks) if block.language == "python"
    ]


def orders(export: Path | None = None, *, begin_at_export: bool = False) -> list[CaptureRecord]:
    """What TiCDC would send of a table of orders that ends as `ORDERS`; exported on the way."""
    options = FeedOptions()
    upstream = Upstream()
    name = ("shop", "orders")
    upstream.create_database("shop")
    upstream.create_table(
        name,
        (
            column("id", "int", nullable=False),
            column("state", "enum('new','paid')"),
            column("total", "decimal(10,2)"),
        ),
        primary_key=("id",),
    )
    with upstream.transaction() as transaction:
        for number, total in (("1", "12.50"), ("2", "0.99"), ("3", "7.00"), ("4", None)):
            transaction.insert(name, {"id": number, "state": "new", "total": total})
    if export is not None:
        at = export_upstream(upstream, export)
        options = FeedOptions(first_ts=at if begin_at_export else 0)
    with upstream.transaction() as transaction:
        transaction.update(name, ("1",), changes={"state": "paid"})
        transaction.delete(name, ("3",))
    return list(StandInChangefeed(upstream, "mine", partitions=2, options=options).tick())


# Without Spark ----------------------------------------------------------------------------------


def test_every_block_is_of_a_kind_that_is_tried(blocks: list[Block]) -> None:
    assert {block.language for block in blocks} == {"python", "sh", "text", "yaml"}
    outputs = {id(after) for _, after in python_blocks(blocks)}
    for _, after in python_blocks(blocks):
        assert after.language == "text", f"line {after.line}: a Python block shows what it prints"
    loose = [block for block in blocks if block.language == "text" and id(block) not in outputs]
    assert [block.text.split()[0] for block in loose] == ["Kafka", "mirror"], (
        "text that nobody compares"
    )


def test_every_command_is_tried_and_no_other(blocks: list[Block]) -> None:
    listed = commands(blocks)
    assert sorted(listed) == sorted(set(listed)), "a command stands twice"
    assert sorted(listed) == sorted(COMMANDS)


def test_the_configurations_are_valid(blocks: list[Block], tmp_path: Path) -> None:
    (component,) = (block for block in blocks if block.text.startswith("type: "))
    attributes = yaml.safe_load(component.text)["attributes"]
    (feed,) = read_attributes(attributes, tmp_path).changefeeds
    assert isinstance(feed.source, KafkaSource)
    sources = [
        feed.source
        for block in blocks
        if block.language == "yaml" and block is not component
        for feed in parse_changefeeds(block.text, path=tmp_path / "changefeeds.yaml", env={})
    ]
    assert [type(source) for source in sources] == [KafkaSource, CaptureSource, CaptureSource]


@pytest.mark.parametrize("command", [command for command, way in COMMANDS.items() if way == "make"])
def test_make_knows_its_targets(command: str, root: Path) -> None:
    program, *targets = shlex.split(command)
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        [program, "--dry-run", *targets],
        cwd=root,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    listed = (root / "Makefile").read_text(encoding="utf-8")
    for target in targets:
        assert re.search(rf"^{target}:.*## ", listed, re.MULTILINE), f"{target} is not in make help"


def test_options_named_in_the_text_exist(root: Path) -> None:
    text = text_of(root)
    known = {
        option
        for command in main.commands.values()
        for parameter in command.params
        for option in parameter.opts
    }
    named = set(re.findall(r"(?<=[` ])--[a-z][a-z-]*", text))
    assert {"--until", "--max-records", "--json"} <= named
    # An option of TiCDC's.
    assert named <= known | {"--start-ts"}


def test_the_table_of_variables_is_complete(root: Path) -> None:
    text = text_of(root)
    read = {
        name
        for path in (root / "ticdc_assets").rglob("*.py")
        for name in re.findall(
            r'"(TICDC_[A-Z_]+|DAGSTER_HOME|SPARK_REMOTE|XDG_CACHE_HOME)"',
            path.read_text(encoding="utf-8"),
        )
    }
    assert set(re.findall(r"^\| `([A-Z_]+)` \|", text, re.MULTILINE)) == read


# On a capture -----------------------------------------------------------------------------------


def test_the_commands_on_a_capture(
    blocks: list[Block], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_capture(tmp_path / "topic.jsonl.gz", orders())
    told = [run(command) for command in commands(blocks) if COMMANDS[command] == "capture"]
    for lines in ([json.loads(line) for line in text.splitlines()] for text in told):
        assert {(line["partition"], line["offset"]) for line in lines} == {
            (record.partition, record.offset) for record in orders()
        }
        mirror: dict[str, dict[str, str | None]] = {}
        for line in lines:
            if line["type"] == "row":
                image = line["after"] or line["before"]
                mirror[image["id"]] = image
                if line["op"] == "delete":
                    del mirror[image["id"]]
        assert sorted(mirror.values(), key=lambda row: str(row["id"])) == ORDERS


# On a lake --------------------------------------------------------------------------------------


@pytest.fixture
def feed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the README's changefeed over a capture, as the environment names it."""
    write_capture(tmp_path / "messages.jsonl.gz", orders(tmp_path / "export"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TICDC_CHANGEFEEDS", str(tmp_path / "changefeeds.yaml"))
    monkeypatch.setenv("TICDC_LAKE", str(tmp_path / "lake"))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster_home"))
    return tmp_path


def run(command: str) -> str:
    """Run a command of the README in this process and return its standard output."""
    program, *arguments = shlex.split(command)
    assert program == "ticdc-assets"
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, f"{command}: {result.output}"
    return result.stdout


@pytest.mark.spark
def test_the_commands_on_a_lake(blocks: list[Block], feed: Path, spark: "SparkSession") -> None:
    configuration = next(block for block in blocks if "capture:" in block.text)
    (feed / "changefeeds.yaml").write_text(configuration.text, encoding="utf-8")
    outputs = {command: run(command) for command in commands(blocks) if COMMANDS[command] == "lake"}
    told = outputs["ticdc-assets sync mine"]
    assert "1 of 1 mirrors changed" in told
    assert "quarantined 0 records" in told
    (listed,) = json.loads(outputs["ticdc-assets tables mine --json"])
    assert (listed["database"], listed["table"], listed["rows"]) == ("shop", "orders", len(ORDERS))
    assert listed["key"] == ["id"]
    assert "orders" in outputs["ticdc-assets tables mine"]
    assert "12.50" in outputs["ticdc-assets show mine shop orders"]
    shown = outputs["ticdc-assets show mine shop orders --format jsonl --limit 5"].splitlines()
    assert sorted(map(json.loads, shown), key=lambda row: row["id"]) == ORDERS
    dumped = [json.loads(line) for line in outputs["ticdc-assets dump mine"].splitlines()]
    assert sorted((line["row"] for line in dumped), key=lambda row: row["id"]) == ORDERS
    assert {(line["database"], line["table"]) for line in dumped} == {("shop", "orders")}
    assert "nothing is quarantined" in outputs["ticdc-assets quarantine mine"]
    assert "nothing is quarantined" in outputs["ticdc-assets redrive mine"]
    counted = outputs['ticdc-assets sql mine "SELECT count(*) FROM shop.orders" --format csv']
    assert counted == f"count_star()\n{len(ORDERS)}\n"
    assert "4 rows of 1 tables are at" in outputs["ticdc-assets seed mine export --timezone UTC"]
    assert "1 mirrors equal" in outputs["ticdc-assets diff mine export --timezone UTC"]
    assert "snapshot" in outputs["ticdc-assets show mine shop orders --history 1"]
    again = outputs["ticdc-assets backfill mine --table shop.orders"]
    assert "mine: shop.orders: folded again, 3 rows at " in again
    assert "1 of 1 mirrors of cut 3" in outputs["ticdc-assets verify mine"]
    assert json.loads(outputs["ticdc-assets verify mine shop orders --json"])["equal"]
    assert "checks passed" in outputs["ticdc-assets doctor"]
    assert "written to" in outputs["ticdc-assets report"]
    for name in ("report.html", "mine.html"):
        assert "<bdi>shop</bdi>.<bdi>orders</bdi>" in (feed / name).read_text(encoding="utf-8")
    folder, version = outputs["ticdc-assets path mine shop orders"].split("\t")
    assert DeltaTable(folder, version=int(version)).to_pyarrow_table().num_rows == len(ORDERS)
    names: dict[str, object] = {}
    for example, output in python_blocks(blocks):
        assert printed(example, names) == output.text


@pytest.mark.spark
def test_an_existing_table_as_the_readme_begins_it(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: "SparkSession"
) -> None:
    readme = blocks_of((root / "README.md").read_text(encoding="utf-8"))
    (configuration,) = (block for block in readme if block.language == "yaml")
    (steps,) = (block for block in readme if block.language == "sh" and " seed " in block.text)
    records = orders(tmp_path / "export", begin_at_export=True)
    write_capture(tmp_path / "messages.jsonl.gz", records)
    found = re.search(r"Pos: ([0-9]+)", (tmp_path / "export" / "metadata").read_text())
    assert found is not None
    (entry,) = yaml.safe_load(configuration.text)["changefeeds"]
    # What a reader fills in, and a capture in the place of the topic.
    entry |= {"start_ts": int(found[1]), "source": {"capture": "messages.jsonl.gz"}}
    (tmp_path / "changefeeds.yaml").write_text(yaml.safe_dump({"changefeeds": [entry]}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TICDC_CHANGEFEEDS", str(tmp_path / "changefeeds.yaml"))
    monkeypatch.setenv("TICDC_LAKE", str(tmp_path / "lake"))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster_home"))
    told = {command: run(command) for command in steps.text.splitlines()}
    assert told.keys() >= {"ticdc-assets sync mine", "ticdc-assets status mine"}
    assert "WARN" not in "".join(told.values())
    (listed,) = json.loads(run("ticdc-assets tables mine --json"))
    assert (listed["incomplete"], listed["caveats"]) == (False, [])
    dumped = [json.loads(line)["row"] for line in run("ticdc-assets dump mine").splitlines()]
    assert sorted(dumped, key=lambda row: row["id"]) == ORDERS


# On a broker ------------------------------------------------------------------------------------


@pytest.mark.kafka
def test_the_commands_on_a_broker(blocks: list[Block], feed: Path, broker: OwnBroker) -> None:
    configuration = next(block for block in blocks if "kafka:" in block.text)
    (feed / "changefeeds.yaml").write_text(
        configuration.text.replace("127.0.0.1:9092", broker.bootstrap_servers), encoding="utf-8"
    )
    played, recorded = feed / "topic.jsonl.gz", feed / "played.jsonl.gz"
    (feed / "messages.jsonl.gz").rename(played)
    told = run("ticdc-assets play topic.jsonl.gz mine")
    played.rename(recorded)
    assert f"played {len(orders())} records" in told
    told = run("ticdc-assets record mine topic.jsonl.gz")
    assert f"recorded {len(orders())} records" in told
    with read_capture(recorded) as before, read_capture(played) as after:
        assert by_partition(before) == by_partition(after)


def by_partition(records: Iterator[CaptureRecord]) -> list[tuple[int, int, bytes | None]]:
    return sorted((record.partition, record.offset, record.value) for record in records)
