import json
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.base.errors import WireError
from ticdc_assets.demo.simulator.encoders import encode
from ticdc_assets.model.events import Bootstrap, Image, RowChange
from ticdc_assets.model.schemas import TableSchema, schema_to_json
from ticdc_assets.wire import WireFormat, go_json
from ticdc_assets.wire import batch as batch_module
from ticdc_assets.wire.batch import decode_batch, decode_pieces
from ticdc_assets.wire.compression import Compression
from ticdc_assets.wire.record import Record
from ticdc_assets.wire.rows import (
    CHANGE_SCHEMA,
    SourcedRows,
    checksum_from_json,
    image_from_json,
    image_to_json,
)
from ticdc_assets.wire.tape import reading
from ticdc_assets_tests import strategies
from ticdc_assets_tests.demo.simulator.compressing import compressed
from ticdc_assets_tests.fresh import printed
from ticdc_assets_tests.wire.comparing import assert_equal, batch_of
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
)

AFTER = image_to_json(cast(RowChange, EVENTS[INSERT]).after or {})
USER_TEXT = json.dumps(
    schema_to_json(cast(TableSchema, cast(Bootstrap, EVENTS[BOOTSTRAP]).schema)),
    ensure_ascii=False,
    separators=(",", ":"),
)


def rows(values: Sequence[bytes | None]) -> list[dict[str, object]]:
    batch = decode_batch(WireFormat.SIMPLE_JSON, batch_of(values))
    return [
        {name: value for name, value in row.items() if value is not None}
        for row in batch.to_pylist()
    ]


def test_the_columns_of_every_kind() -> None:
    """What they have besides the events that `assert_equal` compares."""
    sent = [INSERT, UPDATE, DELETE, WATERMARK, BOOTSTRAP, DDL, DATABASE_DDL, None]
    assert_equal(sent)
    common = {"topic", "partition", "offset", "index", "kind"}
    named = common | {"build_ts_ms", "database", "table"}
    cited = named | {"table_id", "schema_version"}
    change = {"op", "commit_ts", "handle_key_only", "es_only"}
    ddl = {"commit_ts", "ddl_type", "es_only", "sql"}
    key = '{"id":"1"}'
    checksum = '{"version":1,"corrupted":false,"current":4294967295,"previous":0}'
    location = "file:///tmp/a.json"
    wanted: list[tuple[str, set[str], dict[str, str]]] = [
        ("row", cited | change, {"after": AFTER}),
        (
            "row",
            cited | change,
            {"before": key, "after": key, "checksum": checksum, "claim_check_location": location},
        ),
        ("row", cited | change, {"before": '{"age":"25","id":"1"}'}),
        ("watermark", common | {"commit_ts", "build_ts_ms"}, {}),
        ("bootstrap", cited, {"schema": USER_TEXT}),
        ("ddl", cited | ddl, {"schema": USER_TEXT, "pre_schema": USER_TEXT}),
        ("ddl", named | ddl, {}),
        (
            "error",
            common,
            {
                "error_reason": "null_value",
                "error_position": "byte 0",
                "error_expected": "a JSON object",
                "error_got": "null value (tombstone)",
            },
        ),
    ]
    for row, (kind, columns, texts) in zip(rows(sent), wanted, strict=True):
        assert row["kind"] == kind
        assert row.keys() == columns | texts.keys()
        assert {name: row[name] for name in texts} == texts


def test_a_ddl_without_new_schema_is_placed_by_the_one_before() -> None:
    value = DDL.replace(b'"tableSchema":' + USER_JSON + b",", b"")
    (row,) = rows([value])
    assert row["table_id"] == 148
    assert "schema" not in row
    assert "schema_version" not in row
    assert row["pre_schema"] == USER_TEXT


def test_no_records_give_no_rows() -> None:
    batch = decode_batch(WireFormat.SIMPLE_JSON, batch_of([]))
    assert batch.num_rows == 0
    assert batch.schema == CHANGE_SCHEMA


