"""Compressed values: vectors by hand, hostile bytes, every format, and TiCDC's own messages."""

import gc
import os
import re
import tracemalloc
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.base.errors import WireError
from ticdc_assets.demo.simulator.encoders import encode
from ticdc_assets.model.events import Watermark
from ticdc_assets.wire import Compression, WireFormat, decode
from ticdc_assets.wire.batch import decode_batch
from ticdc_assets.wire.compression import MAX_DECOMPRESSED, decompressed, supports
from ticdc_assets.wire.record import Record
from ticdc_assets_tests import strategies
from ticdc_assets_tests.demo.simulator.compressing import compressed
from ticdc_assets_tests.examples import examples
from ticdc_assets_tests.golden import OPTIONS
from ticdc_assets_tests.wire import golden
from ticdc_assets_tests.wire.comparing import assert_equal, batch_of
from ticdc_assets_tests.wire.differing import framed

SIMPLE = WireFormat.SIMPLE_JSON
OPEN = WireFormat.OPEN_PROTOCOL
LZ4 = Compression.LZ4
SNAPPY = Compression.SNAPPY

TEXT = b"a" * 20

MAGIC = bytes.fromhex("04224d18")
# Version 01, blocks independent, 64 KiB; and the checksum of these two bytes.
HEADER = MAGIC + bytes.fromhex("604082")
END = bytes(4)
# A literal "a", a match of 14 at offset 1, and the five literals that a block ends with.
BLOCK = bytes.fromhex("1a 61 0100 50 6161616161")


def block(content: bytes, *, stored: bool) -> bytes:
    return (len(content) | stored << 31).to_bytes(4, "little") + content


# "1234567", nothing and "89" in stored blocks, with all that a frame may have: the size of its
# content, and the checksums (xxHash with 32 bits) of each block and of the content.
FULL_FRAME = bytes.fromhex(
    "04224d18 7c40 0900000000000000 f0 07000080 31323334353637 4e558ddd"
    "00000080 055dcc02 02000080 3839 2d8da58b 00000000 67ad7b93"
)


STORED_FRAME = HEADER + block(TEXT, stored=True) + END
PACKED_FRAME = HEADER + block(BLOCK, stored=False) + END
# Length 20; a literal "a"; a copy of 19 at offset 1.
SNAPPY_BLOCK = bytes.fromhex("14 00 61 4a 0100")

VECTORS = {
    "an lz4 frame with a stored block": (LZ4, STORED_FRAME, TEXT),
    "an lz4 frame with a compressed block": (LZ4, PACKED_FRAME, TEXT),
    "an lz4 frame with both": (
        LZ4,
        HEADER + block(BLOCK, stored=False) + block(b"bcd", stored=True) + END,
        TEXT + b"bcd",
    ),
    "an empty lz4 frame": (LZ4, HEADER + END, b""),
    "an lz4 frame with block checksums": (
        LZ4,
        bytes.fromhex("04224d18 7040ad 02000080 6162 53fc9949 01000080 63 1b0fb0ee 00000000"),
        b"abc",
    ),
    "an lz4 frame with a content size": (
        LZ4,
        bytes.fromhex("04224d18 6840 0300000000000000 87 02000080 6162 01000080 63 00000000"),
        b"abc",
    ),
    "an lz4 frame with a content checksum": (
        LZ4,
        bytes.fromhex("04224d18 6440a7 02000080 6162 01000080 63 00000000 ff53d132"),
        b"abc",
    ),
    "an lz4 frame with everything": (LZ4, FULL_FRAME, b"123456789"),
    "a snappy block": (SNAPPY, SNAPPY_BLOCK, TEXT),
    "a snappy block of one literal": (SNAPPY, bytes.fromhex("03 08 616263"), b"abc"),
    "an empty snappy block": (SNAPPY, b"\x00", b""),
}


def read(compression: Compression, value: bytes | None, limit: int = MAX_DECOMPRESSED) -> bytes:
    record = decompressed(SIMPLE, Record(key=b"k", value=value), compression, limit=limit)
    assert record.key == b"k"
    assert record.value is not None
    return record.value


def refused(compression: Compression, value: bytes, limit: int = MAX_DECOMPRESSED) -> WireError:
    with pytest.raises(WireError) as caught:
        read(compression, value, limit)
    error = caught.value
    assert re.fullmatch(r"byte \d+", error.position)
    assert int(error.position.removeprefix("byte ")) <= len(value)
    assert error.expected
    assert 0 < len(error.got) <= 200
    return error


