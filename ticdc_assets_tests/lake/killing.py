"""The death of a run at a chosen place: an exception, which leaves what a killed process leaves.

A real kill of a real process is tried in the end-to-end tests.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import pytest


class Killed(BaseException):
    """The death of a run."""


Death: TypeAlias = Callable[[pytest.MonkeyPatch], None]
"""Lets a run die at its place."""


def before(owner: Any, name: str, call: int = 1) -> Death:
    """Die when `owner.name` is about to be called for the `call`-th time."""
    return _at(owner, name, call, first=False)


def after(owner: Any, name: str, call: int = 1) -> Death:
    """Die when `owner.name` has just been called for the `call`-th time."""
    return _at(owner, name, call, first=True)


def _at(owner: Any, name: str, call: int, *, first: bool) -> Death:
    def install(monkeypatch: pytest.MonkeyPatch) -> None:
        original = getattr(owner, name)
        calls = 0

        def dying(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls < call:
                return original(*args, **kwargs)
            if first:
                original(*args, **kwargs)
            raise Killed(f"{name}, call {call}")

        monkeypatch.setattr(owner, name, dying)

    return install


@contextmanager
def killed(death: Death) -> Iterator[None]:
    """Let the run inside die, and fail if it lives."""
    with pytest.MonkeyPatch.context() as patch:
        death(patch)
        with pytest.raises(Killed):
            yield


def raising(error: Exception) -> Callable[..., Any]:
    """Return a function that raises an error, whatever it is called with."""

    def broken(*_: object, **__: object) -> None:
        raise error

    return broken
