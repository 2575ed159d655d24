"""Accounts: for each table, what happened to each row change that is new in a cut.

In: the change log, the plan of the cut, and the changes that the cut quarantined. Out: a
`ChangeAccount` for each table that row changes cite. Row changes are counted by the cited name and
their commit ts, independently of how mirrors select theirs. So a change is *unaccounted*, with
coordinates, if no mirror takes it and it is neither held, nor excluded, nor gone with its table. A
change that cites a name while no table has it is held.

    read = applied + waiting + held + quarantined + excluded + superseded + unaccounted

Nothing is written, and running it again gives the same. A cut counts the changes since the last
cut, and again the changes that the last cut could not account for, so a difference stays until it
is fixed.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ticdc_assets.changelog.plan import Binding, MirrorPlan, Plan, RowGroup, TableName
from ticdc_assets.log.cuts import ChangeAccount
from ticdc_assets.rows.rows_of_work import by_name
from ticdc_assets.wire.rows import PLACE

_COLUMNS = ("database", "table", "schema_version", "commit_ts")
_EXAMPLES = 10

# A change that two tables claim goes to the stronger claim.
_UNPLACED, _SUPERSEDED, _EXCLUDED, _HELD, _WAITING, _TAKEN = range(6)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    """Which changes of one name a table claims.

    Attributes:
        after_ts: above this commit ts.
        until_ts: up to it; None without a limit.
        floor_ts: changes at or below it are gone.
        versions: schema versions it takes; None for any.
        held: schema versions it holds.
        taken: the outcome of the changes that it takes.
    """

    after_ts: int
    until_ts: int | None
    floor_ts: int = 0
    versions: frozenset[int] | None = None
    held: frozenset[int] = frozenset()
    taken: int

    def judged(
        self, stamps: npt.NDArray[np.int64], versions: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int8]:
        """Return the outcome of changes by this claim; version -1 means none."""
        inside = stamps > self.after_ts
        if self.until_ts is not None:
            inside &= stamps <= self.until_ts
        taken = np.ones(len(stamps), np.bool_)
        if self.versions is not None:
            taken = (versions == -1) | np.isin(versions, list(self.versions))
        held = np.isin(versions, list(self.held)) & ~taken
        found = np.full(len(stamps), _UNPLACED, np.int8)
        found[held] = _HELD
        found[taken] = self.taken
        found[stamps <= self.floor_ts] = _SUPERSEDED
        found[~inside] = _UNPLACED
        return found


def account_changes(
    read: Callable[[Sequence[str]], Iterable[pa.RecordBatch]],
    plan: Plan,
    *,
    includes: Callable[[str, str], bool],
    failed: Collection[str],
    quarantined: Collection[tuple[object, ...]],
) -> tuple[ChangeAccount, ...]:
    """Return the accounts of row changes, by (database, table).

    Args:
        read: returns these columns of the row changes to account for, all at or below the cut.
        plan: the plan of the cut, of all tables.
        includes: whether the configuration has a table.
        failed: ids of the mirrors that could not be made.
        quarantined: coordinates of row changes that are in quarantine.
    """
    claims: dict[TableName, list[_Claim]] = {}
    for name, claim in _claims(plan, includes, failed):
        claims.setdefault(name, []).append(claim)
    # Coordinates are most of the data to read, and seldom needed.
    places = bool(quarantined)
    accounts = _accounts(read((*_COLUMNS, *PLACE) if places else _COLUMNS), claims, quarantined)
    if not places and any(item.unaccounted for item in accounts):
        accounts = _accounts(read((*_COLUMNS, *PLACE)), claims, ())
    return accounts


def _accounts(
    batches: Iterable[pa.RecordBatch],
    claims: Mapping[TableName, Sequence[_Claim]],
    quarantined: Collection[tuple[object, ...]],
) -> tuple[ChangeAccount, ...]:
    tallies: dict[TableName, _Tally] = {}
    for batch in batches:
        for name, rows in by_name(batch):
            tally = tallies.setdefault(name, _Tally())
            tally.add(rows, claims.get(name, ()), quarantined)
    return tuple(tallies[name].account(*name) for name in sorted(tallies))


def _claims(
    plan: Plan, includes: Callable[[str, str], bool], failed: Collection[str]
) -> Iterator[tuple[TableName, _Claim]]:
    """Yield the claims of each table of the plan, with the name that the changes cite."""
    for mirror in plan.mirrors:
        if not includes(mirror.database, mirror.table):
            taken = _EXCLUDED
        else:
            taken = _WAITING if mirror.mirror_id in failed else _TAKEN
        yield from _claims_of(mirror, taken)
    for table in plan.failed:
        taken = _WAITING if includes(table.database, table.table) else _EXCLUDED
        for binding in table.bindings:
            yield _claim(binding, taken, floor_ts=table.floor_ts)
    for binding in plan.gone:
        yield _claim(binding, _SUPERSEDED)
    for group in (*plan.held, *plan.strays):
        name = (group.database, group.table)
        yield (
            name,
            _Claim(
                after_ts=group.min_ts - 1,
                until_ts=group.max_ts,
                versions=_cited([group]),
                taken=_HELD if includes(*name) else _EXCLUDED,
            ),
        )


def _claims_of(mirror: MirrorPlan, taken: int) -> Iterator[tuple[TableName, _Claim]]:
    """Yield the claims of a mirror and, before them, those of mirrors that it got rows from."""
    for plan in mirror.sources():
        versions = frozenset(schema.version for schema in plan.versions)
        held = _cited((*plan.held, *plan.wrong_version))
        for binding in plan.bindings:
            yield _claim(binding, taken, floor_ts=plan.floor_ts, versions=versions, held=held)


def _cited(groups: Iterable[RowGroup]) -> frozenset[int]:
    """Return the schema versions that held rows cite; rows that cite none need none."""
    versions = (group.schema_version for group in groups)
    return frozenset(version for version in versions if version is not None)


def _claim(
    binding: Binding,
    taken: int,
    *,
    floor_ts: int = 0,
    versions: frozenset[int] | None = None,
    held: frozenset[int] = frozenset(),
) -> tuple[TableName, _Claim]:
    """Return a table's claim for the time that it had a name, with that name."""
    return (
        (binding.database, binding.table),
        _Claim(
            after_ts=binding.after_ts,
            until_ts=binding.until_ts,
            floor_ts=floor_ts,
            versions=versions,
            held=held,
            taken=taken,
        ),
    )


