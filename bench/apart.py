"""Running a function in a process of its own, so that nothing before it is measured with it.

In: a function of a module and its arguments. Out: what it returned or raised. The process starts
anew (it is not forked), so it has no JVM, no caches and no memory of what was run before.
"""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from typing import ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def apart(
    function: Callable[_Arguments, _Result],
    *arguments: _Arguments.args,
    **named: _Arguments.kwargs,
) -> "Future[_Result]":
    """Call a function in a process of its own and wait for its end."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments, **named)
