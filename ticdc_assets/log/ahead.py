"""Refuse timestamps too far in the future among decoded rows.

Every row change, DDL and watermark that is further ahead than the limit is replaced by an error.
One such watermark in each partition would move the cut there forever, and one such row change would
be applied only then.

Two clocks are used: this machine's clock at landing, and the clock that gave the record its Kafka
timestamp. A timestamp is refused only if it is too far ahead of both, so a single wrong clock does
not stop a changefeed (docs/decisions/0048-time-stamps-ahead.md). A Kafka timestamp that is years
ahead of this machine's clock is ignored.

Why decoding again gives the same: the landing time is stored with the record. Only a redrive reads
the clock again. If it accepts a record, its time is stored with the record's row in quarantine and
is that record's clock from then on.
"""

# Arrow makes its compute functions when it is imported, so the checker does not see them.
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_assets.model.tso import LOGICAL_BITS, MAX_TSO, from_datetime, physical_ms, to_datetime
from ticdc_assets.wire.rows import COORDINATES, ERROR, WATERMARK

TS_AHEAD: Final = "ts_ahead"
"""The reason of such rows in quarantine."""

BELIEVED_MS: Final = 10 * 365 * 86_400_000
"""How far ahead of this machine's clock a Kafka timestamp may be to count."""

_KEPT: Final = frozenset({*COORDINATES, "index", "kind"})
_FURTHEST_MS: Final = physical_ms(MAX_TSO)


def refuse_ahead(
    rows: pa.RecordBatch,
    *,
    clocks: pa.Array,
    timestamps: Callable[[], pa.Array],
    limit_seconds: float,
) -> pa.RecordBatch:
    """Return `rows`, with each event that is too far ahead replaced by an error.

    `clocks` has for each row this machine's clock when its record was landed, in microseconds, and
    `timestamps` returns Kafka's timestamp of its record in epoch milliseconds; it is only called if
    something is ahead of this machine's clock.
    """
    newest = pc.max(rows.column("commit_ts")).as_py()
    if newest is None or not is_ahead(newest, pc.min(clocks).as_py(), limit_seconds):
        return rows
    most_ms = limit_ms(limit_seconds)
    clock_ms = pc.divide(clocks.cast(pa.int64()), 1000)
    stamps = pc.fill_null(timestamps().cast(pa.int64()), -1)
    # The later of the two clocks counts.
    is_later = pc.greater(stamps, clock_ms)
    is_believed = pc.less_equal(stamps, pc.add(clock_ms, BELIEVED_MS))
    believed_ms = pc.if_else(pc.and_(is_later, is_believed), stamps, clock_ms)
    at_ms = pc.shift_right(rows.column("commit_ts"), LOGICAL_BITS)
    ahead = pc.fill_null(pc.greater(at_ms, pc.add(believed_ms, most_ms)), False)
    if not pc.any(ahead).as_py():
        return rows
    columns = {
        name: column if name in _KEPT else pc.if_else(ahead, pa.scalar(None, column.type), column)
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    }
    columns["kind"] = pc.if_else(ahead, pa.scalar(ERROR), rows.column("kind"))
    for name, texts in _errors(rows, ahead, believed_ms, limit_seconds).items():
        columns[name] = pc.if_else(ahead, texts, columns[name])
    return pa.RecordBatch.from_arrays(
        [columns[name].cast(rows.schema.field(name).type) for name in rows.schema.names],
        schema=rows.schema,
    )


def is_ahead(tso: int, at: datetime, limit_seconds: float) -> bool:
    """Return whether a TSO is further ahead of a moment than the limit."""
    return physical_ms(tso) > physical_ms(from_datetime(at)) + limit_ms(limit_seconds)


def limit_ms(seconds: float) -> int:
    """Return a limit in milliseconds."""
    # No TSO is further ahead than this, and sums stay far below 2^63.
    return round(min(seconds * 1000, _FURTHEST_MS))


def _errors(
    rows: pa.RecordBatch, ahead: pa.Array, believed_ms: pa.Array, limit_seconds: float
) -> dict[str, pa.Array]:
    """Return the error columns; null for rows without an error."""
    texts: dict[str, list[str | None]] = {
        name: [None] * rows.num_rows
        for name in ("error_reason", "error_position", "error_expected", "error_got")
    }
    for number in pc.indices_nonzero(ahead).to_pylist():
        at: Any = rows.column("commit_ts")[number].as_py()
        kind, es_only = (rows.column(name)[number].as_py() for name in ("kind", "es_only"))
        moment = datetime.fromtimestamp(believed_ms[number].as_py() / 1000, UTC)
        position = "watermark_ts" if kind == WATERMARK else "es" if es_only else "commit_ts"
        texts["error_reason"][number] = TS_AHEAD
        texts["error_position"][number] = position
        texts["error_expected"][number] = (
            f"at most {limit_seconds:g} s ahead of {moment:%Y-%m-%d %H:%M:%S} UTC"
        )
        sent = physical_ms(at) if es_only else at
        texts["error_got"][number] = f"{sent}, which is {to_datetime(at):%Y-%m-%d %H:%M:%S} UTC"
    return {name: pa.array(column, pa.string()) for name, column in texts.items()}
