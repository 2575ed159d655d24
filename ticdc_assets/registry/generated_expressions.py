"""Values of generated columns that no file has, from their expressions in a CREATE TABLE.

In: a CREATE TABLE, the table's schema, and a row in canonical text without some of its generated
columns. Out: the canonical text of each of these, or nothing where it is not certain. Dumpling
leaves generated columns out of its files, and TiCDC sends the stored ones: a stored column of an
exported row is worked out here, or it is unknown.

Reading decides what is refused by its type (`generated_functions`), evaluating what depends on a
row. What a column stores of a value is what TiDB makes of it when it converts a column
(`values.cast_of`), which is the same code there. Depth and size are bounded, whatever the text. It
is a pure function: the same row gives the same values.

Not read: LIKE and REGEXP, bits, functions of a TIMESTAMP (their value depends on the time zone of
a session), functions that are not in the table.
"""

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Final

from ticdc_assets.errors import CastError, PartitionError, shorten
from ticdc_assets.mysql_types import Kind, fractional_digits, kind_of
from ticdc_assets.registry.ddl_statement import DdlStatement, GeneratedKind
from ticdc_assets.registry.ddl_tokens import Cursor, shown_sql
from ticdc_assets.registry.evolution import CanonicalRow
from ticdc_assets.registry.generated_functions import (
    DEFAULT_COLLATION,
    FUNCTIONS,
    MAX_SCALE,
    arithmetic,
    chosen,
    comparison,
    is_null,
    json_extract,
    json_unquote,
    moment_text,
    number_term,
    number_text,
    quotient,
    refused,
    rest,
    rounded_quotient,
    same_or_null,
    shifted,
    text_term,
    truth_of,
    whole_quotient,
)
from ticdc_assets.registry.partition_expressions import (
    Combine,
    ExpressionReader,
    column_term,
    cursor_over,
    read_by,
)
from ticdc_assets.registry.partition_functions import call
from ticdc_assets.registry.partition_terms import (
    DoubleTerm,
    IntegerLiteral,
    JsonTerm,
    MomentTerm,
    NullLiteral,
    NumberTerm,
    SpanTerm,
    Term,
    TextLiteral,
    TextTerm,
)
from ticdc_assets.schemas import ColumnSchema, TableSchema
from ticdc_assets.values import Cast, cast_of
from ticdc_assets.values.floats import double_text
from ticdc_assets.values.moments import span_text

