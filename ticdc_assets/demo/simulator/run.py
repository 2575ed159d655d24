"""Run the simulator: a workload into an upstream, its changefeed into a topic or a capture.

In: a changefeed's place (a Kafka topic, a capture), sizes and a pace. Out: the records there, and
the upstream's own truth, with the TSO at which it is true: the final watermark, which is above
everything.

Each run is a new upstream. In a live run TSOs are those of the wall clock, so a second run into
the same topic continues it in time, but with other databases of the same names: give each run a
topic (or a capture) of its own. A run that fails leaves a shorter topic, and running again into a
new topic is all that is needed. After a run its changefeed can go on with a person's statements
(`live_changefeed`).

A topic that does not exist is made. Not handled: resuming a run.
"""

import threading
import time
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from ticdc_assets.base.errors import StatementError
from ticdc_assets.config import KafkaSource
from ticdc_assets.demo.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.clock import TsoClock, wall_clock_ms
from ticdc_assets.demo.simulator.export import export_upstream
from ticdc_assets.demo.simulator.shop import ShopWorkload
from ticdc_assets.demo.simulator.statements import Executed, execute
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.source.kafka.administration import Administration
from ticdc_assets.source.kafka.records import produce
from ticdc_assets.wire import WireFormat

Sink: TypeAlias = Callable[[list[CaptureRecord]], object]
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


@dataclass(kw_only=True)
class SimulatorRun:
    """One bounded run of a workload, in the calling thread or in one of its own.

    Attributes:
        sink: where records go.
        max_transactions: stop after this many steps of the workload.
        on_progress: called with the run after each sending.
        exported_ts: TSO of the export that the changefeed starts at, None for none.
        records: how many records are stored.
        seconds: time from the begin to the last sending.
        finished: whether the final watermark is stored.
    """

    workload: ShopWorkload
    changefeed: StandInChangefeed
    sink: Sink
    max_transactions: int
    max_seconds: float
    transactions_per_second: float
    on_progress: Callable[["SimulatorRun"], None] | None = None
    exported_ts: int | None = None
    records: int = 0
    seconds: float = 0.0
    finished: bool = False
    _ended: Future[None] = field(default_factory=Future[None], init=False)

    def start(self) -> None:
        """Run in a thread of its own, which does not keep the program alive."""
        threading.Thread(target=self._run_in_thread, name="simulator", daemon=True).start()

    def join(self, timeout_seconds: float | None = None) -> None:
        """Wait for a started run; an error of the run is raised here.

        Raises:
            TimeoutError: it did not end in time.
        """
        self._ended.result(timeout_seconds)

    def run(self) -> None:
        """Run here, to the end: the changefeed's watermark is above everything then."""
        began = time.monotonic()
        # What was there before the workload begins travels at once: a cluster is not born empty.
        self.workload.open()
        self._send(self.changefeed.records(), began)
        steps = 0
        next_watermark = time.monotonic() + _WATERMARK_SECONDS
        while steps < self.max_transactions:
            seconds = time.monotonic() - began
            if seconds > self.max_seconds:
                break
            due = min(round(seconds * self.transactions_per_second), self.max_transactions)
            for _ in self.workload.steps(max(0, due - steps)):
                steps += 1
            is_due = time.monotonic() >= next_watermark
            self._send(self.changefeed.tick() if is_due else self.changefeed.records(), began)
            if is_due:
                next_watermark = time.monotonic() + _WATERMARK_SECONDS
            if steps < self.max_transactions:
                time.sleep(_SEND_SECONDS)
        self._send(self.changefeed.tick(), began, is_last=True)

    def _run_in_thread(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001 - raised again by join
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    def _send(
        self, records: Iterable[CaptureRecord], began: float, *, is_last: bool = False
    ) -> None:
        batch = list(records)
        if batch:
            self.sink(batch)
        self.records += len(batch)
        self.seconds, self.finished = time.monotonic() - began, is_last
        if self.on_progress is not None:
            self.on_progress(self)


@contextmanager
def live_changefeed(
    run: SimulatorRun, on_error: Callable[[str], None]
) -> Generator[Callable[[str], Executed]]:
    """Let the changefeed of a finished run go on while the `with` block lasts.

    Changes are sent a fraction of a second after their commit with a watermark after them, and a
    watermark every few seconds while nothing changes. Statements run one after the other, and never
    during a sending. `on_error` gets the reason if the changefeed ends by itself.

    Yields:
        A function that runs one statement upstream and commits it. It raises `StatementError`, and
        nothing was changed then, if the statement cannot be run or its changes could not be sent.
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
                    run.sink(list(changefeed.tick()))
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
    feed: FeedOptions | None = None,
    export: Path | None = None,
    on_progress: Callable[[SimulatorRun], None] | None = None,
) -> SimulatorRun:
    """Return a run of the shop into the one topic of `target`, ready for `run` or `start`.

    Args:
        target: the cluster and the topic.
        partitions: partitions of the topic where it is created here.
        seed: of the workload and of the order of the records.
        timezone: the changefeed's time zone.
        max_transactions: stop after this many steps.
        max_seconds: stop after this time.
        transactions_per_second: pace.
        wire_format: format of the messages.
        feed: how the changefeed sends.
        export: folder into which the shop is exported first; the changefeed starts at its TSO.
        on_progress: called with the run after each sending.

    Raises:
        SourceUnavailableError: the broker does not answer.
    """
    (topic,) = target.topics
    options, exported_ts = feed or FeedOptions(), None
    administration = Administration(target)
    count = administration.partition_count(topic)
    if count is None:
        administration.create_topic(topic, partitions, config=_TOPIC_CONFIG)
        count = partitions
    upstream = Upstream(clock=TsoClock(now_ms=wall_clock_ms), timezone=timezone)
    workload = ShopWorkload(upstream, seed)
    if export is not None:
        for _ in workload.steps(_STEPS_BEFORE):
            pass
        exported_ts = export_upstream(upstream, export)
        options = replace(options, first_ts=exported_ts)
    changefeed = StandInChangefeed(
        upstream, topic, partitions=count, wire_format=wire_format, options=options, seed=seed
    )
    return SimulatorRun(
        workload=workload,
        changefeed=changefeed,
        exported_ts=exported_ts,
        sink=partial(produce, target),
        max_transactions=max_transactions,
        max_seconds=max_seconds,
        transactions_per_second=transactions_per_second,
        on_progress=on_progress,
    )
