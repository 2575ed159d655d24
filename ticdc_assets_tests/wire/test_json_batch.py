"""The batch readers next to the references, most of all those of the formats in JSON."""

from dataclasses import replace
from itertools import permutations, product
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from ticdc_assets.model.values.floats import double_text, float_text, to_float32
from ticdc_assets.wire import WireFormat
from ticdc_assets.wire.batch import BATCH_READERS, decode_batch
from ticdc_assets.wire.canal import batch as canal_batch
from ticdc_assets.wire.open import batch as open_batch
from ticdc_assets.wire.open import reference as open_reference
from ticdc_assets.wire.record import Record
from ticdc_assets.wire.rows import ROW, read_by
from ticdc_assets_tests.wire import golden
from ticdc_assets_tests.wire.canal.test_messages import DELETE as CANAL_DELETE
from ticdc_assets_tests.wire.canal.test_messages import WATERMARK as CANAL_WATERMARK
from ticdc_assets_tests.wire.comparing import Input, assert_equal, batch_of
from ticdc_assets_tests.wire.open.test_messages import record as open_record
from ticdc_assets_tests.wire.simple.messages import DELETE, INSERT, UPDATE, WATERMARK

SIMPLE_UPDATE = (
    b'{"version":1,"database":"d","table":"t","tableID":1,"type":"UPDATE","commitTs":3,'
    b'"buildTs":4,"schemaVersion":5,"data":{"a":null,"b":"x","ts":{"location":"UTC","value":""}},'
    b'"old":{"a":"\\u003c","old":{"location":"","value":"1"},"b":null}}'
)
_CANAL_HEAD = (
    b'{"id":0,"database":"d","table":"t","pkNames":["id","k"],"isDdl":false,"type":"INSERT",'
    b'"es":1640007049196,"ts":1640007049200,"sql":"","sqlType":{"id":-5,"k":12,"b":2004},'
    b'"mysqlType":{"k":"varchar","b":"blob","id":"bigint unsigned"},'
)
_CANAL_ROW = b'{"id":"1","k":null,"b":"a\\u0000\\"\\\\\xc2\x80\xc3\xbf"}'
_OTHER_CANAL_ROW = b'{"id":"2","k":"x","b":null}'
CANAL_INSERT = (
    _CANAL_HEAD
    + b'"old":null,"data":['
    + _CANAL_ROW
    + b'],"_tidb":{"commitTs":429918007904436226}}'
)
CANAL_UPDATE = (
    _CANAL_HEAD.replace(b"INSERT", b"UPDATE").replace(b'["id","k"]', b"null")
    + b'"old":['
    + _OTHER_CANAL_ROW
    + b'],"data":['
    + _CANAL_ROW
    + b"]}"
)
CANAL_PARTIAL_UPDATE = CANAL_INSERT.replace(b"INSERT", b"UPDATE").replace(
    b'"old":null', b'"old":[{"id":"2","b":"\xc2\x80"}]'
)
"""With `content-compatible` the image before has the columns that changed."""
CANAL_ROW_KEY = CANAL_PARTIAL_UPDATE.replace(b"}}", b',"rowkey":"dGVzdA=="}}')

OPEN_VALUE = (
    b'{"u":{"b":{"t":252,"f":65,"v":"AAE="},"d":{"t":5,"f":65,"v":-0.25},"e":{"t":247,"f":64,"v":3},'
    b'"f":{"t":4,"f":65,"v":8180.625},"id":{"t":8,"h":true,"f":11,"v":-1},"n":{"t":6,"f":0,"v":null},'
    b'"q":{"t":15,"f":65,"v":"a\\\\x00\\\\\\\\\\\\\\"\xc3\xa9"},"t":{"t":252,"f":64,"v":"w6kK"},'
    b'"v":{"t":15,"f":0,"v":"\xc3\xa9\\u003c\\n"}}}'
)
OPEN_KEY = b'{"ts":429918007904436226,"scm":"d","tbl":"t","t":1}'
OPEN_OLD = b'{"u":{"a":{"t":3,"f":0,"v":1}},"p":{"a":{"t":3,"f":0,"v":null}}}'
OPEN_DELETE = b'{"d":{"a":{"t":3,"f":0,"v":0}}}'
OPEN_PARTITION_KEY = b'{"ts":1,"scm":"d","tbl":"t","rid":-5,"ptn":7,"t":1}'


