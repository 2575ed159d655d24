"""Truncation points: up to where each table was truncated, and its effect on readers.

In: `change_log` or `raw_messages`, from which `retention` may have removed rows. Out: its
`TruncationPoint`: the newest base cut, whose mirrors replace the removed rows, and the tables that
rest on an older base or on none, because they lacked changes at the newest one; and a caveat for
each mirror whose base would be different today. No Spark session is started and nothing is written,
so reading again is safe.

The point is a property of the Delta table (`PROPERTY`), set by the commit that removed the rows.
Every later version of the table has it. So the point exists if and only if the rows are gone. It
has the batches of its bases in the table's own numbers: `raw_messages` counts landings, a change
log its own batches, which are unrelated to those of another generation.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any

import pyarrow.dataset as ds

from ticdc_assets.base.errors import NotFoundError
from ticdc_assets.base.names import joined_name
from ticdc_assets.changelog.plan import Binding, MirrorPlan, Plan, RowGroup
from ticdc_assets.delta.delta_protocol import LogState
from ticdc_assets.delta.opening import open_table
from ticdc_assets.log.cuts import Cut, MirrorCut, read_cuts
from ticdc_assets.mirrors.validity import Knowledge
from ticdc_assets.storage.lake_paths import LakePaths

PROPERTY = "ticdc.retention"
"""The table property with the truncation point, as JSON text."""


def cites(name: Binding, above: int = 0) -> ds.Expression:
    """Return the condition for row changes above a TSO that cite a name while a table has it."""
    at = ds.field("commit_ts")
    condition = (
        (ds.field("database") == name.database)
        & (ds.field("table") == name.table)
        & (at > max(name.after_ts, above))
    )
    return condition if name.until_ts is None else condition & (at <= name.until_ts)


@dataclass(frozen=True, slots=True, kw_only=True)
class LackingTable:
    """A table that lacks something at a cut.

    Attributes:
        mirror_id: its mirror; None for row changes that cite a name without a table.
        database: database at the cut.
        table: name at the cut.
        reason: what it lacks, in one clause.
        spans: its row changes at or below the cut, by the names that it had in time.
    """

    mirror_id: str | None
    database: str
    table: str
    reason: str
    spans: tuple[Binding, ...]

    @property
    def name(self) -> tuple[str, str]:
        """(database, table)."""
        return (self.database, self.table)

    @property
    def key(self) -> tuple[str, ...]:
        """Identifies the table across cuts."""
        return self.name if self.mirror_id is None else (self.mirror_id,)

    @property
    def clause(self) -> str:
        """The clause for messages."""
        return f"{joined_name(*self.name)}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTable(LackingTable):
    """A table that was not truncated at the newest base, because it lacked something there.

    Attributes:
        base: number of the cut that it rests on: all of its changes above that exist. 0 for none.
        since: since when it has been left out.
    """

    base: int
    since: datetime

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "database": self.database,
            "table": self.table,
            "base": self.base or None,
            "reason": self.reason,
            "since": self.since.isoformat(timespec="milliseconds"),
        }

    @property
    def sentence(self) -> str:
        """The sentence for messages."""
        from_where = "at all" if not self.base else f"beyond cut {self.base}"
        return (
            f"{joined_name(*self.name)} is not truncated {from_where} since "
            f"{self.since:%Y-%m-%d %H:%M:%S} UTC: {self.reason}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A mirror in a cut: later changes are folded over its rows, or over its history's versions."""

    mirror: MirrorCut
    tso: int


