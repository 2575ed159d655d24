"""Verify: clean after any order of syncs, and every kind of damage is found with key and column."""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from ticdc_assets.base.errors import (
    BusyError,
    LossError,
    NotFoundError,
    PrerequisiteError,
    StoreUnavailableError,
)
from ticdc_assets.config import ClaimCheck, Retention, TableChoice, TableFilter, Writer
from ticdc_assets.delta.lock import side_lock, writer_lock
from ticdc_assets.delta.opening import latest_version
from ticdc_assets.demo.simulator.alterations import DropColumn
from ticdc_assets.demo.simulator.changefeed import Dispatcher, FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.export import export_upstream
from ticdc_assets.demo.simulator.stored_table import Key
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.log.change_files import DecodedFiles
from ticdc_assets.log.cuts import MirrorCut
from ticdc_assets.log.decoding import decode_new
from ticdc_assets.log.quarantine import read_quarantine
from ticdc_assets.mirrors.mirror_making import MirrorMaker
from ticdc_assets.model.events import Event
from ticdc_assets.repair import making, verifying
from ticdc_assets.repair.comparing import ColumnDifference, RowCounts, RowFinding
from ticdc_assets.repair.rebuilding import rebuild
from ticdc_assets.repair.redriving import redrive
from ticdc_assets.repair.seeding import seed
from ticdc_assets.repair.verifying import Finding, Verification, VerifiedMirror, verify
from ticdc_assets.spark.frames import delta_frame
from ticdc_assets.storage.paths import names_in
from ticdc_assets.wire import WireFormat
from ticdc_assets.wire.compression import Compression
from ticdc_assets.wire.record import Record
from ticdc_assets_tests.commands import files
from ticdc_assets_tests.demo.simulator.builders import churn, fill, plain_upstream, upstream_of
from ticdc_assets_tests.golden import (
    ALL_FOLDERS,
    THREE_OF_THE_SHOP,
    Scenario,
    assert_same_rows,
)
from ticdc_assets_tests.lake.feeds import Feed, LandingClock, small_up_to, truth_rows
from ticdc_assets_tests.lake.golden_lakes import feed_of
from ticdc_assets_tests.lake.killing import raising
from ticdc_assets_tests.repair.test_retention import (
    DAY,
    KEYED,
    an_insert,
    in_lz4,
    keyed_beyond_base,
    keyed_upstream,
    sent_later,
    synced_without_an_insert,
    truncated,
)

pytestmark = pytest.mark.spark

PAIRS, BAG, DAYS, OTHER = ("d", "pairs"), ("d", "bag"), ("d", "o'days `x`"), ("d", "other")


def verified(feed: Feed, table: tuple[str, str] | None = None) -> Verification:
    return verify(feed.lake, table=table)


def of(verification: Verification, name: tuple[str, str]) -> VerifiedMirror:
    (found,) = [item for item in verification.mirrors if (item.database, item.table) == name]
    return found


def assert_clean(feed: Feed) -> Verification:
    """Assert that all of a feed is equal to its rebuild, and that nothing else changed by it."""
    before = files(feed.paths.base)
    found = verified(feed)
    assert found.differences == ()
    different = [item for item in found.mirrors if not item.is_sound]
    assert different == []
    assert found.equal
    assert len(found.mirrors) == len(feed.cut.mirrors)
    for item, mirror in zip(found.mirrors, feed.cut.mirrors, strict=True):
        assert item.mirror == item.rebuilt
        assert item.mirror is not None
        assert item.mirror.rows == mirror.rows
    after = files(feed.paths.base)
    assert after.pop("verify.lock", None) is not None
    before.pop("verify.lock", None)
    assert after == before
    return found


