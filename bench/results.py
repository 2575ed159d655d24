"""Results: one line a piece of work, shown on the terminal and kept in bench/figures.md.

In: what each part of the benchmark measured (`Run`). Out: a table of goals and one for each
section on standard output, and the same as Markdown between two markers of the document; what
is around them stays as it is. Runs are kept in a file, so that one part can be run again
without the others.
"""

import math
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import assert_never

import msgspec
from rich.console import Console
from rich.table import Table

from bench.fitting import REACH, Fit, fitted
from bench.goals import TARGETS, TITLES, Figure, Reached, goal_lines
from bench.measuring import Memory, Sample

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"

GOALS_PLOT = "performance-goals.svg"
GROWTH_PLOT = "performance-growth.svg"
SHARES_PLOT = "performance-shares.svg"
TRICKLE_PLOT = "performance-trickle.svg"
"""What the plots are called, which `bench.plots` draws."""

IMAGES = "../docs/images"
"""Where the document finds the plots."""

GROWS = 1.1
"""The power that a cost may have of what it is of: in proportion, and a little for chance."""
CONSTANT = 0.1
"""The power that it may have of what should not matter."""

FASTER = "x"
SLOWER = "x the time of"

_PACKAGES = ("pyspark", "delta-spark", "deltalake", "pyarrow", "msgspec", "orjson")
_GROWTH_TITLES = ("what", "from", "to", "exponent", "limit", "met")
_TITLES = ("what", "median", "min to max", "CPU", "rate", "ratio", "of CPU")


