"""One text for the key of a row: unambiguous, readable, and the same everywhere."""

from collections.abc import Sequence

import orjson

from ticdc_assets.model.mysql_types import Kind, kind_of
from ticdc_assets.model.schemas import ColumnSchema

_FLOATING = (Kind.FLOAT, Kind.DOUBLE)


def key_text(values: Sequence[str | None], columns: Sequence[ColumnSchema] = ()) -> str:
    """Return the canonical key values as one JSON array of strings.

    Args:
        values: canonical texts in key order. A key has no NULL; a whole row may have some.
        columns: the key's columns in the same order. Only FLOAT and DOUBLE need them: their -0
            and 0 are one key.
    """
    if columns:
        values = [
            "0" if value == "-0" and kind_of(column) in _FLOATING else value
            for value, column in zip(values, columns, strict=True)
        ]
    return orjson.dumps(values if isinstance(values, list | tuple) else list(values)).decode()
