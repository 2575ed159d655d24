"""The log of a table that is opened again is read on from where it was read before."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ticdc_assets.base.errors import LakeDamagedError
from ticdc_assets.delta import log_reading
from ticdc_assets.delta.appending import write_table
from ticdc_assets.delta.control import commit_metadata, newest_row, read_rows
from ticdc_assets.delta.delta_files import broken
from ticdc_assets.delta.delta_protocol import file_id
from ticdc_assets.delta.opening import keeping, open_table
from ticdc_assets_tests.delta.libraries import next_process, opened


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "feed" / "landings"
    for number in range(3):
        add(path, number)
    return path


def add(path: Path, number: int) -> None:
    rows = pa.table({"number": pa.array([number], pa.int64())})
    write_table(path, rows, overwrite=False, metadata={"number": number})


def add_elsewhere(path: Path, number: int) -> None:
    """Commit as another program does, which knows nothing of what is kept here."""
    write_deltalake(str(path), pa.table({"number": pa.array([number], pa.int64())}), mode="append")


def numbers(path: Path) -> list[Any]:
    return sorted(row["number"] for row in read_rows(path))


def test_a_log_is_replayed_once(table: Path) -> None:
    first = open_table(table)
    assert first is not None
    assert open_table(table) is first
    assert open_table(table, 2) is first
    before = open_table(table, 1)
    assert before is not None
    assert (before.version, len(before.files)) == (1, 2)
    assert open_table(table) is first


def test_the_state_after_a_commit_of_this_process_is_that_of_its_entry(table: Path) -> None:
    for number in range(3, 25):
        add(table, number)
        kept, metadata = open_table(table), commit_metadata(table)
        next_process()
        read = open_table(table)
        assert kept is not None
        assert read is not None
        # A checkpoint has files in another order, and no objects of commits.
        assert replace(kept, files=(), memory={}) == replace(read, files=(), memory={})
        assert {file_id(item) for item in kept.files} == {file_id(item) for item in read.files}
        assert commit_metadata(table) == metadata == {"number": number}


@pytest.mark.parametrize("is_lost", [True, False])
def test_an_old_entry_that_broke_is_seen_by_the_next_process_and_on_a_close_look(
    table: Path, is_lost: bool
) -> None:
    entry = table / "_delta_log" / f"{1:020}.json"
    assert numbers(table) == [0, 1, 2]
    if is_lost:
        entry.unlink()
    else:
        entry.write_bytes(b"{")
    assert numbers(table) == [0, 1, 2]
    finding = "commit 1 of its log is " + ("missing" if is_lost else "torn")
    assert (broken(table, footers=False) or "").startswith(finding)
    next_process()
    with pytest.raises(LakeDamagedError, match=finding):
        open_table(table)


def test_the_newest_entry_that_broke_is_seen_at_once(table: Path) -> None:
    assert numbers(table) == [0, 1, 2]
    (table / "_delta_log" / f"{2:020}.json").write_bytes(b"{")
    with pytest.raises(LakeDamagedError, match="commit 2 of its log is torn"):
        open_table(table)


def test_only_so_many_states_are_kept(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reading, "_KEPT_STATES", 2)
    others = [table.parent / name for name in ("cuts", "quarantine")]
    for other in others:
        add(other, 1)
    first = open_table(table)
    assert open_table(others[0]) is not None
    assert open_table(table) is first, "the two used last"
    second = open_table(others[1])
    assert open_table(table) is first
    assert open_table(others[0]) is not None
    assert open_table(others[1]) is not second


@pytest.mark.parametrize("commit", [add, add_elsewhere])
def test_commits_are_seen_at_once(table: Path, commit: Callable[[Path, int], None]) -> None:
    with keeping("one"):
        for number in range(3, 30):
            commit(table, number)
            assert numbers(table) == list(range(number + 1))
            assert commit is not add or commit_metadata(table) == {"number": number}


def test_a_table_that_is_made_anew_in_its_place_is_another_one(table: Path) -> None:
    with keeping("one"):
        assert numbers(table) == [0, 1, 2]
        shutil.rmtree(table)
        for number in (7, 8, 9):
            add_elsewhere(table, number)
        assert numbers(table) == [7, 8, 9]


def test_a_table_that_is_gone_is_none(table: Path) -> None:
    with keeping("one"):
        assert open_table(table) is not None
        shutil.rmtree(table)
        assert open_table(table) is None


def test_the_newest_row_is_the_one_of_the_newest_number(table: Path) -> None:
    assert newest_row(table.parent / "none") is None
    assert newest_row(table) == {"number": 2}
    add(table, 2)
    with pytest.raises(LakeDamagedError, match=r"landings .* has 2 rows with number 2"):
        newest_row(table)


def test_what_a_caller_does_with_metadata_is_its_own(table: Path) -> None:
    with keeping("one"):
        commit_metadata(table)["number"] = 77
        assert commit_metadata(table) == {"number": 2}
    assert opened(table).version() == 2
