"""Messages that differ from TiCDC's in bytes alone are read as those that they were."""

import json
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.wire import WireFormat
from ticdc_assets.wire.batch import BATCH_READERS
from ticdc_assets.wire.codes import MAX_DEPTH
from ticdc_assets.wire.record import Record
from ticdc_assets_tests.wire import golden
from ticdc_assets_tests.wire.comparing import (
    Input,
    Outcome,
    assert_equal,
    batch_decoded,
    batch_of,
    record_of,
)
from ticdc_assets_tests.wire.differing import Difference, differing
from ticdc_assets_tests.wire.open.test_messages import record as open_record
from ticdc_assets_tests.wire.simple.messages import INSERT
from ticdc_assets_tests.wire.test_json_batch import (
    OPEN,
    OPEN_DELETE,
    OPEN_KEY,
    OPEN_OLD,
    OPEN_PARTITION_KEY,
    OPEN_VALUE,
    PLAIN,
)

SIMPLE, CANAL = WireFormat.SIMPLE_JSON, WireFormat.CANAL_JSON
OPEN_FORMAT = WireFormat.OPEN_PROTOCOL
IN_ONE_TEXT = [
    (wire_format, record.value or b"")
    for wire_format, record in PLAIN
    if wire_format != OPEN_FORMAT
]
FOLDERS = {
    **dict.fromkeys(golden.SIMPLE_JSON, SIMPLE),
    **dict.fromkeys(
        (
            f"canal-json{variant}"
            for variant in ("/shop", "/types", "-plain/types", "-updated/types")
        ),
        CANAL,
    ),
    **dict.fromkeys(("open/shop", "open/types", "open-updated/types"), OPEN_FORMAT),
}


def read_at_once(wire_format: WireFormat, values: Sequence[Input]) -> list[int]:
    """Return the numbers of the records that need no reference."""
    exact = BATCH_READERS[wire_format](batch_of(values))
    return np.unique(exact.sources).tolist()


def other_of(wire_format: WireFormat, value: Input, *differences: Difference) -> Record:
    record = record_of(value)
    for difference in differences:
        record = differing(record, wire_format, difference)
    return record


@pytest.mark.parametrize("difference", Difference)
@pytest.mark.parametrize(("wire_format", "record"), PLAIN)
def test_what_differs_in_bytes_alone_means_the_same(
    wire_format: WireFormat, record: Record, difference: Difference
) -> None:
    for another in Difference:
        other = other_of(wire_format, record, difference, another)
        assert read_at_once(wire_format, [other]) == [0]
        meant = batch_decoded([record], wire_format)
        if wire_format is not OPEN_FORMAT:
            assert batch_decoded([other], wire_format) == meant
        assert_equal([other], wire_format)


def assert_the_same(
    records: Sequence[Record], wire_format: WireFormat, *differences: Difference
) -> list[Outcome]:
    """Assert that records mean the same in other bytes, read as fast; return what they mean."""
    others = [other_of(wire_format, record, *differences) for record in records]
    assert {*read_at_once(wire_format, records)} <= {*read_at_once(wire_format, others)}
    outcomes = assert_equal(others, wire_format)
    before, after = batch_decoded(records, wire_format), batch_decoded(others, wire_format)
    for record, meant, means in zip(others, before, after, strict=True):
        if isinstance(meant, list):  # an error may have another place
            assert means == meant, record
    return outcomes


@golden.needs_golden
@pytest.mark.parametrize("difference", Difference)
@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.thorough
def test_golden_messages_mean_the_same_in_other_bytes(folder: str, difference: Difference) -> None:
    wire_format, most = FOLDERS[folder], None if folder.endswith("/shop") else 400
    records = golden.records(folder)[:most]
    assert read_at_once(wire_format, records)
    assert_the_same(records, wire_format, difference)


ENDLESS = (
    *(b"[" * depth + b"]" * depth for depth in (MAX_DEPTH - 1, MAX_DEPTH)),
    *(b"[" * 2_000, b'{"a":' * 2_000, b"9" * 2_000, b"-0." + b"9" * 2_000, b"1e" + b"9" * 2_000),
)
"""Depth and digits that nothing needs."""


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
            *(b'"%s":%s' % (name, odd) for odd in ENDLESS),
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