OPEN = (
    open_record((OPEN_KEY, OPEN_VALUE)),
    open_record((OPEN_KEY, OPEN_DELETE), (OPEN_PARTITION_KEY, OPEN_OLD)),
)

PLAIN: list[tuple[WireFormat, Record]] = [
    *(
        (WireFormat.SIMPLE_JSON, Record(key=None, value=value))
        for value in (INSERT, UPDATE, SIMPLE_UPDATE, DELETE, WATERMARK)
    ),
    *(
        (WireFormat.CANAL_JSON, Record(key=None, value=value))
        for value in (
            CANAL_INSERT,
            CANAL_UPDATE,
            CANAL_DELETE,
            CANAL_PARTIAL_UPDATE,
            CANAL_ROW_KEY,
            CANAL_WATERMARK,
        )
    ),
    *((WireFormat.OPEN_PROTOCOL, record) for record in OPEN),
]
FOLDERS = [
    (WireFormat.SIMPLE_JSON, "simple-json/shop"),
    (WireFormat.CANAL_JSON, "canal-json/shop"),
    (WireFormat.OPEN_PROTOCOL, "open/shop"),
    *((WireFormat.SIMPLE_AVRO, f"simple-avro/{name}") for name in ("shop", "types", "corrupt")),
    *((WireFormat.CRAFT, f"craft/{name}") for name in ("shop", "types")),
]
TEXTS = [
    *(f"\\{letter}" for letter in "abfnrtvxu0'/\\\""),
    "\\u0041",
    "\\u00e9\\u00FF\\u0100",
    "\\u12g4",
    "\\u00",
    "\\ud800",
    "\\udfff",
    "\\ud83d\\ude00",
    "\\uD7FF\\uE000",
    # As many bytes as are read at once, and more.
    *("x" * count + "\\\\" for count in range(67)),
    *("x" * count + "\u00e9" for count in range(67)),
    "\u0080\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff",
    "\x7f",
]
BROKEN = [
    b"\x80", b"\xc2", b"\xc1\xbf", b"\xc3\xc3", b"\xe0\x9f\xbf", b"\xe2\x82", b"\xed\xa0\x80",
    b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xf0\x9f\x98", b"\x00",
    b"\x1f", b"\n",
]  # fmt: skip


def placed(text: bytes) -> list[bytes]:
    """Return `text` in each place that may hold one."""
    return [
        INSERT.replace(b'"database":"', b'"database":"' + text, 1),
        INSERT.replace(b'"table":"', b'"table":"' + text, 1),
        INSERT.replace(b'"data":{"', b'"data":{"' + text, 1),
        INSERT.replace(b'":"', b'":"' + text, 99),
    ]


def test_texts_of_simple_json() -> None:
    texts = [*(text.encode() for text in TEXTS), *BROKEN, *(b"12345" + text for text in BROKEN)]
    assert_equal([value for text in texts for value in placed(text)])


def test_numbers_of_simple_json() -> None:
    numbers = [b"0", b"-1", b"-0", b"00", b"01", b"1.0", b"1e3", b"", b"9" * 18, b"9" * 19]
    numbers += [b"9223372036854775807", b"9223372036854775808", b"1" * 40]
    assert_equal(
        [
            INSERT.replace(name + b":", name + b":" + number + b',"_":', 1)
            for name in (b'"tableID"', b'"commitTs"', b'"buildTs"', b'"schemaVersion"')
            for number in numbers
        ]
        + [
            b'{"version":1,"type":"WATERMARK","commitTs":' + one + b',"buildTs":' + other + b"}"
            for one in numbers
            for other in numbers
        ]
    )


TEXT_BYTES = [*(text.encode() for text in TEXTS), *BROKEN]


@pytest.mark.parametrize("place", [b'"database":"', b'"pkNames":["', b'"k":"', b'"b":"', b'"'])
def test_texts_of_canal_json(place: bytes) -> None:
    values = [CANAL_UPDATE, CANAL_INSERT]
    assert_equal(
        [
            value.replace(place, place + text)
            for text in TEXT_BYTES
            for value in values
            if text != b"\\" or place != b'"'
        ],
        WireFormat.CANAL_JSON,
    )


