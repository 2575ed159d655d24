"""The lines of `ticdc-assets decode` against the truth, for every folder of golden messages.

A line has the columns that the reference decoder finds in its record (`wire.test_golden` holds that
decoder against the truth), with the values that the truth has. Fields of a line differ from the
truth only where an entry of `DIFFERENCES` says so, and are then those of the event.
"""

import math
import re
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from ticdc_assets.model.events import ZonedTimestamp
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.source.claim_check import ClaimCheckStore
from ticdc_assets.source.event_lines import CaptureFormat, event_lines
from ticdc_assets_tests.golden import FULL_VARIANTS, events_of
from ticdc_assets_tests.wire import golden
from ticdc_assets_tests.wire.test_golden import DDL_TYPES

pytestmark = golden.needs_golden

Line = dict[str, Any]
Place = tuple[int, int, int]

IMAGES = ("before", "after")
PLACE = ("topic", "partition", "offset", "index")


@dataclass(frozen=True)
class Difference:
    """Fields of lines that are not as in the truth, where, and why.

    Attributes:
        fields: the fields.
        folders: patterns of the folders in which that happens.
        reason: why.
        but_not: exceptions from the patterns.
    """

    fields: tuple[str, ...]
    folders: tuple[str, ...]
    reason: str
    but_not: tuple[str, ...] = ()

    def is_in(self, folder: str) -> bool:
        return any(fnmatch(folder, pattern) for pattern in self.folders) and not any(
            fnmatch(folder, pattern) for pattern in self.but_not
        )


ALL_BUT_SIMPLE = tuple(
    f"{start}{name}*" for start in ("", "options/") for name in ("open", "canal-json", "craft")
)
DIFFERENCES = (
    Difference(
        ("database",),
        ("simple-*/*", "options/simple-*"),
        "Simple names no database in CREATE, ALTER and DROP DATABASE; only the SQL does",
    ),
    Difference(("schema_version",), ALL_BUT_SIMPLE, "only Simple sends schema versions"),
    Difference(
        ("commit_ts", "es_only"),
        ("canal-json-plain/*",),
        "without the TiDB extension there is `es`, in milliseconds, instead of a commit ts",
    ),
    Difference(
        ("before",),
        ("open-updated/*", "canal-json-updated/*", "canal-json-compat/*"),
        "only-output-updated-columns: the before image lacks unchanged columns",
    ),
    Difference(
        ("before",),
        ("open-updated/*", "options/*-delete-only-handle-key"),
        "delete-only-output-handle-key-columns: a DELETE has only the handle key",
        but_not=("options/simple-*",),  # Simple does not know the option.
    ),
    Difference(
        (*IMAGES, "handle_key_only"),
        ("options/*-handle-key-only",),
        "a row too large for a message has only the handle key",
    ),
    Difference(
        ("op", "before"),
        ("options/open-no-old-value",),
        "with output-old-value=false an UPDATE looks like an INSERT",
    ),
    Difference(
        IMAGES,
        ("craft/*",),
        "TiCDC's Craft encoder overwrites half of each FLOAT; the remaining value is shown",
    ),
    Difference(
        (*IMAGES, "held"),
        ("simple-*/shop-middle",),
        "the capture begins in the middle: rows that come before their schema are held",
    ),
)
"""What lines lack of the truth, all of it."""

STILL_VALID = {("craft/corrupt", 3, 91): "one bit of a text: the format has no checksum"}
"""Damaged records that are still messages, and why."""


# The comparison ---------------------------------------------------------------------------------


def wanted_line(truth: Line) -> Line:
    """Return the line that the truth of an event asks for, but for its place."""
    if truth["type"] == "watermark":
        return {"type": "watermark", "commit_ts": truth["commit_ts"]}
    names = ("type", "commit_ts", "database", "table", "schema_version")
    line: Line = {name: truth.get(name) for name in names}
    if truth["type"] == "row":
        line["op"] = truth["op"]
        for side in IMAGES:
            columns = truth[side]
            line[side] = columns and {column["name"]: column["value"] for column in columns}
    elif truth["type"] == "ddl":
        line |= {"sql": truth["sql"], "ddl_type": DDL_TYPES.get(truth["ddl_type"], "ALTER")}
    else:
        line["commit_ts"] = None
    return line


