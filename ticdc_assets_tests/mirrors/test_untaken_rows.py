"""Rows that no mirror takes wait, are shown, and are applied once their table is known."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ticdc_assets.log.cuts import ChangeAccount
from ticdc_assets.mirrors import applying as mirrors
from ticdc_assets.model.events import Bootstrap, DdlEvent
from ticdc_assets.repair.verifying import verify
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.wire import WireFormat
from ticdc_assets_tests.commands import Commands
from ticdc_assets_tests.demo.simulator.builders import PLAIN_COLUMNS, fill, plain_upstream
from ticdc_assets_tests.demo.simulator.variants import PLAIN, Variant, each_format
from ticdc_assets_tests.lake.feeds import Feed, truth_rows

pytestmark = pytest.mark.spark

LOST, OTHER = ("d", "lost"), ("d", "other")


class Life:
    """A table that is dropped and created again, and the records of it in one format.

    Attributes:
        before: the records up to the DROP, with it.
        after: those after it, without the CREATE.
        created: the CREATE and what else tells the second table's schema.
        rows: rows of the second table.
    """

    def __init__(self, variant: Variant) -> None:
        upstream = plain_upstream(LOST, OTHER, rows=5)
        self.changefeed = variant.changefeed(upstream, partitions=1)
        upstream.drop_table(LOST)
        self.before = list(self.changefeed.tick())
        upstream.create_table(LOST, PLAIN_COLUMNS, primary_key=("id",))
        fill(upstream, LOST, rows=7, seed=2)
        fill(upstream, OTHER, rows=3, seed=3)
        self.rows = len(upstream.rows(LOST))
        found = list(self.changefeed.tick())
        # The capture has only what was sent first, so that offsets have no gaps.
        said = [any(_tells(event) for _, event in variant.events([item])) for item in found]
        start = len(self.before)
        self.after = _renumbered(
            [r for r, is_said in zip(found, said, strict=True) if not is_said], start
        )
        rest = [r for r, is_said in zip(found, said, strict=True) if is_said]
        self.created = _renumbered(rest, start + len(self.after))

    def wanted(self) -> object:
        return truth_rows(self.changefeed.truth(self.changefeed.watermark_ts))


def _tells(event: object) -> bool:
    return isinstance(event, Bootstrap | DdlEvent)


def _renumbered(records: list[CaptureRecord], start: int) -> list[CaptureRecord]:
    return [replace(record, offset=start + number) for number, record in enumerate(records)]


@each_format("simple-json", "canal-json-plain")
@pytest.mark.parametrize("syncs", [1, 2])
def test_rows_of_a_table_that_no_message_created_wait_for_it(
    spark: SparkSession, tmp_path: Path, variant: Variant, syncs: int
) -> None:
    life = Life(variant)
    feed = Feed.of(spark, tmp_path, wire_format=variant.wire_format)
    feed.write(life.before)
    if syncs == 2:
        feed.sync()
    feed.write(life.after)
    feed.sync()
    (held,) = feed.cut.held
    assert ((held.database, held.table), held.rows, held.mirror_id) == (LOST, life.rows, None)
    assert sum(item.held for item in feed.cut.accounts) == life.rows
    lost, other = feed.listed()
    assert (lost.status.has_mirror, lost.path, lost.incomplete) == (False, None, True)
    assert lost.status.lacking == (f"{life.rows} held", "no mirror yet")
    assert not other.incomplete
    feed.write(life.created)
    feed.sync()
    assert feed.cut.held == ()
    assert feed.rows() == life.wanted()
    assert not any(item.incomplete for item in feed.listed())


@each_format("simple-json", "open-protocol")
def test_no_row_is_held_where_a_table_was_created_again(
    spark: SparkSession, tmp_path: Path, variant: Variant
) -> None:
    life = Life(variant)
    feed = Feed.of(spark, tmp_path, wire_format=variant.wire_format)
    records = [*life.before, *life.created, *life.after]
    feed.write(_renumbered(records, 0))
    feed.sync()
    assert feed.cut.held == ()
    assert feed.rows() == life.wanted()


def test_held_rows_of_no_table_in_each_command(tmp_path: Path, feed: Feed) -> None:
    life = Life(PLAIN["canal-json"])
    commands = Commands(tmp_path)
    feed.write([*life.before, *life.after])
    commands.add_capture("feed", tmp_path / "capture.jsonl", format="canal-json")
    said = commands.done("sync", "feed")
    assert f"{life.rows} rows wait for a table that no message created" in said
    assert "d.lost" in said
    (lost,) = (item for item in commands.mirrors("feed") if item["table"] == "lost")
    assert (lost["held"], lost["has_mirror"], lost["path"]) == (life.rows, False, None)
    assert "no mirror" in commands.done("tables", "feed")
    assert "ticdc-assets seed feed EXPORT" in commands.done("status", "feed")
    (status,) = json.loads(commands.done("status", "feed", "--json"))
    assert status["held"] == life.rows
    assert commands.run("verify", "feed").exit_code == 0
    # Nothing is new: the sync that does nothing says it too.
    assert "wait for a table that no message created" in commands.done("sync", "feed")


def test_a_broken_account_is_an_error_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, feed: Feed
) -> None:
    life = Life(PLAIN["open-protocol"])
    commands = Commands(tmp_path)
    feed.write([*life.before, *life.after])
    commands.add_capture("feed", tmp_path / "capture.jsonl", format="open-protocol")
    broken = ChangeAccount(
        database="d", table="lost.2", read=9, unaccounted=9, first_ts=1, examples=("topic/0/1/0",)
    )
    monkeypatch.setattr(mirrors, "account_changes", lambda *_, **__: (broken,))
    for _ in range(2):  # the second one has nothing to do
        done = commands.run("sync", "feed")
        assert done.exit_code == 1
        assert "9 row changes of d.`lost.2` are in no mirror" in done.stderr
    (lost,) = (item for item in commands.mirrors("feed") if item["table"] == "lost.2")
    assert (lost["unaccounted"], lost["verdict"]["level"]) == (9, "fail")
    assert "changes_accounted" in commands.done("status", "feed")
    assert "9 not accounted for" in commands.done("tables", "feed")
    found = verify(feed.having(wire_format=WireFormat.OPEN_PROTOCOL).lake)
    assert not found.equal
    assert found.summary.startswith("not proven: 9 row changes")
    assert "not proven" in commands.refused("verify", "feed")


@each_format("simple-json", "canal-json")
def test_a_landing_that_cannot_be_decoded_at_all(
    tmp_path: Path, variant: Variant, feed: Feed
) -> None:
    life = Life(variant)
    feed.write([*life.before, *life.after, *life.created])
    commands = Commands(tmp_path)
    wrong = "open-protocol" if variant.sends_schemas else "simple-json"
    commands.add_capture("feed", tmp_path / "capture.jsonl", format=wrong)
    done = commands.run("sync", "feed")
    assert done.exit_code == 1
    assert "records, went to quarantine" in done.stderr
    assert "doctor" in done.stderr
    # The sentence is true: the settings are corrected, and the records are tried again.
    commands.set("feed", format=str(variant.wire_format))
    commands.done("redrive", "feed")
    assert commands.rows("feed") == life.wanted()
