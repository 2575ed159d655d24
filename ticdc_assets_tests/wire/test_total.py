"""Depth, digits and length without end give events or a `WireError`, from both decoders alike."""

import pytest

from ticdc_assets.wire import WireFormat
from ticdc_assets.wire.go_json import MAX_DEPTH
from ticdc_assets_tests.wire import simple_messages, test_canal_json
from ticdc_assets_tests.wire.comparing import Input, assert_equal
from ticdc_assets_tests.wire.simple_messages import BOOTSTRAP, DDL, EVENTS, INSERT, WATERMARK
from ticdc_assets_tests.wire.test_open_protocol import INSERT_VALUE, ROW_KEY, record

SIMPLE, CANAL = WireFormat.SIMPLE_JSON, WireFormat.CANAL_JSON
MESSAGES = {
    SIMPLE: tuple(EVENTS),
    CANAL: (
        *(test_canal_json.INSERT, test_canal_json.PLAIN),
        *(test_canal_json.WATERMARK, test_canal_json.DDL),
    ),
}
MEMBERS = {
    SIMPLE: (b"new", b"data", b"old", b"checksum", b"tableSchema", b"version", b"commitTs"),
    CANAL: (b"new", b"data", b"old", b"sqlType", b"mysqlType", b"_tidb", b"ts", b"es", b"id"),
}
"""Members of messages, and one that no message has."""
INVALID_UTF8 = (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80")


def placed(message: bytes, name: bytes, value: bytes) -> list[Input]:
    """Return a message with a member that is thrown away, and with one that counts."""
    member = b'"' + name + b'":' + value
    return [
        b"{" + member + b"," + message[1:],
        message[:-1] + b"," + member + b"}",
        # Inside another.
        message[:-1] + b',"' + name + b'":[{"a":' + value + b"}]}",
    ]


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


@pytest.mark.parametrize("depth", [*range(MAX_DEPTH - 3, MAX_DEPTH + 2), 1_000, 20_000])
@pytest.mark.parametrize("wire_format", MESSAGES)
def test_depth_in_every_kind_of_place(wire_format: WireFormat, depth: int) -> None:
    deep = b"[" * depth + b"]" * depth
    values: list[Input] = [deep, b"[" * depth, b'{"a":' * depth]
    for message in MESSAGES[wire_format]:
        for name in MEMBERS[wire_format]:
            values += placed(message, name, deep)
    outcomes = assert_equal(values, wire_format)
    assert any(isinstance(outcome, list) for outcome in outcomes) is (depth < MAX_DEPTH)


@pytest.mark.parametrize("wire_format", MESSAGES)
def test_numbers_without_end(wire_format: WireFormat) -> None:
    digits = b"9" * 10_000
    values = [
        value
        for number in (digits, b"-" + digits, b"0." + digits, b"1e" + digits, digits + b"e-5")
        for message in MESSAGES[wire_format]
        for name in MEMBERS[wire_format]
        for value in placed(message, name, number)
    ]
    assert_equal(values, wire_format)


def test_nesting_and_digits_without_end_in_open_protocol() -> None:
    start = INSERT_VALUE.partition(b'"v":')[0] + b'"v":'
    endless = (b'{"u":' * 20_000, start + b"[" * 20_000, start + b"9" * 100_000 + b"}}}")
    outcomes = assert_equal(
        [record((ROW_KEY, value)) for value in endless], WireFormat.OPEN_PROTOCOL
    )
    assert all(isinstance(outcome, tuple) for outcome in outcomes)


def test_images_full_of_brackets_are_no_depth() -> None:
    text = b'"' + b"[{" * 500 + b'"'
    (outcome,) = assert_equal([INSERT.replace(b"null", text)])
    assert isinstance(outcome, list)


def test_long_messages_of_all_kinds() -> None:
    for message in (INSERT, BOOTSTRAP, DDL, WATERMARK):
        padded = message[:-1] + b',"new":"' + b"x" * 1_000_000 + b'"}'
        assert assert_equal([padded]) == [[simple_messages.EVENTS[message]]]
