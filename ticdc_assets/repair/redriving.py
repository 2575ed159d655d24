"""Redriving: decode quarantined records again, after a fix.

In: the open rows of `quarantine` of stage `decode`, and their records in `raw_messages`, or their
rows of exports in `snapshot_rows`. Out: records that can be decoded now become a new batch of the
change log, and their quarantine rows are closed; the others stay. The next apply puts each change
in its place by commit ts. Changes of stage `apply` need no decoding: the caller has their mirrors
folded again (`apply_changes`).

Why running it again is safe: a row whose coordinates the change log has is left out, so after a run
killed between the append and the closing of the quarantine rows, nothing is appended twice.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.dataset as ds

from ticdc_assets.base.progress import tell
from ticdc_assets.delta.control import latest_version, read_table
from ticdc_assets.delta.lake import Lake
from ticdc_assets.log.change_files import (
    DECODED_SCHEMA,
    Landed,
    Records,
    decode_into_files,
    write_rows,
)
from ticdc_assets.log.change_statistics import add_to_statistics
from ticdc_assets.log.decoding import append_changes, decode_new, record_decoder
from ticdc_assets.log.positions import decoded_position
from ticdc_assets.log.quarantine import (
    Closing,
    Place,
    close_rows,
    count_open,
    place_of,
    places_in,
    read_quarantine,
)
from ticdc_assets.log.seed_decoding import SNAPSHOT_COLUMNS, row_decoder
from ticdc_assets.log.seeds import read_seeds
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.wire.rows import ERROR, PLACE


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
    days = decode_new(lake).days
    refold = frozenset(
        (row["database"], row["table"])
        for row in read_quarantine(lake.paths, tables=lake.changefeed.tables)
        if row["stage"] == "apply"
    )
    exported = _redrive_exports(lake)
    days = dict(Counter(days) + Counter(exported.days))
    waiting = count_open(lake.paths).decode
    if not waiting or latest_version(lake.paths.raw_messages) is None:
        return Redriving(
            records=waiting + exported.decoded,
            decoded=exported.decoded,
            still_quarantined=waiting,
            refold=refold,
            days=days,
        )
    tell(f"decoding {waiting:,} quarantined records")
    places = frozenset(
        place_of(row) for row in read_quarantine(lake.paths) if row["stage"] == "decode"
    )
    # The change log may already have some rows of a record.
    known = _in_log(lake.paths, places)
    batch, landed = decoded_position(lake.paths)
    batch += 1
    found = decode_into_files(
        lake.spark,
        Landed(
            table=lake.paths.raw_messages, chosen=Records(frozenset(place[:-1] for place in places))
        ),
        # Events that were too far ahead of the clock then may not be now.
        record_decoder(lake.changefeed, batch, now=datetime.now(UTC)),
        batch=batch,
        into=lake.paths,
        choose=_Missing(known),
    )
    if found.changes:
        append_changes(lake.paths, found, batch=batch, landed=landed)
        added = add_to_statistics(lake, batch, found.totals)
        days = dict(Counter(days) + Counter(added.days))
        known |= _in_log(lake.paths, places, since=batch)
    fixed = places & known
    close_rows(lake.paths, "decode", fixed, Closing.REDRIVE)
    done = len(fixed)
    return Redriving(
        records=waiting + exported.decoded,
        decoded=done + exported.decoded,
        still_quarantined=waiting - done,
        refold=refold,
        days=days,
    )


@dataclass(frozen=True, slots=True)
class _Missing:
    """Chooses the decoded rows that are not errors and that the change log lacks.

    Attributes:
        known: places of rows that it has.
    """

    known: frozenset[Place]

    def __call__(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        """Return these rows, and 0: none of the others count."""
        kinds = rows.column("kind").to_pylist()
        is_missing = [
            kind != ERROR and place not in self.known
            for kind, place in zip(kinds, places_in(rows), strict=True)
        ]
        return rows.filter(pa.array(is_missing, pa.bool_())), 0


def _in_log(paths: LakePaths, places: Collection[Place], *, since: int = 0) -> frozenset[Place]:
    """Return the records' places at which the change log has rows of batch `since` or later."""
    offsets = sorted({place[2] for place in places})
    rows = read_table(
        paths.change_log,
        ds.field("offset").isin(offsets) & (ds.field("batch") >= since),
        columns=list(PLACE),
    )
    if rows is None:
        return frozenset()
    records = {place[:-1] for place in places}
    return frozenset(place for place in places_in(rows) if place[:-1] in records)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RedrivenExports:
    decoded: int
    days: dict[date, int]


def _redrive_exports(lake: Lake) -> _RedrivenExports:
    """Decode the quarantined rows of exports again; those that succeed become a batch."""
    seeds = read_seeds(lake.paths)
    numbers = {(item.seed, *item.name) for item in seeds}
    waiting = [
        row
        for row in read_quarantine(lake.paths)
        if row["stage"] == "decode" and (row["partition"], row["database"], row["table"]) in numbers
    ]
    if not waiting:
        return _RedrivenExports(decoded=0, days={})
    places = set(map(place_of, waiting))
    landed = read_table(
        lake.paths.snapshot_rows,
        ds.field("batch").isin(sorted({row["partition"] for row in waiting}))
        & ds.field("file").isin(sorted({row["topic"] for row in waiting}))
        & ds.field("line").isin(sorted({row["offset"] for row in waiting})),
        columns=list(SNAPSHOT_COLUMNS),
    )
    if landed is None:
        return _RedrivenExports(decoded=0, days={})
    # A killed run may have appended some without closing them.
    fixed = places & _in_log(lake.paths, places)
    places -= fixed
    batch, done = decoded_position(lake.paths)
    batch += 1
    decode = row_decoder(seeds, batch)
    rows = pa.Table.from_batches(list(decode(landed.to_batches())), DECODED_SCHEMA)
    is_wanted = pa.array([place in places for place in places_in(rows)], pa.bool_())
    good = rows.filter(is_wanted).filter(ds.field("kind") != ERROR)
    days: dict[date, int] = {}
    if good.num_rows:
        found = write_rows(good.to_batches(), batch=batch, into=lake.paths)
        append_changes(lake.paths, found, batch=batch, landed=done)
        days = add_to_statistics(lake, batch, found.totals).days
    fixed = fixed.union(places_in(good))
    close_rows(lake.paths, "decode", fixed, Closing.REDRIVE)
    return _RedrivenExports(decoded=len(fixed), days=days)
