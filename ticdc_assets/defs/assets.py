"""The assets of one changefeed, in the order in which records become rows.

    kafka_topic -> raw_messages -> change_log, quarantine
    change_log -> schema_registry -> apply_changes -> mirrors

A step reads what is new since its own last commit, so running any of them again is safe and an
interrupted run is continued by the next. The bodies only call `lake` and say what it did.

`mirrors` has one partition a table. `apply_changes` reports each changed table on it while it
works, so one unpartitioned run moves any set of tables; materialising partitions of `mirrors`
themselves folds those tables again from the change log, at the cut they are at.

Not here: daily partitions for `raw_messages` and `change_log`. A job cannot mix daily and dynamic
partitions, and a run without a key fails on partitioned assets; so these tables are partitioned on
disk (`landed_day`) and not in Dagster, and decoding a day again is not offered by the UI.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TypedDict

import dagster as dg
from pydantic import Field

from ticdc_assets.config import CaptureSource, KafkaSource
from ticdc_assets.defs.metadata import (
    Metadata,
    applying_metadata,
    changed_mirrors,
    decoding_metadata,
    history_metadata,
    landing_metadata,
    maintaining_metadata,
    mirror_metadata,
    quarantine_metadata,
    redriving_metadata,
    registering_metadata,
    utc_now,
)
from ticdc_assets.defs.partitions import FeedNames, partition_of, table_of
from ticdc_assets.defs.resources import LakeSpark
from ticdc_assets.defs.steps import ChangefeedSteps
from ticdc_assets.defs.table_schemas import (
    change_log_columns,
    quarantine_columns,
    raw_messages_columns,
    schema_registry_columns,
)
from ticdc_assets.errors import ConfigError, NotFoundError, TicdcError
from ticdc_assets.lake.checksums import compare_new
from ticdc_assets.lake.cuts import Cut, MirrorCut, require_cut
from ticdc_assets.lake.decoding import decode_new, read_groups
from ticdc_assets.lake.landing import land
from ticdc_assets.lake.maintenance import maintain
from ticdc_assets.lake.mirrors import Applying, Outcome, apply_changes
from ticdc_assets.lake.quarantine import QuarantineCounts, count_open, read_quarantine
from ticdc_assets.lake.redriving import redrive
from ticdc_assets.lake.schema_tables import register_new
from ticdc_assets.tso import cut_of

APPLIED = dg.DataVersion("applied")
"""The data version of every `apply_changes`, and so the one that each mirror was made from.

An apply writes the mirrors itself. Would it have a version of its own each time, every mirror that
it left alone (and, being reported within the step, every one that it changed) would be shown as
out of date.
"""


class LandConfig(dg.Config):
    """How much to land."""

    max_records: int | None = Field(
        default=None, description="Land at most this many records; all that are there if not set."
    )


class DecodeConfig(dg.Config):
    """What to decode."""

    redrive: bool = Field(
        default=False, description="Also try the records in quarantine again (after a fix)."
    )


class ApplyConfig(dg.Config):
    """How far to apply."""

    until: str | None = Field(
        default=None,
        description="TSO or time (ISO 8601) not to go beyond; the global watermark if not set.",
    )
    refold_quarantined: bool = Field(
        default=False,
        description="Fold every table again that has row changes in quarantine (after a fix).",
    )

    def cut(self, *, es_only: bool) -> int | None:
        """Return the cut that `until` names.

        Args:
            es_only: whether the changes have no commit ts, so that only a time has a meaning.

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
        assets = [make(steps) for make in _MAKERS]
        if steps.changefeed.history or steps.changefeed.soft_delete:
            assets.append(_history(steps))
        return assets


def _kafka_topic(steps: ChangefeedSteps) -> dg.AssetSpec:
    match steps.changefeed.source:
        case KafkaSource(topics=topics):
            kind, what = "kafka", f"Kafka topic {', '.join(topics)}"
        case CaptureSource():
            kind, what = "file", "A capture: a file of Kafka records"
    return dg.AssetSpec(
        key=steps.names.asset("kafka_topic"),
        description=(
            f"{what}, written by TiCDC in the format {steps.changefeed.wire_format}. Not computed "
            "here: the sensor observes its offsets and how many records wait to be landed."
        ),
        group_name=steps.changefeed.name,
        kinds={kind},
    )


