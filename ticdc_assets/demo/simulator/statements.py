"""Statements in SQL, as a person types them, run on the stand-in upstream.

In: the text of one statement. Out: what it did: rows inserted, changed or deleted in one
transaction, or a DDL. DuckDB runs statements on rows, on copies in memory of the tables that they
name; sqlglot translates them from MySQL's dialect. The difference of the table before and after
becomes the transaction. A DDL is read by the registry's reader, and what that reads becomes the
upstream's own operation, which writes the DDL message.

What is not supported, or fails in DuckDB or upstream, is refused whole and nothing is committed.
The error says what is supported. Running a statement again runs it again, as upstream.

Not handled: what `SUPPORTED` does not name; comparisons of texts ignore collations.
"""

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, cast
from zoneinfo import ZoneInfo

import duckdb
import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError

from ticdc_assets.base.errors import StatementError
from ticdc_assets.demo.simulator.alterations import (
    AddColumn,
    AlterAction,
    DropColumn,
    ModifyColumn,
    RenameColumn,
)
from ticdc_assets.demo.simulator.columns import default_value, moment_text, type_sql
from ticdc_assets.demo.simulator.duck_tables import (
    Cells,
    load,
    open_engine,
    read,
    stored_text,
)
from ticdc_assets.demo.simulator.stored_table import Key, Row, TableName, index
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.model.mysql_types import Kind, kind_of
from ticdc_assets.model.schemas import ColumnSchema, IndexSchema
from ticdc_assets.model.values.shapes import is_encodable
from ticdc_assets.registry.ddl.reader import parse_ddl_script
from ticdc_assets.registry.ddl.statement import (
    AlterChange,
    ChangeKind,
    ColumnDefinition,
    DdlAction,
    DdlStatement,
    DefaultForm,
)
from ticdc_assets.registry.ddl.statement import TableName as WrittenName
from ticdc_assets.registry.inference.columns import (
    CURRENT_TIMESTAMP,
    DATABASE_DEFAULTS,
    Defaults,
    column_schema,
    defaults_after,
)

SUPPORTED: Final = (
    "INSERT INTO database.table [(columns)] VALUES (...), ... or SELECT ...",
    "UPDATE database.table SET column = expression, ... [WHERE condition]",
    "DELETE FROM database.table [WHERE condition]",
    "ALTER TABLE database.table ADD COLUMN name type [NOT NULL] [DEFAULT value] [FIRST | AFTER x]",
    "ALTER TABLE database.table DROP | MODIFY | CHANGE | RENAME COLUMN ...",
    "CREATE TABLE database.table (columns, keys), DROP TABLE, TRUNCATE TABLE, RENAME TABLE",
)
"""The statements that can be run."""

_NO_DEFAULT: Final = ("json", "vector", "text", "blob")
"""Types without a default, by the end of their names."""
_ON_UPDATE: Final = re.compile(r"\bon\s+update\b", re.I)
_CLOCK_CALLS: Final = frozenset({"NOW", "SYSDATE", "LOCALTIMESTAMP"})

# It reports on the console what it could not parse; here that is in the error.
logging.getLogger("sqlglot").addHandler(logging.NullHandler())
logging.getLogger("sqlglot").propagate = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """What a statement did.

    Attributes:
        table: the table.
        rows: rows that it inserted, changed or deleted; None for a DDL.
        done: the word for what a DDL did.
        commit_ts: TSO of its commit; None if it changed nothing, so that nothing was committed.
    """

    table: TableName
    rows: int | None
    done: str = "altered"
    commit_ts: int | None

    @property
    def text(self) -> str:
        """The result in words."""
        done = self.done if self.rows is None else f"{self.rows} rows changed"
        done = "1 row changed" if self.rows == 1 else done
        at = "nothing was committed" if self.commit_ts is None else f"commit ts {self.commit_ts}"
        return f"{'.'.join(self.table)}: {done}, {at}"


