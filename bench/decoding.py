"""Decoding in one process: both decoders of every format, each beside a plain reader.

What a decoder is compared with reads the same documents and does nothing with them:

    Simple JSON, Canal-JSON    json.loads of each value
    Open Protocol              json.loads of each part of keys and values, cut apart beforehand
    Simple Avro                fastavro's schemaless_reader of each value
    Craft                      json.loads of Open Protocol's documents of as many rows

The rates are of row changes; records of Open Protocol and Craft hold several.

The JSON formats are read once more in messages that mean the same in other bytes, as those of a
later TiCDC may be.
"""

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from bench.goals import Reached, goal_of
from bench.measuring import measure_in_turn
from bench.messages import Messages, load_messages
from bench.results import FASTER, Part, Result
from ticdc_assets.demo.simulator.encoders import encode
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets.wire.batch import decode_batch
from ticdc_assets.wire.record import Record

# The differences are those that the tests hold against the messages themselves.
from ticdc_assets_tests.wire.differing import NESTED, Difference, differing, parts

entry = partial(Result, "Decoding, one process, no Spark")
difference = partial(Result, "Messages that differ harmlessly")
BATCH_RECORDS = 5_000
"""As many records as Spark gives in one Arrow batch (`spark.session`)."""


def measure_decoding(messages: Messages, *, repetitions: int) -> Part:
    """Return how fast the decoders of every format are, each beside a plain reader.

    Args:
        messages: in the Simple protocol in JSON; those of the other formats are loaded here.
        repetitions: of each piece.
    """
    results: list[Result] = []
    for wire_format in WireFormat:
        own = messages_like(messages, wire_format)
        reading, decoders = plain_reading(own), list(_decoders(own))
        works = [reading.work, *(work for _, work in decoders)]
        floor, *samples = measure_in_turn(works, repetitions=repetitions)
        floor = floor.scaled(reading.factor)
        what = f"{wire_format}: {reading.name}"
        results.append(entry(what, floor, own.rows))
        results += [
            entry(
                f"{wire_format}: {what}",
                sample,
                own.rows,
                base=floor,
                compared=f"{FASTER} {reading.name.partition(' ')[0]}",
                goal=goal_of("decode", wire_format) if what == _FAST else None,
            )
            for (what, _), sample in zip(decoders, samples, strict=True)
        ]
    craft = messages_like(messages, WireFormat.CRAFT)
    return Part(
        results=results,
        reached=[Reached("craft-bytes", _encoded(craft) / craft.size)],
        facts=[
            f"Decoding and folding in one process: {messages.source}'s {len(messages.records):,} "
            f"records of simple-json, {messages.rows:,} of them row changes, "
            f"{messages.size // len(messages.records)} bytes each; of the other formats those of "
            "as many rows, or fewer if there are no more."
        ],
    )


def measure_differences(count: int, *, repetitions: int) -> Part:
    """Return how fast messages are decoded that differ harmlessly, each beside `json.loads`.

    Args:
        count: messages of each format.
        repetitions: of each piece.
    """
    results: list[Result] = []
    reached: list[Reached] = []
    for wire_format in NESTED:
        messages = load_messages(count, wire_format)
        records = [Record(key=item.key, value=item.value) for item in messages.records]
        for change in (
            Difference.ORDER,
            Difference.MIDDLE,
            Difference.LAST,
            Difference.BLANKS,
        ):
            records = [differing(record, wire_format, change) for record in records]
        shuffled = replace(
            messages,
            records=[
                replace(item, key=other.key, value=other.value)
                for item, other in zip(messages.records, records, strict=True)
            ],
        )
        works: list[Callable[[], None]] = []
        for own in (messages, shuffled):
            _, (_, decode_all) = _decoders(own)
            works += [plain_reading(own).work, decode_all]
        floor, sample, other_floor, other = measure_in_turn(works, repetitions=repetitions)
        results.append(
            difference(
                f"{wire_format}: another order, blanks and unknown members",
                other,
                messages.rows,
                base=other_floor,
                compared=f"{FASTER} json.loads",
            )
        )
        exact = floor.cpu_seconds / sample.cpu_seconds
        shuffled_ratio = other_floor.cpu_seconds / other.cpu_seconds
        reached.append(Reached(goal_of("shuffled", wire_format), shuffled_ratio / exact))
    return Part(results=results, reached=reached)


