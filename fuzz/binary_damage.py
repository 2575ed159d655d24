"""Damage to messages with lengths in them, such that the lengths still fit.

In: a generator of random numbers and a record. Out: another record of the same outer shape: frames
of Open Protocol around damaged JSON, values of Avro's types that no encoder would write, column
groups of Craft with other names, types, flags and bytes. This gets past the checks of lengths to
what is behind them. A record that is no message is given back as it is.

Not handled: wrong lengths (`damage.absurd_number`).
"""

import math
import random
from collections.abc import Callable, ItemsView, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeAlias, assert_never

from fuzz.damage import BYTES, NUMBERS, damaged
from fuzz.json_damage import damaged_json
from ticdc_assets.base.errors import WireError
from ticdc_assets.demo.simulator.encoders.craft import (
    write_event,
    write_rows,
    write_varint,
)
from ticdc_assets.demo.simulator.encoders.simple_avro import write, write_message
from ticdc_assets.wire import WireFormat
from ticdc_assets.wire.craft.layout import ColumnGroup, Header, Message, read_group, read_message
from ticdc_assets.wire.record import Record
from ticdc_assets.wire.simple import avro, avro_reference
from ticdc_assets_tests.wire.differing import framed, parts

Structured: TypeAlias = Callable[[random.Random, Record, Sequence[bytes]], Record]

TEXTS = (
    *("", " ", "\0", "0", "-1", "null", "x" * 300, "é", "🚀", "\u2028", "../../x", "a`b\"c'd"),
    *("Asia/Shanghai", "0000-00-00", "2038-01-19 03:14:08.999999", "18446744073709551616"),
    *("1e400", "bigint unsigned", "bit", "binary", "enum"),
)
_FLOATS = (0.0, -0.0, 1.5, 1e300, -1e-320, 3.4e38, math.inf, -math.inf, math.nan)


def damaged_structure(
    generator: random.Random,
    wire_format: WireFormat,
    record: Record,
    others: Sequence[bytes] = (),
) -> Record:
    """Return `record` damaged behind its lengths; `others` are JSON texts to take pieces of."""
    return _STRUCTURED[wire_format](generator, record, others)


def json_texts(wire_format: WireFormat, records: Sequence[Record]) -> list[bytes]:
    """Return the JSON texts in records, nothing where the format has none."""
    match wire_format:
        case WireFormat.SIMPLE_JSON | WireFormat.CANAL_JSON:
            return [record.value for record in records if record.value]
        case WireFormat.OPEN_PROTOCOL:
            contents = [(record.key or b"")[8:] for record in records]
            contents += [record.value or b"" for record in records]
            return [frame for content in contents for frame in frames_of(content) if frame]
        case WireFormat.SIMPLE_AVRO | WireFormat.CRAFT:
            return []
        case _:
            assert_never(wire_format)


# --- JSON as a whole, and in frames ---


def _json_value(generator: random.Random, record: Record, others: Sequence[bytes]) -> Record:
    return Record(key=record.key, value=damaged_json(generator, record.value or b"", others))


def frames_of(content: bytes) -> list[bytes]:
    """Return the pieces of `content`, each behind its length; nothing where they do not fit."""
    frames = list(parts(content))
    return frames if framed(frames) == content else []


def _open_protocol(generator: random.Random, record: Record, others: Sequence[bytes]) -> Record:
    if record.key is None or record.value is None:
        return record
    keys, values = frames_of(record.key[8:]), frames_of(record.value)
    if not keys or not values:
        return record
    for _ in range(generator.choice((1, 1, 1, 2))):
        frames = generator.choice((keys, values, values))
        if not frames:
            continue
        number = generator.randrange(len(frames))
        what = generator.random()
        if what < 0.85:
            frames[number] = damaged_json(generator, frames[number], others)
        elif what < 0.9:
            frames.insert(number, frames[number])
        elif what < 0.95:
            frames[number] = generator.choice((b"", b"{}", b"null", b"[]", *BYTES))
        else:
            del frames[number]
    return Record(key=record.key[:8] + framed(keys), value=framed(values))


# --- Avro ---


class _Twice(dict[str, Any]):
    """Entries of a map, all of them there two times when they are written."""

    def __len__(self) -> int:
        return 2 * super().__len__()

    def items(self) -> Any:
        own: ItemsView[str, Any] = super().items()
        return [*own, *own]


@lru_cache(maxsize=4096)
def _avro_message(value: bytes) -> tuple[str, Mapping[str, Any]] | None:
    reader = avro.Reader(value)
    try:
        if reader.varint() != 11:
            return None
        wrapper = avro.Enum(avro_reference.MESSAGE_TYPES).read(reader)
        reader.varint()
        avro.INT.read(reader)
        return wrapper, avro_reference.PAYLOADS[wrapper].read(reader)
    except WireError:
        return None


