"""Expressions of SQL over one row of the stand-in upstream: what they are worth, what is stored.

In: a tree that sqlglot has parsed, and a row. Out: its value, as SQL has it with its three truth
values; and the canonical text that a column stores of a value, or why it stores none (as in a
strict SQL mode). Nothing is compiled or evaluated as Python: each kind of node has its rule here,
and a node without one is refused with its text. Pure: the same row and moment give the same value.

Texts are compared as TiDB does by default, by their bytes.

Not handled: what `SUPPORTED` does not name.
"""

import json
import operator
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeAlias, cast
from zoneinfo import ZoneInfo

from sqlglot import exp

from ticdc_assets.demo.simulator.columns import (
    BINARY_TYPES,
    CLOCK_TYPES,
    INTEGER_TYPES,
    NUMBER_TYPES,
    TEXT_TYPES,
    binary_text,
    fits,
    moment_text,
    text_with_digits,
    text_with_scale,
    type_sql,
)
from ticdc_assets.model.schemas import ColumnSchema

Value: TypeAlias = Decimal | str | bytes | None
"""A value of SQL: a number, a text, bytes, or NULL."""

SUPPORTED: Final = (
    "literals, NULL, TRUE, FALSE, NOW(), columns, + - *, = <> < <= > >=, AND, OR, NOT, IN (...), "
    "BETWEEN, LIKE, IS NULL"
)
"""What an expression may be made of."""

