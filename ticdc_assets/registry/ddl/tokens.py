"""DDL text to tokens, and a cursor over them.

In: any text. Out: tokens (kind, start, end) without whitespace and comments, the partner of each
parenthesis, and `Cursor`, the reading head on which the grammar of `ddl.reader` is written.

The tokens are those of MySQL's and TiDB's lexers: a word consists of ASCII letters, digits, `_`,
`$` and every character from U+0080 on; `/*! */`, `/*!40101 */`, `/*T! */` and `/*T![feature] */`
are SQL and not comments; `--` opens a comment only before a blank. Whether a double-quoted piece is
a string or an identifier depends on the SQL mode of the session that ran the statement, which is
not transmitted: the grammar decides by what may come at its place.

What a backslash in a string means depends on who wrote the text, as its other words show:

    TiDB's parser, for TiCDC    itself (`Restore` in pkg/common/event/util.go of pingcap/ticdc,
                                `addSpecialComment` in cdc/owner/ddl_sink.go of pingcap/tiflow);
                                two mean one in a string after its charset (`ValueExpr.Restore` in
                                pkg/types/parser_driver of pingcap/tidb)
    SHOW CREATE TABLE           itself, except before 0, n and r (`OutputFormat` in
                                pkg/parser/format of pingcap/tidb)
    a client                    it escapes

If that leaves a quote open, the text is read in another of these ways that leaves none.

Time and memory are linear in the text: the expression below cannot backtrack into what it took
(possessive quantifiers), an unclosed quote or comment takes the rest of the text, and parentheses
are matched in one pass, so that skipping a group costs nothing and nesting needs no recursion.
"""

import re
from array import array
from collections.abc import Container
from functools import cache
from typing import Final, NamedTuple

from ticdc_assets.base.errors import shorten
from ticdc_assets.registry.ddl.statement import TableName

END: Final = 0
WORD: Final = 128
QUOTED: Final = 129
STRING: Final = 130
DOUBLE_QUOTED: Final = 131
NUMBER: Final = 132
HEX: Final = 133
BITS: Final = 134
BROKEN: Final = 135
OTHER: Final = 136

UNPARSED_LIMIT: Final = 200

# Only texts with a backslash need these, so they are compiled when first used.
_SHOWN_START: Final = r"CREATE TABLE `(?:[^`]|``)*+` \(\n  `"
_INTRODUCED: Final = r"_[A-Z0-9]++'"
_QUOTED_PIECE: Final = r"(?:[bx]'|('))(?:[^']|'')*+'|`(?:[^`]|``)*+`"
_AS_NAMED: Final = r"(?:COLLATE|=) \w+|/\*(?:T!\[[\w,]+\]| \w+ is not supported \*/)"
_OF_CLIENTS: Final = r"""(?<![0-9])[a-z]|["#\r\n\t]|(?:DEFAULT|IN|THAN)[ (]*+'"""

_OPEN: Final = ord("(")
_CLOSE: Final = ord(")")
_COMMA: Final = ord(",")
_SEMICOLON: Final = ord(";")

_IDENTIFIERS: Final = frozenset((WORD, QUOTED, DOUBLE_QUOTED))
_STRINGS: Final = frozenset((STRING, DOUBLE_QUOTED))

_GRAMMAR: Final = r"""
    ( [ \t\n\v\f\r]++ | \A\ufeff
    | (?: \# | --(?= [\x00-\x20] | \Z ) ) [^\n]*+
    | /\*(?! ! | T! ) (?: [^*]++ | \*(?!/) )*+ \*/ )           # 1 blank, comment
  | ( /\*! (?: [0-9]{5,6}+ )?+ | /\*T! (?: \[ [\w,\ \t-]*+ \] )?+ )  # 2 executable comment opens
  | ( \*/ )                                                    # 3 ... and closes
  | ( ` (?: [^`]++ | `` )*+ ` )                                # 4 quoted identifier
  | ( (?<= [W] \. | [`"] \. ) [W]++ )                          # 5 word after a dot, also digits
  | ( [xX] ' [0-9a-fA-F]*+ ' | 0 [xX] [0-9a-fA-F]++ (?! [W] ) ) # 6 hex
  | ( [bB] ' [01]*+ ' | 0b [01]++ (?! [W] ) )                  # 7 bits
  | ( [nN]?+ ' (?: SINGLE )*+ ' )                              # 8 string
  | ( " (?: DOUBLE )*+ " )                                     # 9 string or identifier
  | ( (?: [0-9]++ (?: \. [0-9]*+ )?+ | (?<! [W] | [`"] ) \. [0-9]++ )
      (?: [eE] [+-]?+ [0-9]++ )?+ (?! [W] ) )                  # 10 number
  | ( [W]++ )                                                  # 11 word
  | ( (?: /\* | [`'"] | [nN]' ) [\s\S]*+ )                     # 12 never closed
  | ( [\s\S] )                                                 # 13 anything else
"""