def _simple_avro(generator: random.Random, record: Record, _others: Sequence[bytes]) -> Record:
    message = _avro_message(record.value or b"")
    if message is None:
        return record
    wrapper, payload = message
    kind = avro_reference.PAYLOADS[wrapper]
    for _ in range(generator.choice((0, 1, 1, 1, 2, 3))):
        payload = _changed(generator, kind, payload)
    version = generator.choice((0, 2, -1)) if generator.random() < 0.01 else 1
    try:
        value = write_message(wrapper, payload, version=version)
        if generator.random() < 0.1:
            value = _in_other_blocks(generator, payload, value)
    except ValueError:
        return record  # a double in the place of a float
    return Record(key=record.key, value=value)


def _in_other_blocks(generator: random.Random, payload: Mapping[str, Any], message: bytes) -> bytes:
    """Return `message` with the items of an image or of a schema in other blocks, fit or not."""
    schema = payload.get("tableSchema") or {}
    found: list[tuple[avro.Map | avro.Array, Any]] = [
        (avro.Map(avro_reference.VALUES), payload.get("data")),
        (avro.Map(avro_reference.VALUES), payload.get("old")),
        (avro.Array(avro_reference.COLUMN_SCHEMA), schema.get("columns")),
        (avro.Array(avro_reference.INDEX_SCHEMA), schema.get("indexes")),
    ]
    present = [(kind, items) for kind, items in found if items]
    if not present:
        return message
    kind, items = generator.choice(present)
    out = bytearray()
    write(out, kind, items)
    count = len(items)
    content = bytes(out[len(write_varint(count)) : -1])
    negative = write_varint(-count) + write_varint(len(content)) + content
    odd = generator.choice(NUMBERS) % 2**62
    blocks = generator.choice(
        (
            negative + b"\0",
            negative + negative + b"\0",
            negative + b"\1\0\0",
            write_varint(-count)
            + write_varint(len(content) + generator.choice((-1, 1)))
            + content
            + b"\0",
            write_varint(-count) + b"\0",
            write_varint(-count) + write_varint(-odd) + content + b"\0",
            write_varint(-count) + write_varint(odd) + content + b"\0",
            write_varint(-odd - 1) + write_varint(len(content)) + content + b"\0",
            write_varint(count + 1) + content + b"\0",
            write_varint(count) + content + write_varint(odd) + b"\0",
            write_varint(count) + content * 2 + b"\0",
            b"\x80\0" + content,
            write_varint(count) + content,
            b"\0",
        )
    )
    return message.replace(bytes(out), blocks, 1)


def _changed(generator: random.Random, kind: avro.AvroType, value: Any) -> Any:
    """Return `value` with one thing changed somewhere in it."""
    if generator.random() < 0.05:
        return _sample(generator, kind)
    match kind:
        case avro.RecordType():
            name, field_kind = generator.choice(kind.fields)
            return {**value, name: _changed(generator, field_kind, value[name])}
        case avro.Optional():
            if value is None:
                return _sample(generator, kind.type)
            if generator.random() < 0.2:
                return None
            return _changed(generator, kind.type, value)
        case avro.Union():
            number, inner = value
            if generator.random() < 0.5:
                number = generator.choice(list(kind.branches))
                return number, _sample(generator, kind.branches[number])
            return number, _changed(generator, kind.branches[number], inner)
        case avro.Array():
            items = list(value)
            place = generator.randrange(len(items)) if items else 0
            what = generator.random()
            if what < 0.6 and items:
                items[place] = _changed(generator, kind.items, items[place])
            elif what < 0.8 and items:
                items.insert(place, generator.choice(items))
            elif what < 0.9 and items:
                del items[place]
            else:
                items.insert(place, _sample(generator, kind.items))
            return items
        case avro.Map():
            return _changed_map(generator, kind, value)
        case _:
            return _sample(generator, kind)


def _changed_map(generator: random.Random, kind: avro.Map, value: Mapping[str, Any]) -> Any:
    entries = dict(value)
    what = generator.random()
    if what < 0.05:
        return _Twice(entries)
    if not entries or what < 0.15:
        return {**entries, generator.choice(TEXTS): _sample(generator, kind.values)}
    name = generator.choice(list(entries))
    if what < 0.25:
        del entries[name]
    elif what < 0.35:
        entries[generator.choice(TEXTS)] = entries.pop(name)
    else:
        entries[name] = _changed(generator, kind.values, entries[name])
    return entries


def _sample(generator: random.Random, kind: avro.AvroType) -> Any:
    """Return some value of a type, mostly an odd one."""
    match kind:
        case avro.Integer():
            number = generator.choice(NUMBERS) * generator.choice((1, 1, 1, 1, -1))
            return max(kind.low, min(kind.high, number))
        case avro.Boolean():
            return generator.random() < 0.5
        case avro.Floating():
            return generator.choice(_FLOATS)
        case avro.Bytes():
            return generator.choice((b"", generator.choice(BYTES), generator.randbytes(9)))
        case avro.String():
            return generator.choice(TEXTS)
        case avro.Enum():
            return generator.choice(kind.symbols)
        case avro.Null():
            return None
        case avro.Optional():
            return None if generator.random() < 0.5 else _sample(generator, kind.type)
        case avro.Union():
            number = generator.choice(list(kind.branches))
            return number, _sample(generator, kind.branches[number])
        case avro.RecordType():
            return {name: _sample(generator, field) for name, field in kind.fields}
        case avro.Array():
            return [_sample(generator, kind.items) for _ in range(generator.choice((0, 1, 2)))]
        case avro.Map():
            return {
                generator.choice(TEXTS): _sample(generator, kind.values)
                for _ in range(generator.choice((0, 1, 2)))
            }
        case _:
            raise TypeError(f"an unknown type of Avro: {kind!r}")


