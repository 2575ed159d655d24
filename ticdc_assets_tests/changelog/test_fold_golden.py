"""The reference fold, over what TiCDC's real encoders sent, against what SELECT gave."""

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from ticdc_assets.model.events import Bootstrap, DdlEvent, Event, RowChange
from ticdc_assets.registry.history import Coordinates
from ticdc_assets_tests.golden import (
    NEW_SCENARIOS,
    OPTIONS,
    SCENARIOS,
    Rows,
    Scenario,
    assert_same_rows,
    folded,
    rows_last_changed_here,
)


@pytest.mark.parametrize(
    ("folders", "variant", "name"),
    [
        *(("golden_dir", *scenario) for scenario in SCENARIOS),
        *(("golden_new_dir", *scenario) for scenario in NEW_SCENARIOS),
    ],
)
@pytest.mark.thorough
def test_every_state_of_the_source_is_met(
    folders: str, variant: str, name: str, request: pytest.FixtureRequest
) -> None:
    """In both dialects; at the end with events that arrived in another order."""
    scenario = Scenario(request.getfixturevalue(folders)(variant, name))
    events = scenario.events
    for at in scenario.earlier if variant != "canal-json-plain" else []:
        found = folded(events, at, scenario.timezone)
        assert_same_rows(found, scenario.state(at), variant=variant)
    shuffled = random.Random(1).sample(events, len(events))
    found = folded(shuffled, scenario.end, scenario.timezone)
    assert_same_rows(found, scenario.state(), variant=variant)


@pytest.mark.parametrize("order", ["as sent", "schemas first", "schemas last", "shuffled"])
@pytest.mark.parametrize("variant", ["simple-json", "simple-avro"])
@pytest.mark.thorough
def test_from_the_middle_the_rows_that_were_sent_are_there_and_no_others(
    variant: str, order: str, golden_dir: Callable[..., Path]
) -> None:
    scenario = Scenario(golden_dir(variant, "shop-middle"))
    events = scenario.events
    schemas = [item for item in events if isinstance(item[1], Bootstrap | DdlEvent)]
    rest = [item for item in events if not isinstance(item[1], Bootstrap | DdlEvent)]
    if order == "schemas first":
        events = schemas + rest
    elif order == "schemas last":
        events = rest + schemas
    elif order == "shuffled":
        random.Random(1).shuffle(events)
    wanted = rows_last_changed_here(scenario)
    end = scenario.meta["final_ts"]
    assert_same_rows(folded(events, end, scenario.timezone), wanted)


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.thorough
def test_every_option_of_the_encoders(option: str, golden_dir: Callable[..., Path]) -> None:
    scenario = Scenario(golden_dir("options", option))
    events = scenario.events
    found = folded(events, scenario.end, scenario.timezone)
    if scenario.option != "handle-key-only":
        assert_same_rows(found, scenario.state(), variant=scenario.variant)
        return
    assert_same_but_for_cut_rows(scenario, found)


def assert_same_but_for_cut_rows(
    scenario: Scenario, found: Rows
) -> dict[tuple[str, str], set[tuple[str | None, ...]]]:
    """Compare all keys, and the rows of which no change was sent as its key alone.

    It returns the keys of the others.
    """
    cut, wanted = keys_of_cut_rows(scenario, scenario.events), scenario.state()
    assert sum(map(len, cut.values())) > 0
    assert keys_of(scenario, found) == keys_of(scenario, wanted)
    assert_same_rows(
        other_rows(scenario, found, cut),
        other_rows(scenario, wanted, cut),
        variant=scenario.variant,
    )
    return cut


def key_of(scenario: Scenario, name: tuple[str, str], text: str) -> tuple[str | None, ...]:
    row = json.loads(text)
    (columns,) = (
        item["key"] for item in scenario.meta["tables"] if (item["database"], item["table"]) == name
    )
    return tuple(row[column] for column in columns)


def keys_of(scenario: Scenario, rows: Rows) -> dict[tuple[str, str], set[tuple[str | None, ...]]]:
    return {
        name: {key_of(scenario, name, text) for text in texts}
        for name, texts in rows.items()
        if texts
    }


def keys_of_cut_rows(
    scenario: Scenario, events: list[tuple[Coordinates, Event]]
) -> dict[tuple[str, str], set[tuple[str | None, ...]]]:
    """Return the keys of the rows of which some change was sent as its handle key alone."""
    places = {
        (place.partition, place.offset, place.index)
        for place, event in events
        if isinstance(event, RowChange) and event.handle_key_only
    }
    cut: dict[tuple[str, str], set[tuple[str | None, ...]]] = {}
    for event in scenario.truth:
        if (event["partition"], event["offset"], event["index"]) in places:
            image = {value["name"]: value["value"] for value in event["after"] or event["before"]}
            name = (event["database"], event["table"])
            cut.setdefault(name, set()).add(key_of(scenario, name, json.dumps(image)))
    return cut


def other_rows(
    scenario: Scenario, rows: Rows, cut: dict[tuple[str, str], set[tuple[str | None, ...]]]
) -> Rows:
    return {
        name: Counter(
            {
                text: count
                for text, count in texts.items()
                if key_of(scenario, name, text) not in cut.get(name, ())
            }
        )
        for name, texts in rows.items()
    }
