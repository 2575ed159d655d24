"""What each format makes of an event: the same change, as the old TiCDC sends it.

In: events as the upstream knows them, with schemas and versions, as the Simple protocol sends them.
Out: the event as a format can carry it, or None where it has no such message. The formats besides
Simple know no schema versions, bootstraps and zones of timestamps, but say of each column what it
is; Canal-JSON without the TiDB extension knows no commit ts and no watermark.

`ticdc_forms` has what the new TiCDC does otherwise. A form keeps the shapes of schemas it has seen
and nothing else, so asking again gives the same.

Not handled: TiDB's row ids (Open Protocol) and `old` repeating `data` in older TiCDC's deletes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from ticdc_assets.demo.simulator.commits import CommittedDdl
from ticdc_assets.demo.simulator.dialects import MessageOptions
from ticdc_assets.demo.simulator.encoders import encode, open_protocol
from ticdc_assets.demo.simulator.shapes import canal_shape_of, shape_of
from ticdc_assets.demo.simulator.stored_table import in_table_order
from ticdc_assets.demo.simulator.transaction import CommittedRow
from ticdc_assets.model.events import (
    Bootstrap,
    Checksum,
    DdlEvent,
    Event,
    Image,
    Op,
    RowChange,
    Watermark,
    ZonedTimestamp,
)
from ticdc_assets.model.schemas import RowShape, TableSchema
from ticdc_assets.model.tso import from_physical_ms, physical_ms
from ticdc_assets.model.values.checksums import row_checksum
from ticdc_assets.wire import WireFormat
from ticdc_assets.wire.record import Record

TableOrder: TypeAlias = Callable[[TableSchema], tuple[str, ...]]
"""Gives the names of a table's columns in the order of the table."""

_CHECKSUM_VERSION: Final = 2
"""What TiDB has written since 8.1."""

_WITH_UPDATED_COLUMNS: Final = frozenset({WireFormat.OPEN_PROTOCOL, WireFormat.CANAL_JSON})
_WITH_CHECKSUMS: Final = frozenset({WireFormat.SIMPLE_JSON, WireFormat.SIMPLE_AVRO})
_WITH_PARTITIONS: Final = frozenset({WireFormat.OPEN_PROTOCOL, WireFormat.CRAFT})
_WITHOUT_SCHEMA: Final = frozenset(
    {WireFormat.OPEN_PROTOCOL, WireFormat.CANAL_JSON, WireFormat.CRAFT}
)


