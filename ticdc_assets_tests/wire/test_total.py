"""Hostile JSON gives events or a `WireError`, from both decoders alike, and no hang."""

import pytest

from ticdc_assets.wire.go_json import MAX_DEPTH
from ticdc_assets_tests.wire.comparing import assert_equal
from ticdc_assets_tests.wire.simple_messages import (
    BOOTSTRAP,
    DDL,
    DELETE,
    EVENTS,
    INSERT,
    WATERMARK,
)

NAMES = {message: f"{number}" for number, message in enumerate(EVENTS)}


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


def test_long_messages_of_all_kinds() -> None:
    for message in (INSERT, BOOTSTRAP, DDL):
        padded = message[:-1] + b',"new":"' + b"x" * 1_000_000 + b'"}'
        assert assert_equal([padded]) == [[EVENTS[message]]]
