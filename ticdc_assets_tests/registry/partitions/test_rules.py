"""Which partition a row is in: tables of cases by method, random tables against plain oracles."""

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.base.errors import PartitionError
from ticdc_assets.model.schemas import ColumnSchema, IndexSchema, TableSchema
from ticdc_assets.registry.ddl.reader import parse_ddl
from ticdc_assets.registry.ddl.statement import Partitioning
from ticdc_assets.registry.partitions import partition_test, partitions_of
from ticdc_assets_tests.cases import grouped
from ticdc_assets_tests.examples import examples

BIN = "utf8mb4_bin"


def column(name: str, mysql_type: str, **more: object) -> ColumnSchema:
    return ColumnSchema(name=name, mysql_type=mysql_type, **more)  # pyright: ignore[reportArgumentType]


SCHEMA = TableSchema(
    database="shop",
    table="t",
    table_id=1,
    version=1,
    columns=(
        column("id", "bigint"),
        column("u", "bigint", unsigned=True),
        column("Mixed Case", "int"),
        column("d", "date"),
        column("dt", "datetime"),
        column("dt3", "datetime", decimal=3),
        column("dt_unknown", "datetime", decimal=-1),
        column("ts", "timestamp"),
        column("ts3", "timestamp", decimal=3),
        column("tm", "time", decimal=1),
        column("y", "year"),
        column("s", "varchar", length=20, charset="utf8mb4", collation=BIN),
        column("s_nopad", "varchar", length=20, charset="utf8mb4", collation="utf8mb4_0900_bin"),
        column("s_ci", "varchar", length=20, charset="utf8mb4", collation="utf8mb4_general_ci"),
        column("s_gbk", "varchar", length=20, charset="gbk", collation="gbk_bin"),
        column("s_unknown", "varchar", length=20),
        column("b", "varbinary", length=20, charset="binary", collation="binary"),
        column("b4", "binary", length=4, charset="binary", collation="binary"),
        column("bit8", "bit", length=8),
        column("n", "decimal", length=10, decimal=2),
        column("f", "double"),
        column("e", "enum", elements=("a", "b")),
        column("j", "json"),
    ),
    indexes=(
        IndexSchema(name="PRIMARY", unique=True, primary=True, nullable=False, columns=("id", "u")),
    ),
)


def partitions(clause: str) -> Partitioning:
    statement = parse_ddl(f"create table t (id bigint) partition by {clause}")
    assert statement.partitioning is not None, clause
    return partitions_of(statement.partitioning)


def placed(
    clause: str, schema: TableSchema = SCHEMA, timezone: str = "UTC"
) -> Callable[..., list[str]]:
    """Return the function that gives the names of the partitions a row is in."""
    table = partitions(clause)
    tests = [(name, partition_test(table, (name,), schema, timezone)) for name in table.names]

    def names(**row: str | None) -> list[str]:
        return [name for name, is_in in tests if is_in(row)]

    return names


def less_than(**bounds: str) -> str:
    return ", ".join(
        f"partition {name} values less than ({bound})" for name, bound in bounds.items()
    )


def listed(**values: str) -> str:
    return ", ".join(f"partition {name} values in ({items})" for name, items in values.items())


Case = tuple[str, Sequence[tuple[Mapping[str, str | None], str | None]]]

