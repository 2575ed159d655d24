"""The Dagster UI as a user opens it: the real server, its daemon, a real browser.

TICDC_SCREENSHOTS=docs/images makes the pictures of the documents again.

By day it is enough that the location loads, that a mirror and a command's run are shown, that the
daemon's own run turns a check green, and that all ends: what else Dagster draws, and what its
buttons start, is left to the nightly.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from dagster import AssetKey, DagsterInstance, DagsterRunStatus
from dagster._core.execution.backfill import BulkActionStatus

from ticdc_assets.base.ports import free_port, port_is_free
from ticdc_assets.config import Settings, load_settings
from ticdc_assets.delta.lake import Lake
from ticdc_assets.demo.simulator.changefeed import StandInChangefeed
from ticdc_assets.demo.simulator.clock import TsoClock, wall_clock_ms
from ticdc_assets.demo.simulator.shop import ShopWorkload
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.log import landing
from ticdc_assets.observe.overview import read_overview
from ticdc_assets.observe.report.page import page as page_text
from ticdc_assets.orchestration.changefeeds import all_definitions
from ticdc_assets.orchestration.instance import open_instance
from ticdc_assets.orchestration.partitions import FeedNames
from ticdc_assets.orchestration.run import run_sync
from ticdc_assets.orchestration.ui import STOPPED_WITH_UI
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import write_at_once
from ticdc_assets_tests.demo.simulator.builders import write_capture
from ticdc_assets_tests.orchestration.browser import Page, open_browser
from ticdc_assets_tests.orchestration.small_shop import CHANGEFEEDS

RUN_SECONDS = 300.0
BEHIND_SECONDS = 7_200


class Yesterday(datetime):
    """A clock that is a day behind."""

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return datetime.now(tz) - timedelta(days=1)


class Shop:
    """A changefeed into a capture, whose clock is hours behind until it is set right."""

    def __init__(self, folder: Path) -> None:
        self._behind_ms = BEHIND_SECONDS * 1000
        upstream = Upstream(clock=TsoClock(now_ms=lambda: wall_clock_ms() - self._behind_ms))
        self._feed = StandInChangefeed(upstream, "shop", partitions=3, seed=1)
        self._workload = ShopWorkload(upstream, 1)
        self.folder = folder
        self._capture = folder / "messages.jsonl"

    def write(self) -> None:
        for _ in self._workload.steps(30):
            pass
        write_capture(self._capture, self._feed.tick())

    def catch_up(self) -> None:
        """Write some more, at the time it is."""
        self._behind_ms = 0
        self.write()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return Shop(tmp_path_factory.mktemp("ui"))


@pytest.fixture(scope="module")
def settings(shop: Shop, class_archive: None) -> Iterator[Settings]:
    """A changefeed that was synced yesterday and today, and is too far behind."""
    folder = shop.folder
    (folder / "changefeeds.yaml").write_text(
        f"{CHANGEFEEDS}    lag_warn_seconds: 1800\n    lag_error_seconds: 3600\n"
        "    follow_seconds: 20\n    owners: [team:data]\n",
        encoding="utf-8",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TICDC_CHANGEFEEDS", str(folder / "changefeeds.yaml"))
        patch.setenv("TICDC_LAKE", str(folder / "lake"))
        settings = load_settings()
        shop.write()
        with pytest.MonkeyPatch.context() as clock:
            clock.setattr(landing, "datetime", Yesterday)
            run_sync(settings, "shop")
        shop.write()
        run_sync(settings, "shop")
        yield settings


SERVE = """
import functools, signal, sys
from ticdc_assets.config import load_settings
from ticdc_assets.orchestration.ui import serve_ui

