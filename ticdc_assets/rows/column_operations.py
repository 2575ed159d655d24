"""Row operations, one column at a time: from batches of the change log, without Python rows.

In: an Arrow batch of change log rows of one mirror. Out: the operations of the exact rows, and
the other rows, which `mirror_rows` resolves one by one. The way depends only on the row and the
mirror's plan, and both ways give the same operations.

A change is exact if its images are complete, later schema steps cast none of its columns, no
partition DDL removed its row, and all its values are exact (`values.columns`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_assets.changelog.carrying import RowCarrier
from ticdc_assets.changelog.resolve import DELETE_RANK, PUT_RANK, RowResolver
from ticdc_assets.delta.row_schema import filled_batch
from ticdc_assets.model.events import Op
from ticdc_assets.model.mysql_types import arrow_type
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.model.values import key_text
from ticdc_assets.model.values.column_loops import ABSENT, NULL, TEXT, ZONED
from ticdc_assets.model.values.columns import Places, TypedColumn, typed_column
from ticdc_assets.model.values.zones import CHANGEFEED_ZONE_NAMES
from ticdc_assets.rows import mirror_rows
from ticdc_assets.rows.mirror_rows import SHAPE, sources_of
from ticdc_assets.rows.row_operations import SEQUENCE_TYPE, operation_schema
from ticdc_assets.wire.image_reading import ImageReader, Images
from ticdc_assets.wire.rows import shape_from_text

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """How rows of a schema version are read.

    Attributes:
        names: the columns of the version.
        reader: finds their values in images.
        converters: make typed columns of them.
        sources: for each column of the mirror the number of the column that it comes from, or the
            value of all rows.
    """

    names: Sequence[str]
    reader: ImageReader
    converters: Sequence[Callable[[Places], TypedColumn]]
    sources: Sequence["int | pa.Array[Any]"]


class ColumnOperations:
    """Builds operations of exact changes of one mirror.

    Args:
        resolver: resolves the other changes.
        schema: the mirror's schema.
        timezone: the changefeed's time zone (IANA name).
    """

    def __init__(self, resolver: RowResolver, schema: TableSchema, timezone: str) -> None:
        self._resolver = resolver
        self._timezone = timezone
        self._schema = operation_schema(schema)
        self._table = schema
        names = [column.name for column in schema.columns]
        self._is_bag = not schema.handle_key
        self._key = [names.index(name) for name in schema.identity]
        self._key_set = frozenset(self._key)
        self._key_columns = [schema.columns[number] for number in self._key]
        self._readings: dict[int, _Reading | None] = {}

    def operations(self, batch: pa.RecordBatch) -> tuple[list[pa.RecordBatch], pa.RecordBatch]:
        """Return the operations of the exact rows of `batch`, and the other rows."""
        rows, numbers = self._candidates(batch)
        others = np.ones(batch.num_rows, np.bool_)
        batches: list[pa.RecordBatch] = []
        distinct = np.unique(numbers).tolist()
        for number in distinct:
            version_rows = rows[numbers == number]
            if len(distinct) > 1 and len(version_rows) < mirror_rows.COLUMN_ROWS:
                continue
            if number not in self._readings:
                self._readings[number] = self._reading_of(*self._resolver.version(number))
            reading = self._readings[number]
            if reading is not None:
                operations, exact = self._operations_of(_taken(batch, version_rows), reading)
                batches += operations
                others[version_rows[exact]] = False
        return batches, batch if others.all() else batch.filter(pa.array(others))

    def _reading_of(self, version: TableSchema, carrier: RowCarrier) -> _Reading | None:
        """Return how rows of a schema version are read; None if one by one."""
        sources = sources_of(carrier.origins(), version.columns, self._table, self._timezone)
        if sources is None:
            return None
        names = [column.name for column in version.columns]
        return _Reading(
            names=names,
            reader=ImageReader(names, CHANGEFEED_ZONE_NAMES | {self._timezone}),
            converters=[typed_column(column, self._timezone) for column in version.columns],
            sources=sources,
        )

    def _operations_of(
        self, chosen: pa.RecordBatch, reading: _Reading
    ) -> tuple[list[pa.RecordBatch], Flags]:
        """Return the operations of the exact rows of some candidates, and which are exact."""
        before, after = (np.asarray(chosen.column(name).is_valid()) for name in ("before", "after"))
        images = reading.reader.read([chosen.column("before"), chosen.column("after")])
        if images is None:
            return [], np.zeros(chosen.num_rows, np.bool_)
        # Numbers of each row's images, the images before first; undefined where it has none.
        old = np.cumsum(before) - 1
        new = np.cumsum(after) - 1 + np.count_nonzero(before)
        counts, is_exact = images.counts, images.exact
        # An image before may have only the changed columns.
        one, other = old[before & after], new[before & after]
        shorter = is_exact[one] & is_exact[other] & (counts[one] < counts[other])
        if shorter.any():
            images.filled(one[shorter], other[shorter])
            counts[one[shorter]] = counts[other[shorter]]
        converters = enumerate(reading.converters)
        typed = [convert(images.column(number)) for number, convert in converters]
        for column in typed:
            is_exact &= column.exact
        if self._is_bag:
            # An incomplete image may identify no row.
            is_exact &= images.counts == len(reading.names)
        else:
            for number in self._key:
                is_exact &= images.forms[reading.sources[number]] > NULL
        exact = (~before | is_exact[old]) & (~after | is_exact[new])
        old, new = np.where(before & exact, old, _NONE), np.where(after & exact, new, _NONE)
        return [self._built(chosen, images, reading, typed, old, new)], exact

    def _candidates(self, batch: pa.RecordBatch) -> tuple[Numbers, Numbers]:
        """Return which rows may be exact, before their images are read.

        The second array has the number of the schema version that each of them is read with.
        """
        before = np.asarray(batch.column("before").is_valid())
        after = np.asarray(batch.column("after").is_valid())
        # A change without an op, or with an unknown one, is not exact.
        ops = batch.column("op").dictionary_encode()
        codes = [_NUMBERS.get(op, _NONE) for op in ops.dictionary.to_pylist()]
        op = np.array([*codes, _NONE])[ops.indices.fill_null(len(codes)).to_numpy()]
        inserts, updates, deletes, exported = (op == number for number in _NUMBERS.values())
        inserts |= exported
        good = (after & ((inserts & ~before) | updates)) | (deletes & before & ~after)
        good &= ~np.asarray(batch.column("handle_key_only").fill_null(False))
        if SHAPE in batch.schema.names:
            shapes = batch.column(SHAPE).dictionary_encode()
            as_sent = [
                self._resolver.takes_as_sent(shape_from_text(text))
                for text in shapes.dictionary.to_pylist()
            ]
            good &= np.array([*as_sent, True])[shapes.indices.fill_null(len(as_sent)).to_numpy()]
        stamps = np.asarray(batch.column("commit_ts"))
        versions = np.array(self._resolver.versions, np.int64)
        cites = np.asarray(batch.column("schema_version").is_valid())
        cited = batch.column("schema_version").fill_null(0).to_numpy()
        numbers = np.searchsorted(versions, np.where(cites, cited, stamps))
        # A row at a DDL's commit ts was committed before it.
        numbers = np.where(cites, numbers, np.maximum(numbers - 1, 0))
        numbers[numbers == len(versions)] = 0
        good &= ~cites | (versions[numbers] == cited)
        distinct, places = np.unique(numbers, return_inverse=True)
        carriers = [self._resolver.version(number)[1] for number in distinct.tolist()]
        above = np.array([carrier.kept_above() for carrier in carriers], np.int64)
        good &= stamps > above[places]
        rows = np.flatnonzero(good)
        return rows, numbers[rows]

    def _built(
        self,
        rows: pa.RecordBatch,
        images: Images,
        reading: _Reading,
        typed: Sequence[TypedColumn],
        old: Numbers,
        new: Numbers,
    ) -> pa.RecordBatch:
        """Return the operations of rows.

        `old` and `new` are the numbers of each row's images before and after, `_NONE` for none.
        """
        has_old, has_new = old != _NONE, new != _NONE
        chosen = np.concatenate([old[has_old], new[has_new]])
        columns = [
            typed[source].array.cast(arrow_type(column))
            if isinstance(source, int)
            else mirror_rows.repeated(source, len(images.counts))
            for source, column in zip(reading.sources, self._table.columns, strict=True)
        ]
        keys = self._keys(images, reading, typed, columns, chosen)
        if not self._is_bag:
            # A row that keeps its identity is replaced, and needs no delete.
            both = np.flatnonzero(has_old & has_new)
            one, other = keys.take(pa.array(old[both])), keys.take(pa.array(new[both]))
            same = np.asarray(pc.fill_null(pc.equal(one, other), False))
            has_old[both[same]] = False
        puts, deletes = np.flatnonzero(has_new), np.flatnonzero(has_old)
        order = np.concatenate([puts, deletes])
        put, gone = new[puts], old[deletes]
        size = len(order)
        is_delete = np.ones(size, np.bool_)
        is_delete[: len(puts)] = False
        es_only = np.asarray(rows.column("es_only").fill_null(False))[order]
        ranks = np.where(is_delete | es_only, DELETE_RANK, PUT_RANK).astype(np.int32)
        sequence = [
            pa.array(ranks)
            if field.name == "rank"
            else _taken(rows.column(field.name), order).cast(field.type)
            for field in SEQUENCE_TYPE
        ]

        def column(values: Any, *, is_key: bool) -> Any:
            # Only the key of a deleted row is known.
            parts = [
                _taken(values, put),
                _taken(values, gone) if is_key else pa.nulls(len(gone), values.type),
            ]
            return pa.concat_arrays(parts) if len(gone) else parts[0]

        values = {
            "key": column(keys, is_key=True),
            "sequence": pa.StructArray.from_arrays(sequence, fields=list(SEQUENCE_TYPE)),
            "is_delete": pa.array(is_delete),
            "is_partial": False,
            "missing": column(self._missing(images, reading), is_key=False),
            **{
                f"c{number}": column(item, is_key=number in self._key_set)
                for number, item in enumerate(columns)
            },
        }
        return filled_batch(self._schema, size, values)

    def _keys(
        self,
        images: Images,
        reading: _Reading,
        typed: Sequence[TypedColumn],
        columns: "Sequence[pa.Array[Any]]",
        chosen: Numbers,
    ) -> "pa.Array[Any]":
        """Return the identities of all images, null but for those chosen."""
        sources = [reading.sources[number] for number in self._key]
        sent = [item for item in sources if isinstance(item, int) and typed[item].is_verbatim]
        if len(sent) == len(sources) and (images.forms[sent][:, chosen] == TEXT).all():
            keys = images.keys(sent, chosen)
        else:
            texts: list[list[str | None]] = []
            for number, column in zip(self._key, self._key_columns, strict=True):
                source = reading.sources[number]
                if source in sent and not (images.forms[source] == ZONED).any():
                    texts.append(_taken(images.column(source).strings()[0], chosen).to_pylist())
                else:
                    values = _taken(columns[number], chosen)
                    texts.append(mirror_rows.canonical_texts(values, column, self._timezone))
            keys = pa.array(
                ["=" + key_text(values, self._key_columns) for values in zip(*texts, strict=True)],
                pa.string(),
            )
        count = images.forms.shape[1]
        places = np.full(count, _NONE, np.int64)
        places[chosen] = np.arange(len(chosen))
        return _taken(keys, places, places == _NONE)

    def _missing(self, images: Images, reading: _Reading) -> "pa.Array[Any]":
        """Return which columns of the mirror each image lacks, null for none."""
        kind = self._schema.field("missing").type
        columns = [*zip(self._table.columns, reading.sources, strict=True)]
        # An added virtual column is in no row.
        is_added = any(item.virtual for item, source in columns if not isinstance(source, int))
        is_short = images.counts < len(reading.names)
        lacking = np.flatnonzero(images.exact & (is_short | is_added))
        if not len(lacking):
            return pa.nulls(len(images.counts), kind)
        absent = [
            images.forms[source, lacking] == ABSENT
            if isinstance(source, int)
            else np.full(len(lacking), item.virtual)
            for item, source in columns
        ]
        patterns, which = np.unique(np.array(absent), axis=1, return_inverse=True)
        lists = pa.array(
            [
                [item.name for (item, _), lacks in zip(columns, pattern, strict=True) if lacks]
                or None
                for pattern in patterns.T.tolist()
            ],
            kind,
        )
        indices = np.full(len(images.counts), _NONE, np.int64)
        indices[lacking] = which.reshape(-1)
        return _taken(lists, indices, indices == _NONE)


_NONE = -1
_NUMBERS = {op.value: number for number, op in enumerate(Op)}


def _taken(rows: Any, numbers: Numbers, absent: Flags | None = None) -> Any:
    """Return rows of an array or a batch by number; null where `absent`."""
    if absent is not None and absent.any():
        return rows.take(pa.array(numbers, mask=absent))
    count = len(numbers)
    # Rows that are adjacent are not copied.
    if count and (numbers == np.arange(numbers[0], numbers[0] + count)).all():
        return rows.slice(int(numbers[0]), count)
    return rows.take(pa.array(numbers))
