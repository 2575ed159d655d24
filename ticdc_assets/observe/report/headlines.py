"""The five most important figures, each with the verdict of its check.

In: a `FeedOverview`. Out: `Headline` values. Pure. Level and advice come from `Status.verdicts`, so
the page and the checks never disagree.
"""

from dataclasses import dataclass

from ticdc_assets.model.tso import lag_seconds
from ticdc_assets.observe.overview import FeedOverview
from ticdc_assets.observe.report.texts import count_text
from ticdc_assets.observe.verdicts import Check, Level
from ticdc_assets.observe.wording import duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """One figure.

    Attributes:
        label: the name of the figure.
        value: the figure.
        level: the verdict.
        advice: the reason, and what to do, if anything.
    """

    label: str
    value: str
    level: Level
    advice: str


def headlines(overview: FeedOverview) -> tuple[Headline, ...]:
    """Return the figures in the order of the page."""
    status = overview.status
    lag, reached, tables = status.lag, status.watermark.watermark_ts, status.tables
    if lag is None:
        behind = "no cut yet"
    else:
        ahead = duration(lag.ahead_seconds)
        behind = f"{ahead} ahead" if lag.ahead_ms else duration(lag.seconds)
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
    return tuple(_headline(overview, *figure) for figure in figures)


def other_headlines(overview: FeedOverview) -> tuple[Headline, ...]:
    """Return the verdicts of other checks that do not pass."""
    return tuple(
        _headline(overview, label, said.level.word, check)
        for check, label in _OTHERS.items()
        for said in [overview.status.verdicts[check]]
        if said.level is not Level.OK
    )


_OTHERS = {
    Check.CHANGES_ACCOUNTED: "Changes accounted for",
    Check.ROW_CHECKSUMS: "Row checksums",
    Check.SCHEMA_CONFLICTS: "Schema conflicts",
}


def _headline(overview: FeedOverview, label: str, value: str, check: Check) -> Headline:
    """Return a figure with a check's verdict."""
    said = overview.status.verdicts[check]
    return Headline(label=label, value=value, level=said.level, advice=said.sentence)


def verdict(overview: FeedOverview) -> Level:
    """Return the worst level of all checks."""
    return max(item.level for item in overview.status.verdicts.values())
