import gzip
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.base.errors import SourceUnavailableError
from ticdc_assets.source import capture
from ticdc_assets.source.capture import CaptureError, CaptureReader, CaptureRecord, CaptureWriter
from ticdc_assets_tests.demo.simulator.builders import write_capture

FIRST = CaptureRecord(
    topic="shop", partition=0, offset=7, timestamp_ms=1795250783595, key=None, value=b"\x00\xff"
)
SECOND = CaptureRecord(
    topic='a "b" 🚀', partition=2, offset=0, timestamp_ms=-1, key=b"", value=None
)
RECORDS = [FIRST, SECOND, replace(FIRST, offset=9)]

LINES = (
    b'{"topic":"shop","partition":0,"offset":7,"timestamp":1795250783595,"key":null,"value":"AP8="}\n'
    b'{"topic":"a \\"b\\" \xf0\x9f\x9a\x80","partition":2,"offset":0,"timestamp":-1,"key":"",'
    b'"value":null}\n'
    b'{"topic":"shop","partition":0,"offset":9,"timestamp":1795250783595,"key":null,"value":"AP8="}\n'
)

PLACE = b'{"topic":"t","partition":0,"offset":1'

Write = Callable[[Path, bytes], object]


plainly = Path.write_bytes


def zipped(path: Path, text: bytes) -> None:
    path.write_bytes(gzip.compress(text))


def zipped_in_members(path: Path, text: bytes) -> None:
    members = (gzip.compress(text[start : start + 7]) for start in range(0, len(text), 7))
    path.write_bytes(b"".join(members))


both = pytest.mark.parametrize("write", [plainly, zipped, zipped_in_members])


@both
@pytest.mark.parametrize("name", ["capture.jsonl", "capture.jsonl.gz", "../x y'.txt"])
def test_records_are_read_whatever_the_file_is_called(
    tmp_path: Path, write: Write, name: str
) -> None:
    (tmp_path / "folder").mkdir()
    path = tmp_path / "folder" / name
    write(path, LINES)
    reader = CaptureReader(path)
    assert list(reader) == RECORDS
    assert reader.line == 3
    assert not reader.incomplete_tail
    assert not reader.open_line


@both
def test_headers_other_fields_blank_lines_and_spaces_are_tolerated(
    tmp_path: Path, write: Write
) -> None:
    path = tmp_path / "capture"
    text = LINES.replace(b'"key":null', b' "headers" : [{"a":"AA=="}] , "more":1.5, "key":null')
    write(path, b"\n" + text.replace(b"\n", b" \r\n\n"))
    reader = CaptureReader(path)
    assert list(reader) == RECORDS
    assert reader.line == 7


@pytest.mark.parametrize("write", [plainly, zipped])
def test_a_file_that_grows_is_read_to_its_last_whole_line(tmp_path: Path, write: Write) -> None:
    """At every length: whole lines are read, the rest is no error and is seen."""
    path = tmp_path / "capture"
    write(path, LINES)
    whole = path.read_bytes()
    ends = [0, *(end + 1 for end in range(len(LINES)) if LINES[end : end + 1] == b"\n")]
    seen = 0
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        reader = CaptureReader(path)
        records = list(reader)
        assert records == RECORDS[: len(records)]
        assert len(records) >= seen
        seen = len(records)
        if write is zipped:
            assert reader.incomplete_tail is (length > 0)
        else:
            # A line without its newline is read once its object is whole.
            assert seen == sum(end - 1 <= length for end in ends[1:])
            assert reader.incomplete_tail is (length not in ends and length + 1 not in ends)
            assert reader.open_line is (length + 1 in ends)
    assert seen == 3


