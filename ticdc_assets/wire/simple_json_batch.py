"""The hot path of the Simple protocol in JSON.

In: record batches with a column `value`. Out: `Rows`, equal to what `simple_json.decode` says, to
the last reason and position; the result depends on the records alone.

Messages in exactly the bytes that TiCDC writes are read by compiled loops (`decode_regular`): every
byte of them that is not inside a string is compared with what it must be, see `simple_loops`. What
differs in bytes alone is written again for these (`json_rewriting`). The others are read one by one
(`decode_rows`).

How that stays equal: a message is taken here only if it has the regular shape that TiCDC writes,
whatever members it has besides, and is given to the reference in every other case, errors included.
What msgspec would let pass and the reference refuses is closed as follows (tests try each):

- What is skipped (members that nobody knows, images and checksums as `Raw` slices, the earlier of
  two members of one name) has been looked at before for its UTF-8 and its depth, see
  `json_records`. Images and checksums are decoded once more with their type.
- Numbers: an integer field takes only integers without fraction, and the range is in the type.
- A byte order mark, NaN, lone surrogates, trailing bytes and control characters are refused by
  msgspec itself, also inside what it skips.

Images and schemas leave as JSON text, as sent; images that are written again for the loops without
the blanks between their tokens. Only what took the long way is written again, with
the same meaning; and a schema whose text Python's own `json` could not read (digits
without end in a field nobody knows).
"""

# pyarrow has no type information, so what comes from it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np
import pyarrow as pa

from ticdc_assets.events import Op
from ticdc_assets.tso import MAX_TSO
from ticdc_assets.wire import simple_json
from ticdc_assets.wire.byte_columns import Buffer, Ints, gathered_texts
from ticdc_assets.wire.column_rows import Part, PartRows, regular_rows
from ticdc_assets.wire.json_records import (
    IrregularError,
    check_readable,
    read_records,
    without_blanks,
)
from ticdc_assets.wire.json_rewriting import Members
from ticdc_assets.wire.record import Record
from ticdc_assets.wire.rows import ROW, WATERMARK, Common, RegularRows, Rows
from ticdc_assets.wire.simple_message import OPS, MessageType

_Integer = Annotated[int, msgspec.Meta(ge=0, le=MAX_TSO)]
_Uint32 = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
_ABSENT: Final = msgspec.Raw()
_MISSING: Final = -1


MEMBERS: Final = Members(
    regular=(
        "version",
        "database",
        "table",
        "tableID",
        "type",
        "commitTs",
        "buildTs",
        "schemaVersion",
        "data",
        "old",
    ),
    others=(
        "claimCheckLocation",
        "handleKeyOnly",
        "checksum",
        "sql",
        "tableSchema",
        "preTableSchema",
    ),
)
"""What is looked at in messages, see `simple_message`."""


class _Message(msgspec.Struct, gc=False):
    """A row or a watermark of the shape TiCDC writes; the names are those of the protocol."""

    version: Literal[1]
    type: Literal["INSERT", "UPDATE", "DELETE", "WATERMARK"]
    commitTs: _Integer
    buildTs: _Integer
    database: str = ""
    table: str = ""
    tableID: _Integer = _MISSING
    schemaVersion: _Integer = _MISSING
    claimCheckLocation: str | None = None
    handleKeyOnly: bool | None = None
    checksum: msgspec.Raw = _ABSENT
    data: msgspec.Raw = _ABSENT
    old: msgspec.Raw = _ABSENT


