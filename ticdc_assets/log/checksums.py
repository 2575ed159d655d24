"""Row checksums: do the images in the change log match TiCDC's checksums?

In: row changes that carry checksums (TiCDC's integrity check, Simple protocol), and the schema
registry. Out: the table `checksums`, one row for each batch of the change log that has checksums:
the results (`Agreement`), and the coordinates of the first rows that do not match. A row that does
not match is applied like all others, and the asset check `row_checksums` reports it.

The sums of all batches are in the JSON object of the newest commit, so a sync reads rows only if it
replaces some.

Why running it again is safe: a batch is checked as a whole, and its row replaces its earlier row. A
batch with rows that wait for their schema is checked again after each change of the registry.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, groupby
from typing import Any, TypeAlias

import pyarrow as pa

from ticdc_assets.delta.appending import write_table
from ticdc_assets.delta.control import commit_metadata, read_rows
from ticdc_assets.delta.lake import Lake
from ticdc_assets.log.agreement import Agreement, Checksums
from ticdc_assets.log.change_files import rows_of
from ticdc_assets.log.change_statistics import ChangeStatistics
from ticdc_assets.log.schema_tables import read_history
from ticdc_assets.model.events import Op, RowChange
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.model.values.checksums import checksum_agrees
from ticdc_assets.rows.rows_of_work import Rows
from ticdc_assets.spark.driver import Session
from ticdc_assets.spark.executing import executor
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import AnyPath
from ticdc_assets.wire.rows import PLACE_SCHEMA, checksum_from_json, image_from_json

MAX_EXAMPLES = 20
"""How many rows that disagree are recorded for each batch."""


_AGREEMENTS: Mapping[bool | None, Agreement] = {
    True: Agreement.AGREES,
    False: Agreement.DISAGREES,
    None: Agreement.UNKNOWN,
}

_SUMS = "sums"
"""The key of the sums of all rows in a commit's JSON object."""

Schemas: TypeAlias = Mapping[tuple[str, str, int], TableSchema]
"""Schemas by database, table and schema version."""

_EXAMPLE = pa.schema(
    [*PLACE_SCHEMA, ("database", pa.string()), ("table", pa.string()), ("commit_ts", pa.int64())]
)

CHECKSUMS_SCHEMA = pa.schema(
    [
        ("batch", pa.int64()),
        *((str(agreement), pa.int64()) for agreement in Agreement),
        ("examples", pa.list_(pa.struct(_EXAMPLE))),
    ]
)
"""`checksums`: one row for each batch of the change log with checksums."""

_ROW_COLUMNS = (
    *("batch", *PLACE_SCHEMA.names, "op", "commit_ts", "database", "table"),
    *("table_id", "schema_version", "before", "after", "handle_key_only"),
    *("claim_check_location", "checksum"),
)


def compare_new(lake: Lake, *, statistics: ChangeStatistics) -> None:
    """Compare the checksums of new batches, and after new schemas those of waiting rows."""
    if not statistics.checksums:
        return
    memory = commit_metadata(lake.paths.checksums)
    done, sums = memory.get("batch", 0), memory.get(_SUMS)
    corrections = [item for item in statistics.corrections if item.batch > done]
    registered = commit_metadata(lake.paths.schema_registry).get("batch", 0)
    by_batch: dict[int, dict[str, Any]] = {}
    again: set[int] = set()
    waits = sums is not None and sums[Agreement.WAITING] > 0
    replaces = sums is None or bool(corrections) or (waits and registered > done)
    if replaces:
        by_batch = {row["batch"]: row for row in read_rows(lake.paths.checksums)}
        again = {number for number, row in by_batch.items() if row[Agreement.WAITING]}
        for item in corrections:
            # Rows of them were corrected, and possibly all removed.
            again.update(range(item.first, item.last + 1))
        by_batch = {number: row for number, row in by_batch.items() if number not in again}
        sums = None
    if done == statistics.batch and not again:
        return
    batches = {*again, *range(done + 1, statistics.batch + 1)}
    schemas = {version.key: version.schema for version in read_history(lake.paths).versions}
    timezone = lake.changefeed.timezone
    for span in _spans(batches):
        by_batch.update(_compared(lake.spark, lake.paths.change_log, span, schemas, timezone))
    rows = [by_batch[number] for number in sorted(by_batch)]
    metadata = {"batch": statistics.batch, _SUMS: _summed([sums] if sums else [], rows)}
    table = pa.Table.from_pylist(rows, CHECKSUMS_SCHEMA)
    write_table(lake.paths.checksums, table, overwrite=replaces, metadata=metadata)


