"""The Spark session of `spark.session` as a Dagster resource, started when first used.

Sensors, cheap checks and the loading of definitions never use it, so they need no JVM. All steps
that a process runs use the same session. The key is `ticdc_spark`, because a user's project may
have a resource `spark` of its own.

It is not dagster-pyspark's resource, which starts a session without the lake's settings: importing
that module describes all settings of Spark to Dagster, which takes a fifteenth of a small sync.
"""

import dagster as dg
from pydantic import Field, PrivateAttr
from pyspark.sql import SparkSession

from ticdc_assets.spark.session import LazySession


class LakeSpark(dg.ConfigurableResource[SparkSession]):
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

    _session: SparkSession | None = PrivateAttr(default=None)

    @property
    def spark_session(self) -> SparkSession:
        """The session, which starts at its first use."""
        if self._session is None:
            # A running session keeps its settings: only a new one gets these.
            self._session = LazySession(self.spark_config)
        return self._session
