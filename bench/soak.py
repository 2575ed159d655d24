"""`python -m bench.soak`: two changefeeds through daemon and sensors, while things break.

In: minutes. Out: a folder with everything, a table of what was seen, and exit code 1 unless every
mirror equals the truth, no two runs of a changefeed overlapped and every tick that failed is told.

Two stand-in changefeeds of different formats write into one broker, each table into a topic of its
own, while `dagster dev` runs with nothing but the configuration. After a third of the time the
broker is stopped for a while, after half of it the daemon is killed by force, and a topic whose
table was dropped is deleted. Freshness is measured per transaction: from its commit to the
publishing of the first cut that has it, while the changefeed was written.
"""

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

import click
import psutil
from dagster import DagsterInstance, DagsterRunStatus
from dagster._core.scheduler.instigation import TickStatus

from bench.sustained import seconds_until_cut
from ticdc_assets.base.errors import SourceUnavailableError
from ticdc_assets.base.ports import free_port
from ticdc_assets.changelog.progress import TopicState
from ticdc_assets.config import Changefeed, KafkaSource, Settings, load_settings
from ticdc_assets.delta.lake import Lake
from ticdc_assets.demo.simulator.clock import TsoClock, wall_clock_ms
from ticdc_assets.demo.simulator.run import SimulatorRun, Sink
from ticdc_assets.demo.simulator.shop import ShopWorkload
from ticdc_assets.demo.simulator.upstream import CommittedTransaction, Upstream
from ticdc_assets.log.cuts import Cut, newest_cut, read_cuts
from ticdc_assets.log.positions import known_partitions
from ticdc_assets.log.watermark import read_watermark
from ticdc_assets.model.tso import physical_ms
from ticdc_assets.orchestration.partitions import CHANGEFEED_TAG
from ticdc_assets.orchestration.ui import ui_command
from ticdc_assets.reading.mirrors import iterate_rows, published_table
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.source.kafka.administration import Administration
from ticdc_assets.source.kafka.records import produce
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.wire import WireFormat
from ticdc_assets_tests.brokers import OwnBroker
from ticdc_assets_tests.commands import Commands
from ticdc_assets_tests.demo.simulator.topics_changefeed import TopicsChangefeed

