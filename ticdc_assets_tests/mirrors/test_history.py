"""Histories: what the lake keeps is what the plain-Python reference says, in pieces or at once."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ticdc_assets.base.errors import LakeDamagedError, NotFoundError
from ticdc_assets.config import Retention, TableChoice
from ticdc_assets.demo.simulator.alterations import ModifyColumn
from ticdc_assets.demo.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.export import export_upstream
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.log.cuts import MirrorCut
from ticdc_assets.reading.embedded import deleted_lines
from ticdc_assets.reading.histories import read_history, row_versions
from ticdc_assets.repair.retention import retain
from ticdc_assets.repair.seeding import seed
from ticdc_assets.rows.history_layout import HistoryLayout
from ticdc_assets.rows.mirror_rows import MirrorLayout, canonical_rows
from ticdc_assets.spark.frames import delta_frame
from ticdc_assets_tests.delta.libraries import opened
from ticdc_assets_tests.demo.simulator.builders import (
    PLAIN_COLUMNS,
    fill,
    keyless_upstream,
    plain_upstream,
    upstream_of,
)
from ticdc_assets_tests.demo.simulator.odd_upstream import OddUpstream
from ticdc_assets_tests.golden import Rows, Scenario, comparable
from ticdc_assets_tests.lake.feeds import Feed, keep_files_apart, small_up_to
from ticdc_assets_tests.lake.golden_lakes import feed_of
from ticdc_assets_tests.reference.history_fold import RowVersion, fold_history

pytestmark = pytest.mark.spark


def with_deleted(
    feed: Feed, name: tuple[str, str], as_of: int | None = None
) -> list[dict[str, str | None]]:
    return [json.loads(line) for line in deleted_lines(feed.lake, feed.cut, name, as_of=as_of)]


def with_history(feed: Feed, *patterns: str) -> Feed:
    return feed.having(history=TableChoice(patterns))


class Version(NamedTuple):
    """A version of a row, its values as a comparable text."""

    row: str
    valid_from: int
    valid_to: int | None
    op: str
    ended_by: str | None

    def is_valid_at(self, tso: int) -> bool:
        """Return whether the cut at a TSO has it."""
        return self.valid_from <= tso and (self.valid_to is None or tso < self.valid_to)


def versions_in(
    batches: Iterable[pa.RecordBatch], mirror: MirrorCut, timezone: str
) -> list[Version]:
    schema = mirror.table_schema
    layout = HistoryLayout(schema=schema)
    own = [layout.valid_from, layout.valid_to, layout.op, layout.ended_by]
    return [
        Version(
            comparable({name: row[name] for name in row if name not in mirror.hidden}),
            *(values[name] for name in own),
        )
        for batch in batches
        for row, values in zip(
            canonical_rows(batch, MirrorLayout(schema=schema), timezone),
            batch.select(own).to_pylist(),
            strict=True,
        )
    ]


def kept(feed: Feed, mirror: MirrorCut) -> Counter[Version]:
    table = (
        delta_frame(feed.lake.spark, *mirror.history_at(feed.lake.paths)).toArrow().combine_chunks()
    )
    assert table.num_rows == mirror.history_rows
    return Counter(versions_in(table.to_batches(), mirror, feed.changefeed.timezone))


def assert_as_folded(feed: Feed) -> None:
    """Assert that each history has the versions that all changes at once give."""
    found = [kept(feed, mirror) for mirror in feed.cut.mirrors]
    feed.sync(refold=[(mirror.database, mirror.table) for mirror in feed.cut.mirrors])
    assert found == [kept(feed, mirror) for mirror in feed.cut.mirrors]


def wanted(versions: list[RowVersion], mirror: MirrorCut) -> Counter[Version]:
    columns = [column.name for column in mirror.table_schema.columns]
    shown = [name for name in columns if name not in mirror.hidden]
    return Counter(
        Version(
            comparable({name: item.row.get(name) for name in shown}),
            item.valid_from,
            item.valid_to,
            item.op,
            item.ended_by,
        )
        for item in versions
    )


def assert_as_the_reference(feed: Feed, scenario: Scenario) -> None:
    reference = fold_history(scenario.events, feed.cut.tso, scenario.timezone)
    assert {(item.database, item.table) for item in feed.cut.mirrors} == set(reference)
    for mirror in feed.cut.mirrors:
        name = (mirror.database, mirror.table)
        found, versions = kept(feed, mirror), wanted(reference[name], mirror)
        assert found == versions, (
            f"{name}: {sum((versions - found).values())} missing, first "
            f"{next(iter(versions - found), None)}; {sum((found - versions).values())} too many, "
            f"first {next(iter(found - versions), None)}"
        )


def rows_at(feed: Feed, tso: int | None) -> Rows:
    """Return what the histories say of a cut; of the newest one without a TSO."""
    rows: Rows = {}
    for mirror in feed.cut.mirrors:
        found: Counter[str] = Counter()
        for item, count in kept(feed, mirror).items():
            if item.valid_to is None if tso is None else item.is_valid_at(tso):
                found[item.row] += count
        if found:
            rows[mirror.database, mirror.table] = found
    return rows


@pytest.mark.slow
@pytest.mark.parametrize(("variant", "cuts"), [("simple-json", 3), ("open", 2)])
def test_a_history_kept_in_pieces_is_what_the_reference_says(
    variant: str,
    cuts: int,
    spark: SparkSession,
    tmp_path: Path,
    golden_dir: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also in a history with deletion vectors, and at the earlier watermarks."""
    small_up_to(monkeypatch, 20)
    scenario = Scenario(golden_dir(variant, "shop"))
    feed = with_history(feed_of(spark, tmp_path, scenario), "*.*")
    size = len(scenario.records) // cuts + 1
    for _ in range(cuts):
        feed.sync(max_records=size)
    assert_as_the_reference(feed, scenario)
    assert rows_at(feed, None) == feed.rows()
    for at in scenario.earlier:
        state, said = scenario.state(at), rows_at(feed, at)
        for name in state.keys() & said.keys():
            assert said[name].total() == state[name].total(), (at, name)


