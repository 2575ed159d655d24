"""Thousands of tables: what the installed commands cost, each in a fresh process.

In: how many tables, and a scratch folder. Out: CPU seconds of the commands that people type, all
processes below them included, Spark's JVM too: a first sync of all tables into a lake that is new,
one with nothing new, one with ten tables changed, `tables`, `status`, and what Dagster does to
check the definitions. The lake is a folder, Dagster's instance a folder beside it. Each is compared
with what Dagster takes to check a project that has no definitions, in the same run: CPU seconds of
one code differ by half between machines and days.

    a first sync of 2,000 tables x 20 rows    a sync of one row each in 10 of 2,000 tables
"""

import shutil
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.commands import environment, installed, places, run_counted
from bench.goals import Goal
from bench.measuring import Sample
from bench.orders import create_orders
from bench.results import CONSTANT, GROWS, SLOWER, Part, Result, Series
from ticdc_assets.demo.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.stored_table import TableName
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets_tests.demo.simulator.builders import write_capture

SECTION = "Thousands of tables"
CHANGEFEED = "bench"
DATABASE = "shop"
CHANGED = 10
"""How many tables the sync after the first finds changed."""

_EMPTY = "empty_project"
"""The module of a Dagster project without definitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManyTables:
    """Tables with few rows each, and their changefeed into a capture that a command reads."""

    upstream: Upstream
    changefeed: StandInChangefeed
    folder: Path
    names: Sequence[TableName]

    @classmethod
    def open(cls, folder: Path, *, tables: int, rows: int) -> "ManyTables":
        """Create tables with rows, and write them into the capture of a new lake."""
        folder.mkdir(parents=True)
        upstream = Upstream()
        upstream.create_database(DATABASE)
        names = [(DATABASE, f"t{number:05}") for number in range(tables)]
        create_orders(upstream, names, rows=rows)
        changefeed = StandInChangefeed(
            upstream, CHANGEFEED, partitions=4, options=FeedOptions(rows_per_flush=1_000)
        )
        many = cls(upstream=upstream, changefeed=changefeed, folder=folder, names=names)
        many.send()
        (folder / "changefeeds.yaml").write_text(
            f"changefeeds:\n  - name: {CHANGEFEED}\n    format: simple-json\n    timezone: UTC\n"
            f"    source:\n      capture: {many.capture}\n",
            encoding="utf-8",
        )
        return many

    @property
    def capture(self) -> Path:
        """The file that its records are in."""
        return self.folder / "capture.jsonl"

    def send(self) -> None:
        """Write what was committed into the capture, with a watermark."""
        write_capture(self.capture, self.changefeed.tick())

    def change(self, tables: int, state: str) -> None:
        """Change a row of each of some tables, spread over all."""
        for name in self.names[:: max(1, len(self.names) // tables)][:tables]:
            with self.upstream.transaction() as transaction:
                key = next(iter(self.upstream.rows(name)))
                transaction.update(name, key, changes={"state": state, "total": "1.25"})
        self.send()

    def environment(self) -> dict[str, str]:
        """Return the environment of the commands."""
        return environment(places(self.folder))

    def command(self, *words: str) -> Sample:
        """Run `ticdc-assets` with some words and return what it cost."""
        return self._run(installed(*words))

    def validate(self) -> Sample:
        """Let Dagster check the definitions, as a deployment does, and return what it cost."""
        return self._validate("ticdc_assets.definitions")

    def empty(self) -> Sample:
        """Let Dagster check a project without definitions, and return what it cost."""
        (self.folder / f"{_EMPTY}.py").write_text(
            "import dagster as dg\n\ndefs = dg.Definitions()\n", encoding="utf-8"
        )
        return self._validate(_EMPTY)

    def costs(self) -> dict[str, Sample]:
        """Return what each command costs, from a lake that is new on."""
        # What is compiled and cached once on a machine is no part of it.
        self.command("--version")
        self.empty()
        samples = {"first": self.command("sync", CHANGEFEED)}
        rounds = [self._round(state) for state in ("paid", "sent", "new")]
        return samples | {
            name: Sample(
                seconds=tuple(taken[name].median for taken in rounds),
                cpu_seconds=statistics.median(taken[name].cpu_seconds for taken in rounds),
            )
            for name in rounds[0]
        }

    def _round(self, state: str) -> dict[str, Sample]:
        """Return what each command costs once the first sync is done."""
        samples = {"empty": self.empty(), "nothing": self.command("sync", CHANGEFEED)}
        self.change(CHANGED, state)
        samples["changed"] = self.command("sync", CHANGEFEED)
        samples["tables"] = self.command("tables", CHANGEFEED, "--json")
        samples["status"] = self.command("status", CHANGEFEED)
        samples["validate"] = self.validate()
        return samples

    def _validate(self, module: str) -> Sample:
        dagster = str(Path(sys.executable).with_name("dagster"))
        return self._run([dagster, "definitions", "validate", "-m", module])

    def _run(self, command: Sequence[str]) -> Sample:
        with (self.folder / "said.txt").open("ab") as said:
            return run_counted(command, env=self.environment(), cwd=self.folder, said=said.fileno())


_WHAT = {
    "first": "first sync of {tables:,} tables of {rows} rows",
    "nothing": "sync of {tables:,} tables, nothing new",
    "changed": "sync of {tables:,} tables, a row of {changed} of them changed",
    "tables": "`tables --json` of {tables:,} tables",
    "status": "`status` of {tables:,} tables",
    "validate": "`dagster definitions validate` with {tables:,} tables",
    "empty": "`dagster definitions validate` of an empty project, next to {tables:,} tables",
}
"""What each command is measured for; of `_GOALS` those that have one."""

_GOALS = {
    "first": Goal.MANY_FIRST,
    "nothing": Goal.MANY_NOTHING,
    "changed": Goal.MANY_CHANGED,
    "tables": Goal.MANY_LISTED,
    "validate": Goal.MANY_VALIDATED,
}


_ALL = ("first", "tables", "status")
"""What has to do with each table; the others should cost the same for any number."""

_ASKED = 2_000
"""The number of tables that goals are about."""


def measure_many_tables(folder: Path, counts: Sequence[int], *, rows: int) -> Part:
    """Return what the commands cost by the number of tables; goals are of 2,000, or the most."""
    results: list[Result] = []
    costs: dict[str, list[tuple[float, float]]] = {name: [] for name in _WHAT}
    asked = _ASKED if _ASKED in counts else counts[-1]
    note = "" if asked == _ASKED else f"{asked:,} tables"
    for tables in counts:
        many = ManyTables.open(folder / str(tables), tables=tables, rows=rows)
        samples = many.costs()
        for name, what in _WHAT.items():
            costs[name].append((tables, samples[name].cpu_seconds))
            results.append(
                Result(
                    section=SECTION,
                    what=what.format(tables=tables, rows=rows, changed=CHANGED),
                    sample=samples[name],
                    base=None if name == "empty" else samples["empty"],
                    compared=f"{SLOWER} an empty project",
                    goal=_GOALS.get(name) if tables == asked else None,
                    note=note,
                )
            )
        shutil.rmtree(folder / str(tables))
    series = [
        Series(
            plot="Commands",
            x="tables",
            y="CPU seconds",
            name=name,
            points=tuple(points),
            limit=GROWS if name in _ALL else CONSTANT,
        )
        for name, points in costs.items()
        if name != "empty"
    ]
    return Part(results=results, series=series)
