"""`dagster dev` without two lines that it prints on every start and that are not for our users.

In: the arguments of `dagster`. Out: its server, with the same exit code. Only lines are left out,
so starting it again is as safe as starting Dagster.
"""

import logging
import sys
import warnings

from dagster._cli import main

_UNTRUE = "Found a dagster instance configuration value"
"""How a warning begins that is untrue here: the instance's folder has a copy of that file."""


def run() -> None:
    """Run `dagster` with the arguments of this process."""
    # It recommends its newer `dg dev`, which is no part of Dagster itself.
    warnings.filterwarnings("ignore", "Function `dev_command` is superseded")
    logging.getLogger("dagster").addFilter(
        lambda record: not record.getMessage().startswith(_UNTRUE)
    )
    main()


if __name__ == "__main__":
    sys.argv[0] = "dagster"
    run()
