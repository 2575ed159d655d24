"""Time zones by name, looked up once.

In: a zone name as TiCDC or a configuration spells it. Out: a `tzinfo`, or None for a name that is
not a zone. Names come from messages, so they are only looked up in the zone database, which refuses
paths; a bounded number of hits and misses is cached.

A local time that a clock change repeats is taken as the earlier of the two; the text does not say
which it was.
"""

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ticdc_assets.base.errors import ConfigError, shorten

CHANGEFEED_ZONE_NAMES = frozenset({"", "Local"})
"""Locations by which TiCDC says "the zone I run in": the changefeed's (golden/QUIRKS.md B2)."""

_OFFSET = re.compile(r"([+-])([0-9]{1,2}):([0-5][0-9])")


@lru_cache(maxsize=256)
def find_zone(name: str) -> tzinfo | None:
    """Return the zone called `name` (IANA name, `UTC`, or an offset like `+08:00`), or None."""
    if name == "UTC":
        return UTC
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        delta = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        if delta > timedelta(hours=14):
            return None
        return timezone(-delta if offset[1] == "-" else delta)
    if name in CHANGEFEED_ZONE_NAMES:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def changefeed_zone(name: str) -> tzinfo:
    """Return the changefeed's zone.

    Raises:
        ConfigError: no zone has this name.
    """
    zone = find_zone(name)
    if zone is None:
        raise ConfigError(
            f"timezone {shorten(name)} is no time zone: write an IANA name such as "
            "'Asia/Shanghai', 'UTC', or an offset such as '+08:00'"
        )
    return zone


def to_utc(local: datetime, zone: tzinfo) -> datetime | None:
    """Return the instant of the naive `local` in `zone`, aware in UTC.

    None if no clock in `zone` ever showed `local` (a gap), or if the instant leaves the years 1 to
    9999.
    """
    try:
        instant = local.replace(tzinfo=zone).astimezone(UTC)
        shown = instant.astimezone(zone).replace(tzinfo=None)
    except OverflowError:
        return None
    return instant if shown == local else None


@lru_cache(maxsize=100_000)
def offset_of_hour(zone: tzinfo, hour: str) -> timedelta | None:
    """Return the offset from UTC all through a local hour, given as `YYYY-MM-DD HH`.

    None for an hour in which it changes. Times of one batch lie close together, and a look-up is
    much cheaper than a conversion.
    """
    try:
        first = datetime.fromisoformat(f"{hour}:00:00")
    except ValueError:
        return None
    last = first.replace(minute=59, second=59, microsecond=999_999)
    start, end = to_utc(first, zone), to_utc(last, zone)
    if start is None or end is None:
        return None
    offset = first - start.replace(tzinfo=None)
    return offset if last - end.replace(tzinfo=None) == offset else None


def to_local(instant: datetime, zone: tzinfo) -> datetime | None:
    """Return what a clock in `zone` shows at `instant`, naive; None outside years 1 to 9999."""
    try:
        return instant.astimezone(zone).replace(tzinfo=None)
    except OverflowError:
        return None
