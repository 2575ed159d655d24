"""Judging how far a changefeed is: lag, the watermark, held rows. Values in, verdicts out.

These verdicts change with time alone, so the sensor asks for them between syncs. Nothing is read
here and nothing kept: the same status gives the same verdict.
"""

from collections.abc import Callable, Mapping

import dagster as dg

from ticdc_assets.config import Changefeed
from ticdc_assets.defs.metadata import Metadata, lag_seconds, tso_metadata
from ticdc_assets.defs.table_schemas import table_of_records
from ticdc_assets.defs.verdicts import LISTED, Verdict, duration, listed, severity_of
from ticdc_assets.lake.status import Lag, LagPart, Status, TableStatus
from ticdc_assets.tso import physical_ms, to_datetime

CLOCK_TOLERANCE_SECONDS = 5.0
"""How far the upstream's clock may be ahead of ours before a lag means nothing."""


# Lag --------------------------------------------------------------------------------------------


def judge_lag(changefeed: Changefeed, status: Status) -> Verdict:
    """Judge how far the newest cut is behind now."""
    warn, error = float(changefeed.lag_warn_seconds), float(changefeed.lag_error_seconds)
    limits: Metadata = {
        "warn_from_seconds": dg.MetadataValue.float(warn),
        "error_from_seconds": dg.MetadataValue.float(error),
        **tso_metadata("watermark", status.watermark.watermark_ts),
    }
    cut, lag = status.cut, status.lag
    if cut is None or lag is None:
        return Verdict(
            passed=False,
            description=(
                "No cut was published yet, so there is no mirror and no lag to measure: "
                f"{_why_no_cut(status)}. Run the job {changefeed.name}_sync, and look at the "
                "outcome of apply_changes."
            ),
            metadata=limits,
        )
    metadata = {
        "lag_seconds": dg.MetadataValue.float(lag.seconds),
        **{f"{part}_seconds": dg.MetadataValue.float(lag.part_seconds(part)) for part in LagPart},
        "backlog": dg.MetadataValue.int(status.backlog),
        **tso_metadata("applied_ts", cut.tso),
        "mirrors": dg.MetadataValue.int(len(cut.mirrors)),
        **limits,
        **_worst_tables(status),
    }
    if status.watermark.watermark_ts is not None:
        metadata["changefeed_lag_seconds"] = dg.MetadataValue.float(
            lag_seconds(status.watermark.watermark_ts, status.at)
        )
    if lag.ahead_seconds > CLOCK_TOLERANCE_SECONDS:
        return Verdict(
            passed=False,
            description=(
                f"The newest cut is {duration(lag.ahead_seconds)} in the future: the upstream's "
                "clock is ahead of this machine's, or a watermark was. So the lag cannot be "
                "measured. Synchronise the clocks (NTP); if the cut is wrong, go back to an older "
                f"one by `ticdc-assets rewind {changefeed.name}`."
            ),
            metadata=metadata,
        )
    worst = _worst_text(status)
    if lag.seconds < warn:
        return Verdict(
            passed=True,
            description=(
                f"The mirrors are {duration(lag.seconds)} behind now: {_parts_text(lag)}.{worst}"
            ),
            metadata=metadata,
        )
    severity, limit = severity_of(lag.seconds, warn_seconds=warn, error_seconds=error)
    return Verdict(
        passed=False,
        severity=severity,
        description=(
            f"The mirrors are {duration(lag.seconds)} behind now (limit {duration(limit)}): "
            f"{_parts_text(lag)}. {_what_to_do(changefeed, status, lag)}{worst}"
        ),
        metadata=metadata,
    )


_PART_NAMES: Mapping[LagPart, str] = {
    LagPart.SOURCE_TO_KAFKA: "source to Kafka",
    LagPart.KAFKA_TO_RAW: "Kafka to raw_messages",
    LagPart.RAW_TO_MIRROR: "raw_messages to mirrors",
}


