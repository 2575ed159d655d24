"""Maintenance: the same rows in fewer files, and every kept cut as readable as before."""

import os
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from ticdc_assets.base.errors import LakeDamagedError, UnfinishedError
from ticdc_assets.base.isolation import Failures
from ticdc_assets.config import Retention, TableChoice
from ticdc_assets.delta import files
from ticdc_assets.delta.appending import append_files, write_table
from ticdc_assets.delta.commits import newest_version
from ticdc_assets.delta.control import commit_metadata, read_rows
from ticdc_assets.delta.delta_files import file_of
from ticdc_assets.delta.lake import Lake
from ticdc_assets.delta.opening import open_table
from ticdc_assets.demo.simulator.changefeed import StandInChangefeed
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.log.change_files import CHANGE_LOG_SCHEMA
from ticdc_assets.log.cuts import Cut, MirrorCut, append_cut, read_cuts
from ticdc_assets.log.damage import require_ends
from ticdc_assets.log.landing_files import RAW_SCHEMA
from ticdc_assets.log.quarantine import read_quarantine
from ticdc_assets.log.seed_landing import SNAPSHOT_SCHEMA
from ticdc_assets.log.seeds import APPLICATION as SEEDED
from ticdc_assets.mirrors import file_fates, table_writing
from ticdc_assets.mirrors.standing import Outcome
from ticdc_assets.mirrors.table_writing import mirror_properties
from ticdc_assets.reading.mirrors import published_table
from ticdc_assets.repair import maintenance
from ticdc_assets.repair.maintenance import (
    clean_logs,
    clean_shared_logs,
    join_new_files,
    maintain,
    optimize_mirrors,
    small_together,
)
from ticdc_assets.repair.rewriting import Rewriter
from ticdc_assets.repair.verifying import count_keys
from ticdc_assets.spark.frames import delta_frame
from ticdc_assets.spark.session import LazySession
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets_tests.delta.libraries import opened
from ticdc_assets_tests.demo.simulator.builders import PLAIN_COLUMNS, churn, fill, plain_upstream
from ticdc_assets_tests.golden import Rows
from ticdc_assets_tests.lake.feeds import (
    Feed,
    grow_cuts_older,
    keep_files_apart,
    small_up_to,
)
from ticdc_assets_tests.lake.killing import before, killed
from ticdc_assets_tests.lake.places import named_table
from ticdc_assets_tests.statuses import cut as made_up_cut
from ticdc_assets_tests.statuses import mirror as mirror_of_cut
from ticdc_assets_tests.statuses import publish_with_tables

NAMES = (("d", "many"), ("d", "few"))


@pytest.mark.parametrize(
    ("retention", "hours"),
    [
        (Retention(cuts=timedelta(hours=1)), 7 * 24 + 1),
        (Retention(cuts=timedelta(days=30)), 60 * 24),
        (Retention(cuts=timedelta(days=1), change_log=timedelta(days=90)), 180 * 24),
        (Retention(cuts=timedelta(days=9999)), 3650 * 24),
    ],
)
def test_a_vacuum_by_hand_keeps_what_configured_cuts_need(retention: Retention, hours: int) -> None:
    properties = mirror_properties(retention)
    assert properties["delta.deletedFileRetentionDuration"] == f"interval {hours} hours"


def test_where_cuts_are_kept_for_ever_nothing_goes() -> None:
    assert set(mirror_properties(Retention(cuts=None)).values()) == {"interval 3650 days"}


def logged(table: Path, versions: int, *, checkpoints: tuple[int, ...]) -> Path:
    """Make a table of so many versions with checkpoints, and return its log."""
    for version in range(versions):
        write_table(table, pa.table({"n": [version]}), overwrite=False, metadata={})
        if version in checkpoints:
            DeltaTable(str(table)).create_checkpoint()
    return table / "_delta_log"


