"""The session that starts when it is asked for, in a process of its own that has none."""

import subprocess
import sys

import pytest

PROGRAM = """
from concurrent.futures import ThreadPoolExecutor

from pyspark import SparkContext

from ticdc_assets.engine.session import LazySession, functions, windows

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
places = windows(other).partitionBy("id")
F = functions(spark)
assert spark.range(3).withColumn("n", F.count("*").over(places)).count() == 3
assert spark.range(1).sparkSession is not running
spark.sparkContext._jvm.System.err.print("from Java")
spark.stop()
"""


@pytest.mark.spark
def test_a_lazy_session_starts_once_and_again_after_it_was_stopped(java: None) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    # Java's warning of Spark's own options is not passed on, and all else is, to the last byte.
    assert done.stderr == "from Java"