@dataclass(frozen=True, kw_only=True)
class TruncationPoint:
    """Up to where the tables were truncated.

    Attributes:
        batch: newest batch of the table that the newest base was made from.
        cut: the newest base cut; None if nothing was ever removed.
        kept: the tables that do not rest on it.
        older: the other cuts that tables rest on, by number.
    """

    batch: int = 0
    cut: Cut | None = None
    kept: tuple[KeptTable, ...] = ()
    older: Mapping[int, Cut] = field(default_factory=dict[int, Cut])

    @property
    def number(self) -> int:
        """The number of the newest base cut; 0 if there is none."""
        return self.cut.number if self.cut is not None else 0

    @property
    def numbers(self) -> frozenset[int]:
        """The numbers of all cuts that a table rests on."""
        return frozenset({self.number, *(item.base for item in self.kept)})

    @property
    def tso(self) -> int:
        """TSO of the newest base cut; 0 if there is none."""
        return self.cut.tso if self.cut is not None else 0

    @cached_property
    def lowest(self) -> int:
        """TSO of the lowest base that a table rests on; 0 if one rests on none."""
        return min([self.tso, *(self.place_of_kept(item)[0] for item in self.kept)])

    def tso_of(self, mirror_id: str) -> int:
        """Return the TSO up to which the changes of a mirror may be gone; 0 if none are."""
        return self.place_of(mirror_id)[0]

    def place_of(self, mirror_id: str) -> tuple[int, int]:
        """Return the TSO of a mirror's base and the newest batch in it; (0, 0) without one."""
        table = self._kept.get(mirror_id)
        return (self.tso, self.batch) if table is None else self.place_of_kept(table)

    def place_of_kept(self, kept: KeptTable) -> tuple[int, int]:
        """Return the same of a table that does not rest on the newest base."""
        cut = self._cut(kept.base)
        if cut is None:
            return (0, 0)
        return (cut.tso, self.batch if cut is self.cut else cut.batch)

    def base_of(self, mirror_id: str) -> Base | None:
        """Return the base of a mirror; None if it has none or is not in it."""
        table = self._kept.get(mirror_id)
        cut = self.cut if table is None else self._cut(table.base)
        mirror = None if cut is None else self._mirrors[cut.number].get(mirror_id)
        return None if cut is None or mirror is None else Base(mirror=mirror, tso=cut.tso)

    def placed(self) -> ds.Expression:
        """Return the condition that row changes of the change log have their place.

        Rows that landed after their place was truncated do not have it.
        """
        placed = (ds.field("commit_ts") > self.tso) | (ds.field("batch") <= self.batch)
        for item in self.kept:
            for span in item.spans:
                placed |= cites(span, above=self.place_of_kept(item)[0])
        return placed

    def _cut(self, number: int) -> Cut | None:
        return self.cut if number == self.number else self.older.get(number)

    @cached_property
    def _kept(self) -> dict[str, KeptTable]:
        return {item.mirror_id: item for item in self.kept if item.mirror_id is not None}

    @cached_property
    def _mirrors(self) -> dict[int, dict[str, MirrorCut]]:
        # Each table needs this, and there may be thousands.
        cuts = (*self.older.values(), *(() if self.cut is None else (self.cut,)))
        return {cut.number: {item.mirror_id: item for item in cut.mirrors} for cut in cuts}


def properties_of(point: TruncationPoint) -> dict[str, str]:
    """Return the table property that says up to where a table was truncated."""
    batches = {number: cut.batch for number, cut in point.older.items()}
    text = json.dumps(
        {
            "base": point.number,
            "batches": sorted({**batches, point.number: point.batch}.items()),
            "kept": [{**asdict(item), "since": item.since.isoformat()} for item in point.kept],
        }
    )
    return {PROPERTY: text}


def _kept_tables(items: Iterable[Mapping[str, Any]]) -> Iterator[KeptTable]:
    for item in items:
        spans = tuple(Binding(**span) for span in item["spans"])
        yield KeptTable(**{**item, "spans": spans, "since": datetime.fromisoformat(item["since"])})


def read_truncation_point(paths: LakePaths) -> TruncationPoint:
    """Return up to where the change log was truncated; needs no Spark."""
    return truncation_point_of(paths, open_table(paths.change_log))


def read_raw_truncation_point(paths: LakePaths) -> TruncationPoint:
    """Return up to where the raw messages were truncated; needs no Spark."""
    return truncation_point_of(paths, open_table(paths.raw_messages))


def read_kept_tables(paths: LakePaths) -> tuple[KeptTable, ...]:
    """Return the tables that the change log was not truncated for; needs no other table."""
    stored = _stored(open_table(paths.change_log))
    return () if stored is None else tuple(_kept_tables(stored["kept"]))


def has_lost_records(paths: LakePaths) -> bool:
    """Return whether records were removed from the raw messages; needs no other table."""
    stored = _stored(open_table(paths.raw_messages))
    return stored is not None and stored["base"] > 0