CASES: dict[str, tuple[str, str]] = {
    "range": (
        f"range (id) ({less_than(p0='-5', p1='1+2*3', p2='500')})",
        "id: NULL = p0 | -6 = p0 | -5 = p1 | 6 = p1 | 7 = p2 | 500 = none",
    ),
    "range with MAXVALUE in both spellings": (
        "range (`id`) (partition p0 values less than (0), partition p1 values less than maxvalue)",
        "id: -1 = p0 | 9223372036854775807 = p1",
    ),
    "range of an unsigned BIGINT": (
        f"range (u) ({less_than(p0='9223372036854775808', p1='18446744073709551615')})",
        "u: 9223372036854775807 = p0 | 9223372036854775808 = p1 | 18446744073709551615 = none",
    ),
    "names in another case, with a blank": (
        f"range (`mixed case`) ({less_than(p0='1', p1='MAXVALUE')})",
        "Mixed Case: 0 = p0 | 1 = p1",
    ),
    "to_days": (
        f"range (to_days(d)) ({less_than(p0='to_days(`2`)'.replace('`2`', repr('2024-1-1')))})",
        "d: 2023-12-31 = p0 | 2024-01-01 = none | 0000-00-00 = p0 | NULL = p0",
    ),
    "year": (
        f"range (year(dt)) ({less_than(p0='2000', p1='maxvalue')})",
        "dt: 1999-12-31 23:59:59 = p0 | 2000-01-01 00:00:00 = p1 | 0000-00-00 00:00:00 = p0",
    ),
    "hash": (
        "hash (id) partitions 4",
        "id: 0 = p0 | 7 = p3 | -7 = p3 | -9223372036854775808 = p0 | NULL = p0",
    ),
    "hash of an unsigned BIGINT, which TiDB reads as a signed one": (
        "hash (u) partitions 4",
        "u: 9223372036854775807 = p3 | 18446744073709551615 = p1 | 18446744073709551613 = p3",
    ),
    "linear hash, which TiDB makes a plain one": (
        "linear hash (id) partitions 3",
        "id: 4 = p1 | 5 = p2",
    ),
    "hash with names": (
        "hash (id) partitions 3 (partition a, partition b, partition `c d`)",
        "id: 0 = a | 2 = c d",
    ),
    "hash with one partition": ("hash (id)", "id: 9 = p0"),
    "list": (
        f"list (id) ({listed(a='1, 2, null', b='-5, 3*2, (7)', c='true + 7')})",
        "id: 2 = a | NULL = a | -5 = b | 7 = b | 8 = c | 9 = none",
    ),
    "list with a default of its own": (
        f"list (id) ({listed(a='1')}, partition z default)",
        "id: 1 = a | 2 = z | NULL = z",
    ),
    "list with a default among values": (
        f"list (id) ({listed(a='1', b='default, 5')})",
        "id: 1 = a | 5 = b | 2 = b",
    ),
    "list without a partition for NULL": (f"list (id) ({listed(a='1')})", "id: NULL = none"),
    "range columns of two": (
        "range columns (id, s) (partition p0 values less than (1, 'm'), partition p1 values less"
        " than (1, maxvalue), partition p2 values less than (5, 'a'),"
        " partition p3 values less than (maxvalue, maxvalue))",
        "id, s: 1, lz = p0 | 1, NULL = p0 | NULL, zz = p0 | 1, m = p1 | 1, \U0010ffff = p1 | "
        "2, NULL = p2 | 5, A = p2 | 5, a = p3",
    ),
    "range columns of a DATE in several spellings": (
        "range columns (d) (partition p0 values less than ('2024-1-1'), partition p1 values less"
        " than ('20240201'), partition p2 values less than ('2024-03-01 00:00:00'),"
        " partition p3 values less than (date '2024-04-01'))",
        "d: 2023-12-31 = p0 | 0000-00-00 = p0 | 2024-01-01 = p1 | 2024-02-01 = p2 | "
        "2024-03-31 = p3 | 2024-04-01 = none",
    ),
    "range columns of a DATETIME with a fraction": (
        "range columns (dt3) (partition p0 values less than ('2024-01-01'),"
        " partition p1 values less than ('2024-01-01 10:00:00.5'))",
        "dt3: 2023-12-31 23:59:59.999 = p0 | 2024-01-01 00:00:00.000 = p1 | "
        "2024-01-01 10:00:00.499 = p1 | 2024-01-01 10:00:00.500 = none",
    ),
    "range columns of a DATETIME whose fraction is not known": (
        f"range columns (dt_unknown) ({less_than(p0=repr('2024-01-01'))})",
        "dt_unknown: 2023-12-31 23:59:59.999999 = p0 | 2024-01-01 00:00:00 = none",
    ),
    "range columns of text: code points, trailing spaces left out": (
        f"range columns (s) ({less_than(p0=repr('a'), p1=repr('Ünit'), p2='maxvalue')})",
        "s: '' = p0 | Z = p0 | a = p1 | a  = p1 | Ü = p1 | Ünit   = p2 | 😀 = p2",
    ),
    "list columns of text": (
        "list columns (s) (partition p0 values in ('x', ('y y'), null),"
        " partition p1 values in ('X', _utf8mb4'it''s, (one)'), partition z default)",
        "s: x = p0 | x    = p0 | NULL = p0 | y y = p0 | X = p1 | it's, (one) = p1 | \tx = z",
    ),
    "list columns of text without padding": (
        f"list columns (s_nopad) ({listed(p0=repr('x'))})",
        "s_nopad: x = p0 | x  = none",
    ),
    "list columns of two": (
        "list columns (id, d) (partition p0 values in ((1, '2024-01-01'), (2, null)),"
        " partition p1 values in ((1, '2024-01-02')))",
        "id, d: 1, 2024-01-01 = p0 | 2, NULL = p0 | 1, 2024-01-02 = p1 | 2, 2024-01-02 = none",
    ),
    "range columns of bytes": (
        f"range columns (b) ({less_than(p0='0x80', p1=repr('é'), p2='maxvalue')})",
        "b: 0x = p0 | 0x7fff = p0 | 0x80 = p1 | 0xc3a8 = p1 | 0xc3a9 = p2",
    ),
    "list columns of BINARY(n), filled up or not": (
        "list columns (b4) (partition p0 values in (_binary x'6100', 'b'))",
        "b4: 0x61000000 = p0 | 0x62 = p0 | 0x61000001 = none",
    ),
    "TiDB's own partition for NULL of dates": (
        "range columns (d) (partition P_NULL values less than ('0000-01-01'),"
        " partition P_LT_2024 values less than ('2024-01-01'))",
        "d: NULL = P_NULL | 0000-00-00 = P_NULL | 0001-01-01 = P_LT_2024",
    ),
    "subpartitions, which TiDB leaves out": (
        f"range (id) subpartition by hash (u) subpartitions 2 ({less_than(p0='5', p1='9')})",
        "id: 4 = p0 | 5 = p1",
    ),
}
"""By what they show: a clause, and the partition of each row, or none."""

