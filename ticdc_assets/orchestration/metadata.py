"""The metadata of each step's materialisation: the lake's results for Dagster.

Nothing is read here except clocks. TSOs are texts because they exceed the integers that a browser
represents exactly; each comes with its time. `summing` names the numbers that add up over syncs.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeAlias

import dagster as dg

from ticdc_assets.base.names import joined_name
from ticdc_assets.changelog.progress import GlobalWatermark
from ticdc_assets.log.change_statistics import ChangeStatistics
from ticdc_assets.log.cuts import Cut, MirrorCut
from ticdc_assets.log.decoding import Decoding
from ticdc_assets.log.landing import Landing
from ticdc_assets.log.positions import PartitionOffsets
from ticdc_assets.log.quarantine import QuarantineCounts
from ticdc_assets.log.schema_tables import Registering
from ticdc_assets.mirrors.mirror_making import Mode
from ticdc_assets.mirrors.standing import Applying, Outcome
from ticdc_assets.model.tso import lag_seconds, to_datetime
from ticdc_assets.observe.status import ACCOUNT_COUNTS
from ticdc_assets.observe.wording import listed
from ticdc_assets.orchestration.table_schemas import mirror_columns, table_of
from ticdc_assets.repair.maintenance import Maintaining
from ticdc_assets.repair.rebuilding import Rebuild
from ticdc_assets.repair.redecoding import RedecodedDay
from ticdc_assets.repair.redriving import Redriving
from ticdc_assets.repair.seeding import SeededRows, Seeding
from ticdc_assets.spark.compute import Ran
from ticdc_assets.storage.lake_paths import LakePaths

Metadata: TypeAlias = dict[str, dg.MetadataValue]

LOOKED_AT_BATCH = "change_log_batch"
"""Name of the newest batch of the change log that an apply looked at; the sensor reads it."""

DAY_SAID = "{appended} rows appended"
MIRROR_SAID = "{mode}: {changes} keys changed, {rows} rows"
QUARANTINE_SAID = "apply_changes: {open_apply_before} open row changes before, {open_apply} now"
"""What events say in one clause, made of their metadata: `described` fills it in."""


def described(said: str, metadata: Mapping[str, dg.MetadataValue]) -> str:
    """Return `said` with values of metadata in the place of their names in braces."""
    return said.format_map({name: item.value for name, item in metadata.items()})


def tso_metadata(name: str, tso: int | None) -> Metadata:
    """Return `name` with a TSO and, under `<name>_time`, the time of its physical part."""
    if tso is None:
        return {name: dg.MetadataValue.text("none yet")}
    return {
        name: dg.MetadataValue.text(str(tso)),
        f"{name}_time": dg.MetadataValue.timestamp(to_datetime(tso)),
    }


def offsets_metadata(partitions: Iterable[PartitionOffsets]) -> dg.MetadataValue:
    """Return the offsets of each partition as a table."""
    return table_of(
        "topic string, partition int, earliest int, end int, landed int, backlog int",
        [
            (item.topic, item.partition, item.earliest, item.end, item.landed, item.backlog)
            for item in partitions
        ],
    )


def landing_metadata(landing: Landing, paths: LakePaths) -> Metadata:
    """Return the metadata of a landing."""
    return {
        "records": dg.MetadataValue.int(landing.records),
        "batch": dg.MetadataValue.int(landing.batch),
        "backlog": dg.MetadataValue.int(landing.backlog),
        "offsets": offsets_metadata(landing.partitions),
        "path": dg.MetadataValue.path(str(paths.raw_messages)),
    }


def rate_metadata(count: int, seconds: float) -> Metadata:
    """Return how long a step took and, if it had anything to do, how many a second that is."""
    metadata: Metadata = {"seconds": dg.MetadataValue.float(round(seconds, 3))}
    if count and seconds > 0:
        metadata["per_second"] = dg.MetadataValue.float(round(count / seconds, 1))
    return metadata


def ran_metadata(ran: Ran) -> Metadata:
    """Return where the work of a step ran, nothing if it had none."""
    return {"ran": dg.MetadataValue.text(ran.sentence)} if ran.sentence else {}


def decoding_metadata(
    decoding: Decoding, statistics: ChangeStatistics, paths: LakePaths
) -> Metadata:
    """Return the metadata of a decoding."""
    return {
        "changes": dg.MetadataValue.int(sum(decoding.changes.values())),
        **{
            f"changes_{kind}": dg.MetadataValue.int(count)
            for kind, count in sorted(decoding.changes.items())
        },
        "quarantined": dg.MetadataValue.int(decoding.quarantined),
        "read_one_by_one": dg.MetadataValue.int(decoding.alone),
        "batch": dg.MetadataValue.int(decoding.batch),
        "batches": dg.MetadataValue.int(decoding.batches),
        "dagster/row_count": dg.MetadataValue.int(sum(row["rows"] for row in statistics.rows)),
        "watermarks": table_of(
            "topic string, partition int, watermark string, time string, steps_back int",
            [
                (
                    *place,
                    str(progress.watermark_ts),
                    time_text(progress.watermark_ts),
                    progress.steps_back,
                )
                for place, progress in sorted(statistics.progress().items())
            ],
        ),
        "path": dg.MetadataValue.path(str(paths.change_log)),
    }


def day_metadata(appended: int, paths: LakePaths) -> Metadata:
    """Return the metadata of the rows appended to one landing day of the change log."""
    return {
        "appended": dg.MetadataValue.int(appended),
        "path": dg.MetadataValue.path(str(paths.change_log)),
    }


def redecoding_metadata(day: RedecodedDay, paths: LakePaths) -> Metadata:
    """Return what decoding one landing day again did."""
    return {
        "result": dg.MetadataValue.text(day.sentence()),
        "records": dg.MetadataValue.int(day.records),
        "rows_before": dg.MetadataValue.int(day.before),
        "rows": dg.MetadataValue.int(day.rows),
        "losses": dg.MetadataValue.text("; ".join(day.losses) or "none"),
        "quarantined": dg.MetadataValue.int(day.quarantined),
        "left_quarantine": dg.MetadataValue.int(day.released),
        "schemas_differ": dg.MetadataValue.bool(day.schemas),
        "tables_to_fold": table_of(
            "database string, table string",
            [(database, table) for database, table in day.tables],
        ),
        "path": dg.MetadataValue.path(str(paths.change_log)),
    }


def redriving_metadata(redriving: Redriving) -> Metadata:
    """Return the metadata of a re-drive."""
    return {
        "redriven": dg.MetadataValue.int(redriving.records),
        "redriven_decoded": dg.MetadataValue.int(redriving.decoded),
        "redriven_still_quarantined": dg.MetadataValue.int(redriving.still_quarantined),
        "tables_to_fold": dg.MetadataValue.int(len(redriving.refold)),
    }


def seeding_metadata(seeding: Seeding, paths: LakePaths) -> Metadata:
    """Return the metadata of a seeding."""
    refused = {joined_name(*name): reason for name, reason in sorted(seeding.refused.items())}
    return {
        "dagster/uri": dg.MetadataValue.path(str(paths.snapshot_rows)),
        "tso": dg.MetadataValue.text(str(seeding.tso)),
        "tables": dg.MetadataValue.int(len(seeding.tables)),
        "seeded_rows": dg.MetadataValue.int(seeding.rows),
        "quarantined": dg.MetadataValue.int(sum(item.quarantined for item in seeding.tables)),
        "excluded_tables": dg.MetadataValue.int(seeding.excluded),
        "refused_tables": dg.MetadataValue.json(refused),
        "skipped_files": dg.MetadataValue.json(dict(seeding.skipped)),
        "unterminated_files": dg.MetadataValue.text(listed(seeding.unterminated)),
    }


def seeded_rows_metadata(item: SeededRows, seeding: Seeding) -> Metadata:
    """Return the metadata of one table that was seeded."""
    return {
        "dagster/partition_row_count": dg.MetadataValue.int(item.rows),
        "tso": dg.MetadataValue.text(str(seeding.tso)),
        "seed": dg.MetadataValue.int(item.seed),
        "quarantined": dg.MetadataValue.int(item.quarantined),
    }


def rebuild_metadata(done: Rebuild) -> Metadata:
    """Return the metadata of a rebuild; no value of a row is in it."""
    found = done.verification
    return {
        "cut": dg.MetadataValue.text("none" if done.cut is None else str(done.cut.number)),
        "generation": dg.MetadataValue.text("none" if done.cut is None else done.cut.generation),
        "records": dg.MetadataValue.int(0 if found is None else found.records),
        "compared": dg.MetadataValue.text("nothing" if found is None else found.summary),
        "losses": dg.MetadataValue.text("; ".join(done.losses) or "none"),
        "notes": dg.MetadataValue.text("\n".join(done.lines())),
    }


def maintaining_metadata(done: Maintaining) -> Metadata:
    """Return the metadata of a maintenance."""
    retaining = done.retaining
    return {
        "change_log_rows_removed": dg.MetadataValue.int(retaining.changes),
        "raw_records_removed": dg.MetadataValue.int(retaining.records),
        "cuts_removed": dg.MetadataValue.int(retaining.cuts),
        **tso_metadata("truncation_point", retaining.truncation_point.tso or None),
        **tso_metadata("raw_truncation_point", retaining.raw_truncation_point.tso or None),
        "bytes_freed": dg.MetadataValue.int(
            sum(item.before.disk_bytes - item.after.disk_bytes for item in done.tables)
        ),
        "notes": dg.MetadataValue.text("; ".join(retaining.reasons) or "none"),
        "tables": table_of(
            "table string, rows_removed int, files_unnamed int, "
            "files_before int, files int, bytes_before int, bytes int",
            [
                (
                    item.name,
                    item.rows_removed,
                    item.unnamed_removed,
                    item.before.files,
                    item.after.files,
                    item.before.disk_bytes,
                    item.after.disk_bytes,
                )
                for item in done.tables
            ],
        ),
    }


def quarantine_metadata(added: int, counts: QuarantineCounts, paths: LakePaths) -> Metadata:
    """Return how much is in quarantine."""
    return {
        "quarantined": dg.MetadataValue.int(added),
        "open": dg.MetadataValue.int(counts.decode + counts.apply),
        "open_decode": dg.MetadataValue.int(counts.decode),
        "open_apply": dg.MetadataValue.int(counts.apply),
        "path": dg.MetadataValue.path(str(paths.quarantine)),
    }


def registering_metadata(registering: Registering, paths: LakePaths) -> Metadata:
    """Return the metadata of a registering."""
    return {
        "changed": dg.MetadataValue.bool(registering.changed),
        "schema_versions": dg.MetadataValue.int(registering.schema_versions),
        "ddls": dg.MetadataValue.int(registering.ddls),
        "conflicts": dg.MetadataValue.int(registering.conflicts),
        "batch": dg.MetadataValue.int(registering.batch),
        "dagster/row_count": dg.MetadataValue.int(registering.schema_versions),
        "path": dg.MetadataValue.path(str(paths.schema_registry)),
    }


def applying_metadata(applying: Applying, batch: int, now: datetime, *, limit: int) -> Metadata:
    """Return how an apply ended.

    Args:
        applying: how it ended.
        batch: the newest batch of the change log it looked at.
        now: the time.
        limit: tables that are told each by itself, at most.
    """
    metadata: Metadata = {
        "outcome": dg.MetadataValue.text(str(applying.outcome)),
        "reason": dg.MetadataValue.text(applying.reason),
        LOOKED_AT_BATCH: dg.MetadataValue.int(batch),
        **tso_metadata("watermark", applying.watermark.watermark_ts),
    }
    if applying.watermark.slowest is not None:
        topic, partition = applying.watermark.slowest
        metadata["slowest_partition"] = dg.MetadataValue.text(f"{topic}/{partition}")
    if applying.watermark.waiting:
        metadata["partitions_without_watermark"] = dg.MetadataValue.text(
            ", ".join(f"{topic}/{partition}" for topic, partition in applying.watermark.waiting)
        )
    metadata["topics"] = _topics_metadata(applying.watermark)
    if applying.cut is not None:
        metadata |= _cut_metadata(applying.cut, now, limit)
    return metadata


def _topics_metadata(watermark: GlobalWatermark) -> dg.MetadataValue:
    """Return every topic with its part in the global watermark."""
    return table_of(
        "topic string, state string, partitions int, tables string, "
        "watermark string, retired string",
        [
            (
                topic.topic,
                str(topic.state),
                topic.partitions,
                "unknown" if topic.tables is None else str(topic.tables),
                time_text(topic.watermark_ts),
                time_text(topic.retired_ts or None),
            )
            for topic in watermark.topics
        ],
    )


def time_text(tso: int | None) -> str:
    """Return the time of a TSO to the millisecond; "" for None."""
    return "" if tso is None else to_datetime(tso).isoformat(timespec="milliseconds")


def _cut_metadata(cut: Cut, now: datetime, limit: int) -> Metadata:
    accounts = sorted(cut.accounts, key=lambda item: not item.unaccounted)[:limit]
    mirrors = _worth_telling(cut, limit)
    totals = Metadata()
    if len(accounts) < len(cut.accounts):
        totals["accounts_total"] = table_of(
            ", ".join(f"{name} int" for name in ACCOUNT_COUNTS),
            [tuple(sum(getattr(it, name) for it in cut.accounts) for name in ACCOUNT_COUNTS)],
        )
        totals["accounts_not_listed"] = dg.MetadataValue.int(len(cut.accounts) - len(accounts))
    if len(mirrors) < len(cut.mirrors):
        totals["mirrors_not_listed"] = dg.MetadataValue.int(len(cut.mirrors) - len(mirrors))
    return totals | {
        **tso_metadata("applied_ts", cut.tso),
        "lag_seconds": dg.MetadataValue.float(lag_seconds(cut.tso, now)),
        "cut": dg.MetadataValue.int(cut.number),
        "rows": dg.MetadataValue.int(sum(item.rows for item in cut.mirrors)),
        "failed_mirrors": dg.MetadataValue.int(len(cut.failed)),
        "accounts": table_of(
            "database string, table string" + "".join(f", {name} int" for name in ACCOUNT_COUNTS),
            [
                (item.database, item.table, *(getattr(item, name) for name in ACCOUNT_COUNTS))
                for item in accounts
            ],
        ),
        "held": dg.MetadataValue.int(sum(item.rows for item in cut.held)),
        "quarantined": dg.MetadataValue.int(
            cut.quarantined + sum(item.quarantined for item in cut.mirrors)
        ),
        "replays": dg.MetadataValue.int(cut.replays),
        "late": dg.MetadataValue.int(cut.late),
        "watermark_steps_back": dg.MetadataValue.int(cut.steps_back),
        "ddl_without_effect": dg.MetadataValue.text(_counts(cut.ignored)),
        "mirrors": table_of(
            "database string, table string, mode string, changes int, rows int, "
            "held int, quarantined int, caveats string",
            [
                (
                    item.database,
                    item.table,
                    item.mode,
                    item.changes,
                    item.rows,
                    item.held,
                    item.quarantined,
                    ", ".join(item.caveats),
                )
                for item in mirrors
            ],
        ),
    }


def _worth_telling(cut: Cut, limit: int) -> list[MirrorCut]:
    """Return the mirrors of a cut; where they are more than `limit`, those that say something.

    What failed or lacks changes comes first, and then what the cut changed: a mirror that it
    carried is as it was told before.
    """
    if len(cut.mirrors) <= limit:
        return list(cut.mirrors)
    told = [item for item in cut.mirrors if item.incomplete or item.mode != Mode.CARRIED]
    return sorted(told, key=lambda item: not item.incomplete)[:limit]


def left_out_metadata(changed: Sequence[MirrorCut], cut: Cut) -> Metadata:
    """Return tables that changed and are not reported each by itself, in one event's metadata."""
    names = [joined_name(item.database, item.table) for item in changed]
    listed = names[:_NAMES_LISTED]
    return {
        "tables": dg.MetadataValue.int(len(names)),
        "changes": dg.MetadataValue.int(sum(item.changes for item in changed)),
        "rows": dg.MetadataValue.int(sum(item.rows for item in changed)),
        "modes": dg.MetadataValue.text(_counts(Counter(item.mode for item in changed))),
        **tso_metadata("applied_ts", cut.tso),
        "cut": dg.MetadataValue.int(cut.number),
        "names": dg.MetadataValue.text(", ".join(listed)),
        "names_not_listed": dg.MetadataValue.int(len(names) - len(listed)),
    }


