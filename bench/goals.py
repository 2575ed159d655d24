"""Goals: what the benchmarks are to reach, beside what they did reach.

In: results that name a goal of `TARGETS` (`Result.goal`), and values that are no piece of work, as
bytes are (`Reached`). Out: one line a goal, with goal, stretch, result, and whether it is met.

A measurement names its goal and nothing more: which figure of it counts (a ratio of CPU seconds, a
ratio of wall times, a rate, seconds) stands here, with the bounds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ticdc_assets.wire import WireFormat


class Figure(StrEnum):
    """Which figure of a result counts."""

    CPU_RATIO = "CPU"
    WALL_RATIO = "wall"
    RATE = "rate"
    SECONDS = "seconds"
    CPU_SECONDS = "CPU seconds"
    VALUE = "value"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What one goal asks for.

    Attributes:
        what: what is measured, as people read it.
        figure: which figure of a result counts.
        bound: at least this much, or at most.
        stretch: the same, wished for; None for nothing more.
        unit: what stands behind a value.
        at_most: whether less is better.
    """

    what: str
    figure: Figure
    bound: float
    stretch: float | None = None
    unit: str = ""
    at_most: bool = True

    def is_met(self, value: float, bound: float) -> bool:
        """Whether a value is on the right side of a bound."""
        return value <= bound if self.at_most else value >= bound

    def said(self, value: float) -> str:
        """Return a value with its unit."""
        if self.unit == "rows/s":
            return f"{value / 1000:.1f}k rows/s"
        places = 2 if abs(value) < 100 else 0
        return f"{value:.{places}f}{self.unit and ' '}{self.unit}"

    def wanted(self, bound: float | None) -> str:
        """Return a bound as it reads."""
        return "" if bound is None else f"{'<=' if self.at_most else '>='} {self.said(bound)}"


@dataclass(frozen=True, slots=True)
class Reached:
    """What was reached of a goal.

    Attributes:
        goal: the goal.
        value: what was measured.
    """

    goal: str
    value: float


TITLES = ("goal", "what", "wanted", "stretch", "reached", "met")


def goal_lines(reached: Sequence[Reached]) -> list[tuple[str, ...]]:
    """Return one line for every goal, in the order of `TARGETS`; cells as in `TITLES`."""
    known = {item.goal: item for item in reached}
    lines: list[tuple[str, ...]] = []
    for goal, target in TARGETS.items():
        item = known.get(goal)
        head = (goal, target.what, target.wanted(target.bound), target.wanted(target.stretch))
        if item is None:
            lines.append((*head, "not measured", ""))
            continue
        lines.append((*head, target.said(item.value), _verdict(target, item.value)))
    return lines


def _verdict(target: Target, value: float) -> str:
    if target.stretch is not None and target.is_met(value, target.stretch):
        return "stretch"
    return "yes" if target.is_met(value, target.bound) else "no"


_LOADS = "x json.loads"
_AS_SENT = "decode to Arrow, images as sent, one process"
_TYPED = "the same through to typed columns, all CPU"
_CPU = "x the CPU"


def _faster(what: str, bound: float, stretch: float, unit: str = _LOADS) -> Target:
    """Return the goal of a decoder: so many times as fast as a plain reader."""
    return Target(
        what=what, figure=Figure.CPU_RATIO, bound=bound, stretch=stretch, unit=unit, at_most=False
    )


def _shuffled(name: str) -> Target:
    return Target(
        what=f"{name}: the same for members in another order, blanks and two unknown members",
        figure=Figure.VALUE,
        bound=0.8,
        unit="of that figure",
        at_most=False,
    )


def _stage(name: str, bound: float) -> Target:
    return Target(
        what=f"{name}: raw_messages to change_log in Spark, against a copy of raw_messages",
        figure=Figure.WALL_RATIO,
        bound=bound,
        stretch=0.85,
        unit="x the copy",
        at_most=False,
    )


def _cpu(what: str, bound: float, stretch: float | None = None, unit: str = _CPU) -> Target:
    return Target(what=what, figure=Figure.CPU_RATIO, bound=bound, stretch=stretch, unit=unit)


def _many(what: str, bound: float) -> Target:
    return _cpu(f"{what}, a fresh process, against an empty Dagster project", bound)


def _value(what: str, bound: float, unit: str, stretch: float | None = None) -> Target:
    return Target(what=what, figure=Figure.VALUE, bound=bound, stretch=stretch, unit=unit)


def _seconds(what: str, bound: float, stretch: float | None = None) -> Target:
    return Target(what=what, figure=Figure.SECONDS, bound=bound, stretch=stretch, unit="s")


def _cpu_seconds(what: str, bound: float) -> Target:
    return Target(what=what, figure=Figure.CPU_SECONDS, bound=bound, unit="CPU s")


def goal_of(kind: str, wire_format: WireFormat) -> str:
    """Return the goal of one kind (`decode`, `typed`, ...) for a format."""
    return f"{kind}-{wire_format}".removesuffix("-protocol")