# --- Craft ---


@lru_cache(maxsize=4096)
def craft_message(value: bytes) -> tuple[Message, tuple[tuple[ColumnGroup, ...], ...]] | None:
    """Return a message of rows and its column groups; None for any other."""
    try:
        message = read_message(value)
        rows: list[tuple[ColumnGroup, ...]] = []
        if len(message.headers) == 1 and message.headers[0].kind != 1:
            return message, ()
        for body in message.bodies:
            position = body.position
            groups: list[ColumnGroup] = []
            for size in body.sizes:
                groups.append(read_group(value, position, size, message.terms))
                position += size
            rows.append(tuple(groups))
    except WireError:
        return None
    return message, tuple(rows)


def _craft(generator: random.Random, record: Record, _others: Sequence[bytes]) -> Record:
    value = record.value or b""
    found = craft_message(value)
    if found is None:
        return record
    message, rows = found
    headers = list(message.headers)
    if generator.random() < 0.3 or not rows:
        number = generator.randrange(len(headers))
        headers[number] = _changed_header(generator, headers[number])
    if not rows:
        (body,) = message.bodies
        content = value[body.position : body.position + sum(body.sizes)]
        if generator.random() < 0.8:
            content = damaged(generator, content, [value])
        return Record(key=record.key, value=write_event(headers[0], content))
    changed = [list(groups) for groups in rows]
    for _ in range(generator.choice((1, 1, 2, 3))):
        groups = generator.choice(changed)
        number = generator.randrange(len(groups))
        groups[number] = _changed_group(generator, groups[number])
        if generator.random() < 0.05:
            groups.append(generator.choice(groups))
    return Record(key=record.key, value=write_rows(headers, changed))


def _changed_header(generator: random.Random, header: Header) -> Header:
    number = generator.choice(NUMBERS) % 2**64
    # The kind is a number here that the dataclass does not know; its writer takes any.
    kind: Any = generator.choice((0, 1, 2, 3, 4, number))
    return generator.choice(
        (
            replace(header, commit_ts=number),
            replace(header, kind=kind),
            replace(header, table_id=number % 2**63),
            replace(header, table_id=-generator.randrange(1, 4)),
            replace(header, database=generator.choice((None, *TEXTS))),
            replace(header, table=generator.choice((None, *TEXTS))),
        )
    )


def _changed_group(generator: random.Random, group: ColumnGroup) -> ColumnGroup:
    place = generator.randrange(len(group.names)) if group.names else 0
    kind: Any = generator.choice((0, 1, 2, 3, 255))
    what = generator.random()
    if what < 0.05 or not group.names:
        return replace(group, kind=kind)
    if what < 0.15:
        name = generator.choice((*TEXTS, *group.names))
        return replace(group, names=_with(group.names, place, name))
    if what < 0.35:
        code = generator.choice((*range(18), *range(225, 256), generator.choice(NUMBERS) % 2**64))
        return replace(group, types=_with(group.types, place, code))
    if what < 0.5:
        flags = generator.choice((generator.randrange(256), generator.choice(NUMBERS) % 2**64))
        return replace(group, flags=_with(group.flags, place, flags))
    if what < 0.55:
        # Lists of different lengths: each is read where the one before it ends.
        field = generator.choice(("names", "types", "flags", "values"))
        listed: tuple[Any, ...] = getattr(group, field)
        return replace(group, **{field: listed[:place] + listed[place + 1 :]})
    raw = group.values[place] if place < len(group.values) else b""
    return replace(group, values=_with(group.values, place, _odd_bytes(generator, raw or b"")))


def _odd_bytes(generator: random.Random, raw: bytes) -> bytes | None:
    what = generator.random()
    if what < 0.1:
        return None
    if what < 0.5:
        return damaged(generator, raw, [raw])
    if what < 0.7:
        return generator.choice(TEXTS).encode()
    if what < 0.85:
        return generator.choice(BYTES)
    return generator.randbytes(generator.choice((1, 4, 7, 8, 9, 10, 11)))


def _with(values: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])


_STRUCTURED: Mapping[WireFormat, Structured] = {
    WireFormat.SIMPLE_JSON: _json_value,
    WireFormat.SIMPLE_AVRO: _simple_avro,
    WireFormat.OPEN_PROTOCOL: _open_protocol,
    WireFormat.CANAL_JSON: _json_value,
    WireFormat.CRAFT: _craft,
}
