"""Conditions of expressions: comparing values, and choosing among them.

In: terms. Out: terms of 1, 0 and NULL, and terms of the values that conditions choose. How texts
compare depends on their collation, and in some versions of TiDB on how the cluster was created;
where that decides, a row is refused.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

from ticdc_assets.registry.evolution import CanonicalRow
from ticdc_assets.registry.expressions.dates import moment_of
from ticdc_assets.registry.expressions.numbers import double_of, exact
from ticdc_assets.registry.expressions.terms import (
    MANY,
    DoubleTerm,
    Evaluate,
    Function,
    Functions,
    JsonTerm,
    MomentTerm,
    NullLiteral,
    NumberTerm,
    Term,
    TextTerm,
    both_of,
    constant,
    mapped,
    number_of,
    refused,
)
from ticdc_assets.registry.expressions.texts import BINARY_COLLATIONS, collation_of, text_term

_CASELESS_COLLATIONS: Final = frozenset(
    {
        "utf8mb4_general_ci",
        "utf8_general_ci",
        "utf8mb4_unicode_ci",
        "utf8_unicode_ci",
        "utf8mb4_0900_ai_ci",
    }
)


def _order(left: Any, right: Any) -> int:
    return (left > right) - (left < right)


def _text_order(left: str, right: str, collation: str) -> int:
    """Return how two texts compare; PartitionError where clusters or collations may disagree."""
    if left == right:
        return 0
    if collation in BINARY_COLLATIONS:
        # Whether trailing spaces count depends on the collation and on the cluster.
        width = max(len(left), len(right))
        order = _order(left, right)
        if order == _order(left.ljust(width), right.ljust(width)):
            return order
    elif collation in _CASELESS_COLLATIONS:
        texts = [text.upper() for text in (left, right)]
        if all(text.isascii() and text.isprintable() for text in (left, right)):
            if texts[0] == texts[1]:
                return 0
            if texts[0].rstrip(" ") != texts[1].rstrip(" "):
                return _UNEQUAL
    raise refused("comparing texts by their collation")


_UNEQUAL: Final = 2
"""They differ; which is greater is uncertain."""


def compared(left: Term, right: Term, what: str) -> Callable[[CanonicalRow], int | None]:
    """Return the function that gives -1, 0 or 1, `_UNEQUAL`, or None if one side is NULL."""
    sides = (left, right)
    if any(isinstance(side, NullLiteral) for side in sides):
        return constant(None)
    if all(isinstance(side, NumberTerm) for side in sides):
        numbers = [number_of(side, what).evaluate for side in sides]
        return both_of(numbers[0], numbers[1], _order)
    if all(isinstance(side, NumberTerm | DoubleTerm) for side in sides):
        doubles = [double_of(side, what) for side in sides]
        return both_of(doubles[0], doubles[1], _order)
    if all(isinstance(side, TextTerm) for side in sides):
        collation = collation_of(sides)
        return both_of(
            left.evaluate, right.evaluate, lambda one, other: _text_order(one, other, collation)
        )
    if all(isinstance(side, MomentTerm | TextTerm) for side in sides):
        moments = [moment_of(side, what) for side in sides]
        return both_of(moments[0], moments[1], _order)
    raise refused(f"{what} between such values")


def comparison(
    left: Term, right: Term, what: str, test: Callable[[int, int], bool] = operator.eq
) -> NumberTerm:
    """Return the term of a comparison; `test` takes the result of `compared`, and 0."""

    def decided(order: int) -> int:
        if order == _UNEQUAL and what not in ("=", "<>", "!=", "<=>", "IN", "CASE", "NULLIF"):
            raise refused("comparing texts by their collation")
        return int(test(order, 0))

    return NumberTerm(mapped(compared(left, right, what), decided))


def same_or_null(left: Term, right: Term) -> NumberTerm:
    """Return the term of `<=>`: NULL equals NULL."""
    null_left, null_right = is_null(left), is_null(right)
    equal = comparison(left, right, "<=>").evaluate

    def evaluate(row: CanonicalRow) -> int:
        nulls = null_left.evaluate(row), null_right.evaluate(row)
        return int(nulls[0] == nulls[1]) if any(nulls) else int(equal(row) or 0)

    return NumberTerm(evaluate)


def is_null(term: Term) -> NumberTerm:
    """Return the term of `IS NULL`."""
    value_of: Evaluate = term.evaluate
    return NumberTerm(lambda row: int(value_of(row) is None))


def truth_of(term: Term, what: str) -> Callable[[CanonicalRow], bool | None]:
    """Return the function of a condition: None for NULL."""
    if isinstance(term, DoubleTerm):
        return mapped(term.evaluate, bool)
    return mapped(number_of(term, what).evaluate, bool)


def unified(terms: Sequence[Term], what: str) -> tuple[list[Evaluate], Callable[[Evaluate], Term]]:
    """Return the values of terms of which one is chosen, and the builder of the choice's term."""
    not_null = [term for term in terms if not isinstance(term, NullLiteral)]
    if all(isinstance(term, NumberTerm) for term in not_null):
        numbers = [number_of(term, what) for term in terms]
        scales = {number_of(term, what).scale for term in not_null}
        # How many digits of a number are printed in a choice is uncertain.
        scale = scales.pop() if len(scales) == 1 else None
        return [number.evaluate for number in numbers], lambda chosen: exact(chosen, scale)
    if all(isinstance(term, NumberTerm | DoubleTerm) for term in not_null):
        return [double_of(term, what) for term in terms], DoubleTerm
    if all(isinstance(term, JsonTerm) for term in not_null):
        return [term.evaluate for term in terms], JsonTerm
    moments = [term for term in not_null if isinstance(term, MomentTerm)]
    if len(moments) == len(not_null) and len({term.digits for term in moments}) == 1:
        digits = moments[0].digits
        return [term.evaluate for term in terms], lambda chosen: MomentTerm(chosen, digits)
    if moments or any(isinstance(term, JsonTerm) for term in not_null):
        raise refused(f"{what} with values of several types")
    collation = collation_of(not_null)
    texts = [text_term(term, what).evaluate for term in terms]
    return texts, lambda chosen: TextTerm(chosen, collation)


def chosen(
    conditions: Sequence[Callable[[CanonicalRow], bool | None]],
    terms: Sequence[Term],
    what: str,
) -> Term:
    """Return the first term whose condition is true, else the last, which has no condition."""
    values, make = unified(terms, what)

    def evaluate(row: CanonicalRow) -> Any:
        for condition, value_of in zip(conditions, values, strict=False):
            if condition(row):
                return value_of(row)
        return values[-1](row)

    return make(evaluate)


def _coalesce(name: str, arguments: Sequence[Term]) -> Term:
    values, make = unified(arguments, name)

    def evaluate(row: CanonicalRow) -> Any:
        return next((value for value_of in values if (value := value_of(row)) is not None), None)

    return make(evaluate)


def _null_if(name: str, arguments: Sequence[Term]) -> Term:
    left, right = arguments
    equal = comparison(left, right, name).evaluate
    values, make = unified(arguments[:1], name)
    return make(lambda row: None if equal(row) else values[0](row))


CONDITION_FUNCTIONS: Final[Functions] = {
    "IF": Function(3, 3, lambda name, terms: chosen([truth_of(terms[0], name)], terms[1:], name)),
    "IFNULL": Function(2, 2, _coalesce),
    "COALESCE": Function(1, MANY, _coalesce),
    "NULLIF": Function(2, 2, _null_if),
    "ISNULL": Function(1, 1, lambda _name, terms: is_null(terms[0])),
}
"""Functions that choose values."""
