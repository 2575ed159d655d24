"""Ship this package to the workers of a cluster, as a zip.

In: the package that runs here. Out: a zip with its files, which Spark gives to every worker of a
session, so workers never run another version than the driver. Delta's few Python files go along,
like its jars. Other libraries come with the workers' Python (docs/cluster.md).

The same files give the same zip, to the byte. It is in the user's cache, named by the files'
digest. Workers execute it, so only this user can write there (`user_cache`).

Why running it again is safe: a zip appears complete or not at all, and an existing one is kept.
"""

import atexit
import shutil
import sys
import tempfile
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from ticdc_assets.base.errors import PrerequisiteError
from ticdc_assets.base.own_files import PACKAGE, digest_of, own_digest, own_files
from ticdc_assets.base.user_cache import UnsafeFolderError, stored, user_folder
from ticdc_assets.spark.driver import give_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOMENT = (1980, 1, 1, 0, 0, 0)
"""The earliest time in a zip; the files' times would make the zips of the same files differ."""

_DELTA = "delta"

LIBRARIES = (
    _DELTA,
    *("confluent_kafka", "deltalake", "duckdb", "llvmlite", "msgspec", "numba", "numpy", "orjson"),
    "pandas",
    *("pyarrow", "pydantic", "pyroaring", "yaml"),
)
"""What workers import besides pyspark, which comes with Spark there."""


def package_version() -> str:
    """Return the package's version with the digest of its files, as a worker does."""
    try:
        number = version("ticdc-assets")
    except PackageNotFoundError:
        # A shipped package is not installed.
        number = "shipped"
    return f"{number} ({own_digest()})"


def package_zip() -> Path:
    """Return the zip of the package, made if it does not exist.

    Raises:
        PrerequisiteError: the files have changed since this program started.
    """
    name = f"{PACKAGE}-{own_digest()}-delta-{version('delta-spark')}.zip"
    try:
        folder = user_folder("package")
    except UnsafeFolderError:
        folder = Path(tempfile.mkdtemp(prefix="ticdc-assets-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = stored(folder, name, _write)
    assert path is not None
    return path


def _write(path: Path) -> None:
    contents_of = {
        package: [(name, file.read_bytes()) for name, file in own_files(package=package)]
        for package in (PACKAGE, _DELTA)
    }
    if digest_of(contents_of[PACKAGE]) != own_digest():
        raise PrerequisiteError(
            f"the files of {PACKAGE} have changed since this program started, and Spark's "
            "workers would run other files; start it again"
        )
    with zipfile.ZipFile(path, "w") as packed:
        for package, contents in contents_of.items():
            for name, content in contents:
                entry = zipfile.ZipInfo(f"{package}/{name}", _MOMENT)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = 0o100644 << 16
                packed.writestr(entry, content)


def ship(spark: "SparkSession") -> None:
    """Give the package to every worker of a session, once."""
    before = [*sys.path]
    give_file(spark, str(package_zip()))
    # Spark also puts the zip before packages installed here, and programs that this one starts
    # would inherit it.
    sys.path[:] = before
