"""Statements in SQL, as a person types them, run on the stand-in upstream.

In: the text of one statement. Out: what it did: rows inserted, changed or deleted in one
transaction, or columns of a table altered. sqlglot parses it as MySQL; each part that the tree has
is either carried out here or refused, and then nothing is committed. The error says what is
supported, so nobody has to guess.

Not handled: what `SUPPORTED` does not name. Running a statement again runs it again, as upstream.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias, cast
from zoneinfo import ZoneInfo

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from ticdc_assets.base.errors import StatementError
from ticdc_assets.demo.simulator import expressions
from ticdc_assets.demo.simulator.alterations import AddColumn, AlterAction, DropColumn, RenameColumn
from ticdc_assets.demo.simulator.columns import (
    CURRENT_TIMESTAMP,
    column,
    moment_text,
    text_literal,
    type_sql,
)
from ticdc_assets.demo.simulator.expressions import (
    Scope,
    column_named,
    evaluate,
    is_true,
    now_text,
    require_rules,
    stored_text,
)
from ticdc_assets.demo.simulator.stored_table import Row, TableName
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.model.schemas import ColumnSchema

SUPPORTED: Final = (
    "INSERT INTO database.table [(columns)] VALUES (...), ...",
    "UPDATE database.table SET column = expression, ... [WHERE condition]",
    "DELETE FROM database.table [WHERE condition]",
    "ALTER TABLE database.table ADD COLUMN name type [NOT NULL] [DEFAULT value] [FIRST | AFTER x]",
    "ALTER TABLE database.table DROP COLUMN name",
    "ALTER TABLE database.table RENAME COLUMN name TO name",
)
"""The statements that can be run."""

_NO_DEFAULT: Final = frozenset(
    {"json", "vector", "tinytext", "text", "mediumtext", "longtext", "binary", "varbinary"}
    | {"tinyblob", "blob", "mediumblob", "longblob"}
)

# It tells on the console what it could not parse; here that is in the error.
logging.getLogger("sqlglot").addHandler(logging.NullHandler())
logging.getLogger("sqlglot").propagate = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """What a statement did.

    Attributes:
        table: the table.
        rows: rows that it inserted, changed or deleted; None for a DDL.
        commit_ts: TSO of its commit; None if it changed nothing, so that nothing was committed.
    """

    table: TableName
    rows: int | None
    commit_ts: int | None

    @property
    def text(self) -> str:
        """The result in words."""
        done = "altered" if self.rows is None else f"{self.rows} rows changed"
        done = "1 row changed" if self.rows == 1 else done
        at = "nothing was committed" if self.commit_ts is None else f"commit ts {self.commit_ts}"
        return f"{'.'.join(self.table)}: {done}, {at}"


def execute(upstream: Upstream, sql: str) -> Executed:
    """Run one statement and commit it.

    Raises:
        StatementError: it is not supported, or the upstream refuses it; nothing was changed.
    """
    try:
        parsed = sqlglot.parse(sql, read="mysql")
    except SqlglotError as error:
        (first, *_) = str(error).splitlines() or ["it cannot be parsed"]
        raise StatementError(_refusal(f"it cannot be parsed ({first})")) from None
    statements = [item for item in parsed if item is not None]
    if len(statements) != 1:
        raise StatementError(_refusal(f"one statement is needed, got {len(statements)}"))
    (statement,) = statements
    run = _STATEMENTS.get(type(statement))
    if run is None:
        word = (sql.split() or [""])[0].upper()
        raise StatementError(_refusal(f"{word} is not supported here"))
    try:
        return run(upstream, statement)
    except _Unsupported as error:
        raise StatementError(_refusal(str(error))) from None
    except ValueError as error:
        raise StatementError(f"{error}; nothing was changed") from None


class _Unsupported(Exception):
    """A part of a statement that has no rule here."""


def _refusal(reason: str) -> str:
    lines = "\n".join(f"  {item}" for item in SUPPORTED)
    return (
        f"{reason}; nothing was changed. What can be run:\n{lines}\n"
        f"Expressions and conditions are made of {expressions.SUPPORTED}."
    )


def _only(node: exp.Expr, *names: str) -> None:
    """Refuse a node that has something else than what is named, which would be passed over."""
    for name, value in node.args.items():
        if value and name not in names:
            parts = cast(list[Any], value) if isinstance(value, list) else [value]
            texts = [part.sql(dialect="mysql") for part in parts if isinstance(part, exp.Expr)]
            raise _Unsupported(f"{' '.join(texts).strip() or name.upper()!r} is not supported here")


@dataclass(frozen=True, slots=True)
class _Target:
    """The table of a statement."""

    upstream: Upstream
    name: TableName
    now: datetime

    @property
    def columns(self) -> dict[str, ColumnSchema]:
        """Its columns in the order of the table, by their names in lower case."""
        return {item.name.lower(): item for item in self.upstream.stored(self.name).columns}

    def scope(self, row: Row | None = None) -> Scope:
        """Return what an expression sees."""
        return Scope(columns=self.columns, row=row, now=self.now, timezone=self.upstream.timezone)

    def error(self, error: ValueError) -> ValueError:
        """Return an error of the upstream that names the table as people do."""
        return ValueError(str(error).replace(str(self.name), ".".join(self.name)))


def _target(upstream: Upstream, node: exp.Expr | None) -> _Target:
    if not isinstance(node, exp.Table):
        raise _Unsupported("a table is needed, as database.table")
    _only(node, "this", "db")
    known = {
        (database.lower(), table.lower()): (database, table) for database, table in upstream.tables
    }
    name = known.get((node.db.lower(), node.name.lower()))
    if name is None:
        there = ", ".join(sorted(".".join(item) for item in upstream.tables))
        wanted = f"{node.db}.{node.name}" if node.db else node.name
        raise ValueError(f"there is no table {wanted}; as database.table there are {there}")
    return _Target(upstream, name, datetime.now(UTC))


def _changed(target: _Target, change: Callable[[Any], Iterable[object]]) -> Executed:
    """Make changes in one transaction; `change` yields once for each row."""
    history = target.upstream.history
    before = len(history)
    try:
        with target.upstream.transaction() as transaction:
            rows = sum(1 for _ in change(transaction))
    except ValueError as error:
        raise target.error(error) from None
    commit_ts = history[-1].commit_ts if len(history) > before else None
    return Executed(table=target.name, rows=rows, commit_ts=commit_ts)


def _is_default(node: exp.Expr) -> bool:
    """Tell whether a value is the word DEFAULT."""
    is_word = isinstance(node, exp.Var) or (
        isinstance(node, exp.Column) and not node.this.args.get("quoted")
    )
    return is_word and node.name.upper() == "DEFAULT"


# Rows ---------------------------------------------------------------------------------------------


def _insert(upstream: Upstream, node: exp.Insert) -> Executed:
    _only(node, "this", "expression")
    named, values = node.this, node.expression
    if not isinstance(values, exp.Values):
        raise _Unsupported("INSERT needs VALUES")
    _only(values, "expressions")
    with_columns = isinstance(named, exp.Schema)
    target = _target(upstream, named.this if with_columns else named)
    columns = (
        [column_named(target.columns, item.name) for item in named.expressions]
        if with_columns
        else list(target.columns.values())
    )
    if len({item.name for item in columns}) < len(columns):
        raise ValueError("a column is named twice")
    scope = target.scope()
    rows: list[Row] = []
    for number, item in enumerate(values.expressions, 1):
        cells = item.expressions if isinstance(item, exp.Tuple) else [item]
        if len(cells) != len(columns):
            raise ValueError(f"row {number} has {len(cells)} values for {len(columns)} columns")
        given = {
            into.name: stored_text(evaluate(cell, scope), into)
            for into, cell in zip(columns, cells, strict=True)
            if not _is_default(cell)
        }
        rows.append(
            {
                item.name: stored_text(now_text(scope), item)
                for item in target.columns.values()
                if item.default == CURRENT_TIMESTAMP
            }
            | given
        )
    return _changed(
        target, lambda transaction: (transaction.insert(target.name, row) for row in rows)
    )


def _where(target: _Target, node: exp.Expr) -> list[tuple[tuple[str, ...], Row]]:
    """Return the rows that a statement is about, as they are before it."""
    where = node.args.get("where")
    if where is not None:
        require_rules(where.this, target.columns)
    return [
        (key, row)
        for key, row in target.upstream.rows(target.name).items()
        if where is None or is_true(where.this, target.scope(row))
    ]


def _update(upstream: Upstream, node: exp.Update) -> Executed:
    _only(node, "this", "expressions", "where")
    target = _target(upstream, node.this)
    if not node.expressions:
        raise _Unsupported("SET needs a column and its value")
    setting: dict[str, tuple[ColumnSchema, exp.Expr]] = {}
    for item in node.expressions:
        if not isinstance(item, exp.EQ) or not isinstance(item.this, exp.Column):
            raise _Unsupported(f"{item.sql(dialect='mysql')!r} sets no column")
        into = column_named(target.columns, item.this.name)
        require_rules(item.expression, target.columns)
        setting[into.name] = (into, item.expression)
    changes: list[tuple[tuple[str, ...], Row]] = []
    for key, row in _where(target, node):
        scope = target.scope(row)
        new = {
            name: stored_text(evaluate(value, scope), into)
            for name, (into, value) in setting.items()
        }
        if any(row[name] != text for name, text in new.items()):
            changes.append((key, new))
    return _changed(
        target,
        lambda transaction: (
            transaction.update(target.name, key, changes=new) for key, new in changes
        ),
    )


def _delete(upstream: Upstream, node: exp.Delete) -> Executed:
    _only(node, "this", "where")
    target = _target(upstream, node.this)
    keys = [key for key, _ in _where(target, node)]

    def delete(transaction: Any) -> Iterable[object]:
        for key in keys:
            yield transaction.delete(target.name, key)

    return _changed(target, delete)


# Columns ------------------------------------------------------------------------------------------


def _alter(upstream: Upstream, node: exp.Alter) -> Executed:
    _only(node, "this", "kind", "actions")
    if node.args.get("kind") != "TABLE":
        raise _Unsupported(f"ALTER {node.args.get('kind')} is not supported here")
    target = _target(upstream, node.this)
    actions = [_action(target, item) for item in node.args["actions"]]
    try:
        commit_ts = upstream.alter_table(target.name, *actions)
    except ValueError as error:
        raise target.error(error) from None
    return Executed(table=target.name, rows=None, commit_ts=commit_ts)


def _action(target: _Target, node: exp.Expr) -> AlterAction:
    match node:
        case exp.ColumnDef():
            return _added(target, node)
        case exp.Drop():
            _only(node, "kind", "tables")
            dropped = [column_named(target.columns, item.name) for item in node.args["tables"]]
            if node.args["kind"] == "COLUMN" and len(dropped) == 1:
                return DropColumn(name=dropped[0].name)
        case exp.RenameColumn():
            _only(node, "this", "to")
            old = column_named(target.columns, node.this.name)
            return RenameColumn(name=old.name, new_name=node.args["to"].name)
        case _:
            pass
    raise _Unsupported(f"{node.sql(dialect='mysql')!r} is not supported here")


def _added(target: _Target, node: exp.ColumnDef) -> AddColumn:
    """Return what ADD COLUMN says."""
    _only(node, "this", "kind", "constraints", "position")
    nullable, default = True, None
    for item in node.args.get("constraints") or ():
        match item.kind:
            case exp.NotNullColumnConstraint() as kind:
                nullable = bool(kind.args.get("allow_null"))
            case exp.DefaultColumnConstraint() as kind:
                default = kind.this
            case _:
                raise _Unsupported(f"{item.sql(dialect='mysql')!r} is not supported here")
    added = column(node.name, _type_text(node.args["kind"]), nullable=nullable)
    if default is not None:
        added = replace(added, default=_default(target, added, default))
    position = node.args.get("position")
    if position is None:
        return AddColumn(column=added)
    if position.this is None:
        return AddColumn(column=added, first=True)
    after = column_named(target.columns, position.this.name)
    return AddColumn(column=added, after=after.name)


def _type_text(kind: exp.DataType | None) -> str:
    """Return a column's type as `column` takes it: names in lower case, labels as they are."""
    if kind is None:
        raise _Unsupported("a column needs a type")
    word, _, _ = kind.sql(dialect="mysql").partition("(")
    if word in ("ENUM", "SET"):
        return f"{word.lower()}({','.join(text_literal(item.this) for item in kind.expressions)})"
    text = kind.sql(dialect="mysql").lower().replace(" ", "").replace("unsigned", " unsigned")
    return "tinyint(1)" if text == "boolean" else text


def _default(target: _Target, into: ColumnSchema, node: exp.Expr) -> str | int | None:
    """Return the default of a new column as it travels: a BIT as a number, TIMESTAMP in UTC."""
    base = into.mysql_type
    if isinstance(node, exp.CurrentTimestamp) and base in ("datetime", "timestamp"):
        return CURRENT_TIMESTAMP
    if base in _NO_DEFAULT:
        raise ValueError(f"{into.name!r} {type_sql(into)} cannot have a DEFAULT here")
    text = stored_text(evaluate(node, target.scope()), into)
    if text is None or base not in ("bit", "timestamp"):
        return text
    if base == "bit":
        return int(text)
    local = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(target.upstream.timezone))
    return moment_text(local.astimezone(UTC), into.decimal)


_Runner: TypeAlias = Callable[[Upstream, Any], Executed]

_STATEMENTS: Final[Mapping[type[exp.Expr], _Runner]] = {
    exp.Insert: _insert,
    exp.Update: _update,
    exp.Delete: _delete,
    exp.Alter: _alter,
}
