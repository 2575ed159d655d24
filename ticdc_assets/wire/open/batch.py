"""The hot path of Open Protocol.

In: record batches with the columns `key` and `value`. Out: the rows of records with row changes and
watermarks, equal to those of `reference.decode`, to the last byte. The reference reads all
others: DDL, rows whose values are not written as their flags say, and everything that is refused.
The result depends on the records alone.

How it stays equal: both readers use the same tables of fields (`reference.KEYS` and the like),
texts are the strict JSON that `go_json` reads (`tape.token_loops`), `values.SPELLINGS` says how a
value becomes text, and the functions of the reference work out the meaning of a list of names, type
codes and flags, once for all images with the same list.
"""

from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_assets.model.schemas import ColumnFlag, RowShape, SentColumn, sent_shape
from ticdc_assets.wire.codes import Spelling
from ticdc_assets.wire.fields import Field, Kind
from ticdc_assets.wire.open import part_loops, reference
from ticdc_assets.wire.open.reference import KEYS, VALUE, base_type_of, column_flags
from ticdc_assets.wire.open.values import SPELLINGS, spelling
from ticdc_assets.wire.rows import SourcedRows, row_columns
from ticdc_assets.wire.tape.json_loops import Octets
from ticdc_assets.wire.tape.reading import (
    ColumnList,
    ImageLists,
    Rules,
    Shapes,
    Tape,
    chosen_of,
    tape_of,
    values_of,
    workspace,
)
from ticdc_assets.wire.tape.texts import double_texts, float_texts, gathered_texts, texts_of
from ticdc_assets.wire.tape.token_loops import NONE, Nodes

_TYPES: Final = (reference.ROW, reference.WATERMARK)
_ROW, _WATERMARK = range(len(_TYPES))
_KIND: Final = Rules.of((Field("t", Kind.INTEGER),))
_KEY: Final = Rules.of(*(KEYS[kind] for kind in _TYPES), besides=("t",))
_VALUE: Final = Rules.of(VALUE)
_INSERT, _UPDATE, _DELETE = range(3)

_WAY_OF_CODES: Final = np.full((2, 256), Spelling.REFUSED, np.uint8)
for _code, _spellings in SPELLINGS.items():
    _WAY_OF_CODES[:, _code] = _spellings

_LONGEST_SURE: Final = 300
"""Bytes of a number without exponent that is less than 1e300."""

_GROWTH: Final = 5
"""How many times its own length an image grows at most.

Three control characters are four bytes of base64, and 18 of JSON.
"""


