"""Accounts: what happens in a cut to the row changes that are new in it, in numbers.

In: the change log and its totals, the plan of the cut, the last cut, and the changes that the cut
quarantined. Out:

- *late rows* (`late_rows`): changes at or below the last cut that landed after it, by table. Hashes
  of a record's content (`_SAID`) identify replays, which do not count; only hashes are held, so the
  size of the images does not matter.
- *held rows* (`count_held`): changes that no mirror can take yet, by table and schema version:
  their schema has not arrived, or they cite a name while no table has it.
- *accounts* (`account_changes`): for each table that row changes cite, the outcome of each change.
  Changes are counted by the cited name and their commit ts, independently of how mirrors select
  theirs. So a change is *unaccounted*, with coordinates, if no mirror takes it and it is neither
  held, nor excluded, nor gone with its table.

    read = applied + waiting + held + quarantined + excluded + superseded + unaccounted

A cut counts the changes since the last cut, and again those that the last cut could not account
for, so a difference stays until it is fixed. Nothing is written, and running it again gives the
same.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as ds

from ticdc_assets.changelog.plan import Binding, MirrorPlan, Plan, RowGroup, TableName
from ticdc_assets.delta.queries import asking
from ticdc_assets.log.cuts import ChangeAccount, Cut, HeldRows
from ticdc_assets.mirrors.change_folding import ChangeFolding
from ticdc_assets.mirrors.validity import LateRows
from ticdc_assets.model.tso import MAX_TSO, from_physical_ms, physical_ms
from ticdc_assets.rows.rows_of_work import by_name
from ticdc_assets.wire.rows import PLACE, ROW

# Late rows --------------------------------------------------------------------------------------

_SAID = ("commit_ts", "database", "table", "table_id", "op", "schema_version", "before", "after")
"""The columns that a record and its replay have in common."""

_HASHED = ", ".join(f'"{name}"' for name in _SAID)

_BY_TABLE = f"""
    WITH hashed AS MATERIALIZED (
        SELECT
            "database", "table", commit_ts, batch > $batch AS is_new,
            hash({_HASHED}) AS one, hash('other', {_HASHED}) AS other,
        FROM changes
    )
    SELECT
        "database", "table",
        count(*) FILTER (is_replay),
        count(*) FILTER (NOT is_replay AND commit_ts < $open_ts),
        min(commit_ts) FILTER (NOT is_replay),
        max(commit_ts) FILTER (NOT is_replay),
    FROM (
        SELECT *, (one, other) IN (SELECT (one, other) FROM hashed WHERE NOT is_new) AS is_replay
        FROM hashed WHERE is_new
    )
    GROUP BY ALL ORDER BY ALL
