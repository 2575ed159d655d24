"""A Spark Connect server of pyspark's own: commands on it make the mirrors that others make."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest

from ticdc_assets.base.ports import free_port
from ticdc_assets.log.cuts import require_cut
from ticdc_assets.spark.jars import SPARK_JARS, resolve
from ticdc_assets_tests.commands import Commands
from ticdc_assets_tests.delta.libraries import opened
from ticdc_assets_tests.golden import Scenario, assert_same_rows

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]

_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_SECONDS_TO_START = 120.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, java: None) -> Iterator[str]:
    """Run a server; give its address."""
    folder, port = tmp_path_factory.mktemp("connect"), free_port()
    home = Path(pyspark.__file__).parent
    conf = {
        **_DELTA,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    command = [
        str(home / "bin" / "spark-submit"),
        *("--master", "local[2]", "--driver-memory", "1g"),
        *("--jars", ",".join(map(str, resolve(SPARK_JARS)))),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *(word for name, value in conf.items() for word in ("--conf", f"{name}={value}")),
        "spark-internal",
    ]
    env = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    env |= {"PYSPARK_PYTHON": sys.executable}
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=env, cwd=folder, stdout=output, stderr=output, start_new_session=True
        )
    try:
        deadline = time.monotonic() + _SECONDS_TO_START
        while "Spark Connect server started" not in log.read_text(errors="replace"):
            assert process.poll() is None, log.read_text(errors="replace")[-3000:]
            assert time.monotonic() < deadline, log.read_text(errors="replace")[-3000:]
            time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=60)


_READ = """
import sys
from ticdc_assets.reading.mirrors import read_mirror
for database, table in [name.split(".") for name in sys.argv[1:]]:
    print(read_mirror(None, "feed", database, table).count())
"""

_MAINTAIN = """
from datetime import UTC, datetime, timedelta
from ticdc_assets.config import load_settings
from ticdc_assets.spark.compute import watched
from ticdc_assets.delta.lake import Lake
from ticdc_assets.repair.maintenance import maintain
settings = load_settings()
lake = Lake.open(settings.lake, settings.changefeed("feed"))
now = datetime.now(UTC) + timedelta(days=2)
with watched() as ran:
    done = maintain(lake, now=now, margin=timedelta(0))
print(ran.sentence)
print(done.retaining.changes)
"""


def test_commands_on_a_connect_server_make_the_same_mirrors(
    server: str, tmp_path: Path, golden_dir: Callable[..., Path]
) -> None:
    """Every step runs there: a sync, a read, a verify, a compaction and the removal of files."""
    scenario = Scenario(golden_dir("simple-json", "shop"))
    commands = Commands(tmp_path)
    commands.add_scenario("feed", scenario)
    env = {"SPARK_REMOTE": server, "TICDC_COMPUTE": "spark"}

    def ran(*arguments: object) -> str:
        done = commands.program(*arguments, env=env)
        assert done.returncode == 0, done.stderr
        assert "on Spark Connect, local[2]" in done.stderr, done.stderr
        return done.stdout

    def script(text: str, *arguments: str) -> bytes:
        program = commands.start(
            "-c", text, *arguments, program=(sys.executable,), env=env, stdout=subprocess.PIPE
        )
        output = program.communicate(timeout=300)[0]
        assert program.returncode == 0
        return output

    ran("sync", "feed", "--max-records", 1_000)
    ran("sync", "feed")
    cut = require_cut(commands.paths("feed"))
    assert (cut.failed, cut.unaccounted, cut.tso) == ((), (), scenario.end)
    assert_same_rows(commands.rows("feed"), scenario.state(), variant=scenario.variant)
    names = [f"{mirror.database}.{mirror.table}" for mirror in cut.mirrors]
    counts = script(_READ, *names).split()
    assert [int(count) for count in counts] == [mirror.rows for mirror in cut.mirrors]
    assert "equal" in ran("verify", "feed")
    # Some of the log goes, and what is left of two batches is joined.
    commands.set("feed", retention={"change_log": "1 hours"})
    maintained = script(_MAINTAIN).decode()
    assert "on Spark Connect, local[2]" in maintained
    assert int(maintained.split()[-1]) > 0
    log = commands.paths("feed").change_log
    operations = [item["operation"] for item in opened(log).history()]
    assert {"DELETE", "OPTIMIZE"} <= {*operations}
    assert_same_rows(commands.rows("feed"), scenario.state(), variant=scenario.variant)
