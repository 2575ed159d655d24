"""Which table each rename of one statement moved, in any order of their events.

In: the renames of one commit ts, each as its old and new name, with its table's id where messages
have ids; and which tables had these names before. Out: a possible order of the renames, and for
each the table that it moved.

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
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

Name: TypeAlias = tuple[str, str]
"""(database, table), in lower case."""


@dataclass(frozen=True, slots=True, order=True)
class Rename:
    """One pair of a statement.

    Attributes:
        old: a name of its table before.
        new: its name after this step.
    """

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
    """Return the order of execution of `renames` and what each moved.

    Args:
        renames: the renames of one commit ts, in the order of their events.
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
    order: list[int] = []
    moved: dict[int, Hashable] = {}
    certain = True
    for group in _sharing_names(renames):
        part = _Search(renames, given, present, group).settled(in_order=in_order)
        order += part.order
        moved |= part.moved
        certain = certain and part.certain
    return Settled(
        order=tuple(order),
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


_NO_COST: Final = (0, 0)


@dataclass(frozen=True, slots=True)
class _Part:
    order: list[int]
    moved: dict[int, Hashable]
    certain: bool


class _State:
    """Where the tables are while renames are executed."""

    def __init__(self, present: Mapping[Name, Hashable], names: set[Name]) -> None:
        self.at = {name: present[name] for name in names if name in present}
        self.place_of = {table: name for name, table in self.at.items()}
        self.home = dict(self.place_of)
        self.touched = set(self.at)
        self.moved: dict[int, Hashable] = {}
        self.assumed = 0

    def copy(self) -> "_State":
        """Return the same state."""
        other = _State({}, set())
        other.at, other.place_of = dict(self.at), dict(self.place_of)
        other.home, other.touched = dict(self.home), set(self.touched)
        other.moved, other.assumed = dict(self.moved), self.assumed
        return other

    def carry_out(
        self, number: int, rename: Rename, table: Hashable | None, *, roams: bool
    ) -> bool:
        """Execute one rename if it is possible; return whether it was.

        Args:
            number: its number.
            rename: its names.
            table: its table, None for the table with the old name.
            roams: whether the old name may be one that the table had before the statement.
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
        mover = self.moved[number] = self.at.pop(place)
        self.at[rename.new] = mover
        self.place_of[mover] = rename.new
        self.touched |= {place, rename.new}
        return True

    def cost(self) -> tuple[int, int]:
        """Return how unlikely the order is."""
        moved = set(self.moved.values())
        returned = sum(self.home[table] == self.place_of[table] for table in moved)
        return (returned, self.assumed)

    def outcome(self) -> frozenset[tuple[Name, Hashable]]:
        """Return which names belong to which tables."""
        return frozenset(self.at.items())


class _Search:
    """Searches an order of the renames that share names."""

    def __init__(
        self,
        renames: Sequence[Rename],
        tables: Sequence[Hashable | None],
        present: Mapping[Name, Hashable],
        group: Sequence[int],
    ) -> None:
        self._renames = renames
        self._tables = tables
        self._group = list(group)
        names = {name for number in group for name in (renames[number].old, renames[number].new)}
        self._start = _State(present, names)
        # A table whose renames all leave one name had this name before the statement.
        olds: dict[Hashable, set[Name]] = {}
        for number in group:
            olds.setdefault(tables[number], set()).add(renames[number].old)
        self._roaming = {table for table, names in olds.items() if len(names) == 1}
        self._steps = 0

    def settled(self, *, in_order: bool) -> _Part:
        """Return an order and what it moves."""
        as_sent = self._carried_out(self._group) if in_order else None
        if as_sent is not None and as_sent.cost() == _NO_COST:
            return _Part(self._group, as_sent.moved, certain=True)
        # By their names, so that the order of the events does not matter.
        wanted = sorted(self._group, key=lambda number: self._renames[number])
        best: tuple[tuple[int, int], list[int], _State] | None = None
        outcomes: dict[tuple[int, int], set[frozenset[tuple[Name, Hashable]]]] = {}
        for order, state in self._orders([], wanted, self._start):
            cost = state.cost()
            outcomes.setdefault(cost, set()).add(state.outcome())
            if best is None or cost < best[0]:
                best = (cost, order, state)
        if as_sent is not None and (best is None or as_sent.cost() <= best[0]):
            return _Part(self._group, as_sent.moved, certain=True)
        if best is None:
            moved = {number: self._table(number) for number in self._group}
            return _Part(wanted, moved, certain=len(set(moved.values())) == len(moved))
        return _Part(best[1], best[2].moved, certain=len(outcomes[best[0]]) == 1)

    def _table(self, number: int) -> Hashable:
        table, old = self._tables[number], self._renames[number].old
        return self._start.at.get(old, old) if table is None else table

    def _carry_out(self, state: _State, number: int) -> bool:
        table = self._tables[number]
        return state.carry_out(number, self._renames[number], table, roams=table in self._roaming)

    def _carried_out(self, order: Sequence[int]) -> _State | None:
        state = self._start.copy()
        return state if all(self._carry_out(state, number) for number in order) else None

    def _orders(
        self, done: list[int], left: Sequence[int], state: _State
    ) -> Iterator[tuple[list[int], _State]]:
        """Yield the possible orders of the remaining renames."""
        if not left:
            yield done, state
        for number in left:
            self._steps += len(self._group)
            if self._steps > _MOST_STEPS:
                return
            following = state.copy()
            if self._carry_out(following, number):
                rest = [other for other in left if other != number]
                yield from self._orders([*done, number], rest, following)
