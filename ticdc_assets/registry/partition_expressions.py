"""Partition expressions and bounds: text to terms.

In: the text between the parentheses of PARTITION BY or VALUES, the table's schema and the
changefeed's time zone. Out: a term that gives the expression's value for a row, or `PartitionError`
where the text has anything unknown. Reading refuses everything that must be refused; evaluating a
row of the table cannot fail.

The grammar is what TiDB allows there: columns, integer literals, + - * DIV % MOD, parentheses and
its list of functions. Depth and size are bounded, so neither reading nor evaluating can exhaust the
stack, whatever the text.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from typing import ClassVar, Final, TypeAlias, TypeVar

from ticdc_assets.base.errors import PartitionError, shorten
from ticdc_assets.model.mysql_types import Kind, fractional_digits, kind_of, lacks_size
from ticdc_assets.model.schemas import ColumnSchema, TableSchema
from ticdc_assets.model.values.moments import span_of_text
from ticdc_assets.model.values.zones import changefeed_zone, to_utc
from ticdc_assets.registry.ddl_tokens import (
    DOUBLE_QUOTED,
    NUMBER,
    QUOTED,
    WORD,
    Cursor,
    shown_sql,
    tokenize,
)
from ticdc_assets.registry.evolution import CanonicalRow
from ticdc_assets.registry.partition_functions import (
    EPOCH,
    MICROSECOND,
    call,
    combined,
    extract,
    quotient,
    remainder,
    repeats_times,
)
from ticdc_assets.registry.partition_terms import (
    IntegerLiteral,
    Moment,
    MomentTerm,
    NullLiteral,
    NumberTerm,
    SpanTerm,
    Term,
    TextLiteral,
    TimestampTerm,
    integer_of,
    mapped,
)

MAX_DEPTH: Final = 24
MAX_TERMS: Final = 60
MAX_DIGITS: Final = 20

Combine: TypeAlias = Callable[[Term, Term], Term]
"""The result of an operator for the terms on its two sides."""


def _of_integers(operation: Callable[[int, int], int | None], sign: str) -> Combine:
    return lambda left, right: combined(left, right, operation, what=sign)


def cursor_over(text: str) -> Cursor:
    """Return a cursor over all of `text`; PartitionError if a quote in it is never closed."""
    tokens = tokenize(text)
    if tokens.problem is not None:
        raise PartitionError(f"the expression {shown_sql(text)} is not understood")
    return Cursor(tokens, 0, len(tokens.kinds))


def read_expression(text: str, schema: TableSchema | None, timezone: str) -> Term:
    """Return the term of `text`; without a schema it may only have literals."""
    cursor = cursor_over(text)
    term = ExpressionReader(schema, timezone).read(cursor)
    if not cursor.done or cursor.tokens.problem is not None:
        raise PartitionError(f"the expression {shown_sql(text)} is not understood")
    return term


def integer_bound(cursor: Cursor, timezone: str) -> int | None:
    """Take an expression over literals and return its integer, or None for NULL."""
    term = ExpressionReader(None, timezone).read(cursor)
    return integer_of(term, "the value")({})


def find_column(schema: TableSchema, name: str) -> ColumnSchema:
    """Return the column called `name`, which is compared without case."""
    folded = name.lower()
    for column in schema.columns:
        if column.name.lower() == folded:
            return column
    raise PartitionError(f"no column {shorten(name)} of the expression is in the table")


class ExpressionReader:
    """Reads one expression at a cursor.

    A subclass has its own tables and methods for what it reads in addition.
    """

    def __init__(self, schema: TableSchema | None, timezone: str) -> None:
        self._schema = schema
        self._timezone = timezone
        self._depth = 0
        self._terms = 0

    sums: ClassVar[Mapping[str, Combine]] = {
        "+": _of_integers(operator.add, "+"),
        "-": _of_integers(operator.sub, "-"),
    }
    products: ClassVar[Mapping[str, Combine]] = {
        "*": _of_integers(operator.mul, "*"),
        "DIV": _of_integers(quotient, "DIV"),
        "MOD": _of_integers(remainder, "MOD"),
        "%": _of_integers(remainder, "%"),
    }

    def read(self, cursor: Cursor) -> Term:
        """Take an expression as far as it goes."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise PartitionError("the expression is nested too deeply")
        term = self.expression(cursor)
        self._depth -= 1
        return term

    def expression(self, cursor: Cursor) -> Term:
        """Take operands joined by the operators that bind the least."""
        return self.sum(cursor)

    def sum(self, cursor: Cursor) -> Term:
        """Take terms with + and - between them."""
        left = self.product(cursor)
        while combine := self.sums.get(cursor.raw()):
            cursor.at += 1
            left = combine(left, self.product(cursor))
        return left

    def product(self, cursor: Cursor) -> Term:
        """Take terms with * and its like between them."""
        left = self._signed(cursor)
        while combine := self.products.get(cursor.word() or cursor.raw()):
            cursor.at += 1
            left = combine(left, self._signed(cursor))
        return left

    def _signed(self, cursor: Cursor) -> Term:
        self._terms += 1
        if self._terms > MAX_TERMS:
            raise PartitionError("the expression is too long")
        negative = False
        while cursor.is_char("-") or cursor.is_char("+"):
            negative ^= cursor.is_char("-")
            cursor.at += 1
        term = self.primary(cursor)
        if not negative:
            return term
        if isinstance(term, IntegerLiteral):
            return IntegerLiteral(-term.value)
        return self.sums["-"](IntegerLiteral(0), term)

    def primary(self, cursor: Cursor) -> Term:
        """Take one operand."""
        start = cursor.at
        group = cursor.take_group()
        if group is not None:
            return self.whole(group)
        if cursor.kind() == NUMBER:
            return self.number(cursor)
        word = cursor.word()
        if word and cursor.is_char("(", 1):
            cursor.at += 1
            return self.call(word, cursor)
        if word in _LITERAL_WORDS:
            cursor.at += 1
            return _LITERAL_WORDS[word]
        if word in _TEMPORAL_WORDS and cursor.is_string(1):
            cursor.at += 1
            return TextLiteral(cursor.take_string() or "")
        if cursor.kind() in (WORD, QUOTED) and not cursor.is_string(1):
            return self._column(cursor)
        if cursor.kind() == DOUBLE_QUOTED and self._names_column(cursor):
            return self._column(cursor)
        text = cursor.take_string()
        if text is not None:
            return TextLiteral(text)
        cursor.at = start
        piece = shown_sql(cursor.raw()) if cursor.raw() else "the end"
        raise PartitionError(f"{piece} in an expression is not understood")

    def whole(self, group: Cursor) -> Term:
        """Take an expression that fills a group."""
        term = self.read(group)
        if not group.done:
            raise PartitionError(f"{shown_sql(group.text())} in an expression is not understood")
        return term

    def call(self, name: str, cursor: Cursor) -> Term:
        """Take the arguments of function `name` (upper case) and return its term."""
        group = cursor.take_group()
        if group is None:
            raise PartitionError("a call in an expression is not understood")
        if name == "EXTRACT":
            unit = group.word()
            group.at += 1
            if not group.take("FROM"):
                raise PartitionError("EXTRACT in an expression is not understood")
            return extract(unit, self.whole(group))
        return self.function(name, self.arguments(group))

    def arguments(self, group: Cursor) -> list[Term]:
        """Take terms with commas between them that fill a group."""
        arguments: list[Term] = []
        while not group.done:
            arguments.append(self.read(group))
            if group.done:
                break
            if not group.take_char(","):
                raise PartitionError(
                    f"{shown_sql(group.text())} in an expression is not understood"
                )
        return arguments

    def function(self, name: str, arguments: Sequence[Term]) -> Term:
        """Return the term of function `name` (upper case) over `arguments`."""
        return call(name, arguments, self._timezone)

    def number(self, cursor: Cursor) -> Term:
        """Take a number."""
        return _integer_literal(cursor)

    def column(self, column: ColumnSchema) -> Term:
        """Return the term of a column."""
        return column_term(column, self._timezone)

    def _names_column(self, cursor: Cursor) -> bool:
        ahead = Cursor(cursor.tokens, cursor.at, cursor.end)
        name = (ahead.take_name() or "").lower()
        columns = () if self._schema is None else self._schema.columns
        return any(column.name.lower() == name for column in columns)

    def _column(self, cursor: Cursor) -> Term:
        name = cursor.take_column_name() or ""
        if self._schema is None:
            raise PartitionError(f"{shorten(name)} in a partition's bound is no literal")
        return self.column(find_column(self._schema, name))


