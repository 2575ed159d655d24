"""Keys, floats, physical values, printed values and zones."""

import math
import struct
from datetime import UTC, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.base.errors import ImageError
from ticdc_assets.model.events import ZonedTimestamp
from ticdc_assets.model.values import canonical_of, key_text, physical_of
from ticdc_assets.model.values.floats import double_text, float_text, to_float32
from ticdc_assets.model.values.physical import printers
from ticdc_assets.model.values.zones import find_zone
from ticdc_assets_tests.model.values.columns import column

keys = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), max_size=4)


@given(keys, keys)
def test_two_keys_have_one_text_only_if_they_are_equal(left: list[str], right: list[str]) -> None:
    assert (key_text(left) == key_text(right)) == (left == right)
    assert key_text(tuple(left)) == key_text(left)


def test_key_text_is_a_json_array() -> None:
    assert key_text(["1", 'a"b', "é"]) == '["1","a\\"b","é"]'
    assert key_text([]) == "[]"


def test_negative_zero_is_zero_in_floating_keys_only() -> None:
    columns = [column("double"), column("varchar(3)"), column("float")]
    assert key_text(["-0", "-0", "-0"], columns) == '["0","-0","0"]'
    with pytest.raises(ValueError, match="zip"):
        key_text(["1"], columns)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_float_text_reads_back_and_no_shorter_text_does(value: float) -> None:
    text = float_text(value)
    assert struct.pack("<f", float(text)) == struct.pack("<f", value)
    assert "e" not in text
    digits = len(text.strip("-").replace(".", "").strip("0"))
    if digits > 1:
        shorter = f"{value:.{digits - 2}e}"
        assert to_float32(float(shorter)) != value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_double_text_reads_back_without_an_exponent(value: float) -> None:
    text = double_text(value)
    assert struct.pack("<d", float(text)) == struct.pack("<d", value)
    assert "e" not in text
    assert not text.endswith(".0")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.0**-12, "0.00024414063"),
        (-(2.0**-12), "-0.00024414063"),
        (2.0**-149, "0." + "0" * 44 + "1"),
        (2.0**127, "170141180000000000000000000000000000000"),
        (math.pi, "3.1415927"),
        (100.0, "100"),
        (0.0, "0"),
        (-0.0, "-0"),
    ],
)
def test_float_text_is_that_of_go(value: float, text: str) -> None:
    assert float_text(to_float32(value)) == text


@pytest.mark.parametrize(
    ("sql", "text", "expected"),
    [
        ("int", "7", "7"),
        ("int", None, None),
        ("timestamp", None, None),
        (
            "timestamp",
            "2024-01-01 00:00:00",
            ZonedTimestamp(location="Asia/Tokyo", value="2024-01-01 00:00:00"),
        ),
        ("blob", "0xff00", "/wA="),
        ("blob", "0x", ""),
        ("enum(a,b)", "b", "2"),
        ("enum(a,b)", "", "0"),
        ("set(a,b,c)", "a,c", "5"),
        ("set(a,b,c)", "", "0"),
        ("json", '{"a":[1,","]}', '{"a": [1, ","]}'),
        ("text", "x", "x"),
    ],
)
def test_physical_values_are_as_simple_json_sends_them(
    sql: str, text: str | None, expected: object
) -> None:
    assert physical_of(column(sql), "Asia/Tokyo")(text) == expected


@pytest.mark.parametrize(
    ("sql", "text"),
    [("enum(a,b)", "c"), ("set(a,b)", "a,c"), ("blob", "ff"), ("blob", "0xZZ"), ("blob", "0xFF")],
)
def test_what_is_no_canonical_text_has_no_physical_value(sql: str, text: str) -> None:
    with pytest.raises(ImageError):
        physical_of(column(sql), "UTC")(text)


def test_an_enum_with_an_empty_label_uses_its_index() -> None:
    schema = column("enum(a,b)", elements=("a", ""))
    assert physical_of(schema, "UTC")("") == "2"


@pytest.mark.parametrize(
    ("sql", "sent"),
    [
        ("json", '{"a": [1]}'),
        ("json", '{"a,b:c": ["x: y, z", {"d\\"": -3e-7}], "e": null}'),
        ("json", "[]"),
        ("json", "-3e-7"),
        ("vector(3)", "[1,-2.5,-0.0000003]"),
        ("varchar(20)", '{"a":[1]}'),
    ],
)
def test_what_tidb_printed_is_printed_again(sql: str, sent: str) -> None:
    schema = column(sql)
    text = canonical_of(schema, "UTC")(sent)
    assert text is not None
    assert printers([schema]).get("c", str)(text) == sent


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
