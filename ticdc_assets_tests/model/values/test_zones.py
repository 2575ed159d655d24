"""Zones by name."""

from datetime import UTC, timedelta, timezone

import pytest

from ticdc_assets.model.values.zones import find_zone


@pytest.mark.parametrize(
    ("name", "minutes"), [("+08:00", 480), ("-05:30", -330), ("+14:00", 840), ("+5:59", 359)]
)
def test_an_offset_is_a_zone(name: str, minutes: int) -> None:
    assert find_zone(name) == timezone(timedelta(minutes=minutes))


@pytest.mark.parametrize(
    "name", ["+05:60", "+05:99", "-00:61", "+14:01", "+15:00", "+05", "05:00", "", "Local", "../x"]
)
def test_what_is_no_zone_is_none(name: str) -> None:
    assert find_zone(name) is None


def test_utc_is_utc() -> None:
    assert find_zone("UTC") is UTC
