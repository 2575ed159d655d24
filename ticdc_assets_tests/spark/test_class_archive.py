"""The class archive: Spark starts from it, and starts as well where there is none."""

import os
from pathlib import Path

import pytest

from ticdc_assets.doctor.checks import check_class_archive
from ticdc_assets.spark import class_archive as archives
from ticdc_assets.spark.class_archive import archive_options
from ticdc_assets.spark.jars import SPARK_JARS, resolve
from ticdc_assets_tests.fresh import printed

PROGRAM = """
from ticdc_assets.spark.session import get_spark
spark = get_spark()
print("rows", spark.range(3).count())
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment with a cache of its own, without an archive."""
    return {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}


def loaded(env: dict[str, str], log: Path) -> str:
    """Run a small piece of Spark's work; return from where the JVM says that it loaded classes."""
    options = f"{env.get('SPARK_SUBMIT_OPTS', '')} -Xlog:class+load:file={log}"
    assert "rows 3" in printed(PROGRAM, env={**env, "SPARK_SUBMIT_OPTS": options})
    return log.read_text()


def damaged(jars: tuple[Path, ...], env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a file that no JVM can use in the place of the archive of some jars."""
    with monkeypatch.context() as patch:
        patch.setattr(archives.subprocess, "run", lambda words, **_: words[3].write_bytes(b"none"))
        archive = archives.class_archive(jars, env, make=True)
    assert archive is not None
    return archive


@pytest.mark.spark
def test_spark_starts_from_the_archive(class_archive: None, tmp_path: Path) -> None:
    env = dict(os.environ)
    archive = archives.class_archive(resolve(SPARK_JARS), env)
    assert archive is not None, "the fixture has made it"
    assert archives.class_archive(resolve(SPARK_JARS), env, make=True) == archive
    there = loaded(env, tmp_path / "there.log")
    shared = [line for line in there.splitlines() if "shared objects file (top)" in line]
    assert len(shared) > 5_000
    assert any("org.apache.spark.sql.delta" in line for line in shared)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("is_damaged", [False, True])
def test_spark_starts_without_an_archive(
    java: None,
    env: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_damaged: bool,
) -> None:
    jars = resolve(SPARK_JARS)
    assert archive_options(jars, env) == []
    if is_damaged:
        damaged(jars, env, monkeypatch)
        assert archive_options(jars, env)
    assert "shared objects file (top)" not in loaded(env, tmp_path / "none.log")


def test_a_cache_that_others_may_write_holds_no_archive(
    java: None, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    jars = resolve(SPARK_JARS)
    damaged(jars, env, monkeypatch).parent.chmod(0o777)
    assert archive_options(jars, env) == []
    check = check_class_archive(env)
    assert (check.ok, check.vital) == (False, False)
    assert "Spark starts without it" in check.sentence()


def test_another_jar_is_another_archive_and_a_path_with_blanks_one_option(
    java: None, env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = tmp_path / "a.jar"
    blanks = {**env, "XDG_CACHE_HOME": str(tmp_path / "a b")}
    found = set[Path]()
    for content in (b"", b"1"):
        jar.write_bytes(content)
        assert archive_options([jar], blanks) == []
        archive = damaged((jar,), blanks, monkeypatch)
        assert archive_options([jar], blanks)[0] == f'"-XX:SharedArchiveFile={archive}"'
        found.add(archive)
    assert len(found) == 2
