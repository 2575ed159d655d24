"""The lines of `ticdc-assets decode` against the truth, for every folder of golden messages.

What the truth says of an event is made into the line that is wanted. Where a format, an option or
the place where a capture begins makes that line impossible, an entry of `DIFFERENCES` rewrites it;
then both must be equal in every field.
"""

import math
import re
import struct
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import orjson
import pytest

from ticdc_assets.source.capture import CaptureRecord, read_capture
from ticdc_assets.source.claim_check import ClaimCheckStore
from ticdc_assets.source.event_lines import CaptureFormat, event_lines
from ticdc_assets_tests.golden import FULL_VARIANTS
from ticdc_assets_tests.wire import golden
from ticdc_assets_tests.wire.test_golden import DDL_TYPES

pytestmark = golden.needs_golden

Line = dict[str, Any]


@dataclass
class Moment:
    """One event, and what was seen of schemas before it."""

    line: Line
    truth: Line
    versions: set[tuple[str, str, int]]

    @property
    def is_row(self) -> bool:
        return self.truth["type"] == "row"

    @property
    def columns(self) -> dict[str, Line]:
        images = (self.truth["before"] or [], self.truth["after"] or [])
        return {column["name"]: column for image in images for column in image}


# What differs -----------------------------------------------------------------------------------


def _no_name(wanted: Line, moment: Moment) -> Line:
    is_database = moment.truth["type"] == "ddl" and not moment.truth["table"]
    return {**wanted, "database": ""} if is_database else wanted


def _no_version(wanted: Line, _moment: Moment) -> Line:
    return {**wanted, "schema_version": None} if wanted.get("schema_version") else wanted


def _only_es(wanted: Line, _moment: Moment) -> Line:
    return {**wanted, "commit_ts": wanted["commit_ts"] >> 18 << 18, "es_only": True}


def _changed_before(wanted: Line, _moment: Moment) -> Line:
    if wanted.get("op") != "update":
        return wanted
    after = wanted["after"]
    changed = {name: value for name, value in wanted["before"].items() if value != after[name]}
    return {**wanted, "before": changed}


def _only_key(wanted: Line, moment: Moment) -> Line:
    keys = {name for name, column in moment.columns.items() if column.get("handle")}
    assert keys
    images = {
        side: wanted[side] and {name: wanted[side][name] for name in wanted[side] if name in keys}
        for side in ("before", "after")
    }
    return wanted | images


def _delete_of_a_key(wanted: Line, moment: Moment) -> Line:
    return _only_key(wanted, moment) if wanted.get("op") == "delete" else wanted


def _large(wanted: Line, moment: Moment) -> Line:
    if "handle_key_only" not in moment.line:
        return wanted
    return _only_key(wanted, moment) | {"handle_key_only": True}


def _no_old_value(wanted: Line, _moment: Moment) -> Line:
    return wanted | {"op": "insert", "before": None} if wanted.get("op") == "update" else wanted


_DIFF = re.compile(r'(before: )?(\w+)\(float\b.*\): want ".*" got "(.*)" \(float64\)', re.DOTALL)


def _damaged_float(wanted: Line, moment: Moment) -> Line:
    for text in moment.truth.get("go_decoder_diff", ()):
        found = _DIFF.fullmatch(text)
        if found is None:
            continue
        side = "before" if found[1] or wanted["after"] is None else "after"
        shown = (moment.line.get(side) or {}).get(found[2])
        # What TiCDC's own decoder makes of the damaged bytes.
        if shown is not None and _as_float(shown) == _as_float(found[3]):
            shown = "0" if shown == "-0" else shown
            wanted = {**wanted, side: wanted[side] | {found[2]: shown}}
    return wanted


def _as_float(text: str) -> float:
    """Return a number as a FLOAT holds it; 0 for NaN, infinity and what is too large."""
    try:
        (number,) = struct.unpack("<f", struct.pack("<f", float(text)))
    except OverflowError:
        return 0.0
    return number if math.isfinite(number) else 0.0


