"""The four steps of a sync, each as its work and its report; assets and follow runs use it.

In: a changefeed's steps, a session, and the Dagster instance to report to. Out: for each step a
`Step` with the results of its own assets, and events about other assets: changed landing days of
`change_log`, changed `mirrors` and histories, `quarantine`. An asset's body returns the first and
logs the second; a follow run yields both.

The caller holds the changefeed's writer lock. Only the partitions that the instance knows are
cached from sync to sync, because asking the instance gets slower with every event. Losing this
cache does no harm.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import date
from functools import wraps
from time import monotonic
from typing import Any, TypeAlias, TypeVar

import dagster as dg
from dagster import DagsterInstance
from pyspark.sql import SparkSession

from ticdc_assets.base.names import counted
from ticdc_assets.delta.control import partition_days
from ticdc_assets.log.change_statistics import read_statistics
from ticdc_assets.log.checksums import compare_new
from ticdc_assets.log.cuts import Cut, MirrorCut
from ticdc_assets.log.decoding import decode_new
from ticdc_assets.log.landing import land
from ticdc_assets.log.quarantine import QuarantineCounts, count_open
from ticdc_assets.log.schema_tables import register_new
from ticdc_assets.mirrors.applying import apply_changes
from ticdc_assets.mirrors.standing import Applying, Outcome
from ticdc_assets.model.tso import time_with_tso
from ticdc_assets.orchestration.following import NewData
from ticdc_assets.orchestration.metadata import (
    DAY_SAID,
    MIRROR_SAID,
    QUARANTINE_SAID,
    Metadata,
    applying_metadata,
    changed_mirrors,
    cut_metadata,
    day_metadata,
    decoding_metadata,
    described,
    history_metadata,
    landing_metadata,
    left_out_metadata,
    mirror_metadata,
    quarantine_metadata,
    ran_metadata,
    rate_metadata,
    redriving_metadata,
    registering_metadata,
    seeded_rows_metadata,
    seeding_metadata,
    utc_now,
)
from ticdc_assets.orchestration.partitions import DAY_FORMAT, partition_of, seeded_tables
from ticdc_assets.orchestration.schema_metadata import schema_metadata
from ticdc_assets.orchestration.steps import ChangefeedSteps
from ticdc_assets.repair.redriving import redrive
from ticdc_assets.repair.seeding import Seeding, seed
from ticdc_assets.source.exports.dialect import CsvDialect
from ticdc_assets.spark.compute import watched
from ticdc_assets.storage.lake_paths import LakePaths

APPLIED = dg.DataVersion("applied")
"""The data version of every `apply_changes`, and so the one that each mirror was made from.

An apply writes the mirrors itself. Would it have a version of its own each time, every mirror that
it left alone (and, being reported within the step, every one that it changed) would be shown as
out of date.
"""

DECODED = dg.DataVersion("decoded")
"""The data version of every `decode_messages`, for the same reason."""

LOGGED = dg.DataVersion("logged")
"""The data version of every day of `change_log`.

