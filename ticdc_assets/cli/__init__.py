"""The command line `ticdc-assets`.

In: arguments and the environment (`TICDC_CHANGEFEEDS`, `TICDC_LAKE`, `DAGSTER_HOME`). Out: text for
people on standard output, or only JSON if a command offers it; progress and errors go to standard
error. A command that changes tables uses the Dagster job or the same writer's lock, so running it
again is as safe as running the job again.

Exit codes: 0 done, 1 an error in one sentence, 2 wrong usage, 130 stopped by Ctrl-C; commands that
run until Ctrl-C (`sync --follow`, `ui`, `metrics --listen`, `demo --live`) then end with 0.

Commands import Spark, Delta and Dagster inside their functions, and only if they need them:
`--help` and errors in the configuration must not take seconds.
"""

import signal
import sys

from ticdc_assets.cli.interrupted import stopped_at_start

try:
    from ticdc_assets.base.starting import hide_pandas, look_seldom

    # Before the imports: they make most of the objects, and arrays.
    look_seldom()
    hide_pandas()

    # Importing a module adds its commands to `main`.
    from ticdc_assets.cli import (
        captures,
        looking,
        machine,
        repairing,
        rows,
        seeding,
        syncing,
    )
    from ticdc_assets.cli.base import main
except KeyboardInterrupt:
    sys.exit(stopped_at_start())


def run() -> None:
    """Run the program: its command, and then nothing that Ctrl-C could interrupt."""
    try:
        main()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


__all__ = [
    "captures",
    "looking",
    "machine",
    "main",
    "repairing",
    "rows",
    "run",
    "seeding",
    "syncing",
]
