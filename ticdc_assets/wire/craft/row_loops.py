"""Compiled loops for Craft: the rows of messages, and the columns of their images.

In: messages whose layout is the table in `layout`. Out: rows with the places of their column
groups, and the columns of these for `tape.image_loops`, as nodes; the label of a column is its type
code and its flags. A message that is not one of rows as TiCDC writes them has no rows.

Sizes must add up as in the reference, so no range runs over another.
"""

# Compiled, numpy's integers are what a variable of an integer is.
# pyright: reportArgumentType=false, reportReturnType=false

from typing import Final

import numpy as np

from ticdc_assets.base.compiled import compiled, inlined
from ticdc_assets.wire.binary.node_loops import (
    COLUMN_BYTES,
    MORE,
    NULL_NODE,
    USED_NODES,
    USED_WRITTEN,
    Target,
    bytes_put,
    float_put,
    integer_put,
    number_put,
    signed,
    text_put,
    uvarint,
    varint,
)
from ticdc_assets.wire.codes import Form
from ticdc_assets.wire.tape.image_loops import ROOT, Columns, Images, column_of
from ticdc_assets.wire.tape.json_loops import ONE, Octets, Places, Texts
from ticdc_assets.wire.tape.token_loops import ESCAPED, NONE, Nodes

ROW: Final = np.dtype(
    [
        ("commit_ts", np.int64),
        ("table_id", np.int64),
        *((name, np.int32) for name in ("record", "index", "database", "table")),
        *((name, np.int32) for name in ("after", "after_end", "before", "before_end")),
        *((name, np.int32) for name in ("terms", "term_count")),
    ]
)
"""A row.

Its commit ts and its table id, -1 for none; the number of its record, and its number there; the
nodes of its database and its table; where its column groups begin, -1 for none, and end; the node
of the first term of its message, and how many follow one another.
"""

ROW_BYTES: Final = 8
"""The fewest bytes of a row: five in the headers, a size, and a table of one size."""

FLAGS_SHIFT: Final = 8
"""Where flags are in a label, after the type code."""

_VERSION, _ROW_KIND, _AFTER, _BEFORE = 1, 1, 1, 2
_MOST_NAME_BYTES: Final = 256
_LONGEST_LENGTH: Final = 3


@inlined
def _skipped(octets: Octets, at: int, count: int, end: int) -> int:
    """Return the place after so many numbers."""
    if at < 0 or count > end - at:
        return -1
    while count > 0 and at < end:
        count -= octets[at] < MORE
        at += 1
    return at if count == 0 else -1


@inlined
def _tables(octets: Octets, start: int, end: int) -> tuple[int, int]:
    """Return where the size tables begin and end; their length ends the message, reversed."""
    length, shift, at = np.int64(0), 0, end
    while at > start and end - at < _LONGEST_LENGTH:
        at -= 1
        length |= (np.int64(octets[at]) & 0x7F) << shift
        shift += 7
        if octets[at] < MORE:
            return (at - length, at) if length <= at - start else (-1, -1)
    return -1, -1


@inlined
def _terms_put(target: Target, at: int, end: int) -> int:
    """Put the terms of a message on the tape, and return how many there are; -1 if not all are."""
    octets = target.octets
    count, at = uvarint(octets, at, end)
    if at < 0 or count > np.uint64(end - at):
        return -1
    terms = np.int64(count)
    text = _skipped(octets, at, terms, end)
    for _ in range(terms):
        size, at = uvarint(octets, at, end)
        if at < 0 or text < 0 or size > np.uint64(end - text):
            return -1
        node = text_put(target, text, text + np.int64(size), True)
        if node < 0:
            return -1
        text += np.int64(size)
        written = target.nodes[node].end - target.nodes[node].start
        if written > _MOST_NAME_BYTES:
            return -1
        if written != np.int64(size):
            # It is to be unescaped where it is no name of a column.
            target.nodes[node].kind = ESCAPED
    return terms if text == end else -1


@inlined
def _is_empty(target: Target, node: int) -> bool:
    return target.nodes[node].start == target.nodes[node].end


@compiled
def rows_found(texts: Texts, target: Target, rows: Nodes) -> int:
    """Find the rows of messages, and return how many there are.

    `target` gets their terms, `rows` the `ROW` of each, of which there is room for one in
    `ROW_BYTES`.
    """
    _, starts, ends = texts
    count = np.int64(0)
    for record in range(len(starts)):
        row_count = _rows_of(target, starts[record], ends[record], record, rows, count)
        count += max(row_count, 0)
    return count


