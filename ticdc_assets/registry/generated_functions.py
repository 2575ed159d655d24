"""The operators and functions of generated columns, each with TiDB's rules for its types.

In: a function's name, or an operator, and its arguments as terms. Out: a term, or `PartitionError`
for one that is not known or whose arguments have types for which it is not certain what TiDB does.
A term raises `PartitionError` for a row whose value is not certain: a quotient with more digits
than TiDB stores, texts that only a collation orders, letters that change their length with their
case. So a value is exact, or it is refused; none is guessed.

Functions of dates and whole numbers are those of partitions (`registry.partition_functions`).
"""

import hashlib
import re
import zlib
from calendar import monthrange
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from fractions import Fraction
from math import ceil, floor
from typing import Any, Final, TypeAlias

from ticdc_assets.errors import PartitionError, shorten
from ticdc_assets.registry.evolution import CanonicalRow
from ticdc_assets.registry.partition_columns import BINARY_COLLATIONS
from ticdc_assets.registry.partition_functions import literal_moment, moment_of, moment_of_datetime
from ticdc_assets.registry.partition_terms import (
    DoubleTerm,
    IntegerLiteral,
    JsonTerm,
    Moment,
    MomentTerm,
    NullLiteral,
    NumberTerm,
    Term,
    TextLiteral,
    TextTerm,
)
from ticdc_assets.values import shapes
from ticdc_assets.values.json_texts import read_json, write_json

Number: TypeAlias = int | Fraction
Evaluate: TypeAlias = Callable[[CanonicalRow], Any]

DEFAULT_COLLATION: Final = "utf8mb4_bin"
MAX_SCALE: Final = 30
_MAX_DIGITS: Final = 65


def refused(what: str) -> PartitionError:
    """Return the error of something that is not certain."""
    return PartitionError(f"{what} in an expression is not certain")


# Numbers ----------------------------------------------------------------------------------------


def number_term(term: Term, what: str) -> NumberTerm:
    """Return an exact number; PartitionError if the term is none."""
    match term:
        case NumberTerm(repeats=False):
            return term
        case IntegerLiteral(value):
            return NumberTerm(lambda _row: value)
        case NullLiteral():
            return NumberTerm(lambda _row: None)
        case _:
            raise PartitionError(f"{what} over what is no number")


def exact(evaluate: Callable[[CanonicalRow], Number | None], scale: int | None) -> NumberTerm:
    """Return the term of a number with so many digits after its point."""
    if scale is not None and scale > MAX_SCALE:
        raise refused(f"a number with {scale} digits after its point")

    def checked(row: CanonicalRow) -> Number | None:
        value = evaluate(row)
        if value is not None and abs(value) >= 10 ** (_MAX_DIGITS - (scale or 0)):
            raise refused("a number with so many digits")
        return value

    return NumberTerm(checked, fractional=scale != 0, scale=scale)


def half_up(value: Number, digits: int) -> Number:
    """Return a number rounded to so many digits after its point, halves away from zero."""
    shifted = abs(value) * Fraction(10) ** digits
    whole = floor(shifted + Fraction(1, 2))
    rounded = Fraction(whole) / Fraction(10) ** digits
    return -rounded if value < 0 else rounded


def rounded_quotient(
    number: NumberTerm, digits: int
) -> Callable[[CanonicalRow], Number | None] | None:
    """Return the rounded value of a quotient, None if the number is none, or has fewer digits.

    TiDB keeps more digits of a quotient than it prints, up to a multiple of nine. Where rounding
    the printed ones gives another number than rounding all of them, the value is not certain.
    """
    unrounded, scale = number.unrounded, number.scale
    if unrounded is None or scale is None or digits > scale - (scale % 9 == 0):
        return None

    def evaluate(row: CanonicalRow) -> Number | None:
        value = unrounded(row)
        if value is None:
            return None
        once = half_up(value, digits)
        if half_up(half_up(value, scale), digits) != once:
            raise refused("a quotient that is rounded twice")
        return once

    return evaluate


def _as_double(term: Term, what: str) -> Callable[[CanonicalRow], float | None]:
    if isinstance(term, DoubleTerm):
        return term.evaluate
    value_of = number_term(term, what).evaluate

    def evaluate(row: CanonicalRow) -> float | None:
        value = value_of(row)
        return None if value is None else float(value)

    return evaluate


