"""The pieces of an expression: terms with a type, each a function of a row, and what makes them.

In: nothing; the reader of expressions and its tables of functions share these values. Out: terms,
the values of terms where a type is needed, and `function`, by which the tables say what a function
takes and gives. A term knows its type when it is built, so that refusals happen then. Evaluating a
term of a partition on a row of the table cannot fail; a term of a generated column raises
`PartitionError` for a row whose value is uncertain, such as a quotient with more digits than TiDB
keeps, where they count.

Most functions give NULL if an argument is NULL: `function` makes these from a function of values
that are never NULL, and from the types of its arguments. The others build their terms themselves.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, overload

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
    """A DATE, or a DATETIME with `digits` of its fraction of a second."""

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

Number: TypeAlias = int | Fraction
"""Exact at any size: TiDB refuses to store a row whose expression leaves 64 bits."""

Integer: TypeAlias = Callable[[CanonicalRow], int | None]

Evaluate: TypeAlias = Callable[[CanonicalRow], Any]
"""A value of a row."""

_A = TypeVar("_A")
_B = TypeVar("_B")
_C = TypeVar("_C")
_R = TypeVar("_R")

Argument: TypeAlias = Callable[[Term, str], Callable[[CanonicalRow], _A | None]]
"""The type of an argument: its values, for the function of this name; PartitionError for another.
"""

Result: TypeAlias = Callable[[Callable[[CanonicalRow], _R | None], Sequence[Term]], Term]
"""The type of a function's result: the term of these values, which come from these arguments."""

MANY: Final = 1 << 10
"""Arguments of a function that takes any number."""


@dataclass(frozen=True, slots=True)
class Function:
    """The fewest and most arguments of a function, and the builder of its term.

    The builder receives the function's name and its arguments.
    """

    fewest: int
    most: int
    build: Callable[[str, Sequence[Term]], Term]


Functions: TypeAlias = Mapping[str, Function]
"""Functions by name, in upper case."""


@overload
def function(
    result: Result[_R], change: Callable[[_A], _R | None], one: Argument[_A], /
) -> Function: ...
@overload
def function(
    result: Result[_R],
    change: Callable[[_A, _B], _R | None],
    one: Argument[_A],
    two: Argument[_B],
    /,
    *,
    optional: int = 0,
) -> Function: ...
@overload
def function(
    result: Result[_R],
    change: Callable[[_A, _B, _C], _R | None],
    one: Argument[_A],
    two: Argument[_B],
    three: Argument[_C],
    /,
    *,
    optional: int = 0,
) -> Function: ...
def function(
    result: Result[Any],
    change: Callable[..., Any],
    /,
    *arguments: Argument[Any],
    optional: int = 0,
) -> Function:
    """Return the function that gives `change` of its arguments' values, and NULL if one is NULL.

    The last `optional` arguments may be missing.
    """

    def build(name: str, terms: Sequence[Term]) -> Term:
        values = [type_(term, name) for term, type_ in zip(terms, arguments, strict=False)]
        evaluate = mapped(values[0], change) if len(values) == 1 else all_of(values, change)
        return result(evaluate, terms)

    return Function(len(arguments) - optional, len(arguments), build)


def integer_result(evaluate: Integer, _: Sequence[Term]) -> NumberTerm:
    """Return the term of a function that gives whole numbers."""
    return NumberTerm(evaluate)


def constant(value: Any) -> Evaluate:
    """Return the function that gives one value for all rows."""
    return lambda _row: value


def integer_literal(value: int) -> NumberTerm:
    """Return the term of an integer as the text writes it."""
    return NumberTerm(constant(value), literal=value)


def text_literal(text: str) -> TextTerm:
    """Return the term of a string as the text writes it."""
    return TextTerm(constant(text), literal=text)


def number_of(term: Term, what: str, *, may_repeat: bool = False) -> NumberTerm:
    """Return `term` as a number, which `what` needs; PartitionError for another term.

    With `may_repeat` it may be the moment of a TIMESTAMP whose text may mean two moments.
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


def exact_number(term: Term, what: str) -> Callable[[CanonicalRow], Number | None]:
    """Return the function of a number term; PartitionError for another term."""
    return number_of(term, what).evaluate


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


def literal_value(term: Term, what: str) -> Integer:
    """Return the function of an integer literal; PartitionError for another term."""
    return constant(literal_integer(term, what))


def literal_text(term: Term, what: str) -> str:
    """Return the string of a literal; PartitionError for another term."""
    if not isinstance(term, TextTerm) or term.literal is None:
        raise refused(f"{what} with what is no literal")
    return term.literal
