"""Every format and option of the stand-in changefeed: what it sends folds to the truth.

What a format cannot carry is in `LOST_FROM_THE_MIDDLE`, with its reason.
"""

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial

import pytest

from ticdc_assets.demo.simulator.changefeed import Dispatcher, FeedOptions
from ticdc_assets.demo.simulator.columns import as_typed
from ticdc_assets.demo.simulator.message_forms import Dialect
from ticdc_assets.demo.simulator.shop import ShopWorkload
from ticdc_assets.demo.simulator.stored_table import Key, TableName
from ticdc_assets.demo.simulator.upstream import CommittedDdl, CommittedTransaction, Upstream
from ticdc_assets.model.events import Bootstrap, DdlEvent, Op, RowChange, Watermark
from ticdc_assets.model.mysql_types import lacks_size
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.wire import WireFormat
from ticdc_assets_tests.demo.simulator.builders import (
    all_types_upstream,
    keyless_upstream,
    odd_names_upstream,
    shop_upstream,
    wide_upstream,
)
from ticdc_assets_tests.demo.simulator.variants import (
    VARIANTS,
    Variant,
    assert_rules,
    in_turns,
    rows_of,
    shuffled,
)
from ticdc_assets_tests.golden import Rows, comparable
from ticdc_assets_tests.reference.fold import FoldedTable

ZONE = "Asia/Shanghai"

every_variant = pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)


@in_turns("dispatcher", {str(dispatcher): dispatcher for dispatcher in Dispatcher})
@pytest.mark.thorough
def test_a_shop_with_restarts_is_the_truth_at_every_cut(
    variant: Variant, dispatcher: Dispatcher
) -> None:
    seed = 2 * list(VARIANTS.values()).index(variant) + list(Dispatcher).index(dispatcher)
    upstream = Upstream(timezone=ZONE)
    workload = ShopWorkload(upstream, seed, steps_per_ddl=4)
    changefeed = variant.changefeed(
        upstream, FeedOptions(dispatcher=dispatcher, ddl_watermarks=True), seed=seed
    )
    records, cuts = list(itertools.islice(changefeed.tick(), 40)), list[int]()
    for _ in range(2):
        for _ in workload.steps(60):
            pass
        records += changefeed.tick()
        cuts.append(changefeed.watermark_ts)
        changefeed.restart(random.Random(seed).choice(cuts))
    records += changefeed.tick()
    events = shuffled(variant.events(records), seed)
    within = [c.commit_ts for c in upstream.history if isinstance(c, CommittedDdl)][::15]
    for at in [*within, *cuts, changefeed.watermark_ts]:
        assert variant.folded(events, at, ZONE) == variant.wanted(changefeed, at)


@in_turns(
    "build",
    {
        "wide": partial(wide_upstream, columns=80, rows=4),
        "all types": partial(all_types_upstream, rows=15, timezone=ZONE),
        "odd names": partial(odd_names_upstream, rows=3),
        "no key": partial(keyless_upstream, rows=12),
    },
)
@pytest.mark.thorough
def test_odd_shapes_are_the_truth(variant: Variant, build: Callable[[], Upstream]) -> None:
    upstream = build()
    changefeed = variant.changefeed(upstream, FeedOptions(force_replicate=True))
    events = shuffled(variant.events(changefeed.tick()))
    at = changefeed.watermark_ts
    wanted = variant.wanted(changefeed, at)
    assert set(wanted) <= set(upstream.tables)
    assert variant.folded(events, at, upstream.timezone) == wanted


# What may be sent -------------------------------------------------------------------------------


@every_variant
@pytest.mark.thorough
def test_messages_are_where_ticdc_puts_them(variant: Variant) -> None:
    changefeed = variant.changefeed(shop_upstream(1), FeedOptions(ddl_watermarks=True))
    records = list(changefeed.tick())
    everywhere = variant.wire_format is not WireFormat.CANAL_JSON
    assert_rules(records, ddl_in=range(3) if everywhere else [0], variant=variant)
    kinds = {type(event) for _, event in variant.events(records)}
    assert (Bootstrap in kinds) is variant.sends_schemas
    assert (Watermark in kinds) is not variant.es_only