_NAMES_LISTED = 1_000


def mirror_metadata(mirror: MirrorCut, cut: Cut, paths: LakePaths, now: datetime) -> Metadata:
    """Return one mirror at a cut."""
    return {
        "database": dg.MetadataValue.text(mirror.database),
        "table": dg.MetadataValue.text(mirror.table),
        "rows": dg.MetadataValue.int(mirror.rows),
        "changes": dg.MetadataValue.int(mirror.changes),
        "mode": dg.MetadataValue.text(mirror.mode),
        **tso_metadata("applied_ts", cut.tso),
        "lag_seconds": dg.MetadataValue.float(lag_seconds(cut.tso, now)),
        "held": dg.MetadataValue.int(mirror.held),
        "quarantined": dg.MetadataValue.int(mirror.quarantined),
        "unknown_deletes": dg.MetadataValue.int(mirror.unknown_deletes),
        "lenient_casts": dg.MetadataValue.int(mirror.casts.total()),
        "caveats": dg.MetadataValue.text(", ".join(mirror.caveats) or "none"),
        "key": dg.MetadataValue.text(", ".join(mirror.table_schema.handle_key) or "none"),
        "cut": dg.MetadataValue.int(cut.number),
        "delta_version": dg.MetadataValue.int(mirror.version),
        "path": dg.MetadataValue.path(str(mirror.path(paths))),
        "dagster/row_count": dg.MetadataValue.int(mirror.rows),
        "dagster/column_schema": dg.MetadataValue.table_schema(mirror_columns(mirror)),
    }


