"""Traffic: any number of row changes of any number of tables, made far cheaper than they are read.

In: how many tables, of which formats, over how many partitions. Out: the records that open a
changefeed (DDL, schemas, watermarks), and then row changes and watermarks without end.

The stand-in changefeed encodes one insert, one update and one delete of each table. Those messages
are templates: the key, the commit ts and a text stand at known places in them and are put in as
bytes, which costs about a microsecond a message. The rows of the templates are deleted by the last
of them, so that they leave nothing.

A table's rows have the numbers from `low` up to `next`, but for what was deleted: an insert takes
the next one, a delete the lowest (or any, which is then remembered), an update any between. So it
is known how many rows there must be at the end without keeping them.

Not handled: Simple Avro and Craft, in which a number's bytes depend on the numbers before it.
"""

import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import cycle, islice

from ticdc_assets.demo.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.message_forms import MessageOptions
from ticdc_assets.demo.simulator.stored_table import TableName
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.model.events import Op, RowChange, Watermark
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets.wire.record import Record
from ticdc_assets_tests.demo.simulator.random_values import random_value

DATABASE = "bench"
TOPIC = "bench"
"""Where records go if nobody says otherwise."""

TEXT_FORMATS = (WireFormat.SIMPLE_JSON, WireFormat.CANAL_JSON, WireFormat.OPEN_PROTOCOL)

FIRST_ID = 1_000_000_000
"""The first row of a table; all numbers have as many digits, so lengths in messages stay true."""

MIX = (Op.INSERT,) * 7 + (Op.UPDATE,) * 2 + (Op.DELETE,)
"""70 % inserts, 20 % updates and 10 % deletes."""

ROWS_PER_WATERMARK = 1_000
ROWS_PER_TRANSACTION = 5

