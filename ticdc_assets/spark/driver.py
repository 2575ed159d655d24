"""The driver of a session: in this process, or at a Spark Connect server.

In: a session. Out: what a DataFrame does not say: how many tasks run at a time, which executors
there are, what the Spark UI shows of a job. This is the only module that uses Spark's JVM or
`sparkContext`; a Connect session has neither, and each function says what it does there.

Importing this module imports no pyspark, which takes a while: most work needs no session.

Nothing in the lake changes here, so each call may be repeated.
"""

import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from threading import Timer
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Session: TypeAlias = "SparkSession"
"""The type of a session that other modules pass on; the functions of `spark` use it."""


def is_connected() -> bool:
    """Return whether the sessions of this process are Spark Connect's."""
    from pyspark.sql import is_remote

    return is_remote()


def master_of(spark: "SparkSession") -> str:
    """Return the master that a session's work goes to, like local[2]."""
    return spark.conf.get("spark.master") or ""


def place_of(spark: "SparkSession") -> str:
    """Return where the work of a session runs, for messages."""
    kind = "Spark Connect" if is_connected() else "Spark"
    return f"on {kind}, {master_of(spark)}"


def application_of(spark: "SparkSession") -> str:
    """Return the identifier of a session's application."""
    return spark.conf.get("spark.app.id") or ""


def workers_of(spark: "SparkSession") -> int:
    """Return how many tasks run at a time."""
    if not is_connected():
        return spark.sparkContext.defaultParallelism
    # A range has as many partitions as the server runs tasks at a time.
    return spark.range(1 << 12).selectExpr("spark_partition_id()").distinct().count()


@contextmanager
def described(spark: "SparkSession", text: str) -> Generator[None]:
    """Make the Spark UI show a text for the jobs of this thread, within this block.

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
    context, name = spark.sparkContext, "spark.job.description"
    before = context.getLocalProperty(name)
    context.setLocalProperty(name, text)
    try:
        yield
    finally:
        context.setLocalProperty(name, before)  # pyright: ignore[reportArgumentType]


@contextmanager
def limited(spark: "SparkSession", seconds: float) -> Generator[None]:
    """Cancel this thread's jobs of this block after a time."""
    tag = f"ticdc-{uuid.uuid4().hex}"
    if is_connected():
        add, remove, cancel = spark.addTag, spark.removeTag, spark.interruptTag
    else:
        # A session knows the tags of a thread only in that thread, and a timer runs in another one.
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


def executors_of(spark: "SparkSession") -> frozenset[str]:
    """Return the addresses of the executors, including the driver's; none over Connect."""
    if is_connected():
        return frozenset()
    jvm_context = spark.sparkContext._jsc.sc()  # pyright: ignore[reportOptionalCall, reportOptionalMemberAccess]
    infos = jvm_context.statusTracker().getExecutorInfos()
    return frozenset(f"{item.host()}:{item.port()}" for item in infos)


def give_file(spark: "SparkSession", path: str) -> None:
    """Let the workers of a session import from a zip file; does nothing if they already do."""
    if is_connected():
        # The server stores artifacts by session and name, so a second copy is not sent.
        spark.addArtifacts(path, pyfile=True)
        return
    context = spark.sparkContext
    name = path.rpartition("/")[2]
    if not any(file.endswith(f"/{name}") for file in context.listFiles):
        context.addPyFile(path)


def is_stopped(spark: "SparkSession") -> bool:
    """Return whether a session has ended."""
    if is_connected():
        client: Any = spark
        return client.is_stopped
    return spark.sparkContext._jsc is None  # no public API reports this


def has_jvm() -> bool:
    """Return whether Spark's JVM runs for this process."""
    from pyspark import SparkContext

    return SparkContext._gateway is not None


def start_jvm(conf: Mapping[str, str]) -> None:
    """Start Spark's JVM with a configuration, every word of which other users can read."""
    from pyspark import SparkConf, SparkContext

    public = SparkConf(loadDefaults=False)
    public.setAll([*conf.items()])
    SparkContext._ensure_initialized(conf=public)


def running() -> "SparkSession | None":
    """Return the session that this process already runs; None if it runs none.

    It belongs to the process, not the thread: the session that one thread used last does not
    determine another thread's.
    """
    if is_connected():
        from pyspark.sql.connect.session import SparkSession as ConnectSession

        session: Any = ConnectSession._default_session
        return None if session is None or session.is_stopped else session
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is None:
        return None
    # Without settings it changes no setting of the session.
    return SparkSession.builder.getOrCreate()


def plan_of(spark: "SparkSession", text: str) -> str | None:
    """Return the plan of a query as JSON, from Spark's parser; None over Connect.

    Raises:
        ParseException: the text is not one query.
    """
    if is_connected():
        return None
    session: Any = spark._jsparkSession  # the parser has no other entry point
    parser = session.sessionState().sqlParser()
    parser.parseQuery(text)
    # The rule above alone would stop at the end of a query and ignore what follows.
    return parser.parsePlan(text).toJSON()


def set_hadoop(spark: "SparkSession", secrets: Mapping[str, str]) -> None:
    """Give Hadoop settings that no command line may show; a Connect server has its own."""
    if not secrets or is_connected():
        return
    java: Any = spark.sparkContext._jsc
    for name, value in secrets.items():
        java.hadoopConfiguration().set(name, value)
