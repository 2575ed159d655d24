"""Row checksums: the bytes of each type worked out by hand, TiCDC's rules, TiCDC's own rows."""

import struct
from collections.abc import Mapping
from dataclasses import replace
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.base.errors import ConfigError
from ticdc_assets.model.events import Checksum, Image, PhysicalValue, RowChange, ZonedTimestamp
from ticdc_assets.model.schemas import ColumnSchema, TableSchema
from ticdc_assets.model.values.checksums import checksum_agrees
from ticdc_assets_tests import strategies
from ticdc_assets_tests.events import row_event
from ticdc_assets_tests.examples import examples
from ticdc_assets_tests.wire import golden


def column(name: str, mysql_type: str, **more: object) -> ColumnSchema:
    return ColumnSchema(name=name, mysql_type=mysql_type, **more)


def schema_of(*columns: ColumnSchema) -> TableSchema:
    return TableSchema(database="d", table="t", table_id=1, version=1, columns=columns, indexes=())


def change(before: Image | None, after: Image | None, *, current: int, previous: int) -> RowChange:
    checksum = Checksum(version=0, corrupted=False, current=current, previous=previous)
    return row_event(1, before=before, after=after, checksum=checksum)


def agrees_with(
    wanted: int, mysql_type: str, value: PhysicalValue, timezone: str = "UTC", **more: object
) -> bool | None:
    """Return whether the checksum of a row of one column is the one that was sent."""
    event = change(None, {"c": value}, current=wanted, previous=0)
    return checksum_agrees(event, schema_of(column("c", mysql_type, **more)), timezone)


def number(value: int) -> bytes:
    return value.to_bytes(8, "little")


def text(value: bytes) -> bytes:
    return len(value).to_bytes(4, "little") + value


ONE = bytes.fromhex("000000000000f03f")
"""1.0 as a double: sign 0, exponent 1023, fraction 0; little-endian."""


@pytest.mark.parametrize(
    ("mysql_type", "value", "added"),
    [
        ("tinyint", "0", bytes(8)),
        ("int", "1", b"\x01" + bytes(7)),
        ("smallint", "-1", b"\xff" * 8),
        ("mediumint", "-8388608", bytes.fromhex("000080ffffffffff")),
        ("bigint", str(-(2**63)), bytes(7) + b"\x80"),
        ("bigint", str(2**64 - 1), b"\xff" * 8),
        ("year", "2024", bytes.fromhex("e807000000000000")),
        ("bit", "5", number(5)),
        ("bit", str(2**63), bytes(7) + b"\x80"),
        ("bit", str(-(2**63)), bytes(7) + b"\x80"),
        ("enum", "2", number(2)),
        ("enum", "0", number(0)),
        ("set", "5", number(5)),
        ("double", "1", ONE),
        ("double", "-0", bytes(7) + b"\x80"),
        ("double", "0.1", struct.pack("<d", 0.1)),
        ("float", "1", ONE),
        # The nearest float to 0.1, widened: its last 29 bits of fraction are 0.
        ("float", "0.1", bytes.fromhex("000000a09999b93f")),
        ("decimal", "-1.20", b"\x05\x00\x00\x00-1.20"),
        ("varchar", "", bytes(4)),
        ("varchar", "é", b"\x02\x00\x00\x00\xc3\xa9"),
        ("longtext", "🚀", b"\x04\x00\x00\x00\xf0\x9f\x9a\x80"),
        ("char", "a ", b"\x02\x00\x00\x00a "),
        ("varbinary", "/wA=", b"\x02\x00\x00\x00\xff\x00"),
        ("blob", "", bytes(4)),
        ("date", "2024-02-29", text(b"2024-02-29")),
        ("datetime", "2024-02-29 01:02:03.500", text(b"2024-02-29 01:02:03.500")),
        ("time", "-838:59:59", text(b"-838:59:59")),
        ("json", '{"a": [1, "é"]}', text('{"a": [1, "é"]}'.encode())),
        ("vector", "[]", bytes(4)),
        ("vector", "[1,-2.5]", bytes.fromhex("02000000 0000803f 000020c0")),
        ("timestamp", "2024-01-01 00:00:00", text(b"2024-01-01 00:00:00")),
    ],
)
def test_bytes_of_each_type(mysql_type: str, value: str, added: bytes) -> None:
    assert agrees_with(crc32(added), mysql_type, value) is True
    assert agrees_with((crc32(added) ^ 1) or 2, mysql_type, value) is False


def test_text_of_a_binary_charset_is_base64() -> None:
    assert agrees_with(crc32(text(b"\xff\x00")), "varchar", "/wA=", charset="binary")


