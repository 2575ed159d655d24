"""The writer of mirrors, without mirrors: a table lives through changes, and each version is right.

Each step is compared with a dictionary. Every version that was written stays readable.
"""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from ticdc_assets.config import Retention
from ticdc_assets.delta import committing
from ticdc_assets.delta.commits import CommitError, read_commit
from ticdc_assets.delta.committing import ConflictError, undisturbed
from ticdc_assets.delta.delta_files import file_at, vector_of
from ticdc_assets.delta.delta_protocol import FeatureError, LogState, new_state, require_written
from ticdc_assets.delta.files import layout_of
from ticdc_assets.delta.log_reading import log_state
from ticdc_assets.mirrors import file_fates, table_writing
from ticdc_assets.mirrors.table_writing import TableWriter
from ticdc_assets.rows.finding import SearchedFile, keys_of
from ticdc_assets.rows.row_operations import RESCUED_TYPE
from ticdc_assets.rows.rows_of_work import Rows
from ticdc_assets.spark.session import LazySession
from ticdc_assets_tests.lake.killing import before, killed

SCHEMA = pa.schema([("id", pa.int64()), ("v w", pa.string()), ("rescued", RESCUED_TYPE)])
Model = dict[int, str | None]


def writer_of(
    table: Path,
    schema: pa.Schema = SCHEMA,
    *,
    portable: bool = False,
    published: int | None = None,
) -> TableWriter:
    return TableWriter(
        LazySession(),
        table,
        schema,
        key=["id"],
        rescued="rescued",
        label="d.t",
        retention=Retention(),
        portable=portable,
        published=published,
    )


def table_of(rows: Mapping[int, str | None]) -> pa.Table:
    columns = [list(rows), list(rows.values()), [None] * len(rows)]
    return pa.table(columns, schema=SCHEMA)


def begun(table: Path, rows: Model, *, portable: bool = False) -> int:
    writer = writer_of(table, portable=portable)
    writer.begin_empty()
    return writer.replace([table_of(rows)], (), {})


def changed(
    table: Path, version: int, puts: Model, deletes: set[int] = frozenset(), **options: Any
) -> int:
    writer = writer_of(table, **options)
    writer.begin(version)
    keys = table_of({**dict.fromkeys(deletes), **puts})
    found = writer.find(keys_of(keys, ["id"], (), "rescued"), count=keys.num_rows)
    return writer.change(found, [table_of(puts)], (), {})


def rows_at(table: Path, version: int) -> Model:
    """Return the rows of a version as its files have them."""
    files = {
        file_at(table, item["path"]): vector_of(table, item)
        for item in log_state(table, version).files
    }
    deleted = {path: vector for path, vector in files.items() if vector is not None}
    rows = Rows.of_files(list(files), SCHEMA, deleted=deleted).table_here()
    found = dict(zip(rows["id"].to_pylist(), rows["v w"].to_pylist(), strict=True))
    assert len(found) == rows.num_rows
    return found


def by_others(table: Path, version: int) -> Model:
    opened = DeltaTable(str(table), version)
    query = QueryBuilder().register("t", opened).execute('select id, "v w" from t')
    return {row["id"]: row["v w"] for row in pa.table(query.read_all()).to_pylist()}


def test_a_key_has_bounds_wherever_its_column_is() -> None:
    names = [*(f"c{number}" for number in range(40)), "id"]
    schema = pa.schema([(name, pa.int64()) for name in names])
    layout = layout_of(schema, {name: (name, None) for name in names}, ["id"])
    assert layout.bounded == ["id", *names[:31]]


def test_files_of_at_most_twice_the_rows_are_joined_one_after_the_other(tmp_path: Path) -> None:
    searched = SearchedFile(path=tmp_path, deleted=None, stored={})
    files = [
        file_fates.LiveRows(action={"size": 1}, searched=searched, rows=rows, left=rows)
        for rows in (91, 60, 20)
    ]
    # 10 rows take 20, 30 take 60, and 90 take 91; but 9 take no 20.
    assert {file.left for file in file_fates.about_as_large(files, 10)} == {20, 60, 91}
    assert file_fates.about_as_large(files, 9) == []


