"""The Python part of a fold, in one process: row changes to effects with typed columns.

It runs in Spark's workers; here the same function (`change_effects`) gets the same Arrow batches in
this process, so that it can be measured and profiled without Spark around it.
"""

import json
from collections.abc import Callable

import pyarrow as pa

from bench.decoding import record_batches
from bench.measuring import measure
from bench.messages import Messages
from bench.results import FASTER, Result
from ticdc_assets.changelog.fold import collect_history, group_rows
from ticdc_assets.changelog.plan import MirrorPlan, build_plan
from ticdc_assets.events import RowChange
from ticdc_assets.lake.mirror_rows import change_effects
from ticdc_assets.registry.history import Coordinates
from ticdc_assets.tso import MAX_TSO
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets.wire.batch import decode_batch
from ticdc_assets.wire.record import Record

SECTION = "Folding, one process, no Spark"


def measure_folding(messages: Messages, *, repetitions: int) -> list[Result]:
    """Return how fast row changes become typed effects, beside json.loads of the messages."""
    values = [item.value for item in messages.records if item.value is not None]

    def loads() -> None:
        for value in values:
            json.loads(value)

    floor = measure(loads, repetitions=repetitions)
    effects = measure(fold_work(messages), repetitions=repetitions)
    return [
        Result(
            section=SECTION,
            what="row changes to effects with typed columns",
            sample=effects,
            count=messages.rows,
            unit="changes",
            base=floor,
            compared=f"{FASTER} json.loads",
        )
    ]


def fold_work(messages: Messages) -> Callable[[], None]:
    """Return the work of making effects of all row changes, for every mirror."""
    plans = mirror_plans(messages)
    changes = changes_of(messages)

    def work() -> None:
        for plan in plans:
            for _ in change_effects(plan, "UTC")(iter(changes.get(plan.name, []))):
                pass

    return work


def mirror_plans(messages: Messages) -> list[MirrorPlan]:
    """Return the plans of all mirrors that the messages make."""
    events = [
        (
            Coordinates(
                topic=item.topic, partition=item.partition, offset=item.offset, index=index
            ),
            event,
        )
        for item in messages.records
        for index, event in enumerate(
            decode(WireFormat.SIMPLE_JSON, Record(key=item.key, value=item.value))
        )
    ]
    rows = (entry for entry in events if isinstance(entry[1], RowChange))
    return list(
        build_plan(collect_history(events, "UTC"), group_rows(rows), MAX_TSO, "UTC").mirrors
    )


def changes_of(messages: Messages) -> dict[tuple[str, str], list[pa.RecordBatch]]:
    """Return the row changes of each table as batches of the change log."""
    log = pa.Table.from_batches(
        decode_batch(WireFormat.SIMPLE_JSON, batch) for batch in record_batches(messages)
    )
    changes: dict[tuple[str, str], list[pa.RecordBatch]] = {}
    names = list(
        zip(
            log["kind"].to_pylist(),
            log["database"].to_pylist(),
            log["table"].to_pylist(),
            strict=True,
        )
    )
    for kind, database, table in sorted({name for name in names if name[0] == "row"}):
        mask = pa.array([name == (kind, database, table) for name in names])
        changes[database, table] = log.filter(mask).combine_chunks().to_batches()
    return changes
