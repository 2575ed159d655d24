"""JSON as Go's `encoding/json` writes it, byte for byte, and as TiCDC's other libraries do.

In: plain Python values, members in the order of their dict. Out: the bytes, with Go's HTML-safe
escaping. `quote` writes bytes as Go's `strconv.Quote` does.
"""

import re
from typing import Any, Final

import orjson

from ticdc_assets.wire.open.go_quote import escaped

# encoding/json with SetEscapeHTML(true), its default. \b and \f have had their short form since
# Go 1.22, and orjson writes them so too; DEL is no control character for either.
_GO_ESCAPES: Final = re.compile("[<>&\u2028\u2029]")

_SHORT_ESCAPE: Final = re.compile(rb"\\[^u]")
_LONG_ESCAPES: Final = {b"\\b": b"\\u0008", b"\\f": b"\\u000c"}

# Everything but the letters, the digits and the most usual signs may need an escape.
_UNUSUAL: Final = re.compile(r"[^ !#-\[\]-~]")


def dumps(value: Any) -> bytes:
    """Return `value` as `encoding/json` writes it."""
    text = orjson.dumps(value).decode()
    # All five can only be inside strings, so replacing them in the whole text is safe.
    return _GO_ESCAPES.sub(_go_escape, text).encode()


def with_long_escapes(text: bytes) -> bytes:
    """Return JSON as the libraries write it that have no short form of backspace and form feed."""
    return _SHORT_ESCAPE.sub(lambda escape: _LONG_ESCAPES.get(escape[0], escape[0]), text)


def replaced(content: bytes) -> str:
    """Return bytes as the text that Go's encoder makes of them: U+FFFD for what is no UTF-8."""
    return "".join(
        "\ufffd" if "\udc80" <= character <= "\udcff" else character
        for character in content.decode(errors="surrogateescape")
    )


def quote(value: bytes) -> str:
    """Return `value` as Go's `strconv.Quote` writes it, without the quotes."""
    return _UNUSUAL.sub(escaped, value.decode(errors="surrogateescape"))


def without_empty(**fields: Any) -> dict[str, Any]:
    """Return the fields that `omitempty` does not leave out."""
    return {name: value for name, value in fields.items() if value}


def _go_escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
