"""The Spark session of `spark.session` as a Dagster resource, started when first used.

Sensors, cheap checks and the loading of definitions never use it, so they need no JVM. All steps
that a process runs use the same session. The key is `ticdc_spark`, because a user's project may
have a resource `spark` of its own.
"""

from dagster_pyspark import LazyPySparkResource
from pydantic import Field
from pyspark.sql import SparkSession

from ticdc_assets.spark.session import LazySession


class LakeSpark(LazyPySparkResource):
    """The Spark session that a changefeed's steps work with.

    Use it by annotation, as any resource:

        @dg.asset
        def rows(ticdc_spark: LakeSpark) -> None:
            ticdc_spark.spark_session.read.format("delta").load(...)

    A session that this process runs already is used as it is; that is how tests share theirs.
    """

    spark_config: dict[str, str] = Field(
        default_factory=dict,
        description="Spark settings that override those of `ticdc_assets.spark.session`.",
    )

    def _init_session(self) -> None:
        if self._spark_session is None:
            # A running session keeps its settings: only a new one gets these.
            self._spark_session = LazySession(self.spark_config)

    @property
    def spark_session(self) -> SparkSession:
        """The session, which starts at its first use."""
        self._init_session()
        return self._spark_session
