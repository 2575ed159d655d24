"""Run the simulator: a workload into an upstream, its changefeed into a topic or a capture.

In: a changefeed's place (a Kafka topic, a capture), sizes and a pace. Out: the records there, and
the upstream's own truth, with the TSO at which it is true: the final watermark, which is above
everything.

Each run is a new upstream. In a live run TSOs are those of the wall clock, so a second run into
the same topic continues it in time, but with other databases of the same names: give each run a
topic (or a capture) of its own. A run that fails leaves a shorter topic, and running again into a
new topic is all that is needed. After a run its changefeed can go on with a person's statements
(`live_changefeed`).

Topics that do not exist are made. Not handled: resuming a run.
"""

import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

from ticdc_assets.base.errors import (
    ConfigError,
    StatementError,
)
from ticdc_assets.config import KafkaSource
from ticdc_assets.demo.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.clock import TsoClock, wall_clock_ms
from ticdc_assets.demo.simulator.export import export_upstream
from ticdc_assets.demo.simulator.shop import STEPS_PER_DDL, ShopWorkload
from ticdc_assets.demo.simulator.statements import Executed, execute
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.source.kafka.administration import Administration
from ticdc_assets.source.kafka.records import produce
from ticdc_assets.wire import WireFormat

Sink: TypeAlias = Callable[[list[CaptureRecord]], None]
"""Takes records and returns when they are stored."""

_SEND_SECONDS: Final = 0.2
"""From one sending of what was committed to the next."""

_WATERMARK_SECONDS: Final = 1.0
# Each is a sync of the mirrors, and a change has to wait for the one that is under way.
_LIVE_WATERMARK_SECONDS: Final = 5.0

_STEPS_BEFORE: Final = 100
"""Steps of the shop before it is exported."""

