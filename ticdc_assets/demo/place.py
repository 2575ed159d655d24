"""The demo's folder, for commands that use the demo of `make demo`.

In: the folder. Out: the configuration of the demo, and the environment of this process set to its
tables and its Dagster instance; and, while a live demo runs, its door: an address on 127.0.0.1 that
accepts a statement as a line of JSON and answers with one. The door's file has a token that a
client must send, and only this user can read it.

Reading writes nothing, so it can be repeated.
"""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from ticdc_assets.base.errors import ConfigError, StatementError
from ticdc_assets.base.ports import HOST
from ticdc_assets.config import CHANGEFEEDS_VARIABLE, LAKE_VARIABLE, Settings, load_settings

CHANGEFEED = "shop"
"""The demo's changefeed."""

DIRECTORY = ".demo"
"""The folder of the demo, where nobody says another one."""

_DOOR = "live.json"
_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Where a live demo takes statements.

    Attributes:
        pid: id of its process.
        port: port on 127.0.0.1.
        token: what a client has to show.
        ui: address of its Dagster UI.
    """

    pid: int
    port: int
    token: str
    ui: str

    @contextmanager
    def shown(self, directory: Path) -> Iterator[None]:
        """Have it in the demo's folder while the block lasts, for this user only."""
        path = directory / _DOOR
        path.unlink(missing_ok=True)
        path.touch(mode=0o600, exist_ok=False)
        try:
            path.write_text(json.dumps(asdict(self)), encoding="utf-8")
            yield
        finally:
            path.unlink(missing_ok=True)


def find_door(directory: Path) -> Door | None:
    """Return the door of the demo that is, or was until it was killed, live in a folder."""
    try:
        return Door(**json.loads((directory / _DOOR).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def run_upstream(directory: Path, sql: str) -> str:
    """Run a statement on the upstream of a live demo; return in words what it did.

    Raises:
        ConfigError: no demo is live there.
        StatementError: the statement cannot be run, or no answer came.
    """
    directory = directory.resolve()
    door = find_door(directory)
    none = ConfigError(
        f"no live demo runs in {directory}; start one, and keep it running: "
        "ticdc-assets demo --live (or make demo LIVE=1)"
    )
    if door is None:
        raise none
    try:
        connection = socket.create_connection((HOST, door.port), timeout=_TIMEOUT_SECONDS)
    except OSError as error:
        raise none from error
    try:
        with connection, connection.makefile("rw", encoding="utf-8") as stream:
            stream.write(json.dumps({"token": door.token, "sql": sql}) + "\n")
            stream.flush()
            answer = json.loads(stream.readline())
    except (OSError, ValueError) as error:
        raise StatementError(
            f"the live demo gave no answer ({error}); the statement may have been run: see its rows"
        ) from error
    if "error" in answer:
        raise StatementError(answer["error"])
    return answer["done"]


def use_demo(directory: Path | None = None) -> Settings:
    """Point this process at the demo's configuration, lake and Dagster instance.

    Args:
        directory: the demo's folder; `.demo` in the current one if None.

    Raises:
        ConfigError: there is no demo.
    """
    directory = (directory or Path(DIRECTORY)).resolve()
    if not (directory / "changefeeds.yaml").is_file():
        raise ConfigError(f"there is no demo in {directory}; run: ticdc-assets demo (or make demo)")
    os.environ[CHANGEFEEDS_VARIABLE] = str(directory / "changefeeds.yaml")
    os.environ[LAKE_VARIABLE] = str(directory / "lake")
    os.environ["DAGSTER_HOME"] = str(directory / "dagster_home")
    return load_settings()
