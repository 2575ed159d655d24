"""The names of tables as one text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.base.errors import ConfigError
from ticdc_assets.base.names import joined_name, split_name, table_named
from ticdc_assets.config.changefeed import TableChoice


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (("shop", "orders"), "shop.orders"),
        (("a.b", "c"), "`a.b`.c"),
        (("a", "b.c"), "a.`b.c`"),
        (("a`.b", "c`d"), "`a``.b`.c`d"),
        (("`a", "b c"), "```a`.b c"),
    ],
)
def test_a_name_with_a_dot_is_quoted(name: tuple[str, str], text: str) -> None:
    assert joined_name(*name) == text
    assert split_name(text) == table_named(text) == name


@given(st.tuples(st.text("a.`-*", min_size=1), st.text("b.`\n", min_size=1)))
def test_no_two_tables_have_one_text(name: tuple[str, str]) -> None:
    assert split_name(joined_name(*name)) == name


@pytest.mark.parametrize("text", ["", "a", ".a", "a.", "`a.b"])
def test_what_is_no_name(text: str) -> None:
    assert split_name(text) is None
    with pytest.raises(ConfigError, match="expected DATABASE"):
        table_named(text)


def test_a_choice_of_tables_takes_quoted_names() -> None:
    choice = TableChoice(("`a.b`.*", "c.d.e"))
    assert choice.includes("a.b", "x")
    assert not choice.includes("a", "b.x")
    assert choice.includes("c", "d.e")
