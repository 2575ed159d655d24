"""Statistics of the change log, by table and schema.

In: totals of each batch (`totals`). Out: `change_groups`, a small table with the number of rows and
the range of commit ts for each kind, table and cited schema, and the watermark of each partition.
With it, the changes of a mirror and their completeness are known without reading a row. Its newest
commit names the last batch included, and the corrections.

Why writing it again is safe: each batch is added once, by its number, and the table is overwritten
as a whole.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import date
from typing import Any

import pyarrow as pa

from ticdc_assets.changelog.plan import RowGroup, SeededTable
from ticdc_assets.changelog.progress import PartitionProgress, advance_all
from ticdc_assets.engine.control import commit_metadata, kept, read_rows, write_table
from ticdc_assets.engine.frames import Frame, delta_frame
from ticdc_assets.engine.paths import LakePaths
from ticdc_assets.engine.session import Session, functions, windows
from ticdc_assets.pipeline.change_files import totals_in_files, totals_of_frame
from ticdc_assets.pipeline.totals import GROUP_KEY, Totals, greatest, least, merged
from ticdc_assets.wire.rows import SNAPSHOT, shape_from_text

GROUPS_SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("database", pa.string()),
        ("table", pa.string()),
        ("table_id", pa.int64()),
        ("schema_version", pa.int64()),
        ("shape", pa.string()),
        ("handle_key_only", pa.bool_()),
        ("es_only", pa.bool_()),
        ("rows", pa.int64()),
        ("min_ts", pa.int64()),
        ("max_ts", pa.int64()),
        ("steps_back", pa.int64()),
        ("checksums", pa.int64()),
        ("large_bytes", pa.int64()),
        ("first_landed_at", pa.timestamp("us", tz="UTC")),
        ("last_landed_at", pa.timestamp("us", tz="UTC")),
        ("last_batch", pa.int64()),
    ]
)
"""`change_groups`: one row a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """The rows of one batch of the change log, in numbers.

    Attributes:
        kinds: rows by kind.
        days: rows by landing day.
    """

    kinds: dict[str, int]
    days: dict[date, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """Row changes of one table were corrected by decoding their records again.

    Attributes:
        database: database they cite; None if watermarks were corrected, which tell replays of rows
            of tables without a key.
        table: table they cite; the same.
        batch: number of the newest batch of the change log that corrected some.
        min_ts: lowest commit ts of any that ever were.
    """

    database: str | None
    table: str | None
    batch: int
    min_ts: int

    def undoes(self, batch: int, tso: int) -> bool:
        """Return whether a cut at `tso`, made of what there was up to `batch`, had them wrong."""
        return batch < self.batch and self.min_ts <= tso


@dataclass(frozen=True, slots=True, kw_only=True)
class Recheck:
    """Batches whose row checksums are to be compared again, since rows of them were corrected.

    Attributes:
        batch: number of the batch of the change log that corrected them.
        first: the first of them.
        last: the last of them.
    """

    batch: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemasAnew:
    """DDL or bootstraps were corrected, so that the schema registry is to be made anew.

    Attributes:
        batch: number of the batch of the change log that corrected them.
        kept_ts: TSO up to which bootstraps may be gone from the change log, 0 if none are.
    """

    batch: int = 0
    kept_ts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeGroups:
    """The change log in numbers, cumulative over all batches.

    Attributes:
        batch: newest batch included.
        rows: one dict a group, fields as in the `change_groups` table.
        repairs: what was corrected by decoding records again, at most one a table.
        rechecks: batches whose checksums are to be compared again.
        schemas_anew: since when the schema registry is to be made anew.
        es_only: whether there are changes without commit ts, so that no TSO can be a cut.
        first_watermark: the lowest watermark of any partition, None before the first.
    """

    batch: int
    rows: tuple[dict[str, Any], ...]
    repairs: tuple[Repair, ...] = ()
    rechecks: tuple[Recheck, ...] = ()
    schemas_anew: SchemasAnew = SchemasAnew()
    es_only: bool = field(init=False)
    first_watermark: int | None = field(init=False)

    def __post_init__(self) -> None:
        # Asked for each table, of which there may be as many as groups.
        object.__setattr__(self, "es_only", any(row["es_only"] for row in self.rows))
        found = (row["min_ts"] for row in self.rows if row["kind"] == "watermark")
        object.__setattr__(self, "first_watermark", min(found, default=None))

    def row_groups(self) -> list[RowGroup]:
        """Return the row changes, one group per schema or shape cited, over all partitions."""
        groups: dict[tuple[object, ...], RowGroup] = {}
        for row in self.rows:
            if row["kind"] != "row":
                continue
            group = RowGroup(
                database=row["database"],
                table=row["table"],
                table_id=row["table_id"],
                schema_version=row["schema_version"],
                min_ts=row["min_ts"],
                max_ts=row["max_ts"],
                rows=row["rows"],
                shape=None if row["shape"] is None else shape_from_text(row["shape"]),
                partial=bool(row["handle_key_only"]),
                # Lakes of older versions do not say.
                large_bytes=row.get("large_bytes") or 0,
            )
            groups[group.key] = group.joined(groups.get(group.key))
        return list(groups.values())

    def exported_rows(self) -> dict[SeededTable, int]:
        """Return how many rows of exports there are."""
        counts = Counter[SeededTable]()
        for row in self.rows:
            if row["kind"] == SNAPSHOT:
                counts[row["database"], row["table"], row["partition"]] += row["rows"]
        return counts

    @property
    def checksums(self) -> int:
        """Row changes that carry checksums."""
        return sum(row["checksums"] for row in self.rows)

    @property
    def newest_change(self) -> int | None:
        """The highest commit ts of a row or DDL, None without any."""
        newest = (row["max_ts"] for row in self.rows if row["kind"] in ("row", "ddl"))
        return max(newest, default=None)

    @property
    def oldest_change(self) -> int | None:
        """The lowest commit ts of a row or DDL, None without any."""
        oldest = (row["min_ts"] for row in self.rows if row["kind"] in ("row", "ddl"))
        return min(oldest, default=None)

    def progress(self) -> dict[tuple[str, int], PartitionProgress]:
        """Return how far each partition's watermark is."""
        return {
            (row["topic"], row["partition"]): PartitionProgress(
                watermark_ts=row["max_ts"], steps_back=row["steps_back"], watermarks=row["rows"]
            )
            for row in self.rows
            if row["kind"] == "watermark"
        }

    def newest_batch(self, kinds: frozenset[str]) -> int:
        """Return the newest batch that has a row of one of `kinds`; 0 if none has."""
        return max((row["last_batch"] for row in self.rows if row["kind"] in kinds), default=0)


def read_groups(paths: LakePaths) -> ChangeGroups:
    """Return the newest totals; needs no Spark."""
    return kept(paths.change_groups, "groups", lambda: _read_groups(paths))


def _read_groups(paths: LakePaths) -> ChangeGroups:
    metadata = commit_metadata(paths.change_groups)
    return ChangeGroups(
        batch=metadata.get("batch", 0),
        rows=tuple(read_rows(paths.change_groups)),
        repairs=tuple(Repair(**item) for item in metadata.get("repairs", ())),
        rechecks=tuple(Recheck(**item) for item in metadata.get("rechecks", ())),
        schemas_anew=SchemasAnew(**metadata.get("schemas_anew", {})),
    )


def add_to_groups(
    spark: Session, paths: LakePaths, batch: int, new: list[Totals] | None = None
) -> Added:
    """Add batch `batch` of the change log to `change_groups`; return what it has.

    Args:
        spark: the session.
        paths: tables of the changefeed.
        batch: number of the batch.
        new: its totals, if they are known.
    """
    if new is None:
        new = totals_in_files(spark, paths.change_log, batch)
    groups = {tuple(row[name] for name in GROUP_KEY): row for row in read_rows(paths.change_groups)}
    kinds, days = Counter[str](), Counter[date]()
    # A batch is of one day, but one of re-driven records may be of several.
    for row in sorted(new, key=lambda row: row["landed_day"]):
        key = tuple(row[name] for name in GROUP_KEY)
        watermarks = row.pop("watermarks")
        present = groups.get(key)
        kinds[row["kind"]] += row["rows"]
        days[row.pop("landed_day")] += row["rows"]
        place = (row["topic"], row["partition"])
        before = PartitionProgress()
        if present is not None:
            before = PartitionProgress(
                watermark_ts=present["max_ts"] or 0,
                steps_back=present["steps_back"],
                watermarks=present["rows"],
            )
        after = advance_all({place: before}, ((place, item["commit_ts"]) for item in watermarks))[
            place
        ]
        row["steps_back"] = after.steps_back
        groups[key] = row if present is None else merged(present, row)
    _write_groups(paths, list(groups.values()), batch)
    return Added(kinds=dict(kinds), days=dict(days))


def regroup(spark: Session, paths: LakePaths) -> None:
    """Write `change_groups` anew after the newest commit of the change log, which corrected rows.

    Where the change log was truncated, what was removed counts on as far as is known: as much as
    the totals had beyond the change log before that commit and what that commit restored.
    """
    metadata = commit_metadata(paths.change_log)
    batch, correction = metadata["batch"], Correction.from_json(metadata["redecode"])
    known = read_groups(paths)
    log = delta_frame(spark, paths.change_log)
    groups = _all_totals(log)
    if correction.truncated_ts:
        before = delta_frame(spark, paths.change_log, correction.before)
        then = _counted(before, log, batch)
        _add_removed(groups, known, _all_totals(then), correction)
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


def _counted(before: Frame, log: Frame, batch: int) -> Frame:
    """Return what was counted of the change log before a correction: what was lost, too.

    What the correction added was counted when it was decoded first, but for what had been in
    quarantine, which is of the correction's own batch.
    """
    F = functions(log.sparkSession)
    place = ["topic", "partition", "offset", "index"]
    lost = log.where(F.col("batch") < batch).join(before.select(*place), place, "left_anti")
    return before.unionByName(lost.select(*before.columns))


def _all_totals(log: Frame) -> dict[tuple[object, ...], dict[str, Any]]:
    """Return the totals of a whole change log, by their keys."""
    F = functions(log.sparkSession)
    Window = windows(log.sparkSession)
    places = Window.partitionBy("topic", "partition").orderBy("offset", "index")
    above = F.max("commit_ts").over(places.rowsBetween(Window.unboundedPreceding, -1))
    steps = (
        log.where(F.col("kind") == "watermark")
        .select("topic", "partition", (F.col("commit_ts") < above).alias("steps"))
        .groupBy("topic", "partition")
        .agg(F.count_if("steps").alias("steps"))
        .collect()
    )
    steps_back = {(row["topic"], row["partition"]): row["steps"] for row in steps}
    groups = _whole_groups(totals_of_frame(log))
    for row in groups.values():
        if row["kind"] == "watermark":
            row["steps_back"] = steps_back.get((row["topic"], row["partition"]), 0)
    return groups


def _whole_groups(totals: Iterable[Totals]) -> dict[tuple[object, ...], Totals]:
    """Return the totals of all days by their keys, without the steps back."""
    groups: dict[tuple[object, ...], Totals] = {}
    for found in totals:
        row = {name: value for name, value in found.items() if name not in _OF_A_DAY}
        key = tuple(row[name] for name in GROUP_KEY)
        row["steps_back"] = 0
        groups[key] = merged(groups[key], row) if key in groups else row
    return groups


_OF_A_DAY = ("landed_day", "watermarks")


def _add_removed(
    groups: dict[tuple[object, ...], dict[str, Any]],
    known: ChangeGroups,
    before: dict[tuple[object, ...], dict[str, Any]],
    correction: Correction,
) -> None:
    """Add to totals what the known ones have of rows that were truncated."""
    truncated = correction.truncated_ts
    for row in known.rows:
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


def group_at_once(totals: Iterable[Totals], paths: LakePaths, batch: int) -> None:
    """Write `change_groups` for a change log that was written at once, up to batch `batch`.

    Steps back of watermarks are not counted: that takes them one by one, in order.
    """
    _write_groups(paths, list(_whole_groups(totals).values()), batch)


def add_groups_below(paths: LakePaths, known: ChangeGroups, tso: int) -> None:
    """Add to `change_groups` what another change log had at or below `tso` and this one lacks.

    What this one still has of a group is all that may be counted of it, so only the span in time
    of a group grows; a group that it has nothing of gets no rows.
    """
    own = read_groups(paths)
    groups = {tuple(row[name] for name in GROUP_KEY): row for row in own.rows}
    for row in known.rows:
        if row["min_ts"] is not None and row["min_ts"] > tso:
            continue
        key = tuple(row[name] for name in GROUP_KEY)
        present = groups.get(key)
        span = {"max_ts": None if row["max_ts"] is None else min(row["max_ts"], tso)}
        span["min_ts"] = row["min_ts"]
        if present is None:
            groups[key] = (
                row | span | {"rows": 0, "checksums": 0, "large_bytes": 0, "last_batch": 0}
            )
            continue
        groups[key] = present | {
            "min_ts": least(present["min_ts"], span["min_ts"]),
            "max_ts": greatest(present["max_ts"], span["max_ts"]),
            "first_landed_at": min(present["first_landed_at"], row["first_landed_at"]),
        }
    _write_groups(paths, list(groups.values()), own.batch)


def _write_groups(paths: LakePaths, groups: list[dict[str, Any]], batch: int) -> None:
    write_table(
        paths.change_groups,
        pa.Table.from_pylist(groups, schema=GROUPS_SCHEMA),
        overwrite=True,
        # What was corrected is said on.
        metadata=commit_metadata(paths.change_groups) | {"batch": batch},
    )