def _held(wanted: Line, moment: Moment) -> Line:
    truth = moment.truth
    version = truth.get("schema_version")
    if not moment.is_row or (truth["database"], truth["table"], version) in moment.versions:
        return wanted
    sent = {
        side: truth[side]
        and {column["name"]: _as_sent(column, moment.line[side]) for column in truth[side]}
        for side in ("before", "after")
    }
    return wanted | {"held": True} | sent


def _as_sent(column: Line, image: Line) -> Any:
    value, mysql_type = column["value"], column["mysql_type"]
    if value is None:
        return None
    if "index" in column:
        return str(column["index"])
    if "binary" in mysql_type or "blob" in mysql_type:
        return b64encode(bytes.fromhex(value.removeprefix("0x"))).decode()
    if mysql_type == "timestamp":
        return {"location": "Asia/Shanghai", "value": value}
    if mysql_type == "json":
        # The truth is without TiDB's spaces.
        shown = image[column["name"]]
        return shown if orjson.loads(shown) == orjson.loads(value) else value
    return value


@dataclass(frozen=True)
class Difference:
    """What a line cannot say, where, and why.

    Attributes:
        rewrite: returns the line that is wanted instead, or the same one.
        folders: patterns of the folders in which that happens.
        reason: why.
        but_not: exceptions from the patterns.
    """

    rewrite: Callable[[Line, Moment], Line]
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
        _no_name,
        ("simple-*/*", "options/simple-*"),
        "Simple names no database in CREATE, ALTER and DROP DATABASE; only the SQL does",
    ),
    Difference(_no_version, ALL_BUT_SIMPLE, "only Simple sends schema versions"),
    Difference(
        _only_es,
        ("canal-json-plain/*",),
        "without the TiDB extension there is `es`, in milliseconds, instead of a commit ts",
    ),
    Difference(
        _changed_before,
        ("open-updated/*", "canal-json-updated/*", "canal-json-compat/*"),
        "only-output-updated-columns: the before image lacks unchanged columns",
    ),
    Difference(
        _delete_of_a_key,
        ("open-updated/*", "options/*-delete-only-handle-key"),
        "delete-only-output-handle-key-columns: a DELETE has only the handle key",
        but_not=("options/simple-*",),  # Simple does not know the option.
    ),
    Difference(
        _large,
        ("options/*-handle-key-only",),
        "a row too large for a message has only the handle key",
    ),
    Difference(
        _no_old_value,
        ("options/open-no-old-value",),
        "with output-old-value=false an UPDATE looks like an INSERT",
    ),
    Difference(
        _damaged_float,
        ("craft/*",),
        "TiCDC's Craft encoder overwrites half of each FLOAT; the remaining value is shown",
    ),
    Difference(
        _held,
        ("simple-*/shop-middle",),
        "the capture begins in the middle: rows that come before their schema are held",
    ),
)
"""What lines lack of the truth, all of it."""

STILL_VALID = {
    ("craft/corrupt", 3, 91): "one bit of a text: the format has no checksum",
}
"""Damaged records that are still messages, and why."""


# The comparison ---------------------------------------------------------------------------------


def lines(folder: str, **changes: Any) -> Iterator[Line]:
    of = golden.scenario(folder)
    store = None
    if of.claim_check is not None:
        store = ClaimCheckStore(of.claim_check, of.wire_format, of.compression)
    settings = {
        "wire_format": of.wire_format,
        "compression": of.compression,
        "timezone": of.timezone,
        "store": store,
    }
    with read_capture(of.capture) as records:
        yield from event_lines(records, CaptureFormat(**settings | changes))


def truth_of(folder: str) -> dict[tuple[int, int, int], Line]:
    found = golden.scenario(folder).truth
    events = {(line["partition"], line["offset"], line["index"]): line for line in found}
    assert len(events) == len(found)
    return events


FLOATS = ("float", "double")


def wanted_line(truth: Line) -> Line:
    """Return the line that the truth of an event asks for, but for its place."""
    match truth["type"]:
        case "row":
            names = ("type", "op", "commit_ts", "database", "table", "schema_version")
            images = {side: truth[side] and wanted_image(truth[side]) for side in IMAGES}
            return {name: truth[name] for name in names} | images
        case "ddl":
            names = ("type", "commit_ts", "database", "table", "sql")
            word = DDL_TYPES.get(truth["ddl_type"], "ALTER")
            version = truth.get("schema_version")
            return {name: truth[name] for name in names} | {
                "ddl_type": word,
                "schema_version": version,
            }
        case "watermark":
            return {"type": "watermark", "commit_ts": truth["commit_ts"]}
        case _:
            names = ("type", "database", "table", "schema_version")
            return {name: truth[name] for name in names} | {"commit_ts": None}


