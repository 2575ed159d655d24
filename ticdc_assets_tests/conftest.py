"""What tests share: the golden messages, a Kafka broker, profiles of hypothesis."""

import gc
import os
import re
import signal
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import ticdc_assets.base.compiled  # noqa: F401  so tests of one process read with loops (`loops_pay`)
from ticdc_assets.spark import class_archive as archives
from ticdc_assets.spark.jars import SPARK_JARS, resolve
from ticdc_assets.spark.preflight import check_java
from ticdc_assets_tests.brokers import OwnBroker
from ticdc_assets_tests.examples import register_profiles
from ticdc_assets_tests.hdfs import HdfsLake, running_hdfs
from ticdc_assets_tests.s3 import S3Lake, running_gateway
from ticdc_assets_tests.stores import StoreLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ticdc_assets_tests.lake.feeds import LandingClock
    from ticdc_assets_tests.lake.golden_lakes import GoldenLakes

ROOT = Path(__file__).resolve().parent.parent

OF_THE_USER: Final = frozenset({"DAGSTER_HOME", "TICDC_CHANGEFEEDS", "TICDC_LAKE"})
"""Settings that no test takes from who runs it: one that forgot its own would write what is theirs.

`make test` sets them, too.
"""

for _name in OF_THE_USER:
    os.environ.pop(_name, None)

# A shell that starts a run in the background lets it ignore Ctrl-C, and so all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A program that a test starts would compile every module that it imports, dagster and pyspark too:
# several seconds of CPU each.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Tests run each plan once or twice: what the JVM's second compiler would gain, it never earns back.
# Without it the JVM has little room for code, and drops methods only to compile them again. Each
# commit of Spark starts programs such as chmod, which a large JVM does cheapest by vfork.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS",
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC "
    "-Djdk.lang.Process.launchMechanism=VFORK",
)

OF_THE_SESSION: Final = {
    # A heap that is large at once: one that grows as it must collects garbage all the time.
    "spark.driver.extraJavaOptions": "-Xms768m -Xmn256m",
    # Plans of equal tables come again in other tests; their code is compiled once.
    "spark.sql.codegen.cache.maxEntries": "2000",
    "spark.python.daemon.module": "ticdc_assets_tests.worker_daemon",
}
"""Spark's settings that make the session of a run cheaper, and change nothing that it answers."""

INTERPRETED: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Spark's settings for plans that run once over a few rows: to compile them costs more.

Programs that tests start, and the slow tests, use generated code, as users do.
"""

register_profiles()


# Fixtures that need something outside Python, and the marker that says so.
_MARKERS = {"broker": "kafka", "spark": "spark", "s3_gateway": "s3", "hdfs_root": "hdfs"}


_HEAVY = ("spark", "kafka", "dagster", "ui", "s3", "hdfs", "cluster", "slow")


_OF_A_FILE = re.compile(r"^pytestmark = (?:pytest\.mark\.\w+|\[[^]]*\])", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out a file none of whose tests is asked for: to import it may take seconds."""
    asked: str = config.option.markexpr
    if collection_path.suffix != ".py" or " or " in asked:
        return None
    found = _OF_A_FILE.search(collection_path.read_text(encoding="utf-8"))
    names = re.findall(r"mark\.(\w+)", found[0]) if found else []
    return True if any(f"not {name}" in asked for name in names) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a test that would be slow without saying so; begin with the files that take longest.

    Unmarked tests are the fast ones. Where more programs than one share the files, the fast files
    come last, so that no program waits for another that has begun a long one at the end.
    """
    for item in items:
        for fixture in getattr(item, "fixturenames", ()):
            marker = _MARKERS.get(fixture)
            if marker is not None and item.get_closest_marker(marker) is None:
                raise pytest.UsageError(f"{item.nodeid} uses {fixture}: mark it {marker}")
    if not items or not hasattr(items[0].config, "workerinput"):
        return  # one program runs them all
    weights = Counter(item.path for item in items if any(map(item.get_closest_marker, _HEAVY)))
    items.sort(key=lambda item: -weights[item.path])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let one of several workers own the JVMs that tests share."""
    if config.getoption("dist") != "loadfile":
        return None
    from ticdc_assets_tests.scheduling import OneOwner

    return OneOwner(config, log)


def pytest_collection_finish() -> None:
    """Keep the collector of garbage away from what was imported and collected.

    It would look at all of that again and again: a fifth of the time of tests with many objects.
    It still took a twentieth of the whole run, with its usual threshold of 700 objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def pytest_unconfigure() -> None:
    """Let Python free what there is: DuckDB's library prints what is not freed at the end."""
    gc.unfreeze()


@contextmanager
def own_settings() -> Generator[None]:
    """Put back, at the end, what was set of the settings; programs set them for their own."""
    before = {name: os.environ.get(name) for name in OF_THE_USER}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@pytest.fixture(autouse=True)
