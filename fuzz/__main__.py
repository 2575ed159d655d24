"""`python -m fuzz`: damage messages, see that the decoders stand it, and print a table.

One format after the other, each for `--seconds` or `--count` inputs, whichever comes first. Exits
with 1 if something failed; the inputs are then in the folder `--failures`, and `--replay` looks at
one of them again.
"""

import sys
import time
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from fuzz.findings import read_failure
from fuzz.running import Bounds, Report, random_seed, run
from fuzz.targets import NAMES, make_target

ALL = "all"
FOLDER = Path(__file__).resolve().parent.parent / ".fuzz"
DEFAULT_SECONDS = 60.0

_PROGRESS_SECONDS = 5.0
_TITLES = (
    "format",
    "inputs",
    "a second",
    "accepted",
    "refused, and the most frequent reasons",
    "slowest",
    "growth",
    "peak",
    "failures",
)


@click.command()
@click.option(
    "--format",
    "name",
    type=click.Choice([ALL, *NAMES]),
    default=ALL,
    show_default=True,
    help="Format whose decoders are fuzzed.",
)
@click.option("--seconds", type=float, help="Time for each format; 60 without --count.")
@click.option("--count", type=int, help="Inputs of each format.")
@click.option("--seed", type=int, help="Seed of all inputs; a new one if not given.")
@click.option(
    "--failures",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=FOLDER,
    show_default=True,
    help="Where failing inputs are written.",
)
@click.option(
    "--replay",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Look at the input in this file again, and stop.",
)
def main(
    name: str,
    seconds: float | None,
    count: int | None,
    seed: int | None,
    folder: Path,
    replay: Path | None,
) -> None:
    """Fuzz the decoders and what understands DDL text."""
    if replay is not None:
        sys.exit(replayed(replay))
    if seconds is None and count is None:
        seconds = DEFAULT_SECONDS
    if seed is None:
        seed = random_seed()
    note(f"seed {seed}")
    names = NAMES if name == ALL else [name]
    bounds = Bounds(inputs=count, seconds=seconds)
    reports = [
        run(
            partial(make_target, each),
            seed=seed,
            bounds=bounds,
            folder=folder,
            progress=Progress(),
        )
        for each in names
    ]
    show(reports)
    sys.exit(1 if any(report.failures for report in reports) else 0)


def replayed(path: Path) -> int:
    """Look at the inputs in a file again; return 1 if something fails, else 0."""
    name, batch = read_failure(path)
    findings = make_target(name).check(batch, lambda _: None)
    for failure in findings.failures:
        note(f"{failure.kind}\n{failure.text}")
    reasons = ", ".join(findings.reasons) or "none"
    note(
        f"{findings.inputs} inputs, {findings.accepted} accepted, refused: {reasons}, "
        f"{len(findings.failures)} failures"
    )
    return 1 if findings.failures else 0


class Progress:
    """Says every few seconds how far it is."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _PROGRESS_SECONDS

    def __call__(self, report: Report) -> None:
        """Take the state of a run."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _PROGRESS_SECONDS
        findings = report.findings
        note(
            f"{report.name}: {report.seconds:.0f} s, {findings.inputs:,} inputs, "
            f"{findings.accepted:,} accepted, {report.failures.total():,} failures"
        )


def show(reports: list[Report]) -> None:
    """Print the table, and the failures."""
    console = Console(width=None if Console().is_terminal else 170)
    table = Table(show_lines=True)
    for title in _TITLES:
        table.add_column(title, justify="left" if title[0] == "r" or title == "format" else "right")
    for report in reports:
        findings = report.findings
        refused = findings.reasons.total()
        most = ", ".join(
            f"{reason} {number:,}" for reason, number in findings.reasons.most_common(5)
        )
        table.add_row(
            report.name,
            f"{findings.inputs:,}",
            f"{findings.inputs / max(report.seconds, 0.001):,.0f}",
            f"{findings.accepted:,}",
            f"{refused:,}: {most}" if refused else "0",
            f"{findings.slowest * 1000:.0f} ms ({findings.slowest_size:,} bytes)",
            f"{findings.growth:.0f} x",
            f"{findings.peak_megabytes} MB",
            f"{report.failures.total():,}",
        )
    console.print(table)
    for report in reports:
        for kind, number in report.failures.most_common():
            note(f"{report.name}: {kind}: {number:,}")
        for path in report.files:
            note(f"  {path}")
    sources = dict.fromkeys(f"{report.name} from {report.source}" for report in reports)
    note(f"seeds: {', '.join(sources)}")


def note(text: str) -> None:
    """Say something on standard error."""
    click.echo(text, err=True)


if __name__ == "__main__":
    main()
