"""Any bytes give events or a `WireError`, from both decoders alike: nothing else, and no hang."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ticdc_assets.wire.go_json import MAX_DEPTH
from ticdc_assets_tests.wire import golden
from ticdc_assets_tests.wire.comparing import assert_equal
from ticdc_assets_tests.wire.simple_messages import (
    BOOTSTRAP,
    DDL,
    DELETE,
    EVENTS,
    INSERT,
    UPDATE,
    WATERMARK,
)

SMALL = (INSERT, UPDATE, DELETE, WATERMARK)
"""Messages of which every bit can be tried."""

NAMES = {message: f"{number}" for number, message in enumerate(EVENTS)}


@pytest.mark.parametrize("message", EVENTS, ids=NAMES.get)
def test_every_truncation_is_refused(message: bytes) -> None:
    outcomes = assert_equal([message[:length] for length in range(len(message))])
    assert all(isinstance(outcome, tuple) for outcome in outcomes)


@pytest.mark.parametrize("message", SMALL, ids=NAMES.get)
def test_every_missing_beginning_is_refused(message: bytes) -> None:
    outcomes = assert_equal([message[start:] for start in range(1, len(message))])
    assert all(isinstance(outcome, tuple) for outcome in outcomes)


@pytest.mark.parametrize("message", SMALL, ids=NAMES.get)
def test_every_flipped_bit_gives_events_or_an_error(message: bytes) -> None:
    values: list[bytes] = []
    for place in range(len(message)):
        for bit in range(8):
            flipped = bytearray(message)
            flipped[place] ^= 1 << bit
            values.append(bytes(flipped))
    outcomes = assert_equal(values)
    assert any(isinstance(outcome, tuple) for outcome in outcomes)
    assert any(isinstance(outcome, list) for outcome in outcomes)


@pytest.mark.parametrize("message", EVENTS, ids=NAMES.get)
@pytest.mark.parametrize("tail", [b"\x00", b"{", b"}", b"{}", b",", b"null", b"\xff", b"\xc2\xa0"])
def test_trailing_bytes_are_seen(message: bytes, tail: bytes) -> None:
    outcomes = assert_equal(
        [message + tail, message + b" " + tail, message + message, tail + message]
    )
    assert all(isinstance(outcome, tuple) for outcome in outcomes)


def test_trailing_blanks_are_none() -> None:
    values = [message + b" \t\r\n" for message in EVENTS]
    assert assert_equal(values) == [[event] for event in EVENTS.values()]


WRONG = (
    b"\xff",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xf5\x80\x80\x80",
    b"\xc3",
    b"\x00",
    b"\x1f",
    b"\n",
    b'"',
    b"\\",
    b"\\ud800",
    b"\\u12",
    b"\xef\xbb\xbf",
    b"[[",
    b"{",
    b"9" * 30,
    b"e5",
    b".0",
    b"NaN",
    b"-Infinity",
)


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
@pytest.mark.thorough
def test_wrong_bytes_in_every_place(wrong: bytes) -> None:
    values = [
        message[:place] + wrong + message[place:]
        for message in SMALL
        for place in range(len(message) + 1)
    ]
    assert_equal(values)


INVALID_UTF8 = (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80")


@pytest.mark.parametrize("wrong", INVALID_UTF8, ids=repr)
def test_what_is_no_utf8_is_refused_in_every_place(wrong: bytes) -> None:
    twice = b'{"data":"thrown away",' + INSERT[1:]
    values = [
        message[:place] + wrong + message[place:]
        for message in (*EVENTS, twice)
        for place in range(0, len(message) + 1, 3)
    ]
    outcomes = assert_equal(values)
    assert {outcome[0] for outcome in outcomes} == {"invalid_utf8"}


DEEP = {
    "arrays": b"[" * 100_000,
    "objects": b'{"a":' * 100_000,
    "closed": b"[" * 100_000 + b"]" * 100_000,
    "recursion limit": b"[" * 1000 + b"]" * 1000,
    "above": b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1),
    "below": b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1),
}


@pytest.mark.parametrize("deep", DEEP.values(), ids=DEEP)
@pytest.mark.parametrize("message", EVENTS, ids=NAMES.get)
def test_depth_in_every_kind_of_place(message: bytes, deep: bytes) -> None:
    checksum = b'"version":1,"corrupted":false,"current":0,"previous":0'
    assert_equal(
        [
            deep,
            b'{"new":' + deep + b"," + message[1:],
            # Thrown away, and so seen by no second look.
            b'{"data":' + deep + b"," + message[1:],
            b'{"old":' + deep + b"," + message[1:],
            b'{"checksum":' + deep + b"," + message[1:],
            b'{"tableSchema":' + deep + b"," + message[1:],
            # Kept.
            message[:-1] + b',"data":' + deep + b"}",
            message[:-1] + b',"old":{"a":' + deep + b"}}",
            message[:-1] + b',"checksum":{"new":' + deep + b"," + checksum + b"}}",
        ]
    )


def test_what_is_thrown_away_counts_for_depth_to_the_byte() -> None:
    """The batch decoder looks at the length first: no message may slip through below it."""
    shortest = {
        WATERMARK: b'{"version":1,"type":"WATERMARK","commitTs":1,"buildTs":1}',
        INSERT: b'{"version":1,"type":"INSERT","commitTs":1,"buildTs":1,"database":"a","table":"b",'
        b'"tableID":1,"schemaVersion":1,"data":{}}',
    }
    for message in shortest.values():
        for depth in range(MAX_DEPTH - 3, MAX_DEPTH + 3):
            value = b'{"data":' + b"[" * depth + b"]" * depth + b"," + message[1:]
            (outcome,) = assert_equal([value])
            assert isinstance(outcome, list) is (depth < MAX_DEPTH)


def test_images_full_of_brackets_are_no_depth() -> None:
    text = b'"' + b"[{" * 500 + b'"'
    outcomes = assert_equal([DELETE.replace(b'"25"', text), INSERT.replace(b"null", text)])
    assert all(isinstance(outcome, list) for outcome in outcomes)


@pytest.mark.parametrize("name", [b"version", b"commitTs", b"new", b"data", b"tableSchema"])
def test_a_number_without_end(name: bytes) -> None:
    digits = b"9" * 100_000
    values = [
        b'{"' + name + b'":' + number + b"," + message[1:]
        for number in (digits, b"-" + digits, b"0." + digits, b"1e" + digits, digits + b"e-5")
        for message in EVENTS
    ]
    assert_equal(
        values + [message[:-1] + b',"' + name + b'":' + digits + b"}" for message in EVENTS]
    )


def test_garbage() -> None:
    generator = random.Random(20260801)
    values = [generator.randbytes(generator.randrange(1, 300)) for _ in range(500)]
    values += [generator.randbytes(64 * 1024) for _ in range(8)]
    values += [bytes([byte]) * length for byte in range(256) for length in (1, 2, 64)]
    values += [bytes(64 * 1024), b"\xff" * 64 * 1024, b" " * 64 * 1024, b'"' * 64 * 1024]
    assert not any(isinstance(outcome, list) for outcome in assert_equal(values))


_TOKENS = st.sampled_from(
    b'{ } [ ] , : " \\ null 1 \n \xc3\xa9 \\u0041 "data": "old": "type": "INSERT" "version":1 '
    b'"commitTs": "\\ud83d"'.split(b" ")
)


@settings(deadline=None)
@given(st.lists(_TOKENS, max_size=40).map(b"".join) | st.binary(max_size=200))
def test_any_bytes(value: bytes) -> None:
    assert_equal([value])


@settings(deadline=None)
@given(
    message=st.sampled_from(list(EVENTS)),
    place=st.floats(0, 1),
    length=st.integers(0, 30),
    instead=st.lists(_TOKENS, max_size=4).map(b"".join) | st.binary(max_size=8),
)
def test_any_bytes_in_a_message(message: bytes, place: float, length: int, instead: bytes) -> None:
    start = int(place * len(message))
    assert_equal([message[:start] + instead + message[start + length :]])


@golden.needs_golden
def test_truncated_golden_messages_are_refused() -> None:
    values = [record.value or b"" for record in golden.messages("simple-json/types")]
    outcomes = assert_equal([value[: len(value) * 7 // 9] for value in values])
    assert all(isinstance(outcome, tuple) for outcome in outcomes)


def test_long_messages_of_all_kinds() -> None:
    for message in (INSERT, BOOTSTRAP, DDL):
        padded = message[:-1] + b',"new":"' + b"x" * 1_000_000 + b'"}'
        assert assert_equal([padded]) == [[EVENTS[message]]]
