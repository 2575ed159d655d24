"""Real runs that follow a capture which grows: what they do, report, and end for."""

import math
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from os import getpid, kill
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

import dagster as dg
import pytest
from dagster import DagsterRunStatus

from ticdc_assets.base.errors import LandingGapError
from ticdc_assets.delta.control import read_table
from ticdc_assets.log.cuts import read_cuts, require_cut
from ticdc_assets.mirrors.standing import Applying, Outcome
from ticdc_assets.orchestration import follow_job, sensors, syncing
from ticdc_assets.orchestration import run as run_module
from ticdc_assets.orchestration.active_runs import FOLLOW_TAG, run_to_let_in
from ticdc_assets.orchestration.changefeeds import all_definitions
from ticdc_assets.orchestration.follow_job import Surroundings
from ticdc_assets.orchestration.following import Ending, Following, NewData
from ticdc_assets.orchestration.instance import open_instance
from ticdc_assets.orchestration.metadata import (
    Metadata,
    applied_counts,
    applying_metadata,
    utc_now,
)
from ticdc_assets.orchestration.reporting import Report, events_of
from ticdc_assets.orchestration.run import run_follow
from ticdc_assets.orchestration.steps import steps_of
from ticdc_assets.orchestration.syncing import Step, Syncing
from ticdc_assets.repair import maintenance
from ticdc_assets_tests.delta.libraries import opened
from ticdc_assets_tests.orchestration.small_shop import (
    ODD,
    ORDERS,
    SmallShop,
    materializations,
    recorded,
    values,
)
from ticdc_assets_tests.statuses import cut, watermark

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


# Whom a run lets in -----------------------------------------------------------------------------


@pytest.mark.dagster
def test_a_run_that_follows_lets_in_every_other_run_of_its_changefeed(
    shop: SmallShop, instance: dg.DagsterInstance
) -> None:
    definitions = all_definitions(shop.settings)

    def run(job: str, status: DagsterRunStatus, **tags: str) -> str:
        made = instance.create_run_for_job(
            definitions.resolve_job_def(job), status=status, tags=tags
        )
        return made.run_id

    own = run("shop_follow", DagsterRunStatus.STARTED, **{FOLLOW_TAG: "true"})
    assert run_to_let_in(instance, shop.names, own, NOW) == ""
    ended = run("shop_sync", DagsterRunStatus.SUCCESS)
    assert run_to_let_in(instance, shop.names, own, NOW) == ""
    queued = run("shop_maintenance", DagsterRunStatus.NOT_STARTED)
    found = run_to_let_in(instance, shop.names, own, NOW)
    assert found == f"shop_maintenance {queued} is queued"
    assert ended not in found
    instance.report_run_failed(recorded(instance, queued))
    # The check of a mirror is of the step that folds mirrors, which waits for the pool.
    job = definitions.resolve_implicit_global_asset_job_def()
    for check, is_let_in in (("table_lag", True), ("a check of the user's", False)):
        checks = frozenset({dg.AssetCheckKey(shop.names.mirror(*ORDERS), check)})
        made = instance.create_run_for_job(job)
        instance.delete_run(made.run_id)
        checking = instance.add_run(made._replace(asset_check_selection=checks))
        found = run_to_let_in(instance, shop.names, own, NOW)
        assert (checking.run_id in found) is is_let_in
        instance.report_run_failed(checking)
    others = replace(shop.names, changefeed="crm")
    assert run_to_let_in(instance, others, "none", NOW) == "", "runs of others are not its own"


@pytest.mark.dagster
def test_changefeeds_that_are_followed_do_not_keep_others_out_for_ever(
    shop: SmallShop, tmp_path: Path
) -> None:
    job = all_definitions(shop.settings).resolve_job_def("shop_follow")
    overrides = {"concurrency": {"runs": {"max_concurrent_runs": 2}}}
    with dg.DagsterInstance.local_temp(str(tmp_path), overrides=overrides) as instance:

        def run(feed: str, status: DagsterRunStatus) -> str:
            tags = {FOLLOW_TAG: "true", "ticdc/changefeed": feed}
            return instance.create_run_for_job(job, status=status, tags=tags).run_id

        first = run("crm", DagsterRunStatus.STARTED)
        second = run("erp", DagsterRunStatus.STARTED)
        waiting = run("hr", DagsterRunStatus.NOT_STARTED)
        names = {feed: replace(shop.names, changefeed=feed) for feed in ("crm", "erp")}
        now = utc_now()
        later = now + timedelta(seconds=90)
        assert run_to_let_in(instance, names["crm"], first, now) == ""
        assert waiting in run_to_let_in(instance, names["crm"], first, later)
        assert run_to_let_in(instance, names["erp"], second, later) == "", "one of them is enough"


