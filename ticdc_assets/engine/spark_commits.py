"""Commits made by Spark: with an id, from workers that share the lake's folder, and checked.

In: a session, a table and the metadata of the commit. Out: a session or a writer whose commits are
that `OwnCommit`, and the result.

Spark's executors write the files and Spark's driver commits them, and no check can run in between.
So before the commit, workers prove that they share the lake (`cluster`). After the commit, the
files that it names are checked, and that the lease is still held; a mirror or a history is
published only then.

Not handled: an executor that joins while Spark writes, and does not share the folder. The check
after the commit finds it.
"""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from ticdc_assets.engine.cluster import require_cluster
from ticdc_assets.engine.commits import CommitError, LoggedCommit, OwnCommit
from ticdc_assets.engine.committing import NotThereError
from ticdc_assets.engine.control import commit_metadata, open_table
from ticdc_assets.engine.session import session_with
from ticdc_assets.storage.paths import AnyPath


class SparkCommit:
    """A commit that Spark is about to make.

    Args:
        spark: the session.
        table: folder of the table.
        metadata: what the commit carries beside its id.
    """

    def __init__(
        self, spark: SparkSession, table: AnyPath, metadata: Mapping[str, Any] | None = None
    ) -> None:
        require_cluster(spark, table)
        self._spark = spark
        self._table = table
        self._own = OwnCommit(table, metadata)

    def session(self, conf: Mapping[str, str] | None = None) -> SparkSession:
        """Return a session of its own whose commits are this one, with `conf` set too.

        It is for one write, MERGE, UPDATE or DELETE: see `OwnCommit.conf`. Delta takes one
        transaction identifier by settings. One in `conf` takes the place of the lease's: then the
        caller looks at the lease directly before the write.
        """
        return session_with(self._spark, {**self._own.conf, **(conf or {})})

    def writer(self, rows: DataFrame) -> DataFrameWriter:
        """Return the writer that commits rows as this commit."""
        return rows.write.format("delta").options(**self._own.options)

    def find(self) -> LoggedCommit | None:
        """Return the commit, None if there was nothing to commit.

        Raises:
            LeaseLostError: the lease went over meanwhile.
            NotThereError: a file that it names is not there.
        """
        found = self._own.find()
        if found is not None:
            _require_added(self._table, found)
        elif self._own.is_fenced:
            self._require_not_passed()
        return found

    def _require_not_passed(self) -> None:
        there = open_table(self._table)
        if there is not None and self._own.was_passed(there):
            raise CommitError(
                f"{self._table}: a commit of this run was left out, because the table has a later "
                "one under the same lease; nothing of it is published, sync again"
            )

    def made(self) -> LoggedCommit:
        """Return the commit; there has to be one.

        Raises:
            NotThereError: a file that it names is not there.
        """
        found = self._own.made()
        _require_added(self._table, found)
        return found


def carrying(spark: SparkSession, table: AnyPath) -> SparkCommit:
    """Return a commit to `table` that carries its newest metadata on.

    The metadata of the newest commit is the memory of how far a writer is.
    """
    return SparkCommit(spark, table, commit_metadata(table))


def _require_added(table: AnyPath, commit: LoggedCommit) -> None:
    for file in commit.added:
        for path in filter(None, (file.path, file.deletion_vector)):
            if not _has(table / path, file.size if path == file.path else None):
                raise NotThereError(
                    str(table), path, f"a file for version {commit.version}", "is none like it"
                )


def _has(path: AnyPath, size: int | None) -> bool:
    try:
        found = path.stat().st_size
    except OSError:
        return False
    return size is None or found == size
