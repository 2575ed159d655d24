"""Golden scenarios as the tests of several layers read them: records, events, states."""

import gzip
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ticdc_assets.capture import CaptureRecord, read_capture
from ticdc_assets.errors import WireError
from ticdc_assets.events import Event
from ticdc_assets.registry.history import Coordinates
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets.wire.record import Record

Rows = dict[tuple[str, str], Counter[str]]
"""For each (database, table) its rows as comparable text, with how often each is there."""

FORMATS = {
    "simple-json": WireFormat.SIMPLE_JSON,
    "simple-avro": WireFormat.SIMPLE_AVRO,
    "open": WireFormat.OPEN_PROTOCOL,
    "open-updated": WireFormat.OPEN_PROTOCOL,
    "canal-json": WireFormat.CANAL_JSON,
    "canal-json-compat": WireFormat.CANAL_JSON,
    "canal-json-updated": WireFormat.CANAL_JSON,
    "canal-json-plain": WireFormat.CANAL_JSON,
    "craft": WireFormat.CRAFT,
}
"""The variants of golden messages, and how each is written."""

FULL_VARIANTS = ("simple-json", "simple-avro", "open", "canal-json", "craft")
"""Those with every scenario; the others have `types` and `shop` only."""

SCENARIOS = [
    *((variant, name) for variant in FORMATS for name in ("types", "shop")),
    *((variant, name) for variant in FULL_VARIANTS for name in ("shop-replay", "shop-ddlwm")),
]
"""(variant, scenario) of all messages from the beginning without damage."""

PARTITION_DDL_TS = 470614222000619522
KNOWN_DIFFERENCES = {
    ("shop", "part_range"): (
        PARTITION_DDL_TS,
        "TRUNCATE PARTITION removes rows without row events; which ones is not worked out yet",
    ),
}
"""Tables that may differ from the truth: since which TSO, and why."""

LOST_BY_THE_FORMAT = {
    "craft": (
        {
            ("kinds", "types"): ("c_f", "c_f2"),
            ("shop", "all_types"): ("c_f", "c_f2"),
            ("shop", "order_items"): ("weight",),
            ("crm", "contacts"): ("score",),
            ("crm", "people"): ("score",),
        },
        "TiCDC's Craft encoder overwrites half of each FLOAT with what follows it",
    ),
}
"""Columns whose values a variant does not carry, and why: they are left out of the comparison."""


@dataclass(frozen=True)
class Scenario:
    """One folder of golden messages."""

    folder: Path

    @property
    def variant(self) -> str:
        return self.folder.parent.name

    @property
    def wire_format(self) -> WireFormat:
        return FORMATS[self.variant]

    @cached_property
    def meta(self) -> dict[str, Any]:
        return json.loads((self.folder / "meta.json").read_text(encoding="utf-8"))

    @property
    def timezone(self) -> str:
        return self.meta["timezone"]

    @property
    def capture(self) -> Path:
        return self.folder / "messages.jsonl.gz"

    @property
    def earlier(self) -> list[int]:
        return self.meta["intermediate_states"] or []

    @cached_property
    def records(self) -> list[CaptureRecord]:
        with read_capture(self.capture) as reader:
            return list(reader)

    @property
    def end(self) -> int:
        """The cut at which everything is applied."""
        if self.variant == "canal-json-plain":
            return max(event.commit_ts for _, event in self.events) + 1
        return self.meta["final_ts"]

    @property
    def events(self) -> list[tuple[Coordinates, Event]]:
        """The events by the reference decoder; what is no message is left out."""
        return list(events_of(self.records, self.wire_format))

    def state(self, at: int | None = None) -> Rows:
        """Return the truth at the end, or at an earlier watermark."""
        name = "state.jsonl.gz" if at is None else f"state@{at}.jsonl.gz"
        with gzip.open(self.folder / name, "rt", encoding="utf-8") as lines:
            return rows_of(json.loads(line) for line in lines)


def rows_of(lines: Iterable[dict[str, Any]]) -> Rows:
    """Collect `{"database", "table", "row"}` objects."""
    rows: Rows = {}
    for line in lines:
        name = (line["database"], line["table"])
        rows.setdefault(name, Counter())[comparable(line["row"])] += 1
    return rows


