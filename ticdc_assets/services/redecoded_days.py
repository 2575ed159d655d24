"""Decode one landing day again, compare it with the change log, and correct differences.

In: all or some records of a day in `raw_messages`, and their rows in `change_log` and `quarantine`.
Out: a `RedecodedDay`. If rows differ (`day_comparing`), the day is written anew, with other rows at
their places, in one commit; the quarantine of the records is updated, and the totals are computed
again. Nothing is written if all rows are equal.

A replaced or restored row belongs to the batch in which its record was first decoded, as if it had
been correct from the start. A row whose record was in quarantine is new, and belongs to the
commit's batch, like a redriven row. The commit always has a new number, by which the next sync sees
it.

A record that was decoded before and is refused now keeps its rows and is counted by reason, because
its claim-check file may be gone, and the rows could not be restored. But an event whose timestamp
is too far ahead (`ahead`) is moved from the change log to quarantine: only the limit refuses it, so
a redrive can bring it back.

Why running it again is safe: a corrected day is equal, so it is not changed. Refused events are in
quarantine before their rows are removed; accepted ones are closed there last, if necessary by the
next decoding of the day. The commit names all its changes, so after a killed run the next decoding
finishes them.
"""

# pyarrow has no type information, so what comes from it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportAttributeAccessIssue=false

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import date
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_assets.config import Changefeed
from ticdc_assets.engine.appending import BY_LANDING_DAY, append_files
from ticdc_assets.engine.control import latest_version
from ticdc_assets.engine.paths import LakePaths
from ticdc_assets.engine.scratch import WRITING, Scratch
from ticdc_assets.engine.session import Session
from ticdc_assets.errors import NotFoundError
from ticdc_assets.pipeline.change_files import (
    CHANGE_LOG_SCHEMA,
    RECORD_COLUMNS,
    Coordinates,
    Decode,
    DecodedFiles,
    Records,
    changes_in,
    coordinates_of,
    joined_files,
    rows_in,
    write_rows,
)
from ticdc_assets.pipeline.decoding import accepted_clocks, record_decoder
from ticdc_assets.pipeline.positions import decoded_position
from ticdc_assets.pipeline.quarantine import (
    Closing,
    append_fault_files,
    close_rows,
    read_quarantine,
)
from ticdc_assets.pipeline.regrouping import Correction, regroup
from ticdc_assets.pipeline.truncation_points import TruncationPoint
from ticdc_assets.progress import tell
from ticdc_assets.rows.rows_of_work import Rows
from ticdc_assets.services.day_comparing import (
    Comparing,
    Day,
    OpenFaults,
    Piece,
    Side,
    compare,
    day_of,
)
from ticdc_assets.services.making import RefusedRecords
from ticdc_assets.wire.rows import COORDINATES, ERROR, PLACE


@dataclass(frozen=True, slots=True, kw_only=True)
class RedecodedDay:
    """What decoding one landing day again did.

    Attributes:
        day: the day (UTC).
        records: landed records of it.
        replaced: rows of the change log that differed.
        restored: rows that the change log lacked.
        removed: rows that the change log had too many.
        refused: records that keep their rows although they are refused now.
        quarantined: faults that came into quarantine.
        released: faults in quarantine that are none any more.
        tables: (database, table) that the next apply folds again.
        schemas: whether DDL or bootstraps differed.
        batch: batch of the change log that says so; None if nothing was written there.
    """

    day: date
    records: int
    replaced: int = 0
    restored: int = 0
    removed: int = 0
    refused: tuple[RefusedRecords, ...] = ()
    quarantined: int = 0
    released: int = 0
    tables: tuple[tuple[str, str], ...] = ()
    schemas: bool = False
    batch: int | None = None

    @property
    def equal(self) -> bool:
        """Whether nothing was changed."""
        return self.batch is None and not self.quarantined and not self.released

    def sentence(self) -> str:
        """Return what was done, for people."""
        if self.equal:
            said = f"{self.day}: {self.records} records decoded again, nothing differs"
        else:
            said = (
                f"{self.day}: {self.records} records decoded again: {self.replaced} rows replaced, "
                f"{self.restored} restored, {self.removed} removed; {self.quarantined} faults came "
                f"into quarantine, {self.released} left it"
            )
        if self.tables:
            said += f"; {len(self.tables)} tables are folded again by the next sync"
        if self.schemas:
            said += "; it makes the schema registry again"
        kept = sum(item.records for item in self.refused)
        if kept:
            reasons = ", ".join(sorted({item.reason for item in self.refused}))
            said += f"; {kept} records are refused now ({reasons}) and keep their rows"
        return said


