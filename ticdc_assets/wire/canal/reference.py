"""Records of Canal-JSON to events: what is read of a message, and what is refused.

In: a record whose value is one JSON object, as TiCDC writes it with and without its TiDB extension,
or as the official Canal does. The record's key is ignored: TiCDC sends none. Out: a list of events,
or a `WireError` whose position is a byte (the value is not strict JSON, see `go_json`) or a JSON
path. Decoding depends on the value alone.

This is the readable reference; `batch` gives the same meaning faster.

The fields are in `FIELDS`, `EXTENSION` and `DDL_FIELDS`, and as a table in
docs/formats/canal_json.md. Others are ignored: a newer TiCDC may add some (`_tidb.rowkey` is one).

With the extension a row's commit ts is `_tidb.commitTs`; without it there is only `es`, the commit
ts without its logical part, and the event says so (`es_only`).

The images have the values as text; bytes of a binary column are the code points of the same numbers
(ISO 8859-1). Events carry base64, so that one spelling holds for all formats.

A DDL without text, database, table and commit ts is the bootstrap of a table without its content
(`send-all-bootstrap-at-start`): the format has no place for a schema. Any of these may be missing,
null, empty or 0; `_tidb` may be there or not.

Source: newJSONMessageForDML and JSONMessage in pingcap/tiflow pkg/sink/codec/canal at 017624f.

Not handled: what values mean, columns that were not sent (with only-output-updated-columns `old`
has the changed ones), and the large messages at `claimCheckLocation`. Compressed values are refused
as bytes that are not JSON.
"""

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ticdc_assets.base.errors import WireError, shorten
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
from ticdc_assets.model.json_fields import (
    optional,
    read_array,
    read_boolean,
    read_object,
    read_text,
    required,
    wrong_type,
)
from ticdc_assets.model.schemas import RowShape, SentColumn, sent_shape
from ticdc_assets.model.tso import from_physical_ms
from ticdc_assets.wire import go_json
from ticdc_assets.wire.codes import Presence
from ticdc_assets.wire.fields import READERS, Field, Kind, read_fields
from ticdc_assets.wire.record import Record, check_repeated, stored_bytes
from ticdc_assets.wire.simple.message import DDL_TYPES

WATERMARK_TYPE: Final = "TIDB_WATERMARK"
"""The `type` of a watermark."""

OPS: Final[Mapping[str, Op]] = {"INSERT": Op.INSERT, "UPDATE": Op.UPDATE, "DELETE": Op.DELETE}
"""The operation of each row type."""

_ROW: Final = (
    Field("database", Kind.NAME),
    Field("table", Kind.NAME),
    Field("pkNames", Kind.NAMES, Presence.OPTIONAL),
    Field("ts", Kind.INTEGER, Presence.OPTIONAL),
    Field("sqlType", Kind.OBJECT, Presence.OPTIONAL),
    Field("mysqlType", Kind.TYPES),
    Field("_tidb", Kind.OBJECT, Presence.OPTIONAL),
    Field("data", Kind.IMAGES),
)
FIELDS: Final[Mapping[str, tuple[Field, ...]]] = {
    "INSERT": (*_ROW, Field("old", Kind.IMAGES, Presence.ABSENT)),
    "UPDATE": (*_ROW, Field("old", Kind.IMAGES)),
    # Before TiDB 5.4 it equals `data`.
    "DELETE": (*_ROW, Field("old", Kind.IMAGES, Presence.OPTIONAL)),
    WATERMARK_TYPE: (
        Field("ts", Kind.INTEGER, Presence.OPTIONAL),
        Field("_tidb", Kind.OBJECT),
    ),
}
"""The fields of each type of message that is not a DDL, besides `isDdl` and `type`."""

_EXTENSION: Final = (
    Field("commitTs", Kind.INTEGER),
    Field("onlyHandleKey", Kind.BOOLEAN, Presence.OPTIONAL),
    Field("claimCheckLocation", Kind.TEXT, Presence.OPTIONAL),
)
EXTENSION: Final[Mapping[str, tuple[Field, ...]]] = {
    **dict.fromkeys(OPS, _EXTENSION),
    WATERMARK_TYPE: (Field("watermarkTs", Kind.INTEGER),),
}
"""The fields of `_tidb` of each of these types."""

WITHOUT_EXTENSION: Final = (Field("es", Kind.MILLISECONDS),)
"""The fields that a row without `_tidb` must have in addition."""

DDL_FIELDS: Final = (
    Field("ts", Kind.INTEGER, Presence.OPTIONAL),
    Field("sql", Kind.NAME),
    Field("database", Kind.TEXT, Presence.OPTIONAL),
    Field("table", Kind.TEXT, Presence.OPTIONAL),
    Field("_tidb", Kind.OBJECT, Presence.OPTIONAL),
)
"""The fields of a DDL."""

