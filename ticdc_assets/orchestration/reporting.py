"""Reports on the assets of a changefeed: what a step did, and how things are since.

In: results of the lake's functions, and the Dagster instance. Out: a `Report` for an asset, or a
partition of it. An asset's body returns the report on itself and logs those on other assets; a run
that follows puts the reports of several syncs together, because Dagster keeps every event.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, TypeAlias

import dagster as dg
from dagster import DagsterInstance

from ticdc_assets.base.names import counted
from ticdc_assets.config import Changefeed
from ticdc_assets.delta.control import partition_days
from ticdc_assets.log.cuts import Cut, MirrorCut, newest_cut
from ticdc_assets.mirrors.standing import Applying
from ticdc_assets.model.tso import to_datetime
from ticdc_assets.observe.overview import read_schemas
from ticdc_assets.observe.wording import listed
from ticdc_assets.orchestration.metadata import (
    Metadata,
    changed_mirrors,
    history_metadata,
    mirror_metadata,
    path_metadata,
    rate_metadata,
    sample_metadata,
    together_metadata,
    utc_now,
)
from ticdc_assets.orchestration.partitions import DAY_FORMAT, FeedNames
from ticdc_assets.orchestration.steps import ChangefeedSteps
from ticdc_assets.reading.mirrors import sample_rows
from ticdc_assets.registry.history import SchemaKey
from ticdc_assets.storage.lake_paths import LakePaths

_TABLES_SAMPLED = 100
"""How many tables at most a sync shows rows of: reading them takes some milliseconds each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A report on an asset.

    Attributes:
        key: the asset.
        partition: its partition; None if it is about the whole asset.
        added: numbers that count what was done; those of several syncs are added.
        facts: all other metadata, of which the newest sync's counts.
        work: items worked on, and the seconds that took; None if there is no rate.
        describe: the description, made of `added` and `facts`.
        version: the asset's data version; Dagster compares it to find out whether downstream assets
            are out of date. "" if it has none.
        adds_up: whether it becomes one with those of later syncs.
    """

    key: dg.AssetKey
    partition: str | None = None
    added: Mapping[str, int] = field(default_factory=dict[str, int])
    facts: Metadata
    work: tuple[int, float] | None = None
    describe: Callable[[Mapping[str, Any]], str] | None = None
    version: str = ""
    adds_up: bool = True

    def and_then(self, newer: "Report") -> "Report":
        """Return this report and a newer one on the same asset and partition as one."""
        added = {
            name: self.added.get(name, 0) + newer.added.get(name, 0)
            for name in {**newer.added, **self.added}
        }
        work = newer.work
        if self.work is not None and newer.work is not None:
            work = (self.work[0] + newer.work[0], self.work[1] + newer.work[1])
        return replace(newer, added=added, work=work)

    @property
    def metadata(self) -> Metadata:
        """All its metadata."""
        rate = {} if self.work is None else rate_metadata(*self.work)
        return {**self.added, **self.facts, **rate}

    def event(self) -> dg.AssetMaterialization:
        """Return it as the event that a run logs about an asset."""
        return dg.AssetMaterialization(
            asset_key=self.key,
            partition=self.partition,
            description=self.describe and self.describe({**self.added, **self.facts}),
            metadata=self.metadata,
            tags={"dagster/data_version": self.version} if self.version else None,
        )

    def result(self) -> dg.MaterializeResult:
        """Return it as the body of the asset returns it."""
        return dg.MaterializeResult(
            asset_key=self.key,
            metadata=self.metadata,
            data_version=dg.DataVersion(self.version) if self.version else None,
        )


News: TypeAlias = Report | dg.AssetObservation
"""A report, or an observation, of which each is an event."""


def events_of(news: Iterable[News]) -> Iterator[dg.AssetMaterialization | dg.AssetObservation]:
    """Yield the events of reports; several reports on one asset and partition become one."""
    together: dict[object, News] = {}
    for number, item in enumerate(news):
        if not isinstance(item, Report) or not item.adds_up:
            together[number] = item
            continue
        place = (item.key, item.partition)
        older = together.get(place)
        together[place] = older.and_then(item) if isinstance(older, Report) else item
    for item in together.values():
        yield item.event() if isinstance(item, Report) else item


def log_news(
    context: dg.AssetExecutionContext | dg.OpExecutionContext, news: Iterable[News]
) -> None:
    """Report on other assets from the body of an asset or an op."""
    for event in events_of(news):
        context.log_event(event)


class Reporter:
    """Reports a changefeed's tables and days to an instance.

    It also reports what the instance does not have: days and mirrors of a lake that is older than
    the instance, or of a run that was killed before it reported. What the instance has is cached,
    because asking it gets slower with every event.
    """

    def __init__(self, steps: ChangefeedSteps, instance: DagsterInstance) -> None:
        self._steps = steps
        self._instance = instance
        self._days: set[str] | None = None
        self._tables: set[dg.AssetKey] | None = None

    def days(
        self, days: Mapping[date, int], *, but: frozenset[date] = frozenset()
    ) -> Iterator[Report]:
        """Yield reports on `change_log` of the landing days that were appended to."""
        key, path = self._steps.names.asset("change_log"), self._steps.paths.change_log
        if self._days is None:
            self._days = set(self._instance.get_materialized_partitions(key))
        for day in sorted({*partition_days(path, "landed_day"), *days} - but):
            partition = f"{day:{DAY_FORMAT}}"
            if not days.get(day) and partition in self._days:
                continue
            self._days.add(partition)
            yield Report(
                key=key,
                partition=partition,
                added={"appended": days.get(day, 0)},
                facts=path_metadata(path),
                describe=lambda values: f"{counted(values['appended'], 'row')} appended",
            )

    def schemas(self, new: Collection[SchemaKey]) -> Iterator[dg.AssetObservation]:
        """Yield a report on each mirror with an asset for each of its new schema versions."""
        if not new:
            return
        shown = assets_of(newest_cut(self._steps.paths), self._steps.changefeed)
        tables = set(map(_name, shown))
        if reported := [key for key in new if key[:2] in tables]:
            yield from schema_changes(self._steps.paths, self._steps.names, reported)

    def mirrors(
        self, applying: Applying, *, but: frozenset[tuple[str, str]] = frozenset()
    ) -> Iterator[Report]:
        """Yield a report of each table that an apply changed, except those in `but`.

        If the mirrors are too many to have an asset each, one report is on the asset that they
        share.
        """
        cut, names = applying.cut, self._steps.names
        if cut is None:
            return
        wanted = {_name(item) for item in changed_mirrors(applying)}
        shown = assets_of(cut, self._steps.changefeed)
        if shown:
            if self._tables is None:
                self._tables = set(self._instance.get_asset_keys(prefix=[names.changefeed]))
            there = self._tables
            wanted |= {_name(it) for it in shown if names.mirror(*_name(it)) not in there}
        yield from self.tables(cut, wanted - but)

    def tables(self, cut: Cut, tables: Collection[tuple[str, str]]) -> Iterator[Report]:
        """Yield a report of each of `tables`, and of its history, at a cut (see `mirrors`)."""
        names = self._steps.names
        mirrors = [item for item in cut.mirrors if _name(item) in tables]
        if not assets_of(cut, self._steps.changefeed):
            if mirrors:
                yield self._together(cut, mirrors)
            return
        # Each mirror of the cut names its generation.
        paths = LakePaths(root=self._steps.root, changefeed=self._steps.changefeed.name)
        is_sampled = len(tables) <= _TABLES_SAMPLED
        limit = self._steps.changefeed.dagster.sample_rows if is_sampled else 0
        for mirror in mirrors:
            if mirror.failed:
                continue
            key = names.mirror(*_name(mirror))
            if self._tables is not None:
                self._tables.add(key)
            facts = mirror_metadata(mirror, cut, paths, utc_now())
            if limit and mirror.rows:
                timezone = self._steps.changefeed.timezone
                facts |= sample_metadata(sample_rows(paths, mirror, timezone, limit=limit))
            yield Report(
                key=key,
                added={"changes": mirror.changes},
                facts=facts,
                describe=_change_of_mirror,
                version=f"{mirror.generation}/{mirror.mirror_id}@{mirror.version}",
            )
            if mirror.history_version is not None:
                yield Report(
                    key=names.history(*_name(mirror)),
                    facts=history_metadata(mirror, cut, paths),
                    describe=lambda values: (
                        f"{counted(values['versions'], 'version')}, {values['current']} current"
                    ),
                )

    def _together(self, cut: Cut, mirrors: Sequence[MirrorCut]) -> Report:
        return Report(
            key=self._steps.names.asset("mirrors"),
            facts=together_metadata(mirrors, cut),
            describe=lambda values: f"{counted(values['tables'], 'table')} changed",
            adds_up=False,  # only its own sync's tables are named
        )


def _change_of_mirror(values: Mapping[str, Any]) -> str:
    changes, rows = counted(values["changes"], "key"), counted(values["rows"], "row")
    return f"{values['mode']}: {changes} changed, {rows}"


def schema_changes(
    paths: LakePaths, names: FeedNames, new: Collection[SchemaKey]
) -> Iterator[dg.AssetObservation]:
    """Yield an observation on a mirror's asset for each new schema version, oldest first.

    The first version of a table changes nothing, and has none. Dagster keeps its records forever,
    so defaults are shown without their values; `schema_registry` has them.
    """
    reported = [
        (version, table)
        for table in read_schemas(paths, {key[:2] for key in new}, most=len(new))[0]
        for version in table.versions
        if not version.is_first and (table.database, table.table, version.version) in new
    ]
    for version, table in sorted(reported, key=lambda item: item[0].valid_from):
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


def assets_of(cut: Cut | None, changefeed: Changefeed) -> tuple[MirrorCut, ...]:
    """Return the mirrors of a cut that have an asset each: all, or none if there are many."""
    if cut is None or len(cut.mirrors) > changefeed.dagster.table_assets:
        return ()
    return cut.mirrors


def _name(mirror: MirrorCut) -> tuple[str, str]:
    return (mirror.database, mirror.table)
