"""Seeding from exports: mirrors equal the truth, whatever the changefeed begins with."""

import gzip
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from ticdc_assets.base.errors import ConfigError, LakeDamagedError, LossError, NotFoundError
from ticdc_assets.base.progress import listened
from ticdc_assets.config import Retention, TableChoice
from ticdc_assets.delta.control import commit_metadata, read_table
from ticdc_assets.demo.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.export import export_upstream
from ticdc_assets.demo.simulator.shop import ShopWorkload
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.log import seed_decoding, seed_landing
from ticdc_assets.log.change_statistics import read_statistics
from ticdc_assets.log.cuts import read_cuts, read_heads
from ticdc_assets.log.landing import landed_days
from ticdc_assets.log.quarantine import read_quarantine
from ticdc_assets.log.schema_tables import register_new
from ticdc_assets.mirrors.truncation_points import (
    read_raw_truncation_point,
    read_truncation_point,
)
from ticdc_assets.model.tso import from_datetime
from ticdc_assets.reading.as_of import AsOf
from ticdc_assets.reading.embedded import deleted_lines
from ticdc_assets.repair import redriving, retention, seeding
from ticdc_assets.repair.lacking_tables import BaseCuts
from ticdc_assets.repair.making import Making, place_apart
from ticdc_assets.repair.redecoding import redecode
from ticdc_assets.repair.redriving import redrive
from ticdc_assets.repair.retention import Retaining, retain
from ticdc_assets.repair.rewinding import rewind
from ticdc_assets.repair.seeding import Seeding, seed
from ticdc_assets.repair.verifying import verify
from ticdc_assets.source.exports.images import ImageMaker
from ticdc_assets.spark.executing import OnSpark
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.wire import WireFormat
from ticdc_assets_tests.commands import Commands
from ticdc_assets_tests.demo.simulator.builders import churn, fill
from ticdc_assets_tests.lake.feeds import Feed, LandingClock, truth_rows
from ticdc_assets_tests.lake.killing import before, killed

TIMEZONE = "Asia/Tokyo"

pytestmark = pytest.mark.spark


BEGINNINGS = ("from the export on", "before the export")
BY_DAY = {
    WireFormat.SIMPLE_JSON: "from the export on",
    WireFormat.CANAL_JSON: "before the export",
}
"""By day a format that tells schemas and one that does not, each with one of the beginnings."""


@pytest.mark.parametrize(
    ("wire_format", "begin"),
    [
        pytest.param(
            wire_format,
            begin,
            id=f"{wire_format}-{begin}",
            marks=() if BY_DAY.get(wire_format) == begin else pytest.mark.slow,
        )
        for wire_format in WireFormat
        for begin in BEGINNINGS
    ],
)
def test_a_shop_seeded_in_its_middle(
    spark: SparkSession, tmp_path: Path, wire_format: WireFormat, begin: str
) -> None:
    upstream = Upstream(timezone=TIMEZONE)
    workload = ShopWorkload(upstream, 3)
    cuts: list[int] = []
    at = 0
    for number in range(4):
        for _ in workload.steps(25):
            pass
        cuts.append(upstream.clock.next())
        if number == 1:
            file_type = "csv" if begin == "before the export" else "sql"
            at = export_upstream(upstream, tmp_path / "export", file_type=file_type)
    first_ts = at if begin == "from the export on" else cuts[0]
    changefeed = StandInChangefeed(
        upstream, "topic", wire_format=wire_format, options=FeedOptions(first_ts=first_ts)
    )
    feed = Feed.of(spark, tmp_path, timezone=TIMEZONE, wire_format=wire_format)
    feed = feed.having(start_ts=first_ts)
    feed.write(changefeed.tick())
    found = seed(feed.lake, str(tmp_path / "export"))
    assert found.tso == at
    assert found.refused == {}
    assert sum(item.quarantined for item in found.tables) == 0
    for cut in (at, cuts[2], cuts[3]):
        feed.sync(until=cut)
        assert feed.rows() == truth_rows(changefeed.truth(cut))
        # Craft's encoders damage some values, which is said of the tables that have such columns.
        if wire_format is not WireFormat.CRAFT:
            assert [list(item.caveats) for item in feed.cut.mirrors if item.caveats] == []
    for cut in (at, cuts[2]):
        assert feed.rows_as_of(cut) == truth_rows(changefeed.truth(cut))


