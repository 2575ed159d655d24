"""Messages that differ from TiCDC's in bytes alone are read as those that they were."""

import json
from collections.abc import Sequence
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ticdc_assets.wire import WireFormat, canal_json_batch, simple_json_batch
from ticdc_assets.wire.batch import decode_batch
from ticdc_assets.wire.json_rewriting import Members, with_rewritten
from ticdc_assets.wire.record import Record
from ticdc_assets.wire.rows import RegularRows
from ticdc_assets_tests.wire import golden
from ticdc_assets_tests.wire.comparing import assert_equal, batch_decoded, batch_of
from ticdc_assets_tests.wire.differing import Difference, differing
from ticdc_assets_tests.wire.simple_messages import DELETE, INSERT, WATERMARK
from ticdc_assets_tests.wire.test_json_loops import (
    CANAL_DELETE,
    CANAL_INSERT,
    CANAL_UPDATE,
    DECODERS,
    SIMPLE_UPDATE,
)

SIMPLE, CANAL = WireFormat.SIMPLE_JSON, WireFormat.CANAL_JSON
MEMBERS = {SIMPLE: simple_json_batch.MEMBERS, CANAL: canal_json_batch.MEMBERS}
PLAIN = [
    *((SIMPLE, value) for value in (INSERT, SIMPLE_UPDATE, DELETE, WATERMARK)),
    *((CANAL, value) for value in (CANAL_INSERT, CANAL_UPDATE, CANAL_DELETE)),
]


def written_again(wire_format: WireFormat, values: Sequence[bytes | None]) -> dict[int, bytes]:
    """Return the new texts of those that have one, by number."""
    texts: list[bytes] = []

    def kept(batch: pa.RecordBatch) -> RegularRows:
        texts.extend(batch.column("value").to_pylist())
        return RegularRows(sources=np.arange(batch.num_rows), columns={})

    found = with_rewritten(batch_of(values), None, MEMBERS[wire_format], kept)
    return {} if found is None else dict(zip(found.sources.tolist(), texts, strict=True))


def other_of(wire_format: WireFormat, value: bytes, *differences: Difference) -> bytes:
    record = Record(key=None, value=value)
    for difference in differences:
        record = differing(record, wire_format, difference)
    assert record.value is not None
    return record.value


@pytest.mark.parametrize("difference", Difference)
@pytest.mark.parametrize(("wire_format", "value"), PLAIN)
def test_the_new_text_is_that_of_ticdc(
    wire_format: WireFormat, value: bytes, difference: Difference
) -> None:
    for another in Difference:
        other = other_of(wire_format, value, difference, another)
        assert written_again(wire_format, [other]) == ({} if other == value else {0: value})
        assert batch_decoded([other], wire_format) == batch_decoded([value], wire_format)


@golden.needs_golden
@pytest.mark.parametrize("difference", Difference)
@pytest.mark.parametrize(
    ("wire_format", "folder"), [(SIMPLE, "simple-json/shop"), (CANAL, "canal-json/shop")]
)
@pytest.mark.thorough
def test_plain_golden_messages_are_plain_again(
    wire_format: WireFormat, folder: str, difference: Difference
) -> None:
    values = [message.value for message in golden.messages(folder)]
    regular = DECODERS[wire_format](batch_of(values))
    assert regular is not None
    same = [values[number] or b"" for number in regular.sources.tolist()]
    others = [other_of(wire_format, value, difference) for value in same]
    assert written_again(wire_format, others) == {
        number: value for number, value in enumerate(same) if others[number] != value
    }


