"""What the stand-in upstream commits, where TiDB has rules that no life of a lake would show."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import pytest

from ticdc_assets.demo.simulator.clock import TsoClock
from ticdc_assets.demo.simulator.statements import execute
from ticdc_assets.demo.simulator.stored_table import TableName
from ticdc_assets.demo.simulator.upstream import CommittedDdl, CommittedTransaction
from ticdc_assets.model.events import Op
from ticdc_assets_tests.demo.simulator.odd_upstream import OddUpstream

T: TableName = ("d", "t")

Change: TypeAlias = tuple[str | None, Mapping[str, str | None] | None]
"""The key of a row, None for a new one; and its columns that change, None to delete it."""


def upstream_with_table(*, clustered: bool = True) -> OddUpstream:
    upstream = OddUpstream()
    upstream.create_database("d")
    kind = "CLUSTERED" if clustered else "NONCLUSTERED"
    execute(
        upstream,
        "CREATE TABLE d.t (id int, v varchar(9) DEFAULT 'dv', u int, UNIQUE KEY u (u), "
        f"PRIMARY KEY (id) /*T![clustered_index] {kind} */)",
    )
    execute(upstream, "INSERT INTO d.t (id, v) VALUES (1, 'one'), (2, 'two')")
    return upstream


# A star marks the halves of an update that TiCDC has split.
SIGNS = {Op.INSERT: "+", Op.UPDATE: "~", Op.DELETE: "-"}
TRADE = (("1", {"id": "0"}), ("2", {"id": "1"}), ("0", {"id": "2"}))


@pytest.mark.parametrize(
    ("clustered", "changes", "wanted"),
    [
        (True, ((None, {"id": "3"}), ("3", None), ("1", {"v": "one"})), ""),
        (True, (("1", {"v": "a"}), ("1", {"v": "b"}), (None, {"id": "3"})), "~1 +3"),
        (True, (("1", {"id": "9"}),), "-1 +9"),
        # Any unique key that changes splits the update, one that may be NULL too.
        (True, (("1", {"u": "5"}),), "-1* +1*"),
        (True, TRADE, "~2 ~1"),
        (False, TRADE, "-1* -2* +1* +2*"),
        # What was inserted a moment ago is no update.
        (False, ((None, {"id": "3"}), ("3", {"id": "4"})), "+4"),
        (True, ((None, {"id": "3"}), ("3", {"u": "7"})), "+3"),
        # The key freed and taken again is of another row in TiKV.
        (True, (("1", None), (None, {"id": "1", "v": "new"})), "~1"),
        (False, (("1", None), (None, {"id": "1", "v": "new"})), "-1 +1"),
    ],
)
def test_a_transaction_commits_the_net_of_its_changes(
    changes: Sequence[Change], wanted: str, *, clustered: bool
) -> None:
    upstream = upstream_with_table(clustered=clustered)
    before, rows = len(upstream.history), {key: dict(row) for key, row in upstream.rows(T).items()}
    with upstream.transaction() as transaction:
        for key, values in changes:
            if key is None:
                transaction.insert(T, values or {})
                rows[((values or {})["id"] or "",)] = {"v": "dv", "u": None, **(values or {})}
            elif values is None:
                transaction.delete(T, (key,))
                del rows[key,]
            else:
                new = transaction.update(T, (key,), changes=values)
                rows[new] = {**rows.pop((key,)), **values}
    assert upstream.rows(T) == rows
    ops: list[str] = []
    for commit in upstream.history[before:]:
        assert isinstance(commit, CommittedTransaction)
        ops += [f"{SIGNS[row.op]}{row.key[0]}{'*' * row.is_split}" for row in commit.rows]
    assert sorted(ops) == sorted(wanted.split())
    deletes = [op.startswith("-") for op in ops]
    assert deletes == sorted(deletes, reverse=True), "deletes come first"


def test_a_cut_at_a_ts_has_its_rows_and_not_its_ddl() -> None:
    upstream = upstream_with_table()
    execute(upstream, "DELETE FROM d.t WHERE id = 2")
    upstream.share_next_ts()
    ts = upstream.truncate_table(T)
    assert upstream.history[-2].commit_ts == ts
    assert [list(upstream.truth(at)[T]) for at in (ts - 1, ts, ts + 1)] == [
        [("1",), ("2",)],
        [("1",)],
        [],
    ]


def test_columns_are_where_statements_put_them_and_sent_in_the_order_of_their_ids() -> None:
    upstream = upstream_with_table()
    for change, order, sent in (
        ("MODIFY v varchar(20)", "idvu", "idvu"),
        # A column that is rewritten has a new id.
        ("MODIFY v varchar(5)", "idvu", "iduv"),
        ("ADD a int FIRST", "aidvu", "iduva"),
        ("ADD b int AFTER id", "aidbvu", "iduvab"),
        ("ADD c int", "aidbvuc", "iduvabc"),
        ("MODIFY u varchar(20) AFTER a", "auidbvc", "idvabcu"),
        ("RENAME COLUMN b TO d", "auiddvc", "idvadcu"),
        ("DROP COLUMN a", "uiddvc", "idvdcu"),
    ):
        execute(upstream, f"ALTER TABLE d.t {change}")
        assert "".join(upstream.stored(T).order) == order
        assert "".join(item.name for item in upstream.stored(T).columns) == order
        assert "".join(item.name for item in upstream.schema(T).columns) == sent


def test_rename_and_truncate_keep_the_version() -> None:
    upstream = upstream_with_table()
    first = upstream.schema(T)
    upstream.create_database("e")
    execute(upstream, "RENAME TABLE d.t TO e.s")
    renamed = upstream.schema(("e", "s"))
    assert (renamed.version, renamed.table_id) == (first.version, first.table_id)
    execute(upstream, "TRUNCATE TABLE e.s")
    truncated = upstream.schema(("e", "s"))
    assert truncated.version == first.version
    assert truncated.table_id != first.table_id
    execute(upstream, "DROP TABLE e.s")
    commit = upstream.history[-1]
    assert isinstance(commit, CommittedDdl)
    (event,) = commit.events
    assert event.schema == event.pre_schema == truncated


def test_the_key_travels_as_an_index() -> None:
    upstream = upstream_with_table()
    assert [i.name for i in upstream.schema(T).indexes] == ["u", "primary"]
    execute(upstream, "CREATE TABLE d.p (a char(2) PRIMARY KEY, b int NOT NULL)")
    assert [i.name for i in upstream.schema(("d", "p")).indexes] == ["PRIMARY"]
    execute(upstream, "CREATE TABLE d.k (a char(2), b int NOT NULL, UNIQUE KEY ua (a))")
    assert upstream.schema(("d", "k")).handle_key == ()
    upstream.create_index(("d", "k"), "ub", columns=("b",), unique=True)
    assert upstream.schema(("d", "k")).handle_key == ("b",)
    assert [i.name for i in upstream.schema(("d", "k")).indexes] == ["ua", "ub", "primary"]
    upstream.drop_index(("d", "k"), "ub")
    assert upstream.schema(("d", "k")).handle_key == ()


def test_a_live_clock_follows_the_wall_clock_and_never_goes_back() -> None:
    readings = iter([1_000, 1_000, 900, 2_000])
    clock = TsoClock(now_ms=lambda: next(readings))
    given = [clock.next() for _ in range(3)]
    assert given == sorted(set(given))
    assert given[-1] == 2_000 << 18
