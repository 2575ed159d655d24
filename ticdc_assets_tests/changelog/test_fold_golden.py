"""The reference fold, over what TiCDC's real encoders sent, against what SELECT gave."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from ticdc_assets.changelog.fold import fold
from ticdc_assets.events import Bootstrap, DdlEvent, Event
from ticdc_assets.registry.history import Coordinates
from ticdc_assets_tests.golden import (
    FORMATS,
    SCENARIOS,
    Rows,
    Scenario,
    assert_same_rows,
    comparable,
    rows_last_changed_here,
)


def folded(events: list[tuple[Coordinates, Event]], at: int, timezone: str) -> Rows:
    _, tables = fold(events, at, timezone)
    rows: Rows = {}
    for name, table in tables.items():
        for row in table.listed():
            shown = {
                column: value for column, value in row.items() if column not in table.plan.generated
            }
            rows.setdefault(name, Counter())[comparable(shown)] += 1
    return rows


@pytest.mark.parametrize(("variant", "name"), SCENARIOS)
def test_every_state_of_the_source_is_met(
    variant: str, name: str, golden_dir: Callable[..., Path]
) -> None:
    scenario = Scenario(golden_dir(variant, name))
    events = scenario.events
    for at in scenario.earlier if variant != "canal-json-plain" else []:
        found = folded(events, at, scenario.timezone)
        assert_same_rows(found, scenario.state(at), at, variant=variant)
    found = folded(events, scenario.end, scenario.timezone)
    assert_same_rows(found, scenario.state(), variant=variant)


@pytest.mark.parametrize("variant", FORMATS)
def test_arrival_order_does_not_matter(variant: str, golden_dir: Callable[..., Path]) -> None:
    scenario = Scenario(golden_dir(variant, "shop"))
    events = scenario.events
    random.Random(1).shuffle(events)
    found = folded(events, scenario.end, scenario.timezone)
    assert_same_rows(found, scenario.state(), variant=variant)


@pytest.mark.parametrize("order", ["as sent", "schemas first", "schemas last", "shuffled"])
@pytest.mark.parametrize("variant", ["simple-json", "simple-avro"])
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
