"""The figures of a status as metadata of the asset checks that judge them.

In: values. Out: metadata. The verdicts are `Status.verdicts`, and are passed on unchanged.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import dagster as dg

from ticdc_assets.log.faults import Faults
from ticdc_assets.model.tso import lag_seconds
from ticdc_assets.observe.judging import conflict_text, judge_quarantine
from ticdc_assets.observe.lag import LagPart
from ticdc_assets.observe.status import Status
from ticdc_assets.observe.table_status import TableState
from ticdc_assets.observe.verdicts import Check
from ticdc_assets.observe.wording import LISTED
from ticdc_assets.orchestration.metadata import Metadata, time_text, tso_metadata
from ticdc_assets.orchestration.table_schemas import table_metadata, table_of
from ticdc_assets.orchestration.verdicts import CheckVerdict

SEEN_UNTIL = "seen_until"
"""Metadata of an evaluation: up to which moment of quarantining it has looked."""

OPEN = "open"
"""Metadata of the same: how many rows are open."""


def check_verdict(check: Check, status: Status) -> CheckVerdict:
    """Return the verdict of the status on a check, with its numbers."""
    return CheckVerdict.of(status.verdicts[check], _METADATA[check](status))


def quarantine_verdict(
    changefeed: str, faults: Sequence[Faults], seen_until: datetime | None
) -> CheckVerdict:
    """Return whether open rows came since `seen_until` (None: the check never looked)."""
    reasons = Counter[tuple[str, str]]()
    for item in faults:
        reasons[item.stage, item.reason] += item.rows
    new = [item.rows for item in faults if seen_until is None or item.since > seen_until]
    moments = [item.since for item in faults] + ([] if seen_until is None else [seen_until])
    return CheckVerdict.of(
        judge_quarantine(changefeed, faults, seen_until),
        {
            OPEN: sum(item.rows for item in faults),
            "new": sum(new),
            "reasons": table_of(
                "stage string, reason string, open int",
                [(*group, reasons[group]) for group, _ in reasons.most_common()],
            ),
            SEEN_UNTIL: max(moments).isoformat() if moments else "",
        },
    )


def _lag_metadata(status: Status) -> Metadata:
    metadata = tso_metadata("watermark", status.watermark.watermark_ts)
    cut, lag = status.cut, status.lag
    if cut is None or lag is None:
        return metadata
    metadata |= {
        "lag_seconds": lag.seconds,
        **{f"{part}_seconds": lag.part_seconds(part) for part in LagPart},
        "backlog": status.backlog,
        **tso_metadata("applied_ts", cut.tso),
        "mirrors": len(cut.mirrors),
        **table_metadata(
            "worst_tables",
            "database string, table string, lag_seconds float, held int, quarantined int",
            status.tables[:LISTED],
        ),
    }
    if status.tables:
        metadata["worst_table_lag_seconds"] = status.tables[0].lag_seconds
    if status.ending is not None:
        metadata["finished_at"] = dg.MetadataValue.timestamp(status.ending.at)
    elif status.watermark.watermark_ts is not None:
        metadata["changefeed_lag_seconds"] = lag_seconds(status.watermark.watermark_ts, status.at)
    return metadata


def _watermark_metadata(status: Status) -> Metadata:
    # The slowest first: with many topics only some are shown.
    slowest = sorted(status.topics, key=lambda item: (item.watermark_ts or 0, item.topic))
    metadata: Metadata = {
        **tso_metadata("watermark", status.watermark.watermark_ts),
        **tso_metadata("newest_change", status.newest_change),
        "watermarks_stepped_back": status.steps_back,
        "rows_beyond_seconds": status.beyond_seconds,
        **table_metadata(
            "topics",
            "topic string, state string, partitions int, backlog int, watermark string, "
            "time string",
            [
                (
                    item.topic,
                    item.state,
                    item.partitions,
                    item.backlog,
                    _text(item.watermark_ts),
                    time_text(item.watermark_ts),
                )
                for item in slowest[:LISTED]
            ],
        ),
    }
    if status.slowest is not None:
        metadata["slowest_partition"] = status.slowest
    if status.quiet_seconds is not None:
        metadata["quiet_seconds"] = status.quiet_seconds
    return metadata


def _held_metadata(status: Status) -> Metadata:
    return {
        "held": status.held_rows,
        "oldest_seconds": status.held_seconds,
        **table_metadata(
            "tables",
            "database string, table string, schema_version string, waits_for string, rows int, "
            "age_seconds float, since string, first_commit string",
            [
                (
                    item.database,
                    item.table,
                    _text(item.schema_version),
                    item.awaited,
                    item.rows,
                    status.age_seconds(item.since),
                    item.since.isoformat(timespec="seconds"),
                    time_text(item.min_ts),
                )
                for item in status.held[:LISTED]
            ],
        ),
    }


def _mirrors_metadata(status: Status) -> Metadata:
    cut = status.cut
    if cut is None:
        return {}
    states = (TableState.INCOMPLETE, TableState.CAVEATS)
    return {
        "mirrors": len(cut.mirrors),
        "incomplete": status.incomplete,
        "failed": len(status.failed),
        "with_caveats": sum(bool(item.caveats) for item in status.tables),
        "undecoded_records": cut.quarantined,
        **tso_metadata("applied_ts", cut.tso),
        **table_metadata(
            "failed_mirrors",
            "database string, table string, reason string, since string, "
            "rows_at string, waiting int",
            [
                (
                    item.database,
                    item.table,
                    item.reason,
                    item.since.isoformat(timespec="seconds"),
                    _text(item.tso),
                    item.waiting,
                )
                for item in status.failed
            ],
        ),
        **table_metadata(
            "tables",
            "database string, table string, held int, quarantined int, caveats string",
            [item for item in status.tables if item.has_mirror and item.state in states],
        ),
    }


def _accounts_metadata(status: Status) -> Metadata:
    return {} if status.cut is None else dict(status.accounts)


def _checksums_metadata(status: Status) -> Metadata:
    return {
        **{str(agreement): count for agreement, count in status.checksums.counts.items()},
        **table_metadata(
            "examples",
            "where string, database string, table string, commit_ts string",
            [
                (_where(item), item["database"], item["table"], str(item["commit_ts"]))
                for item in status.checksums.examples
            ],
        ),
    }


def _conflicts_metadata(status: Status) -> Metadata:
    return {
        "conflicts": len(status.conflicts),
        **table_metadata(
            "claims",
            "database string, table string, schema_version string, "
            "registered string, claimed string, difference string, where string",
            [
                (
                    row["database"],
                    row["table"],
                    str(row["schema_version"]),
                    row["registered_source"],
                    row["claimed_source"],
                    conflict_text(row),
                    _where(row),
                )
                for row in status.conflicts[:LISTED]
            ],
        ),
    }


def _text(number: int | None) -> str:
    return "" if number is None else str(number)


def _where(row: Mapping[str, Any]) -> str:
    return "/".join(str(row[name]) for name in ("topic", "partition", "offset", "index"))


_METADATA: Mapping[Check, Callable[[Status], Metadata]] = {
    Check.REPLICATION_LAG: _lag_metadata,
    Check.WATERMARK_PROGRESS: _watermark_metadata,
    Check.HELD_ROWS: _held_metadata,
    Check.MIRRORS_COMPLETE: _mirrors_metadata,
    Check.CHANGES_ACCOUNTED: _accounts_metadata,
    Check.ROW_CHECKSUMS: _checksums_metadata,
    Check.SCHEMA_CONFLICTS: _conflicts_metadata,
}

STATUS_CHECKS = tuple(_METADATA)
"""The checks that need only a status."""
