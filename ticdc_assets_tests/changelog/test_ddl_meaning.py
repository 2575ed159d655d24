"""Which table a DDL concerns, and what it does: by table id, text and history together."""

from dataclasses import replace

import pytest

from ticdc_assets.model.events import Bootstrap, DdlEvent, Op
from ticdc_assets.model.schemas import NO_TABLE_ID, ColumnSchema, TableSchema
from ticdc_assets.registry.history import Coordinates, SchemaHistory
from ticdc_assets_tests.changelog.lives import Life, column, of, table
from ticdc_assets_tests.reference.fold import fold
from ticdc_assets_tests.text_tables import created as created_by

WITH_AND_WITHOUT_SCHEMAS = pytest.mark.parametrize("schemas", [True, False])

A, B = table("d.a", 130, 100), table("d.b", 131, 100)


def created(*, schemas: bool) -> Life:
    life = Life(schemas=schemas)
    life.ddl("CREATE TABLE `a` (`id` INT PRIMARY KEY,`v` VARCHAR(40))", A, word="CREATE")
    life.ddl("CREATE TABLE `d`.`b` LIKE `d`.`a`", B, word="CREATE")
    life.row(A, id="1", v="was a")
    life.row(B, id="2", v="was b")
    return life


# Renames without the schema before ------------------------------------------------------------


@WITH_AND_WITHOUT_SCHEMAS
@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("RENAME TABLE `d`.`a` TO `d`.`c`", "RENAME"),
        ("RENAME TABLE `d`.`a` TO `d`.`c`;", "QUERY"),
        ("ALTER TABLE `a` RENAME TO `c`", "ALTER"),
        ("alter table A rename as c", "RENAME"),
    ],
)
def test_a_rename_keeps_the_rows(sql: str, word: str, *, schemas: bool) -> None:
    life = created(schemas=schemas)
    after = table("d.c", 130, 100)
    life.ddl(sql, after, word=word)
    life.row(after, id="3", v="c")
    assert life.whole() == {"d.c": of(("1", "was a"), ("3", "c")), "d.b": of(("2", "was b"))}


@WITH_AND_WITHOUT_SCHEMAS
@pytest.mark.parametrize("last", ["v", "tmp"])
def test_a_renamed_view_is_no_table(last: str, *, schemas: bool) -> None:
    """A table takes the name of a view; the old TiCDC spells the last step `v` TO `a`."""
    life = created(schemas=schemas)
    view = table("d.v", 140, 110)
    life.ddl("CREATE VIEW `d`.`v` AS SELECT * FROM `d`.`b`", view)
    life.ddl("RENAME TABLE `d`.`v` TO `d`.`w`", replace(view, table="w"), before=view)
    life.ddl("RENAME TABLE `d`.`w` TO `d`.`v`", view, before=replace(view, table="w"))
    steps = [(view, "tmp"), (A, "v"), (replace(view, table=last), "a")]
    for number, (before, name) in enumerate(steps):
        sql = f"RENAME TABLE `d`.`{before.table}` TO `d`.`{name}`"
        after = replace(before, table=name)
        life.ddl(sql, after, before=before, word="RENAME", same_ts=number > 0)
    life.row(replace(A, table="v"), id="3", v="v")
    life.ddl("DROP VIEW `d`.`a`", "d.a")
    assert life.whole() == {"d.v": of(("1", "was a"), ("3", "v")), "d.b": of(("2", "was b"))}


def test_a_view_ends_with_its_database() -> None:
    """A table that has its name later, and whose CREATE was not sent, is renamed with its rows."""
    life = Life(schemas=True)
    life.ddl("CREATE VIEW `d`.`v` AS SELECT 1", table("d.v", 140, 110))
    life.ddl("DROP DATABASE `d`")
    life.ddl("CREATE DATABASE `d`")
    before, after = table("d.v", 150, 200), table("d.w", 150, 200)
    life.bootstrap(before)
    life.row(before, id="1", v="was v")
    life.ddl("RENAME TABLE `d`.`v` TO `d`.`w`", after, before=before, word="RENAME")
    life.row(after, id="2", v="w")
    assert life.rows() == {"d.w": of(("1", "was v"), ("2", "w"))}


