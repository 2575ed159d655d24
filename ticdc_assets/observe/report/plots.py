"""The plots of the page, by plotly's Python API.

In: a `FeedOverview`. Out: `Plot` values: a figure as plotly's JSON, one template for light and one
for dark, and a sentence that describes the plot for readers who do not see it. Pure.

The page's script draws a figure with the template of the reader's colour scheme, so figures name no
colours: a trace gets its colour from its position in the template. Times are epoch milliseconds,
which the script turns into UTC texts: plotly would show numbers in the reader's zone. The script
also writes hover labels (`meta.hover` of a trace says how), because only it knows the zone. Texts
from messages are escaped here, because plotly reads some HTML in them.

People with any colour vision can distinguish the colours, which have a contrast of at least 3:1 in
both schemes; lines also differ by dash, points by symbol, and each is named in a legend.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import plotly.graph_objects as go

from ticdc_assets.base.names import counted, joined_name
from ticdc_assets.model.tso import physical_ms, to_datetime
from ticdc_assets.observe.overview import DdlFigures, FeedOverview
from ticdc_assets.observe.series import (
    CutPoint,
    Series,
    lag_series,
    rate_series,
    step_series,
    thinned,
)
from ticdc_assets.observe.wording import (
    count_text,
    duration,
    one_line,
    plot_text,
    rate_text,
    shortened,
    utc_text,
)
from ticdc_assets.registry.ddl.statement import DdlAction

POINTS = 2000
"""How many points a line has at most."""

TIMELINE_TABLES = 25
"""How many tables have their own row in the timeline of DDL."""

_SQL_SHOWN = 300


COLOURS: Mapping[str, tuple[str, str]] = {
    "text": ("#1b1f24", "#e6eaef"),
    "muted": ("#57606a", "#a2adb9"),
    "grid": ("#e1e5ea", "#2b343e"),
    "surface": ("#ffffff", "#171d24"),
    "blue": ("#0b62a8", "#6cb4ee"),
    "orange": ("#b3540a", "#f0a35e"),
    "green": ("#1a7f4b", "#6fcf97"),
    "purple": ("#7a4bb3", "#c4a1f0"),
    "red": ("#c2291f", "#ff8f86"),
    "teal": ("#0f766e", "#5cc8bd"),
}
"""Each colour in the light scheme and in the dark one."""

SCHEMES = {"light": 0, "dark": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """One plot.

    Attributes:
        name: a word for its element.
        summary: what it shows, in a sentence.
        note: how to read the plot; empty if it is obvious.
        height: in pixels.
        figure: `data` and `layout` as plotly's JSON; None if there is nothing to draw.
        templates: by colour scheme.
    """

    name: str
    title: str
    summary: str = ""
    note: str = ""
    height: int = 220
    figure: dict[str, Any] | None = None
    templates: dict[str, dict[str, Any]] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the plot for the page's script."""
        return {"name": self.name, "figure": self.figure, "templates": self.templates}


def plots(overview: FeedOverview) -> tuple[Plot, ...]:
    """Return the plots over time, in the order of the page."""
    return (
        lag_plot(overview),
        throughput_plot(overview),
        backlog_plot(overview),
        held_plot(overview),
        quarantine_plot(overview),
    )


# Over time --------------------------------------------------------------------------------------


def lag_plot(overview: FeedOverview) -> Plot:
    """Return the replication lag over time, with the limits of the lag check."""
    plot = Plot(name="lag", title="Replication lag")
    series = lag_series(overview.cuts.points, overview.since, overview.now)
    if not len(series):
        return replace(plot, summary="No cut was published yet.")
    if overview.status.ending is not None:
        summary = f"The changefeed is {overview.status.ending.text}: no more changes arrive."
        return replace(plot, summary=summary)
    feed = overview.changefeed
    highest = max(range(len(series)), key=series.values.__getitem__)
    highest_at = datetime.fromtimestamp(series.times[highest] / 1000, UTC)
    figure = _over_time([_line("lag", series, "duration")], "lag")
    # They are at opposite sides: with a lag of days the two lines would coincide.
    for seconds, name, side in (
        (feed.lag_warn_seconds, "warns", "left"),
        (feed.lag_error_seconds, "fails", "right"),
    ):
        figure.add_hline(
            y=seconds,
            annotation_text=f"{name} from {duration(seconds)}",
            annotation_position=f"top {side}",
        )
    at_publishing = sorted(point.lag_seconds for point in _shown_cuts(overview))
    typical = ""
    if count := len(at_publishing):
        middle, upper = (at_publishing[int(count * part)] for part in (0.5, 0.95))
        typical = (
            f" {counted(count, 'cut')}; when published, half of them were less than "
            f"{duration(middle)} behind, 95 % less than {duration(upper)}."
        )
    plot = replace(
        plot,
        height=280,
        summary=f"{duration(series.values[-1])} now, at most {duration(series.values[highest])} at "
        f"{utc_text(highest_at)}.{typical}",
        note=_thinned_note(
            "A cut reduces it; between cuts it grows by a second each second.", series
        ),
    )
    return _drawn(plot, figure, "blue")


