"""Which tables a topic carries, and since when none of them exists.

In: the DDL history, with the topics each DDL was seen in, and the tables whose rows and bootstraps
a topic had. Out: for each topic the tables that still exist and, if none does, the commit ts of the
DDL that ended the last one. It is computed again each time, so the order of arrival leaves no
trace.

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
from itertools import groupby

from ticdc_assets.registry.ddl.parts import all_parts, name_in_text
from ticdc_assets.registry.ddl.statement import DdlKind
from ticdc_assets.registry.history import Name, RegisteredDdl, folded, of_one_partition
from ticdc_assets.registry.renames import Rename, settle


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


def topic_tables(
    ddls: Iterable[RegisteredDdl], rows: Iterable[TopicRows]
) -> Mapping[str, TopicTables]:
    """Return the tables of each topic that had a row, a bootstrap or a DDL."""
    ordered = sorted(ddls, key=lambda ddl: ddl.order)
    history = [part for parts in all_parts(ordered) for part in parts]
    seen: dict[str, _Seen] = {}
    oldest_row: dict[Name, int] = {}
    newest_row: dict[Name, int] = {}
    renamed = {new for ddl in history for _, new in _renames(ddl)}
    # Bootstraps last: they count for tables without rows.
    for group in sorted(rows, key=lambda group: -group.max_ts):
        at = seen.setdefault(group.topic, _Seen())
        if group.database is None or group.table is None:
            continue
        name = folded((group.database, group.table))
        if group.max_ts == 0 and (name in renamed or newest_row.get(name)):
            continue
        at.names.add(name)
        oldest_row[name] = min(oldest_row.get(name, group.min_ts), group.min_ts)
        newest_row[name] = max(newest_row.get(name, 0), group.max_ts)
    for ddl in history:
        for topic in {topic for topic, _ in ddl.copies} or {ddl.coordinates.topic}:
            at = seen.setdefault(topic, _Seen())
            at.names |= _concerned(ddl)
            at.newest_ddl = max(at.newest_ddl, ddl.event.commit_ts)
    known = {name for at in seen.values() for name in at.names}
    ended = _ended(history, known, oldest_row)
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


def _ended(
    history: list[RegisteredDdl], known: set[Name], oldest_row: Mapping[Name, int]
) -> dict[Name, int]:
    """Return the tables that have ended, with the commit ts of their end."""
    ended: dict[Name, int] = {}
    exists: dict[Name, bool] = {}
    for commit_ts, together in groupby(history, key=lambda ddl: ddl.event.commit_ts):
        # All DDL of one commit ts is one moment; across topics its order is not known.
        ddls = list(together)
        after = dict.fromkeys((name for ddl in ddls for name in _gone(ddl, known)), False)
        after |= dict.fromkeys((name for ddl in ddls for name in _made(ddl)), True)
        pairs = list(dict.fromkeys(Rename(*pair) for ddl in ddls for pair in sorted(_renames(ddl))))
        names = {name for pair in pairs for name in (pair.old, pair.new)}
        present = {
            name: name
            for name in names
            if exists.get(name, name in oldest_row and oldest_row[name] <= commit_ts)
        }
        if pairs:
            settled = settle(pairs, present, in_order=of_one_partition(ddls))
            last = {settled.tables[number]: pairs[number].new for number in settled.order}
            after |= {name: name in last.values() for name in names}
        exists |= after
        for name, there in after.items():
            if there:
                ended.pop(name, None)
            else:
                ended[name] = commit_ts
    return ended


_WITHOUT_TABLES = frozenset({DdlKind.OTHER, DdlKind.DROP_DATABASE, DdlKind.EXCHANGE})
"""Kinds of DDL that name no table whose topic they go to.

An EXCHANGE PARTITION is of two tables, both of which stay: it may go to the topic of either.
"""
_MAKING = frozenset({DdlKind.CREATE, DdlKind.RECOVER})


def _concerned(ddl: RegisteredDdl) -> set[Name]:
    """Return the tables by whose names a DDL was sent to its topic: as they were before it."""
    event = ddl.event
    if ddl.kind in _WITHOUT_TABLES:
        return set()
    if event.pre_schema is not None:
        return {folded(event.pre_schema.name)}
    if ddl.kind is DdlKind.RENAME and ddl.beyond_schemas.renames:
        return {old for old, _ in _renames(ddl)}
    if event.schema is not None:
        return {folded(event.schema.name)}
    return {folded((event.database, event.table))} if event.table else set()


def _renames(ddl: RegisteredDdl) -> set[tuple[Name, Name]]:
    event = ddl.event
    if ddl.kind is not DdlKind.RENAME:
        return set()
    if event.pre_schema is not None and event.schema is not None:
        return {(folded(event.pre_schema.name), folded(event.schema.name))}
    return {
        (
            folded(name_in_text(rename.old, event.database)),
            folded(name_in_text(rename.new, event.database)),
        )
        for rename in ddl.beyond_schemas.renames
    }


def _gone(ddl: RegisteredDdl, known: set[Name]) -> set[Name]:
    statement = ddl.beyond_schemas
    if ddl.kind is DdlKind.DROP_DATABASE and statement.database is not None:
        database = statement.database.lower()
        return {name for name in known if name[0] == database}
    return _concerned(ddl) if ddl.kind is DdlKind.DROP else set()


def _made(ddl: RegisteredDdl) -> set[Name]:
    event, statement = ddl.event, ddl.beyond_schemas
    if ddl.kind in _WITHOUT_TABLES or ddl.kind is DdlKind.DROP:
        return set()
    if event.schema is not None:
        return {folded(event.schema.name)}
    if ddl.kind not in _MAKING:
        return set()
    # FLASHBACK TABLE ... TO brings a table back under another name.
    brought = {folded(name_in_text(item.new, event.database)) for item in statement.renames}
    named = {folded((event.database, event.table))} if event.table else set[Name]()
    return brought or named | {
        folded(name_in_text(item, event.database)) for item in statement.tables
    }