@cache
def _grammar(single: str, double: str) -> re.Pattern[str]:
    """Return the tokens of texts; made when first needed, as most commands read no DDL."""
    grammar = _GRAMMAR.replace("SINGLE", single).replace("DOUBLE", double)
    # Every character of a word, named by the others: a class up to U+10FFFF takes long to compile.
    return re.compile(grammar.replace("[W]", r"[^\x00-\#%-/:-@\[-^`{-\x7f]"), re.VERBOSE)


_WITH_ESCAPES: Final = (r"""[^'\\]++ | \\[\s\S] | ''""", r"""[^"\\]++ | \\[\s\S] | "" """)
_WITHOUT_ESCAPES: Final = (r"""[^']++ | ''""", r"""[^"]++ | "" """)

_BLANK, _EXECUTABLE, _EXECUTABLE_END, _NEVER_CLOSED, _ANYTHING = 1, 2, 3, 12, 13
_KINDS: Final = {
    4: QUOTED,
    5: WORD,
    6: HEX,
    7: BITS,
    8: STRING,
    9: DOUBLE_QUOTED,
    10: NUMBER,
    11: WORD,
}

_MEANINGS: Final = {
    "0": "\0",
    "b": "\b",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "Z": "\x1a",
    # Only patterns of LIKE give these two a meaning; elsewhere the backslash stays.
    "%": "\\%",
    "_": "\\_",
}


class _Writer(NamedTuple):
    """How one sort of writer quotes: what is in its strings and names, and what it escapes."""

    quoted: tuple[str, str]
    escape: str


_CLIENT: Final = _Writer(_WITH_ESCAPES, r"\\([\s\S])|''|\"\"")
_SHOW: Final = _Writer(_WITHOUT_ESCAPES, r"\\([0nr])|''|\"\"")
_PARSER: Final = _Writer(_WITHOUT_ESCAPES, r"(?!)()|''|\"\"")

_DOUBLED: Final = r"(?:[^\\]++|\\\\)*+"
"""A text whose backslashes were doubled."""


class Tokens:
    """The tokens of one text, in parallel arrays: a hostile megabyte stays a few megabytes."""

    __slots__ = ("ends", "kinds", "partners", "problem", "starts", "text", "writer")

    def __init__(self, text: str, writer: _Writer) -> None:
        self.text = text
        self.writer = writer
        self.kinds = bytearray()
        self.starts = array("q")
        self.ends = array("q")
        self.partners = array("q")
        self.problem: tuple[int, str] | None = None
        self._split()
        self._match()

    @property
    def broken(self) -> bool:
        """Whether a quote or comment is never closed."""
        return bool(self.kinds) and self.kinds[-1] == BROKEN

    def note(self, start: int, end: int) -> None:
        """Record the characters from `start` to `end` as not understood; the first piece stays."""
        if self.problem is None or start < self.problem[0]:
            self.problem = (start, self.text[start : min(end, start + UNPARSED_LIMIT)])

    def statements(self) -> list[tuple[int, int]]:
        """Return the token ranges between semicolons, empty ones left out."""
        ranges: list[tuple[int, int]] = []
        start = 0
        while True:
            end = self.kinds.find(_SEMICOLON, start)
            stop = len(self.kinds) if end < 0 else end
            if stop > start:
                ranges.append((start, stop))
            if end < 0:
                return ranges
            start = end + 1

    def _split(self) -> None:
        kinds, starts, ends, text = self.kinds, self.starts, self.ends, self.text
        opened: list[int] = []
        for match in _grammar(*self.writer.quoted).finditer(text):
            group = match.lastindex or _ANYTHING
            if group == _BLANK:
                continue
            start, end = match.span()
            if group == _ANYTHING:
                kind = ord(text[start])
                kind = kind if 0 < kind < WORD else OTHER
            elif group == _EXECUTABLE:
                opened.append(start)
                continue
            elif group == _EXECUTABLE_END:
                if opened:
                    opened.pop()
                    continue
                kind = OTHER
            else:
                kind = BROKEN if group == _NEVER_CLOSED else _KINDS[group]
            if kind == BROKEN:
                self.note(start, end)
            kinds.append(kind)
            starts.append(start)
            ends.append(end)
        if opened:
            self.note(opened[0], len(text))

    def _match(self) -> None:
        self.partners = array("q", bytes(8 * len(self.kinds)))
        opened: list[int] = []
        for number, kind in enumerate(self.kinds):
            if kind == _OPEN:
                opened.append(number)
            elif kind == _CLOSE and opened:
                self.partners[opened.pop()] = number
            elif kind == _SEMICOLON and opened:
                self._leave_open(opened, number)
        self._leave_open(opened, len(self.kinds))

    def _leave_open(self, opened: list[int], end: int) -> None:
        for number in opened:
            self.partners[number] = end
        opened.clear()


