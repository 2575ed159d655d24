"""What each format makes of an event: the same change, as TiCDC would hand it to its encoder.

In: events as the upstream knows them, with schemas and versions, as the Simple protocol sends them.
Out: the event as a format can carry it, or None where it has no such message. The formats besides
Simple know no schema versions, bootstraps and zones of timestamps, but say of each column what it
is; Canal-JSON without the TiDB extension knows no commit ts and no watermark.

A dialect keeps the shapes of schemas it has seen and nothing else, so asking again gives the same.

Not handled: TiDB's row ids (Open Protocol) and `old` repeating `data` in older TiCDC's deletes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from ticdc_assets.events import (
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
from ticdc_assets.registry.row_shapes import canal_shape_of, shape_of
from ticdc_assets.schemas import RowShape, TableSchema
from ticdc_assets.tso import from_physical_ms, physical_ms
from ticdc_assets.values.checksums import row_checksum
from ticdc_assets.wire import WireFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class DialectOptions:
    """Options of TiCDC that change what a message holds; a format without an option ignores it.

    Attributes:
        tidb_extension: Canal-JSON: send commit ts and watermarks.
        content_compatible: Canal-JSON: spell types in full, and send only updated columns.
        only_updated_columns: leave columns that did not change out of `before` (not Simple, Craft).
        delete_only_handle_key: reduce the image of a DELETE to the handle key (not Simple).
        checksums: Simple: send row checksums (`integrity-check-level = "correctness"`).
    """

    tidb_extension: bool = True
    content_compatible: bool = False
    only_updated_columns: bool = False
    delete_only_handle_key: bool = False
    checksums: bool = False


_CHECKSUM_VERSION: Final = 2
"""What TiDB has written since 8.1."""

_WITH_UPDATED_COLUMNS: Final = frozenset({WireFormat.OPEN_PROTOCOL, WireFormat.CANAL_JSON})
_WITH_CHECKSUMS: Final = frozenset({WireFormat.SIMPLE_JSON, WireFormat.SIMPLE_AVRO})
_WITH_PARTITIONS: Final = frozenset({WireFormat.OPEN_PROTOCOL, WireFormat.CRAFT})
_WITHOUT_SCHEMA: Final = frozenset(
    {WireFormat.OPEN_PROTOCOL, WireFormat.CANAL_JSON, WireFormat.CRAFT}
)


class Dialect:
    """How one changefeed writes.

    Args:
        wire_format: its format.
        options: its options.
        timezone: its time zone.
    """

    def __init__(
        self,
        wire_format: WireFormat,
        options: DialectOptions | None = None,
        *,
        timezone: str = "UTC",
    ) -> None:
        self._format = wire_format
        self._options = options or DialectOptions()
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
        """Whether messages tell their commit ts."""
        return not self._es_only

    def row(self, row: RowChange, schema: TableSchema, *, is_split: bool = False) -> RowChange:
        """Return a row change of a table with `schema` as the format has it.

        Args:
            row: the row change.
            schema: the table's schema.
            is_split: whether it is one half of an update.
        """
        if self._format in _WITH_CHECKSUMS and self._options.checksums:
            row = replace(row, checksum=self._checksum(row, schema, is_split=is_split))
        if self._format is WireFormat.SIMPLE_JSON:
            return row
        row = replace(row, shape=self._shape(schema))
        if self._format is WireFormat.SIMPLE_AVRO:
            return row
        before, after = _without_zones(row.before), _without_zones(row.after)
        options = self._options
        key = schema.handle_key
        if options.delete_only_handle_key and row.op is Op.DELETE and before is not None and key:
            before = {name: before[name] for name in key}
        only_updated = options.only_updated_columns or options.content_compatible
        if only_updated and self._format in _WITH_UPDATED_COLUMNS and before and after:
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

    def _partition(self, row: RowChange, schema: TableSchema) -> int | None:
        """Return the physical partition's id, for tables that are divided, where it is sent."""
        divided = row.table_id != schema.table_id
        return row.table_id if divided and self._format in _WITH_PARTITIONS else None

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

    def _checksum(self, row: RowChange, schema: TableSchema, *, is_split: bool) -> Checksum:
        def of(image: Image | None) -> int:
            # The halves of a split update share one checksum, and each of them zeroes its side.
            if image is None or is_split:
                return 0
            checksum = row_checksum(schema, image, self._timezone)
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
