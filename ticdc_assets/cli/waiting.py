"""Progress lines on standard error, for commands that take long.

In: the texts that functions report (`base.progress`), and lines that a command prints itself. Out:
nothing in the first seconds; then a line when the text changes, and now and then the same line
again, each with the seconds since the command began. Standard output has only the command's result.
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
_SILENT_SECONDS = 10.0
"""How long a command that prints lines of its own is silent before progress is printed."""

_LINES = "ticdc_assets.cli.progress_lines"


class Lines:
    """The lines of one command."""

    def __init__(self) -> None:
        self._began = monotonic()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._text = "starting"
        self._printed, self._printed_at = "", 0.0
        self._due, self._between = self._began + FIRST_SECONDS, _BETWEEN_SECONDS
        self._thread = threading.Thread(target=self._print, daemon=True)
        self._thread.start()

    def hear(self, text: str) -> None:
        """Print what is being done, when it is time."""
        self._text = text

    def say(self, text: str) -> None:
        """Print a line now, with the seconds since the command began; from any thread.

        Progress is then printed only where such lines do not come for a while.
        """
        with self._lock:
            self._echo(text)
            self._text, self._between = text, _SILENT_SECONDS
            self._due = monotonic() + self._between

    def end(self) -> None:
        """Print no more progress."""
        self._over.set()
        self._thread.join()

    def _print(self) -> None:
        while not self._over.wait(max(0.0, self._due - monotonic())):
            with self._lock:
                now = monotonic()
                if now < self._due:
                    continue
                if self._text != self._printed or now - self._printed_at >= _SAME_SECONDS:
                    self._echo(self._text)
                self._due = now + self._between

    def _echo(self, text: str) -> None:
        now = monotonic()
        click.echo(f"{now - self._began:.0f} s: {visible(text)}", err=True)
        self._printed, self._printed_at = text, now


@contextmanager
def progress_lines(context: click.Context) -> Generator[None]:
    """Print progress while inside, once the command takes longer than `FIRST_SECONDS`."""
    lines = context.meta[_LINES] = Lines()
    try:
        with listened(lines.hear):
            yield
    finally:
        lines.end()


def own_lines() -> Lines:
    """Return the lines of the current command, for one that prints some itself."""
    return click.get_current_context().meta[_LINES]


def end_progress_lines() -> None:
    """Stop the progress lines of the current command, because it prints its own."""
    own_lines().end()