def test_the_image_before_an_update_of_canal_json_may_have_any_columns_in_any_order() -> None:
    members = [b'"id":"2"', b'"k":null', b'"b":"\xc2\x80"']
    others = [b'"x":"1"', b'"k":1', b'"k":', b'"i":"1"', b'"id2":"1"', b'"id":"2"x']
    lists = [list(order) for size in range(4) for order in permutations(members, size)]
    lists += [[*order, other] for order in lists for other in (*members, *others)]
    lists += [[other, *order] for order in lists[:16] for other in (*members, *others)]
    old = b'[{"id":"2","b":"\xc2\x80"}]'
    assert old in CANAL_PARTIAL_UPDATE
    values = [CANAL_PARTIAL_UPDATE.replace(old, b"[{" + b",".join(each) + b"}]") for each in lists]
    values += [
        CANAL_PARTIAL_UPDATE.replace(old, wrong)
        for wrong in (b"[{}{}]", b"[{,}]", b"[}]", b"[{]", b"[]", b"[{{}]", b'[,"id":"2"}]')
    ]
    values += [
        CANAL_ROW_KEY.replace(b"dGVzdA==", key)
        for key in (b"", b'"', b'","commitTs":1,"a":"', b"\\", b"\\u0041", b"\x1f")
    ]
    assert_equal(values, WireFormat.CANAL_JSON)
    exact = canal_batch.decode_exact(batch_of(values))
    assert exact.sources.tolist()[:16] == list(range(16))


def test_bytes_of_canal_json_become_base64_whatever_stands_around_them() -> None:
    texts = ["".join(chr(97 + number) for number in range(size)) for size in range(10)]
    texts += [chr(point) for point in range(0x20, 0x101) if chr(point) not in '"\\']
    texts += [f"\\u{point:04x}" for point in range(0x102)]
    texts += [f"\\u{point:04X}" for point in (0xE9, 0xAB, 0x1F)]
    values = [CANAL_INSERT.replace(b'"b":"', b'"b":"' + text.encode()) for text in texts]
    assert_equal(values, WireFormat.CANAL_JSON)


def test_types_in_any_order_are_those_of_one_table() -> None:
    members = [b'"k":"varchar"', b'"b":"blob"', b'"id":"bigint unsigned"']
    others = [
        b'"k":"text"', b'"b":"varchar"', b'"b":"enum(\'blob\')"', b'"id":"\\u0062lob"',
        b'"\\u0062":"varchar"', b'"c":"blob"', b'"long_name_1":"int"', b'"k":1', b'"k":"var',
    ]  # fmt: skip
    start, _, rest = CANAL_INSERT.partition(b'"mysqlType":{')
    _, _, end = rest.partition(b"}")
    lists = [list(order) for size in range(5) for order in permutations(members, size)]
    lists += [[*members, other] for other in (*members, *others)]
    lists += [[other, *members] for other in (*members, *others)]
    lists += [[other, *members[1:]] for other in (*members, *others)]
    lists += [[members[0], other, members[2]] for other in (*members, *others)]
    lists += [[*members[:2], other] for other in (*members, *others)]
    values = [start + b'"mysqlType":{' + b",".join(each) + b"}" + end for each in lists]
    # Whatever came first.
    for order in (values, values[::-1], values * 2, [CANAL_INSERT, *values]):
        assert_equal(order, WireFormat.CANAL_JSON)


def test_many_columns_with_long_names_and_numbers_of_other_widths() -> None:
    names = [f"a_long_name_{'x' * (number % 71)}_of_{number:03}" for number in range(300)]
    random = Random(7)
    values: list[bytes] = []
    for number in range(40):
        shuffled = names.copy()
        random.shuffle(shuffled)
        sql = ",".join(f'"{name}":{random.choice([4, -5])}' for name in names)
        types = ",".join(f'"{name}":"{"int" if number else "blob"}"' for name in shuffled)
        row = ",".join(f'"{name}":"{number}"' for name in names)
        values.append(
            f'{{"id":0,"database":"d","table":"t","pkNames":[],"isDdl":false,"type":"INSERT",'
            f'"es":1,"ts":2,"sql":"","sqlType":{{{sql}}},"mysqlType":{{{types}}},"old":null,'
            f'"data":[{{{row}}}]}}'.encode()
        )
    assert_equal(values, WireFormat.CANAL_JSON)
    exact = canal_batch.decode_exact(batch_of(values))
    assert len(exact.sources) == len(values)


