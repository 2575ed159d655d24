"""A bank in every format: the reference fold finds its total at any TSO, in any arrival order."""

import random
from decimal import Decimal

import pytest

from ticdc_assets.demo.simulator.commits import CommittedTransaction
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.wire import WireFormat
from ticdc_assets_tests.demo.simulator.bank import BALANCE, Bank, total_of
from ticdc_assets_tests.demo.simulator.variants import Variant, shuffled


def run_bank(*, transfers: int) -> tuple[Upstream, Bank]:
    upstream = Upstream()
    bank = Bank(upstream, seed=5)
    bank.open()
    for _ in range(transfers):
        bank.transfer()
    return upstream, bank


def test_the_truth_has_the_total_at_every_commit_and_some_keys_move() -> None:
    upstream, bank = run_bank(transfers=80)
    commits = [c for c in upstream.history if isinstance(c, CommittedTransaction)]
    for commit in commits:
        assert total_of(upstream.truth(commit.commit_ts)) == bank.total
    assert any(row.is_split for commit in commits for row in commit.rows)
    assert any(len({row.schema.table for row in commit.rows}) == 3 for commit in commits)


@pytest.mark.parametrize("wire_format", WireFormat)
@pytest.mark.thorough
def test_the_fold_has_the_total_at_any_tso(wire_format: WireFormat) -> None:
    upstream, bank = run_bank(transfers=60)
    variant = Variant(wire_format)
    changefeed = variant.changefeed(upstream, partitions=3, seed=5)
    events = shuffled(variant.events(changefeed.tick()), 5)
    rng = random.Random(5)
    for at in [rng.randrange(bank.opened_ts, changefeed.watermark_ts) for _ in range(15)]:
        tables = variant.tables(events, at, "UTC").values()
        balances = [Decimal(row[BALANCE] or "0") for table in tables for row in table.listed()]
        assert sum(balances) == bank.total