# As a shell starts a program in the background.
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.exit(serve_ui(load_settings(), int(sys.argv[1]), functools.partial(print, flush=True)))
"""


@dataclass(frozen=True)
class Serving:
    """The program that serves the UI."""

    process: "subprocess.Popen[str]"
    port: int


@pytest.fixture(scope="module")
def serving(settings: Settings, root: Path) -> Iterator[Serving]:
    """The program; the last test of this module ends it."""
    port = free_port()
    command = [sys.executable, "-c", SERVE, str(port)]
    with subprocess.Popen(
        command, cwd=root, start_new_session=True, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("starting the Dagster UI")
            assert process.stdout.readline() == f"the Dagster UI is at http://127.0.0.1:{port}\n"
            yield Serving(process, port)
            process.terminate()
            process.wait(60)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def server(serving: Serving) -> str:
    return f"http://127.0.0.1:{serving.port}"


@pytest.fixture(scope="module")
def page(server: str) -> Iterator[Page]:
    with open_browser() as page:
        yield page


def picture(page: Page, name: str) -> None:
    """Save a picture of the page where somebody asked for pictures."""
    folder = os.environ.get("TICDC_SCREENSHOTS")
    if folder:
        time.sleep(2)  # Fonts, transitions, and the counters that come last.
        page.screenshot(Path(folder) / f"{name}.png")


pytestmark = [pytest.mark.ui, pytest.mark.spark]


def test_the_asset_graph_of_a_changefeed(page: Page, server: str) -> None:
    page.resize(1900, 1250)
    page.open(f"{server}/locations/ticdc_assets/asset-groups/shop")
    page.wait_for("Hide navigation", "apply_changes")
    page.click("Hide navigation")
    page.open(f"{server}/locations/ticdc_assets/asset-groups/shop")
    text = page.wait_for(
        "kafka_topic",
        "raw_messages",
        "change_log",
        "quarantine",
        "schema_registry",
        "apply_changes",
    )
    assert "Empty graph" not in text
    picture(page, "asset-graph")


@pytest.mark.slow
def test_a_mirror_with_its_metadata_and_rows(page: Page, server: str) -> None:
    page.resize(1440, 1500)
    page.open(f"{server}/assets/shop/mirrors/shop/orders?view=events")
    text = page.wait_for("applied_ts", "delta_version", "caveats", "sample")
    assert "/mirrors/" in text, "the path of the Delta table"
    assert "Unsynced" not in text, "a mirror that was just made is not out of date"
    picture(page, "mirror")


def test_a_mirror_is_an_asset_of_its_own(page: Page, server: str) -> None:
    page.resize(1440, 1100)
    page.open(f"{server}/assets/shop/mirrors/shop/orders")
    page.wait_for("shop_mirrors", "Row count", "part of the key; from change_log.after")
    # The table's name, and the description of a column.
    page.wait_for("shop.shop.orders", "Commit ts of the row's last change")
    picture(page, "mirror-asset")
    page.open(f"{server}/assets/shop/mirrors/shop/orders?view=checks")
    page.wait_for("table_lag", "How far the mirror is behind")


def test_syncs_of_commands_are_on_the_timeline(page: Page, server: str) -> None:
    page.open(f"{server}/overview/activity/timeline")
    page.wait_for("Timeline", "shop_sync")
    page.open(f"{server}/runs")
    text = page.wait_for("Launched by", "shop_sync", "ticdc/changefeed: shop")
    assert "worker" not in text, "what is for this package alone is not among a run's tags"


# What people do there -----------------------------------------------------------------------------


def wait_until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + RUN_SECONDS
    while not done():
        assert time.monotonic() < deadline, f"not within {RUN_SECONDS:g} s: {what}"
        time.sleep(0.2)


def wait_for_run(instance: DagsterInstance, key: AssetKey) -> None:
    """Wait until a run of one asset alone has succeeded."""

    def succeeded() -> bool:
        return any(
            run.asset_selection == {key} and run.status is DagsterRunStatus.SUCCESS
            for run in instance.get_runs()
        )

    wait_until(succeeded, f"a run of {key.to_user_string()} alone")


@pytest.fixture(scope="module")
def instance(settings: Settings) -> Iterator[DagsterInstance]:
    with open_instance(settings) as instance:
        yield instance


@pytest.mark.slow
def test_a_lag_that_is_too_long_is_seen(page: Page, server: str) -> None:
    page.resize(1440, 900)
    page.open(f"{server}/assets/shop/apply_changes?view=checks&checkDetail=replication_lag")
    page.wait_for(
        "mirrors_complete",
        "replication_lag",
        "watermark_progress",
        "held_rows",
        "The mirrors are 2.0 h behind now",
        "lag_seconds",
        "Failed",
    )
    picture(page, "lag-check-failed")


@pytest.mark.slow
def test_an_asset_is_materialised_from_the_graph(
    page: Page, server: str, instance: DagsterInstance
) -> None:
    key = AssetKey(["shop", "schema_registry"])
    page.resize(1900, 900)
    page.open(f"{server}/locations/ticdc_assets/asset-groups/shop")
    page.wait_for("decode_messages", "schema_registry", "apply_changes")
    time.sleep(2)  # The graph moves to its place.
    page.click("schema_registry")
    page.wait_for("Materialize selected", "Latest materialization", "schema_versions")
    page.click("Materialize selected")
    wait_for_run(instance, key)


@pytest.mark.slow
def test_two_days_are_decoded_again(page: Page, server: str, instance: DagsterInstance) -> None:
    page.resize(1440, 900)
    page.open(f"{server}/assets/shop/change_log?view=partitions")
    page.wait_for("Materialize…", "2 Partitions Selected")
    time.sleep(1)
    page.click("Materialize…")
    page.wait_for("Launch backfill", "Backfills all partitions in a single run.")
    page.click("All")
    page.wait_for("2 partitions")
    picture(page, "backfill-days")
    page.click("Launch backfill")
    assert backfilled(instance, "change_log") == 2
    page.open(f"{server}/runs")
    page.wait_for("Backfill", "shop / change_log", "Success")
    picture(page, "backfills")


@pytest.mark.slow
def test_a_table_is_folded_again_by_its_button(
    page: Page, server: str, instance: DagsterInstance
) -> None:
    key = AssetKey(["shop", "mirrors", "shop", "orders"])
    page.resize(1440, 900)
    page.open(f"{server}/assets/{'/'.join(key.path)}")
    page.wait_for("Materialize", "Row count")
    time.sleep(1)
    page.click("Materialize")
    wait_for_run(instance, key)


def backfilled(instance: DagsterInstance, asset: str) -> int:
    """Return how many partitions of an asset a backfill made, once it has succeeded."""
    key = AssetKey(["shop", asset])

    def own() -> list[Any]:
        return [item for item in instance.get_backfills() if item.asset_selection == [key]]

    wait_until(
        lambda: any(item.status is BulkActionStatus.COMPLETED_SUCCESS for item in own()),
        f"a backfill of {asset}",
    )
    (backfill,) = own()
    assert backfill.asset_backfill_data is not None
    return len(list(backfill.asset_backfill_data.materialized_subset.iterate_asset_partitions()))


def test_the_lag_check_turns_green_when_the_mirrors_catch_up(
    page: Page, server: str, shop: Shop
) -> None:
    shop.catch_up()
    page.resize(1440, 900)
    page.open(f"{server}/assets/shop/apply_changes?view=checks&checkDetail=replication_lag")
    page.wait_for("replication_lag", " s behind now", "Passed", seconds=RUN_SECONDS)
    picture(page, "lag-check-passed")


@pytest.mark.slow
def test_the_sensor_runs_and_says_why_it_does_nothing(page: Page, server: str) -> None:
    page.resize(1440, 900)
    page.open(f"{server}/locations/ticdc_assets/sensors/shop_sync_sensor")
    page.wait_for("shop_sync_sensor", "~20 sec", "runs requested")


@pytest.mark.slow
def test_the_topic_shows_its_offsets(page: Page, server: str) -> None:
    page.open(f"{server}/assets/shop/kafka_topic?view=events")
    page.wait_for("backlog", "offsets")


@pytest.mark.slow
def test_the_report_of_the_changefeed(page: Page, settings: Settings, tmp_path: Path) -> None:
    paths = LakePaths(root=settings.lake, changefeed="shop")
    overview = read_overview(
        Lake(changefeed=settings.changefeed("shop"), paths=paths), now=datetime.now(UTC)
    )
    report = tmp_path / "report.html"
    write_at_once(report, page_text([overview]))
    newest = "document.querySelector('[data-span]')"
    for name, scheme, width in (
        ("report-light", "light", 1280),
        ("report-dark", "dark", 1280),
        ("report-phone", "light", 400),
    ):
        page.prefer(scheme)
        page.resize(width, 1400)
        page.open(report.as_uri())
        page.wait_for("Replication lag", "Global watermark", "shop.orders")
        # The buttons work once the page's script has run.
        wait_until(
            lambda: page.evaluate(f"{newest}.click(); {newest}.ariaPressed") == "true",
            "the newest ten minutes",
        )
        picture(page, name)


def test_a_ui_that_is_terminated_leaves_nothing_behind(
    serving: Serving, settings: Settings, instance: DagsterInstance
) -> None:
    # A run that a code server of the UI works on, and one that a command works on.
    job = all_definitions(settings).resolve_job_def("shop_verify")
    own = FeedNames(changefeed="shop").tags
    launched, of_a_command = (
        instance.create_run_for_job(job, status=DagsterRunStatus.STARTED, tags={**own, **tags})
        for tags in ({".dagster/grpc_info": "{}"}, {})
    )
    process = serving.process
    started = psutil.Process(process.pid).children(recursive=True)
    assert len(started) > 2
    process.terminate()
    assert process.stdout is not None
    assert process.stdout.read().splitlines() == [
        "stopping the Dagster UI, its daemon and the runs that they started",
        "stopped; the tables and the recorded runs stay",
    ]
    assert process.wait(60) == 0
    stopped, working = (instance.get_run_by_id(run.run_id) for run in (launched, of_a_command))
    assert stopped is not None
    assert working is not None
    assert stopped.status is DagsterRunStatus.CANCELED
    assert working.status is DagsterRunStatus.STARTED
    said = [entry.message for entry in instance.all_logs(launched.run_id)]
    assert any(STOPPED_WITH_UI in text for text in said)
    assert port_is_free(serving.port)
    assert not [each for each in started if is_running(each)]


def is_running(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE  # ended, and not waited for yet
    except psutil.NoSuchProcess:
        return False
