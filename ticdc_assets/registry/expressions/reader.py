"""Expressions of partitions and of generated columns: text to terms.

In: the text between the parentheses of PARTITION BY, VALUES or AS, the table's schema, and the time
zone of the changefeed. Out: a term that gives the expression's value for a row, or `PartitionError`
where the text has anything unknown.

One grammar reads both. The expressions of partitions (`PARTITION_WORDS`) have the operators and
functions that TiDB allows there: reading refuses everything that must be refused, so evaluating a
row of the table cannot fail. An expression of a generated column may refuse single rows. Depth and
size are bounded, so neither reading nor evaluating can exhaust the stack, whatever the text.

Not read: LIKE and REGEXP, bits, COLLATE, functions of a TIMESTAMP in generated columns (their value
depends on the time zone of a session), functions that no table lists.
"""

import operator
from collections.abc import Callable, Container, Mapping, Sequence
from fractions import Fraction
from functools import partial, reduce
from typing import Final, TypeAlias

from ticdc_assets.base.errors import PartitionError, shorten
from ticdc_assets.model.mysql_types import Kind, kind_of
from ticdc_assets.model.schemas import ColumnSchema, TableSchema
from ticdc_assets.registry.ddl.definitions import take_numbers
from ticdc_assets.registry.ddl.tokens import (
    DOUBLE_QUOTED,
    NUMBER,
    QUOTED,
    WORD,
    Cursor,
    shown_sql,
    tokenize,
)
from ticdc_assets.registry.evolution import CanonicalRow
from ticdc_assets.registry.expressions.columns import column_term, converted, find_column
from ticdc_assets.registry.expressions.conditions import (
    CONDITION_FUNCTIONS,
    chosen,
    comparison,
    is_null,
    same_or_null,
    truth_of,
)
from ticdc_assets.registry.expressions.dates import DATE_FUNCTIONS, extract, shifted, unix_timestamp
from ticdc_assets.registry.expressions.numbers import (
    NUMBER_FUNCTIONS,
    arithmetic,
    quotient,
    rest,
    whole_quotient,
)
from ticdc_assets.registry.expressions.terms import (
    Functions,
    NullLiteral,
    NumberTerm,
    Term,
    TextTerm,
    both_of,
    constant,
    integer_literal,
    integer_of,
    mapped,
    refused,
    text_literal,
)
from ticdc_assets.registry.expressions.texts import (
    DEFAULT_COLLATION,
    JSON_FUNCTIONS,
    TEXT_FUNCTIONS,
    text_term,
)

MAX_DEPTH: Final = 24
MAX_TERMS: Final = 60
MAX_DIGITS: Final = 20

_FUNCTIONS: Final[Functions] = {
    **NUMBER_FUNCTIONS,
    **TEXT_FUNCTIONS,
    **JSON_FUNCTIONS,
    **CONDITION_FUNCTIONS,
    **DATE_FUNCTIONS,
}

_PARTITION_WORD_LIST: Final = """
+ - * DIV % MOD
ABS CEIL CEILING DATEDIFF DAY DAYOFMONTH DAYOFWEEK DAYOFYEAR EXTRACT FLOOR HOUR MICROSECOND MINUTE
MONTH QUARTER SECOND TIME_TO_SEC TO_DAYS TO_SECONDS UNIX_TIMESTAMP WEEKDAY YEAR YEARWEEK
"""
PARTITION_WORDS: Final = frozenset(_PARTITION_WORD_LIST.split())
"""The operators and functions that TiDB allows in expressions of partitions."""


def cursor_over(text: str) -> Cursor:
    """Return a cursor over all of `text`; PartitionError if a quote in it is never closed."""
    tokens = tokenize(text)
    if tokens.problem is not None:
        raise PartitionError(f"the expression {shown_sql(text)} is not understood")
    return Cursor(tokens, 0, len(tokens.kinds))


def read_expression(
    text: str, schema: TableSchema, timezone: str, words: Container[str] | None = None
) -> Term:
    """Return the term of the expression `text` over rows of `schema`.

    `words` are the operators and functions that it may have, None for those of generated columns.
    """
    cursor = cursor_over(text)
    term = _Reader(schema, timezone, words).read(cursor)
    if not cursor.done or cursor.tokens.problem is not None:
        raise PartitionError(f"the expression {shown_sql(text)} is not understood")
    return term


def integer_bound(cursor: Cursor, timezone: str) -> int | None:
    """Take a partition's expression over literals and return its integer, or None for NULL."""
    term = _Reader(None, timezone, PARTITION_WORDS).read(cursor)
    return integer_of(term, "the value")({})