# What is reported -------------------------------------------------------------------------------

NOTHING, WATERMARKS, CHANGES = NewData.NOTHING, NewData.WATERMARKS, NewData.CHANGES
Brought: TypeAlias = tuple[NewData, NewData, NewData, NewData]
"""What the four steps of a sync bring."""

IDLE: Brought = (NOTHING, NOTHING, NOTHING, NOTHING)
CHANGED: Brought = (WATERMARKS, CHANGES, NOTHING, CHANGES)
QUIET: Brought = (WATERMARKS, WATERMARKS, NOTHING, WATERMARKS)


class Steps:
    """The steps of syncs that tell what a test has them tell: a kind of new data for each."""

    def __init__(self) -> None:
        self.new_data: Brought = IDLE

    def step(self, number: int, name: str) -> Step:
        told = dg.AssetObservation(asset_key=["shop", "mirrors"], metadata={"tables": 101})
        report = reported(name, {"records": 10}, {"backlog": 7})
        news = (told,) if name == "apply_changes" and self.new_data != IDLE else ()
        return Step(said=name, new_data=self.new_data[number], reports=(report,), news=news)

    def land(self) -> Step:
        return self.step(0, "raw_messages")

    def decode(self) -> Step:
        return self.step(1, "decode_messages")

    def register(self) -> Step:
        return self.step(2, "schema_registry")

    def apply(self) -> Step:
        return self.step(3, "apply_changes")


def reported(name: str, added: dict[str, int], facts: Metadata, **more: Any) -> Report:
    return Report(key=dg.AssetKey(["shop", name]), added=added, facts=facts, **more)


def told(
    shop: SmallShop,
    instance: dg.DagsterInstance,
    syncs: Mapping[int, Brought | Exception],
    seconds: int,
) -> dict[float, list[tuple[str, dict[str, Any]]]]:
    """Return what a run tells, by its time in seconds: assets and their numbers, in their order.

    Args:
        shop: the changefeed.
        instance: the instance.
        syncs: what a sync at a time brings; at other times the loop only waits.
        seconds: when the run ends.
    """
    shop.send()
    context = dg.build_op_context(instance=instance)
    surroundings = Surroundings(steps_of(shop.settings, shop.changefeed), cast(Any, None), context)
    steps = Steps()
    surroundings._syncing = cast(Syncing, steps)
    time = 0
    surroundings.now = lambda: time
    found: dict[float, list[tuple[str, dict[str, Any]]]] = {}

    class Loop:
        def run(self) -> Iterator[NewData]:
            nonlocal time
            while time < seconds:
                brought = syncs.get(time, IDLE)
                if isinstance(brought, Exception):
                    raise brought
                steps.new_data = brought
                yield surroundings.sync() if time in syncs else NOTHING
                time += 1

    # The loop alone: when it syncs is told by the tests of `following`.
    try:
        for event in surroundings.follow(cast(Following, Loop())):
            if not isinstance(event, dg.AssetCheckEvaluation):
                found.setdefault(time, []).append((event.asset_key.path[-1], values(event)))
    except LookupError:
        found.setdefault(math.inf, [])
    return found


def named(told: dict[float, list[tuple[str, dict[str, Any]]]]) -> dict[float, list[str]]:
    """Return the assets that are told of, by the time."""
    return {time: [name for name, _ in events] for time, events in told.items()}


BESIDE = ["mirrors"]
STEPS = ["raw_messages", "decode_messages", "schema_registry", "apply_changes"]
"""All or none are told of, in their order: none is shown as older than its upstream."""


