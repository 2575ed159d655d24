"""The stand-in for TiCDC: what an upstream committed, as Kafka records.

In: an `Upstream`, whose history may go on growing. Out: `CaptureRecord` values with their
coordinates, in an order in which a broker could have them. It keeps to what TiCDC does, and
leaves out none of what makes it hard to read:

    - Rows go to the partition of their key's hash (index-value dispatcher) or of their table.
    - Between two watermarks the rows of a partition are grouped by that hash (or table), groups in
      any order: rows of one key are in commit order, rows of different keys are not.
    - A DDL goes to all partitions, after all rows at or below its commit ts.
    - A BOOTSTRAP goes to all partitions before the first row of a table id and again every so many
      rows; after a restart all of them come again.
    - A watermark goes to all partitions, when everything at or below it was sent; with
      `ddl_watermarks` one equal to a DDL's commit ts may come before that DDL and again after it.
    - Tables without a key are left out, rows and DDL, unless `force_replicate`.
    - Formats differ in what they send at all (`dialects`): Canal-JSON's DDL goes to the first
      partition only, formats besides Simple have no bootstraps, and Canal-JSON without the TiDB
      extension has no watermarks.
    - A row whose message would be too large is cut to its handle key (`large_messages`).

Nothing is lost by not reading on: records wait in the stand-in until they are asked for. The same
upstream, options and seed give the same records, except build times where the upstream's clock is
the wall clock. `restart` sends again from an older checkpoint, as TiCDC does after a crash.

Not handled: several topics, bootstraps by time instead of rows.
"""

import json
import random
import zlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial

from ticdc_assets import tso, wire
from ticdc_assets.capture import CaptureRecord
from ticdc_assets.events import (
    Bootstrap,
    DdlEvent,
    Event,
    Image,
    PhysicalValue,
    RowChange,
    Watermark,
)
from ticdc_assets.schemas import TableSchema
from ticdc_assets.simulator.dialects import Dialect, DialectOptions
from ticdc_assets.simulator.large_messages import LargeMessages, LargeMessageWriter
from ticdc_assets.simulator.stored_table import Row, TableName
from ticdc_assets.simulator.transaction import CommittedRow
from ticdc_assets.simulator.upstream import (
    Commit,
    CommittedDdl,
    CommittedTransaction,
    Truth,
    Upstream,
    is_in_cut,
)
from ticdc_assets.values import physical_of
from ticdc_assets.wire import WireFormat
from ticdc_assets.wire.compression import Compression, compressed, supports
from ticdc_assets.wire.record import Record


class Dispatcher(StrEnum):
    """How rows are spread over partitions."""

    INDEX_VALUE = "index-value"
    TABLE = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedOptions:
    """How a stand-in changefeed sends.

    Attributes:
        dispatcher: how rows are spread over partitions.
        rows_per_flush: at most about this many rows between two watermarks.
        bootstrap_every_rows: repeat a table's BOOTSTRAP after this many of its rows; 0 for never.
        bootstraps: False to send none at all.
        bootstrap_delay_rows: send a table's first BOOTSTRAP only after this many of its rows.
        ddl_watermarks: allow watermarks equal to a DDL's commit ts before and after it.
        force_replicate: send tables without a key too.
        unwritten_partitions: partitions that get nothing at all; no row is sent to them.
        silent_partitions: partitions that get rows, DDL and bootstraps and never a watermark.
        first_ts: send nothing at or below this TSO: the changefeed was created later.
        dialect: options that change what a message holds.
        compression: how values are compressed.
        large_messages: what becomes of messages that are too large; None if none is.
    """

    dispatcher: Dispatcher = Dispatcher.INDEX_VALUE
    rows_per_flush: int = 40
    bootstrap_every_rows: int = 10_000
    bootstraps: bool = True
    bootstrap_delay_rows: int = 0
    ddl_watermarks: bool = False
    force_replicate: bool = False
    unwritten_partitions: frozenset[int] = field(default_factory=frozenset[int])
    silent_partitions: frozenset[int] = field(default_factory=frozenset[int])
    first_ts: int = 0
    dialect: DialectOptions = field(default_factory=DialectOptions)
    compression: Compression = Compression.NONE
    large_messages: LargeMessages | None = None


@dataclass(slots=True)
class _TableProgress:
    rows: int = 0
    is_bootstrapped: bool = False