def assert_not_proven(
    feed: Feed, why: str, *, table: str = "keyed", too_many: int | None = None
) -> None:
    """Assert that the one table of a feed differs, which is no fault: no rebuild can tell."""
    found = verified(feed)
    (item,) = found.mirrors
    assert (item.finding, found.equal) == (Finding.NOT_PROVEN, True)
    assert item.counts.too_many == (too_many or item.counts.too_many) > 0
    assert found.summary.startswith("0 of 1 mirror")
    assert found.notes()[-1].startswith(f"d.{table} cannot be proven: {why}")


# Feeds ------------------------------------------------------------------------------------------


class Life:
    """An upstream with a table of two key columns, a bag, odd names, and its changefeed."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.upstream = Upstream(timezone="Asia/Tokyo")
        self.upstream.create_database("d")
        number, text = column("n", "int", nullable=False), column("v", "varchar(60)")
        for name in (PAIRS, OTHER):
            self.upstream.create_table(
                name,
                (number, column("k", "varchar(9)", nullable=False), text),
                primary_key=("n", "k"),
            )
        self.upstream.create_table(BAG, (column("n", "int"), text))
        self.upstream.create_table(
            DAYS,
            (number, column("d.`ay", "date"), column("at", "timestamp(3)"), column("f", "double")),
            primary_key=("n",),
        )
        self.changefeed = StandInChangefeed(
            self.upstream, "d", partitions=2, options=FeedOptions(force_replicate=True)
        )
        self.feed = Feed.of(spark, folder, timezone="Asia/Tokyo")
        self.written = 0

    def write(self) -> None:
        records = list(self.changefeed.tick())
        self.feed.write(records)
        self.written += len(records)


def lived(spark: SparkSession, folder: Path) -> Life:
    """Return a life that was synced several times; the last batch is landed and in no cut."""
    life = Life(spark, folder)
    rows = [
        (PAIRS, {"n": "1", "k": "a", "v": "axolotl"}),
        (PAIRS, {"n": "2", "k": "a", "v": "dodo"}),
        *((BAG, {"n": "7", "v": "the same"}) for _ in range(3)),
        (BAG, {"n": None, "v": "a single one"}),
        (DAYS, {"n": "1", "d.`ay": "0000-00-00", "at": "2024-02-29 08:00:00.125", "f": "-0"}),
    ]
    with life.upstream.transaction() as transaction:
        for name, row in rows:
            transaction.insert(name, row)
    fill(life.upstream, OTHER, rows=9)
    life.write()
    life.feed.sync()
    churn(life.upstream, steps=8, seed=1, tables=[OTHER])
    with life.upstream.transaction() as transaction:
        transaction.insert(BAG, {"n": "7", "v": "the same"})
        transaction.update(PAIRS, ("2", "a"), changes={"v": "Quokka 22"})
    life.write()
    life.feed.sync()
    churn(life.upstream, steps=5, seed=2, tables=[OTHER])
    life.write()
    life.feed.land()
    decode_new(life.feed.lake)
    return life


@pytest.fixture(scope="module")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Life:
    """A sound life; tests that damage it take a copy of its lake."""
    return lived(spark, tmp_path_factory.mktemp("life"))


@pytest.fixture
def copied(whole: Life, tmp_path: Path) -> Feed:
    feed = whole.feed.in_folder(tmp_path)
    shutil.copytree(whole.feed.paths.root, feed.paths.root)
    return feed


# Sound ------------------------------------------------------------------------------------------


def test_records_that_are_in_no_cut_do_not_matter(whole: Life) -> None:
    assert 0 < assert_clean(whole.feed).records < whole.written


def test_one_table_is_verified_alone(whole: Life) -> None:
    found = verified(whole.feed, DAYS)
    assert found.equal
    assert [(item.database, item.table) for item in found.mirrors] == [DAYS]
    with pytest.raises(NotFoundError, match="no mirror of database 'd', table 'none'"):
        verified(whole.feed, ("d", "none"))


def test_a_sync_goes_on_meanwhile_and_a_second_verify_does_not(whole: Life) -> None:
    with writer_lock(whole.feed.paths, Writer()):
        assert verified(whole.feed, PAIRS).equal
    with side_lock(whole.feed.paths, Writer()), pytest.raises(BusyError, match="another verify"):
        verified(whole.feed)


def test_a_generation_that_was_left_behind_is_removed(copied: Feed, tmp_path: Path) -> None:
    generations = copied.paths.generations
    copied.paths.of("abc").mirror("1").mkdir(parents=True)
    assert verified(copied, PAIRS).equal
    assert names_in(generations) == [copied.paths.generation]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    link = copied.paths.of("abd").generation_folder
    cast("Path", link).symlink_to(elsewhere)
    with pytest.raises(RuntimeError), rebuilding_fails(copied):
        verified(copied, PAIRS)
    assert (elsewhere / "kept").exists()
    assert not os.path.lexists(str(link))
    assert names_in(generations) == [copied.paths.generation]


@contextmanager
def rebuilding_fails(feed: Feed) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:

        def fail(*_: object, **__: object) -> None:
            assert len(names_in(feed.paths.generations)) > 1
            raise RuntimeError("killed")

        patch.setattr(making, "apply_changes", fail)
        yield


# Damaged ----------------------------------------------------------------------------------------


def damage(feed: Feed, mirror: MirrorCut, old: bytes, new: bytes) -> None:
    """Put other bytes into the data files of a mirror, where they stand."""
    assert len(old) == len(new)
    found = 0
    for path in mirror.path(feed.paths).rglob("*.parquet"):
        content = path.read_bytes()
        if old in content:
            path.write_bytes(content.replace(old, new))
            # Hadoop's checksum beside the file would tell; whoever damages on purpose makes it new.
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
            found += 1
    assert found


def name_newest_versions(feed: Feed) -> None:
    """Publish a cut that names the newest version of every mirror, with its rows."""
    mirrors: list[MirrorCut] = []
    for mirror in feed.cut.mirrors:
        version = latest_version(mirror.path(feed.paths))
        assert version is not None
        named = replace(mirror, version=version)
        rows = delta_frame(feed.lake.spark, *named.at(feed.lake.paths)).count()
        mirrors.append(replace(named, rows=rows))
    feed.publish(*mirrors)


def test_cells_rows_columns_and_files_that_are_damaged_are_found(copied: Feed) -> None:
    def table(name: tuple[str, str]) -> DeltaTable:
        return DeltaTable.forPath(copied.spark, str(copied.mirror(*name).path(copied.paths)))

    table(DAYS).update("n = 1", {"_rescued_data": "map('d.`ay', '0000-00-01')"})
    table(BAG).delete("n is null")
    copied.spark.sql(
        f"insert into delta.`{copied.mirror(*BAG).path(copied.paths)}` "
        "select * from (select n, v, _ticdc_commit_ts, _rescued_data "
        f"from delta.`{copied.mirror(*BAG).path(copied.paths)}` where n = 7 limit 1)"
    )
    name_newest_versions(copied)
    damage(copied, copied.mirror(*PAIRS), b"Quokka 22", b"Quokka 23")
    for path in copied.mirror(*OTHER).path(copied.paths).rglob("*.parquet"):
        path.unlink()
    found = verified(copied)
    assert not found.equal

    pairs = of(found, PAIRS)
    assert pairs.finding is Finding.DIFFERENT
    assert pairs.counts == RowCounts(changed=1)
    (row,) = pairs.examples
    assert (row.finding, row.key) == (RowFinding.CHANGED, {"n": "2", "k": "a"})
    assert row.columns == (ColumnDifference(name="v", mirror="Quokka 23", rebuilt="Quokka 22"),)

    days = of(found, DAYS)
    assert days.counts == RowCounts(changed=1)
    (row,) = days.examples
    assert row.key == {"n": "1"}
    (cell,) = row.columns
    assert cell == ColumnDifference(name="d.`ay", mirror="0000-00-01", rebuilt="0000-00-00")

    bag = of(found, BAG)
    assert bag.counts == RowCounts(missing=1, too_many=1)
    told = {row.finding: (row.key["n"], row.key["v"], row.copies) for row in bag.examples}
    assert told == {
        RowFinding.MISSING: (None, "a single one", 1),
        RowFinding.TOO_MANY: ("7", "the same", 1),
    }

    other = of(found, OTHER)
    assert (other.finding, other.mirror) == (Finding.UNREADABLE, None)
    assert other.rebuilt is not None
    assert other.error
    assert verified(copied, DAYS).mirrors == (days,)


def test_a_rotten_page_does_not_stop_the_others(copied: Feed) -> None:
    pairs = copied.mirror(*PAIRS)
    for path in pairs.path(copied.paths).rglob("*.parquet"):
        content = path.read_bytes()
        footer = int.from_bytes(content[-8:-4], "little") + 8
        path.write_bytes(content[:4] + b"\xff" * (len(content) - footer - 4) + content[-footer:])
    DeltaTable.forPath(copied.spark, str(pairs.path(copied.paths))).delete()
    found = verified(copied)
    rotten = of(found, PAIRS)
    assert (rotten.finding, rotten.mirror) == (Finding.UNREADABLE, None)
    assert rotten.rebuilt is not None
    assert rotten.error
    assert [text.partition(" (")[2] for text in rotten.foreign] == ["DELETE)"]
    assert {item.is_sound for item in found.mirrors if item is not rotten} == {True}


def test_a_store_that_is_away_makes_no_mirror_unreadable(
    copied: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = raising(StoreUnavailableError("s3://lake", "it does not answer"))
    with monkeypatch.context() as patch:
        patch.setattr(verifying, "check_files", away)
        with pytest.raises(StoreUnavailableError):
            verified(copied, PAIRS)
    # A library says so in words of its own.
    monkeypatch.setattr(verifying, "check_files", raising(OSError("a socket timed out")))
    monkeypatch.setattr(making, "require_answer", away)
    with pytest.raises(StoreUnavailableError):
        verified(copied, PAIRS)


@pytest.mark.parametrize("where", [(verifying, "content_of"), (MirrorMaker, "_make_mirror")])
def test_a_full_disk_makes_no_mirror_unsound(
    copied: Feed, monkeypatch: pytest.MonkeyPatch, where: tuple[Any, str]
) -> None:
    monkeypatch.setattr(*where, raising(OSError(28, "No space left on device")))
    with pytest.raises(PrerequisiteError, match="no space is left on the device of"):
        verified(copied, PAIRS)
    assert names_in(copied.paths.generations) == [copied.paths.generation]


def test_rows_lost_and_added_foreign_commits_and_mirrors_of_one_side(copied: Feed) -> None:
    pairs = copied.mirror(*PAIRS)
    place = str(pairs.path(copied.paths))
    DeltaTable.forPath(copied.spark, place).delete("n = 1")
    copied.spark.sql(
        f"insert into delta.`{place}` select 9 as n, k, v, _ticdc_commit_ts, _rescued_data "
        f"from delta.`{place}` where n = 2"
    )
    name_newest_versions(copied)
    DeltaTable.forPath(copied.spark, place).delete("n = 2")
    cut, bag = copied.cut, copied.mirror(*BAG)
    stranger = replace(bag, table="stranger", mirror_id="99")
    shutil.copytree(bag.path(copied.paths), stranger.path(copied.paths))
    kept = tuple(item for item in cut.mirrors if item.table != "bag")
    copied.publish(*kept, stranger)
    found = verified(copied)
    lost = of(found, PAIRS)
    assert lost.counts == RowCounts(missing=1, too_many=1)
    assert {(row.finding, row.key["n"]) for row in lost.examples} == {
        (RowFinding.MISSING, "1"),
        (RowFinding.TOO_MANY, "9"),
    }
    assert [text.partition(" (")[2] for text in lost.foreign] == ["DELETE)"]
    assert of(found, ("d", "stranger")).finding is Finding.NOT_REBUILT
    assert of(found, BAG).finding is Finding.NOT_IN_CUT
    assert of(found, DAYS).is_sound


def test_a_foreign_commit_behind_the_cut_is_told_though_the_cut_is_sound(copied: Feed) -> None:
    mirror = copied.mirror(*PAIRS)
    DeltaTable.forPath(copied.spark, str(mirror.path(copied.paths))).delete("n = 1")
    found = verified(copied, PAIRS)
    (item,) = found.mirrors
    assert (item.finding, item.foreign) == (
        Finding.EQUAL,
        (f"version {mirror.version + 1} (DELETE)",),
    )
    assert not found.equal
    copied.sync()
    assert verified(copied, PAIRS).equal


def test_a_cut_that_says_other_than_its_mirrors(copied: Feed) -> None:
    cut = copied.cut
    changed = replace(copied.mirror(*PAIRS), rows=99, hidden=["v"], held=3)
    others = tuple(item for item in cut.mirrors if item.table != "pairs")
    copied.publish(*others, changed)
    (item,) = verified(copied, PAIRS).mirrors
    assert item.finding is Finding.DIFFERENT
    assert set(item.differences) == {
        "hidden columns are v, rebuilt none",
        "the cut says 99 rows, rebuilt 2",
        "the cut says 3 held, rebuilt 0",
    }


# Quarantine -------------------------------------------------------------------------------------


def test_records_in_quarantine_and_redriven_ones(
    spark: SparkSession, tmp_path: Path, golden_dir: Callable[..., Path]
) -> None:
    scenario = Scenario(golden_dir("options", "open-claim-check"))
    storage = tmp_path / "storage"
    storage.mkdir()
    claim_check = ClaimCheck(location=str(storage), raw_value=False)
    feed = feed_of(spark, tmp_path, scenario, claim_check=claim_check)
    feed.sync()
    waiting, faults = feed.cut.quarantined, read_quarantine(feed.paths)
    assert {row["reason"] for row in faults} == {"claim_check_missing"}
    records = {(row["partition"], row["offset"]) for row in faults}
    assert waiting >= len(records) > 0
    assert_clean(feed)
    shutil.copytree(scenario.folder / "claim-check", storage, dirs_exist_ok=True)
    found = verified(feed)
    assert found.equal
    assert found.decodable == waiting
    assert f"{waiting} events in quarantine can be decoded now" in found.notes()[0]
    done = redrive(feed.lake)
    assert (done.decoded, done.still_quarantined) == (len(faults), 0)
    # Decoded, and in no cut yet.
    assert verified(feed).equal
    feed.sync()
    assert feed.cut.quarantined == 0
    assert_same_rows(feed.rows(), scenario.state(), variant=scenario.variant)
    assert_clean(feed)
    for file in storage.iterdir():
        file.unlink()
    found = verified(feed)
    assert not found.equal
    assert {item.reason for item in found.refused} == {"claim_check_missing"}
    assert sum(item.records for item in found.refused) == len(records)
    named = {(item.database, item.table) for item in found.refused}
    different = {(item.database, item.table) for item in found.mirrors if not item.is_sound}
    assert different
    assert different <= named


# Golden -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("clock")
def test_retention_beside_a_verify_moves_its_begin(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, feed, base = keyed_beyond_base(spark, tmp_path, Retention(raw_messages=DAY))
    decode = making.decode_into_files
    removed: list[int] = []

    def beside(*args: Any, **options: Any) -> DecodedFiles:
        removed.append(truncated(feed, base).records)
        return decode(*args, **options)

    monkeypatch.setattr(making, "decode_into_files", beside)
    found = verified(feed)
    assert found.equal, found.mirrors
    assert found.proof_from == base.tso
    assert removed[0] > 0


def test_rows_that_landed_late_below_the_base_are_not_called_different(
    clock: type[LandingClock], feed: Feed
) -> None:
    """The change log is whole, so it places the row; the records do not tell it from a replay."""
    upstream, changefeed = keyed_upstream()
    feed = feed.having(retention=Retention(raw_messages=DAY))
    late = synced_without_an_insert(feed, changefeed)
    base = feed.cut
    assert truncated(feed, base).records > 0
    clock.at += DAY
    feed.write(sent_later(changefeed, [late]))
    fill(upstream, KEYED, rows=1, seed=5)
    feed.follow_to_truth(changefeed)
    assert_not_proven(feed, "row changes of it landed late", too_many=1)
    assert truncated(feed, feed.cut).records > 0
    assert assert_clean(feed).notes()[1:] == []


def test_an_export_that_was_seeded_late_below_the_base_is_not_called_different(
    tmp_path: Path, clock: type[LandingClock], feed: Feed
) -> None:
    """The base has the mirror without the export's rows, and a rebuild would lose them."""
    upstream = plain_upstream(KEYED, rows=6)
    at = export_upstream(upstream, tmp_path / "export")
    options = FeedOptions(first_ts=at)
    changefeed = StandInChangefeed(upstream, "d", partitions=1, options=options)
    feed = feed.having(retention=Retention(raw_messages=DAY), start_ts=at)
    fill(upstream, KEYED, rows=1, seed=4)
    feed.follow(changefeed)
    assert truncated(feed, feed.cut).records > 0
    clock.at += DAY
    seed(feed.lake, str(tmp_path / "export"))
    fill(upstream, KEYED, rows=1, seed=5)
    feed.follow_to_truth(changefeed)
    said = "an export of it was seeded late, below the base cut"
    assert_not_proven(feed, said)
    with pytest.raises(LossError, match=f"d.keyed: {said}"):
        rebuild(feed.lake)


