"""Requests to a Kafka cluster: topics, partitions, offsets.

In: a `KafkaSource`. Out: offset ranges, topic ids and settings. Every call has a deadline and ends
with an answer or with one error. Nothing here commits positions, and a client closes with the
object that made it.

The option `isolation.level` decides where a partition ends: with `read_committed`, before the first
open transaction.
"""

# The client's types leave out what its documented modules export.
# pyright: reportPrivateImportUsage=false

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from threading import Thread
from typing import Any, Final, TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec

from ticdc_assets.base.errors import SourceRefusedError, SourceUnavailableError
from ticdc_assets.config import KafkaSource
from ticdc_assets.source.kafka.connection import (
    ISOLATION,
    NO_RIGHT,
    RIGHT_FIX,
    TIMEOUT_SECONDS,
    Trouble,
    client_of,
    client_options,
)

_POLL_SECONDS: Final = 0.02

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """The offsets of a partition: from `earliest` to just below `end`."""

    earliest: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic on the broker: its id, if it has one, and its partitions."""

    topic_id: str | None
    partitions: tuple[int, ...]


def topic_ids(described: Mapping[str, Topic]) -> dict[str, str]:
    """Return the ids of topics; {} if the broker is too old to have them."""
    return {name: topic.topic_id for name, topic in described.items() if topic.topic_id is not None}


class Administration:
    """Requests to one cluster, over one connection that lives as long as this object.

    Args:
        source: the cluster; its topics are not used here.
        timeout_seconds: how long the broker may take for each answer.
    """

    def __init__(self, source: KafkaSource, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._timeout = timeout_seconds
        self._servers = source.bootstrap_servers
        self._trouble = Trouble(source)
        self._client = client_of(AdminClient, client_options(source), self._trouble)
        # The end of a partition depends on which of its records are wanted. The client takes the
        # option in any case.
        option = source.options.get(ISOLATION)
        self._isolation = IsolationLevel.READ_UNCOMMITTED
        if option is not None and option.value.lower() == "read_committed":
            self._isolation = IsolationLevel.READ_COMMITTED

    def ping(self) -> None:
        """Return when a broker answers.

        Raises:
            SourceUnavailableError: none did in time.
        """
        self._answer(self._client.describe_cluster(request_timeout=self._timeout))

    def topic_names(self) -> frozenset[str]:
        """Return the names of all topics of the cluster that this client may see.

        Raises:
            SourceUnavailableError: the broker did not answer.
        """
        future: Future[Any] = Future()

        def list_topics() -> None:
            try:
                future.set_result(self._client.list_topics(timeout=self._timeout))
            except KafkaException as error:
                # Its frames hold the client: see `_answer`.
                future.set_exception(error.with_traceback(None))

        # This call blocks, and a refusal would not be noticed meanwhile.
        Thread(target=list_topics, name="list-topics", daemon=True).start()
        return frozenset(self._answer(future).topics)

    def topic_settings(
        self,
        topics: Iterable[str],
        names: Iterable[str],
    ) -> dict[str, dict[str, str]]:
        """Return settings of topics by their Kafka names; "" for one that the broker lacks.

        Raises:
            SourceUnavailableError: the broker did not answer or refused.
        """
        wanted = tuple(names)
        resources = {name: ConfigResource(ConfigResource.Type.TOPIC, name) for name in topics}
        if not resources:
            return {}
        futures = self._client.describe_configs(
            list(resources.values()), request_timeout=self._timeout
        )
        settings: dict[str, dict[str, str]] = {}
        for topic, resource in resources.items():
            entries: Any = self._answer(futures[resource], topic=topic)
            settings[topic] = {
                name: str(entries[name].value or "") if name in entries else "" for name in wanted
            }
        return settings

    def topics_of(self, source: KafkaSource) -> list[str]:
        """Return the existing topics of `source`, in order.

        Raises:
            SourceUnavailableError: the broker did not answer, or has none of the topics.
        """
        topics = sorted(filter(source.takes, self.topic_names()))
        if not topics:
            what = f"none of the topics {', '.join(map(repr, source.named))}"
            if len(source.topics) == 1 and not source.patterns:
                what = f"no topic {source.topics[0]!r}"
            raise TopicMissingError(f"the Kafka broker {self._servers} has {what}", _TOPIC_FIX)
        return topics

    def offsets_at(
        self,
        partitions: Iterable[tuple[str, int]],
        timestamp_ms: int,
    ) -> dict[tuple[str, int], int]:
        """Return the offset of the first record at or after a time; below 0 if there is none."""
        return self._offsets(list(partitions), OffsetSpec.for_timestamp(timestamp_ms))

    def describe(self, topics: Iterable[str]) -> dict[str, Topic]:
        """Return the broker's description of `topics`.

        Raises:
            SourceUnavailableError: the broker did not answer, or lacks a topic.
        """
        names = list(topics)
        futures = self._client.describe_topics(
            TopicCollection(names), request_timeout=self._timeout
        )
        described: dict[str, Topic] = {}
        for name in names:
            description = self._answer(futures[name], topic=name)
            identifier = _NO_TOPIC_ID if description.topic_id is None else str(description.topic_id)
            described[name] = Topic(
                topic_id=None if identifier == _NO_TOPIC_ID else identifier,
                partitions=tuple(sorted(partition.id for partition in description.partitions)),
            )
        return described

    def listed(
        self, source: KafkaSource
    ) -> tuple[dict[tuple[str, int], OffsetRange], dict[str, str]]:
        """Return the offsets of every partition of the source's existing topics, and `topic_ids`.

        Raises:
            SourceUnavailableError: the broker did not answer, or has none of the topics.
        """
        described = self.describe(self.topics_of(source))
        return self.ranges(described), topic_ids(described)

    def ranges(self, described: Mapping[str, Topic]) -> dict[tuple[str, int], OffsetRange]:
        """Return the offsets of every partition of topics from `describe`.

        Raises:
            SourceUnavailableError: the broker did not answer, or no longer has a topic.
        """
        partitions = [
            (name, number) for name, topic in described.items() for number in topic.partitions
        ]
        # Ends come first, then beginnings: records that expire in between make a range empty or
        # shorter, and never promise records that are gone.
        end = self._offsets(partitions, OffsetSpec.latest())
        earliest = self._offsets(partitions, OffsetSpec.earliest())
        return {
            key: OffsetRange(earliest=earliest[key], end=max(earliest[key], end[key]))
            for key in partitions
        }

    def ends(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Return the offset after the last record of each of `partitions`, in one request.

        Raises:
            SourceUnavailableError: the broker did not answer, or has no such partition.
        """
        return self._offsets(list(partitions), OffsetSpec.latest())

    def create_topic(
        self,
        name: str,
        partitions: int,
        *,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic with the cluster's default replication and wait until it can be used."""
        topic = NewTopic(name, num_partitions=partitions, config=dict(config or {}))
        futures = self._client.create_topics([topic], request_timeout=self._timeout)
        self._answer(futures[name], topic=name)
        # Metadata reaches a broker a moment after the controller has confirmed.
        deadline = time.monotonic() + self._timeout
        while self.partition_count(name) != partitions:
            if time.monotonic() > deadline:
                raise SourceUnavailableError(
                    f"the Kafka broker {self._servers} did not finish changing topic {name!r} "
                    f"within {self._timeout:g} s"
                )
            time.sleep(0.05)

    def partition_count(self, name: str) -> int | None:
        """Return how many partitions a topic has; None if there is no such topic."""
        try:
            return len(self.describe([name])[name].partitions)
        except TopicMissingError:
            return None

    # --- pieces ---

    def _offsets(
        self, partitions: list[tuple[str, int]], spec: OffsetSpec | None
    ) -> dict[tuple[str, int], int]:
        if not partitions:
            return {}
        wanted: dict[TopicPartition, Any] = {TopicPartition(*key): spec for key in partitions}
        deadline = time.monotonic() + self._timeout
        while True:
            futures = self._client.list_offsets(
                wanted, isolation_level=self._isolation, request_timeout=self._timeout
            )
            offsets: dict[tuple[str, int], int] = {}
            try:
                for place, future in futures.items():
                    topic, partition = place.topic, place.partition
                    offset = self._answer(future, topic=topic, partition=partition).offset
                    # So the client reports that the leader did not answer in time.
                    if offset == OFFSET_INVALID:
                        raise self._unavailable(KafkaError(KafkaError._TIMED_OUT), topic, partition)
                    offsets[topic, partition] = offset
            except _NoLeaderError:
                # This happens briefly after a topic was created, and while leaders move.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
                # The client sends requests to the leaders that it knows; this finds the new ones.
                self.topic_names()
            else:
                return offsets

    def _answer(
        self,
        future: "Future[_T]",
        *,
        topic: str | None = None,
        partition: int | None = None,
    ) -> _T:
        """Return the result of `future`, or raise one sentence that says why there is none."""
        # The client keeps the deadline; the extra time is for its own bookkeeping.
        deadline = time.monotonic() + self._timeout + 5.0
        self._trouble.ask()
        while not future.done() and time.monotonic() < deadline:
            # Another thread brings the answer; a poll with a timeout would keep sleeping after it.
            wait([future], timeout=_POLL_SECONDS)
            # The client reports its connection problems only here.
            self._client.poll(0)
            error = self._trouble.verdict()
            if error is not None and not future.done():
                try:
                    raise error
                finally:
                    # The error holds this frame, and so the client, which would live until the next
                    # garbage collection.
                    del error
        try:
            # A raised error would hold this frame, and so the client, which would live until the
            # next garbage collection.
            refusal = future.exception(0)
        except TimeoutError:
            raise self._unavailable(KafkaError(KafkaError._TIMED_OUT), topic, partition) from None
        if isinstance(refusal, KafkaException):
            raise self._unavailable(refusal.args[0], topic, partition)
        answer = future.result(0)
        self._trouble.forget()
        return answer

    def _unavailable(
        self, error: KafkaError, topic: str | None, partition: int | None
    ) -> SourceUnavailableError:
        code = error.code()
        if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return TopicMissingError(
                f"the Kafka broker {self._servers} has no topic {topic!r}", _TOPIC_FIX
            )
        if code in _NO_ANSWER:
            in_time = f"did not answer within {self._timeout:g} s"
            is_late = code == KafkaError._TIMED_OUT
            return self._trouble.silence(in_time if is_late else "cannot be reached")
        if code in _NO_LEADER:
            return _NoLeaderError(
                f"no Kafka broker of {self._servers} leads topic {topic!r} partition {partition}"
            )
        where = "" if topic is None else f" about topic {topic!r}"
        where += "" if partition is None else f" partition {partition}"
        reason = f"the Kafka broker {self._servers} refused a request{where}: {error.str()}"
        if code in NO_RIGHT:
            return SourceRefusedError(reason, RIGHT_FIX)
        return SourceUnavailableError(reason)


class TopicMissingError(SourceUnavailableError):
    """The broker answers and has no such topic (yet)."""


class _NoLeaderError(SourceUnavailableError):
    """A partition has no leader, or the broker of the request is not its leader."""


_NO_LEADER = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    # The broker or this client has not heard of the newest leader yet.
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
}

_NO_ANSWER = {
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
}

_TOPIC_FIX: Final = (
    "check source.kafka.topics, and whether this client has the right DESCRIBE on the topic"
)

_NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"
