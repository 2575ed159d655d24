"""Totals of rows of the change log: the number and ts range of each kind, table and schema.

In: rows of the change log as Arrow tables. Out: one dict per group, with the columns of
`GROUP_KEY`, which include the landing day, and the counts of `change_groups`. They give the changes
of a mirror and their completeness without reading a row. `joined_totals` adds up totals of parts,
in any order.
"""

from collections.abc import Iterable
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ticdc_assets.wire.rows import SNAPSHOT

GROUP_KEY = (
    "landed_day",
    "kind",
    "topic",
    "partition",
    "database",
    "table",
    "table_id",
    "schema_version",
    "shape",
    "handle_key_only",
    "es_only",
)
"""The columns of the change log that define groups."""

WATERMARK_ORDER = ("offset", "index", "commit_ts")
"""The stored fields of a watermark, in the order in which watermarks are compared."""

TOTALS_COLUMNS = (*GROUP_KEY, *("batch", "landed_at", "commit_ts", "checksum", "offset", "index"))
"""The columns of the change log that totals need."""

NO_TOPIC = ""
"""The topic of rows from exports."""

Totals: TypeAlias = dict[str, Any]


def totals_of(rows: pa.Table) -> list[Totals]:
    """Return the totals of rows with the columns `TOTALS_COLUMNS`.

    A group has its watermarks in order, because each is checked for a step back.
    """
    keys = list(GROUP_KEY)
    groups = (
        _without_files(rows)
        .group_by(keys, use_threads=False)
        .aggregate(
            [
                ([], "count_all"),
                ("commit_ts", "min"),
                ("commit_ts", "max"),
                ("landed_at", "min"),
                ("landed_at", "max"),
                ("checksum", "count"),
                ("batch", "max"),
            ]
        )
        .to_pylist()
    )
    found = {
        tuple(group[name] for name in keys): {name: group[name] for name in keys}
        | {
            "rows": group["count_all"],
            "min_ts": group["commit_ts_min"],
            "max_ts": group["commit_ts_max"],
            "first_landed_at": group["landed_at_min"],
            "last_landed_at": group["landed_at_max"],
            "checksums": group["checksum_count"],
            "last_batch": group["batch_max"],
            "watermarks": [],
        }
        for group in groups
    }
    watermarks = rows.filter(ds.field("kind") == "watermark")
    for row in watermarks.select([*keys, *WATERMARK_ORDER]).to_pylist():
        key = tuple(row[name] for name in keys)
        found[key]["watermarks"].append({name: row[name] for name in WATERMARK_ORDER})
    return _ordered(found.values())


def _without_files(rows: pa.Table) -> pa.Table:
    """Return rows without topics that are files of exports; a table may have thousands."""
    topics = pc.if_else(pc.equal(rows["kind"], SNAPSHOT), NO_TOPIC, rows["topic"])
    return rows.set_column(rows.schema.get_field_index("topic"), "topic", topics)


def joined_totals(parts: Iterable[Totals]) -> list[Totals]:
    """Return the totals of rows from the totals of their parts."""
    groups: dict[tuple[object, ...], Totals] = {}
    for part in parts:
        key = tuple(part[name] for name in GROUP_KEY)
        present = groups.get(key)
        if present is not None:
            part = part | {
                **{name: present[name] + part[name] for name in _SUMS},
                "min_ts": least(present["min_ts"], part["min_ts"]),
                "max_ts": greatest(present["max_ts"], part["max_ts"]),
                "first_landed_at": min(present["first_landed_at"], part["first_landed_at"]),
                "last_landed_at": max(present["last_landed_at"], part["last_landed_at"]),
                "last_batch": max(present["last_batch"], part["last_batch"]),
            }
        groups[key] = part
    return _ordered(groups.values())


_SUMS = ("rows", "checksums", "watermarks")


def _ordered(groups: Iterable[Totals]) -> list[Totals]:
    found = list(groups)
    for group in found:
        group["watermarks"].sort(key=lambda item: tuple(item.values()))
    return found


def least(left: int | None, right: int | None) -> int | None:
    """Return the lower of two numbers; None means absent."""
    return min((value for value in (left, right) if value is not None), default=None)


def greatest(left: int | None, right: int | None) -> int | None:
    """Return the higher of two numbers; None means absent."""
    return max((value for value in (left, right) if value is not None), default=None)