def _both(
    left: Evaluate, right: Evaluate, operation: Callable[[Any, Any], Any]
) -> Callable[[CanonicalRow], Any]:
    """Return the function of two values: NULL if one is."""

    def evaluate(row: CanonicalRow) -> Any:
        first, second = left(row), right(row)
        return None if first is None or second is None else operation(first, second)

    return evaluate


def _finite(value: float) -> float:
    if value - value != 0:
        raise refused("a number that DOUBLE does not hold")
    return value


def arithmetic(
    operation: Callable[[Any, Any], Any], scale_of: Callable[[int, int], int], sign: str
) -> Callable[[Term, Term], Term]:
    """Return the operator of exact numbers, or of floating point if one side is."""

    def combine(left: Term, right: Term) -> Term:
        if isinstance(left, DoubleTerm) or isinstance(right, DoubleTerm):
            both = _as_double(left, sign), _as_double(right, sign)
            return DoubleTerm(_both(*both, lambda one, other: _finite(operation(one, other))))
        one, other = number_term(left, sign), number_term(right, sign)
        scale = None
        if one.scale is not None and other.scale is not None:
            scale = scale_of(one.scale, other.scale)
        return exact(_both(one.evaluate, other.evaluate, operation), scale)

    return combine


def quotient(left: Term, right: Term) -> Term:
    """Return the term of `/`: four more digits than the dividend has; NULL by zero."""
    if isinstance(left, DoubleTerm) or isinstance(right, DoubleTerm):
        both = _as_double(left, "/"), _as_double(right, "/")
        return DoubleTerm(
            _both(*both, lambda one, other: None if other == 0 else _finite(one / other))
        )
    one, other = number_term(left, "/"), number_term(right, "/")
    if one.scale is None:
        raise refused("a quotient of such a number")
    scale = one.scale + 4
    unrounded = _both(
        one.evaluate, other.evaluate, lambda up, down: None if down == 0 else Fraction(up) / down
    )

    def evaluate(row: CanonicalRow) -> Number | None:
        value = unrounded(row)
        if value is not None and half_up(value, scale) != value:
            raise refused(f"a quotient with more than {scale} digits")
        return value

    term = exact(evaluate, scale)
    return NumberTerm(term.evaluate, fractional=True, scale=scale, unrounded=unrounded)


def _whole_quotient(left: Number, right: Number) -> int | None:
    if right == 0:
        return None
    whole = floor(abs(Fraction(left) / right))
    return whole if (left < 0) == (right < 0) else -whole


def _rest(left: Number, right: Number) -> Number | None:
    if right == 0:
        return None
    whole = _whole_quotient(left, right) or 0
    return left - whole * right


def _exact_only(
    operation: Callable[[Number, Number], Number | None],
    scale_of: Callable[[int, int], int],
    sign: str,
) -> Callable[[Term, Term], Term]:
    combine = arithmetic(operation, scale_of, sign)

    def checked(left: Term, right: Term) -> Term:
        if isinstance(left, DoubleTerm) or isinstance(right, DoubleTerm):
            raise refused(f"{sign} of floating point")
        return combine(left, right)

    return checked


whole_quotient: Final = _exact_only(_whole_quotient, lambda _one, _other: 0, "DIV")
rest: Final = _exact_only(_rest, max, "MOD")


def _literal_integer(term: Term, what: str) -> int:
    if not isinstance(term, IntegerLiteral):
        raise refused(f"{what} with what is no literal")
    return term.value


def _rounding(name: str, arguments: Sequence[Term]) -> Term:
    number = number_term(arguments[0], name)
    digits = _literal_integer(arguments[1], name) if len(arguments) == 2 else 0
    if not -MAX_SCALE <= digits <= MAX_SCALE:
        raise refused(f"{name} to {digits} digits")
    cuts = name == "TRUNCATE"

    def change(value: Number) -> Number:
        if not cuts:
            return half_up(value, digits)
        return _whole_quotient(value * Fraction(10) ** digits, 1) / Fraction(10) ** digits  # pyright: ignore[reportOptionalOperand]  # not by zero

    scale = number.scale
    if scale is not None:
        # Digits that the number does not have are not certain to be printed.
        scale = max(digits, 0) if digits <= scale else None
    of_quotient = None if cuts else rounded_quotient(number, digits)
    if of_quotient is not None:
        return exact(of_quotient, scale)
    return exact(_mapped(number.evaluate, change), scale)


