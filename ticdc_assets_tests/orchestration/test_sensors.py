"""The sensor: what it sees, what it says, when it asks."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import dagster as dg
import pytest
from dagster import DagsterRun, DagsterRunStatus
from dagster._core.remote_origin import (
    InProcessCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from ticdc_assets.base.errors import StoreUnavailableError
from ticdc_assets.changelog.progress import GlobalWatermark
from ticdc_assets.config import Writer
from ticdc_assets.delta.lake import Lake
from ticdc_assets.delta.lease import this_process
from ticdc_assets.delta.lock import nobody_at_work, seen_at_work
from ticdc_assets.log.cuts import Rewind
from ticdc_assets.log.landing import land
from ticdc_assets.log.sources import accept
from ticdc_assets.model import tso
from ticdc_assets.observe.status_reading import read_status, see_status
from ticdc_assets.observe.verdicts import Level
from ticdc_assets.orchestration import sensors
from ticdc_assets.orchestration.active_runs import (
    Worker,
    active_runs,
    end_orphans,
    name_worker,
    worker_of,
)
from ticdc_assets.orchestration.changefeeds import definitions_of
from ticdc_assets.orchestration.exports import export_schedules
from ticdc_assets.orchestration.jobs import redecode_schedule
from ticdc_assets.orchestration.metadata import LOOKED_AT_BATCH
from ticdc_assets.orchestration.partitions import FeedNames, JobKind
from ticdc_assets.orchestration.sensors import (
    SensorCursor,
    SensorState,
    applied_batch,
    changed_verdicts,
    read_cursor,
    sensor_state,
    tick,
)
from ticdc_assets.orchestration.steps import ChangefeedSteps
from ticdc_assets.orchestration.verdicts import CheckVerdict
from ticdc_assets.spark.session import LazySession
from ticdc_assets_tests.orchestration.small_shop import ORDERS, SmallShop, plan, recorded, skipped
from ticdc_assets_tests.statuses import NOW, cut, held, offsets, publish_with_tables, status

NAMES = FeedNames(changefeed="shop")
ask = sensors.requested_run
APPLIED = tso.from_datetime(NOW - timedelta(seconds=30))


def watermark(ts: int | None, *waiting: int) -> GlobalWatermark:
    places = tuple(("shop", partition) for partition in waiting)
    return GlobalWatermark(watermark_ts=ts, waiting=places, slowest=None)


def changed(state: SensorState, **changes: Any) -> SensorState:
    return replace(state, status=replace(state.status, **changes))


IDLE = SensorState(
    status=status(
        30,
        cut_changes={"number": 2},
        partitions=(offsets(0, 10, 10), offsets(1, 7, 7)),
        watermark=watermark(APPLIED),
    ),
    known=frozenset({("shop", 0), ("shop", 1)}),
    applied_batch=3,
)
BATCHES = dict.fromkeys(("landed_batch", "decoded_batch", "log_batch"), 0)
EMPTY = SensorState(
    status=status(None, partitions=(), watermark=watermark(None), **BATCHES),
    known=frozenset(),
    applied_batch=0,
)


@pytest.mark.parametrize(
    ("changes", "reasons"),
    [
        ({}, []),
        ({"partitions": (offsets(0, 12, 10), offsets(1, 8, 7))}, ["3 records wait"]),
        # Records that expired do not wait; that some are missing is a gap.
        ({"partitions": (offsets(0, 20, 10, 15), offsets(1, 7, 7))}, ["5 records wait"]),
        ({"partitions": (*IDLE.status.partitions, offsets(2, 0, 0))}, ["1 new partition (shop/2)"]),
        ({"landed_batch": 5}, ["2 landed batches wait"]),
        ({"log_batch": 4}, ["batch 4 of the change log was not applied yet"]),
        ({"watermark": watermark(APPLIED + 1)}, ["the watermark is beyond the newest cut"]),
        # A watermark behind the cut, or none: nothing could be applied.
        ({"watermark": watermark(APPLIED - 1)}, []),
        ({"watermark": watermark(None, 1)}, []),
        # Before the first cut any watermark is news.
        ({"cut": None}, ["the watermark is beyond the newest cut"]),
    ],
)
def test_what_a_sync_would_do(changes: dict[str, Any], reasons: list[str]) -> None:
    assert changed(IDLE, **changes).reasons() == reasons


@pytest.mark.parametrize(
    ("state", "numbers"),
    [
        (
            IDLE,
            "landed 17 of 17 records in 2 partitions, 0 wait; the global watermark is 2026-11-21 "
            f"11:59:30 UTC (TSO {APPLIED}); applied 2026-11-21 11:59:30 UTC (TSO {APPLIED}), 30.0 "
            "s ago",
        ),
        (
            EMPTY,
            "landed 0 of 0 records in 0 partitions, 0 wait; nothing has landed; nothing is applied "
            "yet",
        ),
        (
            changed(
                EMPTY,
                partitions=(offsets(0, 110, 105, 100), offsets(1, 3, 3)),
                watermark=watermark(None, 0, 1),
            ),
            "landed 8 of 13 records in 2 partitions, 5 wait; no watermark has arrived from shop/0, "
            "shop/1; nothing is applied yet",
        ),
        (
            changed(EMPTY, partitions=(offsets(0, 3_000, 1_500),)),
            "landed 1,500 of 3,000 records in 1 partition, 1,500 wait; nothing has landed; "
            "nothing is applied yet",
        ),
    ],
)
def test_numbers_are_in_every_answer(
    state: SensorState, numbers: str, instance: dg.DagsterInstance
) -> None:
    assert state.numbers(NOW) == numbers
    if not state.reasons():
        assert ask(instance, NAMES, state, NOW) == f"nothing to do: {numbers}"


BUSY = changed(IDLE, partitions=(offsets(0, 12, 10), offsets(1, 7, 7)))


def run_of(
    instance: dg.DagsterInstance,
    shop: SmallShop,
    status: DagsterRunStatus = DagsterRunStatus.STARTED,
    *,
    tags: dict[str, str] | None = None,
) -> DagsterRun:
    """Put a run into the instance as the daemon would have."""
    location = InProcessCodeLocationOrigin(
        loadable_target_origin=LoadableTargetOrigin(module_name="ticdc_assets.definitions"),
        location_name="ticdc_assets",
    )
    return instance.create_run_for_job(
        job_def=shop.definitions.resolve_job_def("shop_sync"),
        status=status,
        tags=tags or {},
        remote_job_origin=RemoteJobOrigin(
            RemoteRepositoryOrigin(location, "__repository__"), "shop_sync"
        ),
    )


def test_one_state_of_things_asks_once(instance: dg.DagsterInstance, shop: SmallShop) -> None:
    first = ask(instance, NAMES, BUSY, NOW)
    assert isinstance(first, dg.RunRequest)
    assert first.tags["ticdc/changefeed"] == "shop"
    again = ask(instance, NAMES, BUSY, NOW + timedelta(minutes=1))
    assert isinstance(again, dg.RunRequest)
    assert first.run_key == again.run_key
    # A run came and went and the records still wait: that may be asked for again.
    run_of(instance, shop, DagsterRunStatus.SUCCESS)
    after = ask(instance, NAMES, BUSY, NOW)
    assert isinstance(after, dg.RunRequest)
    assert after.run_key != first.run_key


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (DagsterRunStatus.NOT_STARTED, "queued"),
        (DagsterRunStatus.QUEUED, "queued"),
        (DagsterRunStatus.STARTING, "starting"),
        (DagsterRunStatus.STARTED, "at work"),
        (DagsterRunStatus.CANCELING, "being cancelled"),
    ],
)
@pytest.mark.thorough
def test_nothing_is_asked_for_while_a_run_is_active(
    instance: dg.DagsterInstance, shop: SmallShop, status: DagsterRunStatus, word: str
) -> None:
    run = run_of(instance, shop, status)
    assert ask(instance, NAMES, BUSY, NOW) == f"run {run.run_id} is {word}; {BUSY.numbers(NOW)}"


def test_a_run_that_the_ui_started_counts(instance: dg.DagsterInstance, shop: SmallShop) -> None:
    job = shop.definitions.resolve_implicit_global_asset_job_def()
    run = instance.create_run_for_job(
        job_def=job,
        status=DagsterRunStatus.STARTED,
        asset_selection=frozenset({NAMES.asset("apply_changes")}),
    )
    assert str(ask(instance, NAMES, BUSY, NOW)).startswith(f"run {run.run_id} is at work")
    assert isinstance(ask(instance, FeedNames(changefeed="crm"), BUSY, NOW), dg.RunRequest)


@pytest.mark.thorough
def test_runs_that_fail_are_tried_again_later_and_later(
    instance: dg.DagsterInstance, shop: SmallShop
) -> None:
    keys: set[str | None] = set()
    for pause in (60, 120, 240, 480, 960, 1800, 1800):
        run = run_of(instance, shop)
        instance.report_run_failed(run)
        record = instance.get_run_record_by_id(run.run_id)
        assert record is not None
        assert record.end_time is not None
        ended = datetime.fromtimestamp(record.end_time, UTC)
        early = ask(instance, NAMES, BUSY, ended + timedelta(seconds=pause - 1))
        assert isinstance(early, str)
        assert early.startswith(f"run {run.run_id} failed (")
        assert BUSY.numbers(ended + timedelta(seconds=pause - 1)) in early
        request = ask(instance, NAMES, BUSY, ended + timedelta(seconds=pause + 1))
        assert isinstance(request, dg.RunRequest)
        keys.add(request.run_key)
    assert len(keys) == 7, "a key that was used would be ignored"
    run_of(instance, shop, DagsterRunStatus.SUCCESS)
    assert isinstance(ask(instance, NAMES, BUSY, NOW), dg.RunRequest)


# Runs whose process is gone ---------------------------------------------------------------------


def worked_on(
    instance: dg.DagsterInstance, run: dg.DagsterRun, lock: str = "", **process: Any
) -> dg.DagsterRun:
    """Tag a run with the process that works on it: this one, but for what is given of it."""
    tag = Worker(run.run_id, replace(this_process(), **process), lock).tag
    instance.add_run_tags(run.run_id, tag)
    return recorded(instance, run.run_id)


def ended_process() -> int:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


def test_a_run_whose_process_is_gone_does_not_stay_active(
    instance: dg.DagsterInstance, shop: SmallShop
) -> None:
    ended = {"process": ended_process(), "started": ""}
    gone = worked_on(instance, run_of(instance, shop), **ended)
    alive = worked_on(instance, run_of(instance, shop))
    elsewhere = worked_on(instance, run_of(instance, shop), host="some.other.host")
    untagged = run_of(instance, shop)
    # Started again by Dagster, with the tags of the run whose process died.
    again = run_of(instance, shop, DagsterRunStatus.QUEUED, tags=gone.tags)
    cancelled = worked_on(instance, run_of(instance, shop), **ended)
    instance.report_run_canceling(cancelled)
    assert set(end_orphans(instance, NAMES, NOW)) == {gone.run_id, cancelled.run_id}
    assert recorded(instance, cancelled.run_id).status is DagsterRunStatus.CANCELED
    runs = (gone, alive, elsewhere, untagged)
    statuses = [recorded(instance, run.run_id).status for run in runs]
    assert statuses == [DagsterRunStatus.FAILURE, *[DagsterRunStatus.STARTED] * 3]
    assert end_orphans(instance, NAMES, NOW) == []
    assert recorded(instance, again.run_id).status is DagsterRunStatus.QUEUED


@pytest.mark.parametrize("kind", ["verify", "report", "diff"])
def test_a_run_that_only_reads_does_not_keep_its_place_for_ever(
    instance: dg.DagsterInstance, shop: SmallShop, kind: JobKind
) -> None:
    op = {"diff": {NAMES.op("mirror_equals_source"): {"config": {"folder": "none"}}}}
    job = shop.definitions.resolve_job_def(NAMES.job(kind))
    done = job.execute_in_process(
        instance=instance, raise_on_error=False, run_config={"ops": op.get(kind, {})}
    )
    assert worker_of(recorded(instance, done.run_id)) is not None, "it says who works on it"
    run = instance.create_run_for_job(job, status=DagsterRunStatus.STARTED)
    worked_on(instance, run, process=ended_process(), started="")
    assert active_runs(instance, NAMES) == [], "no sync waits for it"
    assert end_orphans(instance, FeedNames(changefeed="crm"), NOW) == []
    assert end_orphans(instance, NAMES, NOW) == [run.run_id]


def test_a_run_outlives_the_processes_of_its_steps(
    instance: dg.DagsterInstance, shop: SmallShop
) -> None:
    """A user's job may run our assets with an executor that has a process for each step."""
    run_id = run_of(instance, shop).run_id
    for executor, number in (
        (dg.in_process_executor, os.getpid()),
        (dg.multiprocess_executor, os.getppid()),
    ):
        run = recorded(instance, run_id)
        job = SimpleNamespace(executor_def=executor)
        context = SimpleNamespace(run=run, instance=instance, job_def=job)
        name_worker(cast(Any, context), shop.paths, shop.changefeed.writer)
        worker = worker_of(recorded(instance, run_id))
        assert worker is not None
        assert worker.process.process == number, executor.name


