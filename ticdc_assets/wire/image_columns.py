"""Images as JSON text, a column at a time: numbers and slices of messages to an Arrow array.

In: the values of many images in their order, each as a slice of the messages or a number, and the
names of their columns. Out: an Arrow array of JSON texts. An image consists of pieces: before each
value the text between it and the value before (`,"name":"`), the value, and the end. All pieces of
a batch are taken from one array of the distinct pieces and of the slices, one after the other, so
that the bytes of a column are already those of its texts, and only its offsets must be computed.

Texts are slices of a message and are copied unread, unless they have a character that JSON escapes:
the `json` module writes those few. UTF-8 is checked once, for the column: between two texts there
is always a quote, so no character can span two of them.

Numbers are written by Arrow; its FLOAT and DOUBLE have the same shortest digits as canonical text,
except powers of two and exponents, which `values.floats` writes.

Not handled: values that their type does not have; a caller refuses them first.
"""

# pyarrow has no type information, so what comes from it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportAttributeAccessIssue=false

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from json.encoder import encode_basestring as quoted
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_assets.model.values.floats import double_text, float_text
from ticdc_assets.wire.byte_columns import Bits, Buffer, Flags, Ints, slices, spread, writing
from ticdc_assets.wire.value_forms import Form

_N = TypeVar("_N", np.dtype[np.float32], np.dtype[np.float64])

