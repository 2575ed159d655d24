"""Decoding seeds: from `snapshot_rows` to `change_log`, and unreadable rows to `quarantine`.

In: the landed rows of a seed (`seed_landing`), and the form of its files (`seeds`). Out: one append
to `change_log`: a row of kind `snapshot` for each row of an export, with its image as in a message,
and for each table a DDL of type `SNAPSHOT`: the table has these rows from the TSO of the export on.
`topic`, `partition` and `offset` of a row are the file, the number of the seed and the line. Text
that is not a row becomes a row of `quarantine` with its position. Such rows of older seeds of the
same tables at the same TSO are closed.

Why running it again is safe: the append carries the number of the seed as transaction identifier,
and so do the quarantined rows, which come before it; the totals come last, as for any batch
(`decoding`).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_assets.base.names import counted
from ticdc_assets.base.progress import tell
from ticdc_assets.delta.appending import BY_LANDING_DAY, append_files
from ticdc_assets.delta.control import commit_metadata
from ticdc_assets.delta.lake import Lake
from ticdc_assets.delta.row_schema import filled_batch
from ticdc_assets.log.change_files import (
    CHANGE_LOG_SCHEMA,
    DECODED_SCHEMA,
    Decode,
    DecodedFiles,
    decode_into_files,
    joined_files,
    rows_of,
    write_rows,
)
from ticdc_assets.log.change_statistics import Added, add_to_statistics
from ticdc_assets.log.quarantine import (
    Closing,
    append_fault_files,
    close_rows,
    place_of,
    read_quarantine,
)
from ticdc_assets.log.seeds import APPLICATION, Seed, decoded_seed, landed_seed, read_seeds
from ticdc_assets.log.totals import NO_TOPIC
from ticdc_assets.model.events import SNAPSHOT_DDL, DdlEvent, Op
from ticdc_assets.model.tso import physical_ms
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.wire.rows import ERROR, SNAPSHOT, event_row

if TYPE_CHECKING:
    from ticdc_assets.source.exports.images import ImageMaker

SNAPSHOT_COLUMNS = (
    *("batch", "landed_at", "database", "table"),
    *("file", "line", "index", "format", "columns", "problem", "row"),
)
"""The columns of a landed row that decoding reads."""


def decode_seeds(lake: Lake) -> list[Added]:
    """Decode every landed seed that is not in the change log yet."""
    added: list[Added] = []
    for number in range(decoded_seed(lake.paths) + 1, landed_seed(lake.paths) + 1):
        metadata = commit_metadata(lake.paths.change_log)
        batch = metadata.get("batch", 0) + 1
        files = decoded_files(lake, number, batch=batch, into=lake.paths)
        append_fault_files(lake.paths, files.faults, app_id=APPLICATION, version=number)
        # This comes before the commit that ends the seed: the next run would not do it.
        close_former(lake.paths, number)
        append_files(
            lake.paths.change_log,
            files.changes,
            CHANGE_LOG_SCHEMA,
            app_id=APPLICATION,
            version=number,
            metadata={"batch": batch, "landed": metadata.get("landed", 0), "seed": number},
            layout=BY_LANDING_DAY,
        )
        added.append(add_to_statistics(lake, batch, files.totals))
    return added


def close_former(paths: LakePaths, number: int) -> None:
    """Close the quarantined rows of older seeds of a seed's tables, at the same TSO."""
    seeds = read_seeds(paths)
    tables = {(item.name, item.tso) for item in seeds if item.seed == number}
    former = {
        (item.seed, *item.name)
        for item in seeds
        if item.seed < number and (item.name, item.tso) in tables
    }
    places = [
        place_of(row)
        for row in (read_quarantine(paths) if former else ())
        if row["stage"] == "decode" and (row["partition"], row["database"], row["table"]) in former
    ]
    close_rows(paths, "decode", places, Closing.LATER_CHANGE)


def decoded_files(lake: Lake, number: int, *, batch: int, into: LakePaths) -> DecodedFiles:
    """Decode a seed into files of a batch of the change log that no commit names yet."""
    seeds = read_seeds(lake.paths, number)
    tell(f"decoding the rows of {counted(len(seeds), 'exported table')}")
    rows = decode_into_files(
        lake.spark,
        rows_of(lake.paths.snapshot_rows, SNAPSHOT_COLUMNS, batches=(number, number)),
        row_decoder(seeds, batch),
        batch=batch,
        into=into,
    )
    ddls = write_rows([ddl_rows(seeds, batch)], batch=batch, into=into)
    return joined_files([rows, ddls])


# Rows -------------------------------------------------------------------------------------------


