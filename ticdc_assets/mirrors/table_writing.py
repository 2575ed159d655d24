"""Writing a mirror or a history: one commit from the version that a cut names to the next one.

In: the table, the keys of rows that are replaced or gone, and new rows. Out: the table's next
version. There is one way, whatever the size: a search finds the keys' positions in the live files
(`rows.finding`), new rows are written as new files, and one log entry names the version's files. A
file that loses rows gets a deletion vector, or its other rows are written again;
`file_fates` decides that for each file. If every row is new, all files go.

Where the work runs: in this process if few rows are searched; otherwise each file is a part of a
step (`executing`).

Why running it again is safe: a file or a vector has no effect until a commit names it. The log
entry is put only where none exists (`storage.creating`), so nothing is committed if another program
was faster. The entry is the difference between the newest version and the wanted one. So it takes
back commits of a killed run, which no cut names, and rows that others changed.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import chain, islice
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from ticdc_assets.base.names import joined_name
from ticdc_assets.config import Retention
from ticdc_assets.delta.commits import CommitError, same_rows_at
from ticdc_assets.delta.committing import commit_state
from ticdc_assets.delta.control import LOG_RETENTION
from ticdc_assets.delta.damage import reading
from ticdc_assets.delta.delta_files import file_of, vector_of
from ticdc_assets.delta.delta_protocol import (
    VECTORS,
    Action,
    DeletionVector,
    FeatureError,
    LogState,
    altered,
    features_of,
    file_changes,
    new_state,
    require_written,
    stored_id,
    stored_name,
    vector_with,
    with_counts,
    with_features,
    with_vector,
    write_vectors,
)
from ticdc_assets.delta.files import (
    FileLayout,
    WrittenFile,
    in_row_groups,
    layout_of,
    read_footer,
    write_rows,
)
from ticdc_assets.delta.lake import Lake
from ticdc_assets.delta.log_reading import log_state
from ticdc_assets.delta.renewing import renew_if_lost
from ticdc_assets.mirrors import file_fates
from ticdc_assets.mirrors.file_fates import (
    Fate,
    LiveRows,
    about_as_large,
    compacted_together,
    fate_of,
)
from ticdc_assets.rows.finding import FoundRows, Keys, Numbers, SearchedFile, find, rows_at
from ticdc_assets.rows.history_layout import HistoryLayout
from ticdc_assets.rows.mirror_rows import MirrorLayout
from ticdc_assets.rows.rows_of_work import Rows
from ticdc_assets.spark.driver import Session
from ticdc_assets.spark.executing import executor
from ticdc_assets.storage.paths import AnyPath

_LOGGER = logging.getLogger(__name__)
T = TypeVar("T")

_SEARCHED = 1_000
"""How many rows' keys can be searched for the cost of one row of another step."""

_COPIED = 50
"""How many rows can be copied between files for the cost of one row of another step."""

_STAYING = frozenset({Fate.KEPT, Fate.MARKED, Fate.COPIED})
"""What happens to a file that new rows may join."""

_CHECKPOINT_INTERVAL = 20
"""How many commits there are from one checkpoint to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundKeys:
    """The places of keys in a table.

    For each file the rows that have one of the keys; and how many rows each key has, by its number.
    """

    files: Sequence[tuple[LiveRows, FoundRows]]
    counts: Numbers

    def rows(
        self, wanted: np.ndarray[Any, np.dtype[np.bool_]], writer: "TableWriter"
    ) -> Iterator[tuple[pa.Table, Numbers]]:
        """Yield the rows of wanted keys, file by file, with each row's key number."""
        for file, hits in self.files:
            chosen = hits.where(wanted)
            if len(chosen.positions):
                yield writer.rows_at(file, chosen), chosen.keys


def table_writer(
    lake: Lake,
    layout: MirrorLayout | HistoryLayout,
    name: tuple[str, str],
    mirror_id: str,
    *,
    published: int | None = None,
) -> "TableWriter":
    """Return the writer of a mirror, or of its history.

    `published` is the newest version that a cut names.
    """
    table, label = lake.paths.mirror(mirror_id), joined_name(*name)
    if isinstance(layout, HistoryLayout):
        table, label = lake.paths.history(mirror_id), f"the history of {label}"
    return TableWriter(
        lake.spark,
        table,
        layout.arrow,
        key=layout.schema.handle_key,
        rescued=layout.rescued,
        label=label,
        retention=lake.changefeed.retention,
        portable=lake.changefeed.readers.portable.includes(*name),
        published=published,
    )