FORMATS = {"orders": WireFormat.SIMPLE_JSON, "billing": WireFormat.CANAL_JSON}
PARTITIONS = 2
OUTAGE_SECONDS = 20.0
_NAMED_ONCE = ("promotions", "scratch")
CATCH_UP_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One changefeed while it is written."""

    feed: Changefeed
    paths: LakePaths
    simulator: SimulatorRun
    began: float

    @property
    def final_ts(self) -> int:
        """The last watermark."""
        return self.simulator.changefeed.watermark_ts

    @property
    def lake(self) -> Lake:
        """The lake of its mirrors."""
        return Lake(changefeed=self.feed, paths=self.paths)


@click.command()
@click.option("--minutes", default=15.0, show_default=True, help="How long changes are written.")
@click.option("--pace", default=10.0, show_default=True, help="Transactions a second, each.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where; a temporary one if none.")
def main(minutes: float, pace: float, folder: Path | None) -> None:
    """Write, break, wait, compare."""
    folder = folder or Path(tempfile.mkdtemp(prefix="ticdc_assets_soak_"))
    folder.mkdir(parents=True, exist_ok=True)
    with OwnBroker(folder / "broker") as broker:
        settings = configure(folder, broker)
        dagster = DagsterDev(settings, folder / "dagster.log")
        dagster.start()
        try:
            written = [start(settings, feed, minutes, pace) for feed in settings.changefeeds]
            break_things(broker, dagster, written, minutes * 60)
            for item in written:
                item.simulator.join(600)
            note("the changefeeds are written; waiting for the mirrors")
            wait_for(written)
        finally:
            dagster.stop()
        sound = [compare(item) for item in written]
    sound.append(runs_are_apart(settings))
    ticks_are_told()
    note(f"everything is in {folder}")
    if not all(sound):
        sys.exit(1)


def note(text: str) -> None:
    """Say something, with the time."""
    click.echo(f"{time.strftime('%H:%M:%S')}  {text}", err=True)


# The parts --------------------------------------------------------------------------------------


def configure(folder: Path, broker: OwnBroker) -> Settings:
    """Write the configuration and point this process at it."""
    commands = Commands(folder)
    for name, wire_format in FORMATS.items():
        source = broker.source(f"{name}_{{schema}}_{{table}}", f"{name}_default")
        commands.add_topic(name, source, format=str(wire_format))
    os.environ.update(commands.env)
    return load_settings()


def start(settings: Settings, feed: Changefeed, minutes: float, pace: float) -> Written:
    """Begin to write a changefeed."""
    assert isinstance(feed.source, KafkaSource)
    upstream = Upstream(clock=TsoClock(now_ms=wall_clock_ms))
    changefeed = TopicsChangefeed(
        upstream,
        f"{feed.name}_{{schema}}_{{table}}",
        default_topic=f"{feed.name}_default",
        partitions=PARTITIONS,
        wire_format=WireFormat(feed.wire_format),
        seed=len(feed.name),
    )
    simulator = SimulatorRun(
        workload=ShopWorkload(upstream, len(feed.name), steps_per_ddl=max(50, int(pace * 12))),
        changefeed=changefeed,
        sink=patient(into_topics(feed.source)),
        max_transactions=10**9,
        max_seconds=minutes * 60,
        transactions_per_second=pace,
    )
    simulator.start()
    paths = LakePaths(root=settings.lake, changefeed=feed.name)
    return Written(feed=feed, paths=paths, simulator=simulator, began=time.time())


def into_topics(source: KafkaSource) -> Sink:
    """Return a sink that creates topics, and sends watermarks after everything before them."""
    administration = Administration(source)
    created: set[str] = set()

    def send(records: list[CaptureRecord]) -> None:
        for topic in {record.topic for record in records} - created:
            if administration.partition_count(topic) is None:
                administration.create_topic(topic, PARTITIONS)
            created.add(topic)
        for _, group in itertools.groupby(
            records, lambda item: b"WATERMARK" in (item.value or b"")
        ):
            produce(source, group)

    return send


def patient(sink: Sink) -> Sink:
    """Return a sink that goes on trying while the broker is away; some records may come twice."""

    def send(records: list[CaptureRecord]) -> object:
        until = time.monotonic() + 10 * OUTAGE_SECONDS
        while True:
            try:
                return sink(records)
            except SourceUnavailableError:
                if time.monotonic() >= until:
                    raise
                time.sleep(1.0)

    return send


class DagsterDev:
    """`dagster dev` with its daemon, which may be killed and started again."""

    def __init__(self, settings: Settings, log: Path) -> None:
        self._settings = settings
        self._log = log
        self._server: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server and the daemon."""
        command, env = ui_command(self._settings, free_port())
        with self._log.open("ab") as log:
            self._server = subprocess.Popen(
                command, env=env, stdout=log, stderr=log, start_new_session=True
            )

    def kill_daemon(self) -> None:
        """Kill the server, the daemon, and what they run, by force, and start all again."""
        assert self._server is not None
        _kill([*_below(self._server.pid), psutil.Process(self._server.pid)])
        self._server.wait()
        self.start()

    def stop(self) -> None:
        """Stop the server and wait for its end; a run that follows would go on without it."""
        if self._server is not None:
            below = _below(self._server.pid)
            self._server.terminate()
            self._server.wait(120)
            _kill(below)


