"""Golden messages of any format, read by both decoders, against the truth of their events."""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import cache
from typing import Any

from ticdc_assets.model.events import Bootstrap, DdlEvent, Event, RowChange, Watermark
from ticdc_assets.wire.compression import decompressed
from ticdc_assets.wire.record import Record
from ticdc_assets_tests.golden import Scenario
from ticdc_assets_tests.wire import golden
from ticdc_assets_tests.wire.comparing import Outcome, assert_equal

Check = Callable[[Any, Mapping[str, Any], str], None]
"""Asserts that an event is what a line of the truth says, in a folder."""

KINDS = {"row": RowChange, "ddl": DdlEvent, "bootstrap": Bootstrap, "watermark": Watermark}

STILL_VALID: Mapping[tuple[str, int, int], str] = {
    ("craft/corrupt", 3, 91): "one bit of a text: the format has no checksum",
    ("simple-avro/corrupt", 0, 30): "a bit of a column's name was flipped; it is a name still",
}
"""Damaged records that are still messages, by (folder, partition, offset), and why."""


@dataclass
class Counts:
    """How many rows there are, how many of these are cut or have a checksum; the largest batch."""

    rows: int = 0
    cut: int = 0
    checked: int = 0
    most: int = 0


@cache
def decoded(folder: str) -> list[tuple[golden.Message, Record, Outcome]]:
    """Return each message, its record before compression, and what both decoders say about it."""
    of = Scenario(golden.ROOT / folder)
    messages = list(golden.messages(folder))
    records = [
        decompressed(of.wire_format, Record(key=message.key, value=message.value), of.compression)
        for message in messages
    ]
    return list(zip(messages, records, assert_equal(records, of.wire_format), strict=True))


def compare_with_truth(
    folder: str, checks: Mapping[type[Event], Check], reasons: Mapping[str, Set[str]]
) -> Counts:
    """Check every event, that none is missing, and why damaged records are refused."""
    truth = golden.events(folder)
    damaged = golden.damaged(folder)
    refused = set[tuple[int, int]]()
    found: dict[str, set[str]] = {}
    counts = Counts()
    for message, _, outcome in decoded(folder):
        place = (message.partition, message.offset)
        if isinstance(outcome, tuple):
            refused.add(place)
            found.setdefault(damaged[place], set()).add(outcome[0])
            continue
        if place in damaged:
            assert (folder, *place) in STILL_VALID
            continue
        lines = truth.pop(place)
        assert [line["index"] for line in lines] == list(range(len(outcome)))
        counts.most = max(counts.most, len(outcome))
        for event, line in zip(outcome, lines, strict=True):
            assert type(event) is KINDS[line["type"]]
            checks[type(event)](event, line, folder)
            if isinstance(event, RowChange):
                counts.rows += 1
                counts.cut += event.handle_key_only
                counts.checked += event.checksum is not None
    still_valid = {(partition, offset) for name, partition, offset in STILL_VALID if name == folder}
    assert truth == {}
    assert refused == damaged.keys() - still_valid
    assert found == (reasons if damaged else {})
    assert counts.rows > 0
    return counts


def sent_columns(columns: list[dict[str, Any]] | None, *, only_key: bool = True) -> Any:
    """Return the columns of an image, or of its handle key alone."""
    if columns is None:
        return None
    return [column for column in columns if column.get("handle") or not only_key]
