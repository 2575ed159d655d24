"""Each mirror as an asset of its own, so that others can depend on one table.

In: the newest cut, read when the code location loads. Out: for each of its mirrors an external
asset `<changefeed>/mirrors/<database>/<table>` with the check `table_lag`, and before them `cuts`.
Nothing here computes rows: `apply_changes` reports each mirror that changed on its asset, and the
tables sensor reports the check when what it says changes. Folding a table again is done by its
partition of `mirrors`.

A table that came after the location was loaded has no asset until the location is loaded again;
the tables sensor tells how many these are. Loading reads one small table and writes nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import dagster as dg

from ticdc_assets.config import Changefeed
from ticdc_assets.defs.lineage import COLUMN_LINEAGE, mirror_lineage
from ticdc_assets.defs.metadata import utc_now
from ticdc_assets.defs.partitions import FeedNames
from ticdc_assets.defs.steps import ChangefeedSteps, reported_failures
from ticdc_assets.defs.table_schemas import mirror_columns
from ticdc_assets.defs.verdicts import CheckVerdict, runbook
from ticdc_assets.engine.paths import LakePaths
from ticdc_assets.errors import LakeDamagedError
from ticdc_assets.observe.judging import judge_table
from ticdc_assets.observe.status import Status
from ticdc_assets.observe.status_reading import read_status
from ticdc_assets.observe.wording import duration
from ticdc_assets.pipeline.cuts import MirrorCut, newest_cut

TABLE_LAG = "table_lag"


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorAssets:
    """The mirrors that a code location shows as assets.

    Attributes:
        steps: the changefeed.
        mirrors: the mirrors of the cut that was the newest when the location loaded.
    """

    steps: ChangefeedSteps
    mirrors: tuple[MirrorCut, ...]

    @classmethod
    def of(cls, steps: ChangefeedSteps) -> "MirrorAssets":
        """Return the mirrors of the newest cut; none where it cannot be read."""
        try:
            cut = newest_cut(steps.paths)
        except LakeDamagedError:
            # Definitions load whatever is broken; the check `lake_readable` says what is.
            cut = None
        return cls(steps=steps, mirrors=() if cut is None else cut.mirrors)

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
        if self.mirrors:
            yield dg.AssetSpec(
                key=names.asset("cuts"),
                deps=[names.asset("mirrors")],
                description=(
                    "Published cuts: each is the moment from which all mirrors are read at one "
                    "TSO. `apply_changes` publishes them, and reports each here."
                ),
                group_name=names.mirrors_group,
                kinds={"deltalake"},
                owners=list(changefeed.owners),
                metadata={"dagster/uri": self.steps.paths.cuts.absolute().as_uri()},
            )
        for mirror in self.mirrors:
            table = f"{mirror.database}.{mirror.table}"
            yield dg.AssetSpec(
                key=names.mirror(mirror.database, mirror.table),
                deps=[names.asset("cuts")],
                description=(
                    f"The table {table} as it is upstream, at the TSO of the newest cut. Depend on "
                    "it like on any asset. To fold it again, materialise "
                    f"[its partition of mirrors](/assets/{names.changefeed}/mirrors)."
                ),
                group_name=names.mirrors_group,
                kinds={"deltalake", "table"},
                owners=list(changefeed.owners),
                metadata=mirror_definition(names, mirror, self.steps.paths),
            )

    def checks(self) -> list[dg.AssetChecksDefinition]:
        """Return the op that evaluates the check of every mirror, if there is one."""
        return [_table_lag_checks(self)] if self.mirrors else []


def mirror_definition(
    names: FeedNames, mirror: MirrorCut, paths: LakePaths
) -> Mapping[str, object]:
    """Return what is known of a mirror before anything is reported of it."""
    return {
        "dagster/table_name": f"{names.changefeed}.{mirror.database}.{mirror.table}",
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
                "How far the table is behind: now less the upstream time up to which it has every "
                f"change. Warns from {duration(changefeed.lag_warn_seconds)}, fails from "
                f"{duration(changefeed.lag_error_seconds)}, and where the mirror could not be "
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
            status = read_status(steps.paths, changefeed, utc_now())
        for key, verdict in lag_verdicts(names, changefeed, status, shown.tables).items():
            if key in asked:
                yield verdict.result(key)

    return dg.AssetChecksDefinition.create(
        node_def=evaluate,
        keys_by_input_name={f"mirror_{number}": key for number, key in enumerate(keys)},
        check_specs_by_output_name=specs,
        can_subset=True,
    )