class _Tally:
    """The account of one table, while it is counted."""

    def __init__(self) -> None:
        self._counts = np.zeros(_TAKEN + 1, np.int64)
        self._quarantined = 0
        self._first_ts: int | None = None
        self._examples: list[str] = []

    def add(
        self,
        rows: pa.RecordBatch,
        claims: Iterable[_Claim],
        quarantined: Collection[tuple[object, ...]],
    ) -> None:
        """Count row changes."""
        stamps = rows.column("commit_ts").to_numpy()
        versions = rows.column("schema_version").fill_null(-1).to_numpy()
        found = np.full(len(stamps), _UNPLACED, np.int8)
        for claim in claims:
            found = np.maximum(found, claim.judged(stamps, versions))
        self._counts += np.bincount(found, minlength=_TAKEN + 1)
        if quarantined:
            taken = rows.filter(pa.array(found == _TAKEN)).select(PLACE)
            places = zip(*(column.to_pylist() for column in taken.columns), strict=True)
            self._quarantined += sum(place in quarantined for place in places)
        lost = found == _UNPLACED
        if lost.any():
            first = int(stamps[lost].min())
            self._first_ts = first if self._first_ts is None else min(first, self._first_ts)
            if "topic" in rows.schema.names:
                some = rows.filter(pa.array(lost)).slice(0, _EXAMPLES - len(self._examples))
                self._examples += [
                    "/".join(str(row[part]) for part in PLACE) for row in some.to_pylist()
                ]

    def account(self, database: str, table: str) -> ChangeAccount:
        """Return the counts as an account."""
        counts = self._counts.tolist()
        return ChangeAccount(
            database=database,
            table=table,
            read=sum(counts),
            applied=counts[_TAKEN] - self._quarantined,
            waiting=counts[_WAITING],
            held=counts[_HELD],
            quarantined=self._quarantined,
            excluded=counts[_EXCLUDED],
            superseded=counts[_SUPERSEDED],
            unaccounted=counts[_UNPLACED],
            first_ts=self._first_ts,
            examples=tuple(self._examples),
        )
