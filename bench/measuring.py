"""Measuring: a piece of work, several times, as time and CPU.

In: a function without arguments, run once or more to warm up and then several times. Out: a
`Sample` with the wall times and the CPU seconds of this process and all below it (Spark's JVM and
its Python workers are our children). On a machine that others use, wall times wander; ratios of
samples that were taken one after the other wander less.

Not handled: CPU and memory of children on systems without /proc; they count as 0 there.
"""

import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from os import getpid, sysconf
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """How long one piece of work took.

    Attributes:
        seconds: wall time of each repetition.
        cpu_seconds: median CPU time of a repetition, over all processes of the benchmark.
    """

    seconds: tuple[float, ...]
    cpu_seconds: float

    @property
    def least(self) -> float:
        """The shortest."""
        return min(self.seconds)

    @property
    def median(self) -> float:
        """The one in the middle."""
        return statistics.median(self.seconds)

    @property
    def most(self) -> float:
        """The longest."""
        return max(self.seconds)

    def scaled(self, factor: float) -> "Sample":
        """Return what `factor` times the work would take."""
        return Sample(
            seconds=tuple(seconds * factor for seconds in self.seconds),
            cpu_seconds=self.cpu_seconds * factor,
        )


def measure(
    work: Callable[[], object],
    *,
    repetitions: int,
    warm_up: int = 1,
    before: Callable[[], object] | None = None,
) -> Sample:
    """Run `work` and return how long it took.

    Args:
        work: what is measured.
        repetitions: how often it is measured.
        warm_up: how often it is run before that.
        before: run before each time, not measured.
    """
    seconds: list[float] = []
    cpu: list[float] = []
    for number in range(warm_up + repetitions):
        if before is not None:
            before()
        cpu_began, began = cpu_seconds(), time.perf_counter()
        work()
        if number >= warm_up:
            seconds.append(time.perf_counter() - began)
            cpu.append(cpu_seconds() - cpu_began)
    return Sample(seconds=tuple(seconds), cpu_seconds=statistics.median(cpu))


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of all its descendants, ended ones too."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    ticks = 0
    for pid in _family()[1:]:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # it has ended just now
        # Fields 14 to 17: own user and system time, and that of children waited for.
        ticks += sum(map(int, stat.rpartition(")")[2].split()[11:15]))
    below = ended.ru_utime + ended.ru_stime + ticks / sysconf("SC_CLK_TCK")
    return time.process_time() + below


def peak_megabytes() -> tuple[int, int]:
    """Return the peak memory so far: of this process, and of the largest below it."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    below = 0
    for pid in _family()[1:]:
        try:
            status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        for line in status.splitlines():
            if line.startswith("VmHWM:"):
                below = max(below, int(line.split()[1]) // 1024)
    return own, below


def _family() -> list[int]:
    """Return this process and its living descendants."""
    family = [getpid()]
    for pid in family:
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                family.extend(map(int, children.read_text(encoding="ascii").split()))
            except OSError:
                continue
    return family
