"""What the new TiCDC writes of a row besides its meaning.

In: a row change, and the row as the upstream committed it. Out: a `SentRow` for the encoders.

Source: pkg/sink/codec/canal/canal_json_encoder.go in pingcap/ticdc.

Not handled: the keys of clustered primary keys of other types than integers and text, which TiKV
encodes by type.
"""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Self

from ticdc_assets.demo.simulator.transaction import CommittedRow
from ticdc_assets.model.events import RowChange
from ticdc_assets.model.schemas import TableSchema

_INTEGER_DIGITS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRow(RowChange):
    """A row change with what the new TiCDC adds.

    Attributes:
        row_key: Canal-JSON: the key of the row in TiKV, base64; "" where it is not sent.
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


def row_key(row: CommittedRow, schema: TableSchema) -> str:
    """Return the key of a row in TiKV, in base64.

    It is real for rows known by an integer and by TiDB's hidden row id.
    """
    primary = next((index for index in schema.own_indexes if index.primary), None)
    key = b"t" + _encoded_integer(row.physical_id) + b"_r"
    if primary is not None and primary.name == "PRIMARY":
        key += b"".join(map(_encoded_handle, row.key))
    else:
        digits = row.key[-1] if row.key else "0"
        key += _encoded_integer(int(digits) if digits.lstrip("-").isdecimal() else 0)
    return b64encode(key).decode()


def _encoded_integer(number: int) -> bytes:
    return ((number + 2**63) % 2**64).to_bytes(8)


def _encoded_handle(text: str) -> bytes:
    if text.lstrip("-").isdecimal() and len(text) < _INTEGER_DIGITS:
        return b"\x03" + _encoded_integer(int(text))
    content = text.encode()
    groups = bytearray(b"\x01")
    for start in range(0, len(content) + 1, 8):
        group = content[start : start + 8]
        groups += group.ljust(8, b"\0") + bytes((255 - (8 - len(group)),))
    return bytes(groups)