def test_rows_of_a_table_that_no_message_has_are_held_and_counted() -> None:
    life = created(schemas=True)
    for table_id in (7, 8):
        life.row(table("d.x", table_id, 20), id="1")
    # A row at the commit ts of a DROP is one of the dropped table.
    life.row(A, id="3")
    life.ddl("DROP TABLE `d`.`a`", A, word="DROP", same_ts=True)
    life.ddl("CREATE TABLE `d`.`a` LIKE `d`.`b`", table("d.a", 150, 200), word="CREATE")
    plan, _ = fold(life.events, life.ts + 1, "UTC")
    assert [(group.name, group.rows) for group in plan.held] == [(("d", "x"), 2)]
    assert plan.strays == ()


def test_an_id_tells_the_table_of_a_rename_whose_text_is_not_understood() -> None:
    life = created(schemas=True)
    life.ddl("?? rename", table("d.c", 130, 100), word="RENAME")
    assert life.rows() == {"d.c": of(("1", "was a")), "d.b": of(("2", "was b"))}


@WITH_AND_WITHOUT_SCHEMAS
def test_a_text_without_the_database_of_the_old_name(*, schemas: bool) -> None:
    life = created(schemas=schemas)
    after = table("other.a", 130, 100)
    life.ddl("ALTER TABLE a RENAME TO other.a", after, word="RENAME")
    life.row(after, id="3", v="c")
    assert life.rows() == {"other.a": of(("1", "was a"), ("3", "c")), "d.b": of(("2", "was b"))}
    # An id is proof, the only table of that name is none.
    assert bool(life.caveats()) is not schemas


def test_the_rows_of_an_equal_name_elsewhere_are_not_taken() -> None:
    """Both names are of the session's database, whose table no message has shown."""
    life = created(schemas=False)
    life.ddl("RENAME TABLE a TO c", "e.c", word="RENAME")
    assert life.rows()["d.a"] == of(("1", "was a"))


@WITH_AND_WITHOUT_SCHEMAS
def test_an_online_schema_change_swaps_the_tables(*, schemas: bool) -> None:
    life = created(schemas=schemas)
    old, new = table("d.a_old", 130, 100), table("d.a", 131, 100)
    life.ddl("RENAME TABLE `d`.`a` TO `d`.`a_old`;", old, word="RENAME")
    life.ddl("RENAME TABLE `d`.`b` TO `d`.`a`;", new, word="RENAME", same_ts=True)
    life.row(new, id="3", v="new")
    life.row(old, id="4", v="old")
    assert life.whole() == {
        "d.a": of(("2", "was b"), ("3", "new")),
        "d.a_old": of(("1", "was a"), ("4", "old")),
    }


def swap_in_a_cycle(life: Life, a: int = 100, b: int = 100) -> None:
    """Swap the tables `a` and `b` of these versions, and add a row to each afterwards."""
    steps = [
        ("RENAME TABLE `d`.`a` TO `d`.`tmp`;", table("d.tmp", NO_TABLE_ID, a)),
        ("RENAME TABLE `d`.`b` TO `d`.`a`;", table("d.a", B.table_id, b)),
        ("RENAME TABLE `d`.`tmp` TO `d`.`b`;", table("d.b", A.table_id, a)),
    ]
    for number, step in enumerate(steps):
        life.ddl(*step, word="RENAME", same_ts=number > 0)
    life.row(table("d.b", A.table_id, a), id="11", v="a2")
    life.row(table("d.a", B.table_id, b), id="12", v="b2")


SWAPPED = {"d.a": of(("2", "was b"), ("12", "b2")), "d.b": of(("1", "was a"), ("11", "a2"))}


def test_a_cyclic_rename_of_tables_that_were_not_seen_before() -> None:
    life = Life(schemas=True)
    swap_in_a_cycle(life)
    assert life.rows() == {"d.a": of(("12", "b2")), "d.b": of(("11", "a2"))}
    ids = {name: plan.mirror_id for name, plan in life.plans().items()}
    assert ids == {"d.a": "131", "d.b": "130"}


@pytest.mark.parametrize("altered", ["a", "b", "a b", "b a"])
def test_partition_ddl_without_a_table_id_leaves_tables_apart(altered: str) -> None:
    """TiCDC v8.5.4 and v8.5.5 send the id 0 with it, and right ones with other DDL."""
    life = created(schemas=True)
    versions = dict.fromkeys("ab", 100)
    for version, name in enumerate(altered.split(), start=1_100):
        versions[name] = version
        sql = f"ALTER TABLE `d`.`{name}` ADD PARTITION (PARTITION `p9` VALUES LESS THAN (99))"
        life.ddl(sql, table(f"d.{name}", 0, version), word="ALTER")
    swap_in_a_cycle(life, **versions)
    assert life.whole() == SWAPPED