def _mapped(value_of: Evaluate, change: Callable[[Any], Any]) -> Callable[[CanonicalRow], Any]:
    def evaluate(row: CanonicalRow) -> Any:
        value = value_of(row)
        return None if value is None else change(value)

    return evaluate


def _whole(name: str, arguments: Sequence[Term]) -> Term:
    number = number_term(arguments[0], name)
    change = floor if name == "FLOOR" else ceil
    unrounded, scale = number.unrounded, number.scale
    if unrounded is None or scale is None:
        return exact(_mapped(number.evaluate, change), 0)

    def of_quotient(value: Fraction) -> int:
        cut = Fraction(_whole_quotient(value * 10**scale, 1) or 0, 10**scale)
        if change(cut) != change(value):
            raise refused(f"{name} of a quotient with so many digits")
        return change(value)

    return exact(_mapped(unrounded, of_quotient), 0)


def _absolute(name: str, arguments: Sequence[Term]) -> Term:
    if isinstance(arguments[0], DoubleTerm):
        return DoubleTerm(_mapped(arguments[0].evaluate, abs))
    number = number_term(arguments[0], name)
    return exact(_mapped(number.evaluate, abs), number.scale)


def _sign(name: str, arguments: Sequence[Term]) -> Term:
    number = number_term(arguments[0], name)
    return exact(_mapped(number.evaluate, lambda value: (value > 0) - (value < 0)), 0)


def _extreme(name: str, arguments: Sequence[Term]) -> Term:
    numbers = [number_term(argument, name) for argument in arguments]
    scales = {number.scale for number in numbers}
    choose = max if name == "GREATEST" else min

    def evaluate(row: CanonicalRow) -> Number | None:
        values = [number.evaluate(row) for number in numbers]
        known = [value for value in values if value is not None]
        return choose(known) if len(known) == len(values) else None

    return exact(evaluate, scales.pop() if len(scales) == 1 else None)


# Texts ------------------------------------------------------------------------------------------


def number_text(value: Number, scale: int) -> str:
    """Return an exact number as TiDB prints it."""
    digits = str(abs(int(value * 10**scale))).zfill(scale + 1)
    text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    return f"-{text}" if value < 0 else text


def moment_text(value: Moment, digits: int | None) -> str:
    """Return a date, or a date and time with so many digits of a second, as TiDB prints it."""
    text = f"{value.year:04}-{value.month:02}-{value.day:02}"
    if digits is None:
        return text
    text += f" {value.hour:02}:{value.minute:02}:{value.second:02}"
    return f"{text}.{value.microsecond:06}"[: 20 + digits] if digits else text


def text_term(term: Term, what: str) -> TextTerm:
    """Return what TiDB makes of a term where a text is needed."""
    match term:
        case TextTerm():
            return term
        case TextLiteral(text):
            return TextTerm(lambda _row: text)
        case NullLiteral():
            return TextTerm(lambda _row: None)
        case NumberTerm(repeats=False) | IntegerLiteral():
            number = number_term(term, what)
            scale = number.scale
            if scale is None:
                raise refused(f"{what} of such a number")
            return TextTerm(_mapped(number.evaluate, lambda value: number_text(value, scale)))
        case MomentTerm():
            digits = term.digits
            return TextTerm(_mapped(term.evaluate, lambda value: moment_text(value, digits)))
        case JsonTerm():
            return TextTerm(_mapped(term.evaluate, shapes.spaced_json))
        case _:
            raise refused(f"{what} of such a value")


def _is_constant(term: Term) -> bool:
    return isinstance(term, TextLiteral | IntegerLiteral | NullLiteral)


def _collation(terms: Sequence[Term]) -> str:
    """Return the collation of what several texts make, "" if that is not certain."""
    found = {term.collation for term in terms if isinstance(term, TextTerm)}
    if not found:
        return DEFAULT_COLLATION if all(map(_is_constant, terms)) else ""
    return found.pop() if len(found) == 1 else ""


def _of_texts(change: Callable[..., Any]) -> "_Build":
    """Return a function of texts that gives a text: NULL if one is."""

    def build(name: str, arguments: Sequence[Term]) -> Term:
        texts = [text_term(argument, name).evaluate for argument in arguments]

        def evaluate(row: CanonicalRow) -> str | None:
            values = [text(row) for text in texts]
            return None if None in values else change(*values)

        return TextTerm(evaluate, _collation(arguments))

    return build


