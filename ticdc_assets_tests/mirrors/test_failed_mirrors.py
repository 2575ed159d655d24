"""A mirror that cannot be made fails alone, is listed, keeps its rows, and is made again."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ticdc_assets.base.errors import NotFoundError
from ticdc_assets.changelog import lineage_plans
from ticdc_assets.config import TableChoice
from ticdc_assets.delta.opening import latest_version
from ticdc_assets.demo.simulator.alterations import AddColumn
from ticdc_assets.demo.simulator.changefeed import StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.encoders.simple_json import encode
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.log.cuts import publish
from ticdc_assets.log.quarantine import read_quarantine
from ticdc_assets.mirrors import applying as mirrors
from ticdc_assets.mirrors import mirror_making
from ticdc_assets.mirrors.change_folding import ChangeFolding
from ticdc_assets.mirrors.mirror_making import MirrorMaker
from ticdc_assets.mirrors.standing import Outcome
from ticdc_assets.model.events import Bootstrap, RowChange
from ticdc_assets.model.tso import physical_ms
from ticdc_assets.observe.overview import read_overview
from ticdc_assets.observe.status_reading import read_status
from ticdc_assets.observe.verdicts import Check, Level
from ticdc_assets.orchestration.verdicts import CheckVerdict, check_verdict
from ticdc_assets.reading.mirrors import read_mirror, require_mirror
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets.wire.record import Record
from ticdc_assets_tests.demo.simulator.builders import fill, plain_upstream
from ticdc_assets_tests.lake.feeds import Feed, truth_rows
from ticdc_assets_tests.lake.killing import before, killed, raising

pytestmark = pytest.mark.spark

Shop = tuple[Feed, StandInChangefeed, Upstream]


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Shop:
    upstream = plain_upstream(("d", "bad"), ("d", "good"), rows=4)
    return Feed.of(spark, tmp_path), StandInChangefeed(upstream, "d", partitions=2), upstream


def said(feed: Feed, check: Check) -> CheckVerdict:
    status = read_status(feed.lake, datetime.now(UTC))
    return check_verdict(check, status)


@contextmanager
def failing(owner: Any, name: str, error: Exception) -> Iterator[None]:
    """Let a function raise where it is about the table `bad`."""
    real = getattr(owner, name)

    def broken(*args: Any, **named: Any) -> Any:
        if any(getattr(item, "table", "") == "bad" for item in args):
            raise error
        return real(*args, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, broken)
        yield


NO_SPACE = OSError(28, "No space left on device")


def citing(
    record: CaptureRecord, table: str, version: int, *, table_id: int | None = None
) -> CaptureRecord:
    """Return a record as it is where the rows of `table` have another schema version, and id."""
    (event,) = decode(WireFormat.SIMPLE_JSON, Record(key=record.key, value=record.value))
    if not isinstance(event, RowChange) or event.table != table:
        return record
    event = replace(event, schema_version=version, table_id=table_id or event.table_id)
    return replace(record, value=encode([event])[0].value)


def test_a_mirror_that_fails_keeps_its_rows_while_the_others_go_on(
    spark: SparkSession, shop: Shop
) -> None:
    feed, changefeed, upstream = shop
    feed.follow(changefeed)
    old, old_tso = truth_rows(changefeed.truth()), feed.cut.tso
    fill(upstream, ("d", "bad"), rows=9, seed=1)
    fill(upstream, ("d", "good"), rows=9, seed=2)
    feed.write(changefeed.tick())
    truth = truth_rows(changefeed.truth())
    new = truth["d", "bad"].total() - old["d", "bad"].total()
    assert new > 0
    with failing(MirrorMaker, "_make_mirror", NO_SPACE):
        applying = feed.sync()
        assert applying.outcome is Outcome.PUBLISHED
        assert "1 failed" in applying.reason
        cut = feed.cut
        (failure,) = cut.failed
        assert (failure.table, failure.tso, failure.waiting) == ("bad", old_tso, new)
        assert "No space left on device" in failure.reason
        # It is tried again, fails again, and nothing new is to be said.
        assert feed.sync().outcome is Outcome.UNCHANGED
        assert feed.cut.failed[0].since == failure.since
    assert feed.rows() == {("d", "bad"): old["d", "bad"], ("d", "good"): truth["d", "good"]}
    by_table = {item.table: item for item in feed.listed()}
    assert by_table["bad"].incomplete
    assert by_table["bad"].applied_ts == old_tso
    assert by_table["good"].applied_ts == cut.tso
    assert not by_table["good"].incomplete
    (account,) = (item for item in cut.accounts if item.table == "bad")
    assert (account.read, account.waiting, account.unaccounted) == (new, new, 0)
    verdict = said(feed, Check.MIRRORS_COMPLETE)
    assert (verdict.level, "bad" in verdict.sentence) == (Level.FAIL, True)
    now = datetime.now(UTC)
    worst = read_status(feed.lake, now).tables[0]
    assert (worst.table, worst.is_complete) == ("bad", False)
    (figures,) = (item for item in read_overview(feed.lake).tables if item.failed is not None)
    assert (figures.table, figures.complete_ms) == ("bad", physical_ms(old_tso))
    # Reads as of a TSO do not build on rows that are older than they say.
    as_of = read_mirror(spark, "feed", "d", "bad", as_of=cut.tso, settings=feed.settings)
    assert as_of.count() == truth["d", "bad"].total()
    # Without anything new to land, the next sync makes it.
    assert feed.sync().outcome is Outcome.PUBLISHED
    assert feed.rows() == truth
    assert not feed.cut.failed
    assert said(feed, Check.MIRRORS_COMPLETE).level is Level.OK


@pytest.mark.parametrize(
    ("owner", "name", "error", "said"),
    [
        (MirrorMaker, "_make_mirror", NO_SPACE, "No space left on device"),
        (mirrors, "caveats_of", RecursionError(), "RecursionError"),
        (lineage_plans, "diff", KeyError("no such kind"), "no such kind"),
    ],
    ids=["its making", "its caveats", "its plan"],
)
def test_a_mirror_that_was_never_made_is_listed_and_the_others_go_on(
    shop: Shop, owner: object, name: str, error: Exception, said: str
) -> None:
    feed, changefeed, upstream = shop
    upstream.alter_table(("d", "bad"), AddColumn(column=column("n", "int")))
    feed.write(changefeed.tick())
    with failing(owner, name, error):
        assert feed.sync().outcome is Outcome.PUBLISHED
    (failure,) = feed.cut.failed
    assert (failure.table, failure.tso, failure.waiting) == ("bad", None, 4)
    assert [item.table for item in feed.cut.mirrors] == ["good"]
    (listed,) = (item for item in feed.listed() if item.table == "bad")
    assert (listed.version, listed.incomplete) == (None, True)
    with pytest.raises(NotFoundError, match=said):
        require_mirror(feed.cut, "d", "bad")
    status = read_status(feed.lake, datetime.now(UTC))
    assert {item.table: item.has_mirror for item in status.tables} == {"bad": False, "good": True}
    feed.sync()
    feed.require_truth(changefeed)


def test_a_history_that_fails_fails_with_its_mirror_alone(shop: Shop) -> None:
    feed, changefeed, upstream = shop
    feed = feed.having(history=TableChoice(("d.*",)))
    feed.follow(changefeed)
    fill(upstream, ("d", "bad"), rows=2, seed=3)
    feed.write(changefeed.tick())
    with failing(MirrorMaker, "_make_history", NO_SPACE):
        feed.sync()
    assert [item.table for item in feed.cut.failed] == ["bad"]
    before = feed.mirror("d", "bad")
    assert latest_version(before.path(feed.paths)) != before.version
    feed.sync()
    assert not feed.cut.failed
    feed.require_truth(changefeed)
    made = feed.mirror("d", "bad")
    assert made.history_rows == made.rows


def test_many_new_mirrors_that_cannot_be_folded_at_once_are_made_one_by_one(
    monkeypatch: pytest.MonkeyPatch, shop: Shop
) -> None:
    feed, changefeed, _ = shop
    feed.write(changefeed.tick())
    monkeypatch.setattr(mirror_making, "INLINE_ROWS", -1)
    monkeypatch.setattr(ChangeFolding, "folded_into_files", raising(RuntimeError("a worker died")))
    feed.sync()
    assert not feed.cut.failed
    feed.require_truth(changefeed)


def test_a_version_that_another_table_s_ddl_made_too_loses_no_row(shop: Shop) -> None:
    """ALTER a at version V; BOOTSTRAP b with V; INSERT b with V: TiDB numbers all tables alike."""
    feed, changefeed, upstream = shop
    feed.follow(changefeed)
    upstream.alter_table(("d", "bad"), AddColumn(column=column("n", "int")))
    feed.follow(changefeed)
    made = feed.mirror("d", "bad")
    version = made.table_schema.version
    fill(upstream, ("d", "good"), rows=2, seed=4)
    old = feed.mirror("d", "good")
    schema = replace(old.table_schema, version=version)
    bootstrap = encode([Bootstrap(build_ts_ms=0, schema=schema)])[0].value
    assert bootstrap is not None
    feed.write([changefeed.inject(0, key=None, value=bootstrap)])
    feed.write(citing(record, "good", version) for record in changefeed.tick())
    feed.sync()
    assert not feed.cut.held
    assert not feed.cut.unaccounted
    feed.require_truth(changefeed)


def test_a_change_that_no_mirror_takes_fails_the_check_until_it_is_mended(
    monkeypatch: pytest.MonkeyPatch, shop: Shop
) -> None:
    feed, changefeed, upstream = shop
    feed.write(changefeed.tick())
    real = lineage_plans.LineagePlans._planned

    def forgetful(self: Any, lineage: Any) -> Any:
        made = real(self, lineage)
        return replace(made, versions=made.versions[-1:]) if made.table == "bad" else made

    upstream.alter_table(("d", "bad"), AddColumn(column=column("n", "int")))
    feed.write(changefeed.tick())
    with monkeypatch.context() as patch:
        patch.setattr(lineage_plans.LineagePlans, "_planned", forgetful)
        feed.unchecked_sync()
        (account,) = feed.cut.unaccounted
        assert (account.table, account.unaccounted) == ("bad", 4)
        assert len(account.examples) == 4
        assert all(example.startswith("d/") for example in account.examples)
        verdict = said(feed, Check.CHANGES_ACCOUNTED)
        assert verdict.level is Level.FAIL
        assert account.examples[0] in verdict.sentence
        # Later cuts do not forget it, nor does that of a compaction.
        publish(feed.paths, feed.cut.again(feed.cut))
        assert [item.unaccounted for item in feed.cut.unaccounted] == [4]
        fill(upstream, ("d", "good"), rows=1, seed=5)
        feed.write(changefeed.tick())
        feed.unchecked_sync()
        assert [item.unaccounted for item in feed.cut.unaccounted] == [4]
    fill(upstream, ("d", "good"), rows=1, seed=6)
    feed.write(changefeed.tick())
    feed.sync(refold=[("d", "bad")])
    assert not feed.cut.unaccounted
    feed.require_truth(changefeed)


@pytest.mark.parametrize("repeats", [False, True])
@pytest.mark.usefixtures("any_size")
def test_a_quarantined_change_that_a_later_one_made_void_is_closed(
    shop: Shop, *, repeats: bool
) -> None:
    feed, changefeed, upstream = shop
    upstream.create_table(
        ("d", "n"),
        (column("id", "int", nullable=False), column("n", "int")),
        primary_key=("id",),
    )
    for key in ("1", "2", "3"):
        with upstream.transaction() as transaction:
            transaction.insert(("d", "n"), {"id": key, "n": "7"})
    feed.follow(changefeed)
    for key in ("1", "2"):
        with upstream.transaction() as transaction:
            transaction.update(("d", "n"), (key,), changes={"n": "8"})
    feed.write(broken(record) for record in changefeed.tick())
    feed.sync()
    assert [row["closed_by"] for row in read_quarantine(feed.paths)] == [None, None]
    with upstream.transaction() as transaction:
        transaction.update(("d", "n"), ("1",), changes={"n": "9"})
    feed.write(changefeed.tick())
    # A run that ends before it publishes has closed it already.
    with killed(before(mirrors, "publish")):
        feed.sync()
    if repeats:
        # As maintenance does: its cut still lacks what the killed run did.
        publish(feed.paths, feed.cut.again(feed.cut))
    feed.sync()
    mirror = feed.mirror("d", "n")
    assert mirror.mode == "change"
    assert mirror.quarantined == 1
    rows = read_quarantine(feed.paths, open_only=False)
    assert sorted(row["closed_by"] or "" for row in rows) == ["", "later change"]
    # A fold from the beginning counts the same.
    feed.sync(refold=[("d", "n")])
    mirror = feed.mirror("d", "n")
    assert mirror.quarantined == 1
    # However many mirrors and cuts there are, the identifiers of commits are few.
    log = feed.paths.quarantine / "_delta_log"
    entries = [json.loads(line) for file in log.glob("*.json") for line in file.open()]
    assert {entry["txn"]["appId"] for entry in entries if "txn" in entry} == {"apply"}


def broken(record: CaptureRecord) -> CaptureRecord:
    """Return a record whose rows have a text where their column is a number."""
    (event,) = decode(WireFormat.SIMPLE_JSON, Record(key=record.key, value=record.value))
    if not isinstance(event, RowChange) or event.after is None or "n" not in event.after:
        return record
    return replace(record, value=encode([replace(event, after={**event.after, "n": "x"})])[0].value)
