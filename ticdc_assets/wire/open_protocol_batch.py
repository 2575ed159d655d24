"""The hot path of Open Protocol.

In: record batches with the columns `key` and `value`. Out: `Rows`, equal to what
`open_protocol.decode` says, to the last reason and position; the result depends on the records
alone.

How it stays equal: a record is taken here only if all its parts are rows and watermarks of the
regular shape that TiCDC writes, whatever members they have besides, and is given to the reference
in every other case, errors included. What msgspec would let pass and the reference refuses, or
would read in another way, is closed as follows (tests try each):

- What is skipped (members that nobody knows) has been looked at before for its UTF-8 and its depth,
  see `json_records`. All else is read with its type.
- A column's value is an integer, a number with a fraction or exponent, text or null; each type
  takes what the reference takes, and an integer beyond 64 bits is none.
- `-0` would become the integer 0: a part that may have one is not regular.
- A byte order mark, NaN, lone surrogates, trailing bytes and control characters are refused by
  msgspec itself, also inside what it skips.

Records in exactly the bytes that TiCDC writes are read by compiled loops (`decode_regular`): every
byte of them that is not inside a string is compared with what it must be, see `open_loops`; all
that stands before a value is decoded with its type, once for all images that say the same. The
others are written again in these bytes if they mean the same (`json_rewriting`), or read one by one
(`decode_rows`). Both write the same text.

What a list of names, type codes and flags means is worked out once a batch, not once a row.
"""

# pyarrow has no type information, so what comes from it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportAttributeAccessIssue=false

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_assets.errors import WireError
from ticdc_assets.events import Op
from ticdc_assets.schemas import ColumnFlag, SentColumn, sent_shape
from ticdc_assets.tso import MAX_TSO
from ticdc_assets.wire import open_protocol
from ticdc_assets.wire.byte_columns import (
    Buffer,
    Ints,
    Octets,
    Writing,
    gathered_texts,
    writing,
)
from ticdc_assets.wire.column_rows import Part, PartRows, part_of, regular_rows, without
from ticdc_assets.wire.image_columns import double_texts, float_texts
from ticdc_assets.wire.json_records import IrregularError, check_readable, read_records
from ticdc_assets.wire.json_rewriting import Members, OpenMembers
from ticdc_assets.wire.open_columns import MAX_FLAGS, base_type_of, row_flags
from ticdc_assets.wire.open_protocol import NUMBER_SIZE, VERSION_BYTES
from ticdc_assets.wire.open_values import READERS, SPELLINGS, Spelling, spelling
from ticdc_assets.wire.rows import ROW, WATERMARK, Common, RegularRows, Rows, shape_text

MEMBERS: Final = OpenMembers(
    key=Members(regular=("ts", "scm", "tbl", "rid", "ptn", "t"), others=("ohk", "ccl")),
    value=Members(regular=("u", "p", "d"), others=()),
    column=Members(regular=("t", "h", "f", "v"), others=()),
)
"""What is looked at in records, see `open_protocol`."""

_Integer = Annotated[int, msgspec.Meta(ge=0, le=MAX_TSO)]
_Value: TypeAlias = int | float | str | None


class _Key(msgspec.Struct, gc=False):
    """The key of a row or watermark; the names are those of the protocol."""

    ts: _Integer
    t: Literal[1, 3]
    scm: str = ""
    tbl: str = ""
    rid: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] = 0
    ptn: _Integer | None = None
    ohk: bool = False
    ccl: str = ""


class _Column(msgspec.Struct, gc=False):
    t: int
    f: Annotated[int, msgspec.Meta(ge=0, le=MAX_FLAGS)]
    v: _Value
    h: bool = False


class _Row(msgspec.Struct, gc=False):
    u: dict[str, _Column] | None = None
    p: dict[str, _Column] | None = None
    d: dict[str, _Column] | None = None


@dataclass(frozen=True, slots=True)
class _Plan:
    """How images of one list of columns are read, and what they say of their table."""

    readers: tuple[Callable[[_Value, str], str], ...]
    shape: str
    partial_shape: str


