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


class LocalHours:
    """The offset from UTC of each hour of local time in one zone, cached.

    Times of one batch lie close together, and a dictionary is much cheaper than a conversion. An
    hour in which the offset changes has no entry.
    """

    __slots__ = ("_known", "_zone")

    def __init__(self, zone: tzinfo) -> None:
        self._zone = zone
        self._known: dict[str, timedelta | None] = {}

    def offset(self, hour: str) -> timedelta | None:
        """Return the offset all through the local `hour`, given as `YYYY-MM-DD HH`, or None."""
        try:
            return self._known[hour]
        except KeyError:
            if len(self._known) >= _MOST_HOURS:
                self._known.clear()
            offset = self._known[hour] = self._find(hour)
            return offset

    def _find(self, hour: str) -> timedelta | None:
        try:
            first = datetime.fromisoformat(f"{hour}:00:00")
        except ValueError:
            return None
        last = first.replace(minute=59, second=59, microsecond=999_999)
        instants = to_utc(first, self._zone), to_utc(last, self._zone)
        if instants[0] is None or instants[1] is None:
            return None
        offset = first - instants[0].replace(tzinfo=None)
        return offset if last - instants[1].replace(tzinfo=None) == offset else None


_MOST_HOURS = 100_000


@lru_cache(maxsize=64)
def local_hours(name: str) -> LocalHours:
    """Return the cached hours of the changefeed's zone called `name`.

    Raises:
        ConfigError: no zone has this name.
    """
    return LocalHours(changefeed_zone(name))


def to_local(instant: datetime, zone: tzinfo) -> datetime | None:
    """Return what a clock in `zone` shows at `instant`, naive; None outside years 1 to 9999."""
    try:
        return instant.astimezone(zone).replace(tzinfo=None)
    except OverflowError:
        return None
