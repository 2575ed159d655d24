"""How Spark is set: which properties are taken, what wins, what is refused, what is not shown."""

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ticdc_assets.base.errors import ConfigError
from ticdc_assets.base.own_files import own_digest, own_files
from ticdc_assets.config import SparkSettings, load_settings, load_spark_settings
from ticdc_assets.config.spark import OWN

FEED = {"name": "shop", "format": "simple-json", "timezone": "UTC", "source": {"capture": "c"}}
CLUSTER = {"spark.master": "spark://host:7077"}


def env(folder: Path, spark: Any = None, **more: str) -> dict[str, str]:
    """The environment of a changefeeds file that says so of Spark."""
    path = folder / "changefeeds.yaml"
    document = {"changefeeds": [FEED]} | ({} if spark is None else {"spark": spark})
    path.write_text(json.dumps(document))
    return {"TICDC_CHANGEFEEDS": str(path), "TICDC_LAKE": str(folder / "lake"), **more}


def shown(settings: SparkSettings) -> dict[str, str]:
    return {name: str(option) for name, option in settings.properties.items()}


def test_nothing_said_is_this_machine(tmp_path: Path) -> None:
    for settings in (
        load_spark_settings({"TICDC_CHANGEFEEDS": str(tmp_path / "none.yaml")}),
        load_settings(env(tmp_path)).spark,
    ):
        assert settings == SparkSettings()
        assert settings.master == "local[2]"
        assert settings.is_local


def test_any_property_may_be_given_and_a_secret_is_not_shown(tmp_path: Path) -> None:
    given = CLUSTER | {
        "spark.executor.memory": "4g",
        "spark.ui.enabled": "true",
        "spark.hadoop.fs.s3a.secret.key": {"env": "KEY"},
        "spark.hadoop.fs.azure.account.key.me.dfs.core.windows.net": {"env": "KEY"},
        "spark.kubernetes.executor.secrets.store": "/etc/store",
        "spark.kubernetes.authenticate.oauthTokenFile": "/etc/token",
    }
    said = env(tmp_path, given, KEY="its-value")
    settings = load_settings(said).spark
    assert settings == load_spark_settings(said)
    assert not settings.is_local
    assert settings.place == f"spark of {tmp_path / 'changefeeds.yaml'}"
    assert settings.values["spark.hadoop.fs.s3a.secret.key"] == "its-value"
    assert settings.secrets == {name for name, value in given.items() if isinstance(value, dict)}
    assert "its-value" not in repr(settings)
    assert shown(settings)["spark.hadoop.fs.s3a.secret.key"] == "{env: KEY}"


def test_variables_lie_over_the_file(tmp_path: Path) -> None:
    given = CLUSTER | {"spark.driver.memory": "2g", "spark.driver.host": "10.0.0.1"}
    said = env(tmp_path, given, TICDC_SPARK_MASTER="local[4]")
    settings = load_spark_settings(said)
    assert (settings.master, settings.values["spark.driver.memory"]) == ("local[4]", "2g")
    assert settings.place.endswith(" and TICDC_SPARK_MASTER")
    said |= {"TICDC_SPARK_DRIVER_MEMORY": "6g"}
    assert load_spark_settings(said).values["spark.driver.memory"] == "6g"


MISTAKES: list[tuple[Any, str]] = [
    ({"spark.sql.session.timeZone": "Asia/Shanghai"}, "nothing or 'UTC', which mirrors depend on"),
    ({"spark.databricks.delta.snapshotPartitions": "50"}, "expected nothing or '1'"),
    ({"spark.submit.deployMode": "cluster"}, "expected nothing or 'client'"),
    ({"spark.ticdc.package": "baked"}, "expected shipped or installed, got baked"),
    ({"spark.pyspark.driver.python": "python3"}, "the driver is this program"),
    ({"spark.driver.host": "10.0.0.1"}, "not with spark.master local[2] or another local one"),
    ({"executor.memory": "4g"}, "expected the whole name of a Spark property"),
    ({"spark.executor.memory": ["4g"]}, "expected a value or {env: NAME}, got a list"),
    ({"spark.ssl.keyPassword": "word"}, "expected {env: NAME}, because a secret must come from"),
    (
        {"spark.hadoop.fs.s3a.access.key": "word"},
        "expected {env: NAME}, because a secret must come from",
    ),
    ({"spark.x": {"env": "NONE"}}, "the environment variable 'NONE' is not set"),
    ({"spark.driver.memory": {"env": "HOME"}}, "Spark's JVM is started with it"),
    ("spark://host:7077", "expected a mapping of Spark properties"),
]


