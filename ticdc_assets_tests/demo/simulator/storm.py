"""A storm: random DDL of every kind and random rows over a handful of tables in two databases.

In: a seed and a number of steps. Out: an `Upstream` whose history holds it, with the truth at any
TSO (`OddUpstream.truth`), and which kinds of DDL came how often. A step is one DDL statement or one
transaction; between two statements there are a few transactions, so each statement meets rows that
are older than it, and rows come that are younger.

What is asked of whoever reads it: keys of every kind (clustered or not, of one column or more, a
NOT NULL unique key, none), keys that change, rows changed several times in a transaction, one
commit ts over tables and partitions, a DDL at the commit ts of rows before it, names that come
back for other tables, statements with and without the database's name.

The same arguments give the same history. A statement of which TiDB would not know a certain
outcome is not run: narrowing where a value does not fit, a key over rows that share it.

Not handled: FLOAT and DOUBLE (TiCDC damages FLOAT in Craft), generated columns, and a table without
a key that gets one, or loses it, where such tables are not sent (`keyless`): TiCDC then starts in
the middle of its rows, or stops.
"""

import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass

from ticdc_assets_tests.demo.simulator.odd_upstream import OddUpstream
from ticdc_assets_tests.demo.simulator.storm_state import StormState
from ticdc_assets_tests.demo.simulator.storm_statements import STATEMENTS, WEIGHTS, Impossible

_DDL_SHARE = 0.3
"""Share of the steps that are DDL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """What a storm left.

    Attributes:
        upstream: the upstream, with its whole history.
        keyless: whether tables without a key are in it, so that `force_replicate` is needed.
        ran: how often each kind of DDL was run.
    """

    upstream: OddUpstream
    keyless: bool
    ran: Counter[str]


def storm(
    seed: int,
    *,
    steps: int = 120,
    keyless: bool = False,
    timezone: str = "UTC",
) -> Storm:
    """Run a storm over a new upstream.

    Args:
        seed: of everything random.
        steps: transactions and statements after the first tables are there.
        keyless: have tables without a key too, and let tables lose theirs.
        timezone: the changefeed's time zone.
    """
    state = StormState(OddUpstream(timezone=timezone), random.Random(seed), keyless=keyless)
    state.open()
    ran: Counter[str] = Counter()
    for _ in range(steps):
        if state.rng.random() >= _DDL_SHARE:
            state.write()
            continue
        kind = some_statement(state)
        if kind is not None:
            ran[kind] += 1
        state.refill()
    return Storm(upstream=state.upstream, keyless=keyless, ran=ran)


def some_statement(state: StormState) -> str | None:
    """Run a statement that is possible and return its kind; None if none of six was."""
    for kind in state.rng.choices(list(STATEMENTS), weights=WEIGHTS.values(), k=6):
        state.upstream.qualified = state.rng.random() < 0.7
        with suppress(Impossible):
            STATEMENTS[kind](state)
            return kind
    return None
