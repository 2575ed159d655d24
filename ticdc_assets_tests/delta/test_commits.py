"""Commits: only of files that are there, each found by its own id, whatever others commit."""

import copy
import errno
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta.tables import DeltaTable as SparkTable
from deltalake import CommitProperties, DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from ticdc_assets.base.errors import LakeDamagedError
from ticdc_assets.base.isolation import Failures
from ticdc_assets.config import Retention, TableChoice
from ticdc_assets.delta import committing
from ticdc_assets.delta.appending import BY_LANDING_DAY, append_files, write_table
from ticdc_assets.delta.commits import foreign_changes, newest_version, read_commit, same_rows_at
from ticdc_assets.delta.committing import NotThereError, require_there
from ticdc_assets.delta.control import commit_metadata, read_rows
from ticdc_assets.delta.delta_files import UNNAMED_KEPT, removable
from ticdc_assets.delta.files import FileLayout, WrittenFile
from ticdc_assets.delta.log_reading import log_state, versions_after
from ticdc_assets.delta.opening import open_table
from ticdc_assets.demo.simulator.alterations import AddColumn
from ticdc_assets.demo.simulator.changefeed import StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.log import decoding
from ticdc_assets.log.cuts import MirrorCut, Mode, append_cut
from ticdc_assets.log.decoding import DecodedFiles, decode_new, decoded_position
from ticdc_assets.mirrors import applying as mirrors
from ticdc_assets.mirrors import mirror_making
from ticdc_assets.mirrors.table_writing import TableWriter
from ticdc_assets.repair.maintenance import maintain, vacuum
from ticdc_assets.repair.retention import retain
from ticdc_assets.repair.verifying import Finding, verify
from ticdc_assets.spark import executing
from ticdc_assets.spark.frames import delta_frame
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets_tests.demo.simulator.builders import churn, fill, upstream_of
from ticdc_assets_tests.lake.feeds import Feed, keep_files_apart, treat_as_large, truth_rows
from ticdc_assets_tests.lake.killing import Killed, before
from ticdc_assets_tests.lake.places import named_table
from ticdc_assets_tests.statuses import cut as made_up_cut
from ticdc_assets_tests.statuses import mirror as mirror_of_cut
from ticdc_assets_tests.statuses import write_tables

T = ("d", "t")
SCHEMA = pa.schema([("batch", pa.int64()), ("landed_day", pa.date32())])


def written(table: Path, rows: int = 3) -> WrittenFile:
    """Return a file as a worker writes it."""
    values = pa.table({"batch": pa.array(range(rows), pa.int64())})
    writer = FileLayout(schema=values.schema, partition={"landed_day": "2026-01-02"}).writer(table)
    writer.write(values)
    return writer.close()


def append(table: Path, files: list[WrittenFile], version: int) -> bool:
    return append_files(
        table,
        files,
        SCHEMA,
        app_id="land",
        version=version,
        metadata={"batch": version},
        layout=BY_LANDING_DAY,
    )


# Only what is there -----------------------------------------------------------------------------


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def overwritten(path: Path) -> None:
    """Keep the size, lose the footer."""
    path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize(
    ("change", "got"),
    [
        (Path.unlink, "is no such file"),
        (torn, "bytes"),
        (overwritten, "it has no Parquet footer"),
        (lambda path: (path.unlink(), path.mkdir()), "bytes"),
    ],
)
def test_a_file_that_is_not_what_its_writer_said_is_not_committed(
    change: Callable[[Path], object], got: str, is_new: bool, tmp_path: Path
) -> None:
    table = tmp_path / "raw_messages"
    if not is_new:
        assert append(table, [written(table)], 1)
    before_it = newest_version(table)
    files = [written(table), written(table)]
    change(table / files[1].path)
    with pytest.raises(NotThereError) as caught:
        append(table, files, 2)
    text = str(caught.value)
    for said in (files[1].path, str(table), got, "do not share the lake's folder"):
        assert said in text
    assert "\n" not in text
    # No position moved, and what is written once more is committed.
    assert newest_version(table) == before_it
    assert commit_metadata(table).get("batch") == (None if is_new else 1)
    assert append(table, [written(table)], 2)
    assert commit_metadata(table) == {"batch": 2}
    assert len(read_rows(table)) == (3 if is_new else 6)


