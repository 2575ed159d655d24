"""The formats and options in which the stand-in changefeed sends, and the fold of what it sent."""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from ticdc_assets.demo.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.message_forms import Dialect, MessageOptions, dialect_of
from ticdc_assets.demo.simulator.stored_table import TableName
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.model.events import Bootstrap, DdlEvent, Event, RowChange, Watermark
from ticdc_assets.model.tso import es_cut, from_physical_ms, physical_ms
from ticdc_assets.registry.history import Coordinates
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.wire import WireFormat
from ticdc_assets.wire.compression import Compression
from ticdc_assets_tests.demo.simulator.compressing import CompressingChangefeed
from ticdc_assets_tests.demo.simulator.faulty import FaultyChangefeed
from ticdc_assets_tests.golden import Rows, comparable, events_of
from ticdc_assets_tests.reference.fold import FoldedTable, fold


@dataclass(frozen=True)
class Variant:
    """A format with options of TiCDC's encoders."""

    wire_format: WireFormat
    messages: MessageOptions = field(default_factory=MessageOptions)
    compression: Compression = Compression.NONE
    faults: Mapping[str, bool] = field(default_factory=dict[str, bool])

    @property
    def dialect(self) -> Dialect:
        """The dialect of its messages."""
        return dialect_of(self.wire_format, self.messages.dialect)

    @property
    def es_only(self) -> bool:
        """Whether messages have no commit ts, so that TSOs of one millisecond are one."""
        return self.wire_format is WireFormat.CANAL_JSON and not self.messages.tidb_extension

    @property
    def tells_labels(self) -> bool:
        """Whether rows or bootstraps tell the labels of ENUM and SET, so that no DDL is needed."""
        return self.sends_schemas or self.messages.content_compatible

    @property
    def sends_schemas(self) -> bool:
        return self.wire_format in {WireFormat.SIMPLE_JSON, WireFormat.SIMPLE_AVRO}

    def changefeed(
        self,
        upstream: Upstream,
        options: FeedOptions | None = None,
        *,
        topic: str = "topic",
        partitions: int = 3,
        seed: int = 0,
    ) -> StandInChangefeed:
        kind = partial(FaultyChangefeed, **self.faults) if self.faults else StandInChangefeed
        if self.compression is not Compression.NONE:
            kind = partial(CompressingChangefeed, compression=self.compression)
        return kind(
            upstream,
            topic,
            partitions=partitions,
            wire_format=self.wire_format,
            options=replace(options or FeedOptions(), messages=self.messages),
            seed=seed,
        )

    def events(self, records: Iterable[CaptureRecord]) -> list[tuple[Coordinates, Event]]:
        return list(events_of(records, self.wire_format, self.compression))

    def tables(
        self, events: Iterable[tuple[Coordinates, Event]], at: int, timezone: str
    ) -> dict[TableName, FoldedTable]:
        """Fold events into the tables of the cut that holds what the one at `at` holds."""
        cut = es_cut(physical_ms(at)) if self.es_only else at
        _, tables = fold(events, cut, timezone)
        return tables

    def folded(self, events: Iterable[tuple[Coordinates, Event]], at: int, timezone: str) -> Rows:
        """Return the rows of the cut; none of them is in quarantine, no mirror is marked."""
        tables = self.tables(events, at, timezone)
        assert [item for table in tables.values() for item in table.quarantined] == []
        assert [caveat for table in tables.values() for caveat in table.plan.caveats] == []
        return rows_of(tables)

    def require_truth(
        self, changefeed: StandInChangefeed, records: Iterable[CaptureRecord]
    ) -> None:
        """Assert that records are the truth at the newest watermark, tables without rows too."""
        at, timezone = changefeed.watermark_ts, changefeed.upstream.timezone
        events = self.events(records)
        assert set(self.tables(events, at, timezone)) == set(changefeed.truth(at))
        assert self.folded(events, at, timezone) == self.wanted(changefeed, at)

    def wanted(self, changefeed: StandInChangefeed, at: int) -> Rows:
        """Return the truth of the cut."""
        # The cut of a millisecond holds all of it, DDL too.
        last = from_physical_ms(physical_ms(at) + 1) - 1 if self.es_only else at
        return {
            name: Counter(comparable(dict(row)) for row in rows.values())
            for name, rows in changefeed.truth(last).items()
            if rows
        }


