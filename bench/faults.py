"""`python -m bench.faults`: put faults into the product, and see which of them its tests catch.

In: a tree of the project. Out: a table with each fault, whether a test of its room failed, and
which. A fault is a small change of a function's code: a comparison turned, a number off by one,
`and` for `or`, a condition negated, two arguments in the other order, a `return` without its value,
a statement left out. Docstrings, types, messages and what is logged stay as they are.

    python -m bench.faults --rooms wire,rows --faults 20 --save faults.json
    python -m bench.faults --again faults.json --save later.json

The first line takes 20 faults from each room, the same ones for the same `--seed` and code. The
second looks for those faults in today's code, wherever in its room the code is now, and runs
today's tests: where fewer are caught, the tests became weaker. A fault whose code is no more counts
as gone.

A room's tests are those of the folder of its name, as `make test-fast` and Spark's tests of a day
run them, until the first one fails; files that name the fault's module come first. They run in a
copy, one fault after the other, and the copy is removed at the end; the tree is only read. A run
that hangs, or takes all memory, is a fault that was caught. Before the first fault of a room its
tests run without one: they have to pass, and their time limits that of the other runs.

The copy has a cache of its own: compiled loops go there by the digest of their texts, so a changed
loop is compiled again. An interrupted run goes on with the same `--save`.
"""

import ast
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import click
import psutil
from rich.console import Console
from rich.table import Table

ROOT: Final = Path(__file__).resolve().parent.parent
PRODUCT: Final = "ticdc_assets"
ROOMS: Final = ("wire", "changelog", "rows", "mirrors", "repair")

_MEGABYTES = 6_000
_MOST_SECONDS = 3_600.0
_TIMES_OF_A_CLEAN_RUN = 3
_OPTIONS = (
    *("-x", "-v", "--tb=no", "-p", "no:cacheprovider", "-m", "not thorough and not slow"),
    *("--hypothesis-profile=quick", "--hypothesis-seed=0"),
)


@dataclass(frozen=True, slots=True)
class Fault:
    """A change of a piece of code.

    Attributes:
        room: the product's folder.
        module: the file, from the tree's root.
        function: the name of the function with those of its classes and functions around it.
        kind: which of the changes of this module it is.
        before: the code, as `ast.unparse` writes it.
        after: the code that replaces it.
        nth: how many equal pieces the function has before this one.
        line: where it begins.
    """

    room: str
    module: str
    function: str
    kind: str
    before: str
    after: str
    nth: int
    line: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a fault is in the bytes of its file: from `start` until before `end`."""

    fault: Fault
    start: int
    end: int

    def changed(self, source: bytes) -> bytes:
        """Return the file with the fault in it."""
        return source[: self.start] + self.fault.after.encode() + source[self.end :]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What tests did: `by` names the test that failed, "" if none did."""

    by: str
    seconds: float


def faults_in(tree: Path, room: str) -> list[Place]:
    """Return all faults that a room's code can have, in the order of files and lines."""
    places: list[Place] = []
    for path in sorted((tree / PRODUCT / room).rglob("*.py")):
        source = path.read_bytes()
        finder = _Finder(source, room, path.relative_to(tree).as_posix())
        finder.visit(ast.parse(source))
        places += finder.places
    return places


def chosen(tree: Path, places: Iterable[Place], number: int, seed: int) -> list[Place]:
    """Return so many faults: of each kind as many as of another, one a function at most."""
    by_kind: dict[str, list[Place]] = defaultdict(list)
    for place in places:
        by_kind[place.fault.kind].append(place)
    chance = random.Random(seed)
    for kind in sorted(by_kind):
        chance.shuffle(by_kind[kind])
    functions: set[tuple[str, str]] = set()
    choice: list[Place] = []
    while any(by_kind.values()) and len(choice) < number:
        for kind in sorted(by_kind):
            while by_kind[kind] and len(choice) < number:
                place = by_kind[kind].pop()
                function = place.fault.module, place.fault.function
                source = (tree / place.fault.module).read_bytes()
                if function not in functions and _compiles(place.changed(source)):
                    functions.add(function)
                    choice.append(place)
                    break
    return choice


