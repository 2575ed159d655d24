"""The Spark session: one set of versions and settings for commands, Dagster and tests.

The settings are those that were measured to matter on small machines (docs/performance.md): few
shuffle partitions, because a sync moves few rows; one task for a Delta snapshot; deletion vectors
and column mapping from a mirror's first version. UTC is the session's time zone: the changefeed's
zone is applied where values are converted and nowhere else.

An expression of Spark (`col`, `lit`, a window) can only be built where Spark runs, and a session
that is lazy does not run before something is asked of it. So nothing but this module may import
`pyspark.sql.functions`, which the linter checks: `functions(spark)` starts the session and then
gives the module (docs/decisions/0042-expressions-come-from-a-session.md).
"""

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from threading import Lock
from typing import Any

from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as _functions

from ticdc_assets.engine.class_archive import archive_options
from ticdc_assets.engine.jvm_stderr import without_warning
from ticdc_assets.errors import PrerequisiteError
from ticdc_assets.isolation import first_sentence
from ticdc_assets.jars import SPARK_JARS, resolve
from ticdc_assets.preflight import check_java
from ticdc_assets.progress import tell

_SECRETS = "(?i)secret|password|passwd|token|credential|access[.]?key|jaas|keystore|ssl[.]key"
_TIME_TRAVEL_BY_AGE = (
    "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
)
_REPEATING_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""They print each error of a query as JSON with Java's whole stack; the error is raised anyway."""

LOG4J = Path(__file__).parent / "log4j2.properties"


def session_conf(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the Spark configuration, with `extra` laid over it."""
    jars = resolve(SPARK_JARS)
    master = os.environ.get("TICDC_SPARK_MASTER", "local[2]")
    options = [f"-Dlog4j2.configurationFile=file:{LOG4J}", *archive_options(jars)]
    memory = os.environ.get("TICDC_SPARK_DRIVER_MEMORY")
    if memory is None:
        # Of few gigabytes it holds a third less than the JVM's own choice, and takes no more CPU.
        options.append("-XX:+UseSerialGC")
        # The heap begins small and gives back what it does not use. Left alone it begins at a 64th
        # of the machine's memory, and a long run touches all of that.
        options += ["-Xms64m", "-XX:MinHeapFreeRatio=20", "-XX:MaxHeapFreeRatio=40"]
    # Spark's classes fill this soon; on the way there the JVM would collect all garbage many times.
    options.append("-XX:MetaspaceSize=256m")
    conf = {
        "spark.master": master,
        "spark.app.name": "ticdc_assets",
        # Resolved jars as files: asking Ivy again would cost seconds of every start.
        **_placed(jars, is_local=master.startswith("local")),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": memory or "3g",
        "spark.driver.extraJavaOptions": " ".join(options),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "5000",
        # Rows may be large: a worker gets no more of them at a time than this.
        "spark.sql.execution.arrow.maxBytesPerBatch": "32m",
        # Credentials of storage travel as options; plans and logs must not show them.
        "spark.redaction.regex": _SECRETS,
        "spark.sql.redaction.options.regex": _SECRETS,
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.schema.autoMerge.enabled": "false",
        "spark.databricks.delta.stats.skipping": "true",
        # A version that a kept cut names may be old: what it needs is kept by cuts, not by age.
        # Delta would refuse to read it, and to restore it when a killed run is taken back.
        _TIME_TRAVEL_BY_AGE: "false",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
        # Arrow batches of 300 wide columns: do not inline generated code beyond the JVM's limit.
        "spark.sql.codegen.maxFields": "100",
    }
    conf.update(extra or {})
    return conf


def _placed(jars: Sequence[Path], *, is_local: bool) -> dict[str, str]:
    """Return the setting that brings jars to all JVMs of a session."""
    if is_local:
        # The one JVM has them on its class path: no copy is made, and the class archive has them.
        return {"spark.driver.extraClassPath": os.pathsep.join(map(str, jars))}
    return {"spark.jars": ",".join(map(str, jars))}


class LazySession(SparkSession):
    """A Spark session that starts when something of it is first asked for.

    A sync that moves few rows needs none, and the start of Spark is then most of what it would
    take. Whoever is given one need not know: it is a session in all that is asked of it. Any
    thread may be the first to ask, and all get the same one. A session that was stopped is
    followed by another one at the next question.
    """

    def __init__(self, extra: Mapping[str, str] | None = None) -> None:
        lock = Lock()
        started: list[SparkSession] = []

        def session() -> SparkSession:
            with lock:
                if not started or _is_stopped(started[0]):
                    started[:] = [_running() or get_spark(extra)]
                return started[0]

        object.__setattr__(self, "_started", session)

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            return LazySession
        return getattr(object.__getattribute__(self, "_started")(), name)


def _is_stopped(session: SparkSession) -> bool:
    return session.sparkContext._jsc is None  # nothing public tells


def _running() -> SparkSession | None:
    """Return the session that this process runs already, None if it runs none.

    It is the process's own, not the thread's: which session a thread has used last says nothing of
    which one another thread is to have.
    """
    if SparkContext._active_spark_context is None:
        return None
    # Without settings it changes none of those that the session has.
    return SparkSession.builder.getOrCreate()


def functions(spark: SparkSession):  # only inference can say which module's type it is
    """Return `pyspark.sql.functions`, whose expressions need Spark, once the session has started.

    Ask for it where the first expression is built, behind what may do without Spark.
    """
    _ = spark.sparkContext
    return _functions


def windows(spark: SparkSession) -> type[Window]:
    """Return what makes specifications of windows, once the session has started."""
    _ = spark.sparkContext
    return Window


def get_spark(extra: Mapping[str, str] | None = None) -> SparkSession:
    """Return the Spark session of this process, started on first use.

    Raises:
        PrerequisiteError: there is no JDK that Spark runs on, or its JVM does not start.
    """
    if SparkSession.getActiveSession() is None:
        java = check_java()
        if not java.ok:
            raise PrerequisiteError(java.sentence())
    # Workers must run this interpreter, not the system's python.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder
    for name, value in session_conf(extra).items():
        builder = builder.config(name, value)
    for name in _REPEATING_LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        if _running() is None:
            tell("starting Spark")
        with nullcontext() if SparkContext._gateway is not None else without_warning():
            return builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise PrerequisiteError(
            f"Spark's JVM did not start ({first_sentence(error)}); look at what Java printed, "
            "at TICDC_SPARK_DRIVER_MEMORY and at the free memory"
        ) from None


def session_with(spark: SparkSession, conf: Mapping[str, str]) -> SparkSession:
    """Return a session of its own with these settings, which end with it."""
    session = spark.newSession()
    for name, value in conf.items():
        session.conf.set(name, value)
    return session


MERGING = {
    # The source is files, which are there until it is done.
    "spark.databricks.delta.merge.materializeSource": "none",
    # MERGE joins the table to the source three times, once with all columns and as an outer join,
    # which cannot broadcast the source. A Bloom filter of the source's keys keeps nearly all rows
    # of the table out of that join's shuffle. Spark makes none where a broadcast seems possible;
    # it still broadcasts when it sees how small the source is.
    "spark.sql.optimizer.runtime.bloomFilter.applicationSideScanSizeThreshold": "32MB",
    "spark.sql.optimizer.runtime.bloomFilter.creationSideThreshold": "1GB",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.autoBroadcastJoinThreshold": "32MB",
}
"""Settings of a session that merges changes into a mirror."""