@compiled
def _rows_of(target: Target, start: int, end: int, record: int, rows: Nodes, first: int) -> int:
    """Find the rows of a message, and return how many there are; -1 for another message."""
    octets, size = target.octets, end - start
    if size < 1 or octets[start] != _VERSION:
        return -1
    tables, tables_end = _tables(octets, start + 1, end)
    two, at = uvarint(octets, tables, tables_end)
    headers_size, at = varint(octets, at, tables_end)
    difference, at = varint(octets, at, tables_end)
    terms_size = headers_size + difference
    many, at = uvarint(octets, at, tables_end)
    if at < 0 or two != 2 or not 0 < many <= np.uint64(size):
        return -1
    if not 0 <= headers_size <= size or not 0 <= terms_size <= size:
        return -1
    count = np.int64(many)
    body, bodies_end = start + 1 + headers_size, tables - terms_size
    if body > bodies_end:
        return -1
    sizes, groups = at, _skipped(octets, at, count, tables_end)
    moments, headers_end = start + 1, body
    kinds = _skipped(octets, moments, count, headers_end)
    ids = _skipped(octets, kinds, count, headers_end)
    databases = _skipped(octets, ids, count, headers_end)
    names = _skipped(octets, databases, count, headers_end)
    if groups < 0 or _skipped(octets, names, count, headers_end) != headers_end:
        return -1
    first_term = target.used[USED_NODES]
    terms = _terms_put(target, bodies_end, tables)
    commit_ts, table_id, database, table = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    body_size = np.int64(0)
    for index in range(count):
        delta, moments = uvarint(octets, moments, headers_end)
        commit_ts += np.int64(delta)
        kind, kinds = uvarint(octets, kinds, headers_end)
        step, ids = varint(octets, ids, headers_end)
        table_id += step
        step, databases = varint(octets, databases, headers_end)
        database += step
        step, names = varint(octets, names, headers_end)
        table += step
        step, sizes = varint(octets, sizes, tables_end)
        body_size += step
        parts, groups = uvarint(octets, groups, tables_end)
        one, groups = varint(octets, groups, tables_end)
        two_size = np.int64(0)
        if parts == 2:
            step, groups = varint(octets, groups, tables_end)
            two_size = one + step
        if min(moments, kinds, ids, databases, names, sizes, groups) < 0:
            return -1
        if commit_ts < 0 or kind != _ROW_KIND or table_id < -1 or parts - ONE > ONE:
            return -1
        if not 0 <= database < terms or not 0 <= table < terms:
            return -1
        if _is_empty(target, first_term + database) or _is_empty(target, first_term + table):
            return -1
        # A group has a kind, a count, and a column.
        if not 0 < one <= size or not 0 <= two_size <= size or one + two_size != body_size:
            return -1
        if body_size > bodies_end - body:
            return -1
        row = rows[first + index]
        row.commit_ts, row.table_id, row.record, row.index = commit_ts, table_id, record, index
        row.database, row.table = first_term + database, first_term + table
        row.terms, row.term_count = first_term, terms
        row.after, row.before = -1, -1
        middle = body + one
        if octets[body] == _AFTER:
            row.after, row.after_end = body, middle
            if two_size > 0 and octets[middle] == _BEFORE:
                row.before, row.before_end = middle, middle + two_size
        elif octets[body] == _BEFORE and two_size == 0:
            row.before, row.before_end = body, middle
        # A row with both images has them in this order.
        if (parts == 2) != (row.after >= 0 and row.before >= 0) or max(row.after, row.before) < 0:
            return -1
        body += body_size
    return count if body == bodies_end and groups == tables_end else np.int64(-1)


@compiled
def columns_listed(
    target: Target,
    ends: Places,
    rows: Nodes,
    forms: Octets,
    columns: Columns,
    images: Images,
) -> None:
    """Find the columns of column groups, and put their values on the tape.

    `ends` is where each group ends, `forms` the form of values by type code and flags. `columns`
    gets the new columns, `images` all but the objects, which are the places of the groups.
    """
    octets, nodes = target.octets, target.nodes
    objects, cells, bounds, lasts, plains, goods = images
    trie, slots, used = columns
    count = np.int64(0)
    for number in range(len(objects)):
        bounds[number] = count
        begin, end, last, good = (
            np.int64(objects[number]),
            np.int64(ends[number]),
            np.int64(ROOT),
            True,
        )
        if begin >= 0:
            first, terms = rows[number].terms, rows[number].term_count
            many, names = uvarint(octets, begin + 1, end)
            good = names >= 0 and 0 < many <= np.uint64(end - names)
            members = np.int64(many) if good else np.int64(0)
            types = _skipped(octets, names, members, end)
            flags = _skipped(octets, types, members, end)
            lengths = _skipped(octets, flags, members, end)
            at = _skipped(octets, lengths, members, end)
            good = good and at >= 0
            term = np.int64(0)
            while good and members > 0:
                members -= 1
                step, names = varint(octets, names, end)
                term += step
                code, types = uvarint(octets, types, end)
                flag, flags = uvarint(octets, flags, end)
                size, lengths = varint(octets, lengths, end)
                good = min(names, types, flags, lengths) >= 0 and 0 <= term < terms
                if not good or code > 255 or flag > 255 or not -1 <= size <= end - at:
                    good = False
                    break
                label = np.int64(code | flag << np.uint64(FLAGS_SHIFT))
                value = np.int64(NULL_NODE)
                form = forms[label]
                if form > Form.DOUBLE:
                    value = np.int64(NONE)
                elif size >= 0:
                    value = _value_put(target, form, at, at + size)
                    at += size
                if value < 0:
                    good = False
                    break
                name = nodes[first + term]
                last = column_of(octets, name.start, name.end, label, last, trie, slots, used)
                cell = cells[count]
                cell.name, cell.value, cell.column = first + term, value, last
                target.used[USED_WRITTEN] += COLUMN_BYTES + name.end - name.start
                count += 1
            good = good and at == end
            if not good:
                count, last = np.int64(bounds[number]), np.int64(ROOT)
        lasts[number], plains[number], goods[number] = last, False, good
    bounds[len(objects)] = count


@inlined
def _value_put(target: Target, form: int, start: int, end: int) -> int:
    """Put the value that fills a range of bytes on the tape; return its node, `NONE` for none."""
    value = np.int64(NONE)
    if form == Form.TEXT:
        value = text_put(target, start, end, False)
    elif form == Form.BASE64:
        value = bytes_put(target, start, end)
    elif form in (Form.SIGNED, Form.UNSIGNED):
        number, at = uvarint(target.octets, start, end)
        if at == end and form == Form.SIGNED:
            value = integer_put(target, signed(number))
        elif at == end:
            value = number_put(target, number, False)
    elif form in (Form.FLOAT, Form.DOUBLE) and end - start == 8:
        value = float_put(target, start, 8, form == Form.FLOAT, form == Form.FLOAT)
    return value