HASHED: dict[str, Case] = {
    "key over an integer": (
        "key (id) partitions 4",
        [({"id": str(number)}, f"p{zlib.crc32(str(number).encode()) % 4}") for number in range(9)]
        + [({"id": None}, f"p{zlib.crc32(bytes(1)) % 4}")],
    ),
    "key over several": (
        "key (id, d, dt3, s, b4) partitions 7",
        [
            (
                {
                    "id": "-3",
                    "d": "2024-01-01",
                    "dt3": "2024-01-01 00:00:00.500",
                    "s": "x ",
                    "b4": "0x61",
                },
                f"p{zlib.crc32(b'-32024-01-012024-01-01 00:00:00.500xa' + bytes(3)) % 7}",
            )
        ],
    ),
    "key of the primary key": (
        "key () partitions 5",
        [({"id": "12", "u": "3"}, f"p{zlib.crc32(b'123') % 5}")],
    ),
}


def rows_of(text: str) -> list[tuple[Mapping[str, str | None], str | None]]:
    """Read `column, column: value, value = partition | ...`."""
    rows: list[tuple[Mapping[str, str | None], str | None]] = []
    for columns, sent, partition in grouped(text):
        names = columns.split(", ")
        values = sent.split(", ") if len(names) > 1 else [sent]
        row = dict(zip(names, (None if item == "NULL" else item for item in values), strict=True))
        rows.append((row, None if partition == "none" else partition))
    return rows


@pytest.mark.parametrize("name", [*CASES, *HASHED])
def test_rows_are_in_the_partition_that_tidb_puts_them_in(name: str) -> None:
    clause, rows = HASHED[name] if name in HASHED else (CASES[name][0], rows_of(CASES[name][1]))
    names = placed(clause)
    found = [(row, names(**row)) for row, _ in rows]
    assert found == [(row, [] if wanted is None else [wanted]) for row, wanted in rows]