@pytest.mark.parametrize(("given", "told"), MISTAKES)
def test_what_cannot_be_is_told_by_its_property(given: Any, told: str, tmp_path: Path) -> None:
    said = env(tmp_path, given, HOME="3g")
    for load in (load_settings, load_spark_settings):
        with pytest.raises(ConfigError) as caught:
            load(said)
        assert told in str(caught.value)
        assert "word" not in str(caught.value).replace("Password", "")
        for name in given if isinstance(given, dict) else ():
            assert f"spark: {name}: " in str(caught.value)


def test_mistakes_of_all_sections_are_told_at_once(tmp_path: Path) -> None:
    said = env(tmp_path, {"spark.x": [], "y": "z"})
    path = Path(said["TICDC_CHANGEFEEDS"])
    path.write_text(path.read_text().replace("simple-json", "simple-xml"))
    with pytest.raises(ConfigError, match="has 3 mistakes"):
        load_settings(said)


def test_our_own_values_may_be_said(tmp_path: Path) -> None:
    load_spark_settings(env(tmp_path, dict(OWN)))


# The package on its way -------------------------------------------------------------------------

IN_A_ZIP = """
from importlib import import_module

import ticdc_assets
from ticdc_assets.base.own_files import own_digest
from ticdc_assets.wire.tape.json_loops import hex_digit

assert ".zip/" in ticdc_assets.__file__, ticdc_assets.__file__
assert hex_digit(ord("f")) == 15
for name in ("log.landing", "log.decoding", "mirrors.applying", "repair.comparing"):
    import_module(f"ticdc_assets.{name}")
print(own_digest(), sum(hex_digit.stats.cache_hits.values()))
"""


@pytest.mark.thorough
def test_the_group_of_executors_is_what_they_are_asked_for(root: Path) -> None:
    from ticdc_assets.spark.shipping import LIBRARIES
    from ticdc_assets.storage.stores import USED, Storage, Store

    groups = tomllib.loads((root / "pyproject.toml").read_text())["dependency-groups"]
    named = {re.split("[=<>]", item)[0] for item in groups["executors"]}
    modules = {name.replace("-", "_").replace("pyyaml", "yaml") for name in named}
    of_stores = {name for scheme in USED for name in Store(scheme, "box", Storage()).libraries}
    assert modules - {"tzdata"} | {"delta"} == set(LIBRARIES) | of_stores


@pytest.mark.thorough
def test_the_package_works_from_its_zip_and_finds_what_it_compiled(tmp_path: Path) -> None:
    from ticdc_assets.spark.shipping import package_zip

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        first = package_zip()
        content = first.read_bytes()
        assert package_zip() == first
        first.unlink()
        assert package_zip().read_bytes() == content  # to the byte
    assert first.parent.stat().st_mode & 0o777 == 0o700
    with zipfile.ZipFile(first) as packed:
        names = packed.namelist()
    ours = [f"ticdc_assets/{name}" for name, _ in own_files()]
    assert names[: len(ours)] == ours
    assert "delta/tables.py" in names[len(ours) :]
    told = []
    for number in range(2):
        place = tmp_path / f"application-{number}" / first.name
        place.parent.mkdir()
        place.write_bytes(content)
        done = subprocess.run(
            [sys.executable, "-P", "-c", IN_A_ZIP],
            env=dict(os.environ)
            | {"PYTHONPATH": str(place), "XDG_CACHE_HOME": str(tmp_path / "cache")},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        told.append(done.stdout.split())
    # What a worker of one application compiled, one of the next finds, wherever Spark puts the zip.
    assert told == [[own_digest(), "0"], [own_digest(), "1"]]


# A server of Spark Connect -----------------------------------------------------------------------


def test_a_connect_server_is_named_in_place_of_a_master(tmp_path: Path) -> None:
    given = {"spark.remote": "sc://host:15002", "spark.ticdc.package": "installed"}
    settings = load_spark_settings(env(tmp_path, given))
    assert (settings.remote, settings.is_local) == ("sc://host:15002", False)
    del given["spark.remote"]
    settings = load_spark_settings(env(tmp_path, given, SPARK_REMOTE="sc://other:15002"))
    assert settings.remote == "sc://other:15002"
    assert settings.place.endswith("SPARK_REMOTE")
    secret = {"spark.remote": {"env": "SERVER"}}
    settings = load_spark_settings(env(tmp_path, secret, SERVER="sc://host;token=its-value"))
    assert "its-value" not in repr(settings)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (CLUSTER | {"spark.remote": "sc://host:15002"}, "spark.remote: not with spark.master"),
        ({"spark.remote": "host:15002"}, "spark.remote: expected an address like sc://host:15002"),
        ({"spark.remote": "sc://host;token=its-value"}, "spark.remote: expected {env: NAME}"),
    ],
)
def test_a_wrong_connect_server_is_a_mistake(
    given: dict[str, str], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_spark_settings(env(tmp_path, given))
    assert said in str(caught.value)
    assert "its-value" not in str(caught.value)
