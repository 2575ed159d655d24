"""A column that row changes do not have is not known in their rows, and the mirror says so."""

from ticdc_assets_tests.changelog.lives import Life, table

FULL, NARROW = table("d.a", 130, 100, "id v w"), table("d.a", 130, 100, "id v")
CREATE = "CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(40), w VARCHAR(40))"
LACKS_W = "row changes lack column 'w': its value in their rows is not known"


def test_a_column_that_rows_begin_to_lack() -> None:
    """As when a column selector was set later."""
    life = Life(schemas=False)
    life.ddl(CREATE, FULL, word="CREATE")
    life.row(FULL, id="1", v="a", w="b")
    assert life.caveats() == {}
    life.row(NARROW, id="1", v="c")
    assert life.caveats() == {"d.a": [LACKS_W]}
    life.ddl("TRUNCATE TABLE a", FULL, word="TRUNCATE")
    life.row(FULL, id="2", v="a", w="b")
    assert life.caveats() == {}


def test_a_column_that_no_row_ever_had_is_no_column_of_the_mirror() -> None:
    life = Life(schemas=False)
    life.ddl(CREATE, FULL, word="CREATE")
    life.row(NARROW, id="1", v="a")
    assert life.caveats() == {}


def test_rows_of_before_a_column_lack_nothing() -> None:
    life = Life(schemas=False)
    life.ddl("CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(40))", NARROW, word="CREATE")
    life.row(NARROW, id="1", v="a")
    life.ddl("ALTER TABLE a ADD COLUMN w VARCHAR(40)", FULL, word="ALTER")
    life.row(FULL, id="2", v="a", w="b")
    life.ddl("ALTER TABLE a DROP COLUMN w", NARROW, word="ALTER")
    life.row(NARROW, id="3", v="a")
    assert life.caveats() == {}