def _parts_text(lag: Lag) -> str:
    return ", ".join(f"{_PART_NAMES[part]} {duration(lag.part_seconds(part))}" for part in LagPart)


def _what_to_do(changefeed: Changefeed, status: Status, lag: Lag) -> str:
    """Return on which part of the way most of the lag is, and what to look at there."""
    if status.es_only:
        return (
            "The messages have no commit ts and no watermark, so this is the age of the newest "
            "change that was applied, and grows while nothing changes upstream: look whether "
            "records wait in the topic (kafka_topic, the sensor's ticks)."
        )
    if status.watermark.waiting or status.watermark.watermark_ts is None:
        return f"Nothing more can be applied: {_why_no_cut(status)}."
    return _ADVICE[lag.largest](changefeed, status)


def _at_source(changefeed: Changefeed, status: Status) -> str:
    return (
        f"Most of it is before Kafka: the newest landed watermark (from {_slowest(status)}) is old "
        "itself. Look at the checkpoint and state of the changefeed in TiCDC (`cdc cli changefeed "
        f"query`), and whether all partitions get watermarks ({changefeed.name}'s check "
        "watermark_progress)."
    )


def _at_kafka(changefeed: Changefeed, status: Status) -> str:
    return (
        f"Most of it is in Kafka: {status.backlog} records wait to be landed. Look whether the "
        f"sensor {changefeed.name}_sync_sensor is running and what its ticks say, and whether runs "
        f"of {changefeed.name}_sync fail, are queued, or take long."
    )


def _at_lake(changefeed: Changefeed, status: Status) -> str:
    waiting = status.landed_batch - status.decoded_batch
    undecoded = f", {waiting} landed batches are not decoded" if waiting > 0 else ""
    return (
        f"Most of it has landed and was not applied{undecoded}: look at the runs of "
        f"{changefeed.name}_sync: one at work may need more memory or cores, one that failed says "
        "why."
    )


_ADVICE: Mapping[LagPart, Callable[[Changefeed, Status], str]] = {
    LagPart.SOURCE_TO_KAFKA: _at_source,
    LagPart.KAFKA_TO_RAW: _at_kafka,
    LagPart.RAW_TO_MIRROR: _at_lake,
}


def _worst_text(status: Status) -> str:
    """Return the table that is further behind than the cut, if one is."""
    worst = next((item for item in status.tables if not item.is_complete), None)
    if worst is None or status.lag is None or worst.lag_ms <= status.lag.total_ms:
        return ""
    return (
        f" The worst table, {worst.database}.{worst.table}, is complete only up to "
        f"{duration(worst.lag_ms / 1000)} ago ({_lacking(worst)})."
    )


def _lacking(table: TableStatus) -> str:
    parts = [f"{table.held} held"] if table.held else []
    parts += [f"{table.quarantined} quarantined"] if table.quarantined else []
    return ", ".join(parts)


def _worst_tables(status: Status) -> Metadata:
    if not status.tables:
        return {}
    worst = status.tables[0]
    return {
        "worst_table": dg.MetadataValue.text(f"{worst.database}.{worst.table}"),
        "worst_table_lag_seconds": dg.MetadataValue.float(worst.lag_ms / 1000),
        "worst_tables": table_of_records(
            [
                {
                    "database": item.database,
                    "table": item.table,
                    "lag_seconds": item.lag_ms / 1000,
                    "held": item.held,
                    "quarantined": item.quarantined,
                }
                for item in status.tables[:LISTED]
            ],
            {
                "database": "string",
                "table": "string",
                "lag_seconds": "float",
                "held": "int",
                "quarantined": "int",
            },
        ),
    }


def _why_no_cut(status: Status) -> str:
    watermark = status.watermark
    if watermark.waiting:
        places = [f"{topic}/{partition}" for topic, partition in watermark.waiting]
        return f"no watermark has come from {listed(places)}"
    if watermark.watermark_ts is None:
        return "nothing has landed"
    return f"the global watermark is {watermark.watermark_ts}"


