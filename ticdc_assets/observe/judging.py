"""Verdicts about a changefeed: ok, late or wrong, and what to do about it.

In: a `Status` and the limits of the changefeed's configuration. Out: one `Verdict` for each
`Check`. Pure: the same status always gives the same verdicts. Checks that read mirrors (keys, the
rebuild) or files (damage) are elsewhere.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from ticdc_assets.base.names import counted, joined_name
from ticdc_assets.base.own_files import documented
from ticdc_assets.changelog.plan import LACKS_EARLIER
from ticdc_assets.config import Changefeed
from ticdc_assets.log.agreement import Agreement
from ticdc_assets.log.faults import Faults
from ticdc_assets.model.schemas import schema_from_text
from ticdc_assets.model.tso import time_with_tso, to_datetime
from ticdc_assets.observe.lag import Lag, LagPart
from ticdc_assets.observe.status import Status
from ticdc_assets.observe.table_status import TableState, TableStatus, by_caveat
from ticdc_assets.observe.verdicts import Check, Level, Verdict
from ticdc_assets.observe.wording import duration, listed
from ticdc_assets.registry.differences import differences

CLOCK_TOLERANCE_SECONDS = 5.0
"""How far the upstream's clock may be ahead of this machine's before a lag has no meaning."""


def judge(changefeed: Changefeed, status: Status) -> dict[Check, Verdict]:
    """Return the verdicts about a changefeed, the most important first."""
    return {check: said(changefeed, status) for check, said in _JUDGES.items()}


def _beyond(seconds: float, warn_seconds: float, error_seconds: float) -> tuple[Level, float]:
    """Return the level of a time span, and the limit that it exceeds; 0 if it exceeds none."""
    if seconds >= error_seconds:
        return Level.FAIL, error_seconds
    return (Level.WARN, warn_seconds) if seconds >= warn_seconds else (Level.OK, 0.0)


# Lag --------------------------------------------------------------------------------------------


def _judge_lag(changefeed: Changefeed, status: Status) -> Verdict:
    lag = status.lag
    if status.cut is None or lag is None:
        return Verdict(
            Level.WARN,
            "No cut was published yet, so there is no mirror and no lag to measure: "
            f"{watermark_text(status)}. Run `ticdc-assets sync {changefeed.name}`, and see "
            "what it says.",
        )
    if lag.ahead_seconds > CLOCK_TOLERANCE_SECONDS:
        return Verdict(
            Level.WARN,
            f"The newest cut is {duration(lag.ahead_seconds)} in the future: the upstream's "
            "clock or a watermark is ahead of this machine's clock. So the lag cannot be "
            "measured: synchronise the clocks (NTP). If the cut is wrong, go back to an older "
            f"one with `ticdc-assets rewind {changefeed.name} --to TIME`.",
        )
    if status.ending is not None:
        return Verdict(
            Level.OK,
            f"The changefeed is {status.ending.text}: the source has ended, and every change "
            f"that can be in a cut is applied.{_worst_text(status, lag)}",
        )
    level, limit = _beyond(lag.seconds, changefeed.lag_warn_seconds, changefeed.lag_error_seconds)
    worst = _worst_text(status, lag)
    behind = f"The mirrors are {duration(lag.seconds)} behind now"
    if level is Level.OK:
        return Verdict(Level.OK, f"{behind}: {lag.text}.{worst}")
    advice = _what_to_do(changefeed, status, lag)
    return Verdict(level, f"{behind} (limit {duration(limit)}): {lag.text}. {advice}{worst}")


def judge_table(changefeed: Changefeed, status: Status, table: TableStatus) -> Verdict:
    """Judge how far one table of the newest cut is behind now."""
    if status.ending is not None and not table.lacking:
        return Verdict(Level.OK, f"The table is {status.ending.text}.")
    lag = table.lag_seconds
    level, limit = _beyond(lag, changefeed.lag_warn_seconds, changefeed.lag_error_seconds)
    since = "ago" if status.ending is None else "before the end"
    behind = f"The table is complete up to {duration(lag)} {since}"
    if limit:
        behind += f" (limit {duration(limit)})"
    lacking = f": {', '.join(table.lacking)}" if table.lacking else ""
    if table.failed is not None:
        level = Level.FAIL
    elif status.ending is not None:
        level = Level.WARN
    return Verdict(level, f"{behind}{lacking}.")


def _what_to_do(changefeed: Changefeed, status: Status, lag: Lag) -> str:
    """Return the step with the largest part of the lag, and the next check there."""
    name = changefeed.name
    if status.es_only:
        return (
            "The messages have no commit ts and no watermark, so this is the age of the newest "
            "applied change, and grows while nothing changes upstream. Check whether records wait "
            "in the topic (kafka_topic, the sensor's ticks)."
        )
    if status.watermark.waiting or status.watermark.watermark_ts is None:
        return f"Nothing more can be applied: {watermark_text(status)}."
    match lag.largest:
        case LagPart.SOURCE_TO_KAFKA:
            return (
                "Most of it is before Kafka: the newest landed watermark (from "
                f"{status.slowest or '?'}) is old. Check the checkpoint and state of the "
                "changefeed in TiCDC (`cdc cli changefeed query`), and whether all partitions "
                f"get watermarks (check watermark_progress of {name})."
            )
        case LagPart.KAFKA_TO_RAW:
            return (
                "Most of it is in Kafka: "
                f"{counted(status.backlog, 'record waits', 'records wait')} to be landed. Check "
                "whether anything syncs, the changefeed's sensor in Dagster or `ticdc-assets sync "
                f"{name}`, and whether syncs fail, are queued, or take long."
            )
        case LagPart.RAW_TO_MIRROR:
            batches = status.landed_batch - status.decoded_batch
            undecoded = counted(batches, "landed batch is", "landed batches are")
            undecoded = f", {undecoded} not decoded" if batches > 0 else ""
            return (
                f"Most of it has landed and is not applied yet{undecoded}. Check the syncs of "
                f"{name}: a slow one may need more memory or cores, a failed one says why."
            )


def _worst_text(status: Status, lag: Lag) -> str:
    worst = next((item for item in status.tables if not item.is_complete), None)
    if worst is None or worst.lag_ms <= lag.total_ms:
        return ""
    since = "ago" if status.ending is None else "before that"
    return (
        f" The worst table, {_name(worst)}, is complete only up to {duration(worst.lag_seconds)} "
        f"{since} ({', '.join(worst.lacking)})."
    )


def _name(table: TableStatus) -> str:
    return joined_name(table.database, table.table)


def watermark_text(status: Status) -> str:
    """Return the global watermark, or why there is none, as a clause."""
    watermark = status.watermark
    if watermark.waiting:
        places = [f"{topic}/{partition}" for topic, partition in watermark.waiting]
        return f"no watermark has arrived from {listed(places)}"
    if watermark.watermark_ts is None:
        return "nothing has landed"
    return f"the global watermark is {time_with_tso(watermark.watermark_ts)}"


# The watermark ----------------------------------------------------------------------------------


def _judge_watermark(changefeed: Changefeed, status: Status) -> Verdict:
    """Judge whether the watermark and the rows move together.

    The watermark is *stuck* if it does not move while rows land far beyond it; it is *quiet* if it
    moves for long without any row or DDL.
    """
    limits, watermark = changefeed.checks, status.watermark.watermark_ts
    if status.es_only:
        return Verdict(Level.OK, "The messages have no commit ts, so no watermarks are sent.")
    if status.newest_change is None and watermark is None:
        return Verdict(Level.OK, "No change and no watermark has landed yet.")
    if status.ending is not None and not status.ending.has_rest:
        return Verdict(Level.OK, "The source has ended, and no change is above its last watermark.")
    if status.ending is not None:
        return Verdict(
            Level.WARN,
            "The source has ended, and changes are above its last watermark, by up to "
            f"{duration(status.beyond_seconds)} of upstream time. {_who_holds(status)} They are in "
            "change_log and in no mirror, because no watermark covers them.",
        )
    ahead, quiet = status.beyond_seconds, status.quiet_seconds or 0.0
    level, limit = _beyond(ahead, limits.stuck_warn_seconds, limits.stuck_error_seconds)
    if level is not Level.OK:
        return Verdict(
            level,
            f"The watermark does not follow the rows: changes have landed "
            f"{duration(ahead)} of upstream time beyond it (limit {duration(limit)}). "
            f"{_who_holds(status)} Until it moves, nothing more is applied. Check whether "
            "TiCDC sends to every partition and topic, whether each of them was landed to its "
            "end, and whether a topic has more partitions than partition-num.",
        )
    if limits.quiet_warn_seconds is not None and quiet >= limits.quiet_warn_seconds:
        return Verdict(
            Level.WARN,
            f"The watermark moves, but no row and no DDL arrived for {duration(quiet)} of "
            f"upstream time (limit {duration(limits.quiet_warn_seconds)}). If nothing changes "
            "upstream, this is normal, and quiet_warn_seconds can be longer. Otherwise check "
            "the filter rules of the changefeed, and whether its tables still exist.",
        )
    if watermark is None:
        return Verdict(Level.OK, f"There is no global watermark yet: {watermark_text(status)}.")
    return Verdict(
        Level.OK,
        f"The watermark is at {to_datetime(watermark):%Y-%m-%d %H:%M:%S} UTC; changes have "
        f"landed up to {duration(ahead)} beyond it.",
    )


def _who_holds(status: Status) -> str:
    by_topic: dict[str, list[str]] = {}
    for topic, partition in status.watermark.waiting:
        by_topic.setdefault(topic, []).append(str(partition))
    if by_topic:
        waiting = (
            f"{topic} (partitions {', '.join(partitions)})"
            for topic, partitions in by_topic.items()
        )
        return f"No watermark has arrived from {listed(waiting)}."
    return f"The slowest partition is {status.slowest or '?'}."


# Held rows --------------------------------------------------------------------------------------


def _judge_held(changefeed: Changefeed, status: Status) -> Verdict:
    limits, age = changefeed.checks, status.held_seconds
    if not status.held:
        return Verdict(Level.OK, "No row waits for its schema or for its table.")
    advice = " ".join(_held_advice(changefeed, status))
    listing = listed(
        f"{joined_name(item.database, item.table)} "
        f"({counted(item.rows, 'row waits', 'rows wait')} for {item.awaited}, "
        f"for {duration(status.age_seconds(item.since))})"
        for item in status.held
    )
    if status.ending is not None:
        return Verdict(
            Level.WARN,
            f"The source has ended, and rows still wait: {listing}. Their tables lack these "
            f"changes. {advice}",
        )
    level, limit = _beyond(age, limits.held_warn_seconds, limits.held_error_seconds)
    if level is Level.OK:
        return Verdict(Level.OK, f"Rows wait, but not for long yet: {listing}.")
    return Verdict(
        level,
        f"Rows have waited for {duration(age)} (limit {duration(limit)}): {listing}. Their "
        f"tables lack these changes. {advice}",
    )


def _held_advice(changefeed: Changefeed, status: Status) -> Iterable[str]:
    if any(item.schema_version is not None for item in status.held):
        yield (
            "TiCDC repeats schemas in bootstraps while a table changes: "
            "send-bootstrap-interval-in-sec and send-bootstrap-in-msg-count of its sink must not "
            "both be 0. Changing any row of such a table upstream may send a bootstrap."
        )
    if any(item.mirror_id is None for item in status.held):
        yield (
            "For a table that no message created, look for its DDL in ddl_history, export it with "
            f"Dumpling, and run: ticdc-assets seed {changefeed.name} EXPORT"
        )


# Completeness -----------------------------------------------------------------------------------


def _judge_mirrors(changefeed: Changefeed, status: Status) -> Verdict:
    cut = status.cut
    if cut is None:
        return Verdict(Level.OK, "No cut was published yet; nothing to check.")
    unwell = [item for item in status.tables if item.state is not TableState.COMPLETE]
    # Tables without a mirror come last; the others are sorted by name.
    unwell.sort(key=lambda item: (not item.has_mirror, item.database, item.table))
    findings = [f"failed: {item.failed.sentence}" for item in unwell if item.failed is not None]
    findings += [
        f"{_name(item)} ({', '.join(item.lacking)})"
        for item in unwell
        if item.failed is None and item.lacking
    ]
    findings += [
        f"{caveat} ({listed(map(_name, tables))})" for caveat, tables in by_caveat(unwell).items()
    ]
    if cut.quarantined:
        records = counted(cut.quarantined, "record")
        findings.append(f"{records} that could not be decoded")
    if not findings:
        return Verdict(
            Level.OK,
            f"{counted(len(cut.mirrors), 'mirror has', 'mirrors have')} every change up "
            f"to {cut.moment}.",
        )
    earlier = ""
    if any(it.startswith(LACKS_EARLIER) for table in status.tables for it in table.caveats):
        earlier = (
            " For rows from before the changefeed, export the tables with Dumpling and run "
            f"`ticdc-assets seed {changefeed.name} EXPORT`; if they had no rows then, name them in "
            "`complete_tables`."
        )
    return Verdict(
        max((item.verdict.level for item in unwell), default=Level.WARN),
        f"Not complete at {cut.moment}: {listed(findings)}. Held changes wait for their schema "
        "(TiCDC repeats it in bootstraps: see send-bootstrap-interval-in-sec). "
        f"Quarantined changes need a fix and `ticdc-assets redrive {changefeed.name}`.{earlier} "
        f"For caveats see {documented('limitations')}.",
    )


def judge_quarantine(
    changefeed: str, faults: Iterable[Faults], seen_until: datetime | None = None
) -> Verdict:
    """Judge whether rows opened since `seen_until`; if it is None, all are new."""
    open_faults = list(faults)
    new = [item for item in open_faults if seen_until is None or item.since > seen_until]
    total = sum(item.rows for item in open_faults)
    if new:
        counts: Counter[str] = Counter()
        for item in new:
            counts[item.reason] += item.rows
        listing = listed(f"{reason} {count}" for reason, count in sorted(counts.items()))
        return Verdict(
            Level.WARN,
            f"{counts.total()} new in quarantine ({listing}); open in total: {total}. List "
            f"them with `ticdc-assets quarantine {changefeed}`; after a fix, run "
            f"`ticdc-assets redrive {changefeed}`.",
        )
    older = counted(total, "older one is", "older ones are")
    remaining = f"; {older} still open" if open_faults else ", and nothing is open"
    return Verdict(Level.OK, f"Nothing new in quarantine{remaining}.")


def _judge_accounts(changefeed: Changefeed, status: Status) -> Verdict:
    cut = status.cut
    if cut is None:
        return Verdict(Level.OK, "No cut was published yet; nothing to check.")
    if not cut.unaccounted:
        counts = status.accounts
        parts = ", ".join(f"{n:,} {name}" for name, n in counts.items() if n and name != "read")
        return Verdict(
            Level.OK,
            f"{counted(counts['read'], 'row change was', 'row changes were')} read for "
            f"{cut.moment}{f': {parts}' if parts else ''}.",
        )
    return Verdict(
        Level.FAIL,
        f"Row changes are missing at {cut.moment}: "
        f"{listed([item.sentence for item in cut.unaccounted])}. They are in change_log and in "
        f"no mirror. Fold the table again with `ticdc-assets backfill {changefeed.name} "
        "--table DATABASE.TABLE`; if it has no mirror, export it with Dumpling and run "
        f"`ticdc-assets seed {changefeed.name} EXPORT`. If they are still missing, it is "
        "a bug of this package or of the messages: report it with the output of `ticdc-assets "
        "decode` for these records.",
    )


# Checksums --------------------------------------------------------------------------------------


def _judge_checksums(_: Changefeed, status: Status) -> Verdict:
    counts = status.checksums.counts
    wrong = counts[Agreement.DISAGREES]
    if not sum(counts.values()):
        return Verdict(Level.OK, "The messages carry no row checksums.")
    said = (
        f"Row changes by their checksums: {counts[Agreement.AGREES]} match, {wrong} do not, "
        f"{counts[Agreement.UNKNOWN]} cannot be checked, {counts[Agreement.WAITING]} wait for a "
        "schema."
    )
    if not wrong:
        return Verdict(Level.OK, said)
    return Verdict(
        Level.FAIL,
        f"{said} Rows that do not match were applied as sent: compare them with the source, "
        "and look for a corrupted row in TiCDC's log.",
    )


# Schemas ----------------------------------------------------------------------------------------


def _judge_conflicts(changefeed: Changefeed, status: Status) -> Verdict:
    rows = status.conflicts
    if not rows:
        return Verdict(Level.OK, "Every schema version has one structure.")
    listing = listed(
        (
            f"{row['database']}.{row['table']} at version {row['schema_version']}, "
            f"{row['registered_source']} -> {row['claimed_source']}: {conflict_text(row)}"
            for row in rows
        ),
        "; ",
    )
    return Verdict(
        Level.WARN,
        f"{counted(len(rows), 'message describes', 'messages describe')} a schema version "
        f"differently from the registered schema: {listing}. The registered schema is used, so "
        "rows written with the other one may be in quarantine, or silently wrong. Compare with "
        "SHOW CREATE TABLE upstream. If the registered schema is wrong, start the changefeed "
        "before the CREATE of the table, and verify the mirrors with `ticdc-assets verify "
        f"{changefeed.name}`.",
    )


def conflict_text(row: Mapping[str, Any]) -> str:
    """Return how the schema that a message claims differs from the registered one."""
    sides = [row["registered"], row["claimed"]]
    if None in sides:
        return "no schema" if row["claimed"] is None else "a schema, where none is registered"
    texts = differences(*map(schema_from_text, sides))
    return listed(texts, "; ") or "the order of columns, or ids"


_JUDGES: Mapping[Check, Callable[[Changefeed, Status], Verdict]] = {
    Check.REPLICATION_LAG: _judge_lag,
    Check.WATERMARK_PROGRESS: _judge_watermark,
    Check.HELD_ROWS: _judge_held,
    Check.MIRRORS_COMPLETE: _judge_mirrors,
    Check.QUARANTINE_GROWTH: lambda feed, status: judge_quarantine(feed.name, status.faults),
    Check.CHANGES_ACCOUNTED: _judge_accounts,
    Check.ROW_CHECKSUMS: _judge_checksums,
    Check.SCHEMA_CONFLICTS: _judge_conflicts,
}