def _concat_ws(name: str, arguments: Sequence[Term]) -> Term:
    separator, *texts = (text_term(argument, name).evaluate for argument in arguments)

    def evaluate(row: CanonicalRow) -> str | None:
        between = separator(row)
        if between is None:
            return None
        return between.join(value for text in texts if (value := text(row)) is not None)

    return TextTerm(evaluate, _collation(arguments))


def _cased(change: Callable[[str], str]) -> Callable[[str], str]:
    """Return a text with other case: of letters whose other case is one letter."""

    def cased(text: str) -> str:
        if text.isascii():
            return change(text)
        changed = [change(char) for char in text]
        if any(len(char) != 1 for char in changed):
            raise refused("the case of some letters")
        return "".join(changed)

    return cased


def _counted(count: Callable[[str], int]) -> "_Build":
    def build(name: str, arguments: Sequence[Term]) -> Term:
        return exact(_mapped(text_term(arguments[0], name).evaluate, count), 0)

    return build


def _with_numbers(change: Callable[..., str]) -> "_Build":
    """Return a function of a text and whole numbers after it."""

    def build(name: str, arguments: Sequence[Term]) -> Term:
        text_of = text_term(arguments[0], name).evaluate
        numbers = [number_term(argument, name) for argument in arguments[1:]]
        if any(number.fractional for number in numbers):
            raise refused(f"{name} with a fraction")

        def evaluate(row: CanonicalRow) -> str | None:
            values = [text_of(row), *(number.evaluate(row) for number in numbers)]
            return None if None in values else change(*values)

        return TextTerm(evaluate, _collation(arguments[:1]))

    return build


def _substring(text: str, begin: int, length: int | None = None) -> str:
    if begin < 0:
        begin += len(text)
    else:
        begin -= 1
    if not 0 <= begin < len(text) or (length is not None and length <= 0):
        return ""
    return text[begin:] if length is None else text[begin : begin + length]


def _left(text: str, count: int) -> str:
    return text[:count] if count > 0 else ""


def _right(text: str, count: int) -> str:
    return text[-count:] if count > 0 else ""


def _padded(name: str, arguments: Sequence[Term]) -> Term:
    text_of, fill_of = (text_term(arguments[at], name).evaluate for at in (0, 2))
    size = number_term(arguments[1], name)

    def evaluate(row: CanonicalRow) -> str | None:
        text, count, fill = text_of(row), size.evaluate(row), fill_of(row)
        if text is None or count is None or fill is None:
            return None
        if not isinstance(count, int) or not 0 <= count <= 1 << 16:
            raise refused(f"{name} to such a length")
        if count <= len(text):
            return text[:count]
        if not fill:
            raise refused(f"{name} with an empty text")
        more = (fill * (count - len(text)))[: count - len(text)]
        return more + text if name == "LPAD" else text + more

    return TextTerm(evaluate, _collation((arguments[0],)))


def _located(name: str, arguments: Sequence[Term]) -> Term:
    text, piece = arguments if name == "INSTR" else (arguments[1], arguments[0])
    if _collation(arguments) not in BINARY_COLLATIONS:
        raise refused(f"{name} of texts by their collation")
    both = text_term(text, name).evaluate, text_term(piece, name).evaluate
    return exact(_both(*both, lambda whole, part: whole.find(part) + 1), 0)


def _substring_index(name: str, arguments: Sequence[Term]) -> Term:
    text_of, between_of = (text_term(arguments[at], name).evaluate for at in (0, 1))
    count = _literal_integer(arguments[2], name)

    def evaluate(row: CanonicalRow) -> str | None:
        text, between = text_of(row), between_of(row)
        if text is None or between is None:
            return None
        if not between or not count:
            return ""
        pieces = text.split(between)
        return between.join(pieces[:count] if count > 0 else pieces[count:])

    return TextTerm(evaluate, _collation((arguments[0],)))


def _hexadecimal(name: str, arguments: Sequence[Term]) -> Term:
    if isinstance(arguments[0], NumberTerm | IntegerLiteral):
        number = number_term(arguments[0], name)
        if number.fractional:
            raise refused("HEX of a fraction")
        return TextTerm(_mapped(number.evaluate, lambda value: f"{int(value) % 2**64:X}"))
    text_of = text_term(arguments[0], name).evaluate
    return TextTerm(_mapped(text_of, lambda text: text.encode().hex().upper()))


def _digest(name: str) -> "_Build":
    def digest(text: str) -> str:
        return hashlib.new(name, text.encode(), usedforsecurity=False).hexdigest()

    return lambda what, arguments: TextTerm(
        _mapped(text_term(arguments[0], what).evaluate, digest), ""
    )


