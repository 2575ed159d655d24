"""Digests of rows of the change log: do two sets of files have the same content?

In: rows in files of the change log. Out: by kind, database and table the number of rows, two
sums of their hashes, and the span of their batches; and the kinds and tables whose rows differ
between two such sets. Sums do not depend on the order of rows or files; the batch is not in them.
Rows of exports are left out: they come from no record.

Nothing is written, and the hashes are DuckDB's, so they are compared only within a run.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_assets.delta.queries import asking
from ticdc_assets.log.change_files import CHANGE_LOG_SCHEMA, tasks_for
from ticdc_assets.model.events import SNAPSHOT_DDL
from ticdc_assets.rows.rows_of_work import RowPart, Rows
from ticdc_assets.spark.executing import executor
from ticdc_assets.spark.session import Session
from ticdc_assets.storage.paths import AnyPath
from ticdc_assets.wire.rows import SNAPSHOT

Digests: TypeAlias = list[dict[str, Any]]
"""For some rows of each kind and table (`_DIGESTS`): how many there are, two sums of their hashes,
the lowest commit ts, and the first and last batch.
"""


def digests_of(spark: Session, log: AnyPath, rows: Rows) -> Digests:
    """Return digests of rows of a change log, without those of exports.

    Args:
        spark: the session, which is not used if they are few.
        log: the change log.
        rows: the rows, with all columns in files.
    """

    def digested(some: Iterable[RowPart]) -> Iterator[dict[str, Any]]:
        with asking() as engine:
            for part in some:
                for batch in part.read():
                    engine.register("changes", _of_records(batch))
                    yield from engine.sql(_DIGESTS).to_arrow_table().to_pylist()

    runs_on = executor(spark, log, "comparing a day", rows=rows.count, size=rows.size)
    return runs_on.run(digested, rows.parts(), tasks=tasks_for(rows, runs_on.workers))


def differing(before: Digests, after: Digests) -> list[dict[str, Any]]:
    """Return the kinds and tables whose rows differ, by name.

    Each has `kind`, `database` and `table`, and of the rows of both sides the lowest commit ts
    (`min_ts`) and the first and the last batch.
    """
    sums: dict[tuple[Any, ...], Counter[str]] = {}
    spans: dict[tuple[Any, ...], list[tuple[int, int, int]]] = {}
    for sign, digests in ((1, before), (-1, after)):
        for item in digests:
            key = (item["kind"], item["database"], item["table"])
            for name in ("rows", "one", "other"):
                sums.setdefault(key, Counter())[name] += sign * int(item[name])
            spans.setdefault(key, []).append((item["min_ts"], item["first"], item["last"]))
    found: list[dict[str, Any]] = []
    for key in sorted(sums, key=lambda key: [name or "" for name in key]):
        if any(sums[key].values()):
            named = dict(zip(("kind", "database", "table"), key, strict=True))
            stamps, firsts, lasts = zip(*spans[key], strict=True)
            found.append(named | {"min_ts": min(stamps), "first": min(firsts), "last": max(lasts)})
    return found


_SAID = ", ".join(
    f'"{name}"' for name in CHANGE_LOG_SCHEMA.names if name not in ("batch", "landed_day")
)

_DIGESTS = f"""
    SELECT
        kind, "database", "table",
        count(*) AS rows,
        sum(hash({_SAID}))::DECIMAL(38) AS one,
        sum(hash('other', {_SAID}))::DECIMAL(38) AS other,
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
