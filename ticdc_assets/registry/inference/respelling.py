"""Values of columns whose rows are flagged as text where the column holds bytes, or vice versa.

In: the shape of a row and the schema that it is read with. Out: for each column on which the two
differ, the function from the value as the row spells it to the value as the schema's column is
spelled (`events.PhysicalValue`). Pure functions.

The flags of Open Protocol may be those of an earlier type of a column, or empty
(`wire.open.reference`), while the encoder writes values by the current type. An image in the change
log has values as the flags say; here, where the schema is known, they get the spelling of the type:

    row says    known to hold    the value is
    text        bytes            base64 of the bytes of its text: as Go quotes it for CHAR and
                                 VARCHAR of Open Protocol, else its UTF-8
    bytes       text             the text of which the bytes were read so
"""

from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final

from ticdc_assets.base.errors import ImageError, shorten
from ticdc_assets.model.events import PhysicalValue
from ticdc_assets.model.mysql_types import Kind, base_type, kind_of
from ticdc_assets.model.schemas import ColumnSchema, RowShape, SentColumn, TableSchema
from ticdc_assets.registry.inference.columns import BINARY_TWINS
from ticdc_assets.wire.open.go_quote import unquote, unquoted_text

Respelling = Callable[[PhysicalValue], PhysicalValue]

_QUOTED: Final = frozenset({"char", "varchar", "binary", "varbinary"})
"""The types whose bytes Open Protocol quotes; those of all others are base64."""

_BYTES: Final = frozenset(BINARY_TWINS.values())


def respellings(shape: RowShape, schema: TableSchema) -> dict[str, Respelling]:
    """Return how the values of rows of `shape` are respelled under `schema`, by column."""
    if all(sent.flags is None for sent in shape.columns):
        return {}
    columns = {column.name: column for column in schema.columns}
    by_column: dict[str, Respelling] = {}
    for sent in shape.columns:
        present = columns.get(sent.name)
        respelling = None if present is None else _respelling(sent, present, raw=shape.raw)
        if respelling is not None:
            by_column[sent.name] = respelling
    return by_column


def _respelling(sent: SentColumn, column: ColumnSchema, *, raw: bool) -> Respelling | None:
    said, kind = (
        base_type(ColumnSchema(name=sent.name, mysql_type=sent.mysql_type)),
        kind_of(column),
    )
    quoted = said in _QUOTED and not raw

    def to_bytes(text: str) -> str:
        return b64encode(unquote(text) if quoted else text.encode()).decode()

    def to_text(text: str) -> str:
        content = b64decode(text, validate=True)
        return unquoted_text(content) if quoted else content.decode()

    if said in BINARY_TWINS and kind is Kind.BINARY:
        convert, reason, expected = to_bytes, "invalid_escape", "text as Go quotes it"
    elif said in _BYTES and kind is Kind.TEXT:
        convert, reason, expected = to_text, "invalid_text", "base64 of UTF-8"
    else:
        return None

    def respelled(value: PhysicalValue) -> PhysicalValue:
        if not isinstance(value, str):
            return value
        try:
            return convert(value)
        except ValueError:
            raise ImageError(reason, sent.name, expected, shorten(value)) from None

    return respelled
