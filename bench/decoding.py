"""Decoding in one process: both decoders, and json.loads of the same documents as the measure."""

import json

import pyarrow as pa

from bench.measuring import measure
from bench.messages import Messages
from bench.results import FASTER, Result
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets.wire.batch import decode_batch
from ticdc_assets.wire.record import Record

SECTION = "Decoding, one process, no Spark"
BATCH_RECORDS = 5_000
"""As many records as Spark gives in one Arrow batch (`lake.session`)."""


def measure_decoding(messages: Messages, *, repetitions: int) -> list[Result]:
    """Return how fast the decoders are, beside json.loads."""
    records = [Record(key=item.key, value=item.value) for item in messages.records]
    values = [item.value for item in messages.records if item.value is not None]
    batches = record_batches(messages)

    def loads() -> None:
        for value in values:
            json.loads(value)

    def reference() -> None:
        for record in records:
            decode(WireFormat.SIMPLE_JSON, record)

    def columnar() -> None:
        for batch in batches:
            decode_batch(WireFormat.SIMPLE_JSON, batch)

    floor = measure(loads, repetitions=repetitions)
    results = [
        Result(
            section=SECTION,
            what="json.loads of the same documents",
            sample=floor,
            count=len(values),
            unit="messages",
        )
    ]
    for what, work in (("decode, the reference", reference), ("decode_batch", columnar)):
        sample = measure(work, repetitions=repetitions)
        results.append(
            Result(
                section=SECTION,
                what=what,
                sample=sample,
                count=len(values),
                unit="messages",
                base=floor,
                compared=f"{FASTER} json.loads",
            )
        )
    return results


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
