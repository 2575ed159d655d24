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
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.commands import configure, installed, run_counted
from bench.measuring import Sample
from bench.results import CONSTANT, GROWS, SLOWER, Part, Result, Series
from bench.shop import Shop
from ticdc_assets.config import CaptureSource
from ticdc_assets.demo.simulator.changefeed import FeedOptions
from ticdc_assets.wire import WireFormat

entry = partial(Result, "Thousands of tables")
CHANGEFEED = "bench"
CHANGED = 10
"""How many tables the sync after the first finds changed."""

_EMPTY = "empty_project"
"""The module of a Dagster project without definitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManyTables:
    """Tables with few rows each, and a lake of a command that reads their capture."""

    shop: Shop
    folder: Path

    @classmethod
    def open(cls, folder: Path, *, tables: int, rows: int) -> "ManyTables":
        """Create tables with rows, and write them into the capture of a new lake."""
        folder.mkdir(parents=True)
        source = CaptureSource(path=folder / "capture.jsonl")
        options = FeedOptions(rows_per_flush=1_000)
        shop = Shop.open(source.path, tables=tables, rows=rows, options=options)
        configure(folder, CHANGEFEED, WireFormat.SIMPLE_JSON, source)
        return cls(shop=shop, folder=folder)

    def command(self, *words: str) -> Sample:
        """Run `ticdc-assets` with some words and return what it cost."""
        return run_counted(installed(*words), self.folder)

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
            name: Sample.joined([taken[name] for taken in rounds]) for name in rounds[0]
        }

    def _round(self, state: str) -> dict[str, Sample]:
        """Return what each command costs once the first sync is done."""
        samples = {"empty": self.empty(), "nothing": self.command("sync", CHANGEFEED)}
        names = self.shop.names
        self.shop.change(1, state, names[:: max(1, len(names) // CHANGED)][:CHANGED])
        samples["changed"] = self.command("sync", CHANGEFEED)
        samples["tables"] = self.command("tables", CHANGEFEED, "--json")
        samples["status"] = self.command("status", CHANGEFEED)
        samples["validate"] = self.validate()
        return samples

    def _validate(self, module: str) -> Sample:
        dagster = str(Path(sys.executable).with_name("dagster"))
        return run_counted([dagster, "definitions", "validate", "-m", module], self.folder)


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
    "first": "many-first",
    "nothing": "many-nothing",
    "changed": "many-changed",
    "tables": "many-listed",
    "validate": "many-validated",
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
    for tables in counts:
        many = ManyTables.open(folder / str(tables), tables=tables, rows=rows)
        samples = many.costs()
        for name, what in _WHAT.items():
            costs[name].append((tables, samples[name].cpu_seconds))
            results.append(
                entry(
                    what.format(tables=tables, rows=rows, changed=CHANGED),
                    samples[name],
                    base=None if name == "empty" else samples["empty"],
                    compared=f"{SLOWER} an empty project",
                    goal=_GOALS.get(name) if tables == asked else None,
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
