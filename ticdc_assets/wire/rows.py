"""Rows of a batch of changes: the columns, and how decoded events become such rows.

In: events of one record, or the columns of rows of a batch decoder. Out: an Arrow batch with the
columns of `CHANGE_SCHEMA`, one row an event, in the order of the records; a record that is not a
message gives exactly one row of kind `error`.

Images, shapes, schemas and checksums are columns of JSON text. `image_to_json` and its like are the
one way to write them and `image_from_json` and its like the one way to read them, so a row means
the same whichever decoder wrote it. The same events give the same rows.
"""

# pyarrow has no type information, so what comes from it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportUnknownLambdaType=false

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeAlias, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ticdc_assets.base.errors import InputError, WireError
from ticdc_assets.model.events import (
    Bootstrap,
    Checksum,
    DdlEvent,
    Event,
    Image,
    PhysicalValue,
    RowChange,
    Watermark,
    ZonedTimestamp,
)
from ticdc_assets.model.schemas import (
    RowShape,
    TableSchema,
    schema_to_json,
    shape_from_json,
    shape_to_json,
)
from ticdc_assets.wire.record import Record

CHANGE_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("index", pa.int32()),
        ("kind", pa.string()),
        ("op", pa.string()),
        ("commit_ts", pa.int64()),
        ("build_ts_ms", pa.int64()),
        ("database", pa.string()),
        ("table", pa.string()),
        ("table_id", pa.int64()),
        ("schema_version", pa.int64()),
        ("before", pa.string()),
        ("after", pa.string()),
        ("handle_key_only", pa.bool_()),
        ("claim_check_location", pa.string()),
        ("checksum", pa.string()),
        ("shape", pa.string()),
        ("es_only", pa.bool_()),
        ("ddl_type", pa.string()),
        ("sql", pa.string()),
        ("schema", pa.string()),
        ("pre_schema", pa.string()),
        ("error_reason", pa.string()),
        ("error_position", pa.string()),
        ("error_expected", pa.string()),
        ("error_got", pa.string()),
    ]
)
"""Columns of a batch of changes."""

ROW: Final = "row"
DDL: Final = "ddl"
BOOTSTRAP: Final = "bootstrap"
WATERMARK: Final = "watermark"
ERROR: Final = "error"
SNAPSHOT: Final = "snapshot"
"""The values of column `kind`. No message has the last one: rows of exports have it."""

DAMAGED_ROW: Final = "row with a damaged image"
"""The count for rows whose shape says that they are damaged (`RowShape.damaged`)."""

OF_MIRRORS: Final = (ROW, SNAPSHOT)
"""Kinds of rows that mirrors are built from."""


COORDINATES: Final = ("topic", "partition", "offset")
"""The columns that identify a record."""
PLACE: Final = (*COORDINATES, "index")
"""The columns that identify a change."""
PLACE_SCHEMA: Final = pa.schema([CHANGE_SCHEMA.field(name) for name in PLACE])
"""These columns with their types."""
# Every row has the common columns; few have the rare ones, which are kept apart for speed.
COMMON: Final = tuple(CHANGE_SCHEMA.names[3:19])
"""Columns that each row has as a tuple, in this order."""
RARE: Final = tuple(CHANGE_SCHEMA.names[19:])
"""Columns that only DDL, bootstraps and errors have."""

Common: TypeAlias = tuple[Any, ...]
Rare: TypeAlias = tuple[str | bytes | None, ...]


def image_from_json(text: str | bytes) -> dict[str, PhysicalValue]:
    """Return the image that a column `before` or `after` holds as JSON text.

    Raises:
        msgspec.DecodeError: the text is not what `decode_batch` or `image_to_json` wrote.
    """
    return _decode_stored_image(text)


def image_to_json(image: Image) -> str:
    """Return `image` as the JSON text that `image_from_json` reads."""
    return _encode(dict(image)).decode()


def checksum_from_json(text: str | bytes) -> Checksum:
    """Return the checksums that a column `checksum` holds as JSON text.

    Raises:
        msgspec.DecodeError: the text is not what `decode_batch` wrote.
    """
    return _decode_stored_checksum(text)


