"""Spark on a lake in a store, in processes of its own: large mirrors, upkeep, writers at once."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ticdc_assets.engine.control import dataset_of, opened, write_table
from ticdc_assets.pipeline.cuts import require_cut
from ticdc_assets.simulator.alterations import DropColumn
from ticdc_assets.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.simulator.columns import column
from ticdc_assets.simulator.upstream import Upstream
from ticdc_assets.storage.paths import delta_options, names_in
from ticdc_assets_tests.commands import Commands
from ticdc_assets_tests.golden import rows_of
from ticdc_assets_tests.lake.feeds import truth_rows
from ticdc_assets_tests.s3 import SECRETS
from ticdc_assets_tests.simulator.builders import write_capture
from ticdc_assets_tests.stores import StoreLake

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

LARGE = ("d", "large")
"""11,000 rows: a mirror that Spark writes and merges into."""


def commands_at(folder: Path, lake: StoreLake) -> Commands:
    folder.mkdir(exist_ok=True)
    commands = Commands(folder, lake)
    commands.add_capture("feed", folder / "capture.jsonl")
    return commands


def in_spark(commands: Commands, text: str, *arguments: object) -> "subprocess.Popen[bytes]":
    """Start a program with a Spark session on the lake."""
    begin = "import sys\nfrom ticdc_assets.engine.session import get_spark\nspark = get_spark()\n"
    return commands.start(
        "-c",
        begin + text,
        *arguments,
        program=(sys.executable,),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def told(program: "subprocess.Popen[bytes]") -> str:
    stdout, stderr = program.communicate(timeout=900)
    assert program.returncode == 0, stderr.decode()[-5000:]
    for text in (stdout, stderr):
        assert SECRETS["LAKE_SECRET_KEY"] not in text.decode()
    return stdout.decode()


def test_a_large_mirror_is_merged_altered_maintained_and_verified(
    store_lake: StoreLake, tmp_path: Path, java: None
) -> None:
    upstream = Upstream()
    upstream.create_database("d")
    columns = (column("id", "int", nullable=False), column("v", "int"), column("day", "date"))
    upstream.create_table(LARGE, columns, primary_key=("id",))
    with upstream.transaction() as transaction:
        for number in range(11_000):
            transaction.insert(LARGE, {"id": str(number), "v": "0", "day": "2026-01-01"})
    changefeed = StandInChangefeed(
        upstream, "d", partitions=2, options=FeedOptions(rows_per_flush=3_000)
    )
    commands = commands_at(tmp_path, store_lake)

    def synced() -> None:
        write_capture(tmp_path / "capture.jsonl", changefeed.records())
        commands.ran("sync", "feed")
        cut = require_cut(commands.paths("feed"))
        assert (cut.failed, cut.unaccounted) == ((), ())
        rows = rows_of(map(json.loads, commands.ran("dump", "feed").splitlines()))
        assert rows == truth_rows(upstream.truth())

    synced()
    for turn in range(2):
        with upstream.transaction() as transaction:
            transaction.update(LARGE, (str(turn),), changes={"v": "5"})
        synced()
    upstream.alter_table(LARGE, DropColumn(name="day"))
    with upstream.transaction() as transaction:
        transaction.delete(LARGE, ("7",))
    synced()
    (mirror,) = require_cut(commands.paths("feed")).mirrors
    operations = [
        item["operation"] for item in opened(mirror.path(commands.paths("feed"))).history()
    ]
    assert "MERGE" in operations
    commands.ran("maintain", "feed")
    assert "equal" in commands.ran("verify", "feed")
    synced()


# Writers at once --------------------------------------------------------------------------------

_BY_THE_LOG_STORE = """
from functools import reduce
jvm, place = spark._jvm, sys.argv[1]
conf = spark.sparkContext._jsc.hadoopConfiguration()
store = reduce(getattr, sys.argv[2].split("."), jvm)(conf)
path = jvm.org.apache.hadoop.fs.Path(place)

def put(text, overwrite=False):
    lines = jvm.java.util.ArrayList()
    lines.add(text)
    try:
        store.write(path, lines.iterator(), overwrite, conf)
        return "put"
    except Exception as error:
        return error.java_exception.getClass().getName()

print(put("first"), put("second"), put("first"), put("third", True), put("first"), sep="\\n")
"""


def test_a_commit_takes_the_place_of_none(
    store_lake: StoreLake, tmp_path: Path, java: None
) -> None:
    commands = commands_at(tmp_path, store_lake)
    place = store_lake.path / "table" / "_delta_log" / f"{0:020}.json"
    # On HDFS the folder has to be there, as Delta sees to.
    place.with_name("begun").write_text("")
    scheme = place.store.scheme
    log_store = place.store.spark_settings()[f"spark.delta.logStore.{scheme}.impl"]
    found = told(in_spark(commands, _BY_THE_LOG_STORE, place, log_store)).split()
    exists = "java.nio.file.FileAlreadyExistsException"
    # The third put is of what is there. On S3 that is its own, whose answer was lost.
    assert found == ["put", exists, "put" if scheme == "s3" else exists, "put", exists]
    assert place.read_text() == "third\n"


_APPENDING = """
from time import sleep
table, writer, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
for number in range(times):
    rows = spark.createDataFrame([(f"{writer}-{number}",)], "name string")
    rows.write.format("delta").mode("append").save(table)
"""


def test_what_two_sparks_and_delta_rs_append_at_once_is_all_there(
    store_lake: StoreLake, tmp_path: Path, java: None
) -> None:
    table, times = store_lake.path / "table", 8
    none = pa.table({"name": pa.array([], pa.string())})
    write_table(table, none, overwrite=False, metadata={})
    names = ("one", "two")
    writers = [
        in_spark(commands_at(tmp_path / name, store_lake), _APPENDING, table, name, times)
        for name in names
    ]
    done, own = threading.Event(), list[str]()

    def append() -> None:
        while not done.is_set():
            own.append(f"own-{len(own)}")
            rows = pa.table({"name": [own[-1]]})
            write_deltalake(str(table), rows, mode="append", storage_options=delta_options(table))
            done.wait(0.2)

    thread = threading.Thread(target=append)
    thread.start()
    try:
        for writer in writers:
            told(writer)
    finally:
        done.set()
        thread.join()
    found = opened(table)
    rows = dataset_of(found, table).to_table()["name"].to_pylist()
    wanted = {f"{name}-{number}" for name in names for number in range(times)} | set(own)
    assert set(rows) == wanted
    assert len(rows) == len(wanted)
    assert found.version() == len(wanted)
    commits = [name for name in names_in(table / "_delta_log") if name.endswith(".json")]
    assert len(commits) == len(wanted) + 1