_Plans: TypeAlias = dict[tuple[str | int, ...], _Plan]

_decode_key: Final = msgspec.json.Decoder(_Key).decode
_decode_row: Final = msgspec.json.Decoder(_Row).decode
_encode: Final = msgspec.json.Encoder().encode

_LONGEST_SURE: Final = 300
"""Bytes of a number without exponent that is less than 1e300."""

_NEGATIVE_ZERO: Final = re.compile(rb"-0[ \t\r\n,}]")
_decode_described: Final = msgspec.json.Decoder(dict[str, _Column]).decode
_OPS: Final = pa.array([Op.INSERT.value, Op.UPDATE.value, Op.DELETE.value])


def decode_regular(batch: pa.RecordBatch) -> RegularRows | None:
    """Return the rows of those records of `batch` that TiCDC writes most, read at once.

    These hold rows alone, all fields in TiCDC's order and no white space between them, and nothing
    that says that columns were cut.
    """
    workspace: _Workspace | None = None

    def read(first: int, part: Part) -> PartRows:
        nonlocal workspace
        if workspace is None or workspace.size < part.buffer.size:
            workspace = _Workspace(part.buffer.size)
        return _part_rows(
            part_of(batch.column("key").slice(first, len(part.starts))), part, workspace
        )

    return regular_rows(batch, read)


class _Workspace:
    """What the parts of a batch are read with, one after the other.

    New memory for each part would cost time: the machine fills it with zeros first.

    Args:
        size: bytes of the largest part.
    """

    def __init__(self, size: int) -> None:
        from ticdc_assets.wire import open_loops

        self.size = size
        self.room = open_loops.open_room(size)
        self.scratch = writing(size)

    def read(self, keys: Part, part: Part, before: Writing, after: Writing) -> None:
        """Read the records of a part; what is found is in the room until the next is read."""
        from ticdc_assets.wire import json_loops, open_loops

        while True:
            open_loops.open_records(
                open_loops.Texts(keys.buffer.octets, keys.buffer.words, keys.starts, keys.ends),
                open_loops.Texts(part.buffer.octets, part.buffer.words, part.starts, part.ends),
                _ways(),
                int(ColumnFlag.BINARY),
                self.room,
                json_loops.Sheet(before.octets, before.words),
                json_loops.Sheet(after.octets, after.words),
                json_loops.Sheet(self.scratch.octets, self.scratch.words),
            )
            if not self.room.used[3]:
                return
            self.room = open_loops.with_more_columns(self.room)


def _part_rows(keys: Part, part: Part, workspace: _Workspace) -> PartRows:
    from ticdc_assets.wire import json_loops

    buffer, size = part.buffer, part.buffer.size
    before, after = writing(5 * size), writing(5 * size)
    workspace.read(keys, part, before, after)
    found, sent, _, unsure, (_, unsure_count, count, _) = workspace.room
    found, unsure = found[:count], unsure[:unsure_count]
    numbers, indexes, kinds, commit_ts = found.T[:4]
    lasts, which = np.unique(found[:, 9], return_inverse=True)
    plans = [_plan_of(_described(buffer, sent, last)) for last in lasts.tolist()]
    wrong = np.array([plan is None for plan in plans], np.bool_)[which]
    wrong[_not_shortest(buffer, unsure)] = True
    inserted, deleted = kinds == json_loops.INSERT, kinds == json_loops.DELETE
    shapes = [
        text
        for plan in plans
        for text in ((None, None) if plan is None else (plan.shape, plan.partial_shape))
    ]
    columns = {
        "index": pa.array(indexes, pa.int32()),
        "op": _OPS.take(pa.array(kinds - json_loops.INSERT)),
        "commit_ts": pa.array(commit_ts),
        "database": gathered_texts(keys.buffer, found[:, 4], found[:, 5]),
        "table": gathered_texts(keys.buffer, found[:, 6], found[:, 7]),
        "table_id": pa.array(found[:, 8], mask=found[:, 8] < 0),
        "before": before.texts(found[:, 10], ~inserted),
        "after": after.texts(found[:, 11], ~deleted),
        "shape": pa.array(shapes, pa.string()).take(pa.array(2 * which + deleted)),
    }
    return without((numbers, columns), wrong)


