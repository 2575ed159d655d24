"""One self-contained HTML page about one changefeed or several.

In: a `FeedOverview` of each. Out: the page as text. It needs only a browser: style, script and
plotly's script are inside, and its policy forbids any request and any other script, even if a name
from a message contains markup.

The templates next to this module have the markup; this module gives them figures. Templates escape
every text, and control characters are made visible: names in any script, with markup, quotes or
bidirectional controls, are shown unchanged.

Long lists show only their worst or newest part, and say what is left out: thousands of tables are
in the page as JSON and can be searched; lists of schema versions, DDL, cuts and quarantine end with
a reference to the rest.
"""

import base64
import gzip
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ticdc_assets.base.names import counted
from ticdc_assets.changelog.progress import TopicProgress, TopicState
from ticdc_assets.config import CaptureSource, KafkaSource
from ticdc_assets.model.tso import lag_seconds, physical_ms, to_datetime
from ticdc_assets.observe.overview import FeedOverview, PartitionFigures
from ticdc_assets.observe.report.plots import plots, timeline_plot
from ticdc_assets.observe.table_status import TableStatus
from ticdc_assets.observe.verdicts import Check, Level
from ticdc_assets.observe.wording import (
    count_text,
    duration,
    one_line,
    shortened,
    utc_text,
    visible,
)

TABLES_SHOWN = 25
STALE_SECONDS = 3600
"""A page older than this shows a warning."""

_TEXT_SHOWN = 400
_SIGNS = {Level.OK: "✓", Level.WARN: "!", Level.FAIL: "✕"}
_PARTS = {
    "plots": "Over time",
    "tables": "Tables",
    "ddl": "DDL",
    "schemas": "Schemas",
    "quarantine": "Quarantine",
    "partitions": "Partitions",
    "cuts": "Cuts",
}
_SPANS = {"10 min": 600, "hour": 3600, "day": 86_400, "week": 7 * 86_400}


def page(overviews: Sequence[FeedOverview]) -> str:
    """Return the page of some changefeeds, in their order."""
    assert overviews, "a page is about at least one changefeed"
    feeds = [_Feed(overview) for overview in overviews]
    now = max(overview.now for overview in overviews)
    script, plotly = _resource("page.js"), _plotly()
    first = min(map(_first_ms, overviews))
    whole = now.timestamp() - first / 1000
    # The useful ranges are those shorter than the whole, and the whole. Plots first show the last
    # day if there is more.
    spans: dict[str, int | None] = {
        label: seconds for label, seconds in _SPANS.items() if seconds < whole
    }
    title, labels = (
        "Replication report",
        {item.label.lower(): "number" for item in feeds[0].headlines},
    )
    if len(feeds) == 1:
        title += f": {feeds[0].name}"
        links = {f"{word}-{feeds[0].name}": label for word, label in _PARTS.items()}
    else:
        links = {"overview": "Overview"} | {f"feed-{feed.name}": feed.name for feed in feeds}
    days = (now - min(overview.since for overview in overviews)).total_seconds() / 86_400
    return (
        environment()
        .get_template("page.html")
        .render(
            title=title,
            policy="default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; "
            f"base-uri 'none'; form-action 'none'; script-src {_digest(plotly)} {_digest(script)}",
            style=Markup(_resource("page.css")),
            script=Markup(script),
            plotly=Markup(plotly),
            now=now,
            days=f"{days:g}",
            links=links.items(),
            spans=[*spans.items(), ("all", None)],
            settings={
                "made": round(now.timestamp() * 1000),
                "first": round(first),
                "span": spans.get("day"),
                "staleSeconds": STALE_SECONDS,
                "levels": [level.word for level in Level],
            },
            summary_columns={"changefeed": "", "verdict": "", **labels},
            feeds=feeds,
        )
    )


