"""Totals of a change log in which rows were corrected.

In: the change log, whose newest commit corrected rows (`Correction`), and the totals before. Out:
`change_groups` anew, and what else that commit says: tables that are to be folded again, batches
whose checksums are to be compared again, and whether the schema registry is to be made anew.

The rows are counted by steps over row groups of files (`executing`). Steps back of watermarks are
counted one by one, in order, so the watermarks of a partition belong to one bucket.

Why writing it again is safe: the table is overwritten as a whole, and names the commit.
"""

# pyarrow has no type information, so what comes from it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ticdc_assets.changelog.progress import advance_all
from ticdc_assets.engine.control import commit_metadata, write_table
from ticdc_assets.engine.executing import executor
from ticdc_assets.engine.paths import LakePaths
from ticdc_assets.engine.session import Session
from ticdc_assets.pipeline.change_files import (
    COUNTED,
    Everything,
    by_partition,
    by_record,
    parts_of,
    rows_in,
    totals_in_files,
    with_day,
)
from ticdc_assets.pipeline.change_statistics import (
    GROUPS_SCHEMA,
    Recheck,
    Repair,
    SchemasAnew,
    read_groups,
    read_statistics,
    whole_groups,
)
from ticdc_assets.pipeline.totals import (
    GROUP_KEY,
    Totals,
    greatest,
    least,
    totals_of,
)
from ticdc_assets.rows.rows_of_work import buckets_for
from ticdc_assets.storage.paths import AnyPath
from ticdc_assets.wire.rows import PLACE, WATERMARK

_Piece: TypeAlias = tuple[AnyPath, int]

