"""Making one mirror at a cut, and its history: carried, altered, changed, rewritten or folded.

In: a mirror's plan, the mirror at the last cut, and the change log. Out: a Delta version of the
mirror and one of its history, if one is kept, and the mirror's entry in the cut, which names both,
but for what only all mirrors show: held rows and caveats. `applying` explains each way; this module
chooses the cheapest one that is possible, and `table_writing` writes it.

A history is made in the same ways. To change it, the current versions of changed keys are found in
the files, and the changes since the last cut are folded after them (`history.HistoryFolding`). A
rewrite takes the versions of the last cut through the DDL since (schema steps, TRUNCATE, partition
DDL). The last cut that had a dropped table names its history.

If the schema changed in a way that touches no row (renames, drops, widening, new NULL columns),
only the table's metadata change. All rows are written again if rows change (a default that is not
NULL, a cast that changes text, a type that Delta does not widen, partition DDL), or if there are
very many changes without a key.

Why running it again is safe: each way is one Delta commit from the version that the newest
published cut names. The commit takes back later versions by a killed run or another writer.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from ticdc_assets.base.isolation import Failure, attempted
from ticdc_assets.base.names import counted, joined_name
from ticdc_assets.base.progress import tell
from ticdc_assets.changelog.carrying import RowCarrier
from ticdc_assets.changelog.plan import MirrorPlan, Plan
from ticdc_assets.delta.commits import newest_version, same_rows_at
from ticdc_assets.delta.committing import undisturbed
from ticdc_assets.delta.row_schema import filled
from ticdc_assets.log.cuts import Cut, MirrorCut, Mode
from ticdc_assets.mirrors.caveats import casts_listed
from ticdc_assets.mirrors.change_folding import (
    ChangeFolding,
    hidden_columns,
    is_removed_from,
    is_touched,
    known_hidden,
)
from ticdc_assets.mirrors.history import HistoryFolding, goes_on_from
from ticdc_assets.mirrors.misfits import Doubts, Misfits
from ticdc_assets.mirrors.table_writing import FoundKeys, TableWriter, table_writer
from ticdc_assets.mirrors.truncation_points import Base
from ticdc_assets.mirrors.validity import Knowledge
from ticdc_assets.mirrors.versions import has_rescued
from ticdc_assets.model.schemas import TableSchema, schema_to_text
from ticdc_assets.registry.evolution import Origin
from ticdc_assets.rows.finding import Keys, keys_of
from ticdc_assets.rows.fold_runs import ChangedKeys, Folded
from ticdc_assets.rows.history_layout import HistoryLayout
from ticdc_assets.rows.history_operations import current_operations
from ticdc_assets.rows.mirror_rows import PARTIAL, MirrorLayout, marked, may_be_rescued
from ticdc_assets.rows.rows_of_work import Rows
from ticdc_assets.spark.executing import INLINE_ROWS

KEYLESS_BYTES = 64 << 20
"""Bytes of changes above which a mirror or a history without a key is rewritten.