@pytest.mark.parametrize(("wire_format", "value"), IN_ONE_TEXT)
def test_members_twice_or_under_other_names(wire_format: WireFormat, value: bytes) -> None:
    assert_equal(placed(value), wire_format)


@pytest.mark.thorough
def test_members_of_open_protocol_twice_or_under_other_names() -> None:
    column, shown = b'{"t":3,"f":0,"v":1}', b'{"d":{"a":%s}}'
    records = [open_record((key, OPEN_DELETE)) for key in placed(OPEN_PARTITION_KEY)]
    records += [open_record((OPEN_KEY, value)) for value in placed(OPEN_VALUE)]
    records += [open_record((OPEN_KEY, value)) for value in placed(OPEN_OLD)]
    records += [open_record((OPEN_KEY, shown % other)) for other in placed(column)]
    assert_equal(records, OPEN_FORMAT)


def test_records_of_open_protocol_are_read_at_once_as_a_whole_or_not_at_all() -> None:
    plain, blank = (OPEN_KEY, OPEN_DELETE), (OPEN_KEY + b" ", OPEN_DELETE)
    odd = (OPEN_KEY, OPEN_DELETE + b" ,")
    records = [
        open_record(*parts)
        for parts in [(plain, blank), (blank, odd), (odd, blank), (blank, plain), (plain, plain)]
    ]
    assert read_at_once(OPEN_FORMAT, records) == [0, 3, 4]
    assert_equal(records, OPEN_FORMAT)
    for key, value in ((b"", b""), (None, None), (b"\0" * 7, b" "), (records[0].key, b"")):
        assert not read_at_once(OPEN_FORMAT, [Record(key=key, value=value)])


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


@given(st.data(), st.sampled_from(IN_ONE_TEXT))
def test_members_in_any_order_among_any_others(
    data: st.DataObject, exact: tuple[WireFormat, bytes]
) -> None:
    wire_format, value = exact
    members = data.draw(st.permutations(members_of(value)))
    names = st.sampled_from([name for name, _ in members]) | TEXTS
    new = data.draw(st.lists(st.tuples(names, ANY_JSON), max_size=3))
    for item in new:
        members.insert(data.draw(st.integers(0, len(members))), item)
    drawn = data.draw(composed(members))
    assert_equal([drawn, value], wire_format)


OPEN_COLUMNS = st.lists(
    st.tuples(
        st.sampled_from([b'"a"', b'"b"', b'"c d"', b'"\xc3\xa9"', b'"\\u0061"', b'""']),
        st.sampled_from([(b"3", b"-1"), (b"3", b"null"), (b"15", b'"x]\\n"'), (b"5", b"1.5")]),
        st.sampled_from([[], [(b'"h"', b"true")], [(b'"h"', b"false")]]),
    ),
    min_size=1,
    max_size=3,
)


@given(st.data())
def test_rows_of_open_protocol_in_any_order_among_any_others(data: st.DataObject) -> None:
    def drawn(members: Sequence[tuple[bytes, bytes]], most: int) -> bytes:
        own = data.draw(st.permutations(members))
        names = st.sampled_from([name for name, _ in members]) | TEXTS
        for item in data.draw(st.lists(st.tuples(names, ANY_JSON), max_size=most)):
            own.insert(data.draw(st.integers(0, len(own))), item)
        return data.draw(composed(own))

    def image() -> bytes:
        columns = [
            (name, drawn([(b'"t"', code), *key, (b'"f"', b"1"), (b'"v"', value)], 1))
            for name, (code, value), key in data.draw(OPEN_COLUMNS)
        ]
        return data.draw(composed(columns))

    parts: list[tuple[bytes, bytes]] = []
    for _ in range(data.draw(st.integers(1, 2))):
        names = data.draw(st.sampled_from([b"u", b"d", b"up"]))
        parts.append(
            (
                drawn(members_of(data.draw(st.sampled_from([OPEN_KEY, OPEN_PARTITION_KEY]))), 1),
                drawn([(b'"%c"' % name, image()) for name in names], 1),
            )
        )
    record = open_record(*parts)
    assert_equal([record, *OPEN], OPEN_FORMAT)


