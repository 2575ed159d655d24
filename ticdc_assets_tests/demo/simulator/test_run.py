import random
import time
from collections.abc import Callable
from datetime import datetime

import pytest

from ticdc_assets.base.errors import StatementError
from ticdc_assets.demo.simulator.changefeed import StandInChangefeed
from ticdc_assets.demo.simulator.clock import TsoClock, wall_clock_ms
from ticdc_assets.demo.simulator.run import SimulatorRun, live_changefeed
from ticdc_assets.demo.simulator.shop import ShopWorkload
from ticdc_assets.demo.simulator.shop_values import plain_value
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets_tests.demo.simulator.variants import SIMPLE, global_watermark


def live_run(
    stored: list[CaptureRecord],
    *,
    max_transactions: int = 60,
    max_seconds: float = 60.0,
    pace: float = 10_000.0,
    on_progress: Callable[[SimulatorRun], None] | None = None,
) -> SimulatorRun:
    upstream = Upstream(clock=TsoClock(now_ms=wall_clock_ms))
    return SimulatorRun(
        workload=ShopWorkload(upstream, 1),
        changefeed=StandInChangefeed(upstream, "shop"),
        sink=stored.extend,
        max_transactions=max_transactions,
        max_seconds=max_seconds,
        transactions_per_second=pace,
        on_progress=on_progress,
    )


@pytest.mark.parametrize("hour", [1, 12])
def test_times_are_of_today_and_differ_also_soon_after_midnight(hour: int) -> None:
    rng, column = random.Random(1), ColumnSchema(name="created", mysql_type="datetime")
    now = datetime(2026, 12, 1, hour)  # noqa: DTZ001  # of the shop's zone
    texts = {plain_value(rng, column, now) for _ in range(9)}
    assert len(texts) == 9
    assert {text[:10] for text in texts} == {"2026-12-01"}


def test_a_run_leaves_records_truth_and_a_last_watermark() -> None:
    stored: list[CaptureRecord] = []
    seen: list[tuple[int, bool]] = []
    run = live_run(stored, on_progress=lambda run: seen.append((run.records, run.finished)))
    run.run()
    assert global_watermark(stored, range(4)) == run.changefeed.watermark_ts
    SIMPLE.require_truth(run.changefeed, stored)
    assert seen == sorted(seen)
    assert [finished for _, finished in seen] == [False] * (len(seen) - 1) + [True]
    assert seen[-1] == (len(stored), True)


def test_a_run_in_a_thread_keeps_its_pace_and_ends_with_its_time() -> None:
    stored: list[CaptureRecord] = []
    run = live_run(stored, max_transactions=1_000_000, max_seconds=0.6, pace=50.0)
    run.start()
    with pytest.raises(TimeoutError):
        run.join(timeout_seconds=0.01)
    run.join(timeout_seconds=10)
    assert run.finished
    assert run.workload.transactions < 1_000
    SIMPLE.require_truth(run.changefeed, stored)


def broken(records: list[CaptureRecord]) -> None:
    raise OSError(f"no room for {len(records)}")


def test_an_error_of_the_sink_reaches_whoever_waits() -> None:
    run = live_run([], max_transactions=1)
    run.sink = broken
    run.start()
    with pytest.raises(OSError, match="no room"):
        run.join(timeout_seconds=10)


def test_a_live_changefeed_that_fails_says_so() -> None:
    run = live_run([], max_transactions=1)
    run.run()
    run.sink = broken
    said: list[str] = []
    with live_changefeed(run, said.append) as execute:
        deadline = time.monotonic() + 10
        while not said and time.monotonic() < deadline:
            time.sleep(0.05)
        assert said == ["no room for 4"]
        with pytest.raises(StatementError, match="the changefeed has ended: no room"):
            execute("DELETE FROM shop.orders")
