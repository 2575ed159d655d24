"""Decoding: `raw_messages` into `change_log`, and what cannot be decoded into `quarantine`.

In: landed batches that were not decoded yet. Out: appends to `change_log` (one row a change; DDL,
bootstraps and watermarks are rows of it too) and `quarantine`, and new totals in `change_groups`.

`change_log` holds images as sent, so it never waits for a schema: rows whose schema has not
arrived are durable like all others.

Why running it again is safe: a landed batch becomes one batch of the change log, in one commit
that carries both numbers. Then come the quarantined records and the totals, each under the same
batch number; `change_groups` is written last and says up to which batch all three are done. A run
killed in between writes the missing ones again: the quarantine append is skipped by its
transaction identifier, the totals are an overwrite.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from ticdc_assets.changelog.plan import RowGroup
from ticdc_assets.changelog.progress import PartitionProgress, advance_all
from ticdc_assets.claim_check import ClaimCheckStore, complete_batches
from ticdc_assets.config import Changefeed
from ticdc_assets.lake.control import (
    commit_metadata,
    find_commit_metadata,
    read_rows,
    write_table,
)
from ticdc_assets.lake.paths import LakePaths
from ticdc_assets.lake.quarantine import append_quarantine
from ticdc_assets.wire import WireFormat
from ticdc_assets.wire.batch import decode_batch
from ticdc_assets.wire.rows import CHANGE_SCHEMA, shape_from_text

ERROR_COLUMNS = ("error_reason", "error_position", "error_expected", "error_got")

_PREFIX = pa.schema(
    [
        ("batch", pa.int64()),
        ("landed_at", pa.timestamp("us", tz="UTC")),
        ("landed_day", pa.date32()),
    ]
)
DECODED_SCHEMA = pa.schema([*_PREFIX, *CHANGE_SCHEMA])
"""Decoded rows: `change_log` with the error columns that only quarantined records have."""

CHANGE_LOG_COLUMNS = tuple(name for name in DECODED_SCHEMA.names if name not in ERROR_COLUMNS)
CHANGE_LOG_SCHEMA = T.StructType(
    [
        field
        for field in from_arrow_schema(DECODED_SCHEMA, prefer_timestamp_ntz=True).fields
        if field.name in CHANGE_LOG_COLUMNS
    ]
)
"""`change_log`: one row a change, DDL, bootstrap or watermark."""

_GROUPS_SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("database", pa.string()),
        ("table", pa.string()),
        ("table_id", pa.int64()),
        ("schema_version", pa.int64()),
        ("shape", pa.string()),
        ("handle_key_only", pa.bool_()),
        ("es_only", pa.bool_()),
        ("rows", pa.int64()),
        ("min_ts", pa.int64()),
        ("max_ts", pa.int64()),
        ("steps_back", pa.int64()),
        ("checksums", pa.int64()),
        ("first_landed_at", pa.timestamp("us", tz="UTC")),
        ("last_landed_at", pa.timestamp("us", tz="UTC")),
        ("last_batch", pa.int64()),
    ]
)
_GROUP_KEY = (
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """What one decoding did.

    Attributes:
        batch: number of the newest batch of the change log; 0 if none.
        batches: batches decoded by this call.
        changes: rows appended to the change log, by kind.
        quarantined: records that could not be decoded.
    """

    batch: int
    batches: int
    changes: dict[str, int]
    quarantined: int


def decoded_position(paths: LakePaths) -> tuple[int, int]:
    """Return (newest batch of the change log, landed batch it came from); needs no Spark."""
    metadata = commit_metadata(paths.change_log)
    return metadata.get("batch", 0), metadata.get("landed", 0)


def decode_new(spark: SparkSession, paths: LakePaths, changefeed: Changefeed) -> Decoding:
    """Decode every landed batch that is not in the change log yet."""
    landed = commit_metadata(paths.raw_messages).get("batch", 0)
    batch, done = decoded_position(paths)
    changes: dict[str, int] = {}
    quarantined = batches = 0
    if batch and commit_metadata(paths.change_groups).get("batch", 0) < batch:
        # Killed behind the change log's commit: whether that batch had errors is not known. A
        # re-driven batch has none of its own: its records are in quarantine already.
        if not commit_metadata(paths.change_log).get("redrive"):
            _append_errors(
                paths, decoded(_landed_batch(spark, paths, done), changefeed, batch), batch
            )
        add_to_groups(spark, paths, batch)
    for number in range(done + 1, landed + 1):
        batch += 1
        rows = decoded(_landed_batch(spark, paths, number), changefeed, batch)
        errors = append_changes(paths, rows, batch=batch, landed=number)
        if errors:
            _append_errors(paths, rows, batch)
        for kind, count in add_to_groups(spark, paths, batch).items():
            changes[kind] = changes.get(kind, 0) + count
        quarantined += errors
        batches += 1
    return Decoding(batch=batch, batches=batches, changes=changes, quarantined=quarantined)


def _landed_batch(spark: SparkSession, paths: LakePaths, number: int) -> DataFrame:
    raw = spark.read.format("delta").load(str(paths.raw_messages))
    return raw.where(F.col("batch") == number)


def landed_up_to(paths: LakePaths, batch: int) -> int | None:
    """Return the newest landed batch that is in the change log up to batch `batch`.

    None if no commit of the change log says so. Needs no Spark.
    """
    found = find_commit_metadata(
        paths.change_log, lambda metadata: metadata.get("batch", batch + 1) <= batch
    )
    return None if found is None else found["landed"]


def decoded(raw: DataFrame, changefeed: Changefeed, batch: int | None) -> DataFrame:
    """Return the decoded rows of `raw`, errors included, as batch `batch`.

    Rows that TiCDC put into the storage of large messages are completed from there. Without
    `batch` each row gets the number of the landed batch that its record is of.
    """
    wire_format, compression = WireFormat(changefeed.wire_format), changefeed.compression
    store = None
    if changefeed.claim_check is not None:
        store = ClaimCheckStore(changefeed.claim_check, wire_format, compression)

    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for records in batches:
            rows = decode_batch(wire_format, records, compression=compression)
            for part in [rows] if store is None else complete_batches(rows, store):
                # All records of a landed batch share one landing time; a re-driven one keeps it.
                landed_at = _of_records(records, part, "landed_at", pa.timestamp("us", tz="UTC"))
                yield pa.RecordBatch.from_arrays(
                    [
                        _of_records(records, part, "batch", pa.int64())
                        if batch is None
                        else pa.array([batch] * part.num_rows, pa.int64()),
                        landed_at,
                        landed_at.cast(pa.date32()),
                        *part.columns,
                    ],
                    schema=DECODED_SCHEMA,
                )

    columns = raw.select("batch", "landed_at", "topic", "partition", "offset", "key", "value")
    return columns.mapInArrow(decode, from_arrow_schema(DECODED_SCHEMA, prefer_timestamp_ntz=True))


def _of_records(
    records: pa.RecordBatch, rows: pa.RecordBatch, name: str, kind: pa.DataType
) -> pa.Array:
    """Return for each decoded row the value of column `name` of the record that it came from."""
    values = records.column(name).cast(kind)
    if len(values.unique()) <= 1:
        return pa.array([values[0].as_py()] * rows.num_rows, kind)
    by_place = dict(zip(_places(records), values.to_pylist(), strict=True))
    return pa.array([by_place[place] for place in _places(rows)], kind)


def _places(rows: pa.RecordBatch) -> Iterator[tuple[object, ...]]:
    names = ("topic", "partition", "offset")
    return zip(*(rows.column(name).to_pylist() for name in names), strict=True)


def append_changes(
    paths: LakePaths, rows: DataFrame, *, batch: int, landed: int, redrive: bool = False
) -> int:
    """Append decoded rows to the change log in one commit; return how many records were errors."""
    observation = Observation()
    observed = rows.observe(
        observation, F.count_if(F.col("kind") == "error").alias("errors"), F.count("*").alias("all")
    )
    (
        observed.where(F.col("kind") != "error")
        .select(*CHANGE_LOG_COLUMNS)
        .write.format("delta")
        .mode("append")
        .partitionBy("landed_day")
        .option("delta.logRetentionDuration", "interval 3650 days")
        .option("txnAppId", "decode")
        .option("txnVersion", batch)
        .option("userMetadata", json.dumps({"batch": batch, "landed": landed, "redrive": redrive}))
        .save(str(paths.change_log))
    )
    return int(observation.get["errors"])


def _append_errors(paths: LakePaths, rows: DataFrame, batch: int) -> None:
    errors = rows.where(F.col("kind") == "error").select(
        F.lit("decode").alias("stage"),
        "topic",
        "partition",
        "offset",
        "index",
        F.col("error_reason").alias("reason"),
        F.col("error_position").alias("position"),
        F.col("error_expected").alias("expected"),
        F.col("error_got").alias("got"),
        F.lit(None).cast("string").alias("database"),
        F.lit(None).cast("string").alias("table"),
        F.lit(None).cast("long").alias("commit_ts"),
        F.col("batch"),
    )
    append_quarantine(paths, errors, app_id="decode", version=batch)


# Totals -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeGroups:
    """The change log in numbers, cumulative over all batches.

    Attributes:
        batch: newest batch included.
        rows: one dict a group, fields as in the `change_groups` table.
    """

    batch: int
    rows: tuple[dict[str, Any], ...]

    def row_groups(self) -> list[RowGroup]:
        """Return the row changes, one group per schema or shape cited, over all partitions."""
        groups: dict[tuple[object, ...], RowGroup] = {}
        for row in self.rows:
            if row["kind"] != "row":
                continue
            group = RowGroup(
                database=row["database"],
                table=row["table"],
                table_id=row["table_id"],
                schema_version=row["schema_version"],
                min_ts=row["min_ts"],
                max_ts=row["max_ts"],
                rows=row["rows"],
                shape=None if row["shape"] is None else shape_from_text(row["shape"]),
                partial=bool(row["handle_key_only"]),
            )
            groups[group.key] = group.joined(groups.get(group.key))
        return list(groups.values())

    @property
    def es_only(self) -> bool:
        """Whether there are changes without commit ts, so that no TSO can be a cut."""
        return any(row["es_only"] for row in self.rows)

    @property
    def checksums(self) -> int:
        """Row changes that carry checksums."""
        return sum(row["checksums"] for row in self.rows)

    @property
    def newest_change(self) -> int | None:
        """The highest commit ts of a row or DDL, None without any."""
        newest = (row["max_ts"] for row in self.rows if row["kind"] in ("row", "ddl"))
        return max(newest, default=None)

    @property
    def oldest_change(self) -> int | None:
        """The lowest commit ts of a row or DDL, None without any."""
        oldest = (row["min_ts"] for row in self.rows if row["kind"] in ("row", "ddl"))
        return min(oldest, default=None)

    def progress(self) -> dict[tuple[str, int], PartitionProgress]:
        """Return how far each partition's watermark is."""
        return {
            (row["topic"], row["partition"]): PartitionProgress(
                watermark_ts=row["max_ts"], steps_back=row["steps_back"], watermarks=row["rows"]
            )
            for row in self.rows
            if row["kind"] == "watermark"
        }

    def newest_batch(self, kinds: frozenset[str]) -> int:
        """Return the newest batch that has a row of one of `kinds`; 0 if none has."""
        return max((row["last_batch"] for row in self.rows if row["kind"] in kinds), default=0)


