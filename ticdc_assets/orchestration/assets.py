"""The assets of one changefeed, in processing order.

    kafka_topic -> raw_messages -> decode_messages, quarantine -> change_log
    snapshot -> change_log
    change_log -> schema_registry -> apply_changes
    change_log -> mirrors/<database>/<table>

A step reads the data that is new since its own last commit, so running it again is safe and the
next run continues an interrupted one. The bodies only call the pipeline and report the results.

`change_log` has one partition per landing day, and a sync has none. So `decode_messages` decodes
for a sync and reports each changed day on `change_log`; materialising its partitions decodes those
days again. In the same way `apply_changes` brings all mirrors to one cut and reports each changed
table on its own asset; materialising that folds the table again (`mirror_assets`).
"""

import warnings
from collections.abc import Callable, Iterator
from datetime import date

import dagster as dg
from pydantic import Field

from ticdc_assets.base.errors import ConfigError
from ticdc_assets.config import CaptureSource, KafkaSource
from ticdc_assets.log.change_statistics import read_statistics
from ticdc_assets.model.tso import cut_of
from ticdc_assets.orchestration.active_runs import name_worker
from ticdc_assets.orchestration.exports import snapshot_asset
from ticdc_assets.orchestration.metadata import (
    definition_metadata,
    ran_metadata,
    redecoding_metadata,
    utc_now,
)
from ticdc_assets.orchestration.partitions import DAY_FORMAT, REPORT, landing_days
from ticdc_assets.orchestration.reporting import Reporter, log_news
from ticdc_assets.orchestration.resources import LakeSpark
from ticdc_assets.orchestration.steps import ChangefeedSteps, reported_failures
from ticdc_assets.orchestration.syncing import Step, Syncing
from ticdc_assets.repair.redecoding import redecode
from ticdc_assets.spark.compute import watched


class LandConfig(dg.Config):
    """Limits for landing."""

    max_records: int | None = Field(
        default=None, description="Land at most this many records; by default all that wait."
    )


class DecodeConfig(dg.Config):
    """Options for decoding."""

    redrive: bool = Field(
        default=False, description="Also try the records in quarantine again (after a fix)."
    )


class ApplyConfig(dg.Config):
    """Options for applying."""

    until: str | None = Field(
        default=None,
        description="Highest TSO or time (ISO 8601) of the cut; by default the global watermark.",
    )
    refold_quarantined: bool = Field(
        default=False,
        description="Fold every table again that has row changes in quarantine (after a fix).",
    )

    def cut(self, *, es_only: bool) -> int | None:
        """Return the cut that `until` names; `es_only` changes have no commit ts, and so no TSO.

        Raises:
            ConfigError: it is neither a TSO nor a time, or a TSO where there are none.
        """
        try:
            return None if self.until is None else cut_of(self.until, es_only=es_only)
        except ConfigError as error:
            raise ConfigError(f"until: {error}") from error


def changefeed_assets(steps: ChangefeedSteps) -> list[dg.AssetsDefinition | dg.AssetSpec]:
    """Return the assets of one changefeed."""
    with warnings.catch_warnings():
        # `backfill_policy` is called beta in every release; without it a backfill of 50 tables
        # would be 50 runs.
        warnings.simplefilter("ignore", dg.BetaWarning)
        return list(
            dg.map_asset_specs(
                lambda spec: spec.replace_attributes(
                    owners=list(steps.changefeed.owners),
                    group_name=steps.names.changefeed,
                    kinds=spec.kinds or {"spark", "deltalake"},
                ),
                [make(steps) for make in _MAKERS],
            )
        )


def _done(
    steps: ChangefeedSteps,
    context: dg.AssetExecutionContext,
    spark: LakeSpark,
    work: Callable[[Syncing], Step],
) -> list[dg.MaterializeResult]:
    """Do one step of a sync, report on other assets, and return the results of its own."""
    with steps.writing(context):
        step = work(Syncing(steps, spark.spark_session, context.instance))
    log_news(context, step.news)
    context.log.info("%s", step.said)
    return [report.result() for report in step.reports]


