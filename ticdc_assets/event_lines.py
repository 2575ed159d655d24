"""The events of a capture as JSON lines, for people who look into a topic.

In: the records of a capture, in order. Out: for each event one object, and for each record that
holds none one of type `error`, so that every offset has a line. Values are canonical text as far as
the schemas seen up to that record tell; a row whose schema version was not seen yet is `held`, with
its values as sent.

Nothing is kept but schemas and DDL, so a capture of any size streams through. The lines depend on
the records alone: printing again prints the same.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from ticdc_assets.capture import CaptureRecord
from ticdc_assets.claim_check import ClaimCheckStore
from ticdc_assets.errors import ImageError, InputError, shorten
from ticdc_assets.events import (
    Bootstrap,
    DdlEvent,
    Event,
    Image,
    PhysicalValue,
    RowChange,
    Watermark,
    ZonedTimestamp,
)
from ticdc_assets.mysql_types import Kind, kind_of
from ticdc_assets.registry.catalog import SeenShape, complete
from ticdc_assets.registry.history import (
    Coordinates,
    SchemaHistory,
    SchemaSource,
    SchemaVersion,
)
from ticdc_assets.schemas import RowShape, TableSchema
from ticdc_assets.values import canonical_of
from ticdc_assets.values.zones import find_zone
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets.wire.compression import Compression
from ticdc_assets.wire.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureFormat:
    """How the records of a capture are written.

    Attributes:
        wire_format: the format.
        compression: how values were compressed.
        timezone: zone in which TIMESTAMPs are shown; None shows them as they were sent.
        store: where claim checks are, None if rows are to be shown as the messages have them.
    """

    wire_format: WireFormat
    compression: Compression = Compression.NONE
    timezone: str | None = None
    store: ClaimCheckStore | None = None


def event_lines(
    records: Iterable[CaptureRecord], capture_format: CaptureFormat
) -> Iterator[dict[str, Any]]:
    """Yield one JSON object for each event of `records`, and for each record without one."""
    printer = _Printer(capture_format)
    for record in records:
        place = {"partition": record.partition, "offset": record.offset}
        try:
            events = decode(
                capture_format.wire_format,
                Record(key=record.key, value=record.value),
                compression=capture_format.compression,
            )
        except InputError as error:
            yield {**place, "index": 0, **_error(error)}
            continue
        for index, event in enumerate(events):
            coordinates = Coordinates(
                topic=record.topic, partition=record.partition, offset=record.offset, index=index
            )
            yield {**place, "index": index, **printer.line(event, coordinates)}


def _error(error: InputError) -> dict[str, Any]:
    return {
        "type": "error",
        "reason": error.reason,
        "position": error.position,
        "expected": error.expected,
        "got": error.got,
    }


_Converters: TypeAlias = dict[str, Callable[[PhysicalValue], str | None]]


class _Printer:
    def __init__(self, capture_format: CaptureFormat) -> None:
        self._format = capture_format
        self._sent = SchemaHistory()
        self._completed: SchemaHistory | None = None
        # For each (database, table, shape) the lowest commit ts so far.
        self._shapes: dict[tuple[str, str, RowShape], int] = {}
        self._converters: dict[tuple[int, str], tuple[TableSchema, _Converters]] = {}

    def line(self, event: Event, coordinates: Coordinates) -> dict[str, Any]:
        match event:
            case RowChange():
                return self._row(event)
            case DdlEvent():
                return self._ddl(event, coordinates)
            case Bootstrap():
                return self._bootstrap(event, coordinates)
            case Watermark():
                return {"type": "watermark", "commit_ts": event.watermark_ts}

    def _ddl(self, event: DdlEvent, coordinates: Coordinates) -> dict[str, Any]:
        if self._sent.add_ddl(event, coordinates):
            self._completed = None
        schema = event.schema
        return {
            "type": "ddl",
            "ddl_type": event.ddl_type,
            "database": event.database,
            "table": event.table,
            "commit_ts": event.commit_ts,
            "schema_version": None if schema is None else schema.version,
            "sql": event.sql,
        }

    def _bootstrap(self, event: Bootstrap, coordinates: Coordinates) -> dict[str, Any]:
        self._sent.add_schema(
            SchemaVersion(
                schema=event.schema,
                source=SchemaSource.BOOTSTRAP,
                sql=None,
                commit_ts=None,
                coordinates=coordinates,
            )
        )
        return {
            "type": "bootstrap",
            "database": event.schema.database,
            "table": event.schema.table,
            "commit_ts": None,
            "schema_version": event.schema.version,
        }

    def _row(self, row: RowChange) -> dict[str, Any]:
        if row.claim_check_location is not None and self._format.store is not None:
            try:
                row = self._whole(row, row.claim_check_location, self._format.store)
            except InputError as error:
                return _error(error)
        schema = self._schema_of(row)
        line: dict[str, Any] = {
            "type": "row",
            "op": str(row.op),
            "database": row.database,
            "table": row.table,
            "commit_ts": row.commit_ts,
            "schema_version": row.schema_version,
        }
        if row.es_only:
            line["es_only"] = True
        if row.handle_key_only:
            line["handle_key_only"] = True
        if schema is None or _lacks_labels(schema, row):
            return {**line, "held": True, "before": _sent(row.before), "after": _sent(row.after)}
        try:
            return {
                **line,
                "before": self._canonical(schema, row.before, "before"),
                "after": self._canonical(schema, row.after, "after"),
            }
        except InputError as error:
            return {**line, **_error(error)}

    @staticmethod
    def _whole(row: RowChange, location: str, store: ClaimCheckStore) -> RowChange:
        for event in store.fetch(location):
            if isinstance(event, RowChange):
                return event
        return row

    def _schema_of(self, row: RowChange) -> TableSchema | None:
        if row.schema_version is not None:
            return self._sent.at(row.database, row.table, row.schema_version)
        assert row.shape is not None
        seen = (row.database, row.table, row.shape)
        if row.commit_ts < self._shapes.get(seen, row.commit_ts + 1):
            self._shapes[seen] = row.commit_ts
            self._completed = None
        if self._completed is None:
            self._converters.clear()
            self._completed = complete(
                self._sent,
                (
                    SeenShape(database=database, table=table, shape=shape, min_ts=min_ts)
                    for (database, table, shape), min_ts in self._shapes.items()
                ),
                self._format.timezone or "UTC",
            )
        return self._completed.in_force(row.database, row.table, row.commit_ts)

    def _canonical(
        self, schema: TableSchema, image: Image | None, side: str
    ) -> dict[str, str | None] | None:
        if image is None:
            return None
        converters = self._converters_of(schema, self._format.timezone or _zone_of(image))
        shown: dict[str, str | None] = {}
        for name, value in image.items():
            convert = converters.get(name)
            if convert is None:
                raise ImageError(
                    "unknown_column", f"{side}.{name}", "a column of the schema", shorten(name)
                )
            shown[name] = convert(value)
        return shown

    def _converters_of(self, schema: TableSchema, zone: str) -> _Converters:
        # By identity: the value keeps the schema alive, and hashing one costs more than a row.
        known = (id(schema), zone)
        found = self._converters.get(known)
        if found is None:
            found = (schema, {column.name: canonical_of(column, zone) for column in schema.columns})
            self._converters[known] = found
        return found[1]


def _lacks_labels(schema: TableSchema, row: RowChange) -> bool:
    """Whether a column that was sent has labels that no DDL has told yet."""
    return row.schema_version is None and any(
        not column.elements
        and kind_of(column) in (Kind.ENUM, Kind.SET)
        and (column.name in (row.after or {}) or column.name in (row.before or {}))
        for column in schema.columns
    )


def _zone_of(image: Image) -> str:
    """Return the zone that an image's TIMESTAMPs were sent in; without one they are as they are."""
    for value in image.values():
        if isinstance(value, ZonedTimestamp) and find_zone(value.location) is not None:
            return value.location
    return "UTC"


def _sent(image: Image | None) -> dict[str, Any] | None:
    if image is None:
        return None
    return {
        name: {"location": value.location, "value": value.value}
        if isinstance(value, ZonedTimestamp)
        else value
        for name, value in image.items()
    }
