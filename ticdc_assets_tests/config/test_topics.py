"""Patterns of topics: which topics they take, and which topic TiCDC gives a table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.base.errors import ConfigError
from ticdc_assets.config.topics import TopicPattern, is_topic_name, is_topic_pattern
from ticdc_assets_tests.demo.simulator.topics_changefeed import topic_for


@pytest.mark.parametrize(
    ("pattern", "schema", "table", "topic"),
    [
        ("{schema}", "shop", "orders", "shop"),
        ("cdc-{schema}.x", "shop", "orders", "cdc-shop.x"),
        ("{schema}_{table}", "shop", "orders", "shop_orders"),
        ("{table}", "shop", "orders", "orders"),
        ("{table}.{schema}.{table}", "s", "t", "t.s.t"),
        ("{schema}_{table}", "SHOP", "Orders", "SHOP_Orders"),
        ("{schema}_{table}", "a b", "x$y#z.w-v", "a_b_x_y_z.w-v"),
        ("{schema}_{table}", "数据", "订单😀", "______"),
        ("{schema}_{table}", "{table}", "t", "_table__t"),
        ("{schema}", ".", "t", "_"),
        ("{schema}", "..", "t", "__"),
        ("{schema}{table}", ".", ".", "__"),
        ("a{schema}", ".", "t", "a."),
    ],
)
def test_topic_of_a_table(pattern: str, schema: str, table: str, topic: str) -> None:
    assert topic_for(pattern, schema, table) == topic
    assert TopicPattern(pattern).matches(topic)


@pytest.mark.parametrize("pattern", ["cdc_*", "{schema}_*", "{schema}_{column:region}"])
def test_topic_that_the_pattern_does_not_tell(pattern: str) -> None:
    assert topic_for(pattern, "shop", "orders") is None


@pytest.mark.parametrize(
    ("pattern", "taken", "left"),
    [
        ("cdc_{schema}_{table}", ["cdc_a_b", "cdc_a_b_c", "cdc___x"], ["cdc_a", "xcdc_a_b", "cdc"]),
        ("{schema}", ["a", "A.b-c", "_", "__", "___x", "_a"], ["__a", "__consumer_offsets", "a b"]),
        ("cdc-*", ["cdc-", "cdc-1", "cdc-a.b"], ["cdc", "xcdc-1", "cdc-ä", "cdc-a\n"]),
        ("*-cdc", ["-cdc", "a-cdc"], ["a-cdcs", "__a-cdc"]),
        ("a*b*", ["ab", "axbx", "abb"], ["a", "ba"]),
        ("a.{table}", ["a.b"], ["axb", "a."]),
        ("__mine_*", ["__mine_1"], ["__consumer_offsets"]),
        ("{schema}_{column:a b}", ["shop_eu"], ["shop_"]),
        (".{schema}", ["..a"], ["."]),
        (".*", [".a"], [".", ".."]),
    ],
)
def test_topics_that_match(pattern: str, taken: list[str], left: list[str]) -> None:
    assert [topic for topic in taken + left if TopicPattern(pattern).matches(topic)] == taken


@pytest.mark.parametrize("text", ["", "a", "a b*", "{a}", "{schema", "}", "{column:}", "*/", "ä*"])
def test_what_is_no_pattern(text: str) -> None:
    with pytest.raises(ConfigError, match="expected characters of topic names"):
        TopicPattern(text)


@pytest.mark.parametrize("text", ["*", "**", "*{schema}", "{schema}*{table}"])
def test_pattern_of_all_topics_there_are(text: str) -> None:
    with pytest.raises(ConfigError, match="names some topics"):
        TopicPattern(text)


PIECES = st.lists(
    st.sampled_from(["{schema}", "{table}", "{column:c}", "*", "a", "_", ".", "-", "{", "}", " "]),
    max_size=6,
).map("".join)


@given(PIECES, st.text(min_size=1, max_size=32), st.text(min_size=1, max_size=32))
def test_a_pattern_takes_the_topics_it_gives(text: str, schema: str, table: str) -> None:
    try:
        pattern = TopicPattern(text)
    except ConfigError:
        return
    assert is_topic_pattern(text)
    topic = topic_for(text, schema, table)
    if topic is not None:
        assert is_topic_name(topic)
        internal = topic.startswith("__") and topic[2:3].isalnum() and not text.startswith("__")
        assert pattern.matches(topic) != internal