@every_variant
@pytest.mark.thorough
def test_rows_say_what_their_format_says(variant: Variant) -> None:
    changefeed = variant.changefeed(shop_upstream(1, steps=160))
    rows = [row for _, row in variant.events(changefeed.tick()) if isinstance(row, RowChange)]
    options = variant.messages
    shapes = not variant.sends_schemas
    for row in rows:
        assert (row.shape is not None, row.schema_version is None) == (shapes, shapes)
        assert row.es_only is variant.es_only
    updates = [row for row in rows if row.op is Op.UPDATE and row.before and row.after]
    knows_updated = variant.wire_format in {WireFormat.OPEN_PROTOCOL, WireFormat.CANAL_JSON}
    only_updated = options.only_updated_columns or options.content_compatible
    for row in updates:
        assert row.before is not None
        assert row.after is not None
        unchanged = [name for name, value in row.before.items() if row.after[name] == value]
        assert bool(unchanged) is not (knows_updated and only_updated)
    deletes = [row for row in rows if row.op is Op.DELETE and row.table == "order_items"]
    cut = options.delete_only_handle_key and shapes
    for row in deletes:
        assert row.before is not None
        assert (set(row.before) == {"order_id", "line_no"}) is cut
    assert len(updates) > 10
    assert deletes


@pytest.mark.parametrize("name", ["open-protocol", "open-protocol-snappy", "craft"])
def test_statements_have_the_numbers_of_tidb(name: str) -> None:
    upstream, variant = shop_upstream(1, steps=120, steps_per_ddl=2), VARIANTS[name]
    sent = [
        (event.sql, event.action_code)
        for place, event in variant.events(variant.changefeed(upstream).tick())
        if isinstance(event, DdlEvent) and place.partition == 0
    ]
    ddl = [event for c in upstream.history if isinstance(c, CommittedDdl) for event in c.events]
    # The old dialect sends what was typed; in the new one renames of one statement end in `;`.
    is_new = variant.dialect is Dialect.TICDC
    assert [as_typed(text.rstrip(";")) for text, _ in sent] == [as_typed(e.sql) for e in ddl]
    assert any("ADD COLUMN" in text for text, _ in sent) is is_new
    assert [code for _, code in sent] == [event.action_code for event in ddl]
    codes = {event.action_code for event in ddl}
    assert codes == {1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 14, 15, 61}


# From the middle --------------------------------------------------------------------------------

LOST_FROM_THE_MIDDLE = {
    "labels": (
        "Rows of Open Protocol, Craft and Canal-JSON without content-compatible name no labels of "
        "ENUM and SET: where no DDL tells them, values are the numbers that were sent."
    ),
    "relabelled": (
        "Labels that only a later MODIFY tells are not those that older numbers were of: row "
        "changes from before it are in quarantine, for no label is guessed."
    ),
    "unique handle key": (
        "Canal-JSON names primary keys only: a DELETE cut to a unique handle key says not which "
        "row it is of, and is in quarantine."
    ),
}
"""What cannot be known of a changefeed that is read from the middle, and why."""

MARKED_FROM_THE_MIDDLE = (
    # Rows tell of no index but their key.
    "drop index: no index",
    # The first that was seen of a table are deletes cut to the handle key.
    "schema changed without a DDL message",
)
"""Why mirrors are marked there although their rows are right: the whole table was never told."""


def touched(upstream: Upstream, first_ts: int, *, labels: bool) -> dict[TableName, set[Key]]:
    """Return the keys of the rows whose last change is above `first_ts` and can be read.

    Worked out from what the upstream did. Where rows tell no labels, that is since the first
    change of labels after the first row above `first_ts`: a DDL of a table of which nothing was
    seen says nothing yet.
    """
    found: dict[TableName, set[Key]] = defaultdict(set)
    relabelled: set[TableName] = set()
    seen: set[TableName] = set()
    for commit in upstream.history:
        if isinstance(commit, CommittedTransaction):
            for row in commit.rows if commit.commit_ts > first_ts else ():
                name = (row.schema.database, row.schema.table)
                seen.add(name)
                (found[name].discard if row.after is None else found[name].add)(row.key)
            continue
        for event in commit.events:
            before, after = event.pre_schema, event.schema
            new = (event.database, event.table)
            old = (before.database, before.table) if before is not None else new
            keys = found.pop(old, set[Key]())
            if event.ddl_type in {"CREATE", "TRUNCATE", "ERASE"}:
                continue
            if commit.commit_ts > first_ts and not labels and changes_labels(before, after):
                keys = keys if new in relabelled else set[Key]()
                relabelled |= {new} & seen
            found[new] = keys
    return found