def test_what_is_plain_or_another_message_is_not_written_again() -> None:
    assert not written_again(SIMPLE, [INSERT, WATERMARK, None, b"", b" ", b"{}", b"[]", b"1"])
    assert not written_again(CANAL, [CANAL_INSERT, CANAL_UPDATE, CANAL_DELETE])
    for name in MEMBERS[SIMPLE].others:
        assert not written_again(
            SIMPLE, [INSERT.replace(b'"data"', b'"%s":1, "data"' % name.encode())]
        )
    for old in (
        b'"commitTs":',
        b'"watermarkTs":1, "commitTs":',
        b'"onlyHandleKey":true,"commitTs":',
    ):
        value = CANAL_INSERT.replace(b'"commitTs":', old)
        assert not written_again(CANAL, [value])
        assert_equal([value], CANAL)


@pytest.mark.thorough
def test_rows_keep_the_order_of_their_records() -> None:
    """Regular ones, such that are written again, and all others."""
    blank = other_of(CANAL, CANAL_UPDATE, Difference.BLANKS)
    late = other_of(CANAL, CANAL_INSERT, Difference.NESTED)
    cut = CANAL_DELETE.replace(b'"commitTs"', b'"onlyHandleKey":true,"commitTs"')
    kinds = (CANAL_INSERT, blank, cut, b"{", None, late)
    for values in (*product(kinds, repeat=3), kinds, kinds[::-1], kinds * 50):
        assert_equal(values, CANAL)
        offsets = decode_batch(CANAL, batch_of(values)).column("offset").to_pylist()
        assert offsets == list(range(1000, 1000 + len(values)))


def placed(value: bytes) -> list[bytes]:
    """Return a message with each member behind each other one, once more or elsewhere."""
    members = json.loads(value, object_pairs_hook=lambda pairs: pairs)
    names = [name.encode() for name, _ in members]
    found: list[bytes] = []
    for name in names:
        start = value.index(b'"%s":' % name)
        for odd in (
            b'"%s":null' % name,
            b'"%s":1' % name,
            b'"%s":{"commitTs":1}' % name,
            b'"%s" : [{"id":"7"}]' % name,
            b'"\\u%04x%s":null' % (name[0], name[1:]),
            b'"%s":null' % name.upper(),
            b'"%sx":null' % name,
            b'"%s":null' % name[:-1],
            b'"":null',
        ):
            found.append(value[:start] + odd + b"," + value[start:])
            found.append(value[:-1] + b"," + odd + value[-1:])
        found.append(value.replace(b'"%s":' % name, b'"%sx":' % name))
        found.append(value.replace(b'"%s":' % name, b'"%s":1,"%s":' % (name, name)))
    return found


@pytest.mark.parametrize(("wire_format", "value"), PLAIN)
def test_members_twice_or_under_other_names(wire_format: WireFormat, value: bytes) -> None:
    assert_equal(placed(value), wire_format)


BYTES = b'"\\\0\x1f/0919-.,:{}[]ntue \x80\xc3\xed\xf4\xff'


@pytest.mark.parametrize(
    "differences",
    [
        (Difference.NESTED, Difference.MIDDLE, Difference.ORDER),
        (Difference.LAST, Difference.NESTED, Difference.BLANKS),
    ],
)
@pytest.mark.parametrize(("wire_format", "value"), PLAIN)
@pytest.mark.thorough
def test_damage_anywhere(
    wire_format: WireFormat, value: bytes, differences: tuple[Difference, ...]
) -> None:
    other = other_of(wire_format, value, *differences)
    damaged = [
        other[:place] + bytes((byte,)) + other[place + 1 :]
        for place in range(len(other))
        for byte in BYTES[place % 5 :: 5]
    ]
    cut = [part for place in range(len(other)) for part in (other[:place], other[place:])]
    gone = [other[:place] + other[place + 1 :] for place in range(len(other))]
    assert_equal([*damaged, *cut, *gone, other], wire_format)


BLANKS = st.text(" \t\n\r", max_size=2).map(str.encode) | st.just(b"")
TEXTS = st.sampled_from(
    [b'""', b'"a"', b'"\\u0041\\n"', b'"\\ud83d\\ude00"', b'"\\ud83d"', b'"\xc3\xa9"', b'"]}"']
)
SCALARS = TEXTS | st.sampled_from(
    [b"0", b"-0", b"1", b"-1.5e+30", b"9" * 30, b"true", b"false", b"null", b"01", b"1.", b"nul"]
)


