"""What the functions of generated columns share: values of rows, and their refusal.

In: functions from rows to values. Out: functions built from them, where NULL gives NULL. Pure.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from ticdc_assets.base.errors import PartitionError
from ticdc_assets.registry.evolution import CanonicalRow
from ticdc_assets.registry.partition_terms import IntegerLiteral, NullLiteral, Term, TextLiteral

Evaluate: TypeAlias = Callable[[CanonicalRow], Any]
"""A value of a row."""

Build: TypeAlias = Callable[[str, Sequence[Term]], Term]
"""The builder of a function's term, by its name and arguments."""

Functions: TypeAlias = Mapping[str, tuple[int, int, Build]]
"""By name the fewest and most arguments of functions, and the builders of their terms."""

MANY: Final = 1 << 10
"""Arguments of a function that takes any number."""


def refused(what: str) -> PartitionError:
    """Return the error of something uncertain."""
    return PartitionError(f"{what} in an expression is not certain")


def mapped(value_of: Evaluate, change: Callable[[Any], Any]) -> Evaluate:
    """Return the function of one value: NULL for NULL."""

    def evaluate(row: CanonicalRow) -> Any:
        value = value_of(row)
        return None if value is None else change(value)

    return evaluate


def both_of(
    left: Evaluate, right: Evaluate, operation: Callable[[Any, Any], Any]
) -> Callable[[CanonicalRow], Any]:
    """Return the function of two values: NULL if one is."""

    def evaluate(row: CanonicalRow) -> Any:
        first, second = left(row), right(row)
        return None if first is None or second is None else operation(first, second)

    return evaluate


def is_constant(term: Term) -> bool:
    """Return whether a term is a literal."""
    return isinstance(term, TextLiteral | IntegerLiteral | NullLiteral)


def literal_integer(term: Term, what: str) -> int:
    """Return the value of a literal; PartitionError for another term."""
    if not isinstance(term, IntegerLiteral):
        raise refused(f"{what} with what is no literal")
    return term.value
