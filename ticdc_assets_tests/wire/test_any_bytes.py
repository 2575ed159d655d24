"""Damaged messages of each format give events or a `WireError`, from both decoders alike.

The damage is the same in each format; what only one format can suffer is in its own module.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.model.events import Event, RowChange
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets.wire.batch import BATCH_READERS, decode_batch
from ticdc_assets.wire.record import Record
from ticdc_assets_tests.examples import examples
from ticdc_assets_tests.wire.canal import test_messages as test_canal_json
from ticdc_assets_tests.wire.comparing import Input, Outcome, assert_equal, batch_of, record_of
from ticdc_assets_tests.wire.craft import test_messages as test_craft
from ticdc_assets_tests.wire.differing import framed, parts
from ticdc_assets_tests.wire.open import test_messages as test_open_protocol
from ticdc_assets_tests.wire.open.test_messages import number
from ticdc_assets_tests.wire.simple import messages as simple_messages
from ticdc_assets_tests.wire.simple import test_avro as test_simple_avro


@dataclass(frozen=True, kw_only=True)
class Damage:
    """What is done to messages of one format.

    Attributes:
        wire_format: the format.
        messages: messages of all kinds.
        small: those of them of which every bit can be tried.
        tails: what may stand after a message, or before it, and is refused.
        tail_reason: the reason of a refused tail, if it is one for all.
        wrong: what is put in every place of a small message.
        framed: puts garbage between what leads it further into the decoder.
        pieces: parts of messages of this format.
    """

    wire_format: WireFormat
    messages: Sequence[Record]
    small: Sequence[Record]
    tails: Sequence[bytes]
    tail_reason: str | None = None
    wrong: Sequence[bytes]
    framed: Callable[[bytes], Sequence[bytes]] = lambda content: (content,)
    pieces: Sequence[bytes]

    def outcomes(self, values: Sequence[Record]) -> list[Outcome]:
        """Return what both decoders say of `values`."""
        return assert_equal(values, self.wire_format)

    def records(self, content: bytes) -> list[Record]:
        """Return messages with `content` for the value and, if keys say something, for the key."""
        return damaged(self.messages[0], lambda _: iter(self.framed(content)))


def _between(*frames: tuple[bytes, bytes]) -> Callable[[bytes], Sequence[bytes]]:
    return lambda content: [start + content + end for start, end in frames]


def _records(messages: Sequence[Input]) -> list[Record]:
    return [record_of(message) for message in messages]


_JSON_TOKENS = (
    rb'{ } [ ] , : " \ null 1 1.5 true \u0041 \u0100 \ud83d "data": "old": "type": "INSERT"'
)
_JSON_PIECES = (b"\n", b"\xc3\xa9", *_JSON_TOKENS.split())
_JSON_TAILS = (b"\x00", b"{", b"}", b"{}", b",", b"null", b"\xff", b"\xc2\xa0")
_JSON_WRONG = (
    *(b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xc3", b"\x00", b"\x1f", b"\n"),
    *(b'"', b"\\", b"\\ud800", b"\\u12", b"\xef\xbb\xbf", b"[[", b"{", b"9" * 30, b"e5", b".0"),
    *(b"NaN", b"-Infinity", b"null", b"[]", b"-"),
)
_BINARY_WRONG = (
    *(b"\xff", b"\x80", b"\x00", b"\x01", b"\x02", b"\x7f", b"\xff" * 9 + b"\x01", b"\xc3"),
)
_OPEN = (
    *test_open_protocol.RECORDS,
    *(
        test_open_protocol.record((test_open_protocol.ROW_KEY, value))
        for value in (test_open_protocol.UPDATE_VALUE, test_open_protocol.DELETE_VALUE)
    ),
)

FORMATS = (
    Damage(
        wire_format=WireFormat.SIMPLE_JSON,
        messages=_records(list(simple_messages.EVENTS)),
        small=_records(
            [
                *(simple_messages.INSERT, simple_messages.UPDATE),
                *(simple_messages.DELETE, simple_messages.WATERMARK),
            ]
        ),
        tails=(*_JSON_TAILS, *(b" " + tail for tail in _JSON_TAILS)),
        wrong=_JSON_WRONG,
        pieces=(*_JSON_PIECES, b'"version":1', b'"commitTs":'),
    ),
    Damage(
        wire_format=WireFormat.CANAL_JSON,
        messages=_records(list(test_canal_json.EVENTS)),
        small=_records([test_canal_json.UPDATE, test_canal_json.DELETE, test_canal_json.WATERMARK]),
        tails=_JSON_TAILS,
        wrong=_JSON_WRONG,
        pieces=(
            *(*_JSON_PIECES, b'"es":', b'"_tidb":', b'"commitTs":', b'"mysqlType":', b'"blob"'),
            b'[{"id":"1"}]',
        ),
    ),
    Damage(
        wire_format=WireFormat.CRAFT,
        messages=_records(test_craft.SMALL),
        small=_records(test_craft.SMALL),
        tails=(b"\x00", b"\x01", b"\x07", b"\x80", b"\xff", b"\x00\x00", b"{}"),
        wrong=(
            *_BINARY_WRONG,
            # Absurd lengths and counts, other signs, numbers without end.
            *map(test_craft.u, (2**31, 2**63, 2**64 - 1, 1 << 20)),
            *(b"\xff" * 11, b"\x80\x00"),
        ),
        framed=_between((b"", b""), (b"\x01", b""), (b"\x01", b"\x06")),
        pieces=(b"\x00", b"\x01", b"\x02", b"\x06", b"\xff\x01", *test_craft.SMALL),
    ),
    Damage(
        wire_format=WireFormat.SIMPLE_AVRO,
        messages=_records(list(test_simple_avro.MESSAGES)),
        small=_records(list(test_simple_avro.MESSAGES)),
        tails=(b"\x00", b"\x16", b"\xff", b"\x00" * 100),
        tail_reason="trailing_bytes",
        wrong=_BINARY_WRONG,
        framed=_between(
            *((b"", b""), (b"\x16", b""), (b"\x16\x06\x06\x02", b""), (b"\x16\x02\x02\x02", b"")),
            *((b"\x16\x04\x04\x02", b""), (test_simple_avro.SMALL["insert"][:38], b"")),
        ),
        pieces=(
            *(b"\x16\x06\x06\x02", b"\x02", b"\x00", test_simple_avro.ID),
            *(*test_simple_avro.ENTRIES, *test_simple_avro.COLUMNS, test_simple_avro.INDEX),
            *(test_simple_avro.number(-1), test_simple_avro.NUMBERS[64]),
        ),
    ),
    Damage(
        wire_format=WireFormat.OPEN_PROTOCOL,
        messages=_OPEN,
        small=[_OPEN[0], _OPEN[3], _OPEN[5]],
        tails=(b"\0", bytes(8), b"{}", number(2**63), b"\xff" * 9),
        wrong=(*_JSON_WRONG, bytes(8), number(1), number(7), number(2**63), b"\xff" * 8),
        pieces=(
            *(*_JSON_PIECES, number(1), number(2), bytes(8), b'"t":', b'"f":', b'"v":', b'"u":{'),
            *(b'"p":{', b'"d":{', b'"h":', b'"c":', b'"ts":', b'"scm":', b"-0", b"-0.0", b"1e400"),
            *(b"18446744073709551616", b'{"t":3,"f":0,"v":1}', b'"\\\\xff"', b'"AP8="'),
            *(test_open_protocol.ROW_KEY, test_open_protocol.INSERT_VALUE),
        ),
    ),
)

each_format = pytest.mark.parametrize(
    "damage", FORMATS, ids=[damage.wire_format.value for damage in FORMATS]
)


def each_message(of: Callable[[Damage], Sequence[Record]]) -> pytest.MarkDecorator:
    """Parametrize a test by the messages of every format."""
    return pytest.mark.parametrize(
        ("damage", "message"),
        [
            pytest.param(damage, message, id=f"{damage.wire_format.value}-{number}")
            for damage in FORMATS
            for number, message in enumerate(of(damage))
        ],
    )


each_whole_message = each_message(lambda damage: damage.messages)
each_small_message = each_message(lambda damage: damage.small)


def damaged(message: Record, damage: Callable[[bytes], Iterator[bytes]]) -> list[Record]:
    """Return `message` with each damage of its value and, if there is a key, of it and of both.

    Keys are those of Open Protocol, whose frames are right again where damage is inside the first.
    """
    key, value = message.key, cast("bytes", message.value)
    found = [Record(key=key, value=broken) for broken in damage(value)]
    if key is not None:
        found += [Record(key=broken, value=value) for broken in damage(key)]
        both = zip(damage(key), damage(value), strict=False)
        found += [Record(key=one, value=other) for one, other in both]
        (first_key, *keys), (first, *values) = parts(key[8:]), parts(value)
        found += [
            *(Record(key=key, value=framed([one, *values])) for one in damage(first)),
            *(Record(key=key[:8] + framed([one, *keys]), value=value) for one in damage(first_key)),
        ]
    return found


def are_refused(outcomes: Sequence[Outcome]) -> bool:
    """Return whether there are outcomes and all are errors."""
    return bool(outcomes) and all(isinstance(outcome, tuple) for outcome in outcomes)


@each_whole_message
def test_every_truncation_is_refused(damage: Damage, message: Record) -> None:
    def cut(content: bytes) -> Iterator[bytes]:
        # Of a watermark of Open Protocol, nothing at all is a value, too.
        return (content[:size] for size in range(not any(content), len(content)))

    assert are_refused(damage.outcomes(damaged(message, cut)))


@each_small_message
def test_every_missing_beginning_is_refused(damage: Damage, message: Record) -> None:
    def cut(content: bytes) -> Iterator[bytes]:
        return (content[start:] for start in range(1, len(content)))

    assert are_refused(damage.outcomes(damaged(message, cut)))


@each_small_message
def test_every_flipped_bit_gives_events_or_an_error(damage: Damage, message: Record) -> None:
    def flip(content: bytes) -> Iterator[bytes]:
        for place in range(len(content)):
            for bit in range(8):
                flipped = bytearray(content)
                flipped[place] ^= 1 << bit
                yield bytes(flipped)

    outcomes = damage.outcomes(damaged(message, flip))
    assert any(isinstance(outcome, tuple) for outcome in outcomes)
    assert any(isinstance(outcome, list) for outcome in outcomes)


@each_whole_message
def test_more_bytes_are_seen(damage: Damage, message: Record) -> None:
    def longer(content: bytes) -> Iterator[bytes]:
        return (content + tail for tail in (*damage.tails, content or b"\0"))

    outcomes = damage.outcomes(damaged(message, longer))
    assert are_refused(outcomes)
    if damage.tail_reason:
        assert {outcome[0] for outcome in outcomes} == {damage.tail_reason}

    def earlier(content: bytes) -> Iterator[bytes]:
        return (tail + content for tail in damage.tails)

    assert are_refused(damage.outcomes(damaged(message, earlier)))


@pytest.mark.parametrize(
    ("wire_format", "events"),
    [
        (WireFormat.SIMPLE_JSON, simple_messages.EVENTS),
        (WireFormat.CANAL_JSON, test_canal_json.EVENTS),
    ],
)
def test_blanks_around_a_message_are_none(
    wire_format: WireFormat, events: dict[bytes, Event]
) -> None:
    values = [blank + message + b" \t\r\n" for message in events for blank in (b"", b"\n ")]
    assert assert_equal(values, wire_format) == [[event] for event in events.values() for _ in "ab"]


@each_small_message
@pytest.mark.thorough
def test_wrong_bytes_in_every_place(damage: Damage, message: Record) -> None:
    def put(content: bytes) -> Iterator[bytes]:
        for wrong in damage.wrong:
            for place in range(len(content) + 1):
                yield content[:place] + wrong + content[place:]
                yield content[:place] + wrong + content[place + 1 :]

    outcomes = damage.outcomes(damaged(message, put))
    assert any(isinstance(outcome, tuple) for outcome in outcomes)


@each_format
def test_garbage_is_refused(damage: Damage) -> None:
    generator = random.Random(20260801)
    values = [
        generator.randbytes(generator.randrange(300))
        for _ in range(500 // len(damage.framed(b"")) + 100)
    ]
    values += [bytes([byte]) * length for byte in range(256) for length in (1, 2, 64)]
    values += [generator.randbytes(64 * 1024) for _ in range(8)]
    values += [byte * 2**18 for byte in (b"\x00", b"\x01", b"\x16", b"\x80", b"\xff", b" ", b'"')]
    values += [b"\x01" + b"\xff" * 2**18, b""]
    records = [record for value in values for record in damage.records(value)]
    assert are_refused(damage.outcomes(records))
    (nothing,) = damage.outcomes([Record(key=damage.messages[0].key, value=None)])
    assert nothing[0] == "null_value"


def spliced(content: bytes, place: float, length: int, instead: bytes) -> bytes:
    """Return `content` with `instead` for `length` bytes at a share of its length."""
    start = int(place * len(content))
    return content[:start] + instead + content[start + length :]


@each_format
def test_rows_are_read_at_once(damage: Damage) -> None:
    """The reference says the same, so only this sees rows that it reads alone."""
    rows = [
        number
        for number, message in enumerate(damage.small)
        if isinstance(decode(damage.wire_format, message)[0], RowChange)
    ]
    exact = BATCH_READERS[damage.wire_format](batch_of(damage.small))
    assert rows
    assert {*rows} <= {*exact.sources.tolist()}


@each_format
def test_a_key_is_only_read_where_the_format_has_one(damage: Damage) -> None:
    if damage.messages[0].key is None:
        keyed = [Record(key=b"\xff{", value=message.value) for message in damage.messages]
        assert damage.outcomes(keyed) == damage.outcomes(damage.messages)


@each_format
@examples(30)
@given(st.data())
def test_cutting_a_batch_anywhere_changes_nothing(damage: Damage, data: st.DataObject) -> None:
    odd = _records([b"", b"\xff", b"{}", None])
    records = data.draw(st.lists(st.sampled_from([*damage.messages, *odd]), max_size=8))
    cut = data.draw(st.integers(0, len(records)))
    batch = batch_of(records)
    parts = [
        decode_batch(damage.wire_format, part) for part in (batch.slice(0, cut), batch.slice(cut))
    ]
    whole = decode_batch(damage.wire_format, batch)
    assert pa.Table.from_batches(parts) == pa.Table.from_batches([whole])


@each_format
@examples(120)
@given(st.data(), st.floats(0, 1), st.integers(0, 30))
def test_any_bytes_in_a_message(
    damage: Damage, data: st.DataObject, place: float, length: int
) -> None:
    message = data.draw(st.sampled_from(damage.messages))
    some = st.lists(st.sampled_from(damage.pieces), max_size=4).map(b"".join)
    instead = data.draw(some | st.binary(max_size=8))
    damage.outcomes(
        damaged(message, lambda content: iter([spliced(content, place, length, instead)]))
    )


@each_format
@examples(60)
@given(st.data())
def test_any_bytes(damage: Damage, data: st.DataObject) -> None:
    some = st.lists(st.sampled_from(damage.pieces), max_size=40).map(b"".join)
    content = data.draw(some | st.binary(max_size=200))
    damage.outcomes(damage.records(content))
