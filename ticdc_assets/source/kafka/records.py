"""Records of a Kafka cluster: read and written.

In: a `KafkaSource`, and ranges of offsets or records. Out: single records for recording and playing
captures, columns for landing. A range that cannot be read to its end is an error.

Not handled: transactional producers (TiCDC uses none).
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from itertools import chain, islice
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from ticdc_assets.base.errors import SourceRefusedError, SourceUnavailableError
from ticdc_assets.config import KafkaSource
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.source.kafka.administration import OffsetRange
from ticdc_assets.source.kafka.connection import (
    ISOLATION,
    NO_RIGHT,
    RIGHT_FIX,
    Trouble,
    client_of,
    client_options,
)

_SILENT_SECONDS: Final = 60.0
"""How long a broker may send no record, as for the client itself.

An answer has up to 16 MiB and is read to its end first, so a slow link needs the time.
"""


def produce(
    target: KafkaSource,
    records: Iterable[CaptureRecord],
    *,
    timeout_seconds: float = 60.0,
) -> int:
    """Write records to their partitions and return how many, once all are acknowledged.

    Key, value and timestamp are kept, and so is the order within each partition (the producer is
    idempotent). The topics must exist. Each record may take `timeout_seconds`.

    Raises:
        SourceUnavailableError: a record was not acknowledged; records before it may have been.
    """
    failures: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None and not failures:
            failures.append(
                f"topic {message.topic()!r} partition {message.partition()}: {error.str()}"
            )

    producer = client_of(
        Producer,
        client_options(target)
        | {
            "enable.idempotence": "true",
            "delivery.timeout.ms": str(int(timeout_seconds * 1000)),
            "linger.ms": "20",
            # TiCDC's limit is the broker's, so the broker refuses too large records.
            "message.max.bytes": "1000000000",
            "on_delivery": delivered,
            "allow.auto.create.topics": "false",
        },
        Trouble(target),
    )

    def unavailable() -> SourceUnavailableError:
        return SourceUnavailableError(
            f"the Kafka broker {target.bootstrap_servers} did not take a record of {failures[0]}"
        )

    count = 0
    try:
        for record in records:
            timestamp: dict[str, Any] = {"timestamp": record.timestamp_ms}
            while not failures:
                try:
                    producer.produce(
                        record.topic,
                        value=record.value,
                        key=record.key,
                        partition=record.partition,
                        **(timestamp if record.timestamp_ms >= 0 else {}),
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
    timeout_seconds: float = _SILENT_SECONDS,
) -> Iterator[CaptureRecord]:
    """Yield the records that `fetch` yields, one at a time, at most `limit`.

    Raises:
        SourceUnavailableError: the broker stopped answering, or records of a range are gone.
    """
    fetched = fetch(source, ranges, timeout_seconds=timeout_seconds)
    for message in islice(chain.from_iterable(fetched), limit):
        topic, partition = _coordinates(message)
        key: Any = message.key()
        value: Any = message.value()
        yield CaptureRecord(
            topic=topic,
            partition=partition,
            offset=_offset(message),
            timestamp_ms=message.timestamp()[1],
            key=key,
            value=value,
        )


_FETCHED: Final = 1000
"""How many messages are taken from the client at a time, at most."""

_FETCHED_BYTES: Final = 16 << 20
"""How many bytes of messages, if they are as large as the last ones; the first are few."""


def fetch(
    source: KafkaSource,
    ranges: Mapping[tuple[str, int], OffsetRange],
    *,
    timeout_seconds: float = _SILENT_SECONDS,
) -> Iterator[list[Message]]:
    """Yield the records of `ranges`, some hundreds at a time, in order within each partition.

    This includes records of open and aborted transactions, unless the option `isolation.level` is
    `read_committed`. A partition that stays shorter than its range is an error. A replica next to
    this client (`client.rack`), or a new leader, may know of the last records a moment later.

    Args:
        source: the cluster.
        ranges: the offsets to read of each (topic, partition), which must all exist.
        timeout_seconds: how long the broker may send nothing before it is an error.

    Raises:
        SourceUnavailableError: the broker stopped answering, or records of a range are gone.
    """
    left = {key: span for key, span in ranges.items() if span.earliest < span.end}
    if not left:
        return
    following = {key: span.earliest for key, span in left.items()}
    trouble = Trouble(source)
    consumer = client_of(
        Consumer,
        {
            ISOLATION: "read_uncommitted",  # the default of Java's client, not of librdkafka
            "check.crcs": "true",  # likewise: a broker sends what its disk has
            # With a full buffer the client would pause its requests for a whole second.
            "fetch.queue.backoff.ms": "5",
            "queued.max.messages.kbytes": "16384",
        }
        | client_options(source)
        | {
            "group.id": "ticdc-assets",  # the client requires it; nothing is ever committed
            "enable.auto.commit": "false",
            "enable.auto.offset.store": "false",
            "auto.offset.reset": "error",
            "enable.partition.eof": "true",
            "max.poll.interval.ms": "86400000",  # a slow reader is not a dead member of a group
        },
        trouble,
    )
    try:
        consumer.assign(
            [TopicPartition(topic, number, left[topic, number].earliest) for topic, number in left]
        )
        silent_seconds = 0.0  # only while waiting here: the caller may take its time with a record
        ends: dict[tuple[str, int], int] = {}
        most = _FETCHED // 20
        while left:
            asked_at = time.monotonic()
            # The client waits for the requested number, so the request has the available number.
            waiting = sum(span.end - following[key] for key, span in left.items())
            messages = consumer.consume(max(1, min(most, waiting)), timeout=0.5)
            if messages:
                most = _next_number(messages)
                silent_seconds = 0.0
                trouble.forget()
            else:
                silent_seconds += time.monotonic() - asked_at
            failure = trouble.verdict()
            if failure is not None:
                raise failure
            if silent_seconds > timeout_seconds:
                for (topic, number), end in ends.items():
                    if (topic, number) in left:
                        raise SourceUnavailableError(
                            f"the Kafka broker {source.bootstrap_servers} now ends topic {topic!r} "
                            f"partition {number} at offset {end}, before {left[topic, number].end}"
                        )
                named = ", ".join(f"{topic}/{number}" for topic, number in sorted(left))
                raise trouble.silence(
                    f"sent nothing for {timeout_seconds:g} s while records of {named} were "
                    "outstanding"
                )
            fetched: list[Message] = []
            for message in messages:
                key = _coordinates(message)
                span = left.get(key)
                if span is None:
                    continue
                error = message.error()
                if error is None:
                    offset = _offset(message)
                    if offset < span.end:
                        fetched.append(message)
                    following[key] = min(span.end, offset + 1)
                    ended = offset >= span.end - 1
                else:
                    _require_end(source, message, error)
                    # The end of a partition also proves that no more of its range will come: the
                    # last offsets of a range need not exist (compaction, transaction markers).
                    ended = not 0 <= _offset(message) < span.end
                    if not ended:
                        ends[key] = _offset(message)
                if ended:
                    del left[key]
                    consumer.incremental_unassign([TopicPartition(*key)])
            if fetched:
                yield fetched
    finally:
        consumer.close()


def _next_number(messages: Sequence[Sized]) -> int:
    """Return how many messages to take after these; the length of one is that of its value."""
    size = sum(map(len, messages))
    return max(1, min(_FETCHED, _FETCHED_BYTES * len(messages) // max(1, size)))


def _require_end(source: KafkaSource, message: Message, error: KafkaError) -> None:
    """Raise an error of a partition, unless it only says where the partition ends."""
    if error.code() == KafkaError._PARTITION_EOF:
        return
    topic, partition = _coordinates(message)
    reason = (
        f"the Kafka broker {source.bootstrap_servers} gave an error for topic {topic!r} "
        f"partition {partition}: {error.str()}"
    )
    if error.code() in NO_RIGHT:
        raise SourceRefusedError(reason, RIGHT_FIX)
    fix = _DAMAGE_FIX if error.code() == KafkaError._BAD_MSG else ""
    raise SourceUnavailableError(reason, fix)


_DAMAGE_FIX: Final = (
    "let another replica lead the partition; or set source.kafka.options.check.crcs to false, "
    "which lands what the broker has"
)


def _coordinates(message: Message) -> tuple[str, int]:
    topic, partition = message.topic(), message.partition()
    return ("", -1) if topic is None or partition is None else (topic, partition)


def _offset(message: Message) -> int:
    offset = message.offset()
    return -1 if offset is None else offset
