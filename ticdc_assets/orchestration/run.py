"""Run a changefeed's jobs and backfills from a program, in this process; the UI shows its runs.

In: settings and the name of a changefeed. Out: the results of the lake's steps. The run is recorded
in the Dagster instance of DAGSTER_HOME (`<lake>/_dagster` by default), with its events,
materialisations and checks, as if the UI had started it. Each function raises as `run_job`; any
other exception is a bug and is raised unchanged.

A backfill materialises the assets that a person in the UI does; a run takes a range of adjacent
days, like Dagster's own single-run backfills, or all tables. A correct day is left as it is, and a
table is folded to its current state, so running it again is safe.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import date, timedelta
from itertools import groupby
from typing import Any, Generic, TypeVar
from uuid import uuid4

import dagster as dg
from dagster import DagsterInstance

# Dagster exports no name for where a run belongs: see `_runs_of_location`.
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin

from ticdc_assets.base.errors import ConfigError, NotFoundError, TicdcError
from ticdc_assets.base.names import joined_name, table_named
from ticdc_assets.base.progress import tell
from ticdc_assets.config import Settings
from ticdc_assets.delta.lease import this_process
from ticdc_assets.delta.lock import seen_at_work
from ticdc_assets.log.cuts import Cut, MirrorCut, require_cut
from ticdc_assets.log.decoding import Decoding
from ticdc_assets.log.landing import Landing, landed_days
from ticdc_assets.mirrors.standing import Applying
from ticdc_assets.observe.wording import listed
from ticdc_assets.orchestration.active_runs import Worker, end_orphans
from ticdc_assets.orchestration.changefeeds import definitions_of
from ticdc_assets.orchestration.following import Ending, Followed
from ticdc_assets.orchestration.instance import LOCATION_NAME, open_instance
from ticdc_assets.orchestration.metadata import utc_now
from ticdc_assets.orchestration.mirror_assets import MirrorAssets
from ticdc_assets.orchestration.partitions import DAY_FORMAT, JobKind
from ticdc_assets.orchestration.steps import PATIENCE_SECONDS, patient_lock, steps_of
from ticdc_assets.reading.mirrors import require_mirror
from ticdc_assets.repair.maintenance import Maintaining
from ticdc_assets.repair.rebuilding import Rebuild
from ticdc_assets.repair.redecoding import Redecoding
from ticdc_assets.repair.redriving import Redriving
from ticdc_assets.repair.seeding import Seeding

FOLLOW_RUN_SECONDS = 3600.0
"""The longest that one run follows."""

_Result = TypeVar("_Result")


class _Last(Generic[_Result]):
    """The last result of a kind, as an attribute of a report."""

    def __init__(self, kind: type[_Result]) -> None:
        self._kind = kind

    def __get__(self, report: "RunReport", _: type) -> _Result:
        return report.last(self._kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """The checks of one run of a job, and the lake's results, in the order of the steps.

    A result by its name is the last of its kind: `followed` has the numbers of a run that followed
    its source, and why it ended.
    """

    run_id: str
    checks: tuple[dg.AssetCheckEvaluation, ...]
    results: tuple[object, ...]

    landing = _Last(Landing)
    decoding = _Last(Decoding)
    applying = _Last(Applying)
    redriving = _Last(Redriving)
    seeding = _Last(Seeding)
    followed = _Last(Followed)

    def last(self, kind: type[_Result]) -> _Result:
        """Return the last result of a kind."""
        return next(result for result in reversed(self.results) if isinstance(result, kind))


def run_sync(
    settings: Settings,
    changefeed: str,
    *,
    until: int | str | None = None,
    max_records: int | None = None,
    say: Callable[[str], None] | None = None,
    instance: DagsterInstance | None = None,
) -> RunReport:
    """Run the sync job of a changefeed once; `run_job` says what `say` and `instance` are.

    It lands at most `max_records`, and applies nothing beyond `until`: a TSO, or time in ISO 8601.
    """
    config = {
        "raw_messages": {"max_records": max_records},
        "apply_changes": {"until": None if until is None else str(until)},
    }
    return run_job(settings, changefeed, "sync", config, instance=instance, say=say)


def run_follow(
    settings: Settings,
    changefeed: str,
    *,
    seconds: float | None = None,
    rest_seconds: float | None = None,
    say: Callable[[str], None] | None = None,
    instance: DagsterInstance | None = None,
) -> RunReport:
    """Follow the source of a changefeed, and return the report of the last run.

    A signal ends it after the current sync. It is one run after the other, each of an hour at most:
    Dagster keeps all events of a run in the memory of its process until the run ends. `seconds`
    (math.inf: forever) is as configured if None, `rest_seconds` as for `FollowConfig`; `say` is
    called with a line for each thing it does.
    """
    if seconds is None:
        seconds = settings.changefeed(changefeed).follow_seconds
    ends = time.monotonic() + seconds
    while True:
        left = min(max(0.0, ends - time.monotonic()), FOLLOW_RUN_SECONDS)
        config = {"follow": {"seconds": left, "rest_seconds": rest_seconds}}
        report = run_job(settings, changefeed, "follow", config, instance=instance, say=say)
        if report.followed.ending is not Ending.TIME or time.monotonic() >= ends:
            return report


def run_seed(
    settings: Settings,
    changefeed: str,
    config: Mapping[str, Any],
    *,
    instance: DagsterInstance | None = None,
) -> RunReport:
    """Run the seed job of a changefeed once, whose configuration is `ExportConfig`."""
    return run_job(settings, changefeed, "seed", {"seed": config}, instance=instance)


def run_redrive(
    settings: Settings,
    changefeed: str,
    *,
    quarantined: bool = True,
    instance: DagsterInstance | None = None,
) -> RunReport:
    """Run the re-drive job of a changefeed once.

    Without what is `quarantined`, these are the steps of a sync that do not need the source.
    """
    config = {
        "decode_messages": {"redrive": quarantined},
        "apply_changes": {"refold_quarantined": quarantined},
    }
    return run_job(settings, changefeed, "redrive", config, instance=instance)


def run_rebuild(settings: Settings, changefeed: str, *, accept_losses: bool = False) -> Rebuild:
    """Run the rebuild job of a changefeed once; `accept_losses` is as for `rebuilding.rebuild`."""
    config = {"rebuild": {"accept_losses": accept_losses}}
    return run_job(settings, changefeed, "rebuild", config).last(Rebuild)


def run_maintenance(settings: Settings, changefeed: str) -> Maintaining:
    """Run the maintenance job of a changefeed once."""
    return run_job(settings, changefeed, "maintenance", {}).last(Maintaining)


def run_job(
    settings: Settings,
    changefeed: str,
    kind: JobKind | None,
    config: Mapping[str, Mapping[str, Any]],
    *,
    instance: DagsterInstance | None = None,
    say: Callable[[str], None] | None = None,
    selection: Sequence[dg.AssetKey] | None = None,
    tags: Mapping[str, str] | None = None,
) -> RunReport:
    """Run a job of a changefeed once, in this process; of no `kind`, materialise `selection`.

    Args:
        settings: the settings.
        changefeed: name of the changefeed.
        kind: the job, or None.
        config: configuration of its ops, by the names of assets.
        instance: where the run is recorded; that of `dagster_home(settings)` if None.
        say: called with a line that names the program it waits for.
        selection: the assets to materialise, as the UI does.
        tags: tags of the run besides those of the changefeed.

    Raises:
        BusyError: another process wrote to the changefeed's tables for too long.
        KeyboardInterrupt: a signal ended it; the run is recorded as cancelled or failed.
        TicdcError: a step failed; it is the error of that step.
    """
    steps = replace(steps_of(settings, settings.changefeed(changefeed)), say=say or tell)
    names, run_id = steps.names, str(uuid4())
    definitions = definitions_of([steps], has_mirrors=kind is None)
    job = (
        definitions.resolve_implicit_global_asset_job_def()
        if kind is None
        else definitions.resolve_job_def(names.job(kind))
    )
    with nullcontext(instance) if instance else open_instance(settings) as where:
        end_orphans(where, names, utc_now())
        # A run that cannot get the lock would be recorded as failed: try before there is a run.
        with patient_lock(steps, seconds=PATIENCE_SECONDS, waiting=steps.say):
            pass
        try:
            with (
                seen_at_work(steps.paths, steps.changefeed.writer) as lock,
                _runs_of_location(where),
            ):
                result = job.execute_in_process(
                    run_config={
                        "ops": {
                            names.op(name): {"config": dict(values)}
                            for name, values in config.items()
                        },
                        # Dagster's log lines are in the run; on the console they would hide the
                        # caller's.
                        "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
                    },
                    instance=where,
                    run_id=run_id,
                    # The run has its worker from the beginning: it may be killed before any step.
                    tags=names.tags
                    | dict(tags or {})
                    | Worker(run_id, this_process(), lock).tag
                    | {_RETRIES: "0"},
                    asset_selection=selection,
                )
        except dg.DagsterExecutionInterruptedError:
            raise KeyboardInterrupt from None
        except dg.Failure as failure:
            if isinstance(failure.__cause__, TicdcError):
                raise failure.__cause__ from None
            raise
    return RunReport(
        run_id=run_id,
        checks=tuple(result.get_asset_check_evaluations()),
        results=tuple(steps.results),
    )


_RETRIES = "dagster/max_retries"
"""Tag with how often the daemon starts a run again; by default it would after a Ctrl-C."""


@contextmanager
def _runs_of_location(instance: DagsterInstance) -> Iterator[None]:
    """Let runs created meanwhile belong to the UI's code location: its timeline shows no others."""
    create = instance.create_run_for_job
    repository = RemoteRepositoryOrigin(
        RegisteredCodeLocationOrigin(LOCATION_NAME), "__repository__"
    )

    def create_for_location(job_def: dg.JobDefinition, *args: Any, **kwargs: Any) -> dg.DagsterRun:
        kwargs["remote_job_origin"] = repository.get_job_origin(job_def.name)
        return create(job_def, *args, **kwargs)

    instance.create_run_for_job = create_for_location
    try:
        yield
    finally:
        instance.create_run_for_job = create


