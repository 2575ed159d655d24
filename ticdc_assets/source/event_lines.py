"""The events of a capture as JSON lines, for people who look into a topic.

In: the records of a capture, in order. Out: for each event one object, and for each record without
one an object of type `error`, so that every offset has a line. Values are canonical text, by the
schemas that came before the record. A row whose schema has not come yet is `held`, with its values
as sent. So is a row in a format without schemas if no DDL has defined its ENUM or SET labels yet,
or if its columns contradict the known schema: then the DDL in between is missing.

    every line  topic, partition, offset, index (in the record), type
    row         op, database, table, commit_ts, schema_version (null where rows cite none),
                before, after: null, or column name to canonical text; and only where they hold:
                es_only, handle_key_only, held: true; claim_check_location: of a row that was cut
                and not completed
    ddl         ddl_type, database, table, commit_ts, schema_version (null where none was sent),
                sql; es_only: true where it holds
    bootstrap   database, table, commit_ts: null, schema_version; all null without content
    watermark   commit_ts: the watermark
    error       reason, position, expected, got; and for a row whose values do not fit its schema,
                or that the claim checks lack, also the first fields of a row's line

Only schemas and DDL stay in memory, so a capture of any size streams through. The lines depend on
the records alone: printing again prints the same.

Not handled: rows are not printed again when their schema comes; `sync` applies them then.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, assert_never

from ticdc_assets.base.errors import InputError
from ticdc_assets.changelog.resolve import SchemaReader
from ticdc_assets.model.events import (
    Bootstrap,
    DdlEvent,
    Event,
    Image,
    RowChange,
    Watermark,
    ZonedTimestamp,
)
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.model.values.zones import find_zone
from ticdc_assets.registry.catalog import GrowingCatalog
from ticdc_assets.registry.history import Coordinates, SchemaHistory
from ticdc_assets.registry.inference.columns import LABELLED_TYPES
from ticdc_assets.registry.inference.row_shapes import schema_of_shape
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.source.claim_check import ClaimCheckStore, whole_row
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets.wire.compression import Compression
from ticdc_assets.wire.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureFormat:
    """How the records of a capture are written.

    Attributes:
        wire_format: the format.
        compression: how values were compressed.
        timezone: zone in which TIMESTAMPs are shown; None shows them as sent.
        store: where claim checks are; None shows rows as the messages have them.
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
        place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
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


_Images: TypeAlias = dict[str, dict[str, str | None] | None]
"""The canonical values of a row: by side, by column."""

_MOST_SCHEMAS: Final = 4096
"""How many schemas' readers are cached."""


class _Printer:
    def __init__(self, capture_format: CaptureFormat) -> None:
        self._format = capture_format
        self._sent = SchemaHistory()
        self._inferred = GrowingCatalog(capture_format.timezone or "UTC")
        # By identity of the schema, which its reader keeps: hashing one costs more than a row.
        self._readers: dict[tuple[int, str], SchemaReader] = {}

    def line(self, event: Event, coordinates: Coordinates) -> dict[str, Any]:
        match event:
            case RowChange():
                return self._row(event)
            case DdlEvent(schema=schema):
                is_sent = schema is not None or event.pre_schema is not None
                (self._sent if is_sent else self._inferred).add_ddl(event, coordinates)
                return {
                    "type": "ddl",
                    "ddl_type": event.ddl_type,
                    "database": event.database,
                    "table": event.table,
                    "commit_ts": event.commit_ts,
                    "schema_version": schema and schema.version,
                    "sql": event.sql,
                } | ({"es_only": True} if event.es_only else {})
            case Bootstrap(schema=schema):
                if schema is not None:
                    self._sent.add_bootstrap(schema, coordinates)
                return {
                    "type": "bootstrap",
                    "database": schema and schema.database,
                    "table": schema and schema.table,
                    "commit_ts": None,
                    "schema_version": schema and schema.version,
                }
            case Watermark():
                return {"type": "watermark", "commit_ts": event.watermark_ts}
            case _:
                assert_never(event)

    def _row(self, row: RowChange) -> dict[str, Any]:
        location, store = row.claim_check_location, self._format.store
        if location is not None and store is not None:
            try:
                row = whole_row(store, location, (row.commit_ts, row.database, row.table))
            except InputError as error:
                return {**_head(row), **_error(error)}
        head = _head(row)
        schema = self._schema_of(row)
        if schema is not None:
            try:
                return {**head, **self._canonical(schema, row)}
            except InputError as error:
                if not self._reads_by_itself(row):
                    return {**head, **_error(error)}
        return {**head, "held": True, "before": _sent(row.before), "after": _sent(row.after)}

    def _schema_of(self, row: RowChange) -> TableSchema | None:
        """Return the schema of a row; None if it or the label of a sent value is not known yet."""
        if row.schema_version is not None:
            return self._sent.at(row.database, row.table, row.schema_version)
        if row.shape is None:
            return None
        schema = self._inferred.schema_of(
            row.database, row.table, shape=row.shape, commit_ts=row.commit_ts
        )
        lacks_labels = any(
            image is not None and image.get(column.name) is not None
            for column in schema.columns
            if column.mysql_type in LABELLED_TYPES and not column.elements
            for image in (row.before, row.after)
        )
        return None if lacks_labels else schema

    def _reads_by_itself(self, row: RowChange) -> bool:
        """Whether the row's own types explain the values, so that the schema does not match."""
        if row.shape is None:
            return False
        schema = schema_of_shape(
            row.shape, database=row.database, table=row.table, table_id=0, version=0
        )
        try:
            self._canonical(schema, row)
        except InputError:
            return False
        return True

    def _canonical(self, schema: TableSchema, row: RowChange) -> _Images:
        shown: _Images = {"before": None, "after": None}
        for side, image in (("before", row.before), ("after", row.after)):
            if image is not None:
                zone = self._format.timezone or _zone_of(image)
                key = (id(schema), zone)
                if key not in self._readers:
                    if len(self._readers) >= _MOST_SCHEMAS:
                        self._readers.clear()
                    self._readers[key] = SchemaReader(schema, zone)
                shown[side], _ = self._readers[key].read(image, side, row.shape)
        return shown


def _head(row: RowChange) -> dict[str, Any]:
    """Return the first fields of a row's line."""
    line: dict[str, Any] = {
        "type": "row",
        "op": str(row.op),
        "database": row.database,
        "table": row.table,
        "commit_ts": row.commit_ts,
        "schema_version": row.schema_version,
    }
    optional = ("es_only", "handle_key_only", "claim_check_location")
    values = {name: getattr(row, name) for name in optional}
    return line | {name: value for name, value in values.items() if value not in (None, False)}


def _zone_of(image: Image) -> str:
    """Return the zone of an image's TIMESTAMPs; without one they are shown as sent."""
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