def _kafka_topic(steps: ChangefeedSteps) -> dg.AssetSpec:
    match steps.changefeed.source:
        case KafkaSource() as source:
            kind, what = "kafka", f"Kafka topic {source.topics_shown}"
        case CaptureSource():
            kind, what = "file", "A capture: a file of Kafka records"
    return dg.AssetSpec(
        key=steps.names.asset("kafka_topic"),
        description=(
            f"{what}, written by TiCDC in the format {steps.changefeed.wire_format}. It is "
            "external: the sensor observes its offsets and the number of waiting records."
        ),
        kinds={kind},
    )


def _raw_messages(steps: ChangefeedSteps) -> dg.AssetsDefinition:
    @dg.asset(
        key=steps.names.asset("raw_messages"),
        deps=[steps.names.asset("kafka_topic")],
        description=(
            "Every record of the topic, verbatim and exactly once: one row per record, with its "
            "coordinates. Only the newest commit stores the position. If records expired before "
            "they were landed, the run fails and names topic, partition and offsets."
        ),
        metadata=definition_metadata("raw_messages"),
        pool=steps.names.pool,
    )
    def raw_messages(
        context: dg.AssetExecutionContext, config: LandConfig, ticdc_spark: LakeSpark
    ) -> dg.MaterializeResult:
        (report,) = _done(
            steps, context, ticdc_spark, lambda it: it.land(max_records=config.max_records)
        )
        return report

    return raw_messages


def _decode_messages(steps: ChangefeedSteps) -> dg.AssetsDefinition:
    names = steps.names

    @dg.multi_asset(
        name=names.op("decode_messages"),
        pool=names.pool,
        specs=[
            dg.AssetSpec(
                key=names.asset("decode_messages"),
                deps=[names.asset("raw_messages")],
                description=(
                    "Decodes the records landed since its last run into change_log; records that "
                    "are not messages go to quarantine. Each landing day that it appends to is "
                    "reported on `change_log`."
                ),
            ),
            dg.AssetSpec(
                key=names.asset("quarantine"),
                deps=[names.asset("raw_messages")],
                description=(
                    "Records that could not be decoded, and row changes that do not fit their "
                    "schema: coordinates, reason, position, expected and got. The record itself "
                    f"stays in raw_messages. After a fix, run the job [{names.job('redrive')}]"
                    f"(/guess/{names.job('redrive')})."
                ),
                metadata=definition_metadata("quarantine"),
            ),
        ],
    )
    def decode_messages(
        context: dg.AssetExecutionContext, config: DecodeConfig, ticdc_spark: LakeSpark
    ) -> Iterator[dg.MaterializeResult]:
        yield from _done(
            steps, context, ticdc_spark, lambda it: it.decode(redrive_quarantined=config.redrive)
        )

    return decode_messages


def _change_log(steps: ChangefeedSteps) -> dg.AssetsDefinition:
    @dg.asset(
        key=steps.names.asset("change_log"),
        deps=[steps.names.asset("decode_messages"), steps.names.asset("snapshot")],
        partitions_def=landing_days(lambda: steps.paths, utc_now().date()),
        backfill_policy=dg.BackfillPolicy.single_run(),
        description=(
            "One row per change, with images as sent; DDL, bootstraps and watermarks are rows too "
            "(column `kind`). It needs no schema, so changes never wait for one here. Mirrors and "
            "the schema registry are made from it, and can be made again. One partition per "
            "landing day (UTC), appended to by `decode_messages`. Materialise a partition to "
            "decode that day's records again: differences are corrected, and the affected tables "
            "are folded again."
        ),
        metadata=definition_metadata("change_log"),
        pool=steps.names.pool,
    )
    def change_log(
        context: dg.AssetExecutionContext, config: RedecodeConfig, ticdc_spark: LakeSpark
    ) -> dg.MaterializeResult:
        days = [date.fromisoformat(key) for key in context.partition_keys]
        with steps.writing(context), watched() as ran:
            lake = steps.lake.using(ticdc_spark.spark_session)
            redecoding = steps.note(redecode(lake, days, accept_losses=config.accept_losses))
        reporter = Reporter(steps, context.instance)
        log_news(context, reporter.days(redecoding.decoding.days, but=frozenset(days)))
        for item in redecoding.days:
            say = context.log.warning if item.losses else context.log.info
            say("%s", item.sentence())
            context.add_asset_metadata(
                redecoding_metadata(item, steps.paths), partition_key=f"{item.day:{DAY_FORMAT}}"
            )
        if redecoding.applying is not None:
            context.log.info("%s", redecoding.applying.reason)
            log_news(context, reporter.mirrors(redecoding.applying))
        return dg.MaterializeResult(metadata=ran_metadata(ran))

    return change_log