def _sha2(name: str, arguments: Sequence[Term]) -> Term:
    bits = _literal_integer(arguments[1], name) or 256
    if bits not in (224, 256, 384, 512):
        raise refused(f"SHA2 of {bits} bits")
    return _digest(f"sha{bits}")(name, arguments[:1])


# JSON -------------------------------------------------------------------------------------------

_PATH: Final = re.compile(
    r'\s*(?:\.\s*(?:([A-Za-z_$][A-Za-z0-9_$]*)|"([^"\\]*)")|\[\s*([0-9]+)\s*\])'
)


def _path_of(term: Term, what: str) -> tuple[str | int, ...]:
    """Return the steps of a path without wildcards, as `$.a[1]."b c"`."""
    text = term.text.strip() if isinstance(term, TextLiteral) else ""
    if not text.startswith("$"):
        raise refused(f"{what} with such a path")
    at = 1
    steps: list[str | int] = []
    while at < len(text):
        found = _PATH.match(text, at)
        if found is None:
            raise refused(f"{what} with the path {shorten(text)}")
        at = found.end()
        name = found[1] if found[1] is not None else found[2]
        steps.append(name if name is not None else int(found[3]))
    return tuple(steps)


_NOTHING: Final = object()


def _step(value: Any, step: str | int) -> Any:
    if isinstance(step, str):
        return value.get(step, _NOTHING) if isinstance(value, dict) else _NOTHING
    if isinstance(value, list):
        return value[step] if step < len(value) else _NOTHING
    # What is no array is one of itself.
    return value if step == 0 else _NOTHING


def _read(text: str) -> Any:
    try:
        return read_json(text)
    except ValueError:
        raise refused("such JSON") from None


def _json_term(term: Term, what: str) -> JsonTerm:
    if isinstance(term, JsonTerm):
        return term
    if isinstance(term, TextTerm):
        # What is no JSON is an error in TiDB, and no such row was stored.
        return JsonTerm(_mapped(term.evaluate, lambda text: write_json(_read(text))))
    raise refused(f"{what} of what is no JSON")


def json_extract(name: str, arguments: Sequence[Term]) -> Term:
    """Return the term of `JSON_EXTRACT(document, path)`: NULL where the path leads nowhere."""
    document = _json_term(arguments[0], name).evaluate
    steps = _path_of(arguments[1], name)

    def extract(text: str) -> str | None:
        value = _read(text)
        for step in steps:
            value = _step(value, step)
            if value is _NOTHING:
                return None
        return write_json(value)

    return JsonTerm(_mapped(document, extract))


def json_unquote(name: str, arguments: Sequence[Term]) -> Term:
    """Return the term of `JSON_UNQUOTE(value)`: a JSON text as it is, other JSON as printed."""
    if not isinstance(arguments[0], JsonTerm):
        raise refused(f"{name} of what is no JSON")

    def unquote(text: str) -> str:
        value = _read(text)
        return value if isinstance(value, str) else shapes.spaced_json(text)

    return TextTerm(_mapped(arguments[0].evaluate, unquote), DEFAULT_COLLATION)


def _json_length(name: str, arguments: Sequence[Term]) -> Term:
    document = _json_term(arguments[0], name).evaluate

    def length(text: str) -> int:
        value = _read(text)
        return len(value) if isinstance(value, dict | list) else 1

    return exact(_mapped(document, length), 0)


# Comparing --------------------------------------------------------------------------------------

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
"""They are not equal; which is greater is not certain."""


def compared(left: Term, right: Term, what: str) -> Callable[[CanonicalRow], int | None]:
    """Return the function that gives -1, 0 or 1, `_UNEQUAL`, or None if one side is NULL."""
    sides = (left, right)
    if any(isinstance(side, NullLiteral) for side in sides):
        return lambda _row: None
    if all(isinstance(side, NumberTerm | IntegerLiteral) for side in sides):
        numbers = [number_term(side, what).evaluate for side in sides]
        return _both(numbers[0], numbers[1], _order)
    if all(isinstance(side, NumberTerm | IntegerLiteral | DoubleTerm) for side in sides):
        doubles = [_as_double(side, what) for side in sides]
        return _both(doubles[0], doubles[1], _order)
    if all(isinstance(side, TextTerm | TextLiteral) for side in sides):
        texts = [text_term(side, what).evaluate for side in sides]
        collation = _collation(sides)
        return _both(texts[0], texts[1], lambda one, other: _text_order(one, other, collation))
    if any(isinstance(side, MomentTerm) for side in sides) and all(
        isinstance(side, MomentTerm | TextLiteral) for side in sides
    ):
        moments = [moment_of(side, what) for side in sides]
        return _both(moments[0], moments[1], _order)
    raise refused(f"{what} between such values")


