"""A lake's files, its Delta commits, and the Spark session."""

import sys

# Before anything here imports `pyarrow.dataset`, and only where pyarrow is imported at all.
if "ticdc_assets.cli" in sys.modules:
    from ticdc_assets.pandas_later import hide_pandas

    hide_pandas()
