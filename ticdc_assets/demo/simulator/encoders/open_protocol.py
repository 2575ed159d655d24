"""Open Protocol: the events of a batch in one record.

In: events whose rows have their shape. Out: records whose key and value hold the same number of
parts, as `wire.open_protocol` reads them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from ticdc_assets.base.errors import shorten
from ticdc_assets.demo.simulator.encoders.column_types import action_code, type_code
from ticdc_assets.demo.simulator.encoders.go_json import dumps, without_empty
from ticdc_assets.demo.simulator.encoders.open_values import json_value
from ticdc_assets.model.events import (
    Bootstrap,
    DdlEvent,
    Event,
    Image,
    Op,
    PhysicalValue,
    RowChange,
    Watermark,
)
from ticdc_assets.model.schemas import ColumnFlag, SentColumn
from ticdc_assets.wire.open_protocol import DDL, NUMBER_SIZE, ROW, VERSION_BYTES, WATERMARK
from ticdc_assets.wire.record import Record

DEFAULT_BATCH_SIZE: Final = 16
DEFAULT_MESSAGE_BYTES: Final = 10 * 1024 * 1024
"""TiCDC's own defaults of `max-batch-size` and `max-message-bytes`."""

_RECORD_OVERHEAD: Final = 36
"""What TiCDC counts for a record besides its key and value."""


def encode(
    events: Sequence[Event],
    *,
    max_batch_size: int = DEFAULT_BATCH_SIZE,
    max_message_bytes: int = DEFAULT_MESSAGE_BYTES,
) -> list[Record]:
    """Return the records that TiCDC would send for `events`, in their order.

    Rows that follow each other share a record. A row's `table_id` is written as its partition, so
    only rows of partitioned tables should have one. Build times, schemas, schema versions and
    checksums have no place in the format and are left out.

    Args:
        events: rows with their shape, DDL and watermarks.
        max_batch_size: rows that a record has at most.
        max_message_bytes: size that a record with several rows has at most.

    Raises:
        ValueError: an event is none that the format can carry, or a row lacks its shape.
    """
    if max_batch_size < 1:
        raise ValueError(f"a batch size of at least 1, not {max_batch_size}")
    return batched(
        ((event, _WRITERS[type(event)](event)) for event in events),
        max_batch_size=max_batch_size,
        max_message_bytes=max_message_bytes,
        overhead=_RECORD_OVERHEAD,
    )


@dataclass(slots=True)
class _Batch:
    """A record while it is filled."""

    size: int
    keys: list[bytes] = field(default_factory=lambda: [VERSION_BYTES])
    values: list[bytes] = field(default_factory=list[bytes])
    rows: int = 0

    def add(self, key: bytes, value: bytes, *, is_row: bool) -> None:
        self.keys += (len(key).to_bytes(NUMBER_SIZE), key)
        self.values += (len(value).to_bytes(NUMBER_SIZE), value)
        self.size += len(key) + len(value) + 2 * NUMBER_SIZE
        self.rows += is_row

    def record(self) -> Record:
        return Record(key=b"".join(self.keys), value=b"".join(self.values))


def batched(
    parts: Iterable[tuple[Event, tuple[bytes, bytes]]],
    *,
    max_batch_size: int,
    max_message_bytes: int,
    overhead: int = 0,
) -> list[Record]:
    """Return the records of events, each given with its key and its value.

    Args:
        parts: the events, in order; rows that follow each other share a record.
        max_batch_size: rows that a record has at most.
        max_message_bytes: size that a record with several rows has at most.
        overhead: bytes that count for a record besides its key and value.
    """
    batches: list[_Batch] = []
    for event, (key, value) in parts:
        is_row = isinstance(event, RowChange)
        batch = batches[-1] if batches else None
        if (
            batch is None
            or not (batch.rows and is_row)
            or batch.rows >= max_batch_size
            or batch.size + len(key) + len(value) + 2 * NUMBER_SIZE > max_message_bytes
        ):
            batch = _Batch(size=NUMBER_SIZE + overhead)
            batches.append(batch)
        batch.add(key, value, is_row=is_row)
    return [batch.record() for batch in batches]


def _write_watermark(event: Event) -> tuple[bytes, bytes]:
    watermark = cast(Watermark, event)
    return dumps({"ts": watermark.watermark_ts, "t": WATERMARK}), b""


def _write_ddl(event: Event) -> tuple[bytes, bytes]:
    ddl = cast(DdlEvent, event)
    code = action_code(ddl)
    if code is None:
        raise ValueError(f"a DDL event of the type {ddl.ddl_type} needs its action code")
    if not ddl.sql:
        raise ValueError("a DDL event needs its text")
    key = {
        "ts": ddl.commit_ts,
        **without_empty(scm=ddl.database, tbl=ddl.table),
        "t": DDL,
    }
    return dumps(key), dumps({"q": ddl.sql, "t": code})


def _write_row(event: Event) -> tuple[bytes, bytes]:
    row = cast(RowChange, event)
    if row.shape is None:
        raise ValueError(f"a row of {row.database}.{row.table} needs its shape")
    if not (row.database and row.table):
        raise ValueError("a row needs the names of its database and its table")
    columns = {column.name: column for column in row.shape.columns}
    images = {name: getattr(row, image) for name, image in _IMAGES[row.op].items()}
    if not all(images.values()):
        raise ValueError(f"an {row.op} needs columns in {' and '.join(_IMAGES[row.op].values())}")
    key = {
        "ts": row.commit_ts,
        "scm": row.database,
        "tbl": row.table,
        **without_empty(rid=row.row_id),
        **({} if row.table_id is None else {"ptn": row.table_id}),
        "t": ROW,
        **without_empty(
            ohk=row.handle_key_only and not row.claim_check_location,
            ccl=row.claim_check_location,
        ),
    }
    value = {name: _image_to_json(image, columns) for name, image in images.items()}
    return dumps(key), dumps(value)


def _image_to_json(image: Image, columns: Mapping[str, SentColumn]) -> dict[str, Any]:
    # Go writes the keys of a map in the order of their bytes, which is that of code points.
    return {name: _column_to_json(columns.get(name), name, image[name]) for name in sorted(image)}


def _column_to_json(column: SentColumn | None, name: str, value: PhysicalValue) -> dict[str, Any]:
    if column is None or column.flags is None:
        raise ValueError(f"the column {shorten(name)} needs its type and flags")
    code, flags = type_code(column.mysql_type), int(column.flags)
    if code is None:
        raise ValueError(f"the type {shorten(column.mysql_type)} has no type code")
    return {
        "t": code,
        **without_empty(h=bool(flags & ColumnFlag.HANDLE_KEY)),
        "f": flags,
        "v": json_value(value, code, flags),
    }


def _write_bootstrap(event: Event) -> tuple[bytes, bytes]:
    if cast(Bootstrap, event).schema is not None:
        raise ValueError("Open Protocol has no place for the schema of a bootstrap")
    return dumps({"ts": 0, "scm": "", "tbl": "", "t": DDL}), dumps({"q": "", "t": 0})


_IMAGES: Final[Mapping[Op, Mapping[str, str]]] = {
    Op.INSERT: {"u": "after"},
    Op.UPDATE: {"u": "after", "p": "before"},
    Op.DELETE: {"d": "before"},
}
"""The members of the value of a row, in TiCDC's order, and the images they hold."""

_WRITERS: Final[Mapping[type[Event], Callable[[Event], tuple[bytes, bytes]]]] = {
    RowChange: _write_row,
    DdlEvent: _write_ddl,
    Watermark: _write_watermark,
    Bootstrap: _write_bootstrap,
}
