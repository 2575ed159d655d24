"""Records of a format in JSON, read one by one.

In: a batch of records, what takes the rows of one, and the format's reference decoder. Out: `Rows`,
equal to what the reference says, to the last reason and position; the result depends on the records
alone, so reading them again gives the same.

This is the way of few records, which are not worth loading the compiled loops for, and of messages
that these do not know: options that few changefeeds have. Of a message that the loops know, the
texts are the same, to the byte.

The messages are parsed by msgspec, which skips what it does not know, and skipping is more lenient
than the reference in two ways: it passes bytes that are no UTF-8, and any nesting. So what takes
rows looks at a text before (`check_readable`). It raises `IrregularError`, or what msgspec raises,
for every record that is of no shape it knows, and the reference says what such a record is.
"""

# pyarrow has no type information, so what comes from it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import msgspec
import pyarrow as pa

from ticdc_assets.errors import WireError
from ticdc_assets.events import Event
from ticdc_assets.wire.go_json import MAX_DEPTH, check_depth
from ticdc_assets.wire.record import Record
from ticdc_assets.wire.rows import (
    Common,
    Rare,
    Rows,
    SchemaTexts,
    decoded_rows,
    no_schema_texts,
)

Take: TypeAlias = Callable[[bytes | None, bytes], Sequence[Common]]
"""The common columns of the rows of a record, by its key and value."""


class IrregularError(Exception):
    """The record is none that is taken here."""


REFUSALS: Final = (msgspec.MsgspecError, UnicodeError, RecursionError, WireError, IrregularError)
"""What says that a record is for the reference."""


def read_records(
    batch: pa.RecordBatch,
    take: Take,
    decode: Callable[[Record], list[Event]],
    texts: SchemaTexts = no_schema_texts,
) -> Rows:
    """Return the rows of the records of `batch`.

    Args:
        batch: records with the columns key and value.
        take: takes the rows of a record, one at least, or raises one of `REFUSALS`.
        decode: the reference decoder.
        texts: the schemas of a record that has some, as sent.
    """
    keys: list[bytes | None] = batch.column("key").to_pylist()
    values: list[bytes | None] = batch.column("value").to_pylist()
    rows = Rows()
    # Schemas are sent to each partition, and again and again; what says the same is read once.
    others: dict[Record, Sequence[tuple[Common, Rare | None]]] = {}
    for number, (key, value) in enumerate(zip(keys, values, strict=True)):
        if value is not None:
            try:
                found = take(key, value)
            except REFUSALS:
                pass
            else:
                rows.sources += [number] * len(found)
                rows.common += found
                continue
        record = Record(key=key, value=value)
        said = others.get(record)
        if said is None:
            said = others[record] = decoded_rows(decode, record, texts)
        rows.add(number, said)
    return rows


def without_blanks(text: msgspec.Raw) -> bytes:
    """Return a JSON text without blanks between its tokens."""
    return msgspec.json.format(bytes(text), indent=-1)


def check_readable(text: bytes) -> None:
    """See to it that a parser that skips members takes no text that the reference refuses.

    Raises:
        WireError: the text nests deeper than is read, if it is JSON.
        UnicodeError: it is not UTF-8.
    """
    if len(text) > MAX_DEPTH or not text.isascii():
        check_depth(text.decode())
