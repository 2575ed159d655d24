"""What the functions of generated columns share: literals, and the refusal of what is uncertain."""

from typing import Final

from ticdc_assets.base.errors import PartitionError
from ticdc_assets.registry.partition_terms import IntegerLiteral, NullLiteral, Term, TextLiteral

MANY: Final = 1 << 10
"""Arguments of a function that takes any number."""


def refused(what: str) -> PartitionError:
    """Return the error of something uncertain."""
    return PartitionError(f"{what} in an expression is not certain")


def is_constant(term: Term) -> bool:
    """Return whether a term is a literal."""
    return isinstance(term, TextLiteral | IntegerLiteral | NullLiteral)


def literal_integer(term: Term, what: str) -> int:
    """Return the value of a literal; PartitionError for another term."""
    if not isinstance(term, IntegerLiteral):
        raise refused(f"{what} with what is no literal")
    return term.value
