"""What the new TiCDC writes of a row besides its meaning.

In: a row change. Out: a `SentRow` for the encoders.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from ticdc_assets.model.events import RowChange


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRow(RowChange):
    """A row change with what the new TiCDC adds.

    Attributes:
        row_key: Canal-JSON: the key of the row, base64; "" where it is not sent.
        stale_flags: Open Protocol: the flags that are sent, by column; None for the true ones.
            Columns without any have 0.
        damages_old_values: Open Protocol: whether `p` has the faults that
            `MessageOptions.damaged_old_values` names.
    """

    row_key: str = ""
    stale_flags: Mapping[str, int] | None = None
    damages_old_values: bool = False

    @classmethod
    def of(cls, row: RowChange, **additions: Any) -> Self:
        """Return `row` with what is added."""
        return cls(
            **{item.name: getattr(row, item.name) for item in fields(RowChange)}, **additions
        )
