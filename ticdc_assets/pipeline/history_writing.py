"""Writing histories: the versions of a table's rows become a Delta version that a cut names.

In: the plan of a table at a cut, the change log (`history.HistoryFolding`), and the history at the
last cut. Out: a Delta version of the history at the cut's TSO, which the cut names together with
the mirror's version (`MirrorCut.history_version`), so both are published together.

How a history is made, cheapest first:

- carried: nothing changed.
- merge: the changes since the last cut give, for each changed key, its new versions and the end of
  the current one; one MERGE appends the new versions and closes the current one. No other row is
  touched.
- overwrite: the versions of the last cut go through the DDL since (schema steps, TRUNCATE,
  partition DDL), the changes are folded after them, and the table is overwritten. This is used for
  DDL that touches rows, for a small history and for a table without a key.
- fold: the same from all changes in the change log, for a history that is new or whose past changed
  (`MirrorPlan.past_digest`, late rows).

Why running it again is safe: each way is one Delta commit, made from the version that the last
published cut names. Versions of a killed run are not read, and are undone before a MERGE.

Not here: histories of dropped tables. The last cut that had such a table names its history.
"""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.dataset as ds
from delta.tables import DeltaTable
from pyspark.sql import Column, SparkSession

from ticdc_assets.changelog.plan import MirrorPlan
from ticdc_assets.config import Changefeed
from ticdc_assets.engine.commits import reached, same_rows_at
from ticdc_assets.engine.frames import quoted
from ticdc_assets.engine.paths import LakePaths
from ticdc_assets.engine.session import functions
from ticdc_assets.engine.spark_commits import SparkCommit, alter, take_back
from ticdc_assets.pipeline.change_folding import ChangeFolding
from ticdc_assets.pipeline.cuts import LAYOUT
from ticdc_assets.pipeline.history import (
    HistoryBase,
    HistoryFold,
    HistoryFolding,
    Versions,
    goes_on_from,
    run_history,
)
from ticdc_assets.pipeline.in_place import rescued_renamed
from ticdc_assets.pipeline.merging import marked, same_row
from ticdc_assets.pipeline.overwriting import (
    PORTABLE_ROWS,
    fits_merge,
    give_features,
    overwrite,
    overwrite_by_files,
    stays_portable,
    written,
)
from ticdc_assets.pipeline.truncation_points import read_truncation_point
from ticdc_assets.pipeline.versions import (
    former_rescued,
)
from ticdc_assets.rows.history_layout import HistoryLayout
from ticdc_assets.rows.history_operations import Passage, history_operations
from ticdc_assets.rows.mirror_rows import PARTIAL
from ticdc_assets.storage.paths import AnyPath

