"""The cut that a person names: a TSO or a time."""

import pytest

from ticdc_assets.base.errors import ConfigError
from ticdc_assets.model.tso import MAX_TSO, cut_of


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("0", 0),
        ("000", 0),
        (" 17 ", 17),
        (str(MAX_TSO), MAX_TSO),
        ("0" * 20 + "9" * 18, 10**18 - 1),
        ("0" * 5000 + "5", 5),
        ("1970-01-01T00:00:00.001Z", (2 << 18) - 1),
    ],
)
def test_cuts_that_texts_name(text: str, cut: int) -> None:
    assert cut_of(text, es_only=False) == cut


@pytest.mark.parametrize(
    "text",
    [
        *(str(MAX_TSO + 1), "9" * 20, "0" * 20 + "9" * 30, "1" * 5000, "0" * 20 + "1" * 5000),
        *("", "-1", "1.0", "1969-12-31T23:59:59Z", "٣"),
    ],
)
def test_texts_that_name_no_cut(text: str) -> None:
    with pytest.raises(ConfigError, match="expected a TSO"):
        cut_of(text, es_only=False)
