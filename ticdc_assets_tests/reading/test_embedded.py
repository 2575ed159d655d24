"""Queries in this process: they read what Spark's queries read, and reach nothing else."""

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ticdc_assets.base.errors import LakeDamagedError, MirrorCaveatWarning, NotFoundError
from ticdc_assets.config import TableChoice
from ticdc_assets.demo.simulator.changefeed import StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.reading import embedded, views
from ticdc_assets.reading.as_of import AsOf
from ticdc_assets.reading.embedded import deleted_lines, query
from ticdc_assets.reading.mirrors import read_mirror
from ticdc_assets.reading.views import QueryError
from ticdc_assets.spark.session import LazySession
from ticdc_assets_tests.demo.simulator.builders import upstream_of
from ticdc_assets_tests.golden import Scenario
from ticdc_assets_tests.lake.feeds import Feed, keep_files_apart, small_up_to
from ticdc_assets_tests.lake.golden_lakes import GoldenLakes

pytestmark = pytest.mark.spark


def answer(
    feed: Feed, text: str, as_of: int | None = None, *, spark: bool = False
) -> list[list[str | None]]:
    lake = feed.lake if spark else replace(feed.lake, session=None)
    with (views.query if spark else query)(lake, text, as_of=as_of) as found:
        return [list(row) for row in found.rows]


@pytest.fixture
def whole(golden_lakes: GoldenLakes) -> Feed:
    """A lake that others read too."""
    return golden_lakes.at_once("simple-json", "types")


@pytest.fixture
def copied(whole: Feed, tmp_path: Path) -> Feed:
    shutil.copytree(whole.paths.root, tmp_path / "lake")
    return whole.in_folder(tmp_path)


@pytest.mark.parametrize("large", [False, True], ids=["as it is", "with deleted rows"])
def test_it_reads_what_spark_reads(
    spark: SparkSession,
    tmp_path: Path,
    golden_dir: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    large: bool,
) -> None:
    scenario = Scenario(golden_dir("simple-json", "types"))
    if large:
        small_up_to(monkeypatch, 0)
        keep_files_apart(monkeypatch)
    feed = Feed.of(spark, tmp_path, capture=scenario.capture, timezone=scenario.timezone)
    feed = feed.having(history=TableChoice(("*.*",)))
    first, _ = scenario.earlier
    feed.sync(until=first)
    feed.sync()
    (mirror,) = feed.cut.mirrors
    # The engines print floats and times of a day in ways of their own.
    names = [
        f"`{column.name}`"
        for column in mirror.table_schema.columns
        if column.mysql_type not in ("float", "double", "time", "tidbvectorfloat32", "vector")
        and column.name not in mirror.hidden
    ]
    for table, as_of in (
        ("types", None),
        ("types", first),
        ("types__history", None),
        ("types__with_deleted", None),
    ):
        text = f"SELECT {', '.join(names)}, map_keys(_rescued_data) IS NULL FROM kinds.{table}"
        theirs = answer(feed, text, as_of, spark=True)
        ours = answer(feed, text.replace("`", '"'), as_of)
        for name, own, other in zip(
            names, zip(*ours, strict=True), zip(*theirs, strict=True), strict=False
        ):
            assert Counter(own) == Counter(other), (table, name)
        assert Counter(map(tuple, ours)) == Counter(map(tuple, theirs)), table
    for source in ("(FROM KINDS.Types)", "kinds.types TABLESAMPLE 100 PERCENT"):
        text = f"WITH a AS (FROM {source}) SELECT count(*) FROM a"
        assert answer(feed, text) == [[str(mirror.rows)]], source


def test_tables_whose_names_differ_by_case_or_are_odd(copied: Feed) -> None:
    feed = copied
    (mirror,) = feed.cut.mirrors
    odd = ("types", "TYPES", "a/b", 'x"y', "`", "1; DROP", "main")
    feed.publish(*(replace(mirror, database=name, table=name) for name in odd))
    count = [[str(mirror.rows)]]
    for name in odd:
        quoted = '"' + name.replace('"', '""') + '"'
        assert answer(feed, f"SELECT count(*) FROM {quoted}.{quoted}") == count, name
    with pytest.raises(QueryError, match="write the exact name"):
        answer(feed, "SELECT count(*) FROM Types.Types")
    with pytest.raises(QueryError, match=r"TYPES\.TYPES and types\.types differ only by case"):
        answer(feed, "SELECT count(*) FROM types.types, TYPES.TYPES")


def test_both_engines_say_why_a_table_may_differ(copied: Feed) -> None:
    (mirror,) = copied.cut.mirrors
    noted, other = (
        replace(mirror, table=name, caveats=[f"a caveat of {name}"]) for name in ("noted", "other")
    )
    copied.publish(noted, other)
    for engine in (query, views.query):
        with engine(copied.lake, "SELECT 1 FROM kinds.noted AS a, kinds.noted AS b") as found:
            assert found.notes == ["kinds.noted: a caveat of noted"]


