"""Random lives of a lake: whatever is done to it, in any order, its mirrors are the truth at last.

In: a number. Out: a life of data in any format, in one topic or a topic for each table; DDL, new
partitions, restarts of the changefeed, records that come late or that no decoder understands yet,
exports, maintenance, re-drives, rewinds, days decoded again and rebuilds; with and without
a lease, with small mirrors and with large ones. Many of them are killed once, and so are syncs. Its
DDL is a storm: tables and statements of every kind, keys that change. At its end all records have
come and can be decoded, and what came before the changefeed is in an export. Then each mirror has
the rows of its table and its columns in their order, or says that it may lack what came too late; a
fold from the change log changes nothing; a rebuild is equal; each moment that is kept can be read;
and a history has the rows of its mirror and of each such moment, and the versions of the reference
where all changes are kept.

Not handled: two equal rows of one transaction in a table without a key, of which one comes late or
is refused. Nothing tells it from a replay (decision 0012), so such rows are sent as they are.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ticdc_assets import wire
from ticdc_assets.base.errors import NotFoundError
from ticdc_assets.config import Compute, Readers, Retention, TableChoice, TableFilter, Writer
from ticdc_assets.delta.lake import Lake
from ticdc_assets.delta.lock import writer_lock
from ticdc_assets.delta.opening import open_table
from ticdc_assets.demo.simulator.changefeed import Dispatcher, FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.export import export_upstream
from ticdc_assets.demo.simulator.stored_table import TableName
from ticdc_assets.log import decoding, landing, seed_decoding
from ticdc_assets.log.cuts import newest_cut, read_cuts
from ticdc_assets.log.positions import read_position
from ticdc_assets.log.quarantine import read_quarantine
from ticdc_assets.mirrors.truncation_points import has_caveat_below, read_truncation_point
from ticdc_assets.mirrors.versions import rows_as_stored
from ticdc_assets.model.events import RowChange
from ticdc_assets.reading.as_of import AsOf
from ticdc_assets.repair import (
    maintenance,
    making,
    rebuilding,
    redecoding,
    redriving,
    retention,
    rewinding,
    seeding,
)
from ticdc_assets.repair.redecoding import first_whole_day, redecode
from ticdc_assets.repair.redriving import redrive
from ticdc_assets.repair.retention import Retaining, retain
from ticdc_assets.repair.rewinding import rewind
from ticdc_assets.repair.seeding import seed as seed_from
from ticdc_assets.repair.verifying import Finding, verify
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.spark.compute import computing
from ticdc_assets.wire import WireFormat
from ticdc_assets.wire.record import Record
from ticdc_assets_tests.demo.simulator.builders import churn, fill
from ticdc_assets_tests.demo.simulator.odd_upstream import OddUpstream
from ticdc_assets_tests.demo.simulator.storm import some_statement
from ticdc_assets_tests.demo.simulator.storm_state import StormState
from ticdc_assets_tests.demo.simulator.variants import variant_of
from ticdc_assets_tests.golden import Rows, events_of
from ticdc_assets_tests.lake.feeds import (
    Feed,
    LandingClock,
    grow_cuts_older,
    small_up_to,
    treat_as_large,
    truth_rows,
)
from ticdc_assets_tests.lake.killing import Killed, before
from ticdc_assets_tests.lake.test_killed_runs import DEATHS as DEATHS_OF_SYNCS
from ticdc_assets_tests.lake.test_killed_runs import OF_LARGE
from ticdc_assets_tests.mirrors.test_history import Version, versions_in, wanted
from ticdc_assets_tests.reference.history_fold import fold_history

pytestmark = pytest.mark.spark

DAY = timedelta(days=1)
KEYED, BAG, OTHER = ("d", "keyed"), ("d", "bag"), ("d", "other")
COLUMNS = (column("id", "int", nullable=False), column("v", "varchar(20)"))

DEATHS = {
    "maintain": (
        (retention._Retention, "truncate_raw_messages"),
        (retention._Retention, "remove_exported"),
        (retention._Retention, "remove_cuts"),
    ),
    "compact": (
        (maintenance, "optimize_mirrors"),
        (maintenance, "publish"),
        (maintenance, "vacuum"),
        (maintenance, "_remove_generations"),
    ),
    "redrive": (
        (redriving, "append_changes"),
        (redriving, "add_to_statistics"),
        (redriving, "close_rows"),
    ),
    "rewind": ((rewinding, "publish"), (rewinding, "redecode_ahead")),
    "redecode": (
        (redecoding, "append_files"),
        (redecoding._Day, "_replace"),
        (redecoding, "replace_day"),
        (redecoding, "register_new"),
        (redecoding, "apply_changes"),
        (redecoding, "close_rows"),
    ),
    "rebuild": (
        (making, "register_new"),
        (making, "apply_changes"),
        (rebuilding, "compared"),
        (rebuilding, "publish"),
        (rebuilding, "remove_tree"),
    ),
    "seed": (
        (seeding, "land_seed"),
        (seed_decoding, "append_files"),
        (seed_decoding, "add_to_statistics"),
    ),
}
"""Where an upkeep dies, by its name. One that does not come there lives."""

BY_DAY = (34, 36)
SEEDS = [*BY_DAY, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(100, 160))]


@dataclass
class Decoder:
    """Decodes records up to a generation: those of a later one have a mark that it refuses."""

    generation: int = 0
    decode: Callable[..., Any] = decoding.decode_pieces

    def marked(self, record: CaptureRecord) -> CaptureRecord:
        assert record.value is not None
        return replace(record, value=bytes((*b"!", self.generation + 1)) + record.value)

    def __call__(self, wire_format: object, records: pa.RecordBatch, **options: Any) -> Any:
        number = records.schema.get_field_index("value")
        values = [self._value(value) for value in records.column(number).to_pylist()]
        told = records.schema.field(number)
        return self.decode(
            wire_format, records.set_column(number, told, pa.array(values, told.type)), **options
        )

    def _value(self, value: bytes | None) -> bytes | None:
        if value is None or value[:1] != b"!" or value[1] > self.generation:
            return value
        return value[2:]


class Storm(StormState):
    """Statements of every kind, and rows for any table, with dice of their own."""

    def has_room(self) -> bool:
        """Return whether one more table may come; each costs a life time."""
        return len(self.upstream.tables) < 6

    def share_ts(self) -> None:
        """Let the next DDL have the commit ts of the rows before it, if no other moment has it."""
        history, clock = self.upstream.history, self.upstream.clock
        if history and history[-1].commit_ts == clock.last:
            super().share_ts()


FORMATS = (WireFormat.SIMPLE_JSON, *WireFormat)
"""What a changefeed may write; twice as often the format that tells most."""


def is_row(wire_format: WireFormat, record: CaptureRecord) -> bool:
    found = wire.decode(wire_format, Record(key=record.key, value=record.value))
    return any(isinstance(event, RowChange) for event in found)


@dataclass
class Life:
    """A lake and what became of it.

    Attributes:
        whole_since: the TSO from which on each table is known whole: None if none is known, 0 if
            the changefeed has all there was.
        storm: statements of every kind, with dice of its own.
        has_large: whether mirrors may be large ones.
        exported: the folder of an export that a killed run was seeding.
        sent: the records in the capture, each as it is without a mark.
        has_seeds: whether rows came from exports.
    """

    feed: Feed
    folder: Path
    upstream: OddUpstream
    changefeed: StandInChangefeed
    decoder: Decoder
    rng: random.Random
    patch: pytest.MonkeyPatch
    whole_since: int | None
    storm: Storm
    has_large: bool = False
    exported: str | None = None
    has_seeds: bool = False
    offsets: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])
    late: list[CaptureRecord] = field(default_factory=list[CaptureRecord])
    sent: list[CaptureRecord] = field(default_factory=list[CaptureRecord])
    moments: list[int] = field(default_factory=list[int])
    told: list[object] = field(default_factory=list[object])

    @classmethod
    def begun(
        cls, seed: int, spark: SparkSession, folder: Path, patch: pytest.MonkeyPatch
    ) -> "Life":
        rng, decoder, upstream = random.Random(seed), Decoder(), OddUpstream()
        patch.setattr(decoding, "decode_pieces", decoder)
        upstream.create_database("d")
        for name in (KEYED, BAG, OTHER):
            upstream.create_table(name, COLUMNS, primary_key=() if name == BAG else ("id",))
            fill(upstream, name, rows=4, seed=seed)
        first_ts = upstream.clock.next() if rng.random() < 0.3 else 0
        wire_format = rng.choice(FORMATS)
        options = FeedOptions(
            dispatcher=rng.choice(tuple(Dispatcher)),
            rows_per_flush=rng.choice((3, 40)),
            ddl_watermarks=rng.random() < 0.5,
            force_replicate=True,
            bootstraps=rng.random() < 0.7 or first_ts > 0,
            first_ts=first_ts,
        )
        variant = variant_of(wire_format, seed, keyless=True)
        messages = replace(variant.messages, delete_only_handle_key=rng.random() < 0.3)
        variant = replace(variant, messages=messages)
        changefeed = variant.changefeed(
            upstream,
            options,
            topic=rng.choice(("d", "d_{table}")),
            partitions=rng.choice((1, 2)),
            seed=seed,
        )
        ages = Retention(
            raw_messages=rng.choice((None, DAY, 2 * DAY)),
            change_log=rng.choice((None, DAY, 2 * DAY)),
            cuts=9 * DAY,
        )
        feed = Feed.of(spark, folder, wire_format=wire_format)
        feed = feed.having(
            start_ts=first_ts or None,
            retention=ages,
            history=TableChoice(("d.*",) if rng.random() < 0.5 else ()),
            writer=Writer(lease=timedelta(minutes=10) if rng.random() < 0.3 else None),
        )
        whole_since = None if first_ts else 0
        # Records land on days that are over, each maintenance begins a day.
        began = datetime.now(UTC) - 50 * DAY
        patch.setattr(landing, "datetime", LandingClock)
        patch.setattr(LandingClock, "at", began)
        storm = Storm(upstream, random.Random(f"storm {seed}"), keyless=True)
        life = cls(feed, folder, upstream, changefeed, decoder, rng, patch, whole_since, storm)
        life.told.append((variant, changefeed.topic, options))
        life.grow()
        patch.setattr(maintenance, "FEW_FILES", 2)
        upstream.create_database("e")
        storm.create_table()
        return life

    def grow(self) -> None:
        """Let mirrors and histories, or those of more than a few rows, be large ones."""
        rows = self.rng.choice((None, None, 0, 5))
        if rows is None:
            return
        self.has_large = True
        small_up_to(self.patch, rows)
        if self.rng.random() < 0.3:
            treat_as_large(self.patch)
        if self.rng.random() < 0.3:
            readers = Readers(portable=TableChoice(("d.keyed", "d.t*")))
            changefeed = replace(self.feed.changefeed, readers=readers)
            self.feed = replace(self.feed, changefeed=changefeed)
        self.told.append(("large from", rows, self.feed.changefeed.readers))

    # Acts -------------------------------------------------------------------------------------

    def data(self) -> None:
        """Change rows upstream; some records come later, some cannot be decoded yet."""
        if self.plain_tables:
            seed = self.rng.randrange(1 << 30)
            churn(self.upstream, steps=6, seed=seed, tables=self.plain_tables)
        self.storm.refill()
        for _ in range(3):
            self.storm.write()
        sent: list[CaptureRecord] = []
        records = list(self.changefeed.tick())
        alike = Counter((record.key, record.value) for record in records)
        for record in records:
            is_sole = alike[record.key, record.value] == 1
            is_row_alone = is_sole and is_row(self.feed.changefeed.wire_format, record)
            chance = self.rng.random() if is_row_alone else 1
            if chance < 0.06:
                self.late.append(record)
            else:
                sent.append(self.decoder.marked(record) if chance < 0.1 else record)
        self.moments.append(self.changefeed.watermark_ts)
        self.send(sent)

    @property
    def plain_tables(self) -> tuple[TableName, ...]:
        """The tables that can have any rows: not divided, without more keys, of plain types."""
        found = {name: self.upstream.stored(name) for name in self.upstream.tables}
        return tuple(
            name
            for name, table in found.items()
            if table.partitioning is None
            and not table.secondary
            and all(item.mysql_type in ("int", "varchar") for item in table.columns)
        )

    def ddl(self) -> None:
        self.storm.write()
        self.told.append(some_statement(self.storm))
        self.data()

    def come_late(self) -> None:
        """Send what was held back."""
        self.send(self.late)
        self.late.clear()

    def send(self, records: Iterable[CaptureRecord]) -> None:
        """Send records in this order, whenever they were made; maybe a part of them is landed."""
        for record in records:
            place = (record.topic, record.partition)
            placed = replace(record, offset=self.offsets[place])
            self.feed.write([placed])
            self.sent.append(replace(placed, value=unmarked_value(placed.value)))
            self.offsets[place] += 1
        self.sync(self.rng.choice((None, None, None, 5)))

    def restart(self) -> None:
        """Let the changefeed begin again at an older checkpoint, or go on in more partitions."""
        if self.rng.random() < 0.6:
            self.changefeed.restart(self.rng.choice(self.moments[-3:]))
        else:
            self.changefeed.partitions += 1
        self.data()

    def sync(self, max_records: int | None = None) -> None:
        """Sync, maybe all of it on Spark; a sync that dies is done again later."""
        if self.rng.random() < 0.85:
            on_spark = self.storm.rng.random() < 0.02
            with computing(Compute.SPARK) if on_spark else nullcontext():
                self.feed.sync(max_records=max_records)
            return
        deaths = [name for name in DEATHS_OF_SYNCS if self.has_large or name not in OF_LARGE]
        death = self.rng.choice(deaths)
        with self.patch.context() as patch:
            DEATHS_OF_SYNCS[death](patch)
            try:
                self.feed.sync(max_records=max_records)
            except Killed:
                self.told.append(f"a sync killed: {death}")

    def seed(self) -> None:
        """Seed some tables from an export of this moment, or of that of a run that was killed."""
        again, self.exported = self.exported, None
        self.has_seeds = True
        if again is not None and self.rng.random() < 0.5:
            seed_from(self.feed.lake, again)
        elif self.upstream.tables:
            known = self.upstream.tables
            some = self.rng.sample(known, self.rng.randint(1, len(known)))
            self.seed_tables(some)
        self.sync()

    def seed_tables(self, names: Iterable[TableName]) -> None:
        """Export all tables now, and seed these."""
        self.has_seeds = True
        folder = self.folder / f"export{len(self.told)}"
        kind = self.rng.choice(("csv", "sql"))
        tso, self.exported = export_upstream(self.upstream, folder, file_type=kind), str(folder)
        found = seed_from(self.feed.lake, self.exported, tables=tuple(names))
        self.exported = None
        self.told.append([(item.table, item.rows) for item in found.tables])
        seeded = {(item.database, item.table) for item in found.tables}
        if self.whole_since is None and seeded == set(self.upstream.tables):
            self.whole_since = tso
            self.upstream.forget()

    def choose(self) -> None:
        """Keep histories of all tables or of none, or leave a table out for a while."""
        changefeed = self.feed.changefeed
        chance = self.storm.rng.random()
        if chance < 0.3:
            deleted = TableChoice(() if changefeed.soft_delete else ("*.*",))
            changefeed = replace(changefeed, soft_delete=deleted)
        elif chance < 0.6:
            portable = TableChoice(() if changefeed.readers.portable else ("*.*",))
            changefeed = replace(changefeed, readers=Readers(portable=portable))
        elif self.rng.random() < 0.5:
            history = TableChoice(() if changefeed.history else ("d.*",))
            changefeed = replace(changefeed, history=history)
        else:
            left_out = () if changefeed.tables.exclude else ("d.other",)
            tables = TableFilter(exclude=TableChoice(left_out))
            changefeed = replace(changefeed, tables=tables)
        self.feed = replace(self.feed, changefeed=changefeed)
        self.sync()

    def rebuild(self) -> None:
        """Make every table again from what landed, or from the base of what was truncated."""
        self.sync()
        if newest_cut(self.feed.paths) is None:
            return  # no watermark has come yet
        before, marked = self.feed.rows(), self.marked()
        # The change log, or a history, may go back further than what landed. Deletes whose rows are
        # in quarantine may take others.
        rebuilt = rebuilding.rebuild(self.feed.lake, accept_losses=True)
        lost = ("change_log: the changes up to", "the versions in its history", "it has no key")
        assert [item for item in rebuilt.losses if not any(text in item for text in lost)] == []
        found = rebuilt.verification
        assert found is None or found.equal, rebuilt.lines()
        unproven = {
            (item.database, item.table)
            for item in (found.mirrors if found else ())
            if item.finding is Finding.NOT_PROVEN
        }
        assert unmarked(self.feed.rows(), unproven) == unmarked(before, unproven)
        self.sync()
        assert self.marked() <= marked

    def maintain(self) -> None:
        """Truncate a day later: that nothing comes late any more is the operator's promise."""
        self.tidy(retain)

    def compact(self) -> None:
        """Truncate a day later, write tables in fewer files, and remove files."""
        self.tidy(lambda lake: maintenance.maintain(lake).retaining)

    def tidy(self, run: Callable[[Lake], Retaining]) -> None:
        """Let everything come that is late, and remove what is old a day later."""
        if self.late:
            self.come_late()
        while read_position(self.feed.paths).next_offsets != self.offsets:
            self.sync()
        if read_cuts(self.feed.paths):
            grow_cuts_older(self.feed.paths, 24)
        done = run(self.feed.lake)
        self.told.append((done.notes, [item.clause for item in done.truncation_point.kept]))
        LandingClock.at += DAY

    def redrive(self) -> None:
        """Re-drive with a newer program."""
        self.decoder.generation += 1
        found = redrive(self.feed.lake)
        self.told.append(found.decoded)
        self.feed.sync(refold=found.refold)

    def rewind(self) -> None:
        cuts = read_cuts(self.feed.paths)
        number = self.rng.choice(cuts[-3:]).number if cuts else 1
        try:
            rewind(self.feed.lake, by="test", number=number)
        except NotFoundError as error:
            self.told.append(str(error))
        if self.rng.random() < 0.7:
            self.sync()

    def redecode(self) -> None:
        """Decode a day's records again with a newer program, if none of them is gone."""
        days = landing.landed_days(self.feed.paths)
        if days and first_whole_day(self.feed.paths).year == 1:
            self.decoder.generation += 1
            day = self.rng.choice(days)
            redecode(self.feed.lake, [day])

    def step(self) -> None:
        """Do one thing; an upkeep that dies is done again, maybe behind a sync."""
        acts = (
            *((self.data, 8), (self.come_late, 3), (self.ddl, 7), (self.maintain, 6)),
            *((self.redrive, 3), (self.rewind, 2), (self.redecode, 2), (self.seed, 3)),
            *((self.choose, 2), (self.rebuild, 2), (self.restart, 2), (self.compact, 2)),
        )
        (act,) = self.rng.choices([act for act, _ in acts], [weight for _, weight in acts])
        self.told.append(act.__name__)
        deaths = DEATHS.get(act.__name__)
        if deaths is not None and self.rng.random() < 0.5:
            death = self.rng.choice(deaths)
            with self.patch.context() as patch:
                before(*death)(patch)
                try:
                    self.alone(act)
                except Killed:
                    self.told.append(f"killed before {death[1]}")
            if self.rng.random() < 0.5:
                self.alone(self.sync)
        self.alone(act)

    def alone(self, act: Callable[[], object]) -> None:
        """Do something as the one writer."""
        with writer_lock(self.feed.paths, self.feed.changefeed.writer):
            act()

    def live(self) -> None:
        """Live, until all records have come and can be decoded."""
        self.alone(self.data)
        for _ in range(self.rng.randint(5, 10)):
            self.step()
        self.alone(self.end)

    def end(self) -> None:
        """Let all that there is be in the lake."""
        everything = replace(self.feed.changefeed, tables=TableFilter())
        self.feed = replace(self.feed, changefeed=everything)
        if self.whole_since is None and self.upstream.tables:
            self.seed_tables(self.upstream.tables)
        self.come_late()
        self.redrive()
        self.send(self.changefeed.tick())
        self.feed.sync()

    # What is found ----------------------------------------------------------------------------

    def check(self) -> None:
        feed = self.feed
        truth = truth_rows(self.changefeed.truth())
        rows = feed.rows()
        marked = self.marked()
        assert unmarked(rows, marked) == unmarked(truth, marked)
        assert feed.cut.held == ()
        assert read_quarantine(feed.paths) == []
        found = verify(feed.lake)
        unsound = [item for item in found.mirrors if not item.is_sound]
        assert [item for item in unsound if (item.database, item.table) not in marked] == []
        assert marked or found.differences == ()
        assert self.orders() == {
            name: self.upstream.stored(name).order for name in self.upstream.tables
        }
        feed.sync(refold=set(rows))
        assert feed.rows() == rows
        self.check_histories(rows, marked)
        oldest = read_truncation_point(feed.paths).tso
        oldest = max(oldest, self.whole_since or 0)
        kept = [tso for tso in self.moments if tso >= oldest]
        for tso in self.rng.sample(kept, min(2, len(kept))):
            tables = feed.tables_as_of(tso)
            truth = truth_rows(self.changefeed.truth(tso))
            marked = marked_tables((item.database, item.table, item.warnings) for item in tables)
            assert unmarked(feed.rows_of(tables), marked) == unmarked(truth, marked), tso
            self.check_histories_at(tso, truth, marked)

    def marked(self) -> set[TableName]:
        return marked_tables(
            (item.database, item.table, item.caveats) for item in self.feed.cut.mirrors
        )

    def versions(self) -> dict[str, list[Version]]:
        """Return the versions in each history, by the id of its mirror."""
        return {
            mirror.mirror_id: versions_in(
                rows_as_stored(*mirror.history_at(self.feed.paths)).read(),
                mirror,
                self.feed.changefeed.timezone,
            )
            for mirror in self.feed.cut.mirrors
            if mirror.history_version is not None
        }

    def check_histories(self, rows: Rows, marked: set[TableName]) -> None:
        """Assert that histories have the rows of mirrors, and every version if all is kept."""
        feed, histories = self.feed, self.versions()
        mirrors = [item for item in feed.cut.mirrors if item.mirror_id in histories]
        for mirror in mirrors:
            name, found = (mirror.database, mirror.table), histories[mirror.mirror_id]
            current = Counter(item.row for item in found if item.valid_to is None)
            assert current == rows.get(name, Counter()), name
        if self.has_seeds or self.whole_since != 0 or read_truncation_point(feed.paths).tso:
            return
        if "restart" in self.told:
            return  # the reference takes replays in a table without a key for more rows
        events = events_of(self.sent, feed.changefeed.wire_format)
        reference = fold_history(events, feed.cut.tso, feed.changefeed.timezone)
        for mirror in mirrors:
            name, found = (mirror.database, mirror.table), histories[mirror.mirror_id]
            if name not in marked:
                assert Counter(found) == Counter(wanted(reference[name], mirror)), name

    def check_histories_at(self, tso: int, truth: Rows, marked: set[TableName]) -> None:
        """Assert that histories have as many rows of a moment as there were."""
        feed, histories = self.feed, self.versions()
        point = read_truncation_point(feed.paths)
        since = {
            item.mirror_id: point.tso_of(item.mirror_id)
            if item.history_since is None
            else item.history_since
            for item in feed.cut.mirrors
        }
        for plan in AsOf(feed.lake, tso).plan.mirrors:
            found = histories.get(plan.mirror_id)
            if found is None or plan.name in marked or tso < since[plan.mirror_id]:
                continue
            count = sum(item.is_valid_at(tso) for item in found)
            assert count == truth.get(plan.name, Counter()).total(), (plan.name, tso)

    def orders(self) -> dict[TableName, tuple[str, ...]]:
        """Return the columns of each mirror's table, in the order of the mirror."""
        found: dict[TableName, tuple[str, ...]] = {}
        for mirror in self.feed.cut.mirrors:
            name, table = (mirror.database, mirror.table), open_table(mirror.path(self.feed.paths))
            assert table is not None
            names = [item.name for item in table.schema]
            found[name] = tuple(item for item in names if not item.startswith("_"))
        return found


def marked_tables(tables: Iterable[tuple[str, str, Iterable[str]]]) -> set[TableName]:
    """Return the tables that say that they may lack what came too late."""
    return {(database, table) for database, table, caveats in tables if has_caveat_below(caveats)}


def unmarked_value(value: bytes | None) -> bytes | None:
    """Return the value of a record without the mark of `Decoder.marked`."""
    return value[2:] if value is not None and value[:1] == b"!" else value


def unmarked(rows: Rows, marked: set[TableName]) -> Rows:
    return {name: found for name, found in rows.items() if name not in marked}


@pytest.mark.parametrize("seed", SEEDS)
def test_any_life_ends_with_the_truth(
    seed: int, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life.begun(seed, spark, tmp_path, monkeypatch)
    try:
        life.live()
        life.check()
    except Exception as error:
        raise AssertionError(f"a life of {life.told}") from error
