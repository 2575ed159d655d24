"""The demo as somebody runs it: a program with a folder of its own.

Of the commands that it prints, one of each program is typed into a shell; the others run here.
"""

import os
import re
import shlex
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import psutil
import pytest

from ticdc_assets.base.errors import ConfigError
from ticdc_assets.base.ports import free_port, port_is_free
from ticdc_assets.config import HOME_VARIABLE
from ticdc_assets.demo.place import run_upstream, use_demo
from ticdc_assets.reading.mirrors import read_mirror
from ticdc_assets_tests.commands import Commands, Done
from ticdc_assets_tests.conftest import OF_THE_USER

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def mirrors_of(output: str) -> dict[str, tuple[int, str]]:
    """Return rows and verdict of every mirror of the demo's table."""
    lines = [
        [cell.strip() for cell in line.strip("│ ").split("│")]
        for line in output.splitlines()
        if line.startswith("│")
    ]
    return {line[0]: (int(line[1]), line[4]) for line in lines if len(line) == 5}


def sample_of(output: str) -> list[list[str]]:
    """Return the header and the rows of the sample that the demo prints."""
    _, _, sample = output.rpartition("shop.customers")
    cells = [re.split("[┃│]", line)[1:-1] for line in sample.splitlines() if line[:1] in "┃│"]
    return [[cell.strip() for cell in row] for row in cells]


ROOT = Path(__file__).parents[2]
START_SECONDS = 240
SHOWN_SECONDS = 60
"""Far more than it takes, for a machine that does other things too."""


