"""The fields of rows of exports: where they are, and their values without escapes.

In: rows from `rows.read_rows`. Out: `Fields`: each row's fault, and for each column the bytes of
its values. Any bytes give fields or a fault. Pure.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ticdc_assets.source.exports import export_loops as loops
from ticdc_assets.source.exports.dialect import CsvDialect

Numbers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

FAULTS: Final = {
    loops.TOO_FEW: "fewer fields than columns",
    loops.TOO_MANY: "more fields than columns",
    loops.OPEN_TEXT: "a text that does not end",
    loops.BEHIND_TEXT: "bytes after the end of a text",
    loops.NO_VALUE: "no value between separators",
}
"""The faults of rows, by number."""

_EMPTY: Final = np.frombuffer(b"", np.uint8)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Fields:
    """The fields of some rows.

    Attributes:
        faults: for each row 0 or its fault (`FAULTS`).
    """

    faults: Bytes
    _data: Bytes
    _fields: loops.Fields
    _quote: Bytes

    @classmethod
    def of_csv(cls, rows: "pa.Array[Any]", width: int, dialect: CsvDialect) -> "Fields":
        """Return the fields of rows of CSV files, which should have `width` of them."""
        data, places = _bytes_of_rows(rows)
        return cls._of_csv(data, places, _room(width, len(rows)), dialect)

    @classmethod
    def _of_csv(
        cls, data: Bytes, places: Numbers, fields: loops.Fields, dialect: CsvDialect
    ) -> "Fields":
        faults, style = np.zeros(len(places) - 1, np.uint8), style_of(dialect)
        loops.csv_fields(data, places, style, fields, faults)
        return cls(faults=faults, _data=data, _fields=fields, _quote=style.quote)

    @classmethod
    def of_sql(cls, rows: "pa.Array[Any]", width: int, dialect: CsvDialect) -> "Fields":
        """Return the fields of rows of SQL files, which should have `width` of them."""
        data, places = _bytes_of_rows(rows)
        fields, faults = _room(width, len(rows)), np.zeros(len(rows), np.uint8)
        loops.sql_fields(data, places, dialect.backslash, fields, faults)
        return cls(faults=faults, _data=data, _fields=fields, _quote=bytes_of("'"))

    @classmethod
    def header(cls, row: bytes, dialect: CsvDialect) -> tuple[str, ...]:
        """Return the names in the first row of a CSV file."""
        fields = _room(row.count(dialect.separator.encode()) + 1, 1)
        fields.begins[:] = -1
        data, places = np.frombuffer(row, np.uint8), np.array([0, len(row)])
        found = cls._of_csv(data, places, fields, dialect)
        found.faults[:] = loops.GOOD
        count = int(np.count_nonzero(fields.begins[:, 0] >= 0))
        values = [found.values(number)[0][0].as_py() or b"" for number in range(count)]
        return tuple(value.decode("utf-8", "replace") for value in values)

    def values(self, number: int) -> tuple["pa.Array[Any]", npt.NDArray[np.bool_]]:
        """Return the values of a column as bytes, and which are digits of a hexadecimal literal.

        Values of rows with a fault are null.
        """
        begins, ends, forms = (item[number] for item in self._fields)
        forms = np.where(self.faults == loops.GOOD, forms, loops.NULL)
        is_null = forms == loops.NULL
        size = int(np.where(is_null, 0, ends - begins).sum())
        content, offsets = np.empty(size, np.uint8), np.empty(len(begins) + 1, np.int64)
        loops.values(
            self._data, begins, ends, forms.astype(np.uint8), self._quote, content, offsets
        )
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
        every = pa.Array.from_buffers(pa.large_binary(), len(begins), buffers)
        if is_null.any():
            every = pa.compute.if_else(pa.array(is_null), None, every)
        return every, forms == loops.HEXADECIMAL


def bytes_of(text: str) -> Bytes:
    """Return the bytes of a text."""
    return np.frombuffer(text.encode(), np.uint8) if text else _EMPTY


def style_of(dialect: CsvDialect) -> loops.Style:
    """Return the style of a dialect for the loops."""
    texts = (dialect.separator, dialect.quote, dialect.terminator, dialect.null)
    return loops.Style(*map(bytes_of, texts), backslash=dialect.backslash)


def _room(width: int, size: int) -> loops.Fields:
    return loops.Fields(
        np.empty((width, size), np.int64),
        np.empty((width, size), np.int64),
        np.zeros((width, size), np.uint8),
    )


def _bytes_of_rows(rows: "pa.Array[Any]") -> tuple[Bytes, Numbers]:
    """Return the bytes of rows, and where each begins and the last one ends."""
    _, offsets, content = rows.buffers()
    size = len(rows)
    places = np.frombuffer(offsets, np.int32)[rows.offset : rows.offset + size + 1]
    data = _EMPTY if content is None else np.frombuffer(content, np.uint8)
    return data, places.astype(np.int64)