def test_an_id_under_another_name_is_marked() -> None:
    life = created(schemas=True)
    after = table("d.c", 130, 200, "id v w")
    life.ddl("ALTER TABLE `c` ADD COLUMN `w` VARCHAR(40)", after, word="ALTER")
    life.row(after, id="3", v="c", w="x")
    assert [row["id"] for row in life.rows()["d.c"]] == ["1", "3"]
    assert life.caveats() == {"d.c": ["the table was renamed, and no message says when"]}


@pytest.mark.parametrize("table_id", [A.table_id, B.table_id])
def test_a_recreated_cluster_gives_ids_again(table_id: int) -> None:
    life = created(schemas=True)
    life.ddl("CREATE TABLE `d`.`b` LIKE `d`.`a`", table("d.b", table_id, 1_050), word="CREATE")
    after = table("d.b", table_id, 1_060, "id v w")
    life.ddl("ALTER TABLE `d`.`b` ADD COLUMN `w` VARCHAR(40)", after, word="ALTER")
    life.row(after, id="3", v="new", w="x")
    assert life.whole() == {"d.a": of(("1", "was a")), "d.b": [{"id": "3", "v": "new", "w": "x"}]}


def test_a_restored_cluster_gives_ids_of_one_table_to_another() -> None:
    """Its tables come without a CREATE."""
    life = created(schemas=True)
    after = table("d.b", A.table_id, 1_060, "id v w")
    life.bootstrap(table("d.b", A.table_id, 1_050))
    life.row(table("d.b", A.table_id, 1_050), id="3", v="more")
    life.ddl("ALTER TABLE `d`.`b` ADD COLUMN `w` VARCHAR(40)", after, word="ALTER")
    assert life.whole()["d.a"] == of(("1", "was a"))
    assert [row["id"] for row in life.rows()["d.b"]] == ["2", "3"]


@WITH_AND_WITHOUT_SCHEMAS
def test_rename_and_change_in_one_statement(*, schemas: bool) -> None:
    life = created(schemas=schemas)
    after = table("d.c", 130, 1_050, "id v w")
    life.ddl(
        "ALTER TABLE `a` ADD COLUMN `w` VARCHAR(40) DEFAULT 'x', RENAME TO `c`", after, word="ALTER"
    )
    life.row(after, id="3", v="c", w="y")
    assert life.rows()["d.c"] == [
        {"id": "1", "v": "was a", "w": None if schemas else "x"},
        {"id": "3", "v": "c", "w": "y"},
    ]


# The other kinds, without the schema before ---------------------------------------------------


PARTITIONED = (
    "CREATE TABLE p (id INT PRIMARY KEY, v VARCHAR(40)) PARTITION BY RANGE (id) "
    "(PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))"
)


@WITH_AND_WITHOUT_SCHEMAS
@pytest.mark.parametrize("word", ["TRUNCATE", "QUERY", "ALTER", "ERASE", "RENAME"])
def test_a_text_means_the_same_under_any_word(word: str, *, schemas: bool) -> None:
    life = created(schemas=schemas)
    truncated, new = table("d.a", 150, 100), table("d.n", 140, 100)
    # A row of a version that no message has: at the commit ts of the DDL it comes before that.
    life.row(table("d.a", 130, 99), id="4", v="gone")
    life.ddl("TRUNCATE TABLE `d`.`a`", truncated, word=word, same_ts=True)
    life.row(truncated, id="3", v="new")
    life.ddl("DROP TABLE `d`.`b`", B, word=word)
    life.ddl("CREATE TABLE `d`.`n` (`id` INT PRIMARY KEY,`v` VARCHAR(40))", new, word=word)
    life.row(new, id="3", v="n")
    parts = table("d.p", 145, 100)
    life.ddl(PARTITIONED, parts, word=word)
    life.row(parts, id="1", v="p0")
    life.row(parts, id="11", v="p1")
    emptied = replace(parts, version=life.ts + 5)
    life.ddl("ALTER TABLE `p` TRUNCATE PARTITION `p1`", emptied, word=word)
    assert life.whole() == {"d.a": of(("3", "new")), "d.n": of(("3", "n")), "d.p": of(("1", "p0"))}
    plans = life.plans()
    assert plans["d.a"].held == ()
    assert plans["d.n"].floor_ts > 0


