"""The package on its way to the workers of a cluster: itself, as a zip.

In: the package that runs here. Out: a zip with its files, which Spark gives to every worker of a
session. So nothing of ours is installed there, and workers never run another version than the
driver does. Delta's few files of Python go along, as its jars do: they are one set. Other people's
libraries are not in it: pyarrow, confluent-kafka, numba and the like come with the workers' Python
(docs/cluster.md).

The same files give the same zip, to the byte. It is made once and kept in the user's cache, named
by the files' digest. What lies in it is run, so it is kept in a folder that nobody
else can write (`user_cache`), else in a folder of this process.

Why running it again is safe: a zip appears whole or not at all, and one that is there is kept.
"""

import atexit
import shutil
import sys
import tempfile
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pyspark.sql import SparkSession

from ticdc_assets.base.errors import PrerequisiteError
from ticdc_assets.base.own_files import PACKAGE, digest_of, own_digest, own_files
from ticdc_assets.base.user_cache import UnsafeFolderError, user_folder
from ticdc_assets.spark.driver import give_file

_KEPT = 3
_MOMENT = (1980, 1, 1, 0, 0, 0)
"""A zip's first; times of files would make another zip of the same files."""

_DELTA = "delta"

LIBRARIES = (
    _DELTA,
    *("confluent_kafka", "deltalake", "duckdb", "llvmlite", "msgspec", "numba", "numpy", "orjson"),
    "pandas",
    *("pyarrow", "pydantic", "pyroaring", "yaml"),
)
"""What workers import beside pyspark, which is Spark's own there."""


def package_version() -> str:
    """Return the version of the package and what tells its files, as a worker does."""
    try:
        number = version("ticdc-assets")
    except PackageNotFoundError:
        # Nothing is installed where the package was shipped.
        number = "shipped"
    return f"{number} ({own_digest()})"


def package_zip() -> Path:
    """Return the zip of the package, made if it is not there.

    Raises:
        PrerequisiteError: the files are not those any more that this program began with.
    """
    name = f"{PACKAGE}-{own_digest()}-delta-{version('delta-spark')}.zip"
    try:
        folder = user_folder("package")
    except UnsafeFolderError:
        folder = Path(tempfile.mkdtemp(prefix="ticdc-assets-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    found = folder / name
    if not found.is_file():
        with tempfile.TemporaryDirectory(dir=folder) as place:
            _write(f"{place}/{name}")
            Path(place, name).replace(found)
        kept = sorted(folder.glob("*.zip"), key=lambda path: path.stat().st_mtime)
        for older in kept[:-_KEPT]:
            older.unlink(missing_ok=True)
    return found


def _write(path: str) -> None:
    found = {
        package: [(name, file.read_bytes()) for name, file in own_files(package=package)]
        for package in (PACKAGE, _DELTA)
    }
    if digest_of(found[PACKAGE]) != own_digest():
        raise PrerequisiteError(
            f"the files of {PACKAGE} have changed since this program began, and Spark's workers "
            "would run others than it does; start it again"
        )
    with zipfile.ZipFile(path, "w") as made:
        for package, contents in found.items():
            for name, content in contents:
                entry = zipfile.ZipInfo(f"{package}/{name}", _MOMENT)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = 0o100644 << 16
                made.writestr(entry, content)


def ship(spark: SparkSession) -> None:
    """Give the package to every worker of a session, once."""
    before = [*sys.path]
    give_file(spark, str(package_zip()))
    # Spark puts it before what is installed here, too, and programs of this one would inherit it.
    sys.path[:] = before