def test_a_log_is_cut_at_a_whole_checkpoint(tmp_path: Path) -> None:
    log = logged(tmp_path / "t", 15, checkpoints=(5, 10))
    (log / f"{14:020}.checkpoint.0000000001.0000000002.parquet").touch()
    (log / f"{4:020}.crc").touch()
    assert maintenance._clean_log(tmp_path / "t", 4) == 0
    assert maintenance._clean_log(tmp_path / "t", 9) == 6
    assert min(path.name for path in log.glob("*.json")) == f"{5:020}.json"
    assert maintenance._clean_log(tmp_path / "t", 14) == 6
    assert (log / "_last_checkpoint").exists()
    assert len(read_rows(tmp_path / "t")) == 15


@pytest.mark.parametrize("damage", ["torn", "rotten"])
@pytest.mark.parametrize("name", ["mirrors/7-0", "change_log"])
def test_a_log_stays_that_a_broken_checkpoint_would_stand_for(
    name: str, damage: str, tmp_path: Path
) -> None:
    paths = LakePaths(root=tmp_path, changefeed="feed")
    for table in ("mirrors/7-0", "mirrors/8-0", "change_log"):
        logged(
            named_table(paths, table), 8, checkpoints=(5,) if table in ("mirrors/8-0", name) else ()
        )
    mirrors = (
        mirror_of_cut("seven", mirror_id="7-0", version=7),
        mirror_of_cut("eight", mirror_id="8-0", version=7),
    )
    later = datetime.now(UTC) + timedelta(hours=1)
    append_cut(paths, made_up_cut(published_at=later, mirrors=mirrors))
    log = named_table(paths, name) / "_delta_log"
    checkpoint = log / f"{5:020}.checkpoint.parquet"
    content = checkpoint.read_bytes()
    half = len(content) // 2
    checkpoint.write_bytes(
        content[:-50] if damage == "torn" else content[:4] + bytes(half) + content[4 + half :]
    )
    before = sorted(log.glob("*.json"))
    failures = Failures("maintenance")
    if "/" in name:
        assert clean_logs(paths, failures, kept=timedelta()) == 5
        assert "is damaged" in failures.reasons["shop.seven"]
    else:
        with pytest.raises(LakeDamagedError, match="change_log"):
            clean_logs(paths, failures, kept=timedelta())
    assert sorted(log.glob("*.json")) == before


@pytest.mark.parametrize("name", ["landings", "change_log"])
def test_logs_of_shared_tables_stay_short_unless_another_program_wrote(
    name: str, tmp_path: Path
) -> None:
    """A run that follows commits to them every few seconds."""
    paths = LakePaths(root=tmp_path, changefeed="feed")
    table = named_table(paths, name)
    log = table / "_delta_log"
    rows = pa.table({"number": pa.array([1], pa.int64())})
    for number in range(25):
        write_table(table, rows, overwrite=True, metadata={"number": number})
    write_deltalake(str(table), rows, mode="append")
    assert clean_shared_logs(paths, kept=timedelta()) == 0
    write_table(table, rows, overwrite=True, metadata={"number": 25})
    assert clean_shared_logs(paths) == 0
    assert clean_shared_logs(paths, kept=timedelta()) == 20
    assert min(log.glob("*.json")).name == f"{20:020}.json"
    assert commit_metadata(table) == {"number": 25}


def test_logs_are_cleaned_before_there_is_a_cut(tmp_path: Path) -> None:
    paths = LakePaths(root=tmp_path, changefeed="feed")
    logs = [
        logged(table, 8, checkpoints=(5,))
        for table in (paths.raw_messages, paths.landings, paths.change_log)
    ]
    assert clean_logs(paths, Failures("maintenance")) == 0
    for path in tmp_path.rglob("*.json"):
        os.utime(path, (0, 0))
    assert clean_logs(paths, Failures("maintenance")) == 15
    assert {min(log.glob("*.json")).name for log in logs} == {f"{5:020}.json"}


