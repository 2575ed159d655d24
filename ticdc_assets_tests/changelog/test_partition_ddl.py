"""DDL that moves rows without row events: what it does, and how it is told if not known."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest

from ticdc_assets.base.errors import ImageError
from ticdc_assets.changelog import carrying
from ticdc_assets.changelog.carrying import part_carrier
from ticdc_assets.changelog.plan import RowGroup
from ticdc_assets.changelog.planning import MISNAMED_REASON, build_plan
from ticdc_assets.changelog.resolve import RowResolver
from ticdc_assets.demo.simulator.alterations import ModifyColumn, RenameColumn
from ticdc_assets.demo.simulator.changefeed import FeedOptions
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.stored_table import TableName
from ticdc_assets.model.events import Bootstrap, DdlEvent, Event, Image, Op, RowChange
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.registry import partitions
from ticdc_assets.registry.catalog import complete
from ticdc_assets.registry.evolution import CanonicalRow
from ticdc_assets.registry.history import Coordinates, SchemaHistory
from ticdc_assets_tests.demo.simulator.builders import upstream_of
from ticdc_assets_tests.demo.simulator.key_changes import AddPrimaryKey, DropPrimaryKey
from ticdc_assets_tests.demo.simulator.odd_upstream import OddUpstream
from ticdc_assets_tests.demo.simulator.partition_changes import (
    DropPartitions,
    RemovePartitioning,
    TruncatePartitions,
)
from ticdc_assets_tests.demo.simulator.partitions import Method, Partition, Partitioning
from ticdc_assets_tests.demo.simulator.variants import OLD, PLAIN, Variant, rows_of
from ticdc_assets_tests.events import ddl_event
from ticdc_assets_tests.reference.fold import FoldedTable
from ticdc_assets_tests.text_tables import created

# Each format in both dialects; where the rows go is the same in them, so one of the two is enough
# for most.
BOTH = {**PLAIN, **{f"tiflow {name}": variant for name, variant in OLD.items() if name != "craft"}}
every_format = pytest.mark.parametrize("variant", PLAIN.values(), ids=PLAIN)
every_dialect = pytest.mark.parametrize("variant", BOTH.values(), ids=BOTH)

P, N = ("d", "parts"), ("d", "alone")
COLUMNS = (column("id", "bigint", nullable=False), column("v", "varchar(20)"))
BY_RANGE = Partitioning(
    method=Method.RANGE,
    column="id",
    partitions=(
        Partition(name="p0", below=10),
        Partition(name="p1", below=20),
        Partition(name="pm", below=None),
    ),
)


def started() -> OddUpstream:
    upstream = OddUpstream()
    upstream.create_database("d")
    upstream.create_table(P, COLUMNS, primary_key=("id",), partitioning=BY_RANGE)
    upstream.create_table(N, COLUMNS, primary_key=("id",))
    put(upstream, P, (1, 5, 12, 15, 30))
    put(upstream, N, (13, 14))
    return upstream


def put(upstream: OddUpstream, name: TableName, ids: Sequence[int]) -> None:
    for number in ids:
        with upstream.transaction() as transaction:
            transaction.insert(name, {"id": str(number), "v": f"{name[1]}{number}"})


def tables(
    variant: Variant, upstream: OddUpstream, *, without: Sequence[str] = (), keyless: bool = False
) -> dict[TableName, FoldedTable]:
    """Fold what the changefeed sends, but for DDL with one of the texts `without`."""
    options = FeedOptions(force_replicate=keyless)
    changefeed = variant.changefeed(upstream, options, partitions=2)
    events = [
        (place, event)
        for place, event in variant.events(changefeed.tick())
        if not (isinstance(event, DdlEvent) and any(text in event.sql.upper() for text in without))
    ]
    at = changefeed.watermark_ts
    found = variant.tables(events, at, "UTC")
    if not without:
        assert rows_of(found) == variant.wanted(changefeed, at)
    return found


def ids(table: FoldedTable) -> list[int]:
    return sorted(int(row["id"] or 0) for row in table.listed())


@every_dialect
def test_rows_change_hands_and_go_on(variant: Variant) -> None:
    upstream = started()
    upstream.exchange_partition(P, "p1", N)
    put(upstream, P, (16,))
    put(upstream, N, (40,))
    with upstream.transaction() as transaction:
        transaction.delete(P, ("13",))
        transaction.update(N, ("12",), changes={"v": "mine now"})
    found = tables(variant, upstream)
    assert ids(found[P]) == [1, 5, 14, 16, 30]
    assert ids(found[N]) == [12, 15, 40]
    with upstream.transaction() as transaction:
        transaction.delete(N, ("40",))
    upstream.alter_partitions(P, TruncatePartitions(names=("p1",)))
    upstream.exchange_partition(P, "p1", N)
    found = tables(variant, upstream)
    assert ids(found[P]) == [1, 5, 12, 15, 30]
    assert ids(found[N]) == []
    assert all(table.plan.caveats == () for table in found.values())


@every_dialect
def test_tables_swap_names_after_an_exchange(variant: Variant) -> None:
    upstream = started()
    other, aside = ("d", "other"), ("d", "aside")
    upstream.create_table(other, COLUMNS, primary_key=("id",))
    put(upstream, other, (70,))
    upstream.exchange_partition(P, "p1", N)
    put(upstream, N, (40,))
    upstream.rename_tables([(N, aside), (other, N), (aside, other)])
    put(upstream, N, (71,))
    put(upstream, other, (41,))
    found = tables(variant, upstream)
    assert (ids(found[N]), ids(found[other])) == ([70, 71], [12, 15, 40, 41])
    assert all(table.plan.caveats == () for table in found.values())


@pytest.mark.parametrize("name", ["simple-json", "simple-avro"])
@pytest.mark.parametrize("misnamed", [False, True])
def test_rows_of_the_partition_under_the_name_of_its_table_mark_both(
    name: str, misnamed: bool
) -> None:
    """TiCDC may go on with the name that an id had before the exchange."""
    upstream = started()
    before = upstream.schema(N)
    upstream.exchange_partition(P, "p1", N)
    put(upstream, N, (40,))
    put(upstream, P, (16,))
    changefeed = PLAIN[name].changefeed(upstream, partitions=1)
    events = PLAIN[name].events(changefeed.tick())
    if misnamed:
        wrong = {"database": N[0], "table": N[1], "schema_version": before.version}
        events = [
            (place, replace(event, **wrong))
            if isinstance(event, RowChange)
            and event.table == P[1]
            and event.table_id == before.table_id
            else (place, event)
            for place, event in events
        ]
    found = PLAIN[name].tables(events, changefeed.watermark_ts, "UTC")
    wanted = [MISNAMED_REASON] if misnamed else []
    for table in (P, N):
        assert [item.reason for item in found[table].plan.caveats] == wanted
    upstream.truncate_table(N)
    put(upstream, N, (7,))
    events += PLAIN[name].events(changefeed.tick())
    found = PLAIN[name].tables(events, changefeed.watermark_ts, "UTC")
    assert found[N].plan.caveats == ()
    assert [item.reason for item in found[P].plan.caveats] == wanted
    # P lacks these rows after the next exchange, too.
    upstream.exchange_partition(P, "p0", N)
    put(upstream, N, (42,))
    events += PLAIN[name].events(changefeed.tick())
    found = PLAIN[name].tables(events, changefeed.watermark_ts, "UTC")
    assert [item.reason for item in found[P].plan.caveats] == wanted


@every_dialect
def test_what_a_table_was_before_an_exchange_does_not_concern_its_rows(variant: Variant) -> None:
    upstream = started()
    # Rows of N cite the version of P after the exchange, which is below that of N's own RENAME.
    for name in (P, N):
        upstream.alter_table(name, RenameColumn(name="v", new_name="w"))
    upstream.exchange_partition(P, "p1", N)
    with upstream.transaction() as transaction:
        transaction.insert(N, {"id": "40", "w": "new"})
        transaction.update(N, ("12",), changes={"w": "mine now"})
    assert ids(tables(variant, upstream)[N]) == [12, 15, 40]
    upstream.truncate_table(N)
    with upstream.transaction() as transaction:
        transaction.insert(N, {"id": "41", "w": "last"})
    found = tables(variant, upstream)
    assert ids(found[N]) == [41]
    assert all(table.plan.caveats == () for table in found.values())


@every_dialect
def test_a_table_has_the_name_that_the_partitioned_one_had(variant: Variant) -> None:
    upstream = started()
    divided = ("d", "divided")
    upstream.rename_table(P, divided)
    upstream.create_table_like(P, divided)
    upstream.alter_partitions(P, RemovePartitioning())
    put(upstream, P, (2, 3))
    upstream.exchange_partition(divided, "p0", P)
    # The id of the partition and the version of the other table are those of rows of this name
    # from before.
    put(upstream, P, (6,))
    put(upstream, divided, (7,))
    found = tables(variant, upstream)
    assert (ids(found[P]), ids(found[divided])) == ([1, 5, 6], [2, 3, 7, 12, 15, 30])


@every_format
def test_a_partition_that_comes_back_is_empty(variant: Variant) -> None:
    upstream = started()
    upstream.alter_partitions(P, DropPartitions(names=("p0",)))
    put(upstream, P, (2,))
    upstream.alter_partitions(P, DropPartitions(names=("pm",)))
    found = tables(variant, upstream)
    # Without p0 what is below 20 belongs to p1.
    assert ids(found[P]) == [2, 12, 15]


@every_format
@pytest.mark.parametrize(
    ("change", "text"), [("drop", "(drop)"), ("truncate", "(truncate)"), ("exchange", "(exchange)")]
)
def test_from_the_middle_the_mirror_is_marked(variant: Variant, change: str, text: str) -> None:
    upstream = started()
    if change == "exchange":
        upstream.exchange_partition(P, "p1", N)
    elif change == "drop":
        upstream.alter_partitions(P, DropPartitions(names=("p1",)))
    else:
        upstream.alter_partitions(P, TruncatePartitions(names=("p1",)))
    found = tables(variant, upstream, without=["CREATE TABLE"])
    (caveat,) = found[P].plan.caveats
    assert text in str(caveat)
    assert "CREATE TABLE was not seen" in str(caveat)
    assert ids(found[P]) == [1, 5, 12, 15, 30]
    assert bool(found[N].plan.caveats) is (change == "exchange")


def test_truncate_clears_what_was_not_known() -> None:
    upstream = started()
    upstream.alter_partitions(P, DropPartitions(names=("p1",)))
    upstream.truncate_table(P)
    put(upstream, P, (3,))
    found = tables(PLAIN["simple-json"], upstream, without=["CREATE TABLE"])
    assert found[P].plan.caveats == ()
    assert ids(found[P]) == [3]


def test_a_value_that_does_not_go_over_is_a_fault() -> None:
    upstream = started()
    upstream.exchange_partition(P, "p1", N)
    plan = tables(PLAIN["simple-json"], upstream)[N].plan
    (part,) = plan.parts
    row: CanonicalRow = {"id": "12", "v": "parts12"}
    carried = part_carrier(part, plan, "UTC")(row)
    assert carried is not None
    assert (carried.row, carried.fault) == (row, None)
    # The tables were not alike, whatever TiDB says of that.
    narrow = tuple(
        replace(item, mysql_type="int") if item.name == "v" else item
        for item in part.schema.columns
    )
    part = replace(part, schema=replace(part.schema, columns=narrow))
    carried = part_carrier(part, plan, "UTC")(row)
    assert carried is not None
    assert carried.row == {"id": "12"}
    assert carried.fault is not None
    assert carried.fault.position == "v"
    assert carried.texts == {"v": "parts12"}
    with pytest.raises(ImageError, match="unknown_partition"):
        part_carrier(part, plan, "UTC")({"v": "parts12"})


@pytest.mark.parametrize("keeps_version", [True, False])
def test_what_is_compiled_grows_with_the_days_alone(
    keeps_version: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a table whose oldest day is dropped every day, for each of whose versions there are rows.

    A bound is in the definitions of every day on which its partition was there.
    """
    days, kept = 40, 30
    history, schemas = daily_drops(days, kept, keeps_version=keeps_version)
    groups = [
        RowGroup(
            database="d",
            table="daily",
            table_id=1000 + number,
            schema_version=schema.version,
            min_ts=schema.version + 1,
            max_ts=schema.version + 2,
            rows=1,
        )
        for number, schema in enumerate(schemas)
    ]
    bounds, tests = Counter[str](), Counter[str]()
    partitions._less_than.cache_clear()
    monkeypatch.setattr(partitions, "cursor_over", counting(bounds, partitions.cursor_over))
    monkeypatch.setattr(carrying, "partition_test", counting(tests, carrying.partition_test))
    end = max(ddl.event.commit_ts for ddl in history.ddls) + 1
    (plan,) = build_plan(complete(history, [], "UTC"), groups, end, "UTC").mirrors
    assert len(plan.removals) == days
    assert plan.caveats == ()
    assert 0 < bounds.total() <= days + kept
    resolver = RowResolver(plan, "UTC")
    assert tests.total() == 0
    gone: list[int | None] = []
    for day, schema in enumerate(schemas):
        # Each row is of the newest day, and is dropped `kept` days later, if it is yet.
        row: Image = {
            "id": str(day),
            "day": str(FIRST_DAY + timedelta(days=day + kept - 1)),
            "v": None,
        }
        (change,) = resolver.resolve(
            Op.INSERT, schema.version, commit_ts=FIRST_TS + 20 * day + 1, before=None, after=row
        )
        gone.append(change.removed and change.removed.ts)
    dropped = [removal.ts for removal in plan.removals][kept - 1 :]
    assert gone == [*dropped, *[None] * (len(gone) - len(dropped))]
    assert tests.total() == days
    assert bounds.total() <= days + kept