@pytest.mark.parametrize("name", VECTORS)
def test_vector_is_read(name: str) -> None:
    compression, value, content = VECTORS[name]
    assert read(compression, value) == content


@pytest.mark.parametrize("name", VECTORS)
def test_every_truncation_of_a_vector_is_refused(name: str) -> None:
    compression, value, _ = VECTORS[name]
    assert refused(compression, b"").reason == "empty_value"
    for length in range(1, len(value)):
        assert refused(compression, value[:length]).reason == f"invalid_{compression}"


@pytest.mark.parametrize("name", VECTORS)
def test_trailing_bytes_of_a_vector_are_seen(name: str) -> None:
    compression, value, _ = VECTORS[name]
    assert refused(compression, value + b"x").reason == f"invalid_{compression}"


def test_every_changed_byte_of_a_checked_frame_is_refused() -> None:
    for place in range(len(FULL_FRAME)):
        for mask in (0x01, 0x10, 0x80, 0xFF):
            changed = bytearray(FULL_FRAME)
            changed[place] ^= mask
            refused(LZ4, bytes(changed))


@pytest.mark.parametrize(
    "value",
    [
        b"plain text",
        bytes.fromhex("02214c18") + END,  # the legacy frame
        bytes.fromhex("502a4d18") + END + STORED_FRAME,  # skippable
        MAGIC + bytes.fromhex("a04082") + END,  # version 10
        MAGIC + bytes.fromhex("624082") + END,  # reserved flag
        MAGIC + bytes.fromhex("603082") + END,  # block size code 3
        MAGIC + bytes.fromhex("60c082") + END,  # reserved bit
        MAGIC + bytes.fromhex("604083") + END,  # header checksum
        HEADER + block(b"x" * 65537, stored=True) + END,
        HEADER + b"\xff\xff\xff\x7f" + END,
        HEADER + block(b"\xff" * 20, stored=False) + END,
    ],
)
def test_lz4_that_is_refused(value: bytes) -> None:
    error = refused(LZ4, value)
    assert (error.reason, error.position) == ("invalid_lz4", "byte 0")


@pytest.mark.parametrize(
    ("value", "reason", "position"),
    [
        (b"\x80\x80\x80\x80\x80\x01", "invalid_snappy", "byte 0"),  # a varint of six bytes
        (b"\xff\xff\xff\xff\x1f", "invalid_snappy", "byte 0"),  # 2^33 - 1
        (b"\xff\xff\xff\xff\x0f" + b"\x00" * 99, "too_large", "byte 0"),
        (b"\x80\x80\x80\x10" + b"\x00" * 99, "invalid_snappy", "byte 0"),  # 32 MiB of 99 bytes
        (b"\x02\x00a", "invalid_snappy", "byte 1"),
        (b"\x01\x04ab", "invalid_snappy", "byte 1"),
        (b"\x14\x00\x61\x4a\x02\x00", "invalid_snappy", "byte 1"),  # an offset before the start
        (b'{"version":1}', "invalid_snappy", "byte 1"),
    ],
)
def test_snappy_that_is_refused(value: bytes, reason: str, position: str) -> None:
    error = refused(SNAPPY, value)
    assert (error.reason, error.position) == (reason, position)


def packed(compression: Compression, content: bytes) -> bytes:
    value = compressed(SIMPLE, Record(key=None, value=content), compression).value
    assert value is not None
    return value


@pytest.mark.parametrize("compression", [LZ4, SNAPPY])
@pytest.mark.parametrize("content", [b"\0" * 300_000, os.urandom(300_000)], ids=["zeros", "noise"])
def test_limit_is_the_size_of_the_content(compression: Compression, content: bytes) -> None:
    value = packed(compression, content)
    assert read(compression, value, limit=len(content)) == content
    assert refused(compression, value, limit=len(content) - 1).reason == "too_large"
    assert refused(compression, value, limit=1000).reason == "too_large"


@pytest.mark.parametrize(
    "value",
    [
        # Each says that megabytes follow, and is wrong.
        MAGIC + bytes.fromhex("607000") + block(b"\xff" * 100_000, stored=False) * 8 + END,
        MAGIC + bytes.fromhex("607073") + block(b"\xff" * 100_000, stored=False) * 8 + END,
        b"\x80\x80\x40" + b"\xff" * 100_000,
    ],
    ids=["lz4 header", "lz4 block", "snappy"],
)
def test_refusing_does_not_lose_memory(value: bytes) -> None:
    compression = LZ4 if value.startswith(MAGIC) else SNAPPY
    refused(compression, value)
    tracemalloc.start()
    try:
        for _ in range(20):
            refused(compression, value)
        current, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert current < 1_000_000