def read_groups(paths: LakePaths) -> ChangeGroups:
    """Return the newest totals; needs no Spark."""
    return ChangeGroups(
        batch=commit_metadata(paths.change_groups).get("batch", 0),
        rows=tuple(read_rows(paths.change_groups)),
    )


def add_to_groups(spark: SparkSession, paths: LakePaths, batch: int) -> dict[str, int]:
    """Add batch `batch` of the change log to `change_groups`; return its rows by kind."""
    log = spark.read.format("delta").load(str(paths.change_log)).where(F.col("batch") == batch)
    new = (
        log.groupBy(*_GROUP_KEY)
        .agg(
            *_totals(),
            # Watermarks in offset order, to see which of them step back.
            F.sort_array(
                F.collect_list(
                    F.when(F.col("kind") == "watermark", F.struct("offset", "index", "commit_ts"))
                )
            ).alias("watermarks"),
        )
        .toArrow()
        .to_pylist()
    )
    groups = {
        tuple(row[name] for name in _GROUP_KEY): row for row in read_rows(paths.change_groups)
    }
    counts: dict[str, int] = {}
    for row in new:
        key = tuple(row[name] for name in _GROUP_KEY)
        watermarks = row.pop("watermarks")
        present = groups.get(key)
        counts[row["kind"]] = counts.get(row["kind"], 0) + row["rows"]
        place = (row["topic"], row["partition"])
        before = PartitionProgress()
        if present is not None:
            before = PartitionProgress(
                watermark_ts=present["max_ts"] or 0,
                steps_back=present["steps_back"],
                watermarks=present["rows"],
            )
        after = advance_all({place: before}, ((place, item["commit_ts"]) for item in watermarks))[
            place
        ]
        row["steps_back"] = after.steps_back
        row["last_batch"] = batch
        if present is not None:
            row["rows"] += present["rows"]
            row["checksums"] += present["checksums"]
            row["min_ts"] = _least(row["min_ts"], present["min_ts"])
            row["max_ts"] = _greatest(row["max_ts"], present["max_ts"])
            row["first_landed_at"] = min(row["first_landed_at"], present["first_landed_at"])
            row["last_landed_at"] = max(row["last_landed_at"], present["last_landed_at"])
        groups[key] = row
    _write_groups(paths, list(groups.values()), batch)
    return counts


