"""What a later TiCDC may write in other bytes means the same, and does not take the long way."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ticdc_assets.demo.simulator.encoders import encode
from ticdc_assets.model.events import Event
from ticdc_assets.wire import WireFormat
from ticdc_assets.wire.go_json import MAX_DEPTH
from ticdc_assets.wire.record import Record
from ticdc_assets_tests import strategies
from ticdc_assets_tests.wire import golden
from ticdc_assets_tests.wire.comparing import Outcome, assert_equal, batch_decoded, batch_of
from ticdc_assets_tests.wire.differing import Difference, differing
from ticdc_assets_tests.wire.test_json_batch import DECODERS

FORMATS = (WireFormat.SIMPLE_JSON, WireFormat.CANAL_JSON, WireFormat.OPEN_PROTOCOL)

FOLDERS = {
    **dict.fromkeys((*golden.SIMPLE_JSON, *golden.SIMPLE_JSON_OPTIONS), WireFormat.SIMPLE_JSON),
    **dict.fromkeys(
        ("canal-json/types", "canal-json-plain/types", "canal-json-updated/types"),
        WireFormat.CANAL_JSON,
    ),
    **dict.fromkeys(("open/types", "open-updated/types"), WireFormat.OPEN_PROTOCOL),
}


def assert_the_same(
    records: Sequence[Record], wire_format: WireFormat, differences: Sequence[Difference]
) -> list[Outcome]:
    """Assert that records mean what they mean in other bytes, and return that."""
    others = list(records)
    for difference in differences:
        others = [differing(record, wire_format, difference) for record in others]
    wanted = batch_decoded(records, wire_format)
    found = assert_equal(others, wire_format)
    for record, before, after in zip(
        others, wanted, batch_decoded(others, wire_format), strict=True
    ):
        if isinstance(before, list):  # an error may have another place
            assert before == after, record
    return found


@golden.needs_golden
@pytest.mark.parametrize("difference", Difference)
@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.thorough
def test_golden_messages_mean_the_same_in_other_bytes(folder: str, difference: Difference) -> None:
    records = [Record(key=message.key, value=message.value) for message in golden.messages(folder)][
        :400
    ]
    assert any(
        isinstance(outcome, list)
        for outcome in assert_the_same(records, FOLDERS[folder], [difference])
    )


differences = st.lists(st.sampled_from(Difference), min_size=1, max_size=3)


@settings(deadline=None)
@given(st.lists(strategies.events, min_size=1, max_size=4), differences)
def test_generated_messages_mean_the_same_in_other_bytes(
    events: list[Event], chosen: list[Difference]
) -> None:
    records = encode(WireFormat.SIMPLE_JSON, events)
    outcomes = assert_the_same(records, WireFormat.SIMPLE_JSON, chosen)
    assert outcomes == [[event] for event in events]


DOCUMENTS = {
    WireFormat.SIMPLE_JSON: (
        b'{"version":1,"database":"d","table":"t","tableID":7,"type":"UPDATE","commitTs":9,'
        b'"buildTs":8,"schemaVersion":6,"handleKeyOnly":true,"checksum":{"version":1,'
        b'"corrupted":false,"current":1,"previous":2},"data":{"a":"1","b":null,"c":{"location":'
        b'"UTC","value":"2020-01-01 00:00:00"}},"old":{"a":"2"}}',
        b'{"version":1,"type":"WATERMARK","commitTs":9,"buildTs":8}',
    ),
    WireFormat.CANAL_JSON: (
        b'{"id":0,"database":"d","table":"t","pkNames":["a"],"isDdl":false,"type":"UPDATE","es":5,'
        b'"ts":6,"sql":"","sqlType":{"a":4,"b":2004},"mysqlType":{"b":"blob","a":"int"},'
        b'"old":[{"a":"2"}],"data":[{"a":"1","b":"\xc3\xa9"}],"_tidb":{"commitTs":9,'
        b'"onlyHandleKey":true}}',
        b'{"id":0,"database":"","table":"","pkNames":null,"isDdl":false,"type":"TIDB_WATERMARK",'
        b'"es":5,"ts":6,"sql":"","sqlType":null,"mysqlType":null,"data":null,"old":null,'
        b'"_tidb":{"watermarkTs":9}}',
    ),
    WireFormat.OPEN_PROTOCOL: (
        b'{"u":{"a":{"t":3,"h":true,"f":11,"v":1},"b":{"t":252,"f":65,"v":"YQ=="}},'
        b'"p":{"a":{"t":3,"h":true,"f":11,"v":2}}}',
    ),
}
"""Messages that msgspec reads whatever stands in a member that nobody knows."""


def record_of(wire_format: WireFormat, document: bytes, key: bytes | None = None) -> Record:
    if wire_format is not WireFormat.OPEN_PROTOCOL:
        return Record(key=None, value=document)
    key = key or b'{"ts":9,"scm":"d","tbl":"t","t":1}'
    return Record(
        key=(1).to_bytes(8) + len(key).to_bytes(8) + key,
        value=len(document).to_bytes(8) + document,
    )


CASES = [
    pytest.param(wire_format, document, id=f"{wire_format}-{number}")
    for wire_format, documents in DOCUMENTS.items()
    for number, document in enumerate(documents)
]


@pytest.mark.parametrize("difference", Difference)
@pytest.mark.parametrize(("wire_format", "document"), CASES)
def test_no_harmless_difference_takes_the_long_way(
    wire_format: WireFormat, document: bytes, difference: Difference
) -> None:
    """The long way means the same, so only this sees a short way that is never taken."""
    record = differing(record_of(wire_format, document), wire_format, difference)
    exact = DECODERS[wire_format](batch_of([record]))
    assert exact is not None
    assert isinstance(batch_decoded([record], wire_format)[0], list)


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
@pytest.mark.parametrize(("wire_format", "document"), CASES)
@pytest.mark.thorough
def test_what_nobody_reads_is_refused_as_the_reference_does(
    wire_format: WireFormat, document: bytes, unread: bytes
) -> None:
    records = [record_of(wire_format, text) for text in with_unread(document, unread)]
    if wire_format is WireFormat.OPEN_PROTOCOL:
        key = b'{"ts":9,"scm":"d","tbl":"t","t":1}'
        records += [record_of(wire_format, document, text) for text in with_unread(key, unread)]
    assert_equal(records, wire_format)


_TOKENS = st.sampled_from(
    b'{ } [ ] , : " \\ null 1 -1.5e3 \n \t \xc3\xa9 \xff \\u0041 "a": "a" "\\ud83d" true'.split(
        b" "
    )
)


@settings(deadline=None)
@given(st.data(), st.lists(_TOKENS, max_size=12).map(b"".join) | st.binary(max_size=12))
def test_any_bytes_where_nobody_reads(data: st.DataObject, unread: bytes) -> None:
    wire_format = data.draw(st.sampled_from(FORMATS))
    document = data.draw(st.sampled_from(DOCUMENTS[wire_format]))
    records = [record_of(wire_format, text) for text in with_unread(document, unread)]
    assert_equal(records, wire_format)
