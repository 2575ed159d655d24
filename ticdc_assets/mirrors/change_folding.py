"""Fold the changes of one mirror up to a TSO over its earlier rows.

In: the change log, a mirror's plan at the TSO, and optionally the mirror at an older cut. Out: a
`Folded`: the mirror's rows at the TSO, or only the changes since that cut. If a table started again
with rows of other tables (`plan.HandoverPart`), those are folded first and its changes are folded
over them. If the table was truncated (`retention`), the rows of its base cut and the changes above
it replace the full list of changes.

Writing mirrors (`mirrors`) and reading them as of a TSO between cuts (`as_of`) both use this
module, so they give the same rows. This module finds the rows; `fold_runs` folds them, in this
process or in Spark's workers. Only files of a temporary folder are written, and the same change log
gives the same result.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from ticdc_assets.base.names import counted, joined_name
from ticdc_assets.changelog.carrying import handover_steps
from ticdc_assets.changelog.plan import HandoverPart, MirrorPlan, earlier_first
from ticdc_assets.changelog.resolve import casts_after
from ticdc_assets.delta.files import FileLayout
from ticdc_assets.mirrors.change_reading import ChangeReader, columns_in, names_of
from ticdc_assets.mirrors.truncation_points import Base
from ticdc_assets.mirrors.versions import mirror_rows
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.rows.bag_operations import bag_operations
from ticdc_assets.rows.fold_runs import Folded, MirrorFold, Output, faults_as_operations, run_folds
from ticdc_assets.rows.folding import KnownColumns
from ticdc_assets.rows.mirror_rows import (
    ArrowMap,
    MirrorLayout,
    change_operations,
    mirror_operations,
    part_operations,
)
from ticdc_assets.rows.rows_of_work import Rows
from ticdc_assets.spark.executing import executor, on_spark
from ticdc_assets.storage.paths import AnyPath

_RowsBefore: TypeAlias = tuple[Rows, ArrowMap]
"""Rows that changes are folded over, and the function from them to operations."""


class ChangeFolding(ChangeReader):
    """Folds the changes that it reads; see `ChangeReader` for what it needs."""

    def folded(
        self,
        mirror: MirrorPlan,
        *,
        until: int,
        base: Base | None = None,
        with_keys: bool = False,
        table: tuple[AnyPath, FileLayout] | None = None,
        watched: Collection[str] = (),
    ) -> Folded:
        """Fold the mirror's changes.

        Args:
            mirror: its plan at `until`.
            until: TSO up to which changes are folded.
            base: the mirror in a cut, above which changes are folded; None to fold all changes.
            with_keys: whether to fold only the changes, and return the changed keys.
            table: folder and layout of the table that files of rows are written for; None if no
                commit names them.
            watched: keys whose newest whole change is returned.
        """
        if base is not None:
            past = self._past_of_cut(mirror, base, with_rows=not with_keys)
        else:
            start = self.start(mirror)
            given = self._given(mirror) if start is None else []
            past = self._past(mirror, start, given)
        return self._over(
            mirror, past, until, with_keys=with_keys, table=table, watched=frozenset(watched)
        )

    def _over(
        self,
        mirror: MirrorPlan,
        past: "_Past",
        until: int,
        *,
        with_keys: bool = False,
        table: tuple[AnyPath, FileLayout] | None = None,
        watched: frozenset[str] = frozenset(),
    ) -> Folded:
        """Fold the mirror's changes up to `until` over its past."""
        changes = self.changes(mirror, past.until, until)
        rows = changes.count + sum(rows.count for rows, _ in past.rows)
        size = changes.size + sum(rows.size for rows, _ in past.rows)
        runs_on = executor(
            self.lake.spark,
            self.lake.paths.base,
            f"folding {joined_name(mirror.database, mirror.table)}",
            rows=rows,
            size=size,
        )
        output = Output() if runs_on.holds else self._output(table)
        (fold,) = run_folds(
            runs_on,
            changes,
            [
                MirrorFold(
                    schema=mirror.schema,
                    condition=None,
                    convert=self._conversion(mirror, past.until),
                    before=past.rows,
                    ddl_stamps=_casting_stamps(mirror),
                    watched=watched,
                    output=replace(output, with_keys=with_keys),
                    rows=changes.count,
                    size=changes.size,
                )
            ],
        )
        counts = replace(fold.counts, casts=fold.counts.casts + past.casts)
        return replace(fold, before=past.known, counts=counts)

    def _output(self, table: tuple[AnyPath, FileLayout] | None) -> Output:
        folder, layout = (self.scratch.folder(), None) if table is None else table
        return Output(folder=folder, faults=self.scratch.folder(), layout=layout)

    def _conversion(self, mirror: MirrorPlan, above: int) -> ArrowMap:
        convert = change_operations(mirror, self.lake.changefeed.timezone)
        return self.with_origins(convert, mirror, above)

    def with_origins(self, convert: ArrowMap, mirror: MirrorPlan, above: int) -> ArrowMap:
        """Return a function to operations that identify replays, if the table has no key."""
        if mirror.schema.handle_key:
            return convert
        return bag_operations(convert, self.watermarks(above))

    def _past_of_cut(
        self,
        mirror: MirrorPlan,
        base: Base,
        *,
        with_rows: bool = True,
        above: int | None = None,
        error_rank: int = -1,
    ) -> "_Past":
        """Return the mirror as a cut has it, without its rows if they are not wanted."""
        cut, zone, before = base.mirror, self.lake.changefeed.timezone, list[_RowsBefore]()
        count = cut.rows
        if count and with_rows:
            rows = mirror_rows(self.lake.paths, cut, above)
            count = rows.count
            convert = mirror_operations(
                cut.table_schema, mirror, zone, base.tso, error_rank=error_rank
            )
            before += [(rows, convert)] if count else []
        known_columns = KnownColumns(
            hidden=frozenset(cut.hidden), columns=_columns(cut.table_schema, count)
        )
        casts = casts_after(cut.casts, mirror.steps_since(cut.table_schema.version))
        return _Past(before, known_columns, casts, base.tso)

    def _past(
        self, mirror: MirrorPlan, start: Base | None, given: Sequence[tuple[HandoverPart, Folded]]
    ) -> "_Past":
        """Return what all changes of a mirror in the change log are folded over."""
        if start is not None:
            # A CREATE or TRUNCATE below the truncation point that the base did not know.
            is_new = mirror.floor_ts != start.mirror.floor_ts and not mirror.parts
            above = mirror.floor_ts if is_new else None
            # No row's change can be found here.
            return self._past_of_cut(mirror, start, above=above, error_rank=0)
        rows, hidden, columns = list[_RowsBefore](), set[str](), set[str]()
        casts = Counter[tuple[str, int]]()
        for part, fold in given:
            rows.append((fold.rows, part_operations(part, mirror, self.lake.changefeed.timezone)))
            if fold.counts.errors:
                rows.append((fold.faults, faults_as_operations(mirror.schema)))
            hidden.update(hidden_columns(part.plan, fold))
            columns |= _columns(part.plan.schema, fold.counts.copies)
            casts.update(casts_after(fold.counts.casts, handover_steps(part, mirror)))
        known_columns = KnownColumns(hidden=frozenset(hidden), columns=frozenset(columns))
        return _Past(rows, known_columns, casts, 0)

    def _given(self, mirror: MirrorPlan) -> list[tuple[HandoverPart, Folded]]:
        """Fold the rows handed over to the mirror, after those handed over to their tables."""
        folded: dict[str, Folded] = {}
        for plan in earlier_first(mirror, lambda item: [part.plan for part in item.parts]):
            given = [(part, folded[part.plan.digest]) for part in plan.parts]
            if plan is mirror:
                return given
            until = plan.bindings[-1].until_ts
            assert until is not None
            start = self.start(plan)
            if start is not None and until <= start.tso:
                start = None
            folded[plan.digest] = self._over(plan, self._past(plan, start, given), until)
        raise AssertionError("the mirror must come last")

    def folded_into_files(
        self, mirrors: Sequence[tuple[MirrorPlan, int, FileLayout]], *, until: int
    ) -> list[Folded]:
        """Fold all changes of mirrors that begin empty, and write their rows as files.

        Each mirror `begins_empty`; with its plan come its approximate number of changes and the
        layout of its files.

        Returns:
            The result for each.
        """
        names = columns_in(self.dataset(), *(mirror for mirror, _, _ in mirrors))
        folds = [
            MirrorFold(
                schema=mirror.schema,
                names=names_of([mirror]),
                condition=self.condition_of(mirror, 0, until),
                convert=self._conversion(mirror, 0),
                ddl_stamps=_casting_stamps(mirror),
                output=self._output((self.lake.paths.mirror(mirror.mirror_id), layout)),
                rows=rows,
            )
            for mirror, rows, layout in mirrors
        ]
        condition = self.condition_of_names(
            names_of([mirror for mirror, _, _ in mirrors]), 0, until
        )
        count = sum(rows for _, rows, _ in mirrors)
        changes = self.rows_in_files(names, condition, count=count)
        runs_on = on_spark(
            self.lake.spark,
            self.lake.paths.base,
            f"folding {counted(len(mirrors), 'table')}",
            rows=count,
        )
        return run_folds(runs_on, changes, folds)

    def begins_empty(self, mirror: MirrorPlan) -> bool:
        """Return whether a mirror is made from its changes in the change log alone."""
        return not mirror.parts and self.start(mirror) is None


