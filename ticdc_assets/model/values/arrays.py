"""Columns of canonical text to Arrow arrays of the mirror's typed columns.

In: a list of canonical texts, None for NULL. Out: the Arrow array of `arrow_type(column)` with what
`typed_of` gives one by one, NULL for `UNFIT`, and the flags that say where. Histories go this way,
and the few rows that the compiled loops of `values.columns` leave: their rows are resolved one by
one, which costs twenty times as much as this.
"""

from functools import lru_cache
from typing import Any

import pyarrow as pa

from ticdc_assets.model.mysql_types import arrow_type
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.model.values.typed import UNFIT, typed_of

_compiled = lru_cache(maxsize=4096)(typed_of)


def typed_array(
    column: ColumnSchema, timezone: str, texts: list[str | None]
) -> tuple[Any, list[bool] | None]:
    """Build the typed Arrow array of `texts`.

    Returns:
        The array, with nulls for NULL and for `UNFIT` values, and one flag for each text, True
        where it was `UNFIT`; None instead of the flags if no text was.

    Raises:
        ConfigError: `timezone` is needed (a TIMESTAMP column) and is no zone.
    """
    wanted, convert = arrow_type(column), _compiled(column, timezone)
    values = [None if text is None else convert(text) for text in texts]
    unfit = [value is UNFIT for value in values]
    if True not in unfit:
        return pa.array(values, wanted), None
    return pa.array([None if value is UNFIT else value for value in values], wanted), unfit