@pytest.mark.parametrize("tail", [b"x", b"{", b'{"topic"', b"1", b'"a"', b"[]", b"null", b"\x00"])
def test_a_tail_that_is_no_object_is_still_being_written(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "capture"
    path.write_bytes(LINES + tail)
    reader = CaptureReader(path)
    assert list(reader) == RECORDS
    assert reader.incomplete_tail


@pytest.mark.parametrize(
    ("line", "got"),
    [
        (b"x", "1 bytes (JSON is malformed"),
        (b"\x00\x01", "2 bytes (JSON is malformed"),
        (b"[]", "2 bytes (Expected `object`, got `array`)"),
        (b"1", "got `int`"),
        (b"{}", "missing required field `topic`"),
        (LINES[:40], "40 bytes (Input data was truncated)"),
        (LINES.split(b"\n")[0] + b"x", "trailing characters"),
        (b'{"topic":""}', "Expected `str` of length >= 1 - at `$.topic`"),
        (b'{"topic":"\xff"}', "'utf-8' codec can't decode byte 0xff"),
        (b'{"topic":"t"}', "missing required field `partition`"),
        (b'{"topic":"t","partition":"0"}', "got `str` - at `$.partition`"),
        (b'{"topic":"t","partition":true}', "got `bool` - at `$.partition`"),
        (b'{"topic":"t","partition":-1}', "Expected `int` >= 0 - at `$.partition`"),
        (
            b'{"topic":"t","partition":2147483648}',
            "Expected `int` <= 2147483647 - at `$.partition`",
        ),
        (b'{"topic":"t","partition":0,"offset":-1}', ">= 0 - at `$.offset`"),
        (b'{"topic":"t","partition":0,"offset":9223372036854775808}', "at `$.offset`"),
        (b'{"topic":"t","partition":0,"offset":1.0}', "got `float` - at `$.offset`"),
        (PLACE + b"}", "missing required field `timestamp`"),
        (PLACE + b',"timestamp":-2}', "Expected `int` >= -1 - at `$.timestamp`"),
        (PLACE + b',"timestamp":1}', "missing required field `key`"),
        (PLACE + b',"timestamp":1,"key":null}', "missing required field `value`"),
        (PLACE + b',"timestamp":1,"key":1,"value":null}', "Expected `bytes | null`, got `int`"),
        *(
            (PLACE + b',"timestamp":1,"key":null,"value":"' + text + b'"}', "base64")
            for text in (b"AP8", b"AP8=\\n", b"A P8=", b"AP8=AA==", b"=", b"\xc3\xa9", b"AP_=")
        ),
    ],
    ids=repr,
)
@pytest.mark.parametrize("wanted", [None, lambda _topic, _partition, _offset: True])
@both
def test_a_line_that_is_no_record_is_named(
    tmp_path: Path,
    write: Write,
    wanted: Callable[[str, int, int], bool] | None,
    line: bytes,
    got: str,
) -> None:
    path = tmp_path / "capture"
    write(path, LINES + line + b"\n" + LINES)
    reader = CaptureReader(path, wanted=wanted)
    assert [next(reader), next(reader), next(reader)] == RECORDS
    with pytest.raises(CaptureError) as caught:
        next(reader)
    assert caught.value.path == str(path)
    assert caught.value.line == 4
    assert caught.value.expected == "the object of a record"
    assert got in caught.value.got
    assert "AP8" not in str(caught.value), "a payload in the text of an error"
    assert len(str(caught.value)) < 1000
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert next(reader, None) is None


@pytest.mark.parametrize("wanted", [None, lambda *_: False])
@both
def test_offsets_of_a_partition_must_increase(
    tmp_path: Path, write: Write, wanted: Callable[[str, int, int], bool] | None
) -> None:
    path = tmp_path / "capture"
    write(path, LINES + LINES)
    with pytest.raises(CaptureError, match="expected an offset above") as caught:
        list(CaptureReader(path, wanted=wanted))
    assert caught.value.line == 4
    assert caught.value.got == str(RECORDS[0].offset)


@both
def test_a_line_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write) -> None:
    path = tmp_path / "capture"
    longest = max(len(line) for line in LINES.split(b"\n"))
    write(path, LINES)
    monkeypatch.setattr(capture, "MAX_LINE_BYTES", longest)
    assert list(CaptureReader(path)) == RECORDS
    monkeypatch.setattr(capture, "MAX_LINE_BYTES", longest - 1)
    with pytest.raises(CaptureError, match=f"at most {longest - 1} bytes"):
        list(CaptureReader(path))


def test_a_file_that_unfolds_to_one_endless_line_is_refused_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "capture"
    path.write_bytes(gzip.compress(b"x" * 50_000_000))
    monkeypatch.setattr(capture, "MAX_LINE_BYTES", 1_000_000)
    with pytest.raises(CaptureError, match="line 1: expected a line of at most 1000000 bytes"):
        next(CaptureReader(path))


