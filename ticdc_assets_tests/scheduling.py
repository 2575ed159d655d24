"""Which of several pytest workers runs which test file.

A Spark session and a Kafka broker are JVMs: each costs many seconds of CPU to start, and as many
again until it has compiled what it runs. So the first worker takes the files whose tests share
those of the run, and the others take all other files. Who has none left of its own kind helps.
"""

import re
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

_SHARED = re.compile(r"\b(?:spark|broker|golden_lakes): ")
"""A parameter of a test, or of a fixture beside it, that is a JVM of the run or a lake of it."""


def shares_a_jvm(path: Path) -> bool:
    """Tell whether tests of a file use the Spark session or the broker of the run."""
    return _SHARED.search(path.read_text(encoding="utf-8")) is not None


class OneOwner(LoadFileScheduling):
    """Hands out whole files: those that share a JVM to the first worker, as long as there are."""

    def __init__(self, config: Any, log: Any = None) -> None:
        super().__init__(config, log)
        self._root = Path(config.rootpath)
        self._is_shared: dict[str, bool] = {}

    def _assign_work_unit(self, node: WorkerController) -> None:
        is_owner = node is self.nodes[0]
        own = (file for file in self.workqueue if self._shares(file) is is_owner)
        wanted = next(own, next(iter(self.workqueue)))
        self.workqueue.move_to_end(wanted, last=False)
        super()._assign_work_unit(node)

    def _shares(self, file: str) -> bool:
        if file not in self._is_shared:
            self._is_shared[file] = shares_a_jvm(self._root / file)
        return self._is_shared[file]