def same_place(fault: Fault, places: Sequence[Place]) -> Place | None:
    """Return where a fault of other code is in this code, None if it is nowhere.

    The code is looked for in its function, then in functions of that name in other modules, then in
    any function of the room that has it once only.
    """
    equal = [
        place
        for place in places
        if (place.fault.kind, place.fault.before, place.fault.after)
        == (fault.kind, fault.before, fault.after)
    ]
    name = fault.function.rpartition(".")[2]
    for near in (
        [p for p in equal if (p.fault.module, p.fault.function) == (fault.module, fault.function)],
        [p for p in equal if p.fault.function == fault.function],
        [p for p in equal if p.fault.function.rpartition(".")[2] == name],
        equal if len(equal) == 1 else [],
    ):
        if near:
            return near[min(fault.nth, len(near) - 1)]
    return None


class _Finder(ast.NodeVisitor):
    """Finds the faults that the functions of a module can have."""

    def __init__(self, source: bytes, room: str, module: str) -> None:
        self.places: list[Place] = []
        self._room, self._module = room, module
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._names: list[str] = []
        self._depth = 0
        self._counts: dict[tuple[str, ...], int] = defaultdict(int)

    def visit(self, node: ast.AST) -> None:
        """Add the faults of a node and of what is in it."""
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                if not node.name.startswith("__") or node.name == "__init__":
                    self._enter(node)
                return
            # Messages, types, and what only tools read.
            case ast.Raise() | ast.Assert() | ast.JoinedStr() | ast.Import() | ast.ImportFrom():
                return
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                return
            case ast.Expr(value=ast.Constant()) | ast.Expr(value=ast.JoinedStr()):
                return
            case ast.Call() if _is_silent(node):
                return
            case ast.AnnAssign():
                if node.value is not None:
                    self.visit(node.value)
                return
            case _:
                pass
        if self._depth:
            for kind, part, after in _changes(node):
                self._add(kind, part, after)
        self.generic_visit(node)

    def _enter(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        is_function = not isinstance(node, ast.ClassDef)
        self._names.append(node.name)
        self._depth += is_function
        for statement in node.body:
            self.visit(statement)
        self._depth -= is_function
        self._names.pop()

    def _add(self, kind: str, node: ast.expr | ast.stmt, after: str) -> None:
        before, function = ast.unparse(node), ".".join(self._names)
        same = (function, kind, before, after)
        fault = Fault(
            room=self._room,
            module=self._module,
            function=function,
            kind=kind,
            before=before,
            after=after,
            nth=self._counts[same],
            line=node.lineno,
        )
        self._counts[same] += 1
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        end = self._starts[node.end_lineno - 1] + node.end_col_offset
        self.places.append(Place(fault, start, end))


_OTHER_COMPARISON: Final = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """Yield the changes of a node: the kind, the part that is replaced, and the new code."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in _OTHER_COMPARISON:
            turned = ast.Compare(node.left, [_OTHER_COMPARISON[type(op)]()], node.comparators)
            yield "comparison", node, f"({ast.unparse(turned)})"
        case ast.BoolOp():
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield "and, or", node, f"({ast.unparse(ast.BoolOp(other, node.values))})"
        case ast.BinOp(op=ast.Add() | ast.Sub()) if not (
            _is_sequence(node.left) or _is_sequence(node.right)
        ):
            other = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
            yield "arithmetic", node, f"({ast.unparse(ast.BinOp(node.left, other, node.right))})"
        case ast.Constant(value=bool(value)):
            yield "constant", node, str(not value)
        case ast.Constant(value=int(value)):
            yield "constant", node, str(value + 1)
        case ast.If() | ast.While() | ast.IfExp():
            yield "condition", node.test, f"(not ({ast.unparse(node.test)}))"
        case ast.comprehension(ifs=[test, *_]):
            yield "condition", test, f"(not ({ast.unparse(test)}))"
        # Arguments of two kinds in the other order would fail whatever the tests are.
        case ast.Call(args=[first, second, *rest]) if (
            type(first) is type(second) is not ast.Starred
        ):
            if ast.dump(first) != ast.dump(second):
                turned = ast.Call(node.func, [second, first, *rest], node.keywords)
                yield "arguments", node, ast.unparse(turned)
        # None is as false as False.
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) not in {"None", "False"}:
            yield "return", node, "return None"
        case ast.Continue() | ast.Break() | ast.AugAssign() | ast.Delete():
            yield "statement", node, "pass"
        case ast.Expr(value=ast.Call() as call) if not _is_silent(call):
            yield "statement", node, "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "statement", node, "pass"
        case _:
            pass


def _is_sequence(part: ast.expr) -> bool:
    """Return whether a part is a text or a list, which nothing can be subtracted from."""
    match part:
        case ast.List() | ast.Tuple() | ast.JoinedStr() | ast.Constant(value=str() | bytes()):
            return True
        case _:
            return False


def _is_silent(call: ast.Call) -> bool:
    """Return whether a call only reports how far the work is, or only says a type."""
    match call.func:
        case ast.Name(id="cast" | "tell" | "note"):
            return True
        case ast.Attribute(value=ast.Name(id=name)):
            return "logger" in name.lower()
        case _:
            return False


def _compiles(source: bytes) -> bool:
    try:
        compile(source, "", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


class Copy:
    """A copy of a tree in which tests run; `close` removes it."""

    def __init__(self, tree: Path) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="ticdc_assets_faults_")).resolve()
        self.tree = self._folder / "tree"
        shutil.copytree(
            tree,
            self.tree,
            symlinks=True,
            ignore=lambda _, names: [n for n in names if n.startswith(".") or n == "__pycache__"],
        )
        # Tests look for shared messages next to the tree.
        if (tree.parent / "shared").is_dir():
            (self._folder / "shared").symlink_to((tree.parent / "shared").resolve())
        self._environment = os.environ | {
            "PYTHONPATH": str(self.tree),
            "XDG_CACHE_HOME": str(self._folder / "cache"),
        }
        where = self._output("-c", f"import {PRODUCT}; print({PRODUCT}.__file__)")
        if not where.startswith(str(self.tree)):
            raise click.ClickException(f"tests would import {where.strip()}, not the copy")

    def close(self) -> None:
        """Remove the copy."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, room: str, limit: float, module: str = "") -> Outcome:
        """Run a room's tests until one fails or the time is over, in seconds.

        Files that name `module` come first: they fail soonest for its faults.
        """
        log, temporary = self._folder / "log", self._folder / "temporary"
        tests = sorted(
            (self.tree / f"{PRODUCT}_tests" / room).rglob("test_*.py"),
            key=lambda path: (module not in path.name + path.read_text(encoding="utf-8"), path),
        )
        command = [sys.executable, "-m", "pytest", *tests, *_OPTIONS, f"--basetemp={temporary}"]
        begin = time.monotonic()
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=self.tree,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                end = _ended(process, begin + limit)
            finally:
                _kill(process)
        seconds = time.monotonic() - begin
        shutil.rmtree(temporary, ignore_errors=True)
        return Outcome(_culprit(log.read_text(errors="replace"), end), seconds)

    def run_with(self, place: Place, limit: float) -> Outcome:
        """Run the tests of a fault's room with the fault."""
        path = self.tree / place.fault.module
        source = path.read_bytes()
        try:
            _write(path, place.changed(source))
            return self.run(place.fault.room, limit, path.stem)
        finally:
            _write(path, source)

    def _output(self, *arguments: str) -> str:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.tree,
            env=self._environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout


def _write(path: Path, source: bytes) -> None:
    """Write a module; code of it that Python stored goes, as that is known by second and size."""
    path.write_bytes(source)
    for stored in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        stored.unlink(missing_ok=True)


def _ended(process: "subprocess.Popen[bytes]", deadline: float) -> str:
    """Wait for the end of a run; return its exit status, or which limit it reached."""
    while time.monotonic() < deadline:
        with suppress(subprocess.TimeoutExpired):
            return str(process.wait(timeout=1))
        if _megabytes(process.pid) > _MEGABYTES:
            return "memory"
    return "time"


def _megabytes(pid: int) -> float:
    size = 0
    with suppress(psutil.Error):
        for each in _family(pid):
            with suppress(psutil.Error):
                size += each.memory_info().rss
    return size / 1e6


def _family(pid: int) -> list[psutil.Process]:
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """End a run and all that it started."""
    family: list[psutil.Process] = []
    with suppress(psutil.Error):
        family = _family(process.pid)
    # The session's group is named by its leader, which is not waited for before it is gone.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for each in family:
        with suppress(psutil.Error):
            each.kill()
    process.wait()


def _culprit(log: str, end: str) -> str:
    """Return what caught a fault: a test, or what pytest could not do; "" if all tests passed."""
    if end == "0":
        return ""
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", log, re.MULTILINE)
    if failed:
        return failed[1].removeprefix(f"{PRODUCT}_tests/")
    begun = re.findall(rf"^{PRODUCT}_tests/(\S+)", log, re.MULTILINE)
    reason = f"limit of {end}" if end in ("time", "memory") else f"exit status {end}"
    return f"{begun[-1] if begun else 'no test'} ({reason})"


@click.command()
@click.option("--rooms", default=",".join(ROOMS), show_default=True, help="Rooms, with commas.")
@click.option("--faults", default=20, show_default=True, help="Faults of each room.")
@click.option("--seed", default=1, show_default=True, help="Chooses the faults.")
@click.option("--again", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Keep results here.")
@click.option("--list", "listed", is_flag=True, help="Print the faults, and stop.")
@click.option(
    "--tree",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=ROOT,
    help="The tree whose product and tests are taken; this one by default.",
)
def main(
    rooms: str,
    faults: int,
    seed: int,
    again: Path | None,
    save: Path | None,
    listed: bool,
    tree: Path,
) -> None:
    """Put faults into the product, run its tests, and print which faults they catch."""
    tree = tree.resolve()
    names = [name for name in rooms.split(",") if name]
    for name in names:
        if not (tree / PRODUCT / name).is_dir():
            raise click.BadParameter(f"there is no room {name}", param_hint="--rooms")
    earlier = _read(again) if again else {}
    results = _read(save) if save and save.exists() else {}
    wanted: list[tuple[Fault, Place | None]] = []
    for name in names:
        places = faults_in(tree, name)
        if again:
            of_room = [fault for fault in earlier if fault.room == name]
            wanted += [(fault, same_place(fault, places)) for fault in of_room]
        else:
            wanted += [(place.fault, place) for place in chosen(tree, places, faults, seed)]
    if listed:
        for fault, place in wanted:
            click.echo(f"{'' if place else 'gone: '}{_described(fault)}")
        return
    # Whichever way it is ended, it ends what it started and removes the copy.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(1))
    copy = Copy(tree)
    try:
        _run(copy, wanted, results, save)
    finally:
        copy.close()
    _show([fault for fault, _ in wanted], results, earlier)


def _run(
    copy: Copy,
    wanted: Sequence[tuple[Fault, Place | None]],
    results: dict[Fault, Outcome],
    save: Path | None,
) -> None:
    limits: dict[str, float] = {}
    for fault, place in wanted:
        if place is None or fault in results:
            continue
        if fault.room not in limits:
            clean = copy.run(fault.room, _MOST_SECONDS)
            if clean.by:
                raise click.ClickException(f"{clean.by} fails without a fault")
            note(f"{fault.room}: {clean.seconds:.0f} s without a fault")
            limits[fault.room] = 60 + _TIMES_OF_A_CLEAN_RUN * clean.seconds
        outcome = results[fault] = copy.run_with(place, limits[fault.room])
        note(f"{_described(fault)}: {outcome.by or 'NOT CAUGHT'}, {outcome.seconds:.0f} s")
        if save:
            _write_results(save, results)


def _described(fault: Fault) -> str:
    return f"{fault.module}:{fault.line} {fault.kind}: {_short(fault.before)} -> {fault.after}"


def _short(text: str) -> str:
    return " ".join(text.split())


def _read(path: Path) -> dict[Fault, Outcome]:
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return {Fault(**row["fault"]): Outcome(**row["outcome"]) for row in rows}


def _write_results(path: Path, results: dict[Fault, Outcome]) -> None:
    rows = [
        {"fault": asdict(fault), "outcome": asdict(outcome)} for fault, outcome in results.items()
    ]
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    new.replace(path)


def _show(
    faults: Sequence[Fault], results: dict[Fault, Outcome], earlier: dict[Fault, Outcome]
) -> None:
    """Print the table of all faults, and how many of each room were caught."""
    console = Console(width=None if Console().is_terminal else 180)
    table = Table("where", "kind", "before", "after", "caught by", show_lines=True)
    if earlier:
        table.add_column("earlier")
    for fault in faults:
        outcome = results.get(fault)
        by = "gone" if outcome is None else outcome.by or "-"
        row = [f"{fault.module}:{fault.line}", fault.kind, _short(fault.before), fault.after, by]
        table.add_row(*row, *([earlier[fault].by or "-"] if earlier else []))
    console.print(table)
    for room in dict.fromkeys(fault.room for fault in faults):
        of_room = [fault for fault in faults if fault.room == room]
        runs = [fault for fault in of_room if fault in results]
        text = f"{room}: {sum(bool(results[f].by) for f in runs)} of {len(runs)} caught"
        if earlier:
            before = sum(bool(earlier[fault].by) for fault in runs)
            text += f", {before} of these earlier; {len(of_room) - len(runs)} gone"
        click.echo(text)


def note(text: str) -> None:
    """Say on standard error how far the run is."""
    click.echo(text, err=True)


if __name__ == "__main__":
    main()