@dataclass(frozen=True, slots=True)
class Result:
    """One piece of work as measured.

    Attributes:
        section: heading it stands under.
        what: what was done.
        sample: how long it took.
        count: how many of `unit` were done in one repetition; 0 for no rate.
        unit: what is counted.
        base: what it is compared with, None for nothing.
        compared: how the comparison reads: `FASTER` gives speed by the base's, `SLOWER` time by
            the base's.
        goal: the name of the goal it is measured for, None for none.
    """

    section: str
    what: str
    sample: Sample
    count: int = 0
    unit: str = "rows"
    base: Sample | None = None
    compared: str = ""
    goal: str | None = None

    def reached(self) -> Reached | None:
        """Return what it says about its goal, None if it has none."""
        if self.goal is None:
            return None
        match TARGETS[self.goal].figure:
            case Figure.CPU_RATIO:
                value = self._cpu_ratio()
            case Figure.WALL_RATIO:
                value = self._wall_ratio()
            case Figure.RATE:
                value = self.count / self.sample.median
            case Figure.SECONDS:
                value = self.sample.median
            case Figure.CPU_SECONDS:
                value = self.sample.cpu_seconds
            case Figure.VALUE:
                raise ValueError(f"{self.goal} is no time of a piece of work: give a Reached")
            case _ as unknown:
                assert_never(unknown)
        return Reached(goal=self.goal, value=value)

    def cells(self) -> tuple[str, ...]:
        """Return what stands in the line."""
        rate = f"{_rounded(self.count / self.sample.median)} {self.unit}/s" if self.count else ""
        ratio = cpu_ratio = ""
        if self.base is not None:
            ratio = f"{self._wall_ratio():.2f} {self.compared}"
            cpu_ratio = f"{self._cpu_ratio():.2f}"
        return (
            self.what,
            _time(self.sample.median),
            f"{_time(self.sample.least)} to {_time(self.sample.most)}",
            _time(self.sample.cpu_seconds),
            rate,
            ratio,
            cpu_ratio,
        )

    def _wall_ratio(self) -> float:
        assert self.base is not None
        return self._ratio(self.sample.median, self.base.median)

    def _cpu_ratio(self) -> float:
        assert self.base is not None
        return self._ratio(self.sample.cpu_seconds, self.base.cpu_seconds)

    def _ratio(self, own: float, base: float) -> float:
        if self.compared.startswith(SLOWER):
            own, base = base, own
        return base / own if own else float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line of a plot: how a cost grows.

    Attributes:
        plot: title of the plot it is in.
        x: what grows.
        y: the cost, with its unit.
        name: which line of the plot.
        points: pairs of both.
        limit: the power that its growth may have (`fitting`), None if nothing is asked of it.
        picture: the file that the plot is in.
    """

    plot: str
    x: str
    y: str
    name: str
    points: tuple[tuple[float, float], ...]
    limit: float | None = None
    picture: str = GROWTH_PLOT

    @property
    def fit(self) -> Fit | None:
        """How it grows, None if nothing is asked of it."""
        if self.limit is None:
            return None
        return fitted(self.points, reach=math.inf if self.limit == CONSTANT else REACH)

    @property
    def is_within(self) -> bool:
        """Whether it grows no faster than it may."""
        return self.fit is None or self.limit is None or self.fit.power <= self.limit

    def cells(self) -> tuple[str, ...] | None:
        """Return its line in the table of growth, None if it has none."""
        fit = self.fit
        if fit is None or self.limit is None:
            return None
        named = "" if self.name == self.y else f", {self.name}"
        return (
            f"{self.plot}{named}: {self.y} by {self.x}",
            f"{fit.least:,.0f}",
            f"{fit.most:,.0f}",
            f"{fit.power:.2f}",
            f"{self.limit:g}",
            "yes" if self.is_within else "no",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """One bar of a plot: of what the time of a piece of work is made.

    Attributes:
        what: the piece of work.
        seconds: the parts by name, in their order.
    """

    what: str
    seconds: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one part of the benchmark measured.

    Attributes:
        results: in their order.
        facts: sentences about it (where messages are from, what is not measured).
        reached: what is known of goals beside what results say.
        series: lines of plots.
        shares: bars of plots.
    """

    results: Sequence[Result] = ()
    facts: Sequence[str] = ()
    reached: Sequence[Reached] = ()
    series: Sequence[Series] = ()
    shares: Sequence[Shares] = ()

    @classmethod
    def joined(cls, parts: Sequence["Part"]) -> "Part":
        """Return what several parts measured as one."""
        return cls(
            results=[item for part in parts for item in part.results],
            facts=[item for part in parts for item in part.facts],
            reached=[item for part in parts for item in part.reached],
            series=[item for part in parts for item in part.series],
            shares=[item for part in parts for item in part.shares],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One part of the benchmark as it was run.

    Attributes:
        name: of the part.
        part: what it measured.
        seconds: how long that took, preparations and repetitions included.
        memory: of the moment at which most was used, a Kafka broker left out.
        load: load of the machine just before.
        machine: where and with what.
    """

    name: str
    part: Part
    seconds: float
    memory: Memory
    load: float
    machine: str

    def told(self) -> str:
        """Return one line about the run."""
        return (
            f"{self.name}: {self.seconds / 60:.1f} min, load before {self.load:.1f}, peak memory "
            f"{self.memory.python} MB in Python and {self.memory.jvm} MB in the JVM"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that was run, as it is read.

    Attributes:
        runs: the parts, in their order.
    """

    runs: Sequence[Run]

    @property
    def results(self) -> list[Result]:
        """The results of all parts."""
        return [result for run in self.runs for result in run.part.results]

    @property
    def reached(self) -> list[Reached]:
        """What is known of goals."""
        found = [item for result in self.results if (item := result.reached()) is not None]
        return found + [item for run in self.runs for item in run.part.reached]

    def sections(self) -> list[str]:
        """Return the headings, each once."""
        return list(dict.fromkeys(result.section for result in self.results))

    def show(self) -> None:
        """Print the tables."""
        console = Console(width=None if Console().is_terminal else 150)
        for table in self._tables():
            console.print(table.shown())
        for fact in self._facts():
            console.print(fact)

    def markdown(self) -> str:
        """Return the tables for the document."""
        lines = [line for table in self._tables() for line in table.markdown()]
        return "\n".join([*lines, *(f"- {fact}" for fact in self._facts())])

    def _tables(self) -> "Iterator[_Table]":
        """Yield the tables, each with the pictures that come after it in the document."""
        pictures = [("How far each goal is reached", GOALS_PLOT)]
        if any(run.part.shares for run in self.runs):
            pictures.append(("Where the time of a sync goes", SHARES_PLOT))
        if reached := self.reached:
            yield _Table("Goals", TITLES, goal_lines(reached), range(0), pictures)
        series = [item for run in self.runs for item in run.part.series]
        if series:
            growth = [line for item in series if (line := item.cells()) is not None]
            plots = {item.picture: item.plot for item in series}
            pictures = [
                ("How costs grow" if picture == GROWTH_PLOT else plot, picture)
                for picture, plot in plots.items()
            ]
            yield _Table("How costs grow", _GROWTH_TITLES, growth, range(1, 5), pictures)
        for section in self.sections():
            lines = [item.cells() for item in self.results if item.section == section]
            yield _Table(section, _TITLES, lines, range(1, len(_TITLES)))

    def _facts(self) -> list[str]:
        facts = [fact for run in self.runs for fact in run.part.facts]
        machines = dict.fromkeys(run.machine for run in self.runs)
        return [
            *facts,
            "Parts as run: " + "; ".join(run.told() for run in self.runs) + ".",
            *machines,
        ]

    def write(self, document: Path) -> None:
        """Put the tables between the markers of `document`."""
        text = document.read_text(encoding="utf-8")
        before, begin, rest = text.partition(BEGIN)
        _, end, after = rest.partition(END)
        if not begin or not end:
            raise ValueError(f"{document} lacks the markers {BEGIN} and {END}")
        document.write_text(f"{before}{begin}\n\n{self.markdown()}\n\n{end}{after}", "utf-8")


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of a report.

    Attributes:
        title: its heading.
        columns: its columns.
        lines: its cells.
        right: the numbers of columns that are aligned to the right.
        pictures: what is after it in the document: descriptions and files.
    """

    title: str
    columns: Sequence[str]
    lines: Sequence[Sequence[str]]
    right: range
    pictures: Sequence[tuple[str, str]] = ()

    def shown(self) -> Table:
        """Return it for a terminal."""
        table = Table(title=self.title, title_justify="left")
        for number, column in enumerate(self.columns):
            table.add_column(column, justify="right" if number in self.right else "left")
        for line in self.lines:
            table.add_row(*line)
        return table

    def markdown(self) -> list[str]:
        """Return the lines of a document."""
        marks = ["---:" if number in self.right else "---" for number in range(len(self.columns))]
        rows = [f"| {' | '.join(cells)} |" for cells in (self.columns, *self.lines)]
        table = [rows[0], f"|{'|'.join(marks)}|", *rows[1:], ""] if self.lines else []
        pictures = [
            line for what, file in self.pictures for line in (f"![{what}]({IMAGES}/{file})", "")
        ]
        return [f"### {self.title}", "", *table, *pictures]


def read_runs(path: Path) -> list[Run]:
    """Return the runs that a file keeps; none if there is no such file."""
    if not path.exists():
        return []
    return msgspec.json.decode(path.read_bytes(), type=list[Run])


def write_runs(path: Path, runs: Sequence[Run]) -> None:
    """Keep runs in a file."""
    text = msgspec.json.format(msgspec.json.encode(list(runs)), indent=1)
    path.write_bytes(text + b"\n")


def machine() -> str:
    """Return one sentence about where and with what this is measured."""
    packages = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    return (
        f"Measured on {datetime.now(UTC):%Y-%m-%d}: {os.cpu_count()} cores ({platform.machine()}), "
        f"Python {platform.python_version()}, {packages}."
    )


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    if seconds >= 0.001:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds * 1e6:.0f} µs"


def _rounded(rate: float) -> str:
    if rate >= 100_000:
        return f"{rate / 1000:,.0f}k"
    if rate >= 1_000:
        return f"{rate / 1000:,.1f}k"
    return f"{rate:,.0f}"
