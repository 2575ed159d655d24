"""A real cluster of Spark, standalone: a master, and workers whose Python has nothing of ours.

The lake is whatever the commands that use the cluster are given; workers see all of this machine's
files, so a folder is shared.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyspark
import pytest

from ticdc_assets.base.ports import free_port
from ticdc_assets.storage.paths import AnyPath

ROOT = Path(__file__).resolve().parent.parent
HOST = "127.0.0.1"
_DEPLOY = "org.apache.spark.deploy"


def found(folder: AnyPath, pattern: str) -> list[AnyPath]:
    """Return the files below a folder in which a sync makes and removes folders meanwhile."""
    while True:
        with suppress(FileNotFoundError):
            return list(folder.rglob(pattern))


@dataclass
class Cluster:
    """A master and workers of one core each; the folder has their logs and what they work in.

    Args:
        folder: the folder.
        python: the Python of the workers, as `spark.pyspark.python` says it.
        memory: memory of each executor.
    """

    folder: Path
    python: str
    memory: str = "1g"
    port: int = field(default_factory=free_port)
    page_port: int = field(default_factory=free_port)
    workers: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    @property
    def master(self) -> str:
        return f"spark://{HOST}:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / "cluster.log"

    @property
    def properties(self) -> dict[str, str]:
        """What a user writes into `spark` of the changefeeds file."""
        return {
            "spark.master": self.master,
            "spark.driver.memory": "1g",
            "spark.executor.memory": self.memory,
            "spark.pyspark.python": self.python,
        }

    def spawn(
        self, kind: str, *arguments: str, wrap: tuple[str, ...] = (), **more: str
    ) -> "subprocess.Popen[bytes]":
        """Start a program of the cluster; `more` is its environment beside what it needs."""
        home = Path(pyspark.__file__).parent
        env = {
            name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME") if name in os.environ
        }
        # Compiled loops are kept where they were, or each worker would compile for half a minute.
        env |= {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": HOST, "SPARK_DAEMON_MEMORY": "256m"}
        env |= more
        command = [str(home / "bin" / "spark-class"), f"{_DEPLOY}.{kind}", "--host", HOST]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*wrap, *command, *arguments],
                env=env,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def add_worker(self, *, wrap: tuple[str, ...] = ()) -> None:
        """Start a worker, and wait until the master knows it."""
        known = self._said("Registering worker")
        work, local = (self.folder / f"{name}-{len(self.workers)}" for name in ("work", "local"))
        local.mkdir()
        room = ("--cores", "1", "--memory", "1200m", "--work-dir", str(work))
        page = ("--webui-port", "0")
        worker = self.spawn(
            "worker.Worker", *page, *room, self.master, wrap=wrap, SPARK_LOCAL_DIRS=str(local)
        )
        self.workers.append(worker)
        self.wait(lambda: self._said("Registering worker") > known)

    def kill_worker(self, number: int) -> int:
        """Kill a worker and all it started, at once; return how many programs that were."""
        worker = self.workers[number]
        programs = [psutil.Process(worker.pid)]
        programs += programs[0].children(recursive=True)
        for program in programs:
            with suppress(ProcessLookupError):
                os.kill(program.pid, signal.SIGKILL)
        worker.wait(30)
        return len(programs)

    def shuffled(self) -> set[str]:
        """Return the files by which rows are on their way from one executor to another."""
        return set(map(str, found(self.folder, "shuffle_*")))

    def texts(self) -> Iterator[tuple[str, str]]:
        """Yield all that master, workers and executors logged, with a name of each."""
        for path in [self.log, *self.folder.glob("work-*/*/*/std*")]:
            yield str(path), path.read_text(errors="replace")

    def _said(self, what: str) -> int:
        return self.log.read_text(errors="replace").count(what) if self.log.exists() else 0

    def wait(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + 180
        while not is_so():
            assert time.monotonic() < deadline, self.log.read_text(errors="replace")[-3000:]
            time.sleep(0.1)


@contextmanager
def cluster(folder: Path, python: Path | str, *, workers: int = 2) -> Iterator[Cluster]:
    """Run a cluster; it ends with the block, whatever is left of it."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Cluster(folder, str(python))
    pages = ("--port", str(made.port), "--webui-port", str(made.page_port))
    master = made.spawn("master.Master", *pages)
    try:
        made.wait(lambda: made._said("I have been elected leader") > 0)
        for _ in range(workers):
            made.add_worker()
        yield made
    finally:
        for number, worker in enumerate(made.workers):
            if worker.poll() is None:
                made.kill_worker(number)
        master.kill()
        master.wait(30)


def executor_environment(folder: Path) -> Path:
    """Make the Python of workers as docs/cluster.md says, and return its folder; or skip."""
    uv = shutil.which("uv") or str(ROOT / ".venv-uv" / "bin" / "uv")
    if not Path(uv).exists():
        pytest.skip("no uv, on PATH or in .venv-uv, to make the Python of Spark's workers")
    done = subprocess.run(
        ["make", "--no-print-directory", "environment", f"ENVIRONMENT={folder}"],
        cwd=ROOT,
        env=_without_make(os.environ),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def _without_make(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if not name.startswith(("MAKE", "MFLAGS"))}
