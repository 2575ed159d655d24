"""A topic of a million changes of one table, for a cold sync: `python -m bench.million`.

In: a folder, and how many changes. Out: a broker on this machine that keeps its topics in that
folder, with a topic of so many changes of one table of 12 columns (70 % inserts, 20 % updates, 10 %
deletes of any rows) in Canal-JSON with the TiDB extension and `content-compatible`, a watermark
each 1,000 rows; and a configuration for `ticdc-assets` that reads it into a lake beside it.

    python -m bench.million --make FOLDER     write the topic, then serve it until Ctrl-C
    python -m bench.million --serve FOLDER    serve one that was written before

Each column but the state has many thousand values, so that nothing is cheap only because the same
value came before. An update changes the price and the time of the change; its `old` has the values
of the insert, even if the row was updated since.

Why making it again is safe: the topic is written into a folder that does not exist yet.
"""

import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from bench.apart import apart
from bench.commands import configure, installed, run_watched
from bench.measuring import Memory, Sample, leave_out
from bench.results import SLOWER, Part, Result
from bench.traffic import Shape, Traffic, Varied
from ticdc_assets.delta.lake import paths_of
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.message_forms import MessageOptions
from ticdc_assets.log.cuts import require_cut
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.source.kafka.records import produce
from ticdc_assets.wire import WireFormat
from ticdc_assets_tests.brokers import OwnBroker
from ticdc_assets_tests.commands import Commands

entry = partial(Result, "A million changes, cold")
CHANGEFEED = TOPIC = "million"
CHANGES = 1_000_000
WARM_UP_CHANGES = 50_000
"""More than run without Spark, so that what a large sync compiles is compiled."""
PARTITIONS = 4

_VALUES = 65_521
"""How many values a column has; a prime, so that no two columns go round together."""


def orders() -> Shape:
    """Return a table of orders with 12 columns of mixed types, whose values differ."""
    rng = random.Random(0)

    def any_of(template: str, *most: int) -> list[bytes]:
        return [
            template.format(*(rng.randrange(end) for end in most)).encode() for _ in range(_VALUES)
        ]

    moment = "20{:02}-{:02}-{:02} {:02}:{:02}:{:02}"

    def moments(template: str) -> list[bytes]:
        return [
            template.format(
                rng.randrange(10, 26),
                rng.randrange(1, 13),
                rng.randrange(1, 29),
                rng.randrange(24),
                rng.randrange(60),
                rng.randrange(60),
                rng.randrange(1_000),
            ).encode()
            for _ in range(_VALUES)
        ]

    return Shape(
        columns=(
            column("id", "bigint", nullable=False),
            column("customer", "int"),
            column("quantity", "smallint unsigned"),
            column("price", "decimal(12,2)"),
            column("weight", "double"),
            column("state", "enum('new','paid','sent')"),
            column("name", "varchar(40)"),
            column("note", "varchar(200)"),
            column("code", "char(8)"),
            column("ordered_at", "datetime(3)"),
            column("changed_at", "timestamp"),
            column("day", "date"),
        ),
        text="note",
        length=60,
        varied=(
            Varied(column="customer", sentinel="1987000001", texts=any_of("{}", 2_000_000)),
            Varied(column="quantity", sentinel="54321", texts=any_of("{}", 1_000)),
            Varied(
                column="price",
                sentinel="8765432101.25",
                changed="8765432102.75",
                texts=any_of("{}.{:02}", 100_000, 100),
            ),
            # An odd number of eighths has the same text in every encoder.
            Varied(
                column="weight",
                sentinel="7654321.125",
                texts=[repr(rng.randrange(1, 80_000, 2) / 8).encode() for _ in range(_VALUES)],
            ),
            Varied(column="name", sentinel="sentinel name", texts=any_of("customer {}", 2_000_000)),
            Varied(column="code", sentinel="sentinel", texts=any_of("{:08x}", 2**32)),
            Varied(
                column="ordered_at",
                sentinel="2031-03-04 05:06:07.891",
                texts=moments(f"{moment}.{{:03}}"),
            ),
            Varied(
                column="changed_at",
                sentinel="2032-03-04 05:06:07",
                changed="2033-03-04 05:06:07",
                texts=moments(moment),
            ),
            Varied(column="day", sentinel="2034-05-06", texts=moments("20{:02}-{:02}-{:02}")),
        ),
    )


