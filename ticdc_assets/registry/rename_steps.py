"""The steps of the renames of one statement: names before and after, and which table it is.

In: the renames of one commit ts, as parts (`registry.ddl_parts`), and the tables of that moment.
Out: for each part with names, its old name, its new name and the id of its table. The names are
those of the schemas, where a message has them, else those of the text; the id is that of a schema,
or of the table that the history knows under the name. `registry.renames` computes the order. Pure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ticdc_assets.model.schemas import NO_TABLE_ID
from ticdc_assets.registry.ddl_parts import name_in_text
from ticdc_assets.registry.history import Name, RegisteredDdl, folded
from ticdc_assets.registry.known_tables import KnownTables


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One step of a rename.

    Attributes:
        part: its part.
        old: the name before it.
        new: the name after it.
        table_id: the id of its table, None where neither a message nor the history has one.
        notes: what is uncertain about it.
    """

    part: RegisteredDdl
    old: Name
    new: Name
    table_id: int | None
    notes: tuple[str, ...] = ()


def moves_of(parts: Iterable[RegisteredDdl], tables: KnownTables) -> list[Move]:
    """Return the steps of renames; a part without names has none."""
    moves = _with_ids([move for part in parts if (move := _move(part, tables)) is not None])
    known = _tables_meant(moves, tables)
    return [replace(move, table_id=known.get(move.table_id)) for move in moves]


def _move(part: RegisteredDdl, tables: KnownTables) -> Move | None:
    """Return the names and the id of the table that a part renames, None without names."""
    event = part.event
    before, after = event.pre_schema, event.schema
    pair = next(iter(part.statement.renames), None)
    sent_ids = [
        schema.table_id
        for schema in (before, after)
        if schema is not None and schema.table_id != NO_TABLE_ID
    ]
    table_id = sent_ids[0] if sent_ids else None
    notes: tuple[str, ...] = ()
    if after is not None:
        new: Name = after.name
    elif pair is not None:
        new = name_in_text(pair.new, event.database)
        said = (event.database, event.table)
        new = said if folded(new) == folded(said) else new
    else:
        return None
    known = None if table_id is None else tables.identified(table_id)
    if before is not None:
        old: Name = before.name
    elif pair is not None:
        old = name_in_text(pair.old, event.database)
        moves_database = pair.old.database is None and pair.new.database is not None
        if moves_database and tables.find(old) is None:
            # The session's database, which the text leaves out, is not that of the new name.
            if known is not None:
                old = known.name
            elif (other := tables.elsewhere(old)) is not None:
                old = other.name
                notes = ("RENAME does not say in which database the table was",)
    elif known is not None:
        old = known.name
    else:
        return None
    return Move(part=part, old=old, new=new, table_id=table_id, notes=notes)


def _with_ids(moves: Sequence[Move]) -> list[Move]:
    """Return steps with the ids that other steps of the statement have of the same table.

    The name in the middle of a cyclic rename was sent without an id: the step that leaves it has
    the id.
    """
    result: list[Move] = []
    for move in moves:
        leaving = {
            other.table_id
            for other in moves
            if folded(other.old) == folded(move.new) and other.table_id is not None
        }
        lacks_id = move.table_id is None and move.part.event.schema is not None
        if lacks_id and len(leaving) == 1:
            move = replace(move, table_id=leaving.pop())
        result.append(move)
    return result


def _tables_meant(moves: Sequence[Move], tables: KnownTables) -> dict[int | None, int]:
    """Return for each id that was sent the id by which the history knows the table.

    A new id belongs to the table of its name, unless that table is renamed too: an EXCHANGE
    PARTITION or a TRUNCATE without a message gave it another id.
    """
    cited = {move.table_id for move in moves}
    meant: dict[int | None, int] = {}
    for move in moves:
        if move.table_id is None or tables.identified(move.table_id) is not None:
            continue
        named = tables.find(move.old)
        if named is not None and named.table_id not in cited:
            meant.setdefault(move.table_id, named.table_id)
    return {table_id: meant.get(table_id, table_id) for table_id in cited if table_id is not None}
