"""What a machine must offer before a command can work, as checks that say how to mend it.

In: the environment, and for the later checks the settings. Out: `Check` values, never an
exception for something that is merely missing. Nothing is changed but probe files, which are
removed, so running the checks again is always safe.

`python -m ticdc_assets.preflight` runs the checks that need nothing installed. `make setup` calls
it with the machine's own Python before there is an environment, so at module level this file
imports the standard library and `ticdc_assets.errors` only; the other checks import what they
check, inside.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ticdc_assets.errors import PrerequisiteError

OLDEST_JAVA = 17
NEWEST_JAVA = 22
"""The last Java on which Spark 4.0 starts: in 23 its Hadoop client meets a removed method."""

OLDEST_PYTHON = (3, 11)
NEWEST_PYTHON = (3, 12)

_SPARK_MODULE = "jdk.incubator.vector"
_JAVA_FIX = (
    "install a JDK 17 or 21 (Debian and Ubuntu: apt-get install openjdk-17-jdk-headless) and put "
    "its java on PATH or its folder into JAVA_HOME"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One prerequisite: what was found, what is needed and how to get there.

    Attributes:
        name: short stable name, e.g. `java`.
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


def java_path(env: Mapping[str, str] | None = None) -> Path:
    """Return the java program that Spark will run: JAVA_HOME's, else the one on PATH.

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
                "point it to a JDK 17 or 21, or unset it to use the java on PATH"
            )
        return java
    java = shutil.which("java", path=env.get("PATH"))
    if java is None:
        raise PrerequisiteError(f"no java on PATH and JAVA_HOME is not set; {_JAVA_FIX}")
    return Path(java)


def check_java(env: Mapping[str, str] | None = None) -> Check:
    """Check that the java Spark will run is a complete one of a version it supports."""
    env = os.environ if env is None else env
    needed = f"a JDK {OLDEST_JAVA} to {NEWEST_JAVA}"

    def missing(found: str, fix: str = _JAVA_FIX) -> Check:
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
