"""The pieces of an expression: terms with a type, each a function of a row.

In: nothing; the reader of expressions and its tables of functions share these values. Out: terms. A
term knows its type when it is built, so that refusals happen then. Evaluating a term of a partition
on a row of the table cannot fail; a term of a generated column raises `PartitionError` for a row
whose value is uncertain.

Numbers are Python's integers and fractions, exact at any size: TiDB refuses to store a row whose
expression leaves 64 bits, so a mirror has none.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, NamedTuple, TypeAlias

from ticdc_assets.base.errors import PartitionError
from ticdc_assets.registry.evolution import CanonicalRow


class Moment(NamedTuple):
    """A date with its time of day; month and day may be 0, and the day may not be in its month."""

    year: int
    month: int
    day: int
    hour: int = 0
    minute: int = 0
    second: int = 0
    microsecond: int = 0

    @property
    def is_zero(self) -> bool:
        """Whether all of it is 0."""
        return not any(self)

    @property
    def lacks_day(self) -> bool:
        """Whether the month or the day is 0, so that it is not a day of the calendar."""
        return self.month == 0 or self.day == 0

    @property
    def clock_microseconds(self) -> int:
        """The time of day in microseconds."""
        seconds = self.hour * 3600 + self.minute * 60 + self.second
        return seconds * 1_000_000 + self.microsecond


@dataclass(frozen=True, slots=True)
class NumberTerm:
    """A number of a row.

    Attributes:
        evaluate: its value, exact.
        fractional: whether it may have a fraction, so that only FLOOR and CEILING may take it.
        repeats: whether it is the moment of a TIMESTAMP whose text may mean two moments.
        scale: digits after the point that TiDB prints, None where that is not known.
        literal: the integer, where the text writes it.
        unrounded: for a quotient, its exact value before TiDB rounds it to `scale` digits.
    """

    evaluate: Callable[[CanonicalRow], int | Fraction | None]
    fractional: bool = False
    repeats: bool = False
    scale: int | None = 0
    literal: int | None = None
    unrounded: Callable[[CanonicalRow], Fraction | None] | None = None


@dataclass(frozen=True, slots=True)
class MomentTerm:
    """A DATE or DATETIME.

    Attributes:
        evaluate: its value.
        digits: digits of its fraction of a second; None for a DATE.
    """

    evaluate: Callable[[CanonicalRow], Moment | None]
    digits: int | None = None


@dataclass(frozen=True, slots=True)
class TimestampTerm:
    """A TIMESTAMP column, as the seconds since 1970; the other fields as in `NumberTerm`."""

    evaluate: Callable[[CanonicalRow], int | Fraction | None]
    fractional: bool
    repeats: bool


@dataclass(frozen=True, slots=True)
class SpanTerm:
    """A TIME, in microseconds."""

    evaluate: Callable[[CanonicalRow], int | None]


@dataclass(frozen=True, slots=True)
class TextTerm:
    """A text of a row.

    Attributes:
        evaluate: its value.
        collation: the collation by which it compares, "" where that is not known.
        literal: the string, where the text writes it; it means a date or time where one is needed.
        is_label: whether it is an ENUM or a SET, which is another number than its text.
    """

    evaluate: Callable[[CanonicalRow], str | None]
    collation: str = ""
    literal: str | None = None
    is_label: bool = False


@dataclass(frozen=True, slots=True)
class DoubleTerm:
    """A number of a row in 64 bits of floating point."""

    evaluate: Callable[[CanonicalRow], float | None]


@dataclass(frozen=True, slots=True)
class JsonTerm:
    """A JSON value of a row, as canonical text."""

    evaluate: Callable[[CanonicalRow], str | None]


@dataclass(frozen=True, slots=True)
class NullLiteral:
    """The word NULL."""

    def evaluate(self, row: CanonicalRow) -> None:
        """Return NULL."""


Term: TypeAlias = (
    NumberTerm
    | MomentTerm
    | TimestampTerm
    | SpanTerm
    | TextTerm
    | DoubleTerm
    | JsonTerm
    | NullLiteral
)

Integer: TypeAlias = Callable[[CanonicalRow], int | None]

Evaluate: TypeAlias = Callable[[CanonicalRow], Any]
"""A value of a row."""

Build: TypeAlias = Callable[[str, Sequence[Term]], Term]
"""The builder of a function's term, by its name and arguments."""

Functions: TypeAlias = Mapping[str, tuple[int, int, Build]]
"""By name the fewest and most arguments of functions, and the builders of their terms."""

MANY: Final = 1 << 10
"""Arguments of a function that takes any number."""


def integer_literal(value: int) -> NumberTerm:
    """Return the term of an integer as the text writes it."""
    return NumberTerm(lambda _row: value, literal=value)


def text_literal(text: str) -> TextTerm:
    """Return the term of a string as the text writes it."""
    return TextTerm(lambda _row: text, literal=text)


def number_of(term: Term, what: str, *, may_repeat: bool = False) -> NumberTerm:
    """Return `term` as a number; PartitionError for another term.

    Args:
        term: the term.
        what: what needs the number, for errors.
        may_repeat: whether it may be the moment of a TIMESTAMP whose text may mean two moments.
    """
    match term:
        case NumberTerm():
            if term.repeats and not may_repeat:
                raise repeated_times(what)
            return term
        case NullLiteral():
            return NumberTerm(term.evaluate)
        case _:
            raise PartitionError(f"{what} over what is no number")


def integer_of(term: Term, what: str) -> Integer:
    """Return the function of an integer term; PartitionError for another term."""
    return whole_number(number_of(term, what), what)


def repeated_times(what: str) -> PartitionError:
    """Return the error of a TIMESTAMP whose text may mean two moments."""
    return PartitionError(
        f"{what} over a TIMESTAMP, in a time zone where clocks were put back, is not certain"
    )


def whole_number(number: NumberTerm, what: str) -> Integer:
    """Return the function of a number without fractions, even one of repeated times."""
    if number.fractional:
        raise PartitionError(f"{what} over a number with a fraction")
    return mapped(number.evaluate, int)


def mapped(value_of: Evaluate, change: Callable[[Any], Any]) -> Evaluate:
    """Return the function of one value: NULL for NULL."""

    def evaluate(row: CanonicalRow) -> Any:
        value = value_of(row)
        return None if value is None else change(value)

    return evaluate


def both_of(left: Evaluate, right: Evaluate, operation: Callable[[Any, Any], Any]) -> Evaluate:
    """Return the function of two values: NULL if one is."""
    return all_of((left, right), operation)


def all_of(values: Sequence[Evaluate], operation: Callable[..., Any]) -> Evaluate:
    """Return the function of several values: NULL if one is."""

    def evaluate(row: CanonicalRow) -> Any:
        arguments = [value_of(row) for value_of in values]
        return None if None in arguments else operation(*arguments)

    return evaluate


def refused(what: str) -> PartitionError:
    """Return the error of something uncertain."""
    return PartitionError(f"{what} in an expression is not certain")


def is_constant(term: Term) -> bool:
    """Return whether a term is a literal."""
    return isinstance(term, NullLiteral) or getattr(term, "literal", None) is not None


def literal_integer(term: Term, what: str) -> int:
    """Return the value of a literal; PartitionError for another term."""
    if not isinstance(term, NumberTerm) or term.literal is None:
        raise refused(f"{what} with what is no literal")
    return term.literal


def literal_text(term: Term, what: str) -> str:
    """Return the string of a literal; PartitionError for another term."""
    if not isinstance(term, TextTerm) or term.literal is None:
        raise refused(f"{what} with what is no literal")
    return term.literal