def wait_until(is_so: Callable[[], bool], what: Callable[[], str], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, what()
        time.sleep(0.2)


def orders() -> dict[int, dict[str, Any]]:
    table = read_mirror(None, "shop", "shop", "orders", engine="arrow")
    return {int(row["order_id"]): row for row in table.to_pylist()}


def test_the_demo(class_archive: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TICDC_CHANGEFEEDS", "TICDC_LAKE", HOME_VARIABLE):
        monkeypatch.setenv(name, "")  # so that what `use_demo` sets is taken back
    monkeypatch.chdir(tmp_path)
    folder, port = tmp_path / ".demo", free_port()
    commands = Commands(tmp_path)
    demo = ("demo", "--directory", folder)
    env = {name: value for name, value in os.environ.items() if name not in OF_THE_USER}

    def typed(line: str) -> Done:
        """Run a line as somebody types it, in a shell without our settings."""
        return subprocess.run(
            line, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )

    def here(line: str) -> Done:
        """Run a line that begins with our program in this process."""
        return commands.here(*shlex.split(line)[1:])

    out, err = tmp_path / "out", tmp_path / "err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        sizes = ("--transactions", 100, "--seconds", 4, "--live", "--port", port)
        process = commands.start(*demo, *sizes, stdout=stdout, stderr=stderr)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until(
            lambda: f"the Dagster UI is at {url}" in err.read_text() or process.poll() is not None,
            err.read_text,
            START_SECONDS,
        )
        assert process.poll() is None, err.read_text()
        started = psutil.Process(process.pid).children(recursive=True)
        assert len(started) > 3, "Spark, the broker, the UI"
        with urllib.request.urlopen(f"{url}/server_info", timeout=60) as response:
            assert response.status == 200

        # What it says to type changes the mirror, one statement of each kind.
        use_demo(folder)
        examples = re.findall(r"^  (.* upstream .*)$", err.read_text(), re.MULTILINE)
        number = int(examples[0].rpartition(" ")[2].strip('"'))
        pieces = orders()[number]["pieces"]
        shown: tuple[Callable[[], bool], ...] = (
            lambda: orders()[number]["pieces"] == pieces + 1,
            lambda: 100001 in orders(),
            lambda: 100001 not in orders(),
            lambda: orders()[number].get("gift") == 0,
        )
        for count, (line, is_shown) in enumerate(zip(examples, shown, strict=True)):
            assert not is_shown()
            done = here(line) if count else typed(line)
            assert done.returncode == 0, done.stderr
            assert "shop.orders: " in done.stdout
            wait_until(is_shown, lambda line=line: f"{line}: {err.read_text()}", SHOWN_SECONDS)
        program = examples[0].partition(" --demo")[0]
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        for line in re.findall(r"^\.venv/bin/ticdc-assets( --demo .*)$", readme, re.MULTILINE):
            done = here(f"{program}{line}")
            assert done.returncode == 0, done.stderr
        refused = here(f'{program} --demo upstream "LOCK TABLES shop.orders READ"')
        assert refused.returncode == 1
        assert "LOCK is not supported here; nothing was changed" in refused.stderr
        assert "UPDATE database.table SET" in refused.stderr
        for other in ((*demo, "--live"), ("ui", "--demo", folder)):
            refused = commands.here(*other)
            assert refused.returncode == 1
            assert f"a live demo (process {process.pid}, Dagster UI at {url})" in refused.stderr

        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0, err.read_text()
    finally:
        process.kill()
    assert not psutil.wait_procs(started, timeout=10)[1], "a process outlived the demo"
    assert port_is_free(port)
    with pytest.raises(ConfigError, match="start one, and keep it running"):
        run_upstream(folder, "DELETE FROM shop.orders")
    told_live = err.read_text()
    for what in (
        rf"~ region=.., order_id={number}: .*pieces: {pieces} -> {pieces + 1}",
        r"shop\.orders \+ .*region=eu, order_id=100001, ",
        r"shop\.orders - .*region=eu, order_id=100001, ",
        r"shop\.orders now has the column gift",
    ):
        assert re.search(what, told_live), told_live

    done = subprocess.CompletedProcess(process.args, 0, out.read_text(), told_live)
    mirrors = mirrors_of(done.stdout)
    assert len(mirrors) > 3
    header, *rows = sample_of(done.stdout)
    assert re.search(rf"^{' +'.join(header)}$", readme, re.MULTILINE), "the README's sample"
    assert [row[0] for row in rows] == ["1", "2", "3"]
    today = datetime.now(ZoneInfo("Asia/Shanghai"))
    days = {f"{today - timedelta(days=n):%Y-%m-%d}" for n in (0, 1)}
    assert {row[-1][:10] for row in rows} <= days
    assert "times are of today in the shop's zone, Asia/Shanghai" in done.stdout
    assert {verdict for _, verdict in mirrors.values()} == {"yes"}
    assert mirrors["shop.orders"][0] == len(orders()), "the order that came since went again"
    # Each line of progress says when; the table alone is on standard output.
    told = [line for line in done.stderr.splitlines() if re.match(r"\d+ s: ", line)]
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
    others = done.stderr.partition("look at the mirrors:\n")[2].splitlines()
    printed = [line.strip() for line in others if line.startswith("  ")]
    assert len(printed) == 4
    for line in printed:
        is_ours = shlex.split(line)[0].endswith("ticdc-assets")
        going_on = here(line) if is_ours else typed(line)
        assert going_on.returncode == 0, f"{line}: {going_on.stderr}"
        assert "orders" in going_on.stdout + line
        assert going_on.stdout.strip()
    assert "Kafka" not in done.stdout


@pytest.mark.slow
def test_a_demo_that_runs_again_starts_over(class_archive: None, tmp_path: Path) -> None:
    commands, folder = Commands(tmp_path), tmp_path / ".demo"
    demo = ("demo", "--directory", folder, "--transactions", 20, "--seconds", 2)
    first = commands.here(*demo)
    assert first.returncode == 0, first.stderr
    assert "in simple-json (dialect ticdc)" in first.stderr
    (folder / "left-over").touch()
    again = commands.here(*demo, "--format", "open-protocol", "--dialect", "tiflow")
    assert again.returncode == 0, again.stderr
    assert "in open-protocol (dialect tiflow)" in again.stderr
    assert not (folder / "left-over").exists()
    assert "format: open-protocol\n" in (folder / "changefeeds.yaml").read_text()
    assert {verdict for _, verdict in mirrors_of(again.stdout).values()} == {"yes"}
    # The first line has the TSO of the comparison.
    assert again.stdout.splitlines()[0] != first.stdout.splitlines()[0]
