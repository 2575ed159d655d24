"""The stand-in changefeed with two faults of the new TiCDC's encoder of Open Protocol.

Source: pkg/sink/codec/open/encoder.go and codec.go in pingcap/ticdc.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from ticdc_assets.demo.simulator.changefeed import StandInChangefeed
from ticdc_assets.model.events import Event
from ticdc_assets.wire.open.reference import ROW
from ticdc_assets.wire.record import Record
from ticdc_assets_tests.wire.differing import parts as frames
from ticdc_assets_tests.wire.open.test_messages import record as open_record

NULL_WHERE_ZERO = frozenset({7, 10, 11, 12, 246, 247, 248})
"""Type codes of DECIMAL, ENUM, SET and the types of time but YEAR."""
JSON = 245


class FaultyChangefeed(StandInChangefeed):
    """Sends Open Protocol with faults.

    Args:
        args: those of the stand-in.
        options: the same.
        stale_flags: whether the flags of a partition's columns are those of its first row until a
            restart, 0 for columns that were added since.
        damaged_old_values: whether an old value that becomes NULL loses its name, and one that is
            empty or zero is NULL.
    """

    def __init__(
        self,
        *args: Any,
        stale_flags: bool = False,
        damaged_old_values: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._is_stale, self._damages = stale_flags, damaged_old_values
        self._flags: dict[int, dict[str, int]] = {}

    def restart(self, checkpoint_ts: int) -> None:
        self._flags.clear()
        super().restart(checkpoint_ts)

    def _encode(self, events: Sequence[Event]) -> Sequence[Record]:
        return [
            open_record(*((key, self._value(key, value)) for key, value in parts(record)))
            for record in super()._encode(events)
        ]

    def _value(self, key: bytes, text: bytes) -> bytes:
        fields = json.loads(key)
        if fields["t"] != ROW:
            return text
        row = json.loads(text)
        if self._is_stale and "ptn" in fields:
            self._make_stale(row, fields["ptn"])
        if not self._damages or "p" not in row:
            return written(row)
        old = ",".join(damaged(name, column, row["u"]) for name, column in row.pop("p").items())
        return written(row)[:-1] + f',"p":{{{old}}}}}'.encode()

    def _make_stale(self, row: dict[str, Any], partition: int) -> None:
        if partition not in self._flags:
            # A DELETE may be cut to the key, which says nothing of the other columns.
            if "u" not in row:
                return
            self._flags[partition] = {name: column["f"] for name, column in row["u"].items()}
        for image in row.values():
            for name, column in image.items():
                column["f"] = self._flags[partition].get(name, 0)


def damaged(name: str, column: dict[str, Any], new: dict[str, Any]) -> str:
    """Return the member of an old value with the faults of TiCDC."""
    value, code = column["v"], column["t"]
    if value is not None and new[name]["v"] is None:
        return written(column)[1:-1].decode()
    if code in NULL_WHERE_ZERO:
        is_empty = re.fullmatch(r"-?[0.:\- ]*", str(value)) is not None
    else:
        is_empty = value in ("", "[]") and code != JSON
    return written({name: {**column, "v": None} if is_empty else column})[1:-1].decode()


def written(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def parts(record: Record) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values in a record of Open Protocol."""
    return zip(frames((record.key or b"")[8:]), frames(record.value or b""), strict=True)
