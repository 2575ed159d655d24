import json
import pickle
from dataclasses import replace
from types import MappingProxyType

import pytest

from ticdc_assets.base.errors import UnsupportedVersionError, WireError
from ticdc_assets.demo.simulator.encoders import encode
from ticdc_assets.model.events import Event, Op, RowChange
from ticdc_assets.wire import DECODERS, WireFormat, decode
from ticdc_assets.wire.record import Record
from ticdc_assets.wire.simple.message import DDL_TYPES, FIELDS, MessageType
from ticdc_assets_tests.wire.comparing import assert_equal, assert_refused
from ticdc_assets_tests.wire.simple.messages import (
    BOOTSTRAP,
    DATABASE_DDL,
    DDL,
    DELETE,
    EVENTS,
    INSERT,
    UPDATE,
    USER_JSON,
    WATERMARK,
    changed,
)


def only(value: bytes) -> Event:
    (event,) = decode(WireFormat.SIMPLE_JSON, Record(key=None, value=value))
    return event


def refused(value: bytes) -> tuple[str, str]:
    """Return reason and position, on which both decoders must agree."""
    (outcome,) = assert_equal([value])
    assert isinstance(outcome, tuple), outcome
    return outcome[:2]


def test_every_format_reads_and_writes() -> None:
    assert set(DECODERS) == set(WireFormat)
    assert set(FIELDS) == set(MessageType)


@pytest.mark.parametrize(("value", "event"), EVENTS.items(), ids=lambda item: None)
def test_a_message_means_its_event(value: bytes, event: Event) -> None:
    assert assert_equal([value]) == [[event]]


def test_events_are_written_byte_for_byte() -> None:
    records = encode(WireFormat.SIMPLE_JSON, list(EVENTS.values()))
    assert records == [Record(key=None, value=value) for value in EVENTS]


def test_images_may_be_any_mapping() -> None:
    row = EVENTS[INSERT]
    assert isinstance(row, RowChange)
    frozen = replace(row, after=MappingProxyType(dict(row.after or {})))
    assert encode(WireFormat.SIMPLE_JSON, [frozen])[0].value == INSERT


def test_columns_are_written_in_the_order_of_their_bytes() -> None:
    row = EVENTS[DELETE]
    assert isinstance(row, RowChange)
    names = ["z", "Z", "é", "a b", "a", "🚀", "\uffff", "_", "10", "9"]
    (record,) = encode(WireFormat.SIMPLE_JSON, [replace(row, before=dict.fromkeys(names))])
    written = [json.dumps(name, ensure_ascii=False).encode() for name in names]
    places = [(record.value or b"").index(name + b":null") for name in written]
    assert sorted(zip(places, names, strict=True)) == sorted(
        zip(places, names, strict=True), key=lambda pair: pair[1].encode()
    )


def test_an_empty_image_is_an_image() -> None:
    empty = changed(DELETE, b'{"age":"25","id":"1"}', b"{}")
    event = only(empty)
    assert isinstance(event, RowChange)
    assert event.before == {}
    assert event.after is None
    # TiCDC would leave the member out, and nobody could read that back.
    assert encode(WireFormat.SIMPLE_JSON, [event])[0].value == empty


@pytest.mark.parametrize("word", sorted(DDL_TYPES))
def test_every_ddl_word_is_read(word: str) -> None:
    event = replace(EVENTS[DDL], ddl_type=word)
    assert only(changed(DDL, b'"type":"ALTER"', f'"type":"{word}"'.encode())) == event


@pytest.mark.parametrize("word", ["alter", "DDL", "DML", "", "ALTER ", "INSERT\u0000", "RESOLVED"])
def test_any_other_word_is_refused(word: str) -> None:
    escaped = word.replace("\x00", "\\u0000").encode()
    value = changed(DDL, b'"type":"ALTER"', b'"type":"' + escaped + b'"')
    assert refused(value) == ("unknown_type", "$.type")


