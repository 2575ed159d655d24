"""The total order in which changes of one table take effect.

Commit ts first; within one commit ts of a table deletes before puts (the halves of a split update
may sit in two partitions, and nothing orders these); then topic, partition, offset and index, so
that the order is total and a replay gives the same one. The lake's folding uses the same fields.
"""

from typing import NamedTuple


class Sequence(NamedTuple):
    """Sort key of one change of one table."""

    commit_ts: int
    rank: int
    topic: str
    partition: int
    offset: int
    index: int


DELETE_RANK = 0
PUT_RANK = 1


def sequence_of(
    *, commit_ts: int, is_delete: bool, topic: str, partition: int, offset: int, index: int
) -> Sequence:
    """Return the sort key of a change."""
    return Sequence(
        commit_ts, DELETE_RANK if is_delete else PUT_RANK, topic, partition, offset, index
    )