@golden.needs_golden
@pytest.mark.parametrize(("wire_format", "folder"), FOLDERS)
@pytest.mark.thorough
def test_nearly_all_rows_of_the_encoders_are_plain(wire_format: WireFormat, folder: str) -> None:
    """The reference says the same, so only this sees rows that it reads alone."""
    batch = batch_of(golden.records(folder))
    exact = BATCH_READERS[wire_format](batch)
    rows = decode_batch(wire_format, batch).column("kind").to_pylist().count(ROW)
    taken = exact.rows.column("kind").to_pylist().count(ROW)
    # Open Protocol's numbers with an exponent, of which there are many in this scenario, are not.
    least = 0.8 if wire_format is WireFormat.OPEN_PROTOCOL else 0.95
    assert least * rows <= taken <= rows


def assert_written_alike(records: list[Input]) -> None:
    """Assert that rows are equal to the last byte of their texts, whichever way they take."""
    assert_equal(records, WireFormat.OPEN_PROTOCOL)
    batch = batch_of(records)
    exact = open_batch.decode_exact(batch)
    rows = read_by(open_reference.decode, batch, np.arange(batch.num_rows)).rows
    taken = set(batch.column("offset").take(pa.array(exact.sources)).to_pylist())
    among = [offset in taken for offset in rows.column("offset").to_pylist()]
    assert exact.rows.equals(rows.filter(pa.array(among)))


def open_values(code: int, flags: int, *values: bytes) -> list[Input]:
    """Return a record for each value of a column."""
    return [
        open_record((OPEN_KEY, b'{"d":{"a":{"t":%d,"f":%d,"v":%s}}}' % (code, flags, value)))
        for value in values
    ]


CODES = [*range(17), 225, 244, 245, 246, 247, 248, 249, 252, 253, 254, 255, 256, 999]


@pytest.mark.parametrize("code", CODES)
@pytest.mark.thorough
def test_values_of_open_protocol(code: int) -> None:
    integers = [b"0", b"1", b"-1", b"-0", b"00", b"01", b"-01", b"+1", b"", b"-"]
    for most in (10**15, 2**24, 2**31, 2**53, 2**63, 10**19, 2**64, 2 * 10**19, 10**20, 10**25):
        for near in (-1, 0, 1):
            integers += [b"%d" % (most + near), b"-%d" % (most + near)]
    fractions = [b"1.0", b"1.", b".5", b"-.5", b"-0.0", b"0.0", b"0.10", b"1e3", b"1E-7", b"1.5e+3"]
    fractions += [
        b"0.1", b"-0.1", b"16777.217", b"8180.625", b"8180.626", b"1e400", b"0.000244140625",
    ]  # fmt: skip
    fractions += [b"0.00024414062", b"0.00024414063", b"0.0000001", b"123456.7", b"1234567.8"]
    fractions += [b"0." + b"0" * count + b"1" for count in (5, 20, 30, 50, 330)]
    texts = [b'"' + text + b'"' for text in TEXT_BYTES]
    quoted = [
        b"x41", b"x4", b"xg1", b"u00e9", b"u200b", b"ud800", b"udfff", b"ue000", b"u12",
        b"U0001f600",
    ]  # fmt: skip
    quoted += [
        b"U00110000", b"U0010ffff", b"U0000d800", b"101", b"377", b"400", b"'", b"a", b"v", b"q",
        b"",
    ]  # fmt: skip
    texts += [b'"' + before + b"\\\\" + text + b'"' for text in quoted for before in (b"", b"xy")]
    texts += [
        b'"' + text[:size] + b'"' for text in (b"AAE=", b"AA==", b"QUJDREU=") for size in range(9)
    ]
    texts += [
        b'"AAF="', b'"AB=="', b'"A==="', b'"===="', b'"AA=A"', b'"AA==AAAA"', b'"AA-_"', b'"w6k="',
    ]  # fmt: skip
    texts += [
        b'"CQo="', b'"IiJcCg0="', b'"AB8gfw=="', b'"gA=="', b'"7aCA"', b'"\\u0041A=="', b'"A\\/8="',
    ]  # fmt: skip
    others = [b"null", b"nul", b"true", b"{}", b"[]", b"NaN", b" 1", b"1 ", b'"a']
    for flags in (0, 1, 128, 129):
        values = [*integers, *fractions, *texts, *others]
        exact = open_record((OPEN_KEY, OPEN_DELETE))
        assert_written_alike([*open_values(code, flags, *values), exact])


