"""The command line `ticdc-assets`.

In: words and the environment (`TICDC_CHANGEFEEDS`, `TICDC_LAKE`, `DAGSTER_HOME`). Out: text for
people on standard output, or JSON and nothing else there where a command says so; progress and
errors go to standard error. A command that changes tables does so through the Dagster job or under
the same writer's lock, so running it again is as safe as running the job again.

Exit codes: 0 done, 1 an error that is told in one sentence, 2 wrong usage.

Spark, Delta and Dagster are imported by the commands that need them, inside their functions:
`--help` and errors in the configuration should not cost seconds.
"""

# Importing a module adds its commands to `main`.
from ticdc_assets.cli import (  # noqa: F401
    captures,
    looking,
    machine,
    repairing,
    rows,
    seeding,
    syncing,
    verifying,
)
from ticdc_assets.cli.base import main

__all__ = ["main"]
