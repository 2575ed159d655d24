"""Changes into large mirrors without a key: the rows are found, and no others."""

import pytest

from ticdc_assets.config import TableChoice
from ticdc_assets.demo.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.log.cuts import Mode
from ticdc_assets.mirrors import mirror_making
from ticdc_assets_tests.lake.feeds import Feed, treat_as_large
from ticdc_assets_tests.mirrors.test_history import assert_as_folded

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("is_large", [False, True])
def test_a_bag_is_changed_by_row_however_many_changes_it_ever_had(
    is_large: bool, monkeypatch: pytest.MonkeyPatch, feed: Feed
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
    feed = feed.having(history=TableChoice(("d.*",)))
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
        feed.require_truth(changefeed)
        assert mirror.rows == len(upstream.rows(("d", "bag")))
    assert_as_folded(feed)
