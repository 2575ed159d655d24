"""Histories: every version of every row of a table, with its validity.

In: the plan of a table at a cut, the change log, and the history to continue. Out: the versions at
the cut's TSO, in this process or in files (`Versions`). `mirror_making` makes Delta tables of
them.

A version is valid for the cuts in [valid_from, valid_to). Tests compare the versions with
`ticdc_assets_tests/reference/history_fold.py`.

Why running it again is safe: it writes only files of one run, which no commit names.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa
import pyarrow.dataset as ds

from ticdc_assets.changelog.carrying import VersionEvent
from ticdc_assets.changelog.plan import HandoverPart, MirrorPlan, earlier_first
from ticdc_assets.delta.files import FileLayout
from ticdc_assets.delta.row_schema import filled_batch
from ticdc_assets.log.cuts import MirrorCut
from ticdc_assets.mirrors.change_folding import ChangeFolding
from ticdc_assets.mirrors.truncation_points import Base
from ticdc_assets.mirrors.versions import mirror_rows, rows_as_stored
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.rows.bag_operations import of_no_change
from ticdc_assets.rows.folding import with_origins
from ticdc_assets.rows.history_layout import (
    HistoryLayout,
    column_places,
    history_operation_schema,
    version_schema,
)
from ticdc_assets.rows.history_operations import Passage, history_operations
from ticdc_assets.rows.history_versions import fold_versions
from ticdc_assets.rows.mirror_rows import ArrowMap, MirrorLayout
from ticdc_assets.rows.rows_of_work import (
    READ_ROWS,
    Rows,
    Sort,
    buckets_for,
    in_buckets,
    kept,
    reduced,
)
from ticdc_assets.spark.executing import executor
from ticdc_assets.storage.paths import AnyPath


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """The result of a fold into versions.

    The rows have the columns of `version_schema`; `begun` of them are versions, and `unread` are
    changes that could not be read.
    """

    rows: Rows
    begun: int
    unread: int


_VersionsBefore: TypeAlias = tuple[Rows, ArrowMap, bool]
"""Versions that changes are folded after, their function to operations, and whether ended ones stay
unchanged.
"""


class HistoryFolding:
    """Folds the changes of tables into versions; writes nothing.

    If `only_key` is set (as `RowResolver` returns it), only the row of this key is folded.
    """

    def __init__(self, changes: ChangeFolding, *, only_key: str | None = None) -> None:
        self._lake = changes.lake
        self._timezone = changes.lake.changefeed.timezone
        self._changes = changes
        self._only_key = None if only_key is None else "=" + only_key

    def folded(
        self,
        plan: MirrorPlan,
        *,
        until: int,
        base: Base | None = None,
        table: tuple[AnyPath, FileLayout] | None = None,
    ) -> Versions:
        """Return the versions up to a cut.

        Earlier plans are folded first; a table may have started again many times.

        Args:
            plan: the table's plan at the cut.
            until: TSO of the cut.
            base: the mirror whose history is continued, or whose rows are the versions to continue
                if it has none; None to fold all changes.
            table: folder and layout of the table that the versions are written for; then the rows
                have the columns of `HistoryLayout` and are all versions.
        """
        folded: dict[int, Versions] = {}
        for item in _past_first(plan, base):
            # A key may have changed since: the wanted row is known only by its last key.
            only_key = self._only_key if item is plan else None
            ends_at = until if item is plan else item.bindings[-1].until_ts
            assert ends_at is not None
            sources: list[_VersionsBefore] = []
            above = 0
            if base is not None and goes_on_from(item, base):
                above = base.tso
                passage = Passage(
                    schema=base.mirror.table_schema,
                    plan=item,
                    timezone=self._timezone,
                    since_ts=base.tso,
                )
                sources.append(self._of_cut(base.mirror, passage, only_key))
            else:
                sources += [
                    _passed(folded[id(source)].rows, passage, only_key)
                    for source, passage in self._passages(item)
                ]
            folded[id(item)] = self._fold(
                item.schema,
                self._changes.changes(item, above, ends_at),
                self._conversion(item, above, only_key),
                sources,
                table if item is plan else None,
            )
        return folded[id(plan)]

    def _passages(self, plan: MirrorPlan) -> Iterator[tuple[MirrorPlan, Passage]]:
        """Yield the plans whose versions a plan begins with, and how they are passed on."""
        parts = plan.parts
        own_part: HandoverPart | None = next(
            (part for part in parts if part.plan.mirror_id == plan.mirror_id), None
        )
        if plan.earlier is not None:
            ends = VersionEvent.EXCHANGE if parts else VersionEvent.TRUNCATE
            yield (
                plan.earlier,
                Passage(
                    schema=plan.earlier.schema,
                    plan=plan,
                    timezone=self._timezone,
                    part=own_part,
                    ends=ends,
                ),
            )
        begins = VersionEvent.RECOVER if plan.earlier is None else VersionEvent.EXCHANGE
        for part in parts:
            if part is not own_part:
                passage = Passage(
                    schema=part.plan.schema,
                    plan=plan,
                    timezone=self._timezone,
                    part=part,
                    begins=begins,
                )
                yield part.plan, passage

    def _of_cut(self, mirror: MirrorCut, passage: Passage, only_key: str | None) -> _VersionsBefore:
        layout = HistoryLayout(schema=mirror.table_schema)
        if mirror.history_version is None:
            rows, convert = mirror_rows(self._lake.paths, mirror), _as_versions(layout.schema)
            operations = passage.operations(only_key)
            return rows, lambda batches: operations(convert(batches)), False
        stored = rows_as_stored(*mirror.history_at(self._lake.paths))
        # Columns that the files do not have under any name are null.
        names = dict(zip(stored.schema.names, stored.stored, strict=True))
        stored_names = tuple(names[name] for name in layout.names)
        rows = replace(
            stored, schema=version_schema(layout.schema), stored=stored_names
        ).here_if_few()
        return _passed(rows, passage, only_key)

    def _conversion(self, plan: MirrorPlan, above: int, only_key: str | None = None) -> ArrowMap:
        convert = history_operations(plan, self._timezone, only_key)
        return self._changes.with_origins(convert, plan, above)

    # After the current versions ---------------------------------------------------------------

    def operations(self, plan: MirrorPlan, *, above: int, until: int) -> Rows:
        """Return the operations of the plan's changes in (above, until]."""
        changes = self._changes.changes(plan, above, until)
        convert, schema = self._conversion(plan, above), _operation_schema(plan.schema)
        runs_on = executor(
            self._lake.spark,
            self._lake.paths.base,
            "reading the changes of a history",
            rows=changes.count,
            size=changes.size,
        )
        folder = None if runs_on.holds else self._changes.scratch.folder()

        def step(parts: Iterable[Rows]) -> Iterator[Rows]:
            for part in parts:
                for operations in convert(part.read()):
                    yield kept(pa.Table.from_batches([operations]), folder)

        parts = changes.parts()
        rows = runs_on.run(step, parts, tasks=len(parts))
        return Rows.joined(rows or [kept(schema.empty_table(), folder)])

    def after(
        self,
        current: pa.Table,
        operations: Rows,
        schema: TableSchema,
        table: tuple[AnyPath, FileLayout],
    ) -> Versions:
        """Fold operations after current versions."""
        # Many go to workers as operations do: in files.
        folder = None if operations.table is not None else self._changes.scratch.folder()
        some = (current.slice(at, READ_ROWS) for at in range(0, current.num_rows, READ_ROWS))
        rows = Rows.joined([kept(item, folder) for item in some] or [Rows.here(current)])
        return self._fold(schema, operations, _unchanged, [(rows, _unchanged, False)], table)

    # Folding ------------------------------------------------------------------------------------

    def _fold(
        self,
        schema: TableSchema,
        changes: Rows,
        convert: ArrowMap,
        before: Sequence[_VersionsBefore],
        table: tuple[AnyPath, FileLayout] | None,
    ) -> Versions:
        """Fold changes after versions, in this process or in Spark's workers."""
        count = changes.count + sum(rows.count for rows, _, _ in before)
        size = changes.size + sum(rows.size for rows, _, _ in before)
        spark, place = self._lake.spark, self._lake.paths.base
        runs_on = executor(spark, place, "folding a history", rows=count, size=size)
        layout = HistoryLayout(schema=schema)
        folder, files = table or (self._changes.scratch.folder(), None)
        if runs_on.holds:
            folder = None
        buckets = buckets_for(count, size, runs_on.workers)
        operation_schema, versions = _operation_schema(schema), version_schema(schema)

        def of_changes(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
            for operations in convert(batches):
                yield from in_buckets(operations, buckets)

        def of_earlier(of_versions: ArrowMap, keeps_ended: bool) -> Sort:
            def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
                for number, batch in enumerate(batches):
                    if keeps_ended:
                        # Ended versions do not change. They bypass the fold, in separate buckets.
                        ended = batch.filter(batch.column("valid_to").is_valid())
                        yield buckets + number % buckets, ended
                        batch = batch.filter(batch.column("valid_to").is_null())
                    for operations in of_versions([batch]):
                        earlier = operations if schema.handle_key else of_no_change(operations)
                        yield from in_buckets(earlier, buckets)

            return rows

        def folded(bucket: int, batches: Iterator[pa.RecordBatch]) -> Iterator[Versions]:
            if bucket >= buckets:
                rows = pa.Table.from_batches(batches, versions)
            else:
                rows = fold_versions(pa.Table.from_batches(batches, operation_schema), schema)
            unread = rows["valid_from"].null_count
            begun = rows.num_rows - unread
            if table is not None:
                rows = rows.filter(ds.field("valid_from").is_valid()).rename_columns(layout.names)
            yield Versions(rows=kept(rows, folder, files), begun=begun, unread=unread)

        sources = [
            (changes, of_changes),
            *((rows, of_earlier(of_versions, ended)) for rows, of_versions, ended in before),
        ]
        parts = reduced(runs_on, sources, folded, buckets=2 * buckets) or [*folded(0, iter(()))]
        return Versions(
            rows=Rows.joined([part.rows for part in parts]),
            begun=sum(part.begun for part in parts),
            unread=sum(part.unread for part in parts),
        )


def _operation_schema(schema: TableSchema) -> pa.Schema:
    """Return the Arrow schema of operations; without a key they have their changes."""
    operations = history_operation_schema(schema)
    return operations if schema.handle_key else with_origins(operations)


def _unchanged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _passed(rows: Rows, passage: Passage, only_key: str | None) -> _VersionsBefore:
    return rows, passage.operations(only_key), passage.keeps_ended and only_key is None


def _as_versions(schema: TableSchema) -> ArrowMap:
    """Return the function from the rows of a mirror to versions; how they came is unknown."""
    layout, target = MirrorLayout(schema=schema), version_schema(schema)

    names = [column.name for column in schema.columns]

    def versions(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in batches:
            columns = (rows.column(name) for name in names)
            values = dict(zip(column_places(schema), columns, strict=True)) | {
                "valid_from": rows.column(layout.commit_ts),
                "op": str(VersionEvent.KEPT),
                "rescued": rows.column(layout.rescued),
            }
            yield filled_batch(target, rows.num_rows, values)

    return versions


def _past_first(plan: MirrorPlan, base: Base | None) -> list[MirrorPlan]:
    """Return the plans that a history comes from, oldest first."""

    def before(item: MirrorPlan) -> list[MirrorPlan]:
        return [] if base is not None and goes_on_from(item, base) else item.pasts

    return earlier_first(plan, before)


def goes_on_from(plan: MirrorPlan, base: Base) -> bool:
    """Whether the history was made by this plan, not by an earlier one."""
    return (plan.mirror_id, plan.floor_ts) == (base.mirror.mirror_id, base.mirror.floor_ts)
