"""Cron texts: what passes is followed by Dagster, and what does not pass is told why."""

from datetime import UTC, datetime

import pytest
from dagster._utils.schedules import cron_string_iterator, is_valid_cron_string
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.base.cron import cron_mistake


@pytest.mark.parametrize(
    "text",
    [
        "30 1 * * *",
        "0 3 * * 0",
        "*/15 * * * *",
        "0,30 8-18/2 1-15,31 jan,Mar-DEC Mon-fri",
        "0 0 29 2 *",
        "59 23 31 12 7",
    ],
)
def test_texts_that_a_scheduler_follows(text: str) -> None:
    assert cron_mistake(text) is None
    assert is_valid_cron_string(text)


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        ("", "5 fields"),
        ("* * * *", "5 fields"),
        ("* * * * * *", "5 fields"),
        ("*  * * * *", "5 fields"),
        ("@daily", "5 fields"),
        ("\u0661 * * * *", "5 fields"),
        ("60 * * * *", "'60' is no minute"),
        ("-1 * * * *", "'-1' is no minute"),
        ("* 24 * * *", "'24' is no hour"),
        ("* * 0 * *", "'0' is no day of the month"),
        ("* * L * *", "'l' is no day of the month"),
        ("* * * 13 *", "'13' is no month"),
        ("* * * foo *", "'foo' is no month"),
        ("* * * * 8", "'8' is no day of the week"),
        ("* * * * mon#1", "'mon#1' is no day of the week"),
        ("* * * * fri-mon", "'fri-mon' is no day of the week"),
        ("*/0 * * * *", "'*/0' is no minute"),
        ("5/15 * * * *", "'5/15' is no minute"),
        ("1,,2 * * * *", "'' is no minute"),
        ("99999999 * * * *", "'99999999' is no minute"),
        ("0 0 30 2 *", "that day never comes"),
        ("0 0 31 4,jun *", "that day never comes"),
        ("0 0 31 4 mon", "that day never comes"),
    ],
)
def test_mistakes(text: str, clause: str) -> None:
    assert clause in (cron_mistake(text) or "")


def field(low: int, high: int, *words: str) -> st.SearchStrategy[str]:
    number = st.integers(low, high).map(str) | st.sampled_from(words or (str(low),))
    step = st.integers(1, high).map(lambda step: f"/{step}") | st.just("")
    spread = st.tuples(number, number).map("-".join)
    part = number | st.tuples(st.just("*") | spread, step).map("".join)
    return st.lists(part, min_size=1, max_size=2).map(",".join)


@given(
    st.tuples(
        field(0, 59),
        field(0, 23),
        field(1, 31),
        field(1, 12, "jan", "DEC"),
        field(0, 7, "sun", "Sat"),
    ).map(" ".join)
)
def test_what_passes_is_due_at_some_time(text: str) -> None:
    if cron_mistake(text) is None:
        assert is_valid_cron_string(text)
        start = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
        assert next(cron_string_iterator(start, text, "UTC"))
