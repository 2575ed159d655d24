"""Floating numbers that are written many at once, next to one at a time."""

import numpy as np
import pytest

from ticdc_assets.model.values.floats import double_text, float_text
from ticdc_assets.wire.tape.texts import double_texts, float_texts

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
