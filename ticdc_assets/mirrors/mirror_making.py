"""Making one mirror at a cut: carried, altered, changed, rewritten or folded.

In: a mirror's plan, the mirror at the last cut, and the change log. Out: the mirror's entry in the
cut, but for what only all mirrors show: held rows and caveats. `applying` explains each way; this
module chooses the cheapest one that is possible, and `table_writing` writes it.

Why running it again is safe: each way is one Delta commit from the version that the newest
published cut names. The commit takes back later versions by a killed run or another writer.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from ticdc_assets.base.isolation import Failure, attempted
from ticdc_assets.base.names import counted, joined_name
from ticdc_assets.base.progress import tell
from ticdc_assets.changelog.plan import MirrorPlan, Plan
from ticdc_assets.delta.commits import newest_version, same_rows_at
from ticdc_assets.delta.committing import undisturbed
from ticdc_assets.log.cuts import Cut, MirrorCut, Mode
from ticdc_assets.mirrors.caveats import casts_listed
from ticdc_assets.mirrors.change_folding import (
    ChangeFolding,
    hidden_columns,
    is_touched,
    known_hidden,
)
from ticdc_assets.mirrors.history_writing import HistoryWriter
from ticdc_assets.mirrors.in_place import goes_on
from ticdc_assets.mirrors.misfits import Doubts, Misfits
from ticdc_assets.mirrors.table_writing import FoundKeys, TableWriter, table_writer
from ticdc_assets.mirrors.truncation_points import Base
from ticdc_assets.mirrors.validity import Knowledge
from ticdc_assets.model.schemas import schema_to_text
from ticdc_assets.rows.finding import keys_of
from ticdc_assets.rows.fold_runs import ChangedKeys, Folded
from ticdc_assets.rows.mirror_rows import PARTIAL, MirrorLayout, marked, may_be_rescued
from ticdc_assets.spark.executing import INLINE_ROWS


class MirrorMaker:
    """Makes the mirrors of one apply, each by itself.

    Args:
        changes: reads and folds the changes.
        known: the known schemas and changes.
        misfits: the quarantine.
        last: the last cut; None before the first.
        tso: TSO of the cut.
    """

    def __init__(
        self,
        changes: ChangeFolding,
        known: Knowledge,
        misfits: Misfits,
        *,
        last: Cut | None,
        tso: int,
    ) -> None:
        self._lake = changes.lake
        self._changes = changes
        self._known = known
        self._misfits = misfits
        self._tso = tso
        self._before: dict[str, Base] = {}
        self._pasts: dict[str, str] = {}
        if last is not None:
            self._before = {
                item.mirror_id: Base(mirror=item, tso=last.tso) for item in last.mirrors
            }
            # Of each history at the last cut, as known today.
            then = known.plan(last.tso)
            self._pasts = {item.mirror_id: item.past_digest for item in then.mirrors}
        self._histories = HistoryWriter(changes, tso=tso)

    def make(self, mirror: MirrorPlan, stale: bool, made: MirrorCut | None) -> MirrorCut:
        """Make a mirror if it is not made yet, and its history if one is kept."""
        if made is None:
            made = undisturbed(lambda: self._make_mirror(mirror, stale))
        if not self._lake.changefeed.keeps_history(mirror.database, mirror.table):
            return made
        base = before = self._before.get(mirror.mirror_id)
        published = None if before is None else before.mirror.history_version
        if (
            before is None
            or published is None
            or before.mirror.history_digest != self._pasts.get(mirror.mirror_id)
            or stale
        ):
            base = None
        changed = base is None or self._known.has_changes(mirror, base.tso, self._tso)
        history = undisturbed(
            lambda: self._histories.make(mirror, base, changed=changed, published=published)
        )
        return replace(made, **history)

    def _make_mirror(self, mirror: MirrorPlan, stale: bool) -> MirrorCut:
        before = self._before.get(mirror.mirror_id)
        if before is None or stale or before.mirror.floor_ts != mirror.floor_ts:
            return self._overwrite(mirror, before, Mode.FOLD)
        # A killed run's unpublished commits, and other writers' changes.
        same = same_rows_at(self._lake.paths.mirror(mirror.mirror_id), before.mirror.version)
        is_touched_now = is_touched(mirror, before)
        changed = self._known.has_changes(mirror, before.tso, self._tso)
        if same is not None:
            # A manual compaction keeps the rows; a vacuum will remove the files they had before.
            before = replace(before, mirror=replace(before.mirror, version=same))
            if not changed and not is_touched_now:
                return self._carried(mirror, before.mirror)
        writer = self._writer(mirror, before.mirror.version)
        if goes_on(
            self._changes,
            writer,
            MirrorLayout,
            mirror,
            before,
            version=before.mirror.version,
            rows=before.mirror.rows,
            until=self._tso,
        ):
            return self._change(mirror, before, writer, altered=is_touched_now, changed=changed)
        return self._overwrite(mirror, before, Mode.REWRITE)

    def _writer(self, mirror: MirrorPlan, published: int | None) -> TableWriter:
        layout = MirrorLayout(schema=mirror.schema)
        return table_writer(self._lake, layout, mirror.name, mirror.mirror_id, published=published)

    def _carried(self, mirror: MirrorPlan, before: MirrorCut) -> MirrorCut:
        return self._entry(
            mirror,
            version=before.version,
            rows=before.rows,
            hidden=before.hidden,
            quarantined=before.quarantined,
            mode=Mode.CARRIED,
            changes=0,
            unknown_deletes=before.unknown_deletes,
            casts=before.casts,
        )

    def _entry(
        self, mirror: MirrorPlan, *, casts: Counter[tuple[str, int]], **made: Any
    ) -> MirrorCut:
        """Return a mirror's entry in the cut, from its plan and what was made."""
        return MirrorCut(
            mirror_id=mirror.mirror_id,
            database=mirror.database,
            table=mirror.table,
            table_id=mirror.table_id,
            generation=self._lake.paths.generation,
            schema=schema_to_text(mirror.schema),
            floor_ts=mirror.floor_ts,
            digest=mirror.digest,
            held=0,
            caveats=[],
            lenient_casts=casts_listed(casts),
            **made,
        )

    # All rows -----------------------------------------------------------------------------------

    def _overwrite(self, mirror: MirrorPlan, before: Base | None, mode: Mode) -> MirrorCut:
        """Write the whole mirror, from the last cut's rows or from nothing."""
        base = before if mode is Mode.REWRITE else None
        writer = self._writer(mirror, None if before is None else before.mirror.version)
        doubts = self._misfits.doubts(mirror) if base is not None else {}
        folded = self._folded(mirror, writer, base, doubts)
        if folded.counts.lost:
            # A value in the last cut does not survive a schema step: its change is needed.
            return self._overwrite(mirror, before, Mode.FOLD)
        return self._written(mirror, writer, folded, base, doubts)

    def _written(
        self,
        mirror: MirrorPlan,
        writer: TableWriter,
        folded: Folded,
        base: Base | None,
        doubts: Doubts,
    ) -> MirrorCut:
        """Replace all rows of a mirror by those of a folding, over its rows if it has a base."""
        mode = Mode.FOLD if base is None else Mode.REWRITE
        start = base or self._changes.start(mirror)
        counts = folded.counts
        rows = _rows_here(folded)
        version = writer.replace(rows, folded.rows.files, self._metadata(mirror, mode))
        self._misfits.quarantine(mirror, folded, is_fold=base is None)
        void = self._misfits.close_void(folded, doubts)
        return self._entry(
            mirror,
            version=version,
            rows=counts.copies,
            hidden=hidden_columns(mirror, folded),
            quarantined=counts.errors + (base.mirror.quarantined if base else 0) - void,
            mode=mode,
            changes=counts.changed,
            unknown_deletes=counts.unknown_deletes + (start.mirror.unknown_deletes if start else 0),
            casts=counts.casts,
        )

    def _folded(
        self,
        mirror: MirrorPlan,
        writer: TableWriter,
        base: Base | None,
        doubts: Doubts,
        *,
        with_keys: bool = False,
    ) -> Folded:
        """Fold the mirror's changes since `base`, over its rows unless keys are wanted."""
        layout = writer.layout() if with_keys else writer.begin_empty()
        return self._changes.folded(
            mirror,
            until=self._tso,
            base=base,
            with_keys=with_keys,
            # Workers write the files of the table.
            table=(self._lake.paths.mirror(mirror.mirror_id), layout),
            watched={key for found in doubts.values() for key, _ in found},
        )

    def make_new(self, plan: Plan) -> dict[str, MirrorCut]:
        """Make the mirrors that have no table yet and many changes, all at once."""
        wanted: list[tuple[MirrorPlan, int, TableWriter]] = []
        for mirror in plan.mirrors:
            if mirror.mirror_id in self._before:
                continue
            rows = self._known.count(mirror)
            if (
                rows > INLINE_ROWS
                and self._changes.begins_empty(mirror)
                and newest_version(self._lake.paths.mirror(mirror.mirror_id)) < 0
            ):
                wanted.append((mirror, rows, self._writer(mirror, None)))
        if not wanted:
            return {}
        tell(
            f"folding {counted(sum(rows for _, rows, _ in wanted), 'change')} of "
            f"{counted(len(wanted), 'new table')}"
        )
        found = attempted(
            lambda: self._changes.folded_into_files(
                [(mirror, rows, writer.begin_empty()) for mirror, rows, writer in wanted],
                until=self._tso,
            ),
            f"folding {counted(len(wanted), 'new mirror')} at once",
        )
        if isinstance(found, Failure) or not found:
            return {}  # then they are made one by one, which shows the one that fails
        made: dict[str, MirrorCut] = {}
        for (mirror, _, writer), folded in zip(wanted, found, strict=True):
            result = attempted(
                lambda mirror=mirror, writer=writer, folded=folded: self._written(
                    mirror, writer, folded, None, {}
                ),
                f"the mirror of {joined_name(*mirror.name)}",
            )
            if not isinstance(result, Failure):
                made[mirror.mirror_id] = result
        return made

    # Changed rows -------------------------------------------------------------------------------

    def _change(
        self,
        mirror: MirrorPlan,
        before: Base,
        writer: TableWriter,
        *,
        altered: bool,
        changed: bool,
    ) -> MirrorCut:
        """Replace the rows that changed since the last cut."""
        made = self._carried(mirror, before.mirror)
        if altered:
            made = replace(made, hidden=known_hidden(mirror, before.mirror.hidden))
        if not changed:
            if not altered and not writer.is_ahead:
                return made
            mode = Mode.ALTER if altered else Mode.CHANGE
            version = writer.change(None, (), (), self._metadata(mirror, mode))
            return replace(made, version=version, mode=mode)
        doubts = self._misfits.doubts(mirror)
        folded = self._folded(mirror, writer, before, doubts, with_keys=True)
        counts, keys = folded.counts, folded.keys
        assert keys is not None
        self._misfits.quarantine(mirror, folded, is_fold=False)
        made = replace(
            made,
            hidden=hidden_columns(mirror, folded),
            lenient_casts=casts_listed(counts.casts),
            quarantined=made.quarantined + counts.errors,
        )
        is_nothing = not keys.flags.num_rows
        if is_nothing and not altered and not writer.is_ahead:
            return made
        mode = Mode.ALTER if is_nothing and altered else Mode.CHANGE
        changes = _Changes(mirror, keys, writer)
        version = writer.change(
            changes.found,
            chain(changes.rows(), _rows_here(folded)),
            folded.rows.files,
            self._metadata(mirror, mode),
        )
        void = self._misfits.close_void(folded, doubts)
        return replace(
            made,
            version=version,
            rows=made.rows + changes.put(counts.puts) - changes.gone,
            quarantined=made.quarantined - void,
            mode=mode,
            changes=counts.changed,
            unknown_deletes=made.unknown_deletes + changes.unknown_deletes,
        )

    def _metadata(self, mirror: MirrorPlan, mode: Mode) -> dict[str, object]:
        return {"tso": self._tso, "mode": mode, "database": mirror.database, "table": mirror.table}


