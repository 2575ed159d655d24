"""Changes into large mirrors whose keys are of every kind: the rows are found, and no others."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ticdc_assets.demo.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.mirrors import mirror_making
from ticdc_assets.mirrors.mirror_making import Mode
from ticdc_assets_tests.lake.feeds import Feed, treat_as_large, truth_rows

pytestmark = pytest.mark.spark

KEYS = {
    "bigint unsigned": ("0", "9223372036854775808", "18446744073709551615"),
    "decimal(30,2)": ("-1.50", "0.00", "9999999999999999999999999999.99"),
    "double": ("-0", "-129631.5", "1.5"),
    "varchar(20)": ("", "a ", "\u00e9\U0001f600"),
    "varbinary(9)": ("0x", "0x00", "0xfffe"),
    "date": ("0000-00-00", "2024-00-10", "2024-02-29"),
}  # fmt: skip


@pytest.mark.parametrize(
    "types",
    [
        ("double",),
        pytest.param(("double", "varchar(20)", "date"), marks=pytest.mark.slow),
        pytest.param(("bigint unsigned", "decimal(30,2)", "varbinary(9)"), marks=pytest.mark.slow),
    ],
    ids=", ".join,
)
def test_rows_are_found_by_keys_of_every_kind(
    types: tuple[str, ...], spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    treat_as_large(monkeypatch)
    upstream = Upstream()
    upstream.create_database("d")
    for number, sql in enumerate(types):
        key = column("k", sql, nullable=False)
        columns = (key, column("n", "int", nullable=False), column("v", "int"))
        upstream.create_table(("d", f"t{number}"), columns, primary_key=("n", "k"))
    rows = [
        (("d", f"t{number}"), (str(n), key))
        for number, sql in enumerate(types)
        for key in KEYS[sql]
        for n in range(3)
    ]
    with upstream.transaction() as transaction:
        for name, (n, key) in rows:
            transaction.insert(name, {"k": key, "n": n, "v": "1"})
    changefeed = StandInChangefeed(upstream, "d", partitions=1)
    feed = Feed.of(spark, tmp_path)
    feed.follow(changefeed)
    with upstream.transaction() as transaction:
        for name, key in rows:
            if key[0] == "0":
                transaction.update(name, key, changes={"v": "2"})
            if key[0] == "1":
                transaction.delete(name, key)
    feed.follow(changefeed)
    for mirror in feed.cut.mirrors:
        assert mirror.mode == Mode.CHANGE
        assert mirror.unknown_deletes == 0
    assert feed.rows() == truth_rows(changefeed.truth())
    # And nothing of them is left.
    assert not list(feed.paths.base.glob(".scratch-*"))


@pytest.mark.parametrize("is_large", [False, True])
def test_a_bag_is_changed_by_row_however_many_changes_it_ever_had(
    is_large: bool, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies of a row are counted, and deletes of rows that are not there are told."""
    upstream = Upstream()
    upstream.create_database("d")
    columns = column("a", "int"), column("d", "date"), column("v", "vector(2)")
    upstream.create_table(("d", "bag"), columns)
    with upstream.transaction() as transaction:
        for number in range(60):
            day = "0000-00-00" if number % 7 == 0 else None
            vector = f"[{number % 3},0.5]" if number % 4 else None
            transaction.insert(("d", "bag"), {"a": str(number % 5), "d": day, "v": vector})
    options = FeedOptions(force_replicate=True)
    changefeed = StandInChangefeed(upstream, "d", partitions=1, options=options)
    feed = Feed.of(spark, tmp_path)
    feed.follow(changefeed)
    if is_large:
        treat_as_large(monkeypatch)
    for mode, count in ((Mode.CHANGE, 3), (Mode.CHANGE, 30), (Mode.REWRITE, 9)):
        if mode is Mode.REWRITE:
            monkeypatch.setattr(mirror_making, "KEYLESS_BYTES", 1)
        with upstream.transaction() as transaction:
            for row in list(upstream.rows(("d", "bag")))[:count]:
                transaction.delete(("d", "bag"), row)
            transaction.insert(("d", "bag"), {"a": "1", "d": None, "v": "[1,0.5]"})
        feed.follow(changefeed)
        assert not feed.cut.failed
        (mirror,) = feed.cut.mirrors
        assert (mirror.mode, mirror.unknown_deletes) == (mode, 0)
        assert feed.rows() == truth_rows(changefeed.truth())
        assert mirror.rows == len(upstream.rows(("d", "bag")))
