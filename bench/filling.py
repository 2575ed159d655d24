"""Large mirrors, written by Spark directly instead of by millions of messages.

In: a feed of one table or more that has a cut with some rows. Out: the same mirrors with as many
rows as asked for, each as the next version of its table, and a cut that names them. The rows are
copies of one that is there, with keys in order and texts of their own, so that they do not compress
to nothing.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession

from bench.measuring import leave_out
from bench.pipeline import Feed
from bench.traffic import DATABASE, FIRST_ID, Shape, Traffic, narrow
from ticdc_assets.config import KafkaSource, Readers, TableChoice
from ticdc_assets.log.cuts import MirrorCut, publish, require_cut
from ticdc_assets.mirrors.table_writing import table_writer
from ticdc_assets.rows.mirror_rows import MirrorLayout
from ticdc_assets.rows.rows_of_work import Rows, numbered_names
from ticdc_assets.source.kafka.records import produce
from ticdc_assets.spark.frames import delta_frame
from ticdc_assets.spark.session import functions
from ticdc_assets.storage.paths import remove_tree
from ticdc_assets_tests.brokers import OwnBroker

TABLE = (DATABASE, "t0")
TEXT_LENGTH = 40
_ROWS_PER_FILE = 1_000_000
_FIRST_CHANGES = 10
_METADATA = {"mode": "filled"}


def shape() -> Shape:
    """Return the shape of a table whose mirror is to be large."""
    return narrow(TEXT_LENGTH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """A feed from a broker, of one table or more, whose mirrors were filled.

    Attributes:
        feed: the feed.
        traffic: the changes that go on from there.
        source: where they are sent.
    """

    feed: Feed
    traffic: Traffic
    source: KafkaSource

    def send(self, count: int) -> None:
        """Send changes."""
        produce(self.source, self.traffic.changes(count))

    def prepare(self, count: int) -> None:
        """Send changes and bring them as far as the change log."""
        self.send(count)
        self.feed.prepare()

    @property
    def path(self) -> Path:
        """Where the table of the only mirror is."""
        (mirror,) = require_cut(self.feed.paths).mirrors
        return Path(str(mirror.path(self.feed.paths)))


@contextmanager
def local_broker(folder: Path) -> Iterator[OwnBroker]:
    """Yield a broker whose CPU and memory do not count."""
    with OwnBroker(folder) as broker:
        leave_out(broker.pid)
        yield broker


def filled_feed(
    spark: SparkSession,
    folder: Path,
    broker: OwnBroker,
    rows: int,
    *,
    portable: bool = False,
    tables: int = 1,
    random_deletes: bool = False,
) -> Filled:
    """Return a feed whose mirrors have `rows` rows each; the folder's name becomes the topic's."""
    source = broker.source(folder.name)
    feed = Feed.of(spark, folder, source=source)
    if portable:
        readers = Readers(portable=TableChoice(("*.*",)))
        feed = replace(feed, changefeed=replace(feed.changefeed, readers=readers))
    traffic = Traffic(shapes=[shape()] * tables, topic=folder.name, random_deletes=random_deletes)
    broker.create_topic(folder.name, traffic.partitions)
    produce(source, traffic.opening)
    produce(source, traffic.changes(_FIRST_CHANGES * tables))
    feed.sync()
    cut = require_cut(feed.paths)
    mirrors = tuple(_filled(feed, mirror, rows) for mirror in cut.mirrors)
    publish(feed.paths, replace(cut, number=cut.number + 1, mirrors=mirrors))
    traffic.assume(rows)
    return Filled(feed=feed, traffic=traffic, source=source)


def _filled(feed: Feed, mirror: MirrorCut, rows: int) -> MirrorCut:
    """Write so many rows as the next version of a mirror, and return what a cut says of it."""
    spark, path = feed.spark, mirror.path(feed.paths)
    row = spark.read.format("delta").load(str(path)).limit(1)
    columns = row.columns
    files = max(1, -(-rows // _ROWS_PER_FILE))
    numbers = spark.range(FIRST_ID, FIRST_ID + rows, 1, files).withColumnRenamed("id", "number")
    F = functions(spark)
    filled = numbers.crossJoin(F.broadcast(row)).withColumns(
        {"id": F.col("number"), "c": text(spark)}
    )
    return _overwritten(feed, mirror, filled.select(*columns), rows)


def rewrite(feed: Feed) -> None:
    """Write the rows of each mirror anew, as large files without rows that are gone, in a cut."""
    cut = require_cut(feed.paths)
    mirrors = tuple(_rewritten(feed, mirror) for mirror in cut.mirrors)
    publish(feed.paths, replace(cut, number=cut.number + 1, mirrors=mirrors))


def _rewritten(feed: Feed, mirror: MirrorCut) -> MirrorCut:
    files = max(1, -(-mirror.rows // _ROWS_PER_FILE))
    rows = delta_frame(feed.lake.spark, *mirror.at(feed.lake.paths)).repartitionByRange(files, "id")
    return _overwritten(feed, mirror, rows.sortWithinPartitions("id"), mirror.rows)


def _overwritten(feed: Feed, mirror: MirrorCut, rows: DataFrame, count: int) -> MirrorCut:
    """Write rows as the next version of a mirror, and return what a cut says of it."""
    schema = mirror.table_schema
    folder = Path(str(feed.paths.root)).parent / f"rows-{uuid.uuid4()}"
    layout = MirrorLayout(schema=schema)
    stored = numbered_names(layout.arrow)
    rows.toDF(*stored).write.parquet(str(folder))
    copied = Rows.of_files(sorted(folder.glob("*.parquet")), layout.arrow, stored)
    name = (mirror.database, mirror.table)
    writer = table_writer(feed.lake, layout, name, mirror.mirror_id, published=mirror.version)
    writer.begin_empty()
    tables = (pa.Table.from_batches([batch]) for batch in copied.read())
    version = writer.replace(tables, (), _METADATA)
    remove_tree(folder)
    return replace(mirror, version=version, rows=count)


def text(spark: SparkSession) -> Column:
    """Return a text for each `number`."""
    F = functions(spark)
    return F.sha1(F.col("number").cast("string"))


def bytes_in(path: Path) -> int:
    """Return the bytes of a Delta table's files, those of its log left out."""
    return sum(
        item.stat().st_size
        for item in path.rglob("*")
        if item.is_file() and "_delta_log" not in item.parts
    )


def plain_copy(rows: DataFrame, path: Path) -> None:
    """Write rows as a table as it is without anything set: a MERGE into it writes files anew."""
    (
        rows.write.format("delta")
        .option("delta.columnMapping.mode", "name")
        .option("delta.enableDeletionVectors", "false")
        .save(str(path))
    )
