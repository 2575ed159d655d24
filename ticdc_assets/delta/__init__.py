"""Delta tables: commits, files, control tables, locks; and the lake of a changefeed."""

import sys

# This runs before anything here imports `pyarrow.dataset`, and only if pyarrow is imported.
if "ticdc_assets.cli" in sys.modules:
    from ticdc_assets.base.pandas_later import hide_pandas

    hide_pandas()
