"""The four steps of a sync, each as its work and its report; assets and follow runs use it.

In: a changefeed's steps, a session, and the Dagster instance to report to. Out: for each step a
`Step` with the results of its own assets, and events about other assets: changed landing days of
`change_log`, each mirror and history that changed. An asset's body returns the first and logs the
second; a follow run yields both.

The caller holds the changefeed's writer lock. Only the days and tables that the instance knows are
cached from sync to sync, because asking the instance gets slower with every event.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from time import monotonic
from typing import Any, TypeAlias

import dagster as dg
from dagster import DagsterInstance
from pyspark.sql import SparkSession

from ticdc_assets.base.names import counted
from ticdc_assets.config import Changefeed
from ticdc_assets.delta.control import partition_days
from ticdc_assets.delta.lake import Lake
from ticdc_assets.log.change_statistics import read_statistics
from ticdc_assets.log.checksums import compare_new
from ticdc_assets.log.cuts import Cut, MirrorCut, newest_cut
from ticdc_assets.log.decoding import decode_new
from ticdc_assets.log.landing import land
from ticdc_assets.log.quarantine import count_open
from ticdc_assets.log.schema_tables import register_new
from ticdc_assets.mirrors.applying import apply_changes
from ticdc_assets.mirrors.standing import Applying, Outcome
from ticdc_assets.model.tso import time_with_tso, to_datetime
from ticdc_assets.observe.overview import read_schemas
from ticdc_assets.observe.wording import listed
from ticdc_assets.orchestration.following import NewData
from ticdc_assets.orchestration.metadata import (
    Metadata,
    applying_metadata,
    changed_mirrors,
    described,
    history_metadata,
    mirror_metadata,
    offsets_metadata,
    path_metadata,
    ran_metadata,
    rate_metadata,
    sample_metadata,
    seeding_metadata,
    together_metadata,
    utc_now,
)
from ticdc_assets.orchestration.partitions import DAY_FORMAT, FeedNames
from ticdc_assets.orchestration.steps import ChangefeedSteps
from ticdc_assets.reading.mirrors import sample_rows
from ticdc_assets.registry.history import SchemaKey
from ticdc_assets.repair.maintenance import join_new_files
from ticdc_assets.repair.redriving import redrive
from ticdc_assets.repair.seeding import seed
from ticdc_assets.spark.compute import watched
from ticdc_assets.storage.lake_paths import LakePaths

_JOINING = 16
"""After so many batches a sync looks for small files to join: that costs about a third of a sync.

It does so without a cut too: a watermark may be late for hours, and each landing adds files.
"""

_TABLES_SAMPLED = 100
"""How many tables at most a sync shows rows of: reading them takes some milliseconds each."""

Event: TypeAlias = dg.AssetMaterialization | dg.AssetObservation


def result_of(event: dg.AssetMaterialization) -> dg.MaterializeResult:
    """Return a report as an asset's body returns it."""
    version = (event.tags or {}).get(DATA_VERSION)
    return dg.MaterializeResult(
        asset_key=event.asset_key,
        metadata=dict(event.metadata),
        data_version=None if version is None else dg.DataVersion(version),
    )


