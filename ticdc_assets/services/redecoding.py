"""Re-decoding: the records of whole landing days once more, compared with what came of them.

In: landing days (UTC), their records in `raw_messages`, and what `change_log` and `quarantine` have
of these. Out: nothing at all where they say the same. Where they differ, because the decoder was
fixed or rows were lost, changed or added, the rows that differ are replaced, in one commit a day;
the quarantine of the day's records is renewed and the totals are made anew. If DDL or bootstraps
differed, the next registering makes the schema registry anew; and the next apply folds every table
of which row changes differed. The commit tells both (`change_statistics.Correction`) and so do the
totals (`ChangeGroups.repairs`), so it does not depend on who runs next.

`redecoded_days` compares and corrects one day. `redecode_ahead` does it for those records alone
that have events whose time stamp is too far ahead (`ahead`).

Why running it again is safe: a day that was corrected is equal, so it is left alone. A run killed
behind the commit is finished by whoever decodes next (`decode_new`). What is refused is in
quarantine before its rows go; what is not refused any more is closed there last, if need be by the
next re-decoding of the day.

Not handled: days of which `retention` may have truncated records or rows are refused, for there is
nothing whole to compare. A row whose landing day was changed is missed on the one day and left on
the other until that one is decoded again too.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, date, timedelta

from pyspark.sql import SparkSession

from ticdc_assets.config import Changefeed
from ticdc_assets.engine.paths import LakePaths
from ticdc_assets.engine.session import functions
from ticdc_assets.errors import NotFoundError
from ticdc_assets.pipeline.ahead import is_ahead, limit_ms
from ticdc_assets.pipeline.change_statistics import read_groups
from ticdc_assets.pipeline.decoding import Decoding, decode_new
from ticdc_assets.pipeline.truncation_points import read_raw_truncation_point, read_truncation_point
from ticdc_assets.services.redecoded_days import LandingDay, RedecodedDay
from ticdc_assets.tso import LOGICAL_BITS
from ticdc_assets.wire.rows import COORDINATES


@dataclass(frozen=True, slots=True, kw_only=True)
class Redecoding:
    """What one re-decoding did.

    Attributes:
        days: each day, in order.
        decoding: what was decoded before it, because it had landed or a run was killed.
    """

    days: tuple[RedecodedDay, ...]
    decoding: Decoding

    @property
    def equal(self) -> bool:
        """Whether nothing was changed on any day."""
        return all(item.equal for item in self.days)


def redecode(
    spark: SparkSession, paths: LakePaths, changefeed: Changefeed, days: Collection[date]
) -> Redecoding:
    """Decode the landed records of `days` again and correct what differs.

    The caller holds the writer lock.

    Raises:
        NotFoundError: records or rows of a day were truncated, or its records are gone.
    """
    _require_kept(paths, days)
    truncation_point = read_truncation_point(paths)
    decoding = decode_new(spark, paths, changefeed)
    return Redecoding(
        days=tuple(
            LandingDay(spark, paths, changefeed, day, truncation_point).redecode()
            for day in sorted(set(days))
        ),
        decoding=decoding,
    )


def redecode_ahead(
    spark: SparkSession, paths: LakePaths, changefeed: Changefeed
) -> tuple[RedecodedDay, ...]:
    """Move what is too far ahead out of the change log into quarantine.

    It may be there because an older version or a higher limit let it in. Records above what
    retention truncated are whole, and what is too far ahead is above it, so no day is refused. The
    caller holds the writer lock, and everything that landed is decoded.

    Returns:
        What was done, for each landing day that has such records.
    """
    limit = changefeed.max_ahead_seconds
    if not any(
        row["max_ts"] is not None and is_ahead(row["max_ts"], row["first_landed_at"], limit)
        for row in read_groups(paths).rows
    ):
        return ()
    F = functions(spark)
    at_ms = F.shiftright("commit_ts", LOGICAL_BITS)
    # Kafka's timestamp may still speak for some of them.
    records = (
        spark.read.format("delta")
        .load(str(paths.change_log))
        .where(at_ms > F.unix_millis("landed_at") + limit_ms(limit))
        .select(*COORDINATES, "landed_day")
        .distinct()
        # What is only cached is made anew after a commit to the table, and then they are gone.
        .localCheckpoint()
    )
    days = [row["landed_day"] for row in records.select("landed_day").distinct().collect()]
    truncation_point = read_truncation_point(paths)
    return tuple(
        LandingDay(
            spark, paths, changefeed, day, truncation_point, only=records.drop("landed_day")
        ).redecode()
        for day in sorted(days)
    )


def first_whole_day(paths: LakePaths) -> date:
    """Return the first landing day of which nothing was truncated; needs no Spark."""
    cuts = [
        item.cut
        for item in (read_truncation_point(paths), read_raw_truncation_point(paths))
        if item.cut
    ]
    # What a base is made of had landed when it was published.
    published = (cut.published_at.astimezone(UTC).date() for cut in cuts)
    return max((day + timedelta(days=1) for day in published), default=date.min)


def _require_kept(paths: LakePaths, days: Collection[date]) -> None:
    first = first_whole_day(paths)
    if days and min(days) < first:
        raise NotFoundError(
            f"{min(days)} of changefeed {paths.changefeed!r} cannot be decoded again: retention "
            f"removed records or rows that landed before {first}; that is the first day that can be"
        )