# The second of each pair is what Go's time.Date gives.
@pytest.mark.parametrize(
    ("location", "local", "utc"),
    [
        ("Asia/Shanghai", "2024-01-01 00:00:00", "2023-12-31 16:00:00"),
        ("Asia/Shanghai", "2024-01-01 07:59:59.000001", "2023-12-31 23:59:59.000001"),
        ("Europe/Berlin", "2024-07-01 12:00:00.50", "2024-07-01 10:00:00.50"),
        ("+05:30", "2024-01-01 00:00:00", "2023-12-31 18:30:00"),
        ("UTC", "2024-01-01 00:00:00", "2024-01-01 00:00:00"),
        ("Asia/Shanghai", "0000-00-00 00:00:00", "0000-00-00 00:00:00"),
        ("Asia/Shanghai", "0000-00-00 00:00:00.000", "0000-00-00 00:00:00.000"),
        # Shortly after and before a change of the clocks.
        ("America/New_York", "2024-11-03 03:00:00", "2024-11-03 08:00:00"),
        ("Europe/Berlin", "2024-03-31 01:30:00", "2024-03-31 00:30:00"),
        # Shown twice by the clocks there.
        ("America/New_York", "2024-11-03 01:30:00", "2024-11-03 05:30:00"),
        ("Europe/Berlin", "2024-10-27 02:30:00", "2024-10-27 01:30:00"),
        ("Australia/Lord_Howe", "2024-04-07 01:45:00", "2024-04-06 15:15:00"),
    ],
)
def test_timestamp_is_in_utc(location: str, local: str, utc: str) -> None:
    wanted = crc32(text(utc.encode()))
    stated = ZonedTimestamp(location=location, value=local)
    assert agrees_with(wanted, "timestamp", stated, "America/Sao_Paulo")
    assert agrees_with(wanted, "timestamp", local, location)
    for word in ("", "Local"):
        unstated = ZonedTimestamp(location=word, value=local)
        assert agrees_with(wanted, "timestamp", unstated, location)


def test_columns_follow_each_other_and_null_adds_nothing() -> None:
    schema = schema_of(column("b", "int"), column("a", "varchar"), column("n", "json"))
    image = {"n": None, "a": "x", "b": "1", "other": "ignored"}
    wanted = crc32(number(1) + text(b"x"))
    assert agrees(change(image, image, current=wanted, previous=wanted), schema) is True
    assert agrees(change(dict.fromkeys("ban"), None, current=0, previous=wanted), schema) is False


@pytest.mark.parametrize(
    ("mysql_type", "value"),
    [
        ("geometry", "x"),
        ("geometry", None),
        ("int", "one"),
        ("int", "1_0"),
        ("int", "٣"),
        ("bigint", str(2**64)),
        ("bigint", str(-(2**63) - 1)),
        ("double", "nan"),
        ("float", ""),
        ("varbinary", "/wA"),
        ("varbinary", "é"),
        ("varchar", "\ud800"),
        ("vector", "1,2"),
        ("vector", "[1,]"),
        ("vector", "[1e60]"),
        ("vector", "["),
        ("varchar", ZonedTimestamp(location="UTC", value="x")),
        ("timestamp", "2024-01-01"),
        ("timestamp", "2024-02-30 00:00:00"),
        ("timestamp", "2024-01-01 00:00:00.1234567"),
        ("timestamp", ZonedTimestamp(location="Mars/Base", value="2024-01-01 00:00:00")),
        # A clock change skipped it.
        ("timestamp", ZonedTimestamp(location="Europe/Berlin", value="2024-03-31 02:30:00")),
    ],
)
def test_what_has_no_checksum(mysql_type: str, value: PhysicalValue) -> None:
    assert agrees_with(1, mysql_type, value) is None


def test_zone_that_is_none() -> None:
    with pytest.raises(ConfigError):
        agrees_with(1, "int", "1", "Mars/Base")


# --- TiCDC's rules ---

SCHEMA = schema_of(column("id", "int"), column("v", "varchar"))
OLD: Image = {"id": "1", "v": "old"}
NEW: Image = {"id": "1", "v": "new"}
OLD_SUM = crc32(number(1) + text(b"old"))
NEW_SUM = crc32(number(1) + text(b"new"))


def agrees(event: RowChange, schema: TableSchema = SCHEMA) -> bool | None:
    return checksum_agrees(event, schema, "UTC")


