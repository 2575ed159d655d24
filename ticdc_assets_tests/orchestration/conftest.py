"""What the tests of the Dagster layer share."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from ticdc_assets.orchestration.steps import ChangefeedSteps, steps_of
from ticdc_assets_tests.orchestration.small_shop import SmallShop


@pytest.fixture
def shop(tmp_path: Path) -> SmallShop:
    """A changefeed with an empty lake; its capture does not exist yet."""
    return SmallShop(tmp_path)


@pytest.fixture
def steps(shop: SmallShop) -> ChangefeedSteps:
    """The steps of that changefeed."""
    return steps_of(shop.settings, shop.changefeed)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """A real Dagster instance that lives as long as the test."""
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance
