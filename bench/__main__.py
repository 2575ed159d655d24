"""`python -m bench`: measure, print the tables, and write them into bench/figures.md.

Everything is measured in one run, part after part, each in a process of its own. What was measured
is kept in bench/measured.json, from which the document's tables and plots are made; `--only NAME`
measures one part again and leaves what is kept of the others. A part that fails is told, the others
are measured all the same, and the exit code is 1.

`--quick` takes all parts on very little, in one process and a minute or two, to see that they work:
its figures say nothing, and nothing is kept of them.
"""

import shutil
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

import click

from bench.apart import apart
from bench.parts import PARTS, Scale, run_part
from bench.plots import draw
from bench.results import Report, Run, read_runs, write_runs

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "bench" / "figures.md"
IMAGES = ROOT / "docs" / "images"
KEPT = ROOT / "bench" / "measured.json"


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(PARTS)), help="Measure this part.")
@click.option("--quick", is_flag=True, help="Measure very little, to see that all of it works.")
@click.option("--write/--no-write", default=True, show_default=True, help="Keep what is measured.")
@click.option("--render", is_flag=True, help="Make tables and plots of what is kept, and stop.")
def main(only: tuple[str, ...], quick: bool, write: bool, render: bool) -> None:
    """Measure what the project costs, beside the goals it has."""
    if render:
        keep(read_runs(KEPT))
        return
    names = [name for name in PARTS if name in only or not only]
    runs = run_quickly(names) if quick else run_apart(names)
    Report(runs=runs).show()
    if write and not quick:
        fresh = {run.name: run for run in runs}
        kept = {run.name: run for run in read_runs(KEPT)} | fresh
        keep([kept[name] for name in PARTS if name in kept])
    if len(runs) < len(names):
        sys.exit(1)


def run_apart(names: Sequence[str]) -> list[Run]:
    """Measure parts, each in a process of its own; those that fail are told and left out."""
    runs: list[Run] = []
    for name in names:
        note(name)
        folder = Path(tempfile.mkdtemp(prefix="ticdc_assets_bench_"))
        try:
            done = apart(run_part, name, Scale(), folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        error = done.exception()
        if error is not None:
            note(f"{name} failed:\n{''.join(traceback.format_exception(error))}")
            continue
        runs.append(done.result())
        note(runs[-1].told())
    return runs


def run_quickly(names: Sequence[str]) -> list[Run]:
    """Measure very little of each part, all of them here, so that Spark is started only once."""
    folder = Path(tempfile.mkdtemp(prefix="ticdc_assets_bench_"))
    try:
        return [run_part(name, Scale(quick=True), folder) for name in names]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def keep(runs: Sequence[Run]) -> None:
    """Keep runs, and make the document's tables and plots of them."""
    write_runs(KEPT, runs)
    report = Report(runs=runs)
    report.write(DOCUMENT)
    for path in [DOCUMENT, *draw(report, IMAGES)]:
        note(f"wrote {path}")


def note(text: str) -> None:
    """Say on standard error what is being measured."""
    click.echo(text, err=True)


if __name__ == "__main__":
    main()
