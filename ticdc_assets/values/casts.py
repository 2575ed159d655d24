"""What MODIFY or CHANGE COLUMN makes of the values that are already there.

In: canonical text under the old column. Out: canonical text under the new column, or `CastError`.
The rules are TiDB's own (pingcap/tidb: `Datum.ConvertTo` in pkg/types/datum.go, called for each
row by pkg/ddl/column.go), since the rewritten rows are never sent (golden/QUIRKS.md A7).

An event of the DDL proves that it succeeded upstream: in strict SQL mode, TiDB's default, every
value fitted. In other modes TiDB stores a clipped value with a warning; the messages do not carry
the SQL mode, so a value that does not fit is a `CastError` here and never a guess. So are changes
that TiDB does not support, and results that depend on what no message tells:

* TIME to a date type (the day of the change), and dates with a zero month or day (SQL mode);
* FLOAT(M,D) and DOUBLE(M,D), whose D is not sent: whole numbers pass, others are refused;
* labels that are equal under a collation only by accent or width.

Between TIMESTAMP and other types TiDB uses the time zone of the session that ran the DDL; it is
taken to be the changefeed's. NULL stays NULL, also where the new column is NOT NULL: upstream had
none then, except for TIMESTAMP, which TiDB fills with the time of the change and does not send.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Final, NamedTuple, NoReturn, TypeAlias

from ticdc_assets.errors import CastError, ImageError, shorten
from ticdc_assets.mysql_types import (
    Kind,
    base_type,
    bit_width,
    decimal_size,
    declared_length,
    fractional_digits,
    integer_range,
    is_char,
    is_unsigned,
    kind_of,
)
from ticdc_assets.schemas import ColumnSchema
from ticdc_assets.values import json_texts, moments, shapes
from ticdc_assets.values.canonical import ZERO_DATE, datetime_text, parse_datetime
from ticdc_assets.values.floats import MAX_FLOAT32, double_text, float_text, to_float32
from ticdc_assets.values.physical import binary_bytes, set_mask
from ticdc_assets.values.zones import changefeed_zone

Cast: TypeAlias = Callable[[str | None], str | None]


def keep(text: str | None) -> str | None:
    """Return `text`: the cast where nothing changes."""
    return text


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

_WIDE = Context(prec=400, rounding=ROUND_HALF_UP)
_NUMERIC_LENGTHS: Final = {"float": 12, "double": 22}
_TEXT_LIMITS: Final = {
    "tinytext": 2**8 - 1,
    "text": 2**16 - 1,
    "mediumtext": 2**24 - 1,
    "longtext": 2**32 - 1,
}
_MOMENTS: Final = (Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP)
_UNIVERSAL_CHARSETS: Final = frozenset({"", "utf8mb4", "latin1", "binary"})
_CODECS: Final = {"ascii": "ascii", "gbk": "gbk", "gb18030": "gb18030"}


def cast_is_identity(old: ColumnSchema, new: ColumnSchema) -> bool:
    """Return whether every value of `old` has the same canonical text under `new`."""
    kind = kind_of(old)
    if kind is not kind_of(new):
        return False
    if _same_type(old, new):
        return True
    widens = _WIDENS.get(kind)
    return widens is not None and widens(old, new)


def cast_of(old: ColumnSchema, new: ColumnSchema, timezone: str) -> Cast:
    """Compile the conversion of existing values from `old` to `new`.

    Returns:
        `keep` itself if nothing changes (`cast_is_identity`), else a function that raises
        `CastError` for a value that has no certain counterpart under `new`.

    Raises:
        ConfigError: `timezone` is needed (a TIMESTAMP column) and is no zone.
    """
    if cast_is_identity(old, new):
        return keep
    source, target = kind_of(old), kind_of(new)
    if (source, target) in _UNSUPPORTED:
        convert: Callable[[str], str] = _refusal(old, new)
    else:
        convert = _TARGETS[target](old, new, timezone)

    def cast(text: str | None) -> str | None:
        return None if text is None else convert(text)

    return cast


def _refusal(old: ColumnSchema, new: ColumnSchema) -> Callable[[str], str]:
    def convert(text: str) -> str:
        raise CastError(
            "unsupported_cast",
            new.name,
            f"a change that TiDB supports (not {old.mysql_type} to {new.mysql_type})",
            shorten(text),
        )

    return convert


def _refuse(column: ColumnSchema, expected: str, text: str) -> NoReturn:
    raise CastError("invalid_cast", column.name, expected, shorten(text))


# Which changes leave every value as it is.


def _same_type(old: ColumnSchema, new: ColumnSchema) -> bool:
    def shape(column: ColumnSchema) -> tuple[object, ...]:
        return (
            base_type(column),
            column.charset,
            column.length,
            column.decimal,
            column.elements,
            is_unsigned(column),
        )

    return shape(old) == shape(new)


def _widens_integer(old: ColumnSchema, new: ColumnSchema) -> bool:
    low, high = integer_range(old)
    new_low, new_high = integer_range(new)
    return new_low <= low and high <= new_high


def _widens_float(old: ColumnSchema, new: ColumnSchema) -> bool:
    return _float_scale(new) is None and not (is_unsigned(new) and not is_unsigned(old))


def _widens_decimal(old: ColumnSchema, new: ColumnSchema) -> bool:
    old_size, new_size = decimal_size(old), decimal_size(new)
    if old_size is None or new_size is None or (is_unsigned(new) and not is_unsigned(old)):
        return False
    return old_size[1] == new_size[1] and old_size[0] <= new_size[0]


def _widens_fraction(old: ColumnSchema, new: ColumnSchema) -> bool:
    return fractional_digits(old) == fractional_digits(new)


def _widens_text(old: ColumnSchema, new: ColumnSchema) -> bool:
    if new.charset not in (old.charset, *_UNIVERSAL_CHARSETS) or (
        is_char(new) and not is_char(old)
    ):
        return False
    old_characters, old_bytes = _text_room(old)
    new_characters, new_bytes = _text_room(new)
    if new_characters is not None:
        return old_characters is not None and old_characters <= new_characters
    if new_bytes is not None:
        return old_bytes is not None and old_bytes <= new_bytes
    return True


def _text_room(column: ColumnSchema) -> tuple[int | None, int | None]:
    """Return the most characters and the most bytes a text column holds; None if unlimited."""
    limit = _TEXT_LIMITS.get(base_type(column))
    if limit is not None:
        return limit, limit
    length = declared_length(column)
    return (length, length * 4) if length else (None, None)


def _widens_binary(old: ColumnSchema, new: ColumnSchema) -> bool:
    if is_char(new):
        return is_char(old) and declared_length(old) == declared_length(new)
    length = declared_length(new)
    return not length or 0 < declared_length(old) <= length


def _widens_enum(old: ColumnSchema, new: ColumnSchema) -> bool:
    return set(old.elements) <= set(new.elements)


def _widens_set(old: ColumnSchema, new: ColumnSchema) -> bool:
    labels = set(old.elements)
    return tuple(label for label in new.elements if label in labels) == old.elements


def _always(old: ColumnSchema, new: ColumnSchema) -> bool:
    del old, new
    return True


def _widens_vector(old: ColumnSchema, new: ColumnSchema) -> bool:
    return declared_length(new) in (0, declared_length(old))


_WIDENS: dict[Kind, Callable[[ColumnSchema, ColumnSchema], bool]] = {
    Kind.INTEGER: _widens_integer,
    Kind.BIT: _widens_integer,
    Kind.YEAR: _always,
    Kind.DECIMAL: _widens_decimal,
    Kind.FLOAT: _widens_float,
    Kind.DOUBLE: _widens_float,
    Kind.DATE: _always,
    Kind.DATETIME: _widens_fraction,
    Kind.TIMESTAMP: _widens_fraction,
    Kind.TIME: _widens_fraction,
    Kind.TEXT: _widens_text,
    Kind.BINARY: _widens_binary,
    Kind.ENUM: _widens_enum,
    Kind.SET: _widens_set,
    Kind.JSON: _always,
    Kind.VECTOR: _widens_vector,
}

_LABELLED: Final = (Kind.ENUM, Kind.SET)
_UNSUPPORTED: Final[frozenset[tuple[Kind, Kind]]] = frozenset(
    {
        (source, Kind.BIT)
        for source in (*_MOMENTS, Kind.TIME, Kind.YEAR, Kind.TEXT, Kind.BINARY, Kind.JSON)
    }
    | {
        (source, target)
        for source in (
            *_MOMENTS,
            Kind.TIME,
            Kind.YEAR,
            Kind.DECIMAL,
            Kind.FLOAT,
            Kind.DOUBLE,
            Kind.JSON,
            Kind.BIT,
        )
        for target in _LABELLED
    }
    | {
        (source, target)
        for source in (*_LABELLED, Kind.BIT, Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE)
        for target in _MOMENTS
    }
    | {(source, Kind.TIME) for source in (*_LABELLED, Kind.BIT)}
    | {(Kind.BIT, Kind.JSON)}
    | {(Kind.VECTOR, target) for target in Kind if target is not Kind.VECTOR}
    | {(source, Kind.VECTOR) for source in Kind if source is not Kind.VECTOR}
    | {(Kind.UNKNOWN, target) for target in Kind}
    | {(source, Kind.UNKNOWN) for source in Kind}
)
"""Changes that TiDB refuses (pkg/types/etc.go `checkTypeChangeSupported`), or that this package
cannot know."""


# From the old column: canonical text to a datum.


def _datum_of(old: ColumnSchema) -> Callable[[str], Datum]:
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
            return lambda text: float(_label_index(text, old))
        case Kind.SET:
            return lambda text: float(set_mask(text, old))
        case Kind.JSON:
            return _json_datum
        case Kind.BINARY:
            return lambda text: binary_bytes(text, old).decode()
        case Kind.TEXT | Kind.VECTOR | Kind.UNKNOWN:
            return str


def _label_index(text: str, column: ColumnSchema) -> int:
    return 0 if text == "" and "" not in column.elements else column.elements.index(text) + 1


def _json_datum(text: str) -> Datum:
    value = json_texts.read_json(text)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float | str):
        return value
    raise ValueError("no scalar")


def _through_datum(
    old: ColumnSchema, new: ColumnSchema, *, expected: str, make: Callable[[Datum], str | None]
) -> Callable[[str], str]:
    """Return the conversion by way of a datum; whatever `make` cannot do is a `CastError`."""
    datum_of = _datum_of(old)

    def convert(text: str) -> str:
        try:
            made = make(datum_of(text))
        except (ValueError, ArithmeticError, ImageError):
            made = None
        if made is None:
            _refuse(new, expected, text)
        return made

    return convert


# To the new column.


def _to_integer(old: ColumnSchema, new: ColumnSchema, timezone: str) -> Callable[[str], str]:
    del timezone
    low, high = integer_range(new)

    def make(datum: Datum) -> str | None:
        number = whole_number(datum, signed=low < 0, high=high)
        return str(number) if number is not None and low <= number <= high else None

    return _through_datum(old, new, expected=f"{low} to {high}", make=make)


def whole_number(datum: Datum, *, signed: bool, high: int) -> int | None:
    """Return the integer that TiDB makes of `datum`; doubles round to even, the rest half up."""
    match datum:
        case int():
            return datum
        case float():
            number = round(datum)
            # TiDB compares doubles, and the double of the highest BIGINT is one above it.
            return high if signed and number == high + 1 and float(high) == datum else number
        case Decimal():
            if not signed and datum.is_signed():
                return None
            return _round_decimal(datum)
        case str():
            return _parse_whole(datum)
        case Moment():
            return _whole_moment(datum, signed=signed)
        case Span():
            if signed:
                rounded = moments.round_span(moments.span_of_text(datum.text), 0)
                return int(Span(moments.span_text(rounded, 0)).number())
            return None if datum.text.startswith("-") else _round_decimal(datum.number())


def _whole_moment(moment: Moment, *, signed: bool) -> int | None:
    if not signed or "." not in moment.text:
        return _round_decimal(moment.number())
    value = parse_datetime(moment.text)
    rounded = None if value is None else moments.round_datetime(value, 0)
    return None if rounded is None else int(Moment(datetime_text(rounded, 0)).number())


def _round_decimal(number: Decimal) -> int | None:
    if number.adjusted() > 80:
        return None
    return int(number.quantize(Decimal(1), context=_WIDE))


def _parse_number(text: str) -> Decimal | None:
    text = text.strip()
    # TiDB, like MySQL, takes an "e" at the very end for nothing.
    number = text[:-1] if text[-1:] in ("e", "E") else text
    if shapes.NUMBER.fullmatch(number) is None or (number != text and "e" in number.lower()):
        return None
    return Decimal(number)


def _parse_whole(text: str) -> int | None:
    number = _parse_number(text)
    return None if number is None else _round_decimal(number)


def _to_year(old: ColumnSchema, new: ColumnSchema, timezone: str) -> Callable[[str], str]:
    del timezone

    def make(datum: Datum) -> str | None:
        two_digits = False
        if isinstance(datum, Moment):
            year: int | None = int(datum.text[:4])
        else:
            year = whole_number(datum, signed=True, high=2**63 - 1)
            two_digits = isinstance(datum, str) and len(datum) != 4 and datum.strip()[:1] == "0"
        if year is None or (year == 0 and not two_digits):
            return None if year is None else "0"
        if 0 <= year < 100:
            year = moments.full_year(year)
        return str(year) if 1901 <= year <= 2155 else None

    return _through_datum(old, new, expected="0 or 1901 to 2155", make=make)


def _to_bit(old: ColumnSchema, new: ColumnSchema, timezone: str) -> Callable[[str], str]:
    del timezone
    high = 2 ** bit_width(new) - 1

    def make(datum: Datum) -> str | None:
        number = whole_number(datum, signed=False, high=high)
        if isinstance(datum, int) and datum < 0:
            number = datum + 2**64
        return str(number) if number is not None and 0 <= number <= high else None

    return _through_datum(old, new, expected=f"0 to {high}", make=make)


def _to_decimal(old: ColumnSchema, new: ColumnSchema, timezone: str) -> Callable[[str], str]:
    del timezone
    size = decimal_size(new)
    unsigned = is_unsigned(new)

    def make(datum: Datum) -> str | None:
        number = _exact_number(datum)
        if number is None or size is None or number.adjusted() > 80:
            return None
        rounded = number.quantize(Decimal(1).scaleb(-size[1]), context=_WIDE)
        if rounded and rounded.adjusted() >= size[0] - size[1]:
            return None
        if number.is_signed() and rounded and unsigned:
            return None
        return format(rounded if rounded else abs(rounded), "f")

    expected = f"decimal({size[0]},{size[1]})" if size else "a declared precision"
    return _through_datum(old, new, expected=expected, make=make)


def _exact_number(datum: Datum) -> Decimal | None:
    match datum:
        case int() | Decimal():
            return Decimal(datum)
        case float():
            return Decimal(repr(datum))
        case str():
            stripped = datum.strip()
            if stripped[-1:] in ("e", "E"):
                return None
            return _parse_number(stripped)
        case Moment() | Span():
            return datum.number()


def _to_float(old: ColumnSchema, new: ColumnSchema, timezone: str) -> Callable[[str], str]:
    del timezone
    narrow = kind_of(new) is Kind.FLOAT
    scale = _float_scale(new)
    unsigned = is_unsigned(new)
    highest = 10.0 ** (declared_length(new) - (scale or 0)) if scale is not None else 0.0

    def make(datum: Datum) -> str | None:
        number = _float_number(datum)
        if number is None or number - number != 0 or (unsigned and number < 0):
            return None
        if scale is not None:
            if not number.is_integer():
                if scale < 0:
                    return None
                number = round(number * 10.0**scale) / 10.0**scale
            if abs(number) >= highest:
                return None
        if not narrow:
            return double_text(number)
        return float_text(to_float32(number)) if abs(number) <= MAX_FLOAT32 else None

    return _through_datum(old, new, expected=f"a {new.mysql_type}", make=make)


def _float_scale(column: ColumnSchema) -> int | None:
    """Return the D of FLOAT(M,D): None without one, -1 if there is one that was not sent."""
    if column.decimal > 0:
        return column.decimal
    length = declared_length(column)
    return None if length in (0, _NUMERIC_LENGTHS[base_type(column)]) else -1


def _float_number(datum: Datum) -> float | None:
    match datum:
        case int() | float() | Decimal():
            return float(datum)
        case str():
            number = _parse_number(datum)
            return None if number is None else float(number)
        case Moment() | Span():
            return float(datum.number())


def _to_date(old: ColumnSchema, new: ColumnSchema, timezone: str) -> Callable[[str], str]:
    del timezone
    return _to_moment(old, new, lambda value: value.date().isoformat())


def _to_datetime(old: ColumnSchema, new: ColumnSchema, timezone: str) -> Callable[[str], str]:
    del timezone
    digits = fractional_digits(new)

    def make(value: datetime) -> str | None:
        rounded = moments.round_datetime(value, digits)
        return None if rounded is None else datetime_text(rounded, digits)

    return _to_moment(old, new, make)


def _to_timestamp(old: ColumnSchema, new: ColumnSchema, timezone: str) -> Callable[[str], str]:
    zone = changefeed_zone(timezone)
    digits = fractional_digits(new)

    def make(value: datetime) -> str | None:
        rounded = moments.round_datetime(value, digits)
        if rounded is None:
            return None
        return moments.timestamp_text(rounded, zone=zone, places=digits)

    return _to_moment(old, new, make)


def _to_moment(
    old: ColumnSchema, new: ColumnSchema, make: Callable[[datetime], str | None]
) -> Callable[[str], str]:
    digits = 0 if kind_of(new) is Kind.DATE else fractional_digits(new)
    zero = ZERO_DATE if kind_of(new) is Kind.DATE else moments.ZERO_DATETIME
    if digits:
        zero = shapes.pad_fraction(zero, digits)
    json_source = kind_of(old) is Kind.JSON

    def make_moment(datum: Datum) -> str | None:
        match datum:
            case Moment():
                value = moments.ZERO_DATETIME if moments.is_zero(datum.text) else None
                value = value or parse_datetime(datum.text)
            case str():
                value = moments.parse_datetime_text(datum, digits)
            case int():
                # TiDB reads a JSON number as a string here, with other rules for short ones.
                value = None if json_source else moments.datetime_of_number(datum)
            case float() | Decimal() | Span():
                value = None
        if value is None:
            return None
        return zero if isinstance(value, str) else make(value)

    return _through_datum(old, new, expected=f"a {new.mysql_type}", make=make_moment)


def _to_time(old: ColumnSchema, new: ColumnSchema, timezone: str) -> Callable[[str], str]:
    del timezone
    digits = fractional_digits(new)

    def make(datum: Datum) -> str | None:
        match datum:
            case Span():
                span = moments.round_span(moments.span_of_text(datum.text), digits)
            case Moment():
                clock = datum.text[11:] or moments.ZERO_CLOCK
                span = moments.round_span(moments.span_of_text(clock), digits)
            case str():
                span = moments.parse_span_text(datum, digits)
            case float():
                span = moments.parse_span_text(double_text(datum), digits)
            case int() | Decimal():
                span = moments.parse_span_text(
                    format(datum, "f" if datum != int(datum) else ""), digits
                )
        return None if span is None else moments.span_text(span, digits)

    return _through_datum(old, new, expected="a time", make=make)


def _to_text(old: ColumnSchema, new: ColumnSchema, timezone: str) -> Callable[[str], str]:
    del timezone
    printed = _printed(old)
    characters, most_bytes = _text_room(new)
    limited_by_bytes = base_type(new) in _TEXT_LIMITS
    codec = _CODECS.get(new.charset.lower())
    strip = is_char(new)

    def convert(text: str) -> str:
        try:
            made = printed(text)
            if codec is not None:
                made.encode(codec)
        except (ValueError, ImageError):
            _refuse(new, f"text in {new.charset}", text)
        if limited_by_bytes:
            if len(made.encode()) > (most_bytes or 0):
                _refuse(new, f"at most {most_bytes} bytes", text)
        elif characters is not None and len(made) > characters:
            if made[characters:].strip(" \t\r\n"):
                _refuse(new, f"at most {characters} characters", text)
            made = made[:characters]
        return made.rstrip(" ") if strip else made

    return convert


def _printed(old: ColumnSchema) -> Callable[[str], str]:
    """Return how TiDB prints a value of `old` as text; ValueError for bytes that are none."""
    match kind_of(old):
        case Kind.BINARY:
            return lambda text: binary_bytes(text, old).decode()
        case Kind.JSON:
            return shapes.spaced_json
        case _:
            return str


def _to_binary(old: ColumnSchema, new: ColumnSchema, timezone: str) -> Callable[[str], str]:
    del timezone
    length = declared_length(new)
    padded = length if is_char(new) else 0
    from_binary = kind_of(old) is Kind.BINARY
    if old.charset.lower() in ("gbk", "gb18030"):
        return _refusal(old, new)
    printed = _printed(old)

    def convert(text: str) -> str:
        raw = binary_bytes(text, old) if from_binary else printed(text).encode()
        if length and len(raw) > length:
            _refuse(new, f"at most {length} bytes", text)
        return "0x" + raw.ljust(padded, b"\0").hex()

    return convert


def _to_enum(old: ColumnSchema, new: ColumnSchema, timezone: str) -> Callable[[str], str]:
    del timezone
    if kind_of(old) is Kind.INTEGER:
        return _through_datum(
            old, new, expected="index of a label", make=lambda datum: _nth(new.elements, datum)
        )
    find = _label_finder(new)
    from_enum = kind_of(old) is Kind.ENUM and "" not in old.elements
    printed = _printed(old)

    def convert(text: str) -> str:
        if from_enum and text == "":
            return ""
        try:
            name = printed(text)
        except (ValueError, ImageError):
            _refuse(new, "a label", text)
        label = find(name)
        if label is None and shapes.SHORTEST.fullmatch(name):
            label = _nth(new.elements, int(name)) if name.isdigit() else None
        if label is None:
            _refuse(new, "a label", text)
        return label

    return convert


def _nth(elements: Sequence[str], datum: Datum) -> str | None:
    return elements[datum - 1] if isinstance(datum, int) and 1 <= datum <= len(elements) else None


def _label_finder(column: ColumnSchema) -> Callable[[str], str | None]:
    """Return the search for a label as the collation compares, as far as it can be known.

    All collations but the `_0900_` ones ignore trailing spaces; `_ci` ones ignore case.
    """
    collation = column.collation.lower()
    elements = column.elements

    def folded(label: str) -> str:
        if "_0900_" not in collation and collation != "binary":
            label = label.rstrip(" ")
        return label.casefold() if collation.endswith("_ci") else label

    def find(name: str) -> str | None:
        if name in elements:
            return name
        return next((label for label in elements if folded(label) == folded(name)), None)

    return find


def _to_set(old: ColumnSchema, new: ColumnSchema, timezone: str) -> Callable[[str], str]:
    del timezone
    if kind_of(old) is Kind.INTEGER:
        return _through_datum(
            old, new, expected="bit mask of labels", make=lambda datum: _joined(new, datum)
        )
    find = _label_finder(new)
    printed = _printed(old)

    def convert(text: str) -> str:
        try:
            name = printed(text)
        except (ValueError, ImageError):
            _refuse(new, "labels", text)
        found = {find(item) for item in name.split(",")} if name else set[str | None]()
        if None not in found:
            return ",".join(label for label in new.elements if label in found)
        made = None
        if shapes.SHORTEST.fullmatch(name) and name.isdigit() and len(name) <= 20:
            made = _joined(new, int(name))
        if made is None:
            _refuse(new, "labels", text)
        return made

    return convert


def _joined(column: ColumnSchema, datum: Datum) -> str | None:
    if not isinstance(datum, int) or not 0 <= datum < 2 ** len(column.elements):
        return None
    return ",".join(label for bit, label in enumerate(column.elements) if datum >> bit & 1)


def _to_json(old: ColumnSchema, new: ColumnSchema, timezone: str) -> Callable[[str], str]:
    del timezone
    make = _JSON_MAKERS[kind_of(old)]
    printed = _printed(old)

    def convert(text: str) -> str:
        try:
            return make(printed(text))
        except (ValueError, ArithmeticError, ImageError):
            _refuse(new, "JSON", text)

    return convert


def _quoted_moment(text: str) -> str:
    return f'"{shapes.pad_fraction(text, 6) if len(text) > 10 else text}"'


def _quoted_time(text: str) -> str:
    return f'"{shapes.pad_fraction(text, 6)}"'


_JSON_MAKERS: dict[Kind, Callable[[str], str]] = {
    Kind.INTEGER: str,
    Kind.YEAR: str,
    Kind.DECIMAL: lambda text: json_texts.write_json(float(text)),
    Kind.FLOAT: lambda text: json_texts.write_json(to_float32(float(text))),
    Kind.DOUBLE: lambda text: json_texts.write_json(float(text)),
    Kind.DATE: _quoted_moment,
    Kind.DATETIME: _quoted_moment,
    Kind.TIMESTAMP: _quoted_moment,
    Kind.TIME: _quoted_time,
    Kind.TEXT: json_texts.stored_json,
    Kind.BINARY: json_texts.stored_json,
    Kind.ENUM: json_texts.stored_json,
    Kind.SET: json_texts.stored_json,
}


def _to_vector(old: ColumnSchema, new: ColumnSchema, timezone: str) -> Callable[[str], str]:
    del old, timezone
    dimensions = declared_length(new)

    def convert(text: str) -> str:
        if (text.count(",") + 1 if text != "[]" else 0) != dimensions:
            _refuse(new, f"{dimensions} dimensions", text)
        return text

    return convert


def _to_unknown(old: ColumnSchema, new: ColumnSchema, timezone: str) -> Callable[[str], str]:
    del timezone
    return _refusal(old, new)


_TARGETS: dict[Kind, Callable[[ColumnSchema, ColumnSchema, str], Callable[[str], str]]] = {
    Kind.INTEGER: _to_integer,
    Kind.BIT: _to_bit,
    Kind.YEAR: _to_year,
    Kind.DECIMAL: _to_decimal,
    Kind.FLOAT: _to_float,
    Kind.DOUBLE: _to_float,
    Kind.DATE: _to_date,
    Kind.DATETIME: _to_datetime,
    Kind.TIMESTAMP: _to_timestamp,
    Kind.TIME: _to_time,
    Kind.TEXT: _to_text,
    Kind.BINARY: _to_binary,
    Kind.ENUM: _to_enum,
    Kind.SET: _to_set,
    Kind.JSON: _to_json,
    Kind.VECTOR: _to_vector,
    Kind.UNKNOWN: _to_unknown,
}
