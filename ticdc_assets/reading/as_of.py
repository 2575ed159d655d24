"""Read every table as of one TSO, even between cuts.

In: a TSO at or below the newest cut, and at or above the oldest change or, if the change log was
truncated, the base cut (`retention`). Out: for each table that existed then, its rows: those of the
newest cut at or below the TSO, with the later changes folded over them. If that cut would be
different today (a schema, a DDL or a row came late), all changes are folded instead. The tables are
those with a mirror in the newest cut, by their names at the TSO.

The code is the fold that makes mirrors (`change_folding`), up to another TSO, so at a cut's TSO the
rows are those of the cut. Nothing is written, and reading again gives the same, except for changes
that came late in between.

Without commit ts (Canal-JSON without the TiDB extension) the same applies to the changes' `es`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from ticdc_assets.base.errors import NotFoundError
from ticdc_assets.base.names import joined_name
from ticdc_assets.changelog.plan import MirrorPlan, Plan, SeededTable, TableName
from ticdc_assets.delta.delta_files import broken
from ticdc_assets.delta.lake import Lake
from ticdc_assets.log.accepted_gaps import gap_caveats, read_accepted
from ticdc_assets.log.change_statistics import ChangeStatistics, read_statistics
from ticdc_assets.log.cuts import (
    STORED_CAVEATS,
    Cut,
    read_cuts,
    read_entries,
    read_heads,
    require_cut,
)
from ticdc_assets.log.quarantine import unread_exports
from ticdc_assets.mirrors.caveats import (
    cast_caveats,
    caveats_of,
    still_unknown,
    unknown_columns,
)
from ticdc_assets.mirrors.change_folding import ChangeFolding, hidden_columns
from ticdc_assets.mirrors.truncation_points import Base, caveats_below
from ticdc_assets.mirrors.validity import Knowledge, LateRows, late_in
from ticdc_assets.mirrors.versions import rows_as_stored
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.model.tso import moment_text, time_with_tso
from ticdc_assets.observe.wording import listed
from ticdc_assets.rows.mirror_rows import MirrorLayout
from ticdc_assets.rows.rows_of_work import Rows
from ticdc_assets.spark.frames import delta_frame
from ticdc_assets.spark.scratch import READING, Scratch
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import AnyPath

if TYPE_CHECKING:  # importing pyspark takes a while
    from pyspark.sql import DataFrame


def notes_on(database: str, table: str, caveats: Iterable[str]) -> tuple[str, ...]:
    """Return the caveats of a table for people: each a sentence that names the table."""
    return tuple(f"{joined_name(database, table)}: {caveat}" for caveat in caveats)


@dataclass(frozen=True, kw_only=True)
class TableRows:
    """The rows of one table at one moment.

    Attributes:
        database: its database then.
        table: its name then.
        schema: its schema then.
        hidden: columns that are never sent (virtual generated ones): not shown.
        rows: how many.
        lake: the changefeed's lake.
        source: the rows, or path and version of the Delta table that has them.
        warnings: why they may differ from the table, each a sentence.
        unknown: columns without a value from any export or message in some rows.
    """

    database: str
    table: str
    schema: TableSchema
    hidden: frozenset[str]
    rows: int
    lake: Lake
    source: Rows | tuple[AnyPath, int]
    warnings: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @cached_property
    def frame(self) -> "DataFrame":
        """The rows in Spark, with the columns of `MirrorLayout`."""
        spark, source = self.lake.spark, self.source
        return source.frame(spark) if isinstance(source, Rows) else delta_frame(spark, *source)

    def stored(self) -> Rows:
        """Return the rows for a step."""
        return self.source if isinstance(self.source, Rows) else rows_as_stored(*self.source)

    @property
    def shown(self) -> list[str]:
        """Names of the columns that readers get, in order."""
        return [name for name in MirrorLayout(schema=self.schema).names if name not in self.hidden]

    @property
    def notes(self) -> tuple[str, ...]:
        """The warnings for people: each a sentence that names the table."""
        return notes_on(self.database, self.table, self.warnings)


def require_changes(paths: LakePaths, cut: Cut, statistics: ChangeStatistics, tso: int) -> None:
    """Raise NotFoundError if a TSO is above the newest cut or below the oldest change."""
    wanted = moment_text(tso, es_only=cut.es_only)
    if tso > cut.tso:
        raise NotFoundError(
            f"nothing is known as of {wanted} yet: the newest cut is at {cut.moment}; run: "
            f"ticdc-assets sync {paths.changefeed}"
        )
    oldest = statistics.oldest_change
    if oldest is None or tso < oldest:
        oldest_text = "none" if oldest is None else moment_text(oldest, es_only=cut.es_only)
        raise NotFoundError(
            f"nothing is kept as of {wanted}: the oldest change is at {oldest_text}"
        )


def incomplete(database: str, table: str, tso: int, exported: int) -> NotFoundError:
    """Return the error for a read at a TSO below the export that brought a table's rows."""
    return NotFoundError(
        f"{joined_name(database, table)} is not known as of {time_with_tso(tso)}: it was seeded "
        f"from an export, so its rows are only known from {time_with_tso(exported)} on"
    )


