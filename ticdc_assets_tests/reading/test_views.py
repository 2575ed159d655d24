"""SQL views of a cut, and single queries: what they read, and what they refuse."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ticdc_assets.config import TableChoice
from ticdc_assets.reading.views import QueryError, create_views, query, require_query
from ticdc_assets_tests.golden import Scenario
from ticdc_assets_tests.lake.feeds import Feed
from ticdc_assets_tests.lake.golden_lakes import GoldenLakes

pytestmark = pytest.mark.spark


def test_views_read_the_cut_and_move_with_it(
    spark: SparkSession, tmp_path: Path, golden_dir: Callable[..., Path]
) -> None:
    scenario = Scenario(golden_dir("simple-json", "types"))
    feed = Feed.of(spark, tmp_path, capture=scenario.capture, timezone=scenario.timezone)
    feed = feed.having(history=TableChoice(("*.*",)))
    first, _ = scenario.earlier
    feed.sync(until=first)
    prefix = "views_"

    def count(name: str) -> int:
        return spark.sql(f"SELECT * FROM {prefix}kinds.{name}").count()

    try:
        made = create_views(spark, "feed", settings=feed.settings, prefix=prefix)
        assert [name for _, name in made.created] == [
            "types",
            "types__history",
            "types__with_deleted",
        ]
        assert not made.refused
        assert count("types") == scenario.state(first)["kinds", "types"].total()
        feed.sync()
        assert count("types") == scenario.state(first)["kinds", "types"].total()
        create_views(spark, "feed", settings=feed.settings, prefix=prefix)
        (mirror,) = feed.cut.mirrors
        assert count("types") == mirror.rows
        assert count("types__history") == mirror.history_rows
        assert mirror.rows < count("types__with_deleted")
        # Names are upstream's: some no catalog takes, and some are gone at the next cut.
        odd = [
            replace(mirror, table=name, history_version=None)
            for name in ("types", "TYPES", "a/b", "x y", "`", "", "mine")
        ]
        spark.sql(f"CREATE VIEW {prefix}kinds.mine AS SELECT 1 AS one")
        feed.publish(*odd)
        made = create_views(spark, "feed", settings=feed.settings, prefix=prefix)
        assert made.created == ((f"{prefix}kinds", "types"),)
        assert {name for _, name in made.dropped} == {"types__history", "types__with_deleted"}
        reasons = {item.name: item.reason for item in made.refused}
        assert reasons.keys() == {"TYPES", "a/b", "x y", "`", "", "mine"}
        assert "except for case" in reasons["TYPES"]
        assert "not a view of this changefeed" in reasons["mine"]
        assert count("mine") == 1
    finally:
        spark.sql(f"DROP DATABASE IF EXISTS {prefix}kinds CASCADE")


def test_a_query_reads_one_cut_and_leaves_nothing(
    spark: SparkSession, golden_lakes: GoldenLakes
) -> None:
    scenario = golden_lakes.scenario("simple-json", "types")
    feed = golden_lakes.at_once("simple-json", "types")
    first, _ = scenario.earlier
    before = {row[0] for row in spark.sql("SHOW DATABASES").collect()}

    def answer(text: str, as_of: int | None = None) -> list[list[str | None]]:
        with query(feed.lake, text, as_of=as_of) as found:
            return [list(row) for row in found.rows]

    (mirror,) = feed.cut.mirrors
    counted = "WITH a AS (SELECT * FROM Kinds.types) SELECT count(*) FROM a"
    assert answer(counted) == [[str(mirror.rows)]]
    then = scenario.state(first)["kinds", "types"].total()
    assert answer("SELECT count(*) FROM kinds.types", first) == [[str(then)]]
    assert answer("SELECT NULL, X'00FF', 1.50, true") == [[None, "0x00ff", "1.50", "true"]]
    for text in ("${env:PATH}", "${spark.app.name}"):
        assert answer(f"SELECT '{text}'") == [[text]]
    with pytest.raises(QueryError, match=r"no table kinds\.nothing; the tables are: kinds\.types"):
        answer("SELECT * FROM kinds.nothing")
    with pytest.raises(QueryError, match="CAST_INVALID_INPUT"):
        answer("SELECT CAST(concat('x', id) AS INT) FROM kinds.types")
    assert {row[0] for row in spark.sql("SHOW DATABASES").collect()} == before
    # Views that a person created are not replaced by those of one query.
    try:
        create_views(spark, "feed", settings=feed.settings)
        with pytest.raises(QueryError, match="a query replaces no view"):
            answer("SELECT count(*) FROM kinds.types", first)
        assert spark.table("kinds.types").count() == mirror.rows
    finally:
        spark.sql("DROP DATABASE IF EXISTS kinds CASCADE")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("DROP TABLE kinds.types", "not a query: "),
        ("INSERT INTO kinds.types SELECT 1", "not a query: "),
        ("WITH a AS (SELECT 1) INSERT INTO kinds.types SELECT * FROM a", "not a query: "),
        ("SELECT 1; DROP TABLE kinds.types", "not a query: "),
        ("SET a = b", "not a query: "),
        ("OPTIMIZE kinds.types", "not a query: "),
        ("", "not a query: "),
        ("SELECT TRANSFORM(1) USING 'cat'", "it runs a program"),
        ("SELECT reflect('java.lang.System', 'gc')", "calls any Java method"),
        ("WITH a AS (SELECT `JAVA_METHOD`('a', 'b')) SELECT * FROM a", "calls any Java method"),
        ("SELECT (SELECT try_reflect('a', 'b'))", "calls any Java method"),
    ],
)
def test_what_is_no_query_or_more_is_refused(text: str, reason: str, spark: SparkSession) -> None:
    with pytest.raises(QueryError, match=reason):
        require_query(spark, text)