@pytest.mark.parametrize("opened", [b"[", b'{"a":', b'{"a" : ', b"[1, "])
def test_depth(opened: bytes) -> None:
    closed = b"]" if opened[:1] == b"[" else b"}"
    values = [
        INSERT.replace(b'"data":', b'"new":' + opened * depth + b"1" + closed * depth + b',"data":')
        for depth in (*range(57, 65), *range(96, 103), 1000)
    ]
    assert_equal(values)
    # The new member is in an object.
    most = MAX_DEPTH - 1
    depths = [*range(57, 65), *range(96, 103), 1000]
    assert read_at_once(SIMPLE, values) == [
        number for number, depth in enumerate(depths) if depth <= most
    ]


UNREAD = [
    *(b"01", b"1.", b".5", b"+1", b"-", b"1e", b"1e+", b"0x1", b"NaN", b"-Infinity", b"1e999"),
    *(b"-0", b"9" * 5000, b"-1.5E-7", b"tru", b"nul", b"TRUE", b"'a'", b'"a', b"", b"{,}", b"[1,]"),
    *(b'{"a":1,}', b'{"a" 1}', b"{1:2}", b'{"a":1 "b":2}', b"[1 2]", b"[}", b"{]", b"]", b"}"),
    *(b'"\\ud83d"', b'"\\ude00\\ud83d"', b'"\\ud83d\\ude00"', b'"\\x"', b'"\\u12"', b'"\\"'),
    *(b'"\t"', b'"\n"', b'"\0"', b'"\x7f"', b'"\\/"', b"\xef\xbb\xbf1", b"//1\n2", b"/**/1"),
    *(b'"\xff"', b'"\xc3"', b'"\xed\xa0\x80"', b'"\xc0\x80"', b'{"\xff":1}', b'"\xf4\x90\x80\x80"'),
    *(b'{"\\ud83d":1}', b'{"a":1,"a":[2]}', b"\x0c1", b"\xc2\xa01", b'"\\\\"', b'"[{\\"[{"'),
    *(b"[" * depth + b"]" * depth for depth in range(MAX_DEPTH - 4, MAX_DEPTH + 3)),
    *(b'{"a":' * depth + b"1" + b"}" * depth for depth in range(MAX_DEPTH - 4, MAX_DEPTH + 3)),
    *(b'["]",' * depth + b"1" + b"]" * depth for depth in range(MAX_DEPTH - 4, MAX_DEPTH + 3)),
    *(b'["[\\"",' * depth + b"1" + b"]" * depth for depth in range(MAX_DEPTH - 4, MAX_DEPTH + 3)),
    *(b"[[1]," * 3 * MAX_DEPTH + b"1" + b"]" * 3 * MAX_DEPTH, b"[" + b"[]," * 500 + b"[]]"),
    *(b"[" * 20_000, b'{"a":' * 20_000, b"9" * 20_000, b'"' + b"x" * 200_000 + b'"'),
]
"""What may stand where nobody looks; the reference takes some of it."""


def with_unread(document: bytes, unread: bytes) -> list[bytes]:
    """Return a document with a new member of each object, at its begin and at its end."""
    found: list[bytes] = []
    for place, byte in enumerate(document):
        if byte == ord("{") and document[place + 1 : place + 2] == b'"':
            found.append(document[: place + 1] + b'"new":' + unread + b"," + document[place + 1 :])
        elif byte == ord("}"):
            found.append(document[:place] + b',"new":' + unread + document[place:])
    return found


@pytest.mark.parametrize("unread", UNREAD, ids=lambda text: repr(text[:12]))
@pytest.mark.thorough
def test_what_nobody_reads_is_refused_as_the_reference_does(unread: bytes) -> None:
    for wire_format, value in IN_ONE_TEXT:
        assert_equal(with_unread(value, unread), wire_format)
    assert_equal(open_with_unread(unread), OPEN_FORMAT)


def open_with_unread(unread: bytes) -> list[Record]:
    """Return records with a new member in each object of a key and of a value."""
    keys = with_unread(OPEN_PARTITION_KEY, unread)
    records = [open_record((key, OPEN_DELETE)) for key in keys]
    return [*records, *(open_record((OPEN_KEY, value)) for value in with_unread(OPEN_OLD, unread))]
