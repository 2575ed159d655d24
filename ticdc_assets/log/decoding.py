"""Decoding: from `raw_messages` to `change_log`, and undecodable records to `quarantine`.

In: landed batches that are not decoded yet. Out: appends to `change_log` (one row per change; DDL,
bootstraps and watermarks are rows too) and `quarantine`, and new totals in `change_groups`. A batch
is decoded from files to files (`change_files`). `change_log` holds images as sent, so decoding
never waits for a schema.

Why running it again is safe: a landed batch becomes one batch of the change log. All batches that
wait are one commit, which names the last of both. The quarantined records and the totals follow,
under the same batch number; `change_groups` is written last. After a killed run, the next run
writes the missing ones (`finish_decoding`). The commit of the change log names the files of
quarantined records, so no record is decoded again: a newer program might read one that the batch
lacks, and it would be in neither table.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import date, datetime
from functools import partial
from itertools import chain
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ticdc_assets.base.names import counted
from ticdc_assets.base.progress import tell
from ticdc_assets.config import Changefeed
from ticdc_assets.delta.appending import BY_LANDING_DAY, append_files
from ticdc_assets.delta.control import commit_metadata, read_rows
from ticdc_assets.delta.files import WrittenFile
from ticdc_assets.delta.lake import Lake
from ticdc_assets.log.ahead import TS_AHEAD, refuse_ahead
from ticdc_assets.log.change_files import (
    CHANGE_LOG_SCHEMA,
    DECODED_SCHEMA,
    RECORD_COLUMNS,
    Coordinates,
    Decode,
    DecodedFiles,
    coordinates_of,
    decode_into_files,
    rows_of,
)
from ticdc_assets.log.change_statistics import add_to_statistics, replace_day
from ticdc_assets.log.damage import require_in_step
from ticdc_assets.log.positions import decoded_position, landed_batch
from ticdc_assets.log.quarantine import append_fault_files
from ticdc_assets.log.seed_decoding import decode_seeds
from ticdc_assets.source.claim_check import ClaimCheckStore, complete_batches
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.wire import WireFormat
from ticdc_assets.wire.batch import decode_pieces


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """The result of one decoding: the newest batch of the change log, and what was appended to it.

    The changes are counted by kind and by landing day, `quarantined` are records.
    """

    batch: int
    batches: int
    changes: dict[str, int]
    quarantined: int
    days: dict[date, int]


def decode_new(lake: Lake) -> Decoding:
    """Decode every landed batch, and every landed seed, that is not in the change log yet."""
    require_in_step(lake.paths)
    changes, days = Counter[str](), Counter[date](finish_decoding(lake))
    landed = landed_batch(lake.paths)
    batch, done = decoded_position(lake.paths)
    quarantined = batches = 0
    for added in decode_seeds(lake):
        changes.update(added.kinds)
        days.update(added.days)
        batch += 1
        batches += 1
    if landed > done:
        tell(f"decoding {counted(landed - done, 'landed batch', 'landed batches')}")
        shift = batch - done
        batch = landed + shift
        files = decode_into_files(
            lake.spark,
            rows_of(lake.paths.raw_messages, RECORD_COLUMNS, batches=(done + 1, landed)),
            record_decoder(lake.changefeed, shift=shift),
            batch=batch,
            into=lake.paths,
        )
        append_changes(lake.paths, files, batch=batch, landed=landed)
        append_fault_files(lake.paths, files.faults, app_id="decode", version=batch)
        added = add_to_statistics(lake, batch, files.totals)
        changes.update(added.kinds)
        days.update(added.days)
        quarantined = files.errors
        batches += landed - done
    return Decoding(
        batch=batch,
        batches=batches,
        changes=dict(changes),
        quarantined=quarantined,
        days=dict(days),
    )


def finish_decoding(lake: Lake) -> Mapping[date, int]:
    """Finish the batches of a run that was killed after the change log's commit.

    Their rows are returned by landing day; none if no batch is unfinished.
    """
    batch, _ = decoded_position(lake.paths)
    if not batch or commit_metadata(lake.paths.change_groups).get("batch", 0) >= batch:
        return {}
    last = commit_metadata(lake.paths.change_log)
    if "redecode" in last:
        replace_day(lake)
        return {}
    # The commit of a seed names none: they were in quarantine before it.
    faults = [WrittenFile(**item) for item in last.get("faults", ())]
    append_fault_files(lake.paths, faults, app_id="decode", version=batch)
    return add_to_statistics(lake, batch).days


def append_changes(paths: LakePaths, found: DecodedFiles, *, batch: int, landed: int) -> None:
    """Append decoded rows to the change log in one commit, which names the files of faults."""
    faults = [asdict(file) for file in found.faults]
    append_files(
        paths.change_log,
        found.changes,
        CHANGE_LOG_SCHEMA,
        app_id="decode",
        version=batch,
        metadata={"batch": batch, "landed": landed, "faults": faults},
        layout=BY_LANDING_DAY,
    )


Clocks: TypeAlias = Mapping[Coordinates, datetime]
"""The moment that a record's timestamps are compared with, by topic, partition and offset."""


