"""A changefeed and its tables, as one piece of work sees them.

In: the configuration of a changefeed and where its lake is. Out: what steps and services take: the
configuration, the tables of one generation, the Spark session. Whoever begins a piece of work (a
command, a step of a run, a read) opens it once and hands it on, so all of that work is of one
generation. It holds no state of its own, so it may be opened as often as one likes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ticdc_assets.config import Changefeed
from ticdc_assets.delta.generations import paths_of
from ticdc_assets.delta.lock import side_lock, writer_lock
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import AnyPath

if TYPE_CHECKING:  # most work needs no session, and importing pyspark takes a while
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """One changefeed's lake.

    Attributes:
        changefeed: its configuration.
        paths: its tables, of one generation.
        session: the Spark session to use; if None, one that starts when it is first needed.
    """

    changefeed: Changefeed
    paths: LakePaths
    session: "SparkSession | None" = None

    @classmethod
    def open(
        cls, root: AnyPath, changefeed: Changefeed, session: "SparkSession | None" = None
    ) -> "Lake":
        """Return the lake of a changefeed as its newest cut names it; no Spark.

        Args:
            root: the folder or URI of all changefeeds' tables.
            changefeed: the configuration of the changefeed.
            session: the Spark session to use; if None, one that starts when it is first needed.
        """
        return cls(changefeed=changefeed, paths=paths_of(root, changefeed.name), session=session)

    @property
    def spark(self) -> "SparkSession":
        """The session, which starts when something is first done with it."""
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

    def newest(self) -> "Lake":
        """Return the same changefeed with the tables that its newest cut names now."""
        return self.at(paths_of(self.paths.root, self.changefeed.name))

    @contextmanager
    def writing(self, *, run: str = "") -> Iterator[None]:
        """Be the one writer of the changefeed, within.

        Args:
            run: id of the Dagster run that writes, for whoever has to wait.

        Raises:
            BusyError: somebody else is.
        """
        with writer_lock(self.paths, self.changefeed.writer, run=run):
            yield

    @contextmanager
    def making(self, made: AnyPath | None = None) -> Iterator[None]:
        """Be the one that makes or removes generations besides the published one, within.

        Args:
            made: the folder of the generation that is made.

        Raises:
            BusyError: somebody else is.
        """
        with side_lock(self.paths, self.changefeed.writer, made):
            yield