Its rows are their own keys, and this process holds the keys of changed rows.
"""


class MirrorMaker:
    """Makes the mirrors of one apply, each by itself."""

    def __init__(
        self,
        changes: ChangeFolding,
        knowledge: Knowledge,
        misfits: Misfits,
        *,
        last: Cut | None,
        tso: int,
    ) -> None:
        self._lake = changes.lake
        self._changes = changes
        self._known = knowledge
        self._misfits = misfits
        self._tso = tso
        self._before: dict[str, Base] = {}
        self._pasts: dict[str, str] = {}
        if last is not None:
            self._before = {
                item.mirror_id: Base(mirror=item, tso=last.tso) for item in last.mirrors
            }
            # Of each history at the last cut, as known today.
            then = knowledge.plan(last.tso)
            self._pasts = {item.mirror_id: item.past_digest for item in then.mirrors}
        self._histories = HistoryFolding(changes)
        self._ready: dict[str, MirrorCut] = {}

    def is_ready(self, mirror: MirrorPlan) -> bool:
        """Return whether `make_new` has made a mirror."""
        return mirror.mirror_id in self._ready

    def make(self, mirror: MirrorPlan, stale: bool) -> MirrorCut:
        """Make a mirror unless it is ready, and its history if one is kept."""
        ready = self._ready.pop(mirror.mirror_id, None)
        entry = ready or undisturbed(lambda: self._make_mirror(mirror, stale))
        if not self._lake.changefeed.keeps_history(*mirror.name):
            return entry
        return undisturbed(lambda: self._make_history(mirror, stale, entry))

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
        writer = self._writer(MirrorLayout, mirror, before.mirror.version)
        if self._goes_on(writer, MirrorLayout, mirror, before):
            return self._change(mirror, before, writer, altered=is_touched_now, changed=changed)
        return self._overwrite(mirror, before, Mode.REWRITE)

    def _writer(
        self,
        layout: type[MirrorLayout | HistoryLayout],
        mirror: MirrorPlan,
        published: int | None,
    ) -> TableWriter:
        table_layout = layout(schema=mirror.schema)
        return table_writer(
            self._lake, table_layout, mirror.name, mirror.mirror_id, published=published
        )

    def _goes_on(
        self,
        writer: TableWriter,
        layout: type[MirrorLayout | HistoryLayout],
        plan: MirrorPlan,
        base: Base,
    ) -> bool:
        """Begin with the rows of the last cut; return whether only what changed has to be written.

        Rescued data is stored by column name, so a renamed, dropped or widened column must have no
        entry in it.
        """
        was = base.mirror
        version, rows = was.version, was.rows
        if layout is HistoryLayout:
            assert was.history_version is not None
            version, rows = was.history_version, was.history_rows or 0
        writer.begin(version)
        if is_touched(plan, base):
            old, new = layout(schema=was.table_schema), layout(schema=plan.schema)
            zone = self._lake.changefeed.timezone
            carrier = RowCarrier(old.schema, plan, zone, since_ts=base.tso)
            origin = _origin(old, new, carrier.origins())
            if origin is None or is_removed_from(plan, base.tso):
                return False
            types = {name: new.arrow.field(name).type for name in origin}
            moved = {
                item.name
                for item in old.arrow
                if origin.get(item.name) != item.name or types[item.name] != item.type
            }
            # These need Delta features that not every reader has.
            if moved and not writer.takes_features(rows):
                return False
            if isinstance(old, MirrorLayout):
                # A history has the texts of any values that a later type could not hold.
                moved &= {item.name for item in old.schema.columns if may_be_rescued(item)}
            if moved and has_rescued(writer.table, version, old.rescued, moved):
                return False
            writer.alter(origin)
        if plan.schema.handle_key:
            return True
        return self._changes.changes(plan, base.tso, self._tso).size <= KEYLESS_BYTES

    def _carried(self, mirror: MirrorPlan, before: MirrorCut) -> MirrorCut:
        return self._entry(
            mirror,
            Mode.CARRIED,
            version=before.version,
            rows=before.rows,
            hidden=before.hidden,
            quarantined=before.quarantined,
            unknown_deletes=before.unknown_deletes,
            casts=before.casts,
        )

    def _entry(
        self,
        mirror: MirrorPlan,
        mode: Mode,
        *,
        version: int,
        rows: int,
        hidden: list[str],
        quarantined: int,
        unknown_deletes: int,
        casts: Counter[tuple[str, int]],
        changes: int = 0,
    ) -> MirrorCut:
        return MirrorCut(
            mirror_id=mirror.mirror_id,
            database=mirror.database,
            table=mirror.table,
            table_id=mirror.table_id,
            generation=self._lake.paths.generation,
            version=version,
            rows=rows,
            hidden=hidden,
            schema=schema_to_text(mirror.schema),
            floor_ts=mirror.floor_ts,
            digest=mirror.digest,
            held=0,
            quarantined=quarantined,
            caveats=[],
            mode=mode,
            changes=changes,
            unknown_deletes=unknown_deletes,
            lenient_casts=casts_listed(casts),
        )

    # All rows -----------------------------------------------------------------------------------

    def _overwrite(self, mirror: MirrorPlan, before: Base | None, mode: Mode) -> MirrorCut:
        """Write the whole mirror, from the last cut's rows or from nothing."""
        base = before if mode is Mode.REWRITE else None
        published = None if before is None else before.mirror.version
        writer = self._writer(MirrorLayout, mirror, published)
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
        rows = _rows_here(folded.rows)
        version = writer.replace(rows, folded.rows.files, self._metadata(mirror, mode=mode))
        self._misfits.quarantine(mirror, folded, is_fold=base is None)
        void = self._misfits.close_void(folded, doubts)
        return self._entry(
            mirror,
            mode,
            version=version,
            rows=counts.copies,
            hidden=hidden_columns(mirror, folded),
            quarantined=counts.errors + (base.mirror.quarantined if base else 0) - void,
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
            watched={key for keys in doubts.values() for key, _ in keys},
        )

    def make_new(self, plan: Plan) -> None:
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
                wanted.append((mirror, rows, self._writer(MirrorLayout, mirror, None)))
        if not wanted:
            return
        tell(
            f"folding {counted(sum(rows for _, rows, _ in wanted), 'change')} of "
            f"{counted(len(wanted), 'new table')}"
        )
        folds = attempted(
            lambda: self._changes.folded_into_files(
                [(mirror, rows, writer.begin_empty()) for mirror, rows, writer in wanted],
                until=self._tso,
            ),
            f"folding {counted(len(wanted), 'new mirror')} at once",
        )
        if isinstance(folds, Failure) or not folds:
            return  # then they are made one by one, which shows the one that fails
        for (mirror, _, writer), folded in zip(wanted, folds, strict=True):
            result = attempted(
                lambda mirror=mirror, writer=writer, folded=folded: self._written(
                    mirror, writer, folded, None, {}
                ),
                f"the mirror of {joined_name(*mirror.name)}",
            )
            if not isinstance(result, Failure):
                self._ready[mirror.mirror_id] = result

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
        entry = self._carried(mirror, before.mirror)
        if altered:
            entry = replace(entry, hidden=known_hidden(mirror, before.mirror.hidden))
        if not changed:
            if not altered and not writer.is_ahead:
                return entry
            mode = Mode.ALTER if altered else Mode.CHANGE
            version = writer.change(None, (), (), self._metadata(mirror, mode=mode))
            return replace(entry, version=version, mode=mode)
        doubts = self._misfits.doubts(mirror)
        folded = self._folded(mirror, writer, before, doubts, with_keys=True)
        counts, keys = folded.counts, folded.keys
        assert keys is not None
        self._misfits.quarantine(mirror, folded, is_fold=False)
        entry = replace(
            entry,
            hidden=hidden_columns(mirror, folded),
            lenient_casts=casts_listed(counts.casts),
            quarantined=entry.quarantined + counts.errors,
        )
        is_nothing = not keys.flags.num_rows
        if is_nothing and not altered and not writer.is_ahead:
            return entry
        mode = Mode.ALTER if is_nothing and altered else Mode.CHANGE
        changes = _Changes(mirror, keys, writer)
        version = writer.change(
            changes.found,
            chain(changes.rows(), _rows_here(folded.rows)),
            folded.rows.files,
            self._metadata(mirror, mode=mode),
        )
        void = self._misfits.close_void(folded, doubts)
        return replace(
            entry,
            version=version,
            rows=entry.rows + changes.put(counts.puts) - changes.gone,
            quarantined=entry.quarantined - void,
            mode=mode,
            changes=counts.changed,
            unknown_deletes=entry.unknown_deletes + changes.unknown_deletes,
        )

    def _metadata(self, mirror: MirrorPlan, **more: object) -> Mapping[str, object]:
        return {"tso": self._tso, "database": mirror.database, "table": mirror.table, **more}

    # Histories ----------------------------------------------------------------------------------

    def _make_history(self, mirror: MirrorPlan, stale: bool, entry: MirrorCut) -> MirrorCut:
        """Bring the history of a mirror to the cut; return the mirror's entry with it."""
        before, same = self._before.get(mirror.mirror_id), None
        published = None if before is None else before.mirror.history_version
        writer = self._writer(HistoryLayout, mirror, published)
        if (
            before is None
            or published is None
            or before.mirror.history_digest != self._pasts.get(mirror.mirror_id)
            or stale
        ):
            # If the change log was truncated, changes are folded after its base.
            base = self._changes.truncation_point.base_of(mirror.mirror_id)
            history = self._overwrite_history(mirror, base, writer)
        else:
            base = before
            is_own = goes_on_from(mirror, base)
            changed = self._known.has_changes(mirror, base.tso, self._tso)
            if is_own and not changed and not is_touched(mirror, base):
                # A manual compaction keeps the rows; a vacuum will remove the files they had.
                same = same_rows_at(writer.table, published)
            if same is not None:
                history = _MadeHistory(version=same, rows=base.mirror.history_rows or 0, unread=0)
            elif is_own and self._goes_on(writer, HistoryLayout, mirror, base):
                history = self._change_history(mirror, base, writer)
            else:
                history = self._overwrite_history(mirror, base, writer)
        was = None if base is None else base.mirror
        if was is None or was.history_since is None:
            since = self._changes.truncation_point.tso_of(mirror.mirror_id)
        else:
            since = was.history_since
        first = mirror
        while first.earlier is not None:
            first = first.earlier
        return replace(
            entry,
            history_version=history.version,
            history_rows=history.rows,
            history_unread=history.unread + ((was.history_unread or 0) if was else 0),
            history_digest=mirror.past_digest,
            history_since=max(since, first.exported.ts if first.exported else 0),
        )

    def _overwrite_history(
        self, plan: MirrorPlan, base: Base | None, writer: TableWriter
    ) -> "_MadeHistory":
        table = writer.table, writer.begin_empty()
        versions = self._histories.folded(plan, until=self._tso, base=base, table=table)
        rows = versions.rows
        version = writer.replace(_rows_here(rows), rows.files, self._metadata(plan))
        return _MadeHistory(version=version, rows=versions.begun, unread=versions.unread)

    def _change_history(self, plan: MirrorPlan, base: Base, writer: TableWriter) -> "_MadeHistory":
        """Add the versions that began since the last cut, and end those before them."""
        schema, layout = plan.schema, HistoryLayout(schema=plan.schema)
        operations = self._histories.operations(plan, above=base.tso, until=self._tso)
        changed, counts = _may_end(operations, schema)
        rows = changed.drop_columns("key")
        keys = _keys_of(rows.rename_columns([*schema.identity, layout.rescued]), layout)
        places = writer.find(keys, count=len(counts), current=layout.valid_to)
        # Of equal rows without a key the oldest end.
        places, rows, numbers = writer.first(places, counts, layout.valid_from)
        current = current_operations(
            rows.rename_columns(layout.places), changed["key"].take(pa.array(numbers)), schema
        )
        table = writer.table, writer.layout()
        versions = self._histories.after(current, operations, schema, table)
        version = writer.change(
            places, _rows_here(versions.rows), versions.rows.files, self._metadata(plan)
        )
        count = (base.mirror.history_rows or 0) - current.num_rows + versions.begun
        return _MadeHistory(version=version, rows=count, unread=versions.unread)


