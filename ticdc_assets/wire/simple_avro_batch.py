"""The hot path of the Simple protocol in Avro: one pass over the bytes of a row, straight to text.

In: record batches with a column `value`. Out: `Rows`, equal to what `simple_avro.decode` says, to
the last reason and position; the result depends on the records alone.

Only rows are read here, and only as TiCDC writes them; the layout is the table in `simple_avro`.
Images become JSON text without an event in between. Numbers and lengths of one byte, which nearly
all are, are read in place. That is faster than fastavro, whose reader is compiled but makes dicts
that would have to become text too, and does not say of a number whether it was a float or a double.

How it stays equal: at the first byte that is not what TiCDC writes, the message is given to the
reference, errors included. Not written by TiCDC, and so given away:

- messages of other kinds and versions (watermarks, DDL and bootstraps are few)
- a number out of its range or not in its shortest form, a negative length or count, an unknown
  branch or symbol, an empty name, text that is no UTF-8, a float that is not finite
- an image in more than one block, with a name twice, or that the op does not have
- a message that ends too early or too late: a slice behind the end is short without a word, but
  then the position is behind the end too, which is seen by the next byte or in the end

The position never moves back, and each entry of an image takes two bytes at least, so no count can
make this long.
"""

# pyarrow has no type information, so what comes from it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from binascii import b2a_base64
from json.encoder import encode_basestring as quoted
from struct import Struct
from struct import error as StructError
from typing import Final

import pyarrow as pa

from ticdc_assets.values.floats import double_text, float_text
from ticdc_assets.wire import simple_avro
from ticdc_assets.wire.avro import MAX_ITEMS
from ticdc_assets.wire.record import Record
from ticdc_assets.wire.rows import ROW, Common, Rows, decoded_rows
from ticdc_assets.wire.simple_avro import (
    BYTES,
    DML_SYMBOLS,
    DOUBLE,
    FLOAT,
    LONG,
    NULL,
    STRING,
    UNSIGNED,
    ZONED,
)
from ticdc_assets.wire.simple_message import OPS, MessageType

_ROW_START: Final = b"\x16\x06\x06\x02"
"""Branch 11 (Message), type DML, branch 3 (DML), version 1."""

_NULL: Final = 0
_SOME: Final = 2
"""The branches of an optional field, as they are written."""

# The branches of a value, as they are written: zigzag doubles them.
_LONG: Final = 2 * LONG
_FLOAT: Final = 2 * FLOAT
_DOUBLE: Final = 2 * DOUBLE
_STRING: Final = 2 * STRING
_BYTES: Final = 2 * BYTES
_ZONED: Final = 2 * ZONED
_UNSIGNED: Final = 2 * UNSIGNED

_OPS: Final = tuple(
    (OPS[kind].value, kind is not MessageType.DELETE, kind is not MessageType.INSERT)
    for kind in map(MessageType, DML_SYMBOLS)
)
"""Of each symbol: its op, and whether it has `data` and `old`."""

_MORE: Final = 0x80
"""The bit that says that a number goes on."""
_LONGEST_NUMBER: Final = 10
_NO_LENGTH: Final = _MORE | 1
"""The bits that a length of one byte has not: it goes on, or is negative."""

_MAX_INT32: Final = 2**31 - 1
_MAX_UINT32: Final = 2**32 - 1
_MAX_UINT64: Final = 2**64 - 1

_unpack_float: Final = Struct("<f").unpack_from
_unpack_double: Final = Struct("<d").unpack_from


class _UnusualError(Exception):
    """The message is not as TiCDC writes it."""


_UNUSUAL: Final = (_UnusualError, IndexError, UnicodeDecodeError, StructError)
"""What reading an unusual message ends in."""


def decode_rows(batch: pa.RecordBatch) -> Rows:
    """Return the rows of the records of `batch`."""
    values: list[bytes | None] = batch.column("value").to_pylist()
    names: dict[bytes, str] = {}
    rows = Rows()
    for number, value in enumerate(values):
        common = None if value is None else _plain_row(value, names)
        if common is None:
            record = Record(key=None, value=value)
            rows.add(number, decoded_rows(simple_avro.decode, record))
        else:
            rows.sources.append(number)
            rows.common.append(common)
    return rows


def _plain_row(value: bytes, names: dict[bytes, str]) -> Common | None:
    """Return the common columns of a row as TiCDC writes it, else None.

    Args:
        value: the message.
        names: names of columns as JSON with a colon, by their bytes; new ones are added.
    """
    if not value.startswith(_ROW_START):
        return None
    try:
        return _row(value, names)
    except _UNUSUAL:
        return None


def _row(value: bytes, names: dict[bytes, str]) -> Common:
    start, at = _extent(value, len(_ROW_START))
    database = str(value[start:at], "utf-8")
    start, at = _extent(value, at)
    table = str(value[start:at], "utf-8")
    table_id, at = _number(value, at)
    symbol, at = _number(value, at)
    commit_ts, at = _number(value, at)
    build_ts_ms, at = _number(value, at)
    schema_version, at = _number(value, at)
    if (
        not database
        or not table
        or not 0 <= symbol < len(_OPS)
        or table_id < 0
        or commit_ts < 0
        or build_ts_ms < 0
        or schema_version < 0
    ):
        raise _UnusualError
    op, has_data, has_old = _OPS[symbol]

    location, handle_key_only, checksum = None, False, None
    if value[at : at + 3] == b"\0\0\0":
        at += 3
    else:
        location, handle_key_only, checksum, at = _extras(value, at)

    data = old = None
    if _has(value, at) is not has_data:
        raise _UnusualError
    at += 1
    if has_data:
        data, at = _image(value, at, names)
    if _has(value, at) is not has_old:
        raise _UnusualError
    at += 1
    if has_old:
        old, at = _image(value, at, names)
    if at != len(value):
        raise _UnusualError
    return (
        0,
        ROW,
        op,
        commit_ts,
        build_ts_ms,
        database,
        table,
        table_id,
        schema_version,
        old,
        data,
        handle_key_only,
        location,
        checksum,
        None,
        False,
    )


