"""Giving a record up: a person accepts that what a record says is lost.

In: the coordinates of a record in quarantine that no decoder reads. Out: a row of `accepted_gaps`,
a gap of this one offset, and the closed rows of the quarantine. From the next cut on, mirrors that
may lack changes of the record have a caveat, as after any accepted gap. The record does not hold
back retention any more, a redrive leaves it out, and so does a generation that is made again. The
landed bytes stay until retention removes their day.

Why running it again is safe: the gap is written first. If a run is killed before the quarantine is
closed, the next one finds the gap and closes it.
"""

from datetime import UTC, datetime

import pyarrow.compute as pc
import pyarrow.dataset as ds

from ticdc_assets.base.errors import NotFoundError
from ticdc_assets.delta.control import read_table
from ticdc_assets.delta.lake import Lake
from ticdc_assets.log.accepted_gaps import UNREADABLE, AcceptedGap, append_accepted, read_accepted
from ticdc_assets.log.positions import read_position
from ticdc_assets.log.quarantine import Closing, close_rows, place_of, read_quarantine
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.wire.rows import WATERMARK


def give_up(lake: Lake, topic: str, partition: int, offset: int, *, by: str) -> AcceptedGap:
    """Accept the loss of a record. The caller holds the writer lock.

    Args:
        lake: the changefeed's lake.
        topic: topic of the record.
        partition: its partition.
        offset: its offset as it landed.
        by: who accepts it: user and machine.

    Returns:
        The gap that was recorded.

    Raises:
        NotFoundError: no record that cannot be decoded is in quarantine there.
    """
    record = (topic, partition, offset)
    rows = [
        row
        for row in read_quarantine(lake.paths)
        if row["stage"] == "decode" and row["database"] is None and place_of(row)[:-1] == record
    ]
    if not rows:
        raise NotFoundError(
            f"changefeed {lake.changefeed.name!r} has no undecodable record in quarantine at topic "
            f"{topic!r} partition {partition} offset {offset}; "
            f"`ticdc-assets quarantine {lake.changefeed.name}` lists what is there"
        )
    gap = next(
        (
            item
            for item in read_accepted(lake.paths)
            if item.cause.startswith(UNREADABLE)
            and (item.topic, item.partition, item.from_offset) == record
        ),
        None,
    )
    if gap is None:
        position = read_position(lake.paths)
        gap = append_accepted(
            lake.paths,
            AcceptedGap(
                number=0,
                accepted_at=datetime.now(UTC),
                accepted_by=by,
                topic=topic,
                partition=partition,
                # The source stays as it is known: nothing of it is skipped.
                topic_id=position.accepted_ids.get((topic, partition)),
                from_offset=offset,
                to_offset=offset + 1,
                offset_base=position.bases.get((topic, partition), 0),
                cause=f"{UNREADABLE}: {rows[0]['reason']}",
                after_ts=_watermark_before(lake.paths, topic, partition, offset),
            ),
        )
    close_rows(lake.paths, "decode", map(place_of, rows), Closing.GIVEN_UP)
    return gap


def _watermark_before(paths: LakePaths, topic: str, partition: int, offset: int) -> int:
    """Return the highest watermark of a partition before a record, 0 if none is kept."""
    found = read_table(
        paths.change_log,
        (ds.field("kind") == WATERMARK)
        & (ds.field("topic") == topic)
        & (ds.field("partition") == partition)
        & (ds.field("offset") < offset),
        columns=["commit_ts"],
    )
    return 0 if found is None else pc.max(found["commit_ts"]).as_py() or 0
