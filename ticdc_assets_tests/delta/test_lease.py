"""The lease: its states by a model, its log, and processes that hold it, die, and stand still."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ticdc_assets.base.errors import BusyError, LakeDamagedError, LeaseLostError
from ticdc_assets.config import Writer
from ticdc_assets.delta import committing, fencing
from ticdc_assets.delta import lease as leases
from ticdc_assets.delta.appending import write_table
from ticdc_assets.delta.commits import foreign_changes, newest_version
from ticdc_assets.delta.control import commit_metadata, read_rows
from ticdc_assets.delta.fencing import guarded, number_in
from ticdc_assets.delta.lease import (
    Entry,
    HeldLease,
    LeaseLog,
    LeaseState,
    Surroundings,
    is_gone,
    read_lease,
    take,
    this_process,
)
from ticdc_assets.delta.lock import side_lock, writer_lock
from ticdc_assets.delta.log_reading import log_state
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import AnyPath
from ticdc_assets_tests.delta.libraries import lease_of

SECONDS = 10.0
"""How long a lease of the model is good."""

OTHER = "another sync of changefeed 'shop'"


# By a model ---------------------------------------------------------------------------------------


@dataclass
class MemoryLog(LeaseLog):
    """A log in memory, of which one may be told errors."""

    entries: list[Entry] = field(default_factory=lambda: [Entry(version=0, state=None)])
    faults: list[str] = field(default_factory=list[str])

    def newest(self) -> Entry:
        return self.entries[-1]

    def put(self, state: LeaseState, after: Entry) -> bool:
        fault = self.faults.pop() if self.faults else ""
        if fault == "before":
            raise OSError("nothing was stored")
        is_put = after.version == self.entries[-1].version
        if is_put:
            self.entries.append(Entry(version=len(self.entries), state=state))
        if fault == "after":
            raise OSError("nobody knows what was stored")
        return is_put


@dataclass
class Process:
    """A process with clocks of its own; a stalled one does nothing, and does not know it."""

    name: str
    rate: float
    skew: timedelta
    lease: HeldLease | None = None
    is_stalled: bool = False
    renewed: float = 0.0


class Lease(RuleBasedStateMachine):
    """Processes take the lease, renew it, stand still, die and give it back, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0
        self.log = MemoryLog()
        self.numbers: list[int] = []
        clocks = (("a", 1.0, 0), ("b", 1.03, 1), ("c", 0.97, -1))
        self.processes = [Process(name, rate, timedelta(hours=h)) for name, rate, h in clocks]

    def around(self, process: Process) -> Surroundings:
        return Surroundings(
            now=lambda: 1000 + self.time * process.rate,
            wait=lambda seconds: self.let_pass(seconds / process.rate),
            at=lambda: datetime(2026, 1, 1, tzinfo=UTC) + process.skew + timedelta(0, self.time),
            is_gone=lambda _: False,
        )

    def let_pass(self, seconds: float) -> None:
        self.time += seconds
        for process in self.processes:
            due = self.time - process.renewed >= SECONDS / 3
            if process.lease is not None and not process.is_stalled and due:
                process.renewed = self.time
                try:
                    process.lease.renew()
                except OSError:
                    process.renewed -= SECONDS / 3  # it tries again soon

    @rule(seconds=st.floats(0.1, 8))
    def time_passes(self, seconds: float) -> None:
        while seconds > 0:
            self.let_pass(min(seconds, 0.5))
            seconds -= 0.5

    @rule(number=st.integers(0, 2))
    def takes(self, number: int) -> None:
        process = self.processes[number]
        if process.lease is not None or process.is_stalled:
            return
        holder = replace(this_process(), host=process.name)
        lively = [it for it in self.processes if it.lease is not None and not it.is_stalled]
        try:
            lease = take(self.log, holder, SECONDS, other=OTHER, surroundings=self.around(process))
        except BusyError:
            assert lively
            return
        except OSError:
            return
        assert lease.number > max(self.numbers, default=0)
        assert lease.taken_over or all(not is_held(it) for it in lively)
        self.numbers.append(lease.number)
        process.lease, process.renewed = lease, self.time

    @rule(number=st.integers(0, 2))
    def stands_still_or_goes_on(self, number: int) -> None:
        process = self.processes[number]
        process.is_stalled = not process.is_stalled

    @rule(number=st.integers(0, 2))
    def gives_back(self, number: int) -> None:
        process = self.processes[number]
        if process.lease is not None and not process.is_stalled:
            try:
                process.lease.release()
            except OSError:
                return
            with pytest.raises(LeaseLostError):
                process.lease.require()
            process.lease = None

    @rule(number=st.integers(0, 2))
    def dies(self, number: int) -> None:
        self.processes[number].lease = None

    @precondition(lambda self: not self.log.faults)
    @rule(fault=st.sampled_from(["before", "after"]))
    def the_store_fails_once(self, fault: str) -> None:
        self.log.faults.append(fault)

    @invariant()
    def one_may_write(self) -> None:
        """Of all who ask, stalled ones too, only the holder of the newest lease is not refused."""
        for process in self.processes:
            if process.lease is not None and is_held(process):
                assert process.lease.number == self.numbers[-1]

    @invariant()
    def entries_go_up(self) -> None:
        numbers = [it.state.number for it in self.log.entries if it.state is not None]
        assert numbers == sorted(numbers)
        tokens = {it.state.number: it.state.token for it in self.log.entries if it.state}
        assert all(tokens[it.state.number] == it.state.token for it in self.log.entries if it.state)


