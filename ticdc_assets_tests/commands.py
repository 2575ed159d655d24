"""The command line as tests use it: in this process, where Spark runs already, or as a program."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from click.testing import CliRunner, Result

from ticdc_assets.cli import main
from ticdc_assets.config import KafkaSource
from ticdc_assets.delta.lake import paths_of
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import AnyPath
from ticdc_assets.wire.compression import Compression
from ticdc_assets_tests.golden import Rows, Scenario, rows_of
from ticdc_assets_tests.stores import StoreLake

PROGRAM = (sys.executable, "-m", "ticdc_assets.cli")

Done: TypeAlias = "subprocess.CompletedProcess[str]"
"""A command that has ended."""


def without_progress(text: str) -> list[str]:
    """Return the lines of a standard error, without those about progress and where work ran."""
    return [line for line in text.splitlines() if not re.match(r"(\d+ s|ran): ", line)]


@dataclass(frozen=True)
class Commands:
    """A folder with a changefeeds file, a lake and a Dagster instance, and commands on them.

    The lake is in the folder too, if it is not given as one in a store.
    """

    folder: Path
    store: StoreLake | None = None

    @property
    def env(self) -> dict[str, str]:
        return {
            "TICDC_CHANGEFEEDS": str(self.folder / "changefeeds.yaml"),
            "TICDC_LAKE": str(self.lake),
            "DAGSTER_HOME": str(self.folder / "dagster_home"),
            **(self.store.secrets if self.store is not None else {}),
        }

    @property
    def lake(self) -> AnyPath:
        return self.folder / "lake" if self.store is None else self.store.path

    def paths(self, changefeed: str) -> LakePaths:
        return paths_of(self.lake, changefeed)

    def add_capture(
        self, name: str, capture: Path | str, timezone: str = "UTC", **settings: Any
    ) -> None:
        """Add a changefeed over a capture to the file, with more of what the file may say of it."""
        self._add(name, {"capture": str(capture)}, timezone, **settings)

    def add_scenario(self, name: str, scenario: Scenario, **settings: Any) -> None:
        """Add a changefeed over a folder of golden messages to the file."""
        settings["format"] = str(scenario.wire_format)
        if scenario.compression is not Compression.NONE:
            settings["compression"] = str(scenario.compression)
        if scenario.claim_check is not None:
            settings["claim_check"] = {
                "location": scenario.claim_check.location,
                "raw_value": scenario.claim_check.raw_value,
            }
        self.add_capture(name, scenario.capture, scenario.timezone, **settings)

    def add_topic(
        self,
        name: str,
        source: KafkaSource,
        timezone: str = "UTC",
        *,
        secrets: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        """Add a changefeed over topics to the file; `secrets` are options in the environment."""
        options: dict[str, Any] = {key: option.value for key, option in source.options.items()}
        options |= {key: {"env": variable} for key, variable in (secrets or {}).items()}
        kafka = {
            "bootstrap_servers": source.bootstrap_servers,
            "topics": list(source.topics),
            "options": options,
        }
        self._add(name, {"kafka": kafka}, timezone, **settings)

    def _add(self, name: str, source: dict[str, Any], timezone: str, **settings: Any) -> None:
        path = Path(self.env["TICDC_CHANGEFEEDS"])
        feeds = json.loads(path.read_text())["changefeeds"] if path.exists() else []
        feed = {"name": name, "format": "simple-json", "timezone": timezone, "source": source}
        feed |= settings
        # JSON is YAML.
        block = {} if self.store is None else self.store.block
        storage = {"storage": block} if block else {}
        path.write_text(json.dumps({"changefeeds": [*feeds, feed], **storage}, indent=2))

    # In this process ----------------------------------------------------------------------------

    def run(self, *arguments: object, **env: str) -> Result:
        """Run a command here; an exception that it does not turn into a sentence comes out."""
        return CliRunner().invoke(
            main, [str(item) for item in arguments], env=self.env | env, catch_exceptions=False
        )

    def here(self, *arguments: object, env: Mapping[str, str] | None = None) -> Done:
        """Run a command here and return what `program` would."""
        result = self.run(*arguments, **dict(env or {}))
        return subprocess.CompletedProcess(
            [*map(str, arguments)], result.exit_code, result.stdout, result.stderr
        )

    def done(self, *arguments: object) -> str:
        """Run a command that succeeds and return its standard output."""
        result = self.run(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    def refused(self, *arguments: object, **env: str) -> str:
        """Run a command that fails and return the one sentence that says why."""
        result = self.run(*arguments, **env)
        assert result.exit_code == 1, result.output
        (sentence,) = without_progress(result.stderr)
        assert sentence.startswith("Error: ")
        assert "Traceback" not in result.output
        return sentence.removeprefix("Error: ")

    def mirrors(self, changefeed: str) -> list[dict[str, Any]]:
        """Return what `tables --json` tells."""
        return json.loads(self.done("tables", changefeed, "--json"))

    def rows(self, changefeed: str, *options: object) -> Rows:
        """Return every row of every mirror, as `dump` tells them."""
        return rows_of(map(json.loads, self.done("dump", changefeed, *options).splitlines()))

    def set(self, name: str, **settings: Any) -> None:
        """Change what the file says of a changefeed."""
        path = Path(self.env["TICDC_CHANGEFEEDS"])
        file = json.loads(path.read_text())
        feeds = [feed | settings if feed["name"] == name else feed for feed in file["changefeeds"]]
        path.write_text(json.dumps(file | {"changefeeds": feeds}, indent=2))

    # As a program -------------------------------------------------------------------------------

    def start(
        self,
        *arguments: object,
        program: Sequence[str] = PROGRAM,
        env: Mapping[str, str] | None = None,
        **streams: Any,
    ) -> "subprocess.Popen[bytes]":
        """Start a command, or another program, in a process group of its own."""
        return subprocess.Popen(
            [*program, *map(str, arguments)],
            env=dict(os.environ) | self.env | dict(env or {}),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            **streams,
        )

    def program(
        self, *arguments: object, seconds: float = 300, env: Mapping[str, str] | None = None
    ) -> Done:
        """Run a command as a program, its two outputs apart."""
        process = self.start(*arguments, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            stdout, stderr = process.communicate(timeout=seconds)
        finally:
            process.kill()
        return subprocess.CompletedProcess(
            process.args, process.returncode, stdout.decode(), stderr.decode()
        )

    def ran(self, *arguments: object) -> str:
        """Run a command as a program that succeeds and return its standard output."""
        done = self.program(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of change of every file below a folder."""
    return dict(_files(folder))


def _files(folder: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            status = path.stat()
            yield str(path.relative_to(folder)), (status.st_size, status.st_mtime_ns)
