"""Quarantine: records that could not be decoded, and row changes that do not fit their schema.

One row per fault: the record's coordinates, the stage that refused it (`decode`: the bytes are not
a message; `apply`: the row change does not fit its schema), reason, position, expected and got. The
record itself stays in `raw_messages` (or `change_log`). A row is *open* until `redriven_at` is set
and `closed_by` gives the reason (`Closing`); then it stays as history.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ticdc_assets.config import TableFilter
from ticdc_assets.delta.appending import BOUNDED, append_files
from ticdc_assets.delta.committing import commit_state, undisturbed
from ticdc_assets.delta.control import read_rows, read_table
from ticdc_assets.delta.damage import reading
from ticdc_assets.delta.delta_files import file_of
from ticdc_assets.delta.delta_protocol import Action, LogState
from ticdc_assets.delta.files import FileLayout, WrittenFile, write_rows
from ticdc_assets.delta.opening import latest_version, open_table
from ticdc_assets.delta.row_schema import filled, typed
from ticdc_assets.log.faults import is_mirrored_fault
from ticdc_assets.rows.rows_of_work import Rows
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.wire.rows import OF_MIRRORS, PLACE, PLACE_SCHEMA

Place: TypeAlias = tuple[Any, ...]
"""Topic, partition, offset and index of an event; for some faults more (`place_of_fault`)."""

CLOSED_BY = "closed_by"

FAULT_SCHEMA = pa.schema(
    [
        *typed(str, "stage"),
        *PLACE_SCHEMA,
        *typed(str, "reason", "position", "expected", "got", "database", "table"),
        *typed(int, "commit_ts", "batch"),
        *typed(datetime, "quarantined_at", "redriven_at"),
        *typed(str, CLOSED_BY),
    ]
)
"""`quarantine`: one row for each fault."""


class Closing(StrEnum):
    """Why a row is no longer open."""

    REDRIVE = "redrive"
    """Its record was decoded again, or its table folded again, successfully."""
    LATER_CHANGE = "later change"
    """A later whole change of its row replaced it."""
    GIVEN_UP = "given up"
    """A person accepted that its record is lost (`repair.redriving`)."""
    REMOVED = "removed"
    """Its row change is no longer in the change log: decoding its record again did not return it.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineCounts:
    """Open quarantine rows by stage."""

    decode: int
    apply: int


def append_fault_files(
    paths: LakePaths, files: Sequence[WrittenFile], *, app_id: str, version: int | None = None
) -> None:
    """Append files of faults, if any; a version that the table has seen from `app_id` is skipped.

    Without a version they get a new one; the caller holds the lock, and leaves out what is there.
    """
    if not files:
        return
    if version is None:
        latest = latest_version(paths.quarantine)
        # Greater than all versions so far.
        version = 1 if latest is None else latest + 2
    append_files(paths.quarantine, files, FAULT_SCHEMA, app_id=app_id, version=version)


def append_faults(paths: LakePaths, faults: Iterable[pa.Table], *, app_id: str) -> None:
    """Append faults that are not there yet; the caller holds the lock."""
    files = write_rows(paths.quarantine, FileLayout(schema=FAULT_SCHEMA), faults)
    append_fault_files(paths, files, app_id=app_id)


def apply_faults(rows: pa.Table, database: str, table: str, batch: int) -> pa.Table:
    """Return failed operations as faults of a table, of a batch of the change log."""
    sequence = rows["sequence"].combine_chunks()
    values = {
        "stage": "apply",
        "batch": batch,
        "database": database,
        "table": table,
        **{name: sequence.field(name) for name in (*PLACE, "commit_ts")},
        **{name: rows[name] for name in _FINDING},
    }
    return _faults(rows.num_rows, values)


def decode_faults(rows: pa.Table, batch: int) -> pa.Table:
    """Return decoded rows of kind `error` as faults of a batch of the change log."""
    values = {
        "stage": "decode",
        "batch": batch,
        # The table of a malformed message is unknown; that of an exported row is known.
        **{name: rows[name] for name in (*PLACE, "database", "table")},
        **{name: rows[f"error_{name}"] for name in _FINDING},
    }
    return _faults(rows.num_rows, values)


