"""A small changefeed over a capture of its own, with two tables, one of them with awkward names."""

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.events import AssetCheckEvaluationPlanned

from ticdc_assets.config import Settings
from ticdc_assets.delta.lake import Lake
from ticdc_assets.demo.simulator.changefeed import StandInChangefeed
from ticdc_assets.demo.simulator.clock import TsoClock, wall_clock_ms
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.orchestration.changefeeds import all_definitions
from ticdc_assets.orchestration.partitions import FeedNames
from ticdc_assets.orchestration.run import RunReport, run_sync
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets_tests.demo.simulator.builders import write_capture
from ticdc_assets_tests.statuses import changefeed

ORDERS = ("shop", "orders")
ODD = ("a.b", "50% of c/d")

CHANGEFEEDS = """\
changefeeds:
  - name: shop
    format: simple-json
    timezone: UTC
    source:
      capture: messages.jsonl
    ended: false
"""


class SmallShop:
    """An upstream, its changefeed, and the settings that read them; all in `folder`.

    TSOs are those of the wall clock, and the capture grows, so a mirror's lag is what it would be.
    """

    def __init__(self, folder: Path) -> None:
        self.capture = folder / "messages.jsonl"
        config = folder / "changefeeds.yaml"
        config.write_text(CHANGEFEEDS, encoding="utf-8")
        self.changefeed = changefeed(self.capture, ended=False)
        self.settings = Settings(changefeeds=(self.changefeed,), lake=folder / "lake", path=config)
        self.names = FeedNames(changefeed="shop")
        self.upstream = Upstream(clock=TsoClock(now_ms=wall_clock_ms))
        self._feed = StandInChangefeed(self.upstream, "shop", partitions=2)
        self._next_id = 1

    @property
    def paths(self) -> LakePaths:
        """Its tables, as the newest cut names them."""
        return self.lake.paths

    @property
    def lake(self) -> Lake:
        """Its lake, as the newest cut names it."""
        return Lake.open(self.settings.lake, self.changefeed)

    @cached_property
    def definitions(self) -> dg.Definitions:
        """What a code location has of it while its lake is empty."""
        return all_definitions(self.settings)

    def create_tables(self, *tables: tuple[str, str]) -> None:
        """Create tables, empty: both of its own, if none is named."""
        for database, table in tables or (ORDERS, ODD):
            if database not in self.upstream.databases:
                self.upstream.create_database(database)
            self.upstream.create_table(
                (database, table),
                (
                    column("id", "int", nullable=False),
                    column("price", "decimal(10,2)"),
                    column("placed", "datetime(3)"),
                ),
                primary_key=("id",),
            )

    def insert(self, table: tuple[str, str], rows: int) -> None:
        """Insert rows, in one transaction."""
        with self.upstream.transaction() as transaction:
            for _ in range(rows):
                transaction.insert(
                    table,
                    {
                        "id": str(self._next_id),
                        "price": "9.90",
                        "placed": "2026-01-01 12:00:00.000",
                    },
                )
                self._next_id += 1

    def send(self) -> int:
        """Append everything committed to the capture, a watermark last; return how many records."""
        return write_capture(self.capture, self._feed.tick())

    def sync(self, instance: dg.DagsterInstance) -> RunReport:
        """Send everything committed, and sync it."""
        self.send()
        return run_sync(self.settings, "shop", instance=instance)

    def set(self, **changes: Any) -> None:
        """Change what its settings say."""
        self.changefeed = replace(self.changefeed, **changes)
        self.settings = replace(self.settings, changefeeds=(self.changefeed,))

    def send_damage(self) -> CaptureRecord:
        """Append a record that is no message."""
        record = self._feed.inject(0, key=None, value=b'{"version":1,"type":"INSE')
        write_capture(self.capture, [record])
        return record


def materializations(
    instance: dg.DagsterInstance, key: dg.AssetKey
) -> list[dg.AssetMaterialization]:
    """Return the materialisations of an asset, oldest first."""
    records = instance.fetch_materializations(key, limit=100).records
    return [item.asset_materialization for item in reversed(records) if item.asset_materialization]


def values(event: Any) -> dict[str, Any]:
    """Return the metadata of an event as plain values."""
    return {name: entry.value for name, entry in event.metadata.items()}


def recorded(instance: dg.DagsterInstance, run_id: str) -> dg.DagsterRun:
    run = instance.get_run_by_id(run_id)
    assert run is not None
    return run


def skipped(result: dg.SensorResult) -> str:
    """Return why a tick asks for no run."""
    assert not result.run_requests
    assert result.skip_reason is not None
    return result.skip_reason.skip_message or ""


def plan(instance: dg.DagsterInstance, job: dg.JobDefinition, key: dg.AssetCheckKey) -> None:
    """Record a run of a job that has not come to a check yet."""
    run = instance.create_run_for_job(job)
    planned = AssetCheckEvaluationPlanned(asset_key=key.asset_key, check_name=key.name)
    event = dg.DagsterEvent(
        event_type_value="ASSET_CHECK_EVALUATION_PLANNED",
        job_name=job.name,
        event_specific_data=planned,
    )
    instance.report_dagster_event(event, run.run_id)
