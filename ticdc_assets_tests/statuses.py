"""Statuses of changefeeds, made up, for what judges and shows them."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from ticdc_assets.changelog.progress import GlobalWatermark, PartitionProgress
from ticdc_assets.config import CaptureSource, Changefeed
from ticdc_assets.delta.appending import write_table
from ticdc_assets.delta.opening import latest_version
from ticdc_assets.log.agreement import Agreement, Checksums
from ticdc_assets.log.change_files import CHANGE_LOG_SCHEMA
from ticdc_assets.log.cuts import Cut, HeldRows, MirrorCut, publish
from ticdc_assets.log.landing import _LANDINGS_SCHEMA as LANDINGS_SCHEMA
from ticdc_assets.log.landing_files import RAW_SCHEMA
from ticdc_assets.log.positions import PartitionOffsets
from ticdc_assets.log.totals import GROUPS_SCHEMA
from ticdc_assets.model import tso
from ticdc_assets.observe.lag import split_lag
from ticdc_assets.observe.status import Status, TopicStatus
from ticdc_assets.observe.table_status import table_statuses
from ticdc_assets.storage.lake_paths import FIRST_GENERATION, LakePaths

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
NOW_MS = round(NOW.timestamp() * 1000)


def ago(seconds: float) -> datetime:
    """Return a moment before NOW."""
    return NOW - timedelta(seconds=seconds)


def at(seconds_ago: float) -> int:
    """Return the TSO of a moment before NOW."""
    return tso.from_datetime(ago(seconds_ago))


def changefeed(path: Path, name: str = "shop", **settings: Any) -> Changefeed:
    """Return a changefeed over a capture."""
    values: dict[str, Any] = {"wire_format": "simple-json", "timezone": "UTC"}
    return Changefeed(name=name, source=CaptureSource(path=path), **values | settings)


def offsets(
    partition: int,
    end: int,
    landed: int,
    earliest: int = 0,
    *,
    topic: str = "shop",
    newest_ms: int | None = None,
) -> PartitionOffsets:
    """Return a partition of a source."""
    return PartitionOffsets(
        topic=topic,
        partition=partition,
        earliest=earliest,
        end=end,
        landed=landed,
        newest_ms=newest_ms,
    )


def mirror(table: str = "orders", **changes: Any) -> MirrorCut:
    """Return a mirror of a cut."""
    values: dict[str, Any] = {
        "mirror_id": "1",
        "database": "shop",
        "table": table,
        "table_id": 1,
        "generation": FIRST_GENERATION,
        "version": 0,
        "rows": 3,
        "hidden": [],
        "schema": "{}",
        "floor_ts": 0,
        "digest": "",
        "held": 0,
        "quarantined": 0,
        "caveats": [],
        "mode": "carried",
        "changes": 0,
        "unknown_deletes": 0,
    }
    return MirrorCut(**values | changes)


def write_tables(paths: LakePaths, mirrors: Sequence[MirrorCut] = ()) -> None:
    """Make the tables that a cut comes after, and those of mirrors, empty if there are none."""
    for path, schema in (
        (paths.raw_messages, RAW_SCHEMA),
        (paths.landings, LANDINGS_SCHEMA),
        (paths.change_log, CHANGE_LOG_SCHEMA),
        (paths.change_groups, GROUPS_SCHEMA),
        *((item.path(paths), pa.schema([("id", pa.int64())])) for item in mirrors),
    ):
        if latest_version(path) is None:
            write_table(path, schema.empty_table(), overwrite=False, metadata={})


def publish_with_tables(paths: LakePaths, made: Cut, *, with_mirrors: bool = True) -> None:
    """Publish a cut that is made up, in a lake that has the tables which a cut comes after."""
    write_tables(paths, made.mirrors if with_mirrors else ())
    publish(paths, made)


def held(seconds: float, table: str = "visits", **changes: Any) -> HeldRows:
    """Return rows that landed so many seconds ago and were committed as long before that."""
    values: dict[str, Any] = {
        "database": "crm",
        "table": table,
        "schema_version": 7,
        "mirror_id": None,
        "rows": 4,
        "min_ts": at(2 * seconds),
        "since": ago(seconds),
    }
    return HeldRows(**values | changes)


def cut(seconds_ago: float = 0, **changes: Any) -> Cut:
    """Return a cut at a moment before NOW."""
    values: dict[str, Any] = {
        "number": 1,
        "tso": at(seconds_ago),
        "published_at": NOW,
        "generation": FIRST_GENERATION,
        "batch": 1,
        "mirrors": (mirror(),),
        "held": (),
        "quarantined": 0,
        "replays": 0,
        "late": 0,
        "steps_back": 0,
        "ignored": {},
    }
    return Cut(**values | changes)


def watermark(
    seconds_ago: float | None, *, waiting: tuple[tuple[str, int], ...] = ()
) -> GlobalWatermark:
    """Return a global watermark at a moment before NOW."""
    return GlobalWatermark(
        watermark_ts=None if seconds_ago is None else at(seconds_ago),
        waiting=waiting,
        slowest=None if seconds_ago is None else ("shop", 1),
    )


def status(
    cut_ago: float | None = 0.0,
    watermark_ago: float | None = 0.0,
    *,
    waiting_since: float | None = None,
    waiting: tuple[tuple[str, int], ...] = (),
    cut_changes: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Status:
    """Return a status whose lag is split as it would be read; times are seconds before NOW."""
    published = None if cut_ago is None else cut(cut_ago, **(cut_changes or {}))
    landed = cut_ago if watermark_ago is None else watermark_ago
    lag = None
    if published is not None and landed is not None:
        lag = split_lag(
            NOW_MS,
            tso.physical_ms(published.tso),
            landed_ms=tso.physical_ms(at(landed)),
            waiting_since_ms=None if waiting_since is None else NOW_MS - int(waiting_since * 1000),
        )
    values: dict[str, Any] = {
        "changefeed": "shop",
        "at": NOW,
        "cut": published,
        "watermark": watermark(watermark_ago, waiting=waiting),
        "es_only": False,
        "progress": {("shop", 1): PartitionProgress(watermark_ts=at(watermark_ago or 0))},
        "oldest_change": at(5000),
        "newest_change": at(0),
        "first_watermark": at(5000),
        "partitions": (),
        "source_seen_at": NOW,
        "landed_at": NOW,
        "landed_batch": 3,
        "decoded_batch": 3,
        "log_batch": 3,
        "log_rows": {"row": 10, "watermark": 4},
        "steps_back": 0,
        "topics": (
            TopicStatus(
                topic="shop",
                state="waiting" if waiting else "live",
                partitions=2,
                backlog=0,
                watermark_ts=None if watermark_ago is None else at(watermark_ago),
                waiting=tuple(partition for _, partition in waiting),
            ),
        ),
        "tables": table_statuses(published, [], NOW_MS),
        "lag": lag,
        "faults": (),
        "conflicts": (),
        "checksums": Checksums(counts=dict.fromkeys(Agreement, 0), examples=()),
    }
    return Status(**values | changes)
