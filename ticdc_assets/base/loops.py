"""When rows are enough to load the compiled loops.

Loading the loops takes 0.4 CPU seconds, and without them a row takes about 0.1 ms more, with the
same result. So a process begins without, and loads them when it has done about as much as loading
takes: a sync of a thousand changes is a fifth cheaper.
"""

import sys
from typing import Final

ROWS_BEFORE_LOOPS: Final = 2_500
"""Rows that a process reads and converts without loops before it loads them."""


class _Done:
    rows = 0


def loops_pay(rows: int) -> bool:
    """Return whether the loops are loaded, or worth it; if not, `rows` more are done without."""
    if "ticdc_assets.base.compiled" in sys.modules:
        return True
    _Done.rows += rows
    return _Done.rows > ROWS_BEFORE_LOOPS
