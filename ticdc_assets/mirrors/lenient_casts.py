"""Values that were cast as TiDB does in a lenient SQL mode, for cuts and caveats.

In: counts by column and commit ts of the DDL. Out: their form in a cut, and a caveat for each.
Pure.
"""

from collections.abc import Mapping
from typing import Any


def casts_listed(casts: Mapping[tuple[str, int], int]) -> list[dict[str, Any]] | None:
    """Return counted casts as `MirrorCut.lenient_casts` has them."""
    return [
        {"column": name, "ddl_ts": ddl_ts, "values": count}
        for (name, ddl_ts), count in sorted(casts.items(), key=lambda item: item[0][::-1])
    ] or None


def cast_caveats(casts: Mapping[tuple[str, int], int]) -> list[str]:
    """Return the caveats of a mirror with values that were cast as in a lenient SQL mode."""
    return [
        f"{item['values']} value{'' if item['values'] == 1 else 's'} of column {item['column']!r} "
        f"did not fit when its type changed and {'was' if item['values'] == 1 else 'were'} cast as "
        f"TiDB does in a lenient SQL mode, since {item['ddl_ts']}"
        for item in casts_listed(casts) or ()
    ]
