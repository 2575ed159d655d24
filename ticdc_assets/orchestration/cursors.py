"""Cursors of sensors, as JSON.

In: text that Dagster keeps from tick to tick, which a person may have changed. Out: a value; any
other text counts as an empty one, since losing a cursor does no harm.
"""

from typing import TypeVar

import msgspec

_Cursor = TypeVar("_Cursor")


def read_cursor(text: str | None, kind: type[_Cursor]) -> _Cursor:
    """Return the cursor that `text` has; `kind()` if it has none."""
    try:
        return msgspec.json.decode(text or "{}", type=kind)
    except msgspec.MsgspecError:
        return kind()


def cursor_text(cursor: object) -> str:
    """Return a cursor as JSON."""
    return msgspec.json.encode(cursor).decode()
