"""Dagster's event log in SQLite, through connections that stay open.

In: the folder of a Dagster instance whose runs and events are in SQLite files. Out: the same
storage, with the same files, for one process that stores many events: a command that syncs.

Dagster opens a database for each event that it stores, and closes it again: it makes an engine,
compiles the statement, connects, and at the end SQLite moves the events from its log into the file.
For the database of a new run it reads all of its migrations. Here the databases of the index and of
the newest runs stay open, and that of a new run is a copy of an empty one. SQLite does not wait for
the disk after each event, as its documentation advises for databases with such a log. If the
machine stops, the last events of a run may be missing; the lake needs none of them.

Dagster's own store of what a step prints is left out: it starts four programs for each run, and
what a command prints is on its terminal. One that somebody configured is used.

Why this is safe: only `_connect` is another one. If a later Dagster does not call it, its own is
used. Other programs, such as the web server, read and write the files at the same time.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

from dagster import DagsterInstance
from dagster._core.instance.ref import InstanceRef
from dagster._core.storage.event_log import SqliteEventLogStorage
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME
from dagster._core.storage.local_compute_log_manager import LocalComputeLogManager
from dagster._core.storage.noop_compute_log_manager import NoOpComputeLogManager
from dagster._core.storage.sqlite_storage import DagsterSqliteStorage
from dagster._serdes import ConfigurableClassData
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import QueuePool

_TIMEOUT_SECONDS: Final = 60
_MOST_RUNS: Final = 2
"""Databases of runs that are open: that of the run, and that of what belongs to none."""


def opened_instance(home: str) -> DagsterInstance:
    """Open the Dagster instance of a folder.

    Args:
        home: the folder, with a `dagster.yaml`.
    """
    ref = InstanceRef.from_dir(home)
    own = ref.storage_data
    if own is not None and own.class_name == DagsterSqliteStorage.__name__:
        opened = ConfigurableClassData(__name__, OpenStorage.__name__, own.config_yaml)
        ref = ref._replace(storage_data=opened)
    logs = ref.compute_logs_data
    if logs.class_name == LocalComputeLogManager.__name__:
        none = ConfigurableClassData(
            NoOpComputeLogManager.__module__, NoOpComputeLogManager.__name__, "{}"
        )
        ref = ref._replace(compute_logs_data=none)
    return DagsterInstance.from_ref(ref)


class OpenEventLog(SqliteEventLogStorage):
    """An event log whose databases stay open; see the module.

    Args:
        base_dir: folder of the databases.
    """

    _empty: ClassVar[bytes | None] = None

    def __init__(self, base_dir: str) -> None:
        self._engines: dict[str, Engine] = {}
        super().__init__(base_dir)

    @contextmanager
    def _connect(self, shard: str) -> Iterator[Connection]:
        if shard not in self._initialized_dbs and not self._copied(shard):
            with super()._connect(shard):
                pass  # Dagster makes the tables
            self._keep_empty(shard)
        with self._db_lock, self._engine(shard).connect() as connection, connection.begin():
            yield connection

    def _keep_empty(self, shard: str) -> None:
        """Keep the first database that is empty: to make one, Dagster reads all its migrations."""
        if shard == INDEX_SHARD_NAME or self._empty is not None:
            return
        with closing(sqlite3.connect(self.path_for_shard(shard))) as database:
            if database.execute("SELECT count(*) FROM event_logs").fetchone() == (0,):
                OpenEventLog._empty = database.serialize()

    def _copied(self, shard: str) -> bool:
        """Make the database of a new run from the empty one; return whether that was done."""
        path = Path(self.path_for_shard(shard))
        if shard == INDEX_SHARD_NAME or self._empty is None or path.exists():
            return False
        new = path.with_suffix(f".new-{os.getpid()}")
        new.write_bytes(self._empty)
        try:
            # In one step, and only if no other program has made it.
            os.link(new, path)
        except OSError:
            return False
        finally:
            new.unlink()
        self._initialized_dbs.add(shard)
        return True

    def _engine(self, shard: str) -> Engine:
        engine = self._engines.get(shard)
        if engine is None:
            runs = [name for name in self._engines if name != INDEX_SHARD_NAME]
            for name in runs[: len(runs) - _MOST_RUNS + 1]:
                self._engines.pop(name).dispose()
            engine = self._engines[shard] = create_engine(
                self.conn_string_for_shard(shard),
                poolclass=QueuePool,
                pool_size=1,
                max_overflow=0,
                connect_args={"timeout": _TIMEOUT_SECONDS, "check_same_thread": False},
            )
            event.listen(engine, "connect", _without_waiting)
        return engine

    def wipe(self) -> None:
        """Remove all events."""
        self._close()
        super().wipe()

    def dispose(self) -> None:
        """Close what is open."""
        self._close()
        super().dispose()

    def _close(self) -> None:
        with self._db_lock:
            while self._engines:
                self._engines.popitem()[1].dispose()


def _without_waiting(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA synchronous = NORMAL")


class OpenStorage(DagsterSqliteStorage):
    """Dagster's SQLite storage with an `OpenEventLog`."""

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__(base_dir, inst_data)
        self._event_log_storage = OpenEventLog(self._event_log_storage._base_dir)

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Any
    ) -> "OpenStorage":
        """Return the storage that an instance is configured with."""
        return cls.from_local(inst_data=inst_data, **config_value)
