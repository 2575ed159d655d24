"""The Delta properties of a mirror: how long Delta keeps removed files and log entries.

In: the configured ages. Out: properties of a table. Pure: the same ages give the same properties,
so they are set again only if they differ.
"""

from datetime import timedelta

from ticdc_assets.config import Retention
from ticdc_assets.delta.control import LOG_RETENTION


def mirror_properties(retention: Retention) -> dict[str, str]:
    """Return the properties that keep what kept cuts need from Delta and a manual VACUUM."""
    longest = retention.longest
    if longest is None:
        return {
            "delta.logRetentionDuration": LOG_RETENTION,
            "delta.deletedFileRetentionDuration": LOG_RETENTION,
        }
    # Twice as long: a base may have to stay longer than configured, until there is another one.
    hours = max(2 * longest, longest + timedelta(days=7)) // timedelta(hours=1)
    return {
        "delta.logRetentionDuration": LOG_RETENTION,
        "delta.deletedFileRetentionDuration": f"interval {min(hours, 3650 * 24)} hours",
    }
