"""What a machine must offer before a command can work, as checks that say how to mend it.

In: the environment, and for the later checks the settings. Out: `Check` values, never an
exception for something that is merely missing. Nothing is changed but probe files, which are
removed, so running the checks again is always safe.

`python -m ticdc_assets.preflight` runs the checks that need nothing installed. `make setup` calls
it with the machine's own Python before there is an environment, so at module level this file
imports nothing but the standard library and modules that do the same; the later checks import
what they check, inside.
"""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ticdc_assets.errors import ConfigError, PrerequisiteError, TicdcError
from ticdc_assets.jars import (
    BROKER_JARS,
    JAVA_FIX,
    SPARK_JARS,
    JarSet,
    Progress,
    java_path,
    resolve,
    resolved,
)
from ticdc_assets.ports import HOST, port_is_free

if TYPE_CHECKING:
    from ticdc_assets.config import CaptureSource, Changefeed, KafkaSource, Settings

OLDEST_JAVA = 17
NEWEST_JAVA = 22
"""The last Java on which Spark 4.0 starts: in 23 its Hadoop client meets a removed method."""

OLDEST_PYTHON = (3, 11)
NEWEST_PYTHON = (3, 12)

SOURCE_TIMEOUT_SECONDS = 15.0

_SPARK_MODULE = "jdk.incubator.vector"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One prerequisite: what was found, what is needed and how to get there.

    Attributes:
        name: short stable name, e.g. `java`, or `source shop`.
        ok: whether the prerequisite is met.
        found: what is there.
        needed: what must be there.
        fix: what to do about it; empty when `ok`.
    """

    name: str
    ok: bool
    found: str
    needed: str
    fix: str = ""

    def sentence(self) -> str:
        """Return the check as one sentence, the fix included when it failed."""
        if self.ok:
            return f"{self.name}: {self.found}"
        return f"{self.name}: {self.needed} is needed, found {self.found}; {self.fix}."


def run_checks(
    settings: "Settings | None" = None,
    *,
    env: Mapping[str, str] | None = None,
    ports: Iterable[int] = (),
    progress: Progress | None = None,
) -> list[Check]:
    """Run every check and return all results, in the order in which they build on each other.

    Args:
        settings: what is configured; read from `env` if None, which is then a check of its own.
        env: environment variables; the environment of this program if None.
        ports: ports of this machine that are about to be listened on.
        progress: told what is being downloaded or waited for.
    """
    env = os.environ if env is None else env
    java = check_java(env)
    checks = [check_python(), java, check_pyspark()]
    if java.ok:
        checks.append(check_jars(SPARK_JARS, progress=progress))
    checks.append(_check_broker_jars())
    if settings is None:
        configuration, settings = check_configuration(env)
        checks.append(configuration)
    if settings is not None:
        checks.append(check_lake(settings.lake))
        for changefeed in settings.changefeeds:
            if progress is not None:
                progress(f"looking at the source of {changefeed.name}")
            checks.append(check_source(changefeed))
    checks.extend(check_port(port) for port in ports)
    return checks


# --- the machine ---


def check_java(env: Mapping[str, str] | None = None) -> Check:
    """Check that the java Spark will run is a complete one of a version it supports."""
    env = os.environ if env is None else env
    needed = f"a JDK {OLDEST_JAVA} to {NEWEST_JAVA}"

    def missing(found: str, fix: str = JAVA_FIX) -> Check:
        return Check(name="java", ok=False, found=found, needed=needed, fix=fix)

    home = env.get("JAVA_HOME")
    try:
        java = java_path(env)
    except PrerequisiteError:
        if home:
            fix = "point JAVA_HOME to a JDK 17 or 21, or unset it to use the java on PATH"
            return missing(f"JAVA_HOME={home} without a program bin/java in it", fix)
        return missing("no java on PATH and no JAVA_HOME")
    settings = _run([str(java), "-XshowSettings:properties", "-version"], env)
    match = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", settings)
    if match is None:
        return missing(f"{java}, which does not tell its version")
    version = int(match[1])
    if not OLDEST_JAVA <= version <= NEWEST_JAVA:
        return missing(f"Java {version} at {java}")
    if _SPARK_MODULE not in _run([str(java), "--list-modules"], env):
        return missing(f"Java {version} at {java}, a cut-down one without {_SPARK_MODULE}")
    return Check(name="java", ok=True, found=f"Java {version} at {java}", needed=needed)


def check_python(version: tuple[int, int] | None = None) -> Check:
    """Check the version of the running Python, or of the given one."""
    major, minor = version or sys.version_info[:2]
    oldest, newest = (".".join(map(str, pair)) for pair in (OLDEST_PYTHON, NEWEST_PYTHON))
    ok = OLDEST_PYTHON <= (major, minor) <= NEWEST_PYTHON
    return Check(
        name="python",
        ok=ok,
        found=f"Python {major}.{minor} at {sys.executable}",
        needed=f"Python {oldest} or {newest}",
        fix="" if ok else f"install Python {newest} and run `make clean setup`",
    )


def check_pyspark() -> Check:
    """Check that pyspark and delta-spark are installed in the versions the jars belong to."""
    found: list[str] = []
    wrong = False
    for name, version in _EXPECTED.items():
        try:
            installed = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            installed = "missing"
        wrong = wrong or not installed.startswith(version)
        found.append(f"{name} {installed}")
    return Check(
        name="pyspark",
        ok=not wrong,
        found=", ".join(found),
        needed=" and ".join(f"{name} {version}*" for name, version in _EXPECTED.items()),
        fix="run `make setup`, or install the versions that pyproject.toml pins" if wrong else "",
    )


_EXPECTED: Mapping[str, str] = {"pyspark": "4.0.", "delta-spark": "4.4."}


def check_jars(jar_set: JarSet, *, progress: Progress | None = None) -> Check:
    """Check that the jars of `jar_set` are here, after downloading what is missing."""
    needed = f"the jars of {jar_set.name}"
    try:
        jars = resolve(jar_set, progress=progress)
    except PrerequisiteError as error:
        fix = "make the Maven repository reachable and run this again"
        return Check(name="jars", ok=False, found=str(error), needed=needed, fix=fix)
    return Check(name="jars", ok=True, found=f"{len(jars)} jars of {jar_set.name}", needed=needed)


def _check_broker_jars() -> Check:
    # Only the demo and the tests run a broker: its jars are not worth a download here.
    jars = resolved(BROKER_JARS)
    found = f"{len(jars)} jars of {BROKER_JARS.name}" if jars else "not here; come when needed"
    return Check(name="broker jars", ok=True, found=found, needed="nothing before the demo runs")


def check_port(port: int) -> Check:
    """Check that a server could listen on `port` of this machine."""
    ok = port_is_free(port)
    return Check(
        name=f"port {port}",
        ok=ok,
        found="free" if ok else f"another program listening on {HOST}:{port}",
        needed=f"port {port} free",
        fix="" if ok else "stop that program or choose another port",
    )


# --- the settings ---


def check_configuration(env: Mapping[str, str]) -> "tuple[Check, Settings | None]":
    """Check that the settings can be read, and return them if so."""
    from ticdc_assets.config import CHANGEFEEDS_VARIABLE, load_settings

    needed = "a valid changefeeds file"
    try:
        settings = load_settings(env)
    except ConfigError as error:
        fix = f"mend it, or set {CHANGEFEEDS_VARIABLE} to another file"
        return (
            Check(name="configuration", ok=False, found=str(error), needed=needed, fix=fix),
            None,
        )
    names = ", ".join(changefeed.name for changefeed in settings.changefeeds)
    found = f"{settings.path} with changefeeds {names}"
    return Check(name="configuration", ok=True, found=found, needed=needed), settings


def check_lake(lake: Path) -> Check:
    """Check that tables can be written below `lake`; a folder that is not there is not made."""
    needed = "a folder that can be written to for the tables"
    place = lake
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place) as probe:
            probe.write(b"?")
        free = shutil.disk_usage(place).free
    except OSError as error:
        return Check(
            name="lake",
            ok=False,
            found=f"{lake}, which cannot be written to ({error.strerror})",
            needed=needed,
            fix="change its permissions or set TICDC_LAKE to another folder",
        )
    there = "" if place == lake else " (not there yet)"
    found = f"{lake}{there}, {free / 1e9:.0f} GB free"
    return Check(name="lake", ok=True, found=found, needed=needed)


def check_source(
    changefeed: "Changefeed", *, timeout_seconds: float = SOURCE_TIMEOUT_SECONDS
) -> Check:
    """Check that the source of `changefeed` can be read: a broker with its topics, or a file."""
    from ticdc_assets.config import KafkaSource

    source = changefeed.source
    try:
        if isinstance(source, KafkaSource):
            found = _kafka_found(source, timeout_seconds)
        else:
            found = _capture_found(source)
    except TicdcError as error:
        ok, found = False, str(error)
    else:
        ok = True
    if isinstance(source, KafkaSource):
        needed = (
            f"a Kafka broker at {source.bootstrap_servers} with topic {', '.join(source.topics)}"
        )
        fix = "start the broker, create the topic, or mend source.kafka in the configuration"
    else:
        needed = "a readable capture"
        fix = "put the file there or mend source.capture in the configuration"
    return Check(
        name=f"source {changefeed.name}",
        ok=ok,
        found=found,
        needed=needed,
        fix="" if ok else fix,
    )


def _kafka_found(source: "KafkaSource", timeout_seconds: float) -> str:
    from ticdc_assets.kafka import end_offsets, spark_options

    spark_options(source)  # an option that Spark's client cannot have is found here, not in a run
    offsets = end_offsets(source, timeout_seconds=timeout_seconds)
    topics: list[str] = []
    for topic in source.topics:
        spans = [
            f"{number}: {span.earliest}-{span.end}"
            for (name, number), span in sorted(offsets.items())
            if name == topic
        ]
        topics.append(f"{topic} with {len(spans)} partitions (offsets {', '.join(spans)})")
    return f"{source.bootstrap_servers} answers, topic {'; topic '.join(topics)}"


def _capture_found(source: "CaptureSource") -> str:
    from ticdc_assets.capture import read_capture

    with read_capture(source.path) as reader:
        first = next(reader, None)
    size = source.path.stat().st_size
    what = "no record yet" if first is None else f"first record of topic {first.topic}"
    return f"{source.path}, {size} bytes, {what}"


# --- running ---


def _run(command: list[str], env: Mapping[str, str]) -> str:
    """Return what `command` writes to either output, or "" if it cannot run or takes over 30 s."""
    try:
        done = subprocess.run(
            command,
            env=dict(env),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode(errors="replace")


def _main() -> int:
    failed = [check for check in (check_python(), check_java()) if not check.ok]
    for check in failed:
        sys.stderr.write(check.sentence() + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(_main())
