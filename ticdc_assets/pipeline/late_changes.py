"""Changes at or below the last cut that landed after it: replays, late rows, rows below truncation.

In: the change log, the last cut, and the truncation of the change log. Out: the numbers of replays
and of late rows, by spans of the tables; the number of rows below the truncation; and the caveats
of mirrors that lack such changes. Nothing is written.
"""

from functools import reduce
from operator import and_

from pyspark.sql import SparkSession

from ticdc_assets.changelog.plan import (
    MirrorPlan,
    Plan,
)
from ticdc_assets.engine.session import functions
from ticdc_assets.pipeline.change_folding import (
    ChangeFolding,
)
from ticdc_assets.pipeline.change_statistics import ChangeGroups
from ticdc_assets.pipeline.cuts import (
    Cut,
)
from ticdc_assets.pipeline.truncation_points import BELOW, marks_below
from ticdc_assets.pipeline.validity import Knowledge, LateRows
from ticdc_assets.tso import MAX_TSO, from_physical_ms, physical_ms


class LateChanges:
    """What came late, as one apply sees it.

    Args:
        spark: the session.
        changes: where changes are read.
        groups: the statistics of the change log.
        known: what is known of schemas and changes.
        last: the last cut, None before the first.
    """

    def __init__(
        self,
        spark: SparkSession,
        changes: ChangeFolding,
        groups: ChangeGroups,
        known: Knowledge,
        last: Cut | None,
    ) -> None:
        self._spark = spark
        self._changes = changes
        self._groups = groups
        self._known = known
        self._last = last
        self._before = {item.mirror_id: item for item in last.mirrors} if last else {}

    def rows(self) -> tuple[int, int, list[LateRows]]:
        """Tell replays from late rows among what landed since the last cut at or below it.

        A row that is in the change log already, with the same images and commit ts, is a replay.
        Any other one is late: it takes its place, never mind that its cut was published. Without
        commit ts, rows of the millisecond that the last cut ended in are neither: nothing says
        that two like changes in it are one.

        Returns:
            How many were replays, how many were late, and what is to be folded in.
        """
        if self._last is None or self._groups.batch <= self._last.batch:
            return 0, 0, []
        if not self._changes.has_late_rows(self._last.batch, self._last.tso):
            return 0, 0, []
        # The last millisecond of a cut without TSO, else nothing.
        open_ts = from_physical_ms(physical_ms(self._last.tso)) if self._groups.es_only else MAX_TSO
        F = functions(self._spark)
        rows = self._changes.log().where(
            (F.col("kind") == "row")
            & (F.col("commit_ts") <= self._last.tso)
            & self._changes.placed(F.col)
        )
        new = rows.where(F.col("batch") > self._last.batch)
        bounds = new.agg(F.count("*").alias("rows"), F.min("commit_ts").alias("min_ts")).collect()
        count = bounds[0]["rows"]
        if not count:
            return 0, 0, []
        old = rows.where(
            (F.col("batch") <= self._last.batch)
            & (F.col("commit_ts") >= bounds[0]["min_ts"])
            & (F.col("commit_ts") < open_ts)
        )
        same = reduce(
            and_,
            (
                F.col(f"n.{name}").eqNullSafe(F.col(f"o.{name}"))
                for name in (
                    "commit_ts",
                    "database",
                    "table",
                    "table_id",
                    "op",
                    "schema_version",
                    "before",
                    "after",
                )
            ),
        )
        late = (
            new.alias("n")
            .join(old.alias("o"), same, "left_anti")
            .groupBy("database", "table")
            .agg(
                F.min("commit_ts").alias("min_ts"),
                F.max("commit_ts").alias("max_ts"),
                F.count("*").alias("rows"),
                F.count_if(F.col("commit_ts") < open_ts).alias("late"),
            )
            .collect()
        )
        counted = sum(row["late"] for row in late)
        spans = [
            LateRows(
                name=(row["database"], row["table"]), min_ts=row["min_ts"], max_ts=row["max_ts"]
            )
            for row in late
        ]
        return count - sum(row["rows"] for row in late), counted, spans

    def unplaced(self) -> int:
        """Count what landed since the last cut and lies where the change log was truncated."""
        truncation_point = self._changes.truncation_point
        if (
            truncation_point.cut is None
            or self._last is None
            or self._groups.batch <= self._last.batch
        ):
            return 0
        F = functions(self._spark)
        return (
            self._changes.log()
            .where(
                (F.col("kind") == "row")
                & (F.col("batch") > self._last.batch)
                & (F.col("commit_ts") <= truncation_point.tso)
                & ~self._changes.placed(F.col)
            )
            .count()
        )

    def caveats(self, plan: Plan) -> dict[str, str]:
        """Return the caveats of mirrors that lack what was learnt after a truncation.

        A mirror keeps its caveat for as long as the rows of then count.
        """
        truncation_point = self._changes.truncation_point
        if truncation_point.cut is None:
            return {}
        caveats: dict[str, str] = {}
        for mirror in plan.mirrors:
            before = self._before.get(mirror.mirror_id)
            for caveat in before.caveats if before is not None else ():
                since = caveat.removeprefix(f"{BELOW}, since ")
                if since != caveat and mirror.floor_ts <= int(since):
                    caveats[mirror.mirror_id] = caveat
        there = self._known.plan(truncation_point.tso)
        found = marks_below(truncation_point, there, plan.mirrors, self._known.row_groups)
        for mirror in self._redriven_below(plan):
            found.setdefault(mirror.mirror_id, f"{BELOW}, since {truncation_point.tso}")
        return found | caveats

    def _redriven_below(self, plan: Plan) -> list[MirrorPlan]:
        """Return the mirrors of re-driven changes whose later fate is in the base cut alone."""
        truncation_point, batches = self._changes.truncation_point, self._changes.redriven
        if not batches:
            return []
        F = functions(self._spark)
        rows = (
            self._changes.log()
            .where(
                (F.col("kind") == "row")
                & F.col("batch").isin(list(batches))
                & (F.col("commit_ts") <= truncation_point.tso)
            )
            .select("database", "table", "commit_ts")
            .collect()
        )
        return [
            mirror
            for mirror in plan.mirrors
            if any(
                row["commit_ts"] > mirror.floor_ts
                and mirror.meets(
                    (row["database"], row["table"]), row["commit_ts"], row["commit_ts"]
                )
                for row in rows
            )
        ]