_TRUE, _FALSE = Decimal(1), Decimal(0)
_PLAIN_NUMBERS: Final = NUMBER_TYPES | {"bit", "year"}
_TIME: Final = re.compile(r"(-?\d{1,3}):([0-5]\d):([0-5]\d(?:\.\d{1,6})?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What an expression can see.

    Attributes:
        columns: the columns of the table by their names in lower case.
        row: the row in canonical text; None where a statement has none.
        now: the moment of the statement.
        timezone: zone in which moments stand in canonical text.
    """

    columns: Mapping[str, ColumnSchema]
    row: Mapping[str, str | None] | None
    now: datetime
    timezone: str


def column_named(columns: Mapping[str, ColumnSchema], name: str) -> ColumnSchema:
    """Return a column by its name, whatever its case.

    Raises:
        ValueError: there is none.
    """
    found = columns.get(name.lower())
    if found is None:
        known = ", ".join(column.name for column in columns.values())
        raise ValueError(f"there is no column {name!r}; the table has {known}")
    return found


def require_rules(node: exp.Expr, columns: Mapping[str, ColumnSchema]) -> None:
    """Refuse an expression before it meets a row, so that a table without rows refuses it too.

    Raises:
        ValueError: a part of it has no rule here, or names no column of the table.
    """
    for part in node.walk():
        if isinstance(part, exp.Column):
            column_named(columns, part.name)
        elif not isinstance(part, exp.Identifier):
            _rule(part)


def is_true(node: exp.Expr, scope: Scope) -> bool:
    """Return whether a condition holds: neither FALSE nor NULL.

    Raises:
        ValueError: there is no rule for it, or for these values.
    """
    return bool(_truth(evaluate(node, scope)))


def evaluate(node: exp.Expr, scope: Scope) -> Value:
    """Return what an expression is worth.

    Raises:
        ValueError: there is no rule for it, or for these values.
    """
    return _rule(node)(node, scope)


# The rules ----------------------------------------------------------------------------------------


def _rule(node: exp.Expr) -> "_Rule":
    rule = _RULES.get(type(node))
    is_known = not isinstance(node, exp.Anonymous) or node.name.upper() == "NOW"
    if rule is None or not is_known:
        raise ValueError(
            f"{node.sql(dialect='mysql')!r} is not supported here; an expression is made of "
            f"{SUPPORTED}"
        )
    return rule


def _truth(value: Value) -> bool | None:
    return None if value is None else _number(value) != 0


def _from_truth(value: bool | None) -> Value:
    return None if value is None else (_TRUE if value else _FALSE)


def _number(value: Value) -> Decimal:
    if isinstance(value, Decimal):
        return value
    try:
        return Decimal(str(value))
    except InvalidOperation:
        raise ValueError(f"{_shown(value)} is not a number") from None


def _shown(value: Value) -> str:
    return f"{value:f}" if isinstance(value, Decimal) else repr(value)


def _literal(node: exp.Literal, _: Scope) -> Value:
    return node.this if node.is_string else Decimal(node.this)


def _column(node: exp.Column, scope: Scope) -> Value:
    found = column_named(scope.columns, node.name)
    if scope.row is None:
        raise ValueError(f"column {node.name!r} has no value here")
    text = scope.row[found.name]
    if text is None:
        return None
    if found.mysql_type in _PLAIN_NUMBERS:
        return Decimal(text)
    return bytes.fromhex(text[2:]) if found.mysql_type in BINARY_TYPES else text


def now_text(scope: Scope) -> str:
    """Return the moment of the statement as a text."""
    return moment_text(scope.now.astimezone(ZoneInfo(scope.timezone)), 6)


def _negative(node: exp.Neg, scope: Scope) -> Value:
    value = evaluate(node.this, scope)
    return None if value is None else -_number(value)


def _arithmetic(act: Callable[[Decimal, Decimal], Decimal]) -> "_Rule":
    def rule(node: exp.Binary, scope: Scope) -> Value:
        left, right = evaluate(node.left, scope), evaluate(node.right, scope)
        return None if left is None or right is None else act(_number(left), _number(right))

    return rule


def _pair(left: exp.Expr, right: exp.Expr, scope: Scope) -> tuple[Any, Any] | None:
    """Return two values of one type, None if one is NULL."""
    first, second = evaluate(left, scope), evaluate(right, scope)
    if first is None or second is None:
        return None
    first, second = _like_column(right, first, scope), _like_column(left, second, scope)
    if type(first) is type(second):
        return first, second
    if isinstance(first, bytes) or isinstance(second, bytes):
        return tuple(
            value if isinstance(value, bytes) else str(value).encode() for value in (first, second)
        )  # pyright: ignore[reportReturnType]  # of two
    return _number(first), _number(second)


def _like_column(other: exp.Expr, value: Value, scope: Scope) -> Value:
    """Return a text as a moment is spelled, where it is compared with a column of moments."""
    if isinstance(other, exp.Column) and isinstance(value, str):
        column = column_named(scope.columns, other.name)
        if column.mysql_type in CLOCK_TYPES or column.mysql_type == "date":
            return stored_text(value, column)
    return value


def _comparison(act: Callable[[Any, Any], bool]) -> "_Rule":
    def rule(node: exp.Binary, scope: Scope) -> Value:
        pair = _pair(node.left, node.right, scope)
        return None if pair is None else _from_truth(act(*pair))

    return rule


def _and(node: exp.And, scope: Scope) -> Value:
    values = {_truth(evaluate(side, scope)) for side in (node.left, node.right)}
    return _from_truth(False if False in values else None if None in values else True)


def _or(node: exp.Or, scope: Scope) -> Value:
    values = {_truth(evaluate(side, scope)) for side in (node.left, node.right)}
    return _from_truth(True if True in values else None if None in values else False)


def _not(node: exp.Not, scope: Scope) -> Value:
    value = _truth(evaluate(node.this, scope))
    return None if value is None else _from_truth(not value)


def _is(node: exp.Is, scope: Scope) -> Value:
    if not isinstance(node.expression, exp.Null):
        raise ValueError("IS is supported with NULL and NOT NULL only")  # noqa: TRY004
    return _from_truth(evaluate(node.this, scope) is None)


def _in(node: exp.In, scope: Scope) -> Value:
    if not node.expressions:
        raise ValueError("IN is supported with a list of values only")
    pairs = [_pair(node.this, item, scope) for item in node.expressions]
    if any(pair is not None and pair[0] == pair[1] for pair in pairs):
        return _TRUE
    return None if None in pairs else _FALSE


def _between(node: exp.Between, scope: Scope) -> Value:
    low = _pair(node.this, node.args["low"], scope)
    high = _pair(node.this, node.args["high"], scope)
    if low is None or high is None:
        return None
    return _from_truth(low[0] >= low[1] and high[0] <= high[1])


def _like(node: exp.Like, scope: Scope) -> Value:
    value, pattern = evaluate(node.this, scope), evaluate(node.expression, scope)
    if value is None or pattern is None:
        return None
    parts = (
        ".*" if mark == "%" else "." if mark == "_" else re.escape(mark[-1])
        for mark in re.findall(r"\\.|.", str(pattern), re.DOTALL)
    )
    return _from_truth(re.fullmatch("".join(parts), str(value), re.DOTALL) is not None)


_Rule: TypeAlias = Callable[[Any, Scope], Value]

_RULES: Final[Mapping[type[exp.Expr], _Rule]] = {
    exp.Paren: lambda node, scope: evaluate(node.this, scope),
    exp.Literal: _literal,
    exp.Null: lambda _, __: None,
    exp.Boolean: lambda node, _: _from_truth(bool(node.this)),
    exp.HexString: lambda node, _: bytes.fromhex(node.this),
    exp.BitString: lambda node, _: Decimal(int(node.this, 2)),
    exp.Column: _column,
    exp.CurrentTimestamp: lambda _, scope: now_text(scope),
    exp.Anonymous: lambda _, scope: now_text(scope),
    exp.Neg: _negative,
    exp.Add: _arithmetic(operator.add),
    exp.Sub: _arithmetic(operator.sub),
    exp.Mul: _arithmetic(operator.mul),
    exp.EQ: _comparison(operator.eq),
    exp.NEQ: _comparison(operator.ne),
    exp.LT: _comparison(operator.lt),
    exp.LTE: _comparison(operator.le),
    exp.GT: _comparison(operator.gt),
    exp.GTE: _comparison(operator.ge),
    exp.And: _and,
    exp.Or: _or,
    exp.Not: _not,
    exp.Is: _is,
    exp.In: _in,
    exp.Between: _between,
    exp.Like: _like,
}


# What a column stores -----------------------------------------------------------------------------


def stored_text(value: Value, column: ColumnSchema) -> str | None:
    """Return what a column stores of a value, in canonical text.

    Raises:
        ValueError: it stores none such, by its type or its size.
    """
    if value is None:
        return None
    try:
        text = _STORED[column.mysql_type](value, column)
    except (ValueError, KeyError, InvalidOperation, OverflowError):
        text = None
    if text is None or not fits(text, column):
        raise ValueError(f"{_shown(value)} is no value of {column.name!r} {type_sql(column)}")
    return text


def _stored_integer(value: Value, _: ColumnSchema) -> str:
    return text_with_scale(_number(value), 0)


def _stored_decimal(value: Value, column: ColumnSchema) -> str:
    return text_with_scale(_number(value), column.decimal)


def _stored_float(value: Value, column: ColumnSchema) -> str | None:
    number = float(_number(value))
    if column.unsigned and number < 0:
        return None
    if column.mysql_type == "float":
        # The shortest text that is this number in 32 bits.
        packed = struct.pack("f", number)
        shortest = (f"{number:.{digits}g}" for digits in range(1, 10))
        number = next(float(text) for text in shortest if struct.pack("f", float(text)) == packed)
    return f"{Decimal(repr(number)).normalize():f}" if number else "0"


def _stored_bit(value: Value, column: ColumnSchema) -> str | None:
    number = int(_number(value))
    return str(number) if 0 <= number < 2**column.length else None


def _stored_year(value: Value, _: ColumnSchema) -> str | None:
    year = int(_number(value))
    return str(year) if year == 0 or 1901 <= year <= 2155 else None


def _stored_text(value: Value, _: ColumnSchema) -> str:
    return value.decode() if isinstance(value, bytes) else _spelled(value)


def _stored_bytes(value: Value, column: ColumnSchema) -> str:
    content = value if isinstance(value, bytes) else _spelled(value).encode()
    return binary_text(content.ljust(column.length if column.mysql_type == "binary" else 0, b"\0"))


def _spelled(value: Value) -> str:
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _stored_set(value: Value, column: ColumnSchema) -> str | None:
    labels = {label for label in _spelled(value).split(",") if label}
    if not labels <= set(column.elements):
        return None
    return ",".join(label for label in column.elements if label in labels)


def _stored_moment(value: Value, column: ColumnSchema) -> str:
    return moment_text(datetime.fromisoformat(_spelled(value)), column.decimal)


def _stored_time(value: Value, column: ColumnSchema) -> str | None:
    match = _TIME.fullmatch(_spelled(value))
    if match is None or abs(int(match[1])) > 838:
        return None
    hours = match[1].lstrip("-").zfill(2)
    sign = "-" * match[1].startswith("-")
    return text_with_digits(f"{sign}{hours}:{match[2]}:{match[3]}", column.decimal)


def _stored_json(value: Value, _: ColumnSchema) -> str:
    document = json.loads(_spelled(value))
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _stored_vector(value: Value, column: ColumnSchema) -> str | None:
    elements = json.loads(_spelled(value), parse_float=Decimal, parse_int=Decimal)
    if not isinstance(elements, list):
        return None
    numbers = [f"{_number(item):f}" for item in cast(list[Value], elements)]
    return f"[{','.join(numbers)}]" if column.length in (0, len(numbers)) else None


_STORED: Final[Mapping[str, Callable[[Value, ColumnSchema], str | None]]] = {
    **dict.fromkeys(INTEGER_TYPES, _stored_integer),
    **dict.fromkeys(TEXT_TYPES | {"enum"}, _stored_text),
    **dict.fromkeys(BINARY_TYPES, _stored_bytes),
    **dict.fromkeys(("float", "double"), _stored_float),
    **dict.fromkeys(("datetime", "timestamp"), _stored_moment),
    "decimal": _stored_decimal,
    "bit": _stored_bit,
    "year": _stored_year,
    "set": _stored_set,
    "date": lambda value, _: datetime.fromisoformat(_spelled(value)).strftime("%Y-%m-%d"),
    "time": _stored_time,
    "json": _stored_json,
    "vector": _stored_vector,
}
