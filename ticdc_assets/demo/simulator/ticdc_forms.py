"""What the new TiCDC (pingcap/ticdc) makes of an event, where it differs from the old one.

In: what was committed, and the format with its options. Out: the events as the new TiCDC hands them
to its encoders, and their bytes. The rules:

    - The text of a DDL is what TiDB's parser writes (`restoring`); RENAME, DROP and EXCHANGE
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

Which tables were exchanged follows from the history, so `follow` over all of it gives the same; the
flags of Open Protocol's columns are forgotten at a restart.

Source: pingcap/ticdc at b813e76f9: logservice/schemastore/persist_storage_ddl_handlers.go,
pkg/common/event/ddl_event.go, pkg/eventservice/event_scanner.go, pkg/sink/codec.

Not handled: names with a backquote in RENAME, DROP and EXCHANGE, which TiCDC does not escape.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ticdc_assets.demo.simulator.actions import ActionCode
from ticdc_assets.demo.simulator.columns import path_sql
from ticdc_assets.demo.simulator.commits import CommittedDdl
from ticdc_assets.demo.simulator.dialects import Dialect, MessageOptions, dialect_of
from ticdc_assets.demo.simulator.encoders import open_protocol, simple_avro
from ticdc_assets.demo.simulator.message_forms import MessageForm, TableOrder
from ticdc_assets.demo.simulator.restoring import restored
from ticdc_assets.demo.simulator.ticdc_encoding import (
    SentRow,
    encode_canal,
    encode_open,
    row_key,
)
from ticdc_assets.demo.simulator.transaction import CommittedRow
from ticdc_assets.model.events import Bootstrap, DdlEvent, Event, Op, RowChange
from ticdc_assets.model.schemas import NO_TABLE_ID, TableSchema
from ticdc_assets.wire import WireFormat
from ticdc_assets.wire.record import Record

_PARTITION: Final = re.compile(r" EXCHANGE PARTITION `((?:[^`]|``)+)` WITH TABLE ")


def message_form(
    wire_format: WireFormat, options: MessageOptions, *, table_order: TableOrder, timezone: str
) -> MessageForm:
    """Return how a changefeed writes.

    Raises:
        ConfigError: the dialect does not have the format.
    """
    is_new = dialect_of(wire_format, options.dialect) is Dialect.TICDC
    form = TicdcForm if is_new else MessageForm
    return form(wire_format, options, table_order=table_order, timezone=timezone)


class TicdcForm(MessageForm):
    """How one changefeed of the new TiCDC writes.

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
        super().__init__(wire_format, options, table_order=table_order, timezone=timezone)
        # The versions that rows of tables cite that were exchanged with a partition, by table id.
        self._exchanged: dict[int, int] = {}
        self._schemas: dict[tuple[int, int, int | None, str, str], TableSchema] = {}
        self._flags: dict[int, Mapping[str, int]] = {}

    def restart(self) -> None:
        """Forget what a process of TiCDC keeps in memory."""
        self._exchanged.clear()
        self._flags.clear()

    # DDL

    def ddl_events(self, ddl: CommittedDdl) -> Sequence[DdlEvent]:
        """Return the events of a DDL as they are in this dialect, for `event`."""
        return [self._ddl_event(ddl, number) for number in range(len(ddl.events))]

    def _ddl_event(self, ddl: CommittedDdl, number: int) -> DdlEvent:
        event = ddl.events[number]
        schema, before = event.schema, event.pre_schema
        event = replace(
            event,
            sql=restored(event.sql),
            schema=None if schema is None else self._in_order(schema),
            pre_schema=None,
        )
        if schema is None or before is None:
            is_batched = self._options.batched_creates and (
                event.action_code == ActionCode.CREATE_TABLE
            )
            code = ActionCode.CREATE_TABLES
            return replace(event, ddl_type=code.word, action_code=code) if is_batched else event
        if event.action_code == ActionCode.EXCHANGE_PARTITION:
            return self._exchange(event, schema, before)
        if event.action_code != ActionCode.RENAME_TABLE:
            return event
        end = ";" if len(ddl.events) > 1 else ""
        is_passing = any(
            later.pre_schema is not None and later.pre_schema.table_id == schema.table_id
            for later in ddl.events[number + 1 :]
        )
        return replace(
            event,
            sql=f"RENAME TABLE {_path(before)} TO {_path(schema)}{end}",
            schema=replace(self._in_order(schema), table_id=NO_TABLE_ID)
            if is_passing
            else self._in_order(schema),
        )

    def _exchange(self, event: DdlEvent, schema: TableSchema, before: TableSchema) -> DdlEvent:
        name = _exchanged_partition(event.sql)
        end = " WITHOUT VALIDATION" if event.sql.endswith(" WITHOUT VALIDATION") else ""
        return replace(
            event,
            ddl_type="ALTER" if self.has_bootstraps else "QUERY",
            sql=f"ALTER TABLE {_path(schema)} EXCHANGE PARTITION `{name}` "
            f"WITH TABLE {_path(before)}{end}",
            database=before.database,
            table=before.table,
            schema=replace(self._in_order(schema), database=before.database),
            pre_schema=self._in_order(self._known(before)),
        )

    def follow(self, ddl: CommittedDdl) -> None:
        """Keep in mind what a DDL changes in later messages."""
        for event in ddl.events:
            for schema in (event.schema, event.pre_schema):
                if schema is not None:
                    self._flags.pop(schema.table_id, None)
                    self._exchanged.pop(schema.table_id, None)
            if event.action_code == ActionCode.EXCHANGE_PARTITION and event.schema is not None:
                divided = ddl.previous[event.schema.database, event.schema.table]
                assert divided is not None
                assert divided.partitioning is not None
                partitions = divided.partitioning.partitions
                number = divided.partitioning.number(_exchanged_partition(restored(event.sql)))
                # The table that was exchanged has the id that the partition had.
                self._exchanged[partitions[number].physical_id] = event.schema.version

    def start_events(self, schemas: Iterable[TableSchema]) -> Sequence[DdlEvent | Bootstrap]:
        """Return what is sent at a start, whose tables have `schemas`."""
        if not self._options.bootstraps_at_start:
            return ()
        if self.has_bootstraps:
            return [
                Bootstrap(build_ts_ms=0, schema=self._in_order(self._known(schema)))
                for schema in schemas
            ]
        empty = DdlEvent(
            ddl_type="QUERY",
            commit_ts=0,
            build_ts_ms=0,
            sql="",
            database="",
            table="",
            schema=None,
            pre_schema=None,
            action_code=0,
        )
        return [empty for _ in schemas]

    # Rows

    def _known(self, schema: TableSchema) -> TableSchema:
        """Return a schema with the version that rows of its table cite."""
        version = self._exchanged.get(schema.table_id)
        return schema if version is None else replace(schema, version=version)

    def schema(self, row: CommittedRow) -> TableSchema:
        """Return the schema of a row's table as messages have it."""
        schema = row.schema
        version = self._exchanged.get(schema.table_id)
        known = (schema.table_id, schema.version, version, schema.database, schema.table)
        found = self._schemas.get(known)
        if found is None:
            found = self._known(self._in_order(schema))
            self._schemas[known] = found
        return found

    def bootstrap_id(self, row: CommittedRow) -> int:
        """Return the id under which a BOOTSTRAP is counted for the table of a row."""
        return row.schema.table_id

    def is_undescribed(self, schema: TableSchema) -> bool:
        """Tell whether rows cite a version of their table that no DDL of it has."""
        return schema.table_id in self._exchanged

    def sent_order(self, rows: Iterable[CommittedRow]) -> Iterable[CommittedRow]:
        """Return the rows of a transaction in the order in which they are sent."""
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
        return dispatch_key if self._format is WireFormat.OPEN_PROTOCOL else str(row.physical_id)

    def row(self, row: RowChange, committed: CommittedRow, schema: TableSchema) -> RowChange:
        """Return a row change as the format has it."""
        row, options = super().row(row, committed, schema), self._options
        if self._format is WireFormat.CANAL_JSON:
            if options.output_row_key or options.content_compatible:
                return _sent(row, row_key=row_key(committed, schema))
        elif self._format is WireFormat.OPEN_PROTOCOL:
            damages = options.damaged_old_values and self._only_updated and row.op is Op.UPDATE
            if options.stale_flags or damages:
                flags = self._flags_of(committed, row) if options.stale_flags else None
                return _sent(row, stale_flags=flags, damages_old_values=damages)
        return row

    def _flags_of(self, committed: CommittedRow, row: RowChange) -> Mapping[str, int]:
        """Return the flags that were kept when the first row of a physical table came."""
        assert row.shape is not None
        return self._flags.setdefault(
            committed.physical_id,
            {column.name: int(column.flags or 0) for column in row.shape.columns},
        )

    def encode(
        self,
        events: Sequence[Event],
        *,
        max_message_bytes: int = open_protocol.DEFAULT_MESSAGE_BYTES,
    ) -> Sequence[Record]:
        """Return the records of events that one message may hold together."""
        if self._format is WireFormat.OPEN_PROTOCOL:
            return encode_open(events, max_message_bytes=max_message_bytes)
        if self._format is WireFormat.CANAL_JSON:
            return encode_canal(events)
        if self._format is WireFormat.SIMPLE_AVRO:
            return simple_avro.encode(events, ticdc=True)
        return super().encode(events)


def _path(schema: TableSchema) -> str:
    return path_sql((schema.database, schema.table))


def _exchanged_partition(sql: str) -> str:
    """Return the name of the partition that a statement exchanges."""
    found = _PARTITION.search(sql)
    if found is None:
        raise ValueError(f"no EXCHANGE PARTITION: {sql!r}")
    return found[1].replace("``", "`")


def _sent(
    row: RowChange,
    *,
    row_key: str = "",
    stale_flags: Mapping[str, int] | None = None,
    damages_old_values: bool = False,
) -> SentRow:
    members = {name: getattr(row, name) for name in _MEMBERS}
    return SentRow(
        **members,
        row_key=row_key,
        stale_flags=stale_flags,
        damages_old_values=damages_old_values,
    )


_MEMBERS: Final = tuple(RowChange.__dataclass_fields__)