# Kafka's retention counts from record timestamps; a demo's topic should simply stay.
_TOPIC_CONFIG: Final = {"retention.ms": "-1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorProgress:
    """How far a run is.

    Attributes:
        transactions: row transactions committed upstream.
        statements: DDL statements committed upstream.
        records: Kafka records stored.
        seconds: time since the run began.
        finished: whether the final watermark is stored.
    """

    transactions: int = 0
    statements: int = 0
    records: int = 0
    seconds: float = 0.0
    finished: bool = False


class SimulatorRun:
    """One bounded run of a workload, in the calling thread or in one of its own.

    Args:
        workload: what commits; its upstream is the changefeed's.
        changefeed: what turns commits into records.
        sink: where records go.
        max_transactions: stop after this many steps of the workload.
        max_seconds: stop after this time.
        transactions_per_second: pace.
        on_progress: called after each sending.
        exported_ts: TSO of the export that the changefeed starts at, None for none.

    Attributes:
        changefeed: what turns commits into records.
        sink: where records go.
    """

    def __init__(
        self,
        workload: ShopWorkload,
        changefeed: StandInChangefeed,
        *,
        exported_ts: int | None = None,
        sink: Sink,
        max_transactions: int,
        max_seconds: float,
        transactions_per_second: float,
        on_progress: Callable[[SimulatorProgress], None] | None = None,
    ) -> None:
        self.exported_ts = exported_ts
        self._workload = workload
        self.changefeed = changefeed
        self.sink = sink
        self._max_transactions = max_transactions
        self._max_seconds = max_seconds
        self._pace = transactions_per_second
        self._on_progress = on_progress
        self._thread: threading.Thread | None = None
        self._progress = SimulatorProgress()
        self._error: BaseException | None = None
        self._began = 0.0

    @property
    def progress(self) -> SimulatorProgress:
        """How far the run is; may be read from any thread."""
        return self._progress

    def start(self) -> None:
        """Run in a thread of its own, which does not keep the program alive."""
        self._thread = threading.Thread(target=self._run_in_thread, name="simulator", daemon=True)
        self._thread.start()

    def join(self, timeout_seconds: float | None = None) -> None:
        """Wait for a started run; an error of the run is raised here.

        Raises:
            TimeoutError: it did not end in time.
        """
        if self._thread is not None:
            self._thread.join(timeout_seconds)
        if self._error is not None:
            raise self._error
        if not self._progress.finished:
            raise TimeoutError("the simulator is still running")

    def run(self) -> None:
        """Run here, to the end: the changefeed's watermark is above everything then."""
        self._began = time.monotonic()
        # What was there before the workload begins travels at once: a cluster is not born empty.
        self._workload.open()
        self._send(self.changefeed.records())
        steps = 0
        next_watermark = time.monotonic() + _WATERMARK_SECONDS
        while steps < self._max_transactions and not self._is_over():
            due = min(self._due_steps(steps), self._max_transactions - steps)
            for _ in self._workload.steps(due):
                steps += 1
            if time.monotonic() >= next_watermark:
                self._send(self.changefeed.tick())
                next_watermark = time.monotonic() + _WATERMARK_SECONDS
            else:
                self._send(self.changefeed.records())
            if steps < self._max_transactions:
                time.sleep(_SEND_SECONDS)
        self._send(self.changefeed.tick())
        self._report(finished=True)

    def _run_in_thread(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001 - raised again by join
            self._error = error

    def _is_over(self) -> bool:
        return time.monotonic() - self._began > self._max_seconds

    def _due_steps(self, taken: int) -> int:
        return max(0, round((time.monotonic() - self._began) * self._pace) - taken)

    def _send(self, records: Iterable[CaptureRecord]) -> None:
        self._report(records=send(self.changefeed, records, self.sink))

    def _report(self, *, records: int = 0, finished: bool = False) -> None:
        self._progress = SimulatorProgress(
            transactions=self._workload.transactions,
            statements=self._workload.statements,
            records=self._progress.records + records,
            seconds=time.monotonic() - self._began,
            finished=finished,
        )
        if self._on_progress is not None:
            self._on_progress(self._progress)


@contextmanager
def live_changefeed(
    run: SimulatorRun, on_error: Callable[[str], None]
) -> Generator[Callable[[str], Executed]]:
    """Let a changefeed go on after its workload, while the `with` block lasts.

    Changes are sent a fraction of a second after their commit with a watermark after them, and a
    watermark every few seconds while nothing changes. Statements run one after the other, and never
    during a sending.

    Args:
        run: the run that it goes on from; it has finished.
        on_error: called with the reason if it ends by itself (the broker is gone).

    Yields:
        A function that runs one statement upstream and commits it. It raises `StatementError` if
        the statement cannot be run, or its changes could not be sent; nothing was changed then.
    """
    changefeed, at_work, stop = run.changefeed, threading.Lock(), threading.Event()
    errors: list[Exception] = []

    def run_statement(sql: str) -> Executed:
        with at_work:
            if errors:
                raise StatementError(f"the changefeed has ended: {errors[0]}")
            return execute(changefeed.upstream, sql)

    def go_on() -> None:
        history, sent, next_watermark = changefeed.upstream.history, 0, time.monotonic()
        while not errors and not stop.wait(_SEND_SECONDS):
            with at_work:
                if len(history) == sent and time.monotonic() < next_watermark:
                    continue
                sent, next_watermark = len(history), time.monotonic() + _LIVE_WATERMARK_SECONDS
                try:
                    send(changefeed, changefeed.tick(), run.sink)
                except Exception as error:  # noqa: BLE001 - no change is lost in silence
                    errors.append(error)
                    on_error(str(error))

    thread = threading.Thread(target=go_on, name="changefeed", daemon=True)
    thread.start()
    try:
        yield run_statement
    finally:
        stop.set()
        thread.join()


def send(changefeed: StandInChangefeed, records: Iterable[CaptureRecord], sink: Sink) -> int:
    """Let a sink take records of a changefeed, each round of them only after all before it.

    Args:
        changefeed: whose records they are.
        records: what `records` or `tick` of the changefeed yields.
        sink: where they go.

    Returns:
        How many there were.
    """
    batch: list[CaptureRecord] = []
    rounds, sent = changefeed.rounds, 0
    for record in records:
        if changefeed.rounds != rounds and batch:
            sink(batch)
            sent, batch = sent + len(batch), []
        rounds = changefeed.rounds
        batch.append(record)
    if batch:
        sink(batch)
    return sent + len(batch)


def run_simulator(
    target: KafkaSource,
    *,
    partitions: int = 3,
    seed: int = 0,
    timezone: str = "UTC",
    max_transactions: int = 1_000,
    max_seconds: float = 60.0,
    transactions_per_second: float = 40.0,
    wire_format: WireFormat = WireFormat.SIMPLE_JSON,
    steps_per_ddl: int = STEPS_PER_DDL,
    feed: FeedOptions | None = None,
    export: Path | None = None,
    on_progress: Callable[[SimulatorProgress], None] | None = None,
) -> SimulatorRun:
    """Return a run of the shop into a Kafka topic, ready for `run` or `start`.

    Args:
        target: the cluster and the one topic, or the one pattern that gives each table a topic.
        partitions: partitions of a topic where it is created here.
        seed: of the workload and of the order of the records.
        timezone: the changefeed's time zone.
        max_transactions: stop after this many steps.
        max_seconds: stop after this time.
        transactions_per_second: pace.
        wire_format: format of the messages.
        steps_per_ddl: steps of the shop between two schema changes.
        feed: how the changefeed sends.
        export: folder into which the shop is exported before the changefeed begins, which starts
            at the TSO of the export then; None for a changefeed that was there from the beginning.
        on_progress: called after each sending.

    Raises:
        ConfigError: the target does not name exactly one topic.
        SourceUnavailableError: the broker does not answer.
    """
    names = [*target.topics, *(pattern.text for pattern in target.patterns)]
    if len(names) != 1:
        raise ConfigError(f"topics: one topic is needed to write to, got {len(names)}")
    topic = names[0]
    administration = Administration(target)
    checked: set[str] = set()

    def partitions_of(name: str) -> int:
        count = administration.partition_count(name)
        if count is None:
            administration.create_topic(name, partitions, config=_TOPIC_CONFIG)
            count = partitions
        checked.add(name)
        return count

    count = partitions if target.patterns else partitions_of(topic)

    def sink(records: list[CaptureRecord]) -> None:
        for name in sorted({record.topic for record in records} - checked):
            partitions_of(name)
        produce(target, records)

    # What sends milliseconds alone must have commits in different ones.
    extension = feed is None or feed.messages.tidb_extension
    upstream = Upstream(
        clock=TsoClock(now_ms=wall_clock_ms, apart=not extension), timezone=timezone
    )
    workload = ShopWorkload(upstream, seed, steps_per_ddl=steps_per_ddl)
    options, exported_ts = feed or FeedOptions(), None
    if export is not None:
        for _ in workload.steps(_STEPS_BEFORE):
            pass
        exported_ts = export_upstream(upstream, export)
        options = replace(options, first_ts=exported_ts)
    return SimulatorRun(
        workload,
        StandInChangefeed(
            upstream, topic, partitions=count, wire_format=wire_format, options=options, seed=seed
        ),
        exported_ts=exported_ts,
        sink=sink,
        max_transactions=max_transactions,
        max_seconds=max_seconds,
        transactions_per_second=transactions_per_second,
        on_progress=on_progress,
    )
