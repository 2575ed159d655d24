"""Statistics of the change log, by landing day, table and schema.

In: totals of each batch (`totals`). Out: the table `change_groups`, with the number of rows and the
range of commit ts for each landing day, kind, table and cited schema, and the watermark of each
partition. The rows of one landing day are the totals of that day. Its newest commit names the last
batch included, and the corrections: what differed on days that were decoded again.

Why writing it again is safe: each batch is added once, by its number, and the table is overwritten
as a whole. Batches that one commit of the change log has are added together.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from ticdc_assets.changelog.plan import RowGroup, SeededTable
from ticdc_assets.changelog.progress import PartitionProgress
from ticdc_assets.delta.appending import write_table
from ticdc_assets.delta.control import commit_metadata, read_table
from ticdc_assets.delta.lake import Lake
from ticdc_assets.delta.opening import kept
from ticdc_assets.log.change_files import totals_in_files
from ticdc_assets.log.positions import decoded_position
from ticdc_assets.log.seeds import decoded_seed
from ticdc_assets.log.totals import GROUP_KEY, GROUPS_SCHEMA, NO_TOPIC, Totals, joined_groups
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.wire.rows import SNAPSHOT, counted_as, shape_from_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """The rows of new batches of the change log, by kind (`rows.counted_as`) and landing day."""

    kinds: dict[str, int]
    days: dict[date, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """Rows of one kind and table that differed when their records were decoded again.

    Everything made from the rows before batch `batch` is made again: by the run that replaced
    them, or by the next one if that was killed. Older cuts are known by it too.

    Attributes:
        database: database they cite; None for watermarks, which identify replays of rows in tables
            without a key.
        batch: number of the newest batch of the change log that corrected some.
        min_ts: lowest commit ts of all corrected ones.
        first: the first batch whose row checksums must be compared again.
        last: the last of these batches.
        kept_ts: TSO up to which schemas may be gone from the change log; 0 if none are.
    """

    kind: str
    database: str | None
    table: str | None
    batch: int
    min_ts: int
    first: int
    last: int
    kept_ts: int

    def undoes(self, batch: int, tso: int) -> bool:
        """Return whether a cut at `tso` up to `batch` was built from data corrected since."""
        return batch < self.batch and self.min_ts <= tso

    def after(self, older: "Correction", compared: int) -> "Correction":
        """Return this correction joined with an older one of the same rows.

        Row checksums were compared up to the batch `compared`.
        """
        joined = replace(self, min_ts=min(self.min_ts, older.min_ts))
        if older.batch <= compared:
            return joined
        return replace(joined, first=min(self.first, older.first), last=max(self.last, older.last))


@dataclass(frozen=True, kw_only=True)
class ChangeStatistics:
    """The totals of the change log, over all batches.

    Attributes:
        batch: newest batch included.
        landed: newest landed batch included; None if no commit records it.
        seed: newest seed included; None likewise.
        rows: one dict for each group, with the fields of `change_groups` except the landing day:
            groups of several days are joined.
        corrections: from decoding records again, at most one for each kind and table.
    """

    batch: int
    landed: int | None = None
    seed: int | None = None
    rows: tuple[dict[str, Any], ...]
    corrections: tuple[Correction, ...] = ()

    # Each table needs this, and there may be as many tables as groups.

    @cached_property
    def es_only(self) -> bool:
        """Whether there are changes without commit ts, so that no TSO can be a cut."""
        return any(row["es_only"] for row in self.rows)

    @cached_property
    def first_watermark(self) -> int | None:
        """The lowest watermark of any partition; None before the first."""
        return min((row["min_ts"] for row in self._of("watermark")), default=None)

    @cached_property
    def row_groups(self) -> tuple[RowGroup, ...]:
        """The row changes, one group for each cited schema or shape, over all partitions."""
        groups: dict[tuple[object, ...], RowGroup] = {}
        for row in self._of("row"):
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
            )
            groups[group.key] = group.joined(groups.get(group.key))
        return tuple(groups.values())

    def exported_rows(self) -> dict[SeededTable, int]:
        """Return how many rows of exports there are."""
        counts = Counter[SeededTable]()
        for row in self._of(SNAPSHOT):
            counts[row["database"], row["table"], row["partition"]] += row["rows"]
        return counts

    @cached_property
    def exported_columns(self) -> dict[SeededTable, tuple[frozenset[str], ...]]:
        """The columns of exported rows that lack some, by table and seed."""
        by_place: dict[SeededTable, set[frozenset[str]]] = {}
        for row in self._of(SNAPSHOT):
            # Including rows that retention removed: mirrors have them.
            if row["shape"] is not None:
                shape = shape_from_text(row["shape"])
                place = (row["database"], row["table"], row["partition"])
                names = frozenset(column.name for column in shape.columns)
                by_place.setdefault(place, set()).add(names)
        return {place: tuple(shapes) for place, shapes in by_place.items()}

    @cached_property
    def first_ts(self) -> int | None:
        """A TSO at or above which the changefeed certainly began; None before any message.

        A changefeed sends watermarks at or above its start, and rows and DDL above it.
        """
        bounds = (
            row["min_ts"] - (row["kind"] != "watermark")
            for row in self._of("watermark", "row", "ddl")
            # Without the rows that this package wrote for an export.
            if row["min_ts"] is not None and row["topic"] != NO_TOPIC
        )
        return min(bounds, default=None)

    @property
    def checksums(self) -> int:
        """Row changes that carry checksums."""
        return sum(row["checksums"] for row in self.rows)

    @property
    def newest_change(self) -> int | None:
        """The highest commit ts of a row or DDL; None without any."""
        return max((row["max_ts"] for row in self._of("row", "ddl")), default=None)

    @property
    def oldest_change(self) -> int | None:
        """The lowest commit ts of a row or DDL; None without any."""
        return min((row["min_ts"] for row in self._of("row", "ddl")), default=None)

    def progress(self) -> dict[tuple[str, int], PartitionProgress]:
        """Return the watermark of each partition."""
        return {
            (row["topic"], row["partition"]): PartitionProgress(
                watermark_ts=row["max_ts"], steps_back=row["steps_back"]
            )
            for row in self._of("watermark")
        }

    def newest_batch(self, kinds: Iterable[str]) -> int:
        """Return the newest batch that has a row of one of `kinds`; 0 if none has."""
        return max((row["last_batch"] for row in self._of(*kinds)), default=0)

    def _of(self, *kinds: str) -> Iterator[dict[str, Any]]:
        return (row for row in self.rows if row["kind"] in kinds)


def read_statistics(paths: LakePaths) -> ChangeStatistics:
    """Return the newest totals; needs no Spark."""
    return kept(paths.change_groups, "groups", lambda: _read_statistics(paths))


def _read_statistics(paths: LakePaths) -> ChangeStatistics:
    metadata = commit_metadata(paths.change_groups)
    return ChangeStatistics(
        batch=metadata.get("batch", 0),
        landed=metadata.get("landed"),
        seed=metadata.get("seed"),
        rows=tuple(joined_groups(read_groups(paths), GROUP_KEY[1:]).to_pylist()),
        corrections=_corrections(metadata),
    )


def _corrections(metadata: Mapping[str, Any]) -> tuple[Correction, ...]:
    return tuple(Correction(**item) for item in metadata.get("corrections", ()))


def read_groups(paths: LakePaths) -> pa.Table:
    """Return the groups of each landing day from `change_groups`; needs no Spark."""
    groups = read_table(paths.change_groups)
    return GROUPS_SCHEMA.empty_table() if groups is None else groups.cast(GROUPS_SCHEMA)


def add_to_statistics(lake: Lake, batch: int, new: Totals | None = None) -> Added:
    """Add the batches of the change log up to `batch` to `change_groups`; return their counts.

    Their totals are counted if they are not known.
    """
    if new is None:
        first = commit_metadata(lake.paths.change_groups).get("batch", 0) + 1
        new = totals_in_files(lake.spark, lake.paths.change_log, batches=(first, batch))
    kinds, days = Counter[str](), Counter[date]()
    for row in new.groups.select(["kind", "shape", "landed_day", "rows"]).to_pylist():
        kinds[counted_as(row["kind"], row["shape"])] += row["rows"]
        days[row["landed_day"]] += row["rows"]
    there = read_groups(lake.paths)
    # There may be thousands of groups: only those of the batch's days.
    is_of_days = ds.field("landed_day").isin(pa.array(days, pa.date32()))
    added = _with_steps_back(new, before=there)
    of_days = joined_groups(pa.concat_tables([there.filter(is_of_days), added]))
    _write_groups(lake.paths, pa.concat_tables([there.filter(~is_of_days), of_days]), batch)
    return Added(kinds=dict(kinds), days=dict(days))


def _with_steps_back(new: Totals, *, before: pa.Table) -> pa.Table:
    """Return the groups of totals, with how many watermarks step back after groups before."""
    marks = joined_groups(before.filter(ds.field("kind") == "watermark"), GROUP_KEY[1:])
    progress = ChangeStatistics(batch=0, rows=tuple(marks.to_pylist())).progress()
    steps = Counter[tuple[object, ...]]()
    # A batch has one day, but a batch of redriven records may have several.
    order: list[tuple[str, str]] = [
        (name, "ascending") for name in ("landed_day", "offset", "index", "commit_ts")
    ]
    for mark in new.watermarks.sort_by(order).to_pylist():
        place = (mark["topic"], mark["partition"])
        there = progress.get(place, PartitionProgress())
        progress[place] = there.advance(mark["commit_ts"])
        key = tuple(mark[name] for name in GROUP_KEY)
        steps[key] += progress[place].steps_back - there.steps_back
    groups = new.groups
    keys = zip(*(groups[name].to_pylist() for name in GROUP_KEY), strict=True)
    back = pa.array([steps[key] for key in keys], pa.int64())
    return groups.set_column(groups.schema.get_field_index("steps_back"), "steps_back", back)


def replace_day(lake: Lake) -> None:
    """Bring `change_groups` to the newest commit of the change log, which replaced a day.

    The commit's JSON object names the day (`redecode`, ISO 8601) and its `corrections`.
    """
    paths = lake.paths
    metadata = commit_metadata(paths.change_log)
    day = date.fromisoformat(metadata["redecode"])
    compared = commit_metadata(paths.checksums).get("batch", 0)
    corrections = {
        (item.kind, item.database, item.table): item for item in read_statistics(paths).corrections
    }
    for item in _corrections(metadata):
        key = (item.kind, item.database, item.table)
        older = corrections.get(key)
        corrections[key] = item if older is None else item.after(older, compared)
    there = read_groups(paths)
    new = totals_in_files(lake.spark, paths.change_log, day=day)
    groups = _with_steps_back(new, before=there.filter(ds.field("landed_day") < day))
    others = there.filter(ds.field("landed_day") != day)
    _write_groups(
        paths,
        pa.concat_tables([others, groups]),
        metadata["batch"],
        corrections=[asdict(item) for item in corrections.values()],
    )


def add_statistics_below(paths: LakePaths, known: pa.Table, tso: int) -> None:
    """Add to `change_groups` what another change log had at or below `tso` and this one lacks.

    Counts include only rows that this change log still has, so only the time span of a group grows.
    A group without any of its rows gets count 0. Rows of exports count: they define how a table
    begins (`plan.ExportedRows`), and its base has them. `known` has the other's groups.
    """
    groups = {tuple(row[name] for name in GROUP_KEY): row for row in read_groups(paths).to_pylist()}
    for row in known.to_pylist():
        if row["min_ts"] is not None and row["min_ts"] > tso:
            continue
        key = tuple(row[name] for name in GROUP_KEY)
        rows = row["rows"] if row["kind"] == SNAPSHOT else 0
        present = groups.get(key, row | {"rows": rows, "checksums": 0, "last_batch": 0})
        lows, highs = [row["min_ts"]], [None if row["max_ts"] is None else min(row["max_ts"], tso)]
        if key in groups:
            lows.append(present["min_ts"])
            highs.append(present["max_ts"])
        groups[key] = present | {
            "min_ts": min((ts for ts in lows if ts is not None), default=None),
            "max_ts": max((ts for ts in highs if ts is not None), default=None),
            "first_landed_at": min(present["first_landed_at"], row["first_landed_at"]),
        }
    table = pa.Table.from_pylist(list(groups.values()), schema=GROUPS_SCHEMA)
    _write_groups(paths, table, read_statistics(paths).batch)


def _write_groups(paths: LakePaths, groups: pa.Table, batch: int, **more: object) -> None:
    """Write the groups of the change log up to its newest batch."""
    position = {"batch": batch, "landed": decoded_position(paths)[1], "seed": decoded_seed(paths)}
    # Corrections are carried on.
    metadata = commit_metadata(paths.change_groups) | position | more
    write_table(paths.change_groups, groups, overwrite=True, metadata=metadata)
