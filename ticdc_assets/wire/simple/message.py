"""What a message of the Simple protocol means, in either encoding.

In: the fields of one message, already converted: by their meaning `int`, `str`, `bool`, an image, a
`Checksum`, a `TableSchema`. Out: one event, or a `WireError` that names the field.

The fields of each type are in `FIELDS`, and as a table in docs/formats/simple.md. Others are
ignored: a newer TiCDC may add fields. TiCDC leaves out empty fields. So in JSON all images may be
missing where there is a `claimCheckLocation`: nothing is left of a row that was cut to a key which
its table does not have.

Source: `message` and `getDDLType` in pingcap/tiflow pkg/sink/codec/simple/message.go at 017624f.

Not handled: anything that needs a schema (which columns an image must have, what a value is in
MySQL), and the large messages at `claimCheckLocation`; the location is passed on.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from ticdc_assets.base.errors import UnsupportedVersionError, WireError, shorten
from ticdc_assets.model.events import (
    Bootstrap,
    Checksum,
    DdlEvent,
    Event,
    Op,
    RowChange,
    Watermark,
)
from ticdc_assets.model.json_fields import read_object
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.wire.codes import Presence
from ticdc_assets.wire.fields import Field, Kind, read_fields

VERSION: Final = 1
"""The only version of the protocol."""


class MessageType(StrEnum):
    """The words that `type` may hold."""

    INSERT = "INSERT"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    WATERMARK = "WATERMARK"
    BOOTSTRAP = "BOOTSTRAP"
    CREATE = "CREATE"
    RENAME = "RENAME"
    CINDEX = "CINDEX"
    DINDEX = "DINDEX"
    ERASE = "ERASE"
    TRUNCATE = "TRUNCATE"
    ALTER = "ALTER"
    QUERY = "QUERY"


OPS: Final[Mapping[MessageType, Op]] = {
    MessageType.INSERT: Op.INSERT,
    MessageType.UPDATE: Op.UPDATE,
    MessageType.DELETE: Op.DELETE,
}
"""The operation of each row type."""

DDL_TYPES: Final = frozenset(MessageType) - {*OPS, MessageType.BOOTSTRAP, MessageType.WATERMARK}
"""The types of DDL events."""


CHECKSUM: Final = (
    Field("version", Kind.INTEGER),
    Field("corrupted", Kind.BOOLEAN),
    Field("current", Kind.UINT32),
    Field("previous", Kind.UINT32),
)
"""The members of checksums."""


def _row(*, data: Presence, old: Presence) -> tuple[Field, ...]:
    """Return the fields of a row with these images."""
    return (
        *_ROW,
        Field("data", Kind.IMAGE, data, "after"),
        Field("old", Kind.IMAGE, old, "before"),
    )


_ROW: Final = (
    Field("database", Kind.NAME),
    Field("table", Kind.NAME),
    Field("tableID", Kind.INTEGER, meaning="table_id"),
    Field("commitTs", Kind.INTEGER, meaning="commit_ts"),
    Field("buildTs", Kind.INTEGER, meaning="build_ts_ms"),
    Field("schemaVersion", Kind.INTEGER, meaning="schema_version"),
    Field("claimCheckLocation", Kind.TEXT, Presence.OPTIONAL, "claim_check_location"),
    Field("handleKeyOnly", Kind.BOOLEAN, Presence.OPTIONAL, "handle_key_only"),
    Field("checksum", Kind.CHECKSUM, Presence.OPTIONAL),
)
_DDL: Final = (
    Field("sql", Kind.NAME),
    Field("commitTs", Kind.INTEGER, meaning="commit_ts"),
    Field("buildTs", Kind.INTEGER, meaning="build_ts_ms"),
    Field("tableSchema", Kind.SCHEMA, Presence.OPTIONAL, "schema"),
    Field("preTableSchema", Kind.SCHEMA, Presence.OPTIONAL, "pre_schema"),
)

FIELDS: Final[Mapping[MessageType, tuple[Field, ...]]] = {
    MessageType.INSERT: _row(data=Presence.REQUIRED, old=Presence.ABSENT),
    MessageType.UPDATE: _row(data=Presence.REQUIRED, old=Presence.REQUIRED),
    MessageType.DELETE: _row(data=Presence.ABSENT, old=Presence.REQUIRED),
    MessageType.WATERMARK: (
        Field("commitTs", Kind.INTEGER, meaning="watermark_ts"),
        Field("buildTs", Kind.INTEGER, meaning="build_ts_ms"),
    ),
    MessageType.BOOTSTRAP: (
        Field("buildTs", Kind.INTEGER, meaning="build_ts_ms"),
        Field("tableSchema", Kind.SCHEMA, meaning="schema"),
    ),
    **dict.fromkeys(sorted(DDL_TYPES), _DDL),
}
"""The fields of each message type besides `version` and `type`."""


def check_version(version: int) -> None:
    """Refuse every version of the protocol but the one known.

    Raises:
        UnsupportedVersionError: `version` is another version.
    """
    if version != VERSION:
        raise UnsupportedVersionError(
            "unsupported_version", "$.version", str(VERSION), shorten(version)
        )


def message_type(word: str) -> MessageType:
    """Return the type that `word` names, in exactly this spelling.

    Raises:
        WireError: no message type has this name.
    """
    message_kind = _TYPES.get(word)
    if message_kind is None:
        raise WireError("unknown_type", "$.type", " ".join(_TYPES), shorten(word))
    return message_kind


def read_checksum(value: Any, position: str) -> Checksum:
    """Return `value` as the checksum of a row."""
    return Checksum(**read_fields(read_object(value, position), CHECKSUM, position))


def event_from_fields(kind: MessageType, attributes: dict[str, Any]) -> Event:
    """Return the event of a message of type `kind` whose fields mean `attributes`.

    Optional fields that were not sent are absent.
    """
    match kind:
        case MessageType.BOOTSTRAP:
            return Bootstrap(**attributes)
        case MessageType.WATERMARK:
            return Watermark(**attributes)
        case MessageType.INSERT | MessageType.UPDATE | MessageType.DELETE:
            # Go writes an empty location as a missing one.
            location = attributes.pop("claim_check_location", None) or None
            images: dict[str, Any] = {"before": None, "after": None, **attributes}
            return RowChange(op=OPS[kind], claim_check_location=location, **images)
        case _:
            schemas: dict[str, Any] = {"schema": None, "pre_schema": None, **attributes}
            # A DDL message has no database and table of its own (seen: golden/QUIRKS.md B9).
            named: TableSchema | None = schemas["schema"] or schemas["pre_schema"]
            return DdlEvent(
                ddl_type=kind.value,
                database=named.database if named else "",
                table=named.table if named else "",
                **schemas,
            )


_TYPES: Final = {kind.value: kind for kind in MessageType}
