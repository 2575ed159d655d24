"""Check files that other processes wrote before a commit names them, and write log entries.

In: a table, and the writers' descriptions of the files they wrote for it (`files`). Out: one commit
that names these files (`commit_state`): a log entry, put only where none exists. Before it, this
process opens each file: it is in the table's folder, has the size and the number of rows that its
writer reported, and ends with a Parquet footer. Otherwise nothing is committed: on a cluster whose
workers have another folder of the same name, the commit would damage the table for good.

All commits to tables of a lake are made here, but for those of users.
"""

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import pyarrow as pa
from deltalake import DeltaTable

from ticdc_assets.base.errors import LakeDamagedError
from ticdc_assets.delta.commits import CommitError
from ticdc_assets.delta.damage import reading
from ticdc_assets.delta.delta_protocol import COMMIT_ID, LogState, commit_text
from ticdc_assets.delta.fencing import APP_ID, leased_transaction, require_lease
from ticdc_assets.delta.files import WrittenFile, read_footer
from ticdc_assets.delta.log_reading import LAST_CHECKPOINT, commit_path, forget, note_commit
from ticdc_assets.storage.creating import create
from ticdc_assets.storage.paths import LOG, AnyPath, RemotePath, delta_options

_LOGGER = logging.getLogger(__name__)
T = TypeVar("T")

_READERS = 4
"""How many files are opened at a time; on a shared folder each waits for the network."""

_TRIES = 3

_CHECKPOINT_INTERVAL = 10
"""After how many versions a table gets a checkpoint, unless a property says it: Spark's default."""


@dataclass(eq=False, repr=False)
class NotThereError(CommitError):
    """A file that a writer reported for a table is missing, or differs from the report."""

    retriable = False

    table: str
    path: str
    expected: str
    got: str

    def __str__(self) -> str:
        return (
            f"{self.path} of table {self.table}: a worker wrote {self.expected}, here {self.got}: "
            "the workers do not share the lake's folder with the driver, or the disk lost it; "
            "nothing was committed"
        )


def require_there(table: AnyPath, files: Sequence[WrittenFile]) -> None:
    """Open each of `files` and check it, or raise NotThereError; see the module."""
    # Parquet footers are read without Python's lock.
    with ThreadPoolExecutor(max(1, min(_READERS, len(files)))) as pool:
        list(pool.map(lambda file: _require(table, file), files))


def _require(table: AnyPath, file: WrittenFile) -> None:
    expected = f"{file.size} bytes with {file.rows} rows"

    def fault(got: str) -> NotThereError:
        return NotThereError(str(table), file.path, expected, got)

    parts = PurePosixPath(file.path)
    if parts.is_absolute() or ".." in parts.parts:
        raise fault("the path leads out of the table's folder")
    path = table / parts
    try:
        size = path.stat().st_size
    except OSError as error:
        raise fault(f"there is no such file ({error.strerror})") from error
    if size != file.size:
        raise fault(f"are {size} bytes")
    if isinstance(path, RemotePath):
        return  # an object is there whole or not at all, for all workers
    try:
        rows = read_footer(path).num_rows
    except (LakeDamagedError, OSError, pa.ArrowException) as error:
        raise fault("it has no Parquet footer at its end") from error
    if rows != file.rows:
        raise fault(f"are {rows} rows")


def commit_state(
    path: AnyPath,
    newest: LogState,
    wanted: LogState,
    files: Sequence[WrittenFile],
    metadata: Mapping[str, Any],
    *,
    operation: str,
    transactions: Sequence[tuple[str, int]] = (),
) -> int:
    """Take a table from its newest version to the wanted state; return the new version.

    `wanted` lacks the new files. The commit carries `metadata` besides its id, and transaction
    identifiers with their versions. The operation is `OPTIMIZE` if the rows stay the same.

    Raises:
        ConflictError: another program committed this version; nothing was written.
        LeaseLostError: the table has a commit of a newer lease, or the lease is over.
        NotThereError: a file is missing or differs; nothing was committed.
    """
    require_there(path, files)
    leased = leased_transaction(path, newest.transactions.get(APP_ID))
    version = newest.version + 1
    entry = commit_text(
        newest,
        replace(wanted, files=(*wanted.files, *(file.added for file in files))),
        operation=operation,
        metadata={**metadata, COMMIT_ID: uuid.uuid4().hex},
        transactions=(*transactions, *leased),
    )
    require_lease(path)
    try:
        create(commit_path(path / LOG, version), entry)
    except OSError as error:
        forget(path)
        if isinstance(error, FileExistsError):
            raise ConflictError(path, version) from None
        raise
    note_commit(path, newest, entry)
    require_lease(path)
    interval = int(wanted.configuration.get("delta.checkpointInterval", _CHECKPOINT_INTERVAL))
    if version and version % interval == 0:
        if isinstance(path, Path):
            # Spark's checksum of the file that delta-rs replaces: with it Spark would take the new
            # one for damaged, and wait three seconds before it reads the table.
            (path / LOG / f".{LAST_CHECKPOINT}.crc").unlink(missing_ok=True)
        with reading(path):
            DeltaTable(str(path), storage_options=delta_options(path)).create_checkpoint()
    return version


@dataclass(eq=False, repr=False)
class ConflictError(CommitError):
    """Another program committed to a table in the meantime; nothing was written."""

    table: AnyPath
    version: int

    def __str__(self) -> str:
        return (
            f"another program wrote version {self.version} of table {self.table} while it was "
            "being written; nothing was published: stop that program, and sync again"
        )


def undisturbed(make: Callable[[], T]) -> T:
    """Return what `make` returns; start again, with its version, if another program was first."""
    for _ in range(_TRIES - 1):
        try:
            return make()
        except ConflictError as error:
            _LOGGER.warning("another program committed first, trying again: %s", error)
    return make()
