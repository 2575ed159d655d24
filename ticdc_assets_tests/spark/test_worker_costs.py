"""Workers settle: zip files are read again only if they changed, garbage is looked for only in new.

Each case is a fresh process, because it changes how that process imports.
"""

import gc
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ticdc_assets.spark.executing import OnSpark
from ticdc_assets_tests.fresh import printed

BEGIN = """
import gc, importlib, os, sys, zipfile
from ticdc_assets.spark import worker_costs

path = sys.argv[1]

def write(**modules):
    with zipfile.ZipFile(path, "w") as file:
        for name, text in modules.items():
            file.writestr(f"{name}.py", text)

write(first="number = 1")
sys.path.insert(0, path)
import first
"""


def run(program: str, folder: Path) -> list[str]:
    return printed(BEGIN + program, folder / "modules.zip").split()


@pytest.mark.parametrize("settled", [True, False])
def test_a_zip_file_that_stays_is_not_read_again(settled: bool, tmp_path: Path) -> None:
    program = f"""
import zipimport
if {settled}:
    worker_costs.settle()
read = []
whole = zipimport._read_directory
zipimport._read_directory = lambda archive: read.append(archive) or whole(archive)
importlib.invalidate_caches()
try:
    import second
except ModuleNotFoundError:
    print(len(read))
"""
    (times,) = run(program, tmp_path)
    assert (int(times) == 0) == settled


def test_a_zip_file_that_changed_is_read_again(tmp_path: Path) -> None:
    program = """
worker_costs.settle()
write(first="number = 1", second="number = 2")
importlib.invalidate_caches()
import second
print(second.number)
"""
    assert run(program, tmp_path) == ["2"]


def test_a_zip_file_that_is_gone_harms_nothing(tmp_path: Path) -> None:
    program = """
os.remove(path)
worker_costs.settle()
importlib.invalidate_caches()
import json.tool
print("fine")
"""
    assert run(program, tmp_path) == ["fine"]


def test_what_is_imported_is_left_out_of_collections(tmp_path: Path) -> None:
    program = """
class Cycle:
    def __init__(self):
        self.own = self

print(gc.get_freeze_count())
worker_costs.settle()
frozen = gc.get_freeze_count()
print(frozen > 1_000)
cycle = Cycle()
worker_costs.settle()
print(gc.get_freeze_count() == frozen)
del cycle
print(gc.collect() > 0)
import wave
worker_costs.settle()
print(gc.get_freeze_count() > frozen)
"""
    assert run(program, tmp_path) == ["0", "True", "True", "True", "True"]


@pytest.mark.spark
def test_workers_of_spark_settle(spark: SparkSession, tmp_path: Path) -> None:
    def frozen(parts: Iterable[int]) -> Iterator[int]:
        # Spark uses a worker again only if all it was given was read.
        yield from (gc.get_freeze_count() for _ in parts)

    runs_on = OnSpark(spark, tmp_path)
    runs_on.run(frozen, [1, 2], tasks=2)
    assert any(runs_on.run(frozen, [1, 2], tasks=2))