def same_zeros(image: Line, columns: list[Line]) -> Line:
    """Return an image in which -0 of a FLOAT or DOUBLE is 0, which is the same."""
    numbers = {item["name"] for item in columns if item["mysql_type"] in ("float", "double")}
    return {name: "0" if text == "-0" and name in numbers else text for name, text in image.items()}


_DIFF = re.compile(r'(before: )?(\w+)\(float\b.*\): want ".*" got "(.*)" \(float64\)', re.DOTALL)


def damaged_floats(truth: Line, side: str, shown: Line) -> Line:
    """Return the shown FLOAT values that are what TiCDC's own decoder makes of damaged bytes."""
    found: Line = {}
    for match in map(_DIFF.fullmatch, truth.get("go_decoder_diff", ())):
        if match is not None and side == (
            "before" if match[1] or truth["after"] is None else "after"
        ):
            text = shown.get(match[2])
            if text is not None and as_float(text) == as_float(match[3]):
                found[match[2]] = text
    return found


def as_float(text: str) -> float:
    """Return a number as a FLOAT holds it; 0 for NaN, infinity and what is too large."""
    try:
        (number,) = struct.unpack("<f", struct.pack("<f", float(text)))
    except OverflowError:
        return 0.0
    return number if math.isfinite(number) else 0.0


def as_sent(value: Any) -> Any:
    if isinstance(value, ZonedTimestamp):
        return {"location": value.location, "value": value.value}
    return value


def check(line: Line, truth: Line, event: Any, may_differ: set[str]) -> None:
    """Assert that a line is as the truth, but for some fields, which are those of its event."""
    wanted = wanted_line(truth)
    shown = {name: value for name, value in line.items() if name not in PLACE}
    for side in IMAGES if truth["type"] == "row" else ():
        sent, image = getattr(event, side), shown[side]
        if sent is None:
            assert image is None
        elif line.get("held"):
            assert image == {name: as_sent(value) for name, value in sent.items()}
        else:
            image = shown[side] = same_zeros(image, truth[side])
            values = wanted[side] = same_zeros(wanted[side], truth[side])
            values = values | damaged_floats(truth, side, image)
            assert image == {name: values[name] for name in sent}
    differing = {name for name in {*wanted, *shown} if wanted.get(name) != shown.get(name)}
    assert differing <= may_differ
    for name in differing - {*IMAGES, "held"}:
        assert shown[name] == getattr(event, name, None)


def store_of(folder: str) -> ClaimCheckStore | None:
    of = golden.scenario(folder)
    if of.claim_check is None:
        return None
    return ClaimCheckStore(of.claim_check, of.wire_format, of.compression)


def lines(
    folder: str, records: list[CaptureRecord], store: ClaimCheckStore | None = None
) -> Iterator[Line]:
    of = golden.scenario(folder)
    capture_format = CaptureFormat(
        wire_format=of.wire_format, compression=of.compression, timezone=of.timezone, store=store
    )
    return event_lines(records, capture_format)


def truth_of(folder: str) -> dict[Place, Line]:
    found = golden.scenario(folder).truth
    events = {(line["partition"], line["offset"], line["index"]): line for line in found}
    assert len(events) == len(found)
    return events


def fields_of(folder: str) -> set[str]:
    """Return the fields that may differ in a folder."""
    return {name for item in DIFFERENCES if item.is_in(folder) for name in item.fields}


def refused_lines(folder: str) -> list[Line]:
    """Assert that every line equals the truth; return those of damaged records that have errors."""
    of = golden.scenario(folder)
    refused: list[Line] = []
    truths, damaged, may_differ = truth_of(folder), golden.damaged(folder), fields_of(folder)
    events = {(at.partition, at.offset, at.index): event for at, event in of.events}
    versions: set[tuple[str, str, int | None]] = set()
    places: set[Place] = set()
    for line in lines(folder, of.records, store_of(folder)):
        place = (line["partition"], line["offset"], line["index"])
        assert place not in places
        places.add(place)
        if place[:2] in damaged:
            if line["type"] == "error" or (folder, *place[:2]) not in STILL_VALID:
                refused.append(line)
            continue
        event = events[place]
        check(line, truths[place], event, may_differ)
        if line["type"] == "row" and line["schema_version"] is not None:
            cited = (line["database"], line["table"], line["schema_version"])
            assert line.get("held", False) is (cited not in versions)
        versions |= golden.schemas_of([event]).keys()
    assert places == truths.keys() | {(*place, 0) for place in damaged}
    return refused


