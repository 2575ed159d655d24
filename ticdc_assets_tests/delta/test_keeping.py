"""Tables that one sync opens again are read again only if something was committed."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ticdc_assets.base.errors import LakeDamagedError
from ticdc_assets.delta import control
from ticdc_assets.delta.appending import write_table
from ticdc_assets.delta.control import commit_metadata, keeping, open_table, opened, read_rows


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


def test_a_table_is_opened_once_a_sync(table: Path) -> None:
    first = open_table(table)
    assert open_table(table) is first
    assert open_table(table, 1) is not first
    with keeping("one"):
        second = open_table(table)
        assert second is not first
        assert open_table(table) is second
    with keeping("one"):
        assert open_table(table) is second


def test_a_sync_sees_what_was_broken_without_a_trace(table: Path) -> None:
    log = table / "_delta_log"
    with keeping("one"):
        assert numbers(table) == [0, 1, 2]
    times = log.stat()
    (log / f"{1:020}.json").write_bytes(b"{")
    os.utime(log, ns=(times.st_atime_ns, times.st_mtime_ns))
    with keeping("two"), pytest.raises(LakeDamagedError):
        open_table(table)


def test_only_so_many_tables_are_kept_open(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "_KEPT_OPEN", 2)
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


def test_a_commit_by_the_kept_table_itself_is_seen(table: Path) -> None:
    with keeping("one"):
        kept = open_table(table)
        assert kept is not None
        write_deltalake(kept, pa.table({"number": pa.array([9], pa.int64())}), mode="append")
        assert numbers(table) == [0, 1, 2, 9]


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


def test_a_commit_that_is_lost_is_damage(table: Path) -> None:
    with keeping("one"):
        assert open_table(table) is not None
        (table / "_delta_log" / f"{1:020}.json").unlink()
        with pytest.raises(LakeDamagedError):
            open_table(table)


def test_what_a_caller_does_with_metadata_is_its_own(table: Path) -> None:
    with keeping("one"):
        commit_metadata(table)["number"] = 77
        assert commit_metadata(table) == {"number": 2}
    assert opened(table).version() == 2
