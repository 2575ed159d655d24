"""The hot path of Canal-JSON.

In: record batches with a column `value`. Out: `Rows`, equal to what `canal_json.decode` says, to
the last reason and position; the result depends on the records alone.

How it stays equal: a message is taken here only if it has the regular shape that TiCDC writes (a
watermark, or one row whose values are all text or null, with `sqlType` and `mysqlType` of exactly
its columns), whatever members it has besides, and is given to the reference in every other case,
errors included. What msgspec would let pass and the reference refuses is closed as in
`simple_json_batch`.

Messages in exactly the bytes that TiCDC writes, and those that are written again so, are read by
compiled loops (`decode_regular`), as in `simple_json_batch`; their beginning and the types of
columns are decoded with their type, once for all messages that say the same.

An image leaves as JSON text, as sent but for blanks between its tokens and for the values of binary
columns, which are written in base64. The shape of a table is the same from row to
row (in TiCDC's messages only the order of `mysqlType` is not), so it is kept for the next row of
the table in the batch.
"""

# pyarrow has no type information, so what comes from it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from ticdc_assets.events import Op
from ticdc_assets.tso import LOGICAL_BITS, MAX_TSO, from_physical_ms
from ticdc_assets.wire import canal_json
from ticdc_assets.wire.byte_columns import Buffer, writing
from ticdc_assets.wire.canal_json import MAX_ES, OPS, WATERMARK_TYPE
from ticdc_assets.wire.column_rows import Part, PartRows, regular_rows
from ticdc_assets.wire.json_records import (
    REFUSALS,
    IrregularError,
    check_readable,
    read_records,
    without_blanks,
)
from ticdc_assets.wire.json_rewriting import Members
from ticdc_assets.wire.rows import ROW, WATERMARK, Common, RegularRows, Rows, shape_text

_Integer = Annotated[int, msgspec.Meta(ge=0, le=MAX_TSO)]
_MISSING: Final = -1
_NONE: Final = msgspec.Raw(b"null")


MEMBERS: Final = Members(
    regular=(
        "id",
        "database",
        "table",
        "pkNames",
        "isDdl",
        "type",
        "es",
        "ts",
        "sql",
        "sqlType",
        "mysqlType",
        "old",
        "data",
        "_tidb",
    ),
    others=(),
    inside=(
        "_tidb",
        Members(
            regular=("commitTs",),
            others=("watermarkTs", "onlyHandleKey", "claimCheckLocation"),
        ),
    ),
)
"""What is looked at in messages, see `canal_json`."""


class _Extension(msgspec.Struct, gc=False):
    """The TiDB extension."""

    commitTs: _Integer = _MISSING
    watermarkTs: _Integer = _MISSING
    onlyHandleKey: bool | None = None
    claimCheckLocation: str | None = None


class _Message(msgspec.Struct, gc=False):
    """A row or a watermark of the shape TiCDC writes; the names are those of the protocol."""

    database: str
    table: str
    isDdl: bool
    type: Literal["INSERT", "UPDATE", "DELETE", "TIDB_WATERMARK"]
    es: _Integer
    ts: _Integer | None = None
    pkNames: msgspec.Raw = _NONE
    sqlType: msgspec.Raw = _NONE
    mysqlType: msgspec.Raw = _NONE
    data: tuple[msgspec.Raw] | None = None
    old: tuple[msgspec.Raw] | None = None
    extension: _Extension | None = msgspec.field(default=None, name="_tidb")


