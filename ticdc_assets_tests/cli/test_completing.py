"""Completion by a real shell: commands, changefeeds, and the tables of the newest cut."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from ticdc_assets.cli import main
from ticdc_assets.log.cuts import publish
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets_tests.commands import Commands
from ticdc_assets_tests.statuses import cut, mirror

_PROGRAM = Path(sys.executable).with_name("ticdc-assets")

_ASK = """
source "$SCRIPT"
COMP_WORDS=(ticdc-assets {words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_ticdc_assets_completion ticdc-assets
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    """Two changefeeds, one of which has a cut with tables of any name."""
    commands = Commands(tmp_path)
    capture = tmp_path / "shop.jsonl"
    for name in ("mine", "minor"):
        commands.add_capture(name, capture)
    names = [("shop", "orders"), ("shop", "old orders"), ("shop", "o\x1b[31m"), ("crm", "visits")]
    mirrors = tuple(
        mirror(table, mirror_id=str(number), database=database)
        for number, (database, table) in enumerate(names, 1)
    )
    publish(commands.paths("mine"), cut(mirrors=mirrors))
    return commands


def completed(commands: Commands, *words: str) -> list[str]:
    """Return what may stand for the last of `words`, which is typed as far as it is given."""
    for name, value in commands.env.items():
        os.environ[name] = value
    *before, typed = words
    complete = ShellComplete(main, {}, "ticdc-assets", "_TICDC_ASSETS_COMPLETE")
    return [item.value for item in complete.get_completions(before, typed)]


def test_changefeeds_are_completed(commands: Commands) -> None:
    assert completed(commands, "status", "") == ["mine", "minor"]
    assert completed(commands, "sync", "minor") == ["minor"]
    assert completed(commands, "sql", "x") == []


def test_several_changefeeds_are_completed(commands: Commands) -> None:
    assert completed(commands, "report", "mine", "mi") == ["mine", "minor"]


def test_databases_and_tables_are_those_of_the_changefeed(commands: Commands) -> None:
    assert completed(commands, "show", "mine", "") == ["crm", "shop"]
    assert completed(commands, "path", "mine", "shop", "o") == ["orders"]
    assert completed(commands, "verify", "mine", "crm", "") == ["visits"]


@pytest.mark.parametrize("command", ["path", "show", "verify"])
def test_a_table_may_be_written_as_it_is_printed(command: str) -> None:
    for words in (("shop", "a.b"), ("shop.`a.b`",), ("`shop`.`a.b`",)):
        with main.commands[command].make_context(command, ["mine", *words]) as context:
            assert (context.params["database"], context.params["table"]) == ("shop", "a.b")
    with pytest.raises(click.MissingParameter, match="table"):
        main.commands["path"].make_context("path", ["mine", "shop"])


def test_nothing_is_completed_where_nothing_is_known(commands: Commands) -> None:
    assert completed(commands, "show", "minor", "") == []
    assert completed(commands, "show", "unknown", "") == []
    assert completed(commands, "show", "mine", "no database", "") == []
    commands.paths("mine").by_name.write_text("[]")
    assert completed(commands, "show", "mine", "") == []
    Path(commands.env["TICDC_CHANGEFEEDS"]).write_text("changefeeds: 1")
    assert completed(commands, "status", "") == []


def test_completing_writes_nothing(commands: Commands) -> None:
    before = sorted(commands.folder.rglob("*"))
    completed(commands, "show", "mine", "")
    assert sorted(commands.folder.rglob("*")) == before


def test_the_demos_changefeed_need_not_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = tmp_path / ".demo"
    demo.mkdir()
    own = Commands(demo)
    own.add_capture("shop", tmp_path / "shop.jsonl")
    publish(
        LakePaths(root=demo / "lake", changefeed="shop"),
        cut(mirrors=(mirror("visits", database="crm"),)),
    )
    monkeypatch.chdir(tmp_path)
    nothing = Commands(tmp_path)
    assert completed(nothing, "--demo", "show", "") == ["crm"]
    assert completed(nothing, "--demo", "show", "crm", "") == ["visits"]
    assert completed(nothing, "--demo", "show", "shop", "crm", "") == ["visits"]


@pytest.mark.thorough
def test_bash_completes(commands: Commands, tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    script = tmp_path / "completion.bash"
    environment = {**os.environ, **commands.env, "PATH": f"{_PROGRAM.parent}:{os.environ['PATH']}"}
    script.write_bytes(
        subprocess.run(
            [_PROGRAM],
            env=environment | {"_TICDC_ASSETS_COMPLETE": "bash_source"},
            check=True,
            capture_output=True,
        ).stdout
    )

    def asked(words: str) -> list[str]:
        done = subprocess.run(
            [bash, "--norc", "-c", _ASK.format(words=words)],
            env=environment | {"SCRIPT": str(script)},
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.split()

    assert asked("stat") == ["status"]
    assert asked("show mine shop ''") == ["orders"]
