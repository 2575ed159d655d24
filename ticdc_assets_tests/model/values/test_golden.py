"""Every value of the golden messages, against the text that TiDB itself prints.

None of them is `UNFIT`: the golden rows hold no zero dates and no local times in a gap.
"""

from collections import Counter
from dataclasses import replace
from functools import lru_cache

import pytest

from ticdc_assets.model.events import PhysicalValue
from ticdc_assets.model.mysql_types import Kind, kind_of
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.model.values import (
    UNFIT,
    canonical_of,
    default_text,
    physical_of,
    text_of,
    typed_of,
)
from ticdc_assets_tests.wire import golden

FOLDERS = ("simple-json/types", "simple-json/shop")


@lru_cache
def _timezone(folder: str) -> str:
    return golden.scenario(folder).timezone


@lru_cache
def _values(folder: str) -> list[tuple[ColumnSchema, PhysicalValue, str | None]]:
    """Return each value of each image: column, value as sent, and the true text."""
    truth = golden.events(folder)
    found: list[tuple[ColumnSchema, PhysicalValue, str | None]] = []
    for place, row, schema in golden.rows(folder):
        columns = {column.name: column for column in schema.columns}
        line = truth[place.partition, place.offset][place.index]
        for image, true in ((row.before, line["before"]), (row.after, line["after"])):
            found += [
                (columns[item["name"]], (image or {})[item["name"]], item["value"])
                for item in true or ()
            ]
    return found


@golden.needs_golden
@pytest.mark.parametrize("folder", FOLDERS)
def test_canonical_text_is_the_truth_and_survives_the_typed_column(folder: str) -> None:
    timezone = _timezone(folder)
    canonical, typed, text, physical = (
        lru_cache(maxsize=None)(compile_)
        for compile_ in (canonical_of, typed_of, text_of, physical_of)
    )
    seen: Counter[Kind] = Counter()
    unfit: Counter[Kind] = Counter()
    for column, value, truth in _values(folder):
        assert canonical(column, timezone)(value) == truth, column
        assert physical(column, timezone)(truth) == value, column
        seen[kind_of(column)] += 1
        if truth is not None:
            made = typed(column, timezone)(truth)
            unfit[kind_of(column)] += made is UNFIT
            assert made is UNFIT or text(column, timezone)(made) == truth, column
    assert set(seen) == set(Kind) - {Kind.UNKNOWN}
    assert +unfit == {}


@golden.needs_golden
def test_the_row_inserted_with_defaults_shows_what_defaults_are() -> None:
    folder = "simple-json/types"
    timezone = _timezone(folder)
    first: dict[str, tuple[ColumnSchema, str | None]] = {}
    for column, _, truth in _values(folder):
        first.setdefault(column.name, (column, truth))
    checked = 0
    for column, truth in first.values():
        if column.name != "id":
            assert default_text(column, timezone, at=None) == truth, column
            checked += column.default is not None
    assert checked >= 10
    column, _ = first["c_bn"]
    required = replace(column, nullable=False)
    assert default_text(required, timezone, at=None) == "0x" + "00" * 16
