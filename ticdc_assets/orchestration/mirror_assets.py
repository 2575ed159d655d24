"""One asset a mirror, `<changefeed>/mirrors/<database>/<table>`, and the sensor about them.

In: the newest cut, read when the code location loads, and the assets that somebody selects. Out:
these tables, folded again from the whole change log, at the newest cut, by one subsettable step;
that may be repeated. A sync reports each table that it changed on its asset, so an asset's history
is that of its table. A table with a history has a second asset,
`<changefeed>/histories/<database>/<table>`.

Whatever loads the location pays for each asset. If there are more mirrors than
`dagster.table_assets`, one asset, `<changefeed>/mirrors`, represents all tables: 0065 in
docs/decisions.

The sensor reads the newest cut and reports the check `table_lag` of each mirror whose level differs
from the one in Dagster. What Dagster has of dropped tables is wiped: an asset without a definition
would stay in the catalogue forever. The lake keeps its cuts. If the assets of the newest cut are
others than those of the location, it says so. If `TICDC_WEBSERVER_URL` names the web server, it
asks the server to reload the location, once for each set of assets, so a location that does not
load is not reloaded forever. The cursor is a digest of that set.
"""

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from typing import Any

import dagster as dg
from pydantic import Field

from ticdc_assets.base.errors import UNREADABLE, NotFoundError, TicdcError
from ticdc_assets.base.isolation import first_sentence
from ticdc_assets.base.names import counted, joined_name, table_named
from ticdc_assets.config import Changefeed
from ticdc_assets.log.cuts import Cut, MirrorCut, newest_cut, require_cut
from ticdc_assets.mirrors.applying import apply_changes
from ticdc_assets.mirrors.standing import Outcome
from ticdc_assets.observe.judging import judge_table
from ticdc_assets.observe.status import Status
from ticdc_assets.observe.status_reading import read_status
from ticdc_assets.observe.verdicts import Level
from ticdc_assets.observe.wording import duration
from ticdc_assets.orchestration.metadata import mirror_columns, utc_now
from ticdc_assets.orchestration.partitions import TABLE_LAG, FeedNames
from ticdc_assets.orchestration.reporting import Report, Reporter, assets_of, log_news
from ticdc_assets.orchestration.resources import LakeSpark
from ticdc_assets.orchestration.steps import ChangefeedSteps, reported_failures
from ticdc_assets.orchestration.verdicts import CheckVerdict, runbook, shown_verdicts

Table = tuple[str, str]
"""(database, table)."""


@dataclass(frozen=True, kw_only=True)
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
        """Return the mirrors of the newest cut; none if it cannot be read."""
        try:
            cut = newest_cut(steps.paths)
        except UNREADABLE:
            cut = None
        return cls.at(steps, cut)

    @classmethod
    def at(cls, steps: ChangefeedSteps, cut: Cut | None) -> "MirrorAssets":
        """Return the mirrors of a cut."""
        mirrors = () if cut is None else cut.mirrors
        shown = assets_of(cut, steps.changefeed)
        return cls(steps=steps, mirrors=shown, left_out=len(mirrors) - len(shown))

    @property
    def keys(self) -> frozenset[dg.AssetKey]:
        """The keys of the assets: of mirrors and histories, or the one that all share."""
        shared = {self.steps.names.asset("mirrors")} if self.left_out else set[dg.AssetKey]()
        return frozenset(self.by_key) | shared

    @cached_property
    def by_key(self) -> Mapping[dg.AssetKey, Table]:
        """The table of each asset: of mirrors, and of histories."""
        names, tables = self.steps.names, [(item.database, item.table) for item in self.mirrors]
        histories = (
            (item.database, item.table) for item in self.mirrors if item.history_version is not None
        )
        return {names.mirror(*name): name for name in tables} | {
            names.history(*name): name for name in histories
        }

    @property
    def tables(self) -> frozenset[Table]:
        """The (database, table) of each."""
        return frozenset((item.database, item.table) for item in self.mirrors)

    def definitions(self) -> list[dg.AssetsDefinition]:
        """Return the step that folds tables again, if anything is published."""
        return [_folding(self)] if self.mirrors or self.left_out else []


