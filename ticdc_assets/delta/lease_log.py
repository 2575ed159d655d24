"""The lease's log: a folder of numbered files, each of which is an entry.

In: the folder. Out: `LeaseLog`, a `lease.Log`. An entry is created under the number after the
newest one, only where no file is (`storage.creating`). So of two entries after the same one, one is
refused, in a folder as in an object store or an HDFS. Each entry has the whole state, so a writer
removes all but the newest ones.

Why writing again is safe: an entry's bytes contain the token of its lease, and creating the same
bytes again finds them. A writer that stalled until its next number was removed puts an entry that
is not the newest; `lease` reads the newest after each put, so that writer learns that it is late.
"""

import json
import re
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from typing import Any

from ticdc_assets.delta.damage import damaged, require_answer
from ticdc_assets.delta.lease import Entry, Holder, LeaseState
from ticdc_assets.storage.creating import create
from ticdc_assets.storage.paths import AnyPath, names_in

_ENTRY = re.compile(r"[0-9]{20}\.json")

_KEPT = 20
"""How many entries are kept at least, for people and for processes that list them now."""

_REMOVED = 10
"""After how many entries the older ones are removed."""


class LeaseLog:
    """The log of a lease.

    Args:
        folder: its folder, which the first entry creates.
    """

    def __init__(self, folder: AnyPath) -> None:
        self._folder = folder
        self._newest = Entry(version=0, state=None)

    def newest(self) -> Entry:
        """Return the newest entry; one of version 0 without a state if there is none.

        Raises:
            LakeDamagedError: it is not a lease's.
            StoreUnavailableError: its store does not answer.
            OSError: the folder cannot be read.
        """
        try:
            # A folder that other hosts write to may show an entry late; this log knows its own.
            while (version := max(self._versions(), default=0)) > self._newest.version:
                with suppress(FileNotFoundError):  # removed, because newer ones came
                    state = self._read(self._entry(version).read_bytes())
                    self._newest = Entry(version=version, state=state)
        except OSError:
            require_answer(self._folder)
            raise
        return self._newest

    def put(self, state: LeaseState, after: Entry) -> bool:
        """Put an entry after another one; return False if there is one already.

        Raises:
            OSError: nobody knows whether it was put, or it cannot be.
        """
        version = after.version + 1
        try:
            create(self._entry(version), _stored(state))
        except FileExistsError:
            return False
        self._newest = Entry(version=version, state=state)
        # Each listing is a request in a store, so entries go a few at a time.
        if version % _REMOVED == 0:
            for older in self._versions():
                if older <= version - _KEPT:
                    self._entry(older).unlink(missing_ok=True)
        return True

    def _entry(self, version: int) -> AnyPath:
        return self._folder / f"{version:020}.json"

    def _versions(self) -> list[int]:
        # Files that are being written have other names.
        return [int(name[:-5]) for name in names_in(self._folder) if _ENTRY.fullmatch(name)]

    def _read(self, content: bytes) -> LeaseState:
        try:
            stored: dict[str, Any] = json.loads(content)
            return LeaseState(
                **{
                    **stored,
                    "holder": Holder(**stored["holder"]),
                    "taken_at": datetime.fromisoformat(stored["taken_at"]),
                    "renewed_at": datetime.fromisoformat(stored["renewed_at"]),
                }
            )
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(self._folder, "its newest entry is not a lease's") from error


def read_lease(folder: AnyPath) -> LeaseState | None:
    """Return the newest entry of a log; None if no process ever took the lease.

    It raises the errors of `LeaseLog.newest`.
    """
    return LeaseLog(folder).newest().state


def _stored(state: LeaseState) -> bytes:
    return json.dumps(asdict(state), default=datetime.isoformat).encode()
