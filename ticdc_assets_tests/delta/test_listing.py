"""The log of a table in a store is listed once while this process holds the writer lock."""

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ticdc_assets.delta import log_reading
from ticdc_assets.delta.appending import write_table
from ticdc_assets.delta.log_reading import forget, listed_once, versions_of
from ticdc_assets.delta.opening import latest_version
from ticdc_assets.storage.paths import RemotePath, delta_options
from ticdc_assets_tests.s3 import S3Lake

pytestmark = pytest.mark.s3

ROWS = pa.table({"number": pa.array([1], pa.int64())})


@pytest.fixture
def table(s3_lake: S3Lake) -> RemotePath:
    return s3_lake.path / "feed" / "landings"


def add(path: RemotePath) -> None:
    write_table(path, ROWS, overwrite=False, metadata={"number": 1})


def add_elsewhere(path: RemotePath) -> None:
    """Commit as another process does, which nobody here is told of."""
    write_deltalake(str(path), ROWS, mode="append", storage_options=delta_options(path))


def test_commits_of_this_process_are_known_unread(
    table: RemotePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listed_once():
        assert versions_of(table) == []
        for version in range(3):
            add(table)
            assert latest_version(table) == version
            assert versions_of(table) == [*range(version + 1)]
    monkeypatch.setattr(log_reading, "commit_actions", None)
    for _ in range(2):
        with listed_once():
            assert latest_version(table) == 2


def test_only_the_holder_of_the_lock_lists_once(table: RemotePath) -> None:
    add(table)
    with listed_once():
        assert versions_of(table) == [0]
        add_elsewhere(table)
        assert versions_of(table) == [0]
        forget(table)
        assert versions_of(table) == [0, 1]
    add_elsewhere(table)
    assert latest_version(table) == 2
    with listed_once():
        assert latest_version(table) == 2


def test_a_commit_of_another_process_meanwhile_is_no_loss(table: RemotePath) -> None:
    add(table)
    with listed_once():
        assert latest_version(table) == 0
        add_elsewhere(table)
        add(table)
        assert latest_version(table) == 2
