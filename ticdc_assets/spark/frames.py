"""Spark's frames: read from tables and files, or made from Arrow tables.

In: a Delta table, Parquet files or an Arrow table. Out: a frame, which the caller merges, queries
or returns to a reader. The layers between the engine and the readers get frames here and import no
pyspark themselves; work without frames imports none at all.

Names of columns are data: they may have dots, blanks or backticks, which Spark takes for syntax in
some places. The functions here work for every name.

Nothing is written.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from ticdc_assets.storage.paths import AnyPath

if TYPE_CHECKING:  # importing pyspark takes a while
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as T

Frame: TypeAlias = "DataFrame"
"""Rows that Spark has, or will read."""


_LITERAL = "__globPaths__", "false"
"""Spark takes paths of files for patterns without this option; the names of folders are data.

Source: Spark's DataSource.GLOB_PATHS_KEY.
"""


def delta_frame(spark: "SparkSession", table: AnyPath, version: int) -> Frame:
    """Return the rows of a version of a Delta table."""
    return spark.read.format("delta").option("versionAsOf", version).load(str(table))


def parquet_frame(
    spark: "SparkSession", files: Sequence[AnyPath], stored: pa.Schema, names: Sequence[str]
) -> Frame:
    """Return the rows of Parquet files.

    Args:
        spark: the session.
        files: the files; at least one.
        stored: the columns in the files. Spark takes no name with a blank in it from a file.
        names: the columns' names in the frame.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    read = spark.read.schema(from_arrow_schema(stored, prefer_timestamp_ntz=True))
    return read.option(*_LITERAL).parquet(*map(str, files)).toDF(*names)


def frame_of(spark: "SparkSession", rows: pa.Table) -> Frame:
    """Return rows of this process as a frame."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
    if not rows.num_rows:
        return spark.createDataFrame([], schema=schema)
    # From a table in more than one chunk, Spark takes the first chunk of each slice.
    return spark.createDataFrame(rows.combine_chunks(), schema=schema)


def map_batches(
    frame: Frame,
    function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: "T.StructType | str",
) -> Frame:
    """Return a function's results for the batches of a frame, whatever its columns' names.

    Spark's own mapInArrow takes the names for syntax and does not find a column with a dot or a
    backtick.
    """
    names = frame.columns

    def mapped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return function(batch.rename_columns(names) for batch in batches)

    return frame.toDF(*(f"c{number}" for number in range(len(names)))).mapInArrow(mapped, schema)


def quoted(name: str) -> str:
    """Return a name quoted for Spark's parser: in backticks, which are doubled inside."""
    return "`" + name.replace("`", "``") + "`"


def sql_type_name(arrow: pa.DataType) -> str:
    """Return Spark SQL's name of a type."""
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(arrow, prefer_timestamp_ntz=True).simpleString()
