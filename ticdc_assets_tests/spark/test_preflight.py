"""Checks: each is wrong on a machine that lacks the thing, and says in one sentence what to do."""

import importlib.metadata
import os
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ticdc_assets.base.errors import PrerequisiteError
from ticdc_assets.base.ports import HOST, free_port, port_is_free
from ticdc_assets.spark import jars, preflight
from ticdc_assets.spark.jars import JarSet, java_path, resolve, resolved
from ticdc_assets.spark.preflight import (
    Check,
    check_configuration,
    check_java,
    check_lake,
    check_pyspark,
    check_python,
    supported_pythons,
)


def fake_java(folder: Path, version: str, *, modules: str = "jdk.incubator.vector@1") -> Path:
    """A java program that answers like one of the given version, and nothing else."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        f'-Xshow*) echo "    java.specification.version = {version}" >&2 ;;\n'
        f'--list-modules) echo "{modules}" ;;\n'
        "esac\n"
    )
    java.chmod(0o755)
    return java


def only(folder: Path) -> dict[str, str]:
    """An environment whose PATH has nothing but `folder`."""
    return {"PATH": str(folder / "bin")}


# --- java ---


@pytest.mark.parametrize(
    ("version", "shown", "ok"),
    [
        *((version, version, True) for version in ("17", "21", "22")),
        ("1.8", "8", False),
        *((version, version, False) for version in ("11", "16", "23")),
    ],
)
def test_versions_of_java(tmp_path: Path, version: str, shown: str, ok: bool) -> None:
    java = fake_java(tmp_path, version)
    check = check_java(only(tmp_path))
    assert check.ok is ok
    needed = "" if ok else "; needed: Java 17 to 22; install Java 17 to 22"
    assert check.sentence().startswith(f"java: Java {shown} at {java}{needed}")


def test_java_home_wins_over_path(tmp_path: Path) -> None:
    assert (
        check_java(only(tmp_path))
        .sentence()
        .startswith("java: no java on PATH and JAVA_HOME is not set; install Java 17 to 22")
    )
    with pytest.raises(PrerequisiteError, match="no java on PATH and JAVA_HOME is not set"):
        java_path(only(tmp_path))
    fake_java(tmp_path, "17")
    env = only(tmp_path) | {"JAVA_HOME": str(tmp_path / "home")}
    check = check_java(env)
    assert f"JAVA_HOME is {tmp_path / 'home'}, where there is no program" in check.sentence()
    assert "unset it" in check.sentence()
    assert fake_java(tmp_path / "home", "21") == java_path(env)


@pytest.mark.parametrize(
    ("script", "found"),
    [
        (None, "a cut-down one without jdk.incubator.vector"),
        ("#!/bin/sh\nexit 1\n", "which does not say its version"),
        ("\x7fELF, but not really", "which does not say its version"),
        ("", "which does not say its version"),
    ],
)
def test_program_that_is_no_whole_java(tmp_path: Path, script: str | None, found: str) -> None:
    java = fake_java(tmp_path, "17", modules="java.base@17")
    if script is not None:
        java.write_text(script)
    assert found in check_java(only(tmp_path)).sentence()


# --- python, pyspark, ports, folders ---


@pytest.mark.parametrize(
    ("version", "ok"), [((3, 10), False), ((3, 11), True), ((3, 14), True), ((3, 15), False)]
)
def test_python(version: tuple[int, int], ok: bool) -> None:
    check = check_python(version)
    assert check.ok is ok
    assert bool(check.fix) is not ok


def test_the_supported_pythons_are_those_of_the_project(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    oldest, newest = supported_pythons()
    sentence = check_python((3, 10)).sentence()
    assert "Python 3.10" in sentence
    assert f"; needed: Python 3.{oldest} to 3.{newest}; " in sentence
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["requires-python"] == f">=3.{oldest},<3.{newest + 1}"
    assert f"(3, {oldest}) <= sys.version_info[:2] < (3, {newest + 1})" in (
        root / "Makefile"
    ).read_text(encoding="utf-8")

    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "metadata", missing)
    assert supported_pythons() == (oldest, newest), "as `make setup` reads them"


def test_pyspark_of_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_pyspark().ok
    monkeypatch.setattr(preflight, "_EXPECTED", {"pyspark": "3.5.", "no-such-package": "1."})
    check = check_pyspark()
    assert not check.ok
    assert "no-such-package missing" in check.found


def test_port_in_use() -> None:
    port = free_port()
    with socket.socket() as server:
        server.bind((HOST, port))
        server.listen()
        assert not port_is_free(port)
    assert free_port(other_than=port) != port


def test_lake_is_looked_at_without_being_made(tmp_path: Path) -> None:
    lake = tmp_path / "a" / "b"
    check = check_lake(lake)
    assert check.ok
    assert "(not there yet)" in check.found
    assert not lake.exists()
    assert list(tmp_path.iterdir()) == []
    lake.mkdir(parents=True)
    assert "(not there yet)" not in check_lake(lake).found


# --- jars ---


def test_jars_are_remembered_until_one_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    wanted = JarSet(name="test", coordinates=("a:b:1",))
    jar = tmp_path / "a b-1.jar"
    jar.touch()
    asked: list[str] = []

    def submit(jar_set: JarSet, _: object) -> tuple[Path, ...]:
        asked.append(jar_set.packages)
        return (jar,)

    monkeypatch.setattr(jars, "_ask_spark_submit", submit)
    assert resolved(wanted) is None
    assert resolve(wanted) == resolve(wanted) == resolved(wanted) == (jar,)
    assert asked == ["a:b:1"]
    assert resolved(JarSet(name="test", coordinates=("a:b:2",))) is None
    # Without a place to remember, they are looked for each time.
    with monkeypatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(jar))
        assert resolve(wanted) == (jar,)
        assert len(asked) == 2
    jar.unlink()
    assert resolved(wanted) is None


def test_class_path_is_read_from_what_spark_submit_says() -> None:
    urls = ["file:///a/b.jar", "file:/c/d.jar", "file:///an%20é/100%25.jar"]
    said = ["x", "Classpath elements:", *urls, "", "log"]
    assert jars._class_path(said) == tuple(map(Path, ("/a/b.jar", "/c/d.jar", "/an é/100%.jar")))
    assert jars._class_path(["file:///a/b.jar"]) == ()


# --- settings ---


def test_configuration_that_is_missing_is_shown_one(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    said = {"TICDC_CHANGEFEEDS": str(path)}
    check, _ = check_configuration(said)
    assert not check.ok
    assert preflight.FIRST_CHANGEFEED in check.fix
    path.write_text(preflight.FIRST_CHANGEFEED)
    check, settings = check_configuration(said)
    assert check.ok, check.found
    assert settings is not None
    for wrong in ("changefeeds:", "changefeeds: []"):
        path.write_text(wrong)
        check, settings = check_configuration(said)
        assert (check.ok, settings) == (False, None)
        assert preflight.FIRST_CHANGEFEED not in check.fix
    assert "changefeeds: expected a non-empty list" in check.found
    check, _ = check_configuration({"TICDC_CHANGEFEEDS": "s3://there"})
    assert "TICDC_CHANGEFEEDS" in check.sentence()


@pytest.mark.parametrize("ok", [True, False])
def test_check_as_a_sentence(ok: bool) -> None:
    check = Check(name="x", ok=ok, found="F", needed="N", fix="" if ok else "do it")
    assert check.sentence() == ("x: F" if ok else "x: F; needed: N; do it.")


# --- before anything is installed ---


@pytest.mark.parametrize(("version", "said"), [("17", []), ("11", ["java: Java 11 at "])])
def test_module_says_one_sentence_or_nothing(
    root: Path, tmp_path: Path, version: str, said: list[str]
) -> None:
    """As `make setup` runs it, with a Python that sees no installed package."""
    fake_java(tmp_path, version)
    env = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "JAVA_HOME": str(tmp_path)}
    command = [sys.executable, "-S", "-m", "ticdc_assets.spark.preflight"]
    done = subprocess.run(
        command, cwd=root, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (len(said), "")
    lines = done.stderr.splitlines()
    assert [line.startswith(text) for line, text in zip(lines, said, strict=True)] == [True] * len(
        said
    )