def _shown_cuts(overview: FeedOverview) -> list[CutPoint]:
    return [point for point in overview.cuts.points if point.published_at >= overview.since]


def throughput_plot(overview: FeedOverview) -> Plot:
    """Return records landed and keys changed per second."""
    plot = Plot(name="throughput", title="Throughput")
    shown, landings = _shown_cuts(overview), overview.landings
    keys = [(item.published_ms, item.changes) for item in shown if item.changes is not None]
    landed, changed = (
        rate_series(events, overview.since, overview.now)
        for events in ([(item.landed_ms, item.records) for item in landings], keys)
    )
    if not len(landed) and not len(changed):
        return replace(plot, summary="Nothing has landed yet.")
    records = sum(item.records for item in landings)
    if _is_flat(landed) and _is_flat(changed):
        return replace(plot, summary="Nothing landed and no key changed.")
    changes = sum(item.changes or 0 for item in shown)
    first = overview.cuts.counted_from
    partly = (
        f" Keys are counted from cut {first} on."
        if first is not None and shown and first > shown[0].number
        else ""
    )
    lines = [
        _line("records landed", landed, "rate", shape="hv"),
        _line("keys changed", changed, "rate", shape="hv", dash="dot"),
    ]
    plot = replace(
        plot,
        summary=f"{counted(records, 'record')} landed, {counted(changes, 'key')} changed; at most "
        f"{rate_text(max(landed.values, default=0))} and "
        f"{rate_text(max(changed.values, default=0))}.",
        note="Averages over 10 s in the newest ten minutes, a minute in the newest hour, ten "
        f"minutes in the newest day, else an hour.{partly}",
    )
    return _drawn(plot, _over_time(lines, "per second"), "blue", "orange")


def backlog_plot(overview: FeedOverview) -> Plot:
    """Return how many records each landing left in the source."""
    left = f"{counted(overview.status.backlog, 'record')} left by the newest landing"
    plot = Plot(name="backlog", title="Backlog in the source", summary=left)
    return _step_plot(
        replace(plot, note="The backlog after each landing."),
        [(item.landed_ms, float(item.backlog)) for item in overview.landings],
        overview.now,
        unit="records",
        role="teal",
        nothing="Nothing has landed yet.",
        flat="Each landing took all records.",
    )


def held_plot(overview: FeedOverview) -> Plot:
    """Return how many row changes waited for their schema."""
    now = f"{count_text(overview.status.held_rows)} now"
    return _step_plot(
        Plot(name="held", title="Held rows", summary=now),
        [(item.published_ms, float(item.held)) for item in overview.cuts.points],
        overview.now,
        unit="rows",
        role="purple",
        nothing="No cut was published yet.",
        flat="No row waited for its schema.",
    )


def quarantine_plot(overview: FeedOverview) -> Plot:
    """Return how many rows of quarantine were open."""
    series = overview.quarantine.series
    begun = overview.landings[0].landed_ms if overview.landings else None
    values = list(zip(series.times, series.values, strict=True))
    if begun is not None and (not values or begun < values[0][0]):
        # Landing began with an empty quarantine, which gets a line too.
        values.insert(0, (begun, 0.0))
    redriven = sum(item.redriven for item in overview.quarantine.reasons)
    now = f"{count_text(overview.quarantine.open)} open now"
    return _step_plot(
        Plot(name="quarantine", title="Open quarantine", summary=now),
        values,
        overview.now,
        unit="open",
        role="red",
        nothing="Nothing has landed yet.",
        flat="Nothing was in quarantine.",
        more=f"; {count_text(redriven)} redriven so far",
    )