def _raw_messages(steps: ChangefeedSteps) -> dg.AssetsDefinition:
    @dg.asset(
        key=steps.names.asset("raw_messages"),
        deps=[steps.names.asset("kafka_topic")],
        description=(
            "Every record of the topic, as it is, exactly once: one row a record, with its "
            "coordinates. The newest commit is the only memory of the position. Records that are "
            "gone before they were landed fail the run with topic, partition and offsets."
        ),
        metadata={"dagster/column_schema": raw_messages_columns()},
        **_common(steps.names),
    )
    def raw_messages(
        context: dg.AssetExecutionContext, config: LandConfig, spark: LakeSpark
    ) -> dg.MaterializeResult:
        with steps.writing(context):
            landing = steps.note(
                land(
                    spark.spark_session,
                    steps.paths,
                    steps.changefeed,
                    max_records=config.max_records,
                )
            )
        return dg.MaterializeResult(metadata=landing_metadata(landing, steps.paths))

    return raw_messages


def _change_log(steps: ChangefeedSteps) -> dg.AssetsDefinition:
    names = steps.names

    @dg.multi_asset(
        name=names.op("change_log"),
        pool=names.pool,
        specs=[
            dg.AssetSpec(
                key=names.asset("change_log"),
                deps=[names.asset("raw_messages")],
                description=(
                    "One row a change, with images as sent; DDL, bootstraps and watermarks are "
                    "rows of it too (column `kind`). It needs no schema, so nothing waits before "
                    "it: mirrors and the schema registry are made from it and can be made again."
                ),
                metadata={"dagster/column_schema": change_log_columns()},
                group_name=names.changefeed,
                kinds=_KINDS,
            ),
            dg.AssetSpec(
                key=names.asset("quarantine"),
                deps=[names.asset("raw_messages")],
                description=(
                    "What could not be decoded or did not fit its schema: coordinates, reason, "
                    "position, expected and got. The record itself stays in raw_messages. After a "
                    f"fix, run the job {names.redrive_job}."
                ),
                metadata={"dagster/column_schema": quarantine_columns()},
                group_name=names.changefeed,
                kinds=_KINDS,
            ),
        ],
    )
    def change_log(
        context: dg.AssetExecutionContext, config: DecodeConfig, spark: LakeSpark
    ) -> Iterator[dg.MaterializeResult]:
        redriven: Metadata = {}
        with steps.writing(context):
            decoding = steps.note(decode_new(spark.spark_session, steps.paths, steps.changefeed))
            if config.redrive:
                redriven = redriving_metadata(
                    steps.note(redrive(spark.spark_session, steps.paths, steps.changefeed))
                )
            groups, counts = read_groups(steps.paths), count_open(steps.paths)
        yield dg.MaterializeResult(
            asset_key=names.asset("change_log"),
            metadata=decoding_metadata(decoding, groups, steps.paths) | redriven,
        )
        yield dg.MaterializeResult(
            asset_key=names.asset("quarantine"),
            metadata=quarantine_metadata(decoding.quarantined, counts, steps.paths) | redriven,
        )

    return change_log


def _schema_registry(steps: ChangefeedSteps) -> dg.AssetsDefinition:
    @dg.asset(
        key=steps.names.asset("schema_registry"),
        deps=[steps.names.asset("change_log")],
        description=(
            "Every version of every table's schema, from when to when it holds and what it was "
            "learnt from; the DDL history and conflicting claims stand in tables beside it. Rows "
            "whose version is not here are held."
        ),
        metadata={"dagster/column_schema": schema_registry_columns()},
        **_common(steps.names),
    )
    def schema_registry(
        context: dg.AssetExecutionContext, spark: LakeSpark
    ) -> dg.MaterializeResult:
        with steps.writing(context):
            registering = steps.note(
                register_new(spark.spark_session, steps.paths, steps.changefeed)
            )
        return dg.MaterializeResult(metadata=registering_metadata(registering, steps.paths))

    return schema_registry


