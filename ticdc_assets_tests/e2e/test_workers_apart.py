"""A real cluster of Spark whose worker has another folder in the place of the lake's."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from ticdc_assets.engine.commits import newest_version
from ticdc_assets.ports import free_port
from ticdc_assets.simulator.changefeed import StandInChangefeed
from ticdc_assets.simulator.columns import column
from ticdc_assets.simulator.run import write_capture
from ticdc_assets.simulator.upstream import Upstream
from ticdc_assets_tests.commands import Commands
from ticdc_assets_tests.simulator.builders import fill

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = 21_000
"""More than are landed without Spark."""


@contextmanager
def cluster(folder: Path, *, apart: Path | None) -> Iterator[str]:
    """Run a master and a worker; the worker sees an empty folder at `apart`."""
    home = Path(pyspark.__file__).parent
    port = free_port()
    env = dict(os.environ) | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    spark_class = [str(home / "bin" / "spark-class")]
    master = f"spark://127.0.0.1:{port}"
    here = ["--host", "127.0.0.1", "--webui-port", "0"]
    room = ["--cores", "2", "--memory", "1g", "--work-dir", str(folder / "work")]
    deploy = "org.apache.spark.deploy"
    commands = [
        [*spark_class, f"{deploy}.master.Master", *here, "--port", str(port)],
        [*spark_class, f"{deploy}.worker.Worker", *here, *room, master],
    ]
    if apart is not None:
        mount = f'mount -t tmpfs none {apart} && exec "$@"'
        commands[1] = ["unshare", "--mount", "sh", "-c", mount, "sh", *commands[1]]
    with (folder / "cluster.log").open("wb") as log:
        programs = [
            subprocess.Popen(command, env=env, stdout=log, stderr=log, cwd=folder)
            for command in commands
        ]
        try:
            deadline = time.monotonic() + 120
            while "Registering worker" not in (folder / "cluster.log").read_text():
                assert time.monotonic() < deadline
                assert all(program.poll() is None for program in programs)
                time.sleep(0.2)
            yield master
        finally:
            for program in programs:
                program.terminate()
                program.wait(30)


@pytest.fixture
def commands(java: None, tmp_path: Path) -> Commands:
    upstream = Upstream()
    upstream.create_database("d")
    upstream.create_table(
        ("d", "t"),
        (column("id", "int", nullable=False), column("v", "varchar(20)")),
        primary_key=("id",),
    )
    fill(upstream, ("d", "t"), rows=ROWS)
    write_capture(tmp_path / "capture.jsonl", StandInChangefeed(upstream, "d", partitions=2).tick())
    found = Commands(tmp_path)
    found.add_capture("feed", tmp_path / "capture.jsonl")
    (tmp_path / "lake" / "feed").mkdir(parents=True)
    return found


def synced(commands: Commands, master: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    with monkeypatch.context() as patch:
        patch.setenv("TICDC_SPARK_MASTER", master)
        patch.setenv("TICDC_SPARK_DRIVER_MEMORY", "1g")
        done = commands.program("sync", "feed")
    return done.returncode, done.stderr


def test_a_worker_with_another_folder_commits_nothing(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare, to give a worker another folder")
    raw = commands.paths("feed").raw_messages
    with cluster(tmp_path, apart=tmp_path / "lake") as master:
        status, told = synced(commands, master, monkeypatch)
    assert status == 1, told
    assert "Traceback" not in told
    assert "do not share the lake's folder" in told
    assert str(commands.paths("feed").base) in told
    assert newest_version(raw) == -1
    assert not list(commands.paths("feed").base.rglob(".shared-*"))
    # The same cluster, but with the folder: all is landed, decoded and made, by workers.
    with cluster(tmp_path, apart=None) as master:
        status, told = synced(commands, master, monkeypatch)
    assert status == 0, told
    (mirror,) = commands.mirrors("feed")
    assert mirror["rows"] == ROWS