_FINDING = ("reason", "position", "expected", "got")


def _faults(size: int, values: Mapping[str, Any]) -> pa.Table:
    """Return faults with these values, which are open from now on."""
    values = {**values, "quarantined_at": datetime.now(UTC)}
    return filled(FAULT_SCHEMA, size, values)


def place_of(row: Mapping[str, Any]) -> Place:
    """Return the place of a row of the quarantine or of the change log."""
    return tuple(row[name] for name in PLACE)


def places_in(rows: pa.Table | pa.RecordBatch) -> list[Place]:
    """Return the place of each row."""
    return list(zip(*(rows.column(name).to_pylist() for name in PLACE), strict=True))


def place_of_fault(row: Mapping[str, Any]) -> Place:
    """Return the place of a fault of applying.

    A row that was handed over to a table has the place of no event; its table and commit ts follow
    there, so that it is not taken for another.
    """
    return place_of(row) if row["partition"] >= 0 else tuple(row[name] for name in _FAULT_PLACE)


def places_of_faults(rows: pa.Table) -> list[Place]:
    """Return the place of each fault."""
    return [place_of_fault(row) for row in rows.select(_FAULT_PLACE).to_pylist()]


_FAULT_PLACE = [*PLACE, "database", "table", "commit_ts"]


def places_in_log(
    paths: LakePaths, places: Collection[Place], condition: ds.Expression | None = None
) -> frozenset[Place]:
    """Return the places of rows of the change log that come from the same records as some places.

    Only rows that meet a condition count, if there is one.
    """
    if not places:
        return frozenset()
    is_near = ds.field("offset").isin(sorted({place[2] for place in places}))
    rows = read_table(
        paths.change_log,
        is_near if condition is None else is_near & condition,
        columns=[*PLACE],
    )
    if rows is None:
        return frozenset()
    records = {place[:-1] for place in places}
    return frozenset(place for place in places_in(rows) if place[:-1] in records)


def read_quarantine(
    paths: LakePaths, *, open_only: bool = True, tables: TableFilter | None = None
) -> list[dict[str, Any]]:
    """Return quarantine rows in the order of their coordinates; needs no Spark.

    Those that do not count for a changefeed of some tables are left out (`is_mirrored_fault`).
    """
    rows = read_rows(paths.quarantine, _IS_OPEN if open_only else None)
    return sorted(
        (row for row in rows if is_mirrored_fault(row, tables)),
        key=lambda row: (*place_of(row), row["stage"]),
    )


def read_counted(paths: LakePaths, *, void_since: datetime | None) -> list[dict[str, Any]]:
    """Return the faults of applying that are open, or became void since a moment; needs no Spark.

    Each has its place, its table, its commit ts, and when it was closed. Void are those that a
    later change closed. Rows closed otherwise only grow in number, so they are not read.
    """
    counts = _IS_OPEN
    if void_since is not None:
        is_void = _text(CLOSED_BY) == str(Closing.LATER_CHANGE)
        counts |= is_void & (ds.field("redriven_at") > pa.scalar(void_since))
    columns = [*_FAULT_PLACE, "redriven_at"]
    rows = read_rows(paths.quarantine, (_text("stage") == "apply") & counts, columns=columns)
    return sorted(rows, key=place_of)


_IS_OPEN = ds.field("redriven_at").is_null()


def _text(name: str) -> ds.Expression:
    """Return a column of texts, for comparing."""
    # A file that delta-rs merged has views of texts, which Arrow cannot compare with texts.
    return ds.field(name).cast(pa.string())


def cited_names(
    paths: LakePaths, faults: Iterable[Mapping[str, Any]]
) -> dict[Place, dict[str, str]]:
    """Return `database` and `table` in the change log at the places of faults of applying.

    A fault has its table's name from when the change was refused. The name at the change's commit
    ts decides which table it belongs to. Places that the change log lacks are left out.
    """
    stamps = {place_of(row): row["commit_ts"] for row in faults}
    if not stamps:
        return {}
    rows = read_rows(
        paths.change_log,
        ds.field("kind").isin(OF_MIRRORS)
        & ds.field("commit_ts").isin(sorted(set(stamps.values()))),
        columns=[*PLACE, "database", "table"],
    )
    return {
        place: {"database": row["database"], "table": row["table"]}
        for row in rows
        if (place := place_of(row)) in stamps
    }


