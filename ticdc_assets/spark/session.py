"""The Spark session: one set of versions and settings for commands, Dagster and tests.

The settings are for small machines (bench/figures.md): few shuffle partitions, because a sync moves
few rows, and one task for a Delta snapshot. UTC is the session's time zone: the changefeed's zone
is applied where values are converted.

Spark's expressions (`col`, `lit`, a window) can only be built while Spark runs, and a lazy session
does not run before its first use. So only this module may import `pyspark.sql.functions`, which the
linter checks: `functions(spark)` starts the session and then returns that module
(docs/decisions/0097-spark-through-dataframes.md).
"""

import logging
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql import functions as _functions

from ticdc_assets.base.errors import PrerequisiteError
from ticdc_assets.base.isolation import first_sentence
from ticdc_assets.base.own_files import documented
from ticdc_assets.base.progress import tell
from ticdc_assets.config import SparkSettings, lake_path, load_spark_settings
from ticdc_assets.config.spark import (
    INSTALLED,
    MASTER,
    MEMORY,
    OF_A_CLUSTER,
    OWN,
    PACKAGE,
    PYTHON,
    REMOTE,
    REMOTE_VARIABLE,
    is_local,
)
from ticdc_assets.spark.class_archive import archive_options
from ticdc_assets.spark.driver import has_jvm, is_stopped, running, set_hadoop, start_jvm
from ticdc_assets.spark.jars import lake_jars, spark_home
from ticdc_assets.spark.preflight import require_java
from ticdc_assets.spark.shipping import ship
from ticdc_assets.storage.paths import RemotePath

SPARK_ERRORS = (Py4JError, PySparkException)
"""The errors that calls to Spark raise."""

_SECRETS = "(?i)secret|password|passwd|token|credential|access[.]?key|jaas|keystore|ssl[.]key"
_REDACTED = ("spark.redaction.regex", "spark.sql.redaction.options.regex")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_CLASS_PATH = "spark.driver.extraClassPath"
_JARS = "spark.jars"
_EXTENSIONS = "spark.sql.extensions"
_DELTA = "io.delta.sql.DeltaSparkSessionExtension"
_HOST = "spark.driver.host"
_OF_A_SESSION = ("spark.sql.", "spark.databricks.")
_DATABRICKS = "spark.databricks.clusterUsageTags.clusterId"
"""A property of every Databricks session, which has its own Delta Lake."""
_ADDED_TO_OURS = (*_REDACTED, _JAVA_OPTIONS, _CLASS_PATH, _JARS, _EXTENSIONS)
"""Properties with several values: given values follow this package's."""

_REPEATING_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""These print each error of a query as JSON with Java's whole stack; the error is raised anyway."""

_STARTING = RLock()
"""A process has one JVM, so only one thread starts Spark at a time."""

LOG4J = Path(__file__).parent / "log4j2.properties"


