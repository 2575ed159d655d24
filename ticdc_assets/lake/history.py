"""Histories: every version of every row of a table, from when to when it was there.

In: the plan of a table at a cut, the change log, and the history as the last cut has it. Out: a
Delta version of the history at the cut's TSO, which the cut names beside the mirror's version
(`MirrorCut.history_version`), so both are published together.

A version is valid for the cuts in [valid_from, valid_to); `changelog.history_fold` is the meaning
and the reference. How a history is made, cheapest first:

- carried: nothing of it changed.
- merge: the changes since the last cut give for each key that changed its new versions, and the end
  of the one that was current; one MERGE appends these and closes that. No other row is touched.
- overwrite: the versions of the last cut are carried through what happened since (schema steps,
  TRUNCATE, partition DDL), the changes are folded behind them, and the table is overwritten. So it
  is for DDL that touches rows, for a small history and for a table without a key.
- fold: the same from all changes that the change log holds, for a history that is new or whose past
  changed (`MirrorPlan.past_digest`, late rows).

Why running it again is safe: each of them is one Delta commit, made from the version that the last
published cut names; what a killed run left ahead of that is not read, and taken back before a
MERGE.

Not here: histories of tables that are gone. The last cut that had such a table names its history.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import and_
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
from delta.tables import DeltaTable
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from ticdc_assets.changelog.history_changes import VersionEvent
from ticdc_assets.changelog.plan import HandoverPart, MirrorPlan
from ticdc_assets.config import Changefeed
from ticdc_assets.lake import folding
from ticdc_assets.lake.change_folding import ChangeFolding
from ticdc_assets.lake.commits import reached, same_rows_at
from ticdc_assets.lake.cuts import LAYOUT, MirrorCut
from ticdc_assets.lake.effects import SEQUENCE_FIELDS
from ticdc_assets.lake.history_effects import Passage, history_effects
from ticdc_assets.lake.history_layout import HistoryLayout, history_effect_schema, version_schema
from ticdc_assets.lake.history_versions import fold_versions
from ticdc_assets.lake.horizons import read_horizon
from ticdc_assets.lake.in_place import alter, rescued_renamed
from ticdc_assets.lake.mirror_rows import EXACT_KINDS, PARTIAL, ArrowMap, MirrorLayout, quoted
from ticdc_assets.lake.overwriting import PLAIN_ROWS, give_features, overwrite, take_back
from ticdc_assets.lake.paths import LakePaths
from ticdc_assets.lake.session import functions
from ticdc_assets.lake.spark_commits import SparkCommit
from ticdc_assets.lake.versions import (
    former_rescued,
    history_here,
    history_in_spark,
    mirror_in_spark,
)
from ticdc_assets.mysql_types import kind_of
from ticdc_assets.schemas import TableSchema

SMALL_HISTORY_ROWS = PLAIN_ROWS
"""Versions up to which a history is overwritten whole: that costs less than a MERGE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeHistory:
    """A history as an apply left it.

    Attributes:
        version: its Delta version.
        rows: its versions of rows.
        unread: row changes that fit no schema and are not in it, over all cuts.
        digest: what decided how rows become it (`MirrorPlan.past_digest`).
    """

    version: int
    rows: int
    unread: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryBase:
    """A history to go on from.

    Attributes:
        cut: the mirror in the cut that names it; if it names none, the mirror's own rows are the
            versions to go on from.
        tso: TSO of that cut.
        layout: layout of the columns of ours in that cut.
    """

    cut: MirrorCut
    tso: int
    layout: int = LAYOUT

    @property
    def version(self) -> int:
        """Its Delta version."""
        assert self.cut.history_version is not None
        return self.cut.history_version

    @property
    def rows(self) -> int:
        """How many versions it has."""
        rows = self.cut.history_rows
        return self.cut.rows if rows is None else rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """Versions under one schema: here if they are few, else in Spark."""

    schema: TableSchema
    here: pa.Table | None = None
    frame: DataFrame | None = None

    def in_spark(self, spark: SparkSession) -> DataFrame:
        """Return them in Spark, as `version_schema` has them."""
        return folding.frame_of(spark, self.here) if self.frame is None else self.frame