@pytest.mark.parametrize(
    ("before", "after", "current", "previous", "expected"),
    [
        (None, NEW, NEW_SUM, 0, True),
        (None, NEW, OLD_SUM, 0, False),
        (OLD, None, 0, OLD_SUM, True),
        (OLD, None, 0, NEW_SUM, False),
        (OLD, None, OLD_SUM, 0, False),
        (OLD, NEW, NEW_SUM, OLD_SUM, True),
        (OLD, NEW, OLD_SUM, NEW_SUM, False),
        (OLD, NEW, NEW_SUM, NEW_SUM, False),
        (OLD, NEW, OLD_SUM, OLD_SUM, False),
        # A side that is 0 was stored without a checksum.
        (OLD, NEW, NEW_SUM, 0, True),
        (OLD, NEW, 0, OLD_SUM, True),
        (OLD, NEW, 0, NEW_SUM, False),
        # Both halves of a split update.
        (OLD, None, 0, 0, None),
        (None, NEW, 0, 0, None),
    ],
)
def test_each_side_is_compared_with_its_image(
    before: Image | None, after: Image | None, current: int, previous: int, expected: bool | None
) -> None:
    assert agrees(change(before, after, current=current, previous=previous)) is expected


def test_row_without_checksums_says_nothing() -> None:
    assert agrees(replace(change(None, NEW, current=NEW_SUM, previous=0), checksum=None)) is None


@pytest.mark.parametrize(("version", "expected"), [(0, True), (1, True), (2, True), (3, None)])
def test_versions(version: int, expected: bool | None) -> None:
    sent = Checksum(version=version, corrupted=False, current=NEW_SUM, previous=0)
    event = replace(change(None, NEW, current=0, previous=0), checksum=sent)
    assert agrees(event) is expected


@pytest.mark.parametrize("current", [NEW_SUM, OLD_SUM, 0])
def test_row_that_was_corrupted_upstream_disagrees(current: int) -> None:
    sent = Checksum(version=2, corrupted=True, current=current, previous=0)
    event = replace(change(None, NEW, current=0, previous=0), checksum=sent)
    assert agrees(event) is False
    assert agrees(replace(event, handle_key_only=True)) is False


def test_row_cut_to_its_handle_key_says_nothing() -> None:
    event = change(None, {"id": "1"}, current=NEW_SUM, previous=0)
    assert agrees(replace(event, handle_key_only=True)) is None
    assert agrees(replace(event, claim_check_location="x")) is None


def test_column_without_a_value_is_a_virtual_one() -> None:
    schema = replace(SCHEMA, columns=(*SCHEMA.columns, column("virtual", "geometry")))
    assert agrees(change(OLD, NEW, current=NEW_SUM, previous=OLD_SUM), schema) is True
    assert agrees(change(OLD, NEW, current=OLD_SUM, previous=OLD_SUM), schema) is False


def test_side_that_cannot_be_computed_says_nothing_unless_the_other_disagrees() -> None:
    schema = replace(SCHEMA, columns=(*SCHEMA.columns, column("shape", "geometry")))
    odd = OLD | {"shape": "x"}
    assert agrees(change(odd, NEW, current=NEW_SUM, previous=1), schema) is None
    assert agrees(change(odd, NEW, current=OLD_SUM, previous=1), schema) is False
    assert agrees(change(None, odd, current=1, previous=0), schema) is None


@given(data=st.data())
@examples(50)
def test_any_image_has_a_checksum_or_none(data: st.DataObject) -> None:
    schema = data.draw(strategies.table_schemas())
    image = data.draw(strategies.images_of(schema))
    wild = {name: data.draw(strategies.wild_values) for name in image}
    for values in (image, wild):
        checksum_agrees(change(values, None, current=0, previous=1), schema, "Asia/Shanghai")


# --- TiCDC's own rows ---


@golden.needs_golden
@pytest.mark.parametrize("variant", ["simple-json", "simple-avro"])
def test_every_golden_row_agrees_and_no_changed_one_does(variant: str) -> None:
    rows = changed = 0
    for _, row, schema in golden.rows(f"options/{variant}-checksum"):
        assert checksum_agrees(row, schema, "Asia/Shanghai") is True
        rows += 1
        for side in ("before", "after"):
            image: Image = getattr(row, side) or {}
            for name, value in image.items():
                found = schema.column(name)
                assert found is not None
                for other in {None, *OTHER_VALUES[found.mysql_type]} - {value}:
                    other_row = replace(row, **{side: image | {name: other}})
                    assert checksum_agrees(other_row, schema, "Asia/Shanghai") is False
                    changed += 1
    assert (rows, changed) == (99, 1794)


OTHER_VALUES: Mapping[str, tuple[PhysicalValue, ...]] = {
    **dict.fromkeys(("int", "bigint", "enum"), ("1", "2")),
    **dict.fromkeys(("varchar", "longtext"), ("1", "x")),
    **dict.fromkeys(("varbinary", "mediumblob"), ("AQ==", "")),
    "timestamp": (
        ZonedTimestamp(location="UTC", value="1999-12-31 23:59:59.999"),
        ZonedTimestamp(location="Asia/Shanghai", value="1999-12-31 23:59:59.999"),
    ),
}
"""Values of the types that the golden tables have."""
