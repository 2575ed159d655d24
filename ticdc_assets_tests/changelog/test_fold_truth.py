"""The reference fold against the simulator's own truth: DDL of every kind, swaps, replays."""

import random

import pytest

from ticdc_assets.demo.simulator.alterations import (
    AddColumn,
    DropColumn,
    ModifyColumn,
    RenameColumn,
)
from ticdc_assets.demo.simulator.changefeed import FeedOptions
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.shop import ShopWorkload
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets_tests.demo.simulator.builders import (
    churn,
    fill,
    odd_names_upstream,
    wide_upstream,
)
from ticdc_assets_tests.demo.simulator.variants import PLAIN, Variant, shuffled

every_format = pytest.mark.parametrize("variant", PLAIN.values(), ids=PLAIN)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.thorough
def test_a_shop_with_restarts_at_any_cut(seed: int) -> None:
    variant = PLAIN["simple-json"]
    upstream = Upstream(timezone="Asia/Tokyo")
    changefeed = variant.changefeed(upstream, FeedOptions(ddl_watermarks=True), seed=seed)
    workload = ShopWorkload(upstream, seed)
    records = []
    cuts: list[int] = []
    for _ in range(4):
        for _ in workload.steps(40):
            pass
        records += changefeed.tick()
        cuts.append(changefeed.watermark_ts)
        changefeed.restart(random.Random(seed).choice(cuts))
    records += changefeed.tick()
    events = variant.events(records)
    for at in [*cuts, changefeed.watermark_ts]:
        assert variant.folded(events, at, "Asia/Tokyo") == variant.wanted(changefeed, at)


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


@every_format
def test_a_swap_in_one_statement(variant: Variant) -> None:
    upstream = two_tables()
    upstream.rename_tables(
        [(("d", "a"), ("d", "tmp")), (("d", "b"), ("d", "a")), (("d", "tmp"), ("d", "b"))]
    )
    churn(upstream, steps=10)
    check(variant, upstream)


@every_format
def test_a_ring_across_databases_and_back(variant: Variant) -> None:
    upstream = two_tables()
    upstream.rename_table(("d", "a"), ("e", "a"))
    churn(upstream, steps=5)
    upstream.rename_table(("d", "b"), ("d", "a"))
    churn(upstream, steps=5, seed=1)
    upstream.rename_table(("e", "a"), ("d", "b"))
    churn(upstream, steps=5, seed=2)
    check(variant, upstream, cuts=12)


@every_format
def test_drop_and_create_again_and_again(variant: Variant) -> None:
    upstream = two_tables()
    for number in range(3):
        upstream.drop_table(("d", "a"))
        upstream.create_table(
            ("d", "a"),
            (column("id", "int", nullable=False), column(f"c{number}", "int")),
            primary_key=("id",),
        )
        fill(upstream, ("d", "a"), rows=4, seed=number)
    check(variant, upstream, cuts=12)


@every_format
def test_truncate_rename_truncate(variant: Variant) -> None:
    upstream = two_tables()
    upstream.truncate_table(("d", "a"))
    fill(upstream, ("d", "a"), rows=3, seed=4)
    upstream.rename_table(("d", "a"), ("e", "z"))
    upstream.truncate_table(("e", "z"))
    fill(upstream, ("e", "z"), rows=3, seed=5)
    check(variant, upstream, cuts=12)


@every_format
def test_dropping_a_database_drops_its_tables(variant: Variant) -> None:
    upstream = two_tables()
    upstream.drop_database("d", sql="/* gone */ DROP SCHEMA IF EXISTS `D`")
    upstream.create_database("d")
    upstream.create_table(("d", "a"), (column("id", "int", nullable=False),), primary_key=("id",))
    fill(upstream, ("d", "a"), rows=3)
    check(variant, upstream, cuts=12)


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


@every_format
@pytest.mark.thorough
def test_odd_names_and_many_columns(variant: Variant) -> None:
    check(variant, odd_names_upstream())
    check(variant, wide_upstream(columns=200, rows=4))