def _integer_literal(cursor: Cursor) -> IntegerLiteral:
    raw = cursor.raw()
    if not raw.isdecimal() or len(raw) > MAX_DIGITS:
        raise PartitionError(f"the number {shorten(raw)} in an expression is no integer")
    cursor.at += 1
    return IntegerLiteral(int(raw))


_LITERAL_WORDS: Final[dict[str, Term]] = {
    "NULL": NullLiteral(),
    "TRUE": IntegerLiteral(1),
    "FALSE": IntegerLiteral(0),
}
_TEMPORAL_WORDS: Final = frozenset(("DATE", "TIMESTAMP"))


# -------------------------------------------------------------------------------------- columns


def column_term(column: ColumnSchema, timezone: str) -> Term:
    """Return the term of a column's value."""
    match kind_of(column):
        case Kind.INTEGER | Kind.YEAR:
            return NumberTerm(read_by(column, int))
        case Kind.DECIMAL:
            return NumberTerm(read_by(column, Fraction), fractional=True)
        case Kind.DATE:
            return MomentTerm(read_by(column, parse_moment))
        case Kind.DATETIME:
            return MomentTerm(read_by(column, parse_moment), digits=fractional_digits(column))
        case Kind.TIMESTAMP:
            return _timestamp_term(column, timezone)
        case Kind.TIME:
            return SpanTerm(read_by(column, span_of_text))
        case kind:
            raise PartitionError(f"column {shorten(column.name)}, of kind {kind}, in an expression")


