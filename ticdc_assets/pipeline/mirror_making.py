"""Making one mirror at a cut: carried, altered, merged, rewritten or folded.

In: a mirror's plan, the mirror at the last cut, and the change log. Out: the Delta version for the
cut to name, and its figures. `mirrors` explains each way; this module chooses the cheapest possible
one.

Why running it again is safe: each way is one Delta commit, made from the version that the newest
published cut names. Later versions, by a killed run or another writer, are undone first.
"""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from delta.tables import DeltaTable
from pyspark.sql import Column, SparkSession

from ticdc_assets.changelog.plan import (
    MirrorPlan,
    Plan,
)
from ticdc_assets.config import Changefeed
from ticdc_assets.config.spark import MERGING
from ticdc_assets.engine.commits import reached, same_rows_at
from ticdc_assets.engine.control import open_table
from ticdc_assets.engine.executing import INLINE_ROWS
from ticdc_assets.engine.frames import quoted
from ticdc_assets.engine.paths import LakePaths
from ticdc_assets.engine.session import functions
from ticdc_assets.engine.spark_commits import SparkCommit, alter, take_back
from ticdc_assets.isolation import Failure, attempted
from ticdc_assets.names import joined_name
from ticdc_assets.pipeline.change_folding import (
    ChangeFolding,
    hidden_columns,
    is_removed_from,
    is_touched,
)
from ticdc_assets.pipeline.cuts import (
    LAYOUT,
    Cut,
    MirrorCut,
)
from ticdc_assets.pipeline.history import HistoryBase
from ticdc_assets.pipeline.history_writing import HistoryWriter, MadeHistory
from ticdc_assets.pipeline.in_place import alterations, rescued_renamed
from ticdc_assets.pipeline.merging import marked, same_row
from ticdc_assets.pipeline.misfits import Doubts, Misfits
from ticdc_assets.pipeline.overwriting import (
    PORTABLE_ROWS,
    fits_merge,
    give_features,
    overwrite,
    overwrite_by_files,
    stays_portable,
    undisturbed,
    written,
)
from ticdc_assets.pipeline.validity import Knowledge
from ticdc_assets.pipeline.versions import former_rescued, is_portable_mirror, mirror_in_spark
from ticdc_assets.progress import tell
from ticdc_assets.rows.fold_runs import Folded
from ticdc_assets.rows.mirror_rows import PARTIAL, MirrorLayout
from ticdc_assets.storage.paths import AnyPath

_LOGGER = logging.getLogger(__name__)

SMALL_MIRROR_ROWS = PORTABLE_ROWS
"""Rows up to which a mirror is rewritten whole: that costs less than a MERGE."""

LARGE_BYTES = 64 << 20
"""Bytes of large images (`totals.LARGE_ROW_BYTES`) from which on a mirror is made in pieces."""

MOST_ROWS_IN_PIECES = 1_000_000
"""Changes up to which it is: what each is about, without its values, is held in this process."""