class _Past(NamedTuple):
    """What the changes of a mirror are folded over.

    Changes up to the commit ts `until` are in them. `casts` were counted before (lenient SQL mode).
    """

    rows: Sequence[_RowsBefore]
    known: KnownColumns
    casts: Counter[tuple[str, int]]
    until: int


def _casting_stamps(mirror: MirrorPlan) -> list[int]:
    """Return the commit ts of DDL that may cast values as in a lenient SQL mode."""
    steps = [*mirror.steps]
    for part in mirror.parts:
        steps += handover_steps(part, mirror)
    return sorted({step.ddl_ts for step in steps if step.may_cast_leniently and step.ddl_ts})


def _columns(schema: TableSchema, rows: int) -> frozenset[str]:
    return frozenset(column.name for column in schema.columns) if rows else frozenset()


def hidden_columns(mirror: MirrorPlan, folded: Folded) -> list[str]:
    """Return the columns of the mirror that are never sent.

    The DDL text shows them. Without it (a changefeed read from its middle) the rows do: an image of
    the Simple protocol has every column except virtual generated ones.
    """
    hidden = known_hidden(mirror, folded.before.hidden)
    if not folded.counts.puts:
        return hidden
    never = folded.never_sent
    # A mirror that had rows knows its columns: only new ones may join.
    return sorted(never & {*hidden, *(never - folded.before.columns)})


def known_hidden(mirror: MirrorPlan, before: Iterable[str]) -> list[str]:
    """Return the columns that are never sent, as far as DDL text and earlier rows show them."""
    names = {column.name for column in mirror.schema.columns}
    return sorted(names & {*mirror.generated, *before})


def is_touched(mirror: MirrorPlan, base: Base) -> bool:
    """Whether something other than row changes happened to a mirror's rows since a cut."""
    was, now = base.mirror.table_schema, mirror.schema
    return (
        any(step.changes_rows for step in mirror.steps_since(was.version))
        or was.handle_key != now.handle_key
        or (was.columns != now.columns and _types(was) != _types(now))
        or is_removed_from(mirror, base.tso)
    )


def is_removed_from(mirror: MirrorPlan, since_ts: int) -> bool:
    """Whether partition DDL took rows of a mirror away since a cut."""
    return any(removal.ts >= since_ts for removal in mirror.removals)


def _types(schema: TableSchema) -> list[tuple[str, object]]:
    arrow = MirrorLayout(schema=schema).arrow
    return list(zip(arrow.names, arrow.types, strict=True))
