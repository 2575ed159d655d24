"""One asset per mirror, so that other assets can depend on one table.

In: the newest cut, read when the code location loads. Out: for each of its mirrors an external
asset `<changefeed>/mirrors/<database>/<table>` with the check `table_lag`, and upstream of them
`cuts`. Nothing here computes rows: `apply_changes` reports each changed mirror on its asset, and
the tables sensor reports the check when its verdict changes. To fold a table again, materialise its
partition of `mirrors`.

Loading costs Dagster a millisecond for each asset and another for its check, in every process that
loads the location. If there are more mirrors than `dagster.table_assets`, the only asset is `cuts`,
and its description says so: 0065 in docs/decisions.

A table created after the location was loaded has no asset until the location is loaded again; the
tables sensor counts such tables. Loading reads one small table and writes nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import dagster as dg

from ticdc_assets.base.errors import LakeDamagedError
from ticdc_assets.base.names import joined_name
from ticdc_assets.config import Changefeed
from ticdc_assets.log.cuts import Cut, MirrorCut, newest_cut
from ticdc_assets.observe.judging import judge_table
from ticdc_assets.observe.status import Status
from ticdc_assets.observe.status_reading import read_status
from ticdc_assets.observe.wording import duration
from ticdc_assets.orchestration.lineage import COLUMN_LINEAGE, mirror_lineage
from ticdc_assets.orchestration.metadata import utc_now
from ticdc_assets.orchestration.partitions import FeedNames
from ticdc_assets.orchestration.steps import ChangefeedSteps, reported_failures
from ticdc_assets.orchestration.table_schemas import mirror_columns
from ticdc_assets.orchestration.verdicts import CheckVerdict, runbook
from ticdc_assets.storage.lake_paths import LakePaths

TABLE_LAG = "table_lag"


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorAssets:
    """The mirrors that a code location shows as assets.

    Attributes:
        steps: the changefeed.
        mirrors: the mirrors of the cut that was the newest when the location loaded, if they are
            not too many.
        left_out: how many mirrors it had, if they are.
    """

    steps: ChangefeedSteps
    mirrors: tuple[MirrorCut, ...]
    left_out: int = 0

    @classmethod
    def of(cls, steps: ChangefeedSteps) -> "MirrorAssets":
        """Return the mirrors of the newest cut; none where it cannot be read."""
        try:
            cut = newest_cut(steps.paths)
        except LakeDamagedError:
            # Definitions load whatever is broken; the check `lake_readable` says what is.
            cut = None
        mirrors = () if cut is None else cut.mirrors
        shown = assets_of(cut, steps.changefeed)
        return cls(steps=steps, mirrors=shown, left_out=len(mirrors) - len(shown))

    @property
    def tables(self) -> frozenset[tuple[str, str]]:
        """The (database, table) of each."""
        return frozenset((item.database, item.table) for item in self.mirrors)

    def specs(self) -> Iterator[dg.AssetSpec]:
        """Yield an external asset for each mirror, and `cuts`, which all of them depend on.

        All in a group of their own: 2,000 tables would hide the steps that lead to them. And the
        group of the steps shows each dependency out of it, so only `cuts` depends on `mirrors`.
        """
        names, changefeed = self.steps.names, self.steps.changefeed
        if self.mirrors or self.left_out:
            yield dg.AssetSpec(
                key=names.asset("cuts"),
                deps=[names.asset("mirrors")],
                description=(
                    "Published cuts: from each cut on, all mirrors are read at its TSO. "
                    "`apply_changes` publishes them, and reports the newest here."
                    f"{self._said_of_left_out()}"
                ),
                group_name=names.mirrors_group,
                kinds={"deltalake"},
                owners=list(changefeed.owners),
                metadata={
                    "dagster/uri": self.steps.paths.cuts.absolute().as_uri(),
                    "mirrors_without_assets": self.left_out,
                },
            )
        for mirror in self.mirrors:
            table = joined_name(mirror.database, mirror.table)
            yield dg.AssetSpec(
                key=names.mirror(mirror.database, mirror.table),
                deps=[names.asset("cuts")],
                description=(
                    f"A copy of the upstream table {table}, at the TSO of the newest cut. Depend "
                    "on it like on any other asset. To fold it again, materialise "
                    f"[its partition of mirrors](/assets/{names.changefeed}/mirrors)."
                ),
                group_name=names.mirrors_group,
                kinds={"deltalake", "table"},
                owners=list(changefeed.owners),
                metadata=mirror_definition(names, mirror, self.steps.paths),
            )

    def _said_of_left_out(self) -> str:
        """Return the sentence on mirrors that are no assets, "" if all of them are."""
        if not self.left_out:
            return ""
        limit = self.steps.changefeed.dagster.table_assets
        return (
            f" The {self.left_out} mirrors are no assets of their own, being more than {limit} "
            "(dagster.table_assets): each is a partition of `mirrors`, and a downstream asset may "
            "depend on `cuts`."
        )

    def checks(self) -> list[dg.AssetChecksDefinition]:
        """Return the op that evaluates the check of every mirror, if there is one."""
        return [_table_lag_checks(self)] if self.mirrors else []


def assets_of(cut: Cut | None, changefeed: Changefeed) -> tuple[MirrorCut, ...]:
    """Return the mirrors of a cut that are assets of their own: all, or none if there are many."""
    if cut is None or len(cut.mirrors) > changefeed.dagster.table_assets:
        return ()
    return cut.mirrors


def mirror_definition(
    names: FeedNames, mirror: MirrorCut, paths: LakePaths
) -> Mapping[str, object]:
    """Return what is known of a mirror before anything is reported of it."""
    return {
        "dagster/table_name": f"{names.changefeed}.{joined_name(mirror.database, mirror.table)}",
        "dagster/uri": mirror.path(paths).absolute().as_uri(),
        "dagster/column_schema": mirror_columns(mirror),
        COLUMN_LINEAGE: mirror_lineage(names, mirror),
    }


def lag_verdicts(
    names: FeedNames,
    changefeed: Changefeed,
    status: Status,
    tables: Iterable[tuple[str, str]],
) -> dict[dg.AssetCheckKey, CheckVerdict]:
    """Return what `table_lag` says of each of `tables` that the newest cut has."""
    found = {(item.database, item.table): item for item in status.tables}
    return {
        dg.AssetCheckKey(names.mirror(*name), TABLE_LAG): CheckVerdict.of(
            judge_table(changefeed, status, item),
            {
                "lag_seconds": dg.MetadataValue.float(item.lag_seconds),
                "rows": dg.MetadataValue.int(item.rows),
                "held": dg.MetadataValue.int(item.held),
                "quarantined": dg.MetadataValue.int(item.quarantined),
            },
        )
        for name in sorted(tables)
        if (item := found.get(name)) is not None
    }


def _table_lag_checks(shown: MirrorAssets) -> dg.AssetChecksDefinition:
    """Return one op for the checks of all mirrors: 2,000 ops would load for long.

    Its inputs and outputs are numbered: Dagster's own names for them are not unique where one
    table is called `a-b` and another `a_b`.
    """
    steps, changefeed = shown.steps, shown.steps.changefeed
    names = steps.names
    keys = [names.mirror(item.database, item.table) for item in shown.mirrors]
    specs = {
        f"lag_{number}": dg.AssetCheckSpec(
            name=TABLE_LAG,
            asset=key,
            description=(
                "How far the mirror is behind: now minus the upstream time up to which it has "
                f"every change. Warns from {duration(changefeed.lag_warn_seconds)}, fails from "
                f"{duration(changefeed.lag_error_seconds)}, and if the mirror could not be "
                f"made. {runbook(TABLE_LAG)}"
            ),
        )
        for number, key in enumerate(keys)
    }

    @dg.op(
        name=names.op(f"mirrors_{TABLE_LAG}"),
        ins={f"mirror_{number}": dg.In(dg.Nothing) for number in range(len(keys))},
        out={name: dg.Out(None, is_required=False) for name in specs},
    )
    def evaluate(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        asked = context.selected_asset_check_keys
        with reported_failures(steps.paths):
            status = read_status(steps.lake, utc_now())
        for key, verdict in lag_verdicts(names, changefeed, status, shown.tables).items():
            if key in asked:
                yield verdict.result(key)

    return dg.AssetChecksDefinition.create(
        node_def=evaluate,
        keys_by_input_name={f"mirror_{number}": key for number, key in enumerate(keys)},
        check_specs_by_output_name=specs,
        can_subset=True,
    )