class Scene:
    """A small upstream, exported between changes, and a changefeed that begins before that."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        wire_format: WireFormat = WireFormat.SIMPLE_JSON,
    ) -> None:
        self.wire_format = wire_format
        self.folder = folder
        self.upstream = Upstream(timezone=TIMEZONE)
        self.upstream.create_database("d")
        columns = (
            column("id", "int", nullable=False),
            column("v", "varchar(20)"),
            column("at", "timestamp(3)"),
        )
        self.upstream.create_table(("d", "keyed"), columns, primary_key=("id",))
        self.upstream.create_table(("d", "bag"), columns)
        for name in self.upstream.tables:
            fill(self.upstream, name, rows=30, seed=len(name[1]))
        self.begin = self.upstream.clock.next()
        churn(self.upstream, steps=8)
        self.middle = self.upstream.clock.next()
        churn(self.upstream, steps=8, seed=1)
        self.at = self.export("export")
        churn(self.upstream, steps=8, seed=2)
        self.changefeed = self.changefeed_from(self.begin)
        self.feed = Feed.of(spark, folder, timezone=TIMEZONE, wire_format=wire_format)
        self.feed = self.feed.having(start_ts=self.begin)

    def changefeed_from(self, first_ts: int) -> StandInChangefeed:
        options = FeedOptions(first_ts=first_ts, force_replicate=True)
        return StandInChangefeed(
            self.upstream, "topic", wire_format=self.wire_format, options=options
        )

    def export(self, name: str, *, file_type: str = "csv") -> int:
        return export_upstream(self.upstream, self.folder / name, file_type=file_type)

    def seed(self, name: str = "export", *, tables: tuple[tuple[str, str], ...] = ()) -> Seeding:
        return seed(self.feed.lake, str(self.folder / name), tables=tables)

    def sync(self, until: int | None = None) -> None:
        self.feed.follow(self.changefeed, until=until)

    def verify(self) -> None:
        verification = verify(self.feed.lake)
        assert verification.equal, verification.mirrors

    def sync_to_truth(self) -> None:
        self.sync()
        self.require_truth()

    def require_truth(self, *, but: str | None = None) -> None:
        """Require that all rows are there, and that no caveat says otherwise, but for one."""
        at = self.feed.cut.tso
        assert self.feed.rows() == truth_rows(self.changefeed.truth(at))
        caveats = [
            caveat
            for item in self.feed.cut.mirrors
            for caveat in item.caveats
            if "key" not in caveat
        ]
        assert [but is not None and caveat.startswith(but) for caveat in caveats] == (
            [] if but is None else [True]
        )


@pytest.fixture
def scene(spark: SparkSession, tmp_path: Path) -> Scene:
    return Scene(spark, tmp_path)


def test_a_table_is_incomplete_until_its_export(scene: Scene) -> None:
    scene.sync(until=scene.middle)
    assert scene.feed.rows() != truth_rows(scene.changefeed.truth(scene.middle))
    scene.seed()
    scene.sync(until=scene.at - 1)
    caveats = {item.table: item.caveats for item in scene.feed.cut.mirrors}
    told = f"in an export only, at TSO {scene.at}"
    assert all(told in " ".join(own) for own in caveats.values())
    assert all(item.incomplete for item in scene.feed.cut.mirrors)
    scene.sync(until=scene.at)
    scene.require_truth()
    scene.sync_to_truth()
    moment = AsOf(scene.feed.lake, scene.middle)
    with pytest.raises(NotFoundError, match=rf"only known from .* \(TSO {scene.at}\)"):
        moment.table("d", "keyed")


@pytest.mark.usefixtures("any_size")
def test_seeded_between_syncs_and_one_table_again(scene: Scene) -> None:
    scene.sync()
    assert scene.feed.rows() != truth_rows(scene.changefeed.truth(scene.feed.cut.tso))
    found = scene.seed()
    assert {item.is_new for item in found.tables} == {True}
    scene.sync_to_truth()
    # The same files again are nothing new.
    assert {item.is_new for item in scene.seed().tables} == {False}
    before = scene.feed.rows()
    churn(scene.upstream, steps=5, seed=3)
    scene.export("later", file_type="sql")
    churn(scene.upstream, steps=5, seed=4)
    scene.seed("later", tables=(("d", "bag"),))
    # Who reads meanwhile reads the cut that is published.
    assert scene.feed.rows() == before
    scene.sync_to_truth()
    scene.verify()


def test_what_was_seeded_is_applied_again_after_a_rewind(scene: Scene) -> None:
    scene.sync(until=scene.middle)
    before = scene.feed.rows()
    scene.seed()
    scene.sync_to_truth()
    rewind(scene.feed.lake, by="test", number=1)
    assert scene.feed.rows() == before
    churn(scene.upstream, steps=3, seed=7)
    scene.sync_to_truth()
    scene.verify()


@pytest.mark.parametrize(
    "wire_format",
    [
        pytest.param(
            wire_format,
            id=str(wire_format),
            marks=() if wire_format in BY_DAY else pytest.mark.slow,
        )
        for wire_format in WireFormat
    ],
)
def test_a_gap_after_an_export_is_told(
    spark: SparkSession, tmp_path: Path, wire_format: WireFormat
) -> None:
    scene = Scene(spark, tmp_path, wire_format)
    late = scene.upstream.clock.next()
    churn(scene.upstream, steps=4, seed=5)
    scene.changefeed = scene.changefeed_from(late)
    scene.seed()
    for start_ts in (late, None):
        scene.feed = scene.feed.having(start_ts=start_ts)
        scene.sync()
        caveats = {item.table: " ".join(item.caveats) for item in scene.feed.cut.mirrors}
        assert all("a gap after the export" in text for text in caveats.values()), caveats
        churn(scene.upstream, steps=2, seed=6)


STEPS = {
    "before the rows are landed": (seed_landing, "append_files"),
    "before they are decoded": (seed_decoding, "decode_into_files"),
    "before the change log has them": (seed_decoding, "append_files"),
    "before they are counted": (seed_decoding, "add_to_statistics"),
}


@pytest.mark.parametrize(
    ("step", "by"),
    [
        # By day each step once, and what finishes it in turns.
        pytest.param(step, by, marks=() if (number + other) % 2 == 0 else pytest.mark.slow)
        for number, step in enumerate(STEPS)
        for other, by in enumerate(("seed", "sync"))
    ],
)
def test_a_killed_seed_is_finished(tmp_path: Path, step: str, by: str, scene: Scene) -> None:
    scene.sync()
    path = tmp_path / "export" / "d.keyed.000000000.csv"
    path.write_bytes(path.read_bytes() + b"no row\r\n")
    with killed(before(*STEPS[step])):
        scene.seed()
    if by == "sync":
        # A sync finishes what was landed; what was not is begun again by the next seed.
        scene.sync()
    found = scene.seed()
    assert {item.table: (item.rows, item.quarantined) for item in found.tables} == {
        "bag": (len(scene.upstream.truth(scene.at)["d", "bag"]), 0),
        "keyed": (len(scene.upstream.truth(scene.at)["d", "keyed"]), 1),
    }
    scene.sync()
    scene.require_truth(but="1 row of the export could not be read")
    assert len(read_quarantine(scene.feed.paths)) == 1


def test_a_killed_seed_is_finished_by_a_sync_of_a_source_at_rest(
    tmp_path: Path, scene: Scene
) -> None:
    scene.feed.write(scene.changefeed.tick())
    commands = Commands(tmp_path)
    commands.add_capture("feed", scene.feed.changefeed.source.path, timezone=TIMEZONE)
    commands.done("sync", "feed")
    with killed(before(*STEPS["before they are decoded"])):
        scene.seed()
    assert scene.feed.rows() != truth_rows(scene.changefeed.truth())
    commands.done("sync", "feed")
    scene.feed.require_truth(scene.changefeed)


def test_what_is_no_row_is_quarantined_and_redriven(tmp_path: Path, scene: Scene) -> None:
    path = tmp_path / "export" / "d.keyed.000000000.csv"
    lines = path.read_bytes().split(b"\r\n")
    broken = [*lines[:3], lines[3].replace(b",", b";", 1), *lines[4:]]
    path.write_bytes(b"\r\n".join(broken))
    found = scene.seed()
    assert {item.table: item.quarantined for item in found.tables} == {"bag": 0, "keyed": 1}
    (fault,) = read_quarantine(scene.feed.paths)
    assert (fault["topic"], fault["offset"]) == ("d.keyed.000000000.csv", 4)
    assert (fault["database"], fault["table"]) == ("d", "keyed")
    assert (fault["reason"], fault["got"]) == ("invalid_row", "fewer fields than columns")
    scene.sync()
    # It keeps its own table from being truncated, and no other.
    paths = scene.feed.paths
    bases = BaseCuts(
        scene.feed.lake, read_statistics(paths), read_heads(paths), read_truncation_point(paths)
    )
    assert bases.flaw(scene.feed.cut) is None
    assert [(item.table, item.reason) for item in bases.lacking(scene.feed.cut)] == [
        ("keyed", "rows of its export are in quarantine")
    ]
    again = redrive(scene.feed.lake)
    assert (again.records, again.decoded) == (1, 0)
    # The export is mended and seeded again: the fault is of a seed that counts no more.
    path.write_bytes(b"\r\n".join(lines))
    scene.seed()
    scene.sync_to_truth()
    assert read_quarantine(scene.feed.paths) == []


def test_a_file_that_could_not_be_read_is_read_by_the_next_seed(
    tmp_path: Path, scene: Scene
) -> None:
    plain = tmp_path / "export" / "d.keyed.000000000.csv"
    content = gzip.compress(plain.read_bytes())
    plain.unlink()
    path = plain.with_name(f"{plain.name}.gz")
    for now, quarantined in ((bytes(len(content)), 1), (content, 0)):
        path.write_bytes(now)
        # As where a store fails for a while, the file is the same by its size and its time.
        os.utime(path, ns=(0, 10**18))
        found = scene.seed()
        assert {item.table: item.quarantined for item in found.tables} == {
            "bag": 0,
            "keyed": quarantined,
        }
    scene.sync_to_truth()
    assert read_quarantine(scene.feed.paths) == []
    assert {item.is_new for item in scene.seed().tables} == {False}


def test_a_file_that_may_have_been_cut_is_named(tmp_path: Path, scene: Scene) -> None:
    scene.feed.write(scene.changefeed.tick())
    commands = Commands(tmp_path)
    commands.add_capture("feed", scene.feed.changefeed.source.path, timezone=TIMEZONE)
    path = tmp_path / "export" / "d.keyed.000000000.csv"
    path.write_bytes(path.read_bytes().rstrip(b'"\r\n'))
    told = commands.done("seed", "feed", tmp_path / "export")
    assert f"feed: {path.name} does not end with a line terminator" in told
    assert told.count("line terminator") == 1
    assert "line terminator" not in commands.done("seed", "feed", tmp_path / "export")


def test_seeded_rows_are_there_again_after_a_rebuild(tmp_path: Path, scene: Scene) -> None:
    path = tmp_path / "export" / "d.keyed.000000000.csv"
    whole = path.read_bytes()
    path.write_bytes(whole + b"no row\r\n")
    scene.seed()
    scene.sync()
    path.write_bytes(whole)
    scene.seed()
    scene.sync_to_truth()
    before = scene.feed.rows()
    scene.feed.rebuild()
    scene.require_truth()
    assert scene.feed.rows() == before
    scene.sync()
    assert scene.feed.rows() == before
    # What the first of the two seeds had in quarantine counts no more.
    assert read_quarantine(scene.feed.paths) == []
    # The same files again are nothing new.
    assert {item.is_new for item in scene.seed().tables} == {False}
    scene.verify()


@pytest.mark.parametrize("name", ["seeds", "snapshot_rows"])
def test_damaged_rows_of_exports_are_repaired_as_told(
    tmp_path: Path, name: str, scene: Scene
) -> None:
    scene.seed()
    scene.sync()
    paths = scene.feed.paths
    for file in (tmp_path / "lake" / "feed" / name).glob("*.parquet"):
        file.unlink()
    with pytest.raises(LakeDamagedError) as told:
        scene.feed.rebuild()
    repair = told.value.repair
    assert "restore it from a copy" in repair
    assert f"move {paths.seeds} and {paths.snapshot_rows} away" in repair
    assert "ticdc-assets rebuild feed" in repair
    assert "seed again" in repair
    for table in ("seeds", "snapshot_rows"):
        (tmp_path / "lake" / "feed" / table).rename(tmp_path / table)
    with pytest.raises(LossError, match=r"d.keyed are refused now .the rows of its export are no"):
        scene.feed.rebuild()
    scene.feed.rebuild(accept_losses=True)
    scene.sync()
    scene.seed()
    scene.sync_to_truth()


def test_what_a_later_program_can_read_is_redriven(
    monkeypatch: pytest.MonkeyPatch, scene: Scene
) -> None:
    made: Callable[..., object] = ImageMaker.make

    def refusing(maker: object, rows: object, **options: object) -> object:
        return made(maker, rows, **options | {"problem": "not understood"})

    with monkeypatch.context() as patch:
        patch.setattr(ImageMaker, "make", refusing)
        found = scene.seed()
    count = sum(item.quarantined for item in found.tables)
    assert sum(item.rows for item in found.tables) == 0
    scene.sync()
    with killed(before(redriving, "close_rows")):
        redrive(scene.feed.lake)
    again = redrive(scene.feed.lake)
    assert (again.decoded, again.still_quarantined) == (count, 0)
    assert read_quarantine(scene.feed.paths) == []
    register_new(scene.feed.lake)
    scene.sync_to_truth()


@pytest.mark.parametrize("is_finished", [True, False])
def test_exports_below_the_base_go_and_are_not_decoded_again(
    clock: type[LandingClock], scene: Scene, is_finished: bool
) -> None:
    """They go after the point that says so; a rebuild needs none of them, there or not."""
    ages = Retention(raw_messages=timedelta(days=1), cuts=timedelta(days=9))
    scene.feed = scene.feed.having(retention=ages)
    scene.seed()
    scene.sync()
    clock.at += timedelta(days=1)
    churn(scene.upstream, steps=3, seed=3)
    scene.sync()
    paths = scene.feed.paths
    landed, metadata = rows_landed(paths), commit_metadata(paths.snapshot_rows)

    def retained() -> Retaining:
        then = read_cuts(paths)[0].published_at + timedelta(days=1)
        return retain(scene.feed.lake, now=then)

    for step in ("truncate_raw_messages", "remove_exported"):
        with killed(before(retention._Retention, step)):
            retained()
        assert rows_landed(paths) == landed > 0
    assert read_raw_truncation_point(paths).number == read_cuts(paths)[0].number
    if is_finished:
        assert retained().records == landed
        assert rows_landed(paths) == 0
        assert commit_metadata(paths.snapshot_rows) == metadata
        scene.verify()
        with place_apart(scene.feed.lake) as place:
            assert Making(scene.feed.lake, scene.feed.cut, place).make().unproven == {}
    rows, exported = scene.feed.rows(), read_statistics(paths).exported_rows()
    caveats = {item.table: item.caveats for item in scene.feed.cut.mirrors}
    for _ in range(2):
        # The change log goes back further than what landed.
        scene.feed.rebuild(accept_losses=True)
        scene.sync()
        assert scene.feed.rows() == rows
        assert read_statistics(scene.feed.paths).exported_rows() == exported
        assert {item.table: item.caveats for item in scene.feed.cut.mirrors} == caveats


def test_an_export_at_or_below_the_base_is_refused(tmp_path: Path, scene: Scene) -> None:
    """The base has the rows of its tables at its TSO, and no row at it that lands later counts."""
    scene.feed = scene.feed.having(retention=Retention(change_log=timedelta(days=1)))
    scene.sync()
    done = retain(scene.feed.lake, now=scene.feed.cut.published_at + timedelta(days=1))
    base = done.truncation_point.tso
    assert base == scene.feed.cut.tso
    (tmp_path / "export" / "metadata").unlink()
    for tso in (base - 1, base):
        with pytest.raises(ConfigError, match="were removed by retention: export again"):
            seed(scene.feed.lake, str(tmp_path / "export"), tso=tso)


def rows_landed(paths: LakePaths) -> int:
    rows = read_table(paths.snapshot_rows, columns=["batch"])
    return 0 if rows is None else rows.num_rows


def test_an_export_without_rows_stays_where_its_day_is_decoded_again(
    spark: SparkSession, scene: Scene
) -> None:
    for name in scene.upstream.tables:
        scene.upstream.truncate_table(name)
    begin = scene.upstream.clock.next()
    scene.changefeed, scene.feed = scene.changefeed_from(begin), scene.feed.having(start_ts=begin)
    scene.export("empty")
    scene.seed("empty")
    churn(scene.upstream, steps=8, seed=3)
    scene.sync_to_truth()
    log = scene.feed.paths.change_log
    DeltaTable.forPath(spark, str(log)).delete("kind in ('row', 'bootstrap')")
    (day,) = redecode(scene.feed.lake, landed_days(scene.feed.paths)).days
    assert day.schemas
    scene.require_truth()
    scene.verify()


def test_histories_begin_with_the_export(spark: SparkSession, scene: Scene) -> None:
    scene.feed = scene.feed.having(history=TableChoice(("d.keyed",)))
    scene.seed()
    scene.sync_to_truth()
    (mirror,) = [item for item in scene.feed.cut.mirrors if item.table == "keyed"]
    path = scene.feed.paths.history(mirror.mirror_id)
    rows = spark.read.format("delta").load(str(path)).select("_ticdc_valid_from", "_ticdc_op")
    found = rows.collect()
    first = min(row["_ticdc_valid_from"] for row in found)
    assert first == scene.at
    began = [row["_ticdc_op"] for row in found if row["_ticdc_valid_from"] == first]
    assert set(began) == {"snapshot"}
    assert len(began) == len(scene.upstream.truth(scene.at)["d", "keyed"])
    with pytest.raises(NotFoundError, match=rf"only known from .* \(TSO {scene.at}\)"):
        next(deleted_lines(scene.feed.lake, scene.feed.cut, ("d", "keyed"), as_of=scene.middle))


def test_tables_that_cannot_be_seeded_are_told_and_the_others_go_on(
    tmp_path: Path, scene: Scene
) -> None:
    (tmp_path / "export" / "d.bag-schema.sql").write_text("CREATE NOTHING;\n")
    (tmp_path / "export" / "d.v-schema-view.sql").write_text("CREATE VIEW v AS SELECT 1;\n")
    found = scene.seed()
    assert [item.table for item in found.tables] == ["keyed"]
    assert "CREATE TABLE" in found.refused["d", "bag"]
    assert found.skipped == {"views": 1}
    with pytest.raises(NotFoundError, match=r"the export has no d\.other"):
        scene.seed(tables=(("d", "other"),))
    (tmp_path / "export" / "metadata").unlink()
    with pytest.raises(ConfigError, match="check --tso, or the clock"):
        seed(
            scene.feed.lake,
            str(tmp_path / "export"),
            tso=from_datetime(datetime.now(UTC) + timedelta(hours=2)),
        )
    with pytest.raises(ConfigError, match="no file `metadata`"):
        scene.seed()
    assert seeding.read_export(str(tmp_path / "export"), tso=scene.at).tso == scene.at


def test_parquet_files_with_the_schemas_of_the_registry(tmp_path: Path, scene: Scene) -> None:
    folder = tmp_path / "parquet"
    folder.mkdir()
    for name, truth in scene.upstream.truth(scene.at).items():
        rows = pa.table(
            {
                "v": pa.array([row["v"] for row in truth.values()], pa.string()),
                "at": pa.array([row["at"] for row in truth.values()]).cast(pa.timestamp("us")),
                "id": pa.array([row["id"] for row in truth.values()]).cast(pa.int32()),
            }
        )
        pq.write_table(rows, folder / f"{'.'.join(name)}.000000000.parquet", row_group_size=7)
    uri = folder.as_uri()
    with pytest.raises(ConfigError, match="TSO"):
        seed(scene.feed.lake, uri)
    found = seed(scene.feed.lake, uri, tso=scene.at)
    assert all(reason.startswith("no_schema") for reason in found.refused.values())
    assert set(found.refused) == set(scene.upstream.tables)
    assert found.tables == ()
    scene.sync()
    # Of rows that do not name their columns, the registry's order says nothing.
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "d.keyed.000000000.sql").write_text("INSERT INTO `keyed` VALUES (1,'a',NULL);\n")
    (refused,) = seed(scene.feed.lake, str(plain), tso=scene.at).tables
    assert (refused.rows, refused.quarantined) == (0, 1)
    assert "names of columns" in (refused.fault or "")
    found = seed(scene.feed.lake, uri, tso=scene.at)
    assert found.refused == {}
    assert sum(item.quarantined for item in found.tables) == 0
    scene.sync_to_truth()
    scene.verify()


@pytest.mark.parametrize("file_type", ["csv", "sql"])
def test_large_files_are_read_in_parts_by_workers(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    file_type: str,
    scene: Scene,
) -> None:
    monkeypatch.setattr(seed_landing, "_PART_BYTES", 300)
    monkeypatch.setattr(seed_landing, "executor", lambda *_, **__: OnSpark(spark, tmp_path))
    scene.export("large", file_type=file_type)
    told: list[str] = []
    with listened(told.append):
        found = scene.seed("large")
    assert found.rows == sum(len(rows) for rows in scene.upstream.truth(found.tso).values())
    landed = [text for text in told if text.startswith("landed ")]
    assert " of 2 parts" not in landed[0], "each file is several parts"
    scene.sync_to_truth()