def mirror_properties(retention: Retention) -> dict[str, str]:
    """Return the properties that keep what kept cuts need from Delta and a manual VACUUM."""
    longest = retention.longest
    if longest is None:
        return {
            "delta.logRetentionDuration": LOG_RETENTION,
            "delta.deletedFileRetentionDuration": LOG_RETENTION,
        }
    # Twice as long: a base may have to stay longer than configured, until there is another one.
    hours = max(2 * longest, longest + timedelta(days=7)) // timedelta(hours=1)
    return {
        "delta.logRetentionDuration": LOG_RETENTION,
        "delta.deletedFileRetentionDuration": f"interval {min(hours, 3650 * 24)} hours",
    }


@dataclass(eq=False)
class TableWriter:
    """Writes the next version of a mirror or of a history.

    Attributes:
        spark: the session, which is not used if the work is small.
        table: folder of the table.
        schema: its new columns.
        key: names of the key columns.
        rescued: name of the column of rescued data.
        label: the table's name in messages.
        retention: the configured ages.
        portable: whether it stays without features that not every reader has.
        published: the newest version that a cut names; None if none does.
    """

    spark: Session
    table: AnyPath
    schema: pa.Schema
    key: Sequence[str]
    rescued: str
    label: str
    retention: Retention
    portable: bool
    published: int | None
    _newest: LogState = field(default_factory=LogState, init=False)
    _state: LogState = field(default_factory=LogState, init=False)

    @property
    def _configuration(self) -> dict[str, str]:
        checkpoints = {"delta.checkpointInterval": str(_CHECKPOINT_INTERVAL)}
        return checkpoints | mirror_properties(self.retention)

    # The base version -------------------------------------------------------------------------

    def begin(self, version: int) -> None:
        """Continue from the rows of a version."""
        self._newest = self._read()
        base = version
        if self._newest.version != version:
            # A manual compaction keeps the rows.
            same = same_rows_at(self.table, version)
            base = version if same is None else same
        is_newest = base == self._newest.version
        self._state = self._newest if is_newest else self._read(base)
        self._require_written()

    def begin_empty(self) -> FileLayout:
        """Continue without the existing rows; return the layout of files of new rows."""
        if self.published is not None:
            renew_if_lost(self.table, self.published, self._configuration)
        self._newest = self._read()
        self._state = new_state(self.schema, self._newest, self._configuration)
        self._require_written()
        return self.layout()

    def _read(self, version: int | None = None) -> LogState:
        with reading(self.table, version):
            return log_state(self.table, version)

    def _require_written(self) -> None:
        features = features_of(self._newest)
        if self.portable and features:
            _LOGGER.warning(
                "%s is configured as portable, but already has the Delta features %s; it keeps "
                "them, and not every reader supports them",
                self.label,
                ", ".join(features),
            )
            self.portable = False
        try:
            require_written(self._newest)
        except FeatureError as error:
            raise CommitError(f"{self.label}: {error}") from None

    def layout(self) -> FileLayout:
        """Return the layout of files of new rows."""
        stored = {item["name"]: (stored_name(item), stored_id(item)) for item in self._state.fields}
        return layout_of(self.schema, stored, self.key)

    def takes_features(self, rows: int) -> bool:
        """Return whether the table may get features that not every reader has.

        Writing few rows again costs less than losing a reader.
        """
        return not self.portable and rows > file_fates.SMALL_ROWS

    @property
    def is_ahead(self) -> bool:
        """Whether the newest version has other rows than the base version."""
        return self._newest.version != self._state.version

    def alter(self, origin: Mapping[str, str | None]) -> None:
        """Change columns while rows do not change (`delta_protocol.altered`)."""
        self._state = altered(self._state, self.schema, origin)

    def live(self, current: str | None = None) -> list[LiveRows]:
        """Return the files of the base version.

        In the wanted rows the column `current` is NULL, if given.
        """
        stored = {item["name"]: stored_name(item) for item in self._state.fields}
        types = {item.name: item.type for item in self.schema}
        files: list[LiveRows] = []
        for action in self._state.files:
            deleted = vector_of(self.table, action)
            path = file_of(self.table, action)
            rows = json.loads(action.get("stats") or "{}").get("numRecords")
            if rows is None:
                rows = read_footer(path).num_rows
                action = with_counts(action, rows)
            files.append(
                LiveRows(
                    action=action,
                    searched=SearchedFile(
                        path=path,
                        deleted=deleted,
                        stored=stored,
                        types=types,
                        current=current,
                        rescued=self.rescued,
                    ),
                    rows=rows,
                    left=rows - (0 if deleted is None else deleted.cardinality),
                )
            )
        return files

    def rows_at(self, file: LiveRows, hits: FoundRows) -> pa.Table:
        """Return rows of a file with the table's columns."""
        return rows_at(file.searched, hits.positions, self.schema, self._stored_names(file))

    def find(self, keys: Keys, *, count: int, current: str | None = None) -> FoundKeys:
        """Return the places of keys.

        If `current` is given, only rows in which this column is NULL are wanted.
        """
        files = self.live(current)
        candidates = [file for file in files if _may_have(file, keys)]
        runs_on = executor(
            self.spark,
            self.table,
            f"finding rows of {self.label}",
            rows=sum(file.rows for file in candidates),
            size=0,
            lightness=_SEARCHED,
        )

        def step(parts: Iterable[SearchedFile]) -> Iterator[FoundRows]:
            for part in parts:
                yield find(part, keys)

        by_file = dict(
            zip(
                (id(file) for file in candidates),
                runs_on.run(step, [file.searched for file in candidates], tasks=len(candidates)),
                strict=True,
            )
        )
        nothing = FoundRows(positions=np.empty(0, np.int64), keys=np.empty(0, np.int64))
        together = [(file, by_file.get(id(file), nothing)) for file in files]
        numbers = [rows.keys for _, rows in together]
        counts = np.bincount(np.concatenate([*numbers, np.empty(0, np.int64)]), minlength=count)
        return FoundKeys(files=together, counts=counts)

    def first(
        self, places: FoundKeys, most: Numbers, column: str
    ) -> tuple[FoundKeys, pa.Table, Numbers]:
        """Return the first of the found rows of each key.

        Args:
            places: the places of the found rows.
            most: how many rows of each key are wanted, at most.
            column: the column that orders the rows of a key.

        Returns:
            Their places, they themselves, and the key number of each.
        """
        read = [self.rows_at(file, hits) for file, hits in places.files if len(hits.positions)]
        rows = pa.concat_tables([self.schema.empty_table(), *read])
        numbers = np.concatenate([*(hits.keys for _, hits in places.files), np.empty(0, np.int64)])
        order = np.lexsort([rows[column].to_numpy(), numbers])
        ordered = numbers[order]
        chosen = np.zeros(len(numbers), np.bool_)
        chosen[order] = np.arange(len(numbers)) - np.searchsorted(ordered, ordered) < most[ordered]
        # The last part is empty.
        parts = np.split(chosen, np.cumsum([len(hits.keys) for _, hits in places.files]))[:-1]
        files = [
            (file, FoundRows(positions=hits.positions[part], keys=hits.keys[part]))
            for (file, hits), part in zip(places.files, parts, strict=True)
        ]
        numbers = numbers[chosen]
        counts = np.bincount(numbers, minlength=len(most))
        return FoundKeys(files=files, counts=counts), rows.filter(pa.array(chosen)), numbers

    # Writing ------------------------------------------------------------------------------------

    def change(
        self,
        found: FoundKeys | None,
        rows: Iterable[pa.Table],
        files: Sequence[WrittenFile],
        metadata: Mapping[str, Any],
    ) -> int:
        """Replace the found rows by new ones.

        Args:
            found: the rows to remove; None for none.
            rows: new rows, as the table has its columns.
            files: files of new rows, written by `layout`.
            metadata: what the commit carries.

        Returns:
            The new version.

        Raises:
            ConflictError: another program was faster; nothing was committed.
            NotThereError: a file is missing; nothing was committed.
        """
        together = [(file, None) for file in self.live()] if found is None else found.files
        fates: list[tuple[LiveRows, FoundRows | None, Fate]] = []
        for file, hits in together:
            lost = 0 if hits is None else len(hits.positions)
            fates.append((file, hits, fate_of(file, lost, has_vectors=not self.portable)))
        new = in_row_groups(rows)
        # Enough to count the new rows if they are few.
        head = list(islice(new, 1))
        joined = [(file, hits) for file, hits, fate in fates if fate is Fate.JOINED]
        least = sum(item.num_rows for item in head) + sum(file.left for file, _ in joined)
        others = [(file, hits, fate) for file, hits, fate in fates if fate in _STAYING]
        if least:
            chosen = {id(file) for file in about_as_large([file for file, *_ in others], least)}
            joined += ((file, hits) for file, hits, _ in others if id(file) in chosen)
            others = [item for item in others if id(item[0]) not in chosen]
        written = self._write(chain(head, new, _tables(self._left(joined))))
        written += self._copied(
            [[(file, hits)] for file, hits, fate in others if fate is Fate.COPIED]
        )
        unchanged = [file.action for file, _, fate in others if fate is Fate.KEPT]
        losing = [
            (file, hits) for file, hits, fate in others if fate is Fate.MARKED and hits is not None
        ]
        vectors = [vector_with(file.searched.deleted, hits.positions) for file, hits in losing]
        marked = [
            with_vector(file.action, vector)
            for (file, _), vector in zip(losing, write_vectors(self.table, vectors), strict=True)
        ]
        state = with_features(self._state, VECTORS) if marked else self._state
        return self._commit(state, [*unchanged, *marked], [*files, *written], metadata)

    def replace(
        self, rows: Iterable[pa.Table], files: Sequence[WrittenFile], metadata: Mapping[str, Any]
    ) -> int:
        """Replace all rows; see `change`."""
        return self._commit(self._state, [], [*files, *self._write(rows)], metadata)

    def compact(self, version: int, metadata: Mapping[str, Any], *, few: int) -> int:
        """Write the same rows in fewer files, and bring the properties up to date.

        If there are as many small files as `few`, those without vectors are written together too.

        Returns:
            The version that has these rows now.

        Raises:
            ConflictError: another program was faster; nothing was committed.
        """
        self.begin(version)
        names = [item["name"] for item in self._state.fields]
        if self.is_ahead or names != self.schema.names:
            return version  # of a killed run or an earlier layout: the next sync handles it
        files = self.live()
        groups = compacted_together(files, few)
        joined = {id(file) for group in groups for file in group}
        written = self._copied([[(file, None) for file in group] for group in groups])
        unchanged = [file.action for file in files if id(file) not in joined]
        table_metadata = self._state.metadata
        configuration = {**self._state.configuration, **self._configuration}
        state = replace(self._state, metadata={**table_metadata, "configuration": configuration})
        return self._commit(state, unchanged, written, metadata, changes_rows=False)

    def _left(self, files: Sequence[tuple[LiveRows, FoundRows | None]]) -> Rows:
        deleted: dict[AnyPath, DeletionVector] = {}
        for file, hits in files:
            vector = file.searched.deleted
            if hits is not None and len(hits.positions):
                vector = vector_with(vector, hits.positions)
            if vector is not None:
                deleted[file.searched.path] = vector
        names = self._stored_names(files[0][0]) if files else None
        paths = [file.searched.path for file, _ in files]
        return Rows.of_files(paths, self.schema, names, deleted)

    def _stored_names(self, file: LiveRows) -> list[str]:
        return [file.searched.stored[name] for name in self.schema.names]

    def _write(self, rows: Iterable[pa.Table]) -> list[WrittenFile]:
        return write_rows(self.table, self.layout(), rows)

    def _copied(
        self, groups: Sequence[Sequence[tuple[LiveRows, FoundRows | None]]]
    ) -> list[WrittenFile]:
        """Write the remaining rows of files, each group into separate files."""
        if not groups:
            return []
        table, layout = self.table, self.layout()
        runs_on = executor(
            self.spark,
            table,
            f"copying rows of {self.label}",
            rows=sum(file.left for group in groups for file, _ in group),
            size=0,
            lightness=_COPIED,
        )

        def step(some: Iterable[Rows]) -> Iterator[list[WrittenFile]]:
            for rows in some:
                yield write_rows(table, layout, _tables(rows))

        by_group = runs_on.run(step, list(map(self._left, groups)), tasks=len(groups))
        return [file for files in by_group for file in files]

    def _commit(
        self,
        state: LogState,
        actions: Sequence[Action],
        files: Sequence[WrittenFile],
        metadata: Mapping[str, Any],
        *,
        changes_rows: bool = True,
    ) -> int:
        wanted = replace(state, files=actions)
        newest = self._newest
        is_same = not files and newest.version >= 0 and newest.metadata == wanted.metadata
        if is_same and not any(file_changes(newest, wanted)):
            return newest.version
        return commit_state(
            self.table,
            self._newest,
            wanted,
            files,
            metadata,
            operation="WRITE" if changes_rows else "OPTIMIZE",
        )


def _tables(rows: Rows) -> Iterator[pa.Table]:
    return (pa.Table.from_batches([batch]) for batch in rows.read())


def _may_have(file: LiveRows, keys: Keys) -> bool:
    """Return whether a file may have a row with one of the keys, by its statistics."""
    if not len(keys):
        return False
    stats = json.loads(file.action.get("stats") or "{}")
    stored = file.searched.stored[keys.first]
    least = (stats.get("minValues") or {}).get(stored)
    greatest = (stats.get("maxValues") or {}).get(stored)
    return keys.may_be_between(least, greatest)
