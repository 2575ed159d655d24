"""What is in the folder of an export."""

from pathlib import Path

import pytest

from ticdc_assets.base.errors import ConfigError, InputError, NotFoundError, SourceUnavailableError
from ticdc_assets.source.exports.dialect import BinaryText, CsvDialect, dialect_of
from ticdc_assets.source.exports.folder import read_export
from ticdc_assets.source.exports.tables import exported_schema

METADATA = (
    "Started dump at: 2024-01-01 00:00:00\nSHOW MASTER STATUS:\n\tLog: tidb-binlog\n"
    "\tPos: 446266324640595968\n\tGTID:\n\nFinished dump at: 2024-01-01 00:00:10\n"
)


def test_tables_files_and_what_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text(METADATA)
    names = {
        "shop-schema-create.sql": "CREATE DATABASE `shop`;",
        "shop.orders-schema.sql": "CREATE TABLE `orders` (`id` int);",
        "shop.orders.0000000010000.csv": "",
        "shop.orders.0000000000000.csv": "",
        "shop.orders.000000001.sql.zst": "",
        "shop.a%2Eb.000.sql.gz": "",
        "shop.v-schema.sql": "CREATE TABLE `v` (`id` int);",
        "shop.v-schema-view.sql": "CREATE VIEW ...",
        "shop.s-schema-sequence.sql": "CREATE SEQUENCE ...",
        "notes.txt": "",
        "shop.orders.csv.bak": "",
    }
    for name, text in names.items():
        (tmp_path / name).write_text(text)
    export = read_export(str(tmp_path))
    assert export.tso == 446266324640595968
    assert {table.name: [file.path for file in table.files] for table in export.tables} == {
        ("shop", "a.b"): ["shop.a%2Eb.000.sql.gz"],
        ("shop", "orders"): [
            "shop.orders.0000000000000.csv",
            "shop.orders.000000001.sql.zst",
            "shop.orders.0000000010000.csv",
        ],
    }
    assert export.skipped == {"views": 1, "sequences": 1, "other files": 2}
    assert read_export(tmp_path.as_uri()).tables == export.tables


def test_an_export_that_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text(METADATA)
    (tmp_path / "shop.orders-schema.sql.zst").write_bytes(b"no frame of Zstandard")
    with pytest.raises(SourceUnavailableError, match=r"^the export in '.*' cannot be read: "):
        read_export(str(tmp_path))


def test_names_that_begin_with_an_underscore_are_names(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text(METADATA)
    for name in (
        "_audit-schema-create.sql",
        "_audit._t-schema.sql",
        "_audit._t.000000000.csv",
        "_audit/u/part-0.parquet",
        "_SUCCESS",
        "_temporary/0/task/part-0.parquet",
        "shop/t/_delta_log/00.checkpoint.parquet",
        ".shop.t.000000000.csv.crc",
        "._shop.t.000000000.csv",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    export = read_export(str(tmp_path))
    assert {table.name: [file.path for file in table.files] for table in export.tables} == {
        ("_audit", "_t"): ["_audit._t.000000000.csv"],
        ("_audit", "u"): ["_audit/u/part-0.parquet"],
    }
    assert export.skipped == {}


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        (None, "no file `metadata`"),
        ("Started dump at: 2024-01-01 00:00:00\n", "Finished dump at"),
        (METADATA.replace("Pos", "Place"), "no `Pos`"),
        (METADATA.replace("446266324640595968", "2024-01-01 00:00:00"), "no `Pos`.*--tso"),
        (METADATA.replace("446266324640595968", "7502"), "not from TiDB"),
    ],
)
def test_an_export_without_a_tso(tmp_path: Path, metadata: str | None, says: str) -> None:
    (tmp_path / "shop.orders-schema.sql").write_text("CREATE TABLE `orders` (`id` int);")
    if metadata is not None:
        (tmp_path / "metadata").write_text(metadata)
    with pytest.raises(ConfigError, match=says):
        read_export(str(tmp_path))
    assert read_export(str(tmp_path), tso=7).tso == 7


def test_a_tso_that_differs_from_that_of_the_export(tmp_path: Path) -> None:
    """Rows at the wrong TSO would be silently wrong."""
    (tmp_path / "shop.orders-schema.sql").write_text("CREATE TABLE `orders` (`id` int);")
    (tmp_path / "metadata").write_text(METADATA)
    assert read_export(str(tmp_path), tso=446266324640595968).tso == 446266324640595968
    with pytest.raises(ConfigError, match=r"at TSO 446266324640595968, and --tso is .*69: leave"):
        read_export(str(tmp_path), tso=446266324640595969)


def test_folders_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no folder"):
        read_export(str(tmp_path / "none"), tso=1)
    with pytest.raises(NotFoundError, match="has no table"):
        read_export(str(tmp_path), tso=1)
    with pytest.raises(ConfigError, match="cannot be opened"):
        read_export("nowhere://bucket/x", tso=1)


def test_schemas_by_their_text(tmp_path: Path) -> None:
    (tmp_path / "d-schema-create.sql").write_text("CREATE DATABASE `d` DEFAULT CHARSET latin1;")
    (tmp_path / "d.t-schema.sql").write_text(
        "/*!40014 SET FOREIGN_KEY_CHECKS=0*/;\n/*!40101 SET NAMES binary*/;\n"
        "CREATE TABLE `t` (\n `id` int NOT NULL COMMENT 'a;\nb',\n"
        " `g` int GENERATED ALWAYS AS (`id` + 1) VIRTUAL,\n PRIMARY KEY (`id`)\n);\n"
    )
    (tmp_path / "d.bad-schema.sql").write_text("DROP TABLE t;")
    (tmp_path / "d.none.000.csv").write_text("")
    tables = {table.table: table for table in read_export(str(tmp_path), tso=5).tables}
    found = exported_schema(tables["t"], 5, "UTC")
    assert found.schema.version == 5
    assert found.schema.handle_key == ("id",)
    assert [(item.name, item.virtual) for item in found.schema.columns] == [
        ("id", False),
        ("g", True),
    ]
    for name in ("bad", "none"):
        with pytest.raises(InputError):
            exported_schema(tables[name], 5, "UTC")


def test_dialects_by_the_options_of_dumpling() -> None:
    options = {
        "csv-separator": "\\t",
        "csv-delimiter": "",
        "csv-null-value": "\\N",
        "csv-line-terminator": "\\n",
        "no-header": "true",
        "escape-backslash": "false",
        "csv-output-dialect": "bigquery",
    }
    assert dialect_of(options) == CsvDialect(
        separator="\t",
        quote="",
        null="\\N",
        terminator="\n",
        header=False,
        backslash=False,
        binary=BinaryText.BASE64,
    )
    assert dialect_of({}) == CsvDialect()
    for wrong in ({"csv-seperator": ","}, {"no-header": "perhaps"}, {"csv-separator": ""}):
        with pytest.raises(ConfigError):
            dialect_of(wrong)
