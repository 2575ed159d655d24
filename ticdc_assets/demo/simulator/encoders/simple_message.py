"""The fields of the Simple protocol's messages, whichever way their bytes are written.

In: an event. Out: the fields of its message in the order of TiCDC's struct: names as in the JSON
encoding, values as `wire.simple_message.Fields` has them; or a `ValueError` for an event that the
protocol cannot carry.

What Go's `omitempty` leaves out is left out, but for an empty image: TiCDC drops it, and nobody
could tell such a message from a damaged one, so it is kept.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from ticdc_assets.demo.simulator.encoders.go_json import without_empty
from ticdc_assets.model.events import Bootstrap, DdlEvent, Event, Image, RowChange, Watermark
from ticdc_assets.wire.simple_message import OPS, VERSION, MessageType, message_type


def fields_from_event(event: Event) -> dict[str, Any]:
    """Return the fields of the message of `event`, in TiCDC's order."""
    return _FIELDS_OF[type(event)](event)


def _row(event: Event) -> dict[str, Any]:
    row = cast(RowChange, event)
    images: dict[str, Image | None] = {"data": row.after, "old": row.before}
    return {
        "version": VERSION,
        **without_empty(database=row.database, table=row.table, tableID=row.table_id),
        "type": _TYPES_OF_OPS[row.op].value,
        "commitTs": row.commit_ts,
        "buildTs": row.build_ts_ms,
        **without_empty(
            schemaVersion=row.schema_version,
            claimCheckLocation=row.claim_check_location,
            handleKeyOnly=row.handle_key_only,
            checksum=row.checksum,
        ),
        **{name: image for name, image in images.items() if image is not None},
    }


def _ddl(event: Event) -> dict[str, Any]:
    ddl = cast(DdlEvent, event)
    return {
        "version": VERSION,
        "type": message_type(ddl.ddl_type).value,
        **without_empty(sql=ddl.sql),
        "commitTs": ddl.commit_ts,
        "buildTs": ddl.build_ts_ms,
        **without_empty(tableSchema=ddl.schema, preTableSchema=ddl.pre_schema),
    }


def _bootstrap(event: Event) -> dict[str, Any]:
    bootstrap = cast(Bootstrap, event)
    if bootstrap.schema is None:
        raise ValueError("a bootstrap of the Simple protocol needs its schema")
    return {
        "version": VERSION,
        "type": MessageType.BOOTSTRAP.value,
        "commitTs": 0,
        "buildTs": bootstrap.build_ts_ms,
        "tableSchema": bootstrap.schema,
    }


def _watermark(event: Event) -> dict[str, Any]:
    watermark = cast(Watermark, event)
    return {
        "version": VERSION,
        "type": MessageType.WATERMARK.value,
        "commitTs": watermark.watermark_ts,
        "buildTs": watermark.build_ts_ms,
    }


_TYPES_OF_OPS: Final = {op: kind for kind, op in OPS.items()}
_FIELDS_OF: Final[Mapping[type[Event], Callable[[Event], dict[str, Any]]]] = {
    RowChange: _row,
    DdlEvent: _ddl,
    Bootstrap: _bootstrap,
    Watermark: _watermark,
}
