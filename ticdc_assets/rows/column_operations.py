"""Row operations, one column at a time: from batches of the change log, without Python rows.

In: an Arrow batch of change log rows of one mirror. Out: the operations of the exact rows, and
the other rows, which `mirror_rows` resolves one by one. The way depends only on the row and the
mirror's plan, and both ways give the same operations.

A change is exact if its images are complete, its schema has the same columns as the schema at the
cut, no later schema step or partition DDL affects it, and all its values are exact
(`values.columns`).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_assets.changelog.resolve import RowResolver
from ticdc_assets.changelog.sequence import DELETE_RANK, PUT_RANK
from ticdc_assets.model.events import Op
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.model.values import key_text, text_of
from ticdc_assets.model.values.column_loops import ABSENT, NULL, TEXT
from ticdc_assets.model.values.columns import TypedColumn, typed_column
from ticdc_assets.model.values.zones import CHANGEFEED_ZONE_NAMES
from ticdc_assets.rows.mirror_rows import SHAPE
from ticdc_assets.rows.row_operations import SEQUENCE_TYPE, operation_schema
from ticdc_assets.wire.image_reading import ImageReader, Images
from ticdc_assets.wire.rows import shape_from_text

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


class ColumnOperations:
    """Builds operations of exact changes of one mirror, which must have a key.

    Args:
        resolver: resolves the other changes.
        schema: the mirror's schema.
        timezone: the changefeed's time zone (IANA name).
    """

    def __init__(self, resolver: RowResolver, schema: TableSchema, timezone: str) -> None:
        self._resolver = resolver
        self._schema = operation_schema(schema)
        names = [column.name for column in schema.columns]
        self._names = names
        self._converters = [typed_column(column, timezone) for column in schema.columns]
        self._key = [names.index(name) for name in schema.handle_key]
        self._key_set = frozenset(self._key)
        self._key_columns = [schema.columns[number] for number in self._key]
        self._key_texts = [text_of(column, timezone) for column in self._key_columns]
        self._reader = ImageReader(names, CHANGEFEED_ZONE_NAMES | {timezone})

    def operations(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch | None, pa.RecordBatch]:
        """Return the operations of the exact rows of `batch`, or None, and the other rows."""
        rows = self._candidates(batch)
        chosen = _taken(batch, rows)
        before, after = (np.asarray(chosen.column(name).is_valid()) for name in ("before", "after"))
        images = self._reader.read([chosen.column("before"), chosen.column("after")])
        if images is None or not len(rows):
            return None, batch
        # Numbers of each row's images, the images before first; undefined where it has none.
        old = np.cumsum(before) - 1
        new = np.cumsum(after) - 1 + np.count_nonzero(before)
        typed = self._typed(images, old[before & after], new[before & after])
        is_exact = images.exact
        for number, column in enumerate(typed):
            is_exact &= column.exact
            if number in self._key_set:
                is_exact &= images.forms[number] > NULL
        exact = (~before | is_exact[old]) & (~after | is_exact[new])
        others = np.ones(batch.num_rows, np.bool_)
        others[rows[exact]] = False
        old, new = np.where(before & exact, old, _NONE), np.where(after & exact, new, _NONE)
        return self._built(chosen, images, typed, old, new), batch.filter(pa.array(others))

    def _candidates(self, batch: pa.RecordBatch) -> Numbers:
        """Return the numbers of the rows that may be exact, before their images are read."""
        before = np.asarray(batch.column("before").is_valid())
        after = np.asarray(batch.column("after").is_valid())
        # A change without an op, or with an unknown one, is not exact.
        ops = batch.column("op").dictionary_encode()
        known = [_NUMBERS.get(op, _NONE) for op in ops.dictionary.to_pylist()]
        op = np.array([*known, _NONE])[ops.indices.fill_null(len(known)).to_numpy()]
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
        version = batch.column("schema_version").dictionary_encode()
        above = [self._resolver.kept_above(item) for item in version.dictionary.to_pylist()]
        cited = version.indices.fill_null(len(above)).to_numpy()
        good &= stamps > np.array([*above, 0], np.int64)[cited]
        cites_none = np.flatnonzero(cited == len(above))
        if len(cites_none):
            stamps = stamps[cites_none]
            numbers = np.searchsorted(np.array(self._resolver.bounds(), np.int64), stamps)
            _, firsts, indices = np.unique(numbers, return_index=True, return_inverse=True)
            above = [self._resolver.kept_above(None, int(stamps[first])) for first in firsts]
            good[cites_none] &= stamps > np.array(above, np.int64)[indices]
        return np.flatnonzero(good)

    def _typed(self, images: Images, old: Numbers, new: Numbers) -> list[TypedColumn]:
        """Return the columns of all images; `old` and `new` are those of one row each."""
        # An image before may have only the changed columns.
        counts, exact = images.counts, images.exact
        shorter = exact[old] & exact[new] & (counts[old] < counts[new])
        if shorter.any():
            images.filled(old[shorter], new[shorter])
        return [convert(images.column(number)) for number, convert in enumerate(self._converters)]

    def _built(
        self,
        rows: pa.RecordBatch,
        images: Images,
        typed: Sequence[TypedColumn],
        old: Numbers,
        new: Numbers,
    ) -> pa.RecordBatch:
        """Return the operations of rows.

        Args:
            rows: the rows.
            images: their images.
            typed: the columns of the images.
            old: for each row the number of its image before, `_NONE` for none.
            new: the same of its image after.
        """
        has_old, has_new = old != _NONE, new != _NONE
        keys = self._keys(images, typed, np.concatenate([old[has_old], new[has_new]]))
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
        is_new = np.isin(rows.column("op"), [Op.INSERT.value, Op.SNAPSHOT.value])[order]

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
            "is_new": pa.array(is_new),
            "is_partial": pa.array(np.zeros(size, np.bool_)),
            "missing": column(self._missing(images), is_key=False),
            **{
                f"c{number}": column(item.array, is_key=number in self._key_set)
                for number, item in enumerate(typed)
            },
        }
        return pa.RecordBatch.from_arrays(
            [
                values[field.name] if field.name in values else pa.nulls(size, field.type)
                for field in self._schema
            ],
            schema=self._schema,
        )

    def _keys(
        self, images: Images, typed: Sequence[TypedColumn], chosen: Numbers
    ) -> "pa.Array[Any]":
        """Return the identities of all images, null but for those chosen."""
        forms = images.forms[self._key][:, chosen]
        if all(typed[number].is_verbatim for number in self._key) and (forms == TEXT).all():
            keys = images.keys(self._key, chosen)
        else:
            columns = [
                map(render, _taken(typed[number].array, chosen).to_pylist())
                for number, render in zip(self._key, self._key_texts, strict=True)
            ]
            keys = pa.array(
                [
                    "=" + key_text(values, self._key_columns)
                    for values in zip(*columns, strict=True)
                ],
                pa.string(),
            )
        count = images.forms.shape[1]
        places = np.full(count, _NONE, np.int64)
        places[chosen] = np.arange(len(chosen))
        return _taken(keys, places, places == _NONE)

    def _missing(self, images: Images) -> "pa.Array[Any]":
        """Return which columns each image lacks, null for none."""
        kind = self._schema.field("missing").type
        lacking = np.flatnonzero(images.exact & (images.counts < len(self._names)))
        if not len(lacking):
            return pa.nulls(len(images.counts), kind)
        patterns, which = np.unique(images.forms[:, lacking] == ABSENT, axis=1, return_inverse=True)
        lists = pa.array(
            [
                [name for name, lacks in zip(self._names, pattern, strict=True) if lacks]
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