def cut_metadata(cut: Cut) -> Metadata:
    """Return a cut that was published."""
    return {
        "cut": dg.MetadataValue.int(cut.number),
        **tso_metadata("applied_ts", cut.tso),
        "mirrors": dg.MetadataValue.int(len(cut.mirrors)),
        "rows": dg.MetadataValue.int(sum(mirror.rows for mirror in cut.mirrors)),
        "failed": dg.MetadataValue.int(len(cut.failed)),
    }


def history_metadata(mirror: MirrorCut, cut: Cut, paths: LakePaths) -> Metadata:
    """Return the history of one mirror at a cut."""
    versions = mirror.history_rows or 0
    return {
        "database": dg.MetadataValue.text(mirror.database),
        "table": dg.MetadataValue.text(mirror.table),
        "versions": dg.MetadataValue.int(versions),
        "current": dg.MetadataValue.int(mirror.rows),
        "unread": dg.MetadataValue.int(mirror.history_unread or 0),
        **tso_metadata("applied_ts", cut.tso),
        "cut": dg.MetadataValue.int(cut.number),
        "delta_version": dg.MetadataValue.int(mirror.history_version or 0),
        "path": dg.MetadataValue.path(str(mirror.history_path(paths))),
        "dagster/row_count": dg.MetadataValue.int(versions),
    }


def changed_mirrors(applying: Applying) -> list[MirrorCut]:
    """Return the mirrors that an apply changed: none unless it published a cut."""
    if applying.outcome is not Outcome.PUBLISHED or applying.cut is None:
        return []
    return [item for item in applying.cut.mirrors if item.mode != Mode.CARRIED and not item.failed]


def utc_now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


def _counts(counts: Mapping[str, int]) -> str:
    return json.dumps(dict(sorted(counts.items()))) if counts else "none"
