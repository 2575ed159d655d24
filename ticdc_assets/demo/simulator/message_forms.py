"""What each format makes of an event: the same change, as the old and the new TiCDC send it.

In: events as the upstream knows them, with schemas and versions, as the Simple protocol sends them.
Out: the events that a format and dialect can carry, None where it has no such message. The formats
besides Simple know no schema versions, bootstraps and zones of timestamps, but say of each column
what it is; Canal-JSON without the TiDB extension knows no commit ts and no watermark. The new TiCDC
(pingcap/ticdc), what changefeeds have since v8.5.4 with the new architecture, differs from the old
one (pingcap/tiflow):

    - The text of a DDL is what TiDB's parser writes, not what was typed; RENAME, DROP and EXCHANGE
      PARTITION are written with full names, RENAMEs of one statement end in `;`.
    - Simple: only EXCHANGE PARTITION has `preTableSchema`. A table that is renamed twice in one
      statement has no id (-1) in between. Columns are in the order of the table.
    - EXCHANGE PARTITION is about the normal table in Canal-JSON and Open Protocol; in Simple it is
      an ALTER, of the partitioned table under the normal one's database. Later rows of the normal
      table cite the version of the partitioned one, until a DDL of their own table.
    - BOOTSTRAPs are counted by logical table.
    - Rows of one table are in commit order between two watermarks, but in Open Protocol, where only
      those of one key are. Of a table's rows in one transaction the inserts of split updates are
      last.

Which tables were exchanged follows from the history, so `follow` over all of it gives the same.

Source: pingcap/ticdc at b813e76f9: logservice/schemastore/persist_storage_ddl_handlers.go,
pkg/common/event/ddl_event.go, pkg/eventservice/event_scanner.go, pkg/sink/codec.

Not handled: TiDB's row ids (Open Protocol), row keys (Canal-JSON), checksums (Simple), bootstraps
of all tables at a start, `old` repeating `data` in older TiCDC's deletes, and names with a
backquote in RENAME, DROP and EXCHANGE, which the new TiCDC does not escape.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeAlias

from ticdc_assets.base.errors import ConfigError
from ticdc_assets.demo.simulator.alterations import ActionCode
from ticdc_assets.demo.simulator.columns import as_typed, path_sql
from ticdc_assets.demo.simulator.shapes import canal_shape_of, shape_of
from ticdc_assets.demo.simulator.stored_table import in_table_order
from ticdc_assets.demo.simulator.upstream import CommittedDdl, CommittedRow
from ticdc_assets.model.events import (
    Bootstrap,
    DdlEvent,
    Event,
    Image,
    Op,
    RowChange,
    Watermark,
    ZonedTimestamp,
)
from ticdc_assets.model.schemas import NO_TABLE_ID, RowShape, TableSchema
from ticdc_assets.model.tso import from_physical_ms, physical_ms
from ticdc_assets.wire import WireFormat

TableOrder: TypeAlias = Callable[[TableSchema], tuple[str, ...]]
"""Gives the names of a table's columns in the order of the table."""

_WRITTEN_BY_TICDC: Final = frozenset(
    {ActionCode.DROP_TABLE, ActionCode.DROP_VIEW, ActionCode.RENAME_TABLE}
)
"""Statements whose text is TiCDC's in both dialects."""

_WITH_UPDATED_COLUMNS: Final = frozenset({WireFormat.OPEN_PROTOCOL, WireFormat.CANAL_JSON})
_WITH_PARTITIONS: Final = frozenset({WireFormat.OPEN_PROTOCOL, WireFormat.CRAFT})


class Dialect(StrEnum):
    """Which TiCDC writes."""

    TIFLOW = "tiflow"
    TICDC = "ticdc"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageOptions:
    """Options of TiCDC that change what a message holds; a format without an option ignores it.

    Attributes:
        dialect: which TiCDC writes; None for the new one where it has the format.
        tidb_extension: Canal-JSON: send commit ts and watermarks.
        content_compatible: Canal-JSON: spell types in full, and send only updated columns.
        only_updated_columns: leave columns that did not change out of `before` (not Simple, Craft).
        delete_only_handle_key: reduce the image of a DELETE to the handle key (not Simple).
        batched_creates: new dialect: send CREATE TABLE as that of a batch (fast create table).
    """

    dialect: Dialect | None = None
    tidb_extension: bool = True
    content_compatible: bool = False
    only_updated_columns: bool = False
    delete_only_handle_key: bool = False
    batched_creates: bool = False


