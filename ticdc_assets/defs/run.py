"""Run a changefeed's jobs from a program, in this process; the UI shows the same runs.

In: settings and the name of a changefeed. Out: the results of the lake's steps. The run is recorded
in the Dagster instance of DAGSTER_HOME (`<lake>/_dagster` by default), with its events,
materialisations and checks, as if the UI had started it.

Errors of this package are raised to the caller as in the step; the run records the failed step. Any
other exception is a bug and is raised unchanged.
"""

import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import dagster as dg
import yaml
from dagster import DagsterInstance

import ticdc_assets
from ticdc_assets.config import CHANGEFEEDS_VARIABLE, LAKE_VARIABLE, Settings
from ticdc_assets.defs.active_runs import FOLLOW_TAG, end_orphans
from ticdc_assets.defs.changefeeds import definitions_of
from ticdc_assets.defs.event_log import opened_instance
from ticdc_assets.defs.following import Followed
from ticdc_assets.defs.home import HOME_VARIABLE, home_path
from ticdc_assets.defs.steps import ChangefeedSteps, patient_lock, steps_of
from ticdc_assets.errors import PrerequisiteError, TicdcError
from ticdc_assets.pipeline.decoding import Decoding
from ticdc_assets.pipeline.landing import Landing
from ticdc_assets.pipeline.schema_tables import Registering
from ticdc_assets.pipeline.standing import Applying
from ticdc_assets.ports import HOST, port_is_free
from ticdc_assets.services.maintenance import Maintaining
from ticdc_assets.services.redriving import Redriving
from ticdc_assets.services.seeding import Seeding

INSTANCE_FILE = "dagster.yaml"
LOCATION_NAME = "ticdc_assets"