def _step_plot(
    plot: Plot,
    values: Iterable[tuple[float, float]],
    now: datetime,
    *,
    unit: str,
    role: str,
    nothing: str,
    flat: str,
    more: str = "",
) -> Plot:
    """Return a plot of numbers at epoch milliseconds, each of which holds until the next one.

    Its summary is `nothing` without any value, `flat` if all are 0, and else the plot's, the
    highest value, and `more`.
    """
    series = step_series(values, now)
    if _is_flat(series):
        return replace(plot, summary=flat if len(series) else nothing, note="")
    plot = replace(
        plot,
        summary=f"{plot.summary}, at most {count_text(max(series.values))}{more}.",
        note=_thinned_note(plot.note, series),
    )
    return _drawn(
        plot, _over_time([_line(unit, series, "count", shape="hv", fill=True)], unit), role
    )


def _is_flat(series: Series) -> bool:
    return not any(series.values)


def _thinned_note(note: str, series: Series) -> str:
    if len(series) > POINTS:
        note += f" Of {count_text(len(series))} points, only the extremes of each part are drawn."
    return note.strip()


# The timeline of DDL ----------------------------------------------------------------------------


class _Group(NamedTuple):
    name: str
    symbol: str
    colour: str


_CREATE = _Group("create", "triangle-up", "green")
_ALTER = _Group("alter", "circle", "blue")
_DROP = _Group("drop", "triangle-down", "orange")
_OTHER = _Group("other", "cross-thin-open", "muted")
_UNCLEAR = _Group("not understood", "x", "red")
_GROUPS: Mapping[str, _Group] = {
    DdlAction.CREATE_DATABASE: _CREATE,
    DdlAction.CREATE_TABLE: _CREATE,
    DdlAction.CREATE_TABLE_LIKE: _CREATE,
    DdlAction.RECOVER_TABLE: _CREATE,
    DdlAction.FLASHBACK_TABLE: _CREATE,
    DdlAction.ALTER_TABLE: _ALTER,
    DdlAction.ALTER_DATABASE: _ALTER,
    DdlAction.CREATE_INDEX: _ALTER,
    DdlAction.DROP_INDEX: _ALTER,
    DdlAction.RENAME_TABLE: _Group("rename", "diamond", "purple"),
    DdlAction.TRUNCATE_TABLE: _Group("truncate", "square", "teal"),
    DdlAction.DROP_TABLE: _DROP,
    DdlAction.DROP_DATABASE: _DROP,
}


def timeline_plot(overview: FeedOverview) -> Plot:
    """Return each DDL at its commit time, one row a table."""
    plot = Plot(name="ddl", title="DDL by table")
    if not overview.ddls:
        return replace(plot, summary="No DDL has arrived yet.")
    # Tables beyond the limit share the last row.
    places = list(dict.fromkeys(map(_place, overview.ddls)))
    rows = {place: min(row, TIMELINE_TABLES) for row, place in enumerate(places)}
    labels = [_label(place) for place in places[:TIMELINE_TABLES]]
    if rest := places[TIMELINE_TABLES:]:
        labels.append(counted(len(rest), "more table"))
    groups: dict[_Group, list[DdlFigures]] = {
        group: [] for group in (*_GROUPS.values(), _OTHER, _UNCLEAR)
    }
    for ddl in overview.ddls:
        is_clear = ddl.not_understood is None
        groups[_GROUPS.get(ddl.action, _OTHER) if is_clear else _UNCLEAR].append(ddl)
    present = {group: ddls for group, ddls in groups.items() if ddls}
    figure = go.Figure(
        data=[
            go.Scatter(
                x=[physical_ms(ddl.commit_ts) for ddl in ddls],
                y=[rows[_place(ddl)] for ddl in ddls],
                text=[_ddl_text(ddl) for ddl in ddls],
                mode="markers",
                name=group.name,
                marker={"symbol": group.symbol, "size": 11},
                meta={"hover": "ddl"},
            )
            for group, ddls in present.items()
        ],
        layout={"template": go.layout.Template()},
    )
    figure.update_xaxes(type="date", title={"text": "commit time (UTC)"})
    figure.update_yaxes(
        tickvals=list(range(len(labels))),
        ticktext=[plot_text(shortened(label, 40)) for label in labels],
        range=[len(labels) - 0.4, -0.6],
        fixedrange=True,
        zeroline=False,
    )
    figure.update_layout(
        hovermode="closest",
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
        margin={"l": 10, "r": 16, "t": 40, "b": 44},
    )
    newest = overview.ddls[0]
    left_out = overview.ddl_total - len(overview.ddls)
    unclear = f"; {count_text(overview.ddl_unclear)} not understood" if overview.ddl_unclear else ""
    plot = replace(
        plot,
        height=110 + 26 * len(labels),
        summary=f"{counted(overview.ddl_total, 'DDL', 'DDL')}{unclear}; the newest, "
        f"{newest.action}, at {utc_text(to_datetime(newest.commit_ts))}.",
        note=f"The newest {count_text(len(overview.ddls))} are drawn." if left_out > 0 else "",
    )
    return _drawn(plot, figure, *(group.colour for group in present))