def count_open(paths: LakePaths, tables: TableFilter | None = None) -> QuarantineCounts:
    """Return how many rows are open; only row changes of `tables` count; needs no Spark."""
    counts = Counter[str]()
    for group in open_groups(paths, ["stage", "database", "table"]):
        counts[group["stage"]] += group["rows"] if is_mirrored_fault(group, tables) else 0
    return QuarantineCounts(decode=counts["decode"], apply=counts["apply"])


def unread_exports(paths: LakePaths) -> Counter[tuple[str, str, int]]:
    """Return how many rows of exports could not be read, by database, table and seed."""
    names = ["database", "table", "partition"]
    return Counter(
        {
            tuple(group[name] for name in names): group["rows"]
            for group in open_groups(paths, ["stage", *names])
            if group["stage"] == "decode" and group["database"] is not None
        }
    )


def open_groups(paths: LakePaths, names: list[str]) -> list[dict[str, Any]]:
    """Return the open rows by the values of some columns, in their order.

    Each group has its number of `rows` and their lowest `commit_ts`.
    """
    rows = read_table(paths.quarantine, _IS_OPEN, columns=[*names, "commit_ts"])
    if rows is None:
        return []
    groups = rows.group_by(names).aggregate([("commit_ts", "min"), ([], "count_all")])
    order: list[tuple[str, str]] = [(name, "ascending") for name in names]
    named = groups.rename_columns({"commit_ts_min": "commit_ts", "count_all": "rows"})
    return named.sort_by(order).to_pylist()


def close_rows(paths: LakePaths, stage: str, places: Iterable[Place], closing: Closing) -> None:
    """Close the open rows of a stage at some places; needs no Spark."""
    if wanted := set(places):
        of_stage = (ds.field("stage") == stage) & ds.field("redriven_at").is_null()
        closed = {"redriven_at": datetime.now(UTC), CLOSED_BY: str(closing)}
        _update(paths, of_stage, closed, wanted)


def reopen_applied(paths: LakePaths, *, commit_ts: int, since: datetime) -> None:
    """Open again the faults of applying at or below a commit ts that were closed since a moment.

    Those whose change is no longer in the change log stay closed.
    """
    closed = (
        (ds.field("stage") == "apply")
        & (ds.field("commit_ts") <= commit_ts)
        & (ds.field("redriven_at") > since)
        & (_text(CLOSED_BY) != str(Closing.REMOVED))
    )
    _update(paths, closed, {"redriven_at": None, CLOSED_BY: None})


def _update(
    paths: LakePaths,
    condition: ds.Expression,
    values: Mapping[str, object],
    places: Collection[Place] | None = None,
) -> None:
    """Set values of the rows that meet a condition, at some places if any are given.

    Only files with such rows are written again, one after the other.
    """
    table = paths.quarantine

    def update() -> None:
        state = open_table(table) or LogState()
        staying: list[Action] = []
        files: list[WrittenFile] = []
        for action in state.files:
            with reading(table):
                rows = Rows.of_files([file_of(table, action)], state.schema).table_here()
            is_found = ds.dataset(rows).to_table(columns={"is": condition})["is"]
            is_found = pc.fill_null(is_found, False)
            if places is not None:
                is_at = pa.array([place in places for place in places_of_faults(rows)], pa.bool_())
                is_found = pc.and_(is_found, is_at)
            if not pc.any(is_found).as_py():
                staying.append(action)
                continue
            for name, value in values.items():
                number = rows.schema.get_field_index(name)
                field = rows.schema.field(number)
                column = pc.if_else(is_found, pa.scalar(value, field.type), rows[name])
                rows = rows.set_column(number, field, column)
            layout = FileLayout(schema=rows.schema, bounded=BOUNDED)
            files += write_rows(table, layout, [rows])
        if files:
            wanted = replace(state, files=staying)
            commit_state(table, state, wanted, files, {}, operation="UPDATE")

    undisturbed(update)
