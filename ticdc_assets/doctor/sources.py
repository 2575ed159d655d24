"""The checks of one changefeed's source, for `ticdc-assets doctor`.

In: a changefeed, and its lake. Out: `Check` values: whether its broker answers, its topics exist
and keep records long enough, each partition has watermarks, records have the configured format, and
the next record to land still exists; or the same for a capture.
"""

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from ticdc_assets.base.errors import SourceRefusedError, SourceUnavailableError, TicdcError
from ticdc_assets.base.names import counted
from ticdc_assets.config import CaptureSource, Changefeed, KafkaSource
from ticdc_assets.observe.wording import duration, listed
from ticdc_assets.source.capture import CaptureReader, CaptureRecord
from ticdc_assets.source.kafka.administration import Administration, OffsetRange, topic_ids
from ticdc_assets.source.kafka.connection import TIMEOUT_SECONDS
from ticdc_assets.source.kafka.records import consume
from ticdc_assets.source.recognising import Look, foreign_look, looks_of
from ticdc_assets.spark.preflight import Check
from ticdc_assets.storage.paths import AnyPath
from ticdc_assets.wire.formats import WireFormat
from ticdc_assets.wire.record import Record

LEAST_RETENTION_MS: Final = 7 * 86_400_000
"""Retention of a topic below which the check warns: a longer outage of syncs loses changes."""
_UNCLEAN: Final = "unclean.leader.election.enable"
_TOPICS_LOOKED_AT: Final = 20
_PARTITIONS_LOOKED_AT: Final = 3
_CAPTURE_RECORDS: Final = 20


