"""Python texts in a process of their own, in which nothing is imported yet."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent


def printed(
    text: str, *arguments: object, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> str:
    """Return what a text prints that ends well; `env` is added to the environment."""
    done = subprocess.run(
        [sys.executable, "-c", dedent(text), *map(str, arguments)],
        env={**os.environ, **(env or {})},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
