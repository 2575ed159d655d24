"""Renames of one statement, whose events may come in any order: which table has which name then."""

import itertools
import random
from collections.abc import Hashable, Mapping, Sequence

import pytest

from ticdc_assets.model.events import DdlEvent, Event, RowChange
from ticdc_assets.model.schemas import ColumnFlag, RowShape, SentColumn, TableSchema
from ticdc_assets.registry.history import Coordinates, Name
from ticdc_assets.registry.renames import Rename, settle
from ticdc_assets_tests.changelog.lives import table
from ticdc_assets_tests.events import ddl_event, row_event
from ticdc_assets_tests.reference.fold import fold

Pair = tuple[Name, Name]
Story = tuple[list[Name], list[Pair]]
"""The tables that are there, and the renames of one statement in their order."""

CREATED, RENAMED, CUT = 100, 200, 300
KEY = ColumnFlag.BINARY | ColumnFlag.HANDLE_KEY | ColumnFlag.PRIMARY_KEY
SHAPE = RowShape(columns=(SentColumn("id", "int", KEY),))


def names(*tables: str) -> list[Name]:
    return [("d", table) for table in tables]


def pairs(*texts: str) -> list[Pair]:
    found = [text.split(">") for text in texts]
    return [(("d", old), ("d", new)) for old, new in found]


SWAP: Story = (names("a", "b"), pairs("a>tmp", "b>a", "tmp>b"))
RING: Story = (names("a", "b", "c"), pairs("a>tmp", "b>a", "c>b", "tmp>c"))
CHAIN: Story = (names("a"), pairs("a>x", "x>y", "y>z"))
SHIFT: Story = (names("a", "b", "c"), pairs("c>d", "b>c", "a>b"))
APART: Story = (names("a", "b"), [(("d", "a"), ("e", "a")), (("d", "b"), ("d", "a"))])


def finals(story: Story) -> dict[Name, Name]:
    """Return for each table, by its name before, its name after."""
    tables, renames = story
    at = {name: name for name in tables}
    for old, new in renames:
        assert new not in at
        at[new] = at.pop(old)
    return {table: name for name, table in at.items()}


def as_ticdc_spells(story: Story) -> list[Pair]:
    """Return the pairs with the names that the tables had before the statement."""
    tables, renames = story
    at = {name: name for name in tables}
    spelled: list[Pair] = []
    for old, new in renames:
        at[new] = at.pop(old)
        spelled.append((at[new], new))
    return spelled


def schema(name: Name, number: int) -> TableSchema:
    return table(".".join(name), number, 10 + number, "id")


def event_of(
    sql: str, ts: int, after: TableSchema, before: TableSchema | None, *, ids: bool
) -> DdlEvent:
    schemas = {"schema": after, "pre_schema": before} if ids else {}
    word = "CREATE" if before is None else "RENAME"
    name = {"database": after.database, "table": after.table}
    return ddl_event(ts, sql, ddl_type=word, **name, **schemas)


def row(name: Name, ts: int, number: int, *, ids: bool) -> RowChange:
    cited = {"table_id": number, "schema_version": 10 + number} if ids else {"shape": SHAPE}
    values = {"id": str(1000 * ts + number)}
    return row_event(ts, after=values, database=name[0], table=name[1], **cited)


def outcome(
    story: Story, spelled: Sequence[Pair], order: Sequence[int], *, ids: bool, spread: bool = False
) -> tuple[dict[Name, set[str]], object]:
    """Return the rows of each mirror after the renames, and the plan's mirrors."""
    tables = story[0]
    numbers = {name: number for number, name in enumerate(tables, 1)}
    moving = {
        number: table
        for number, (table, _) in enumerate(as_ticdc_spells(story))
    }  # fmt: skip
    events: list[tuple[str, Event]] = []
    for name, number in numbers.items():
        sql = f"create table `{name[1]}` (id int primary key)"
        events.append(("t", event_of(sql, CREATED, schema(name, number), None, ids=ids)))
        events.append(("t", row(name, CREATED + 1, number, ids=ids)))
    for place in order:
        old, new = spelled[place]
        number = numbers[moving[place]]
        sql = f"RENAME TABLE `{old[0]}`.`{old[1]}` TO `{new[0]}`.`{new[1]}`"
        event = event_of(sql, RENAMED, schema(new, number), schema(old, number), ids=ids)
        events.append((f"t{place}" if spread else "t", event))
    for name, last in finals(story).items():
        events.append(("t", row(last, RENAMED + 1, numbers[name], ids=ids)))
    placed = [
        (Coordinates(topic=topic, partition=0, offset=offset, index=0), event)
        for offset, (topic, event) in enumerate(events)
    ]
    plan, folded = fold(placed, CUT, "UTC")
    rows = {name: {str(item["id"]) for item in table.listed()} for name, table in folded.items()}
    told = [
        (item.mirror_id if ids else "", item.name, item.caveats, item.held) for item in plan.mirrors
    ]
    return rows, told


def truth(story: Story) -> dict[Name, set[str]]:
    tables, _ = story
    last = finals(story)
    return {
        last[name]: {str(1000 * (ts + 1) + number) for ts in (CREATED, RENAMED)}
        for number, name in enumerate(tables, 1)
    }


