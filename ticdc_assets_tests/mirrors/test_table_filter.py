"""Tables that are left out: no mirror of them, and all of their rows once they are included."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from ticdc_assets.base.errors import NotFoundError
from ticdc_assets.config import Retention, TableChoice, TableFilter
from ticdc_assets.delta.appending import write_table
from ticdc_assets.demo.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.log.cuts import filter_text
from ticdc_assets.log.quarantine import FAULT_SCHEMA, count_open, read_quarantine
from ticdc_assets.mirrors.standing import Outcome
from ticdc_assets.mirrors.truncation_points import has_caveat_below, read_truncation_point
from ticdc_assets.repair.retention import retain
from ticdc_assets.repair.verifying import verify
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets_tests.demo.simulator.builders import churn, fill
from ticdc_assets_tests.demo.simulator.odd_upstream import OddUpstream
from ticdc_assets_tests.demo.simulator.partitions import Method, Partition, Partitioning
from ticdc_assets_tests.golden import Rows
from ticdc_assets_tests.lake.feeds import Feed, truth_rows

DAY = timedelta(days=1)
KEPT, DRAFT, SHOWN, WAITING = ("d", "kept"), ("d", "tmp_a"), ("d", "shown"), ("d", "tmp_waiting")
COLUMNS = (column("id", "int", nullable=False), column("v", "varchar(20)"))
NO_DRAFTS = TableFilter(exclude=TableChoice(("D.TMP_*",)))


def some(rows: Rows, *names: tuple[str, str]) -> Rows:
    return {name: rows[name] for name in names}


def without_schema(records: list[CaptureRecord], table: str) -> list[CaptureRecord]:
    """Return the records with that which tells a table's schema made a message of nothing."""
    name = f'"{table}"'.encode()
    return [
        replace(item, value=b"{}")
        if item.value is not None and b'"tableSchema"' in item.value and name in item.value
        else item
        for item in records
    ]


def test_row_changes_in_quarantine_count_for_tables_that_are_mirrored(tmp_path: Path) -> None:
    paths = LakePaths(root=tmp_path, changefeed="feed")
    rows = [
        {
            "topic": "t",
            "partition": 0,
            "offset": offset,
            "index": 0,
            "stage": stage,
            "database": database,
            "table": table,
        }
        for offset, (stage, database, table) in enumerate(
            [("decode", None, None), ("apply", "d", "kept"), ("apply", "D", "Tmp_a")]
        )
    ]
    written = pa.Table.from_pylist(rows, schema=FAULT_SCHEMA)
    write_table(paths.quarantine, written, overwrite=False, metadata={})
    assert [row["offset"] for row in read_quarantine(paths)] == [0, 1, 2]
    assert [row["offset"] for row in read_quarantine(paths, tables=NO_DRAFTS)] == [0, 1]
    counts = count_open(paths, NO_DRAFTS)
    assert (counts.decode, counts.apply) == (1, 1)
    assert count_open(paths).apply == 2


