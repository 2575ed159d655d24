"""The installed command `ticdc-assets` in processes of its own, and what it costs.

In: words of the command, and the variables that name its configuration, its lake and Dagster's
home. Out: CPU seconds of all processes below it, Spark's JVM too, and the most memory that they
had. Nothing of the process that measures is counted.
"""

import ctypes
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.measuring import Memory, MemoryWatch, Sample
from ticdc_assets.config import CHANGEFEEDS_VARIABLE, HOME_VARIABLE, KafkaSource, Source
from ticdc_assets.wire import WireFormat
from ticdc_assets_tests.commands import Commands

_PR_SET_CHILD_SUBREAPER = 36
_UNCOMPILED = "PYTHONDONTWRITEBYTECODE"


def installed(*words: str) -> list[str]:
    """Return `ticdc-assets`, as it is installed beside this Python, with some words."""
    return [str(Path(sys.executable).with_name("ticdc-assets")), *words]


def configure(folder: Path, name: str, wire_format: WireFormat, source: Source) -> None:
    """Write the configuration of a changefeed, of a local broker's topics or a capture."""
    commands = Commands(folder)
    Path(commands.env[CHANGEFEEDS_VARIABLE]).unlink(missing_ok=True)
    if isinstance(source, KafkaSource):
        commands.add_topic(name, source, format=str(wire_format))
    else:
        commands.add_capture(name, source.path, format=str(wire_format))


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a command whose configuration and lake are in a folder."""
    # Modules that were not kept compiled would be compiled by each command.
    kept = {name: value for name, value in os.environ.items() if name != _UNCOMPILED}
    return kept | Commands(folder).env


def run_counted(command: Sequence[str], folder: Path) -> Sample:
    """Run a command on a folder to the end of all its processes and return what they cost.

    What it says goes into `said.txt` there.

    Spark's JVM outlives the program that started it by a moment, and would be nobody's child: this
    process asks Linux for such children, and waits for them. So it waits for every child that it
    has; one that has a broker leaves this to a process of its own (`apart`).

    Raises:
        CalledProcessError: it failed.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    env = environment(folder)
    Path(env[HOME_VARIABLE]).mkdir(exist_ok=True)
    with (folder / "said.txt").open("ab") as said:
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, env=env, cwd=folder, check=True, stdout=said, stderr=said)
        seconds = time.perf_counter() - began
    try:
        while True:
            os.waitpid(-1, 0)
    except ChildProcessError:
        pass  # all of them have ended
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Sample(seconds=(seconds,), cpu_seconds=used)


def run_watched(command: Sequence[str], folder: Path) -> tuple[Sample, Memory]:
    """Do the same, and return the most memory of its processes too."""
    with MemoryWatch(own=False) as watch:
        sample = run_counted(command, folder)
    return sample, watch.peak
