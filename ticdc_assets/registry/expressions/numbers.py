"""Numbers of expressions: sums, quotients and roundings, with the digits that TiDB gives them.

In: terms. Out: terms of numbers, which are Python's integers and fractions, or of floating point. A
term refuses a row where versions of TiDB may print or round its number in different ways.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil, copysign, floor, trunc
from typing import Any, Final

from ticdc_assets.registry.evolution import CanonicalRow
from ticdc_assets.registry.expressions.terms import (
    MANY,
    DoubleTerm,
    Function,
    Functions,
    Number,
    NumberTerm,
    Term,
    all_of,
    both_of,
    exact_number,
    function,
    integer_result,
    literal_integer,
    mapped,
    number_of,
    refused,
)

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


def _extreme(name: str, arguments: Sequence[Term]) -> Term:
    numbers = [number_of(argument, name) for argument in arguments]
    scales = {number.scale for number in numbers}
    choose = max if name == "GREATEST" else min

    evaluate = all_of([number.evaluate for number in numbers], choose)
    return exact(evaluate, scales.pop() if len(scales) == 1 else None)


NUMBER_FUNCTIONS: Final[Functions] = {
    "ABS": Function(1, 1, _absolute),
    **dict.fromkeys(("CEIL", "CEILING", "FLOOR"), Function(1, 1, _whole)),
    "MOD": Function(2, 2, lambda _name, arguments: rest(*arguments)),
    "ROUND": Function(1, 2, _rounding),
    "TRUNCATE": Function(2, 2, _rounding),
    "SIGN": function(integer_result, lambda value: (value > 0) - (value < 0), exact_number),
    **dict.fromkeys(("GREATEST", "LEAST"), Function(2, MANY, _extreme)),
}
"""Functions of numbers."""
