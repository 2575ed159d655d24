"""The hot path of Craft.

In: record batches with a column `value`. Out: the rows of messages of rows, equal to those of
`reference.decode`, to the last byte. The reference reads all others: DDL and watermarks, which are
few, and everything that is refused. The result depends on the records alone.

How it stays equal: a message that looks unusual anywhere is left to the reference as a whole
(`row_loops`), the table of the reference says how the values of a type are written
(`values.form_of`), and its functions work out the meaning of a list of names, type codes and
flags, once for all images with the same list.
"""

from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from ticdc_assets.model.schemas import RowShape
from ticdc_assets.wire.binary.node_loops import ROOM
from ticdc_assets.wire.binary.tape import BinaryTape
from ticdc_assets.wire.column_types import TYPE_NAMES
from ticdc_assets.wire.craft import reference, row_loops
from ticdc_assets.wire.craft.layout import MAX_FLAGS
from ticdc_assets.wire.craft.values import form_of
from ticdc_assets.wire.rows import SourcedRows, row_columns
from ticdc_assets.wire.tape.image_loops import Images
from ticdc_assets.wire.tape.json_loops import Octets
from ticdc_assets.wire.tape.reading import ColumnList, Shapes, chosen_of, values_of, workspace

_INSERT, _UPDATE, _DELETE = range(3)


def _forms() -> Octets:
    """Return the form of values by `row_loops` labels, another number for unknown types."""
    forms = np.full(256 * (MAX_FLAGS + 1), 255, np.uint8)
    for code in TYPE_NAMES:
        for flags in range(MAX_FLAGS + 1):
            form = form_of(code, flags)
            if form is not None:
                forms[code | flags << row_loops.FLAGS_SHIFT] = form
    return forms


_FORMS: Final = _forms()


def decode_exact(batch: pa.RecordBatch) -> SourcedRows:
    """Return the rows of those records of `batch` that are messages of rows, as TiCDC writes."""
    texts = values_of(batch, room=ROOM)
    place = workspace("value")
    binary = BinaryTape(texts, place)
    room = place.array("rows", binary.size // row_loops.ROW_BYTES + 1, row_loops.ROW)
    rows = room[: row_loops.rows_found(texts, binary.target, room)]

    def listed(name: str) -> Images:
        ends = rows[f"{name}_end"].copy()
        return binary.lists.listed(
            rows[name],
            partial(row_loops.columns_listed, binary.target, ends, rows, _FORMS),
        )

    after, before = listed("after"), listed("before")
    good = after.good & before.good
    deleted = rows["after"] < 0

    shapes = Shapes.of(binary.lists, after, before, deleted, good, _shape)
    good &= shapes.which >= 0
    after_texts, before_texts = binary.written(after, before)

    # A record is exact as a whole.
    records = rows["record"].astype(np.int64)
    chosen = np.flatnonzero(~np.isin(records, records[~good]))
    table_ids = rows["table_id"][chosen]
    updated = (rows["before"] >= 0) & ~deleted
    columns = row_columns(
        np.ones(len(chosen), np.bool_),
        index=pa.array(rows["index"][chosen]),
        op=np.where(deleted, _DELETE, np.where(updated, _UPDATE, _INSERT))[chosen],
        commit_ts=pa.array(rows["commit_ts"][chosen]),
        database=binary.tape.strings(rows["database"][chosen]),
        table=binary.tape.strings(rows["table"][chosen]),
        table_id=pa.array(table_ids, mask=table_ids < 0),
        after=chosen_of(after_texts, chosen),
        before=chosen_of(before_texts, chosen),
        handle_key_only=np.zeros(len(chosen), np.bool_),
        shape=shapes.column(chosen),
    )
    return SourcedRows.of(batch, records[chosen], columns)


def _shape(after: ColumnList, before: ColumnList, is_partial: bool) -> RowShape:
    return reference.shape_of(
        *(
            [
                (name, label & 0xFF, label >> row_loops.FLAGS_SHIFT)
                for name, label in zip(image.names, image.labels, strict=True)
            ]
            for image in (after, before)
        ),
        partial=is_partial,
    )