TARGETS: Mapping[str, Target] = {
    "decode-simple-json": _faster(f"Simple JSON: {_AS_SENT}", 2.5, 4),
    "decode-canal-json": _faster(f"Canal-JSON: {_AS_SENT}", 2.5, 4),
    "decode-open": _faster(f"Open Protocol: {_AS_SENT}", 2, 3),
    "typed-simple-json": _faster(f"Simple JSON: {_TYPED}", 1.2, 2),
    "typed-canal-json": _faster(f"Canal-JSON: {_TYPED}", 1.3, 2),
    "typed-open": _faster(f"Open Protocol: {_TYPED}", 1.1, 2),
    "decode-simple-avro": _faster(f"Simple Avro: {_AS_SENT}", 2.3, 5, "x fastavro"),
    "decode-craft": _faster(
        f"Craft: {_AS_SENT}, against json.loads of Open Protocol's documents of the same rows",
        1.5,
        4,
    ),
    "craft-bytes": _value(
        "Craft: bytes a row, against those of TiCDC's encoder for the same rows", 1, "x TiCDC's"
    ),
    "shuffled-simple-json": _shuffled("Simple JSON"),
    "shuffled-canal-json": _shuffled("Canal-JSON"),
    "shuffled-open": _shuffled("Open Protocol"),
    "spark-simple-json": _stage("Simple JSON", 0.7),
    "spark-canal-json": _stage("Canal-JSON", 0.5),
    "spark-open": _stage("Open Protocol", 0.5),
    "spark-simple-avro": _stage("Simple Avro", 0.5),
    "spark-craft": _stage("Craft", 0.5),
    "end-to-end": Target(
        what="Kafka to mirrors: 70 % inserts, 20 % updates, 10 % deletes over 10 tables",
        figure=Figure.RATE,
        bound=55_000,
        unit="rows/s",
        at_most=False,
    ),
    "partitions": _value(
        "a sync of 20,000 changes from 64 partitions, against one from 4", 1.25, _CPU
    ),
    "wide-rows": _value(
        "a sync of 20,000 new rows of 500 columns, against one of 12 columns, each value", 2, _CPU
    ),
    "mirror-cpu": _cpu(
        "changes into a large mirror, against the same into one of a tenth", 1.5, 1.2
    ),
    "mirror-merge": _value(
        "CPU of that, against a MERGE of typed rows that rewrites files", 0.1, "x the MERGE's"
    ),
    "mirror-bytes": _value(
        "bytes written by that, against a MERGE that rewrites files", 0.1, "x the MERGE's"
    ),
    "nothing-new": _seconds("a sync with nothing new, warm", 1, 0.3),
    "small-sync": _seconds("a sync of 10 tables with 100 changes each, warm", 8, 4),
    "small-sync-seen": _seconds("the same, until a reader of the newest watermark sees it", 4, 2),
    "memory-growth": _value(
        "peak memory (JVM and Python) of five times the changes, against once", 1.1, "x the memory"
    ),
    "memory-peak": _value("peak memory (JVM and Python) of the larger of these runs", 6, "GB", 4),
    "seed-csv": _cpu(
        "an export to a mirror: a table of 12 columns, from CSV, against Spark's copy of it "
        "into a Delta table",
        2.2,
    ),
    "seed-sql": _cpu("the same from SQL, against the copy from CSV", 2.2),
    "seed-memory": _value(
        "peak memory (JVM and Python) of ten times the rows, against ten seeds of once",
        1.1,
        "x the memory",
    ),
    "diff": _seconds("a comparison of a million rows with an export", 60),
    "many-first": _many("first sync of 2,000 tables of 20 rows", 28),
    "many-nothing": _many("a sync of 2,000 tables, nothing new", 1.4),
    "many-changed": _many("a sync of 2,000 tables of which 10 changed", 2.8),
    "many-listed": _many("`tables` of 2,000 tables", 1.4),
    "many-validated": _many("`dagster definitions validate` with 2,000 tables", 1.4),
    "trickle-million": _cpu_seconds(
        "a sync of 1,000 changes into a mirror of a million rows, warm", 0.5
    ),
    "trickle-million-seen": _seconds(
        "the same, until a reader of the newest watermark sees it", 1.5
    ),
    "trickle-ten-million": _cpu_seconds(
        "a sync of 1,000 changes into a mirror of ten million rows, warm", 1.5
    ),
    "trickle-ten-million-seen": _seconds(
        "the same, until a reader of the newest watermark sees it", 3
    ),
    "first-batch": _cpu_seconds(
        "the first 1,000 changes of a process into a mirror of a million rows, imports not counted",
        2,
    ),
    "own-process": _value(
        "`ticdc-assets sync` with 1,000 changes into a mirror of 200,000 rows, more than with "
        "nothing new",
        1.5,
        "CPU s",
    ),
    "read-after-trickle": _value(
        "reading a mirror of a million rows after 200 batches of 1,000 changes and "
        "`maintain`, against the same rows in large files, the slowest way to read",
        1.3,
        "x the time",
    ),
    "sustained-p50": _seconds(
        "500 changes/s over ten tables of a million rows: from a change to its cut, half of them",
        2,
    ),
    "sustained-p99": _value("the same, 99 of 100 changes", 5, "s"),
    "million-cold": _cpu_seconds(
        "`ticdc-assets sync` of a million changes of a table of 12 columns, Canal-JSON, a "
        "fresh process, an empty lake",
        35,
    ),
    "rebuild": _cpu(
        "`ticdc-assets rebuild` of these changes, against the time of that sync",
        1.3,
        unit="x the CPU of the sync",
    ),
}
"""What each goal asks for, by its name."""
