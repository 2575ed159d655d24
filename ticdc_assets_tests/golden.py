"""Golden scenarios as the tests of several layers read them: records, events, states."""

import gzip
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ticdc_assets.base.errors import WireError
from ticdc_assets.config import ClaimCheck
from ticdc_assets.model.events import Event, RowChange
from ticdc_assets.registry.history import Coordinates
from ticdc_assets.source.capture import CaptureReader, CaptureRecord
from ticdc_assets.source.claim_check import ClaimCheckStore
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets.wire.compression import Compression
from ticdc_assets.wire.record import Record
from ticdc_assets_tests.reference.fold import fold

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

NEW_SCENARIOS = [
    *(
        (variant, name)
        for variant in FULL_VARIANTS[:4]
        for name in ("types", "shop", "shop-replay")
    ),
    *((v, name) for v in ("open-updated", "canal-json-compat") for name in ("types", "shop")),
]
"""(variant, scenario) of the messages in the dialect of pingcap/ticdc, from the beginning."""

_OF_BOTH_SIMPLE = (
    *("checksum", "claim-check", "claim-check-raw", "delete-only-handle-key", "force-replicate"),
    *("handle-key-only", "lz4", "snappy"),
)
OPTIONS = [
    *(f"simple-json-{option}" for option in _OF_BOTH_SIMPLE),
    *(f"simple-avro-{option}" for option in _OF_BOTH_SIMPLE),
    *(f"canal-json-{option}" for option in _OF_BOTH_SIMPLE if option != "checksum"),
    *(
        f"open-{option}"
        for option in _OF_BOTH_SIMPLE
        if option not in ("checksum", "claim-check-raw")
    ),
    *("open-batch1", "open-no-old-value"),
    *("craft-batch1", "craft-batch200", "craft-delete-only-handle-key", "craft-force-replicate"),
]
"""The folders of golden messages with one option of an encoder each."""

MIDDLES = [(variant, "shop-middle") for variant in ("simple-json", "simple-avro")]
"""(variant, scenario) of messages that begin in the middle of a changefeed."""

CORRUPT = [(variant, "corrupt") for variant in FULL_VARIANTS]
"""(variant, scenario) of messages with damaged ones among them."""

ALL_FOLDERS = [*SCENARIOS, *MIDDLES, *CORRUPT, *(("options", option) for option in OPTIONS)]
"""Every folder of golden messages, by the names of its two levels."""

THREE_OF_THE_SHOP = (
    ("shop", "customers"),
    ("shop", "inventory"),
    ("crm", "contacts"),
    ("crm", "people"),
)
"""Three tables of the shop, one under two names: with columns that come, go, move and change."""

TYPES_OF_THE_SHOP = (*THREE_OF_THE_SHOP, ("shop", "all_types"))
"""These, and the table with a column of each type."""

LOST_BY_THE_FORMAT = {
    "craft": (
        {
            ("kinds", "types"): ("c_f", "c_f2"),
            ("shop", "all_types"): ("c_f", "c_f2"),
            ("shop", "order_items"): ("weight",),
            ("crm", "contacts"): ("score",),
            ("crm", "people"): ("score",),
        },
        "TiCDC's Craft encoder overwrites half of each FLOAT with the bytes after it",
    )
}
"""Columns whose values a variant does not carry, and why: they are left out of the comparison."""


