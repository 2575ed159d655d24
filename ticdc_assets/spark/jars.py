"""The jars: which versions belong together, and how to download them.

In: a `JarSet`. Out: the files of its jars, resolved by the Ivy inside pyspark's spark-submit, so
that Spark's settings (ivy folder, repositories, mirrors in spark-defaults.conf or an ivysettings
file) apply as in any other Spark program. By default the jars are in `.ivy2.5.2` below `HOME`. The
result is stored in a small file, and checked against the disk at each use: a complete set needs no
JVM and no network. Resolving again is always safe; two programs that resolve at once wait for each
other.

These coordinates and the versions of pyspark and delta-spark in pyproject.toml are one set, tested
together. Nothing here imports pyspark; it looks up its folder without that.
"""

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from ticdc_assets.base.errors import PrerequisiteError
from ticdc_assets.base.user_cache import UnsafeFolderError, user_folder
from ticdc_assets.storage.paths import AnyPath, RemotePath, write_at_once

SCALA = "2.13"
DELTA = "4.4.0"
SPARK = "4.1"
BROKER = "3.9.2"
HADOOP = "3.4.2"
AWS_SDK = "2.29.52"
GCS = "hadoop3-2.2.26"

RESOLVE_TIMEOUT_SECONDS = 900.0

JAVA_FIX = (
    "install Java 17 to 22 (Debian and Ubuntu: apt-get install openjdk-17-jre-headless) and put "
    "its java on PATH or its folder into JAVA_HOME"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JarSet:
    """Maven artifacts that are used together.

    Attributes:
        name: what they are for, for messages.
        coordinates: `group:artifact:version`.
        excludes: `group:artifact` of dependencies that are not wanted; `*` is any text.
    """

    name: str
    coordinates: tuple[str, ...]
    excludes: tuple[str, ...] = ()

    @property
    def packages(self) -> str:
        """The value for `spark.jars.packages`."""
        return ",".join(self.coordinates)


SPARK_JARS = JarSet(
    name="Delta",
    coordinates=(f"io.delta:delta-spark_{SPARK}_{SCALA}:{DELTA}",),
    # Spark has each of these and its own would win anyway: 80 MB less to download.
    excludes=(
        "com.fasterxml.jackson.core:*",
        "com.github.luben:*",
        "com.google.code.findbugs:*",
        "commons-pool:*",
        "io.airlift:*",
        "org.apache.hadoop:hadoop-client-*",
        "org.apache.logging.log4j:*",
        "org.apache.parquet:*",
        "org.roaringbitmap:*",
        "org.slf4j:*",
        "org.xerial.snappy:*",
    ),
)
"""The jars that a Spark session of this package needs besides pyspark."""

_CONNECTORS = {
    # They match the Hadoop in pyspark; the SDK is all of Amazon's, 530 MB.
    "s3": (f"org.apache.hadoop:hadoop-aws:{HADOOP}", f"software.amazon.awssdk:bundle:{AWS_SDK}"),
    "abfss": (f"org.apache.hadoop:hadoop-azure:{HADOOP}",),
    "gs": (f"com.google.cloud.bigdataoss:gcs-connector:{GCS}",),
}
"""How Hadoop reaches the store of a lake, by the scheme of its URI."""


def spark_jars(scheme: str | None) -> JarSet:
    """Return the jars of a session for a lake in a store of a scheme, or in a folder if None."""
    connectors = _CONNECTORS.get(scheme or "", ())
    if not connectors:
        return SPARK_JARS
    return JarSet(
        name=f"Delta and {scheme}://",
        coordinates=(*SPARK_JARS.coordinates, *connectors),
        excludes=(*SPARK_JARS.excludes, "org.wildfly.openssl:wildfly-openssl"),
    )


def lake_jars(lake: AnyPath) -> tuple[Path, ...]:
    """Return the jars of a session on a lake, after downloading missing ones.

    Raises:
        PrerequisiteError: there is no java, or the jars cannot be downloaded.
    """
    scheme = lake.store.scheme if isinstance(lake, RemotePath) else None
    return resolve(spark_jars(scheme))


BROKER_JARS = JarSet(
    name="the local Kafka broker",
    coordinates=(f"org.apache.kafka:kafka_{SCALA}:{BROKER}",),
    # The broker logs through Spark's log4j 2, which needs its newer slf4j-api.
    excludes=("org.slf4j:slf4j-api",),
)
"""What `broker.LocalBroker` runs."""

Progress = Callable[[str], None]
"""Called with one line about what is happening now."""


def java_path(env: Mapping[str, str] | None = None) -> Path:
    """Return the java program that Spark will run: from JAVA_HOME, else from PATH.

    Raises:
        PrerequisiteError: there is none.
    """
    env = os.environ if env is None else env
    home = env.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise PrerequisiteError(
                f"JAVA_HOME is {home}, where there is no program bin/java; "
                "point it to Java 17 to 22, or unset it to use the java on PATH"
            )
        return java
    java = shutil.which("java", path=env.get("PATH"))
    if java is None:
        raise PrerequisiteError(f"no java on PATH and JAVA_HOME is not set; {JAVA_FIX}")
    return Path(java)


def spark_home() -> Path:
    """Return the folder of the installed pyspark, which contains all of Spark.

    Raises:
        PrerequisiteError: pyspark is not installed.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise PrerequisiteError(
            "pyspark is not installed in this Python; install ticdc-assets again with what it "
            "requires (in a clone: `make setup`)"
        )
    return Path(spec.submodule_search_locations[0])


def java_word(option: str) -> str:
    """Return an option of a JVM as one word of a text of options, whatever is in it."""
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'


def java_env() -> dict[str, str]:
    """Return the environment in which this package starts Spark's scripts and JVMs.

    Another Spark that the user's environment points to would bring other jars, so SPARK_HOME is
    pyspark's folder and arguments meant for other sessions are left out. Addresses stay on this
    machine. Java takes its home folder from the login, so it gets `HOME` as a property: jars then
    go where every other file of this program goes.
    """
    base = dict(os.environ)
    for name in ("PYSPARK_SUBMIT_ARGS", "SPARK_CLASSPATH", "SPARK_SUBMIT_OPTS"):
        base.pop(name, None)
    if base.get("HOME"):
        base["SPARK_SUBMIT_OPTS"] = java_word(f"-Duser.home={base['HOME']}")
    return base | {"SPARK_HOME": str(spark_home()), "SPARK_LOCAL_IP": "127.0.0.1"}


def resolved(jar_set: JarSet) -> tuple[Path, ...] | None:
    """Return the jars of `jar_set` if all of them are known to be here; else None."""
    memo = _memo_path(jar_set)
    try:
        lines = [] if memo is None else memo.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    jars = tuple(Path(line) for line in lines if line)
    return jars if jars and all(jar.is_file() for jar in jars) else None


def resolve(jar_set: JarSet, *, progress: Progress | None = None) -> tuple[Path, ...]:
    """Return the jars of `jar_set`, after downloading missing ones.

    Args:
        jar_set: what to resolve.
        progress: called with each jar that is downloaded.

    Raises:
        PrerequisiteError: there is no java, or the jars cannot be downloaded; the text says which.
    """
    jars = resolved(jar_set)
    if jars is not None:
        return jars
    memo = _memo_path(jar_set)
    progress = progress or (lambda _: None)
    if memo is None:
        return _ask_spark_submit(jar_set, progress)
    with (memo.parent / "lock").open("w") as lock:
        # Ivy's cache has no lock.
        fcntl.flock(lock, fcntl.LOCK_EX)
        jars = resolved(jar_set)
        if jars is None:
            jars = _ask_spark_submit(jar_set, progress)
            write_at_once(memo, "".join(f"{jar}\n" for jar in jars))
    return jars


# --- spark-submit ---

# Any class with a quick and quiet main works: the jars are resolved before it runs.
_SOME_MAIN_CLASS = "scala.util.Properties"
_DOWNLOADING = re.compile(r"downloading \S*/(\S+\.jar) ")
_CLASS_PATH_HEADING = "Classpath elements:"
_UNRESOLVED = re.compile(r"::\s+(\S+#\S+;\S+): (.+)")


def _ask_spark_submit(jar_set: JarSet, progress: Progress) -> tuple[Path, ...]:
    java_path()  # Spark's script says nothing helpful without one.
    command = [
        str(spark_home() / "bin" / "spark-submit"),
        "--verbose",
        *("--master", "local[1]"),
        *("--driver-memory", "256m"),
        *("--packages", jar_set.packages),
        *(("--exclude-packages", ",".join(jar_set.excludes)) if jar_set.excludes else ()),
        *("--class", _SOME_MAIN_CLASS),
        "spark-internal",
    ]
    progress(f"resolving the jars of {jar_set.name}")
    with subprocess.Popen(
        command,
        env=java_env(),
        # Whatever the class leaves, it leaves there and not in the caller's folder.
        cwd=tempfile.gettempdir(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as submit:
        assert submit.stderr is not None
        timer = threading.Timer(RESOLVE_TIMEOUT_SECONDS, submit.kill)
        timer.daemon = True
        timer.start()
        lines: list[str] = []
        try:
            for line in submit.stderr:
                lines.append(line.rstrip())
                if (match := _DOWNLOADING.match(line)) is not None:
                    progress(f"downloading {match[1]}")
        except BaseException:
            submit.kill()
            raise
        finally:
            timer.cancel()
        code = submit.wait()
    jars = _class_path(lines)
    if code != 0 or not jars:
        raise PrerequisiteError(
            f"the jars of {jar_set.name} ({jar_set.packages}) cannot be downloaded: "
            f"{_reason(lines)}; is the Maven repository reachable from here (Spark's settings "
            "spark.jars.repositories and spark.jars.ivySettings choose another)?"
        )
    return jars


def _class_path(lines: list[str]) -> tuple[Path, ...]:
    if _CLASS_PATH_HEADING not in lines:
        return ()
    heading = lines.index(_CLASS_PATH_HEADING)
    urls = [line for line in lines[heading + 1 :] if line.startswith("file:")]
    # In a URL, blanks and other characters of a folder's name are escaped.
    return tuple(Path(unquote(url.removeprefix("file:").replace("///", "/", 1))) for url in urls)


def _reason(lines: list[str]) -> str:
    unresolved = {f"{match[1]} {match[2]}" for line in lines if (match := _UNRESOLVED.search(line))}
    if unresolved:
        return ", ".join(sorted(unresolved))
    errors = [line for line in lines if "error" in line.lower() or "exception" in line.lower()]
    return (errors or lines or ["spark-submit said nothing"])[-1].strip()


# --- memory ---


def _memo_path(jar_set: JarSet) -> Path | None:
    """Return the file that lists the jars of `jar_set`; None without a safe folder for it."""
    # Without the environment's folder: a second environment finds the jars of the first.
    key = "\n".join([*jar_set.coordinates, "-", *jar_set.excludes])
    try:
        return user_folder("jars") / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.txt"
    except UnsafeFolderError:
        # Each use starts a JVM, but works.
        return None