def counting(calls: Counter[str], function: Callable[..., Any]) -> Callable[..., Any]:
    def counted(*args: Any) -> Any:
        calls[function.__name__] += 1
        return function(*args)

    return counted


FIRST_DAY, FIRST_TS = date(2024, 1, 1), 450_000_000_000_000_000


def daily_drops(
    days: int, kept: int, *, keeps_version: bool
) -> tuple[SchemaHistory, list[TableSchema]]:
    """Return the history of a table of `kept` days, and its schema on each day."""
    history = SchemaHistory()

    def told(ts: int, sql: str, before: TableSchema | None, after: TableSchema) -> None:
        event = ddl_event(ts, sql, table="daily", schema=after, pre_schema=before)
        history.add_ddl(event, Coordinates(topic="t", partition=0, offset=ts - FIRST_TS, index=0))

    def partition(day: int) -> str:
        bound = FIRST_DAY + timedelta(days=day + 1)
        return f"PARTITION p{day} VALUES LESS THAN (TO_DAYS('{bound}'))"

    listed = ", ".join(partition(day) for day in range(kept))
    columns = "`id` bigint, `day` date, `v` varchar(20), PRIMARY KEY (`id`, `day`)"
    sql = f"CREATE TABLE `daily` ({columns}) PARTITION BY RANGE (TO_DAYS(day)) ({listed})"
    schema = created(sql, version=FIRST_TS, table="daily")
    told(FIRST_TS, sql, None, schema)
    schemas = [schema]
    for day in range(days):
        for number, sql in enumerate(
            (f"DROP PARTITION p{day}", f"ADD PARTITION ({partition(day + kept)})")
        ):
            ts = FIRST_TS + 20 * day + 10 + 10 * number
            after = schema if keeps_version else replace(schema, version=ts)
            told(ts, f"ALTER TABLE `daily` {sql}", schema, after)
            schema = after
        schemas.append(schema)
    return history, schemas