def is_held(process: Process) -> bool:
    """Return whether a process that asks now is told that its lease is its own."""
    assert process.lease is not None
    try:
        process.lease.require()
    except LeaseLostError:
        return False
    return True


TestModel = Lease.TestCase


@dataclass
class World:
    """One clock, and what the waiting lets happen."""

    time: float = 0.0
    log: MemoryLog = field(default_factory=MemoryLog)
    gone: set[str] = field(default_factory=set[str])

    @property
    def surroundings(self) -> Surroundings:
        return Surroundings(
            now=lambda: self.time,
            wait=self.let_pass,
            at=lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(0, self.time),
            is_gone=lambda holder: holder.host in self.gone,
        )

    def let_pass(self, seconds: float) -> None:
        self.time += seconds

    def take(self, host: str) -> HeldLease:
        holder = replace(this_process(), host=host)
        return take(self.log, holder, SECONDS, other=OTHER, surroundings=self.surroundings)


@pytest.mark.parametrize("is_dead", [True, False])
def test_a_lease_that_was_given_back_or_of_a_dead_process_here_is_taken_at_once(
    *, is_dead: bool
) -> None:
    world = World(gone={"a"} if is_dead else set())
    first = world.take("a")
    if not is_dead:
        first.release()
    second = world.take("b")
    assert (world.time, second.number, second.taken_over) == (0.0, 2, is_dead)


@pytest.mark.parametrize("fault", ["before", "after"])
def test_a_lease_is_over_even_if_nobody_knows_whether_it_was_given_back(fault: str) -> None:
    world = World()
    first = world.take("a")
    world.log.faults.append(fault)
    with pytest.raises(OSError, match="stored") if fault == "before" else nullcontext():
        first.release()
    with pytest.raises(LeaseLostError, match="was given back"):
        first.require()
    second = world.take("b")
    assert second.number == 2
    assert second.taken_over == (fault == "before")


def test_any_other_lease_is_taken_over_after_its_duration() -> None:
    world = World()
    first = world.take("a")
    second = world.take("b")
    assert (world.time, second.number, second.taken_over) == (SECONDS, 2, True)
    with pytest.raises(LeaseLostError, match=r"b, process .* has had lease 2"):
        first.require()
    assert first.renew() is False
    first.release()
    second.require()


