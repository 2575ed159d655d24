"""What the published generation knows of records from which another one is made.

In: the change log and the quarantine that a cut was made from. Out: which records the cut left out,
because they were in quarantine; which records it has and the new generation refuses; and the
quarantine of decoding, for the new generation. Nothing is written.

A generation to replace may be broken: then these facts are unknown, and the worst is assumed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.dataset as ds

from ticdc_assets.base.errors import LakeDamagedError
from ticdc_assets.base.names import counted, joined_name
from ticdc_assets.delta.control import read_table
from ticdc_assets.delta.files import open_parquet
from ticdc_assets.delta.queries import asking
from ticdc_assets.log.change_files import DecodedFiles
from ticdc_assets.log.cuts import Cut
from ticdc_assets.log.positions import read_position
from ticdc_assets.log.quarantine import CLOSED_BY, FAULT_SCHEMA, Closing, Place, place_of, places_in
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.wire.rows import COORDINATES, PLACE

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRecords:
    """Records that were decoded before and are refused now.

    `examples` are `topic/partition/offset`. Records without row changes have no table.
    """

    database: str | None
    table: str | None
    reason: str
    records: int
    examples: tuple[str, ...] = ()

    @property
    def clause(self) -> str:
        """The clause for messages."""
        of = "" if self.table is None else f" of {joined_name(self.database or '', self.table)}"
        verb = "is" if self.records == 1 else "are"
        return (
            f"{counted(self.records, 'record')}{of} {verb} refused now ({self.reason}), such "
            f"as {', '.join(self.examples)}"
        )


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Records that the cut has only partly, or not at all.

    Args:
        records: their coordinates.
        kept: places of their rows that are in it; None if unknown: then the rows that can be
            decoded.
    """

    records: frozenset[Place] = frozenset()
    kept: frozenset[Place] | None = frozenset()

    def has(self, row: Mapping[str, Any]) -> bool:
        """Return whether the row at a place is left out."""
        place = place_of(row)
        return place[:-1] in self.records and (self.kept is None or place not in self.kept)

    def takes(self, place: Place, is_error: bool) -> bool:
        """Return whether a decoded row at a place is written again."""
        return place[:-1] not in self.records or (
            not is_error and (self.kept is None or place in self.kept)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRecords:
    """The known facts about the records of a cut.

    The tables of a generation that will be replaced `may_be_broken`.
    """

    paths: LakePaths
    cut: Cut
    may_be_broken: bool

    def if_whole(self, read: Callable[[], _Value], otherwise: _Value) -> _Value:
        """Return what `read` returns of the published generation; `otherwise` if that is broken."""
        try:
            return read()
        except LakeDamagedError:
            if not self.may_be_broken:
                raise
            return otherwise

    def left_out(self) -> LeftOut:
        """Return the records that the cut left out: those that it had in quarantine.

        A record may have some rows in quarantine and others in the change log. Records that are
        refused again are left out without being counted.
        """
        faults = self.if_whole(self._faults, _NO_FAULTS)
        faults = faults.filter(ds.field("batch") <= self.cut.batch)
        if not faults.num_rows:
            return LeftOut()
        log: Any = self.if_whole(lambda: self._log_at(faults, [*PLACE, "batch"]), None)
        if log is None:
            still_open = places_in(faults.filter(_IS_LEFT_OUT))
            return LeftOut(records=frozenset(place[:-1] for place in still_open), kept=None)
        there = frozenset(places_in(log.filter(ds.field("batch") <= self.cut.batch)))
        # One that was re-driven and is nowhere in the change log was truncated there since.
        closed = set(places_in(faults.filter(~_IS_LEFT_OUT)))
        still_open = places_in(faults.filter(_IS_LEFT_OUT))
        gone = closed.difference(places_in(log), still_open)
        waiting = set(places_in(faults)) - there - gone
        return LeftOut(records=frozenset(place[:-1] for place in waiting), kept=there)

    def quarantine(self, left_out: LeftOut, batch: int) -> list[dict[str, Any]]:
        """Return the quarantine of decoding at the cut.

        It has no rows of exports: these are decoded again, with their faults.
        """
        known: Any = self.if_whole(lambda: read_table(self.paths.quarantine), None)
        if known is None:
            return []
        topics = {topic for topic, _ in read_position(self.paths).next_offsets}
        rows: list[dict[str, Any]] = []
        for row in known.filter(ds.field("stage") == "decode").to_pylist():
            if row["batch"] <= self.cut.batch and row["topic"] in topics:
                rows.append(row | {"batch": batch})
                if left_out.has(row) and row[CLOSED_BY] != Closing.GIVEN_UP:
                    # Maybe re-driven since the cut: here that is still to come.
                    rows[-1] |= {"redriven_at": None, CLOSED_BY: None}
        return rows

    def refused(self, side: LakePaths, found: DecodedFiles) -> tuple[RefusedRecords, ...]:
        """Return the records that only the changefeed's own change log has, by table and reason.

        This includes records that left it for the quarantine since the cut.
        """
        errors = errors_in(side, found)
        columns = [*COORDINATES, "batch", "database", "table"]
        log: Any = self.if_whole(lambda: self._log_at(errors, columns), None)
        if log is None:
            # Whether they were decoded before is unknown: all of them count.
            nothing = FAULT_SCHEMA.empty_table()
            return refused_records(errors, log=nothing, waiting=nothing)
        log = log.filter(ds.field("batch") <= self.cut.batch)
        faults: Any = self.if_whole(self._faults, None)
        # For a record without an entry, its decoded rows count.
        waiting = errors if faults is None else faults.filter(_IS_LEFT_OUT)
        return refused_records(errors, log, waiting)

    def _faults(self) -> pa.Table:
        # The table's reader cannot compare texts in a file that delta-rs merged.
        found = read_table(self.paths.quarantine, columns=_NO_FAULTS.column_names)
        if found is None:
            return _NO_FAULTS
        return found.filter(ds.field("stage") == "decode")

    def _log_at(self, records: pa.Table, columns: list[str]) -> pa.Table:
        found = read_table(
            self.paths.change_log,
            ds.field("offset").isin(records["offset"].unique()),
            columns=columns,
        )
        assert found is not None
        return found


def errors_in(paths: LakePaths, found: DecodedFiles) -> pa.Table:
    """Return the coordinates and reasons of the records that a decoding refused."""
    columns = [*COORDINATES, "reason"]
    tables = [pa.schema([FAULT_SCHEMA.field(name) for name in columns]).empty_table()]
    for item in found.faults:
        with open_parquet(paths.quarantine / item.path) as file:
            tables.append(file.read(columns=columns).cast(tables[0].schema))
    return pa.concat_tables(tables)


def refused_records(
    errors: pa.Table, log: pa.Table, waiting: pa.Table
) -> tuple[RefusedRecords, ...]:
    """Return refused records that were decoded before, by table and reason.

    `errors` and `log` have the coordinates of both; records in `waiting` count only if they have
    rows in `log`.
    """
    with asking() as engine:
        for name, table in (("errors", errors), ("log", log), ("waiting", waiting)):
            engine.register(name, table)
        rows = engine.sql(_REFUSED).to_arrow_table()
    return tuple(
        RefusedRecords(**row | {"examples": tuple(row["examples"])}) for row in rows.to_pylist()
    )


_NO_FAULTS = pa.schema(
    [FAULT_SCHEMA.field(name) for name in ("stage", "batch", "redriven_at", CLOSED_BY, *PLACE)]
).empty_table()

_IS_LEFT_OUT = ds.field("redriven_at").is_null() | (
    ds.field(CLOSED_BY).cast(pa.string()) == str(Closing.GIVEN_UP)
)
"""Faults whose records are in no cut: a record that was given up is left out as an open one is."""

_REFUSED = """
    WITH refused AS (
        SELECT topic, "partition", "offset", min(reason) AS reason FROM errors GROUP BY ALL
    ), decoded AS (
        SELECT DISTINCT topic, "partition", "offset", "database", "table", true AS is_there FROM log
    ), quarantined AS (
        SELECT DISTINCT topic, "partition", "offset", true AS waits FROM waiting
    )
    SELECT
        "database", "table", reason, count(*) AS records,
        list(topic || '/' || "partition" || '/' || "offset" ORDER BY topic, "partition", "offset")
            [:3] AS examples
    FROM refused
    LEFT JOIN decoded USING (topic, "partition", "offset")
    LEFT JOIN quarantined USING (topic, "partition", "offset")
    WHERE is_there OR waits IS NULL
    GROUP BY "database", "table", reason
    ORDER BY coalesce("database", ''), coalesce("table", ''), reason
"""