@pytest.mark.parametrize("value_type", [pa.binary(), pa.large_binary(), pa.binary_view()])
@pytest.mark.parametrize("with_loops", [True, False])
def test_other_columns_and_wider_types_are_taken(
    value_type: pa.DataType, with_loops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_module, "loops_pay", lambda _: with_loops)
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([INSERT, b"\xff", None], value_type),
            pa.array(["x"] * 3),
            pa.array([7, 8, 9], pa.int32()),
            pa.array(["t"] * 3, pa.large_string()),
            pa.array([0, 0, 0], pa.int64()),
            pa.array([b"k"] * 3, pa.binary()),
        ],
        names=["value", "more", "offset", "topic", "partition", "key"],
    )
    decoded = decode_batch(WireFormat.SIMPLE_JSON, batch)
    assert decoded.schema == CHANGE_SCHEMA
    assert decoded.column("offset").to_pylist() == [7, 8, 9]
    assert decoded.column("kind").to_pylist() == ["row", "error", "error"]


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 90)), min_size=1, max_size=6))
def test_rows_are_joined_in_the_order_of_their_records(runs: list[tuple[bool, int]]) -> None:
    is_own = np.repeat([own for own, _ in runs], [count for _, count in runs])

    def some(numbers: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> SourcedRows:
        # Of every third record two rows.
        sources = np.repeat(numbers, 1 + (numbers % 3 == 0))
        return SourcedRows(
            sources=sources, rows=pa.RecordBatch.from_arrays([pa.array(sources)], names=["source"])
        )

    joined = some(np.flatnonzero(is_own)).joined(some(np.flatnonzero(~is_own)))
    wanted = some(np.arange(len(is_own)))
    assert joined.sources.tolist() == wanted.sources.tolist()
    assert joined.rows.equals(wanted.rows)


def test_few_records_are_read_without_the_compiled_loops() -> None:
    """They take longer to load than such records to read; this process may have them already."""
    program = (
        "import sys\n"
        "from ticdc_assets.wire import WireFormat\n"
        "from ticdc_assets.wire.batch import decode_batch\n"
        "from ticdc_assets_tests.wire.comparing import batch_of\n"
        f"batch = decode_batch(WireFormat.SIMPLE_JSON, batch_of([{INSERT!r}] * 9))\n"
        "print(batch.num_rows, 'numba' in sys.modules)"
    )
    assert printed(program) == "9 False\n"


@given(strategies.wild_images)
def test_images_as_text_are_read_back(image: Image) -> None:
    text = image_to_json(image)
    assert image_from_json(text) == image
    assert image_from_json(text.encode()) == image


@given(strategies.row_changes())
def test_checksums_as_text_are_read_back(row: RowChange) -> None:
    values = [record.value or b"" for record in encode(WireFormat.SIMPLE_JSON, [row])]
    values += [b'{"new":1,' + value[1:] for value in values]
    for text in decode_batch(WireFormat.SIMPLE_JSON, batch_of(values)).column("checksum"):
        found = text.as_py()
        assert (found and checksum_from_json(found)) == row.checksum


def test_a_wide_row() -> None:
    event = EVENTS[INSERT]
    assert isinstance(event, RowChange)
    wide = replace(event, after={f"column {number}": "x" * number for number in range(1000)})
    (record,) = encode(WireFormat.SIMPLE_JSON, [wide])
    assert assert_equal([record.value]) == [[wide]]


# --- pieces ---


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4, Compression.SNAPPY])
@pytest.mark.parametrize("piece_bytes", [1, 400, 2_000, 100_000])
def test_pieces_are_the_batch_whatever_their_size(
    compression: Compression, piece_bytes: int
) -> None:
    values = [INSERT, b"x", WATERMARK, DDL, None, b"", UPDATE, b"\xff", *[INSERT] * 20, DELETE]
    records = [
        compressed(WireFormat.SIMPLE_JSON, Record(key=b"k", value=value), compression)
        for value in values
    ]
    # Some are not compressed at all.
    batch = batch_of([b"no message", *(record.value for record in records), b"nor this"])
    whole = decode_batch(WireFormat.SIMPLE_JSON, batch, compression=compression)
    pieces = list(
        decode_pieces(
            WireFormat.SIMPLE_JSON, batch, compression=compression, piece_bytes=piece_bytes
        )
    )
    assert pa.Table.from_batches(pieces).to_pylist() == whole.to_pylist()
    assert (len(pieces) == 1) is (piece_bytes == 100_000)
    if piece_bytes == 1 and compression is Compression.NONE:
        # One whose key and value are empty joins its neighbour.
        assert max(piece.num_rows for piece in pieces) <= 3


# --- many values ---


@pytest.mark.parametrize("wire_format", [WireFormat.SIMPLE_JSON, WireFormat.CANAL_JSON])
def test_a_message_of_too_many_values_is_refused(
    wire_format: WireFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(go_json, "MAX_VALUES", 1_000)
    monkeypatch.setattr(reading, "LEAST_BYTES_OF_TOO_MANY", 2_000)
    many = b'{"x":[' + b"{}," * 1_100 + b"1]}"
    text = INSERT.replace(b'"id":"1"', b'"id":"1' + b"[{," * 1_000 + b'"')
    assert len(text) > 3_000
    values = [INSERT, many, WATERMARK, text, b"{", many[:-2]]
    kinds = decode_batch(wire_format, batch_of(values)).select(["kind", "error_reason"])
    reasons = kinds.column("error_reason").to_pylist()
    assert (reasons[1], reasons[5]) == ("too_many_values", "too_many_values")
    if wire_format is WireFormat.SIMPLE_JSON:
        # What stands inside a text is no value.
        assert kinds.column("kind").to_pylist() == [
            *("row", "error", "watermark", "row", "error", "error")
        ]
    assert_equal(values)


@pytest.mark.thorough
def test_values_are_counted_before_they_are_made() -> None:
    many = b"[" + b"{}," * go_json.MAX_VALUES + b"1]"
    tracemalloc.start()
    try:
        with pytest.raises(WireError) as refused:
            go_json.parse(many)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert refused.value.reason == "too_many_values"
    assert peak < 10 * len(many)
