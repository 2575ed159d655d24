"""A changefeed and its tables, as one piece of work sees them.

A piece of work (a command, a step of a run, a read) opens a lake once and passes it on, so all of
that work uses one generation: the one that the newest cut names. Publishing a cut of another one
switches readers to it, by one append; if that happens meanwhile, `log.cuts` refuses to mix the two.
Only the writer of a changefeed publishes, so nothing changes under a writer. A lake holds no state.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ticdc_assets.base.errors import LakeDamagedError
from ticdc_assets.config import Changefeed
from ticdc_assets.delta.control import commit_metadata
from ticdc_assets.delta.lock import side_lock, writer_lock
from ticdc_assets.delta.log_reading import listed_once
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import AnyPath, names_in

if TYPE_CHECKING:  # most work needs no session, and importing pyspark takes a while
    from pyspark.sql import SparkSession


GENERATION = "generation"
"""The key of a cut's generation in the commits of `cuts`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """One changefeed's lake; without a session, one starts when it is first needed."""

    changefeed: Changefeed
    paths: LakePaths
    session: "SparkSession | None" = None

    @classmethod
    def open(
        cls, root: AnyPath, changefeed: Changefeed, session: "SparkSession | None" = None
    ) -> "Lake":
        """Return the lake of a changefeed as its newest cut names it; no Spark."""
        return cls(changefeed=changefeed, paths=paths_of(root, changefeed.name), session=session)

    @property
    def spark(self) -> "SparkSession":
        """The session, which starts at its first use."""
        if self.session is not None:
            return self.session
        from ticdc_assets.spark.session import LazySession

        return LazySession()

    def using(self, session: "SparkSession") -> "Lake":
        """Return the same lake with a Spark session."""
        return replace(self, session=session)

    def at(self, paths: LakePaths) -> "Lake":
        """Return the same changefeed with the tables of another generation."""
        return replace(self, paths=paths)

    @contextmanager
    def writing(self, *, run: str = "") -> Iterator[None]:
        """Be the only writer of the changefeed within this block, or raise BusyError.

        Messages to waiting runs name the Dagster run that writes.
        """
        with writer_lock(self.paths, self.changefeed.writer, run=run), listed_once():
            yield

    def making(self, made: AnyPath | None = None) -> AbstractContextManager[None]:
        """Be the only process that makes or removes unpublished generations, or raise BusyError.

        `made` is the folder of the new generation.
        """
        return side_lock(self.paths, self.changefeed.writer, made)


def paths_of(root: AnyPath, changefeed: str) -> LakePaths:
    """Return the tables of a changefeed as its newest cut names them; no Spark.

    They are the newest generation's if the cuts cannot be read, which raises the error later.
    """
    first = LakePaths(root=root, changefeed=changefeed)
    try:
        name = commit_metadata(first.cuts).get(GENERATION)
    except LakeDamagedError:
        name = None
        with suppress(OSError):  # the folder may be another user's
            name = max(names_in(first.generations), default=None)
    return first if name is None else first.of(name)