_LAST = {"dagster/priority": "-1"}
"""Tags of the step: in a run of everything it reports the cut that `apply_changes` publishes.

It is no dependency: a mirror without changes would then be older than its upstream after each sync.
"""


# The step ---------------------------------------------------------------------------------------


class FoldConfig(dg.Config):
    """Tables to fold again."""

    tables: list[str] = Field(
        default=[],
        description="`database.table` of each table to fold again, besides the selected ones.",
    )


def _folding(shown: MirrorAssets) -> dg.AssetsDefinition:
    steps, names = shown.steps, shown.steps.names

    @dg.multi_asset(
        name=names.op("mirrors"),
        specs=list(_specs(shown)),
        check_specs=list(_check_specs(shown)),
        can_subset=True,
        pool=names.pool,
        op_tags=_LAST,
    )
    def mirrors(
        context: dg.AssetExecutionContext, config: FoldConfig, ticdc_spark: LakeSpark
    ) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
        selected = frozenset(context.selected_asset_keys)
        tables = {shown.by_key[key] for key in selected & shown.by_key.keys()}
        # A run of everything brings all mirrors up to date anyway.
        is_synced = context.job_def.graph.has_node_named(names.op("apply_changes"))
        with reported_failures(steps.paths):
            if not is_synced:
                tables |= set(map(table_named, config.tables))
            if selected and not tables:
                context.log.info("no table is folded again: none is named in `tables`")
            if tables:
                if is_synced:
                    cut = require_cut(steps.paths)
                    reports = Reporter(steps, context.instance).tables(cut, tables)
                else:
                    cut, reports = _fold(context, steps, ticdc_spark, frozenset(tables))
                for report in reports:
                    if report.key in selected:
                        yield report.result()
                    else:
                        context.log_event(report.event())
                _require_made(cut, tables, are_there=not is_synced)
            if checks := context.selected_asset_check_keys:
                status = read_status(steps.lake, utc_now())
                verdicts = lag_verdicts(names, steps.changefeed, status, shown.tables)
                for key in sorted(checks & verdicts.keys()):
                    yield verdicts[key].result(key)

    return mirrors


def _specs(shown: MirrorAssets) -> Iterator[dg.AssetSpec]:
    """Yield the asset of each mirror, and of its history; or the one that all share.

    All in a group of their own: hundreds of tables would hide the steps that lead to them.
    """
    steps, names = shown.steps, shown.steps.names
    spec = partial(
        dg.AssetSpec,
        # The days of the change log are no tables: a mirror is made from all of them.
        deps=[dg.AssetDep(names.asset("change_log"), partition_mapping=dg.AllPartitionMapping())],
        group_name=names.mirrors_group,
        kinds={"deltalake", "table"},
        owners=list(steps.changefeed.owners),
        skippable=True,
    )
    if shown.left_out:
        yield spec(
            names.asset("mirrors"),
            description=f"Copies of {shown.left_out} upstream tables, at the TSO of the newest "
            f"cut. They are more than {steps.changefeed.dagster.table_assets} "
            "(dagster.table_assets), so none is an asset of its own. Syncs keep them up to date. "
            "To fold some again from the whole change log, name them in `tables` of the run's "
            "configuration.",
        )
    for mirror in shown.mirrors:
        table = joined_name(mirror.database, mirror.table)
        yield spec(
            names.mirror(mirror.database, mirror.table),
            description=f"A copy of the upstream table {table}, at the TSO of the newest cut. "
            "Syncs keep it up to date; materialise it to fold it again from the whole change log.",
            metadata={
                "dagster/table_name": f"{names.changefeed}.{table}",
                "dagster/uri": mirror.path(steps.paths).absolute().as_uri(),
                "dagster/column_schema": mirror_columns(mirror),
            },
        )
        if mirror.history_version is not None:
            yield spec(
                names.history(mirror.database, mirror.table),
                description=f"Every version of every row of {table}, with the cuts at which it "
                "begins and ends. Syncs write it together with the mirror, at the same cut; "
                "materialise it to fold both again.",
                metadata={"dagster/uri": mirror.history_path(steps.paths).absolute().as_uri()},
            )


# Folding ----------------------------------------------------------------------------------------


