"""One self-contained HTML page about one changefeed or several.

In: a `FeedOverview` of each. Out: the page as text; `write_page` puts it in place of an older one
at once, so a reader never sees half of it. The page needs nothing but a browser: style, script and
plotly's script are inside, and a policy in it forbids any request and any script but these two,
whatever a name from a message looks like.

Much is shown as its worst or newest part, and what is left out is said: thousands of tables are in
the page as JSON and shown by search; schema versions, DDL, cuts and quarantine end with where the
rest can be read.
"""

import base64
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

from ticdc_assets.changelog.progress import TopicState
from ticdc_assets.config import CaptureSource, KafkaSource
from ticdc_assets.lake.overview import (
    FeedOverview,
    PartitionFigures,
    SchemaFigures,
    VersionFigures,
)
from ticdc_assets.lake.status import TableStatus
from ticdc_assets.lake.wording import duration
from ticdc_assets.registry.differences import Difference, DifferenceKind
from ticdc_assets.report.headlines import (
    LEVELS,
    Headline,
    Level,
    headlines,
    other_headlines,
    verdict,
)
from ticdc_assets.report.markup import (
    Content,
    Markup,
    element,
    joined,
    json_block,
    name_of,
    raw,
)
from ticdc_assets.report.plots import Plot, plots, timeline_plot
from ticdc_assets.report.texts import (
    amount,
    count_text,
    one_line,
    shortened,
    utc_text,
    visible,
)
from ticdc_assets.tso import physical_ms, to_datetime

TABLES_SHOWN = 25
CUTS_SHOWN = 25
DDL_SHOWN = 50
PARTITIONS_SHOWN = 100
CONFLICTS_SHOWN = 20
REASONS_SHOWN = 20
STALE_SECONDS = 3600
"""A page older than this says so."""

_TEXT_SHOWN = 400