def test_a_lake_is_not_maintained_whose_cuts_fell_back(tmp_path: Path) -> None:
    """Mirrors that only lost cuts name would be taken for those of dropped tables."""
    paths = LakePaths(root=tmp_path, changefeed="feed")
    require_ends(paths)
    for number in (1, 2):
        publish_with_tables(paths, made_up_cut(number=number))
        require_ends(paths)
    lose_newest_commit(paths.cuts)
    with pytest.raises(LakeDamagedError, match=r"cuts .* the end of its log is missing"):
        require_ends(paths)
    # What is published next is named there.
    publish_with_tables(paths, made_up_cut(number=2))
    require_ends(paths)


def test_a_lake_is_not_maintained_whose_landed_exports_fell_back(tmp_path: Path) -> None:
    paths = LakePaths(root=tmp_path, changefeed="feed")
    write_table(paths.raw_messages, RAW_SCHEMA.empty_table(), overwrite=False, metadata={})
    for number in (1, 2):
        for table, schema in (
            (paths.snapshot_rows, SNAPSHOT_SCHEMA),
            (paths.change_log, CHANGE_LOG_SCHEMA),
        ):
            append_files(table, [], schema, app_id=SEEDED, version=number)
    require_ends(paths)
    lose_newest_commit(paths.snapshot_rows)
    with pytest.raises(LakeDamagedError, match=r"snapshot_rows .* the end of its log is missing"):
        require_ends(paths)


def lose_newest_commit(table: Path) -> None:
    newest = newest_version(table)
    for entry in (table / "_delta_log").glob(f"{newest:020}.*"):
        entry.unlink()


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let syncs write files of changes apart, and maintenance join a few."""
    small_up_to(monkeypatch, 0)
    keep_files_apart(monkeypatch)
    monkeypatch.setattr(maintenance, "FEW_FILES", 2)


# With Spark -------------------------------------------------------------------------------------


def rows_of(feed: Feed, cut: Cut) -> Rows:
    return feed.rows_of(published_table(feed.lake, mirror) for mirror in cut.mirrors)


def grow_older(feed: Feed, hours: int) -> None:
    """Make everything that is there older: files, the times in Delta's logs, cuts."""
    seconds = hours * 3600
    for path in feed.paths.base.rglob("*"):
        if path.is_file():
            stat = path.stat()
            if path.suffix == ".json" and path.parent.name == "_delta_log":
                path.write_text(_EPOCH_MS.sub(lambda m: _earlier(m, seconds), path.read_text()))
            os.utime(path, (stat.st_atime - seconds, stat.st_mtime - seconds))
    grow_cuts_older(feed.paths, hours)
    for checksums in feed.paths.base.rglob("*.crc"):
        checksums.unlink()
    feed.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


_EPOCH_MS = re.compile(r'"(deletionTimestamp|modificationTime|timestamp)":([0-9]{13})')


def _earlier(match: re.Match[str], seconds: int) -> str:
    return f'"{match[1]}":{int(match[2]) - seconds * 1000}'


