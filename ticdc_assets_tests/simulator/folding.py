"""A plain fold of records to rows, made only to test the simulator against its own truth.

It reads messages with the package's decoder and knows nothing else of it but the canonical text
of values. Rows older than an ALTER keep the columns they were written with, so `compare` looks at
such a row's columns only as far as the ALTER left them alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ticdc_assets.capture import CaptureRecord
from ticdc_assets.events import Bootstrap, DdlEvent, Event, Op, RowChange, Watermark
from ticdc_assets.registry.ddl import DdlAction, parse_ddl
from ticdc_assets.schemas import TableSchema
from ticdc_assets.simulator.commits import Truth
from ticdc_assets.simulator.stored_table import Key, TableName
from ticdc_assets.values import canonical_of
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets.wire.record import Record


@dataclass
class Folded:
    """Tables at a cut: rows with the schema they were written with, and the schema now."""

    schemas: dict[TableName, TableSchema] = field(default_factory=dict)
    rows: dict[TableName, dict[Key, tuple[TableSchema, dict[str, str | None]]]] = field(
        default_factory=dict
    )


def events_of(records: Iterable[CaptureRecord]) -> list[tuple[CaptureRecord, Event]]:
    return [
        (record, event)
        for record in records
        if record.value is not None
        for event in decode(
            WireFormat.SIMPLE_JSON, Record(key=record.key, value=record.value)
        )
    ]  # fmt: skip


def global_watermark(records: Iterable[CaptureRecord], partitions: Iterable[int]) -> int:
    highest = dict.fromkeys(partitions, 0)
    for record, event in events_of(records):
        if isinstance(event, Watermark):
            highest[record.partition] = max(highest[record.partition], event.watermark_ts)
    return min(highest.values())


def fold(records: Iterable[CaptureRecord], at: int, *, timezone: str) -> Folded:
    """Return the tables in the cut at `at`, from all records at once."""
    known: dict[tuple[str, str, int], TableSchema] = {}
    ordered: list[tuple[tuple[int, ...], RowChange | DdlEvent]] = []
    seen: set[tuple[int, str, str, str]] = set()
    for number, (_, event) in enumerate(events_of(records)):
        if isinstance(event, Bootstrap | DdlEvent) and event.schema is not None:
            schema = event.schema
            known[schema.database, schema.table, schema.version] = schema
        if isinstance(event, RowChange) and event.commit_ts <= at:
            ordered.append(((event.commit_ts, 0, event.op is not Op.DELETE, number), event))
        if isinstance(event, DdlEvent) and event.commit_ts < at:
            copy = (event.commit_ts, event.sql, event.database, event.table)
            if copy not in seen:
                ordered.append(((event.commit_ts, 1, 0, number), event))
            seen.add(copy)
    result = Folded()
    for _, event in sorted(ordered, key=lambda item: item[0]):
        if isinstance(event, DdlEvent):
            _apply_ddl(result, event)
        else:
            name = (event.database, event.table)
            assert event.schema_version is not None
            _apply_row(result, event, known[(*name, event.schema_version)], timezone)
    return result


def _apply_ddl(result: Folded, event: DdlEvent) -> None:
    schema, before = event.schema, event.pre_schema
    if schema is None:
        statement = parse_ddl(event.sql)
        if statement.action is DdlAction.DROP_DATABASE:
            for name in [name for name in result.schemas if name[0] == statement.database]:
                del result.schemas[name], result.rows[name]
        return
    name = (schema.database, schema.table)
    old = (before.database, before.table) if before else None
    rows = result.rows.pop(old, {}) if old else {}
    if old:
        result.schemas.pop(old, None)
    if event.ddl_type == "ERASE":
        return
    result.schemas[name] = schema
    result.rows[name] = {} if event.ddl_type in ("CREATE", "TRUNCATE") else rows


def _apply_row(result: Folded, event: RowChange, schema: TableSchema, timezone: str) -> None:
    rows = result.rows[event.database, event.table]
    for image in (event.before, event.after):
        if image is not None:
            row = {
                column.name: canonical_of(column, timezone)(image[column.name])
                for column in schema.columns
            }
            key = tuple(row[name] or "" for name in schema.handle_key)
            rows.pop(key, None)
            if image is event.after:
                rows[key] = (schema, row)


def compare(folded: Folded, truth: Truth) -> int:
    """Assert that the fold is the truth, and return how many rows were compared in full."""
    assert set(folded.rows) == set(truth)
    full = 0
    for name, rows in truth.items():
        assert set(folded.rows[name]) == set(rows), name
        now = folded.schemas[name]
        for key, row in rows.items():
            schema, found = folded.rows[name][key]
            if schema.version == now.version:
                assert found == row, (name, key)
                full += 1
                continue
            for column in now.columns:
                if schema.column(column.name) == column:
                    assert found[column.name] == row[column.name], (name, key, column.name)
    return full
