"""Write files of a table again: joined, or without some of their rows.

In: a table that is no mirror and no history; and the files to join, a condition on the rows
to remove, or the files to remove. Out: one commit that removes these files, adds new ones with the
remaining rows, and sets table properties. A file that loses no rows is left as it is, and rows stay
if the condition is unknown for them. The columns of the condition are read first, and the others
only if some rows remain. A step reads and writes the files, in this process or on Spark.

Why running it again is safe: removed rows are not found again, and then there is no commit. New
files have no effect until the commit names them. The log entry is put only where none exists, so if
another program was faster, nothing is committed and the work starts again.
"""

# pyright: reportAttributeAccessIssue=false

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ticdc_assets.delta.appending import BOUNDED, DISTINCT
from ticdc_assets.delta.committing import commit_state, undisturbed
from ticdc_assets.delta.control import commit_metadata, dataset_of
from ticdc_assets.delta.delta_files import file_of
from ticdc_assets.delta.delta_protocol import Action, LogState, partition_of
from ticdc_assets.delta.files import FileLayout, WrittenFile, row_groups, write_rows
from ticdc_assets.delta.opening import open_table
from ticdc_assets.rows.rows_of_work import Rows
from ticdc_assets.spark.driver import Session
from ticdc_assets.spark.executing import executor
from ticdc_assets.storage.paths import AnyPath

_LARGE = frozenset({"raw_messages", "change_log", "snapshot_rows"})
"""The tables with a row for each record, change or exported row."""

_CONTROL_ROWS = 128
"""The most rows of a row group of another table: a row of `cuts` may have thousands of mirrors.

A reader of one row reads a row group.
"""

_LIGHTNESS = 50
"""How many rows can be copied between files for the cost of one row of another step."""


@dataclass(frozen=True, slots=True)
class _Copied:
    before: int
    left: int
    files: tuple[WrittenFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewriter:
    """Writes files of a table again.

    Args:
        spark: the session, which does not start if the work is small.
        table: folder of the table.
        does: what the work does, for progress messages.
        properties: table properties that a commit sets.

    Raises:
        ConflictError: other programs committed meanwhile, several times.
        LakeDamagedError: the table is broken.
    """

    spark: Session
    table: AnyPath
    does: str
    properties: Mapping[str, str] = field(default_factory=dict[str, str])

    def join(self, together: Callable[[Sequence[Action]], Sequence[Sequence[Action]]]) -> None:
        """Join files, each group into one or few; the rows stay as they are.

        Args:
            together: from the files of the newest version to the groups; those of a group are in
                one partition. There is no commit without a group.
        """

        def join() -> None:
            state = self._state()
            groups = together(state.files)
            if groups:
                files = [file for item in self._copied(state, groups) for file in item.files]
                gone = {action["path"] for group in groups for action in group}
                self._commit(state, gone, files, joins=True)

        undisturbed(join)

    def going(
        self, may_go: ds.Expression, gone: ds.Expression, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Yield columns of the rows to remove, which may be very many; see `remove`."""
        dataset = dataset_of(self._state(), self.table)
        yield from dataset.to_batches(
            columns=list(columns), filter=may_go & surely(gone), batch_readahead=2
        )

    def remove(self, may_go: ds.Expression, gone: ds.Expression, columns: Sequence[str]) -> int:
        """Remove rows, possibly none, and set the properties; return how many.

        Args:
            may_go: a condition that all removed rows meet; files without such rows are not read.
            gone: the condition for removal.
            columns: the columns of the condition.
        """

        def remove() -> int:
            state = self._state()
            dataset = dataset_of(state, self.table)
            names = {str(path) for path, _ in row_groups(dataset, self.table, may_go)}
            actions = [item for item in state.files if str(file_of(self.table, item)) in names]
            copied = self._copied(state, [[item] for item in actions], ~surely(gone), columns)
            changed = [
                (action["path"], item)
                for action, item in zip(actions, copied, strict=True)
                if item.left < item.before
            ]
            if changed or self.properties:
                files = [file for _, item in changed for file in item.files]
                self._commit(state, {path for path, _ in changed}, files)
            return sum(item.before - item.left for _, item in changed)

        return undisturbed(remove)

    def remove_files(self, paths: Collection[str]) -> None:
        """Remove whole files, possibly none, by their names in the table's log."""
        undisturbed(lambda: self._commit(self._state(), paths, ()))

    def _state(self) -> LogState:
        return open_table(self.table) or LogState()

    def _copied(
        self,
        state: LogState,
        groups: Sequence[Sequence[Action]],
        stays: ds.Expression | None = None,
        columns: Sequence[str] = (),
    ) -> list[_Copied]:
        """Write the rows of each group that meet a condition on some columns into a file."""
        table = self.table
        group_rows = None if table.name in _LARGE else _CONTROL_ROWS
        partitioned = state.partition_columns
        schema = pa.schema([item for item in state.schema if item.name not in partitioned])
        places = [
            (
                [file_of(table, action) for action in group],
                partition_of(group[0]),
            )
            for group in groups
        ]

        def copied(
            some: Iterable[tuple[Sequence[AnyPath], Mapping[str, str]]],
        ) -> Iterator[_Copied]:
            for paths, partition in some:
                rows = Rows.of_files(paths, schema)
                left = before = rows.count
                if stays is not None:
                    rows = replace(rows, condition=stays)
                    left = sum(batch.num_rows for batch in rows.select(columns).read())
                    if left in (0, before):
                        yield _Copied(before, left, ())
                        continue
                layout = FileLayout(
                    schema=schema, bounded=BOUNDED, distinct=DISTINCT, partition=partition
                )
                tables = map(pa.table, rows.read())
                files = write_rows(table, layout, tables, group_rows=group_rows)
                yield _Copied(before, left, tuple(files))

        actions = [action for group in groups for action in group]
        stats = [json.loads(action.get("stats") or "{}") for action in actions]
        runs_on = executor(
            self.spark,
            table,
            self.does,
            rows=sum(item.get("numRecords", 0) for item in stats),
            size=sum(item["size"] for item in actions) // _LIGHTNESS,
            lightness=_LIGHTNESS,
        )
        return runs_on.run(copied, places, tasks=len(places))

    def _commit(
        self,
        state: LogState,
        gone: Collection[str],
        files: Sequence[WrittenFile],
        *,
        joins: bool = False,
    ) -> None:
        operation = "OPTIMIZE" if joins else "DELETE" if gone else "SET TBLPROPERTIES"
        staying = [action for action in state.files if action["path"] not in gone]
        metadata = state.metadata
        if self.properties:
            metadata = {**metadata, "configuration": {**state.configuration, **self.properties}}
        commit_state(
            self.table,
            state,
            replace(state, files=staying, metadata=metadata),
            files,
            commit_metadata(self.table),
            operation=operation,
        )


def surely(condition: ds.Expression) -> ds.Expression:
    """Return a condition that is false where the other one is unknown."""
    return pc.coalesce(condition, ds.scalar(False))
