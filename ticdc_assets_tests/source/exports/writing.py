r"""An independent writer of what Dumpling writes, value by value, for tests of its options.

After Dumpling's documentation and source: numbers stand bare; text and bytes stand in quotes, in
which backslashes escape (`\0`, `\n`, `\r`, `\\` and the quote) or quotes are doubled; NULL is the
text for it, bare. In SQL bytes are hexadecimal literals.
"""

from base64 import b64encode
from collections.abc import Sequence

from ticdc_assets.source.exports.dialect import BinaryText, CsvDialect

Value = int | str | bytes | None


def csv_row(values: Sequence[Value], dialect: CsvDialect) -> bytes:
    fields = [csv_field(value, dialect) for value in values]
    return dialect.separator.encode().join(fields) + dialect.terminator.encode()


def csv_field(value: Value, dialect: CsvDialect) -> bytes:
    if value is None:
        return dialect.null.encode()
    if isinstance(value, int):
        return str(value).encode()
    raw = value.encode() if isinstance(value, str) else _bytes(value, dialect.binary)
    quote = dialect.quote.encode()
    if dialect.backslash:
        special = quote[:1] or dialect.separator.encode()[:1]
        escaped = b""
        for byte in raw:
            one = bytes([byte])
            named = {b"\0": b"0", b"\r": b"r", b"\n": b"n", b"\\": b"\\", special: special}
            escaped += b"\\" + named[one] if one in named else one
        raw = escaped
    elif quote:
        raw = raw.replace(quote, quote * 2)
    return quote + raw + quote


def _bytes(value: bytes, binary: BinaryText) -> bytes:
    if binary is BinaryText.HEX:
        return value.hex().encode()
    return b64encode(value) if binary is BinaryText.BASE64 else value


def sql_row(values: Sequence[Value], *, backslash: bool) -> bytes:
    return b"(" + b",".join(sql_value(value, backslash=backslash) for value in values) + b")"


def sql_value(value: Value, *, backslash: bool) -> bytes:
    if value is None:
        return b"NULL"
    if isinstance(value, int):
        return str(value).encode()
    if isinstance(value, bytes):
        return f"x'{value.hex()}'".encode()
    raw = value.encode()
    if not backslash:
        return b"'" + raw.replace(b"'", b"''") + b"'"
    names = {0: b"0", 10: b"n", 13: b"r", 92: b"\\", 39: b"'", 34: b'"', 26: b"Z"}
    return b"'" + b"".join(b"\\" + names[b] if b in names else bytes([b]) for b in raw) + b"'"
