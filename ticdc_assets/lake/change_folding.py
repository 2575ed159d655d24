"""The changes of one mirror up to a TSO, folded over the rows it had before.

In: the change log, a mirror's plan at the TSO, and maybe the mirror as an older cut has it. Out: a
`Folding`: the mirror's rows at the TSO, or only what changed since that cut. A table that began
anew with rows of others (`plan.Handover`) is folded over these, which are folded first. Where the
change log was cut off (`retention`), all changes there ever were are the base cut's rows and the
changes that are left.

Both who writes mirrors (`mirrors`) and who reads them as of a TSO that no cut was made at (`as_of`)
fold here, so they come to the same rows. Nothing is written, and the same change log gives the same
folding.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import and_, or_
from threading import Lock, RLock
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from ticdc_assets.changelog.plan import Binding, HandoverPart, MirrorPlan
from ticdc_assets.changelog.resolve import casts_after, handover_steps
from ticdc_assets.config import Changefeed
from ticdc_assets.lake import folding
from ticdc_assets.lake.control import dataset_of, is_plain, open_table
from ticdc_assets.lake.cuts import MirrorCut
from ticdc_assets.lake.effects import effect_schema
from ticdc_assets.lake.files import read_rows_bounded
from ticdc_assets.lake.first_folds import READ_COLUMNS, FirstFold, FoldedFiles, fold_into_files
from ticdc_assets.lake.folding import Folding, KnownColumns
from ticdc_assets.lake.horizons import Horizon, read_horizon, redriven_batches
from ticdc_assets.lake.mirror_rows import (
    CHANGE_COLUMNS,
    EXACT_KINDS,
    ArrowMap,
    MirrorLayout,
    change_effects,
    map_batches,
    mirror_effects,
    part_effects,
    put_rows,
    quoted,
)
from ticdc_assets.lake.paths import LakePaths
from ticdc_assets.lake.session import functions
from ticdc_assets.lake.totals import IMAGES
from ticdc_assets.lake.versions import mirror_here, mirror_in_pieces, mirror_in_spark
from ticdc_assets.mysql_types import kind_of
from ticdc_assets.schemas import TableSchema
from ticdc_assets.wire.rows import PLACE


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowsBefore:
    """Rows that changes are folded over.

    Attributes:
        rows: how many.
        frame: the rows in Spark, with the columns of their mirror's table.
        convert: the function from them to effects.
        here: the rows read into this process without Spark; None where it takes Spark.
        pieces: the rows in batches of bounded size; None where it takes Spark.
        is_settled: whether they are what `convert` would make of them, so that those which no
            change is about need not be converted.
        errors: effects that tell of changes which did not fit; None without any.
    """

    rows: int
    frame: Callable[[], DataFrame]
    convert: ArrowMap
    here: Callable[[], pa.Table | None] = lambda: None
    pieces: Callable[[], Iterator[pa.RecordBatch]] | None = None
    is_settled: bool = False
    errors: DataFrame | None = None

    def read(self) -> pa.Table:
        """Read the rows into this process."""
        rows = self.here()
        return self.frame().toArrow() if rows is None else rows


class ChangeFolding:
    """Folds the changes of mirrors.

    Args:
        spark: the session.
        paths: tables of the changefeed.
        changefeed: its configuration.
        batch: newest batch of the change log that is looked at.
        horizon: up to where the change log was cut off; as its table says if None.
    """

    def __init__(
        self,
        spark: SparkSession,
        paths: LakePaths,
        changefeed: Changefeed,
        *,
        batch: int,
        horizon: Horizon | None = None,
    ) -> None:
        self._spark = spark
        self._paths = paths
        self._changefeed = changefeed
        self._batch = batch
        self._dataset_lock = Lock()
        self._dataset: ds.Dataset | None = None
        # What is folded in pieces is large even so.
        self._one_at_a_time = RLock()
        self.horizon = read_horizon(paths) if horizon is None else horizon

    @cached_property
    def redriven(self) -> tuple[int, ...]:
        """Batches of re-driven records with changes at or below the horizon."""
        return redriven_batches(self._paths, self.horizon)

    def start(self, mirror: MirrorPlan) -> MirrorCut | None:
        """Return what stands for the mirror's changes that are gone: its rows in the base cut.

        None if there is no base, or it did not have the table, or not as of these rows.
        """
        base = self.horizon.mirror(mirror.mirror_id)
        return base if base is not None and mirror.floor_ts <= self.horizon.tso else None

    def log(self) -> DataFrame:
        """Return the change log up to the batch."""
        F = functions(self._spark)
        return (
            self._spark.read.format("delta")
            .load(str(self._paths.change_log))
            .where(F.col("batch") <= self._batch)
        )

    @contextmanager
    def folded(
        self,
        mirror: MirrorPlan,
        *,
        until: int,
        base: MirrorCut | None = None,
        above: int = 0,
        with_rows: bool = True,
        in_pieces: bool = False,
    ) -> Iterator[Folding]:
        """Fold the mirror's changes, while the context is open.

        Args:
            mirror: its plan at `until`.
            until: TSO up to which changes are folded.
            base: the mirror as a cut has it, None to fold all changes there are.
            above: TSO of that cut, above which changes are folded.
            with_rows: whether to fold the changes over the rows of `base`.
            in_pieces: whether the values are too large to be held, so that the result is to be in
                pieces; it is so only if no row comes from another table or the base cut.
        """
        before: list[_RowsBefore] = []
        known = KnownColumns()
        casts: Counter[tuple[str, int]] = Counter()
        with ExitStack() as stack:
            start = self.start(mirror) if base is None else None
            if start is not None:
                before, known = self._rows_of_start(mirror, start)
                casts = _casts_of(start, mirror)
            elif base is not None:
                casts = _casts_of(base, mirror)
                known = KnownColumns(
                    hidden=frozenset(base.hidden), columns=_columns(base.table_schema, base.rows)
                )
                if with_rows and base.rows:
                    before.append(self._rows_of_cut(mirror, base, above))
            elif mirror.handover is not None:
                given = self._given(mirror, stack)
                known, casts = _known(given), _inherited_casts(given, mirror)
                before = [self._rows_of_part(mirror, part, fold) for part, fold in given]
            if in_pieces and all(item.pieces is not None for item in before):
                stack.enter_context(self._one_at_a_time)
                fold = self._in_pieces(mirror, before, above, until)
            else:
                fold = stack.enter_context(self._over(mirror, before, above, until))
            yield _with_past(fold, known, casts)

    def _in_pieces(
        self, mirror: MirrorPlan, before: Sequence["_RowsBefore"], above: int, until: int
    ) -> Folding:
        conversion = change_effects(mirror, self._changefeed.timezone)

        def effects() -> Iterator[pa.RecordBatch]:
            for item in before:
                assert item.pieces is not None
                yield from item.convert(item.pieces())
            yield from conversion(self.change_pieces(mirror, above, until))

        return folding.fold_in_pieces(self._spark, effects, mirror.schema)

    def has_more_bytes(self, mirror: MirrorPlan, above: int, until: int, *, than: int) -> bool:
        """Return whether the images of the mirror's changes in (above, until] have more bytes."""
        size = 0
        for batch in self.change_pieces(mirror, above, until):
            size += sum(batch.column(name).nbytes for name in IMAGES)
            if size > than:
                return True
        return False

    def change_pieces(self, mirror: MirrorPlan, above: int, until: int) -> Iterator[pa.RecordBatch]:
        """Yield the mirror's row changes in (above, until], in batches of bounded size."""
        log = self._log_dataset()
        if log is None:
            return
        for batch in read_rows_bounded(
            log,
            self._paths.change_log,
            self._is_change_here(mirror, above, until),
            columns=[name for name in log.schema.names if name in READ_COLUMNS],
            large=IMAGES,
        ):
            yield batch.select(list(CHANGE_COLUMNS))

    @contextmanager
    def _over(
        self, mirror: MirrorPlan, before: Sequence["_RowsBefore"], above: int, until: int
    ) -> Iterator[Folding]:
        """Fold the mirror's changes in (above, until] over the rows before."""
        conversion = change_effects(mirror, self._changefeed.timezone)
        if mirror.schema.handle_key and sum(item.rows for item in before) <= folding.LOCAL_ROWS:
            changes = self.change_rows(mirror, above, until)
            if changes is not None:
                batches = list(conversion(changes.to_batches()))
                settled: pa.Table | None = None
                for item in before:
                    rows = item.read()
                    if item.is_settled:
                        rows, settled = _touched_rows(rows, batches, mirror.schema)
                    batches += item.convert(rows.to_batches())
                    if item.errors is not None:
                        batches += item.errors.toArrow().cast(batches[0].schema).to_batches()
                fold = folding.fold_here(self._spark, batches, mirror.schema)
                if settled is not None:
                    counts = replace(fold.counts, copies=fold.counts.copies + settled.num_rows)
                    fold = replace(fold, counts=counts, untouched=settled)
                yield fold
                return
        effects = _mapped(self.change_frame(mirror, above, until), conversion, mirror.schema)
        for item in before:
            effects = _mapped(item.frame(), item.convert, mirror.schema).unionByName(effects)
            if item.errors is not None:
                effects = item.errors.unionByName(effects)
        # Rows that a DDL met are older than it.
        may_cast = any(
            step.may_cast_leniently and (step.ddl_ts or 0) >= above for step in mirror.steps
        )
        with folding.folded_in_spark(effects, mirror.schema, may_cast=may_cast) as result:
            yield result

    def _rows_of_start(
        self, mirror: MirrorPlan, start: MirrorCut
    ) -> tuple[list["_RowsBefore"], KnownColumns]:
        """Return the mirror's rows in the base cut, without those that the floor takes."""
        frame = mirror_in_spark(self._spark, self.horizon.paths or self._paths, start)
        rows = start.rows
        if mirror.floor_ts != start.floor_ts and mirror.handover is None:
            # A CREATE or TRUNCATE below the horizon that was not known to the base.
            layout = MirrorLayout(schema=start.table_schema)
            F = functions(self._spark)
            frame = frame.where(F.col(quoted(layout.commit_ts)) > mirror.floor_ts)
            rows = frame.count()
        known = KnownColumns(
            hidden=frozenset(start.hidden), columns=_columns(start.table_schema, rows)
        )
        convert = mirror_effects(
            start.table_schema,
            mirror,
            self._changefeed.timezone,
            self.horizon.tso,
            # There is no change to be found that a row came from.
            error_rank=0,
        )
        before = _RowsBefore(rows=rows, frame=lambda: frame, convert=convert)
        return ([before] if rows else []), known

    def _rows_of_cut(self, mirror: MirrorPlan, base: MirrorCut, since_ts: int) -> "_RowsBefore":
        zone = self._changefeed.timezone
        return _RowsBefore(
            rows=base.rows,
            frame=lambda: mirror_in_spark(self._spark, self._paths, base),
            here=lambda: mirror_here(self._paths, base),
            pieces=mirror_in_pieces(self._paths, base),
            convert=mirror_effects(base.table_schema, mirror, zone, since_ts),
            is_settled=not is_touched(mirror, base.table_schema, since_ts)
            and base.table_schema.columns == mirror.schema.columns
            and _tells_keys(mirror.schema),
        )

    def _rows_of_part(self, mirror: MirrorPlan, part: HandoverPart, fold: Folding) -> "_RowsBefore":
        errors = _errors(fold.frame, mirror.schema) if fold.counts.errors else None
        return _RowsBefore(
            rows=fold.counts.copies,
            frame=lambda: folded_rows(fold, part.plan),
            here=lambda: rows_here(fold, part.plan),
            convert=part_effects(part, mirror, self._changefeed.timezone),
            errors=errors,
        )

    def _given(self, mirror: MirrorPlan, stack: ExitStack) -> list[tuple[HandoverPart, Folding]]:
        """Fold what is handed over to the mirror, and before that what was handed over to it."""
        folded: dict[str, Folding] = {}
        for plan in _parts_first(mirror):
            parts = plan.handover.parts if plan.handover is not None else ()
            given = [(part, folded[part.plan.digest]) for part in parts]
            if plan is mirror:
                return given
            until = plan.bindings[-1].until_ts
            assert until is not None
            start = self.start(plan) if until > self.horizon.tso else None
            if start is not None:
                before, known = self._rows_of_start(plan, start)
                casts = _casts_of(start, plan)
            else:
                before = [self._rows_of_part(plan, part, fold) for part, fold in given]
                known, casts = _known(given), _inherited_casts(given, plan)
            fold = stack.enter_context(self._over(plan, before, 0, until))
            folded[plan.digest] = _with_past(fold, known, casts)
        raise AssertionError("the mirror stands last")

    def change_rows(self, mirror: MirrorPlan, above: int, until: int) -> pa.Table | None:
        """Return the mirror's row changes in (above, until], or None if they are many."""
        log = self._log_dataset()
        if log is None:
            return None
        condition = self._is_change_here(mirror, above, until)
        limit = folding.LOCAL_ROWS
        rows = log.scanner(columns=list(CHANGE_COLUMNS), filter=condition).head(limit + 1)
        return rows if rows.num_rows <= limit else None

    def _is_change_here(self, mirror: MirrorPlan, above: int, until: int) -> ds.Expression:
        """Return the condition on the change log's rows that `change_rows` are of, for Arrow."""
        condition = _is_change(mirror, above, until, ds.field, lambda field: field.is_null())
        return condition & (ds.field("batch") <= self._batch) & self.placed(ds.field)

    def folded_into_files(
        self, mirrors: Sequence[tuple[MirrorPlan, int]], *, until: int
    ) -> list[FoldedFiles | None]:
        """Fold all changes of mirrors that begin with nothing, and write their rows as files.

        Args:
            mirrors: their plans at `until`, each with how many changes it has, about; each
                `begins_empty`.
            until: TSO up to which changes are folded.

        Returns:
            What came of each; None of one of whose changes too many did not fit.
        """
        log, table = self._log_dataset(), open_table(self._paths.change_log)
        if log is None or table is None or not is_plain(table):
            return [None] * len(mirrors)
        return fold_into_files(
            self._spark,
            log,
            self._paths.change_log,
            [
                FirstFold(
                    condition=self._is_change_here(mirror, 0, until),
                    convert=change_effects(mirror, self._changefeed.timezone),
                    schema=mirror.schema,
                    folder=self._paths.mirror(mirror.mirror_id),
                    rows=rows,
                )
                for mirror, rows in mirrors
            ],
        )

    def begins_empty(self, mirror: MirrorPlan) -> bool:
        """Return whether a mirror with a key is made of its changes in the change log alone."""
        return (
            bool(mirror.schema.handle_key)
            and mirror.handover is None
            and self.start(mirror) is None
        )

    def rows_since(
        self, columns: Sequence[str], *, batch: int, above: int, until: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the row changes at or below `until` that are above `above` or came after `batch`.

        Those of before the change log was cut off, which nobody can place, are left out.
        """
        log = self._log_dataset()
        if log is None:
            return
        condition = (
            (ds.field("kind") == "row")
            & (ds.field("batch") <= self._batch)
            & (ds.field("commit_ts") <= until)
            & ((ds.field("commit_ts") > above) | (ds.field("batch") > batch))
            & self.placed(ds.field)
        )
        scanner = log.scanner(columns=list(columns), filter=condition, batch_readahead=2)
        yield from scanner.to_batches()

    def rows_at(self, faults: Collection[Mapping[str, Any]]) -> pa.Table | None:
        """Return the row changes at the coordinates of `faults`, which have `commit_ts` too."""
        log = self._log_dataset()
        if log is None:
            return None
        stamps = sorted({fault["commit_ts"] for fault in faults})
        condition = (ds.field("kind") == "row") & ds.field("commit_ts").isin(stamps)
        rows = log.to_table(columns=list(CHANGE_COLUMNS), filter=condition)
        places = {tuple(fault[name] for name in PLACE) for fault in faults}
        found = zip(*(rows[name].to_pylist() for name in PLACE), strict=True)
        return rows.filter(pa.array([place in places for place in found], pa.bool_()))

    def count_rows(
        self, bindings: Iterable[Binding], *, above: int, until: int, version: int | None = None
    ) -> int:
        """Return how many row changes in (above, until] cite one of the names in its time.

        Args:
            bindings: the names.
            above: commit ts.
            until: commit ts.
            version: the schema version that they cite; None for any.
        """
        log = self._log_dataset()
        if log is None:
            return 0
        condition = (
            (ds.field("kind") == "row")
            & (ds.field("batch") <= self._batch)
            & (ds.field("commit_ts") > above)
            & (ds.field("commit_ts") <= until)
            & _is_named(bindings, ds.field)
            & self.placed(ds.field)
        )
        if version is not None:
            condition &= ds.field("schema_version") == version
        return log.count_rows(filter=condition)

    def has_late_rows(self, batch: int, tso: int) -> bool:
        """Return whether row changes came after `batch` that are at or below `tso`.

        It is asked at every cut and seldom so; without Spark it costs a look at the newest files.
        """
        log = self._log_dataset()
        if log is None:
            return True
        condition = (
            (ds.field("kind") == "row")
            & (ds.field("batch") > batch)
            & (ds.field("batch") <= self._batch)
            & (ds.field("commit_ts") <= tso)
            & self.placed(ds.field)
        )
        return log.scanner(columns=["batch"], filter=condition).head(1).num_rows > 0

    def change_frame(self, mirror: MirrorPlan, above: int, until: int) -> DataFrame:
        """Return the mirror's row changes in (above, until] as a DataFrame."""
        F = functions(self._spark)
        condition = _is_change(mirror, above, until, F.col, lambda field: field.isNull())
        rows = self.log().where(condition & self.placed(F.col))
        if not mirror.schema.handle_key:
            rows = self._without_replays(rows)
        return rows.select(*CHANGE_COLUMNS)

    def placed(self, field: Callable[[str], Any]) -> Any:
        """Return the condition on row changes that they have their place.

        Those that landed after it was cut off do not, but for re-driven records.
        """
        return (
            (field("commit_ts") > self.horizon.tso)
            | (field("batch") <= self.horizon.batch)
            | field("batch").isin(list(self.redriven))
        )

    def _without_replays(self, rows: DataFrame) -> DataFrame:
        """Leave out replays from the changes of a table without a key, as far as they show.

        Without a key a replay cannot be told from a second identical row, but by this: a row that
        comes behind a watermark at or above its commit ts, while the same change stands before
        that watermark, was sent again.
        """
        F = functions(rows.sparkSession)
        watermarks = self.log().where(F.col("kind") == "watermark")
        behind = (
            rows.alias("r")
            .join(
                watermarks.alias("w"),
                (F.col("r.topic") == F.col("w.topic"))
                & (F.col("r.partition") == F.col("w.partition"))
                & (F.col("w.offset") < F.col("r.offset"))
                & (F.col("w.commit_ts") >= F.col("r.commit_ts")),
                "left_semi",
            )
            .select("topic", "partition", "offset", "index", F.lit(True).alias("behind"))
        )
        identity = ["topic", "partition", "database", "table", "commit_ts", "op", "before", "after"]
        flagged = rows.join(behind, ["topic", "partition", "offset", "index"], "left").withColumn(
            "behind", F.coalesce("behind", F.lit(False))
        )
        first = flagged.groupBy(*identity).agg(F.count_if(~F.col("behind")).alias("in_front"))
        same = reduce(
            and_,
            (F.col(f"f.{name}").eqNullSafe(F.col(f"g.{name}")) for name in identity),
        )
        return (
            flagged.alias("f")
            .join(first.alias("g"), same)
            .where(~F.col("f.behind") | (F.col("g.in_front") == 0))
            .select("f.*")
        )

    def _log_dataset(self) -> ds.Dataset | None:
        """Return the change log for reading without Spark."""
        with self._dataset_lock:
            if self._dataset is None:
                table = open_table(self._paths.change_log)
                self._dataset = None if table is None else dataset_of(table, self._paths.change_log)
            return self._dataset


def _is_change(
    mirror: MirrorPlan,
    above: int,
    until: int,
    field: Callable[[str], Any],
    is_null: Callable[[Any], Any],
) -> Any:
    """Return the condition on the change log's rows that they are of the mirror in (above, until].

    Arrow's and Spark's expressions are written alike, but for the test on null.
    """
    version = field("schema_version")
    return (
        (field("kind") == "row")
        & (field("commit_ts") > max(mirror.floor_ts, above))
        & (field("commit_ts") <= until)
        & (is_null(version) | version.isin([schema.version for schema in mirror.versions]))
        & _is_named(mirror.bindings, field)
    )


def _is_named(bindings: Iterable[Binding], field: Callable[[str], Any]) -> Any:
    """Return the condition on row changes that they cite a name while a table went by it."""

    def bound(item: Binding) -> Any:
        condition = (
            (field("database") == item.database)
            & (field("table") == item.table)
            & (field("commit_ts") > item.after_ts)
        )
        return (
            condition
            if item.until_ts is None
            else condition & (field("commit_ts") <= item.until_ts)
        )

    return reduce(or_, map(bound, bindings))


def _mapped(rows: DataFrame, function: ArrowMap, schema: TableSchema) -> DataFrame:
    effects = from_arrow_schema(effect_schema(schema), prefer_timestamp_ntz=True)
    return map_batches(rows, function, effects)


def _parts_first(mirror: MirrorPlan) -> list[MirrorPlan]:
    """Return the plans that a mirror's rows come from by handovers, each behind its own parts."""
    ordered: dict[str, MirrorPlan] = {}
    stack = [(mirror, False)]
    while stack:
        plan, ready = stack.pop()
        if ready:
            ordered.setdefault(plan.digest, plan)
        elif plan.digest not in ordered:
            stack.append((plan, True))
            if plan.handover is not None:
                stack += ((part.plan, False) for part in plan.handover.parts)
    return list(ordered.values())


def _columns(schema: TableSchema, rows: int) -> frozenset[str]:
    return frozenset(column.name for column in schema.columns) if rows else frozenset()


def _casts_of(base: MirrorCut, mirror: MirrorPlan) -> Counter[tuple[str, int]]:
    """Return the casts that a cut has counted, under the names that the columns have now."""
    return casts_after(base.casts, mirror.steps_since(base.table_schema.version))


def _inherited_casts(
    given: Sequence[tuple[HandoverPart, Folding]], mirror: MirrorPlan
) -> Counter[tuple[str, int]]:
    """Return the casts that were counted in the tables that handed their rows over."""
    casts: Counter[tuple[str, int]] = Counter()
    for part, fold in given:
        casts.update(casts_after(fold.counts.casts, handover_steps(part, mirror)))
    return casts


def _with_past(fold: Folding, known: KnownColumns, casts: Counter[tuple[str, int]]) -> Folding:
    """Return a folding with what is known of the rows that it was folded over."""
    counts = fold.counts
    return replace(fold, before=known, counts=replace(counts, casts=counts.casts + casts))


def _known(given: Sequence[tuple[HandoverPart, Folding]]) -> KnownColumns:
    """Return what the rows that were handed over told of their columns."""
    hidden: set[str] = set()
    columns: set[str] = set()
    for part, fold in given:
        hidden.update(hidden_columns(part.plan, fold))
        columns |= _columns(part.plan.schema, fold.counts.copies)
    return KnownColumns(hidden=frozenset(hidden), columns=frozenset(columns))


def _errors(frame: DataFrame, schema: TableSchema) -> DataFrame:
    """Return the changes of a folding that did not fit as effects on another table."""
    F = functions(frame.sparkSession)
    target = from_arrow_schema(effect_schema(schema), prefer_timestamp_ntz=True)
    kept = {"key", "sequence", "is_delete", "is_new", "is_partial"}
    kept |= {"reason", "position", "expected", "got"}
    return frame.where("reason is not null").select(
        *(
            F.col(field.name)
            if field.name in kept
            else F.lit(None).cast(field.dataType).alias(field.name)
            for field in target.fields
        )
    )


def hidden_columns(mirror: MirrorPlan, folded: Folding) -> list[str]:
    """Return the columns of the mirror that no row was ever sent for.

    The DDL text tells them; where it is not known (a changefeed read from its middle) the rows do:
    an image of the Simple protocol has every column but the virtual generated ones.
    """
    hidden = mirror.generated | folded.before.hidden
    if folded.counts.puts:
        never = folded.never_sent
        # A mirror that had rows knows its columns: only those that are new may join.
        hidden = (hidden & never) | (never - folded.before.columns)
    return sorted(hidden & {column.name for column in mirror.schema.columns})


def effect_columns(layout: MirrorLayout) -> list[str]:
    """Return where in an effect each column of the table is, in the table's order."""
    columns = [f"c{number}" for number in range(len(layout.schema.columns))]
    return [*columns, "sequence.commit_ts", "extra"]


def folded_rows(folded: Folding, mirror: MirrorPlan) -> DataFrame:
    """Return the rows that a folding leaves, with the columns of the mirror's table."""
    layout = MirrorLayout(schema=mirror.schema)
    puts = folded.frame.where("reason is null and copies > 0")
    if not mirror.schema.handle_key:
        F = functions(puts.sparkSession)
        puts = puts.withColumn("copy", F.explode(F.sequence(F.lit(1), F.col("copies"))))
    rows = puts.select(*effect_columns(layout)).toDF(*layout.names)
    if folded.untouched is None:
        return rows
    return rows.union(folding.frame_of(rows.sparkSession, folded.untouched))


def rows_in_pieces(folded: Folding, mirror: MirrorPlan) -> Iterator[pa.Table]:
    """Yield what `folded_rows` returns, of a folding in pieces."""
    layout = MirrorLayout(schema=mirror.schema)
    return (put_rows(rows, layout) for rows in (folded.pieces() if folded.pieces else ()))


def rows_here(folded: Folding, mirror: MirrorPlan) -> pa.Table | None:
    """Return what `folded_rows` does of a folding that is here, None of one in Spark."""
    if folded.here is None or not mirror.schema.handle_key:
        return None
    rows = put_rows(folded.here, MirrorLayout(schema=mirror.schema))
    return rows if folded.untouched is None else pa.concat_tables([folded.untouched, rows])


def _tells_keys(schema: TableSchema) -> bool:
    """Whether rows have one key if and only if their typed key columns are equal."""
    columns = {column.name: column for column in schema.columns}
    return all(kind_of(columns[name]) in EXACT_KINDS for name in schema.handle_key)


def _touched_rows(
    rows: pa.Table, effects: Sequence[pa.RecordBatch], schema: TableSchema
) -> tuple[pa.Table, pa.Table]:
    """Divide a mirror's rows into those that effects are about and the others."""
    names = [column.name for column in schema.columns]
    places = [f"c{names.index(name)}" for name in schema.handle_key]
    about = {
        key
        for batch in effects
        for key in zip(*(batch.column(place).to_pylist() for place in places), strict=True)
    }
    keys = zip(*(rows[name].to_pylist() for name in schema.handle_key), strict=True)
    found = [key in about for key in keys]
    others = rows.filter(pa.array([not one for one in found], pa.bool_()))
    layout = MirrorLayout(schema=schema)
    return rows.filter(pa.array(found, pa.bool_())), others.select(layout.names).cast(layout.arrow)


def is_touched(mirror: MirrorPlan, base: TableSchema, since_ts: int) -> bool:
    """Whether something other than row changes happened to a mirror's rows since a cut.

    Args:
        mirror: its plan now.
        base: its schema at the cut.
        since_ts: TSO of the cut.
    """
    return (
        any(step.changes_rows for step in mirror.steps_since(base.version))
        or base.handle_key != mirror.schema.handle_key
        or _types(base) != _types(mirror.schema)
        or is_removed_from(mirror, since_ts)
    )


def is_removed_from(mirror: MirrorPlan, since_ts: int) -> bool:
    """Whether partition DDL took rows of a mirror away since a cut."""
    return any(removal.ts >= since_ts for removal in mirror.removals)


def _types(schema: TableSchema) -> dict[str, object]:
    arrow = MirrorLayout(schema=schema).arrow
    return dict(zip(arrow.names, arrow.types, strict=True))