def decode_exact(batch: pa.RecordBatch) -> SourcedRows:
    """Return the rows of those records of `batch` that hold row changes and watermarks."""
    values, of_keys = values_of(batch), workspace("key")
    keys = texts_of(batch.column("key"), of_keys.padded)
    room = np.empty(len(keys.octets) // 8 + 1, part_loops.PART)
    parts = room[: part_loops.parts_of_records(keys, values, room)]
    starts, ends, key_starts, key_ends = (
        parts[name].astype(np.int64) for name in ("start", "end", "key_start", "key_end")
    )
    key_tape, key_members = tape_of(keys._replace(starts=key_starts, ends=key_ends), _KEY, of_keys)
    kinds = key_tape.checked(key_members[:1], np.zeros(len(parts), np.int64), _KIND)
    types = np.full(len(parts), NONE, np.int64)
    for number, kind in enumerate(_TYPES):
        types[kinds.good & (kinds.values["t"] == kind)] = number
    key = key_tape.checked(key_members, types, _KEY)
    tape, members = tape_of(values._replace(starts=starts, ends=ends), _VALUE, workspace("value"))
    value = tape.checked(members, np.where(tape.roots >= 0, 0, NONE), _VALUE)
    marks = types == _WATERMARK
    good = key.good & np.where(marks, starts == ends, value.good)
    rows = good & ~marks

    # An image without members is none.
    new, old, deleted = (
        rows & (image >= 0) & (tape.nodes["next"][image] > image + 1) for image in members
    )
    ops = np.where(deleted, _DELETE, np.where(old, _UPDATE, _INSERT))
    good &= marks | (new != deleted) & (new | ~old)
    lists = ImageLists(tape)
    take = partial(part_loops.columns_listed, tape.texts, tape.nodes)
    after = lists.listed(np.where(good & new, members[0], NONE), take)
    before = lists.listed(
        np.where(good & deleted, members[2], np.where(good & old, members[1], NONE)), take
    )
    good &= after.good & before.good
    location = key_tape.filled_strings(key.values["ccl"])
    cut = key_tape.is_true(key.values["ohk"]) | np.asarray(location.is_valid())
    shapes = Shapes.of(lists, after, before, cut | deleted, good & ~marks, _shape)
    good &= marks | (shapes.which >= 0)
    ways = _ways(lists)
    written = lists.written((after, before), ways, _GROWTH * len(values.octets))
    good &= after.good & before.good
    for _, unsure in written:
        good[_not_shortest(tape, unsure)] = False

    # A record is exact as a whole.
    numbers = parts["record"].astype(np.int64)
    chosen = np.flatnonzero(~np.isin(numbers, numbers[~good]))
    own_marks = marks[chosen]
    columns = row_columns(
        ~own_marks,
        index=pa.array(parts["index"][chosen]),
        op=ops[chosen],
        commit_ts=key.numbers("ts", chosen),
        database=key_tape.strings(key.of("scm", chosen)),
        table=key_tape.strings(key.of("tbl", chosen)),
        table_id=key.numbers("ptn", chosen),
        after=chosen_of(written[0][0], chosen),
        before=chosen_of(written[1][0], chosen),
        handle_key_only=cut[chosen],
        claim_check_location=chosen_of(location, chosen),
        shape=shapes.column(chosen),
    )
    return SourcedRows.of(batch, numbers[chosen], columns)


def _ways(lists: ImageLists) -> Octets:
    """Return the way of each column, by its type code and its flags."""
    labels = lists.columns["label"]
    flags = labels >> part_loops.FLAGS_SHIFT
    return _WAY_OF_CODES[(flags & int(ColumnFlag.BINARY) != 0).astype(np.int8), labels & 0xFF]


def _shape(after: ColumnList, before: ColumnList, is_partial: bool) -> RowShape | None:
    said: dict[str, tuple[int, int, bool]] = {}
    for image in (after, before):
        for name, label in zip(image.names, image.labels, strict=True):
            # The first description of a name counts, and its first place.
            code, flags, _ = _said(label)
            first = said.setdefault(name, _said(label))
            if code in SPELLINGS and spelling(code, flags) is not spelling(code, first[1]):
                # These images were written by other flags; the reference reads them.
                return None
    if any(code not in SPELLINGS for code, _, _ in said.values()):
        return None
    columns = tuple(
        SentColumn(
            name,
            base_type_of(code, spelling(code, sent)),
            column_flags(sent, is_handle_key=is_key),
        )
        for name, (code, sent, is_key) in said.items()
    )
    return sent_shape(columns, "", partial=is_partial)


def _said(label: int) -> tuple[int, int, bool]:
    """Return the type code, the flags and the handle key of a label."""
    return (
        label & 0xFF,
        label >> part_loops.FLAGS_SHIFT & part_loops.MOST_FLAGS,
        bool(label >> part_loops.HANDLE_KEY_SHIFT),
    )


def _not_shortest(tape: Tape, unsure: Nodes) -> list[int]:
    """Return the images with an `UNSURE` number that is not written as its column's values are."""
    images: list[int] = []
    for way, kind, written_texts in (
        (Spelling.FLOAT, np.float32, float_texts),
        (Spelling.DOUBLE, np.float64, double_texts),
    ):
        numbers = unsure[unsure["way"] == way]
        # An image with a number that may be too large for 64 bits is left to the reference.
        is_long = numbers["end"] - numbers["start"] > _LONGEST_SURE
        images += numbers["image"][is_long].tolist()
        numbers = numbers[~is_long]
        sent = gathered_texts(
            tape.texts.octets, numbers["start"].astype(np.int64), numbers["end"].astype(np.int64)
        )
        with np.errstate(over="ignore"):
            values = sent.cast(pa.float64()).to_numpy().astype(kind)
        is_finite = np.isfinite(values)
        written = written_texts(np.where(is_finite, values, kind(0)))
        same = np.asarray(pc.equal(written, sent.cast(pa.binary())))
        images += numbers["image"][~(same & is_finite)].tolist()
    return images