def test_a_history_is_merged_taken_back_and_read(
    spark: SparkSession,
    tmp_path: Path,
    golden_dir: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario = Scenario(golden_dir("simple-json", "types"))
    feed = feed_of(spark, tmp_path, scenario)
    first, last = scenario.earlier
    feed.sync(until=first)
    (mirror,) = feed.cut.mirrors
    assert mirror.history_version is None
    # Switched on: it begins with what the change log holds, though nothing new landed.
    feed = with_history(feed, "kinds.types")
    feed.sync(until=first)
    (mirror,) = feed.cut.mirrors
    assert mirror.history_version == 0
    small_up_to(monkeypatch, 0)
    # A killed run that had committed, and did not publish.
    killed = feed.spark.read.format("delta").load(str(feed.paths.history(mirror.mirror_id)))
    killed.limit(3).write.format("delta").mode("append").save(
        str(feed.paths.history(mirror.mirror_id))
    )
    feed.sync()
    assert_as_the_reference(feed, scenario)
    assert rows_at(feed, None) == feed.rows()
    assert rows_at(feed, first) == scenario.state(first)
    assert rows_at(feed, last) == scenario.state(last)
    # Deleted rows are kept and flagged.
    (mirror,) = feed.cut.mirrors
    settings = feed.settings
    found = with_deleted(feed, ("kinds", "types"))
    present = [row for row in found if row["_ticdc_deleted_at"] is None]
    assert len(present) == mirror.rows < len(found)
    assert len({row["id"] for row in found}) == len(found)
    then = with_deleted(feed, ("kinds", "types"), as_of=first)
    present = [row for row in then if row["_ticdc_deleted_at"] is None]
    assert len(present) == scenario.state(first)["kinds", "types"].total()
    versions = read_history(spark, "feed", "kinds", "types", settings=settings)
    assert versions.count() == mirror.history_rows
    # One row, from the history and from the change log.
    key = str(versions.where("_ticdc_ended_by = 'update'").first()["id"])
    name = ("kinds", "types")
    told = row_versions(feed.lake, feed.cut, name, key)
    alone = replace(feed.cut, mirrors=(replace(mirror, history_version=None),))
    assert row_versions(feed.lake, alone, name, f"id={key}") == told
    assert len(told) > 1
    assert [item["valid_to"] for item in told[:-1]] == [item["valid_from"] for item in told[1:]]


def test_a_row_by_a_key_as_people_write_it(spark: SparkSession, tmp_path: Path) -> None:
    """Its values in any spelling and, with their names, in any order."""
    upstream, name = Upstream(), ("d", "prices")
    upstream.create_database("d")
    types = {"price": "decimal(10,2)", "at": "datetime(3)", "code": "varbinary(4)"}
    columns = [column(name, kind, nullable=False) for name, kind in types.items()]
    upstream.create_table(name, columns, primary_key=tuple(types))
    with upstream.transaction() as transaction:
        transaction.insert(name, {"price": "1.50", "at": "2024-02-29 01:02:03.000", "code": "0xab"})
        transaction.insert(name, {"price": "1.05", "at": "2024-02-29 01:02:03.000", "code": "0xab"})
    changefeed = StandInChangefeed(upstream, "d")
    for feed in (Feed.of(spark, tmp_path), with_history(Feed.of(spark, tmp_path), "*.*")):
        feed.follow(changefeed)
        for key in (
            "1.50,2024-02-29 01:02:03.000,0xab",
            "01.5,2024-02-29 01:02:03,0xAB",
            "code=0xAB,at=2024-02-29 01:02:03,price=1.5",
        ):
            (version,) = row_versions(feed.lake, feed.cut, name, key)
            assert version["row"]["price"] == "1.50"
        assert row_versions(feed.lake, feed.cut, name, "2,no time,0xab") == []


def test_a_history_without_its_files_is_damaged(feed: Feed) -> None:
    table = ("d", "t")
    upstream = plain_upstream(table)
    fill(upstream, table, rows=3, seed=1)
    feed = feed.having(history=TableChoice(("*.*",)))
    feed.follow(StandInChangefeed(upstream, "d", partitions=1))
    assert with_deleted(feed, table)
    (mirror,) = feed.cut.mirrors
    folder, _ = mirror.history_at(feed.paths)
    for file in folder.rglob("*.parquet"):
        file.unlink()
    with pytest.raises(LakeDamagedError, match=r"d\.t"):
        with_deleted(feed, table)


def test_a_moment_that_a_history_does_not_know_is_refused(tmp_path: Path, feed: Feed) -> None:
    """It begins with the base cut, and knows from there on, also when more is truncated."""
    table, day = ("d", "t"), timedelta(days=1)
    upstream = plain_upstream(table)
    changefeed = StandInChangefeed(upstream, "d", partitions=1)
    feed = feed.having(retention=Retention(change_log=day))

    there: dict[int, int] = {}

    def grow(number: int) -> int:
        fill(upstream, table, rows=3, seed=number)
        feed.follow(changefeed)
        there[feed.cut.tso] = len(upstream.rows(table))
        return feed.cut.tso

    def truncate() -> None:
        done = retain(feed.lake, now=feed.cut.published_at + day)
        assert done.truncation_point.cut == feed.cut

    def rows(tso: int) -> int:
        return len(with_deleted(feed, table, as_of=tso))

    older, base = grow(1), grow(2)
    truncate()
    feed = with_history(feed, "d.t")
    newest = grow(3)
    with pytest.raises(NotFoundError, match=rf"begins at .* \(TSO {base}\)"):
        rows(older)
    with pytest.raises(NotFoundError, match=rf"the newest cut is at .* \(TSO {newest}\)"):
        rows(newest + 1)
    truncate()
    grow(4)
    assert 0 < there[base] < there[newest]
    assert {tso: rows(tso) for tso in (base, newest)} == {tso: there[tso] for tso in (base, newest)}

    # An export: the history begins again with its rows.
    export, newest = export_upstream(upstream, tmp_path / "export"), feed.cut.tso
    seed(feed.lake, str(tmp_path / "export"))
    there[export] = len(upstream.rows(table))
    grow(5)
    with pytest.raises(NotFoundError, match=rf"begins at .* \(TSO {export}\)"):
        rows(newest)
    assert rows(export) == there[export]

    # A reader of a cut reads that one, though the table was dropped since.
    (mirror,) = feed.cut.mirrors
    cut = replace(feed.cut, mirrors=(replace(mirror, history_version=None),))
    key = str(next(iter(upstream.rows(table)))[0])
    upstream.drop_table(table)
    feed.follow(changefeed)
    assert not feed.cut.mirrors
    (version,) = row_versions(feed.lake, cut, table, key)
    assert version["valid_to"] is None


def test_a_history_without_a_key_is_written_where_rows_changed(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of copies the oldest ends; the others are not written again."""
    small_up_to(monkeypatch, 0)
    keep_files_apart(monkeypatch)
    upstream, table = keyless_upstream(), ("log", "lines")
    changefeed = StandInChangefeed(upstream, "log", options=FeedOptions(force_replicate=True))
    feed = with_history(feed, "*.*")
    feed.follow(changefeed)
    first = feed.mirror(*table)
    same = [key for key, row in upstream.rows(table).items() if row["text"] == "the same"]
    others = [key for key in upstream.rows(table) if key not in same]
    with upstream.transaction() as transaction:
        transaction.delete(table, same[0])
        transaction.delete(table, others[0])
        transaction.insert(table, {"level": "1", "text": "the same"})
    with upstream.transaction() as transaction:
        transaction.update(table, others[1], changes={"text": "another"})
        transaction.insert(table, {"level": "2", "text": "soon gone"})
    (gone,) = (key for key, row in upstream.rows(table).items() if row["text"] == "soon gone")
    with upstream.transaction() as transaction:
        transaction.delete(table, gone)
    feed.follow(changefeed)
    mirror = feed.mirror(*table)
    assert mirror.history_rows == (first.history_rows or 0) + 3
    # Three versions ended and stay, and three began.
    path = feed.paths.history(mirror.mirror_id)
    written = opened(path).get_add_actions(flatten=True)
    assert [count for count in written["num_records"].to_pylist() if count < 10] == [6]
    assert_as_folded(feed)


def test_the_versions_of_a_truncated_table_keep_their_columns(feed: Feed) -> None:
    """A column moved, and rows of other columns of its type ended before and by a TRUNCATE."""
    table = ("d", "t")
    columns = tuple(column(name, "int", nullable=False) for name in ("id", "v"))
    upstream = upstream_of(table, columns, primary_key=("id",))
    with upstream.transaction() as transaction:
        key = transaction.insert(table, {"id": "1", "v": "10"})
    with upstream.transaction() as transaction:
        transaction.update(table, key, changes={"v": "11"})
    changefeed = StandInChangefeed(upstream, "t")
    feed = with_history(feed, "*.*")
    feed.follow(changefeed)
    upstream.alter_table(table, ModifyColumn(name="v", column=columns[1], first=True))
    upstream.truncate_table(table)
    feed.follow(changefeed)
    found = Counter(version.row for version in kept(feed, feed.mirror(*table)))
    assert found == Counter(comparable({"id": "1", "v": value}) for value in ("10", "11"))
    assert_as_folded(feed)


def test_a_late_row_of_a_table_that_handed_its_rows_over_is_in_the_history(feed: Feed) -> None:
    """The rows came back by FLASHBACK under another name, and were truncated there too."""
    table = ("d", "t")
    upstream, back = OddUpstream(), ("d", "back")
    upstream.create_database("d")
    upstream.create_table(table, PLAIN_COLUMNS, primary_key=("id",))
    changefeed = StandInChangefeed(upstream, "t", partitions=1)
    feed = with_history(feed, "*.*")
    feed.follow(changefeed)
    with upstream.transaction() as transaction:
        transaction.insert(table, {"id": "1", "v": "late"})
    records = list(changefeed.tick())
    (late,) = (record for record in records if b'"INSERT"' in (record.value or b""))
    feed.write(record for record in records if record is not late)
    upstream.truncate_table(table)
    upstream.recover_table(table, to=back[1])
    upstream.truncate_table(back)
    feed.follow(changefeed)
    feed.write([replace(late, offset=changefeed.next_offsets[0])])
    feed.sync()
    (version,) = kept(feed, feed.mirror(*back))
    assert (version.op, version.ended_by) == ("recover", "truncate")
    assert_as_folded(feed)
