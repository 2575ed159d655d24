"""From DDL as sent to parts: what each statement does to one table.

In: the DDL of one commit ts, as sent. Out: their parts, in the order in which they take effect: one
for each table that a statement of a text concerns, with its kind, its statement, and its schemas as
sent.

The text decides what a statement is. The word or code next to it counts only without a readable
text: TiCDC sends CREATE TABLE of a batch as QUERY, EXCHANGE PARTITION as QUERY or ALTER, and its
codes grow with TiDB. All statements of a text count, and all tables of a statement: `DROP TABLE a,
b` and `RENAME TABLE a TO b, c TO d` are two parts each, whether one message brings them or one a
table.

It is a pure function, so replays and copies give the same parts.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.registry.ddl.statement import DdlAction, DdlKind, DdlStatement, TableName
from ticdc_assets.registry.history import (
    RegisteredDdl,
    exchange_of,
    folded,
    is_snapshot,
    named_by_text,
)

_KINDS: Final[Mapping[DdlAction, DdlKind]] = {
    DdlAction.CREATE_TABLE: DdlKind.CREATE,
    DdlAction.CREATE_TABLE_LIKE: DdlKind.CREATE,
    DdlAction.DROP_TABLE: DdlKind.DROP,
    DdlAction.TRUNCATE_TABLE: DdlKind.TRUNCATE,
    DdlAction.RENAME_TABLE: DdlKind.RENAME,
    DdlAction.ALTER_TABLE: DdlKind.ALTER,
    DdlAction.CREATE_INDEX: DdlKind.ALTER,
    DdlAction.DROP_INDEX: DdlKind.ALTER,
    DdlAction.RECOVER_TABLE: DdlKind.RECOVER,
    DdlAction.FLASHBACK_TABLE: DdlKind.RECOVER,
    DdlAction.DROP_DATABASE: DdlKind.DROP_DATABASE,
}
_KINDS_OF_WORDS: Final[Mapping[str, DdlKind]] = {
    "CREATE": DdlKind.CREATE,
    "ERASE": DdlKind.DROP,
    "TRUNCATE": DdlKind.TRUNCATE,
    "RENAME": DdlKind.RENAME,
    "ALTER": DdlKind.ALTER,
    "CINDEX": DdlKind.ALTER,
    "DINDEX": DdlKind.ALTER,
}


def parts_of(ddls: Sequence[RegisteredDdl]) -> list[RegisteredDdl]:
    """Return the parts of the DDL of one commit ts, in the order in which they take effect.

    Renames come first: events of one commit ts in several topics have no order. Several statements
    of one text, and statements of one millisecond that cite no commit ts, stay as they are.
    """
    of_ddls = [_parts(ddl) for ddl in ddls]
    parts = of_ddls[0] if len(of_ddls) == 1 else _once(of_ddls)
    if any(ddl.event.es_only or len(ddl.statements_beyond_schemas) > 1 for ddl in ddls):
        return parts
    return sorted(parts, key=lambda part: part.kind is not DdlKind.RENAME)


def name_in_text(name: TableName, database: str) -> tuple[str, str]:
    """Return a name of a text; an unqualified name is in `database`."""
    return (database if name.database is None else name.database, name.table)


def recovered_name(ddl: RegisteredDdl) -> tuple[str, str] | None:
    """Return the old name of the table that a RECOVER or FLASHBACK brings back, if it says one."""
    statement = ddl.statement
    old = statement.renames[0].old if statement.renames else next(iter(statement.tables), None)
    return None if old is None else name_in_text(old, ddl.event.database)


def _parts(ddl: RegisteredDdl) -> list[RegisteredDdl]:
    if is_snapshot(ddl.event):
        return [replace(ddl, kind=DdlKind.SNAPSHOT, of_table=ddl.statements_beyond_schemas[0])]
    of_tables = [
        item for statement in ddl.statements_beyond_schemas for item in _of_tables(statement)
    ]
    # Other statements choose a database for the session and the like.
    understood = [item for item in of_tables if item.action is not DdlAction.UNKNOWN]
    if len(of_tables) == 1 or not understood:
        statement = of_tables[0]
        word = ddl.event.ddl_type
        kind = _kind(statement) or _KINDS_OF_WORDS.get(word, DdlKind.OTHER)
        return [_named(replace(ddl, kind=kind, of_table=statement))]
    return [_about(ddl, statement, _kind(statement) or DdlKind.OTHER) for statement in understood]


def _of_tables(statement: DdlStatement) -> list[DdlStatement]:
    """Return a statement for each of the tables that it drops or renames, else itself."""
    if statement.action is DdlAction.DROP_TABLE and len(statement.tables) > 1:
        return [
            replace(statement, database=name.database, table=name.table, tables=(name,))
            for name in statement.tables
        ]
    if statement.action is DdlAction.RENAME_TABLE and len(statement.renames) > 1:
        return [
            replace(
                statement,
                database=pair.old.database,
                table=pair.old.table,
                tables=(pair.old,),
                renames=(pair,),
            )
            for pair in statement.renames
        ]
    return [statement]


def _kind(statement: DdlStatement) -> DdlKind | None:
    """Return the kind of a statement; None if the text is not understood."""
    if statement.action is DdlAction.UNKNOWN:
        return None
    kind = _KINDS.get(statement.action, DdlKind.OTHER)
    if kind is DdlKind.ALTER:
        if statement.renames:
            return DdlKind.RENAME
        if exchange_of(statement) is not None:
            return DdlKind.EXCHANGE
    return kind


def _named(part: RegisteredDdl) -> RegisteredDdl:
    """Return the only part of a DDL under the name of its table in the text."""
    event, statement = part.event, part.statement
    schema = event.schema and named_by_text(event.schema, statement)
    if schema is not None and schema is not event.schema:
        named = replace(event, schema=schema, database=schema.database, table=schema.table)
        return replace(part, event=named)
    if event.table or statement.table is None or part.kind in _WITHOUT_TABLE:
        return part
    name = TableName(database=statement.database, table=statement.table)
    if statement.renames:
        name = statement.renames[0].new
    database, table = name_in_text(name, event.database)
    return replace(part, event=replace(event, database=database, table=table))


_WITHOUT_TABLE: Final = frozenset({DdlKind.DROP_DATABASE, DdlKind.OTHER})


def _about(ddl: RegisteredDdl, statement: DdlStatement, kind: DdlKind) -> RegisteredDdl:
    """Return the part of one table of a DDL that concerns several."""
    event = ddl.event
    name = subject = TableName(database=statement.database, table=statement.table or "")
    if statement.renames:
        name = statement.renames[0].new
    database, table = name_in_text(name, event.database)

    def of_its_table(schema: TableSchema | None, names: Sequence[TableName]) -> TableSchema | None:
        said = {folded(name_in_text(item, event.database)) for item in names}
        is_own = schema is not None and folded(schema.name) in said
        return schema if is_own else None

    schema = of_its_table(event.schema, [name])
    # A schema after, where one is sent, says to which part the schema before belongs.
    has_own = schema is not None or event.schema is None
    pre_schema = of_its_table(event.pre_schema, [subject, name]) if has_own else None
    if schema is not None:
        database, table = schema.database, schema.table
    elif event.table and folded((database, table)) == folded((event.database, event.table)):
        database, table = event.database, event.table
    own_event = replace(event, database=database, table=table, schema=schema, pre_schema=pre_schema)
    return replace(ddl, event=own_event, kind=kind, of_table=statement)


def _once(of_ddls: Iterable[Sequence[RegisteredDdl]]) -> list[RegisteredDdl]:
    """Return each of the parts of DDL once: of several copies the one with the schemas.

    Some senders give every table of a statement an event of its own with the whole text. After an
    upgrade the new TiCDC may send a DDL again that the old one sent, in other words, and for an
    EXCHANGE PARTITION under the name of the other table. TiDB finishes one statement about a table
    at a commit ts, so copies are known by what they concern: no text has to equal another.
    """
    first_copies: dict[object, RegisteredDdl] = {}
    for parts in of_ddls:
        in_text = Counter[object]()
        for part in parts:
            meaning = (part.kind, _meaning(part))
            in_text[meaning] += 1
            key = (meaning, in_text[meaning])
            other = first_copies.setdefault(key, part)
            if other is not part:
                better = part if _said(part) > _said(other) else other
                first_copies[key] = replace(better, copies=other.copies | part.copies)
    return list(first_copies.values())


def _meaning(part: RegisteredDdl) -> object:
    """Return what is equal for copies of a part, besides its kind."""
    event, statement = part.event, part.statement
    own_name = folded((event.database, event.table))
    # Of two exports at one TSO the later counts.
    if is_snapshot(event):
        return own_name, event.sql

    def meant(name: TableName) -> tuple[str, str]:
        return folded(name_in_text(name, event.database))

    named = own_name
    if statement.table is not None and statement.unparsed is None:
        named = meant(TableName(database=statement.database, table=statement.table))
    renames = tuple((meant(pair.old), meant(pair.new)) for pair in statement.renames)
    if not event.es_only:
        return named, renames
    # A millisecond may have several statements about a table.
    return named, renames, replace(statement, database=None, table=None, tables=(), renames=())


def _said(part: RegisteredDdl) -> tuple[int, bool]:
    """Return how much a part says: its schemas, and whether all of its text was understood."""
    sent = sum(item is not None for item in (part.event.schema, part.event.pre_schema))
    return sent, part.statement.unparsed is None
