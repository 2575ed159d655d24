"""Tables that begin with the rows of an export: the reference fold against the upstream's truth."""

from dataclasses import replace

import pytest

from ticdc_assets.changelog.planning import build_plan
from ticdc_assets.demo.simulator.alterations import AddColumn, DropColumn, RenameColumn
from ticdc_assets.demo.simulator.changefeed import FeedOptions
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.model.events import SNAPSHOT_DDL, DdlEvent, Event, Op, RowChange
from ticdc_assets.model.values import physical_of
from ticdc_assets.registry.history import Coordinates
from ticdc_assets_tests.demo.simulator.builders import churn, fill
from ticdc_assets_tests.demo.simulator.variants import PLAIN, Variant, shuffled
from ticdc_assets_tests.events import ddl_event, row_event
from ticdc_assets_tests.reference.fold import collect_history, group_rows

with_commit_ts = pytest.mark.parametrize(
    "variant",
    [variant for variant in PLAIN.values() if not variant.es_only],
    ids=[name for name, variant in PLAIN.items() if not variant.es_only],
)

Placed = list[tuple[Coordinates, Event]]


def exported(upstream: Upstream, *, seed: int = 1, only: str | None = None) -> tuple[int, Placed]:
    """Return the TSO of an export of all tables as they are now, and its events."""
    ts = upstream.clock.next()
    events: Placed = []
    for number, name in enumerate(upstream.tables):
        if only is not None and name[1] != only:
            continue
        schema = upstream.schema(name)
        # Nothing in an export tells the id of a table.
        own = replace(schema, version=ts, table_id=10**12 + number)
        of_table = {"database": name[0], "table": name[1], "build_ts_ms": 0}
        sql = "CREATE TABLE t (id INT)"
        ddl = ddl_event(ts, sql, ddl_type=SNAPSHOT_DDL, schema=own, **of_table)
        events.append((Coordinates(topic="export", partition=seed, offset=number, index=0), ddl))
        convert = {item.name: physical_of(item, upstream.timezone) for item in schema.columns}
        for line, row in enumerate(upstream.rows(name).values()):
            after = {
                item.name: convert[item.name](row[item.name])
                for item in schema.columns
                if not item.virtual
            }
            change = row_event(ts, after=after, schema_version=ts, **of_table)
            place = Coordinates(topic=f"{name[1]}.csv", partition=seed, offset=line, index=0)
            events.append((place, replace(change, op=Op.SNAPSHOT)))
    return ts, events


def two_tables() -> Upstream:
    """Return an upstream with a table that has a key and one that has none."""
    upstream = Upstream()
    upstream.create_database("d")
    columns = (column("id", "int", nullable=False), column("v", "varchar(20)"))
    upstream.create_table(("d", "keyed"), columns, primary_key=("id",))
    upstream.create_table(("d", "bag"), columns)
    for name in upstream.tables:
        fill(upstream, name, rows=8, seed=len(name[1]))
    return upstream


@with_commit_ts
def test_ddl_after_an_export_carries_its_rows(variant: Variant) -> None:
    upstream = two_tables()
    upstream.create_table(("d", "e"), (column("id", "int", nullable=False),), primary_key=("id",))
    at, export = exported(upstream)
    name = ("d", "keyed")
    upstream.alter_table(name, AddColumn(column=column("n", "int", default="7")))
    churn(upstream, steps=6, tables=[name])
    upstream.rename_table(name, ("d", "later"))
    upstream.alter_table(("d", "later"), RenameColumn(name="v", new_name="w"))
    churn(upstream, steps=6, tables=[("d", "later")])
    middle = upstream.clock.next()
    upstream.alter_table(("d", "later"), DropColumn(name="n"))
    upstream.truncate_table(("d", "bag"))
    upstream.drop_table(("d", "e"))
    changefeed = variant.changefeed(upstream, FeedOptions(first_ts=at, force_replicate=True))
    events = [*variant.events(changefeed.tick()), *export]
    for cut in (at, middle, changefeed.watermark_ts):
        assert variant.folded(events, cut, "UTC") == variant.wanted(changefeed, cut)


