"""The fixture that most tests of this room begin with."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ticdc_assets_tests.lake.feeds import Feed


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> Feed:
    """A feed without records."""
    return Feed.of(spark, tmp_path)
