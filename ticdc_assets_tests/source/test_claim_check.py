"""Large messages from storage: TiCDC's own files, hostile locations, files that are wrong."""

import json
import os
import pickle
from base64 import b64encode
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

from ticdc_assets.base.errors import ClaimCheckError, ConfigError, SourceUnavailableError
from ticdc_assets.config import ClaimCheck
from ticdc_assets.demo.simulator.encoders import encode
from ticdc_assets.model.events import RowChange
from ticdc_assets.source import claim_check
from ticdc_assets.source.claim_check import ClaimCheckStore, complete_batches
from ticdc_assets.wire import Compression, WireFormat
from ticdc_assets.wire.batch import decode_batch
from ticdc_assets.wire.record import Record
from ticdc_assets.wire.rows import CHANGE_SCHEMA
from ticdc_assets_tests.demo.simulator.compressing import compressed
from ticdc_assets_tests.events import row_event
from ticdc_assets_tests.golden import OPTIONS
from ticdc_assets_tests.wire import golden
from ticdc_assets_tests.wire.comparing import as_stored, batch_of, event_of

SIMPLE = WireFormat.SIMPLE_JSON
NAME = "01631e01-9f9a-4d1a-a542-5eac9391da50.json"

WHOLE = row_event(
    470614425716391936,
    build_ts_ms=1795251566638,
    database="shop",
    table="orders",
    table_id=118,
    schema_version=470614425704595456,
    before={"id": "4", "text": "old", "none": None},
    after={"id": "4", "text": "new" * 100, "none": None},
)
CUT = replace(
    WHOLE,
    before={"id": "4"},
    after={"id": "4"},
    handle_key_only=True,
    claim_check_location=f"s3://bucket/changefeed/{NAME}",
)
OTHER = replace(WHOLE, commit_ts=WHOLE.commit_ts + 1, after={"id": "5"})


def value_of(*events: RowChange, compression: Compression = Compression.NONE) -> bytes:
    (record,) = encode(SIMPLE, events)
    value = compressed(SIMPLE, record, compression).value
    assert value is not None
    return value


def wrapped(value: bytes) -> bytes:
    return json.dumps({"key": None, "value": b64encode(value).decode()}).encode()


def store_of(
    folder: Path | str, *, raw_value: bool = False, compression: Compression = Compression.NONE
) -> ClaimCheckStore:
    location = ClaimCheck(location=str(folder), raw_value=raw_value)
    return ClaimCheckStore(location, SIMPLE, compression)


def refused(store: ClaimCheckStore, location: str = NAME) -> ClaimCheckError:
    with pytest.raises(ClaimCheckError) as caught:
        store.fetch(location)
    error = caught.value
    assert error.quarantine
    assert error.position == "claim_check_location"
    assert error.expected
    assert 0 < len(error.got) <= 200
    return error


def rows_of(*events: RowChange) -> pa.RecordBatch:
    return decode_batch(SIMPLE, batch_of([value_of(event) for event in events]))


# --- files ---


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("raw_value", [False, True])
def test_fetch(tmp_path: Path, raw_value: bool, compression: Compression) -> None:
    value = value_of(WHOLE, compression=compression)
    (tmp_path / NAME).write_bytes(value if raw_value else wrapped(value))
    store = store_of(tmp_path, raw_value=raw_value, compression=compression)
    for location in (NAME, f"/elsewhere/{NAME}", f"s3://bucket/a/b/{NAME}", f"../../{NAME}"):
        assert store.fetch(location) == [WHOLE]
    assert pickle.loads(pickle.dumps(store)).fetch(NAME) == [WHOLE]


@pytest.mark.parametrize("spelled", ["{}", "{}/", "file://{}", "file://{}/"])
def test_folder_may_be_a_path_or_a_uri(tmp_path: Path, spelled: str) -> None:
    folder = tmp_path / "it's a böx"
    folder.mkdir()
    (folder / NAME).write_bytes(wrapped(value_of(WHOLE)))
    location = folder.as_uri().removeprefix("file://") if "file" in spelled else str(folder)
    assert store_of(spelled.format(location)).fetch(NAME) == [WHOLE]


