"""The text of a DDL as the new TiCDC sends it: parsed, and written again by TiDB's parser.

In: a statement as the user wrote it. Out: the same statement with backquoted names, keywords in
upper case, `_UTF8MB4'x'` for text, and no comments; names are qualified as far as the user did. A
statement that cannot be parsed here stays as it is, as TiCDC sends one that TiDB's parser refuses.
The same text gives the same result, and a result gives itself.

The grammar (`_RULES`) is the text that TiDB writes, with rules in angle brackets. If an alternative
of a rule does not fit, the next one is tried:

    <name>  <name, >    a rule; a list of it, with what is written between two items
    <?IF EXISTS >       read if it is there, and written then
    <+COLUMN >          read if it is there, and always written
    <-ASC>              read if it is there, and never written
    <KEY|INDEX:INDEX>   one of these is read, and what is after the colon is written

Source: `transformDDLJobQuery` in pingcap/ticdc logservice/schemastore/utils.go, for its flags, and
the `Restore` methods of pingcap/tidb pkg/parser/ast/ddl.go.

Not handled: what the stand-in's statements do not have (foreign keys, CHECK, subpartitions, queries
but a list of columns of one table, other options of tables).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Final, NamedTuple

from ticdc_assets.demo.simulator.columns import quoted

_TOKEN: Final = re.compile(
    r"(?P<space>\s+|--[^\n]*|#[^\n]*)"
    r"|/\*(?P<comment>.*?)\*/"
    r"|(?P<bits>[bB]'[01]*'|[xX]'[0-9a-fA-F]*'|0x[0-9a-fA-F]+)"
    r"|(?P<text>(?:_[A-Za-z0-9]+\s*)?(?:'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"))"
    r"|`(?P<name>(?:[^`]|``)+)`"
    r"|(?P<number>[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
    r"|(?P<word>[\w$]+)"
    r"|(?P<sign>.)",
    re.DOTALL,
)
_RUN_COMMENT: Final = re.compile(r"(?:T!(?:\[[a-z0-9_,]*\])?|![0-9]*)(?P<body>.*)", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)|''|\"\"", re.DOTALL)
_MEANINGS: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a"}

_TYPES: Final[Mapping[str, str]] = {
    "INTEGER": "INT",
    "NUMERIC": "DECIMAL",
    "DEC": "DECIMAL",
    "REAL": "DOUBLE",
    "BOOL": "TINYINT(1)",
    "BOOLEAN": "TINYINT(1)",
    "BIT": "BIT(1)",
}
"""Types without a size that TiDB's parser spells otherwise."""

_MOMENTS: Final = frozenset({"CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP"})
"""Functions that are called without parentheses too."""

_RESERVED: Final = frozenset(
    {"PRIMARY", "UNIQUE", "KEY", "INDEX", "CONSTRAINT", "COLUMN", "PARTITION"}
)
"""Words that are names in quotes only, where something else may be meant."""

_PIECE: Final = re.compile(
    r"<(?P<rule>[a-z_]+)(?P<separator>,? ?)>"
    r"|<(?P<sign>[?+-])(?P<optional>[^>]*)>"
    r"|<(?P<read>[^<>:]*):(?P<written>[^>]*)>"
    r"|(?P<plain>[^<]+)"
)
"""A piece of an alternative."""


class _Token(NamedTuple):
    """One token: its kind, its meaning (of a text, its characters), and its spelling."""

    kind: str
    value: str
    spelled: str


class _UnknownError(Exception):
    """The statement has something that is not handled here."""


def restored(sql: str) -> str:
    """Return a statement as TiDB's parser writes it, or `sql` itself if it cannot be parsed."""
    try:
        return _Statement(list(_tokens(sql))).restored()
    except _UnknownError:
        return sql


