"""Caveats: why a mirror may differ from its table.

In: the plan of a mirror, the change log in numbers, the configuration, and what is in quarantine.
Out: its caveats:

- *earlier rows*: a changefeed sends changes. No message has a row that did not change since the
  changefeed began. So all rows of a table are known only if a message created or emptied the table,
  or if an export brought its rows (`Lineage.is_whole`). The setting `complete_tables` names tables
  that were empty when the changefeed began.
- *a gap* after an export: changes committed between the TSO of the export and the start of the
  changefeed. A changefeed created with `--start-ts` at or below the TSO of the export has sent all
  later changes; the setting `start_ts` has that TSO. Without the setting, the lowest TSO of any
  message is used: a changefeed sends no watermark below its start, and no row or DDL at or below
  it. If that TSO is above the export, changes may be missing.
- *unknown columns*: the export had no value of them. A later change of a row brings them, so the
  caveat goes when no row of the export is unchanged.
- *quarantined rows* of the export.
- *lenient casts*: values that were cast as TiDB does in a lenient SQL mode.

All functions are pure, except that they read the remaining rows of an export.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ticdc_assets.base.names import counted
from ticdc_assets.changelog.encoder_damage import damage_caveats
from ticdc_assets.changelog.plan import LACKS_EARLIER, Caveat, MirrorPlan, SeededTable
from ticdc_assets.config import Changefeed
from ticdc_assets.log.change_statistics import ChangeStatistics
from ticdc_assets.log.cuts import MirrorCut
from ticdc_assets.mirrors.versions import rows_as_stored
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.model.tso import time_with_tso
from ticdc_assets.rows.mirror_rows import MirrorLayout
from ticdc_assets.rows.rows_of_work import Rows
from ticdc_assets.source.exports.dialect import DUMPLING_OPTION
from ticdc_assets.storage.lake_paths import LakePaths


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownColumns:
    """Columns of a mirror that an export had no value of.

    Attributes:
        ts: TSO of the export, which is the last change of the export's rows.
        names: their names in the mirror.
        keyed: whether the table has a key; without one a row is identified by all of its columns.
    """

    ts: int
    names: tuple[str, ...]
    keyed: bool = True

    @property
    def caveat(self) -> str:
        """The caveat's text."""
        plural = len(self.names) > 1
        keyless = "" if self.keyed else "; without a key, no delete finds these rows"
        return str(
            Caveat(
                reason=f"column{'s' if plural else ''} {', '.join(map(repr, self.names))} "
                f"{'are' if plural else 'is'} not known in rows that did not change since their "
                f"export: it has no value of {'them' if plural else 'it'} (export again with "
                f"Dumpling's {DUMPLING_OPTION}, and seed){keyless}",
                since_ts=self.ts,
            )
        )


def caveats_of(
    mirror: MirrorPlan,
    statistics: ChangeStatistics,
    changefeed: Changefeed,
    *,
    below: Mapping[str, str],
    lost: Mapping[str, Sequence[str]],
    unread: Mapping[SeededTable, int],
) -> list[str]:
    """Return the caveats of a mirror that do not depend on its rows.

    `below`, `lost` and `unread` are what `truncation_points.caveats_below`,
    `accepted_gaps.gap_caveats` and `unread_exports` return.
    """
    earlier = earlier_rows(mirror, statistics, changefeed)
    exported = (export_gap(mirror, statistics, changefeed), quarantined_rows(mirror, unread))
    return [
        *map(str, (*mirror.caveats, *damage_caveats(mirror, changefeed.wire_format))),
        *([] if earlier is None else [earlier]),
        *([below[mirror.mirror_id]] if mirror.mirror_id in below else []),
        *lost.get(mirror.mirror_id, ()),
        *(str(caveat) for caveat in exported if caveat is not None),
    ]


def earlier_rows(
    mirror: MirrorPlan, statistics: ChangeStatistics, changefeed: Changefeed
) -> str | None:
    """Return the caveat of a mirror that may lack rows from before the changefeed."""
    if mirror.incomplete_until is not None:
        return None  # an export above the cut has them, and the plan says so
    complete = changefeed.complete_tables
    lacking = [
        plan
        for plan in mirror.sources()
        if not plan.is_whole
        # A table that took over rows lacks what their earlier table lacks.
        and not plan.parts
        and not any(complete.includes(item.database, item.table) for item in plan.bindings)
    ]
    if not lacking:
        return None
    # A table that took the name of a dropped one has no earlier rows.
    since = max([statistics.first_ts or 0, *(plan.bindings[0].after_ts for plan in lacking)])
    time = time_with_tso(since, es_only=statistics.es_only)
    # An export has a TSO, and only changes with a TSO can be placed above it.
    way_out = "seed it"
    if statistics.es_only:
        way_out = "to seed it, set `enable-tidb-extension=true` in the sink URI"
    return f"{LACKS_EARLIER}{time} may be missing: {way_out}"