class _MadeHistory(NamedTuple):
    """A version of a history, how many rows it has, and how many changes could not be read."""

    version: int
    rows: int
    unread: int


def _rows_here(rows: Rows) -> Iterator[pa.Table]:
    if rows.table is not None:
        yield rows.table


def _keys_of(rows: pa.Table, layout: MirrorLayout | HistoryLayout) -> Keys:
    inexact = {column.name for column in layout.schema.columns if may_be_rescued(column)}
    return keys_of(rows, layout.schema.identity, inexact, layout.rescued)


def _may_end(operations: Rows, schema: TableSchema) -> tuple[pa.Table, np.ndarray]:
    """Return the keys whose current versions operations may end, and how many each.

    Without a key only a delete ends a version, and one for each copy of a row.

    Returns:
        The key as text, the columns of the key and the rescued data; and counts.
    """
    names = [column.name for column in schema.columns]
    places = [f"c{names.index(name)}" for name in schema.identity]
    rows = operations.select(["key", *places, "rescued", "is_delete"]).table_here()
    may_end = ds.field("key") != "!"
    rows = rows.filter(may_end if schema.handle_key else may_end & ds.field("is_delete"))
    codes = rows["key"].combine_chunks().dictionary_encode().indices.to_numpy()
    _, first, counts = np.unique(codes, return_index=True, return_counts=True)
    return rows.drop_columns("is_delete").take(pa.array(first)).combine_chunks(), counts


