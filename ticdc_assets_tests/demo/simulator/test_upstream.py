import pytest

from ticdc_assets.demo.simulator.alterations import (
    AddColumn,
    DropColumn,
    ModifyColumn,
    RenameColumn,
)
from ticdc_assets.demo.simulator.clock import TsoClock
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.stored_table import TableName, index
from ticdc_assets.demo.simulator.upstream import CommittedDdl, CommittedTransaction
from ticdc_assets.model.events import Op
from ticdc_assets_tests.demo.simulator.builders import shop_upstream
from ticdc_assets_tests.demo.simulator.odd_upstream import OddUpstream

T: TableName = ("d", "t")


def upstream_with_table(*, clustered: bool = True) -> OddUpstream:
    upstream = OddUpstream()
    upstream.create_database("d")
    upstream.create_table(
        T,
        (
            column("id", "int", nullable=False),
            column("v", "varchar(9)", default="dv"),
            column("u", "int"),
        ),
        primary_key=("id",),
        indexes=(index("u", "u", unique=True),),
        clustered=clustered,
    )
    return upstream


def insert(upstream: OddUpstream, **row: str | None) -> None:
    with upstream.transaction() as transaction:
        transaction.insert(T, row)


def last_ops(upstream: OddUpstream) -> list[tuple[Op, tuple[str, ...]]]:
    commit = upstream.history[-1]
    assert isinstance(commit, CommittedTransaction)
    return [(row.op, row.key) for row in commit.rows]


def last_ddl(upstream: OddUpstream) -> CommittedDdl:
    commit = upstream.history[-1]
    assert isinstance(commit, CommittedDdl)
    return commit


def test_a_cut_at_a_ts_has_its_rows_and_not_its_ddl() -> None:
    upstream = upstream_with_table()
    insert(upstream, id="1")
    upstream.share_next_ts()
    ts = upstream.truncate_table(T)
    assert upstream.history[-2].commit_ts == ts
    assert list(upstream.truth(ts)[T]) == [("1",)]
    assert upstream.truth(ts + 1)[T] == {}
    assert upstream.truth(ts - 1)[T] == {}


def test_commit_ts_increase_and_versions_are_not_above_them() -> None:
    upstream = shop_upstream(5, steps=120, steps_per_ddl=2)
    stamps = [commit.commit_ts for commit in upstream.history]
    assert stamps == sorted(set(stamps))
    for commit in upstream.history:
        if isinstance(commit, CommittedDdl):
            for event in commit.events:
                assert event.schema is None or event.schema.version <= commit.commit_ts


def test_net_changes_of_a_transaction() -> None:
    upstream = upstream_with_table()
    insert(upstream, id="1", u="1")
    before = len(upstream.history)
    with upstream.transaction() as transaction:
        transaction.insert(T, {"id": "2"})
        transaction.delete(T, ("2",))
        transaction.update(T, ("1",), changes={"v": "dv"})
    assert len(upstream.history) == before
    with upstream.transaction() as transaction:
        transaction.update(T, ("1",), changes={"v": "a"})
        transaction.update(T, ("1",), changes={"v": "b"})
        transaction.insert(T, {"id": "3"})
    assert last_ops(upstream) == [(Op.UPDATE, ("1",)), (Op.INSERT, ("3",))]
    assert upstream.rows(T)[("3",)] == {"id": "3", "v": "dv", "u": None}


def test_an_error_commits_nothing() -> None:
    upstream = upstream_with_table()
    insert(upstream, id="1")
    before = len(upstream.history)

    def insert_twice() -> None:
        with upstream.transaction() as transaction:
            transaction.insert(T, {"id": "2"})
            transaction.insert(T, {"id": "1"})

    with pytest.raises(ValueError, match="taken"):
        insert_twice()
    assert list(upstream.rows(T)) == [("1",)]
    assert len(upstream.history) == before


@pytest.mark.parametrize("row", [{"id": None}, {}, {"id": "9", "nope": "1"}])
def test_rows_that_cannot_be_are_refused(row: dict[str, str | None]) -> None:
    upstream = upstream_with_table()
    with pytest.raises(ValueError, match=r"NULL|unknown"):
        insert(upstream, **row)


def test_a_changed_key_is_a_delete_and_an_insert() -> None:
    upstream = upstream_with_table()
    insert(upstream, id="1", v="x")
    with upstream.transaction() as transaction:
        assert transaction.update(T, ("1",), changes={"id": "2"}) == ("2",)
    assert last_ops(upstream) == [(Op.DELETE, ("1",)), (Op.INSERT, ("2",))]
    with upstream.transaction() as transaction:
        transaction.update(T, ("2",), changes={"u": "5"})
    # Any unique key that changes splits the update, one that may be NULL too.
    assert last_ops(upstream) == [(Op.DELETE, ("2",)), (Op.INSERT, ("2",))]


@pytest.mark.parametrize(
    ("clustered", "ops"),
    [
        (True, [(Op.UPDATE, ("1",)), (Op.UPDATE, ("2",))]),
        (
            False,
            [
                (Op.DELETE, ("1",)),
                (Op.DELETE, ("2",)),
                (Op.INSERT, ("1",)),
                (Op.INSERT, ("2",)),
            ],
        ),
    ],
)
def test_two_rows_that_trade_their_keys(
    ops: list[tuple[Op, tuple[str, ...]]], *, clustered: bool
) -> None:
    upstream = upstream_with_table(clustered=clustered)
    insert(upstream, id="1", v="one")
    insert(upstream, id="2", v="two")
    with upstream.transaction() as transaction:
        transaction.update(T, ("1",), changes={"id": "0"})
        transaction.update(T, ("2",), changes={"id": "1"})
        transaction.update(T, ("0",), changes={"id": "2"})
    assert sorted(last_ops(upstream)) == sorted(ops)
    assert [upstream.rows(T)[key]["v"] for key in (("1",), ("2",))] == ["two", "one"]