@pytest.mark.dagster
def test_changes_are_told_at_once_and_then_each_half_minute(
    shop: SmallShop, instance: dg.DagsterInstance
) -> None:
    every = dict.fromkeys(range(45), CHANGED)
    found = told(shop, instance, every, 70)
    # What happened in a sync (`mirrors`) is told of each one.
    assert named(found) == {
        0: [*BESIDE, *STEPS],
        30: [*BESIDE, *STEPS, *["mirrors"] * 29],
        60: [*BESIDE, *STEPS, *["mirrors"] * 13],
    }
    raw = [numbers for events in found.values() for name, numbers in events if "raw" in name]
    assert [numbers["records"] for numbers in raw] == [10, 300, 140], "of 45 syncs"
    assert {numbers["backlog"] for numbers in raw} == {7}, "it is how things stand"


@pytest.mark.dagster
def test_a_change_after_a_rest_is_told_at_once(
    shop: SmallShop, instance: dg.DagsterInstance
) -> None:
    assert list(told(shop, instance, {0: CHANGED, 31: CHANGED, 40: IDLE}, 50)) == [0, 31]


@pytest.mark.dagster
def test_watermarks_are_told_each_minute_with_changes_or_at_the_end(
    shop: SmallShop, instance: dg.DagsterInstance
) -> None:
    syncs = {
        0: QUIET,
        1: (WATERMARKS, NOTHING, NOTHING, NOTHING),
        2: (NOTHING, WATERMARKS, NOTHING, NOTHING),
        70: QUIET,
        # Nothing is new for three steps, and the fourth makes a damaged mirror again.
        99: (NOTHING, NOTHING, NOTHING, CHANGES),
        101: (WATERMARKS, NOTHING, NOTHING, NOTHING),
    }
    found = named(told(shop, instance, syncs, 110))
    assert found == {
        0: [*BESIDE, *STEPS],
        60: [*BESIDE, *STEPS, "mirrors"],
        99: [*BESIDE, *STEPS, "mirrors"],
        110: [*BESIDE, *STEPS],
    }


@pytest.mark.dagster
def test_a_run_that_fails_tells_what_it_did_before(
    shop: SmallShop, instance: dg.DagsterInstance
) -> None:
    gap = LookupError("records are gone")
    found = told(shop, instance, {0: CHANGED, 1: CHANGED, 2: CHANGED, 3: gap}, 9)
    (records,) = [numbers["records"] for name, numbers in found[3] if name == "raw_messages"]
    assert records == 20
    assert math.inf in found, "and then it fails"


# Reports of several syncs as one ----------------------------------------------------------------


def one_of(*reports: Report) -> tuple[Any, dict[str, Any]]:
    """Return the one event that tells several, and its values."""
    (event,) = events_of(reports)
    return event, values(event)


def test_what_a_step_did_is_added_and_how_things_stand_is_the_newest() -> None:
    def decoded(version: str, batch: int, **added: int) -> Report:
        return reported("decode_messages", added, {"batch": batch}, version=version)

    event, values = one_of(
        decoded("a", 4, changes=3, changes_ddl=1, changes_row=2, batches=1, quarantined=1),
        decoded("b", 6, changes=5, changes_row=5, batches=2, quarantined=0),
    )
    assert values == {
        "changes": 8,
        "changes_ddl": 1,
        "changes_row": 7,
        "batch": 6,
        "batches": 3,
        "quarantined": 1,
    }
    assert event.tags == {"dagster/data_version": "b"}


def test_a_rate_is_that_of_the_whole_time() -> None:
    def landed(records: int, seconds: float) -> Report:
        return reported("raw_messages", {"records": records}, {}, work=(records, seconds))

    _, values = one_of(landed(10, 1.0), landed(0, 0.5), landed(90, 0.5))
    assert values == {"records": 100, "seconds": 2.0, "per_second": 50.0}
    _, values = one_of(landed(10, 1.0), landed(0, 1.0))
    assert values == {"records": 10, "seconds": 2.0, "per_second": 5.0}
    _, values = one_of(landed(0, 1.0), landed(0, 1.0))
    assert values == {"records": 0, "seconds": 2.0}


def test_a_cut_is_counted_once() -> None:
    def applied(number: int, outcome: Outcome, replays: int) -> Report:
        applying = Applying(
            outcome=outcome,
            reason="",
            cut=cut(number=number, replays=replays),
            watermark=watermark(0 if number == 1 else None),
        )
        facts = applying_metadata(applying, 1, NOW)
        return reported("apply_changes", applied_counts(applying), facts)

    _, values = one_of(
        applied(1, Outcome.PUBLISHED, 2),
        applied(1, Outcome.UNCHANGED, 2),
        applied(2, Outcome.PUBLISHED, 1),
        applied(2, Outcome.UNCHANGED, 1),
    )
    assert (values["cut"], values["replays"]) == (2, 3)
    assert "slowest_partition" not in values, "other metadata is the newest sync's"


