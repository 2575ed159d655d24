"""Every folder of golden messages, synced by the command into a lake on S3, equals the truth."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ticdc_assets_tests.commands import Commands
from ticdc_assets_tests.golden import ALL_FOLDERS, Scenario
from ticdc_assets_tests.lake.test_golden_processes import assert_truth
from ticdc_assets_tests.s3 import S3Lake

pytestmark = [pytest.mark.s3, pytest.mark.slow]


@pytest.mark.parametrize("folder", ALL_FOLDERS, ids="-".join)
def test_the_mirrors_equal_the_truth(
    folder: tuple[str, str], s3_lake: S3Lake, tmp_path: Path, golden_dir: Callable[..., Path]
) -> None:
    assert_truth(folder, Scenario(golden_dir(*folder)), Commands(tmp_path, s3_lake))
