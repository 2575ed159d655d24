"""Cases of one function, written as lines of text."""

import re


def cases(text: str) -> list[tuple[str, ...]]:
    """Read lines of `text -> expected`; one that begins with blanks continues the line before."""
    return [tuple(row.split(" -> ")) for row in re.sub(r"\n +", " ", text.strip()).splitlines()]


def grouped(text: str, becomes: str = " = ") -> list[tuple[str, str, str]]:
    """Read cases by what they share: that, a text, and what becomes of the text.

    A line is `shared: text = made | text = made`; after a `|` at its end the next one belongs to
    it. `''` is the empty text; a line that begins with `#` is a comment.
    """
    found: list[tuple[str, str, str]] = []
    lines = re.sub(r"(?m)^#.*\n", "", text.lstrip())
    for line in re.sub(r"\|\n +", "| ", lines).splitlines():
        shared, _, items = line.partition(": ")
        for item in items.split(" | "):
            sent, made = ("" if side == "''" else side for side in item.split(becomes))
            found.append((shared, sent, made))
    return found
