"""Record topics into captures, and play captures into topics.

Recording gives a capture with every record that the topics had when it began, in order within each
partition. It continues an existing capture, so running it again adds only new records, also after a
crash.

Playing gives the records of a capture in topics of the same names, each in its partition with its
key, value and timestamp, in order, at new offsets. Missing topics are created with enough
partitions and without expiry. Playing again writes the records again, as TiCDC does after a
restart: this does not change mirrors.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from ticdc_assets.base.errors import ConfigError, LandingGapError
from ticdc_assets.base.names import counted
from ticdc_assets.base.progress import tell
from ticdc_assets.config import CaptureSource, KafkaSource
from ticdc_assets.source.capture import CaptureReader, CaptureRecord, CaptureWriter
from ticdc_assets.source.kafka.administration import Administration, OffsetRange
from ticdc_assets.source.kafka.records import consume, produce

_TOPIC_CONFIG = {"retention.ms": "-1", "message.timestamp.type": "CreateTime"}
_PROGRESS_RECORDS = 10_000


def record_topic(source: KafkaSource, path: Path, *, limit: int | None = None) -> tuple[int, bool]:
    """Write the records that the source's topics have now to the capture at `path`.

    Returns how many records were written, at most `limit`, and whether these are all.

    Raises:
        SourceUnavailableError: the broker does not answer or the file cannot be read or written.
        LandingGapError: the capture would miss records that expired since it was last written.
    """
    ranges, _ = Administration(source).listed(source)
    count = 0
    with CaptureWriter(path) as writer:
        recorded = writer.next_offsets
        wanted = {
            key: _rest_of(key, span, recorded.get(key, span.earliest))
            for key, span in ranges.items()
        }
        outstanding = sum(span.end - span.earliest for span in wanted.values())
        for record in _counted(consume(source, wanted, limit=limit), "recording"):
            writer.append(record)
            count += 1
    return count, limit is None or count < limit or outstanding <= limit


def play_capture(
    capture: CaptureSource, target: KafkaSource, *, limit: int | None = None
) -> tuple[int, bool, dict[str, int]]:
    """Write the records of a capture to the topics they come from, on another cluster.

    Returns how many records were written, at most `limit`; whether these are all; and the number of
    partitions of each topic, which the capture's setting may make wider than the file shows.

    Raises:
        ConfigError: a topic exists with fewer partitions than the capture has.
        SourceUnavailableError: the broker or the file does not answer.
        CaptureError: the file is not a capture.
    """
    partitions = dict(capture.partitions)
    total = 0
    with CaptureReader(capture.path) as reader:
        for record in reader:
            total += 1
            partitions[record.topic] = max(partitions.get(record.topic, 0), record.partition + 1)
    administration = Administration(target)
    for topic, needed in partitions.items():
        there = administration.partition_count(topic)
        if there is None:
            administration.create_topic(topic, needed, config=_TOPIC_CONFIG)
        elif there < needed:
            raise ConfigError(
                f"topic {topic!r} at {target.bootstrap_servers} has {counted(there, 'partition')}, "
                f"the capture {capture.path} has {needed}; give it more"
            )
    wanted = total if limit is None else min(limit, total)
    with CaptureReader(capture.path) as reader:
        count = produce(target, _counted(islice(reader, wanted), "playing"))
    return count, count == total, partitions


def _rest_of(key: tuple[str, int], span: OffsetRange, start: int) -> OffsetRange:
    fix = "record into a new file"
    if start < span.earliest:
        reason = "records expired since the last recording"
        raise LandingGapError(*key, start, span.earliest, reason, fix)
    if start > span.end:
        reason = "the topic is shorter than the capture: was it recreated?"
        raise LandingGapError(*key, start, span.end, reason, fix)
    return OffsetRange(earliest=start, end=span.end)


def _counted(records: Iterable[CaptureRecord], doing: str) -> Iterator[CaptureRecord]:
    for number, record in enumerate(records):
        if number % _PROGRESS_RECORDS == 0:
            tell(f"{doing}, {counted(number, 'record')} so far")
        yield record