def _apply_changes(steps: ChangefeedSteps) -> dg.AssetsDefinition:
    @dg.asset(
        key=steps.names.asset("apply_changes"),
        deps=[steps.names.asset("change_log"), steps.names.asset("schema_registry")],
        description=(
            "Brings every mirror to one cut: all row changes at or below the global watermark, "
            "DDL in its place, published for all tables at once. `outcome` and `reason` say how "
            "it ended, also when nothing could be applied. Each table that changed is reported "
            "on `mirrors`."
        ),
        **_common(steps.names),
    )
    def apply_changes_asset(
        context: dg.AssetExecutionContext, config: ApplyConfig, spark: LakeSpark
    ) -> dg.MaterializeResult:
        with steps.writing(context):
            groups, before = read_groups(steps.paths), count_open(steps.paths)
            applying = steps.note(
                apply_changes(
                    spark.spark_session,
                    steps.paths,
                    steps.changefeed,
                    until=config.cut(es_only=groups.es_only),
                    refold=_quarantined_tables(steps) if config.refold_quarantined else (),
                )
            )
            compare_new(spark.spark_session, steps.paths, steps.changefeed, groups=groups)
        _report_mirrors(context, steps, applying)
        _report_quarantine(context, steps, before)
        context.log.info("%s: %s", applying.outcome, applying.reason)
        return dg.MaterializeResult(
            metadata=applying_metadata(applying, groups.batch, utc_now()), data_version=APPLIED
        )

    return apply_changes_asset


def _mirrors(steps: ChangefeedSteps) -> dg.AssetsDefinition:
    @dg.asset(
        key=steps.names.asset("mirrors"),
        deps=[steps.names.asset("apply_changes")],
        partitions_def=steps.names.tables,
        backfill_policy=dg.BackfillPolicy.single_run(),
        description=(
            "The tables as they are upstream: one Delta table and one partition per table, all at "
            "the TSO of the newest cut. They are kept up to date by `apply_changes`. Materialise "
            "a partition to fold that table again from the whole change log."
        ),
        **_common(steps.names),
    )
    def mirrors(context: dg.AssetExecutionContext, spark: LakeSpark) -> dg.MaterializeResult:
        with steps.writing(context):
            tables = frozenset(table_of(key) for key in context.partition_keys)
            cut = require_cut(steps.paths)
            _require_tables(cut, tables)
            applying = steps.note(
                apply_changes(
                    spark.spark_session,
                    steps.paths,
                    steps.changefeed,
                    until=cut.tso,
                    refold=tables,
                )
            )
            made = _require_published(applying)
        _report_mirrors(context, steps, applying, but=tables)
        for mirror in (item for item in made.mirrors if (item.database, item.table) in tables):
            context.add_asset_metadata(
                mirror_metadata(mirror, made, steps.paths, utc_now()),
                partition_key=partition_of(mirror.database, mirror.table),
            )
        return dg.MaterializeResult()

    return mirrors


def _maintenance(steps: ChangefeedSteps) -> dg.AssetsDefinition:
    @dg.asset(
        key=steps.names.asset("maintenance"),
        deps=[steps.names.asset("apply_changes")],
        description=(
            "Removes what is older than `retention` says, makes few files of many (OPTIMIZE) and "
            "removes files that neither the newest cut nor a kept one needs (VACUUM). No row of a "
            "mirror changes, nor one as of a moment that is kept."
        ),
        **_common(steps.names),
    )
    def maintenance(context: dg.AssetExecutionContext, spark: LakeSpark) -> dg.MaterializeResult:
        with steps.writing(context):
            done = steps.note(maintain(spark.spark_session, steps.paths, steps.changefeed))
        for line in done.lines():
            context.log.info("%s", line)
        return dg.MaterializeResult(metadata=maintaining_metadata(done))

    return maintenance


def _history(steps: ChangefeedSteps) -> dg.AssetSpec:
    return dg.AssetSpec(
        key=steps.names.asset("history"),
        deps=[steps.names.asset("apply_changes")],
        partitions_def=steps.names.tables,
        description=(
            "Every version of every row, from which cut to which it was there, of the tables that "
            "are configured. `apply_changes` keeps it beside the mirror, at the same cut, and "
            "reports it here. Materialise the table's partition of `mirrors` to fold both again."
        ),
        group_name=steps.changefeed.name,
        kinds=_KINDS,
    )


_MAKERS: tuple[Callable[[ChangefeedSteps], dg.AssetsDefinition | dg.AssetSpec], ...] = (
    _kafka_topic,
    _raw_messages,
    _change_log,
    _schema_registry,
    _apply_changes,
    _mirrors,
    _maintenance,
)


class _Common(TypedDict):
    group_name: str
    kinds: set[str]
    pool: str


_KINDS = {"spark", "deltalake"}


def _common(names: FeedNames) -> _Common:
    return {"group_name": names.changefeed, "kinds": _KINDS, "pool": names.pool}


def _quarantined_tables(steps: ChangefeedSteps) -> frozenset[tuple[str, str]]:
    return frozenset(
        (row["database"], row["table"])
        for row in read_quarantine(steps.paths)
        if row["stage"] == "apply"
    )