def _extras(value: bytes, at: int) -> tuple[str | None, bool, str | None, int]:
    """Read the claim check location, the flag of a cut image and the checksum; most have none."""
    location = checksum = None
    handle_key_only = False
    if _has(value, at):
        start, at = _extent(value, at + 1)
        # Go writes an empty location as none at all.
        location = str(value[start:at], "utf-8") or None
    else:
        at += 1
    if _has(value, at):
        handle_key_only = _boolean(value, at + 1)
        at += 1
    at += 1
    if _has(value, at):
        version, at = _number(value, at + 1)
        corrupted = _boolean(value, at)
        current, at = _number(value, at + 1)
        previous, at = _number(value, at)
        if not (
            0 <= version <= _MAX_INT32
            and 0 <= current <= _MAX_UINT32
            and 0 <= previous <= _MAX_UINT32
        ):
            raise _UnusualError
        checksum = (
            f'{{"version":{version},"corrupted":{"true" if corrupted else "false"},'
            f'"current":{current},"previous":{previous}}}'
        )
    else:
        at += 1
    return location, handle_key_only, checksum, at


def _has(value: bytes, at: int) -> bool:
    branch = value[at]
    if branch not in (_NULL, _SOME):
        raise _UnusualError
    return branch == _SOME


def _boolean(value: bytes, at: int) -> bool:
    byte = value[at]
    if byte > 1:
        raise _UnusualError
    return byte == 1


def _number(value: bytes, at: int) -> tuple[int, int]:
    """Return the zigzag number at `at`, and where it ends."""
    bits = shift = byte = 0
    for byte in value[at : at + _LONGEST_NUMBER]:
        bits |= (byte & 0x7F) << shift
        shift += 7
        if byte < _MORE:
            break
    else:
        raise _UnusualError
    if bits > _MAX_UINT64 or (byte == 0 and shift > 7):
        raise _UnusualError
    return (bits >> 1) ^ -(bits & 1), at + shift // 7


def _extent(value: bytes, at: int) -> tuple[int, int]:
    """Return where the text whose length is at `at` starts and ends."""
    length, start = _number(value, at)
    if length < 0:
        raise _UnusualError
    return start, start + length


def _image(value: bytes, at: int, names: dict[bytes, str]) -> tuple[str, int]:
    """Return the image at `at` as JSON text, and where it ends."""
    length, at = _number(value, at)
    if not 0 <= length <= MAX_ITEMS:
        raise _UnusualError
    texts: dict[bytes, str] = {}
    for _ in range(length):
        size = value[at]
        if size & _NO_LENGTH:
            start, at = _extent(value, at)
        else:
            start = at + 1
            at = start + (size >> 1)
        key = value[start:at]
        name = names.get(key)
        if name is None:
            name = names[key] = quoted(str(key, "utf-8")) + ":"
        # The order is that of how often TiDB's types have these branches.
        branch = value[at]
        at += 1
        if branch == _STRING:
            size = value[at]
            if size & _NO_LENGTH:
                start, at = _extent(value, at)
            else:
                start = at + 1
                at = start + (size >> 1)
            texts[key] = name + quoted(str(value[start:at], "utf-8"))
        elif branch == _LONG:
            size = value[at]
            if size & _MORE:
                number, at = _number(value, at)
                texts[key] = f'{name}"{number}"'
            else:
                at += 1
                texts[key] = f'{name}"{(size >> 1) ^ -(size & 1)}"'
        elif branch == NULL:
            texts[key] = name + "null"
        elif branch == _BYTES:
            start, at = _extent(value, at)
            texts[key] = f'{name}"{b2a_base64(value[start:at], newline=False).decode()}"'
        elif branch == _ZONED:
            start, at = _extent(value, at)
            location = quoted(str(value[start:at], "utf-8"))
            start, at = _extent(value, at)
            zoned = quoted(str(value[start:at], "utf-8"))
            texts[key] = f'{name}{{"location":{location},"value":{zoned}}}'
        elif branch == _UNSIGNED:
            number, at = _number(value, at)
            texts[key] = f'{name}"{number & _MAX_UINT64}"'
        elif branch == _DOUBLE:
            (floating,) = _unpack_double(value, at)
            if floating - floating != 0:
                raise _UnusualError
            texts[key] = f'{name}"{double_text(floating)}"'
            at += 8
        elif branch == _FLOAT:
            (floating,) = _unpack_float(value, at)
            if floating - floating != 0:
                raise _UnusualError
            texts[key] = f'{name}"{float_text(floating)}"'
            at += 4
        else:
            raise _UnusualError
    if len(texts) != length:
        raise _UnusualError
    if length:
        if value[at] != 0:
            raise _UnusualError
        at += 1
    return f"{{{','.join(texts.values())}}}", at
