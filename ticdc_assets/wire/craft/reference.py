"""Craft: one record in, its events out.

In: a Kafka record whose value is a message of Craft. Its key is ignored: TiCDC sends none. Out: the
events of the message in its order, at least one, or a `WireError` whose position is a byte of the
value. Decoding depends on the value alone.

This is the readable reference; `batch` gives the same meaning faster. A table in
`layout` says where the parts of a message are, one in `values` how values are written.

    event        from the message
    INSERT       a row with the column group `after` alone
    UPDATE       a row with both groups
    DELETE       a row with the column group `before` alone
    DDL          action code and text; `ddl_type` is the Simple protocol's word for the code
    watermark    the commit ts

A row cites no schema: its shape has its columns, with the type codes as words. A DELETE may have
been cut to the handle key (`delete-only-output-handle-key-columns`), and no message says so: its
shape is always partial. Older versions with old values off send an UPDATE like an INSERT.

Not handled: damaged FLOAT values, which look like others (`values`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from ticdc_assets.base.errors import WireError, shorten
from ticdc_assets.model.events import (
    DdlEvent,
    Event,
    Op,
    PhysicalValue,
    RowChange,
    Watermark,
)
from ticdc_assets.model.schemas import ColumnFlag, RowShape, SentColumn, sent_shape
from ticdc_assets.wire.column_types import MAX_ACTION_CODE, TYPE_NAMES, ddl_word
from ticdc_assets.wire.craft.layout import (
    Body,
    ColumnGroup,
    EventKind,
    GroupKind,
    Header,
    Reader,
    read_group,
    read_message,
)
from ticdc_assets.wire.craft.values import READERS, form_of
from ticdc_assets.wire.record import Record, check_repeated, content_of, stored_bytes


def decode(record: Record) -> list[Event]:
    """Return the events of `record`, at least one.

    Raises:
        WireError: the value is not a message of Craft.
        UnsupportedVersionError: the message has another version.
    """
    value = content_of(record.value, "a message")
    message = read_message(value)
    events = [
        _EVENTS[header.kind](value, header, body, message.terms)
        for header, body in zip(message.headers, message.bodies, strict=True)
    ]
    # As names are short, this refuses nothing of 16 MiB or less: `batch` need not check.
    sizes = {name: stored_bytes(name) for name in message.terms}
    repeated = sum(sizes[name] for event in events for name in _names(event))
    check_repeated(repeated, len(value), "byte 0")
    return events


def _names(event: Event) -> Iterator[str]:
    """Yield the names that the row of a row change repeats."""
    if isinstance(event, RowChange):
        yield from (event.database, event.table, *(event.before or ()), *(event.after or ()))


def shape_of(*images: Iterable[tuple[str, int, int]], partial: bool, position: int = 0) -> RowShape:
    """Return the columns of a row's images, in their order.

    Each has a name, a type code, which is known, and flags; `position` is that of the first image.

    Raises:
        WireError: no table can have such columns.
    """
    columns: dict[str, SentColumn] = {}
    for name, code, flags in chain(*images):
        base_type = TYPE_NAMES[code][bool(flags & ColumnFlag.BINARY)]
        columns.setdefault(name, SentColumn(name, base_type, ColumnFlag(flags)))
    return sent_shape(tuple(columns.values()), f"byte {position}", partial=partial, raw=True)


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
    there = [group for group in (after, before) if group is not None]
    return RowChange(
        op=OPS[after is not None, before is not None],
        commit_ts=header.commit_ts,
        build_ts_ms=None,
        database=header.database,
        table=header.table,
        table_id=header.table_id,
        schema_version=None,
        before=images.get(GroupKind.BEFORE),
        after=images.get(GroupKind.AFTER),
        shape=shape_of(
            *(zip(group.names, group.types, group.flags, strict=True) for group in there),
            partial=after is None,
            position=there[0].position,
        ),
    )


def _image(group: ColumnGroup) -> dict[str, PhysicalValue]:
    image: dict[str, PhysicalValue] = {}
    for name, code, flags, raw, start in zip(
        group.names, group.types, group.flags, group.values, group.starts, strict=True
    ):
        form = form_of(code, flags)
        if form is None:
            raise WireError(
                "unknown_column_type",
                f"byte {group.position}",
                "type codes of TiDB's columns",
                shorten(code),
            )
        image[name] = None if raw is None else READERS[form](raw, start)
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
OPS: Final[Mapping[tuple[bool, bool], Op]] = {
    (True, False): Op.INSERT,
    (True, True): Op.UPDATE,
    (False, True): Op.DELETE,
}
"""The operation of a row, by whether it has an image after and one before."""
