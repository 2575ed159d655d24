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
import re
import shlex
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from click.testing import CliRunner
from deltalake import DeltaTable

from ticdc_assets.cli import main
from ticdc_assets.config import CaptureSource, KafkaSource, parse_changefeeds
from ticdc_assets.demo.simulator.changefeed import StandInChangefeed
from ticdc_assets.demo.simulator.sample import change_orders, open_orders
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.orchestration.component import read_attributes
from ticdc_assets.source.capture import CaptureReader, CaptureRecord
from ticdc_assets_tests.brokers import OwnBroker
from ticdc_assets_tests.commands import Commands
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
    "ticdc-assets broker": "nothing",
    "ticdc-assets sample": "nothing",
    "ticdc-assets doctor": "nothing",
    "ticdc-assets seed mine export --timezone UTC": "nothing",
    "ticdc-assets sync mine": "nothing",
    "ticdc-assets status mine": "nothing",
    "ticdc-assets show mine shop orders": "nothing",
    "ticdc-assets diff mine later --timezone UTC": "nothing",
    'ticdc-assets sql mine "SELECT count(*) FROM shop.orders" --format csv': "nothing",
    "ticdc-assets show mine shop orders --history 1": "nothing",
    "ticdc-assets status mine --json": "lake",
    "ticdc-assets metrics mine": "lake",
    "ticdc-assets tables mine": "lake",
    "ticdc-assets tables mine --json": "lake",
    "ticdc-assets show mine shop orders --format jsonl --limit 5": "lake",
    "ticdc-assets dump mine": "lake",
    "ticdc-assets path mine shop orders": "lake",
    "ticdc-assets quarantine mine": "lake",
    "ticdc-assets redrive mine": "lake",
    "ticdc-assets backfill mine --table shop.orders": "lake",
    "ticdc-assets rewind mine --cut 1": "lake",
    "ticdc-assets verify mine": "lake",
    "ticdc-assets verify mine shop orders --json": "lake",
    "ticdc-assets report": "lake",
    "ticdc-assets report mine --output mine.html --days 30": "lake",
    "ticdc-assets decode topic.jsonl.gz --format simple-json": "capture",
    "ticdc-assets record mine topic.jsonl.gz": "kafka",
    "ticdc-assets play topic.jsonl.gz mine": "kafka",
}
"""Every command and the way it is tested: as a target of make (`test_docs.py`), from nothing (the
README's own tables), on a capture, on a lake, on a broker, or on the live demo
(`e2e/test_demo.py`)."""

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


def orders() -> list[CaptureRecord]:
    """The messages of the sample's table from its beginning; its rows end as `ORDERS`."""
    upstream = Upstream()
    open_orders(upstream)
    change_orders(upstream)
    return list(StandInChangefeed(upstream, "mine", partitions=2).tick())


def in_short(rows: Iterable[Mapping[str, str | None]]) -> list[dict[str, str | None]]:
    """The columns of rows of orders that `ORDERS` has, by key."""
    known = [{name: row[name] for name in ORDERS[0]} for row in rows]
    return sorted(known, key=lambda row: str(row["id"]))


# Without Spark ----------------------------------------------------------------------------------


def test_every_block_is_of_a_kind_that_is_tried(blocks: list[Block]) -> None:
    assert {block.language for block in blocks} == {"python", "sh", "text", "yaml"}
    outputs = {id(after) for _, after in python_blocks(blocks)}
    for _, after in python_blocks(blocks):
        assert after.language == "text", f"line {after.line}: a Python block shows what it prints"
    loose = [block for block in blocks if block.language == "text" and id(block) not in outputs]
    assert [block.text.split()[0] for block in loose] == ["Kafka", "mirror", "id", "id"], (
        "text that nobody compares"
    )


def test_every_command_is_tried_and_no_other(blocks: list[Block]) -> None:
    assert set(commands(blocks)) == set(COMMANDS)


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
        assert in_short(mirror.values()) == ORDERS


# On a lake --------------------------------------------------------------------------------------


@pytest.fixture
def feed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the README's changefeed over a capture, as the environment names it."""
    write_capture(tmp_path / "messages.jsonl.gz", orders())
    live_in(tmp_path, monkeypatch)
    return tmp_path


