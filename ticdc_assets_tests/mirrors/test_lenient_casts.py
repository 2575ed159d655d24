"""Rows that did not fit a modified column: cast as TiDB did, counted and marked, whatever way."""

import pytest

from ticdc_assets.demo.simulator.alterations import ModifyColumn, RenameColumn
from ticdc_assets.demo.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.log.quarantine import read_quarantine
from ticdc_assets.reading.as_of import AsOf
from ticdc_assets.wire import WireFormat
from ticdc_assets_tests.changelog.test_lenient_casts import T, narrowed, put, started
from ticdc_assets_tests.golden import events_of
from ticdc_assets_tests.lake.feeds import Feed, truth_rows
from ticdc_assets_tests.mirrors.test_history import kept, wanted, with_history
from ticdc_assets_tests.reference.fold import fold
from ticdc_assets_tests.reference.history_fold import fold_history

pytestmark = pytest.mark.spark


@pytest.mark.usefixtures("any_size")
def test_all_ways_come_to_the_same_rows_counts_and_caveats(feed: Feed) -> None:
    upstream = started()
    first, second = narrowed(upstream)
    changefeed = StandInChangefeed(upstream, "topic", partitions=2)
    feed = with_history(feed, "*.*")
    records = list(changefeed.tick())
    feed.write(records)
    casts = {("v", first): 3, ("n", second): 3}

    # The rows of a cut between the DDL are cast when the second one comes.
    assert feed.sync(until=second - 1).cut is not None
    assert feed.cut.mirrors[0].casts == {("v", first): 3}
    feed.sync()
    mirror = feed.cut.mirrors[0]
    feed.require_truth(changefeed)
    assert mirror.casts == casts
    assert mirror.caveats == [
        f"3 values of column 'v' did not fit when its type changed and were cast as TiDB does in "
        f"a lenient SQL mode, since {first}",
        f"3 values of column 'n' did not fit when its type changed and were cast as TiDB does in "
        f"a lenient SQL mode, since {second}",
    ]
    assert (mirror.quarantined, read_quarantine(feed.paths)) == (0, [])
    events = list(events_of(records, WireFormat.SIMPLE_JSON))
    _, tables = fold(events, feed.cut.tso, "UTC")
    assert tables[T].casts == casts
    history = fold_history(events, feed.cut.tso, "UTC")[T]
    assert kept(feed, mirror) == wanted(history, mirror)

    # From the change log anew, and as of the moments between.
    feed.sync(refold=[T])
    feed.require_truth(changefeed)
    assert feed.cut.mirrors[0].casts == casts
    assert kept(feed, feed.cut.mirrors[0]) == wanted(history, feed.cut.mirrors[0])
    between = AsOf(feed.lake, first + 1).table(*T)
    assert [text for text in between.warnings if "lenient" in text] == mirror.caveats[:1]
    assert feed.rows_as_of(second + 1) == truth_rows(changefeed.truth(second + 1))

    # They are carried along, under the column's name.
    upstream.alter_table(T, RenameColumn(name="v", new_name="w"))
    with upstream.transaction() as transaction:
        transaction.insert(T, {"id": "10", "w": "q", "n": "1"})
    records += changefeed.tick()
    feed.write(records[len(events) :])
    feed.sync()
    mirror = feed.cut.mirrors[0]
    assert mirror.casts == {("w", first): 3, ("n", second): 3}
    feed.require_truth(changefeed)
    events = list(events_of(records, WireFormat.SIMPLE_JSON))
    history = fold_history(events, feed.cut.tso, "UTC")[T]
    assert kept(feed, mirror) == wanted(history, mirror)
    assert [item.status.lenient_casts for item in feed.listed()] == [6]
    # A table that begins anew has none of them.
    upstream.truncate_table(T)
    feed.follow(changefeed)
    assert feed.cut.mirrors[0].casts == {}
    assert feed.cut.mirrors[0].caveats == []


@pytest.mark.usefixtures("any_size")
def test_a_bag(feed: Feed) -> None:
    upstream = started(keyless=True)
    for number, v in ((1, "abc"), (1, "abc"), (1, "abd"), (2, "abc"), (3, "x")):
        put(upstream, number, v, 0)
    changefeed = StandInChangefeed(
        upstream, "topic", partitions=2, options=FeedOptions(force_replicate=True)
    )
    feed.follow(changefeed)
    with upstream.transaction() as transaction:
        transaction.delete(T, next(iter(upstream.rows(T))))
    ddl_ts = upstream.alter_table(T, ModifyColumn(name="v", column=column("v", "varchar(2)")))
    put(upstream, 4, "y", 0)
    feed.follow_to_truth(changefeed)
    assert feed.cut.mirrors[0].casts == {("v", ddl_ts): 3}
    feed.sync(refold=[T])
    assert feed.cut.mirrors[0].casts == {("v", ddl_ts): 3}
