"""The fixtures that most tests of lakes begin with."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ticdc_assets_tests.lake.feeds import Feed, treat_as_large


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> Feed:
    """A feed without records."""
    return Feed.of(spark, tmp_path)


@pytest.fixture(params=["small", pytest.param("large", marks=pytest.mark.slow)])
def any_size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let changes be applied as they are, and as if they were very large."""
    if request.param == "large":
        treat_as_large(monkeypatch)
