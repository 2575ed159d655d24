"""The text of a DDL as the new TiCDC sends it: parsed, and written again by TiDB's parser.

In: a statement as the user wrote it. Out: the same statement with backquoted names, keywords in
upper case, `_UTF8MB4'x'` for text, and no comments; names are qualified as far as the user did. A
statement that cannot be parsed here stays as it is, as TiCDC sends one that TiDB's parser refuses.
The same text gives the same result, and a result gives itself.

Source: `transformDDLJobQuery` in pingcap/ticdc logservice/schemastore/utils.go, for its flags, and
the `Restore` methods of pingcap/tidb pkg/parser/ast/ddl.go.

Not handled: what the stand-in's statements do not have (foreign keys, CHECK, subpartitions, queries
but a list of columns of one table, options of tables that `_OPTIONS` does not name).
"""

import re
from collections.abc import Callable, Iterator, Mapping
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

_OPTIONS: Final = frozenset({"COMMENT", "ENGINE", "AUTO_INCREMENT"})
_INDEXES: Final = frozenset({"PRIMARY", "UNIQUE", "KEY", "INDEX", "CONSTRAINT"})


class _Token(NamedTuple):
    """One token: its kind, its meaning (of a text, what it stands for), and its spelling."""

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
        for words, write in _STATEMENTS.items():
            if self._takes(*words.split()):
                text = write(self)
                if self._token.kind != "end":
                    raise _UnknownError
                return text
        raise _UnknownError

    # Tokens

    @property
    def _token(self) -> _Token:
        return self._tokens[self._at]

    def _is(self, *words: str) -> bool:
        ahead = self._tokens[self._at : self._at + len(words)]
        return [token.value for token in ahead if token.kind in ("word", "sign")] == list(words)

    def _takes(self, *words: str) -> bool:
        found = self._is(*words)
        self._at += len(words) if found else 0
        return found

    def _require(self, *words: str) -> None:
        if not self._takes(*words):
            raise _UnknownError

    def _next(self, *kinds: str) -> _Token:
        token = self._token
        if token.kind not in kinds:
            raise _UnknownError
        self._at += 1
        return token

    def _plain_name(self) -> str:
        token = self._next("name", "word")
        return token.value if token.kind == "name" else token.spelled

    def _name(self) -> str:
        return quoted(self._plain_name())

    def _path(self) -> str:
        path = self._name()
        return f"{path}.{self._name()}" if self._takes(".") else path

    def _listed(self, read: Callable[[], str], separator: str) -> str:
        """Return what is between parentheses, items joined by `separator`."""
        self._require("(")
        items = self._items(read, separator)
        self._require(")")
        return items

    def _items(self, read: Callable[[], str], separator: str) -> str:
        items = [read()]
        while self._takes(","):
            items.append(read())
        return separator.join(items)

    def _if(self, *words: str) -> str:
        return "IF " + " ".join(words) + " " if self._takes("IF", *words) else ""

    # Statements

    def create_database(self) -> str:
        return f"CREATE DATABASE {self._if('NOT', 'EXISTS')}{self._name()}{self._charsets()}"

    def alter_database(self) -> str:
        return f"ALTER DATABASE {self._name()}{self._charsets()}"

    def drop_database(self) -> str:
        return f"DROP DATABASE {self._if('EXISTS')}{self._name()}"

    def _charsets(self) -> str:
        text = ""
        while self._token.kind != "end":
            self._takes("DEFAULT")
            if self._takes("CHARSET") or self._takes("CHARACTER", "SET"):
                kind = "CHARACTER SET"
            else:
                self._require("COLLATE")
                kind = "COLLATE"
            self._takes("=")
            text += f" {kind} = {self._plain_name()}"
        return text

    def create_table(self) -> str:
        head = f"CREATE TABLE {self._if('NOT', 'EXISTS')}{self._path()}"
        if self._takes("LIKE"):
            return f"{head} LIKE {self._path()}"
        head += f" ({self._listed(self._element, ',')})"
        options = ""
        while self._token.kind != "end" and not self._is("PARTITION"):
            options += " " + self._table_option()
        return head + options + (f" {self._partition_by()}" if self._takes("PARTITION") else "")

    def create_index(self) -> str:
        return self._create_index("INDEX")

    def create_unique_index(self) -> str:
        return self._create_index("UNIQUE INDEX")

    def _create_index(self, kind: str) -> str:
        name = self._name()
        self._require("ON")
        return f"CREATE {kind} {name} ON {self._path()} ({self._listed(self._key_part, ', ')})"

    def drop_index(self) -> str:
        name = self._name()
        self._require("ON")
        return f"DROP INDEX {name} ON {self._path()}"

    def create_view(self) -> str:
        path = self._path()
        self._require("AS", "SELECT")
        columns = self._items(self._name, ",")
        self._require("FROM")
        return (
            "CREATE ALGORITHM = UNDEFINED DEFINER = CURRENT_USER SQL SECURITY DEFINER VIEW "
            f"{path} AS SELECT {columns} FROM {self._path()}"
        )

    def drop_table(self) -> str:
        return f"DROP TABLE {self._if('EXISTS')}{self._items(self._path, ', ')}"

    def drop_view(self) -> str:
        return f"DROP VIEW {self._if('EXISTS')}{self._items(self._path, ', ')}"

    def truncate_table(self) -> str:
        self._takes("TABLE")
        return f"TRUNCATE TABLE {self._path()}"

    def rename_table(self) -> str:
        return f"RENAME TABLE {self._items(self._rename, ', ')}"

    def _rename(self) -> str:
        path = self._path()
        self._require("TO")
        return f"{path} TO {self._path()}"

    def recover_table(self) -> str:
        return f"RECOVER TABLE {self._path()}"

    def flashback_table(self) -> str:
        path = self._path()
        return f"FLASHBACK TABLE {path}" + (f" TO {self._name()}" if self._takes("TO") else "")

    def alter_table(self) -> str:
        return f"ALTER TABLE {self._path()} {self._items(self._change, ', ')}"

    # Columns and indexes

    def _element(self) -> str:
        is_index = self._token.kind == "word" and self._token.value in _INDEXES
        return self._index() if is_index else self._column()

    def _index(self) -> str:
        name = ""
        if self._takes("CONSTRAINT") and not self._is("PRIMARY") and not self._is("UNIQUE"):
            name = self._name()
        if self._takes("PRIMARY", "KEY"):
            return f"PRIMARY KEY({self._listed(self._key_part, ', ')}){self._clustered()}"
        kind = "INDEX"
        if self._takes("UNIQUE"):
            kind = "UNIQUE"
            if not self._takes("KEY"):
                self._takes("INDEX")
        elif not self._takes("KEY"):
            self._require("INDEX")
        if not self._is("("):
            name = self._name()
        return f"{kind}{name and ' ' + name}({self._listed(self._key_part, ', ')})"

    def _key_part(self) -> str:
        name = self._name()
        if self._takes("("):
            name += f"({self._next('number').value})"
            self._require(")")
        self._takes("ASC")
        return name + (" DESC" if self._takes("DESC") else "")

    def _clustered(self) -> str:
        for word in ("CLUSTERED", "NONCLUSTERED"):
            if self._takes(word):
                return f" /*T![clustered_index] {word} */"
        return ""

    def _column(self) -> str:
        text = f"{self._name()} {self._type()}"
        while True:
            option = self._column_option()
            if option is None:
                return text
            text += f" {option}"

    def _type(self) -> str:
        word = self._next("word").value
        if word == "DOUBLE":
            self._takes("PRECISION")
        if word in ("ENUM", "SET"):
            text = f"{word}({self._listed(lambda: _label(self._next('text').value), ',')})"
        elif self._is("("):
            sizes = self._listed(lambda: self._next("number").value, ",")
            text = f"{_TYPES.get(word, word).partition('(')[0]}({sizes})"
        else:
            text = _TYPES.get(word, word)
        unsigned = zerofill = False
        while self._token.kind == "word":
            if self._takes("ZEROFILL"):
                unsigned = zerofill = True
            elif self._takes("UNSIGNED"):
                unsigned = True
            elif not self._takes("SIGNED"):
                break
        text += " UNSIGNED" * unsigned + " ZEROFILL" * zerofill
        if self._takes("CHARSET") or self._takes("CHARACTER", "SET"):
            text += f" CHARACTER SET {self._plain_name().upper()}"
        return text

    def _column_option(self) -> str | None:
        """Return the next option of a column, None if there are no more."""
        for words, write in _COLUMN_OPTIONS.items():
            if self._takes(*words.split()):
                return write(self)
        return None

    def clustered_key(self) -> str:
        return f"PRIMARY KEY{self._clustered()}"

    def unique_key(self) -> str:
        self._takes("KEY")
        return "UNIQUE KEY"

    def default(self) -> str:
        return f"DEFAULT {self._expression()}"

    def on_update(self) -> str:
        return f"ON UPDATE {self._expression()}"

    def column_comment(self) -> str:
        return f"COMMENT {_literal(self._next('text').value)}"

    def collation(self) -> str:
        return f"COLLATE {self._plain_name()}"

    def generated(self) -> str:
        expression = self._listed(self._expression, ", ")
        stored = self._takes("STORED")
        if not stored:
            self._takes("VIRTUAL")
        return f"GENERATED ALWAYS AS({expression}) {'STORED' if stored else 'VIRTUAL'}"

    # Expressions

    def _expression(self) -> str:
        text = self._operand()
        while self._token.kind == "sign" and self._token.value in "+-*/%":
            text += self._next("sign").value + self._operand()
        return text

    def _operand(self) -> str:
        if self._takes("-"):
            return "-" + self._operand()
        if self._is("("):
            return f"({self._listed(self._expression, ', ')})"
        token = self._next("text", "number", "bits", "word", "name")
        if token.kind == "text":
            return _literal(token.value)
        if token.kind == "bits":
            return _bits(token.value)
        if token.kind == "number":
            return token.value
        if token.kind == "name":
            return quoted(token.value)
        if self._takes("(", ")"):
            return f"{token.value}()"
        if self._is("("):
            return f"{token.value}({self._listed(self._expression, ', ')})"
        if token.value in ("NULL", "TRUE", "FALSE", "MAXVALUE"):
            return token.value
        # Of the functions these are called without parentheses too.
        return f"{token.value}()" if token.value in _MOMENTS else quoted(token.spelled)

    # Options and partitions of tables

    def _table_option(self) -> str:
        self._takes("DEFAULT")
        if self._takes("CHARSET") or self._takes("CHARACTER", "SET"):
            self._takes("=")
            return f"DEFAULT CHARACTER SET = {self._plain_name().upper()}"
        if self._takes("COLLATE"):
            self._takes("=")
            return f"DEFAULT COLLATE = {self._plain_name().upper()}"
        word = self._next("word").value
        if word not in _OPTIONS:
            raise _UnknownError
        self._takes("=")
        token = self._next("text", "word", "number")
        return f"{word} = {_label(token.value) if token.kind == 'text' else token.spelled}"

    def _partition_by(self) -> str:
        self._require("BY")
        method = self._next("word").value
        columns = " COLUMNS" if self._takes("COLUMNS") else ""
        read, separator = (self._name, ",") if columns else (self._expression, ", ")
        text = f"PARTITION BY {method}{columns} ({self._listed(read, separator)})"
        if self._takes("PARTITIONS"):
            return f"{text} PARTITIONS {self._next('number').value}"
        return f"{text} ({self._listed(self._partition, ',')})" if self._is("(") else text

    def _partition(self) -> str:
        self._require("PARTITION")
        name = self._name()
        if self._takes("VALUES", "LESS", "THAN"):
            bound = "MAXVALUE" if self._takes("MAXVALUE") else None
            bound = bound or self._listed(self._expression, ", ")
            return f"PARTITION {name} VALUES LESS THAN ({bound})"
        self._require("VALUES", "IN")
        return f"PARTITION {name} VALUES IN ({self._listed(self._expression, ', ')})"

    # Changes of tables

    def _change(self) -> str:
        for words, write in _CHANGES.items():
            if self._takes(*words.split()):
                return write(self)
        return self._table_option()

    def add(self) -> str:
        if self._takes("PARTITION"):
            if self._takes("PARTITIONS"):
                return f"ADD PARTITION PARTITIONS {self._next('number').value}"
            return f"ADD PARTITION ({self._listed(self._partition, ', ')})"
        self._takes("COLUMN")
        if self._is("("):
            return f"ADD COLUMN ({self._listed(self._column, ', ')})"
        if self._token.kind == "word" and self._token.value in _INDEXES:
            return f"ADD {self._index()}"
        return f"ADD COLUMN {self._column()}{self._place()}"

    def drop(self) -> str:
        if self._takes("PRIMARY", "KEY"):
            return "DROP PRIMARY KEY"
        if self._takes("INDEX") or self._takes("KEY"):
            return f"DROP INDEX {self._name()}"
        if self._takes("PARTITION"):
            return f"DROP PARTITION {self._items(self._name, ',')}"
        self._takes("COLUMN")
        return f"DROP COLUMN {self._name()}"

    def modify(self) -> str:
        self._takes("COLUMN")
        return f"MODIFY COLUMN {self._column()}{self._place()}"

    def change(self) -> str:
        self._takes("COLUMN")
        return f"CHANGE COLUMN {self._name()} {self._column()}{self._place()}"

    def _place(self) -> str:
        if self._takes("FIRST"):
            return " FIRST"
        return f" AFTER {self._name()}" if self._takes("AFTER") else ""

    def alter_column(self) -> str:
        self._takes("COLUMN")
        name = self._name()
        if self._takes("DROP", "DEFAULT"):
            return f"ALTER COLUMN {name} DROP DEFAULT"
        self._require("SET", "DEFAULT")
        return f"ALTER COLUMN {name} SET DEFAULT {self._expression()}"

    def rename(self) -> str:
        for word in ("COLUMN", "INDEX"):
            if self._takes(word):
                name = self._name()
                self._require("TO")
                return f"RENAME {word} {name} TO {self._name()}"
        if not self._takes("TO"):
            self._takes("AS")
        return f"RENAME AS {self._path()}"

    def truncate_partition(self) -> str:
        if self._takes("ALL"):
            return "TRUNCATE PARTITION ALL"
        return f"TRUNCATE PARTITION {self._items(self._name, ',')}"

    def reorganize_partition(self) -> str:
        names = self._items(self._name, ",")
        self._require("INTO")
        return f"REORGANIZE PARTITION {names} INTO ({self._listed(self._partition, ', ')})"

    def coalesce_partition(self) -> str:
        return f"COALESCE PARTITION {self._next('number').value}"

    def remove_partitioning(self) -> str:
        return "REMOVE PARTITIONING"

    def partition_by(self) -> str:
        return self._partition_by()

    def exchange_partition(self) -> str:
        name = self._name()
        self._require("WITH", "TABLE")
        text = f"EXCHANGE PARTITION {name} WITH TABLE {self._path()}"
        if self._takes("WITHOUT", "VALIDATION"):
            return f"{text} WITHOUT VALIDATION"
        self._takes("WITH", "VALIDATION")
        return text


