"""Read the figures of a changefeed from the small control tables of the pipeline.

In: the lake and, if the caller has just seen it, the source. Out: one `Status` with its
verdicts. No Spark session is started and nothing is written, so reading again is safe and gives the
later state; reading during a sync is safe too, because each table is read at one version.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from ticdc_assets.base.errors import UNREADABLE, TicdcError
from ticdc_assets.changelog.progress import GlobalWatermark
from ticdc_assets.config import TableFilter
from ticdc_assets.delta.control import read_rows
from ticdc_assets.delta.lake import Lake
from ticdc_assets.log.accepted_gaps import read_accepted
from ticdc_assets.log.change_statistics import ChangeStatistics, read_statistics
from ticdc_assets.log.checksums import read_checksums
from ticdc_assets.log.cuts import Cut, newest_cut
from ticdc_assets.log.faults import Faults, is_mirrored_fault
from ticdc_assets.log.positions import (
    PartitionOffsets,
    decoded_position,
    landed_batch,
    newest_landing,
    partitions_of,
)
from ticdc_assets.log.quarantine import open_groups
from ticdc_assets.log.sources import SourceState, see_source
from ticdc_assets.log.watermark import read_watermark
from ticdc_assets.mirrors.truncation_points import read_kept_tables
from ticdc_assets.model.tso import physical_ms
from ticdc_assets.observe.judging import judge
from ticdc_assets.observe.lag import split_lag, waiting_since
from ticdc_assets.observe.status import NEW_TOPIC, Ending, Status, TopicStatus
from ticdc_assets.observe.table_status import table_statuses
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.wire.rows import counted_as


def read_status(lake: Lake, now: datetime, *, source: SourceState | None = None) -> Status:
    """Return the status of a changefeed, with lags at `now`; needs no Spark.

    Without what the `source` has then, the backlog is what the newest landing left.
    """
    cut = newest_cut(lake.paths)
    statistics = read_statistics(lake.paths)
    landing = newest_landing(lake.paths)
    landed_partitions = () if landing is None else partitions_of(landing)
    partitions = landed_partitions
    if source is not None:
        # The times are those of the newest landing.
        times = {_state(item): item.newest_ms for item in landed_partitions}
        partitions = [replace(it, newest_ms=times.get(_state(it))) for it in source.present]
    landed_at = landing["landed_at"] if landing else None
    progress = statistics.progress()
    watermark = read_watermark(lake, statistics=statistics, cut=cut)
    faults = read_faults(lake.paths, lake.changefeed.tables)
    landed = landed_batch(lake.paths)
    decoded_batch = decoded_position(lake.paths)[1]
    now_ms = round(now.timestamp() * 1000)
    ending = None
    if lake.changefeed.has_ended and cut is not None and landed <= decoded_batch:
        ending = _ending(cut, watermark, statistics, partitions, now_ms)
    # A finished changefeed does not fall further behind: its lags are those at its end.
    measured_ms = now_ms if ending is None else physical_ms(ending.tso)
    last_changes: dict[tuple[str, str], int] = {}
    log_rows = Counter[str]()
    for row in statistics.rows:
        log_rows[counted_as(row["kind"], row.get("shape"))] += row["rows"]
        if row["kind"] == "row" and row["max_ts"] is not None:
            name = (row["database"], row["table"])
            last_changes[name] = max(last_changes.get(name, 0), row["max_ts"])
    lag = None
    if cut is not None:
        lag = split_lag(
            measured_ms,
            physical_ms(cut.tso),
            landed_ms=_landed_ms(
                cut, watermark, statistics, landed_partitions if landed > decoded_batch else ()
            ),
            waiting_since_ms=waiting_since(partitions, landed_at),
        )
    status = Status(
        changefeed=lake.changefeed.name,
        at=now,
        cut=cut,
        watermark=watermark,
        es_only=statistics.es_only,
        progress=progress,
        oldest_change=statistics.oldest_change,
        newest_change=statistics.newest_change,
        first_watermark=statistics.first_watermark,
        partitions=tuple(partitions),
        source_seen_at=landed_at if source is None else now,
        landed_at=landed_at,
        landed_batch=landed,
        decoded_batch=decoded_batch,
        log_batch=statistics.batch,
        log_rows=dict(sorted(log_rows.items())),
        steps_back=sum(item.steps_back for item in progress.values()),
        topics=_topics(partitions, watermark),
        tables=table_statuses(cut, faults, measured_ms, last_changes=last_changes),
        lag=lag,
        faults=faults,
        conflicts=tuple(
            sorted(
                read_rows(lake.paths.schema_conflicts),
                key=lambda row: [row[name] for name in _CONFLICT_ORDER],
            )
        ),
        checksums=read_checksums(lake.paths),
        gaps=() if source is None else source.gaps,
        accepted_gaps=read_accepted(lake.paths),
        untruncated=read_kept_tables(lake.paths),
        ending=ending,
    )
    return replace(status, verdicts=judge(lake.changefeed, status))


def see_status(lake: Lake, now: datetime) -> tuple[Status, TicdcError | None]:
    """Return the status with what the source has now, and why that could not be read, if so.

    Raises:
        LakeDamagedError: a table is damaged.
        StoreUnavailableError: the store of the lake does not answer.
    """
    source, failure = None, None
    try:
        source = see_source(lake)
    except UNREADABLE:
        raise
    except TicdcError as error:
        failure = error
    # Lag grows while the source is down, so it is still reported.
    return read_status(lake, now, source=source), failure


def _ending(
    cut: Cut,
    watermark: GlobalWatermark,
    statistics: ChangeStatistics,
    partitions: Iterable[PartitionOffsets],
    now_ms: int,
) -> Ending | None:
    """Return the end of a source that has ended, if the newest cut has everything it can have."""
    newest = statistics.newest_change or 0
    last_ts = newest if statistics.es_only else watermark.watermark_ts or 0
    cut_ms = physical_ms(cut.tso)
    # A cut in the future means that clocks differ; it is not an end yet.
    if any(item.backlog for item in partitions) or not physical_ms(last_ts) <= cut_ms <= now_ms:
        return None
    if statistics.es_only:
        return Ending(tso=cut.tso, has_rest=False)
    # A cut has the DDL below its TSO, and the rows up to it.
    is_left = any(
        row["max_ts"] is not None
        and (row["max_ts"] > cut.tso or (row["kind"] == "ddl" and row["max_ts"] == cut.tso))
        for row in statistics.rows
        if row["kind"] in ("row", "ddl")
    )
    return Ending(tso=cut.tso, has_rest=is_left)


def _landed_ms(
    cut: Cut,
    watermark: GlobalWatermark,
    statistics: ChangeStatistics,
    undecoded: Sequence[PartitionOffsets],
) -> int:
    landed_ts = statistics.newest_change if statistics.es_only else watermark.watermark_ts
    times = [physical_ms(cut.tso if landed_ts is None else landed_ts)]
    times += [item.newest_ms for item in undecoded if item.newest_ms is not None]
    return max(times)


def _state(item: PartitionOffsets) -> tuple[str, int, int]:
    return (item.topic, item.partition, item.landed)


_CONFLICT_ORDER = ("database", "table", "schema_version", "offset")

_FAULT_KEYS = ["stage", "reason", "quarantined_at", "database", "table"]


def read_faults(paths: LakePaths, tables: TableFilter | None = None) -> tuple[Faults, ...]:
    """Return the open rows of the quarantine for a choice of tables (None: all)."""
    return tuple(
        Faults(
            stage=row["stage"],
            reason=row["reason"],
            since=row["quarantined_at"],
            database=row["database"],
            table=row["table"],
            first_ts=row["commit_ts"],
            rows=row["rows"],
        )
        for row in open_groups(paths, _FAULT_KEYS)
        if is_mirrored_fault(row, tables)
    )


def _topics(
    partitions: Iterable[PartitionOffsets], watermark: GlobalWatermark
) -> tuple[TopicStatus, ...]:
    counts, backlogs = Counter[str](), Counter[str]()
    for item in partitions:
        counts[item.topic] += 1
        backlogs[item.topic] += item.backlog
    topics = [
        TopicStatus(
            topic=item.topic,
            state=str(item.state),
            partitions=max(item.partitions, counts[item.topic]),
            backlog=backlogs[item.topic],
            watermark_ts=item.watermark_ts,
            waiting=tuple(partition for _, partition in item.waiting) if item.counts else (),
            tables=item.tables,
        )
        for item in watermark.topics
    ]
    topics += [
        TopicStatus(topic=it, state=NEW_TOPIC, partitions=counts[it], backlog=backlogs[it])
        for it in counts.keys() - {item.topic for item in topics}
    ]
    return tuple(sorted(topics, key=lambda item: item.topic))
