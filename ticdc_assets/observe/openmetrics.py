"""The figures of changefeeds as OpenMetrics text, for Prometheus and similar programs.

In: statuses. Out: text, or an HTTP server that reads statuses at each request. Nothing is stored:
the same statuses give the same text, and nothing runs between requests.

Times of TSOs are epoch seconds, because a TSO exceeds the exact numbers of a metric. Labels are the
changefeed, and table, topic and partition if the source limits their number; the library escapes
names from messages. An unknown figure is left out; it is never 0.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from prometheus_client import start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from ticdc_assets.log.positions import PartitionOffsets
from ticdc_assets.model.tso import physical_ms
from ticdc_assets.observe.lag import LagPart
from ticdc_assets.observe.status import Status
from ticdc_assets.observe.table_status import TableStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class _Figure:
    """One metric: its name, its meaning, and its values by the labels besides `changefeed`."""

    name: str
    help: str
    values: Callable[[Status], Iterable[tuple[tuple[str, ...], float | None]]]
    labels: tuple[str, ...] = ()
    is_counter: bool = False


def _single(value: Callable[[Status], float | None]) -> Callable[[Status], "_Values"]:
    return lambda status: [((), value(status))]


def _of_tables(value: Callable[[TableStatus], float | None]) -> Callable[[Status], "_Values"]:
    return lambda status: (((item.database, item.table), value(item)) for item in status.tables)


def _of_partitions(value: Callable[[PartitionOffsets], float]) -> Callable[[Status], "_Values"]:
    return lambda status: (
        ((item.topic, str(item.partition)), value(item)) for item in status.partitions
    )


_Values = Iterable[tuple[tuple[str, ...], float | None]]


def _seconds_of(tso: int | None) -> float | None:
    return None if not tso else physical_ms(tso) / 1000


def _lag_parts(status: Status) -> _Values:
    if status.lag is not None:
        for part in LagPart:
            yield (str(part),), status.lag.part_seconds(part)


def _accepted_gaps(status: Status) -> _Values:
    counts = Counter((item.topic, str(item.partition)) for item in status.accepted_gaps)
    return sorted(counts.items())


def _topic_states(status: Status) -> _Values:
    for item in status.topics:
        yield (item.topic, item.state), 1.0


def _watermarks(status: Status) -> _Values:
    for (topic, partition), progress in sorted(status.progress.items()):
        yield (topic, str(partition)), _seconds_of(progress.watermark_ts)


FIGURES: tuple[_Figure, ...] = (
    _Figure(
        name="ticdc_status_timestamp_seconds",
        help="When these figures were read.",
        values=_single(lambda status: status.at.timestamp()),
    ),
    _Figure(
        name="ticdc_cut_timestamp_seconds",
        help="Physical time of the newest cut's TSO.",
        values=_single(lambda status: _seconds_of(status.cut.tso if status.cut else None)),
    ),
    _Figure(
        name="ticdc_watermark_timestamp_seconds",
        help="Physical time of the global watermark.",
        values=_single(lambda status: _seconds_of(status.watermark.watermark_ts)),
    ),
    _Figure(
        name="ticdc_replication_lag_seconds",
        help="Now minus the physical time of the newest cut's TSO.",
        values=_single(lambda status: None if status.lag is None else status.lag.seconds),
    ),
    _Figure(
        name="ticdc_replication_lag_part_seconds",
        help="The parts of the replication lag; their sum is the lag.",
        labels=("part",),
        values=_lag_parts,
    ),
    _Figure(
        name="ticdc_finished",
        help="1 if the source has ended and everything possible is applied, else 0. Lags are "
        "then those at the end.",
        values=_single(lambda status: float(status.ending is not None)),
    ),
    _Figure(
        name="ticdc_cuts",
        help="Cuts published.",
        is_counter=True,
        values=_single(lambda status: status.cut.number if status.cut else 0),
    ),
    _Figure(
        name="ticdc_landed_batches",
        help="Batches landed.",
        is_counter=True,
        values=_single(lambda status: status.landed_batch),
    ),
    _Figure(
        name="ticdc_undecoded_batches",
        help="Landed batches that are not decoded.",
        values=_single(lambda status: max(0, status.landed_batch - status.decoded_batch)),
    ),
    _Figure(
        name="ticdc_watermark_steps_back",
        help="Watermarks that went back and were ignored.",
        is_counter=True,
        values=_single(lambda status: status.steps_back),
    ),
    _Figure(
        name="ticdc_change_log_rows",
        help="Rows of change_log by kind, without removed rows.",
        labels=("kind",),
        values=lambda status: (((kind,), count) for kind, count in status.log_rows.items()),
    ),
    _Figure(
        name="ticdc_partition_backlog_records",
        help="Records of a partition that wait to be landed, when the source was last read.",
        labels=("topic", "partition"),
        values=_of_partitions(lambda item: item.backlog),
    ),
    _Figure(
        name="ticdc_partition_landed_offset",
        help="Next offset of a partition to land.",
        labels=("topic", "partition"),
        values=_of_partitions(lambda item: item.landed),
    ),
    _Figure(
        name="ticdc_landing_gaps",
        help="Partitions whose next record to land is gone: landing has stopped.",
        values=_single(lambda status: len(status.gaps)),
    ),
    _Figure(
        name="ticdc_accepted_gaps",
        help="Gaps of a partition that were accepted: their records were never landed.",
        labels=("topic", "partition"),
        values=_accepted_gaps,
    ),
    _Figure(
        name="ticdc_partition_watermark_timestamp_seconds",
        help="Physical time of a partition's watermark.",
        labels=("topic", "partition"),
        values=_watermarks,
    ),
    _Figure(
        name="ticdc_topic_state",
        help="1 for the current state of a topic.",
        labels=("topic", "state"),
        values=_topic_states,
    ),
    _Figure(
        name="ticdc_table_lag_seconds",
        help="Now minus the upstream time up to which a table has every change.",
        labels=("database", "table"),
        values=_of_tables(lambda item: item.lag_seconds),
    ),
    _Figure(
        name="ticdc_table_rows",
        help="Rows of a mirror at the newest cut.",
        labels=("database", "table"),
        values=_of_tables(lambda item: item.rows if item.has_mirror else None),
    ),
    _Figure(
        name="ticdc_table_held_rows",
        help="Row changes of a table that wait for their schema.",
        labels=("database", "table"),
        values=_of_tables(lambda item: item.held),
    ),
    _Figure(
        name="ticdc_table_quarantined_rows",
        help="Row changes of a table that are in quarantine.",
        labels=("database", "table"),
        values=_of_tables(lambda item: item.quarantined),
    ),
    _Figure(
        name="ticdc_table_failed",
        help="1 if the newest cut could not make the mirror of a table, else 0.",
        labels=("database", "table"),
        values=_of_tables(lambda item: float(item.failed is not None)),
    ),
    _Figure(
        name="ticdc_table_level",
        help="State of a table: 0 complete, 1 incomplete or with caveats, 2 failed.",
        labels=("database", "table"),
        values=_of_tables(lambda item: item.verdict.level),
    ),
    _Figure(
        name="ticdc_unaccounted_changes",
        help="Row changes that are neither applied nor held, quarantined, excluded or superseded.",
        values=_single(lambda status: status.accounts["unaccounted"] if status.cut else None),
    ),
    _Figure(
        name="ticdc_held_rows",
        help="Row changes at or below the cut that wait for their schema.",
        values=_single(lambda status: status.held_rows if status.cut else None),
    ),
    _Figure(
        name="ticdc_held_oldest_seconds",
        help="How long the oldest of these have waited; 0 if none wait.",
        values=_single(lambda status: status.held_seconds if status.cut else None),
    ),
    _Figure(
        name="ticdc_quarantine_open",
        help="Open rows of the quarantine.",
        labels=("stage",),
        values=lambda status: (((stage,), count) for stage, count in status.quarantined.items()),
    ),
    _Figure(
        name="ticdc_incomplete_tables",
        help="Tables that lack changes at or below the cut.",
        values=_single(lambda status: status.incomplete if status.cut else None),
    ),
    _Figure(
        name="ticdc_check_level",
        help="Verdict of a check: 0 ok, 1 warn, 2 fail.",
        labels=("check",),
        values=lambda status: (
            ((str(check),), verdict.level) for check, verdict in status.verdicts.items()
        ),
    ),
    _Figure(
        name="ticdc_schema_conflicts",
        help="Messages that describe a schema version differently from the registered schema.",
        values=_single(lambda status: len(status.conflicts)),
    ),
    _Figure(
        name="ticdc_row_checksums",
        help="Row checksums by the result of the comparison.",
        labels=("agreement",),
        values=lambda status: (
            ((str(agreement),), count) for agreement, count in status.checksums.counts.items()
        ),
    ),
)
"""Every metric, in the order of the output; a counter's samples end in `_total`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The input of the metrics.

    Attributes:
        statuses: one for each changefeed.
        source_up: for each changefeed whose source was checked, whether it answered.
        readable: for each changefeed whose tables were checked, whether none is broken.
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
        switches = (
            ("ticdc_source_up", "1 if the source answered, 0 if not.", figures.source_up),
            (
                "ticdc_lake_readable",
                "1 if the control tables of the changefeed can be read, else 0.",
                figures.readable,
            ),
        )
        for name, meaning, values in switches:
            switch = GaugeMetricFamily(name, meaning, labels=("changefeed",))
            for changefeed, is_on in values.items():
                switch.add_metric((changefeed,), float(is_on))
            yield switch
        for figure in FIGURES:
            kind = CounterMetricFamily if figure.is_counter else GaugeMetricFamily
            family = kind(figure.name, figure.help, labels=("changefeed", *figure.labels))
            for status in figures.statuses:
                for labels, value in figure.values(status):
                    if value is not None:
                        family.add_metric((status.changefeed, *labels), float(value))
            yield family
