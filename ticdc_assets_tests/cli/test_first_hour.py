"""The first hour of a new user: the installed command, in a process of its own, in an empty home.

What each command says when something is missing, mistyped or stopped. Jars and compiled code come
from this user's cache, so that nothing is downloaded or compiled again.
"""

import ast
import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from threading import Thread

import pytest
from click.testing import CliRunner

from ticdc_assets.base.names import counted
from ticdc_assets.base.own_files import documented, own_files
from ticdc_assets.base.ports import HOST, free_port
from ticdc_assets.cli import main
from ticdc_assets.cli.interrupted import EXIT_CODE, STAYS, sentence
from ticdc_assets.config import KafkaSource, Writer
from ticdc_assets.delta.lock import writer_lock
from ticdc_assets.orchestration.verdicts import commands_named, jobs_named
from ticdc_assets_tests.commands import PROGRAM, Commands
from ticdc_assets_tests.golden import Scenario
from ticdc_assets_tests.spark.test_preflight import fake_java

CACHE = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
SECONDS = 240.0
"""How long a line may take on a busy machine; none is expected to take that long."""


class Running:
    """A command that runs, and its lines as they come.

    Args:
        process: the process; its standard error goes where its output goes.
    """

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self.lines: list[str] = []
        self._queue: Queue[str | None] = Queue()
        Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._queue.put(line.decode().rstrip("\n"))
        self._queue.put(None)

    def until(self, part: str) -> str:
        """Return the first line with `part` in it, once it has come."""
        while True:
            try:
                line = self._queue.get(timeout=SECONDS)
            except Empty:
                line = None
            assert line is not None, f"no line with {part!r} in {self.lines}"
            self.lines.append(line)
            if part in line:
                return line

    def interrupt(self) -> None:
        """Do what Ctrl-C does: signal the whole group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def ended(self) -> int:
        """Return the exit code, with the rest of the lines read."""
        while (line := self._queue.get(timeout=SECONDS)) is not None:
            self.lines.append(line)
        return self.process.wait(SECONDS)


@contextmanager
def running(
    commands: Commands,
    *arguments: object,
    program: tuple[str, ...] = PROGRAM,
    **env: str,
) -> Iterator[Running]:
    """Run a command in the commands' folder, with an empty home in it."""
    home = commands.folder / "home"
    home.mkdir(exist_ok=True)
    process = commands.start(
        *arguments,
        program=program,
        env={"HOME": str(home), "XDG_CACHE_HOME": CACHE, "PYTHONUNBUFFERED": "1"} | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        yield Running(process)
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


def add_dead_broker(commands: Commands, name: str) -> None:
    """Add a changefeed whose broker does not run; a command waits some seconds for it."""
    commands.add_topic(name, KafkaSource(bootstrap_servers=f"{HOST}:{free_port()}", topics=(name,)))


# Doctor -----------------------------------------------------------------------------------------


@pytest.mark.spark
def test_the_first_doctor_prints_each_check_at_once_and_leaves_nothing(
    commands: Commands, class_archive: None
) -> None:
    add_dead_broker(commands, "away")
    before = {path.name for path in commands.folder.iterdir()} | {"home"}
    with running(commands, "doctor") as doctor:
        doctor.until("ok    python: ")
        doctor.until("ok    configuration: ")
        doctor.until("ok    lake: ")
        assert doctor.process.poll() is None, "the others are still at work"
        assert doctor.ended() == 1
    names = [line[6:].partition(":")[0] for line in doctor.lines if line[:4] in ("ok  ", "FAIL")]
    assert names.index("source away") > names.index("java")
    assert names.index("jars") > names.index("source away"), "what may be downloaded comes last"
    (failed,) = [line for line in doctor.lines if line.startswith("FAIL")]
    assert "Connection refused; start the broker" in failed
    assert {path.name for path in commands.folder.iterdir()} == before
    assert list((commands.folder / "home").iterdir()) == []


def test_jars_go_where_home_says(commands: Commands, java: None) -> None:
    """The jars of a set that does not exist: Ivy makes its folder, and downloads nothing."""
    ask = (
        "from ticdc_assets.spark.jars import JarSet, resolve\n"
        "from ticdc_assets.base.errors import PrerequisiteError\n"
        "try:\n"
        "    resolve(JarSet(name='nothing', coordinates=('no.such.group:nothing:1',)))\n"
        "except PrerequisiteError as error:\n"
        "    print(error)\n"
    )
    program = (sys.executable, "-c", ask)
    with running(commands, program=program, XDG_CACHE_HOME=str(commands.folder / "c")) as asking:
        asking.until("cannot be downloaded")
        assert asking.ended() == 0
    assert (commands.folder / "home" / ".ivy2.5.2").is_dir()


def test_a_lake_below_a_file_is_no_damage(commands: Commands) -> None:
    commands.add_capture("f", "capture.jsonl")
    (commands.folder / "file").touch()
    lake = str(commands.folder / "file" / "lake")
    for words in (["sync", "f"], ["show", "f", "d", "t"], ["doctor"], ["status"], ["report"]):
        run = commands.program if words[0] in ("status", "report") else commands.here
        done = run(*words, env={"TICDC_LAKE": lake})
        assert done.returncode == 1
        text = done.stdout + done.stderr
        line = next(line for line in text.splitlines() if "is not a folder" in line)
        assert f"TICDC_LAKE: the lake is {lake}, and {commands.folder / 'file'} is not" in line
        assert "damaged" not in text


# Demo and report --------------------------------------------------------------------------------


def test_a_demo_without_java_keeps_the_demo_before_it(commands: Commands) -> None:
    demo = commands.folder / "demo"
    (demo / "lake").mkdir(parents=True)
    (demo / "demo.json").touch()
    (commands.folder / "bin").mkdir()
    env = {"PATH": str(commands.folder / "bin"), "JAVA_HOME": ""}
    with running(commands, "demo", "--directory", demo, **env) as command:
        command.until("java: no java on PATH and JAVA_HOME is not set")
        assert command.ended() == 1
    assert (demo / "lake").is_dir()


@pytest.mark.parametrize("command", ["demo", "broker"])
def test_an_old_java_is_named_before_anything_starts(commands: Commands, command: str) -> None:
    fake_java(commands.folder / "jdk", "11")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(commands.folder)
        said = commands.refused(command, JAVA_HOME=str(commands.folder / "jdk"))
    assert said.startswith("java: Java 11 at ")
    assert "; needed: Java 17 to 22; " in said


@pytest.mark.parametrize("words", [["demo", "--live"], ["broker"], ["ui"]], ids=" ".join)
def test_a_port_in_use_is_named_at_once(commands: Commands, words: list[str]) -> None:
    commands.add_capture("f", "capture.jsonl")
    folder = ("--directory", commands.folder / "d") if words != ["ui"] else ()
    with socket.create_server((HOST, 0)) as busy:
        port = busy.getsockname()[1]
        said = commands.refused(*words, *folder, "--port", port)
    assert said == f"port {port} of {HOST} is in use; choose another one with --port"
    assert not (commands.folder / "d").exists()


def test_the_demos_ui_has_its_broker(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """However it is told to use the demo: otherwise two daemons could work on one instance."""
    folder = commands.folder / ".demo"
    folder.mkdir()
    commands.add_capture("shop", "capture.jsonl")
    shutil.copy(commands.folder / "changefeeds.yaml", folder)
    served: list[str] = []

    @contextmanager
    def demo_broker(directory: Path, **_: object) -> Iterator[None]:
        served.append(directory.name)
        yield

    monkeypatch.chdir(commands.folder)
    monkeypatch.setattr("ticdc_assets.demo.run.demo_broker", demo_broker)
    monkeypatch.setattr("ticdc_assets.orchestration.ui.serve_ui", lambda *_: 0)
    for words in (["--demo", "ui"], ["ui", "--demo", ".demo"]):
        commands.done(*words)
    assert served == [".demo", ".demo"]


def test_a_report_makes_no_folder(commands: Commands) -> None:
    commands.add_capture("f", "capture.jsonl")
    folder = commands.folder / "nodir"
    said = commands.refused("report", "--output", folder / "x.html")
    assert said == f"{folder} is not a folder; make it, or change --output"
    assert not folder.exists()


# Ctrl-C -----------------------------------------------------------------------------------------

AT_IMPORT = """
import sys

module = sys.argv.pop(1)

class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Stop())
from ticdc_assets.cli import main
main()
"""


@pytest.mark.parametrize(
    "module", ["ticdc_assets.base.starting", "ticdc_assets.cli.looking", "numpy"]
)
def test_ctrl_c_before_a_command_begins(commands: Commands, module: str) -> None:
    program = (sys.executable, "-c", AT_IMPORT, module)
    for words, code in ((["sync", "f"], EXIT_CODE), (["sync", "f", "--follow"], 0)):
        commands.add_capture("f", "capture.jsonl")
        with running(commands, *words, program=program) as command:
            assert command.ended() == code, command.lines
        (line,) = [line for line in command.lines if line and not line.startswith("f: following")]
        assert line.removeprefix("f: ").startswith("Stopped: ")


@pytest.mark.parametrize("words", [["doctor"], ["sync"]], ids=" ".join)
def test_ctrl_c_while_a_command_waits_for_a_broker(
    commands: Commands, words: list[str], java: None
) -> None:
    for number in range(20):
        add_dead_broker(commands, f"away{number}")
    # Whichever comes first: a line about a source, or the progress of a command that takes long.
    with running(commands, *words) as command:
        command.until("away0")
        command.interrupt()
        assert command.ended() == EXIT_CODE, command.lines
    assert command.lines[-1] == sentence(words[0])
    assert not any("Traceback" in line or "Aborted" in line for line in command.lines)


@pytest.mark.parametrize("name", sorted(main.commands))
def test_each_command_says_what_stays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(**_: object) -> None:
        raise KeyboardInterrupt

    command = main.commands[name]
    monkeypatch.setattr(command, "callback", stopped)
    monkeypatch.setattr(command, "params", [])
    before = signal.getsignal(signal.SIGINT)
    try:
        result = CliRunner().invoke(main, [name])
    finally:
        signal.signal(signal.SIGINT, before)
    assert (result.exit_code, result.stdout) == (EXIT_CODE, "")
    assert result.stderr == f"\n{sentence(name)}\n"


def test_what_stays_is_known_of_each_command_that_changes_something() -> None:
    reading = set(main.commands) - set(STAYS)
    assert reading == {
        *("decode", "doctor", "dump", "metrics", "path", "quarantine", "report", "show", "sql"),
        *("status", "tables"),
    }


@pytest.mark.dagster
def test_a_follow_says_what_it_follows_and_each_cut_and_ends_with_0(
    commands: Commands, golden_dir: Callable[..., Path]
) -> None:
    scenario = Scenario(golden_dir("simple-json", "types"))
    commands.add_scenario("f", scenario)
    with running(commands, "sync", "f", "--follow") as follow:
        assert follow.until("following") == f"f: following {scenario.capture} until Ctrl-C"
        cut = follow.until("published: cut 1")
        assert re.fullmatch(
            r"f: published: cut 1 at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC \(TSO \d+\): 1 of 1 mirror "
            r"changed \(94 records landed, \d+ changes decoded, [\d.]+ s\)",
            cut,
        )
        follow.interrupt()
        assert follow.ended() == 0
    assert f"f: {sentence('sync')}" in follow.lines
    assert follow.lines[-2 if follow.lines[-1].startswith("ran: ") else -1].endswith(
        sentence("sync")
    )


# Two at once ------------------------------------------------------------------------------------


@pytest.mark.dagster
def test_a_sync_names_the_process_that_it_waits_for(
    commands: Commands, golden_dir: Callable[..., Path]
) -> None:
    commands.add_scenario("f", Scenario(golden_dir("simple-json", "types")))
    with writer_lock(commands.paths("f"), Writer()):
        command = running(commands, "sync", "f")
        sync = command.__enter__()
        assert f"waiting for process {os.getpid()} (" in sync.until("waiting for")
    try:
        assert f" for process {os.getpid()} (" in sync.until("waited ")
        assert sync.ended() == 0
    finally:
        command.__exit__(None, None, None)
    assert any("published: cut 1" in line for line in sync.lines)


# Words ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "nouns", "text"),
    [
        (0, ["topic"], "0 topics"),
        (1, ["topic"], "1 topic"),
        (1200, ["topic"], "1,200 topics"),
        (1, ["row waits", "rows wait"], "1 row waits"),
        (3, ["row waits", "rows wait"], "3 rows wait"),
    ],
)
def test_a_count_has_its_noun(count: int, nouns: list[str], text: str) -> None:
    assert counted(count, *nouns) == text


NOUNS = (
    "batche|change|column|cut|event|file|key|message|mirror|partition|record|row|run|schema|"
    "statement|sync|table|topic|transaction|value|version"
)
PLURAL = re.compile(rf" (?:(?:exported|landed|new|open|quarantined|row) )?(?:{NOUNS})s\b")


def test_numbers_in_sentences_have_their_noun_by_counted() -> None:
    """`1 rows` is in nobody's test: whatever may be 1 gets its noun where it is printed."""
    rooms = {"cli", "demo", "doctor", "log", "mirrors", "observe", "orchestration", "repair"}
    bad: list[str] = []
    for name, file in own_files(".py"):
        if name.partition("/")[0] not in rooms or "simulator/" in name:
            continue
        for node in ast.walk(ast.parse(file.read_bytes())):
            if not isinstance(node, ast.JoinedStr):
                continue
            for number, noun in itertools.pairwise(node.values):
                if isinstance(number, ast.FormattedValue) and isinstance(noun, ast.Constant):
                    shown = ast.unparse(number.value)
                    if PLURAL.match(str(noun.value)) and not shown.isupper():
                        bad.append(f"{name}:{node.lineno}: {{{shown}}}{noun.value}")
    assert bad == []


def test_a_page_is_named_by_its_url() -> None:
    site = "https://docs.example/ticdc/"
    assert documented("operate", site=site) == "https://docs.example/ticdc/operate/"
    assert documented("operate", "held_rows", site=site).endswith("/operate/#held_rows")
    assert documented("operate", "held_rows", site="") == (
        "the page `operate`, section held_rows, of the documentation"
    )


def test_no_message_names_a_file_that_the_package_does_not_have() -> None:
    """Docstrings may; they are expressions of their own."""
    page = re.compile(r"docs/\w+\.md")
    for name, file in own_files(".py"):
        text = file.read_text(encoding="utf-8")
        tree = ast.walk(ast.parse(text)) if page.search(text) else ()
        nodes = list(tree)
        documents = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.Constant) and id(node) not in documents:
                assert not page.search(str(node.value)), (name, node.value)


@pytest.mark.parametrize("command", ["sync", "redrive", "rebuild", "verify", "maintain"])
def test_a_sentence_names_what_can_be_typed_where_it_is_read(command: str) -> None:
    said = f"Some are open. Run `ticdc-assets {command} my_feed`, or wait."
    told = jobs_named(said)
    assert re.search(r"Run the job `my_feed_[a-z]+`, or wait", told)
    assert commands_named(told) == said
    assert jobs_named("Run `ticdc-assets seed f EXPORT`.") == "Run `ticdc-assets seed f EXPORT`."