def accepted_clocks(paths: LakePaths) -> Clocks:
    """Return the clocks of records that a redrive accepted; needs no Spark.

    Their timestamps were too far ahead when they landed; at the redrive they no longer were.
    """
    clocks: dict[Coordinates, datetime] = {}
    for row in read_rows(paths.quarantine, ds.field("redriven_at").is_valid()):
        if row["reason"] != TS_AHEAD:
            continue
        place = (row["topic"], row["partition"], row["offset"])
        clocks[place] = max(row["redriven_at"], clocks.get(place, row["redriven_at"]))
    return clocks


def record_decoder(
    changefeed: Changefeed,
    batch: int | None = None,
    *,
    shift: int = 0,
    clocks: Clocks | None = None,
    now: datetime | None = None,
) -> Decode:
    """Return the function that turns batches of records into decoded rows.

    Rows that TiCDC put into the storage of large messages are completed from there. Without a
    batch, that of a row is the landed batch of its record plus `shift`. Timestamps are compared
    with `now`, by default the record's landing time, or with the later one that the record has in
    `clocks` (`accepted_clocks`).
    """
    wire_format, compression = WireFormat(changefeed.wire_format), changefeed.compression
    limit = changefeed.max_ahead_seconds
    store = None
    if changefeed.claim_check is not None:
        store = ClaimCheckStore(changefeed.claim_check, wire_format, compression)

    def clocks_of(rows: pa.RecordBatch, landed_at: pa.Array) -> pa.Array:
        moments = landed_at
        if now is not None:
            moments = pa.array([now] * rows.num_rows, landed_at.type)
        if not clocks:
            return moments
        accepted = pa.array([clocks.get(place) for place in coordinates_of(rows)], landed_at.type)
        is_later = pc.fill_null(pc.greater(accepted, moments), False)
        return pc.if_else(is_later, accepted, moments)

    def placed(records: pa.RecordBatch, rows: pa.RecordBatch) -> pa.RecordBatch:
        # All records of a landed batch share one landing time; a redriven record keeps it.
        landed_at = _of_records(records, rows, "landed_at", pa.timestamp("us", tz="UTC"))
        believed = refuse_ahead(
            rows,
            clocks=clocks_of(rows, landed_at),
            timestamps=partial(_of_records, records, rows, "timestamp_ms", pa.int64()),
            limit_seconds=limit,
        )
        return pa.RecordBatch.from_arrays(
            [
                pc.add(_of_records(records, rows, "batch", pa.int64()), shift)
                if batch is None
                else pa.array([batch] * rows.num_rows, pa.int64()),
                landed_at,
                landed_at.cast(pa.date32()),
                *believed.columns,
            ],
            schema=DECODED_SCHEMA,
        )

    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for records in batches:
            rows = decode_pieces(wire_format, records, compression=compression)
            if store is not None:
                rows = chain.from_iterable(map(partial(complete_batches, store=store), rows))
            # `map` keeps no rows: a loop would hold those of two pieces at a time.
            yield from map(partial(placed, records), rows)

    return decode


def _of_records(
    records: pa.RecordBatch, rows: pa.RecordBatch, name: str, kind: pa.DataType
) -> pa.Array:
    """Return for each decoded row the value of column `name` of its record."""
    values = records.column(name).cast(kind)
    if len(values.unique()) <= 1:
        return pa.array([values[0].as_py()] * rows.num_rows, kind)
    by_place = dict(zip(coordinates_of(records), values.to_pylist(), strict=True))
    return pa.array([by_place[place] for place in coordinates_of(rows)], kind)
