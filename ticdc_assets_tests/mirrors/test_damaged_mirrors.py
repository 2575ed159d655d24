"""A sync that meets damage while it reads: a mirror is made again, a shared table stops it."""

import shutil
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ticdc_assets.base.errors import LakeDamagedError
from ticdc_assets.config import TableChoice
from ticdc_assets.delta import log_reading
from ticdc_assets.delta.commits import newest_version
from ticdc_assets.delta.delta_files import live_files
from ticdc_assets.demo.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.log.damage import find_damage
from ticdc_assets.mirrors.standing import Outcome
from ticdc_assets.mirrors.versions import rows_as_stored
from ticdc_assets.spark import executing
from ticdc_assets.spark.driver import Session
from ticdc_assets.spark.session import LazySession
from ticdc_assets.storage.lake_paths import MIRRORS
from ticdc_assets_tests.demo.simulator.builders import fill, plain_upstream
from ticdc_assets_tests.lake.feeds import Feed, keep_files_apart, small_up_to

ONE, OTHER, BAG = ("d", "one"), ("d", "other"), ("d", "bag")


@dataclass
class Life:
    """A feed of three tables, one of them without a key."""

    feed: Feed
    upstream: Upstream
    changefeed: StandInChangefeed
    seed: int = 0

    @classmethod
    def of(cls, spark: Session, folder: Path, *, history: tuple[str, ...] = ()) -> "Life":
        upstream = plain_upstream(ONE, OTHER, bags=[BAG])
        feed = Feed.of(spark, folder)
        feed = feed.having(history=TableChoice(history))
        life = cls(
            feed,
            upstream,
            StandInChangefeed(
                upstream, "d", partitions=2, options=FeedOptions(force_replicate=True)
            ),
        )
        for _ in range(3):
            life.change(ONE, OTHER, BAG)
            feed.sync()
        assert find_damage(feed.paths) == []
        return life

    def copied(self, folder: Path) -> "Life":
        """Return the same life in another folder, to be gone on with there."""
        shutil.copytree(self.feed.root.parent, folder, dirs_exist_ok=True)
        upstream, changefeed = deepcopy((self.upstream, self.changefeed))
        feed = self.feed.moved(folder)
        return replace(self, feed=feed, upstream=upstream, changefeed=changefeed)

    def change(self, *names: tuple[str, str]) -> None:
        for name in names:
            self.seed += 1
            fill(self.upstream, name, rows=6, seed=self.seed)
            with self.upstream.transaction() as transaction:
                for row in list(self.upstream.rows(name))[:2]:
                    transaction.delete(name, row)
        self.feed.write(self.changefeed.tick())

    def table(self, name: tuple[str, str]) -> Path:
        return Path(str(self.feed.mirror(*name).path(self.feed.paths)))

    def require_truth(self) -> None:
        self.feed.require_truth(self.changefeed)
        assert find_damage(self.feed.paths) == []


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Life:
    """A life of which each test has a copy."""
    return Life.of(LazySession(), tmp_path_factory.mktemp("life"))


@pytest.fixture
def life(lived: Life, tmp_path: Path) -> Life:
    return lived.copied(tmp_path)


def commits(table: Path) -> list[Path]:
    return sorted((table / "_delta_log").glob("*.json"))


def empty_log(table: Path) -> None:
    for path in (table / "_delta_log").iterdir():
        path.unlink()


def tear_middle(table: Path) -> None:
    commits(table)[1].write_bytes(commits(table)[1].read_bytes()[:-30])


def garbage_behind(table: Path) -> None:
    number = int(commits(table)[-1].stem)
    (table / "_delta_log" / f"{number + 1:020}.json").write_text("{")


def lose_file(table: Path) -> None:
    live_files(table)[0].path.unlink()


def tear_file(table: Path) -> None:
    path = live_files(table)[0].path
    path.write_bytes(path.read_bytes()[:-50])


def rot(table: Path) -> None:
    """Let the pages of each file be other bytes than were written, under a sound footer."""
    for file in live_files(table):
        content = file.path.read_bytes()
        end = len(content) - int.from_bytes(content[-8:-4], "little") - 8
        file.path.write_bytes(content[:4] + b"\xff" * (end - 4) + content[end:])


DAMAGES: dict[str, Callable[[Path], object]] = {
    "log emptied": empty_log,
    "log gone": lambda table: shutil.rmtree(table / "_delta_log"),
    "table gone": shutil.rmtree,
    "end of the log lost": lambda table: commits(table)[-1].unlink(),
    "newest commit empty": lambda table: commits(table)[-1].write_bytes(b""),
    "commit lost in the middle": lambda table: commits(table)[1].unlink(),
    "commit torn in the middle": tear_middle,
    "garbage behind": garbage_behind,
    "file lost": lose_file,
    "file torn": tear_file,
    "pages rotten": rot,
}


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        *((damage, ONE) for damage in DAMAGES),
        # Logs are read alike whatever the key; rows are found otherwise without one.
        *((damage, BAG) for damage in ("log emptied", "file lost", "pages rotten")),
    ],
    ids=lambda item: item if isinstance(item, str) else item[1],
)
def test_a_mirror_is_folded_again_by_the_sync_that_reads_it(
    life: Life, damage: str, name: tuple[str, str]
) -> None:
    before = {item.mirror_id: item for item in life.feed.cut.mirrors}
    DAMAGES[damage](life.table(name))
    life.change(ONE, OTHER, BAG)
    applying = life.feed.sync()
    (told,) = applying.repaired
    assert told.startswith(f"the mirror of d.{name[1]} of changefeed 'feed' was damaged: ")
    assert "1 of them made again because they were damaged" in applying.reason
    for item in life.feed.cut.mirrors:
        assert (item.mode == "fold") is ((item.database, item.table) == name)
        # A version that a cut names is never another one.
        assert item.version > before[item.mirror_id].version
    life.require_truth()
    assert life.feed.sync().outcome is Outcome.UNCHANGED


