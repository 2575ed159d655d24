"""The tables of one moment, and which of them each rename of one statement moved.

In: the renames of one commit ts, as parts (`registry.ddl.parts`), and the tables of that moment.
Out: for each part with names a `Move`, its old and new name and the id of its table; a possible
order of the renames, and for each the table that it moved. The names of a move are those of the
schemas, where a message has them, else those of the text; the id is that of a schema, or of the
table that the history knows under the name.

TiCDC sends `RENAME TABLE a TO tmp, b TO a, tmp TO b` as one event a pair, each to the topic of its
table, so their order may be lost. It is computed: an old name must exist, and a new name must be
free. There are two spellings of the third pair. TiCDC takes the old name from the table as it was
before the statement (`a` TO `b`), so an old name that comes twice is one table that moves twice;
other senders send the pair as written (`tmp` TO `b`).

The preferred order assumes the fewest unseen tables, and avoids giving a table its own name back,
which nobody writes. Among equally good orders the order of the events of one partition counts; else
the choice does not depend on the events' order, and `Settled.certain` says whether the orders
differ in effect. Renames that are impossible in any order, as when the event of a step is missing,
take effect at once.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.registry.ddl.parts import name_in_text
from ticdc_assets.registry.history import Name, RegisteredDdl, folded


class KnownTables:
    """The tables of one moment, by id and by name.

    Names are compared without case, as upstream does; returned names are spelled as in the newest
    schema.
    """

    def __init__(self) -> None:
        # By their names without case, and these names by table id.
        self._tables: dict[Name, TableSchema] = {}
        self._names: dict[int, Name] = {}

    @property
    def all(self) -> list[TableSchema]:
        """The schemas of all tables."""
        return list(self._tables.values())

    def find(self, name: Name) -> TableSchema | None:
        """Return the table of a name, or None."""
        return self._tables.get(folded(name))

    def identified(self, table_id: int) -> TableSchema | None:
        """Return the table of an id, or None."""
        name = self._names.get(table_id)
        return None if name is None else self._tables[name]

    def put(self, schema: TableSchema) -> None:
        """Set the schema of its table, which takes its name from any other table."""
        name = folded(schema.name)
        self.take(name)
        earlier_name = self._names.get(schema.table_id)
        if earlier_name is not None:
            self.take(earlier_name)
        self._tables[name] = schema
        self._names[schema.table_id] = name

    def take(self, name: Name) -> TableSchema | None:
        """Remove the table of a name and return it, or None."""
        schema = self._tables.pop(folded(name), None)
        if schema is not None:
            self._names.pop(schema.table_id, None)
        return schema

    def elsewhere(self, name: Name) -> TableSchema | None:
        """Return the only table of another database that has this name."""
        tables = [schema for schema in self.all if schema.table.lower() == name[1].lower()]
        return tables[0] if len(tables) == 1 else None


@dataclass(frozen=True, slots=True, order=True)
class Rename:
    """One pair of a statement: the names of a table before and after this step, in lower case."""

    old: Name
    new: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What the renames of one statement did.

    Attributes:
        order: numbers of the renames, in the order of their execution.
        tables: for each rename, by its number, which table it moved: the one that was given with
            it, or the name that its table had before the statement.
        certain: False if the names allow several outcomes.
    """

    order: tuple[int, ...]
    tables: tuple[Hashable, ...]
    certain: bool


_MOST_STEPS: Final = 200_000
"""How many steps are tried for renames that share names; real statements need a few."""


def settle(
    renames: Sequence[Rename],
    present: Mapping[Name, Hashable],
    tables: Sequence[Hashable | None] | None = None,
    *,
    in_order: bool,
) -> Settled:
    """Return the order of execution of `renames`, those of one commit ts, and what each moved.

    Args:
        renames: in the order of their events.
        present: the tables that had these names before, as far as known.
        tables: the table of each rename, in the words of `present`; None where no message has it.
        in_order: whether the order of the events may be that of the renames.
    """
    given = list(tables or [None] * len(renames))
    olds = Counter(item.old for item in renames)
    for number, item in enumerate(renames):
        if given[number] is None and olds[item.old] > 1:
            # One table that moves twice; see the module's text.
            given[number] = present.get(item.old, item.old)
    moved: dict[int, Hashable] = {}
    certain = True
    for group in _sharing_names(renames):
        moved_by_group, is_certain = _settled(group, renames, given, present, in_order=in_order)
        moved |= moved_by_group
        certain = certain and is_certain
    return Settled(
        order=tuple(moved),
        tables=tuple(moved[number] for number in range(len(renames))),
        certain=certain,
    )


