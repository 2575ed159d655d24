"""Defaults, literals, numbers and names of character sets in definitions.

In: a `Cursor` at one of them. Out: a `DefaultValue` (a literal, or an expression as its text),
numbers, a name, or None where there is none.
"""

from ticdc_assets.registry.ddl.statement import (
    DefaultKind,
    DefaultValue,
    LiteralForm,
)
from ticdc_assets.registry.ddl.tokens import BITS, HEX, NUMBER, WORD, Cursor


def take_numbers(cursor: Cursor) -> list[int]:
    """Take `(n)` or `(n, m)`."""
    group = cursor.take_group()
    numbers: list[int] = []
    while group is not None and not group.done:
        number = group.take_integer()
        if number is None or (not group.take_char(",") and not group.done):
            group.expect_done()
            break
        numbers.append(number)
    return numbers


def decoded(literal: DefaultValue) -> str | None:
    """Return the text that a hexadecimal or bit literal spells in UTF-8."""
    digits = literal.value or ""
    if literal.form is LiteralForm.BITS:
        digits = f"{int(digits or '0', 2):x}"
        digits = digits.zfill(len(digits) + len(digits) % 2)
    try:
        return bytes.fromhex(digits).decode()
    except UnicodeDecodeError:
        return None


def take_default(cursor: Cursor) -> DefaultValue | None:
    """Take what follows DEFAULT or SET DEFAULT."""
    start = cursor.at
    constant = _take_constant(cursor)
    if constant is not None:
        return constant
    group = cursor.take_group()
    if group is None:
        if not take_call(cursor):
            return None
        return DefaultValue(kind=DefaultKind.EXPRESSION, value=cursor.text(start))
    while True:
        start = group.at
        # A constant in parentheses is that constant.
        constant = _take_constant(group)
        if constant is not None and group.done:
            return constant
        inner = group.take_group() if constant is None else None
        if inner is None or not group.done:
            group.at = start
            return DefaultValue(kind=DefaultKind.EXPRESSION, value=group.text())
        group = inner


def _take_constant(cursor: Cursor) -> DefaultValue | None:
    if cursor.take("NULL"):
        return DefaultValue(kind=DefaultKind.NULL)
    return take_literal(cursor)


def take_literal(cursor: Cursor) -> DefaultValue | None:
    """Take a string, number, truth value, or hexadecimal or bit literal."""
    start = cursor.at
    form, value = LiteralForm.STRING, None
    if cursor.word() in ("DATE", "TIME", "TIMESTAMP") and cursor.is_string(1):
        cursor.at += 1
    introduced = cursor.kind() == WORD and cursor.raw().startswith("_")
    if introduced and cursor.kind(1) in (HEX, BITS):
        cursor.at += 1
    kind = cursor.kind()
    if kind == HEX:
        digits = cursor.raw()[2:].removesuffix("'").lower()
        form, value = LiteralForm.HEX, digits.zfill(len(digits) + len(digits) % 2)
        cursor.at += 1
    elif kind == BITS:
        form, value = LiteralForm.BITS, cursor.raw()[2:].removesuffix("'")
        cursor.at += 1
    elif word := cursor.take_any(("TRUE", "FALSE")):
        form, value = LiteralForm.NUMBER, str(int(word == "TRUE"))
    elif (sign := cursor.is_char("-") or cursor.is_char("+")) or kind == NUMBER:
        negative = cursor.is_char("-")
        if not sign or cursor.kind(1) == NUMBER:
            cursor.at += int(sign)
            form, value = LiteralForm.NUMBER, ("-" if negative else "") + cursor.raw()
            cursor.at += 1
    else:
        value = cursor.take_string()
    if value is None:
        cursor.at = start
        return None
    return DefaultValue(kind=DefaultKind.LITERAL, form=form, value=value)


def take_call(cursor: Cursor) -> bool:
    """Take `CURRENT_TIMESTAMP`, `now(6)`, `NEXT VALUE FOR s` or any other call."""
    if cursor.take("NEXT", "VALUE", "FOR"):
        return cursor.take_table_name() is not None
    if not cursor.word():
        return False
    cursor.at += 1
    cursor.take_group()
    return True


def take_charset_words(cursor: Cursor) -> bool:
    """Take `CHARACTER SET` in one of its spellings."""
    return cursor.take("CHARACTER", "SET") or cursor.take("CHAR", "SET") or cursor.take("CHARSET")


def take_charset_name(cursor: Cursor) -> str | None:
    """Take `[=] name` of a character set or collation, in lower case."""
    cursor.take_char("=")
    name = cursor.take_string() if cursor.is_string() else cursor.take_name()
    return None if name is None else name.lower()