def test_damaged_gzip_is_named_or_an_incomplete_tail(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    whole = gzip.compress(LINES)
    errors: list[str] = []
    for place in range(2, len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        path.write_bytes(damaged)
        reader = CaptureReader(path)
        try:
            list(reader)
        except CaptureError as error:
            errors.append(str(error))
    assert len(errors) > len(whole) // 2
    assert all(str(path) in error for error in errors)


def test_bytes_after_the_last_member_are_refused_but_for_padding(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    path.write_bytes(gzip.compress(LINES) + bytes(600_000))
    reader = CaptureReader(path)
    assert list(reader) == RECORDS
    assert not reader.incomplete_tail
    path.write_bytes(gzip.compress(LINES[:96]) + bytes(5) + gzip.compress(LINES[96:]))
    assert list(CaptureReader(path)) == RECORDS
    path.write_bytes(gzip.compress(LINES) + b"xx")
    with pytest.raises(CaptureError, match="a gzip file"):
        list(CaptureReader(path))


def test_a_missing_file_is_an_unavailable_source(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(SourceUnavailableError, match="capture .*" + path.name) as caught:
            CaptureReader(path)
        assert caught.value.retriable


@pytest.mark.parametrize("depth", [10, 100, 500, 5_000])
def test_deep_headers_are_read_or_named(tmp_path: Path, depth: int) -> None:
    path = tmp_path / "capture.jsonl"
    headers = b',"headers":' + b"[" * depth + b"]" * depth + b"}"
    path.write_bytes(b"\n".join(line[:-1] + headers for line in LINES.splitlines()))
    for wanted in (None, lambda _topic, _partition, offset: offset == 9):
        reader = CaptureReader(path, wanted=wanted)
        if depth > 500:
            with pytest.raises(CaptureError):
                next(reader)
        else:
            found = [record.offset for record in reader]
            assert found == ([7, 0, 9] if wanted is None else [9])


def test_what_is_written_is_one_object_a_line(tmp_path: Path) -> None:
    plain, packed = tmp_path / "capture.jsonl", tmp_path / "capture.jsonl.gz"
    for path in (plain, packed):
        write_capture(path, RECORDS)
    assert plain.read_bytes() == gzip.decompress(packed.read_bytes()) == LINES


@given(
    records=st.lists(
        st.builds(
            CaptureRecord,
            topic=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5),
            partition=st.integers(0, 2**31 - 1),
            offset=st.integers(0, 2**63 - 1),
            timestamp_ms=st.integers(-1, 2**63 - 1),
            key=st.none() | st.binary(max_size=20),
            value=st.none() | st.binary(max_size=200),
        ),
        unique_by=lambda record: (record.topic, record.partition),
    ),
    name=st.sampled_from(["capture", "capture.gz"]),
    cut=st.integers(0, 10),
)
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, records: list[CaptureRecord], name: str, cut: int
) -> None:
    path = tmp_path_factory.mktemp("capture") / name
    for part in (records[:cut], records[cut:]):
        write_capture(path, part)
    reader = CaptureReader(path)
    assert list(reader) == records
    assert not reader.incomplete_tail


@pytest.mark.parametrize("name", ["capture", "capture.gz"])
def test_a_reader_sees_whole_lines_while_a_writer_writes(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with CaptureWriter(path) as writer:
        assert list(CaptureReader(path)) == []
        for number in range(5):
            writer.append(replace(FIRST, offset=number))
            assert len(list(CaptureReader(path))) == number
            writer.flush()
            reader = CaptureReader(path)
            assert len(list(reader)) == number + 1
            assert not reader.incomplete_tail


def test_many_records_are_written_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "capture.gz"
    with CaptureWriter(path) as writer:
        for number in range(8):
            writer.append(replace(FIRST, offset=number, value=bytes(300_000)))
        assert len(list(CaptureReader(path))) == 6
    assert len(list(CaptureReader(path))) == 8


@pytest.mark.parametrize("name", ["capture", "capture.gz"])
def test_offsets_of_a_partition_increase_through_the_whole_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with CaptureWriter(path) as writer:
        writer.append(FIRST)
        with pytest.raises(
            CaptureError, match="line 2: expected an offset above 7 in topic 'shop'"
        ):
            writer.append(FIRST)
        writer.append(replace(FIRST, partition=1))
        writer.append(replace(FIRST, topic="other", offset=0))
    with CaptureWriter(path) as writer:
        with pytest.raises(CaptureError, match="line 4: expected an offset above 7"):
            writer.append(replace(FIRST, offset=6))
        writer.append(replace(FIRST, offset=8))
    assert len(list(CaptureReader(path))) == 4


def test_only_a_whole_capture_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    path.write_bytes(LINES[:-1])
    write_capture(path, [replace(FIRST, offset=10)])
    assert list(CaptureReader(path)) == [*RECORDS, replace(FIRST, offset=10)]
    packed = gzip.compress(LINES)
    for name, text in (
        *(("capture", text) for text in (LINES[:-2], LINES + b"x\n", packed)),
        *(("capture.gz", text) for text in (LINES, packed[:-1])),
    ):
        path = tmp_path / name
        path.write_bytes(text)
        with pytest.raises(CaptureError):
            CaptureWriter(path)
        assert path.read_bytes() == text


def test_a_folder_that_does_not_exist_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailableError):
        CaptureWriter(tmp_path / "none" / "capture")