def _sharing_names(renames: Sequence[Rename]) -> list[list[int]]:
    """Return the numbers of the renames in groups without a common name."""
    leader: dict[Name, Name] = {}

    def found(name: Name) -> Name:
        while leader.setdefault(name, name) != name:
            leader[name] = name = leader[leader[name]]
        return name

    for item in renames:
        leader[found(item.old)] = found(item.new)
    groups: dict[Name, list[int]] = {}
    for number, item in enumerate(renames):
        groups.setdefault(found(item.old), []).append(number)
    return list(groups.values())


@dataclass(slots=True, kw_only=True)
class _State:
    """Where the tables are while renames are executed.

    Attributes:
        at: the table of each name.
        place_of: the name of each table.
        home: the name of each table before the statement.
        touched: the names that are or were in use.
        moved: by the number of each rename, in the order of execution, the table that it moved.
        assumed: how many tables without any message were assumed.
    """

    at: dict[Name, Hashable]
    place_of: dict[Hashable, Name]
    home: dict[Hashable, Name]
    touched: set[Name]
    moved: dict[int, Hashable] = field(default_factory=dict[int, Hashable])
    assumed: int = 0

    def copy(self) -> "_State":
        return _State(
            at=dict(self.at),
            place_of=dict(self.place_of),
            home=dict(self.home),
            touched=set(self.touched),
            moved=dict(self.moved),
            assumed=self.assumed,
        )

    @property
    def cost(self) -> tuple[int, int]:
        """How unlikely the order is."""
        moved = set(self.moved.values())
        return (sum(self.home[table] == self.place_of[table] for table in moved), self.assumed)

    def carry_out(
        self, number: int, rename: Rename, table: Hashable | None, *, roams: bool
    ) -> bool:
        """Execute one more rename if that is possible; return whether it was.

        `table` is None for the table with the old name. With `roams` the old name may be one that
        the table had before the statement.
        """
        place = rename.old
        here = None if table is None else self.place_of.get(table)
        if here is not None:
            if here != place and not roams:
                return False
            place = here
        elif place not in self.at:
            if place in self.touched:
                return False
            # A table without any message so far.
            self.at[place] = place if table is None else table
            self.home[self.at[place]] = place
            self.assumed += 1
        elif table is not None:
            return False
        if rename.new != place and rename.new in self.at:
            return False
        mover = self.at[rename.new] = self.moved[number] = self.at.pop(place)
        self.place_of[mover] = rename.new
        self.touched |= {place, rename.new}
        return True


def _settled(
    group: Sequence[int],
    renames: Sequence[Rename],
    tables: Sequence[Hashable | None],
    present: Mapping[Name, Hashable],
    *,
    in_order: bool,
) -> tuple[Mapping[int, Hashable], bool]:
    names = {name for number in group for name in (renames[number].old, renames[number].new)}
    at = {name: present[name] for name in names if name in present}
    home = {table: name for name, table in at.items()}
    start = _State(at=at, place_of=home, home=dict(home), touched=set(at))
    # A table whose renames all leave one name had this name before the statement.
    olds: dict[Hashable, set[Name]] = {}
    for number in group:
        olds.setdefault(tables[number], set()).add(renames[number].old)
    roaming = {table for table, left in olds.items() if len(left) == 1}
    tries = _MOST_STEPS // len(group)

    def carry_out(state: _State, number: int) -> bool:
        table = tables[number]
        return state.carry_out(number, renames[number], table, roams=table in roaming)

    def orders(left: Sequence[int], state: _State) -> Iterator[_State]:
        """Yield the possible states after the remaining renames."""
        nonlocal tries
        if not left:
            yield state
        for number in left:
            tries -= 1
            if tries < 0:
                return
            following = state.copy()
            if carry_out(following, number):
                yield from orders([other for other in left if other != number], following)

    as_sent = start.copy()
    is_possible = in_order and all(carry_out(as_sent, number) for number in group)
    if is_possible and not any(as_sent.cost):
        return as_sent.moved, True
    # By their names, so that the order of the events does not matter.
    wanted = sorted(group, key=lambda number: renames[number])
    # By cost and by which names belong to which tables in the end.
    outcomes: dict[tuple[int, int], dict[frozenset[tuple[Name, Hashable]], _State]] = {}
    for state in orders(wanted, start):
        outcomes.setdefault(state.cost, {}).setdefault(frozenset(state.at.items()), state)
    least = min(outcomes, default=None)
    if is_possible and (least is None or as_sent.cost <= least):
        return as_sent.moved, True
    if least is None:
        moved: dict[int, Hashable] = {}
        for number in wanted:
            table, old = tables[number], renames[number].old
            moved[number] = start.at.get(old, old) if table is None else table
        return moved, len(set(moved.values())) == len(moved)
    best = list(outcomes[least].values())
    return best[0].moved, len(best) == 1


