"""The hot path of Canal-JSON.

In: record batches with a column `value`. Out: `Rows`, equal to what `canal_json.decode` says, to
the last reason and position; the result depends on the records alone.

How it stays equal: a message is taken here only if it has the plain shape that TiCDC writes (a
watermark, or one row whose values are all text or null, with `sqlType` and `mysqlType` of exactly
its columns), and is given to the reference in every other case, errors included. What msgspec would
let pass and the reference refuses is closed as in `simple_json_batch`: the structs forbid unknown
fields, images are decoded once more with their type, the batch is checked to be UTF-8, and outside
the images there are too few brackets for a nesting deeper than `MAX_DEPTH`.

Messages in exactly the bytes that TiCDC writes are read by compiled loops (`decode_plain`), as in
`simple_json_batch`; their beginning and the types of columns are decoded with their type, once for
all messages that say the same.

An image leaves as JSON text, as sent, unless it has binary columns: then it is written again with
their base64. The shape of a table is the same from row to row (in TiCDC's messages only the order
of `mysqlType` is not), so its text is kept for the next row of the table in the batch.
"""

# pyarrow has no type information, so what comes from it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from ticdc_assets.errors import WireError
from ticdc_assets.events import Op
from ticdc_assets.tso import LOGICAL_BITS, MAX_TSO, from_physical_ms
from ticdc_assets.wire import canal_json
from ticdc_assets.wire.byte_columns import Buffer, Ints, writing
from ticdc_assets.wire.canal_json import MAX_ES, OPS, WATERMARK_TYPE
from ticdc_assets.wire.column_rows import Part, parts_of, rows_of_parts
from ticdc_assets.wire.go_json import MAX_DEPTH
from ticdc_assets.wire.record import Record
from ticdc_assets.wire.rows import (
    ROW,
    WATERMARK,
    Common,
    PlainRows,
    Rows,
    decoded_rows,
    not_utf8,
    shape_text,
)

_Integer = Annotated[int, msgspec.Meta(ge=0, le=MAX_TSO)]
_MISSING: Final = -1


