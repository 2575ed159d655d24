"""The global watermark of a changefeed, from the pipeline's control tables; no Spark.

In: the partitions from the newest landing, the statistics of the change log, the DDL history and
the newest cut. Out: how far changes may be applied, and the state of each topic. Nothing is stored:
it is computed again each time, and is never below the newest published cut.
"""

from collections.abc import Mapping
from dataclasses import replace

from ticdc_assets.changelog.progress import GlobalWatermark, TopicFacts, global_watermark
from ticdc_assets.changelog.topics import TopicRows, TopicTables, topic_tables
from ticdc_assets.delta.lake import Lake
from ticdc_assets.delta.opening import kept
from ticdc_assets.log.change_statistics import ChangeStatistics, read_statistics
from ticdc_assets.log.cuts import Cut, newest_cut
from ticdc_assets.log.positions import (
    PartitionOffsets,
    landed_batch,
    names_topics,
    newest_landing,
    partitions_of,
)
from ticdc_assets.log.schema_tables import completed_history
from ticdc_assets.log.totals import NO_TOPIC


def read_watermark(
    lake: Lake, *, statistics: ChangeStatistics | None = None, cut: Cut | None = None
) -> GlobalWatermark:
    """Return the global watermark; the caller passes what it has already read."""
    paths = lake.paths
    statistics = read_statistics(paths) if statistics is None else statistics
    cut = newest_cut(paths) if cut is None else cut
    published_ts = 0 if cut is None else cut.tso
    landing = newest_landing(paths)
    by_topic: dict[str, list[PartitionOffsets]] = {}
    for item in () if landing is None else partitions_of(landing):
        by_topic.setdefault(item.topic, []).append(item)
    tables = _tables_by_topic(lake, statistics)
    decoded = {row["topic"] for row in statistics.rows} - {NO_TOPIC}

    def facts(topic: str) -> TopicFacts:
        listed, contents = by_topic.get(topic, []), tables.get(topic)
        return TopicFacts(
            topic=topic,
            partitions=tuple(item.partition for item in listed),
            # Records from before the first landing, or expired ones, do not count.
            empty=topic not in decoded and not any(item.backlog for item in listed),
            settled=bool(listed) and all(item.settled for item in listed),
            tables=None if contents is None else contents.tables,
            retired_ts=None if contents is None else contents.retired_ts,
        )

    watermark = global_watermark(
        statistics.progress(),
        tuple(map(facts, sorted(by_topic.keys() | decoded))),
        published_ts=published_ts,
        lists_anew=names_topics(paths),
    )
    if (0 if landing is None else landing["batch"]) < landed_batch(paths):
        # A run was killed before it logged what it landed: its watermarks are above the partitions
        # known here, and others may lack records below them. The next landing lists all.
        return replace(watermark, watermark_ts=published_ts or None, slowest=None)
    return watermark


def _tables_by_topic(lake: Lake, statistics: ChangeStatistics) -> Mapping[str, TopicTables]:
    return kept(
        lake.paths.ddl_history,
        f"tables by topic of batch {statistics.batch}",
        lambda: topic_tables(
            completed_history(lake.paths, statistics, lake.changefeed.timezone),
            (
                TopicRows(
                    topic=row["topic"],
                    database=row["database"],
                    table=row["table"],
                    min_ts=row["min_ts"] or 0,
                    max_ts=row["max_ts"] or 0,
                )
                for row in statistics.rows
                if row["kind"] in ("row", "bootstrap")
            ),
        ),
    )