@pytest.mark.spark
def test_kept_cuts_stay_readable_whatever_is_removed(
    monkeypatch: pytest.MonkeyPatch, feed: Feed
) -> None:
    monkeypatch.setattr(maintenance, "FEW_FILES", 2)
    upstream = plain_upstream(*NAMES, rows=12)
    changefeed = StandInChangefeed(upstream, "d", partitions=2)
    feed = feed.having(retention=Retention(cuts=timedelta(hours=25)))
    for seed in range(4):
        if seed == 1:
            upstream.drop_table(NAMES[1])
        if seed == 2:
            # The first two write all rows again, which leaves files behind.
            small_up_to(monkeypatch, 0)
            keep_files_apart(monkeypatch)
        churn(upstream, steps=6, seed=seed)
        feed.follow(changefeed)
        grow_older(feed, 10)
    cuts = read_cuts(feed.paths)
    before = {cut.number: rows_of(feed, cut) for cut in cuts}
    assert len(before) == 4
    # Two of them are 40 and 30 hours old, two are younger than wanted.
    trial = maintain(feed.lake, dry_run=True)
    assert (trial.retaining.cuts, trial.cut) == (2, None)
    assert read_cuts(feed.paths) == cuts

    there = set(data_files(feed.paths))
    done = maintain(feed.lake, margin=timedelta())
    assert done.retaining.cuts == 2
    assert done.cut == feed.cut
    kept = read_cuts(feed.paths)
    assert [cut.number for cut in kept] == [3, 4, 5]
    assert {cut.number: rows_of(feed, cut) for cut in kept} == {
        3: before[3],
        4: before[4],
        5: before[4],
    }
    assert (kept[2].tso, kept[2].batch) == (kept[1].tso, kept[1].batch)
    # The table that was dropped is in no kept cut, and of the other one old files are gone.
    mirror = feed.cut.mirrors[0]
    assert list(feed.paths.mirror("0").parent.iterdir()) == [mirror.path(feed.paths)]
    gone = [path for path in there - set(data_files(feed.paths)) if mirror.mirror_id in path.parts]
    assert gone
    # People are told the table, not only the folder.
    title = f"mirrors/{mirror.mirror_id} ({mirror.database}.{mirror.table}): "
    assert any(line.startswith(title) for line in done.lines())
    assert min(item.after.disk_files for item in done.tables if item.after.files) > 0

    # What was compacted is continued as if nothing had been.
    assert feed.sync().outcome is Outcome.UNCHANGED
    assert feed.cut.number == 5
    churn(upstream, steps=6, seed=9)
    assert feed.follow(changefeed).outcome is Outcome.PUBLISHED
    feed.require_truth(changefeed)
    assert [mirror.mode for mirror in feed.cut.mirrors] == ["change"]

    # A cut is read whatever the age of the versions that it names.
    grow_older(feed, 24 * 40)
    assert rows_of(feed, kept[0]) == before[3]


def data_files(paths: LakePaths) -> list[Path]:
    """Return the files of mirrors but for their logs."""
    return [
        path
        for path in paths.mirror("0").parent.rglob("*")
        if path.is_file() and path.suffix in {".parquet", ".bin"} and "_delta_log" not in path.parts
    ]


def count_files(path: Path) -> int:
    table = opened(path)
    return len(table.file_uris())


@pytest.mark.spark
@pytest.mark.parametrize("join", [maintain, join_new_files])
def test_files_of_the_quarantine_become_one(
    join: Callable[[Lake], object], monkeypatch: pytest.MonkeyPatch, feed: Feed
) -> None:
    changefeed = StandInChangefeed(plain_upstream(NAMES[0]), "d", partitions=1)
    for _ in range(3):
        feed.write([*changefeed.tick(), changefeed.inject(0, key=None, value=b"{")])
        feed.sync()
    faults = read_quarantine(feed.paths)
    assert len(faults) == 3
    if join is join_new_files:
        monkeypatch.setattr(maintenance, "_MANY_FILES", 3)
    join(feed.lake)
    assert count_files(feed.paths.quarantine) == 1
    assert read_quarantine(feed.paths) == faults


def test_a_reader_of_one_row_of_a_joined_table_reads_few_rows(tmp_path: Path) -> None:
    table = tmp_path / "landings"
    for begin in (0, 300):
        rows = pa.table({"number": pa.array(range(begin, begin + 300), pa.int64())})
        write_table(table, rows, overwrite=False, metadata={"number": begin + 299})
    joining = Rewriter(spark=LazySession(), table=table, does="joining files")
    joining.join(partial(small_together, small=1 << 20, many=2))
    joined = open_table(table)
    assert joined is not None
    (file,) = joined.files
    assert pq.read_metadata(file_of(table, file)).num_row_groups == 5