class _Reader:
    """Reads one expression at a cursor; without a schema it may only have literals."""

    def __init__(
        self, schema: TableSchema | None, timezone: str, words: Container[str] | None
    ) -> None:
        self._schema = schema
        self._timezone = timezone
        self._words = words
        self._depth = 0
        self._terms = 0

    def _allow(self, word: str) -> None:
        if self._words is not None and word not in self._words:
            raise PartitionError(f"{word} in an expression is not understood")

    def _takes(self, cursor: Cursor, word: str) -> bool:
        """Take a word or sign that not all expressions may have."""
        if is_next := _take_sign(cursor, word):
            self._allow(word)
        return is_next

    def read(self, cursor: Cursor) -> Term:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise PartitionError("the expression is nested too deeply")
        term = self._operation(cursor)
        self._depth -= 1
        return term

    def _operation(self, cursor: Cursor, level: int = 0) -> Term:
        """Take terms with the operators from a level on between them."""
        if level == len(_OPERATORS):
            return self._signed(cursor)
        negated = False
        while level == _COMPARING and self._takes(cursor, "NOT"):
            negated = not negated
        term = self._operation(cursor, level + 1)
        while True:
            test = self._test(term, cursor) if level == _COMPARING else None
            if test is not None:
                term = test
                continue
            sign = next((sign for sign in _OPERATORS[level] if _take_sign(cursor, sign)), None)
            if sign is None:
                return _not(term) if negated else term
            self._allow(sign)
            if level == _ADDING and cursor.take("INTERVAL"):
                term = self._shifted(term, cursor, back=sign == "-")
            else:
                term = _OPERATORS[level][sign](term, self._operation(cursor, level + 1))

    def _test(self, term: Term, cursor: Cursor) -> Term | None:
        """Take IS, IN or BETWEEN of a term with what follows it; None if neither comes next."""
        if self._takes(cursor, "IS"):
            return _is(term, cursor)
        negated = cursor.word() == "NOT" and cursor.word(1) in ("IN", "BETWEEN")
        cursor.at += negated
        if self._takes(cursor, "IN"):
            group = cursor.take_group()
            items = [] if group is None else self._arguments(group)
            if not items:
                raise PartitionError("IN in an expression is not understood")
            test = reduce(_either, [comparison(term, item, "IN") for item in items])
        elif self._takes(cursor, "BETWEEN"):
            low = self._operation(cursor, _ADDING)
            if not cursor.take("AND"):
                raise PartitionError("BETWEEN in an expression is not understood")
            high = self._operation(cursor, _ADDING)
            test = _both(_COMPARISONS[">="](term, low), _COMPARISONS["<="](term, high))
        else:
            return None
        return _not(test) if negated else test

    def _shifted(self, moment: Term, cursor: Cursor, *, back: bool) -> Term:
        self._allow("INTERVAL")
        count, unit = self._operation(cursor, _ADDING + 1), cursor.word()
        cursor.at += 1
        return shifted(moment, count, unit, back=back)

    def _signed(self, cursor: Cursor) -> Term:
        self._terms += 1
        if self._terms > MAX_TERMS:
            raise PartitionError("the expression is too long")
        negative = False
        while cursor.is_char("-") or cursor.is_char("+"):
            negative ^= cursor.is_char("-")
            cursor.at += 1
        term = self._postfixed(cursor)
        if not negative:
            return term
        if isinstance(term, NumberTerm) and term.literal is not None:
            return integer_literal(-term.literal)
        return _OPERATORS[_ADDING]["-"](integer_literal(0), term)

    def _postfixed(self, cursor: Cursor) -> Term:
        """Take one operand and its JSON paths."""
        term = self._primary(cursor)
        while self._takes(cursor, "->"):
            unquotes = cursor.take_char(">")
            path = text_literal(cursor.take_string() or "")
            term = _FUNCTIONS["JSON_EXTRACT"].build("->", [term, path])
            if unquotes:
                term = _FUNCTIONS["JSON_UNQUOTE"].build("->>", [term])
        if cursor.word() == "COLLATE":
            raise refused("COLLATE")
        return term

    def _primary(self, cursor: Cursor) -> Term:
        if self._takes(cursor, "!"):
            return _not(self._postfixed(cursor))
        if self._takes(cursor, "CASE"):
            return self._case(cursor)
        start = cursor.at
        group = cursor.take_group()
        if group is not None:
            return self._whole(group)
        if cursor.kind() == NUMBER:
            return self._number(cursor)
        word = cursor.word()
        if word and cursor.is_char("(", 1):
            cursor.at += 1
            return self._call(word, cursor)
        if word in _LITERAL_WORDS:
            cursor.at += 1
            return _LITERAL_WORDS[word]
        if word in _TEMPORAL_WORDS and cursor.is_string(1):
            cursor.at += 1
            return text_literal(cursor.take_string() or "")
        if cursor.kind() in (WORD, QUOTED) and not cursor.is_string(1):
            return self._column(cursor)
        if cursor.kind() == DOUBLE_QUOTED and self._names_column(cursor):
            return self._column(cursor)
        text = cursor.take_string()
        if text is not None:
            return text_literal(text)
        cursor.at = start
        piece = shown_sql(cursor.raw()) if cursor.raw() else "the end"
        raise PartitionError(f"{piece} in an expression is not understood")

    def _whole(self, group: Cursor) -> Term:
        term = self.read(group)
        if not group.done:
            raise PartitionError(f"{shown_sql(group.text())} in an expression is not understood")
        return term

    def _case(self, cursor: Cursor) -> Term:
        subject = None if cursor.word() == "WHEN" else self.read(cursor)
        conditions: list[Callable[[CanonicalRow], bool | None]] = []
        terms: list[Term] = []
        while cursor.take("WHEN"):
            when = self.read(cursor)
            if subject is not None:
                when = comparison(subject, when, "CASE")
            conditions.append(truth_of(when, "CASE"))
            if not cursor.take("THEN"):
                raise PartitionError("CASE in an expression is not understood")
            terms.append(self.read(cursor))
        terms.append(self.read(cursor) if cursor.take("ELSE") else NullLiteral())
        if not conditions or not cursor.take("END"):
            raise PartitionError("CASE in an expression is not understood")
        return chosen(conditions, terms, "CASE")

    def _call(self, name: str, cursor: Cursor) -> Term:
        """Take the arguments of function `name` (upper case) and return its term."""
        if self._words is not None and name not in self._words:
            raise PartitionError(f"function {name[:40]} in an expression is not known")
        group = cursor.take_group()
        if group is None:
            raise PartitionError("a call in an expression is not understood")
        if name in ("CAST", "CONVERT"):
            return self._converted(name, group)
        if name in _SHIFTS:
            moment = self.read(group)
            if not group.take_char(",") or not group.take("INTERVAL"):
                raise refused(f"{name} without INTERVAL")
            term = self._shifted(moment, group, back=_SHIFTS[name])
            if not group.done:
                raise PartitionError(f"{name} in an expression is not understood")
            return term
        if name == "EXTRACT":
            unit = group.word()
            group.at += 1
            if not group.take("FROM"):
                raise PartitionError("EXTRACT in an expression is not understood")
            return extract(unit, self._whole(group))
        arguments = self._arguments(group)
        if name == "UNIX_TIMESTAMP":
            if self._words is None:
                raise refused(name)
            return unix_timestamp(arguments, self._timezone)
        function = _FUNCTIONS.get(name)
        if function is None:
            raise PartitionError(f"function {name[:40]} in an expression is not known")
        if not function.fewest <= len(arguments) <= function.most:
            raise PartitionError(f"{name} with {len(arguments)} arguments in an expression")
        return function.build(name, arguments)

    def _arguments(self, group: Cursor) -> list[Term]:
        """Take terms with commas between them that fill a group."""
        arguments: list[Term] = []
        while not group.done:
            arguments.append(self.read(group))
            if group.done:
                break
            if not group.take_char(","):
                piece = shown_sql(group.text())
                raise PartitionError(f"{piece} in an expression is not understood")
        return arguments

    def _converted(self, name: str, group: Cursor) -> Term:
        term = self.read(group)
        if not (group.take("AS") if name == "CAST" else group.take_char(",")):
            raise refused(name)
        column, cut = _cast_type(group)
        if not group.done:
            raise refused(name)
        if kind_of(column) is Kind.TEXT:
            text_of = mapped(text_term(term, name).evaluate, lambda text: text[:cut])
            return TextTerm(text_of, DEFAULT_COLLATION)
        return converted(term, column, self._timezone)

    def _number(self, cursor: Cursor) -> Term:
        """Take a whole number or a decimal one; those with an exponent are refused."""
        raw = cursor.raw()
        whole, point, fraction = raw.partition(".")
        if not point or self._words is not None:
            if not raw.isdecimal() or len(raw) > MAX_DIGITS:
                raise PartitionError(f"the number {shorten(raw)} in an expression is no integer")
            cursor.at += 1
            return integer_literal(int(raw))
        if not (whole + fraction).isdecimal() or not (whole + fraction).isascii():
            raise PartitionError(f"the number {shorten(raw)} in an expression is not exact")
        cursor.at += 1
        value = Fraction(int(whole + fraction), 10 ** len(fraction))
        return NumberTerm(constant(value), fractional=bool(fraction), scale=len(fraction))

    def _names_column(self, cursor: Cursor) -> bool:
        ahead = Cursor(cursor.tokens, cursor.at, cursor.end)
        name = (ahead.take_name() or "").lower()
        columns = () if self._schema is None else self._schema.columns
        return any(column.name.lower() == name for column in columns)

    def _column(self, cursor: Cursor) -> Term:
        name = cursor.take_column_name() or ""
        if self._schema is None:
            raise PartitionError(f"{shorten(name)} in a partition's bound is no literal")
        return column_term(find_column(self._schema, name), self._timezone)


