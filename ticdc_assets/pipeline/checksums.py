"""Row checksums: do the images in the change log match TiCDC's checksums?

In: row changes that carry checksums (TiCDC's integrity check, Simple protocol), and the schema
registry. Out: the table `checksums`, one row for each batch of the change log that has checksums:
how many rows match, do not match, cannot be checked, or wait for their schema, and the coordinates
of the first that do not match. This does not change any mirror: a row that does not match is
applied like all others, and the asset check `row_checksums` reports it.

Why running it again is safe: a batch is checked as a whole, and its row replaces its earlier row. A
batch is checked again as long as rows of it wait for their schema.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from ticdc_assets.config import Changefeed
from ticdc_assets.engine.control import commit_metadata, read_rows, write_table
from ticdc_assets.engine.paths import LakePaths
from ticdc_assets.engine.session import functions
from ticdc_assets.events import Op, RowChange
from ticdc_assets.pipeline.agreement import Agreement, Checksums
from ticdc_assets.pipeline.change_statistics import ChangeGroups
from ticdc_assets.pipeline.schema_tables import read_history
from ticdc_assets.registry.history import SchemaHistory
from ticdc_assets.rows.mirror_rows import ArrowMap
from ticdc_assets.schemas import TableSchema
from ticdc_assets.values.checksums import checksum_agrees
from ticdc_assets.wire.rows import checksum_from_json, image_from_json

MAX_EXAMPLES = 20
"""Rows that disagree, kept by their place for each batch."""


_AGREEMENTS: Mapping[bool | None, Agreement] = {
    True: Agreement.AGREES,
    False: Agreement.DISAGREES,
    None: Agreement.UNKNOWN,
}

_PLACE = [
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("index", pa.int32()),
    ("database", pa.string()),
    ("table", pa.string()),
    ("commit_ts", pa.int64()),
]
_COMPARED = pa.schema([("batch", pa.int64()), ("agreement", pa.string()), *_PLACE])

CHECKSUMS_SCHEMA = pa.schema(
    [
        ("batch", pa.int64()),
        *((str(agreement), pa.int64()) for agreement in Agreement),
        ("examples", pa.list_(pa.struct(_PLACE))),
    ]
)
"""`checksums`: one row a batch of the change log with checksums."""

_ROW_COLUMNS = (
    *("batch", "topic", "partition", "offset", "index", "op", "commit_ts", "database", "table"),
    *("table_id", "schema_version", "before", "after", "handle_key_only"),
    *("claim_check_location", "checksum"),
)


def compare_new(
    spark: SparkSession,
    paths: LakePaths,
    changefeed: Changefeed,
    *,
    groups: ChangeGroups,
) -> None:
    """Compare the checksums of every batch that was not, and of those with rows that waited."""
    if not groups.checksums:
        return
    known = {row["batch"]: row for row in read_rows(paths.checksums)}
    done = commit_metadata(paths.checksums).get("batch", 0)
    waiting = [number for number, row in known.items() if row[Agreement.WAITING]]
    for item in groups.rechecks:
        if item.batch > done:
            # Rows of them were corrected, maybe all taken away.
            known = {
                number: row
                for number, row in known.items()
                if not item.first <= number <= item.last
            }
            waiting += range(item.first, item.last + 1)
    if done == groups.batch and not waiting:
        return
    F = functions(spark)
    log = spark.read.format("delta").load(str(paths.change_log))
    rows = log.where(
        F.col("checksum").isNotNull()
        & (F.col("batch") <= groups.batch)
        & ((F.col("batch") > done) | F.col("batch").isin(waiting))
    ).select(*_ROW_COLUMNS)
    compared = rows.mapInArrow(
        _comparison(_schemas(read_history(paths)), changefeed.timezone),
        from_arrow_schema(_COMPARED),
    )
    place = F.struct(*(name for name, _ in _PLACE))
    disagrees = F.col("agreement") == str(Agreement.DISAGREES)
    found = (
        compared.groupBy("batch")
        .agg(
            *(
                F.count_if(F.col("agreement") == str(agreement)).alias(str(agreement))
                for agreement in Agreement
            ),
            F.slice(F.sort_array(F.collect_list(F.when(disagrees, place))), 1, MAX_EXAMPLES).alias(
                "examples"
            ),
        )
        .toArrow()
        .to_pylist()
    )
    known.update((row["batch"], row) for row in found)
    write_table(
        paths.checksums,
        pa.Table.from_pylist([known[number] for number in sorted(known)], schema=CHECKSUMS_SCHEMA),
        overwrite=True,
        metadata={"batch": groups.batch},
    )


def read_checksums(paths: LakePaths) -> Checksums:
    """Return the checksums compared so far; needs no Spark."""
    rows = read_rows(paths.checksums)
    return Checksums(
        counts={agreement: sum(row[agreement] for row in rows) for agreement in Agreement},
        examples=tuple(
            example
            for row in sorted(rows, key=lambda row: row["batch"])
            for example in row["examples"]
        )[:MAX_EXAMPLES],
    )


def _schemas(history: SchemaHistory) -> dict[tuple[str, str, int], TableSchema]:
    return {version.key: version.schema for version in history.versions}


def _comparison(schemas: Mapping[tuple[str, str, int], TableSchema], timezone: str) -> ArrowMap:
    def compare(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            compared = [
                {**row, "agreement": str(_agreement(row, schemas, timezone))}
                for row in batch.to_pylist()
            ]
            yield pa.RecordBatch.from_pylist(
                [{name: row[name] for name in _COMPARED.names} for row in compared],
                schema=_COMPARED,
            )

    return compare


def _agreement(
    row: Mapping[str, Any],
    schemas: Mapping[tuple[str, str, int], TableSchema],
    timezone: str,
) -> Agreement:
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
