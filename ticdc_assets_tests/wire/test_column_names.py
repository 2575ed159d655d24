"""Columns that no table can have together: such a message is refused, in every format and way."""

from collections.abc import Sequence

import pytest

from ticdc_assets.demo.simulator.encoders import encode
from ticdc_assets.model.events import Bootstrap
from ticdc_assets.model.schemas import ColumnFlag, ColumnSchema, RowShape, SentColumn, TableSchema
from ticdc_assets.wire import WireFormat
from ticdc_assets.wire.record import Record
from ticdc_assets_tests.events import ddl_event, row_event
from ticdc_assets_tests.wire.comparing import Outcome, assert_equal

ALIKE = [
    ("id", "ID"),
    ("Größe", "GRÖSSE", "größE"),
    ("ΑΣ", "ας"),  # no two for TiDB, but for Delta
    ("x", "\N{KELVIN SIGN}", "k"),
]
APART = [
    ("ss", "ß"),
    ("s", "\N{LATIN SMALL LETTER LONG S}"),
    ("i", "\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}", "\N{LATIN SMALL LETTER DOTLESS I}"),
    ("_ticdc_commit_ts", "_TICDC_commit_ts_"),
    ("a b", "a.b", "a`b", "a,b"),
]
SHAPED = (WireFormat.OPEN_PROTOCOL, WireFormat.CANAL_JSON, WireFormat.CRAFT)
SIMPLE = (WireFormat.SIMPLE_JSON, WireFormat.SIMPLE_AVRO)


def row(
    wire_format: WireFormat, after: Sequence[str], before: Sequence[str] | None = None
) -> Record:
    flags = None if wire_format is WireFormat.CANAL_JSON else ColumnFlag.BINARY
    names = dict.fromkeys((*after, *(before or ())))
    is_canal = wire_format is WireFormat.CANAL_JSON
    columns = tuple(SentColumn(name, "int", flags) for name in names)
    event = row_event(
        400 << 18,
        build_ts_ms=None if wire_format is WireFormat.CRAFT else 5,
        before=None if before is None else dict.fromkeys(before, "2"),
        after=dict.fromkeys(after, "1"),
        shape=RowShape(columns, primary_key=() if is_canal else None),
    )
    (record,) = encode(wire_format, [event])
    return record


def schema(names: Sequence[str]) -> TableSchema:
    columns = tuple(
        ColumnSchema(name=name, mysql_type="int", charset="binary", collation="binary", length=11)
        for name in names
    )
    return TableSchema(
        database="d", table="t", table_id=7, version=300, columns=columns, indexes=()
    )


def of_schema(wire_format: WireFormat, names: Sequence[str]) -> list[Record]:
    made = schema(names)
    ddl = ddl_event(400, "create table t", build_ts_ms=5, schema=made)
    return encode(wire_format, [Bootstrap(build_ts_ms=5, schema=made), ddl])


def reasons(outcomes: Sequence[Outcome]) -> set[str]:
    return {outcome[0] if isinstance(outcome, tuple) else "read" for outcome in outcomes}


@pytest.mark.parametrize("names", ALIKE)
@pytest.mark.parametrize("wire_format", SHAPED)
def test_rows_with_names_that_are_alike(wire_format: WireFormat, names: tuple[str, ...]) -> None:
    good = row(wire_format, ("a", "b"))
    # Among rows that are read at once, and alone.
    outcomes = assert_equal([good, row(wire_format, names), good], wire_format)
    assert reasons(outcomes[::2]) == {"read"}
    assert reasons(outcomes[1:2]) == {"duplicate_column"}
    refused = outcomes[1]
    assert isinstance(refused, tuple)
    assert refused[2] == "column names that differ by more than their case"
    assert all(repr(name) in refused[3] for name in names[-1:])
    if wire_format is not WireFormat.CANAL_JSON:
        # Of an update whose images have other columns all count.
        outcomes = assert_equal([row(wire_format, names[:-1], names[-1:])], wire_format)
        assert reasons(outcomes) == {"duplicate_column"}


@pytest.mark.parametrize("names", APART)
@pytest.mark.parametrize("wire_format", SHAPED)
def test_rows_with_names_that_are_not(wire_format: WireFormat, names: tuple[str, ...]) -> None:
    assert reasons(assert_equal([row(wire_format, names)], wire_format)) == {"read"}


@pytest.mark.parametrize("wire_format", SIMPLE)
def test_schemas(wire_format: WireFormat) -> None:
    for names in APART:
        assert reasons(assert_equal(of_schema(wire_format, names), wire_format)) == {"read"}
    for names in ALIKE:
        outcomes = assert_equal(of_schema(wire_format, names), wire_format)
        assert reasons(outcomes) == {"duplicate_column"}
        assert {outcome[1] for outcome in outcomes if isinstance(outcome, tuple)} == {
            "$.tableSchema.columns"
        }


@pytest.mark.parametrize("wire_format", WireFormat)
def test_a_column_without_a_name(wire_format: WireFormat) -> None:
    names = ("a", "")
    sent = of_schema(wire_format, names) if wire_format in SIMPLE else [row(wire_format, names)]
    assert reasons(assert_equal(sent, wire_format)) == {"empty_text"}
