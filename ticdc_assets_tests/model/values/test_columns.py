"""Columns read by compiled loops have the values that the converters give one by one."""

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.base.errors import ImageError
from ticdc_assets.model.events import PhysicalValue, ZonedTimestamp
from ticdc_assets.model.mysql_types import Kind, kind_of
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.model.values import UNFIT, canonical_of, typed_array, typed_of
from ticdc_assets.model.values.columns import TypedColumn, typed_column
from ticdc_assets.model.values.zones import CHANGEFEED_ZONE_NAMES
from ticdc_assets.wire.image_loops import INEXACT
from ticdc_assets.wire.image_reading import ImageReader
from ticdc_assets.wire.rows import image_to_json
from ticdc_assets_tests.model.values.columns import column
from ticdc_assets_tests.model.values.test_golden import FOLDERS, _timezone, _values
from ticdc_assets_tests.strategies import column_schemas, physical_values
from ticdc_assets_tests.wire.golden import needs_golden

ZONES = ("UTC", "+08:00", "Asia/Shanghai", "America/New_York", "Australia/Lord_Howe")
COLUMNS = [
    *(f"{name}{sign}" for name in ("tinyint", "mediumint", "bigint") for sign in ("", " unsigned")),
    "bit(1)", "bit(64)", "year", "decimal(10,2)", "decimal(4,4)", "decimal(20,0)",
    "decimal(36,18)", "decimal(38,10)", "decimal(65,30)", "float", "double", "date", "datetime",
    "datetime(3)", "timestamp", "timestamp(6)", "time", "time(2)", "varchar(20)", "varbinary(20)",
    "json", "enum(a,b)", "set(a,b,c)",
]  # fmt: skip
UNSIZED = ["decimal", "datetime", "timestamp", "time", "enum", "set"]


def read(
    schema: ColumnSchema, values: Sequence[PhysicalValue], timezone: str
) -> tuple[TypedColumn, list[bool]]:
    """Read values as images have them; returns the column, and which rows are exact."""
    reader = ImageReader([schema.name], CHANGEFEED_ZONE_NAMES | {timezone})
    texts = pa.array([image_to_json({schema.name: value}) for value in values], pa.string())
    images = reader.read([texts])
    assert images is not None
    found = typed_column(schema, timezone)(images.column(0))
    return found, (found.exact & (images.counts != INEXACT)).tolist()


def reference(
    schema: ColumnSchema, value: PhysicalValue, timezone: str
) -> tuple[str | None, Any] | None:
    """Return canonical text and what Arrow has of it; None if it is refused or unfit."""
    try:
        text = canonical_of(schema, timezone)(value)
    except ImageError:
        return None
    if text is not None and typed_of(schema, timezone)(text) is UNFIT:
        return None
    array, unfit = typed_array(schema, timezone, [text])
    assert unfit is None
    return text, array[0]


def check(schema: ColumnSchema, values: Sequence[PhysicalValue], timezone: str) -> list[bool]:
    found, exact = read(schema, values, timezone)
    for number, (value, is_exact) in enumerate(zip(values, exact, strict=True)):
        if not is_exact:
            continue
        wanted = reference(schema, value, timezone)
        assert wanted is not None, (schema, value)
        assert found.array[number].equals(wanted[1]), (schema, value, found.array[number], wanted)
        if found.is_verbatim:
            sent = value.value if isinstance(value, ZonedTimestamp) else value
            assert wanted[0] == sent
    return exact


columns_and_values = column_schemas().flatmap(
    lambda schema: st.tuples(st.just(schema), st.lists(physical_values(schema), max_size=8))
)


@given(columns_and_values, st.sampled_from(ZONES))
def test_values_are_those_of_the_converters(
    drawn: tuple[ColumnSchema, list[PhysicalValue]], timezone: str
) -> None:
    check(*drawn, timezone)


