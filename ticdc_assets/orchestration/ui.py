"""Serve the Dagster UI, with its daemon, and end it with everything that it started.

In: settings and a port. The runs that the UI started end with it, as cancelled: nothing failed, so
there is no alert.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO

import yaml
from dagster import DagsterRunStatus, RunsFilter

import ticdc_assets
from ticdc_assets.base.ports import HOST, require_free
from ticdc_assets.config import CHANGEFEEDS_VARIABLE, HOME_VARIABLE, LAKE_VARIABLE, Settings
from ticdc_assets.orchestration.active_runs import signals_handled, worker_of
from ticdc_assets.orchestration.instance import LOCATION_NAME, dagster_home, open_instance
from ticdc_assets.orchestration.mirror_assets import WEBSERVER


def serve_ui(settings: Settings, port: int, say: Callable[[str], None]) -> int:
    """Serve the Dagster UI, with its daemon, on 127.0.0.1 until it is stopped; return its status.

    `say` is called with a line when it starts, when it answers, and when it stops.

    Raises:
        PrerequisiteError: something listens on `port` already.
    """
    with signals_interrupt():
        try:
            with ui_server(settings, port) as server:
                say("starting the Dagster UI and its daemon, which takes some seconds")
                announce_ui(server, port, lambda url: say(f"the Dagster UI is at {url}"))
                try:
                    return server.wait()
                except KeyboardInterrupt:
                    say("stopping the Dagster UI, its daemon and the runs that they started")
        except KeyboardInterrupt:
            pass  # a second one, while it was being stopped
        say("stopped; the tables and the recorded runs stay")
        return 0


def announce_ui(
    server: "subprocess.Popen[bytes]", port: int, answers: Callable[[str], None]
) -> None:
    """Call `answers` with the URL of the UI, from another thread, once it answers."""
    url = f"http://{HOST}:{port}"

    def look() -> None:
        while server.poll() is None:
            try:
                with urllib.request.urlopen(f"{url}/server_info", timeout=5):
                    answers(url)
                    return
            except OSError:
                time.sleep(0.5)

    threading.Thread(target=look, name="ui", daemon=True).start()


@contextmanager
def ui_server(settings: Settings, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Start the server of the Dagster UI on 127.0.0.1, and end it with everything it started.

    It ends with the thread that started it, so use it in the main thread. It raises as `serve_ui`.
    """
    require_free(port)
    command, env = ui_command(settings, port)
    ending = threading.Event()
    with subprocess.Popen(
        command,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_end_with_parent,
    ) as server:
        assert server.stdout is not None
        lines = threading.Thread(target=_pass_on, args=(server.stdout, ending), daemon=True)
        lines.start()
        try:
            yield server
        finally:
            ending.set()
            # The server has its own session, so it does not get the terminal's signals.
            runs: list[str] = []
            try:
                runs = _begin_to_stop_runs(settings, server.pid)
            finally:
                server.terminate()
                _end_group(server)
            lines.join()
            if runs:
                with open_instance(settings) as instance:
                    for run in filter(None, map(instance.get_run_by_id, runs)):
                        if run.status not in _ENDED_WELL:  # nothing failed, so there is no alert
                            instance.report_run_canceled(run, STOPPED_WITH_UI)


_ENDED_WELL = (DagsterRunStatus.SUCCESS, DagsterRunStatus.CANCELED)
STOPPED_WITH_UI = "stopped with the UI"
_LAUNCHED = ".dagster/grpc_info"
"""Tag of the runs that a code server launched; a command's run has none."""
_GRACE_SECONDS = 15


def _pass_on(lines: IO[bytes], ending: threading.Event) -> None:
    """Write the server's lines to standard error until it ends; then come tracebacks of runs."""
    for line in lines:
        if not ending.is_set():
            sys.stderr.buffer.write(line)
            sys.stderr.flush()


def _begin_to_stop_runs(settings: Settings, session: int) -> list[str]:
    """Record that the runs of a UI are being cancelled, and return their ids.

    They are those of the `session` of the UI's processes: another UI, or a command, may work on
    runs of the same instance.
    """
    run_ids: list[str] = []
    with open_instance(settings) as instance:
        at_work = RunsFilter(statuses=[DagsterRunStatus.STARTING, DagsterRunStatus.STARTED])
        for run in instance.get_runs(filters=at_work):
            worker = worker_of(run)
            try:
                # Runs of small checks name no worker.
                is_ours = worker is None or os.getsid(worker.process.process) == session
            except OSError:
                continue  # it has just ended
            if is_ours and _LAUNCHED in run.tags:
                instance.report_run_canceling(run, STOPPED_WITH_UI)
                run_ids.append(run.run_id)
    return run_ids


def _end_group(server: subprocess.Popen[bytes]) -> None:
    """End a server and what it started: code servers, the daemon, and runs, which may be killed."""
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


def _end_with_parent() -> None:
    """Let Linux end this process when its parent dies, even by SIGKILL."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


def signals_interrupt() -> AbstractContextManager[None]:
    """Treat SIGTERM like an interrupt from the keyboard, so that nothing outlives this process.

    A shell starts background programs, and so a server, with interrupts ignored.
    """
    return signals_handled(signal.default_int_handler)


def ui_command(settings: Settings, port: int) -> tuple[list[str], dict[str, str]]:
    """Return the command that serves the UI, and the environment it needs."""
    home = dagster_home(settings)
    workspace = home / "workspace.yaml"
    # By module, so that it works wherever the package is installed; with a fixed name, because
    # links, sensors and their cursors contain it.
    module = {
        "module_name": "ticdc_assets.definitions",
        # Not the current folder: a file there with the name of a module would be imported in its
        # place.
        "working_directory": str(Path(ticdc_assets.__file__).parent.parent),
        "location_name": LOCATION_NAME,
        "executable_path": sys.executable,
    }
    text = yaml.safe_dump({"load_from": [{"python_module": module}]}, sort_keys=False)
    workspace.write_text(text, encoding="utf-8")
    command = [
        *(sys.executable, "-m", "dagster", "dev"),
        *("-w", str(workspace)),
        *("--host", HOST),
        *("--port", str(port)),
        *("--log-level", "warning"),
    ]
    env = dict(os.environ) | {
        HOME_VARIABLE: str(home),
        CHANGEFEEDS_VARIABLE: str(settings.path),
        LAKE_VARIABLE: str(settings.lake),
        # The tables sensor reloads the location there when tables were created.
        WEBSERVER: os.environ.get(WEBSERVER) or f"http://{HOST}:{port}",
        # The warning recommends `dg dev`, which is another package.
        "PYTHONWARNINGS": "ignore:Function `dev_command` is superseded",
    }
    return command, env
