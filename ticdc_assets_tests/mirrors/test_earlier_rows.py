"""A mirror that may lack rows of before its changefeed says so, until something brings them."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ticdc_assets.changelog.plan import LACKS_EARLIER
from ticdc_assets.config import TableChoice
from ticdc_assets.config.changefeed import ALL_TABLES
from ticdc_assets.demo.simulator.changefeed import FeedOptions
from ticdc_assets.demo.simulator.export import export_upstream
from ticdc_assets.mirrors.standing import Outcome
from ticdc_assets.observe.table_status import TableState
from ticdc_assets.repair.seeding import seed
from ticdc_assets_tests.demo.simulator.builders import PLAIN_COLUMNS, churn, plain_upstream
from ticdc_assets_tests.demo.simulator.variants import PLAIN, Variant, each_format
from ticdc_assets_tests.lake.feeds import Feed, truth_rows

pytestmark = pytest.mark.spark

OLD, EMPTIED, LATER = ("d", "old"), ("d", "emptied"), ("d", "later")


class Scene:
    """Tables with rows, and a changefeed that begins after these."""

    def __init__(self, spark: SparkSession, folder: Path, variant: Variant) -> None:
        self.upstream = plain_upstream(OLD, EMPTIED, rows=8)
        first_ts = self.upstream.clock.next()
        churn(self.upstream, steps=4, seed=2)
        self.changefeed = variant.changefeed(
            self.upstream, FeedOptions(first_ts=first_ts), partitions=1
        )
        self.feed = Feed.of(spark, folder, wire_format=variant.wire_format)
        self.feed.follow(self.changefeed)

    def lacking(self) -> list[tuple[str, str]]:
        """Return the mirrors that say that they may lack rows, by the cut and by its readers."""
        told = _lacking(
            (item.caveats, (item.database, item.table)) for item in self.feed.cut.mirrors
        )
        listed = [item for item in self.feed.listed() if item.incomplete]
        assert told == [(item.database, item.table) for item in listed]
        assert all(item.status.state is TableState.INCOMPLETE for item in listed)
        tso = self.feed.cut.tso
        read = [
            (item.warnings, (item.database, item.table)) for item in self.feed.tables_as_of(tso)
        ]
        assert told == _lacking(read)
        return told

    def says(self, **settings: object) -> None:
        self.feed = self.feed.having(**settings)

    def go_on(self) -> None:
        self.feed.follow(self.changefeed)


def _lacking(found: Iterable[tuple[Sequence[str], tuple[str, str]]]) -> list[tuple[str, str]]:
    return sorted(
        name for caveats, name in found if any(item.startswith(LACKS_EARLIER) for item in caveats)
    )


@each_format("simple-json", "open-protocol", "canal-json-plain")
def test_a_changefeed_that_begins_at_tables_with_rows(
    spark: SparkSession, tmp_path: Path, variant: Variant
) -> None:
    scene = Scene(spark, tmp_path, variant)
    assert scene.lacking() == [EMPTIED, OLD]
    assert scene.feed.rows() != truth_rows(scene.changefeed.truth(scene.changefeed.watermark_ts))
    # A table that a message creates or empties has all of its rows.
    scene.upstream.create_table(LATER, PLAIN_COLUMNS, primary_key=("id",))
    scene.upstream.truncate_table(EMPTIED)
    churn(scene.upstream, steps=4, seed=3)
    scene.go_on()
    assert scene.lacking() == [OLD]
    scene.upstream.rename_table(OLD, ("d", "renamed"))
    scene.go_on()
    assert scene.lacking() == [("d", "renamed")]


@pytest.mark.parametrize("name", ["simple-json", "open-protocol"])
def test_a_seed_brings_the_rows(spark: SparkSession, tmp_path: Path, name: str) -> None:
    scene = Scene(spark, tmp_path, PLAIN[name])
    before = scene.feed.cut.tso
    export_upstream(scene.upstream, tmp_path / "export")
    churn(scene.upstream, steps=4, seed=3)
    seed(scene.feed.lake, str(tmp_path / "export"))
    scene.go_on()
    assert scene.lacking() == []
    wanted = scene.changefeed.truth(scene.changefeed.watermark_ts)
    assert scene.feed.rows() == truth_rows(wanted)
    assert before < scene.feed.cut.tso


def test_the_setting_says_that_the_source_has_all(spark: SparkSession, tmp_path: Path) -> None:
    scene = Scene(spark, tmp_path, PLAIN["simple-json"])
    scene.says(complete_tables=TableChoice(("d.ol*",)))
    assert scene.feed.sync().outcome is Outcome.PUBLISHED
    assert scene.lacking() == [EMPTIED]
    assert scene.feed.sync().outcome is Outcome.UNCHANGED
    scene.says(complete_tables=ALL_TABLES)
    scene.feed.sync()
    assert scene.lacking() == []
    scene.says(complete_tables=TableChoice())
    scene.feed.sync()
    assert scene.lacking() == [EMPTIED, OLD]