@pytest.fixture(params=["vectors", "portable"])
def portable(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Files of more than five rows are large, and a checkpoint comes with each fourth commit."""
    monkeypatch.setattr(file_fates, "SMALL_ROWS", 5)
    monkeypatch.setattr(table_writing, "_CHECKPOINT_INTERVAL", 4)
    return request.param == "portable"


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 9))]
)
def test_a_table_lives_through_changes(seed: int, portable: bool, tmp_path: Path) -> None:
    chance = random.Random(seed)
    table = tmp_path / "t"
    model: Model = {number: f"row {number}" for number in range(60)}
    versions = {begun(table, model, portable=portable): dict(model)}
    for step in range(30):
        version = max(versions)
        ids = chance.sample(sorted(model), min(len(model), chance.choice([0, 1, 3, 20])))
        deletes = {number for number in ids if chance.random() < 0.4}
        puts: Model = {number: f"step {step}" for number in ids if number not in deletes}
        puts |= {1_000 + 10 * step + more: None for more in range(chance.choice([0, 1, 4, 12]))}
        deletes |= {-5} - puts.keys()
        made = changed(table, version, puts, deletes, portable=portable)
        model = {key: text for key, text in model.items() if key not in deletes} | puts
        if chance.random() < 0.2:
            few = chance.choice([2, 8])
            made = writer_of(table, portable=portable).compact(made, {}, few=few)
        versions[made] = dict(model)
        assert rows_at(table, made) == model
    for version, rows in versions.items():
        assert rows_at(table, version) == rows
    assert by_others(table, made) == model
    state = log_state(table)
    assert bool(state.protocol.get("readerFeatures")) is not portable
    assert all("numRecords" in item["stats"] for item in state.files)
    assert len(state.files) < 15
    # The log has checkpoints, and from one of them on it is enough.
    assert list(table.glob("_delta_log/*.checkpoint.parquet"))


def test_what_a_commit_takes_back(portable: bool, tmp_path: Path) -> None:
    """Rows of a run that did not publish, and of others, go with the next commit."""
    table = tmp_path / "t"
    model: Model = dict.fromkeys(range(40), "first")
    published = begun(table, model, portable=portable)
    changed(table, published, {1: "lost", 50: "lost"}, {2}, portable=portable)
    if portable:
        write_deltalake(str(table), table_of({90: "foreign"}), mode="append")
    made = changed(table, published, {3: "third"}, portable=portable)
    assert rows_at(table, made) == model | {3: "third"}
    # The same rows again are no commit.
    writer = writer_of(table, portable=portable)
    writer.begin(made)
    assert writer.change(None, (), (), {}) == made
    # And a version of before comes back by itself.
    writer = writer_of(table, portable=portable)
    writer.begin(published)
    assert writer.is_ahead
    back = writer.change(None, (), (), {})
    assert rows_at(table, back) == model


def test_a_compaction_by_hand_is_gone_on_from(tmp_path: Path) -> None:
    table = tmp_path / "t"
    version = begun(table, {1: "a"}, portable=True)
    write_deltalake(str(table), table_of({2: "b"}), mode="append")
    version += 1
    DeltaTable(str(table)).optimize.compact()
    made = changed(table, version, {2: "c"}, portable=True)
    assert made == version + 2
    assert rows_at(table, made) == {1: "a", 2: "c"}


def test_a_commit_that_meets_another_one_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "t"
    version = begun(table, {1: "a", 2: "b"})
    put, met = committing.create, []

    def putting(path: Path, data: bytes) -> None:
        if len(met) < limit:
            met.append(path.name)
            write_deltalake(str(table), table_of({3: "foreign"}), mode="append")
        put(path, data)

    monkeypatch.setattr(committing, "create", putting)
    limit = 3
    with pytest.raises(ConflictError, match="another program wrote version 3 of table"):
        undisturbed(lambda: changed(table, version, {2: "c"}))
    assert len(met) == 3
    limit = 4
    made = undisturbed(lambda: changed(table, version, {2: "c"}))
    assert rows_at(table, made) == {1: "a", 2: "c"}


def test_a_killed_run_leaves_nothing_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_fates, "SMALL_ROWS", 0)
    table = tmp_path / "t"
    model: Model = dict.fromkeys(range(40), "first")
    version = begun(table, model)
    with killed(before(committing, "create")):
        changed(table, version, {1: "lost"})
    assert list(table.glob("deletion_vector_*.bin"))
    assert log_state(table).version == version
    made = changed(table, version, {1: "second"})
    assert rows_at(table, made) == model | {1: "second"}


def test_columns_change_and_rows_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_fates, "SMALL_ROWS", 0)
    table = tmp_path / "t"
    narrow = pa.schema([("id", pa.int16()), ("v w", pa.string()), ("rescued", RESCUED_TYPE)])
    first = writer_of(table, narrow)
    first.begin_empty()
    rows = table_of({1: "a", 2: "b"}).cast(narrow)
    version = first.replace([rows], (), {})
    files = set(table.glob("*.parquet"))
    more = pa.schema([("v w", pa.int64()), ("id", pa.int64()), ("x", pa.string())])
    more = more.append(SCHEMA.field("rescued"))
    second = writer_of(table, more)
    second.begin(version)
    # The old column has a new name, and a new one has its name.
    second.alter({"v w": None, "id": "id", "x": "v w", "rescued": "rescued"})
    version = second.change(None, (), (), {})
    assert set(table.glob("*.parquet")) == files
    opened = DeltaTable(str(table))
    assert [item.name for item in opened.schema().fields] == more.names
    assert set(opened.protocol().reader_features or ()) == {"columnMapping", "typeWidening"}
    third = writer_of(table, more)
    third.begin(version)
    puts = pa.Table.from_pylist([{"v w": 7, "id": 70_000, "x": "c"}, {"id": 2, "x": "B"}], more)
    found = third.find(keys_of(puts, ["id"], (), "rescued"), count=2)
    assert found.counts.tolist() == [0, 1]
    version = third.change(found, [puts], (), {})
    fourth = writer_of(table, more)
    fourth.begin(version)
    everything = fourth._left([(file, None) for file in fourth.live()]).table_here()
    told = sorted((row["id"], row["v w"], row["x"]) for row in everything.to_pylist())
    assert told == [(1, None, "a"), (2, None, "B"), (70_000, 7, "c")]


def test_a_table_with_a_feature_that_is_not_written_here_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "t"
    version = begun(table, {1: "a"})
    DeltaTable(str(table)).alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(CommitError, match=r"d\.t: another program gave it delta\.constraints"):
        changed(table, version, {2: "b"})
    assert rows_at(table, version) == {1: "a"}


@pytest.mark.parametrize(
    "name", ["delta.appendOnly", "delta.enableInCommitTimestamps", "delta.enableRowTracking"]
)
def test_a_table_whose_property_switches_a_feature_off_is_written(name: str) -> None:
    state = new_state(SCHEMA, LogState(), {name: "false"})
    require_written(state)
    with pytest.raises(FeatureError, match=name):
        require_written(new_state(SCHEMA, LogState(), {name: "true"}))


def test_readers_that_know_no_vectors_read_small_and_portable_tables(
    portable: bool, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    rows = 60 if portable else 4
    version = begun(table, dict.fromkeys(range(rows), "first"), portable=portable)
    version = changed(table, version, {1: "second"}, {2}, portable=portable)
    found = DeltaTable(str(table), version).to_pyarrow_table()
    assert found.num_rows == rows - 1
    assert read_commit(table, version).commit_id is not None


def test_files_of_changes_are_as_many_as_their_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred batches of ten new rows leave some files, and write each row a few times."""
    table = tmp_path / "t"
    version = begun(table, {})
    written = 0
    for batch in range(100):
        before = set(table.glob("*.parquet"))
        version = changed(table, version, dict.fromkeys(range(batch * 10, batch * 10 + 10), "new"))
        new = [path for path in table.glob("*.parquet") if path not in before]
        written += sum(pa.parquet.read_metadata(path).num_rows for path in new)
    assert len(rows_at(table, version)) == 1_000
    assert len(log_state(table).files) <= 8
    assert written <= 1_000 * np.log2(100)


@pytest.mark.parametrize("large", [False, True])
def test_a_compaction_removes_vectors_however_few_files_there_are(
    large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_fates, "SMALL_ROWS", 5)
    monkeypatch.setattr(file_fates, "SMALL_BYTES", 0)
    if large:
        monkeypatch.setattr(file_fates, "JOINED_BYTES", 0)
    table = tmp_path / "t"
    version = begun(table, dict.fromkeys(range(100), "first"))

    def has_vectors() -> bool:
        return any(vector_of(table, item) is not None for item in log_state(table).files)

    for changes, is_worth_writing in (({7: "second"}, not large), (dict.fromkeys(range(8)), True)):
        version = changed(table, version, changes)
        assert has_vectors()
        rows = rows_at(table, version)
        version = writer_of(table).compact(version, {}, few=8)
        assert has_vectors() is not is_worth_writing
        assert rows_at(table, version) == rows
    again = writer_of(table).compact(version, {}, few=8)
    assert again == version
