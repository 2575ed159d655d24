"""Versions of rows, in whatever order their operations come."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.rows.bag_operations import of_no_change
from ticdc_assets.rows.history_layout import history_operation_schema, version_schema
from ticdc_assets.rows.history_operations import current_operations
from ticdc_assets.rows.history_versions import fold_versions
from ticdc_assets.rows.mirror_rows import NOWHERE, PARTIAL
from ticdc_assets_tests.examples import examples
from ticdc_assets_tests.rows.plans import table_of

KEYED = table_of(1, column("v", "int"))
BAG = replace(KEYED, indexes=())


class Version(NamedTuple):
    """A version as a test says it; `number` is that of the operation whose values it has."""

    key: str
    number: int
    valid_from: int
    valid_to: int | None
    op: str | None
    ended_by: str | None
    partial_ts: int | None = None


def operation(number: int, key: str, ts: int, op: str, **others: Any) -> dict[str, Any]:
    """An operation on a row whose first column is its key, and whose second is its number."""
    return {
        "key": key,
        "sequence": NOWHERE | {"commit_ts": ts, "offset": number},
        "op": op,
        "is_delete": op == "delete",
        "is_partial": op == "partial",
        "c0": int(key),
        "c1": number,
    } | others


def folded(schema: TableSchema, items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a fold."""
    target = history_operation_schema(schema)
    operations = pa.RecordBatch.from_pylist(list(items), schema=target)
    if not schema.handle_key:
        operations = of_no_change(operations)
    return fold_versions(pa.table(operations), schema).to_pylist()


def version_of(row: dict[str, Any]) -> Version:
    rescued = dict(row["rescued"] or ())
    partial = rescued.pop(PARTIAL, None)
    assert not rescued
    values = (row[name] for name in ("c1", "valid_from", "valid_to", "op", "ended_by"))
    return Version(str(row["c0"]), *values, None if partial is None else int(partial))


@st.composite
def operations(draw: st.DrawFn, kinds: Sequence[str]) -> list[dict[str, Any]]:
    """Operations on a few keys, in any order."""
    one = st.tuples(st.integers(1, 3).map(str), st.integers(1, 8), st.sampled_from(kinds))
    return [operation(number, *draw(one)) for number in range(draw(st.integers(0, 14)))]


ALL = ("insert", "update", "update", "delete", "partial")


@examples(200)
@given(operations(("insert", "insert", "delete")))
def test_a_delete_ends_the_oldest_copy_of_a_row_without_a_key(items: list[dict[str, Any]]) -> None:
    wanted: list[Version] = []
    there: dict[str, list[Version]] = {}
    for item in sorted(items, key=lambda item: tuple(item["sequence"].values())):
        copies, ts = there.setdefault(item["key"], []), item["sequence"]["commit_ts"]
        if not item["is_delete"]:
            copies.append(Version(item["key"], item["c1"], ts, None, item["op"], None))
        elif copies:
            ended = copies.pop(0)._replace(valid_to=ts, ended_by="delete")
            # A copy that came and went at one commit ts was in no cut.
            wanted += [ended] if ended.valid_from < ts else []
    wanted += chain(*there.values())
    assert sorted(map(version_of, folded(BAG, items))) == sorted(wanted)


def test_the_last_change_of_one_commit_ts_counts() -> None:
    items = [
        *(("1", 5, "insert"), ("1", 6, "update"), ("1", 6, "delete"), ("1", 6, "insert")),
        *(("1", 7, "partial"), ("1", 8, "partial")),
        *(("1", 9, "insert"), ("1", 9, "partial"), ("1", 9, "delete")),
        *(("2", 5, "partial"), ("2", 6, "delete"), ("2", 6, "partial")),
    ]
    found = folded(KEYED, [operation(number, *item) for number, item in enumerate(items)])
    assert [version_of(row) for row in found] == [
        Version("1", 0, 5, 6, "insert", "update"),
        # A row that was deleted and put again at once was updated.
        Version("1", 3, 6, 9, "update", "delete", 8),
        Version("2", 9, 5, 6, "partial", "delete", 5),
        Version("2", 11, 6, None, "partial", None, 6),
    ]


@examples(300)
@given(operations(ALL), st.integers(0, 9))
def test_a_fold_of_later_operations_goes_on_from_the_current_versions(
    items: list[dict[str, Any]], cut: int
) -> None:
    for schema, kinds in ((KEYED, ALL), (BAG, ("insert", "update", "delete"))):
        own = [item for item in items if item["op"] in kinds]
        early = [item for item in own if item["sequence"]["commit_ts"] <= cut]
        before = folded(schema, early)
        ended = [row for row in before if row["valid_to"] is not None]
        layout = version_schema(schema)
        current = pa.Table.from_pylist([row for row in before if row not in ended], layout)
        begun = current_operations(current, current["c0"].cast(pa.string()), schema)
        late = [item for item in own if item not in early]
        found = [*ended, *folded(schema, [*late, *begun.to_pylist()])]
        assert sorted(map(version_of, found)) == sorted(map(version_of, folded(schema, own)))


@pytest.mark.parametrize("schema", [KEYED, BAG], ids=["keyed", "bag"])
def test_ddl_ends_what_nothing_ended_before(schema: TableSchema) -> None:
    removed = {"ends_at": 7, "removed_by": "truncate_partition"}
    operations = [
        operation(0, "1", 5, "insert", **removed),
        operation(1, "1", 6, "delete"),
        operation(2, "2", 5, "insert", **removed),
        operation(3, "2", 7, "insert"),
        operation(4, "2", 8, "delete"),
        operation(5, "3", 5, "insert", **removed),
    ]
    assert [version_of(row) for row in folded(schema, operations)] == [
        Version("1", 0, 5, 6, "insert", "delete"),
        Version("2", 2, 5, 7, "insert", "truncate_partition"),
        Version("2", 3, 7, 8, "insert", "delete"),
        Version("3", 5, 5, 7, "insert", "truncate_partition"),
    ]


def test_a_version_that_ended_before_a_lenient_cast_has_the_text_before_it() -> None:
    kept = [{"ddl_ts": 20, "column": "v", "text": "4000000000"}]
    rescued = [("v", "of the cast"), ("w", "of another")]
    operations = [
        operation(0, "1", 5, "insert", kept=kept, rescued=rescued),
        operation(1, "1", 20, "update", kept=kept, rescued=rescued),
        operation(2, "1", 21, "delete"),
    ]
    found = folded(KEYED, operations)
    assert [(row["c1"], row["valid_to"], row["rescued"]) for row in found] == [
        (None, 20, [("w", "of another"), ("v", "4000000000")]),
        (1, 21, rescued),
    ]


def test_the_last_partial_change_counts() -> None:
    marked = operation(0, "1", 5, "insert", rescued=[("v", "1"), (PARTIAL, "4")])
    (row,) = folded(KEYED, [marked, operation(1, "1", 6, "partial")])
    assert row["rescued"] == [("v", "1"), (PARTIAL, "6")]


def test_versions_that_ended_already_and_faults_pass() -> None:
    ended = operation(0, "1", 5, "insert", valid_to=6, ended_by="delete") | {"key": ""}
    fault = operation(1, "1", 7, "insert") | {"key": "!"}
    rows = folded(KEYED, [fault, ended])
    assert [(row["valid_from"], row["valid_to"], row["ended_by"]) for row in rows] == [
        (None, None, None),
        (5, 6, "delete"),
    ]
