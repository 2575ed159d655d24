"""The pages about operating agree with the code: commands, configurations, sections.

Each command of this package is parsed as the program would, without running it; test_readme.py and
test_cli.py run commands. YAML goes through the package's reader, TOML is compared with the names
that TiCDC's source has.
"""

import contextlib
import io
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from ticdc_assets.cli import main
from ticdc_assets.config import OptionValue, parse_changefeeds
from ticdc_assets.config.spark import read_spark
from ticdc_assets.observe.alerting import understands
from ticdc_assets.orchestration.changefeeds import definitions_of
from ticdc_assets.orchestration.steps import steps_of
from ticdc_assets_tests.orchestration.small_shop import SmallShop
from ticdc_assets_tests.test_docs import anchors
from ticdc_assets_tests.test_readme import Block, blocks_of

PAGES = ("own-tables", "real-tidb", "ticdc", "operate", "troubleshooting", "cluster")

OTHERS = {
    *("cat", "cd", "eval", "export", "git", "make", "mysql", "python3.11"),
    "/opt/ticdc-assets/bin/pip",
}
"""Programs of which only the name is compared."""

TICDC = {
    "cdc": {"cli"},
    "tiup": {"dumpling", "playground", "cdc:v8.5.8", "clean"},
    "kafka-configs.sh": {"--bootstrap-server"},
}
"""Programs of the source's side, and how their lines go on."""

_SETTINGS = """
    filter integrity sink force-replicate
    filter: rules event-filters
    filter.event-filters: matcher ignore-event ignore-sql ignore-insert-value-expr
    filter.event-filters: ignore-update-only-columns
    integrity: integrity-check-level corruption-handle-level
    sink: protocol content-compatible only-output-updated-columns dispatchers column-selectors
    sink: delete-only-output-handle-key-columns open kafka-config send-bootstrap-interval-in-sec
    sink: send-bootstrap-in-msg-count send-bootstrap-to-all-partition send-all-bootstrap-at-start
    sink.dispatchers: matcher topic partition columns target-schema target-table
    sink.column-selectors: matcher columns
    sink.open: output-old-value
    sink.kafka-config: partition-num replication-factor max-message-bytes compression
    sink.kafka-config: auto-create-topic output-raw-change-event codec-config large-message-handle
    sink.kafka-config.codec-config: enable-tidb-extension encoding-format max-batch-size
    sink.kafka-config.codec-config: output-row-key
    sink.kafka-config.large-message-handle: large-message-handle-option
    sink.kafka-config.large-message-handle: large-message-handle-compression
    sink.kafka-config.large-message-handle: claim-check-storage-uri claim-check-raw-value
"""
SETTINGS = {
    f"{place}.{name}".removeprefix(".")
    for line in _SETTINGS.split("\n")
    for place, _, names in [line.strip().rpartition(": ")]
    for name in names.split()
}
"""Names of TiCDC's changefeed file that are spoken of, by where they stand there.

From the toml tags of pkg/config (replica_config.go, sink.go, filter.go, large_message.go) and
pkg/integrity in pingcap/tiflow v8.5.7 and pingcap/ticdc b813e76f9, read once by hand.
"""


@pytest.fixture
def shop(tmp_path: Path) -> SmallShop:
    return SmallShop(tmp_path)


@pytest.fixture(scope="module")
def text(root: Path) -> str:
    return "\n".join((root / "docs" / f"{page}.md").read_text(encoding="utf-8") for page in PAGES)


@pytest.fixture(scope="module")
def blocks(text: str) -> list[Block]:
    return blocks_of(text)


def lines(blocks: list[Block]) -> list[str]:
    return [line for block in blocks if block.language == "sh" for line in block.text.splitlines()]


def of_language(blocks: list[Block], language: str) -> list[Block]:
    return [block for block in blocks if block.language == language]


def test_every_block_is_of_a_kind_that_is_tried(blocks: list[Block]) -> None:
    assert {block.language for block in blocks} == {"sh", "toml", "yaml", "ini", "sql", "python"}