# ---------------------------------------------------------------------------- steps and their names


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One step of a rename.

    Attributes:
        table_id: the id of its table, None where neither a message nor the history has one.
        notes: what is uncertain about it.
    """

    part: RegisteredDdl
    old: Name
    new: Name
    table_id: int | None
    notes: tuple[str, ...] = ()


def moves_of(parts: Iterable[RegisteredDdl], tables: KnownTables) -> list[Move]:
    """Return the steps of renames; a part without names has none."""
    moves = _with_ids([move for part in parts if (move := _move(part, tables)) is not None])
    table_ids = _tables_meant(moves, tables)
    return [replace(move, table_id=table_ids.get(move.table_id)) for move in moves]


def _move(part: RegisteredDdl, tables: KnownTables) -> Move | None:
    """Return the names and the id of the table that a part renames, None without names."""
    event = part.event
    before, after = event.pre_schema, event.schema
    pair = next(iter(part.statement.renames), None)
    sent_ids = (item.table_id for item in (before, after) if item is not None and item.has_id)
    table_id = next(sent_ids, None)
    notes: tuple[str, ...] = ()
    if after is not None:
        new: Name = after.name
    elif pair is not None:
        new = name_in_text(pair.new, event.database)
        said = (event.database, event.table)
        new = said if folded(new) == folded(said) else new
    else:
        return None
    table = None if table_id is None else tables.identified(table_id)
    if before is not None:
        old: Name = before.name
    elif pair is not None:
        old = name_in_text(pair.old, event.database)
        moves_database = pair.old.database is None and pair.new.database is not None
        if moves_database and tables.find(old) is None:
            # The session's database, which the text leaves out, is not that of the new name.
            if table is not None:
                old = table.name
            elif (other := tables.elsewhere(old)) is not None:
                old = other.name
                notes = ("RENAME does not say in which database the table was",)
    elif table is not None:
        old = table.name
    else:
        return None
    return Move(part=part, old=old, new=new, table_id=table_id, notes=notes)


def _with_ids(moves: Sequence[Move]) -> list[Move]:
    """Return steps with the ids that other steps of the statement have of the same table.

    The name in the middle of a cyclic rename was sent without an id: the step that leaves it has
    the id.
    """
    leaving: dict[Name, set[int]] = {}
    for move in moves:
        if move.table_id is not None:
            leaving.setdefault(folded(move.old), set()).add(move.table_id)

    def with_id(move: Move) -> Move:
        ids = leaving.get(folded(move.new), set())
        lacks_id = move.table_id is None and move.part.event.schema is not None
        return replace(move, table_id=min(ids)) if lacks_id and len(ids) == 1 else move

    return [with_id(move) for move in moves]


def _tables_meant(moves: Sequence[Move], tables: KnownTables) -> dict[int | None, int]:
    """Return for each id that was sent the id by which the history knows the table.

    A new id belongs to the table of its name, unless that table is renamed too: an EXCHANGE
    PARTITION or a TRUNCATE without a message gave it another id.
    """
    cited = {move.table_id for move in moves}
    meant: dict[int | None, int] = {}
    for move in moves:
        if move.table_id is None or tables.identified(move.table_id) is not None:
            continue
        named = tables.find(move.old)
        if named is not None and named.table_id not in cited:
            meant.setdefault(move.table_id, named.table_id)
    return {table_id: meant.get(table_id, table_id) for table_id in cited if table_id is not None}
