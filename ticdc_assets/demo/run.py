"""The demo: run everything once, in one folder, and compare with independently computed rows.

In: a folder and a wire format. Out: a real Kafka broker there, mirrors that start with an export of
a shop, a stand-in changefeed that writes the shop's later changes to the broker while the Dagster
job lands, decodes, registers and applies them, and a table that says for every mirror whether it
equals the simulator's rows. The Dagster instance stays in the folder, so that the UI can be opened
on it.

A live demo continues from there: see `demo.live`.

The demo owns the folder: it empties the folder at the start, but only if a demo made it. So running
it again starts over.
"""

import json
import shlex
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from rich.text import Text

from ticdc_assets.base.errors import ConfigError, SourceUnavailableError, TicdcError
from ticdc_assets.base.names import counted
from ticdc_assets.base.progress import tell
from ticdc_assets.config import Changefeed, Compute, KafkaSource, Settings
from ticdc_assets.delta.lake import Lake
from ticdc_assets.delta.lock import held_lock
from ticdc_assets.demo.broker import LocalBroker
from ticdc_assets.demo.live import go_on_live
from ticdc_assets.demo.place import CHANGEFEED, DIRECTORY, find_door, use_demo
from ticdc_assets.demo.simulator.changefeed import FeedOptions
from ticdc_assets.demo.simulator.message_forms import Dialect, MessageOptions, dialect_of
from ticdc_assets.demo.simulator.run import SimulatorRun, run_simulator
from ticdc_assets.demo.simulator.upstream import Truth
from ticdc_assets.log.cuts import Cut, require_cut
from ticdc_assets.model.tso import to_datetime
from ticdc_assets.observe.status_reading import read_status
from ticdc_assets.observe.wording import duration
from ticdc_assets.orchestration.run import run_seed, run_sync
from ticdc_assets.reading.mirrors import (
    iterate_rows,
    list_mirrors,
    published_table,
    require_mirror,
)
from ticdc_assets.spark.compute import computing, watched
from ticdc_assets.spark.jars import SPARK_JARS, Progress, resolve
from ticdc_assets.spark.session import get_spark
from ticdc_assets.storage.paths import remove_tree
from ticdc_assets.wire import WireFormat

_MARKER = "demo.json"
_PARTITIONS = 3
_EXPORT = "export"
_TICK_SECONDS = 5.0
_CLOSING_SECONDS = 60.0
_SAMPLED = ("shop", "customers")
_SAMPLED_COLUMNS = ("id", "name", "city", "level", "balance", "created")
_SAMPLED_ROWS = 3