# Several tables and several statements of one text --------------------------------------------


@WITH_AND_WITHOUT_SCHEMAS
@pytest.mark.parametrize("messages", [["d.a"], ["d.b"], ["d.a", "d.b"], ["d.x"]])
def test_all_tables_of_a_drop_are_dropped(messages: list[str], *, schemas: bool) -> None:
    life = created(schemas=schemas)
    known = {"d.a": A, "d.b": B}
    for number, name in enumerate(messages):
        life.ddl("DROP TABLE a, `d`.b", known.get(name, name), word="ERASE", same_ts=number > 0)
    assert life.rows() == {}


@WITH_AND_WITHOUT_SCHEMAS
def test_all_tables_of_a_database_are_dropped(*, schemas: bool) -> None:
    life = created(schemas=schemas)
    other = table("e.a", 140, 100)
    life.ddl("CREATE TABLE `e`.`a` LIKE `d`.`a`", other, word="CREATE")
    life.row(other, id="3", v="e")
    life.ddl("/* gone */ DROP SCHEMA IF EXISTS `D`", "D")
    assert life.whole() == {"e.a": of(("3", "e"))}
    life.ddl("CREATE DATABASE `d`", "d")
    again = table("d.a", 150, 2_000)
    life.ddl("CREATE TABLE `a` (`id` INT PRIMARY KEY,`v` VARCHAR(40))", again, word="CREATE")
    life.row(again, id="4", v="new")
    assert life.whole() == {"e.a": of(("3", "e")), "d.a": of(("4", "new"))}


@WITH_AND_WITHOUT_SCHEMAS
@pytest.mark.parametrize("messages", [["d.c"], ["d.b"], ["d.c", "d.a"], ["d.a", "d.c"]])
def test_all_pairs_of_a_rename_are_renamed(messages: list[str], *, schemas: bool) -> None:
    life = created(schemas=schemas)
    known = {"d.c": table("d.c", 130, 100), "d.a": table("d.a", 131, 100)}
    for number, name in enumerate(messages):
        life.ddl(
            "RENAME TABLE a TO c, b TO a", known.get(name, name), word="RENAME",
            same_ts=number > 0, partition=number,
        )  # fmt: skip
    life.row(table("d.a", 131, 100), id="3", v="new")
    assert life.rows() == {"d.c": of(("1", "was a")), "d.a": of(("2", "was b"), ("3", "new"))}


def test_all_statements_of_a_text_are_applied_in_their_order() -> None:
    life = created(schemas=False)
    life.ddl(
        "USE d; CREATE TABLE a2 LIKE a; RENAME TABLE a TO a_old, a2 TO a; DROP TABLE b; "
        "ALTER TABLE a ADD COLUMN w VARCHAR(40)",
        "d.a",
        word="QUERY",
    )
    life.row(table("d.a", 0, 0, "id v w"), id="3", v="new", w="x")
    assert life.rows() == {
        "d.a": [{"id": "3", "v": "new", "w": "x"}],
        "d.a_old": of(("1", "was a")),
    }


# Names in another case ------------------------------------------------------------------------


@WITH_AND_WITHOUT_SCHEMAS
def test_a_rename_and_its_rows_may_write_the_database_in_lower_case(*, schemas: bool) -> None:
    """The old TiCDC does, until the next DDL of the table."""
    life = Life(schemas=schemas)
    first, lower = table("Shop.A", 130, 100), table("shop.B", 130, 100)
    life.ddl("CREATE TABLE `A` (`id` INT PRIMARY KEY,`v` VARCHAR(40))", first, word="CREATE")
    life.row(first, id="1", v="1")
    life.ddl("RENAME TABLE `A` TO `B`", lower, before=first, word="RENAME")
    life.row(lower, id="2", v="2")
    assert life.rows() == {"Shop.B": of(("1", "1"), ("2", "2"))}
    after = table("Shop.B", 130, 200, "id v w")
    life.ddl("ALTER TABLE `B` ADD COLUMN `w` VARCHAR(40)", after, before=lower, word="ALTER")
    life.row(after, id="3", v="3", w="w")
    life.row(after, op=Op.DELETE, id="1", v="1", w=None)
    assert life.whole() == {
        "Shop.B": [{"id": "2", "v": "2", "w": None}, {"id": "3", "v": "3", "w": "w"}]
    }
    truncated = table("SHOP.b", 150, 200, "id v w")
    life.ddl("TRUNCATE TABLE `B`", truncated, word="TRUNCATE")
    life.row(truncated, id="4", v="4", w="w")
    assert life.rows() == {"Shop.B": [{"id": "4", "v": "4", "w": "w"}]}
    life.ddl("DROP TABLE `SHOP`.`B`", truncated, word="ERASE")
    assert life.rows() == {}


