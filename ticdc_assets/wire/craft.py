"""Craft: one record in, its events out, and back byte for byte.

In: a Kafka record whose value is a message of Craft. Its key is not looked at: TiCDC sends none.
Out: the events of the message in its order, one at least, or a `WireError` whose position is a byte
of the value. Decoding is a function of the value alone, so doing it again gives the same.

This is the readable reference; `craft_batch` gives the same meaning faster. Where the parts of a
message stand is a table in `craft_layout`, how values are written one in `craft_values`.

    event        from the message
    INSERT       a row with the column group `after` alone
    UPDATE       a row with both groups
    DELETE       a row with the column group `before` alone
    DDL          action code and text; `ddl_type` is the Simple protocol's word for the code
    watermark    the commit ts

A row cites no schema: its shape is that of its columns, with the type codes as words. A DELETE may
have been cut to the handle key (`delete-only-output-handle-key-columns`), and nothing says so: its
shape is always partial. Older versions with old values off send an UPDATE like an INSERT.

Not handled: damaged FLOAT values, which nobody can tell from others (`craft_values`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, assert_never

from ticdc_assets.errors import WireError, shorten
from ticdc_assets.events import (
    DdlEvent,
    Event,
    Image,
    Op,
    PhysicalValue,
    RowChange,
    Watermark,
    ZonedTimestamp,
)
from ticdc_assets.mysql_types import base_type
from ticdc_assets.schemas import ColumnFlag, ColumnSchema, RowShape, SentColumn, sent_shape
from ticdc_assets.tso import MAX_TSO
from ticdc_assets.wire.column_types import TYPE_NAMES, action_code, ddl_word, type_code
from ticdc_assets.wire.craft_bytes import Reader, write_string, write_uvarint
from ticdc_assets.wire.craft_layout import (
    MAX_NAME_BYTES,
    Body,
    ColumnGroup,
    EventKind,
    GroupKind,
    Header,
    read_group,
    read_message,
    write_event,
    write_rows,
)
from ticdc_assets.wire.craft_values import codec_of
from ticdc_assets.wire.record import Record
from ticdc_assets.wire.repeating import check_repeated, stored_bytes

DEFAULT_BATCH_SIZE: Final = 16
"""TiCDC's default of `max-batch-size`: rows of a message."""

DEFAULT_MESSAGE_BYTES: Final = 10_485_760
"""TiCDC's default of `max-message-bytes`."""

MAX_ACTION_CODE: Final = 255
"""TiDB's numbers for DDL statements are bytes."""

# What TiCDC takes a row for besides its texts, when it looks whether a message is full.
_ROW_ESTIMATE: Final = 32
_COLUMN_ESTIMATE: Final = 16


def decode(record: Record) -> list[Event]:
    """Return the events of `record`, one at least.

    Raises:
        WireError: the value is no message of Craft.
        UnsupportedVersionError: it is one of another version.
    """
    message = read_message(record.value)
    value = record.value or b""
    events = [
        _EVENTS[header.kind](value, header, body, message.terms)
        for header, body in zip(message.headers, message.bodies, strict=True)
    ]
    # As names are not long, this stops none of 16 MiB or less: `craft_batch` need not look.
    sizes = {name: stored_bytes(name) for name in message.terms}
    repeated = sum(sizes[name] for event in events for name in _names(event))
    check_repeated(repeated, len(value), "byte 0")
    return events


def _names(event: Event) -> Iterator[str]:
    """Yield the names that the row of a row change repeats."""
    if isinstance(event, RowChange):
        yield from (event.database, event.table, *(event.before or ()), *(event.after or ()))


def encode(
    events: Sequence[Event],
    *,
    max_batch_size: int = DEFAULT_BATCH_SIZE,
    max_message_bytes: int = DEFAULT_MESSAGE_BYTES,
) -> list[Record]:
    """Return the records that TiCDC would send for `events`, in their order.

    Rows next to each other share a message, `max_batch_size` of them at most. A message is closed
    after the row with which TiCDC takes it for longer than `max_message_bytes`.

    Raises:
        ValueError: the format cannot carry an event, or a row has no shape.
    """
    if max_batch_size < 1:
        raise ValueError(f"no batch size: {max_batch_size}")
    records: list[Record] = []
    rows: list[RowChange] = []
    groups: list[list[ColumnGroup]] = []
    estimate = 0

    def close() -> None:
        if rows:
            headers = [_row_header(row) for row in rows]
            records.append(Record(key=None, value=write_rows(headers, groups)))
            rows.clear()
            groups.clear()

    for event in events:
        match event:
            case RowChange():
                if not rows:
                    estimate = 0
                rows.append(event)
                groups.append(_groups_of(event))
                estimate += _estimate(event, groups[-1])
                if len(rows) >= max_batch_size or estimate > max_message_bytes:
                    close()
            case DdlEvent():
                close()
                records.append(Record(key=None, value=_write_ddl(event)))
            case Watermark():
                close()
                header = _header(EventKind.WATERMARK, event.watermark_ts)
                records.append(Record(key=None, value=write_event(header, b"")))
            case _:
                raise ValueError("Craft has no bootstraps")
    close()
    return records


