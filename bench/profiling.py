"""Where the Python time goes: cProfile over `decode_batch` and over the Python part of a fold.

The fold's Python part runs in Spark's workers; here the same function (`change_operations`) gets
the same Arrow batches in this process, so that the profiler sees it.
"""

import cProfile
import io
import pstats
from collections.abc import Callable

from bench.decoding import record_batches
from bench.folding import fold_work
from bench.messages import Messages
from ticdc_assets.wire import WireFormat
from ticdc_assets.wire.batch import decode_batch

LINES = 18


def profile_decoding(messages: Messages) -> str:
    """Return what `decode_batch` spends its time on."""
    batches = record_batches(messages)

    def work() -> None:
        for batch in batches:
            decode_batch(WireFormat.SIMPLE_JSON, batch)

    return _profiled(work)


def profile_fold(messages: Messages) -> str:
    """Return what making operations of row changes spends its time on, over all mirrors."""
    return _profiled(fold_work(messages))


def _profiled(work: Callable[[], object]) -> str:
    work()  # what is compiled once is not what is asked for
    profile = cProfile.Profile()
    profile.runcall(work)
    output = io.StringIO()
    pstats.Stats(profile, stream=output).strip_dirs().sort_stats("tottime").print_stats(LINES)
    return output.getvalue()