SMALL_HISTORY_ROWS = PORTABLE_ROWS
"""Versions up to which a history is overwritten whole: that costs less than a MERGE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeHistory:
    """A history as an apply left it.

    Attributes:
        version: its Delta version.
        rows: its versions of rows.
        unread: row changes that fit no schema and are not in it, over all cuts.
        digest: what decided how rows become it (`MirrorPlan.past_digest`).
        since: TSO from which on it has all versions; 0 if from the first change on.
    """

    version: int
    rows: int
    unread: int
    digest: str
    since: int


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
                by_rows = self._is_small(plan, base) or not self._takes_merge(plan, base)
                same = None if by_rows else self._renamed(base, path, same)
            if same is None:
                return self._overwrite(plan, base, published)
            return MadeHistory(
                version=same,
                rows=base.rows,
                unread=base.cut.history_unread or 0,
                digest=plan.past_digest,
                since=self._since(base),
            )
        if touched or self._is_small(plan, base) or not self._takes_merge(plan, base):
            return self._overwrite(plan, base, published)
        return self._merge(plan, base)

    def _is_small(self, plan: MirrorPlan, base: HistoryBase) -> bool:
        """Whether a history is overwritten whole when row changes come."""
        return not plan.schema.handle_key or base.rows <= SMALL_HISTORY_ROWS

    def _is_portable(self, plan: MirrorPlan) -> bool:
        """Whether a history stays a portable table, however large it is."""
        wanted = self._changefeed.readers.portable.includes(plan.database, plan.table)
        return wanted and stays_portable(self._paths.history(plan.mirror_id))

    def _takes_merge(self, plan: MirrorPlan, base: HistoryBase) -> bool:
        """Whether Spark can merge into a history as it is to stay."""
        return not self._is_portable(plan) or (
            fits_merge(HistoryLayout(schema=plan.schema).names)
            and self._former_rescued(base) is None
        )

    def _former_rescued(self, base: HistoryBase) -> str | None:
        """Return the former name of the column of rescued data, None if it has today's."""
        if base.layout == LAYOUT:
            return None
        path = self._paths.history(base.cut.mirror_id)
        return former_rescued(path, base.version, base.cut.table_schema)

    def _renamed(self, base: HistoryBase, path: AnyPath, begin: int) -> int | None:
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
        """Return what the change log is to be folded behind, where it was truncated."""
        truncation_point = read_truncation_point(self._paths)
        cut = truncation_point.mirror(plan.mirror_id)
        return None if cut is None else HistoryBase(cut=cut, tso=truncation_point.tso)

    def _since(self, base: HistoryBase | None) -> int:
        """Return from which TSO on a history has all versions that is made from `base`."""
        if base is None or base.cut.history_version is None or base.cut.history_since is None:
            return read_truncation_point(self._paths).tso
        return base.cut.history_since

    def _is_touched(self, plan: MirrorPlan, base: HistoryBase) -> bool:
        """Whether something other than row changes happened to the versions there are."""
        before = base.cut.table_schema
        passage = Passage(
            schema=before, plan=plan, timezone=self._changefeed.timezone, since_ts=base.tso
        )
        return (
            not goes_on_from(plan, base)
            or HistoryLayout(schema=before).names != HistoryLayout(schema=plan.schema).names
            or not passage.keeps_ended
        )

    def _overwrite(
        self, plan: MirrorPlan, base: HistoryBase | None, published: int | None
    ) -> MadeHistory:
        layout = HistoryLayout(schema=plan.schema)
        versions = self._folding.folded(plan, until=self._tso, base=base)
        path, portable = self._paths.history(plan.mirror_id), self._is_portable(plan)

        def chosen(rows: pa.Table) -> pa.Table:
            begun = rows.filter(ds.field("valid_from").is_valid())
            return begun.select(layout.places).rename_columns(layout.names)

        schema = chosen(versions.rows.schema.empty_table()).schema
        if versions.rows.table is not None:
            rows = chosen(versions.rows.table)
        elif portable:
            version = overwrite_by_files(
                lambda: written(map(chosen, versions.rows.tables()), schema, path),
                schema,
                path,
                self._changefeed.retention,
                metadata=self._metadata(plan),
                published=published,
            )
            return self._overwritten(plan, versions, base, version)
        else:
            frame = versions.rows.frame(self._spark).where("valid_from is not null")
            rows = frame.select(*layout.places).toDF(*layout.names)
        version = overwrite(
            self._spark,
            rows,
            path,
            self._changefeed.retention,
            metadata=self._metadata(plan),
            published=published,
            portable=portable,
        )
        return self._overwritten(plan, versions, base, version)

    def _overwritten(
        self, plan: MirrorPlan, versions: Versions, base: HistoryBase | None, version: int
    ) -> MadeHistory:
        return MadeHistory(
            version=version,
            rows=versions.begun,
            unread=versions.unread + ((base.cut.history_unread or 0) if base else 0),
            digest=plan.past_digest,
            since=self._since(base),
        )

    def _merge(self, plan: MirrorPlan, base: HistoryBase) -> MadeHistory:
        """Append the versions that began since the last cut, and end those that they follow."""
        F = functions(self._spark)
        path = self._paths.history(plan.mirror_id)
        begin = same_rows_at(path, base.version)
        if begin is None:
            # What a killed run committed and did not publish, or a foreign writer changed.
            begin = take_back(self._spark, path, base.version)
        if not self._is_portable(plan):
            give_features(self._spark, path)
        if self._renamed(base, path, begin) is None:
            return self._overwrite(plan, base, base.version)
        own = SparkCommit(self._spark, path, self._metadata(plan))
        table = DeltaTable.forPath(own.session(), str(path))
        layout = HistoryLayout(schema=plan.schema)
        heads = self._heads(plan, base.tso)
        source = heads.rows.frame(self._spark)
        names = dict(zip(layout.names, layout.places, strict=True))
        values: dict[str, str | Column] = {
            quoted(name): F.col(f"s.{place}") for name, place in names.items()
        }
        rescued = quoted(layout.rescued)
        mark = F.create_map(F.lit(PARTIAL), F.col("s.partial_ts"))
        ends: dict[str, str | Column] = {
            quoted(layout.valid_to): F.col("s.valid_to"),
            quoted(layout.ended_by): F.col("s.ended_by"),
            rescued: F.when(
                F.col("s.partial_ts").isNotNull(), marked(self._spark, plan.schema, mark)
            ).otherwise(F.col(f"t.{rescued}")),
        }
        # The current version of the row whose head it is.
        is_current = F.col("s.is_head") & F.col(f"t.{quoted(layout.valid_to)}").isNull()
        places = {name: f"s.{place}" for name, place in names.items()}
        (
            table.alias("t")
            .merge(source.alias("s"), is_current & same_row(self._spark, plan.schema, places))
            .whenMatchedUpdate(set=ends)
            .whenNotMatchedInsert(condition="s.valid_from is not null", values=values)
            .execute()
        )
        made = own.find()
        version = reached(path, begin, made)
        if version is None:
            # Others changed rows in between: what they were at the last cut is what counts.
            return self._overwrite(plan, base, base.version)
        inserted = 0 if made is None else made.metrics.get("numTargetRowsInserted", 0)
        return MadeHistory(
            version=version,
            rows=base.rows + inserted,
            unread=(base.cut.history_unread or 0) + heads.unread,
            digest=plan.past_digest,
            since=self._since(base),
        )

    def _heads(self, plan: MirrorPlan, above: int) -> Versions:
        """Return the versions since a cut, and what becomes of those that were current at it."""
        convert = history_operations(plan, self._changefeed.timezone)
        return run_history(
            self._spark,
            self._paths,
            self._changes.scratch,
            HistoryFold(schema=plan.schema, convert=convert, heads=True),
            self._changes.changes(plan, above, self._tso),
        )

    def _metadata(self, plan: MirrorPlan) -> dict[str, object]:
        return {"tso": self._tso, "database": plan.database, "table": plan.table}
