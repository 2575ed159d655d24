"""What each format makes of an event: the same change, as the old and the new TiCDC send it.

In: what the upstream committed. Out: events for the encoder of a format, with all that the upstream
knows; an encoder leaves out what its format has no place for. The formats besides Simple have no
bootstraps, and Canal-JSON without the TiDB extension has no watermarks. The new TiCDC
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

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from ticdc_assets.base.errors import ConfigError
from ticdc_assets.demo.simulator.alterations import ActionCode
from ticdc_assets.demo.simulator.columns import as_typed, path_sql
from ticdc_assets.demo.simulator.shapes import canal_shape_of, shape_of
from ticdc_assets.demo.simulator.stored_table import Row, in_table_order
from ticdc_assets.demo.simulator.upstream import CommittedDdl, CommittedRow, Upstream
from ticdc_assets.model.events import DdlEvent, Op, PhysicalValue, RowChange
from ticdc_assets.model.schemas import NO_TABLE_ID, RowShape, TableSchema
from ticdc_assets.model.values import physical_of
from ticdc_assets.wire import WireFormat

_WRITTEN_BY_TICDC: Final = frozenset(
    {ActionCode.DROP_TABLE, ActionCode.DROP_VIEW, ActionCode.RENAME_TABLE}
)
"""Statements whose text is TiCDC's in both dialects."""


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


@dataclass(frozen=True, slots=True)
class SentTable:
    """A table as messages have it: its schema, the shape of its rows, and how values are sent."""

    schema: TableSchema
    shape: RowShape
    values: Mapping[str, Callable[[str | None], PhysicalValue]]

    def image(self, row: Row | None) -> dict[str, PhysicalValue] | None:
        """Return a row as it is sent."""
        if row is None:
            return None
        return {name: convert(row[name]) for name, convert in self.values.items()}


class MessageForm:
    """How one changefeed writes what `upstream` committed.

    Attributes:
        is_new: whether the new TiCDC writes.
        has_bootstraps: whether the format has bootstraps, which only Simple has.
        has_watermarks: whether it has watermarks.
        ddl_everywhere: whether a DDL goes to all partitions, not only to the first.

    Raises:
        ConfigError: the dialect does not have the format.
    """

    def __init__(
        self, wire_format: WireFormat, options: MessageOptions, upstream: Upstream
    ) -> None:
        self._format = wire_format
        self._options = options
        self._upstream = upstream
        self.is_new = dialect_of(wire_format, options.dialect) is Dialect.TICDC
        is_canal = wire_format is WireFormat.CANAL_JSON
        self.has_bootstraps = wire_format in (WireFormat.SIMPLE_JSON, WireFormat.SIMPLE_AVRO)
        self.has_watermarks = options.tidb_extension or not is_canal
        self.ddl_everywhere = not is_canal
        self._tables: dict[tuple[int, int, int | None, str, str], SentTable] = {}
        # The versions that rows of tables cite that were exchanged with a partition, by table id.
        self._exchanged: dict[int, int] = {}

    def table(self, schema: TableSchema) -> SentTable:
        """Return the table of rows of a schema as messages have it."""
        version = self._exchanged.get(schema.table_id)
        key = (schema.table_id, schema.version, version, schema.database, schema.table)
        if key not in self._tables:
            sent = self._cited(self._in_order(schema))
            self._tables[key] = SentTable(
                schema=sent,
                shape=canal_shape_of(sent, full_types=self._options.content_compatible)
                if self._format is WireFormat.CANAL_JSON
                else shape_of(sent),
                values={
                    column.name: physical_of(column, self._upstream.timezone)
                    for column in sent.columns
                },
            )
        return self._tables[key]

    def _in_order(self, schema: TableSchema) -> TableSchema:
        if self.is_new or self._format is WireFormat.CANAL_JSON:
            return in_table_order(schema, self._upstream.table_order(schema))
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

    # DDL

    def ddl_events(self, ddl: CommittedDdl, *, build_ts_ms: int) -> list[DdlEvent]:
        """Return the events of a DDL as they are sent."""
        return [
            replace(
                self._ddl_event(ddl, number),
                build_ts_ms=build_ts_ms,
                es_only=not self.has_watermarks,
            )
            for number in range(len(ddl.events))
        ]

    def _ddl_event(self, ddl: CommittedDdl, number: int) -> DdlEvent:
        event = ddl.events[number]
        if not self.is_new:
            is_typed = event.action_code not in _WRITTEN_BY_TICDC
            return replace(event, sql=as_typed(event.sql)) if is_typed else event
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

    # Rows

    def row(self, row: CommittedRow, *, commit_ts: int, build_ts_ms: int) -> RowChange:
        """Return the event of a row change, its images cut as the options say."""
        table = self.table(row.schema)
        schema, options = table.schema, self._options
        before, after = table.image(row.before), table.image(row.after)
        table_id: int | None = row.physical_id
        if not self.has_bootstraps:
            # Only the ids of partitions are sent.
            table_id = table_id if table_id != schema.table_id else None
            key = schema.handle_key
            if options.delete_only_handle_key and row.op is Op.DELETE and before and key:
                before = {name: value for name, value in before.items() if name in key}
            only_updated = options.only_updated_columns or options.content_compatible
            if only_updated and self._format is not WireFormat.CRAFT and before and after:
                before = {name: value for name, value in before.items() if after[name] != value}
        return RowChange(
            op=row.op,
            commit_ts=commit_ts,
            build_ts_ms=build_ts_ms,
            database=schema.database,
            table=schema.table,
            table_id=table_id,
            schema_version=schema.version,
            before=before,
            after=after,
            shape=table.shape,
            es_only=not self.has_watermarks,
        )
