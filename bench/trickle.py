"""Small batches into large mirrors: what each costs, when it is seen, what readers pay later.

In: sizes of a mirror, and how many changes a batch has (70 % inserts of new keys, 20 % updates and
10 % deletes of any keys). Out: CPU seconds of a whole sync (land from a local broker, decode,
register, apply) and seconds until a reader of the newest cut has counted them, by the size of the
mirror; the same of the first batch of a process; CPU seconds of the installed command with a
batch, above those without; and what reading costs after many batches, against the same rows written
anew as large files.

Mirrors are filled by a process with Spark, which ends before anything is measured. The processes
that sync have a session that starts only if a sync needs it. The reader needs none: it counts the
rows whose last change is above the TSO of the cut before.

Not measured: the report to Dagster after a sync of a follow run (`freshness`), and its pause of up
to a second before it looks at the source (`sustained` has both).
"""

import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from bench.apart import apart
from bench.commands import configure, installed, run_counted
from bench.filling import TABLE, Filled, filled_feed, local_broker, rewrite
from bench.goals import Reached
from bench.measuring import Memory, MemoryWatch, Sample, cpu_seconds, measure_in_turn
from bench.pipeline import Feed
from bench.results import SLOWER, TRICKLE_PLOT, Part, Result, Series
from bench.shop import Shop
from bench.traffic import Traffic
from ticdc_assets.config import KafkaSource, Settings
from ticdc_assets.log.cuts import require_cut
from ticdc_assets.mirrors.versions import mirror_rows
from ticdc_assets.reading.embedded import query
from ticdc_assets.reading.mirrors import read_mirror
from ticdc_assets.repair.maintenance import maintain
from ticdc_assets.source.kafka.records import produce
from ticdc_assets.spark.session import LazySession, functions, get_spark
from ticdc_assets.wire import WireFormat
from ticdc_assets_tests.brokers import OwnBroker

entry = partial(Result, "Small batches into large mirrors")
PLOT = "A batch by the size of the mirror"
MILLION, TEN_MILLION = 1_000_000, 10_000_000

