"""The frame of every step of a changefeed: the lock, the errors, the results.

A step holds the changefeed's writer lock while it writes, and waits for it, because a command line
may hold it outside of any pool. An error that this package raises on purpose fails the step with
its one sentence, without wrappers; `orchestration.run` raises it unchanged to its caller.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import dagster as dg

from ticdc_assets.base.errors import BusyError, TicdcError
from ticdc_assets.config import Changefeed, Settings
from ticdc_assets.delta.lake import Lake
from ticdc_assets.delta.opening import keeping
from ticdc_assets.log.damage import damage_told
from ticdc_assets.observe.wording import duration
from ticdc_assets.orchestration.active_runs import name_worker
from ticdc_assets.orchestration.partitions import CHANGEFEED_TAG, FeedNames
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import AnyPath

PATIENCE_SECONDS = 600.0
"""How long a run or a command waits for another program that writes to the changefeed's tables."""

_LOOK_SECONDS = 0.2

_Result = TypeVar("_Result")


def _say_nothing(_: str) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangefeedSteps:
    """One changefeed for its assets.

    Attributes:
        changefeed: its configuration.
        root: the folder or URI of all changefeeds' tables.
        results: the results of the lake's functions, in the order of the steps run, for a caller
            that runs a job in its own process; Dagster itself sees only metadata.
        say: called with lines for the person who started the run: which program it waits for, and
            what a run that follows did.
    """

    changefeed: Changefeed
    root: AnyPath
    results: list[object] = field(default_factory=list[object])
    say: Callable[[str], None] = _say_nothing

    @property
    def paths(self) -> LakePaths:
        """Its tables, as the newest cut names them now."""
        return self.lake.paths

    @property
    def lake(self) -> Lake:
        """Its lake, as the newest cut names it now."""
        return Lake.open(self.root, self.changefeed)

    @property
    def names(self) -> FeedNames:
        """The names of its assets and jobs."""
        return FeedNames(changefeed=self.changefeed.name)

    @contextmanager
    def writing(self, context: dg.AssetExecutionContext | dg.OpExecutionContext) -> Iterator[None]:
        """Hold the writer lock; turn this package's errors into a failure of the step.

        Runs of one instance wait for each other in the changefeed's pool. A command, in no pool,
        may hold the lock; the step waits for it for some time, and logs that.
        """
        name_worker(context, self.paths, self.changefeed.writer)
        if CHANGEFEED_TAG not in context.run.tags:
            # The UI and its backfills start runs of an implicit job, without this package's tags.
            context.instance.add_run_tags(context.run.run_id, self.names.tags)

        def waiting(text: str) -> None:
            context.log.info("%s", text)
            self.say(text)

        with (
            keeping(context.run.run_id),
            reported_failures(self.paths),
            patient_lock(self, own_id=context.run.run_id, waiting=waiting),
        ):
            yield

    def note(self, result: _Result) -> _Result:
        """Keep a result for `orchestration.run`, and return it."""
        self.results.append(result)
        return result


def steps_of(settings: Settings, changefeed: Changefeed) -> ChangefeedSteps:
    """Return the steps of a changefeed."""
    return ChangefeedSteps(changefeed=changefeed, root=settings.lake)


@contextmanager
def reported_failures(paths: LakePaths) -> Iterator[None]:
    """Turn this package's errors, and those of broken tables, into a failure of the step."""
    try:
        with damage_told(paths):
            yield
    except TicdcError as error:
        raise dg.Failure(
            description=str(error),
            metadata={"error": type(error).__name__, "retriable": error.retriable},
            allow_retries=error.retriable,
        ) from error


@contextmanager
def patient_lock(
    steps: ChangefeedSteps,
    *,
    own_id: str = "",
    seconds: float = PATIENCE_SECONDS,
    waiting: Callable[[str], None] = _say_nothing,
) -> Iterator[None]:
    """Hold the writer lock for the run `own_id`, after waiting for it.

    `waiting` is called with the holder of the lock if there is a wait, and when the wait is over.

    Raises:
        BusyError: another program held it for `seconds`.
    """
    began, holder = time.monotonic(), ""
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(steps.lake.writing(run=own_id))
                break
            except BusyError as error:
                if time.monotonic() - began >= seconds:
                    raise
                if not holder:
                    holder = error.holder or "another program"
                    waiting(f"waiting for {holder}, which writes to this changefeed's tables")
                time.sleep(_LOOK_SECONDS)
        if holder:
            waiting(f"waited {duration(time.monotonic() - began)} for {holder}")
        yield
