"""Run the command line as `python -m ticdc_assets.cli`."""

from ticdc_assets.cli import run

run()
