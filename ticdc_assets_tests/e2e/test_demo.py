"""The demo as somebody runs it: a program with a folder of its own."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ticdc_assets_tests.commands import Commands
from ticdc_assets_tests.conftest import OF_THE_USER

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def mirrors_of(output: str) -> dict[str, tuple[int, str]]:
    """Return rows and verdict of every mirror of the demo's table."""
    lines = [
        [cell.strip() for cell in line.strip("│ ").split("│")]
        for line in output.splitlines()
        if line.startswith("│")
    ]
    return {line[0]: (int(line[1]), line[4]) for line in lines}


def test_the_demo(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / ".demo"
    commands = Commands(tmp_path)
    demo = ("demo", "--directory", folder)
    done = commands.program(*demo, "--transactions", 150, "--seconds", 8)
    assert done.returncode == 0, done.stderr
    mirrors = mirrors_of(done.stdout)
    assert len(mirrors) > 3
    assert {verdict for _, verdict in mirrors.values()} == {"yes"}
    truth = [json.loads(line) for line in (folder / "truth.jsonl").read_text().splitlines()]
    assert sum(rows for rows, _ in mirrors.values()) == len(truth)
    # Each line of progress says when; the table alone is on standard output.
    told = [line for line in done.stderr.splitlines() if re.match(r" *\d+ s  ", line)]
    for what in (
        "Kafka answers",
        "Spark is up",
        "the shop opens",
        "the shop is closed",
        "it ended: ",
    ):
        assert any(what in line for line in told), done.stderr
    assert "ui --demo .demo" in done.stderr
    # What it says to go on with works as it is printed, in a shell without our settings.
    others = [line for line in done.stderr.splitlines() if line not in told]
    printed = [line.strip() for line in others if line.startswith("  ")]
    assert len(printed) == 4
    env = {name: value for name, value in os.environ.items() if name not in OF_THE_USER}
    for line in printed:
        going_on = subprocess.run(
            line, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert going_on.returncode == 0, f"{line}: {going_on.stderr}"
        assert "orders" in going_on.stdout + line
        assert going_on.stdout.strip()
    assert "Kafka" not in done.stdout

    # A second run, here for its speed, starts over, in another format.
    (folder / "left-over").touch()
    again = commands.done(*demo, "--format", "open-protocol", "--transactions", 20, "--seconds", 2)
    assert not (folder / "left-over").exists()
    assert "format: open-protocol\n" in (folder / "changefeeds.yaml").read_text()
    assert {verdict for _, verdict in mirrors_of(again).values()} == {"yes"}
    assert mirrors_of(again) != mirrors