def _slowest(status: Status) -> str:
    place = status.watermark.slowest
    return f"{place[0]}/{place[1]}" if place else "?"


# The watermark ----------------------------------------------------------------------------------


def judge_watermark(changefeed: Changefeed, status: Status) -> Verdict:
    """Judge whether the watermark and the rows move together.

    Rows far beyond a watermark that does not follow are *stuck*; a watermark that moves on for long
    without any row or DDL is *quiet*.
    """
    limits, times = changefeed.checks, status.times
    watermark = status.watermark.watermark_ts
    metadata: Metadata = {
        **tso_metadata("watermark", watermark),
        **tso_metadata("newest_change", times.newest),
        "watermarks_stepped_back": dg.MetadataValue.int(status.steps_back),
        "stuck_warn_from_seconds": dg.MetadataValue.float(float(limits.stuck_warn_seconds)),
        "stuck_error_from_seconds": dg.MetadataValue.float(float(limits.stuck_error_seconds)),
        "topics": _topics_table(status),
    }
    if status.watermark.slowest is not None:
        metadata["slowest_partition"] = dg.MetadataValue.text(_slowest(status))
    if status.es_only:
        return Verdict(
            passed=True,
            description="The messages have no commit ts, so no watermarks are sent.",
            metadata=metadata,
        )
    if times.newest is None and watermark is None:
        return Verdict(
            passed=True, description="No change and no watermark has landed yet.", metadata=metadata
        )
    ahead = _seconds_ahead(status)
    metadata["rows_beyond_seconds"] = dg.MetadataValue.float(ahead)
    if ahead >= limits.stuck_warn_seconds:
        severity, limit = severity_of(
            ahead,
            warn_seconds=limits.stuck_warn_seconds,
            error_seconds=limits.stuck_error_seconds,
        )
        return Verdict(
            passed=False,
            severity=severity,
            description=(
                f"The watermark does not follow the rows: changes have landed "
                f"{duration(ahead)} of upstream time beyond it (limit {duration(limit)}). "
                f"{_who_holds(status)} Until it moves nothing more is applied. Look whether TiCDC "
                "sends to every partition and topic, whether each of these was landed to its end, "
                "and whether a topic has more partitions than TiCDC was told of."
            ),
            metadata=metadata,
        )
    quiet = _quiet_seconds(status)
    if quiet is not None:
        metadata["quiet_seconds"] = dg.MetadataValue.float(quiet)
    if limits.quiet_warn_seconds is not None and (quiet or 0.0) >= limits.quiet_warn_seconds:
        return Verdict(
            passed=False,
            description=(
                f"The watermark moves, but no row and no DDL came for {duration(quiet or 0.0)} of "
                f"upstream time (limit {duration(limits.quiet_warn_seconds)}). If nothing changes "
                "upstream this is as it should be, and quiet_warn_seconds can be longer; else look "
                "at the filter rules of the changefeed and whether its tables still exist."
            ),
            metadata=metadata,
        )
    if watermark is None:
        return Verdict(
            passed=True,
            description=f"There is no global watermark yet: {_why_no_cut(status)}.",
            metadata=metadata,
        )
    return Verdict(
        passed=True,
        description=(
            f"The watermark is at {to_datetime(watermark):%Y-%m-%d %H:%M:%S} UTC; changes have "
            f"landed up to {duration(ahead)} beyond it."
        ),
        metadata=metadata,
    )


def _seconds_ahead(status: Status) -> float:
    """Return how far the newest change is beyond the watermark, or the first change without one."""
    newest = status.times.newest
    if newest is None:
        return 0.0
    base = status.watermark.watermark_ts
    if base is None:
        base = status.cut.tso if status.cut else status.times.oldest
    return 0.0 if base is None else max(0, physical_ms(newest) - physical_ms(base)) / 1000


def _quiet_seconds(status: Status) -> float | None:
    """Return for how long of upstream time only watermarks came; None without a watermark."""
    watermark = status.watermark.watermark_ts
    known = [ts for ts in (status.times.newest, status.times.first_watermark) if ts is not None]
    if watermark is None or not known:
        return None
    return max(0, physical_ms(watermark) - physical_ms(max(known))) / 1000


