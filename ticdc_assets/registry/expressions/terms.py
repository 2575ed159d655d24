"""The pieces of an expression: terms with a type, each a function of a row; and those of numbers.

In: nothing; the reader of expressions and its tables of functions share these values. Out: terms,
and those of sums, quotients and roundings, with the digits that TiDB gives them. A term knows its
type when it is built, so that refusals happen then. Evaluating a term of a partition on a row of
the table cannot fail; a term of a generated column raises `PartitionError` for a row whose value is
uncertain, such as a quotient with more digits than TiDB keeps, where they count.

Numbers are Python's integers and fractions, exact at any size: TiDB refuses to store a row whose
expression leaves 64 bits, so a mirror has none.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, copysign, floor, trunc
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


Number: TypeAlias = int | Fraction
MAX_SCALE: Final = 30
_MAX_DIGITS: Final = 65


def exact(
    evaluate: Callable[[CanonicalRow], Number | None],
    scale: int | None,
    *,
    fractional: bool = True,
) -> NumberTerm:
    """Return the term of a number with `scale` digits after its point.

    Where the scale is not known (None), `fractional` says whether there may be some.
    """
    if scale is not None:
        fractional = scale != 0
        if scale > MAX_SCALE:
            raise refused(f"a number with {scale} digits after its point")
    if not fractional:
        # TiDB stores no row whose whole number leaves 64 bits, so this needs no limit.
        return NumberTerm(evaluate, scale=scale)

    def checked(value: Number) -> Number:
        if abs(value) >= 10 ** (_MAX_DIGITS - (scale or 0)):
            raise refused("a number with so many digits")
        return value

    return NumberTerm(mapped(evaluate, checked), fractional=True, scale=scale)


def half_up(value: Number, digits: int) -> Number:
    """Return a number rounded to so many digits after its point, halves away from zero."""
    shifted = abs(value) * Fraction(10) ** digits
    whole = floor(shifted + Fraction(1, 2))
    rounded = Fraction(whole) / Fraction(10) ** digits
    return -rounded if value < 0 else rounded


def rounded_quotient(
    number: NumberTerm, digits: int
) -> Callable[[CanonicalRow], Number | None] | None:
    """Return the rounded value of a quotient, None for a number without more digits.

    TiDB keeps more digits of a quotient than it prints, up to a multiple of nine. Where rounding
    the printed digits gives another number than rounding all digits, the value is uncertain.
    """
    unrounded, scale = number.unrounded, number.scale
    if unrounded is None or scale is None or digits > scale - (scale % 9 == 0):
        return None

    def rounded(value: Number) -> Number:
        once = half_up(value, digits)
        if half_up(half_up(value, scale), digits) != once:
            raise refused("a quotient that is rounded twice")
        return once

    return mapped(unrounded, rounded)


def _rounded_whole(value: Number, digits: int) -> Number:
    """Return the rounded value of a whole number, if it is the same in all versions of TiDB.

    They round whole numbers to digits by way of a double, halves to even or away from zero.
    """
    rounded, ten = half_up(value, digits), float(f"1e{digits}")
    shifted = float(value) * ten
    if any(
        int(whole / ten) != rounded
        for whole in (round(shifted), trunc(shifted + copysign(0.5, shifted)))
    ):
        raise refused("ROUND of such a whole number")
    return rounded


def double_of(term: Term, what: str) -> Callable[[CanonicalRow], float | None]:
    """Return the function of a number as floating point."""
    if isinstance(term, DoubleTerm):
        return term.evaluate
    return mapped(number_of(term, what).evaluate, float)


def _finite(value: float) -> float:
    if value - value != 0:
        raise refused("a number that DOUBLE does not hold")
    return value


def arithmetic(
    operation: Callable[[Any, Any], Any],
    scale_of: Callable[[int, int], int],
    sign: str,
    *,
    exact_only: bool = False,
) -> Callable[[Term, Term], Term]:
    """Return the operator of exact numbers, or of floating point if one side is.

    With `exact_only`, floating point is refused.
    """

    def combine(left: Term, right: Term) -> Term:
        if isinstance(left, DoubleTerm) or isinstance(right, DoubleTerm):
            if exact_only:
                raise refused(f"{sign} of floating point")
            both = double_of(left, sign), double_of(right, sign)
            return DoubleTerm(both_of(*both, lambda one, other: _finite(operation(one, other))))
        one, other = number_of(left, sign), number_of(right, sign)
        scale = None
        if one.scale is not None and other.scale is not None:
            scale = scale_of(one.scale, other.scale)
        return exact(
            both_of(one.evaluate, other.evaluate, operation),
            scale,
            fractional=one.fractional or other.fractional,
        )

    return combine


def _cut_quotient(left: Number, right: Number) -> int | None:
    """Return `left DIV right`, cut towards zero; NULL by zero."""
    if right == 0:
        return None
    whole = abs(left) // abs(right)
    return whole if (left < 0) == (right < 0) else -whole


def _remainder(left: Number, right: Number) -> Number | None:
    """Return `left MOD right`, with the sign of `left`; NULL by zero."""
    if right == 0:
        return None
    rest_of = abs(left) % abs(right)
    return -rest_of if left < 0 else rest_of


def quotient(left: Term, right: Term) -> Term:
    """Return the term of `/`: four more digits than the dividend has; NULL by zero."""
    if isinstance(left, DoubleTerm) or isinstance(right, DoubleTerm):
        both = double_of(left, "/"), double_of(right, "/")
        return DoubleTerm(
            both_of(*both, lambda one, other: None if other == 0 else _finite(one / other))
        )
    one, other = number_of(left, "/"), number_of(right, "/")
    if one.scale is None:
        raise refused("a quotient of such a number")
    scale = one.scale + 4
    unrounded = both_of(
        one.evaluate, other.evaluate, lambda up, down: None if down == 0 else Fraction(up) / down
    )

    def checked(value: Number) -> Number:
        if half_up(value, scale) != value:
            raise refused(f"a quotient with more than {scale} digits")
        return value

    term = exact(mapped(unrounded, checked), scale)
    return NumberTerm(term.evaluate, fractional=True, scale=scale, unrounded=unrounded)


whole_quotient: Final = arithmetic(_cut_quotient, lambda _one, _other: 0, "DIV", exact_only=True)
rest: Final = arithmetic(_remainder, max, "MOD", exact_only=True)


def _rounding(name: str, arguments: Sequence[Term]) -> Term:
    number = number_of(arguments[0], name)
    digits = literal_integer(arguments[1], name) if len(arguments) == 2 else 0
    if not -MAX_SCALE <= digits <= MAX_SCALE:
        raise refused(f"{name} to {digits} digits")
    cuts, ten = name == "TRUNCATE", Fraction(10) ** digits

    def change(value: Number) -> Number:
        if not cuts:
            is_whole = not number.fractional and len(arguments) == 2
            return (_rounded_whole if is_whole else half_up)(value, digits)
        return Fraction(_cut_quotient(value * ten, 1) or 0) / ten

    scale = number.scale
    if scale is not None:
        # It is uncertain whether digits that the number does not have are printed.
        scale = max(digits, 0) if digits <= scale else None
    of_quotient = None if cuts else rounded_quotient(number, digits)
    if of_quotient is not None:
        return exact(of_quotient, scale)
    return exact(mapped(number.evaluate, change), scale)


def _whole(name: str, arguments: Sequence[Term]) -> Term:
    # Rounded to a second, the moment of a TIMESTAMP is as uncertain as it was.
    number = number_of(arguments[0], name, may_repeat=True)
    change = floor if name == "FLOOR" else ceil
    unrounded, scale = number.unrounded, number.scale
    if unrounded is None or scale is None:
        return NumberTerm(mapped(number.evaluate, change), repeats=number.repeats)

    def of_quotient(value: Fraction) -> int:
        cut = Fraction(_cut_quotient(value * 10**scale, 1) or 0, 10**scale)
        if change(cut) != change(value):
            raise refused(f"{name} of a quotient with so many digits")
        return change(value)

    return exact(mapped(unrounded, of_quotient), 0)


def _absolute(name: str, arguments: Sequence[Term]) -> Term:
    if isinstance(arguments[0], DoubleTerm):
        return DoubleTerm(mapped(arguments[0].evaluate, abs))
    number = number_of(arguments[0], name)
    return exact(mapped(number.evaluate, abs), number.scale, fractional=number.fractional)


def _sign(name: str, arguments: Sequence[Term]) -> Term:
    number = number_of(arguments[0], name)
    return exact(mapped(number.evaluate, lambda value: (value > 0) - (value < 0)), 0)


def _extreme(name: str, arguments: Sequence[Term]) -> Term:
    numbers = [number_of(argument, name) for argument in arguments]
    scales = {number.scale for number in numbers}
    choose = max if name == "GREATEST" else min

    evaluate = all_of([number.evaluate for number in numbers], choose)
    return exact(evaluate, scales.pop() if len(scales) == 1 else None)


NUMBER_FUNCTIONS: Final[Functions] = {
    "ABS": (1, 1, _absolute),
    "CEIL": (1, 1, _whole),
    "CEILING": (1, 1, _whole),
    "FLOOR": (1, 1, _whole),
    "MOD": (2, 2, lambda _name, arguments: rest(*arguments)),
    "ROUND": (1, 2, _rounding),
    "TRUNCATE": (2, 2, _rounding),
    "SIGN": (1, 1, _sign),
    "GREATEST": (2, MANY, _extreme),
    "LEAST": (2, MANY, _extreme),
}
"""Functions of numbers."""