def rows_of(tables: dict[TableName, FoldedTable]) -> Rows:
    return {
        name: Counter(comparable(row) for row in table.listed())
        for name, table in tables.items()
        if table.rows
    }


PLAIN = {
    **{str(wire_format): Variant(wire_format) for wire_format in WireFormat},
    "canal-json-plain": Variant(WireFormat.CANAL_JSON, MessageOptions(tidb_extension=False)),
}
"""One of each kind of message, of the new TiCDC where it has the format."""

OLD = {
    name: replace(variant, messages=replace(variant.messages, dialect=Dialect.TIFLOW))
    for name, variant in PLAIN.items()
}
"""The same of the old TiCDC."""

SIMPLE = PLAIN["simple-json"]


def each_format(*by_day: str) -> pytest.MarkDecorator:
    """Return the parameter `variant`: each kind of message, by day those that are named."""
    marks = {name: () if name in by_day else (pytest.mark.slow,) for name in PLAIN}
    return pytest.mark.parametrize(
        "variant", [pytest.param(PLAIN[name], id=name, marks=marks[name]) for name in PLAIN]
    )


_CUT = MessageOptions(only_updated_columns=True, delete_only_handle_key=True)

VARIANTS = {
    **PLAIN,
    "simple-json-lz4": Variant(WireFormat.SIMPLE_JSON, compression=Compression.LZ4),
    "simple-avro-snappy": Variant(
        WireFormat.SIMPLE_AVRO, MessageOptions(dialect=Dialect.TIFLOW), Compression.SNAPPY
    ),
    # Simple knows neither option and ignores them.
    "simple-json-cut": Variant(WireFormat.SIMPLE_JSON, replace(_CUT, dialect=Dialect.TIFLOW)),
    "open-protocol-cut-lz4": Variant(
        WireFormat.OPEN_PROTOCOL,
        replace(_CUT, batched_creates=True),
        Compression.LZ4,
        {"stale_flags": True},
    ),
    "open-protocol-snappy": Variant(
        WireFormat.OPEN_PROTOCOL, MessageOptions(dialect=Dialect.TIFLOW), Compression.SNAPPY
    ),
    "canal-json-compatible": Variant(
        WireFormat.CANAL_JSON,
        MessageOptions(content_compatible=True, batched_creates=True),
        Compression.SNAPPY,
    ),
    "canal-json-cut-lz4": Variant(
        WireFormat.CANAL_JSON, replace(_CUT, dialect=Dialect.TIFLOW), Compression.LZ4
    ),
    "canal-json-plain-cut": Variant(
        WireFormat.CANAL_JSON,
        replace(_CUT, tidb_extension=False, content_compatible=True),
    ),
    # Of the two, Craft knows the cut of deletes only.
    "craft-cut": Variant(WireFormat.CRAFT, _CUT),
}
"""All options of all formats, each at least once, and each format in both dialects."""


def in_turns(name: str, values: Mapping[str, Any]) -> pytest.MarkDecorator:
    """Return the parameters `variant` and `name`: by day each variant with one value, in turns."""
    return pytest.mark.parametrize(
        ("variant", name),
        [
            pytest.param(
                variant,
                value,
                id=f"{kind}-{key}",
                marks=() if (number - other) % len(values) == 0 else pytest.mark.slow,
            )
            for number, (kind, variant) in enumerate(VARIANTS.items())
            for other, (key, value) in enumerate(values.items())
        ],
    )