_SPELLINGS: Final = 64
"""Orders of a table's types that are kept, as TiCDC writes them in another one with each row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """A table as messages describe it.

    Attributes:
        database: its database.
        table: its name.
        types: the types of its columns as sent, in the order of `sqlType`.
        binary: the columns whose values are bytes.
        shape: the text of its shape.
        partial_shape: the same where it may not be whole.
        spellings: texts of `mysqlType` that say these types.
    """

    database: str
    table: str
    types: dict[str, str]
    binary: tuple[str, ...]
    shape: str
    partial_shape: str
    spellings: set[bytes] = field(default_factory=set[bytes])


_Tables: TypeAlias = dict[tuple[str, str, bytes, bytes], _Table]
"""By database, table, and `pkNames` and `sqlType` as sent."""

_decode_message: Final = msgspec.json.Decoder(_Message).decode
_decode_image: Final = msgspec.json.Decoder(dict[str, str | None]).decode

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
_decode_names: Final = msgspec.json.Decoder(list[str] | None).decode


def decode_regular(batch: pa.RecordBatch) -> RegularRows | None:
    """Return the rows of those records of `batch` that TiCDC writes most, read at once.

    These are inserts, updates and deletes with whole images, all fields in TiCDC's order and no
    white space between them.
    """
    return regular_rows(batch, _rows)


def _rows(_first: int, part: Part) -> PartRows:
    from ticdc_assets.wire import canal_loops, json_loops

    buffer, length = part.buffer, len(part.starts)
    heads = np.zeros((length, canal_loops.HEAD_FIELDS), np.int64)
    room = canal_loops.canal_room(buffer.size, length)
    known, named = canal_loops.canal_heads(
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
            binary[first : first + len(table.types)] = [
                name in table.binary for name in table.types
            ]
    # A value is written in base64, which is less than twice the bytes of its member.
    before, after = (writing(2 * buffer.size) for _ in range(2))
    found = np.empty((length, canal_loops.ROW_FIELDS), np.int64)
    count = canal_loops.canal_rows(
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
        "op": _OPS.take(pa.array(kinds - json_loops.INSERT)),
        "commit_ts": pa.array(commit_ts),
        "build_ts_ms": pa.array(build_ts),
        "database": pa.array([table and table.database for table in tables], pa.string()).take(own),
        "table": pa.array([table and table.table for table in tables], pa.string()).take(own),
        "before": before.texts(before_ends, kinds != json_loops.INSERT),
        "after": after.texts(after_ends, ~deleted),
        "shape": pa.array(shapes, pa.string()).take(pa.array(2 * which + deleted)),
        "es_only": pa.array(es_only != 0),
    }


def _table(buffer: Buffer, description: list[int]) -> _Table | None:
    """Return what a description says, None if it is none."""

    def text(field: int) -> bytes:
        return buffer.octets[description[field] : description[field + 1]].tobytes()

    try:
        head = _decode_head(text(0) + b"}")
        numbers = _decode_numbers(b"{" + text(2))
        types = _decode_words(b"{" + text(4))
        # A name that stands there twice would shift the others.
        if len(numbers) != description[6]:
            return None
        return _new_table(head.database, head.table, head.pkNames, numbers, types)
    except REFUSALS:
        return None


def _new_table(
    database: str,
    table: str,
    primary_key: list[str] | None,
    numbers: dict[str, int],
    types: dict[str, str],
) -> _Table:
    """Return the table that messages describe so, in `pkNames`, `sqlType` and `mysqlType`.

    Raises:
        IrregularError: it has no name, or there are not types of exactly its columns.
        WireError: no table has such columns.
    """
    if not database or not table or numbers.keys() != types.keys():
        raise IrregularError
    ordered = {name: types[name] for name in numbers}
    lower = {name: canal_json.lower_type(sent) for name, sent in ordered.items()}
    shape, partial_shape = (
        shape_text(
            canal_json.row_shape(
                ordered,
                lower,
                primary_key=None if primary_key is None else tuple(primary_key),
                partial=is_partial,
            )
        )
        for is_partial in (False, True)
    )
    return _Table(
        database=database,
        table=table,
        types=ordered,
        binary=tuple(name for name in ordered if canal_json.is_binary_type(lower[name])),
        shape=shape,
        partial_shape=partial_shape,
    )


def decode_rows(batch: pa.RecordBatch) -> Rows:
    """Return the rows of the records of `batch`."""
    tables: _Tables = {}
    return read_records(batch, partial(_row, tables), canal_json.decode)


def _row(tables: _Tables, _key: bytes | None, value: bytes) -> Sequence[Common]:
    """Return the common columns of a row or watermark of the regular shape.

    Raises:
        IrregularError: it has another one; so do msgspec's errors, and those of text.
    """
    check_readable(value)
    message = _decode_message(value)
    kind, data, old, extension = message.type, message.data, message.old, message.extension
    if message.isDdl:
        raise IrregularError
    if kind == WATERMARK_TYPE:
        if extension is None or extension.watermarkTs == _MISSING:
            raise IrregularError
        return ((0, WATERMARK, None, extension.watermarkTs, message.ts, *(None,) * 11),)
    if data is None or (old is None) is (kind == "UPDATE"):
        raise IrregularError
    location, cut = None, False
    if extension is None:
        if message.es > MAX_ES:
            raise IrregularError
        commit_ts = from_physical_ms(message.es)
    else:
        commit_ts = extension.commitTs
        if commit_ts == _MISSING:
            raise IrregularError
        location = extension.claimCheckLocation or None
        cut = extension.onlyHandleKey or location is not None
    deleted = kind == "DELETE"
    table = _known(message, tables)
    image = _decode_image(data[0])
    if image.keys() != table.types.keys():
        raise IrregularError
    after = _image_text(image, data[0], table.binary)
    before = None
    if old is not None:
        image = _decode_image(old[0])
        if not image.keys() <= table.types.keys():
            raise IrregularError
        before = _image_text(image, old[0], table.binary)
    elif deleted:
        before, after = after, None
    return (
        (
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
            table.partial_shape if cut or deleted else table.shape,
            extension is None,
        ),
    )


def _known(message: _Message, tables: _Tables) -> _Table:
    """Return the row's table, after having learnt it if it is another now."""
    primary_key, numbers = bytes(message.pkNames), bytes(message.sqlType)
    words = bytes(message.mysqlType)
    place = (message.database, message.table, primary_key, numbers)
    known = tables.get(place)
    if known is None or words not in known.spellings:
        types = _decode_words(words)
        if known is None or known.types != types:
            known = tables[place] = _new_table(
                message.database,
                message.table,
                _decode_names(primary_key),
                _decode_numbers(numbers),
                types,
            )
        if len(known.spellings) < _SPELLINGS:
            known.spellings.add(words)
    return known


def _image_text(image: dict[str, str | None], sent: msgspec.Raw, binary: tuple[str, ...]) -> bytes:
    """Return the JSON text of an image: as sent without blanks, bytes in base64.

    Raises:
        IrregularError: a name stands there twice.
        UnicodeEncodeError: a binary column has a code point that is no byte.
    """
    text = without_blanks(sent)
    if not any(image.get(name) for name in binary):
        return text
    members = _IMAGE_MEMBERS.findall(text)
    if len(members) != len(image):
        raise IrregularError
    return b"{%s}" % b",".join(
        b"%s:%s" % (name, value if not content or column not in binary else _base64(content))
        for (name, value), (column, content) in zip(members, image.items(), strict=True)
    )


def _base64(text: str) -> bytes:
    return b'"%s"' % b64encode(text.encode("latin-1"))


_STRING: Final = rb'"(?:[^"\\]|\\.)*+"'
_IMAGE_MEMBERS: Final = re.compile(rb"(%s):(null|%s)" % (_STRING, _STRING))
"""The members of an image without blanks."""
