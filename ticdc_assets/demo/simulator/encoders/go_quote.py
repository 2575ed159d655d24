"""Bytes as text between double quotes of Go: `wire.go_quote` backwards."""

import re
from typing import Final

from ticdc_assets.wire.go_quote import escaped

# Everything but the letters, the digits and the most usual signs is looked at.
_UNUSUAL: Final = re.compile(r"[^ !#-\[\]-~]")


def quote(value: bytes) -> str:
    """Return `value` as Go's `strconv.Quote` writes it, without the quotes."""
    return _UNUSUAL.sub(escaped, value.decode(errors="surrogateescape"))