def comparison(left: Term, right: Term, test: Callable[[int], bool], what: str) -> NumberTerm:
    """Return the term of a comparison; `test` takes what `compared` gives."""

    def decided(order: int) -> int:
        if order == _UNEQUAL and what not in ("=", "<>", "!=", "<=>", "IN", "CASE", "NULLIF"):
            raise refused("comparing texts by their collation")
        return int(test(order))

    return NumberTerm(_mapped(compared(left, right, what), decided))


def same_or_null(left: Term, right: Term) -> NumberTerm:
    """Return the term of `<=>`: NULL equals NULL."""
    null_left, null_right = is_null(left), is_null(right)
    equal = comparison(left, right, lambda order: order == 0, "<=>").evaluate

    def evaluate(row: CanonicalRow) -> int:
        nulls = null_left.evaluate(row), null_right.evaluate(row)
        return int(nulls[0] == nulls[1]) if any(nulls) else int(equal(row) or 0)

    return NumberTerm(evaluate)


def is_null(term: Term) -> NumberTerm:
    """Return the term of `IS NULL`."""
    if _is_constant(term):
        value = int(isinstance(term, NullLiteral))
        return NumberTerm(lambda _row: value)
    value_of: Evaluate = term.evaluate  # pyright: ignore[reportAttributeAccessIssue]  # no literal
    return NumberTerm(lambda row: int(value_of(row) is None))


def truth_of(term: Term, what: str) -> Callable[[CanonicalRow], bool | None]:
    """Return the function of a condition: None for NULL."""
    if isinstance(term, DoubleTerm):
        return _mapped(term.evaluate, bool)
    return _mapped(number_term(term, what).evaluate, bool)


# Choosing ---------------------------------------------------------------------------------------


def unified(terms: Sequence[Term], what: str) -> tuple[list[Evaluate], Callable[[Evaluate], Term]]:
    """Return the values of terms of which one is chosen, and what makes a term of the choice."""
    known = [term for term in terms if not isinstance(term, NullLiteral)]
    if all(isinstance(term, NumberTerm | IntegerLiteral) for term in known):
        numbers = [number_term(term, what) for term in terms]
        scales = {number_term(term, what).scale for term in known}
        # How many digits are printed of one among others is not certain.
        scale = scales.pop() if len(scales) == 1 else None
        return [number.evaluate for number in numbers], lambda chosen: exact(chosen, scale)
    if all(isinstance(term, NumberTerm | IntegerLiteral | DoubleTerm) for term in known):
        return [_as_double(term, what) for term in terms], DoubleTerm
    if all(isinstance(term, JsonTerm) for term in known):
        return [_evaluate(term) for term in terms], JsonTerm
    moments = [term for term in known if isinstance(term, MomentTerm)]
    if len(moments) == len(known) and len({term.digits for term in moments}) == 1:
        digits = moments[0].digits
        return [_evaluate(term) for term in terms], lambda chosen: MomentTerm(chosen, digits)
    if moments or any(isinstance(term, JsonTerm) for term in known):
        raise refused(f"{what} with values of several types")
    collation = _collation(known)
    texts = [text_term(term, what).evaluate for term in terms]
    return texts, lambda chosen: TextTerm(chosen, collation)


def _evaluate(term: Term) -> Evaluate:
    if isinstance(term, MomentTerm | JsonTerm):
        return term.evaluate
    return lambda _row: None


def chosen(
    conditions: Sequence[Callable[[CanonicalRow], bool | None]],
    terms: Sequence[Term],
    what: str,
) -> Term:
    """Return the first term whose condition holds, else the last, which has none."""
    values, make = unified(terms, what)

    def evaluate(row: CanonicalRow) -> Any:
        for condition, value_of in zip(conditions, values, strict=False):
            if condition(row):
                return value_of(row)
        return values[-1](row)

    return make(evaluate)


def _if(name: str, arguments: Sequence[Term]) -> Term:
    return chosen([truth_of(arguments[0], name)], arguments[1:], name)


