"""Columns that the rows of an export lack: computed, or unknown.

In: images of rows of one file, and the columns that the file has. Out: the images with the
generated columns that could be computed from their expressions, and the shapes of the rows that
still lack columns. A column without a value is never NULL: an image does not have it. A row without
a value in its key is refused, because it cannot be identified.

It is a pure function of the rows, the table's schema and its CREATE TABLE.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ticdc_assets.base.errors import ImageError, shorten
from ticdc_assets.model.schemas import ColumnSchema, RowShape, SentColumn, TableSchema
from ticdc_assets.model.values import canonical_of, physical_of
from ticdc_assets.registry.ddl.reader import parse_ddl
from ticdc_assets.registry.evolution import CanonicalRow
from ticdc_assets.registry.inference.generated_columns import GeneratedColumns
from ticdc_assets.source.exports.dialect import DUMPLING_OPTION
from ticdc_assets.wire.rows import image_from_json, image_to_json, shape_text

if TYPE_CHECKING:
    from ticdc_assets.source.exports.images import Faults


class LackingColumns:
    """The columns of one table that files may lack.

    Args:
        schema: the table's schema in the export.
        create_sql: its CREATE TABLE; "" if unknown.
        timezone: zone of the session that exported it.

    Attributes:
        usual: the columns of files without names, one list or two.
    """

    def __init__(self, schema: TableSchema, create_sql: str, timezone: str) -> None:
        self._generated = GeneratedColumns(parse_ddl(create_sql), schema, timezone)
        self._schema = schema
        self._timezone = timezone
        names = [column.name for column in schema.columns if not column.virtual]
        self.usual = [[name for name in names if name.lower() not in self._generated.stored]]
        if len(self.usual[0]) < len(names):
            self.usual.append(names)

    def completed(
        self, images: "pa.Array[Any]", known: Sequence[ColumnSchema], faults: "Faults"
    ) -> tuple["pa.Array[Any]", "pa.Array[Any]"]:
        """Return images with the computed columns, and shapes of rows that lack some.

        Args:
            images: the images; null for rows that have none.
            known: the columns that the file has.
            faults: receives the rows that have no key.
        """
        there = {column.name for column in known}
        lacking = [
            column
            for column in self._schema.columns
            if column.name not in there and not column.virtual
        ]
        if not lacking:
            return images, pa.nulls(len(images), pa.string())
        made = images.to_pylist()
        left: list[frozenset[str] | None] = [None] * len(made)
        complete = self._completion(known, lacking)
        for row in np.flatnonzero(faults.good).tolist():
            made[row], left[row] = complete(made[row])
        key = set(self._schema.handle_key)
        for name in self._schema.handle_key:
            rows = [row for row, names in enumerate(left) if names and name in names]
            if rows:
                expected, got = self._way_out(name)
                faults.add(np.array(rows), "unknown_key", name, expected, got)
        for row, names in enumerate(left):
            if names and not key.isdisjoint(names):
                made[row] = left[row] = None
        shape_of = lru_cache(maxsize=None)(self._shape)
        shapes = [None if not names else shape_of(names) for names in left]
        return pa.array(made, pa.string()), pa.array(shapes, pa.string())

    def _completion(
        self, known: Sequence[ColumnSchema], lacking: Sequence[ColumnSchema]
    ) -> Callable[[str], tuple[str, frozenset[str]]]:
        """Return the function that adds columns to an image and returns those it still lacks."""
        every = frozenset(column.name for column in lacking)
        generated = [self._generated.named(column.name) for column in lacking]
        if not any(item is not None and item.evaluate is not None for item in generated):
            return lambda image: (image, every)
        converters = [(column.name, canonical_of(column, self._timezone)) for column in known]
        physical = {column.name: physical_of(column, self._timezone) for column in lacking}
        virtual = {column.name for column in self._schema.columns if column.virtual}

        def complete(text: str) -> tuple[str, frozenset[str]]:
            image = image_from_json(text)
            row: CanonicalRow = {}
            for name, convert in converters:
                try:
                    row[name] = convert(image[name])
                except ImageError:
                    # Reading the image will report it.
                    return text, every
            found = self._generated.complete(row, every | virtual)
            added = {
                name: convert(found[name]) for name, convert in physical.items() if name in found
            }
            if added:
                more = image_to_json(added)
                text = text[:-1] + ("," if len(image) else "") + more[1:]
            return text, every.difference(added)

        return complete

    def _shape(self, lacking: frozenset[str]) -> str:
        columns = tuple(
            SentColumn(column.name, column.mysql_type)
            for column in self._schema.columns
            if column.name not in lacking and not column.virtual
        )
        return shape_text(RowShape(columns=columns, partial=True))

    def _way_out(self, name: str) -> tuple[str, str]:
        """Return what was expected of a column of the key, and what is there."""
        item = self._generated.named(name)
        if item is None:
            return "a value of the key", "a file without this column"
        return (
            f"a value of the key: export with Dumpling's {DUMPLING_OPTION}",
            f"a file without this column, which is generated as {item.expression}"
            + (f" ({shorten(item.problem, 120)})" if item.problem else ""),
        )
