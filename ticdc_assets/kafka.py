"""What we ask of a Kafka cluster: offsets, topics, records out and in.

In: a `KafkaSource`. Out: offset ranges, topic ids, and records: one by one for recording and
playing captures, as columns for landing them. Every call has a deadline and ends in an answer or in
one error whose sentence names the broker, the topic or the configuration key; nothing here commits
positions or keeps a client open.

What a broker refuses (a login, a certificate, a protocol) is known at once and is told at once;
where nobody listens, a broker that restarts is given some seconds. The client itself would try on
until its deadline and then say that time is up. See `_Trouble`.

Options have librdkafka's names and go to it as they are. Its `isolation.level` also says where a
partition ends: before the first open transaction, if only what is committed is wanted.

Not handled: transactional producers (TiCDC uses none).
"""

# The client's types leave out what its documented modules export.
# pyright: reportPrivateImportUsage=false

import logging
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Thread
from typing import Any, Final, Protocol, TypeVar, assert_never

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    TopicDescription,
)

from ticdc_assets.capture import CaptureRecord
from ticdc_assets.config import KafkaSource, OptionValue, StartKind
from ticdc_assets.errors import ConfigError, SourceRefusedError, SourceUnavailableError

TIMEOUT_SECONDS = 15.0

_LOGGER = logging.getLogger(__name__)

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """The offsets a partition has: from `earliest` to just below `end`."""

    earliest: int
    end: int


class KafkaRecord(Protocol):
    """What `produce` needs to know of a record."""

    @property
    def topic(self) -> str:
        """Name of the topic."""
        ...

    @property
    def partition(self) -> int:
        """Number of the partition."""
        ...

    @property
    def timestamp_ms(self) -> int:
        """Epoch milliseconds; below 0 if the record has none."""
        ...

    @property
    def key(self) -> bytes | None:
        """Kafka's key."""
        ...

    @property
    def value(self) -> bytes | None:
        """Kafka's value."""
        ...


# --- options ---

Options = Mapping[str, OptionValue]


def client_options(source: KafkaSource) -> dict[str, str]:
    """Return the options for librdkafka (confluent-kafka). They contain secrets: never log them.

    Raises:
        ConfigError: an option is one of Java's client.
    """
    for key in source.options:
        if key.startswith(_JAVA_ONLY):
            raise ConfigError(
                f"options.{key}: only Java's client has this option, and nothing here is Java's "
                "client; remove it, and say the same by an option of librdkafka (sasl.username and "
                "sasl.password for a login, ssl.ca.location for a trust store)"
            )
    options = {key: option.value for key, option in source.options.items()}
    return {"bootstrap.servers": source.bootstrap_servers} | options


_JAVA_ONLY: Final = (
    "sasl.jaas.config",
    "sasl.client.callback.handler.class",
    "sasl.login.",
    "sasl.kerberos.ticket.",
    "ssl.truststore.",
    "ssl.keystore.type",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.protocol",
    "ssl.provider",
    "ssl.enabled.protocols",
    "ssl.trustmanager.algorithm",
    "ssl.keymanager.algorithm",
    "ssl.secure.random.implementation",
    "security.providers",
)
"""Beginnings of the names of options that only Java's client has."""


# --- questions ---