@WITH_AND_WITHOUT_SCHEMAS
@pytest.mark.parametrize("is_bootstrapped", [True, False])
def test_rows_may_cite_their_table_in_another_case_without_a_ddl(
    *, is_bootstrapped: bool, schemas: bool
) -> None:
    """A restart of TiCDC reads the names from TiDB again."""
    life = Life(schemas=schemas)
    lower, other = table("shop.b", 130, 100), table("Shop.b", 130, 100)
    life.ddl("CREATE TABLE `b` (`id` INT PRIMARY KEY,`v` VARCHAR(40))", lower, word="CREATE")
    life.row(lower, id="1", v="1")
    if is_bootstrapped:
        life.bootstrap(other)
    life.row(other, id="1", v="2")
    life.row(lower, id="2", v="3")
    assert life.whole() == {"shop.b": of(("1", "2"), ("2", "3"))}
    plan, _ = fold(life.events, life.ts + 1, "UTC")
    assert (plan.held, plan.strays) == ((), ())


@WITH_AND_WITHOUT_SCHEMAS
def test_a_ddl_says_how_the_name_is_written(*, schemas: bool) -> None:
    """The changefeed began after a RENAME that the old TiCDC sent in lower case."""
    life = Life(schemas=schemas)
    lower, after = table("shop.b", 130, 100), table("Shop.b", 130, 200, "id v w")
    life.bootstrap(lower)
    life.row(lower, id="1", v="1")
    life.ddl("ALTER TABLE `b` ADD COLUMN `w` VARCHAR(40)", after, word="ALTER")
    life.row(after, id="2", v="2", w="w")
    assert life.whole() == {
        "Shop.b": [{"id": "1", "v": "1", "w": None}, {"id": "2", "v": "2", "w": "w"}]
    }


@WITH_AND_WITHOUT_SCHEMAS
def test_a_rename_that_changes_the_case_alone(*, schemas: bool) -> None:
    life = created(schemas=schemas)
    after = table("d.A", 130, 100)
    life.ddl("RENAME TABLE `d`.`a` TO `d`.`A`", after, before=A, word="RENAME")
    life.row(after, id="3", v="A")
    assert life.whole() == {"d.A": of(("1", "was a"), ("3", "A")), "d.b": of(("2", "was b"))}
    assert [item.table for item in life.plans()["d.A"].bindings] == ["a", "A"]


# Texts that are not understood ----------------------------------------------------------------


@WITH_AND_WITHOUT_SCHEMAS
@pytest.mark.parametrize("word", ["ALTER", "QUERY"])
def test_a_text_that_is_not_understood_marks_its_table(word: str, *, schemas: bool) -> None:
    life = created(schemas=schemas)
    life.ddl("FROBNICATE TABLE `a`", A, word=word)
    assert life.rows() == {"d.a": of(("1", "was a")), "d.b": of(("2", "was b"))}
    assert set(life.caveats()) == {"d.a"}
    assert "not understood" in life.caveats()["d.a"][0]


@pytest.mark.parametrize(("word", "left"), [("ERASE", {"d.b"}), ("TRUNCATE", {"d.a", "d.b"})])
def test_the_word_counts_where_there_is_no_text(word: str, left: set[str]) -> None:
    life = created(schemas=False)
    life.ddl("", A, word=word)
    assert set(life.rows()) == left
    assert life.rows().get("d.a", []) == []


# EXCHANGE PARTITION ---------------------------------------------------------------------------


def exchanging(*, schemas: bool, database: str = "d") -> tuple[Life, dict[str, TableSchema]]:
    """Return a partitioned table and another one, whose structure was once another."""
    life = Life(schemas=schemas)
    parts = table("d.p", 140, 1_005)
    plain = table(f"{database}.n", 150, 1_015, "id")
    same = table(f"{database}.n", 150, 1_035)
    life.ddl(PARTITIONED, parts, word="CREATE")
    life.ddl(f"CREATE TABLE `{database}`.`n` (`id` INT PRIMARY KEY)", plain, word="CREATE")
    life.row(plain, id="1")
    life.ddl(f"ALTER TABLE `{database}`.`n` ADD COLUMN `v` VARCHAR(40)", same, word="ALTER")
    life.row(same, id="2", v="n2")
    life.row(parts, id="3", v="p0")
    life.row(parts, id="13", v="p1")
    return life, {"parts": parts, "same": same}