class StandInChangefeed:
    """Turns what an upstream commits into Kafka records.

    Args:
        upstream: whose history is sent.
        topic: the topic of all records.
        partitions: number of partitions.
        wire_format: format of the messages.
        options: how it sends.
        seed: of everything that is random in the order and the watermarks.

    Attributes:
        topic: the topic of all records.
        watermark_ts: highest watermark so far that was given out with everything at or below it,
            in all partitions; 0 before the first.
        steps_back: restarts so far.

    Raises:
        ValueError: the format does not have what the options ask for.
    """

    def __init__(
        self,
        upstream: Upstream,
        topic: str,
        *,
        partitions: int = 4,
        wire_format: WireFormat = WireFormat.SIMPLE_JSON,
        options: FeedOptions | None = None,
        seed: int = 0,
    ) -> None:
        self.topic = topic
        self.watermark_ts = 0
        self.steps_back = 0
        self._upstream = upstream
        self._partitions = partitions
        self._wire_format = wire_format
        self._options = options or FeedOptions()
        self._dialect = Dialect(wire_format, self._options.dialect, timezone=upstream.timezone)
        self._rng = random.Random(seed)
        compression, large = self._options.compression, self._options.large_messages
        if not supports(wire_format, compression):
            raise ValueError(f"{wire_format} has no compression")
        if large is not None and not self._dialect.has_commit_ts:
            raise ValueError(f"{wire_format} has no large messages without the TiDB extension")
        self._large = large and LargeMessageWriter(wire_format, compression, large, seed=seed)
        self._encode = self._large.encode if self._large else partial(wire.encode, wire_format)
        # Records in line, and after each batch of them the watermark that is then reached.
        self._waiting: deque[tuple[int, int, Record] | int] = deque()
        self._offsets: dict[int, int] = defaultdict(int)
        self._tables: dict[int, _TableProgress] = defaultdict(_TableProgress)
        self._converters: dict[
            tuple[int, int], Mapping[str, Callable[[str | None], PhysicalValue]]
        ] = {}
        self._build_ms = 0
        self._position = 0

    @property
    def partitions(self) -> int:
        """Number of partitions now."""
        return self._partitions

    @property
    def next_offsets(self) -> Mapping[int, int]:
        """The offset that the next record of each partition gets."""
        return {partition: self._offsets[partition] for partition in range(self._partitions)}

    def truth(self, at: int | None = None) -> Truth:
        """Return the rows upstream of the tables that this changefeed sends."""
        truth = self._upstream.truth(at)
        if self._options.force_replicate:
            return truth
        keyed = {name for name in truth if self._has_key_at(name, at)}
        return {name: rows for name, rows in truth.items() if name in keyed}

    def records(self) -> Iterator[CaptureRecord]:
        """Yield records until everything committed so far is sent, with a watermark behind it."""
        while True:
            while self._waiting:
                waiting = self._waiting.popleft()
                if isinstance(waiting, int):
                    self.watermark_ts = max(self.watermark_ts, waiting)
                else:
                    yield self._at_offset(*waiting)
            if self._position == len(self._upstream.history):
                return
            self._send_next()

    def tick(self) -> Iterator[CaptureRecord]:
        """Yield all records, and a watermark of this moment above everything committed."""
        yield from self.records()
        batch = _Batch(self._partitions)
        self._add_watermark(batch, self._upstream.clock.next())
        self._line_up(batch)
        yield from self.records()

    def restart(self, checkpoint_ts: int) -> None:
        """Begin again at an older checkpoint: rows, DDL and bootstraps above it are sent again.

        What waited to be sent is forgotten, as in a crash. Watermarks step back to the checkpoint.

        Args:
            checkpoint_ts: a TSO at or below `watermark_ts`.

        Raises:
            ValueError: the checkpoint is above it, so something would never be sent.
        """
        if checkpoint_ts > self.watermark_ts:
            raise ValueError(f"checkpoint {checkpoint_ts} is above {self.watermark_ts}")
        self._waiting.clear()
        self._tables.clear()
        self._step_back_to(checkpoint_ts)
        self.steps_back += 1
        if checkpoint_ts > 0:
            batch = _Batch(self._partitions)
            self._add_watermark(batch, checkpoint_ts)
            self._line_up(batch)

    def set_partitions(self, partitions: int) -> None:
        """Go on with more partitions; rows are spread anew over all of them.

        Raises:
            ValueError: there would be fewer than before.
        """
        if partitions < self._partitions:
            raise ValueError("a topic cannot lose partitions")
        self._partitions = partitions

    def inject(self, partition: int, *, key: bytes | None, value: bytes | None) -> CaptureRecord:
        """Return a record TiCDC did not send (a tombstone, damage) at the next offset."""
        return self._at_offset(partition, self._now_ms(), Record(key=key, value=value))

    # Sending

    def _at_offset(self, partition: int, timestamp_ms: int, record: Record) -> CaptureRecord:
        offset = self._offsets[partition]
        self._offsets[partition] = offset + 1
        return CaptureRecord(
            topic=self.topic,
            partition=partition,
            offset=offset,
            timestamp_ms=timestamp_ms,
            key=record.key,
            value=record.value,
        )

    def _step_back_to(self, checkpoint_ts: int) -> None:
        """Stand before the first commit that is not in the cut at `checkpoint_ts`."""
        history = self._upstream.history
        while self._position > 0 and not is_in_cut(history[self._position - 1], checkpoint_ts):
            self._position -= 1

    def _send_next(self) -> None:
        commit = self._upstream.history[self._position]
        if is_in_cut(commit, self._options.first_ts):
            self._position += 1
            return
        batch = _Batch(self._partitions)
        if isinstance(commit, CommittedDdl):
            self._position += 1
            self._add_ddl(batch, commit)
        else:
            last_ts = self._add_rows(batch, self._next_transactions())
            upcoming = self._upcoming()
            # Until the next commit anything is true; a DDL's own commit ts only by option.
            highest = last_ts if upcoming is None else upcoming.commit_ts - 1
            if last_ts <= highest:
                step = self._rng.choice((0, 0, 1, (highest - last_ts) // 2))
                self._add_watermark(batch, min(last_ts + step, highest))
        self._line_up(batch)

    def _upcoming(self) -> Commit | None:
        history = self._upstream.history
        return history[self._position] if self._position < len(history) else None

    def _next_transactions(self) -> list[CommittedTransaction]:
        """Take transactions up to the next DDL, some at a time."""
        limit = self._rng.randint(1, self._options.rows_per_flush)
        taken: list[CommittedTransaction] = []
        rows = 0
        while rows < limit:
            commit = self._upcoming()
            if not isinstance(commit, CommittedTransaction):
                break
            taken.append(commit)
            rows += len(commit.rows)
            self._position += 1
        return taken

    def _add_rows(self, batch: "_Batch", transactions: Sequence[CommittedTransaction]) -> int:
        """Add the rows of a flush in groups, and return its last commit ts."""
        last_ts = transactions[-1].commit_ts
        build_ms = self._now_ms(last_ts)
        groups: dict[tuple[int, str], list[tuple[int, CommittedRow]]] = defaultdict(list)
        for transaction in transactions:
            for row in transaction.rows:
                if self._is_replicated(row.schema):
                    groups[self._destination(row)].append((transaction.commit_ts, row))
        order = list(groups)
        self._rng.shuffle(order)
        for partition, dispatch_key in order:
            events: list[Event] = []
            for commit_ts, row in groups[partition, dispatch_key]:
                if self._is_bootstrap_due(row.schema):
                    batch.add(partition, events)
                    events = []
                    bootstrap = Bootstrap(build_ts_ms=build_ms, schema=row.schema)
                    self._add_event(batch, bootstrap, self._written_partitions())
                events.append(self._row_change(row, commit_ts, build_ms))
            batch.add(partition, events)
        return last_ts

    def _is_bootstrap_due(self, schema: TableSchema) -> bool:
        """Count one more row of a table and tell whether a BOOTSTRAP goes before it."""
        options = self._options
        table = self._tables[schema.table_id]
        table.rows += 1
        if not options.bootstraps or not self._dialect.has_bootstraps:
            return False
        if not table.is_bootstrapped:
            table.is_bootstrapped = table.rows > options.bootstrap_delay_rows
            table.rows = 0 if table.is_bootstrapped else table.rows
            return table.is_bootstrapped
        due = 0 < options.bootstrap_every_rows <= table.rows
        table.rows = 0 if due else table.rows
        return due

    def _add_ddl(self, batch: "_Batch", ddl: CommittedDdl) -> None:
        build_ms = self._now_ms(ddl.commit_ts)
        partitions = self._written_partitions()
        if not self._dialect.ddl_everywhere:
            partitions = partitions[:1]
        doubled = self._options.ddl_watermarks
        if doubled and self._rng.random() < 0.7:
            self._add_watermark(batch, ddl.commit_ts)
        for event in ddl.events:
            if ddl.of_view or event.schema is None or self._is_replicated(event.schema):
                self._add_event(batch, replace(event, build_ts_ms=build_ms), partitions)
        if doubled and self._rng.random() < 0.7:
            self._add_watermark(batch, ddl.commit_ts)

    def _add_watermark(self, batch: "_Batch", watermark_ts: int) -> None:
        batch.watermark_ts = watermark_ts
        silent = self._options.silent_partitions
        self._add_event(
            batch,
            Watermark(watermark_ts=watermark_ts, build_ts_ms=self._now_ms(watermark_ts)),
            [number for number in self._written_partitions() if number not in silent],
        )

    def _add_event(
        self, batch: "_Batch", event: DdlEvent | Bootstrap | Watermark, partitions: Iterable[int]
    ) -> None:
        sent = self._dialect.event(event)
        if sent is not None:
            for partition in partitions:
                batch.add(partition, [sent])

    def _written_partitions(self) -> list[int]:
        unwritten = self._options.unwritten_partitions
        return [number for number in range(self._partitions) if number not in unwritten]

    def _line_up(self, batch: "_Batch") -> None:
        """Put a batch in line: order within a partition kept, partitions mixed at random."""
        timestamp_ms = self._now_ms()
        queues = [
            deque(
                (
                    partition,
                    timestamp_ms,
                    compressed(self._wire_format, record, self._options.compression),
                )
                for events in parts
                for record in self._encode(events)
            )
            for partition, parts in enumerate(batch.parts)
        ]
        turns = [number for number, queue in enumerate(queues) for _ in queue]
        self._rng.shuffle(turns)
        self._waiting.extend(queues[number].popleft() for number in turns)
        self._waiting.append(batch.watermark_ts)

    # Rows

    def _is_replicated(self, schema: TableSchema) -> bool:
        return self._options.force_replicate or bool(schema.handle_key)

    def _has_key_at(self, name: TableName, at: int | None) -> bool:
        """Tell whether a table had a key in the cut at `at`, by the first DDL after it."""
        for commit in self._upstream.history if at is not None else ():
            if isinstance(commit, CommittedDdl) and at is not None and commit.commit_ts >= at:
                table = commit.previous.get(name)
                if table is not None:
                    return bool(table.schema.handle_key)
        return bool(self._upstream.schema(name).handle_key)

    def _destination(self, row: CommittedRow) -> tuple[int, str]:
        """Return the partition of a row, and the text that keeps rows of one group together."""
        schema = row.schema
        parts: tuple[str, ...] = (schema.database, schema.table)
        if self._options.dispatcher is Dispatcher.INDEX_VALUE and schema.handle_key:
            parts += row.key
        dispatch_key = json.dumps(parts)
        written = self._written_partitions()
        return written[zlib.crc32(dispatch_key.encode()) % len(written)], dispatch_key

    def _row_change(self, row: CommittedRow, commit_ts: int, build_ms: int) -> RowChange:
        schema = row.schema
        change = RowChange(
            op=row.op,
            commit_ts=commit_ts,
            build_ts_ms=build_ms,
            database=schema.database,
            table=schema.table,
            table_id=row.physical_id,
            schema_version=schema.version,
            before=self._image(schema, row.before),
            after=self._image(schema, row.after),
        )
        sent = self._dialect.row(change, schema, is_split=row.is_split)
        return sent if self._large is None else self._large.sent(sent, schema.handle_key)

    def _image(self, schema: TableSchema, row: Row | None) -> Image | None:
        if row is None:
            return None
        known = (schema.table_id, schema.version)
        converters = self._converters.get(known)
        if converters is None:
            converters = {
                column.name: physical_of(column, self._upstream.timezone)
                for column in schema.columns
            }
            self._converters[known] = converters
        return {name: convert(row[name]) for name, convert in converters.items()}

    def _now_ms(self, ts: int = 0) -> int:
        """Return a build time at or after the TSO `ts` and every build time before."""
        seen = max(self._upstream.clock.physical_ms, tso.physical_ms(ts))
        self._build_ms = max(self._build_ms, seen)
        return self._build_ms


class _Batch:
    """Events for each partition, in parts that one message may hold together."""

    def __init__(self, partitions: int) -> None:
        self.watermark_ts = 0
        self.parts: list[list[list[Event]]] = [[] for _ in range(partitions)]

    def add(self, partition: int, events: list[Event]) -> None:
        """Add events of one group behind all others of a partition."""
        if events:
            self.parts[partition].append(events)


def without_head(
    records: Iterable[CaptureRecord], skipped: Mapping[int, int]
) -> Iterator[CaptureRecord]:
    """Yield records as a consumer sees them that begins in the middle.

    Args:
        records: the records.
        skipped: for each partition how many of its first records are not seen.
    """
    left = dict(skipped)
    for record in records:
        if left.get(record.partition, 0) > 0:
            left[record.partition] -= 1
            continue
        yield record