@pytest.mark.parametrize("code", [4, 5])
@pytest.mark.thorough
def test_numbers_are_the_shortest_there_are(code: int) -> None:
    random = Random(code)
    values: list[str] = []
    for _ in range(1000):
        digits = str(random.randrange(10 ** random.randint(1, 18)))
        place = random.randint(0, len(digits))
        values.append(f"{digits[:place] or '0'}.{digits[place:] or '0'}".rstrip("0").rstrip("."))
        values.append(f"{random.randrange(10**7) / 2 ** random.randint(0, 12):f}".rstrip("0."))
        number = random.uniform(-1, 1) * 10 ** random.randint(-8, 12)
        values += [double_text(number), float_text(to_float32(number))]
        exact = to_float32(number)
        values += [f"{exact:.{size}g}" for size in range(6, 9)]
    records = open_values(code, 1, *(value.encode() for value in values if value))
    assert_written_alike(records)


def test_columns_of_other_images_before_and_after() -> None:
    columns = [
        b'"a":{"t":3,"f":0,"v":1}', b'"a":{"t":3,"f":1,"v":null}',
        b'"a":{"t":3,"h":true,"f":0,"v":1}', b'"b":{"t":15,"f":0,"v":""}',
        b'"\\u0062":{"t":15,"f":0,"v":""}', b'"":{"t":15,"f":0,"v":"x"}',
        b'"\xc3\xa9":{"t":15,"f":65535,"v":"x"}', b'"c":{"t":15,"f":65536,"v":"x"}',
    ]  # fmt: skip
    images = [b"", *(b",".join(each) for size in (1, 2) for each in product(columns, repeat=size))]
    texts = [b'{"u":{%s}}' % image for image in images] + [
        b'{"d":{%s}}' % image for image in images
    ]
    texts += [b'{"u":{%s},"p":{%s}}' % each for each in product(images[:20], repeat=2)]
    records: list[Input] = [open_record((OPEN_KEY, text)) for text in texts]
    assert_written_alike(records)
    pairs: list[Input] = [open_record((OPEN_KEY, text), (OPEN_KEY, OPEN_VALUE)) for text in texts]
    assert_written_alike([*pairs, *records[::-1]])


def test_keys_of_open_protocol() -> None:
    changes = [
        b'"t":2', b'"t":3', b'"t":1,"ohk":true', b'"t":1,"ccl":"x"', b'"rid":5,"t":1',
        b'"rid":-0,"t":1', b'"rid":-9223372036854775808,"t":1', b'"rid":1.5,"t":1',
        b'"rid":-,"t":1', b'"ptn":0,"t":1', b'"ptn":-1,"t":1', b'"ptn":9223372036854775808,"t":1',
    ]  # fmt: skip
    keys = [OPEN_KEY.replace(b'"t":1', change) for change in changes]
    keys += [OPEN_KEY.replace(b'"d"', b'"' + text + b'"') for text in (b"", *TEXT_BYTES)]
    keys += [OPEN_KEY.replace(b'"t",', b'"' + text + b'",') for text in (b"", *TEXT_BYTES)]
    keys += [OPEN_KEY.replace(b'"d"', b'"' + b"d" * 5000 + b'"')]
    assert_written_alike([open_record((key, OPEN_DELETE)) for key in keys])


def test_lengths_of_open_protocol() -> None:
    record = open_record((OPEN_KEY, OPEN_DELETE), (OPEN_KEY, OPEN_DELETE))
    assert record.key is not None
    assert record.value is not None
    lengths = [0, 1, 29, 30, 31, 32, 33, 127, 128, 255, 256, 2**31, 2**32, 2**62, 2**63, 2**64 - 1]
    second = len(record.value) // 2
    records: list[Input] = []
    for length in lengths:
        size = length.to_bytes(8)
        records += [replace(record, value=size + record.value[8:])]
        records += [
            replace(record, value=record.value[:second] + size + record.value[second + 8 :])
        ]
        records += [replace(record, key=record.key[:8] + size + record.key[16:])]
    records += [replace(record, key=None), replace(record, value=None), replace(record, value=b"")]
    records += [replace(record, key=record.key + b"\0" * 8), replace(record, key=record.key[:8])]
    records += [replace(record, value=record.value + b"\0" * 8), record]
    assert_written_alike(records)
