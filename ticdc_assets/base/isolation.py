"""Isolation: the failure of one piece of work is a value, so that other pieces continue.

In: a function. Out: its result, or a `Failure` with one sentence. Only this module catches every
exception, so callers must show the failure to people. `Failures` collects those of many pieces, to
be raised together after the last one.

Not caught are exceptions that end the process: Ctrl-C, `SystemExit`, a kill.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from ticdc_assets.base.errors import LakeDamagedError, TicdcError, UnfinishedError

_CHARACTERS = 400
RUST_PANIC = "PanicException"
"""The type of a panic of Rust code: no `Exception`, and of its own module each time."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why one piece of work failed: one sentence without any value of a row."""

    reason: str


def attempted(work: Callable[[], T], what: str, *, alone: bool = False) -> T | Failure:
    """Return the result of `work`, or the failure of any exception; the log calls it `what`.

    With `alone`, an error that waiting may cure is raised: it does not concern this piece alone.
    """
    try:
        return work()
    except BaseException as error:
        # When Rust code panics, delta-rs and pyarrow raise something that is not an Exception.
        is_failure = isinstance(error, Exception) or type(error).__name__ == RUST_PANIC
        if not is_failure or (alone and isinstance(error, TicdcError) and error.retriable):
            raise
        failure = Failure(reason=first_sentence(error))
    _log.warning("%s failed: %s", what, failure.reason)
    return failure


@dataclass(frozen=True, slots=True)
class Failures:
    """The pieces of some work, in words, that failed."""

    work: str
    _kept: dict[str, list[str]] = field(default_factory=dict[str, list[str]], init=False)

    @property
    def reasons(self) -> dict[str, str]:
        """Why each piece failed, by its name; "; " joins several reasons."""
        return {name: "; ".join(reasons) for name, reasons in self._kept.items()}

    def add(self, name: str, reason: str) -> None:
        """Record that a piece failed, unless it is recorded already."""
        reasons = self._kept.setdefault(name, [])
        if reason not in reasons:
            reasons.append(reason)

    def attempted(self, work: Callable[[], T], name: str) -> T | Failure:
        """Return what `attempted` does with `alone`, and record a failure."""
        outcome = attempted(work, f"{self.work}: {name}", alone=True)
        if isinstance(outcome, Failure):
            self.add(name, outcome.reason)
        return outcome

    def require_none(self) -> None:
        """Raise UnfinishedError if a piece failed."""
        if self._kept:
            raise UnfinishedError(self.work, self.reasons)


def first_sentence(error: BaseException) -> str:
    """Return the first sentence of an error, in one line; Spark's errors have dozens of lines."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines[:3]) or type(error).__name__
    if isinstance(error, LakeDamagedError):
        return text  # its end says how to repair it
    if not isinstance(error, TicdcError):
        text = f"{type(error).__name__}: {text}" if lines else text
    return text if len(text) <= _CHARACTERS else text[: _CHARACTERS - 1] + "…"
