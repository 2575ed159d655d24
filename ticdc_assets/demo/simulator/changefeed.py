"""The stand-in for TiCDC: what an upstream committed, as Kafka records.

In: an `Upstream`, whose history may go on growing. Out: `CaptureRecord` values with their
coordinates, in an order in which a broker could have them. It keeps to what TiCDC does, and
leaves out none of what makes it hard to read:

    - Rows go to the partition of their key's hash (index-value dispatcher) or of their table.
    - Between two watermarks the rows of a partition are grouped by that hash (or table), groups in
      any order: rows of one key are in commit order, rows of different keys are not.
    - A DDL goes to all partitions, after all rows at or below its commit ts.
    - A BOOTSTRAP goes to all partitions before the first row of a table id; after a restart all of
      them come again.
    - A watermark goes to all partitions, when everything at or below it was sent; with
      `ddl_watermarks` one equal to a DDL's commit ts may come before that DDL and again after it.
    - Tables without a key are left out, rows and DDL, unless `force_replicate`.
    - Formats differ in what they send at all (`message_forms`): Canal-JSON's DDL goes to the first
      partition only, formats besides Simple have no bootstraps, and Canal-JSON without the TiDB
      extension has no watermarks.
    - The old and the new TiCDC differ in DDL, in order and in details (`message_forms`).

Nothing is lost by not reading on: records wait in the stand-in until they are read. The same
upstream, options and seed give the same records, except build times where the upstream's clock is
the wall clock. `restart` sends again from an older checkpoint, as TiCDC does after a crash.

A BOOTSTRAP comes again with the next tick for a schema that no other message has, and for a table
that was renamed: that one goes to the topic of the first, as TiCDC sends it.

Not handled: a topic for each table; other bootstraps that come again by time or by rows.
"""

