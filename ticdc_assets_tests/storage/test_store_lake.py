"""A lake in a store without Spark: by the commands, each in its own process, and by its parts."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ticdc_assets.base.errors import LakeDamagedError, StoreUnavailableError
from ticdc_assets.delta.appending import write_table
from ticdc_assets.delta.commits import read_commit
from ticdc_assets.delta.control import read_rows
from ticdc_assets.delta.delta_files import broken, removable
from ticdc_assets.delta.files import FileLayout, WrittenFile, write_rows
from ticdc_assets.delta.opening import open_table
from ticdc_assets.delta.renewing import renew_if_lost
from ticdc_assets.log.cuts import require_cut
from ticdc_assets.log.damage import check_files
from ticdc_assets.reading.mirrors import locate_mirror, read_mirror
from ticdc_assets.spark import scratch
from ticdc_assets.spark.scratch import READING, WRITING, Scratch, remove_forgotten
from ticdc_assets.storage import creating
from ticdc_assets.storage.lake_paths import LakePaths, changefeeds_in
from ticdc_assets.storage.paths import (
    RemotePath,
    delta_options,
    files_below,
    move,
    names_in,
    remote_path,
    remove_tree,
)
from ticdc_assets.storage.stores import Storage
from ticdc_assets_tests.commands import Commands, Done
from ticdc_assets_tests.delta.libraries import next_process, opened
from ticdc_assets_tests.golden import Scenario, assert_same_rows, rows_of
from ticdc_assets_tests.hdfs import HdfsLake, write_settings
from ticdc_assets_tests.lake.test_golden_processes import assert_truth
from ticdc_assets_tests.s3 import SECRETS, S3Lake
from ticdc_assets_tests.statuses import mirror
from ticdc_assets_tests.stores import StoreLake

pytestmark = pytest.mark.timeout(900)

ROWS = pa.table({"a": pa.array([1, 2], pa.int64())})


@pytest.fixture
def table(store_lake: StoreLake) -> RemotePath:
    """A table of two rows where a mirror would be."""
    path = store_lake.path / "feed" / "mirrors" / "1"
    write_table(path, ROWS, overwrite=False, metadata={"tso": 1})
    return path


# By the commands --------------------------------------------------------------------------------


def test_a_golden_scenario_by_every_command_that_needs_no_spark(
    store_lake: StoreLake,
    tmp_path: Path,
    golden_dir: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario = Scenario(golden_dir("simple-json", "shop"))
    commands = Commands(tmp_path, store_lake)
    commands.add_scenario("feed", scenario, history=["shop.orders"])
    said: list[str] = []

    def ran(*arguments: object, runs: Callable[..., Done] = commands.program) -> str:
        done = runs(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Spark" not in done.stderr
        said.extend((done.stdout, done.stderr))
        return done.stdout

    def read(*arguments: object) -> str:
        return ran(*arguments, runs=commands.here)

    assert "feed: published: cut 1 at " in ran("sync", "feed")
    cut = require_cut(commands.paths("feed"))
    assert (cut.failed, cut.unaccounted) == ((), ())
    dumped = ran("dump", "feed").splitlines()
    assert_same_rows(rows_of(map(json.loads, dumped)), scenario.state(), variant=scenario.variant)
    assert "unchanged" in read("sync", "feed")
    assert "complete" in read("status", "feed")
    assert json.loads(read("tables", "feed", "--json"))[0]["rows"] > 0
    assert "96 rows in total" in read("show", "feed", "shop", "orders")
    ever = ran("show", "feed", "shop", "orders", "--deleted", "--format", "jsonl").splitlines()
    gone = [row for row in map(json.loads, ever) if row["_ticdc_deleted_at"]]
    assert len(ever) == 96 + len(gone) > 96
    assert "96" in ran("sql", "feed", "SELECT count(*) FROM shop.orders", "--format", "csv")
    assert "equal" in ran("verify", "feed")
    assert names_in(commands.paths("feed").generations) == ["1"]
    read("report", "--output", str(tmp_path / "page.html"))
    assert "readers see them now" in ran("rebuild", "feed")
    assert read("dump", "feed").splitlines() == dumped
    (generation,) = (name for name in names_in(commands.paths("feed").generations) if name != "1")
    assert commands.paths("feed").generation == generation

    for name, value in commands.env.items():
        monkeypatch.setenv(name, value)
    place = locate_mirror("feed", "shop", "orders")
    assert str(place.path).startswith(f"{store_lake.path}/feed/generations/{generation}/mirrors/")
    assert read_mirror(None, "feed", "shop", "orders", engine="arrow").num_rows == place.rows
    named = json.loads(commands.paths("feed").by_name.read_text())
    folders = {item["path"].rpartition("/")[0] for item in named["mirrors"]}
    assert folders == {f"generations/{generation}/mirrors"}
    # What Dagster keeps is on this machine, and nothing else is.
    assert not (tmp_path / "lake").exists()
    assert [path for path in tmp_path.iterdir() if ":" in path.name] == []
    said += [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(SECRETS["LAKE_SECRET_KEY"] in text for text in said)


def test_every_type(store_lake: StoreLake, tmp_path: Path, golden_dir: Callable[..., Path]) -> None:
    folder = ("simple-json", "types")
    assert_truth(folder, Scenario(golden_dir(*folder)), Commands(tmp_path, store_lake))


@pytest.mark.s3
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"bucket": "nowhere"}, "there is no s3://nowhere"),
        ({"endpoint": "http://127.0.0.1:9"}, "Could not connect to server"),
        ({"secret": "another-secret"}, "ACCESS_DENIED"),
    ],
    ids=["no bucket", "no server", "another key"],
)
def test_a_store_that_cannot_be_reached_is_no_damaged_lake(
    change: dict[str, str],
    reason: str,
    s3_lake: S3Lake,
    tmp_path: Path,
    golden_dir: Callable[..., Path],
) -> None:
    bucket = change.get("bucket", s3_lake.bucket)
    lake = S3Lake(change.get("endpoint", s3_lake.endpoint), bucket, s3_lake.folder)
    secret = change.get("secret", SECRETS["LAKE_SECRET_KEY"])
    said = refusal(tmp_path, lake, golden_dir("craft", "shop"), {"LAKE_SECRET_KEY": secret})
    assert reason in said
    assert secret not in said


def refusal(folder: Path, lake: StoreLake, golden: Path, env: dict[str, str]) -> str:
    """Return what a sync into a lake says that cannot be reached."""
    commands = Commands(folder, lake)
    commands.add_scenario("feed", Scenario(golden))
    done = commands.program("sync", "feed", env=env)
    assert done.returncode == 1
    assert "cannot be reached" in done.stderr
    assert "Traceback" not in done.stderr
    assert "damaged" not in done.stderr
    return done.stderr


@pytest.mark.hdfs
def test_a_name_node_that_is_away_is_no_damaged_lake(
    tmp_path: Path, golden_dir: Callable[..., Path]
) -> None:
    lake = HdfsLake(root="hdfs://127.0.0.1:9", folder="any")
    # All clients read Hadoop's own settings; without this one they try again for minutes.
    write_settings(tmp_path, "hdfs-site.xml", {"dfs.client.failover.max.attempts": 1})
    env = {"HADOOP_CONF_DIR": str(tmp_path)}
    said = refusal(tmp_path, lake, golden_dir("craft", "shop"), env)
    assert "hdfs://127.0.0.1:9/any/lake" in said
    assert "cannot be reached: Connection refused" in said


# By its parts -----------------------------------------------------------------------------------


def test_the_store_keeps_commits_apart(
    store_lake: StoreLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert creating.probe_store(store_lake.path) is None
    assert list(files_below(store_lake.path)) == []
    # As if the store took a second file in the place of the first one.
    monkeypatch.setattr(creating, "_put", lambda path, data: path.write_bytes(data))
    assert "replaced the first" in str(creating.probe_store(store_lake.path))
    assert list(files_below(store_lake.path)) == []


def test_a_damaged_table_is_told_by_what_is_missing(table: RemotePath) -> None:
    assert broken(table, footers=True) is None
    write_table(table, ROWS, overwrite=False, metadata={"tso": 2})
    found = opened(table)
    (first, _) = (table / name for name in found.get_add_actions().column("path").to_pylist())
    first.write_bytes(b"other")
    assert "has 5 bytes where" in str(broken(table, footers=False))
    first.unlink()
    assert "is missing" in str(broken(table, footers=False))
    (table / "_delta_log" / f"{0:020}.json").unlink()
    assert "commit 0 of its log is missing" in str(broken(table, footers=False))
    next_process()
    with pytest.raises(LakeDamagedError):
        open_table(table)


@pytest.mark.s3
def test_a_store_that_is_away_is_told(s3_lake: S3Lake) -> None:
    there = s3_lake.path.store.storage
    away = Storage(
        endpoint="http://127.0.0.1:9", access_key=there.access_key, secret_key=there.secret_key
    )
    paths = LakePaths(root=remote_path(str(s3_lake.path), away, {}), changefeed="feed")
    for ask in (
        lambda: open_table(paths.cuts),
        # Nothing is known of a table then, and none is damaged.
        lambda: check_files(paths, mirror()),
        lambda: read_commit(paths.mirror("1"), 0),
    ):
        with pytest.raises(StoreUnavailableError, match="cannot be reached"):
            ask()


def test_a_lost_log_is_renewed_behind_what_was_published(table: RemotePath) -> None:
    (table / "_delta_log" / f"{0:020}.json").write_text("no action")
    renew_if_lost(table, 4, {})
    assert opened(table).version() == 5
    assert read_rows(table) == []
    assert [name for name in names_in(table) if "_damaged" in name] == ["_damaged_log_0"]
    write_table(table, ROWS, overwrite=True, metadata={"tso": 2})
    assert (opened(table).version(), len(read_rows(table))) == (6, 2)


def test_a_table_is_moved_whole(table: RemotePath) -> None:
    target = table.parent.parent / "set_aside" / "1"
    move(table, target)
    assert list(files_below(table)) == []
    assert len(read_rows(target)) == 2
    assert open_table(table) is None


def written(table: RemotePath) -> WrittenFile:
    (file,) = write_rows(table, FileLayout(schema=ROWS.schema), [ROWS])
    return file


def test_files_that_no_commit_names_go(table: RemotePath) -> None:
    left = written(table)
    assert (left.rows, left.size) == (2, (table / left.path).stat().st_size)
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    assert removable(table, long_ago) == []
    time.sleep(1.1)
    assert removable(table, long_ago, unnamed=timedelta(0)) == [table / left.path]


def test_a_table_that_is_open_is_brought_to_what_was_committed(table: RemotePath) -> None:
    first = open_table(table)
    assert open_table(table) is first
    write_deltalake(str(table), ROWS, mode="append", storage_options=delta_options(table))
    again = open_table(table)
    assert again is not None
    assert (again.version, len(read_rows(table))) == (1, 4)
    # One that was made anew in its place has the same numbers.
    remove_tree(table)
    time.sleep(0.01)
    for metadata in ({"tso": 1}, {"tso": 2, "more": "so that it is longer"}):
        write_table(table, ROWS.slice(0, 1), overwrite=False, metadata=metadata)
    again = open_table(table)
    assert again is not None
    assert (again.version, len(read_rows(table))) == (1, 2)


def test_folders_of_runs(store_lake: StoreLake) -> None:
    paths = LakePaths(root=store_lake.path, changefeed="feed")
    for prefix, left in ((WRITING, False), (READING, True)):
        own = Scratch(paths, prefix)
        place = own.folder() / "file"
        place.write_bytes(b"rows")
        remove_forgotten(paths)
        assert place.exists() == left
        own.close()
        assert not place.exists()


def test_folders_that_killed_readers_left(
    store_lake: StoreLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = LakePaths(root=store_lake.path, changefeed="feed")
    copies = (paths.base / ".reading-1" / "part", paths.base / ".reading-2" / "left" / "part")
    for copy in copies:
        copy.write_bytes(b"rows")
    remove_forgotten(paths)
    assert all(copy.exists() for copy in copies)
    monkeypatch.setattr(scratch, "_FORGOTTEN_SECONDS", -60)
    remove_forgotten(paths)
    assert not any(copy.exists() for copy in copies)


def test_which_changefeeds_there_are(store_lake: StoreLake) -> None:
    assert changefeeds_in(store_lake.path) == []
    raw = LakePaths(root=store_lake.path, changefeed="feed").raw_messages
    write_table(raw, ROWS, overwrite=False, metadata={})
    assert changefeeds_in(store_lake.path) == ["feed"]