class HistoryFolding:
    """Folds the changes of tables into versions; writes nothing.

    Args:
        spark: the session.
        paths: tables of the changefeed.
        changefeed: its configuration.
        changes: where changes are read.
        only_key: fold the row of this key only, if set (as `RowResolver` gives it).
    """

    def __init__(
        self,
        spark: SparkSession,
        paths: LakePaths,
        changefeed: Changefeed,
        changes: ChangeFolding,
        *,
        only_key: str | None = None,
    ) -> None:
        self._spark = spark
        self._paths = paths
        self._timezone = changefeed.timezone
        self._changes = changes
        self._only_key = None if only_key is None else "=" + only_key

    @contextmanager
    def folded(
        self, plan: MirrorPlan, *, until: int, base: HistoryBase | None = None
    ) -> Iterator[Versions]:
        """Yield the versions up to a cut.

        Args:
            plan: the table's plan at the cut.
            until: TSO of the cut.
            base: the history to go on from, None to fold all changes there are.
        """
        with ExitStack() as stack:
            yield self._folded(plan, until, base, stack)

    def _folded(
        self, plan: MirrorPlan, until: int, base: HistoryBase | None, stack: ExitStack
    ) -> Versions:
        """Fold what came before each plan before it; a table may have begun anew many times."""
        folded: dict[int, Versions] = {}
        for item in _past_first(plan, base):
            # A key may have changed since: what is asked for is known under the last one only.
            only_key = self._only_key if item is plan else None
            ends_at = until if item is plan else item.bindings[-1].until_ts
            assert ends_at is not None
            sources: list[tuple[Versions, Passage]] = []
            above = 0
            if base is not None and _goes_on_from(item, base):
                above = base.tso
                passage = Passage(
                    schema=base.cut.table_schema,
                    plan=item,
                    timezone=self._timezone,
                    since_ts=base.tso,
                )
                sources.append((self._of_cut(base), passage))
            else:
                sources += [
                    (folded[id(source)], passage) for source, passage in self._passages(item)
                ]
            folded[id(item)] = self._over(item, sources, above, ends_at, only_key, stack)
        return folded[id(plan)]

    def _passages(self, plan: MirrorPlan) -> Iterator[tuple[MirrorPlan, Passage]]:
        """Yield the plans that versions come from when the plan begins, and how."""
        parts = plan.handover.parts if plan.handover is not None else ()
        own: HandoverPart | None = next(
            (part for part in parts if part.plan.mirror_id == plan.mirror_id), None
        )
        if plan.earlier is not None:
            ends = VersionEvent.TRUNCATE if plan.handover is None else VersionEvent.EXCHANGE
            yield (
                plan.earlier,
                Passage(
                    schema=plan.earlier.schema,
                    plan=plan,
                    timezone=self._timezone,
                    part=own,
                    ends=ends,
                ),
            )
        begins = VersionEvent.RECOVER if plan.earlier is None else VersionEvent.EXCHANGE
        for part in parts:
            if part is not own:
                passage = Passage(
                    schema=part.plan.schema,
                    plan=plan,
                    timezone=self._timezone,
                    part=part,
                    begins=begins,
                )
                yield part.plan, passage

    def _of_cut(self, base: HistoryBase) -> Versions:
        layout = HistoryLayout(schema=base.cut.table_schema)
        target = version_schema(layout.schema)
        if base.cut.history_version is not None:
            here = history_here(self._paths, base.cut)
            if here is not None:
                is_head = pa.array([False] * here.num_rows)
                partial_ts = pa.nulls(here.num_rows, pa.string())
                columns = [*(here[name] for name in layout.names), is_head, partial_ts]
                return Versions(schema=layout.schema, here=pa.table(columns, schema=target))
        if base.cut.history_version is None:
            frame = self._mirror_rows(base.cut)
        else:
            frame = history_in_spark(self._spark, self._paths, base.cut)
            frame = frame.select(*(quoted(name) for name in layout.names)).toDF(*layout.places)
        F = functions(self._spark)
        frame = frame.withColumns(
            {"is_head": F.lit(False), "partial_ts": F.lit(None).cast("string")}
        )
        if base.rows <= folding.LOCAL_ROWS:
            return Versions(schema=layout.schema, here=frame.toArrow().cast(target))
        return Versions(schema=layout.schema, frame=frame)

    def _mirror_rows(self, cut: MirrorCut) -> DataFrame:
        """Return the rows of a mirror as versions; how each came is not known any more."""
        F = functions(self._spark)
        layout = MirrorLayout(schema=cut.table_schema)
        columns = [quoted(column.name) for column in cut.table_schema.columns]
        return (
            mirror_in_spark(self._spark, self._paths, cut)
            .select(
                *columns,
                quoted(layout.commit_ts),
                F.lit(None).cast("long"),
                F.lit(str(VersionEvent.KEPT)),
                F.lit(None).cast("string"),
                quoted(layout.rescued),
            )
            .toDF(*HistoryLayout(schema=cut.table_schema).places)
        )

    def _over(
        self,
        plan: MirrorPlan,
        sources: list[tuple[Versions, Passage]],
        above: int,
        until: int,
        only_key: str | None,
        stack: ExitStack,
    ) -> Versions:
        """Fold the plan's changes in (above, until] behind the versions of `sources`."""
        convert = history_effects(plan, self._timezone, only_key)
        fold = fold_versions(plan.schema, heads=False)
        here = [item.here for item, _ in sources if item.here is not None]
        if plan.schema.handle_key and len(here) == len(sources):
            changes = self._changes.change_rows(plan, above, until)
            if changes is not None:
                batches = list(convert(changes.to_batches()))
                for table, (_, passage) in zip(here, sources, strict=True):
                    batches += passage.effects(only_key)(table.to_batches())
                return Versions(schema=plan.schema, here=fold_here(batches, plan.schema, fold))
        effects = _mapped(
            self._changes.change_frame(plan, above, until),
            convert,
            history_effect_schema(plan.schema),
        )
        ended: list[DataFrame] = []
        for item, passage in sources:
            frame = item.in_spark(self._spark)
            if passage.keeps_ended and only_key is None:
                ended.append(frame.where("valid_to is not null"))
                frame = frame.where("valid_to is null")
            effects = effects.unionByName(
                _mapped(frame, passage.effects(only_key), history_effect_schema(plan.schema))
            )
        versions = fold_in_spark(effects, plan.schema, fold)
        for frame in ended:
            versions = versions.unionByName(frame)
        versions = versions.persist(StorageLevel.MEMORY_AND_DISK)
        stack.callback(versions.unpersist)
        return Versions(schema=plan.schema, frame=versions)