def shape_text(shape: RowShape) -> str:
    """Return `shape` as the JSON text of the column `shape`."""
    return _encode(shape_to_json(shape)).decode()


def shape_from_text(text: str | bytes) -> RowShape:
    """Return the shape that a column `shape` holds as JSON text."""
    return shape_from_json(json.loads(text))


def counted_as(kind: str, shape: str | None) -> str:
    """Return the kind under which rows are counted; `shape` is the text of their shape."""
    is_damaged = kind == ROW and shape is not None and shape_from_text(shape).damaged
    return DAMAGED_ROW if is_damaged else kind


@dataclass(slots=True)
class Rows:
    """Output rows as they are collected.

    Attributes:
        sources: for each row the number of its record in the batch.
        common: for each row the values of the common columns.
        rare: the values of the rare columns, by number of the row.
    """

    sources: list[int] = field(default_factory=list[int])
    common: list[Common] = field(default_factory=list[Common])
    rare: dict[int, Rare] = field(default_factory=dict[int, Rare])

    def add(self, source: int, rows: Sequence[tuple[Common, Rare | None]]) -> None:
        """Add the rows of record number `source`, at least one."""
        for common, rare in rows:
            if rare is not None:
                self.rare[len(self.common)] = rare
            self.sources.append(source)
            self.common.append(common)

    def to_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with the coordinates of their records in `batch`."""
        length = len(self.common)
        whole = length == batch.num_rows
        columns: list[pa.Array[Any]] = [
            # Each record has at least one row, so with as many rows as records each has exactly
            # one.
            coordinate(batch.column(name), name, None if whole else self.sources)
            for name in COORDINATES
        ]
        values: Sequence[Sequence[Any]] = (
            list(zip(*self.common, strict=True)) if self.common else [()] * len(COMMON)
        )
        columns += [
            pa.array(values[number], CHANGE_SCHEMA.field(name).type)
            for number, name in enumerate(COMMON)
        ]
        columns += [self._rare(number, length) for number in range(len(RARE))]
        return pa.RecordBatch.from_arrays(columns, schema=CHANGE_SCHEMA)

    def _rare(self, number: int, length: int) -> "pa.Array[Any]":
        if not self.rare:
            return pa.nulls(length, pa.string())
        values: list[str | bytes | None] = [None] * length
        for row, rare in self.rare.items():
            values[row] = rare[number]
        return pa.array(values, pa.string())


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ExactRows:
    """Rows of the exact records of a batch, as columns.

    Attributes:
        sources: for each row the number of its record in the batch, in their order.
        columns: the columns of `CHANGE_SCHEMA` that these rows have, without coordinates; of the
            others, those of `_OF_ALL` are the same for all row changes, and the rest are null.
    """

    sources: npt.NDArray[np.int64]
    columns: Mapping[str, "pa.Array[Any]"]

    @property
    def records(self) -> int:
        """How many records the rows come from."""
        return int(np.count_nonzero(np.diff(self.sources, prepend=-1)))

    def to_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with the coordinates of their records in `batch`."""
        length = len(self.sources)
        every = np.array_equal(self.sources, np.arange(batch.num_rows))
        columns: list[pa.Array[Any]] = []
        for field_ in CHANGE_SCHEMA:
            if field_.name in COORDINATES:
                column = batch.column(field_.name)
                columns.append(coordinate(column, field_.name, None if every else self.sources))
            elif field_.name in self.columns:
                columns.append(self.columns[field_.name])
            else:
                value = pa.scalar(_OF_ALL.get(field_.name), field_.type)
                columns.append(pa.repeat(value, length))
        return pa.RecordBatch.from_arrays(columns, schema=CHANGE_SCHEMA)


_OF_ALL: Final[Mapping[str, Any]] = {
    "index": 0,
    "kind": ROW,
    "handle_key_only": False,
    "es_only": False,
}

