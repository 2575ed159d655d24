"""The reports of several syncs as one: Dagster keeps every event, so one for each fills the disk.

In: the events of each sync, as a run of the sync job would report them. Out: one event for each
asset and partition. Numbers that count what a sync did are added, so a plot in the UI keeps its
sum; `_SUMS` names them, and a new number of a step belongs there if it adds up. All other metadata
is the newest sync's. An event whose asset is not in `_SUMS` stays as it is.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, TypeAlias

import dagster as dg

from ticdc_assets.orchestration.metadata import (
    DAY_SAID,
    MIRROR_SAID,
    QUARANTINE_SAID,
    Metadata,
    described,
    rate_metadata,
)
from ticdc_assets.orchestration.syncing import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sums:
    """The metadata of an event that are not simply the newest sync's.

    Attributes:
        added: numbers that are added, as patterns of their names.
        added_by_cut: numbers that are added once for each cut: an apply that publishes no cut
            repeats those of the newest one.
        listed: texts of parts; each part is listed once.
        first: the oldest sync's.
        said: the form of the description; if "", it is the newest sync's.
    """

    added: tuple[str, ...] = ()
    added_by_cut: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    said: str = ""


_SUMS: Final[Mapping[tuple[type[Event], str], _Sums]] = {
    (dg.AssetMaterialization, "raw_messages"): _Sums(added=("records",)),
    (dg.AssetMaterialization, "decode_messages"): _Sums(
        added=("changes", "changes_*", "quarantined", "batches")
    ),
    (dg.AssetMaterialization, "quarantine"): _Sums(added=("quarantined",)),
    (dg.AssetObservation, "quarantine"): _Sums(
        added=("quarantined",), first=("open_apply_before",), said=QUARANTINE_SAID
    ),
    (dg.AssetMaterialization, "change_log"): _Sums(added=("appended",), said=DAY_SAID),
    (dg.AssetMaterialization, "schema_registry"): _Sums(),
    (dg.AssetMaterialization, "apply_changes"): _Sums(added_by_cut=("replays", "late")),
    (dg.AssetMaterialization, "mirrors/*"): _Sums(
        added=("changes",), listed=("mode",), said=MIRROR_SAID
    ),
    (dg.AssetMaterialization, "histories/*"): _Sums(),
}
"""By the event's type, and the name of its asset: the key without the changefeed and the table."""

_Read: TypeAlias = Mapping[str, dg.MetadataValue]


class Unreported:
    """The events that are not reported yet."""

    def __init__(self) -> None:
        self._events: dict[object, Event] = {}

    def __bool__(self) -> bool:
        """Return whether there is any event."""
        return bool(self._events)

    def add(self, events: Iterable[Event]) -> None:
        """Keep the events of a sync; those on the same asset and partition become one."""
        for event in events:
            sums = _SUMS.get((type(event), _kind(event.asset_key)))
            if sums is None:
                self._events[len(self._events)] = event
                continue
            place = (type(event), event.asset_key, event.partition)
            older = self._events.get(place)
            self._events[place] = event if older is None else _together(older, event, sums)

    def take(self) -> list[Event]:
        """Return the events, and keep them no longer."""
        events, self._events = self._events, {}
        return list(events.values())


def _kind(key: dg.AssetKey) -> str:
    _, name, *table = key.path
    return f"{name}/*" if table else name


def _together(older: Event, newer: Event, sums: _Sums) -> Event:
    """Return one event for two."""
    metadata = _summed(older.metadata, newer.metadata, sums)
    return type(newer)(
        asset_key=newer.asset_key,
        partition=newer.partition,
        description=described(sums.said, metadata) if sums.said else newer.description,
        metadata=metadata,
        tags=newer.tags,
    )


def _summed(older: _Read, newer: _Read, sums: _Sums) -> Metadata:
    """Return the metadata of two syncs together."""
    is_same_cut = _value(older, "cut", None) == _value(newer, "cut", None)
    added = sums.added if is_same_cut else sums.added + sums.added_by_cut
    oldest = sums.first + sums.added_by_cut if is_same_cut else sums.first
    metadata: Metadata = dict(newer)
    for name in {**newer, **older}:
        if any(fnmatchcase(name, pattern) for pattern in added):
            total = _value(older, name, 0) + _value(newer, name, 0)
            metadata[name] = total
        elif name in sums.listed:
            texts = [text for each in (older, newer) if (text := _value(each, name, ""))]
            parts = dict.fromkeys(part for text in texts for part in text.split(", "))
            metadata[name] = ", ".join(parts)
        elif name in oldest and name in older:
            metadata[name] = older[name]
    if "seconds" in older and "seconds" in newer:
        metadata.pop("per_second", None)
        seconds = [_value(each, "seconds", 0.0) for each in (older, newer)]
        rates = [_value(each, "per_second", 0.0) for each in (older, newer)]
        done = round(sum(rate * took for rate, took in zip(rates, seconds, strict=True)))
        metadata |= rate_metadata(done, sum(seconds))
    return metadata


def _value(metadata: _Read, name: str, without: Any) -> Any:
    """Return a value of metadata; `without` if it has none."""
    return metadata[name].value if name in metadata else without
