"""The reference fold against the simulator's own truth: DDL of every kind, and swaps."""

import random

import pytest

from ticdc_assets.demo.simulator.alterations import (
    AddColumn,
    DropColumn,
    ModifyColumn,
    RenameColumn,
)
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets_tests.demo.simulator.builders import churn, fill
from ticdc_assets_tests.demo.simulator.variants import PLAIN, Variant, shuffled

every_format = pytest.mark.parametrize("variant", PLAIN.values(), ids=PLAIN)


def two_tables() -> Upstream:
    upstream = Upstream()
    for database in ("d", "e"):
        upstream.create_database(database)
    for name in ("a", "b"):
        upstream.create_table(
            ("d", name),
            (column("id", "int", nullable=False), column("v", "varchar(20)")),
            primary_key=("id",),
        )
        fill(upstream, ("d", name), rows=6, seed=ord(name))
    return upstream


def check(variant: Variant, upstream: Upstream, *, cuts: int = 5) -> None:
    """Compare fold and truth at the end and at commit ts on the way, in two arrival orders."""
    changefeed = variant.changefeed(upstream, partitions=2)
    events = variant.events(changefeed.tick())
    stamps = sorted({commit.commit_ts for commit in upstream.history})
    picked = random.Random(0).sample(stamps, min(cuts, len(stamps)))
    at = changefeed.watermark_ts
    for cut, arrived in [*((cut, events) for cut in [*picked, at]), (at, shuffled(events))]:
        found = variant.folded(arrived, cut, upstream.timezone)
        assert found == variant.wanted(changefeed, cut)


def swap(upstream: Upstream) -> None:
    upstream.rename_tables(
        [(("d", "a"), ("d", "tmp")), (("d", "b"), ("d", "a")), (("d", "tmp"), ("d", "b"))]
    )
    churn(upstream, steps=10)


def ring_across_databases(upstream: Upstream) -> None:
    ring = [(("d", "a"), ("e", "a")), (("d", "b"), ("d", "a")), (("e", "a"), ("d", "b"))]
    for seed, (old, new) in enumerate(ring):
        upstream.rename_table(old, new)
        churn(upstream, steps=5, seed=seed)


def drop_and_create(upstream: Upstream) -> None:
    for number in range(2):
        upstream.drop_table(("d", "a"))
        columns = (column("id", "int", nullable=False), column(f"c{number}", "int"))
        upstream.create_table(("d", "a"), columns, primary_key=("id",))
        fill(upstream, ("d", "a"), rows=4, seed=number)


def truncate_rename_truncate(upstream: Upstream) -> None:
    upstream.truncate_table(("d", "b"))
    fill(upstream, ("d", "b"), rows=3, seed=4)
    upstream.rename_table(("d", "b"), ("e", "z"))
    upstream.truncate_table(("e", "z"))
    fill(upstream, ("e", "z"), rows=3, seed=5)


def drop_database(upstream: Upstream) -> None:
    upstream.drop_database("d", sql="/* gone */ DROP SCHEMA IF EXISTS `D`")
    upstream.create_database("d")
    upstream.create_table(("d", "a"), (column("id", "int", nullable=False),), primary_key=("id",))
    fill(upstream, ("d", "a"), rows=3)


@every_format
def test_tables_come_go_and_change_names(variant: Variant) -> None:
    upstream = two_tables()
    for act in (swap, ring_across_databases, drop_and_create, truncate_rename_truncate):
        act(upstream)
    drop_database(upstream)
    check(variant, upstream, cuts=20)


@every_format
def test_columns_come_go_and_change_between_the_rows(variant: Variant) -> None:
    upstream = two_tables()
    name = ("d", "a")
    steps = [
        (AddColumn(column=column("n", "int", nullable=False)),),
        (AddColumn(column=column("at", "timestamp", default="2024-03-01 00:00:00")),),
        (RenameColumn(name="v", new_name="w"), AddColumn(column=column("v", "decimal(8,2)"))),
        (ModifyColumn(name="n", column=column("n", "bigint", nullable=False)),),
        (DropColumn(name="w"),),
        (AddColumn(column=column("w", "varchar(5)", default="again")),),
        (ModifyColumn(name="n", column=column("m", "varchar(30)", nullable=False)),),
        (RenameColumn(name="id", new_name="key"),),
    ]
    for number, actions in enumerate(steps):
        upstream.alter_table(name, *actions)
        churn(upstream, steps=4, seed=number, tables=[name])
    check(variant, upstream, cuts=20)
