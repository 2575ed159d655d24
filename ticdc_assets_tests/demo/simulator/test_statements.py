"""Statements in SQL on the stand-in upstream: what they do, and what is refused whole."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from ticdc_assets.base.errors import StatementError
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.statements import SUPPORTED, execute
from ticdc_assets.demo.simulator.upstream import Upstream

ITEMS = ("shop", "items")


@pytest.fixture
def upstream() -> Upstream:
    made = Upstream(timezone="Asia/Shanghai")
    made.create_database("shop")
    made.create_table(
        ITEMS,
        (
            column("id", "int", nullable=False),
            column("state", "enum('new','it''s done')", nullable=False, default="new"),
            column("price", "decimal(8,2)"),
            column("weight", "float"),
            column("tags", "set('a','b')"),
            column("raw", "binary(3)"),
            column("at", "datetime(3)"),
            column("born", "date"),
            column("took", "time(1)"),
            column("made", "year"),
            column("flags", "bit(8)"),
            column("doc", "json"),
            column("place", "vector(2)"),
            column("note", "varchar(20)"),
            column("seen", "timestamp", default="CURRENT_TIMESTAMP"),
        ),
        primary_key=("id",),
    )
    execute(made, "INSERT INTO shop.items (id, price, note) VALUES (1, 1.5, 'x'), (2, NULL, 'a_b')")
    return made


def row(upstream: Upstream, number: int = 1) -> Mapping[str, str | None]:
    return upstream.rows(ITEMS)[(str(number),)]


def test_rows_are_inserted_with_their_defaults_in_one_transaction(upstream: Upstream) -> None:
    before = len(upstream.history)
    done = execute(upstream, "insert into SHOP.Items (ID, State) values (7, DEFAULT), (8, 'new');")
    assert (done.table, done.rows) == (ITEMS, 2)
    assert [item.commit_ts for item in upstream.history[before:]] == [done.commit_ts]
    assert done.text == f"shop.items: 2 rows changed, commit ts {done.commit_ts}"
    assert (row(upstream, 7)["state"], row(upstream, 7)["price"]) == ("new", None)
    assert (row(upstream, 7)["seen"] or "").startswith("20"), "the moment of the statement"


@pytest.mark.parametrize(
    ("assignment", "name", "stored"),
    [
        ("price = price * 2 + 0.005", "price", "3.01"),
        ("price = -(1 - 3)", "price", "2.00"),
        ("weight = 0.1", "weight", "0.1"),
        ("weight = 1e20", "weight", "100000000000000000000"),
        ("state = 'it''s done'", "state", "it's done"),
        ("tags = 'b,a'", "tags", "a,b"),
        ("raw = x'00ff'", "raw", "0x00ff00"),
        ("`at` = '2026-02-03 04:05:06.789123'", "at", "2026-02-03 04:05:06.789"),
        ("born = '2026-02-03'", "born", "2026-02-03"),
        ("took = '-101:02:03.45'", "took", "-101:02:03.5"),
        ("made = 2026", "made", "2026"),
        ("flags = b'101'", "flags", "5"),
        ("flags = TRUE", "flags", "1"),
        ("""doc = '{"b": 1, "a": [1, 2]}'""", "doc", '{"a":[1,2],"b":1}'),
        ("place = '[1,2.5]'", "place", "[1,2.5]"),
        ("note = NULL", "note", None),
        ("note = 12.50", "note", "12.50"),
        ("note = state", "note", "new"),
    ],
)
def test_a_value_is_stored_as_its_column_has_it(
    upstream: Upstream, assignment: str, name: str, stored: str | None
) -> None:
    assert execute(upstream, f"UPDATE shop.items SET {assignment} WHERE id = 1").rows == 1
    assert row(upstream)[name] == stored


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("TRUE", 2),
        ("id = 1", 1),
        ("id <> 1 AND price IS NULL", 1),
        ("price IS NOT NULL", 1),
        ("price > 1 OR price <= 1", 1),
        ("NOT price = 2", 1),
        ("price IN (1.50, 9)", 1),
        ("price NOT IN (9)", 1),
        ("id BETWEEN 2 AND 9", 1),
        ("note LIKE 'a\\\\_%'", 1),
        ("note LIKE '_'", 1),
        ("note = 'X'", 0),
        ("seen >= '2020-01-01'", 2),
        ("id = '2'", 1),
    ],
)
def test_a_condition_chooses_rows_with_three_truth_values(
    upstream: Upstream, condition: str, found: int
) -> None:
    assert execute(upstream, f"DELETE FROM shop.items WHERE {condition}").rows == found
    assert len(upstream.rows(ITEMS)) == 2 - found


def test_what_changes_nothing_is_no_commit(upstream: Upstream) -> None:
    before = len(upstream.history)
    done = execute(upstream, "UPDATE shop.items SET note = 'x' WHERE id = 1")
    assert (done.rows, done.commit_ts, len(upstream.history)) == (0, None, before)
    assert done.text == "shop.items: 0 rows changed, nothing was committed"
    execute(upstream, "UPDATE shop.items SET tags = 'a,b', doc = '{\"a\":1,\"b\":2}'")
    before = len(upstream.history)
    done = execute(upstream, "UPDATE shop.items SET tags = 'b,a', doc = '{\"b\": 2, \"a\": 1}'")
    assert (done.rows, done.commit_ts, len(upstream.history)) == (0, None, before)


def test_mysql_is_spoken(upstream: Upstream) -> None:
    execute(
        upstream,
        "UPDATE shop.items AS i SET i.note = CONCAT(\"it's \", IF(price > 1, 'dear', 'cheap')), "
        "`at` = NOW() - INTERVAL 1 DAY, born = CURDATE(), made = YEAR(CURDATE()), "
        "flags = 7 DIV 2, price = price / 4 WHERE i.id <=> 1 -- a comment",
    )
    stored = row(upstream)
    now = datetime.now(ZoneInfo("Asia/Shanghai"))
    assert (stored["note"], stored["flags"], stored["price"]) == ("it's dear", "3", "0.38")
    assert (stored["at"] or "").startswith(f"{now - timedelta(days=1):%Y-%m-%d %H:}")
    assert (stored["born"], stored["made"]) == (f"{now:%Y-%m-%d}", f"{now:%Y}")


def test_rows_come_from_other_tables(upstream: Upstream) -> None:
    execute(upstream, "CREATE TABLE shop.copies LIKE shop.items")
    text = "INSERT INTO shop.copies (id, note) SELECT id + 10, note FROM shop.items"
    assert execute(upstream, text).rows == 2
    text = "DELETE FROM shop.items WHERE note IN (SELECT note FROM shop.copies WHERE id > 11)"
    assert execute(upstream, text).rows == 1
    query = "WITH n AS (SELECT max(id) AS top FROM shop.copies)"
    text = f"{query} UPDATE shop.items SET id = 1 + (SELECT top FROM n)"
    assert execute(upstream, text).rows == 1
    assert set(upstream.rows(ITEMS)) == {("13",)}


def test_cells_that_duckdb_cannot_hold_are_kept(upstream: Upstream) -> None:
    name = ("shop", "odd")
    columns = (
        column("id", "int", nullable=False),
        column("at", "datetime"),
        column("wide", "decimal(65,30)"),
        column("raw", "blob"),
        column("n", "int"),
    )
    upstream.create_table(name, columns, primary_key=("id",))
    wide = f"{'9' * 35}.{'1' * 30}"
    odd = {"id": "1", "at": "0000-00-00 00:00:00", "wide": wide, "raw": "0x00ff", "n": None}
    with upstream.transaction() as transaction:
        transaction.insert(name, odd)
    assert execute(upstream, "UPDATE shop.odd SET n = 5").rows == 1
    assert upstream.rows(name)["1",] == odd | {"n": "5"}


def test_an_update_of_a_key_is_one_row(upstream: Upstream) -> None:
    done = execute(upstream, "UPDATE shop.items SET id = id + 10 WHERE id = 2")
    assert (done.rows, set(upstream.rows(ITEMS))) == (1, {("1",), ("12",)})


def test_tables_are_created_renamed_truncated_and_dropped(upstream: Upstream) -> None:
    text = (
        "CREATE TABLE shop.t (a int, B varchar(5) NOT NULL DEFAULT 'x', c timestamp(3) DEFAULT "
        "CURRENT_TIMESTAMP(3), primary key (a, b) /*T![clustered_index] NONCLUSTERED */, "
        "UNIQUE KEY u (c))"
    )
    assert execute(upstream, text).text.startswith("shop.t: created, commit ts ")
    schema = upstream.schema(("shop", "t"))
    assert schema.handle_key == ("a", "B")
    execute(upstream, "INSERT INTO shop.t (a) VALUES (1)")
    execute(upstream, "RENAME TABLE shop.t TO shop.aside, shop.items TO shop.t")
    assert len(upstream.rows(("shop", "aside"))) == 1
    assert execute(upstream, "TRUNCATE TABLE shop.aside").done == "truncated"
    assert not upstream.rows(("shop", "aside"))
    assert execute(upstream, "drop table shop.ASIDE").done == "dropped"
    assert upstream.tables == (("shop", "t"),)


def test_a_vector_without_a_size_takes_any(upstream: Upstream) -> None:
    execute(upstream, "CREATE TABLE shop.t (id int PRIMARY KEY, v vector)")
    execute(upstream, "INSERT INTO shop.t VALUES (1, '[1,2.5,3]'), (2, '[4]')")
    assert [row["v"] for row in upstream.rows(("shop", "t")).values()] == ["[1,2.5,3]", "[4]"]


def test_renames_are_all_done_or_none(upstream: Upstream) -> None:
    execute(upstream, "CREATE TABLE shop.t LIKE shop.items")
    before, truth = len(upstream.history), upstream.truth()
    with pytest.raises(StatementError, match=r"there is a table shop\.items; nothing was changed"):
        execute(
            upstream,
            "RENAME TABLE shop.items TO shop.x, shop.t TO shop.y, shop.x TO shop.items, "
            "shop.y TO shop.items",
        )
    assert (len(upstream.history), upstream.truth()) == (before, truth)


def test_columns_have_the_character_set_of_their_table(upstream: Upstream) -> None:
    execute(upstream, "CREATE TABLE shop.t (a int PRIMARY KEY, b char(3)) DEFAULT CHARSET=latin1")
    assert upstream.schema(("shop", "t")).columns[1].charset == "latin1"


def test_a_table_without_a_key_is_said_to_stay_upstream(upstream: Upstream) -> None:
    said = execute(upstream, "CREATE TABLE shop.t (a int)").text
    assert "created (TiCDC does not send tables without a primary" in said


def test_columns_are_modified(upstream: Upstream) -> None:
    execute(
        upstream,
        "ALTER TABLE shop.items MODIFY COLUMN Price decimal(10,4) DEFAULT 1 FIRST, "
        "CHANGE note remark varchar(30)",
    )
    assert (row(upstream)["price"], row(upstream)["remark"]) == ("1.5000", "x")
    assert upstream.stored(ITEMS).order[0] == "price"
    assert upstream.schema(ITEMS).columns[-1].default == "1"


def test_columns_are_added_renamed_and_dropped(upstream: Upstream) -> None:
    added = "ADD COLUMN gift tinyint(1) NOT NULL DEFAULT 1, ADD b bit(4) DEFAULT b'11' AFTER price"
    done = execute(upstream, f"ALTER TABLE shop.items {added}")
    assert done.text == f"shop.items: altered, commit ts {done.commit_ts}"
    assert (row(upstream)["gift"], row(upstream)["b"]) == ("1", "3")
    execute(upstream, "ALTER TABLE shop.items ADD t timestamp DEFAULT '2026-01-01 08:00:00'")
    added_column = upstream.schema(ITEMS).columns[-1]
    assert added_column.default == "2026-01-01 00:00:00", "a default travels in UTC"
    assert row(upstream)["t"] == "2026-01-01 08:00:00"
    execute(upstream, "ALTER TABLE shop.items ADD COLUMN e enum('x','y, z') DEFAULT 'y, z'")
    assert row(upstream)["e"] == "y, z"
    execute(upstream, "ALTER TABLE shop.items RENAME COLUMN gift TO present")
    execute(upstream, "ALTER TABLE shop.items DROP COLUMN e")
    assert "present" in row(upstream)
    assert not {"gift", "e"} & row(upstream).keys()


def test_values_without_names_are_for_the_columns_in_their_order(upstream: Upstream) -> None:
    upstream.create_table(("shop", "t"), (column("id", "int"), column("v", "int")))
    execute(upstream, "ALTER TABLE shop.t ADD COLUMN first int FIRST")
    execute(upstream, "ALTER TABLE shop.t ADD COLUMN mid int AFTER id")
    execute(upstream, "INSERT INTO shop.t VALUES (1, 2, 3, 4)")
    (stored,) = upstream.rows(("shop", "t")).values()
    assert stored == {"first": "1", "id": "2", "mid": "3", "v": "4"}


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("", "one statement is needed, got 0"),
        ("DELETE FROM shop.items; DELETE FROM shop.items", "one statement is needed, got 2"),
        ("SELECT 1", "SELECT is not supported here"),
        ("LOCK TABLES shop.items READ", "LOCK is not supported here"),
        ("REPLACE INTO shop.items VALUES (1)", "REPLACE is not supported here"),
        ("UPDATE shop.items SET (", "it cannot be parsed"),
        ("UPDATE shop.items SET note = 'y' LIMIT 1", "'LIMIT 1' is not supported here"),
        ("UPDATE shop.items JOIN shop.items i ON TRUE SET note = 'y'", "is not supported here"),
        ("DELETE i FROM shop.items i", "is not supported here"),
        ("INSERT IGNORE INTO shop.items (id) VALUES (9)", "'IGNORE' is not supported here"),
        (
            "INSERT INTO shop.items (id) VALUES (1) ON DUPLICATE KEY UPDATE id = 2",
            "is not supported here",
        ),
        ("ALTER TABLE shop.items ADD INDEX (price)", "ADD INDEX is not supported here"),
        ("ALTER TABLE shop.items ADD c int AUTO_INCREMENT", "AUTO_INCREMENT is not supported here"),
        ("ALTER TABLE shop.items ADD c datetime ON UPDATE now()", "ON UPDATE is not supported"),
        ("ALTER TABLE shop.items ADD c int NONSENSE", "'NONSENSE' is not supported here"),
        ("ALTER TABLE shop.items ADD c int UNIQUE", "a key of a column in ALTER TABLE"),
        ("ALTER TABLE shop.items MODIFY price int PRIMARY KEY", "a key of a column in ALTER TABLE"),
        ("ALTER TABLE shop.items COMMENT 'x'", "such a change is not supported here"),
        ("ALTER TABLE shop.items DROP COLUMN IF EXISTS note", "IF EXISTS"),
        ("DROP TABLE shop.items, shop.others", "DROP TABLE is not supported here"),
        ("INSERT INTO shop.items (id) SELECT size FROM read_text('/etc/passwd')", "READ_TEXT"),
        ("CREATE TABLE t (id int)", "a table is needed, as database.table"),
        ("CREATE TABLE shop.t AS SELECT 1", "with a query or partitions is not supported here"),
        ("DROP DATABASE shop", "DROP DATABASE is not supported here"),
    ],
)
def test_a_statement_that_is_not_supported_is_told_what_is(
    upstream: Upstream, sql: str, said: str
) -> None:
    before = len(upstream.history)
    with pytest.raises(StatementError) as caught:
        execute(upstream, sql)
    told = str(caught.value)
    assert said in told
    assert "nothing was changed" in told
    assert all(item in told for item in SUPPORTED)
    assert len(upstream.history) == before


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("DELETE FROM items", "there is no table items; as database.table there are shop.items"),
        ("UPDATE shop.items SET nope = 1", "update column nope not found in table"),
        ("DELETE FROM shop.items WHERE nope = 1", 'Referenced column "nope" not found'),
        ("DELETE FROM shop.items WHERE SLEEP(1)", "name sleep does not exist"),
        ("UPDATE shop.items SET note = (SELECT a FROM shop.b)", "there is no table shop.b"),
        ("UPDATE shop.items SET state = 'old'", "'old' is no value of 'state' enum('new',"),
        ("UPDATE shop.items SET price = 1000000", "'1000000.00' is no value of 'price' decimal"),
        ("UPDATE shop.items SET made = 1900", "'1900' is no value of 'made' year"),
        ("UPDATE shop.items SET tags = 'c'", "'c' is no value of 'tags' set('a','b')"),
        ("UPDATE shop.items SET flags = 256", "'256' is no value of 'flags' bit(8)"),
        ("UPDATE shop.items SET took = '900:00:00'", "'900:00:00' is no value of 'took' time"),
        ("UPDATE shop.items SET place = '[1]'", "'[1]' is no value of 'place' vector(2)"),
        ("UPDATE shop.items SET doc = '{'", "Malformed JSON"),
        ("UPDATE shop.items SET born = 'then'", "then"),
        ("UPDATE shop.items SET state = NULL", "shop.items: 'state' may not be NULL"),
        ("UPDATE shop.items SET id = 5", "shop.items: key ('5',) is taken"),
        ("DELETE FROM shop.items WHERE id = 'x'", "Could not convert string 'x' to a number"),
        ("INSERT INTO shop.items (id) VALUES (1)", "shop.items: key ('1',) is taken"),
        ("INSERT INTO shop.items (id) VALUES (5, 6)", "expected 1 columns but 2 values"),
        ("INSERT INTO shop.items (id, ID) VALUES (5, 6)", "Duplicate column name"),
        ("ALTER TABLE shop.items DROP COLUMN id", "shop.items: 'id' is part of a key"),
        ("ALTER TABLE shop.items DROP COLUMN nope", "there is no column 'nope'; the table has id"),
        ("ALTER TABLE shop.items ADD COLUMN state int", "shop.items: column 'state' exists"),
        ("ALTER TABLE shop.items RENAME COLUMN note TO state", "column 'state' exists"),
        ("ALTER TABLE shop.items ADD COLUMN j json DEFAULT '1'", "cannot have a DEFAULT here"),
        ("ALTER TABLE shop.items ADD COLUMN j int DEFAULT 'x'", "'j' int has a wrong DEFAULT"),
        ("ALTER TABLE shop.items ADD COLUMN `gr\udcf6e` int", "the statement is not in UTF-8"),
        ("CREATE TABLE shop.items (id int)", "there is a table shop.items"),
        ("CREATE TABLE other.items LIKE shop.items", "there is no database other"),
        ("CREATE TABLE shop.t (id int, KEY (nope))", "does not have"),
        ("DROP TABLE shop.nope", "there is no table shop.nope"),
    ],
)
def test_what_the_upstream_refuses_changes_nothing(upstream: Upstream, sql: str, said: str) -> None:
    before, rows = len(upstream.history), dict(upstream.rows(ITEMS))
    with pytest.raises(StatementError) as caught:
        execute(upstream, sql)
    assert said in str(caught.value)
    assert str(caught.value).endswith("nothing was changed")
    assert (len(upstream.history), upstream.rows(ITEMS)) == (before, rows)