@cache
def environment() -> Environment:
    """Return the templates, with their filters for numbers, times and texts."""
    templates = Environment(
        loader=PackageLoader("ticdc_assets.observe.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    templates.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    templates.filters |= {
        "amount": counted,
        "coordinates": _coordinates,
        "count_text": count_text,
        "duration": duration,
        "iso": lambda at: utc_text(at, millis=True).replace(" ", "T") + "Z",
        "moment": lambda given: to_datetime(given) if isinstance(given, int) else given,
        "one_line": one_line,
        "shortened": shortened,
        "utc_text": utc_text,
    }
    templates.globals |= {
        "CHANGES_SHOWN": 30,
        "CONFLICTS_SHOWN": 20,
        "CUTS_SHOWN": 25,
        "DDL_SHOWN": 50,
        "PARTITIONS_SHOWN": 100,
        "REASONS_SHOWN": 20,
        "TABLES_SHOWN": TABLES_SHOWN,
        "TEXT_SHOWN": _TEXT_SHOWN,
        "Level": Level,
        "SIGNS": _SIGNS,
        "TopicState": TopicState,
    }
    return templates


def _shown(value: Any) -> Any:
    """Return what a template shows for a value before it is escaped: nothing for None."""
    if value is None:
        return ""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _coordinates(row: Mapping[str, Any]) -> str:
    return f"{row['topic']}/{row['partition']} offset {row['offset']} index {row['index']}"


def _resource(name: str) -> str:
    return files("ticdc_assets.observe.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    """Return plotly's script for lines, points and bars: a quarter of the full one."""
    packed = files("ticdc_assets.observe.report").joinpath("plotly-basic.min.js.gz").read_bytes()
    return gzip.decompress(packed).decode("utf-8")


def _digest(script: str) -> str:
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


class Headline(NamedTuple):
    """One of the most important figures, with the verdict of its check, from `Status.verdicts`."""

    label: str
    value: str
    level: Level
    advice: str


def headlines(overview: FeedOverview) -> list[Headline]:
    """Return the figures in the order of the page."""
    status = overview.status
    lag, reached, tables = status.lag, status.watermark.watermark_ts, status.tables
    behind = "no cut yet" if lag is None else duration(lag.seconds)
    if lag is not None and lag.ahead_ms:
        behind = f"{duration(lag.ahead_seconds)} ahead"
    age = "none yet" if reached is None else f"{duration(lag_seconds(reached, status.at))} old"
    if status.ending is not None:
        behind, age = status.ending.text, "the last"
    incomplete = f"{count_text(status.incomplete)} of {count_text(len(tables))}"
    figures = (
        ("Replication lag", behind, Check.REPLICATION_LAG),
        ("Global watermark", "none sent" if status.es_only else age, Check.WATERMARK_PROGRESS),
        ("Tables behind", incomplete if tables else "no tables", Check.MIRRORS_COMPLETE),
        ("Held rows", count_text(status.held_rows), Check.HELD_ROWS),
        ("Quarantine", count_text(sum(status.quarantined.values())), Check.QUARANTINE_GROWTH),
    )
    return [_headline(overview, *figure) for figure in figures]


_OTHERS = {
    Check.CHANGES_ACCOUNTED: "Changes accounted for",
    Check.ROW_CHECKSUMS: "Row checksums",
    Check.SCHEMA_CONFLICTS: "Schema conflicts",
}
"""Checks that are shown only if they do not pass."""


def _headline(overview: FeedOverview, label: str, value: str, check: Check) -> Headline:
    said = overview.status.verdicts[check]
    return Headline(label, value, said.level, said.sentence)


def _first_ms(overview: FeedOverview) -> float:
    since = overview.since.timestamp() * 1000
    begun = [
        *(item.landed_ms for item in overview.landings[:1]),
        *(item.published_ms for item in overview.cuts.points[:1]),
    ]
    return max(since, min(begun, default=overview.now.timestamp() * 1000 - 600_000))


class _Feed:
    def __init__(self, overview: FeedOverview) -> None:
        self.overview = overview
        self.headlines = headlines(overview)
        self.others = [
            _headline(overview, label, said.level.word, check)
            for check, label in _OTHERS.items()
            if (said := overview.status.verdicts[check]).level is not Level.OK
        ]
        self.plots = plots(overview)
        self.timeline = timeline_plot(overview)

    @property
    def name(self) -> str:
        return self.overview.changefeed.name

    @property
    def source(self) -> str:
        match self.overview.changefeed.source:
            case KafkaSource() as kafka:
                return f"topics {shortened(kafka.topics_shown, 120)}"
            case CaptureSource(path=path):
                return f"capture {path.name}"

    @property
    def plots_json(self) -> list[dict[str, Any]]:
        return [plot.as_json() for plot in (*self.plots, self.timeline)]

    @property
    def tables_left(self) -> int:
        return max(0, len(self.overview.tables) - TABLES_SHOWN)

    @property
    def tables_aside(self) -> str:
        total = counted(len(self.overview.tables), "table")
        if not self.tables_left:
            return total
        return f"{total}; the first {TABLES_SHOWN}: tables with problems, then the most changed"

    @property
    def tables_json(self) -> list[list[Any]]:
        """Return all tables for the page's script."""
        return [
            [
                [visible(item.database), visible(item.table)],
                item.rows if item.has_mirror else None,
                self.overview.changes(item),
                None if item.last_change_ts is None else physical_ms(item.last_change_ts),
                item.lag_seconds,
                (level := item.verdict.level).word,
                f"{_SIGNS[level]} {item.state}",
                visible(self.reasons(item)),
            ]
            for item in self.overview.tables
        ]

    def reasons(self, item: TableStatus) -> str:
        """Return what a table lacks, and its caveats."""
        return shortened("; ".join((*item.lacking, *item.caveats)), _TEXT_SHOWN)

    @property
    def partitions(self) -> list[PartitionFigures]:
        """All partitions, those that hold the watermark back first; a topic may have hundreds."""
        return sorted(
            self.overview.partitions,
            key=lambda item: (not item.state, item.progress.watermark_ts, item.topic),
        )

    @property
    def partitions_aside(self) -> str:
        partitions = self.overview.partitions
        topics = len({item.topic for item in partitions})
        return f"{counted(topics, 'topic')}, {counted(len(partitions), 'partition')}"

    def age(self, item: PartitionFigures) -> float | None:
        """Return the age in seconds of a partition's watermark; None without one."""
        reached = item.progress.watermark_ts
        return (self.overview.now - to_datetime(reached)).total_seconds() if reached else None

    @property
    def topics(self) -> list[TopicProgress]:
        """The effect of each topic on the watermark; nothing if there is one live topic."""
        topics = self.overview.status.watermark.topics
        if len(topics) < 2 and all(topic.state is TopicState.LIVE for topic in topics):
            return []
        # Topics that hold the watermark back come first, then resting ones.
        order = (TopicState.WAITING, TopicState.RETIRED, TopicState.EMPTY, TopicState.LIVE)
        return sorted(topics, key=lambda topic: (order.index(topic.state), topic.topic))