def shape_of(group: ColumnGroup, other: ColumnGroup | None, *, partial: bool) -> RowShape:
    """Return what `group` says of its columns, and after it those that only `other` has.

    The type codes are known ones.

    Raises:
        WireError: no table can have such columns.
    """
    columns = _columns(group)
    if other is not None:
        columns |= {name: column for name, column in _columns(other).items() if name not in columns}
    return sent_shape(tuple(columns.values()), f"byte {group.position}", partial=partial, raw=True)


def _columns(group: ColumnGroup) -> dict[str, SentColumn]:
    return {
        name: SentColumn(name, TYPE_NAMES[code][bool(flags & ColumnFlag.BINARY)], FLAGS[flags])
        for name, code, flags in zip(group.names, group.types, group.flags, strict=True)
    }


FLAGS: Final = tuple(ColumnFlag(flags) for flags in range(256))
"""All combinations of flags, by number."""


def _row(value: bytes, header: Header, body: Body, terms: Sequence[str]) -> Event:
    groups: dict[GroupKind, ColumnGroup] = {}
    position = body.position
    for size in body.sizes:
        group = read_group(value, position, size, terms)
        if group.kind in groups:
            raise WireError(
                "duplicate_group",
                f"byte {position}",
                "one group of a kind",
                group.kind.name.lower(),
            )
        groups[group.kind] = group
        position += size
    if not header.database or not header.table:
        raise WireError(
            "missing_name",
            f"byte {body.position}",
            "a row with the names of its database and its table",
            shorten((header.database, header.table)),
        )
    after, before = groups.get(GroupKind.AFTER), groups.get(GroupKind.BEFORE)
    images = {kind: _image(group) for kind, group in groups.items()}
    shape = (
        shape_of(after, before, partial=False)
        if after is not None
        else shape_of(groups[GroupKind.BEFORE], None, partial=True)
    )
    return RowChange(
        op=_OPS[after is not None, before is not None],
        commit_ts=header.commit_ts,
        build_ts_ms=None,
        database=header.database,
        table=header.table,
        table_id=header.partition,
        schema_version=None,
        before=images.get(GroupKind.BEFORE),
        after=images.get(GroupKind.AFTER),
        shape=shape,
    )


def _image(group: ColumnGroup) -> dict[str, PhysicalValue]:
    image: dict[str, PhysicalValue] = {}
    for name, code, flags, raw, start in zip(
        group.names, group.types, group.flags, group.values, group.starts, strict=True
    ):
        codec = codec_of(code, flags)
        if codec is None:
            raise WireError(
                "unknown_column_type",
                f"byte {group.position}",
                "type codes of TiDB's columns",
                shorten(code),
            )
        image[name] = None if raw is None else codec.read(raw, start)
    return image


def _ddl(value: bytes, header: Header, body: Body, _terms: Sequence[str]) -> Event:
    reader = Reader(value, body.position, body.position + sum(body.sizes))
    code = reader.uvarint()
    if code > MAX_ACTION_CODE:
        raise WireError(
            "out_of_range", f"byte {body.position}", f"0 to {MAX_ACTION_CODE}", shorten(code)
        )
    position = reader.position
    sql = reader.string()
    reader.finish()
    if not sql:
        raise WireError("empty_text", f"byte {position}", "text that is not empty", "''")
    return DdlEvent(
        ddl_type=ddl_word(code),
        commit_ts=header.commit_ts,
        build_ts_ms=None,
        sql=sql,
        database=header.database or "",
        table=header.table or "",
        schema=None,
        pre_schema=None,
        action_code=code,
    )


def _watermark(value: bytes, header: Header, body: Body, _terms: Sequence[str]) -> Event:
    if any(body.sizes):
        got = shorten(value[body.position : body.position + min(sum(body.sizes), 16)])
        raise WireError("trailing_bytes", f"byte {body.position}", "no body", got)
    return Watermark(watermark_ts=header.commit_ts, build_ts_ms=None)