def _bits(spelled: str) -> str:
    if spelled[0] in "bB":
        digits = spelled[2:-1].lstrip("0")
        return f"b'{digits or '0'}'"
    digits = spelled[2:-1] if spelled[0] in "xX" else spelled[2:]
    return f"x'{'0' * (len(digits) % 2)}{digits.lower()}'"


_MOMENTS: Final = frozenset({"CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP"})

_STATEMENTS: Final[Mapping[str, Callable[[_Statement], str]]] = {
    "CREATE DATABASE": _Statement.create_database,
    "CREATE SCHEMA": _Statement.create_database,
    "ALTER DATABASE": _Statement.alter_database,
    "ALTER SCHEMA": _Statement.alter_database,
    "DROP DATABASE": _Statement.drop_database,
    "DROP SCHEMA": _Statement.drop_database,
    "CREATE TABLE": _Statement.create_table,
    "CREATE INDEX": _Statement.create_index,
    "CREATE UNIQUE INDEX": _Statement.create_unique_index,
    "DROP INDEX": _Statement.drop_index,
    "CREATE VIEW": _Statement.create_view,
    "DROP TABLE": _Statement.drop_table,
    "DROP VIEW": _Statement.drop_view,
    "TRUNCATE": _Statement.truncate_table,
    "RENAME TABLE": _Statement.rename_table,
    "RECOVER TABLE": _Statement.recover_table,
    "FLASHBACK TABLE": _Statement.flashback_table,
    "ALTER TABLE": _Statement.alter_table,
}
"""What writes a statement, by its first words."""

