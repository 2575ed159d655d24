"""Access to the golden messages of TiCDC's real encoders, where they are present."""

import gzip
import json
import os
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(
    os.environ.get("TICDC_GOLDEN", Path(__file__).resolve().parents[3] / "shared" / "golden")
)

needs_golden = pytest.mark.skipif(
    not ROOT.is_dir(),
    reason="no golden messages: ../shared/golden is not there, TICDC_GOLDEN unset",
)

SIMPLE_JSON = tuple(
    f"simple-json/{name}"
    for name in ("types", "shop", "shop-replay", "shop-ddlwm", "shop-middle", "corrupt")
)
SIMPLE_JSON_OPTIONS = tuple(
    f"options/simple-json-{name}"
    for name in (
        "checksum",
        "claim-check",
        "claim-check-raw",
        "delete-only-handle-key",
        "force-replicate",
        "handle-key-only",
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One golden Kafka record."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


def messages(folder: str) -> Iterator[Message]:
    """Yield the records of a golden folder in arrival order."""
    for line in _lines(folder, "messages.jsonl.gz"):
        yield Message(
            topic=line["topic"],
            partition=line["partition"],
            offset=line["offset"],
            key=_bytes(line["key"]),
            value=_bytes(line["value"]),
        )


def events(folder: str) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """Return what each record of a golden folder means, by (partition, offset)."""
    found: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for line in _lines(folder, "events.jsonl.gz"):
        found.setdefault((line["partition"], line["offset"]), []).append(line)
    return found


def damaged(folder: str) -> dict[tuple[int, int], str]:
    """Return what was done to the damaged records of a golden folder, by (partition, offset)."""
    path = ROOT / folder / "damaged.json"
    if not path.exists():
        return {}
    return {
        (entry["partition"], entry["offset"]): entry["damage"]
        for entry in json.loads(path.read_text())
    }


def _lines(folder: str, name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(ROOT / folder / name, "rt", encoding="utf-8") as file:
        for line in file:
            if line.strip():
                yield json.loads(line)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)
