"""Rows that did not fit when their column was modified: the DDL arrived, so TiDB had cast them."""

from collections import Counter

import pytest

from ticdc_assets.demo.simulator.alterations import DropColumn, ModifyColumn, RenameColumn
from ticdc_assets.demo.simulator.changefeed import FeedOptions
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.model.events import Bootstrap, DdlEvent, Event
from ticdc_assets.registry.history import Coordinates
from ticdc_assets_tests.demo.simulator.builders import upstream_of
from ticdc_assets_tests.demo.simulator.variants import PLAIN, Variant, rows_of, shuffled
from ticdc_assets_tests.reference.history_fold import fold_history

T = ("d", "t")

every_format = pytest.mark.parametrize("variant", PLAIN.values(), ids=PLAIN)


def started(*, keyless: bool = False) -> Upstream:
    return upstream_of(
        T,
        (column("id", "bigint", nullable=False), column("v", "varchar(256)"), column("n", "int")),
        primary_key=() if keyless else ("id",),
    )


def put(upstream: Upstream, number: int, v: str | None, n: int) -> None:
    with upstream.transaction() as transaction:
        transaction.insert(T, {"id": str(number), "v": v, "n": str(n)})


def narrowed(upstream: Upstream) -> tuple[int, int]:
    """Let rows stand, change and go around two DDL, and return the commit ts of these."""
    put(upstream, 1, "abc", -1)
    put(upstream, 2, "x", 5)
    put(upstream, 3, "changed before", 7)
    put(upstream, 4, "gone before", -7)
    put(upstream, 5, "changed after", -5)
    put(upstream, 6, "gone after", 6)
    put(upstream, 7, None, 2**31 - 1)
    with upstream.transaction() as transaction:
        transaction.update(T, ("3",), changes={"v": "s"})
        transaction.delete(T, ("4",))
    first = upstream.alter_table(T, ModifyColumn(name="v", column=column("v", "varchar(1)")))
    put(upstream, 8, "y", -8)
    second = upstream.alter_table(T, ModifyColumn(name="n", column=column("n", "int unsigned")))
    put(upstream, 9, "z", 9)
    with upstream.transaction() as transaction:
        transaction.update(T, ("5",), changes={"v": "w", "n": "55"})
        transaction.delete(T, ("6",))
    return first, second


@every_format
def test_what_did_not_fit_is_what_tidb_made_of_it(variant: Variant) -> None:
    upstream = started()
    first, second = narrowed(upstream)
    changefeed = variant.changefeed(upstream)
    events = shuffled(variant.events(changefeed.tick()))
    at = changefeed.watermark_ts
    tables = variant.tables(events, at, "UTC")
    assert rows_of(tables) == variant.wanted(changefeed, at)
    assert tables[T].quarantined == []
    assert tables[T].plan.caveats == ()
    # Of `v` 1, 5 and 6; of `n` 1, 5 and 8. What was changed or gone before fitted.
    assert list(tables[T].casts.values()) == [3, 3]
    if not variant.es_only:
        assert tables[T].casts == {("v", first): 3, ("n", second): 3}
    (row,) = (row for row in tables[T].listed() if row["id"] == "1")
    assert (row["v"], row["n"]) == ("a", "0")


def test_a_bag_counts_copies() -> None:
    upstream = started(keyless=True)
    variant = PLAIN["simple-json"]
    for number, v in ((1, "abc"), (1, "abc"), (1, "abd"), (2, "abc"), (3, "x")):
        put(upstream, number, v, 0)
    with upstream.transaction() as transaction:
        transaction.delete(T, next(iter(upstream.rows(T))))
    ddl_ts = upstream.alter_table(T, ModifyColumn(name="v", column=column("v", "varchar(2)")))
    changefeed = variant.changefeed(upstream, FeedOptions(force_replicate=True))
    events = shuffled(variant.events(changefeed.tick()))
    tables = variant.tables(events, changefeed.watermark_ts, "UTC")
    assert rows_of(tables) == variant.wanted(changefeed, changefeed.watermark_ts)
    assert tables[T].casts == {("v", ddl_ts): 3}


def test_counts_follow_their_column() -> None:
    upstream = started()
    first, second = narrowed(upstream)
    upstream.alter_table(T, RenameColumn(name="v", new_name="w"))
    upstream.alter_table(T, DropColumn(name="n"))
    variant = PLAIN["simple-json"]
    changefeed = variant.changefeed(upstream)
    tables = variant.tables(variant.events(changefeed.tick()), changefeed.watermark_ts, "UTC")
    assert tables[T].casts == {("w", first): 3}
    assert second not in {ts for _, ts in tables[T].casts}


def test_without_the_ddl_it_is_refused() -> None:
    """Only a DDL that arrived was surely executed, from this type to that one."""
    upstream = started()
    narrowed(upstream)
    variant = PLAIN["simple-json"]
    changefeed = variant.changefeed(upstream)
    events: list[tuple[Coordinates, Event]] = []
    for place, event in variant.events(changefeed.tick()):
        if isinstance(event, DdlEvent) and "MODIFY" in event.sql:
            assert event.schema is not None
            event = Bootstrap(build_ts_ms=None, schema=event.schema)
        events.append((place, event))
    tables = variant.tables(events, changefeed.watermark_ts, "UTC")
    assert tables[T].casts == Counter()
    reasons = [error.reason for _, error in tables[T].quarantined]
    assert reasons == ["invalid_cast", "invalid_cast"]
    assert sorted(row["id"] or "" for row in tables[T].listed()) == ["2", "3", "5", "7", "9"]


def test_a_key_is_not_cast_leniently() -> None:
    """Two rows may have become one; TiDB would have refused that, so nothing is known."""
    upstream = upstream_of(T, (column("k", "varchar(9)", nullable=False),), primary_key=("k",))
    with upstream.transaction() as transaction:
        transaction.insert(T, {"k": "ab"})
        transaction.insert(T, {"k": "c"})
    schema = upstream.schema(T)
    narrow = column("k", "varchar(1)", nullable=False)
    upstream.alter_table(T, ModifyColumn(name="k", column=narrow))
    assert upstream.schema(T).handle_key == schema.handle_key
    variant = PLAIN["simple-json"]
    changefeed = variant.changefeed(upstream)
    tables = variant.tables(variant.events(changefeed.tick()), changefeed.watermark_ts, "UTC")
    assert [row["k"] for row in tables[T].listed()] == ["c"]
    ((_, error),) = tables[T].quarantined
    assert error.position == "after.k"
    assert tables[T].casts == Counter()


def test_a_history_keeps_the_text_of_versions_that_ended_before() -> None:
    upstream = started()
    narrowed(upstream)
    variant = PLAIN["simple-json"]
    changefeed = variant.changefeed(upstream)
    events = shuffled(variant.events(changefeed.tick()))
    versions = fold_history(events, changefeed.watermark_ts, "UTC")[T]
    texts = {
        (item.row["id"], item.valid_to is None): (item.row["v"], item.row["n"]) for item in versions
    }
    assert texts == {
        ("1", True): ("a", "0"),
        ("2", True): ("x", "5"),
        ("3", False): ("changed before", "7"),
        ("3", True): ("s", "7"),
        ("4", False): ("gone before", "-7"),
        ("5", False): ("c", "0"),
        ("5", True): ("w", "55"),
        ("6", False): ("g", "6"),
        ("7", True): (None, "2147483647"),
        ("8", True): ("y", "0"),
        ("9", True): ("z", "9"),
    }