Evaluate = Callable[[CanonicalRow], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedColumn:
    """A generated column of a table.

    Attributes:
        column: the column.
        expression: its expression, for people.
        evaluate: its canonical text, from the columns before it; None if it is not read.
        problem: why it is not read, None if it is.
    """

    column: ColumnSchema
    expression: str
    evaluate: Callable[[CanonicalRow], str | None] | None
    problem: str | None


class GeneratedColumns:
    """The generated columns of one table.

    Args:
        statement: its CREATE TABLE.
        schema: its schema.
        timezone: zone of the session.
    """

    def __init__(self, statement: DdlStatement, schema: TableSchema, timezone: str) -> None:
        by_name = {column.name.lower(): column for column in schema.columns}
        self.columns: tuple[GeneratedColumn, ...] = tuple(
            _column(by_name[item.name.lower()], item.expression or "", schema, timezone)
            for item in statement.columns
            if item.generated is not None and item.name.lower() in by_name
        )
        self.stored = frozenset(
            item.name.lower()
            for item in statement.columns
            if item.generated is GeneratedKind.STORED
        )
        """Names of the stored ones, in lower case."""

    def named(self, name: str) -> GeneratedColumn | None:
        """Return the generated column called `name`, None if it is none."""
        return next((item for item in self.columns if item.column.name == name), None)

    def complete(self, row: CanonicalRow, lacking: Collection[str]) -> dict[str, str | None]:
        """Return the values of those of the columns `lacking` that are certain.

        Args:
            row: the other columns.
            lacking: names of generated columns.
        """
        whole = dict(row)
        found: dict[str, str | None] = {}
        # A generated column may refer to those before it.
        for item in self.columns:
            name = item.column.name
            if name not in lacking or item.evaluate is None:
                continue
            try:
                whole[name] = found[name] = item.evaluate(whole)
            except (PartitionError, CastError, ArithmeticError):
                continue
        return found


def _column(
    column: ColumnSchema, expression: str, schema: TableSchema, timezone: str
) -> GeneratedColumn:
    evaluate, problem = None, None
    try:
        evaluate = stored(_term(expression, schema, timezone), column, timezone)
    except PartitionError as error:
        problem = error.reason
    return GeneratedColumn(
        column=column, expression=shown_sql(expression), evaluate=evaluate, problem=problem
    )


def _term(expression: str, schema: TableSchema, timezone: str) -> Term:
    cursor = cursor_over(expression)
    term = GeneratedReader(schema, timezone).read(cursor)
    if not cursor.done or cursor.tokens.problem is not None:
        raise PartitionError(f"{shown_sql(cursor.text())} in an expression is not understood")
    return term


# What a column stores ---------------------------------------------------------------------------


def stored(term: Term, column: ColumnSchema, timezone: str) -> Callable[[CanonicalRow], str | None]:
    """Return the function that gives the canonical text that `column` stores of a term.

    Raises:
        PartitionError: it is not certain for terms of this type.
    """
    kind = kind_of(column)
    if isinstance(term, NullLiteral):
        return lambda _row: None
    kinds = next((kinds for types, kinds in _STORED if isinstance(term, types)), frozenset())
    if kind not in kinds:
        raise refused(f"what a column of kind {kind} stores of such a value")
    if kind in (Kind.TEXT, Kind.BINARY, Kind.ENUM, Kind.SET) and not isinstance(term, JsonTerm):
        text = text_term(term, "storing")
        source = ColumnSchema(name=column.name, mysql_type="longtext", charset="utf8mb4")
        return _cast(text.evaluate, cast_of(source, column, timezone))
    match term:
        case NumberTerm() | IntegerLiteral():
            return _stored_number(number_term(term, "storing"), column, timezone)
        case DoubleTerm():
            value_of: Evaluate = _mapped(term.evaluate, double_text)
            source = ColumnSchema(name=column.name, mysql_type="double", length=22)
        case MomentTerm():
            digits = term.digits
            value_of = _mapped(term.evaluate, lambda value: moment_text(value, digits))
            name = "date" if digits is None else "datetime"
            source = ColumnSchema(name=column.name, mysql_type=name, decimal=digits or 0)
        case SpanTerm():
            digits = fractional_digits(column)
            value_of = _mapped(term.evaluate, partial(_span_text, digits=digits))
            source = column
        case JsonTerm():
            value_of = term.evaluate
            source = ColumnSchema(name=column.name, mysql_type="json")
        case TextTerm() | TextLiteral():
            value_of = text_term(term, "storing").evaluate
            source = ColumnSchema(name=column.name, mysql_type="longtext", charset="utf8mb4")
        case _:
            raise refused("storing such a value")
    return _cast(value_of, cast_of(source, column, timezone))


_NUMBERS: Final = frozenset(
    {Kind.INTEGER, Kind.DECIMAL, Kind.DOUBLE, Kind.FLOAT, Kind.BIT, Kind.YEAR}
)
_TEXTS: Final = frozenset({Kind.TEXT, Kind.BINARY, Kind.ENUM, Kind.SET})
_MOMENTS: Final = frozenset({Kind.DATE, Kind.DATETIME})
_STORED: Final[Sequence[tuple[Any, frozenset[Kind]]]] = (
    ((NumberTerm, IntegerLiteral), _NUMBERS | {Kind.TEXT, Kind.BINARY}),
    (DoubleTerm, frozenset({Kind.DOUBLE, Kind.FLOAT, Kind.DECIMAL, Kind.INTEGER})),
    (MomentTerm, _MOMENTS | {Kind.TEXT}),
    (SpanTerm, frozenset({Kind.TIME})),
    (JsonTerm, frozenset({Kind.JSON, Kind.TEXT, Kind.INTEGER, Kind.DOUBLE, Kind.DECIMAL})),
    ((TextTerm, TextLiteral), _TEXTS | _NUMBERS - {Kind.BIT, Kind.YEAR} | _MOMENTS),
)
"""By the type of a term the kinds of columns that store it as a conversion of columns does."""


def _stored_number(
    number: NumberTerm, column: ColumnSchema, timezone: str
) -> Callable[[CanonicalRow], str | None]:
    digits = {Kind.INTEGER: 0, Kind.BIT: 0, Kind.YEAR: 0, Kind.DECIMAL: max(column.decimal, 0)}
    places = digits.get(kind_of(column))
    of_quotient = None if places is None else rounded_quotient(number, places)
    casts: dict[int, Cast] = {}

    def text_of(value: int | Fraction) -> str | None:
        scale = _scale_of(value)
        if scale not in casts:
            casts[scale] = cast_of(_decimal(column.name, scale), column, timezone)
        return casts[scale](number_text(value, scale))

    return _mapped(of_quotient or number.evaluate, text_of)


def _scale_of(value: int | Fraction) -> int:
    """Return how many digits after its point a number has."""
    rest_of, scale = Fraction(value), 0
    while rest_of.denominator != 1:
        rest_of, scale = rest_of * 10, scale + 1
        if scale > MAX_SCALE:
            raise refused("a number with so many digits")
    return scale


def _decimal(name: str, scale: int) -> ColumnSchema:
    if scale == 0:
        return ColumnSchema(name=name, mysql_type="decimal", length=65)
    return ColumnSchema(name=name, mysql_type="decimal", length=65, decimal=scale)


def _span_text(span: int, *, digits: int) -> str:
    unit = 10 ** (6 - digits)
    if span % unit:
        raise refused("a time with more digits than its column")
    return span_text(span, digits)


def _cast(value_of: Evaluate, cast: Cast) -> Callable[[CanonicalRow], str | None]:
    return lambda row: cast(value_of(row))


def _mapped(value_of: Evaluate, change: Callable[[Any], Any]) -> Evaluate:
    def evaluate(row: CanonicalRow) -> Any:
        value = value_of(row)
        return None if value is None else change(value)

    return evaluate


# Columns ----------------------------------------------------------------------------------------

_UNICODE: Final = frozenset({"utf8mb4", "utf8", "utf8mb3", "ascii"})


def term_of_column(column: ColumnSchema, timezone: str) -> Term:
    """Return the term of a column's value."""
    match kind_of(column):
        case Kind.TEXT | Kind.ENUM | Kind.SET:
            if column.charset.lower() not in _UNICODE:
                raise refused(f"a text in charset {column.charset[:40]}")
            if kind_of(column) is not Kind.TEXT and not column.elements:
                raise refused("a label that is not known")
            return TextTerm(read_by(column, str), column.collation.lower())
        case Kind.JSON:
            return JsonTerm(read_by(column, str))
        case Kind.FLOAT | Kind.DOUBLE:
            return DoubleTerm(read_by(column, float))
        case Kind.DECIMAL:
            return NumberTerm(
                read_by(column, Fraction), fractional=True, scale=max(column.decimal, 0)
            )
        case Kind.YEAR:
            return NumberTerm(read_by(column, int), scale=None)
        case Kind.INTEGER if column.zerofill:
            return NumberTerm(read_by(column, int), scale=None)
        case _:
            return column_term(column, timezone)


# Reading ----------------------------------------------------------------------------------------


class GeneratedReader(ExpressionReader):
    """Reads the expression of one generated column."""

    sums: ClassVar[Mapping[str, Combine]] = {
        "+": arithmetic(operator.add, max, "+"),
        "-": arithmetic(operator.sub, max, "-"),
    }
    products: ClassVar[Mapping[str, Combine]] = {
        "*": arithmetic(operator.mul, operator.add, "*"),
        "/": quotient,
        "DIV": whole_quotient,
        "MOD": rest,
        "%": rest,
    }

    def expression(self, cursor: Cursor) -> Term:
        """Take what OR combines."""
        left = self._exclusive(cursor)
        while cursor.take("OR") or _take_signs(cursor, "||"):
            left = _either(left, self._exclusive(cursor))
        return left

    def _exclusive(self, cursor: Cursor) -> Term:
        left = self._conjunction(cursor)
        while cursor.take("XOR"):
            sides = truth_of(left, "XOR"), truth_of(self._conjunction(cursor), "XOR")
            left = NumberTerm(partial(_exclusive_or, *sides))
        return left

    def _conjunction(self, cursor: Cursor) -> Term:
        left = self._negation(cursor)
        while cursor.take("AND") or _take_signs(cursor, "&&"):
            left = _both(left, self._negation(cursor))
        return left

    def _negation(self, cursor: Cursor) -> Term:
        negated = False
        while cursor.take("NOT"):
            negated = not negated
        term = self._comparison(cursor)
        return _not(term) if negated else term

    def _comparison(self, cursor: Cursor) -> Term:
        left = self.sum(cursor)
        while True:
            if cursor.take("IS"):
                left = _is(left, cursor)
                continue
            negated = cursor.word() == "NOT" and cursor.word(1) in ("IN", "BETWEEN")
            cursor.at += negated
            if cursor.take("IN"):
                found = self._in(left, cursor)
            elif cursor.take("BETWEEN"):
                low = self.sum(cursor)
                if not cursor.take("AND"):
                    raise PartitionError("BETWEEN in an expression is not understood")
                found = _both(
                    comparison(left, low, _TESTS[">="], ">="),
                    comparison(left, self.sum(cursor), _TESTS["<="], "<="),
                )
            else:
                sign = next((sign for sign in _SIGNS if _take_signs(cursor, sign)), None)
                if sign is None:
                    return left
                right = self.sum(cursor)
                if sign == "<=>":
                    left = same_or_null(left, right)
                else:
                    left = comparison(left, right, _TESTS[sign], sign)
                continue
            left = _not(found) if negated else found

    def _in(self, left: Term, cursor: Cursor) -> Term:
        group = cursor.take_group()
        items = [] if group is None else self.arguments(group)
        if not items:
            raise PartitionError("IN in an expression is not understood")
        found: Term = comparison(left, items[0], _TESTS["="], "IN")
        for item in items[1:]:
            found = _either(found, comparison(left, item, _TESTS["="], "IN"))
        return found

    def sum(self, cursor: Cursor) -> Term:
        """Take terms with + and - between them, among them intervals of dates."""
        left = self.product(cursor)
        while combine := self.sums.get(cursor.raw()):
            back = cursor.is_char("-")
            cursor.at += 1
            if cursor.take("INTERVAL"):
                left = self._shifted(left, cursor, back=back)
            else:
                left = combine(left, self.product(cursor))
        return left

    def _shifted(self, moment: Term, cursor: Cursor, *, back: bool) -> Term:
        count, unit = self.product(cursor), cursor.word()
        cursor.at += 1
        return shifted(moment, count, unit, back=back)

    def primary(self, cursor: Cursor) -> Term:
        """Take one operand and what leads into its JSON."""
        if cursor.take_char("!"):
            return _not(self.primary(cursor))
        if cursor.take("CASE"):
            return self._case(cursor)
        term = super().primary(cursor)
        while _take_signs(cursor, "->"):
            unquotes = cursor.take_char(">")
            path = cursor.take_string()
            term = json_extract("->", [term, TextLiteral(path or "")])
            if unquotes:
                term = json_unquote("->>", [term])
        if cursor.word() == "COLLATE":
            raise refused("COLLATE")
        return term

    def _case(self, cursor: Cursor) -> Term:
        subject = None if cursor.word() == "WHEN" else self.read(cursor)
        conditions: list[Callable[[CanonicalRow], bool | None]] = []
        terms: list[Term] = []
        while cursor.take("WHEN"):
            when = self.read(cursor)
            if subject is not None:
                when = comparison(subject, when, _TESTS["="], "CASE")
            conditions.append(truth_of(when, "CASE"))
            if not cursor.take("THEN"):
                raise PartitionError("CASE in an expression is not understood")
            terms.append(self.read(cursor))
        terms.append(self.read(cursor) if cursor.take("ELSE") else NullLiteral())
        if not conditions or not cursor.take("END"):
            raise PartitionError("CASE in an expression is not understood")
        return chosen(conditions, terms, "CASE")

    def call(self, name: str, cursor: Cursor) -> Term:
        """Take the arguments of function `name` (upper case) and return its term."""
        start = cursor.at
        group = cursor.take_group()
        if group is not None and name in ("CAST", "CONVERT"):
            return self._converted(name, group)
        if group is not None and name in _SHIFTS:
            moment = self.read(group)
            if not group.take_char(",") or not group.take("INTERVAL"):
                raise refused(f"{name} without INTERVAL")
            term = self._shifted(moment, group, back=_SHIFTS[name])
            if not group.done:
                raise PartitionError(f"{name} in an expression is not understood")
            return term
        cursor.at = start
        return super().call(name, cursor)

    def function(self, name: str, arguments: Sequence[Term]) -> Term:
        """Return the term of a function: of generated columns, else of partitions."""
        found = FUNCTIONS.get(name)
        if found is None:
            if name == "UNIX_TIMESTAMP":
                raise refused(name)
            return call(name, arguments, self._timezone)
        fewest, most, build = found
        if not fewest <= len(arguments) <= most:
            raise PartitionError(f"{name} with {len(arguments)} arguments in an expression")
        return build(name, arguments)

    def _converted(self, name: str, group: Cursor) -> Term:
        term = self.read(group)
        if not (group.take("AS") if name == "CAST" else group.take_char(",")):
            raise refused(name)
        column, cut = _cast_type(group)
        if not group.done:
            raise refused(name)
        if kind_of(column) is Kind.TEXT:
            text_of = text_term(term, name).evaluate
            return TextTerm(
                text_of if cut is None else _mapped(text_of, lambda text: text[:cut]),
                DEFAULT_COLLATION,
            )
        if isinstance(term, DoubleTerm):
            raise refused(f"{name} of floating point")
        convert = stored(term, column, self._timezone)
        of_column = term_of_column(column, self._timezone)
        read: Evaluate = of_column.evaluate  # pyright: ignore[reportAttributeAccessIssue]
        return type(of_column)(  # pyright: ignore[reportCallIssue]
            lambda row: read({column.name: convert(row)}),  # pyright: ignore[reportCallIssue]
            **_rest_of(of_column),
        )

    def number(self, cursor: Cursor) -> Term:
        """Take a whole number or a decimal one; those with an exponent are refused."""
        raw = cursor.raw()
        whole, point, fraction = raw.partition(".")
        if not point:
            return super().number(cursor)
        if not (whole + fraction).isdecimal() or not (whole + fraction).isascii():
            raise PartitionError(f"the number {shorten(raw)} in an expression is not exact")
        cursor.at += 1
        value = Fraction(int(whole + fraction), 10 ** len(fraction))
        return NumberTerm(lambda _row: value, fractional=bool(fraction), scale=len(fraction))

    def column(self, column: ColumnSchema) -> Term:
        """Return the term of a column."""
        return term_of_column(column, self._timezone)


_SHIFTS: Final = {"DATE_ADD": False, "ADDDATE": False, "DATE_SUB": True, "SUBDATE": True}
_SIGNS: Final = ("<=>", "<=", "<>", "<", ">=", ">", "!=", "=")
_TESTS: Final[dict[str, Callable[[int], bool]]] = {
    "=": lambda order: order == 0,
    "<>": lambda order: order != 0,
    "!=": lambda order: order != 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}


def _take_signs(cursor: Cursor, signs: str) -> bool:
    """Take characters that together are one operator."""
    if all(cursor.is_char(sign, ahead) for ahead, sign in enumerate(signs)):
        cursor.at += len(signs)
        return True
    return False


def _either(left: Term, right: Term) -> NumberTerm:
    sides = truth_of(left, "OR"), truth_of(right, "OR")

    def evaluate(row: CanonicalRow) -> int | None:
        values = sides[0](row), sides[1](row)
        return 1 if True in values else None if None in values else 0

    return NumberTerm(evaluate)


def _both(left: Term, right: Term) -> NumberTerm:
    sides = truth_of(left, "AND"), truth_of(right, "AND")

    def evaluate(row: CanonicalRow) -> int | None:
        values = sides[0](row), sides[1](row)
        return 0 if False in values else None if None in values else 1

    return NumberTerm(evaluate)


def _exclusive_or(
    left: Callable[[CanonicalRow], bool | None],
    right: Callable[[CanonicalRow], bool | None],
    row: CanonicalRow,
) -> int | None:
    values = left(row), right(row)
    return None if None in values else int(values[0] != values[1])


def _not(term: Term) -> NumberTerm:
    return NumberTerm(_mapped(truth_of(term, "NOT"), lambda value: int(not value)))


def _is(term: Term, cursor: Cursor) -> NumberTerm:
    negated = cursor.take("NOT")
    if cursor.take("NULL"):
        found = is_null(term)
    else:
        word = cursor.take_any(("TRUE", "FALSE", "UNKNOWN"))
        if not word:
            raise PartitionError("IS in an expression is not understood")
        wanted = {"TRUE": True, "FALSE": False, "UNKNOWN": None}[word]
        truth = truth_of(term, "IS")
        found = NumberTerm(lambda row: int(truth(row) is wanted))
    return _not(found) if negated else found


def _cast_type(cursor: Cursor) -> tuple[ColumnSchema, int | None]:
    """Take the type after AS; return its column, and how many characters of a text count."""
    word = cursor.word()
    cursor.at += 1
    group = cursor.take_group()
    sizes: list[int] = []
    while group is not None and not group.done:
        size = group.take_integer()
        if size is None or (not group.take_char(",") and not group.done):
            raise refused("such a type")
        sizes.append(size)
    name = "cast"
    match word, sizes:
        case "SIGNED" | "UNSIGNED", []:
            cursor.take_any(("INTEGER", "INT"))
            unsigned = word == "UNSIGNED"
            return ColumnSchema(name=name, mysql_type="bigint", unsigned=unsigned), None
        case "DECIMAL", [] | [_] | [_, _]:
            length, decimal = ([*sizes, 0] if sizes else [10, 0])[:2]
            column = ColumnSchema(name=name, mysql_type="decimal", length=length, decimal=decimal)
            return column, None
        case "CHAR", [] | [_]:
            if cursor.take("CHARSET") or cursor.take("CHARACTER", "SET"):
                charset = cursor.take_name() or ""
                if charset.lower() not in ("utf8mb4", "utf8"):
                    raise refused("a text in another charset")
            column = ColumnSchema(name=name, mysql_type="longtext", charset="utf8mb4")
            return column, sizes[0] if sizes else None
        case "DATE", []:
            return ColumnSchema(name=name, mysql_type="date"), None
        case "DATETIME", [] | [_]:
            digits = sizes[0] if sizes else 0
            if digits > 6:
                raise refused("such a type")
            return ColumnSchema(name=name, mysql_type="datetime", decimal=digits), None
        case _:
            raise refused(f"CAST to {word[:40] or 'such a type'}")


def _rest_of(term: Term) -> dict[str, Any]:
    """Return what a term of a column says besides its value."""
    match term:
        case NumberTerm():
            return {"fractional": term.fractional, "scale": term.scale}
        case MomentTerm():
            return {"digits": term.digits}
        case _:
            return {}
