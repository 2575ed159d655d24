"""How far a command is: lines on standard error where it takes long, never in its output."""

import json
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from ticdc_assets.base.progress import Counted, listened, tell
from ticdc_assets.cli import waiting
from ticdc_assets_tests.commands import Commands, without_progress
from ticdc_assets_tests.golden import Scenario


def test_what_is_told_reaches_everybody_who_listens() -> None:
    first: list[str] = []
    second: list[str] = []
    tell("before")
    with listened(first.append):
        tell("one")
        with listened(second.append):
            tell("two")
        tell("three")
    tell("after")
    assert first == ["one", "two", "three"]
    assert second == ["two"]


def test_things_are_counted_from_any_thread() -> None:
    told: list[str] = []
    counted = Counted("applying", 40)
    threads = [threading.Thread(target=counted.begin, args=(f"t{n}",)) for n in range(40)]
    with listened(told.append):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    begun = [re.fullmatch(r"applying t\d+, (\d+) of 40 tables", text) for text in told]
    assert sorted(int(match[1]) for match in begun if match) == list(range(1, 41))


def lines_of(
    work: Callable[[], None], monkeypatch: pytest.MonkeyPatch, first: float = 0.0
) -> Result:
    """Return what a command prints that calls `work`."""
    monkeypatch.setattr(waiting, "FIRST_SECONDS", first)
    monkeypatch.setattr(waiting, "_BETWEEN_SECONDS", 0.01)

    @click.command()
    @click.pass_context
    def command(context: click.Context) -> None:
        with waiting.progress_lines(context):
            work()
        click.echo("the result")

    return CliRunner().invoke(command, catch_exceptions=False)


def test_a_quick_command_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    result = lines_of(lambda: tell("working"), monkeypatch, first=60)
    assert (result.stdout, result.stderr) == ("the result\n", "")


def test_a_slow_one_says_what_it_does_and_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    pause = threading.Event()

    def work() -> None:
        for text in ("landing", "applying a\x1b[31m", "applying a\x1b[31m", "comparing"):
            tell(text)
            pause.wait(0.3)

    result = lines_of(work, monkeypatch)
    assert result.stdout == "the result\n"
    told = [re.sub(r"^\d+ s: ", "", line) for line in result.stderr.splitlines()]
    assert told[-3:] == ["landing", "applying a\\x1b[31m", "comparing"]
    assert told[:-3] in ([], ["starting"])


def test_a_command_that_says_itself_what_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> None:
        tell("one")
        threading.Event().wait(0.2)
        waiting.end_progress_lines()
        tell("two")
        threading.Event().wait(0.2)

    assert lines_of(work, monkeypatch).stderr.removeprefix("0 s: starting\n") == "0 s: one\n"


def test_a_command_that_loads_for_long_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    result = lines_of(lambda: time.sleep(0.2), monkeypatch)
    assert result.stderr == "0 s: starting\n"


def test_progress_comes_where_a_command_with_lines_of_its_own_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting, "_SILENT_SECONDS", 0.3)

    def work() -> None:
        say, pause = waiting.own_lines().say, threading.Event()
        thread = threading.Thread(target=say, args=("first",))
        thread.start()
        thread.join()
        for text in ("landing", "decoding"):
            tell(text)
            pause.wait(0.1)
        say("second")
        tell("applying")
        pause.wait(0.6)

    lines = lines_of(work, monkeypatch, first=0.2).stderr.splitlines()
    assert [line.partition(": ")[2] for line in lines] == ["first", "second", "applying"]


@pytest.mark.dagster
def test_commands_say_which_table_they_are_at(
    golden_dir: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(waiting, "_BETWEEN_SECONDS", 0.001)
    commands = Commands(tmp_path)
    commands.add_scenario("f", Scenario(golden_dir("simple-json", "types")))
    synced = commands.run("sync", "f")
    assert re.search(r"^\d+ s: applying \S+, \d+ of \d+ tables?$", synced.stderr, re.MULTILINE)
    assert without_progress(synced.stderr) == []
    assert not re.search(r"^\d+ s: ", synced.stdout, re.MULTILINE)
    verified = commands.run("verify", "f", "--json")
    assert re.search(r"^\d+ s: comparing \S+, \d+ of \d+ tables?$", verified.stderr, re.MULTILINE)
    assert json.loads(verified.stdout)["equal"]
    maintained = commands.run("maintain", "f")
    assert re.search(r"^\d+ s: compacting ", maintained.stderr, re.MULTILINE)
