"""The hot path of Open Protocol.

In: record batches with the columns `key` and `value`. Out: `Rows`, equal to what
`open_protocol.decode` says, to the last reason and position; the result depends on the records
alone.

How it stays equal: a record is taken here only if all its parts are rows and watermarks of the
plain shape that TiCDC writes, and is given to the reference in every other case, errors included.
What msgspec would let pass and the reference refuses, or would read in another way, is closed as
follows (tests try each):

- Unknown fields are skipped by msgspec without a look at their text: the structs forbid them. So
  all text is read with its type, which bounds the nesting too.
- A column's value is an integer, a number with a fraction or exponent, text or null; each type
  takes what the reference takes, and an integer beyond 64 bits is none.
- `-0` would become the integer 0: a part that may have one is not plain.
- A byte order mark, NaN, lone surrogates, trailing bytes, control characters and bytes that are no
  UTF-8 are refused by msgspec itself.

What a list of names, type codes and flags means is worked out once a batch, not once a row.
"""

# pyarrow has no type information, so what comes from it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
import pyarrow as pa

from ticdc_assets.errors import WireError
from ticdc_assets.events import Op
from ticdc_assets.schemas import ColumnFlag, RowShape, SentColumn
from ticdc_assets.tso import MAX_TSO
from ticdc_assets.wire import open_protocol
from ticdc_assets.wire.column_types import mysql_type
from ticdc_assets.wire.open_protocol import MAX_FLAGS, NUMBER_SIZE, VERSION_BYTES
from ticdc_assets.wire.open_values import (
    MAX_INTEGER,
    MIN_INTEGER,
    Spelling,
    blob_text,
    char_base64,
    check_blob,
    finite_double_text,
    finite_float_text,
    spelling,
)
from ticdc_assets.wire.record import Record
from ticdc_assets.wire.rows import ROW, WATERMARK, Common, Rows, decoded_rows, shape_text

_Integer = Annotated[int, msgspec.Meta(ge=0, le=MAX_TSO)]
_Value: TypeAlias = int | float | str | None


