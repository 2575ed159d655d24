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

from ticdc_assets.config import load_settings
from ticdc_assets.pipeline.standing import Outcome
from ticdc_assets.pipeline.versions import history_in_spark, mirror_in_spark
from ticdc_assets_tests.commands import Commands
from ticdc_assets_tests.lake.feeds import Feed, small_up_to, treat_as_large

pytestmark = pytest.mark.spark

ARCHIVES = sorted((Path(__file__).parent / "earlier").glob("*.tar.xz"))
EARLIEST = ARCHIVES[0]


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


def unpacked(archive: Path, folder: Path) -> Commands:
    """Unpack a lake into a folder, and return commands on it."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    commands = Commands(folder)
    commands.add_capture("shop", "messages.jsonl", history=["shop.*"])
    return commands


def add_later_records(folder: Path) -> None:
    with (folder / "messages.jsonl").open("a") as capture:
        capture.write((folder / "later.jsonl").read_text())


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_a_lake_of_an_earlier_version_syncs_on(
    archive: Path, spark: SparkSession, tmp_path: Path
) -> None:
    commands = unpacked(archive, tmp_path)
    then, now = ((tmp_path / f"dump-{name}.jsonl").read_text() for name in ("then", "now"))

    assert sorted_lines(commands.done("dump", "shop")) == sorted_lines(then)
    assert states(commands) == {
        "customers": (5, 0, 0),
        "late": (0, 4, 0),
        "log": (20, 0, 0),
        "orders": (10_450, 0, 0),
    }
    listed = json.loads(commands.done("tables", "shop", "--json"))
    (cut,) = {item["applied_ts"] for item in listed if item["has_mirror"]}

    add_later_records(tmp_path)
    told = commands.done("sync", "shop")
    assert "4 of 4 mirrors changed" in told
    assert "renamed _ticdc_extra to _rescued_data in: shop.clients, shop.log, shop.orders\n" in told
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
    commands.done("verify", "shop")


@pytest.mark.slow
def test_large_mirrors_of_an_earlier_lake_are_renamed_in_place(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ALTER TABLE gives mirrors and histories the column's name, whether or not rows changed."""
    treat_as_large(monkeypatch)
    small_up_to(monkeypatch, 0)
    commands = unpacked(EARLIEST, tmp_path)
    settings = load_settings(commands.env)
    feed = Feed(spark, settings.changefeed("shop"), commands.paths("shop"))
    older, rows = feed.cut, feed.rows()
    assert older.layout == 1

    applying = feed.sync()
    assert applying.renamed == ("shop.customers", "shop.log", "shop.orders")
    assert {item.table: item.mode for item in feed.cut.mirrors} == {
        "customers": "alter",
        "log": "alter",
        "orders": "alter",
    }
    assert feed.rows() == rows
    for before, after in zip(older.mirrors, feed.cut.mirrors, strict=True):
        # What is read of both versions has the name of today, and the newer one is stored so.
        assert stored(spark, after.path(feed.paths), after.version)[-1] == "_rescued_data"
        assert stored(spark, before.path(feed.paths), before.version)[-1] == "_ticdc_extra"
        frames = [mirror_in_spark(spark, feed.paths, item) for item in (before, after)]
        assert frames[0].columns == frames[1].columns
        assert after.history_version is not None
        path = feed.paths.history(after.mirror_id)
        assert stored(spark, path, after.history_version)[-1] == "_rescued_data"
        if before.history_version is not None:
            both = [history_in_spark(spark, feed.paths, item) for item in (before, after)]
            assert both[0].columns == both[1].columns
            assert both[0].count() == both[1].count() == after.history_rows
    assert feed.sync().outcome is Outcome.UNCHANGED


def test_large_mirrors_of_an_earlier_lake_are_renamed_and_merged_into(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same sync renames the column and brings row changes."""
    treat_as_large(monkeypatch)
    small_up_to(monkeypatch, 0)
    commands = unpacked(EARLIEST, tmp_path)
    settings = load_settings(commands.env)
    feed = Feed(spark, settings.changefeed("shop"), commands.paths("shop"))
    add_later_records(tmp_path)
    applying = feed.sync()
    assert applying.renamed == ("shop.clients", "shop.log", "shop.orders")
    now = (tmp_path / "dump-now.jsonl").read_text()
    assert sorted_lines(commands.done("dump", "shop")) == sorted_lines(now)
    versions = shown(commands, "clients", "--history", "1")
    assert [item["row"]["name"] for item in versions] == ["c1", "d1", "e1"]


def stored(spark: SparkSession, table: Path, version: int) -> list[str]:
    """Return the names of the columns in a table's own schema at a version."""
    return spark.read.format("delta").option("versionAsOf", version).load(str(table)).columns