def live_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run what follows in a folder, with the settings and tables there."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TICDC_CHANGEFEEDS", str(folder / "changefeeds.yaml"))
    monkeypatch.setenv("TICDC_LAKE", str(folder / "lake"))
    monkeypatch.setenv("DAGSTER_HOME", str(folder / "dagster_home"))


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
    told = run("ticdc-assets sync mine")
    outputs = {command: run(command) for command in commands(blocks) if COMMANDS[command] == "lake"}
    assert "1 of 1 mirror changed" in told
    assert "quarantined 0 records" in told
    (listed,) = json.loads(outputs["ticdc-assets tables mine --json"])
    assert (listed["database"], listed["table"], listed["rows"]) == ("shop", "orders", len(ORDERS))
    assert listed["key"] == ["id"]
    assert "orders" in outputs["ticdc-assets tables mine"]
    shown = outputs["ticdc-assets show mine shop orders --format jsonl --limit 5"].splitlines()
    assert in_short(map(json.loads, shown)) == ORDERS
    dumped = [json.loads(line) for line in outputs["ticdc-assets dump mine"].splitlines()]
    assert in_short(line["row"] for line in dumped) == ORDERS
    assert {(line["database"], line["table"]) for line in dumped} == {("shop", "orders")}
    assert "nothing is quarantined" in outputs["ticdc-assets quarantine mine"]
    assert "nothing is quarantined" in outputs["ticdc-assets redrive mine"]
    again = outputs["ticdc-assets backfill mine --table shop.orders"]
    assert "mine: shop.orders: folded again, 3 rows at " in again
    assert "1 of 1 mirror of cut 3" in outputs["ticdc-assets verify mine"]
    assert json.loads(outputs["ticdc-assets verify mine shop orders --json"])["equal"]
    assert "written to" in outputs["ticdc-assets report"]
    for name in ("report.html", "mine.html"):
        assert "<bdi>shop</bdi>.<bdi>orders</bdi>" in (feed / name).read_text(encoding="utf-8")
    folder, version = outputs["ticdc-assets path mine shop orders"].split("\t")
    assert DeltaTable(folder, version=int(version)).to_pyarrow_table().num_rows == len(ORDERS)
    names: dict[str, object] = {}
    for example, output in python_blocks(blocks):
        assert printed(example, names) == output.text


# From nothing -----------------------------------------------------------------------------------


@contextlib.contextmanager
def own_broker(folder: Path) -> Iterator[str]:
    """Run the README's broker in a folder; return its address, and end it by Ctrl-C."""
    address, said = folder / "address", folder / "said"
    with address.open("wb") as stdout, said.open("wb") as stderr:
        process = Commands(folder).start("broker", stdout=stdout, stderr=stderr)
    try:
        deadline = time.monotonic() + 120
        while not address.read_text().endswith("\n"):
            assert process.poll() is None, said.read_text()
            assert time.monotonic() < deadline, said.read_text()
            time.sleep(0.1)
        yield address.read_text().strip()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert said.read_text().splitlines()[-1].startswith("the broker is stopped; its topics ")
    finally:
        process.kill()


def shown_rows(output: str) -> list[list[str]]:
    """The cells of what `show` prints, with times as T."""
    lines = [line for line in output.splitlines() if line[:1] in "┃│"]
    cells = ([cell.strip() for cell in re.split("[┃│]", line)[1:-1]] for line in lines)
    return [[_TIME.sub("T", cell) for cell in row] for row in cells]


_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")


@pytest.mark.kafka
@pytest.mark.spark
def test_own_tables_from_nothing(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: "SparkSession"
) -> None:
    readme = blocks_of((root / "README.md").read_text(encoding="utf-8"))
    steps = [command for command in commands(readme) if COMMANDS[command] in ("nothing", "kafka")]
    assert steps[:2] == ["ticdc-assets broker", "ticdc-assets sample"]
    live_in(tmp_path, monkeypatch)
    with own_broker(tmp_path) as address:
        run(steps[1])
        written = (tmp_path / "changefeeds.yaml").read_text()
        (configuration,) = (block for block in readme if block.language == "yaml")
        any_ts = re.compile(r"(?<=start_ts: )\d+")
        assert any_ts.sub("", written) == any_ts.sub("", configuration.text)
        (tmp_path / "changefeeds.yaml").write_text(written.replace("127.0.0.1:9092", address))
        told = {command: run(command) for command in steps[2:]}
    assert "WARN" not in "".join(told.values())
    assert "checks passed" in told["ticdc-assets doctor"]
    assert "4 rows of 1 table seeded at" in told["ticdc-assets seed mine export --timezone UTC"]
    assert "1 of 1 mirror changed" in told["ticdc-assets sync mine"]
    assert "complete" in told["ticdc-assets status mine"]
    assert "1 mirror equals" in told["ticdc-assets diff mine later --timezone UTC"]
    counted = told['ticdc-assets sql mine "SELECT count(*) FROM shop.orders" --format csv']
    assert counted == f"count_star()\n{len(ORDERS)}\n"
    assert "snapshot" in told["ticdc-assets show mine shop orders --history 1"]
    (sample,) = (block for block in readme if block.text.startswith("id  customer "))
    assert shown_rows(told["ticdc-assets show mine shop orders"]) == [
        re.split(" {2,}", _TIME.sub("T", line)) for line in sample.text.splitlines()
    ]
    refused = CliRunner().invoke(main, ["sample"])
    assert (refused.exit_code, "changefeeds.yaml exists" in refused.output) == (1, True)
    (listed,) = json.loads(run("ticdc-assets tables mine --json"))
    assert (listed["incomplete"], listed["caveats"]) == (False, [])


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
    with CaptureReader(recorded) as before, CaptureReader(played) as after:
        assert by_partition(before) == by_partition(after)


def by_partition(records: Iterator[CaptureRecord]) -> list[tuple[int, int, bytes | None]]:
    return sorted((record.partition, record.offset, record.value) for record in records)