def test_a_timestamp_is_a_moment_whatever_the_zone() -> None:
    bound = "unix_timestamp('2024-01-01 00:00:00')"
    clause = f"range (unix_timestamp(ts)) ({less_than(p0=bound, p1='maxvalue')})"
    for timezone in ("UTC", "Asia/Shanghai", "America/New_York", "-03:30"):
        names = placed(clause, timezone=timezone)
        assert names(ts="2023-12-31 23:59:59") == ["p0"]
        assert names(ts="2024-01-01 00:00:00") == ["p1"]
        assert names(ts="0000-00-00 00:00:00") == ["p0"]
        assert names(ts=None) == ["p0"]
    plain = f"range (unix_timestamp(ts)) ({less_than(p0='1704067200', p1='maxvalue')})"
    assert placed(plain, timezone="Asia/Shanghai")(ts="2024-01-01 07:59:59") == ["p0"]
    assert placed(plain, timezone="Asia/Shanghai")(ts="2024-01-01 08:00:00") == ["p1"]
    floored = f"range (floor(unix_timestamp(ts3))) ({less_than(p0='1704067200', p1='maxvalue')})"
    assert placed(floored)(ts3="2023-12-31 23:59:59.999") == ["p0"]
    raised = f"range (ceiling(unix_timestamp(ts3))) ({less_than(p0='1704067200', p1='maxvalue')})"
    assert placed(raised)(ts3="2023-12-31 23:59:59.999") == ["p1"]


def test_a_bound_at_an_hour_that_came_twice_is_refused_and_the_hours_around_it_are_not() -> None:
    zone = ZoneInfo("America/New_York")
    # On 2024-11-03 clocks went from 02:00 back to 01:00.
    first = int(datetime(2024, 11, 3, 1, 0, tzinfo=zone).timestamp())
    for seconds, refused in ((0, False), (1, True), (3600, True), (7199, True), (7200, False)):
        clause = f"range (unix_timestamp(ts)) ({less_than(p0=str(first + seconds))})"
        if refused:
            with pytest.raises(PartitionError, match="came twice"):
                placed(clause, timezone="America/New_York")
        else:
            placed(clause, timezone="America/New_York")
    hashed = "hash (unix_timestamp(ts)) partitions 3"
    assert placed(hashed, timezone="+08:00")(ts="1970-01-01 08:00:05") == ["p2"]
    with pytest.raises(PartitionError, match="put back"):
        placed(hashed, timezone="America/New_York")