def _fold(
    context: dg.AssetExecutionContext,
    steps: ChangefeedSteps,
    spark: LakeSpark,
    tables: frozenset[Table],
) -> tuple[Cut, Iterable[Report]]:
    """Fold tables again at the newest cut; return the cut that has them, and what to report.

    Tables without a mirror are left out; it fails if none has one, or nothing could be published.
    """
    reporter = Reporter(steps, context.instance)
    with steps.writing(context):
        cut = require_cut(steps.paths)
        there = frozenset(name for name in tables if cut.mirror(*name) is not None)
        if not there:
            _require_made(cut, tables)
        lake = steps.lake.using(spark.spark_session)
        applying = steps.note(apply_changes(lake, until=cut.tso, refold=there))
        published = applying.cut
        if published is None or applying.outcome in (Outcome.WAITING, Outcome.AHEAD):
            raise TicdcError(f"the mirrors were not folded: {applying.reason}")
    log_news(context, reporter.mirrors(applying, but=there))
    return published, reporter.tables(published, there)


def _require_made(cut: Cut, tables: Collection[Table], *, are_there: bool = True) -> None:
    """Fail a run whose tables could not be made, or must be there and have no mirror any more.

    The other tables of the cut are published.
    """
    failed = [item for item in cut.failed if (item.database, item.table) in tables]
    if failed:
        raise TicdcError("; ".join(item.sentence for item in failed))
    missing = [joined_name(*name) for name in sorted(tables) if cut.mirror(*name) is None]
    if missing and are_there:
        raise NotFoundError(
            f"no mirror of {', '.join(missing)} in the newest cut ({cut.moment}): the table was "
            "dropped or renamed, or its schema has not arrived yet"
        )


# The check of each mirror -----------------------------------------------------------------------


def _check_specs(shown: MirrorAssets) -> Iterator[dg.AssetCheckSpec]:
    changefeed, names = shown.steps.changefeed, shown.steps.names
    description = (
        "How far the mirror is behind: now minus the upstream time up to which it has every "
        f"change. Warns from {duration(changefeed.lag_warn_seconds)}, fails from "
        f"{duration(changefeed.lag_error_seconds)}, and if the mirror could not be made. At the "
        "end of a source it warns if the mirror lacks held or quarantined changes. "
        f"{runbook(TABLE_LAG)}"
    )
    for mirror in shown.mirrors:
        asset = names.mirror(mirror.database, mirror.table)
        yield dg.AssetCheckSpec(name=TABLE_LAG, asset=asset, description=description)


def lag_verdicts(
    names: FeedNames, changefeed: Changefeed, status: Status, tables: Iterable[Table]
) -> dict[dg.AssetCheckKey, CheckVerdict]:
    """Return what `table_lag` says of each of `tables` that the newest cut has."""
    statuses = {(item.database, item.table): item for item in status.tables}
    return {
        dg.AssetCheckKey(names.mirror(*name), TABLE_LAG): CheckVerdict.of(
            judge_table(changefeed, status, item),
            {
                "lag_seconds": item.lag_seconds,
                "rows": item.rows,
                "held": item.held,
                "quarantined": item.quarantined,
            },
        )
        for name in sorted(tables)
        if (item := statuses.get(name)) is not None
    }


INTERVAL_SECONDS = 60

WEBSERVER = "TICDC_WEBSERVER_URL"
"""Environment variable with the URL of the web server that reloads the location."""

_ANSWER_SECONDS = 40
"""How long the web server may take to reload: Dagster ends a tick after 60 s."""

_EVALUATIONS = 500
"""Evaluations of `table_lag` that one tick reports at most."""


def tables_sensor(shown: MirrorAssets) -> dg.SensorDefinition:
    """Return the sensor about the tables of one changefeed."""
    steps = shown.steps

    @dg.sensor(
        name=f"{steps.names.changefeed}_tables_sensor",
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "Reports lateness on each mirror's asset, wipes the assets of dropped tables, and "
            "reloads the location when tables were created or dropped. It requests no run."
        ),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        try:
            return tick(context, shown, utc_now())
        except UNREADABLE as error:
            return dg.SensorResult(skip_reason=str(error), cursor=context.cursor)

    return sensor