def truncation_point_of(paths: LakePaths, table: LogState | None) -> TruncationPoint:
    """Return up to where the open version of one of the two tables was truncated.

    A reader that runs during retention needs the point and the rows of one version: an older point
    counts rows that are gone.

    Raises:
        NotFoundError: it was truncated further meanwhile, and a base cut is gone.
    """
    stored = _stored(table)
    if stored is None:
        return TruncationPoint()
    tables = tuple(_kept_tables(stored["kept"]))
    numbers = {stored["base"], *(item.base for item in tables)} - {0}
    # The cuts that a new generation starts from are published ones.
    published = paths.of(paths.generation)
    cuts = {number: cut for number in numbers for cut in read_cuts(published, number=number)}
    if cuts.keys() != numbers:
        raise NotFoundError(
            f"changefeed {paths.changefeed!r} was truncated during this read: try again"
        )
    # A base of an older generation numbers its batches differently; these are the table's numbers.
    cuts = {
        number: replace(cuts[number], batch=batch)
        for number, batch in stored["batches"]
        if number in cuts
    }
    base = cuts.pop(stored["base"], None)
    return TruncationPoint(
        batch=0 if base is None else base.batch, cut=base, kept=tables, older=cuts
    )


def _stored(table: LogState | None) -> dict[str, Any] | None:
    text = None if table is None else table.configuration.get(PROPERTY)
    return None if text is None else json.loads(text)


_BELOW = "what came late lies below what is kept, since "


def tso_below(caveat: str) -> int | None:
    """Return the TSO of a caveat of `caveats_below`; None if it is another caveat."""
    text = caveat.removeprefix(_BELOW)
    return None if text == caveat else int(text)


def has_caveat_below(caveats: Iterable[str]) -> bool:
    """Return whether one of the caveats is one of `caveats_below`."""
    return any(tso_below(caveat) is not None for caveat in caveats)


def caveats_below(
    truncation_point: TruncationPoint,
    known: Knowledge,
    plan: Plan,
    earlier: Callable[[], Iterable[tuple[str, str]]],
) -> dict[str, str]:
    """Return a caveat for each mirror whose base would be different today, by mirror id.

    Args:
        truncation_point: up to where the change log was truncated.
        known: the schemas and changes known now.
        plan: the mirrors.
        earlier: returns the caveats of mirrors in cuts, oldest first, each after the mirror's id. A
            mirror keeps such a caveat as long as it has rows of that time.
    """
    if truncation_point.cut is None:
        return {}
    below = [group for group in known.row_groups if group.min_ts <= truncation_point.tso]
    # Changes that no table takes were kept, and so were those that a left-out table lacks.
    there = {(item.database, item.table) for item in known.plan(truncation_point.tso).held}
    there |= {item.name for item in truncation_point.kept if item.mirror_id is None}

    def is_lost(plan: MirrorPlan) -> bool:
        """Whether no mirror of a base has the rows of a plan."""
        base = truncation_point.base_of(plan.mirror_id)
        tso = truncation_point.tso_of(plan.mirror_id)
        until = plan.bindings[-1].until_ts
        lived_on = until is None or until > tso
        return plan.floor_ts > tso or not lived_on or base is None

    def is_gone(plan: MirrorPlan, group: RowGroup) -> bool:
        """Whether some changes that a plan's rows came from are gone."""
        tso = truncation_point.tso_of(plan.mirror_id)
        return (
            plan.floor_ts <= tso
            and group.min_ts <= tso
            and group.name not in there
            and plan.meets(group.name, group.min_ts, min(group.max_ts, tso))
        )

    caveats: dict[str, str] = {}
    for mirror in plan.mirrors:
        base, tso = (
            truncation_point.base_of(mirror.mirror_id),
            truncation_point.tso_of(mirror.mirror_id),
        )
        if base is not None and mirror.floor_ts <= tso:
            is_sound = known.digests(tso).get(mirror.mirror_id) == base.mirror.digest
        else:
            is_sound = not any(
                is_lost(source) and any(is_gone(source, group) for group in below)
                for source in mirror.sources(is_lost)
            )
        if not is_sound:
            # The caveat is kept as long as the old rows count.
            caveats[mirror.mirror_id] = f"{_BELOW}{max(tso, mirror.floor_ts)}"
    floors = {mirror.mirror_id: mirror.floor_ts for mirror in plan.mirrors}
    for mirror_id, caveat in earlier():
        since, floor_ts = tso_below(caveat), floors.get(mirror_id)
        if since is not None and floor_ts is not None and floor_ts <= since <= plan.cut_ts:
            caveats[mirror_id] = caveat
    return caveats