def session_conf(
    extra: Mapping[str, str] | None = None,
    *,
    settings: SparkSettings | None = None,
    jars: Sequence[Path] | None = None,
) -> dict[str, str]:
    """Return the Spark configuration. It may contain secrets: never log it.

    Args:
        extra: properties that override those of the settings.
        settings: Spark's settings; those of the environment if None.
        jars: the jars besides Spark's own; the lake's if None.
    """
    settings = load_spark_settings() if settings is None else settings
    given = {MASTER: settings.master, **settings.values, **(extra or {})}
    local = is_local(given[MASTER])
    lake = lake_path()
    jars = lake_jars(lake) if jars is None else jars
    places = [str(jar) for jar in jars]
    if local:
        given = {name: value for name, value in given.items() if name not in OF_A_CLUSTER}
        # The one JVM has them on its class path: no copy is made, and the class archive has them.
        placed = {
            _CLASS_PATH: _joined(os.pathsep, *places, given.get(_CLASS_PATH)),
            **({_JARS: given[_JARS]} if _JARS in given else {}),
            "spark.driver.bindAddress": "127.0.0.1",
            _HOST: "127.0.0.1",
        }
    else:
        # Resolved jars are given as files: calling Ivy again would add seconds to every start.
        placed = {_JARS: _joined(",", *places, given.get(_JARS))}
        placed |= {_CLASS_PATH: given[_CLASS_PATH]} if _CLASS_PATH in given else {}
        host = _address_towards(given[MASTER])
        placed |= {} if host is None else {_HOST: host}
    # Spark shows its settings with these names, and Hadoop's without the prefix.
    secret = [
        name.removeprefix("spark.hadoop.").replace(".", "[.]") for name in sorted(settings.secrets)
    ]
    return {
        "spark.app.name": "ticdc_assets",
        "spark.driver.memory": "3g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "5000",
        # Rows may be large: a worker gets at most this many bytes of them at a time. The JVM holds
        # a few such batches outside its heap; with 32 MiB it took 150 MB more.
        "spark.sql.execution.arrow.maxBytesPerBatch": "4m",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
        # Arrow batches of 300 wide columns: do not inline generated code beyond the JVM's limit.
        "spark.sql.codegen.maxFields": "100",
        **placed,
        **{name: value for name, value in given.items() if name not in _ADDED_TO_OURS},
        **(lake.store.spark_settings() if isinstance(lake, RemotePath) else {}),
        **OWN,
        # Storage credentials are passed as options; plans and logs must not show them.
        **{name: _joined("|", _SECRETS, *secret, given.get(name)) for name in _REDACTED},
        _EXTENSIONS: _joined(",", _DELTA, given.get(_EXTENSIONS)),
        _JAVA_OPTIONS: _joined(
            " ",
            f"-Dlog4j2.configurationFile={LOG4J.as_uri()}",
            *(archive_options(jars) if local else ()),
            *(_SMALL_MEMORY if local and MEMORY not in given else ()),
            # Spark's classes fill this soon; until then the JVM would run a full collection many
            # times.
            "-XX:MetaspaceSize=256m",
            given.get(_JAVA_OPTIONS),
        ),
    }


_SMALL_MEMORY = (
    # With few gigabytes it holds a third less than the JVM's default, and takes no more CPU.
    "-XX:+UseSerialGC",
    # By default the heap starts at a 64th of the machine's memory, and a long run touches all of
    # that.
    "-Xms64m",
    # The vectors of a task that reads live for a few young collections. Without room for them
    # there, they fill the old generation, and each scan of a mirror pays for a full collection, a
    # third of its time.
    *("-XX:NewRatio=1", "-XX:SurvivorRatio=3", "-XX:TargetSurvivorRatio=90"),
)
"""The options of the driver's JVM, if nobody sets its memory."""


def _joined(separator: str, *values: str | None) -> str:
    return separator.join(value for value in values if value)


def _address_towards(master: str) -> str | None:
    """Return this machine's address as a standalone master sees it; None for other masters.

    Spark itself resolves this machine's name to an address, which workers often cannot reach.
    """
    servers = master.removeprefix("spark://")
    if servers == master or os.environ.get("SPARK_LOCAL_IP"):
        return None
    host, _, port = servers.split(",")[0].rpartition(":")
    try:
        place = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
        with socket.socket(*place[:2]) as probe:
            # Nothing is sent: the machine only chooses the address that it would send from.
            probe.connect(place[4])
            return probe.getsockname()[0]
    except (OSError, ValueError):
        return None


class LazySession(SparkSession):
    """A Spark session that starts at its first use.

    A sync that moves few rows needs no session, and would take most of its time to start one.
    Callers use it like a session. Any thread may use it first, and all get the same session. After
    a session was stopped, the next use starts another one.
    """

    def __init__(self, extra: Mapping[str, str] | None = None) -> None:
        started: list[SparkSession] = []

        def session() -> SparkSession:
            with _STARTING:
                if not started or is_stopped(started[0]):
                    started[:] = [running() or get_spark(extra)]
                return started[0]

        object.__setattr__(self, "_started", session)

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            return LazySession
        return getattr(object.__getattribute__(self, "_started")(), name)


def functions(spark: SparkSession):  # only type inference can name the module's type
    """Return `pyspark.sql.functions`, whose expressions need Spark, once the session has started.

    Call it where the first expression is built, after the code that needs no Spark.
    """
    _ = spark.conf
    return _functions


