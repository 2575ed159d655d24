"""Stored generated columns of seeded tables: worked out, or not known and said so."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from ticdc_assets.config import Retention
from ticdc_assets.demo.simulator.alterations import DropColumn
from ticdc_assets.demo.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.columns import as_typed, column, column_sql
from ticdc_assets.demo.simulator.export import finish
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.log.quarantine import read_quarantine
from ticdc_assets.reading.as_of import AsOf
from ticdc_assets.repair.diffing import SourceDifference, diff
from ticdc_assets.repair.redriving import redrive
from ticdc_assets.repair.retention import retain
from ticdc_assets.repair.seeding import Seeding, seed
from ticdc_assets.repair.verifying import verify
from ticdc_assets.source.exports.dialect import CsvDialect
from ticdc_assets.wire import WireFormat
from ticdc_assets_tests.commands import Commands
from ticdc_assets_tests.golden import comparable
from ticdc_assets_tests.lake.feeds import Feed, grow_cuts_older, truth_rows
from ticdc_assets_tests.source.exports.writing import csv_row, sql_row

pytestmark = pytest.mark.spark

Row: TypeAlias = dict[str, str | None]
NAME = ("d", "t")

PLAIN = {
    "id": "bigint",
    "v": "varchar(20)",
    "n": "decimal(10,2)",
    "born": "date",
    "doc": "json",
}
STORED = {
    "twice": ("bigint", "`id` * 2"),
    "label": ("varchar(40)", "concat(upper(`v`), _utf8mb4'-', `id`)"),
    "gross": ("decimal(12,2)", "`n` * 1.19"),
    "year": ("int", "year(`born`)"),
    "kind": ("varchar(20)", "json_unquote(json_extract(`doc`, _utf8mb4'$.kind'))"),
    "size": ("varchar(5)", "case when `n` > 100 then 'large' else 'small' end"),
}


def stored_row(number: int, text: str, cents: int, year: int, kind: str) -> Row:
    """A row with the stored columns as TiDB has them."""
    gross = (cents * 119 * 2 + 100) // 200
    return {
        "id": str(number),
        "v": text,
        "n": f"{cents // 100}.{cents % 100:02}",
        "born": f"{year}-02-03",
        "doc": json.dumps({"kind": kind}, separators=(",", ":")),
        "twice": str(number * 2),
        "label": f"{text.upper()}-{number}",
        "gross": f"{gross // 100}.{gross % 100:02}",
        "year": str(year),
        "kind": kind,
        "size": "large" if cents > 10000 else "small",
    }


ROWS = [
    stored_row(1, "ann", 1999, 1999, "a"),
    stored_row(2, "bob", 10001, 2024, 'b"c'),
    stored_row(3, "it's", 50, 2000, "é"),
]


class Scene:
    """A table with stored columns, and an export of it without their values."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        rows: Sequence[Row] = ROWS,
        plain: Mapping[str, str] = PLAIN,
        stored: Mapping[str, tuple[str, str]] = STORED,
        *,
        key: tuple[str, ...] = ("id",),
        wire_format: WireFormat = WireFormat.CANAL_JSON,
    ) -> None:
        self.folder = folder
        self.plain, self.stored, self.key = plain, stored, key
        self.upstream = Upstream()
        self.upstream.create_database("d")
        types = {**plain, **{name: kind for name, (kind, _) in stored.items()}}
        columns = [column(name, kind, nullable=name not in key) for name, kind in types.items()]
        self.upstream.create_table(NAME, columns, primary_key=key)
        for row in rows:
            self.insert(row)
        self.at = self.upstream.clock.next()
        self.exported = [dict(row) for row in self.upstream.rows(NAME).values()]
        options = FeedOptions(first_ts=self.at)
        self.changefeed = StandInChangefeed(
            self.upstream, "topic", wire_format=wire_format, options=options
        )
        feed = Feed.of(spark, folder, wire_format=wire_format)
        self.feed = feed.having(start_ts=self.at)

    def insert(self, row: Row) -> None:
        with self.upstream.transaction() as transaction:
            transaction.insert(NAME, row)

    def update(self, *key: str, **changes: str | None) -> None:
        with self.upstream.transaction() as transaction:
            transaction.update(NAME, key, changes=changes)

    def delete(self, *key: str) -> None:
        with self.upstream.transaction() as transaction:
            transaction.delete(NAME, key)

    def export(self, file_type: str = "csv", *, whole: bool = False, header: bool = True) -> str:
        """Write the export as Dumpling does, `whole` with its option for stored columns."""
        place = self.folder / f"export-{file_type}-{whole}-{header}"
        place.mkdir()
        (place / "d-schema-create.sql").write_text("CREATE DATABASE `d`;\n")
        columns = {item.name: item for item in self.upstream.schema(NAME).columns}
        parts = [as_typed(column_sql(columns[name], "UTC")) for name in self.plain]
        parts += [
            f"`{name}` {kind} GENERATED ALWAYS AS ({expression}) STORED"
            + (" NOT NULL" if name in self.key else "")
            for name, (kind, expression) in self.stored.items()
        ]
        parts.append("PRIMARY KEY (" + ",".join(f"`{name}`" for name in self.key) + ")")
        (place / "d.t-schema.sql").write_text(f"CREATE TABLE `t` ({', '.join(parts)});\n")
        names = [*self.plain, *(self.stored if whole else ())]
        rows = [[row[name] for name in names] for row in self.exported]
        target = place / f"d.t.000000000.{file_type}"
        if file_type == "parquet":
            values = {name: [row[at] for row in rows] for at, name in enumerate(names)}
            pq.write_table(pa.table(values), target)
        elif file_type == "csv":
            lines = [names] * header + rows
            target.write_bytes(b"".join(csv_row(line, CsvDialect()) for line in lines))
        else:
            head = f"INSERT INTO `t` ({','.join(f'`{name}`' for name in names)}) VALUES\n"
            texts = (sql_row(row, backslash=True) for row in rows)
            target.write_bytes(head.encode() + b",\n".join(texts) + b";\n")
        finish(place, self.at)
        return str(place)

    def seed(self, export: str, dialect: CsvDialect | None = None) -> Seeding:
        return seed(self.feed.lake, export, dialect=dialect)

    def sync(self) -> None:
        self.feed.follow(self.changefeed)

    def diff(self, export: str) -> SourceDifference:
        return diff(self.feed.lake, export)

    def sync_to_truth(self) -> None:
        self.sync()
        self.require_truth()

    def require_truth(self) -> None:
        assert self.feed.rows() == truth_rows(self.changefeed.truth(self.feed.cut.tso))
        assert self.caveats == []
        assert read_quarantine(self.feed.paths) == []

    @property
    def caveats(self) -> list[str]:
        return [caveat for item in self.feed.cut.mirrors for caveat in item.caveats]


