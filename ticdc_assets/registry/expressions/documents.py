"""JSON of expressions.

In: terms of JSON documents, and paths without wildcards. Out: terms of the values at the paths.
"""

import re
from collections.abc import Sequence
from typing import Any, Final, cast

from ticdc_assets.base.errors import shorten
from ticdc_assets.model.values import shapes
from ticdc_assets.model.values.json_texts import read_json, write_json
from ticdc_assets.registry.expressions.numbers import exact
from ticdc_assets.registry.expressions.terms import (
    Functions,
    JsonTerm,
    Term,
    TextTerm,
    literal_text,
    mapped,
    refused,
)
from ticdc_assets.registry.expressions.texts import DEFAULT_COLLATION

_PATH: Final = re.compile(
    r'\s*(?:\.\s*(?:([A-Za-z_$][A-Za-z0-9_$]*)|"([^"\\]*)")|\[\s*([0-9]+)\s*\])'
)


def _path_of(term: Term, what: str) -> tuple[str | int, ...]:
    """Return the steps of a path without wildcards, as `$.a[1]."b c"`."""
    text = literal_text(term, what).strip()
    if not text.startswith("$"):
        raise refused(f"{what} with such a path")
    at = 1
    steps: list[str | int] = []
    while at < len(text):
        piece = _PATH.match(text, at)
        if piece is None:
            raise refused(f"{what} with the path {shorten(text)}")
        at = piece.end()
        name = piece[1] if piece[1] is not None else piece[2]
        steps.append(name if name is not None else int(piece[3]))
    return tuple(steps)


_NOTHING: Final = object()


def _step(value: Any, step: str | int) -> Any:
    if isinstance(step, str):
        return (
            cast("dict[str, Any]", value).get(step, _NOTHING)
            if isinstance(value, dict)
            else _NOTHING
        )
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return items[step] if step < len(items) else _NOTHING
    # A value that is not an array counts as an array of itself.
    return value if step == 0 else _NOTHING


def _read(text: str) -> Any:
    try:
        return read_json(text)
    except ValueError:
        raise refused("such JSON") from None


def _json_term(term: Term, what: str) -> JsonTerm:
    if isinstance(term, JsonTerm):
        return term
    if isinstance(term, TextTerm) and term.literal is None:
        # Text that is not JSON is an error in TiDB, and no such row was stored.
        return JsonTerm(mapped(term.evaluate, lambda text: write_json(_read(text))))
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

    return JsonTerm(mapped(document, extract))


def json_unquote(name: str, arguments: Sequence[Term]) -> Term:
    """Return the term of `JSON_UNQUOTE(value)`: a JSON text as it is, other JSON as printed."""
    if not isinstance(arguments[0], JsonTerm):
        raise refused(f"{name} of what is no JSON")

    def unquote(text: str) -> str:
        value = _read(text)
        return value if isinstance(value, str) else shapes.spaced_json(text)

    return TextTerm(mapped(arguments[0].evaluate, unquote), DEFAULT_COLLATION)


def _json_length(name: str, arguments: Sequence[Term]) -> Term:
    document = _json_term(arguments[0], name).evaluate

    def length(text: str) -> int:
        value = _read(text)
        return len(cast("list[Any]", value)) if isinstance(value, dict | list) else 1

    return exact(mapped(document, length), 0)


JSON_FUNCTIONS: Final[Functions] = {
    "JSON_EXTRACT": (2, 2, json_extract),
    "JSON_UNQUOTE": (1, 1, json_unquote),
    "JSON_LENGTH": (1, 1, _json_length),
}
"""Functions of JSON."""
