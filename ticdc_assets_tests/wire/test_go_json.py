import json

import pytest

from ticdc_assets.base.errors import WireError
from ticdc_assets.demo.simulator.encoders.go_json import dumps
from ticdc_assets.wire import go_json
from ticdc_assets.wire.codes import MAX_DEPTH
from ticdc_assets.wire.go_json import OtherNumber


def refusal(value: bytes | None) -> tuple[str, str]:
    with pytest.raises(WireError) as caught:
        go_json.parse(value)
    return caught.value.reason, caught.value.position


@pytest.mark.parametrize(
    ("value", "parsed"),
    [
        (b"{}", {}),
        (b' \t\r\n{"a" : [1, true, null]}\n ', {"a": [1, True, None]}),
        (b'"\\ud83d\\ude00"', "😀"),
        (b'"\\u0000\\/\\b"', "\x00/\b"),
        (b'"\\\\ud800"', "\\ud800"),
        (b'{"a":1,"a":{"b":2}}', {"a": {"b": 2}}),
        (b"-9223372036854775808", -(2**63)),
        (b"18446744073709551615", 2**64 - 1),
        (b"-0", 0),
    ],
)
def test_strict_json_is_read(value: bytes, parsed: object) -> None:
    assert go_json.parse(value) == parsed


@pytest.mark.parametrize(
    "text",
    ["1.0", "1e3", "0.1", "18446744073709551616", "-9223372036854775809", "9" * 100_000],
    ids=lambda text: text[:20],
)
def test_a_number_that_is_no_64_bit_integer_stays_text(text: str) -> None:
    assert go_json.parse(text.encode()) == OtherNumber(text)


@pytest.mark.parametrize(
    ("value", "reason", "position"),
    [
        (None, "null_value", "byte 0"),
        (b"", "empty_value", "byte 0"),
        (b" \n\t ", "blank_value", "byte 0"),
        (b"\xef\xbb\xbf{}", "byte_order_mark", "byte 0"),
        (b"\xff\xfe{\x00}\x00", "invalid_utf8", "byte 0"),
        (b'{"a":"\xff"}', "invalid_utf8", "byte 6"),
        (b'"\xed\xa0\x80"', "invalid_utf8", "byte 1"),
        (b'"\xc0\x80"', "invalid_utf8", "byte 1"),
        (b"\x00\x00", "invalid_json", "byte 0"),
        (b'{"\xc3\xa9":x}', "invalid_json", "byte 6"),
        (b'{"a":1,}', "invalid_json", "byte 7"),
        (b"[01]", "invalid_json", "byte 2"),
        (b'"a\nb"', "invalid_json", "byte 2"),
        (b'"\\x"', "invalid_json", "byte 1"),
        (b"{'a':1}", "invalid_json", "byte 1"),
        (b'{"NaN":[1,NaN]}', "invalid_json", "byte 10"),
        (b"-Infinity", "invalid_json", "byte 0"),
        (b'{"a":"Infinity","b":Infinity}', "invalid_json", "byte 20"),
        (b"{}{}", "trailing_bytes", "byte 2"),
        (b"{} \x00", "trailing_bytes", "byte 3"),
        (b"{}\xc2\xa0", "trailing_bytes", "byte 2"),
        (b'{"a":"\\ud800"}', "lone_surrogate", "byte 6"),
        (b'"\\ude00\\ud83d"', "lone_surrogate", "byte 1"),
        (b'"\xc3\xa9\\\\\\uDBFFx"', "lone_surrogate", "byte 5"),
        (b'{"\\udc00":1}', "lone_surrogate", "byte 2"),
    ],
)
def test_what_is_no_strict_json_is_refused(value: bytes | None, reason: str, position: str) -> None:
    assert refusal(value) == (reason, position)


def test_nesting_is_read_to_the_limit_and_refused_beyond_it() -> None:
    deepest = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert go_json.parse(deepest) is not None
    assert refusal(b"[" + deepest + b"]") == ("too_deep", "byte 0")


def test_brackets_that_do_not_nest_or_stand_in_strings_do_not_count() -> None:
    assert go_json.parse(b"[" + b"[]," * 1000 + b"[]]") == [[]] * 1001
    assert go_json.parse(json.dumps(["[" * 1000, '"' + "{" * 1000]).encode()) is not None


@pytest.mark.parametrize(
    "value",
    [
        b"[" * 1_000_000,
        b'{"a":' * 1_000_000,
        b'"' + b'\\"' * 1_000_000 + b"[" * 200,
        b"[]" * 500_000,
        b'"' * 999_999 + b"[" * 101,
    ],
    ids=["arrays", "objects", "open string", "flat", "quotes"],
)
def test_megabytes_of_brackets_and_quotes_are_refused_quickly(value: bytes) -> None:
    refusal(value)


def test_text_is_escaped_as_go_does() -> None:
    every = "".join(map(chr, range(0x20))) + '"\\/<>&\x7f\x80\u2028\u2029\ufeff🚀'
    assert dumps(every) == (
        b'"\\u0000\\u0001\\u0002\\u0003\\u0004\\u0005\\u0006\\u0007\\b\\t\\n\\u000b\\f\\r'
        b"\\u000e\\u000f\\u0010\\u0011\\u0012\\u0013\\u0014\\u0015\\u0016\\u0017\\u0018\\u0019"
        b"\\u001a\\u001b\\u001c\\u001d\\u001e\\u001f"
        b'\\"\\\\/\\u003c\\u003e\\u0026\x7f\xc2\x80\\u2028\\u2029\xef\xbb\xbf\xf0\x9f\x9a\x80"'
    )
    assert go_json.parse(dumps(every)) == every


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("id", "$.data.id"),
        ("a.b", '$.data["a.b"]'),
        ('q"', '$.data["q\\""]'),
        ("", '$.data[""]'),
        ("é", '$.data["é"]'),
        ("a\n", '$.data["a\\n"]'),
        ("x" * 100, "$.data." + "x" * 100),
        ("x" * 500, '$.data["' + "x" * 80 + '"]'),
        (" " * 100, '$.data["' + " " * 80 + '"]'),
    ],
)
def test_paths_name_any_member(name: str, path: str) -> None:
    assert go_json.member("$.data", name) == path
