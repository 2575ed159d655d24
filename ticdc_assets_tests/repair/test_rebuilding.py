"""Rebuild: a new generation takes the place of the old one by one append, or nothing changes."""

import json
import shutil
from collections.abc import Callable
from copy import copy, deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from ticdc_assets.base.errors import BusyError, LossError, NotFoundError, PrerequisiteError
from ticdc_assets.config import ClaimCheck, Retention, TableChoice
from ticdc_assets.delta.opening import latest_version
from ticdc_assets.demo.simulator.alterations import AddColumn
from ticdc_assets.demo.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.log.cuts import MirrorCut, newest_cut, read_cuts
from ticdc_assets.log.landing import landed_days
from ticdc_assets.log.quarantine import count_open, read_quarantine
from ticdc_assets.log.schema_tables import read_ddls
from ticdc_assets.repair import making, rebuilding
from ticdc_assets.repair.comparing import RowFinding
from ticdc_assets.repair.maintenance import maintain
from ticdc_assets.repair.rebuilding import Rebuild
from ticdc_assets.repair.redecoding import redecode
from ticdc_assets.repair.redriving import redrive
from ticdc_assets.repair.retention import retain
from ticdc_assets.repair.rewinding import rewind
from ticdc_assets.repair.verifying import Finding, verify
from ticdc_assets.spark.frames import delta_frame
from ticdc_assets.storage.paths import AnyPath, names_in
from ticdc_assets_tests.demo.simulator.builders import churn, fill, plain_upstream
from ticdc_assets_tests.golden import Scenario
from ticdc_assets_tests.lake.feeds import Feed, grow_cuts_older
from ticdc_assets_tests.lake.golden_lakes import feed_of
from ticdc_assets_tests.lake.killing import Death, after, before, killed
from ticdc_assets_tests.repair.test_maintenance import history_texts
from ticdc_assets_tests.s3 import S3Lake

pytestmark = pytest.mark.spark

KEYED, BAG = ("d", "keyed"), ("d", "bag")


class Life:
    """An upstream with a keyed table that is altered and a bag, synced twice."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        *,
        with_refused: bool = True,
        root: AnyPath | None = None,
    ) -> None:
        self.folder = folder
        self.syncs = 0
        self.upstream = plain_upstream(KEYED, bags=[BAG], rows=9)
        self.changefeed = StandInChangefeed(
            self.upstream, "d", partitions=2, options=FeedOptions(force_replicate=True)
        )
        self.feed = Feed.of(spark, folder)
        self.feed = replace(
            self.feed,
            root=root or self.feed.root,
            changefeed=replace(self.feed.changefeed, history=TableChoice(("d.keyed",))),
        )
        self.sync()
        added = column("n", "int", nullable=False, default="7")
        self.upstream.alter_table(KEYED, AddColumn(column=added))
        if with_refused:
            self.feed.write([self.changefeed.inject(1, key=None, value=b"{")])
        self.more()

    def copied(self, folder: Path) -> "Life":
        """Return the same life in another folder, to be gone on with there."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        life = copy(self)
        life.upstream, life.changefeed = deepcopy((self.upstream, self.changefeed))
        life.feed = self.feed.moved(folder)
        return life

    def more(self) -> None:
        churn(self.upstream, steps=12, seed=self.syncs, tables=[KEYED])
        fill(self.upstream, BAG, rows=2, seed=3)
        self.sync()

    def sync(self) -> None:
        self.syncs += 1
        self.feed.follow(self.changefeed)

    def go_on(self) -> None:
        """Let rows change upstream, sync, and require that all of them are there."""
        self.more()
        self.feed.require_truth(self.changefeed)
        assert verify(self.feed.lake).equal


def equal_rebuild(feed: Feed) -> Rebuild:
    """Rebuild, and require that the new tables equal the old ones."""
    rebuilt = feed.rebuild()
    assert rebuilt.verification is not None
    assert rebuilt.verification.equal, rebuilt.lines()
    return rebuilt