def _coalesce(name: str, arguments: Sequence[Term]) -> Term:
    values, make = unified(arguments, name)

    def evaluate(row: CanonicalRow) -> Any:
        return next((value for value_of in values if (value := value_of(row)) is not None), None)

    return make(evaluate)


def _null_if(name: str, arguments: Sequence[Term]) -> Term:
    equal = comparison(*arguments, lambda order: order == 0, name).evaluate
    values, make = unified(arguments[:1], name)
    return make(lambda row: None if equal(row) else values[0](row))


# Dates ------------------------------------------------------------------------------------------

_FORMATS: Final[dict[str, Callable[[Moment], str]]] = {
    "Y": lambda moment: f"{moment.year:04}",
    "y": lambda moment: f"{moment.year % 100:02}",
    "m": lambda moment: f"{moment.month:02}",
    "c": lambda moment: f"{moment.month}",
    "d": lambda moment: f"{moment.day:02}",
    "e": lambda moment: f"{moment.day}",
    "H": lambda moment: f"{moment.hour:02}",
    "k": lambda moment: f"{moment.hour}",
    "i": lambda moment: f"{moment.minute:02}",
    "s": lambda moment: f"{moment.second:02}",
    "S": lambda moment: f"{moment.second:02}",
    "f": lambda moment: f"{moment.microsecond:06}",
    "T": lambda moment: f"{moment.hour:02}:{moment.minute:02}:{moment.second:02}",
    "j": lambda moment: f"{_day(moment).timetuple().tm_yday:03}",
    "%": lambda _moment: "%",
}


def _day(moment: Moment) -> date:
    try:
        return date(moment.year, moment.month, moment.day)
    except ValueError:
        raise refused("a date that is no day of the calendar") from None


def _moment_term(term: Term, what: str) -> MomentTerm:
    if isinstance(term, MomentTerm):
        return term
    if isinstance(term, TextLiteral):
        moment = literal_moment(term.text, what)
        is_day = len(term.text.strip()) <= len("2024-01-01")
        return MomentTerm(lambda _row: moment, None if is_day else 0)
    raise refused(f"{what} of what is no date")


def _date_format(name: str, arguments: Sequence[Term]) -> Term:
    moment, pattern = _moment_term(arguments[0], name), arguments[1]
    pieces: list[Callable[[Moment], str]] = []
    text = pattern.text if isinstance(pattern, TextLiteral) else "%?"
    at = 0
    while at < len(text):
        if text[at] == "%":
            form = _FORMATS.get(text[at + 1 : at + 2])
            if form is None:
                raise refused(f"{name} with such a format")
            pieces.append(form)
            at += 2
        else:
            pieces.append(lambda _moment, char=text[at]: char)
            at += 1

    def formatted(value: Moment) -> str:
        _day(value)
        return "".join(piece(value) for piece in pieces)

    return TextTerm(_mapped(moment.evaluate, formatted), "")


def _date_of(name: str, arguments: Sequence[Term]) -> Term:
    moment = _moment_term(arguments[0], name)

    def day(value: Moment) -> Moment:
        _day(value)
        return Moment(value.year, value.month, value.day)

    return MomentTerm(_mapped(moment.evaluate, day))


def _last_day(name: str, arguments: Sequence[Term]) -> Term:
    moment = _moment_term(arguments[0], name)

    def last(value: Moment) -> Moment:
        _day(value)
        return Moment(value.year, value.month, monthrange(value.year, value.month)[1])

    return MomentTerm(_mapped(moment.evaluate, last))


_MONTHS: Final = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_SECONDS: Final = {"HOUR": 3600, "MINUTE": 60, "SECOND": 1}
_DAYS: Final = {"DAY": 1, "WEEK": 7}


