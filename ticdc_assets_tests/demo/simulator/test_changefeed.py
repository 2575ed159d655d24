import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest

from ticdc_assets.demo.simulator.alterations import AddColumn
from ticdc_assets.demo.simulator.changefeed import (
    Dispatcher,
    FeedOptions,
    StandInChangefeed,
)
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.message_forms import Dialect, MessageOptions
from ticdc_assets.model.events import Bootstrap, DdlEvent, RowChange, Watermark
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets_tests.demo.simulator.builders import (
    churn,
    fill,
    keyless_upstream,
    shop_upstream,
)
from ticdc_assets_tests.demo.simulator.odd_upstream import OddUpstream
from ticdc_assets_tests.demo.simulator.variants import SIMPLE, assert_rules


def of(dialect: Dialect, **options: Any) -> FeedOptions:
    return FeedOptions(messages=MessageOptions(dialect=dialect), **options)


shop = partial(shop_upstream, steps_per_ddl=5)


@pytest.mark.parametrize("dialect", Dialect)
def test_rows_of_different_keys_or_tables_are_not_in_commit_order(dialect: Dialect) -> None:
    records = list(StandInChangefeed(shop(1), "shop", options=of(dialect)).records())
    last: dict[object, int] = defaultdict(int)
    steps_back, steps_back_of_tables = 0, 0
    for record, event in SIMPLE.events(records):
        if isinstance(event, RowChange):
            table = (record.partition, event.table_id)
            steps_back += event.commit_ts < last[record.partition]
            steps_back_of_tables += event.commit_ts < last[table]
            last[record.partition] = last[table] = event.commit_ts
    assert steps_back > 40
    # The new TiCDC sends the rows of a table as they come.
    assert bool(steps_back_of_tables) is (dialect is Dialect.TIFLOW)


def test_the_halves_of_a_split_update_land_in_different_partitions_at_times() -> None:
    upstream = OddUpstream()
    upstream.create_database("d")
    upstream.create_table(("d", "t"), (column("k", "varchar(9)"),), primary_key=("k",))
    for number in range(20):
        with upstream.transaction() as transaction:
            transaction.insert(("d", "t"), {"k": str(number)})
        with upstream.transaction() as transaction:
            transaction.update(("d", "t"), (str(number),), changes={"k": f"new {number}"})
    places: dict[int, dict[str, int]] = defaultdict(dict)
    for record, event in SIMPLE.events(StandInChangefeed(upstream, "d").records()):
        if isinstance(event, RowChange):
            places[event.commit_ts][event.op] = record.partition
    halves = [place for place in places.values() if set(place) == {"delete", "insert"}]
    assert len(halves) == 20
    assert {place["delete"] == place["insert"] for place in halves} == {True, False}


def test_the_table_dispatcher_keeps_a_table_in_one_partition() -> None:
    options = FeedOptions(dispatcher=Dispatcher.TABLE)
    records = list(StandInChangefeed(shop(1), "shop", options=options).records())
    partitions: dict[str, set[int]] = defaultdict(set)
    for record, event in SIMPLE.events(records):
        if isinstance(event, RowChange):
            partitions[event.table].add(record.partition)
    assert all(len(places) == 1 for places in partitions.values())
    assert len(set().union(*partitions.values())) > 1


@pytest.mark.parametrize("allowed", [True, False])
def test_watermarks_equal_to_a_ddl_come_before_and_after_it_by_option(*, allowed: bool) -> None:
    upstream = shop(1)
    options = FeedOptions(ddl_watermarks=allowed)
    records = StandInChangefeed(upstream, "shop", options=options).tick()
    in_first = [event for record, event in SIMPLE.events(records) if record.partition == 0]
    stamps = {event.commit_ts for event in in_first if isinstance(event, DdlEvent)}
    before, after = set[int](), set[int]()
    done = set[int]()
    for event in in_first:
        if isinstance(event, DdlEvent):
            done.add(event.commit_ts)
        elif isinstance(event, Watermark) and event.watermark_ts in stamps:
            (after if event.watermark_ts in done else before).add(event.watermark_ts)
    assert bool(before) is bool(after) is bool(before & after) is allowed


