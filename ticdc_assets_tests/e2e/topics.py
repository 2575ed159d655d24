"""A topic on the tests' broker, a changefeed of ours on it, an upstream that is written there."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from ticdc_assets.config import KafkaSource
from ticdc_assets.delta.control import read_table
from ticdc_assets.delta.opening import latest_version
from ticdc_assets.demo.simulator.changefeed import StandInChangefeed
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.source.kafka.records import produce
from ticdc_assets_tests.brokers import OwnBroker
from ticdc_assets_tests.commands import Commands
from ticdc_assets_tests.demo.simulator.builders import churn, plain_upstream, write_capture
from ticdc_assets_tests.golden import Rows
from ticdc_assets_tests.lake.feeds import truth_rows

FEED = "feed"


@dataclass(frozen=True)
class TopicFeed:
    """A changefeed over one topic."""

    broker: OwnBroker
    topic: str
    commands: Commands

    @classmethod
    def of(
        cls, broker: OwnBroker, topic: str, folder: Path, *, timezone: str = "UTC"
    ) -> "TopicFeed":
        commands = Commands(folder)
        commands.add_topic(FEED, broker.source(topic), timezone)
        return cls(broker, topic, commands)

    @property
    def source(self) -> KafkaSource:
        return self.broker.source(self.topic)

    def write(self, records: Iterable[CaptureRecord]) -> int:
        return produce(self.source, list(records))

    def sync(self, *options: object) -> str:
        return self.commands.done("sync", FEED, *options)

    def refused(self) -> str:
        """Sync in vain, return the sentence, and see to it that nothing was landed or applied."""
        paths = self.commands.paths(FEED)
        tables = (paths.raw_messages, paths.landings, paths.change_log, paths.cuts)

        def versions() -> list[int | None]:
            return [*map(latest_version, tables)]

        before = versions()
        sentence = self.commands.refused("sync", FEED)
        assert versions() == before
        return sentence

    @property
    def rows(self) -> Rows:
        return self.commands.rows(FEED)

    @property
    def cut_ts(self) -> int | None:
        return next((item["applied_ts"] for item in self.commands.mirrors(FEED)), None)

    def landed(self) -> list[tuple[int, int]]:
        table = read_table(self.commands.paths(FEED).raw_messages)
        assert table is not None
        assert set(table["topic"].to_pylist()) == {self.topic}
        return list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))


@dataclass(frozen=True)
class WrittenFeed(TopicFeed):
    """A changefeed over a topic that a small upstream of two tables is written to."""

    upstream: Upstream
    changefeed: StandInChangefeed

    @classmethod
    def made(cls, broker: OwnBroker, topic: str, folder: Path) -> "WrittenFeed":
        """Create the topic and an upstream; nothing is written yet."""
        broker.create_topic(topic, 2)
        upstream = plain_upstream(("shop", "orders"), ("shop", "customers"))
        feed = TopicFeed.of(broker, topic, folder)
        changefeed = StandInChangefeed(upstream, topic, partitions=2)
        return cls(broker, topic, feed.commands, upstream, changefeed)

    def go_on(self, steps: int = 20) -> int:
        """Change rows upstream, write everything and a watermark, and return how many records."""
        churn(self.upstream, steps=steps, seed=len(self.upstream.history))
        return self.write(self.changefeed.tick())

    @property
    def truth(self) -> Rows:
        return truth_rows(self.changefeed.truth())


def retopiced(records: Iterable[CaptureRecord], topic: str, path: Path) -> Path:
    """Write records to a capture under another topic's name."""
    write_capture(path, (replace(record, topic=topic) for record in records))
    return path