_LOG = logging.getLogger(__name__)

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """One check as a run evaluated it.

    Attributes:
        asset: name of the asset it is about.
        name: name of the check.
        passed: whether all is well.
        severity: `WARN` or `ERROR`.
        description: its finding.
    """

    asset: str
    name: str
    passed: bool
    severity: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReport:
    """What one sync did.

    Attributes:
        run_id: id of the Dagster run.
        landing: the landing.
        decoding: the decoding.
        registering: what was registered.
        applying: what was applied.
        checks: the checks, in the order of their evaluation.
    """

    run_id: str
    landing: Landing
    decoding: Decoding
    registering: Registering
    applying: Applying
    checks: tuple[CheckReport, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveReport:
    """What one re-drive did; the attributes are those of `SyncReport`, with `redriving`."""

    run_id: str
    redriving: Redriving
    registering: Registering
    applying: Applying
    checks: tuple[CheckReport, ...]


def run_sync(
    settings: Settings,
    changefeed: str,
    *,
    until: int | str | None = None,
    max_records: int | None = None,
    instance: DagsterInstance | None = None,
) -> SyncReport:
    """Run the sync job of a changefeed once, in this process.

    Args:
        settings: the settings.
        changefeed: name of the changefeed.
        until: TSO, or time in ISO 8601, not to apply beyond.
        max_records: land at most this many records.
        instance: where the run is recorded; that of `dagster_home(settings)` if None.

    Raises:
        BusyError: another process writes to the changefeed's tables now.
        TicdcError: a step failed; it is the error of that step.
    """
    steps = steps_of(settings, settings.changefeed(changefeed))
    names = steps.names
    config = {
        names.op("raw_messages"): {"max_records": max_records},
        names.op("apply_changes"): {"until": None if until is None else str(until)},
    }
    run_id, checks = _execute(settings, steps, names.job("sync"), config, instance)
    return SyncReport(
        run_id=run_id,
        landing=_result(steps, Landing),
        decoding=_result(steps, Decoding),
        registering=_result(steps, Registering),
        applying=_result(steps, Applying),
        checks=checks,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowReport:
    """What a run that followed its source did.

    Attributes:
        run_id: id of the Dagster run.
        followed: the numbers, and why it ended.
    """

    run_id: str
    followed: Followed


def run_follow(
    settings: Settings,
    changefeed: str,
    *,
    seconds: float | None = None,
    rest_seconds: float | None = None,
    say: Callable[[str], None] | None = None,
    instance: DagsterInstance | None = None,
) -> FollowReport:
    """Follow the source of a changefeed, in this process.

    A signal ends it after the sync that is under way.

    Args:
        settings: the settings.
        changefeed: name of the changefeed.
        seconds: how long it goes on; as configured if None.
        rest_seconds: how long it rests between two looks at the source, also after syncs that
            brought watermarks only; as the job does if None.
        say: told what it does, while it does it.
        instance: where the run is recorded; that of `dagster_home(settings)` if None.

    Raises:
        BusyError: another process writes to the changefeed's tables now.
        TicdcError: a sync failed; it is its error.
    """
    steps = steps_of(settings, settings.changefeed(changefeed))
    if say is not None:
        steps = replace(steps, say=say)
    names = steps.names
    config = {names.op("follow"): {"seconds": seconds, "rest_seconds": rest_seconds}}
    tags = {FOLLOW_TAG: "true"}
    try:
        run_id, _ = _execute(settings, steps, names.job("follow"), config, instance, tags=tags)
    except dg.DagsterExecutionInterruptedError:
        # A second signal, or one before Spark was there: it is recorded as cancelled.
        raise KeyboardInterrupt from None
    return FollowReport(run_id=run_id, followed=_result(steps, Followed))


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedReport:
    """What one run of the seed job did.

    Attributes:
        run_id: id of the run in the Dagster instance.
        seeding: what was seeded.
        applying: what the apply behind it did.
    """

    run_id: str
    seeding: Seeding
    applying: Applying


def run_seed(
    settings: Settings,
    changefeed: str,
    config: Mapping[str, Any],
    *,
    instance: DagsterInstance | None = None,
) -> SeedReport:
    """Run the seed job of a changefeed once, in this process.

    Args:
        settings: the settings.
        changefeed: name of the changefeed.
        config: the configuration of the asset `seed_tables`.
        instance: where the run is recorded; that of `dagster_home(settings)` if None.

    Raises:
        BusyError: another process writes to the changefeed's tables now.
        TicdcError: a step failed; it is the error of that step.
    """
    steps = steps_of(settings, settings.changefeed(changefeed))
    names = steps.names
    config = {names.op("seed_tables"): config}
    run_id, _ = _execute(settings, steps, names.job("seed"), config, instance)
    return SeedReport(
        run_id=run_id, seeding=_result(steps, Seeding), applying=_result(steps, Applying)
    )


def run_redrive(
    settings: Settings, changefeed: str, *, instance: DagsterInstance | None = None
) -> RedriveReport:
    """Run the re-drive job of a changefeed once, in this process.

    Raises:
        BusyError: another process writes to the changefeed's tables now.
        TicdcError: a step failed; it is the error of that step.
    """
    steps = steps_of(settings, settings.changefeed(changefeed))
    names = steps.names
    config = {
        names.op("decode_messages"): {"redrive": True},
        names.op("apply_changes"): {"refold_quarantined": True},
    }
    run_id, checks = _execute(settings, steps, names.job("redrive"), config, instance)
    return RedriveReport(
        run_id=run_id,
        redriving=_result(steps, Redriving),
        registering=_result(steps, Registering),
        applying=_result(steps, Applying),
        checks=checks,
    )


def run_maintenance(
    settings: Settings, changefeed: str, *, instance: DagsterInstance | None = None
) -> Maintaining:
    """Run the maintenance job of a changefeed once, in this process.

    Raises:
        BusyError: another process writes to the changefeed's tables now.
        TicdcError: the step failed; it is its error.
    """
    steps = steps_of(settings, settings.changefeed(changefeed))
    _execute(settings, steps, steps.names.job("maintenance"), {}, instance)
    return _result(steps, Maintaining)


def _execute(
    settings: Settings,
    steps: ChangefeedSteps,
    job_name: str,
    config: Mapping[str, Mapping[str, Any]],
    instance: DagsterInstance | None,
    *,
    tags: Mapping[str, str] | None = None,
) -> tuple[str, tuple[CheckReport, ...]]:
    job = definitions_of([steps], has_mirrors=False).resolve_job_def(job_name)
    with nullcontext(instance) if instance else open_instance(settings) as where:
        result = execute(steps, job, where, config=config, tags=tags)
    checks = tuple(
        CheckReport(
            asset=evaluation.asset_key.path[-1],
            name=evaluation.check_name,
            passed=evaluation.passed,
            severity=evaluation.severity.value,
            description=evaluation.description or "",
        )
        for evaluation in result.get_asset_check_evaluations()
    )
    return result.run_id, checks


def execute(
    steps: ChangefeedSteps,
    job: dg.JobDefinition,
    instance: DagsterInstance,
    *,
    config: Mapping[str, Mapping[str, Any]] | None = None,
    tags: Mapping[str, str] | None = None,
    selection: Sequence[dg.AssetKey] | None = None,
    patience: float = 0,
) -> dg.ExecuteInProcessResult:
    """Execute a job of a changefeed in this process.

    Args:
        steps: the changefeed.
        job: the job.
        instance: where the run is recorded.
        config: configuration of its ops, by their names.
        tags: tags of the run, beside those of the changefeed.
        selection: the assets to materialise; those of the job if None.
        patience: for how many seconds to wait for another writer.

    Raises:
        BusyError: another process writes to the changefeed's tables.
        TicdcError: a step failed; it is the error of that step.
    """
    end_orphans(instance, steps.names)
    # A run that cannot get the lock would be recorded as failed; say so before there is one.
    with patient_lock(steps, instance, seconds=patience, waiting=_LOG.warning):
        pass
    try:
        return job.execute_in_process(
            run_config={
                "ops": {name: {"config": dict(values)} for name, values in (config or {}).items()},
                # Dagster's log lines are in the run; on the console they would bury the
                # caller's own.
                "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
            },
            instance=instance,
            tags=steps.names.tags | dict(tags or {}),
            asset_selection=selection,
        )
    except dg.Failure as failure:
        if isinstance(failure.__cause__, TicdcError):
            raise failure.__cause__ from None
        raise


def _result(steps: ChangefeedSteps, kind: type[_Result]) -> _Result:
    return next(result for result in reversed(steps.results) if isinstance(result, kind))


# The instance -----------------------------------------------------------------------------------


def dagster_home(settings: Settings) -> Path:
    """Return the folder of the Dagster instance; it is made, with its settings, if missing."""
    home = home_path(settings)
    try:
        home.mkdir(parents=True, exist_ok=True)
        # Exclusive: settings that are there are somebody's, even if they are empty.
        with (home / INSTANCE_FILE).open("x", encoding="utf-8") as file:
            file.write(instance_settings())
    except FileExistsError:
        pass
    except OSError as error:
        raise PrerequisiteError(
            f"the folder of the Dagster instance, {home}, cannot be written to "
            f"({error.strerror}); set {HOME_VARIABLE} to another folder"
        ) from error
    return home


def instance_settings() -> str:
    """Return the text of the dagster.yaml that comes with the package."""
    return files("ticdc_assets.defs").joinpath(INSTANCE_FILE).read_text(encoding="utf-8")


@contextmanager
def open_instance(settings: Settings) -> Iterator[DagsterInstance]:
    """Open the Dagster instance of `dagster_home(settings)`."""
    home = str(dagster_home(settings))
    before = os.environ.get(HOME_VARIABLE)
    # What a run's processes read (compute logs, for one) goes by the variable.
    os.environ[HOME_VARIABLE] = home
    try:
        with opened_instance(home) as instance:
            yield instance
    finally:
        if before is None:
            os.environ.pop(HOME_VARIABLE, None)


# The UI -----------------------------------------------------------------------------------------


def serve_ui(settings: Settings, port: int) -> int:
    """Serve the Dagster UI, with its daemon, on 127.0.0.1 until it is stopped; return its status.

    Raises:
        PrerequisiteError: something listens on `port` already.
    """
    with signals_interrupt(), ui_server(settings, port) as server:
        try:
            return server.wait()
        except KeyboardInterrupt:
            return 0


@contextmanager
def ui_server(settings: Settings, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Start the server of the Dagster UI on 127.0.0.1, and end it with all that it started.

    It is to be used in the main thread: the server ends with the thread that started it.

    Raises:
        PrerequisiteError: something listens on `port` already.
    """
    if not port_is_free(port):
        raise PrerequisiteError(
            f"port {port} of {HOST} is in use, maybe by another UI; choose another port with --port"
        )
    command, env = ui_command(settings, port)
    with subprocess.Popen(
        command, env=env, start_new_session=True, preexec_fn=_end_with_parent
    ) as server:
        try:
            yield server
        finally:
            # The server is in a session of its own and hears of the end from here only.
            server.terminate()
            _end_group(server)


_GRACE_SECONDS = 15


def _end_group(server: subprocess.Popen[bytes]) -> None:
    """End a server and what it started: code servers, the daemon, runs.

    The server ends its children when it is asked to, but for a code server that is busy and the
    run that keeps it so. A run may be killed anywhere.
    """
    try:
        server.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    for number, seconds in ((signal.SIGTERM, _GRACE_SECONDS), (signal.SIGKILL, 1)):
        try:
            os.killpg(server.pid, number)
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                os.killpg(server.pid, 0)
                time.sleep(0.1)
        except (ProcessLookupError, PermissionError):
            return  # no process of the group is left (macOS says the second of dead ones)


_PR_SET_PDEATHSIG = 1


def _end_with_parent() -> None:
    """Let Linux end this process when the one that started it dies of whatever, a SIGKILL too."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """Take SIGTERM like an interrupt from the keyboard, so that nothing outlives this process.

    Both must not be ignored when a server is started: it would inherit that (a shell starts
    background programs so) and could not be stopped but by force.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ui_command(settings: Settings, port: int) -> tuple[list[str], dict[str, str]]:
    """Return the command that serves the UI, and the environment it needs."""
    home = dagster_home(settings)
    workspace = home / "workspace.yaml"
    # By module, so that it works wherever the package is installed; with a fixed name, because
    # links, sensors and their cursors go by it.
    workspace.write_text(
        yaml.safe_dump(
            {
                "load_from": [
                    {
                        "python_module": {
                            "module_name": "ticdc_assets.definitions",
                            # Not the current folder: a file there that is called like some
                            # module would be imported in its place.
                            "working_directory": str(Path(ticdc_assets.__file__).parent.parent),
                            "location_name": LOCATION_NAME,
                            "executable_path": sys.executable,
                        }
                    }
                ]
            },
            sort_keys=False,
        ),
        encoding="utf-8",
    )
    command = [
        *(sys.executable, "-m", "ticdc_assets.defs.dagster_dev", "dev"),
        *("-w", str(workspace)),
        *("--host", HOST),
        *("--port", str(port)),
        *("--log-level", "warning"),
    ]
    env = dict(os.environ) | {
        HOME_VARIABLE: str(home),
        CHANGEFEEDS_VARIABLE: str(settings.path),
        LAKE_VARIABLE: str(settings.lake),
    }
    return command, env