@pytest.mark.parametrize("compression", [LZ4, SNAPPY])
@given(content=st.binary(max_size=200) | st.binary(max_size=20).map(lambda part: part * 500))
@examples(60)
def test_what_is_compressed_is_read_again(compression: Compression, content: bytes) -> None:
    assert read(compression, packed(compression, content)) == content


@pytest.mark.parametrize("compression", [LZ4, SNAPPY])
@given(
    content=st.binary(max_size=60).map(lambda part: part * 9),
    flips=st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 255)), max_size=3),
    cut=st.integers(0, 400),
    tail=st.binary(max_size=4),
)
@examples(200)
def test_damaged_bytes_are_read_or_refused(
    compression: Compression, content: bytes, flips: list[tuple[int, int]], cut: int, tail: bytes
) -> None:
    value = bytearray(packed(compression, content))
    for place, mask in flips:
        value[place % len(value)] ^= mask
    total(compression, bytes(value[: len(value) - cut % len(value)]) + tail)


def total(compression: Compression, value: bytes) -> None:
    try:
        assert len(read(compression, value)) <= 255 * len(value)
    except WireError:
        refused(compression, value)


# --- records and formats ---


@pytest.mark.parametrize("compression", Compression)
def test_null_value_stays_null(compression: Compression) -> None:
    for wire_format in WireFormat:
        if supports(wire_format, compression):
            record = Record(key=b"key", value=None)
            assert decompressed(wire_format, record, compression) == record
            assert compressed(wire_format, record, compression) == record


def test_without_compression_nothing_is_touched() -> None:
    record = Record(key=b"\x00", value=b"\xff")
    for wire_format in WireFormat:
        assert decompressed(wire_format, record, Compression.NONE) is record
        assert compressed(wire_format, record, Compression.NONE) is record


@pytest.mark.parametrize("change", [compressed, decompressed])
@pytest.mark.parametrize("compression", [LZ4, SNAPPY])
def test_craft_has_no_compression(
    change: Callable[[WireFormat, Record, Compression], Record], compression: Compression
) -> None:
    assert not supports(WireFormat.CRAFT, compression)
    assert supports(WireFormat.CRAFT, Compression.NONE)
    with pytest.raises(ValueError, match="craft has no compression"):
        change(WireFormat.CRAFT, Record(key=None, value=b""), compression)


@pytest.mark.parametrize("compression", [LZ4, SNAPPY])
def test_open_protocol_is_compressed_inside(compression: Compression) -> None:
    record = Record(key=b"key", value=framed([b"one", b"", b"three" * 20]))
    packed_record = compressed(OPEN, record, compression)
    assert packed_record.key == b"key"
    assert packed_record.value == framed(
        [packed(compression, b"one"), b"", packed(compression, b"three" * 20)]
    )
    assert decompressed(OPEN, packed_record, compression) == record


def test_position_inside_open_protocol_is_one_of_the_record() -> None:
    record = Record(key=b"key", value=framed([STORED_FRAME, STORED_FRAME + b"x"]))
    with pytest.raises(WireError) as caught:
        decompressed(OPEN, record, LZ4)
    start = 8 + len(STORED_FRAME) + 8
    assert caught.value.reason == "invalid_lz4"
    assert caught.value.position == f"byte {start}"


def test_limit_is_one_of_the_record() -> None:
    record = Record(key=b"key", value=framed([STORED_FRAME] * 3))
    assert decompressed(OPEN, record, LZ4, limit=60).value == framed([TEXT] * 3)
    with pytest.raises(WireError, match="too_large"):
        decompressed(OPEN, record, LZ4, limit=59)