def test_a_lease_that_ran_out_is_renewed_if_it_can_be() -> None:
    world = World()
    lease = world.take("a")
    world.let_pass(100 * SECONDS)
    lease.require()
    lease.require()
    assert len(world.log.entries) == 3, "nobody took it"
    world.let_pass(SECONDS / 2)
    world.log.faults.append("before")
    lease.require()  # the log is not asked to take anything yet
    world.let_pass(SECONDS / 2)
    with pytest.raises(LeaseLostError, match="ran out and cannot be renewed"):
        lease.require()
    lease.require()  # the store is back, and nobody took it


def test_a_lease_that_ran_out_is_not_held_while_a_folder_shows_entries_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The place after its last entry is taken, and by whom is not seen yet."""
    world = World()
    lease = world.take("a")
    shown = world.log.newest()
    world.take("b")
    with monkeypatch.context() as patch:
        patch.setattr(world.log, "newest", lambda: shown)
        with pytest.raises(LeaseLostError, match="ran out and cannot be renewed"):
            lease.require()
    with pytest.raises(LeaseLostError, match=r"b, process .* has had lease 2"):
        lease.require()


def test_an_entry_that_came_in_with_an_error_is_known() -> None:
    world = World()
    world.log.faults.append("after")
    lease = world.take("a")
    world.log.faults.append("after")
    assert lease.renew()
    world.log.faults.append("after")
    lease.release()
    assert world.take("b").number == 2
    assert world.time == 0.0


def test_who_waits_is_told_of_a_holder_that_lives() -> None:
    world = World()
    lease = world.take("a")
    wait = world.let_pass

    def renewing(seconds: float) -> None:
        wait(seconds)
        if world.time >= 3:
            lease.renew()

    around = replace(world.surroundings, wait=renewing)
    with pytest.raises(BusyError) as told:
        take(world.log, this_process(), SECONDS, other=OTHER, surroundings=around)
    assert world.time == 3
    assert str(told.value) == (
        f"another sync of changefeed 'shop' is running: a, process {os.getpid()} "
        f"({this_process().command}) has had lease 1 since 2026-01-01 00:00:00 UTC, renewed at "
        "2026-01-01 00:00:03, valid until 2026-01-01 00:00:13 by its clock; try again when it has "
        "ended"
    )


def test_the_command_of_a_holder_has_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for words, said in ((("seed", "mine", "s3://k:s@b/x"), " seed"), (("--password=secret",), "")):
        monkeypatch.setattr(sys, "argv", ["/usr/bin/ticdc-assets", *words])
        assert this_process().command == f"ticdc-assets{said}"
    assert this_process("1234").command == "run 1234"


def test_this_process_is_not_gone() -> None:
    me = this_process()
    assert not is_gone(me)
    if me.machine:
        dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], **PIPED)
        assert is_gone(replace(me, process=int(dead.stdout)))
        assert is_gone(replace(me, started="1"))  # its number is another process's now
    assert not is_gone(replace(me, process=1 << 21, machine="another"))


PIPED: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True, "check": True}


# The log in files ---------------------------------------------------------------------------------


def test_of_two_entries_after_one_the_second_is_refused(tmp_path: Path) -> None:
    logs = [LeaseLog(tmp_path / "lease") for _ in range(2)]
    behind = [log.newest() for log in logs]
    assert [entry.state for entry in behind] == [None, None]
    assert not (tmp_path / "lease").exists()
    states = [state_of(str(number)) for number in range(2)]
    assert logs[0].put(states[0], behind[0])
    assert not logs[1].put(states[1], behind[1])
    assert [log.newest().state for log in logs] == [states[0]] * 2
    assert logs[1].put(states[1], logs[1].newest())
    assert read_lease(tmp_path / "lease") == states[1]
    assert read_lease(tmp_path / "none") is None


def state_of(host: str, number: int = 1) -> LeaseState:
    now = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)
    holder = replace(this_process(), host=host)
    return LeaseState(
        number=number,
        is_held=True,
        holder=holder,
        token=host,
        seconds=1.5,
        taken_at=now,
        renewed_at=now,
    )


def test_the_log_does_not_grow(tmp_path: Path) -> None:
    log = LeaseLog(tmp_path)
    late = log.newest()
    for number in range(100):
        assert log.put(state_of("a", number), log.newest())
    assert len(list(tmp_path.iterdir())) == 20
    # The number after the entry of a writer that stalled is free again: it learns that it is late.
    stalled = LeaseLog(tmp_path)
    assert stalled.put(state_of("b"), late)
    assert stalled.newest().state == log.newest().state == state_of("a", 99)
    for number in range(100, 110):
        assert log.put(state_of("a", number), log.newest())
    assert len(list(tmp_path.iterdir())) == 20


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff", b'{"number": 1'])
def test_an_entry_of_another_kind_is_damage(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "feed" / "lease"
    path.mkdir(parents=True)
    (path / f"{1:020}.json").write_bytes(content)
    with pytest.raises(LakeDamagedError, match=r"newest entry is not a lease's .*; end all runs"):
        read_lease(path)


# Fenced tables ------------------------------------------------------------------------------------


@dataclass
class Number:
    """A lease that is believed to be held."""

    number: int
    is_lost: bool = False

    def require(self) -> None:
        if self.is_lost:
            raise LeaseLostError("it is lost")


ONE = pa.table({"n": [1]})


def append(path: Path) -> None:
    write_table(path, ONE, overwrite=False, metadata={"number": 1})


def leases_of(path: AnyPath) -> list[int | None]:
    """Return the number of the lease of each commit."""
    return [lease_of(path, version) for version in range(newest_version(path) + 1)]


def test_commits_under_a_lease_carry_its_number(tmp_path: Path) -> None:
    path = tmp_path / "cuts"
    append(path)
    with guarded(tmp_path, Number(7)):
        append(path)
        write_table(path, ONE, overwrite=True, metadata={"number": 2})
    append(path)
    assert leases_of(path) == [None, 7, 7, None]
    assert number_in(log_state(path)) == 7
    assert commit_metadata(path) == {"number": 1}
    # A later lease does not make them another program's: a killed sync is ahead of the cut.
    with guarded(tmp_path, Number(8)):
        assert foreign_changes(path, 0) == []


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_table_refuses_an_older_lease(tmp_path: Path, overwrite: bool) -> None:
    path = tmp_path / "cuts"
    with guarded(tmp_path, Number(7)):
        append(path)
    with guarded(tmp_path, Number(6)), pytest.raises(LeaseLostError, match="under lease 7, this"):
        write_table(path, ONE, overwrite=overwrite, metadata={})
    with guarded(tmp_path, Number(7)):
        append(path)
    assert len(read_rows(path)) == 2


def test_a_commit_that_stood_still_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was about to be made when another run took over and committed."""
    path = tmp_path / "cuts"
    append(path)
    put = committing.create

    def stall(entry: Path, data: bytes) -> None:
        monkeypatch.setattr(committing, "create", put)
        # The other run is in another process.
        monkeypatch.setitem(fencing._GUARDS, str(tmp_path), Number(7))
        append(path)
        monkeypatch.setitem(fencing._GUARDS, str(tmp_path), Number(6))
        put(entry, data)

    monkeypatch.setattr(committing, "create", stall)
    told = pytest.raises(LeaseLostError, match="was written under lease 7, this run has lease 6")
    with guarded(tmp_path, Number(6)), told:
        append(path)
    assert len(read_rows(path)) == 2