REFUSED: list[tuple[str, str]] = [
    ("key (n) partitions 3", "KEY over column 'n' of kind decimal"),
    ("key (ts) partitions 3", "KEY over column 'ts' of kind timestamp"),
    ("key (s_ci) partitions 3", "no binary one"),
    ("key (dt_unknown) partitions 3", "fraction is not known"),
    (f"range columns (s_ci) ({less_than(p0=repr('m'))})", "no binary one"),
    (f"range columns (s_gbk) ({less_than(p0=repr('m'))})", "no binary one"),
    (f"range columns (s_unknown) ({less_than(p0=repr('m'))})", "is not known"),
    (f"range columns (s) ({less_than(p0=repr('m '))})", "unusual characters"),
    (f"range columns (s) ({less_than(p0='0x41')})", "is no string"),
    (f"range columns (s) ({less_than(p0='5')})", "is no string"),
    (f"range columns (id) ({less_than(p0=repr('5'))})", "no number"),
    (f"range columns (id) ({less_than(p0='null')})", "is NULL"),
    (f"range columns (tm) ({less_than(p0=repr('10:00:00'))})", "of kind time"),
    (f"range columns (ts) ({less_than(p0=repr('2024-01-01'))})", "of kind timestamp"),
    (f"range columns (f) ({less_than(p0='1')})", "of kind double"),
    (f"range columns (e) ({less_than(p0=repr('a'))})", "of kind enum"),
    (f"range columns (nobody) ({less_than(p0='1')})", "no row has the column 'nobody'"),
    (f"range columns (id, u) ({less_than(p0='1')})", "fewer values"),
    (f"range columns (id) ({less_than(p0='1, 2')})", "not understood"),
    (f"range columns (id) ({less_than(p0='2', p1='1')})", "do not increase"),
    (f"range columns (d) ({less_than(p0=repr('2024-01-01 10:00:00'))})", "no value of the column"),
    (f"range columns (d) ({less_than(p0=repr('0000-00-00'))})", "no value of the column"),
    (f"range columns (d) ({less_than(p0=repr('2024-02-30'))})", "not understood"),
    (f"range columns (d) ({less_than(p0='20240101')})", "is no string"),
    (f"range columns (dt) ({less_than(p0=repr('2024-01-01 10:00:00.5'))})", "no value of the col"),
    (f"range (id) ({less_than(p0='5', p1='5')})", "do not increase"),
    (f"range (id) ({less_than(p0='maxvalue', p1='5')})", "do not increase"),
    (f"range (id) ({less_than(p0='u')})", "no literal"),
    (f"range (id) ({less_than(p0='null')})", "is NULL"),
    (f"range (id) ({less_than(p0='1.5')})", "no integer"),
    (f"range (id) ({less_than(p0='1 2')})", "not understood"),
    (f"range (id) ({listed(p0='1')})", "no VALUES LESS THAN"),
    (f"list (id) ({less_than(p0='1')})", "no VALUES IN"),
    (f"list (id) ({listed(p0='1', p1='2, 1')})", "two partitions"),
    (f"list (id) ({listed(p0='default')}, partition p1 default)", "are DEFAULT"),
    (f"list (id) ({listed(p0=repr('1'))})", "no number"),
    (f"list columns (id) ({listed(p0='1, maxvalue')})", "MAXVALUE"),
    (f"range (n) ({less_than(p0='1')})", "with a fraction"),
    (f"range (bit8) ({less_than(p0='1')})", "of kind bit"),
    (f"range (ts) ({less_than(p0='1')})", "no number"),
    (f"range (unix_timestamp(ts3)) ({less_than(p0='1')})", "with a fraction"),
    (f"range (unix_timestamp(dt)) ({less_than(p0='1')})", "neither a TIMESTAMP"),
    (f"range (year(ts)) ({less_than(p0='1')})", "time zone of a session"),
    ("hash (d) partitions 2", "no number"),
    ("hash (id / 2) partitions 2", "not understood"),
    ("hash (crc32(id)) partitions 2", "CRC32"),
    ("hash (rand()) partitions 2", "RAND"),
    ("hash (nobody) partitions 2", "no row has the column"),
    ("hash (id, u) partitions 2", "not understood"),
    ("hash (" + "(" * 200 + "id" + ")" * 200 + ") partitions 2", "too deeply"),
    ("hash (" + "id+" * 5000 + "id) partitions 2", "too long"),
    ("hash (id) partitions 100000000000", "more than 8192"),
    (
        "range (id) interval (1) first partition less than (0) last partition less than (9)",
        "no partitions",
    ),
    (f"range (id) ({less_than(p0='5', P0='6')})", "one name"),
    ("range (id)", "no partitions"),
]


@pytest.mark.parametrize(("clause", "reason"), REFUSED, ids=[clause[:60] for clause, _ in REFUSED])
def test_what_is_not_certain_is_refused_with_its_reason(clause: str, reason: str) -> None:
    with pytest.raises(PartitionError) as caught:
        placed(clause)
    assert reason in caught.value.reason
    assert str(caught.value) == caught.value.reason
    assert "\n" not in caught.value.reason
    assert len(caught.value.reason) < 250


def test_a_row_without_a_column_it_needs_is_refused_and_with_the_column_it_is_not() -> None:
    names = placed(
        f"range columns (id, s) ({less_than(p0='1, maxvalue', p1='maxvalue, maxvalue')})"
    )
    assert names(id="1", s="x", extra=None) == ["p0"]
    for row in ({"id": "1"}, {"s": "x"}, {"ID": "1", "s": "x"}, {}):
        with pytest.raises(PartitionError, match="without its column"):
            names(**row)


def test_names_are_compared_without_case_and_several_may_be_asked_for() -> None:
    table = partitions(f"range (id) ({less_than(Ab='1', c='2')})")
    is_in = partition_test(table, ("AB", "C"), SCHEMA, "UTC")
    assert [is_in({"id": text}) for text in ("0", "1", "2")] == [True, True, False]
    with pytest.raises(PartitionError, match="'p9'"):
        partition_test(table, ("Ab", "p9"), SCHEMA, "UTC")