def execute(upstream: Upstream, sql: str) -> Executed:
    """Run one statement and commit it.

    Raises:
        StatementError: it is not supported, or the upstream refuses it; nothing was changed.
    """
    if not is_encodable(sql):
        raise StatementError("the statement is not in UTF-8; nothing was changed")
    statements = parse_ddl_script(sql)
    if len(statements) != 1:
        raise StatementError(_refusal(f"one statement is needed, got {len(statements)}"))
    (statement,) = statements
    try:
        if statement.action is DdlAction.UNKNOWN:
            return _run_on_rows(upstream, sql)
        return _run_ddl(upstream, statement, sql)
    except _UnsupportedError as error:
        raise StatementError(_refusal(str(error))) from None
    except ValueError as error:
        # Errors of the upstream name tables as pairs.
        said = re.sub(r"\('([^']*)', '([^']*)'\)", r"\1.\2", str(error))
        raise StatementError(f"{said}; nothing was changed") from None
    except duckdb.Error as error:
        raise StatementError(f"{_sentence(error)}; nothing was changed") from None


class _UnsupportedError(Exception):
    """A part of a statement that is not supported."""


def _refusal(reason: str) -> str:
    lines = "\n".join(f"  {item}" for item in SUPPORTED)
    return f"{reason}; nothing was changed. What can be run:\n{lines}"


def _sentence(error: duckdb.Error) -> str:
    """Return DuckDB's error without its kind and without the picture of the statement."""
    said, _, _ = str(error).partition("\n\nLINE ")
    return " ".join(re.sub(r"^\w+ Error: ", "", said).split()).replace("INT128", "a number")


def _existing(upstream: Upstream, database: str | None, table: str) -> TableName:
    """Return a table's name as it is spelled upstream.

    Raises:
        ValueError: there is no such table.
    """
    spellings = {(name[0].lower(), name[1].lower()): name for name in upstream.tables}
    name = spellings.get(((database or "").lower(), table.lower()))
    if name is None:
        there = ", ".join(sorted(".".join(item) for item in upstream.tables))
        wanted = f"{database}.{table}" if database else table
        raise ValueError(f"there is no table {wanted}; as database.table there are {there}")
    return name


# Rows ---------------------------------------------------------------------------------------------


def _run_on_rows(upstream: Upstream, sql: str) -> Executed:
    now = datetime.now(UTC).astimezone(ZoneInfo(upstream.timezone))
    node, target, others = _parsed(upstream, sql)
    text = _in_duckdb(node, now)
    stored = upstream.stored(target)
    with open_engine() as engine:
        for name in {target, *others}:
            table = upstream.stored(name)
            load(
                engine,
                name,
                table.columns,
                table.rows.values(),
                timezone=upstream.timezone,
                now=now,
            )
        before = read(engine, target, stored.columns)
        engine.execute(text)
        after = read(engine, target, stored.columns)
    known_rows = list(stored.rows.items())
    changes = list(_changes(stored.columns, known_rows, before, after, timezone=upstream.timezone))
    if not changes:
        return Executed(table=target, rows=0, commit_ts=None)
    with upstream.transaction() as transaction:
        for key, row in changes:
            if key is None:
                transaction.insert(target, row or {})
            elif row is None:
                transaction.delete(target, key)
            else:
                transaction.update(target, key, changes=row)
    return Executed(table=target, rows=len(changes), commit_ts=upstream.history[-1].commit_ts)


def _changes(
    columns: Sequence[ColumnSchema],
    known_rows: Sequence[tuple[Key, Row]],
    before: Mapping[int, Cells],
    after: Mapping[int, Cells],
    *,
    timezone: str,
) -> Iterator[tuple[Key | None, Row | None]]:
    """Yield what a statement did to each row, deletes first, so that their keys are free.

    Row n of `known_rows` is the one that DuckDB numbers n, in `before` and `after`.

    Yields:
        The key (None for a new row) and the columns that changed (None for a deleted row).

    Raises:
        ValueError: a column stores no such value.
    """
    for number in sorted(before.keys() - after.keys()):
        yield known_rows[number][0], None
    for number, cells in after.items():
        old = before.get(number)
        row = {
            item.name: stored_text(cell, item, timezone)
            for place, (item, cell) in enumerate(zip(columns, cells, strict=True))
            if old is None or old[place] != cell
        }
        if old is None:
            yield None, row
            continue
        key, stored = known_rows[number]
        row = {name: text for name, text in row.items() if stored[name] != text}
        if row:
            yield key, row


