"""Partition keys of tables: readable, unambiguous, and to be read back."""

import pytest
from dagster._core.definitions.partitions.utils.base import (
    raise_error_on_invalid_partition_key_substring,
)
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.base.errors import ConfigError
from ticdc_assets.orchestration.partitions import partition_of, table_named


@pytest.mark.parametrize(
    ("database", "table", "partition"),
    [
        ("shop", "orders", "shop.orders"),
        ("shop", "order_items-2$", "shop.order_items-2$"),
        ("a.b", "c", "a%2Eb.c"),
        ("a", "b.c", "a.b%2Ec"),
        ("a%2Eb", "c", "a%252Eb.c"),
        ("../../x", "..", "%2E%2E%2F%2E%2E%2Fx.%2E%2E"),
        ("数据库", "🚀 é", "数据库.🚀%20é"),
        ("new\nline", "[x,y]...", "new%0Aline.%5Bx%2Cy%5D%2E%2E%2E"),
        ("Mixed", "CASE", "Mixed.CASE"),
    ],
)
def test_tables_have_one_readable_partition(database: str, table: str, partition: str) -> None:
    assert partition_of(database, table) == partition
    assert table_named(partition) == (database, table)


@given(st.text(), st.text())
@pytest.mark.thorough
def test_any_names_come_back_and_are_a_key_that_dagster_takes(database: str, table: str) -> None:
    partition = partition_of(database, table)
    assert table_named(partition) == (database, table)
    assert partition.count(".") == 1
    raise_error_on_invalid_partition_key_substring([partition])


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("shop.orders", ("shop", "orders")),
        ("shop.my t", ("shop", "my t")),
        ("shop.my%20t", ("shop", "my t")),
        ("shop.50% off", ("shop", "50% off")),
        ("a%2Eb.c", ("a.b", "c")),
        ("shop.%61", ("shop", "%61")),
        ("a.%2e", ("a", "%2e")),
    ],
)
def test_people_name_tables_by_their_partition_or_as_they_are(
    text: str, table: tuple[str, str]
) -> None:
    assert table_named(text) == table


@pytest.mark.parametrize("text", ["", "orders", "a.b.50% of c", "shop.orders.2"])
def test_other_names_of_tables_are_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(ConfigError, match="expected DATABASE"):
        table_named(text)