def log_events(
    context: dg.AssetExecutionContext | dg.OpExecutionContext, events: Iterable[Event]
) -> None:
    """Report events about other assets from the body of an asset or an op."""
    for event in events:
        context.log_event(event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a sync, done: what it did in a clause, and reports on its assets and others."""

    said: str
    new_data: NewData
    reports: tuple[dg.AssetMaterialization, ...]
    events: tuple[Event, ...] = ()

    def result(self) -> dg.MaterializeResult:
        """Return the report of a step that has one asset, as the asset's body returns it."""
        (report,) = self.reports
        return result_of(report)


@contextmanager
def _measured() -> Iterator[Callable[[int], Metadata]]:
    """Yield the function from the number of items done to the time it took, and where it ran."""
    began = monotonic()
    with watched() as ran:
        yield lambda count: rate_metadata(count, monotonic() - began) | ran_metadata(ran)


class Syncing:
    """The steps of a sync of one changefeed; `steps` notes their results."""

    def __init__(
        self, steps: ChangefeedSteps, spark: SparkSession, instance: DagsterInstance
    ) -> None:
        self._steps = steps
        self._spark = spark
        self._reporter = Reporter(steps, instance)
        self._seen_batch = 0

    @property
    def _lake(self) -> Lake:
        return self._steps.lake.using(self._spark)

    def _report(self, asset: str, metadata: Metadata) -> dg.AssetMaterialization:
        return dg.AssetMaterialization(asset_key=self._steps.names.asset(asset), metadata=metadata)

    def land(self, *, max_records: int | None = None) -> Step:
        """Land the new records of the source."""
        with _measured() as took:
            landing = self._steps.note(land(self._lake, max_records=max_records))
            metadata = {
                "records": landing.records,
                "batch": landing.batch,
                "backlog": landing.backlog,
                "offsets": offsets_metadata(landing.partitions),
                **path_metadata(self._steps.paths.raw_messages),
                **took(landing.records),
            }
        return Step(
            said=f"{counted(landing.records, 'record')} landed",
            new_data=NewData.WATERMARKS if landing.records else NewData.NOTHING,
            reports=(self._report("raw_messages", metadata),),
        )

    def seed(self, folder: str, **options: Any) -> Step:
        """Seed tables from an export; the arguments are those of `repair.seeding.seed`."""
        with _measured() as took:
            seeding = self._steps.note(seed(self._lake, folder, **options))
            metadata = seeding_metadata(seeding, self._steps.paths) | took(seeding.rows)
        seeded = f"{counted(seeding.rows, 'row')} of {counted(len(seeding.tables), 'table')}"
        return Step(
            said=f"{seeded} seeded at {time_with_tso(seeding.tso)}",
            new_data=NewData.CHANGES if seeding.rows else NewData.NOTHING,
            reports=(self._report("snapshot", metadata),),
        )

    def decode(self, *, redrive_quarantined: bool = False) -> Step:
        """Decode landed records, and with `redrive_quarantined` those in quarantine too."""
        steps = self._steps
        with _measured() as took:
            decoding = steps.note(decode_new(self._lake))
            days, redriven = Counter(decoding.days), Metadata()
            if redrive_quarantined:
                redriving = steps.note(redrive(self._lake))
                redriven |= {
                    "redriven": redriving.records,
                    "redriven_decoded": redriving.decoded,
                    "redriven_still_quarantined": redriving.still_quarantined,
                    "tables_to_fold": len(redriving.refold),
                }
                days.update(redriving.days)
            statistics = read_statistics(steps.paths)
            counts = count_open(steps.paths, steps.changefeed.tables)
            total = sum(decoding.changes.values())
            metadata = {
                "changes": total,
                **{f"changes_{kind}": count for kind, count in sorted(decoding.changes.items())},
                "quarantined": decoding.quarantined,
                "batch": decoding.batch,
                "batches": decoding.batches,
                "dagster/row_count": sum(row["rows"] for row in statistics.rows),
                **path_metadata(steps.paths.change_log),
                **took(total),
                **redriven,
            }
        changes = sum(decoding.changes.get(kind, 0) for kind in ("row", "ddl", "snapshot"))
        new_data = NewData.WATERMARKS if decoding.batches else NewData.NOTHING
        quarantine = {
            "quarantined": decoding.quarantined,
            "open": counts.decode + counts.apply,
            "open_decode": counts.decode,
            "open_apply": counts.apply,
            **path_metadata(steps.paths.quarantine),
            **redriven,
        }
        return Step(
            said=f"{counted(changes, 'change')} decoded",
            new_data=NewData.CHANGES if changes or decoding.quarantined else new_data,
            reports=(
                self._report("decode_messages", metadata),
                self._report("quarantine", quarantine),
            ),
            events=tuple(self._reporter.days(days)),
        )

    def register(self) -> Step:
        """Register the schemas that the change log has."""
        registering = self._steps.note(register_new(self._lake))
        metadata = {
            "changed": registering.changed,
            "schema_versions": registering.schema_versions,
            "ddls": registering.ddls,
            "conflicts": registering.conflicts,
            "batch": registering.batch,
            "dagster/row_count": registering.schema_versions,
            **path_metadata(self._steps.paths.schema_registry),
        }
        return Step(
            said=counted(registering.schema_versions, "schema version"),
            new_data=NewData.CHANGES if registering.changed else NewData.NOTHING,
            reports=(self._report("schema_registry", metadata),),
            events=tuple(self._reporter.schemas(registering.new)),
        )

    def apply(self, *, until: int | None = None, refold_quarantined: bool = False) -> Step:
        """Bring the mirrors to the newest possible cut, not beyond the TSO `until`.

        With `refold_quarantined`, every table with row changes in quarantine is folded again.
        """
        steps = self._steps
        with _measured() as took:
            statistics = read_statistics(steps.paths)
            applying = steps.note(
                apply_changes(self._lake, until=until, refold_quarantined=refold_quarantined)
            )
            compare_new(self._lake, statistics=statistics)
            cut = applying.cut
            # A batch that no cut has is news too: otherwise nothing records that it was applied.
            seen = max(self._seen_batch, cut.batch if cut else 0)
            self._seen_batch = statistics.batch
            new = applying.outcome is Outcome.PUBLISHED or statistics.batch > seen
            if new and statistics.batch % _JOINING == 0:
                join_new_files(self._lake)
            changed = changed_mirrors(applying)
            metadata = applying_metadata(applying, statistics.batch, utc_now())
            metadata |= took(sum(item.changes for item in changed))
        new_data = NewData.WATERMARKS if new else NewData.NOTHING
        return Step(
            said=f"{applying.outcome}: {applying.reason}",
            new_data=NewData.CHANGES if changed else new_data,
            reports=(self._report("apply_changes", metadata),),
            events=tuple(self._reporter.mirrors(applying)),
        )


class Reporter:
    """Reports a changefeed's tables and days to an instance.

    It also reports what the instance does not have: days and mirrors of a lake that is older than
    the instance, or of a run that was killed before it reported.
    """

    def __init__(self, steps: ChangefeedSteps, instance: DagsterInstance) -> None:
        self._steps = steps
        self._instance = instance
        self._days: set[str] | None = None
        self._tables: set[dg.AssetKey] | None = None

    def days(
        self, days: Mapping[date, int], *, but: frozenset[date] = frozenset()
    ) -> Iterator[Event]:
        """Yield reports on `change_log` of the landing days that were appended to."""
        key = self._steps.names.asset("change_log")
        if self._days is None:
            self._days = set(self._instance.get_materialized_partitions(key))
        there = partition_days(self._steps.paths.change_log, "landed_day")
        for day in sorted({*there, *days} - but):
            partition = f"{day:{DAY_FORMAT}}"
            if not days.get(day) and partition in self._days:
                continue
            self._days.add(partition)
            metadata = {"appended": days.get(day, 0)} | path_metadata(self._steps.paths.change_log)
            yield dg.AssetMaterialization(
                asset_key=key,
                partition=partition,
                description=described("change_log", metadata),
                metadata=metadata,
            )

    def schemas(self, new: Collection[SchemaKey]) -> Iterator[Event]:
        """Yield a report on each mirror with an asset for each of its new schema versions."""
        if not new:
            return
        shown = assets_of(newest_cut(self._steps.paths), self._steps.changefeed)
        tables = set(map(_name, shown))
        if known := [key for key in new if key[:2] in tables]:
            yield from schema_changes(self._steps.paths, self._steps.names, known)

    def mirrors(
        self, applying: Applying, *, but: frozenset[tuple[str, str]] = frozenset()
    ) -> Iterator[dg.AssetMaterialization]:
        """Yield a report of each table that an apply changed, except those in `but`.

        If the mirrors are too many to have an asset each, one report is on the asset that they
        share.
        """
        cut, names = applying.cut, self._steps.names
        changed = {_name(item) for item in changed_mirrors(applying)} - but
        if cut is None:
            return
        shown = assets_of(cut, self._steps.changefeed)
        if cut.mirrors and not shown:
            if changed:
                yield self._together(cut, changed)
            return
        if self._tables is None:
            prefix = [names.changefeed]
            self._tables = set(self._instance.get_asset_keys(prefix=prefix)) if shown else set()
        wanted = {
            _name(item)
            for item in shown
            if _name(item) in changed or names.mirror(*_name(item)) not in self._tables
        }
        yield from self.tables(cut, wanted - but)

    def tables(
        self, cut: Cut, tables: Collection[tuple[str, str]]
    ) -> Iterator[dg.AssetMaterialization]:
        """Yield a report of each of `tables`, and of its history, at a cut (see `mirrors`)."""
        names = self._steps.names
        if not assets_of(cut, self._steps.changefeed):
            yield self._together(cut, tables)
            return
        # Each mirror of the cut names its generation.
        paths = LakePaths(root=self._steps.root, changefeed=self._steps.changefeed.name)
        is_sampled = len(tables) <= _TABLES_SAMPLED
        limit = self._steps.changefeed.dagster.sample_rows if is_sampled else 0
        for mirror in cut.mirrors:
            if _name(mirror) not in tables or mirror.failed:
                continue
            key = names.mirror(*_name(mirror))
            if self._tables is not None:
                self._tables.add(key)
            metadata = mirror_metadata(mirror, cut, paths, utc_now())
            if limit and mirror.rows:
                timezone = self._steps.changefeed.timezone
                metadata |= sample_metadata(sample_rows(paths, mirror, timezone, limit=limit))
            yield dg.AssetMaterialization(
                asset_key=key,
                description=described("mirrors/*", metadata),
                metadata=metadata,
                tags={DATA_VERSION: data_version(mirror)},
            )
            if mirror.history_version is not None:
                yield dg.AssetMaterialization(
                    asset_key=names.history(*_name(mirror)),
                    description=f"{counted(mirror.history_rows or 0, 'version')}, {mirror.rows} "
                    "current",
                    metadata=history_metadata(mirror, cut, paths),
                )

    def _together(self, cut: Cut, tables: Collection[tuple[str, str]]) -> dg.AssetMaterialization:
        mirrors = [item for item in cut.mirrors if _name(item) in tables]
        return dg.AssetMaterialization(
            asset_key=self._steps.names.asset("mirrors"),
            description=f"{counted(len(mirrors), 'table')} changed",
            metadata=together_metadata(mirrors, cut),
        )


def schema_changes(
    paths: LakePaths, names: FeedNames, new: Collection[SchemaKey]
) -> Iterator[dg.AssetObservation]:
    """Yield an observation on a mirror's asset for each new schema version, oldest first.

    The first version of a table changes nothing, and has none. Dagster keeps its records forever,
    so defaults are shown without their values; `schema_registry` has them.
    """
    found = [
        (version, table)
        for table in read_schemas(paths, {key[:2] for key in new}, most=len(new))[0]
        for version in table.versions
        if not version.is_first and (table.database, table.table, version.version) in new
    ]
    for version, table in sorted(found, key=lambda item: item[0].valid_from):
        changes = listed(version.changes, "; ") or "nothing that is shown"
        yield dg.AssetObservation(
            asset_key=names.mirror(table.database, table.table),
            description=f"schema changed: {changes}",
            metadata={
                "schema_changes": changes,
                "schema_version": str(version.version),
                "schema_valid_from": dg.MetadataValue.timestamp(to_datetime(version.valid_from)),
                "columns": version.columns,
                "source": version.source,
            },
        )


DATA_VERSION = "dagster/data_version"
"""Tag of an event; Dagster compares it to find out whether downstream assets are out of date."""


def data_version(mirror: MirrorCut) -> str:
    """Return the data version of a mirror's asset: it names the version of its Delta table."""
    return f"{mirror.generation}/{mirror.mirror_id}@{mirror.version}"


def assets_of(cut: Cut | None, changefeed: Changefeed) -> tuple[MirrorCut, ...]:
    """Return the mirrors of a cut that have an asset each: all, or none if there are many."""
    if cut is None or len(cut.mirrors) > changefeed.dagster.table_assets:
        return ()
    return cut.mirrors


def _name(mirror: MirrorCut) -> tuple[str, str]:
    return (mirror.database, mirror.table)