def test_descriptions_say_what_the_numbers_say() -> None:
    def day(rows: int) -> Report:
        return reported(
            "change_log", {"appended": rows}, {}, describe=lambda it: f"{it['appended']} rows"
        )

    event, _ = one_of(day(3), day(2), day(1))
    assert event.description == "6 rows"


def test_assets_and_partitions_are_told_apart() -> None:
    def days(*partitions: str) -> list[Report]:
        return [reported("change_log", {"appended": 1}, {}, partition=it) for it in partitions]

    seen = dg.AssetObservation(["shop", "mirrors"])
    alone = reported("mirrors", {}, {"names": "shop.orders"}, adds_up=False)
    news = [*days("d1", "d2"), alone, *days("d2"), seen, seen, alone]
    found = [(event.asset_key.path[1:], event.partition) for event in events_of(news)]
    assert found == [
        (["change_log"], "d1"),
        (["change_log"], "d2"),
        *[(["mirrors"], None)] * 4,
    ]


# Whole runs -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> SmallShop:
    shop = SmallShop(tmp_path_factory.mktemp("shop"))
    shop.create_tables()
    shop.insert(ORDERS, 3)
    shop.send()
    return shop


@pytest.fixture(scope="module")
def home(growing: SmallShop) -> Iterator[dg.DagsterInstance]:
    """The instance that a user of that lake has; the tests of this module go on from each other."""
    with open_instance(growing.settings) as instance:
        yield instance


def numbers(instance: dg.DagsterInstance, *name: str) -> list[dict[str, Any]]:
    """Return the numbers of the materialisations of an asset, oldest first."""
    return [*map(values, materializations(instance, dg.AssetKey(["shop", *name])))]


def after_sync(number: int, do: Callable[[], object], said: list[str]) -> Callable[[str], None]:
    """Return what listens to a run, and does something when it has synced for the nth time."""

    def say(text: str) -> None:
        said.append(text)
        if " landed, " in text and sum(" landed, " in line for line in said) == number:
            do()

    return say