def text_of_column(column: ColumnSchema) -> Callable[[CanonicalRow], str | None]:
    """Return the function that gets the canonical text of `column` from a row."""
    name = column.name

    def text_of(row: CanonicalRow) -> str | None:
        try:
            return row[name]
        except KeyError:
            raise PartitionError(f"a row without its column {shorten(name)}") from None

    return text_of


_Value = TypeVar("_Value")


def read_by(
    column: ColumnSchema, read: Callable[[str], _Value]
) -> Callable[[CanonicalRow], _Value | None]:
    """Return the function that reads the value of `column` in a row from its canonical text."""
    return mapped(text_of_column(column), read)


def parse_moment(text: str) -> Moment:
    """Return canonical DATE or DATETIME text as a moment."""
    date, _, clock = text.partition(" ")
    year, month, day = date.split("-")
    if not clock:
        return Moment(int(year), int(month), int(day))
    whole, _, fraction = clock.partition(".")
    hour, minute, second = whole.split(":")
    micros = int(fraction[:6].ljust(6, "0"))
    return Moment(int(year), int(month), int(day), int(hour), int(minute), int(second), micros)


def _timestamp_term(column: ColumnSchema, timezone: str) -> Term:
    zone = changefeed_zone(timezone)

    def seconds(text: str) -> int | Fraction:
        moment = parse_moment(text)
        if moment.is_zero:
            return 0
        instant = to_utc(datetime(*moment), zone)  # noqa: DTZ001  # the zone is next to it
        if instant is None:
            raise PartitionError(f"a row whose time is none of zone {shorten(timezone)}")
        micros = (instant - EPOCH) // MICROSECOND
        return Fraction(micros, 1_000_000) if micros % 1_000_000 else micros // 1_000_000

    fractional = lacks_size(column) or fractional_digits(column) > 0
    return TimestampTerm(
        read_by(column, seconds), fractional=fractional, repeats=repeats_times(timezone)
    )