def _tokens(sql: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(sql):
        kind = match.lastgroup or ""
        value = match[kind]
        if kind == "comment":
            run = _RUN_COMMENT.fullmatch(value)
            if run is not None:
                yield from _tokens(run["body"])
        elif kind == "text":
            start = min(at for at in (value.find("'"), value.find('"')) if at >= 0)
            yield _Token(kind, _ESCAPED.sub(_meaning, value[start + 1 : -1]), value)
        elif kind == "name":
            yield _Token(kind, value.replace("``", "`"), match[0])
        elif kind == "word":
            yield _Token(kind, value.upper(), value)
        elif kind != "space":
            yield _Token(kind, value, value)


@cache
def _words(text: str) -> tuple[str, ...]:
    """Return the words and signs of a text of the grammar."""
    return tuple(token.value for token in _tokens(text))


def _meaning(match: re.Match[str]) -> str:
    character = match[1]
    return match[0][0] if character is None else _MEANINGS.get(character, character)


def _label(text: str) -> str:
    """Return a text without charset; TiDB's parser does not escape backslashes in it."""
    return "'" + text.replace("'", "''") + "'"


def _literal(text: str) -> str:
    return "_UTF8MB4" + _label(text.replace("\\", "\\\\"))


class _Statement:
    """A cursor over the tokens of one statement, which writes each part as it reads it."""

    def __init__(self, tokens: list[_Token]) -> None:
        while tokens and tokens[-1].value == ";" and tokens[-1].kind == "sign":
            tokens.pop()
        self._tokens = [*tokens, _Token("end", "", "")]
        self._at = 0

    def restored(self) -> str:
        """Return the statement's text."""
        text = self._rule("statement")
        self._next("end")
        return text

    # The grammar

    def _rule(self, name: str) -> str:
        rule = _RULES[name]
        if callable(rule):
            return rule(self)
        start = self._at
        for alternative in rule:
            try:
                return "".join(map(self._piece, _PIECE.finditer(alternative)))
            except _UnknownError:
                self._at = start
        raise _UnknownError

    def _piece(self, piece: re.Match[str]) -> str:
        """Read one piece of an alternative and return what is written of it."""
        if piece["rule"] is not None:
            rule, separator = piece["rule"], piece["separator"]
            return self._list(rule, separator) if separator else self._rule(rule)
        if piece["plain"] is not None:
            self._require(piece["plain"])
            return piece["plain"]
        if piece["read"] is not None:
            if not any(map(self._takes, piece["read"].split("|"))):
                raise _UnknownError
            return piece["written"]
        is_there = self._takes(piece["optional"])
        is_written = piece["sign"] == "+" or (piece["sign"] == "?" and is_there)
        return piece["optional"] if is_written else ""

    def _list(self, rule: str, separator: str) -> str:
        items = [self._rule(rule)]
        while self._takes(","):
            items.append(self._rule(rule))
        return separator.join(items)

    # Tokens

    @property
    def _token(self) -> _Token:
        return self._tokens[self._at]

    def _is(self, text: str) -> bool:
        words = _words(text)
        ahead = self._tokens[self._at : self._at + len(words)]
        return words == tuple(token.value for token in ahead if token.kind in ("word", "sign"))

    def _takes(self, text: str) -> bool:
        is_next = self._is(text)
        self._at += len(_words(text)) if is_next else 0
        return is_next

    def _require(self, text: str) -> None:
        if not self._takes(text):
            raise _UnknownError

    def _next(self, *kinds: str) -> _Token:
        token = self._token
        if token.kind not in kinds:
            raise _UnknownError
        self._at += 1
        return token

    def number(self) -> str:
        return self._next("number").value

    def keyword(self) -> str:
        return self._next("word").value

    def plain_name(self) -> str:
        token = self._next("name", "word")
        if token.kind == "word" and token.value in _RESERVED:
            raise _UnknownError
        return token.value if token.kind == "name" else token.spelled

    def upper_name(self) -> str:
        return self.plain_name().upper()

    def name(self) -> str:
        return quoted(self.plain_name())

    def label(self) -> str:
        return _label(self._next("text").value)

    def literal(self) -> str:
        return _literal(self._next("text").value)

    def option_value(self) -> str:
        token = self._next("text", "word", "number")
        return _label(token.value) if token.kind == "text" else token.spelled

    # Rules that are not a text with rules in it

    def index(self) -> str:
        name = ""
        if self._takes("CONSTRAINT") and not self._is("PRIMARY") and not self._is("UNIQUE"):
            name = self.name()
        if self._is("PRIMARY"):
            return self._rule("primary_key")
        kind = self._rule("index_kind")
        if not self._is("("):
            name = self.name()
        self._require("(")
        parts = self._list("key_part", ", ")
        self._require(")")
        return f"{kind}{name and ' ' + name}({parts})"

    def type(self) -> str:
        word = self.keyword()
        if word == "DOUBLE":
            self._takes("PRECISION")
        text = _TYPES.get(word, word)
        if self._takes("("):
            sizes = self._list("label" if word in ("ENUM", "SET") else "number", ",")
            self._require(")")
            text = f"{text.partition('(')[0]}({sizes})"
        unsigned = zerofill = False
        while self._token.kind == "word":
            if self._takes("ZEROFILL"):
                unsigned = zerofill = True
            elif self._takes("UNSIGNED"):
                unsigned = True
            elif not self._takes("SIGNED"):
                break
        text += " UNSIGNED" * unsigned + " ZEROFILL" * zerofill
        return text + self._rule("type_charset")

    def expression(self) -> str:
        text = self._operand()
        while self._token.kind == "sign" and self._token.value in "+-*/%":
            text += self._next("sign").value + self._operand()
        return text

    def _operand(self) -> str:
        if self._takes("-"):
            return "-" + self._operand()
        if self._is("("):
            return self._rule("in_parentheses")
        token = self._next("text", "number", "bits", "word", "name")
        if token.kind == "text":
            return _literal(token.value)
        if token.kind == "bits":
            return _bits(token.value)
        if token.kind == "number":
            return token.value
        if token.kind == "name":
            return quoted(token.value)
        if self._takes("()"):
            return f"{token.value}()"
        if self._is("("):
            return f"{token.value}{self._rule('in_parentheses')}"
        if token.value in ("NULL", "TRUE", "FALSE", "MAXVALUE"):
            return token.value
        return f"{token.value}()" if token.value in _MOMENTS else quoted(token.spelled)


def _bits(spelled: str) -> str:
    if spelled[0] in "bB":
        digits = spelled[2:-1].lstrip("0")
        return f"b'{digits or '0'}'"
    digits = spelled[2:-1] if spelled[0] in "xX" else spelled[2:]
    return f"x'{'0' * (len(digits) % 2)}{digits.lower()}'"


_RULES: Final[Mapping[str, tuple[str, ...] | Callable[[_Statement], str]]] = {
    "number": _Statement.number,
    "keyword": _Statement.keyword,
    "plain_name": _Statement.plain_name,
    "upper_name": _Statement.upper_name,
    "name": _Statement.name,
    "label": _Statement.label,
    "literal": _Statement.literal,
    "option_value": _Statement.option_value,
    "index": _Statement.index,
    "type": _Statement.type,
    "expression": _Statement.expression,
    "in_parentheses": ("(<expression, >)",),
    "path": ("<name>.<name>", "<name>"),
    "statement": (
        "CREATE <DATABASE|SCHEMA:DATABASE> <?IF NOT EXISTS ><name><charsets>",
        "ALTER <DATABASE|SCHEMA:DATABASE> <name><charsets>",
        "DROP <DATABASE|SCHEMA:DATABASE> <?IF EXISTS ><name>",
        "CREATE TABLE <?IF NOT EXISTS ><path> LIKE <path>",
        "CREATE TABLE <?IF NOT EXISTS ><path> (<element,>)<table_options><divided>",
        "CREATE INDEX <name> ON <path> (<key_part, >)",
        "CREATE UNIQUE INDEX <name> ON <path> (<key_part, >)",
        "DROP INDEX <name> ON <path>",
        "CREATE <+ALGORITHM = UNDEFINED DEFINER = CURRENT_USER SQL SECURITY DEFINER >VIEW <path> "
        "AS SELECT <name,> FROM <path>",
        "DROP TABLE <?IF EXISTS ><path, >",
        "DROP VIEW <?IF EXISTS ><path, >",
        "TRUNCATE <+TABLE ><path>",
        "RENAME TABLE <rename, >",
        "RECOVER TABLE <path>",
        "FLASHBACK TABLE <path> TO <name>",
        "FLASHBACK TABLE <path>",
        "ALTER TABLE <path> <change, >",
    ),
    "rename": ("<path> TO <path>",),
    "charsets": ("<charset><charsets>", ""),
    "charset": (
        "<-DEFAULT><CHARSET|CHARACTER SET: CHARACTER SET = ><-=><plain_name>",
        "<-DEFAULT> COLLATE<+ = ><plain_name>",
    ),
    # Columns and indexes
    "element": ("<index>", "<column>"),
    "primary_key": ("PRIMARY KEY(<key_part, >)<clustered>",),
    "index_kind": ("<UNIQUE KEY|UNIQUE INDEX|UNIQUE:UNIQUE>", "<KEY|INDEX:INDEX>"),
    "key_part": ("<name>(<number>)<-ASC><? DESC>", "<name><-ASC><? DESC>"),
    "clustered": (
        " /*T![clustered_index] CLUSTERED */",
        " /*T![clustered_index] NONCLUSTERED */",
        "",
    ),
    "column": ("<name> <type><column_options>",),
    "type_charset": ("<CHARSET|CHARACTER SET: CHARACTER SET ><upper_name>", ""),
    "column_options": (" <column_option><column_options>", ""),
    "column_option": (
        "NOT NULL",
        "NULL",
        "<PRIMARY KEY|KEY:PRIMARY KEY><clustered>",
        "<UNIQUE KEY|UNIQUE:UNIQUE KEY>",
        "AUTO_INCREMENT",
        "DEFAULT <expression>",
        "ON UPDATE <expression>",
        "COMMENT <literal>",
        "COLLATE <plain_name>",
        "<GENERATED ALWAYS AS|AS:GENERATED ALWAYS AS>(<expression, >) STORED",
        "<GENERATED ALWAYS AS|AS:GENERATED ALWAYS AS>(<expression, >)<+ VIRTUAL>",
    ),
    # Options and partitions of tables
    "table_options": (" <table_option><table_options>", ""),
    "table_option": (
        "<-DEFAULT><CHARSET|CHARACTER SET:DEFAULT CHARACTER SET = ><-=><upper_name>",
        "<-DEFAULT><COLLATE:DEFAULT COLLATE = ><-=><upper_name>",
        "<-DEFAULT>COMMENT<+ = ><option_value>",
        "<-DEFAULT>ENGINE<+ = ><option_value>",
        "<-DEFAULT>AUTO_INCREMENT<+ = ><option_value>",
    ),
    "divided": (" <partition_by>", ""),
    "partition_by": (
        "PARTITION BY <keyword> COLUMNS (<name,>)<partitions>",
        "PARTITION BY <keyword> (<expression, >)<partitions>",
    ),
    "partitions": (" PARTITIONS <number>", " (<partition,>)", ""),
    "partition": (
        "PARTITION <name> VALUES LESS THAN <MAXVALUE:(MAXVALUE)>",
        "PARTITION <name> VALUES LESS THAN (<expression, >)",
        "PARTITION <name> VALUES IN (<expression, >)",
    ),
    # Changes of tables
    "change": (
        "ADD PARTITION PARTITIONS <number>",
        "ADD PARTITION (<partition, >)",
        "ADD <index>",
        "ADD <+COLUMN >(<column, >)",
        "ADD <+COLUMN ><column><place>",
        "DROP PRIMARY KEY",
        "DROP <INDEX|KEY:INDEX> <name>",
        "DROP PARTITION <name,>",
        "DROP <+COLUMN ><name>",
        "MODIFY <+COLUMN ><column><place>",
        "CHANGE <+COLUMN ><name> <column><place>",
        "ALTER <+COLUMN ><name> DROP DEFAULT",
        "ALTER <+COLUMN ><name> SET DEFAULT <expression>",
        "RENAME COLUMN <name> TO <name>",
        "RENAME INDEX <name> TO <name>",
        "RENAME <-TO><+AS ><path>",
        "TRUNCATE PARTITION ALL",
        "TRUNCATE PARTITION <name,>",
        "REORGANIZE PARTITION <name,> INTO (<partition, >)",
        "COALESCE PARTITION <number>",
        "REMOVE PARTITIONING",
        "EXCHANGE PARTITION <name> WITH TABLE <path> WITHOUT VALIDATION",
        "EXCHANGE PARTITION <name> WITH TABLE <path><-WITH VALIDATION>",
        "<partition_by>",
        "<table_option>",
    ),
    "place": (" FIRST", " AFTER <name>", ""),
}
"""What is read and written, by its name."""