def test_a_table_that_was_left_out_of_the_base_is_not_called_different(
    clock: type[LandingClock], feed: Feed
) -> None:
    """The change log is whole, so the mirror is too; its first records are gone."""
    upstream, changefeed = keyed_upstream()
    whole = feed.having(retention=Retention(raw_messages=DAY))
    left_out = TableFilter(exclude=TableChoice(("d.keyed",)))
    feed = whole.having(tables=left_out)
    feed.follow(changefeed)
    assert truncated(feed, feed.cut).records > 0
    clock.at += DAY
    churn(upstream, steps=5)
    whole.follow_to_truth(changefeed)
    assert_not_proven(whole, "records that it was made from")
    truncated(whole, whole.cut)
    assert assert_clean(whole).notes()[1:] == []


class Straddling(StandInChangefeed):
    """Sends the first and the last row of a group in one message, and the others in the next.

    TiCDC keeps the order of the changes of one row only.
    """

    def _encode(self, events: Sequence[Event]) -> Sequence[Record]:
        if len(events) < 4:
            return super()._encode(events)
        own = super()._encode([events[0], events[-1]])
        return [*own, *super()._encode(events[1:-1])]


@pytest.mark.parametrize("key", [(), ("id",)], ids=["no key", "key"])
def test_rows_that_the_base_has_are_left_out_of_a_record_with_later_ones(
    key: tuple[str, ...], spark: SparkSession, tmp_path: Path, clock: type[LandingClock]
) -> None:
    """The records of its landing day stay; one of them has rows below and above the base."""
    columns = (column("id", "int", nullable=False), column("v", "varchar(20)"))
    upstream = upstream_of(BAG, columns, primary_key=key)
    changefeed = Straddling(
        upstream,
        "d",
        partitions=1,
        wire_format=WireFormat.OPEN_PROTOCOL,
        options=FeedOptions(dispatcher=Dispatcher.TABLE, force_replicate=True),
    )
    feed = Feed.of(spark, tmp_path, wire_format=WireFormat.OPEN_PROTOCOL)
    feed = feed.having(retention=Retention(raw_messages=DAY))
    fill(upstream, BAG, rows=2)
    feed.follow(changefeed)
    clock.at += DAY
    keys: list[Key] = []
    for number in (1001, 1002, 1003):
        with upstream.transaction() as transaction:
            keys.append(transaction.insert(BAG, {"id": str(number), "v": "a"}))
    with upstream.transaction() as transaction:
        transaction.delete(BAG, keys[0])
    deleted_ts = upstream.history[-1].commit_ts
    with upstream.transaction() as transaction:
        transaction.insert(BAG, {"id": "1004", "v": "a"})
    feed.follow(changefeed, until=deleted_ts)
    base = feed.cut
    feed.sync()
    assert truncated(feed, base).records > 0
    feed.require_truth(changefeed)
    assert assert_clean(feed).proof_from == base.tso


