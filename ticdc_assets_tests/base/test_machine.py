"""What the machine refuses is one sentence, by the installed command in a process of its own."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ticdc_assets.base.machine import refusal
from ticdc_assets.demo.simulator.changefeed import StandInChangefeed
from ticdc_assets_tests.demo.simulator.builders import all_types_upstream, fill, write_capture

SETTINGS = """
changefeeds:
  - name: mine
    format: simple-json
    timezone: UTC
    source: {capture: messages.jsonl}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a changefeeds file and a capture."""
    folder = tmp_path_factory.mktemp("project")
    upstream = all_types_upstream()
    fill(upstream, upstream.tables[0], rows=3)
    write_capture(folder / "messages.jsonl", StandInChangefeed(upstream, "t").tick())
    (folder / "changefeeds.yaml").write_text(SETTINGS)
    return folder


@pytest.fixture(scope="module")
def synced(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake that was synced; tests take a copy of it."""
    lake = tmp_path_factory.mktemp("synced") / "lake"
    done = run(project, lake, "sync", "mine")
    assert done.returncode == 0, done.stderr
    return lake


@pytest.fixture
def lake(synced: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(synced, tmp_path / "lake"))


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Path]:
    """A device of its own, of a given size."""
    place = tmp_path / "device"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("a file system of its own cannot be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def remount(place: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", str(place)], check=True)


def run(
    project: Path, lake: Path, *words: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ticdc_assets.cli", *words],
        cwd=project,
        env={**os.environ, "TICDC_LAKE": str(lake), **(env or {})},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def sentence_of(done: subprocess.CompletedProcess[str]) -> str:
    """Return the one sentence that a command ended with."""
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    (line,) = (text for text in done.stderr.splitlines() if text.startswith("Error: "))
    return line


@pytest.mark.dagster
def test_a_full_device(project: Path, device: Path) -> None:
    lake = device / "lake"
    (device / "filling").write_bytes(bytes(30 * 1024 * 1024))
    remount(device, "size=30m")
    done = run(project, lake, "sync", "mine")
    assert "no space" in sentence_of(done).lower()
    assert "panicked" not in done.stderr
    (device / "filling").unlink()
    done = run(project, lake, "sync", "mine")
    assert done.returncode == 0, done.stderr


@pytest.mark.dagster
@pytest.mark.parametrize(
    ("free_kilobytes", "landed"),
    [
        pytest.param(1200, False, marks=pytest.mark.slow),
        pytest.param(2000, False, marks=pytest.mark.slow),
        (3100, True),
        pytest.param(3500, True, marks=pytest.mark.slow),
    ],
)
def test_a_device_that_gets_full_on_the_way(
    project: Path, device: Path, free_kilobytes: int, landed: bool
) -> None:
    """Dagster's database, the change log, the registry: wherever it ends, it goes on later."""
    lake = device / "lake"
    remount(device, f"size={free_kilobytes}k")
    done = run(project, lake, "sync", "mine")
    # If one of these fails, choose the size again: a sync now needs more or less than it did.
    assert done.returncode == 1
    assert (lake / "mine" / "raw_messages" / "_delta_log").is_dir() == landed
    assert "no space" in sentence_of(done).lower()
    remount(device, "size=64m")
    done = run(project, lake, "sync", "mine")
    assert done.returncode == 0, done.stderr
    assert "complete" in run(project, lake, "tables", "mine").stdout


@pytest.mark.dagster
def test_a_lake_that_is_read_only(project: Path, synced: Path, device: Path) -> None:
    lake = device / "lake"
    shutil.copytree(synced, lake)
    remount(device, "ro")
    assert "read-only" in sentence_of(run(project, lake, "sync", "mine")).lower()
    assert "complete" in run(project, lake, "tables", "mine").stdout
    shown = run(project, lake, "doctor")
    assert "FAIL  lake: " in shown.stdout


@pytest.mark.dagster
def test_no_jdk(project: Path, lake: Path, tmp_path: Path) -> None:
    env = {"PATH": str(tmp_path), "JAVA_HOME": ""}
    by_spark = ("sql", "mine", "SELECT 1", "--engine", "spark")
    assert "install Java 17 to 22" in sentence_of(run(project, lake, *by_spark, env=env))
    # What needs no Spark needs no Java.
    assert "1" in run(project, lake, "sql", "mine", "SELECT 1", env=env).stdout
    assert "complete" in run(project, lake, "tables", "mine", env=env).stdout


@pytest.mark.spark
def test_a_table_that_is_not_there_in_a_query(project: Path, lake: Path) -> None:
    query = ("sql", "mine", "SELECT * FROM d.typo")
    for said, engine in (("d.typo", "duckdb"), ("no table d.typo", "spark")):
        done = run(project, lake, *query, "--engine", engine)
        assert said in sentence_of(done)
        assert len(done.stderr) < 600


class PanicException(BaseException):  # it is called so where it is raised
    """As pyo3 raises it."""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/lake/x"), "the device of /lake/x"),
        (OSError("Generic LocalFileSystem error: (os error 28)"), "no space is left"),
        (RuntimeError("(sqlite3.OperationalError) database or disk is full"), "no space is left"),
        (PanicException("failed: No space left on device"), "no space is left"),
        (OSError(errno.EROFS, "Read-only file system", "/lake/x"), "/lake/x cannot be written"),
        (PermissionError(errno.EACCES, "Permission denied", "/lake/x"), "permission denied"),
        (MemoryError(), "no memory"),
    ],
)
def test_whatever_library_met_it(error: BaseException, said: str) -> None:
    wrapped = ValueError("something of Dagster's")
    wrapped.__cause__ = error
    assert said in (refusal(wrapped, []) or "")


def test_another_error_is_no_refusal(tmp_path: Path) -> None:
    for error in (KeyError("x"), RuntimeError("unable to open database file")):
        assert refusal(error, [tmp_path]) is None