def _place(ddl: DdlFigures) -> tuple[str, str]:
    return (ddl.database, ddl.table)


def _label(place: tuple[str, str]) -> str:
    database, table = place
    if table:
        return joined_name(database, table) if database else table
    return f"database {database}" if database else "(none named)"


def _ddl_text(ddl: DdlFigures) -> str:
    place, sql = _label(_place(ddl)), shortened(one_line(ddl.sql), _SQL_SHOWN)
    lines = [sql[start : start + 60] for start in range(0, len(sql), 60)]
    text = (
        f"<b>{plot_text(shortened(place, 80))}</b><br>{ddl.action.replace('_', ' ')}<br>"
        + "<br>".join(map(plot_text, lines))
    )
    if ddl.not_understood is not None:
        text += f"<br>not understood from: {plot_text(shortened(ddl.not_understood, 60))}"
    return text


# Pieces -----------------------------------------------------------------------------------------


def _line(
    name: str,
    series: Series,
    hover: str,
    *,
    shape: str = "linear",
    dash: str = "solid",
    fill: bool = False,
) -> go.Scatter:
    drawn = thinned(series, POINTS)
    return go.Scatter(
        x=[round(at) for at in drawn.times],
        y=list(drawn.values),
        mode="lines",
        name=name,
        line={"shape": shape, "dash": dash, "width": 2},
        fill="tozeroy" if fill else None,
        meta={"hover": hover},
    )


def _over_time(lines: Sequence[go.Scatter], value: str) -> go.Figure:
    """Return lines over a time axis; the page's script sets its range and the ticks of `value`."""
    figure = go.Figure(data=lines, layout={"template": go.layout.Template()})
    figure.update_xaxes(type="date", title={"text": "UTC"})
    figure.update_yaxes(title={"text": value}, fixedrange=True, rangemode="tozero")
    figure.update_layout(
        hovermode="x",
        showlegend=len(lines) > 1,
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
        margin={"l": 62, "r": 16, "t": 26 if len(lines) > 1 else 10, "b": 44},
    )
    return figure


def _drawn(plot: Plot, figure: go.Figure, *roles: str) -> Plot:
    """Return a plot with its figure, whose traces have the colours of `roles` in order."""
    figure.update_layout(height=plot.height)
    templates = {scheme: _template(scheme, roles).to_plotly_json() for scheme in SCHEMES}
    return replace(plot, figure=figure.to_plotly_json(), templates=templates)


def _template(scheme: str, roles: Sequence[str]) -> go.layout.Template:
    """Return the colours of a figure; its traces take them from `roles` in order."""
    palette = {role: colours[SCHEMES[scheme]] for role, colours in COLOURS.items()}
    font = {
        "family": 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif',
        "size": 12,
        "color": palette["muted"],
    }
    axis = {
        "gridcolor": palette["grid"],
        "linecolor": palette["grid"],
        "zerolinecolor": palette["grid"],
        "tickcolor": palette["grid"],
        "automargin": True,
        "title": {"font": {**font, "size": 11}, "standoff": 8},
    }
    return go.layout.Template(
        data={
            "scatter": [
                {
                    "line": {"color": palette[role]},
                    "marker": {"color": palette[role]},
                    "fillcolor": _faint(palette[role]),
                }
                for role in roles
            ]
        },
        layout={
            "font": font,
            "paper_bgcolor": palette["surface"],
            "plot_bgcolor": palette["surface"],
            "colorway": [palette[role] for role in roles],
            "xaxis": axis,
            "yaxis": axis,
            "legend": {"font": {"color": palette["text"]}},
            "hoverlabel": {
                "bgcolor": palette["surface"],
                "bordercolor": palette["muted"],
                "font": {"color": palette["text"], "size": 12},
                "align": "left",
            },
            "shapedefaults": {"line": {"color": palette["orange"], "width": 1, "dash": "dash"}},
            "annotationdefaults": {"font": {"color": palette["orange"], "size": 11}},
        },
    )


def _faint(colour: str) -> str:
    """Return a colour of the palette, transparent enough to show the grid."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.18)"
