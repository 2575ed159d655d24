"""Avro's binary encoding, written as every Avro library does: `wire.simple.avro` backwards.

In: a type of `wire.simple.avro` and a value of it, as that module reads it. Out: the bytes,
appended; or a `ValueError` for what is no value of the type.
"""

from typing import Any

from ticdc_assets.base.errors import shorten
from ticdc_assets.demo.simulator.encoders.craft_layout import write_varint
from ticdc_assets.wire.simple.avro import (
    BYTES,
    LONG,
    STRING,
    Array,
    AvroType,
    Boolean,
    Bytes,
    Enum,
    Floating,
    Integer,
    Map,
    Null,
    Optional,
    RecordType,
    String,
    Union,
)


def write(out: bytearray, kind: AvroType, value: Any) -> None:
    """Append `value`, which is of the type `kind`; a field of a record that is absent as None.

    Raises:
        ValueError: it is no value of the type.
    """
    match kind:
        case Null():
            if value is not None:
                raise ValueError(f"not null: {shorten(value)}")
        case Boolean():
            out.append(1 if value else 0)
        case Integer():
            if not kind.low <= value <= kind.high:
                raise ValueError(f"not from {kind.low} to {kind.high}: {value}")
            out += write_varint(value)
        case Floating():
            try:
                out += kind.layout.pack(value)
            except OverflowError as error:
                raise ValueError(f"too large for a float: {value}") from error
        case Bytes():
            write(out, LONG, len(value))
            out += value
        case String():
            write(out, BYTES, value.encode())
        case Enum():
            write(out, LONG, kind.symbols.index(value))
        case Union():
            number, inner = value
            write(out, LONG, number)
            write(out, kind.branches[number], inner)
        case Optional():
            out.append(0 if value is None else 2)
            if value is not None:
                write(out, kind.type, value)
        case RecordType():
            for name, field in kind.fields:
                write(out, field, value.get(name))
        case Array():
            if value:
                write(out, LONG, len(value))
            for item in value:
                write(out, kind.items, item)
            out.append(0)
        case Map():
            if value:
                write(out, LONG, len(value))
            for name, item in value.items():
                write(out, STRING, name)
                write(out, kind.values, item)
            out.append(0)
        case _:
            raise TypeError(f"an unknown type of Avro: {kind!r}")