def test_a_lost_lease_makes_no_commit(tmp_path: Path) -> None:
    with guarded(tmp_path, Number(6, is_lost=True)), pytest.raises(LeaseLostError, match="is lost"):
        append(tmp_path / "cuts")
    assert not (tmp_path / "cuts").exists()


# Locks --------------------------------------------------------------------------------------------


@pytest.fixture
def paths(tmp_path: Path) -> LakePaths:
    return LakePaths(root=tmp_path / "lake", changefeed="shop")


SHORT = Writer(lease=timedelta(seconds=2))


def stated(paths: LakePaths) -> tuple[int, bool, float]:
    """Return the number of the lease, whether it is held, and its seconds."""
    state = read_lease(paths.lease)
    assert state is not None
    return state.number, state.is_held, state.seconds


def test_a_folder_has_a_lease_from_when_it_is_asked_for(paths: LakePaths) -> None:
    with writer_lock(paths, Writer()):
        append(paths.cuts)
    assert not paths.lease.exists()
    for writer in (SHORT, Writer()):
        with writer_lock(paths, writer):
            append(paths.cuts)
    assert stated(paths) == (2, False, 60)
    assert leases_of(paths.cuts) == [None, 1, 2]


def test_with_and_without_a_lease_are_kept_apart_on_a_host(paths: LakePaths) -> None:
    with writer_lock(paths, Writer()):
        named = rf"process {os.getpid()} .*, which holds .*writer\.lock"
        with pytest.raises(BusyError, match=named), writer_lock(paths, SHORT):
            pass
        side = paths.beside()
        with side_lock(paths, SHORT, side.generation_folder):
            append(side.cuts)
    assert lease_of(side.cuts, 0) == 1


