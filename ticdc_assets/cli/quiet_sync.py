"""A sync that finds nothing to do, known for one without Dagster.

In: a changefeed, and the file that the command wrote after its last sync. Out: the lines of a sync
that changes nothing, or None if there is, or may be, something to do: then the job runs. A run of
the job costs seconds of CPU even if it finds nothing.

The file, in the folder of the Dagster instance, has the position of the source before the sync, and
the number of the cut after it, which that instance has recorded. It is written after a run that
ended well, so a killed run is followed by another run. It does not count if the source, the cut, a
landed or decoded batch, the newest seed, the changefeed's settings or the package differ. The first
step of `apply_changes` says whether the mirrors would stay as they are, under the writer's lock.
Losing the file costs one run.
"""

import hashlib
import uuid
from collections.abc import Hashable
from contextlib import suppress
from importlib.metadata import version

from ticdc_assets.base.errors import BusyError, LakeDamagedError, TicdcError
from ticdc_assets.config import Settings
from ticdc_assets.delta.control import commit_metadata
from ticdc_assets.delta.lake import Lake
from ticdc_assets.delta.opening import keeping
from ticdc_assets.log.seeds import landed_seed
from ticdc_assets.log.watching import SourceWatcher
from ticdc_assets.observe.status import Status
from ticdc_assets.storage.paths import write_at_once


class LastSync:
    """What the command stores about the last sync of a changefeed."""

    def __init__(self, settings: Settings, lake: Lake) -> None:
        self._lake = lake
        self._file = settings.home() / "ticdc_assets" / lake.changefeed.name
        self._source: Hashable = None

    def look(self) -> None:
        """Record the position of the source, before it is synced."""
        with suppress(TicdcError):  # the run says so, and is recorded as failed
            self._source = SourceWatcher(self._lake).look()

    def keep(self, cut: int | None) -> None:
        """Store that a sync brought the mirrors to a cut, and that Dagster has recorded it."""
        if self._source is None:
            return
        with suppress(OSError):  # the sync is done, and the next one makes a run
            write_at_once(self._file, f"{_text(self._source)} {self._rest(cut)}")

    def quiet(self) -> tuple[str, Status] | None:
        """Return why a sync has nothing to do, and the status; None if it may have something."""
        # Only now, since a command with other work needs none of it.
        from datetime import UTC, datetime

        from ticdc_assets.mirrors.standing import Outcome, standing
        from ticdc_assets.observe.status_reading import read_status

        source, rest = "", ""
        with suppress(OSError, ValueError):
            source, rest = self._file.read_text(encoding="utf-8").split()
        if self._source is None or source != _text(self._source):
            return None
        try:
            with self._lake.writing(), keeping(uuid.uuid4().hex):
                answer = standing(self._lake)
                if answer.ended is None or answer.ended.outcome is not Outcome.UNCHANGED:
                    return None
                cut = answer.ended.cut
                if rest != self._rest(None if cut is None else cut.number):
                    return None
                status = read_status(self._lake, datetime.now(UTC))
        except (BusyError, LakeDamagedError):
            return None  # the run says so, and mends it where it can
        return answer.ended.reason, status

    def _rest(self, cut: int | None) -> str:
        """Return all but the source that has to be the same for a sync to find nothing."""
        paths = self._lake.paths
        tables = (paths.raw_messages, paths.change_log, paths.change_groups)
        return _text(
            (
                cut,
                str(paths.base.absolute()),
                [commit_metadata(table).get("batch", 0) for table in tables],
                landed_seed(paths),
                self._lake.changefeed,
                version("ticdc-assets"),
            )
        )


def _text(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()