def test_commands_are_understood(
    blocks: list[Block], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "look.jsonl").touch()  # the file that the command before makes
    ours = 0
    for line in lines(blocks):
        program, *words = shlex.split(line)
        if program == "ticdc-assets":
            understood(words)
            ours += 1
        elif program in TICDC:
            assert words[0] in TICDC[program], line
        else:
            assert program in OTHERS, line
    assert ours > 20


def understood(words: list[str]) -> None:
    """Parse a command line as the program would, without running it."""
    name, *arguments = words
    # With the settings of the program: a command remembers its options for help as they are now.
    context = click.Context(main, **main.context_settings)
    command = main.get_command(context, name)
    assert command is not None, name
    command.make_context(name, list(arguments), parent=context)


def test_settings_of_ticdc_stand_where_it_looks_for_them(blocks: list[Block]) -> None:
    protocols: set[str] = set()
    for block in of_language(blocks, "toml"):
        settings = tomllib.loads(block.text)
        assert set(names_of(settings)) <= SETTINGS, f"block {block.line}"
        protocols.add(settings.get("sink", {}).get("protocol", ""))
    assert protocols - {""} == {"simple", "open-protocol", "canal-json", "craft"}


def test_options_of_ticdc_that_are_named_exist(text: str) -> None:
    """Each option in the first column of the table of options is one that is known."""
    known = {name.rpartition(".")[2] for name in SETTINGS} | {"time zone"}
    links = r"(?: \(\[[^]]*\]\([^)]*\)\))?"
    rows = re.findall(rf"^\| (`[a-z-]+`(?:, `[a-z-]+`)*){links} \| ", text, re.MULTILINE)
    options = {name for row in rows for name in re.findall(r"`([a-z-]+)`", row) if "-" in name}
    assert len(options) > 15
    assert options <= known


def names_of(settings: dict[str, Any], place: str = "") -> Iterator[str]:
    for name, value in settings.items():
        yield f"{place}{name}"
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, dict):
                yield from names_of(inner, f"{place}{name}.")


def test_configurations_are_read(blocks: list[Block], tmp_path: Path) -> None:
    env = {"KAFKA_USERNAME": "reader", "KAFKA_PASSWORD": "secret"}
    for block in of_language(blocks, "ini"):
        env |= dict(line.split("=", 1) for line in block.text.splitlines())
    assert understands(OptionValue(env["ALERTS_MAIL"], "{env: ALERTS_MAIL}"))
    read = 0
    for block in of_language(blocks, "yaml"):
        if block.text.startswith("changefeeds:"):
            parse_changefeeds(block.text, path=tmp_path / "changefeeds.yaml", env=env)
            read += 1
    assert read == 5
    (spark,) = [block for block in of_language(blocks, "yaml") if block.text.startswith("spark:")]
    given = yaml.load(spark.text, Loader=yaml.BaseLoader)["spark"]
    settings, mistakes = read_spark(given, tmp_path / "operate.md", {})
    assert (settings.is_local, mistakes) == (False, [])


def test_python_prints_something(blocks: list[Block]) -> None:
    (block,) = of_language(blocks, "python")
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(block.text, "operate.md", "exec"), {})
    assert output.getvalue().splitlines() == [
        "2026-11-21 08:46:23.784000+00:00",
        str(1795262400000 << 18),
    ]


def test_every_check_has_its_section(root: Path, shop: SmallShop) -> None:
    text = (root / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    definitions = definitions_of([steps_of(shop.settings, shop.changefeed)])
    checks = {
        key.name
        for check in definitions.asset_checks or []
        for key in getattr(check, "check_keys", [])
    }
    assert "replication_lag" in checks
    assert checks <= anchors(text), "a check without a section"
    named = text[text.index("\n## Checks\n") : text.index("\n## Errors of runs\n")]
    sections = re.split(r"^### ", named, flags=re.MULTILINE)[1:]
    for section in sections:
        name = section.split("\n", 1)[0]
        for part in ("**Means**", "**Look**", "**Fix**", "**Harmless**"):
            assert part in section, f"{name} has no {part}"