def _who_holds(status: Status) -> str:
    by_topic: dict[str, list[str]] = {}
    for topic, partition in status.watermark.waiting:
        by_topic.setdefault(topic, []).append(str(partition))
    if by_topic:
        told = (
            f"{topic} (partitions {', '.join(partitions)})"
            for topic, partitions in by_topic.items()
        )
        return f"No watermark has come from {listed(told)}."
    return f"The slowest partition is {_slowest(status)}."


def _topics_table(status: Status) -> dg.MetadataValue:
    # The slowest first: with many topics only some are shown.
    slowest = sorted(status.topics, key=lambda item: (item.watermark_ts or 0, item.topic))
    return table_of_records(
        [
            {
                "topic": item.topic,
                "state": item.state,
                "partitions": item.partitions,
                "backlog": item.backlog,
                "watermark": "" if item.watermark_ts is None else str(item.watermark_ts),
                "time": ""
                if item.watermark_ts is None
                else to_datetime(item.watermark_ts).isoformat(timespec="milliseconds"),
            }
            for item in slowest[:LISTED]
        ],
        {
            "topic": "string",
            "state": "string",
            "partitions": "int",
            "backlog": "int",
            "watermark": "string",
            "time": "string",
        },
    )


# Held rows --------------------------------------------------------------------------------------


def judge_held(changefeed: Changefeed, status: Status) -> Verdict:
    """Judge for how long row changes wait for their schema."""
    limits = changefeed.checks
    metadata: Metadata = {
        "held": dg.MetadataValue.int(status.held_rows),
        "warn_from_seconds": dg.MetadataValue.float(float(limits.held_warn_seconds)),
        "error_from_seconds": dg.MetadataValue.float(float(limits.held_error_seconds)),
    }
    if not status.held:
        return Verdict(passed=True, description="No row waits for its schema.", metadata=metadata)
    oldest_first = sorted(
        status.held, key=lambda item: (item.since, item.database, item.table, item.schema_version)
    )
    ages = [(status.at - item.since).total_seconds() for item in oldest_first]
    age = max(0.0, ages[0])
    metadata["oldest_seconds"] = dg.MetadataValue.float(age)
    metadata["tables"] = table_of_records(
        [
            {
                "database": item.database,
                "table": item.table,
                "schema_version": str(item.schema_version),
                "rows": item.rows,
                "age_seconds": seconds,
                "first_commit": to_datetime(item.min_ts).isoformat(timespec="milliseconds"),
            }
            for item, seconds in zip(oldest_first[:LISTED], ages, strict=False)
        ],
        {
            "database": "string",
            "table": "string",
            "schema_version": "string",
            "rows": "int",
            "age_seconds": "float",
            "first_commit": "string",
        },
    )
    told = listed(
        f"{item.database}.{item.table} ({item.rows} rows of schema version {item.schema_version}, "
        f"for {duration(max(0.0, seconds))})"
        for item, seconds in zip(oldest_first, ages, strict=True)
    )
    if age < limits.held_warn_seconds:
        return Verdict(
            passed=True,
            description=f"Rows wait for their schema, not for long yet: {told}.",
            metadata=metadata,
        )
    severity, limit = severity_of(
        age,
        warn_seconds=limits.held_warn_seconds,
        error_seconds=limits.held_error_seconds,
    )
    return Verdict(
        passed=False,
        severity=severity,
        description=(
            f"Rows have waited for their schema for {duration(age)} (limit {duration(limit)}): "
            f"{told}. Their tables lack these changes until it comes. TiCDC repeats it in "
            "bootstraps while the table changes: send-bootstrap-interval-in-sec and "
            "send-bootstrap-in-msg-count of its sink must not both be 0. A change of any row of "
            "such a table upstream may bring one."
        ),
        metadata=metadata,
    )