@WITH_AND_WITHOUT_SCHEMAS
@pytest.mark.parametrize("database", ["d", "e"])
@pytest.mark.parametrize("word", ["ALTER", "QUERY"])
def test_exchanges_of_newer_ticdc(word: str, database: str, *, schemas: bool) -> None:
    life, _ = exchanging(schemas=schemas, database=database)
    before = table(f"{database}.n", 150, 1_035)
    # The partitioned table comes under the database of the other one; without schemas the message
    # names the other one.
    after = table(f"{database}.p", 140, 1_005) if schemas else f"{database}.n"
    sql = f"ALTER TABLE `d`.`p` EXCHANGE PARTITION `p0` WITH TABLE `{database}`.`n`"
    life.ddl(sql, after, before=before, word=word)
    # Its rows cite the version of the partitioned table, which is older than all of its own.
    now = table(f"{database}.n", 141, 1_005)
    life.bootstrap(now)
    life.row(now, id="4", v="new n")
    parts = table("d.p", 140, 1_005)
    life.row(parts, id="5", v="new p0")
    assert life.whole() == {
        "d.p": of(("1", None), ("2", "n2"), ("5", "new p0"), ("13", "p1")),
        f"{database}.n": of(("3", "p0"), ("4", "new n")),
    }
    # Back again, and on.
    before = table(f"{database}.n", 141, 1_005)
    life.ddl(sql, after, before=before, word=word)
    again = table(f"{database}.n", 150, 1_005)
    life.bootstrap(again)
    life.row(again, id="6", v="6")
    wider = table(f"{database}.n", 150, life.ts + 5, "id v w")
    life.ddl(f"ALTER TABLE `{database}`.`n` ADD COLUMN `w` VARCHAR(40)", wider, word="ALTER")
    life.row(wider, id="7", v="7", w="w")
    assert life.whole() == {
        "d.p": of(("3", "p0"), ("4", "new n"), ("13", "p1")),
        f"{database}.n": [
            {"id": "1", "v": None, "w": None},
            {"id": "2", "v": "n2", "w": None},
            {"id": "5", "v": "new p0", "w": None},
            {"id": "6", "v": "6", "w": None},
            {"id": "7", "v": "7", "w": "w"},
        ],
    }


@WITH_AND_WITHOUT_SCHEMAS
def test_an_exchange_of_tables_that_differ_in_the_case_of_a_name(*, schemas: bool) -> None:
    """TiDB compares neither that nor the defaults; rows are as their own table is."""
    life, tables = exchanging(schemas=schemas)
    own = table("d.n", 150, 1_045, "id V")
    own = replace(own, columns=(own.columns[0], replace(own.columns[1], default="x")))
    life.ddl("ALTER TABLE `n` CHANGE COLUMN `v` `V` VARCHAR(40) DEFAULT 'x'", own, word="ALTER")
    after = tables["parts"] if schemas else "d.n"
    sql = "ALTER TABLE `d`.`p` EXCHANGE PARTITION `p0` WITH TABLE `d`.`n`"
    life.ddl(sql, after, before=own, word="ALTER")
    now = replace(own, table_id=141, version=tables["parts"].version)
    life.bootstrap(now)
    life.row(now, id="4", V="new n")
    life.row(tables["parts"], id="5", v="new p0")
    assert life.whole() == {
        "d.p": of(("1", None), ("2", "n2"), ("5", "new p0"), ("13", "p1")),
        "d.n": [{"id": "3", "V": "p0"}, {"id": "4", "V": "new n"}],
    }
    history = SchemaHistory()
    for place, event in life.events:
        if isinstance(event, DdlEvent):
            history.add_ddl(event, place)
        elif isinstance(event, Bootstrap) and event.schema is not None:
            history.add_bootstrap(event.schema, place)
    assert history.conflicts == []


def test_an_exchange_says_what_the_other_table_became_before_it() -> None:
    life, tables = exchanging(schemas=True)
    life.events = [
        (place, event)
        for place, event in life.events
        if not (isinstance(event, DdlEvent) and event.sql.startswith("ALTER"))
    ]
    same, parts = tables["same"], tables["parts"]
    life.ddl("ALTER TABLE `p` EXCHANGE PARTITION `p0` WITH TABLE `n`", parts, before=same)
    life.row(replace(same, table_id=141, version=parts.version), id="4", v="new n")
    assert life.rows() == {
        "d.p": of(("1", None), ("2", "n2"), ("13", "p1")),
        "d.n": of(("3", "p0"), ("4", "new n")),
    }


