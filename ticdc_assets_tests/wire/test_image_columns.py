"""Numbers and texts that are read and written many at once, beside one at a time."""

from base64 import b64encode

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.demo.simulator.encoders.craft_layout import write_uvarint, write_varint
from ticdc_assets.model.values.floats import double_text, float_text
from ticdc_assets.wire.byte_columns import (
    NO_NUMBER,
    buffer_of,
    distinct,
    in_shortest_form,
    spread,
    uvarints,
    zigzag,
)
from ticdc_assets.wire.image_columns import base64_texts, double_texts, float_texts


def octets(raw: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(raw, np.uint8)


def places(raws: list[bytes]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.cumsum([0, *map(len, raws)])[:-1]


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 200), min_size=1))
def test_numbers_are_read_as_they_are_written(numbers: list[int]) -> None:
    raws = [write_uvarint(number) for number in numbers]
    found, sizes = uvarints(buffer_of(octets(b"".join(raws))), places(raws))
    assert found.tolist() == numbers
    assert sizes.tolist() == [len(raw) for raw in raws]
    assert in_shortest_form(found, sizes).all()


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_signed_numbers_are_read_as_they_are_written(numbers: list[int]) -> None:
    raws = [write_varint(number) for number in numbers]
    found, _ = uvarints(buffer_of(octets(b"".join(raws))), places(raws))
    assert zigzag(found).tolist() == numbers


@pytest.mark.parametrize("length", range(1, 10))
def test_a_number_may_be_longer_than_it_must(length: int) -> None:
    raw = b"\x85" + b"\x80" * (length - 1) + b"\0"
    found, sizes = uvarints(buffer_of(octets(raw)), np.array([0]))
    assert (found.tolist(), sizes.tolist()) == ([5], [length + 1])
    assert not in_shortest_form(found, sizes).any()


@pytest.mark.parametrize("last", [2, 0x7F, 0x80, 0xFF])
def test_a_number_of_more_than_64_bits_is_none(last: int) -> None:
    raw = b"\xff" * 9 + bytes([last])
    found, sizes = uvarints(buffer_of(octets(raw)), np.array([0]))
    assert sizes.tolist() == [NO_NUMBER]
    assert not in_shortest_form(found, sizes).any()


def test_ranges_one_after_the_other() -> None:
    assert spread(np.array([5, 9, 1]), np.array([2, 0, 3])).tolist() == [5, 6, 1, 2, 3]


def test_what_ranges_of_bytes_say() -> None:
    buffer = buffer_of(octets(b"ab-ab--"))
    codes, raws = distinct(buffer, np.array([0, 3, 6]), np.array([2, 5, 6]))
    assert [raws[code] for code in codes.tolist()] == [b"ab", b"ab", b""]


@given(st.lists(st.binary(max_size=20), min_size=1))
def test_base64_of_many_texts_at_once(raws: list[bytes]) -> None:
    starts = places(raws)
    ends = starts + np.array([len(raw) for raw in raws])
    texts = base64_texts(buffer_of(octets(b"".join(raws))), starts, ends)
    texts.validate(full=True)
    assert texts.to_pylist() == [b64encode(raw) for raw in raws]


GENERATOR = np.random.default_rng(5)
BITS = GENERATOR.integers(0, 2**64, 3000, dtype=np.uint64)
SHORT = GENERATOR.integers(-(10**7), 10**7, 2000) / 10.0 ** GENERATOR.integers(0, 12, 2000)
HALVES = GENERATOR.integers(1, 2**24, 2000) * 0.5 ** GENERATOR.integers(0, 60, 2000)
POWERS = np.concatenate([2.0 ** np.arange(-149, 128), 10.0 ** np.arange(-44, 39), [0.0, -0.0]])


@pytest.mark.parametrize("numbers", [BITS, SHORT, HALVES, POWERS, -POWERS])
def test_doubles_have_the_text_that_they_have_alone(numbers: np.ndarray) -> None:
    wide = numbers.view(np.float64)
    wide = wide[np.isfinite(wide)]
    texts = [text.decode() for text in double_texts(wide).to_pylist()]
    assert texts == [double_text(number) for number in wide.tolist()]


@pytest.mark.parametrize("numbers", [BITS, SHORT, HALVES, POWERS, -POWERS])
def test_floats_have_the_text_that_they_have_alone(numbers: np.ndarray) -> None:
    narrow = numbers.view(np.float32) if numbers is BITS else numbers.astype(np.float32)
    narrow = narrow[np.isfinite(narrow)]
    texts = [text.decode() for text in float_texts(narrow).to_pylist()]
    assert texts == [float_text(number) for number in narrow.tolist()]