# Backfills ----------------------------------------------------------------------------------------

_RANGE_START = "dagster/asset_partition_range_start"
_RANGE_END = "dagster/asset_partition_range_end"


def days_between(first: date, last: date) -> list[date]:
    """Return the days from `first` to `last`, both included.

    Raises:
        ConfigError: the last one is before the first.
    """
    if last < first:
        raise ConfigError(f"the days end on {last}, before they begin on {first}")
    return [first + timedelta(days=number) for number in range((last - first).days + 1)]


def backfill_days(
    settings: Settings,
    changefeed: str,
    days: Collection[date],
    *,
    accept_losses: bool = False,
    instance: DagsterInstance | None = None,
) -> tuple[Redecoding, ...]:
    """Decode landing days (UTC) again, as runs of `change_log`; return the result of each run.

    With `accept_losses`, rows may go whose record is refused now. It raises as `run_job`, and:

    Raises:
        NotFoundError: nothing landed on any of the days, or one is no longer whole.
    """
    steps = steps_of(settings, settings.changefeed(changefeed))
    landed = landed_days(steps.paths)
    if not landed or not set(landed) & set(days):
        landed_text = (
            f"records landed from {landed[0]} to {landed[-1]}" if landed else "nothing landed"
        )
        raise NotFoundError(f"nothing landed on {listed(map(str, sorted(days)))}: {landed_text}")
    wanted = {day for day in days if landed[0] <= day <= utc_now().date()}
    config = {"change_log": {"accept_losses": accept_losses}}
    selection = [steps.names.asset("change_log")]
    runs = (
        run_job(
            settings, changefeed, None, config, instance=instance, selection=selection, tags=tags
        )
        for tags in _ranges(wanted)
    )
    return tuple(run.last(Redecoding) for run in runs)