def read_checksums(paths: LakePaths) -> Checksums:
    """Return the checksums compared so far; needs no Spark."""
    sums = commit_metadata(paths.checksums).get(_SUMS, _summed())
    return Checksums(
        counts={agreement: sums[agreement] for agreement in Agreement},
        examples=tuple(sums["examples"]),
    )


def _summed(*rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sums of rows, which are in batch order, and the first examples."""
    all_rows = list(chain(*rows))
    return {
        **{str(agreement): sum(row[agreement] for row in all_rows) for agreement in Agreement},
        "examples": [example for row in all_rows for example in row["examples"]][:MAX_EXAMPLES],
    }


def _spans(batches: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last of consecutive batches."""
    # Consecutive numbers differ from their places by the same number.
    for _, run in groupby(enumerate(sorted(batches)), key=lambda item: item[1] - item[0]):
        numbers = [number for _, number in run]
        yield numbers[0], numbers[-1]


def _compared(
    spark: Session, log: AnyPath, span: tuple[int, int], schemas: Schemas, timezone: str
) -> dict[int, dict[str, Any]]:
    """Compare the checksums of a span of batches; return the rows of `checksums`, by batch."""

    def compare(some: Iterable[Rows]) -> Iterator[dict[int, dict[str, Any]]]:
        for part in some:
            yield _joined(
                _counted(row, _agreement(row, schemas, timezone))
                for rows in part.read()
                for row in rows.filter(rows.column("checksum").is_valid()).to_pylist()
            )

    rows = rows_of(log, _ROW_COLUMNS, batches=span)
    runs_on = executor(spark, log, "comparing checksums", rows=rows.count, size=rows.size)
    parts = runs_on.run(compare, rows.parts(), tasks=runs_on.workers)
    return _joined(row for part in parts for row in part.values())


def _counted(row: Mapping[str, Any], agreement: Agreement) -> dict[str, Any]:
    """Return the `checksums` row for a batch that has one row with a checksum."""
    place = {name: row[name] for name in _EXAMPLE.names}
    return {
        "batch": row["batch"],
        **{str(item): int(item is agreement) for item in Agreement},
        "examples": [place] if agreement is Agreement.DISAGREES else [],
    }


def _joined(rows: Iterable[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Return the `checksums` rows for batches, joined from those of their parts."""
    by_batch: dict[int, dict[str, Any]] = {}
    for row in rows:
        empty = {**row, **dict.fromkeys(Agreement, 0), "examples": []}
        present = by_batch.setdefault(row["batch"], empty)
        for agreement in Agreement:
            present[agreement] += row[agreement]
        if row["examples"]:
            examples = present["examples"] + row["examples"]
            examples.sort(key=lambda place: tuple(place.values()))
            present["examples"] = examples[:MAX_EXAMPLES]
    return by_batch


def _agreement(row: Mapping[str, Any], schemas: Schemas, timezone: str) -> Agreement:
    schema = schemas.get((row["database"], row["table"], row["schema_version"]))
    if schema is None:
        return Agreement.WAITING
    event = RowChange(
        op=Op(row["op"]),
        commit_ts=row["commit_ts"],
        build_ts_ms=None,
        database=row["database"],
        table=row["table"],
        table_id=row["table_id"],
        schema_version=row["schema_version"],
        before=None if row["before"] is None else image_from_json(row["before"]),
        after=None if row["after"] is None else image_from_json(row["after"]),
        handle_key_only=bool(row["handle_key_only"]),
        claim_check_location=row["claim_check_location"],
        checksum=checksum_from_json(row["checksum"]),
    )
    return _AGREEMENTS[checksum_agrees(event, schema, timezone)]