class MessageForm:
    """How one changefeed of the old TiCDC writes.

    Args:
        wire_format: its format.
        options: its options.
        table_order: the order of the columns of a table, which its schema does not have.
        timezone: its time zone.
    """

    def __init__(
        self,
        wire_format: WireFormat,
        options: MessageOptions,
        *,
        table_order: TableOrder,
        timezone: str = "UTC",
    ) -> None:
        self._format = wire_format
        self._options = options
        self._table_order = table_order
        self._timezone = timezone
        self._shapes: dict[tuple[int, int, str, str], RowShape] = {}
        self._event: Mapping[type[Event], Callable[[Event], Event | None]] = {
            DdlEvent: self._ddl,
            Bootstrap: self._bootstrap,
            Watermark: self._watermark,
        }

    @property
    def has_bootstraps(self) -> bool:
        """Whether the format has bootstraps."""
        return self._format not in _WITHOUT_SCHEMA

    @property
    def ddl_everywhere(self) -> bool:
        """Whether a DDL goes to all partitions, not only to the first."""
        return self._format is not WireFormat.CANAL_JSON

    @property
    def has_commit_ts(self) -> bool:
        """Whether messages have their commit ts."""
        return not self._es_only

    def schema(self, row: CommittedRow) -> TableSchema:
        """Return the schema of a row's table as messages have it."""
        return self._in_order(row.schema) if self._format is WireFormat.CANAL_JSON else row.schema

    def _in_order(self, schema: TableSchema) -> TableSchema:
        return in_table_order(schema, self._table_order(schema))

    def bootstrap_id(self, row: CommittedRow) -> int:
        """Return the id under which a BOOTSTRAP is counted for the table of a row."""
        return row.physical_id

    def is_undescribed(self, schema: TableSchema) -> bool:
        """Tell whether rows cite a version of their table that no DDL of it has."""
        del schema
        return False

    def sent_order(self, rows: Iterable[CommittedRow]) -> Iterable[CommittedRow]:
        """Return the rows of a transaction in the order in which they are sent."""
        return rows

    def group(self, row: CommittedRow, dispatch_key: str) -> str:
        """Return what the rows share that stay in order between two watermarks.

        Args:
            row: one of them.
            dispatch_key: what decides over its partition.
        """
        del row
        return dispatch_key

    def follow(self, ddl: CommittedDdl) -> None:
        """Keep in mind what a DDL changes in later messages."""

    def restart(self) -> None:
        """Forget what a process of TiCDC keeps in memory."""

    def start_events(self, schemas: Iterable[TableSchema]) -> Sequence[DdlEvent | Bootstrap]:
        """Return what is sent at a start, whose tables have `schemas`."""
        del schemas
        return ()

    def row(self, row: RowChange, committed: CommittedRow, schema: TableSchema) -> RowChange:
        """Return a row change as the format has it.

        Args:
            row: the row change.
            committed: what was committed.
            schema: the table's schema, as `schema` returned it.
        """
        if self._format in _WITH_CHECKSUMS and self._options.checksums:
            row = replace(row, checksum=self._checksum(row, committed))
        if self._format is WireFormat.SIMPLE_JSON:
            return row
        row = replace(row, shape=self._shape(schema))
        if self._format is WireFormat.SIMPLE_AVRO:
            return row
        before, after = _without_zones(row.before), _without_zones(row.after)
        options = self._options
        key = schema.handle_key
        if options.delete_only_handle_key and row.op is Op.DELETE and before is not None and key:
            before = {name: value for name, value in before.items() if name in key}
        if self._only_updated and before and after:
            before = {name: value for name, value in before.items() if after[name] != value}
        return replace(
            row,
            table_id=self._partition(row, schema),
            schema_version=None,
            before=before,
            after=after,
            build_ts_ms=row.build_ts_ms if self._format is WireFormat.CANAL_JSON else None,
            commit_ts=self._sent_ts(row.commit_ts),
            es_only=self._es_only,
        )

    @property
    def _only_updated(self) -> bool:
        options = self._options
        wanted = options.only_updated_columns or options.content_compatible
        return wanted and self._format in _WITH_UPDATED_COLUMNS

    def encode(
        self,
        events: Sequence[Event],
        *,
        max_message_bytes: int = open_protocol.DEFAULT_MESSAGE_BYTES,
    ) -> Sequence[Record]:
        """Return the records of events that one message may hold together.

        Args:
            events: the events, as `row`, `event` and `ddl` returned them.
            max_message_bytes: Open Protocol: size that a record with several rows has at most.
        """
        if self._format is WireFormat.OPEN_PROTOCOL:
            return open_protocol.encode(events, max_message_bytes=max_message_bytes)
        return encode(self._format, events)

    def _partition(self, row: RowChange, schema: TableSchema) -> int | None:
        """Return the physical partition's id, for tables that are divided, where it is sent."""
        divided = row.table_id != schema.table_id
        return row.table_id if divided and self._format in _WITH_PARTITIONS else None

    def ddl_events(self, ddl: CommittedDdl) -> Sequence[DdlEvent]:
        """Return the events of a DDL as they are in this dialect, for `event`."""
        return ddl.events

    def event(self, event: DdlEvent | Bootstrap | Watermark) -> Event | None:
        """Return an event that is no row change as the format has it, None if it has none."""
        return self._event[type(event)](event)

    def _ddl(self, event: Event) -> Event:
        assert isinstance(event, DdlEvent)
        if self._format not in _WITHOUT_SCHEMA:
            return replace(event, action_code=None)
        canal = self._format is WireFormat.CANAL_JSON
        return replace(
            event,
            schema=None,
            pre_schema=None,
            action_code=None if canal else event.action_code,
            build_ts_ms=event.build_ts_ms if canal else None,
            commit_ts=self._sent_ts(event.commit_ts),
            es_only=self._es_only,
        )

    def _bootstrap(self, event: Event) -> Event | None:
        return event if self.has_bootstraps else None

    def _watermark(self, event: Event) -> Event | None:
        assert isinstance(event, Watermark)
        if self._format not in _WITHOUT_SCHEMA:
            return event
        if self._format is not WireFormat.CANAL_JSON:
            return replace(event, build_ts_ms=None)
        return None if self._es_only else event

    @property
    def _es_only(self) -> bool:
        return self._format is WireFormat.CANAL_JSON and not self._options.tidb_extension

    def _sent_ts(self, commit_ts: int) -> int:
        return from_physical_ms(physical_ms(commit_ts)) if self._es_only else commit_ts

    def _checksum(self, row: RowChange, committed: CommittedRow) -> Checksum:
        def of(image: Image | None) -> int:
            # The halves of a split update share one checksum, and each of them zeroes its side.
            if image is None or committed.is_split:
                return 0
            # It is over the columns by their ids, whatever the order of the schema that is sent.
            checksum = row_checksum(committed.schema, image, self._timezone)
            if checksum is None:
                raise ValueError(f"no checksum of a row of {row.database}.{row.table}")
            return checksum

        return Checksum(
            version=_CHECKSUM_VERSION,
            corrupted=False,
            current=of(row.after),
            previous=of(row.before),
        )

    def _shape(self, schema: TableSchema) -> RowShape:
        known = (schema.table_id, schema.version, schema.database, schema.table)
        shape = self._shapes.get(known)
        if shape is None:
            if self._format is WireFormat.CANAL_JSON:
                shape = canal_shape_of(schema, full_types=self._options.content_compatible)
            else:
                shape = shape_of(schema)
            self._shapes[known] = shape
        return shape


def _without_zones(image: Image | None) -> Image | None:
    if image is None:
        return None
    return {
        name: value.value if isinstance(value, ZonedTimestamp) else value
        for name, value in image.items()
    }
