"""What a lenient SQL mode stores of a value that does not fit a text or binary type, ENUM or SET.

Texts are shortened to the length of the column, characters that its charset lacks become question
marks (and then TiDB cuts no more), an ENUM without the label is index 0 and a SET without one of
the labels is empty (pingcap/tidb `convertToString`, `ProduceStrWithSpecifiedTp`,
`convertToMysqlEnum` and `convertToMysqlSet` in pkg/types/datum.go). Nothing is forced into JSON and
VECTOR: the DDL fails in every SQL mode.
"""

import re
from typing import Final

from ticdc_assets.base.errors import ImageError
from ticdc_assets.model.mysql_types import Kind, base_type, declared_length, is_char, kind_of
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.model.values.cast_texts import TextRules, printed, raw_bytes, text_rules
from ticdc_assets.model.values.datum import TextCast, refusal, refuse, refusing
from ticdc_assets.model.values.physical import binary_bytes
from ticdc_assets.model.values.widening import TEXT_LIMITS, text_length

_EXPECTED: Final = "a value that TiDB can cut to the column"


def to_text(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Compile the lenient cast to `new`, which is a text type."""
    kind, rules = kind_of(old), text_rules(new)
    show = printed(old)
    length = text_length(new)
    limited_by_bytes = base_type(new) in TEXT_LIMITS
    strip = is_char(new)
    if new.charset.lower() in _CONVERTED_ONLY_WHOLE:
        return refusal(old, new)

    def convert(text: str) -> str:
        try:
            if kind is Kind.BINARY:
                made, is_damaged = _decoded(binary_bytes(text, old), rules)
            else:
                made = show(text)
                is_damaged = not rules.holds(made)
        except (ValueError, ImageError):
            refuse(new, _EXPECTED, text)
        if is_damaged and kind is Kind.TEXT:
            made = "".join(char if rules.holds(char) else "?" for char in made)
        elif is_damaged and kind is not Kind.BINARY:
            refuse(new, _EXPECTED, text)
        if not is_damaged and limited_by_bytes:
            made = made.encode()[:length].decode(errors="ignore")
        elif not is_damaged and length:
            made = made[:length]
        return made.rstrip(" ") if strip else made

    return convert


_CONVERTED_ONLY_WHOLE: Final = frozenset({"gbk", "gb18030"})
"""Charsets into which TiDB converts no column of another charset."""


def _decoded(raw: bytes, rules: TextRules) -> tuple[str, bool]:
    """Return the text before the first invalid byte, and whether there is such a byte."""
    try:
        made = raw.decode(rules.codec)
        is_damaged = False
    except UnicodeDecodeError as error:
        made, is_damaged = raw[: error.start].decode(rules.codec), True
    kept = next((place for place, char in enumerate(made) if not rules.holds(char)), None)
    return (made, is_damaged) if kept is None else (made[:kept], True)


def to_binary(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Compile the lenient cast to `new`, which is a binary type."""
    length = declared_length(new)
    if old.charset.lower() in _CONVERTED_ONLY_WHOLE or not length:
        return refusal(old, new)
    raw_of = raw_bytes(old, new, _EXPECTED)

    def convert(text: str) -> str:
        raw = raw_of(text)
        # A value that does not fit is longer than the column, so nothing is padded.
        return "0x" + raw[:length].hex()

    return convert


_GO_NUMBER = re.compile(r"0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO]?[0-7_]+|[1-9][0-9_]*")


def to_labels(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Compile the lenient cast to `new`, which is ENUM or SET."""
    kind = kind_of(old)
    if kind in (Kind.ENUM, Kind.SET) and not old.elements:
        return refusal(old, new)
    collation = new.collation.lower()
    is_exact = collation == "binary" or collation.endswith("_bin")
    folded = {label.casefold() for label in new.elements}
    is_ascii = all(label.isascii() for label in new.elements)

    def may_be_label(name: str) -> bool:
        """Whether TiDB may find a label or an index in `name`, though the exact cast did not."""
        # Go reads more spellings of indexes, such as 0x1.
        if _GO_NUMBER.fullmatch(name) and not (name.isdigit() and name[0] != "0"):
            return True
        items = name.split(",") if kind_of(new) is Kind.SET else [name]
        return not is_exact and any(
            item.casefold() in folded or not (is_ascii and item.isascii()) for item in items
        )

    def convert(text: str) -> str:
        try:
            name = binary_bytes(text, old).decode() if kind is Kind.BINARY else text
        except (ValueError, ImageError):
            return ""  # bytes that are not text are no label
        if may_be_label(name):
            refuse(new, _EXPECTED, text)
        return ""

    return convert


def refuses(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Compile the cast to `new`, JSON or VECTOR: it fails in every SQL mode."""
    del old
    return refusing(new, f"{kind_of(new).name} (TiDB refuses anything else in every SQL mode)")