def get_spark(
    extra: Mapping[str, str] | None = None,
    *,
    settings: SparkSettings | None = None,
    jars: Sequence[Path] | None = None,
) -> SparkSession:
    """Return the Spark session of this process; the first call starts it.

    Args:
        extra: properties that override those of the settings.
        settings: Spark's settings; those of the environment if None.
        jars: the jars besides Spark's own; the lake's if None.

    Raises:
        ConfigError: Spark's settings are wrong.
        PrerequisiteError: there is no Java that Spark runs on, or its JVM does not start.
    """
    settings = load_spark_settings() if settings is None else settings
    if settings.remote is not None:
        return _connected(settings, settings.remote, extra or {})
    if SparkSession.getActiveSession() is None:
        require_java()
    conf = session_conf(extra, settings=settings, jars=jars)
    local = is_local(conf[MASTER])
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # pyspark would start another Spark that the user's environment points to.
    os.environ["SPARK_HOME"] = str(spark_home())
    # Workers of this machine must run this interpreter, not the system's python.
    python = os.environ.get("PYSPARK_PYTHON") or sys.executable
    os.environ["PYSPARK_PYTHON"] = sys.executable if local else conf.get(PYTHON, python)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    for name in _REPEATING_LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        with _STARTING:
            if running() is None:
                tell("starting Spark" if local else f"starting Spark at {conf[MASTER]}")
                if local and _WAREHOUSE not in conf:
                    folder = TemporaryDirectory(prefix="ticdc-spark-", ignore_cleanup_errors=True)
                    _FOLDERS.append(folder)
                    conf[_WAREHOUSE] = f"file:{folder.name}"
            spark = _started(conf, settings.secrets)
            lake = lake_path()
            if isinstance(lake, RemotePath):
                set_hadoop(spark, lake.store.hadoop_secrets())
    except PySparkRuntimeError as error:
        raise PrerequisiteError(
            f"Spark's JVM did not start ({first_sentence(error)}); look at what Java printed, "
            f"at {MEMORY} (TICDC_SPARK_DRIVER_MEMORY) and at the free memory"
        ) from None
    if not local and conf.get(PACKAGE) != INSTALLED:
        ship(spark)
    return spark


_WAREHOUSE = "spark.sql.warehouse.dir"

_FOLDERS: list[TemporaryDirectory[str]] = []
"""Folders that are removed when this process ends.

Spark puts some files into them that by default would be in the current folder.
"""


def _connected(settings: SparkSettings, remote: str, extra: Mapping[str, str]) -> SparkSession:
    """Return a session of a Spark Connect server, which has its own driver, jars and storage."""
    place = remote.partition(";")[0]
    with _STARTING:
        if (spark := running()) is not None:
            return spark
        tell(f"connecting to Spark at {place}")
        try:
            spark = SparkSession.builder.remote(remote).getOrCreate()
            extensions = spark.conf.get(_EXTENSIONS, "") or ""
        except ImportError as error:
            raise PrerequisiteError(
                f"{REMOTE} is {place}, and a library for Spark Connect is not installed "
                f"({first_sentence(error)}); install ticdc-assets[connect]"
            ) from None
        except PySparkException as error:
            raise PrerequisiteError(
                f"Spark at {place} cannot be reached ({first_sentence(error)}); look at {REMOTE} "
                f"({REMOTE_VARIABLE}), and whether the server runs"
            ) from None
        if _DELTA not in extensions and spark.conf.get(_DATABRICKS, None) is None:
            spark.stop()
            raise PrerequisiteError(
                f"Spark at {place} has no Delta Lake; start the server with Delta's jars and "
                f"{_EXTENSIONS}={_DELTA} (see {documented('cluster')})"
            )
        given = {**settings.values, **extra, **OWN}
        for name, value in given.items():
            # The server sets the others when it starts.
            if name.startswith(_OF_A_SESSION) and spark.conf.isModifiable(name):
                spark.conf.set(name, value)
        if given.get(PACKAGE) != INSTALLED:
            ship(spark)
    return spark


def _started(conf: Mapping[str, str], secrets: frozenset[str]) -> SparkSession:
    """Start a session with a configuration; secrets reach no command line."""
    if secrets and not has_jvm():
        # pyspark passes the whole configuration as words of the JVM's command, which every user of
        # the machine can read.
        start_jvm({name: value for name, value in conf.items() if name not in secrets})
    builder = SparkSession.builder
    for name, value in conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
