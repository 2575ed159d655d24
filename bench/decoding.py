"""Decoding in one process: both decoders of every format, beside json.loads of Simple's documents.

The measure is the same for all formats: what it costs to parse a row change of the Simple protocol
in JSON, and nothing else. The rates are of row changes; those of Open Protocol and Craft hold
several in a record.
"""

import json
from collections.abc import Callable

import pyarrow as pa

from bench.measuring import measure
from bench.messages import Messages, load_messages
from bench.results import FASTER, Result
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets.wire.batch import decode_batch
from ticdc_assets.wire.record import Record

SECTION = "Decoding, one process, no Spark"
BATCH_RECORDS = 5_000
"""As many records as Spark gives in one Arrow batch (`lake.session`)."""


def measure_decoding(messages: Messages, *, repetitions: int) -> list[Result]:
    """Return how fast the decoders of every format are, beside json.loads.

    Args:
        messages: in the Simple protocol in JSON; those of the other formats are loaded here.
        repetitions: of each piece.
    """
    values = [item.value for item in messages.records if item.value is not None]

    def loads() -> None:
        for value in values:
            json.loads(value)

    floor = measure(loads, repetitions=repetitions)
    results = [
        Result(
            section=SECTION,
            what="json.loads of documents of the Simple protocol",
            sample=floor,
            count=messages.rows,
            unit="rows",
        )
    ]
    for wire_format in WireFormat:
        own = (
            messages
            if wire_format is messages.wire_format
            else load_messages(len(messages.records), wire_format).up_to_rows(messages.rows)
        )
        # As if there were as many rows as in the documents that the measure parses.
        base = floor.scaled(own.rows / messages.rows)
        for what, work in _decoders(own):
            results.append(
                Result(
                    section=SECTION,
                    what=f"{wire_format}: {what}",
                    sample=measure(work, repetitions=repetitions),
                    count=own.rows,
                    unit="rows",
                    base=base,
                    compared=f"{FASTER} json.loads",
                )
            )
    return results


def _decoders(messages: Messages) -> list[tuple[str, Callable[[], None]]]:
    records = [Record(key=item.key, value=item.value) for item in messages.records]
    batches = record_batches(messages)

    def reference() -> None:
        for record in records:
            decode(messages.wire_format, record)

    def columnar() -> None:
        for batch in batches:
            decode_batch(messages.wire_format, batch)

    return [("decode, the reference", reference), ("decode_batch", columnar)]


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