_SHORT_RUN: Final = 32
"""Rows that are worth copying as one run; shorter runs are picked row by row."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SourcedRows:
    """Finished rows, and the records they come from.

    Attributes:
        sources: for each row the number of its record in the batch.
        rows: the rows, with the columns of `CHANGE_SCHEMA`.
    """

    sources: npt.NDArray[np.int64]
    rows: pa.RecordBatch

    def __post_init__(self) -> None:
        if len(self.sources) != self.rows.num_rows:
            raise ValueError(f"{len(self.sources)} sources for {self.rows.num_rows} rows")

    def joined(self, other: "SourcedRows") -> "SourcedRows":
        """Return these rows and others in the order of their records; no record is in both."""
        if not len(other.sources):
            return self
        if not len(self.sources):
            return other
        sources = np.concatenate([self.sources, other.sources])
        order = np.argsort(sources, kind="stable")
        own = len(self.sources)
        # A new run starts where the source changes.
        first = np.concatenate(
            [[0], np.flatnonzero((np.diff(order) != 1) | (order[1:] == own)) + 1]
        )
        if len(first) * _SHORT_RUN > len(order):
            rows = pa.concat_batches([self.rows, other.rows]).take(pa.array(order))
        else:
            runs = zip(
                order[first].tolist(), np.diff(first, append=len(order)).tolist(), strict=True
            )
            rows = pa.concat_batches(
                [
                    self.rows.slice(start, count)
                    if start < own
                    else other.rows.slice(start - own, count)
                    for start, count in runs
                ]
            )
        return SourcedRows(sources=sources[order], rows=rows)


def exact_and_others(
    batch: pa.RecordBatch,
    exact: ExactRows | None,
    decode: Callable[[Record], list[Event]],
) -> SourcedRows:
    """Return the rows of all records of `batch`: the exact ones, and those of the reference.

    Args:
        batch: the records.
        exact: the rows of exact records; None if no record is exact.
        decode: the reference decoder.
    """
    rest = np.ones(batch.num_rows, np.bool_)
    if exact is not None:
        rest[exact.sources] = False
    numbers = np.flatnonzero(rest)
    records = batch
    if len(numbers) < batch.num_rows:
        records = picked(batch, numbers, (*COORDINATES, "key", "value"))
    others = reference_rows(decode, records)
    sourced = SourcedRows(
        sources=numbers[np.array(others.sources, np.int64)], rows=others.to_batch(records)
    )
    if exact is None:
        return sourced
    return SourcedRows(sources=exact.sources, rows=exact.to_batch(batch)).joined(sourced)


def picked(
    batch: pa.RecordBatch, numbers: npt.NDArray[np.int64], names: Sequence[str]
) -> pa.RecordBatch:
    """Return the records with these numbers, and their columns with these names."""
    columns = [takeable(batch.column(name)).take(pa.array(numbers)) for name in names]
    return pa.RecordBatch.from_arrays(columns, names=list(names))


def takeable(column: "pa.Array[Any]") -> "pa.Array[Any]":
    """Return the same values in a type that rows can be taken from."""
    return column.cast(pa.large_binary()) if column.type == pa.binary_view() else column


def coordinate(
    column: "pa.Array[Any]", name: str, sources: "Sequence[int] | npt.NDArray[np.int64] | None"
) -> "pa.Array[Any]":
    """Return the coordinate `name` of rows from that of their records.

    Args:
        column: the coordinate of the records.
        name: its name.
        sources: for each row the number of its record; None if each record has one row.
    """
    wanted = CHANGE_SCHEMA.field(name).type
    if column.type != wanted:
        column = column.cast(wanted)
    return column if sources is None else column.take(pa.array(sources, pa.int64()))


def decoded_rows(
    decode: Callable[[Record], list[Event]], record: Record
) -> list[tuple[Common, Rare | None]]:
    """Return the rows that the reference decoder `decode` gives for `record`."""
    try:
        events = decode(record)
    except WireError as error:
        return error_rows(error)
    return [_ROWS_OF[type(event)](index, event) for index, event in enumerate(events)]


def reference_rows(decode: Callable[[Record], list[Event]], batch: pa.RecordBatch) -> Rows:
    """Return the rows that the reference decoder `decode` gives for the records of `batch`."""
    rows = Rows()
    # Schemas are sent to each partition, again and again; equal bytes are read once.
    said: dict[Record, list[tuple[Common, Rare | None]]] = {}
    keys, values = (batch.column(name).to_pylist() for name in ("key", "value"))
    for number, (key, value) in enumerate(zip(keys, values, strict=True)):
        record = Record(key=key, value=value)
        found = said.get(record)
        if found is None:
            found = said[record] = decoded_rows(decode, record)
        rows.add(number, found)
    return rows


_ERROR_ROW: Final[Common] = (0, ERROR, *(None,) * (len(COMMON) - 2))


def change_row(index: int, row: RowChange) -> tuple[Common, Rare | None]:
    """Return the row of one row change, the event number `index` of its record."""
    return _change_row(index, row)


def event_columns(event: Event) -> dict[str, Any]:
    """Return the columns of the row of an event that no record holds, without coordinates."""
    common, rare = _ROWS_OF[type(event)](0, event)
    columns: dict[str, Any] = dict(zip(COMMON, common, strict=True))
    return columns | dict(zip(RARE, rare or (None,) * len(RARE), strict=True))


def error_rows(error: InputError, *, index: int = 0) -> list[tuple[Common, Rare | None]]:
    """Return the one row of a record (or of its event number `index`) without events."""
    return [((index, *_ERROR_ROW[1:]), _error_rare(error))]


def _error_rare(error: InputError) -> Rare:
    return (None, None, None, None, error.reason, error.position, error.expected, error.got)


def _change_row(index: int, event: Event) -> tuple[Common, Rare | None]:
    row = cast(RowChange, event)
    return (
        index,
        ROW,
        row.op.value,
        row.commit_ts,
        row.build_ts_ms,
        row.database,
        row.table,
        row.table_id,
        row.schema_version,
        None if row.before is None else image_to_json(row.before),
        None if row.after is None else image_to_json(row.after),
        row.handle_key_only,
        row.claim_check_location,
        None if row.checksum is None else _encode(asdict(row.checksum)),
        None if row.shape is None else shape_text(row.shape),
        row.es_only,
    ), None


def _ddl_row(index: int, event: Event) -> tuple[Common, Rare | None]:
    ddl = cast(DdlEvent, event)
    named = ddl.schema or ddl.pre_schema
    common = (
        index,
        DDL,
        None,
        ddl.commit_ts,
        ddl.build_ts_ms,
        ddl.database,
        ddl.table,
        None if named is None else named.table_id,
        None if ddl.schema is None else ddl.schema.version,
        *(None,) * 6,
        ddl.es_only,
    )
    return common, (
        ddl.ddl_type,
        ddl.sql,
        _schema_text(ddl.schema),
        _schema_text(ddl.pre_schema),
        *(None,) * 4,
    )


def _bootstrap_row(index: int, event: Event) -> tuple[Common, Rare | None]:
    bootstrap = cast(Bootstrap, event)
    schema = bootstrap.schema
    cited = (None,) * 4
    if schema is not None:
        cited = (schema.database, schema.table, schema.table_id, schema.version)
    common = (index, BOOTSTRAP, None, None, bootstrap.build_ts_ms, *cited, *(None,) * 7)
    return common, (None, None, _schema_text(schema), *(None,) * 5)


def _watermark_row(index: int, event: Event) -> tuple[Common, Rare | None]:
    watermark = cast(Watermark, event)
    return (
        index,
        WATERMARK,
        None,
        watermark.watermark_ts,
        watermark.build_ts_ms,
        *(None,) * 11,
    ), None


_ROWS_OF: Final[Mapping[type[Event], Callable[[int, Event], tuple[Common, Rare | None]]]] = {
    RowChange: _change_row,
    DdlEvent: _ddl_row,
    Bootstrap: _bootstrap_row,
    Watermark: _watermark_row,
}


def _schema_text(schema: TableSchema | None) -> bytes | None:
    return None if schema is None else _encode(schema_to_json(schema))


_decode_stored_image: Final = msgspec.json.Decoder(dict[str, str | ZonedTimestamp | None]).decode
_decode_stored_checksum: Final = msgspec.json.Decoder(Checksum).decode
_encode: Final = msgspec.json.Encoder().encode