_MARKS = ["kind", *PLACE, "commit_ts"]
_NARROW = [*dict.fromkeys([*PLACE, *COUNTED])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """What a commit that corrects rows of the change log says of itself.

    Attributes:
        tables: (database, table, lowest commit ts) of corrected row changes; see `Repair`.
        batches: first and last batch that had or have them, None if there are none.
        schemas: whether DDL or bootstraps are among the corrected rows.
        truncated_ts: TSO up to which the change log was truncated, 0 if it was not.
        before: Delta version of the change log before it.
    """

    tables: tuple[tuple[str | None, str | None, int], ...]
    batches: tuple[int, int] | None
    schemas: bool
    truncated_ts: int
    before: int

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Correction":
        """Read what a commit carries."""
        batches = values["batches"]
        return cls(
            **values
            | {
                "tables": tuple((item[0], item[1], item[2]) for item in values["tables"]),
                "batches": None if batches is None else (batches[0], batches[1]),
            }
        )


def regroup(spark: Session, paths: LakePaths) -> None:
    """Write `change_groups` anew after the newest commit of the change log, which corrected rows.

    Where the change log was truncated, what was removed counts on as far as is known: as much as
    the totals had beyond the change log before that commit and what that commit restored.
    """
    metadata = commit_metadata(paths.change_log)
    batch, correction = metadata["batch"], Correction.from_json(metadata["redecode"])
    known = read_statistics(paths)
    groups = _all_totals(spark, paths.change_log)
    if correction.truncated_ts:
        lost = _lost(spark, paths.change_log, correction.before, batch)
        then = _all_totals(spark, paths.change_log, version=correction.before, more=lost)
        _add_removed(groups, read_groups(paths), then, correction)
    repairs = {(item.database, item.table): item for item in known.repairs}
    for database, table, min_ts in correction.tables:
        older = repairs.get((database, table))
        repairs[database, table] = Repair(
            database=database,
            table=table,
            batch=batch,
            min_ts=min_ts if older is None else min(min_ts, older.min_ts),
        )
    compared = commit_metadata(paths.checksums).get("batch", 0)
    rechecks = [item for item in known.rechecks if item.batch > compared]
    if correction.batches is not None:
        first, last = correction.batches
        rechecks.append(Recheck(batch=batch, first=first, last=last))
    anew = known.schemas_anew
    if correction.schemas:
        anew = SchemasAnew(batch=batch, kept_ts=correction.truncated_ts)
    write_table(
        paths.change_groups,
        pa.Table.from_pylist(list(groups.values()), schema=GROUPS_SCHEMA),
        overwrite=True,
        metadata={
            "batch": batch,
            "repairs": [asdict(item) for item in repairs.values()],
            "rechecks": [asdict(item) for item in rechecks],
            "schemas_anew": asdict(anew),
        },
    )


def _all_totals(
    spark: Session, log: AnyPath, *, version: int | None = None, more: pa.Table | None = None
) -> dict[tuple[object, ...], Totals]:
    """Return the totals of a whole change log, by their keys.

    Args:
        spark: the session.
        log: the change log.
        version: version of it, the newest if None.
        more: rows that count too (`_lost`).
    """
    totals = totals_in_files(spark, log, Everything(), version=version, watermarks=False)
    if more is not None:
        totals = [*totals, *totals_of(with_day(more))]
    groups = whole_groups(totals)
    steps_back = _steps_back(spark, log, version, more)
    # They count for all days together, so one day has them.
    for row in sorted(groups.values(), key=lambda row: row["landed_day"]):
        if row["kind"] == WATERMARK:
            row["steps_back"] = steps_back.pop((row["topic"], row["partition"]), 0)
    return groups


def _steps_back(
    spark: Session, log: AnyPath, version: int | None, more: pa.Table | None
) -> dict[tuple[str, int], int]:
    """Return how many watermarks of each partition are below an earlier one."""

    def marks(some: Iterable[_Piece | pa.Table]) -> Iterator[tuple[int, pa.RecordBatch]]:
        for piece in some:
            found = (
                piece.select(_MARKS).to_batches()
                if isinstance(piece, pa.Table)
                else rows_in(piece, Everything(), _MARKS)
            )
            for rows in found:
                own = rows.filter(pc.equal(rows.column("kind"), WATERMARK))
                yield from by_partition(own.select([*PLACE, "commit_ts"]), buckets)

    def counted(
        _bucket: int, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[tuple[tuple[str, int], int]]:
        order = [(name, "ascending") for name in PLACE]
        rows = pa.Table.from_batches(list(batches)).sort_by(order)
        topics, partitions, stamps = (
            rows[name].to_pylist() for name in ("topic", "partition", "commit_ts")
        )
        places = zip(topics, partitions, strict=True)
        for place, progress in advance_all({}, zip(places, stamps, strict=True)).items():
            yield place, progress.steps_back

    parts = parts_of(log, Everything(), version=version)
    runs_on = executor(spark, log, "grouping changes", rows=parts.rows, size=0)
    buckets = buckets_for(parts.rows, 0, runs_on.workers)
    pieces = [*parts.pieces, *([] if more is None else [more])]
    tasks = runs_on.workers
    return dict(runs_on.reduce(marks, pieces, counted, tasks=tasks, buckets=buckets))


def _lost(spark: Session, log: AnyPath, before: int, batch: int) -> pa.Table:
    """Return the rows that a correction brought back, without their images.

    They were counted when they were decoded first. What had been in quarantine is of the
    correction's own batch, and was not.

    Args:
        spark: the session.
        log: the change log.
        before: version of it before the correction.
        batch: number of the correction's batch.
    """

    def narrow(some: Iterable[tuple[bool, _Piece]]) -> Iterator[tuple[int, pa.RecordBatch]]:
        for is_after, piece in some:
            for rows in rows_in(piece, Everything(), _NARROW):
                own = rows.filter(pc.less(rows.column("batch"), batch)) if is_after else rows
                told = own.append_column("after", pa.repeat(is_after, own.num_rows))
                yield from by_record(told, buckets)

    def lost(_bucket: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        rows = pa.Table.from_batches(list(batches))
        there = rows.filter(~ds.field("after")).select(list(PLACE))
        found = rows.filter(ds.field("after")).drop_columns(["after"])
        yield found.join(there, list(PLACE), join_type="left anti", use_threads=False)

    after = parts_of(log, Everything())
    then = parts_of(log, Everything(), version=before)
    count = after.rows + then.rows
    runs_on = executor(spark, log, "comparing groups", rows=count, size=0)
    buckets = buckets_for(count, 0, runs_on.workers)
    pieces = [(True, piece) for piece in after.pieces]
    pieces += ((False, piece) for piece in then.pieces)
    tables = runs_on.reduce(narrow, pieces, lost, tasks=runs_on.workers, buckets=buckets)
    return pa.concat_tables(tables)


def _add_removed(
    groups: dict[tuple[object, ...], dict[str, Any]],
    known: pa.Table,
    before: dict[tuple[object, ...], dict[str, Any]],
    correction: Correction,
) -> None:
    """Add to totals what the known ones have of rows that were truncated."""
    truncated = correction.truncated_ts
    for row in known.to_pylist():
        key = tuple(row[name] for name in GROUP_KEY)
        there, present = before.get(key, {}), groups.get(key)
        removed = {
            name: max(0, row[name] - there.get(name, 0))
            for name in ("rows", "checksums", "steps_back")
        }
        is_below = row["min_ts"] is None or row["min_ts"] <= truncated
        if not removed["rows"] or not is_below:
            continue
        newest = None if row["max_ts"] is None else min(row["max_ts"], truncated)
        if present is None:
            groups[key] = row | removed | {"max_ts": newest}
            continue
        groups[key] = present | {
            **{name: present[name] + count for name, count in removed.items()},
            "min_ts": least(present["min_ts"], row["min_ts"]),
            "max_ts": greatest(present["max_ts"], newest),
            "first_landed_at": min(present["first_landed_at"], row["first_landed_at"]),
            "last_batch": present["last_batch"],
        }