def group_at_once(log: DataFrame, paths: LakePaths, batch: int) -> None:
    """Write `change_groups` for a change log that was written at once, up to batch `batch`.

    Steps back of watermarks are not counted: that takes them one by one, in order.
    """
    rows = log.groupBy(*_GROUP_KEY).agg(*_totals(), F.max("batch").alias("last_batch"))
    groups = [row | {"steps_back": 0} for row in rows.toArrow().to_pylist()]
    _write_groups(paths, groups, batch)


def add_groups_below(paths: LakePaths, known: ChangeGroups, tso: int) -> None:
    """Add to `change_groups` what another change log had at or below `tso` and this one lacks.

    What this one still has of a group is all that may be counted of it, so only the span in time
    of a group grows; a group that it has nothing of gets no rows.
    """
    own = read_groups(paths)
    groups = {tuple(row[name] for name in _GROUP_KEY): row for row in own.rows}
    for row in known.rows:
        if row["min_ts"] is not None and row["min_ts"] > tso:
            continue
        key = tuple(row[name] for name in _GROUP_KEY)
        present = groups.get(key)
        span = {"max_ts": None if row["max_ts"] is None else min(row["max_ts"], tso)}
        span["min_ts"] = row["min_ts"]
        if present is None:
            groups[key] = row | span | {"rows": 0, "checksums": 0, "last_batch": 0}
            continue
        groups[key] = present | {
            "min_ts": _least(present["min_ts"], span["min_ts"]),
            "max_ts": _greatest(present["max_ts"], span["max_ts"]),
            "first_landed_at": min(present["first_landed_at"], row["first_landed_at"]),
        }
    _write_groups(paths, list(groups.values()), own.batch)


def _totals() -> list[Column]:
    return [
        F.count("*").alias("rows"),
        F.min("commit_ts").alias("min_ts"),
        F.max("commit_ts").alias("max_ts"),
        F.min("landed_at").alias("first_landed_at"),
        F.max("landed_at").alias("last_landed_at"),
        F.count("checksum").alias("checksums"),
    ]


def _write_groups(paths: LakePaths, groups: list[dict[str, Any]], batch: int) -> None:
    write_table(
        paths.change_groups,
        pa.Table.from_pylist(groups, schema=_GROUPS_SCHEMA),
        overwrite=True,
        metadata={"batch": batch},
    )


def _least(left: int | None, right: int | None) -> int | None:
    return min((value for value in (left, right) if value is not None), default=None)


def _greatest(left: int | None, right: int | None) -> int | None:
    return max((value for value in (left, right) if value is not None), default=None)
