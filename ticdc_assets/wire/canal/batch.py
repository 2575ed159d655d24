"""The hot path of Canal-JSON.

In: record batches with a column `value`. Out: the rows of watermarks and of changes of one row,
equal to those of `reference.decode`, to the last byte. The reference reads all others: DDL, the
messages of several rows of the official Canal, and everything that is refused. The result depends
on the records alone.

How it stays equal: both readers use the same tables of fields (`reference.FIELDS`), texts are the
strict JSON that `go_json` reads (`tape.token_loops`), and the functions of the reference read what
a message says of its table, once for all messages with equal content (`table_loops`).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ticdc_assets.base.errors import WireError
from ticdc_assets.model.json_fields import read_names
from ticdc_assets.model.schemas import RowShape
from ticdc_assets.model.tso import LOGICAL_BITS
from ticdc_assets.wire.canal import reference, table_loops
from ticdc_assets.wire.canal.reference import EXTENSION, FIELDS, WATERMARK_TYPE, Columns
from ticdc_assets.wire.codes import Spelling
from ticdc_assets.wire.rows import SourcedRows, row_columns
from ticdc_assets.wire.tape.image_loops import ROOT
from ticdc_assets.wire.tape.json_loops import Flags, Octets, Places
from ticdc_assets.wire.tape.reading import (
    Checked,
    ColumnList,
    ImageLists,
    Rules,
    Shapes,
    Tape,
    chosen_of,
    numbered,
    tape_of,
    values_of,
    workspace,
)
from ticdc_assets.wire.tape.token_loops import FALSE, NONE

_WORDS: Final = (*reference.OPS, WATERMARK_TYPE)
_INSERT, _UPDATE, _DELETE, _WATERMARK = range(len(_WORDS))
_RULES: Final = Rules.of(
    *(FIELDS[word] for word in _WORDS), besides=("isDdl", "type", "es", "_tidb")
)
_EXTENSION: Final = Rules.of(*(EXTENSION[word] for word in _WORDS))
_PLAIN: Final = Rules.of(reference.WITHOUT_EXTENSION)
_DESCRIBING: Final = ("database", "table", "pkNames", "sqlType")
"""The members that describe a table, besides the types of its columns."""
_GROWTH: Final = 3
"""How many times its own length an image grows at most."""


def decode_exact(batch: pa.RecordBatch) -> SourcedRows:
    """Return the rows of those records of `batch` that are changes of one row and watermarks."""
    texts = values_of(batch)
    tape, members = tape_of(texts, _RULES, workspace("value"))
    is_ddl, words, es, extensions, *_ = members
    types = np.where(tape.kinds(is_ddl) == FALSE, tape.words(words, _WORDS), NONE)
    checked = tape.checked(members, types, _RULES)
    good, extended = checked.good, extensions >= 0
    extension = tape.checked_inside(checked, "_tidb", types, _EXTENSION)
    plain = tape.checked(es[np.newaxis], np.where(extended, NONE, 0), _PLAIN)
    good &= np.where(extended, extension.good, plain.good & (types != _WATERMARK))

    data, old = (_only_rows(tape, checked, name, good) for name in ("data", "old"))
    marks = types == _WATERMARK
    good &= marks | (data >= 0)
    # In a DELETE it may be there, and equal `data`.
    good &= (old >= 0) == (types == _UPDATE)
    good &= (checked.values["old"] >= 0) == (types == _UPDATE)

    lists = ImageLists(tape)
    described = np.where(good & ~marks, checked.values["mysqlType"], NONE).astype(np.int32)
    firsts = _begun_at_tables(lists, checked, described)
    good &= marks | (firsts >= 0)
    deleted = types == _DELETE
    after = lists.members(np.where(good & ~deleted, data, NONE), firsts)
    before = lists.members(np.where(good, np.where(deleted, data, old), NONE), firsts)
    good &= after.good & before.good
    location = tape.filled_strings(extension.values["claimCheckLocation"])
    cut = tape.is_true(extension.values["onlyHandleKey"]) | np.asarray(location.is_valid())

    shapes = Shapes.of(lists, after, before, cut | deleted, good & ~marks, _shape)
    good &= marks | (shapes.which >= 0)
    ways = _ways(lists)
    most = _GROWTH * len(texts.octets)
    (after_texts, _), (before_texts, _) = lists.written((after, before), ways, most)
    good &= after.good & before.good

    chosen = np.flatnonzero(good)
    own_marks = marks[chosen]
    es_only = ~extended[chosen]
    commit_ts = np.where(
        es_only, plain.of("es", chosen) << LOGICAL_BITS, extension.of("commitTs", chosen)
    )
    columns = row_columns(
        ~own_marks,
        op=types[chosen],
        commit_ts=pa.array(np.where(own_marks, extension.of("watermarkTs", chosen), commit_ts)),
        build_ts_ms=checked.numbers("ts", chosen),
        database=_names(lists, "database", firsts[chosen]),
        table=_names(lists, "table", firsts[chosen]),
        before=chosen_of(before_texts, chosen),
        after=chosen_of(after_texts, chosen),
        handle_key_only=cut[chosen],
        claim_check_location=chosen_of(location, chosen),
        shape=shapes.column(chosen),
        es_only=es_only,
    )
    return SourcedRows.of(batch, chosen, columns)


def _only_rows(tape: Tape, checked: Checked, name: str, good: Flags) -> Places:
    """Return the node of the one row in an array, `NONE` if there is no array or another count."""
    at = checked.values[name]
    inner = np.minimum(at + 1, len(tape.nodes) - 1)
    has_one = good & (at >= 0) & (inner < tape.nodes["next"][at])
    has_one &= tape.nodes["next"][inner] == tape.nodes["next"][at]
    return np.where(has_one, inner, NONE).astype(np.int32)


@dataclass(frozen=True, eq=False)
class _Table:
    """A table as messages describe it."""

    database: str
    table: str
    primary_key: tuple[str, ...] | None
    columns: Columns

    @cached_property
    def ways(self) -> dict[str, int]:
        """The way of each column, by its name."""
        return {
            name: Spelling.LATIN1 if reference.is_binary_type(mysql_type) else Spelling.NUMBER
            for name, mysql_type in self.columns.types.items()
        }


def _begun_at_tables(lists: ImageLists, checked: Checked, types: Places) -> Places:
    """Let lists, which have no column so far, begin at the tables that messages describe.

    Returns the column of each table, `NONE` where no table has such a description. `types` are the
    nodes of the types, `NONE` for a message without a table.
    """
    tape = lists.tape
    parts = np.stack([checked.values[name].astype(np.int32) for name in _DESCRIBING])
    # Each type is a name and a value.
    sizes = np.where(types < 0, 0, tape.nodes["next"][types] - types)
    lasts = np.empty(len(types), np.int32)
    table_loops.described(
        tape.texts.octets,
        tape.nodes,
        parts,
        types,
        lists.room,
        np.empty(2 * int(sizes.max(initial=0)) + 8, table_loops.TYPE),
        lasts,
    )
    columns, which = numbered(lasts)
    # Messages with the same last column have the same description.
    one = np.empty(len(columns), np.int64)
    one[which] = np.arange(len(which))
    tables = {
        column: _table(tape, [*parts[:, message].tolist(), int(types[message])])
        for column, message in zip(columns, one.tolist(), strict=True)
        if column >= 0
    }
    lists.begin_at(tables)
    refused = np.array([tables.get(column) is None for column in columns], np.bool_)
    return np.where(refused[which], NONE, lasts).astype(np.int32)


def _names(lists: ImageLists, name: str, columns: Places) -> "pa.Array[Any]":
    """Return a name of the table of each column at which lists begin, null for `NONE`."""
    distinct, which = numbered(columns)
    names = [getattr(lists.tables.get(column), name, None) for column in distinct]
    return pa.array(names, pa.string()).take(pa.array(which))


def _ways(lists: ImageLists) -> Octets:
    """Return the way of each column of the lists that begin at tables."""
    column_ways = np.full(len(lists.columns), Spelling.REFUSED, np.uint8)
    ways: list[Mapping[str, int]] = []
    for column, (before, _, name) in enumerate(lists.described):
        table: _Table | None = lists.tables.get(column)
        # A column comes after its predecessor.
        table_ways: Mapping[str, int] = {} if column == ROOT else ways[before]
        column_ways[column] = table_ways.get(name, Spelling.REFUSED)
        ways.append(table_ways if table is None else table.ways)
    return column_ways


def _table(tape: Tape, nodes: list[int]) -> _Table | None:
    """Return the table that a message describes by these nodes."""
    database, table, primary_key, rank, types = map(tape.bytes_at, nodes)
    members = frozenset(_parse(types).items())
    # Of two equal names the last counts, and which is last depends on the order.
    if len(members) < int(tape.nodes["next"][nodes[-1]] - nodes[-1]) // 2:
        return None
    return _table_said(database, table, primary_key, rank, members)


@lru_cache(maxsize=1000)
def _table_said(
    database: bytes,
    table: bytes,
    primary_key: bytes,
    rank: bytes,
    types: frozenset[tuple[str, str]],
) -> _Table | None:
    """Return the table of a description: one object, whatever the order of its types."""
    own_key = _parse(primary_key)
    try:
        return _Table(
            _parse(b'"%s"' % database),
            _parse(b'"%s"' % table),
            None if own_key is None else read_names(own_key, ""),
            Columns.of(reference.read_types(dict(types), ""), _parse(rank) or {}),
        )
    except WireError:
        return None


def _no_text(_number: str) -> None:
    """Return the text of a number among texts."""


_DECODER: Final = json.JSONDecoder(parse_int=_no_text, parse_float=_no_text)


def _parse(text: bytes) -> Any:
    return _DECODER.decode(text.decode())


def _shape(after: ColumnList, before: ColumnList, is_partial: bool) -> RowShape | None:
    # Both lists begin at the table of the row.
    table: _Table = after.table
    if not table.columns.types.keys() >= {*after.names, *before.names}:
        return None
    return reference.row_shape(
        table.columns.ordered(dict.fromkeys(before.names), dict.fromkeys(after.names)),
        table.columns.types,
        primary_key=table.primary_key,
        partial=is_partial,
    )
