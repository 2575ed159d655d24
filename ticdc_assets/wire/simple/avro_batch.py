"""The hot path of the Simple protocol in Avro.

In: record batches with a column `value`. Out: rows, equal to those of `avro_reference.decode`, to
the last byte. The reference reads all others: watermarks, DDL and bootstraps, which are few, and
everything that is refused. The result depends on the records alone.

How it stays equal: the fields are read by the types of the reference (`avro_reference.DML`), and
everything that TiCDC does not write is left to the reference: a number that is not in its shortest
form, a count that is negative, an unknown branch, text that is not UTF-8, a float that is not
finite, an image in more than one block, with a name twice, or that the op does not have, a message
that ends too early or too late.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from ticdc_assets.wire.binary.node_loops import ROOM
from ticdc_assets.wire.binary.tape import BinaryTape
from ticdc_assets.wire.fields import LARGEST, Kind
from ticdc_assets.wire.rows import SourcedRows, row_columns
from ticdc_assets.wire.simple import avro, avro_loops, avro_reference
from ticdc_assets.wire.simple.avro_loops import FLAG_FIELD, NUMBER_FIELD, TEXT_FIELD
from ticdc_assets.wire.simple.message import CHECKSUM, FIELDS, VERSION, MessageType
from ticdc_assets.wire.tape.image_loops import Images
from ticdc_assets.wire.tape.json_loops import Flags
from ticdc_assets.wire.tape.reading import chosen_of, values_of, workspace
from ticdc_assets.wire.tape.texts import object_texts
from ticdc_assets.wire.tape.token_loops import NONE

_INSERT, _, _DELETE = range(len(avro_reference.DML_SYMBOLS))
_ROW: Final = avro_reference.MESSAGE_TYPES.index("DML")
_START: Final = np.array(
    [2 * number for number in (avro_reference.MESSAGE_BRANCH, _ROW, _ROW, VERSION)], np.uint8
)
"""The branch and the type of a message, the branch of its payload, and its version."""

_MEMBERS: Final = {field.name: field for field in (*FIELDS[MessageType.UPDATE], *CHECKSUM)}
_IMAGES: Final = ("data", "old")
_MOST: Final = 2**63 - 1
_SOME: Final = 2
"""The branch of an optional field that is there, as a byte."""


def _rules(fields: Sequence[tuple[str, avro.AvroType]]) -> Iterator[tuple[str, int, int, int]]:
    """Yield the names of fields, each with its `avro_loops.RULE`; of an image only its branch."""
    for name, kind in fields:
        if isinstance(kind, avro.Optional):
            inner = () if name in _IMAGES else tuple(_rules([(name, kind.type)]))
            yield f"has {name}", NUMBER_FIELD, len(inner), 1
            yield from inner
        elif isinstance(kind, avro.RecordType):
            yield from _rules(kind.fields)
        elif isinstance(kind, avro.Integer):
            yield name, NUMBER_FIELD, 0, min(LARGEST[_MEMBERS[name].kind], kind.high)
        elif isinstance(kind, avro.Enum):
            yield name, NUMBER_FIELD, 0, len(kind.symbols) - 1
        elif isinstance(kind, avro.Boolean):
            yield name, FLAG_FIELD, 0, 1
        else:
            yield name, TEXT_FIELD, 0, _MOST


# The branch of the last image is after the other image.
_FIELDS: Final = tuple(_rules(avro_reference.DML.fields[:-1]))
_RULES: Final = np.array([tuple(rule) for _, *rule in _FIELDS], avro_loops.RULE)
_FORMS: Final = np.array(avro_reference.FORMS, np.uint8)


def decode_exact(batch: pa.RecordBatch) -> SourcedRows:
    """Return the rows of those records of `batch` that are row changes as TiCDC writes them."""
    texts = values_of(batch, room=ROOM)
    binary = BinaryTape(texts, workspace("value"))
    count = len(texts.starts)
    numbers, at = np.empty((len(_RULES), count), np.int64), np.empty(count, np.int64)
    avro_loops.fields_read(texts, binary.target, _START, _RULES, numbers, at)
    values = dict(zip((name for name, *_ in _FIELDS), numbers, strict=True))

    def listed(is_there: Flags) -> Images:
        """Return the images at `at`, which moves past them."""
        return binary.lists.listed(
            np.where(is_there & (at >= 0), at, NONE),
            partial(avro_loops.entries_listed, binary.target, _FORMS, texts.ends, at),
        )

    has_data = values["has data"] == 1
    after = listed(has_data)
    branch = texts.octets[at]
    has_old = branch == _SOME
    at[(at >= texts.ends) | (branch > _SOME) | (branch == 1)] = NONE
    at += at >= 0
    before = listed(has_old)
    ops = values["type"]
    good = (at == texts.ends) & (has_data == (ops != _DELETE)) & (has_old == (ops != _INSERT))
    tape = binary.tape
    for name in ("database", "table"):
        good &= tape.nodes["start"][values[name]] < tape.nodes["end"][values[name]]
    good &= after.good & before.good
    after_texts, before_texts = binary.written(after, before)

    chosen = np.flatnonzero(good)
    values = {name: column[chosen] for name, column in values.items()}
    columns = row_columns(
        np.ones(len(chosen), np.bool_),
        op=values["type"],
        commit_ts=pa.array(values["commitTs"]),
        build_ts_ms=pa.array(values["buildTs"]),
        database=tape.strings(values["database"]),
        table=tape.strings(values["table"]),
        table_id=pa.array(values["tableID"]),
        schema_version=pa.array(values["schemaVersion"]),
        before=chosen_of(before_texts, chosen),
        after=chosen_of(after_texts, chosen),
        handle_key_only=values["handleKeyOnly"] == 1,
        claim_check_location=tape.filled_strings(values["claimCheckLocation"]),
        checksum=object_texts(
            values["has checksum"] == 1,
            {
                field.name: pa.array(column == 1 if field.kind is Kind.BOOLEAN else column)
                for field in CHECKSUM
                for column in [values[field.name]]
            },
        ),
    )
    return SourcedRows.of(batch, chosen, columns)
