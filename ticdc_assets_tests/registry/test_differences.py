"""What people see of a schema change."""

from dataclasses import replace

import pytest

from ticdc_assets.model.schemas import ColumnSchema, IndexSchema, TableSchema
from ticdc_assets.registry.ddl.reader import parse_ddl_script
from ticdc_assets.registry.differences import differences
from ticdc_assets_tests.text_tables import created

ID = ColumnSchema(name="id", mysql_type="int", nullable=False)
A = ColumnSchema(name="a", mysql_type="varchar", length=10, charset="utf8mb4")


def schema(*columns: ColumnSchema, key: tuple[str, ...] = ("id",), **keys: str) -> TableSchema:
    """A table; `keys` are indexes on one column each."""
    return TableSchema(
        database="d",
        table="t",
        table_id=1,
        version=1,
        columns=columns,
        indexes=(
            IndexSchema(name="PRIMARY", unique=True, primary=True, nullable=False, columns=key),
            *(
                IndexSchema(name=name, unique=False, primary=False, nullable=True, columns=(on,))
                for name, on in keys.items()
            ),
        ),
    )


def seen(old: TableSchema, new: TableSchema, sql: str = "") -> list[str]:
    return list(differences(old, new, statements=parse_ddl_script(sql)))


def test_equal_schemas_do_not_differ() -> None:
    assert seen(schema(ID, A), schema(ID, A)) == []


def test_columns_added_dropped_and_changed() -> None:
    other = ColumnSchema(name="b", mysql_type="decimal", length=8, decimal=2)
    assert seen(schema(ID, A), schema(ID, other)) == ["b added (decimal(8,2))", "a dropped"]
    changed = replace(A, length=20, nullable=False, default="x")
    assert seen(schema(ID, A), schema(ID, changed)) == [
        "a: varchar(10) -> varchar(20)",
        "a: NULL -> NOT NULL",
        "a: another default",
    ]
    shown = differences(schema(ID, A), schema(ID, changed), shows_defaults=True)
    assert shown[-1] == "a: default none -> x"
    assert seen(schema(ID, A), schema(ID, replace(A, charset="latin1"))) == [
        "a: varchar(10) utf8mb4 -> varchar(10) latin1"
    ]


TYPES = """
int; int unsigned; int(8) zerofill = int unsigned zerofill; bit(8); year; double(10,3); double;
datetime(6); datetime; text; binary(4); enum('a','it''s'); vector(3); decimal(9) = decimal(9,0)
"""


@pytest.mark.parametrize("case", " ".join(TYPES.split()).split("; "))
def test_a_type_is_shown_as_upstream_declares_it(case: str) -> None:
    sql, _, shown = case.partition(" = ")
    (column,) = created(f"create table t1 (c {sql})").columns
    assert seen(schema(ID), schema(ID, column)) == [f"c added ({shown or sql})"]


def test_a_size_that_is_not_known_is_not_shown() -> None:
    column = ColumnSchema(name="c", mysql_type="decimal")
    assert seen(schema(ID), schema(ID, column)) == ["c added (decimal)"]


def test_only_the_statement_tells_a_rename() -> None:
    old, new = schema(ID, A), schema(ID, replace(A, name="b"))
    assert seen(old, new) == ["b added (varchar(10))", "a dropped"]
    assert seen(old, new, "ALTER TABLE t RENAME COLUMN a TO b") == ["a renamed to b"]


def test_a_renamed_key_is_the_same_key() -> None:
    old = schema(ID, A, ix="id")
    new = schema(replace(ID, name="no"), A, key=("no",), ix="no")
    assert seen(old, new, "ALTER TABLE t RENAME COLUMN id TO no") == ["id renamed to no"]


def test_keys_and_indexes() -> None:
    assert seen(schema(ID, A), schema(ID, A, key=("id", "a"))) == ["key id -> id, a"]
    assert seen(schema(ID, A, x="a", y="a"), schema(ID, A, x="id", z="a")) == [
        "index x: (a) -> (id)",
        "index z added (a)",
        "index y dropped",
    ]