def test_name_is_not_a_pattern_and_not_decoded(tmp_path: Path) -> None:
    name = "a b%2Fc*?#[x]é.json.gz"
    (tmp_path / name).write_bytes(wrapped(value_of(WHOLE)))
    assert store_of(tmp_path).fetch(f"file:///x/{name}") == [WHOLE]


def test_location_cannot_leave_the_folder_and_has_to_end_in_a_plain_name(tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_bytes(wrapped(value_of(WHOLE)))
    (tmp_path / "folder").mkdir()
    store = store_of(tmp_path / "folder")
    for location in ("../secret.json", f"{tmp_path}/secret.json", "..%2Fsecret.json"):
        assert refused(store, location).reason == "claim_check_missing"
    for location in (
        *("", ".", "..", "/", "file:///changefeed/", "file:///changefeed/.."),
        *("..\\secret.json", "x/..\\secret.json", "C:secret.json", "secret.json\0.json", "\0"),
    ):
        assert refused(store, location).reason == "claim_check_invalid", location


def test_links_stay_in_the_folder(tmp_path: Path) -> None:
    folder, outside = tmp_path / "checks", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "secret").write_bytes(wrapped(value_of(WHOLE)))
    (folder / NAME).symlink_to(outside / "secret")
    error = refused(store_of(folder))
    assert (error.reason, error.got) == ("claim_check_unreadable", "a link out")
    (folder / NAME).unlink()
    (folder / "kept").write_bytes(wrapped(value_of(WHOLE)))
    (folder / NAME).symlink_to("kept")
    assert store_of(folder).fetch(NAME) == [WHOLE]
    # The folder itself may be reached by a link.
    (tmp_path / "by_link").symlink_to(folder)
    assert store_of(tmp_path / "by_link").fetch(NAME) == [WHOLE]


