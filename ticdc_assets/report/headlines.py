"""The five figures a reader looks at first, each judged, with a word on what to do.

In: a `FeedOverview`. Out: `Headline` values. Pure. Limits are those of the changefeed's lag check,
so the page and the check never disagree about what is late.
"""

from dataclasses import dataclass
from enum import IntEnum

from ticdc_assets.lake.overview import FeedOverview, seconds_since
from ticdc_assets.report.texts import amount, count_text, duration, utc_text
from ticdc_assets.tso import to_datetime

CLOCK_TOLERANCE_SECONDS = 5.0
"""How far the upstream's clock may be ahead of ours before a lag means nothing."""


class Level(IntEnum):
    """How bad it is."""

    GOOD = 0
    NOTE = 1
    WARN = 2
    BAD = 3

    @property
    def word(self) -> str:
        """The verdict in a word."""
        return _WORDS[self]

    @property
    def css(self) -> str:
        """The class of elements that show it."""
        return self.name.lower()


_WORDS = {Level.GOOD: "good", Level.NOTE: "note", Level.WARN: "look", Level.BAD: "act"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """One figure.

    Attributes:
        label: what it is.
        value: the figure.
        level: the verdict.
        advice: why, and what to do about it if anything.
    """

    label: str
    value: str
    level: Level
    advice: str


def headlines(overview: FeedOverview) -> tuple[Headline, ...]:
    """Return the figures in the order of the page."""
    return (
        lag_headline(overview),
        watermark_headline(overview),
        tables_headline(overview),
        held_headline(overview),
        quarantine_headline(overview),
    )


def verdict(found: tuple[Headline, ...]) -> Level:
    """Return the worst of the verdicts."""
    return max((item.level for item in found), default=Level.NOTE)


def lag_headline(overview: FeedOverview) -> Headline:
    """Judge how far the newest cut is behind."""
    feed, lag = overview.changefeed, overview.lag_seconds
    if lag is None:
        return Headline(
            label="Replication lag",
            value="no cut yet",
            level=Level.WARN,
            advice=f"Nothing was published. Run {feed.name}_sync and look at its outcome.",
        )
    if overview.ahead_seconds > CLOCK_TOLERANCE_SECONDS:
        return Headline(
            label="Replication lag",
            value=f"{duration(overview.ahead_seconds)} ahead",
            level=Level.WARN,
            advice=(
                "The upstream's clock is ahead of this machine's: synchronise the clocks (NTP). If "
                f"the cut is wrong, go back by `ticdc-assets rewind {feed.name}`."
            ),
        )
    level = _level(lag, feed.lag_warn_seconds, feed.lag_error_seconds)
    if level is Level.GOOD:
        advice = f"Below {duration(feed.lag_warn_seconds)}, from which it would warn."
    else:
        limit = feed.lag_error_seconds if level is Level.BAD else feed.lag_warn_seconds
        advice = f"Beyond {duration(limit)}. {_where_behind(overview)}"
    return Headline(label="Replication lag", value=duration(lag), level=level, advice=advice)


def _level(seconds: float, warn: float, error: float) -> Level:
    if seconds >= error:
        return Level.BAD
    return Level.WARN if seconds >= warn else Level.GOOD


def _where_behind(overview: FeedOverview) -> str:
    """Return which part of the way the lag is on, and what to look at."""
    cut, feed, reached = overview.cut, overview.changefeed, overview.watermark.watermark_ts
    if overview.backlog:
        waiting = amount(overview.backlog, "record")
        return (
            f"The last landing left {waiting} in the source: look at the runs of {feed.name}_sync."
        )
    if overview.es_only:
        return "Without commit ts this is the age of the newest change: see whether records wait."
    if reached is None:
        return "A partition has sent no watermark: see topics and partitions below."
    if cut is not None and reached > cut.tso:
        return (
            "A newer watermark has landed and is not applied: look at the runs of "
            f"{feed.name}_sync."
        )
    return (
        "No newer watermark has landed: look whether syncs run and records wait in the topic, else "
        "at TiCDC's checkpoint."
    )


def watermark_headline(overview: FeedOverview) -> Headline:
    """Judge the global watermark."""
    label, watermark, feed = "Global watermark", overview.watermark, overview.changefeed
    if overview.es_only:
        return Headline(
            label=label,
            value="none sent",
            level=Level.NOTE,
            advice=(
                "Canal-JSON without the TiDB extension has no watermarks: cuts are at all that "
                "landed, and are not consistent ones."
            ),
        )
    reached = watermark.watermark_ts
    value = "none yet" if reached is None else f"{duration(_age(reached, overview))} old"
    if watermark.waiting:
        listed = ", ".join(f"{topic}/{partition}" for topic, partition in watermark.waiting[:3])
        more = len(watermark.waiting) - 3
        advice = f"None has come from {listed}{f' and {more} more' if more > 0 else ''}."
        return Headline(label=label, value=value, level=Level.WARN, advice=advice)
    if reached is None:
        advice = f"Nothing has landed. Run {feed.name}_sync; see ticdc-assets doctor."
        return Headline(label=label, value=value, level=Level.WARN, advice=advice)
    age = _age(reached, overview)
    level = _level(age, feed.lag_warn_seconds, feed.lag_error_seconds)
    by = f", held by {'/'.join(map(str, watermark.slowest))}" if watermark.slowest else ""
    advice = f"{utc_text(to_datetime(reached))} UTC{by}."
    if level is not Level.GOOD:
        advice += " Look whether syncs run, and at TiCDC's checkpoint."
    return Headline(label=label, value=value, level=level, advice=advice)


def _age(tso: int, overview: FeedOverview) -> float:
    return seconds_since(tso, overview.now)


def tables_headline(overview: FeedOverview) -> Headline:
    """Judge how many tables are behind or incomplete."""
    feed, tables = overview.changefeed, overview.tables
    label = "Tables behind"
    if not tables:
        return Headline(
            label=label, value="no tables", level=Level.NOTE, advice="No cut has a mirror yet."
        )
    lags = [item.lag_seconds(overview.now) for item in tables]
    late = sum(lag is None or lag >= feed.lag_warn_seconds for lag in lags)
    incomplete = sum(item.incomplete for item in tables)
    marked = sum(bool(item.marks) for item in tables)
    failed = sum(item.failed is not None for item in tables)
    parts = [f"{amount(failed, 'mirror')} could not be made"] if failed else []
    parts += [f"{amount(incomplete, 'table')} incomplete"] if incomplete else []
    if marked:
        parts.append(f"{count_text(marked)} marked as possibly different")
    severe = any(lag is not None and lag >= feed.lag_error_seconds for lag in lags)
    if severe or failed:
        level = Level.BAD
    elif late or incomplete:
        level = Level.WARN
    else:
        level = Level.NOTE if marked else Level.GOOD
    said = "; ".join(parts) or "All are complete up to the newest cut"
    advice = f"{said[0].upper()}{said[1:]}."
    if incomplete:
        advice += " See which, and why, under Tables."
    return Headline(
        label=label,
        value=f"{count_text(late)} of {count_text(len(tables))}",
        level=level,
        advice=advice,
    )


def held_headline(overview: FeedOverview) -> Headline:
    """Judge row changes that wait for their schema."""
    if not overview.held or overview.cut is None:
        return Headline(
            label="Held rows", value="0", level=Level.GOOD, advice="No row waits for its schema."
        )
    since = min(item.since for item in overview.cut.held)
    age = (overview.now - since).total_seconds()
    return Headline(
        label="Held rows",
        value=count_text(overview.held),
        level=Level.WARN,
        advice=(
            f"The first has waited {duration(max(0.0, age))} for its schema. TiCDC repeats "
            "bootstraps: see enable-bootstrap and send-bootstrap-interval-in-sec."
        ),
    )


def quarantine_headline(overview: FeedOverview) -> Headline:
    """Judge what is in quarantine."""
    name, figures = overview.changefeed.name, overview.quarantine
    if not figures.open:
        return Headline(
            label="Quarantine", value="0", level=Level.GOOD, advice="Everything could be read."
        )
    newest = figures.newest[0]["quarantined_at"]
    return Headline(
        label="Quarantine",
        value=count_text(figures.open),
        level=Level.WARN,
        advice=(
            f"The newest came {utc_text(newest)} UTC. See ticdc-assets quarantine {name}; after a "
            f"fix run {name}_redrive."
        ),
    )
