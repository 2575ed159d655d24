"""The class archive: Spark's Java classes, stored once and then mapped by each JVM.

In: the JDK and the jars that Spark runs with. Out: the options that make a JVM use the archive,
instead of loading and verifying some fifteen thousand classes. A first sync of ten tables of 22,000
rows takes 14.7 CPU seconds with an archive and 18.9 without.

`make_archive`, which `doctor --machine` and the tests call, runs a small Spark job in its own
process and makes the JVM write the classes that it loaded. An archive fits only the Java and the
jars that it was made with: its name identifies them, and the JVM ignores one that does not fit.
JVMs execute its code, so it is in a folder that only this user can write (`user_cache`).

Why running it again is safe: an archive is created atomically, and an existing one is kept.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ticdc_assets.base.errors import PrerequisiteError
from ticdc_assets.base.user_cache import UnsafeFolderError, stored, user_folder
from ticdc_assets.config import LAKE_VARIABLE
from ticdc_assets.spark.jars import java_path, spark_home

_TIMEOUT_SECONDS = 300.0
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")


def archive_options(jars: Iterable[Path], env: Mapping[str, str] | None = None) -> list[str]:
    """Return the JVM options that use the archive; none if there is no archive.

    Args:
        jars: what is on the class path besides Spark itself.
        env: the environment; that of this process if None.
    """
    archive = find_archive(jars, env)
    # A JVM that cannot use the archive runs without it.
    options = [_quoted(f"-XX:SharedArchiveFile={archive}"), "-Xshare:auto", *_QUIET]
    return [] if archive is None else options


def find_archive(jars: Iterable[Path], env: Mapping[str, str] | None = None) -> Path | None:
    """Return the archive for this Java and these jars; None if there is none."""
    archive = _archive(jars, os.environ if env is None else env)
    return archive if archive is not None and archive.is_file() else None


def make_archive(jars: Iterable[Path], env: Mapping[str, str] | None = None) -> Path | None:
    """Make the archive unless it exists; this takes half a minute.

    Args:
        jars: what is on the class path besides Spark itself: `lake_jars` of the lake.
        env: the environment; that of this process if None.

    Returns:
        The archive, or None if there is no folder for it or this JVM writes none.

    Raises:
        PrerequisiteError: there is no JDK.
    """
    env = os.environ if env is None else env
    jars = list(jars)
    archive = _archive(jars, env)
    if archive is None:
        return None

    def make(made: Path) -> None:
        words = (str(made), os.pathsep.join(map(str, jars)))
        try:
            subprocess.run(
                [sys.executable, "-m", "ticdc_assets.spark.class_archive", *words],
                # The class archive's own lake is in a folder, whatever the real lake is.
                env={name: value for name, value in env.items() if name != LAKE_VARIABLE},
                cwd=made.parent,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_TIMEOUT_SECONDS,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            made.unlink(missing_ok=True)

    return stored(archive.parent, archive.name, make)


def _archive(jars: Iterable[Path], env: Mapping[str, str]) -> Path | None:
    """Return where the archive of this Java and these jars is; None if it has no place."""
    try:
        java = java_path(env).resolve()
        folder = user_folder("classes", env=env)
    except (PrerequisiteError, UnsafeFolderError):
        return None
    places = [java, *sorted((spark_home() / "jars").iterdir()), *sorted(jars)]
    stats = [(place, place.stat()) for place in places]
    lines = [f"{place} {stat.st_size} {stat.st_mtime_ns}\n" for place, stat in stats]
    digest = hashlib.sha256("".join(lines).encode()).hexdigest()[:16]
    return folder / f"{digest}.jsa"


def _quoted(option: str) -> str:
    """Return an option as one word of Spark's text of Java options."""
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"' if " " in option else option


def _work(archive: Path, jars: Sequence[Path]) -> None:
    """Do a sync's work on Spark, next to `archive`, in a JVM that writes its classes to it.

    The users of the archive must have the same jars.
    """
    import pyarrow as pa

    from ticdc_assets.config import SparkSettings
    from ticdc_assets.spark.session import get_spark

    options = (_quoted(f"-XX:ArchiveClassesAtExit={archive}"), *_QUIET)
    # This machine's JVM uses the archive, even if a cluster is set.
    spark = get_spark(
        {"spark.driver.extraJavaOptions": " ".join(options)}, settings=SparkSettings(), jars=jars
    )
    table = archive.parent / "table"
    rows = spark.range(20).selectExpr("id AS a", "string(id) AS b")
    rows.write.format("delta").option("delta.enableDeletionVectors", "true").save(str(table))
    for sql in (f"OPTIMIZE delta.`{table}`", f"VACUUM delta.`{table}`"):
        spark.sql(sql).collect()

    def same(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        yield from batches

    rows_read = spark.read.format("delta").option("versionAsOf", 0).load(str(table))
    rows_read.mapInArrow(same, rows_read.schema).groupBy("b").count().orderBy("b").toArrow()
    jvm: subprocess.Popen[bytes] = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    spark.stop()
    # The JVM ends with its input, and writes the archive then.
    jvm.communicate()


if __name__ == "__main__":
    _work(Path(sys.argv[1]), [Path(jar) for jar in sys.argv[2].split(os.pathsep)])