def test_missing_file_names_it(tmp_path: Path) -> None:
    error = refused(store_of(tmp_path), f"s3://bucket/{NAME}")
    assert error.reason == "claim_check_missing"
    assert NAME in error.expected
    assert refused(store_of(tmp_path / "nowhere")).reason == "claim_check_missing"


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    store = store_of(tmp_path)
    assert refused(store, "folder").reason == "claim_check_unreadable"
    assert refused(store, "pipe").reason == "claim_check_unreadable"
    assert refused(store, "x" * 300).reason == "claim_check_unreadable"
    assert refused(store, "\ud800").reason == "claim_check_unreadable"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_file_without_permission(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(wrapped(value_of(WHOLE)))
    (tmp_path / NAME).chmod(0)
    assert refused(store_of(tmp_path)).reason == "claim_check_unreadable"


def test_file_is_read_up_to_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = wrapped(value_of(WHOLE))
    (tmp_path / NAME).write_bytes(content)
    monkeypatch.setattr(claim_check, "MAX_FILE_BYTES", len(content))
    assert store_of(tmp_path).fetch(NAME) == [WHOLE]
    monkeypatch.setattr(claim_check, "MAX_FILE_BYTES", len(content) - 1)
    error = refused(store_of(tmp_path))
    assert (error.reason, error.got) == ("claim_check_invalid", "more")


@pytest.mark.parametrize(
    ("content", "got"),
    [
        (b"", "invalid_file"),
        (value_of(WHOLE), "invalid_file"),
        (b"[]", "invalid_file"),
        (b'{"key":null}', "invalid_file"),
        (b'{"value":"e30="}', "invalid_file"),
        (b'{"key":null,"value":null}', "null_value"),
        (b'{"key":null,"value":1}', "invalid_file"),
        (b'{"key":null,"value":"e30"}', "invalid_file"),
        (b'{"key":null,"value":"e3 0="}', "invalid_file"),
        ('{"key":null,"value":"é"}'.encode(), "invalid_file"),
        (wrapped(b"{}"), "missing_field"),
        (wrapped(b""), "empty_value"),
        (wrapped(value_of(WHOLE)) + b"x", "invalid_file"),
        (wrapped(value_of(WHOLE))[:-1], "invalid_file"),
        (b'{"new":' + b"[" * 100_000, "invalid_file"),
    ],
)
def test_file_that_holds_no_message(tmp_path: Path, content: bytes, got: str) -> None:
    (tmp_path / NAME).write_bytes(content)
    error = refused(store_of(tmp_path))
    assert error.reason == "claim_check_invalid"
    assert error.got.startswith(f"{got}: ")


def test_every_truncation_of_a_file_is_refused(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    content = wrapped(value_of(replace(WHOLE, before={"id": "4"}, after={"id": "4"})))
    for length in range(0, len(content), 7):
        (tmp_path / NAME).write_bytes(content[:length])
        assert refused(store).reason == "claim_check_invalid"


@pytest.mark.parametrize(
    "location", ["relative/path", "", "nothing://x/y", "s3://user:hunter2@bucket/p?hunter2=1"]
)
def test_location_that_cannot_be_opened(location: str) -> None:
    with pytest.raises(ConfigError) as caught:
        store_of(location)
    assert "claim_check.location" in str(caught.value)
    assert "hunter" not in str(caught.value)
    assert caught.value.__cause__ is None


# --- rows ---


def complete_rows(batch: pa.RecordBatch, store: ClaimCheckStore) -> pa.RecordBatch:
    """Return all rows, which are few, in one batch."""
    (whole,) = complete_batches(batch, store)
    return whole


def test_batch_without_claim_checks_is_itself(tmp_path: Path) -> None:
    batch = rows_of(WHOLE, OTHER)
    assert complete_rows(batch, store_of(tmp_path)) is batch
    assert list(complete_batches(batch, store_of(tmp_path))) == [batch]
    empty = batch.slice(0, 0)
    assert complete_rows(empty, store_of(tmp_path)).num_rows == 0


def test_cut_row_is_replaced_in_its_place(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(wrapped(value_of(WHOLE)))
    batch = rows_of(OTHER, CUT, OTHER, CUT)
    whole = complete_rows(batch, store_of(tmp_path))
    whole.validate(full=True)
    assert whole.schema == CHANGE_SCHEMA
    assert whole.to_pylist() == rows_of(OTHER, WHOLE, OTHER, WHOLE).to_pylist()


def test_a_row_of_which_no_column_is_left_is_replaced_too(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(wrapped(value_of(WHOLE)))
    images = b',"data":{},"old":{}'
    cut = value_of(replace(CUT, before={}, after={}))
    assert images in cut
    batch = decode_batch(SIMPLE, batch_of([cut.replace(images, b"")]))
    assert complete_rows(batch, store_of(tmp_path)).to_pylist() == rows_of(WHOLE).to_pylist()


def test_index_of_a_completed_row_stays(tmp_path: Path) -> None:
    batch = rows_of(CUT, CUT)
    place = batch.schema.get_field_index("index")
    batch = batch.set_column(place, batch.schema.field(place), pa.array([5, 6], pa.int32()))
    for kind in ("error", "row"):
        found = complete_rows(batch, store_of(tmp_path))
        assert found.column("index").to_pylist() == [5, 6]
        assert set(found.column("kind").to_pylist()) == {kind}
        (tmp_path / NAME).write_bytes(wrapped(value_of(WHOLE)))


def test_row_that_cannot_be_completed_is_an_error_at_its_place(tmp_path: Path) -> None:
    batch = rows_of(OTHER, CUT, OTHER)
    rows = complete_rows(batch, store_of(tmp_path)).to_pylist()
    assert [row["kind"] for row in rows] == ["row", "error", "row"]
    error = rows[1]
    assert (error["topic"], error["partition"], error["offset"]) == ("topic", 3, 1001)
    assert error["error_reason"] == "claim_check_missing"
    assert error["error_position"] == "claim_check_location"
    kept = {"topic", "partition", "offset", "index", "kind"}
    assert all(
        error[name] is None
        for name in CHANGE_SCHEMA.names
        if name not in kept and not name.startswith("error_")
    )


WATERMARK = b'{"version":1,"type":"WATERMARK","commitTs":470614425716391936,"buildTs":1}'


@pytest.mark.parametrize(
    ("value", "got"),
    [
        (value_of(replace(WHOLE, commit_ts=WHOLE.commit_ts + 1)), f"({WHOLE.commit_ts + 1}, "),
        (value_of(replace(WHOLE, database="Shop")), "(470614425716391936, 'Shop', 'orders')"),
        (value_of(replace(WHOLE, table="orders2")), "(470614425716391936, 'shop', 'orders2')"),
        (value_of(replace(WHOLE, handle_key_only=True)), "a row cut to its handle key"),
        (value_of(CUT), "a row cut to its handle key"),
        (WATERMARK, "1 events: Watermark"),
    ],
    ids=["commit ts", "database", "table", "cut", "claim check of a claim check", "no row"],
)
def test_file_of_another_row_is_refused(tmp_path: Path, value: bytes, got: str) -> None:
    (tmp_path / NAME).write_bytes(wrapped(value))
    (row,) = complete_rows(rows_of(CUT), store_of(tmp_path)).to_pylist()
    assert (row["kind"], row["error_reason"]) == ("error", "claim_check_invalid")
    assert row["error_got"].startswith(got)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 6, 7])
def test_many_large_rows_come_in_several_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    (tmp_path / NAME).write_bytes(wrapped(value_of(WHOLE)))
    events = [event for _ in range(count) for event in (OTHER, CUT)] + [OTHER]
    store = store_of(tmp_path)
    whole = complete_rows(rows_of(*events), store).to_pylist()
    (one,) = complete_rows(rows_of(CUT), store).to_pylist()
    size = sum(len(value) for value in one.values() if isinstance(value, str))
    # Three rows are more than two and a half.
    monkeypatch.setattr(claim_check, "BYTES_AT_ONCE", size * 5 // 2)
    batches = list(complete_batches(rows_of(*events), store))
    assert len(batches) == max(1, -(-count // 3))
    assert [row for batch in batches for row in batch.to_pylist()] == whole
    assert [row["kind"] for row in whole] == ["row"] * len(events)


class FailingStore(fs.LocalFileSystem):
    """A store that answers every question about a file, or about all, by an error."""

    def __init__(self, said: str, *, answers: bool = False) -> None:
        super().__init__()
        self.said, self.answers = said, answers

    def get_file_info(self, paths: str) -> fs.FileInfo:
        if self.answers and not paths.endswith(NAME):
            return fs.FileInfo(paths)
        raise OSError(self.said)


NO_ROUTE = "When getting information for key 'x': AWS Error NETWORK_CONNECTION: no connection"
DENIED = "When getting information for key 'x': AWS Error ACCESS_DENIED: no response body"


@pytest.mark.parametrize(
    ("store", "waits"),
    [
        (FailingStore(NO_ROUTE), True),
        (FailingStore(NO_ROUTE, answers=True), False),
        (FailingStore(DENIED), False),
    ],
    ids=["no answer", "of one file", "refusal"],
)
def test_records_wait_for_a_store_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: FailingStore, *, waits: bool
) -> None:
    """Each question takes seconds there, and what it cannot answer now is not lost."""
    monkeypatch.setattr(claim_check, "files_at", lambda location: (store, location))
    batch = rows_of(CUT, CUT)
    if waits:
        with pytest.raises(SourceUnavailableError, match=r"answer: .*NETWORK_CON") as told:
            complete_rows(batch, store_of(tmp_path))
        assert told.value.retriable
        return
    kinds = complete_rows(batch, store_of(tmp_path)).column("error_reason").to_pylist()
    assert kinds == ["claim_check_unreadable"] * 2


def test_a_store_that_cannot_be_asked_for_the_region_of_a_bucket_is_not_a_wrong_location(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def files_at(location: str) -> None:
        raise OSError(NO_ROUTE)

    monkeypatch.setattr(claim_check, "files_at", files_at)
    with pytest.raises(SourceUnavailableError, match="does not answer"):
        store_of(tmp_path)


# --- TiCDC's own files ---


@golden.needs_golden
@pytest.mark.parametrize("option", [name for name in OPTIONS if "-claim-check" in name])
def test_golden_rows_are_completed_as_the_reference_reads_them(option: str) -> None:
    of = golden.scenario(f"options/{option}")
    assert of.claim_check is not None
    records = [Record(key=record.key, value=record.value) for record in of.records]
    cut = decode_batch(of.wire_format, batch_of(records))
    files = len(list(Path(of.claim_check.location).iterdir()))
    assert len(cut.column("claim_check_location").drop_null().unique()) == files > 20
    rows = complete_rows(cut, ClaimCheckStore(of.claim_check, of.wire_format)).to_pylist()
    for row in rows:
        assert row["claim_check_location"] is None
        assert not row["handle_key_only"]
    assert [event_of(row) for row in rows] == as_stored([event for _, event in of.events])