def export_gap(
    mirror: MirrorPlan, statistics: ChangeStatistics, changefeed: Changefeed
) -> Caveat | None:
    """Return the caveat of a mirror that may lack changes after its first export."""
    start_ts = changefeed.start_ts
    begin = statistics.first_ts if start_ts is None else start_ts
    for plan in mirror.sources():
        exported = plan.exported
        if exported is None or begin is None or begin <= exported.ts:
            continue
        if start_ts is None:
            reason = (
                f"a gap after the export: its TSO is {exported.ts}, the first message is at "
                f"{begin}, and changes between them may be missing; set `start_ts` of changefeed "
                f"{changefeed.name} to the TSO that it was created with (--start-ts), then run: "
                f"ticdc-assets sync {changefeed.name}"
            )
        else:
            reason = (
                f"a gap after the export: its TSO is {exported.ts}, the changefeed starts at "
                f"{start_ts} (`start_ts`), and changes between them are missing; export again at "
                f"{start_ts} or later, then run: ticdc-assets seed {changefeed.name} FOLDER"
            )
        return Caveat(reason=reason, since_ts=exported.ts)
    return None


def unknown_columns(mirror: MirrorPlan, statistics: ChangeStatistics) -> list[UnknownColumns]:
    """Return the columns without a value from exports, if rows of the exports may be unchanged."""
    lacking = statistics.exported_columns
    unknown: list[UnknownColumns] = []
    for plan in mirror.sources() if lacking else ():
        exported = plan.exported
        if exported is None:
            continue
        names = _names_now(plan, lacking.get((exported.database, exported.table, exported.seed)))
        columns = {column.name for column in mirror.schema.columns}
        left = tuple(name for name in names if name in columns)
        if left:
            keyed = bool(mirror.schema.handle_key)
            unknown.append(UnknownColumns(ts=exported.ts, names=left, keyed=keyed))
    return unknown


def lacking_columns(schema: TableSchema, shapes: Iterable[Collection[str]]) -> list[str]:
    """Return the columns of a table that some rows lack.

    `shapes` are the columns of the rows that lack some (`exported_columns`).
    """
    shape_list = list(shapes)
    return [
        column.name
        for column in schema.columns
        if not column.virtual and any(column.name not in shape for shape in shape_list)
    ]


def _names_now(plan: MirrorPlan, shapes: Iterable[Collection[str]] | None) -> list[str]:
    """Return the columns that some of these shapes lack, by their current names."""
    if not shapes:
        return []
    assert plan.exported is not None
    first = next((item for item in plan.versions if item.version == plan.exported.ts), None)
    if first is None:
        return []
    names = lacking_columns(first, shapes)
    for step in plan.steps_since(first.version):
        renamed = step.renamed
        names = [renamed[name] for name in names if name in renamed]
    return names


def still_unknown(
    unknown: Iterable[UnknownColumns], layout: MirrorLayout, rows: Callable[[], Rows]
) -> list[UnknownColumns]:
    """Return the unknown columns of exports that still have an unchanged row."""
    waiting = {item.ts: item for item in unknown}
    left: list[UnknownColumns] = []
    for batch in rows().read() if waiting else ():
        stamps = set(batch.column(layout.commit_ts).unique().to_pylist())
        left += [waiting.pop(ts) for ts in stamps & waiting.keys()]
        if not waiting:
            break
    return left


def unknown_caveats(
    paths: LakePaths,
    mirror: MirrorPlan,
    statistics: ChangeStatistics,
    cut: MirrorCut,
    before: MirrorCut | None,
) -> list[str]:
    """Return the caveats of a mirror that has rows with unknown columns.

    `cut` and `before` are the mirror in this cut and in the last one.
    """
    unknown = unknown_columns(mirror, statistics)
    if before is not None and before.version == cut.version:
        # The rows are the same, so the caveats are too.
        return [item.caveat for item in unknown if item.caveat in before.caveats]
    layout = MirrorLayout(schema=cut.table_schema)
    left = still_unknown(
        unknown, layout, lambda: rows_as_stored(*cut.at(paths)).select([layout.commit_ts])
    )
    return [item.caveat for item in left]


def quarantined_rows(mirror: MirrorPlan, counts: Mapping[SeededTable, int]) -> Caveat | None:
    """Return the caveat of a mirror whose export has rows in quarantine."""
    for plan in mirror.sources():
        exported = plan.exported
        if exported is not None:
            count = counts.get((exported.database, exported.table, exported.seed), 0)
            if count:
                rows = counted(count, "row")
                reason = f"{rows} of the export could not be read and wait in quarantine"
                return Caveat(reason=reason, since_ts=exported.ts)
    return None


def casts_listed(casts: Mapping[tuple[str, int], int]) -> list[dict[str, Any]] | None:
    """Return counted casts as `MirrorCut.lenient_casts` has them."""
    return [
        {"column": name, "ddl_ts": ddl_ts, "values": count}
        for (name, ddl_ts), count in sorted(casts.items(), key=lambda item: item[0][::-1])
    ] or None


def cast_caveats(casts: Mapping[tuple[str, int], int]) -> list[str]:
    """Return the caveats of a mirror with values that were cast as in a lenient SQL mode."""
    return [
        f"{counted(item['values'], 'value')} of column {item['column']!r} did not fit when its "
        f"type changed and {'was' if item['values'] == 1 else 'were'} cast as TiDB does in a "
        f"lenient SQL mode, since {item['ddl_ts']}"
        for item in casts_listed(casts) or ()
    ]