def test_a_process_id_that_was_given_again_is_another_process() -> None:
    this = this_process()
    assert not Worker("", this).is_gone
    assert Worker("", replace(this, started=f"{this.started}1")).is_gone
    assert not Worker("", replace(this, host="another", started="1")).is_gone


def test_a_run_of_another_container_is_ended_once_its_process_is_no_more(
    instance: dg.DagsterInstance, shop: SmallShop
) -> None:
    """It is told by the lock: host name and process numbers are those of the other container."""
    program = (
        "import sys; from pathlib import Path; from ticdc_assets.config import Writer\n"
        "from ticdc_assets.delta.lock import seen_at_work\n"
        "from ticdc_assets.storage.lake_paths import LakePaths\n"
        "paths = LakePaths(root=Path(sys.argv[1]), changefeed='shop')\n"
        "with seen_at_work(paths, Writer()) as lock: print(lock, flush=True); input()"
    )
    run = run_of(instance, shop)
    with subprocess.Popen(
        [sys.executable, "-c", program, str(shop.settings.lake)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        lock = process.stdout.readline().strip()
        away: dict[str, Any] = {"started": "99999", "machine": "another pid:[1]"}
        worked_on(instance, run, lock, host="3f2a9c1d7e55", process=41, **away)
        # Containers of a pod share a host name, and a process of this one has its number.
        other = worked_on(instance, run_of(instance, shop), lock, process=1, **away)
        with seen_at_work(shop.paths, shop.changefeed.writer):
            assert end_orphans(instance, NAMES, NOW) == []
        assert end_orphans(instance, NAMES, NOW) == []
        process.kill()
    with seen_at_work(shop.paths, shop.changefeed.writer):
        assert end_orphans(instance, NAMES, NOW) == []
    assert set(end_orphans(instance, NAMES, NOW)) == {run.run_id, other.run_id}


def test_a_lock_that_cannot_be_had_keeps_nobody_from_work(shop: SmallShop) -> None:
    """Nor does one that a lake with a lease has not."""
    shop.settings.lake.joinpath("shop", "workers.lock").mkdir(parents=True)
    for writer in (shop.changefeed.writer, Writer(lease=timedelta(seconds=60))):
        with seen_at_work(shop.paths, writer) as lock:
            assert lock == ""
        assert not nobody_at_work(lock)


def test_a_run_that_was_killed_before_its_first_step_does_not_stay_active(
    instance: dg.DagsterInstance, shop: SmallShop
) -> None:
    killed, waits = run_of(instance, shop), run_of(instance, shop)
    own = instance.create_run_for_job(
        dg.define_asset_job("own", selection=[NAMES.asset("apply_changes")]).resolve(
            asset_graph=shop.definitions.resolve_asset_graph()
        ),
        tags=dict(NAMES.tags),
    )
    now = datetime.now(UTC)
    began = now - timedelta(minutes=16)
    for run in (killed, waits, own):
        event = dg.DagsterEvent(event_type_value="PIPELINE_START", job_name=run.job_name)
        instance.report_dagster_event(event, run.run_id, timestamp=began.timestamp())
    assert end_orphans(instance, NAMES, now - timedelta(minutes=2)) == []
    # A run that waits for its pool says so from time to time; that of a user's job may be in a step
    # of the user's.
    instance.report_engine_event("blocked by the limit of its pool", waits)
    assert end_orphans(instance, NAMES, now) == [killed.run_id]
    active = {run.run_id for run in instance.get_runs() if not run.is_finished}
    assert active == {waits.run_id, own.run_id}


# Ticks ------------------------------------------------------------------------------------------


def evaluate(
    instance: dg.DagsterInstance, steps: ChangefeedSteps, cursor: str | None, now: datetime = NOW
) -> dg.SensorResult:
    with dg.build_sensor_context(instance=instance, cursor=cursor) as context:
        return tick(context, steps, now)


def test_a_tick_sees_new_records_and_starts_no_spark(
    instance: dg.DagsterInstance,
    shop: SmallShop,
    steps: ChangefeedSteps,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr("ticdc_assets.spark.session.get_spark")
    shop.create_tables()
    shop.insert(("shop", "orders"), 5)
    count = shop.send()
    result = evaluate(instance, steps, None)
    assert result.skip_reason is None
    assert result.run_requests is not None
    assert len(result.run_requests) == 1
    (observation,) = result.asset_events
    assert isinstance(observation, dg.AssetObservation)
    assert observation.asset_key == NAMES.asset("kafka_topic")
    assert observation.metadata["backlog"].value == count
    status, _ = see_status(steps.lake, NOW)
    state = sensor_state(instance, steps, status)
    assert state.status.backlog == count
    assert "2 new partitions (shop/0, shop/1)" in state.reasons()


def test_offsets_are_observed_when_they_change_and_not_too_often(
    instance: dg.DagsterInstance, shop: SmallShop, steps: ChangefeedSteps
) -> None:
    shop.create_tables()
    shop.send()
    first = evaluate(instance, steps, None)
    assert len(first.asset_events) == 1
    same = evaluate(instance, steps, first.cursor, NOW + timedelta(hours=1))
    assert same.asset_events == []
    shop.insert(("shop", "orders"), 1)
    shop.send()
    soon = evaluate(instance, steps, first.cursor, NOW + timedelta(seconds=59))
    assert soon.asset_events == []
    later = evaluate(instance, steps, soon.cursor, NOW + timedelta(seconds=60))
    assert len(later.asset_events) == 1


def test_a_capture_that_is_not_there_is_a_reason(
    instance: dg.DagsterInstance, shop: SmallShop, steps: ChangefeedSteps
) -> None:
    first = evaluate(instance, steps, None, NOW)
    second = evaluate(instance, steps, first.cursor, NOW + timedelta(seconds=20))
    text = skipped(second)
    assert text.startswith("the source is not available (since 2026-11-21 12:00:00 UTC): ")
    assert str(shop.capture) in text
    shop.create_tables()
    shop.send()
    third = evaluate(instance, steps, second.cursor, NOW + timedelta(seconds=40))
    assert third.run_requests
    assert read_cursor(third.cursor, SensorCursor).failing_since == ""


def test_a_store_that_is_away_is_a_reason_and_fails_a_check(
    instance: dg.DagsterInstance, steps: ChangefeedSteps, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = StoreUnavailableError("s3://lake", "it does not answer")

    def raises(_: ChangefeedSteps) -> Lake:
        raise away

    monkeypatch.setattr(ChangefeedSteps, "lake", property(raises))
    result = evaluate(instance, steps, None)
    assert "s3://lake cannot be reached" in skipped(result)
    assert store(instance, list(result.asset_events)) == {"lake_readable": "error"}
    dg.Definitions.validate_loadable(definitions_of([steps]))
    steps = replace(steps, changefeed=replace(steps.changefeed, exports="exports"))
    for schedule in (redecode_schedule(steps), *export_schedules(steps)):
        context = dg.build_schedule_context(scheduled_execution_time=NOW)
        assert schedule.evaluate_tick(context).skip_message == str(away)


def test_a_gap_is_a_reason_until_somebody_accepts_it(
    instance: dg.DagsterInstance, shop: SmallShop, steps: ChangefeedSteps
) -> None:
    shop.create_tables()
    shop.insert(ORDERS, 6)
    shop.send()
    land(Lake(changefeed=shop.changefeed, paths=shop.paths, session=LazySession()))
    # The first record of each partition is all that is left.
    records = shop.capture.read_text().splitlines(keepends=True)
    first = {json.loads(line)["partition"]: line for line in reversed(records)}
    shop.capture.write_text("".join(first.values()))
    for partition in (0, 1):
        message = skipped(evaluate(instance, steps, None))
        gap = f"landing is stopped by a gap in topic 'shop' partition {partition}: "
        assert message.startswith(gap)
        assert f"`ticdc-assets accept-gap shop shop {partition}`" in message
        accept(shop.lake, "shop", partition)
    assert evaluate(instance, steps, None).run_requests


def test_a_capture_with_a_broken_line_is_a_reason(
    instance: dg.DagsterInstance, shop: SmallShop, steps: ChangefeedSteps
) -> None:
    shop.capture.write_text("no record\n{}\n", encoding="utf-8")
    assert "line 1" in skipped(evaluate(instance, steps, None))


@pytest.mark.parametrize("text", ["", "x", "[]", "7", '{"failing_since": 2, "lag": 5}', "{}"])
def test_a_cursor_that_somebody_edited_counts_as_empty(text: str) -> None:
    assert read_cursor(text, SensorCursor) == SensorCursor()


# Verdicts between syncs ---------------------------------------------------------------------------

LAG = dg.AssetCheckKey(NAMES.asset("apply_changes"), "replication_lag")


def store(instance: dg.DagsterInstance, events: list[Any]) -> dict[str, str]:
    """Report what a tick returned, as the daemon does; return the levels by check."""
    levels: dict[str, str] = {}
    for event in events:
        instance.report_runless_asset_event(event)
        levels[event.check_name] = "passed" if event.passed else event.severity.value.lower()
    return levels


def test_verdicts_are_told_when_they_change_and_again_after_a_while(
    instance: dg.DagsterInstance, shop: SmallShop, steps: ChangefeedSteps
) -> None:
    now = datetime.now(UTC)
    waiting = held(0, "visits", since=now, min_ts=tso.from_datetime(now))
    made = cut(0, tso=tso.from_datetime(now), published_at=now, held=(waiting,))
    publish_with_tables(shop.paths, made)

    def after(seconds: float) -> dict[str, str]:
        status = read_status(steps.lake, now + timedelta(seconds=seconds))
        return store(instance, changed_verdicts(instance, steps, status))

    # A first verdict that passes is no news.
    assert after(1) == {"mirrors_complete": "warn"}
    assert after(2) == after(299) == {}
    # The lag and the age of held rows grow without any sync.
    assert after(301) == {"replication_lag": "warn"}
    assert after(601) == {"held_rows": "warn"}
    assert after(898) == {}
    # What lasts is told again with its new numbers.
    late = {"mirrors_complete": "warn", "replication_lag": "error", "held_rows": "warn"}
    assert after(1801) == late
    # A sync that was fast enough says so itself; the next tick sees what Dagster shows.
    instance.report_runless_asset_event(CheckVerdict(Level.OK, "").evaluation(LAG))
    assert after(601) == {"replication_lag": "warn"}
    # A run that has not come to this check changes nothing.
    job = definitions_of([steps], has_mirrors=False).resolve_job_def("shop_sync")
    plan(instance, job, LAG)
    assert after(602) == {}


def test_a_tick_tells_the_lag_while_the_source_is_away(
    instance: dg.DagsterInstance, shop: SmallShop, steps: ChangefeedSteps
) -> None:
    publish_with_tables(shop.paths, cut(0))
    result = evaluate(instance, steps, None, NOW + timedelta(hours=1))
    assert result.skip_reason is not None
    assert store(instance, list(result.asset_events)) == {"replication_lag": "error"}


def test_what_an_apply_looked_at_is_not_asked_for_again(
    instance: dg.DagsterInstance, shop: SmallShop, steps: ChangefeedSteps
) -> None:
    shop.create_tables()
    shop.send()
    key = NAMES.asset("apply_changes")
    looked_at = {LOOKED_AT_BATCH: 12}
    instance.report_runless_asset_event(dg.AssetMaterialization(key, metadata=looked_at))
    assert applied_batch(instance, steps, None) == 12
    # But what was looked at before a rewind is to be looked at again.
    assert applied_batch(instance, steps, cut(batch=4)) == 12
    rewind = Rewind(number=1, from_number=2, from_tso=tso.MAX_TSO, by="ada@here")
    assert applied_batch(instance, steps, cut(batch=4, rewind=rewind)) == 4
    instance.report_runless_asset_event(dg.AssetMaterialization(key, metadata={}))
    assert applied_batch(instance, steps, None) == 0