_COLUMN_OPTIONS: Final[Mapping[str, Callable[[_Statement], str]]] = {
    "NOT NULL": lambda _: "NOT NULL",
    "NULL": lambda _: "NULL",
    "PRIMARY KEY": _Statement.clustered_key,
    "KEY": _Statement.clustered_key,
    "UNIQUE": _Statement.unique_key,
    "AUTO_INCREMENT": lambda _: "AUTO_INCREMENT",
    "DEFAULT": _Statement.default,
    "ON UPDATE": _Statement.on_update,
    "COMMENT": _Statement.column_comment,
    "COLLATE": _Statement.collation,
    "GENERATED ALWAYS AS": _Statement.generated,
    "AS": _Statement.generated,
}
"""What writes an option of a column, by its first words."""

_CHANGES: Final[Mapping[str, Callable[[_Statement], str]]] = {
    "ADD": _Statement.add,
    "DROP": _Statement.drop,
    "MODIFY": _Statement.modify,
    "CHANGE": _Statement.change,
    "ALTER": _Statement.alter_column,
    "RENAME": _Statement.rename,
    "TRUNCATE PARTITION": _Statement.truncate_partition,
    "REORGANIZE PARTITION": _Statement.reorganize_partition,
    "COALESCE PARTITION": _Statement.coalesce_partition,
    "REMOVE PARTITIONING": _Statement.remove_partitioning,
    "PARTITION": _Statement.partition_by,
    "EXCHANGE PARTITION": _Statement.exchange_partition,
}
"""What writes a change of ALTER TABLE, by its first words."""
