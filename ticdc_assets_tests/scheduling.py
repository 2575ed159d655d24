"""Which of several pytest workers runs which test file.

A Spark session costs many seconds of CPU to start, and as many again until its JVM has compiled
what it runs. So the first worker takes the files whose tests share that of the run, those that also
share the lakes of golden scenarios first, and the others take all other files. A worker that has
none left of its own kind helps. A Kafka broker costs less than a file that waits for one: each
worker starts its own.
"""

import re
from enum import IntEnum
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

_SHARED = re.compile(r"\b(spark|golden_lakes): ")
"""A parameter of a test, or of a fixture beside it, that is Spark's JVM or the lakes of the run."""


class Sharing(IntEnum):
    """What the tests of a file share with those of other files."""

    NOTHING = 0
    SPARK = 1
    LAKES = 2


def sharing_of(path: Path) -> Sharing:
    """Return what the tests of a file share; lakes need Spark, too."""
    found = set(_SHARED.findall(path.read_text(encoding="utf-8")))
    if "golden_lakes" in found:
        return Sharing.LAKES
    return Sharing.SPARK if found else Sharing.NOTHING


class OneOwner(LoadFileScheduling):
    """Hands out whole files: those that share Spark to the first worker, as long as there are."""

    def __init__(self, config: Any, log: Any = None) -> None:
        super().__init__(config, log)
        self._root = Path(config.rootpath)
        self._sharing: dict[str, Sharing] = {}

    def _assign_work_unit(self, node: WorkerController) -> None:
        first = max if node is self.nodes[0] else min
        # Of equal ones both return the first, which is the one that takes longest.
        wanted = first(self.workqueue, key=self._shares)
        self.workqueue.move_to_end(wanted, last=False)
        super()._assign_work_unit(node)

    def _shares(self, file: str) -> Sharing:
        if file not in self._sharing:
            self._sharing[file] = sharing_of(self._root / file)
        return self._sharing[file]