def row_decoder(seeds: Iterable[Seed], batch: int) -> Decode:
    """Return the function from landed rows of some seeds to rows of a batch of the change log."""
    by_place = {(item.seed, *item.name): item for item in seeds}

    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Its compiled loops take seconds, and Dagster loads this module.
        from ticdc_assets.source.exports.images import ImageMaker

        makers: dict[tuple[int, str, str], ImageMaker] = {}
        for records in batches:
            for seed, rows in _by_table(records, by_place):
                key = (seed.seed, *seed.name)
                if key not in makers:
                    makers[key] = ImageMaker(
                        seed.schema,
                        seed.dialect,
                        seed.timezone,
                        seed.create_sql,
                        # Messages may have the columns in another order.
                        is_ordered=bool(seed.create_sql),
                    )
                yield _decoded(rows, seed, makers[key], batch)

    return decode


def _by_table(
    records: pa.RecordBatch, seeds: Mapping[tuple[int, str, str], Seed]
) -> Iterator[tuple[Seed, pa.RecordBatch]]:
    """Yield consecutive rows of a table, all with the same columns.

    Rows of other tables are left out.
    """
    names = ("batch", "database", "table", "format", "columns", "problem")
    if all(len(records.column(name).unique()) <= 1 for name in names):
        spans = [(0, records.num_rows)]
    else:
        places = list(zip(*(records.column(name).to_pylist() for name in names), strict=True))
        numbers = [list(run) for _, run in groupby(range(len(places)), key=places.__getitem__)]
        spans = [(run[0], len(run)) for run in numbers]
    for begin, count in spans:
        run = records.slice(begin, count)
        batch, database, table = (run.column(name)[0].as_py() for name in names[:3])
        seed = seeds.get((batch, database, table))
        if seed is not None:
            yield seed, run


def _decoded(
    records: pa.RecordBatch, seed: Seed, maker: "ImageMaker", batch: int
) -> pa.RecordBatch:
    size = records.num_rows
    named = records.column("columns")[0].as_py()
    images = maker.make(
        records.column("row"),
        format=records.column("format")[0].as_py(),
        columns=None if named is None else json.loads(named),
        problem=records.column("problem")[0].as_py(),
    )
    is_good = images.reason.is_null()

    def of_rows(value: object, kind: pa.DataType) -> pa.Array:
        """Return a value for rows; null for errors."""
        every = pa.repeat(pa.scalar(value, kind), size)
        return pc.if_else(is_good, every, None) if images.errors else every

    landed_at = records.column("landed_at").cast(pa.timestamp("us", tz="UTC"))
    values = {
        "batch": batch,
        "landed_at": landed_at,
        "landed_day": landed_at.cast(pa.date32()),
        "index": records.column("index"),
        "topic": records.column("file"),
        "partition": records.column("batch").cast(pa.int32()),
        "offset": records.column("line"),
        "kind": pc.if_else(is_good, SNAPSHOT, ERROR),
        "op": of_rows(str(Op.SNAPSHOT), pa.string()),
        "commit_ts": of_rows(seed.tso, pa.int64()),
        "build_ts_ms": of_rows(physical_ms(seed.tso), pa.int64()),
        "database": seed.database,
        "table": seed.table,
        "schema_version": of_rows(seed.schema.version, pa.int64()),
        "after": images.images,
        "shape": images.shapes,
        "handle_key_only": of_rows(False, pa.bool_()),
        "es_only": of_rows(False, pa.bool_()),
        "error_reason": images.reason,
        "error_position": images.position,
        "error_expected": images.expected,
        "error_got": images.got,
    }
    return filled_batch(DECODED_SCHEMA, size, values)


# Tables -----------------------------------------------------------------------------------------


def ddl_rows(seeds: Sequence[Seed], batch: int) -> pa.RecordBatch:
    """Return the rows of the change log by which tables begin with a seed."""
    rows: list[dict[str, Any]] = []
    for number, seed in enumerate(seeds):
        event = DdlEvent(
            ddl_type=SNAPSHOT_DDL,
            commit_ts=seed.tso,
            build_ts_ms=physical_ms(seed.tso),
            sql=seed.create_sql,
            database=seed.database,
            table=seed.table,
            schema=seed.schema,
            pre_schema=None,
        )
        landed = {"landed_at": seed.seeded_at, "landed_day": seed.seeded_at.date()}
        place = {"topic": NO_TOPIC, "partition": seed.seed, "offset": number}
        rows.append({**event_row(event), "batch": batch, **landed, **place})
    return pa.RecordBatch.from_pylist(rows, schema=DECODED_SCHEMA)
