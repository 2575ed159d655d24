"""More tables than are shown and told one by one, and how often a sync reads what it needs."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster import DagsterEventType

from ticdc_assets.config import InDagster
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.log import change_statistics, cuts, schema_tables
from ticdc_assets.log.cuts import require_cut
from ticdc_assets.mirrors import change_reading
from ticdc_assets.observe import status_reading
from ticdc_assets.orchestration import checks
from ticdc_assets.orchestration.changefeeds import definitions_of
from ticdc_assets.orchestration.mirror_assets import MirrorAssets, tick
from ticdc_assets.orchestration.run import RunReport
from ticdc_assets.orchestration.steps import steps_of
from ticdc_assets_tests.commands import Commands
from ticdc_assets_tests.orchestration.small_shop import ORDERS, SmallShop, skipped
from ticdc_assets_tests.statuses import NOW

pytestmark = pytest.mark.dagster

TABLES = [("shop", f"t{number}") for number in range(6)]


class Changing:
    """A shop of six tables, of which some rows are inserted and synced."""

    def __init__(self, shop: SmallShop, instance: dg.DagsterInstance, limits: InDagster) -> None:
        self.shop = shop
        self.instance = instance
        shop.set(dagster=limits)
        shop.create_tables(*TABLES)

    def sync(self, *tables: tuple[str, str]) -> RunReport:
        for table in tables:
            self.shop.insert(table, 3)
        return self.shop.sync(self.instance)

    def told(self, report: RunReport) -> Counter[str]:
        """Return how many events a run has of each asset, but for those of its own steps."""
        kinds = {DagsterEventType.ASSET_MATERIALIZATION, DagsterEventType.ASSET_OBSERVATION}
        events = [
            entry.dagster_event
            for entry in self.instance.all_logs(report.run_id, of_type=kinds)
            if entry.dagster_event is not None
        ]
        keys = [event.asset_key for event in events if event.asset_key is not None]
        return Counter("/".join(key.path[1:]) for key in keys)

    def summary(self) -> Any:
        event = self.instance.get_latest_materialization_event(self.shop.names.asset("mirrors"))
        assert event is not None
        return event.asset_materialization


@pytest.fixture
def few(shop: SmallShop, instance: dg.DagsterInstance) -> Changing:
    """One of which four tables may be assets, so that none is."""
    return Changing(shop, instance, InDagster(table_assets=4))


def test_more_tables_than_the_limit_share_an_asset(
    few: Changing, instance: dg.DagsterInstance
) -> None:
    told = few.told(few.sync(*TABLES))
    assert told["mirrors"] == 1, "one event for all"
    assert not [name for name in told if name.startswith("mirrors/")]
    summary = few.summary()
    assert summary.metadata["tables"].value == len(TABLES)
    assert summary.metadata["rows"].value == 3 * len(TABLES)
    assert summary.metadata["names"].value == ", ".join(".".join(table) for table in TABLES)
    assert summary.metadata["names_not_listed"].value == 0

    told = few.told(few.sync(TABLES[1], TABLES[4]))
    assert told["mirrors"] == 1
    assert few.summary().metadata["names"].value == "shop.t1, shop.t4"

    steps = steps_of(few.shop.settings, few.shop.changefeed)
    shown = MirrorAssets.of(steps)
    assert (shown.mirrors, shown.left_out) == ((), len(TABLES))
    graph = definitions_of([steps]).resolve_asset_graph()
    shared = graph.get(few.shop.names.asset("mirrors"))
    assert shared.is_executable
    assert "Copies of 6 upstream tables" in (shared.description or "")
    assert "more than 4" in (shared.description or "")
    assert not [key for key in graph.get_all_asset_keys() if len(key.path) == 4]
    with dg.build_sensor_context(instance=instance) as context:
        assert "reload" not in skipped(tick(context, shown, NOW))

    third = few.sync()
    assert third.applying.cut is not None
    assert few.told(third)["mirrors"] == 0, "nothing changed"


def test_up_to_the_limit_a_sync_materialises_what_changed(
    shop: SmallShop, instance: dg.DagsterInstance
) -> None:
    many = Changing(shop, instance, InDagster(table_assets=6))
    told = many.told(many.sync(*TABLES))
    assert told["mirrors"] == 0
    assert len([name for name in told if name.startswith("mirrors/")]) == len(TABLES)
    told = many.told(many.sync(TABLES[2]))
    assert [name for name in told if name.startswith("mirrors/")] == ["mirrors/shop/t2"]


READS: tuple[tuple[Any, str], ...] = (
    (checks, "read_status"),
    (change_statistics, "_read_statistics"),
    (cuts, "_read_newest"),
    (schema_tables, "read_history"),
    (schema_tables, "complete"),
    (status_reading, "judge"),
)


def test_a_sync_of_one_table_reads_each_small_table_once_and_lists_all(
    few: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    few.sync(*TABLES)
    counts: Counter[str] = Counter()

    def counted(module: Any, name: str) -> None:
        read: Callable[..., Any] = getattr(module, name)

        def call(*arguments: Any, **named: Any) -> Any:
            counts[name] += 1
            return read(*arguments, **named)

        monkeypatch.setattr(module, name, call)

    for module, name in READS:
        counted(module, name)
    report = few.sync(TABLES[3])
    assert counts["read_status"] == counts["judge"] == 1, "one status for all checks"
    assert counts["_read_statistics"] == 1
    assert counts["_read_newest"] == 2, "the last cut and the new one"
    assert counts["read_history"] == counts["complete"] == 1
    assert all(check.passed for check in report.checks)

    # It lists each mirror, and adds up the rows of all.
    key = few.shop.names.asset("apply_changes")
    event = few.instance.get_latest_materialization_event(key)
    assert event is not None
    assert event.asset_materialization is not None
    metadata: Any = event.asset_materialization.metadata
    listed = {line.data["table"]: line.data["mode"] for line in metadata["mirrors"].records}
    assert len(listed) == len(TABLES)
    assert [table for table, mode in listed.items() if mode != "carried"] == ["t3"]
    assert metadata["rows"].value == 3 * len(TABLES) + 3


def test_changes_read_at_once_are_those_read_one_by_one(
    shop: SmallShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.create_tables()
    shop.upstream.create_database("crm")
    for number in range(4):
        name = ("crm" if number % 2 else "shop", f"t{number}")
        shop.upstream.create_table(
            name, (column("id", "int", nullable=False),), primary_key=("id",)
        )
        with shop.upstream.transaction() as transaction:
            for row in range(number):
                transaction.insert(name, {"id": str(row)})
    shop.insert(ORDERS, 5)
    shop.send()
    gathered: list[int] = []
    whole = change_reading.ChangeReader._gathered_of

    def noted(*arguments: Any) -> Any:
        found = whole(*arguments)
        gathered.append(0 if found is None else len(found.by_name))
        return found

    monkeypatch.setattr(change_reading.ChangeReader, "_gathered_of", noted)
    commands = Commands(shop.settings.path.parent)
    dumps: list[str] = []
    for most in (change_reading.GATHERED_ROWS, -1):
        monkeypatch.setattr(change_reading, "GATHERED_ROWS", most)
        shutil.rmtree(shop.settings.lake, ignore_errors=True)
        gathered.clear()
        commands.done("sync", "shop")
        assert max(gathered) == (6 if most > 0 else 0)
        dumps.append(commands.done("dump", "shop"))
    assert dumps[0] == dumps[1]
    assert len(dumps[0].splitlines()) == 5 + 1 + 2 + 3


def test_a_sync_that_finds_nothing_makes_no_run(shop: SmallShop, tmp_path: Path) -> None:
    shop.create_tables()
    shop.insert(ORDERS, 5)
    shop.send()
    commands = Commands(tmp_path)
    commands.done("sync", "shop")
    kept = tmp_path / "dagster_home" / "ticdc_assets" / "shop"
    assert kept.exists()

    def runs() -> int:
        with dg.DagsterInstance.from_config(str(tmp_path / "dagster_home")) as instance:
            return instance.get_runs_count()

    assert runs() == 1
    number = require_cut(shop.paths).number
    said = commands.done("sync", "shop")
    assert "landed 0 records, 0 wait in the source" in said
    assert "decoded nothing; quarantined 0 records" in said
    assert "and nothing new was landed" in said
    assert (runs(), require_cut(shop.paths).number) == (1, number)

    # What was sent meanwhile, what is not known of an instance, and what was asked for is done.
    shop.insert(ORDERS, 1)
    shop.send()
    assert "1 row" in commands.done("sync", "shop")
    assert runs() == 2
    kept.unlink()
    commands.done("sync", "shop")
    assert runs() == 3
    commands.done("sync", "shop", "--max-records", "10")
    assert runs() == 4
    commands.done("sync", "shop")
    assert runs() == 4
    orders = require_cut(shop.paths).mirror(*ORDERS)
    assert orders is not None
    for file in orders.path(shop.paths).glob("*.parquet"):
        file.unlink()
    # A mirror that is not read is not looked at: whoever reads it finds that it is damaged.
    assert "unchanged" in commands.done("sync", "shop")
    assert runs() == 4