def test_a_virtual_column_is_none_of_the_mirror_after_an_exchange() -> None:
    """No message says that of the other table, which is older than the changefeed."""
    life = Life(schemas=True)
    parts, other = table("d.p", 140, 1_005, "id v i"), table("d.n", 150, 1_015, "id v i")
    life.ddl(
        "CREATE TABLE p (id INT PRIMARY KEY, v VARCHAR(40), i INT AS (id + 1) VIRTUAL) "
        "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10))",
        parts,
        word="CREATE",
    )
    life.ddl("ALTER TABLE `p` EXCHANGE PARTITION `p0` WITH TABLE `n`", parts, before=other)
    assert life.plans()["d.p"].generated == {"i"}


@WITH_AND_WITHOUT_SCHEMAS
@pytest.mark.parametrize("quoted", ["`p0`", "``p0``"])
def test_an_exchange_that_the_new_ticdc_sends_again_after_the_old_one(
    quoted: str, *, schemas: bool
) -> None:
    """After an upgrade the DDL at the checkpoint may come again, of another name."""
    life, _ = exchanging(schemas=schemas)
    parts, before = table("d.p", 140, 1_005), table("d.n", 150, 1_035)
    old = f"ALTER TABLE `d`.`p` EXCHANGE PARTITION {quoted} WITH TABLE `d`.`n`"
    life.ddl(old, parts, before=before, word="QUERY")
    new = "ALTER TABLE `d`.`p` EXCHANGE PARTITION `p0` WITH TABLE `d`.`n`"
    life.ddl(new, parts if schemas else "d.n", before=before, word="ALTER", same_ts=True)
    assert life.whole() == {
        "d.p": of(("1", None), ("2", "n2"), ("13", "p1")),
        "d.n": of(("3", "p0")),
    }


@WITH_AND_WITHOUT_SCHEMAS
def test_a_column_whose_ddl_the_new_ticdc_sends_again_after_the_old_one(*, schemas: bool) -> None:
    life = created(schemas=schemas)
    after = table("d.a", 130, 1_050, "id v w")
    old = "alter table A add w varchar(40) default 'x' -- more"
    life.ddl(old, after, before=A, word="ALTER")
    new = "ALTER TABLE `d`.`a` ADD COLUMN `w` VARCHAR(40) DEFAULT _UTF8MB4'x'"
    life.ddl(new, after, word="ALTER", same_ts=True)
    assert life.whole()["d.a"] == [{"id": "1", "v": "was a", "w": None if schemas else "x"}]


@WITH_AND_WITHOUT_SCHEMAS
def test_a_partition_whose_ddl_the_new_ticdc_sends_again_after_the_old_one(
    *, schemas: bool
) -> None:
    """Bounds are expressions, which the new one spells in another way."""
    life, found = exchanging(schemas=schemas)
    parts = found["parts"]
    old = "alter table p add partition (partition p2 values less than (15 * 2))"
    life.ddl(old, parts, before=parts, word="ALTER")
    new = "ALTER TABLE `d`.`p` ADD PARTITION (PARTITION `p2` VALUES LESS THAN (15*2))"
    life.ddl(new, parts, word="ALTER", same_ts=True)
    life.row(parts, id="25", v="p2")
    life.ddl("ALTER TABLE `p` DROP PARTITION `p0`,`p2`", parts, word="ALTER")
    assert life.whole()["d.p"] == of(("13", "p1"))


def test_schemas_of_the_new_ticdc_are_those_of_the_old_one() -> None:
    """In Avro the old one sends the fraction of no time type, the new one that of TIMESTAMP."""
    at = replace(column("i"), name="at", mysql_type="timestamp", length=23)
    day = replace(column("i"), name="day", mysql_type="datetime", length=26)
    history = SchemaHistory()

    def conflicts(*columns: ColumnSchema) -> int:
        place = Coordinates(topic="t", partition=0, offset=len(history.versions), index=0)
        history.add_bootstrap(replace(A, columns=(*columns, *A.columns)), place)
        return len(history.conflicts)

    assert conflicts(at, day) == 0
    assert conflicts(day, replace(at, decimal=3)) == 0
    assert conflicts(at, replace(day, decimal=6)) == 0
    assert conflicts(replace(at, length=24, decimal=4), day) == 1


