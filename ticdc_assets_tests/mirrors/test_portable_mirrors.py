"""Mirrors that are written without Spark while they are small, and what becomes of them."""

import logging
from datetime import timedelta

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ticdc_assets.config import Readers, Retention, TableChoice
from ticdc_assets.delta.delta_protocol import unportable_features
from ticdc_assets.delta.log_reading import log_state
from ticdc_assets.demo.simulator.alterations import AddColumn, RenameColumn
from ticdc_assets.demo.simulator.changefeed import StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.log.cuts import MirrorCut, Mode
from ticdc_assets.mirrors.table_writing import mirror_properties
from ticdc_assets.repair.maintenance import maintain
from ticdc_assets.rows.mirror_rows import MirrorLayout
from ticdc_assets_tests.delta.libraries import opened
from ticdc_assets_tests.demo.simulator.builders import churn, fill
from ticdc_assets_tests.lake.feeds import (
    Feed,
    keep_files_apart,
    small_up_to,
    treat_as_large,
)

pytestmark = pytest.mark.spark

T = ("d", "t")


def upstream_of(*tables: tuple[str, ...]) -> Upstream:
    upstream = Upstream()
    upstream.create_database("d")
    for number, names in enumerate(tables):
        upstream.create_table(
            ("d", f"t{number}" if number else "t"),
            (
                column("id", "bigint", nullable=False),
                *(column(name, "varchar(40)") for name in names),
                column("amount", "decimal(30,8)"),
                column("at", "datetime(6)"),
                column("seen", "timestamp(6)"),
                column("bits", "varbinary(20)"),
            ),
            primary_key=("id",),
        )
    return upstream


def by_others(feed: Feed, mirror: MirrorCut) -> pa.Table:
    """Return the rows of a mirror as a reader that knows nothing of ours has them."""
    return DeltaTable(str(mirror.path(feed.paths)), mirror.version).to_pyarrow_table()


def is_plain_now(feed: Feed, mirror: MirrorCut) -> bool:
    return not unportable_features(log_state(mirror.path(feed.paths)))


def test_a_mirror_is_plain_until_it_is_large(monkeypatch: pytest.MonkeyPatch, feed: Feed) -> None:
    small_up_to(monkeypatch, 20)
    upstream = upstream_of(("v",))
    fill(upstream, T, rows=8)
    changefeed = StandInChangefeed(upstream, "feed", partitions=2)

    def synced() -> MirrorCut:
        feed.follow_to_truth(changefeed)
        (mirror,) = feed.cut.mirrors
        return mirror

    first = synced()
    small_ts, small_rows = feed.cut.tso, feed.rows()
    assert is_plain_now(feed, first)
    churn(upstream, steps=3, seed=1)
    upstream.alter_table(
        T, AddColumn(column=column("n", "datetime")), RenameColumn(name="v", new_name="w")
    )
    small = synced()
    # A new name is metadata only for tables that may have a mapping of columns.
    assert small.mode == Mode.REWRITE
    assert is_plain_now(feed, small)
    # Readers outside Spark find the same rows.
    rows = by_others(feed, small)
    assert rows.schema.equals(MirrorLayout(schema=small.table_schema).arrow)
    assert rows.num_rows == small.rows

    fill(upstream, T, rows=40, seed=2)
    assert is_plain_now(feed, synced())
    churn(upstream, steps=3, seed=3)
    changed = synced()
    assert changed.mode == Mode.CHANGE
    assert not is_plain_now(feed, changed)
    assert feed.rows_as_of(small_ts) == small_rows
    assert feed.read(*T).count() == len(upstream.rows(T))


@pytest.mark.parametrize(
    "large", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["small", "large"]
)
def test_mirrors_and_histories_that_are_to_be_portable_stay_so(
    large: bool, monkeypatch: pytest.MonkeyPatch, feed: Feed
) -> None:
    small_up_to(monkeypatch, 5)
    if large:
        treat_as_large(monkeypatch)
    upstream = upstream_of(("v",))
    fill(upstream, T, rows=30)
    odd = ("d", "odd")
    upstream.create_table(
        odd,
        (column("id", "bigint", nullable=False), column("a b", "varchar(9)")),
        primary_key=("id",),
    )
    fill(upstream, odd, rows=30)
    changefeed = StandInChangefeed(upstream, "feed", partitions=2)
    everything = TableChoice(("*.*",))
    feed = feed.having(history=everything, readers=Readers(portable=everything))

    def synced() -> dict[str, str]:
        feed.follow_to_truth(changefeed)
        for mirror in feed.cut.mirrors:
            for path, version in (
                (mirror.path(feed.paths), mirror.version),
                (feed.paths.history(mirror.mirror_id), mirror.history_version),
            ):
                table = DeltaTable(str(path), version)
                assert not unportable_features(log_state(path, version)), path
                # A reader that filters by statistics finds what is there.
                (key,) = table.to_pyarrow_table(columns=["id"])["id"][:1].to_pylist()
                assert table.to_pyarrow_table(filters=[("id", "=", key)]).num_rows
            assert by_others(feed, mirror).num_rows == mirror.rows
        return {mirror.table: mirror.mode for mirror in feed.cut.mirrors}

    synced()
    churn(upstream, steps=10, seed=1)
    assert synced() == {T[1]: Mode.CHANGE, "odd": Mode.CHANGE}
    upstream.alter_table(
        T, AddColumn(column=column("n", "datetime")), RenameColumn(name="v", new_name="w")
    )
    churn(upstream, steps=10, seed=2)
    assert synced()[T[1]] == Mode.REWRITE
    churn(upstream, steps=10, seed=3)
    assert synced()[T[1]] == Mode.CHANGE