def changes_labels(before: TableSchema | None, after: TableSchema | None) -> bool:
    if before is None or after is None:
        return False
    old = {column.name: column.elements for column in before.columns}
    return any(old.get(c.name, c.elements) != c.elements for c in after.columns)


def as_numbers(
    row: dict[str, str | None], schema: TableSchema, table: FoldedTable
) -> dict[str, str | None]:
    """Return a row of the truth with numbers where the mirror does not know the labels."""
    result = dict(row)
    for column in table.plan.schema.columns:
        value = result[column.name]
        if value is not None and lacks_size(column) and column.mysql_type in {"enum", "set"}:
            sent = schema.column(column.name)
            assert sent is not None
            labels = value.split(",") if value else []
            indexes = [sent.elements.index(label) for label in labels]
            number = sum(1 << i for i in indexes) if column.mysql_type == "set" else indexes[0] + 1
            result[column.name] = str(number)
    return result


@in_turns("part", {"half": 2, "third": 3})
@pytest.mark.thorough
def test_from_the_middle_the_rows_that_were_sent_are_there(variant: Variant, part: int) -> None:
    upstream = shop_upstream(part, steps=200)
    first_ts = upstream.history[len(upstream.history) // part].commit_ts
    changefeed = variant.changefeed(upstream, FeedOptions(first_ts=first_ts), seed=part)
    events = shuffled(variant.events(changefeed.tick()))
    tables = variant.tables(events, changefeed.watermark_ts, ZONE)

    # What is in quarantine is what has a reason to be.
    quarantined = {
        (name, error.reason, error.position.partition(".")[2])
        for name, table in tables.items()
        for _, error in table.quarantined
    }
    lost = set[tuple[TableName, str, str]]()
    if not variant.tells_labels:
        lost.add((("shop", "customers"), "invalid_cast", "level"))
    deletes_are_cut = variant.messages.delete_only_handle_key
    if variant.wire_format is WireFormat.CANAL_JSON and deletes_are_cut:
        lost.add((("shop", "inventory"), "partial_image", "qty"))
    assert quarantined == lost
    unlabelled = {
        (name[1], column.name)
        for name, table in tables.items()
        for column in table.plan.schema.columns
        if column.mysql_type in {"enum", "set"} and lacks_size(column)
    }
    told = {("customers", "tags"), ("orders", "state"), ("payments", "method")}
    told |= {("odd_values", "choice"), ("odd_values", "choices")}
    assert unlabelled == (set() if variant.tells_labels else told)

    caveats = {caveat.reason for table in tables.values() for caveat in table.plan.caveats}
    assert {reason for reason in caveats if not reason.startswith(MARKED_FROM_THE_MIDDLE)} == set()
    assert not (caveats and variant.sends_schemas)

    keys = touched(upstream, first_ts, labels=variant.tells_labels)
    wanted: Rows = defaultdict(Counter[str])
    for name, rows in changefeed.truth(changefeed.watermark_ts).items():
        for key, row in rows.items():
            if key in keys[name]:
                shown = as_numbers(dict(row), upstream.schema(name), tables[name])
                wanted[name][comparable(shown)] += 1
    found = rows_of(tables)
    if lost and deletes_are_cut:
        # Rows whose DELETE is in quarantine are still there.
        inventory = ("shop", "inventory")
        assert not wanted.pop(inventory) - found.pop(inventory)
    assert found == wanted
    assert sum(map(len, found.values())) > 60


@pytest.mark.parametrize("name", ["open-protocol", "craft", "canal-json"])
def test_from_the_middle_rows_alone_give_schemas_with_keys(name: str) -> None:
    variant = VARIANTS[name]
    upstream = shop_upstream(1, steps=200, steps_per_ddl=0)
    first_ts = upstream.history[len(upstream.history) // 2].commit_ts
    changefeed = variant.changefeed(upstream, FeedOptions(first_ts=first_ts))
    events = variant.events(changefeed.tick())
    assert not any(isinstance(event, DdlEvent) for _, event in events)
    tables = variant.tables(events, changefeed.watermark_ts, ZONE)
    assert len(tables) == 9
    for table, folded in tables.items():
        schema = upstream.schema(table)
        unknown = name == "canal-json" and table == ("shop", "inventory")
        assert set(folded.plan.schema.handle_key) == (set() if unknown else set(schema.handle_key))
        assert {c.name for c in folded.plan.schema.columns} == {c.name for c in schema.columns}