"""
"""For each table the numbers of replays and of late rows, and the span of what is not a replay."""


def late_rows(
    changes: ChangeFolding, last: Cut | None, *, es_only: bool
) -> tuple[int, int, list[LateRows]]:
    """Separate replays from late rows among those landed since the last cut, at or below it.

    A row is a replay if the change log already has one with the same images and commit ts. Any
    other row is late: it takes its place, although its cut was published. Without commit ts
    (`es_only`), rows of the millisecond that the last cut ended in are neither: two equal changes
    in it may be different ones.

    Returns:
        How many were replays, how many were late, and the spans to fold in.
    """
    if last is None or changes.batch <= last.batch:
        return 0, 0, []
    batch, tso = last.batch, last.tso
    first = changes.first_late(batch, tso)
    if first is None:
        return 0, 0, []
    # The last millisecond of a cut without TSO, else nothing.
    open_ts = from_physical_ms(physical_ms(tso)) if es_only else MAX_TSO
    stamps = ds.field("commit_ts")
    is_old = (stamps >= first) & (stamps < open_ts)
    rows = changes.rows(
        [*_SAID, "kind", "batch"],
        (ds.field("kind") == ROW) & (stamps <= tso) & ((ds.field("batch") > batch) | is_old),
    )
    folder = None if rows.table is not None else changes.scratch.folder()
    with asking(folder) as engine:
        engine.register("changes", pa.RecordBatchReader.from_batches(rows.schema, rows.read()))
        by_table = engine.execute(_BY_TABLE, {"batch": batch, "open_ts": open_ts}).fetchall()
    spans = [
        LateRows(name=(database, table), min_ts=min_ts, max_ts=max_ts)
        for database, table, _, _, min_ts, max_ts in by_table
        if min_ts is not None
    ]
    return sum(row[2] for row in by_table), sum(row[3] for row in by_table), spans


# Held rows --------------------------------------------------------------------------------------


def count_held(
    changes: ChangeFolding, plan: Plan, totals: Iterable[Mapping[str, Any]]
) -> list[HeldRows]:
    """Return the held rows at or below a cut, by table and schema version."""
    landed: dict[tuple[object, ...], datetime] = {}
    for row in totals:
        if row["kind"] == "row":
            place = (row["database"], row["table"], row["schema_version"])
            at = row["first_landed_at"]
            landed[place] = min(at, landed.get(place, at))
    held: dict[tuple[object, ...], HeldRows] = {}
    for mirror_id, group, rows in _counted(changes, plan):
        if not rows:
            continue
        place = (*group.name, group.schema_version)
        entry = held.get((*place, mirror_id))
        held[*place, mirror_id] = HeldRows(
            database=group.database,
            table=group.table,
            schema_version=group.schema_version,
            mirror_id=mirror_id,
            rows=rows + (entry.rows if entry else 0),
            min_ts=min(group.min_ts, entry.min_ts if entry else group.min_ts),
            since=landed[place],
        )
    return sorted(held.values(), key=lambda item: item.order)


def _counted(changes: ChangeFolding, plan: Plan) -> Iterator[tuple[str | None, RowGroup, int]]:
    """Yield groups with the mirror that they wait for (or None), and how many rows wait."""

    def count(bindings: Sequence[Binding], group: RowGroup, *, above: int = 0) -> int:
        return changes.count_rows(
            bindings, above=above, until=plan.cut_ts, version=group.schema_version
        )

    for mirror in plan.mirrors:
        for group in _by_citation(mirror.held):
            bindings = _meeting(mirror, group)
            is_known = group.max_ts <= plan.cut_ts and any(
                it.after_ts < group.min_ts and (it.until_ts is None or group.max_ts <= it.until_ts)
                for it in bindings
            )
            yield mirror.mirror_id, group, group.rows if is_known else count(bindings, group)
        for group in _by_citation(mirror.wrong_version):
            # Another table may own some or all of the group's rows.
            rows = count(_meeting(mirror, group), group, above=mirror.floor_ts)
            yield mirror.mirror_id, group, rows
    for group in plan.held:
        is_known = group.max_ts <= plan.cut_ts
        yield None, group, group.rows if is_known else count([_span_of(group)], group)
    spans = [_span_of(group) for group in plan.strays]
    # Most tables that were dropped and created again have no rows in between.
    if spans and changes.count_rows(spans, above=0, until=plan.cut_ts):
        for group, span in zip(plan.strays, spans, strict=True):
            yield None, group, count([span], group)


def _by_citation(groups: Iterable[RowGroup]) -> Iterable[RowGroup]:
    """Return one group for all that cite one version of one name; partitions have one each."""
    joined: dict[tuple[object, ...], RowGroup] = {}
    for group in groups:
        joined[group.key] = group.joined(joined.get(group.key))
    return joined.values()


def _meeting(mirror: MirrorPlan, group: RowGroup) -> list[Binding]:
    return [item for item in mirror.bindings if item.meets(group.name, group.min_ts, group.max_ts)]


def _span_of(group: RowGroup) -> Binding:
    """Return the name and the time of rows that no table takes."""
    return Binding(
        database=group.database, table=group.table, after_ts=group.min_ts - 1, until_ts=group.max_ts
    )


# Accounts ---------------------------------------------------------------------------------------

_COLUMNS = ("database", "table", "schema_version", "commit_ts")
_EXAMPLES = 10

# A change that two tables claim goes to the stronger claim.
_UNPLACED, _SUPERSEDED, _EXCLUDED, _HELD, _WAITING, _TAKEN = range(6)


@dataclass(frozen=True, slots=True)
class _Claim:
    """Which changes of one name a table claims.

    Attributes:
        span: the name, and when the table had it.
        taken: the outcome of the changes that it takes.
        floor_ts: changes at or below it are gone.
        versions: schema versions it takes; None for any.
        held: schema versions it holds.
    """

    span: Binding
    taken: int
    floor_ts: int = 0
    versions: frozenset[int] | None = None
    held: frozenset[int] = frozenset()

    def judged(
        self, stamps: npt.NDArray[np.int64], versions: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int8]:
        """Return the outcome of changes by this claim; version -1 means none."""
        inside = stamps > self.span.after_ts
        if self.span.until_ts is not None:
            inside &= stamps <= self.span.until_ts
        taken = np.ones(len(stamps), np.bool_)
        if self.versions is not None:
            taken = (versions == -1) | np.isin(versions, list(self.versions))
        held = np.isin(versions, list(self.held)) & ~taken
        outcomes = np.full(len(stamps), _UNPLACED, np.int8)
        outcomes[held] = _HELD
        outcomes[taken] = self.taken
        outcomes[stamps <= self.floor_ts] = _SUPERSEDED
        outcomes[~inside] = _UNPLACED
        return outcomes


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
    for claim in _claims(plan, includes, failed):
        claims.setdefault((claim.span.database, claim.span.table), []).append(claim)

    def accounts(columns: Sequence[str]) -> tuple[ChangeAccount, ...]:
        tallies: dict[TableName, _Tally] = {}
        for batch in read(columns):
            for name, rows in by_name(batch):
                tally = tallies.setdefault(name, _Tally())
                tally.add(rows, claims.get(name, ()), quarantined)
        return tuple(tallies[name].account(*name) for name in sorted(tallies))

    # Coordinates are most of the data to read, and seldom needed.
    if not quarantined:
        by_table = accounts(_COLUMNS)
        if not any(item.unaccounted for item in by_table):
            return by_table
    return accounts((*_COLUMNS, *PLACE))


def _claims(
    plan: Plan, includes: Callable[[str, str], bool], failed: Collection[str]
) -> Iterator[_Claim]:
    """Yield the claims of each table of the plan, and of the tables it got rows from."""
    for mirror in plan.mirrors:
        taken = _WAITING if mirror.mirror_id in failed else _TAKEN
        taken = taken if includes(*mirror.name) else _EXCLUDED
        for source in mirror.sources():
            versions = frozenset(schema.version for schema in source.versions)
            held = _cited((*source.held, *source.wrong_version))
            for span in source.bindings:
                yield _Claim(span, taken, source.floor_ts, versions, held)
    for table in plan.failed:
        taken = _WAITING if includes(*table.name) else _EXCLUDED
        yield from (_Claim(span, taken, table.floor_ts) for span in table.bindings)
    yield from (_Claim(span, _SUPERSEDED) for span in plan.gone)
    for group in (*plan.held, *plan.strays):
        taken = _HELD if includes(*group.name) else _EXCLUDED
        yield _Claim(_span_of(group), taken, versions=_cited([group]))


def _cited(groups: Iterable[RowGroup]) -> frozenset[int]:
    """Return the schema versions that held rows cite; rows that cite none need none."""
    versions = (group.schema_version for group in groups)
    return frozenset(version for version in versions if version is not None)


@dataclass(slots=True)
class _Tally:
    """The account of one table, while it is counted."""

    counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(_TAKEN + 1, np.int64))
    quarantined: int = 0
    first_ts: int | None = None
    examples: tuple[str, ...] = ()

    def add(
        self,
        rows: pa.RecordBatch,
        claims: Iterable[_Claim],
        quarantined: Collection[tuple[object, ...]],
    ) -> None:
        stamps = rows.column("commit_ts").to_numpy()
        versions = rows.column("schema_version").fill_null(-1).to_numpy()
        outcomes = np.full(len(stamps), _UNPLACED, np.int8)
        for claim in claims:
            outcomes = np.maximum(outcomes, claim.judged(stamps, versions))
        self.counts += np.bincount(outcomes, minlength=_TAKEN + 1)
        if quarantined:
            taken = rows.filter(pa.array(outcomes == _TAKEN)).select(PLACE)
            places = zip(*(column.to_pylist() for column in taken.columns), strict=True)
            self.quarantined += sum(place in quarantined for place in places)
        lost = outcomes == _UNPLACED
        if lost.any():
            first = int(stamps[lost].min())
            self.first_ts = first if self.first_ts is None else min(first, self.first_ts)
            if "topic" in rows.schema.names:
                some = rows.filter(pa.array(lost)).slice(0, _EXAMPLES - len(self.examples))
                self.examples += tuple(
                    "/".join(str(row[part]) for part in PLACE) for row in some.to_pylist()
                )

    def account(self, database: str, table: str) -> ChangeAccount:
        counts = self.counts.tolist()
        return ChangeAccount(
            database=database,
            table=table,
            read=sum(counts),
            applied=counts[_TAKEN] - self.quarantined,
            waiting=counts[_WAITING],
            held=counts[_HELD],
            quarantined=self.quarantined,
            excluded=counts[_EXCLUDED],
            superseded=counts[_SUPERSEDED],
            unaccounted=counts[_UNPLACED],
            first_ts=self.first_ts,
            examples=self.examples,
        )
