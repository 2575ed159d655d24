"""Decoded rows as Spark's frames, for services that compare them with tables.

In: landed records that Spark has. Out: the rows that `record_decoder` makes of them, errors
included; or files of such rows, which the caller commits. The function from records to rows is that
of a sync, so a frame and the files of a sync hold the same rows.

Why running it again is safe: no commit names the files yet (`engine.files`).
"""

import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from ticdc_assets.config import Changefeed
from ticdc_assets.engine.cluster import require_cluster
from ticdc_assets.engine.paths import LakePaths
from ticdc_assets.pipeline.change_files import (
    DECODED_SCHEMA,
    RECORD_COLUMNS,
    DecodedFiles,
    joined_files,
    write_rows,
)
from ticdc_assets.pipeline.decoding import Clocks, record_decoder


def decoded(
    raw: DataFrame, changefeed: Changefeed, batch: int | None, *, clocks: Clocks | None = None
) -> DataFrame:
    """Return the decoded rows of records, errors included (`record_decoder`)."""
    return raw.select(*RECORD_COLUMNS).mapInArrow(
        record_decoder(changefeed, batch, clocks=clocks),
        from_arrow_schema(DECODED_SCHEMA, prefer_timestamp_ntz=True),
    )


def write_frame(rows: DataFrame, *, batch: int, into: LakePaths) -> DecodedFiles:
    """Write decoded rows that Spark has into files; see `write_rows`."""
    require_cluster(rows.sparkSession, into.change_log)

    def written(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoded = (
            part.cast(DECODED_SCHEMA).to_batches()
            for part in (pa.Table.from_batches([item]) for item in batches)
        )
        found = write_rows((item for some in decoded for item in some), batch=batch, into=into)
        yield pa.record_batch([[pickle.dumps(found)]], names=["found"])

    told: list[Any] = (
        rows.select(*DECODED_SCHEMA.names).mapInArrow(written, "found binary").collect()
    )
    return joined_files([pickle.loads(row["found"]) for row in told])
