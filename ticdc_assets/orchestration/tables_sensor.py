"""The sensor about tables: new and dropped tables, and their lag.

In: the newest cut, from a small table; no Spark. Out: the check `table_lag` of each mirror whose
level differs from the one in Dagster, and a reason in numbers. What Dagster has of dropped tables
is wiped: an asset without a definition would stay in the catalogue forever. The lake keeps its
cuts.

A code location shows the mirrors of the cut at which it was loaded. If their assets are others
since, the sensor says so. If `TICDC_WEBSERVER_URL` names the web server, it asks the server to
reload the location, once for each set of assets, so a location that does not load is not reloaded
forever. The cursor is a digest of that set.
"""

import hashlib
import json
import os
from datetime import datetime
from typing import Any

import dagster as dg

from ticdc_assets.base.errors import UNREADABLE, TicdcError
from ticdc_assets.base.isolation import first_sentence
from ticdc_assets.base.names import counted
from ticdc_assets.log.cuts import Cut, newest_cut
from ticdc_assets.observe.status_reading import read_status
from ticdc_assets.observe.verdicts import Level
from ticdc_assets.orchestration.metadata import utc_now
from ticdc_assets.orchestration.mirror_assets import MirrorAssets, lag_verdicts
from ticdc_assets.orchestration.steps import ChangefeedSteps
from ticdc_assets.orchestration.verdicts import shown_verdicts

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