def check_source(
    changefeed: Changefeed,
    *,
    lake: AnyPath | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> list[Check]:
    """Check that the source of `changefeed` can be read, and what is in it.

    What is landed in the lake is compared with what the source has; not if it is None.
    """
    match changefeed.source:
        case KafkaSource() as source:
            return _check_kafka(changefeed, source, lake, timeout_seconds)
        case CaptureSource() as source:
            return _check_capture(changefeed, source, lake)


@dataclass(frozen=True, slots=True)
class _Topics:
    """What a cluster has of a source, what it lacks, and the names of all other topics."""

    offsets: Mapping[tuple[str, int], OffsetRange]
    ids: Mapping[str, str]
    missing: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def there(self) -> list[str]:
        return sorted({topic for topic, _ in self.offsets})


def _check_kafka(
    changefeed: Changefeed, source: KafkaSource, lake: AnyPath | None, timeout_seconds: float
) -> list[Check]:
    name = f"source {changefeed.name}"
    servers = source.bootstrap_servers
    try:
        administration = Administration(source, timeout_seconds=timeout_seconds)
        topics = _topics(administration, source)
    except TicdcError as error:
        finding, fix = str(error), "correct source.kafka.options in the configuration"
        if isinstance(error, SourceUnavailableError):
            finding, fix = error.reason, error.fix or "check the broker"
        return [Check.failed(name, finding, fix=fix)]
    if not topics.there:
        others = listed(topics.others) or "no topic at all"
        finding = f"no topic {listed(topics.missing)} at {servers}, which has {others}"
        return [Check.failed(name, finding, fix=_missing_fix(topics))]
    counts = Counter[str]()
    for (topic, _), span in topics.offsets.items():
        counts[topic] += span.end - span.earliest
    spans = (
        f"{topic} with {counted(len(numbers), 'partition')} and {counted(counts[topic], 'record')}"
        for topic, numbers in _numbers(topics.offsets).items()
    )
    finding = f"{servers} answers, topic {listed(spans, '; topic ')}"
    return [
        Check.passed(name, finding),
        *_check_landed(changefeed, lake, topics.offsets, topics.ids),
        _check_missing(changefeed, topics),
        _check_partitions(changefeed, topics),
        _check_retention(changefeed, administration, topics),
        _check_topic_records(changefeed, source, topics, timeout_seconds),
    ]


def _topics(administration: Administration, source: KafkaSource) -> _Topics:
    names = administration.topic_names()
    there = sorted(topic for topic in names if source.takes(topic))
    missing = [topic for topic in source.topics if topic not in names]
    missing += [item.text for item in source.patterns if not any(map(item.matches, names))]
    described = administration.describe(there) if there else {}
    offsets = administration.ranges(described)
    others = sorted(topic for topic in names.difference(there) if not topic.startswith("__"))
    return _Topics(offsets, topic_ids(described), tuple(missing), tuple(others))


def _check_landed(
    changefeed: Changefeed,
    lake: AnyPath | None,
    offsets: Mapping[tuple[str, int], OffsetRange],
    ids: Mapping[str, str],
) -> list[Check]:
    if lake is None:
        return []
    # Here, so that the doctor can report that pyspark is missing, which these need.
    from ticdc_assets.delta.lake import Lake, paths_of
    from ticdc_assets.log.accepted_gaps import read_accepted
    from ticdc_assets.log.positions import read_position
    from ticdc_assets.log.sources import compare

    paths = paths_of(lake, changefeed.name)
    position = read_position(paths)
    if not position.next_offsets:
        return []
    gaps = compare(Lake(changefeed=changefeed, paths=paths), position, offsets, ids).gaps
    gap = next(iter(gaps), None)
    accepted = len(read_accepted(paths))
    partitions = counted(len(position.next_offsets), "partition")
    more = f"; accepted before: {counted(accepted, 'gap')}" if accepted else ""
    name = f"landing {changefeed.name}"
    if gap is None:
        return [Check.passed(name, f"the next record to land is there in {partitions}{more}")]
    also = f" and in {counted(len(gaps) - 1, 'more partition')}" if len(gaps) > 1 else ""
    finding = f"landing is stopped by a {gap.error.finding}{also}{more}"
    return [Check.failed(name, finding, "the next record to land", gap.fix)]


def _check_missing(changefeed: Changefeed, topics: _Topics) -> Check:
    """Warn about names and patterns that match no topic, if others match one."""
    name = f"topics {changefeed.name}"
    if not topics.missing:
        return Check.passed(name, counted(len(topics.there), "topic"))
    finding, needed = f"no topic for {listed(topics.missing)}", "a topic for every name and pattern"
    fix = f"nothing waits for it: it joins when it appears. Otherwise {_missing_fix(topics)}"
    return Check.failed(name, finding, needed, fix, vital=False)


def _missing_fix(topics: _Topics) -> str:
    close = [
        match
        for topic in topics.missing
        for match in difflib.get_close_matches(topic, topics.others, n=1)
    ]
    hint = f" (did you mean {' and '.join(map(repr, close))}?)" if close else ""
    return (
        f"correct source.kafka.topics in the configuration{hint}, or let TiCDC create it: a "
        "changefeed creates its topics when it starts (auto-create-topic)"
    )


def _check_partitions(changefeed: Changefeed, topics: _Topics) -> Check:
    """Warn about partitions that never had a record while their topic has some.

    A topic without any record delays nothing: it joins at its first one.
    """
    numbers = _numbers(topics.offsets)
    begun = {topic for (topic, _), span in topics.offsets.items() if span.end}
    empty = [
        f"{topic}/{number}"
        for topic in sorted(begun)
        for number in numbers[topic]
        if topics.offsets[topic, number].end == 0
    ]
    name, waiting = f"partitions {changefeed.name}", len(numbers) - len(begun)
    if begun and not empty:
        joining = f"; {waiting} without a record, until its first" if waiting else ""
        finding = f"records in all partitions of {counted(len(begun), 'topic')}{joining}"
        return Check.passed(name, finding)
    finding, fix = (
        f"no record ever in {listed(empty)}",
        "no cut is made before a watermark came from each; check whether TiCDC's partition-num "
        "is smaller than the number of partitions",
    )
    if not begun:
        finding, fix = (
            "no record in any partition",
            "start the changefeed in TiCDC, or wait for its first message (a watermark, within "
            "seconds); check with `cdc cli changefeed list`",
        )
    return Check.failed(name, finding, "a record in every partition", fix, vital=False)


def _check_retention(
    changefeed: Changefeed, administration: Administration, topics: _Topics
) -> Check:
    """Warn about topics that may lose records before they are landed."""
    name = f"retention {changefeed.name}"
    needed = "cleanup.policy=delete and a retention of a week or more"
    try:
        settings = administration.topic_settings(
            topics.there,
            ("cleanup.policy", "retention.ms", "retention.bytes", _UNCLEAN),
        )
    except TicdcError as error:
        # Reading settings needs another right than reading records.
        return Check.passed(name, f"the broker did not say: {error}")
    times = {topic: int(values["retention.ms"] or -1) for topic, values in settings.items()}

    def those(is_wrong: Callable[[Mapping[str, str]], bool]) -> list[str]:
        return [topic for topic, values in settings.items() if is_wrong(values)]

    if compacted := those(lambda values: "compact" in values["cleanup.policy"]):
        finding = f"cleanup.policy=compact of {listed(compacted)}, which removes changes"
        return Check.failed(name, finding, needed, _alter(compacted, "cleanup.policy=delete"))
    if short := [topic for topic, time in times.items() if 0 <= time < LEAST_RETENTION_MS]:
        least = min(times[topic] for topic in short)
        finding = f"a retention of {duration(least / 1000)} in {listed(short)}"
        fix = "an outage of syncs that is longer loses changes for good; "
        fix += _alter(short, f"retention.ms={LEAST_RETENTION_MS}")
    elif limited := those(lambda values: int(values["retention.bytes"] or -1) >= 0):
        finding = f"retention.bytes set for {listed(limited)}, so a burst shortens it"
        fix = _alter(limited, "retention.bytes=-1")
    elif unclean := those(lambda values: values[_UNCLEAN] == "true"):
        finding, needed = f"{_UNCLEAN}=true of {listed(unclean)}", f"{_UNCLEAN}=false"
        fix = "a replica without the newest records may become the leader, and landing does not "
        fix += f"notice others at offsets that it has; {_alter(unclean, f'{_UNCLEAN}=false')}"
    else:
        period = "for ever" if any(time < 0 for time in times.values()) else "a week or more"
        return Check.passed(name, f"records are kept {period}")
    return Check.failed(name, finding, needed, fix, vital=False)


def _alter(topics: Sequence[str], setting: str) -> str:
    return (
        "type `kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type topics "
        f"--entity-name {topics[0]} --add-config {setting}`"
    )


def _check_topic_records(
    changefeed: Changefeed, source: KafkaSource, topics: _Topics, timeout_seconds: float
) -> Check:
    ranges: dict[tuple[str, int], OffsetRange] = {}
    numbers = _numbers(place for place, span in topics.offsets.items() if span.earliest < span.end)
    for topic in islice(numbers, _TOPICS_LOOKED_AT):
        for number in numbers[topic][:_PARTITIONS_LOOKED_AT]:
            first = topics.offsets[topic, number].earliest
            ranges[topic, number] = OffsetRange(earliest=first, end=first + 1)
    try:
        records = list(consume(source, ranges, timeout_seconds=timeout_seconds))
    except SourceRefusedError as error:
        return Check.failed(
            f"format {changefeed.name}", error.reason, "the right to read the records", error.fix
        )
    except SourceUnavailableError:
        # Expired in between: landing will report it with its coordinates.
        records = []
    return _check_records(changefeed, records)


def _check_capture(
    changefeed: Changefeed, source: CaptureSource, lake: AnyPath | None
) -> list[Check]:
    name, needed = f"source {changefeed.name}", "a readable capture"
    try:
        with CaptureReader(source.path) as reader:
            records = list(islice(reader, _CAPTURE_RECORDS))
        size = source.path.stat().st_size
        landed = []
        if lake is not None:
            from ticdc_assets.log.sources import capture_ranges, ends_within_a_record

            landed = _check_landed(changefeed, lake, capture_ranges(source), {})
            if ends_within_a_record(source):
                finding = f"{source.path} ends in the middle of a record"
                fix = "copy it again, unless it is still written to: the rest is missing"
                end = f"end {changefeed.name}"
                landed.append(Check.failed(end, finding, "a whole capture", fix, vital=False))
    except TicdcError as error:
        fix = "put the file there, or correct source.capture in the configuration"
        return [Check.failed(name, str(error), needed, fix)]
    what = f"first record of topic {records[0].topic}" if records else "no record yet"
    finding = f"{source.path}, {counted(size, 'byte')}, {what}"
    return [Check.passed(name, finding), *landed, _check_records(changefeed, records)]


def _check_records(changefeed: Changefeed, records: Sequence[CaptureRecord]) -> Check:
    name = f"format {changefeed.name}"
    stated = Look(WireFormat(changefeed.wire_format), changefeed.compression)
    needed = f"records in {stated}"
    if not records:
        return Check.passed(name, "no record to check yet")
    by_topic: dict[str, list[Record]] = {}
    for item in records:
        by_topic.setdefault(item.topic, []).append(Record(key=item.key, value=item.value))
    for topic, some in by_topic.items():
        looks = looks_of(some)
        if stated in looks:
            continue
        fix = (
            "let TiCDC write one of the formats that are read (`protocol` of its sink: simple, "
            "open-protocol, canal-json or craft), into a new topic"
        )
        if looks:
            parts: list[str] = []
            if looks[0].wire_format is not stated.wire_format:
                parts.append(f"`format: {looks[0].wire_format.value}`")
            if looks[0].compression is not stated.compression:
                parts.append(f"`compression: {looks[0].compression.value}`")
            fix = f"write {' and '.join(parts)} in the configuration"
        like = looks[0] if looks else foreign_look(some) or "no format of TiCDC"
        return Check.failed(name, f"records of topic {topic} look like {like}", needed, fix)
    count = sum(map(len, by_topic.values()))
    return Check.passed(name, f"{counted(count, 'record')} checked, {stated}")


def _numbers(places: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(places):
        numbers.setdefault(topic, []).append(number)
    return numbers
