"""The setting `compute`: where steps run, what people are shown of it, and that rows are equal."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ticdc_assets.base.errors import ConfigError
from ticdc_assets.config import Compute, load_compute, load_settings
from ticdc_assets.spark import executing
from ticdc_assets.spark.compute import HERE, Ran, computing, report, watched
from ticdc_assets.spark.executing import Inline, executor
from ticdc_assets.spark.session import LazySession
from ticdc_assets_tests.golden import FORMATS, Scenario, assert_same_rows
from ticdc_assets_tests.lake.golden_lakes import feed_of

FEED = {"name": "shop", "format": "simple-json", "timezone": "UTC", "source": {"capture": "c"}}


def env(folder: Path, compute: Any = None, **more: str) -> dict[str, str]:
    path = folder / f"{compute}.yaml"
    said = {} if compute is None else {"compute": compute}
    path.write_text(json.dumps({"changefeeds": [FEED], **said}))
    return {"TICDC_CHANGEFEEDS": str(path), "TICDC_LAKE": str(folder / "lake"), **more}


def test_the_file_says_where_steps_run_and_the_variable_lies_over_it(tmp_path: Path) -> None:
    assert load_compute({"TICDC_CHANGEFEEDS": str(tmp_path / "none.yaml")}) is Compute.AUTO
    for said, wanted in (
        (env(tmp_path), Compute.AUTO),
        (env(tmp_path, "spark"), Compute.SPARK),
        (env(tmp_path, "spark", TICDC_COMPUTE="auto"), Compute.AUTO),
        (env(tmp_path, "auto", TICDC_COMPUTE="spark"), Compute.SPARK),
    ):
        assert load_settings(said).compute is wanted
        assert load_compute(said) is wanted


def test_another_word_is_a_mistake_by_its_key(tmp_path: Path) -> None:
    for said, key in (
        (env(tmp_path, "here"), "compute"),
        (env(tmp_path, TICDC_COMPUTE="here"), "TICDC_COMPUTE"),
    ):
        for load in (load_settings, load_compute):
            with pytest.raises(ConfigError, match=f"{key}: expected auto or spark, got 'here'"):
                load(said)


def test_small_work_runs_on_spark_if_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executing, "OnSpark", lambda *_: "Spark")
    monkeypatch.setattr(executing, "place_of", lambda _: "on Spark, local[2]")
    with watched() as ran:
        assert isinstance(executor(LazySession(), tmp_path, "trying", rows=3, size=0), Inline)
        with computing(Compute.SPARK):
            executor(LazySession(), tmp_path, "trying", rows=2_834, size=0)
        assert load_compute() is Compute.AUTO
    assert ran.sentence == "2,834 records on Spark, local[2]; 3 records in this process"


def test_what_ran_where_is_one_clause() -> None:
    with watched() as ran:
        assert ran.sentence == ""
        report(HERE, "landing", 1)
        assert ran.sentence == "1 record in this process"
        report(HERE, "decoding", 2_000)
        report(HERE, "decoding", 834)
        # Steps that follow each other work on the same records.
        report(HERE, "folding d.t", 90)
    report(HERE, "decoding", 1)
    assert ran.sentence == "2,834 records in this process"
    other = Ran()
    other.add("on Spark, local[*]", "decoding", 1_234_567)
    assert other.sentence == "1.2 million records on Spark, local[*]"


@pytest.mark.spark
@pytest.mark.parametrize(
    ("variant", "name"),
    [
        ("simple-json", "types"),
        *(
            pytest.param(variant, name, marks=pytest.mark.slow)
            for variant in FORMATS
            for name in ("types", "shop")
            if (variant, name) != ("simple-json", "types")
        ),
    ],
)
def test_mirrors_are_equal_where_every_step_runs_on_spark(
    variant: str,
    name: str,
    spark: SparkSession,
    tmp_path: Path,
    golden_dir: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario = Scenario(golden_dir(variant, name))
    feed = feed_of(spark, tmp_path, scenario)
    monkeypatch.setenv("TICDC_LAKE", str(feed.paths.root))
    with computing(Compute.SPARK), watched() as ran:
        feed.sync()
    assert HERE not in ran.sentence
    assert " on Spark, local[2]" in ran.sentence
    assert feed.cut.tso == scenario.end
    assert_same_rows(feed.rows(), scenario.state(), variant=variant)
    described = _descriptions(spark)
    feed_name = feed.paths.changefeed
    assert f"{feed_name}: decoding" in described
    assert any(text.startswith(f"{feed_name}: folding ") for text in described), described


def _descriptions(spark: SparkSession) -> set[str]:
    """Return how the Spark UI describes the jobs of a session."""
    context: Any = spark.sparkContext._jsc
    jobs = context.sc().statusStore().jobsList(None)
    texts = (jobs.apply(number).description() for number in range(jobs.size()))
    return {text.get() for text in texts if text.isDefined()}
