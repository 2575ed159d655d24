"""Access to the golden messages of TiCDC's real encoders, where they are present."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ticdc_assets.model.events import Event, RowChange
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.registry.history import Coordinates
from ticdc_assets.wire.record import Record
from ticdc_assets_tests.golden import ALL_FOLDERS, Scenario

ROOT = Path(
    os.environ.get("TICDC_GOLDEN", Path(__file__).resolve().parents[3] / "shared" / "golden")
)

needs_golden = pytest.mark.skipif(
    not ROOT.is_dir(),
    reason="no golden messages: ../shared/golden is not there, TICDC_GOLDEN unset",
)

FOLDERS = tuple(map("/".join, ALL_FOLDERS))
"""Every folder of golden messages."""

SIMPLE_JSON_OPTIONS = tuple(
    folder
    for folder in FOLDERS
    if folder.startswith("options/simple-json-") and not folder.endswith(("-lz4", "-snappy"))
)
SIMPLE_JSON = (
    *(folder for folder in FOLDERS if folder.startswith("simple-json/")),
    *SIMPLE_JSON_OPTIONS,
)
"""The folders of the Simple protocol in JSON, without those that are compressed."""

Place = tuple[int, int]
"""Partition and offset of a record."""


def scenario(folder: str) -> Scenario:
    """Return what a golden folder has."""
    return Scenario(ROOT / folder)


def records(folder: str) -> list[Record]:
    """Return the records of a golden folder in arrival order, without their places."""
    return [Record(key=item.key, value=item.value) for item in scenario(folder).records]


def events(folder: str) -> dict[Place, list[dict[str, Any]]]:
    """Return what each record of a golden folder means, by its place."""
    found: dict[Place, list[dict[str, Any]]] = {}
    for line in scenario(folder).truth:
        found.setdefault((line["partition"], line["offset"]), []).append(line)
    return found


Schemas = Mapping[tuple[str, str, int | None], TableSchema]
"""Schemas by what a row of the Simple protocol cites: database, table and version."""


def schemas_of(events: Iterable[Event]) -> Schemas:
    """Return the schemas that events carry."""
    return {
        (schema.database, schema.table, schema.version): schema
        for event in events
        if not isinstance(event, RowChange)
        for schema in (getattr(event, "schema", None), getattr(event, "pre_schema", None))
        if schema is not None
    }


def rows(folder: str) -> Iterator[tuple[Coordinates, RowChange, TableSchema]]:
    """Yield the rows of a folder of the Simple protocol with the schemas that they cite."""
    events = scenario(folder).events
    schemas = schemas_of(event for _, event in events)
    for place, event in events:
        if isinstance(event, RowChange):
            yield place, event, schemas[event.database, event.table, event.schema_version]


def damaged(folder: str) -> dict[Place, str]:
    """Return what was done to the damaged records of a golden folder, by their places."""
    path = ROOT / folder / "damaged.json"
    if not path.exists():
        return {}
    return {
        (entry["partition"], entry["offset"]): entry["damage"]
        for entry in json.loads(path.read_text())
    }
