"""Digests of rows of the change log: do two sets of files have the same content?

In: row groups of files of the change log. Out: by kind, database and table the number of rows, two
sums of their hashes, and the span of their batches. Sums do not depend on the order of rows or
files; the batch is not in them. Rows of exports are left out: they come from no record.

Nothing is written, and the hashes are DuckDB's, so they are compared only within a run.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_assets.delta.queries import asking
from ticdc_assets.log.change_files import CHANGE_LOG_SCHEMA, Parts, changes_in
from ticdc_assets.model.events import SNAPSHOT_DDL
from ticdc_assets.spark.executing import executor
from ticdc_assets.spark.session import Session
from ticdc_assets.storage.paths import AnyPath
from ticdc_assets.wire.rows import SNAPSHOT

Key: TypeAlias = tuple[str, str | None, str | None]
"""Kind, database and table of rows of the change log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """The content of some rows of the change log, whatever their order.

    Attributes:
        rows: their number.
        one: the sum of their hashes.
        other: the sum of other hashes of them.
        min_ts: their lowest commit ts.
        first: their first batch.
        last: their last batch.
    """

    rows: int
    one: int
    other: int
    min_ts: int
    first: int
    last: int

    def joined(self, more: "Digest") -> "Digest":
        """Return the digest of these rows and more."""
        return Digest(
            rows=self.rows + more.rows,
            one=self.one + more.one,
            other=self.other + more.other,
            min_ts=min(self.min_ts, more.min_ts),
            first=min(self.first, more.first),
            last=max(self.last, more.last),
        )

    def equals(self, more: "Digest") -> bool:
        """Return whether two digests are of the same rows."""
        return (self.rows, self.one, self.other) == (more.rows, more.one, more.other)


def digests_of(spark: Session, log: AnyPath, parts: Parts) -> dict[Key, Digest]:
    """Return digests of rows of a change log, by kind and table, without those of exports.

    Args:
        spark: the session, which is not used if they are few.
        log: the change log.
        parts: the row groups.
    """

    def told(some: Iterable[tuple[AnyPath, int]]) -> Iterator[dict[str, Any]]:
        with asking() as engine:
            for piece in some:
                for rows in changes_in(piece):
                    engine.register("changes", _of_records(rows))
                    yield from engine.sql(_DIGESTS).to_arrow_table().to_pylist()

    runs_on = executor(spark, log, "comparing a day", rows=parts.rows, size=parts.size)
    found: dict[Key, Digest] = {}
    for row in runs_on.run(told, parts.pieces, tasks=parts.tasks(runs_on.workers)):
        key = (row.pop("kind"), row.pop("database"), row.pop("table"))
        digest = Digest(**row)
        found[key] = digest if key not in found else found[key].joined(digest)
    return found


_SAID = ", ".join(
    f'"{name}"' for name in CHANGE_LOG_SCHEMA.names if name not in ("batch", "landed_day")
)

_DIGESTS = f"""
    SELECT
        kind, "database", "table",
        count(*) AS rows,
        sum(hash({_SAID}))::HUGEINT AS one,
        sum(hash('other', {_SAID}))::HUGEINT AS other,
        coalesce(min(commit_ts), 0) AS min_ts,
        min(batch) AS first,
        max(batch) AS last,
    FROM changes GROUP BY ALL
"""


def _of_records(rows: pa.RecordBatch) -> pa.Table:
    """Return the rows that came from records."""
    return pa.Table.from_batches([rows.filter(pc.invert(is_exported(rows)))])


def is_exported(rows: pa.RecordBatch) -> "pa.Array[bool]":
    """Return for each row whether it came from an export."""
    return pc.or_(
        pc.equal(rows.column("kind"), SNAPSHOT),
        pc.fill_null(pc.equal(rows.column("ddl_type"), SNAPSHOT_DDL), False),
    )