def _schema_registry(steps: ChangefeedSteps) -> dg.AssetsDefinition:
    @dg.asset(
        key=steps.names.asset("schema_registry"),
        # A sync leaves change_log out, so the order of its steps needs the step that it has.
        deps=[steps.names.asset("decode_messages"), steps.names.asset("change_log")],
        description=(
            "Every schema version of every table, with its validity and its source. The DDL "
            "history and schema conflicts are in separate tables. Rows whose schema version is "
            "not here are held."
        ),
        metadata=definition_metadata("schema_registry"),
        pool=steps.names.pool,
    )
    def schema_registry(
        context: dg.AssetExecutionContext, ticdc_spark: LakeSpark
    ) -> dg.MaterializeResult:
        (report,) = _done(steps, context, ticdc_spark, Syncing.register)
        return report

    return schema_registry


def _report(steps: ChangefeedSteps) -> dg.AssetsDefinition:
    """Return the asset that writes the page of a changefeed.

    It reads small control tables and starts no Spark, so it is in no pool and never waits for the
    writer. It is not part of a sync, because a page that reports missing syncs must be written when
    there are none.
    """
    names = steps.names

    @dg.asset(
        key=names.asset(REPORT),
        deps=[names.asset(name) for name in ("apply_changes", "schema_registry", "quarantine")],
        description=(
            "A status page for a browser: lag, throughput, backlog, held rows and quarantine over "
            "time, tables, DDL timeline, schema versions, partitions and cuts. It is one file that "
            "needs no server, at `path`. Writing it starts no Spark and waits for no other run."
        ),
        kinds={"plotly"},
    )
    def report(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        # plotly takes a while to import; loading definitions should not.
        from ticdc_assets.observe.overview import read_overview
        from ticdc_assets.observe.report.page import page
        from ticdc_assets.storage.paths import write_at_once

        name_worker(context, steps.paths, steps.changefeed.writer)
        with reported_failures(steps.paths):
            overview = read_overview(steps.lake)
        text, place = page([overview]), steps.paths.report
        write_at_once(place, text)
        return dg.MaterializeResult(
            metadata={
                "path": dg.MetadataValue.path(str(place)),
                "bytes": len(text.encode("utf-8")),
                "verdict": overview.status.level.word,
            }
        )

    return report


def _apply_changes(steps: ChangefeedSteps) -> dg.AssetsDefinition:
    @dg.asset(
        key=steps.names.asset("apply_changes"),
        deps=[steps.names.asset("change_log"), steps.names.asset("schema_registry")],
        description=(
            "Brings every mirror to one cut: all row changes at or below the global watermark, "
            "with DDL in order, published for all tables at once. `outcome` and `reason` say how "
            "it ended, even if nothing could be applied. Each changed table is reported on its own "
            "asset."
        ),
        pool=steps.names.pool,
    )
    def apply_changes_asset(
        context: dg.AssetExecutionContext, config: ApplyConfig, ticdc_spark: LakeSpark
    ) -> dg.MaterializeResult:
        def applied(syncing: Syncing) -> Step:
            es_only = config.until is not None and read_statistics(steps.paths).es_only
            return syncing.apply(
                until=config.cut(es_only=es_only), refold_quarantined=config.refold_quarantined
            )

        (report,) = _done(steps, context, ticdc_spark, applied)
        return report

    return apply_changes_asset


class RedecodeConfig(dg.Config):
    """What decoding days again is allowed."""

    accept_losses: bool = Field(
        default=False,
        description="Let rows go whose record is refused now; the run that refused says which.",
    )


_MAKERS: tuple[Callable[[ChangefeedSteps], dg.AssetsDefinition | dg.AssetSpec], ...] = (
    _kafka_topic,
    _raw_messages,
    _decode_messages,
    snapshot_asset,
    _change_log,
    _schema_registry,
    _apply_changes,
    _report,
)
