"""Requirements of a machine, as checks that say how to meet them.

In: the environment. Out: `Check` values, which `doctor` combines with the checks of lake and
sources. Nothing is changed but probe files, which are removed, so checking again is safe.

`python -m ticdc_assets.spark.preflight` runs the checks that need nothing installed. `make setup`
calls it with the machine's own Python before there is an environment, so at module level this file
imports nothing but the standard library and modules that do the same; the later checks import what
they check, inside.
"""

import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ticdc_assets.base.errors import ConfigError, PrerequisiteError
from ticdc_assets.base.machine import nearest_existing
from ticdc_assets.base.names import counted
from ticdc_assets.spark.jars import (
    JAVA_FIX,
    JarSet,
    Progress,
    java_path,
    resolve,
)

if TYPE_CHECKING:
    from ticdc_assets.config import Settings

OLDEST_JAVA = 17
NEWEST_JAVA = 22
"""The newest supported Java: on 25, Spark's Arrow cannot address its memory."""

FIRST_CHANGEFEED = """\
changefeeds:
  - name: mine                  # a-z, 0-9 and _
    format: canal-json          # simple-json, simple-avro, open-protocol, canal-json or craft
    timezone: UTC               # the time zone TiCDC runs with
    source:
      kafka:
        bootstrap_servers: "127.0.0.1:9092"
        topics: [mine]
        options: {security.protocol: PLAINTEXT}
"""
"""A first changefeeds file; if its format is wrong, the doctor says which one is right."""

_SPARK_MODULE = "jdk.incubator.vector"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One prerequisite: what is there, what is needed and how to get it.

    Attributes:
        name: short stable name, e.g. `java`, or `source shop`.
        ok: whether the prerequisite is met.
        found: what is there.
        needed: what must be there; empty if `found` or `fix` says so.
        fix: what to do about it; empty when `ok`.
        vital: whether nothing can run without it; otherwise the check is advice.
    """

    name: str
    ok: bool
    found: str
    needed: str = ""
    fix: str = ""
    vital: bool = True

    @classmethod
    def passed(cls, name: str, found: str) -> "Check":
        """Return the check of a prerequisite that is met."""
        return cls(name=name, ok=True, found=found)

    @classmethod
    def failed(
        cls, name: str, found: str, needed: str = "", fix: str = "", *, vital: bool = True
    ) -> "Check":
        """Return the check of a prerequisite that is not met."""
        return cls(name=name, ok=False, found=found, needed=needed, fix=fix, vital=vital)

    def sentence(self) -> str:
        """Return the check as one sentence, the fix included when it failed."""
        if self.ok:
            return f"{self.name}: {self.found}"
        needed = f"needed: {self.needed}" if self.needed else ""
        return f"{self.name}: {'; '.join(filter(None, (self.found, needed, self.fix)))}."


# --- the machine ---


def check_java(env: Mapping[str, str] | None = None) -> Check:
    """Check that Spark's java is complete and of a supported version."""
    env = os.environ if env is None else env
    needed = f"Java {OLDEST_JAVA} to {NEWEST_JAVA}"

    def missing(found: str) -> Check:
        return Check.failed("java", found, needed, JAVA_FIX)

    try:
        java = java_path(env)
    except PrerequisiteError as error:
        return Check.failed("java", str(error))
    settings = _run([str(java), "-XshowSettings:properties", "-version"], env)
    match = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", settings)
    if match is None:
        return missing(f"{java}, which does not say its version")
    version = int(match[1])
    if not OLDEST_JAVA <= version <= NEWEST_JAVA:
        return missing(f"Java {version} at {java}")
    if _SPARK_MODULE not in _run([str(java), "--list-modules"], env):
        return missing(f"Java {version} at {java}, a cut-down one without {_SPARK_MODULE}")
    return Check.passed("java", f"Java {version} at {java}")


def require_java() -> None:
    """Raise `PrerequisiteError` unless `check_java` passes."""
    java = check_java()
    if not java.ok:
        raise PrerequisiteError(java.sentence())


def supported_pythons() -> tuple[int, int]:
    """Return the oldest and the newest supported minor version of Python 3.

    They are those of pyproject.toml, which the installed package has as its metadata. `make setup`
    checks before anything is installed, so it reads the file.
    """
    try:
        said = importlib.metadata.metadata("ticdc-assets")["Requires-Python"]
    except importlib.metadata.PackageNotFoundError:
        project = Path(__file__).parents[2] / "pyproject.toml"
        lines = project.read_text(encoding="utf-8").splitlines()
        said = next(line for line in lines if line.startswith("requires-python"))
    bounds = dict(re.findall(r"(>=|<)3\.(\d+)", said))
    return int(bounds[">="]), int(bounds["<"]) - 1