@pytest.mark.parametrize("compression", [LZ4, SNAPPY])
@given(data=st.data())
@examples(25)
def test_batches_say_what_single_records_say(compression: Compression, data: st.DataObject) -> None:
    good = encode(SIMPLE, data.draw(st.lists(strategies.events, min_size=1, max_size=4)))
    packed_records = [compressed(SIMPLE, record, compression) for record in good]
    for record, packed_record in zip(good, packed_records, strict=True):
        assert decode(SIMPLE, packed_record, compression=compression) == decode(SIMPLE, record)
    records = [
        *packed_records,
        compressed(SIMPLE, Record(key=None, value=b"no message"), compression),
        *good,
        Record(key=None, value=None),
        Record(key=None, value=b""),
        Record(key=None, value=data.draw(st.binary(max_size=40))),
    ]
    records = data.draw(st.permutations(records))
    assert_batch_equal(SIMPLE, records, compression)
    cut = data.draw(st.integers(0, len(records)))
    whole = decode_batch(SIMPLE, batch_of(records), compression=compression)
    split = [
        decode_batch(SIMPLE, part, compression=compression)
        for part in (batch_of(records).slice(0, cut), batch_of(records).slice(cut))
    ]
    assert pa.Table.from_batches(split).to_pylist() == whole.to_pylist()


@pytest.mark.parametrize("order", ["xgxxgx", "gxg", "xg", "gx", "xx", "gg", ""])
def test_refused_records_stand_between_the_others(order: str) -> None:
    key = framed([b'{"ts":1,"t":3}', b'{"ts":2,"t":3}'])
    good = Record(key=(1).to_bytes(8) + key, value=framed([b"", b""]))
    bad = Record(key=good.key, value=framed([b"", b"x"]))
    batch = decode_batch(
        OPEN, batch_of([{"g": good, "x": bad}[letter] for letter in order]), compression=LZ4
    )
    found = [(row["offset"] - 1000, row["index"], row["kind"]) for row in batch.to_pylist()]
    assert found == [
        (number, index, "watermark" if letter == "g" else "error")
        for number, letter in enumerate(order)
        for index in range(2 if letter == "g" else 1)
    ]


def test_refused_records_of_a_batch_keep_no_memory() -> None:
    """Not even until the collector of cycles comes by: a batch can have thousands of them."""
    wrong = MAGIC + bytes.fromhex("607073") + block(b"\xff" * 100, stored=False) + END
    batch = batch_of([Record(key=None, value=wrong)] * 20)
    before = pa.total_allocated_bytes()
    gc.disable()
    try:
        rows = decode_batch(SIMPLE, batch, compression=LZ4)
        assert set(rows.column("kind").to_pylist()) == {"error"}
        del rows
        kept = pa.total_allocated_bytes() - before
    finally:
        gc.enable()
    assert kept == 0


def assert_batch_equal(
    wire_format: WireFormat, records: list[Record], compression: Compression
) -> None:
    """Assert that a compressed batch decodes to the rows of each record as it was before."""
    batch = decode_batch(wire_format, batch_of(records), compression=compression)
    batch.validate(full=True)
    rows = batch.to_pylist()
    for number, record in enumerate(records):
        found = [row for row in rows if row["offset"] == 1000 + number]
        try:
            plain = decompressed(wire_format, record, compression)
        except WireError as caught:
            error = caught
        else:
            wanted = decode_batch(wire_format, batch_of([plain])).to_pylist()
            assert found == [row | {"offset": 1000 + number} for row in wanted]
            continue
        (row,) = found
        assert (row["kind"], row["index"]) == ("error", 0)
        assert (error.reason, error.position) == (row["error_reason"], row["error_position"])
        assert (error.expected, error.got) == (row["error_expected"], row["error_got"])
        with pytest.raises(WireError, match=f"^{re.escape(str(error))}$"):
            decode(wire_format, record, compression=compression)
    assert [row["offset"] for row in rows] == sorted(row["offset"] for row in rows)


# --- TiCDC's own messages ---


@golden.needs_golden
@pytest.mark.parametrize("option", [name for name in OPTIONS if name.endswith(("-lz4", "-snappy"))])
@pytest.mark.thorough
def test_golden_messages_are_read_only_with_their_compression(option: str) -> None:
    of, records = golden.scenario(f"options/{option}"), golden.records(f"options/{option}")
    # Nothing in a message tells, but taken for one that is not compressed it is refused; of Open
    # Protocol a watermark has nothing to compress.
    for record, outcome in zip(records, assert_equal(records, of.wire_format), strict=True):
        first, *_ = decode(of.wire_format, record, compression=of.compression)
        is_bare = of.wire_format is OPEN and isinstance(first, Watermark)
        assert is_bare or isinstance(outcome, tuple)
    assert len(records) >= 88
    assert_batch_equal(of.wire_format, records, of.compression)
