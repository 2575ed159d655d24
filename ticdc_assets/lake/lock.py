"""One writer per changefeed: an advisory lock on a file in the lake.

Dagster's pools keep runs of one instance apart; this keeps apart what they cannot see: a command
line beside a daemon. The operating system drops the lock when its holder dies, so a killed run
leaves nothing to clean up. It reaches as far as the file system's locks do (one host, or NFSv4).
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from ticdc_assets.errors import BusyError
from ticdc_assets.lake.paths import LakePaths


@contextmanager
def writer_lock(paths: LakePaths) -> Iterator[None]:
    """Hold the changefeed's writer lock, or raise BusyError at once."""
    paths.base.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(paths.lock, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BusyError(
                f"another sync of changefeed {paths.changefeed!r} is running "
                f"(it holds {paths.lock}); try again when it has ended"
            ) from error
        yield
    finally:
        os.close(descriptor)