def test_the_same_seed_gives_the_same_bytes() -> None:
    def records(seed: int) -> list[CaptureRecord]:
        return list(StandInChangefeed(shop(1, steps=80), "shop", seed=seed).tick())

    assert records(1) == records(1)
    assert records(1) != records(2)


def test_a_restart_sends_again_and_changes_nothing() -> None:
    upstream = shop(6, steps=150)
    changefeed = StandInChangefeed(upstream, "shop", options=FeedOptions(ddl_watermarks=True))
    records = list(itertools.islice(changefeed.records(), 500))
    sent = {e.watermark_ts for _, e in SIMPLE.events(records) if isinstance(e, Watermark)}
    checkpoint = sorted(sent)[len(sent) // 3]
    changefeed.restart(checkpoint)
    again = list(changefeed.tick())
    first_marks = [e.watermark_ts for _, e in SIMPLE.events(again) if isinstance(e, Watermark)][:4]
    assert first_marks == [checkpoint] * 4
    counts = Counter(
        (event.commit_ts, event.table, event.op, json.dumps(str(event.after or event.before)))
        for _, event in SIMPLE.events(records + again)
        if isinstance(event, RowChange)
    )
    assert set(counts.values()) == {1, 2}
    # A new run of TiCDC knows nothing of what the last one sent.
    seen: set[int] = set()
    for _, event in SIMPLE.events(again):
        if isinstance(event, Bootstrap):
            seen.add(event.schema.table_id)
        assert not isinstance(event, RowChange) or event.table_id in seen
    SIMPLE.require_truth(changefeed, records + again)
    assert_offsets(records + again)


@pytest.mark.parametrize("read", [1, 90, 333, 334])
def test_a_restart_wherever_reading_stopped_loses_nothing(read: int) -> None:
    changefeed = StandInChangefeed(shop(3), "shop")
    records = list(itertools.islice(changefeed.records(), read))
    changefeed.restart(changefeed.watermark_ts)
    records += changefeed.tick()
    SIMPLE.require_truth(changefeed, records)


def assert_offsets(records: Iterable[CaptureRecord]) -> None:
    offsets: dict[int, int] = defaultdict(int)
    for record in records:
        assert record.offset == offsets[record.partition]
        offsets[record.partition] += 1


def test_tables_without_a_key_are_sent_only_when_forced() -> None:
    upstream = keyless_upstream()
    changefeed = StandInChangefeed(upstream, "log")
    names = {e.table for _, e in SIMPLE.events(changefeed.tick()) if isinstance(e, RowChange)}
    assert names == {"keyed"}
    assert list(changefeed.truth()) == [("log", "keyed")]
    forced = StandInChangefeed(upstream, "log", options=FeedOptions(force_replicate=True))
    places = {
        record.partition
        for record, event in SIMPLE.events(forced.tick())
        if isinstance(event, RowChange) and event.table == "lines"
    }
    assert len(places) == 1  # nothing to hash but the table's name
    assert set(forced.truth()) == {("log", "keyed"), ("log", "lines")}


def test_rows_that_share_a_commit_ts_with_a_ddl_come_before_it() -> None:
    upstream = OddUpstream()
    upstream.create_database("d")
    columns = (column("id", "int", nullable=False), column("v", "int"))
    upstream.create_table(("d", "t"), columns, primary_key=("id",))
    fill(upstream, ("d", "t"), rows=3)
    upstream.share_next_ts()
    upstream.alter_table(("d", "t"), AddColumn(column=column("w", "int", default="1")))
    churn(upstream, steps=5)
    changefeed = StandInChangefeed(upstream, "d")
    records = list(changefeed.tick())
    assert_rules(records, ddl_in=range(4))
    SIMPLE.require_truth(changefeed, records)