def test_a_mirror_that_has_features_keeps_them_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, feed: Feed
) -> None:
    small_up_to(monkeypatch, 5)
    upstream = upstream_of(("v",))
    fill(upstream, T, rows=30)
    changefeed = StandInChangefeed(upstream, "feed", partitions=2)
    for readers in (Readers(), Readers(portable=TableChoice(("d.*",)))):
        feed = feed.having(readers=readers)
        for seed in range(2):
            churn(upstream, steps=5, seed=seed)
            feed.write(changefeed.tick())
            with caplog.at_level(logging.WARNING):
                feed.sync()
            feed.require_truth(changefeed)
        assert ("keeps them" in caplog.text) == (readers != Readers())
    (mirror,) = feed.cut.mirrors
    assert mirror.mode == Mode.CHANGE


def test_no_name_keeps_a_mirror_from_being_plain(
    monkeypatch: pytest.MonkeyPatch, feed: Feed
) -> None:
    upstream = upstream_of(("v",), ("a b", "x,y;{}()=", "dotted.name", "back`tick", "名前 é"))
    for name in upstream.tables:
        fill(upstream, name, rows=5)
    changefeed = StandInChangefeed(upstream, "feed", partitions=2)
    for seed in range(2):
        churn(upstream, steps=10, seed=seed)
        feed.follow_to_truth(changefeed)
    assert all(is_plain_now(feed, mirror) for mirror in feed.cut.mirrors)
    for mirror in feed.cut.mirrors:
        assert feed.read("d", mirror.table).count() == mirror.rows
    # Maintenance brings properties up to date, which Spark would refuse where a name has a space.
    retention = Retention(cuts=timedelta(days=9))
    maintain(feed.having(retention=retention).lake)
    for mirror in feed.cut.mirrors:
        table = opened(mirror.path(feed.paths))
        wanted = mirror_properties(retention)
        assert wanted.items() <= table.metadata().configuration.items()
    feed.require_truth(changefeed)
    # What grows gets deletion vectors, and with a new name of a column the mapping of them.
    small_up_to(monkeypatch, 0)
    keep_files_apart(monkeypatch)
    churn(upstream, steps=20, seed=5)
    upstream.alter_table(("d", "t1"), RenameColumn(name="a b", new_name="b;c"))
    feed.follow(changefeed)
    assert not any(is_plain_now(feed, mirror) for mirror in feed.cut.mirrors)
    feed.require_truth(changefeed)
    for mirror in feed.cut.mirrors:
        assert feed.read("d", mirror.table).count() == mirror.rows


def test_rows_that_no_change_is_about_pass_as_they_are(feed: Feed) -> None:
    upstream = upstream_of(("v",))
    with upstream.transaction() as transaction:
        for number in range(30):
            zero = number % 3 == 0
            transaction.insert(
                T,
                {
                    "id": str(number),
                    "v": None if number % 5 == 0 else f"row {number}",
                    "amount": f"{number}.00000001",
                    "at": "0000-00-00 00:00:00.000000" if zero else "9999-12-31 23:59:59.999999",
                    "seen": "2026-01-01 00:00:00.000001",
                    "bits": None,
                },
            )
    changefeed = StandInChangefeed(upstream, "feed", partitions=2)
    feed.follow(changefeed)
    (first,) = feed.cut.mirrors
    with upstream.transaction() as transaction:
        transaction.update(T, ("3",), changes={"v": "changed"})
        transaction.delete(T, ("6",))
        transaction.update(T, ("7",), changes={"id": "700"})
    feed.follow(changefeed)
    (mirror,) = feed.cut.mirrors
    assert (mirror.mode, mirror.rows) == (Mode.CHANGE, 29)
    feed.require_truth(changefeed)
    tables = [by_others(feed, item) for item in (first, mirror)]
    old, new = map(by_id, tables)
    assert {key: new[key] for key in old if key not in {3, 6, 7}} == {
        key: row for key, row in old.items() if key not in {3, 6, 7}
    }
    # The rows that it was about are known by their commit ts.
    assert {row["_ticdc_commit_ts"] for row in old.values()} != {new[3]["_ticdc_commit_ts"]}


def by_id(table: pa.Table) -> dict[int, dict[str, object]]:
    return {row["id"]: row for row in table.to_pylist()}