def tokenize(text: str) -> Tokens:
    """Return the tokens of `text`."""
    if "\\" not in text:
        return Tokens(text, _CLIENT)
    first = _writer_of(text)
    tokens = Tokens(text, first)
    if tokens.broken:
        other = Tokens(text, _PARSER if first is _CLIENT else _CLIENT)
        if not other.broken:
            return other
    return tokens


def _writer_of(text: str) -> _Writer:
    """Return who wrote a text, as far as it shows.

    The parser writes keywords in capitals, names in backquotes, and a charset before most strings,
    among them all defaults and bounds.
    """
    if re.match(_SHOWN_START, text):
        return _SHOW
    # A string leaves its quote.
    bare = re.sub(_AS_NAMED, "", re.sub(_QUOTED_PIECE, r"\1", text))
    is_parser = re.search(_INTRODUCED, text) or ("`" in text and not re.search(_OF_CLIENTS, bare))
    return _PARSER if is_parser else _CLIENT


_HIDDEN: Final = frozenset((STRING, DOUBLE_QUOTED, HEX, BITS, BROKEN))


def shown_sql(text: str, limit: int = 80) -> str:
    """Return DDL text for marks and errors: shortened, with `'…'` in place of its strings.

    What people read about a DDL ends up in logs and in Dagster's records. Words and names show what
    was not understood; comments, defaults and bounds may be private. The whole text is in
    `ddl_history`. A double-quoted name is replaced too, as it may be a string.
    """
    tokens, at = tokenize(text), 0
    pieces: list[str] = []
    for kind, start, end in zip(tokens.kinds, tokens.starts, tokens.ends, strict=True):
        if kind in _HIDDEN:
            pieces += [text[at:start], "'…'"]
            at = end
    return shorten("".join([*pieces, text[at:]]), limit)


