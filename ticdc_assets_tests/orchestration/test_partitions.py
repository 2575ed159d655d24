"""Partition keys of tables: readable, and each table has its own."""

import pytest
from dagster._core.definitions.partitions.utils.base import (
    raise_error_on_invalid_partition_key_substring,
)
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.orchestration.partitions import partition_of


@pytest.mark.parametrize(
    ("database", "table", "partition"),
    [
        ("shop", "orders", "shop.orders"),
        ("a.b", "c", "`a.b`.c"),
        ("a", "b.c", "a.`b.c`"),
        ("a%2Eb", "c", "a%252Eb.c"),
        ("数据库", "🚀 é", "数据库.🚀 é"),
        ("new\nline", "[x,y]...", "new%0Aline.`[x,y]%2E..`"),
        ("Mixed", "CASE", "Mixed.CASE"),
    ],
)
def test_tables_have_one_readable_partition(database: str, table: str, partition: str) -> None:
    assert partition_of(database, table) == partition


_NAMES = st.text(st.one_of(st.characters(), st.sampled_from(".%`0A\n")), min_size=1)


@given(st.tuples(_NAMES, _NAMES), st.tuples(_NAMES, _NAMES))
@pytest.mark.thorough
def test_two_tables_have_two_keys_that_dagster_takes(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    raise_error_on_invalid_partition_key_substring([partition_of(*one)])
    assert (partition_of(*one) == partition_of(*other)) == (one == other)