@pytest.fixture
def scene(spark: SparkSession, tmp_path: Path) -> Scene:
    return Scene(spark, tmp_path)


@pytest.mark.parametrize(
    ("wire_format", "file_type"),
    [
        (WireFormat.SIMPLE_JSON, "csv"),
        (WireFormat.OPEN_PROTOCOL, "sql"),
        (WireFormat.CANAL_JSON, "parquet"),
        pytest.param(WireFormat.SIMPLE_AVRO, "sql", marks=pytest.mark.slow),
        pytest.param(WireFormat.CRAFT, "csv", marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_stored_columns_are_worked_out(
    spark: SparkSession, tmp_path: Path, wire_format: WireFormat, file_type: str
) -> None:
    scene = Scene(spark, tmp_path, wire_format=wire_format)
    export = scene.export(file_type)
    found = scene.seed(export)
    assert [(item.rows, item.quarantined) for item in found.tables] == [(3, 0)]
    scene.insert(stored_row(4, "new", 777, 2010, "d"))
    scene.update("1", **{name: stored_row(1, "amy", 2, 1999, "a")[name] for name in ROWS[0]})
    scene.delete("3")
    scene.sync_to_truth()
    compared = scene.diff(export)
    assert compared.equal
    assert [item.uncompared for item in compared.tables] == [()]
    assert verify(scene.feed.lake).equal


@pytest.mark.parametrize("whole", [False, True], ids=["as Dumpling writes it", "with its option"])
def test_csv_files_without_a_header(scene: Scene, *, whole: bool) -> None:
    """How many fields a line has says whether the stored columns are in it."""
    scene.seed(scene.export(whole=whole, header=False), CsvDialect(header=False))
    scene.sync_to_truth()


@pytest.mark.parametrize(
    "wire_format",
    [
        WireFormat.CANAL_JSON,
        pytest.param(WireFormat.SIMPLE_JSON, marks=pytest.mark.slow),
        pytest.param(WireFormat.OPEN_PROTOCOL, marks=pytest.mark.slow),
    ],
)
def test_a_key_over_a_stored_column(
    spark: SparkSession, tmp_path: Path, wire_format: WireFormat
) -> None:
    rows: list[Row] = [{"a": "1", "b": "x", "k": "x-1"}, {"a": "2", "b": "y", "k": "y-2"}]
    stored = {"k": ("varchar(30)", "concat(`b`, '-', `a`)")}
    plain = {"a": "int", "b": "varchar(9)"}
    scene = Scene(spark, tmp_path, rows, plain, stored, key=("k",), wire_format=wire_format)
    scene.seed(scene.export("sql"))
    scene.sync_to_truth()
    scene.delete("x-1")
    scene.update("y-2", a="2", b="y")
    scene.insert({"a": "3", "b": "z", "k": "z-3"})
    scene.sync_to_truth()


UNKNOWN = {"s": ("varchar(9)", "soundex(`v`)")}
SOUNDS: list[Row] = [{"id": "1", "v": "a", "s": "A000"}, {"id": "2", "v": "b", "s": "B000"}]
SOUND_COLUMNS = {"id": "int", "v": "varchar(9)"}


@pytest.fixture
def sounds(spark: SparkSession, tmp_path: Path) -> Scene:
    """A table with a column that cannot be worked out."""
    return Scene(spark, tmp_path, SOUNDS, SOUND_COLUMNS, UNKNOWN)


@pytest.mark.usefixtures("any_size")
def test_what_cannot_be_worked_out_is_not_known(sounds: Scene) -> None:
    export = sounds.export()
    assert [item.unknown for item in sounds.seed(export).tables] == [("s",)]
    sounds.insert({"id": "3", "v": "c", "s": "C000"})
    sounds.sync()
    (caveat,) = sounds.caveats
    assert caveat.startswith("column 's' is not known in rows that did not change since")
    assert "--include-generated-columns stored" in caveat
    moment = AsOf(sounds.feed.lake, sounds.at)
    assert moment.table(*NAME).warnings == (caveat,)
    (listed,) = sounds.feed.listed()
    assert caveat in listed.status.caveats
    compared = sounds.diff(export)
    assert compared.equal
    assert [item.uncompared for item in compared.tables] == [("s",)]
    assert compared.summary.endswith("; not compared: d.t.s")
    (file,) = Path(export).glob("d.t.*.csv")
    file.write_bytes(file.read_bytes().replace(b'"b"', b'"q"'))
    (table,) = sounds.diff(export).tables
    ((cell,),) = (item.columns for item in table.examples)
    assert (table.counts.total, cell.name, cell.rebuilt) == (1, "v", "q")
    # It differs in what can be compared.
    sounds.update("1", v="z", s="Z000")
    sounds.sync()
    assert sounds.caveats == [caveat]
    sounds.update("2", v="y", s="Y000")
    sounds.sync_to_truth()
    # The same cut again says the same.
    sounds.update("2", v="x", s="X000")
    sounds.sync_to_truth()


@pytest.mark.parametrize("change", ["export", "truncate", "drop column"])
def test_what_makes_it_known(change: str, sounds: Scene) -> None:
    sounds.seed(sounds.export())
    sounds.sync()
    assert len(sounds.caveats) == 1
    if change == "export":
        sounds.seed(sounds.export(whole=True))
    elif change == "truncate":
        sounds.upstream.truncate_table(NAME)
    else:
        sounds.upstream.alter_table(NAME, DropColumn(name="s"))
    sounds.upstream.clock.next()
    sounds.sync_to_truth()


def test_some_rows_of_a_column_are_not_certain(spark: SparkSession, tmp_path: Path) -> None:
    rows: list[Row] = [{"id": "4", "r": "0.250000"}, {"id": "3", "r": "0.333300"}]
    stored = {"r": ("decimal(9,6)", "1 / `id`")}
    scene = Scene(spark, tmp_path, rows, {"id": "int"}, stored)
    scene.seed(scene.export())
    scene.sync()
    assert len(scene.caveats) == 1
    wanted = [comparable({"id": "4", "r": "0.250000"}), comparable({"id": "3", "r": None})]
    assert scene.feed.rows() == {NAME: Counter(wanted)}


def test_a_key_that_cannot_be_worked_out(spark: SparkSession, tmp_path: Path) -> None:
    scene = Scene(spark, tmp_path, SOUNDS, SOUND_COLUMNS, UNKNOWN, key=("s",))
    export = scene.export()
    found = scene.seed(export)
    (item,) = found.tables
    assert (item.rows, item.quarantined, item.has_none) == (0, 2, True)
    faults = read_quarantine(scene.feed.paths)
    assert {(fault["reason"], fault["position"]) for fault in faults} == {("unknown_key", "s")}
    assert all("--include-generated-columns stored" in fault["expected"] for fault in faults)
    assert all("SOUNDEX" in fault["got"] for fault in faults)
    scene.sync()
    (caveat,) = scene.caveats
    assert caveat.startswith("2 rows of the export could not be read and wait in quarantine")
    assert redrive(scene.feed.lake).decoded == 0
    # Nothing is lost: with the column the rows are there.
    scene.seed(scene.export(whole=True))
    scene.sync_to_truth()


def test_a_plain_column_that_files_lack(spark: SparkSession, tmp_path: Path) -> None:
    rows: list[Row] = [{"id": "1", "v": "a", "w": "b"}]
    scene = Scene(spark, tmp_path, rows, {"id": "int", "v": "varchar(9)", "w": "varchar(9)"}, {})
    export = Path(scene.export())
    (export / "d.t.000000000.csv").write_text('"id","v"\r\n1,"a"\r\n')
    scene.seed(str(export))
    scene.sync()
    (caveat,) = scene.caveats
    assert caveat.startswith("column 'w' is not known")


def test_no_row_fits_a_wrong_separator(tmp_path: Path, scene: Scene) -> None:
    export = scene.export()
    scene.feed.write(scene.changefeed.tick())
    commands = Commands(tmp_path)
    commands.add_capture("feed", tmp_path / "capture.jsonl", format="canal-json")
    result = commands.run("seed", "feed", export, "--csv-separator", ";")
    assert result.exit_code == 1
    assert "feed: d.t: no row could be read: " in result.output
    assert "another separator or delimiter" in result.output
    assert "1 table was not seeded" in result.output
    # It does so each time.
    assert commands.run("seed", "feed", export, "--csv-separator", ";").exit_code == 1
    assert commands.run("seed", "feed", export).exit_code == 0
    commands.done("sync", "feed")


def test_the_start_of_the_changefeed_needs_no_other_seed(scene: Scene) -> None:
    scene.seed(scene.export())
    scene.insert(stored_row(4, "new", 777, 2010, "d"))
    started = scene.feed
    scene.feed = started.having(start_ts=None)
    scene.sync()
    (caveat,) = scene.caveats
    assert "a gap after the export" in caveat
    assert "set `start_ts` of changefeed feed" in caveat
    assert "ticdc-assets sync feed" in caveat
    scene.feed = started
    scene.feed.sync()
    scene.require_truth()
    # A start above the export is a gap that only another export fills.
    late = replace(started.changefeed, start_ts=scene.at + 1)
    scene.feed = replace(started, changefeed=late)
    scene.feed.sync()
    (caveat,) = scene.caveats
    assert "ticdc-assets seed feed FOLDER" in caveat


def test_a_row_from_below_the_export_proves_the_start(scene: Scene) -> None:
    begin = scene.at
    scene.update("1", v="amy", label="AMY-1")
    scene.at = scene.upstream.clock.next()
    scene.exported = [dict(row) for row in scene.upstream.rows(NAME).values()]
    # No watermark is at or below the export, but a row is.
    options = FeedOptions(first_ts=begin)
    scene.changefeed = StandInChangefeed(
        scene.upstream, "topic", wire_format=WireFormat.CANAL_JSON, options=options
    )
    records = list(scene.changefeed.tick())
    scene.feed = scene.feed.having(start_ts=None)
    rows = [record for record in records if b"TIDB_WATERMARK" not in (record.value or b"")]
    scene.feed.write(rows)
    scene.seed(scene.export())
    scene.insert(stored_row(4, "new", 777, 2010, "d"))
    scene.sync_to_truth()


def test_it_stays_unknown_when_the_rows_of_the_export_are_removed(sounds: Scene) -> None:
    day = timedelta(days=1)
    ages = Retention(change_log=day, raw_messages=day, cuts=day)
    sounds.feed = sounds.feed.having(retention=ages)
    sounds.seed(sounds.export())
    sounds.sync()
    caveats = sounds.caveats
    assert len(caveats) == 1
    sounds.update("1", v="z", s="Z000")
    sounds.sync()
    paths = sounds.feed.paths
    grow_cuts_older(paths, hours=72)
    retained = retain(sounds.feed.lake, now=datetime.now(UTC) + 3 * day)
    assert retained.changes > 0, retained.notes
    sounds.insert({"id": "3", "v": "c", "s": "C000"})
    sounds.sync()
    assert sounds.caveats == caveats
    sounds.update("2", v="y", s="Y000")
    sounds.sync_to_truth()
