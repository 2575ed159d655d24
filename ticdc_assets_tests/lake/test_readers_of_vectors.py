"""Which readers read tables with deletion vectors right, and which refuse them.

A reader gives exactly the rows of a version, or raises an error that names the feature. There is no
third case: a reader that gave deleted rows would be worse than one that refuses.

The tables come from `vectors.make_table`, by the writer of mirrors. What Spark does with them
afterwards (OPTIMIZE, VACUUM, MERGE) is part of the test.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError, DeltaProtocolError
from pyspark.sql import SparkSession

from ticdc_assets.delta.delta_files import broken
from ticdc_assets.mirrors import versions
from ticdc_assets.spark.session import get_spark
from ticdc_assets.storage.lake_paths import MIRRORS
from ticdc_assets_tests.lake.vectors import Batch, make_table

Row = dict[str, Any]


@dataclass(frozen=True)
class Seen:
    """What a reader sees of a version of a table.

    Attributes:
        rows: all rows, by key.
        count: how many it counts; engines may do so by statistics alone.
        between: the rows with keys from `BETWEEN`, for which it may skip files and parts of files.
    """

    rows: list[Row]
    count: int
    between: list[Row]


BETWEEN = (440, 1_060)


# Tables -----------------------------------------------------------------------------------------


def rows_of(keys: Sequence[int], number: int, kind: pa.DataType, *, more: bool = False) -> pa.Table:
    columns = {
        "id": pa.array(keys, pa.int64()),
        "n": pa.array([number] * len(keys), kind),
        "name": pa.array([f"{key}-{number}" for key in keys], pa.string()),
    }
    if more:
        columns["more"] = pa.array([f"more-{key}" for key in keys], pa.string())
    return pa.table(columns)


def batches_of(*, widens: bool = False, adds: bool = False) -> list[Batch]:
    kind, large = (pa.int64(), 2**40) if widens else (pa.int32(), 2)
    return [
        Batch(rows_of(range(1_000), 0, pa.int32())),
        Batch(rows_of(range(1_000, 1_500), 1, pa.int32()), [7]),
        Batch(
            rows_of([*range(400, 450), 1_100, 1_600], large, kind, more=adds),
            [2, *range(500, 560), 1_050],
        ),
        # All rows of the newest file but one, and some whose file has a vector already.
        Batch(rows_of([1, 440, 1_700], large + 1, kind, more=adds), [3, 551, 1_600]),
        Batch(rows_of([], 0, kind, more=adds), [1_700, 1_055]),
    ]


@dataclass(frozen=True)
class Variant:
    """A kind of table.

    Attributes:
        mapped: whether its columns have other names in the files.
        widens: whether version 2 widens a column.
        adds: whether version 2 adds a column.
    """

    mapped: bool = False
    widens: bool = False
    adds: bool = False

    @property
    def batches(self) -> list[Batch]:
        return batches_of(widens=self.widens, adds=self.adds)


VARIANTS = {
    "vectors": Variant(),
    "added column": Variant(adds=True),
    "column mapping": Variant(mapped=True, adds=True),
    "widened type": Variant(widens=True),
    "both": Variant(mapped=True, widens=True, adds=True),
}
NEWEST = 4

by_variant = pytest.mark.parametrize(
    # By day the one that has all features.
    "name",
    [pytest.param(it, marks=() if it == "both" else pytest.mark.slow) for it in VARIANTS],
)


def truth(variant: Variant, version: int = NEWEST) -> Seen:
    found: dict[int, Row] = {}
    batches = variant.batches[: version + 1]
    for batch in batches:
        for key in batch.deleted:
            found.pop(key, None)
        found |= {row["id"]: row for row in batch.rows.to_pylist()}
    columns = batches[-1].rows.schema.names
    return seen({name: row.get(name) for name in columns} for row in found.values())


def seen(found: Any) -> Seen:
    rows = sorted(found, key=lambda row: row["id"])
    return Seen(rows, len(rows), [row for row in rows if BETWEEN[0] <= row["id"] <= BETWEEN[1]])


def changed(before: Seen) -> Seen:
    """Return what is left without the keys from 600 to 620, and with another name at 700."""
    return seen(
        row | ({"name": "new"} if row["id"] == 700 else {})
        for row in before.rows
        if not 600 <= row["id"] <= 620
    )


@pytest.fixture
def made_with_vectors(tmp_path: Path) -> Path:
    table = tmp_path / MIRRORS / "table"
    make_table(table, VARIANTS["vectors"].batches)
    return table


@pytest.fixture
def made(name: str, tmp_path: Path) -> Path:
    table = tmp_path / MIRRORS / "table"
    make_table(table, VARIANTS[name].batches, mapped=VARIANTS[name].mapped)
    return table


# Readers ----------------------------------------------------------------------------------------


class Reader(Protocol):
    def __call__(self, table: Path, version: int | None) -> Seen: ...


def _by_sql(ask: Callable[[str], list[Row]], name: str) -> Seen:
    (count,) = ask(f"SELECT count(*) AS c FROM {name}")
    between = ask(f"SELECT * FROM {name} WHERE id BETWEEN {BETWEEN[0]} AND {BETWEEN[1]}")
    return Seen(seen(ask(f"SELECT * FROM {name}")).rows, count["c"], seen(between).rows)


def by_spark(table: Path, version: int | None) -> Seen:
    spark = get_spark()
    place = f"delta.`{table}`" + ("" if version is None else f" VERSION AS OF {version}")
    return _by_sql(lambda text: [row.asDict() for row in spark.sql(text).collect()], place)


def by_delta_rs(table: Path, version: int | None) -> Seen:
    engine = QueryBuilder().register("t", DeltaTable(str(table), version=version))
    return _by_sql(lambda text: pa.table(engine.execute(text).read_all()).to_pylist(), "t")


def by_polars(table: Path, version: int | None) -> Seen:
    frame = polars.scan_delta(str(table), version=version)
    some = frame.filter(polars.col("id").is_between(*BETWEEN))
    return Seen(
        seen(frame.collect().to_dicts()).rows,
        frame.select(polars.len()).collect().item(),
        seen(some.collect().to_dicts()).rows,
    )


def by_this_package(table: Path, version: int | None) -> Seen:
    files = versions._files(table, newest(table) if version is None else version)
    return seen(row for batch in files.rows(files.schema).read() for row in batch.to_pylist())


def by_pyarrow(table: Path, version: int | None) -> Seen:
    return seen(DeltaTable(str(table), version=version).to_pyarrow_table().to_pylist())


_IN_DUCKDB = """
import json, os, sys
import duckdb
engine = duckdb.connect(config={"allow_unsigned_extensions": "true"})
engine.execute("SET autoinstall_known_extensions = false")
extension = os.environ.get("DUCKDB_DELTA_EXTENSION", "delta")
engine.execute(f"LOAD '{extension}'")
for text in sys.argv[1:]:
    found = engine.sql(text)
    rows = [dict(zip(found.columns, row)) for row in found.fetchall()]
    print(json.dumps(rows))
