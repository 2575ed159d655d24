"""The signals that ask this process to end."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def signals_handled(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Have SIGINT and SIGTERM call `handler`. Python allows this in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)
