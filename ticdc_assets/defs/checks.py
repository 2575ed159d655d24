"""Checks of one changefeed: wiring only.

What they say is `Status.verdicts`; in `content_verdicts` where files or mirrors are read for it.

The cheap ones read the small tables that steer the pipeline, never Spark, so they cost milliseconds
and can be run alone. They come with every sync, and the sensor asks for them between syncs too,
because lag and the age of held rows grow exactly when no sync runs. `keys_unique` reads all mirrors
and `mirror_equals_rebuild` decodes all that ever landed: they come with no sync, but have a job and
a schedule of their own.

Replication lag is now less the physical time of the newest cut's TSO. It is not the time since the
last materialisation: a mirror that was just written from an old watermark is behind all the same.
How it is split stands in `observe.lag`.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import dagster as dg

from ticdc_assets.config import Changefeed
from ticdc_assets.defs.content_verdicts import judge_damage, judge_keys, judge_rebuild
from ticdc_assets.defs.exports import export_checks
from ticdc_assets.defs.metadata import utc_now
from ticdc_assets.defs.partitions import FeedNames
from ticdc_assets.defs.resources import LakeSpark
from ticdc_assets.defs.status_metadata import SEEN_UNTIL, check_verdict, quarantine_verdict
from ticdc_assets.defs.steps import ChangefeedSteps, reported_failures
from ticdc_assets.defs.verdicts import CheckVerdict, runbook
from ticdc_assets.engine.paths import LakePaths
from ticdc_assets.errors import LakeDamagedError
from ticdc_assets.observe.status import Status
from ticdc_assets.observe.status_reading import read_faults, read_status
from ticdc_assets.observe.verdicts import Check
from ticdc_assets.observe.wording import duration
from ticdc_assets.pipeline.cuts import newest_cut
from ticdc_assets.pipeline.damage import damage_told, find_damage
from ticdc_assets.services.uniqueness import count_keys
from ticdc_assets.services.verifying import verify

LAKE_READABLE = "lake_readable"
KEYS_UNIQUE = "keys_unique"
MIRROR_EQUALS_REBUILD = "mirror_equals_rebuild"

_ASSETS: Mapping[Check, str] = {
    Check.REPLICATION_LAG: "apply_changes",
    Check.WATERMARK_PROGRESS: "apply_changes",
    Check.HELD_ROWS: "apply_changes",
    Check.MIRRORS_COMPLETE: "apply_changes",
    Check.CHANGES_ACCOUNTED: "apply_changes",
    Check.ROW_CHECKSUMS: "apply_changes",
    Check.SCHEMA_CONFLICTS: "schema_registry",
}
"""Checks that need nothing but a status, and their assets."""


def status_verdicts(
    names: FeedNames, changefeed: Changefeed, status: Status
) -> dict[dg.AssetCheckKey, CheckVerdict]:
    """Return what every check says that needs nothing but a status."""
    return {
        dg.AssetCheckKey(names.asset(asset), check.value): check_verdict(check, changefeed, status)
        for check, asset in _ASSETS.items()
    }


def readable_key(names: FeedNames) -> dg.AssetCheckKey:
    """Return the key of the check that fails in place of what cannot be read."""
    return dg.AssetCheckKey(names.asset("apply_changes"), LAKE_READABLE)


def judge_cheaply(
    steps: ChangefeedSteps, instance: dg.DagsterInstance, now: datetime
) -> dict[dg.AssetCheckKey, CheckVerdict]:
    """Return what every check says that needs no Spark."""
    paths, changefeed = steps.paths, steps.changefeed
    damages = find_damage(paths, deep=False)
    if any(Path(error.path) in paths.tables for error in damages):
        # The others would say the same, if they could say anything.
        return {readable_key(steps.names): judge_damage(damages)}
    quarantine = dg.AssetCheckKey(steps.names.asset("quarantine"), Check.QUARANTINE_GROWTH.value)
    status = read_status(paths, changefeed, now)
    verdicts = status_verdicts(steps.names, changefeed, status)
    verdicts[readable_key(steps.names)] = judge_damage(damages)
    verdicts[quarantine] = quarantine_verdict(
        changefeed.name, status.faults, _seen_until(instance, quarantine)
    )
    return verdicts


def changefeed_checks(steps: ChangefeedSteps) -> list[dg.AssetChecksDefinition]:
    """Return the checks of one changefeed."""
    return [
        _readable_check(steps),
        *(_status_check(steps, asset, check) for check, asset in _ASSETS.items()),
        _quarantine_check(steps),
        *_spark_checks(steps),
        *export_checks(steps),
    ]


def _readable_check(steps: ChangefeedSteps) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=steps.names.asset("apply_changes"),
        name=LAKE_READABLE,
        description=(
            "Fails when a table of the changefeed is broken, or files of a mirror of the newest "
            "cut are missing or torn, and says what repairs it. While a table that steers the "
            f"pipeline is broken, the other checks fail with the same sentence. "
            f"{runbook(LAKE_READABLE)}"
        ),
    )
    def lake_readable(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        return judge_damage(find_damage(steps.paths, deep=False)).result()

    return lake_readable


def _judged(judge: Callable[[], CheckVerdict], paths: LakePaths) -> dg.AssetCheckResult:
    """Return what a check says, or that what it reads is broken."""
    try:
        with damage_told(paths):
            return judge().result()
    except LakeDamagedError as error:
        return judge_damage([error]).result()


def _status_check(steps: ChangefeedSteps, asset: str, check: Check) -> dg.AssetChecksDefinition:
    names, paths, changefeed = steps.names, steps.paths, steps.changefeed

    @dg.asset_check(
        asset=names.asset(asset),
        name=check.value,
        # Conflicts are told together with the cut that was made in spite of them.
        additional_deps=[] if asset == "apply_changes" else [names.asset("apply_changes")],
        description=f"{_descriptions(changefeed)[check]} {runbook(check)}",
    )
    def evaluate(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        return _judged(
            lambda: check_verdict(check, changefeed, read_status(paths, changefeed, utc_now())),
            paths,
        )

    return evaluate


def _descriptions(changefeed: Changefeed) -> dict[Check, str]:
    """Return what each check that needs a status only means, its limits and what to do."""
    limits = changefeed.checks
    quiet = "never"
    if limits.quiet_warn_seconds is not None:
        quiet = f"from {duration(limits.quiet_warn_seconds)}"
    return {
        Check.REPLICATION_LAG: (
            "How far the mirrors are behind now: now less the physical time of the newest cut's "
            "TSO, in three parts that add up to it (source to Kafka, Kafka to raw_messages, "
            "raw_messages to mirrors), and the table that is furthest behind. Warns from "
            f"{duration(changefeed.lag_warn_seconds)}, fails from "
            f"{duration(changefeed.lag_error_seconds)} (lag_warn_seconds and lag_error_seconds of "
            "the changefeed). Look first at the part that is the largest."
        ),
        Check.WATERMARK_PROGRESS: (
            "Whether the watermark moves with the rows. Rows that land far beyond a watermark that "
            "does not follow are never applied: warns from "
            f"{duration(limits.stuck_warn_seconds)} of upstream time, fails from "
            f"{duration(limits.stuck_error_seconds)} (checks.stuck_warn_seconds and "
            "checks.stuck_error_seconds). A watermark that moves while no row and no DDL comes "
            f"warns {quiet} (checks.quiet_warn_seconds). Look at the partition that is named, and "
            "at TiCDC's changefeed."
        ),
        Check.HELD_ROWS: (
            "How long row changes have waited for the schema they cite. Warns from "
            f"{duration(limits.held_warn_seconds)}, fails from "
            f"{duration(limits.held_error_seconds)} (checks.held_warn_seconds and "
            "checks.held_error_seconds). Their tables lack these changes meanwhile. See that TiCDC "
            "sends bootstraps."
        ),
        Check.SCHEMA_CONFLICTS: (
            "Warns while two messages claim different structures for one schema version of a "
            "table. The one that was registered is used; compare both with the table upstream."
        ),
        Check.MIRRORS_COMPLETE: (
            "Fails when a mirror could not be made at the newest cut: it keeps its older rows, and "
            "each sync tries again. Warns when one lacks row changes (held or quarantined), or "
            "is marked as possibly different from its table. Held ones wait for bootstraps, "
            "quarantined ones for a fix and a re-drive."
        ),
        Check.CHANGES_ACCOUNTED: (
            "Fails when a row change that the newest cut is the first to have was neither applied "
            "nor held, quarantined, excluded or superseded, and names its coordinates. The "
            "metadata of apply_changes has the account of each table."
        ),
        Check.ROW_CHECKSUMS: (
            "Fails when a row change is not what its checksum says (TiCDC's integrity check, "
            "Simple protocol); passes where none are sent. Compare such rows with the source."
        ),
    }


def _quarantine_check(steps: ChangefeedSteps) -> dg.AssetChecksDefinition:
    names, paths, changefeed = steps.names, steps.paths, steps.changefeed

    @dg.asset_check(
        asset=names.asset("quarantine"),
        name=Check.QUARANTINE_GROWTH.value,
        # An apply may quarantine rows too: look after it.
        additional_deps=[names.asset("apply_changes")],
        description=(
            "Warns when something came into quarantine since the check last looked. Look at it, "
            f"fix what is wrong, and run {names.redrive_job}. {runbook(Check.QUARANTINE_GROWTH)}"
        ),
    )
    def quarantine_growth(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        key = dg.AssetCheckKey(names.asset("quarantine"), Check.QUARANTINE_GROWTH.value)
        return _judged(
            lambda: quarantine_verdict(
                changefeed.name,
                read_faults(paths, changefeed.tables),
                _seen_until(context.instance, key),
            ),
            paths,
        )

    return quarantine_growth


def _spark_checks(steps: ChangefeedSteps) -> list[dg.AssetChecksDefinition]:
    """Return the checks that read mirrors or more, which no sync runs."""
    names, paths, changefeed = steps.names, steps.paths, steps.changefeed
    keys = dg.AssetCheckSpec(
        name=KEYS_UNIQUE,
        asset=names.asset("mirrors"),
        description=(
            "Fails when a key stands more than once in a mirror of the newest cut, and names up to "
            f"5 such keys of each table. It reads the keys of all mirrors. Run it by "
            f"{names.verify_job}; it is no part of a sync and writes nothing. "
            f"{runbook(KEYS_UNIQUE)}"
        ),
    )

    # That a result may be left out is what `can_subset` is for here, and below.
    @dg.multi_asset_check(specs=[keys], name=names.op(f"mirrors_{KEYS_UNIQUE}"), can_subset=True)
    def keys_unique(
        context: dg.AssetCheckExecutionContext, spark: LakeSpark
    ) -> Iterator[dg.AssetCheckResult]:
        if _is_left_out(context, names):
            return
        found = None
        with reported_failures(paths):
            cut = newest_cut(paths)
            if cut is not None:
                found = count_keys(spark.spark_session, paths, cut, changefeed.timezone)
        yield judge_keys(found).result(keys.key)

    rebuild = dg.AssetCheckSpec(
        name=MIRROR_EQUALS_REBUILD,
        asset=names.asset("mirrors"),
        description=(
            "Rebuilds every mirror of the newest cut from the landed records, in a side place, and "
            f"compares. Fails with the keys and columns that differ. Run it by {names.verify_job}; "
            "it is no part of a sync, writes nothing that lasts, and syncs go on meanwhile. "
            f"{runbook(MIRROR_EQUALS_REBUILD)}"
        ),
    )

    @dg.multi_asset_check(
        specs=[rebuild], name=names.op(f"mirrors_{MIRROR_EQUALS_REBUILD}"), can_subset=True
    )
    def mirror_equals_rebuild(
        context: dg.AssetCheckExecutionContext, spark: LakeSpark
    ) -> Iterator[dg.AssetCheckResult]:
        if _is_left_out(context, names):
            return
        found = None
        with reported_failures(paths):
            if newest_cut(paths) is not None:
                found = verify(spark.spark_session, paths, changefeed)
        yield judge_rebuild(found).result(rebuild.key)

    return [keys_unique, mirror_equals_rebuild]


def _is_left_out(context: dg.AssetCheckExecutionContext, names: FeedNames) -> bool:
    """Return whether a run is one that materialises: whoever does gets the checks of it too.

    Each run of a backfill would read all mirrors, or decode all that ever landed, and keep syncs
    waiting as long.
    """
    if not context.run.asset_selection:
        return False
    context.log.info("not run with a materialisation; run the job %s", names.verify_job)
    return True


def _seen_until(instance: dg.DagsterInstance, key: dg.AssetCheckKey) -> datetime | None:
    """Return up to which moment of quarantining an earlier evaluation has looked."""
    # The newest record may be the one of this very run, planned and without an evaluation.
    for record in instance.event_log_storage.get_asset_check_execution_history(key, limit=20):
        evaluation = record.evaluation
        metadata: Mapping[str, Any] = getattr(evaluation, "metadata", None) or {}
        if SEEN_UNTIL in metadata:
            text = metadata[SEEN_UNTIL].value
            return datetime.fromisoformat(text) if text else None
    return None