def backfill_tables(
    settings: Settings,
    changefeed: str,
    tables: Sequence[str],
    *,
    instance: DagsterInstance | None = None,
) -> tuple[Cut, list[MirrorCut]]:
    """Fold tables again from the change log, at the newest cut, in one run of their assets.

    Return the newest cut afterwards, and its mirrors of these tables. It raises as `run_job`, and:

    Raises:
        NotFoundError: nothing is published yet, or there is no such table.
    """
    steps = steps_of(settings, settings.changefeed(changefeed))
    cut = require_cut(steps.paths)
    names = set(map(table_named, tables))
    for name in names:
        require_mirror(cut, *name)
    keys = (key for key, name in MirrorAssets.of(steps).by_key.items() if name in names)
    selection = sorted(keys) or [steps.names.asset("mirrors")]
    config = {"mirrors": {"tables": sorted(joined_name(*name) for name in names)}}
    report = run_job(settings, changefeed, None, config, instance=instance, selection=selection)
    cut = report.applying.cut or cut
    return cut, [item for item in cut.mirrors if (item.database, item.table) in names]


def _ranges(days: Iterable[date]) -> Iterator[dict[str, str]]:
    """Yield tags of runs, a range of adjacent days each, as Dagster's own backfills divide them."""
    for _, adjacent in groupby(enumerate(sorted(days)), lambda item: item[1].toordinal() - item[0]):
        keys = [f"{day:{DAY_FORMAT}}" for _, day in adjacent]
        yield {_RANGE_START: keys[0], _RANGE_END: keys[-1]}