_EVENTS: Final[Mapping[EventKind, Callable[[bytes, Header, Body, Sequence[str]], Event]]] = {
    EventKind.ROW: _row,
    EventKind.DDL: _ddl,
    EventKind.WATERMARK: _watermark,
}
_OPS: Final[Mapping[tuple[bool, bool], Op]] = {
    (True, False): Op.INSERT,
    (True, True): Op.UPDATE,
    (False, True): Op.DELETE,
}
"""What a row did, by whether it has an image after and one before."""


def _write_ddl(ddl: DdlEvent) -> bytes:
    code = action_code(ddl.ddl_type) if ddl.action_code is None else ddl.action_code
    if code is None or not 0 <= code <= MAX_ACTION_CODE or ddl_word(code) != ddl.ddl_type:
        raise ValueError(f"no action code of {ddl.ddl_type!r}: {ddl.action_code!r}")
    if not ddl.sql:
        raise ValueError("a DDL event without text")
    header = _header(EventKind.DDL, ddl.commit_ts, database=ddl.database, table=ddl.table)
    return write_event(header, write_uvarint(code) + write_string(ddl.sql))


def _row_header(row: RowChange) -> Header:
    return _header(
        EventKind.ROW,
        row.commit_ts,
        partition=row.table_id,
        database=row.database,
        table=row.table,
    )


def _header(
    kind: EventKind,
    commit_ts: int,
    *,
    partition: int | None = None,
    database: str = "",
    table: str = "",
) -> Header:
    for name in (database, table):
        _check_name(name)
    if not 0 <= commit_ts <= MAX_TSO or (partition is not None and not 0 <= partition <= MAX_TSO):
        raise ValueError(f"no TSO or no table id: {commit_ts}, {partition}")
    return Header(
        kind=kind,
        commit_ts=commit_ts,
        partition=partition,
        database=database or None,
        table=table or None,
    )


def _check_name(name: str) -> None:
    if stored_bytes(name) > MAX_NAME_BYTES:
        raise ValueError(f"a name of more than {MAX_NAME_BYTES} bytes in JSON: {shorten(name)}")


def _groups_of(row: RowChange) -> list[ColumnGroup]:
    if row.shape is None:
        raise ValueError("a row without a shape: Craft sends types and flags")
    if row.handle_key_only or row.claim_check_location is not None or row.es_only:
        raise ValueError("Craft has no large messages, and a commit ts in every row")
    if not row.database or not row.table:
        raise ValueError("a row without the names of its database and its table")
    images = {GroupKind.AFTER: row.after, GroupKind.BEFORE: row.before}
    if _OPS.get((row.after is not None, row.before is not None)) is not row.op:
        raise ValueError(f"not the images of this change: {row.op.value}")
    return [
        _group_of(kind, image, row.shape) for kind, image in images.items() if image is not None
    ]


def _group_of(kind: GroupKind, image: Image, shape: RowShape) -> ColumnGroup:
    columns = [column for column in shape.columns if column.name in image]
    if not columns or len(columns) != len(image):
        raise ValueError("an image without columns, or with columns that its shape lacks")
    codes = [_code_of(column) for column in columns]
    return ColumnGroup(
        kind=kind,
        names=tuple(column.name for column in columns),
        types=tuple(code for code, _ in codes),
        flags=tuple(flags for _, flags in codes),
        values=tuple(
            _write_value(code, flags, image[column.name])
            for column, (code, flags) in zip(columns, codes, strict=True)
        ),
    )


def _code_of(column: SentColumn) -> tuple[int, int]:
    """Return the type code and the flags of `column`."""
    code, flags = type_code(column.mysql_type), column.flags
    _check_name(column.name)
    if code is None or flags is None or not 0 <= flags < len(FLAGS):
        raise ValueError(f"no type code or no flags: {column!r}")
    base = base_type(ColumnSchema(name=column.name, mysql_type=column.mysql_type))
    if base != TYPE_NAMES[code][bool(flags & ColumnFlag.BINARY)]:
        raise ValueError(f"the flags are those of another type: {column!r}")
    return code, int(flags)


def _write_value(code: int, flags: int, value: PhysicalValue) -> bytes | None:
    codec = codec_of(code, flags)
    if codec is None:
        raise ValueError(f"no known type code: {code}")
    match value:
        case None:
            return None
        case str():
            return codec.write(value)
        case ZonedTimestamp():
            return codec.write(value.value)
        case _:
            assert_never(value)


def _estimate(row: RowChange, groups: Sequence[ColumnGroup]) -> int:
    """Return what TiCDC takes the length of `row` for."""
    return (
        _ROW_ESTIMATE
        + len(row.database.encode())
        + len(row.table.encode())
        + sum(
            len(name.encode()) + len(raw or b"") + _COLUMN_ESTIMATE
            for group in groups
            for name, raw in zip(group.names, group.values, strict=True)
        )
    )
