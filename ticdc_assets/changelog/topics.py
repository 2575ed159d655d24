"""Which tables a topic carries, and how many of them still exist.

In: the DDL history, with the topics each DDL was seen in, and the tables whose rows and bootstraps
a topic had. Out: for each topic how many of its tables still exist. It is computed again each time,
so the order of arrival leaves no trace.

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
from itertools import groupby
from typing import Any

from ticdc_assets.registry.ddl_parts import all_parts, name_in_text
from ticdc_assets.registry.ddl_statement import DdlKind
from ticdc_assets.registry.history import Name, RegisteredDdl, folded, of_one_partition
from ticdc_assets.registry.renames import Rename, settle


def topic_tables(
    ddls: Iterable[RegisteredDdl], rows: Iterable[Mapping[str, Any]]
) -> dict[str, int]:
    """Return how many tables of each topic exist that had a row, a bootstrap or a DDL.

    A topic without any had DDL or bootstraps that name none: it is a default topic, see the module.

    Args:
        ddls: the DDL history.
        rows: the groups of rows and bootstraps in the change log; these have no commit ts, and
            some name no table.
    """
    ordered = sorted(ddls, key=lambda ddl: ddl.order)
    history = [part for parts in all_parts(ordered) for part in parts]
    seen: dict[str, set[Name]] = {}
    oldest_row: dict[Name, int] = {}
    newest_row: dict[Name, int] = {}
    renamed = {new for ddl in history for _, new in _renames(ddl)}
    # Bootstraps last: they count for tables without rows.
    for group in sorted(rows, key=lambda group: -(group["max_ts"] or 0)):
        names = seen.setdefault(group["topic"], set())
        if group["database"] is None or group["table"] is None:
            continue
        name = folded((group["database"], group["table"]))
        first, last = group["min_ts"] or 0, group["max_ts"] or 0
        if last == 0 and (name in renamed or newest_row.get(name)):
            continue
        names.add(name)
        oldest_row[name] = min(oldest_row.get(name, first), first)
        newest_row[name] = max(newest_row.get(name, 0), last)
    for ddl in history:
        for topic in {topic for topic, _ in ddl.copies} or {ddl.coordinates.topic}:
            seen.setdefault(topic, set()).update(_concerned(ddl))
    ended = _ended(history, set[Name]().union(*seen.values()), oldest_row)
    gone = {name for name, ts in ended.items() if newest_row.get(name, 0) <= ts}
    return {topic: len(names - gone) for topic, names in seen.items()}


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
    """Return the (old, new) names of a DDL."""
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