def run_demo(
    directory: Path,
    *,
    wire_format: WireFormat = WireFormat.SIMPLE_JSON,
    dialect: Dialect | None = None,
    transactions: int,
    seconds: int,
    live: bool = False,
    port: int | None = None,
    say: Progress,
    note: Progress,
    show: Callable[..., None],
) -> bool:
    """Run the demo and print its table; return whether every mirror equals the truth.

    Args:
        directory: its folder.
        wire_format: format of the messages.
        dialect: which TiCDC writes; None for the new one where it has the format.
        transactions: how many the shop makes at most.
        seconds: how long the shop is open at most.
        live: go on with it until it is interrupted.
        port: where the Dagster UI of a live demo listens; None for one that is free.
        say: called with each line of progress, from any thread.
        note: called with each line of a live demo, and of what to do after a demo.
        show: called with each table: its title, columns, rows and caption.

    Raises:
        BusyError: a demo is running in the folder.
        ConfigError: the folder is not the demo's, or the dialect does not have the format.
    """
    dialect = dialect_of(wire_format, dialect)
    _require_own(directory)
    with demo_lock(directory):
        # It knows its last port, which clients are configured with, before its folder is emptied.
        own_broker = demo_broker(directory, note=say)
        _empty(directory)
        # Two JVMs take their time: side by side it is less. Ctrl-C does not wait for Spark's.
        starting = threading.Thread(target=_start_spark, args=(say,), name="spark", daemon=True)
        starting.start()
        with own_broker as broker:
            settings = _configure(directory, broker, wire_format)
            tell("starting Spark")
            starting.join()
            get_spark()  # raises what kept it from starting
            say("Spark is up")
            feed = settings.changefeed(CHANGEFEED)
            assert isinstance(feed.source, KafkaSource)
            simulator = run_simulator(
                feed.source,
                export=directory / _EXPORT,
                partitions=_PARTITIONS,
                timezone=feed.timezone,
                wire_format=wire_format,
                feed=FeedOptions(messages=MessageOptions(dialect=dialect)),
                max_transactions=transactions,
                max_seconds=seconds,
                transactions_per_second=transactions / seconds,
                on_progress=_ticker(say),
            )
            settings = _configure(directory, broker, wire_format, simulator.exported_ts)
            with computing(Compute.SPARK):
                _seed(settings, directory, say)
            say(
                f"the shop opens: up to {counted(transactions, 'transaction')} within "
                f"{seconds} s, in {wire_format} (dialect {dialect})"
            )
            simulator.start()
            cut = _follow(settings, simulator, say)
            same = _compare(settings, feed, cut, simulator, show)
            # Live, a person may leave no order.
            order = _first_order(settings)
            if live:
                go_on_live(
                    settings,
                    directory,
                    simulator,
                    port=port,
                    examples=_examples(directory, order),
                    note=note,
                )
            # Nothing comes any more: live, the mirrors would soon be late.
            _configure(directory, broker, wire_format, simulator.exported_ts, ended=True)
        say(f"done; the broker is stopped, the tables stay in {directory}")
        for line in _go_on(directory, order):
            note(line)
        return same


def _first_order(settings: Settings) -> dict[str, str]:
    lake = Lake.open(settings.lake, settings.changefeed(CHANGEFEED))
    orders = published_table(lake, require_mirror(require_cut(lake.paths), "shop", "orders"))
    (first,) = iterate_rows([orders], "UTC", limit=1, by_key=True)
    return json.loads(first[2])


def _is_usual(directory: Path) -> bool:
    """Return whether commands with `--demo` work on a demo, here."""
    return directory == Path(DIRECTORY).resolve()


def _examples(directory: Path, order: Mapping[str, str]) -> Iterator[str]:
    """Yield commands for a live demo; each works as it is printed."""
    program = _program("ticdc-assets")
    upstream = f"{program} --demo upstream"
    if not _is_usual(directory):
        upstream = f"{program} upstream --directory {_shown(directory)}"
    number = order["order_id"]
    for statement in (
        f"UPDATE shop.orders SET state = 'paid', pieces = pieces + 1 WHERE order_id = {number}",
        "INSERT INTO shop.orders (region, order_id, customer, total, state, placed) "
        "VALUES ('eu', 100001, 1, 19.90, 'new', NOW())",
        "DELETE FROM shop.orders WHERE order_id = 100001",
        "ALTER TABLE shop.orders ADD COLUMN gift tinyint(1) NOT NULL DEFAULT 0",
    ):
        yield f'{upstream} "{statement}"'
    if _is_usual(directory):
        yield f"{program} --demo show shop orders"


def _go_on(directory: Path, order: Mapping[str, str]) -> Iterator[str]:
    """Yield commands that go on with the demo; each works as it is printed."""
    program = _program("ticdc-assets")
    yield f"open the same instance in the Dagster UI: {program} ui --demo {_shown(directory)}"
    if not _is_usual(directory):
        return
    python = (
        "from ticdc_assets import read_mirror; "
        "from ticdc_assets.demo.place import use_demo; use_demo(); "
        "print(read_mirror(None, 'shop', 'shop', 'orders', engine='arrow').num_rows, 'orders')"
    )
    yield "look at the mirrors:"
    yield f"  {program} --demo show shop orders"
    yield f'  {program} --demo sql "SELECT state, count(*) FROM shop.orders GROUP BY ALL"'
    yield f"  {program} --demo show shop orders --history {order['region']},{order['order_id']}"
    yield f'  {_program("python")} -c "{python}"'