@pytest.mark.parametrize("message", [INSERT, WATERMARK, BOOTSTRAP, DDL])
@pytest.mark.parametrize("version", [b"0", b"2", b"9223372036854775807"])
def test_another_version_is_refused_as_such(message: bytes, version: bytes) -> None:
    value = message.replace(b'{"version":1,', b'{"version":' + version + b",", 1)
    assert refused(value) == ("unsupported_version", "$.version")
    with pytest.raises(UnsupportedVersionError) as caught:
        only(value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


REQUIRED = {
    INSERT: (
        b'"version":1,',
        b'"database":"simple",',
        b'"table":"user",',
        b'"tableID":148,',
        b'"type":"INSERT",',
        b'"commitTs":447984084414103554,',
        b'"buildTs":1708923662983,',
        b'"schemaVersion":447984074911121426,',
    ),
    UPDATE: (b'"data":{"id":"1"},',),
    WATERMARK: (b'"type":"WATERMARK",', b'"commitTs":447984124732375041,'),
    BOOTSTRAP: (b'"buildTs":1708924603278,',),
    DDL: (
        b'"sql":"alter table user comment \'\\u0026\'",',
        b'"commitTs":447987408682614795,',
        b'"buildTs":1708936343598,',
    ),
}


@pytest.mark.parametrize(
    ("message", "part"), [(message, part) for message, parts in REQUIRED.items() for part in parts]
)
def test_a_required_field_may_not_be_missing_or_null(message: bytes, part: bytes) -> None:
    name = part.split(b'"')[1]
    path = f"$.{name.decode()}"
    assert refused(changed(message, part, b"")) == ("missing_field", path)
    null = changed(message, part, b'"' + name + b'":null,')
    assert refused(null) == ("wrong_type", path)


@pytest.mark.parametrize(
    ("message", "part", "path"),
    [
        (INSERT, INSERT[INSERT.index(b',"data"') : -1], "$.data"),
        (UPDATE, b',"old":{"id":"1"}', "$.old"),
        (DELETE, b',"old":{"age":"25","id":"1"}', "$.old"),
        (BOOTSTRAP, b',"tableSchema":' + USER_JSON, "$.tableSchema"),
    ],
)
def test_images_and_the_schema_of_a_bootstrap_are_required(
    message: bytes, part: bytes, path: str
) -> None:
    assert refused(changed(message, part, b"")) == ("missing_field", path)
    name = path[2:].encode()
    assert refused(changed(message, part, b',"' + name + b'":null')) == ("wrong_type", path)
    assert refused(changed(message, part, b',"' + name + b'":[]')) == ("wrong_type", path)


def test_null_in_place_of_an_image_says_the_same_as_nothing() -> None:
    assert only(INSERT[:-1] + b',"old":null}') == EVENTS[INSERT]
    assert only(DELETE[:-1] + b',"data":null}') == EVENTS[DELETE]


WRONG_NUMBERS = [b'"1"', b"1.0", b"1e3", b"true", b"[]", b"{}", b"9" * 100_000, b"0.1", b"-1.5e-7"]


@pytest.mark.parametrize(
    "name", [b"version", b"tableID", b"commitTs", b"buildTs", b"schemaVersion"]
)
@pytest.mark.parametrize("number", WRONG_NUMBERS, ids=lambda number: number[:8])
def test_an_integer_is_nothing_else(name: bytes, number: bytes) -> None:
    start = INSERT.index(b'"' + name + b'":') + len(name) + 3
    end = INSERT.index(b",", start)
    value = INSERT[:start] + number + INSERT[end:]
    assert refused(value) == ("wrong_type", f"$.{name.decode()}")


@pytest.mark.parametrize("name", [b"tableID", b"commitTs", b"buildTs", b"schemaVersion"])
def test_an_integer_has_a_range(name: bytes) -> None:
    start = INSERT.index(b'"' + name + b'":') + len(name) + 3
    end = INSERT.index(b",", start)
    for number in (b"-1", b"9223372036854775808", b"18446744073709551615"):
        value = INSERT[:start] + number + INSERT[end:]
        assert refused(value) == ("out_of_range", f"$.{name.decode()}")
    for number in (b"0", b"9223372036854775807"):
        (outcome,) = assert_equal([INSERT[:start] + number + INSERT[end:]])
        assert isinstance(outcome, list)


@pytest.mark.parametrize(
    ("message", "part", "path"),
    [
        (INSERT, b'"database":"simple"', "$.database"),
        (INSERT, b'"table":"user"', "$.table"),
        (DATABASE_DDL, b'"sql":"create database `simple`"', "$.sql"),
    ],
)
def test_a_name_is_a_text_that_is_not_empty(message: bytes, part: bytes, path: str) -> None:
    name = part.split(b":")[0]
    assert refused(changed(message, part, name + b':""')) == ("empty_text", path)
    for other in (b"1", b"true", b"[]", b"{}"):
        assert refused(changed(message, part, name + b":" + other)) == ("wrong_type", path)


CHECKSUM = UPDATE[UPDATE.index(b'{"version":1,"corrupted"') : UPDATE.index(b',"data"')]
LOCATION = b'"claimCheckLocation":"file:///tmp/a.json"'


def test_a_cut_row_of_a_table_without_a_key_has_its_images_in_the_claim_check() -> None:
    """No column is left of such a row, and Go leaves out what is empty."""
    value = changed(UPDATE, b',"data":{"id":"1"},"old":{"id":"1"}', b"")
    assert assert_equal([value]) == [[replace(EVENTS[UPDATE], before={}, after={})]]
    inserted = replace(EVENTS[UPDATE], op=Op.INSERT, before=None, after={})
    deleted = replace(EVENTS[UPDATE], op=Op.DELETE, before={}, after=None)
    values = [value.replace(b"UPDATE", word) for word in (b"INSERT", b"DELETE")]
    assert assert_equal(values) == [[inserted], [deleted]]
    assert refused(changed(value, LOCATION + b",", b"")) == ("missing_field", "$.data")
    assert refused(changed(value, LOCATION, LOCATION + b',"old":{}')) == ("missing_field", "$.data")


def test_marks_and_checksums_that_are_null_are_none() -> None:
    assert only(changed(UPDATE, CHECKSUM, b"null")) == replace(EVENTS[UPDATE], checksum=None)
    for nothing in (b'""', b"null"):
        (outcome,) = assert_equal([changed(UPDATE, LOCATION, b'"claimCheckLocation":' + nothing)])
        assert outcome == [replace(EVENTS[UPDATE], claim_check_location=None)]


def test_a_ddl_takes_its_names_from_the_schema_before_where_there_is_no_other() -> None:
    value = changed(DDL, b'"tableSchema":' + USER_JSON + b",", b'"tableSchema":null,')
    event = only(value)
    assert event == replace(EVENTS[DDL], schema=None)
    assert_equal([value])


REFUSED: list[tuple[bytes, str, str]] = [
    # Another version is refused before its type is looked at.
    (b'{"version":2,"type":"NEW"}', "unsupported_version", "$.version"),
    (b'{"version":2}', "unsupported_version", "$.version"),
    # Messages of other protocols.
    (b'{"payload":{"op":"c","after":{"id":1}},"schema":null}', "missing_field", "$.version"),
    (b"{}", "missing_field", "$.version"),
    (b'{"version":1}', "missing_field", "$.type"),
    # An insert has no old, and a delete no data.
    (INSERT[:-1] + b',"old":{"id":"1"}}', "unexpected_field", "$.old"),
    (DELETE[:-1] + b',"data":{}}', "unexpected_field", "$.data"),
    # A value is text, null or a zoned timestamp.
    *(
        (changed(DELETE, b'"age":"25"', b'"age":' + item), reason, f"$.old.age{path}")
        for item, reason, path in (
            *(
                (item, "wrong_type", "")
                for item in (b"1", b"1.5", b"true", b"[]", b'["x"]', b"9" * 100_000)
            ),
            (b"{}", "wrong_members", ""),
            (b'{"location":"UTC"}', "wrong_members", ""),
            (b'{"location":"UTC","value":"x","more":null}', "wrong_members", ""),
            (b'{"Location":"UTC","value":"x"}', "wrong_members", ""),
            (b'{"location":null,"value":"x"}', "wrong_type", ".location"),
            (b'{"location":"UTC","value":1}', "wrong_type", ".value"),
        )
    ),
    # A path quotes what is no plain name.
    (changed(DELETE, b'"age":"25"', b'"a.b \\"c\\"":1'), "wrong_type", '$.old["a.b \\"c\\""]'),
    # A checksum is an object of two unsigned 32-bit numbers.
    (changed(UPDATE, CHECKSUM, b"7"), "wrong_type", "$.checksum"),
    *(
        (changed(UPDATE, part, other), reason, f"$.checksum.{path}")
        for part, other, reason, path in (
            (b'"version":1,"corrupted"', b'"corrupted"', "missing_field", "version"),
            (b'"corrupted":false,', b"", "missing_field", "corrupted"),
            (b'"corrupted":false', b'"corrupted":0', "wrong_type", "corrupted"),
            (b'"current":4294967295', b'"current":4294967296', "out_of_range", "current"),
            (b'"previous":0', b'"previous":-1', "out_of_range", "previous"),
            (b'"previous":0', b'"previous":"0"', "wrong_type", "previous"),
        )
    ),
    # The marks of large messages have their types.
    (
        changed(UPDATE, b'"handleKeyOnly":true', b'"handleKeyOnly":1'),
        "wrong_type",
        "$.handleKeyOnly",
    ),
    (changed(UPDATE, LOCATION, b'"claimCheckLocation":1'), "wrong_type", "$.claimCheckLocation"),
    # A bad schema has its path.
    *(
        (changed(BOOTSTRAP, part, other), reason, f"$.tableSchema.{path}")
        for part, other, reason, path in (
            (b'"mysqlType":"enum",', b"", "missing_field", "columns[1].dataType.mysqlType"),
            (
                *(b'"elements":["good",', b'"elements":[1,'),
                *("wrong_type", "columns[1].dataType.elements[0]"),
            ),
            (b'"columns":["id"]', b'"columns":["nope"]', "unknown_column", "indexes[0].columns"),
            (b'"name":"mood"', b'"name":"id"', "duplicate_column", "columns"),
            (b'"default":5', b'"default":' + b"9" * 5000, "wrong_type", "columns[2].default"),
            (b'"tableID":148', b'"tableID":"148"', "wrong_type", "tableID"),
        )
    ),
]


def test_what_is_refused() -> None:
    assert_refused(REFUSED)


def test_fields_a_type_does_not_use_are_ignored_whatever_they_are() -> None:
    more = b'{"sql":1,"tableSchema":[],"new":{"a":[1.5,' + b"9" * 10_000 + b']},"":null,'
    for message, event in EVENTS.items():
        if not isinstance(event, RowChange):
            continue
        assert assert_equal([more + message[1:]]) == [[event]]
    watermark = b'{"data":1,"old":[],"checksum":"","database":7,' + WATERMARK[1:]
    assert assert_equal([watermark]) == [[EVENTS[WATERMARK]]]
    bootstrap = changed(BOOTSTRAP, b'"commitTs":0,', b'"commitTs":"?",')
    assert assert_equal([bootstrap]) == [[EVENTS[BOOTSTRAP]]]


def test_the_last_of_several_members_of_one_name_wins_as_a_whole() -> None:
    twice = b'{"data":{"other":"x"},"commitTs":"?","database":"x",' + INSERT[1:]
    assert assert_equal([twice]) == [[EVENTS[INSERT]]]
    last = INSERT[:-1] + b',"data":{"id":"9"}}'
    event = EVENTS[INSERT]
    assert isinstance(event, RowChange)
    assert assert_equal([last]) == [[replace(event, after={"id": "9"})]]
    assert refused(INSERT[:-1] + b',"data":null}') == ("wrong_type", "$.data")


def test_names_of_fields_are_exact() -> None:
    assert refused(changed(WATERMARK, b'"commitTs"', b'"committs"')) == (
        "missing_field",
        "$.commitTs",
    )
    escaped = changed(WATERMARK, b'"commitTs"', b'"\\u0063ommitTs"')
    assert assert_equal([escaped]) == [[EVENTS[WATERMARK]]]


@pytest.mark.parametrize("value", [b"[1,2,3]", b'"x"', b"1", b"true", b"null", b"NaN"])
def test_a_message_is_an_object(value: bytes) -> None:
    assert refused(value)[0] in ("wrong_type", "invalid_json")


def test_a_ddl_of_no_known_type_is_not_written() -> None:
    with pytest.raises(WireError):
        encode(WireFormat.SIMPLE_JSON, [replace(EVENTS[DDL], ddl_type="VACUUM")])
