"""A lake's files, its Delta commits, and the Spark session."""

from ticdc_assets.pandas_later import postpone_pandas

# Before anything here imports `pyarrow.dataset`.
postpone_pandas()
