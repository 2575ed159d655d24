"""Measuring: a piece of work, several times, as time and CPU.

In: a function without arguments, run once or more to warm up and then several times. Out: a
`Sample` with the wall times and the CPU seconds of this process and all below it (Spark's JVM and
its Python workers are our children). On a machine that others use, wall times wander; ratios of
samples that were taken one after the other wander less.

A Kafka broker that the benchmark started is no part of what is measured: `leave_out` takes a
process and all below it out of both.

Not handled: CPU and memory of children on systems without /proc; they count as 0 there.
"""

import resource
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import getpid, sysconf
from pathlib import Path
from signal import SIGCHLD
from threading import Event, Lock, Thread
from typing import Self


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

    @classmethod
    def joined(cls, samples: "Sequence[Sample]") -> "Sample":
        """Return samples of one piece of work, of which each was taken elsewhere, as one."""
        return cls(
            seconds=tuple(item.median for item in samples),
            cpu_seconds=statistics.median(item.cpu_seconds for item in samples),
        )

    def plus(self, other: "Sample") -> "Sample":
        """Return what both pieces of work take, one after the other."""
        return Sample(
            seconds=tuple(
                own + more for own, more in zip(self.seconds, other.seconds, strict=True)
            ),
            cpu_seconds=self.cpu_seconds + other.cpu_seconds,
        )

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
    (sample,) = measure_in_turn([work], repetitions=repetitions, warm_up=warm_up, before=before)
    return sample


def measure_in_turn(
    works: Sequence[Callable[[], object]],
    *,
    repetitions: int,
    warm_up: int = 1,
    before: Callable[[], object] | None = None,
) -> list[Sample]:
    """Run some works round by round and return how long each took.

    What is compared is measured so: a machine whose speed changes with the minute, as a shared one
    does, changes it for all of them.

    Args:
        works: what is measured.
        repetitions: how many rounds are measured.
        warm_up: how many are run before these.
        before: run before each work, not measured.
    """
    seconds: list[list[float]] = [[] for _ in works]
    cpu: list[list[float]] = [[] for _ in works]
    for number in range(warm_up + repetitions):
        for place, work in enumerate(works):
            if before is not None:
                before()
            cpu_began, began = cpu_seconds(), time.perf_counter()
            work()
            if number >= warm_up:
                seconds[place].append(time.perf_counter() - began)
                cpu[place].append(cpu_seconds() - cpu_began)
    return [
        Sample(seconds=tuple(wall), cpu_seconds=statistics.median(own))
        for wall, own in zip(seconds, cpu, strict=True)
    ]


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of all its descendants, ended ones too."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    below = ended.ru_utime + ended.ru_stime + _BELOW.ticks(_family()[1:]) / sysconf("SC_CLK_TCK")
    return time.process_time() + below


class _Descendants:
    """The CPU time of the processes below this one.

    A parent has the time of each child that it waited for. Spark's parent of Python workers waits
    for none, so the time of a worker that ends would be gone: it is kept here as it was last seen.
    """

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, int]] = {}
        self._gone = 0
        self._lock = Lock()

    def ticks(self, pids: Sequence[int]) -> int:
        """Return the time of living processes, and of those of a parent that waits for none."""
        with self._lock:
            seen: dict[int, tuple[int, int]] = {}
            for pid in pids:
                try:
                    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
                except OSError:
                    continue  # it has ended just now
                fields = stat.rpartition(")")[2].split()
                # Fields 14 to 17: own user and system time, and that of children waited for.
                seen[pid] = int(fields[1]), sum(map(int, fields[11:15]))
            for pid, (parent, ticks) in self._seen.items():
                if pid not in seen and parent in seen and _waits_for_none(parent):
                    self._gone += ticks
            self._seen = seen
            return self._gone + sum(ticks for _, ticks in seen.values())


_BELOW = _Descendants()


def _waits_for_none(pid: int) -> bool:
    """Return whether a process ignores the ends of its children."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    ignored = next(line for line in text.splitlines() if line.startswith("SigIgn:"))
    return bool(int(ignored.split()[1], 16) >> (SIGCHLD - 1) & 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory at one moment, in MB; of pages that Python processes share each has its part.

    Attributes:
        jvm: of Spark's JVM.
        python: of this process and Spark's Python workers.
    """

    jvm: int = 0
    python: int = 0

    @property
    def total(self) -> int:
        """Both together."""
        return self.jvm + self.python


class MemoryWatch:
    """Looks at the memory of this process and all below it while a block runs.

    Args:
        own: whether this process counts too, and not only what is below it.

    Attributes:
        peak: the moment at which all of it was most.
    """

    def __init__(self, *, own: bool = True) -> None:
        self.peak = Memory()
        self._first = 0 if own else 1
        self._over = Event()
        self._thread = Thread(target=self._watch, name="memory", daemon=True)

    def __enter__(self) -> Self:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        jvm = python = 0
        for pid in _family()[self._first :]:
            name, size = _status(pid)
            if name == "java":
                jvm += size
            else:
                python += _own_share(pid, size)
        now = Memory(jvm=jvm, python=python)
        if now.total > self.peak.total:
            self.peak = now


_LOOK_SECONDS = 0.5
_left_out: set[int] = set()


def leave_out(pid: int | None) -> None:
    """Count neither CPU nor memory of a process and of those below it from now on."""
    if pid is not None:
        _left_out.add(pid)


def _status(pid: int) -> tuple[str, int]:
    """Return the name of a process, and its memory in MB; nothing if it has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "", 0
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    size = int(fields["VmRSS"].split()[0]) // 1024 if "VmRSS" in fields else 0
    return fields.get("Name", "").strip(), size


def _own_share(pid: int, otherwise: int) -> int:
    """Return the memory of a process in MB, of shared pages its part: workers are forks of one."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii", errors="replace")
    except OSError:
        return otherwise
    parts = [line.split() for line in text.splitlines()]
    return next((int(part[1]) // 1024 for part in parts if part[0] == "Pss:"), otherwise)


def _family() -> list[int]:
    """Return this process and its living descendants, but for what is left out."""
    family = [getpid()]
    for pid in family:
        # A process, or one of its threads, may end meanwhile.
        with suppress(OSError):
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                with suppress(OSError):
                    found = map(int, children.read_text(encoding="ascii").split())
                    family.extend(child for child in found if child not in _left_out)
    return family
