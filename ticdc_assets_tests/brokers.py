"""The local broker with what tests and benchmarks ask of it: topics that change, and a crash."""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Self

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from ticdc_assets.config import KafkaSource
from ticdc_assets.demo.broker import LocalBroker
from ticdc_assets.source.kafka.administration import Administration, OffsetRange
from ticdc_assets.source.kafka.connection import TIMEOUT_SECONDS, client_options

_SECONDS = 15.0


def end_offsets(
    source: KafkaSource, *, timeout_seconds: float = TIMEOUT_SECONDS
) -> dict[tuple[str, int], OffsetRange]:
    """Return the offsets of every partition of a source."""
    return Administration(source, timeout_seconds=timeout_seconds).listed(source)[0]


class OwnBroker(LocalBroker):
    """A broker whose topics a test changes, and which it ends in any way."""

    def kill(self) -> None:
        """End the broker at once, as a crash would; topics stay on disk."""
        if self.pid is not None:
            os.killpg(self.pid, signal.SIGKILL)
        self.stop()

    def restart(self) -> Self:
        """Stop and start with the same topics, on the same port if nobody took it meanwhile."""
        self.stop()
        return self.start()

    def create_topic(
        self, name: str, partitions: int, *, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic and wait until it can be used."""
        Administration(self.source()).create_topic(name, partitions, config=config)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until its name is free again."""
        with self._client() as client:
            _answer(client.delete_topics([name]).values())
        self._wait(name, lambda count: count is None)

    def add_partitions(self, name: str, partitions: int) -> None:
        """Give a topic more partitions, `partitions` in total, and wait until they can be used."""
        with self._client() as client:
            _answer(client.create_partitions([NewPartitions(name, partitions)]).values())
        self._wait(name, lambda count: count == partitions)

    def delete_records(self, name: str, before: Mapping[int, int]) -> None:
        """Let the records of a topic expire: of each partition those below the given offset."""
        wanted = [TopicPartition(name, number, offset) for number, offset in before.items()]
        with self._client() as client:
            _answer(client.delete_records(wanted).values())

    @contextmanager
    def _client(self) -> Iterator[AdminClient]:
        """Give a client, which has to be there until its answers are."""
        options: dict[str, Any] = dict(client_options(self.source()))
        yield AdminClient(options)

    def _wait(self, name: str, is_so: Callable[[int | None], bool]) -> None:
        # Metadata reaches a broker a moment after the controller has said yes.
        administration = Administration(self.source())
        deadline = time.monotonic() + _SECONDS
        while not is_so(administration.partition_count(name)):
            assert time.monotonic() < deadline, f"topic {name!r} did not change"
            time.sleep(0.05)


def _answer(futures: Iterable["Future[Any]"]) -> None:
    for future in futures:
        try:
            future.result(_SECONDS)
        except KafkaException as error:
            raise AssertionError(error.args[0].str()) from error
