"""Rows and values of exports: whatever is written is read back, whatever is read is no crash."""

import gzip
import json
from base64 import b64encode
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.source.exports import rows as rows_module
from ticdc_assets.source.exports.dialect import BinaryText, CsvDialect
from ticdc_assets.source.exports.folder import opened_folder, read_export
from ticdc_assets.source.exports.images import ImageMaker
from ticdc_assets.source.exports.rows import ends_with_a_row, read_rows, split_file
from ticdc_assets.source.exports.tables import exported_schema
from ticdc_assets_tests.source.exports.writing import Value, csv_row, sql_row

CREATE = """CREATE TABLE `t` (
  `n` bigint,
  `v` text,
  `b` longblob
)"""

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
table_rows = st.lists(
    st.tuples(
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | texts,
        st.none() | st.binary(max_size=12),
    ),
    max_size=8,
)
dialects = st.builds(
    CsvDialect,
    separator=st.sampled_from([",", "\t", "|+|", ";"]),
    quote=st.sampled_from(['"', "'", "''"]),
    null=st.sampled_from(["\\N", "NULL"]),
    terminator=st.sampled_from(["\r\n", "\n"]),
    header=st.booleans(),
    backslash=st.booleans(),
    binary=st.sampled_from(BinaryText),
)


def schema(create: str = CREATE) -> TableSchema:
    with TemporaryDirectory() as folder:
        (Path(folder) / "d.t-schema.sql").write_text(create + ";\n")
        (table,) = read_export(folder, tso=1).tables
        return exported_schema(table, 1, "UTC").schema


SCHEMA = schema()


def made(
    own: TableSchema,
    rows: "list[bytes] | pa.Array[Any]",
    *,
    form: str,
    dialect: CsvDialect | None = None,
    is_ordered: bool = True,
    columns: list[str] | None = None,
    problem: str | None = None,
) -> list[dict[str, Any] | str]:
    """Return the images of rows, or why a row has none."""
    array = pa.array(rows) if isinstance(rows, list) else rows
    maker = ImageMaker(own, dialect or CsvDialect(), "UTC", is_ordered=is_ordered)
    found = maker.make(array, format=form, columns=columns, problem=problem)
    pairs = zip(found.images.to_pylist(), found.reason.to_pylist(), strict=True)
    return [str(reason) if image is None else json.loads(image) for image, reason in pairs]


def read(
    folder: Path, name: str, content: bytes, dialect: CsvDialect, *, most: int = 1 << 30
) -> tuple[list[dict[str, Any] | str], list[int]]:
    """Return images, or why a row has none, and the lines of the rows."""
    (folder / name).write_bytes(content)
    (table,) = read_export(str(folder), tso=1).tables
    filesystem, root = opened_folder(str(folder))
    found: list[dict[str, Any] | str] = []
    lines: list[int] = []
    for file in table.files:
        parts = split_file(filesystem, root, file, dialect, most=most)
        for part in parts:
            for batch in read_rows(filesystem, root, part, dialect):
                lines += batch.column("line").to_pylist()
                columns, problem = (
                    batch.column(item)[0].as_py() for item in ("columns", "problem")
                )
                found += made(
                    SCHEMA,
                    batch.column("row"),
                    form=file.format,
                    dialect=dialect,
                    columns=None if columns is None else json.loads(columns),
                    problem=problem,
                )
        assert len(parts) > 1 or len(lines) < 2 or most > 1
    (folder / name).unlink()
    return found, lines


def images(rows: list[tuple[Value, ...]]) -> list[dict[str, str | None]]:
    return [
        {
            "n": None if number is None else str(number),
            "v": text if text is None else str(text),
            "b": None if raw is None else b64encode(bytes(raw)).decode(),  # type: ignore[arg-type]
        }
        for number, text, raw in rows
    ]