def test_partitions_are_values_that_describe_themselves() -> None:
    one, same = partitions("hash (id) partitions 2"), partitions("hash (id) partitions 2")
    other = partitions("hash (id) partitions 3")
    assert one == same
    assert hash(one) == hash(same)
    assert json.dumps(one.described()) == json.dumps(same.described())
    assert json.dumps(one.described()) != json.dumps(other.described())
    ranges = [partitions(f"range (id) ({less_than(p0=bound)})") for bound in ("1", "2", "maxvalue")]
    assert len({json.dumps(table.described()) for table in ranges}) == 3


# --------------------------------------------------------------------------------- random tables

INTEGERS = st.integers(-50, 50)
ROWS = st.lists(st.one_of(st.none(), INTEGERS), min_size=1, max_size=20)


@examples(40)
@given(bounds=st.sets(INTEGERS, min_size=1, max_size=8).map(sorted), values=ROWS)
def test_every_value_is_in_one_partition_of_a_range_table(
    bounds: list[int], values: list[int | None]
) -> None:
    clause = less_than(**{f"p{n}": str(bound) for n, bound in enumerate(bounds)}, rest="maxvalue")
    by_expression = placed(f"range (id) ({clause})")
    by_column = placed(f"range columns (id) ({clause})")
    for value in values:
        wanted = "rest"
        for number in reversed(range(len(bounds))):
            if value is None or value < bounds[number]:
                wanted = f"p{number}"
        text = None if value is None else str(value)
        assert by_expression(id=text) == by_column(id=text) == [wanted]


@examples(40)
@given(
    owners=st.dictionaries(st.one_of(st.none(), INTEGERS), st.integers(0, 3), min_size=1),
    values=ROWS,
)
def test_every_value_is_in_one_partition_of_a_list_table_with_a_default(
    owners: dict[int | None, int], values: list[int | None]
) -> None:
    lists: dict[str, list[str]] = {}
    for value, owner in owners.items():
        lists.setdefault(f"p{owner}", []).append("null" if value is None else str(value))
    clause = listed(**{name: ", ".join(items) for name, items in lists.items()})
    by_expression = placed(f"list (id) ({clause}, partition rest default)")
    by_column = placed(f"list columns (id) ({clause}, partition rest default)")
    for value in values:
        wanted = f"p{owners[value]}" if value in owners else "rest"
        text = None if value is None else str(value)
        assert by_expression(id=text) == by_column(id=text) == [wanted]


@examples(40)
@given(
    count=st.integers(1, 12),
    values=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20),
)
def test_every_value_is_in_one_partition_of_a_hash_or_key_table(
    count: int, values: list[int]
) -> None:
    hashed, keyed = placed(f"hash (id) partitions {count}"), placed(f"key (id) partitions {count}")
    for value in values:
        rest = int(f"{'-' if value < 0 else ''}{abs(value) % count}")
        assert hashed(id=str(value)) == [f"p{abs(rest)}"]
        assert len(keyed(id=str(value))) == 1


WORDS = st.text(st.sampled_from("aB zé😀-"), max_size=4)
DAYS = st.dates(date(1000, 1, 1), date(9999, 12, 31))


@examples(40)
@given(
    bounds=st.sets(st.tuples(WORDS.filter(lambda text: text == text.rstrip()), DAYS), min_size=1),
    rows=st.lists(st.tuples(st.one_of(st.none(), WORDS), st.one_of(st.none(), DAYS)), max_size=15),
)
def test_tuples_compare_column_by_column(
    bounds: set[tuple[str, date]], rows: list[tuple[str | None, date | None]]
) -> None:
    ordered = sorted(bounds)
    names = placed(
        "range columns (s, d) ("
        + less_than(**{f"p{n}": f"'{s}', '{d}'" for n, (s, d) in enumerate(ordered)})
        + ")"
    )

    def is_below(row: tuple[str | None, date | None], bound: tuple[str, date]) -> bool:
        text, day = row
        if text is None or text.rstrip(" ").encode() < bound[0].encode():
            return True
        return text.rstrip(" ") == bound[0] and (day is None or day < bound[1])

    for row in rows:
        wanted = [f"p{n}" for n, bound in enumerate(ordered) if is_below(row, bound)][:1]
        assert names(s=row[0], d=None if row[1] is None else str(row[1])) == wanted