class Mode(StrEnum):
    """How a cut makes a mirror."""

    CARRIED = "carried"
    ALTER = "alter"
    MERGE = "merge"
    REWRITE = "rewrite"
    FOLD = "fold"


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A mirror as one task left it."""

    version: int
    rows: int
    hidden: list[str]
    quarantined: int
    mode: Mode
    changes: int
    unknown_deletes: int
    casts: Mapping[tuple[str, int], int]
    history: MadeHistory | None = None


class MirrorMaker:
    """Makes the mirrors of one apply, each by itself.

    Args:
        spark: the session.
        paths: tables of the changefeed.
        changefeed: its configuration.
        changes: where changes are read and folded.
        known: what is known of schemas and changes.
        misfits: the quarantine.
        last: the last cut, None before the first.
        tso: TSO of the cut.
        damaged: ids of mirrors that are broken.
        pasts: what decided over each history at the last cut, as it is known today.
    """

    def __init__(
        self,
        spark: SparkSession,
        paths: LakePaths,
        changefeed: Changefeed,
        changes: ChangeFolding,
        known: Knowledge,
        misfits: Misfits,
        *,
        last: Cut | None,
        tso: int,
        damaged: Collection[str],
        pasts: Mapping[str, str],
    ) -> None:
        self._spark = spark
        self._paths = paths
        self._changefeed = changefeed
        self._changes = changes
        self._known = known
        self._misfits = misfits
        self._last = last
        self._tso = tso
        self._damages = damaged
        self._pasts = pasts
        self._before = {item.mirror_id: item for item in last.mirrors} if last else {}
        self._histories = HistoryWriter(spark, paths, changefeed, changes, tso=tso)

    def make(self, mirror: MirrorPlan, stale: bool, made: Made | None) -> Made:
        """Make a mirror if it is not made yet, and its history if one is kept."""
        if made is None:
            made = undisturbed(lambda: self._make_mirror(mirror, stale))
        if not self._changefeed.keeps_history(mirror.database, mirror.table):
            return made
        base = None
        before = self._before.get(mirror.mirror_id)
        past = self._pasts.get(mirror.mirror_id)
        if (
            before is not None
            and self._last is not None
            and before.history_version is not None
            and before.history_digest == past
            and not stale
        ):
            base = HistoryBase(cut=before, tso=self._last.tso, layout=self._last.layout)
        changed = base is None or self._known.has_changes(mirror, base.tso, self._tso)
        published = None if before is None else before.history_version
        history = undisturbed(
            lambda: self._histories.make(mirror, base, changed=changed, published=published)
        )
        return replace(made, history=history)

    def _make_mirror(self, mirror: MirrorPlan, stale: bool) -> Made:
        before = self._before.get(mirror.mirror_id)
        if before is None or stale or before.floor_ts != mirror.floor_ts:
            return self._overwrite(mirror, before, Mode.FOLD)
        assert self._last is not None
        # Of a killed run what it committed and did not publish, and what other writers changed.
        same = same_rows_at(self._paths.mirror(mirror.mirror_id), before.version)
        is_ahead = same is None
        if same is not None:
            # A compaction by hand leaves the rows; a vacuum will remove the files they had before.
            before = replace(before, version=same)
        touched = (
            is_touched(mirror, before.table_schema, self._last.tso)
            or self._former_rescued(before) is not None
        )
        changed = self._known.has_changes(mirror, self._last.tso, self._tso)
        if not changed and not touched and not is_ahead:
            return self._carried(before)
        if not mirror.schema.handle_key or before.rows <= SMALL_MIRROR_ROWS:
            return self._overwrite(mirror, before, Mode.REWRITE)
        if is_ahead and is_portable_mirror(self._paths, before):
            # Spark, which has begun to change it since, cannot take every portable table back.
            return self._overwrite(mirror, before, Mode.REWRITE)
        if is_ahead:
            before = self._taken_back(mirror, before)
        if not changed and not touched:
            return self._carried(before)
        if self._is_large(mirror) and self._changes.has_more_bytes(
            mirror, self._last.tso, self._tso, than=LARGE_BYTES
        ):
            return self._overwrite(mirror, before, Mode.REWRITE)
        if self._is_portable(mirror):
            if touched or not fits_merge(MirrorLayout(schema=mirror.schema).names):
                return self._overwrite(mirror, before, Mode.REWRITE)
        else:
            give_features(self._spark, self._paths.mirror(mirror.mirror_id))
            if touched and not self._altered(mirror, before):
                return self._overwrite(mirror, before, Mode.REWRITE)
        # If somebody else changed rows in between, what they were at the last cut is what counts.
        merged = self._merge(mirror, before)
        return merged or self._overwrite(mirror, before, Mode.REWRITE)

    def _is_portable(self, mirror: MirrorPlan) -> bool:
        """Whether a mirror stays a portable table, however large it is."""
        if not self._changefeed.readers.portable.includes(mirror.database, mirror.table):
            return False
        path = self._paths.mirror(mirror.mirror_id)
        if stays_portable(path):
            return True
        _LOGGER.warning(
            "%s.%s had Delta features that not every reader supports before it was configured as "
            "portable, and keeps them",
            mirror.database,
            mirror.table,
        )
        return False

    def _altered(self, mirror: MirrorPlan, before: MirrorCut) -> bool:
        """Take the table to the schema at the cut without touching its rows, if that is enough."""
        assert self._last is not None
        if is_removed_from(mirror, self._last.tso):
            return False
        schema, zone = before.table_schema, self._changefeed.timezone
        steps = mirror.steps_since(schema.version)
        changes = alterations(schema, mirror.schema, steps, zone)
        if changes is None:
            return False
        if changes.rescued:
            F = functions(self._spark)
            rescued = F.col(quoted(MirrorLayout(schema=schema).rescued))
            entries = F.array_intersect(F.map_keys(rescued), F.lit(list(changes.rescued)))
            rows = mirror_in_spark(self._spark, self._paths, before)
            if not rows.where(F.size(entries) > 0).isEmpty():
                return False
        former = self._former_rescued(before)
        if former is not None:
            rename = rescued_renamed(former, schema)
            changes = replace(changes, clauses=(rename, *changes.clauses))
        alter(self._spark, self._paths.mirror(mirror.mirror_id), changes.clauses)
        table = self._spark.read.format("delta").load(str(self._paths.mirror(mirror.mirror_id)))
        return table.columns == MirrorLayout(schema=mirror.schema).names

    def _former_rescued(self, before: MirrorCut) -> str | None:
        """Return the former name of the column of rescued data, None if it has today's."""
        if self._last is None or self._last.layout == LAYOUT:
            return None
        return former_rescued(before.path(self._paths), before.version, before.table_schema)

    def _taken_back(self, mirror: MirrorPlan, before: MirrorCut) -> MirrorCut:
        """Make the mirror's newest version what the last cut has, and return it as it is then.

        The restored version has the content of the published one under a number of its own.
        """
        path = self._paths.mirror(mirror.mirror_id)
        return replace(before, version=take_back(self._spark, path, before.version))

    def _carried(self, before: MirrorCut) -> Made:
        return Made(
            version=before.version,
            rows=before.rows,
            hidden=before.hidden,
            quarantined=before.quarantined,
            mode=Mode.CARRIED,
            changes=0,
            unknown_deletes=before.unknown_deletes,
            casts=before.casts,
        )

    def _overwrite(self, mirror: MirrorPlan, before: MirrorCut | None, mode: Mode) -> Made:
        """Make the mirror whole, from the last cut's rows or from nothing, in one overwrite."""
        base = before if mode is Mode.REWRITE else None
        path = self._paths.mirror(mirror.mirror_id)
        doubts = self._misfits.doubts(mirror) if base is not None else {}
        folded = self._folded(
            mirror,
            base,
            in_pieces=self._is_large(mirror),
            # Workers may write the files of what is portable, or not there.
            table=path if stays_portable(path, broken=False) else None,
            watched={key for found in doubts.values() for key, _ in found},
        )
        if folded.counts.lost:
            # A value of the last cut does not survive a schema step: its change must be found.
            return self._overwrite(mirror, before, Mode.FOLD)
        return self._written(mirror, folded, before, mode, doubts)

    def _written(
        self,
        mirror: MirrorPlan,
        folded: Folded,
        before: MirrorCut | None,
        mode: Mode,
        doubts: Doubts,
    ) -> Made:
        """Put the rows that a folding leaves in the place of all rows of a mirror."""
        base = before if mode is Mode.REWRITE else None
        start = base or self._changes.start(mirror)
        counts = folded.counts
        published = None if before is None else before.version
        version = self._write(mirror, folded, mode, published)
        self._misfits.quarantine(mirror, folded, is_fold=mode is Mode.FOLD)
        void = self._misfits.close_void(folded, doubts)
        return Made(
            version=version,
            rows=counts.copies,
            hidden=hidden_columns(mirror, folded),
            quarantined=counts.errors + (base.quarantined if base else 0) - void,
            mode=mode,
            changes=counts.changed,
            unknown_deletes=counts.unknown_deletes + (start.unknown_deletes if start else 0),
            casts=counts.casts,
        )

    def _write(self, mirror: MirrorPlan, folded: Folded, mode: Mode, published: int | None) -> int:
        """Write the rows that a folding leaves in one commit; return the mirror's version."""
        table, metadata = self._paths.mirror(mirror.mirror_id), self._metadata(mirror, mode)
        schema, retention = MirrorLayout(schema=mirror.schema).arrow, self._changefeed.retention
        pieces = folded.pieces
        if pieces is not None or folded.rows.folder == table:
            return overwrite_by_files(
                (lambda: folded.rows.files)
                if pieces is None
                else lambda: written(pieces(), schema, table),
                schema,
                table,
                retention,
                metadata=metadata,
                published=published,
            )
        rows, portable = folded.rows.table, self._is_portable(mirror)
        if rows is None and portable:
            return overwrite_by_files(
                lambda: written(folded.rows.tables(), schema, table),
                schema,
                table,
                retention,
                metadata=metadata,
                published=published,
            )
        return overwrite(
            self._spark,
            folded.rows.frame(self._spark) if rows is None else rows,
            table,
            retention,
            metadata=metadata,
            published=published,
            portable=portable,
        )

    def _is_large(self, mirror: MirrorPlan) -> bool:
        """Whether changes of a mirror have values so large that it must be made in pieces."""
        groups = self._known.groups_of(mirror)
        if (
            not mirror.schema.handle_key
            or sum(group.large_bytes for group in groups) <= LARGE_BYTES
            or sum(group.rows for group in groups) > MOST_ROWS_IN_PIECES
        ):
            return False
        return stays_portable(self._paths.mirror(mirror.mirror_id))

    def make_new(self, plan: Plan, stale: Collection[str]) -> dict[str, Made]:
        """Make the mirrors that have no table yet and many changes, all at once."""
        wanted: list[tuple[MirrorPlan, int]] = []
        for mirror in plan.mirrors:
            if mirror.mirror_id in self._damages:
                continue  # its versions go on where they were
            if mirror.mirror_id in self._before and mirror.mirror_id not in stale:
                continue
            rows = self._known.count(mirror)
            if (
                rows > INLINE_ROWS
                and not self._is_large(mirror)
                and self._changes.begins_empty(mirror)
                and open_table(self._paths.mirror(mirror.mirror_id)) is None
            ):
                wanted.append((mirror, rows))
        if not wanted:
            return {}
        tell(f"folding {sum(rows for _, rows in wanted):,} changes of {len(wanted)} new tables")
        found = attempted(
            lambda: self._changes.folded_into_files(wanted, until=self._tso),
            f"folding {len(wanted)} new mirrors at once",
        )
        if isinstance(found, Failure) or not found:
            return {}  # they are made one by one, and then it shows which of them fails
        made: dict[str, Made] = {}
        for (mirror, _), folded in zip(wanted, found, strict=True):
            result = attempted(
                lambda mirror=mirror, folded=folded: self._written(
                    mirror, folded, None, Mode.FOLD, {}
                ),
                f"the mirror of {joined_name(*mirror.name)}",
            )
            if not isinstance(result, Failure):
                made[mirror.mirror_id] = result
        return made

    def _merge(self, mirror: MirrorPlan, before: MirrorCut) -> Made | None:
        """Merge the changes since the last cut, one per key; None if others changed rows."""
        path = self._paths.mirror(mirror.mirror_id)
        layout = MirrorLayout(schema=mirror.schema)
        doubts = self._misfits.doubts(mirror)
        folded = self._folded(
            mirror,
            before,
            with_rows=False,
            for_merge=True,
            watched={key for found in doubts.values() for key, _ in found},
        )
        counts = folded.counts
        self._misfits.quarantine(mirror, folded, is_fold=False)
        if not counts.changed:
            carried = self._carried(before)
            version = reached(path, before.version, None)
            if version is None:
                return None
            altered = version != before.version
            return replace(
                carried,
                version=version,
                mode=Mode.ALTER if altered else carried.mode,
                hidden=hidden_columns(mirror, folded),
                casts=counts.casts,
                quarantined=before.quarantined + counts.errors,
            )
        F = functions(self._spark)
        names = {name: f"s.s{number}" for number, name in enumerate(layout.names)}
        values: dict[str, str | Column] = {
            quoted(name): F.col(source_name) for name, source_name in names.items()
        }
        own = SparkCommit(self._spark, path, self._metadata(mirror, Mode.MERGE))
        session = own.session(MERGING)
        # Spark makes Bloom filters only of what seems to be filtered: this is true of all rows.
        always = F.col(names[layout.commit_ts].removeprefix("s.")) >= 0
        source = folded.rows.frame(session).where(always)
        mark = F.map_filter(F.col(names[layout.rescued]), lambda name, _: name == PARTIAL)
        (
            DeltaTable.forPath(session, str(path))
            .alias("t")
            .merge(source.alias("s"), same_row(session, mirror.schema, names))
            .whenMatchedDelete(F.col("s.deleted"))
            .whenMatchedUpdate(
                F.col("s.keeps"),
                # The row is there, but its change is known by its key alone.
                set={quoted(layout.rescued): marked(session, mirror.schema, mark)},
            )
            .whenMatchedUpdate(set=values)
            .whenNotMatchedInsert(condition=~F.col("s.deleted"), values=values)
            .execute()
        )
        void = self._misfits.close_void(folded, doubts)
        made = own.find()
        version = reached(path, before.version, made)
        if version is None:
            return None
        metrics = {} if made is None else made.metrics
        inserted = metrics.get("numTargetRowsInserted", 0)
        deleted = metrics.get("numTargetRowsDeleted", 0)
        return Made(
            version=version,
            rows=before.rows + inserted - deleted,
            hidden=hidden_columns(mirror, folded),
            quarantined=before.quarantined + counts.errors - void,
            mode=Mode.MERGE,
            changes=counts.changed,
            unknown_deletes=before.unknown_deletes + max(0, counts.taken - deleted),
            casts=counts.casts,
        )

    def _folded(
        self,
        mirror: MirrorPlan,
        base: MirrorCut | None,
        *,
        with_rows: bool = True,
        for_merge: bool = False,
        in_pieces: bool = False,
        table: AnyPath | None = None,
        watched: Collection[str] = (),
    ) -> Folded:
        """Fold the mirror's changes since `base`, and the rows of `base` before them."""
        above = self._last.tso if base is not None and self._last is not None else 0
        return self._changes.folded(
            mirror,
            until=self._tso,
            base=base,
            above=above,
            with_rows=with_rows,
            for_merge=for_merge,
            in_pieces=in_pieces,
            table=table,
            watched=watched,
        )

    def _metadata(self, mirror: MirrorPlan, mode: Mode) -> dict[str, object]:
        return {
            "tso": self._tso,
            "mode": mode,
            "database": mirror.database,
            "table": mirror.table,
        }
