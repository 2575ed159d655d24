"""Every way in which files of a Delta table can be broken is seen, and said in one clause."""

import json
import os
import shutil
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from ticdc_assets.base.errors import LakeDamagedError
from ticdc_assets.delta.control import dataset_of, read_table
from ticdc_assets.delta.damage import reading
from ticdc_assets.delta.delta_files import broken, live_files, removable, vector_of
from ticdc_assets.delta.delta_protocol import DeletionVector, DeletionVectorError
from ticdc_assets.delta.log_reading import (
    BrokenTableError,
    existing_state,
    log_state,
    removed_files,
)
from ticdc_assets.delta.opening import open_table
from ticdc_assets.delta.renewing import renew_if_lost
from ticdc_assets.repair.maintenance import _clean_log
from ticdc_assets_tests.delta.libraries import next_process


def read_version(path: Path, version: int) -> pa.Table:
    with reading(path, version):
        table = open_table(path, version)
        assert table is not None
        return dataset_of(table, path).to_table()


def rows(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64())})


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A mirror of three versions: one row, two rows in one file, three rows in two."""
    path = tmp_path / "shop" / "mirrors" / "7"
    path.parent.mkdir(parents=True)
    write_deltalake(str(path), rows(1))
    write_deltalake(str(path), rows(1, 2), mode="overwrite")
    write_deltalake(str(path), rows(3), mode="append")
    return path


def commit(table: Path, number: int) -> Path:
    return table / "_delta_log" / f"{number:020}.json"


def newest_file(table: Path) -> Path:
    actions = map(json.loads, commit(table, 2).read_text().splitlines())
    return table / next(action["add"]["path"] for action in actions if "add" in action)


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def with_checkpoint(table: Path) -> Path:
    DeltaTable(str(table)).create_checkpoint()
    return table / "_delta_log" / f"{2:020}.checkpoint.parquet"


NO_ACTION = "commit 1 of its log is torn: line 1 is not an action"
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "log emptied": (
        lambda table: [path.unlink() for path in (table / "_delta_log").iterdir()],
        "its _delta_log has no commit",
    ),
    "log gone": (lambda table: shutil.rmtree(table / "_delta_log"), "its _delta_log"),
    "log a file": (
        lambda table: [shutil.rmtree(table / "_delta_log"), (table / "_delta_log").write_text("")],
        "its _delta_log is not a folder",
    ),
    "commit torn": (
        lambda table: cut(commit(table, 2), commit(table, 2).stat().st_size - 9),
        "commit 2 of its log is torn: line 2 is not an action",
    ),
    "commit torn between lines": (
        lambda table: commit(table, 2).write_text(commit(table, 2).read_text().splitlines()[0]),
        "commit 2 of its log is torn: it names 0 of 1 files",
    ),
    "commit empty": (lambda table: cut(commit(table, 2), 0), "commit 2 of its log is empty"),
    "commit of zeros": (lambda table: commit(table, 1).write_bytes(bytes(300)), NO_ACTION),
    "commit of another program": (
        lambda table: commit(table, 1).write_text("<html></html>"),
        NO_ACTION,
    ),
    "commit of JSON that is none": (
        lambda table: commit(table, 1).write_text('{"add": {"size": 1}}'),
        NO_ACTION,
    ),
    "commit a folder": (lambda table: as_folder(commit(table, 2)), "commit 2 of its log is a"),
    "first commit gone": (
        lambda table: commit(table, 0).unlink(),
        "commit 0 of its log is missing",
    ),
    "middle commit gone": (
        lambda table: commit(table, 1).unlink(),
        "commit 1 of its log is missing",
    ),
    "last commit gone": (
        lambda table: commit(table, 2).unlink(),
        "its newest version is 1, but version 2 is published",
    ),
    "checkpoint torn": (
        lambda table: cut(with_checkpoint(table), 40),
        "checkpoint 2 of its log cannot be read",
    ),
    "checkpoint gone": (
        lambda table: with_checkpoint(table).unlink(),
        "checkpoint 2, which its _last_checkpoint names, is missing",
    ),
    "file gone": (lambda table: newest_file(table).unlink(), "data file part-"),
    "file empty": (lambda table: cut(newest_file(table), 0), "has 0 bytes where"),
    "file torn": (lambda table: cut(newest_file(table), 300), "has 300 bytes where"),
    "file a folder": (lambda table: as_folder(newest_file(table)), "is not a file but a folder"),
    "file of another program": (
        lambda table: newest_file(table).write_bytes(bytes(newest_file(table).stat().st_size)),
        "has no readable footer",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_found_without_opening_the_table_and_read_as_one_sentence(
    table: Path, damage: str
) -> None:
    assert broken(table, 2, footers=True) is None
    breaks, said = DAMAGES[damage]
    breaks(table)
    assert said in (broken(table, 2, footers=True) or "")
    next_process()
    with pytest.raises(LakeDamagedError) as caught:
        read_version(table, 2)
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert "the mirror with id 7 of changefeed 'shop' is damaged" in str(caught.value)


def test_what_commits_removed_cannot_be_read_of_a_broken_log(table: Path) -> None:
    existing_state(table)
    commit(table, 1).unlink()
    commit(table, 1).symlink_to(commit(table, 1))
    with pytest.raises(BrokenTableError, match="cannot be read"):
        removed_files(table)


def test_what_is_there_is_whole(table: Path) -> None:
    def assert_whole(*versions: tuple[int | None, int]) -> None:
        for version, files in versions:
            assert broken(table, version, footers=True) is None
            assert len(live_files(table, version)) == files

    assert_whole((0, 1), (1, 1), (2, 2), (None, 2))
    with_checkpoint(table)
    write_deltalake(str(table), rows(4), mode="append")
    commit(table, 0).unlink()  # as a log that was cleaned up to its checkpoint
    assert_whole((2, 2), (3, 3), (None, 3))
    # What no version needs may be anything.
    (table / "foreign.parquet").write_text("x")
    (table / "_delta_log" / "foreign.txt").write_text("x")
    assert broken(table, footers=True) is None


def test_a_checkpoint_with_its_files_in_sidecars_is_refused(table: Path) -> None:
    checkpoint = with_checkpoint(table)
    actions = pq.read_table(checkpoint)
    others = actions.filter(pc.is_null(pc.struct_field(actions["add"], "path")))
    sidecars = [*[None] * (len(others) - 1), {"path": "files.parquet"}]
    # A checkpoint with the name that all readers know, in the layout that few know.
    layout = others.drop(["sidecar"]).append_column("sidecar", pa.array(sidecars))
    pq.write_table(layout, checkpoint)
    with pytest.raises(BrokenTableError, match="a checkpoint of the second layout"):
        removable(table, datetime.now(UTC) + timedelta(hours=1))
    with pytest.raises(LakeDamagedError, match="a checkpoint of the second layout"):
        open_table(table)


def test_a_checkpoint_that_lacks_a_part_is_not_read(table: Path) -> None:
    """Two writers divide the same checkpoint into two and into three parts, and both are killed."""
    wanted = live_files(table)
    part = pq.read_table(with_checkpoint(table)).slice(0, 1)
    with_checkpoint(table).unlink()
    (table / "_delta_log" / "_last_checkpoint").unlink()
    for number, parts in ((1, 2), (1, 3), (2, 3)):
        name = f"{2:020}.checkpoint.{number:010}.{parts:010}.parquet"
        pq.write_table(part, table / "_delta_log" / name)
    assert live_files(table) == wanted


def test_a_newer_checkpoint_replaces_the_one_that_is_named(table: Path) -> None:
    """A writer is killed before it names its checkpoint, and cleaning removes the named one."""
    named = with_checkpoint(table)
    hint = table / "_delta_log" / "_last_checkpoint"
    before = hint.read_bytes()
    write_deltalake(str(table), rows(4), mode="append")
    DeltaTable(str(table)).create_checkpoint()
    hint.write_bytes(before)
    assert _clean_log(table, 3) > 0
    assert not named.exists()
    assert broken(table, footers=True) is None
    assert len(live_files(table)) == 3


def test_an_absolute_path_of_a_vector_is_a_uri(tmp_path: Path) -> None:
    file = tmp_path / "a b#100%é" / "vector.bin"
    place = {"storageType": "p", "pathOrInlineDv": file.as_uri(), "offset": 1}
    vector = vector_of(tmp_path, {"deletionVector": place | {"sizeInBytes": 9, "cardinality": 1}})
    assert vector is not None
    assert vector.path == file


def test_a_first_commit_that_was_interrupted_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "shop" / "quarantine"
    write = path / "part-0.parquet"
    path.mkdir(parents=True)
    write.write_text("x")
    assert open_table(path) is None  # data files, and no log yet
    (path / "_delta_log").mkdir()
    (path / "_delta_log" / f"{0:020}.json#1").write_text("{")
    assert open_table(path) is None
    for left in (path / "_delta_log").iterdir():
        left.unlink()
    with pytest.raises(LakeDamagedError, match="quarantine of changefeed 'shop'"):
        open_table(path)


def test_a_lost_log_is_told_by_what_was_made_after_it(tmp_path: Path) -> None:
    raw, made = tmp_path / "shop" / "raw_messages", tmp_path / "shop" / "change_log"
    (raw / "_delta_log").mkdir(parents=True)
    assert open_table(raw) is None
    write_deltalake(str(made), rows(1))
    with pytest.raises(LakeDamagedError, match="although change_log was made after it"):
        open_table(raw)
    shutil.rmtree(raw)
    with pytest.raises(LakeDamagedError, match="restore it from a copy"):
        read_table(raw)


def test_a_lost_log_begins_again_behind_what_cuts_name(table: Path) -> None:
    shutil.rmtree(table / "_delta_log")
    renew_if_lost(table, 2, {"delta.checkpointInterval": "20"})
    opened = open_table(table)
    assert opened is not None
    assert opened.version == 3
    write_deltalake(str(table), rows(8, 9), mode="overwrite", schema_mode="overwrite")
    assert read_version(table, 4) == rows(8, 9)
    assert broken(table, 4, footers=True) is None
    # No version that a cut names is ever another one.
    for version in (0, 1, 2):
        with pytest.raises(LakeDamagedError):
            read_version(table, version)
    renew_if_lost(table, 4, {})  # sound: left alone
    assert read_version(table, 4) == rows(8, 9)


def kept(vector: DeletionVector, first: int, count: int) -> list[bool]:
    left = vector.kept(first, count)
    assert left is not None
    return left.tolist()


@pytest.mark.spark
def test_deletion_vectors_and_checkpoints_of_spark_are_understood(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "shop" / "mirrors" / "9"
    (
        spark.range(1000)
        .repartition(1)
        .write.format("delta")
        .option("delta.enableDeletionVectors", "true")
        .option("delta.columnMapping.mode", "name")
        .option("delta.checkpointInterval", "3")
        .save(str(path))
    )
    for number in (5, 6, 7):
        spark.sql(f"DELETE FROM delta.`{path}` WHERE id = {number}")
    assert list((path / "_delta_log").glob("*.checkpoint.parquet"))
    for version in (*range(4), None):
        assert broken(path, version, footers=True) is None
    (file,) = log_state(path, 3).files
    deleted = vector_of(path, file)
    assert deleted is not None
    assert kept(deleted, 0, 1000) == [number not in (5, 6, 7) for number in range(1000)]
    assert deleted.kept(8, 992) is None
    assert kept(deleted, 7, 2) == [False, True]
    (vector,) = (file for file in live_files(path) if not file.is_data)
    vector.path.unlink()
    assert "deletion vector" in (broken(path, footers=False) or "")
    assert broken(path, 0, footers=True) is None


def test_deletion_vectors_that_are_damaged_are_refused(tmp_path: Path) -> None:
    bitmap = struct.pack("<I", 1_681_511_377) + BitMap64([3, 1 << 40]).serialize()
    whole = DeletionVector(size=len(bitmap), cardinality=2, data=bitmap)
    assert kept(whole, 2, 3) == [True, False, True]
    assert whole.kept(1 << 41, 5) is None
    file = tmp_path / "vector.bin"
    checksum = struct.pack(">I", zlib.crc32(bitmap))
    content = b"\x01" + struct.pack(">I", len(bitmap)) + bitmap + checksum
    for name, changed in {
        "the checksum at byte": content[:-1] + b"!",
        "no vector of": content[:1] + b"\x01" + content[2:],
        "no vector of ": b"",
    }.items():
        file.write_bytes(changed)
        with pytest.raises(DeletionVectorError, match=name):
            replace(whole, path=file, offset=1, data=name.encode()).kept(0, 1)
    file.write_bytes(content)
    assert replace(whole, path=file, offset=1, data=b"").kept(3, 1) is not None
    for said, vector in {
        "bytes where": replace(whole, data=bitmap[:-1]),
        "portable form": replace(whole, data=b"1234" + bitmap[4:]),
        "rows where 3 were deleted": replace(whole, cardinality=3),
        "not a bitmap": replace(whole, data=bitmap[:4] + b"\xff" * (len(bitmap) - 4)),
    }.items():
        with pytest.raises(DeletionVectorError, match=said):
            vector.kept(0, 1)


def test_what_a_vacuum_would_remove(tmp_path: Path) -> None:
    path = tmp_path / "shop" / "mirrors" / "7"
    for number in range(30):  # behind a checkpoint too
        write_deltalake(
            str(path),
            rows(number),
            mode="overwrite",
            configuration={"delta.checkpointInterval": "20"},
        )
    (path / "part-of-a-killed-run.parquet").write_bytes(b"")
    (path / "_hidden").mkdir()
    (path / "_hidden" / "left.parquet").write_bytes(b"")
    now = datetime.now(UTC)
    assert removable(path, now - timedelta(hours=1)) == []
    table = DeltaTable(str(path))
    wanted = table.vacuum(0, dry_run=True, enforce_retention_duration=False, full=True)
    assert len(removed_files(path)) == 29
    found = removable(path, now + timedelta(hours=1))
    assert {item.name for item in found} == set(wanted)
    assert len(found) == 30
    # What a commit removed lately stays, however old it is.
    for item in found:
        os.utime(item, (0, 0))
    (left,) = removable(path, now - timedelta(hours=1))
    assert left.name == "part-of-a-killed-run.parquet"