_OF_ROWS: Final[Mapping[type[exp.Expr], tuple[str, ...]]] = {
    exp.Insert: ("this", "expression", "with_"),
    exp.Update: ("this", "expressions", "where", "with_"),
    exp.Delete: ("this", "where", "with_"),
}
"""The statements on rows, with the parts that are carried out."""


def _only(node: exp.Expr, *names: str) -> None:
    """Refuse a node with another part than those named, which might be passed over."""
    for name, value in node.args.items():
        if value and name not in names:
            parts = cast(list[Any], value) if isinstance(value, list) else [value]
            texts = [part.sql(dialect="mysql") for part in parts if isinstance(part, exp.Expr)]
            said = " ".join(texts).strip() or name.upper()
            raise _UnsupportedError(f"{said!r} is not supported here")


def _parsed(upstream: Upstream, sql: str) -> tuple[exp.Expr, TableName, set[TableName]]:
    """Return a statement on rows, the table that it changes, and those that it reads."""
    try:
        node = sqlglot.parse_one(sql, read="mysql")
    except SqlglotError as error:
        (first, *_) = str(error).splitlines() or ["it cannot be parsed"]
        raise _UnsupportedError(f"it cannot be parsed ({first})") from None
    parts = _OF_ROWS.get(type(node))
    if parts is None:
        word = (sql.split() or [""])[0].upper()
        raise _UnsupportedError(f"{word} is not supported here")
    _only(node, *parts)
    changed = node.this.this if isinstance(node.this, exp.Schema) else node.this
    if not isinstance(changed, exp.Table):
        raise _UnsupportedError("a table is needed, as database.table")
    _only(changed, "this", "db", "alias")
    queries = {item.alias.lower() for item in node.find_all(exp.CTE)}
    names: set[TableName] = set()
    for table in list(node.find_all(exp.Table)):
        if not table.db and table.name.lower() in queries:
            continue
        if not isinstance(table.this, exp.Identifier):
            raise _UnsupportedError(f"{table.sql(dialect='mysql')!r} is not supported here")
        name = _existing(upstream, table.db, table.name)
        table.set("db", exp.to_identifier(name[0], quoted=True))
        table.set("this", exp.to_identifier(name[1], quoted=True))
        names.add(name)
    return node, (changed.db, changed.name), names


def _in_duckdb(node: exp.Expr, now: datetime) -> str:
    """Return a statement as DuckDB reads it."""

    def moment(text: str, kind: str) -> exp.Expr:
        return exp.cast(exp.Literal.string(text), kind)

    def digits(part: exp.Expr) -> int:
        arguments = part.expressions if isinstance(part, exp.Anonymous) else [part.args.get("this")]
        return int(arguments[0].name) if arguments and arguments[0] else 0

    def translated(part: exp.Expr) -> exp.Expr:
        match part:
            case exp.CurrentTimestamp() | exp.Localtime() | exp.Localtimestamp():
                return moment(moment_text(now, digits(part)), "TIMESTAMP")
            case exp.Anonymous() if part.name.upper() in _CLOCK_CALLS:
                return moment(moment_text(now, digits(part)), "TIMESTAMP")
            case exp.UtcTimestamp():
                return moment(moment_text(now.astimezone(UTC), digits(part)), "TIMESTAMP")
            case exp.CurrentDate():
                return moment(f"{now:%Y-%m-%d}", "DATE")
            case exp.CurrentTime():
                return exp.Literal.string(f"{now:%H:%M:%S}")
            case exp.Boolean() if not isinstance(part.parent, exp.Is):
                # A truth value is a number, also where it is stored in a text.
                return exp.Literal.number(int(bool(part.this)))
            case exp.Like() if not isinstance(part.parent, exp.Escape):
                return exp.Escape(this=part, expression=exp.Literal.string("\\"))
            case _:
                return part

    if isinstance(node, exp.Update):
        for item in node.expressions:
            if isinstance(item, exp.EQ) and isinstance(item.this, exp.Column):
                # DuckDB takes the bare name of the column that is set.
                item.this.set("table", None)
                item.this.set("db", None)
    try:
        return node.transform(translated).sql(dialect="duckdb", unsupported_level=ErrorLevel.RAISE)
    except SqlglotError as error:
        raise _UnsupportedError(f"it cannot be run ({error})") from None