# Labels of ENUM and SET are between quotes; a quote in a label is doubled and no other escape hides
# a quote, so pairs of quotes are enough.
_QUOTED: Final = re.compile(r"('[^']*(?:'|\Z))")


def decode(record: Record) -> list[Event]:
    """Return the events of `record`: one, or one for each row of the official Canal's messages.

    Raises:
        WireError: the value is not a message of Canal-JSON.
    """
    message = read_object(go_json.parse(record.value), "$")
    is_ddl = required(message, "isDdl", read_boolean)
    word = required(message, "type", read_text)
    if is_ddl:
        return [_empty_bootstrap(message) or _ddl(word, message)]
    if word == WATERMARK_TYPE:
        return [_watermark(message)]
    if word not in OPS:
        raise WireError("unknown_type", "$.type", " ".join([*OPS, WATERMARK_TYPE]), shorten(word))
    return list(_rows(word, message, len(record.value or b"")))


def lower_type(text: str) -> str:
    """Return a column type in lower case, but for the labels of ENUM and SET."""
    if "'" not in text:
        return text.lower()
    parts = _QUOTED.split(text)
    return "".join(part if number % 2 else part.lower() for number, part in enumerate(parts))


def is_binary_type(mysql_type: str) -> bool:
    """Return whether values of a type in lower case are bytes.

    As in TiCDC's own decoder the words `blob` and `binary` decide, except in labels.
    """
    name = mysql_type.partition("(")[0]
    return "blob" in name or "binary" in name


def row_shape(
    names: Iterable[str],
    types: Mapping[str, str],
    *,
    primary_key: tuple[str, ...] | None,
    partial: bool,
) -> RowShape:
    """Return the shape of a row with the columns `names`, whose types are in lower case.

    Raises:
        WireError: no table can have such columns.
    """
    return sent_shape(
        tuple(SentColumn(name, types[name]) for name in names),
        "$.mysqlType",
        primary_key=primary_key,
        partial=partial,
    )


def _ddl(word: str, message: Mapping[str, Any]) -> DdlEvent:
    if word not in DDL_TYPES:
        raise WireError("unknown_type", "$.type", " ".join(sorted(DDL_TYPES)), shorten(word))
    fields = read_fields(message, DDL_FIELDS, readers=_READERS)
    extension = fields.get("_tidb")
    if extension is not None:
        extension = read_fields(extension, _EXTENSION[:1], "$._tidb")
    commit_ts, es_only = _commit_ts(message, extension)
    return DdlEvent(
        ddl_type=word,
        commit_ts=commit_ts,
        build_ts_ms=fields.get("ts"),
        sql=fields["sql"],
        database=fields.get("database", ""),
        table=fields.get("table", ""),
        schema=None,
        pre_schema=None,
        es_only=es_only,
    )


def _empty_bootstrap(message: Mapping[str, Any]) -> Bootstrap | None:
    """Return the bootstrap without content that a DDL message is, None if it has more."""
    if any(message.get(name) not in (None, "") for name in ("sql", "database", "table")):
        return None
    extension = optional(message, "_tidb", read_object)
    if extension is None:
        commit_ts = optional(message, "es", READERS[Kind.MILLISECONDS])
    else:
        commit_ts = optional(extension, "commitTs", READERS[Kind.INTEGER], "$._tidb")
    if commit_ts:
        return None
    return Bootstrap(build_ts_ms=optional(message, "ts", READERS[Kind.INTEGER]), schema=None)


def _watermark(message: Mapping[str, Any]) -> Watermark:
    fields = read_fields(message, FIELDS[WATERMARK_TYPE])
    extension = read_fields(fields["_tidb"], EXTENSION[WATERMARK_TYPE], "$._tidb")
    return Watermark(watermark_ts=extension["watermarkTs"], build_ts_ms=fields.get("ts"))