class AsOf:
    """All tables at one TSO.

    Args:
        lake: the changefeed's lake.
        tso: the TSO, or the cut of a time (`tso.cut_of`).

    Raises:
        NotFoundError: nothing is published yet, or the TSO is above the newest cut or below the
            oldest change.
    """

    def __init__(self, lake: Lake, tso: int) -> None:
        self._lake = lake
        self._tso = tso
        self._timezone = lake.changefeed.timezone
        # This comes first: what is counted later may exceed the cut, but never falls short of it.
        newest = require_cut(lake.paths)
        self._moment = moment_text(tso, es_only=newest.es_only)
        self._statistics = read_statistics(lake.paths)
        require_changes(lake.paths, newest, self._statistics, tso)
        self._folding = ChangeFolding(
            lake,
            # Up to the newest cut: what landed later is in no cut and changes no answer.
            batch=newest.batch,
            # The rows can be read as long as the process runs.
            scratch=Scratch(lake.paths, READING),
        )
        truncation_point = self._folding.truncation_point
        if truncation_point.cut is not None and tso < truncation_point.tso:
            raise NotFoundError(
                f"nothing is kept as of {self._moment}: the change log was truncated; the "
                f"oldest that can be read is {truncation_point.cut.moment}"
            )
        self._batch = newest.batch
        self._tables = newest.table_filter
        self._known = Knowledge.of(lake.paths, lake.changefeed.timezone, self._statistics)
        below = [
            (cut.tso, cut.number)
            for cut in read_heads(lake.paths)
            if cut.tso <= tso and cut.generation == lake.paths.generation
        ]
        # Retention may have removed it in the meantime, and older ones with it.
        cuts = read_cuts(lake.paths, number=max(below)[1]) if below else []
        self._base: Cut | None = next(iter(cuts), None)

    @cached_property
    def plan(self) -> Plan:
        """Which tables existed, and how each comes from the change log."""
        return self._known.plan(self._tso).of_tables(self._tables.includes)

    @cached_property
    def _below(self) -> dict[str, str]:
        """The caveats of tables that may lack changes which arrived after a truncation.

        A later cut may have reported it, and the newest may no longer have the rows that lack it.
        """

        def earlier() -> Iterator[tuple[str, str]]:
            entries = read_entries(self._lake.paths, ("mirror_id", STORED_CAVEATS))
            rows = (row for table in entries for row in table.to_pylist() if row[STORED_CAVEATS])
            for row in sorted(rows, key=lambda row: row["number"]):
                yield from ((row["mirror_id"], caveat) for caveat in row[STORED_CAVEATS])

        return caveats_below(self._folding.truncation_point, self._known, self.plan, earlier)

    @cached_property
    def _lost(self) -> dict[str, list[str]]:
        """The caveats of tables that may lack changes in accepted gaps."""
        gaps = read_accepted(self._lake.paths)
        return gap_caveats(
            self._lake.paths, gaps, self.plan.mirrors, self._statistics.rows, self._tso
        )

    @cached_property
    def _unread(self) -> Counter[SeededTable]:
        """How many rows of exports could not be read, by table and seed."""
        return unread_exports(self._lake.paths)

    @property
    def names(self) -> list[TableName]:
        """The names of all tables, those that cannot be read last."""
        failed = ((failure.database, failure.table) for failure in self.plan.failed)
        return [*(mirror.name for mirror in self.plan.mirrors), *failed]

    def table(self, database: str, table: str) -> TableRows:
        """Return the rows of one table.

        Raises:
            NotFoundError: there was no such table.
        """
        for mirror in self.plan.mirrors:
            if mirror.name == (database, table):
                return self.rows(mirror)
        for failure in self.plan.failed:
            if (failure.database, failure.table) == (database, table):
                raise NotFoundError(
                    f"{joined_name(database, table)} cannot be read as of "
                    f"{self._moment}: {failure.reason}"
                )
        exported = dict(self.plan.exported_above).get((database, table))
        if exported is not None:
            raise incomplete(database, table, self._tso, exported)
        mirrors = listed(joined_name(*mirror.name) for mirror in self.plan.mirrors) or "none"
        raise NotFoundError(
            f"no database {database!r}, table {table!r} as of {self._moment}; there were: {mirrors}"
        )

    def rows(self, mirror: MirrorPlan) -> TableRows:
        """Return the rows of one table of the plan.

        Raises:
            NotFoundError: rows of it are missing, which an export at a later TSO brought.
        """
        if mirror.incomplete_until is not None:
            raise incomplete(mirror.database, mirror.table, self._tso, mirror.incomplete_until)
        base = self._usable_base(mirror)
        if (
            base is not None
            and base.mirror.digest == mirror.digest
            # No row of the table may have changed between the base and the TSO.
            and not self._known.has_changes(mirror, base.tso, self._tso)
        ):
            same = base.mirror
            source, errors = same.at(self._lake.paths), 0
            hidden, rows, casts = same.hidden, same.rows, same.casts
        else:
            folded = self._folding.folded(mirror, until=self._tso, base=base)
            if folded.counts.lost:
                # A value in the cut does not survive a schema step: only all changes show which do.
                folded = self._folding.folded(mirror, until=self._tso, base=None)
            source, errors = folded.rows, folded.counts.errors
            hidden, rows = hidden_columns(mirror, folded), folded.counts.copies
            casts = folded.counts.casts
        table_rows = TableRows(
            database=mirror.database,
            table=mirror.table,
            schema=mirror.schema,
            hidden=frozenset(hidden),
            rows=rows,
            lake=self._lake,
            source=source,
        )
        warnings = caveats_of(
            mirror,
            self._statistics,
            self._lake.changefeed,
            below=self._below,
            lost=self._lost,
            unread=self._unread,
        )
        unknown = still_unknown(
            unknown_columns(mirror, self._statistics),
            MirrorLayout(schema=mirror.schema),
            table_rows.stored,
        )
        warnings += [item.caveat for item in unknown]
        warnings += cast_caveats(casts)
        if mirror.held:
            held = sum(group.rows for group in mirror.held)
            warnings.append(f"up to {held} row changes wait for their schema")
        if errors:
            warnings.append(f"{errors} row changes do not fit their schema and are left out")
        return replace(
            table_rows,
            warnings=tuple(warnings),
            unknown=tuple(dict.fromkeys(name for item in unknown for name in item.names)),
        )

    # The base ----------------------------------------------------------------------------------

    def _usable_base(self, mirror: MirrorPlan) -> Base | None:
        """Return the mirror in the cut below, if it would be the same today."""
        if self._base is None:
            return None
        was = next(
            (item for item in self._base.mirrors if item.mirror_id == mirror.mirror_id), None
        )
        if (
            was is None
            or was.floor_ts != mirror.floor_ts
            or self._known.flaw(mirror, was, self._base, self._came_late) is not None
            or broken(was.path(self._lake.paths), was.version, footers=False) is not None
        ):
            return None
        return Base(mirror=was, tso=self._base.tso)

    @cached_property
    def _came_late(self) -> tuple[LateRows, ...]:
        """The rows that arrived after the base and are not above it, including replays."""
        assert self._base is not None
        if self._base.batch >= self._batch:
            return ()
        columns = ("database", "table", "commit_ts")
        batch, tso = self._base.batch, self._base.tso
        late = list(self._folding.rows_since(columns, batch=batch, above=tso, until=tso))
        return tuple(late_in(pa.Table.from_batches(late))) if late else ()