_SENTINEL_ID = 1_987_654_321
_TS_STEP = 64
_NOISE = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Varied:
    """A column whose values differ from row to row, in formats that send values as JSON strings.

    Attributes:
        column: name of the column.
        sentinel: its value in the templates, which occurs nowhere else in them.
        changed: its value there after an update; "" if updates do not change the column.
        texts: the values that rows have, in turns.
    """

    column: str
    sentinel: str
    changed: str = ""
    texts: Sequence[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The columns of tables.

    Attributes:
        columns: the columns, the first of which is the key `id`.
        text: name of the text column in which each message differs.
        length: how long that text is.
        varied: other columns in which messages differ; an update changes some of them, or the last
            column if there are none.
    """

    columns: tuple[ColumnSchema, ...]
    text: str
    length: int
    varied: tuple[Varied, ...] = ()


def narrow(length: int = 120) -> Shape:
    """Return a table like sysbench's."""
    return Shape(
        columns=(
            column("id", "bigint", nullable=False),
            column("k", "int"),
            column("c", f"varchar({max(length, 1)})"),
            column("pad", "char(60)"),
        ),
        text="c",
        length=length,
    )


_WIDE_TYPES = (
    "bigint",
    "int unsigned",
    "smallint",
    "decimal(12,2)",
    "double",
    "datetime(3)",
    "timestamp",
    "date",
    "varchar(40)",
    "enum('new','paid','sent')",
)


def wide(columns: int = 30) -> Shape:
    """Return a table of so many columns of mixed types."""
    return Shape(
        columns=(
            column("id", "bigint", nullable=False),
            column("c", "varchar(60)"),
            *(
                column(f"m{number}", sql_type)
                for number, sql_type in enumerate(islice(cycle(_WIDE_TYPES), columns - 2))
            ),
        ),
        text="c",
        length=60,
    )


@dataclass(slots=True)
class _Table:
    name: TableName
    templates: dict[Op, tuple[bytes | None, bytes]]
    length: int
    varied: list[tuple[bytes, bytes, Sequence[bytes]]]
    low: int = FIRST_ID
    next: int = FIRST_ID
    gone: set[int] = field(default_factory=set[int])

    @property
    def live(self) -> int:
        return self.next - self.low - len(self.gone)

    def any_key(self, rng: random.Random, taken: Set[int]) -> int:
        """Return the key of any row that is not taken; far more are there than are not."""
        while True:
            key = self.low + int(rng.random() * (self.next - self.low))
            if key not in self.gone and key not in taken:
                return key


@dataclass(slots=True, kw_only=True)
class Traffic:
    """The records of one changefeed, in their order.

    Args:
        shapes: one for each table.
        partitions: partitions of the topic; a row's is told by its key.
        wire_format: one of `TEXT_FORMATS`.
        topic: topic of the records.
        messages: options of what a message holds.
        random_deletes: whether a delete takes any row and not the lowest.
        seed: of the texts, and of which rows are updated.

    Attributes:
        opening: what comes first: DDL, schemas, and a watermark.
    """

    shapes: Sequence[Shape]
    partitions: int = 4
    wire_format: WireFormat = WireFormat.SIMPLE_JSON
    topic: str = TOPIC
    messages: MessageOptions = field(default_factory=MessageOptions)
    random_deletes: bool = False
    seed: int = 0
    opening: list[CaptureRecord] = field(init=False)
    _tables: list[_Table] = field(init=False)
    _offsets: list[int] = field(init=False)
    _ts: int = field(init=False)
    _noise: bytes = field(init=False)
    _watermark: tuple[bytes | None, bytes] = field(init=False)
    _made: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        if self.wire_format not in TEXT_FORMATS:
            raise ValueError(f"messages of {self.wire_format} cannot be made from templates")
        rng = random.Random(self.seed)
        self._noise = bytes(rng.choices(b"abcdefghijklmnopqrstuvwxyz0123456789", k=_NOISE))
        upstream = Upstream()
        upstream.create_database(DATABASE)
        changefeed = StandInChangefeed(
            upstream,
            self.topic,
            partitions=self.partitions,
            wire_format=self.wire_format,
            options=FeedOptions(messages=self.messages),
        )
        self.opening = []
        self._tables = []
        for number, shape in enumerate(self.shapes):
            name = (DATABASE, f"t{number}")
            upstream.create_table(name, shape.columns, primary_key=("id",))
            row = {item.name: random_value(rng, item, timezone="UTC") for item in shape.columns[1:]}
            row |= {item.column: item.sentinel for item in shape.varied}
            row |= {"id": str(_SENTINEL_ID), shape.text: "x" * shape.length}
            table = _Table(
                name=name, templates={}, length=shape.length, varied=_varied_names(shape)
            )
            for op in (Op.INSERT, Op.UPDATE, Op.DELETE):
                with upstream.transaction() as transaction:
                    if op is Op.INSERT:
                        transaction.insert(name, row)
                    elif op is Op.UPDATE:
                        key = next(iter(upstream.rows(name)))
                        transaction.update(name, key, changes=_update(rng, shape, row))
                    else:
                        transaction.delete(name, next(iter(upstream.rows(name))))
                records = list(changefeed.tick())
                self.opening += records
                table.templates[op] = self._template(records, op, shape)
            self._tables.append(table)
        self._watermark = self._watermark_template(self.opening)
        self._offsets = [changefeed.next_offsets[number] for number in range(self.partitions)]
        self._ts = changefeed.watermark_ts + _TS_STEP

    @property
    def live(self) -> dict[str, int]:
        """How many rows each table has."""
        return {table.name[1]: table.live for table in self._tables}

    def newest(self) -> int:
        """Return the key of the newest row of the first table that was not deleted."""
        table = self._tables[0]
        return next(key for key in range(table.next - 1, 0, -1) if key not in table.gone)

    def assume(self, rows: int) -> None:
        """Go on as if each table had that many rows, which were put into its mirror otherwise."""
        for table in self._tables:
            table.low, table.next = FIRST_ID, FIRST_ID + rows
            table.gone.clear()

    def be_at(self, moment_ms: int) -> int:
        """Let what follows be committed at a moment or later; return the lowest TSO of it."""
        self._ts = max(self._ts, moment_ms << 18)
        return self._ts

    def changes(
        self, count: int, *, mix: Sequence[Op] = MIX, watermark: bool = True
    ) -> Iterator[CaptureRecord]:
        """Yield row changes, over all tables in turns, with watermarks between and at the end.

        Args:
            count: how many.
            mix: which kinds of changes, how often.
            watermark: whether a watermark is to come at the end.
        """
        rng = random.Random(self.seed + self._made)
        noise = self._noise
        tables, partitions, offsets = self._tables, self.partitions, self._offsets
        # Each table meets each kind of change, whatever their numbers have in common.
        turns = [list(mix) for _ in tables]
        # One transaction does not change a row twice.
        taken: set[int] = set()
        for ops in turns:
            rng.shuffle(ops)
        width, length = len(tables), len(mix)
        for number in range(count):
            table = tables[number % width]
            op = turns[number % width][number // width % length]
            if number % ROWS_PER_TRANSACTION == 0:
                self._ts += _TS_STEP
                taken.clear()
            if op is Op.INSERT or table.live <= len(taken):
                op, key = Op.INSERT, table.next
                table.next = key + 1
            elif op is Op.DELETE and not self.random_deletes:
                key = table.low
                table.low = key + 1
            else:
                key = table.any_key(rng, taken)
                if op is Op.DELETE:
                    table.gone.add(key)
            if self.random_deletes:
                taken.add(key)
            # Where an update names the columns that it changes, the text is none of them.
            turn = 0 if table.varied else number * 31
            place = (key * 7919 + turn) % (_NOISE - table.length)
            values = {
                b"id": b"%d" % key,
                b"ts": b"%d" % self._ts,
                b"text": noise[place : place + table.length],
            }
            for multiple, (before, after, texts) in enumerate(table.varied, 3):
                values[before] = texts[key * multiple % len(texts)]
                values[after] = texts[(key + number) * multiple % len(texts)]
            key_template, template = table.templates[op]
            partition = key % partitions
            offset = offsets[partition]
            offsets[partition] = offset + 1
            yield CaptureRecord(
                topic=self.topic,
                partition=partition,
                offset=offset,
                timestamp_ms=self._ts >> 18,
                key=None if key_template is None else key_template % values,
                value=template % values,
            )
            if number % ROWS_PER_WATERMARK == ROWS_PER_WATERMARK - 1:
                yield from self.watermarks()
        self._made += count
        if watermark:
            yield from self.watermarks()

    def watermarks(self) -> Iterator[CaptureRecord]:
        """Yield a watermark above everything so far, to each partition."""
        self._ts += _TS_STEP
        values = {b"ts": b"%d" % self._ts}
        key_template, template = self._watermark
        for partition in range(self.partitions):
            offset = self._offsets[partition]
            self._offsets[partition] = offset + 1
            yield CaptureRecord(
                topic=self.topic,
                partition=partition,
                offset=offset,
                timestamp_ms=self._ts >> 18,
                key=None if key_template is None else key_template % values,
                value=template % values,
            )

    def _template(
        self, records: Iterable[CaptureRecord], op: Op, shape: Shape
    ) -> tuple[bytes | None, bytes]:
        """Return the key and value of the one row change among records, as templates."""
        for record in records:
            for event in decode(self.wire_format, Record(key=record.key, value=record.value)):
                if isinstance(event, RowChange):
                    if event.op is not op or event.commit_ts is None:
                        raise ValueError(f"expected an {op} with a commit ts, got {event.op}")
                    return self._parts(record, event.commit_ts, shape)
        raise ValueError(f"expected an {op} among the records")

    def _watermark_template(self, records: Iterable[CaptureRecord]) -> tuple[bytes | None, bytes]:
        for record in records:
            for event in decode(self.wire_format, Record(key=record.key, value=record.value)):
                if isinstance(event, Watermark):
                    return self._parts(record, event.watermark_ts, None)
        raise ValueError("expected a watermark among the records")

    def _parts(
        self, record: CaptureRecord, commit_ts: int, shape: Shape | None
    ) -> tuple[bytes | None, bytes]:
        value = b"" if record.value is None else record.value
        return (
            None if record.key is None else _as_template(record.key, commit_ts, shape),
            _as_template(value, commit_ts, shape),
        )


def _update(
    rng: random.Random, shape: Shape, row: Mapping[str, str | None]
) -> dict[str, str | None]:
    """Return what the update of the templates changes."""
    if varied := {item.column: item.changed for item in shape.varied if item.changed}:
        return {**varied}
    changed = shape.columns[-1]
    value = row[changed.name]
    while value == row[changed.name]:
        value = random_value(rng, changed, timezone="UTC")
    return {changed.name: value}


def _varied_names(shape: Shape) -> list[tuple[bytes, bytes, Sequence[bytes]]]:
    """Return of each varied column its two names in templates, and its values."""
    return [
        (item.column.encode(), f"new {item.column}".encode(), item.texts) for item in shape.varied
    ]


def _as_template(message: bytes, commit_ts: int, shape: Shape | None) -> bytes:
    """Return a message as a template of `%`, with names where it is to differ."""
    names = {b"%d" % _SENTINEL_ID: b"%(id)b", b"%d" % commit_ts: b"%(ts)b"}
    if shape is not None:
        if shape.length:
            names[b"x" * shape.length] = b"%(text)b"
        for item, (before, after, _) in zip(shape.varied, _varied_names(shape), strict=True):
            names[_quoted(item.sentinel)] = b'"%%(%b)b"' % before
            if item.changed:
                names[_quoted(item.changed)] = b'"%%(%b)b"' % after
    # Names that begin alike: the longest first.
    found = re.compile(b"|".join(map(re.escape, sorted(names, key=len, reverse=True))))
    return found.sub(lambda match: names[match[0]], message.replace(b"%", b"%%"))


def _quoted(value: str) -> bytes:
    return f'"{value}"'.encode()