A sync reads new records of the newest days; it does not report the days that it did not read.
"""

Event: TypeAlias = dg.AssetMaterialization | dg.AssetObservation


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The report of a step on an asset of its own.

    Attributes:
        asset: the asset.
        metadata: the numbers.
        data_version: its data version; Dagster's own choice if None.
    """

    asset: dg.AssetKey
    metadata: Metadata
    data_version: dg.DataVersion | None = None

    def result(self) -> dg.MaterializeResult:
        """Return what an asset's body returns."""
        return dg.MaterializeResult(
            asset_key=self.asset, metadata=self.metadata, data_version=self.data_version
        )

    def event(self) -> dg.AssetMaterialization:
        """Return the same as an event that any run may report."""
        version = self.data_version
        return dg.AssetMaterialization(
            asset_key=self.asset,
            metadata=self.metadata,
            tags=None if version is None else {"dagster/data_version": version.value},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a sync, done.

    Attributes:
        said: one clause about what it did.
        new_data: the kind of new data.
        reports: reports on its own assets.
        events: events about other assets.
    """

    said: str
    new_data: NewData
    reports: tuple[Report, ...]
    events: tuple[Event, ...] = ()

    @property
    def report(self) -> Report:
        """The only report of a step that has one asset."""
        (report,) = self.reports
        return report


_Method = TypeVar("_Method", bound=Callable[..., Step])


def _saying_where(method: _Method) -> _Method:
    """Let the first report of a step say where its work ran."""

    @wraps(method)
    def run(*args: Any, **kwargs: Any) -> Step:
        with watched() as ran:
            step = method(*args, **kwargs)
        first, *others = step.reports
        said = replace(first, metadata=first.metadata | ran_metadata(ran))
        return replace(step, reports=(said, *others))

    return run  # pyright: ignore[reportReturnType]  # wraps keeps the signature


class Syncing:
    """The steps of a sync of one changefeed.

    Args:
        steps: the changefeed; results are noted there.
        spark: the session.
        instance: the Dagster instance that is told.
    """

    def __init__(
        self, steps: ChangefeedSteps, spark: SparkSession, instance: DagsterInstance
    ) -> None:
        self._steps = steps
        self._spark = spark
        self._reporter = PartitionReporter(steps, instance)
        self._looked_at = 0

    @_saying_where
    def land(self, *, max_records: int | None = None) -> Step:
        """Land the new records of the source."""
        steps, began = self._steps, monotonic()
        landing = steps.note(
            land(
                steps.lake.using(self._spark),
                max_records=max_records,
            )
        )
        return Step(
            said=f"{counted(landing.records, 'record')} landed",
            new_data=NewData.WATERMARKS if landing.records else NewData.NOTHING,
            reports=(
                Report(
                    asset=steps.names.asset("raw_messages"),
                    metadata=landing_metadata(landing, steps.paths)
                    | rate_metadata(landing.records, monotonic() - began),
                ),
            ),
        )

    @_saying_where
    def seed(
        self,
        folder: str,
        *,
        tables: Collection[tuple[str, str]],
        tso: int | None,
        dialect: CsvDialect,
        timezone: str | None,
    ) -> Step:
        """Seed tables from an export; the arguments are those of `repair.seeding.seed`."""
        steps, began = self._steps, monotonic()
        found = steps.note(
            seed(
                steps.lake.using(self._spark),
                folder,
                tables=tables,
                tso=tso,
                dialect=dialect,
                timezone=timezone,
            )
        )
        return Step(
            said=f"{counted(found.rows, 'row')} of {counted(len(found.tables), 'table')} seeded at "
            f"{time_with_tso(found.tso)}",
            new_data=NewData.CHANGES if found.rows else NewData.NOTHING,
            reports=(
                Report(
                    asset=steps.names.asset("seed_tables"),
                    metadata=seeding_metadata(found, steps.paths)
                    | rate_metadata(found.rows, monotonic() - began),
                ),
            ),
            events=tuple(self._reporter.seeded(found)),
        )

    @_saying_where
    def decode(self, *, redrive_quarantined: bool = False) -> Step:
        """Decode landed records, and with `redrive_quarantined` those in quarantine too."""
        steps, names, began = self._steps, self._steps.names, monotonic()
        decoding = steps.note(decode_new(steps.lake.using(self._spark)))
        days, redriven = Counter(decoding.days), Metadata()
        if redrive_quarantined:
            redriving = steps.note(redrive(steps.lake.using(self._spark)))
            redriven = redriving_metadata(redriving)
            days.update(redriving.days)
        statistics, counts = (
            read_statistics(steps.paths),
            count_open(steps.paths, steps.changefeed.tables),
        )
        changes = sum(decoding.changes.get(kind, 0) for kind in ("row", "ddl", "snapshot"))
        new_data = NewData.WATERMARKS if decoding.batches else NewData.NOTHING
        return Step(
            said=f"{counted(changes, 'change')} decoded",
            new_data=NewData.CHANGES if changes or decoding.quarantined else new_data,
            reports=(
                Report(
                    asset=names.asset("decode_messages"),
                    metadata=decoding_metadata(decoding, statistics, steps.paths)
                    | rate_metadata(sum(decoding.changes.values()), monotonic() - began)
                    | redriven,
                    data_version=DECODED,
                ),
                Report(
                    asset=names.asset("quarantine"),
                    metadata=quarantine_metadata(decoding.quarantined, counts, steps.paths)
                    | redriven,
                ),
            ),
            events=tuple(self._reporter.days(days)),
        )

    def register(self) -> Step:
        """Register the schemas that the change log has."""
        steps = self._steps
        registering = steps.note(register_new(steps.lake))
        return Step(
            said=counted(registering.schema_versions, "schema version"),
            new_data=NewData.CHANGES if registering.changed else NewData.NOTHING,
            reports=(
                Report(
                    asset=steps.names.asset("schema_registry"),
                    metadata=registering_metadata(registering, steps.paths)
                    | schema_metadata(steps.paths),
                ),
            ),
        )

    @_saying_where
    def apply(self, *, until: int | None = None, refold_quarantined: bool = False) -> Step:
        """Bring the mirrors to the newest cut there can be.

        Args:
            until: TSO not to go beyond.
            refold_quarantined: whether to fold again every table with row changes in quarantine.
        """
        steps, began = self._steps, monotonic()
        statistics, before = (
            read_statistics(steps.paths),
            count_open(steps.paths, steps.changefeed.tables),
        )
        applying = steps.note(
            apply_changes(
                steps.lake.using(self._spark),
                until=until,
                refold_quarantined=refold_quarantined,
            )
        )
        compare_new(
            steps.lake.using(self._spark),
            statistics=statistics,
        )
        changed = changed_mirrors(applying)
        # Also to be told is that a batch was looked at which no cut has: nobody else would know.
        looked_at = max(self._looked_at, applying.cut.batch if applying.cut else 0)
        self._looked_at = statistics.batch
        new = applying.outcome is Outcome.PUBLISHED or statistics.batch > looked_at
        new_data = NewData.WATERMARKS if new else NewData.NOTHING
        return Step(
            said=f"{applying.outcome}: {applying.reason}",
            new_data=NewData.CHANGES if changed else new_data,
            reports=(
                Report(
                    asset=steps.names.asset("apply_changes"),
                    metadata=applying_metadata(
                        applying,
                        statistics.batch,
                        utc_now(),
                        limit=steps.changefeed.dagster.table_events,
                    )
                    | rate_metadata(sum(item.changes for item in changed), monotonic() - began),
                    data_version=APPLIED,
                ),
            ),
            events=(*self._reporter.mirrors(applying), *self._reporter.quarantine(before)),
        )


class PartitionReporter:
    """What the instance has been told of a changefeed's partitions, and what it has not been.

    Args:
        steps: the changefeed.
        instance: the instance.
    """

    def __init__(self, steps: ChangefeedSteps, instance: DagsterInstance) -> None:
        self._steps = steps
        self._instance = instance
        self._known: dict[dg.AssetKey, set[str]] = {}
        self._tables: set[str] | None = None
        self._mirrors: set[dg.AssetKey] | None = None

    def days(
        self, days: Mapping[date, int], *, but: frozenset[date] = frozenset()
    ) -> Iterator[Event]:
        """Yield reports on `change_log` of the landing days that were appended to.

        Also reported is what this instance has never heard of: days of a lake that is older than
        it, or of a run that was killed between decoding and reporting.
        """
        key = self._steps.names.asset("change_log")
        known = self._known_partitions(key)
        there = partition_days(self._steps.paths.change_log, "landed_day")
        for day in sorted({*there, *days} - but):
            partition = f"{day:{DAY_FORMAT}}"
            if not days.get(day) and partition in known:
                continue
            known.add(partition)
            metadata = day_metadata(days.get(day, 0), self._steps.paths)
            yield dg.AssetMaterialization(
                asset_key=key,
                partition=partition,
                description=described(DAY_SAID, metadata),
                metadata=metadata,
                tags=_input_tags(LOGGED.value, self._steps.names.asset("decode_messages"), DECODED),
            )

    def mirrors(
        self, applying: Applying, *, but: frozenset[tuple[str, str]] = frozenset()
    ) -> Iterator[Event]:
        """Make the partitions of `mirrors` those of the cut, and yield reports of what changed.

        Also reported is what this instance has never heard of: mirrors of a lake that is older than
        it, or of a run that was killed between publishing and reporting. Where that, or what
        changed, is more than `table_events` tables, one event tells of all of them.
        """
        cut = applying.cut
        if cut is None:
            return
        by_partition = {partition_of(item.database, item.table): item for item in cut.mirrors}
        self._have_tables(by_partition.keys())
        key = self._steps.names.asset("mirrors")
        changed = {(item.database, item.table) for item in changed_mirrors(applying)}
        known = self._known_partitions(key)
        unheard = {
            (item.database, item.table)
            for partition, item in by_partition.items()
            if partition not in known
        }
        limit = self._steps.changefeed.dagster.table_events
        if len(changed) > limit:
            yield self._left_out([item for item in cut.mirrors if _name(item) in changed], cut)
            changed.clear()
            unheard.clear()
        elif len(unheard) > limit:
            # They were told of together when they came; an instance that is new is told so once.
            if not known and not self._has_heard(key):
                yield self._left_out([item for item in cut.mirrors if _name(item) in unheard], cut)
            unheard.clear()
        for partition, mirror in sorted(by_partition.items()):
            name = _name(mirror)
            if name not in but and (name in changed or name in unheard):
                known.add(partition)
                yield self._mirror(key, partition, mirror, cut)
        yield from self._single_mirrors(cut, changed | unheard, limit)
        yield from self._histories(cut, changed)
        if applying.outcome is Outcome.PUBLISHED:
            yield dg.AssetMaterialization(
                asset_key=self._steps.names.asset("cuts"),
                description=f"cut {cut.number} at {cut.moment}",
                metadata=cut_metadata(cut),
            )

    def _single_mirrors(
        self, cut: Cut, changed: Set[tuple[str, str]], limit: int
    ) -> Iterator[Event]:
        """Yield reports of the mirrors that are assets of their own."""
        names = self._steps.names
        if len(cut.mirrors) > self._steps.changefeed.dagster.table_assets:
            return
        # To ask what the instance has heard of each costs more than to tell it again of some.
        ask = len(cut.mirrors) <= limit
        for mirror in cut.mirrors:
            own = names.mirror(*_name(mirror))
            if _name(mirror) in changed or (ask and own not in self._known_mirrors(cut)):
                if ask:
                    self._known_mirrors(cut).add(own)
                yield self._mirror(own, None, mirror, cut)

    def _left_out(self, mirrors: Sequence[MirrorCut], cut: Cut) -> dg.AssetObservation:
        """Return the one event that tells of mirrors which are too many to be told each."""
        return dg.AssetObservation(
            asset_key=self._steps.names.asset("mirrors"),
            description=(
                f"{len(mirrors)} tables changed, more than are reported each by itself "
                f"(dagster.table_events, {self._steps.changefeed.dagster.table_events})"
            ),
            metadata=left_out_metadata(mirrors, cut),
        )

    def _has_heard(self, key: dg.AssetKey) -> bool:
        """Return whether the instance has an event of an asset."""
        return bool(self._instance.get_asset_records([key]))

    def seeded(self, seeding: Seeding) -> Iterator[Event]:
        """Yield a report on `snapshot` of each table that was seeded."""
        definition = seeded_tables(self._steps.names)
        assert definition.name is not None
        partitions = {partition_of(item.database, item.table): item for item in seeding.tables}
        self._instance.add_dynamic_partitions(definition.name, sorted(partitions))
        for partition, item in sorted(partitions.items()):
            if item.is_new:
                yield dg.AssetMaterialization(
                    asset_key=self._steps.names.asset("snapshot"),
                    partition=partition,
                    description=f"{counted(item.rows, 'row')} at {time_with_tso(seeding.tso)}",
                    metadata=seeded_rows_metadata(item, seeding),
                )

    def quarantine(self, before: QuarantineCounts) -> Iterator[Event]:
        """Yield a report on `quarantine` of what an apply put there or took out of it."""
        paths = self._steps.paths
        after = count_open(paths, self._steps.changefeed.tables)
        if after != before:
            added = max(0, after.apply - before.apply)
            metadata = quarantine_metadata(added, after, paths) | {
                "open_apply_before": dg.MetadataValue.int(before.apply)
            }
            yield dg.AssetObservation(
                asset_key=self._steps.names.asset("quarantine"),
                description=described(QUARANTINE_SAID, metadata),
                metadata=metadata,
            )

    def _have_tables(self, wanted: Set[str]) -> None:
        """Make the partitions of `mirrors` those that are wanted.

        Partitions come first: an event of a partition that does not exist shows up nowhere.
        """
        name = self._steps.names.tables.name
        assert name is not None
        if self._tables is None:
            self._tables = set(self._instance.get_dynamic_partitions(name))
        new, gone = sorted(wanted - self._tables), sorted(self._tables - wanted)
        if new:
            self._instance.add_dynamic_partitions(name, new)
        for partition in gone:
            self._instance.delete_dynamic_partition(name, partition)
            for known in self._known.values():
                known.discard(partition)
        self._tables = set(wanted)

    def _known_partitions(self, key: dg.AssetKey) -> set[str]:
        if key not in self._known:
            self._known[key] = set(self._instance.get_materialized_partitions(key))
        return self._known[key]

    def _known_mirrors(self, cut: Cut) -> set[dg.AssetKey]:
        """Return the assets of single mirrors that the instance has heard of."""
        if self._mirrors is None:
            keys = [self._steps.names.mirror(item.database, item.table) for item in cut.mirrors]
            self._mirrors = {
                record.asset_entry.asset_key
                for record in self._instance.get_asset_records(keys)
                if record.asset_entry.last_materialization is not None
            }
        return self._mirrors

    def _histories(self, cut: Cut, changed: set[tuple[str, str]]) -> Iterator[Event]:
        """Yield reports of the histories that changed, and of those never reported."""
        kept = [item for item in cut.mirrors if item.history_version is not None]
        if not kept:
            return
        key = self._steps.names.asset("history")
        known = self._known_partitions(key)
        partitions = {partition_of(*_name(item)): item for item in kept}
        paths = self._steps.paths
        unheard = partitions.keys() - known
        if len(unheard) > self._steps.changefeed.dagster.table_events:
            unheard = set[str]()
        for partition, mirror in partitions.items():
            if _name(mirror) in changed or partition in unheard:
                known.add(partition)
                yield dg.AssetMaterialization(
                    asset_key=key,
                    partition=partition,
                    description=f"{counted(mirror.history_rows or 0, 'version')}, {mirror.rows} "
                    "current",
                    metadata=history_metadata(mirror, cut, paths),
                )

    def _mirror(
        self, key: dg.AssetKey, partition: str | None, mirror: MirrorCut, cut: Cut
    ) -> dg.AssetMaterialization:
        version = f"{mirror.generation}/{mirror.mirror_id}@{mirror.version}"
        # The cut says of which generation it is.
        paths = LakePaths(root=self._steps.root, changefeed=self._steps.changefeed.name)
        metadata = mirror_metadata(mirror, cut, paths, utc_now())
        return dg.AssetMaterialization(
            asset_key=key,
            partition=partition,
            description=described(MIRROR_SAID, metadata),
            metadata=metadata,
            tags=_input_tags(version, self._steps.names.asset("apply_changes"), APPLIED),
        )


def _name(mirror: MirrorCut) -> tuple[str, str]:
    return (mirror.database, mirror.table)


def _input_tags(
    version: str, parent: dg.AssetKey, parent_version: dg.DataVersion
) -> dict[str, str]:
    """Return the tags that Dagster itself gives to what a step returns, for what is reported."""
    name = parent.to_user_string()
    return {
        "dagster/data_version": version,
        "dagster/code_version": "none",
        f"dagster/input_data_version/{name}": parent_version.value,
        f"dagster/input_event_pointer/{name}": "NULL",
    }