texts = st.one_of(
    st.text("0123456789-+.:eE ", max_size=28),
    st.text('{}[]",:\\truefalsn0123456789.eE- \t\u00e9', max_size=20),
    st.from_regex(r"-?[0-9]{1,3}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,7})?", fullmatch=True),
    st.from_regex(
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}( [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,7})?)?", fullmatch=True
    ),
    st.from_regex(r"-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,40})?(e[+-]?[0-9]{1,3})?", fullmatch=True),
    st.integers(-(2**65), 2**65).map(str),
    st.sampled_from([str(2**bits + step) for bits in (7, 8, 23, 24, 63, 64) for step in (-1, 0)]),
    st.sampled_from([str(-(2**bits) - step) for bits in (7, 23, 63) for step in (0, 1)]),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr),
    st.dates().map(lambda day: f"{day} 01:59:59"),
    st.binary(max_size=9).map(lambda raw: b64encode(raw).decode()),
    st.text("ABab01+/=", max_size=12),
    st.text(max_size=6),
)


zoned = st.builds(
    ZonedTimestamp, location=st.sampled_from(["UTC", "Local", "Asia/Tokyo"]), value=texts
)


@given(
    st.sampled_from([*COLUMNS, *UNSIZED]),
    st.lists(texts | st.none() | zoned, max_size=8),
    st.sampled_from(ZONES),
)
@pytest.mark.thorough
def test_any_text_is_read_as_the_converters_read_it_or_left_to_them(
    sql: str, values: list[PhysicalValue], timezone: str
) -> None:
    changes = {"length": 0, "decimal": -1, "elements": ()} if sql in UNSIZED else {}
    check(column(sql, **changes), values, timezone)


@pytest.mark.parametrize(
    ("sql", "values"),
    [
        ("bigint", ["0", "-9223372036854775808", "9223372036854775807", None]),
        ("bigint unsigned", ["18446744073709551615", "0"]),
        ("bit(64)", ["18446744073709551615"]),
        ("year", ["0", "1901", "2155"]),
        ("decimal(10,2)", ["-12345678.90", "0.00", "99999999.99"]),
        ("decimal(4,4)", ["-0.1234"]),
        ("decimal(36,18)", ["-999999999999999999.999999999999999999", "0.000000000000000001"]),
        ("float", ["11654.625", "-0", "3.4028235"]),
        ("double", ["-129631.55836914097", "0.1", "123456789012345678"]),
        ("date", ["0001-01-01", "2024-02-29", "9999-12-31"]),
        ("datetime(6)", ["1969-12-31 23:59:59.999999", "2024-10-11 01:14:00.981333"]),
        ("timestamp", [ZonedTimestamp(location="UTC", value="2024-10-11 01:14:00")]),
        ("time(1)", ["-838:59:59.0", "00:00:00.1"]),
        ("varchar(9)", ["", 'a"b\\c\n\u20ac\U0001f600<']),
        ("varbinary(9)", ["", "AA==", "AAE=", "AAEC"]),
        (
            "json",
            ['{"a": [1, -2.5e3, true, null, "x \\" y"], "b": {}}', "[]", "0", '"\\ud83d\\ude00"'],
        ),
        ("enum(a,b)", ["0", "2"]),
        ("set(a,b,c)", ["0", "7"]),
    ],
)
def test_usual_values_are_plain(sql: str, values: list[PhysicalValue]) -> None:
    assert check(column(sql), values, "UTC") == [True] * len(values)


@needs_golden
@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.thorough
def test_golden_values_are_plain(folder: str) -> None:
    timezone = _timezone(folder)
    by_column: dict[ColumnSchema, list[PhysicalValue]] = {}
    for schema, value, _ in _values(folder):
        by_column.setdefault(schema, []).append(value)
    assert by_column
    for schema, values in by_column.items():
        exact = check(schema, values, timezone)
        if kind_of(schema) not in (Kind.FLOAT, Kind.DOUBLE, Kind.VECTOR):
            assert all(exact), (
                schema,
                [v for v, good in zip(values, exact, strict=True) if not good],
            )
