"""TiCDC's Open Protocol: one record in, the events of its batch out.

In: a Kafka record whose key and value hold the same number of parts, each after its length. Out:
the events in the order of the parts, or a `WireError`: one wrong part refuses the whole record.
Decoding depends on the record alone.

This is the readable reference; `batch` gives the same meaning faster. Frames, keys, values and
columns are tables in docs/formats/open_protocol.md. Unknown fields are ignored: a newer TiCDC may
add some. An image that is missing, null or empty counts as absent. The value of a record with only
watermarks may be missing, null or empty: the protocol says that a watermark has none, and TiCDC
writes a length of 0.

A DDL with a `ts` of 0 or none, without database, table and text is the bootstrap of a table without
its content (`send-all-bootstrap-at-start`): the format has no place for a schema.

The flags of a column may be outdated. TiCDC's new encoder keeps them by the id of a partition and
drops them by that of the table (`columnFlagsCache` in pkg/sink/codec/open/encoder.go of
pingcap/ticdc at b813e76). `t` and `h` are always up to date. So `h` alone says which columns are
the handle key, none where no column has it, whatever `f` says; values that `f` contradicts are read
nevertheless (`values`); and what `f` says of types counts only where nothing else says it
(`registry.inference.row_shapes`). The flags in `p` are those of `u`: v8.5.4 and v8.5.5 write TiDB's
flags into `p`, where the same bits mean something else.

With only-output-updated-columns the new encoder writes a column that was not NULL and is now
without its name into `p`: `"p":{"t":3,"f":65,"v":1,"name":{...}}`, and the same names again for the
next such column (`writeColumnFieldValueIfUpdated` in codec.go). Such members `t`, `h`, `f` and `v`
of `p` that are not objects are skipped, and the shape of the row says so (`RowShape.damaged`): `u`
is whole.

An UPDATE without its old values (old value off, or all columns of `p` left out as unchanged) looks
like an INSERT and is decoded as one.

Source: `MessageKey`, `Column` in pingcap/tiflow pkg/sink/codec/internal, `messageRow`, `messageDDL`
and `BatchEncoder` in pkg/sink/codec/open at 017624f.

Not handled: what values mean, the large messages at `ccl`, and compression, which is of each value
inside the record: `map_values` changes them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

from ticdc_assets.base.errors import UnsupportedVersionError, WireError, shorten
from ticdc_assets.model.events import (
    Bootstrap,
    DdlEvent,
    Event,
    Image,
    Op,
    RowChange,
    Watermark,
)
from ticdc_assets.model.json_fields import (
    optional,
    read_boolean,
    read_name,
    read_object,
    required_not_null,
)
from ticdc_assets.model.schemas import ColumnFlag, SentColumn, sent_shape
from ticdc_assets.model.tso import MAX_TSO
from ticdc_assets.wire import go_json
from ticdc_assets.wire.codes import Presence, Spelling
from ticdc_assets.wire.column_types import MAX_ACTION_CODE, TYPE_NAMES, ddl_word
from ticdc_assets.wire.fields import READERS, Field, Kind, read_fields
from ticdc_assets.wire.go_json import OtherNumber
from ticdc_assets.wire.open.values import BYTES, SentValue, physical_values, read_integer
from ticdc_assets.wire.record import Record, content_of, moved

VERSION: Final = 1
"""The only version of the protocol."""

ROW: Final = 1
DDL: Final = 2
WATERMARK: Final = 3
"""The values of `t` in a key."""

_ROW_KEY: Final = (
    Field("ts", Kind.INTEGER),
    Field("scm", Kind.NAME),
    Field("tbl", Kind.NAME),
    Field("rid", Kind.ROW_ID, Presence.OPTIONAL),
    Field("ptn", Kind.INTEGER, Presence.OPTIONAL),
    Field("ohk", Kind.BOOLEAN, Presence.OPTIONAL),
    Field("ccl", Kind.TEXT, Presence.OPTIONAL),
)
KEYS: Final[Mapping[int, tuple[Field, ...]]] = {
    ROW: _ROW_KEY,
    DDL: (
        Field("ts", Kind.INTEGER, Presence.OPTIONAL),
        Field("scm", Kind.TEXT, Presence.OPTIONAL),
        Field("tbl", Kind.TEXT, Presence.OPTIONAL),
    ),
    WATERMARK: (Field("ts", Kind.INTEGER),),
}
"""The fields of a key by its `t`, besides `t`."""

VALUE: Final = tuple(Field(name, Kind.IMAGE, Presence.OPTIONAL) for name in "upd")
"""The fields of the value of a row."""

NUMBER_SIZE: Final = 8
"""Bytes of the version and of each length."""

VERSION_BYTES: Final = VERSION.to_bytes(NUMBER_SIZE)

MAX_FLAGS: Final = 2**16 - 1
"""TiCDC has eight flags; a few more are read for those of a newer one."""

_CODE_DIGITS: Final = 3


@dataclass(frozen=True, slots=True)
class Part:
    """One event of a record, still as bytes, and where they start in the record's key and value.

    `value` is the record's if that is null or empty.
    """

    number: int
    key: bytes
    value: bytes | None
    key_start: int
    value_start: int


def decode(record: Record) -> list[Event]:
    """Return the events of `record`, at least one.

    Raises:
        WireError: the record is not a message of Open Protocol.
        UnsupportedVersionError: the record has another version.
    """
    return [_event(part) for part in _parts(record)]


def map_values(record: Record, change: Callable[[bytes, str], bytes]) -> Record:
    """Return `record` with the value of each row and DDL replaced by the result of `change`.

    `change` gets the value and its position, `byte N` of the record's value. Empty values, which
    are those of watermarks, stay as they are; so do the key and a null value.

    Raises:
        WireError: the values are not framed as the format says; or `change` raises it.
    """
    if record.value is None:
        return record
    pieces: list[bytes] = []
    position = 0
    while position < len(record.value):
        start, end = _frame(record.value, position, "")
        piece = record.value[start:end]
        if piece:
            piece = change(piece, f"byte {start}")
        pieces += (len(piece).to_bytes(NUMBER_SIZE), piece)
        position = end
    return Record(key=record.key, value=b"".join(pieces))


# --- frames ---


def _parts(record: Record) -> Iterator[Part]:
    """Yield the parts of `record`, at least one, each after its lengths were checked."""
    key, value = record.key, record.value
    if key is None:
        raise WireError("null_key", "key byte 0", "the version", "null key")
    if len(key) < NUMBER_SIZE:
        raise WireError("truncated", f"key byte {len(key)}", "8 bytes of version", "the end")
    version = int.from_bytes(key[:NUMBER_SIZE])
    if version != VERSION:
        raise UnsupportedVersionError(
            "unsupported_version", "key byte 0", str(VERSION), shorten(version)
        )
    number, key_end, value_end = 0, NUMBER_SIZE, 0
    while key_end < len(key):
        key_start, key_end = _frame(key, key_end, "key ")
        # Without any value each has none, as watermarks do.
        part_value, value_start = value, 0
        if value:
            if value_end == len(value):
                place = f"byte {value_end}"
                raise WireError("missing_value", place, "a value for each key", "the end")
            value_start, value_end = _frame(value, value_end, "")
            part_value = value[value_start:value_end]
        yield Part(
            number=number,
            key=key[key_start:key_end],
            value=part_value,
            key_start=key_start,
            value_start=value_start,
        )
        number += 1
    if number == 0:
        content_of(value, "a value for each key")
    if value and value_end < len(value):
        got = shorten(value[value_end : value_end + 16])
        raise WireError("trailing_bytes", f"byte {value_end}", "a value for each key", got)


def _frame(content: bytes, position: int, where: str) -> tuple[int, int]:
    """Return where the part begins and ends whose length is at `position`."""
    start = position + NUMBER_SIZE
    if start > len(content):
        raise WireError("truncated", f"{where}byte {len(content)}", "8 bytes of length", "the end")
    length = int.from_bytes(content[position:start])
    left = len(content) - start
    if length > left:
        raise WireError(
            "length_beyond_end", f"{where}byte {position}", f"at most {left}", str(length)
        )
    return start, start + length


# --- JSON ---


def _json_object(content: bytes | None, start: int, where: str, path: str) -> dict[str, Any]:
    """Return the JSON object of a part, with its numbers as sent."""
    try:
        parsed = go_json.parse(content, as_sent=True)
    except WireError as error:
        raise moved(error, f"{where}byte {start}") from None
    return read_object(parsed, path)


_natural: Final = partial(read_integer, minimum=0, maximum=MAX_TSO)


# --- columns ---


def _nameless(image: Any) -> list[str]:
    """Return the members of an image that are left of a column without a name."""
    if type(image) is not dict:
        return []
    members = cast(dict[str, Any], image)
    return [name for name in members if name in _OF_COLUMN and type(members[name]) is not dict]


_OF_COLUMN: Final = frozenset({"t", "h", "f", "v"})


def _cells_of(value: Mapping[str, Any], name: str, position: str) -> dict[str, SentValue]:
    """Return the columns of an image; empty if there is no such image."""
    columns = value.get(name)
    if columns is None:
        return {}
    position = f"{position}.{name}"
    nameless = _nameless(columns) if name == "p" else ()
    return {
        column: _cell(fields, go_json.member(position, column))
        for column, fields in read_object(columns, position).items()
        if column not in nameless
    }


def _cell(value: Any, position: str) -> SentValue:
    fields = read_object(value, position)
    code = required_not_null(fields, "t", _natural, position)
    flags = optional(fields, "f", partial(_natural, maximum=MAX_FLAGS), position)
    is_handle_key = optional(fields, "h", read_boolean, position)
    if code not in TYPE_NAMES:
        raise WireError("unknown_column_type", f"{position}.t", "a type code", shorten(code))
    if "v" not in fields:
        raise WireError("missing_field", f"{position}.v", "the field", "nothing")
    return SentValue(fields["v"], code, flags or 0, f"{position}.v", bool(is_handle_key))


def _columns_and_images(
    after: Mapping[str, SentValue], before: Mapping[str, SentValue]
) -> tuple[tuple[SentColumn, ...], Image, Image]:
    """Return the columns of a row, by what its images say of them, and its images."""
    first = {**after, **{name: cell for name, cell in before.items() if name not in after}}
    columns: list[SentColumn] = []
    values: dict[str, list[str | None]] = {}
    for name, cell in first.items():
        cells = [image[name] for image in (after, before) if name in image]
        values[name], spellings = physical_values(cells)
        flags = column_flags(cell.flags, is_handle_key=cell.is_handle_key)
        columns.append(SentColumn(name, base_type_of(cell.code, spellings[0]), flags))
    return (
        tuple(columns),
        {name: values[name][0] for name in after},
        {name: values[name][-1] for name in before},
    )


def base_type_of(code: int, spelled: Spelling) -> str:
    """Return the base type of a column by how its values are spelled."""
    return TYPE_NAMES[code][spelled in BYTES]


def column_flags(sent: int, *, is_handle_key: bool) -> ColumnFlag:
    """Return the flags of a column, by its flags as sent and its `h`."""
    return ColumnFlag(sent & ~ColumnFlag.HANDLE_KEY | ColumnFlag.HANDLE_KEY * is_handle_key)


# --- decoding ---


def _event(part: Part) -> Event:
    position = f"$.keys[{part.number}]"
    key = _json_object(part.key, part.key_start, "key ", position)
    kind = required_not_null(key, "t", _natural, position)
    read = _READERS.get(kind)
    if read is None:
        expected = "1 (row), 2 (DDL) or 3 (watermark)"
        raise WireError("unknown_type", f"{position}.t", expected, shorten(kind))
    return read(part, key, position)


def _value(part: Part) -> tuple[dict[str, Any], str]:
    position = f"$.values[{part.number}]"
    return _json_object(part.value, part.value_start, "", position), position


def _read_watermark(part: Part, key: Mapping[str, Any], position: str) -> Event:
    if part.value:
        got = shorten(part.value[:16])
        raise WireError(
            "unexpected_value", f"byte {part.value_start}", "no value of a watermark", got
        )
    return Watermark(watermark_ts=_key_fields(WATERMARK, key, position)["ts"], build_ts_ms=None)


def _read_ddl(part: Part, key: Mapping[str, Any], position: str) -> Event:
    fields = _key_fields(DDL, key, position)
    database, table = fields.get("scm", ""), fields.get("tbl", "")
    key_position = position
    value, position = _value(part)
    if not (fields.get("ts") or database or table or value.get("q")):
        return Bootstrap(build_ts_ms=None, schema=None)
    commit_ts = required_not_null(key, "ts", _natural, key_position)
    code = _action_code(value, position)
    return DdlEvent(
        ddl_type=ddl_word(code),
        commit_ts=commit_ts,
        build_ts_ms=None,
        sql=required_not_null(value, "q", read_name, position),
        database=database,
        table=table,
        schema=None,
        pre_schema=None,
        action_code=code,
    )


def _action_code(fields: dict[str, Any], position: str) -> int:
    """Return the code of a DDL: TiCDC writes a number, the protocol calls it a string."""
    text = fields.get("t")
    if type(text) is str and text.isascii() and text.isdecimal() and len(text) <= _CODE_DIGITS:
        fields = fields | {"t": OtherNumber(text)}
    return required_not_null(fields, "t", partial(_natural, maximum=MAX_ACTION_CODE), position)


def _key_fields(kind: int, key: Mapping[str, Any], position: str) -> dict[str, Any]:
    return read_fields(
        key, KEYS[kind], position, readers=_READERS_OF_KEYS, read_required=required_not_null
    )


def _read_row(part: Part, key: Mapping[str, Any], position: str) -> Event:
    fields = _key_fields(ROW, key, position)
    location = fields.get("ccl") or None
    # With a location `ohk` is not sent, though the value has only the handle key.
    handle_key_only = fields.get("ohk", False) or location is not None
    value, position = _value(part)
    images = {field.name: _cells_of(value, field.name, position) for field in VALUE}
    # Then `p` lacks columns that changed.
    damaged = bool(_nameless(value.get("p")))
    there = [name for name, columns in images.items() if columns or (name == "p" and damaged)]
    op = _OPS.get(tuple(there))
    if op is None:
        got = " and ".join(there) or "none of them"
        raise WireError("wrong_members", position, "u, or u and p, or d, with columns", got)
    after, before = images["u"], images["d"] or images["p"]
    columns, after_image, before_image = _columns_and_images(after, before)
    return RowChange(
        op=op,
        commit_ts=fields["ts"],
        build_ts_ms=None,
        database=fields["scm"],
        table=fields["tbl"],
        table_id=fields.get("ptn"),
        schema_version=None,
        before=None if op is Op.INSERT else before_image,
        after=None if op is Op.DELETE else after_image,
        handle_key_only=handle_key_only,
        claim_check_location=location,
        shape=sent_shape(
            columns,
            position,
            partial=handle_key_only or op is Op.DELETE,
            damaged=damaged,
        ),
        row_id=fields.get("rid", 0),
    )


_READERS_OF_KEYS: Final = {
    **READERS,
    Kind.INTEGER: _natural,
    Kind.ROW_ID: partial(read_integer, minimum=-(2**63), maximum=2**63 - 1),
}
_READERS: Final[Mapping[int, Callable[[Part, Mapping[str, Any], str], Event]]] = {
    ROW: _read_row,
    DDL: _read_ddl,
    WATERMARK: _read_watermark,
}
_OPS: Final[Mapping[tuple[str, ...], Op]] = {
    ("u",): Op.INSERT,
    ("u", "p"): Op.UPDATE,
    ("d",): Op.DELETE,
}
"""The operation of a row, by the images that have columns."""
