"""A changefeed over a capture, driven step by step, as the lake's tests use it."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from ticdc_assets.config import (
    CaptureSource,
    Changefeed,
    ClaimCheck,
    Settings,
    TableChoice,
    TableFilter,
)
from ticdc_assets.delta.appending import write_table
from ticdc_assets.delta.control import commit_metadata, read_table
from ticdc_assets.delta.lake import Lake
from ticdc_assets.demo.simulator.changefeed import StandInChangefeed
from ticdc_assets.demo.simulator.upstream import Truth
from ticdc_assets.log.cuts import CUT_SCHEMA, Cut, MirrorCut, publish, require_cut
from ticdc_assets.log.decoding import decode_new
from ticdc_assets.log.landing import Landing, land
from ticdc_assets.log.schema_tables import register_new
from ticdc_assets.mirrors import (
    change_folding,
    change_reading,
    file_fates,
    history,
    mirror_making,
    table_writing,
)
from ticdc_assets.mirrors.applying import Applying, apply_changes
from ticdc_assets.observe.status_reading import read_status
from ticdc_assets.reading import mirrors
from ticdc_assets.reading.as_of import AsOf, TableRows
from ticdc_assets.reading.mirrors import (
    MirrorListing,
    iterate_rows,
    list_mirrors,
    published_table,
    read_mirror,
)
from ticdc_assets.repair.rebuilding import Rebuild, rebuild
from ticdc_assets.rows import rows_of_work
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.spark.executing import Executor, OnSpark
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import AnyPath
from ticdc_assets.wire import WireFormat
from ticdc_assets.wire.compression import Compression
from ticdc_assets_tests.demo.simulator.builders import write_capture
from ticdc_assets_tests.golden import Rows, comparable

LANDED = datetime(2026, 1, 1, 12, tzinfo=UTC)
"""When the first records land by a `LandingClock`."""


class LandingClock(datetime):
    """A clock for landing; `at` is what it says."""

    at: datetime = LANDED

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return cls.at


def treat_as_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let changes be folded by Spark and put into mirrors as if these were very large."""

    def always(
        spark: SparkSession, folder: Path, does: str, *, rows: int, size: int, lightness: int = 1
    ) -> Executor:
        return OnSpark(spark, folder, does)

    for module in (change_folding, history, table_writing):
        monkeypatch.setattr(module, "executor", always)
    for module in (change_reading, mirror_making, mirrors, rows_of_work):
        monkeypatch.setattr(module, "INLINE_ROWS", -1)
    small_up_to(monkeypatch, 0)