"""


def by_duckdb(table: Path, version: int | None) -> Seen:
    place = f"delta_scan('{table}'" + (")" if version is None else f", version => {version})")
    asked: list[str] = []
    _by_sql(lambda text: [asked.append(text) or {"c": 0, "id": 0}], place)
    answers = iter(in_duckdb(*asked))
    return _by_sql(lambda _: next(answers), place)


def in_duckdb(*texts: str) -> list[list[Row]]:
    # DuckDB downloads its extension from a host of its own, so tests take the one that is there.
    python = os.environ.get("DUCKDB_DELTA_PYTHON", sys.executable)
    command = [python, "-c", _IN_DUCKDB, *texts]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return [json.loads(line) for line in done.stdout.splitlines()]


@lru_cache(maxsize=1)
def duckdb_lacks() -> str | None:
    """Return why DuckDB cannot read Delta tables here, None if it can."""
    try:
        in_duckdb("SELECT 1")
    except RuntimeError as error:
        return f"DuckDB's extension delta is not installed here ({error})"
    return None


READERS: dict[str, tuple[Reader, set[str], type[Exception], str]] = {
    # The reader, the variants that it reads, and how it refuses the others.
    "Spark": (by_spark, {*VARIANTS}, AssertionError, ""),
    "this package": (by_this_package, {*VARIANTS}, AssertionError, ""),
    "DuckDB": (by_duckdb, {*VARIANTS}, AssertionError, ""),
    "delta-rs": (
        by_delta_rs,
        {"vectors", "added column", "column mapping"},
        DeltaError,
        "Unsupported table features required: .*TypeWidening",
    ),
    "Polars": (
        by_polars,
        {"vectors", "added column"},
        DeltaProtocolError,
        "requires reader features .*which polars does not support",
    ),
    "pyarrow": (by_pyarrow, set(), DeltaProtocolError, "not yet supported by the deltalake reader"),
}
WITHOUT_SPARK = [name for name in READERS if name != "Spark"]


def leave_checkpoint(table: Path) -> None:
    """Let delta-rs write a checkpoint of version 3, and remove the entries that it replaces."""
    DeltaTable(str(table), version=3).create_checkpoint()
    for version in range(3):
        (table / "_delta_log" / f"{version:020}.json").unlink()


def newest(table: Path) -> int:
    return DeltaTable(str(table)).version()


def check(reader: str, variant: str, table: Path, version: int | None, wanted: Seen) -> None:
    """Check that a reader sees the rows of a version, or refuses the table."""
    read, reads, error, said = READERS[reader]
    # A table has a feature from the version on that needs it.
    is_plain = version == 0 and not VARIANTS[variant].mapped
    if variant in reads or is_plain:
        got = read(table, version)
        assert got == wanted, f"{reader} at version {version}"
        return
    with pytest.raises(error, match=said):
        read(table, version)


def readers_here(*, spark: bool = True) -> Iterator[str]:
    for name in READERS:
        if (name != "DuckDB" or duckdb_lacks() is None) and (name != "Spark" or spark):
            yield name


# The tests --------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("reader", WITHOUT_SPARK)
def test_now_and_as_of_older_versions(reader: str, name: str, made: Path) -> None:
    if reader == "DuckDB" and (reason := duckdb_lacks()):
        pytest.skip(reason)
    assert broken(made, footers=True) is None
    check(reader, name, made, None, truth(VARIANTS[name]))
    for version in range(NEWEST + 1):
        # Before version 2 no type is wider, and the table does not have that feature yet.
        widened = version >= 2 or not VARIANTS[name].widens
        then = name if widened else "column mapping" if VARIANTS[name].mapped else "vectors"
        check(reader, then, made, version, truth(VARIANTS[name], version))


@pytest.mark.thorough
@pytest.mark.parametrize("name", VARIANTS)
def test_after_delta_rs_worked_on_it(name: str, made: Path) -> None:
    """It leaves a checkpoint alone, removes old files, and writes on where it can."""

    def read(version: int | None, wanted: Seen) -> None:
        for reader in readers_here(spark=False):
            check(reader, name, made, version, wanted)

    whole = truth(VARIANTS[name])
    leave_checkpoint(made)
    assert broken(made, footers=True) is None
    read(None, whole)
    read(3, truth(VARIANTS[name], 3))
    if VARIANTS[name].widens:
        return
    table = DeltaTable(str(made))
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    read(None, whole)
    table.delete("id BETWEEN 600 AND 620")
    table.update(predicate="id = 700", updates={"name": "'new'"})
    if not VARIANTS[name].mapped:
        # With column mapping, delta-rs refuses to compact.
        table.optimize.compact()
    read(None, changed(whole))
    read(NEWEST, whole)


def test_what_delta_rs_says_wrong_of_a_table_with_vectors(made_with_vectors: Path) -> None:
    """A version of delta-rs that fails this is better: then the docs may say so."""
    table = DeltaTable(str(made_with_vectors))
    assert table.count() > truth(VARIANTS["vectors"]).count
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 1 days"})
    protocol = DeltaTable(str(made_with_vectors)).protocol()
    assert set(protocol.reader_features or ()) == {"deletionVectors", "variantType"}


@pytest.mark.spark
@by_variant
def test_spark_reads_all_versions_and_a_checkpoint(
    name: str, made: Path, spark: SparkSession
) -> None:
    for version in (1, 2):
        check("Spark", name, made, version, truth(VARIANTS[name], version))
    leave_checkpoint(made)
    check("Spark", name, made, None, truth(VARIANTS[name]))
    check("Spark", name, made, 3, truth(VARIANTS[name], 3))


@pytest.mark.spark
@by_variant
def test_after_spark_wrote_on(name: str, made: Path, spark: SparkSession) -> None:
    """Spark deletes and updates, compacts, and removes the files of older versions."""
    before = truth(VARIANTS[name])
    spark.sql(f"DELETE FROM delta.`{made}` WHERE id BETWEEN 600 AND 620")
    spark.sql(f"UPDATE delta.`{made}` SET name = 'new' WHERE id = 700")
    after, written = changed(before), newest(made)
    for reader in readers_here(spark=False):
        check(reader, name, made, None, after)
        check(reader, name, made, NEWEST, before)
    spark.sql(f"OPTIMIZE delta.`{made}`")
    assert newest(made) > written
    for reader in readers_here(spark=False):
        check(reader, name, made, None, after)
        check(reader, name, made, written, after)
        check(reader, name, made, NEWEST, before)
    # Of Spark itself it is enough to see what it wrote and the version before.
    check("Spark", name, made, written, after)
    check("Spark", name, made, NEWEST, before)
    checked = "spark.databricks.delta.retentionDurationCheck.enabled"
    spark.conf.set(checked, "false")
    try:
        spark.sql(f"VACUUM delta.`{made}` RETAIN 0 HOURS")
    finally:
        spark.conf.unset(checked)
    for reader in readers_here():
        check(reader, name, made, None, after)
