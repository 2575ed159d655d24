"""One writer per changefeed, and beside it one rebuild: advisory locks on files in the lake.

Dagster's pools keep runs of one instance apart; this keeps apart what they cannot see: a command
line beside a daemon. The operating system drops the lock when its holder dies, so a killed run
leaves nothing to clean up. It reaches as far as the file system's locks do (one host, or NFSv4).
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from ticdc_assets.engine.paths import LakePaths
from ticdc_assets.errors import BusyError
from ticdc_assets.machine import require_space


def writer_lock(paths: LakePaths) -> AbstractContextManager[None]:
    """Hold the changefeed's writer lock, or raise BusyError at once.

    Raises:
        PrerequisiteError: no space is left for what would be written.
    """
    require_space(paths.root)
    return held_lock(paths.lock, f"another sync of changefeed {paths.changefeed!r}")


def side_lock(paths: LakePaths) -> AbstractContextManager[None]:
    """Hold the lock on the changefeed's side places, or raise BusyError at once."""
    return held_lock(paths.side_lock, f"another verify of changefeed {paths.changefeed!r}")


@contextmanager
def held_lock(path: Path, holder: str) -> Iterator[None]:
    """Hold the lock on a file, which is made if missing; `holder` is who else may hold it.

    Raises:
        BusyError: another process holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BusyError(
                f"{holder} is running (it holds {path}); try again when it has ended"
            ) from error
        yield
    finally:
        os.close(descriptor)