def _program(name: str) -> str:
    """Return what a person types for a program of this environment."""
    ours = Path(sys.executable).parent / name
    on_path = shutil.which(name)
    return name if on_path is not None and Path(on_path) == ours else _shown(ours)


def _shown(path: Path) -> str:
    """Return a path as seen from the current folder, if it is below it."""
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))


def _seed(settings: Settings, directory: Path, say: Progress) -> None:
    """Let the mirrors begin with what the shop had before its changefeed."""
    say("the shop was exported, and its changefeed starts there; the mirrors start with its rows")
    tell("seeding the mirrors from the export")
    folder = directory / _EXPORT
    timezone = settings.changefeed(CHANGEFEED).timezone
    options = {"folder": str(folder), "timezone": timezone}
    with watched() as ran:
        seeding = run_seed(settings, CHANGEFEED, options).seeding
    rows, tables = counted(seeding.rows, "row"), counted(len(seeding.tables), "table")
    say(f"seeded {rows} of {tables} at TSO {seeding.tso}")
    say(f"ran: {ran.sentence}")


def _start_spark(say: Progress) -> None:
    with suppress(TicdcError):
        resolve(SPARK_JARS, progress=say)
        say("starting Spark")
        get_spark()


def _counts(simulator: SimulatorRun) -> str:
    shop = simulator.workload
    return (
        f"{counted(shop.transactions, 'transaction')}, {shop.statements} DDL, "
        f"{counted(simulator.records, 'record')}"
    )


def _ticker(say: Progress) -> Callable[[SimulatorRun], None]:
    """Return what says how far the shop is, every few seconds: a sync may take its time."""
    due = _TICK_SECONDS

    def tick(simulator: SimulatorRun) -> None:
        nonlocal due
        if simulator.finished or simulator.seconds >= due:
            due = simulator.seconds + _TICK_SECONDS
            closed = "; the shop is closed" if simulator.finished else ""
            say(f"upstream: {_counts(simulator)} in Kafka{closed}")

    return tick


def _follow(settings: Settings, simulator: SimulatorRun, say: Progress) -> Cut:
    """Sync while the shop is open, and once more when it is closed; return the newest cut."""
    # The first sync shows all of it on Spark; those that follow take what costs least.
    compute = Compute.SPARK
    while not simulator.finished:
        # An error of the shop comes out here, instead of waiting for it for ever.
        with suppress(TimeoutError):
            simulator.join(0.0)
        with computing(compute):
            _sync(settings, say)
        compute = Compute.AUTO
    simulator.join(_CLOSING_SECONDS)
    cut = _sync(settings, say)
    if cut is None:
        raise SourceUnavailableError("no cut was published although the shop is closed")
    return cut


def _sync(settings: Settings, say: Progress) -> Cut | None:
    say("a run of the Dagster job begins: land, decode, register, apply")
    with watched() as ran:
        report = run_sync(settings, CHANGEFEED)
    applying = report.applying
    landed = counted(report.landing.records, "record")
    say(f"it ended: {landed} landed; {applying.outcome}: {applying.reason}")
    if ran.sentence:
        say(f"ran: {ran.sentence}")
    return applying.cut


