"""Every folder of golden messages is synced by the command in a process of its own.

So nothing of Spark runs before the sync asks for it: what has to start it does, and what may do
without it does. `make test-nightly` runs all of them, `make test` some that go different ways, and
small captures in its own process, without Dagster.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ticdc_assets.log.cuts import require_cut
from ticdc_assets.log.quarantine import read_quarantine
from ticdc_assets.repair.seeding import seed
from ticdc_assets.repair.verifying import verify
from ticdc_assets.spark.session import LazySession
from ticdc_assets_tests.changelog.test_fold_golden import assert_same_but_for_cut_rows
from ticdc_assets_tests.commands import Commands
from ticdc_assets_tests.golden import (
    ALL_FOLDERS,
    CASES,
    CORRUPT,
    MIDDLES,
    NEW_SCENARIOS,
    Case,
    Scenario,
    assert_same_rows,
    folded,
    rows_last_changed_here,
)
from ticdc_assets_tests.lake.feeds import Feed

pytestmark = pytest.mark.spark

OFTEN = {("options", "open-force-replicate")}
"""It has a table without a key."""

NEW_OFTEN = {("simple-json", "shop")}
"""It has renames without the schema before."""


def test_those_that_run_often_are_there() -> None:
    assert set(ALL_FOLDERS) >= OFTEN


@pytest.mark.parametrize(
    "folder",
    [
        pytest.param(folder, id="-".join(folder), marks=[] if folder in OFTEN else pytest.mark.slow)
        for folder in ALL_FOLDERS
    ],
)
def test_the_mirrors_equal_the_truth(
    folder: tuple[str, str], tmp_path: Path, golden_dir: Callable[..., Path]
) -> None:
    assert_truth(folder, Scenario(golden_dir(*folder)), Commands(tmp_path))


@pytest.mark.parametrize(
    ("variant", "name"),
    [
        pytest.param(*scenario, marks=[] if scenario in NEW_OFTEN else pytest.mark.slow)
        for scenario in NEW_SCENARIOS
    ],
)
def test_the_mirrors_of_the_new_dialect_equal_the_truth(
    variant: str, name: str, tmp_path: Path, golden_new_dir: Callable[..., Path]
) -> None:
    scenario = Scenario(golden_new_dir(variant, name))
    assert_truth((variant, name), scenario, Commands(tmp_path))


@pytest.mark.parametrize("name", CASES)
def test_small_captures_come_out_right(
    name: str, tmp_path: Path, cases_dir: Callable[..., Path]
) -> None:
    case = Case(cases_dir(name))
    feed = Feed.of(
        *(LazySession(), tmp_path),
        capture=case.capture,
        timezone=case.timezone,
        wire_format=case.wire_format,
    )
    with feed.lake.writing():
        if case.export is not None:
            seed(feed.lake, str(case.export))
        feed.sync()
    assert verify(feed.lake).equal
    assert read_quarantine(feed.paths) == []
    assert_same_rows(feed.rows(), case.wanted)
    assert (feed.cut.failed, feed.cut.held) == ((), ())


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_small_captures_come_out_right_by_programs(
    name: str, tmp_path: Path, cases_dir: Callable[..., Path]
) -> None:
    case, commands = Case(cases_dir(name)), Commands(tmp_path)
    commands.add_capture("feed", case.capture, case.timezone, format=str(case.wire_format))
    if case.export is not None:
        commands.ran("seed", "feed", case.export)
    for command in ("sync", "status", "tables", "verify"):
        commands.ran(command, "feed")
    assert json.loads(commands.ran("quarantine", "feed", "--json")) == []
    assert_same_rows(commands.rows("feed"), case.wanted)
    cut = require_cut(commands.paths("feed"))
    assert (cut.failed, cut.held, cut.unaccounted) == ((), (), ())


def assert_truth(folder: tuple[str, str], scenario: Scenario, commands: Commands) -> None:
    """Sync a folder by the command, and compare all that came of it with the truth."""
    commands.add_scenario("feed", scenario)
    output = commands.ran("sync", "feed")
    cut = require_cut(commands.paths("feed"))
    assert "feed: published: cut 1 at " in output
    assert (cut.failed, cut.unaccounted) == ((), ())
    found = commands.rows("feed")
    waiting = json.loads(commands.done("quarantine", "feed", "--json"))
    if folder in CORRUPT:
        damaged = json.loads((scenario.folder / "damaged.json").read_text(encoding="utf-8"))
        places = {(item["partition"], item["offset"]) for item in damaged}
        assert {(item["partition"], item["offset"]) for item in waiting} <= places
        assert found == folded(scenario.events, cut.tso, scenario.timezone)
        return
    assert waiting == []
    assert cut.tso == scenario.end
    if scenario.option == "handle-key-only":
        assert_same_but_for_cut_rows(scenario, found)
        return
    wanted = rows_last_changed_here(scenario) if folder in MIDDLES else scenario.state()
    assert_same_rows(found, wanted, variant=scenario.variant)


def test_all_small_captures_are_here(cases_dir: Callable[..., Path]) -> None:
    assert {path.parent.name for path in cases_dir().glob("*/case.json")} == set(CASES)
