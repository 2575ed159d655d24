"""Spark on a lake in a store, in processes of its own: large mirrors, and upkeep."""

import json
from pathlib import Path

import pytest

from ticdc_assets.demo.simulator.alterations import DropColumn
from ticdc_assets.demo.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.log.cuts import require_cut
from ticdc_assets_tests.commands import Commands
from ticdc_assets_tests.demo.simulator.builders import write_capture
from ticdc_assets_tests.golden import rows_of
from ticdc_assets_tests.lake.feeds import truth_rows
from ticdc_assets_tests.stores import StoreLake

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

LARGE = ("d", "large")
"""11,000 rows."""


def commands_at(folder: Path, lake: StoreLake) -> Commands:
    folder.mkdir(exist_ok=True)
    commands = Commands(folder, lake)
    commands.add_capture("feed", folder / "capture.jsonl")
    return commands


def test_a_mirror_is_changed_altered_maintained_and_verified_on_spark(
    store_lake: StoreLake, tmp_path: Path, java: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream = Upstream()
    upstream.create_database("d")
    columns = (column("id", "int", nullable=False), column("v", "int"), column("day", "date"))
    upstream.create_table(LARGE, columns, primary_key=("id",))
    with upstream.transaction() as transaction:
        for number in range(11_000):
            transaction.insert(LARGE, {"id": str(number), "v": "0", "day": "2026-01-01"})
    changefeed = StandInChangefeed(
        upstream, "d", partitions=2, options=FeedOptions(rows_per_flush=3_000)
    )
    commands = commands_at(tmp_path, store_lake)
    monkeypatch.setenv("TICDC_COMPUTE", "spark")

    def synced() -> None:
        write_capture(tmp_path / "capture.jsonl", changefeed.records())
        commands.ran("sync", "feed")
        cut = require_cut(commands.paths("feed"))
        assert (cut.failed, cut.unaccounted) == ((), ())
        rows = rows_of(map(json.loads, commands.ran("dump", "feed").splitlines()))
        assert rows == truth_rows(upstream.truth())

    synced()
    for turn in range(2):
        with upstream.transaction() as transaction:
            transaction.update(LARGE, (str(turn),), changes={"v": "5"})
        synced()
    upstream.alter_table(LARGE, DropColumn(name="day"))
    with upstream.transaction() as transaction:
        transaction.delete(LARGE, ("7",))
    synced()
    commands.ran("maintain", "feed")
    assert "equal" in commands.ran("verify", "feed")
    synced()