def test_read_mirror_warns_why_a_table_may_differ(copied: Feed) -> None:
    (mirror,) = copied.cut.mirrors
    copied.publish(replace(mirror, caveats=["a caveat"]))
    with pytest.warns(MirrorCaveatWarning, match=r"^kinds\.types: a caveat$") as warned:
        read_mirror(None, "feed", "kinds", "types", settings=copied.settings, engine="arrow")
    assert [item.filename for item in warned] == [__file__]


def test_a_table_of_a_later_export_says_since_when_it_is_known(whole: Feed) -> None:
    moment = AsOf(whole.lake, whole.cut.tso)
    moment.plan = replace(moment.plan, exported_above=((("kinds", "later"), 2 << 58),))
    made = dict(views.views_as_of(moment, str))
    assert made.keys() == {("kinds", "types"), ("kinds", "later")}
    with pytest.raises(NotFoundError, match=r"kinds\.later is not known .* from an export"):
        made["kinds", "later"]()


@pytest.mark.parametrize("name", ["system", "temp", "memory"])
def test_databases_named_as_those_of_the_engine(copied: Feed, name: str) -> None:
    (mirror,) = copied.cut.mirrors
    copied.publish(replace(mirror, database=name))
    text = "SELECT count(*) FROM {}.types AS t"
    with pytest.raises(QueryError, match=r"use a fully qualified path like 'memory\.") as raised:
        answer(copied, text.format(name))
    advised = str(raised.value).split("'")[1]
    assert answer(copied, text.format(advised)) == [[str(mirror.rows)]]
    assert answer(copied, text.format(name), spark=True) == [[str(mirror.rows)]]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("DROP TABLE kinds.types", "expected one SELECT"),
        ("INSERT INTO kinds.types SELECT 1", "expected one SELECT"),
        ("SELECT 1; SELECT 2", "expected one SELECT"),
        ("", "expected one SELECT"),
        ("SET threads = 1", "expected one SELECT"),
        ("ATTACH 'x'", "expected one SELECT"),
        ("COPY (SELECT 1) TO '{file}'", "expected one SELECT"),
        ("INSTALL httpfs", "expected one SELECT"),
        ("SELECT * FROM read_csv('{file}')", "disabled by configuration"),
        ("SELECT * FROM read_text('{file}')", "disabled by configuration"),
        ("SELECT * FROM glob('{folder}/*')", "disabled by configuration"),
        ("SELECT * FROM '{file}'", "disabled by configuration"),
        ("SELECT * FROM 'http://127.0.0.1:1/x.csv'", "disabled by configuration"),
        ("SELECT * FROM scenario", "no table scenario; the tables are: kinds.types"),
        ("SELECT * FROM kinds.nothing", r"no table kinds\.nothing; the tables are: kinds\.types"),
        ("SELECT * FROM Kind.types", r"no table Kind\.types; the tables are: kinds\.types"),
        ("SELECT nothing FROM kinds.types", "nothing"),
        ("SELECT (", "not a query"),
        ("SELECT 1 + 'a' FROM kinds.types", "Binder Error"),
        ("SELECT CAST(repeat('a', 2) AS INT) FROM kinds.types", "Conversion Error"),
    ],
)
def test_what_is_no_query_or_reaches_further_is_refused(
    whole: Feed, tmp_path: Path, text: str, reason: str
) -> None:
    file = tmp_path / "file.csv"
    file.write_text("a,b\n1,2\n")
    with pytest.raises(QueryError, match=reason):
        answer(whole, text.format(file=file, folder=tmp_path))
    assert file.read_text() == "a,b\n1,2\n"


def test_an_error_after_the_first_rows_is_a_sentence(whole: Feed) -> None:
    text = "SELECT CAST(x AS INT) FROM (SELECT if(i < 9000, '1', 'x') AS x FROM range(9999) t(i))"
    with pytest.raises(QueryError, match="Conversion Error: Could not convert string 'x'"):
        answer(whole, text)


def test_deleted_rows_that_the_engine_cannot_sort_are_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here memory is short; a full disk is said in the same way."""
    feed = Feed.of(LazySession(), tmp_path).having(history=TableChoice(("*.*",)))
    columns = (column("id", "int", nullable=False),)
    upstream = upstream_of(("d", "t"), columns, primary_key=("id",), rows=3)
    feed.follow(StandInChangefeed(upstream, "shop", partitions=1))
    assert len(list(deleted_lines(feed.lake, feed.cut, ("d", "t")))) > 0
    monkeypatch.setattr(embedded, "_SETTINGS", (*embedded._SETTINGS, "memory_limit = '1KB'"))
    with pytest.raises(QueryError, match=r"^d\.t: Out of Memory Error: failed .* used\)$"):
        list(deleted_lines(feed.lake, feed.cut, ("d", "t")))


def test_a_broken_table_is_told(copied: Feed) -> None:
    (mirror,) = copied.cut.mirrors
    for file in mirror.path(copied.paths).rglob("*.parquet"):
        file.unlink()
    with pytest.raises(LakeDamagedError, match=r"kinds\.types"):
        answer(copied, "SELECT * FROM kinds.types")
