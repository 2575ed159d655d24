"""Open the tables of a lake, and cache what a sync computes from them.

Every table is opened here. Reading a damaged table raises `LakeDamagedError`. A missing table is
None, unless later tables of the changefeed exist: then it is damaged, as a sync would start again
from the beginning. Nothing is written.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from ticdc_assets.delta.damage import damaged, reading
from ticdc_assets.delta.delta_files import lost_log
from ticdc_assets.delta.delta_protocol import LogState, unportable_features
from ticdc_assets.delta.log_reading import has_commits, listed_once, log_state
from ticdc_assets.storage.lake_paths import HISTORIES, MIRRORS
from ticdc_assets.storage.paths import AnyPath

_Value = TypeVar("_Value")


def open_table(path: AnyPath, version: int | None = None) -> LogState | None:
    """Return the state of a version of a table, the newest if None; None if there is no table.

    Raises:
        LakeDamagedError: it is broken or lacks the requested version; or another program gave Delta
            features (`unportable_features`) to a table that is neither a mirror nor a history.
        StoreUnavailableError: its store does not answer.
    """
    with reading(path, version):
        state = log_state(path, version)
    if state.version < 0:
        later = (name for name in _MADE_AFTER.get(path.name, ()) if has_commits(path.parent / name))
        finding = next(
            (f"its _delta_log has no commit, although {name} was made after it" for name in later),
            None,
        ) or lost_log(path)
        if finding is not None:
            raise damaged(path, finding)
        return None
    foreign = ", ".join(unportable_features(state))
    if foreign and path.parent.name not in (MIRRORS, HISTORIES):
        finding = f"another program gave it features of Delta that only mirrors have ({foreign})"
        raise damaged(path, finding)
    return state


_MADE_AFTER: Mapping[str, Collection[str]] = {
    "raw_messages": ("change_log", "cuts"),
    "landings": ("cuts",),
    "change_log": ("change_groups", "cuts"),
    "change_groups": ("cuts",),
    "ddl_history": ("schema_registry",),
    "schema_conflicts": ("schema_registry",),
}
"""Tables that get a commit only after the table that they are listed under."""


@contextmanager
def keeping(of: str) -> Iterator[None]:
    """Cache what is computed from a version of a table, for all callers within this block.

    The steps and checks of one sync read the same small tables repeatedly, and with thousands of
    tables these are not small. The cache lasts for one sync: another name (`of`) clears it. Threads
    that start within the block share only the states of tables (`log_reading`).
    """
    if of not in _KEPT:
        _KEPT.clear()
        _KEPT[of] = {}
    before = _KEEPER.set(_KEPT[of])
    try:
        with listed_once():
            yield
    finally:
        _KEEPER.reset(before)


def kept(path: AnyPath, what: str, read: Callable[[], _Value]) -> _Value:
    """Return what `read` computes from the newest version of a table, and from nothing else.

    `what` is one text for one function. No caller may change the result.
    """
    store = _KEEPER.get()
    if store is None:
        return read()
    version = latest_version(path)
    cached = store.get((path, what))
    if cached is None or cached[0] != version:
        cached = store[path, what] = (version, read())
    return cached[1]


_KEPT: dict[str, dict[tuple[AnyPath, str], tuple[int | None, Any]]] = {}
_KEEPER: ContextVar[dict[tuple[AnyPath, str], tuple[int | None, Any]] | None] = ContextVar(
    "what is kept", default=None
)


def latest_version(path: AnyPath) -> int | None:
    """Return the newest version of the table at `path`; None if there is no table."""
    state = open_table(path)
    return None if state is None else state.version
