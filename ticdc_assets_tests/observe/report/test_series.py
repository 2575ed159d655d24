"""Series over time: what is drawn is what happened, and what is left out changes no extreme."""

from datetime import timedelta
from operator import itemgetter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.delta.control import read_leaves
from ticdc_assets.log.cuts import STORED_CAVEATS, newest_cut, publish, read_entries
from ticdc_assets.model.tso import from_datetime
from ticdc_assets.observe.series import (
    CutPoint,
    Series,
    lag_series,
    rate_series,
    read_cut_history,
    read_landings,
    read_quarantine_figures,
    step_series,
    thinned,
)
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets_tests.delta.libraries import opened
from ticdc_assets_tests.observe.report.small_lake import (
    cut_of,
    mirror_of,
    write_landings,
    write_quarantine,
)
from ticdc_assets_tests.statuses import NOW, ago

WEEK = NOW - timedelta(days=7)


def point(number: int, published: float, lag: float) -> CutPoint:
    """A cut published so many seconds ago, so far behind."""
    return CutPoint(
        number=number,
        tso=from_datetime(ago(published + lag)),
        published_at=ago(published),
        held=0,
        replays=0,
        late=0,
    )


@pytest.fixture
def paths(tmp_path: Path) -> LakePaths:
    return LakePaths(root=tmp_path, changefeed="shop")


# Lag --------------------------------------------------------------------------------------------


def test_the_lag_is_a_saw_tooth() -> None:
    series = lag_series([point(1, 100, 5), point(2, 60, 3), point(3, 10, 20)], WEEK, NOW)
    seconds = [round(NOW.timestamp() - at / 1000) for at in series.times]
    assert list(zip(seconds, series.values, strict=True)) == [
        (100, 5),
        (60, 45),
        (60, 3),
        (10, 53),
        (10, 20),
        (0, 30),
    ]


def test_the_lag_at_the_begin_is_that_of_the_cut_before() -> None:
    series = lag_series([point(1, 100, 5), point(2, 10, 1)], ago(50), NOW)
    assert series.values == (55, 95, 1, 11)
    assert series.times[0] == ago(50).timestamp() * 1000
    assert lag_series([point(1, 100, 5)], ago(50), NOW).values == (55, 105)
    assert not len(lag_series([], WEEK, NOW))


def test_a_clock_that_was_set_back_does_not_turn_the_line() -> None:
    series = lag_series([point(1, 10, 5), point(2, 60, 3), point(3, 5, 1)], WEEK, NOW)
    assert list(series.times) == sorted(series.times)


# Thinning ---------------------------------------------------------------------------------------

POINTS = st.lists(
    st.tuples(st.integers(0, 10**6), st.floats(-1e6, 1e6)), min_size=1, max_size=400
).map(sorted)


@given(points=POINTS, limit=st.integers(8, 200))
def test_thinning_keeps_ends_and_extremes(points: list[tuple[int, float]], limit: int) -> None:
    times, values = zip(*points, strict=True)
    series = Series(times, values)
    drawn = thinned(series, limit)
    assert len(drawn) <= max(limit, 4)
    assert set(zip(drawn.times, drawn.values, strict=True)) <= set(points)
    assert list(drawn.times) == sorted(drawn.times)
    assert (min(drawn.values), max(drawn.values)) == (min(values), max(values))
    assert (drawn.times[0], drawn.times[-1]) == (times[0], times[-1])


# Rates and steps --------------------------------------------------------------------------------


@given(
    events=st.lists(
        st.tuples(st.floats(0.001, 6 * 86_400), st.integers(0, 10**6)), min_size=1, max_size=60
    )
)
def test_the_area_below_a_rate_is_what_was_counted(events: list[tuple[float, int]]) -> None:
    given_events = [(ago(age).timestamp() * 1000, count) for age, count in events]
    series = rate_series(given_events, WEEK, NOW)
    assert len(series) < 600
    area = sum(
        value * (following - at) / 1000
        for at, value, following in zip(series.times, series.values, series.times[1:], strict=False)
    )
    total = sum(count for _, count in events)
    # Rates are rounded to the fourth digit.
    assert area == pytest.approx(total, abs=0.0001 * 7 * 86_400)


def test_rates_leave_out_what_is_before_the_begin() -> None:
    events = [(ago(100).timestamp() * 1000, 7), (ago(30).timestamp() * 1000, 20)]
    assert max(rate_series(events, ago(60), NOW).values) == 2
    assert not len(rate_series(events[:1], ago(60), NOW))