@every_format
def test_rows_are_told_apart_by_the_key_of_their_time(variant: Variant) -> None:
    upstream = OddUpstream()
    upstream.create_database("d")
    name = ("d", "t")
    upstream.create_table(
        name,
        (column("id", "bigint", nullable=False), column("v", "varchar(9)", nullable=False)),
        primary_key=("id",),
        clustered=False,
    )
    for number in (1, 2, 3):
        with upstream.transaction() as transaction:
            transaction.insert(name, {"id": str(number), "v": f"v{number}"})
    upstream.alter_table(name, DropPrimaryKey())
    upstream.alter_table(name, AddPrimaryKey(columns=("v",)))
    with upstream.transaction() as transaction:
        # The old key would take these two for one row.
        transaction.insert(name, {"id": "1", "v": "v4"})
    found = tables(variant, upstream, keyless=True)
    assert sorted(row["v"] or "" for row in found[name].listed()) == ["v1", "v2", "v3", "v4"]
    assert found[name].plan.schema.handle_key == ("v",)


def test_a_value_that_is_there_and_refused_is_quarantined() -> None:
    name = ("d", "t")
    columns = (column("id", "bigint", nullable=False), column("n", "bigint"))
    upstream = upstream_of(name, columns, primary_key=("id",))
    with upstream.transaction() as transaction:
        transaction.insert(name, {"id": "1", "n": "6"})
    for value in ("5000000000", "7"):
        with upstream.transaction() as transaction:
            transaction.update(name, ("1",), changes={"n": value})
    upstream.alter_table(name, ModifyColumn(name="n", column=column("n", "int")))
    with upstream.transaction() as transaction:
        transaction.insert(name, {"id": "2", "n": "8"})
    variant = PLAIN["simple-json"]
    changefeed = variant.changefeed(upstream, FeedOptions(), partitions=2)
    events = variant.events(changefeed.tick())
    # The change that made the value fit got lost, say, and the DDL; a bootstrap tells of it.
    kept: list[tuple[Coordinates, Event]] = []
    for place, event in events:
        if isinstance(event, RowChange) and (event.after or {}).get("n") == "7":
            continue
        if isinstance(event, DdlEvent) and "MODIFY" in event.sql:
            assert event.schema is not None
            kept.append((place, Bootstrap(build_ts_ms=None, schema=event.schema)))
        else:
            kept.append((place, event))
    table = variant.tables(kept, changefeed.watermark_ts, "UTC")[name]
    ((_, error),) = table.quarantined
    assert (error.reason, error.position) == ("invalid_cast", "after.n")
    assert table.listed() == [{"id": "1", "n": "6"}, {"id": "2", "n": "8"}]
