"""Commits that Spark makes: named, from workers that share the lake's folder, and looked at.

In: a session, a table and what the commit is to carry. Out: a session or a writer whose commits are
that `OwnCommit`, and what became of it.

Spark's executors write the files, Spark's driver commits them, and nobody can step in between. So
before it, workers show that they see the lake: each reads a token that this process wrote into the
table's folder. And behind it, what the commit names is looked for; a mirror or a history is not
published before. In a local session workers are this machine's, and see what it sees.

Not handled: an executor that comes while Spark writes, and does not share the folder. It is found
behind the commit.
"""

import socket
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from ticdc_assets.engine.commits import CommitError, LoggedCommit, OwnCommit
from ticdc_assets.engine.committing import NotThereError
from ticdc_assets.engine.control import commit_metadata
from ticdc_assets.engine.session import session_with

_LOCK = Lock()
_SEEN: set[tuple[str, str, frozenset[str]]] = set()
"""Applications, folders and executors that shared them when asked."""


class SparkCommit:
    """A commit that Spark is about to make.

    Args:
        spark: the session.
        table: folder of the table.
        metadata: what the commit carries beside its id.
    """

    def __init__(
        self, spark: SparkSession, table: Path, metadata: Mapping[str, Any] | None = None
    ) -> None:
        require_shared(spark, table)
        self._spark = spark
        self._table = table
        self._own = OwnCommit(table, metadata)

    def session(self, conf: Mapping[str, str] | None = None) -> SparkSession:
        """Return a session of its own whose commits are this one, with `conf` set too."""
        return session_with(self._spark, {**(conf or {}), **self._own.conf})

    def writer(self, rows: DataFrame) -> DataFrameWriter:
        """Return the writer that commits rows as this commit."""
        return rows.write.format("delta").option("userMetadata", self._own.text)

    @property
    def conf(self) -> dict[str, str]:
        """The settings of a session whose commits are this one."""
        return self._own.conf

    def find(self) -> LoggedCommit | None:
        """Return the commit, None if there was nothing to commit.

        Raises:
            NotThereError: a file that it names is not there.
        """
        found = self._own.find()
        if found is not None:
            _require_added(self._table, found)
        return found

    def made(self) -> LoggedCommit:
        """Return the commit; there has to be one.

        Raises:
            NotThereError: a file that it names is not there.
        """
        found = self._own.made()
        _require_added(self._table, found)
        return found


def carrying(spark: SparkSession, table: Path) -> SparkCommit:
    """Return a commit to `table` that carries its newest metadata on.

    The metadata of the newest commit is the memory of how far a writer is.
    """
    return SparkCommit(spark, table, commit_metadata(table))


def _require_added(table: Path, commit: LoggedCommit) -> None:
    for file in commit.added:
        for path in filter(None, (file.path, file.deletion_vector)):
            if not _has(table / path, file.size if path == file.path else None):
                raise NotThereError(
                    str(table), path, f"a file for version {commit.version}", "is none like it"
                )


def _has(path: Path, size: int | None) -> bool:
    try:
        found = path.stat().st_size
    except OSError:
        return False
    return size is None or found == size


def require_shared(spark: SparkSession, table: Path) -> None:
    """Let every worker show that it sees what this process writes into a table's folder.

    Raises:
        CommitError: a worker does not.
    """
    context = spark.sparkContext
    jvm_context = context._jsc.sc()  # pyright: ignore[reportOptionalCall, reportOptionalMemberAccess]
    if jvm_context.isLocal():
        return
    infos = jvm_context.statusTracker().getExecutorInfos()
    executors = frozenset(f"{item.host()}:{item.port()}" for item in infos)
    # Two tables of a changefeed are in one folder's reach.
    base = table.parent
    known = (context.applicationId or "", str(base), executors)
    with _LOCK:
        if known in _SEEN:
            return
        base.mkdir(parents=True, exist_ok=True)
        token = base / f".shared-{uuid.uuid4().hex}"
        path = str(token)
        token.write_text(path, encoding="utf-8")

        def look(_: Iterable[int]) -> Iterator[str | None]:
            # So that no executor is done with all of them before another one has begun.
            time.sleep(0.1)
            try:
                sees = Path(path).read_text(encoding="utf-8") == path
            except OSError:
                sees = False
            yield None if sees else socket.gethostname()

        try:
            tasks = 2 * max(context.defaultParallelism, len(executors))
            blind = sorted(
                {
                    host
                    for host in context.parallelize(range(tasks), tasks)
                    .mapPartitions(look)
                    .collect()
                    if host is not None
                }
            )
        finally:
            token.unlink(missing_ok=True)
        if blind:
            raise CommitError(
                f"table {table}: the workers on {', '.join(blind)} do not share the lake's folder "
                f"{base} with the driver, they do not see a file written there; nothing was "
                "committed: mount the same folder on all of them, or work locally "
                "(TICDC_SPARK_MASTER=local[2])"
            )
        _SEEN.add(known)
