"""Quarantined records: decode them again after a fix (redrive), or give them up.

In: the open rows of `quarantine` of stage `decode`, and their records in `raw_messages`, or their
rows of exports in `snapshot_rows`. Out: records that can be decoded now become a new batch of the
change log, and their quarantine rows are closed; the others stay. The next apply puts each change
in its place by commit ts. Changes of stage `apply` need no decoding: the caller has their mirrors
folded again (`apply_changes`).

A person who gives a record up accepts that what it says is lost. Out: a row of `accepted_gaps`, a
gap of this one offset, and the closed rows of the quarantine. From the next cut on, mirrors that
may lack changes of the record have a caveat, as after any accepted gap. The record does not hold
back retention any more, a redrive leaves it out, and so does a generation that is made again. The
landed bytes stay until retention removes their day.

Why running it again is safe: a row whose coordinates the change log has is left out, so after a run
killed between the append and the closing of the quarantine rows, nothing is appended twice. A gap
is written before the quarantine is closed, and the next run finds it.
"""

from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ticdc_assets.base.errors import NotFoundError
from ticdc_assets.base.names import counted
from ticdc_assets.base.progress import tell
from ticdc_assets.delta.control import read_table
from ticdc_assets.delta.lake import Lake
from ticdc_assets.log.accepted_gaps import UNREADABLE, AcceptedGap, append_accepted, read_accepted
from ticdc_assets.log.change_files import (
    RECORD_COLUMNS,
    Choose,
    decode_into_files,
    rows_of,
)
from ticdc_assets.log.change_statistics import add_to_statistics
from ticdc_assets.log.decoding import append_changes, decode_new, record_decoder
from ticdc_assets.log.positions import decoded_position, read_position
from ticdc_assets.log.quarantine import (
    Closing,
    Place,
    close_rows,
    place_of,
    places_in,
    places_in_log,
    read_quarantine,
)
from ticdc_assets.log.seed_decoding import SNAPSHOT_COLUMNS, row_decoder
from ticdc_assets.log.seeds import read_seeds
from ticdc_assets.rows.rows_of_work import Rows
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.wire.rows import ERROR, WATERMARK


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriving:
    """The result of one redrive.

    Attributes:
        records: quarantined records that were tried again.
        decoded: of these, decoded now.
        still_quarantined: of these, still refused.
        refold: (database, table) with quarantined row changes, by their names when these were
            refused; an apply with `refold_quarantined` folds their mirrors again.
        days: rows appended to the change log, by landing day.
    """

    records: int
    decoded: int
    still_quarantined: int
    refold: frozenset[tuple[str, str]]
    days: dict[date, int]


def redrive(lake: Lake) -> Redriving:
    """Decode the quarantined records again."""
    # This finishes a batch that a killed run left incomplete.
    days = Counter(decode_new(lake).days)
    refold = frozenset(
        (row["database"], row["table"])
        for row in read_quarantine(lake.paths, tables=lake.changefeed.tables)
        if row["stage"] == "apply"
    )
    seeds = read_seeds(lake.paths)
    numbers = {(item.seed, *item.name) for item in seeds}
    exported: set[Place] = set()
    sent: set[Place] = set()
    for row in read_quarantine(lake.paths):
        if row["stage"] == "decode":
            is_exported = (row["partition"], row["database"], row["table"]) in numbers
            (exported if is_exported else sent).add(place_of(row))
    decoded = 0
    for places, is_exported in ((exported, True), (sent, False)):
        if not places:
            continue
        records = frozenset(place[:-1] for place in places)
        # The change log may already have some rows of a record.
        there = places_in_log(lake.paths, places)
        batch, landed = decoded_position(lake.paths)
        batch += 1
        if is_exported:
            rows, decode = _exported_rows(lake.paths, records), row_decoder(seeds, batch)
        else:
            tell(f"decoding {counted(len(records), 'quarantined record')}")
            rows = rows_of(lake.paths.raw_messages, RECORD_COLUMNS, records=records)
            # Events that were too far ahead of the clock then may not be now.
            decode = record_decoder(lake.changefeed, batch, now=datetime.now(UTC))
        choose = _missing(records, there)
        files = decode_into_files(
            lake.spark, rows, decode, batch=batch, into=lake.paths, choose=choose
        )
        if files.changes:
            append_changes(lake.paths, files, batch=batch, landed=landed)
            days.update(add_to_statistics(lake, batch, files.totals).days)
            there |= places_in_log(lake.paths, places, ds.field("batch") >= batch)
        fixed = places & there
        close_rows(lake.paths, "decode", fixed, Closing.REDRIVE)
        decoded += len(fixed)
    tried = len(exported) + len(sent)
    return Redriving(
        records=tried,
        decoded=decoded,
        still_quarantined=tried - decoded,
        refold=refold,
        days=dict(days),
    )