@pytest.mark.dagster
def test_one_run_syncs_what_arrives_and_ends_for_a_run_that_waits(
    growing: SmallShop, home: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The second sync and the third are told together, however slow they are.
    monkeypatch.setattr(follow_job, "CHANGES_SECONDS", 3600.0)
    monkeypatch.setattr(maintenance, "_MANY_FILES", 3)
    monkeypatch.setattr(syncing, "_JOINING", 1)
    said: list[str] = []
    definitions = all_definitions(growing.settings)
    waiting: list[str] = []

    def go_on() -> None:
        growing.insert(ORDERS, 2)
        growing.send()

    def queue() -> None:
        run = home.create_run_for_job(
            definitions.resolve_job_def("shop_maintenance"),
            status=DagsterRunStatus.NOT_STARTED,
            tags=growing.names.tags,
        )
        waiting.append(run.run_id)

    listeners = after_sync(1, go_on, said), after_sync(2, go_on, []), after_sync(3, queue, [])

    def say(text: str) -> None:
        for listener in listeners:
            listener(text)

    report = run_follow(growing.settings, "shop", seconds=300, say=say, instance=home)

    assert (report.followed.changed, report.followed.ending) == (3, Ending.OTHER)
    assert report.followed.other == f"shop_maintenance {waiting[0]} is queued"
    assert said[-1] == report.followed.summary
    run = recorded(home, report.run_id)
    assert (run.status, run.job_name) == (DagsterRunStatus.SUCCESS, "shop_follow")
    assert (run.tags["ticdc/changefeed"], run.tags[FOLLOW_TAG]) == ("shop", "true")
    # The first sync is reported like a run of its own, on every asset; so are the others as one.
    cuts = read_cuts(growing.paths)
    assert len(cuts) == 3
    applied = numbers(home, "apply_changes")
    assert [(row["rows"], row["cut"]) for row in applied] == [
        (3, cuts[0].number),
        (7, cuts[2].number),
    ]
    assert [(row["replays"], row["late"]) for row in applied] == [(0, 0), (0, 0)]
    table = read_table(growing.paths.raw_messages, columns=["batch"])
    assert table is not None
    landed = table["batch"].to_pylist()
    # Each sync added a file; the third joined them.
    paths = growing.paths
    for path in (paths.raw_messages, paths.change_log, paths.landings, paths.cuts):
        assert len(opened(path).file_uris()) == 1, path
    at_first = landed.count(1)
    raw = numbers(home, "raw_messages")
    assert [row["records"] for row in raw] == [at_first, len(landed) - at_first]
    decoded = numbers(home, "decode_messages")
    assert [row["changes_row"] for row in decoded] == [3, 4]
    assert [row["quarantined"] for row in decoded] == [0, 0]
    assert [row["quarantined"] for row in numbers(home, "quarantine")] == [0, 0]
    appended = [row["appended"] for row in numbers(home, "change_log")]
    assert appended == [row["changes"] for row in decoded]
    registered = numbers(home, "schema_registry")
    assert [row["changed"] for row in registered] == [True, False]
    orders = numbers(home, "mirrors", "shop", "orders")
    assert [(row["rows"], row["changes"]) for row in orders] == [(3, 3), (7, 4)]
    assert len(numbers(home, *growing.names.mirror(*ODD).path[1:])) == 1, "it did not change"
    lag = dg.AssetCheckKey(growing.names.asset("apply_changes"), "replication_lag")
    (latest,) = home.event_log_storage.get_latest_asset_check_execution_by_key([lag]).values()
    assert latest.run_id == report.run_id
    home.report_run_canceled(recorded(home, waiting[0]))


@pytest.mark.dagster
def test_a_run_ends_at_its_time_and_the_sensor_asks_for_the_next_one(
    growing: SmallShop, home: dg.DagsterInstance
) -> None:
    report = run_follow(growing.settings, "shop", seconds=2, instance=home)
    assert report.followed.ending is Ending.TIME
    assert report.followed.syncs == report.followed.empty == 1
    before = len(numbers(home, "apply_changes"))
    assert before == 2, "nothing new is not reported"

    growing.send()  # a watermark

    with dg.build_sensor_context(instance=home) as context:
        result = sensors.tick(context, steps_of(growing.settings, growing.changefeed), utc_now())
    assert isinstance(result.run_requests, list)
    assert len(result.run_requests) == 1
    said: list[str] = []
    stop = after_sync(1, lambda: kill(getpid(), signal.SIGINT), said)
    report = run_follow(growing.settings, "shop", seconds=300, say=stop, instance=home)
    assert report.followed.ending is Ending.STOPPED
    assert report.followed.quiet == 1
    assert len(numbers(home, "apply_changes")) == before + 1
    assert len(numbers(home, "mirrors", "shop", "orders")) == 2, "it did not change"
    assert recorded(home, report.run_id).status is DagsterRunStatus.SUCCESS


@pytest.mark.dagster
def test_one_run_follows_the_other_until_the_time_is_over(
    growing: SmallShop, home: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "FOLLOW_RUN_SECONDS", 0.1)
    before = len(home.get_runs())
    with monkeypatch.context() as patch:
        # A clock that only runs move on: the time is over after two, however long they take.
        clock = SimpleNamespace(monotonic=lambda: float(len(home.get_runs()) - before))
        patch.setattr(run_module, "time", clock)
        report = run_follow(growing.settings, "shop", seconds=2, instance=home)
    assert report.followed.ending is Ending.TIME
    assert len(home.get_runs()) - before == 2
    assert home.get_runs(limit=1)[0].run_id == report.run_id
    said: list[str] = []
    stop = after_sync(1, lambda: kill(getpid(), signal.SIGINT), said)
    growing.send()
    report = run_follow(growing.settings, "shop", seconds=math.inf, say=stop, instance=home)
    assert report.followed.ending is Ending.STOPPED


@pytest.mark.dagster
def test_an_error_ends_the_run_with_its_sentence(
    growing: SmallShop, home: dg.DagsterInstance
) -> None:
    whole = growing.capture.read_bytes()
    growing.capture.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]))
    try:
        with pytest.raises(LandingGapError, match="nothing was skipped"):
            run_follow(growing.settings, "shop", seconds=300, instance=home)
    finally:
        growing.capture.write_bytes(whole)
    (run,) = home.get_runs(limit=1)
    assert run.status is DagsterRunStatus.FAILURE
    require_cut(growing.paths)
