"""Spark on a real cluster whose workers have nothing of ours but what a session brings them."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from ticdc_assets.base.ports import free_port
from ticdc_assets.delta.commits import newest_version
from ticdc_assets.demo.simulator.changefeed import StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.source.kafka.records import produce
from ticdc_assets.storage.paths import AnyPath
from ticdc_assets_tests.brokers import OwnBroker
from ticdc_assets_tests.clusters import Cluster, cluster, executor_environment, found
from ticdc_assets_tests.commands import Commands
from ticdc_assets_tests.delta.libraries import opened
from ticdc_assets_tests.demo.simulator.builders import write_capture
from ticdc_assets_tests.golden import Rows, rows_of
from ticdc_assets_tests.lake.feeds import truth_rows
from ticdc_assets_tests.s3 import SECRETS
from ticdc_assets_tests.secured_broker import PASSWORD, SecuredBroker, make_keys, source

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.kafka]

FEED = "feed"
ROWS = 24_000
"""More than are landed, decoded or folded without Spark."""

NOTE, STORE_KEY = "a-note-of-nobody-else", "a-key-of-a-store"


@dataclass(frozen=True)
class Feed:
    """A changefeed that is written to, a lake, and how Spark is set for it."""

    commands: Commands
    upstream: Upstream
    changefeed: StandInChangefeed

    @classmethod
    def of(cls, commands: Commands, topic: str) -> "Feed":
        upstream = Upstream()
        upstream.create_database("d")
        return cls(commands, upstream, StandInChangefeed(upstream, topic, partitions=2))

    def fill(self, table: str, *, rows: int = ROWS) -> None:
        name = ("d", table)
        columns = (column("id", "int", nullable=False), column("v", "varchar(100)"))
        self.upstream.create_table(name, columns, primary_key=("id",))
        for first in range(0, rows, 1000):
            with self.upstream.transaction() as transaction:
                for number in range(first, min(rows, first + 1000)):
                    values = {"id": str(number), "v": f"{number} " * 10}
                    transaction.insert(name, values)

    def change(self, table: str, *, rows: int) -> None:
        """Change every hundredth row of a table, so many of them."""
        with self.upstream.transaction() as transaction:
            for number in range(0, 100 * rows, 100):
                transaction.update(("d", table), (str(number),), changes={"v": "changed"})

    def set_spark(self, **properties: object) -> None:
        path = Path(self.commands.env["TICDC_CHANGEFEEDS"])
        path.write_text(json.dumps(json.loads(path.read_text()) | {"spark": properties}))

    @property
    def rows(self) -> Rows:
        """Every row of every mirror, read without the cluster: a session would hold executors."""
        done = self.commands.program("dump", FEED, env={"TICDC_SPARK_MASTER": "local[2]"})
        assert done.returncode == 0, done.stderr
        return rows_of(map(json.loads, done.stdout.splitlines()))

    @property
    def truth(self) -> Rows:
        return truth_rows(self.changefeed.truth())

    @property
    def landed(self) -> int:
        return newest_version(self.commands.paths(FEED).raw_messages)


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    """Commands on a lake in a folder, which this machine's workers share."""
    return Commands(tmp_path)