@given(rows=table_rows, dialect=dialects, most=st.sampled_from([1, 7, 40, 1 << 30]))
@pytest.mark.thorough
def test_csv_is_read_as_it_was_written(
    rows: list[tuple[Value, ...]], dialect: CsvDialect, most: int
) -> None:
    content = csv_row(["n", "v", "b"], dialect) if dialect.header else b""
    content += b"".join(csv_row(row, dialect) for row in rows)
    with TemporaryDirectory() as folder:
        found, lines = read(Path(folder), "d.t.000.csv", content, dialect, most=most)
    assert found == images(rows)
    assert lines == sorted(lines)


@given(rows=table_rows, backslash=st.booleans(), most=st.sampled_from([1, 30, 1 << 30]))
@pytest.mark.thorough
def test_sql_is_read_as_it_was_written(
    rows: list[tuple[Value, ...]], backslash: bool, most: int
) -> None:
    content = b"/*!40101 SET NAMES binary*/;\n"
    for begin in range(0, len(rows), 3):
        some = [sql_row(row, backslash=backslash) for row in rows[begin : begin + 3]]
        content += b"INSERT INTO `t` (`n`,`v`,`b`) VALUES\n" + b",\n".join(some) + b";\n"
    with TemporaryDirectory() as folder:
        dialect = CsvDialect(backslash=backslash)
        found, lines = read(Path(folder), "d.t.000.sql", content, dialect, most=most)
    assert found == images(rows)
    assert lines == sorted(lines)


@given(
    content=st.binary(max_size=200)
    | st.text("(),';`\\x\n\r\"NULLINSERTVALUES-#/* 01", max_size=80).map(str.encode),
    dialect=dialects,
    name=st.sampled_from(["d.t.000.csv", "d.t.000.sql", "d.t.000.csv.gz", "d.t.000.parquet"]),
    most=st.sampled_from([5, 1 << 30]),
)
def test_any_bytes_are_rows_or_reasons(
    content: bytes, dialect: CsvDialect, name: str, most: int
) -> None:
    with TemporaryDirectory() as folder:
        found, _ = read(Path(folder), name, content, dialect, most=most)
    assert all(isinstance(item, (str, dict)) for item in found)


