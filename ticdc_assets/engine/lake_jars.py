"""The jars of a Spark session that works on a lake, and the log store that is compiled for S3.

In: the lake. Out: the jars. A lake in a folder needs Delta's; one in a store needs its Hadoop
connector too, which is downloaded for such a lake only (half a GB for S3, most of it the SDK).

Delta's own log store for S3 lets a commit take the place of another process's. Ours does not
(`java/ConditionalS3LogStore.java`, docs/decisions/0070-conditional-commits-by-spark.md). It is one
class, compiled by the JDK that runs Spark against the very jars that it will run with, into a
folder that only this user can write.

Why running it again is safe: the jar's name is told by the source and by what it was compiled
against, and it is put in place whole.
"""

import hashlib
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from ticdc_assets.errors import PrerequisiteError
from ticdc_assets.jars import JAVA_FIX, Progress, java_path, resolve, spark_home, spark_jars
from ticdc_assets.storage.paths import AnyPath, RemotePath
from ticdc_assets.user_cache import UnsafeFolderError, user_folder

_SOURCE = "ConditionalS3LogStore.java"
_RELEASE = "17"
_TIMEOUT_SECONDS = 120.0


def lake_jars(lake: AnyPath, *, progress: Progress | None = None) -> tuple[Path, ...]:
    """Return the jars of a session on a lake, downloaded and compiled first if they are not here.

    Args:
        lake: the lake.
        progress: told each jar that is downloaded.

    Raises:
        PrerequisiteError: there is no JDK, or the jars cannot be had.
    """
    scheme = lake.store.scheme if isinstance(lake, RemotePath) else None
    jars = resolve(spark_jars(scheme), progress=progress)
    return (*jars, _log_store(jars)) if scheme == "s3" else jars


def _log_store(jars: Sequence[Path]) -> Path:
    source = files("ticdc_assets.engine").joinpath("java", _SOURCE).read_text(encoding="utf-8")
    key = hashlib.sha256("\n".join([source, *(jar.name for jar in jars)]).encode()).hexdigest()
    try:
        jar = user_folder("log_store") / f"s3-log-store-{key[:16]}.jar"
    except UnsafeFolderError as error:
        raise PrerequisiteError(
            f"no folder can be had for the log store of S3 ({error}); XDG_CACHE_HOME names another"
        ) from error
    if not jar.is_file():
        with tempfile.TemporaryDirectory(dir=jar.parent) as scratch:
            _compiled(source, jars, Path(scratch)).replace(jar)
    return jar


def _compiled(source: str, jars: Sequence[Path], folder: Path) -> Path:
    """Compile the source in an empty folder, and return the jar that it is in."""
    text, classes = folder / _SOURCE, folder / "classes"
    text.write_text(source, encoding="utf-8")
    places = [*(spark_home() / "jars").glob("hadoop-client-*.jar"), *jars]
    command = [
        str(java_path().resolve().with_name("javac")),
        *("-nowarn", "-proc:none", "-encoding", "UTF-8", "--release", _RELEASE),
        *("-cp", ":".join(map(str, places)), "-d", str(classes), str(text)),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise PrerequisiteError(
            f"the log store of S3 cannot be compiled: {command[0]} does not run ({error}); a lake "
            f"at s3:// needs a JDK, not only a JRE: {JAVA_FIX}"
        ) from None
    if done.returncode:
        raise PrerequisiteError(
            f"the log store of S3 cannot be compiled by {command[0]}: {done.stderr.strip()}"
        )
    jar = folder / "made.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for item in sorted(classes.rglob("*.class")):
            archive.write(item, item.relative_to(classes).as_posix())
    return jar
