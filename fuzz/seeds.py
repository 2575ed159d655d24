"""What is damaged: messages and DDL text, from TiCDC's real encoders where there are.

In: a wire format, and the folder of golden messages (`../shared/golden`, or the one that
TICDC_GOLDEN names) or None. Out: `Seeds`: some of each kind of message that the folder has; without
a folder those that the package's own encoders write for the simulator's shop. The same folder gives
the same seeds, and without one they are the same on every machine.

Not handled: golden messages whose row is elsewhere (claim check) are seeds like any other.
"""

import gzip
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from ticdc_assets.base.errors import WireError
from ticdc_assets.demo.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.message_forms import MessageOptions
from ticdc_assets.demo.simulator.shop import ShopWorkload
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.model.events import DdlEvent, RowChange
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.source.capture import CaptureReader
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets.wire.compression import Compression
from ticdc_assets.wire.record import Record
from ticdc_assets_tests.golden import FORMATS

VARIANTS: Mapping[WireFormat, Sequence[str]] = {
    wire_format: [name for name, other in FORMATS.items() if other is wire_format]
    for wire_format in WireFormat
}
"""The folders of golden messages of each format; options are in `options/<variant>-<option>`."""

OPTIONS = (
    MessageOptions(),
    MessageOptions(content_compatible=True, delete_only_handle_key=True),
    MessageOptions(tidb_extension=False, only_updated_columns=True),
)
"""Options of the encoder that the simulator's messages are written with, one after the other."""

_RECORDS_OF_A_FOLDER = 500
_OF_A_KIND = 3
_LONGEST = 16 * 1024
_STEPS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeds:
    """What is damaged.

    Attributes:
        source: where it is from.
        records: messages.
        compressed: messages as they are compressed by others than the package's own compressors.
    """

    source: str
    records: Sequence[Record]
    compressed: Mapping[Compression, Sequence[Record]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlSeeds:
    """What is damaged of DDL.

    Attributes:
        source: where it is from.
        texts: statements.
        schemas: schemas that statements change.
    """

    source: str
    texts: Sequence[str]
    schemas: Sequence[TableSchema]


def golden_folder() -> Path | None:
    """Return the folder of golden messages, None where there is none."""
    root = Path(__file__).resolve().parent.parent
    folder = Path(os.environ.get("TICDC_GOLDEN") or root.parent / "shared" / "golden")
    return folder if folder.is_dir() else None


def load_seeds(wire_format: WireFormat, golden: Path | None) -> Seeds:
    """Return messages of `wire_format`."""
    if golden is None:
        return Seeds(
            source="the simulator", records=list(_some(wire_format, simulated(wire_format)))
        )
    records: list[Record] = []
    compressed: dict[Compression, list[Record]] = {}
    for folder in _folders(wire_format, golden):
        compression = _COMPRESSIONS.get(folder.name.rpartition("-")[2], Compression.NONE)
        with CaptureReader(folder / "messages.jsonl.gz") as reader:
            found = _some(
                wire_format,
                (
                    Record(key=item.key, value=item.value)
                    for item in islice(reader, _RECORDS_OF_A_FOLDER)
                ),
                compression,
            )
            if compression is Compression.NONE:
                records += found
            else:
                compressed.setdefault(compression, []).extend(found)
    return Seeds(source="TiCDC's encoder", records=records, compressed=compressed)


def load_ddl_seeds(golden: Path | None) -> DdlSeeds:
    """Return statements, and schemas that they could change."""
    records = simulated(WireFormat.SIMPLE_JSON)
    ddl = [
        event
        for record in records
        for event in decode(WireFormat.SIMPLE_JSON, record)
        if isinstance(event, DdlEvent)
    ]
    schemas = {
        (event.schema.table, len(event.schema.columns)): event.schema
        for event in ddl
        if event.schema
    }
    texts = dict.fromkeys(event.sql for event in ddl)
    if golden is not None:
        for variant in VARIANTS[WireFormat.SIMPLE_JSON]:
            for path in sorted((golden / variant).glob("*/events.jsonl.gz")):
                texts.update(dict.fromkeys(_golden_texts(path)))
    return DdlSeeds(
        source="the simulator" if golden is None else "the simulator and TiCDC's encoder",
        texts=list(texts),
        schemas=list(schemas.values()),
    )


def simulated(wire_format: WireFormat) -> list[Record]:
    """Return what the package's encoder writes for the life of a shop."""
    records: list[Record] = []
    for seed, messages in enumerate(OPTIONS):
        upstream = Upstream()
        workload = ShopWorkload(upstream, seed)
        changefeed = StandInChangefeed(
            upstream,
            "fuzz",
            partitions=2,
            wire_format=wire_format,
            options=FeedOptions(messages=messages),
            seed=seed,
        )
        workload.open()
        for _ in workload.steps(_STEPS):
            pass
        records += (Record(key=item.key, value=item.value) for item in changefeed.tick())
    return records


_COMPRESSIONS = {compression.value: compression for compression in Compression}


def _folders(wire_format: WireFormat, golden: Path) -> Iterator[Path]:
    for variant in VARIANTS[wire_format]:
        paths = [*(golden / variant).glob("*"), *(golden / "options").glob(f"{variant}-*")]
        for path in sorted(paths):
            if (path / "messages.jsonl.gz").is_file():
                yield path


def _some(
    wire_format: WireFormat,
    records: Iterable[Record],
    compression: Compression = Compression.NONE,
) -> list[Record]:
    """Return a few of each kind of message, so that rows do not crowd out the others."""
    seen: Counter[object] = Counter()
    kept: list[Record] = []
    for record in records:
        kind = _kind(wire_format, record, compression)
        seen[kind] += 1
        if seen[kind] <= _OF_A_KIND and len(record.value or b"") <= _LONGEST:
            kept.append(record)
    return kept


def _kind(wire_format: WireFormat, record: Record, compression: Compression) -> object:
    try:
        events = decode(wire_format, record, compression=compression)
    except WireError as error:
        return error.reason
    event = events[0]
    if isinstance(event, RowChange):
        return event.op, event.database, event.table, len(events)
    if isinstance(event, DdlEvent):
        return event.ddl_type
    return type(event)


def _golden_texts(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            if '"ddl"' in line:
                event = json.loads(line)
                if event["type"] == "ddl":
                    yield event["sql"]