class Cursor:
    """A reading head over a range of tokens.

    Every `take_...` method moves only if it finds its token. A cursor inside parentheses, from
    `take_group`, ends where they end.
    """

    __slots__ = ("at", "end", "tokens")

    def __init__(self, tokens: Tokens, at: int, end: int) -> None:
        self.tokens = tokens
        self.at = at
        self.end = end

    @property
    def done(self) -> bool:
        """Whether nothing is left."""
        return self.at >= self.end

    def kind(self, ahead: int = 0) -> int:
        """Return the kind of the token `ahead` of the head: a class or a character's code."""
        number = self.at + ahead
        return self.tokens.kinds[number] if number < self.end else END

    def raw(self, ahead: int = 0) -> str:
        """Return the token `ahead` of the head as written, "" after the end."""
        number = self.at + ahead
        if number >= self.end:
            return ""
        return self.tokens.text[self.tokens.starts[number] : self.tokens.ends[number]]

    def word(self, ahead: int = 0) -> str:
        """Return the unquoted word `ahead` of the head in upper case, "" if there is none."""
        if self.kind(ahead) != WORD:
            return ""
        raw = self.raw(ahead)
        # Only ASCII forms a keyword: upper() turns a dotless i into I.
        return raw.upper() if raw.isascii() else ""

    def is_name(self, ahead: int = 0) -> bool:
        """Whether the token `ahead` of the head can be an identifier."""
        return self.kind(ahead) in _IDENTIFIERS

    def is_char(self, char: str, ahead: int = 0) -> bool:
        """Whether the token `ahead` of the head is the character `char`."""
        return self.kind(ahead) == ord(char)

    def is_string(self, ahead: int = 0) -> bool:
        """Whether the token `ahead` of the head can be a string literal."""
        return self.kind(ahead) in _STRINGS

    def take(self, *words: str) -> bool:
        """Take `words` if they come next in this order."""
        for ahead, word in enumerate(words):
            if self.word(ahead) != word:
                return False
        self.at += len(words)
        return True

    def take_any(self, words: Container[str]) -> str:
        """Take one word of `words` and return it, or ""."""
        word = self.word()
        if word and word in words:
            self.at += 1
            return word
        return ""

    def take_char(self, char: str) -> bool:
        """Take the character `char`."""
        if self.kind() != ord(char):
            return False
        self.at += 1
        return True

    def take_name(self) -> str | None:
        """Take an identifier and return it without its quotes."""
        kind = self.kind()
        if kind not in _IDENTIFIERS:
            return None
        raw = self.raw()
        self.at += 1
        if kind == QUOTED:
            return raw[1:-1].replace("``", "`")
        if kind == DOUBLE_QUOTED:
            return raw[1:-1].replace('""', '"')
        return raw

    def take_column_name(self) -> str | None:
        """Take a column's name; both servers also accept `table.column` and drop the table."""
        name = self.take_name()
        while name is not None and self.is_char(".") and self.is_name(1):
            self.at += 1
            name = self.take_name()
        return name

    def take_table_name(self) -> TableName | None:
        """Take `table` or `database.table`."""
        first = self.take_name()
        if first is None:
            return None
        if self.is_char(".") and self.is_name(1):
            self.at += 1
            second = self.take_name()
            return None if second is None else TableName(database=first, table=second)
        return TableName(database=None, table=first)

    def take_string(self) -> str | None:
        """Take a string literal, with its charset introducer and the pieces that continue it."""
        has_charset = self.kind() == WORD and self.is_string(1) and self.raw().startswith("_")
        self.at += has_charset
        if not self.is_string():
            return None
        pieces: list[str] = []
        while self.is_string():
            pieces.append(self._unquoted(self.raw()))
            self.at += 1
        text = "".join(pieces)
        if has_charset and self.tokens.writer is _PARSER and re.fullmatch(_DOUBLED, text):
            return text.replace("\\\\", "\\")
        return text

    def take_integer(self) -> int | None:
        """Take a number without sign, fraction and exponent that fits 63 bits."""
        raw = self.raw()
        if self.kind() != NUMBER or not raw.isdecimal() or len(raw) > 18:
            return None
        self.at += 1
        return int(raw)

    def take_group(self) -> "Cursor | None":
        """Take a parenthesised group and return a cursor over its inside."""
        if self.kind() != _OPEN:
            return None
        start = self.at
        stop = min(self.tokens.partners[start], self.end)
        if stop == self.end:
            self.tokens.note(self.tokens.starts[start], len(self.tokens.text))
        self.at = min(stop + 1, self.end)
        return Cursor(self.tokens, start + 1, stop)

    def skip_item(self) -> None:
        """Go to the next comma outside parentheses, or to the end."""
        kinds, partners = self.tokens.kinds, self.tokens.partners
        while self.at < self.end:
            kind = kinds[self.at]
            if kind == _COMMA:
                return
            self.at = partners[self.at] + 1 if kind == _OPEN else self.at + 1
        self.at = min(self.at, self.end)

    def skip_token(self) -> None:
        """Go past one token, or past a whole group."""
        if self.take_group() is None:
            self.at = min(self.at + 1, self.end)

    def text(self, start: int | None = None) -> str:
        """Return the source from token `start` to the head, or everything that is left if None."""
        first, last = (self.at, self.end) if start is None else (start, self.at)
        if first >= last:
            return ""
        return self.tokens.text[self.tokens.starts[first] : self.tokens.ends[last - 1]]

    def unexpected(self) -> None:
        """Note the next piece as not understood and go to the next comma, at least one token."""
        start = self.at
        self.skip_item()
        if self.at == start:
            self.at = min(start + 1, self.end)
        self._note(start, self.at)

    def missing(self) -> None:
        """Note that something is missing here: the rest of the item, or the place where it ends."""
        if self.done or self.is_char(","):
            self._note(self.at, self.at)
        else:
            self.unexpected()

    def expect_done(self) -> None:
        """Note everything that is left as not understood."""
        if not self.done:
            self._note(self.at, self.end)
            self.at = self.end

    def _note(self, first: int, stop: int) -> None:
        tokens = self.tokens
        if first < len(tokens.starts):
            start = tokens.starts[first]
            tokens.note(start, tokens.ends[stop - 1] if stop > first else start)
        else:
            tokens.note(len(tokens.text), len(tokens.text))

    def _unquoted(self, raw: str) -> str:
        quote = raw[-1]
        inner = raw[raw.index(quote) + 1 : -1]

        def unescape(match: re.Match[str]) -> str:
            escaped = match.group(1)
            if escaped is not None:
                return _MEANINGS.get(escaped, escaped)
            # A doubled quote of the other sort is two characters.
            return quote if match.group(0)[0] == quote else match.group(0)

        return re.sub(self.tokens.writer.escape, unescape, inner)