def reach(source: KafkaSource, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
    """Return when a broker answers and has a topic of the source.

    Raises:
        SourceUnavailableError: the broker did not answer, or none of the topics is there.
        ConfigError: an option is wrong.
    """
    Administration(source).topics_of(source, timeout_seconds=timeout_seconds)


def end_offsets(
    source: KafkaSource, *, timeout_seconds: float = TIMEOUT_SECONDS
) -> dict[tuple[str, int], OffsetRange]:
    """Return the offsets of every partition of the source's topics that are there.

    Raises:
        SourceUnavailableError: the broker did not answer, or none of the topics is there.
        ConfigError: an option is wrong.
    """
    return list_ranges(source, timeout_seconds=timeout_seconds)[0]


def list_ranges(
    source: KafkaSource, *, timeout_seconds: float = TIMEOUT_SECONDS
) -> tuple[dict[tuple[str, int], OffsetRange], dict[str, str]]:
    """Return the offsets of every partition of the source's topics that are there, and their ids.

    Raises:
        SourceUnavailableError: the broker did not answer, or none of the topics is there.
        ConfigError: an option is wrong.
    """
    administration = Administration(source)
    topics = administration.topics_of(source, timeout_seconds=timeout_seconds)
    described = administration.describe(topics, timeout_seconds=timeout_seconds)
    ranges = administration.ranges(described, timeout_seconds=timeout_seconds)
    return ranges, topic_ids(described)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The partitions of a source, listed twice.

    Attributes:
        ranges: offsets of every partition.
        later_ends: ends of all partitions, asked for when all of `ranges` had been told. So a
            partition with the same end in both had nothing more when the last of `ranges` was told.
            It may have partitions of topics that came in between.
        topic_ids: ids of the topics of `ranges`; none of a broker too old to have them.
    """

    ranges: Mapping[tuple[str, int], OffsetRange]
    later_ends: Mapping[tuple[str, int], OffsetRange]
    topic_ids: Mapping[str, str]


def list_twice(source: KafkaSource, *, timeout_seconds: float = TIMEOUT_SECONDS) -> Listing:
    """Return the partitions of the source's topics that are there, listed twice.

    Raises:
        SourceUnavailableError: the broker did not answer, or none of the topics is there.
        ConfigError: an option is wrong.
    """
    administration = Administration(source)
    topics = administration.topics_of(source, timeout_seconds=timeout_seconds)
    described = administration.describe(topics, timeout_seconds=timeout_seconds)
    ranges = administration.ranges(described, timeout_seconds=timeout_seconds)
    again = administration.topics_of(source, timeout_seconds=timeout_seconds)
    return Listing(
        ranges=ranges,
        later_ends=administration.end_offsets(again, timeout_seconds=timeout_seconds),
        topic_ids=topic_ids(described),
    )


def start_offsets(
    source: KafkaSource,
    ranges: Mapping[tuple[str, int], OffsetRange],
    *,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> dict[tuple[str, int], int]:
    """Return the offset at which landing begins in each partition of `ranges`.

    Raises:
        SourceUnavailableError: the broker did not answer.
        ConfigError: an option is wrong.
    """
    match source.start.kind:
        case StartKind.EARLIEST:
            return {place: offsets.earliest for place, offsets in ranges.items()}
        case StartKind.LATEST:
            return {place: offsets.end for place, offsets in ranges.items()}
        case StartKind.TIMESTAMP:
            assert source.start.timestamp_ms is not None
            found = Administration(source).offsets_at(
                ranges, source.start.timestamp_ms, timeout_seconds=timeout_seconds
            )
            # Kafka has no offset where every record is older.
            return {
                place: found[place] if found[place] >= 0 else offsets.end
                for place, offsets in ranges.items()
            }
        case _:
            assert_never(source.start.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic as the broker describes it: its id, if it has one, and its partitions."""

    topic_id: str | None
    partitions: tuple[int, ...]


def topic_ids(described: Mapping[str, Topic]) -> dict[str, str]:
    """Return the ids of topics; none of a broker too old to have them."""
    return {name: topic.topic_id for name, topic in described.items() if topic.topic_id is not None}


class Administration:
    """Questions and orders to one cluster, over one connection that lives as long as this object.

    Args:
        source: the cluster; its topics are not looked at here.
    """

    def __init__(self, source: KafkaSource) -> None:
        self._servers = source.bootstrap_servers
        self._trouble = _Trouble(source)
        self._client = _client(AdminClient, client_options(source), self._trouble)
        # Where a partition ends depends on which of its records are wanted.
        option = source.options.get(_ISOLATION)
        self._isolation = IsolationLevel.READ_UNCOMMITTED
        if option is not None and option.value == "read_committed":
            self._isolation = IsolationLevel.READ_COMMITTED

    def ping(self, *, timeout: float = TIMEOUT_SECONDS) -> None:
        """Return when a broker answers.

        Raises:
            SourceUnavailableError: none did in time.
        """
        self._answer(self._client.describe_cluster(request_timeout=timeout), timeout)

    def topic_names(self, *, timeout_seconds: float = TIMEOUT_SECONDS) -> frozenset[str]:
        """Return the names of all topics of the cluster that this client may see.

        Raises:
            SourceUnavailableError: the broker did not answer.
        """
        future: Future[Any] = Future()

        def list_topics() -> None:
            try:
                future.set_result(self._client.list_topics(timeout=timeout_seconds))
            except KafkaException as error:
                future.set_exception(error)

        # This call blocks, and while it does nobody would hear of a refusal.
        Thread(target=list_topics, name="list-topics", daemon=True).start()
        return frozenset(self._answer(future, timeout_seconds).topics)

    def topic_settings(
        self,
        topics: Iterable[str],
        names: Iterable[str],
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> dict[str, dict[str, str]]:
        """Return settings of topics by their Kafka names; "" for one that the broker lacks.

        Raises:
            SourceUnavailableError: the broker did not answer, or does not tell.
        """
        wanted = tuple(names)
        resources = {name: ConfigResource(ConfigResource.Type.TOPIC, name) for name in topics}
        if not resources:
            return {}
        futures = self._client.describe_configs(
            list(resources.values()), request_timeout=timeout_seconds
        )
        told: dict[str, dict[str, str]] = {}
        for topic, resource in resources.items():
            entries: Any = self._answer(futures[resource], timeout_seconds, topic=topic)
            told[topic] = {
                name: str(entries[name].value or "") if name in entries else "" for name in wanted
            }
        return told

    def topics_of(
        self, source: KafkaSource, *, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> list[str]:
        """Return the topics of `source` that are there, in order.

        Raises:
            SourceUnavailableError: the broker did not answer, or none of the topics is there.
        """
        there = self.topic_names(timeout_seconds=timeout_seconds)
        found = sorted(name for name in there if source.takes(name))
        if not found:
            if len(source.topics) == 1 and not source.patterns:
                what = f"no topic {source.topics[0]!r}"
            else:
                names = [*source.topics, *(pattern.text for pattern in source.patterns)]
                what = f"none of the topics {', '.join(map(repr, names))}"
            raise TopicMissingError(f"the Kafka broker {self._servers} has {what}", _TOPIC_FIX)
        return found

    def offsets_at(
        self,
        partitions: Iterable[tuple[str, int]],
        timestamp_ms: int,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> dict[tuple[str, int], int]:
        """Return the offset of the first record at or after a time; below 0 where there is none."""
        spec = OffsetSpec.for_timestamp(timestamp_ms)
        return self._offsets(list(partitions), spec, timeout_seconds)

    def describe(
        self, topics: Iterable[str], *, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> dict[str, Topic]:
        """Return what the broker says of `topics`.

        Raises:
            SourceUnavailableError: the broker did not answer, or a topic is not there.
        """
        names = list(topics)
        futures = self._client.describe_topics(
            TopicCollection(names), request_timeout=timeout_seconds
        )
        return {
            name: _topic(self._answer(futures[name], timeout_seconds, topic=name)) for name in names
        }

    def end_offsets(
        self, topics: Iterable[str], *, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> dict[tuple[str, int], OffsetRange]:
        """Return the offsets of every partition of `topics`.

        Raises:
            SourceUnavailableError: the broker did not answer, or a topic is not there.
        """
        deadline = time.monotonic() + timeout_seconds
        described = self.describe(topics, timeout_seconds=timeout_seconds)
        left = max(1.0, deadline - time.monotonic())
        return self.ranges(described, timeout_seconds=left)

    def ranges(
        self, described: Mapping[str, Topic], *, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> dict[tuple[str, int], OffsetRange]:
        """Return the offsets of every partition of topics that `describe` told of.

        Raises:
            SourceUnavailableError: the broker did not answer, or a topic is not there any more.
        """
        deadline = time.monotonic() + timeout_seconds
        partitions = [
            (name, number) for name, topic in described.items() for number in topic.partitions
        ]
        while True:
            left = max(1.0, deadline - time.monotonic())
            try:
                # First the ends, then the beginnings: what expires in between makes a range empty
                # or shorter, never one that promises records that are gone.
                end = self._offsets(partitions, OffsetSpec.latest(), left)
                earliest = self._offsets(partitions, OffsetSpec.earliest(), left)
                break
            except _NoLeaderError:
                # So it is for a moment after a topic was made, and while leaders move.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        return {
            key: OffsetRange(earliest=earliest[key], end=max(earliest[key], end[key]))
            for key in partitions
        }

    def ends(
        self, partitions: Iterable[tuple[str, int]], *, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> dict[tuple[str, int], int]:
        """Return the offset after the last record of each of `partitions`, in one request.

        Raises:
            SourceUnavailableError: the broker did not answer, or has no such partition.
        """
        return self._offsets(list(partitions), OffsetSpec.latest(), timeout_seconds)

    def create_topic(
        self,
        name: str,
        partitions: int,
        *,
        config: Mapping[str, str] | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        """Create a topic with the cluster's default replication and wait until it can be used."""
        topic = NewTopic(name, num_partitions=partitions, config=dict(config or {}))
        futures = self._client.create_topics([topic], request_timeout=timeout_seconds)
        self._answer(futures[name], timeout_seconds, topic=name)
        self._wait(lambda: len(self._partitions(name)) == partitions, timeout_seconds, name)

    def delete_topic(self, name: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        """Delete a topic and wait until the broker no longer knows it."""
        futures = self._client.delete_topics([name], request_timeout=timeout_seconds)
        self._answer(futures[name], timeout_seconds, topic=name)
        self._wait(lambda: not self._partitions(name), timeout_seconds, name)

    def add_partitions(
        self, name: str, partitions: int, *, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        """Give a topic more partitions, `partitions` in total, and wait until they can be used."""
        futures = self._client.create_partitions(
            [NewPartitions(name, partitions)], request_timeout=timeout_seconds
        )
        self._answer(futures[name], timeout_seconds, topic=name)
        self._wait(lambda: len(self._partitions(name)) == partitions, timeout_seconds, name)

    def delete_records(
        self,
        name: str,
        before: Mapping[int, int],
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        """Let records expire: of each partition of `before` those below its offset."""
        wanted = [TopicPartition(name, number, offset) for number, offset in before.items()]
        futures = self._client.delete_records(wanted, request_timeout=timeout_seconds)
        for future in futures.values():
            self._answer(future, timeout_seconds, topic=name)

    def partition_count(self, name: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> int | None:
        """Return how many partitions a topic has, None if there is no such topic."""
        try:
            return len(self.describe([name], timeout_seconds=timeout_seconds)[name].partitions)
        except TopicMissingError:
            return None

    # --- pieces ---

    def _offsets(
        self, partitions: list[tuple[str, int]], spec: OffsetSpec | None, timeout: float
    ) -> dict[tuple[str, int], int]:
        if not partitions:
            return {}
        asked: dict[TopicPartition, Any] = {TopicPartition(*key): spec for key in partitions}
        futures = self._client.list_offsets(
            asked, isolation_level=self._isolation, request_timeout=timeout
        )
        return {
            (partition.topic, partition.partition): self._answer(
                future, timeout, topic=partition.topic, partition=partition.partition
            ).offset
            for partition, future in futures.items()
        }

    def _partitions(self, name: str) -> tuple[int, ...]:
        try:
            return self.describe([name])[name].partitions
        except TopicMissingError:
            return ()

    def _wait(self, condition: Callable[[], bool], timeout: float, topic: str) -> None:
        # Metadata reaches a broker a moment after the controller has said yes.
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline:
                raise SourceUnavailableError(
                    f"the Kafka broker {self._servers} did not finish changing topic {topic!r} "
                    f"within {timeout:g} s"
                )
            time.sleep(0.05)

    def _answer(
        self,
        future: "Future[_T]",
        timeout: float,
        *,
        topic: str | None = None,
        partition: int | None = None,
    ) -> _T:
        """Return the result of `future`, or say in one sentence why there is none."""
        # The client keeps the time; the little more is for its own bookkeeping.
        deadline = time.monotonic() + timeout + 5.0
        self._trouble.ask()
        while not future.done() and time.monotonic() < deadline:
            # The client tells of its troubles here and nowhere else.
            self._client.poll(0.02)
            error = self._trouble.verdict()
            if error is not None and not future.done():
                raise error
        try:
            answer = future.result(0)
        except KafkaException as error:
            kafka_error: KafkaError = error.args[0]
        except TimeoutError:
            kafka_error = KafkaError(KafkaError._TIMED_OUT)
        else:
            self._trouble.forget()
            return answer
        raise self._unavailable(kafka_error, timeout, topic, partition)

    def _unavailable(
        self, error: KafkaError, timeout: float, topic: str | None, partition: int | None
    ) -> SourceUnavailableError:
        code = error.code()
        if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return TopicMissingError(
                f"the Kafka broker {self._servers} has no topic {topic!r}", _TOPIC_FIX
            )
        if code in _NO_ANSWER:
            in_time = f"did not answer within {timeout:g} s"
            is_late = code == KafkaError._TIMED_OUT
            return self._trouble.silence(in_time if is_late else "cannot be reached")
        if code in _NO_LEADER:
            return _NoLeaderError(
                f"no Kafka broker of {self._servers} leads topic {topic!r} partition {partition}"
            )
        where = "" if topic is None else f" about topic {topic!r}"
        where += "" if partition is None else f" partition {partition}"
        reason = f"the Kafka broker {self._servers} refused a question{where}: {error.str()}"
        if code in _NO_RIGHT:
            return SourceRefusedError(reason, _RIGHT_FIX)
        return SourceUnavailableError(reason)


class TopicMissingError(SourceUnavailableError):
    """The broker answers and has no such topic (yet)."""


class _NoLeaderError(SourceUnavailableError):
    """A partition has no leader, or the broker that was asked is not it."""


_NO_LEADER = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
}

_NO_ANSWER = {
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
}

_NO_RIGHT = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
}

_TOPIC_FIX: Final = (
    "look at source.kafka.topics, and whether this client has the right DESCRIBE on the topic"
)
_RIGHT_FIX: Final = (
    "give the user of source.kafka.options.sasl.username the rights DESCRIBE and READ on the topic"
)

_NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"


def _topic(description: TopicDescription) -> Topic:
    topic_id = str(description.topic_id) if description.topic_id is not None else _NO_TOPIC_ID
    return Topic(
        topic_id=None if topic_id == _NO_TOPIC_ID else topic_id,
        partitions=tuple(sorted(partition.id for partition in description.partitions)),
    )


# --- records ---


def produce(
    target: KafkaSource,
    records: Iterable[KafkaRecord],
    *,
    timeout_seconds: float = 60.0,
) -> int:
    """Write records to the partitions they name and return how many, once all are acknowledged.

    Key, value and timestamp are kept, and so is the order within each partition (the producer is
    idempotent, so a repeated request neither doubles nor reorders).

    Args:
        target: the cluster; topics are those of the records and must exist.
        records: what to write.
        timeout_seconds: how long one record may take to be acknowledged.

    Raises:
        SourceUnavailableError: a record was not acknowledged; records before it may have been.
    """
    failures: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None and not failures:
            failures.append(
                f"topic {message.topic()!r} partition {message.partition()}: {error.str()}"
            )

    producer = _client(
        Producer,
        client_options(target)
        | {
            "enable.idempotence": "true",
            "delivery.timeout.ms": str(int(timeout_seconds * 1000)),
            "linger.ms": "20",
            # TiCDC's own limit is the broker's: let the broker be the one that refuses.
            "message.max.bytes": "1000000000",
            "on_delivery": delivered,
            "allow.auto.create.topics": "false",
        },
    )

    def unavailable() -> SourceUnavailableError:
        return SourceUnavailableError(
            f"the Kafka broker {target.bootstrap_servers} did not take a record of {failures[0]}"
        )

    count = 0
    try:
        for record in records:
            timestamp: dict[str, Any] = {}
            if record.timestamp_ms >= 0:
                timestamp["timestamp"] = record.timestamp_ms
            while not failures:
                try:
                    producer.produce(
                        record.topic,
                        value=record.value,
                        key=record.key,
                        partition=record.partition,
                        **timestamp,
                    )
                    break
                except BufferError:
                    producer.poll(0.5)
            producer.poll(0)
            if failures:
                raise unavailable()
            count += 1
        # Each record is delivered or reported as failed within its own timeout.
        producer.flush(timeout_seconds + 10.0)
    finally:
        if failures:
            producer.purge()
            producer.flush(1.0)
    if failures:
        raise unavailable()
    return count


def consume(
    source: KafkaSource,
    ranges: Mapping[tuple[str, int], OffsetRange],
    *,
    limit: int | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Iterator[CaptureRecord]:
    """Read the records of `ranges`, in order within each partition.

    Args:
        source: the cluster.
        ranges: what to read of each (topic, partition).
        limit: stop after this many records.
        timeout_seconds: how long the broker may send nothing before that is an error.

    Raises:
        SourceUnavailableError: the broker stopped answering, or records of a range are gone.
    """
    if limit == 0:
        return
    count = 0
    for messages in _messages(source, ranges, {}, timeout_seconds):
        for message in messages:
            yield _capture_record(message)
            count += 1
            if count == limit:
                return


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedRecords:
    """Records as columns, in the order in which they came.

    Attributes:
        topics: name of each record's topic.
        partitions: number of its partition.
        offsets: its offset.
        timestamps_ms: its time in epoch milliseconds; -1 for none.
        keys: its key.
        values: its value.
        headers: its headers; None of a record without any.
    """

    topics: list[str]
    partitions: list[int]
    offsets: list[int]
    timestamps_ms: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[list[tuple[str, bytes | None]] | None]


def fetch(
    source: KafkaSource,
    ranges: Mapping[tuple[str, int], OffsetRange],
    *,
    max_bytes: int,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Iterator[FetchedRecords]:
    """Yield the records of `ranges`, some hundreds at a time, in order within each partition.

    Records of open and aborted transactions are among them, unless the option `isolation.level`
    says `read_committed`.

    Args:
        source: the cluster.
        ranges: what to read of each (topic, partition); each must be there to its end.
        max_bytes: most bytes of keys and values that the client holds ready.
        timeout_seconds: how long the broker may send nothing before that is an error.

    Raises:
        SourceUnavailableError: the broker stopped answering, or records of a range are gone.
    """
    options = {
        _ISOLATION: "read_uncommitted",  # the default of Java's client, not of librdkafka
        "queued.max.messages.kbytes": str(max(1, max_bytes // 1024)),
    }
    for messages in _messages(source, ranges, options, timeout_seconds, to_end=True):
        # The types of the client say less than its documents: none of these is None here.
        found: list[Any] = messages
        yield FetchedRecords(
            topics=[message.topic() for message in found],
            partitions=[message.partition() for message in found],
            offsets=[message.offset() for message in found],
            timestamps_ms=[message.timestamp()[1] for message in found],
            keys=[message.key() for message in found],
            values=[message.value() for message in found],
            headers=[message.headers() for message in found],
        )


_ISOLATION: Final = "isolation.level"
_FETCHED: Final = 1000
"""Messages that the client is asked for at a time."""


def _messages(
    source: KafkaSource,
    ranges: Mapping[tuple[str, int], OffsetRange],
    defaults: Mapping[str, str],
    timeout_seconds: float,
    *,
    to_end: bool = False,
) -> Iterator[list[Message]]:
    """Yield the messages of `ranges`, in order within each partition.

    With `to_end`, a partition that ends before its range does is an error.
    """
    left = {key: span for key, span in ranges.items() if span.earliest < span.end}
    if not left:
        return
    following = {key: span.earliest for key, span in left.items()}
    trouble = _Trouble(source)
    consumer = _client(
        Consumer,
        # With enough records ready the client would ask for no more for a whole second.
        {"fetch.queue.backoff.ms": "5"}
        | dict(defaults)
        | client_options(source)
        | {
            "group.id": "ticdc-assets",  # asked for by the client; nothing is ever committed
            "enable.auto.commit": "false",
            "enable.auto.offset.store": "false",
            "auto.offset.reset": "error",
            "enable.partition.eof": "true",
            "max.poll.interval.ms": "86400000",  # a slow reader is no dead member of a group
        },
        trouble,
    )
    try:
        consumer.assign(
            [TopicPartition(topic, number, left[topic, number].earliest) for topic, number in left]
        )
        silent_seconds = 0.0  # only while waiting here: the caller may take its time with a record
        while left:
            asked_at = time.monotonic()
            # The client waits for as many as it is asked for, so it is asked for what there is.
            waiting = sum(span.end - following[key] for key, span in left.items())
            messages = consumer.consume(max(1, min(_FETCHED, waiting)), timeout=0.5)
            if messages:
                silent_seconds = 0.0
                trouble.forget()
            else:
                silent_seconds += time.monotonic() - asked_at
            failure = trouble.verdict()
            if failure is not None:
                raise failure
            if silent_seconds > timeout_seconds:
                raise trouble.silence(
                    f"sent nothing for {timeout_seconds:g} s while records of {_named(left)} were "
                    "outstanding"
                )
            found: list[Message] = []
            for message in messages:
                key = _coordinates(message)
                span = left.get(key)
                if span is None:
                    continue
                error = message.error()
                if error is None:
                    offset = _offset(message)
                    if offset < span.end:
                        found.append(message)
                    following[key] = min(span.end, offset + 1)
                    ended = offset >= span.end - 1
                else:
                    _check(source, message, error, span.end if to_end else 0)
                    # The end of a partition is also a proof that no more of its range will come:
                    # the last offsets of a range need not exist (compaction, transaction markers).
                    ended = True
                if ended:
                    del left[key]
                    consumer.incremental_unassign([TopicPartition(*key)])
            if found:
                yield found
    finally:
        consumer.close()


def _check(source: KafkaSource, message: Message, error: KafkaError, end: int) -> None:
    """Raise what is wrong with a partition; nothing if it ended, at or behind `end`."""
    topic, partition = _coordinates(message)
    if error.code() != KafkaError._PARTITION_EOF:
        reason = (
            f"the Kafka broker {source.bootstrap_servers} gave an error for topic {topic!r} "
            f"partition {partition}: {error.str()}"
        )
        if error.code() in _NO_RIGHT:
            raise SourceRefusedError(reason, _RIGHT_FIX)
        raise SourceUnavailableError(reason)
    if 0 <= _offset(message) < end:
        raise SourceUnavailableError(
            f"the Kafka broker {source.bootstrap_servers} now ends topic {topic!r} partition "
            f"{partition} at offset {_offset(message)}, before {end}"
        )


def _coordinates(message: Message) -> tuple[str, int]:
    topic, partition = message.topic(), message.partition()
    if topic is None or partition is None:
        return "", -1
    return topic, partition


def _offset(message: Message) -> int:
    offset = message.offset()
    return -1 if offset is None else offset


def _capture_record(message: Message) -> CaptureRecord:
    topic, partition = _coordinates(message)
    key: Any = message.key()
    value: Any = message.value()
    return CaptureRecord(
        topic=topic,
        partition=partition,
        offset=_offset(message),
        timestamp_ms=message.timestamp()[1],
        key=key,
        value=value,
    )


def _named(partitions: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{topic}/{number}" for topic, number in sorted(partitions))


# --- troubles ---

REFUSED_SECONDS = 2.0
"""How long another broker may take to answer when one has refused."""

DOWN_SECONDS = 5.0
"""How long brokers that cannot be reached are waited for: one of them may be restarting."""


class _Trouble:
    """What a client says of its connections, and when that is enough to give up.

    The client calls it while it is polled. It keeps trying by itself, so a fault is told only when
    no broker is left that could answer, or when somebody's patience is over.

    Args:
        source: the cluster, and the options that a fault is looked for in.
    """

    def __init__(self, source: KafkaSource) -> None:
        self._source = source
        self._secrets = [
            option.value
            for option in source.options.values()
            if option.value and option.shown != option.value
        ]
        self.forget()

    def forget(self) -> None:
        """Begin anew: a broker has answered."""
        self._refused_at: float | None = None
        self._down_at: float | None = None
        self._refusal = ""
        self._reason = ""

    def ask(self) -> None:
        """Begin a new question.

        That no broker is left is said once, when it comes to that; a refusal is said again.
        """
        self._refused_at, self._refusal = None, ""
        self._down_at = None if self._down_at is None else time.monotonic()

    def heard(self, error: KafkaError) -> None:
        """Take an error of the client."""
        code, now = error.code(), time.monotonic()
        if code == KafkaError._ALL_BROKERS_DOWN:
            self._down_at = self._down_at or now
            return
        self._reason = error.str()
        is_refusal = code in (KafkaError._AUTHENTICATION, KafkaError._SSL)
        if is_refusal and self._refused_at is None:
            # The first one tells most: what follows is that the connection is closed.
            self._refused_at, self._refusal = now, self._reason

    def log(self, _level: int, message: str, *arguments: object) -> None:
        """Take a line of the client's log.

        The log would go to standard error and repeats itself many a second. A connection that the
        broker closes is told here alone; the rest is for those who debug.
        """
        _LOGGER.debug(message, *arguments)
        found = _CLOSED.search(message % arguments if arguments else message)
        if found is not None:
            self._reason = found[1]

    def verdict(self) -> SourceUnavailableError | None:
        """Return the error to give up with, or None while an answer may still come."""
        now = time.monotonic()
        if self._refused_at is not None:
            if self._down_at is not None or now - self._refused_at > REFUSED_SECONDS:
                return self._refused()
        elif self._down_at is not None:
            is_closed = _CLOSED_REASON in self._reason
            if now - self._down_at > (REFUSED_SECONDS if is_closed else DOWN_SECONDS):
                return self.silence("cannot be reached")
        return None

    def silence(self, what: str) -> SourceUnavailableError:
        """Return the error of brokers that gave no answer, with the reason if there is one."""
        if self._refusal:
            return self._refused()
        servers, reason = self._source.bootstrap_servers, self._reason
        host, _, port = servers.split(",")[0].rpartition(":")
        told = f"the Kafka broker {servers} {what}" + (f": {self.shown(reason)}" if reason else "")
        if "resolve" in reason:
            fix = (
                "mend the host name in source.kafka.bootstrap_servers; look with "
                f"`getent hosts {host}`. A name that is not written there is one that the broker "
                "gives out as its address (advertised.listeners)"
            )
        elif _CLOSED_REASON in reason:
            # A proxy in front of brokers that are down does the same, so this is no refusal.
            fix = (
                "that port may speak another protocol, with or without TLS or a login: set "
                f"{_key('security.protocol')} to what the listener of the broker is"
            )
        else:
            fix = (
                "start the broker, or mend host and port in source.kafka.bootstrap_servers; look "
                f"with `nc -vz {host} {port}`"
            )
        return SourceUnavailableError(told, fix)

    def _refused(self) -> SourceRefusedError:
        what, keys = self._read(self._refusal)
        told = f"the Kafka broker {self._source.bootstrap_servers} {what}"
        return SourceRefusedError(told, f"mend {keys}")

    def _read(self, reason: str) -> tuple[str, str]:
        """Return what a refusal says, and the keys of the configuration that are to be mended."""
        shown, protocol = self.shown(reason), _key("security.protocol")
        if "current SASL state" in reason:
            return f"takes no login on that port ({shown})", protocol
        if "Unsupported SASL mechanism" in reason:
            return f"refused the login: {shown}", _key(self._mechanism_key)
        if "OAUTHBEARER token" in reason:
            keys = ("sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.client.secret")
            return f"was not asked, as no login was to be had: {shown}", _keys(keys)
        if "SASL" in reason:
            given = [key for key in _LOGIN_KEYS if key in self._source.options]
            return f"refused the login: {shown}", _keys(given or _LOGIN_KEYS[:2])
        if "certificate verify failed" in reason:
            fault = _certificate_fault(self._source, reason)
            if "mismatch" in fault:
                name_check = _key("ssl.endpoint.identification.algorithm")
                keys = f"the host name in source.kafka.bootstrap_servers, or {name_check}"
                return f"has a certificate for another host name: {fault}", keys
            return f"has a certificate that is not trusted: {fault or shown}", _key(
                "ssl.ca.location"
            )
        keys = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
        return f"refused the connection: {shown}", _keys(keys)

    @property
    def _mechanism_key(self) -> str:
        return "sasl.mechanisms" if "sasl.mechanisms" in self._source.options else "sasl.mechanism"

    def shown(self, reason: str) -> str:
        """Return a reason without the client's own bookkeeping, and without any secret."""
        address = rf"^(\w+://)?{re.escape(self._source.bootstrap_servers)}/\w+: "
        reason = re.sub(address, "", _BOOKKEEPING.sub("", reason)).strip(" .:")
        for secret in self._secrets:
            reason = reason.replace(secret, "***")
        return reason


_CLOSED_REASON: Final = "Disconnected"
_CLOSED: Final = re.compile(r"FAIL \S+ \S+ (.*Disconnected.*)")
_BOOKKEEPING: Final = re.compile(r" ?\(after \d+ms in state \w+[^)]*\)|: receive 0 after POLLIN")
_LOGIN_KEYS: Final = ("sasl.username", "sasl.password", "sasl.oauthbearer.client.id")


def _keys(options: Iterable[str]) -> str:
    return " and ".join(map(_key, options))


def _key(option: str) -> str:
    return f"source.kafka.options.{option}"


def _certificate_fault(source: KafkaSource, reason: str) -> str:
    """Return what is wrong with the certificate of the broker that `reason` names, "" if not told.

    The client says of each fault that verifying failed; so the broker is looked at once more.
    """
    named = re.search(r"://([^/\s]+):(\d+)", reason)
    if named is None:
        return ""
    options = source.options
    authority = options["ssl.ca.location"].value if "ssl.ca.location" in options else None
    text = options["ssl.ca.pem"].value if "ssl.ca.pem" in options else None
    try:
        context = ssl.create_default_context()
        if authority is not None and authority != "probe":
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(cafile=authority)
        elif text is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(cadata=text)
        host = named[1].strip("[]")
        with (
            socket.create_connection((host, int(named[2])), timeout=REFUSED_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            return ""
    except ssl.SSLCertVerificationError as error:
        return error.verify_message.rstrip(".")
    except (OSError, ValueError):
        return ""


class _QuietLog:
    """Takes the log of a client that nobody waits for."""

    def log(self, _level: int, message: str, *arguments: object) -> None:
        _LOGGER.debug(message, *arguments)


def _client(
    kind: Callable[..., _T], options: Mapping[str, Any], trouble: _Trouble | None = None
) -> _T:
    """Return a client of Kafka; what it says of its connections goes to `trouble`."""
    given = dict(options)
    if trouble is not None:
        given["error_cb"] = trouble.heard
    try:
        return kind(given, logger=_QuietLog() if trouble is None else trouble)
    except KafkaException as error:
        # Names the property and, for a list of choices, the value; never a credential.
        raise ConfigError(f"options: {error.args[0].str()}") from error