class _Extension(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The TiDB extension."""

    commitTs: _Integer = _MISSING
    watermarkTs: _Integer = _MISSING
    onlyHandleKey: bool | None = None
    claimCheckLocation: str | None = None
    rowkey: str | None = None


class _Message(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A row or a watermark of the shape TiCDC writes; the names are those of the protocol."""

    database: str
    table: str
    isDdl: bool
    type: Literal["INSERT", "UPDATE", "DELETE", "TIDB_WATERMARK"]
    es: _Integer
    ts: _Integer | None = None
    id: int = 0
    pkNames: list[str] | None = None
    sql: str = ""
    sqlType: dict[str, int] | None = None
    mysqlType: dict[str, str] | None = None
    data: list[msgspec.Raw] | None = None
    old: list[msgspec.Raw] | None = None
    extension: _Extension | None = msgspec.field(default=None, name="_tidb")


@dataclass(frozen=True, slots=True)
class _Known:
    """A table as its last row described it.

    Attributes:
        names: the columns in the order of `sqlType`.
        types: their types as sent.
        primary_key: `pkNames` as sent.
        binary: the columns whose values are bytes.
        shape: the text of the shape.
    """

    names: list[str]
    types: dict[str, str]
    primary_key: list[str] | None
    binary: tuple[str, ...]
    shape: str


_Tables: TypeAlias = dict[tuple[str, str, bool], _Known]
"""By database, table and whether the shape is partial."""

_decode_message: Final = msgspec.json.Decoder(_Message).decode
_decode_image: Final = msgspec.json.Decoder(dict[str, str | None]).decode
_encode_image: Final = msgspec.json.Encoder().encode

_REFUSALS: Final = (msgspec.DecodeError, UnicodeError, RecursionError, WireError)
_WORDS: Final = {kind: op.value for kind, op in OPS.items()}


_OPS: Final = pa.array([Op.INSERT.value, Op.UPDATE.value, Op.DELETE.value])


class _Head(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """How a message begins."""

    id: int
    database: str
    table: str
    pkNames: list[str] | None


_decode_head: Final = msgspec.json.Decoder(_Head).decode
_decode_numbers: Final = msgspec.json.Decoder(dict[str, int]).decode
_decode_words: Final = msgspec.json.Decoder(dict[str, str]).decode


def decode_plain(batch: pa.RecordBatch) -> PlainRows | None:
    """Return the rows of those records of `batch` that TiCDC writes most, read at once.

    These are inserts, updates and deletes with whole images, all fields in TiCDC's order and no
    white space between them.
    """
    sources: list[Ints] = []
    parts: list[dict[str, pa.Array[Any]]] = []
    for first, part in parts_of(batch.column("value")):
        numbers, columns = _columns(part)
        if len(numbers):
            sources.append(first + numbers)
            parts.append(columns)
    return rows_of_parts(sources, parts)


def _columns(part: Part) -> "tuple[Ints, dict[str, pa.Array[Any]]]":
    """Return the numbers of the plain messages of a part, and the columns of their rows."""
    from ticdc_assets.wire import json_loops

    buffer, length = part.buffer, len(part.starts)
    heads = np.zeros((length, json_loops.HEAD_FIELDS), np.int64)
    room = json_loops.canal_room(buffer.size, length)
    known, named = json_loops.canal_heads(
        buffer.octets,
        buffer.words,
        part.starts,
        part.ends,
        heads,
        np.zeros(256, np.int64),
        *room,
    )
    descriptions, names = room[1][:known], room[2][:named]
    tables = [_table(buffer, description) for description in descriptions.tolist()]
    binary = np.zeros(len(names), np.uint8)
    for table, first in zip(tables, descriptions[:, 7].tolist(), strict=True):
        if table is not None:
            binary[[first + number for number in table.binary]] = 1
    # A value is written in base64, which is less than twice the bytes of its member.
    before, after = (writing(2 * buffer.size) for _ in range(2))
    found = np.empty((length, json_loops.ROW_FIELDS), np.int64)
    count = json_loops.canal_rows(
        buffer.octets,
        buffer.words,
        heads,
        descriptions,
        names,
        binary,
        np.array([table is None for table in tables], np.uint8),
        MAX_ES,
        LOGICAL_BITS,
        found,
        np.empty(buffer.size, np.uint8),
        before.octets,
        before.words,
        after.octets,
        after.words,
    )
    numbers, kinds, commit_ts, build_ts, which, es_only, before_ends, after_ends = found[:count].T
    deleted = kinds == json_loops.DELETE
    own = pa.array(which)
    shapes = [
        text
        for table in tables
        for text in ((None, None) if table is None else (table.shape, table.partial_shape))
    ]
    return numbers, {
        "index": pa.array(np.zeros(count, np.int32)),
        "kind": pa.repeat(ROW, count),
        "op": _OPS.take(pa.array(kinds - json_loops.INSERT)),
        "commit_ts": pa.array(commit_ts),
        "build_ts_ms": pa.array(build_ts),
        "database": pa.array([table and table.database for table in tables], pa.string()).take(own),
        "table": pa.array([table and table.table for table in tables], pa.string()).take(own),
        "before": before.texts(before_ends, kinds != json_loops.INSERT),
        "after": after.texts(after_ends, ~deleted),
        "handle_key_only": pa.array(np.zeros(count, np.bool_)),
        "shape": pa.array(shapes, pa.string()).take(pa.array(2 * which + deleted)),
        "es_only": pa.array(es_only != 0),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """A table as messages describe it.

    Attributes:
        database: its database.
        table: its name.
        binary: the numbers of the columns whose values are bytes.
        shape: the text of its shape.
        partial_shape: the same where it may not be whole.
    """

    database: str
    table: str
    binary: list[int]
    shape: str
    partial_shape: str


def _table(buffer: Buffer, description: list[int]) -> _Table | None:
    """Return what a description says, None if it is none."""

    def text(field: int) -> bytes:
        return buffer.octets[description[field] : description[field + 1]].tobytes()

    try:
        head = _decode_head(text(0) + b"}")
        names = list(_decode_numbers(b"{" + text(2)))
        types = _decode_words(b"{" + text(4))
    except _REFUSALS:
        return None
    # A name that stands there twice would shift the others.
    count = description[6]
    if not head.database or not head.table or len(names) != count:
        return None
    if len(types) != count or types.keys() != set(names):
        return None
    lower = {name: canal_json.lower_type(types[name]) for name in names}
    primary_key = None if head.pkNames is None else tuple(head.pkNames)
    try:
        shape, partial_shape = (
            shape_text(canal_json.row_shape(names, lower, primary_key=primary_key, partial=partial))
            for partial in (False, True)
        )
    except WireError:
        return None
    return _Table(
        database=head.database,
        table=head.table,
        binary=[
            number for number, name in enumerate(names) if canal_json.is_binary_type(lower[name])
        ],
        shape=shape,
        partial_shape=partial_shape,
    )


def decode_rows(batch: pa.RecordBatch) -> Rows:
    """Return the rows of the records of `batch`."""
    column = batch.column("value")
    values: list[bytes | None] = column.to_pylist()
    suspects = not_utf8(column, values)
    rows = Rows()
    tables: _Tables = {}
    for number, value in enumerate(values):
        common = None if value is None or number in suspects else _plain_row(value, tables)
        if common is None:
            record = Record(key=None, value=value)
            rows.add(number, decoded_rows(canal_json.decode, record))
        else:
            rows.sources.append(number)
            rows.common.append(common)
    return rows


def _plain_row(value: bytes, tables: _Tables) -> Common | None:
    """Return the common columns of a row or watermark of the plain shape, else None."""
    try:
        message = _decode_message(value)
        if message.isDdl or _may_be_deep(value, message):
            return None
        if message.type == WATERMARK_TYPE:
            return _plain_watermark(message)
        return _plain_change(message, tables)
    except _REFUSALS:
        return None


def _may_be_deep(value: bytes, message: _Message) -> bool:
    """Return whether what nobody looks at again could nest deeper than is read."""
    brackets = value.count(b"{") + value.count(b"[")
    if brackets > MAX_DEPTH:
        for raw in (*(message.data or ()), *(message.old or ())):
            kept = bytes(raw)
            brackets -= kept.count(b"{") + kept.count(b"[")
    return brackets > MAX_DEPTH


def _plain_watermark(message: _Message) -> Common | None:
    extension = message.extension
    if extension is None or extension.watermarkTs == _MISSING or message.data or message.old:
        return None
    return (0, WATERMARK, None, extension.watermarkTs, message.ts, *(None,) * 11)


def _plain_change(message: _Message, tables: _Tables) -> Common | None:
    data, old = message.data, message.old
    names, types = message.sqlType, message.mysqlType
    kind = message.type
    if (
        data is None
        or len(data) != 1
        or names is None
        or types is None
        or names.keys() != types.keys()
        or not message.database
        or not message.table
        or (old is None or len(old) != 1 if kind == "UPDATE" else old is not None)
    ):
        return None
    extension = message.extension
    if extension is None:
        if message.es > MAX_ES:
            return None
        commit_ts = from_physical_ms(message.es)
        location, cut = None, False
    else:
        commit_ts = extension.commitTs
        if commit_ts == _MISSING:
            return None
        location = extension.claimCheckLocation or None
        cut = extension.onlyHandleKey or location is not None
    deleted = kind == "DELETE"
    known = _known(message, names, types, partial=cut or deleted, tables=tables)
    image = _decode_image(data[0])
    if image.keys() != names.keys():
        return None
    after = _image_text(image, data[0], known.binary)
    before = None
    if old is not None:
        image = _decode_image(old[0])
        if not image.keys() <= names.keys():
            return None
        before = _image_text(image, old[0], known.binary)
    elif deleted:
        before, after = after, None
    return (
        0,
        ROW,
        _WORDS[kind],
        commit_ts,
        message.ts,
        message.database,
        message.table,
        None,
        None,
        before,
        after,
        cut,
        location,
        None,
        known.shape,
        extension is None,
    )


def _known(
    message: _Message,
    sql_types: dict[str, int],
    types: dict[str, str],
    *,
    partial: bool,
    tables: _Tables,
) -> _Known:
    """Return what is known of the row's table, after having learnt it if it is another now."""
    names = list(sql_types)
    primary_key = message.pkNames
    place = (message.database, message.table, partial)
    known = tables.get(place)
    if (
        known is not None
        and known.names == names
        and known.primary_key == primary_key
        and known.types == types
    ):
        return known
    lower = {name: canal_json.lower_type(types[name]) for name in names}
    known = tables[place] = _Known(
        names=names,
        types=types,
        primary_key=primary_key,
        binary=tuple(name for name in names if canal_json.is_binary_type(lower[name])),
        shape=shape_text(
            canal_json.row_shape(
                names,
                lower,
                primary_key=None if primary_key is None else tuple(primary_key),
                partial=partial,
            )
        ),
    )
    return known


def _image_text(image: dict[str, Any], sent: msgspec.Raw, binary: tuple[str, ...]) -> bytes:
    """Return the JSON text of an image.

    Raises:
        UnicodeEncodeError: a binary column has a code point that is no byte.
    """
    changed = False
    for name in binary:
        text = image.get(name)
        if text is not None:
            # msgspec writes bytes as base64.
            image[name] = text.encode("latin-1")
            changed = True
    return _encode_image(image) if changed else bytes(sent)