def test_a_key_freed_and_taken_again() -> None:
    upstream = upstream_with_table(clustered=False)
    insert(upstream, id="1", v="old")
    with upstream.transaction() as transaction:
        transaction.delete(T, ("1",))
        transaction.insert(T, {"id": "1", "v": "new"})
    assert last_ops(upstream) == [(Op.DELETE, ("1",)), (Op.INSERT, ("1",))]


def test_a_rewritten_column_moves_to_the_end() -> None:
    upstream = upstream_with_table()
    upstream.alter_table(T, ModifyColumn(name="v", column=column("v", "varchar(20)")))
    assert [c.name for c in upstream.schema(T).columns] == ["id", "v", "u"]
    upstream.alter_table(T, ModifyColumn(name="v", column=column("v", "varchar(5)")))
    assert [c.name for c in upstream.schema(T).columns] == ["id", "u", "v"]
    assert upstream.stored(T).order == ("id", "v", "u")


def test_a_table_has_its_columns_where_statements_put_them() -> None:
    upstream = upstream_with_table()
    u = column("u", "varchar(20)")
    for action, order in (
        (AddColumn(column=column("a", "int"), first=True), "aidvu"),
        (AddColumn(column=column("b", "int"), after="id"), "aidbvu"),
        (AddColumn(column=column("c", "int")), "aidbvuc"),
        (ModifyColumn(name="u", column=u, after="a"), "auidbvc"),
        (RenameColumn(name="b", new_name="d"), "auiddvc"),
        (DropColumn(name="a"), "uiddvc"),
    ):
        upstream.alter_table(T, action)
        assert "".join(item.name for item in upstream.stored(T).columns) == order


def test_rename_and_truncate_keep_the_version() -> None:
    upstream = upstream_with_table()
    insert(upstream, id="1")
    first = upstream.schema(T)
    upstream.create_database("e")
    upstream.rename_table(T, ("e", "s"))
    renamed = upstream.schema(("e", "s"))
    assert (renamed.version, renamed.table_id) == (first.version, first.table_id)
    assert list(upstream.truth()) == [("e", "s")]
    upstream.truncate_table(("e", "s"))
    truncated = upstream.schema(("e", "s"))
    assert truncated.version == first.version
    assert truncated.table_id != first.table_id
    assert upstream.truth() == {("e", "s"): {}}
    upstream.drop_table(("e", "s"))
    (event,) = last_ddl(upstream).events
    assert event.schema == event.pre_schema == truncated
    assert upstream.truth() == {}


def test_a_swap_is_one_commit_with_three_events() -> None:
    upstream = upstream_with_table()
    upstream.create_table_like(("d", "b"), T)
    insert(upstream, id="1")
    before = upstream.truth()
    ts = upstream.rename_tables([(T, ("d", "x")), (("d", "b"), T), (("d", "x"), ("d", "b"))])
    assert upstream.truth() == {T: before["d", "b"], ("d", "b"): before[T]}
    assert upstream.truth(ts) == before
    ddl = last_ddl(upstream)
    assert {event.commit_ts for event in ddl.events} == {ts}
    assert [event.table for event in ddl.events] == ["x", "t", "b"]
    assert ddl.events[0].sql == "RENAME TABLE `d`.`t` TO `d`.`x`"


def test_drop_database_takes_its_tables_with_it() -> None:
    upstream = upstream_with_table()
    insert(upstream, id="1")
    ts = upstream.drop_database("d")
    assert upstream.truth() == {}
    assert list(upstream.truth(ts)) == [T]
    (event,) = last_ddl(upstream).events
    assert (event.ddl_type, event.database, event.table, event.schema) == ("QUERY", "d", "", None)


def test_the_key_travels_as_an_index() -> None:
    upstream = upstream_with_table()
    assert [i.name for i in upstream.schema(T).indexes] == ["u", "primary"]
    columns = (column("a", "char(2)"), column("b", "int", nullable=False))
    upstream.create_table(("d", "p"), columns, primary_key=("a",))
    assert [i.name for i in upstream.schema(("d", "p")).indexes] == ["PRIMARY"]
    upstream.create_table(("d", "k"), columns)
    assert upstream.schema(("d", "k")).handle_key == ()
    upstream.create_index(("d", "k"), "ub", columns=("b",), unique=True)
    assert upstream.schema(("d", "k")).handle_key == ("b",)
    assert [i.name for i in upstream.schema(("d", "k")).indexes] == ["ub", "primary"]
    upstream.drop_index(("d", "k"), "ub")
    assert upstream.schema(("d", "k")).handle_key == ()


def test_a_live_clock_follows_the_wall_clock_and_never_goes_back() -> None:
    readings = iter([1_000, 1_000, 900, 2_000])
    clock = TsoClock(now_ms=lambda: next(readings))
    given = [clock.next() for _ in range(3)]
    assert given == sorted(set(given))
    assert given[-1] == 2_000 << 18
