"""The reference of histories: its newest versions are the fold, and it is right at any TSO."""

import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from ticdc_assets.changelog.carrying import CarriedRow, keeping_carry
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.registry.evolution import CanonicalRow, diff
from ticdc_assets_tests.golden import Scenario, comparable
from ticdc_assets_tests.reference.fold import fold
from ticdc_assets_tests.reference.history_fold import RowVersion, fold_history


def at(versions: list[RowVersion], tso: int) -> Counter[str]:
    return Counter(
        comparable(item.row)
        for item in versions
        if item.valid_from <= tso and (item.valid_to is None or tso < item.valid_to)
    )


@pytest.mark.parametrize(
    ("variant", "name"),
    [
        ("simple-json", "types"),
        ("simple-json", "shop"),
        ("open", "shop-replay"),
        ("canal-json-plain", "types"),
    ],
)
@pytest.mark.thorough
def test_versions_are_the_fold_at_every_cut(
    variant: str, name: str, golden_dir: Callable[..., Path]
) -> None:
    """Of tables whose columns were the same then; of the others as many rows as there were."""
    scenario = Scenario(golden_dir(variant, name))
    events = scenario.events
    histories = fold_history(events, scenario.end, scenario.timezone)
    plan, _ = fold(events, scenario.end, scenario.timezone)
    stamps = sorted({event.commit_ts for _, event in events if hasattr(event, "commit_ts")})
    chosen = random.Random(7).sample(stamps, 1)
    compared = 0
    for tso in (scenario.end, *(item + later for item in chosen for later in (0, 1))):
        then, tables = fold(events, tso, scenario.timezone)
        before = {mirror.mirror_id: mirror for mirror in then.mirrors}
        for mirror in plan.mirrors:
            older = before.get(mirror.mirror_id)
            if older is None:
                continue
            found = at(histories[mirror.name], tso)
            rows = Counter(map(comparable, tables[older.name].listed()))
            if older.schema.columns == mirror.schema.columns:
                assert found == rows, (tso, mirror.name)
                compared += 1
            else:
                assert found.total() == rows.total(), (tso, mirror.name)
    assert compared


def test_versions_of_a_row_follow_each_other(golden_dir: Callable[..., Path]) -> None:
    """Each ends where or before the next one begins, and says why; only the last is current."""
    scenario = Scenario(golden_dir("simple-json", "shop"))
    histories = fold_history(scenario.events, scenario.end, scenario.timezone)
    plan, _ = fold(scenario.events, scenario.end, scenario.timezone)
    ended_by: Counter[str | None] = Counter()
    for mirror in plan.mirrors:
        rows: dict[str, list[RowVersion]] = {}
        for version in histories[mirror.name]:
            rows.setdefault(version.key, []).append(version)
            ended_by[version.ended_by] += 1
            assert (version.valid_to is None) == (version.ended_by is None)
            assert version.valid_to is None or version.valid_from < version.valid_to
        for versions in rows.values() if mirror.schema.handle_key else ():
            for earlier, later in pairwise(versions):
                assert earlier.valid_to is not None
                assert earlier.valid_to <= later.valid_from
                assert (earlier.ended_by == "update") == (earlier.valid_to == later.valid_from)
    assert ended_by.keys() >= {None, "update", "delete", "truncate", "truncate partition"}


def table(version: int, kind: str, name: str = "v") -> TableSchema:
    columns = (column("id", "int"), column(name, kind))
    return TableSchema(
        database="d", table="t", table_id=1, version=version, columns=columns, indexes=()
    )


def test_a_lost_value_keeps_its_text_through_later_steps() -> None:
    old, narrow, wide = table(1, "varchar(20)"), table(2, "int"), table(3, "bigint")
    carry = keeping_carry([diff(old, narrow), diff(narrow, wide)], "UTC")
    cases: list[tuple[str | None, CanonicalRow]] = [("12", {}), ("x", {"v": "x"}), (None, {})]
    for text, lost in cases:
        row = {"id": "1", "v": text}
        assert carry(CarriedRow(row=row)) == CarriedRow(row=row, texts=lost)
