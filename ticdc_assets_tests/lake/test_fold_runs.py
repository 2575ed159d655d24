"""Mirrors written by Spark's workers: the rows, counts and faults of those made here."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from ticdc_assets.delta.appending import TableLayout, append_files
from ticdc_assets.delta.control import dataset_of
from ticdc_assets.delta.delta_protocol import unportable_features
from ticdc_assets.delta.files import FileLayout
from ticdc_assets.delta.log_reading import log_state
from ticdc_assets.log import change_files
from ticdc_assets.log.cuts import MirrorCut
from ticdc_assets.log.quarantine import read_quarantine
from ticdc_assets.mirrors.change_folding import ChangeFolding
from ticdc_assets.rows import fold_runs, rows_of_work
from ticdc_assets.spark import executing
from ticdc_assets_tests.golden import THREE_OF_THE_SHOP
from ticdc_assets_tests.lake.feeds import Feed, treat_as_large
from ticdc_assets_tests.lake.golden_lakes import GoldenLakes


def counted(mirror: MirrorCut) -> MirrorCut:
    """Return a mirror's part of a cut without what is of the moment of making it."""
    return replace(mirror, version=0)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("variant", "name", "tables"),
    [
        ("simple-json", "types", ()),
        ("open", "corrupt", THREE_OF_THE_SHOP),
        pytest.param("canal-json", "shop", THREE_OF_THE_SHOP, marks=pytest.mark.slow),
        pytest.param("open", "corrupt", (), marks=pytest.mark.slow),
        pytest.param("canal-json", "shop", (), marks=pytest.mark.slow),
    ],
    ids=lambda value: value if isinstance(value, str) else "three" if value else "all",
)
def test_workers_make_the_mirrors_that_are_made_here(
    golden_lakes: GoldenLakes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variant: str,
    name: str,
    tables: tuple[tuple[str, str], ...],
) -> None:
    here = golden_lakes.at_once(variant, name, tables)
    there = here.in_folder(tmp_path)
    made: list[int] = []
    fold = ChangeFolding.folded_into_files

    def counting(self: ChangeFolding, *args: object, **options: object) -> object:
        found = fold(self, *args, **options)  # pyright: ignore[reportArgumentType]
        made.append(len(found))
        return found

    with monkeypatch.context() as patch:
        treat_as_large(patch)
        patch.setattr(ChangeFolding, "folded_into_files", counting)
        # Keys in many parts, handed on a few at a time.
        patch.setattr(rows_of_work, "_ROWS_PER_BUCKET", 300)
        patch.setattr(fold_runs, "_HELD_BYTES", 4096)
        patch.setattr(executing, "_BLOB_BYTES", 4096)
        patch.setattr(change_files, "_READ_ROWS", 3)
        there.sync()
    assert made == [len(there.cut.mirrors)]
    for mirror in there.cut.mirrors:
        state = log_state(mirror.path(there.paths))
        assert not unportable_features(state)
    assert there.rows() == here.rows()
    assert [*map(counted, there.cut.mirrors)] == [*map(counted, here.cut.mirrors)]
    assert faults(there) == faults(here)
    assert not list(there.paths.base.glob(".scratch-*"))


def faults(feed: Feed) -> list[dict[str, object]]:
    moment = "quarantined_at"
    return [
        {name: value for name, value in row.items() if name != moment}
        for row in read_quarantine(feed.paths)
    ]


def test_a_file_says_what_it_holds(tmp_path: Path) -> None:
    moments = [datetime(2026, 1, 2, 3, 4, 5, 678_901, UTC), datetime(2026, 1, 2, tzinfo=UTC)]
    schema = pa.schema(
        [
            ("number", pa.int64()),
            ("text", pa.string()),
            ("moment", pa.timestamp("us", tz="UTC")),
            ("long", pa.string()),
            ("none", pa.int32()),
            ("other", pa.string()),
        ]
    )
    layout = FileLayout(
        schema=schema,
        partition={"day": "2026-01-02"},
        bounded=("number", "text", "moment", "long", "none", "absent"),
        distinct=("other",),
    )
    writer = layout.writer(tmp_path)
    for number, text in ((3, "b"), (-1, None)):
        row = [number, text, moments.pop(), "x" * 300, None, "o"]
        writer.write(
            pa.Table.from_arrays(
                [pa.array([value], field.type) for value, field in zip(row, schema, strict=True)],
                schema=schema,
            )
        )
    action = writer.close()
    assert action.partition == {"day": "2026-01-02"}
    assert (tmp_path / action.path).stat().st_size == action.size
    assert action.path.startswith("day=2026-01-02/part-")
    assert json.loads(action.stats) == {
        "numRecords": 2,
        "minValues": {"number": -1, "text": "b", "moment": "2026-01-02T00:00:00.000Z"},
        "maxValues": {"number": 3, "text": "b", "moment": "2026-01-02T03:04:05.679Z"},
        # Also of columns without bounds: a reader takes what is not told for no null.
        "nullCount": {"number": 0, "text": 1, "moment": 0, "long": 0, "none": 2, "other": 0},
    }
    append_files(
        tmp_path,
        [action],
        pa.schema([*schema, ("day", pa.string())]),
        layout=TableLayout(partition_by=["day"]),
    )
    dataset = dataset_of(log_state(tmp_path), tmp_path)
    nulls = {name: dataset.count_rows(filter=ds.field(name).is_null()) for name in schema.names}
    assert nulls == {"number": 0, "text": 1, "moment": 0, "long": 0, "none": 2, "other": 0}
