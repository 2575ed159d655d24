"""The Dagster UI as a user opens it: the real server, its daemon, a real browser.

TICDC_SCREENSHOTS=docs/images makes the pictures of the documents again.
"""

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ticdc_assets.config import Settings, load_settings
from ticdc_assets.defs.run import run_sync, ui_command
from ticdc_assets.ports import free_port, port_is_free
from ticdc_assets.simulator.changefeed import StandInChangefeed
from ticdc_assets.simulator.clock import TsoClock, wall_clock_ms
from ticdc_assets.simulator.run import write_capture
from ticdc_assets.simulator.shop import ShopWorkload
from ticdc_assets.simulator.upstream import Upstream
from ticdc_assets_tests.defs.browser import Page, find_chromium, open_browser
from ticdc_assets_tests.defs.small_shop import CHANGEFEEDS

START_SECONDS = 180.0


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Settings]:
    """A changefeed that was synced once, a moment ago."""
    folder = tmp_path_factory.mktemp("ui")
    upstream = Upstream(clock=TsoClock(start_ms=wall_clock_ms() - 20_000, step_ms=100))
    feed = StandInChangefeed(upstream, "shop", partitions=3, seed=1)
    for _ in ShopWorkload(upstream, 1).steps(60):
        pass
    write_capture(folder / "messages.jsonl", feed.tick())
    (folder / "changefeeds.yaml").write_text(
        f"{CHANGEFEEDS}    lag_warn_seconds: 3600\n    lag_error_seconds: 7200\n", encoding="utf-8"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DAGSTER_HOME", raising=False)
        patch.setenv("TICDC_CHANGEFEEDS", str(folder / "changefeeds.yaml"))
        patch.setenv("TICDC_LAKE", str(folder / "lake"))
        settings = load_settings()
        run_sync(settings, "shop")
        yield settings


@pytest.fixture(scope="module")
def server(settings: Settings) -> Iterator[str]:
    """The address of the UI."""
    port = free_port()
    command, env = ui_command(settings, port)
    with subprocess.Popen(command, env=env, start_new_session=True) as process:
        try:
            address = f"http://127.0.0.1:{port}"
            deadline = time.monotonic() + START_SECONDS
            while not _answers(f"{address}/server_info"):
                assert process.poll() is None, "the server ended at once"
                assert time.monotonic() < deadline, "the server does not answer"
                time.sleep(0.5)
            yield address
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise
    assert port_is_free(port), "the server left something behind"


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return response.status == 200
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False


@pytest.fixture(scope="module")
def page(server: str) -> Iterator[Page]:
    """A browser's page."""
    program = find_chromium()
    if program is None:
        pytest.skip("no chromium here; on Debian: apt-get install chromium")
    with open_browser(program) as page:
        yield page


def picture(page: Page, name: str) -> None:
    """Save a picture of the page where somebody asked for pictures."""
    folder = os.environ.get("TICDC_SCREENSHOTS")
    if folder:
        time.sleep(2)  # Fonts, transitions, and the counters that come last.
        page.screenshot(Path(folder) / f"{name}.png")


pytestmark = [pytest.mark.ui, pytest.mark.spark]


def test_the_asset_graph_of_a_changefeed(page: Page, server: str) -> None:
    page.resize(1900, 620)
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
        "mirrors",
    )
    assert "Empty graph" not in text
    picture(page, "asset-graph")


def test_a_mirror_with_its_partitions_and_metadata(page: Page, server: str) -> None:
    page.resize(1440, 1100)
    page.open(f"{server}/assets/shop/mirrors?view=partitions&partition=shop.orders")
    text = page.wait_for("shop.customers", "crm.reviews", "applied_ts", "delta_version", "marks")
    assert "/mirrors/" in text, "the path of the Delta table"
    assert "Unsynced" not in text, "a mirror that was just made is not out of date"
    picture(page, "mirror")


def test_the_columns_of_a_mirror(page: Page, server: str) -> None:
    page.resize(1440, 1100)
    page.open(f"{server}/assets/shop/mirrors")
    page.wait_for("_ticdc_commit_ts", "Commit ts of the row's last change.", "part of the key")


def test_the_lag_check(page: Page, server: str) -> None:
    page.resize(1440, 900)
    page.open(f"{server}/assets/shop/apply_changes?view=checks&checkDetail=replication_lag")
    page.wait_for(
        "mirrors_complete",
        "replication_lag",
        "Now less the physical time of the newest cut's TSO. Warns from 3600 s",
        "behind now.",
        "lag_seconds",
        "Passed",
    )
    picture(page, "lag-check")


def test_the_sensor_runs_and_says_why_it_does_nothing(page: Page, server: str) -> None:
    page.resize(1440, 900)
    page.open(f"{server}/locations/ticdc_assets/sensors/shop_sync_sensor")
    page.wait_for("shop_sync_sensor", "~20 sec", "0 runs requested", '"lag": "passed"')
    picture(page, "sensor")


def test_the_topic_shows_its_offsets(page: Page, server: str) -> None:
    page.open(f"{server}/assets/shop/kafka_topic?view=events")
    page.wait_for("backlog", "offsets")
