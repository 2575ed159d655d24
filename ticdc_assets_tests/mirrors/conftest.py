"""The fixtures that most tests of this room begin with."""

from ticdc_assets_tests.lake.conftest import any_size as any_size
from ticdc_assets_tests.lake.conftest import feed as feed