def test_a_lease_that_is_made_anew_is_newer_than_what_tables_have_seen(paths: LakePaths) -> None:
    for _ in range(3):
        with writer_lock(paths, SHORT):
            append(paths.cuts)
    shutil.rmtree(paths.lease)
    with writer_lock(paths, SHORT):
        append(paths.cuts)
    assert stated(paths)[0] == 5


@pytest.mark.thorough
def test_a_process_holds_one_lease_of_a_changefeed(
    paths: LakePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its threads could not be told apart, if the first lease were over."""
    monkeypatch.setattr(leases, "is_gone", lambda holder: True)
    with writer_lock(paths, SHORT):
        with pytest.raises(BusyError, match=r"already writes to"), writer_lock(paths, SHORT):
            pass
        time.sleep(1.1)
        with pytest.raises(LeaseLostError, match="gave back lease 2"):
            append(paths.cuts)
    assert not paths.cuts.exists()


# Processes ----------------------------------------------------------------------------------------

HOLDER = """
import json, os, sys, time
from datetime import timedelta
from pathlib import Path
import pyarrow as pa
from ticdc_assets.config import Writer
from ticdc_assets.delta import lease
from ticdc_assets.delta.appending import write_table
from ticdc_assets.delta.lock import writer_lock
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.base.errors import BusyError, TicdcError

root, seconds, commits, pause, machine = sys.argv[1:]
if machine:
    lease._machine = lambda: machine
place = Path(root)
if "://" in root:
    from ticdc_assets.storage.paths import remote_path
    from ticdc_assets.storage.stores import Storage
    place = remote_path(root, Storage(**json.loads(os.environ["LAKE_STORAGE"])), {})
paths = LakePaths(root=place, changefeed="shop")
began = time.monotonic()
try:
    with writer_lock(paths, Writer(lease=timedelta(seconds=float(seconds)))):
        print("held", round(time.monotonic() - began, 1), flush=True)
        for number in range(int(commits)):
            row = pa.table({"host": [machine], "number": [number]})
            write_table(paths.cuts, row, overwrite=False, metadata={"number": number})
            print("committed", flush=True)
            time.sleep(float(pause))
    print("done", flush=True)
except TicdcError as error:
    print(type(error).__name__, error, flush=True)
"""


@contextmanager
def holding(
    paths: LakePaths,
    seconds: float,
    *,
    commits: int = 1000,
    pause: float = 0.2,
    machine: str = "",
    env: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lease and commits again and again."""
    words = [str(paths.root), str(seconds), str(commits), str(pause), machine]
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, *words],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def killed(process: subprocess.Popen[str]) -> None:
    """Kill a holder that has committed."""
    assert line(process).startswith("held")
    assert line(process) == "committed"
    process.kill()
    process.wait()