_WARM_UP = 3
_READ_BEFORE = 2
"""Readings that do not count, as multiples of those that do: Spark's JVM compiles meanwhile."""
_READINGS = 3
"""Readings for each repetition of a sync: they take less time, and vary more."""
_LEAST_SHARE = 0.6
"""Of a batch: inserts, less deletes of the same rows. As many rows a reader must find at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A lake with a filled mirror, which processes take over from each other.

    Attributes:
        folder: its folder.
        source: where changes are sent.
        traffic: the changes that go on from there.
    """

    folder: Path
    source: KafkaSource
    traffic: Traffic

    def opened(self, spark: LazySession) -> Filled:
        """Return it in this process."""
        feed = Feed.of(spark, self.folder, source=self.source)
        return Filled(feed=feed, traffic=self.traffic, source=self.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """Batches that one process synced, one after the other.

    Attributes:
        synced: cost of the syncs.
        seen: wall times until a reader saw them.
        memory: the most of the process meanwhile; no JVM of a process that started none.
        loaded: the lake afterwards.
    """

    synced: Sample
    seen: Sample
    memory: Memory
    loaded: Loaded


def measure_trickle(
    folder: Path,
    sizes: Sequence[int],
    *,
    changes: int,
    command_rows: int,
    batches: int,
    repetitions: int,
) -> Part:
    """Return what batches cost.

    Args:
        folder: a scratch folder.
        sizes: rows of the mirrors; the first is the floor, goals are of a million and ten million,
            or of the two largest.
        changes: changes of a batch.
        command_rows: rows of the mirror that the command syncs.
        batches: batches before the readers.
        repetitions: of each batch that is measured.
    """
    million, largest = (
        (MILLION, TEN_MILLION) if {MILLION, TEN_MILLION} <= {*sizes} else (sizes[-2], sizes[-1])
    )
    firsts: list[Batches] = []
    warm: dict[int, Batches] = {}
    with local_broker(folder / "broker") as broker:
        for size in sizes:
            loaded = apart(load_apart, folder / f"rows_{size}", broker.port, size).result()
            if size == million:
                for _ in range(repetitions):
                    firsts.append(apart(first_apart, loaded, changes).result())
                    loaded = firsts[-1].loaded
            warm[size] = apart(batches_apart, loaded, changes, repetitions).result()
            if size != million:
                shutil.rmtree(folder / f"rows_{size}")
        later = apart(batches_apart, warm[million].loaded, changes, batches).result()
        reads = apart(readers_apart, later.loaded, _READINGS * repetitions).result()
        shutil.rmtree(folder / f"rows_{million}")
        loaded = apart(load_apart, folder / "command", broker.port, command_rows).result()
        quiet, watermark, changed = apart(command_apart, loaded, changes, repetitions).result()
    return Part(
        results=[
            *_by_size(warm, changes, {million: _OF_MILLION, largest: _OF_TEN_MILLION}),
            entry(
                f"the first {changes:,} changes of a process into {million:,} rows",
                Sample.joined([item.synced for item in firsts]),
                goal="first-batch",
            ),
            entry(
                f"{batches} syncs in a row of {changes:,} changes, from {million:,} rows on",
                later.synced,
                base=warm[million].synced,
                compared=f"{SLOWER} the first ones",
            ),
            entry(
                f"`ticdc-assets sync` with nothing new, a mirror of {command_rows:,} rows", quiet
            ),
            entry(
                "the same with a watermark of each partition",
                watermark,
                base=quiet,
                compared=f"{SLOWER} that",
            ),
            entry(
                f"the same with {changes:,} changes", changed, base=quiet, compared=f"{SLOWER} that"
            ),
            *reads.before,
            *reads.maintained,
        ],
        reached=[
            Reached("own-process", changed.cpu_seconds - quiet.cpu_seconds),
            Reached(
                "read-after-trickle",
                max(
                    item.sample.median / item.base.median for item in reads.maintained if item.base
                ),
            ),
        ],
        series=_series(warm),
        facts=[
            "Of the first batch of a process counts what the sync takes, after a sync of ten "
            "changes of another lake, so imports do not count; the start of Spark, compiled loops "
            "and the first reading of the mirror's tables do. Its process had "
            f"{max(item.memory.jvm for item in firsts)} MB in a JVM at most, that of the warm "
            f"batches into {million:,} rows {warm[million].memory.jvm} MB.",
            f"Readers read the mirror of {million:,} rows after more than {batches} batches, "
            "before and after `maintain`. The other readings are of a copy of the lake in which "
            "Spark wrote the same rows again, in files of a million rows. Twice as many readings "
            f"before them do not count: Spark's JVM compiles meanwhile. {reads.files}",
        ],
    )


_OF_MILLION = ("trickle-million", "trickle-million-seen")
_OF_TEN_MILLION = ("trickle-ten-million", "trickle-ten-million-seen")


def _by_size(
    warm: Mapping[int, Batches], changes: int, goals: Mapping[int, tuple[str, str]]
) -> list[Result]:
    floor, *_ = warm
    results: list[Result] = []
    for size, found in warm.items():
        goal, goal_seen = goals.get(size, (None, None))
        results += [
            entry(
                f"a sync of {changes:,} changes into {size:,} rows, warm",
                found.synced,
                changes,
                "changes",
                base=None if size == floor else warm[floor].synced,
                compared=f"{SLOWER} that into {floor:,}",
                goal=goal,
            ),
            entry(
                f"the same into {size:,} rows, until a reader has counted them",
                found.seen,
                base=None if size == floor else warm[floor].seen,
                compared=f"{SLOWER} that into {floor:,}",
                goal=goal_seen,
            ),
        ]
    return results


def _series(warm: Mapping[int, Batches]) -> list[Series]:
    lines: dict[str, Callable[[Batches], float]] = {
        "until a reader has counted them": lambda item: item.seen.median,
        "CPU": lambda item: item.synced.cpu_seconds,
    }
    return [
        Series(
            plot=PLOT,
            x="rows in the mirror",
            y="seconds",
            name=name,
            points=tuple((size, value(found)) for size, found in warm.items()),
            picture=TRICKLE_PLOT,
        )
        for name, value in lines.items()
    ]


# In processes of their own ----------------------------------------------------------------------


def load_apart(folder: Path, port: int, rows: int, tables: int = 1) -> Loaded:
    """Fill mirrors with so many rows each.

    Args:
        folder: of the lake; its name becomes the topic's.
        port: of the broker, which another process started.
        rows: rows of each mirror.
        tables: how many mirrors.
    """
    broker = OwnBroker(folder.parent)
    broker.port = port
    spark = get_spark({"spark.master": "local[2]"})
    try:
        filled = filled_feed(spark, folder, broker, rows, tables=tables, random_deletes=True)
    finally:
        spark.stop()
    return Loaded(folder=folder, source=filled.source, traffic=filled.traffic)


def first_apart(loaded: Loaded, changes: int) -> Batches:
    """Sync one batch in a process that synced nothing but ten changes of another lake."""
    spark = LazySession()
    other = loaded.folder / "other"
    feed = Feed.of(spark, other)
    Shop.open(feed.capture, tables=1, rows=10)
    feed.sync()
    shutil.rmtree(other)
    return _synced(loaded, spark, changes, repetitions=1, warm_up=0)


def batches_apart(loaded: Loaded, changes: int, repetitions: int) -> Batches:
    """Sync batches, after some that do not count."""
    return _synced(loaded, LazySession(), changes, repetitions=repetitions, warm_up=_WARM_UP)


def _synced(
    loaded: Loaded, spark: LazySession, changes: int, *, repetitions: int, warm_up: int
) -> Batches:
    """Sync batches one after the other.

    Raises:
        ValueError: a reader or the mirror does not have the rows that it has to have.
    """
    filled = loaded.opened(spark)
    feed = filled.feed
    seconds: list[float] = []
    cpu: list[float] = []
    seen: list[float] = []
    with MemoryWatch() as watch:
        for number in range(warm_up + repetitions):
            before = require_cut(feed.paths).tso
            filled.send(changes)
            cpu_began, began = cpu_seconds(), time.perf_counter()
            feed.sync()
            synced, used = time.perf_counter() - began, cpu_seconds() - cpu_began
            (mirror,) = require_cut(feed.paths).mirrors
            rows = mirror_rows(feed.paths, mirror, above=before)
            found = 0 if rows is None else rows.count
            if found < _LEAST_SHARE * changes:
                raise ValueError(f"a reader saw {found} rows of {changes} changes")
            if number >= warm_up:
                seen.append(time.perf_counter() - began)
                seconds.append(synced)
                cpu.append(used)
    (wanted,) = filled.traffic.live.values()
    (mirror,) = require_cut(feed.paths).mirrors
    if mirror.rows != wanted:
        raise ValueError(f"the mirror has {mirror.rows} rows and not {wanted}")
    used = statistics.median(cpu)
    return Batches(
        synced=Sample(seconds=tuple(seconds), cpu_seconds=used),
        seen=Sample(seconds=tuple(seen), cpu_seconds=used),
        memory=watch.peak,
        loaded=replace(loaded, traffic=filled.traffic),
    )


def command_apart(loaded: Loaded, changes: int, repetitions: int) -> tuple[Sample, ...]:
    """Return what the installed command costs, in turns.

    Returns:
        The costs with nothing new (which needs no Dagster), with watermarks only, and with a batch.

    Raises:
        ValueError: the mirror does not have the rows that it has to have.
    """
    filled, folder = loaded.opened(LazySession()), loaded.folder
    name = filled.feed.changefeed.name
    configure(folder, name, WireFormat.SIMPLE_JSON, loaded.source)
    costs: tuple[list[Sample], ...] = ([], [], [])
    sync = partial(run_counted, installed("sync", name), folder)
    for _ in range(1 + repetitions):
        quiet, watermark, changed = costs
        filled.send(changes)
        changed.append(sync())
        quiet.append(sync())
        produce(loaded.source, loaded.traffic.watermarks())
        watermark.append(sync())
    (mirror,) = require_cut(filled.feed.paths).mirrors
    (wanted,) = filled.traffic.live.values()
    if mirror.rows != wanted:
        raise ValueError(f"the mirror has {mirror.rows} rows and not {wanted}")
    # The first of either compiled and cached what is kept on the machine.
    return tuple(Sample.joined(samples[1:]) for samples in costs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """What reading a mirror costs after many batches, beside the same rows written anew.

    Attributes:
        before: one for each way to read, with the other version as its base.
        maintained: the same after `maintain`.
        files: how many files each version has, in a sentence.
    """

    before: Sequence[Result]
    maintained: Sequence[Result]
    files: str


def readers_apart(loaded: Loaded, repetitions: int) -> Reads:
    """Read the mirror, and the same rows written anew, in turns.

    Raises:
        ValueError: the two do not have the same rows.
    """
    spark = get_spark({"spark.master": "local[2]"})
    anew = loaded.folder / "anew"
    try:
        after = Feed.of(spark, loaded.folder, source=loaded.source)
        fresh = Feed.of(spark, anew, source=loaded.source)
        shutil.copytree(str(after.paths.root), str(fresh.paths.root))
        rewrite(fresh)

        def read(when: str) -> list[Result]:
            ways = zip(_ways(after, loaded.traffic), _ways(fresh, loaded.traffic), strict=True)
            samples = {what: _in_turns(own, other, repetitions) for (what, own), (_, other) in ways}
            return [
                entry(
                    f"{what}, {when}",
                    sample,
                    base=base,
                    compared=f"{SLOWER} the same rows written again",
                )
                for what, (sample, base) in samples.items()
            ]

        def files(feed: Feed) -> int:
            return len(feed.read(TABLE).inputFiles())

        many, before = files(after), read("after many batches")
        maintain(after.lake)
        maintained = read("after many batches and `maintain`")
        sentence = (
            f"The mirror had {many} files, {files(after)} after `maintain`, the other "
            f"{files(fresh)}."
        )
    finally:
        spark.stop()
    shutil.rmtree(anew)
    return Reads(before=before, maintained=maintained, files=sentence)


def _ways(feed: Feed, traffic: Traffic) -> list[tuple[str, Callable[[], int]]]:
    """Return each way to read, and what it gives: a number that equal mirrors have in common."""
    key = traffic.newest()
    settings = Settings(changefeeds=(feed.changefeed,), lake=feed.paths.root, path=Path("none"))
    name = feed.changefeed.name
    database, table = TABLE
    F = functions(feed.spark)

    def whole() -> int:
        found: pa.Table = read_mirror(None, name, *TABLE, settings=settings, engine="arrow")
        return found.num_rows

    def one() -> int:
        text = f"SELECT * FROM {database}.{table} WHERE id = {key}"
        with query(feed.lake, text) as found:
            return len(list(found.rows))

    def whole_by_spark() -> int:
        rows = feed.read(TABLE)
        # A hash takes no maps.
        values = [
            F.map_keys(name) if kind.startswith("map") else F.col(name)
            for name, kind in rows.dtypes
        ]
        (row,) = rows.agg(F.sum(F.xxhash64(*values).cast("decimal(38,0)"))).collect()
        return int(row[0])

    def one_by_spark() -> int:
        return feed.read(TABLE).where(F.col("id") == key).toArrow().num_rows

    return [
        ("the whole mirror, read by Arrow (`read_mirror`)", whole),
        ("one key, by `sql` (DuckDB)", one),
        ("the whole mirror, by Spark", whole_by_spark),
        ("one key, by Spark", one_by_spark),
    ]


def _in_turns(
    read: Callable[[], int], read_anew: Callable[[], int], repetitions: int
) -> tuple[Sample, Sample]:
    """Measure a way to read on both mirrors.

    Raises:
        ValueError: it does not find the same on both.
    """
    found: set[int] = set()
    first, second = measure_in_turn(
        [lambda: found.add(read()), lambda: found.add(read_anew())],
        repetitions=repetitions,
        warm_up=_READ_BEFORE * repetitions,
    )
    if len(found) != 1:
        raise ValueError(f"readings of the same rows differ: {found}")
    return first, second