IMAGES = ("before", "after")


def wanted_image(columns: list[Line]) -> Line:
    return {column["name"]: same_zero(column, column["value"]) for column in columns}


def same_zero(column: Line, value: Any) -> Any:
    """Return `value`; -0 of a FLOAT or DOUBLE is the same as 0."""
    return "0" if value == "-0" and column["mysql_type"] in FLOATS else value


def shown_line(line: Line, moment: Moment) -> Line:
    """Return the line without its place, its numbers comparable."""
    shown = {name: value for name, value in line.items() if name not in PLACE}
    if not moment.is_row:
        return shown
    columns = moment.columns
    for side in IMAGES:
        if shown.get(side) is not None:
            shown[side] = {
                name: same_zero(columns[name], value) if name in columns else value
                for name, value in shown[side].items()
            }
    return shown


PLACE = ("topic", "partition", "offset", "index")


def refused_lines(folder: str) -> list[Line]:
    """Assert that every line equals the truth; return those of damaged records that have errors."""
    refused: list[Line] = []
    truths = truth_of(folder)
    damaged = golden.damaged(folder)
    differences = [item for item in DIFFERENCES if item.is_in(folder)]
    versions: set[tuple[str, str, int]] = set()
    places: set[tuple[int, int, int]] = set()
    for line in lines(folder):
        place = (line["partition"], line["offset"], line["index"])
        assert place not in places
        places.add(place)
        if place[:2] in damaged:
            if line["type"] == "error" or (folder, *place[:2]) not in STILL_VALID:
                refused.append(line)
            continue
        moment = Moment(line, truths[place], versions)
        wanted = wanted_line(moment.truth)
        for difference in differences:
            wanted = difference.rewrite(wanted, moment)
        assert shown_line(line, moment) == wanted, place
        for schema in (moment.truth.get("schema"), moment.truth.get("pre_schema")):
            if schema:
                versions.add((schema["database"], schema["table"], schema["version"]))
        if moment.truth["type"] == "bootstrap":
            key = ("database", "table", "schema_version")
            versions.add(tuple(moment.truth[name] for name in key))
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
    differences = [item for item in DIFFERENCES if item.is_in(folder) and item.rewrite is not _held]
    met = Counter[str]()
    capture_format = CaptureFormat(wire_format=of.wire_format, timezone=of.timezone)
    for line in event_lines(partition_by_partition(of.records, first), capture_format):
        moment = Moment(line, truths[line["partition"], line["offset"], line["index"]], set())
        if not moment.is_row:
            continue
        if line.get("held"):
            met["held"] += 1
            sent = line["after"] or line["before"]
            labelled = [name for name, column in moment.columns.items() if "index" in column]
            assert any(sent.get(name) for name in labelled)
            continue
        met["compared"] += 1
        wanted = wanted_line(moment.truth)
        for difference in differences:
            wanted = difference.rewrite(wanted, moment)
        assert shown_line(line, moment) == wanted
    assert met["held"] == held
    assert met["compared"] == 1998 - held


@pytest.mark.parametrize("folder", [name for name in golden.FOLDERS if "claim-check" in name])
def test_rows_in_claim_checks_without_the_storage(folder: str) -> None:
    truths = truth_of(folder)
    cited = set[str]()
    for line in lines(folder, store=None):
        location = line.get("claim_check_location")
        if location is None:
            assert "handle_key_only" not in line
            continue
        cited.add(location.rpartition("/")[2])
        moment = Moment(line, truths[line["partition"], line["offset"], line["index"]], set())
        wanted = _only_key(wanted_line(moment.truth), moment)
        assert {side: line[side] for side in IMAGES} == {side: wanted[side] for side in IMAGES}
    files = {path.name for path in (golden.ROOT / folder / "claim-check").iterdir()}
    assert cited == files
    assert cited
