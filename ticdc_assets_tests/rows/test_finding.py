"""Rows are found by their keys as a reader that compares each row with each key finds them."""

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ticdc_assets.delta.delta_protocol import vector_with
from ticdc_assets.rows import finding
from ticdc_assets.rows.finding import SearchedFile, find, keys_of, rows_at
from ticdc_assets.rows.mirror_rows import PARTIAL
from ticdc_assets.rows.row_operations import RESCUED_TYPE

NAMES = ("a", "b c", "d")
SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("b c", pa.string()),
        ("d", pa.date32()),
        ("ended", pa.int64()),
        ("rescued", RESCUED_TYPE),
    ]
)
LEAST, MOST = Decimal("-1.50"), Decimal(f"{10**28 - 1}.99")
STORED = dict(zip(SCHEMA.names, ("a", "col-1", "d", "e", "r"), strict=True))


@st.composite
def rows(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Return rows: few values, so that keys repeat and stand in several rows."""
    found = draw(
        st.lists(
            st.tuples(
                st.sampled_from([None, 0, 1, -(2**63), 2**63 - 1]),
                st.sampled_from([None, "", "a", "A", "é\U0001f600"]),
                # A day, or the text of one that no column holds.
                st.sampled_from([None, 0, 20_000, "0000-00-00", "2024-00-10"]),
                st.sampled_from([None, 7]),
                st.booleans(),
            ),
            max_size=30,
        )
    )
    return [
        {
            "a": a,
            "b c": b,
            "d": d if isinstance(d, int) else None,
            "ended": ended,
            "rescued": [
                *([("d", d)] if isinstance(d, str) else []),
                *([(PARTIAL, "7")] if marked else []),
            ]
            or None,
        }
        for a, b, d, ended, marked in found
    ]


def key_of(row: dict[str, Any], columns: Sequence[str]) -> tuple[Any, ...]:
    text = dict(row["rescued"] or ()).get("d")
    return (*(row[name] for name in columns), text if "d" in columns else None)


def file_of(path: Path, schema: pa.Schema, **others: Any) -> SearchedFile:
    """Return a file of a table with the columns of a schema."""
    return SearchedFile(
        path=path,
        types={item.name: item.type for item in schema},
        rescued="rescued",
        **{"deleted": None, "stored": {name: name for name in schema.names}, **others},
    )


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    there=rows(),
    wanted=rows(),
    columns=st.sampled_from([NAMES, ("a",), ("b c",), ("d",), ("d", "a"), ("b c", "d")]),
    deleted=st.sets(st.integers(0, 29)),
    group=st.integers(1, 9),
    only_current=st.booleans(),
    bounded=st.booleans(),
    span=st.sampled_from([1, 7, 100]),
)
def test_rows_are_found_as_by_comparing_each_with_each(
    there: list[dict[str, Any]],
    wanted: list[dict[str, Any]],
    columns: tuple[str, ...],
    deleted: set[int],
    group: int,
    only_current: bool,
    bounded: bool,
    span: int,
    tmp_path: Path,
) -> None:
    path = tmp_path / "rows.parquet"
    table = pa.Table.from_pylist(there, SCHEMA)
    pq.write_table(
        table.rename_columns(list(STORED.values())),
        path,
        row_group_size=group,
        write_statistics=bounded,
    )
    keys = {key_of(row, columns): row for row in wanted}
    found = keys_of(pa.Table.from_pylist(list(keys.values()), SCHEMA), columns, {"d"}, "rescued")
    gone = np.array(sorted(place for place in deleted if place < len(there)), np.int64)
    file = file_of(
        path,
        SCHEMA,
        deleted=vector_with(None, gone) if len(gone) else None,
        stored=STORED,
        current="ended" if only_current else None,
    )
    with patch.object(finding, "_SPAN_ROWS", span):
        got = find(file, found)
    numbers = {key: number for number, key in enumerate(keys)}
    expected = [
        (place, numbers[key_of(row, columns)])
        for place, row in enumerate(there)
        if key_of(row, columns) in numbers
        and place not in gone
        and not (only_current and row["ended"] is not None)
    ]
    assert list(zip(got.positions.tolist(), got.keys.tolist(), strict=True)) == expected
    taken = rows_at(file, got.positions, SCHEMA, list(STORED.values()))
    assert taken.to_pylist() == table.take(pa.array(got.positions)).to_pylist()


def test_a_column_that_a_file_has_narrower_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": pa.array([1, 2, None], pa.int16())}), path)
    schema = pa.schema([("a", pa.int64()), ("new", pa.string()), ("rescued", RESCUED_TYPE)])
    file = file_of(path, schema)
    wanted = [
        {"a": 2, "new": None, "rescued": None},
        {"a": 1, "new": "", "rescued": None},
        {"a": None, "new": None, "rescued": None},
    ]
    keys = keys_of(pa.Table.from_pylist(wanted, schema), ("a", "new"), (), "rescued")
    found = find(file, keys)
    assert (found.positions.tolist(), found.keys.tolist()) == ([1, 2], [0, 2])


@pytest.mark.parametrize(
    ("kind", "there", "wanted", "found"),
    [
        (pa.float64(), [0.0, -0.0, 1.5], [-0.0, 1.5], [0, 0, 1]),
        (pa.float32(), [float("inf"), -1.5, 0.0], [-0.0, -1.5], [1, 0]),
        (pa.decimal128(30, 2), [LEAST, MOST, Decimal("0.00")], [Decimal("0.00"), LEAST], [1, 0]),
        (pa.binary(), [b"", b"\0", b"\xff\xfe"], [b"\xff\xfe", b""], [1, 0]),
        # A table without a key is searched by all of its columns.
        (
            pa.list_(pa.float32()),
            [[1.0, 2.0], None, [], [1.0], [1.0, 2.0]],
            [[], [1.0, 2.0], None, [2.0]],
            [1, 2, 0, 1],
        ),
    ],
    ids=["DOUBLE", "FLOAT", "DECIMAL", "VARBINARY", "VECTOR"],
)
def test_rows_are_the_same_by_their_values(
    kind: pa.DataType, there: list[Any], wanted: list[Any], found: list[int], tmp_path: Path
) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": pa.array(there, kind)}), path)
    rows = pa.table({"a": pa.array(wanted, kind), "rescued": pa.nulls(len(wanted), RESCUED_TYPE)})
    file = file_of(path, rows.schema)
    assert find(file, keys_of(rows, ("a",), (), "rescued")).keys.tolist() == found


def test_no_keys_find_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    table = pa.table({"a": [1], "rescued": pa.nulls(1, RESCUED_TYPE)})
    pq.write_table(table, path)
    keys = keys_of(table.slice(0, 0), ("a",), (), "rescued")
    assert not len(find(file_of(path, table.schema), keys).positions)


@pytest.mark.parametrize(
    ("bounds", "may_be"),
    [
        *(((1, 2), False), ((6, 9), False), ((1, 3), True), ((5, 9), True), ((4, 4), True)),
        # Statistics may have one bound only, or be of another type.
        *(((1, None), True), ((None, 2), True), ((None, None), True), (("a", "b"), True)),
    ],
)
def test_bounds_exclude_what_they_show(bounds: tuple[Any, Any], may_be: bool) -> None:
    rows = pa.table({"a": [3, 5], "rescued": pa.nulls(2, RESCUED_TYPE)})
    assert keys_of(rows, ("a",), (), "rescued").may_be_between(*bounds) is may_be