import json
import random
import zlib
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from ticdc_assets.demo.simulator.encoders import encode
from ticdc_assets.demo.simulator.message_forms import MessageForm, MessageOptions
from ticdc_assets.demo.simulator.stored_table import TableName
from ticdc_assets.demo.simulator.upstream import (
    Commit,
    CommittedDdl,
    CommittedRow,
    CommittedTransaction,
    Truth,
    Upstream,
    is_in_cut,
)
from ticdc_assets.model import tso
from ticdc_assets.model.events import (
    Bootstrap,
    Event,
    Watermark,
)
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.wire import WireFormat
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
        bootstraps: False to send none at all.
        ddl_watermarks: allow watermarks equal to a DDL's commit ts before and after it.
        force_replicate: send tables without a key too.
        first_ts: send nothing at or below this TSO: the changefeed was created later.
        messages: the dialect, and options that change what a message holds.
    """

    dispatcher: Dispatcher = Dispatcher.INDEX_VALUE
    rows_per_flush: int = 40
    bootstraps: bool = True
    ddl_watermarks: bool = False
    force_replicate: bool = False
    first_ts: int = 0
    messages: MessageOptions = field(default_factory=MessageOptions)


_Place: TypeAlias = tuple[str, int]
"""(topic, partition)."""


class StandInChangefeed:
    """Turns what an upstream commits into Kafka records.

    Args:
        upstream: whose history is sent.
        topic: the topic of all records.
        partitions: number of partitions of a topic.
        wire_format: format of the messages.
        options: how it sends.
        seed: of everything that is random in the order and the watermarks.

    Attributes:
        upstream: whose history is sent.
        topic: the topic of all records.
        partitions: number of partitions now; with more of them, rows are spread again over all.
        watermark_ts: highest watermark so far that was given out with everything at or below it,
            in all partitions; 0 before the first.

    Raises:
        ConfigError: the dialect does not have the format.
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
        self.upstream = upstream
        self.partitions = partitions
        self._wire_format = wire_format
        self._options = options or FeedOptions()
        self._form = MessageForm(wire_format, self._options.messages, upstream)
        self._rng = random.Random(seed)
        # Records in line, and after each batch the watermark then reached.
        self._waiting: deque[tuple[_Place, int, Record] | int] = deque()
        self._offsets: dict[_Place, int] = defaultdict(int)
        # What one process of TiCDC knows.
        self._described: dict[int, _Described] = {}
        self._build_ms = 0
        self._position = 0

    @property
    def next_offsets(self) -> Mapping[int, int]:
        """The offset that the next record of each partition gets."""
        return {number: self._offsets[self.topic, number] for number in range(self.partitions)}

    def truth(self, at: int | None = None) -> Truth:
        """Return the rows upstream of the tables that this changefeed sends."""
        return {
            name: dict(table.rows)
            for name, table in self.upstream.tables_at(at).items()
            if self._is_replicated(table.schema)
        }

    def records(self) -> Iterator[CaptureRecord]:
        """Yield records until everything committed so far is sent, with a watermark after it."""
        while True:
            while self._waiting:
                waiting = self._waiting.popleft()
                if isinstance(waiting, int):
                    self.watermark_ts = max(self.watermark_ts, waiting)
                else:
                    yield self._at_offset(*waiting)
            if self._position == len(self.upstream.history):
                return
            self._send_next()

    def tick(self) -> Iterator[CaptureRecord]:
        """Yield all records, and a watermark of this moment above everything committed."""
        yield from self.records()
        batch = Batch()
        for table in self._described.values():
            schema, sent = table.schema, table.sent
            # TiCDC does not notice that only the database is another one.
            is_renamed = schema.table != sent.table
            is_new = schema.version != sent.version and self._form.is_undescribed(schema)
            if is_renamed or is_new:
                table.sent = schema
                self._add_bootstrap(batch, schema, table.topic, self._now_ms())
        self._add_watermark(batch, self.upstream.clock.next())
        self._line_up(batch)
        yield from self.records()

    def restart(self, checkpoint_ts: int) -> None:
        """Begin again at an older checkpoint: rows, DDL and bootstraps above it are sent again.

        What waited to be sent is forgotten, as in a crash. Watermarks step back to the checkpoint.

        Args:
            checkpoint_ts: a TSO at or below `watermark_ts`.
        """
        self._waiting.clear()
        self._described.clear()
        self._form.restart()
        self._step_back_to(checkpoint_ts)
        if checkpoint_ts > 0:
            batch = Batch()
            self._add_watermark(batch, checkpoint_ts)
            self._line_up(batch)

    def inject(self, partition: int, *, key: bytes | None, value: bytes | None) -> CaptureRecord:
        """Return a record TiCDC did not send (a tombstone, damage) at the next offset."""
        place = (self.topic, partition)
        return self._at_offset(place, self._now_ms(), Record(key=key, value=value))

    # Sending

    def _topic_of(self, name: TableName) -> str:
        """Return the topic of a table's rows, or with "" for its name that of a database's DDL."""
        return self.topic

    def _watermark_topics(self) -> Iterable[str]:
        """Return the topics that get a watermark at the position of the changefeed."""
        return [self.topic]

    def _at_offset(self, place: _Place, timestamp_ms: int, record: Record) -> CaptureRecord:
        offset = self._offsets[place]
        self._offsets[place] = offset + 1
        return CaptureRecord(
            topic=place[0],
            partition=place[1],
            offset=offset,
            timestamp_ms=timestamp_ms,
            key=record.key,
            value=record.value,
        )

    def _step_back_to(self, checkpoint_ts: int) -> None:
        """Go back to before the first commit that is not in the cut at `checkpoint_ts`."""
        history = self.upstream.history
        while self._position > 0 and not is_in_cut(history[self._position - 1], checkpoint_ts):
            self._position -= 1
        for commit in history[: self._position]:
            if isinstance(commit, CommittedDdl):
                self._form.follow(commit)

    def _send_next(self) -> None:
        commit = self._upcoming()
        assert commit is not None
        if is_in_cut(commit, self._options.first_ts):
            self._position += 1
            if isinstance(commit, CommittedDdl):
                self._form.follow(commit)
            return
        batch = Batch()
        if isinstance(commit, CommittedDdl):
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
        history = self.upstream.history
        return history[self._position] if self._position < len(history) else None

    def _next_transactions(self) -> list[CommittedTransaction]:
        """Take transactions up to the next DDL, some at a time."""
        limit = self._rng.randint(1, self._options.rows_per_flush)
        transactions: list[CommittedTransaction] = []
        while sum(len(commit.rows) for commit in transactions) < limit:
            commit = self._upcoming()
            if not isinstance(commit, CommittedTransaction):
                break
            transactions.append(commit)
            self._position += 1
        return transactions

    def _add_rows(self, batch: "Batch", transactions: Sequence[CommittedTransaction]) -> int:
        """Add the rows of a flush in groups, and return its last commit ts."""
        last_ts = transactions[-1].commit_ts
        build_ms = self._now_ms(last_ts)
        groups: dict[tuple[_Place, str], list[tuple[int, CommittedRow]]] = defaultdict(list)
        for transaction in transactions:
            for row in self._form.sent_order(transaction.rows):
                if self._is_replicated(row.schema):
                    groups[self._destination(row)].append((transaction.commit_ts, row))
        order = list(groups)
        self._rng.shuffle(order)
        sends_bootstraps = self._options.bootstraps and self._form.has_bootstraps
        for place, dispatch_key in order:
            events: list[Event] = []
            for commit_ts, row in groups[place, dispatch_key]:
                schema = self._form.table(row.schema).schema
                table_id = self._form.bootstrap_id(row)
                topic = place[0]
                if table_id in self._described:
                    self._described[table_id].schema = schema
                elif sends_bootstraps:
                    self._described[table_id] = _Described(topic, schema=schema, sent=schema)
                    batch.add(place, events)
                    events = []
                    self._add_bootstrap(batch, schema, topic, build_ms)
                events.append(self._form.row(row, commit_ts=commit_ts, build_ts_ms=build_ms))
            batch.add(place, events)
        return last_ts

    def _add_bootstrap(
        self, batch: "Batch", schema: TableSchema, topic: str, build_ms: int
    ) -> None:
        batch.add_to_all(self._places(topic), Bootstrap(build_ts_ms=build_ms, schema=schema))

    def _add_ddl(self, batch: "Batch", ddl: CommittedDdl) -> None:
        build_ms = self._now_ms(ddl.commit_ts)
        doubled = self._options.ddl_watermarks
        if doubled and self._rng.random() < 0.7:
            self._add_watermark(batch, ddl.commit_ts)
        sent_events = self._form.ddl_events(ddl, build_ts_ms=build_ms)
        for event, sent in zip(ddl.events, sent_events, strict=True):
            if ddl.of_view or event.schema is None or self._is_replicated(event.schema):
                before = event.pre_schema or event.schema or event
                places = self._places(self._topic_of((before.database, before.table)))
                places = places if self._form.ddl_everywhere else places[:1]
                batch.add_to_all(places, sent)
        self._form.follow(ddl)
        self._position += 1
        if doubled and self._rng.random() < 0.7:
            self._add_watermark(batch, ddl.commit_ts)

    def _add_watermark(self, batch: "Batch", watermark_ts: int) -> None:
        batch.watermark_ts = watermark_ts
        if not self._form.has_watermarks:
            return
        event = Watermark(watermark_ts=watermark_ts, build_ts_ms=self._now_ms(watermark_ts))
        for topic in self._watermark_topics():
            batch.add_to_all(self._places(topic), event)

    def _places(self, topic: str) -> list[_Place]:
        return [(topic, number) for number in range(self.partitions)]

    def _line_up(self, batch: "Batch") -> None:
        """Put a batch in line: order within a partition kept, partitions mixed at random."""
        self._line_up_parts(batch)
        self._waiting.append(batch.watermark_ts)

    def _line_up_parts(self, batch: "Batch") -> None:
        timestamp_ms = self._now_ms()
        queues = {
            place: deque(
                (place, timestamp_ms, record) for events in parts for record in self._encode(events)
            )
            for place, parts in sorted(batch.parts.items())
        }
        turns = [place for place, queue in queues.items() for _ in queue]
        self._rng.shuffle(turns)
        self._waiting.extend(queues[place].popleft() for place in turns)

    def _encode(self, events: Sequence[Event]) -> Sequence[Record]:
        """Return the records of events that one message may hold together."""
        return encode(self._wire_format, events, ticdc=self._form.is_new)

    # Rows

    def _is_replicated(self, schema: TableSchema) -> bool:
        return self._options.force_replicate or bool(schema.handle_key)

    def _destination(self, row: CommittedRow) -> tuple[_Place, str]:
        """Return the place of a row, and the text that keeps rows of one group together."""
        schema = row.schema
        parts: tuple[str, ...] = (schema.database, schema.table)
        if self._options.dispatcher is Dispatcher.INDEX_VALUE and schema.handle_key:
            parts += row.key
        dispatch_key = json.dumps(parts)
        topic = self._topic_of((schema.database, schema.table))
        place = (topic, zlib.crc32(dispatch_key.encode()) % self.partitions)
        return place, self._form.group(row, dispatch_key)

    def _now_ms(self, ts: int = 0) -> int:
        """Return a build time at or after the TSO `ts` and every build time before."""
        seen = max(self.upstream.clock.physical_ms, tso.physical_ms(ts))
        self._build_ms = max(self._build_ms, seen)
        return self._build_ms


@dataclass(slots=True)
class Batch:
    """What is sent together.

    Attributes:
        watermark_ts: the highest watermark in it.
        parts: events for each partition, in parts that one message may hold together.
    """

    watermark_ts: int = 0
    parts: dict[_Place, list[list[Event]]] = field(
        default_factory=lambda: defaultdict[_Place, list[list[Event]]](list)
    )

    def add(self, place: _Place, events: list[Event]) -> None:
        """Add events of one group after all others of a partition."""
        if events:
            self.parts[place].append(events)

    def add_to_all(self, places: Iterable[_Place], event: Event) -> None:
        """Add one event to several partitions."""
        for place in places:
            self.add(place, [event])


@dataclass(slots=True)
class _Described:
    """A table that a BOOTSTRAP was sent of: its topic, the schema of rows now, and the one sent."""

    topic: str
    schema: TableSchema
    sent: TableSchema
