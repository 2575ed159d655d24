"""Write files of a large table again: joined, or without some of their rows.

In: `raw_messages`, `change_log` or `snapshot_rows`, and some of its files. Out: one commit that
removes these files and adds new ones with the remaining rows. A file that loses no rows is left as
it is. The deciding columns are read first, and the others only if some rows remain. A step reads
and writes the files, in this process or on Spark.

Why running it again is safe: new files have no effect until the commit names them. The log entry is
put only where none exists, so if another program was faster, nothing is committed.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pyarrow as pa

from ticdc_assets.delta.appending import BOUNDED, DISTINCT
from ticdc_assets.delta.committing import commit_state, require_there
from ticdc_assets.delta.control import dataset_of, opened
from ticdc_assets.delta.delta_files import file_at
from ticdc_assets.delta.delta_protocol import Action, LogState, added
from ticdc_assets.delta.files import (
    FileWriter,
    WrittenFile,
    gathered,
    read_bounded_as,
    read_footer,
    texts_of,
)
from ticdc_assets.spark.executing import executor
from ticdc_assets.spark.session import Session
from ticdc_assets.storage.paths import AnyPath

Staying: TypeAlias = Callable[[pa.Table], pa.Table]
"""A picklable function that returns the rows of a table that remain."""

_READ_ROWS = 5_000
_GROUP_ROWS = 50_000
_GROUP_BYTES = 32 << 20
_LIGHTNESS = 50
"""How many rows can be copied between files for the cost of one row of another step."""

_CHECKPOINT_INTERVAL = 10


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
        metadata: JSON object that the commit carries.
        does: what the work does, for progress messages.
    """

    spark: Session
    table: AnyPath
    metadata: Mapping[str, Any]
    does: str

    def join(self, state: LogState, groups: Sequence[Sequence[Action]]) -> int:
        """Join the files of each group into one; the rows stay as they are.

        Args:
            state: the newest version of the table.
            groups: files of that version; those of a group are in one partition.

        Returns:
            The new version of the table.

        Raises:
            ConflictError: another program committed meanwhile.
        """
        copied = self._copied(state, groups, None, ())
        gone = {action["path"] for group in groups for action in group}
        files = [file for item in copied for file in item.files]
        return self._commit(state, gone, files, "OPTIMIZE", changes_rows=False)

    def remove(
        self,
        state: LogState,
        files: Sequence[Action],
        stay: Staying,
        columns: Sequence[str],
        *,
        properties: Mapping[str, str],
    ) -> int:
        """Remove rows from files; there is no commit if all rows stay.

        Args:
            state: the newest version of the table.
            files: files of that version.
            stay: returns the rows that stay.
            columns: the columns by which it decides.
            properties: table properties that the commit sets.

        Returns:
            How many rows were removed.

        Raises:
            ConflictError: another program committed meanwhile.
        """
        copied = self._copied(state, [[action] for action in files], stay, columns)
        changed = [
            (action, item)
            for action, item in zip(files, copied, strict=True)
            if item.left < item.before
        ]
        if changed:
            gone = {action["path"] for action, _ in changed}
            new = [file for _, item in changed for file in item.files]
            wanted = _with_properties(state, properties)
            self._commit(state, gone, new, "DELETE", changes_rows=True, wanted=wanted)
        return sum(item.before - item.left for _, item in changed)

    def remove_files(
        self, state: LogState, gone: Collection[str], *, properties: Mapping[str, str]
    ) -> int:
        """Remove whole files, possibly none, in one commit that sets table properties.

        Args:
            state: the newest version of the table.
            gone: the files, as `state` names them.
            properties: the properties.

        Returns:
            The new version of the table.

        Raises:
            ConflictError: another program committed meanwhile.
        """
        wanted = _with_properties(state, properties)
        operation = "DELETE" if gone else "SET TBLPROPERTIES"
        return self._commit(state, gone, (), operation, changes_rows=bool(gone), wanted=wanted)

    def _copied(
        self,
        state: LogState,
        groups: Sequence[Sequence[Action]],
        stay: Staying | None,
        columns: Sequence[str],
    ) -> list[_Copied]:
        table = self.table
        whole = dataset_of(opened(table, state.version), table).schema
        partitioned = state.metadata.get("partitionColumns") or []
        schema = pa.schema([field for field in whole if field.name not in partitioned])
        deciding = pa.schema([schema.field(name) for name in columns])
        places = [
            ([file_at(table, action["path"]) for action in group], _partition(group[0]))
            for group in groups
        ]

        def copied(
            some: Iterable[tuple[Sequence[AnyPath], Mapping[str, str]]],
        ) -> Iterator[_Copied]:
            for paths, partition in some:
                before = sum(read_footer(path).num_rows for path in paths)
                left = before
                if stay is not None:
                    left = sum(rows.num_rows for rows in _read(paths, deciding, stay))
                if stay is not None and left in (0, before):
                    yield _Copied(before, left, ())
                    continue
                writer = FileWriter(
                    table, schema, partition=partition, bounded=BOUNDED, distinct=DISTINCT
                )
                rows = _read(paths, schema, stay)
                for group in gathered(rows, rows=_GROUP_ROWS, size=_GROUP_BYTES):
                    writer.write(group)
                yield _Copied(before, left, (writer.close(),))

        size = sum(action["size"] for group in groups for action in group)
        runs_on = executor(
            self.spark,
            table,
            self.does,
            rows=_rows_of(groups),
            size=size // _LIGHTNESS,
            lightness=_LIGHTNESS,
        )
        return runs_on.run(copied, places, tasks=len(places))

    def _commit(
        self,
        state: LogState,
        gone: Collection[str],
        files: Sequence[WrittenFile],
        operation: str,
        *,
        changes_rows: bool,
        wanted: LogState | None = None,
    ) -> int:
        require_there(self.table, files)
        staying = [action for action in state.files if action["path"] not in gone]
        return commit_state(
            self.table,
            state,
            replace(wanted or state, files=(*staying, *added(files))),
            self.metadata,
            operation=operation,
            changes_rows=changes_rows,
            checkpoint_interval=_CHECKPOINT_INTERVAL,
        )


def _with_properties(state: LogState, properties: Mapping[str, str]) -> LogState:
    configuration = {**state.configuration, **properties}
    return replace(state, metadata={**state.metadata, "configuration": configuration})


def _rows_of(groups: Sequence[Sequence[Action]]) -> int:
    return sum(
        json.loads(action.get("stats") or "{}").get("numRecords", 0)
        for group in groups
        for action in group
    )


def _partition(action: Action) -> dict[str, str]:
    return dict(action.get("partitionValues") or {})


def _read(paths: Iterable[AnyPath], schema: pa.Schema, stay: Staying | None) -> Iterator[pa.Table]:
    """Yield the rows of files that remain, in tables of bounded size."""
    names = schema.names
    for path in paths:
        for group in range(read_footer(path).num_row_groups):
            for batch in read_bounded_as(
                path,
                group,
                schema,
                names,
                None,
                large=texts_of(schema, names),
                most=_READ_ROWS,
            ):
                rows = pa.Table.from_batches([batch])
                yield rows if stay is None else stay(rows)