# DDL ----------------------------------------------------------------------------------------------


def _run_ddl(upstream: Upstream, statement: DdlStatement, sql: str) -> Executed:
    run = _DDL.get(statement.action)
    word = " ".join(sql.split()[:2]).upper()
    if run is None or len(statement.tables) != max(1, len(statement.renames)):
        raise _UnsupportedError(f"{word} is not supported here")
    if statement.unparsed is not None:
        raise _UnsupportedError(f"{statement.unparsed!r} is not supported here")
    if _ON_UPDATE.search(sql):
        raise _UnsupportedError("ON UPDATE is not supported here")
    if statement.query is not None or statement.partitioning is not None:
        raise _UnsupportedError(f"{word} with a query or partitions is not supported here")
    before = len(upstream.history)
    table, done = run(upstream, statement)
    assert len(upstream.history) == before + 1
    commit_ts = upstream.history[-1].commit_ts
    return Executed(table=table, rows=None, done=done, commit_ts=commit_ts)


def _written(name: WrittenName | None) -> TableName:
    if name is None or name.database is None:
        raise _UnsupportedError("a table is needed, as database.table")
    return name.database, name.table


def _subject(upstream: Upstream, statement: DdlStatement) -> TableName:
    (name, *_) = statement.tables
    return _existing(upstream, name.database, name.table)


def _create_table(upstream: Upstream, statement: DdlStatement) -> tuple[TableName, str]:
    name = _written(statement.tables[0])
    if statement.like is not None:
        like = statement.like
        upstream.create_table_like(name, _existing(upstream, like.database, like.table))
        return name, _created(upstream, name)
    spelled = {item.name.lower(): item.name for item in statement.columns}
    key: tuple[str, ...] = ()
    clustered = True
    others: list[IndexSchema] = []
    for number, item in enumerate(statement.indexes, 1):
        if None in item.parts or item.condition is not None:
            raise _UnsupportedError("a key of an expression or with WHERE is not supported here")
        parts = tuple(spelled.get(part.lower(), part) for part in item.columns)
        if not set(parts) <= set(spelled.values()):
            raise ValueError(f"a key names a column that {'.'.join(name)} does not have")
        if item.primary:
            key, clustered = parts, item.clustered is not False
        else:
            others.append(index(item.name or f"key_{number}", *parts, unique=item.unique))
    defaults = defaults_after(statement, DATABASE_DEFAULTS)
    upstream.create_table(
        name,
        [_column(upstream, item, defaults) for item in statement.columns],
        primary_key=key,
        indexes=others,
        clustered=clustered,
    )
    return name, _created(upstream, name)


def _created(upstream: Upstream, name: TableName) -> str:
    if upstream.schema(name).handle_key:
        return "created"
    return "created (TiCDC does not send tables without a primary or a NOT NULL unique key)"


def _drop_table(upstream: Upstream, statement: DdlStatement) -> tuple[TableName, str]:
    name = _subject(upstream, statement)
    if statement.action is DdlAction.TRUNCATE_TABLE:
        upstream.truncate_table(name)
        return name, "truncated"
    upstream.drop_table(name)
    return name, "dropped"


def _rename_table(upstream: Upstream, statement: DdlStatement) -> tuple[TableName, str]:
    names = {name: name for name in upstream.tables}
    renames: list[tuple[TableName, TableName]] = []
    for item in statement.renames:
        # A name may be that of a rename before it, as when two tables are swapped.
        old = _written(item.old)
        old = old if old in names else _existing(upstream, *old)
        new = _written(item.new)
        names[new] = old
        renames.append((old, new))
    upstream.rename_tables(renames)
    return renames[0][0], "renamed"


def _alter_table(upstream: Upstream, statement: DdlStatement) -> tuple[TableName, str]:
    name = _subject(upstream, statement)
    columns = {item.name.lower(): item for item in upstream.stored(name).columns}
    if not statement.changes:
        raise _UnsupportedError("ALTER TABLE without a change is not supported here")
    actions = [_action(upstream, columns, change) for change in statement.changes]
    upstream.alter_table(name, *actions)
    return name, "altered"