def test_an_exchange_with_a_table_that_is_not_known_is_marked() -> None:
    life = created(schemas=False)
    life.ddl("ALTER TABLE `d`.`p` EXCHANGE PARTITION `p0` WITH TABLE `d`.`a`", "d.a")
    assert set(life.caveats()) == {"d.a"}


def test_a_table_comes_back_that_was_exchanged_and_truncated() -> None:
    """No message had its id between the EXCHANGE and the TRUNCATE: its name says which it was."""
    life, _ = exchanging(schemas=True)
    sql = "ALTER TABLE `d`.`p` EXCHANGE PARTITION `p0` WITH TABLE `d`.`n`"
    life.ddl(sql, table("d.p", 140, 1_005), before=table("d.n", 150, 1_035), word="ALTER")
    life.ddl("TRUNCATE TABLE `n`", table("d.n", 160, 1_035), word="TRUNCATE")
    back = table("d.m", 141, 1_035)
    life.ddl("FLASHBACK TABLE `n` TO `m`", back, word="QUERY")
    life.row(back, id="4", v="4")
    assert life.rows()["d.m"] == of(("3", "p0"), ("4", "4"))
    assert life.whole()["d.n"] == []


@WITH_AND_WITHOUT_SCHEMAS
def test_partitions_by_a_virtual_column_are_not_known(*, schemas: bool) -> None:
    sql = (
        "CREATE TABLE t (id INT PRIMARY KEY, v INT AS (id * 2) VIRTUAL) PARTITION BY RANGE (v)"
        " (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))"
    )
    made = created_by(sql, version=100, table="t")
    life = Life(schemas=schemas)
    life.ddl(sql, made, word="CREATE")
    life.row(replace(made, columns=made.columns[:1]), id="9")
    after = replace(made, version=200)
    life.ddl("ALTER TABLE t DROP PARTITION p0", after, before=made, word="ALTER")
    assert life.rows() == {"d.t": [{"id": "9"}]}
    ((reason,),) = life.caveats().values()
    assert reason.endswith("no row has the column 'v' of the expression")


# Names that tables take in turn ---------------------------------------------------------------


@pytest.mark.parametrize("later", ["FLASHBACK", "EXCHANGE"])
def test_rows_of_a_name_that_two_tables_had_in_turn_stay_apart(later: str) -> None:
    """The group of rows that cite one version of a name includes times of the other table.

    Whose version it is must be known though its table's id now is that of two, or of none.
    """
    life, tables = exchanging(schemas=True)
    own, parts = table("d.a", 130, 1_000), tables["parts"]
    other = replace(tables["same"], table="n")
    life.ddl("CREATE TABLE `a` (`id` INT PRIMARY KEY,`v` VARCHAR(40))", own, word="CREATE")
    narrow = table("d.n", 150, life.ts + 5, "id")
    life.ddl("ALTER TABLE `n` DROP COLUMN `v`", narrow, before=other, word="ALTER")

    def renamed(schema: TableSchema, name: str) -> TableSchema:
        after = replace(schema, table=name)
        text = f"RENAME TABLE `{schema.table}` TO `{name}`"
        life.ddl(text, after, before=schema, word="RENAME")
        return after

    x = renamed(narrow, "x")
    life.row(x, id="5")
    y = renamed(x, "y")
    life.row(renamed(own, "x"), id="6", v="a")
    renamed(replace(own, table="x"), "a")
    x = renamed(y, "x")
    life.row(x, id="7")
    wide = replace(x, version=life.ts + 5, columns=other.columns)
    life.ddl("ALTER TABLE `x` ADD COLUMN `v` VARCHAR(40)", wide, before=x, word="ALTER")
    if later == "FLASHBACK":
        after = replace(wide, table_id=160)
        life.ddl("TRUNCATE TABLE `x`", after, before=wide, word="TRUNCATE")
        back = replace(wide, table="z", version=life.ts + 5)
        life.ddl("FLASHBACK TABLE `x` TO `z`", back, word="RECOVER")
    else:
        sql = "ALTER TABLE `p` EXCHANGE PARTITION `p0` WITH TABLE `x`"
        life.ddl(sql, parts, before=wide, word="ALTER")
    assert life.whole()["d.a"] == of(("6", "a"))