_QUOTED: Final = 0
_BARE: Final = 1
_NESTED: Final = 2
_CLOSINGS: Final = np.array(
    [{Form.NULL: _BARE, Form.ZONED: _NESTED}.get(form, _QUOTED) for form in Form]
)
"""By form: the text that ends a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """The values of images, image by image.

    Attributes:
        counts: how many values each image has.
        names: for each value the number of its name.
        spellings: the number of the text before its colon.
        spelled: these texts, by number: the name as a JSON text, and for the form ZONED everything
            up to the member of the value.
        forms: for each value its form.
        starts: where its slice starts, never before the slice before; 0 for none.
        ends: where its slice ends.
        signed: the numbers of that form, in their order.
        unsigned: the same.
        floats: the same, as finite numbers of 32 bits.
        doubles: the same, finite.
        wrong: values that the reference decoder should read; their images are undefined.
    """

    counts: Ints
    names: Ints
    spellings: Ints
    spelled: Sequence[str]
    forms: Ints
    starts: Ints
    ends: Ints
    signed: Ints
    unsigned: Bits
    floats: np.ndarray[Any, np.dtype[np.float32]]
    doubles: np.ndarray[Any, np.dtype[np.float64]]
    wrong: Flags


def finite(numbers: np.ndarray[Any, _N]) -> tuple[np.ndarray[Any, _N], Flags]:
    """Replace numbers that are not finite with 0; return `numbers`, and which were not finite."""
    others = ~np.isfinite(numbers)
    numbers[others] = 0
    return numbers, others


@dataclass(slots=True)
class Images:
    """Texts of images, in pieces.

    Attributes:
        pieces: the numbers of the pieces, image by image.
        firsts: the first piece of each image.
        counts: how many pieces it has.
        sources: arrays of pieces, numbered consecutively.
        sound: whether the image has its names once each, no wrong value, and can be written.
    """

    pieces: Ints
    firsts: Ints
    counts: Ints
    sources: "list[pa.Array[Any]]"
    sound: Flags


def images_of(buffer: Buffer, values: Values) -> Images:
    """Return the images of `values`, whose slices are in `buffer`."""
    total = len(values.names)
    firsts = np.cumsum(values.counts) - values.counts
    sound = _distinct_names(values)
    if values.wrong.any():
        sound[np.repeat(np.arange(len(values.counts)), values.counts)[values.wrong]] = False
    pool = _Pool()

    closings = _CLOSINGS[values.forms]
    ahead = np.empty(total, np.int64)
    ahead[1:] = closings[:-1]
    ahead[firsts[values.counts > 0]] = _FIRST
    before = pool.add(
        pa.array(
            [
                f"{between}{name}:{quote}"
                for name in values.spelled
                for between in _BETWEEN
                for quote in ('"', "")
            ],
            pa.binary(),
        )
    )
    texts = _value_pieces(buffer, values, sound, pool)

    counts = 2 * values.counts + 1
    starts = np.cumsum(counts) - counts
    pieces = np.empty(2 * total + len(counts), np.int64)
    places = 2 * np.arange(total) + np.repeat(np.arange(len(counts)), values.counts)
    pieces[places] = (
        before + values.spellings * (2 * len(_BETWEEN)) + 2 * ahead + (closings == _BARE)
    )
    pieces[places + 1] = texts
    ends = pool.add(pa.array(_ENDS, pa.binary()))
    kinds = np.full(len(counts), _EMPTY)
    some = np.flatnonzero(values.counts)
    kinds[some] = closings[firsts[some] + values.counts[some] - 1]
    pieces[starts + counts - 1] = ends + kinds
    return Images(pieces, starts, counts, pool.sources, sound)


_BETWEEN: Final = ('",', ",", '"},', "{")
"""The text before a name: by the end of the value before it, and at the start."""
_FIRST: Final = 3
_ENDS: Final = ('"}', "}", '"}}', "{}")
"""How an image ends: by the end of its last value, and without values."""
_EMPTY: Final = 3


@dataclass(slots=True)
class _Pool:
    """Arrays of pieces, numbered consecutively."""

    sources: "list[pa.Array[Any]]" = field(default_factory=list)
    size: int = 0

    def add(self, source: "pa.Array[Any]") -> int:
        """Add `source`, and return the number of its first piece."""
        first = self.size
        self.sources.append(source)
        self.size += len(source)
        return first


_LARGEST_TABLE: Final = 1 << 24


def _distinct_names(values: Values) -> Flags:
    """Return whether each image has each name at most once."""
    images, names = len(values.counts), max(1, len(values.spelled))
    owners = np.repeat(np.arange(images), values.counts)
    keys = owners * names + values.names
    if images * names <= _LARGEST_TABLE:
        seen = np.zeros(images * names, np.bool_)
        seen[keys] = True
        if np.count_nonzero(seen) == len(keys):
            return np.ones(images, np.bool_)
        found = np.count_nonzero(seen.reshape(images, names), axis=1)
    else:
        found = np.bincount(np.unique(keys) // names, minlength=images)
    return found == values.counts


def _value_pieces(buffer: Buffer, values: Values, sound: Flags, pool: _Pool) -> Ints:
    """Return for each value the piece of its text; `sound` is corrected on the way."""
    forms = values.forms
    found = np.full(len(forms), pool.add(pa.array([b"null"], pa.binary())))

    def written(form: Form, texts: "pa.Array[Any]") -> None:
        if len(texts):
            found[forms == form] = pool.add(texts) + np.arange(len(texts))

    places = np.flatnonzero((forms == Form.TEXT) | (forms == Form.ZONED))
    starts, ends = values.starts[places], values.ends[places]
    if len(places):
        found[places] = pool.add(slices(buffer, starts, ends)) + np.arange(1, 2 * len(places), 2)
        escaped = np.flatnonzero(_has_escapes(buffer, starts, ends))
        if len(escaped):
            texts, failed = _escaped(buffer, starts[escaped], ends[escaped])
            found[places[escaped]] = pool.add(texts) + np.arange(len(escaped))
            if failed:
                owners = np.repeat(np.arange(len(values.counts)), values.counts)
                sound[owners[places[escaped[failed]]]] = False

    places = np.flatnonzero(forms == Form.BASE64)
    if len(places):
        written(Form.BASE64, base64_texts(buffer, values.starts[places], values.ends[places]))
    written(Form.SIGNED, _as_text(values.signed))
    written(Form.UNSIGNED, _as_text(values.unsigned))
    written(Form.FLOAT, float_texts(values.floats))
    written(Form.DOUBLE, double_texts(values.doubles))
    return found


def base64_texts(buffer: Buffer, starts: Ints, ends: Ints) -> "pa.Array[Any]":
    """Return ranges of bytes in base64."""
    from ticdc_assets.wire import image_loops

    bounds = np.cumsum((ends - starts + 2) // 3 * 4)
    written = writing(int(bounds[-1]) if len(bounds) else 0)
    image_loops.base64_texts(buffer.octets, starts, ends, written.octets)
    return written.texts(bounds).cast(pa.binary())


def _has_escapes(buffer: Buffer, starts: Ints, ends: Ints) -> Flags:
    """Return whether JSON escapes a byte of each range."""
    from ticdc_assets.wire import image_loops

    found = np.empty(len(starts), np.bool_)
    image_loops.escapes(buffer.octets, starts, ends, found)
    return found


def _escaped(buffer: Buffer, starts: Ints, ends: Ints) -> "tuple[pa.Array[Any], list[int]]":
    """Return texts in JSON without their quotes, and the numbers of those that are not UTF-8."""
    raw = buffer.octets.data
    texts: list[str] = []
    failed: list[int] = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        try:
            texts.append(quoted(str(raw[start:end], "utf-8"))[1:-1])
        except UnicodeDecodeError:
            failed.append(len(texts))
            texts.append("")
    return pa.array(texts, pa.string()).cast(pa.binary()), failed


def _as_text(numbers: np.ndarray[Any, Any]) -> "pa.Array[Any]":
    return pa.array(numbers).cast(pa.string()).cast(pa.binary())


def float_texts(numbers: np.ndarray[Any, np.dtype[np.float32]]) -> "pa.Array[Any]":
    """Return the canonical texts of finite FLOATs."""
    return _floating_texts(numbers, numbers.view(np.uint32) & 0x7F_FFFF == 0, float_text)


def double_texts(numbers: np.ndarray[Any, np.dtype[np.float64]]) -> "pa.Array[Any]":
    """Return the canonical texts of finite DOUBLEs."""
    return _floating_texts(numbers, numbers.view(np.uint64) << np.uint64(12) == 0, double_text)


def _floating_texts(
    numbers: np.ndarray[Any, Any], powers: Flags, text: Callable[[float], str]
) -> "pa.Array[Any]":
    texts = pa.array(numbers).cast(pa.string())
    # Around a power of two the numbers below are closer than those above.
    others = (powers & (numbers != 0)) | pc.match_substring(texts, "e").to_numpy(
        zero_copy_only=False
    )
    if others.any():
        replaced = [text(number) for number in numbers[others].tolist()]
        texts = pc.replace_with_mask(texts, pa.array(others), pa.array(replaced, pa.string()))
    return texts.cast(pa.binary())


def image_column(images: Images, numbers: Ints) -> "tuple[pa.Array[Any], Ints]":
    """Return a column of images, and the numbers of its rows that are not UTF-8.

    Args:
        images: the images.
        numbers: for each row the number of its image, -1 for none.
    """
    # -1 means one more image, without pieces.
    firsts, counts = np.append(images.firsts, 0), np.append(images.counts, 0)
    chosen = counts[numbers]
    order = images.pieces[spread(firsts[numbers], chosen)]
    pool = pa.concat_arrays(images.sources)
    taken = pool.take(pa.array(order))
    bounds = np.zeros(len(numbers) + 1, np.int64)
    np.cumsum(chosen, out=bounds[1:])
    _, raw_offsets, content = taken.buffers()
    if content is None:
        content = pa.py_buffer(b"")
    offsets = np.frombuffer(raw_offsets, np.int32, count=len(taken) + 1)[bounds]
    valid = np.packbits(numbers >= 0, bitorder="little")
    buffers = [pa.py_buffer(valid), pa.py_buffer(offsets), content]
    wrong = np.empty(0, np.int64)
    # A slice of text is within the text: the whole is UTF-8 if all of it as one text is.
    whole = np.array([offsets[0], offsets[-1]], np.int32)
    try:
        pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(whole), content]).cast(
            pa.string()
        )
    except pa.ArrowInvalid:
        rows = pa.Array.from_buffers(pa.binary(), len(numbers), buffers).to_pylist()
        wrong = np.array(
            [number for number, row in enumerate(rows) if row is not None and not _is_utf8(row)],
            np.int64,
        )
    return pa.Array.from_buffers(pa.string(), len(numbers), buffers), wrong


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
