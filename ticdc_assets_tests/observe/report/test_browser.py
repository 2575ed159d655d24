"""The page as a reader opens it: from a file, in a real browser, in both colour schemes."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ticdc_assets.delta.lake import Lake
from ticdc_assets.log.cuts import publish
from ticdc_assets.observe.overview import read_overview
from ticdc_assets.observe.report.page import page as page_text
from ticdc_assets.storage.paths import write_at_once
from ticdc_assets_tests.observe.report.small_lake import cut_of, mirror_of, small_lake
from ticdc_assets_tests.orchestration.browser import Page, open_browser
from ticdc_assets_tests.statuses import NOW

pytestmark = pytest.mark.ui

MADE = NOW + timedelta(minutes=15)
PLOTS = ("lag", "throughput", "backlog", "held", "quarantine", "ddl")
DRAWN = (
    "document.querySelectorAll('#plot-shop-{name} .scatterlayer path.js-line, "
    "#plot-shop-{name} .scatterlayer path.point').length"
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    changefeed, paths = small_lake(folder)
    more = tuple(
        mirror_of("many", f"table_{number}", mirror_id=str(number), changes=number % 7)
        for number in range(400)
    )
    publish(paths, cut_of(4, NOW - timedelta(seconds=5), 1, mirrors=more))
    path = folder / "page with spaces.html"
    write_at_once(
        path, page_text([read_overview(Lake(changefeed=changefeed, paths=paths), now=MADE)])
    )
    return path


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page that was written three days after all that happened."""
    folder = tmp_path_factory.mktemp("late")
    changefeed, paths = small_lake(folder)
    overview = read_overview(Lake(changefeed=changefeed, paths=paths), now=NOW + timedelta(days=3))
    write_at_once(folder / "late.html", page_text([overview]))
    return folder / "late.html"


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with open_browser() as page:
        page.watch()
        page.in_zone("Asia/Tokyo")
        yield page


def eventually(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def opened(page: Page, file: Path, scheme: str, width: int = 1440, height: int = 5000) -> None:
    page.prefer(scheme)
    page.resize(width, height)
    page.open(file.as_uri())
    page.wait_for("Replication lag", "Global watermark", "Written 2026-11-21 12:15:00 UTC")
    # The text is there before the script below it has run, and until then no button does anything.
    eventually(lambda: page.evaluate("document.readyState") == "complete", "the page's script")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 390)])
def test_the_page_is_drawn(page: Page, file: Path, scheme: str, width: int) -> None:
    # Of all plots only those are drawn that a reader is near to; on a phone the page is long.
    opened(page, file, scheme, width, height=5000 if width > 640 else 20_000)
    for name in PLOTS:
        eventually(lambda name=name: page.evaluate(DRAWN.format(name=name)), name)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if width < 640:
        wider = (
            "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth)"
        )
        assert page.evaluate(f"{wider}.length") == 0, "a table needs sideways scrolling on a phone"
    assert page.evaluate("window.hit") is None, "a name was obeyed"
    ground = page.evaluate("getComputedStyle(document.querySelector('.card')).backgroundColor")
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(23, 29, 36)"}[scheme]
    assert page.requests() == []
    assert page.complaints() == []


def test_the_limits_of_a_high_lag_do_not_overprint(page: Page, late: Path) -> None:
    for width in (390, 1440):
        page.resize(width, 5000)
        page.open(late.as_uri())
        eventually(lambda: page.evaluate(DRAWN.format(name="lag")), "drawn")
        left, right = page.evaluate(
            "[...document.querySelectorAll('#plot-shop-lag .annotation-text')]"
            ".map(e => e.getBoundingClientRect()).map(r => [r.left, r.right])"
        )
        assert left[1] < right[0]


def test_a_line_of_zeros_is_told_and_not_drawn(page: Page, late: Path) -> None:
    page.resize(1440, 5000)
    page.open(late.as_uri())
    flat = "document.getElementById('plot-shop-throughput').closest('figure').className"
    eventually(lambda: page.evaluate(flat) == "flat", "folded: nothing landed in the last day")
    page.evaluate("document.querySelector('[data-span=all]').click()")
    eventually(lambda: page.evaluate(DRAWN.format(name="throughput")), "drawn")
    assert page.evaluate(flat) == ""


def line_colour(page: Page) -> str:
    return str(
        page.evaluate(
            "getComputedStyle(document.querySelector('#plot-shop-lag path.js-line')).stroke"
        )
    )


def test_plots_follow_the_scheme_while_the_page_is_open(page: Page, file: Path) -> None:
    opened(page, file, "light")
    eventually(lambda: page.evaluate(DRAWN.format(name="lag")), "drawn")
    assert line_colour(page) == "rgb(11, 98, 168)"
    page.prefer("dark")
    eventually(lambda: line_colour(page) == "rgb(108, 180, 238)", "another colour")
    assert page.complaints() == []


def test_plots_are_in_utc_and_labels_tell_the_readers_time(page: Page, file: Path) -> None:
    opened(page, file, "light")
    eventually(lambda: page.evaluate(DRAWN.format(name="lag")), "drawn")
    newest = "document.getElementById('plot-shop-lag').data[0]"
    assert page.evaluate(f"{newest}.x.at(-1)") == "2026-11-21 12:15:00.000"
    label = page.evaluate(f"{newest}.text.at(-1)")
    assert "2026-11-21 12:15:00 UTC" in label
    assert "2026-11-21 21:15:00 Asia/Tokyo" in label
    assert page.evaluate("document.querySelector('time').title") == (
        "2026-11-21 21:15:00 Asia/Tokyo"
    )


def test_a_range_is_chosen_by_keyboard(page: Page, file: Path) -> None:
    opened(page, file, "light")
    eventually(lambda: page.evaluate(DRAWN.format(name="lag")), "drawn")
    shown = "document.getElementById('plot-shop-lag').layout.xaxis.range[0]"
    assert page.evaluate(shown) < "2026-11-21 12:00"
    for _ in range(20):
        page.press("Tab")
        if page.evaluate("document.activeElement.dataset.span") == "600":
            break
    page.press("Enter")
    assert page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
    eventually(lambda: page.evaluate(shown) == "2026-11-21 12:05:00.000", "the newest 10 minutes")


def test_tables_are_sorted_and_searched(page: Page, file: Path) -> None:
    opened(page, file, "light")
    first = "document.querySelector('#tables-shop table.sortable tbody th').innerText"
    page.evaluate("document.querySelector('#tables-shop th button').click()")
    before = page.evaluate(first)
    page.evaluate("document.querySelector('#tables-shop th button').click()")
    assert page.evaluate(first) > before
    page.evaluate("document.querySelector('#all-shop').open = true")
    page.wait_for("400 of 400 tables; the first 200 are shown")
    page.evaluate(
        "(() => { const box = document.querySelector('#all-shop input'); box.value = 'TABLE_39';"
        "box.dispatchEvent(new Event('input')); })()"
    )
    page.wait_for("11 of 400 tables")
    assert page.complaints() == []


def test_an_old_page_says_so(page: Page, file: Path, tmp_path: Path) -> None:
    opened(page, file, "light")
    assert "This page is old" in page.wait_for("This page is old")
    changefeed, paths = small_lake(tmp_path)
    fresh = tmp_path / "fresh.html"
    write_at_once(
        fresh,
        page_text([read_overview(Lake(changefeed=changefeed, paths=paths), now=datetime.now(UTC))]),
    )
    page.open(fresh.as_uri())
    assert "This page is old" not in page.wait_for("Replication lag", "just now")
