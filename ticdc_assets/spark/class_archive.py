"""The class archive: Spark's Java classes, stored once and then mapped by each JVM.

In: the Java and the jars that Spark runs with. Out: the options that make a JVM use the archive,
instead of loading and verifying some fifteen thousand classes. To start Spark and write ten rows
takes 17.6 CPU seconds with an archive and 23.2 without.

`doctor --machine` and the tests make it: a small Spark job in its own process, whose JVM writes the
classes that it loaded. An archive fits only the Java and the jars that it was made with: its name
identifies them, and a JVM ignores one that does not fit. JVMs execute its code, so it is in a
folder that only this user can write (`user_cache`).

Why running it again is safe: an archive is created atomically, and an existing one is kept.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from ticdc_assets.base.errors import PrerequisiteError
from ticdc_assets.base.user_cache import UnsafeFolderError, stored, user_folder
from ticdc_assets.config import LAKE_VARIABLE
from ticdc_assets.spark.jars import java_path, java_word, spark_home

_TIMEOUT_SECONDS = 300.0


def archive_options(jars: Iterable[Path], env: Mapping[str, str] | None = None) -> list[str]:
    """Return the JVM options that use the archive; none if there is no archive."""
    archive = class_archive(jars, env)
    return [] if archive is None else _options("SharedArchiveFile", archive)


def class_archive(
    jars: Iterable[Path], env: Mapping[str, str] | None = None, *, make: bool = False
) -> Path | None:
    """Return the archive for this Java and these jars; None if there is none.

    Args:
        jars: what is on the class path besides Spark itself, in order: `lake_jars` of the lake.
        env: the environment; that of this process if None.
        make: whether to make a missing one, which takes half a minute.
    """
    env = os.environ if env is None else env
    places = list(jars)
    try:
        java, folder = java_path(env).resolve(), user_folder("classes", env=env)
    except (PrerequisiteError, UnsafeFolderError):
        return None
    files = [java, *sorted((spark_home() / "jars").iterdir()), *places]
    facts = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    archive = folder / f"{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}.jsa"
    if not make:
        return archive if archive.is_file() else None

    def write(made: Path) -> None:
        try:
            subprocess.run(
                [sys.executable, "-m", __name__, made, *places],
                # Its lake is this folder, whatever the real lake is.
                env={name: value for name, value in env.items() if name != LAKE_VARIABLE},
                cwd=made.parent,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_TIMEOUT_SECONDS,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            made.unlink(missing_ok=True)

    return stored(folder, archive.name, write)


def _options(name: str, archive: Path) -> list[str]:
    """Return JVM options about an archive, as words of Spark's text of Java options."""
    return [java_word(f"-XX:{name}={archive}"), *(f"-Xlog:{tag}=off" for tag in _TAGS)]


_TAGS = ("cds", "cds+dynamic", "class+path")


def _work(archive: Path, jars: list[Path]) -> None:
    """Do a sync's work on Spark, in a JVM with the users' jars that writes its classes."""
    from ticdc_assets.config import SparkSettings
    from ticdc_assets.spark.session import get_spark

    options = " ".join(_options("ArchiveClassesAtExit", archive))
    # This machine's JVM uses the archive, even if a cluster is set.
    spark = get_spark(
        {"spark.driver.extraJavaOptions": options}, settings=SparkSettings(), jars=jars
    )
    table = str(archive.parent / "table")
    rows = spark.range(20).selectExpr("id AS a", "string(id) AS b")
    rows.write.format("delta").option("delta.enableDeletionVectors", "true").save(table)
    for sql in (f"OPTIMIZE delta.`{table}`", f"VACUUM delta.`{table}`"):
        spark.sql(sql).collect()
    rows_read = spark.read.format("delta").option("versionAsOf", 0).load(table)
    rows_read.mapInArrow(lambda batches: batches, rows_read.schema).groupBy("b").count().orderBy(
        "b"
    ).toArrow()
    jvm: subprocess.Popen[bytes] = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    spark.stop()
    # The JVM ends with its input, and writes the archive then.
    jvm.communicate()


if __name__ == "__main__":
    _work(Path(sys.argv[1]), list(map(Path, sys.argv[2:])))
