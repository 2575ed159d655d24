"""Results: one line a piece of work, shown on the terminal and kept in docs/performance.md.

In: `Result`s and what the machine is. Out: a table on standard output, and the same as Markdown
between two markers of the document; what stands around them is left as it is.
"""

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.measuring import Sample

BEGIN = "<!-- measured: begin -->"
END = "<!-- measured: end -->"

FASTER = "x"
SLOWER = "x the time of"

_PACKAGES = ("pyspark", "delta-spark", "deltalake", "pyarrow", "msgspec", "orjson")
_TITLES = ("what", "median", "min to max", "CPU", "rate", "ratio", "of CPU")


@dataclass(frozen=True, slots=True, kw_only=True)
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
    """

    section: str
    what: str
    sample: Sample
    count: int = 0
    unit: str = "rows"
    base: Sample | None = None
    compared: str = ""

    def cells(self) -> tuple[str, ...]:
        """Return what stands in the line."""
        rate = f"{_rounded(self.count / self.sample.median)} {self.unit}/s" if self.count else ""
        ratio = cpu_ratio = ""
        if self.base is not None:
            ratio = f"{self._ratio(self.sample.median, self.base.median):.2f} {self.compared}"
            cpu_ratio = f"{self._ratio(self.sample.cpu_seconds, self.base.cpu_seconds):.2f}"
        return (
            self.what,
            _time(self.sample.median),
            f"{_time(self.sample.least)} to {_time(self.sample.most)}",
            _time(self.sample.cpu_seconds),
            rate,
            ratio,
            cpu_ratio,
        )

    def _ratio(self, own: float, base: float) -> float:
        if self.compared.startswith(SLOWER):
            own, base = base, own
        return base / own if own else float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A whole run.

    Attributes:
        results: in their order.
        facts: sentences about the run (memory, where messages are from).
    """

    results: Sequence[Result]
    facts: Sequence[str] = field(default_factory=tuple)

    def sections(self) -> list[str]:
        """Return the headings, each once."""
        return list(dict.fromkeys(result.section for result in self.results))

    def show(self) -> None:
        """Print the tables."""
        console = Console(width=None if Console().is_terminal else 150)
        for section in self.sections():
            table = Table(title=section, title_justify="left")
            for title in _TITLES:
                table.add_column(title, justify="left" if title == "what" else "right")
            for result in self.results:
                if result.section == section:
                    table.add_row(*result.cells())
            console.print(table)
        for fact in [*self.facts, machine()]:
            console.print(fact)

    def markdown(self) -> str:
        """Return the tables for the document."""
        lines: list[str] = []
        for section in self.sections():
            lines += [f"### {section}", "", f"| {' | '.join(_TITLES)} |"]
            lines.append("|---" + "|---:" * (len(_TITLES) - 1) + "|")
            lines += [
                f"| {' | '.join(result.cells())} |"
                for result in self.results
                if result.section == section
            ]
            lines.append("")
        return "\n".join([*lines, *(f"- {fact}" for fact in [*self.facts, machine()])])

    def write(self, document: Path) -> None:
        """Put the tables between the markers of `document`."""
        text = document.read_text(encoding="utf-8")
        before, begin, rest = text.partition(BEGIN)
        _, end, after = rest.partition(END)
        if not begin or not end:
            raise ValueError(f"{document} lacks the markers {BEGIN} and {END}")
        document.write_text(f"{before}{begin}\n\n{self.markdown()}\n\n{end}{after}", "utf-8")


def machine() -> str:
    """Return one sentence about where and with what this was measured."""
    packages = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    load = os.getloadavg()[0]
    return (
        f"Measured on {datetime.now(UTC):%Y-%m-%d}: {os.cpu_count()} cores ({platform.machine()}), "
        f"load {load:.1f}, Python {platform.python_version()}, {packages}."
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
