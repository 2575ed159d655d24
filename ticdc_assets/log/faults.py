"""Faults: open rows of the quarantine, and which of them count for a changefeed.

Values only: no I/O, no Spark. `quarantine` has the rows themselves.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ticdc_assets.config import TableFilter


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Similar open rows of the quarantine that came together; None is unknown.

    Attributes:
        stage: `decode` or `apply`.
        reason: what is wrong, a stable word.
        since: when they were put into quarantine.
        first_ts: their lowest commit ts.
    """

    stage: str
    reason: str
    since: datetime
    database: str | None = None
    table: str | None = None
    first_ts: int | None = None
    rows: int = 1


def is_mirrored_fault(row: Mapping[str, Any], tables: TableFilter | None) -> bool:
    """Return whether a row of the quarantine counts for a changefeed that mirrors some tables.

    Row changes of other tables do not: no mirror lacks them. Records that could not be decoded have
    no table yet.
    """
    return (
        tables is None or row["stage"] != "apply" or tables.includes(row["database"], row["table"])
    )