def tick(
    context: dg.SensorEvaluationContext, shown: MirrorAssets, now: datetime
) -> dg.SensorResult:
    """Evaluate the sensor once."""
    cut = newest_cut(shown.steps.paths)
    gone = wipe_ghosts(context.instance, shown.steps, cut)
    reload, asked = _reload(context, shown, cut, context.cursor or "")
    lags, late = _lag_events(context.instance, shown, now)
    said = (
        f"{counted(len(cut.mirrors) if cut else 0, 'table')} in the newest cut, "
        f"{counted(len(gone), 'asset')} of dropped tables wiped; {late} of "
        f"{counted(len(shown.mirrors), 'mirror')} late{reload}"
    )
    if gone:
        context.log.info("%s", said)
    # A result without runs is a skipped tick, whatever else it brings.
    return dg.SensorResult(skip_reason=said, cursor=asked, asset_events=lags)


def wipe_ghosts(
    instance: dg.DagsterInstance, steps: ChangefeedSteps, cut: Cut | None
) -> list[dg.AssetKey]:
    """Wipe the records of mirrors that are no longer assets; return their keys."""
    if cut is None:
        return []  # without a cut, no table is known to be gone
    there = [
        key
        for root in ("mirrors", "histories")
        for key in instance.get_asset_keys(prefix=[steps.names.changefeed, root])
    ]
    gone = sorted(set(there) - MirrorAssets.at(steps, cut).keys)
    if gone:
        instance.wipe_assets(gone)
    return gone


def _lag_events(
    instance: dg.DagsterInstance, shown: MirrorAssets, now: datetime
) -> tuple[list[Any], int]:
    """Return the evaluations of `table_lag` that Dagster does not show yet, and how many are late.

    A late cut makes all mirrors late at once, so each tick reports some.
    """
    if not shown.mirrors:
        return [], 0
    steps = shown.steps
    status = read_status(steps.lake, now)
    verdicts = lag_verdicts(steps.names, steps.changefeed, status, shown.tables)
    evaluated = shown_verdicts(instance, verdicts)
    events = [
        verdict.evaluation(key)
        for key, verdict in verdicts.items()
        if key not in evaluated or verdict.level is not evaluated[key].level
    ]
    late = sum(verdict.level is not Level.OK for verdict in verdicts.values())
    return events[:_EVALUATIONS], late


def _reload(
    context: dg.SensorEvaluationContext, shown: MirrorAssets, cut: Cut | None, asked: str
) -> tuple[str, str]:
    """Return a sentence about assets that are missing or have no table, and a digest.

    If the web server is known, it reloads the location. The digest is for the cursor.
    """
    keys = MirrorAssets.at(shown.steps, cut).keys
    differing = keys ^ shown.keys
    if cut is None or not differing:
        return "", ""
    said = f"; {counted(len(differing), 'asset')} of tables new or gone: reload the code location"
    server, origin = os.environ.get(WEBSERVER), context.code_location_origin
    paths = json.dumps(sorted(key.to_user_string() for key in keys))
    digest = hashlib.sha256(paths.encode()).hexdigest()[:16]
    if not server or origin is None or digest == asked:
        return said, asked
    try:
        reload_location(server, origin.location_name)
    except TicdcError as error:
        context.log.warning("%s=%s cannot be asked to reload: %s", WEBSERVER, server, error)
        return f"{said} ({WEBSERVER} cannot be asked: {error})", asked
    return f"{said} ({server} was asked to)", digest


def reload_location(server: str, name: str) -> None:
    """Let the Dagster web server at a URL reload a code location.

    Raises:
        TicdcError: it does not answer, or refused.
    """
    from dagster_graphql import (
        DagsterGraphQLClient,
        DagsterGraphQLClientError,
        ReloadRepositoryLocationStatus,
    )

    scheme, _, place = server.rstrip("/").rpartition("://")
    try:
        client = DagsterGraphQLClient(place, use_https=scheme == "https", timeout=_ANSWER_SECONDS)
        answer = client.reload_repository_location(name)
    except DagsterGraphQLClientError as error:
        raise TicdcError(f"no answer: {first_sentence(error.__cause__ or error)}") from error
    if answer.status is not ReloadRepositoryLocationStatus.SUCCESS:
        raise TicdcError(f"{answer.failure_type}: {answer.message}")