def _rows(word: str, message: Mapping[str, Any], length: int) -> Iterable[RowChange]:
    op = OPS[word]
    fields = read_fields(message, FIELDS[word], readers=_READERS)
    extension = fields.get("_tidb")
    if extension is not None:
        extension = read_fields(extension, EXTENSION[word], "$._tidb")
    commit_ts, es_only = _commit_ts(message, extension)
    handle_key_only = (extension or {}).get("onlyHandleKey", False)
    location = (extension or {}).get("claimCheckLocation") or None
    database, table, primary_key = fields["database"], fields["table"], fields.get("pkNames")
    types: dict[str, str] = fields["mysqlType"]
    columns = Columns.of(types, fields.get("sqlType", {}))
    data = columns.images(fields["data"], "$.data")
    if not data:
        raise WireError("no_rows", "$.data", "one row at least", "[]")
    if len(data) > 1:
        once = sum(map(stored_bytes, (database, table, *(primary_key or ()), *types)))
        once += sum(map(stored_bytes, types.values()))
        check_repeated(once * len(data), length, "$.data")
    old = columns.images(fields["old"], "$.old") if "old" in fields else None
    # Cut images of claim checks are not marked as such in this format.
    cut = handle_key_only or location is not None
    for before, after in _images(op, data, old):
        yield RowChange(
            op=op,
            commit_ts=commit_ts,
            build_ts_ms=fields.get("ts"),
            database=database,
            table=table,
            table_id=None,
            schema_version=None,
            before=before,
            after=after,
            handle_key_only=cut,
            claim_check_location=location,
            shape=row_shape(
                columns.ordered(before, after),
                types,
                primary_key=primary_key,
                partial=cut or op is Op.DELETE,
            ),
            es_only=es_only,
        )


def _commit_ts(message: Mapping[str, Any], extension: Mapping[str, Any] | None) -> tuple[int, bool]:
    """Return the commit ts, and whether it comes from `es`."""
    if extension is None:
        return from_physical_ms(read_fields(message, WITHOUT_EXTENSION)["es"]), True
    return extension["commitTs"], False


_Images = Sequence[dict[str, PhysicalValue]]


def _images(
    op: Op, data: _Images, old: _Images | None
) -> Iterable[tuple[Image | None, Image | None]]:
    """Return the image before and after of each row, from `data` and `old`."""
    if op is Op.INSERT:
        return [(None, image) for image in data]
    if op is Op.DELETE:
        if old is not None and old != data:
            raise WireError("unexpected_field", "$.old", "the rows of data", "other rows")
        return [(image, None) for image in data]
    old = old or []
    if len(old) != len(data):
        raise WireError("row_count", "$.old", f"{len(data)} rows, as in data", f"{len(old)} rows")
    return zip(old, data, strict=True)


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a message: their types in lower case, and their places in `sqlType`."""

    types: Mapping[str, str]
    rank: Mapping[str, int]

    @classmethod
    def of(cls, types: Mapping[str, str], ranked: Iterable[str]) -> "Columns":
        """Return the columns with these types, in the order of some names."""
        return cls(types, {name: number for number, name in enumerate(ranked)})

    def images(self, value: Any, position: str) -> list[dict[str, PhysicalValue]]:
        """Return the images in an array of rows."""
        return [
            self._image(row, f"{position}[{number}]")
            for number, row in enumerate(read_array(value, position))
        ]

    def ordered(self, before: Image | None, after: Image | None) -> list[str]:
        """Return the names in the images, in order: first those of the row after the change."""
        present = before or {} if after is None else after
        names = sorted(present, key=self._place)
        if after is not None and before is not None:
            names += sorted((name for name in before if name not in after), key=self._place)
        return names

    def _place(self, name: str) -> int:
        return self.rank.get(name, len(self.rank))

    def _image(self, value: Any, position: str) -> dict[str, PhysicalValue]:
        return {
            name: self._physical(name, item, position)
            for name, item in read_object(value, position).items()
        }

    def _physical(self, name: str, value: Any, position: str) -> PhysicalValue:
        mysql_type = self.types.get(name)
        if mysql_type is None:
            raise WireError(
                "missing_field",
                go_json.member("$.mysqlType", name),
                f"the type of a column in {position}",
                "nothing",
            )
        if value is None:
            return None
        if is_binary_type(mysql_type):
            return _base64(value, go_json.member(position, name))
        if type(value) is str:
            return value
        if type(value) is int:
            return str(value)
        if type(value) is go_json.OtherNumber:
            return value.text
        raise wrong_type(go_json.member(position, name), "text, number or null", value)


def _base64(value: Any, position: str) -> str:
    try:
        return b64encode(read_text(value, position).encode("latin-1")).decode()
    except UnicodeEncodeError as error:
        got = f"U+{ord(error.object[error.start]):04X}"
    raise WireError("wrong_bytes", position, "code points to U+00FF (binary column)", got)


def read_types(value: Any, position: str) -> dict[str, str]:
    """Return `value` as an object of column names and types, the types in lower case.

    Without columns, in a row cut to a key that its table does not have, TiCDC writes null.
    """
    return {
        name: lower_type(
            mysql_type
            if type(mysql_type) is str
            else read_text(mysql_type, go_json.member(position, name))
        )
        for name, mysql_type in read_object({} if value is None else value, position).items()
    }


_READERS: Final = {**READERS, Kind.TYPES: read_types, Kind.IMAGES: read_array}