def page(overviews: Sequence[FeedOverview]) -> str:
    """Return the page of some changefeeds, in their order."""
    feeds = [_Feed.of(overview) for overview in overviews]
    now = max((overview.now for overview in overviews), default=None)
    assert now is not None, "a page is about at least one changefeed"
    style, script, plotly = (_resource("page.css"), _resource("page.js"), _plotly())
    first = min((_first_ms(overview) for overview in overviews), default=0.0)
    spans = _spans(first, now)
    settings = {
        "made": round(now.timestamp() * 1000),
        "first": round(first),
        "span": _chosen(spans),
        "staleSeconds": STALE_SECONDS,
        "levels": [level.css for level in Level],
    }
    title = "Replication report"
    if len(feeds) == 1:
        title += f": {feeds[0].name}"
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
        f"form-action 'none'; script-src {_digest(plotly)} {_digest(script)}"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        element("style", raw(style)),
    )
    body = element(
        "body",
        element("a", "Skip to the figures", class_="skip", href="#figures"),
        _top(title, overviews, now),
        _bar(feeds, spans, settings["span"]),
        element(
            "main",
            *([_summary(feeds)] if len(feeds) > 1 else []),
            *(_section(feed) for feed in feeds),
            class_="wide",
            id="figures",
        ),
        element(
            "footer",
            element(
                "p",
                "Made by ticdc-assets from the tables of the lake; nothing of it was asked of "
                "Kafka or of upstream. The page asks nothing of any network.",
                class_="wide small muted",
            ),
        ),
        json_block("page-json", settings),
        *(
            json_block(f"plots-json-{feed.name}", [plot.as_json() for plot in feed.all_plots])
            for feed in feeds
        ),
        *(
            json_block(f"tables-json-{feed.name}", _table_list(feed.overview))
            for feed in feeds
            if len(feed.overview.tables) > TABLES_SHOWN
        ),
        element("script", raw(plotly)),
        element("script", raw(script)),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def write_page(path: Path, text: str) -> None:
    """Write a page in one step: a reader finds the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".report-", suffix=".html", dir=path.parent)
    made = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        # As any file that is written here: a temporary one is for its owner alone.
        made.chmod(0o666 & ~_umask())
        made.replace(path)
    finally:
        made.unlink(missing_ok=True)


def _umask() -> int:
    """Return the mask of new files; it can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _resource(name: str) -> str:
    return files("ticdc_assets.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


def _digest(script: str) -> str:
    """Return how a policy names a script."""
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


# The frame --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Feed:
    """A changefeed with what is made of it."""

    overview: FeedOverview
    headlines: tuple[Headline, ...]
    others: tuple[Headline, ...]
    plots: tuple[Plot, ...]
    timeline: Plot

    @classmethod
    def of(cls, overview: FeedOverview) -> "_Feed":
        return cls(
            overview=overview,
            headlines=headlines(overview),
            others=other_headlines(overview),
            plots=plots(overview),
            timeline=timeline_plot(overview),
        )

    @property
    def name(self) -> str:
        return self.overview.changefeed.name

    @property
    def level(self) -> Level:
        return verdict(self.overview)

    @property
    def all_plots(self) -> tuple[Plot, ...]:
        return (*self.plots, self.timeline)


@dataclass(frozen=True, slots=True)
class _Span:
    label: str
    seconds: int | None


_SPANS = (
    _Span("10 min", 600),
    _Span("hour", 3600),
    _Span("day", 86_400),
    _Span("week", 7 * 86_400),
)


def _first_ms(overview: FeedOverview) -> float:
    """Return when the series of a changefeed begin, in epoch milliseconds."""
    since = overview.since.timestamp() * 1000
    begun = [
        *(item.landed_ms for item in overview.landings[:1]),
        *(item.published_ms for item in overview.cuts.points[:1]),
    ]
    return max(since, min(begun, default=overview.now.timestamp() * 1000 - 600_000))


def _spans(first: float, now: datetime) -> tuple[_Span, ...]:
    """Return the ranges worth a button: those shorter than all there is, and all."""
    whole = now.timestamp() - first / 1000
    return (*(item for item in _SPANS if item.seconds and item.seconds < whole), _Span("all", None))


def _chosen(spans: Sequence[_Span]) -> int | None:
    """Return the range that plots show at first: the last day if there is more, else all."""
    return 86_400 if any(item.seconds == 86_400 for item in spans) else None


def _top(title: str, overviews: Sequence[FeedOverview], now: datetime) -> Markup:
    days = (now - min(overview.since for overview in overviews)).total_seconds() / 86_400
    return element(
        "header",
        element(
            "div",
            element("h1", title),
            element(
                "p",
                "Made ",
                _time(now),
                " UTC (",
                element("span", id="age"),
                f"), over up to {days:g} days. Times are UTC; point at one for yours.",
                class_="muted",
            ),
            element(
                "p",
                "This page is old: lags on it are those of when it was made.",
                class_="stale",
                id="stale",
                role="status",
                hidden=True,
            ),
            class_="wide",
        ),
        class_="top",
    )


def _bar(feeds: Sequence[_Feed], spans: Sequence[_Span], chosen: int | None) -> Markup:
    if len(feeds) > 1:
        links = [("overview", "Overview"), *((f"feed-{feed.name}", feed.name) for feed in feeds)]
    else:
        links = [(f"{word}-{feeds[0].name}", label) for word, label in _PARTS]
    buttons = [
        element(
            "button",
            item.label,
            type="button",
            data_span="all" if item.seconds is None else str(item.seconds),
            aria_pressed="true" if item.seconds == chosen else "false",
        )
        for item in spans
    ]
    return element(
        "nav",
        element(
            "div",
            element(
                "ul",
                *(element("li", element("a", label, href=f"#{target}")) for target, label in links),
            ),
            element(
                "div",
                element("span", "Plots show", class_="small muted"),
                *buttons,
                class_="spans",
                role="group",
                aria_label="Time that plots show",
            ),
            class_="wide",
        ),
        class_="bar",
        aria_label="Parts of the page",
    )


_PARTS = (
    ("plots", "Over time"),
    ("tables", "Tables"),
    ("ddl", "DDL"),
    ("schemas", "Schemas"),
    ("quarantine", "Quarantine"),
    ("partitions", "Partitions"),
    ("cuts", "Cuts"),
)


def _summary(feeds: Sequence[_Feed]) -> Markup:
    rows = [
        element(
            "tr",
            element("th", element("a", feed.name, href=f"#feed-{feed.name}"), scope="row"),
            element("td", _chip(feed.level), data_key=str(int(feed.level))),
            *(element("td", item.value, class_="number") for item in feed.headlines),
        )
        for feed in feeds
    ]
    labels = [item.label for item in feeds[0].headlines]
    return element(
        "section",
        element("h2", "Overview"),
        element(
            "div",
            _table(
                "Changefeeds",
                [_plain("changefeed"), _plain("verdict"), *map(_numeric, map(str.lower, labels))],
                rows,
                sortable=False,
            ),
            class_="panel",
        ),
        class_="feed",
        id="overview",
    )


def _section(feed: _Feed) -> Markup:
    overview, name = feed.overview, feed.name
    match overview.changefeed.source:
        case KafkaSource() as kafka:
            source = f"topics {shortened(kafka.topics_shown, 120)}"
        case CaptureSource(path=path):
            source = f"capture {path.name}"
    return element(
        "section",
        element(
            "div",
            element("h2", name),
            _chip(feed.level),
            element("span", f"{overview.changefeed.wire_format}, {source}", class_="muted small"),
            class_="feed-head",
        ),
        element("div", *map(_card, (*feed.headlines, *feed.others)), class_="cards"),
        element(
            "div",
            *(_plot_panel(name, plot, wide=not number) for number, plot in enumerate(feed.plots)),
            class_="grid",
            id=f"plots-{name}",
        ),
        _tables_panel(overview),
        _ddl_panel(feed),
        _schemas_panel(overview),
        _quarantine_panel(overview),
        _partitions_panel(overview),
        _cuts_panel(overview),
        class_="feed",
        id=f"feed-{name}",
        aria_label=f"Changefeed {name}",
    )


def _card(item: Headline) -> Markup:
    return element(
        "dl",
        element("dt", element("span", item.label), _chip(item.level), class_="label"),
        element("dd", item.value, class_="value"),
        element("dd", item.advice, class_="advice muted"),
        class_=f"card {item.level.css}",
    )


_SIGNS = {Level.GOOD: "✓", Level.NOTE: "i", Level.WARN: "!", Level.BAD: "✕"}


def _chip(level: Level, word: str | None = None) -> Markup:
    return element("span", f"{_SIGNS[level]} {word or level.word}", class_=f"chip {level.css}")


def _plot_panel(feed: str, plot: Plot, *, wide: bool) -> Markup:
    return element(
        "div",
        element("header", element("h3", plot.title)),
        _figure(feed, plot),
        class_="panel span" if wide else "panel",
    )


def _figure(feed: str, plot: Plot) -> Markup:
    if plot.figure is None:
        return element("p", plot.summary, class_="empty")
    return element(
        "figure",
        element("figcaption", plot.summary),
        element(
            "div",
            class_="plot",
            id=f"plot-{feed}-{plot.name}",
            style=f"height:{plot.height}px",
            role="img",
            aria_label=f"{plot.title}: {plot.summary}",
        ),
        element("p", plot.note, class_="plot-note") if plot.note else None,
    )


# Tables of the page -----------------------------------------------------------------------------

_Column: TypeAlias = tuple[str, str]
"""Heading and class."""


def _plain(heading: str) -> _Column:
    return (heading, "")


def _numeric(heading: str) -> _Column:
    return (heading, "number")


def _when(heading: str) -> _Column:
    return (heading, "when")


def _table(
    label: str,
    columns: Sequence[_Column],
    rows: Iterable[Markup],
    *,
    sortable: bool = True,
    kind: str = "sortable",
) -> Markup:
    headings = [
        element(
            "th",
            element("button", heading, type="button") if sortable else heading,
            scope="col",
            class_=style or None,
            aria_sort="none" if sortable else None,
        )
        for heading, style in columns
    ]
    return element(
        "div",
        element(
            "table",
            element("thead", element("tr", *headings)),
            element("tbody", *rows),
            class_=kind if sortable else None,
            aria_label=label,
        ),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=label,
    )


def _number(value: int | float | None, text: str | None = None) -> Markup:
    shown = text if text is not None else "none" if value is None else count_text(value)
    return element("td", shown, class_="number", data_key="" if value is None else f"{value}")


def _moment(tso_or_at: int | datetime | None, missing: str = "none") -> Markup:
    """Return a cell with a time; of a TSO it is that of its physical part."""
    if tso_or_at is None:
        return element("td", missing, class_="when", data_key="")
    at = to_datetime(tso_or_at) if isinstance(tso_or_at, int) else tso_or_at
    return element("td", _time(at), class_="when", data_key=str(at.timestamp()))


def _time(at: datetime) -> Markup:
    return element("time", utc_text(at), datetime=utc_text(at, millis=True).replace(" ", "T") + "Z")


def _panel(feed: str, word: str, title: str, *contents: Content, aside: Content = None) -> Markup:
    return element(
        "div",
        element(
            "header",
            element("h3", title),
            element("span", aside, class_="small muted") if aside else None,
        ),
        *contents,
        class_="panel",
        id=f"{word}-{feed}",
    )


def _empty(text: str) -> Markup:
    return element("p", text, class_="empty")


# Tables -----------------------------------------------------------------------------------------

_TABLE_COLUMNS = (
    _plain("table"),
    _numeric("rows"),
    _numeric("keys changed"),
    _when("last change (commit)"),
    _numeric("behind"),
    _plain("state"),
)


def _tables_panel(overview: FeedOverview) -> Markup:
    name, tables = overview.changefeed.name, overview.tables
    if not tables:
        return _panel(name, "tables", "Tables", _empty("No cut has a mirror yet."))
    shown = tables[:TABLES_SHOWN]
    rows = [
        element(
            "tr",
            element("th", name_of(item.database, item.table), scope="row"),
            _number(item.rows, None if item.has_mirror else "no mirror"),
            _number(overview.changes(item)),
            _moment(item.last_change_ts),
            _number(item.lag_seconds, duration(item.lag_seconds)),
            _state_cell(item),
        )
        for item in shown
    ]
    columns = list(_TABLE_COLUMNS)
    rest: Content = None
    aside = amount(len(tables), "table")
    if len(tables) > len(shown):
        aside += f"; the {len(shown)} that need a look first, then those that changed most"
        rest = element(
            "details",
            element("summary", f"All {count_text(len(tables))} tables, with a search"),
            element(
                "div",
                element(
                    "label",
                    "Name contains ",
                    element("input", type="search", autocomplete="off", spellcheck="false"),
                ),
                element("span", class_="told small muted", role="status"),
                class_="search",
            ),
            _table("All tables", columns, (), kind="searched"),
            id=f"all-{name}",
        )
    counted = overview.cuts.counted_from
    points = overview.cuts.points
    note = (
        f"Keys changed are those of cuts {counted} to {points[-1].number}. A table is behind since "
        "the newest cut, or since its first change that is held, in quarantine or not applied; all "
        "mirrors of a cut stand at its TSO."
        if counted is not None and points
        else None
    )
    return _panel(
        name,
        "tables",
        "Tables",
        _table("Tables", columns, rows),
        rest,
        element("p", note, class_="small muted") if note else None,
        aside=aside,
    )


def _state(item: TableStatus) -> tuple[Level, str, str]:
    """Return how a table is: level, a word, and the reasons."""
    text = "; ".join((*item.lacking, *item.marks))
    return LEVELS[item.verdict.level], str(item.state), text


def _state_cell(item: TableStatus) -> Markup:
    level, word, text = _state(item)
    return element(
        "td",
        _chip(level, word),
        f" {shortened(text, _TEXT_SHOWN)}" if text else "",
        class_="text",
        data_key=str(int(level)),
    )


def _table_list(overview: FeedOverview) -> list[list[Any]]:
    """Return all tables as the page's script shows them."""
    listed: list[list[Any]] = []
    for item in overview.tables:
        level, word, text = _state(item)
        listed.append(
            [
                [visible(item.database), visible(item.table)],
                item.rows if item.has_mirror else None,
                overview.changes(item),
                None if item.last_change_ts is None else physical_ms(item.last_change_ts),
                item.lag_seconds,
                level.css,
                f"{_SIGNS[level]} {word}",
                visible(shortened(text, _TEXT_SHOWN)),
            ]
        )
    return listed


# DDL and schemas --------------------------------------------------------------------------------


def _ddl_panel(feed: _Feed) -> Markup:
    overview, name = feed.overview, feed.name
    if not overview.ddls:
        return _panel(name, "ddl", "DDL", _empty("No DDL has come yet."))
    rows = [
        element(
            "tr",
            _moment(ddl.commit_ts),
            element(
                "th",
                name_of(*(part for part in (ddl.database, ddl.table) if part)) or "none named",
                scope="row",
            ),
            element("td", ddl.action.replace("_", " "), class_="when"),
            element(
                "td", element("code", shortened(one_line(ddl.sql), _TEXT_SHOWN)), class_="text"
            ),
            element("td", _chip(Level.GOOD, "understood"))
            if ddl.not_understood is None
            else element(
                "td",
                _chip(Level.WARN, "not understood"),
                " from ",
                element("code", shortened(ddl.not_understood, 80)),
                class_="text",
            ),
        )
        for ddl in overview.ddls[:DDL_SHOWN]
    ]
    left = overview.ddl_total - len(rows)
    return _panel(
        name,
        "ddl",
        "DDL",
        _figure(name, feed.timeline),
        element(
            "details",
            element("summary", f"The newest {len(rows)} as a table"),
            _table(
                "DDL",
                [
                    _when("commit time"),
                    _plain("table"),
                    _plain("action"),
                    _plain("statement"),
                    _plain("reading"),
                ],
                rows,
            ),
            element("p", f"{count_text(left)} older ones are in ddl_history.", class_="small muted")
            if left > 0
            else None,
        ),
        aside=f"{count_text(overview.ddl_total)} in all",
    )


def _schemas_panel(overview: FeedOverview) -> Markup:
    name = overview.changefeed.name
    if not overview.schemas:
        return _panel(name, "schemas", "Schemas", _empty("No schema is known yet."))
    left = overview.schema_tables - len(overview.schemas)
    conflicts = len(overview.status.conflicts)
    return _panel(
        name,
        "schemas",
        "Schemas",
        _conflicts(overview) if conflicts else None,
        *map(_schema_details, overview.schemas),
        element(
            "p",
            f"{count_text(left)} more tables, whose schema changed before, are in schema_registry.",
            class_="small muted",
        )
        if left > 0
        else None,
        aside=f"{amount(overview.schema_tables, 'table')}, {amount(conflicts, 'conflict')}",
    )


def _conflicts(overview: FeedOverview) -> Markup:
    rows = [
        element(
            "tr",
            element("th", name_of(row["database"], row["table"]), scope="row"),
            element("td", str(row["schema_version"]), class_="mono"),
            element("td", row["registered_source"]),
            element("td", row["claimed_source"]),
            element("td", _coordinates(row), class_="text"),
        )
        for row in overview.status.conflicts[:CONFLICTS_SHOWN]
    ]
    return element(
        "details",
        element(
            "summary",
            _chip(Level.WARN, amount(len(overview.status.conflicts), "conflict")),
            " other structures were claimed for registered versions; the registered ones stay",
        ),
        _table(
            "Schema conflicts",
            [
                _plain("table"),
                _plain("schema version"),
                _plain("registered from"),
                _plain("claimed by"),
                _plain("claimed at"),
            ],
            rows,
        ),
        open=True,
    )


def _schema_details(item: SchemaFigures) -> Markup:
    newest = item.versions[0]
    rows = [
        element(
            "tr",
            element("td", str(version.version), class_="mono"),
            _moment(version.valid_from),
            element("td", _changes(version), class_="text"),
            element("td", version.source),
        )
        for version in item.versions
    ]
    left = item.total - len(item.versions)
    return element(
        "details",
        element(
            "summary",
            name_of(item.database, item.table),
            element(
                "span",
                f" {amount(item.total, 'version')}, {amount(newest.columns, 'column')}, newest "
                f"{utc_text(to_datetime(newest.valid_from))}",
                class_="small muted",
            ),
        ),
        _table(
            "Schema versions",
            [
                _plain("schema version"),
                _when("holds from"),
                _plain("what changed"),
                _plain("learnt from"),
            ],
            rows,
            sortable=False,
        ),
        element("p", f"{count_text(left)} older ones are in schema_registry.", class_="small muted")
        if left > 0
        else None,
        class_="table-schema",
    )


def _changes(version: VersionFigures) -> Markup:
    if version.is_first:
        return joined(f"first known version, {amount(version.columns, 'column')}")
    if not version.changes:
        return joined("columns, key and indexes as before")
    shown = version.changes[:_CHANGES_SHOWN]
    left = len(version.changes) - len(shown)
    return element(
        "ul",
        *(element("li", _DESCRIBED[change.kind](change)) for change in shown),
        element("li", f"and {count_text(left)} more") if left else None,
        class_="changes",
    )


_CHANGES_SHOWN = 30


def _named(text: str) -> Markup:
    return element("code", element("bdi", shortened(text, _TEXT_SHOWN)))


def _from_to(what: str) -> Callable[[Difference], Markup]:
    def described(change: Difference) -> Markup:
        return joined(
            _named(change.name), f" {what}: ", _named(change.before), " → ", _named(change.after)
        )

    return described


def _index_change(change: Difference) -> Markup:
    if not change.before:
        return joined("index ", _named(change.name), " added ", _named(change.after))
    if not change.after:
        return joined("index ", _named(change.name), " dropped ", _named(change.before))
    return joined("index ", _from_to("changed")(change))


_DESCRIBED: dict[DifferenceKind, Callable[[Difference], Markup]] = {
    DifferenceKind.ADDED: lambda change: joined(
        "column ", _named(change.name), " added: ", _named(change.after)
    ),
    DifferenceKind.DROPPED: lambda change: joined(
        "column ", _named(change.name), " dropped: ", _named(change.before)
    ),
    DifferenceKind.RENAMED: lambda change: joined(
        "column ", _named(change.before), " renamed to ", _named(change.after)
    ),
    DifferenceKind.TYPE: _from_to("type"),
    DifferenceKind.NULLABLE: _from_to("nullable"),
    DifferenceKind.DEFAULT: _from_to("default"),
    DifferenceKind.KEY: lambda change: joined(
        "handle key: ", _named(change.before), " → ", _named(change.after)
    ),
    DifferenceKind.INDEX: _index_change,
}


# Quarantine -------------------------------------------------------------------------------------


def _coordinates(row: Any) -> str:
    return f"{row['topic']}/{row['partition']} offset {row['offset']} index {row['index']}"


def _quarantine_panel(overview: FeedOverview) -> Markup:
    name, figures = overview.changefeed.name, overview.quarantine
    if not figures.reasons:
        return _panel(
            name, "quarantine", "Quarantine", _empty("Nothing was ever put into quarantine.")
        )
    reasons = [
        element(
            "tr",
            element("th", item.reason, scope="row"),
            element("td", item.stage),
            _number(item.open),
            _number(item.redriven),
            _moment(item.newest_at),
        )
        for item in figures.reasons[:REASONS_SHOWN]
    ]
    examples = [
        element(
            "tr",
            element("th", _coordinates(row), scope="row"),
            element("td", row["reason"]),
            element("td", shortened(row["position"] or "", 120), class_="text"),
            element("td", shortened(row["expected"] or "", _TEXT_SHOWN), class_="text"),
            element(
                "td",
                name_of(row["database"] or "", row["table"]) if row["table"] else "not known",
                class_="text",
            ),
            _moment(row["quarantined_at"]),
        )
        for row in figures.newest
    ]
    left = len(figures.reasons) - len(reasons)
    return _panel(
        name,
        "quarantine",
        "Quarantine",
        _table(
            "Reasons",
            [
                _plain("reason"),
                _plain("stage"),
                _numeric("open"),
                _numeric("re-driven"),
                _when("newest"),
            ],
            reasons,
        ),
        element("p", f"And {amount(left, 'more reason')}.", class_="small muted") if left else None,
        element(
            "details",
            element("summary", f"The newest {len(examples)} that are open"),
            _table(
                "Newest in quarantine",
                [
                    _plain("record"),
                    _plain("reason"),
                    _plain("position"),
                    _plain("expected"),
                    _plain("table"),
                    _when("since"),
                ],
                examples,
            ),
            open=True,
        )
        if examples
        else None,
        aside=f"{amount(figures.open, 'row')} open; ticdc-assets quarantine {name} lists them",
    )


# Partitions and cuts ----------------------------------------------------------------------------


def _partitions_panel(overview: FeedOverview) -> Markup:
    name, partitions = overview.changefeed.name, overview.partitions
    title = "Topics and partitions"
    if not partitions:
        return _panel(name, "partitions", title, _empty("Nothing has landed yet."))
    # Those that hold everybody back first; a topic may have hundreds.
    ordered = sorted(
        partitions, key=lambda item: (not item.state, item.progress.watermark_ts, item.topic)
    )
    rows = [_partition_row(item, overview.now) for item in ordered[:PARTITIONS_SHOWN]]
    left = len(partitions) - len(rows)
    topics = len({item.topic for item in partitions})
    return _panel(
        name,
        "partitions",
        title,
        _topics_table(overview),
        _table(
            title,
            [
                _plain("partition"),
                _when("watermark"),
                _numeric("age"),
                _numeric("stepped back"),
                _numeric("next to land"),
                _numeric("end"),
                _numeric("backlog"),
                _plain("state"),
            ],
            rows,
        ),
        element(
            "p",
            f"{count_text(left)} more, with newer watermarks, are not shown.",
            class_="small muted",
        )
        if left
        else None,
        _gaps_table(overview),
        aside=f"{amount(topics, 'topic')}, {amount(len(partitions), 'partition')}",
    )


def _gaps_table(overview: FeedOverview) -> Content:
    """Return the gaps that were accepted, the newest first; nothing where there are none."""
    gaps = overview.status.accepted_gaps
    if not gaps:
        return None
    rows = [
        element(
            "tr",
            element("th", name_of(gap.topic), f"/{gap.partition}", scope="row"),
            element("td", gap.lost),
            element("td", gap.cause),
            _moment(gap.accepted_at),
            element("td", gap.accepted_by),
            _moment(gap.after_ts or None, "the beginning"),
            _moment(gap.until_ts, "not known yet"),
        )
        for gap in reversed(gaps)
    ]
    return _table(
        "Accepted gaps",
        [
            _plain("accepted gap"),
            _plain("lost"),
            _plain("cause"),
            _when("accepted"),
            _plain("by"),
            _when("changes after"),
            _when("up to"),
        ],
        rows,
    )


def _topics_table(overview: FeedOverview) -> Content:
    """Return what each topic is to the watermark; nothing where there is one and it is live."""
    topics = overview.status.watermark.topics
    if len(topics) < 2 and all(topic.state is TopicState.LIVE for topic in topics):
        return None
    # Those that hold everything back first, then those that rest.
    order = (TopicState.WAITING, TopicState.RETIRED, TopicState.EMPTY, TopicState.LIVE)
    ordered = sorted(topics, key=lambda topic: (order.index(topic.state), topic.topic))
    rows = [
        element(
            "tr",
            element("th", name_of(topic.topic), scope="row"),
            element("td", _chip(_TOPIC_LEVELS[topic.state], str(topic.state))),
            element("td", "yes" if topic.counts else "no"),
            _number(topic.tables, "not known" if topic.tables is None else None),
            _number(topic.partitions),
            _moment(topic.watermark_ts, "none yet"),
            _moment(topic.retired_ts, ""),
        )
        for topic in ordered[:PARTITIONS_SHOWN]
    ]
    left = len(topics) - len(rows)
    return joined(
        _table(
            "Topics",
            [
                _plain("topic"),
                _plain("state"),
                _plain("holds the watermark"),
                _numeric("tables"),
                _numeric("partitions"),
                _when("watermark"),
                _when("retired by a DDL at"),
            ],
            rows,
        ),
        element("p", f"{count_text(left)} more are not shown.", class_="small muted")
        if left
        else None,
    )


_TOPIC_LEVELS = {
    TopicState.LIVE: Level.GOOD,
    TopicState.WAITING: Level.WARN,
    TopicState.RETIRED: Level.NOTE,
    TopicState.EMPTY: Level.NOTE,
}


def _partition_row(item: PartitionFigures, now: datetime) -> Markup:
    reached, offsets = item.progress.watermark_ts or None, item.offsets
    age = None if reached is None else (now - to_datetime(reached)).total_seconds()
    return element(
        "tr",
        element("th", name_of(item.topic), f"/{item.partition}", scope="row"),
        _moment(reached, "none yet"),
        _number(age, "unknown" if age is None else duration(max(0.0, age))),
        _number(item.progress.steps_back),
        _number(None if offsets is None else offsets.landed),
        _number(None if offsets is None else offsets.end),
        _number(None if offsets is None else offsets.backlog),
        element("td", item.state),
    )


def _cuts_panel(overview: FeedOverview) -> Markup:
    name, points = overview.changefeed.name, overview.cuts.points
    if not points:
        return _panel(name, "cuts", "Cuts", _empty("No cut was published yet."))
    rows = [
        element(
            "tr",
            element("th", str(point.number), scope="row"),
            element("td", str(point.tso), class_="mono"),
            _moment(point.tso),
            _moment(point.published_at),
            _number(point.lag_seconds, duration(point.lag_seconds)),
            _number(point.changes, "not counted" if point.changes is None else None),
            element(
                "td",
                ", ".join(f"{count} {mode}" for mode, count in sorted(point.modes.items())),
                class_="text",
            ),
            _number(point.held),
            _number(point.late),
            _number(point.replays),
        )
        for point in points[: -CUTS_SHOWN - 1 : -1]
    ]
    left = len(points) - len(rows)
    return _panel(
        name,
        "cuts",
        "Cuts",
        element(
            "details",
            element(
                "summary",
                f"The newest {len(rows)}: what each brought, and how far behind it was published",
            ),
            _table(
                "Cuts",
                [
                    _plain("cut"),
                    _plain("TSO"),
                    _when("time of the TSO"),
                    _when("published"),
                    _numeric("behind then"),
                    _numeric("keys changed"),
                    _plain("mirrors by mode"),
                    _numeric("held"),
                    _numeric("late"),
                    _numeric("replays"),
                ],
                rows,
            ),
        ),
        aside=f"{amount(len(points), 'cut')} shown above" if left else amount(len(points), "cut"),
    )