_LITERAL_WORDS: Final[dict[str, Term]] = {
    "NULL": NullLiteral(),
    "TRUE": integer_literal(1),
    "FALSE": integer_literal(0),
}
_TEMPORAL_WORDS: Final = frozenset(("DATE", "TIMESTAMP"))
_SHIFTS: Final = {"DATE_ADD": False, "ADDDATE": False, "DATE_SUB": True, "SUBDATE": True}


def _take_sign(cursor: Cursor, sign: str) -> bool:
    if sign.isalpha():
        return cursor.take(sign)
    is_next = all(cursor.is_char(char, ahead) for ahead, char in enumerate(sign))
    cursor.at += is_next * len(sign)
    return is_next


def _connective(word: str, *, decisive: bool) -> Callable[[Term, Term], NumberTerm]:
    """Return the operator whose result is `decisive` if one side is, else NULL if one is NULL."""

    def combine(left: Term, right: Term) -> NumberTerm:
        sides = truth_of(left, word), truth_of(right, word)

        def evaluate(row: CanonicalRow) -> int | None:
            values = [side(row) for side in sides]
            if decisive in values:
                return int(decisive)
            return None if None in values else int(not decisive)

        return NumberTerm(evaluate)

    return combine


def _differ(left: Term, right: Term) -> NumberTerm:
    sides = truth_of(left, "XOR"), truth_of(right, "XOR")
    return NumberTerm(both_of(*sides, lambda one, other: int(one != other)))