def check_python(version: tuple[int, int] | None = None) -> Check:
    """Check the version of the running Python, or of the given one."""
    major, minor = version or sys.version_info[:2]
    python = f"Python {major}.{minor} at {sys.executable}"
    oldest, newest = supported_pythons()
    if (3, oldest) <= (major, minor) <= (3, newest):
        return Check.passed("python", python)
    fix = f"install ticdc-assets in Python 3.{newest} (in a clone: `make clean setup`)"
    return Check.failed("python", python, f"Python 3.{oldest} to 3.{newest}", fix)


def check_pyspark() -> Check:
    """Check that pyspark and delta-spark are installed in the versions the jars belong to."""
    installed: dict[str, str] = {}
    for name in _EXPECTED:
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            installed[name] = "missing"
    versions = ", ".join(f"{name} {version}" for name, version in installed.items())
    if all(installed[name].startswith(version) for name, version in _EXPECTED.items()):
        return Check.passed("pyspark", versions)
    needed = " and ".join(f"{name} {version}*" for name, version in _EXPECTED.items())
    fix = "install ticdc-assets again with what it requires (in a clone: `make setup`)"
    return Check.failed("pyspark", versions, needed, fix)


_EXPECTED: Mapping[str, str] = {"pyspark": "4.1.", "delta-spark": "4.4."}


def check_jars(jar_set: JarSet, *, progress: Progress | None = None) -> Check:
    """Check that the jars of `jar_set` are here, after downloading what is missing."""
    needed = f"the jars of {jar_set.name}"
    try:
        jars = resolve(jar_set, progress=progress)
    except PrerequisiteError as error:
        fix = "make the Maven repository reachable and run this again"
        return Check.failed("jars", str(error), needed, fix)
    folders = dict.fromkeys(str(jar.parent) for jar in jars)
    jars_text = f"{counted(len(jars), 'jar')} of {jar_set.name} in {', '.join(folders)}"
    return Check.passed("jars", jars_text)


# --- the settings ---


def check_configuration(env: Mapping[str, str]) -> "tuple[Check, Settings | None]":
    """Check that the settings can be read, and return them if so."""
    from ticdc_assets.config import (
        CHANGEFEEDS_VARIABLE,
        LAKE_VARIABLE,
        changefeeds_path,
        load_settings,
    )

    def wrong(finding: str, fix: str = "") -> "tuple[Check, None]":
        return Check.failed("configuration", finding, "", fix), None

    another = f"set {CHANGEFEEDS_VARIABLE} to another file"
    try:
        settings = load_settings(env)
    except ConfigError as error:
        try:
            path = changefeeds_path(env)
        except ConfigError:
            return wrong(str(error))  # it names the variable
        if path.exists():
            of_the_file = not str(error).startswith(LAKE_VARIABLE)
            return wrong(str(error), f"correct it, or {another}" if of_the_file else "")
        return wrong(
            f"{path} does not exist",
            f"{another}, or write this, with names of your own:\n\n{FIRST_CHANGEFEED}\n"
            "and run this again (`ticdc-assets sample` writes a small example to try)",
        )
    names = ", ".join(changefeed.name for changefeed in settings.changefeeds)
    read = f"{settings.path} with {names or 'no changefeed'}"
    return Check.passed("configuration", read), settings


def check_lake(lake: Path) -> Check:
    """Check that tables can be written below `lake`; a missing folder is not created."""
    needed = "a folder that can be written to for the tables"
    place = nearest_existing(lake)
    another = "set TICDC_LAKE to another folder"

    def wrong(found: str, fix: str) -> Check:
        return Check.failed("lake", found, needed, fix)

    if not place.is_dir():
        return wrong(f"{lake}, but {place} is not a folder", another)
    try:
        with tempfile.TemporaryFile(dir=place) as probe:
            probe.write(b"?")
    except OSError as error:
        return wrong(
            f"{lake}, which cannot be written to ({error.strerror})",
            f"change its permissions or {another}",
        )
    there = "" if lake.exists() else " (not there yet)"
    return Check.passed("lake", f"{lake}{there}")


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