def comparable(row: dict[str, str | None]) -> str:
    """Return a row as text; -0 of a number equals 0."""
    same = {name: "0" if value == "-0" else value for name, value in row.items()}
    return json.dumps(same, sort_keys=True, ensure_ascii=False)


def events_of(
    records: Iterable[CaptureRecord], wire_format: WireFormat
) -> Iterator[tuple[Coordinates, Event]]:
    """Decode records by the reference decoder; what is no message is left out."""
    for record in records:
        try:
            events = decode(wire_format, Record(key=record.key, value=record.value))
        except WireError:
            continue
        for index, event in enumerate(events):
            place = Coordinates(
                topic=record.topic, partition=record.partition, offset=record.offset, index=index
            )
            yield place, event


def assert_same_rows(
    found: Rows, wanted: Rows, at: int | None = None, *, variant: str = "simple-json"
) -> None:
    """Compare tables; those in KNOWN_DIFFERENCES may differ from their TSO on."""
    lost, _ = LOST_BY_THE_FORMAT.get(variant, ({}, ""))
    found, wanted = _without(found, lost), _without(wanted, lost)
    for name in sorted(set(found) | set(wanted)):
        since = KNOWN_DIFFERENCES.get(name)
        if since is not None and (at is None or at > since[0]):
            continue
        missing = wanted.get(name, Counter()) - found.get(name, Counter())
        extra = found.get(name, Counter()) - wanted.get(name, Counter())
        different = (
            f"{name}: {sum(missing.values())} rows missing, {sum(extra.values())} too many; "
            f"first missing {next(iter(missing), None)}, first too many {next(iter(extra), None)}"
        )
        assert not missing, different
        assert not extra, different


def _without(rows: Rows, lost: Mapping[tuple[str, str], tuple[str, ...]]) -> Rows:
    result = dict(rows)
    for name in lost.keys() & rows.keys():
        result[name] = Counter()
        for text, count in rows[name].items():
            kept = {
                column: value
                for column, value in json.loads(text).items()
                if column not in lost[name]
            }
            result[name][comparable(kept)] += count
    return result


def rows_last_changed_here(scenario: Scenario) -> Rows:
    """Return the rows of the final state whose last row change is among the scenario's messages.

    Worked out from events.jsonl and the state file alone, without any code of the package: which
    key of which table (told by its id, through renames) has its last change here, and is it a put.
    """
    with gzip.open(scenario.folder / "events.jsonl.gz", "rt", encoding="utf-8") as lines:
        events = sorted(
            (json.loads(line) for line in lines),
            key=lambda event: (event.get("commit_ts", 0), event["type"] == "ddl"),
        )
    keys = {(item["database"], item["table"]): item["key"] for item in scenario.meta["tables"]}
    name_of: dict[int, tuple[str, str]] = {}
    newest_id: dict[tuple[str, str], int] = {}
    for event in events:
        if event["type"] in {"ddl", "row"} and "table_id" in event:
            name = (event["database"], event["table"])
            name_of[event["table_id"]] = name
            newest_id[name] = event["table_id"]
    last: dict[tuple[tuple[str, str], tuple[str | None, ...]], tuple[tuple[int, bool, int], bool]]
    last = {}
    for event in events:
        if event["type"] != "row":
            continue
        name = name_of[event["table_id"]]
        if name not in keys or newest_id[name] != event["table_id"]:
            continue  # dropped, or truncated since
        image = {value["name"]: value["value"] for value in event["after"] or event["before"]}
        key = (name, tuple(image[column] for column in keys[name]))
        is_put = event["op"] != "delete"
        order = (event["commit_ts"], is_put, event["offset"])
        if key not in last or last[key][0] < order:
            last[key] = (order, is_put)
    put = {key for key, (_, is_put) in last.items() if is_put}
    wanted: Rows = {}
    for name, texts in scenario.state().items():
        for text, count in texts.items():
            row = json.loads(text)
            if (name, tuple(row[column] for column in keys[name])) in put:
                wanted.setdefault(name, Counter())[text] += count
    return wanted
