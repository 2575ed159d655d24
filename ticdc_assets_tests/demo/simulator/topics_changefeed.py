"""The stand-in changefeed that gives each table the topic that TiCDC would give it.

Source: https://github.com/pingcap/ticdc/blob/88274ed88e53/downstreamadapter/sink/eventrouter/topic/expression.go
"""

import re
from typing import Any

from ticdc_assets.config.topics import MAX_TOPIC_CHARACTERS
from ticdc_assets.demo.simulator.changefeed import Batch, StandInChangefeed
from ticdc_assets.demo.simulator.stored_table import TableName
from ticdc_assets.demo.simulator.upstream import Upstream, tables_before


def topic_for(pattern: str, schema: str, table: str) -> str | None:
    """Return the topic that TiCDC writes a table to.

    Names keep their case, as in today's releases. None where the pattern does not say: it has a
    `*`, or takes the value of a column.
    """
    if "*" in pattern or "{column:" in pattern:
        return None
    names = {"{schema}": schema, "{table}": table}
    topic = re.sub(
        r"\{schema\}|\{table\}",
        lambda match: re.sub("[^A-Za-z0-9._-]", "_", names[match[0]]),
        pattern,
    )
    return {".": "_", "..": "__"}.get(topic, topic[:MAX_TOPIC_CHARACTERS])


class TopicsChangefeed(StandInChangefeed):
    """Sends each table into a topic of its own.

    DDL goes to the topic of the table as it was before, DDL of databases to the default topic, and
    watermarks only to the topics of the tables that exist, or to the default topic while none does.
    A watermark comes after everything at or below it in all topics: TiCDC sends it when Kafka has
    acknowledged that.

    Args:
        upstream: whose history is sent.
        pattern: like `cdc_{schema}_{table}`.
        default_topic: where DDL of databases goes.
        options: those of the stand-in.
    """

    def __init__(
        self, upstream: Upstream, pattern: str, *, default_topic: str = "default", **options: Any
    ) -> None:
        super().__init__(upstream, pattern, **options)
        self._default_topic = default_topic

    @property
    def topics(self) -> set[str]:
        """Every topic that was written to so far."""
        return {topic for topic, _ in self._offsets}

    @property
    def active_topics(self) -> list[str]:
        """The topics that get watermarks at the position of the changefeed."""
        later = self.upstream.history[self._position :]
        tables = tables_before(self.upstream.tables_at(), later)
        topics = {
            self._topic_of((item.schema.database, item.schema.table))
            for item in tables.values()
            if self._is_replicated(item.schema)
        }
        return sorted(topics) or [self._default_topic]

    def _topic_of(self, name: TableName) -> str:
        return (topic_for(self.topic, *name) if name[1] else None) or self._default_topic

    def _watermark_topics(self) -> list[str]:
        return self.active_topics

    def _add_watermark(self, batch: Batch, watermark_ts: int) -> None:
        self._line_up_parts(batch)
        batch.parts.clear()
        super()._add_watermark(batch, watermark_ts)