def test_only_crowded_days_are_joined() -> None:
    def file(day: str, size: int, time: int) -> dict[str, object]:
        partition = {"landed_day": day}
        return {
            "path": f"{day}/{time}",
            "size": size,
            "modificationTime": time,
            "partitionValues": partition,
        }

    files = [
        *(file("2025-01-01", 10, time) for time in (3, 1, 2)),
        file("2025-01-01", 5_000, 4),
        *(file("2025-01-02", 10, time) for time in (5, 6)),
        *(file("2025-01-03", 10, time) for time in (7, 8, 9)),
    ]

    def joined(many: int, before_day: str | None = None) -> list[list[str]]:
        groups = small_together(files, small=1_000, many=many, before_day=before_day)
        return [[item["path"] for item in group] for group in groups]

    first, last = (
        [f"{day}/{time}" for time in times]
        for day, times in (("2025-01-01", (1, 2, 3)), ("2025-01-03", (7, 8, 9)))
    )
    assert joined(3) == [first, last]
    assert joined(4) == []
    assert joined(2, "2025-01-03") == [first, ["2025-01-02/5", "2025-01-02/6"]]


def test_a_full_file_is_too_large_to_be_joined_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However well its rows are compressed."""
    assert max(file_fates.JOINED_BYTES, maintenance._SMALL_BYTES) <= files.FILE_BYTES
    monkeypatch.setattr(files, "FILE_BYTES", 8 << 10)
    rows = pa.table({"n": pa.array(range(2_000), pa.int64()), "text": ["a" * 200] * 2_000})
    layout = files.FileLayout(schema=rows.schema)
    *full, last = files.write_rows(tmp_path, layout, [rows] * 20, group_rows=500)
    assert len(full) > 1
    assert min(item.size for item in full) >= 8 << 10
    assert sum(item.rows for item in (*full, last)) == 40_000


@pytest.mark.spark
@pytest.mark.usefixtures("apart")
def test_a_killed_optimize_is_finished_by_the_next(feed: Feed) -> None:
    upstream = plain_upstream(NAMES[0])
    changefeed = StandInChangefeed(upstream, "d")
    for seed in range(2):
        fill(upstream, NAMES[0], rows=5, seed=seed)
        feed.follow(changefeed)
    number, version = feed.cut.number, feed.cut.mirrors[0].version
    with killed(before(maintenance, "publish")):
        optimize_mirrors(feed.lake, Failures("maintenance"))
    table = opened(feed.paths.mirror(feed.cut.mirrors[0].mirror_id))
    assert table.version() > version
    # It left the rows as they were, so the next one publishes what it made.
    made = optimize_mirrors(feed.lake, Failures("maintenance"))
    assert made is not None
    assert made.mirrors[0].version == table.version()
    feed.require_truth(changefeed)
    fill(upstream, NAMES[0], rows=5, seed=7)
    feed.follow_to_truth(changefeed)
    made = optimize_mirrors(feed.lake, Failures("maintenance"))
    assert made is not None
    assert made.number == number + 3
    feed.require_truth(changefeed)
    # When a day is over, its small files become one, with the same rows and position.
    landed = [feed.paths.raw_messages, feed.paths.change_log]
    before_it = [(commit_metadata(path), sorted(map(repr, read_rows(path)))) for path in landed]
    assert min(map(count_files, landed)) > 1
    maintain(feed.lake, now=datetime.now(UTC) + timedelta(days=1))
    assert [count_files(path) for path in landed] == [1, 1]
    assert before_it == [
        (commit_metadata(path), sorted(map(repr, read_rows(path)))) for path in landed
    ]
    assert clean_logs(feed.paths, Failures("maintenance"), kept=timedelta()) == 0


@pytest.mark.spark
@pytest.mark.usefixtures("apart")
def test_damaged_mirrors_do_not_stop_the_others(feed: Feed) -> None:
    names = [("d", name) for name in ("dropped", "torn", "whole")]
    upstream = plain_upstream(*names)
    changefeed = StandInChangefeed(upstream, "d")
    for seed in range(3):
        if seed == 2:
            upstream.drop_table(names[0])
        for name in names[seed // 2 :]:
            fill(upstream, name, rows=5, seed=seed)
        feed.follow(changefeed)
    first, *_, last = read_cuts(feed.paths)
    for cut, name in ((first, names[0]), (last, names[1])):
        mirror = cut.mirror(*name)
        assert mirror is not None
        (*_, entry) = sorted((mirror.path(feed.paths)).rglob("0*.json"))
        entry.write_text("{")
    with pytest.raises(UnfinishedError) as told:
        maintain(feed.lake, margin=timedelta())
    assert "torn" in str(told.value)
    assert "whole" not in str(told.value)
    (torn, whole), before = feed.cut.mirrors, last.mirrors
    assert torn.version == before[0].version
    assert whole.version > before[1].version
    assert count_files(whole.path(feed.paths)) == 1
    with pytest.raises(UnfinishedError, match=r"d\.torn"):
        count_keys(feed.lake, feed.cut)
    # What is damaged is made again by the next sync that reads it.
    fill(upstream, names[1], rows=1, seed=3)
    feed.follow_to_truth(changefeed)
    assert count_keys(feed.lake, feed.cut).mirrors == 2


@pytest.mark.spark
@pytest.mark.usefixtures("apart")
def test_a_history_is_kept_for_as_long_as_its_mirror(
    monkeypatch: pytest.MonkeyPatch, feed: Feed
) -> None:
    """From its first version on; one of an older lake since the next maintenance."""
    upstream = Upstream()
    upstream.create_database("d")
    changefeed = StandInChangefeed(upstream, "d")
    retention = Retention(cuts=timedelta(days=40))
    feed = feed.having(retention=retention, soft_delete=TableChoice(("*.*",)))
    for name in NAMES:
        upstream.create_table(name, PLAIN_COLUMNS, primary_key=("id",))
        fill(upstream, name, rows=5)
        feed.write(changefeed.tick())
        with monkeypatch.context() as patch:
            if name == NAMES[0]:
                patch.setattr(table_writing, "mirror_properties", lambda _: {})
            feed.sync()
    churn(upstream, steps=6, seed=1)
    feed.follow(changefeed)
    cut, wanted = feed.cut, mirror_properties(retention).items()
    older, newer = (cut.mirror(*name) for name in NAMES)
    assert older is not None
    assert newer is not None
    assert not wanted & configuration(feed.paths.history(older.mirror_id)).items()
    assert wanted <= configuration(feed.paths.history(newer.mirror_id)).items()
    assert wanted <= configuration(feed.paths.mirror(newer.mirror_id)).items()
    versions = {item.mirror_id: history_texts(feed, item) for item in cut.mirrors}

    done = maintain(feed.lake, margin=timedelta())
    assert f"histories/{older.mirror_id}" in {item.name for item in done.tables}
    made = done.cut
    assert made is not None
    for item in made.mirrors:
        path = feed.paths.history(item.mirror_id)
        assert wanted <= configuration(path).items()
        table = opened(path)
        assert (table.version(), len(table.file_uris())) == (item.history_version, 1)
        assert history_texts(feed, item) == versions[item.mirror_id]
    assert {item.mirror_id: history_texts(feed, item) for item in cut.mirrors} == versions
    assert optimize_mirrors(feed.lake, Failures("maintenance")) is None

    # And it is continued from there.
    churn(upstream, steps=6, seed=9)
    feed.follow(changefeed)
    current = {
        (item.database, item.table): sum(
            '"_ticdc_valid_to":null' in x for x in history_texts(feed, item)
        )
        for item in feed.cut.mirrors
    }
    assert current == {name: found.total() for name, found in feed.rows().items()}


def configuration(path: Path) -> dict[str, str | None]:
    table = opened(path)
    return table.metadata().configuration


def history_texts(feed: Feed, mirror: MirrorCut) -> list[str]:
    return sorted(
        row["value"]
        for row in delta_frame(feed.lake.spark, *mirror.history_at(feed.lake.paths))
        .selectExpr("to_json(struct(*), map('ignoreNullFields', 'false')) as value")
        .collect()
    )
