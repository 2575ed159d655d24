"""Decoding through to typed columns, in one process: messages to operations of a fold.

What decoding costs and what a fold's Python part costs (row changes to operations with typed
columns) is measured apart, and both together beside a plain reading of the same documents.

It runs in Spark's workers; here the same function (`change_operations`) gets the same Arrow batches
in this process, so that it can be measured and profiled without Spark around it.
"""

from collections.abc import Callable
from functools import partial

import pyarrow as pa

from bench.decoding import messages_like, plain_reading, record_batches
from bench.goals import goal_of
from bench.measuring import measure_in_turn
from bench.messages import Messages
from bench.results import FASTER, Result
from bench.traffic import TEXT_FORMATS
from ticdc_assets.changelog.plan import MirrorPlan
from ticdc_assets.changelog.planning import build_plan
from ticdc_assets.model.events import RowChange
from ticdc_assets.model.tso import MAX_TSO
from ticdc_assets.registry.history import Coordinates
from ticdc_assets.rows.mirror_rows import change_operations
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets.wire.batch import decode_batch
from ticdc_assets.wire.record import Record
from ticdc_assets_tests.reference.fold import collect_history, group_rows

entry = partial(Result, "Through to typed columns, one process, no Spark")


def measure_folding(messages: Messages, *, repetitions: int) -> list[Result]:
    """Return how fast messages become typed operations, beside json.loads of the messages.

    Args:
        messages: in the Simple protocol in JSON; those of the other formats are loaded here.
        repetitions: of each piece.
    """
    results: list[Result] = []
    for wire_format in TEXT_FORMATS:
        own = messages_like(messages, wire_format)
        reading = plain_reading(own)
        batches = record_batches(own)

        def decode_all(
            wire_format: WireFormat = wire_format, batches: list[pa.RecordBatch] = batches
        ) -> None:
            for batch in batches:
                decode_batch(wire_format, batch)

        floor, decoding, operations = measure_in_turn(
            [reading.work, decode_all, fold_work(own)], repetitions=repetitions
        )
        compared = f"{FASTER} json.loads"
        results += [
            entry(
                f"{wire_format}: row changes to operations with typed columns",
                operations,
                own.rows,
                base=floor,
                compared=compared,
            ),
            entry(
                f"{wire_format}: messages to operations with typed columns",
                decoding.plus(operations),
                own.rows,
                base=floor,
                compared=compared,
                goal=goal_of("typed", wire_format),
            ),
        ]
    return results


def fold_work(messages: Messages) -> Callable[[], None]:
    """Return the work of making operations of all row changes, for every mirror."""
    plans = mirror_plans(messages)
    changes = changes_of(messages)

    def work() -> None:
        for plan in plans:
            for _ in change_operations(plan, "UTC")(iter(changes.get(plan.name, []))):
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
            decode(messages.wire_format, Record(key=item.key, value=item.value))
        )
    ]
    groups = group_rows(item for item in events if isinstance(item[1], RowChange))
    history = collect_history(events, "UTC")
    return list(build_plan(history, groups, MAX_TSO, "UTC").mirrors)


def changes_of(messages: Messages) -> dict[tuple[str, str], list[pa.RecordBatch]]:
    """Return the row changes of each table as batches of the change log."""
    log = pa.Table.from_batches(
        decode_batch(messages.wire_format, batch) for batch in record_batches(messages)
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
