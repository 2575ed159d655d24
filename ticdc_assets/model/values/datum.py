"""Values between two types: what TiDB's `Datum` is to a cast.

In: canonical text under the old column. Out: a `Datum`, from which `cast_numbers`, `cast_moments`
and `cast_texts` make canonical text under the new column. What they cannot make is a `CastError`
with the new column's name and the old text.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import NamedTuple, NoReturn, TypeAlias

from ticdc_assets.base.errors import CastError, ImageError, shorten
from ticdc_assets.model.mysql_types import Kind, kind_of
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.model.values import json_texts, moments
from ticdc_assets.model.values.floats import to_float32
from ticdc_assets.model.values.physical import binary_bytes, physical_of, set_mask

TextCast: TypeAlias = Callable[[str], str]
"""A conversion of one text that is not NULL."""


class Moment(NamedTuple):
    """A DATE, DATETIME or TIMESTAMP on its way into another type: its canonical text."""

    text: str

    def number(self) -> Decimal:
        """Return e.g. 20240131235959.5, as MySQL uses a moment as a number."""
        return Decimal(0) if moments.is_zero(self.text) else Decimal(_only_digits(self.text))


class Span(NamedTuple):
    """A TIME on its way into another type: its canonical text."""

    text: str

    def number(self) -> Decimal:
        """Return e.g. -1203.5 for -00:12:03.5, as MySQL uses a TIME as a number."""
        sign = "-" if self.text.startswith("-") else ""
        return Decimal(sign + _only_digits(self.text))


def _only_digits(text: str) -> str:
    return "".join(char for char in text if char.isdigit() or char == ".")


Datum: TypeAlias = int | float | Decimal | str | Moment | Span
"""A value between two types, as TiDB sees it: text of JSON strings and of binaries is `str`."""


def refusal(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Return the cast that refuses every value: TiDB has no such change."""

    def convert(text: str) -> str:
        raise CastError(
            "unsupported_cast",
            new.name,
            f"a change that TiDB supports (not {old.mysql_type} to {new.mysql_type})",
            shorten(text),
        )

    return convert


def refusing(new: ColumnSchema, expected: str) -> TextCast:
    """Return the cast for which no value is what was `expected`."""
    return lambda text: refuse(new, expected, text)


def refuse(column: ColumnSchema, expected: str, text: str) -> NoReturn:
    """Raise the `CastError` of `text`, which is not a value of the new `column`."""
    raise CastError("invalid_cast", column.name, expected, shorten(text))


def datum_of(old: ColumnSchema, *, errors: str = "strict") -> Callable[[str], Datum]:
    """Compile the way from canonical text of `old` to a datum; it may raise `ValueError`.

    `errors` is what becomes of bytes that are not text, as for `bytes.decode`.
    """
    match kind_of(old):
        case Kind.INTEGER | Kind.BIT | Kind.YEAR:
            return int
        case Kind.FLOAT:
            return lambda text: to_float32(float(text))
        case Kind.DOUBLE:
            return float
        case Kind.DECIMAL:
            return Decimal
        case Kind.DATE | Kind.DATETIME | Kind.TIMESTAMP:
            return Moment
        case Kind.TIME:
            return Span
        case Kind.ENUM:
            number_of = physical_of(old, "UTC")
            return lambda text: float(str(number_of(text)))
        case Kind.SET:
            return lambda text: float(set_mask(text, old))
        case Kind.JSON:
            return _json_datum
        case Kind.BINARY:
            return lambda text: binary_bytes(text, old).decode(errors=errors)
        case Kind.TEXT | Kind.VECTOR | Kind.UNKNOWN:
            return str


def unquoted_datum_of(old: ColumnSchema, *, errors: str = "strict") -> Callable[[str], Datum]:
    """Compile what `datum_of` does, but JSON goes as its text, a JSON string without quotes."""
    return _unquoted if kind_of(old) is Kind.JSON else datum_of(old, errors=errors)


def _unquoted(text: str) -> Datum:
    value = json_texts.read_json(text)
    return value if isinstance(value, str) else text


def _json_datum(text: str) -> Datum:
    value = json_texts.read_json(text)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float | str):
        return value
    raise ValueError("no scalar")


def through_datum(
    old: ColumnSchema,
    new: ColumnSchema,
    *,
    expected: str,
    make: Callable[[Datum], str | None],
    read: Callable[[str], Datum] | None = None,
) -> TextCast:
    """Return the conversion by way of a datum, which `read` reads (`datum_of` if None).

    Where `make` returns None, it is a `CastError` that names what was `expected`.
    """
    read = datum_of(old) if read is None else read

    def convert(text: str) -> str:
        try:
            value = make(read(text))
        except (ValueError, ArithmeticError, ImageError):
            value = None
        if value is None:
            refuse(new, expected, text)
        return value

    return convert
