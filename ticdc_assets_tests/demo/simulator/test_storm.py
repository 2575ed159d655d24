"""The storm itself: what it is made of, and its truth."""

import copy
from collections import Counter

from ticdc_assets.demo.simulator.commits import CommittedDdl
from ticdc_assets.model.events import Op
from ticdc_assets_tests.demo.simulator.storm import storm
from ticdc_assets_tests.demo.simulator.storm_statements import STATEMENTS


def test_every_kind_of_ddl_comes() -> None:
    ran: Counter[str] = Counter()
    for seed in range(30):
        ran += storm(seed, keyless=seed % 2 == 0).ran
    assert ran.keys() == STATEMENTS.keys()


def test_the_same_seed_gives_the_same_storm() -> None:
    one, again, other = storm(7), storm(7), storm(8)
    assert one.upstream.history == again.upstream.history
    assert one.upstream.truth() == again.upstream.truth()
    assert one.upstream.truth() != other.upstream.truth()


def test_truth_at_every_commit_is_what_the_operations_left() -> None:
    upstream = storm(3, keyless=True).upstream
    seen: list[tuple[int, object]] = []
    # The rows that each commit leaves, worked out forwards from its images and previous tables.
    rows: dict[tuple[str, str], dict[tuple[str, ...], object]] = {}
    for commit in upstream.history:
        if isinstance(commit, CommittedDdl):
            after = upstream.truth(commit.commit_ts + 1)
            for name in commit.previous:
                rows.pop(name, None)
                if name in after:
                    rows[name] = dict(after[name])
        else:
            for change in commit.rows:
                table = rows[change.schema.database, change.schema.table]
                assert table.get(change.key) == change.before or change.op is Op.INSERT
                if change.after is None:
                    del table[change.key]
                else:
                    table[change.key] = change.after
        seen.append((commit.commit_ts + 1, copy.deepcopy(rows)))
    for at, expected in seen[::5]:
        assert upstream.truth(at) == expected
    assert upstream.truth() == rows