class _Timestamp(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    location: str
    value: str


class _Checksum(msgspec.Struct, gc=False):
    version: _Integer
    corrupted: bool
    current: _Uint32
    previous: _Uint32


class _Schemas(msgspec.Struct, gc=False):
    tableSchema: msgspec.Raw = _ABSENT
    preTableSchema: msgspec.Raw = _ABSENT


_decode_message: Final = msgspec.json.Decoder(_Message).decode
_check_image: Final = msgspec.json.Decoder(dict[str, str | _Timestamp | None]).decode
_decode_checksum: Final = msgspec.json.Decoder(_Checksum).decode
_encode: Final = msgspec.json.Encoder().encode
_decode_schemas: Final = msgspec.json.Decoder(_Schemas).decode

# Of each row type: its op, and whether it has `data` and `old`.
_IMAGES: Final[Mapping[str, tuple[str, bool, bool]]] = {
    kind.value: (op.value, kind is not MessageType.DELETE, kind is not MessageType.INSERT)
    for kind, op in OPS.items()
}

_KINDS: Final = pa.array([ROW, WATERMARK])
_OPS: Final = pa.array([Op.INSERT.value, Op.UPDATE.value, Op.DELETE.value])


def decode_regular(batch: pa.RecordBatch) -> RegularRows | None:
    """Return the rows of those records of `batch` that TiCDC writes most, read at once.

    These are watermarks, and inserts, updates and deletes with nothing but their images, all fields
    in TiCDC's order and no white space between them.
    """
    return regular_rows(batch, _rows)


def _rows(_first: int, part: Part) -> PartRows:
    from ticdc_assets.wire import simple_loops

    found = np.zeros((len(part.starts), simple_loops.SIMPLE_FIELDS), np.int64)
    simple_loops.simple_messages(
        part.buffer.octets, part.buffer.words, part.starts, part.ends, found
    )
    taken = np.flatnonzero(found[:, 0])
    return taken, _columns(part.buffer, found[taken].T)


def _columns(buffer: Buffer, fields: Ints) -> "dict[str, pa.Array[Any]]":
    """Return the columns of the regular messages of a part; each has a column of fields."""
    from ticdc_assets.wire import json_loops

    kinds, commit_ts, build_ts, table_id, version = fields[:5]
    marks = kinds == json_loops.WATERMARK
    rows = None if not marks.any() else ~marks

    def text(field: int, absent: int | None = None) -> "pa.Array[Any]":
        present = rows if absent is None else ~marks & (kinds != absent)
        return gathered_texts(buffer, fields[field], fields[field + 1], present)

    no = np.zeros(len(kinds), np.bool_)
    return {
        "index": pa.array(np.zeros(len(kinds), np.int32)),
        "kind": _KINDS.take(pa.array(marks.view(np.int8))),
        "op": _OPS.take(pa.array(kinds - json_loops.INSERT, mask=marks)),
        "commit_ts": pa.array(commit_ts),
        "build_ts_ms": pa.array(build_ts),
        "database": text(5),
        "table": text(7),
        "table_id": pa.array(table_id, mask=marks),
        "schema_version": pa.array(version, mask=marks),
        "before": text(9, json_loops.INSERT),
        "after": text(11, json_loops.DELETE),
        "handle_key_only": pa.array(no, mask=marks),
        "es_only": pa.array(no, mask=marks),
    }


def decode_rows(batch: pa.RecordBatch) -> Rows:
    """Return the rows of the records of `batch`."""
    return read_records(batch, _row, simple_json.decode, _schema_texts)


def _row(_key: bytes | None, value: bytes) -> Sequence[Common]:
    """Return the common columns of a row or watermark of the regular shape.

    Raises:
        IrregularError: it has another one; so do msgspec's errors.
    """
    check_readable(value)
    message = _decode_message(value)
    data, old, checksum = message.data, message.old, message.checksum
    images = _IMAGES.get(message.type)
    if images is None:
        return ((0, WATERMARK, None, message.commitTs, message.buildTs, *(None,) * 11),)
    op, has_data, has_old = images
    if (
        bool(data) is not has_data
        or bool(old) is not has_old
        or message.tableID == _MISSING
        or message.schemaVersion == _MISSING
        or not message.database
        or not message.table
    ):
        raise IrregularError
    if has_data:
        _check_image(data)
    if has_old:
        _check_image(old)
    return (
        (
            0,
            ROW,
            op,
            message.commitTs,
            message.buildTs,
            message.database,
            message.table,
            message.tableID,
            message.schemaVersion,
            without_blanks(old) if has_old else None,
            without_blanks(data) if has_data else None,
            message.handleKeyOnly or False,
            message.claimCheckLocation or None,
            _encode(_decode_checksum(checksum)) if checksum else None,
            None,
            False,
        ),
    )


def _schema_texts(record: Record) -> tuple[bytes | None, bytes | None]:
    schemas = _decode_schemas(record.value or b"{}")
    return bytes(schemas.tableSchema) or None, bytes(schemas.preTableSchema) or None