def _past_first(plan: MirrorPlan, base: HistoryBase | None) -> list[MirrorPlan]:
    """Return the plans that a history comes from, each behind those that came before it."""
    ordered: dict[int, MirrorPlan] = {}
    stack = [(plan, False)]
    while stack:
        item, is_ready = stack.pop()
        if id(item) in ordered:
            continue
        if is_ready:
            ordered[id(item)] = item
            continue
        stack.append((item, True))
        if base is None or not _goes_on_from(item, base):
            before = [] if item.earlier is None else [item.earlier]
            before += [part.plan for part in item.handover.parts] if item.handover else []
            stack += ((older, False) for older in before)
    return list(ordered.values())


def _goes_on_from(plan: MirrorPlan, base: HistoryBase) -> bool:
    """Whether a plan, and not one before it, is the one that a history was made by."""
    return (plan.mirror_id, plan.floor_ts) == (base.cut.mirror_id, base.cut.floor_ts)


def _mapped(rows: DataFrame, function: ArrowMap, target: pa.Schema) -> DataFrame:
    return rows.mapInArrow(function, from_arrow_schema(target, prefer_timestamp_ntz=True))


_ORDER = ("key", *SEQUENCE_FIELDS)


def fold_here(batches: Iterable[pa.RecordBatch], schema: TableSchema, fold: ArrowMap) -> pa.Table:
    """Fold effects in this process."""
    effects = pa.Table.from_batches(list(batches), history_effect_schema(schema))
    effects = effects.sort_by([(name, "ascending") for name in _ORDER]).combine_chunks()
    target = version_schema(schema)
    versions = list(fold(effects.to_batches()))
    # Spark takes no table without a chunk.
    return pa.Table.from_batches(versions or [pa.RecordBatch.from_pylist([], target)], target)


def fold_in_spark(effects: DataFrame, schema: TableSchema, fold: ArrowMap) -> DataFrame:
    """Fold effects by Spark."""
    ordered = effects.repartition("key").sortWithinPartitions(*_ORDER)
    return _mapped(ordered, fold, version_schema(schema))


# Writing ----------------------------------------------------------------------------------------


