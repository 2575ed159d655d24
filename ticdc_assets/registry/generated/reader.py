"""Expressions of generated columns: text to terms.

In: the text between the parentheses of AS, the table's schema, and the time zone of the session.
Out: a term, or `PartitionError` where the text has anything unknown. The grammar is that of
partition expressions (`registry.partition_expressions`) with conditions, CASE, CAST, intervals of
dates and the arrows of JSON. Depth and size are bounded, whatever the text.

Not read: LIKE and REGEXP, bits, COLLATE, functions of a TIMESTAMP (their value depends on the time
zone of a session), functions that no table lists.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import ClassVar, Final

from ticdc_assets.base.errors import PartitionError, shorten
from ticdc_assets.model.mysql_types import Kind, kind_of
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.registry.ddl_tokens import Cursor
from ticdc_assets.registry.evolution import CanonicalRow
from ticdc_assets.registry.generated.conditions import (
    CONDITION_FUNCTIONS,
    chosen,
    comparison,
    is_null,
    same_or_null,
    truth_of,
)
from ticdc_assets.registry.generated.dates import DATE_FUNCTIONS, shifted
from ticdc_assets.registry.generated.documents import JSON_FUNCTIONS, json_extract, json_unquote
from ticdc_assets.registry.generated.numbers import (
    NUMBER_FUNCTIONS,
    arithmetic,
    quotient,
    rest,
    whole_quotient,
)
from ticdc_assets.registry.generated.storing import converted, term_of_column
from ticdc_assets.registry.generated.texts import DEFAULT_COLLATION, TEXT_FUNCTIONS, text_term
from ticdc_assets.registry.partition_expressions import Combine, ExpressionReader
from ticdc_assets.registry.partition_functions import (
    call,
)
from ticdc_assets.registry.partition_terms import (
    Functions,
    NullLiteral,
    NumberTerm,
    Term,
    TextLiteral,
    TextTerm,
    mapped,
    refused,
)

FUNCTIONS: Final[Functions] = {
    **NUMBER_FUNCTIONS,
    **TEXT_FUNCTIONS,
    **JSON_FUNCTIONS,
    **CONDITION_FUNCTIONS,
    **DATE_FUNCTIONS,
}
"""The functions of generated columns; others are looked up among those of partitions."""


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
        """Take operands joined by OR."""
        left = self._exclusive(cursor)
        # `||` joins texts in one SQL mode; TiDB writes OR or CONCAT in its place.
        while cursor.take("OR"):
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
                test = self._in(left, cursor)
            elif cursor.take("BETWEEN"):
                low = self.sum(cursor)
                if not cursor.take("AND"):
                    raise PartitionError("BETWEEN in an expression is not understood")
                test = _both(
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
            left = _not(test) if negated else test

    def _in(self, left: Term, cursor: Cursor) -> Term:
        group = cursor.take_group()
        items = [] if group is None else self.arguments(group)
        if not items:
            raise PartitionError("IN in an expression is not understood")
        test: Term = comparison(left, items[0], _TESTS["="], "IN")
        for item in items[1:]:
            test = _either(test, comparison(left, item, _TESTS["="], "IN"))
        return test

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
        """Take one operand and its JSON paths."""
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
        """Return the term of a function of generated columns, else of partitions."""
        function = FUNCTIONS.get(name)
        if function is None:
            if name == "UNIX_TIMESTAMP":
                raise refused(name)
            return call(name, arguments, self._timezone)
        fewest, most, build = function
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
                text_of if cut is None else mapped(text_of, lambda text: text[:cut]),
                DEFAULT_COLLATION,
            )
        return converted(term, column, self._timezone)

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