def dialect_of(wire_format: WireFormat, wanted: Dialect | None) -> Dialect:
    """Return the dialect to write a format in: the one wanted, or the newest that has it.

    Raises:
        ConfigError: the one wanted does not have the format.
    """
    if wire_format is WireFormat.CRAFT:
        if wanted is Dialect.TICDC:
            raise ConfigError(
                "Craft is not a format of the dialect ticdc: choose the dialect tiflow, or "
                "another format"
            )
        return Dialect.TIFLOW
    return wanted or Dialect.TICDC


class MessageForm:
    """How one changefeed writes; `table_order` knows what a schema does not say.

    Attributes:
        is_new: whether the new TiCDC writes.
        has_bootstraps: whether the format has bootstraps.
        ddl_everywhere: whether a DDL goes to all partitions, not only to the first.

    Raises:
        ConfigError: the dialect does not have the format.
    """

    def __init__(
        self, wire_format: WireFormat, options: MessageOptions, *, table_order: TableOrder
    ) -> None:
        self._format = wire_format
        self._options = options
        self._table_order = table_order
        self.is_new = dialect_of(wire_format, options.dialect) is Dialect.TICDC
        is_canal = wire_format is WireFormat.CANAL_JSON
        self.has_bootstraps = wire_format in (WireFormat.SIMPLE_JSON, WireFormat.SIMPLE_AVRO)
        self.ddl_everywhere = not is_canal
        self._es_only = is_canal and not options.tidb_extension
        self._shapes: dict[tuple[int, int, str, str], RowShape] = {}
        self._schemas: dict[tuple[int, int, int | None, str, str], TableSchema] = {}
        # The versions that rows of tables cite that were exchanged with a partition, by table id.
        self._exchanged: dict[int, int] = {}

    def schema(self, row: CommittedRow) -> TableSchema:
        """Return the schema of a row's table as messages have it."""
        schema = row.schema
        version = self._exchanged.get(schema.table_id)
        key = (schema.table_id, schema.version, version, schema.database, schema.table)
        if key not in self._schemas:
            self._schemas[key] = self._cited(self._in_order(schema))
        return self._schemas[key]

    def _in_order(self, schema: TableSchema) -> TableSchema:
        if self.is_new or self._format is WireFormat.CANAL_JSON:
            return in_table_order(schema, self._table_order(schema))
        return schema

    def _cited(self, schema: TableSchema) -> TableSchema:
        """Return a schema with the version that rows of its table cite."""
        return replace(schema, version=self._exchanged.get(schema.table_id, schema.version))

    def bootstrap_id(self, row: CommittedRow) -> int:
        """Return the id under which a BOOTSTRAP is counted for the table of a row."""
        return row.schema.table_id if self.is_new else row.physical_id

    def is_undescribed(self, schema: TableSchema) -> bool:
        """Return whether rows cite a version of their table that no DDL of it has."""
        return schema.table_id in self._exchanged

    # Order

    def sent_order(self, rows: Iterable[CommittedRow]) -> Iterable[CommittedRow]:
        """Return the rows of a transaction in the order in which they are sent."""
        if not self.is_new:
            return rows
        tables: dict[int, list[CommittedRow]] = {}
        for row in rows:
            tables.setdefault(row.physical_id, []).append(row)
        return (
            row
            for of_table in tables.values()
            for row in sorted(of_table, key=lambda row: row.is_split and row.op is Op.INSERT)
        )

    def group(self, row: CommittedRow, dispatch_key: str) -> str:
        """Return what the rows share that stay in order between two watermarks."""
        if self.is_new and self._format is not WireFormat.OPEN_PROTOCOL:
            return str(row.physical_id)
        return dispatch_key

    def restart(self) -> None:
        """Forget what a process of TiCDC keeps in memory."""
        self._exchanged.clear()

    # DDL, bootstraps and watermarks

    def ddl_events(self, ddl: CommittedDdl) -> Sequence[DdlEvent]:
        """Return the events of a DDL as they are in this dialect, for `event`."""
        if not self.is_new:
            return [
                event
                if event.action_code in _WRITTEN_BY_TICDC
                else replace(event, sql=as_typed(event.sql))
                for event in ddl.events
            ]
        return [self._ddl_event(ddl, number) for number in range(len(ddl.events))]

    def _ddl_event(self, ddl: CommittedDdl, number: int) -> DdlEvent:
        event = ddl.events[number]
        schema, before = event.schema, event.pre_schema
        ordered = None if schema is None else self._in_order(schema)
        event = replace(event, schema=ordered, pre_schema=None)
        if ordered is None or schema is None or before is None:
            code = ActionCode.CREATE_TABLES
            if event.action_code == ActionCode.CREATE_TABLE and self._options.batched_creates:
                return replace(event, ddl_type=code.word, action_code=code)
            return event
        if event.action_code == ActionCode.EXCHANGE_PARTITION:
            return replace(
                event,
                ddl_type="ALTER" if self.has_bootstraps else "QUERY",
                database=before.database,
                table=before.table,
                schema=replace(ordered, database=before.database),
                pre_schema=self._in_order(self._cited(before)),
            )
        if event.action_code != ActionCode.RENAME_TABLE:
            return event
        old, new = (path_sql((item.database, item.table)) for item in (before, schema))
        end = ";" if len(ddl.events) > 1 else ""
        is_passing = any(
            later.pre_schema is not None and later.pre_schema.table_id == schema.table_id
            for later in ddl.events[number + 1 :]
        )
        return replace(
            event,
            sql=f"RENAME TABLE {old} TO {new}{end}",
            schema=replace(ordered, table_id=NO_TABLE_ID) if is_passing else ordered,
        )

    def follow(self, ddl: CommittedDdl) -> None:
        """Record what a DDL changes in later messages."""
        if not self.is_new:
            return
        for event in ddl.events:
            for schema in (event.schema, event.pre_schema):
                if schema is not None:
                    self._exchanged.pop(schema.table_id, None)
            if ddl.exchanged is not None and event.schema is not None:
                self._exchanged[ddl.exchanged] = event.schema.version

    def event(self, event: DdlEvent | Bootstrap | Watermark) -> Event | None:
        """Return an event that is no row change as the format has it, None if it has none."""
        canal = self._format is WireFormat.CANAL_JSON
        match event:
            case Bootstrap():
                return event if self.has_bootstraps else None
            case Watermark():
                if self._es_only:
                    return None
                return event if self.has_bootstraps or canal else replace(event, build_ts_ms=None)
            case DdlEvent() if self.has_bootstraps:
                return replace(event, action_code=None)
            case DdlEvent():
                return replace(
                    event,
                    schema=None,
                    pre_schema=None,
                    action_code=None if canal else event.action_code,
                    build_ts_ms=event.build_ts_ms if canal else None,
                    commit_ts=self._sent_ts(event.commit_ts),
                    es_only=self._es_only,
                )

    def _sent_ts(self, commit_ts: int) -> int:
        return from_physical_ms(physical_ms(commit_ts)) if self._es_only else commit_ts

    # Rows

    def row(self, row: RowChange, schema: TableSchema) -> RowChange:
        """Return a row change as the format has it; `schema` is what `schema` returned."""
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
        only_updated = options.only_updated_columns or options.content_compatible
        if only_updated and self._format in _WITH_UPDATED_COLUMNS and before and after:
            before = {name: value for name, value in before.items() if after[name] != value}
        is_partition = row.table_id != schema.table_id
        return replace(
            row,
            table_id=row.table_id if is_partition and self._format in _WITH_PARTITIONS else None,
            schema_version=None,
            before=before,
            after=after,
            build_ts_ms=row.build_ts_ms if self._format is WireFormat.CANAL_JSON else None,
            commit_ts=self._sent_ts(row.commit_ts),
            es_only=self._es_only,
        )

    def _shape(self, schema: TableSchema) -> RowShape:
        key = (schema.table_id, schema.version, schema.database, schema.table)
        if key not in self._shapes:
            self._shapes[key] = (
                canal_shape_of(schema, full_types=self._options.content_compatible)
                if self._format is WireFormat.CANAL_JSON
                else shape_of(schema)
            )
        return self._shapes[key]


def _without_zones(image: Image | None) -> Image | None:
    if image is None:
        return None
    return {
        name: value.value if isinstance(value, ZonedTimestamp) else value
        for name, value in image.items()
    }
