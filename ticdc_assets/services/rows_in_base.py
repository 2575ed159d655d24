"""Rows of kept records that the base cut of the raw messages has: a rebuild leaves them out.

In: the base cut, what is known of its tables, and the faults of then. Out: a choice among decoded
rows. Retention keeps a record whole if one of its rows is above the base or is lacking there. The
others of its rows are in the base's mirrors: for a table without a key they would count twice, and
for one with a key they could bring a deleted row back, as the record of the delete is gone.

What the base lacked is told by the base itself (`Cut.held`) and by the times of the faults, as by
now its schemas may have come and its faults may be closed. Only row changes of tables that are in
the base are left out: the fold of any other table starts from nothing. Nothing is written.
"""

# pyarrow has no type information, so what comes from it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ticdc_assets.changelog.plan import HeldGroup, MirrorPlan, TableName
from ticdc_assets.engine.control import read_table
from ticdc_assets.engine.paths import LakePaths
from ticdc_assets.pipeline.cuts import Cut, HeldRows
from ticdc_assets.pipeline.quarantine import (
    CLOSED_BY,
    Closing,
    Place,
    cited_names,
    place_of,
    places_in,
    read_quarantine,
)
from ticdc_assets.pipeline.validity import Knowledge
from ticdc_assets.services.lacking_rows import LackingRows, all_since, lacking_of
from ticdc_assets.wire.rows import PLACE, ROW


@dataclass(frozen=True, slots=True)
class RowsInBase:
    """Tells the row changes that a base cut has.

    Args:
        tso: TSO of the base.
        landed: newest landed batch that the base was made from.
        spans: of each name the commit ts (first, last) at which tables of the base had it.
        lacking: the row changes that the base lacks or that are needed to place those.
        refused: coordinates of records of which rows were in quarantine at the base.
        decoded: places of those of their rows that the base has.
    """

    tso: int
    landed: int
    spans: Mapping[TableName, tuple[tuple[int, int], ...]]
    lacking: ds.Expression
    refused: frozenset[Place]
    decoded: frozenset[Place]

    def without(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return decoded rows without those that the base has."""
        below = pc.and_(
            pc.equal(rows.column("kind"), ROW),
            pc.and_(
                pc.less_equal(rows.column("commit_ts"), self.tso),
                # What landed later is in no base: the fold looks at its place.
                pc.less_equal(rows.column("batch"), self.landed),
            ),
        )
        numbers = pc.indices_nonzero(pc.fill_null(below, False))
        if not len(numbers):
            return rows
        number = "number_in_batch"
        some = pa.Table.from_batches([rows.take(numbers)]).append_column(number, numbers)
        lacking = set(some.filter(self.lacking)[number].to_pylist())
        columns = (some[name].to_pylist() for name in (number, "database", "table", "commit_ts"))
        gone = {
            at
            for at, database, table, ts, place in zip(*columns, places_in(some), strict=True)
            if at not in lacking
            and any(low <= ts <= high for low, high in self.spans.get((database, table), ()))
            and (place[:-1] not in self.refused or place in self.decoded)
        }
        return rows.filter(pa.array([at not in gone for at in range(rows.num_rows)], pa.bool_()))


def rows_in_base(paths: LakePaths, known: Knowledge, base: Cut, landed: int) -> RowsInBase:
    """Return what tells the row changes that a base has; needs no Spark.

    Args:
        paths: tables of the changefeed.
        known: what is known now of its changes.
        base: the base cut of the raw messages.
        landed: the newest landed batch that it was made from.
    """
    had = {item.mirror_id for item in base.mirrors}
    mirrors = [item for item in known.plan(base.tso).mirrors if item.mirror_id in had]
    spans: dict[TableName, tuple[tuple[int, int], ...]] = {}
    for mirror in mirrors:
        for item in all_since(mirror, 0, base.tso):
            name = (item.database, item.table)
            spans[name] = (*spans.get(name, ()), (item.min_ts, item.max_ts))
    faults = list(_faults_at(paths, base))
    refused = frozenset(place_of(row)[:-1] for row in faults if row["stage"] == "decode")
    return RowsInBase(
        tso=base.tso,
        landed=landed,
        spans=spans,
        lacking=reduce(
            or_,
            (item.condition(ds.field) for item in _lacking(paths, base, mirrors, faults)),
            ds.scalar(False),
        ),
        refused=refused,
        decoded=_decoded(paths, base, refused),
    )


def _faults_at(paths: LakePaths, base: Cut) -> Iterator[dict[str, Any]]:
    """Yield the faults that were open at the base.

    What a later change of the row closed is not needed: the later state is in the base or above.
    """
    for row in read_quarantine(paths, open_only=False):
        closed_at = row["redriven_at"]
        is_void = closed_at is not None and row.get(CLOSED_BY) == Closing.LATER_CHANGE
        was_open = closed_at is None or closed_at > base.made_at
        if was_open and not is_void and row["batch"] <= base.batch:
            yield row


def _lacking(
    paths: LakePaths, base: Cut, mirrors: list[MirrorPlan], faults: list[dict[str, Any]]
) -> Iterator[LackingRows]:
    """Yield what the base lacked and what is needed to place it."""
    own: dict[str, list[HeldRows]] = {mirror.mirror_id: [] for mirror in mirrors}
    for item in base.held:
        if item.mirror_id in own:
            own[item.mirror_id].append(item)
            continue
        # By now they may be changes of a table of the base.
        yield LackingRows(
            database=item.database,
            table=item.table,
            min_ts=item.min_ts,
            max_ts=base.tso,
            schema_version=item.schema_version,
        )
    applied = [row for row in faults if row["stage"] == "apply" and row["commit_ts"] <= base.tso]
    names = cited_names(paths, applied)
    # The change log may be truncated further: what is left is the name in the fault.
    cited = [row | names.get(place_of(row), {}) for row in applied]
    held = {(item.mirror_id, item.schema_version) for item in base.held}
    for mirror in mirrors:
        then = tuple(_group(item, base.tso) for item in own[mirror.mirror_id])
        yield from lacking_of(replace(mirror, held=(), wrong_version=then), cited, held, base.tso)


def _group(item: HeldRows, max_ts: int) -> HeldGroup:
    return HeldGroup(
        database=item.database,
        table=item.table,
        schema_version=item.schema_version,
        min_ts=item.min_ts,
        max_ts=max_ts,
        rows=item.rows,
    )


def _decoded(paths: LakePaths, base: Cut, records: frozenset[Place]) -> frozenset[Place]:
    """Return the places of the rows of some records that the base has."""
    if not records:
        return frozenset()
    found = read_table(
        paths.change_log,
        ds.field("offset").isin(sorted({record[-1] for record in records}))
        & (ds.field("batch") <= base.batch),
        columns=[*PLACE],
    )
    places = frozenset() if found is None else frozenset(places_in(found))
    return frozenset(place for place in places if place[:-1] in records)