def test_what_is_of_this_very_moment_has_no_rate_yet() -> None:
    assert not len(rate_series([(NOW.timestamp() * 1000, 3)], WEEK, NOW))


def test_a_step_holds_until_the_next_and_the_last_until_now() -> None:
    series = step_series([(3.0, 5.0), (1.0, 0.0), (2.0, 0.0)], NOW)
    assert series.times == (1.0, 3.0, NOW.timestamp() * 1000)
    assert series.values == (0.0, 5.0, 5.0)


# From tables ------------------------------------------------------------------------------------


def test_cuts_are_counted_by_mode_and_table(paths: LakePaths) -> None:
    carried = mirror_of("s", "still", mode="carried", changes=9)
    for number in range(1, 6):
        changed = mirror_of("s", "busy", changes=number)
        publish(paths, cut_of(number, ago(100 - number), 1, mirrors=(carried, changed)))
    history = read_cut_history(paths, ago(97.5), newest=newest_cut(paths))
    # The one before the begin is there too, for the lag at the begin.
    assert [(item.number, item.changes) for item in history.points] == [
        (2, 2),
        (3, 3),
        (4, 4),
        (5, 5),
    ]
    assert history.points[0].modes == {"carried": 1, "change": 1}
    assert history.table_changes == {("s", "busy"): 14}


def test_mirrors_of_old_cuts_are_not_counted_beyond_the_budget(paths: LakePaths) -> None:
    for number in range(1, 6):
        publish(paths, cut_of(number, ago(100 - number), 1, mirrors=(mirror_of("s", "t"),)))
    history = read_cut_history(paths, WEEK, newest=newest_cut(paths), budget=2)
    assert history.counted_from == 4
    assert [item.changes for item in history.points] == [None, None, None, 3, 3]
    assert history.table_changes == {("s", "t"): 6}
    # Files that delta-rs merged have other types of texts.
    names = ("mirror_id", "version", STORED_CAVEATS)
    told = [row for part in read_entries(paths, names, least=2) for row in part.to_pylist()]
    table = opened(paths.cuts)
    assert table.optimize.compact()["numFilesRemoved"] == 5
    assert read_cut_history(paths, WEEK, newest=newest_cut(paths), budget=2) == history
    merged = [row for part in read_entries(paths, names, least=2) for row in part.to_pylist()]
    by_number = itemgetter("number", "mirror_id")
    assert sorted(merged, key=by_number) == sorted(told, key=by_number)
    assert {row["number"] for row in merged} == {2, 3, 4, 5}


def test_only_the_leaves_that_are_asked_for_are_read(paths: LakePaths) -> None:
    for number in (1, 2):
        publish(paths, cut_of(number, ago(9), 1, mirrors=(mirror_of("s", "t"),)))
    (batch,) = read_leaves(paths.cuts, ["number", "mirrors.rows"], least=2)
    assert batch.to_pylist() == [{"number": 2, "mirrors": [{"rows": 10}]}]


def test_landings_tell_what_they_left(paths: LakePaths) -> None:
    write_landings(paths, [(ago(300), 5, 9), (ago(20), 9, 0), (ago(10), 1, 3)])
    assert [(item.records, item.backlog) for item in read_landings(paths, ago(60))] == [
        (9, 0),
        (1, 3),
    ]


def test_quarantine_over_time(paths: LakePaths) -> None:
    write_quarantine(
        paths,
        [
            {"offset": 1, "quarantined_at": ago(300)},
            {"offset": 2, "quarantined_at": ago(90), "redriven_at": ago(20)},
            {"offset": 3, "quarantined_at": ago(90), "reason": "other"},
            {"offset": 4, "quarantined_at": ago(30)},
        ],
    )
    figures = read_quarantine_figures(paths, ago(100), examples=2)
    seconds = [round(NOW.timestamp() - at / 1000) for at in figures.series.times]
    assert list(zip(seconds, figures.series.values, strict=True)) == [
        (100, 1),
        (90, 3),
        (30, 4),
        (20, 3),
    ]
    assert figures.open == 3
    assert [(item.reason, item.open, item.redriven) for item in figures.reasons] == [
        ("invalid_json", 2, 1),
        ("other", 1, 0),
    ]
    assert [row["offset"] for row in figures.newest] == [4, 3]
    assert all("got" not in row for row in figures.newest)