def messages_like(messages: Messages, wire_format: WireFormat) -> Messages:
    """Return messages of a format with as many rows as `messages` has."""
    if wire_format is messages.wire_format:
        return messages
    return load_messages(len(messages.records), wire_format).up_to_rows(messages.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainReading:
    """What a format's decoder is compared with.

    Attributes:
        name: of the reader, and what it reads.
        work: reads.
        factor: times its work is that of as many rows.
    """

    name: str
    work: Callable[[], None]
    factor: float = 1.0


def plain_reading(messages: Messages) -> PlainReading:
    """Return what the decoder of messages is compared with."""
    if messages.wire_format is WireFormat.SIMPLE_AVRO:
        return PlainReading(name="fastavro of the same messages", work=_by_fastavro(messages))
    own = messages
    if messages.wire_format is WireFormat.CRAFT:
        own = load_messages(len(messages.records), WireFormat.OPEN_PROTOCOL).up_to_rows(
            messages.rows
        )
    documents = list(_documents(own))

    def loads() -> None:
        for document in documents:
            json.loads(document)

    if own is messages:
        return PlainReading(name="json.loads of the same documents", work=loads)
    return PlainReading(
        name="json.loads of Open Protocol's documents of as many rows",
        work=loads,
        factor=messages.rows / own.rows,
    )


def _documents(messages: Messages) -> Iterator[bytes]:
    """Yield the JSON documents of messages."""
    for item in messages.records:
        if messages.wire_format is WireFormat.OPEN_PROTOCOL:
            # The key begins with the version; a DELETE's part of a value may be empty.
            yield from filter(None, parts((item.key or b"")[8:]))
            yield from filter(None, parts(item.value or b""))
        elif item.value is not None:
            yield item.value


def _by_fastavro(messages: Messages) -> Callable[[], None]:
    from fastavro import schemaless_reader

    # The schema in fastavro's own words, which the tests hold against TiCDC's messages.
    from ticdc_assets_tests.wire.simple.test_avro_fastavro import SCHEMA

    values = [item.value for item in messages.records if item.value is not None]

    def work() -> None:
        for value in values:
            schemaless_reader(io.BytesIO(value), SCHEMA, None)

    return work


def _encoded(messages: Messages) -> int:
    """Return how many bytes the simulator's encoder needs for the same rows in as many records."""
    size = 0
    for item in messages.records:
        events = decode(messages.wire_format, Record(key=item.key, value=item.value))
        size += sum(len(record.value or b"") for record in encode(messages.wire_format, events))
    return size


_FAST = "decode_batch"


def _decoders(messages: Messages) -> list[tuple[str, Callable[[], None]]]:
    records = [Record(key=item.key, value=item.value) for item in messages.records]
    batches = record_batches(messages)

    def reference() -> None:
        for record in records:
            decode(messages.wire_format, record)

    def columnar() -> None:
        for batch in batches:
            decode_batch(messages.wire_format, batch)

    return [("decode, the reference", reference), (_FAST, columnar)]


def record_batches(messages: Messages) -> list[pa.RecordBatch]:
    """Return the records as Arrow batches, as Spark would give them to `decode_batch`."""
    columns = {
        "topic": pa.array([item.topic for item in messages.records], pa.string()),
        "partition": pa.array([item.partition for item in messages.records], pa.int32()),
        "offset": pa.array([item.offset for item in messages.records], pa.int64()),
        "key": pa.array([item.key for item in messages.records], pa.binary()),
        "value": pa.array([item.value for item in messages.records], pa.binary()),
    }
    return pa.table(columns).to_batches(max_chunksize=BATCH_RECORDS)
