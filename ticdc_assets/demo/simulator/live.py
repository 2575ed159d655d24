"""A changefeed that goes on after its workload: a person's statements, and watermarks.

In: a finished `SimulatorRun`, and statements in SQL while it goes on. Out: the records of what they
committed, sent as TiCDC sends them: changes a fraction of a second after their commit with a
watermark after them, and a watermark every few seconds while nothing changes. The truth is written
again at the end, so that it is what the upstream has then.

A statement returns when it is committed upstream; its records are on their way then, as they are
with a real cluster. Statements run one after the other, and never during a sending.

Not handled: going on once more after the end.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ticdc_assets.base.errors import StatementError, TicdcError
from ticdc_assets.demo.simulator.run import SEND_SECONDS, SimulatorRun, send, write_truth
from ticdc_assets.demo.simulator.statements import Executed, execute

# Each is a sync of the mirrors, and a change has to wait for the one that is under way.
_WATERMARK_SECONDS: Final = 5.0


class LiveChangefeed:
    """A changefeed that goes on while its `with` block lasts.

    Args:
        run: the run that it goes on from; it has finished.
        truth_path: where the truth is written at the end.
        on_error: called with the reason if it ends by itself (the broker is gone).
    """

    def __init__(
        self, run: SimulatorRun, *, truth_path: Path, on_error: Callable[[str], None]
    ) -> None:
        self._changefeed = run.changefeed
        self._sink = run.sink
        self._truth_path = truth_path
        self._on_error = on_error
        self._at_work = threading.Lock()
        self._stop = threading.Event()
        self._error: TicdcError | None = None
        self._thread = threading.Thread(target=self._go_on, name="changefeed", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        write_truth(self._truth_path, self._changefeed.truth())

    def execute(self, sql: str) -> Executed:
        """Run one statement upstream and commit it.

        Raises:
            StatementError: it cannot be run, or its changes could not be sent; nothing was changed.
        """
        with self._at_work:
            if self._error is not None:
                raise StatementError(f"the changefeed has ended: {self._error}")
            return execute(self._changefeed.upstream, sql)

    def _go_on(self) -> None:
        history, sent, next_watermark = self._changefeed.upstream.history, 0, time.monotonic()
        while not self._stop.wait(SEND_SECONDS):
            with self._at_work:
                if len(history) == sent and time.monotonic() < next_watermark:
                    continue
                sent, next_watermark = len(history), time.monotonic() + _WATERMARK_SECONDS
                try:
                    send(self._changefeed, self._changefeed.tick(), self._sink)
                except TicdcError as error:
                    self._error = error
            if self._error is not None:
                self._on_error(str(self._error))
                return