@pytest.mark.parametrize(
    "damage", ["log emptied", "log gone", "end of the log lost", "garbage behind"]
)
def test_a_log_with_another_end_is_noticed_without_a_change_of_its_mirror(
    life: Life, damage: str
) -> None:
    DAMAGES[damage](life.table(OTHER))
    life.change(ONE)
    (told,) = life.feed.sync().repaired
    assert told.startswith("the mirror of d.other of")
    life.require_truth()


@pytest.mark.parametrize("damage", ["commit lost in the middle", "file lost", "file torn"])
def test_other_damage_of_a_mirror_that_is_not_read_stays(life: Life, damage: str) -> None:
    DAMAGES[damage](life.table(OTHER))
    life.change(ONE)
    assert life.feed.sync().repaired == ()
    (error,) = find_damage(life.feed.paths)
    assert error.table == "the mirror of d.other of changefeed 'feed'"
    assert "`ticdc-assets backfill feed --table d.other`" in error.repair
    with pytest.raises(LakeDamagedError, match=r"the mirror of d\.other"):
        life.feed.rows()
    # What the repair does.
    life.feed.sync(refold=[OTHER])
    life.require_truth()


def test_a_deletion_vector_that_is_lost_is_told_where_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_up_to(monkeypatch, 0)
    keep_files_apart(monkeypatch)
    life = Life.of(LazySession(), tmp_path)
    table = life.table(ONE)
    for file in table.glob("*.bin"):
        file.unlink()
    with pytest.raises(LakeDamagedError, match=r"deletion.vector.* is missing"):
        life.feed.rows()
    life.change(ONE)
    (told,) = life.feed.sync().repaired
    assert "the mirror of d.one" in told
    life.require_truth()


@pytest.mark.parametrize("damage", ["log emptied", "end of the log lost", "file lost"])
def test_a_history_is_folded_again_with_its_mirror(tmp_path: Path, damage: str) -> None:
    life = Life.of(LazySession(), tmp_path, history=("d.one",))
    history = Path(str(life.feed.paths.history(life.feed.mirror(*ONE).mirror_id)))
    rows = life.feed.mirror(*ONE).history_rows
    assert rows is not None
    DAMAGES[damage](history)
    life.change(ONE)
    (told,) = life.feed.sync().repaired
    assert told.startswith("the history of d.one of")
    life.require_truth()
    assert (life.feed.mirror(*ONE).history_rows or 0) > rows


def test_damage_of_what_all_are_made_from_stops_the_sync(life: Life) -> None:
    lose_file(Path(str(life.feed.paths.change_log)))
    number = life.feed.cut.number
    life.change(ONE)
    # A change is read from the newest files; a fold reads them all.
    with pytest.raises(LakeDamagedError) as told:
        life.feed.sync(refold=[ONE])
    assert told.value.table == "change_log of changefeed 'feed'"
    assert "is missing" in told.value.finding
    assert "`ticdc-assets rebuild feed`" in told.value.repair
    assert life.feed.cut.number == number


def test_a_sync_reads_the_logs_of_mirrors_that_it_writes_alone(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[object] = set()
    read = log_reading.existing_state

    def reading(table: Path, version: int | None = None) -> object:
        if table.parent.name == MIRRORS:
            seen.add(table)
        return read(table, version)

    monkeypatch.setattr(log_reading, "existing_state", reading)
    assert life.feed.sync().outcome is Outcome.UNCHANGED
    assert seen == set()
    life.change(ONE)
    life.feed.sync()
    assert seen == {life.table(ONE)}


@pytest.mark.spark
@pytest.mark.parametrize("damage", ["file lost", "pages rotten"])
def test_what_workers_of_spark_read_is_told_alike(
    spark: SparkSession, life: Life, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    life.feed = replace(life.feed, spark=spark)
    DAMAGES[damage](life.table(ONE))
    life.change(ONE)
    with monkeypatch.context() as patch:
        patch.setattr(executing, "INLINE_ROWS", -1)
        (told,) = life.feed.sync().repaired
    assert "the mirror of d.one" in told
    life.require_truth()


@pytest.mark.spark
def test_a_mirror_with_features_of_another_program_is_refused(
    spark: SparkSession, life: Life
) -> None:
    paths, mirror = life.feed.paths, life.feed.mirror(*ONE)
    table = mirror.path(paths)
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.checkpointPolicy' = 'v2')")
    foreign = replace(mirror, version=newest_version(table))
    with pytest.raises(LakeDamagedError, match="another program gave it v2Checkpoint"):
        rows_as_stored(*foreign.at(paths))
    assert rows_as_stored(*mirror.at(paths)).count == mirror.rows
