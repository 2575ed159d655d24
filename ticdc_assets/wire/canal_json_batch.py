"""The hot path of Canal-JSON.

In: record batches with a column `value`. Out: `Rows`, equal to what `canal_json.decode` says, to
the last reason and position; the result depends on the records alone.

How it stays equal: a message is taken here only if it has the plain shape that TiCDC writes (a
watermark, or one row whose values are all text or null, with `sqlType` and `mysqlType` of exactly
its columns), and is given to the reference in every other case, errors included. What msgspec would
let pass and the reference refuses is closed as in `simple_json_batch`: the structs forbid unknown
fields, images are decoded once more with their type, the batch is checked to be UTF-8, and outside
the images there are too few brackets for a nesting deeper than `MAX_DEPTH`.

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
import pyarrow as pa

from ticdc_assets.tso import MAX_TSO, from_physical_ms
from ticdc_assets.wire import canal_json
from ticdc_assets.wire.canal_json import MAX_ES, OPS, WATERMARK_TYPE
from ticdc_assets.wire.go_json import MAX_DEPTH
from ticdc_assets.wire.record import Record
from ticdc_assets.wire.rows import (
    ROW,
    WATERMARK,
    Common,
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

_WORDS: Final = {kind: op.value for kind, op in OPS.items()}


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
    except (msgspec.DecodeError, UnicodeError, RecursionError):
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
