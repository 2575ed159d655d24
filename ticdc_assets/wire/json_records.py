"""Records of a format in JSON, read one by one.

In: a batch of records, what takes the rows of one, and the format's reference decoder. Out: `Rows`,
equal to what the reference says, to the last reason and position; the result depends on the records
alone, so reading them again gives the same.

This is the way of messages that the compiled loops do not know: options that few changefeeds have,
and in Open Protocol blanks, members in another order and new members. They are parsed by
msgspec, which skips what it does not know, and skipping is more lenient than the reference in two
ways: it passes bytes that are no UTF-8, and any nesting. So the text of each record is looked at by
a compiled loop before, and only one without these is given to what takes rows. That in turn raises
`IrregularError`, or what msgspec raises, for every record that is of no shape it knows, and the
reference says what such a record is.
"""

# pyarrow has no type information, so what comes from it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from ticdc_assets.errors import WireError
from ticdc_assets.events import Event
from ticdc_assets.wire.byte_columns import Flags
from ticdc_assets.wire.column_rows import part_of, parts_of
from ticdc_assets.wire.go_json import MAX_DEPTH
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
    *,
    framed: bool = False,
    texts: SchemaTexts = no_schema_texts,
) -> Rows:
    """Return the rows of the records of `batch`.

    Args:
        batch: records with the columns key and value.
        take: takes the rows of a record, one at least, or raises one of `REFUSALS`.
        decode: the reference decoder.
        framed: whether key and value hold texts behind their lengths, as Open Protocol's do.
        texts: the schemas of a record that has some, as sent.
    """
    readable = _readable(batch, framed=framed).tolist()
    keys: list[bytes | None] = batch.column("key").to_pylist()
    values: list[bytes | None] = batch.column("value").to_pylist()
    rows = Rows()
    # Schemas are sent to each partition, and again and again; what says the same is read once.
    others: dict[Record, Sequence[tuple[Common, Rare | None]]] = {}
    for number, (key, value, is_readable) in enumerate(zip(keys, values, readable, strict=True)):
        if is_readable and value is not None:
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


def _readable(batch: pa.RecordBatch, *, framed: bool) -> Flags:
    """Say of each record whether its texts are UTF-8 and nest no deeper than is read."""
    from ticdc_assets.wire import readable_loops

    found = np.zeros(batch.num_rows, np.bool_)
    for first, part in parts_of(batch.column("value")):
        records = slice(first, first + len(part.starts))
        parts = [(part, 0 if framed else readable_loops.UNFRAMED)]
        if framed:
            keys = part_of(batch.column("key").slice(first, len(part.starts)))
            parts.append((keys, readable_loops.BEHIND_VERSION))
        found[records] = True
        for texts, head in parts:
            readable_loops.keep_readable(
                texts.buffer.octets,
                texts.buffer.words,
                texts.starts,
                texts.ends,
                head,
                MAX_DEPTH,
                found[records],
            )
    return found
