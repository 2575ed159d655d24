"""The figures of a status as metadata of the asset checks that judge them.

In: values. Out: metadata. The verdicts are `Status.verdicts`, and are passed on unchanged.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

import dagster as dg

from ticdc_assets.base.names import joined_name
from ticdc_assets.config import Changefeed
from ticdc_assets.log.cuts import HeldRows
from ticdc_assets.log.faults import Faults
from ticdc_assets.model.tso import lag_seconds
from ticdc_assets.observe.judging import claims, judge_quarantine
from ticdc_assets.observe.lag import LagPart
from ticdc_assets.observe.status import Status
from ticdc_assets.observe.table_status import TableState
from ticdc_assets.observe.verdicts import Check
from ticdc_assets.observe.wording import LISTED, duration
from ticdc_assets.orchestration.metadata import Metadata, time_text, tso_metadata
from ticdc_assets.orchestration.table_schemas import table_of
from ticdc_assets.orchestration.verdicts import CheckVerdict

SEEN_UNTIL = "seen_until"
"""Metadata of an evaluation: up to which moment of quarantining it has looked."""

OPEN = "open"
"""Metadata of the same: how many rows are open."""


def check_verdict(check: Check, changefeed: Changefeed, status: Status) -> CheckVerdict:
    """Return the verdict of the status on a check, with its numbers."""
    return CheckVerdict.of(status.verdicts[check], _METADATA[check](changefeed, status))


def quarantine_verdict(
    changefeed: str, faults: Sequence[Faults], seen_until: datetime | None
) -> CheckVerdict:
    """Return whether open rows came since `seen_until` (None: the check never looked)."""
    reasons: dict[tuple[str, str], int] = {}
    for item in faults:
        group = (item.stage, item.reason)
        reasons[group] = reasons.get(group, 0) + item.rows
    new = [item.rows for item in faults if seen_until is None or item.since > seen_until]
    moments = [item.since for item in faults] + ([] if seen_until is None else [seen_until])
    return CheckVerdict.of(
        judge_quarantine(changefeed, faults, seen_until),
        {
            OPEN: sum(item.rows for item in faults),
            "new": sum(new),
            "reasons": table_of(
                "stage string, reason string, open int",
                [
                    (stage, reason, count)
                    for (stage, reason), count in sorted(
                        reasons.items(), key=lambda item: (-item[1], item[0])
                    )
                ],
            ),
            SEEN_UNTIL: max(moments).isoformat() if moments else "",
        },
    )


def _lag_metadata(changefeed: Changefeed, status: Status) -> Metadata:
    metadata: Metadata = {
        "warns_from": duration(changefeed.lag_warn_seconds),
        "fails_from": duration(changefeed.lag_error_seconds),
        **tso_metadata("watermark", status.watermark.watermark_ts),
    }
    cut, lag = status.cut, status.lag
    if cut is None or lag is None:
        return metadata
    metadata |= {
        "lag_seconds": lag.seconds,
        **{f"{part}_seconds": lag.part_seconds(part) for part in LagPart},
        "backlog": status.backlog,
        **tso_metadata("applied_ts", cut.tso),
        "mirrors": len(cut.mirrors),
        **_worst_tables(status),
    }
    if status.ending is not None:
        metadata["finished_at"] = dg.MetadataValue.timestamp(status.ending.at)
    elif status.watermark.watermark_ts is not None:
        metadata["changefeed_lag_seconds"] = lag_seconds(status.watermark.watermark_ts, status.at)
    return metadata


def _worst_tables(status: Status) -> Metadata:
    if not status.tables:
        return {}
    worst = status.tables[0]
    return {
        "worst_table": joined_name(worst.database, worst.table),
        "worst_table_lag_seconds": worst.lag_seconds,
        "worst_tables": table_of(
            "database string, table string, lag_seconds float, held int, quarantined int",
            status.tables[:LISTED],
        ),
    }


def _watermark_metadata(changefeed: Changefeed, status: Status) -> Metadata:
    limits = changefeed.checks
    metadata: Metadata = {
        **tso_metadata("watermark", status.watermark.watermark_ts),
        **tso_metadata("newest_change", status.times.newest),
        "watermarks_stepped_back": status.steps_back,
        "stuck_warns_from": duration(limits.stuck_warn_seconds),
        "stuck_fails_from": duration(limits.stuck_error_seconds),
        "rows_beyond_seconds": status.beyond_seconds,
        "topics": _topics_table(status),
    }
    if status.slowest is not None:
        metadata["slowest_partition"] = status.slowest
    if status.quiet_seconds is not None:
        metadata["quiet_seconds"] = status.quiet_seconds
    return metadata


def _topics_table(status: Status) -> dg.MetadataValue:
    # The slowest first: with many topics only some are shown.
    slowest = sorted(status.topics, key=lambda item: (item.watermark_ts or 0, item.topic))
    return table_of(
        "topic string, state string, partitions int, backlog int, watermark string, time string",
        [
            (
                item.topic,
                item.state,
                item.partitions,
                item.backlog,
                "" if item.watermark_ts is None else str(item.watermark_ts),
                time_text(item.watermark_ts),
            )
            for item in slowest[:LISTED]
        ],
    )


def _held_metadata(changefeed: Changefeed, status: Status) -> Metadata:
    limits = changefeed.checks
    metadata: Metadata = {
        "held": status.held_rows,
        "warns_from": duration(limits.held_warn_seconds),
        "fails_from": duration(limits.held_error_seconds),
    }
    if status.held:
        metadata["oldest_seconds"] = status.held_seconds
        metadata["tables"] = _held_table(status, status.held[:LISTED])
    return metadata


def _held_table(status: Status, held: Iterable[HeldRows]) -> dg.MetadataValue:
    return table_of(
        "database string, table string, schema_version string, waits_for string, rows int, "
        "age_seconds float, since string, first_commit string",
        [
            (
                item.database,
                item.table,
                "" if item.schema_version is None else str(item.schema_version),
                item.awaited,
                item.rows,
                status.age_seconds(item.since),
                item.since.isoformat(timespec="seconds"),
                time_text(item.min_ts),
            )
            for item in held
        ],
    )


def _mirrors_metadata(_: Changefeed, status: Status) -> Metadata:
    cut = status.cut
    if cut is None:
        return {}
    metadata: Metadata = {
        "mirrors": len(cut.mirrors),
        "incomplete": status.incomplete,
        "failed": len(status.failed),
        "with_caveats": sum(bool(item.caveats) for item in status.tables),
        "undecoded_records": cut.quarantined,
        **tso_metadata("applied_ts", cut.tso),
    }
    if status.failed:
        metadata["failed_mirrors"] = table_of(
            "database string, table string, reason string, since string, "
            "rows_at string, waiting int",
            [
                (
                    item.database,
                    item.table,
                    item.reason,
                    item.since.isoformat(timespec="seconds"),
                    "" if item.tso is None else str(item.tso),
                    item.waiting,
                )
                for item in status.failed
            ],
        )
    states = (TableState.INCOMPLETE, TableState.CAVEATS)
    tables = [item for item in status.tables if item.has_mirror and item.state in states]
    if tables:
        metadata["tables"] = table_of(
            "database string, table string, held int, quarantined int, caveats string", tables
        )
    if status.held:
        metadata["held"] = _held_table(status, status.held)
    return metadata


def _accounts_metadata(_: Changefeed, status: Status) -> Metadata:
    if status.cut is None:
        return {}
    return dict(status.accounts)


def _checksums_metadata(_: Changefeed, status: Status) -> Metadata:
    metadata: Metadata = {
        str(agreement): count for agreement, count in status.checksums.counts.items()
    }
    examples = status.checksums.examples
    if not examples:
        return metadata
    metadata["examples"] = table_of(
        "where string, database string, table string, commit_ts string",
        [
            (
                "/".join(str(item[name]) for name in ("topic", "partition", "offset", "index")),
                item["database"],
                item["table"],
                str(item["commit_ts"]),
            )
            for item in examples
        ],
    )
    return metadata


def _conflicts_metadata(_: Changefeed, status: Status) -> Metadata:
    rows = status.conflicts
    metadata: Metadata = {"conflicts": len(rows)}
    if not rows:
        return metadata
    metadata["claims"] = table_of(
        "database string, table string, schema_version string, "
        "registered string, claimed string, where string",
        [
            (
                row["database"],
                row["table"],
                str(row["schema_version"]),
                f"{row['registered_source']}: {registered}",
                f"{row['claimed_source']}: {claimed}",
                "/".join(str(row[name]) for name in ("topic", "partition", "offset", "index")),
            )
            for row in rows[:LISTED]
            for registered, claimed in [claims(row)]
        ],
    )
    return metadata


_METADATA: Mapping[Check, Callable[[Changefeed, Status], Metadata]] = {
    Check.REPLICATION_LAG: _lag_metadata,
    Check.WATERMARK_PROGRESS: _watermark_metadata,
    Check.HELD_ROWS: _held_metadata,
    Check.MIRRORS_COMPLETE: _mirrors_metadata,
    Check.CHANGES_ACCOUNTED: _accounts_metadata,
    Check.ROW_CHECKSUMS: _checksums_metadata,
    Check.SCHEMA_CONFLICTS: _conflicts_metadata,
}