@st.composite
def arrays(draw: st.DrawFn, values: st.SearchStrategy[bytes]) -> bytes:
    items = draw(st.lists(values, max_size=3))
    blanked = [draw(BLANKS) + item + draw(BLANKS) for item in items]
    return b"[" + (b",".join(blanked) or draw(BLANKS)) + b"]"


@st.composite
def objects(draw: st.DrawFn, values: st.SearchStrategy[bytes]) -> bytes:
    items = draw(st.lists(st.tuples(TEXTS, values), max_size=3))
    return joined(draw, items)


def joined(draw: st.DrawFn, members: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return an object with blanks wherever there may be some."""
    blanked = [
        b"".join((draw(BLANKS), name, draw(BLANKS), b":", draw(BLANKS), value, draw(BLANKS)))
        for name, value in members
    ]
    return b"{" + (b",".join(blanked) or draw(BLANKS)) + b"}"


@st.composite
def composed(draw: st.DrawFn, members: Sequence[tuple[bytes, bytes]]) -> bytes:
    return draw(BLANKS) + joined(draw, members) + draw(BLANKS)


ANY_JSON = st.recursive(SCALARS, lambda inner: arrays(inner) | objects(inner), max_leaves=6)


def members_of(value: bytes) -> list[tuple[bytes, bytes]]:
    """Return names and values as they stand in a message, which has no blanks."""
    return [
        (json.dumps(name).encode(), json.dumps(item, separators=(",", ":")).encode())
        for name, item in json.loads(value).items()
    ]


@settings(deadline=None)
@given(st.data(), st.sampled_from(PLAIN))
def test_members_in_any_order_among_any_others(
    data: st.DataObject, regular: tuple[WireFormat, bytes]
) -> None:
    wire_format, value = regular
    members = data.draw(st.permutations(members_of(value)))
    names = st.sampled_from([name for name, _ in members]) | TEXTS
    new = data.draw(st.lists(st.tuples(names, ANY_JSON), max_size=3))
    for item in new:
        members.insert(data.draw(st.integers(0, len(members))), item)
    drawn = data.draw(composed(members))
    assert_equal([drawn, value], wire_format)
    texts = written_again(wire_format, [drawn])
    if texts:
        assert batch_decoded([texts[0]], wire_format) == batch_decoded([drawn], wire_format)


@pytest.mark.parametrize("opened", [b"[", b'{"a":', b'{"a" : ', b"[1, "])
def test_depth(opened: bytes) -> None:
    closed = b"]" if opened[:1] == b"[" else b"}"
    values = [
        INSERT.replace(b'"data":', b'"new":' + opened * depth + b"1" + closed * depth + b',"data":')
        for depth in (*range(57, 65), *range(96, 103), 1000)
    ]
    assert_equal(values)
    assert written_again(SIMPLE, values).keys() == {0, 1, 2, 3}


def test_members_may_be_told_apart_by_any_names() -> None:
    """A name that begins or ends as another one is another."""
    members = Members(regular=("a", "ab", "b"), others=("abc",))
    values = [b'{ "b":1,"ab":2,"a":3}', b'{"abc":1,"a":2 }', b'{"abcd":1,"a":2}', b'{"c":[{}]}']
    texts: list[bytes] = []

    def kept(batch: pa.RecordBatch) -> RegularRows:
        texts.extend(batch.column("value").to_pylist())
        return RegularRows(sources=np.arange(batch.num_rows), columns={})

    found = with_rewritten(batch_of(values), None, members, kept)
    assert found is not None
    assert found.sources.tolist() == [0, 2, 3]
    assert texts == [b'{"a":3,"ab":2,"b":1}', b'{"a":2}', b"{}"]