def _missing(records: frozenset[Place], places: frozenset[Place]) -> Choose:
    """Choose the decoded rows of records that are not errors and are at none of the places."""

    def choose(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        kinds = rows.column("kind").to_pylist()
        is_missing = [
            kind != ERROR and place[:-1] in records and place not in places
            for kind, place in zip(kinds, places_in(rows), strict=True)
        ]
        return rows.filter(pa.array(is_missing, pa.bool_())), 0

    return choose


def _exported_rows(paths: LakePaths, records: frozenset[Place]) -> Rows:
    """Return the landed rows of exports at some coordinates, without their indexes."""
    files, numbers, lines = (sorted(set(items)) for items in zip(*records, strict=True))
    is_near = ds.field("batch").isin(numbers) & ds.field("file").isin(files)
    rows = rows_of(paths.snapshot_rows, SNAPSHOT_COLUMNS, batches=(numbers[0], numbers[-1]))
    return replace(rows, condition=is_near & ds.field("line").isin(lines), count=len(lines))


# Giving up --------------------------------------------------------------------------------------


def give_up(lake: Lake, topic: str, partition: int, offset: int, *, by: str) -> AcceptedGap:
    """Accept the loss of a record. The caller holds the writer lock.

    Returns:
        The gap that was recorded.

    Raises:
        NotFoundError: no record that cannot be decoded is in quarantine there.
    """
    record = (topic, partition, offset)
    rows = [
        row
        for row in read_quarantine(lake.paths)
        if row["stage"] == "decode" and row["database"] is None and place_of(row)[:-1] == record
    ]
    if not rows:
        raise NotFoundError(
            f"changefeed {lake.changefeed.name!r} has no undecodable record in quarantine at topic "
            f"{topic!r} partition {partition} offset {offset}; "
            f"`ticdc-assets quarantine {lake.changefeed.name}` lists what is there"
        )
    gap = next(
        (
            item
            for item in read_accepted(lake.paths)
            if item.cause.startswith(UNREADABLE)
            and (item.topic, item.partition, item.from_offset) == record
        ),
        None,
    )
    if gap is None:
        position = read_position(lake.paths)
        gap = append_accepted(
            lake.paths,
            AcceptedGap(
                number=0,
                accepted_at=datetime.now(UTC),
                accepted_by=by,
                topic=topic,
                partition=partition,
                # The source stays as it is known: nothing of it is skipped.
                topic_id=position.accepted_ids.get((topic, partition)),
                from_offset=offset,
                to_offset=offset + 1,
                offset_base=position.bases.get((topic, partition), 0),
                cause=f"{UNREADABLE}: {rows[0]['reason']}",
                after_ts=_watermark_before(lake.paths, topic, partition, offset),
            ),
        )
    close_rows(lake.paths, "decode", map(place_of, rows), Closing.GIVEN_UP)
    return gap


def _watermark_before(paths: LakePaths, topic: str, partition: int, offset: int) -> int:
    """Return the highest watermark of a partition before a record, 0 if none is kept."""
    watermarks = read_table(
        paths.change_log,
        (ds.field("kind") == WATERMARK)
        & (ds.field("topic") == topic)
        & (ds.field("partition") == partition)
        & (ds.field("offset") < offset),
        columns=["commit_ts"],
    )
    return 0 if watermarks is None else pc.max(watermarks["commit_ts"]).as_py() or 0