def _rows_here(folded: Folded) -> Iterator[pa.Table]:
    """Yield the rows of a folding that are in no file."""
    if folded.rows.table is not None:
        yield folded.rows.table


class _Changes:
    """The effect of changes on the rows of a mirror.

    Args:
        mirror: its plan.
        keys: the changed keys.
        writer: writes the mirror.
    """

    def __init__(self, mirror: MirrorPlan, keys: ChangedKeys, writer: TableWriter) -> None:
        self._layout = MirrorLayout(schema=mirror.schema)
        self._keys = keys
        self._writer = writer
        columns = mirror.schema.columns
        wanted = mirror.schema.handle_key or tuple(column.name for column in columns)
        inexact = {column.name for column in columns if may_be_rescued(column)}
        count = keys.flags.num_rows
        found = keys_of(keys.rows, wanted, inexact, self._layout.rescued)
        self.found: FoundKeys = writer.find(found, count=count)
        self._is_there = self.found.counts > 0
        self._is_bag = not mirror.schema.handle_key
        unknown = np.maximum(0, -(self.found.counts + self._flag("least")))
        self.unknown_deletes = int(unknown.sum())
        if self._is_bag:
            self._copies = self.found.counts + self._flag("net") + unknown
        else:
            self._keeps = self._flag("keeps")
        self.gone = int(self.found.counts.sum())

    def _flag(self, name: str) -> np.ndarray:
        return self._keys.flags[name].to_numpy()

    def put(self, puts: int) -> int:
        """Return how many rows are put, including those that only get a mark.

        Args:
            puts: how many keys have a row afterwards.
        """
        return int(self._copies.sum()) if self._is_bag else puts

    def rows(self) -> Iterator[pa.Table]:
        """Yield the rows that depend on the earlier rows."""
        if self._is_bag:
            places = np.repeat(np.arange(len(self._copies)), self._copies)
            yield self._as_rows(places)
            return
        if not self._keeps.any():
            return
        marks = self._keys.rows[self._layout.rescued].to_pylist()
        for rows, numbers in self.found.rows(self._keeps, self._writer):
            own = [dict(marks[number])[PARTIAL] for number in numbers.tolist()]
            yield marked(rows, self._layout.rescued, own)
        yield self._as_rows(np.flatnonzero(self._keeps & ~self._is_there))

    def _as_rows(self, places: np.ndarray) -> pa.Table:
        """Return keys as rows without other values."""
        taken = pa.array(places)
        rows = self._keys.rows.take(taken)
        stamps = self._keys.flags["commit_ts"].take(taken)
        columns: list[pa.Array | pa.ChunkedArray] = []
        for item in self._layout.arrow:
            if item.name == self._layout.commit_ts:
                columns.append(stamps)
            elif item.name in rows.column_names:
                columns.append(rows[item.name])
            else:
                columns.append(pa.nulls(len(places), item.type))
        return pa.table(columns, schema=self._layout.arrow)
