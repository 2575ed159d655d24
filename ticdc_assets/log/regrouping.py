"""Totals of a landing day whose rows were replaced.

In: the change log, whose newest commit replaced the partition of a day (`Correction`). Out: new
rows of `change_groups` for that day, and the other facts of that commit: tables that must be folded
again, batches whose checksums must be compared again, and whether the schema registry must be made
again.

Why writing it again is safe: the table is overwritten as a whole, and names the commit.
"""

from dataclasses import asdict, dataclass, replace
from datetime import date
from typing import Any

from ticdc_assets.delta.control import commit_metadata
from ticdc_assets.delta.lake import Lake
from ticdc_assets.log.change_files import OfDay, totals_in_files
from ticdc_assets.log.change_statistics import (
    Recheck,
    Repair,
    SchemasAnew,
    read_statistics,
    replace_day,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """The facts in a commit that replaces a day of the change log.

    Attributes:
        day: the landing day in ISO 8601.
        tables: (database, table, lowest commit ts) of row changes that differ; see `Repair`.
        batches: first and last batch of rows that differ, before and after.
        schemas: whether DDL or bootstraps are among them.
        truncated_ts: TSO up to which the change log was truncated; 0 if it was not.
    """

    day: str
    tables: tuple[tuple[str | None, str | None, int], ...]
    batches: tuple[int, int]
    schemas: bool
    truncated_ts: int

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Correction":
        """Read a commit's JSON object."""
        first, last = values["batches"]
        tables = tuple((item[0], item[1], item[2]) for item in values["tables"])
        return cls(**values | {"tables": tables, "batches": (first, last)})


def regroup(lake: Lake) -> None:
    """Bring `change_groups` to the newest commit of the change log, which replaced a day."""
    metadata = commit_metadata(lake.paths.change_log)
    batch, correction = metadata["batch"], Correction.from_json(metadata["redecode"])
    known = read_statistics(lake.paths)
    repairs = {(item.database, item.table): item for item in known.repairs}
    for database, table, min_ts in correction.tables:
        repair = Repair(database=database, table=table, batch=batch, min_ts=min_ts)
        older = repairs.get((database, table), repair)
        repairs[database, table] = replace(repair, min_ts=min(min_ts, older.min_ts))
    compared = commit_metadata(lake.paths.checksums).get("batch", 0)
    rechecks = [item for item in known.rechecks if item.batch > compared]
    first, last = correction.batches
    rechecks.append(Recheck(batch=batch, first=first, last=last))
    anew = known.schemas_anew
    if correction.schemas:
        anew = SchemasAnew(batch=batch, kept_ts=correction.truncated_ts)
    day = date.fromisoformat(correction.day)
    replace_day(
        lake.paths,
        day,
        totals_in_files(lake.spark, lake.paths.change_log, OfDay(day)),
        metadata={
            "batch": batch,
            "repairs": [asdict(item) for item in repairs.values()],
            "rechecks": [asdict(item) for item in rechecks],
            "schemas_anew": asdict(anew),
        },
    )
