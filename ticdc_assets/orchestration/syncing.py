"""The four steps of a sync, and seeding, each as its work and its report.

In: a changefeed's steps, a session, and the Dagster instance to report to. Out: for each step a
`Step` with the reports on its own assets, and news of other assets: changed landing days of
`change_log`, each mirror and history that changed. Assets take the steps one by one, runs that
follow and the seed job in a row.

The caller holds the changefeed's writer lock.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any

from dagster import DagsterInstance
from pyspark.sql import SparkSession

from ticdc_assets.base.names import counted
from ticdc_assets.delta.lake import Lake
from ticdc_assets.log.change_statistics import read_statistics
from ticdc_assets.log.checksums import compare_new
from ticdc_assets.log.decoding import decode_new
from ticdc_assets.log.landing import land
from ticdc_assets.log.quarantine import count_open
from ticdc_assets.log.schema_tables import register_new
from ticdc_assets.mirrors.applying import apply_changes
from ticdc_assets.mirrors.standing import Outcome
from ticdc_assets.model.tso import time_with_tso
from ticdc_assets.orchestration.following import NewData
from ticdc_assets.orchestration.metadata import (
    Metadata,
    applied_counts,
    applying_metadata,
    changed_mirrors,
    offsets_metadata,
    path_metadata,
    ran_metadata,
    seeding_metadata,
    utc_now,
)
from ticdc_assets.orchestration.reporting import News, Report, Reporter
from ticdc_assets.orchestration.steps import ChangefeedSteps
from ticdc_assets.repair.maintenance import join_new_files
from ticdc_assets.repair.redriving import redrive
from ticdc_assets.repair.seeding import seed
from ticdc_assets.spark.compute import watched

_JOINING = 16
"""After so many batches a sync looks for small files to join: that costs about a third of a sync.

It does so without a cut too: a watermark may be late for hours, and each landing adds files.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a sync, done: what it did in a clause, and reports on its assets and others."""

    said: str
    new_data: NewData
    reports: tuple[Report, ...]
    news: tuple[News, ...] = ()


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

    @contextmanager
    def _reporting(self) -> Iterator[Callable[..., Report]]:
        """Yield the function that makes the report on an asset of a step.

        It takes the asset's name, what the step did and how things are, and the number of items
        that the work was on, for the rate; the work is all that happened in this block.
        """
        began = monotonic()
        with watched() as ran:

            def report(
                asset: str, added: Mapping[str, int], facts: Metadata, items: int | None = None
            ) -> Report:
                return Report(
                    key=self._steps.names.asset(asset),
                    added=added,
                    facts=facts if items is None else facts | ran_metadata(ran),
                    work=None if items is None else (items, monotonic() - began),
                )

            yield report

    def land(self, *, max_records: int | None = None) -> Step:
        """Land the new records of the source."""
        with self._reporting() as report:
            landing = self._steps.note(land(self._lake, max_records=max_records))
            facts = {
                "batch": landing.batch,
                "backlog": landing.backlog,
                "offsets": offsets_metadata(landing.partitions),
                **path_metadata(self._steps.paths.raw_messages),
            }
            landed = report("raw_messages", {"records": landing.records}, facts, landing.records)
        return Step(
            said=f"{counted(landing.records, 'record')} landed",
            new_data=NewData.WATERMARKS if landing.records else NewData.NOTHING,
            reports=(landed,),
        )

    def seed(self, folder: str, **options: Any) -> Step:
        """Seed tables from an export; the arguments are those of `repair.seeding.seed`."""
        with self._reporting() as report:
            seeding = self._steps.note(seed(self._lake, folder, **options))
            facts = seeding_metadata(seeding, self._steps.paths)
            seeded = report("snapshot", {}, facts, seeding.rows)
        rows = f"{counted(seeding.rows, 'row')} of {counted(len(seeding.tables), 'table')}"
        return Step(
            said=f"{rows} seeded at {time_with_tso(seeding.tso)}",
            new_data=NewData.CHANGES if seeding.rows else NewData.NOTHING,
            reports=(seeded,),
        )

    def decode(self, *, redrive_quarantined: bool = False) -> Step:
        """Decode landed records, and with `redrive_quarantined` those in quarantine too."""
        steps = self._steps
        with self._reporting() as report:
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
            quarantined = {"quarantined": decoding.quarantined}
            decoded = report(
                "decode_messages",
                {
                    "changes": total,
                    **{f"changes_{kind}": n for kind, n in sorted(decoding.changes.items())},
                    **quarantined,
                    "batches": decoding.batches,
                },
                {
                    "batch": decoding.batch,
                    "dagster/row_count": sum(row["rows"] for row in statistics.rows),
                    **path_metadata(steps.paths.change_log),
                    **redriven,
                },
                total,
            )
        quarantine = {
            "open": counts.decode + counts.apply,
            "open_decode": counts.decode,
            "open_apply": counts.apply,
            **path_metadata(steps.paths.quarantine),
            **redriven,
        }
        changes = sum(decoding.changes.get(kind, 0) for kind in ("row", "ddl", "snapshot"))
        new_data = NewData.WATERMARKS if decoding.batches else NewData.NOTHING
        return Step(
            said=f"{counted(changes, 'change')} decoded",
            new_data=NewData.CHANGES if changes or decoding.quarantined else new_data,
            reports=(decoded, report("quarantine", quarantined, quarantine)),
            news=tuple(self._reporter.days(days)),
        )

    def register(self) -> Step:
        """Register the schemas that the change log has."""
        with self._reporting() as report:
            registering = self._steps.note(register_new(self._lake))
        facts = {
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
            reports=(report("schema_registry", {}, facts),),
            news=tuple(self._reporter.schemas(registering.new)),
        )

    def apply(self, *, until: int | None = None, refold_quarantined: bool = False) -> Step:
        """Bring the mirrors to the newest possible cut, not beyond the TSO `until`.

        With `refold_quarantined`, every table with row changes in quarantine is folded again.
        """
        steps = self._steps
        with self._reporting() as report:
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
            applied = report(
                "apply_changes",
                applied_counts(applying),
                applying_metadata(applying, statistics.batch, utc_now()),
                sum(item.changes for item in changed),
            )
        new_data = NewData.WATERMARKS if new else NewData.NOTHING
        return Step(
            said=f"{applying.outcome}: {applying.reason}",
            new_data=NewData.CHANGES if changed else new_data,
            reports=(applied,),
            news=tuple(self._reporter.mirrors(applying)),
        )
