"""The Simple protocol in JSON: one record an event.

In: events. Out: records whose value is one JSON object, as `wire.simple_json` reads it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from ticdc_assets.demo.simulator.encoders import go_json
from ticdc_assets.demo.simulator.encoders.simple_message import fields_from_event
from ticdc_assets.model.events import Event, Image, ZonedTimestamp
from ticdc_assets.model.schemas import TableSchema, schema_to_json
from ticdc_assets.wire.record import Record


def encode(events: Sequence[Event]) -> list[Record]:
    """Return the records that TiCDC would send for `events`, one an event.

    Raises:
        ValueError: a bootstrap has no schema, or an event holds what JSON in UTF-8 cannot (a lone
            surrogate).
    """
    return [Record(key=None, value=_written(event)) for event in events]


def _written(event: Event) -> bytes:
    return go_json.dumps(
        {
            name: _WRITERS[name](value) if name in _WRITERS else value
            for name, value in fields_from_event(event).items()
        }
    )


def _image(image: Image) -> dict[str, Any]:
    # Go writes the keys of a map in the order of their bytes, which is that of code points.
    values = ((name, image[name]) for name in sorted(image))
    return {
        name: asdict(value) if isinstance(value, ZonedTimestamp) else value
        for name, value in values
    }


def _schema(schema: TableSchema) -> dict[str, Any]:
    written = schema_to_json(schema)
    for column, default in zip(
        written["columns"], (column.default for column in schema.columns), strict=True
    ):
        if isinstance(default, bytes):
            column["default"] = go_json.replaced(default)
        if not column["dataType"]["length"]:
            # `omitempty`: JSON, VECTOR and the like have no length.
            del column["dataType"]["length"]
    return written


_WRITERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "data": _image,
    "old": _image,
    "checksum": asdict,
    "tableSchema": _schema,
    "preTableSchema": _schema,
}
"""Fields that are no regular JSON value of their own."""