def variant_of(wire_format: WireFormat, seed: int, *, keyless: bool = False) -> Variant:
    """Return a variant of a format in one of its dialects, in the new one with its faults.

    Args:
        wire_format: the format.
        seed: which dialect, and which options.
        keyless: whether rows without a key are sent, which old values alone tell apart.
    """
    rng = random.Random(f"{wire_format} {seed}")
    if wire_format is WireFormat.CRAFT or rng.random() < 0.5:
        return Variant(wire_format, MessageOptions(dialect=Dialect.TIFLOW))
    options = MessageOptions(
        dialect=Dialect.TICDC,
        batched_creates=rng.random() < 0.5,
        only_updated_columns=not keyless and rng.random() < 0.5,
    )
    if wire_format is not WireFormat.OPEN_PROTOCOL:
        return Variant(wire_format, options)
    faults = {
        "stale_flags": rng.random() < 0.5,
        "damaged_old_values": options.only_updated_columns,
    }
    return Variant(wire_format, options, faults=faults)


def shuffled(
    events: Iterable[tuple[Coordinates, Event]], seed: int = 0
) -> list[tuple[Coordinates, Event]]:
    mixed = list(events)
    random.Random(seed).shuffle(mixed)
    return mixed


def global_watermark(records: Iterable[CaptureRecord], partitions: Iterable[int]) -> int:
    """Return the lowest of the highest watermarks of partitions, 0 where one has none."""
    highest = dict.fromkeys(partitions, 0)
    for place, event in SIMPLE.events(records):
        if isinstance(event, Watermark):
            highest[place.partition] = max(highest[place.partition], event.watermark_ts)
    return min(highest.values())


def assert_rules(
    records: Sequence[CaptureRecord], *, ddl_in: Iterable[int], variant: Variant = SIMPLE
) -> None:
    """Assert what TiCDC promises of every partition, replays apart.

    Args:
        records: all records of a changefeed.
        ddl_in: the partitions that get DDL.
        variant: the format of the records.
    """
    last_offset: dict[int, int] = {}
    watermarks: dict[int, int] = defaultdict(int)
    last_of_key: dict[tuple[Any, ...], int] = {}
    tables_seen: dict[int, set[int]] = defaultdict(set)
    ddl: dict[int, list[tuple[int, str]]] = defaultdict(list)
    last_ddl: dict[int, int] = defaultdict(int)
    for record, event in variant.events(records):
        partition = record.partition
        # A record of Open Protocol and of Craft has several rows.
        assert record.offset - last_offset.get(partition, -1) in (0, 1)
        last_offset[partition] = record.offset
        match event:
            case Watermark():
                assert event.watermark_ts >= watermarks[partition]
                watermarks[partition] = event.watermark_ts
            case DdlEvent():
                assert event.commit_ts >= watermarks[partition]
                ddl[partition].append((event.commit_ts, event.sql))
                last_ddl[partition] = event.commit_ts
            case Bootstrap():
                assert event.schema is not None, "a start without content"
                tables_seen[partition].add(event.schema.table_id)
            case RowChange():
                assert event.commit_ts > watermarks[partition]
                # Rows at the commit ts of a DDL come before it.
                assert event.commit_ts > last_ddl[partition]
                if variant.sends_schemas:
                    assert event.table_id in tables_seen[partition]
                image = event.after or event.before or {}
                key = (
                    event.database,
                    event.table,
                    event.table_id,
                    *(image.get(name) for name in _keys_of(event)),
                )
                assert event.commit_ts >= last_of_key.get(key, 0)
                last_of_key[key] = event.commit_ts
    assert set(ddl) == set(ddl_in)
    assert len({tuple(statements) for statements in ddl.values()}) == 1


def _keys_of(event: RowChange) -> tuple[str, ...]:
    keys = {
        "customers": ("id",),
        "orders": ("region", "order_id"),
        "order_items": ("order_id", "line_no"),
        "inventory": ("sku", "warehouse"),
        "payments": ("id",),
        "contacts": ("handle",),
    }
    return keys.get(event.table, ("id",))