def shifted(term: Term, count: Term, unit: str, *, back: bool) -> Term:
    """Return the term of a date and an interval after it, or before it."""
    what = "INTERVAL"
    moment, number = _moment_term(term, what), number_term(count, what)
    if number.fractional or unit not in _MONTHS | _SECONDS | _DAYS:
        raise refused(f"an interval of {unit[:40]}")
    if moment.digits is None and unit in _SECONDS:
        raise refused("a date and an interval of its clock")

    def shift(value: Moment, by: int) -> Moment:
        by = -by if back else by
        if unit in _MONTHS:
            months = value.year * 12 + value.month - 1 + by * _MONTHS[unit]
            year, month = divmod(months, 12)
            if not 1 <= year <= 9999:
                raise refused("a date out of its range")
            _day(value)
            day = min(value.day, monthrange(year, month + 1)[1])
            return value._replace(year=year, month=month + 1, day=day)
        clock = (value.hour, value.minute, value.second, value.microsecond)
        day = _day(value)
        seconds = by * (_DAYS[unit] * 86400 if unit in _DAYS else _SECONDS[unit])
        try:
            found = datetime(day.year, day.month, day.day, *clock) + timedelta(seconds=seconds)  # noqa: DTZ001
        except OverflowError:
            raise refused("a date out of its range") from None
        return moment_of_datetime(found)

    return MomentTerm(_both(moment.evaluate, number.evaluate, shift), moment.digits)


# The table --------------------------------------------------------------------------------------

_Build: TypeAlias = Callable[[str, Sequence[Term]], Term]
_MANY: Final = 1 << 10

FUNCTIONS: Final[dict[str, tuple[int, int, _Build]]] = {
    "ABS": (1, 1, _absolute),
    "CEIL": (1, 1, _whole),
    "CEILING": (1, 1, _whole),
    "FLOOR": (1, 1, _whole),
    "MOD": (2, 2, lambda _name, arguments: rest(*arguments)),
    "ROUND": (1, 2, _rounding),
    "TRUNCATE": (2, 2, _rounding),
    "SIGN": (1, 1, _sign),
    "GREATEST": (2, _MANY, _extreme),
    "LEAST": (2, _MANY, _extreme),
    "IF": (3, 3, _if),
    "IFNULL": (2, 2, _coalesce),
    "COALESCE": (1, _MANY, _coalesce),
    "NULLIF": (2, 2, _null_if),
    "ISNULL": (1, 1, lambda _name, arguments: is_null(arguments[0])),
    "CONCAT": (1, _MANY, _of_texts(lambda *texts: "".join(texts))),
    "CONCAT_WS": (2, _MANY, _concat_ws),
    "UPPER": (1, 1, _of_texts(_cased(str.upper))),
    "UCASE": (1, 1, _of_texts(_cased(str.upper))),
    "LOWER": (1, 1, _of_texts(_cased(str.lower))),
    "LCASE": (1, 1, _of_texts(_cased(str.lower))),
    "TRIM": (1, 1, _of_texts(lambda text: text.strip(" "))),
    "LTRIM": (1, 1, _of_texts(lambda text: text.lstrip(" "))),
    "RTRIM": (1, 1, _of_texts(lambda text: text.rstrip(" "))),
    "REVERSE": (1, 1, _of_texts(lambda text: text[::-1])),
    "REPLACE": (
        3,
        3,
        _of_texts(lambda text, old, new: text.replace(old, new) if old else text),
    ),
    "LENGTH": (1, 1, _counted(lambda text: len(text.encode()))),
    "OCTET_LENGTH": (1, 1, _counted(lambda text: len(text.encode()))),
    "CHAR_LENGTH": (1, 1, _counted(len)),
    "CHARACTER_LENGTH": (1, 1, _counted(len)),
    "CRC32": (1, 1, _counted(lambda text: zlib.crc32(text.encode()))),
    "SUBSTRING": (2, 3, _with_numbers(_substring)),
    "SUBSTR": (2, 3, _with_numbers(_substring)),
    "MID": (3, 3, _with_numbers(_substring)),
    "LEFT": (2, 2, _with_numbers(_left)),
    "RIGHT": (2, 2, _with_numbers(_right)),
    "LPAD": (3, 3, _padded),
    "RPAD": (3, 3, _padded),
    "SUBSTRING_INDEX": (3, 3, _substring_index),
    "INSTR": (2, 2, _located),
    "LOCATE": (2, 2, _located),
    "HEX": (1, 1, _hexadecimal),
    "MD5": (1, 1, _digest("md5")),
    "SHA": (1, 1, _digest("sha1")),
    "SHA1": (1, 1, _digest("sha1")),
    "SHA2": (2, 2, _sha2),
    "JSON_EXTRACT": (2, 2, json_extract),
    "JSON_UNQUOTE": (1, 1, json_unquote),
    "JSON_LENGTH": (1, 1, _json_length),
    "DATE": (1, 1, _date_of),
    "DATE_FORMAT": (2, 2, _date_format),
    "LAST_DAY": (1, 1, _last_day),
}
"""By name the fewest and most arguments, and what makes the term."""
