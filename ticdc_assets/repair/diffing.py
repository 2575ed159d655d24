"""Compare mirrors with the source: an export of the upstream, and the mirrors at its TSO.

In: the folder of an export, and the mirrors as of its TSO. Out: a `SourceDifference`: for each
table, whether both have the same rows, and if not, how many differ, with keys and columns.

The rows of the export are seeded (`seeding`) in a separate lake, so the same code types both sides,
and two values are equal if their mirrors hold the same value. Exports do not contain the commit ts
of rows, so it is not compared.

Why running it again is safe: no table of the changefeed is written. That lake is removed at the
end, and the next run removes one that a killed run left (`rebuilding`).
"""

from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from ticdc_assets.base.isolation import Failure, attempted
from ticdc_assets.base.names import counted, joined_name
from ticdc_assets.base.progress import Counted
from ticdc_assets.changelog.plan import TableName
from ticdc_assets.config import TableChoice
from ticdc_assets.delta.lake import Lake
from ticdc_assets.log.cuts import MirrorCut, newest_cut, require_cut
from ticdc_assets.log.quarantine import read_quarantine
from ticdc_assets.log.schema_tables import register_new
from ticdc_assets.mirrors.applying import apply_changes
from ticdc_assets.mirrors.versions import rows_as_stored
from ticdc_assets.model.tso import time_with_tso
from ticdc_assets.observe.wording import listed
from ticdc_assets.reading.as_of import AsOf, TableRows
from ticdc_assets.repair.comparing import (
    NO_ROWS,
    Compared,
    Differences,
    RowCounts,
    RowDifference,
    column_differences,
    differences,
)
from ticdc_assets.repair.making import place_apart, require_own
from ticdc_assets.repair.seeding import SeededRows, Seeding, require_past, seed
from ticdc_assets.rows.mirror_rows import MirrorLayout
from ticdc_assets.source.exports.dialect import CsvDialect
from ticdc_assets.source.exports.folder import UNREADABLE_FILE, read_export
from ticdc_assets.storage.lake_paths import LakePaths


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffedTable:
    """One table compared with the export.

    Attributes:
        database: its database.
        table: its name.
        rows: rows of the mirror at the TSO; None if there is none.
        exported: rows of the export; None if it could not be read.
        unread: rows of the export that cannot be read, or do not fit their columns.
        counts: rows that differ.
        examples: some of them.
        findings: other differences, one clause each.
        uncompared: columns that were not compared, because one side does not know them.
        warnings: why the mirror may differ from its table.
    """

    database: str
    table: str
    rows: int | None
    exported: int | None
    unread: int = 0
    counts: RowCounts = NO_ROWS
    examples: tuple[RowDifference, ...] = ()
    findings: tuple[str, ...] = ()
    uncompared: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether both sides have the same rows."""
        return not (self.counts.total or self.findings or self.unread)

    @property
    def sentence(self) -> str:
        """The result, in one clause."""
        if self.equal:
            return f"equal{self._but}"
        counts = self.counts
        clauses = [
            counted(count, f"row {one}", f"rows {many}")
            for count, one, many in (
                (counts.changed, "differs", "differ"),
                (counts.missing, "is missing in the mirror", "are missing in the mirror"),
                (counts.too_many, "is extra in the mirror", "are extra in the mirror"),
                (self.unread, "of the export cannot be read", "of the export cannot be read"),
            )
            if count
        ]
        return "; ".join([*clauses, *self.findings]) + self._but

    @property
    def _but(self) -> str:
        if not self.uncompared:
            return ""
        return f"; not compared: {', '.join(self.uncompared)} (the values are not known)"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDifference:
    """The mirrors of a changefeed compared with an export.

    Attributes:
        changefeed: its name.
        tso: TSO of the export.
        tables: by database and table.
        excluded: tables of the export that the configuration leaves out.
    """

    changefeed: str
    tso: int
    tables: tuple[DiffedTable, ...]
    excluded: int

    @property
    def equal(self) -> bool:
        """Whether all tables have the same rows on both sides."""
        return all(item.equal for item in self.tables)

    @property
    def summary(self) -> str:
        """The result, in one sentence."""
        differing = sum(not item.equal for item in self.tables)
        uncompared = [
            f"{joined_name(item.database, item.table)}.{name}"
            for item in self.tables
            for name in item.uncompared
        ]
        but = f"; not compared: {listed(uncompared)}" if uncompared else ""
        if not differing:
            equal = counted(len(self.tables), "mirror equals", "mirrors equal")
            return f"{equal} the export at {time_with_tso(self.tso)}{but}"
        return (
            f"{differing} of {counted(len(self.tables), 'mirror')} "
            f"{'differs' if differing == 1 else 'differ'} from the export at "
            f"{time_with_tso(self.tso)}{but}"
        )

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**asdict(self), "equal": self.equal}


def diff(
    lake: Lake,
    folder: str,
    *,
    tables: Collection[TableName] = (),
    tso: int | None = None,
    dialect: CsvDialect | None = None,
    timezone: str | None = None,
) -> SourceDifference:
    """Compare mirrors as of an export's TSO with the export; see `seeding.seed` for the arguments.

    Raises:
        BusyError: another comparison or rebuild of the changefeed is running.
        NotFoundError: there is no export, or nothing is known at its TSO.
        ConfigError: the export does not have its TSO.
        StoreUnavailableError: the lake's store does not answer.
        PrerequisiteError: the disk has no space left for the rows of the export.
    """
    require_cut(lake.paths)
    export = read_export(folder, tso=tso)
    require_past(export, lake.changefeed)
    # This refuses the TSO before the export is landed, which may take long.
    AsOf(lake, export.tso)
    with place_apart(lake) as place:
        # Its landed records are unrelated to those of the changefeed.
        side = LakePaths(root=place.generation_folder, changefeed=lake.paths.changefeed)
        # Histories are not compared.
        changefeed = replace(lake.changefeed, history=TableChoice(), soft_delete=TableChoice())
        exported = replace(lake, changefeed=changefeed).at(side)
        seeding = seed(exported, folder, tables=tables, tso=tso, dialect=dialect, timezone=timezone)
        moment = AsOf(lake, seeding.tso)
        register_new(exported)
        apply_changes(exported, until=seeding.tso, complete_ts=seeding.tso)
        diffs = list(_compared(exported, seeding, moment))
    diffs += [_not_compared(name, reason) for name, reason in seeding.refused.items()]
    return SourceDifference(
        changefeed=lake.paths.changefeed,
        tso=seeding.tso,
        tables=tuple(sorted(diffs, key=lambda item: (item.database, item.table))),
        excluded=seeding.excluded,
    )


def _not_compared(name: TableName, reason: str) -> DiffedTable:
    return DiffedTable(
        database=name[0], table=name[1], rows=None, exported=None, findings=(reason,)
    )


def _compared(side: Lake, seeding: Seeding, moment: AsOf) -> Iterator[DiffedTable]:
    cut = newest_cut(side.paths)
    exported = {(item.database, item.table): item for item in cut.mirrors} if cut else {}
    failed = cut.failed if cut else ()
    require_own(side.paths, [item.reason for item in failed])
    unread = {
        (item.database, item.table): f"not compared: the export's rows: {item.reason}"
        for item in failed
    }
    # The rest of such a file would look like rows that the mirror has too many.
    unread |= {
        (row["database"], row["table"]): f"not compared: file {row['topic']}: {row['got']}"
        for row in read_quarantine(side.paths)
        if row["reason"] == UNREADABLE_FILE
    }
    counted = Counted("comparing", len(seeding.tables))
    for item in seeding.tables:
        name = (item.database, item.table)
        counted.begin(joined_name(*name))
        if name in unread:
            yield _not_compared(name, unread[name])
            continue
        outcome = attempted(
            lambda name=name, item=item: _compared_table(
                side, item, exported[name], moment.table(*name)
            ),
            f"comparing {joined_name(*name)}",
            alone=True,
        )
        if isinstance(outcome, Failure):
            require_own(side.paths, [outcome.reason])
            outcome = DiffedTable(
                database=name[0],
                table=name[1],
                rows=None,
                exported=item.rows,
                unread=item.quarantined,
                findings=(outcome.reason,),
            )
        yield outcome


def _compared_table(
    side: Lake, seeded: SeededRows, exported: MirrorCut, mirror: TableRows
) -> DiffedTable:
    layout = MirrorLayout(schema=mirror.schema)
    names, unknown = tuple(layout.names), {*seeded.unknown, *mirror.unknown}
    # An export has no commit ts of its rows.
    blank = frozenset({*unknown.intersection(names), layout.commit_ts})
    ours = Compared(rows=mirror.stored(), layout=layout, names=names, blank=blank)
    theirs = Compared(
        rows=rows_as_stored(*exported.at(side.paths)),
        layout=MirrorLayout(schema=exported.table_schema),
        names=names,
        blank=blank,
    )
    unread = seeded.quarantined + exported.quarantined
    schemas = ours.rows.schema, theirs.rows.schema
    findings = column_differences(*schemas, noun="export", verb="exported", ordered=False)
    row_differences = Differences() if findings else differences(side, ours, theirs)
    return DiffedTable(
        database=mirror.database,
        table=mirror.table,
        rows=mirror.rows,
        exported=exported.rows,
        unread=unread,
        counts=row_differences.counts,
        examples=tuple(_shown(item, layout) for item in row_differences.examples),
        findings=tuple(findings),
        uncompared=tuple(name for name in layout.names if name in unknown),
        warnings=mirror.warnings,
    )


def _shown(item: RowDifference, layout: MirrorLayout) -> RowDifference:
    key = {name: value for name, value in item.key.items() if name != layout.commit_ts}
    return replace(item, key=key)
