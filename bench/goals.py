"""Goals: what the benchmarks are to reach, beside what they did reach.

In: results that name a goal (`Result.goal`), and values that are no piece of work, such as bytes
(`Reached`). Out: one line a goal, with goal, stretch, result, and whether it is met.

A measurement names its goal and nothing more: which figure of it counts (a ratio of CPU seconds, a
ratio of wall times, a rate, seconds) stands here, with the bounds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Goal(StrEnum):
    """Every goal, by the name that a measurement gives."""

    DECODE_SIMPLE_JSON = "decode-simple-json"
    DECODE_CANAL_JSON = "decode-canal-json"
    DECODE_OPEN = "decode-open"
    TYPED_SIMPLE_JSON = "typed-simple-json"
    TYPED_CANAL_JSON = "typed-canal-json"
    TYPED_OPEN = "typed-open"
    DECODE_SIMPLE_AVRO = "decode-simple-avro"
    DECODE_CRAFT = "decode-craft"
    CRAFT_BYTES = "craft-bytes"
    SHUFFLED_SIMPLE_JSON = "shuffled-simple-json"
    SHUFFLED_CANAL_JSON = "shuffled-canal-json"
    SHUFFLED_OPEN = "shuffled-open"
    SPARK_SIMPLE_JSON = "spark-simple-json"
    SPARK_CANAL_JSON = "spark-canal-json"
    SPARK_OPEN = "spark-open"
    SPARK_SIMPLE_AVRO = "spark-simple-avro"
    SPARK_CRAFT = "spark-craft"
    END_TO_END = "end-to-end"
    PARTITIONS = "partitions"
    WIDE_ROWS = "wide-rows"
    MIRROR_CPU = "mirror-cpu"
    MIRROR_MERGE = "mirror-merge"
    MIRROR_BYTES = "mirror-bytes"
    NOTHING_NEW = "nothing-new"
    SMALL_SYNC = "small-sync"
    SMALL_SYNC_SEEN = "small-sync-seen"
    MEMORY_GROWTH = "memory-growth"
    MEMORY_PEAK = "memory-peak"
    SEED_CSV = "seed-csv"
    SEED_SQL = "seed-sql"
    SEED_MEMORY = "seed-memory"
    DIFF = "diff"
    MANY_FIRST = "many-first"
    MANY_NOTHING = "many-nothing"
    MANY_CHANGED = "many-changed"
    MANY_LISTED = "many-listed"
    MANY_VALIDATED = "many-validated"
    TRICKLE_MILLION = "trickle-million"
    TRICKLE_MILLION_SEEN = "trickle-million-seen"
    TRICKLE_TEN_MILLION = "trickle-ten-million"
    TRICKLE_TEN_MILLION_SEEN = "trickle-ten-million-seen"
    FIRST_BATCH = "first-batch"
    OWN_PROCESS = "own-process"
    READ_AFTER_TRICKLE = "read-after-trickle"
    SUSTAINED_P50 = "sustained-p50"
    SUSTAINED_P99 = "sustained-p99"
    MILLION_COLD = "million-cold"
    REBUILD = "rebuild"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """What was reached of a goal.

    Attributes:
        goal: the goal.
        value: what was measured.
    """

    goal: Goal
    value: float


TITLES = ("goal", "what", "wanted", "stretch", "reached", "met")


def goal_lines(reached: Sequence[Reached]) -> list[tuple[str, ...]]:
    """Return one line for every goal, in the order of `Goal`; cells as in `TITLES`."""
    known: Mapping[Goal, Reached] = {item.goal: item for item in reached}
    lines: list[tuple[str, ...]] = []
    for goal in Goal:
        target, item = TARGETS[goal], known.get(goal)
        head = (str(goal), target.what, target.wanted(target.bound), target.wanted(target.stretch))
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


TARGETS: Mapping[Goal, Target] = {
    Goal.DECODE_SIMPLE_JSON: _faster(f"Simple JSON: {_AS_SENT}", 2.5, 4),
    Goal.DECODE_CANAL_JSON: _faster(f"Canal-JSON: {_AS_SENT}", 2.5, 4),
    Goal.DECODE_OPEN: _faster(f"Open Protocol: {_AS_SENT}", 2, 3),
    Goal.TYPED_SIMPLE_JSON: _faster(f"Simple JSON: {_TYPED}", 1.2, 2),
    Goal.TYPED_CANAL_JSON: _faster(f"Canal-JSON: {_TYPED}", 1.3, 2),
    Goal.TYPED_OPEN: _faster(f"Open Protocol: {_TYPED}", 1.1, 2),
    Goal.DECODE_SIMPLE_AVRO: _faster(f"Simple Avro: {_AS_SENT}", 2.3, 5, "x fastavro"),
    Goal.DECODE_CRAFT: _faster(
        f"Craft: {_AS_SENT}, against json.loads of Open Protocol's documents of the same rows",
        1.5,
        4,
    ),
    Goal.CRAFT_BYTES: _value(
        "Craft: bytes a row, against those of TiCDC's encoder for the same rows", 1, "x TiCDC's"
    ),
    Goal.SHUFFLED_SIMPLE_JSON: _shuffled("Simple JSON"),
    Goal.SHUFFLED_CANAL_JSON: _shuffled("Canal-JSON"),
    Goal.SHUFFLED_OPEN: _shuffled("Open Protocol"),
    Goal.SPARK_SIMPLE_JSON: _stage("Simple JSON", 0.7),
    Goal.SPARK_CANAL_JSON: _stage("Canal-JSON", 0.5),
    Goal.SPARK_OPEN: _stage("Open Protocol", 0.5),
    Goal.SPARK_SIMPLE_AVRO: _stage("Simple Avro", 0.5),
    Goal.SPARK_CRAFT: _stage("Craft", 0.5),
    Goal.END_TO_END: Target(
        what="Kafka to mirrors: 70 % inserts, 20 % updates, 10 % deletes over 10 tables",
        figure=Figure.RATE,
        bound=55_000,
        unit="rows/s",
        at_most=False,
    ),
    Goal.PARTITIONS: _value(
        "a sync of 20,000 changes from 64 partitions, against one from 4", 1.25, _CPU
    ),
    Goal.WIDE_ROWS: _value(
        "a sync of 20,000 new rows of 500 columns, against one of 12 columns, each value", 2, _CPU
    ),
    Goal.MIRROR_CPU: _cpu(
        "changes into a large mirror, against the same into one of a tenth", 1.5, 1.2
    ),
    Goal.MIRROR_MERGE: _value(
        "CPU of that, against a MERGE of typed rows that rewrites files", 0.1, "x the MERGE's"
    ),
    Goal.MIRROR_BYTES: _value(
        "bytes written by that, against a MERGE that rewrites files", 0.1, "x the MERGE's"
    ),
    Goal.NOTHING_NEW: _seconds("a sync with nothing new, warm", 1, 0.3),
    Goal.SMALL_SYNC: _seconds("a sync of 10 tables with 100 changes each, warm", 8, 4),
    Goal.SMALL_SYNC_SEEN: _seconds(
        "the same, until a reader of the newest watermark sees it", 4, 2
    ),
    Goal.MEMORY_GROWTH: _value(
        "peak memory (JVM and Python) of five times the changes, against once", 1.1, "x the memory"
    ),
    Goal.MEMORY_PEAK: _value(
        "peak memory (JVM and Python) of the larger of these runs", 6, "GB", 4
    ),
    Goal.SEED_CSV: _cpu(
        "an export to a mirror: a table of 12 columns, from CSV, against Spark's copy of it "
        "into a Delta table",
        2.2,
    ),
    Goal.SEED_SQL: _cpu("the same from SQL, against the copy from CSV", 2.2),
    Goal.SEED_MEMORY: _value(
        "peak memory (JVM and Python) of ten times the rows, against ten seeds of once",
        1.1,
        "x the memory",
    ),
    Goal.DIFF: _seconds("a comparison of a million rows with an export", 60),
    Goal.MANY_FIRST: _many("first sync of 2,000 tables of 20 rows", 28),
    Goal.MANY_NOTHING: _many("a sync of 2,000 tables, nothing new", 1.4),
    Goal.MANY_CHANGED: _many("a sync of 2,000 tables of which 10 changed", 2.8),
    Goal.MANY_LISTED: _many("`tables` of 2,000 tables", 1.4),
    Goal.MANY_VALIDATED: _many("`dagster definitions validate` with 2,000 tables", 1.4),
    Goal.TRICKLE_MILLION: _cpu_seconds(
        "a sync of 1,000 changes into a mirror of a million rows, warm", 0.5
    ),
    Goal.TRICKLE_MILLION_SEEN: _seconds(
        "the same, until a reader of the newest watermark sees it", 1.5
    ),
    Goal.TRICKLE_TEN_MILLION: _cpu_seconds(
        "a sync of 1,000 changes into a mirror of ten million rows, warm", 1.5
    ),
    Goal.TRICKLE_TEN_MILLION_SEEN: _seconds(
        "the same, until a reader of the newest watermark sees it", 3
    ),
    Goal.FIRST_BATCH: _cpu_seconds(
        "the first 1,000 changes of a process into a mirror of a million rows, imports not counted",
        2,
    ),
    Goal.OWN_PROCESS: _value(
        "`ticdc-assets sync` with 1,000 changes into a mirror of 200,000 rows, more than with "
        "nothing new",
        1.5,
        "CPU s",
    ),
    Goal.READ_AFTER_TRICKLE: _value(
        "reading a mirror of a million rows after 200 batches of 1,000 changes and "
        "`maintain`, against the same rows in large files, the slowest way to read",
        1.3,
        "x the time",
    ),
    Goal.SUSTAINED_P50: _seconds(
        "500 changes/s over ten tables of a million rows: from a change to its cut, half of them",
        2,
    ),
    Goal.SUSTAINED_P99: _value("the same, 99 of 100 changes", 5, "s"),
    Goal.MILLION_COLD: _cpu_seconds(
        "`ticdc-assets sync` of a million changes of a table of 12 columns, Canal-JSON, a "
        "fresh process, an empty lake",
        35,
    ),
    Goal.REBUILD: _cpu(
        "`ticdc-assets rebuild` of these changes, against the time of that sync",
        1.3,
        unit="x the CPU of the sync",
    ),
}
"""What each goal asks for."""
