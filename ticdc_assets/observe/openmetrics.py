"""The figures of changefeeds as OpenMetrics text, for Prometheus and similar programs.

In: statuses. Out: text, or an HTTP server that reads statuses at each request.

Times of TSOs are epoch seconds, because a TSO exceeds the exact numbers of a metric. Labels are the
changefeed, and table, topic and partition if the source limits their number; the library escapes
names from messages. An unknown figure is left out; it is never 0.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from prometheus_client import start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from ticdc_assets.model.tso import physical_ms
from ticdc_assets.observe.lag import LagPart
from ticdc_assets.observe.status import Status


class Figure(NamedTuple):
    """One metric: its name, its meaning, and its labels besides `changefeed`."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    is_counter: bool = False


_TABLE = ("database", "table")
_PARTITION = ("topic", "partition")

FIGURES = (
    Figure("ticdc_status_timestamp_seconds", "When these figures were read."),
    Figure("ticdc_cut_timestamp_seconds", "Physical time of the newest cut's TSO."),
    Figure("ticdc_watermark_timestamp_seconds", "Physical time of the global watermark."),
    Figure("ticdc_replication_lag_seconds", "Now minus the physical time of the newest cut's TSO."),
    Figure(
        "ticdc_replication_lag_part_seconds",
        "The parts of the replication lag; their sum is the lag.",
        ("part",),
    ),
    Figure(
        "ticdc_finished",
        "1 if the source has ended and everything possible is applied, else 0. Lags are then those "
        "at the end.",
    ),
    Figure("ticdc_cuts", "Cuts published.", is_counter=True),
    Figure("ticdc_landed_batches", "Batches landed.", is_counter=True),
    Figure("ticdc_undecoded_batches", "Landed batches that are not decoded."),
    Figure(
        "ticdc_watermark_steps_back", "Watermarks that went back and were ignored.", is_counter=True
    ),
    Figure("ticdc_change_log_rows", "Rows of change_log by kind, without removed rows.", ("kind",)),
    Figure(
        "ticdc_partition_backlog_records",
        "Records of a partition that wait to be landed, when the source was last read.",
        _PARTITION,
    ),
    Figure("ticdc_partition_landed_offset", "Next offset of a partition to land.", _PARTITION),
    Figure(
        "ticdc_landing_gaps",
        "Partitions whose next record to land is gone: landing has stopped.",
    ),
    Figure(
        "ticdc_accepted_gaps",
        "Gaps of a partition that were accepted: their records were never landed.",
        _PARTITION,
    ),
    Figure(
        "ticdc_partition_watermark_timestamp_seconds",
        "Physical time of a partition's watermark.",
        _PARTITION,
    ),
    Figure("ticdc_topic_state", "1 for the current state of a topic.", ("topic", "state")),
    Figure(
        "ticdc_table_lag_seconds",
        "Now minus the upstream time up to which a table has every change.",
        _TABLE,
    ),
    Figure("ticdc_table_rows", "Rows of a mirror at the newest cut.", _TABLE),
    Figure("ticdc_table_held_rows", "Row changes of a table that wait for their schema.", _TABLE),
    Figure(
        "ticdc_table_quarantined_rows", "Row changes of a table that are in quarantine.", _TABLE
    ),
    Figure(
        "ticdc_table_failed",
        "1 if the newest cut could not make the mirror of a table, else 0.",
        _TABLE,
    ),
    Figure(
        "ticdc_table_level",
        "State of a table: 0 complete, 1 incomplete or with caveats, 2 failed.",
        _TABLE,
    ),
    Figure(
        "ticdc_unaccounted_changes",
        "Row changes that are neither applied nor held, quarantined, excluded or superseded.",
    ),
    Figure("ticdc_held_rows", "Row changes at or below the cut that wait for their schema."),
    Figure(
        "ticdc_held_oldest_seconds", "How long the oldest of these have waited; 0 if none wait."
    ),
    Figure("ticdc_quarantine_open", "Open rows of the quarantine.", ("stage",)),
    Figure("ticdc_incomplete_tables", "Tables that lack changes at or below the cut."),
    Figure("ticdc_check_level", "Verdict of a check: 0 ok, 1 warn, 2 fail.", ("check",)),
    Figure(
        "ticdc_schema_conflicts",
        "Messages that describe a schema version differently from the registered schema.",
    ),
    Figure("ticdc_row_checksums", "Row checksums by the result of the comparison.", ("agreement",)),
)
"""Every metric of a status, in the order of the output; a counter's samples end in `_total`."""


