"""Backfills by name: which partitions are meant, which days a schedule asks for, who waits."""

import threading
import time
from datetime import UTC, date, datetime

import dagster as dg
import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake

from ticdc_assets.base.errors import BusyError, ConfigError
from ticdc_assets.base.names import joined_name
from ticdc_assets.cli import main
from ticdc_assets.config import Writer
from ticdc_assets.delta.lock import writer_lock
from ticdc_assets.log.cuts import Cut
from ticdc_assets.mirrors.standing import Outcome
from ticdc_assets.orchestration.changefeeds import all_definitions
from ticdc_assets.orchestration.instance import open_instance
from ticdc_assets.orchestration.jobs import redecode_schedule
from ticdc_assets.orchestration.run import _ranges, backfill_days, backfill_tables, days_between
from ticdc_assets.orchestration.steps import ChangefeedSteps, patient_lock
from ticdc_assets_tests.orchestration.small_shop import ODD, ORDERS, SmallShop, materializations
from ticdc_assets_tests.orchestration.test_end_to_end import asked
from ticdc_assets_tests.statuses import cut, mirror


def cut_of(*names: tuple[str, str]) -> Cut:
    return cut(mirrors=tuple(mirror(table, database=database) for database, table in names))


@pytest.mark.parametrize(
    ("days", "ranges"),
    [
        ([], []),
        ([2], [(2, 2)]),
        ([3, 2], [(2, 3)]),
        ([28, 30, 29, 3, 1], [(1, 1), (3, 3), (28, 30)]),
    ],
)
def test_a_run_takes_neighbours(days: list[int], ranges: list[tuple[int, int]]) -> None:
    assert [tuple(tags.values()) for tags in _ranges({date(2026, 4, day) for day in days})] == [
        (f"2026-04-{first:02d}", f"2026-04-{last:02d}") for first, last in ranges
    ]


def test_days_come_in_order() -> None:
    assert days_between(date(2026, 2, 27), date(2026, 3, 1)) == [
        date(2026, 2, 27),
        date(2026, 2, 28),
        date(2026, 3, 1),
    ]
    with pytest.raises(ConfigError, match="before they begin"):
        days_between(date(2026, 3, 1), date(2026, 2, 27))


def test_a_day_on_which_nothing_landed_is_told(
    shop: SmallShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TICDC_CHANGEFEEDS", str(shop.settings.path))
    monkeypatch.setenv("TICDC_LAKE", str(shop.settings.lake))
    done = CliRunner().invoke(main, ["backfill", "shop", "--day", "2026-11-20"])
    assert done.exit_code == 1
    assert "nothing landed on 2026-11-20" in done.output


@pytest.mark.dagster
def test_a_writer_waits_for_another_and_says_so_once(
    shop: SmallShop, steps: ChangefeedSteps
) -> None:
    said: list[str] = []
    held, released = threading.Event(), threading.Event()

    def hold() -> None:
        with writer_lock(shop.paths, Writer()):
            held.set()
            released.wait(5)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(5)
    began = time.monotonic()
    with (
        pytest.raises(BusyError, match="another sync"),
        patient_lock(steps, seconds=0.2, waiting=said.append),
    ):
        pass
    assert time.monotonic() - began >= 0.2
    assert len(said) == 1
    released.set()
    with patient_lock(steps, seconds=5, waiting=said.append):
        pass
    holder.join()


def landed(shop: SmallShop, *days: date) -> None:
    write_deltalake(
        str(shop.paths.raw_messages),
        pa.table({"landed_day": pa.array(days, pa.date32()), "offset": list(range(len(days)))}),
        partition_by=["landed_day"],
    )


def test_the_schedule_asks_for_the_day_before(shop: SmallShop, steps: ChangefeedSteps) -> None:
    landed(shop, date(2026, 11, 18), date(2026, 11, 20))
    repository = all_definitions(shop.settings).get_repository_def()
    schedule = redecode_schedule(steps)

    def evaluated(day: int) -> dg.RunRequest | dg.SkipReason:
        context = dg.build_schedule_context(
            scheduled_execution_time=datetime(2026, 11, day, 2, tzinfo=UTC),
            repository_def=repository,
        )
        found = schedule(context)
        assert isinstance(found, dg.RunRequest | dg.SkipReason)
        return found

    request = evaluated(21)
    assert isinstance(request, dg.RunRequest)
    assert (request.run_key, request.partition_key) == ("2026-11-20", "2026-11-20")
    assert request.tags["ticdc/changefeed"] == "shop"
    assert request.asset_selection == [steps.names.asset("change_log")], "the UI shows it as target"
    skipped = evaluated(20)
    assert isinstance(skipped, dg.SkipReason)
    assert skipped.skip_message == "nothing landed on 2026-11-19"


def test_partitions_begin_with_the_first_landing_day(shop: SmallShop) -> None:
    landed(shop, date(2026, 11, 18), date(2026, 11, 20))
    graph = all_definitions(shop.settings).resolve_asset_graph()
    partitions = graph.get(dg.AssetKey(["shop", "change_log"])).partitions_def
    assert isinstance(partitions, dg.DailyPartitionsDefinition)
    assert partitions.get_first_partition_key() == "2026-11-18"


@pytest.mark.dagster
def test_backfills_are_runs_of_the_same_assets(shop: SmallShop) -> None:
    shop.create_tables()
    shop.insert(ORDERS, 5)
    shop.insert(ODD, 2)
    log = dg.AssetKey(["shop", "change_log"])
    with open_instance(shop.settings) as instance:
        shop.sync(instance)
        today = datetime.now(UTC).date()
        (reported,) = materializations(instance, log)
        assert reported.partition == str(today)
        assert reported.metadata["appended"].value > 7

        (done,) = backfill_days(shop.settings, "shop", [today], instance=instance)
        assert (done.equal, done.applying) == (True, None)
        (run,) = instance.get_runs(limit=1)
        assert run.asset_selection == {log}
        again = materializations(instance, log)[-1]
        assert "nothing differs" in again.metadata["result"].value
        assert not asked(shop, instance).run_requests

        DeltaTable(str(shop.paths.change_log)).delete("kind = 'row'")
        orders = dg.AssetKey(["shop", "mirrors", *ORDERS])
        reported = len(materializations(instance, orders))
        (done,) = backfill_days(shop.settings, "shop", [today], instance=instance)
        (day,) = done.days
        assert day.rows - day.before == 7
        assert done.applying is not None
        assert done.applying.outcome is Outcome.PUBLISHED
        assert len(materializations(instance, orders)) == reported + 1
        assert not asked(shop, instance).run_requests

        _, folded = backfill_tables(
            shop.settings, "shop", ["shop.orders", joined_name(*ODD)], instance=instance
        )
        assert {(item.table, item.mode, item.rows) for item in folded} == {
            ("orders", "fold", 5),
            (ODD[1], "fold", 2),
        }
