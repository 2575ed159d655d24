"""Row changes that retention keeps below a base cut, because the cut lacks them.

In: a mirror and what its cut lacks. Out: conditions on rows of the change log, for Spark
or pyarrow. Pure: nothing is read here.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Any

from ticdc_assets.changelog.plan import HeldGroup, MirrorPlan, Plan
from ticdc_assets.pipeline.cuts import Cut
from ticdc_assets.pipeline.quarantine import place_of
from ticdc_assets.wire.rows import OF_MIRRORS, PLACE


@dataclass(frozen=True, slots=True, kw_only=True)
class LackingRows:
    """Row changes at or below a base that it lacks, or that are needed to place what it lacks.

    Attributes:
        database: database they cite.
        table: table they cite.
        min_ts: lowest commit ts.
        max_ts: highest commit ts.
        schema_version: schema version they cite, None if any.
        places: coordinates they stand at, None if anywhere.
    """

    database: str
    table: str
    min_ts: int
    max_ts: int
    schema_version: int | None = None
    places: tuple[tuple[str, int, int, int], ...] | None = None

    def condition(self, field: Callable[[str], Any]) -> Any:
        """Return the condition on rows of the change log that they are these.

        Args:
            field: a column by its name, of Spark or of pyarrow.
        """
        found = (
            field("kind").isin(list(OF_MIRRORS))
            & (field("database") == self.database)
            & (field("table") == self.table)
            & (field("commit_ts") >= self.min_ts)
            & (field("commit_ts") <= self.max_ts)
        )
        if self.schema_version is not None:
            found &= field("schema_version") == self.schema_version
        if self.places is not None:
            found &= reduce(or_, (_at(field, place) for place in self.places))
        return found


def _at(field: Callable[[str], Any], place: tuple[str, int, int, int]) -> Any:
    return reduce(and_, (field(name) == value for name, value in zip(PLACE, place, strict=True)))


def lacking_of(
    mirror: MirrorPlan,
    faults: Iterable[dict[str, Any]],
    held: Collection[tuple[str | None, int | None]],
    max_ts: int,
) -> list[LackingRows]:
    """Return what a base lacks of one mirror and what is needed to place it.

    Args:
        mirror: its plan at the base.
        faults: row changes in quarantine, by the names that they cite.
        held: ids of mirrors, each with a schema version of rows that the base holds.
        max_ts: TSO of the base.
    """
    own = faults_of(mirror, faults)
    # Groups some of whose rows may be another table's: the cut has looked.
    strays = [
        item
        for group in mirror.wrong_version
        if (mirror.mirror_id, group.schema_version) in held
        for item in in_time_of(mirror, group, max_ts)
    ]
    if not own and not mirror.held and not strays:
        return []
    if mirror.schema.handle_key:
        first = min(
            [group.min_ts for group in (*mirror.held, *strays)] + [row["commit_ts"] for row in own]
        )
        return list(all_since(mirror, first, max_ts))
    waiting = (
        LackingRows(
            database=group.database,
            table=group.table,
            min_ts=group.min_ts,
            max_ts=min(group.max_ts, max_ts),
            schema_version=group.schema_version,
        )
        for group in mirror.held
    )
    quarantined = (
        LackingRows(
            database=row["database"],
            table=row["table"],
            min_ts=row["commit_ts"],
            max_ts=row["commit_ts"],
            places=(place_of(row),),
        )
        for row in own
    )
    return [*strays, *waiting, *quarantined]


def lacking_of_none(plan: Plan, base: Cut) -> list[LackingRows]:
    """Return what a base lacks of no mirror: a table may turn out to be there, and mirrored.

    Args:
        plan: the plan at the base.
        base: the base.
    """
    untaken = {
        (item.database, item.table, item.schema_version)
        for item in base.held
        if item.mirror_id is None
    }
    # Groups some of whose rows may be a table's: the cut has looked.
    strays = (
        group
        for group in plan.strays
        if (group.database, group.table, group.schema_version) in untaken
    )
    return [
        LackingRows(
            database=group.database,
            table=group.table,
            min_ts=group.min_ts,
            max_ts=min(group.max_ts, base.tso),
        )
        for group in (*plan.held, *strays)
    ]


def all_since(mirror: MirrorPlan, min_ts: int, max_ts: int) -> Iterator[LackingRows]:
    """Yield the row changes of a mirror between two commit ts, by the names it had then."""
    for binding in mirror.bindings:
        until = max_ts if binding.until_ts is None else min(max_ts, binding.until_ts)
        if until >= min_ts:
            yield LackingRows(
                database=binding.database,
                table=binding.table,
                min_ts=max(min_ts, binding.after_ts + 1),
                max_ts=until,
            )


def faults_of(plan: MirrorPlan, faults: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the row changes among `faults` that cite a name which the plan's table had then."""
    return [
        row
        for row in faults
        if plan.meets((row["database"], row["table"]), row["commit_ts"], row["commit_ts"])
    ]


def in_time_of(mirror: MirrorPlan, group: HeldGroup, max_ts: int) -> Iterator[LackingRows]:
    """Yield the rows of a group up to a commit ts that cite a name the mirror has at theirs."""
    max_ts = min(group.max_ts, max_ts)
    for binding in mirror.bindings:
        if binding.meets((group.database, group.table), group.min_ts, max_ts):
            yield LackingRows(
                database=group.database,
                table=group.table,
                min_ts=max(group.min_ts, binding.after_ts + 1, mirror.floor_ts + 1),
                max_ts=max_ts if binding.until_ts is None else min(max_ts, binding.until_ts),
                schema_version=group.schema_version,
            )
