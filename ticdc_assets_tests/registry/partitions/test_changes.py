"""Partitions through their changes: what is there afterwards, whose rows go, and golden DDL."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.base.errors import PartitionError
from ticdc_assets.registry.ddl.reader import parse_ddl
from ticdc_assets.registry.ddl.statement import PartitionAction, PartitionChange, Partitioning
from ticdc_assets.registry.partitions import changed_partitions, emptied_partitions, partition_test
from ticdc_assets_tests.examples import examples
from ticdc_assets_tests.registry.partitions.test_rules import SCHEMA, less_than, listed, partitions


def change(text: str) -> PartitionChange:
    (found,) = parse_ddl(f"alter table t {text}").changes
    assert found.partition is not None, text
    return found.partition


def after(table: Partitioning, *texts: str) -> Partitioning:
    for text in texts:
        changed = changed_partitions(table, change(text))
        assert changed is not None
        table = changed
    return table


def owner(table: Partitioning, text: str | None, column: str = "id") -> str | None:
    names = [
        name
        for name in table.names
        if partition_test(table, (name,), SCHEMA, "UTC")({column: text})
    ]
    assert len(names) <= 1
    return names[0] if names else None


RANGE = partitions(f"range (id) ({less_than(p0='0', p1='100', p2='200', pm='maxvalue')})")
LIST = partitions(f"list (id) ({listed(a='1, 2', b='3', c='4')}, partition z default)")
HASH = partitions("hash (id) partitions 4")

CHANGES: list[tuple[Partitioning, str, tuple[str, ...], tuple[str, ...] | None]] = [
    (RANGE, "drop partition P1, `p0`", ("p0", "p1"), ("p2", "pm")),
    (RANGE, "truncate partition pm, p0", ("p0", "pm"), RANGE.names),
    (RANGE, "truncate partition all", RANGE.names, RANGE.names),
    (RANGE, "exchange partition P2 with table x", ("p2",), RANGE.names),
    (
        RANGE,
        f"reorganize partition p1, p2 into ({less_than(q='50', r='200')})",
        (),
        ("p0", "q", "r", "pm"),
    ),
    (
        RANGE,
        f"reorganize partition pm into ({less_than(p3='300', pm='maxvalue')})",
        (),
        ("p0", "p1", "p2", "p3", "pm"),
    ),
    (RANGE, "remove partitioning", (), None),
    (RANGE, "partition by hash (id) partitions 2", (), ("p0", "p1")),
    (LIST, "drop partition b", ("b",), ("a", "c", "z")),
    (LIST, f"add partition ({listed(d='9')})", (), ("a", "b", "c", "z", "d")),
    (LIST, f"reorganize partition a, c into ({listed(e='1, 2, 4')})", (), ("e", "b", "z")),
    (HASH, "add partition partitions 2", (), ("p0", "p1", "p2", "p3", "p4", "p5")),
    (HASH, "add partition (partition x, partition y)", (), ("p0", "p1", "p2", "p3", "x", "y")),
    (HASH, "coalesce partition 3", (), ("p0",)),
    (HASH, "truncate partition p3", ("p3",), HASH.names),
]


@pytest.mark.parametrize(
    ("table", "text", "emptied", "names"), CHANGES, ids=[text for _, text, _, _ in CHANGES]
)
def test_a_change_empties_some_partitions_and_leaves_others(
    table: Partitioning, text: str, emptied: tuple[str, ...], names: tuple[str, ...] | None
) -> None:
    assert emptied_partitions(table, change(text)) == emptied
    changed = changed_partitions(table, change(text))
    assert (None if changed is None else changed.names) == names


REFUSED: list[tuple[Partitioning, str, str]] = [
    (RANGE, "drop partition p9", "'p9'"),
    (RANGE, "drop partition p0, p1, p2, pm", "no partitions"),
    (RANGE, f"add partition ({less_than(P0='900')})", "one name"),
    (RANGE, "add partition partitions 2", "without partitions"),
    (RANGE, "coalesce partition 1", "COALESCE"),
    (RANGE, f"reorganize partition p0, p2 into ({less_than(q='200')})", "side by side"),
    (RANGE, f"reorganize partition nobody into ({less_than(q='200')})", "'nobody'"),
    (HASH, "coalesce partition 4", "COALESCE"),
    (HASH, "add partition partitions 9999", "8192"),
]


@pytest.mark.parametrize(("table", "text", "reason"), REFUSED, ids=[text for _, text, _ in REFUSED])
def test_a_change_that_does_not_fit_is_refused(table: Partitioning, text: str, reason: str) -> None:
    with pytest.raises(PartitionError) as caught:
        changed_partitions(table, change(text))
    assert reason in caught.value.reason


def test_what_a_dropped_range_held_belongs_to_the_next_one_from_then_on() -> None:
    assert owner(RANGE, "50") == "p1"
    dropped = after(RANGE, "drop partition p1")
    assert owner(dropped, "50") == "p2"
    assert owner(dropped, None) == "p0"
    assert owner(after(dropped, "drop partition p0"), None) == "p2"
    split = after(RANGE, f"reorganize partition p1 into ({less_than(q='50', r='100')})")
    assert [owner(split, text) for text in ("-1", "49", "50", "100")] == ["p0", "q", "r", "p2"]


def test_hashes_count_the_partitions_that_there_are() -> None:
    more = after(HASH, "add partition partitions 1")
    assert [owner(table, "9") for table in (HASH, more, after(more, "coalesce partition 3"))] == [
        "p1",
        "p4",
        "p1",
    ]


def test_a_table_may_be_partitioned_anew() -> None:
    table = after(RANGE, f"partition by list (id) ({listed(x='50')})", "truncate partition x")
    assert owner(table, "50") == "x"
    assert owner(table, "51") is None


def test_actions_are_all_decided() -> None:
    decided = {change(text).action for _, text, *_ in (*CHANGES, *REFUSED)}
    assert decided == set(PartitionAction)


@examples(60)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["drop", "reorganize", "add"]), st.integers(0, 30)), max_size=8
    ),
    values=st.lists(st.integers(-5, 400), min_size=1, max_size=12),
)
def test_ranges_after_any_changes_are_where_their_bounds_say(
    steps: list[tuple[str, int]], values: list[int]
) -> None:
    """The oracle keeps (name, bound) pairs and looks for the first bound above the value."""
    table = partitions(f"range (id) ({less_than(p0='100', p1='200')})")
    oracle = [("p0", 100), ("p1", 200)]
    for number, (action, pick) in enumerate(steps):
        place = pick % len(oracle)
        name, bound = oracle[place]
        if action == "drop" and len(oracle) > 1:
            table = after(table, f"drop partition {name.upper()}")
            del oracle[place]
        elif action == "add":
            bound = oracle[-1][1] + 1 + pick
            table = after(table, f"add partition ({less_than(**{f'a{number}': str(bound)})})")
            oracle.append((f"a{number}", bound))
        elif action == "reorganize":
            low = oracle[place - 1][1] if place else bound - 10
            middle = (low + bound) // 2
            parts = [(f"l{number}", middle)] if low < middle < bound else []
            parts.append((f"r{number}", bound))
            clause = less_than(**{part: str(end) for part, end in parts})
            table = after(table, f"reorganize partition {name} into ({clause})")
            oracle[place : place + 1] = parts
    for value in values:
        wanted = next((name for name, bound in oracle if value < bound), None)
        assert owner(table, str(value)) == wanted
    assert json.loads(json.dumps(table.described()))


# -------------------------------------------------------------------------------- golden messages


def test_all_names_of_a_table_of_many_partitions_are_found() -> None:
    count = 8_000
    bounds = {f"p{number}": str(number) for number in range(count)}
    table = partitions(f"range (id) ({less_than(**bounds)})")
    truncate = change(f"truncate partition {', '.join(table.names)}")
    merge = change(
        f"reorganize partition {', '.join(table.names)} into ({less_than(p=str(count - 1))})"
    )
    assert emptied_partitions(table, truncate) == table.names
    merged = changed_partitions(table, merge)
    assert merged is not None
    assert merged.names == ("p",)
