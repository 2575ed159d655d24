"""Compiled loops over one column: texts of values to numbers, and which of them are plain.

In: bytes, and for each row where its text stands in them and of what form it is (`values.columns`).
Out: numbers, or only whether the text is plain, that is, canonical text already and held exactly by
the typed column. Of any other text a loop says no more than that it is not plain: what it means,
`values.canonical` and `values.typed` know.

Only the bytes from `begins[row]` to `ends[row]` tell anything; the caller keeps these inside the
bytes, with seven more behind them for `word_loops`. All arrays but words are contiguous; places are
int32, forms uint8, flags bool.
"""

# numba hides the types of what it compiles.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportArgumentType=false

from typing import Final

import numpy as np
import numpy.typing as npt

from ticdc_assets.compiled import compiled
from ticdc_assets.values.word_loops import NO_DIGITS, ZEROS, Words, number_at, number_of

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]

ABSENT: Final = 0
NULL: Final = 1
TEXT: Final = 2
ESCAPED: Final = 3
ZONED: Final = 4

_TRUE, _FALSE = np.frombuffer(b"true", np.uint8), np.frombuffer(b"false", np.uint8)
NULL_WORD: Final = np.frombuffer(b"null", np.uint8)

_HUNDRED_MILLION: Final = np.uint64(10**8)
_MOST_EIGHTS: Final = np.uint64((2**64 - 1) // 10**8)
_MOST_LEFT: Final = (2**64 - 1) % 10**8

_MINUS, _POINT, _ZERO, _NINE, _COLON, _SPACE = 45, 46, 48, 57, 58, 32


def _word(text: bytes) -> np.uint64:
    return np.frombuffer(text, "<u8")[0]


_HYPHENS, _HYPHENS_MASK = _word(b"\0\0\0\0-\0\0-"), _word(b"\0\0\0\0\xff\0\0\xff")
_CLOCK, _CLOCK_MASK = _word(b" \0\0:\0\0:\0"), _word(b"\xff\0\0\xff\0\0\xff\0")


@compiled
def integers(
    data: Bytes,
    words: Words,
    begins: Places,
    ends: Places,
    forms: Bytes,
    lowest: np.uint64,
    highest: np.uint64,
    out: npt.NDArray[np.uint64],
    plain: Flags,
) -> None:
    """Read integers in canonical text.

    Args:
        data: the bytes.
        words: the eight bytes at each place.
        begins: where each text begins.
        ends: where each ends.
        forms: of what form each is.
        lowest: magnitude of the lowest value.
        highest: the highest value.
        out: the numbers, negative ones as two's complement.
        plain: which are absent, NULL, or canonical and in range.
    """
    for row in range(len(begins)):
        out[row] = np.uint64(0)
        if forms[row] <= NULL:
            plain[row] = True
            continue
        plain[row] = False
        place, end = begins[row], ends[row]
        if forms[row] != TEXT or place >= end:
            continue
        negative = data[place] == _MINUS
        if negative:
            place += 1
        size = end - place
        if size < 1 or size > 20 or (data[place] == _ZERO and (size > 1 or negative)):
            continue
        # What is left of eights comes first, then eight digits at a time.
        head = (size - 1) % 8 + 1
        found = number_at(words, place, head)
        number = np.uint64(found)
        good = found != NO_DIGITS
        place += head
        while good and place < end:
            found = number_of(words[place])
            # 2^64 has twenty digits.
            good = found != NO_DIGITS and (
                size < 20
                or place + 8 < end
                or number < _MOST_EIGHTS
                or (number == _MOST_EIGHTS and found <= _MOST_LEFT)
            )
            number = number * _HUNDRED_MILLION + np.uint64(found)
            place += 8
        if not good or number > (lowest if negative else highest):
            continue
        out[row] = ~number + np.uint64(1) if negative else number
        plain[row] = True


@compiled
def decimals(
    data: Bytes,
    begins: Places,
    ends: Places,
    forms: Bytes,
    whole: int,
    scale: int,
    out: npt.NDArray[np.uint64],
    plain: Flags,
) -> None:
    """Read decimals in canonical text of at most 36 digits.

    Args:
        data: the bytes.
        begins: where each text begins.
        ends: where each ends.
        forms: of what form each is.
        whole: most digits before the point.
        scale: digits behind it.
        out: two numbers a row: the unscaled value in 128 bits, the lower ones first.
        plain: which are absent, NULL, or canonical and not a negative zero.
    """
    half = np.uint64(32)
    low_half = np.uint64(0xFFFFFFFF)
    weight = np.uint64(10**18)
    for row in range(len(begins)):
        out[2 * row] = np.uint64(0)
        out[2 * row + 1] = np.uint64(0)
        if forms[row] <= NULL:
            plain[row] = True
            continue
        plain[row] = False
        place, end = begins[row], ends[row]
        if forms[row] != TEXT or place >= end:
            continue
        negative = data[place] == _MINUS
        if negative:
            place += 1
        point = end - scale - 1 if scale else end
        size = point - place
        if size < 1 or (size > whole and not (size == 1 and data[place] == _ZERO)):
            continue
        if size > 1 and data[place] == _ZERO:
            continue
        if scale and data[point] != _POINT:
            continue
        # The last 18 digits, and those before them: `whole` and `scale` are 36 at most together.
        upper, lower = np.uint64(0), np.uint64(0)
        left = size + scale
        good = True
        while place < end:
            if place != point:
                if data[place] < _ZERO or data[place] > _NINE:
                    good = False
                    break
                digit = np.uint64(data[place]) - np.uint64(_ZERO)
                if left > 18:
                    upper = upper * np.uint64(10) + digit
                else:
                    lower = lower * np.uint64(10) + digit
                left -= 1
            place += 1
        if not good or (negative and upper == 0 and lower == 0):
            continue
        # upper * weight + lower in 128 bits, by halves.
        first = (upper & low_half) * (weight & low_half)
        second = (upper >> half) * (weight & low_half) + (first >> half)
        third = (upper & low_half) * (weight >> half) + (second & low_half)
        high = (upper >> half) * (weight >> half) + (second >> half) + (third >> half)
        low = (third << half) | (first & low_half)
        low = low + lower
        if low < lower:
            high = high + np.uint64(1)
        if negative:
            low = ~low + np.uint64(1)
            high = ~high + (np.uint64(1) if low == 0 else np.uint64(0))
        out[2 * row] = low
        out[2 * row + 1] = high
        plain[row] = True


@compiled
def _digits(data: Bytes, place: int, count: int) -> int:
    """Return the number that `count` digits make, -1 if they are none."""
    number = 0
    for at in range(place, place + count):
        if data[at] < _ZERO or data[at] > _NINE:
            return -1
        number = number * 10 + (data[at] - _ZERO)
    return number


@compiled
def _digits_end(data: Bytes, place: int, end: int) -> int:
    """Return the place behind the digits that stand here, if any do."""
    while place < end and data[place] >= _ZERO and data[place] <= _NINE:
        place += 1
    return place


@compiled
def moments(
    data: Bytes,
    words: Words,
    begins: Places,
    ends: Places,
    forms: Bytes,
    has_clock: bool,
    digits: int,
    out: npt.NDArray[np.int64],
    plain: Flags,
) -> None:
    """Read days, or days and times, that exist in the years 1 to 9999.

    Args:
        data: the bytes.
        words: the eight bytes at each place.
        begins: where each text begins.
        ends: where each ends.
        forms: of what form each is.
        has_clock: whether a time of day follows the day.
        digits: of the fraction of its seconds.
        out: days since 1970, or microseconds.
        plain: which are absent, NULL, or such in canonical text.
    """
    wanted = 10
    if has_clock:
        wanted = 20 + digits if digits else 19
    for row in range(len(begins)):
        out[row] = 0
        if forms[row] <= NULL:
            plain[row] = True
            continue
        plain[row] = False
        place = begins[row]
        if forms[row] == ESCAPED or ends[row] - place != wanted:
            continue
        # `YYYY-MM-` with zeros for the hyphens.
        word = words[place]
        if word & _HYPHENS_MASK != _HYPHENS:
            continue
        number = number_of((word & ~_HYPHENS_MASK) | (ZEROS & _HYPHENS_MASK))
        year, month = number // 10_000, number // 10 % 1000
        day = _digits(data, place + 8, 2)
        if year < 1 or month < 1 or month > 12 or day < 1 or day > 31:
            continue
        if day == 31 and (month == 4 or month == 6 or month == 9 or month == 11):
            continue
        if month == 2:
            leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
            if day > (29 if leap else 28):
                continue
        # Years that begin in March, so that the day that comes and goes is the last.
        shifted = year - 1 if month <= 2 else year
        of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
        days = 365 * shifted + shifted // 4 - shifted // 100 + shifted // 400 + of_year - 719468
        if not has_clock:
            out[row] = days
            plain[row] = True
            continue
        # ` hh:mm:s`, again with zeros.
        word = words[place + 10]
        if word & _CLOCK_MASK != _CLOCK:
            continue
        number = number_of((word & ~_CLOCK_MASK) | (ZEROS & _CLOCK_MASK))
        hour, minute = number // 100_000, number // 100 % 1000
        second = _digits(data, place + 17, 2)
        if number < 0 or hour > 23 or minute > 59 or second < 0 or second > 59:
            continue
        fraction = 0
        if digits:
            fraction = _digits(data, place + 20, digits)
            if fraction < 0 or data[place + 19] != _POINT:
                continue
            for _ in range(6 - digits):
                fraction *= 10
        out[row] = (((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000 + fraction
        plain[row] = True


@compiled
def floats(
    data: Bytes,
    begins: Places,
    ends: Places,
    forms: Bytes,
    out: npt.NDArray[np.float64],
    plain: Flags,
    longer: Flags,
) -> None:
    """Read numbers whose nearest double one division gives: up to 2^53, up to 22 digits behind.

    Args:
        data: the bytes.
        begins: where each text begins.
        ends: where each ends.
        forms: of what form each is.
        out: the numbers.
        plain: which are absent, NULL, or such.
        longer: which are digits with or without a point among them, but too many.
    """
    for row in range(len(begins)):
        out[row] = 0.0
        longer[row] = False
        if forms[row] <= NULL:
            plain[row] = True
            continue
        plain[row] = False
        place, end = begins[row], ends[row]
        if forms[row] != TEXT or place >= end:
            continue
        negative = data[place] == _MINUS
        if negative:
            place += 1
        if end - place < 1 or data[place] == _POINT or data[end - 1] == _POINT:
            continue
        number, behind, points = 0, 0, 0
        good, fits = True, end - place <= 23
        while place < end:
            byte = data[place]
            if byte == _POINT:
                points += 1
            elif byte >= _ZERO and byte <= _NINE:
                fits = fits and number < 900_719_925_474_099
                if fits:
                    number = number * 10 + (byte - _ZERO)
                    behind += points
            else:
                good = False
                break
            place += 1
        if not good or points > 1:
            continue
        if not fits or behind > 22:
            longer[row] = True
            continue
        value = np.float64(number) / 10.0**behind
        out[row] = -value if negative else value
        plain[row] = True


@compiled
def times(
    data: Bytes, begins: Places, ends: Places, forms: Bytes, digits: int, plain: Flags
) -> None:
    """Tell which texts are canonical TIME.

    Args:
        data: the bytes.
        begins: where each text begins.
        ends: where each ends.
        forms: of what form each is.
        digits: of the fraction of a second, -1 for any number.
        plain: which are absent, NULL, or such.
    """
    for row in range(len(begins)):
        plain[row] = forms[row] <= NULL
        if forms[row] != TEXT:
            continue
        place, end = begins[row], ends[row]
        if place < end and data[place] == _MINUS:
            place += 1
        hours = 3 if end - place > 3 and data[place + 3] == _COLON else 2
        behind = end - place - hours - 6
        if behind < 0 or data[place + hours] != _COLON or data[place + hours + 3] != _COLON:
            continue
        hour = _digits(data, place, hours)
        minute = _digits(data, place + hours + 1, 2)
        second = _digits(data, place + hours + 4, 2)
        if hour < 0 or hour > 838 or (hours == 3 and hour < 100):
            continue
        if minute < 0 or minute > 59 or second < 0 or second > 59:
            continue
        if behind:
            point = place + hours + 6
            if behind < 2 or behind > 7 or data[point] != _POINT:
                continue
            if _digits(data, point + 1, behind - 1) < 0:
                continue
        plain[row] = digits < 0 or behind == (digits + 1 if digits else 0)


@compiled
def decimal_texts(data: Bytes, begins: Places, ends: Places, forms: Bytes, plain: Flags) -> None:
    """Tell which texts are decimals without a `+`, an exponent, or zeros before them.

    Args:
        data: the bytes.
        begins: where each text begins.
        ends: where each ends.
        forms: of what form each is.
        plain: which are absent, NULL, or such.
    """
    for row in range(len(begins)):
        plain[row] = forms[row] <= NULL
        if forms[row] != TEXT:
            continue
        place, end = begins[row], ends[row]
        if place < end and data[place] == _MINUS:
            place += 1
        start = place
        place = _digits_end(data, place, end)
        size = place - start
        if size < 1 or (size > 1 and data[start] == _ZERO):
            continue
        if place < end:
            if data[place] != _POINT or place + 1 == end:
                continue
            place += 1
            place = _digits_end(data, place, end)
        plain[row] = place == end


@compiled
def datetime_texts(data: Bytes, begins: Places, ends: Places, forms: Bytes, plain: Flags) -> None:
    """Tell which texts are DATETIME with any fraction, zero dates among them.

    Args:
        data: the bytes.
        begins: where each text begins.
        ends: where each ends.
        forms: of what form each is.
        plain: which are absent, NULL, or such.
    """
    for row in range(len(begins)):
        plain[row] = forms[row] <= NULL
        place, size = begins[row], ends[row] - begins[row]
        if forms[row] <= NULL or forms[row] == ESCAPED or size < 19:
            continue
        if data[place + 4] != _MINUS or data[place + 7] != _MINUS or data[place + 10] != _SPACE:
            continue
        if data[place + 13] != _COLON or data[place + 16] != _COLON:
            continue
        month, day = _digits(data, place + 5, 2), _digits(data, place + 8, 2)
        hour = _digits(data, place + 11, 2)
        minute = _digits(data, place + 14, 2)
        second = _digits(data, place + 17, 2)
        if _digits(data, place, 4) < 0 or month < 0 or month > 12 or day < 0 or day > 31:
            continue
        if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
            continue
        if size > 19 and (size < 21 or size > 26 or data[place + 19] != _POINT):
            continue
        plain[row] = size == 19 or _digits(data, place + 20, size - 20) >= 0


@compiled
def base64(
    data: Bytes,
    begins: Places,
    ends: Places,
    forms: Bytes,
    sextets: Bytes,
    offsets: Places,
    out: Bytes,
    plain: Flags,
) -> None:
    """Decode base64 with all its padding, and no bit set that says nothing.

    Args:
        data: the bytes.
        begins: where each text begins.
        ends: where each ends.
        forms: of what form each is.
        sextets: for each byte the number it stands for, 64 for none.
        offsets: where in `out` each value begins, and the end of the last: one more than rows.
        out: the values one behind the other; three bytes for each four of text must fit.
        plain: which are absent, NULL, or such.
    """
    filled = 0
    for row in range(len(begins)):
        offsets[row] = filled
        plain[row] = forms[row] <= NULL
        place, end = begins[row], ends[row]
        if forms[row] != TEXT or (end - place) % 4:
            continue
        start = filled
        good = True
        while place < end:
            last = place + 4 == end
            one, two = sextets[data[place]], sextets[data[place + 1]]
            three, four = sextets[data[place + 2]], sextets[data[place + 3]]
            padding = 0
            if last and data[place + 3] == 61:
                four, padding = np.uint8(0), 1
                if data[place + 2] == 61:
                    three, padding = np.uint8(0), 2
            if one > 63 or two > 63 or three > 63 or four > 63:
                good = False
                break
            if (padding == 1 and three & 3) or (padding == 2 and two & 15):
                good = False
                break
            out[filled] = (one << 2) | (two >> 4)
            filled += 1
            if padding < 2:
                out[filled] = ((two & 15) << 4) | (three >> 2)
                filled += 1
            if padding < 1:
                out[filled] = ((three & 3) << 6) | four
                filled += 1
            place += 4
        if good:
            plain[row] = True
        else:
            filled = start
    offsets[len(begins)] = filled


_JSON_DEPTH: Final = 60
"""Arrays and objects within each other that `json_texts` reads: one bit of a number each."""


@compiled
def _string_end(data: Bytes, place: int, end: int) -> int:
    """Return the place behind the JSON string that begins here, -1 if it is none."""
    place += 1
    while place < end:
        byte = data[place]
        if byte == 34:
            return place + 1
        if byte < 32:
            return -1
        place += 1
        if byte != 92:
            continue
        if place >= end:
            return -1
        kind = data[place]
        place += 1
        if kind == 117:
            if end - place < 4:
                return -1
            for at in range(place, place + 4):
                digit = data[at]
                lower = digit | 32
                if not ((digit >= 48 and digit <= 57) or (lower >= 97 and lower <= 102)):
                    return -1
            place += 4
        elif not (
            kind == 34
            or kind == 92
            or kind == 47
            or kind == 98
            or kind == 102
            or kind == 110
            or kind == 114
            or kind == 116
        ):
            return -1
    return -1


@compiled
def _number_end(data: Bytes, place: int, end: int) -> int:
    """Return the place behind the JSON number that begins here, -1 if it is none."""
    if data[place] == _MINUS:
        place += 1
    start = place
    place = _digits_end(data, place, end)
    if place == start or (data[start] == _ZERO and place - start > 1):
        return -1
    if place < end and data[place] == _POINT:
        start = place + 1
        place = start
        place = _digits_end(data, place, end)
        if place == start:
            return -1
    if place < end and (data[place] | 32) == 101:
        place += 1
        if place < end and (data[place] == 43 or data[place] == _MINUS):
            place += 1
        start = place
        place = _digits_end(data, place, end)
        if place == start:
            return -1
    return place


@compiled
def stands(data: Bytes, place: int, end: int, text: Bytes) -> bool:
    """Return whether `text` stands at a place, and ends before or at `end`."""
    if end - place < len(text):
        return False
    same = True
    for number in range(len(text)):
        same = same and data[place + number] == text[number]
    return same


@compiled
def _word_end(data: Bytes, place: int, end: int) -> int:
    """Return the place behind `true`, `false` or `null`, -1 if none begins here."""
    if stands(data, place, end, _TRUE) or stands(data, place, end, NULL_WORD):
        return place + 4
    return place + 5 if stands(data, place, end, _FALSE) else -1


@compiled
def json_texts(
    data: Bytes,
    offsets: Places,
    forms: Bytes,
    out_offsets: Places,
    out: Bytes,
    plain: Flags,
) -> None:
    """Copy JSON documents without the white space between their tokens.

    Args:
        data: the documents one behind the other.
        offsets: where each begins, and the end of the last: one more than rows.
        forms: of what form each was; what is absent or NULL is not read.
        out_offsets: where in `out` each copy begins, and the end of the last.
        out: the copies one behind the other, no longer than the documents.
        plain: which are absent, NULL, or JSON that is no deeper than `_JSON_DEPTH`.
    """
    filled = 0
    for row in range(len(offsets) - 1):
        out_offsets[row] = filled
        plain[row] = forms[row] <= NULL
        if forms[row] <= NULL:
            continue
        place, end = offsets[row], offsets[row + 1]
        start = filled
        # Bit by bit, the innermost lowest, whether it is an object (1) or an array (0).
        depth, stack = 0, 0
        # What may come: 0 a value, 1 what follows one, 2 a value or `]`, 3 a name or `}`, 4 a name,
        # 5 a colon.
        state = 0
        good = True
        while place < end:
            byte = data[place]
            if byte == 32 or byte == 10 or byte == 13 or byte == 9:
                place += 1
                continue
            begin = place
            if state == 1:
                place += 1
                if depth == 0:
                    good = False
                elif byte == 44:
                    state = 4 if stack & 1 else 0
                elif (byte == 125 and stack & 1) or (byte == 93 and not stack & 1):
                    depth -= 1
                    stack >>= 1
                else:
                    good = False
            elif state == 5:
                place += 1
                good = byte == 58
                state = 0
            elif (state == 3 and byte == 125) or (state == 2 and byte == 93):
                place += 1
                depth -= 1
                stack >>= 1
                state = 1
            elif state >= 3:
                place = _string_end(data, place, end) if byte == 34 else -1
                state = 5
            elif byte == 123 or byte == 91:
                place += 1
                depth += 1
                stack = (stack << 1) | (1 if byte == 123 else 0)
                good = depth <= _JSON_DEPTH
                state = 3 if byte == 123 else 2
            else:
                state = 1
                if byte == 34:
                    place = _string_end(data, place, end)
                elif byte == _MINUS or (byte >= _ZERO and byte <= _NINE):
                    place = _number_end(data, place, end)
                else:
                    place = _word_end(data, place, end)
            if not good or place < 0:
                good = False
                break
            for at in range(begin, place):
                out[filled] = data[at]
                filled += 1
        if good and state == 1 and depth == 0:
            plain[row] = True
        else:
            filled = start
    out_offsets[len(offsets) - 1] = filled