def small_up_to(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Let files of mirrors and histories with more rows than these be large ones."""
    monkeypatch.setattr(file_fates, "SMALL_ROWS", rows)
    # Files of few rows get vectors too.
    monkeypatch.setattr(file_fates, "MOST_DELETED", 0.9)


def keep_files_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no file of a mirror or a history be written again together with new rows."""
    monkeypatch.setattr(file_fates, "SMALL_BYTES", 0)


@dataclass(frozen=True)
class Feed:
    """One changefeed and its lake."""

    spark: SparkSession
    changefeed: Changefeed
    root: AnyPath

    @property
    def lake(self) -> Lake:
        """Its lake, as the newest cut names it."""
        return Lake.open(self.root, self.changefeed, self.spark)

    @property
    def paths(self) -> LakePaths:
        """Its tables, as the newest cut names them."""
        return self.lake.paths

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        folder: Path,
        *,
        capture: Path | None = None,
        timezone: str = "UTC",
        partitions: Mapping[str, int] | None = None,
        wire_format: WireFormat = WireFormat.SIMPLE_JSON,
        compression: Compression = Compression.NONE,
        claim_check: ClaimCheck | None = None,
    ) -> "Feed":
        """Return a feed over `capture`, or over an own one in `folder`."""
        return cls(
            spark,
            Changefeed(
                name="feed",
                wire_format=wire_format,
                compression=compression,
                claim_check=claim_check,
                timezone=timezone,
                source=CaptureSource(
                    path=capture or folder / "capture.jsonl", partitions=partitions or {}
                ),
            ),
            folder / "lake",
        )

    def in_folder(self, folder: Path) -> "Feed":
        """Return the same feed with a lake of its own."""
        return replace(self, root=folder / "lake")

    def moved(self, folder: Path) -> "Feed":
        """Return the same feed after its folder, with the capture in it, was copied to another."""
        assert isinstance(self.changefeed.source, CaptureSource)
        source = replace(self.changefeed.source, path=folder / self.changefeed.source.path.name)
        return self.in_folder(folder).having(source=source)

    def having(self, **settings: Any) -> "Feed":
        """Return the same feed with other settings of its changefeed."""
        return replace(self, changefeed=replace(self.changefeed, **settings))

    def with_mirrors_of(self, tables: Iterable[tuple[str, str]]) -> "Feed":
        """Return the same feed with mirrors of these tables alone."""
        include = TableChoice(tuple(f"{database}.{table}" for database, table in tables))
        return self.having(tables=TableFilter(include=include))

    def write(self, records: Iterable[CaptureRecord]) -> None:
        """Append records to the capture."""
        assert isinstance(self.changefeed.source, CaptureSource)
        write_capture(self.changefeed.source.path, records)

    def land(self, max_records: int | None = None) -> Landing:
        return land(self.lake, max_records=max_records)

    def rebuild(self, *, accept_losses: bool = False) -> Rebuild:
        """Make everything again that is made from what landed, and publish it."""
        with self.lake.writing():
            return rebuild(self.lake, accept_losses=accept_losses)

    def sync(self, **options: Any) -> Applying:
        """Land, decode, register and apply once; every row change must be accounted for."""
        applying = self.unchecked_sync(**options)
        if applying.cut is not None:
            assert [item.sentence for item in applying.cut.unaccounted] == []
        return applying

    def unchecked_sync(
        self,
        *,
        until: int | None = None,
        max_records: int | None = None,
        refold: Collection[tuple[str, str]] = (),
        refold_quarantined: bool = False,
    ) -> Applying:
        """Land, decode, register and apply once."""
        self.land(max_records)
        decode_new(self.lake)
        register_new(self.lake)
        return apply_changes(
            self.lake, until=until, refold=refold, refold_quarantined=refold_quarantined
        )

    def follow(self, changefeed: StandInChangefeed, *, until: int | None = None) -> Applying:
        """Write what a changefeed has to send, and sync."""
        self.write(changefeed.tick())
        return self.sync(until=until)

    def follow_to_truth(self, changefeed: StandInChangefeed) -> None:
        """Follow a changefeed, and require the rows of its upstream."""
        self.follow(changefeed)
        self.require_truth(changefeed)

    def require_truth(self, changefeed: StandInChangefeed) -> None:
        """Require that the mirrors have the rows of a changefeed's upstream."""
        found, truth = self.rows(), truth_rows(changefeed.truth())
        missing, extra = (
            {name: few for name in one if (few := one[name] - other.get(name, Counter()))}
            for one, other in ((truth, found), (found, truth))
        )
        assert (missing, extra) == ({}, {}), f"missing: {missing}; too many: {extra}"

    @property
    def cut(self) -> Cut:
        return require_cut(self.paths)

    def mirror(self, database: str, table: str) -> MirrorCut:
        """Return a mirror of the newest cut, which has it."""
        mirror = self.cut.mirror(database, table)
        assert mirror is not None
        return mirror

    def listed(self) -> list[MirrorListing]:
        """Return the mirrors as the command `tables` lists them."""
        return list_mirrors(self.paths, read_status(self.lake, datetime.now(UTC)))

    @property
    def settings(self) -> Settings:
        return Settings(
            changefeeds=(self.changefeed,), lake=self.paths.root, path=self.paths.root / "none"
        )

    def read(self, database: str, table: str) -> DataFrame:
        return read_mirror(self.spark, "feed", database, table, settings=self.settings)

    def publish(self, *mirrors: MirrorCut) -> None:
        """Publish the newest cut again, with these mirrors."""
        cut = self.cut
        publish(self.paths, replace(cut, number=cut.number + 1, mirrors=mirrors))

    def rows_as_of(self, tso: int) -> Rows:
        """Return the rows of every table as of a TSO."""
        return self.rows_of(self.tables_as_of(tso))

    def tables_as_of(self, tso: int) -> list[TableRows]:
        """Return every table as of a TSO."""
        moment = AsOf(self.lake, tso)
        return [moment.rows(mirror) for mirror in moment.plan.mirrors]

    def rows(self) -> Rows:
        """Return the rows of every mirror at the newest cut."""
        return self.rows_of(published_table(self.lake, mirror) for mirror in self.cut.mirrors)

    def rows_of(self, tables: Iterable[TableRows]) -> Rows:
        """Return the rows of tables; each has to have as many as it says."""
        rows: Rows = {}
        for item in tables:
            texts = iterate_rows([item], self.changefeed.timezone)
            found = Counter(comparable(json.loads(text)) for _, _, text in texts)
            name = (item.database, item.table)
            assert found.total() == item.rows, f"{name} says {item.rows} rows"
            if found:
                rows[name] = found
        return rows


def rows_of_tables(rows: Rows, tables: Collection[tuple[str, str]]) -> Rows:
    """Return the rows of these tables; one without rows is not there."""
    return {name: found for name, found in rows.items() if name in tables}


def truth_rows(truth: Truth) -> Rows:
    """Return the simulator's truth in comparable form; empty tables have no rows to compare."""
    return {
        name: Counter(comparable(dict(row)) for row in rows.values())
        for name, rows in truth.items()
        if rows
    }


def grow_cuts_older(paths: LakePaths, hours: int) -> None:
    """Make the cuts that were published older; their versions of mirrors stay as they are."""
    rows = read_table(paths.cuts)
    assert rows is not None
    age, moments = timedelta(hours=hours), ("published_at", "repeats_at")
    cuts = [
        row | {name: row[name] and row[name] - age for name in moments} for row in rows.to_pylist()
    ]
    write_table(
        paths.cuts,
        pa.Table.from_pylist(cuts, schema=CUT_SCHEMA),
        overwrite=True,
        metadata=commit_metadata(paths.cuts),
    )
