"""The session that starts when it is asked for, in a process of its own that has none."""

import shlex
import socket
from contextlib import closing
from pathlib import Path

import pytest

from ticdc_assets.config import OptionValue, SparkSettings
from ticdc_assets.config.spark import OWN
from ticdc_assets.spark import session
from ticdc_assets.spark.session import session_conf
from ticdc_assets_tests.fresh import printed

PROGRAM = """
from concurrent.futures import ThreadPoolExecutor

from pyspark import SparkContext

from ticdc_assets.spark.session import LazySession, functions

spark, other = LazySession(), LazySession()
assert isinstance(spark, LazySession)
assert SparkContext._active_spark_context is None

# Several threads are the first to ask, of more than one of them.
with ThreadPoolExecutor(4) as pool:
    built = list(pool.map(lambda session: functions(session).lit(1), [spark, other] * 4))
assert len(built) == 8
running = spark.range(1).sparkSession
assert running is other.range(1).sparkSession
assert running.conf.get("spark.sql.session.timeZone") == "UTC"

# A session of its own, used last in this thread, is nobody else's.
alone = spark.newSession()
alone.conf.set("spark.sql.session.timeZone", "Asia/Shanghai")
alone.createDataFrame([(1,)], "n int").count()
assert LazySession().conf.get("spark.sql.session.timeZone") == "UTC"

spark.stop()
assert SparkContext._active_spark_context is None
F = functions(other)
assert spark.range(3).where(F.col("id") > 0).count() == 2
assert spark.range(1).sparkSession is not running
spark.stop()
"""


@pytest.mark.spark
def test_a_lazy_session_starts_once_and_again_after_it_was_stopped(java: None) -> None:
    # It is of the Spark that is installed with this package, whatever else there is.
    printed(PROGRAM, env={"SPARK_HOME": "/nowhere"})


def settings(*secrets: str, **properties: str) -> SparkSettings:
    """Settings whose properties have `_` for `.` in their names."""
    given = {
        name.replace("_", "."): OptionValue(value, value) for name, value in properties.items()
    }
    given |= {name: OptionValue("its-value", "{env: NAME}") for name in secrets}
    return SparkSettings(properties=given)


@pytest.mark.spark
def test_on_a_cluster_address_python_and_memory_are_what_is_set(
    java: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)  # a local session may have set it
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        master = f"spark://127.0.0.1:{server.getsockname()[1]}"
        conf = session_conf(
            settings=settings(
                *("spark.hadoop.a.note", "spark.b"),
                spark_master=master,
                spark_sql_extensions="org.other.Extension",
                spark_jars="/other.jar",
                spark_sql_shuffle_partitions="64",
                spark_driver_extraJavaOptions="-Dother=1",
            )
        )
    assert conf["spark.master"] == master
    assert conf["spark.driver.host"] == "127.0.0.1"  # which is the way to that master
    assert "spark.driver.bindAddress" not in conf
    assert conf["spark.jars"].endswith(".jar,/other.jar")
    assert "spark.driver.extraClassPath" not in conf
    extensions = "io.delta.sql.DeltaSparkSessionExtension,org.other.Extension"
    assert conf["spark.sql.extensions"] == extensions
    assert conf["spark.sql.shuffle.partitions"] == "64"
    assert conf["spark.driver.extraJavaOptions"].endswith(" -Dother=1")
    assert "-Xms64m" not in conf["spark.driver.extraJavaOptions"]
    assert conf["spark.redaction.regex"].endswith("|spark[.]b|a[.]note")
    assert conf.items() >= OWN.items()
    # A property of one run lies over them, but for what is ours.
    own = session_conf(
        {"spark.sql.shuffle.partitions": "3"}, settings=settings(spark_master="yarn")
    )
    assert own["spark.sql.shuffle.partitions"] == "3"
    assert "spark.driver.host" not in own  # Spark's own choice


@pytest.mark.spark
def test_in_local_mode_address_and_python_are_ours(java: None) -> None:
    conf = session_conf(
        settings=settings(
            spark_master="local[3]",
            spark_driver_host="10.0.0.1",
            spark_archives="a.tar.gz#environment",
            spark_pyspark_python="./environment/bin/python",
        )
    )
    assert conf["spark.master"] == "local[3]"
    assert conf["spark.driver.host"] == conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert not {"spark.archives", "spark.pyspark.python", "spark.jars"} & conf.keys()
    assert "-Xms64m" in conf["spark.driver.extraJavaOptions"]


def test_blanks_in_the_folder_of_the_package_end_no_option_of_the_jvm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "LOG4J", Path("/my projects/log4j2.properties"))
    options = session_conf(settings=SparkSettings(), jars=())["spark.driver.extraJavaOptions"]
    assert all(word.startswith("-") for word in shlex.split(options))
    assert "-Dlog4j2.configurationFile=file:///my%20projects/log4j2.properties" in options