def assert_any_order_is_the_same(story: Story, orders: Sequence[Sequence[int]]) -> None:
    wanted = truth(story)
    for spelled in (story[1], as_ticdc_spells(story)):
        if len(outcomes(story, spelled)) > 1 or len(set(spelled)) < len(spelled):
            continue  # one table by way of several names: which came last is not in the names
        for ids in (True, False):
            told = outcome(story, spelled, range(len(spelled)), ids=ids)[1]
            for order in orders:
                for spread in (False, True):
                    rows, plan = outcome(story, spelled, order, ids=ids, spread=spread)
                    assert rows == wanted, (spelled, ids, order)
                    assert plan == told, (spelled, ids, order)


@pytest.mark.parametrize("story", [SWAP, RING, CHAIN, SHIFT, APART])
def test_the_order_of_the_events_makes_no_difference(story: Story) -> None:
    assert_any_order_is_the_same(story, list(itertools.permutations(range(len(story[1])))))


def random_story(rng: random.Random) -> Story:
    everything = [(database, table) for database in "de" for table in "abcde"]
    tables = rng.sample(everything, rng.randint(1, 4))
    at = list(tables)
    renames: list[Pair] = []
    for _ in range(rng.randint(2, 5)):
        old = rng.choice(at)
        free = [name for name in everything if name not in at]
        left = [name for name, _ in renames if name in free]
        new = rng.choice(left if left and rng.random() < 0.6 else free)
        at[at.index(old)] = new
        renames.append((old, new))
    return tables, renames


def outcomes(story: Story, spelled: Sequence[Pair]) -> set[frozenset[tuple[Name, Name]]]:
    """Return every way in which pairs can be read, by trying all; independent of `settle`."""
    found: set[frozenset[tuple[Name, Name]]] = set()
    is_origin = len({old for old, _ in spelled}) < len(spelled)
    for order in itertools.permutations(spelled):
        at = {name: name for name in story[0]}
        for old, new in order:
            here = next((n for n, table in at.items() if table == old), None) if is_origin else old
            if here not in at or new in at:
                break
            at[new] = at.pop(here)
        else:
            found.add(frozenset(at.items()))
    return found


@pytest.mark.thorough
def test_random_statements_in_any_order() -> None:
    rng = random.Random(13)
    tried = 0
    while tried < 60:
        story = random_story(rng)
        wanted = frozenset((name, table) for table, name in finals(story).items())
        tables = set(story[0])
        if len(set(story[1])) < len(story[1]) or any(
            outcomes(story, spelled) != {wanted} for spelled in (story[1], as_ticdc_spells(story))
        ):
            continue  # the names allow several readings, or tell of one event twice
        # A name that is left and taken again before its table moves on is one step for TiCDC.
        if any(old == new for old, new in as_ticdc_spells(story)) or not tables:
            continue
        tried += 1
        count = len(story[1])
        orders = [tuple(range(count)), tuple(reversed(range(count)))]
        orders += [tuple(rng.sample(range(count), count)) for _ in range(2)]
        assert_any_order_is_the_same(story, orders)


def test_several_readings_are_said_and_are_the_same_in_any_order() -> None:
    """Which of `a` and `c` went to `y` by way of `x` is not in the names."""
    renames = [Rename(*pair) for pair in pairs("a>x", "x>y", "c>x")]
    present: Mapping[Name, Hashable] = {name: name for name in names("a", "c")}
    assert settle(renames, present, in_order=True).certain
    found = {
        frozenset(
            (order[number].new, settled.tables[number])
            for number in settled.order
        )
        for order in itertools.permutations(renames)
        for settled in (settle(order, present, in_order=False),)
    }  # fmt: skip
    assert len(found) == 1
    assert not settle(renames, present, in_order=False).certain
    # Table ids tell.
    tables = ["a", "a", "c"]
    known = {("d", "a"): "a", ("d", "c"): "c"}
    assert settle(renames, known, tables, in_order=False).certain


def test_tables_of_which_nothing_is_known_are_renamed_too() -> None:
    renames = [Rename(*pair) for pair in pairs("tmp>b", "b>a", "a>tmp")]
    settled = settle(renames, {("d", "a"): "1", ("d", "b"): "2"}, in_order=True)
    assert [settled.tables[number] for number in settled.order] == ["1", "2", "1"]
    (alone,) = settle(renames[:1], {}, in_order=True).tables
    assert alone == ("d", "tmp")


def test_a_missing_step_is_no_obstacle() -> None:
    """The event of `a` to `tmp` was filtered out: what is left cannot be done one by one."""
    renames = [Rename(*pair) for pair in pairs("a>b", "b>a")]
    settled = settle(renames, {("d", "a"): 1, ("d", "b"): 2}, [1, 2], in_order=True)
    assert settled.tables == (1, 2)
    assert sorted(settled.order) == [0, 1]


def test_thousands_of_renames_take_no_time() -> None:
    ring = [Rename(("d", f"t{n}"), ("d", f"t{(n + 1) % 3000}")) for n in range(3000)]
    present = {item.old: item.old for item in ring}
    assert len(settle(ring, present, in_order=True).order) == 3000
    chain = ring[:-1][::-1]
    assert settle(chain, {("d", f"t{n}"): n for n in range(2999)}, in_order=True).certain
