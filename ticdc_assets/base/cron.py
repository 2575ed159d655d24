"""Cron texts: whether a scheduler can follow one.

It is stricter than the schedulers that read a text: they all read one that passes here in the same
way. So there are no seconds, no `@daily`, no `L` or `#`, and no ranges that wrap; and a day that
never comes, like the 30th of February, is a mistake. Dagster knows when a schedule is due.
"""

import re
from dataclasses import dataclass

_PART = re.compile(
    r"(?P<any>\*)(/(?P<any_step>[0-9]{1,4}))?"
    r"|(?P<low>[0-9]{1,4}|[a-z]{3})(-(?P<high>[0-9]{1,4}|[a-z]{3})(/(?P<step>[0-9]{1,4}))?)?"
)

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_LONGEST = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a cron text: its numbers, and words for some of them."""

    name: str
    low: int
    high: int
    words: tuple[str, ...] = ()

    def number(self, text: str) -> int | None:
        """Return the number of a text, None if it is not a number or word of this field."""
        if text in self.words:
            return self.words.index(text) + self.low
        if not text.isdigit() or not self.low <= int(text) <= self.high:
            return None
        return int(text)

    def numbers(self, text: str) -> set[int] | None:
        """Return the numbers that one part of the field names, None if it is no such part."""
        match = _PART.fullmatch(text)
        if match is None:
            return None
        if match["any"]:
            low, high, step = self.low, self.high, match["any_step"] or "1"
        else:
            first = self.number(match["low"])
            last = self.number(match["high"]) if match["high"] else first
            if first is None or last is None or last < first:
                return None
            low, high, step = first, last, match["step"] or "1"
        if not 1 <= int(step) <= self.high:
            return None
        return set(range(low, high + 1, int(step)))


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of the week", 0, 7, _WEEKDAYS),
)


def cron_mistake(text: str) -> str | None:
    """Return what is wrong with a cron text as one clause, None if a scheduler can follow it."""
    fields = text.lower().split(" ")
    if len(fields) != len(_FIELDS) or not text.isascii():
        return f"it has to be {len(_FIELDS)} fields with one space between"
    chosen: list[set[int]] = []
    for field, said in zip(_FIELDS, fields, strict=True):
        numbers: set[int] = set()
        for part in said.split(","):
            some = field.numbers(part)
            if some is None:
                return (
                    f"{part!r} is no {field.name} ({field.low} to {field.high}, "
                    "with * or low-high, each with or without /step)"
                )
            numbers |= some
        chosen.append(numbers)
    days, months = chosen[2], chosen[3]
    # Also with a day of the week: the schedulers check the day of the month first.
    if not any(min(days) <= _LONGEST[month - 1] for month in months):
        return "that day never comes"
    return None
