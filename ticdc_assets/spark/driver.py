"""The driver of a session: in this process, or behind Spark Connect.

In: a session. Out: what a DataFrame does not say: how many tasks run at a time, which executors
there are, what the Spark UI shows of a job. This is the only module that looks at Spark's JVM or at
`sparkContext`; a Connect session has neither, and each function says what it does there.

Nothing in the lake changes here, so each call may be made again.
"""

import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from threading import Timer
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession, is_remote


def is_connected() -> bool:
    """Return whether the sessions of this process are Spark Connect's."""
    return is_remote()


def master_of(spark: SparkSession) -> str:
    """Return the master that a session's work goes to, like local[2]."""
    return spark.conf.get("spark.master") or ""


def place_of(spark: SparkSession) -> str:
    """Return where the work of a session runs, for people."""
    kind = "Spark Connect" if is_connected() else "Spark"
    return f"on {kind}, {master_of(spark)}"


def application_of(spark: SparkSession) -> str:
    """Return the identifier of a session's application."""
    return spark.conf.get("spark.app.id") or ""


def workers_of(spark: SparkSession) -> int:
    """Return how many tasks run at a time."""
    if not is_connected():
        return spark.sparkContext.defaultParallelism
    # A range has as many partitions as the server runs tasks at a time.
    return spark.range(1 << 12).selectExpr("spark_partition_id()").distinct().count()


@contextmanager
def described(spark: SparkSession, text: str) -> Generator[None]:
    """Let the Spark UI show a text for the jobs of this thread, within.

    A Connect server describes jobs by their plan and shows the text as a tag.
    """
    if is_connected():
        tag = text.replace(",", " ")
        spark.addTag(tag)
        try:
            yield
        finally:
            spark.removeTag(tag)
        return
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, text)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)  # pyright: ignore[reportArgumentType]


_DESCRIPTION = "spark.job.description"


@contextmanager
def limited(spark: SparkSession, seconds: float) -> Generator[None]:
    """Cancel the jobs of this thread that run within when so much time has passed."""
    tag = f"ticdc-{uuid.uuid4().hex}"
    if is_connected():
        add, remove, cancel = spark.addTag, spark.removeTag, spark.interruptTag
    else:
        # A session knows the tags of a thread only in that thread, and a timer is another one.
        context = spark.sparkContext
        add, remove, cancel = context.addJobTag, context.removeJobTag, context.cancelJobsWithTag
    timer = Timer(seconds, cancel, [tag])
    timer.daemon = True
    add(tag)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        remove(tag)


def executors_of(spark: SparkSession) -> frozenset[str]:
    """Return the addresses of the executors, the driver's among them; none over Connect."""
    if is_connected():
        return frozenset()
    jvm_context = spark.sparkContext._jsc.sc()  # pyright: ignore[reportOptionalCall, reportOptionalMemberAccess]
    infos = jvm_context.statusTracker().getExecutorInfos()
    return frozenset(f"{item.host()}:{item.port()}" for item in infos)


def give_file(spark: SparkSession, path: str) -> None:
    """Let the workers of a session import from a zip file; nothing happens if they do already."""
    if is_connected():
        # The server keeps artifacts by session and name, so a second one is not sent.
        spark.addArtifacts(path, pyfile=True)
        return
    context = spark.sparkContext
    name = path.rpartition("/")[2]
    if not any(file.endswith(f"/{name}") for file in context.listFiles):
        context.addPyFile(path)


def is_stopped(spark: SparkSession) -> bool:
    """Return whether a session has ended."""
    if is_connected():
        client: Any = spark
        return client.is_stopped
    return spark.sparkContext._jsc is None  # nothing public says so


def has_jvm() -> bool:
    """Return whether Spark's JVM runs for this process."""
    return SparkContext._gateway is not None


def start_jvm(conf: Mapping[str, str]) -> None:
    """Start Spark's JVM with a configuration, every word of which other users can read."""
    public = SparkConf(loadDefaults=False)
    public.setAll([*conf.items()])
    SparkContext._ensure_initialized(conf=public)


def running() -> SparkSession | None:
    """Return the session that this process runs already, None if it runs none.

    It is the process's own, not the thread's: which session a thread has used last does not say
    which one another thread should get.
    """
    if is_connected():
        from pyspark.sql.connect.session import SparkSession as ConnectSession

        found: Any = ConnectSession._default_session
        return None if found is None or found.is_stopped else found
    if SparkContext._active_spark_context is None:
        return None
    # Without settings it changes none of those that the session has.
    return SparkSession.builder.getOrCreate()


def plan_of(spark: SparkSession, text: str) -> str | None:
    """Return the plan of a query as JSON, as Spark's parser makes it; None over Connect.

    Raises:
        ParseException: the text is not one query.
    """
    if is_connected():
        return None
    session: Any = spark._jsparkSession  # the parser has no other way in
    parser = session.sessionState().sqlParser()
    parser.parseQuery(text)
    # The rule above alone would stop at the end of a query, and not look at what follows.
    return parser.parsePlan(text).toJSON()


def set_hadoop(spark: SparkSession, secrets: Mapping[str, str]) -> None:
    """Give Hadoop settings that no command line may show; a Connect server has its own."""
    if not secrets or is_connected():
        return
    java: Any = spark.sparkContext._jsc
    for name, value in secrets.items():
        java.hadoopConfiguration().set(name, value)
