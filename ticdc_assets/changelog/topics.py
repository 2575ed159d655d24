"""Which tables a topic carries, and since when none of them exists.

In: the completed history (`registry.catalog`), whose parts say of each DDL the table before and
after it, with the topics each was seen in; and the tables whose rows and bootstraps a topic had.
Out: for each topic the tables that still exist and, if none does, the commit ts of the DDL that
ended the last one. It is computed again each time, so the order of arrival leaves no trace.

TiCDC sends watermarks only to the topics of tables that exist: after a DROP, or a RENAME to a name
of another topic, the old topic falls silent. A DDL goes to the topic of the table as it was before,
so a RENAME shows that its topic had the old name, and does not show the new name's. Nor do
bootstraps: they go to the topic that the table had first, whatever its name is since
(`tableStatistic` in pkg/sink/codec/bootstraper.go). DDL of databases goes to the default topic and
names no table; so do the bootstraps that Canal-JSON and Open Protocol send at a start, which are
DDL without a text or a name.

Names are compared without case, as upstream does.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ticdc_assets.registry.ddl.parts import name_in_text
from ticdc_assets.registry.ddl.statement import DdlKind
from ticdc_assets.registry.history import Name, RegisteredDdl, SchemaHistory, folded


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRows:
    """Rows or bootstraps of one table in one topic.

    Attributes:
        database: database cited; None for bootstraps that name no table.
        table: table cited; None likewise.
        min_ts: lowest commit ts; 0 for bootstraps, which have none.
        max_ts: highest commit ts; 0 for bootstraps.
    """

    topic: str
    database: str | None
    table: str | None
    min_ts: int
    max_ts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTables:
    """What one topic carries.

    Attributes:
        tables: how many of the tables seen in it still exist.
        retired_ts: commit ts of the DDL after which none exists, 0 for a default topic without any
            DDL; None while a table exists, and where only watermarks were ever seen.
    """

    tables: int
    retired_ts: int | None


@dataclass(slots=True)
class _Seen:
    names: set[Name] = field(default_factory=set[Name])
    newest_ddl: int = 0


def topic_tables(history: SchemaHistory, rows: Iterable[TopicRows]) -> Mapping[str, TopicTables]:
    """Return the tables of each topic that had a row, a bootstrap or a DDL."""
    seen: dict[str, _Seen] = {}
    newest_row: dict[Name, int] = {}
    names = [_names(ddl) for ddl in history.ddls]
    renamed = {after for before, after in names if before and before != after}
    # Bootstraps last: they count for tables without rows.
    for group in sorted(rows, key=lambda group: -group.max_ts):
        at = seen.setdefault(group.topic, _Seen())
        if group.database is None or group.table is None:
            continue
        name = folded((group.database, group.table))
        if group.max_ts == 0 and (name in renamed or newest_row.get(name)):
            continue
        at.names.add(name)
        newest_row[name] = max(newest_row.get(name, 0), group.max_ts)
    for ddl, (before, after) in zip(history.ddls, names, strict=True):
        for topic in {topic for topic, _ in ddl.copies} or {ddl.coordinates.topic}:
            at = seen.setdefault(topic, _Seen())
            # It went to the topic of the table as it was before.
            at.names |= {name for name in (before or after,) if name is not None}
            at.newest_ddl = max(at.newest_ddl, ddl.event.commit_ts)
    all_names = {name for at in seen.values() for name in at.names}
    ended: dict[Name, int] = {}
    for ddl, (before, after) in zip(history.ddls, names, strict=True):
        if ddl.kind is DdlKind.DROP_DATABASE:
            database = (ddl.statement.database or ddl.event.database).lower()
            ended |= {name: ddl.event.commit_ts for name in all_names if name[0] == database}
        elif before is not None and before != after:
            ended[before] = ddl.event.commit_ts
        if after is not None:
            ended.pop(after, None)
    gone = {name: ts for name, ts in ended.items() if newest_row.get(name, 0) <= ts}
    return {
        topic: TopicTables(
            tables=len(at.names - gone.keys()),
            retired_ts=(
                None
                if at.names - gone.keys()
                # Without any table it is a default topic: the module's text says what it gets.
                else max((gone[name] for name in at.names), default=at.newest_ddl)
            ),
        )
        for topic, at in seen.items()
    }


_WITHOUT_TABLES = frozenset({DdlKind.OTHER, DdlKind.DROP_DATABASE, DdlKind.EXCHANGE})
"""Kinds of DDL that name no table whose topic they go to.

An EXCHANGE PARTITION is of two tables, both of which stay: it may go to the topic of either.
"""
_MAKING = frozenset({DdlKind.CREATE, DdlKind.RECOVER})


def _names(ddl: RegisteredDdl) -> tuple[Name | None, Name | None]:
    """Return the names of the table of a part before and after it, None while it has none."""
    event = ddl.event
    if ddl.kind in _WITHOUT_TABLES:
        return None, None
    said = folded((event.database, event.table)) if event.table else None
    before = said if event.pre_schema is None else folded(event.pre_schema.name)
    after = said if event.schema is None else folded(event.schema.name)
    if ddl.kind in _MAKING:
        return None, after
    if ddl.kind is DdlKind.DROP:
        return before, None
    if ddl.kind is DdlKind.RENAME and event.pre_schema is None and ddl.statement.renames:
        # A table that no message has shown.
        before = folded(name_in_text(ddl.statement.renames[0].old, event.database))
    return before, after