def _below(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def _kill(processes: list[psutil.Process]) -> None:
    """Kill processes by force; one may be gone by the time it is its turn."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def break_things(
    broker: OwnBroker, dagster: DagsterDev, written: list[Written], seconds: float
) -> None:
    """Stop the broker, kill the daemon, and delete a retired topic, each once."""
    began = time.monotonic()

    def sleep_until(share: float) -> None:
        time.sleep(max(0.0, began + seconds * share - time.monotonic()))

    sleep_until(1 / 3)
    note("the broker is stopped")
    broker.stop()
    time.sleep(OUTAGE_SECONDS)
    broker.start()
    note("the broker is back")
    sleep_until(1 / 2)
    note("Dagster's daemon and its runs are killed")
    dagster.kill_daemon()
    while time.monotonic() < began + seconds:
        topic = retired_topic(written)
        if topic is not None:
            broker.delete_topic(topic)
            note(f"the retired topic {topic} was deleted")
            return
        time.sleep(5)
    note("no topic retired; none was deleted")


def retired_topic(written: list[Written]) -> str | None:
    """Return a topic of a dropped table of which nothing is left to land.

    Only of tables whose names do not come back: a topic that is made again is another one.
    """
    for item in written:
        settled = {place.topic for place in known_partitions(item.paths) if place.settled}
        for topic in read_watermark(item.lake).topics_in(TopicState.RETIRED):
            if topic.topic in settled and any(word in topic.topic for word in _NAMED_ONCE):
                return topic.topic
    return None


def wait_for(written: list[Written]) -> None:
    """Wait until every changefeed is cut at its final watermark, or for long enough."""
    deadline = time.monotonic() + CATCH_UP_SECONDS
    while time.monotonic() < deadline:
        cuts = [(item, newest_cut(item.paths)) for item in written]
        if all(cut is not None and cut.tso == item.final_ts for item, cut in cuts):
            return
        time.sleep(1)
    note("the mirrors did not get to the end in time")


# Judging ----------------------------------------------------------------------------------------


def compare(item: Written) -> bool:
    """Tell whether the mirrors equal the truth, and how fresh they were."""
    cut = newest_cut(item.paths)
    name = item.feed.name
    if cut is None:
        click.echo(f"{name}: no cut was published")
        return False
    found: Counter[tuple[str, str, str]] = Counter()
    published = (published_table(item.lake, mirror) for mirror in cut.mirrors)
    for database, table, row in iterate_rows(published, item.feed.timezone):
        found[_row(database, table, json.loads(row))] += 1
    truth = item.simulator.changefeed.truth()
    wanted = Counter(_row(*table, row) for table, rows in truth.items() for row in rows.values())
    same = found == wanted and cut.tso == item.final_ts
    topics = read_watermark(item.lake).topics
    states = Counter(str(topic.state) for topic in topics)
    shop = item.simulator.workload
    click.echo(
        f"{name}: {shop.transactions} transactions, {shop.statements} DDL, "
        f"{item.simulator.records} records in {len(topics)} topics "
        f"({', '.join(f'{count} {state}' for state, count in sorted(states.items()))}); "
        f"{cut.number} cuts; {wanted.total()} rows in {len(cut.mirrors)} mirrors: "
        f"{'equal to the truth' if same else 'NOT EQUAL TO THE TRUTH'}"
    )
    click.echo(f"{name}: {freshness(item, read_cuts(item.paths))}")
    return same


def freshness(item: Written, cuts: list[Cut]) -> str:
    """Say how long it took from a commit to the cut that has it."""
    newest = cuts[-1].tso if cuts else 0
    # What was there at the start is no change that anybody waited for.
    history = item.simulator.changefeed.upstream.history
    commits = [commit.commit_ts for commit in history if isinstance(commit, CommittedTransaction)]
    waited_for = [ts for ts in commits if ts <= newest and physical_ms(ts) / 1000 > item.began + 60]
    seconds = seconds_until_cut(cuts, waited_for)
    if len(seconds) < 2:
        return "too few transactions to tell how fresh they were"
    ordered = quantiles(seconds, n=100)
    return (
        f"from commit to cut, {len(seconds)} transactions: p50 {ordered[49]:.1f} s, "
        f"p95 {ordered[94]:.1f} s, p99 {ordered[98]:.1f} s, at most {max(seconds):.1f} s"
    )


def _row(database: str, table: str, row: Mapping[str, str | None]) -> tuple[str, str, str]:
    return database, table, json.dumps(dict(row), sort_keys=True)


def runs_are_apart(settings: Settings) -> bool:
    """Tell the runs of each changefeed, and whether two of one were at work at once."""
    apart = True
    with DagsterInstance.get() as instance:
        records = instance.get_run_records()
    for feed in settings.changefeeds:
        own = sorted(
            (record.start_time, record.end_time or time.time(), record.dagster_run)
            for record in records
            if record.start_time is not None
            and record.dagster_run.tags.get(CHANGEFEED_TAG) == feed.name
        )
        overlaps = sum(later[0] < earlier[1] for earlier, later in itertools.pairwise(own))
        kinds = Counter(f"{run.job_name} {run.status.value}" for _, _, run in own)
        click.echo(
            f"{feed.name}: {len(own)} runs, {overlaps} overlapped: "
            + ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        )
        failed = [run for _, _, run in own if run.status is DagsterRunStatus.FAILURE]
        for run in failed:
            click.echo(f"{feed.name}: run {run.run_id} failed")
        apart &= not overlaps
    return apart


def ticks_are_told() -> None:
    """Tell how the ticks of all sensors and schedules ended, and what failed ones said."""
    with DagsterInstance.get() as instance:
        for state in instance.all_instigator_state():
            ticks = instance.get_ticks(state.instigator_origin_id, state.selector_id)
            kinds = Counter(tick.status.value for tick in ticks)
            click.echo(f"{state.name}: {len(ticks)} ticks kept: {dict(sorted(kinds.items()))}")
            for tick in ticks:
                if tick.status is TickStatus.FAILURE:
                    text = tick.error.message if tick.error else "no error told"
                    click.echo(f"{state.name}: a tick failed: {text.strip()[:300]}")


if __name__ == "__main__":
    main()
