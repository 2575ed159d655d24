"""Messages that are grown large: what shows time that is not linear, and memory without bound.

In: a generator of random numbers, a format, a record and a size. Out: a record of about that size,
in which one thing is there very often, is very deep or is very long. Most are no messages any more
and some are; a decoder has to be quick and modest with either.

Not handled: sizes beyond what Kafka carries.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from fuzz.binary_damage import craft_message, frames_of
from fuzz.json_damage import nodes_of
from ticdc_assets.demo.simulator.encoders.craft import write_rows
from ticdc_assets.demo.simulator.encoders.simple_avro import write_message
from ticdc_assets.wire import WireFormat
from ticdc_assets.wire.codes import Form
from ticdc_assets.wire.record import Record
from ticdc_assets.wire.simple import avro_reference
from ticdc_assets_tests.wire.differing import framed

Grow: TypeAlias = Callable[[random.Random, Record, int], Record]

_ELEMENTS = (
    b"1",
    b"0.1",
    b"1e1",
    b'""',
    b"[]",
    b"{}",
    b"null",
    b"[[]]",
    b'{"a":1}',
    b'{"id":"1"}',
    b'"\\u00e9"',
    b'"\\ud83d\\ude80"',
)


def grown(generator: random.Random, wire_format: WireFormat, record: Record, size: int) -> Record:
    """Return a record of about `size` bytes, made from `record`."""
    return generator.choice(_GROWERS[wire_format])(generator, record, size)


def grown_json(generator: random.Random, text: bytes, size: int) -> bytes:
    """Return JSON text of about `size` bytes, made from `text`."""
    nodes = nodes_of(text)
    if not nodes:
        return text
    node = generator.choice(nodes)
    value = text[node.start : node.end]
    name = b"" if node.name is None else text[node.name[0] : node.start]
    element = generator.choice(_ELEMENTS)
    many = size // (len(element) + 1)
    members = b",".join(
        b'"%d":%s' % (number, element) for number in range(size // (len(element) + 8))
    )
    depth = generator.choice((90, 99, 110, size // 2))
    new = generator.choice(
        (
            name + b"[" + b",".join([element] * many) + b"]",
            name + b"{" + members + b"}",
            members + b"," + name + value if name else value,
            name + value + b"," + members if name else value,
            b",".join([name + value] * (size // (len(name + value) + 1))),
            b",".join([name + element] * many),
            name + b"[" * depth + value + b"]" * depth,
            name + b'{"a":' * depth,
            name + b"9" * size,
            name + b"-" + b"9" * size + b".5",
            name + b"1e" + b"9" * size,
            name + b'"' + b"x" * size + b'"',
            name + b'"' + b"\\u0041" * (size // 6) + b'"',
            name + b'"' + b"\xf0\x9f\x9a\x80" * (size // 4) + b'"',
            name + b'"' + b"\\" * size + b'"',
            name + b'"' + b"A" * (size // 4 * 4) + b'"',
            name + b'"' + b'\\"' * (size // 2),
            b" " * size + name + value,
        )
    )
    start = node.name[0] if node.name else node.start
    return text[:start] + new + text[node.end :]


def _json_value(generator: random.Random, record: Record, size: int) -> Record:
    return Record(key=record.key, value=grown_json(generator, record.value or b"", size))


def _repeated(generator: random.Random, record: Record, size: int) -> Record:
    """Repeat a slice."""
    value = record.value or b"\0"
    start = generator.randrange(len(value))
    end = start + int(2 ** generator.uniform(0, 8))
    piece = value[start:end]
    return Record(key=record.key, value=value[:end] + piece * (size // len(piece)) + value[end:])


def _run(generator: random.Random, record: Record, size: int) -> Record:
    """Insert one byte very often."""
    value = record.value or b""
    place = generator.randrange(len(value) + 1)
    byte = bytes((generator.choice((0, 1, 2, 0x20, 0x22, 0x5B, 0x5C, 0x7F, 0x80, 0xFF)),))
    return Record(key=record.key, value=value[:place] + byte * size + value[place:])


def _open_parts(generator: random.Random, record: Record, size: int) -> Record:
    """Repeat the parts of a record, in its key, its value or both."""
    key, value = record.key or bytes(8), record.value or b""
    keys, values = frames_of(key[8:]), frames_of(value)
    if not keys or not values:
        return record
    times = max(1, size // (len(key) + len(value)))
    what = generator.random()
    if what < 0.6:
        return Record(key=key[:8] + framed(keys * times), value=framed(values * times))
    if what < 0.8:
        return Record(key=key[:8] + framed(keys[:1] + [b"{}"] * (size // 10)), value=value)
    return Record(key=key, value=framed(values[:1] + [b""] * (size // 8)))


def _open_json(generator: random.Random, record: Record, size: int) -> Record:
    key, value = record.key or bytes(8), record.value or b""
    keys, values = frames_of(key[8:]), frames_of(value)
    if not keys or not values:
        return record
    frames = generator.choice((keys, values, values))
    number = generator.randrange(len(frames))
    frames[number] = grown_json(generator, frames[number], size)
    return Record(key=key[:8] + framed(keys), value=framed(values))


def _avro_many(generator: random.Random, record: Record, size: int) -> Record:
    """Make a row with very many columns, or a schema with very many of anything."""
    form, value = generator.choice(((Form.NULL, None), (Form.SIGNED, 1), (Form.TEXT, "")))
    sent = avro_reference.FORMS.index(form), value
    image = {str(number): sent for number in range(size // 8)}
    row: dict[str, Any] = {
        "database": "d",
        "table": "t",
        "tableID": 1,
        "type": "INSERT",
        "commitTs": 1,
        "buildTs": 1,
        "schemaVersion": 1,
        "data": image,
    }
    column = {
        "name": "c",
        "dataType": {"mysqlType": "", "charset": "", "collate": "", "length": 1},
        "nullable": True,
    }
    index = {
        "name": "i",
        "unique": True,
        "primary": False,
        "nullable": False,
        "columns": generator.choice((["c"], [""] * (size // 2))),
    }
    few = 1 if len(index["columns"]) > 1 else size // 16
    schema = {
        "database": "d",
        "table": "t",
        "tableID": 1,
        "version": 1,
        "columns": [column | {"name": str(number)} for number in range(size // 16)],
        "indexes": [index | {"name": str(number)} for number in range(few)],
    }
    bootstrap = {"buildTs": 1, "tableSchema": schema}
    wrapper, payload = generator.choice((("DML", row), ("BOOTSTRAP", bootstrap)))
    return Record(key=record.key, value=write_message(wrapper, payload))


def _craft_many(generator: random.Random, record: Record, size: int) -> Record:
    """Repeat rows, or the columns of a row, or rows of columns with long names."""
    value = record.value or b""
    found = craft_message(value)
    if found is None or not found[1]:
        return _repeated(generator, record, size)
    message, rows = found
    if generator.random() < 0.5:
        times = max(1, size // len(value))
        return Record(key=record.key, value=write_rows(message.headers * times, rows * times))
    (group, *_) = rows[0]
    prefix, count = generator.choice((("", size // 12), ("\x01" * 40, 30), ("\U00020000" * 60, 30)))
    times = max(1, size // (5 * count)) if prefix else 1
    kind: Any = group.kind
    wide = type(group)(
        kind=kind,
        names=tuple(f"{prefix}{number}" for number in range(count)),
        types=group.types[:1] * count,
        flags=group.flags[:1] * count,
        values=generator.choice(((None,), group.values[:1])) * count,
    )
    return Record(key=record.key, value=write_rows(message.headers[:1] * times, [[wide]] * times))


_GROWERS: Mapping[WireFormat, Sequence[Grow]] = {
    WireFormat.SIMPLE_JSON: (_json_value, _json_value, _json_value, _repeated, _run),
    WireFormat.SIMPLE_AVRO: (_avro_many, _repeated, _run),
    WireFormat.OPEN_PROTOCOL: (_open_json, _open_json, _open_parts, _open_parts, _repeated, _run),
    WireFormat.CANAL_JSON: (_json_value, _json_value, _json_value, _repeated, _run),
    WireFormat.CRAFT: (_craft_many, _repeated, _run),
}