@cache
def _ways() -> Octets:
    """Return how the values of each type code become text, without and with the flag `BINARY`."""
    from ticdc_assets.wire import open_value_loops

    ways = {
        Spelling.TEXT: open_value_loops.TEXT_WAY,
        Spelling.INTEGER: open_value_loops.INTEGER_WAY,
        Spelling.UNSIGNED: open_value_loops.UNSIGNED_WAY,
        Spelling.FLOAT: open_value_loops.FLOAT_WAY,
        Spelling.DOUBLE: open_value_loops.DOUBLE_WAY,
        Spelling.NULL: open_value_loops.NULL_WAY,
        Spelling.QUOTED: open_value_loops.QUOTED_WAY,
        Spelling.TEXT_IN_BASE64: open_value_loops.TEXT_IN_BASE64_WAY,
        Spelling.BYTES_IN_BASE64: open_value_loops.BYTES_IN_BASE64_WAY,
    }
    found = np.full(2 * 256, open_value_loops.REFUSED_WAY, np.uint8)
    for code, spellings in SPELLINGS.items():
        found[2 * code : 2 * code + 2] = [ways[spelled] for spelled in spellings]
    return found


def _described(buffer: Buffer, sent: Ints, last: int) -> list[bytes]:
    """Return all that stands before the values of an image, by the number of its last column."""
    texts: list[bytes] = []
    while last:
        last, begin, end = sent[last, :3].tolist()
        texts.append(buffer.octets[begin:end].tobytes())
    return texts[::-1]


def _plan_of(described: list[bytes]) -> _Plan | None:
    """Return what columns mean that stand so before their values, None if no table has them."""
    columns = _decode_described(b"{" + b"".join(text + b"null}," for text in described)[:-1] + b"}")
    if len(columns) != len(described):
        return None  # a name is there twice
    try:
        return _new_plan(columns)
    except WireError:
        return None


def _not_shortest(buffer: Buffer, unsure: Ints) -> list[int]:
    """Return the rows with a number that is not written as the value of its column is.

    Args:
        buffer: the bytes.
        unsure: `UNSURE_FIELDS` of each number.
    """
    from ticdc_assets.wire import open_value_loops

    rows: list[int] = []
    for way, kind, texts_of in (
        (open_value_loops.FLOAT_WAY, np.float32, float_texts),
        (open_value_loops.DOUBLE_WAY, np.float64, double_texts),
    ):
        numbers, _, begins, ends = unsure[unsure[:, 1] == way].T
        # What has a number that may be too large for 64 bits is left to the reference.
        is_long = ends - begins > _LONGEST_SURE
        rows += numbers[is_long].tolist()
        numbers, begins, ends = numbers[~is_long], begins[~is_long], ends[~is_long]
        sent = gathered_texts(buffer, begins, ends)
        with np.errstate(over="ignore"):
            values = sent.cast(pa.float64()).to_numpy().astype(kind)
        is_finite = np.isfinite(values)
        written = texts_of(np.where(is_finite, values, kind(0)))
        same = np.asarray(pc.equal(written, sent.cast(pa.binary())))
        rows += numbers[~(same & is_finite)].tolist()
    return rows


def decode_rows(batch: pa.RecordBatch) -> Rows:
    """Return the rows of the records of `batch`."""
    plans: _Plans = {}
    return read_records(batch, partial(_rows, plans), open_protocol.decode)