@with_commit_ts
def test_the_later_of_two_exports_counts(variant: Variant) -> None:
    upstream = two_tables()
    _, first = exported(upstream, seed=1)
    churn(upstream, steps=6)
    at, damaged = exported(upstream, seed=2)
    lost = next(item for item in damaged if isinstance(item[1], RowChange))
    damaged.remove(lost)
    churn(upstream, steps=6)
    # Seeded again at the same TSO, whole this time; then one table from an export of its own.
    whole = [(replace(place, partition=3), event) for place, event in [*damaged, lost]]
    _, again = exported(upstream, seed=4, only="bag")
    churn(upstream, steps=6)
    changefeed = variant.changefeed(upstream, FeedOptions(first_ts=at, force_replicate=True))
    events = [*variant.events(changefeed.tick()), *first, *damaged, *whole, *again]
    assert variant.folded(shuffled(events), changefeed.watermark_ts, "UTC") == variant.wanted(
        changefeed, changefeed.watermark_ts
    )


@with_commit_ts
def test_a_change_at_the_tso_of_an_export_counts_once(variant: Variant) -> None:
    upstream = two_tables()
    fill(upstream, ("d", "bag"), rows=2, seed=9)
    at = upstream.history[-1].commit_ts
    _, export = exported(upstream)
    export = [(place, replace(event, commit_ts=at)) for place, event in export]
    changefeed = variant.changefeed(upstream, FeedOptions(force_replicate=True))
    events = [*variant.events(changefeed.tick()), *export]
    for cut in (at, changefeed.watermark_ts):
        assert variant.folded(events, cut, "UTC") == variant.wanted(changefeed, cut)


@with_commit_ts
def test_a_table_is_incomplete_up_to_its_export(variant: Variant) -> None:
    upstream = two_tables()
    begin = upstream.clock.next()
    churn(upstream, steps=6)
    before = upstream.clock.next()
    at, export = exported(upstream)
    upstream.create_table(("d", "new"), (column("id", "int", nullable=False),), primary_key=("id",))
    changefeed = variant.changefeed(upstream, FeedOptions(first_ts=begin, force_replicate=True))
    events = [*variant.events(changefeed.tick()), *export]
    history = collect_history(events, "UTC")
    groups = group_rows(events)
    early = build_plan(history, groups, before, "UTC")
    assert {(mirror.table, mirror.incomplete_until) for mirror in early.mirrors} == {
        ("bag", at),
        ("keyed", at),
    }
    assert all(f"in an export only, at TSO {at}" in str(mirror.caveats) for mirror in early.mirrors)
    plan = build_plan(history, groups, changefeed.watermark_ts, "UTC")
    assert {mirror.table for mirror in plan.mirrors} == {"bag", "keyed", "new"}
    assert {(mirror.incomplete_until, mirror.caveats) for mirror in plan.mirrors} == {(None, ())}


@with_commit_ts
def test_an_export_that_lacks_a_column_of_the_rows_has_a_caveat(variant: Variant) -> None:
    """Dumpling leaves columns out of rows and schema; then mirrors may not have them either."""
    upstream, name = two_tables(), ("d", "keyed")
    at, export = exported(upstream, only="keyed")
    ((place, ddl), *_) = export
    assert isinstance(ddl, DdlEvent)
    assert ddl.schema is not None
    less = replace(ddl.schema, columns=ddl.schema.columns[:1])
    churn(upstream, steps=6, tables=[name])
    changefeed = variant.changefeed(upstream, FeedOptions(first_ts=at, force_replicate=True))
    events = [*variant.events(changefeed.tick()), (place, replace(ddl, schema=less))]
    plan = build_plan(
        collect_history(events, "UTC"), group_rows(events), changefeed.watermark_ts, "UTC"
    )
    caveats = {mirror.name: [str(item) for item in mirror.caveats] for mirror in plan.mirrors}
    assert any("schema changed without a DDL message" in item for item in caveats[name])