def _compare(
    settings: Settings,
    feed: Changefeed,
    cut: Cut,
    simulator: SimulatorRun,
    show: Callable[..., None],
) -> bool:
    """Print the table and return whether every mirror equals the truth."""
    lake = Lake.open(settings.lake, feed)
    mirrors = list_mirrors(lake.paths, read_status(lake, datetime.now(UTC)))
    rows: dict[tuple[str, str], Counter[str]] = {}
    published = (published_table(lake, mirror) for mirror in cut.mirrors)
    for database, table, row in iterate_rows(published, feed.timezone):
        rows.setdefault((database, table), Counter())[_comparable(json.loads(row))] += 1
    wanted = _truth_rows(simulator.changefeed.truth())
    listed: list[tuple[str | Text, ...]] = []
    same = cut.tso == simulator.changefeed.watermark_ts
    names = set(wanted)
    for item in mirrors:
        name = (item.database, item.table)
        names.discard(name)
        equal = rows.get(name, Counter()) == wanted.get(name, Counter()) and name in wanted
        same &= equal
        lag = duration(item.status.lag_seconds)
        verdict = Text("yes", style="green") if equal else Text("NO", style="red")
        listed.append((".".join(name), str(item.rows), str(item.applied_ts), lag, verdict))
    for name in sorted(names):
        same = False
        listed.append((".".join(name), "-", "-", "-", Text("NO: there is no mirror", style="red")))
    show(
        f"{CHANGEFEED} at {cut.tso} ({to_datetime(cut.tso):%H:%M:%S.%f} UTC)",
        ("mirror", "rows", "applied TSO", "lag", "equals the truth"),
        listed,
        f"{_counts(simulator)}; cut {cut.number}",
    )
    customers = cut.mirror(*_SAMPLED)
    if customers is not None:
        # A person sees what is in the shop.
        first = iterate_rows(
            [published_table(lake, customers)], feed.timezone, limit=_SAMPLED_ROWS, by_key=True
        )
        show(
            ".".join(_SAMPLED),
            _SAMPLED_COLUMNS,
            ([json.loads(row)[name] or "NULL" for name in _SAMPLED_COLUMNS] for _, _, row in first),
            f"times are of today in the shop's zone, {feed.timezone}",
        )
    return same


def _truth_rows(truth: Truth) -> dict[tuple[str, str], Counter[str]]:
    return {
        name: Counter(_comparable(dict(row)) for row in rows.values())
        for name, rows in truth.items()
    }


def _comparable(row: dict[str, str | None]) -> str:
    return json.dumps(row, sort_keys=True)


def _require_own(directory: Path) -> None:
    """Refuse a folder with something in it that no demo made."""
    if directory.exists() and any(directory.iterdir()) and not (directory / _MARKER).is_file():
        raise ConfigError(
            f"{directory} is not empty and was not made by the demo; choose another folder by "
            "--directory"
        )


def _empty(directory: Path) -> None:
    """Empty the demo's folder, but for the file whose lock is held."""
    for path in directory.iterdir():
        if path.name != _MARKER:
            remove_tree(path)


@contextmanager
def demo_lock(directory: Path) -> Iterator[None]:
    """Keep other demos, and their UIs with a broker, out of a folder.

    Raises:
        BusyError: one is running there.
    """
    door = find_door(directory)
    holder = f"a demo in {directory}"
    if door is not None:
        holder = f"a live demo (process {door.pid}, Dagster UI at {door.ui})"
    with held_lock(directory / _MARKER, holder):
        yield


def _configure(
    directory: Path,
    broker: LocalBroker,
    wire_format: WireFormat,
    start_ts: int | None = None,
    *,
    ended: bool = False,
) -> Settings:
    start = "" if start_ts is None else f"    start_ts: {start_ts}\n"
    end = "    ended: true\n" if ended else ""
    (directory / "changefeeds.yaml").write_text(
        "changefeeds:\n"
        f"  - name: {CHANGEFEED}\n"
        f"    format: {wire_format}\n"
        "    timezone: Asia/Shanghai\n"
        f"{start}{end}"
        "    source:\n"
        "      kafka:\n"
        f'        bootstrap_servers: "{broker.bootstrap_servers}"\n'
        f"        topics: [{CHANGEFEED}]\n"
        "        options: {security.protocol: PLAINTEXT}\n",
        encoding="utf-8",
    )
    return use_demo(directory)


def demo_broker(directory: Path, *, note: Progress) -> LocalBroker:
    """Return the demo's Kafka broker, with the topics it had, not started yet."""
    return LocalBroker(directory / "broker", progress=note)