class HistoryWriter:
    """Brings the histories of a changefeed to a cut.

    Args:
        spark: the session.
        paths: tables of the changefeed.
        changefeed: its configuration.
        changes: where changes are read.
        tso: TSO of the cut.
    """

    def __init__(
        self,
        spark: SparkSession,
        paths: LakePaths,
        changefeed: Changefeed,
        changes: ChangeFolding,
        *,
        tso: int,
    ) -> None:
        self._spark = spark
        self._paths = paths
        self._changefeed = changefeed
        self._changes = changes
        self._folding = HistoryFolding(spark, paths, changefeed, changes)
        self._tso = tso

    def make(
        self,
        plan: MirrorPlan,
        base: HistoryBase | None,
        *,
        changed: bool,
        published: int | None = None,
    ) -> MadeHistory:
        """Bring the history of one table to the cut.

        Args:
            plan: its plan at the cut.
            base: the history as the last cut has it, None if there is none to go on from.
            changed: whether there may be row changes since.
            published: the newest version that a cut names, None if none does.
        """
        if base is None:
            return self._overwrite(plan, self._kept_base(plan), published)
        touched = self._is_touched(plan, base)
        if not changed and not touched:
            # A compaction by hand leaves the rows; a vacuum will remove the files they had before.
            path = self._paths.history(plan.mirror_id)
            same = same_rows_at(path, base.version)
            if same is not None and self._former_rescued(base) is not None:
                same = None if self._is_small(plan, base) else self._renamed(base, path, same)
            if same is None:
                return self._overwrite(plan, base, published)
            return MadeHistory(
                version=same,
                rows=base.rows,
                unread=base.cut.history_unread or 0,
                digest=plan.past_digest,
            )
        if touched or self._is_small(plan, base):
            return self._overwrite(plan, base, published)
        return self._merge(plan, base)

    def _is_small(self, plan: MirrorPlan, base: HistoryBase) -> bool:
        """Whether a history is overwritten whole when row changes come."""
        return not plan.schema.handle_key or base.rows <= SMALL_HISTORY_ROWS

    def _former_rescued(self, base: HistoryBase) -> str | None:
        """Return the former name of the column of rescued data, None if it has today's."""
        if base.layout == LAYOUT:
            return None
        path = self._paths.history(base.cut.mirror_id)
        return former_rescued(path, base.version, base.cut.table_schema)

    def _renamed(self, base: HistoryBase, path: Path, begin: int) -> int | None:
        """Give the column of rescued data its name of today, if it has another.

        Returns:
            The version that has it, with the rows of `begin`; None if others changed rows.
        """
        former = self._former_rescued(base)
        if former is None:
            return begin
        give_features(self._spark, path)
        alter(self._spark, path, [rescued_renamed(former, base.cut.table_schema)])
        return reached(path, begin, None)

    def _kept_base(self, plan: MirrorPlan) -> HistoryBase | None:
        """Return what the change log is to be folded behind, where it was cut off."""
        horizon = read_horizon(self._paths)
        cut = horizon.mirror(plan.mirror_id)
        return None if cut is None else HistoryBase(cut=cut, tso=horizon.tso)

    def _is_touched(self, plan: MirrorPlan, base: HistoryBase) -> bool:
        """Whether something other than row changes happened to the versions there are."""
        before = base.cut.table_schema
        passage = Passage(
            schema=before, plan=plan, timezone=self._changefeed.timezone, since_ts=base.tso
        )
        return (
            not _goes_on_from(plan, base)
            or HistoryLayout(schema=before).names != HistoryLayout(schema=plan.schema).names
            or not passage.keeps_ended
        )

    def _overwrite(
        self, plan: MirrorPlan, base: HistoryBase | None, published: int | None
    ) -> MadeHistory:
        layout = HistoryLayout(schema=plan.schema)
        with self._folding.folded(plan, until=self._tso, base=base) as versions:
            if versions.here is not None:
                made = versions.here.filter(ds.field("valid_from").is_valid())
                counts = {"rows": made.num_rows, "all": versions.here.num_rows}
                rows = made.select(layout.places).rename_columns(layout.names)
            else:
                F = functions(self._spark)
                frame = versions.in_spark(self._spark)
                counts = frame.agg(
                    F.count("valid_from").alias("rows"), F.count("*").alias("all")
                ).collect()[0]
                frame = frame.where("valid_from is not null")
                rows = frame.select(*layout.places).toDF(*layout.names)
            version = overwrite(
                self._spark,
                rows,
                self._paths.history(plan.mirror_id),
                self._changefeed.retention,
                metadata=self._metadata(plan),
                published=published,
            )
        unread = counts["all"] - counts["rows"]
        return MadeHistory(
            version=version,
            rows=counts["rows"],
            unread=unread + ((base.cut.history_unread or 0) if base else 0),
            digest=plan.past_digest,
        )

    def _merge(self, plan: MirrorPlan, base: HistoryBase) -> MadeHistory:
        """Append the versions that began since the last cut, and end those that they follow."""
        F = functions(self._spark)
        path = self._paths.history(plan.mirror_id)
        begin = same_rows_at(path, base.version)
        if begin is None:
            # What a killed run committed and did not publish, or a foreign writer changed.
            begin = take_back(self._spark, path, base.version)
        give_features(self._spark, path)
        if self._renamed(base, path, begin) is None:
            return self._overwrite(plan, base, base.version)
        own = SparkCommit(self._spark, path, self._metadata(plan))
        table = DeltaTable.forPath(own.session(), str(path))
        layout = HistoryLayout(schema=plan.schema)
        with self._heads(plan, base.tso) as source:
            names = dict(zip(layout.names, layout.places, strict=True))
            values: dict[str, str | Column] = {
                quoted(name): F.col(f"s.{place}") for name, place in names.items()
            }
            extra = quoted(layout.rescued)
            others = F.map_filter(
                F.coalesce(F.col(f"t.{extra}"), F.create_map().cast("map<string,string>")),
                lambda name, _: name != PARTIAL,
            )
            marked = F.map_concat(others, F.create_map(F.lit(PARTIAL), F.col("s.partial_ts")))
            ends: dict[str, str | Column] = {
                quoted(layout.valid_to): F.col("s.valid_to"),
                quoted(layout.ended_by): F.col("s.ended_by"),
                extra: F.when(F.col("s.partial_ts").isNotNull(), marked).otherwise(
                    F.col(f"t.{extra}")
                ),
            }
            (
                table.alias("t")
                .merge(source.alias("s"), _is_current_row(self._spark, plan.schema, layout))
                .whenMatchedUpdate(set=ends)
                .whenNotMatchedInsert(condition="s.valid_from is not null", values=values)
                .execute()
            )
            unread = source.where("valid_from is null and not is_head").count()
        made = own.find()
        version = reached(path, begin, made)
        if version is None:
            # Others changed rows in between: what they were at the last cut is what counts.
            return self._overwrite(plan, base, base.version)
        inserted = 0 if made is None else made.metrics.get("numTargetRowsInserted", 0)
        return MadeHistory(
            version=version,
            rows=base.rows + inserted,
            unread=(base.cut.history_unread or 0) + unread,
            digest=plan.past_digest,
        )

    @contextmanager
    def _heads(self, plan: MirrorPlan, above: int) -> Iterator[DataFrame]:
        """Yield the versions since a cut, and what becomes of those that were current at it."""
        convert = history_effects(plan, self._changefeed.timezone)
        fold = fold_versions(plan.schema, heads=True)
        changes = self._changes.change_rows(plan, above, self._tso)
        if changes is not None:
            table = fold_here(convert(changes.to_batches()), plan.schema, fold)
            yield Versions(schema=plan.schema, here=table).in_spark(self._spark)
            return
        frame = self._changes.change_frame(plan, above, self._tso)
        effects = _mapped(frame, convert, history_effect_schema(plan.schema))
        # MERGE reads its source twice.
        source = fold_in_spark(effects, plan.schema, fold).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            yield source
        finally:
            source.unpersist()

    def _metadata(self, plan: MirrorPlan) -> dict[str, object]:
        return {"tso": self._tso, "database": plan.database, "table": plan.table}


def _is_current_row(spark: SparkSession, schema: TableSchema, layout: HistoryLayout) -> Column:
    """Return the condition that `t` is the current version of the row whose head `s` is.

    A key value that its typed column cannot hold is NULL there and told by the rescued data.
    """
    F = functions(spark)
    conditions: list[Column] = [
        F.col("s.is_head"),
        F.col(f"t.{quoted(layout.valid_to)}").isNull(),
    ]
    for number, column in enumerate(schema.columns):
        if column.name not in schema.handle_key:
            continue
        conditions.append(F.col(f"t.{quoted(column.name)}").eqNullSafe(F.col(f"s.c{number}")))
        if kind_of(column) not in EXACT_KINDS:
            exact = F.col(f"t.{quoted(layout.rescued)}")[column.name]
            conditions.append(exact.eqNullSafe(F.col("s.extra")[column.name]))
    return reduce(and_, conditions)