def _values(status: Status) -> Iterator[tuple[str, tuple[str, ...], float | None]]:
    """Yield each value of `FIGURES`, without `ticdc_`, with its labels; None if it is unknown."""
    cut, lag = status.cut, status.lag
    yield "status_timestamp_seconds", (), status.at.timestamp()
    yield "cut_timestamp_seconds", (), _seconds_of(cut.tso if cut else None)
    yield "watermark_timestamp_seconds", (), _seconds_of(status.watermark.watermark_ts)
    if lag is not None:
        yield "replication_lag_seconds", (), lag.seconds
        for part in LagPart:
            yield "replication_lag_part_seconds", (part,), lag.part_seconds(part)
    yield "finished", (), status.ending is not None
    yield "cuts", (), cut.number if cut else 0
    yield "landed_batches", (), status.landed_batch
    yield "undecoded_batches", (), max(0, status.landed_batch - status.decoded_batch)
    yield "watermark_steps_back", (), status.steps_back
    for kind, rows in status.log_rows.items():
        yield "change_log_rows", (kind,), rows
    for item in status.partitions:
        place = (item.topic, str(item.partition))
        yield "partition_backlog_records", place, item.backlog
        yield "partition_landed_offset", place, item.landed
    yield "landing_gaps", (), len(status.gaps)
    gaps = Counter((gap.topic, str(gap.partition)) for gap in status.accepted_gaps)
    for place, count in sorted(gaps.items()):
        yield "accepted_gaps", place, count
    for (topic, partition), progress in sorted(status.progress.items()):
        watermark = _seconds_of(progress.watermark_ts)
        yield "partition_watermark_timestamp_seconds", (topic, str(partition)), watermark
    for state in status.topics:
        yield "topic_state", (state.topic, state.state), 1
    for table in status.tables:
        name = (table.database, table.table)
        yield "table_lag_seconds", name, table.lag_seconds
        yield "table_rows", name, table.rows if table.has_mirror else None
        yield "table_held_rows", name, table.held
        yield "table_quarantined_rows", name, table.quarantined
        yield "table_failed", name, table.failed is not None
        yield "table_level", name, table.verdict.level
    if cut is not None:
        yield "unaccounted_changes", (), status.accounts["unaccounted"]
        yield "held_rows", (), status.held_rows
        yield "held_oldest_seconds", (), status.held_seconds
        yield "incomplete_tables", (), status.incomplete
    for stage, count in status.quarantined.items():
        yield "quarantine_open", (stage,), count
    for check, verdict in status.verdicts.items():
        yield "check_level", (check,), verdict.level
    yield "schema_conflicts", (), len(status.conflicts)
    for agreement, count in status.checksums.counts.items():
        yield "row_checksums", (agreement,), count


def _seconds_of(tso: int | None) -> float | None:
    return None if not tso else physical_ms(tso) / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The input of the metrics: statuses of changefeeds.

    Of each changefeed that was checked, they also have whether its source answered, and whether no
    table is broken.
    """

    statuses: Sequence[Status]
    source_up: Mapping[str, bool]
    readable: Mapping[str, bool] = field(default_factory=dict[str, bool])


def openmetrics_text(figures: Figures) -> str:
    """Return the figures of changefeeds as OpenMetrics text."""
    return generate_latest(_registry(lambda: figures)).decode()


@contextmanager
def serve_figures(read: Callable[[], Figures], host: str, port: int) -> Iterator[str]:
    """Serve figures over HTTP, read again for each request, and yield the URL.

    If reading fails, the request gets status 500, so Prometheus' `up` is 0 meanwhile; the error is
    on standard error.

    Raises:
        OSError: the server cannot listen on the address.
    """
    server, thread = start_http_server(port, addr=host, registry=_registry(read))
    try:
        yield f"http://{host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _registry(read: Callable[[], Figures]) -> CollectorRegistry:
    # Without descriptions of its own: collecting them would read everything again.
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_FiguresCollector(read))
    return registry


class _FiguresCollector(Collector):
    def __init__(self, read: Callable[[], Figures]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        figures = self._read()
        for name, meaning, values in (
            ("ticdc_source_up", "1 if the source answered, 0 if not.", figures.source_up),
            (
                "ticdc_lake_readable",
                "1 if the control tables of the changefeed can be read, else 0.",
                figures.readable,
            ),
        ):
            switch = GaugeMetricFamily(name, meaning, labels=("changefeed",))
            for changefeed, is_on in values.items():
                switch.add_metric((changefeed,), float(is_on))
            yield switch
        families = {
            item.name: (CounterMetricFamily if item.is_counter else GaugeMetricFamily)(
                item.name, item.help, labels=("changefeed", *item.labels)
            )
            for item in FIGURES
        }
        for status in figures.statuses:
            for name, labels, value in _values(status):
                if value is not None:
                    family = families[f"ticdc_{name}"]
                    family.add_metric((status.changefeed, *labels), float(value))
        yield from families.values()
