"""A lake in a folder and one on S3: how the same syncs grow on both.

In: numbers of changes, and of syncs. Out: the CPU seconds of syncs of small tables by the number of
changes, and of small syncs by how many came before them without a compaction, on either lake. The
store is versitygw over a folder of this machine, which `make versitygw` builds; where it is not
built, a sentence says that S3 was not measured. Its own CPU does not count. Nothing here is large
enough for Spark.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from bench.growth import grown, measure_syncs_in_a_row
from bench.measuring import Sample, leave_out, measure
from bench.pipeline import Feed
from bench.results import GROWS, Part
from bench.shop import Shop, alternating
from ticdc_assets.storage.paths import AnyPath

TABLES = 3
_FOLDER, _S3 = "folder", "S3"


def measure_lakes(
    spark: SparkSession, folder: Path, sizes: Sequence[int], *, syncs: int, repetitions: int
) -> Part:
    """Return what syncs cost on either lake, by their changes and by the syncs before them."""
    folder.mkdir(parents=True)
    with _lakes(folder) as lakes:
        parts: list[Part] = []
        for name, lake in lakes.items():
            parts.append(_by_changes(spark, folder, sizes, repetitions, name, lake))
            parts.append(
                measure_syncs_in_a_row(
                    spark, folder / f"row {name}", syncs=syncs, name=name, lake=lake("row")
                )
            )
    missing = "S3 was not measured: versitygw is not there; `make versitygw` builds it, with Go."
    if _S3 not in lakes:
        parts.append(Part(facts=[missing]))
    return Part.joined(parts)


def _by_changes(
    spark: SparkSession,
    folder: Path,
    sizes: Sequence[int],
    repetitions: int,
    name: str,
    lake: Callable[[str], AnyPath],
) -> Part:
    feed = Feed.of(spark, folder / f"changes {name}", lake=lake("changes"))
    shop = Shop.open(feed.capture, tables=TABLES, rows=sizes[-1] // TABLES)
    feed.sync()
    states = alternating()
    samples: list[tuple[int, Sample]] = []
    for size in sizes:

        def change(size: int = size) -> None:
            shop.change(size // TABLES, states())

        samples.append((size, measure(feed.sync, repetitions=repetitions, before=change)))
    return grown(
        samples,
        plot=f"A sync of {TABLES} small tables",
        x="changes in it",
        limit=GROWS,
        what=lambda size: f"a sync of {size:,} changes of {TABLES} tables, lake: {name}",
        name=name,
    )


@contextmanager
def _lakes(folder: Path) -> Iterator[Mapping[str, Callable[[str], AnyPath]]]:
    """Yield by its name the lakes that there are: each gives the root of a new lake."""
    # The gateway is the one that the tests use.
    from ticdc_assets_tests.s3 import S3Lake, find_gateway, running_gateway

    lakes: dict[str, Callable[[str], AnyPath]] = {_FOLDER: lambda name: folder / f"lake {name}"}
    if find_gateway() is None:
        yield lakes
        return
    (folder / "store").mkdir()
    with running_gateway(folder / "store") as gateway:
        leave_out(gateway.pid)

        def bucket(name: str) -> AnyPath:
            objects = folder / "store" / "objects" / name
            objects.mkdir()
            return S3Lake(endpoint=gateway.url, bucket=name, folder=objects).path

        yield {**lakes, _S3: bucket}