def _require_tables(cut: Cut, tables: Iterable[tuple[str, str]]) -> None:
    missing = [
        f"{database}.{table}"
        for database, table in sorted(tables)
        if cut.mirror(database, table) is None
    ]
    if missing:
        raise NotFoundError(
            f"no mirror of {', '.join(missing)} in the newest cut ({cut.moment}): dropped, "
            "renamed, or its schema has not arrived yet"
        )


def _require_published(applying: Applying) -> Cut:
    if applying.cut is None or applying.outcome in (Outcome.WAITING, Outcome.AHEAD):
        raise TicdcError(f"the mirrors were not folded: {applying.reason}")
    return applying.cut


def _report_mirrors(
    context: dg.AssetExecutionContext,
    steps: ChangefeedSteps,
    applying: Applying,
    *,
    but: frozenset[tuple[str, str]] = frozenset(),
) -> None:
    """Make the partitions of `mirrors` those of the cut, and report what changed.

    Also reported is what this instance has never heard of: mirrors of a lake that is older than
    it, or of a run that was killed between publishing and reporting.
    """
    cut = applying.cut
    if cut is None:
        return
    key, instance, partitions = steps.names.asset("mirrors"), context.instance, steps.names.tables
    assert partitions.name is not None
    by_partition = {partition_of(item.database, item.table): item for item in cut.mirrors}
    there = set(instance.get_dynamic_partitions(partitions.name))
    # Partitions come first: an event of a partition that does not exist shows up nowhere.
    instance.add_dynamic_partitions(partitions.name, sorted(by_partition.keys() - there))
    for gone in sorted(there - by_partition.keys()):
        instance.delete_dynamic_partition(partitions.name, gone)
    changed = {(item.database, item.table) for item in changed_mirrors(applying)}
    known = instance.get_materialized_partitions(key)
    for partition, mirror in sorted(by_partition.items()):
        name = (mirror.database, mirror.table)
        if name not in but and (name in changed or partition not in known):
            context.log_event(_materialization(key, partition, mirror, cut, steps))
    _report_histories(context, steps, cut, changed)


def _report_histories(
    context: dg.AssetExecutionContext,
    steps: ChangefeedSteps,
    cut: Cut,
    changed: set[tuple[str, str]],
) -> None:
    """Report the histories of the tables that changed, and those never reported before."""
    kept = [item for item in cut.mirrors if item.history_version is not None]
    if not kept:
        return
    key = steps.names.asset("history")
    known = context.instance.get_materialized_partitions(key)
    for mirror in kept:
        partition = partition_of(mirror.database, mirror.table)
        if (mirror.database, mirror.table) in changed or partition not in known:
            context.log_event(
                dg.AssetMaterialization(
                    asset_key=key,
                    partition=partition,
                    description=f"{mirror.history_rows} versions, {mirror.rows} current",
                    metadata=history_metadata(mirror, cut, steps.paths),
                )
            )


def _report_quarantine(
    context: dg.AssetExecutionContext, steps: ChangefeedSteps, before: QuarantineCounts
) -> None:
    """Report on `quarantine` what an apply put there or took out of it."""
    after = count_open(steps.paths)
    if after == before:
        return
    context.log_event(
        dg.AssetObservation(
            asset_key=steps.names.asset("quarantine"),
            description=f"apply_changes: {before.apply} open row changes before, {after.apply} now",
            metadata=quarantine_metadata(max(0, after.apply - before.apply), after, steps.paths),
        )
    )


def _materialization(
    key: dg.AssetKey, partition: str, mirror: MirrorCut, cut: Cut, steps: ChangefeedSteps
) -> dg.AssetMaterialization:
    return dg.AssetMaterialization(
        asset_key=key,
        partition=partition,
        description=f"{mirror.mode}: {mirror.changes} keys changed, {mirror.rows} rows",
        metadata=mirror_metadata(mirror, cut, steps.paths, utc_now()),
        tags=_provenance(steps.names, mirror),
    )


def _provenance(names: FeedNames, mirror: MirrorCut) -> dict[str, str]:
    """Return the tags that Dagster itself gives to what a step returns, for a reported mirror."""
    apply = names.asset("apply_changes").to_user_string()
    return {
        "dagster/data_version": f"{mirror.mirror_id}@{mirror.version}",
        "dagster/code_version": "none",
        f"dagster/input_data_version/{apply}": APPLIED.value,
        f"dagster/input_event_pointer/{apply}": "NULL",
    }
