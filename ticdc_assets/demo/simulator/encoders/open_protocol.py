"""Open Protocol: the events of a batch in one record, as the old and the new TiCDC write them.

In: events whose rows have their shape. Out: records whose key and value hold the same number of
parts, as `wire.open.reference` reads them.

The new TiCDC writes columns in the order of the table, the key with its members in another order
and no row id, a DDL with its names even where it has none, and `<`, `>` and `&` as they are.

Source: pkg/sink/codec/open/codec.go and encoder.go, and pkg/util/json_writer.go in pingcap/ticdc.
"""

from binascii import b2a_base64
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import orjson

from ticdc_assets.demo.simulator.encoders.go_json import (
    dumps,
    quote,
    with_long_escapes,
    without_empty,
)
from ticdc_assets.demo.simulator.encoders.shared import DEFAULT_BATCH_SIZE, batches, type_code
from ticdc_assets.model.events import (
    Bootstrap,
    DdlEvent,
    Event,
    Image,
    Op,
    PhysicalValue,
    RowChange,
    Watermark,
    ZonedTimestamp,
)
from ticdc_assets.model.schemas import ColumnFlag, SentColumn
from ticdc_assets.model.values.floats import double_text, float_text, to_float32
from ticdc_assets.wire.codes import Spelling
from ticdc_assets.wire.open.reference import DDL, NUMBER_SIZE, ROW, VERSION_BYTES, WATERMARK
from ticdc_assets.wire.open.values import from_base64, spelling
from ticdc_assets.wire.record import Record

_IMAGES: Final[Mapping[Op, Mapping[str, str]]] = {
    Op.INSERT: {"u": "after"},
    Op.UPDATE: {"u": "after", "p": "before"},
    Op.DELETE: {"d": "before"},
}
"""The members of the value of a row, in TiCDC's order, and the images they hold."""


def encode(
    events: Sequence[Event], *, ticdc: bool = False, max_batch_size: int = DEFAULT_BATCH_SIZE
) -> list[Record]:
    """Return the records that TiCDC would send for rows with their shape, DDL and watermarks.

    Rows that follow each other share a record. A row's `table_id` is written as its partition, so
    only rows of partitioned tables should have one. Build times, schemas, schema versions and
    checksums have no place in the format and are left out.
    """
    return [
        _record([_written(event, ticdc=ticdc) for event in batch])
        for batch in batches(events, max_batch_size)
    ]


def _record(parts: Sequence[tuple[bytes, bytes]]) -> Record:
    keys, values = (
        b"".join(len(part).to_bytes(NUMBER_SIZE) + part for part in side)
        for side in zip(*parts, strict=True)
    )
    return Record(key=VERSION_BYTES + keys, value=values)


def _written(event: Event, *, ticdc: bool) -> tuple[bytes, bytes]:
    """Return an event's part of the key, and its part of the value."""
    write = _dumps_of_ticdc if ticdc else dumps
    match event:
        case RowChange():
            return _row_key(event, ticdc=ticdc), write(_row_value(event, ticdc=ticdc))
        case Watermark():
            return write({"ts": event.watermark_ts, "t": WATERMARK}), b""
        case Bootstrap():
            return write({"ts": 0, "scm": "", "tbl": "", "t": DDL}), write({"q": "", "t": 0})
        case DdlEvent():
            names = {"scm": event.database, "tbl": event.table}
            key = {"ts": event.commit_ts, **(names if ticdc else without_empty(**names)), "t": DDL}
            return write(key), write({"q": event.sql, "t": event.action_code or 0})


def _dumps_of_ticdc(value: Any) -> bytes:
    # jsoniter escapes nothing for HTML.
    return with_long_escapes(orjson.dumps(value))


def _row_key(row: RowChange, *, ticdc: bool) -> bytes:
    names = {"ts": row.commit_ts, "scm": row.database, "tbl": row.table}
    partition = {} if row.table_id is None else {"ptn": row.table_id}
    location = row.claim_check_location
    if not ticdc:
        is_cut = row.handle_key_only and not location
        return dumps(
            {
                **names,
                **without_empty(rid=row.row_id),
                **partition,
                "t": ROW,
                **without_empty(ohk=is_cut, ccl=location),
            }
        )
    cut = without_empty(ohk=row.handle_key_only, ccl=location)
    text = _dumps_of_ticdc({**names, "t": ROW, **cut, **partition})
    if location and row.handle_key_only:
        # TiCDC writes the member twice: for the cut, and for the claim check.
        text = text.replace(b'"ccl":', b'"ohk":false,"ccl":', 1)
    return text


def _row_value(row: RowChange, *, ticdc: bool) -> dict[str, Any]:
    assert row.shape is not None
    columns = {column.name: column for column in row.shape.columns}
    images: dict[str, Image] = {
        member: getattr(row, name) for member, name in _IMAGES[row.op].items()
    }
    # The old TiCDC has a Go map, whose keys are written in the order of their bytes, which is that
    # of code points.
    return {
        member: {
            name: _column(columns[name], image[name])
            for name in (list(image) if ticdc else sorted(image))
        }
        for member, image in images.items()
    }


def _column(column: SentColumn, value: PhysicalValue) -> dict[str, Any]:
    code, flags = type_code(column.mysql_type), int(column.flags or 0)
    return {
        "t": code,
        **without_empty(h=bool(flags & ColumnFlag.HANDLE_KEY)),
        "f": flags,
        "v": _json_value(value, code, flags),
    }


# Values -------------------------------------------------------------------------------------------

# encoding/json prefers an exponent outside of these, judged in the size of the value.
_POSITIONAL_DOUBLE: Final = (1e-6, 1e21)
_POSITIONAL_FLOAT: Final = (to_float32(1e-6), to_float32(1e21))


def _json_value(value: PhysicalValue, code: int, flags: int) -> Any:
    """Return what Go's JSON encoder would be given for the physical `value` of a column."""
    if value is None:
        return None
    text = value.value if isinstance(value, ZonedTimestamp) else value
    return _VALUES[spelling(code, flags)](text)


def _float(value: str) -> orjson.Fragment:
    number = to_float32(float(value))
    return _go_number(float_text(number), abs(number), *_POSITIONAL_FLOAT)


def _double(value: str) -> orjson.Fragment:
    number = float(value)
    return _go_number(double_text(number), abs(number), *_POSITIONAL_DOUBLE)


def _go_number(text: str, size: float, least: float, most: float) -> orjson.Fragment:
    if size == 0 or least <= size < most:
        return orjson.Fragment(text)
    sign = "-" if text.startswith("-") else ""
    digits = text.lstrip("-").replace(".", "").strip("0")
    point = "." if len(digits) > 1 else ""
    exponent = Decimal(text).adjusted()
    # Go gives an exponent two digits at least; encoding/json takes the leading 0 of a negative one.
    written = f"{exponent}" if exponent < 0 else f"+{exponent:02d}"
    return orjson.Fragment(f"{sign}{digits[0]}{point}{digits[1:]}e{written}")


def _quoted(value: str) -> str:
    return quote(from_base64(value))


def _text_in_base64(value: str) -> str:
    return b2a_base64(value.encode(), newline=False).decode()


_VALUES: Final[Mapping[Spelling, Callable[[str], Any]]] = {
    Spelling.INTEGER: int,
    Spelling.UNSIGNED: int,
    Spelling.FLOAT: _float,
    Spelling.DOUBLE: _double,
    Spelling.TEXT: str,
    Spelling.QUOTED: _quoted,
    Spelling.TEXT_IN_BASE64: _text_in_base64,
    Spelling.BYTES_IN_BASE64: str,
}
