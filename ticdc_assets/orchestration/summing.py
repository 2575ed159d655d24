"""The reports of several syncs as one: Dagster keeps every event, so one for each fills the disk.

In: the events of each sync, as a run of the sync job would report them. Out: one event for each
asset and partition. Numbers that count what a sync did are added, so a plot in the UI keeps its
sum; `_ADDED` names them, and a new number of a step belongs there if it adds up. All other metadata
is the newest sync's. An observation stays as it is, like an event on any other asset.
"""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final, TypeAlias

import dagster as dg

from ticdc_assets.orchestration.metadata import SAID, Metadata, described, rate_metadata
from ticdc_assets.orchestration.syncing import Event

_ADDED: Final[Mapping[str, tuple[str, ...]]] = {
    "raw_messages": ("records",),
    "decode_messages": ("changes*", "quarantined", "batches"),
    "quarantine": ("quarantined",),
    "change_log": ("appended",),
    "schema_registry": (),
    "apply_changes": ("replays", "late"),
    "mirrors/*": ("changes",),
    "histories/*": (),
}
"""Patterns of the numbers' names, by the asset: its key without the changefeed and the table."""

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
            kind = _kind(event.asset_key)
            if kind not in _ADDED or isinstance(event, dg.AssetObservation):
                self._events[len(self._events)] = event
                continue
            place = (event.asset_key, event.partition)
            older = self._events.get(place)
            self._events[place] = event if older is None else _together(older, event, kind)

    def take(self) -> list[Event]:
        """Return the events, and keep them no longer."""
        events, self._events = self._events, {}
        return list(events.values())


def _kind(key: dg.AssetKey) -> str:
    _, name, *table = key.path
    return f"{name}/*" if table else name


def _together(older: Event, newer: Event, kind: str) -> Event:
    """Return one event for two."""
    metadata = _summed(older.metadata, newer.metadata, _ADDED[kind])
    is_said = newer.description is not None and kind in SAID
    return dg.AssetMaterialization(
        asset_key=newer.asset_key,
        partition=newer.partition,
        description=described(kind, metadata) if is_said else newer.description,
        metadata=metadata,
        tags=newer.tags,
    )


def _summed(older: _Read, newer: _Read, added: tuple[str, ...]) -> Metadata:
    """Return the metadata of two syncs together."""
    metadata: Metadata = dict(newer)
    for name in {**newer, **older}:
        if any(fnmatchcase(name, pattern) for pattern in added):
            metadata[name] = _value(older, name) + _value(newer, name)
    if "seconds" in older and "seconds" in newer:
        metadata.pop("per_second", None)
        done = sum(_value(it, "per_second") * _value(it, "seconds") for it in (older, newer))
        seconds = _value(older, "seconds") + _value(newer, "seconds")
        metadata |= rate_metadata(round(done), seconds)
    return metadata


def _value(metadata: _Read, name: str) -> Any:
    """Return a number of metadata; 0 if it has none."""
    return metadata[name].value if name in metadata else 0