@pytest.fixture(params=["folder", pytest.param("s3", marks=[pytest.mark.s3, pytest.mark.slow])])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Commands:
    """Commands on a lake in a folder, or in a store that is all that workers and driver share."""
    return Commands(tmp_path, request.getfixturevalue("s3_lake") if request.param == "s3" else None)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of workers, which has what the package needs and not the package."""
    found = executor_environment(tmp_path_factory.mktemp("python") / "environment")
    program = found / "bin" / "python"
    words = [program, "-c", "import ticdc_assets"]
    done = subprocess.run(words, capture_output=True, cwd=found, check=False)
    assert b"No module named 'ticdc_assets'" in done.stderr
    return program


@pytest.fixture(scope="module")
def secured(java: None, tmp_path_factory: pytest.TempPathFactory) -> Generator[SecuredBroker]:
    folder = tmp_path_factory.mktemp("secured")
    with SecuredBroker(folder / "broker", make_keys(folder / "keys")) as broker:
        yield broker


def watched(program: "subprocess.Popen[bytes]", secrets: tuple[str, ...]) -> tuple[set[str], str]:
    """Wait for a program; return the commands that a secret was in, and what it said."""
    found: set[str] = set()
    deadline = time.monotonic() + 500
    while program.poll() is None:
        assert time.monotonic() < deadline
        for item in psutil.process_iter(["cmdline"]):
            words = " ".join(item.info["cmdline"] or ())
            found |= {words for secret in secrets if secret in words}
        time.sleep(0.5)
    assert program.stdout is not None
    return found, program.stdout.read().decode()


def test_a_cluster_with_a_bare_python_syncs_and_shows_no_secret(
    secured: SecuredBroker,
    topic: str,
    python: Path,
    anywhere: Commands,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    secured.create_topic(topic, 2)
    feed = Feed.of(anywhere, topic)
    feed.fill("t")
    produce(secured.source(topic), list(feed.changefeed.tick()))
    login = source(secured.options("SASL_PLAINTEXT"), secured.servers("SASL_PLAINTEXT"), topic)
    feed.commands.add_topic(FEED, login, secrets={"sasl.password": "KAFKA_PASSWORD"})
    events = tmp_path / "events"
    events.mkdir()
    secrets = {"KAFKA_PASSWORD": PASSWORD, "STORE_KEY": STORE_KEY, "NOTE": NOTE}
    if anywhere.store is not None:
        secrets["LAKE_SECRET_KEY"] = SECRETS["LAKE_SECRET_KEY"]
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    with cluster(tmp_path / "cluster", python) as made:
        feed.set_spark(
            **made.properties,
            **{
                "spark.eventLog.enabled": "true",
                "spark.eventLog.dir": events.as_uri(),
                "spark.eventLog.compress": "false",
                "spark.ui.enabled": "true",
                "spark.ui.port": str(free_port()),
                "spark.hadoop.fs.azure.account.key.me": {"env": "STORE_KEY"},
                # No word in their names says that these are secret.
                "spark.hadoop.ticdc.note": {"env": "NOTE"},
                "spark.executorEnv.TICDC_NOTE": {"env": "NOTE"},
            },
        )
        program = feed.commands.start(
            *("sync", FEED), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        shown, told = watched(program, tuple(secrets.values()))
        assert program.returncode == 0, told + made.log.read_text()[-5000:]
        logged = "".join(text for _, text in made.texts())
    assert not shown
    shipped = list((tmp_path / "cluster").glob("work-*/*/*/ticdc_assets-*.zip"))
    assert {path.parts[-4] for path in shipped} == {"work-0", "work-1"}
    events_told = "".join(path.read_text() for path in events.rglob("*") if path.is_file())
    # Spark's own account of its settings, which its page shows, has the names alone.
    for name in ("spark.hadoop.ticdc.note", "spark.hadoop.fs.azure.account.key.me"):
        assert f'"{name}":"*********(redacted)"' in events_told
    for secret in secrets.values():
        for text in (events_told, logged, told):
            assert secret not in text
            assert json.dumps(secret)[1:-1] not in text
    tasks = [
        json.loads(line) for line in events_told.splitlines() if '"SparkListenerTaskEnd"' in line
    ]
    assert {task["Task Info"]["Executor ID"] for task in tasks} == {"0", "1"}
    raw = opened(feed.commands.paths(FEED).raw_messages)
    assert len(raw.file_uris()) == 2  # each worker fetched a share
    assert feed.rows == feed.truth
    # It has worked, so a small sync asks nobody, and needs no Spark at all: the cluster is gone.
    feed.fill("u", rows=3)
    produce(secured.source(topic), list(feed.changefeed.tick()))
    feed.commands.ran("sync", FEED)
    assert feed.rows == feed.truth


# A worker that dies -----------------------------------------------------------------------------


def commits(folder: AnyPath) -> int:
    return len(found(folder, "*.json"))


def merges(mirrors: AnyPath) -> int:
    return sum('"operation":"MERGE"' in log.read_text() for log in found(mirrors, "*.json"))


@dataclass(frozen=True)
class Moment:
    """A piece of work on the cluster.

    Attributes:
        begun: whether it has begun.
        ended: whether it has ended.
    """

    begun: Callable[[], bool]
    ended: Callable[[], bool]


def moment(what: str, feed: Feed, made: Cluster) -> Moment:
    """Return when a piece of work of the next sync has begun and ended."""
    paths = feed.commands.paths(FEED)
    tables = {"landing": paths.raw_messages, "decoding": paths.change_log}
    folder = tables.get(what, paths.row_folders[0])

    def files() -> set[str]:
        # A fold sends rows to their buckets first; a MERGE may need no shuffle.
        if what == "folding":
            return made.shuffled()
        return set(map(str, found(folder, "*.parquet")))

    def done() -> int:
        # Before a MERGE there may be a commit that lets the mirror have deletion vectors.
        return merges(folder) if what == "merging" else commits(folder)

    before, done_before = files(), done()
    return Moment(lambda: not files() <= before, lambda: done() != done_before)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("what", ["landing", "decoding", "folding", "merging"])
def test_a_worker_that_is_killed_in_the_middle_changes_nothing(
    what: str, broker: OwnBroker, topic: str, python: Path, anywhere: Commands, tmp_path: Path
) -> None:
    broker.create_topic(topic, 2)
    feed = Feed.of(anywhere, topic)
    feed.commands.add_topic(FEED, broker.source(topic))
    feed.fill("t")
    if what == "merging":
        produce(broker.source(topic), list(feed.changefeed.tick()))
        feed.commands.ran("sync", FEED)
        feed.change("t", rows=200)
    produce(broker.source(topic), list(feed.changefeed.tick()))
    with cluster(tmp_path / "cluster", python) as made:
        feed.set_spark(**made.properties)
        wanted = moment(what, feed, made)
        program = feed.commands.start(
            *("sync", FEED), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        try:
            deadline = time.monotonic() + 600
            while not wanted.begun() and program.poll() is None:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            is_amid = program.poll() is None and not wanted.ended()
            assert made.kill_worker(1) > 1  # with its executor
            made.add_worker()
            told, _ = program.communicate(timeout=600)
        finally:
            program.kill()
            program.communicate()
        assert program.returncode == 0, told.decode()
    assert is_amid
    assert feed.rows == feed.truth
    assert merges(feed.commands.paths(FEED).row_folders[0]) == (what == "merging")


# Clusters that cannot work ----------------------------------------------------------------------


def captured(commands: Commands, *, rows: int) -> Feed:
    """A changefeed over a capture, for what needs no broker."""
    feed = Feed.of(commands, "d")
    feed.fill("t", rows=rows)
    write_capture(commands.folder / "capture.jsonl", feed.changefeed.tick())
    commands.add_capture(FEED, commands.folder / "capture.jsonl")
    return feed


def refused(feed: Feed, **env: str) -> str:
    """Sync in vain; return the sentence, which `doctor` says too."""
    done = feed.commands.program("sync", FEED, env=env)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert feed.landed == -1
    assert not list(feed.commands.paths(FEED).root.rglob(".reading-*"))
    (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    checked = feed.commands.program("doctor", env=env)
    assert checked.returncode == 1
    (told,) = [line for line in checked.stdout.splitlines() if line.startswith("FAIL")]
    assert told.startswith("FAIL  spark cluster: ")
    return sentence


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_cluster_that_cannot_work_is_refused_before_anything_is_landed(
    java: None, python: Path, commands: Commands, tmp_path: Path
) -> None:
    feed = captured(commands, rows=20)  # so few that Spark would not be needed
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    with cluster(tmp_path / "cluster", python, workers=1) as made:
        feed.set_spark(**made.properties, **{"spark.ticdc.package": "installed"})
        assert "No module named 'ticdc_assets'" in refused(feed)
        feed.set_spark(**made.properties | {"spark.pyspark.python": str(bare / "bin" / "python")})
        sentence = refused(feed)
        assert "cannot import" in sentence
        assert "No module named 'pyarrow'" in sentence
        feed.set_spark(**made.properties | {"spark.pyspark.python": "/nowhere/python"})
        assert "/nowhere/python" in refused(feed)
        # What was refused is taken as soon as it is mended.
        feed.set_spark(**made.properties)
        feed.commands.ran("sync", FEED)
    assert feed.rows == feed.truth


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_worker_with_another_folder_commits_nothing(
    java: None, python: Path, commands: Commands, tmp_path: Path
) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare, to give a worker another folder")
    feed = captured(commands, rows=ROWS)
    base = feed.commands.paths(FEED).base
    base.mkdir(parents=True)
    mount = f'mount -t tmpfs none {tmp_path / "lake"} && exec "$@"'
    with cluster(tmp_path / "apart", python, workers=0) as made:
        made.add_worker(wrap=("unshare", "--mount", "sh", "-c", mount, "sh"))
        feed.set_spark(**made.properties)
        sentence = refused(feed)
    assert "do not share the lake's folder" in sentence
    assert str(base) in sentence
    # The same cluster, but with the folder: all is landed, decoded and made, by workers.
    with cluster(tmp_path / "together", python, workers=1) as made:
        feed.set_spark(**made.properties)
        feed.commands.ran("sync", FEED)
    assert feed.rows == feed.truth


@pytest.mark.slow
def test_a_cluster_without_a_worker_is_given_up_in_time(
    java: None, commands: Commands, tmp_path: Path
) -> None:
    feed = captured(commands, rows=20)
    program = (
        "from ticdc_assets.spark import cluster; cluster.ANSWER_SECONDS = 5.0; "
        "from ticdc_assets.cli import main; main()"
    )
    with cluster(tmp_path / "cluster", sys.executable, workers=0) as made:
        feed.set_spark(**made.properties)
        process = feed.commands.start(
            *("sync", FEED), program=(sys.executable, "-c", program), stderr=subprocess.PIPE
        )
        _, told = process.communicate(timeout=300)
    assert process.returncode == 1
    assert f"no executor of Spark at {made.master} has answered within 5 s" in told.decode()
    assert feed.landed == -1


# The Python of workers, from an archive ---------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_workers_take_their_python_from_an_archive(
    java: None, python: Path, commands: Commands, tmp_path: Path
) -> None:
    feed = captured(commands, rows=ROWS)
    archive = tmp_path / "environment.tar.gz"
    environment = python.parent.parent
    # As `make archive` does, but quickly.
    pack = ["tar", "-cf", archive, "--use-compress-program", "gzip -1", "-C", environment, "."]
    subprocess.run(pack, check=True)
    with cluster(tmp_path / "cluster", "./environment/bin/python", workers=1) as made:
        feed.set_spark(**made.properties, **{"spark.archives": f"{archive}#environment"})
        told = feed.commands.ran("doctor")
        assert f"1 executors at {made.master}" in told
        feed.commands.ran("sync", FEED)
    assert feed.rows == feed.truth
