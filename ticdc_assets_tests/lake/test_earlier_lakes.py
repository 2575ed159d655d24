"""Lakes that earlier versions wrote: each opens with this one, and syncs on.

`earlier/` has one archive a version: the lake after two syncs, the capture that it was synced from
(`messages.jsonl`), the records that come later (`later.jsonl`), and what `dump` told then and, by
that version, after a third sync (`dump-then.jsonl`, `dump-now.jsonl`). It has a table with a key
that was merged into, one without a key, one with a history that is renamed later, one whose schema
comes later, values that no typed column holds, and a record that is no message.
"""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ticdc_assets_tests.commands import Commands

pytestmark = pytest.mark.spark

ARCHIVES = sorted((Path(__file__).parent / "earlier").glob("*.tar.xz"))


def sorted_lines(text: str) -> list[str]:
    return sorted(text.splitlines())


def states(commands: Commands) -> dict[str, tuple[Any, ...]]:
    return {
        item["table"]: (item["rows"], item["held"], item["quarantined"])
        for item in json.loads(commands.done("tables", "shop", "--json"))
    }


def shown(commands: Commands, table: str, *options: object) -> list[dict[str, Any]]:
    told = commands.done("show", "shop", "shop", table, "--format", "jsonl", *options)
    return [json.loads(line) for line in told.splitlines()]


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_a_lake_of_an_earlier_version_syncs_on(
    archive: Path, spark: SparkSession, tmp_path: Path
) -> None:
    """What changes the lake runs as a program of its own."""
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    commands = Commands(tmp_path)
    commands.add_capture("shop", "messages.jsonl", history=["shop.*"])
    then, now = ((tmp_path / f"dump-{name}.jsonl").read_text() for name in ("then", "now"))

    assert sorted_lines(commands.done("dump", "shop")) == sorted_lines(then)
    assert states(commands) == {"customers": (5, 0, 0), "log": (20, 0, 0), "orders": (10_450, 0, 0)}
    (cut,) = {item["applied_ts"] for item in json.loads(commands.done("tables", "shop", "--json"))}

    with (tmp_path / "messages.jsonl").open("a") as capture:
        capture.write((tmp_path / "later.jsonl").read_text())
    assert "4 of 4 mirrors changed" in commands.ran("sync", "shop")
    assert sorted_lines(commands.done("dump", "shop")) == sorted_lines(now)
    assert states(commands) == {
        "clients": (5, 0, 0),
        "late": (5, 0, 0),
        "log": (21, 0, 0),
        "orders": (10_450, 0, 0),
    }
    # What was held then has its place in the past by now; the rest of that cut is what it was.
    for table, rows in (("customers", 5), ("log", 20), ("orders", 10_450), ("late", 4)):
        assert len(shown(commands, table, "--as-of", cut)) == rows
    versions = shown(commands, "clients", "--history", "1")
    assert [item["row"]["name"] for item in versions] == ["c1", "d1", "e1"]
    assert commands.program("verify", "shop").returncode == 0
