"""Laws that hold for every column and every value."""

import json
from datetime import date, datetime

from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.base.errors import CastError, ImageError
from ticdc_assets.model.events import PhysicalValue, ZonedTimestamp
from ticdc_assets.model.mysql_types import Kind, arrow_type, kind_of
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.model.values import (
    UNFIT,
    canonical_of,
    cast_is_identity,
    cast_of,
    keep,
    lenient_cast_of,
    physical_of,
    text_of,
    typed_array,
    typed_of,
)
from ticdc_assets_tests.model.values.columns import column
from ticdc_assets_tests.strategies import column_schemas, physical_values

zones = st.sampled_from(["UTC", "Asia/Shanghai", "America/New_York", "Australia/Lord_Howe"])
columns_and_values = column_schemas().flatmap(
    lambda schema: st.tuples(st.just(schema), st.lists(physical_values(schema), max_size=5))
)

clocks = st.sampled_from(["00:00:00", "02:30:00", "23:59:59", "01:59:59"])
days = st.dates(date(1, 1, 1)).map(date.isoformat) | st.sampled_from(
    ["0000-00-00", "2024-00-10", "2024-02-30", "0000-01-01", "2024-03-10", "2024-11-03"]
)


@st.composite
def moments(draw: st.DrawFn) -> tuple[ColumnSchema, str]:
    digits = draw(st.integers(0, 6))
    kind = draw(st.sampled_from(["datetime", "timestamp"]))
    text = f"{draw(days)} {draw(clocks)}"
    if digits:
        text += f".{draw(st.integers(0, 10**digits - 1)):0{digits}}"
    return column(f"{kind}({digits})"), text


def _canonical(
    schema: ColumnSchema, values: list[PhysicalValue], timezone: str
) -> list[str | None]:
    convert = canonical_of(schema, timezone)
    texts: list[str | None] = []
    for value in values:
        try:
            texts.append(convert(value))
        except ImageError:
            # A TIMESTAMP at the end of its range, or in a zone that is none.
            assert kind_of(schema) is Kind.TIMESTAMP
    return texts


@given(columns_and_values, zones)
def test_typed_values_print_as_their_text(
    drawn: tuple[ColumnSchema, list[PhysicalValue]], timezone: str
) -> None:
    schema, values = drawn
    texts = _canonical(schema, values, timezone)
    to_typed, to_text = typed_of(schema, timezone), text_of(schema, timezone)
    for text in texts:
        typed = UNFIT if text is None else to_typed(text)
        if typed is not UNFIT:
            assert to_text(typed) == text
    array, unfit = typed_array(schema, timezone, texts)
    assert array.type == arrow_type(schema)
    for number, text in enumerate(texts):
        is_unfit = unfit is not None and unfit[number]
        assert array[number].is_valid == (text is not None and not is_unfit)
        assert is_unfit == (text is not None and to_typed(text) is UNFIT)
        if array[number].is_valid:
            assert to_text(array[number].as_py()) == text


@given(columns_and_values, zones)
def test_canonical_text_survives_the_way_through_physical_values(
    drawn: tuple[ColumnSchema, list[PhysicalValue]], timezone: str
) -> None:
    schema, values = drawn
    back = physical_of(schema, timezone)
    again = canonical_of(schema, timezone)
    for text in _canonical(schema, values, timezone):
        assert again(back(text)) == text
        # Canonical text of a text is itself, apart from the kinds with a form of their own.
        if kind_of(schema) not in (Kind.ENUM, Kind.SET, Kind.BINARY, Kind.TIMESTAMP):
            assert again(text) == text


@given(moments(), zones)
def test_every_moment_prints_back_or_is_unfit(
    drawn: tuple[ColumnSchema, str], timezone: str
) -> None:
    schema, text = drawn
    typed = typed_of(schema, timezone)(text)
    if typed is UNFIT:
        assert text.startswith(("0000", "2024-00", "2024-02-30", "2024-03", "0001", "9999")) or (
            schema.mysql_type == "timestamp"
        )
    else:
        assert isinstance(typed, datetime)
        assert text_of(schema, timezone)(typed) == text
    array, unfit = typed_array(schema, timezone, [text])
    assert (unfit is not None) == (typed is UNFIT)
    assert array.to_pylist() == [None if typed is UNFIT else typed]


@given(st.text(max_size=30) | st.from_regex(r"[-+0-9.eE:T ]{1,30}", fullmatch=True), st.data())
def test_any_text_is_a_value_or_an_image_error(text: str, data: st.DataObject) -> None:
    schema = data.draw(column_schemas())
    value = text
    if kind_of(schema) is Kind.TIMESTAMP:
        value = ZonedTimestamp(location=data.draw(st.sampled_from(["UTC", text])), value=text)
    try:
        canonical = canonical_of(schema, "Asia/Shanghai")(value)
    except ImageError as error:
        assert error.position == schema.name  # noqa: PT017  # either outcome is right
        return
    assert canonical is not None
    typed = typed_of(schema, "Asia/Shanghai")(canonical)
    if typed is not UNFIT:
        assert text_of(schema, "Asia/Shanghai")(typed) == canonical
    # Text that is not canonical must never become a typed value that prints otherwise.
    typed = typed_of(schema, "Asia/Shanghai")(text)
    if typed is not UNFIT:
        assert text_of(schema, "Asia/Shanghai")(typed) == text


@given(columns_and_values, column_schemas(), zones)
def test_a_cast_gives_canonical_text_of_the_new_column_or_a_cast_error(
    drawn: tuple[ColumnSchema, list[PhysicalValue]], new: ColumnSchema, timezone: str
) -> None:
    old, values = drawn
    cast, lenient = cast_of(old, new, timezone), lenient_cast_of(old, new)
    for text in _canonical(old, values, timezone):
        try:
            made = cast(text)
        except CastError as error:
            assert error.position == new.name  # noqa: PT017  # either outcome is right
            assert not cast_is_identity(old, new)
            assert text is not None
            try:
                made = lenient(text)
            except CastError as refused:
                assert refused.position == new.name  # noqa: PT017  # either outcome is right
                continue
        assert (made is None) == (text is None)
        if cast_is_identity(old, new):
            assert made == text
        assert canonical_of(new, timezone)(physical_of(new, timezone)(made)) == made


json_documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text('a "\\,:é'), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(json_documents, st.booleans(), st.sampled_from([None, 0, 2, "\t"]))
def test_compact_json_is_what_was_meant(document: object, ascii_only: bool, indent: object) -> None:
    compact = json.dumps(document, ensure_ascii=ascii_only, separators=(",", ":"))
    spaced = json.dumps(document, ensure_ascii=ascii_only)
    indented = json.dumps(document, ensure_ascii=ascii_only, indent=indent)
    canonical = canonical_of(column("json"), "UTC")
    assert canonical(spaced) == compact
    assert canonical(indented) == compact
    assert physical_of(column("json"), "UTC")(compact) == spaced


@given(columns_and_values)
def test_a_cast_to_the_same_column_keeps_every_value(
    drawn: tuple[ColumnSchema, list[PhysicalValue]],
) -> None:
    schema, _ = drawn
    assert cast_is_identity(schema, schema)
    assert cast_of(schema, schema, "UTC") is keep