def million(topic: str = TOPIC) -> Traffic:
    """Return the changes of the table, to be written into a topic."""
    return Traffic(
        shapes=[orders()],
        partitions=PARTITIONS,
        wire_format=WireFormat.CANAL_JSON,
        topic=topic,
        messages=MessageOptions(content_compatible=True),
        random_deletes=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A topic that was written.

    Attributes:
        rows: rows that its table must have in the end.
        bytes: of the values of its records.
        seconds: how long it took to write.
    """

    rows: int
    bytes: int
    seconds: float


def make(broker: OwnBroker, changes: int, topic: str = TOPIC) -> Made:
    """Write a topic with so many changes."""
    began, size = time.monotonic(), 0
    traffic = million(topic)
    broker.create_topic(topic, PARTITIONS)
    produce(broker.source(), traffic.opening)

    def counted() -> Iterator[CaptureRecord]:
        nonlocal size
        for record in traffic.changes(changes):
            size += len(record.value or b"")
            yield record

    produce(broker.source(), counted())
    return Made(rows=sum(traffic.live.values()), bytes=size, seconds=time.monotonic() - began)


def measure_million(folder: Path, *, changes: int) -> Part:
    """Return what the installed command takes for so many changes, with an empty lake.

    Raises:
        ValueError: the mirror does not have the rows that it has to have.
    """
    with OwnBroker(folder / "broker") as broker:
        leave_out(broker.pid)
        # What is compiled and cached once on a machine is no part of it.
        _run(folder / "few", broker, min(changes, WARM_UP_CHANGES))
        found = _run(folder / "million", broker, changes)
    made, memory = found.made, found.memory
    return Part(
        results=[
            entry(
                f"`ticdc-assets sync` of {changes:,} changes of a table of 12 columns, Canal-JSON",
                found.sync,
                changes,
                "changes",
                goal="million-cold",
            ),
            entry(
                "`ticdc-assets verify` of them",
                found.verify,
                changes,
                "changes",
                base=found.sync,
                compared=f"{SLOWER} the sync",
            ),
            entry(
                "`ticdc-assets rebuild` of them",
                found.rebuild,
                changes,
                "changes",
                base=found.sync,
                compared=f"{SLOWER} the sync",
                goal="rebuild",
            ),
        ],
        facts=[
            f"The cold sync read {made.bytes / 1e6:,.0f} MB of messages from {PARTITIONS} "
            f"partitions into a mirror of {made.rows:,} rows. Most memory of all its processes: "
            f"{memory.python} MB in Python and {memory.jvm} MB in a JVM. It is the command in a "
            "fresh process, so its imports, Dagster and the start of Spark are counted."
        ],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What the commands took, each in a fresh process."""

    made: Made
    sync: Sample
    verify: Sample
    rebuild: Sample
    memory: Memory


def _run(folder: Path, broker: OwnBroker, changes: int) -> _Found:
    """Write a topic, sync it with the command into an empty lake, verify and rebuild that."""
    folder.mkdir(parents=True)
    made = make(broker, changes, folder.name)
    configure(folder, CHANGEFEED, WireFormat.CANAL_JSON, broker.source(folder.name))
    samples: dict[str, Sample] = {}
    memories: dict[str, Memory] = {}
    for command in ("sync", "verify", "rebuild"):
        run = installed(command, CHANGEFEED)
        samples[command], memories[command] = apart(run_watched, run, folder).result()
        cut = require_cut(paths_of(folder / "lake", CHANGEFEED))
        found = [mirror.rows for mirror in cut.mirrors]
        if found != [made.rows]:
            raise ValueError(f"the mirrors have {found} rows and not {made.rows:,}")
    shutil.rmtree(folder)
    return _Found(made=made, **samples, memory=memories["sync"])


@click.command()
@click.option(
    "--make", "made", type=click.Path(path_type=Path), help="Write a topic, and serve it."
)
@click.option("--serve", "served", type=click.Path(path_type=Path), help="Serve what was written.")
@click.option("--changes", default=CHANGES, show_default=True, help="Changes to write.")
def main(made: Path | None, served: Path | None, changes: int) -> None:
    """Write a topic of changes of one table, and serve it until Ctrl-C."""
    folder = made or served
    if folder is None or (made and served):
        raise click.UsageError("give --make FOLDER or --serve FOLDER")
    if made:
        made.mkdir(parents=True)
    folder = folder.absolute()
    with OwnBroker(folder / "broker") as broker:
        if made:
            written = make(broker, changes)
            click.echo(
                f"{changes:,} changes, {written.bytes / 1e6:,.0f} MB, in {written.seconds:.0f} s; "
                f"the table has {written.rows:,} rows in the end"
            )
        configure(folder, CHANGEFEED, WireFormat.CANAL_JSON, broker.source(TOPIC))
        for name, value in Commands(folder).env.items():
            click.echo(f"export {name}={value}")
        click.echo(f"ticdc-assets sync {CHANGEFEED}    # in another shell; Ctrl-C here ends")
        try:
            while broker.running:
                time.sleep(1)
        except KeyboardInterrupt:
            click.echo("stopped")


if __name__ == "__main__":
    main()
