"""Changes whose shapes are read: rows of other flags than their columns', by both ways."""

from itertools import cycle
from typing import Any

import pyarrow as pa
import pytest

from ticdc_assets.changelog.plan import MirrorPlan
from ticdc_assets.changelog.resolve import RowResolver
from ticdc_assets.model.events import Event
from ticdc_assets.registry.history import Coordinates
from ticdc_assets.rows import mirror_rows
from ticdc_assets.rows.column_operations import ColumnOperations
from ticdc_assets.rows.mirror_rows import CHANGE_COLUMNS, SHAPE, change_operations
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets.wire.batch import decode_batch
from ticdc_assets.wire.record import Record
from ticdc_assets_tests.changelog.test_sent_flags import damaged, ddl, put
from ticdc_assets_tests.reference.fold import fold
from ticdc_assets_tests.wire.comparing import batch_of

CREATE = "create table t (id int primary key, a varchar(9), b int, v varbinary(9), w blob)"
COLUMNS: tuple[dict[str, tuple[int, int, Any]], ...] = (
    {"a": (15, 64, "x"), "v": (15, 65, r"\xff"), "w": (252, 65, "/w==")},
    {"a": (15, 64, "y"), "v": (15, 64, r"\xff"), "w": (252, 64, "YQ==")},
    {"a": (15, 65, 'say "z"'), "v": (15, 0, "plain"), "w": (252, 0, "/w==")},
    {"a": (15, 65, r"a\nb"), "v": (15, 65, ""), "w": (252, 65, "")},
)


def planned(records: list[Record]) -> MirrorPlan:
    placed: list[tuple[Coordinates, Event]] = [
        (Coordinates(topic="topic", partition=3, offset=1000 + offset, index=index), event)
        for offset, item in enumerate(records)
        for index, event in enumerate(decode(WireFormat.OPEN_PROTOCOL, item))
    ]
    plan, _ = fold(placed, 10**6, "UTC")
    (mirror,) = plan.mirrors
    return mirror


def changes_of(records: list[Record]) -> pa.RecordBatch:
    log = decode_batch(WireFormat.OPEN_PROTOCOL, batch_of(records))
    return log.filter(pa.array([kind == "row" for kind in log["kind"].to_pylist()]))


def operations(plan: MirrorPlan, changes: pa.RecordBatch) -> list[str]:
    batches = change_operations(plan, "UTC")(iter([changes]))
    return sorted(repr(row) for batch in batches for row in batch.to_pylist())


def test_both_ways_read_values_by_the_type_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [
        ddl(10, CREATE),
        *(
            put(20 + number, number, b=(3, 65, number), **columns)
            for number, columns in zip(range(600), cycle(COLUMNS), strict=False)
        ),
        damaged(1000, 5, 7),
    ]
    plan = planned(records)
    assert plan.reads_shapes
    changes = changes_of(records).select([*CHANGE_COLUMNS, SHAPE])
    monkeypatch.setattr(mirror_rows, "COLUMN_ROWS", 10**9)
    wanted = operations(plan, changes)
    monkeypatch.setattr(mirror_rows, "COLUMN_ROWS", 1)
    assert operations(plan, changes) == wanted
    columns = ColumnOperations(RowResolver(plan, "UTC"), plan.schema, "UTC")
    _, others = columns.operations(changes)
    # Only those whose flags are right go the way of columns.
    assert others.num_rows == 451


def test_shapes_are_read_only_where_they_say_something() -> None:
    right = [ddl(10, CREATE), put(20, 1, b=(3, 65, 1), **COLUMNS[0])]
    assert not planned(right).reads_shapes
    for more in (put(30, 2, **COLUMNS[1]), damaged(30, 2, 1)):
        assert planned([*right, more]).reads_shapes
        assert planned([*right, more]).digest == planned(right).digest