_WIDER: dict[pa.DataType, frozenset[pa.DataType]] = {
    pa.int8(): frozenset({pa.int8(), pa.int16(), pa.int32(), pa.int64()}),
    pa.int16(): frozenset({pa.int16(), pa.int32(), pa.int64()}),
    pa.int32(): frozenset({pa.int32(), pa.int64()}),
    pa.float32(): frozenset({pa.float32(), pa.float64()}),
}
"""Types that Delta widens to, where the values' text stays the same; the type itself too."""


def _origin(
    old: MirrorLayout | HistoryLayout,
    new: MirrorLayout | HistoryLayout,
    origins: Mapping[str, Origin] | None,
) -> dict[str, str | None] | None:
    """Return for each column its column before, None if it is new; None if rows change.

    `origins` are those of the upstream columns (`RowCarrier.origins`); None if values are cast.
    """
    added_names = new.names[len(new.schema.columns) :]
    if added_names != old.names[len(old.schema.columns) :]:
        return None
    if origins is None or any(value is not None for _, value in origins.values()):
        return None
    origin: dict[str, str | None] = {
        column.name: origins[column.name][0] for column in new.schema.columns
    }
    origin |= {name: name for name in added_names}
    types = {item.name: item.type for item in old.arrow}
    for item in new.arrow:
        source = origin[item.name]
        if source is not None and item.type not in _WIDER.get(types[source], {types[source]}):
            return None
    return origin


class _Changes:
    """The effect of changes on the rows of a mirror."""

    def __init__(self, mirror: MirrorPlan, keys: ChangedKeys, writer: TableWriter) -> None:
        self._layout = MirrorLayout(schema=mirror.schema)
        self._keys = keys
        self._writer = writer
        row_keys = _keys_of(keys.rows, self._layout)
        self.found: FoundKeys = writer.find(row_keys, count=keys.flags.num_rows)
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
        """Return how many rows are put, including those that only get a mark."""
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
            row_marks = [dict(marks[number])[PARTIAL] for number in numbers.tolist()]
            yield marked(rows, self._layout.rescued, row_marks)
        yield self._as_rows(np.flatnonzero(self._keeps & ~self._is_there))

    def _as_rows(self, places: np.ndarray) -> pa.Table:
        """Return keys as rows without other values."""
        taken = pa.array(places)
        rows = self._keys.rows.take(taken)
        stamps = self._keys.flags["commit_ts"].take(taken)
        values = dict(zip(rows.column_names, rows.columns, strict=True))
        values[self._layout.commit_ts] = stamps
        return filled(self._layout.arrow, len(places), values)
