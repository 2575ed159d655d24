"""How much time and memory an input may take.

Time is CPU time of one thread, so that a busy machine makes no failure. Even that is too much now
and then (caches that others filled, a virtual processor that was taken away), so what was too slow
is asked again: slow is what is slow each time. Memory is limited by the
system (RLIMIT_AS) while a batch is looked at: what needs more gets a MemoryError, or ends the
worker. How much a large input really took is read from the peak that Linux keeps of a program.

Both work on Linux; elsewhere memory is not limited, and its growth is reported as 0.
"""

import resource
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import thread_time
from typing import Final

_STATUS: Final = Path("/proc/self/status")
_CLEAR: Final = Path("/proc/self/clear_refs")
_CLEAR_PEAK: Final = "5"

SLACK: Final = 160 * 1024 * 1024
"""What a batch may take besides a multiple of its size; half of it is what 64 MiB of content, the
most that is decompressed, and the check of it take."""
MOST_PER_BYTE: Final = 250
"""Bytes that a byte of an input may take, with all that checking it takes."""

ASKED_AGAIN: Final = 2
"""How often what was too slow is asked again."""


def seconds_allowed(size: int) -> float:
    """Return the CPU seconds that an input of `size` bytes may take."""
    return 0.5 + size / 250_000


def least_seconds(seconds: float, allowed: float, work: Callable[[], object]) -> float:
    """Return `seconds`, or the fewer that `work` takes when it is asked again.

    It is asked only if `seconds` are more than `allowed`, and until they are not.

    Args:
        seconds: CPU seconds that it took.
        allowed: CPU seconds that it may take.
        work: what took them; may raise.
    """
    for _ in range(ASKED_AGAIN):
        if seconds <= allowed:
            break
        began = thread_time()
        with suppress(Exception):
            work()
        seconds = min(seconds, thread_time() - began)
    return seconds


@contextmanager
def limited_memory(size: int) -> Generator[None]:
    """Limit what the program may take to what inputs of `size` bytes are allowed to."""
    now = _kilobytes("VmSize") * 1024
    if not now:
        yield
        return
    before, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + SLACK + MOST_PER_BYTE * size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, hard))


def memory_growth(work: Callable[[], object]) -> int:
    """Run `work` and return how many bytes more than before it took at its peak."""
    try:
        _CLEAR.write_text(_CLEAR_PEAK, encoding="ascii")
    except OSError:
        work()
        return 0
    before = _kilobytes("VmRSS")
    work()
    return max(0, _kilobytes("VmHWM") - before) * 1024


def peak_megabytes() -> int:
    """Return the most memory this program has taken so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _kilobytes(name: str) -> int:
    try:
        text = _STATUS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return 0