@pytest.mark.spark
def test_what_is_left_out_is_whole_when_it_is_included(feed: Feed) -> None:
    upstream = OddUpstream()
    upstream.create_database("d")
    for name in (KEPT, DRAFT, WAITING):
        upstream.create_table(name, COLUMNS, primary_key=("id",))
        fill(upstream, name, rows=4)
    changefeed = StandInChangefeed(upstream, "d", options=FeedOptions(bootstraps=False))
    feed = feed.having(tables=NO_DRAFTS)
    feed.write(without_schema(list(changefeed.tick()), "tmp_waiting"))
    assert feed.sync().outcome is Outcome.PUBLISHED
    assert feed.rows() == some(truth_rows(changefeed.truth()), KEPT)
    assert feed.rows_as_of(feed.cut.tso) == feed.rows()
    assert feed.cut.held == ()
    assert feed.cut.tables == filter_text(NO_DRAFTS)
    assert feed.cut.table_filter == NO_DRAFTS
    assert feed.sync().outcome is Outcome.UNCHANGED

    # Included, though nothing new was landed: what waits counts, and a proof is of the cut's own.
    everything = feed.having(tables=TableFilter())
    assert verify(everything.lake).equal
    assert everything.sync().outcome is Outcome.PUBLISHED
    assert feed.rows() == some(truth_rows(changefeed.truth()), KEPT, DRAFT)
    assert [(item.table, item.rows) for item in feed.cut.held] == [
        ("tmp_waiting", len(upstream.rows(WAITING)))
    ]
    assert feed.cut.tables is None

    # Left out again: neither in the next cut nor among the tables of older moments.
    tso = feed.cut.tso
    assert feed.sync().outcome is Outcome.PUBLISHED
    assert feed.rows() == feed.rows_as_of(tso) == some(truth_rows(changefeed.truth()), KEPT)
    with pytest.raises(NotFoundError):
        feed.read(*DRAFT)

    # Renamed to a name that is included, and the other way round.
    upstream.rename_table(KEPT, ("d", "tmp_old"))
    upstream.rename_table(DRAFT, SHOWN)
    fill(upstream, SHOWN, rows=2, seed=7)
    churn(upstream, steps=6, seed=1)
    feed.follow(changefeed)
    assert feed.rows() == some(truth_rows(changefeed.truth()), SHOWN)
    assert [mirror.mode for mirror in feed.cut.mirrors] == ["fold"]
    only = feed.having(tables=TableFilter(include=TableChoice(("*.tmp_old",))))
    only.sync()
    assert feed.rows() == some(truth_rows(changefeed.truth()), ("d", "tmp_old"))


@pytest.mark.spark
def test_what_was_truncated_while_it_was_left_out_is_told(feed: Feed) -> None:
    upstream = OddUpstream()
    upstream.create_database("d")
    divided, spare = ("d", "divided"), ("d", "tmp_spare")
    ranges = Partitioning(
        method=Method.RANGE, column="id", partitions=(Partition(name="p0", below=1_000_000_000),)
    )
    upstream.create_table(divided, COLUMNS, primary_key=("id",), partitioning=ranges)
    for name in (KEPT, DRAFT, spare):
        upstream.create_table(name, COLUMNS, primary_key=("id",))
    for name in (KEPT, DRAFT):
        fill(upstream, name, rows=4)
    with upstream.transaction() as transaction:
        transaction.insert(spare, {"id": "5", "v": "five"})
    changefeed = StandInChangefeed(upstream, "d")
    feed = feed.having(tables=NO_DRAFTS)
    # Less than a day: cuts that are older are thinned, which is not what this is about.
    ages = Retention(change_log=DAY / 2, cuts=9 * DAY)
    feed = feed.having(retention=ages)
    feed.follow(changefeed)
    base = feed.cut
    fill(upstream, KEPT, rows=1, seed=3)
    feed.follow(changefeed)

    # While a cut lacks a table that is mirrored by now, nothing of that goes.
    everything = feed.having(tables=TableFilter())
    then = base.published_at + DAY / 2
    kept = retain(everything.lake, now=then, dry_run=True)
    assert kept.changes > 0
    assert DRAFT in {item.name for item in kept.truncation_point.kept}
    assert retain(feed.lake, now=then).changes > kept.changes
    assert read_truncation_point(feed.paths).tso == base.tso

    # A table without a mirror hands its rows over to one with a mirror; another one is included.
    upstream.exchange_partition(divided, "p0", spare)
    fill(upstream, DRAFT, rows=1, seed=9)
    feed.write(changefeed.tick())
    everything.sync()
    truth = truth_rows(changefeed.truth())
    assert feed.rows()[KEPT] == truth[KEPT]
    marked = {
        (item.database, item.table) for item in feed.cut.mirrors if has_caveat_below(item.caveats)
    }
    assert marked == {divided, DRAFT}
    assert feed.rows().get(divided) != truth[divided]
    # The caveats stay, whatever the next cut has to do.
    fill(upstream, KEPT, rows=1, seed=4)
    feed.write(changefeed.tick())
    everything.sync()
    assert marked <= {
        (item.database, item.table) for item in feed.cut.mirrors if has_caveat_below(item.caveats)
    }