def _rows(plans: _Plans, key: bytes | None, value: bytes) -> Sequence[Common]:
    """Return the common columns of the rows and watermarks of a regular record.

    Raises:
        IrregularError: it is none; so do msgspec's errors, and those of values.
    """
    if not key or not key.startswith(VERSION_BYTES):
        raise IrregularError
    found: list[Common] = []
    key_end, value_end = NUMBER_SIZE, 0
    while key_end < len(key):
        key_start, key_end = _frame(key, key_end)
        value_start, value_end = _frame(value, value_end)
        head, part = key[key_start:key_end], value[value_start:value_end]
        check_readable(head)
        check_readable(part)
        fields = _decode_key(head)
        read = _row if fields.t == open_protocol.ROW else _watermark
        found.append(read(len(found), fields, part, plans))
    if value_end != len(value) or not found:
        raise IrregularError
    return found


def _frame(content: bytes, position: int) -> tuple[int, int]:
    start = position + NUMBER_SIZE
    end = start + int.from_bytes(content[position:start])
    if end > len(content) or start > len(content):
        raise IrregularError
    return start, end


def _watermark(index: int, key: _Key, part: bytes, _plans: _Plans) -> Common:
    if part:
        raise IrregularError
    return (index, WATERMARK, None, key.ts, *(None,) * 12)


def _row(index: int, key: _Key, part: bytes, plans: _Plans) -> Common:
    if not key.scm or not key.tbl or _NEGATIVE_ZERO.search(part) is not None:
        raise IrregularError
    row = _decode_row(part)
    after, before, deleted = row.u, row.p, row.d
    cut = key.ohk or bool(key.ccl)
    if after and not deleted:
        op = Op.UPDATE if before else Op.INSERT
        image, plan = _image(after, plans)
        old = None
        if before:
            old, _ = _image(before, plans)
            if not before.keys() <= after.keys():
                plan = _plan(_joined(after, before), plans)
    elif deleted and not after and not before:
        op, image = Op.DELETE, None
        old, plan = _image(deleted, plans)
    else:
        raise IrregularError
    return (
        index,
        ROW,
        op.value,
        key.ts,
        None,
        key.scm,
        key.tbl,
        key.ptn,
        None,
        old,
        image,
        cut,
        key.ccl or None,
        None,
        plan.partial_shape if cut or op is Op.DELETE else plan.shape,
        False,
    )


def _joined(after: Mapping[str, _Column], before: Mapping[str, _Column]) -> dict[str, _Column]:
    """Return the columns of both images in the order of a shape."""
    return {**after, **{name: sent for name, sent in before.items() if name not in after}}


def _image(columns: Mapping[str, _Column], plans: _Plans) -> tuple[bytes, _Plan]:
    plan = _plan(columns, plans)
    image = {
        name: None if sent.v is None else read(sent.v, "")
        for read, (name, sent) in zip(plan.readers, columns.items(), strict=True)
    }
    return _encode(image), plan


def _plan(columns: Mapping[str, _Column], plans: _Plans) -> _Plan:
    # As many names as numbers follow, and a name is no number: no two lists are the same tuple.
    described = (*columns, *[_number_of(sent) for sent in columns.values()])
    plan = plans.get(described)
    if plan is None:
        plan = plans[described] = _new_plan(columns)
    return plan


def _number_of(sent: _Column) -> int:
    """Return a number that no column has which is described in another way."""
    return (sent.t * (MAX_FLAGS + 1) + sent.f) * 2 + sent.h


def _new_plan(columns: Mapping[str, _Column]) -> _Plan:
    if not all(sent.t in SPELLINGS for sent in columns.values()):
        raise IrregularError
    flags = row_flags({name: (sent.f, sent.h) for name, sent in columns.items()})
    spellings = [spelling(sent.t, sent.f) for sent in columns.values()]
    sent_columns = tuple(
        SentColumn(name, base_type_of(sent.t, spelled), flags[name])
        for spelled, (name, sent) in zip(spellings, columns.items(), strict=True)
    )
    return _Plan(
        readers=tuple(READERS[spelled] for spelled in spellings),
        shape=shape_text(sent_shape(sent_columns, "")),
        partial_shape=shape_text(sent_shape(sent_columns, "", partial=True)),
    )
