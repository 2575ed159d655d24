"""Progress lines on standard error, for commands that take long.

In: the texts that functions report (`base.progress`). Out: nothing in the first seconds; then a
line when the text changes, and now and then the same line again, each with the seconds since the
command began. Standard output has only the command's result.
"""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from time import monotonic

import click

from ticdc_assets.base.progress import listened
from ticdc_assets.cli.printing import visible

FIRST_SECONDS = 3.0
"""How long a command runs before it prints progress."""

_BETWEEN_SECONDS = 3.0
_SAME_SECONDS = 15.0
"""After how long the same line is printed again."""

_LINES = "ticdc_assets.cli.progress_lines"


class _Lines:
    def __init__(self) -> None:
        self._began = monotonic()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._text = ""

    def hear(self, text: str) -> None:
        with self._lock:
            self._text = text
            if self._thread is None and not self._over.is_set():
                self._thread = threading.Thread(target=self._print, daemon=True)
                self._thread.start()

    def end(self) -> None:
        with self._lock:
            self._over.set()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _print(self) -> None:
        printed, printed_at = "", 0.0
        wait = self._began + FIRST_SECONDS - monotonic()
        while not self._over.wait(max(0.0, wait)):
            seconds = monotonic() - self._began
            text = self._text
            if text != printed or seconds - printed_at >= _SAME_SECONDS:
                click.echo(f"{seconds:.0f} s: {visible(text)}", err=True)
                printed, printed_at = text, seconds
            wait = _BETWEEN_SECONDS


@contextmanager
def progress_lines(context: click.Context) -> Generator[None]:
    """Print progress while inside, once the command takes longer than `FIRST_SECONDS`."""
    lines = context.meta[_LINES] = _Lines()
    try:
        with listened(lines.hear):
            yield
    finally:
        lines.end()


def end_progress_lines() -> None:
    """Stop the progress lines of the current command, because it prints its own."""
    click.get_current_context().meta[_LINES].end()