class LandingDay:
    """One landing day, to be decoded again.

    Args:
        spark: the session.
        paths: tables of the changefeed.
        changefeed: its configuration.
        day: the day (UTC).
        truncation_point: up to where the change log was truncated.
        only: the records that count; all of the day if None.
    """

    def __init__(
        self,
        spark: Session,
        paths: LakePaths,
        changefeed: Changefeed,
        day: date,
        truncation_point: TruncationPoint,
        *,
        only: Records | None = None,
    ) -> None:
        self._spark = spark
        self._only = only
        self._paths = paths
        self._changefeed = changefeed
        self._day = day
        self._truncation_point = truncation_point

    def redecode(self) -> RedecodedDay:
        """Compare and correct the day."""
        tell(f"decoding the records landed on {self._day} again")
        if latest_version(self._paths.raw_messages) is None:
            return RedecodedDay(day=self._day, records=0)
        known = OpenFaults.of(read_quarantine(self._paths))
        clocks = accepted_clocks(self._paths)
        decode = record_decoder(self._changefeed, None, clocks=clocks)
        with closing(Scratch(self._paths, WRITING)) as scratch:
            day = day_of(self._paths, self._day, self._only)
            found = compare(
                self._spark,
                self._paths,
                day,
                decode,
                known=known,
                batch=decoded_position(self._paths)[0],
                folder=scratch.folder,
            )
            if not found.records:
                if self._only is None and found.changes:
                    raise NotFoundError(
                        f"change_log of changefeed {self._paths.changefeed!r} has rows that landed "
                        f"on {self._day}, but raw_messages has no record of that day: nothing was "
                        "changed"
                    )
                return RedecodedDay(day=self._day, records=0)
            if found.faults:
                # First: what a killed run took out of the change log would be nowhere.
                append_fault_files(self._paths, found.faults, app_id="redecode")
            batch = None
            if found.counts:
                close_rows(self._paths, "apply", found.removed_faults, Closing.REMOVED)
                batch = self._correct(day, found, decode, known)
            close_rows(self._paths, "decode", found.released, Closing.REDRIVE)
        return RedecodedDay(
            day=self._day,
            records=found.records,
            replaced=found.counts["replaced"],
            restored=found.counts["restored"],
            removed=found.counts["removed"],
            tables=tuple(
                (database, table)
                for database, table in _in_order(found.tables)
                if database is not None and table is not None
            ),
            schemas=found.schemas,
            batch=batch,
            refused=tuple(
                RefusedRecords(database=database, table=table, reason=reason, records=count)
                for (database, table, reason), count in sorted(
                    found.refused.items(), key=lambda item: [part or "" for part in item[0]]
                )
            ),
            quarantined=found.quarantined,
            released=len(found.released),
        )

    # Correcting -------------------------------------------------------------------------------

    def _correct(self, day: Day, found: Comparing, decode: Decode, known: OpenFaults) -> int:
        """Write the day anew, in one commit; return the commit's batch."""
        version = latest_version(self._paths.change_log)
        assert version is not None
        batch, landed = decoded_position(self._paths)
        batch += 1
        batches = _batches(found)
        touched = [*found.batches, *(batches[number] for number in found.landed_batches)]
        correction = Correction(
            tables=tuple((*table, found.tables[table]) for table in _in_order(found.tables)),
            batches=(min(touched), max(touched)) if touched else None,
            schemas=found.schemas,
            truncated_ts=self._truncation_point.tso,
            before=version,
        )
        files = self._written(
            day,
            decode,
            found.places.rows(),
            _Numbering(batches=batches, waiting=frozenset(known.decode), batch=batch),
        )
        append_files(
            self._paths.change_log,
            files.changes,
            CHANGE_LOG_SCHEMA,
            app_id="decode",
            version=batch,
            metadata={"batch": batch, "landed": landed, "redecode": asdict(correction)},
            layout=BY_LANDING_DAY,
            replaces={"landed_day": self._day.isoformat()},
        )
        regroup(self._spark, self._paths)
        return batch

    def _written(
        self, day: Day, decode: Decode, differing: Rows, numbering: "_Numbering"
    ) -> DecodedFiles:
        """Write the rows of the day: those that stay, and others at places that differ."""
        chosen, own_day, into = day.chosen, self._day, self._paths

        def rows(some: Iterable[Piece]) -> Iterator[pa.RecordBatch]:
            places = _Places(differing.table_here())
            for side, piece in some:
                if side is Side.CHANGE_LOG:
                    for batch in changes_in(piece):
                        yield batch.filter(pc.invert(places.has(batch)))
                    continue
                records = rows_in(piece, chosen, RECORD_COLUMNS)
                for batch in decode(item.filter(places.has_record(item)) for item in records):
                    good = pc.and_(places.has(batch), pc.not_equal(batch.column("kind"), ERROR))
                    yield numbering.numbered(batch.filter(good))

        def written(some: Iterable[Piece]) -> Iterator[DecodedFiles]:
            found = (_of_day(batch, own_day) for batch in rows(some) if batch.num_rows)
            yield write_rows(found, batch=numbering.batch, into=into)

        runs_on = day.executor(self._spark, self._paths)
        tasks = day.tasks(runs_on.workers)
        return joined_files(runs_on.run(written, day.pieces, tasks=tasks))


