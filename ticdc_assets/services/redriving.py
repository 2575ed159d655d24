"""Redriving: decode quarantined records again, after a fix.

In: the open rows of `quarantine` of stage `decode`, and their records in `raw_messages`, or their
rows of exports in `snapshot_rows`. Out: records that can be decoded now become a new batch of the
change log, and their quarantine rows are closed; the others stay. The next apply puts each change
in its place by commit ts. Changes of stage `apply` need no decoding: the caller folds their mirrors
again.

Why running it again is safe: a row whose coordinates the change log has is left out, so a run
killed between the append and the closing of the quarantine rows appends nothing twice.
"""

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import SparkSession

from ticdc_assets.config import Changefeed
from ticdc_assets.engine.control import latest_version, read_table
from ticdc_assets.engine.paths import LakePaths
from ticdc_assets.engine.session import functions
from ticdc_assets.pipeline.change_files import DECODED_SCHEMA, write_frame, write_rows
from ticdc_assets.pipeline.change_statistics import add_to_groups
from ticdc_assets.pipeline.decoding import (
    append_changes,
    decode_new,
    decoded,
    decoded_position,
)
from ticdc_assets.pipeline.quarantine import Closing, close_rows, count_open, read_quarantine
from ticdc_assets.pipeline.seed_decoding import SNAPSHOT_COLUMNS, row_decoder
from ticdc_assets.pipeline.seeds import read_seeds
from ticdc_assets.progress import tell
from ticdc_assets.rows.rows_of_work import frame_of
from ticdc_assets.wire.rows import ERROR, PLACE


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriving:
    """What one re-drive did.

    Attributes:
        records: quarantined records tried again.
        decoded: of these, decoded now.
        still_quarantined: of these, still refused.
        refold: (database, table) with quarantined row changes, to be folded again.
        days: rows appended to the change log, by landing day.
    """

    records: int
    decoded: int
    still_quarantined: int
    refold: frozenset[tuple[str, str]]
    days: dict[date, int]


def redrive(spark: SparkSession, paths: LakePaths, changefeed: Changefeed) -> Redriving:
    """Decode the quarantined records again."""
    # Finishes a batch that a killed run left half done.
    days = decode_new(spark, paths, changefeed).days
    refold = frozenset(
        (row["database"], row["table"])
        for row in read_quarantine(paths, tables=changefeed.tables)
        if row["stage"] == "apply"
    )
    exported = _redrive_exports(spark, paths)
    days = dict(Counter(days) + Counter(exported.days))
    waiting = count_open(paths).decode
    if not waiting or latest_version(paths.raw_messages) is None:
        return Redriving(
            records=waiting + exported.decoded,
            decoded=exported.decoded,
            still_quarantined=waiting,
            refold=refold,
            days=days,
        )
    tell(f"decoding {waiting:,} quarantined records")
    place = ["topic", "partition", "offset"]
    event = [*place, "index"]
    F = functions(spark)
    open_rows = (
        spark.read.format("delta")
        .load(str(paths.quarantine))
        .where("stage = 'decode' and redriven_at is null")
        .select(*place, "index")
        .distinct()
    )
    log = spark.read.format("delta").load(str(paths.change_log))
    raw = spark.read.format("delta").load(str(paths.raw_messages))
    records = raw.join(F.broadcast(open_rows), place, "left_semi")
    batch, landed = decoded_position(paths)
    batch += 1
    # What was too far ahead of the clock then may not be by now.
    rows = decoded(records, changefeed, batch, now=datetime.now(UTC)).cache()
    try:
        good = rows.where(F.col("kind") != "error")
        # Of a record of several rows some may be in the change log already.
        new = good.join(log.select(*event), event, "left_anti")
        if not new.isEmpty():
            found = write_frame(new, batch=batch, log=paths.change_log, quarantine=paths.quarantine)
            append_changes(spark, paths, found, batch=batch, landed=landed, redrive=True)
            added = add_to_groups(spark, paths, batch, found.totals)
            days = dict(Counter(days) + Counter(added.days))
        fixed = good.join(F.broadcast(open_rows), event, "left_semi").select(*event).distinct()
        done = fixed.count()
        if done:
            close_rows(spark, paths, "decode", fixed, Closing.REDRIVE)
    finally:
        rows.unpersist()
    return Redriving(
        records=waiting + exported.decoded,
        decoded=done + exported.decoded,
        still_quarantined=waiting - done,
        refold=refold,
        days=days,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _RedrivenExports:
    decoded: int
    days: dict[date, int]


def _redrive_exports(spark: SparkSession, paths: LakePaths) -> _RedrivenExports:
    """Decode the quarantined rows of exports again; what is a row now becomes a batch."""
    seeds = read_seeds(paths)
    numbers = {(item.seed, *item.name) for item in seeds}
    waiting = [
        row
        for row in read_quarantine(paths)
        if row["stage"] == "decode" and (row["partition"], row["database"], row["table"]) in numbers
    ]
    if not waiting:
        return _RedrivenExports(decoded=0, days={})
    places = {tuple(row[name] for name in PLACE) for row in waiting}
    landed = read_table(
        paths.snapshot_rows,
        ds.field("batch").isin(sorted({row["partition"] for row in waiting}))
        & ds.field("file").isin(sorted({row["topic"] for row in waiting}))
        & ds.field("line").isin(sorted({row["offset"] for row in waiting})),
        columns=list(SNAPSHOT_COLUMNS),
    )
    if landed is None:
        return _RedrivenExports(decoded=0, days={})
    batch, done = decoded_position(paths)
    batch += 1
    decode = row_decoder(seeds, batch)
    rows = pa.Table.from_batches(list(decode(landed.to_batches())), DECODED_SCHEMA)
    wanted = zip(*(rows[name].to_pylist() for name in PLACE), strict=True)
    good = rows.filter(pa.array([place in places for place in wanted], pa.bool_())).filter(
        ds.field("kind") != ERROR
    )
    if not good.num_rows:
        return _RedrivenExports(decoded=0, days={})
    found = write_rows(
        good.to_batches(), batch=batch, log=paths.change_log, quarantine=paths.quarantine
    )
    append_changes(spark, paths, found, batch=batch, landed=done, redrive=True)
    added = add_to_groups(spark, paths, batch, found.totals)
    fixed = good.select(list(PLACE))
    close_rows(spark, paths, "decode", frame_of(spark, fixed), Closing.REDRIVE)
    return _RedrivenExports(decoded=good.num_rows, days=added.days)
