"""The columns of a dataclass."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pytest

from ticdc_assets.delta.row_schema import fields_of


@dataclass
class Part:
    name: str
    rows: int | None


@dataclass
class Row:
    number: int
    at: datetime
    is_new: bool
    parts: tuple[Part, ...]
    notes: list[str] | None = None
    whole: Part | None = None


@dataclass
class Other:
    counts: Mapping[str, int]


def test_each_field_is_a_column() -> None:
    part = pa.struct([("name", pa.string()), ("rows", pa.int64())])
    assert fields_of(Row) == [
        pa.field("number", pa.int64()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("is_new", pa.bool_()),
        pa.field("parts", pa.list_(part)),
        pa.field("notes", pa.list_(pa.string())),
        pa.field("whole", part),
    ]


def test_a_column_may_hold_something_else_than_its_field() -> None:
    assert fields_of(Other, counts=pa.string()) == [pa.field("counts", pa.string())]
    assert fields_of(Part, rows=pa.int32())[1].type == pa.int32()


def test_a_type_that_no_column_has_is_refused() -> None:
    with pytest.raises(TypeError):
        fields_of(Other)
