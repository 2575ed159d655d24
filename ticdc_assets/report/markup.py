"""HTML that is safe by the way it is made: texts are escaped unless they are `Markup`.

In: element names and attributes of ours, and texts from anywhere. Out: `Markup`. Nothing else
makes one but `raw`, which is for files of the package. Text is shown, never obeyed: names in any
script, with markup, quotes or bidirectional controls in them, stand as they are read.
"""

import html
import json
from typing import Any, TypeAlias

from ticdc_assets.report.texts import visible


class Markup(str):
    """HTML."""

    __slots__ = ()


Content: TypeAlias = "Markup | str | int | None"
"""What may stand in an element; None is nothing."""

_VOID = frozenset({"meta", "input", "br", "hr", "col"})


def raw(text: str) -> Markup:
    """Return text that is HTML already; never for a text from a message."""
    return Markup(text)


def escaped(content: Content) -> Markup:
    """Return content as HTML: markup as it is, anything else escaped."""
    if content is None:
        return Markup("")
    if isinstance(content, Markup):
        return content
    return Markup(html.escape(visible(str(content)), quote=True))


def joined(*contents: Content) -> Markup:
    """Return contents one after the other."""
    return Markup("".join(map(escaped, contents)))


def element(name: str, /, *contents: Content, **attributes: str | bool | None) -> Markup:
    """Return an element.

    Args:
        name: its name.
        contents: what is in it.
        attributes: `class_` is `class`, an underscore inside is a hyphen; True is an attribute
            without a value, None and False leave it out.
    """
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}"
        + ("" if value is True else f'="{html.escape(visible(str(value)), quote=True)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{joined(*contents)}</{name}>")


def name_of(*parts: str) -> Markup:
    """Return names with dots between them, each with its own direction of writing."""
    return Markup(".".join(element("bdi", part) for part in parts))


def json_block(identity: str, value: Any) -> Markup:
    """Return a script element that holds JSON and is never run."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    # In JSON these stand only inside of texts, where they may be written so.
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(f'<script type="application/json" id="{html.escape(identity)}">{text}</script>')


def plot_text(text: str) -> str:
    """Return text for a plot's label: plotly reads a little HTML there."""
    # Isolated, so that a name written from the right does not turn round what stands beside it.
    return f"\u2068{html.escape(visible(text), quote=False)}\u2069"