class _Key(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The key of a row or watermark; the names are those of the protocol."""

    ts: _Integer
    t: Literal[1, 3]
    scm: str = ""
    tbl: str = ""
    rid: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] = 0
    ptn: _Integer | None = None
    ohk: bool = False
    ccl: str = ""


class _Column(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    t: int
    f: Annotated[int, msgspec.Meta(ge=0, le=MAX_FLAGS)]
    v: _Value
    h: bool = False


class _Row(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    u: dict[str, _Column] | None = None
    p: dict[str, _Column] | None = None
    d: dict[str, _Column] | None = None


class _NotPlainError(Exception):
    """The record is none that is taken here."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """How images of one list of columns are read, and what they say of their table."""

    readers: tuple[Callable[[_Value], str], ...]
    shape: str
    partial_shape: str


_Plans: TypeAlias = dict[tuple[str | int, ...], _Plan]

_decode_key: Final = msgspec.json.Decoder(_Key).decode
_decode_row: Final = msgspec.json.Decoder(_Row).decode
_encode: Final = msgspec.json.Encoder().encode

_NEGATIVE_ZERO: Final = re.compile(rb"-0[ \t\r\n,}]")

_REFUSALS: Final = (msgspec.MsgspecError, UnicodeDecodeError, WireError, _NotPlainError)


def decode_rows(batch: pa.RecordBatch) -> Rows:
    """Return the rows of the records of `batch`."""
    keys: list[bytes | None] = batch.column("key").to_pylist()
    values: list[bytes | None] = batch.column("value").to_pylist()
    rows = Rows()
    plans: _Plans = {}
    for number, (key, value) in enumerate(zip(keys, values, strict=True)):
        try:
            plain = _plain_rows(key, value, plans)
        except _REFUSALS:
            record = Record(key=key, value=value)
            rows.add(number, decoded_rows(open_protocol.decode, record))
        else:
            rows.sources += [number] * len(plain)
            rows.common += plain
    return rows


def _plain_rows(key: bytes | None, value: bytes | None, plans: _Plans) -> list[Common]:
    """Return the common columns of the rows and watermarks of a plain record."""
    if not key or not value or not key.startswith(VERSION_BYTES):
        raise _NotPlainError
    found: list[Common] = []
    key_end, value_end = NUMBER_SIZE, 0
    while key_end < len(key):
        key_start, key_end = _frame(key, key_end)
        value_start, value_end = _frame(value, value_end)
        fields = _decode_key(key[key_start:key_end])
        part = value[value_start:value_end]
        read = _row if fields.t == open_protocol.ROW else _watermark
        found.append(read(len(found), fields, part, plans))
    if value_end != len(value):
        raise _NotPlainError
    return found


def _frame(content: bytes, position: int) -> tuple[int, int]:
    start = position + NUMBER_SIZE
    end = start + int.from_bytes(content[position:start])
    if end > len(content) or start > len(content):
        raise _NotPlainError
    return start, end


def _watermark(index: int, key: _Key, part: bytes, _plans: _Plans) -> Common:
    if part:
        raise _NotPlainError
    return (index, WATERMARK, None, key.ts, *(None,) * 12)


def _row(index: int, key: _Key, part: bytes, plans: _Plans) -> Common:
    if not key.scm or not key.tbl or _NEGATIVE_ZERO.search(part) is not None:
        raise _NotPlainError
    row = _decode_row(part)
    after, before, deleted = row.u, row.p, row.d
    cut = key.ohk or bool(key.ccl)
    if after and not deleted:
        op = Op.UPDATE if before else Op.INSERT
        image, plan = _image(after, plans)
        old = None
        if before:
            old, _ = _image(before, plans)
            if not before.keys() <= after.keys():
                plan = _plan(_joined(after, before), plans)
    elif deleted and not after and not before:
        op, image = Op.DELETE, None
        old, plan = _image(deleted, plans)
    else:
        raise _NotPlainError
    return (
        index,
        ROW,
        op.value,
        key.ts,
        None,
        key.scm,
        key.tbl,
        key.ptn,
        None,
        old,
        image,
        cut,
        key.ccl or None,
        None,
        plan.partial_shape if cut or op is Op.DELETE else plan.shape,
        False,
    )


def _joined(after: Mapping[str, _Column], before: Mapping[str, _Column]) -> dict[str, _Column]:
    """Return the columns of both images in the order of a shape."""
    return {**after, **{name: sent for name, sent in before.items() if name not in after}}


def _image(columns: Mapping[str, _Column], plans: _Plans) -> tuple[bytes, _Plan]:
    plan = _plan(columns, plans)
    image = {
        name: None if sent.v is None else read(sent.v)
        for read, (name, sent) in zip(plan.readers, columns.items(), strict=True)
    }
    return _encode(image), plan


def _plan(columns: Mapping[str, _Column], plans: _Plans) -> _Plan:
    # As many names as numbers follow, and a name is no number: no two lists are the same tuple.
    described = (*columns, *[sent.t * (MAX_FLAGS + 1) + sent.f for sent in columns.values()])
    plan = plans.get(described)
    if plan is None:
        plan = plans[described] = _new_plan(columns)
    return plan


def _new_plan(columns: Mapping[str, _Column]) -> _Plan:
    sent_columns: list[SentColumn] = []
    for name, sent in columns.items():
        word = mysql_type(sent.t, sent.f)
        if word is None:
            raise _NotPlainError
        sent_columns.append(SentColumn(name, word, ColumnFlag(sent.f)))
    return _Plan(
        readers=tuple(_READERS[spelling(sent.t, sent.f)] for sent in columns.values()),
        shape=shape_text(RowShape(columns=tuple(sent_columns))),
        partial_shape=shape_text(RowShape(columns=tuple(sent_columns), partial=True)),
    )


def _integer(value: _Value) -> str:
    if type(value) is not int or not MIN_INTEGER <= value <= MAX_INTEGER:
        raise _NotPlainError
    return str(value)


def _unsigned(value: _Value) -> str:
    if type(value) is not int or not 0 <= value <= MAX_INTEGER:
        raise _NotPlainError
    return str(value)


def _float(value: _Value) -> str:
    return finite_float_text(_number(value), "")


def _double(value: _Value) -> str:
    return finite_double_text(_number(value), "")


def _number(value: _Value) -> float:
    if type(value) is float:
        return value
    if type(value) is not int or not MIN_INTEGER <= value <= MAX_INTEGER:
        raise _NotPlainError
    return float(value)


def _null(_value: _Value) -> str:
    raise _NotPlainError


def _text(value: _Value) -> str:
    if type(value) is not str:
        raise _NotPlainError
    return value


def _quoted(value: _Value) -> str:
    return char_base64(_text(value), "")


def _text_in_base64(value: _Value) -> str:
    return blob_text(_text(value), "")


def _bytes_in_base64(value: _Value) -> str:
    return check_blob(_text(value), "")


_READERS: Final[Mapping[Spelling, Callable[[_Value], str]]] = {
    Spelling.INTEGER: _integer,
    Spelling.UNSIGNED: _unsigned,
    Spelling.FLOAT: _float,
    Spelling.DOUBLE: _double,
    Spelling.NULL: _null,
    Spelling.TEXT: _text,
    Spelling.QUOTED: _quoted,
    Spelling.TEXT_IN_BASE64: _text_in_base64,
    Spelling.BYTES_IN_BASE64: _bytes_in_base64,
}
