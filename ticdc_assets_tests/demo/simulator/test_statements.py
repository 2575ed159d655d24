"""Statements in SQL on the stand-in upstream: what they do, and what is refused whole."""

from collections.abc import Mapping

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
        ("took = '-101:02:03.45'", "took", "-101:02:03.4"),
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
        ("TRUNCATE TABLE shop.items", "TRUNCATE is not supported here"),
        ("REPLACE INTO shop.items VALUES (1)", "REPLACE is not supported here"),
        ("UPDATE shop.items SET (", "it cannot be parsed"),
        ("UPDATE shop.items SET note = 'y' LIMIT 1", "'LIMIT 1' is not supported here"),
        ("UPDATE shop.items i SET note = 'y'", "'i' is not supported here"),
        ("DELETE i FROM shop.items i", "is not supported here"),
        ("INSERT IGNORE INTO shop.items (id) VALUES (9)", "'IGNORE' is not supported here"),
        ("INSERT INTO shop.items SELECT 1", "INSERT needs VALUES"),
        ("ALTER TABLE shop.items ADD INDEX (price)", "'ADD INDEX (price)' is not supported here"),
        ("ALTER TABLE shop.items ADD c int COMMENT 'x'", "COMMENT 'x'"),
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
        ("UPDATE shop.items SET nope = 1", "there is no column 'nope'; the table has id, state"),
        ("DELETE FROM shop.items WHERE nope = 1", "there is no column 'nope'"),
        ("DELETE FROM shop.items WHERE SLEEP(1)", "SLEEP(1)' is not supported here"),
        ("UPDATE shop.items SET note = (SELECT 1)", "'(SELECT 1)' is not supported here"),
        ("UPDATE shop.items SET state = 'old'", "'old' is no value of 'state' enum('new',"),
        ("UPDATE shop.items SET price = 1000000", "1000000 is no value of 'price' decimal(8,2)"),
        ("UPDATE shop.items SET state = NULL", "'state' may not be NULL"),
        ("UPDATE shop.items SET id = 5", "shop.items: key ('5',) is taken"),
        ("DELETE FROM shop.items WHERE id = 'x'", "'x' is not a number"),
        ("INSERT INTO shop.items (id) VALUES (1)", "shop.items: key ('1',) is taken"),
        ("INSERT INTO shop.items (id) VALUES (5, 6)", "row 1 has 2 values for 1 columns"),
        ("INSERT INTO shop.items (id, ID) VALUES (5, 6)", "a column is named twice"),
        ("ALTER TABLE shop.items DROP COLUMN id", "part of a key"),
        ("ALTER TABLE shop.items ADD COLUMN j json DEFAULT '1'", "cannot have a DEFAULT here"),
        ("ALTER TABLE shop.items ADD COLUMN g geometry", "not a column type: 'geometry'"),
    ],
)
def test_what_the_upstream_refuses_changes_nothing(upstream: Upstream, sql: str, said: str) -> None:
    before, rows = len(upstream.history), dict(upstream.rows(ITEMS))
    with pytest.raises(StatementError) as caught:
        execute(upstream, sql)
    assert said in str(caught.value)
    assert str(caught.value).endswith("nothing was changed")
    assert (len(upstream.history), upstream.rows(ITEMS)) == (before, rows)
