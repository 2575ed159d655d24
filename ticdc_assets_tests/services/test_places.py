"""Places are looked up among many, and rows told apart by a digest."""

from datetime import UTC, datetime

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.pipeline.change_files import CHANGE_LOG_SCHEMA
from ticdc_assets.pipeline.quarantine import PLACE_SCHEMA, table_of_places
from ticdc_assets.services.day_comparing import _digests
from ticdc_assets.services.redecoded_days import _Places
from ticdc_assets.wire.rows import COORDINATES, PLACE

places = st.tuples(
    st.sampled_from(["a", "b", "\u00e9", ""]),
    st.sampled_from([0, 1, 256, 2**31 - 1]),
    st.sampled_from([0, 1, 255, 256, 2**32, 2**63 - 1]),
    st.sampled_from([0, 1, 2**31 - 1]),
)


def batch_of(found: list[tuple[str, int, int, int]]) -> pa.RecordBatch:
    rows = [dict(zip(PLACE, place, strict=True)) for place in found]
    return pa.RecordBatch.from_pylist(rows, PLACE_SCHEMA)


@given(st.lists(places, max_size=9), st.lists(places, max_size=9))
def test_places_are_those_that_were_given(
    wanted: list[tuple[str, int, int, int]], asked: list[tuple[str, int, int, int]]
) -> None:
    looked_up = _Places(table_of_places(wanted))
    rows = batch_of(asked)
    assert looked_up.has(rows).to_pylist() == [place in wanted for place in asked]
    records = {place[: len(COORDINATES)] for place in wanted}
    assert looked_up.has_record(rows).to_pylist() == [
        place[: len(COORDINATES)] in records for place in asked
    ]


_TEXTS = st.sampled_from([None, "", "-", "0", "1", ",", "a", "a,", ",a"])


@given(st.lists(st.lists(_TEXTS, min_size=4, max_size=4), min_size=2, max_size=2))
def test_rows_are_equal_if_and_only_if_their_digests_are(contents: list[list[str | None]]) -> None:
    names = ("database", "table", "before", "after")
    rows = [
        {"landed_at": datetime(2026, 1, 1, tzinfo=UTC), **dict(zip(names, row, strict=True))}
        for row in contents
    ]
    one, other = _digests(pa.RecordBatch.from_pylist(rows, CHANGE_LOG_SCHEMA)).to_pylist()
    assert (one == other) is (contents[0] == contents[1])