_either: Final = _connective("OR", decisive=True)
_both: Final = _connective("AND", decisive=False)
_TESTS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "<=": operator.le,
    "<>": operator.ne,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
    "!=": operator.ne,
    "=": operator.eq,
}
_Combine: TypeAlias = Callable[[Term, Term], Term]
"""The result of an operator for the terms on its two sides."""

_COMPARISONS: Final[Mapping[str, _Combine]] = {
    "<=>": same_or_null,
    **{sign: partial(comparison, what=sign, test=test) for sign, test in _TESTS.items()},
}
_OPERATORS: Final[Sequence[Mapping[str, _Combine]]] = (
    # `||` joins texts in one SQL mode; TiDB writes OR or CONCAT in its place.
    {"OR": _either},
    {"XOR": _differ},
    {"AND": _both, "&&": _both},
    _COMPARISONS,
    {"+": arithmetic(operator.add, max, "+"), "-": arithmetic(operator.sub, max, "-")},
    {
        "*": arithmetic(operator.mul, operator.add, "*"),
        "/": quotient,
        "DIV": whole_quotient,
        "MOD": rest,
        "%": rest,
    },
)
"""The operators by levels, those that bind least first; of one beginning the longest first."""

_COMPARING: Final = 3
_ADDING: Final = 4


def _not(term: Term) -> NumberTerm:
    return NumberTerm(mapped(truth_of(term, "NOT"), lambda value: int(not value)))


def _is(term: Term, cursor: Cursor) -> NumberTerm:
    negated = cursor.take("NOT")
    if cursor.take("NULL"):
        test = is_null(term)
    else:
        word = cursor.take_any(("TRUE", "FALSE", "UNKNOWN"))
        if not word:
            raise PartitionError("IS in an expression is not understood")
        wanted = {"TRUE": True, "FALSE": False, "UNKNOWN": None}[word]
        truth = truth_of(term, "IS")
        test = NumberTerm(lambda row: int(truth(row) is wanted))
    return _not(test) if negated else test


def _cast_type(cursor: Cursor) -> tuple[ColumnSchema, int | None]:
    """Take the type after AS; return its column, and how many characters of a text count."""
    word = cursor.word()
    cursor.at += 1
    sizes = take_numbers(cursor)
    if cursor.tokens.problem is not None:
        raise refused("such a type")
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