@pytest.mark.parametrize(
    "folder", [name for name in golden.FOLDERS if not name.endswith("/corrupt")]
)
@pytest.mark.thorough
def test_lines_equal_the_truth(folder: str) -> None:
    assert refused_lines(folder) == []


@pytest.mark.parametrize("variant", FULL_VARIANTS)
def test_damaged_records_are_lines_with_reason_and_position(variant: str) -> None:
    folder = f"{variant}/corrupt"
    refused = refused_lines(folder)
    valid = [place for place in STILL_VALID if place[0] == folder]
    assert len(refused) == len(golden.damaged(folder)) - len(valid)
    for line in refused:
        assert line["type"] == "error"
        assert line["index"] == 0
        assert re.fullmatch("[a-z0-9_]+", line["reason"])
        assert line["position"]
        assert line["expected"]
        assert 0 < len(line["got"]) <= 200


def test_no_folder_is_forgotten() -> None:
    found = {
        str(path.parent.relative_to(golden.ROOT))
        for path in Path(golden.ROOT).glob("*/*/messages.jsonl.gz")
    }
    assert found == set(golden.FOLDERS)


# Other ways to read the same ---------------------------------------------------------------------


def partition_by_partition(records: list[CaptureRecord], first: int) -> list[CaptureRecord]:
    """Return the records as a consumer may get them that drains one partition after the other."""
    return sorted(records, key=lambda record: ((record.partition - first) % 4, record.offset))


ORDERS = [
    *(
        (f"{variant}/shop", first, 0)
        for variant in ("simple-json", "open", "craft")
        for first in (0, 1)
    ),
    ("canal-json/shop", 0, 0),
    ("canal-json/shop", 1, 666),
    ("canal-json-compat/shop", 1, 0),
]
"""Which partition comes first, and how many rows are held: Canal-JSON has its DDL in partition 0
alone, so what comes before that partition lacks labels, unless rows have them (content-compatible).
"""


@pytest.mark.parametrize(("folder", "first", "held"), ORDERS)
@pytest.mark.thorough
def test_partitions_one_after_the_other(folder: str, first: int, held: int) -> None:
    of = golden.scenario(folder)
    truths = truth_of(folder)
    events = {(at.partition, at.offset, at.index): event for at, event in of.events}
    met = Counter[bool]()
    for line in lines(folder, partition_by_partition(of.records, first)):
        if line["type"] != "row":
            continue
        place = (line["partition"], line["offset"], line["index"])
        met["held" in line] += 1
        check(line, truths[place], events[place], fields_of(folder) | {"held", *IMAGES})
        if "held" in line:
            columns = [*(truths[place]["before"] or ()), *(truths[place]["after"] or ())]
            sent = line["after"] or line["before"]
            assert any(sent.get(item["name"]) for item in columns if "index" in item)
    assert met == Counter({True: held, False: 1998 - held})


@pytest.mark.parametrize("folder", [name for name in golden.FOLDERS if "claim-check" in name])
def test_rows_in_claim_checks_without_the_storage(folder: str) -> None:
    of = golden.scenario(folder)
    truths = truth_of(folder)
    cited = set[str]()
    cut = {*fields_of(folder), *IMAGES, "handle_key_only", "claim_check_location"}
    events = events_of(of.records, of.wire_format, of.compression)
    for line, (place, event) in zip(lines(folder, of.records), events, strict=True):
        location = line.get("claim_check_location")
        may_differ = fields_of(folder) if location is None else cut
        check(line, truths[place.partition, place.offset, place.index], event, may_differ)
        if location is not None:
            cited.add(location.rpartition("/")[2])
            assert line["handle_key_only"]
    files = {path.name for path in (golden.ROOT / folder / "claim-check").iterdir()}
    assert cited == files
    assert cited