def settings_of_the_test() -> Generator[None]:
    """A test that runs a program in this process leaves no settings to the next one."""
    with own_settings():
        yield


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> "type[LandingClock]":
    """Let records land when a clock of the test says, as on days that are over."""
    from ticdc_assets.log import landing
    from ticdc_assets_tests.lake.feeds import LANDED, LandingClock

    monkeypatch.setattr(landing, "datetime", LandingClock)
    monkeypatch.setattr(LandingClock, "at", LANDED)
    return LandingClock


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's folder."""
    return ROOT


def _finding(name: str, variable: str) -> Callable[..., Path]:
    """Return the function that finds a folder of messages, or skips and says why."""
    base = Path(os.environ.get(variable) or ROOT.parent / "shared" / name)

    def find(*parts: str) -> Path:
        folder = base.joinpath(*parts)
        if not folder.is_dir():
            pytest.skip(f"no messages at {folder} ({variable} names another place)")
        return folder

    return find


@pytest.fixture(scope="session")
def golden_dir() -> Callable[..., Path]:
    """Return the function that finds a folder of golden messages, or skips and says why."""
    return _finding("golden", "TICDC_GOLDEN")


@pytest.fixture(scope="session")
def golden_new_dir() -> Callable[..., Path]:
    """Return the function that finds golden messages in the dialect of pingcap/ticdc."""
    return _finding("golden-new", "TICDC_GOLDEN_NEW")


@pytest.fixture(scope="session")
def cases_dir() -> Callable[..., Path]:
    """Return the function that finds a small capture with the rows that are right."""
    return _finding("cases", "TICDC_CASES")


@pytest.fixture(scope="session")
def java() -> None:
    """Skip, saying why, where no Java is found."""
    check = check_java()
    if not check.ok:
        pytest.skip(check.sentence())


@pytest.fixture(scope="session")
def class_archive(java: None) -> None:
    """See to it that JVMs start from the archive: tests start many, each takes a third less."""
    archives.class_archive(resolve(SPARK_JARS), make=True)


@pytest.fixture(scope="session")
def broker(class_archive: None, tmp_path_factory: pytest.TempPathFactory) -> Generator[OwnBroker]:
    """One Kafka broker for the whole session; tests make topics of their own."""
    with OwnBroker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, class_archive: None) -> "SparkSession":
    """The Spark session of this process; it ends with it."""
    from ticdc_assets.spark.session import get_spark

    is_by_day = "not slow" in request.config.option.markexpr
    return get_spark({**OF_THE_SESSION, **(INTERPRETED if is_by_day else {})})


@pytest.fixture(scope="session")
def golden_lakes(
    spark: "SparkSession", golden_dir: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> "GoldenLakes":
    """Lakes of golden scenarios, each synced once; a test that changes one takes a copy."""
    from ticdc_assets_tests.lake.golden_lakes import GoldenLakes

    return GoldenLakes(spark, tmp_path_factory.mktemp("golden"), golden_dir)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses; the topic is not made."""
    name = "".join(c if c.isascii() and c.isalnum() else "-" for c in request.node.name)
    return f"{name[:200]}-{os.urandom(4).hex()}"


@pytest.fixture(scope="session")
def s3_gateway(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[str, Path]]:
    """Run a gateway for S3; give its URL and the folder that has its objects."""
    folder = tmp_path_factory.mktemp("s3")
    with running_gateway(folder) as gateway:
        yield gateway.url, folder / "objects"


@pytest.fixture
def s3_lake(s3_gateway: tuple[str, Path]) -> S3Lake:
    """Give an empty lake in a bucket of its own."""
    url, objects = s3_gateway
    lake = S3Lake(endpoint=url, bucket=f"lake-{uuid.uuid4().hex[:12]}", folder=objects)
    (objects / lake.bucket).mkdir()
    return lake


@pytest.fixture(scope="session")
def hdfs_root(java: None, tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """Run an HDFS; give the URI of its name node."""
    with running_hdfs(tmp_path_factory.mktemp("hdfs")) as root:
        yield root


@pytest.fixture
def hdfs_lake(hdfs_root: str) -> HdfsLake:
    """Give an empty lake in a folder of its own."""
    return HdfsLake(root=hdfs_root, folder=f"lake-{uuid.uuid4().hex[:12]}")


@pytest.fixture(
    params=[
        pytest.param("s3_lake", marks=pytest.mark.s3, id="s3"),
        pytest.param("hdfs_lake", marks=pytest.mark.hdfs, id="hdfs"),
    ]
)
def store_lake(request: pytest.FixtureRequest) -> StoreLake:
    """Give an empty lake in each kind of store that runs here."""
    return request.getfixturevalue(request.param)
