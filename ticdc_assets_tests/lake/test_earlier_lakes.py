"""A lake that a version before the first release wrote: refused, and made again by `rebuild`.

`earlier/` has such a lake after two syncs, the capture that it was synced from (`messages.jsonl`),
the records that come later (`later.jsonl`), and what `dump` told then and, by that version, after a
third sync (`dump-then.jsonl`, `dump-now.jsonl`). It has a table with a key that was merged into,
one without a key, one with a history that is renamed later, one whose schema comes later, values
that no typed column holds, and a record that is no message.
"""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ticdc_assets_tests.commands import Commands

pytestmark = pytest.mark.spark

ARCHIVE = Path(__file__).parent / "earlier" / "lake-0.1.tar.xz"

REFUSAL = (
    "the tables of changefeed 'shop' have another layout: a version of this package before its "
    "first release wrote them (layout 1, not 4); `ticdc-assets rebuild shop` makes them again from "
    "the landed records"
)


def sorted_lines(text: str) -> list[str]:
    return sorted(text.splitlines())


def states(commands: Commands) -> dict[str, tuple[Any, ...]]:
    return {
        item["table"]: (item["rows"], item["held"], item["quarantined"])
        for item in json.loads(commands.done("tables", "shop", "--json"))
    }


def unpacked(folder: Path) -> Commands:
    """Unpack the lake into a folder, and return commands on it."""
    with tarfile.open(ARCHIVE) as packed:
        packed.extractall(folder, filter="data")
    commands = Commands(folder)
    commands.add_capture("shop", "messages.jsonl", history=["shop.*"])
    return commands


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    """The lake as it was packed: what is refused leaves it so."""
    return unpacked(tmp_path_factory.mktemp("earlier"))


@pytest.mark.parametrize(
    "command",
    [
        ("sync", "shop"),
        ("tables", "shop"),
        ("status", "shop"),
        ("dump", "shop"),
        ("verify", "shop"),
        ("maintain", "shop"),
        ("sql", "shop", "SELECT 1 FROM shop.log"),
        ("backfill", "shop", "--table", "shop.log"),
    ],
    ids=lambda command: command[0],
)
def test_a_lake_of_another_layout_is_refused(earlier: Commands, command: tuple[str, ...]) -> None:
    before = sorted(path for path in (earlier.folder / "lake").rglob("*.parquet"))
    assert earlier.refused(*command) == REFUSAL
    assert sorted(path for path in (earlier.folder / "lake").rglob("*.parquet")) == before


def test_doctor_names_the_command(earlier: Commands) -> None:
    result = earlier.run("doctor")
    assert "`ticdc-assets rebuild shop`" in result.stdout
    assert "layout 1, not 4" in result.stdout


def test_rebuild_makes_the_lake_again_from_its_landed_records(
    spark: SparkSession, tmp_path: Path
) -> None:
    commands = unpacked(tmp_path)
    then, now = ((tmp_path / f"dump-{name}.jsonl").read_text() for name in ("then", "now"))

    commands.done("rebuild", "shop")
    assert sorted_lines(commands.done("dump", "shop")) == sorted_lines(then)
    assert states(commands) == {
        "customers": (5, 0, 0),
        "late": (0, 4, 0),
        "log": (20, 0, 0),
        "orders": (10_450, 0, 0),
    }
    with (tmp_path / "messages.jsonl").open("a") as capture:
        capture.write((tmp_path / "later.jsonl").read_text())
    assert "4 of 4 mirrors changed" in commands.done("sync", "shop")
    assert sorted_lines(commands.done("dump", "shop")) == sorted_lines(now)
    assert states(commands) == {
        "clients": (5, 0, 0),
        "late": (5, 0, 0),
        "log": (21, 0, 0),
        "orders": (10_450, 0, 0),
    }
    told = commands.done("show", "shop", "shop", "clients", "--format", "jsonl", "--history", "1")
    versions = [json.loads(line) for line in told.splitlines()]
    assert [item["row"]["name"] for item in versions] == ["c1", "d1", "e1"]
    commands.done("verify", "shop")
