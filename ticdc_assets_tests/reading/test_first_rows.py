"""The first rows of a mirror with many, in the order of its key."""

import json
from pathlib import Path

import pytest

from ticdc_assets.demo.simulator.changefeed import StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.reading import mirrors
from ticdc_assets.reading.as_of import TableRows
from ticdc_assets.reading.mirrors import iterate_rows, published_table
from ticdc_assets.spark.session import LazySession
from ticdc_assets_tests.demo.simulator.builders import fill, upstream_of
from ticdc_assets_tests.lake.feeds import Feed

T = ("d", "t")


def refused(_: TableRows) -> None:
    raise AssertionError("the rows are read by Spark")


@pytest.mark.parametrize("limit", [0, 1, 7])
def test_the_first_of_many_rows_need_no_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    upstream = upstream_of(T, (column("id", "bigint", nullable=False),), primary_key=("id",))
    feed, changefeed = Feed.of(LazySession(), tmp_path), StandInChangefeed(upstream, "feed")
    for seed in range(3):
        fill(upstream, T, rows=9, seed=seed)
        feed.write(changefeed.tick())
        feed.sync()
    table = published_table(feed.lake, feed.cut.mirrors[0])
    every = [json.loads(text) for _, _, text in iterate_rows([table], "UTC")]
    ordered = sorted(every, key=lambda row: int(row["id"]))
    assert len(every) > limit
    assert every != ordered, "files are not in the order of the key"
    monkeypatch.setattr(mirrors, "INLINE_ROWS", 10)
    monkeypatch.setattr(TableRows, "frame", property(refused))
    first = iterate_rows([table], "UTC", limit=limit, by_key=True)
    assert [json.loads(text) for _, _, text in first] == ordered[:limit]
    with pytest.raises(AssertionError, match="by Spark"):
        list(iterate_rows([table], "UTC", by_key=True))
