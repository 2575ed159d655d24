"""The sample: what a cluster gives its users, small, for a first try of one's own configuration.

In: a folder. Out: in it the configuration of a changefeed `mine`, an export of the table
`shop.orders` at the TSO where the changefeed begins, the messages of the changes after it as a
capture, and an export after these changes. The stand-in upstream makes them now, so the times in
the rows are of today and the mirrors have no lag of months.

An existing file is never replaced, so running it again changes nothing.
"""

from pathlib import Path
from typing import Final

from ticdc_assets.base.errors import ConfigError
from ticdc_assets.demo.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.clock import TsoClock, wall_clock_ms
from ticdc_assets.demo.simulator.export import export_upstream
from ticdc_assets.demo.simulator.statements import execute
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.source.capture import CaptureWriter
from ticdc_assets.storage.paths import write_at_once

CONFIGURATION: Final = """\
changefeeds:
  - name: mine                  # a-z, 0-9 and _
    format: simple-json
    timezone: UTC               # the time zone TiCDC runs with
    start_ts: {start_ts}  # the --start-ts that TiCDC's changefeed was created with
    ended: true                 # the sample sends no more; leave this out for a live changefeed
    source:
      kafka:
        bootstrap_servers: "127.0.0.1:9092"
        topics: [mine]
        options: {{security.protocol: PLAINTEXT}}
"""
"""What `changefeeds.yaml` says; `start_ts` is the TSO of the export."""

_OPENED: Final = (
    "CREATE TABLE shop.orders (id int PRIMARY KEY, customer varchar(40), city varchar(40), "
    "state enum('new','paid'), total decimal(10,2), placed datetime)",
    "INSERT INTO shop.orders VALUES "
    "(1, 'Mei Tanaka', 'Osaka', 'new', 12.50, NOW() - INTERVAL 1680 SECOND), "
    "(2, 'Lukas Vogel', 'Leipzig', 'new', 0.99, NOW() - INTERVAL 1271 SECOND), "
    "(3, 'Amina Diallo', 'Dakar', 'new', 7.00, NOW() - INTERVAL 862 SECOND), "
    "(4, 'Sofia Reyes', 'Valencia', 'new', NULL, NOW() - INTERVAL 453 SECOND)",
)
_CHANGES: Final = (
    "UPDATE shop.orders SET state = 'paid' WHERE id = 1",
    "DELETE FROM shop.orders WHERE id = 3",
)


def open_orders(upstream: Upstream) -> None:
    """Create the table `shop.orders` with four new orders of the last minutes."""
    upstream.create_database("shop")
    for statement in _OPENED:
        execute(upstream, statement)


def change_orders(upstream: Upstream) -> None:
    """Let order 1 be paid, and delete order 3."""
    for statement in _CHANGES:
        execute(upstream, statement)


def write_sample(folder: Path) -> tuple[Path, ...]:
    """Write the sample's files into a folder and return their paths.

    Raises:
        ConfigError: one of them is there already; nothing was written.
    """
    names = ("changefeeds.yaml", "export", "topic.jsonl.gz", "later")
    configuration, export, topic, later = paths = tuple(folder / name for name in names)
    for path in paths:
        if path.exists():
            raise ConfigError(f"{path} exists; write the sample into another folder")
    folder.mkdir(parents=True, exist_ok=True)
    upstream = Upstream(clock=TsoClock(now_ms=wall_clock_ms))
    open_orders(upstream)
    start_ts = export_upstream(upstream, export)
    change_orders(upstream)
    changefeed = StandInChangefeed(
        upstream, "mine", partitions=2, options=FeedOptions(first_ts=start_ts)
    )
    export_upstream(upstream, later)
    with CaptureWriter(topic) as capture:
        for record in changefeed.tick():
            capture.append(record)
    write_at_once(configuration, CONFIGURATION.format(start_ts=start_ts))
    return paths