def _action(
    upstream: Upstream, columns: Mapping[str, ColumnSchema], change: AlterChange
) -> AlterAction:
    def existing(name: str | None) -> str:
        column = columns.get((name or "").lower())
        if column is None:
            names = ", ".join(item.name for item in columns.values())
            raise ValueError(f"there is no column {name!r}; the table has {names}")
        return column.name

    first = change.after == ""
    after = existing(change.after) if change.after else None
    if change.conditional:
        raise _UnsupportedError("IF EXISTS and IF NOT EXISTS are not supported here")
    if change.column is not None and (change.column.unique or change.column.primary_key):
        raise _UnsupportedError("a key of a column in ALTER TABLE is not supported here")
    match change.kind, change.column, change.name:
        case ChangeKind.ADD_COLUMN, ColumnDefinition() as defined, _:
            return AddColumn(column=_column(upstream, defined), first=first, after=after)
        case ChangeKind.DROP_COLUMN, _, str() as name:
            return DropColumn(name=existing(name))
        case ChangeKind.RENAME_COLUMN, _, str() as name if change.new_name is not None:
            return RenameColumn(name=existing(name), new_name=change.new_name)
        case (
            (ChangeKind.MODIFY_COLUMN | ChangeKind.CHANGE_COLUMN),
            ColumnDefinition() as defined,
            str() as name,
        ):
            modified = _column(upstream, defined)
            if change.kind is ChangeKind.MODIFY_COLUMN:
                modified = replace(modified, name=existing(name))
            return ModifyColumn(name=existing(name), column=modified, first=first, after=after)
        case _:
            said = change.kind.value.replace("_", " ").upper()
            said = "such a change" if change.kind is ChangeKind.OTHER else said
            raise _UnsupportedError(f"{said} is not supported here")


def _column(
    upstream: Upstream, defined: ColumnDefinition, defaults: Defaults = DATABASE_DEFAULTS
) -> ColumnSchema:
    """Return the column that a text defines.

    Raises:
        ValueError: its type is none of TiDB's, or its default does not fit it.
    """
    for said, refused in (
        ("AUTO_INCREMENT", defined.auto_increment),
        ("a generated column", defined.generated is not None),
    ):
        if refused:
            raise _UnsupportedError(f"{said} is not supported here")
    schema = column_schema(defined, defaults=defaults, timezone=upstream.timezone)
    if kind_of(schema) is Kind.UNKNOWN:
        raise ValueError(f"not a column type: {defined.mysql_type!r}")
    refused = isinstance(schema.default, bytes) or schema.mysql_type.endswith(_NO_DEFAULT)
    if schema.default is not None and refused:
        raise ValueError(f"{schema.name!r} {type_sql(schema)} cannot have a DEFAULT here")
    clause = defined.default
    expression = clause if clause and clause.form is DefaultForm.EXPRESSION else None
    if expression is not None and schema.default != CURRENT_TIMESTAMP:
        raise _UnsupportedError(f"DEFAULT {expression.value} is not supported here")
    try:
        default = default_value(schema, upstream.timezone, at=datetime.now(UTC))
    except ValueError:
        raise ValueError(f"{schema.name!r} {type_sql(schema)} has a wrong DEFAULT") from None
    is_text = isinstance(schema.default, str) and expression is None
    if is_text and schema.mysql_type not in ("decimal", "timestamp"):
        # TiDB writes other defaults in the spelling of their columns.
        return replace(schema, default=default)
    return schema


_DDL: Final[Mapping[DdlAction, Callable[[Upstream, DdlStatement], tuple[TableName, str]]]] = {
    DdlAction.ALTER_TABLE: _alter_table,
    DdlAction.CREATE_TABLE: _create_table,
    DdlAction.CREATE_TABLE_LIKE: _create_table,
    DdlAction.DROP_TABLE: _drop_table,
    DdlAction.RENAME_TABLE: _rename_table,
    DdlAction.TRUNCATE_TABLE: _drop_table,
}
