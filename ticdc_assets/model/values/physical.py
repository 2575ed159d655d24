"""Canonical text as others have it: as messages send it, as TiDB prints it, and as keys.

`physical_of` gives physical values, as the Simple protocol in JSON would send them. It is the
inverse of `canonical_of`: `canonical_of(physical_of(text)) == text` for every canonical text. The
empty label of an ENUM is index 0 unless '' is one of its labels.

`printers` gives the text of SELECT. Only JSON differs: TiDB puts a blank after each comma and
colon. VECTOR is printed with the fewest digits and without exponent (`VectorFloat32.String` in
pingcap/tidb pkg/types), as canonical text has it.
"""

from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence

import orjson

from ticdc_assets.base.errors import ImageError, shorten
from ticdc_assets.model.events import PhysicalValue, ZonedTimestamp
from ticdc_assets.model.mysql_types import Kind, kind_of
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.model.values import shapes


def physical_of(column: ColumnSchema, timezone: str) -> Callable[[str | None], PhysicalValue]:
    """Compile the converter from canonical text of `column` to physical values.

    Returns:
        A function that raises `ImageError` for a label the column does not have or a malformed
        binary text.
    """
    convert = _converter(column, timezone)
    return lambda text: None if text is None else convert(text)


def _converter(column: ColumnSchema, timezone: str) -> Callable[[str], PhysicalValue]:
    match kind_of(column):
        case Kind.TIMESTAMP:
            return lambda text: ZonedTimestamp(location=timezone, value=text)
        case Kind.JSON:
            return shapes.spaced_json
        case Kind.BINARY:
            return lambda text: b64encode(binary_bytes(text, column)).decode()
        case Kind.ENUM if column.elements:
            return _enum(column)
        case Kind.ENUM | Kind.SET:
            return lambda text: str(set_mask(text, column))
        case _:
            return str


def binary_bytes(text: str, column: ColumnSchema) -> bytes:
    """Return the bytes of canonical binary text (`0x` and lower-case hex)."""
    try:
        raw = bytes.fromhex(text[2:])
    except ValueError:
        raw = None
    # fromhex skips spaces and takes capitals.
    if raw is None or text[:2] != "0x" or raw.hex() != text[2:]:
        raise ImageError("invalid_binary", column.name, "0x and hex digits", shorten(text))
    return raw


def _enum(column: ColumnSchema) -> Callable[[str], PhysicalValue]:
    numbers = {"": "0"} | {
        label: str(number) for number, label in enumerate(column.elements, start=1)
    }

    def convert(text: str) -> PhysicalValue:
        number = numbers.get(text)
        if number is None:
            raise ImageError("unknown_label", column.name, "a label", shorten(text))
        return number

    return convert


def set_mask(text: str, column: ColumnSchema) -> int:
    """Return the bit mask of canonical SET text; without labels that is the text."""
    if not column.elements:
        return _number(text, column)
    if not text:
        return 0
    mask = 0
    for label in text.split(","):
        try:
            mask |= 1 << column.elements.index(label)
        except ValueError:
            raise ImageError("unknown_label", column.name, "labels", shorten(text)) from None
    return mask


def _number(text: str, column: ColumnSchema) -> int:
    """Return the number that an ENUM or SET has for a text while its labels are not known."""
    if shapes.INTEGER.fullmatch(text) is None:
        raise ImageError("unknown_label", column.name, "a number", shorten(text))
    return int(text)


_FLOATING = (Kind.FLOAT, Kind.DOUBLE)


def key_text(values: Sequence[str | None], columns: Sequence[ColumnSchema] = ()) -> str:
    """Return the canonical key values as one JSON array of strings.

    Args:
        values: canonical texts in key order. A key has no NULL; a whole row may have some.
        columns: the key's columns in the same order. Only FLOAT and DOUBLE need them: their -0
            and 0 are one key.
    """
    if columns:
        values = [
            "0" if value == "-0" and kind_of(column) in _FLOATING else value
            for value, column in zip(values, columns, strict=True)
        ]
    return orjson.dumps(values if isinstance(values, list | tuple) else list(values)).decode()


def printers(columns: Iterable[ColumnSchema]) -> dict[str, Callable[[str], str]]:
    """Return how TiDB prints the canonical text of those columns whose text differs, by name."""
    return {column.name: shapes.spaced_json for column in columns if kind_of(column) is Kind.JSON}