def test_rows_and_places_have_to_be_those_that_were_told(tmp_path: Path) -> None:
    table = tmp_path / "t"
    file = written(table)
    require_there(table, [file])
    with pytest.raises(NotThereError, match=r"wrote \d+ bytes with 4 rows, here are 3 rows"):
        require_there(table, [replace(file, rows=4)])
    for path in (f"../t/{file.path}", str(table / file.path)):
        with pytest.raises(NotThereError, match="leads out of the table's folder"):
            require_there(table, [replace(file, path=path)])


def test_a_first_commit_that_fails_leaves_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "feed" / "quarantine"

    def link(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", link)
        with pytest.raises(OSError, match="No space left"):
            write_table(table, items(1), overwrite=False, metadata={"batch": 1})
    assert [path.suffix for path in table.iterdir()] == [".parquet"]
    assert open_table(table) is None
    write_table(table, items(1), overwrite=False, metadata={"batch": 1})
    assert commit_metadata(table) == {"batch": 1}


def test_spark_commits_to_no_table_of_a_lake(root: Path) -> None:
    """A commit of Spark on S3 may take the place of another one; a query's own table may be."""
    found = {
        path.name
        for path in (root / "ticdc_assets").rglob("*.py")
        if '.write.format("delta")' in path.read_text() or "DeltaTable.forPath" in path.read_text()
    }
    assert found <= {"views.py", "class_archive.py"}


# What a table has already ---------------------------------------------------------------------


def items(number: int, **fields: object) -> pa.Table:
    """Return one row, with its number and a list of one item."""
    return pa.Table.from_pylist([{"number": number, "items": [{"a": number, **fields}]}])


@pytest.mark.parametrize("overwrite", [False, True])
def test_new_columns_and_nested_fields_join_a_table_of_delta_rs(
    tmp_path: Path, overwrite: bool
) -> None:
    """Versions of this package before its own commits had delta-rs make all of them."""
    table = tmp_path / "cuts"
    write_deltalake(str(table), items(1))
    write_table(table, items(2, b="two"), overwrite=overwrite, metadata={"number": 2})
    new = items(3, b="three").append_column("more", pa.array(["x"]))
    write_table(table, new, overwrite=overwrite, metadata={"number": 3})
    # A version that knows less takes nothing away, unless it replaces all.
    write_table(table, items(4), overwrite=overwrite, metadata={"number": 4})
    assert commit_metadata(table) == {"number": 4}
    found = sorted(read_rows(table), key=lambda row: row["number"])
    if overwrite:
        assert found == items(4).to_pylist()
        return
    lists = [row["items"][0] for row in found]
    assert lists == [
        *({"a": 1, "b": None}, {"a": 2, "b": "two"}, {"a": 3, "b": "three"}, {"a": 4, "b": None})
    ]
    assert [row["more"] for row in found] == [None, None, "x", None]
    by_others = DeltaTable(str(table)).to_pyarrow_table().sort_by("number")
    assert by_others["more"].to_pylist() == [None, None, "x", None]


def test_files_take_the_place_of_their_partition_alone(tmp_path: Path) -> None:
    table = tmp_path / "t"
    for version, day in enumerate(("2026-01-01", "2026-01-02"), 1):
        file = written(table, rows=version)
        moved = replace(file, partition={"landed_day": day})
        assert append(table, [moved], version)
    append_files(table, [written(table, rows=5)], SCHEMA, replaces={"landed_day": "2026-01-02"})
    rows = DeltaTable(str(table)).to_pyarrow_table()["landed_day"].value_counts().to_pylist()
    assert {str(row["values"]): row["counts"] for row in rows} == {"2026-01-01": 1, "2026-01-02": 5}
    assert log_state(table).transactions["land"] == 2


# By its own id ----------------------------------------------------------------------------------


def table_of(rows: int) -> pa.Table:
    return pa.table({"n": pa.array(range(rows), pa.int64())})


def foreign_append(table: Path) -> None:
    write_deltalake(str(table), table_of(2), mode="append")


def foreign_properties(table: Path) -> None:
    properties = {"delta.logRetentionDuration": "interval 9 days"}
    DeltaTable(str(table)).alter.set_table_properties(properties)


def own_append(table: Path, metadata: dict[str, Any]) -> int:
    write_table(table, table_of(5), overwrite=False, metadata=metadata)
    return newest_version(table)


@pytest.mark.parametrize(
    ("change", "is_same"),
    [
        (lambda table: DeltaTable(table).optimize.compact(), True),
        (lambda table: DeltaTable(table).vacuum(0, False, False), True),
        (foreign_append, False),
        (lambda table: DeltaTable(table).delete("n = 0"), False),
        (foreign_properties, False),
    ],
)
def test_compactions_and_vacuums_leave_the_rows(
    change: Callable[[Path], Any], is_same: bool, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    own_append(table, {})
    own_append(table, {})
    assert same_rows_at(table, 1) == 1
    change(table)
    assert same_rows_at(table, 1) == (newest_version(table) if is_same else None)
    assert bool(foreign_changes(table, 1)) is not is_same
    assert same_rows_at(table, own_append(table, {}) - 1) is None
    # A log that ends before the version has not its rows.
    assert same_rows_at(table, 99) is None


def test_what_others_write_into_their_commits_is_no_memory_of_ours(tmp_path: Path) -> None:
    table = tmp_path / "t"

    def foreign(text: str) -> None:
        write_deltalake(
            str(table),
            table_of(1),
            mode="append",
            commit_properties=CommitProperties(custom_metadata={"userMetadata": text}),
        )

    own_append(table, {"batch": 7, "landed": 6})
    own_append(table, {"batch": 8, "landed": 7})
    for text in ("by hand", "[1]", json.dumps({"batch": 9}), "{"):
        foreign(text)
    own_append(table, {})
    assert commit_metadata(table) == {"batch": 8, "landed": 7}


@pytest.mark.parametrize("text", ["", "{", "[]\n", '{"add": {"path": 1}}\n', '{"remove": 7}\n'])
def test_a_broken_log_entry_is_told_in_one_sentence(text: str, tmp_path: Path) -> None:
    table = tmp_path / "t"
    own_append(table, {})
    entry = table / "_delta_log" / f"{1:020}.json"
    entry.write_text(text)
    with pytest.raises(LakeDamagedError, match=r"commit 1 of its log is (empty|torn)") as caught:
        same_rows_at(table, 0)
    assert str(table) in str(caught.value)
    # Waiting does not mend it.
    assert not caught.value.retriable


# Beside a sync ----------------------------------------------------------------------------------


class Life:
    """A feed over one table of numbered rows."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.upstream = upstream_of(
            T,
            (column("id", "int", nullable=False), column("v", "varchar(20)")),
            primary_key=("id",),
            rows=40,
        )
        self.changefeed = StandInChangefeed(self.upstream, "d", partitions=2)
        self.folder = folder
        self.feed = Feed.of(spark, folder)

    def copied(self, folder: Path) -> "Life":
        """Return the life so far with an upstream, a capture and a lake of its own."""
        other = copy.copy(self)
        other.folder = folder
        other.upstream, other.changefeed = copy.deepcopy((self.upstream, self.changefeed))
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        other.feed = Feed.of(self.feed.spark, folder)
        return other

    def write(self, seed: int) -> None:
        churn(self.upstream, steps=10, seed=seed)
        self.feed.write(self.changefeed.tick())

    def synced(self) -> MirrorCut:
        """Sync and hold the cut against the truth, its counts included."""
        self.feed.sync()
        assert self.feed.rows() == truth_rows(self.changefeed.truth())
        (mirror,) = self.feed.cut.mirrors
        assert mirror.rows == len(self.upstream.rows(T))
        commit = read_commit(mirror.path(self.feed.paths), mirror.version)
        assert commit.commit_id is not None or not commit.changes_rows
        return mirror


@pytest.fixture(scope="module")
def synced_life(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Life:
    found = Life(spark, tmp_path_factory.mktemp("life"))
    found.feed.write(found.changefeed.tick())
    found.synced()
    return found


@pytest.fixture
def life(synced_life: Life, tmp_path: Path) -> Life:
    return synced_life.copied(tmp_path)


@pytest.fixture(scope="module")
def changed_life(synced_life: Life, tmp_path_factory: pytest.TempPathFactory) -> Life:
    found = synced_life.copied(tmp_path_factory.mktemp("changed"))
    with pytest.MonkeyPatch.context() as patch:
        treat_as_large(patch)
        found.write(seed=1)
        assert found.synced().mode == Mode.CHANGE
    return found


@pytest.fixture
def large(changed_life: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Life:
    """The same, whose mirror has deletion vectors."""
    treat_as_large(monkeypatch)
    keep_files_apart(monkeypatch)
    return changed_life.copied(tmp_path)


def by_spark(spark: SparkSession, path: Path, operation: str) -> None:
    """Do by hand what others do to a table."""
    table = SparkTable.forPath(spark, str(path))
    match operation:
        case "optimize":
            table.optimize().executeCompaction()
        case "vacuum":
            table.vacuum()
        case _:
            table.delete("id % 3 = 0")


def disturbed(
    monkeypatch: pytest.MonkeyPatch, table: Path, disturb: Callable[[], None], *, is_before: bool
) -> list[int]:
    """Let others do something to a table each time that we commit to it; the list counts."""
    put, met = committing.create, []

    def putting(path: Path, data: bytes) -> None:
        if not is_before:
            put(path, data)
        if path.parent.parent == table:
            met.append(newest_version(table))
            disturb()
        if is_before:
            put(path, data)

    monkeypatch.setattr(committing, "create", putting)
    return met


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_append_that_another_program_forestalls_is_made_again(
    overwrite: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What replaces all rows replaces those of the other program too."""
    table = tmp_path / "cuts"
    write_table(table, table_of(1), overwrite=False, metadata={"number": 1})

    def once() -> None:
        if newest_version(table) == 0:
            foreign_append(table)

    met = disturbed(monkeypatch, table, once, is_before=True)
    write_table(table, table_of(5), overwrite=overwrite, metadata={"number": 2})
    assert met == [0, 1]
    assert len(read_rows(table)) == (5 if overwrite else 1 + 2 + 5)
    assert commit_metadata(table) == {"number": 2}


@pytest.mark.spark
def test_what_is_committed_right_behind_a_change_is_not_published(
    large: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = large.feed.cut.mirrors[0].path(large.feed.paths)
    large.write(seed=2)
    with monkeypatch.context() as patch:
        disturbed(patch, path, lambda: by_spark(large.feed.spark, path, "delete"), is_before=False)
        mirror = large.synced()
    assert mirror.mode == Mode.CHANGE
    assert newest_version(path) > mirror.version
    assert read_commit(path, mirror.version).operation == "WRITE"
    # What leaves the rows is kept, what does not is taken back; the next cut is right either way.
    large.write(seed=3)
    mirror = large.synced()
    assert mirror.mode == Mode.CHANGE
    assert large.feed.spark.read.format("delta").load(str(path)).count() == mirror.rows


@pytest.mark.spark
def test_a_change_with_nothing_to_do_commits_nothing(large: Life) -> None:
    (mirror,) = large.feed.cut.mirrors
    # A row that comes and goes between two cuts leaves a delete of a row that nobody has.
    with large.upstream.transaction() as transaction:
        transaction.insert(T, {"id": "900001", "v": "short"})
    with large.upstream.transaction() as transaction:
        transaction.delete(T, ("900001",))
    large.feed.write(large.changefeed.tick())
    after = large.synced()
    assert (after.mode, after.version, after.rows) == (Mode.CHANGE, mirror.version, mirror.rows)


@pytest.mark.spark
def test_a_carried_mirror_is_named_as_it_was_compacted_by_hand(large: Life) -> None:
    """Its older files will be vacuumed away, however many cuts name them."""
    path = large.feed.cut.mirrors[0].path(large.feed.paths)
    by_spark(large.feed.spark, path, "optimize")
    large.upstream.create_table(
        ("d", "other"), (column("id", "int", nullable=False),), primary_key=("id",)
    )
    fill(large.upstream, ("d", "other"), rows=3)
    large.feed.write(large.changefeed.tick())
    large.feed.sync()
    mirror = next(item for item in large.feed.cut.mirrors if item.table == "t")
    assert (mirror.mode, mirror.version) == (Mode.CARRIED, newest_version(path))
    assert read_commit(path, mirror.version).operation == "OPTIMIZE"
    assert large.feed.rows() == truth_rows(large.changefeed.truth())


@pytest.mark.spark
def test_a_writer_that_never_stops_fails_the_mirror_in_one_sentence(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    (published,) = life.feed.cut.mirrors
    path = published.path(life.feed.paths)

    def disturb() -> None:
        rows = DeltaTable(str(path)).to_pyarrow_table().slice(0, 2)
        write_deltalake(str(path), rows, mode="append")

    life.write(seed=2)
    with monkeypatch.context() as patch:
        tries = disturbed(patch, path, disturb, is_before=True)
        life.feed.sync()
    assert len(tries) == 3
    (failed,) = life.feed.cut.failed
    assert "another program wrote version" in failed.reason
    (mirror,) = life.feed.cut.mirrors
    assert (mirror.version, mirror.rows) == (published.version, published.rows)
    life.synced()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("operation", "size"),
    [
        ("delete", "small"),
        pytest.param("delete", "large", marks=pytest.mark.slow),
        pytest.param("vacuum", "large", marks=pytest.mark.slow),
    ],
)
def test_a_history_is_named_by_its_own_commit(
    operation: str,
    size: str,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = Life(spark, tmp_path)
    keeping = replace(found.feed.changefeed, history=TableChoice(patterns=("*.*",)))
    found.feed = replace(found.feed, changefeed=keeping)
    if size == "large":
        treat_as_large(monkeypatch)
    found.feed.write(found.changefeed.tick())
    mirror = found.synced()
    path = found.feed.paths.history(mirror.mirror_id)
    for seed, is_before in enumerate((False, True), 1):
        found.write(seed=seed)
        met: list[int] = []

        def disturb(met: list[int] = met) -> None:
            if not met:
                met.append(newest_version(path))
                by_spark(spark, path, operation)

        with monkeypatch.context() as patch:
            assert not disturbed(patch, path, disturb, is_before=is_before)
            mirror = found.synced()
        assert met
        rows = delta_frame(found.feed.lake.spark, *mirror.history_at(found.feed.lake.paths))
        assert rows.count() == mirror.history_rows
        current = rows.where("_ticdc_valid_to is null").count()
        assert current == mirror.rows


@pytest.mark.spark
def test_retention_counts_what_its_own_commit_removed(life: Life) -> None:
    life.write(seed=1)
    life.synced()
    kept = life.feed.having(retention=Retention(change_log=timedelta(hours=1), cuts=None))
    log = life.feed.paths.change_log
    rows = life.feed.spark.read.format("delta").load(str(log)).count()
    version = newest_version(log)

    def truncated() -> Any:
        return retain(kept.lake, now=datetime.now(UTC) + timedelta(hours=2))

    def once() -> None:
        if newest_version(log) == version:
            foreign_properties(log)

    with pytest.MonkeyPatch.context() as patch:
        disturbed(patch, log, once, is_before=True)
        done = truncated()
    left = life.feed.spark.read.format("delta").load(str(log)).count()
    assert done.changes == rows - left > 0, done
    assert newest_version(log) == version + 2


# Verify -----------------------------------------------------------------------------------------


@pytest.mark.spark
def test_verify_does_not_blame_a_half_finished_run_of_ours(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run alters a mirror and changes its rows, in one commit, and dies."""
    treat_as_large(monkeypatch)
    published = life.feed.cut.mirrors[0]
    path = published.path(life.feed.paths)
    life.upstream.alter_table(T, AddColumn(column=column("n", "int")))
    life.write(seed=2)
    with monkeypatch.context() as patch:
        before(mirrors, "publish")(patch)
        with pytest.raises(Killed):
            life.feed.sync()
    (item,) = (read_commit(path, number) for number in versions_after(path, published.version))
    assert item.operation == "WRITE"
    assert item.commit_id
    found = verify(life.feed.lake)
    assert found.equal, [item.findings() for item in found.mirrors]
    # What leaves the rows is not blamed either, what others change is.
    by_spark(life.feed.spark, path, "vacuum")
    assert verify(life.feed.lake).equal
    by_spark(life.feed.spark, path, "delete")
    (item,) = verify(life.feed.lake).mirrors
    assert item.finding is Finding.EQUAL
    assert [text.partition(" (")[2] for text in item.foreign] == ["DELETE)"]
    life.synced()


# Workers that do not share the folder -----------------------------------------------------------


@pytest.mark.spark
def test_a_decoding_whose_files_are_elsewhere_moves_no_position(
    life: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executing, "INLINE_ROWS", -1)
    life.write(seed=1)
    life.feed.land()
    original = decoding.decode_into_files
    lost: list[str] = []

    def elsewhere(*args: Any, **kwargs: Any) -> DecodedFiles:
        found = original(*args, **kwargs)
        assert found.changes
        for file in found.changes:
            (kwargs["into"].change_log / file.path).rename(tmp_path / Path(file.path).name)
            lost.append(file.path)
        return found

    at = decoded_position(life.feed.paths), newest_version(life.feed.paths.change_log)
    with monkeypatch.context() as patch:
        patch.setattr(decoding, "decode_into_files", elsewhere)
        with pytest.raises(NotThereError, match="do not share the lake's folder") as caught:
            decode_new(life.feed.lake)
    assert lost[0] in str(caught.value)
    assert (decoded_position(life.feed.paths), newest_version(life.feed.paths.change_log)) == at
    life.synced()


@pytest.mark.spark
def test_new_mirrors_whose_files_are_elsewhere_are_made_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_making, "INLINE_ROWS", 1)
    found = Life(spark, tmp_path)
    found.feed.write(found.changefeed.tick())
    original = TableWriter.replace
    refused: list[NotThereError] = []

    def elsewhere(self: TableWriter, rows: Any, files: Any, metadata: Any) -> int:
        if not refused:
            torn(self.table / files[0].path)
        try:
            return original(self, rows, files, metadata)
        except NotThereError as error:
            refused.append(error)
            raise

    with monkeypatch.context() as patch:
        patch.setattr(TableWriter, "replace", elsewhere)
        mirror = found.synced()
    assert len(refused) == 1
    # What is left of them is no commit's, and goes.
    path = mirror.path(found.feed.paths)
    left = unnamed(path, timedelta())
    assert left
    for item in left:
        item.unlink()
    found.synced()


# Maintenance ------------------------------------------------------------------------------------


OF_SPARK = "part-00000-5bd1b1a4-7d0a-4a5b-8f3e-0d3b5f1c2a11-c000.snappy.parquet"


def unnamed(table: Path, age: timedelta, **wanted: Any) -> list[Any]:
    """Return the files of a table that no commit names, and that are this old."""
    return removable(table, datetime(2020, 1, 1, tzinfo=UTC), unnamed=age, **wanted)


@pytest.mark.spark
def test_maintenance_removes_what_no_commit_names(large: Life) -> None:
    paths = large.feed.paths
    (mirror,) = large.feed.cut.mirrors
    orphans = [
        *(paths.raw_messages / written(paths.raw_messages).path for _ in range(2)),
        paths.change_log / written(paths.change_log).path,
        mirror.path(paths) / written(mirror.path(paths)).path,
        # A new mirror's, whose run was killed before its first commit.
        paths.mirror("99-0") / written(paths.mirror("99-0")).path,
    ]
    young = paths.raw_messages / OF_SPARK
    young.write_bytes(orphans[0].read_bytes())
    then = large.feed.rows_as_of(large.feed.cut.tso)
    fresh = paths.raw_messages / written(paths.raw_messages).path
    for path in orphans:
        os.utime(path, (time.time() - 7200,) * 2)
    maintain(large.feed.lake, dry_run=True)
    assert all(path.exists() for path in orphans)
    maintain(large.feed.lake)
    assert not any(path.exists() for path in orphans)
    assert fresh.exists()
    # Somebody else may be about to commit it.
    assert young.exists()
    os.utime(young, (0, 0))
    maintain(large.feed.lake)
    assert not young.exists()
    assert large.feed.rows() == truth_rows(large.changefeed.truth())
    assert large.feed.rows_as_of(large.feed.cut.tso) == then
    large.write(seed=5)
    large.synced()


def test_files_that_only_a_checkpoint_names_stay(tmp_path: Path) -> None:
    table = tmp_path / "t"
    for version in range(1, 4):
        append(table, [written(table)], version)
    DeltaTable(str(table)).create_checkpoint()
    for entry in sorted((table / "_delta_log").glob("*.json"))[:2]:
        entry.unlink()
    orphan = table / written(table).path
    assert unnamed(table, timedelta(hours=1)) == []
    assert unnamed(table, timedelta()) == [orphan]


def test_files_of_a_base_stay_that_no_checkpoint_names_any_more(tmp_path: Path) -> None:
    """A table may rest on a base cut for longer than the log names what was removed since."""
    table = tmp_path / "t"
    for number in range(6):
        write_deltalake(
            str(table),
            table_of(1),
            mode="overwrite",
            configuration={"delta.deletedFileRetentionDuration": "interval 0 seconds"},
        )
        if number == 4:
            time.sleep(1.1)
            DeltaTable(str(table)).create_checkpoint()
    for path in table.glob("part-*"):
        os.utime(path, (0, 0))
    for oldest, count in ((None, 4), (0, 0), (2, 2)):
        assert len(unnamed(table, UNNAMED_KEPT, oldest=oldest)) == count


@pytest.mark.parametrize("is_gone", [True, False])
def test_nothing_is_removed_where_a_log_lost_its_commits(is_gone: bool, tmp_path: Path) -> None:
    paths = LakePaths(root=tmp_path, changefeed="feed")
    append(paths.raw_messages, [written(paths.raw_messages)], 1)
    if is_gone:
        shutil.rmtree(paths.raw_messages / "_delta_log")
    for path in paths.raw_messages.rglob("part-*"):
        os.utime(path, (0, 0))
    failures = Failures("maintenance")
    vacuum(paths, failures)
    assert failures.reasons == {}
    assert len(list(paths.raw_messages.rglob("part-*"))) == 1


def lose_commit(table: Path, number: int) -> set[Path]:
    """Take a commit from a log, and return the table's files, which are old."""
    for entry in (table / "_delta_log").glob(f"{number:020}.*"):
        entry.unlink()
    files = set(table.rglob("part-*"))
    for path in files:
        os.utime(path, (0, 0))
    return files


@pytest.mark.parametrize("lost", ["in the middle", "at the end", "of a commit"])
@pytest.mark.parametrize("name", ["mirrors/7-0", "histories/7-0", "raw_messages", "quarantine"])
def test_files_stay_where_a_log_lost_a_part(name: str, lost: str, tmp_path: Path) -> None:
    """Damage to a mirror stops no other; damage to a table of all mirrors ends the run."""
    paths = LakePaths(root=tmp_path, changefeed="feed")
    table = named_table(paths, name)
    for version in range(1, 5):
        for path in {table, paths.mirror("7-0")}:
            append(path, [written(path), written(path)], version)
    files = set(table.rglob("part-*"))
    if lost == "of a commit":
        entry = table / "_delta_log" / f"{1:020}.json"
        entry.write_bytes(entry.read_bytes()[:-400])
    else:
        lose_commit(table, 1 if lost == "in the middle" else 3)
    failures = Failures("maintenance")
    if "/" in name:
        version = 3 if name == "histories/7-0" else None
        named = mirror_of_cut(mirror_id="7-0", version=3, history_version=version)
        write_tables(paths)
        append_cut(paths, made_up_cut(mirrors=(named,)))
        vacuum(paths, failures)
        assert "is damaged" in failures.reasons["shop.orders"]
    elif lost != "at the end":  # the tables made from it show that (`require_ends`)
        with pytest.raises(LakeDamagedError, match=name):
            vacuum(paths, failures)
    assert set(table.rglob("part-*")) == files


@pytest.mark.spark
def test_nothing_is_maintained_where_what_landed_is_behind(life: Life) -> None:
    paths = life.feed.paths
    for seed in range(2):
        life.write(seed)
        life.synced()
    files = lose_commit(paths.raw_messages, newest_version(paths.raw_messages))
    with pytest.raises(LakeDamagedError, match="the end of its log is missing"):
        maintain(life.feed.lake)
    assert set(paths.raw_messages.rglob("part-*")) == files


def test_control_tables_lose_what_was_never_committed(tmp_path: Path) -> None:
    paths = LakePaths(root=tmp_path, changefeed="feed")
    table = paths.checksums
    write_table(table, table_of(1), overwrite=False, metadata={"number": 1})
    orphan = table / OF_SPARK
    pq.write_table(table_of(2), orphan)
    vacuum(paths, Failures("maintenance"))
    assert orphan.exists()
    os.utime(orphan, (0, 0))
    vacuum(paths, Failures("maintenance"))
    assert not orphan.exists()
    assert commit_metadata(table) == {"number": 1}


def test_a_checkpoint_leaves_no_checksum_of_an_older_hint(tmp_path: Path) -> None:
    table = tmp_path / "feed" / "cuts"
    write_table(table, pa.table({"number": [0]}), overwrite=False, metadata={})
    checksum = table / "_delta_log" / "._last_checkpoint.crc"
    checksum.write_bytes(b"of a file that Spark wrote")
    for number in range(1, 21):
        assert checksum.exists()
        write_table(table, pa.table({"number": [number]}), overwrite=False, metadata={})
    assert log_state(table).version == 20
    assert not checksum.exists()