def test_rows_without_a_key_may_become_equal(monkeypatch: pytest.MonkeyPatch, feed: Feed) -> None:
    """In the mirror they keep their commit ts; a fold from the change log gives them one."""
    small_up_to(monkeypatch, 0)
    upstream = upstream_of(BAG, (column("id", "int"), column("v", "varchar(20)")))
    changefeed = StandInChangefeed(upstream, "d", options=FeedOptions(force_replicate=True))
    for text in ("first", "second"):
        with upstream.transaction() as transaction:
            transaction.insert(BAG, {"id": "1", "v": text})
        feed.follow(changefeed)
    upstream.alter_table(BAG, DropColumn(name="v"))
    with upstream.transaction() as transaction:
        transaction.insert(BAG, {"id": "2"})
    feed.follow(changefeed)
    feed.sync()
    feed.require_truth(changefeed)
    assert_clean(feed)


def test_a_delete_without_its_row_may_find_an_equal_one_in_a_table_without_a_key(
    feed: Feed,
) -> None:
    """The insert is in quarantine, and a DDL makes its row equal to another one."""
    upstream = upstream_of(BAG, (column("id", "int"), column("v", "varchar(20)")))
    changefeed = StandInChangefeed(upstream, "d", options=FeedOptions(force_replicate=True))
    with upstream.transaction() as transaction:
        transaction.insert(BAG, {"id": "1", "v": "refused"})
    records = list(changefeed.tick())
    refused = an_insert(records, "bag")
    feed.write([in_lz4(item) if item is refused else item for item in records])
    feed.sync()
    (key,) = upstream.rows(BAG)
    with upstream.transaction() as transaction:
        transaction.insert(BAG, {"id": "1", "v": "taken"})
    with upstream.transaction() as transaction:
        transaction.delete(BAG, key)
    feed.follow(changefeed)
    assert assert_clean(feed).notes() == []
    upstream.alter_table(BAG, DropColumn(name="v"))
    feed.follow(changefeed)
    truth = truth_rows(changefeed.truth())
    assert feed.rows() == truth
    assert_not_proven(feed, "it has no key", table="bag", too_many=1)
    with pytest.raises(LossError, match=r"d\.bag: it has no key"):
        rebuild(feed.lake)
    feed = feed.having(compression=Compression.LZ4)
    feed.sync(refold=redrive(feed.lake).refold)
    assert feed.rows() == truth
    assert feed.mirror(*BAG).unknown_deletes == 0


@pytest.mark.parametrize(
    ("variant", "name", "tables"),
    [
        ("simple-json", "shop", THREE_OF_THE_SHOP),
        *(pytest.param(*folder, (), marks=pytest.mark.slow) for folder in ALL_FOLDERS),
    ],
    ids=lambda value: value if isinstance(value, str) else "three" if value else "all",
)
def test_what_real_encoders_sent_is_verified(
    variant: str,
    name: str,
    tables: tuple[tuple[str, str], ...],
    spark: SparkSession,
    tmp_path: Path,
    golden_dir: Callable[..., Path],
) -> None:
    scenario = Scenario(golden_dir(variant, name))
    feed = feed_of(spark, tmp_path, scenario, tables)
    for _ in range(2):
        feed.sync(max_records=len(scenario.records) // 2 + 1)
    assert assert_clean(feed).records == len(scenario.records)