@pytest.mark.parametrize("ending", ["gz", "zst", "snappy"])
def test_compressed_files(tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "_CHUNK_BYTES", 100)
    rows: list[tuple[Value, ...]] = [(number, "text\n" * 9, b"\0\xff") for number in range(50)]
    dialect = CsvDialect(header=False)
    content = b"".join(csv_row(row, dialect) for row in rows)
    match ending:
        case "gz":
            packed = gzip.compress(content)
        case "zst":
            packed = pa.compress(content, "zstd", asbytes=True)
        case _:
            packed = b"\xff\x06\x00\x00sNaPpY" + b"".join(
                frame(content[at : at + 1000]) for at in range(0, len(content), 1000)
            )
    found, lines = read(tmp_path, f"d.t.000.csv.{ending}", packed, dialect)
    assert found == images(rows)
    assert lines == list(range(1, 51))
    damaged, _ = read(tmp_path, f"d.t.000.csv.{ending}", packed[: len(packed) // 2], dialect)
    assert damaged[-1] in ("unreadable_file", "invalid_row")


def frame(content: bytes) -> bytes:
    """Return content as one frame of Snappy's framing format; its checksum is not looked at."""
    body = bytes(4) + pa.compress(content, "snappy", asbytes=True)
    return b"\x00" + len(body).to_bytes(3, "little") + body


def test_parquet_files_by_the_names_of_columns(tmp_path: Path) -> None:
    table = pa.table({"b": [b"\0\xff", None], "n": [7, None], "v": ['a"\\', "line\nend"]})
    pq.write_table(table, tmp_path / "d.t.000.parquet")
    content = (tmp_path / "d.t.000.parquet").read_bytes()
    found, lines = read(tmp_path, "d.t.000.parquet", content, CsvDialect())
    assert found == [{"b": "AP8=", "n": "7", "v": 'a"\\'}, {"b": None, "n": None, "v": "line\nend"}]
    assert lines == [1, 2]


def test_parquet_types_as_the_columns_spell_them(tmp_path: Path) -> None:
    sql = (
        "CREATE TABLE `t` (`d` decimal(10,2), `w` decimal(5,0), `m` datetime(3), `n` datetime, "
        "`s` timestamp(1), `z` timestamp(6), `k` time(2), `b` bit(12), `c` bit(12), "
        "`x` varbinary(9), `e` enum('a','b'), `f` double, `j` json, `y` year, `o` bool, "
        "`g` decimal(18,8));\n"
    )
    (tmp_path / "d.t-schema.sql").write_text(sql)
    instant = datetime(2024, 2, 29, 1, 2, 3, 120_000, UTC)
    moment = instant.replace(tzinfo=None)
    table = pa.table(
        {
            "d": pa.array([Decimal("1.5000"), Decimal("-0.2500")], pa.decimal128(20, 4)),
            "w": pa.array([Decimal("7.00"), Decimal("7.25")], pa.decimal128(20, 2)),
            "m": pa.array([moment, None], pa.timestamp("ns")),
            "n": pa.array([moment.date()] * 2, pa.date32()),
            "s": pa.array([moment.replace(microsecond=100_000)] * 2, pa.timestamp("ms")),
            "z": pa.array([instant] * 2, pa.timestamp("us", "Asia/Tokyo")),
            "k": pa.array([moment.time()] * 2, pa.time64("us")),
            "b": pa.array([12, None], pa.int16()),
            "c": pa.array([b"\x0f\xff", b"\x00"], pa.binary()),
            "x": pa.array(["ff", "'\\"], pa.string()),
            "e": pa.array(["b", "a"], pa.string()).dictionary_encode(),
            "f": pa.array([1e30, -0.5]),
            "j": pa.array([[{"k": "é"}], []]),
            "y": pa.array([2024, 0], pa.int16()),
            "o": pa.array([True, False]),
            # Arrow prints it as 1.2E-7, and zero as 0E-8.
            "g": pa.array([Decimal("0.00000012"), Decimal(0)], pa.decimal128(18, 8)),
        }
    )
    pq.write_table(table, tmp_path / "d.t.000.parquet")
    (exported,) = read_export(str(tmp_path), tso=1).tables
    filesystem, root = opened_folder(str(tmp_path))
    (file,) = exported.files
    (part,) = split_file(filesystem, root, file, CsvDialect(), most=1)
    (batch,) = read_rows(filesystem, root, part, CsvDialect())
    maker = ImageMaker(exported_schema(exported, 1, "UTC").schema, CsvDialect(), "Europe/Oslo")
    columns = json.loads(batch.column("columns")[0].as_py())
    found = maker.make(batch.column("row"), format="parquet", columns=columns)
    first, second = found.images.to_pylist()
    assert json.loads(first) == {
        "d": "1.50",
        "w": "7",
        "m": "2024-02-29 01:02:03.120",
        "n": "2024-02-29 00:00:00",
        "s": {"location": "Europe/Oslo", "value": "2024-02-29 01:02:03.1"},
        "z": {"location": "UTC", "value": "2024-02-29 01:02:03.120000"},
        "k": "01:02:03.12",
        "b": "12",
        "c": str(0xFFF),
        "x": b64encode(b"ff").decode(),
        "e": "2",
        "f": "1e+30",
        "j": '[{"k": "é"}]',
        "y": "2024",
        "o": "1",
        "g": "0.00000012",
    }
    assert second is None
    fault = [item[1].as_py() for item in (found.reason, found.position, found.got)]
    assert fault == ["invalid_decimal", "w", "b'7.25'"]


def test_parquet_has_no_zero_dates() -> None:
    """Dumpling writes NULL: where no NULL can be, it is no value of the row."""
    own = schema("CREATE TABLE `t` (`a` datetime NOT NULL, `b` timestamp NULL, `c` date NOT NULL)")
    rows = [b"('2024-01-01 00:00:00',NULL,NULL)", b"(NULL,NULL,'2024-01-01')"]
    for form in ("parquet", "sql"):
        first, second = made(own, rows, form=form)
        assert isinstance(first, dict)
        assert (second == "invalid_datetime") is (form == "parquet")
        assert isinstance(second, dict) is (form == "sql")


@pytest.mark.parametrize("null", ["", "NULL", "\\N"])
def test_without_quotes_null_is_a_text_where_no_null_can_be(null: str) -> None:
    own = schema("CREATE TABLE `t` (`a` text NOT NULL, `b` text, `e` enum('x','NULL') NOT NULL)")
    dialect = CsvDialect(quote="", null=null, backslash=False)
    found = made(own, [f"{null},{null},x".encode()], form="csv", dialect=dialect)
    assert found == [{"a": null, "b": None, "e": "1"}]
    found = made(own, [f'{null},{null},"x"'.encode()], form="csv", dialect=CsvDialect(null=null))
    assert found == [{"a": None, "b": None, "e": "1"}]


def test_without_quotes_null_is_a_document_where_no_null_can_be() -> None:
    own = schema("CREATE TABLE `t` (`j` json NOT NULL, `k` json, `n` int NOT NULL)")
    found = made(own, [b"null,null,null"], form="csv", dialect=CsvDialect(quote="", null="null"))
    # No number is written so, and reading the image refuses it.
    assert found == [{"j": "null", "k": None, "n": "null"}]


def test_without_the_order_of_columns_files_must_name_them() -> None:
    """The old TiCDC sends the columns of Simple by id: the registry may have another order."""
    own = schema("CREATE TABLE `t` (`a` int, `b` int)")
    for form, row in (("sql", b"(1,2)"), ("csv", b"1,2")):
        assert made(own, [row], form=form, is_ordered=False) == ["unnamed_columns"]
        found = made(own, [row], form=form, is_ordered=False, columns=["b", "a"])
        assert found == [{"b": "1", "a": "2"}]


def test_labels_that_differ_by_case_are_two_labels() -> None:
    own = schema("CREATE TABLE `t` (`e` enum('A','a'), `s` set('A','a'))")
    rows = [b"('a','a')", b"('A','a,A')", b"('','')", b"('B','')"]
    found = made(own, rows, form="sql")
    good = [{"e": "2", "s": "2"}, {"e": "1", "s": "3"}, {"e": "0", "s": "0"}]
    assert found == [*good, "invalid_enum"]


def test_sql_has_two_quotes() -> None:
    """Each is doubled in texts of its own sort alone; mydumper writes double ones."""
    own = schema("CREATE TABLE `t` (`a` text, `b` text)")
    rows = [b"""('it''s ""', "say ""hi"";")""", b"""('''', "'' ")"""]
    found = made(own, rows, form="sql")
    assert found == [{"a": 'it\'s ""', "b": 'say "hi";'}, {"a": "'", "b": "'' "}]


def test_what_is_wrong_with_rows_is_told(tmp_path: Path) -> None:
    dialect = CsvDialect()
    content = (
        b'"n","v","b"\r\n1,"a"\r\n2,"a","b","c"\r\n3,"\xff","b"\r\n4,"a" x,"b"\r\n5,"a","b"\r\n'
    )
    found, lines = read(tmp_path, "d.t.000.csv", content, dialect)
    assert found[:4] == ["invalid_row", "invalid_row", "invalid_text", "invalid_row"]
    assert found[4] == {"n": "5", "v": "a", "b": "Yg=="}
    assert lines == [2, 3, 4, 5, 6]
    found, _ = read(tmp_path, "d.t.000.csv", b'"n","other","b"\r\n1,"a","b"\r\n', dialect)
    assert found == ["unknown_column"]
    broken = b"INSERT INTO `t` VALUES\n(1,'a',x'00'),\n(2,'b',x'0'),\n(3,'c"
    found, _ = read(tmp_path, "d.t.000.sql", broken, dialect)
    assert found == [{"n": "1", "v": "a", "b": "AA=="}, "invalid_binary", "unreadable_file"]


@pytest.mark.parametrize("count", [15, 16, 17, 31, 32, 33, 100])
def test_more_rows_than_there_are_places_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    (tmp_path / "d.t-schema.sql").write_text(CREATE + ";\n")
    monkeypatch.setattr(rows_module, "_MOST_ROWS", 16)
    rows: list[tuple[Value, ...]] = [(number, None, None) for number in range(count)]
    sql = [sql_row(row, backslash=True) for row in rows]
    content = b"INSERT INTO `t` (`n`,`v`,`b`) VALUES\n" + b",\n".join(sql) + b";\n"
    found, lines = read(tmp_path, "d.t.000.sql", content, CsvDialect(backslash=True))
    assert found == images(rows)
    assert lines == list(range(2, count + 2))
    dialect = CsvDialect(header=False)
    content = b"".join(csv_row(row, dialect) for row in rows)
    found, lines = read(tmp_path, "d.t.000.csv", content, dialect)
    assert found == images(rows)
    assert lines == list(range(1, count + 1))


@pytest.mark.parametrize(
    ("name", "content", "terminator", "ends"),
    [
        ("d.t.000.csv", b"1,2\r\n3,4\r\n", "\r\n", True),
        ("d.t.000.csv", b"1,2\r\n3,4", "\r\n", False),
        ("d.t.000.csv", b"1,2\r\n3,4\r", "\r\n", False),
        # A row may end by a line feed alone where the terminator does.
        ("d.t.000.csv", b"1,2\n3,4\n", "\r\n", True),
        ("d.t.000.csv", b"1,2|\n3,4|\n", "|\n", True),
        ("d.t.000.csv", b"1,2||3,4||", "||", True),
        ("d.t.000.csv", b"1,2||3,4|", "||", False),
        ("d.t.000.csv", b"1", "||", False),
        ("d.t.000.csv", b"", "\r\n", True),
        ("d.t.000.sql", b"INSERT INTO t VALUES (1,2)", "\r\n", True),
        ("d.t.000.csv.gz", b"cut", "\r\n", True),
    ],
)
def test_a_file_of_csv_says_whether_its_last_row_ends(
    tmp_path: Path, name: str, content: bytes, terminator: str, ends: bool
) -> None:
    (tmp_path / "d.t-schema.sql").write_text(CREATE + ";\n")
    (tmp_path / name).write_bytes(content)
    (table,) = read_export(str(tmp_path), tso=1).tables
    dialect = CsvDialect(terminator=terminator)
    filesystem, root = opened_folder(str(tmp_path))
    (file,) = table.files
    assert ends_with_a_row(filesystem, root, file, dialect) is ends


@pytest.mark.parametrize(
    ("end", "is_cut"),
    [
        *((end, False) for end in ("", " \n", ";", ";\n", "; \r\n\n")),
        *((end, True) for end in (",", ",\n", ", \r\n", ",\n(3", ",\n(3,'z',NULL")),
        # In the head of a statement.
        (";\nINSERT INTO `t` VALUES\n", True),
        (";\nINSERT INTO `t` VALUES", True),
        (";\nINSERT INTO `t` VALU", True),
        (";\nINSERT INTO `t` (`n`,", True),
        (";\nINS", True),
        (";\n-- more\n/* * */ replace into `t`", True),
        # Between statements.
        (";\n/*!40101 SET NAMES binary*/", False),
        (";\n-- INSERT INTO `t` VALUES\n", False),
        *((f";\n{end}", False) for end in ("-- INSERT", "# INSERT INTO", "/* INSERT")),
        *((f";\n{end}", False) for end in ("INSERTED", "SET x = 1")),
    ],
)
@pytest.mark.parametrize("most", [5, 1 << 30])
def test_sql_that_was_cut_is_told(tmp_path: Path, end: str, most: int, *, is_cut: bool) -> None:
    content = f"INSERT INTO `t` VALUES\n(1,'x',NULL),\n(2,'y',NULL){end}".encode()
    found, lines = read(tmp_path, "d.t.000.sql", content, CsvDialect(backslash=True), most=most)
    wanted = images([(1, "x", None), (2, "y", None)])
    assert found == [*wanted, *(["unreadable_file"] if is_cut else [])]
    assert lines[:2] == [2, 3]
    if end.startswith(","):
        assert lines[2] == 3