@pytest.fixture(scope="module")
def lived(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Life:
    """A life of which each test has a copy."""
    return Life(spark, tmp_path_factory.mktemp("life"))


@pytest.fixture
def life(lived: Life, tmp_path: Path) -> Life:
    return lived.copied(tmp_path)


def test_a_rebuild_puts_an_equal_generation_in_place_and_syncs_go_on_in_it(life: Life) -> None:
    feed = life.feed
    old, rows = feed.cut, feed.rows()
    moment = read_cuts(feed.paths)[0].tso
    past = feed.rows_as_of(moment)
    counts = count_open(feed.paths)
    rebuilt = equal_rebuild(feed)
    assert rebuilt.losses == ()
    new = feed.cut
    assert rebuilt.cut == new
    assert (new.number, new.tso) == (old.number + 1, old.tso)
    assert new.generation != old.generation
    assert feed.paths.generation == new.generation
    assert sorted(names_in(feed.paths.generations)) == sorted([old.generation, new.generation])
    assert "by_name.json" not in names_in(feed.paths.of(new.generation).generation_folder)
    assert feed.rows() == rows
    assert feed.read(*KEYED).count() == feed.mirror(*KEYED).rows
    assert counts == count_open(feed.paths)
    assert [item["reason"] for item in read_quarantine(feed.paths)] == ["invalid_json"]
    # The file for other programs names the new folders.
    named = json.loads(feed.paths.by_name.read_bytes())
    assert all(
        item["path"].startswith(f"generations/{new.generation}/") for item in named["mirrors"]
    )
    assert all((feed.paths.home / item["path"]).is_dir() for item in named["mirrors"])
    # Older cuts are still there, and so are their rows.
    (kept,) = [cut for cut in read_cuts(feed.paths) if cut.number == old.number]
    assert [item.generation for item in kept.mirrors] == [old.generation] * 2
    assert {item.path(feed.paths).parent.parent.name for item in kept.mirrors} == {old.generation}
    assert all(
        delta_frame(feed.lake.spark, *item.at(feed.lake.paths)).count() == item.rows
        for item in kept.mirrors
    )
    history = feed.mirror(*KEYED)
    assert history.history_version is not None
    assert history.history_path(feed.paths).parent.parent.name == new.generation

    life.go_on()
    assert feed.cut.generation == new.generation
    # A moment before the rebuild is read from the change log.
    assert feed.rows_as_of(moment) == past
    rebuilt = equal_rebuild(feed)
    life.go_on()


DEATHS: list[tuple[Death, bool]] = [
    (before(making, "decode_into_files"), False),
    (after(making, "append_changes"), False),
    (before(making, "register_new"), False),
    (before(making, "apply_changes"), False),
    (after(making, "apply_changes"), False),
    (before(making, "compare_new"), False),
    (before(rebuilding, "compared"), False),
    (before(rebuilding, "publish"), False),
    (after(rebuilding, "publish"), True),
    (before(rebuilding, "remove_tree"), True),
]
"""Where a rebuild is killed, and whether its generation is published then."""

BY_DAY = (1, 4, 7, 8)
"""A log without mirrors, mirrors, all of it, and all of it published."""

IN_A_STORE = (7, 8, 9)
"""Those around the swap."""


def killed_rebuild(life: Life, death: Death, is_published: bool) -> None:
    """Kill a rebuild, and require that nothing of it is seen but all of it or nothing."""
    feed = life.feed
    old, rows = feed.cut, feed.rows()
    with pytest.MonkeyPatch.context() as patch:
        # What cleans up behind an error does not run where a process dies.
        patch.setattr(making, "remove_unpublished", lambda _: None)
        with killed(death):
            feed.rebuild()
    assert (feed.cut.generation != old.generation) is is_published
    assert feed.rows() == rows
    life.go_on()
    # The next one removes what is left, and so does a verify.
    feed.rebuild()
    named = {cut.generation for cut in read_cuts(feed.paths)}
    assert set(names_in(feed.paths.generations)) == named
    maintain(feed.lake)
    for older in named - {feed.paths.generation}:
        folder = feed.paths.of(older).generation_folder
        assert {*names_in(folder)} <= {"histories", "mirrors"}
    life.go_on()


def deaths(*numbers: int) -> pytest.MarkDecorator:
    """Return the parameters of these deaths; all but those of `BY_DAY` are left to the night."""
    return pytest.mark.parametrize(
        ("death", "is_published"),
        [
            pytest.param(*DEATHS[it], id=str(it), marks=() if it in BY_DAY else pytest.mark.slow)
            for it in numbers
        ],
    )


@deaths(*range(len(DEATHS)))
def test_a_killed_rebuild_leaves_the_old_generation_or_the_new_one(
    life: Life, death: Death, is_published: bool
) -> None:
    killed_rebuild(life, death, is_published)


@pytest.mark.s3
@deaths(*IN_A_STORE)
def test_so_does_one_in_a_store(
    spark: SparkSession,
    s3_lake: S3Lake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    death: Death,
    is_published: bool,
) -> None:
    for name, value in s3_lake.secrets.items():
        monkeypatch.setenv(name, value)
    killed_rebuild(Life(spark, tmp_path, root=s3_lake.path), death, is_published)


def test_readers_have_the_old_mirrors_until_the_new_ones_are_published(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = life.feed
    rows = feed.rows()
    held = feed.read(*KEYED)
    count = held.count()
    seen: list[object] = []
    publish_cut = rebuilding.publish

    def publish_after_a_look(*arguments: object) -> None:
        seen.append(feed.rows())
        seen.append(held.count())
        publish_cut(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(rebuilding, "publish", publish_after_a_look)
    stale = feed.paths
    feed.rebuild()
    assert seen == [rows, count]
    # Who holds rows of the old generation reads on in it.
    assert held.count() == count
    assert feed.rows() == rows
    # Nobody mixes the tables of the two.
    with pytest.raises(BusyError, match="rebuilt just now: try again"):
        newest_cut(stale)


def test_a_planted_difference_in_one_cell_is_told_and_gone_afterwards(life: Life) -> None:
    feed = life.feed
    rows = feed.rows()
    mirror = feed.mirror(*KEYED)
    number = feed.read(*KEYED).first().id
    path = str(mirror.path(feed.paths))
    DeltaTable.forPath(feed.spark, path).update(f"id = {number}", {"v": "'planted'"})
    version = latest_version(mirror.path(feed.paths))
    assert version is not None
    feed.publish(
        *(replace(item, version=version) if item == mirror else item for item in feed.cut.mirrors)
    )
    assert feed.rows() != rows
    rebuilt = feed.rebuild()
    assert rebuilt.verification is not None
    found = {item.table: item for item in rebuilt.verification.mirrors}
    assert found["bag"].finding is Finding.EQUAL
    assert found["keyed"].finding is Finding.DIFFERENT
    (row,) = found["keyed"].examples
    assert (row.finding, row.key) == (RowFinding.CHANGED, {"id": str(number)})
    (cell,) = row.columns
    assert (cell.name, cell.mirror) == ("v", "planted")
    assert any(line.startswith("d.keyed: different; rows: 1 changed") for line in rebuilt.lines())
    assert not any("planted" in line for line in rebuilt.lines())
    assert feed.rows() == rows
    life.go_on()


def test_a_planted_difference_in_a_history_is_told_and_gone_afterwards(life: Life) -> None:
    feed = life.feed = life.feed.having(history=TableChoice(("d.*",)))
    life.more()
    kept = {item.table: history_texts(feed, item) for item in feed.cut.mirrors}
    planted: list[MirrorCut] = []
    for mirror in feed.cut.mirrors:
        path = mirror.history_path(feed.paths)
        rows = delta_frame(feed.spark, *mirror.history_at(feed.paths))
        current = rows.where("_ticdc_valid_to IS NULL AND id IS NOT NULL").first()
        own = f"id = {current.id} AND _ticdc_valid_from = {current['_ticdc_valid_from']}"
        # In the table without a key: how one version began. In the other: what a row had.
        change = {"_ticdc_op": "'delete'"} if mirror.table == "bag" else {"v": "'planted'"}
        DeltaTable.forPath(feed.spark, str(path)).update(own, change)
        planted.append(replace(mirror, history_version=latest_version(path)))
    feed.publish(*planted)
    proof = verify(feed.lake)
    assert not proof.equal
    found = {item.table: item for item in proof.mirrors}
    for item in found.values():
        assert (item.finding, item.mirror, item.counts.total) == (
            Finding.DIFFERENT,
            item.rebuilt,
            0,
        )
    assert (found["bag"].history_counts.missing, found["bag"].history_counts.too_many) == (1, 1)
    # The version's beginning and its end have the row.
    counts = found["keyed"].history_counts
    assert (counts.missing, counts.too_many) == (2, 2)
    keys = {item.key["id"] for item in found["keyed"].history_examples}
    assert len(keys) == 1
    rebuilt = feed.rebuild()
    told = (
        "d.keyed: different; beginnings and ends of versions in the history: 2 missing, 2 too many"
    )
    assert told in rebuilt.lines()
    assert {item.table: history_texts(feed, item) for item in feed.cut.mirrors} == kept
    life.go_on()


def test_quarantine_stays_and_lost_records_are_named_and_only_published_if_accepted(
    spark: SparkSession, tmp_path: Path, golden_dir: Callable[..., Path]
) -> None:
    scenario = Scenario(golden_dir("options", "open-claim-check"))
    storage = tmp_path / "storage"
    storage.mkdir()
    claim_check = ClaimCheck(location=str(storage), raw_value=False)
    feed = feed_of(spark, tmp_path, scenario, claim_check=claim_check)
    feed.sync()
    waiting, rows = feed.cut.quarantined, feed.rows()
    assert waiting > 0
    shutil.copytree(scenario.folder / "claim-check", storage, dirs_exist_ok=True)
    # They can be decoded now, but the cut does not have them: the rebuild leaves them there.
    rebuilt = equal_rebuild(feed)
    assert f"{waiting} events in quarantine can be decoded now" in "".join(rebuilt.lines())
    assert (feed.cut.quarantined, feed.rows()) == (waiting, rows)
    redrive(feed.lake)
    feed.sync()
    assert feed.cut.quarantined == 0
    cut, rows = feed.cut, feed.rows()
    feed.rebuild()
    assert feed.rows() == rows
    for file in storage.iterdir():
        file.unlink()
    cut = feed.cut
    with pytest.raises(
        LossError, match=r"are refused now \(claim_check_missing\), such as "
    ) as told:
        feed.rebuild()
    assert "--accept-losses" in str(told.value)
    assert feed.cut == cut
    assert feed.paths.generation == cut.generation
    rebuilt = feed.rebuild(accept_losses=True)
    assert rebuilt.losses
    assert feed.rows() != rows
    assert feed.cut.quarantined == waiting


def test_a_truncated_lake_is_rebuilt_from_its_base(spark: SparkSession, tmp_path: Path) -> None:
    # What is refused would keep its day.
    life = Life(spark, tmp_path, with_refused=False)
    day = timedelta(days=1)
    feed = life.feed = life.feed.having(retention=Retention(change_log=day, raw_messages=day))
    base = feed.cut
    done = maintain(feed.lake, now=datetime.now(UTC) + timedelta(days=2), margin=timedelta())
    assert done.retaining.truncation_point.tso == base.tso
    assert done.retaining.raw_truncation_point.tso == base.tso
    life.more()
    equal_rebuild(feed)
    life.go_on()
    equal_rebuild(feed)
    life.go_on()
    # The base of the next truncation is a cut of the new generation.
    maintain(feed.lake, now=datetime.now(UTC) + timedelta(days=2), margin=timedelta())
    assert names_in(feed.paths.generations) == [feed.paths.generation]
    life.go_on()
    feed.rebuild()
    life.go_on()


def test_what_is_older_than_the_landed_records_only_goes_if_that_is_accepted(
    spark: SparkSession, tmp_path: Path
) -> None:
    life = Life(spark, tmp_path, with_refused=False)
    feed = life.feed.having(retention=Retention(raw_messages=timedelta(days=1)))
    base = feed.cut
    assert retain(feed.lake, now=datetime.now(UTC) + timedelta(days=2)).records
    # The base has no history of the other table.
    feed = life.feed = feed.having(history=TableChoice(("d.*",)))
    life.more()
    cut = feed.cut
    with pytest.raises(LossError) as told:
        feed.rebuild()
    said = str(told.value)
    assert f"change_log: the changes up to {base.moment}, whose records" in said
    assert f"d.bag: the versions in its history from before {base.moment}" in said
    assert "d.keyed" not in said
    assert feed.cut == cut
    assert len(feed.rebuild(accept_losses=True).losses) == 2
    # What is gone cannot be lost again.
    assert feed.rebuild().losses == ()
    life.go_on()


def test_a_day_of_a_rebuilt_lake_is_decoded_again_with_the_schemas_of_its_base(
    spark: SparkSession, tmp_path: Path
) -> None:
    life = Life(spark, tmp_path, with_refused=False)
    day = timedelta(days=1)
    feed = life.feed = life.feed.having(retention=Retention(change_log=day, raw_messages=day))
    # The base is of another day than the records after it.
    grow_cuts_older(feed.paths, 48)
    assert retain(feed.lake).raw_truncation_point.cut is not None
    life.more()
    feed.rebuild()
    life.upstream.alter_table(KEYED, AddColumn(column=column("m", "int")))
    life.more()
    caveats = {item.table: item.caveats for item in feed.cut.mirrors}
    ddls = read_ddls(feed.paths)
    DeltaTable.forPath(spark, str(feed.paths.change_log)).delete("kind = 'ddl'")
    redecoding = redecode(feed.lake, landed_days(feed.paths))
    assert redecoding.days[0].schemas
    assert read_ddls(feed.paths) == ddls
    assert {item.table: item.caveats for item in feed.cut.mirrors} == caveats
    life.go_on()


def test_maintenance_removes_a_generation_when_no_kept_cut_names_it(life: Life) -> None:
    feed = life.feed.having(retention=Retention(cuts=timedelta(days=1)))
    old = feed.paths.generation
    feed.rebuild()
    maintain(feed.lake)
    # Its cuts are young, so its rows stay; what they were made from goes.
    assert old in names_in(feed.paths.generations)
    assert sorted(names_in(feed.paths.of(old).generation_folder)) == ["histories", "mirrors"]
    later = datetime.now(UTC) + timedelta(days=2)
    maintain(feed.lake, now=later)
    assert names_in(feed.paths.generations) == [feed.paths.generation]
    assert verify(feed.lake).equal


def test_cuts_of_before_the_rebuild_are_not_rewound_to(life: Life) -> None:
    feed = life.feed
    number = feed.cut.number
    feed.rebuild()
    with pytest.raises(NotFoundError, match="its tables were rebuilt since"):
        rewind(feed.lake, by="someone", number=number)
    life.more()
    rewind(feed.lake, by="someone", number=number + 1)
    life.go_on()


def test_a_rebuild_says_what_space_it_needs_and_refuses_where_there_is_less(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuilding, "_size", lambda *_: 10**18)
    cut = life.feed.cut
    with pytest.raises(PrerequisiteError, match=r"needs about .* MB besides the published tables"):
        life.feed.rebuild()
    assert life.feed.cut == cut