def _in_order(
    tables: Iterable[tuple[str | None, str | None]],
) -> list[tuple[str | None, str | None]]:
    return sorted(tables, key=lambda table: (table[0] is None, *(name or "" for name in table)))


def _batches(found: Comparing) -> dict[int, int]:
    """Return the batch of the change log that each landed batch of the day was decoded in.

    Re-driven rows are of a later one, so the lowest one that rows of it are of is it. Of one that
    has no rows, the distance to the landed batch is that of the next one below.
    """
    distance = 0
    batches: dict[int, int] = {}
    for landed, moment in sorted(found.landings):
        known = found.first_batches.get(moment)
        if known is not None and known >= landed:
            distance = known - landed
        batches[landed] = landed + distance
    return batches


@dataclass(frozen=True, kw_only=True)
class _Numbering:
    """The batches of rows that take a place in the change log.

    Attributes:
        batches: batch of the change log by landed batch.
        waiting: records that had a fault in quarantine.
        batch: the batch of their rows.
    """

    batches: Mapping[int, int]
    waiting: frozenset[Coordinates]
    batch: int

    def numbered(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return decoded rows with their batch in place of the landed one."""
        landed = rows.column("batch").to_pylist()
        if self.waiting:
            numbers = [
                self.batch if record in self.waiting else self.batches[batch]
                for record, batch in zip(coordinates_of(rows), landed, strict=True)
            ]
        else:
            numbers = [self.batches[batch] for batch in landed]
        place = rows.schema.get_field_index("batch")
        return rows.set_column(place, "batch", pa.array(numbers, pa.int64()))


def _of_day(rows: pa.RecordBatch, day: date) -> pa.RecordBatch:
    """Return rows with the columns of the change log, on a landing day."""
    days = pa.array([day] * rows.num_rows, pa.date32())
    columns = [
        days if name == "landed_day" else rows.column(name) for name in CHANGE_LOG_SCHEMA.names
    ]
    return pa.RecordBatch.from_arrays(columns, schema=CHANGE_LOG_SCHEMA)


_Keys: TypeAlias = npt.NDArray[np.bytes_]


class _Places:
    """Places of events, to be looked up for many rows at a time.

    Args:
        rows: the places, with the columns `PLACE`.
    """

    def __init__(self, rows: pa.Table) -> None:
        columns = [column.combine_chunks() for column in rows.columns]
        whole = pa.RecordBatch.from_arrays(columns, schema=rows.schema)
        topics = whole.column("topic").unique().to_pylist()
        self._topics = {topic: number for number, topic in enumerate(topics)}
        self._places = np.sort(self._keys(whole, PLACE))
        self._records = np.unique(self._keys(whole, COORDINATES))

    def has(self, rows: pa.RecordBatch) -> "pa.Array[bool]":
        """Return of each row whether it is at one of the places."""
        return _among(self._keys(rows, PLACE), self._places)

    def has_record(self, rows: pa.RecordBatch) -> "pa.Array[bool]":
        """Return of each record whether it has one of the places."""
        return _among(self._keys(rows, COORDINATES), self._records)

    def _keys(self, rows: pa.RecordBatch, names: Sequence[str]) -> _Keys:
        """Return where rows are, each as bytes of one length."""
        topics = rows.column("topic").dictionary_encode()
        numbers = [self._topics.get(topic, -1) for topic in topics.dictionary.to_pylist()]
        found = np.empty(rows.num_rows, [(name, ">i8") for name in names])
        found["topic"] = np.array(numbers, np.int64)[topics.indices.to_numpy()]
        for name in names[1:]:
            found[name] = rows.column(name).to_numpy()
        return found.view(f"S{found.itemsize}")


def _among(keys: _Keys, ordered: _Keys) -> "pa.Array[bool]":
    """Return of each key whether it is one of some others, which are in order."""
    if not len(ordered):
        return pa.array(np.zeros(len(keys), np.bool_))
    near = np.minimum(np.searchsorted(ordered, keys), len(ordered) - 1)
    return pa.array(ordered[near] == keys)
