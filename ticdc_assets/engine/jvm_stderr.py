"""Standard error of Spark's JVM, without the warning line at each start.

In: a start of the JVM, which inherits this process's standard error. Out: the same bytes there,
without Java's warning about the incubating module that Spark's launcher requests. Users cannot
avoid this warning, and it would come before the output of every command.

The JVM gets a pipe, and a thread copies the bytes from it as long as the JVM lives. Only whole
lines before Spark is up are filtered; later bytes pass unchanged. When the JVM ends, it closes the
pipe, and the thread ends.

Why starting again is safe: nothing is left except the thread of each JVM.
"""

import atexit
import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

_WARNING = b"WARNING: Using incubator modules: jdk.incubator.vector"
_STDERR = 2


@contextmanager
def without_warning() -> Iterator[None]:
    """Let a JVM that is started in the context print without the warning."""
    try:
        own = os.dup(_STDERR)
    except OSError:
        yield  # standard error is closed: nobody reads it
        return
    reading, writing = os.pipe()
    is_up = Event()
    Thread(target=_pass_on, args=(reading, own, is_up), daemon=True).start()
    atexit.register(_drain, reading)
    os.dup2(writing, _STDERR)
    os.close(writing)
    try:
        yield
    finally:
        os.dup2(own, _STDERR)
        is_up.set()


def _drain(reading: int) -> None:
    """Wait until what the JVM has printed is passed on, a second at most."""
    until = time.monotonic() + 1
    with suppress(OSError, ValueError):
        while time.monotonic() < until and select.select([reading], [], [], 0)[0]:
            time.sleep(0.005)


def _pass_on(reading: int, writing: int, is_up: Event) -> None:
    """Copy bytes from one descriptor to another until no process has the other end."""
    held = b""
    with os.fdopen(reading, "rb", buffering=0) as source, os.fdopen(writing, "wb", 0) as target:
        while chunk := source.read(65536):
            held += chunk
            lines, last = held.splitlines(keepends=True), b""
            if lines and not is_up.is_set() and not lines[-1].endswith(b"\n"):
                last = lines.pop()
            try:
                target.write(b"".join(line for line in lines if line.rstrip() != _WARNING))
            except OSError:
                return  # whoever read it is gone
            held = last
        target.write(held)
