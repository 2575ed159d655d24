r"""Bytes as text between double quotes of Go, as Go's `strconv.Quote` writes them.

In: text in which everything but printable UTF-8 is escaped, without the quotes around it. Out: the
bytes of a binary column. Open Protocol sends BINARY and VARBINARY in this way.

    escape          means                 escape          means
    \a \b \f \n     07 08 0c 0a           \xHH            one byte, two hexadecimal digits
    \r \t \v        0d 09 0b              \OOO            one byte, three octal digits, to \377
    \\ \"           the character         \uHHHH          one code point as UTF-8, no surrogate
                                          \UHHHHHHHH      the same, to \U0010ffff

Reading accepts all of them and any other character as itself, but for a quote and a line feed, as
Go's `strconv.Unquote` does. Go escapes (`escaped`) all but printable characters: those of Unicode's
categories L, M, N, P, S, and the space. Python's and Go's tables can be of different Unicode
versions; a character that only one of the two knows is then escaped by one and not by the other,
and reads back as the same bytes.

Plain text may be mistaken for quoted text. It is surely plain if it has something that Go never
writes (`is_quoted`): bare control characters, an escape where there is a shorter one or none,
upper-case digits, octal escapes. `unquoted_text` restores text that was mistaken.
"""

import re
from typing import Final

_ESCAPE: Final = re.compile(
    rb'\\(?:[abfnrtv\\"]|x([0-9a-fA-F]{2})|([0-3][0-7]{2})'
    rb'|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))|([\\"\n])'
)
_BYTES: Final = {
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
    b"\\": b"\\",
    b'"': b'"',
}
_LETTERS: Final = {value.decode(): f"\\{name.decode()}" for name, value in _BYTES.items()}
_MAX_CODE_POINT: Final = 0x10FFFF
_ESCAPED_BYTES: Final = range(0xDC80, 0xDD00)
"""Where Python's `surrogateescape` puts bytes that are not UTF-8."""


_WRITTEN: Final = re.compile(
    r"""(?: [^"\\\x00-\x1f\x7f] | \\ (?: [abfnrtv\\"]
    | x(?: 0[0-6ef] | 1[0-9a-f] | 7f | [89a-f][0-9a-f] )
    | u(?: 00[89a-f][0-9a-f] | 0[1-9a-f][0-9a-f]{2} | [1-9a-f][0-9a-f]{3} )
    | U00(?: 0[1-9a-f] | 10 )[0-9a-f]{4} ) )*+""",
    re.VERBOSE,
)
_UNQUOTED: Final = re.compile(r'["\\\x00-\x1f\x7f\udc80-\udcff]')


def is_quoted(text: str) -> bool:
    """Return whether Go may have written `text`, as far as that does not depend on Unicode."""
    return _WRITTEN.fullmatch(text) is not None


def unquoted_text(value: bytes) -> str:
    """Return the text for which `unquote` gives `value`, if `is_quoted` holds for it.

    A character above ASCII stays itself: the bytes do not say whether it was escaped.
    """
    return _UNQUOTED.sub(escaped, value.decode(errors="surrogateescape"))


def unquote(text: str) -> bytes:
    """Return the bytes that the quoted `text` means.

    Raises:
        ValueError: an escape is not one of Go's, or a quote or line feed is not escaped; or the
            text has lone surrogates.
    """
    written = text.encode()
    return _ESCAPE.sub(_unescape, written) if _ESCAPE.search(written) else written


def _unescape(match: re.Match[bytes]) -> bytes:
    byte, octal, short, long, stray = match.groups()
    if byte is not None:
        return bytes((int(byte, 16),))
    if octal is not None:
        return bytes((int(octal, 8),))
    if stray is not None:
        raise ValueError(f"{stray.decode()!r} is no escape of Go")
    if short is None and long is None:
        return _BYTES[match[0][1:]]
    code_point = int(short or long, 16)
    if code_point > _MAX_CODE_POINT or 0xD800 <= code_point <= 0xDFFF:
        raise ValueError(f"{match[0].decode()} is no code point")
    return chr(code_point).encode()


def escaped(match: re.Match[str]) -> str:
    """Return the character of `match` as Go writes it between quotes."""
    character = match[0]
    letter = _LETTERS.get(character)
    if letter is not None:
        return letter
    if character.isprintable():
        return character
    code_point = ord(character)
    if code_point in _ESCAPED_BYTES:
        return f"\\x{code_point - 0xDC00:02x}"
    if code_point < 0x20 or code_point == 0x7F:
        return f"\\x{code_point:02x}"
    return f"\\u{code_point:04x}" if code_point <= 0xFFFF else f"\\U{code_point:08x}"
