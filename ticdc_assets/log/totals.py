"""Totals of rows of the change log: the number and ts range of each kind, table and schema.

In: rows of the change log as Arrow tables. Out: `Totals`, one group for each landing day, kind,
table and cited schema, in the form of `change_groups`. They give the changes of a mirror and their
completeness without reading a row. `joined_totals` adds up totals of parts, in any order.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ticdc_assets.delta.row_schema import typed
from ticdc_assets.wire.rows import CHANGE_SCHEMA, SNAPSHOT

GROUP_KEY = (
    *("landed_day", "kind", "topic", "partition", "database", "table", "table_id"),
    *("schema_version", "shape", "handle_key_only", "es_only"),
)
"""The columns of the change log that define groups."""

_KEY_SCHEMA = [("landed_day", pa.date32()), *(CHANGE_SCHEMA.field(name) for name in GROUP_KEY[1:])]

GROUPS_SCHEMA = pa.schema(
    [
        *_KEY_SCHEMA,
        *typed(int, "rows", "min_ts", "max_ts", "steps_back", "checksums"),
        *typed(datetime, "first_landed_at", "last_landed_at"),
        *typed(int, "last_batch"),
    ]
)
"""`change_groups`: one row for each group."""

_MARKS_SCHEMA = pa.schema(
    [*_KEY_SCHEMA, *(CHANGE_SCHEMA.field(name) for name in ("offset", "index", "commit_ts"))]
)

TOTALS_COLUMNS = (*GROUP_KEY, *("batch", "landed_at", "commit_ts", "checksum", "offset", "index"))
"""The columns of the change log that totals need."""

NO_TOPIC = ""
"""The topic of rows from exports."""

_JOINED = {
    "rows": "sum",
    "min_ts": "min",
    "max_ts": "max",
    "steps_back": "sum",
    "checksums": "sum",
    "first_landed_at": "min",
    "last_landed_at": "max",
    "last_batch": "max",
}
"""How each column of groups is joined."""


class Totals(NamedTuple):
    """The totals of some rows.

    Attributes:
        groups: the groups, with the columns of `change_groups`; no watermark steps back.
        watermarks: the watermarks by group, each of which is to be checked for a step back.
    """

    groups: pa.Table
    watermarks: pa.Table


def totals_of(rows: pa.Table) -> Totals:
    """Return the totals of rows with the columns `TOTALS_COLUMNS`."""
    # The topics of exported rows are files; a table may have thousands.
    topics = pc.if_else(pc.equal(rows["kind"], SNAPSHOT), NO_TOPIC, rows["topic"])
    counts = {
        "rows": ([], "count_all"),
        "min_ts": ("commit_ts", "min"),
        "max_ts": ("commit_ts", "max"),
        "checksums": ("checksum", "count"),
        "first_landed_at": ("landed_at", "min"),
        "last_landed_at": ("landed_at", "max"),
        "last_batch": ("batch", "max"),
    }
    groups = (
        rows.set_column(rows.schema.get_field_index("topic"), "topic", topics)
        .group_by(list(GROUP_KEY), use_threads=False)
        .aggregate(list(counts.values()))
    )
    groups = groups.rename_columns([*GROUP_KEY, *counts])
    groups = groups.append_column("steps_back", pa.repeat(0, groups.num_rows))
    watermarks = rows.filter(ds.field("kind") == "watermark").select(_MARKS_SCHEMA.names)
    return Totals(
        groups.select(GROUPS_SCHEMA.names).cast(GROUPS_SCHEMA), watermarks.cast(_MARKS_SCHEMA)
    )


def joined_totals(parts: Iterable[Totals]) -> Totals:
    """Return the totals of rows from the totals of their parts."""
    empty = Totals(GROUPS_SCHEMA.empty_table(), _MARKS_SCHEMA.empty_table())
    groups, watermarks = map(pa.concat_tables, zip(empty, *parts, strict=True))
    return Totals(joined_groups(groups), watermarks)


def joined_groups(groups: pa.Table, key: Sequence[str] = GROUP_KEY) -> pa.Table:
    """Return one group for all that are the same in some columns."""
    joined = groups.group_by(list(key), use_threads=False).aggregate(list(_JOINED.items()))
    names = [name for name in GROUPS_SCHEMA.names if name in key or name in _JOINED]
    return joined.rename_columns([*key, *_JOINED]).select(names)
