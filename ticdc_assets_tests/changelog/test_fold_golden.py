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


@pytest.mark.parametrize("name", ["types", "shop", "shop-replay", "shop-ddlwm"])
def test_every_state_of_the_source_is_met(name: str, golden_dir: Callable[..., Path]) -> None:
    scenario = Scenario(golden_dir("simple-json", name))
    events = scenario.events
    for at in scenario.earlier:
        assert_same_rows(folded(events, at, scenario.timezone), scenario.state(at), at)
    end = scenario.meta["final_ts"]
    assert_same_rows(folded(events, end, scenario.timezone), scenario.state())


@pytest.mark.parametrize("seed", range(3))
def test_arrival_order_does_not_matter(seed: int, golden_dir: Callable[..., Path]) -> None:
    scenario = Scenario(golden_dir("simple-json", "shop"))
    events = scenario.events
    random.Random(seed).shuffle(events)
    end = scenario.meta["final_ts"]
    assert_same_rows(folded(events, end, scenario.timezone), scenario.state())


@pytest.mark.parametrize("order", ["as sent", "schemas first", "schemas last", "shuffled"])
def test_from_the_middle_the_rows_that_were_sent_are_there_and_no_others(
    order: str, golden_dir: Callable[..., Path]
) -> None:
    scenario = Scenario(golden_dir("simple-json", "shop-middle"))
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