@dataclass(frozen=True)
class Scenario:
    """One folder of golden messages."""

    folder: Path

    @property
    def variant(self) -> str:
        if self.folder.parent.name != "options":
            return self.folder.parent.name
        named = [name for name in FORMATS if self.folder.name.startswith(f"{name}-")]
        return max(named, key=len)

    @property
    def option(self) -> str:
        """The option of a folder of options, "" for others."""
        return self.folder.name.removeprefix(f"{self.variant}-") if self._is_option else ""

    @property
    def _is_option(self) -> bool:
        return self.folder.parent.name == "options"

    @property
    def compression(self) -> Compression:
        is_compression = self.option in {"lz4", "snappy"}
        return Compression(self.option) if is_compression else Compression.NONE

    @property
    def claim_check(self) -> ClaimCheck | None:
        place = self.folder / "claim-check"
        if not place.is_dir():
            return None
        return ClaimCheck(location=str(place), raw_value=self.option.endswith("-raw"))

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
        with CaptureReader(self.capture) as reader:
            return list(reader)

    @cached_property
    def truth(self) -> list[dict[str, Any]]:
        """The lines of events.jsonl."""
        with gzip.open(self.folder / "events.jsonl.gz", "rt", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    @property
    def end(self) -> int:
        """The cut at which everything is applied."""
        if self.variant == "canal-json-plain":
            return max(event.commit_ts for _, event in self.events) + 1
        return self.meta["final_ts"]

    @property
    def events(self) -> list[tuple[Coordinates, Event]]:
        """The events by the reference decoder; what is no message is left out."""
        events = events_of(self.records, self.wire_format, self.compression)
        if self.claim_check is None:
            return list(events)
        store = ClaimCheckStore(self.claim_check, self.wire_format, self.compression)
        return [(place, _whole(event, store)) for place, event in events]

    def state(self, at: int | None = None) -> Rows:
        """Return the truth at the end, or at an earlier watermark."""
        name = "state.jsonl.gz" if at is None else f"state@{at}.jsonl.gz"
        with gzip.open(self.folder / name, "rt", encoding="utf-8") as lines:
            return rows_of(json.loads(line) for line in lines)


@dataclass(frozen=True)
class Case:
    """One folder of a small capture: messages, and the rows that are right."""

    folder: Path

    @cached_property
    def meta(self) -> dict[str, Any]:
        return json.loads((self.folder / "case.json").read_text(encoding="utf-8"))

    @property
    def wire_format(self) -> WireFormat:
        return WireFormat(self.meta["format"])

    @property
    def timezone(self) -> str:
        return self.meta["timezone"]

    @property
    def capture(self) -> Path:
        return self.folder / "messages.jsonl"

    @property
    def export(self) -> Path | None:
        """The export that its tables begin with, if there is one."""
        folder = self.folder / "export"
        return folder if folder.is_dir() else None

    @property
    def wanted(self) -> Rows:
        """The rows that are right."""
        return rows_of(
            {"database": database, "table": table, "row": row}
            for name, rows in self.meta["expected"].items()
            for database, _, table in (name.partition("."),)
            for row in rows
        )


CASES = (
    *("batch-create-canal", "default-bytes-canal", "empty-ddl-canal", "exchange-canal"),
    *("exchange-simple-json", "open-flags-zero", "open-updated-null"),
    *("rename-cycle-simple-json", "rename-simple-json", "seed-stored-column", "swap-simple-json"),
)
"""The small captures."""


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
    records: Iterable[CaptureRecord],
    wire_format: WireFormat,
    compression: Compression = Compression.NONE,
) -> Iterator[tuple[Coordinates, Event]]:
    """Decode records by the reference decoder; what is no message is left out."""
    for record in records:
        try:
            events = decode(
                wire_format, Record(key=record.key, value=record.value), compression=compression
            )
        except WireError:
            continue
        for index, event in enumerate(events):
            place = Coordinates(
                topic=record.topic, partition=record.partition, offset=record.offset, index=index
            )
            yield place, event


def folded(events: list[tuple[Coordinates, Event]], at: int, timezone: str) -> Rows:
    """Return the rows that the plain-Python fold makes of the events up to `at`."""
    _, tables = fold(events, at, timezone)
    return {
        name: Counter(
            comparable({key: text for key, text in row.items() if key not in table.plan.generated})
            for row in rows
        )
        for name, table in tables.items()
        if (rows := list(table.listed()))
    }


def _whole(event: Event, store: ClaimCheckStore) -> Event:
    if isinstance(event, RowChange) and event.claim_check_location is not None:
        (event,) = store.fetch(event.claim_check_location)
    return event


def assert_same_rows(found: Rows, wanted: Rows, *, variant: str = "simple-json") -> None:
    """Compare tables, but for the columns that the variant does not carry."""
    lost, _ = LOST_BY_THE_FORMAT.get(variant, ({}, ""))
    found, wanted = _without(found, lost), _without(wanted, lost)
    for name in sorted(set(found) | set(wanted)):
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
    events = sorted(
        scenario.truth, key=lambda event: (event.get("commit_ts", 0), event["type"] == "ddl")
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