def waited(paths: LakePaths, seconds: float, **options: Any) -> float:
    """Return how long a process that ends well had to wait for the lease."""
    with holding(paths, seconds, **options) as process:
        held, waited = line(process).split()
        assert held == "held"
        assert process.wait(60) == 0
    return float(waited)


def assert_one_writes(paths: LakePaths, seconds: float, machines: str, **options: Any) -> None:
    """Let processes begin at once, where nothing is yet: none writes beside another."""
    with ExitStack() as stack:
        processes = [
            stack.enter_context(holding(paths, seconds, commits=3, machine=machine, **options))
            for machine in machines
        ]
        ends = [process.communicate(timeout=120)[0].splitlines()[-1] for process in processes]
    # Who was told that another one is running lives with it.
    assert {end.split()[0] for end in ends} <= {"done", "BusyError"}, ends
    assert len(read_rows(paths.cuts)) == 3 * ends.count("done") > 0
    numbers = [number for number in leases_of(paths.cuts) if number is not None]
    assert numbers == sorted(numbers)
    assert all(numbers.count(number) == 3 for number in numbers)


@pytest.mark.thorough
def test_of_many_processes_one_holds_it(paths: LakePaths) -> None:
    assert_one_writes(paths, 5, "abc")


@pytest.mark.thorough
def test_a_killed_holder_is_taken_over(paths: LakePaths) -> None:
    with holding(paths, 60) as process:
        killed(process)
        # It was of this machine: nobody waits for the minute of the lease.
        assert waited(paths, 60, commits=1) < 60


@pytest.mark.thorough
def test_who_takes_over_fences_the_tables_first(paths: LakePaths) -> None:
    with holding(paths, 60, pause=9) as process:
        killed(process)
    rows, metadata = read_rows(paths.cuts), commit_metadata(paths.cuts)
    version = newest_version(paths.cuts)
    with writer_lock(paths, SHORT):
        assert newest_version(paths.cuts) == version + 1
    assert lease_of(paths.cuts, version + 1) == 2
    assert (read_rows(paths.cuts), commit_metadata(paths.cuts)) == (rows, metadata)
    with writer_lock(paths, SHORT):
        pass
    # The last one was given back: nobody can be late.
    assert newest_version(paths.cuts) == version + 1


@pytest.mark.thorough
def test_a_holder_of_another_machine_keeps_it_for_its_duration(paths: LakePaths) -> None:
    """Clocks that differ are the model's."""
    with holding(paths, 3, machine="far") as far:
        assert line(far).startswith("held")
        told = pytest.raises(BusyError, match=r"process \d+ \(-c\) has had lease 1 since")
        with told, writer_lock(paths, SHORT):
            pass
        far.kill()
        far.wait()
        assert waited(paths, 3, commits=1, machine="near") >= 3


@pytest.mark.thorough
def test_a_holder_that_stood_still_commits_nothing_more(paths: LakePaths) -> None:
    with holding(paths, 1, pause=0.01) as stalled:
        assert line(stalled).startswith("held")
        assert line(stalled) == "committed"
        stalled.send_signal(signal.SIGSTOP)
        assert waited(paths, 1, commits=3) >= 1
        rows = len(read_rows(paths.cuts))
        stalled.send_signal(signal.SIGCONT)
        told = stalled.communicate(timeout=30)[0].splitlines()[-1]
    # Either its clock tells it, or the log, or the table.
    assert told.startswith("LeaseLostError"), told
    assert "nothing" in told
    assert len(read_rows(paths.cuts)) == rows
    assert stated(paths)[:2] == (2, False)
